//! The length of a database's file. Random overwriting keeps it to its due length, at every size, and deleted pages go
//! back to the file system.

use std::sync::Arc;

use fastrand::Rng;

use super::{Connection, LockLevel, PLAIN_MAGIC, PageOptions, PageStore, Space};
use crate::blocks::Cleaned;
use crate::storage::{MemoryStorage, OpenOptions, Storage};
use crate::testing::seeded;

const PAGE_BYTES: u64 = 4096;
/// A record is this much longer than its frame, at least: a header and whose frame it is.
const RECORD_BYTES: u64 = 48;
/// A record ends at a multiple of 16 bytes.
const PADDING_BYTES: u64 = 15;

/// Makes a page of rows such as applications store them, which zstd shortens to about a fifth.
fn random_page(random: &mut Rng) -> Vec<u8> {
    let words = ["open", "closed", "merged", "draft", "review"];
    let mut page = Vec::with_capacity(PAGE_BYTES as usize + 100);
    while page.len() < PAGE_BYTES as usize {
        let (id, state) = (random.u32(..), words[random.usize(..words.len())]);
        let row = format!(
            "{{\"id\":{id},\"state\":\"{state}\",\"author\":\"{:x}\"}},",
            id / 7
        );
        page.extend_from_slice(row.as_bytes());
    }
    page.truncate(PAGE_BYTES as usize);
    page
}

fn open(options: PageOptions) -> Connection {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    assert!(PageStore::create(&*storage, "db", options).unwrap());
    open_again(&storage, options)
}

fn open_again(storage: &Arc<dyn Storage>, options: PageOptions) -> Connection {
    let store = PageStore::new(Arc::clone(storage), "db", options);
    let mut connection = Connection::open(Arc::new(store)).unwrap();
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    connection
}

/// Runs one transaction as SQLite's calls would; returns the file's length behind it.
fn transact(connection: &mut Connection, random: &mut Rng, pages: &[u64]) -> u64 {
    for page in pages {
        let bytes = random_page(random);
        connection.write(page * PAGE_BYTES, &bytes).unwrap();
    }
    connection.commit().unwrap();
    connection.sync().unwrap();
    connection.trim().unwrap();
    connection.tidy().unwrap();
    connection.status().unwrap().size_bytes
}

/// The length that the file of a database may have. It is the sum of three parts: its pages' stored bytes with 48 bytes
/// each beside the frame, the option's share of dead bytes, and 5 % of both. A small file may have a few segments.
fn bound_bytes(space: &Space, space_amp: f64) -> u64 {
    let pages_bytes = space.stored_bytes - PADDING_BYTES * space.stored_blocks;
    assert!(pages_bytes > RECORD_BYTES * space.stored_blocks);
    let measure = (1.05 * pages_bytes as f64 * space_amp) as u64;
    let small = space.stored_bytes * 5 / 4 + 8 * (64 << 10);
    measure.max(small)
}

/// Overwrites a database five times, in transactions of up to `batch` pages.
fn check_overwriting(pages: u64, batch: usize, space_amp: f64) {
    let mut random = seeded("pages space", pages);
    let mut connection = open(PageOptions {
        space_amp,
        seed: Some(pages),
        ..PageOptions::default()
    });
    let all: Vec<u64> = (0..pages).collect();
    let mut longest = 0;
    for chunk in all.chunks(64) {
        longest = longest.max(transact(&mut connection, &mut random, chunk));
    }
    let loaded = connection.space().unwrap();
    assert!(longest <= bound_bytes(&loaded, space_amp), "{loaded:?}");
    let mut written = 0;
    while written < 5 * pages {
        let count = random.usize(1..=batch);
        let indexes: Vec<u64> = (0..count).map(|_| random.u64(..pages)).collect();
        longest = longest.max(transact(&mut connection, &mut random, &indexes));
        written += count as u64;
    }
    let space = connection.space().unwrap();
    // Cleaned pages are denser than loaded ones, and the file may have been longest before.
    let bound = bound_bytes(&space, space_amp).max(bound_bytes(&loaded, space_amp));
    println!(
        "{pages} pages by {batch}, {space_amp} allowed: {} stored, {} at the end and {longest} at most of {bound}",
        space.stored_bytes, space.file_bytes
    );
    assert!(longest <= bound, "{longest} above {bound}");
}

