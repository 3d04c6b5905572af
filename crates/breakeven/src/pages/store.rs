//! The compressed file of one process: made, recognised, opened once, and looked at again under a lock.

use std::io::{ErrorKind, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::database::{PLAIN_MAGIC, kind_of};
use super::locks::{LockLevel, Locks};
use super::super_journal::{PartJournal, Paths};
use crate::blocks::{
    self, Blocks, BlocksOptions, Location, Repaired, Reserve, Snapshot, Transaction,
};
use crate::cache::{Cache, CacheOptions, Policy};
use crate::codec::{Codec, Method};
use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::new_file::Unfinished;
use crate::storage::superblock::{MAGIC, SLOT_BYTES};
use crate::storage::unfinished::folder_of;
use crate::storage::{OpenOptions, RealStorage, Storage, StorageFile};

/// The longest block of a database.
const BLOCK_BYTES_MAX: u32 = 16 << 10;
/// The least segment of a new database: four pages of 4 KiB, SQLite's default. Three of them are the least file, of 56
/// KiB.
const SEGMENT_BYTES_MIN: u32 = 16 << 10;
/// An imported database of this length or more has longer segments: dictionaries fit into them.
const SHORT_BYTES_MAX: u64 = 2 << 20;
/// The key of the note with the database's place and length.
const NOTE: u32 = 1;
const NOTE_MAGIC: &[u8; 4] = b"PAGE";
const NOTE_VERSION: u32 = 1;
/// The longest database that SQLite has (sqlite.org/limits.html: 4,294,967,294 pages of 64 KiB).
const SIZE_BYTES_MAX: u64 = 1 << 48;
/// The usual length of pages, by which their cache is laid out.
const PAGE_BYTES: usize = 4096;

/// Options to make and open a compressed database.
#[derive(Clone, Copy, Debug)]
pub struct PageOptions {
    /// The method for new pages. Pages of others are readable with any value. Default: the chooser's method for each
    /// kind of page.
    pub method: Option<Method>,
    /// The method for pages that move on request, where that is shorter. Default: the chooser's.
    pub clean_method: Option<Method>,
    /// The worth of a GB of the file, in seconds of a core; see [`BlocksOptions::seconds_per_gb`]. Default 240: a
    /// GB-day of a cloud's block storage at 0.08 EUR a month pays for that much of a core at 0.04 EUR an hour.
    pub seconds_per_gb: f64,
    /// Whether the database is only read. Default: no.
    pub is_read_only: bool,
    /// The most file bytes per stored byte of its pages, under any overwriting; see [`BlocksOptions::space_amp`].
    /// Default 1.5.
    pub space_amp: f64,
    /// The permission bits of a new file, before the process's mask. Default 0o644, as SQLite makes its files.
    pub mode: u32,
    /// The longest block. Longer pages are stored in several blocks. Default 16 KiB.
    pub block_bytes_max: u32,
    /// Memory for raw pages, in bytes, which all connections to the file in a process share; 0 for none. Default 4 MiB,
    /// twice SQLite's own cache of a connection.
    pub cache_bytes: u64,
    /// The number of threads that encode the pages of a long transaction, the caller's among them. Default 1.
    pub threads: usize,
    /// The least segment, a multiple of 4,096, when the file is made; the first longer page makes longer ones. Default
    /// 0: 16 KiB, and for a database of 2 MiB that is imported 64 KiB.
    pub segment_bytes_min: u32,
    /// As [`BlocksOptions::checkpoint_bytes`]. Default 16 MiB.
    pub checkpoint_bytes: u64,
    /// Makes writes repeatable: for tests.
    pub seed: Option<u64>,
}

impl Default for PageOptions {
    fn default() -> PageOptions {
        PageOptions {
            method: None,
            clean_method: None,
            seconds_per_gb: 240.0,
            is_read_only: false,
            space_amp: 1.5,
            mode: 0o644,
            block_bytes_max: BLOCK_BYTES_MAX,
            cache_bytes: 4 << 20,
            threads: 1,
            segment_bytes_min: 0,
            checkpoint_bytes: BlocksOptions::default().checkpoint_bytes,
            seed: None,
        }
    }
}

/// The worth of a GB where a database is compacted, in seconds of a core: ten times as much as where it is written.
const COMPACT_SECONDS_PER_GB: f64 = 2400.0;

impl PageOptions {
    /// Checks that every program that reads databases can read these methods. The SQLite extension is built without the
    /// other codecs.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another method.
    pub fn check(&self) -> Result<()> {
        for method in [self.method, self.clean_method].into_iter().flatten() {
            method.check()?;
            let is_read = matches!(
                method.codec,
                Codec::Store | Codec::Lz4 { .. } | Codec::Lz4Hc { .. } | Codec::Zstd { .. }
            );
            if !is_read {
                let reason = format!(
                    "'{method}': the SQLite extension reads databases of store, lz4, lz4hc and zstd"
                );
                return Err(Error::invalid("codec of a database", reason));
            }
        }
        Ok(())
    }

    /// Returns the options to open a database with for [`Connection::rewrite`](super::Connection::rewrite).
    pub fn compacting() -> PageOptions {
        PageOptions {
            seconds_per_gb: COMPACT_SECONDS_PER_GB,
            // As short as it gets. The next writer makes room again.
            space_amp: 0.0,
            ..PageOptions::default()
        }
    }

    /// Returns the options of a store for an imported database of such a length.
    pub(super) fn importing(&self, page_bytes: u32, logical_bytes: u64) -> BlocksOptions {
        let is_long = logical_bytes >= SHORT_BYTES_MAX || page_bytes > SEGMENT_BYTES_MIN / 4;
        match self.segment_bytes_min {
            0 if is_long => BlocksOptions {
                block_bytes_max: self.block_bytes_max,
                segment_bytes_min: 0,
                ..self.blocks()
            },
            _ => self.blocks(),
        }
    }

    pub(super) fn blocks(&self) -> BlocksOptions {
        let segment_bytes_min = match self.segment_bytes_min {
            0 => SEGMENT_BYTES_MIN,
            bytes => bytes,
        };
        BlocksOptions {
            // The page length is not known yet. Longer pages make a store for longer blocks.
            block_bytes_max: self.block_bytes_max.min(segment_bytes_min / 4),
            segment_bytes_min,
            checkpoint_bytes: self.checkpoint_bytes,
            method: self.method,
            clean_method: self.clean_method,
            seconds_per_gb: self.seconds_per_gb,
            rest_seconds_per_gb: COMPACT_SECONDS_PER_GB,
            kind: kind_of,
            mode: self.mode,
            space_amp: self.space_amp,
            reserve: Reserve::Share,
            is_guarded: true,
            seed: self.seed,
            ..BlocksOptions::default()
        }
    }

    fn cache(&self) -> Result<Option<PageCache>> {
        let options = CacheOptions {
            budget_bytes: self.cache_bytes,
            block_bytes: PAGE_BYTES,
            // Pages outside it lie compressed in the file.
            policy: Policy::RawOnly,
            ..CacheOptions::default()
        };
        match self.cache_bytes {
            0 => Ok(None),
            _ => Cache::new(options).map(Some),
        }
    }
}

/// The kind of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// No bytes: a database that nobody wrote to. A file whose creation here ended early counts as empty too.
    Empty,
    /// A plain SQLite database.
    Plain,
    /// A store of this library.
    Compressed,
    /// Anything else.
    Other,
}

