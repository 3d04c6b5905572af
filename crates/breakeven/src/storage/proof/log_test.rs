//! The reference log: the smallest store that uses all of record and superblock.
//!
//! A map from small keys to bytes, changed by transactions. The file `log` holds the superblocks and two regions, used
//! alternately. `snapshots/G` holds the whole map at the start of generation G. A transaction is its records and a
//! commit record that chains their checksums. Checkpoint: snapshot, new generation in the other region, superblock,
//! give the old one back. It keeps the rules of `docs/format.md`, and each of them can be switched off to make the
//! tests fail.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::{Found, State, Subject, digest};
use crate::error::{Error, Result};
use crate::storage::record::{
    Appended, Found as Scanned, KIND_HEAD, Label, Placed, Record, RecordWriter, Region, Scanner,
    record_bytes,
};
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::superblock::{StoreKind, Superblocks};
use crate::storage::{EntryKind, OpenOptions, Storage, StorageFile};

pub const KIND: StoreKind = StoreKind::new(*b"TEST", 1);
pub const LOG_ID: [u8; 16] = *b"reference log 16";
const SNAPSHOT_ID: [u8; 16] = *b"snapshots of log";

const REGIONS_START: u64 = 8192;
const REGION_BYTES: u64 = 12 << 10;
const RECORD_BYTES_MAX: u64 = 8 << 10;
/// Small, so that a long transaction takes several writes.
const BUFFER_BYTES: usize = 4096;

const PUT: u8 = 2;
const DELETE: u8 = 3;
const COMMIT: u8 = 4;
const END: u8 = 5;

/// The content of a log.
pub type Content = BTreeMap<u16, Arc<[u8]>>;
/// A new value for a key, or none.
pub type Operation = (u16, Option<Arc<[u8]>>);

/// The way in which a log uses its file; any log can be opened in any mode.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Through direct I/O: every write is padded to 512 bytes.
    pub is_direct: bool,
    /// Old regions are not punched, as on systems without punching.
    pub keeps_stale: bool,
    /// The file gets its full size at once instead of growing.
    pub is_preallocated: bool,
}

/// The result of recovery.
#[derive(Debug)]
pub struct Recovered {
    pub content: Content,
    /// The number of the last transaction in it.
    pub last: u64,
    /// Whether anything but a clean end was found: a torn tail, or rot.
    pub is_damaged: bool,
    checkpoint: Checkpoint,
    end: (u64, u64),
}

/// The payload of a superblock.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    generation: u64,
    last: u64,
    snapshot_bytes: u64,
}

impl Checkpoint {
    /// The fields fill several sectors, so that a torn superblock is really torn.
    fn encode(self) -> Vec<u8> {
        let fields = [self.generation, self.last, self.snapshot_bytes];
        let bytes = fields.map(u64::to_le_bytes).concat();
        bytes.repeat(120)
    }

    fn decode(payload: &[u8]) -> Checkpoint {
        Checkpoint {
            generation: u64_at(payload, 0),
            last: u64_at(payload, 8),
            snapshot_bytes: u64_at(payload, 16),
        }
    }

    fn region(self) -> Region {
        let start = REGIONS_START + self.generation % 2 * REGION_BYTES;
        Region::new(LOG_ID, self.generation, start..start + REGION_BYTES)
    }

    fn snapshot_name(self) -> String {
        format!("snapshots/{}", self.generation)
    }

    fn snapshot_region(self) -> Region {
        Region::new(SNAPSHOT_ID, self.generation, 0..self.snapshot_bytes)
    }
}

pub struct Log {
    storage: Arc<dyn Storage>,
    file: Arc<dyn StorageFile>,
    mode: Mode,
    superblocks: Superblocks,
    checkpoint: Checkpoint,
    writer: RecordWriter,
    /// Below this sequence everything in the region is durable.
    synced_sequence: u64,
    content: Content,
    last: u64,
}

