//! The I/O seam: every file operation of every store goes through these two traits.
//!
//! [`Storage`] is a folder of named files; [`StorageFile`] is one open file. There are three implementations:
//! [`RealStorage`], [`MemoryStorage`], and the [`SimulatedDisk`] that tears, loses and misdirects writes from a seed.
//! Stores take an `Arc<dyn Storage>`, so that the code proved on the simulated disk is the code that runs on the real
//! one. A system call costs a microsecond, a virtual call a nanosecond: dynamic dispatch is free here.
//!
//! Two modules stand beside the seam. [`beside`] is for single files that belong to no store and appear whole.
//! [`images`] knows the first bytes of files that are disks.
//!
//! # What the seam promises
//!
//! The guarantees are those of POSIX and no more. A write is durable only after [`StorageFile::sync`], a name only
//! after [`Storage::sync_directory`]. Short transfers and interrupted calls are finished inside. Errors name the
//! operation and the path.
//!
//! **The failure latch.** After a failed write, sync, truncate or punch, the handle refuses all changes with
//! [`Error::Poisoned`] until the file is opened again. A failed directory sync does the same for the whole folder.
//! Reading stays allowed. A failed sync is never retried. Linux marks the pages clean all the same, so a second sync
//! would report success for lost data. Two refusals change nothing and do not latch. One is a punch or an allocation
//! that the file system does not know ([`Error::Unsupported`]); the other is an allocation without room.
//!
//! # Locks
//!
//! A byte-range lock belongs to an open file description, and a [`StorageFile`] is exactly one. The owner is the
//! handle, and the lock goes with it or with its process. A child made by `fork` shares the description, so the lock
//! stays until both have closed it. [`forked`] is for programs whose children live on. On the simulated disk one
//! process of several dies with its locks. A refused or failed lock changes nothing and does not latch.
//!
//! # Room for what a place will need
//!
//! * **Shared maps** (SQLite's shared memory) would become a method of `StorageFile` that returns a guard. Nothing here
//!   hands out addresses of a file's bytes, so none can dangle.
//! * **io_uring.** [`StorageFile::submit`] takes a [`Batch`] that owns its buffers, and [`Submission::complete`] gives
//!   them back. Today the batch has run when `submit` returns. Its contract already allows a ring to reorder: only a
//!   sync orders the operations before it against those after it.

#![deny(unsafe_code)]

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::quoted::quoted;

mod batch;
pub mod beside;
mod buffer;
pub mod closing;
pub mod descriptor;
#[cfg(test)]
mod differential_test;
#[cfg(feature = "vault")]
pub mod extents;
pub mod forked;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzz;
mod handle;
pub mod images;
mod locks;
mod memory;
mod namespace;
mod networked;
#[cfg(any(feature = "disk", feature = "pages"))]
pub(crate) mod new_file;
#[cfg(any(test, feature = "proof"))]
pub mod proof;
mod real;
pub mod record;
pub(crate) mod seeded;
pub mod simulated;
mod sparse;
pub mod superblock;
#[cfg(all(test, any(feature = "pages", feature = "disk")))]
pub(crate) mod testing;
mod transfer;
pub(crate) mod unfinished;

pub use batch::{Batch, Completion, Operation, Outcome, Submission};
pub use buffer::{AlignedBuffer, is_zero};
pub use locks::{HeldLock, LockKind};
pub use memory::MemoryStorage;
pub use networked::FileSystem;
pub use real::{RealStorage, followed};
pub use simulated::SimulatedDisk;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Allow writing; otherwise every changing operation fails.
    pub write: bool,
    /// Create the file if it is missing. Needs `write`.
    pub create: bool,
    /// Fail if the file exists. Needs `create`.
    pub exclusive: bool,
    /// Bypass the page cache (O_DIRECT). Offsets, lengths and buffers must then be multiples of
    /// [`StorageFile::alignment_bytes`]; see [`AlignedBuffer`].
    pub direct: bool,
    /// The permission bits of a created file; the process's umask takes some away. Default 0o600: readable and writable
    /// by its owner alone.
    pub mode: u32,
}

impl Default for OpenOptions {
    /// Reading and writing an existing file through the page cache.
    fn default() -> OpenOptions {
        OpenOptions {
            write: true,
            create: false,
            exclusive: false,
            direct: false,
            mode: 0o600,
        }
    }
}

impl OpenOptions {
    /// Returns the options that make a new file for writing and fail if it exists.
    pub fn create_new() -> OpenOptions {
        OpenOptions {
            create: true,
            exclusive: true,
            ..OpenOptions::default()
        }
    }

    /// Returns the options that open an existing file for reading alone.
    pub fn read_only() -> OpenOptions {
        OpenOptions {
            write: false,
            ..OpenOptions::default()
        }
    }

    fn check(self) -> Result<()> {
        if (self.create && !self.write) || (self.exclusive && !self.create) {
            let reason = "create needs write, and exclusive needs create";
            return Err(Error::invalid("open options", reason));
        }
        if self.mode > 0o777 {
            let reason = format!("mode {:o} is more than permissions", self.mode);
            return Err(Error::invalid("open options", reason));
        }
        Ok(())
    }
}

/// The facts about a file that need no reading of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Length in bytes, holes included.
    pub size_bytes: u64,
    /// Bytes really allocated on the medium, holes excluded.
    pub allocated_bytes: u64,
    /// The permission bits.
    pub mode: u32,
    /// The identity of the file, under any name.
    pub identity: FileIdentity,
}