/// Bytes read to tell a file's kind: a plain database's first bytes, and one more to see whether others follow.
const HEAD_BYTES: usize = PLAIN_MAGIC.len() + 1;

/// Looks at the first bytes of a file.
///
/// # Errors
/// Those of reading.
pub fn file_kind(file: &dyn StorageFile) -> Result<FileKind> {
    file_kind_by(&mut |target, offset| file.read_at(&mut [IoSliceMut::new(target)], offset))
}

/// As [`file_kind`], by a function that reads into a buffer from an offset and returns the number of bytes there. Of a
/// plain database it reads the first bytes and nothing else.
///
/// # Errors
/// Those of reading.
pub fn file_kind_by(read: &mut dyn FnMut(&mut [u8], u64) -> Result<usize>) -> Result<FileKind> {
    let mut first = [0; HEAD_BYTES];
    let count = read(&mut first, 0)?;
    if first.starts_with(PLAIN_MAGIC) {
        return Ok(FileKind::Plain);
    }
    if blocks::is_hardly_begun(&first[..count]) {
        return Ok(FileKind::Empty);
    }
    let mut second = vec![0; SLOT_BYTES];
    read(&mut second, SLOT_BYTES as u64)?;
    let slot = second.first_chunk().expect("a slot's bytes");
    // A crash may have torn either of the two superblocks.
    Ok(match () {
        () if blocks::is_begun(&first, slot) => FileKind::Empty,
        () if first.starts_with(&MAGIC) || second.starts_with(&MAGIC) => FileKind::Compressed,
        () => FileKind::Other,
    })
}

