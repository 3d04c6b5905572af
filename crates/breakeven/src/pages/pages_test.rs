//! Connections against a plain array of bytes, on the simulated disk and in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::blocks::{Blocks, BlocksOptions, Durability};
use crate::error::Error;
use crate::pool::{Pool, PoolOptions};
use crate::storage::testing::{Call, WatchedStorage};
use crate::storage::{MemoryStorage, OpenOptions, Storage};

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

fn open(storage: &Arc<dyn Storage>, name: &str) -> Connection {
    let store = PageStore::new(Arc::clone(storage), name, PageOptions::default());
    Connection::open(Arc::new(store)).unwrap()
}

fn pool(worker_count: usize) -> Pool {
    Pool::new(PoolOptions { worker_count }).unwrap()
}

fn page(seed: u64) -> Vec<u8> {
    let line = format!("row {seed} says what rows say, ");
    line.bytes().cycle().take(4096).collect()
}

/// A store with right checksums and an impossible note.
#[test]
fn a_length_that_cannot_be_is_refused() {
    for size_bytes in [2 * 4096 + 1, 1 << 48, u64::MAX] {
        let storage = memory();
        PageStore::create(&*storage, "db", PageOptions::default()).unwrap();
        let mut connection = open(&storage, "db");
        assert!(connection.lock(LockLevel::Exclusive).unwrap());
        connection.write(0, &page(0)).unwrap();
        connection.write(4096, &page(1)).unwrap();
        connection.note_length(size_bytes);
        connection.commit().unwrap();
        drop(connection);
        let mut connection = open(&storage, "db");
        let seen = connection
            .lock(LockLevel::Shared)
            .map(|_| connection.size_bytes());
        let error = match seen {
            Ok(found) => found.unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
}

fn store(storage: &Arc<dyn Storage>) -> Arc<PageStore> {
    let options = PageOptions::default();
    Arc::new(PageStore::new(Arc::clone(storage), "db", options))
}

/// A volume of a database's greatest length, with two pages in it. The test counts the work done.
#[test]
fn what_is_not_stored_is_not_walked_over() {
    const SIZE_BYTES: u64 = 1 << 48;
    const FAR_PAGE: u64 = 1 << 35;
    let (storage, target) = (memory(), memory());
    PageStore::create(&*storage, "db", PageOptions::default()).unwrap();
    let mut connection = open(&storage, "db");
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    connection.write(0, &page(0)).unwrap();
    connection.write(FAR_PAGE * 4096, &page(1)).unwrap();
    connection.truncate(SIZE_BYTES).unwrap();
    connection.commit().unwrap();
    drop(connection);
    let mut steps = 0;
    let mut count = |_, _| {
        steps += 1;
        true
    };
    let checked = check(store(&storage), &mut count).unwrap();
    export(store(&storage), (&target, "plain"), &pool(0), &mut count).unwrap();
    assert_eq!(
        steps,
        2 + 2 * 2,
        "pages, then chunks that are written and read"
    );
    let kinds = checked.kinds.iter().map(|(kind, pages, _)| (*kind, *pages));
    let expected = [
        (PageKind::First, 1),
        (PageKind::Other, SIZE_BYTES / 4096 - 1),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    assert!(checked.broken.is_empty());
    let plain = target.open("plain", OpenOptions::read_only()).unwrap();
    assert_eq!(plain.status().unwrap().size_bytes, SIZE_BYTES);
    let mut bytes = vec![0; 3 * 4096];
    plain
        .read_exact_at(&mut bytes, (FAR_PAGE - 1) * 4096)
        .unwrap();
    let zeros = vec![0; 4096];
    assert!(bytes == [&zeros[..], &page(1), &zeros].concat());
    plain.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes == [&page(0)[..], &zeros, &zeros].concat());
}

/// A map that shows one page at every place: nothing in it is damaged, and it may go on for ever.
#[test]
fn a_map_of_more_than_the_file_has_is_refused() {
    let storage = memory();
    PageStore::create(&*storage, "db", PageOptions::default()).unwrap();
    let mut connection = open(&storage, "db");
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    let mut noise = vec![0; 4096];
    fastrand::Rng::with_seed(crate::testing::seed(22)).fill(&mut noise);
    connection.write(0, &noise).unwrap();
    connection.truncate(1000 * 4096).unwrap();
    connection.commit().unwrap();
    drop(connection);
    check(store(&storage), &mut |_, _| true).unwrap();
    let blocks = Blocks::open(&*storage, "db", BlocksOptions::default()).unwrap();
    let volume = blocks.snapshot().volumes().next().unwrap();
    let mut transaction = blocks.begin().unwrap();
    for index in 1..1000 {
        transaction.alias((volume, 0), (volume, index)).unwrap();
    }
    transaction.commit(Durability::Durable).unwrap();
    drop(blocks);
    let expect = |result: Result<(), Error>| {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    };
    expect(check(store(&storage), &mut |_, _| true).map(drop));
    let target = (&storage, "plain");
    expect(export(store(&storage), target, &pool(0), &mut |_, _| true).map(drop));
    assert_eq!(storage.list("").unwrap().len(), 1, "nothing is left over");
}

#[test]
fn a_database_may_be_made_longer_before_it_is_written() {
    let storage = memory();
    PageStore::create(&*storage, "db", PageOptions::default()).unwrap();
    let mut connection = open(&storage, "db");
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    connection.truncate(10_000).unwrap();
    connection.write(0, &page(0)).unwrap();
    connection.commit().unwrap();
    drop(connection);
    let mut connection = open(&storage, "db");
    assert!(connection.lock(LockLevel::Shared).unwrap());
    assert_eq!(connection.size_bytes().unwrap(), 10_000);
    let space = connection.space().unwrap();
    assert_eq!((space.logical_bytes, space.stored_blocks), (10_000, 1));
}

#[test]
fn a_rewrite_tells_how_far_it_is_and_may_be_ended() {
    let storage = memory();
    let options = PageOptions {
        checkpoint_bytes: 128 << 10,
        ..PageOptions::default()
    };
    PageStore::create(&*storage, "db", options).unwrap();
    let store = PageStore::new(Arc::clone(&storage), "db", options);
    let mut connection = Connection::open(Arc::new(store)).unwrap();
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    // Noise, so that it fills segments.
    let mut random = fastrand::Rng::with_seed(crate::testing::seed(18));
    let noise: Vec<u8> = (0..400 * 4096).map(|_| random.u8(..)).collect();
    for (page, at) in noise.chunks(4096).zip((0..).step_by(4096)) {
        connection.write(at, page).unwrap();
    }
    connection.commit().unwrap();
    let ended = connection.rewrite(&mut |done, _| done == 0);
    assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
    let mut told = Vec::new();
    let heard = &mut |done, total| {
        told.push((done, total));
        true
    };
    connection.rewrite(heard).unwrap();
    assert!(told.len() > 4 && told.is_sorted(), "{told:?}");
    assert_eq!((told[0].0, told[0].1), (0, told[told.len() - 1].0));
    let mut found = vec![0; noise.len()];
    assert_eq!(connection.read(0, &mut found).unwrap(), noise.len());
    assert!(found == noise);
}

/// Two processes, as far as the store can tell: each has opened it for itself.
#[test]
fn two_openings_write_in_turn_and_see_each_other() {
    let storage = memory();
    assert!(PageStore::create(&*storage, "db", PageOptions::default()).unwrap());
    assert!(!PageStore::create(&*storage, "db", PageOptions::default()).unwrap());
    let mut random = fastrand::Rng::with_seed(crate::testing::seed(4096));
    let mut connections = [
        open(&storage, "db"),
        open(&storage, "db"),
        open(&storage, "db"),
    ];
    let mut expected: Vec<u8> = Vec::new();
    let (mut commits, mut aborts) = (0, 0);
    for round in 0..400u64 {
        let connection = &mut connections[random.usize(..3)];
        assert!(connection.lock(LockLevel::Shared).unwrap());
        let mut found = vec![1; expected.len() + 10];
        assert_eq!(connection.read(0, &mut found).unwrap(), expected.len());
        assert!(found[..expected.len()] == expected && found[expected.len()..] == [0; 10]);
        if random.bool() {
            connection.unlock(LockLevel::None).unwrap();
            continue;
        }
        assert!(connection.lock(LockLevel::Exclusive).unwrap());
        let before = expected.clone();
        for _ in 0..random.usize(1..20) {
            change(connection, &mut expected, round, &mut random);
        }
        if random.u8(..4) == 0 {
            expected = before;
            aborts += 1;
        } else {
            connection.commit().unwrap();
            connection.sync().unwrap();
            commits += 1;
        }
        if random.bool() {
            connection.unlock(LockLevel::Shared).unwrap();
        }
        connection.unlock(LockLevel::None).unwrap();
    }
    println!("{commits} commits and {aborts} aborts by three openings");
    assert!(commits > 80 && aborts > 20);
}

fn change(
    connection: &mut Connection,
    expected: &mut Vec<u8>,
    round: u64,
    random: &mut fastrand::Rng,
) {
    match random.u8(..10) {
        0 => {
            let size = random.usize(..60 * 4096);
            connection.truncate(size as u64).unwrap();
            expected.resize(size, 0);
        }
        1 => {
            // Of any length at any offset.
            let at = random.usize(..expected.len() + 1);
            let bytes: Vec<u8> = (0..random.usize(1..9000)).map(|_| random.u8(3..)).collect();
            put(connection, expected, at, &bytes);
        }
        _ => put(
            connection,
            expected,
            random.usize(..40) * 4096,
            &page(round),
        ),
    }
    let at = random.usize(..expected.len() + 1);
    let mut found = vec![0; random.usize(1..9000)];
    let count = connection.read(at as u64, &mut found).unwrap();
    assert_eq!(found[..count], expected[at..at + count]);
}

fn put(connection: &mut Connection, expected: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    connection.write(at as u64, bytes).unwrap();
    expected.resize(expected.len().max(at + bytes.len()), 0);
    expected[at..at + bytes.len()].copy_from_slice(bytes);
}

#[test]
fn who_asks_for_it_keeps_writers_out_and_is_kept_out() {
    let storage = memory();
    PageStore::create(&*storage, "db", PageOptions::default()).unwrap();
    let (mut one, mut two) = (open(&storage, "db"), open(&storage, "db"));
    one.keep_writers_out();
    assert!(one.lock(LockLevel::Shared).unwrap());
    assert!(one.write(0, &page(1)).is_err(), "without EXCLUSIVE");
    assert!(!two.lock(LockLevel::Exclusive).unwrap());
    one.unlock(LockLevel::None).unwrap();
    assert!(two.lock(LockLevel::Exclusive).unwrap());
    two.write(0, &page(1)).unwrap();
    // Without a lock, and while another writes, there is nothing to see.
    let mut found = [1; 100];
    assert_eq!((one.read(0, &mut found).unwrap(), found), (0, [0; 100]));
    two.commit().unwrap();
    two.unlock(LockLevel::None).unwrap();
    assert_eq!(one.read(0, &mut found).unwrap(), 100);
    assert_eq!(found[..], page(1)[..100]);
}

/// A database as SQLite would make it, as far as header and freelist go. Pages 3 and 4 are leaves of the trunk on page
/// 2.
fn with_freelist() -> Vec<u8> {
    let mut bytes: Vec<u8> = (1..=6).flat_map(page).collect();
    bytes[..16].copy_from_slice(PLAIN_MAGIC);
    bytes[16..20].copy_from_slice(&[16, 0, 2, 2]);
    bytes[32..40].copy_from_slice(&[0, 0, 0, 2, 0, 0, 0, 3]);
    bytes[4096..4096 + 16].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4]);
    bytes
}

