//! Files that report every call to a test, so that it can count the calls, or act between them.

use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::{Entry, FileStatus, HeldLock, LockKind, OpenOptions, Storage, StorageFile};
use crate::error::Result;

/// A call that is about to happen.
pub(crate) enum Call<'a> {
    Read,
    /// A write, or a piece of one.
    Write {
        offset: u64,
        bytes: &'a [u8],
    },
    Sync,
    Truncate,
    Lock,
}

/// A listener that gets each call.
pub(crate) type Watch = Arc<dyn Fn(&Call<'_>) + Send + Sync>;

/// A folder whose files are watched.
pub(crate) struct WatchedStorage {
    inner: Arc<dyn Storage>,
    watch: Watch,
    /// The longest piece of a write; pieces follow one another.
    piece_bytes: usize,
}

impl WatchedStorage {
    pub(crate) fn new(
        inner: Arc<dyn Storage>,
        piece_bytes: usize,
        watch: Watch,
    ) -> Arc<WatchedStorage> {
        Arc::new(WatchedStorage {
            inner,
            watch,
            piece_bytes,
        })
    }
}

impl Storage for WatchedStorage {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>> {
        Ok(Arc::new(WatchedFile {
            inner: self.inner.open(name, options)?,
            watch: Arc::clone(&self.watch),
            piece_bytes: self.piece_bytes,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.inner.publish(from, to)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.inner.unlink(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        self.inner.list(folder)
    }

    fn create_folder(&self, folder: &str) -> Result<()> {
        self.inner.create_folder(folder)
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        self.inner.remove_folder(folder)
    }

    fn sync_directory(&self, folder: &str) -> Result<()> {
        self.inner.sync_directory(folder)
    }
}

struct WatchedFile {
    inner: Arc<dyn StorageFile>,
    watch: Watch,
    piece_bytes: usize,
}

impl StorageFile for WatchedFile {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        (self.watch)(&Call::Read);
        self.inner.read_at(buffers, offset)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let mut at = offset;
        for bytes in buffers
            .iter()
            .flat_map(|buffer| buffer.chunks(self.piece_bytes))
        {
            (self.watch)(&Call::Write { offset: at, bytes });
            self.inner.write_at(&[IoSlice::new(bytes)], at)?;
            at += bytes.len() as u64;
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        (self.watch)(&Call::Sync);
        self.inner.sync()
    }

    fn lacks_room(&self) -> bool {
        self.inner.lacks_room()
    }

    fn resume(&self) {
        self.inner.resume();
    }

    fn write_after_failure(&self, bytes: &[u8], offset: u64) -> Result<()> {
        (self.watch)(&Call::Write { offset, bytes });
        (self.watch)(&Call::Sync);
        self.inner.write_after_failure(bytes, offset)
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        (self.watch)(&Call::Truncate);
        self.inner.truncate(size_bytes)
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.inner.allocate(offset, length_bytes)
    }

    fn punch(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.inner.punch(offset, length_bytes)
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> Result<bool> {
        (self.watch)(&Call::Lock);
        self.inner.try_lock(range, kind)
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.inner.unlock(range)
    }

    fn first_conflict(&self, range: Range<u64>, kind: LockKind) -> Result<Option<HeldLock>> {
        self.inner.first_conflict(range, kind)
    }

    fn status(&self) -> Result<FileStatus> {
        self.inner.status()
    }

    fn alignment_bytes(&self) -> usize {
        self.inner.alignment_bytes()
    }
}
