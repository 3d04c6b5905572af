//! Readers beside a writer in another process: their view at every moment of a write, and while the writer works
//! between any two of their reads.
//!
//! Two openings of a file are two processes, as far as the store can tell. Segments are small and checkpoints
//! frequent, so that room is used again all the time.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use fastrand::Rng;

use super::{Connection, LockLevel, PLAIN_MAGIC, PageOptions, PageStore};
use crate::error::{Error, Result};
use crate::storage::seeded::{SeededBug, with_seeded};
use crate::storage::simulated::{Crash, Damage, Fault, FaultKind, SimulatedProcess};
use crate::storage::testing::{Call, WatchedStorage};
use crate::storage::{MemoryStorage, SimulatedDisk, Storage};
use crate::testing::{is_full, seed};

const NAME: &str = "db";
const PAGE_BYTES: usize = 512;
const PAGES: usize = 40;
const CHANGES_AT: usize = 24;
/// Writes happen in pieces of this length: a reader may come between any two.
const PIECE_BYTES: usize = 300;

fn options(seed: u64) -> PageOptions {
    PageOptions {
        block_bytes_max: PAGE_BYTES as u32,
        segment_bytes_min: 8192,
        checkpoint_bytes: 12_000,
        // Readers from memory would notice nothing.
        cache_bytes: 0,
        seed: Some(seed),
        ..PageOptions::default()
    }
}

fn connect(storage: &Arc<dyn Storage>, seed: u64) -> Connection {
    connect_with(storage, seed, false)
}

fn connect_with(storage: &Arc<dyn Storage>, seed: u64, is_read_only: bool) -> Connection {
    let options = PageOptions {
        is_read_only,
        ..options(seed)
    };
    let store = PageStore::new(Arc::clone(storage), NAME, options);
    Connection::open(Arc::new(store)).unwrap()
}

/// Every state there ever was, by its number, and which of them may be found.
#[derive(Default)]
struct History {
    states: Mutex<HashMap<u64, Vec<u8>>>,
    /// The newest that a reader must see.
    acknowledged: AtomicU64,
    /// The newest that a power cut must leave. Nobody sees a newer one.
    durable: AtomicU64,
    /// Whether a writer died. The first connection to see its commit makes it durable.
    has_died: AtomicBool,
}

/// A database whose first page has the number of its state.
struct Writer {
    connection: Connection,
    content: Vec<u8>,
    history: Arc<History>,
    random: Rng,
    cuts: u64,
}

impl Writer {
    fn create(storage: &Arc<dyn Storage>, seed: u64) -> Writer {
        assert!(PageStore::create(&**storage, NAME, options(seed)).unwrap());
        let mut content = vec![0; PAGES * PAGE_BYTES];
        content[..16].copy_from_slice(PLAIN_MAGIC);
        content[16..20].copy_from_slice(&[2, 0, 1, 1]);
        let mut writer = Writer {
            connection: connect(storage, seed + 1),
            content,
            history: Arc::default(),
            random: Rng::with_seed(seed),
            cuts: 0,
        };
        for _ in 0..20 {
            writer.commit();
        }
        writer
    }

    /// Writes a few pages, and cleans as the VFS does.
    fn commit(&mut self) {
        self.try_commit().unwrap();
    }

    fn try_commit(&mut self) -> Result<()> {
        let number = self.history.acknowledged.load(Ordering::Relaxed) + 1;
        self.content[CHANGES_AT..CHANGES_AT + 4].copy_from_slice(&(number as u32).to_be_bytes());
        let mut pages = vec![0];
        for _ in 0..self.random.usize(1..6) {
            let page = self.random.usize(1..PAGES);
            let noise = [20, 120, 400][self.random.usize(..3)];
            let at = page * PAGE_BYTES;
            self.random.fill(&mut self.content[at..at + noise]);
            pages.push(page);
        }
        let mut states = self.history.states.lock().unwrap();
        states.insert(number, self.content.clone());
        drop(states);
        let before = self.connection.status()?.size_bytes;
        assert!(self.connection.lock(LockLevel::Exclusive)?);
        for page in pages {
            let at = page * PAGE_BYTES;
            let bytes = &self.content[at..at + PAGE_BYTES];
            self.connection.write(at as u64, bytes)?;
        }
        self.connection.prepare()?;
        self.connection.sync()?;
        self.history.durable.store(number, Ordering::Relaxed);
        self.connection.publish()?;
        self.history.acknowledged.store(number, Ordering::Relaxed);
        self.connection.tidy()?;
        self.connection.unlock(LockLevel::None)?;
        let after = self.connection.status()?.size_bytes;
        self.cuts += u64::from(after < before);
        Ok(())
    }
}