impl Log {
    pub fn create(storage: Arc<dyn Storage>, mode: Mode) -> Result<Log> {
        storage.create_folder("snapshots")?;
        let file = storage.open("log", options(mode, true))?;
        if mode.is_preallocated {
            file.truncate(REGIONS_START + 2 * REGION_BYTES)?;
        }
        let mut checkpoint = Checkpoint {
            generation: 1,
            last: 0,
            snapshot_bytes: 0,
        };
        checkpoint.snapshot_bytes = write_snapshot(&*storage, checkpoint, &Content::new())?;
        let writer = begin_region(&*file, checkpoint.region(), mode)?;
        let payload = checkpoint.encode();
        let superblocks = Superblocks::create(Arc::clone(&file), KIND, LOG_ID, &payload)?;
        storage.sync_directory("")?;
        Ok(Log {
            synced_sequence: writer.next_sequence(),
            storage,
            file,
            mode,
            superblocks,
            checkpoint,
            writer,
            content: Content::new(),
            last: 0,
        })
    }

    /// Opens a log for writing. A checkpoint makes the recovered state durable, and begins a new generation.
    pub fn open(storage: Arc<dyn Storage>, mode: Mode) -> Result<Log> {
        let file = storage.open("log", options(mode, false))?;
        let mut superblocks = Superblocks::open(Arc::clone(&file), KIND)?;
        superblocks.rewrite()?;
        let found = recover(&*storage, &*file, &superblocks)?;
        let (address, sequence) = found.end;
        let region = found.checkpoint.region();
        let mut log = Log {
            writer: RecordWriter::new(region, address, sequence, BUFFER_BYTES),
            storage,
            file,
            mode,
            superblocks,
            checkpoint: found.checkpoint,
            synced_sequence: 0,
            content: found.content,
            last: found.last,
        };
        log.remove_leftovers()?;
        if is_seeded(SeededBug::GenerationKept) {
            log.file.sync()?;
        } else {
            log.checkpoint()?;
        }
        Ok(log)
    }

    /// Runs a transaction; it is acknowledged when this returns, if `is_durable`.
    pub fn commit(&mut self, operations: &[Operation], is_durable: bool) -> Result<()> {
        self.make_room(operations)?;
        let mut chain = 0;
        for (key, value) in operations {
            let kind = if value.is_some() { PUT } else { DELETE };
            let value = value.as_deref().unwrap_or(&[]);
            let placed = self.append(kind, &[&key.to_le_bytes(), value])?;
            chain = crc32c::crc32c_append(chain, &placed.checksum.to_le_bytes());
        }
        let last = self.last + 1;
        self.append(
            COMMIT,
            &[
                &last.to_le_bytes(),
                &self.synced_sequence.to_le_bytes(),
                &(operations.len() as u32).to_le_bytes(),
                &chain.to_le_bytes(),
            ],
        )?;
        self.flush()?;
        if is_durable {
            self.sync()?;
        }
        for (key, value) in operations {
            match value {
                Some(value) => self.content.insert(*key, Arc::clone(value)),
                None => self.content.remove(key),
            };
        }
        self.last = last;
        Ok(())
    }

    /// Makes all transactions durable.
    pub fn sync(&mut self) -> Result<()> {
        if !is_seeded(SeededBug::CommitNotSynced) {
            self.file.sync()?;
        }
        self.synced_sequence = self.writer.next_sequence();
        Ok(())
    }

    /// Writes the whole state and begins a new generation.
    pub fn checkpoint(&mut self) -> Result<()> {
        let old = self.checkpoint;
        let mut new = Checkpoint {
            generation: old.generation + 1,
            last: self.last,
            snapshot_bytes: 0,
        };
        new.snapshot_bytes = write_snapshot(&*self.storage, new, &self.content)?;
        if is_seeded(SeededBug::FreedTooEarly) {
            self.free(old)?;
        }
        let writer = begin_region(&*self.file, new.region(), self.mode)?;
        self.superblocks.write(&new.encode())?;
        self.checkpoint = new;
        self.writer = writer;
        self.synced_sequence = self.writer.next_sequence();
        if !is_seeded(SeededBug::FreedTooEarly) {
            self.free(old)?;
        }
        Ok(())
    }

    /// Gives back the space that only the older superblock points to.
    fn free(&self, old: Checkpoint) -> Result<()> {
        self.storage.unlink(&old.snapshot_name())?;
        if !self.mode.keeps_stale {
            let range = old.region().range();
            match self.file.punch(range.start, range.end - range.start) {
                Err(Error::Unsupported { .. }) => {}
                punched => punched?,
            }
        }
        Ok(())
    }

