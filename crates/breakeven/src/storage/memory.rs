//! Files in memory, for tests and for work that needs no medium.
//!
//! It behaves like a folder on a file system with 4 KiB blocks, sparse files included, and never fails; syncs do
//! nothing. A handle opened for direct I/O requires 512-byte alignment, so that code tested here also runs on a device.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::storage::handle::{Handle, system_error, two_names_error};
use crate::storage::locks::{LockOwner, LockTable};
use crate::storage::namespace::{Namespace, check_folder, check_name};
use crate::storage::sparse::SparseBytes;
use crate::storage::{
    Entry, FileIdentity, FileStatus, HeldLock, LockKind, OpenOptions, Storage, StorageFile,
};

/// The alignment that direct I/O requires in memory and on the simulated disk.
pub(super) const DIRECT_ALIGNMENT_BYTES: usize = 512;

/// The most bytes one file in memory may have allocated; more is "no space left on device".
const ALLOCATED_BYTES_MAX: u64 = 1 << 32;

/// A file, with any names.
#[derive(Debug, Default)]
struct Node {
    content: SparseBytes,
    mode: u32,
    locks: LockTable,
    /// The number of handles opened so far: each is a lock's owner.
    opened: LockOwner,
}

type Inode = Arc<Mutex<Node>>;

/// A folder of files in memory. Clones are the same folder.
#[derive(Clone, Debug, Default)]
pub struct MemoryStorage {
    namespace: Arc<Mutex<Namespace<Inode>>>,
}

impl MemoryStorage {
    /// Makes an empty folder.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    fn with_names<T>(
        &self,
        operation: &'static str,
        name: &str,
        work: impl FnOnce(&mut Namespace<Inode>) -> io::Result<T>,
    ) -> Result<T> {
        work(&mut lock(&self.namespace))
            .map_err(|error| system_error(operation, Path::new(name), error))
    }
}

impl Storage for MemoryStorage {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>> {
        check_name(name)?;
        options.check()?;
        let (inode, _) = self.with_names("open", name, |names| {
            names.open(name, options, || {
                let mode = options.mode;
                Arc::new(Mutex::new(Node {
                    mode,
                    ..Node::default()
                }))
            })
        })?;
        let handle = Handle::new(PathBuf::from(name), options, DIRECT_ALIGNMENT_BYTES);
        let owner = {
            let mut node = lock(&inode);
            node.opened += 1;
            node.opened
        };
        Ok(Arc::new(MemoryFile {
            handle,
            inode,
            owner,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let renamed = lock(&self.namespace).rename(from, to).map(drop);
        renamed.map_err(|error| two_names_error("rename", Path::new(""), [from, to], error))
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        let published = lock(&self.namespace).publish(from, to).map(drop);
        published.map_err(|error| two_names_error("publish", Path::new(""), [from, to], error))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.with_names("unlink", name, |names| names.unlink(name).map(drop))
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        check_folder(folder)?;
        self.with_names("list", folder, |names| names.list(folder))
    }

    fn create_folder(&self, folder: &str) -> Result<()> {
        check_name(folder)?;
        self.with_names("create folder", folder, |names| {
            names.create_folder(folder).map(drop)
        })
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        check_name(folder)?;
        self.with_names("remove folder", folder, |names| names.remove_folder(folder))
    }

    fn sync_directory(&self, folder: &str) -> Result<()> {
        check_folder(folder)?;
        self.with_names("sync directory", folder, |names| {
            names.check_is_folder(folder)
        })
    }
}

struct MemoryFile {
    handle: Handle,
    inode: Inode,
    owner: LockOwner,
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        lock(&self.inode).locks.release(self.owner);
    }
}

impl StorageFile for MemoryFile {
    fn path(&self) -> &Path {
        &self.handle.path
    }

    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let slices = buffers.iter().map(|buffer| &**buffer);
        self.handle.check_transfer(offset, slices)?;
        let node = lock(&self.inode);
        let mut done = 0;
        for buffer in buffers {
            let count = node.content.read(offset + done as u64, buffer);
            done += count;
            if count < buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let slices = buffers.iter().map(|buffer| &**buffer);
        self.handle.check_transfer(offset, slices)?;
        self.handle.change("write", || {
            let content = &mut lock(&self.inode).content;
            let mut position = offset;
            for buffer in buffers {
                check_room(content, position, buffer.len() as u64)?;
                content.write(position, buffer);
                position += buffer.len() as u64;
            }
            Ok(())
        })
    }