/// Repairs a compressed database, which nobody may use meanwhile. A database that cannot be read gets a superblock that
/// leads to its newest readable state ([`blocks::repair`]). `progress` hears a few times how much was examined.
///
/// # Errors
/// [`Error::Invalid`] if somebody uses it, and those of [`blocks::repair`].
pub fn repair(
    storage: &dyn Storage,
    name: &str,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Repaired> {
    let file = storage.open(name, OpenOptions::default())?;
    let mut locks = Locks::new(Arc::clone(&file));
    for level in [LockLevel::Shared, LockLevel::Reserved, LockLevel::Exclusive] {
        if !locks.raise(level)? {
            let reason = format!("{} is in use", quoted(&file.path()));
            return Err(Error::invalid("database", reason));
        }
    }
    let repaired = blocks::repair(&file, progress);
    locks.lower(LockLevel::None)?;
    repaired
}

/// The database's place in the store, and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) volume: u32,
    /// 0 before the first write.
    pub(super) block_bytes: u32,
    pub(super) size_bytes: u64,
}

impl Extent {
    fn of(
        note: Option<Arc<[u8]>>,
        block_bytes: impl Fn(u32) -> Result<u32>,
        has_volumes: bool,
    ) -> Result<Extent> {
        let Some(note) = note else {
            let unsupported = || Error::Unsupported {
                what: "a block store that is no database".into(),
            };
            return (!has_volumes).then(Extent::default).ok_or_else(unsupported);
        };
        let word = |at: usize| u32::from_le_bytes(*note[at..].first_chunk().expect("four bytes"));
        if note.len() != 20 || note[..4] != NOTE_MAGIC[..] || word(4) != NOTE_VERSION {
            return Err(Error::Unsupported {
                what: format!("a database whose note is {note:02x?}"),
            });
        }
        let volume = word(8);
        Ok(Extent {
            volume,
            block_bytes: block_bytes(volume)?,
            size_bytes: u64::from_le_bytes(*note[12..].first_chunk().expect("eight bytes")),
        })
    }

    pub(super) fn in_snapshot(snapshot: &Snapshot) -> Result<Extent> {
        let has_volumes = snapshot.volumes().next().is_some();
        let block_bytes = |volume| snapshot.block_bytes(volume);
        let extent = Extent::of(snapshot.note(NOTE), block_bytes, has_volumes)?;
        // Every walk over a database trusts its length.
        let longest = match extent.block_bytes {
            0 => 0,
            bytes => snapshot.size_blocks(extent.volume)? * u64::from(bytes),
        };
        let longest = longest.min(SIZE_BYTES_MAX);
        if extent.size_bytes > longest {
            let (expected, found) = (format!("at most {longest}"), extent.size_bytes);
            return Err(Error::corrupt(
                "the length of the database",
                12,
                expected,
                found,
            ));
        }
        Ok(extent)
    }

    pub(super) fn note_in(&self, transaction: &mut Transaction) -> Result<()> {
        let mut note = Vec::with_capacity(20);
        note.extend_from_slice(NOTE_MAGIC);
        note.extend_from_slice(&NOTE_VERSION.to_le_bytes());
        note.extend_from_slice(&self.volume.to_le_bytes());
        note.extend_from_slice(&self.size_bytes.to_le_bytes());
        transaction.note(NOTE, &note)
    }
}

