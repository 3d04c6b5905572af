//! A log-structured block store in user space: the base of database pages and disks.
//!
//! Transactions write blocks of volumes into one file, compressed, one behind the other. A commit is one write and one
//! sync. Readers hold a snapshot and never wait for the writer. A block may be shared by several addresses (`alias`),
//! and a volume cloned by copying the root of its map. The format is in `docs/format.md`.
//!
//! | file | what it is |
//! |---|---|
//! | `place` | places of records, and the list of segments |
//! | `overlay` | what changed since a checkpoint, and the cache of what did not |
//! | `table` | the frame table: where each frame lies, and how often it is referred to |
//! | `state` | volumes and maps, and how operations change them |
//! | `layout` | the bytes of records and superblock |
//! | `file` | reading frames, nodes and chunks |
//! | `coding` | how each block is encoded |
//! | `dictionary` | dictionaries: in and out of the store |
//! | `log` | writing records into segments |
//! | `checkpoint` | writing down what changed, and freeing segments |
//! | `goal` | how long the file should be, and when cleaning is due |
//! | `clean` | moving what is live out of segments that are mostly dead |
//! | `dense` | making what rests dense |
//! | `recovery` | reading a store back |
//! | `refresh` | seeing what another process wrote |
//! | `transaction`, `snapshot` | what callers hold |
//! | `verify`, `stats` | looking at everything, and at little |
//! | `repair` | a store whose superblocks lead nowhere |
//!
//! It keeps three promises. Transactions acknowledged as durable are there after a crash. A transaction is there whole
//! or not at all. No read returns other bytes than were written. It knows neither databases nor caches, keeps no clock,
//! and starts no thread. A store that is open for writing is open once, by a lock on a byte of its file. Several
//! readers may have one that nobody writes. A caller that keeps writers apart itself may open it in several processes.
//! They alternate as writers and read all the time.

#![deny(unsafe_code)]

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::codec::Method;
use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::superblock::{self, SLOT_BYTES, Superblocks};
use crate::storage::unfinished::folder_of;
use crate::storage::{FileIdentity, LockKind, OpenOptions, Storage, StorageFile};

mod checkpoint;
mod clean;
mod coding;
mod dense;
mod dictionary;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod goal;
#[cfg(test)]
mod golden_test;
mod layout;
mod log;
#[cfg(test)]
mod model_test;
mod overlay;
mod place;
#[cfg(test)]
mod proof_test;
mod recovery;
mod refresh;
mod repair;
#[cfg(test)]
mod room_test;
mod shared;
mod snapshot;
#[cfg(test)]
mod space_test;
mod state;
mod stats;
mod table;
mod transaction;
mod verify;

pub use clean::Cleaned;
pub use coding::{Kind, without_tail};
pub use dense::{Densified, Density};
pub use file::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN};
pub(crate) use layout::COORDINATOR_BYTES_MAX;
pub use repair::{Repaired, repair};
pub use snapshot::{Location, Snapshot};
pub use state::INDEX_MAX;
pub use stats::{STATS_FIELDS, Stats};
pub use transaction::{ChosenEncoding, Durability, EncodedBlock, Transaction};
pub use verify::Verified;

use checkpoint::Writer;
use coding::Coding;
use file::{StoreFile, check_block_bytes};
use goal::Measure;
use layout::{FLAG_END, KIND, Payload, SEGMENTS_START};
use log::{Geometry, Log, Start, Use};
use place::Segments;
use recovery::Recovery;
use refresh::recover_newest;
use shared::Shared;
use state::State;

/// The longest segment. A sync of a full one, and the cleaning of one, stay short.
const SEGMENT_BYTES_MAX: u64 = 1 << 20;
/// A segment is this part of the file when the file grows by it, so that small files stay small.
const SEGMENT_SHARE: u64 = 64;
/// The byte behind every file's end whose lock shows that the store is open.
const LOCK_BYTE: u64 = 1 << 61;
/// The reason why a store that ends in a commit with a coordinator is not written.
const UNDECIDED: &str = "a transaction over several files waits for its decision";
/// Why a store is not written on that could not take back a commit.
const REFUSED_COMMIT: &str = "a transaction that found no room stands in the log";
/// Recovery reads at most about this much of the log.
const CHECKPOINT_BYTES: u64 = 16 << 20;

/// The room within the file for transactions that free some, on a host that has none left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// For trims of any length, and for the cleaning behind them. It takes up to about 3 MiB, and some twice the maps
    /// and the table of a small store.
    All,
    /// For the next checkpoint, for moves out of a segment, and as much for transactions that free more than they
    /// write: each a 64th of the file. It is a least segment or more, and part of the length that
    /// [`BlocksOptions::space_amp`] allows.
    Share,
}