#[test]
fn what_killed_imports_left_is_removed_by_the_next() {
    let storage = memory();
    let plain = with_freelist();
    let write = |name: &str| {
        let file = storage.open(name, OpenOptions::create_new()).unwrap();
        file.write_at(&[std::io::IoSlice::new(&plain)], 0).unwrap();
    };
    write("plain");
    let left = |number: u32| format!(".breakeven-{number}.partial");
    [0, 1, 2, 7]
        .into_iter()
        .for_each(|number| write(&left(number)));
    let go_on = &mut |_, _| true;
    let to = (&storage, PageOptions::default());
    let pool = pool(0);
    import(&storage, ("plain", "db"), to, &|_| true, &pool, go_on).unwrap();
    export(store(&storage), (&storage, "back"), &pool, go_on).unwrap();
    let names = storage.list("").unwrap();
    let names: Vec<&str> = names.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["back", "db", "plain"]);
}

#[test]
fn a_database_whose_length_changes_while_it_is_imported_makes_none() {
    for bytes in [5 * 4096, 7 * 4096] {
        let storage = memory();
        let file = storage.open("plain", OpenOptions::create_new()).unwrap();
        let plain = with_freelist();
        file.write_at(&[std::io::IoSlice::new(&plain)], 0).unwrap();
        let to = (&storage, PageOptions::default());
        // By a program that asks for no locks.
        let change = &mut |_, _| file.truncate(bytes).is_ok();
        let refused = import(&storage, ("plain", "db"), to, &|_| true, &pool(0), change);
        println!("{}", refused.unwrap_err());
        assert!(storage.open("db", OpenOptions::read_only()).is_err());
    }
}

