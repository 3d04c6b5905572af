//! A disk for programs that know nothing of it: bytes at offsets, over the compressed blocks of `blocks`.
//!
//! A disk is one store with volumes that have names; each volume looks like a block device. Reads and writes need not
//! be aligned. Blocks of zeros are holes. Duplicates of stored blocks are not stored again. A clone of a volume shares
//! all its blocks until one of the two changes.
//!
//! It keeps the promises of a device with a volatile cache. Every read that begins after a write returned sees that
//! write. After a crash everything is there that was written before a [`Disk::flush`] began or with
//! [`Durability::Durable`]. Of the other writes, all up to some moment are there and none behind it, each whole or not
//! at all. It knows no network and keeps no clock, and its threads only help its callers. Writers call [`Disk::tidy`]
//! when nobody waits for it, and the file keeps to its live bytes.
//!
//! | file | what it is |
//! |---|---|
//! | `volume` | reading, writing and trimming bytes |
//! | `ahead` | what long writes do before their turn |
//! | `duplicates` | the index of blocks that are there already |
//! | `recall` | what is stored already, in that index |
//! | `names` | what volumes are called |
//! | `size` | how long they are, to the byte |
//! | `foretell` | what an import would come to |
//! | `tidy` | keeping the file to what is live |
//! | `rest` | making dense what rests |
//! | `small` | the disks of proofs; not in the library |

#![deny(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::blocks::{Blocks, BlocksOptions, Durability, Opened, Snapshot, Stats, Transaction};
use crate::error::{Error, Result};
use crate::storage::Storage;
use crate::storage::new_file::{Unfinished, check_free};

mod ahead;
mod duplicates;
#[cfg(test)]
mod equal_test;
mod foretell;
#[cfg(test)]
mod model_test;
mod names;
#[cfg(test)]
mod proof_test;
mod recall;
mod rest;
mod size;
#[cfg(any(test, feature = "proof"))]
pub mod small;
mod tidy;
mod volume;

pub use duplicates::DuplicateStats;
pub use foretell::{Foreseen, IMPORT_BYTES, predict};
pub use names::NAME_BYTES_MAX;
pub use recall::Recall;
pub use rest::Rest;
pub use volume::{ChangedExtent, Extent, Volume};

use ahead::Crew;
use duplicates::Duplicates;
use names::{KEY_DISK, MARK, Title};
use size::VolumeLength;
use tidy::Written;

/// Room for a write beside its bytes: segments that are laid out ahead, and nodes of the map.
const OVERHEAD_BYTES: u64 = 4 << 20;

/// Options to make and open a disk.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// The length of a block of new volumes. Longer ones compress better; a write of less than a block reads
    /// the whole block first. Default 4 KiB.
    pub block_bytes: u32,
    /// The memory of the index of blocks that are there already, 16 bytes for each; 0 stores every block. Default 16
    /// MiB, which cover most of the last 2 GiB written in blocks of 4 KiB, and long runs of the last 32.
    pub duplicates_bytes: usize,
    /// The number of threads that read a long request, or encode one that is lent ([`Volume::write_lent`]), the
    /// caller's among them. Default 1, which starts none.
    pub threads: usize,
    /// Options of the block store.
    pub blocks: BlocksOptions,
}

impl Default for DiskOptions {
    fn default() -> DiskOptions {
        DiskOptions {
            block_bytes: 4096,
            duplicates_bytes: 16 << 20,
            threads: 1,
            blocks: BlocksOptions {
                block_bytes_max: 4096,
                rest_seconds_per_gb: COMPACT_SECONDS_PER_GB,
                ..BlocksOptions::default()
            },
        }
    }
}

/// The worth of a GB where a disk is compacted or rests, in seconds of a core: ten times as much as where it is
/// written.
const COMPACT_SECONDS_PER_GB: f64 = 100.0;

impl DiskOptions {
    /// Returns the options to open a disk with for [`Disk::compact`].
    pub fn compacting() -> DiskOptions {
        DiskOptions {
            blocks: BlocksOptions {
                seconds_per_gb: COMPACT_SECONDS_PER_GB,
                // As short as it gets. The next writer makes room again.
                space_amp: 0.0,
                ..BlocksOptions::default()
            },
            ..DiskOptions::default()
        }
    }
}