/// The space of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// The database's length as SQLite sees it.
    pub logical_bytes: u64,
    /// Bytes of its pages in the file, each with its record's header.
    pub stored_bytes: u64,
    /// The length of the file.
    pub file_bytes: u64,
    /// Bytes that the medium gives the file.
    pub allocated_bytes: u64,
    /// The number of stored blocks; the others are zeros.
    pub stored_blocks: u64,
    /// The length of a block.
    pub block_bytes: u32,
}

/// The compressed file of a database in this process, for all of its connections here.
pub struct PageStore {
    storage: Arc<dyn Storage>,
    name: String,
    options: PageOptions,
    /// The folders of files outside the database's own.
    paths: Arc<Paths>,
    /// The store's own handle, from the first connection on: the name may lead to another file when the first reads.
    file: OnceLock<Arc<dyn StorageFile>>,
    /// Opened by the first reader.
    opened: Mutex<Option<Opened>>,
    is_unsynced: AtomicBool,
}

/// Decoded pages by location. A location never changes its content: new writes go elsewhere.
pub(super) type PageCache = Cache<Location>;

/// The open file, from the first lock on.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) blocks: Blocks,
    /// `None` without a cache.
    pub(super) cache: Option<Arc<PageCache>>,
}

impl PageStore {
    /// Names a compressed file that exists. Nothing is read before a connection locks it.
    pub fn new(storage: Arc<dyn Storage>, name: &str, options: PageOptions) -> PageStore {
        PageStore {
            storage,
            name: name.into(),
            options,
            paths: Arc::new(|path| {
                let (storage, name) = RealStorage::of_file(path)?;
                Ok((Arc::new(storage), name))
            }),
            file: OnceLock::new(),
            opened: Mutex::new(None),
            is_unsynced: AtomicBool::new(false),
        }
    }

