//! The I/O seam: every file operation of every store goes through these two traits.
//!
//! [`Storage`] is a folder of named files; [`StorageFile`] is one open file. There are three
//! implementations: real files, memory, and the simulated disk that tears, loses and misdirects
//! writes from a seed. Stores take an `Arc<dyn Storage>`, so that what is proved on the simulated
//! disk is what runs on the real one. A system call costs a microsecond, a virtual call a
//! nanosecond: dynamic dispatch is free here.
//!
//! The seam promises no more than POSIX does: a write is durable only after [`StorageFile::sync`],
//! a name only after [`Storage::sync_directory`]; after a failed sync nothing written before it may
//! be trusted, and nobody may retry it.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::error::Result;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    /// Allow writing; otherwise every changing operation fails.
    pub write: bool,
    /// Create the file if it is missing. Needs `write`.
    pub create: bool,
    /// Fail if the file exists. Needs `create`.
    pub exclusive: bool,
    /// Bypass the page cache (O_DIRECT): offsets, lengths and buffers must then be multiples of
    /// [`StorageFile::alignment_bytes`].
    pub direct: bool,
}

impl Default for OpenOptions {
    /// Reading and writing an existing file through the page cache.
    fn default() -> OpenOptions {
        OpenOptions {
            write: true,
            create: false,
            exclusive: false,
            direct: false,
        }
    }
}

/// What is known of a file without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStatus {
    /// Length in bytes, holes included.
    pub size_bytes: u64,
    /// Bytes really allocated on the medium, holes excluded.
    pub allocated_bytes: u64,
}

/// A folder of named files. Names are relative paths with `/` as separator, without `..`.
pub trait Storage: Send + Sync {
    /// Opens or creates a file.
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>>;

    /// Renames a file, replacing `to` atomically if it exists.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Removes a name; open files stay readable through their handles.
    fn unlink(&self, name: &str) -> Result<()>;

    /// Lists the names of the files directly in `folder` (`""` is the root), sorted.
    fn list(&self, folder: &str) -> Result<Vec<String>>;

    /// Creates a folder; an existing one is no error.
    fn create_folder(&self, folder: &str) -> Result<()>;

    /// Makes the names in `folder` durable: creations, renames and unlinks before this call.
    fn sync_directory(&self, folder: &str) -> Result<()>;
}

/// One open file with positioned I/O. All methods may be called from several threads.
pub trait StorageFile: Send + Sync {
    /// Reads at `offset` until the buffers are full or the file ends; returns the bytes read.
    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize>;

    /// Writes all of `buffers` at `offset`, extending the file if needed.
    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()>;

    /// Makes the data and the size durable (fdatasync).
    fn sync(&self) -> Result<()>;

    /// Cuts or extends the file to `size_bytes`; new bytes read as zeros.
    fn truncate(&self, size_bytes: u64) -> Result<()>;

    /// Reserves blocks for the range without changing what it reads as; extends the file if the
    /// range passes its end.
    fn allocate(&self, offset: u64, length: u64) -> Result<()>;

    /// Gives the blocks of the range back; it then reads as zeros and the size is unchanged.
    fn punch(&self, offset: u64, length: u64) -> Result<()>;

    /// Returns size and allocation.
    fn status(&self) -> Result<FileStatus>;

    /// Returns the alignment that direct I/O needs, 1 where there is none.
    fn alignment_bytes(&self) -> usize;
}