/// The limit of the disk's own storage. Writes are refused before the host is full, and earlier writes can still be
/// made durable.
pub struct Room {
    /// Bytes left to others, and to flushes and trims.
    pub reserve_bytes: u64,
    /// Returns the host's free bytes.
    pub left_bytes: Box<dyn Fn() -> Result<u64> + Send + Sync>,
}

/// Facts about a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeStatus {
    /// The volume's number in the store.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Whether it is a snapshot, which nobody can write.
    pub is_read_only: bool,
    /// Its length in bytes, holes included.
    pub size_bytes: u64,
    /// The length of its blocks.
    pub block_bytes: u32,
}

impl VolumeStatus {
    /// Returns the number of bytes of the last block behind the end.
    fn unused_bytes(&self) -> u32 {
        let block_bytes = u64::from(self.block_bytes);
        (self.size_bytes.next_multiple_of(block_bytes) - self.size_bytes) as u32
    }
}

/// An open disk. Clones are the same disk.
#[derive(Clone)]
pub struct Disk {
    inner: Arc<Inner>,
}

struct Inner {
    blocks: Blocks,
    options: DiskOptions,
    room: OnceLock<Room>,
    written: Written,
    crew: Option<Crew>,
    /// Locked by whoever has a transaction, and never while waiting for one.
    duplicates: Mutex<Option<Duplicates>>,
}

impl Disk {
    /// Makes a new disk without volumes in a file that must not exist.
    ///
    /// # Errors
    /// [`Error::Invalid`] for options out of range, and those of creating and writing.
    pub fn create(storage: &dyn Storage, name: &str, options: DiskOptions) -> Result<Disk> {
        Disk::begin(Blocks::create(storage, name, options.blocks)?, options)
    }

    /// Makes a disk of the content that `fill` writes. The name appears when everything is written and durable. The
    /// next creation of a file there removes the rest of a killed process.
    ///
    /// # Errors
    /// [`Error::Io`] where a file of that name stands, and those of `fill` and of making the file.
    pub fn make<E: From<Error>>(
        storage: &dyn Storage,
        name: &str,
        options: DiskOptions,
        fill: impl FnOnce(&Disk) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        check_free(storage, name)?;
        let unfinished = Unfinished::begin(storage, name, options.blocks.mode)?;
        let made = Blocks::create_in(Arc::clone(unfinished.file()), options.blocks);
        let filled = made
            .and_then(|blocks| Disk::begin(blocks, options))
            .map_err(E::from)
            .inspect(Disk::compare_all)
            .and_then(|disk| fill(&disk).and_then(|()| Ok(disk.close()?)));
        match filled {
            Ok(()) => Ok(unfinished.publish(name)?),
            Err(error) => {
                unfinished.give_up();
                Err(error)
            }
        }
    }

    fn begin(blocks: Blocks, options: DiskOptions) -> Result<Disk> {
        let mut transaction = blocks.begin()?;
        transaction.note(KEY_DISK, MARK)?;
        transaction.commit(Durability::Durable)?;
        Disk::new(blocks, options)
    }

    /// Has every candidate compared, whether that pays or not.
    fn compare_all(&self) {
        if let Some(index) = &mut *self.inner.lock_duplicates() {
            index.be_thorough();
        }
    }

    /// Opens a disk for reading and writing.
    ///
    /// # Errors
    /// Those of [`Blocks::open`]; [`Error::Unsupported`] if the store is not a disk's.
    pub fn open(storage: &dyn Storage, name: &str, options: DiskOptions) -> Result<Disk> {
        Disk::check(Blocks::open(storage, name, options.blocks)?, name, options)
    }

    /// Opens a disk for reading alone; nothing is ever written.
    ///
    /// # Errors
    /// As [`Disk::open`].
    pub fn open_read_only(storage: &dyn Storage, name: &str, options: DiskOptions) -> Result<Disk> {
        let blocks = Blocks::open_read_only(storage, name, options.blocks)?;
        Disk::check(blocks, name, options)
    }