#[test]
fn a_database_goes_in_and_comes_out_again_and_its_free_pages_are_trimmed() {
    let storage = memory();
    let mut plain = with_freelist();
    let file = storage.open("plain", OpenOptions::create_new()).unwrap();
    file.write_at(&[std::io::IoSlice::new(&plain)], 0).unwrap();
    let go_on = &mut |_, _| true;
    let to = (&storage, PageOptions::default());
    let pool = pool(2);
    let moved = import(&storage, ("plain", "db"), to, &|_| true, &pool, go_on).unwrap();
    assert!(moved.was_wal && moved.logical_bytes == 6 * 4096);
    assert!(
        import(&storage, ("plain", "db"), to, &|_| true, &pool, go_on).is_err(),
        "it exists"
    );
    export(store(&storage), (&storage, "back"), &pool, go_on).unwrap();
    let mut back = vec![0; 6 * 4096];
    let exported = storage.open("back", OpenOptions::read_only()).unwrap();
    exported.read_exact_at(&mut back, 0).unwrap();
    plain[18..20].copy_from_slice(&[1, 1]);
    assert!(back == plain);
    let mut connection = open(&storage, "db");
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    assert_eq!(connection.space().unwrap().stored_blocks, 6);
    assert_eq!(connection.trim().unwrap().blocks, 2);
    assert_eq!(connection.trim().unwrap().blocks, 0);
    assert_eq!(connection.space().unwrap().stored_blocks, 4);
    connection.unlock(LockLevel::None).unwrap();
    let checked = check(store(&storage), go_on).unwrap();
    assert!(checked.broken.is_empty() && checked.page_bytes == 4096);
    let names = storage
        .list("")
        .unwrap()
        .into_iter()
        .map(|entry| entry.name);
    assert_eq!(
        names.collect::<Vec<_>>(),
        ["back", "db", "plain"],
        "nothing is left over"
    );
}

