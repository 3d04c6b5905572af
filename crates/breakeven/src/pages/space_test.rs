//! How long the file of a database gets: random overwriting keeps it to its measure, at every size, and what
//! is deleted goes back to the file system.

use std::sync::Arc;

use fastrand::Rng;

use super::{Connection, LockLevel, PLAIN_MAGIC, PageOptions, PageStore, Space};
use crate::storage::{MemoryStorage, Storage};
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

/// The length that the file of a database may have: what its pages take, with 48 bytes each beside the
/// frame, and the share of dead that the option allows, 5 % above that; of a small file, a few segments.
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
    // What was cleaned is denser than what was loaded, and the file may have been longest before.
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

/// What was written in one go is as short as it gets, but for what denser pages win: to compact it costs a segment at
/// most.
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

/// What is clean already, or cannot get shorter because somebody reads, is left alone.
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
            connection.write(0, &header_with_freelist(freed)).unwrap();
            connection.write(PAGE_BYTES, &trunk(freed)).unwrap();
            connection.commit().unwrap();
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
        }
    }
    println!("{counts:?} files kept their length, became shorter");
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

/// A first page that says that the second one is the trunk of a freelist with so many leaves.
fn header_with_freelist(leaves: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES as usize];
    page[..16].copy_from_slice(PLAIN_MAGIC);
    page[16..18].copy_from_slice(&(PAGE_BYTES as u16).to_be_bytes());
    page[32..36].copy_from_slice(&2u32.to_be_bytes());
    page[36..40].copy_from_slice(&(leaves as u32 + 1).to_be_bytes());
    page
}

/// A trunk whose leaves are the pages behind it.
fn trunk(leaves: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES as usize];
    page[4..8].copy_from_slice(&(leaves as u32).to_be_bytes());
    for (at, number) in page[8..].chunks_exact_mut(4).zip(3..3 + leaves as u32) {
        at.copy_from_slice(&number.to_be_bytes());
    }
    page
}