    fn remove_leftovers(&self) -> Result<()> {
        for entry in self.storage.list("snapshots")? {
            let name = format!("snapshots/{}", entry.name);
            if entry.kind == EntryKind::File && name != self.checkpoint.snapshot_name() {
                self.storage.unlink(&name)?;
            }
        }
        Ok(())
    }

    fn make_room(&mut self, operations: &[Operation]) -> Result<()> {
        let bodies = operations.iter().map(|(_, value)| {
            let value_bytes = value.as_ref().map_or(0, |value| value.len());
            // Every record may end a buffer, and be padded.
            record_bytes(2 + value_bytes as u64) + 1024
        });
        let needed_bytes: u64 = bodies.sum::<u64>() + record_bytes(24) + 1024;
        if self.writer.next_address() + needed_bytes > self.writer.region().range().end {
            self.checkpoint()?;
        }
        Ok(())
    }

    fn append(&mut self, kind: u8, body: &[&[u8]]) -> Result<Placed> {
        let label = Label {
            kind,
            ..Label::default()
        };
        loop {
            match self.writer.append(label, body)? {
                Appended::At(placed) => return Ok(placed),
                Appended::BufferFull => self.flush()?,
                Appended::RegionFull => panic!("room was made"),
            }
        }
    }

    fn flush(&mut self) -> Result<()> {
        flush(&mut self.writer, &*self.file, self.mode)
    }
}

impl Subject for Log {
    type Mode = Mode;
    type Transaction = Vec<Operation>;

    fn mode(random: &mut Rng) -> Mode {
        Mode {
            is_direct: random.u8(..4) == 0,
            keeps_stale: random.bool(),
            is_preallocated: random.bool(),
        }
    }

    fn create(storage: Arc<dyn Storage>, mode: Mode) -> Result<Log> {
        Log::create(storage, mode)
    }

    fn open(storage: Arc<dyn Storage>, mode: Mode) -> Result<Log> {
        Log::open(storage, mode)
    }

    fn read(storage: Arc<dyn Storage>) -> Result<Found> {
        let recovered = read_log(&*storage)?;
        Ok(Found {
            state: state_of(recovered.last, &recovered.content),
            is_damaged: recovered.is_damaged,
        })
    }

    fn state(&self) -> State {
        state_of(self.last, &self.content)
    }

    fn plan(&self, random: &mut Rng) -> Vec<Operation> {
        random_operations(random)
    }

    fn after(&self, transaction: &Vec<Operation>) -> State {
        let mut content = self.content.clone();
        for (key, value) in transaction {
            match value {
                Some(value) => content.insert(*key, Arc::clone(value)),
                None => content.remove(key),
            };
        }
        state_of(self.last + 1, &content)
    }

    fn commit(&mut self, transaction: &Vec<Operation>, is_durable: bool) -> Result<()> {
        self.commit(transaction, is_durable)
    }

    fn sync(&mut self) -> Result<()> {
        self.sync()
    }

    fn maintain(&mut self, _: &mut Rng) -> Result<()> {
        self.checkpoint()
    }
}

fn state_of(last: u64, content: &Content) -> State {
    let keys: Vec<[u8; 2]> = content.keys().map(|key| key.to_le_bytes()).collect();
    let parts = keys.iter().zip(content.values());
    let digest = digest(parts.flat_map(|(key, value)| [&key[..], value]));
    State { last, digest }
}

fn random_operations(random: &mut Rng) -> Vec<Operation> {
    const LENGTHS: [usize; 8] = [24, 24, 100, 100, 100, 480, 480, 1500];
    let number = random.u64(..);
    let count = random.usize(1..5);
    (0..count)
        .map(|at| {
            let key = random.u16(..12);
            let length = LENGTHS[random.usize(..LENGTHS.len())];
            let mut value = vec![0; length];
            random.fill(&mut value);
            // No two values ever written are equal.
            value[..8].copy_from_slice(&number.to_le_bytes());
            value[8] = at as u8;
            let is_put = random.u8(..6) > 0;
            (key, is_put.then(|| Arc::from(value)))
        })
        .collect()
}