/// Options to make and open a store.
#[derive(Clone, Copy, Debug)]
pub struct BlocksOptions {
    /// The longest block that segments are made for, a power of two. It counts when the store is made. The first volume
    /// with a longer one raises it. Default 16 KiB.
    pub block_bytes_max: u32,
    /// Segments are multiples of this, itself one of 4,096. It counts when the store is made. Default 0: four of the
    /// longest blocks, and at least 64 KiB.
    pub segment_bytes_min: u32,
    /// The greatest length of the file. Default: 16 TiB, the most possible.
    pub file_bytes_max: u64,
    /// A checkpoint is written after this much of the log. Default 16 MiB.
    pub checkpoint_bytes: u64,
    /// The memory for nodes of maps and of the frame table that were read. Default 64 MiB; 1 GiB of
    /// blocks of 4 KiB has nodes of 4 MiB.
    pub map_cache_bytes: usize,
    /// The method for blocks that move on request ([`Blocks::clean`], [`Blocks::shrink`], [`Blocks::rewrite`]), where
    /// that is shorter. Default: the chooser's, at twice the worth of a written byte.
    pub clean_method: Option<Method>,
    /// Cleaning keeps the file to this many times its live bytes, with the room for the next writes. Segments that are
    /// nine tenths full allow about 1.25. Less takes less room and moves more. Default 1.5. Below 1, for
    /// [`Blocks::rewrite`]: as short as full segments get it, with room for little.
    pub space_amp: f64,
    /// The reserve of the file for transactions that free. Default: for all of them.
    pub reserve: Reserve,
    /// The method for written blocks. A block that it does not shorten is stored as it is. Default: the chooser's.
    pub method: Option<Method>,
    /// The worth of a GB of the file, in seconds of a core. Default 10: it is written and moved once, on a disk that
    /// takes 200 MB/s.
    pub seconds_per_gb: f64,
    /// The worth of a GB of blocks that stay where they are, in seconds of a core, if it is more. Blocks that move on
    /// request are encoded by it. Default 0.
    pub rest_seconds_per_gb: f64,
    /// The share of the bytes of a kind's blocks that its dictionaries may take, both copies together; 0 for no
    /// dictionaries. Default 1/16, less than a dictionary must save to be kept.
    pub dictionary_share: f64,
    /// Returns the kind of a block, for the chooser. Default: by a glance at its bytes.
    pub kind: fn(&[u8]) -> Kind,
    /// The permission bits of a new store's file, before the process's mask. Default 0o600.
    pub mode: u32,
    /// Whether the caller keeps processes that write apart by locks of its own. Each begins its turn with
    /// [`Blocks::newest`]. A reader begins with it too, whoever writes meanwhile. Default: the store is locked while it
    /// is open.
    pub is_guarded: bool,
    /// The seed of generations and of a new store's id; `None` takes one at random. A store that is
    /// opened twice with the same seed and the same past would write the same generations: for tests.
    pub seed: Option<u64>,
}

impl Default for BlocksOptions {
    fn default() -> BlocksOptions {
        BlocksOptions {
            block_bytes_max: 16 << 10,
            segment_bytes_min: 0,
            file_bytes_max: place::FILE_BYTES_MAX,
            checkpoint_bytes: CHECKPOINT_BYTES,
            map_cache_bytes: 64 << 20,
            clean_method: None,
            space_amp: 1.5,
            reserve: Reserve::All,
            method: None,
            seconds_per_gb: 10.0,
            rest_seconds_per_gb: 0.0,
            dictionary_share: 1.0 / 16.0,
            kind: Kind::at_a_glance,
            mode: 0o600,
            is_guarded: false,
            seed: None,
        }
    }
}

/// Returns the numbers of some of `count` things, to predict the result for all. They are `count_max` at most and one
/// at least, spread evenly.
pub fn spread(count: u64, count_max: u64) -> impl Iterator<Item = u64> {
    let taken = count_max.clamp(1, count.max(1));
    let place =
        move |index: u64| (u128::from(index) * u128::from(count) / u128::from(taken)) as u64;
    (0..taken.min(count)).map(place)
}

/// Returns the least segment for blocks of up to `block_bytes`. It has room for the longest record, which may be a map
/// node, and a head.
fn segment_bytes_least(block_bytes: u32) -> u32 {
    (block_bytes * 2).max(8192)
}

/// The least segment of a new store that asks for none. The end of a segment is lost, half a record on average: three
/// blocks of 4 KiB that do not compress fill 16 KiB to three quarters, and compacting 1 MiB of them left 1.35 MiB.
const SEGMENT_BYTES_MIN: u32 = 64 << 10;

