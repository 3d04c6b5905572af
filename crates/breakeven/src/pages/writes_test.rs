//! The writes of a commit: syncs, bytes, and the blocks of the file system that they touch, counted on the storage seam
//! by purpose.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use fastrand::Rng;

use super::{Connection, LockLevel, PLAIN_MAGIC, PageOptions, PageStore};
use crate::storage::testing::{Call, WatchedStorage};
use crate::storage::{MemoryStorage, Storage};
use crate::testing::seeded;

const PAGE_BYTES: usize = 4096;
/// The least that a file system writes, in bytes.
const BLOCK_BYTES: u64 = 4096;

/// The writes since it was emptied.
#[derive(Debug, Default)]
struct Counts {
    syncs: u64,
    bytes: u64,
    /// Blocks of the file system, each once between two syncs, as the system counts them.
    blocks: u64,
    dirty: HashSet<u64>,
    by_kind: BTreeMap<&'static str, (u64, u64)>,
}

impl Counts {
    fn note(&mut self, call: &Call<'_>) {
        match call {
            Call::Write { offset, bytes } => {
                self.bytes += bytes.len() as u64;
                let end = offset + bytes.len() as u64;
                for block in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
                    self.blocks += u64::from(self.dirty.insert(block));
                }
                self.tell_apart(*offset, bytes);
            }
            Call::Sync => {
                self.syncs += 1;
                self.dirty.clear();
            }
            Call::Read | Call::Truncate | Call::Lock => {}
        }
    }

    fn add(&mut self, other: &Counts) {
        self.syncs += other.syncs;
        self.bytes += other.bytes;
        self.blocks += other.blocks;
        for (kind, (count, bytes)) in &other.by_kind {
            let (counts, sum) = self.by_kind.entry(kind).or_default();
            (*counts, *sum) = (*counts + count, *sum + bytes);
        }
    }

    /// Adds up the written bytes by kind of record, as in `docs/format.md`.
    fn tell_apart(&mut self, offset: u64, mut bytes: &[u8]) {
        const KINDS: [&str; 12] = [
            "padding",
            "head",
            "frame",
            "move",
            "node",
            "chunk",
            "list",
            "checkpoint",
            "operations",
            "commit",
            "end",
            "dictionary",
        ];
        let mut add = |kind, bytes| {
            let (count, sum) = self.by_kind.entry(kind).or_default();
            (*count, *sum) = (*count + 1, *sum + bytes);
        };
        if offset < 2 * BLOCK_BYTES {
            return add("superblock", bytes.len() as u64);
        }
        while bytes.len() >= 32 {
            if bytes[..2] == [0; 2] {
                return add("zeros", bytes.len() as u64);
            }
            let body = u32::from_le_bytes(*bytes[8..].first_chunk().unwrap());
            let record = (32 + body as usize).next_multiple_of(16);
            add(KINDS[bytes[3] as usize], record as u64);
            bytes = &bytes[record..];
        }
    }
}

struct Writes {
    storage: Arc<dyn Storage>,
    connection: Connection,
    counts: Arc<Mutex<Counts>>,
    random: Rng,
    pages: u64,
    number: u32,
}

/// Makes a page of messages as JSON, from words with few frequent ones.
fn random_page(random: &mut Rng) -> Vec<u8> {
    let mut page = vec![0x0d];
    while page.len() < PAGE_BYTES {
        let header = format!(
            "{{\"id\": \"{:016x}\", \"timestamp\": {}, \"role\": \"user\", \"content\": [{{\"type\": \"text\", \"text\": \"",
            random.u64(..),
            1_700_000_000 + random.u32(..1_000_000)
        );
        page.extend_from_slice(header.as_bytes());
        for _ in 0..random.usize(10..250) {
            let word = (1.0 / (random.f64() + 1e-3).powf(1.6)) as u64 % 3000;
            let word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            for at in 0..word % 4 + 1 {
                let parts = [
                    "ba", "ko", "ri", "ten", "mo", "las", "su", "per", "in", "ge",
                ];
                page.extend_from_slice(parts[(word >> (8 * at + 8)) as usize % 10].as_bytes());
            }
            page.push(b' ');
        }
    }
    page.truncate(PAGE_BYTES);
    page
}