/// A process that reads.
struct Reader {
    connection: Connection,
    /// The number it saw when it began.
    number: u64,
}

impl Reader {
    /// Begins to read. It sees the acknowledged content, or a newer one.
    fn begin(&mut self, history: &History) {
        let least = history.acknowledged.load(Ordering::Relaxed);
        assert!(self.connection.lock(LockLevel::Shared).unwrap());
        let mut header = [0; CHANGES_AT + 4];
        self.connection.read(0, &mut header).unwrap();
        let number = u32::from_be_bytes(*header[CHANGES_AT..].first_chunk().unwrap());
        self.number = number.into();
        assert!(self.number >= least, "{number} is older than {least}");
        let durable = history.durable.fetch_max(self.number, Ordering::Relaxed);
        let is_left = history.has_died.load(Ordering::Relaxed);
        let is_durable = self.number <= durable || is_left;
        assert!(is_durable, "{number} is seen, and {durable} is durable");
        self.look(history);
    }

    /// Reads everything.
    fn look(&mut self, history: &History) {
        let mut found = vec![0; PAGES * PAGE_BYTES];
        self.connection.read(0, &mut found).unwrap();
        let states = history.states.lock().unwrap();
        assert!(states[&self.number] == found, "state {}", self.number);
    }
}

/// Some readers, each in a process of its own.
struct Readers {
    idle: Vec<Reader>,
    reading: Vec<Reader>,
    random: Rng,
    /// The most readers that keep their snapshots.
    held_max: usize,
    begun: u64,
    looks: u64,
}

impl Readers {
    fn new(storage: &Arc<dyn Storage>, seed: u64, held_max: usize) -> Readers {
        // Every other one cannot write, and so ends nothing that a writer did not.
        let reader = |at| Reader {
            connection: connect_with(storage, seed + at, at % 2 == 1),
            number: 0,
        };
        Readers {
            idle: (0..=held_max as u64).map(reader).collect(),
            reading: Vec::new(),
            random: Rng::with_seed(seed),
            held_max,
            begun: 0,
            looks: 0,
        }
    }

    /// Lets one of them begin, look again or end.
    fn step(&mut self, history: &History) {
        if self.reading.len() <= self.random.usize(..=self.held_max) {
            let mut reader = self.idle.swap_remove(self.random.usize(..self.idle.len()));
            reader.begin(history);
            self.reading.push(reader);
            self.begun += 1;
            return;
        }
        let at = self.random.usize(..self.reading.len());
        self.reading[at].look(history);
        self.looks += 1;
        if self.random.u8(..6) == 0 {
            let mut reader = self.reading.swap_remove(at);
            reader.connection.unlock(LockLevel::None).unwrap();
            self.idle.push(reader);
        }
    }
}

/// A participant that acts within the calls of others, once it is set.
type Within<T> = Arc<Mutex<Option<T>>>;

fn memory() -> Arc<dyn Storage> {
    Arc::new(MemoryStorage::new())
}

/// Readers come, look and go between any two calls of the writer.
fn read_within_writes(seed: u64, commits: usize) -> (u64, u64) {
    let storage = memory();
    let readers: Within<(Readers, Arc<History>)> = Arc::default();
    let hears = Arc::clone(&readers);
    let watch = move |call: &Call<'_>| {
        let is_change = !matches!(call, Call::Read | Call::Lock);
        if is_change && let Some((readers, history)) = &mut *hears.lock().unwrap() {
            readers.step(history);
        }
    };
    let watched: Arc<dyn Storage> =
        WatchedStorage::new(Arc::clone(&storage), PIECE_BYTES, Arc::new(watch));
    let mut writer = Writer::create(&watched, seed);
    let history = Arc::clone(&writer.history);
    *readers.lock().unwrap() = Some((Readers::new(&storage, seed + 10, 3), history));
    for _ in 0..commits {
        writer.commit();
    }
    let (readers, _) = readers.lock().unwrap().take().unwrap();
    (readers.begun, readers.looks)
}