/// Returns the least segment that is usual for blocks of up to `block_bytes`: room for four, and for as many map nodes.
fn segment_bytes_usual(block_bytes: u32) -> u32 {
    (4 * block_bytes).max(16 << 10)
}

impl BlocksOptions {
    fn segment_bytes(&self) -> Result<u32> {
        check_block_bytes(self.block_bytes_max)?;
        let segment_bytes = match self.segment_bytes_min {
            0 => segment_bytes_usual(self.block_bytes_max).max(SEGMENT_BYTES_MIN),
            bytes => bytes,
        };
        let least = segment_bytes_least(self.block_bytes_max);
        let range = least..=SEGMENT_BYTES_MAX as u32;
        if !range.contains(&segment_bytes) || !segment_bytes.is_multiple_of(4096) {
            let reason = format!("{segment_bytes} bytes, not a multiple of 4096 in {range:?}");
            return Err(Error::invalid("segment size", reason));
        }
        Ok(segment_bytes)
    }
}

/// The findings from the opening of the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The transactions that were replayed from the log.
    pub replayed_commits: u64,
    /// Whether the log ended in a broken record or had records behind its end: a crash, or rot.
    pub is_torn: bool,
    /// Whether one of the two superblocks is not whole.
    pub lacks_superblock: bool,
    /// Whether the file ends before a part of it that was written.
    pub is_short: bool,
    /// Whether acknowledged transactions may be missing. A store that this version of the format wrote last is refused
    /// where that can be seen.
    pub may_lack: bool,
}

impl Opened {
    /// Returns whether nothing was found but a clean end.
    pub fn is_whole(&self) -> bool {
        !(self.is_torn || self.lacks_superblock || self.is_short)
    }

    /// Reports the findings for people: a line for each.
    pub fn remarks(&self) -> impl Iterator<Item = &'static str> {
        let superblock = match self.may_lack {
            true => {
                "one of the two superblocks is not whole, in a file of an earlier version: the transactions of its last \
                 session may be missing"
            }
            false => {
                "one of the two superblocks is not whole, of a crash or of damage; the other one leads to all \
                 transactions"
            }
        };
        let remarks = [
            (self.lacks_superblock, superblock),
            (
                self.is_torn,
                "the log ends in something that is not whole: the transaction that a crash cut off, or damage to the \
                 last one",
            ),
            (
                self.is_short,
                "the file ends before a part of it that was written: it was cut, or a crash came as it grew",
            ),
        ];
        remarks.into_iter().filter(|it| it.0).map(|it| it.1)
    }
}

/// An open store. Clones are the same store.
#[derive(Clone)]
pub struct Blocks {
    inner: Arc<Inner>,
}

/// The data that all handles of an open store share.
struct Inner {
    file: StoreFile,
    options: BlocksOptions,
    /// The number of this store among all others.
    number: u64,
    coding: Box<Coding>,
    opened: Opened,
    is_writable: bool,
    shared: Arc<Shared>,
    turn: Mutex<Turn>,
    turn_over: Condvar,
    /// Whether this handle wrote, found no room, and read its own writes back.
    has_resumed: AtomicBool,
}

/// The handle's right to write.
enum Turn {
    /// Nobody wrote since the store was opened.
    Untouched(Box<Recovery>, Box<Superblocks>),
    Idle(Box<Writer>),
    /// The known state leads to the newest one no more. The next request reads the store again.
    Behind,
    /// A transaction has it.
    Taken,
    /// The store failed while it was being taken.
    Refused,
}

impl Blocks {
    /// Makes a new store in a file that must not exist, and makes it durable.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options out of range, and those of creating and writing.
    pub fn create(storage: &dyn Storage, name: &str, options: BlocksOptions) -> Result<Blocks> {
        let new = OpenOptions {
            mode: options.mode,
            ..OpenOptions::create_new()
        };
        let created = Blocks::create_in(storage.open(name, new)?, options)
            .and_then(|made| storage.sync_directory(folder_of(name)).map(|()| made));
        if created.is_err() {
            // The failure itself matters more.
            let _ = storage.unlink(name);
        }
        created
    }