    fn check(blocks: Blocks, name: &str, options: DiskOptions) -> Result<Disk> {
        if blocks.snapshot().note(KEY_DISK).as_deref() != Some(MARK) {
            let what = format!("{name}: a store of blocks that is no disk");
            return Err(Error::Unsupported { what });
        }
        Disk::new(blocks, options)
    }

    fn new(blocks: Blocks, options: DiskOptions) -> Result<Disk> {
        let worth = options.blocks.seconds_per_gb.max(0.0) / 1e9;
        let duplicates = Duplicates::new(options.duplicates_bytes, worth);
        let inner = Inner {
            blocks,
            options,
            room: OnceLock::new(),
            written: Written::default(),
            crew: Crew::new(options.threads.saturating_sub(1))?,
            duplicates: Mutex::new(duplicates),
        };
        Ok(Disk {
            inner: Arc::new(inner),
        })
    }

    /// Lets writes be refused before the host is full.
    ///
    /// # Panics
    /// If it was called before.
    pub fn set_room(&self, room: Room) {
        assert!(self.inner.room.set(room).is_ok(), "the room was set before");
    }

    /// Returns the findings from the opening of the disk.
    pub fn opened(&self) -> Opened {
        self.inner.blocks.opened()
    }

    /// Returns the counts of the search for duplicates since the disk was opened.
    pub fn duplicate_stats(&self) -> DuplicateStats {
        let duplicates = self.inner.lock_duplicates();
        duplicates
            .as_ref()
            .map_or_else(Default::default, |index| index.stats)
    }

    /// Returns the statistics of the store below.
    pub fn stats(&self) -> Stats {
        self.inner.blocks.stats()
    }

    /// Returns all volumes in the order of their numbers.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if a volume's name cannot be read.
    pub fn volumes(&self) -> Result<Vec<VolumeStatus>> {
        let snapshot = self.inner.blocks.snapshot();
        let numbers: Vec<u32> = snapshot.volumes().collect();
        let statuses = numbers.into_iter().map(|number| status(&snapshot, number));
        statuses.collect()
    }

    /// Opens the volume of a name.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, and those of [`Disk::volumes`].
    pub fn volume(&self, name: &str) -> Result<Volume> {
        Ok(Volume::new(Arc::clone(&self.inner), self.status(name)?))
    }

    fn status(&self, name: &str) -> Result<VolumeStatus> {
        let snapshot = self.inner.blocks.snapshot();
        status(&snapshot, number_of(&snapshot, name)?)
    }

    /// Makes an empty volume of any number of bytes, all holes, and makes it durable.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is taken or the size is out of range, and those of writing.
    pub fn create_volume(&self, name: &str, size_bytes: u64) -> Result<()> {
        let block_bytes = self.inner.options.block_bytes;
        let length = VolumeLength::of(size_bytes, block_bytes)?;
        let mut title = Title::new(name, false)?;
        title.unused_bytes = length.unused_bytes;
        self.add_volume(title, |transaction, _| {
            let number = transaction.create_volume(block_bytes)?;
            transaction.resize(number, length.size_blocks)?;
            Ok(number)
        })
    }

    /// Makes a volume that shows the present content of the one called `from`, and makes it durable. Nobody can write
    /// one that is read-only.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no volume `from` or the name is taken, and those of writing.
    ///
    /// # Cost
    /// That of one commit, at any size. A block is copied when either volume changes it later.
    pub fn clone_volume(&self, from: &str, name: &str, is_read_only: bool) -> Result<()> {
        let title = Title::new(name, is_read_only)?;
        self.add_volume(title, |transaction, title| {
            let from = self.status(from)?;
            title.unused_bytes = from.unused_bytes();
            transaction.clone_volume(from.number)
        })
    }

    fn add_volume(
        &self,
        mut title: Title,
        make: impl FnOnce(&mut Transaction, &mut Title) -> Result<u32>,
    ) -> Result<()> {
        let mut transaction = self.inner.begin(0)?;
        if number_of(&self.inner.blocks.snapshot(), &title.name).is_ok() {
            let reason = format!("a volume is called '{}' already", title.name);
            return Err(Error::invalid("name of a volume", reason));
        }
        let number = make(&mut transaction, &mut title)?;
        transaction.note(number, &title.encode())?;
        transaction.commit(Durability::Durable)?;
        Ok(())
    }