/// The writer goes on between any two reads of readers that begin, and before they report their view.
fn write_within_reads(seed: u64, rounds: usize, held_max: usize) -> (u64, u64) {
    let storage = memory();
    let writer: Within<Writer> = Arc::default();
    let hears = Arc::clone(&writer);
    let watch = move |call: &Call<'_>| {
        if let Some(writer) = &mut *hears.lock().unwrap() {
            let most = if matches!(call, Call::Lock) { 60 } else { 2 };
            let commits = match writer.random.u8(..3) {
                0 => writer.random.usize(..most),
                _ => 0,
            };
            (0..commits).for_each(|_| writer.commit());
        }
    };
    let watched: Arc<dyn Storage> =
        WatchedStorage::new(Arc::clone(&storage), PIECE_BYTES, Arc::new(watch));
    let made = Writer::create(&storage, seed);
    let history = Arc::clone(&made.history);
    let mut readers = Readers::new(&watched, seed + 10, held_max);
    *writer.lock().unwrap() = Some(made);
    for _ in 0..rounds {
        readers.step(&history);
    }
    let cuts = writer.lock().unwrap().as_ref().unwrap().cuts;
    println!("the file was cut {cuts} times");
    (readers.begun, readers.looks)
}

#[test]
fn a_reader_sees_one_whole_state_at_every_moment_of_a_write() {
    let seed = seed(2204);
    let commits = if is_full() { 20_000 } else { 400 };
    let (begun, looks) = read_within_writes(seed, commits);
    println!("{begun} began and {looks} looked within {commits} commits");
    assert!(begun > commits as u64 && looks > begun, "{begun}, {looks}");
}

#[test]
fn a_reader_that_is_overtaken_sees_one_whole_state() {
    let seed = seed(2205);
    let rounds = if is_full() { 20_000 } else { 1_000 };
    for held_max in [0, 3] {
        let (begun, looks) = write_within_reads(seed, rounds, held_max);
        println!("{begun} began and {looks} looked while the writer went on");
        assert!(begun > rounds as u64 / 20, "{begun}, {looks}");
    }
}

/// A writer that writes a checkpoint between any two reads of an opening reader keeps it out for the moment, and breaks
/// nothing. A reader that waits reads the newest.
#[test]
fn a_reader_that_is_overtaken_without_end_is_told_to_try_again() {
    let storage = memory();
    let writer: Within<Writer> = Arc::default();
    let hears = Arc::clone(&writer);
    let watch = move |call: &Call<'_>| {
        if let (Call::Read, Some(writer)) = (call, &mut *hears.lock().unwrap()) {
            (0..4).for_each(|_| writer.commit());
            assert!(writer.connection.lock(LockLevel::Exclusive).unwrap());
            writer.connection.checkpoint().unwrap();
            writer.connection.unlock(LockLevel::None).unwrap();
        }
    };
    let watched: Arc<dyn Storage> =
        WatchedStorage::new(Arc::clone(&storage), PIECE_BYTES, Arc::new(watch));
    let mut made = Writer::create(&storage, 11);
    let history = Arc::clone(&made.history);
    // One that opens the store, and one that has it open and knows an old state.
    let knows = |number| {
        let mut reader = Reader {
            connection: connect(&watched, number),
            number: 0,
        };
        reader.begin(&history);
        reader.connection.unlock(LockLevel::None).unwrap();
        reader
    };
    let new = Reader {
        connection: connect(&watched, 12),
        number: 0,
    };
    let mut readers = [knows(13), new];
    (0..30).for_each(|_| made.commit());
    let mut refused = 0;
    for reader in &mut readers {
        *writer.lock().unwrap() = Some(made);
        for _ in 0..20 {
            match reader.connection.lock(LockLevel::Shared) {
                Err(Error::Busy { .. }) => refused += 1,
                other => panic!("{other:?}"),
            }
            assert_eq!(reader.connection.level(), LockLevel::None);
        }
        made = writer.lock().unwrap().take().unwrap();
        reader.begin(&history);
        let is_newest = reader.connection.lock(LockLevel::Reserved).unwrap();
        assert!(is_newest, "begins with the newest");
        reader.connection.unlock(LockLevel::None).unwrap();
    }
    println!("{refused} refused");
    made.commit();
}