    /// Makes a new store in a file that is open for reading and writing and is empty but for the bytes of [`begin`].
    /// Makes it durable, but for its name. The caller keeps others out of the file.
    ///
    /// # Errors
    /// As [`Blocks::create`].
    pub fn create_in(file: Arc<dyn StorageFile>, options: BlocksOptions) -> Result<Blocks> {
        let segment_bytes_min = options.segment_bytes()?;
        lock(&*file, LockKind::Exclusive, &options)?;
        let mut random = random(&options, 0);
        let log_id = std::array::from_fn(|_| random.u8(..));
        let told = options.is_guarded.then(|| Arc::clone(&file));
        let shared = Arc::new(Shared::new(State::default(), told));
        let geometry = geometry(&options, segment_bytes_min);
        let start = Start {
            segments: Segments::default(),
            live: Vec::new(),
            uses: Vec::new(),
            generation: 1,
            sequence: 0,
        };
        let mut log = Log::start(
            Arc::clone(&file),
            log_id,
            geometry,
            Arc::clone(&shared),
            start,
        )?;
        log.sync()?;
        let payload = Payload {
            block_bytes_max: options.block_bytes_max,
            segment_bytes_min,
            checkpoint: None,
            log: log.position(),
            end: None,
        };
        let superblocks = Superblocks::create(Arc::clone(&file), KIND, log_id, &payload.encode())?;
        let state = State {
            segments: log.segments.clone(),
            ..State::default()
        };
        shared.publish(state);
        let writer = Writer {
            log,
            superblocks,
            payload,
            pinned: Vec::new(),
            freed_segments: 0,
            pending: Vec::new(),
        };
        let opened = Opened::default();
        let turn = Turn::Idle(Box::new(writer));
        let cache_bytes = options.map_cache_bytes;
        let file = StoreFile::new(file, log_id, cache_bytes);
        Ok(Blocks::new(
            file, options, payload, opened, shared, turn, true,
        ))
    }

    /// Opens a store for reading and writing. Nothing is written before the first transaction.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store is open elsewhere. [`Error::Unsupported`] for another kind or version of store.
    /// [`Error::Corrupt`] if it cannot be read back. Those of reading.
    pub fn open(storage: &dyn Storage, name: &str, options: BlocksOptions) -> Result<Blocks> {
        Blocks::open_file(storage.open(name, OpenOptions::default())?, options, true)
    }

    /// Opens a store for reading alone; nothing is ever written.
    ///
    /// # Errors
    /// As [`Blocks::open`].
    pub fn open_read_only(
        storage: &dyn Storage,
        name: &str,
        options: BlocksOptions,
    ) -> Result<Blocks> {
        Blocks::open_file(
            storage.open(name, OpenOptions::read_only())?,
            options,
            false,
        )
    }

    /// Opens a store by a handle of its file, to be read alone unless `is_writable`.
    ///
    /// # Errors
    /// As [`Blocks::open`].
    pub(crate) fn open_file(
        file: Arc<dyn StorageFile>,
        options: BlocksOptions,
        is_writable: bool,
    ) -> Result<Blocks> {
        lock(
            &*file,
            if is_writable {
                LockKind::Exclusive
            } else {
                LockKind::Shared
            },
            &options,
        )?;
        let superblocks = Superblocks::open(Arc::clone(&file), KIND)?;
        let superblock = superblocks.current();
        let cache_bytes = options.map_cache_bytes;
        let told = options.is_guarded.then(|| Arc::clone(&file));
        let file = StoreFile::new(file, superblock.log_id, cache_bytes);
        let unpublished = options.unpublished();
        let (superblocks, payload, recovery) = recover_newest(&file, superblocks, unpublished)?;
        let shared = Arc::new(Shared::new(recovery.state.clone(), told));
        let opened = Opened {
            replayed_commits: recovery.commits,
            is_torn: recovery.is_torn,
            lacks_superblock: superblocks.is_only_one(),
            is_short: recovery.is_short,
            may_lack: superblocks.is_only_one() && superblocks.current().flags & FLAG_END == 0,
        };
        let turn = Turn::Untouched(Box::new(recovery), Box::new(superblocks));
        Ok(Blocks::new(
            file,
            options,
            payload,
            opened,
            shared,
            turn,
            is_writable,
        ))
    }

    fn new(
        file: StoreFile,
        options: BlocksOptions,
        payload: Payload,
        opened: Opened,
        shared: Arc<Shared>,
        turn: Turn,
        is_writable: bool,
    ) -> Blocks {
        let number = u64::from_le_bytes(*file.log_id.first_chunk().expect("eight bytes"));
        let options = BlocksOptions {
            block_bytes_max: payload.block_bytes_max,
            segment_bytes_min: payload.segment_bytes_min,
            ..options
        };
        // A segment that the file grows by has room for one.
        let file_bytes = shared.state().segments.end(SEGMENTS_START);
        let least_bytes = payload.segment_bytes_min.into();
        let record_bytes = goal::segment_bytes(file_bytes, least_bytes);
        let inner = Inner {
            file,
            options,
            number,
            coding: Box::new(Coding::new(&options, record_bytes)),
            opened,
            is_writable,
            shared,
            turn: Mutex::new(turn),
            turn_over: Condvar::new(),
            has_resumed: AtomicBool::new(false),
        };
        Blocks {
            inner: Arc::new(inner),
        }
    }