impl Writes {
    fn new(pages: u64) -> Writes {
        let counts = Arc::new(Mutex::new(Counts::default()));
        let noted = Arc::clone(&counts);
        let watch = move |call: &Call<'_>| {
            let mut counts = noted.lock().unwrap_or_else(PoisonError::into_inner);
            counts.note(call);
        };
        let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let storage: Arc<dyn Storage> = WatchedStorage::new(memory, usize::MAX, Arc::new(watch));
        let options = PageOptions {
            seed: Some(1),
            ..PageOptions::default()
        };
        assert!(PageStore::create(&*storage, "db", options).unwrap());
        let store = PageStore::new(Arc::clone(&storage), "db", options);
        let connection = Connection::open(Arc::new(store)).unwrap();
        let mut writes = Writes {
            storage,
            connection,
            counts,
            random: seeded("pages writes", pages),
            pages: 1,
            number: 0,
        };
        while writes.pages < pages {
            let count = (pages - writes.pages).min(64);
            let new: Vec<u64> = (writes.pages..writes.pages + count).collect();
            writes.transact(&new);
        }
        writes
    }

    /// Writes pages and the first one, which counts transactions, as SQLite does.
    fn transact(&mut self, pages: &[u64]) {
        let connection = &mut self.connection;
        assert!(connection.lock(LockLevel::Exclusive).unwrap());
        self.number += 1;
        let mut first = vec![0; PAGE_BYTES];
        first[..16].copy_from_slice(PLAIN_MAGIC);
        first[16..20].copy_from_slice(&[16, 0, 1, 1]);
        first[24..28].copy_from_slice(&self.number.to_be_bytes());
        first[28..32].copy_from_slice(&(self.pages as u32).to_be_bytes());
        first[4000..4040].copy_from_slice(b"CREATE TABLE message(id, session, body)!");
        connection.write(0, &first).unwrap();
        for page in pages {
            let bytes = random_page(&mut self.random);
            let offset = page * PAGE_BYTES as u64;
            connection.write(offset, &bytes).unwrap();
            self.pages = self.pages.max(page + 1);
        }
        connection.commit().unwrap();
        connection.sync().unwrap();
        connection.trim().unwrap();
        connection.tidy().unwrap();
        connection.unlock(LockLevel::None).unwrap();
    }

    /// Returns a connection of another process.
    fn another(&self) -> Connection {
        let options = PageOptions {
            seed: Some(2),
            ..PageOptions::default()
        };
        let store = PageStore::new(Arc::clone(&self.storage), "db", options);
        Connection::open(Arc::new(store)).unwrap()
    }

    fn take(&self) -> Counts {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut counts)
    }

    /// Writes one row: two of three at the end, where a page is full now and then, the third anywhere.
    fn commit_row(&mut self, number: u64) {
        let page = match number % 9 {
            0 | 1 => self.pages,
            at if at % 3 < 2 => self.pages - 1,
            _ => self.random.u64(1..self.pages),
        };
        self.transact(&[page]);
    }
}

fn check(pages: u64, bytes_max: u64, blocks_bytes_max: u64) {
    const COMMITS: u64 = 600;
    let mut writes = Writes::new(pages);
    writes.take();
    let (mut sum, mut plain) = (Counts::default(), 0);
    for at in 0..COMMITS {
        writes.commit_row(at);
        let counts = writes.take();
        // A cleaning makes a checkpoint durable, and then the superblock that points to it.
        match counts.by_kind.contains_key("superblock") {
            true => assert!(counts.syncs <= 3, "{counts:?}"),
            false => {
                assert_eq!(counts.syncs, 1, "{counts:?}");
                plain += 1;
            }
        }
        sum.add(&counts);
    }
    println!(
        "{pages} pages; a commit: {:.2} syncs, {} bytes, {} in blocks of {BLOCK_BYTES}",
        sum.syncs as f64 / COMMITS as f64,
        sum.bytes / COMMITS,
        sum.blocks * BLOCK_BYTES / COMMITS,
    );
    for (kind, (count, bytes)) in &sum.by_kind {
        println!(
            "  {kind}: {count} of them, {} bytes a commit",
            bytes / COMMITS
        );
    }
    assert!(plain > COMMITS * 9 / 10, "{plain}");
    // A file grows by a segment at a time, which is filled with zeros once.
    let zeros = sum.by_kind.get("zeros").map_or(0, |(_, bytes)| *bytes);
    assert!(sum.bytes - zeros <= bytes_max * COMMITS);
    assert!(sum.blocks * BLOCK_BYTES - zeros <= blocks_bytes_max * COMMITS);
}

/// A page and the first one take some 1,400 bytes with the commit. The rest is cleaning.
#[test]
fn a_commit_is_one_sync_and_little_more_than_its_compressed_pages() {
    check(1_100, 2_500, 5_600);
    check(20_000, 1_500, 4_600);
}

/// A process that writes behind another's changes reads them back, and begins with a checkpoint.
#[test]
fn a_turn_of_another_process_takes_two_syncs_more() {
    let mut writes = Writes::new(1_100);
    let mut other = writes.another();
    let (mut sum, mut cleanings) = (Counts::default(), 0);
    let mut was_cleaned = true;
    let file_bytes = |connection: &Connection| connection.status().unwrap().size_bytes;
    let before = file_bytes(&other);
    for at in 0..200 {
        std::mem::swap(&mut writes.connection, &mut other);
        writes.take();
        writes.transact(&[1 + at % 1_000]);
        let counts = writes.take();
        let has_cleaned = counts.by_kind["checkpoint"].0 > 1;
        // A superblock with no transaction behind it is written again, since nothing shows whether it was synced.
        let syncs = 3 + 2 * u64::from(has_cleaned) + u64::from(was_cleaned);
        assert!(at < 2 || counts.syncs == syncs, "turn {at}: {counts:?}");
        was_cleaned = has_cleaned;
        cleanings += u64::from(has_cleaned);
        sum.add(&counts);
    }
    let after = file_bytes(&other);
    println!("200 turns, {cleanings} with a cleaning, {before} bytes became {after}: {sum:?}");
    // Each turn begins a segment, so cleaning must keep the file's length.
    assert!(cleanings < 100 && after < before * 3 / 2 + 8 * (64 << 10));
}