/// Pages of four blocks, and four pages in a block: kinds have all that is stored, once.
#[test]
fn every_block_counts_for_the_kind_of_its_page() {
    for (page_bytes, write_bytes, blocks) in [(65_536, 65_536, 8), (1024, 4096, 2)] {
        let storage = memory();
        PageStore::create(&*storage, "db", PageOptions::default()).unwrap();
        let mut connection = open(&storage, "db");
        assert!(connection.lock(LockLevel::Exclusive).unwrap());
        let mut bytes: Vec<u8> = (0..2 * write_bytes / 4096).flat_map(page).collect();
        bytes[..16].copy_from_slice(PLAIN_MAGIC);
        let told = if page_bytes == 65_536 {
            1
        } else {
            page_bytes as u16
        };
        bytes[16..18].copy_from_slice(&told.to_be_bytes());
        for (at, part) in (0..).zip(bytes.chunks(write_bytes as usize)) {
            connection.write(at * write_bytes, part).unwrap();
        }
        connection.commit().unwrap();
        drop(connection);
        let checked = check(store(&storage), &mut |_, _| true).unwrap();
        assert_eq!(
            (checked.page_bytes, checked.space.stored_blocks),
            (page_bytes, blocks)
        );
        let pages: u64 = checked.kinds.iter().map(|(_, pages, _)| pages).sum();
        let stored: u64 = checked.kinds.iter().map(|(.., stored)| stored).sum();
        let expected = (
            2 * write_bytes / u64::from(page_bytes),
            checked.space.stored_bytes,
        );
        assert_eq!((pages, stored), expected);
    }
}