    /// Returns the findings from the opening of the store.
    pub fn opened(&self) -> Opened {
        self.inner.opened
    }

    /// Returns the identity of the store's file among all others.
    ///
    /// # Errors
    /// Those of asking for it.
    pub fn identity(&self) -> Result<FileIdentity> {
        Ok(self.inner.file.file.status()?.identity)
    }

    /// Returns the newest state that this process knows, for reading. Where others may write, it is for callers that
    /// keep them from it. All others call [`Blocks::newest`].
    ///
    /// # Panics
    /// If others may write and the system refuses a lock; [`Blocks::try_snapshot`] returns that as an error.
    pub fn snapshot(&self) -> Snapshot {
        self.try_snapshot().expect("a lock of a byte")
    }

    /// As [`Blocks::snapshot`].
    ///
    /// # Errors
    /// Those of locking, if others may write.
    pub fn try_snapshot(&self) -> Result<Snapshot> {
        Snapshot::new(Arc::clone(&self.inner))
    }

    /// Encodes a block for [`Transaction::write_encoded`] at this address, without waiting for the turn to write.
    ///
    /// # Errors
    /// Those of the codec.
    pub fn encode(&self, address: (u32, u64), block: &[u8]) -> Result<EncodedBlock> {
        self.encode_as(&self.choose(address, block)?, block)
    }

    /// Chooses the encoding of a block at this address, for [`Blocks::encode_as`].
    ///
    /// # Errors
    /// As [`Blocks::encode`].
    pub fn choose(&self, address: (u32, u64), block: &[u8]) -> Result<ChosenEncoding> {
        ChosenEncoding::new(&self.inner, block, address)
    }

    /// Encodes a block as was chosen for it. These are the two steps of [`Blocks::encode`], and other threads may do
    /// the longer one.
    ///
    /// # Errors
    /// As [`Blocks::encode`].
    pub fn encode_as(&self, chosen: &ChosenEncoding, block: &[u8]) -> Result<EncodedBlock> {
        EncodedBlock::new(&self.inner, block, chosen)
    }

    /// Begins a transaction, waiting for the one that runs. The first one after opening writes a checkpoint of the
    /// recovered state.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the store was opened for reading, [`Error::Poisoned`] after a failure, and
    /// those of the checkpoint.
    pub fn begin(&self) -> Result<Transaction> {
        self.begin_with(0)
    }

    /// As [`Blocks::begin`], of a transaction that will write about `bytes`. Where the host has no room for them, a
    /// checkpoint makes room in the file, if it frees any.
    ///
    /// # Errors
    /// As [`Blocks::begin`], and those of [`Blocks::checkpoint`].
    pub fn begin_with(&self, bytes: u64) -> Result<Transaction> {
        let mut transaction = self.begin_within()?;
        if let Some(wanted_bytes) = transaction.wanted_room(bytes) {
            drop(transaction);
            self.free_for_room(wanted_bytes)?;
            transaction = self.begin_within()?;
        }
        Ok(transaction)
    }

    /// As [`Blocks::begin_with`], of a transaction for which the host gives no room: the file has it, or a checkpoint
    /// frees it.
    ///
    /// # Errors
    /// As there, and [`Error::Limit`] if there is none.
    pub fn begin_inside(&self, bytes: u64) -> Result<Transaction> {
        let mut transaction = self.begin_within()?;
        let mut found_bytes = transaction.room_inside();
        if found_bytes < bytes && !transaction.is_futile() {
            drop(transaction);
            self.free_for_room(bytes)?;
            transaction = self.begin_within()?;
            found_bytes = transaction.room_inside();
        }
        match found_bytes >= bytes {
            true => Ok(transaction),
            false => Err(Error::Limit {
                what: "room of the host",
                limit_bytes: found_bytes,
                needed_bytes: bytes,
            }),
        }
    }

    /// Begins a transaction, with the room that there is.
    fn begin_within(&self) -> Result<Transaction> {
        let writer = self.inner.take_turn(true)?.expect("waited for");
        Ok(Transaction::new(Arc::clone(&self.inner), writer))
    }

    /// Begins a transaction, or returns `None` if another one runs.
    ///
    /// # Errors
    /// As [`Blocks::begin`].
    pub fn try_begin(&self) -> Result<Option<Transaction>> {
        let writer = self.inner.take_turn(false)?;
        Ok(writer.map(|writer| Transaction::new(Arc::clone(&self.inner), writer)))
    }