    /// Makes an empty compressed file under `name` and returns true, or returns false if a file is there that is not
    /// empty. An empty file is written in place. So others with a descriptor or another name of it have the database,
    /// and it keeps its owner, mode and all else.
    ///
    /// # Errors
    /// [`Error::Busy`] if somebody uses an empty file, and those of creating, writing and renaming.
    pub fn create(storage: &dyn Storage, name: &str, options: PageOptions) -> Result<bool> {
        options.check()?;
        match storage.open(name, OpenOptions::default()) {
            Ok(file) => return create_under_locks(storage, file, name, options),
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let unfinished = Unfinished::begin(storage, name, options.mode)?;
        if let Err(error) = Blocks::create_in(Arc::clone(unfinished.file()), options.blocks()) {
            let error = unfinished.error(error, name);
            unfinished.give_up();
            return Err(error);
        }
        match unfinished.publish(name) {
            Ok(()) => return Ok(true),
            // Somebody made it meanwhile.
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let file = storage.open(name, OpenOptions::default())?;
        create_under_locks(storage, file, name, options)
    }

    /// Makes a compressed database in the empty file under `name`, and returns it open; `None` if the file is not empty
    /// any more. The caller keeps all others out of the file. If the database cannot be made the file is empty again.
    ///
    /// The descriptor that wrote it is the store's until the store is dropped. Closing it earlier would give up the
    /// process's locks of the file on a descriptor of the caller's.
    ///
    /// # Errors
    /// Those of writing.
    pub fn create_in_place(
        storage: Arc<dyn Storage>,
        name: &str,
        options: PageOptions,
    ) -> Result<Option<PageStore>> {
        let file = storage.open(name, OpenOptions::default())?;
        let Some(blocks) = fill(&*storage, file, name, options)? else {
            return Ok(None);
        };
        let opened = Opened {
            blocks,
            cache: options.cache()?.map(Arc::new),
        };
        let store = PageStore::new(storage, name, options);
        *(store.opened.lock()).unwrap_or_else(PoisonError::into_inner) = Some(opened);
        Ok(Some(store))
    }

    /// Returns the options it was opened with.
    pub fn options(&self) -> &PageOptions {
        &self.options
    }

    /// Sets the folders of files outside the database's own.
    #[cfg(test)]
    pub(super) fn with_paths(self, paths: Arc<Paths>) -> PageStore {
        PageStore { paths, ..self }
    }

    /// Returns the journal beside the database for its part of a transaction over several.
    pub(super) fn part_journal(&self) -> PartJournal {
        PartJournal::new(&self.storage, &self.name, &self.paths)
    }

    /// Opens a handle of the file, for one connection.
    pub(super) fn open_handle(&self) -> Result<Arc<dyn StorageFile>> {
        let options = match self.options.is_read_only {
            true => OpenOptions::read_only(),
            false => OpenOptions::default(),
        };
        self.storage.open(&self.name, options)
    }

    /// Opens the store's own handle with the first connection, of the file that this one has.
    pub(super) fn keep_handle(&self, file: &dyn StorageFile) -> Result<()> {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_some() || self.file.get().is_some() {
            return Ok(());
        }
        let own = self.open_handle()?;
        if own.status()?.identity != file.status()?.identity {
            return Err(replaced(file));
        }
        self.file.get_or_init(|| own);
        Ok(())
    }

    /// Opens the store, unless it is open already.
    pub(super) fn opened(&self) -> Result<Opened> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = &*opened {
            return Ok(opened.clone());
        }
        self.options.check()?;
        let file = match self.file.get() {
            Some(file) => Arc::clone(file),
            None => self.open_handle()?,
        };
        let is_writable = !self.options.is_read_only;
        let new = Opened {
            blocks: Blocks::open_file(file, self.options.blocks(), is_writable)?,
            cache: self.options.cache()?.map(Arc::new),
        };
        Ok(opened.insert(new).clone())
    }

    pub(super) fn note_commit(&self) {
        self.is_unsynced.store(true, Ordering::Release);
    }

    /// Makes committed changes durable.
    pub(super) fn sync(&self, blocks: &Blocks) -> Result<()> {
        match self.is_unsynced.load(Ordering::Acquire) {
            true => self.sync_with(|| blocks.sync()),
            false => Ok(()),
        }
    }

    /// Makes committed changes durable by `sync`.
    pub(super) fn sync_with(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        self.is_unsynced.store(false, Ordering::Release);
        let synced = sync();
        if synced.is_err() {
            // A repeated request must not report success.
            self.is_unsynced.store(true, Ordering::Release);
        }
        synced
    }
}

/// Makes a store in an empty file, under SQLite's locks, which keep all others out.
fn create_under_locks(
    storage: &dyn Storage,
    file: Arc<dyn StorageFile>,
    name: &str,
    options: PageOptions,
) -> Result<bool> {
    // A look at an existing database waits for nobody.
    if file_kind(&*file)? != FileKind::Empty {
        return Ok(false);
    }
    let mut locks = Locks::new(Arc::clone(&file));
    if !locks.raise(LockLevel::Exclusive)? {
        return Err(Error::Busy {
            what: "the empty database",
        });
    }
    let made = fill(storage, file, name, options)?;
    locks.lower(LockLevel::None)?;
    Ok(made.is_some())
}

/// Makes a store in an empty file, unless it is not empty any more. The caller keeps others out.
fn fill(
    storage: &dyn Storage,
    file: Arc<dyn StorageFile>,
    name: &str,
    options: PageOptions,
) -> Result<Option<Blocks>> {
    if file_kind(&*file)? != FileKind::Empty {
        return Ok(None);
    }
    let made =
        blocks::begin(&*file).and_then(|()| Blocks::create_in(Arc::clone(&file), options.blocks()));
    let synced = made.and_then(|made| match storage.sync_directory(folder_of(name)) {
        // This process may neither read nor write the folder, so it did not make the name.
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::PermissionDenied => Ok(made),
        synced => synced.map(|()| made),
    });
    if synced.is_err() {
        // As it was. A failed handle changes nothing any more, and the failure itself matters more.
        let _ = empty(storage, &*file, name);
    }
    synced.map(Some)
}

/// Empties a file by a new handle, unless its name leads to another one by now.
fn empty(storage: &dyn Storage, file: &dyn StorageFile, name: &str) -> Result<()> {
    let named = storage.open(name, OpenOptions::default())?;
    match named.status()?.identity == file.status()?.identity {
        true => named.truncate(0),
        false => Err(replaced(file)),
    }
}

/// Makes the error for a name that leads to another file than the open one.
pub(super) fn replaced(file: &dyn StorageFile) -> Error {
    let reason = format!("{} is another file than it was", quoted(file.path()));
    Error::invalid("database", reason)
}