#[test]
fn overwriting_five_times_keeps_the_file_to_its_measure() {
    check_overwriting(200, 4, 1.5);
    check_overwriting(2_000, 8, 1.5);
    check_overwriting(6_000, 40, 1.4);
    check_overwriting(6_000, 40, 1.5);
    check_overwriting(6_000, 40, 2.0);
    check_overwriting(24_000, 20, 1.5);
}

#[test]
fn what_is_deleted_goes_back_to_the_file_system() {
    let mut random = seeded("pages shrink", 22);
    let mut connection = open(PageOptions {
        seed: Some(22),
        ..PageOptions::default()
    });
    let pages: Vec<u64> = (0..8_000).collect();
    for chunk in pages.chunks(64) {
        transact(&mut connection, &mut random, chunk);
    }
    let loaded = connection.space().unwrap();
    let cleaned = connection.rewrite(&mut |_, _| true).unwrap();
    let dense = connection.space().unwrap();
    println!("{loaded:?} became {dense:?}: {cleaned:?}");
    assert!(
        dense.stored_bytes <= loaded.stored_bytes && dense.file_bytes <= bound_bytes(&dense, 1.5)
    );
    // All of it was moved but for the segment in use.
    assert!(
        cleaned.moved_bytes >= dense.stored_bytes * 9 / 10,
        "{cleaned:?}"
    );
    let before = connection.status().unwrap().size_bytes;
    // A page in eight stays, all over the file; then the last half of it goes.
    for kept in [8, 16] {
        let size_bytes = connection.size_bytes().unwrap();
        let mut moved = Vec::new();
        for index in (0..size_bytes / PAGE_BYTES).step_by(8) {
            let mut page = vec![0; PAGE_BYTES as usize];
            connection.read(index * PAGE_BYTES, &mut page).unwrap();
            moved.push(page);
        }
        for (index, page) in (0..).zip(&moved) {
            connection.write(index * PAGE_BYTES, page).unwrap();
        }
        let count = pages.len() as u64 / kept;
        connection.truncate(count * PAGE_BYTES).unwrap();
        connection.commit().unwrap();
        connection.sync().unwrap();
        let (_, cleaned) = connection.shrink().unwrap();
        let space = connection.space().unwrap();
        let bound = bound_bytes(&space, 1.5);
        println!(
            "{before} before, {} of {bound} with 1 in {kept}: {cleaned:?}",
            space.file_bytes
        );
        assert!(space.file_bytes <= bound && space.file_bytes < before / 3);
        for (index, page) in (0..count).zip(&moved) {
            let mut found = vec![0; PAGE_BYTES as usize];
            connection.read(index * PAGE_BYTES, &mut found).unwrap();
            assert!(found == *page, "page {index}");
        }
    }
}

/// A database written in one go is as short as it gets, but for the gain of denser pages. Compacting it costs a segment
/// at most.
#[test]
fn compacting_leaves_no_file_longer_than_it_was() {
    for pages in [20, 300, 2_000, 6_000, 14_000] {
        let mut random = seeded("pages compact", pages);
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = PageOptions {
            seed: Some(pages),
            ..PageOptions::default()
        };
        assert!(PageStore::create(&*storage, "db", options).unwrap());
        let mut connection = open_again(&storage, options);
        for page in 0..pages {
            let bytes = random_page(&mut random);
            connection.write(page * PAGE_BYTES, &bytes).unwrap();
        }
        connection.commit().unwrap();
        connection.checkpoint().unwrap();
        connection.unlock(LockLevel::None).unwrap();
        let before = connection.status().unwrap().size_bytes;
        let again = PageOptions {
            space_amp: 0.0,
            ..options
        };
        let mut connection = open_again(&storage, again);
        connection.rewrite(&mut |_, _| true).unwrap();
        let space = connection.space().unwrap();
        let after = connection.status().unwrap().size_bytes;
        println!(
            "{pages} pages in {} bytes: {before} became {after}",
            space.stored_bytes
        );
        let segment_bytes = (before / 64).max(64 << 10);
        assert!(after <= before + segment_bytes, "{after} above {before}");
    }
}