/// Reads the log in `storage` without changing anything.
pub fn read_log(storage: &dyn Storage) -> Result<Recovered> {
    let file = storage.open("log", OpenOptions::read_only())?;
    let superblocks = Superblocks::open(Arc::clone(&file), KIND)?;
    recover(storage, &*file, &superblocks)
}

fn options(mode: Mode, is_new: bool) -> OpenOptions {
    OpenOptions {
        create: is_new,
        exclusive: is_new,
        direct: mode.is_direct,
        ..OpenOptions::default()
    }
}

fn flush(writer: &mut RecordWriter, file: &dyn StorageFile, mode: Mode) -> Result<()> {
    if mode.is_direct {
        let padded = writer.pad_to(512)?;
        assert!(
            !matches!(padded, Some(Appended::RegionFull)),
            "room was made"
        );
        // A full buffer ends where it is: its length is a multiple of 512 already.
        assert!(
            !matches!(padded, Some(Appended::BufferFull)),
            "buffers end aligned"
        );
    }
    writer.write_to(file)
}

fn begin_region(file: &dyn StorageFile, region: Region, mode: Mode) -> Result<RecordWriter> {
    let start = region.range().start;
    let mut writer = RecordWriter::new(region, start, 0, BUFFER_BYTES);
    writer.append_head(b"")?;
    flush(&mut writer, file, mode)?;
    Ok(writer)
}

/// Writes the snapshot of a generation under its name, durably; returns its length.
fn write_snapshot(storage: &dyn Storage, new: Checkpoint, state: &Content) -> Result<u64> {
    let new_name = format!("{}.new", new.snapshot_name());
    let options = OpenOptions {
        create: true,
        ..OpenOptions::default()
    };
    let file = storage.open(&new_name, options)?;
    file.truncate(0)?;
    let region = Region::new(SNAPSHOT_ID, new.generation, 0..1 << 30);
    let mut writer = RecordWriter::new(region, 0, 0, RECORD_BYTES_MAX as usize);
    let mut append = |kind, body: &[&[u8]]| -> Result<()> {
        let label = Label {
            kind,
            ..Label::default()
        };
        while writer.append(label, body)? == Appended::BufferFull {
            writer.write_to(&*file)?;
        }
        Ok(())
    };
    for (key, value) in state {
        append(PUT, &[&key.to_le_bytes(), value])?;
    }
    append(END, &[&(state.len() as u32).to_le_bytes()])?;
    writer.write_to(&*file)?;
    file.sync()?;
    storage.rename(&new_name, &new.snapshot_name())?;
    if !is_seeded(SeededBug::FolderNotSynced) {
        storage.sync_directory("snapshots")?;
    }
    Ok(writer.next_address())
}

fn recover(
    storage: &dyn Storage,
    file: &dyn StorageFile,
    superblocks: &Superblocks,
) -> Result<Recovered> {
    let checkpoint = Checkpoint::decode(&superblocks.current().payload);
    let mut found = Recovered {
        content: read_snapshot(storage, checkpoint)?,
        last: checkpoint.last,
        is_damaged: superblocks.is_only_one(),
        checkpoint,
        end: (checkpoint.region().range().start, 0),
    };
    let region = checkpoint.region();
    let start = region.range().start;
    let mut scanner = Scanner::new(file, region, start, 0, RECORD_BYTES_MAX);
    let mut open: Vec<(u32, Operation)> = Vec::new();
    let mut gap_sequence = None;
    loop {
        let record = match scanner.next()? {
            None => break,
            Some(Scanned::Gap {
                address,
                sequence,
                gap,
            }) => {
                found.is_damaged |= !gap.is_clean_end();
                found.end = (address, sequence);
                if !is_seeded(SeededBug::HoleSkipped) {
                    gap_sequence = Some(sequence);
                }
                continue;
            }
            Some(Scanned::Record(record)) => record,
        };
        if let Some(gap_sequence) = gap_sequence {
            // The log has ended, and the rest can only prove that it should not have. Its mere presence is worth a
            // report: a torn end, if it is one.
            found.is_damaged = true;
            if record.label.kind == COMMIT && u64_at(record.body, 8) > gap_sequence {
                let (expected, found) = ("the record synced here", "a gap before durable ones");
                return Err(Error::corrupt("log", record.address, expected, found));
            }
            continue;
        }
        replay(&record, &mut open, &mut found);
        found.end = (record.end(), record.sequence + 1);
    }
    Ok(found)
}