#[test]
fn a_database_with_a_journal_is_not_imported() {
    let storage = memory();
    let put = |name: &str, bytes: &[u8]| {
        let file = storage.open(name, OpenOptions::create_new()).unwrap();
        file.write_at(&[std::io::IoSlice::new(bytes)], 0).unwrap();
    };
    put("plain", &with_freelist());
    put("plain-wal", b"7");
    let to = (&storage, PageOptions::default());
    let refused = import(
        &storage,
        ("plain", "db"),
        to,
        &|_| true,
        &pool(0),
        &mut |_, _| true,
    );
    let refused = refused.unwrap_err();
    assert!(refused.to_string().contains("write-ahead log"), "{refused}");
}

/// Changes rows of the imported database, each in a transaction; returns the bytes that one of them wrote.
fn commit_bytes(storage: &Arc<dyn Storage>, options: PageOptions) -> u64 {
    let bytes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&bytes);
    let watch = move |call: &Call<'_>| {
        if let Call::Write { bytes, .. } = call {
            counted.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    };
    let watched: Arc<dyn Storage> =
        WatchedStorage::new(Arc::clone(storage), usize::MAX, Arc::new(watch));
    let store = PageStore::new(watched, "db", options);
    let mut connection = Connection::open(Arc::new(store)).unwrap();
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    let mut write = |number: u64| {
        let mut first = vec![0; 4096];
        connection.read(0, &mut first).unwrap();
        first[27] = number as u8;
        let mut changed = page(11 * number + 40);
        changed[1000..1004].copy_from_slice(b"2014");
        connection
            .write((11 * number + 39) * 4096, &changed)
            .unwrap();
        connection.write(0, &first).unwrap();
        connection.commit().unwrap();
        connection.sync().unwrap();
    };
    // The first commit makes a checkpoint of the content it found.
    write(0);
    let before = bytes.load(Ordering::Relaxed);
    (1..=50).for_each(&mut write);
    (bytes.load(Ordering::Relaxed) - before) / 50
}