    /// Removes a volume, and makes that durable. Handles of it fail from then on.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none of this name, and those of writing.
    ///
    /// # Cost
    /// A walk over the part of its map that no other volume shares.
    pub fn remove_volume(&self, name: &str) -> Result<()> {
        let number = self.status(name)?.number;
        let mut transaction = self.inner.blocks.begin()?;
        transaction.remove_volume(number)?;
        transaction.note(number, b"")?;
        transaction.commit(Durability::Durable)?;
        self.free()
    }

    /// Gives unneeded blocks back to the host, if that is worth a checkpoint. A flush and a removal do so too.
    ///
    /// # Errors
    /// Those of writing.
    pub fn free(&self) -> Result<()> {
        self.inner.blocks.free()
    }

    /// Makes room in the file for a refused write of so many bytes, by cleaning, as far as possible.
    ///
    /// # Errors
    /// Those of reading and writing.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        self.inner.blocks.make_room(bytes + bytes / 16)
    }

    /// Makes everything durable that was written before, to all volumes. Gives trimmed and overwritten blocks back to
    /// the host, if that is worth a checkpoint.
    ///
    /// # Errors
    /// Those of the sync, after which the disk refuses all changes until it is opened again.
    pub fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    /// Makes everything durable, and the next opening quick.
    ///
    /// # Errors
    /// Those of writing.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.blocks.checkpoint()
    }

    /// Makes everything durable, if anything was written since the disk was opened, and records where it ends. So the
    /// next opening can see whether all of it is there. Writes after that begin as behind an opening.
    ///
    /// # Errors
    /// Those of writing.
    pub fn close(&self) -> Result<()> {
        self.inner.blocks.close()
    }
}

impl Inner {
    fn lock_duplicates(&self) -> MutexGuard<'_, Option<Duplicates>> {
        self.duplicates
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn flush(&self) -> Result<()> {
        self.written.settle();
        self.blocks.sync()
    }

    /// Begins a transaction that writes `bytes`, if the file or the host has room for them.
    fn begin(&self, bytes: u64) -> Result<Transaction> {
        let needed_bytes = bytes + bytes / 16;
        match self.has_room(needed_bytes)? {
            true => self.blocks.begin_with(needed_bytes),
            // The host keeps its free bytes. The file may already have more from the host than it uses.
            false => self.blocks.begin_inside(needed_bytes),
        }
    }

    /// Returns whether the host has room for so many bytes, beside its reserve.
    fn has_room(&self, bytes: u64) -> Result<bool> {
        let is_left = |room: &Room| {
            let wanted_bytes = bytes + OVERHEAD_BYTES + room.reserve_bytes;
            (room.left_bytes)().map(|left_bytes| left_bytes >= wanted_bytes)
        };
        self.room.get().map_or(Ok(true), is_left)
    }
}

/// Finds a volume among thousands.
fn number_of(snapshot: &Snapshot, name: &str) -> Result<u32> {
    let found = snapshot.volumes().find(|number| {
        let note = snapshot.note(*number);
        note.is_some_and(|note| Title::is_of(&note, name))
    });
    found.ok_or_else(|| Error::invalid("volume", format!("no volume is called '{name}'")))
}

fn status(snapshot: &Snapshot, number: u32) -> Result<VolumeStatus> {
    let note = snapshot.note(number).unwrap_or_default();
    let block_bytes = snapshot.block_bytes(number)?;
    let title = Title::decode(number, block_bytes, &note)?;
    let blocks_bytes = snapshot.size_blocks(number)? * u64::from(block_bytes);
    let size_bytes = blocks_bytes.checked_sub(title.unused_bytes.into());
    let size_bytes = size_bytes.ok_or_else(|| {
        let found = format!("{} bytes less than none", title.unused_bytes);
        Error::corrupt("disk", number.into(), "the length of a volume", found)
    })?;
    Ok(VolumeStatus {
        number,
        name: title.name,
        is_read_only: title.is_read_only,
        size_bytes,
        block_bytes,
    })
}