/// Applies the open transaction when its commit record covers all of it.
fn replay(record: &Record<'_>, open: &mut Vec<(u32, Operation)>, found: &mut Recovered) {
    let is_commit_awaited = !is_seeded(SeededBug::CommitNotAwaited);
    match record.label.kind {
        KIND_HEAD => {}
        PUT | DELETE => {
            let key = u16::from_le_bytes([record.body[0], record.body[1]]);
            let value = (record.label.kind == PUT).then(|| Arc::from(&record.body[2..]));
            open.push((record.checksum, (key, value)));
        }
        COMMIT => {
            let checksums = open.iter().map(|(checksum, _)| checksum.to_le_bytes());
            let chain = checksums.fold(0, |chain, next| crc32c::crc32c_append(chain, &next));
            let stored = u64_at(record.body, 16);
            if stored != open.len() as u64 | u64::from(chain) << 32 {
                found.is_damaged = true;
                open.clear();
                return;
            }
            found.last = u64_at(record.body, 0);
        }
        _ => found.is_damaged = true,
    }
    if record.label.kind == COMMIT || !is_commit_awaited {
        for (_, (key, value)) in open.drain(..) {
            match value {
                Some(value) => found.content.insert(key, value),
                None => found.content.remove(&key),
            };
        }
    }
}

fn read_snapshot(storage: &dyn Storage, checkpoint: Checkpoint) -> Result<Content> {
    let name = checkpoint.snapshot_name();
    let file = storage.open(&name, OpenOptions::read_only())?;
    let region = checkpoint.snapshot_region();
    let mut scanner = Scanner::new(&*file, region, 0, 0, RECORD_BYTES_MAX);
    let mut state = Content::new();
    let mut is_complete = false;
    while let Some(found) = scanner.next()? {
        let record = match found {
            Scanned::Record(record) => record,
            Scanned::Gap { address, gap, .. } => return Err(gap.into_error(address)),
        };
        if record.label.kind == PUT {
            let key = u16::from_le_bytes([record.body[0], record.body[1]]);
            state.insert(key, Arc::from(&record.body[2..]));
        } else {
            let count = u32::from_le_bytes(*record.body.first_chunk().expect("four bytes"));
            is_complete = record.label.kind == END && count as usize == state.len();
        }
    }
    if !is_complete {
        let length = checkpoint.snapshot_bytes;
        return Err(Error::corrupt("snapshot", length, "an end", "none"));
    }
    Ok(state)
}

pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}

mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, RealStorage, test_seed};

    /// The same transactions on real files and in memory give the same log.
    #[test]
    fn the_log_is_the_same_on_real_files() {
        for is_direct in [false, true] {
            let mode = Mode {
                is_direct,
                keeps_stale: false,
                is_preallocated: false,
            };
            let folder = tempfile::tempdir().unwrap();
            let real = Arc::new(RealStorage::open_folder(folder.path()).unwrap());
            let memory = Arc::new(MemoryStorage::new());
            let storages: [Arc<dyn Storage>; 2] = [real, memory];
            let run = |storage: &Arc<dyn Storage>| -> Result<Content> {
                let mut log = Log::create(Arc::clone(storage), mode)?;
                let mut random = Rng::with_seed(test_seed());
                for number in 0..60 {
                    log.commit(&random_operations(&mut random), number % 3 > 0)?;
                    if number % 20 == 19 {
                        drop(log);
                        log = Log::open(Arc::clone(storage), mode)?;
                    }
                }
                log.sync()?;
                Ok(read_log(&**storage)?.content)
            };
            match run(&storages[0]) {
                Err(error @ Error::Unsupported { .. }) => println!("skipped: {error}"),
                state => assert_eq!(state.unwrap(), run(&storages[1]).unwrap()),
            }
        }
    }
}