    fn sync(&self) -> Result<()> {
        self.handle.sync(|| Ok(()))
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.handle.check_range(size_bytes, 0)?;
        self.handle.change("truncate", || {
            lock(&self.inode).content.truncate(size_bytes);
            Ok(())
        })
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.handle.check_range(offset, length_bytes)?;
        self.handle.check_writable()?;
        let content = &mut lock(&self.inode).content;
        check_room(content, offset, length_bytes)
            .map_err(|error| self.handle.error("allocate", error))?;
        content.allocate(offset, length_bytes);
        Ok(())
    }

    fn punch(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.handle.check_range(offset, length_bytes)?;
        self.handle.change("punch", || {
            lock(&self.inode).content.punch(offset, length_bytes);
            Ok(())
        })
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> Result<bool> {
        self.handle.check_lock(&range, kind)?;
        let mut node = lock(&self.inode);
        Ok(node.locks.try_lock(self.owner, &range, kind))
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.handle.check_lock(&range, LockKind::Shared)?;
        lock(&self.inode).locks.unlock(self.owner, &range);
        Ok(())
    }

    fn first_conflict(&self, range: Range<u64>, kind: LockKind) -> Result<Option<HeldLock>> {
        self.handle.check_lock(&range, kind)?;
        let node = lock(&self.inode);
        Ok(node.locks.first_conflict(self.owner, &range, kind))
    }

    fn status(&self) -> Result<FileStatus> {
        let node = lock(&self.inode);
        Ok(FileStatus {
            size_bytes: node.content.size_bytes(),
            allocated_bytes: node.content.allocated_bytes(),
            mode: node.mode,
            identity: FileIdentity {
                device: 0,
                // No other file has this address while this one is open.
                inode: Arc::as_ptr(&self.inode).addr() as u64,
            },
        })
    }

    fn alignment_bytes(&self) -> usize {
        self.handle.alignment_bytes
    }
}

fn check_room(content: &SparseBytes, offset: u64, length_bytes: u64) -> io::Result<()> {
    let needed_bytes = content.missing_bytes(offset, length_bytes);
    if content.allocated_bytes().saturating_add(needed_bytes) > ALLOCATED_BYTES_MAX {
        return Err(io::Error::from_raw_os_error(libc::ENOSPC));
    }
    Ok(())
}

/// Locks even if another thread panicked. A test that fails elsewhere must not fail here too, and no panic can happen
/// between two steps of a change.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unlinked_file_stays_usable_through_its_handle() {
        let storage = MemoryStorage::new();
        let file = storage.open("a", OpenOptions::create_new()).unwrap();
        file.write_at(&[IoSlice::new(b"still here")], 0).unwrap();
        storage.unlink("a").unwrap();
        assert!(storage.open("a", OpenOptions::default()).is_err());
        let mut bytes = [0; 10];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes, b"still here");
        let error = file.read_exact_at(&mut bytes, 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "corrupt file at byte 1: expected 10 bytes, found 9 before the end of a"
        );
    }

    #[test]
    fn memory_is_bounded() {
        let storage = MemoryStorage::new();
        let file = storage.open("a", OpenOptions::create_new()).unwrap();
        file.truncate(1 << 60).unwrap();
        assert!(file.allocate(0, 1 << 60).is_err());
        file.write_at(
            &[IoSlice::new(b"an allocation that failed does not latch")],
            0,
        )
        .unwrap();
    }
}