#[test]
fn an_import_is_foretold_by_all_of_a_database_or_by_part_of_it() {
    let storage = memory();
    let mut plain = with_freelist();
    plain.extend((7..=4000).flat_map(page));
    let file = storage.open("plain", OpenOptions::create_new()).unwrap();
    file.write_at(&[std::io::IoSlice::new(&plain)], 0).unwrap();
    let options = PageOptions::default();
    let moved = import(
        &storage,
        ("plain", "db"),
        (&storage, options),
        &|_| true,
        &pool(2),
        &mut |_, _| true,
    );
    let space = moved.unwrap().space;
    let go_on = &mut |_, _| true;
    // By one thread, where the import had two: the same pages make the same file.
    let mut foretold = |bytes_max| predict(&*file, options, bytes_max, &pool(0), go_on).unwrap();
    let whole = foretold(u64::MAX);
    assert_eq!(whole.sampled_bytes, plain.len() as u64);
    assert_eq!(
        (whole.stored_bytes, whole.file_bytes),
        (space.stored_bytes, space.file_bytes)
    );
    let part = foretold(4 << 20);
    assert_eq!(part.sampled_bytes, 4 << 20);
    let done = commit_bytes(&storage, options);
    println!("a commit takes {done} bytes; foretold {whole:?}, {part:?}");
    for foretold in [whole.commit_bytes, part.commit_bytes] {
        assert!(
            (0.8..1.25).contains(&(foretold as f64 / done as f64)),
            "{foretold} and {done}"
        );
    }
    println!("foretold {part:?} of {space:?}");
    let off = part.file_bytes as f64 / space.file_bytes as f64;
    assert!((0.95..1.05).contains(&off), "{off}");
    let no_database = storage.open("noise", OpenOptions::create_new()).unwrap();
    let go_on = &mut |_, _| true;
    assert!(predict(&*no_database, options, 1 << 20, &pool(0), go_on).is_err());
    let stopped = predict(&*file, options, 4 << 20, &pool(0), &mut |_, _| false);
    assert!(matches!(stopped, Err(crate::error::Error::Interrupted)));
}

/// Reads all pages, which must be those of these numbers; returns how many reads of the file that took.
fn reads_for(connection: &mut Connection, numbers: &[u64], reads: &AtomicU64) -> u64 {
    let before = reads.load(Ordering::Relaxed);
    for (at, number) in (0..).step_by(4096).zip(numbers) {
        let mut found = vec![0; 4096];
        connection.read(at, &mut found).unwrap();
        assert!(found == page(*number), "page at {at}");
    }
    reads.load(Ordering::Relaxed) - before
}

#[test]
fn what_was_read_is_read_once_for_all_connections_until_it_is_written() {
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let watch = move |call: &Call<'_>| {
        let is_read = matches!(call, Call::Read);
        counted.fetch_add(is_read.into(), Ordering::Relaxed);
    };
    let storage: Arc<dyn Storage> = WatchedStorage::new(memory(), usize::MAX, Arc::new(watch));
    let options = PageOptions::default();
    assert!(PageStore::create(&*storage, "db", options).unwrap());
    let store = Arc::new(PageStore::new(Arc::clone(&storage), "db", options));
    let connect = || Connection::open(Arc::clone(&store)).unwrap();
    let (mut writer, mut reader) = (connect(), connect());
    let mut numbers: Vec<u64> = (1..=200).collect();
    assert!(writer.lock(LockLevel::Exclusive).unwrap());
    for (at, number) in (0..).step_by(4096).zip(&numbers) {
        writer.write(at, &page(*number)).unwrap();
    }
    writer.commit().unwrap();
    assert!(reader.lock(LockLevel::Shared).unwrap());
    assert_eq!(reads_for(&mut reader, &numbers, &reads), 200);
    assert_eq!(reads_for(&mut reader, &numbers, &reads), 0);
    assert_eq!(
        reads_for(&mut writer, &numbers, &reads),
        0,
        "another connection"
    );
    // A commit changes the blocks it wrote, for the connection that sees it.
    let before = numbers.clone();
    for index in [3, 77] {
        numbers[index] += 1000;
        writer
            .write(index as u64 * 4096, &page(numbers[index]))
            .unwrap();
    }
    writer.commit().unwrap();
    assert_eq!(reads_for(&mut writer, &numbers, &reads), 2);
    assert_eq!(reads_for(&mut reader, &before, &reads), 0);
    reader.unlock(LockLevel::None).unwrap();
    writer.unlock(LockLevel::None).unwrap();
    // A check reads the file, and takes nobody's room in the cache.
    let all_before = reads.load(Ordering::Relaxed);
    assert!(
        check(Arc::clone(&store), &mut |_, _| true)
            .unwrap()
            .broken
            .is_empty()
    );
    assert!(reads.load(Ordering::Relaxed) - all_before >= 200);
    assert!(reader.lock(LockLevel::Shared).unwrap());
    assert_eq!(reads_for(&mut reader, &numbers, &reads), 0);
}