/// Distinguishes files under any names. It is valid while a handle of the file is open: later the same numbers may be
/// another file's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// The device, 0 for files in memory.
    pub device: u64,
    /// The file's number there.
    pub inode: u64,
}

/// One name in a folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// The name within its folder, without a separator.
    pub name: String,
    /// The kind of thing under the name.
    pub kind: EntryKind,
}

/// The kind of thing under a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// Anything else (a link, a socket, a device): never made here, never opened here.
    Other,
}

/// A folder of named files.
///
/// Names are relative paths with `/` as separator: no empty part, no `.` or `..`, no NUL, at most 255 bytes a part. Any
/// other name is [`Error::Invalid`]. Links are not followed below the root.
pub trait Storage: Send + Sync {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if direct I/O was asked for and the file system does not offer it,
    /// or if the name is no regular file.
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>>;

    /// Renames a file, replacing the file `to` atomically if it exists. The change is durable when
    /// the folders of both names have been synced.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Renames a file to a name that must be free. If several processes make the same file, one wins, and the others
    /// are refused (EEXIST). Durable as [`Storage::rename`] is.
    ///
    /// Where the file system has no such rename, the file is linked and then unlinked. A crash between the two, or a
    /// failure of the second, leaves both names.
    fn publish(&self, from: &str, to: &str) -> Result<()>;

    /// Removes the name of a file; open handles stay usable.
    fn unlink(&self, name: &str) -> Result<()>;

    /// Lists the entries directly in `folder` (`""` is the root), sorted by name. Names that are not UTF-8 cannot be
    /// ours and are left out.
    fn list(&self, folder: &str) -> Result<Vec<Entry>>;

    /// Creates a folder in an existing one, for its owner, and for the group with the rights of the existing one. A
    /// folder that exists is no error.
    fn create_folder(&self, folder: &str) -> Result<()>;

    /// Removes an empty folder. The change is durable when the folder around it has been synced.
    fn remove_folder(&self, folder: &str) -> Result<()>;

    /// Makes the names in `folder` durable: creations, renames and unlinks before this call.
    fn sync_directory(&self, folder: &str) -> Result<()>;

    /// Returns whether, as far as is known, a lock keeps out every process that may use these files.
    fn has_locks(&self) -> bool {
        true
    }
}

/// One open file with positioned I/O. All methods may be called from several threads.
pub trait StorageFile: Send + Sync {
    /// Returns the path to show in messages.
    fn path(&self) -> &Path;

    /// Reads at `offset` until the buffers are full or the file ends; returns the bytes read.
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize>;

    /// Writes all of `buffers` at `offset`, extending the file if needed.
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()>;

    /// Makes the data and the size durable (fdatasync). Syncs of one handle take turns, so that
    /// one that failed cannot be overtaken by one that reports success.
    fn sync(&self) -> Result<()>;

    /// Writes `bytes` at `offset` and syncs, also after a failure. It takes a failed write back, so that the next
    /// reader finds these bytes in place of others. It has no bearing on earlier writes, and the handle stays refused.
    ///
    /// # Errors
    /// Errors of writing and syncing, after which either bytes may be found.
    fn write_after_failure(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.write_at(&[IoSlice::new(bytes)], offset)?;
        self.sync()
    }

    /// Returns whether changes are refused only because one of them found no room.
    fn lacks_room(&self) -> bool {
        false
    }

    /// Takes changes again where [`StorageFile::lacks_room`]. A part of the written bytes may be there: the caller must
    /// read them back first, as after a crash.
    fn resume(&self) {}

    /// Cuts or extends the file to `size_bytes`; new bytes read as zeros.
    fn truncate(&self, size_bytes: u64) -> Result<()>;

    /// Reserves blocks for the range without changing its bytes as read. Extends the file if the range passes its end.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the file system cannot.
    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()>;

    /// Gives the blocks of the range back; it then reads as zeros and the size is unchanged.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the file system cannot: the range is then unchanged.
    fn punch(&self, offset: u64, length_bytes: u64) -> Result<()>;

    /// Locks a range for this handle, over its own locks there, unless another handle's lock is in the way. Returns at
    /// once whether it succeeded. The bytes need not exist.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty range, one that ends past 2^63 - 1, or an exclusive lock by a handle that only
    /// reads. [`Error::Io`] where the system has no room for the lock.
    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> Result<bool>;

    /// Gives up this handle's locks in a range; a range without its locks is no error.
    fn unlock(&self, range: Range<u64>) -> Result<()>;

    /// Returns a lock of another handle that keeps this one from the range now, if there is one. It is the lowest of
    /// the handle that has held locks longest, which need not be the lowest of all.
    fn first_conflict(&self, range: Range<u64>, kind: LockKind) -> Result<Option<HeldLock>>;

    /// Returns size, allocation, mode and identity.
    fn status(&self) -> Result<FileStatus>;

    /// Returns the alignment that this handle's offsets, lengths and buffers need: 1 unless it was
    /// opened for direct I/O.
    fn alignment_bytes(&self) -> usize;

    /// Submits a batch of operations; see [`Batch`] for the order they run in.
    fn submit(&self, batch: Batch) -> Submission {
        batch.run_in_order(self)
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the file ends before the buffer is full.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        let wanted = buffer.len();
        let read = self.read_at(&mut [IoSliceMut::new(buffer)], offset)?;
        if read < wanted {
            let found = format!("{read} before the end of {}", quoted(&self.path()));
            return Err(Error::corrupt(
                "file",
                offset,
                format_args!("{wanted} bytes"),
                found,
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
fn test_seed() -> u64 {
    crate::testing::seed(20_140_907)
}