/// A clean file is left alone, and so is one that a reader keeps from getting shorter.
#[test]
fn cleaning_lengthens_no_file() {
    let mut counts = [0; 2];
    for pages in [20, 300, 2_000, 6_000] {
        for (overwritten, freed) in [(0, 0), (0, 1), (0, 9), (0, 800), (1, 0), (3, 5)] {
            if freed >= pages {
                continue;
            }
            let mut random = seeded("pages clean", pages + overwritten);
            let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
            let options = PageOptions {
                seed: Some(pages),
                ..PageOptions::default()
            };
            assert!(PageStore::create(&*storage, "db", options).unwrap());
            let mut connection = open_again(&storage, options);
            let all: Vec<u64> = (0..pages).collect();
            transact(&mut connection, &mut random, &all);
            for _ in 0..overwritten * pages / 8 {
                let indexes: Vec<u64> = (0..8).map(|_| random.u64(..pages)).collect();
                transact(&mut connection, &mut random, &indexes);
            }
            free(&mut connection, (3..3 + freed as u32).collect());
            // By another process, and once by the one that wrote.
            if pages != 2_000 {
                connection.unlock(LockLevel::None).unwrap();
                connection = open_again(&storage, options);
            }
            let before = connection.status().unwrap().size_bytes;
            let store = PageStore::new(Arc::clone(&storage), "db", options);
            let mut reader = Connection::open(Arc::new(store)).unwrap();
            assert!(reader.lock(LockLevel::Shared).unwrap());
            let nothing = Default::default();
            assert_eq!(connection.shrink().unwrap(), nothing, "somebody reads");
            assert_eq!(connection.status().unwrap().size_bytes, before);
            reader.unlock(LockLevel::None).unwrap();
            let (trimmed, cleaned) = connection.shrink().unwrap();
            let after = connection.status().unwrap().size_bytes;
            println!(
                "{pages} pages written over {overwritten} times, {freed} free: \
                 {before} became {after}; {trimmed:?} {cleaned:?}"
            );
            assert!(after <= before, "{after} above {before}");
            assert!(after < before || (trimmed, cleaned) == nothing);
            counts[usize::from(after < before)] += 1;
            assert_eq!(connection.shrink().unwrap(), nothing, "it is dense");
            connection.unlock(LockLevel::None).unwrap();
            drop((connection, reader));
            let mut connection = open_again(&storage, PageOptions::compacting());
            connection.rewrite(&mut |_, _| true).unwrap();
            let compacted = connection.status().unwrap().size_bytes;
            println!(
                "{after} is {} of compacted",
                after as f64 / compacted as f64
            );
            let segment_bytes = (after / 64).max(16 << 10);
            assert!(after as f64 <= 1.15 * compacted as f64 + 2.0 * segment_bytes as f64);
        }
    }
    println!("{counts:?} files kept their length, became shorter");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// Lists pages as free in trunks from the second page on, and in the first page, and commits.
fn free(connection: &mut Connection, leaves: Vec<u32>) {
    let trunks = leaves.chunks(LEAVES_MAX).len().max(1) as u32;
    let mut page = vec![0; PAGE_BYTES as usize];
    page[..16].copy_from_slice(PLAIN_MAGIC);
    page[16..18].copy_from_slice(&(PAGE_BYTES as u16).to_be_bytes());
    page[32..36].copy_from_slice(&2u32.to_be_bytes());
    page[36..40].copy_from_slice(&(leaves.len() as u32 + trunks).to_be_bytes());
    connection.write(0, &page).unwrap();
    for trunk in 0..trunks {
        let start = trunk as usize * LEAVES_MAX;
        let listed = &leaves[start..leaves.len().min(start + LEAVES_MAX)];
        let next = if trunk + 1 < trunks { trunk + 3 } else { 0 };
        let mut page = vec![0; PAGE_BYTES as usize];
        page[..4].copy_from_slice(&next.to_be_bytes());
        page[4..8].copy_from_slice(&(listed.len() as u32).to_be_bytes());
        for (at, number) in page[8..].chunks_exact_mut(4).zip(listed) {
            at.copy_from_slice(&number.to_be_bytes());
        }
        connection
            .write(u64::from(trunk + 1) * PAGE_BYTES, &page)
            .unwrap();
    }
    connection.commit().unwrap();
}

/// The leaves of a trunk, as many as SQLite lists.
const LEAVES_MAX: usize = PAGE_BYTES as usize / 4 - 8;

/// A database of so many pages in a file, written by a connection that still has it open, unlocked.
fn load(pages: u64, options: PageOptions) -> (Arc<dyn Storage>, Connection, Rng) {
    let mut random = seeded("pages given back", pages);
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    assert!(PageStore::create(&*storage, "db", options).unwrap());
    let mut connection = open_again(&storage, options);
    let all: Vec<u64> = (0..pages).collect();
    for chunk in all.chunks(64) {
        transact(&mut connection, &mut random, chunk);
    }
    connection.unlock(LockLevel::None).unwrap();
    (storage, connection, random)
}

/// A connection of another process.
fn another(storage: &Arc<dyn Storage>, options: PageOptions) -> Connection {
    let store = PageStore::new(Arc::clone(storage), "db", options);
    Connection::open(Arc::new(store)).unwrap()
}

/// Deletes all but every twentieth page, all over the file, in one transaction. Returns the cleaning behind it.
fn delete_most(connection: &mut Connection, pages: u64) -> Cleaned {
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    let trunks = pages / LEAVES_MAX as u64 + 2;
    let leaves = trunks..pages;
    free(
        connection,
        leaves
            .filter(|it| it % 20 != 0)
            .map(|it| it as u32 + 1)
            .collect(),
    );
    connection.sync().unwrap();
    connection.trim().unwrap();
    let cleaned = connection.tidy().unwrap();
    connection.unlock(LockLevel::None).unwrap();
    cleaned
}

/// A database's map has so many bytes of each page, deleted ones too.
const MAP_BYTES: u64 = 17;

/// Returns the length of the file and the length that it may have.
fn length_and_bound(storage: &Arc<dyn Storage>, options: PageOptions) -> (u64, u64) {
    let mut connection = another(storage, options);
    assert!(connection.lock(LockLevel::Shared).unwrap());
    let space = connection.space().unwrap();
    connection.unlock(LockLevel::None).unwrap();
    let map_bytes = space.logical_bytes / PAGE_BYTES * MAP_BYTES;
    let map_bytes = (map_bytes as f64 * options.space_amp) as u64;
    (
        space.file_bytes,
        bound_bytes(&space, options.space_amp) + map_bytes,
    )
}

fn check_bound(what: &str, storage: &Arc<dyn Storage>, options: PageOptions) {
    let (length, bound) = length_and_bound(storage, options);
    println!("{what}, {} allowed: {length} of {bound}", options.space_amp);
    assert!(length <= bound, "{what}: {length} above {bound}");
}

const SIZES: [u64; 3] = [300, 2_000, 9_000];

fn with_amp(space_amp: f64, seed: u64) -> PageOptions {
    PageOptions {
        space_amp,
        seed: Some(seed),
        ..PageOptions::default()
    }
}

/// The space that one transaction frees goes back with it, from a file of any length, whoever else has it open.
#[test]
fn a_commit_that_frees_much_gives_it_back() {
    for (pages, keeps_out) in SIZES.into_iter().zip([false, true, false]) {
        for space_amp in [1.1, 1.5, 3.0] {
            let options = with_amp(space_amp, pages);
            let (storage, mut connection, _) = load(pages, options);
            if keeps_out {
                connection.keep_writers_out();
            }
            let before = connection.status().unwrap().size_bytes;
            let mut idle = [another(&storage, options), another(&storage, options)];
            assert!(idle[0].lock(LockLevel::Shared).unwrap());
            idle[0].unlock(LockLevel::None).unwrap();
            delete_most(&mut connection, pages);
            check_bound(&format!("{pages} pages, {before} bytes"), &storage, options);
        }
    }
}

/// Pages overwritten while a reader was there go back with the next transactions, a step with each.
#[test]
fn what_a_reader_kept_goes_back_with_the_next_commits() {
    for (pages, is_deleted) in [(300, false), (2_000, true), (9_000, false), (9_000, true)] {
        let options = PageOptions {
            checkpoint_bytes: 4 << 20,
            ..with_amp(1.5, pages)
        };
        let (storage, mut connection, mut random) = load(pages, options);
        let mut reader = another(&storage, options);
        assert!(reader.lock(LockLevel::Shared).unwrap());
        for _ in 0..3 {
            assert!(connection.lock(LockLevel::Exclusive).unwrap());
            let all: Vec<u64> = (0..pages).collect();
            for chunk in all.chunks(50) {
                transact(&mut connection, &mut random, chunk);
            }
            connection.unlock(LockLevel::None).unwrap();
        }
        if is_deleted {
            delete_most(&mut connection, pages);
        }
        reader.unlock(LockLevel::None).unwrap();
        let (before, bound) = length_and_bound(&storage, options);
        assert!(before > bound, "{before} below {bound}");
        // Cleaning reads no more than the file has, and the cut follows it.
        let commits = before / options.checkpoint_bytes + 3;
        for _ in 0..commits {
            assert!(connection.lock(LockLevel::Exclusive).unwrap());
            transact(&mut connection, &mut random, &[1]);
            connection.unlock(LockLevel::None).unwrap();
        }
        let what = format!("{pages} pages, {before} bytes, {commits} commits");
        check_bound(&what, &storage, options);
    }
}

/// The last connection to close gives back the space that nobody could before: after a reader that outlived the writer,
/// and after a killed process. A connection with nothing to give back writes nothing.
#[test]
fn the_last_close_gives_back() {
    for (pages, is_killed) in SIZES.into_iter().zip([false, true, false]) {
        let options = with_amp(1.5, pages);
        let (storage, mut connection, _) = load(pages, options);
        let mut reader = another(&storage, options);
        assert!(reader.lock(LockLevel::Shared).unwrap());
        delete_most(&mut connection, pages);
        if !is_killed {
            connection.close().unwrap();
        }
        drop(connection);
        let (before, bound) = length_and_bound(&storage, options);
        assert!(pages < 1_000 || before > bound, "{before} below {bound}");
        // While it reads it closes nothing.
        reader.close().unwrap();
        assert_eq!(length_and_bound(&storage, options).0, before);
        // Nor while another connection of its process is there.
        let second = Connection::open(Arc::clone(reader.store())).unwrap();
        reader.unlock(LockLevel::None).unwrap();
        reader.close().unwrap();
        assert_eq!(length_and_bound(&storage, options).0, before);
        drop(second);
        reader.close().unwrap();
        drop(reader);
        read_and_close(&storage, options, before / options.checkpoint_bytes);
        check_bound(
            &format!("{pages} pages, {before} bytes, closed"),
            &storage,
            options,
        );
        let whole = read_file(&storage);
        let mut again = another(&storage, options);
        assert!(again.lock(LockLevel::Shared).unwrap());
        again.unlock(LockLevel::None).unwrap();
        again.close().unwrap();
        assert!(read_file(&storage) == whole, "nothing was to be done");
    }
}

/// The wait is counted by the bytes read of segments. A connection that deletes much waits for a bounded amount, and so
/// does the last one to close a long file. The bound is a step, or a part of the work that it did before.
#[test]
fn a_commit_and_the_last_close_clean_within_a_bound() {
    let pages = 9_000;
    let options = PageOptions {
        checkpoint_bytes: 256 << 10,
        ..with_amp(1.1, pages)
    };
    let (storage, mut connection, _) = load(pages, options);
    connection.close().unwrap();
    drop(connection);
    let file_bytes = read_file(&storage).len() as u64;
    // A step reads at most a segment beyond its budget, and a commit has two steps.
    let bound = 2 * options.checkpoint_bytes + 2 * (file_bytes / 64);
    let mut deleting = another(&storage, options);
    let deleted = delete_most(&mut deleting, pages).read_bytes;
    let closed = deleting.close().unwrap().read_bytes;
    println!(
        "{file_bytes} bytes: {deleted} behind a commit, {closed} at the close, {bound} at most"
    );
    assert!(deleted > 0 && deleted <= bound, "{deleted} of {bound}");
    assert!(closed > 0 && closed <= bound, "{closed} of {bound}");
    drop(deleting);
    // A connection that did much may clean much, once.
    let mut working = another(&storage, options);
    assert!(working.lock(LockLevel::Exclusive).unwrap());
    let mut random = seeded("pages bound", pages);
    let all: Vec<u64> = (0..2_000).collect();
    for chunk in all.chunks(500) {
        transact(&mut working, &mut random, chunk);
    }
    working.unlock(LockLevel::None).unwrap();
    let worked = working.close().unwrap().read_bytes;
    let earned = 2_000 * PAGE_BYTES / 2 + bound;
    println!("{worked} at the close of who wrote, {earned} at most");
    assert!(worked <= earned, "{worked} of {earned}");
}

/// SQLite's file of one small table is in three segments. Compacting makes no small file longer.
#[test]
fn a_small_database_is_a_small_file() {
    for (pages, commits, bound) in [
        (2, 1, 64 << 10),
        (2, 40, 80 << 10),
        (40, 40, 200 << 10),
        (150, 150, 420 << 10),
    ] {
        let mut random = seeded("pages small", pages);
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = with_amp(1.5, pages);
        assert!(PageStore::create(&*storage, "db", options).unwrap());
        let mut connection = open_again(&storage, options);
        for commit in 0..commits {
            transact(&mut connection, &mut random, &[0, commit % pages]);
        }
        connection.unlock(LockLevel::None).unwrap();
        connection.close().unwrap();
        drop(connection);
        let before = read_file(&storage).len();
        let mut connection = open_again(&storage, PageOptions::compacting());
        let stored = connection.space().unwrap().stored_bytes;
        connection.rewrite(&mut |_, _| true).unwrap();
        connection.unlock(LockLevel::None).unwrap();
        let after = read_file(&storage).len();
        println!(
            "{pages} pages in {commits} commits: {stored} stored, {before} bytes, {after} compacted"
        );
        assert!(before <= bound, "{before} above {bound}");
        assert!(after <= before, "{before} became {after}");
    }
}

/// So many processes read one after the other, and close.
fn read_and_close(storage: &Arc<dyn Storage>, options: PageOptions, processes: u64) {
    for _ in 0..processes {
        let mut reader = another(storage, options);
        assert!(reader.lock(LockLevel::Shared).unwrap());
        reader.unlock(LockLevel::None).unwrap();
        reader.close().unwrap();
    }
}

/// A process that only read keeps others from writing for one short step when it closes, and for none if somebody
/// writes.
#[test]
fn who_only_read_gives_back_one_step() {
    let options = PageOptions {
        checkpoint_bytes: 256 << 10,
        ..with_amp(1.5, 2_000)
    };
    let (storage, mut connection, _) = load(2_000, options);
    let mut reader = another(&storage, options);
    assert!(reader.lock(LockLevel::Shared).unwrap());
    delete_most(&mut connection, 2_000);
    reader.unlock(LockLevel::None).unwrap();
    drop(connection);
    let (before, bound) = length_and_bound(&storage, options);
    let mut writer = another(&storage, options);
    assert!(writer.lock(LockLevel::Reserved).unwrap());
    reader.close().unwrap();
    assert_eq!(length_and_bound(&storage, options).0, before);
    assert!(
        writer.lock(LockLevel::Exclusive).unwrap(),
        "nothing is held"
    );
    writer.unlock(LockLevel::None).unwrap();
    reader.close().unwrap();
    let (after, _) = length_and_bound(&storage, options);
    println!("{before}, then {after} of {bound}");
    assert!(after > bound, "{before}, then {after} of {bound}");
    assert!(
        writer.lock(LockLevel::Exclusive).unwrap(),
        "nothing is held"
    );
    writer.unlock(LockLevel::None).unwrap();
    drop((reader, writer));
    read_and_close(&storage, options, before / options.checkpoint_bytes + 3);
    check_bound("closed again and again", &storage, options);
}

fn read_file(storage: &Arc<dyn Storage>) -> Vec<u8> {
    let file = storage.open("db", OpenOptions::read_only()).unwrap();
    let mut bytes = vec![0; file.status().unwrap().size_bytes as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