#[test]
fn a_check_puts_nothing_into_the_cache_and_none_is_kept_if_none_is_wanted() {
    for cache_bytes in [0, 4 << 20] {
        let storage = memory();
        let options = PageOptions {
            cache_bytes,
            ..PageOptions::default()
        };
        assert!(PageStore::create(&*storage, "db", options).unwrap());
        let store = Arc::new(PageStore::new(Arc::clone(&storage), "db", options));
        let mut connection = Connection::open(Arc::clone(&store)).unwrap();
        assert!(connection.lock(LockLevel::Exclusive).unwrap());
        connection.write(0, &with_freelist()).unwrap();
        connection.commit().unwrap();
        connection.unlock(LockLevel::None).unwrap();
        check(Arc::clone(&store), &mut |_, _| true).unwrap();
        let cache = store.opened().unwrap().cache;
        assert_eq!(cache.is_some(), cache_bytes > 0);
        assert_eq!(cache.map_or(0, |cache| cache.stats().shards.misses), 0);
    }
}

/// A long transaction leaves the same bytes with any number of threads. Its writes are visible while they are held, and
/// it is taken back whole.
#[test]
fn threads_change_nothing_but_the_time() {
    let page = |number: u64, salt: u64| {
        let words = (0..512).map(|at| (number * 977 + at / 7 * salt).to_le_bytes());
        words.collect::<Vec<_>>().concat()
    };
    let write = |threads: usize| {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = PageOptions {
            threads,
            seed: Some(22),
            ..PageOptions::default()
        };
        assert!(PageStore::create(&*storage, "db", options).unwrap());
        let store = PageStore::new(Arc::clone(&storage), "db", options);
        let mut connection = Connection::open(Arc::new(store)).unwrap();
        assert!(connection.lock(LockLevel::Exclusive).unwrap());
        let mut found = vec![0; 4096];
        let mut check = |connection: &mut Connection, number: u64, salt: u64| {
            connection.read(number * 4096, &mut found).unwrap();
            assert!(found == page(number, salt), "page {number}");
        };
        for number in 1..1000 {
            connection.write(number * 4096, &page(number, 1)).unwrap();
        }
        // Held blocks, blocks written before them, and blocks overwritten while held.
        connection.write(998 * 4096, &page(998, 3)).unwrap();
        for (number, salt) in [(999, 1), (500, 1), (998, 3), (1, 1)] {
            check(&mut connection, number, salt);
        }
        connection.truncate(999 * 4096).unwrap();
        connection.commit().unwrap();
        connection.sync().unwrap();
        for number in 1..999 {
            connection.write(number * 4096, &page(number, 5)).unwrap();
        }
        connection.unlock(LockLevel::Shared).unwrap();
        assert_eq!(connection.size_bytes().unwrap(), 999 * 4096);
        for number in 1..998 {
            check(&mut connection, number, 1);
        }
        check(&mut connection, 998, 3);
        connection.unlock(LockLevel::None).unwrap();
        drop(connection);
        let file = storage.open("db", OpenOptions::read_only()).unwrap();
        let mut bytes = vec![0; file.status().unwrap().size_bytes as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    write(1);
    assert!(write(2) == write(3));
}