#[test]
fn what_protects_readers_is_missed_when_it_is_left_out() {
    let noticed = |bug, hunt: fn()| {
        let hunted = with_seeded(bug, || std::panic::catch_unwind(hunt));
        assert!(hunted.is_err(), "nothing notices {bug:?}");
    };
    noticed(SeededBug::ReadersIgnored, || {
        read_within_writes(1, 300);
    });
    noticed(SeededBug::NotLookedAgain, || {
        write_within_reads(1, 1_000, 0);
    });
}

/// Counts of a disk with readers and two alternating writers. A writer sometimes dies.
#[derive(Debug, Default)]
struct Deaths {
    commits: u64,
    deaths: u64,
    begun: u64,
    looks: u64,
    images: u64,
}

const MARK: u64 = 1000;

/// Marks a disk with the oldest and the newest state that may be found after a power cut until the next mark.
fn mark(disk: &SimulatedDisk, history: &History, is_making: bool) {
    let newest = history.acknowledged.load(Ordering::Relaxed) + u64::from(is_making);
    disk.mark(history.durable.load(Ordering::Relaxed) * MARK + newest);
}

fn try_deaths(seed: u64, counts: &mut Deaths) {
    let disk = SimulatedDisk::new(seed);
    let process = || -> (Arc<SimulatedProcess>, Arc<dyn Storage>) {
        let process = disk.start_process();
        (Arc::clone(&process), process)
    };
    let (_, first) = process();
    let mut writer = Writer::create(&first, seed);
    let history = Arc::clone(&writer.history);
    let made = disk.recording().step_count();
    mark(&disk, &history, false);
    let mut random = Rng::with_seed(seed);
    let mut readers = Readers::new(&process().1, seed + 100, 3);
    let mut other = connect(&process().1, seed + 50);
    for round in 0..30 {
        if random.bool() {
            std::mem::swap(&mut writer.connection, &mut other);
        }
        disk.set_fault((random.u8(..4) == 0).then(|| Fault {
            kind: FaultKind::ProcessDeath,
            first_call: random.u64(..12),
            is_lasting: false,
        }));
        mark(&disk, &history, true);
        let done = writer.try_commit();
        disk.set_fault(None);
        counts.commits += 1;
        if done.is_err() {
            counts.deaths += 1;
            history.has_died.store(true, Ordering::Relaxed);
            // Another process continues from the content on the disk.
            writer.connection = connect(&process().1, seed + 1000 + round);
            let mut reader = Reader {
                connection: connect(&process().1, seed + 2000 + round),
                number: 0,
            };
            reader.begin(&history);
            history.acknowledged.store(reader.number, Ordering::Relaxed);
            writer.content = history.states.lock().unwrap()[&reader.number].clone();
            history.has_died.store(false, Ordering::Relaxed);
            continue;
        }
        mark(&disk, &history, false);
        readers.step(&history);
    }
    (counts.begun, counts.looks) = (counts.begun + readers.begun, counts.looks + readers.looks);
    let recording = disk.recording();
    recording.for_each_crash_from(made, &Damage::ALL, seed, |crash| {
        check_crash(&crash, &history);
        counts.images += 1;
    });
}

fn check_crash(crash: &Crash, history: &History) {
    let disk = SimulatedDisk::from_image(&crash.image, 0);
    let storage: Arc<dyn Storage> = disk.start_process();
    let mark = crash.mark.expect("a mark");
    let before = History::default();
    before.acknowledged.store(mark / MARK, Ordering::Relaxed);
    before.has_died.store(true, Ordering::Relaxed);
    *before.states.lock().unwrap() = history.states.lock().unwrap().clone();
    let mut reader = Reader {
        connection: connect(&storage, 0),
        number: 0,
    };
    reader.begin(&before);
    let newest = mark % MARK;
    assert!(reader.number <= newest, "{} above {newest}", reader.number);
}

/// Writers die in any of their calls. The others' snapshots stay readable, and acknowledged changes are there after a
/// power cut at any moment.
#[test]
fn no_death_of_a_writer_takes_what_another_process_reads() {
    let runs = if is_full() { 400 } else { 20 };
    let mut counts = Deaths::default();
    let seed = seed(2206);
    for run in 0..runs {
        try_deaths(seed + run, &mut counts);
    }
    println!("{counts:?}");
    assert!(counts.deaths > runs && counts.images > 100 * runs);
    assert!(counts.looks > 5 * runs && counts.begun > 5 * runs);
}