    /// Makes every transaction so far durable.
    ///
    /// # Errors
    /// As [`Blocks::begin`], and those of the sync.
    pub fn sync(&self) -> Result<()> {
        let synced = self.with_writer(|inner, writer| {
            inner.watch(writer.log.sync_transactions())?;
            inner.free(writer)
        });
        match synced {
            // There is no room to become the writer again. This handle wrote all that is to be durable, and no sync of
            // it failed.
            Err(error) if is_for_room(&error) && self.inner.has_resumed.load(Relaxed) => {
                self.settle()
            }
            synced => synced,
        }
    }

    /// Frees segments with nothing live and gives them back, if the file is longer than it should be or the host is
    /// full. A [`Blocks::sync`] does so too.
    ///
    /// # Errors
    /// As [`Blocks::checkpoint`].
    pub fn free(&self) -> Result<()> {
        match self.has_written() {
            true => self.with_writer(Inner::free),
            false => Ok(()),
        }
    }

    /// Writes out the log so far, while others write on. So the next sync, which they wait for, finds little to do.
    /// Nobody relies on the durability of this.
    ///
    /// # Errors
    /// Those of the sync, after which the store refuses changes.
    pub fn settle(&self) -> Result<()> {
        self.inner.check()?;
        self.inner.watch(self.inner.file.file.sync())
    }

    /// Writes the changes since the last checkpoint, so that opening reads no log. Frees the segments that nothing
    /// needs any more.
    ///
    /// # Errors
    /// As [`Blocks::begin`], and those of writing.
    pub fn checkpoint(&self) -> Result<()> {
        self.with_writer(|inner, writer| inner.checkpoint(writer))
    }

    /// Makes everything durable, and then does as [`Blocks::tell_end`]. It writes a checkpoint if this handle wrote
    /// anything behind the last one, so that opening the store reads no log. Where there is no room for one it syncs
    /// the log. Dropping a store without it loses nothing and writes nothing: the holder of locks around the store may
    /// have given them up by then.
    ///
    /// # Errors
    /// As [`Blocks::checkpoint`].
    pub fn close(&self) -> Result<()> {
        if !self.has_written() && self.inner.has_resumed.load(Relaxed) {
            self.sync()?;
        }
        self.end_with(|inner, writer| {
            // A checkpoint that found no room counts as an attempt.
            if writer.log.is_durable() && writer.log.appended_bytes == 0 {
                return Ok(());
            }
            match inner.checkpoint(writer) {
                Err(_) if writer.log.lacks_room => inner.watch(writer.log.sync_transactions()),
                written => written,
            }
        })?;
        // Later calls find it as all other handles do.
        let mut turn = self.inner.lock_turn();
        match *turn {
            Turn::Behind => self.inner.catch_up(&mut turn, |inner, _| inner.recovered()),
            _ => Ok(()),
        }
    }

    /// Returns whether this handle wrote since it was opened, and no other did since, as far as it knows.
    pub fn has_written(&self) -> bool {
        matches!(*self.inner.lock_turn(), Turn::Idle(_) | Turn::Taken)
    }

    /// Records where the durable part of the log ends, if this handle wrote any of it. So the next opening can see
    /// whether all of it is there. A handle that writes on begins as if it had been opened then.
    ///
    /// # Errors
    /// As [`Blocks::begin`].
    ///
    /// # Cost
    /// One small write, and no sync.
    pub fn tell_end(&self) -> Result<()> {
        self.end_with(|_, _| Ok(()))
    }

    /// Does the last work of this handle, and records where the log ends.
    fn end_with(&self, work: impl FnOnce(&Inner, &mut Writer) -> Result<()>) -> Result<()> {
        let inner = &self.inner;
        if !self.has_written() {
            return Ok(());
        }
        let mut writer = inner.take_turn(true)?.expect("waited for");
        if let Err(error) = work(inner, &mut writer) {
            inner.give_turn(writer);
            return Err(error);
        }
        let told = inner.watch(writer.tell_end());
        *inner.lock_turn() = Turn::Behind;
        inner.turn_over.notify_one();
        told
    }

    fn with_writer(&self, work: impl FnOnce(&Inner, &mut Writer) -> Result<()>) -> Result<()> {
        let mut writer = self.inner.take_turn(true)?.expect("waited for");
        let result = work(&self.inner, &mut writer);
        self.inner.give_turn(writer);
        result
    }
}

impl Inner {
    fn lock_turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<()> {
        self.shared
            .check(|| quoted(&self.file.file.path()).to_string())
    }