/// Counts of the syncs that failed.
#[derive(Debug, Default)]
struct FailedSyncs {
    failed: u64,
    looks: u64,
    images: u64,
}

/// Lets one sync fail in the middle of some commits. Then other processes read before and behind it, and after a power
/// cut at any later moment. Returns whether the fault struck.
fn try_failed_sync(seed: u64, fault: Fault, counts: &mut FailedSyncs) -> bool {
    let disk = SimulatedDisk::new(seed);
    let process = || -> Arc<dyn Storage> { disk.start_process() };
    let mut writer = Writer::create(&process(), seed);
    let history = Arc::clone(&writer.history);
    let mut readers = Readers::new(&process(), seed + 100, 3);
    let mut late = Reader {
        connection: connect(&process(), seed + 50),
        number: 0,
    };
    disk.set_fault(Some(fault));
    let mut has_failed = false;
    for _ in 0..6 {
        readers.step(&history);
        has_failed = writer.try_commit().is_err();
        if has_failed {
            break;
        }
    }
    disk.set_fault(None);
    if !has_failed {
        return false;
    }
    // As SQLite does: a failed transaction is rolled back.
    writer.connection.unlock(LockLevel::None).unwrap();
    mark(&disk, &history, false);
    let from = disk.recording().step_count();
    counts.failed += 1;
    for _ in 0..8 {
        readers.step(&history);
        counts.looks += 1;
    }
    late.begin(&history);
    late.connection.unlock(LockLevel::None).unwrap();
    let durable = history.durable.load(Ordering::Relaxed);
    assert_eq!(durable, late.number);
    // Another process goes on, with a transaction of the same number.
    writer.connection = connect(&process(), seed + 1000);
    writer.content = history.states.lock().unwrap()[&durable].clone();
    mark(&disk, &history, true);
    writer.commit();
    mark(&disk, &history, false);
    readers.step(&history);
    let recording = disk.recording();
    recording.for_each_crash_from(from, &Damage::ALL, seed, |crash| {
        check_crash(&crash, &history);
        counts.images += 1;
    });
    true
}

/// A commit that was not made durable is seen by nobody, and does not come back.
#[test]
fn no_commit_whose_sync_failed_is_ever_seen() {
    let runs = if is_full() { 200 } else { 6 };
    let seed = seed(2207);
    let mut counts = FailedSyncs::default();
    for kind in [
        FaultKind::SyncErrorPagesKept,
        FaultKind::SyncErrorPagesDropped,
    ] {
        for run in 0..runs {
            let strikes = |first_call| Fault {
                kind,
                first_call,
                is_lasting: false,
            };
            let mut calls = 0;
            while try_failed_sync(seed + run, strikes(calls), &mut counts) {
                calls += 1;
            }
            assert!(calls > 5, "{calls} syncs of six commits");
        }
    }
    println!("{counts:?}");
    assert!(counts.failed > 10 * runs && counts.images > 200 * runs);
    assert!(counts.looks >= 8 * counts.failed);
}

/// A reader that stays keeps its snapshot, and no more. The writes bound the file, and it returns to its due length
/// when the reader has gone.
#[test]
fn what_a_reader_kept_is_used_again_when_it_has_gone() {
    let storage = memory();
    let mut writer = Writer::create(&storage, 7);
    let history = Arc::clone(&writer.history);
    for _ in 0..200 {
        writer.commit();
    }
    let before = writer.connection.status().unwrap().size_bytes;
    let mut readers = Readers::new(&storage, 8, 3);
    let mut reader = readers.idle.swap_remove(0);
    reader.begin(&history);
    for _ in 0..300 {
        writer.commit();
    }
    reader.look(&history);
    assert!(!reader.connection.lock(LockLevel::Reserved).unwrap());
    assert!(reader.connection.is_stale());
    reader.look(&history);
    let held = writer.connection.status().unwrap().size_bytes;
    reader.connection.unlock(LockLevel::None).unwrap();
    assert!(reader.connection.lock(LockLevel::Reserved).unwrap());
    reader.connection.unlock(LockLevel::None).unwrap();
    for _ in 0..300 {
        writer.commit();
    }
    let after = writer.connection.status().unwrap().size_bytes;
    println!("{before} bytes, {held} with a reader that stays, {after} behind it");
    assert!(held > 2 * before && after <= before + 2 * 8192);
}