    /// Passes a result on, after which the store refuses changes if it is a failure.
    fn watch<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            // A handle without room reads its writes back, and goes on (`Inner::give_turn`).
            let is_refused = is_for_room(error) || matches!(error, Error::Poisoned { .. });
            if !(is_refused && self.file.file.lacks_room()) {
                self.shared.fail(error);
            }
        }
        result
    }

    /// Takes the right to write.
    fn take_turn(self: &Arc<Inner>, waits: bool) -> Result<Option<Box<Writer>>> {
        if !self.is_writable {
            let reason = format!(
                "{} was opened for reading only",
                quoted(&self.file.file.path())
            );
            return Err(Error::invalid("block store", reason));
        }
        let mut turn = self.lock_turn();
        while matches!(*turn, Turn::Taken) {
            if !waits {
                return Ok(None);
            }
            turn = self
                .turn_over
                .wait(turn)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let is_ready = self.check().and_then(|()| match *turn {
            Turn::Behind => self.catch_up(&mut turn, |inner, _| inner.recovered()),
            _ => Ok(()),
        });
        if is_ready.is_err() {
            // The return of a turn woke one waiter alone, and this one takes no turn that it could pass on.
            self.turn_over.notify_all();
        }
        is_ready?;
        match std::mem::replace(&mut *turn, Turn::Taken) {
            Turn::Idle(writer) => Ok(Some(writer)),
            Turn::Untouched(recovery, superblocks) => {
                drop(turn);
                let payload = decode_payload(&superblocks.current().payload);
                let taken = payload.and_then(|payload| self.take_over(*recovery, payload));
                if let Err(error) = &taken {
                    // Nothing leads to the written records. Once there is room, the present ones can be read and taken.
                    *self.lock_turn() = match is_for_room(error) {
                        true => Turn::Behind,
                        false => {
                            self.shared.fail(error);
                            Turn::Refused
                        }
                    };
                    self.turn_over.notify_all();
                }
                taken.map(|writer| Some(Box::new(writer)))
            }
            Turn::Refused | Turn::Behind | Turn::Taken => {
                *turn = Turn::Refused;
                panic!("a store that failed refuses before");
            }
        }
    }

    /// Gives the right to write back.
    fn give_turn(&self, writer: Box<Writer>) {
        let next = match self.file.file.lacks_room() {
            true => {
                drop(writer);
                self.resumed()
            }
            false => Turn::Idle(writer),
        };
        *self.lock_turn() = next;
        self.turn_over.notify_one();
    }

    /// Reads the store back behind a write that found no room, which may have left half of a transaction in the log.
    /// The next writer begins as behind a crash. Without a failed sync, all committed transactions can be read back.
    fn resumed(&self) -> Turn {
        let known = self.shared.state().commit;
        let recovered = self.recovered_with(|recovery| {
            // A whole commit that was refused, and could not be taken back.
            let is_known = recovery.state.commit == known && recovery.awaited().is_none();
            match is_known {
                true => Ok(()),
                false => Err(Error::invalid("block store", REFUSED_COMMIT)),
            }
        });
        match recovered {
            Ok(turn) => {
                self.has_resumed.store(true, Relaxed);
                turn
            }
            Err(error) => {
                self.shared.fail(&error);
                Turn::Refused
            }
        }
    }

    /// Becomes the writer of a store that was read back. The log that was read is written again, and a checkpoint
    /// behind it in a segment of a new generation.
    fn take_over(&self, mut recovery: Recovery, payload: Payload) -> Result<Writer> {
        // If something durable stands behind it, the commit at the end was published.
        if recovery.coordinator().is_some() && !recovery.is_cut {
            return Err(Error::invalid("block store", UNDECIDED));
        }
        recovery.take_awaited(&self.file)?;
        let file = Arc::clone(&self.file.file);
        let mut superblocks = Superblocks::open(Arc::clone(&file), KIND)?;
        match recovery.commits {
            0 => superblocks.rewrite()?,
            // The writer of a transaction behind it had synced a superblock that leads there, or would have refused.
            // The checkpoint syncs this one.
            _ => superblocks.refresh()?,
        }
        recovery.write_again(&self.file)?;
        // The log that was read ends before it, and on a full host there may be little else.
        let (next, _) = recovery.position.successor;
        if let Some(index) = recovery.state.segments.find(next)
            && recovery.live[index] == 0
        {
            recovery.uses[index] = Use::Free { since: 0 };
        }
        let mut random = random(&self.options, superblocks.current().sequence);
        // A process that died may have used numbers that nobody can see any more. The same one of 2^40 numbers is not
        // drawn twice.
        let generation = recovery.generation + 1 + random.u64(..1 << 40);
        let start = Start {
            segments: recovery.state.segments.clone(),
            live: recovery.live,
            uses: recovery.uses,
            generation,
            sequence: recovery.sequence,
        };
        let longest = recovery.state.volumes.values().map(|it| it.block_bytes);
        let payload = payload.with_blocks_of(longest.max().unwrap_or(0));
        let geometry = geometry(&self.options, payload.segment_bytes_min);
        let shared = Arc::clone(&self.shared);
        let log = Log::start(file, self.file.log_id, geometry, shared, start)?;
        let mut writer = Writer {
            log,
            superblocks,
            payload,
            pinned: Vec::new(),
            freed_segments: 0,
            pending: Vec::new(),
        };
        let state = State {
            segments: writer.log.segments.clone(),
            ..recovery.state
        };
        let state = writer.checkpoint(&self.file, &state, &Measure::of(&self.options))?;
        // Otherwise processes that alternate as writers, each with a little, would never clean.
        writer.log.given_up_bytes = payload.log.segment.bytes;
        self.coding.restock(&state.dictionaries);
        self.shared.publish(state);
        Ok(writer)
    }

    /// Writes a checkpoint if that frees enough. Without room for one everything is as it was.
    fn free(&self, writer: &mut Writer) -> Result<()> {
        if !writer.is_freeing_due(&Measure::of(&self.options)) {
            return Ok(());
        }
        match self.checkpoint(writer) {
            Err(error) if is_for_room(&error) => Ok(()),
            freed => freed,
        }
    }

    /// Writes a checkpoint. If it fails before the superblock, the log may go on all the same.
    fn checkpoint(&self, writer: &mut Writer) -> Result<()> {
        self.checkpoint_for(writer, &Measure::of(&self.options))
    }

    /// As [`Inner::checkpoint`], with another measure for the file's length.
    fn checkpoint_for(&self, writer: &mut Writer, measure: &Measure) -> Result<()> {
        let state = self.shared.state();
        writer.log.lacks_room = false;
        match writer.checkpoint(&self.file, &state, measure) {
            // The log goes on, and a checkpoint is due when as many bytes have been written again.
            Err(error) if writer.log.lacks_room => {
                writer.log.rewind();
                writer.log.appended_bytes = 0;
                Err(error)
            }
            state => {
                self.shared.publish(self.watch(state)?);
                let state = self.shared.state();
                self.watch(writer.give_back(&state, measure))
            }
        }
    }
}

/// Keeps others from the store for as long as the handle lives: one that writes from all, readers from
/// writers.
/// Says durably in a file that has nothing in it that a store is being made there.
///
/// # Errors
/// Those of writing and syncing.
pub(crate) fn begin(file: &dyn StorageFile) -> Result<()> {
    superblock::begin(file)
}

/// Returns whether all bytes of a file may be a crash's remains of [`begin`], or no bytes at all.
pub(crate) fn is_hardly_begun(bytes: &[u8]) -> bool {
    superblock::is_hardly_begun(bytes)
}

/// Returns whether a file's first bytes, and those of its second slot, are those of a store whose creation ended before
/// it was there.
pub(crate) fn is_begun(first: &[u8], second: &[u8; SLOT_BYTES]) -> bool {
    superblock::is_begun(first, second, &KIND)
}

fn lock(file: &dyn StorageFile, kind: LockKind, options: &BlocksOptions) -> Result<()> {
    if !options.is_guarded && !file.try_lock(LOCK_BYTE..LOCK_BYTE + 1, kind)? {
        let reason = format!("{} is open elsewhere", quoted(&file.path()));
        return Err(Error::invalid("block store", reason));
    }
    Ok(())
}

/// Returns whether something was refused for want of room, below a limit or in the file system.
fn is_for_room(error: &Error) -> bool {
    matches!(error, Error::Limit { .. }) || error.is_out_of_space()
}

fn geometry(options: &BlocksOptions, segment_bytes_min: u32) -> Geometry {
    Geometry {
        segment_bytes_min: segment_bytes_min.into(),
        file_bytes_max: options.file_bytes_max,
        reserve: options.reserve,
    }
}

fn random(options: &BlocksOptions, salt: u64) -> fastrand::Rng {
    match options.seed {
        Some(seed) => fastrand::Rng::with_seed(seed.wrapping_add(salt)),
        None => fastrand::Rng::new(),
    }
}

fn decode_payload(payload: &[u8]) -> Result<Payload> {
    Payload::decode(payload).ok_or_else(|| {
        let found = format!("{} other bytes", payload.len());
        Error::corrupt("superblock", 0, "the payload of a block store", found)
    })
}
