//! Files on the machine's own file systems.
//!
//! A [`RealStorage`] holds its root folder open and resolves every name below it, one part at a time and through no
//! link. So neither a name nor a link planted in the folder leads outside. Where the kernel has `openat2`, it enforces
//! this (`RESOLVE_BENEATH`); elsewhere every part is opened with `O_NOFOLLOW`. Files are made with the mode that the
//! caller states.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxFlags,
    fallocate,
};
use rustix::io::{Errno, retry_on_intr};

use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::descriptor::above_streams;
use crate::storage::forked::Noted;
use crate::storage::handle::{Handle, Latch, system_error, two_names_error};
use crate::storage::namespace::{name_of_system, split_system_name, system_name};
use crate::storage::transfer::{read_fully, write_fully};
use crate::storage::{
    Entry, EntryKind, FileIdentity, FileStatus, FileSystem, HeldLock, LockKind, OpenOptions,
    Storage, StorageFile, locks,
};

/// The assumed alignment of direct I/O where the kernel does not give it (Linux before 6.1): a page, which every common
/// device accepts.
const DIRECT_ALIGNMENT_FALLBACK_BYTES: usize = 4096;

/// A folder is only a step on a path: a process that may search one and not read it still reaches its files.
const FOLDER_FLAGS: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Returns the path of the file behind a path: the path itself, unless it is a symbolic link to something that exists.
#[must_use]
pub fn followed(path: &Path) -> PathBuf {
    let is_link = path.symlink_metadata().is_ok_and(|it| it.is_symlink());
    let target = is_link.then(|| path.canonicalize().ok()).flatten();
    target.unwrap_or_else(|| path.to_path_buf())
}

/// A folder on a real file system.
#[derive(Debug)]
pub struct RealStorage {
    path: PathBuf,
    root: OwnedFd,
    latch: Latch,
}

impl RealStorage {
    /// Opens an existing folder as the root of a storage.
    ///
    /// # Errors
    /// [`Error::Io`] if it is missing or no folder.
    pub fn open_folder(path: impl AsRef<Path>) -> Result<RealStorage> {
        let path = path.as_ref();
        // The caller names the root itself, and may mean a link.
        let flags = FOLDER_FLAGS.difference(OFlags::NOFOLLOW);
        let root = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .and_then(above_streams)
            .map_err(|error| Error::io("open folder", path, error.into()))?;
        Ok(RealStorage {
            path: path.to_path_buf(),
            root,
            latch: Latch::default(),
        })
    }

    /// Opens the folder of a file, and returns the name that the file has in it. A path that is a symbolic link names
    /// the file behind it ([`followed`]). The system's names are bytes, and so are these. A name that is not UTF-8 gets
    /// another name in the storage, used for it alone.
    ///
    /// # Errors
    /// As [`RealStorage::open_folder`], and [`Error::Invalid`] if the path does not end in a name.
    pub fn of_file(path: impl AsRef<Path>) -> Result<(RealStorage, String)> {
        let path = followed(path.as_ref());
        let name = path.file_name().ok_or_else(|| {
            let reason = format!("{} is no name of a file", quoted(&path));
            Error::invalid("file name", reason)
        })?;
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let storage = RealStorage::open_folder(folder.unwrap_or(Path::new(".")))?;
        Ok((storage, name_of_system(name)))
    }

    /// Returns the kind of file system under the folder.
    ///
    /// # Errors
    /// [`Error::Io`] if the system does not know it.
    pub fn system(&self) -> Result<FileSystem> {
        let found = retry_on_intr(|| rustix::fs::fstatfs(&self.root));
        let found = found.map_err(|error| Error::io("status", &self.path, error.into()))?;
        // The numbers have 32 bits, in a field of any length.
        Ok(FileSystem::of_magic(found.f_type as u32))
    }

    /// Runs `work` on the folder that holds `name` and on the last part of the name.
    fn in_folder<T>(
        &self,
        operation: &'static str,
        name: &OsStr,
        work: impl FnOnce(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T>,
    ) -> Result<T> {
        let (folder, last) = split_system_name(name);
        self.open_subfolder(folder)
            .and_then(|folder| work(folder.as_fd(), last))
            .map_err(|error| system_error(operation, &self.path.join(name), error.into()))
    }

    /// Runs `work` on the folders and last parts of two names; the first must be a file's.
    fn with_two_names(
        &self,
        operation: &'static str,
        from: &str,
        to: &str,
        work: impl FnOnce(BorrowedFd<'_>, &OsStr, BorrowedFd<'_>, &OsStr) -> rustix::io::Result<()>,
    ) -> Result<()> {
        let (from, to) = (system_name(from)?, system_name(to)?);
        self.latch.check(&self.path)?;
        let (from_folder, from_last) = split_system_name(&from);
        let (to_folder, to_last) = split_system_name(&to);
        let run = || {
            let source = self.open_subfolder(from_folder)?;
            let target = self.open_subfolder(to_folder)?;
            // The system would rename folders too; the seam renames files.
            let status = rustix::fs::statat(&source, from_last, AtFlags::SYMLINK_NOFOLLOW)?;
            if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
                return Err(Errno::ISDIR);
            }
            work(source.as_fd(), from_last, target.as_fd(), to_last)
        };
        run().map_err(|error| two_names_error(operation, &self.path, [&from, &to], error.into()))
    }

    fn open_subfolder(&self, folder: &OsStr) -> rustix::io::Result<OwnedFd> {
        let path = if folder.is_empty() {
            OsStr::new(".")
        } else {
            folder
        };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let opened = retry_on_intr(|| {
            rustix::fs::openat2(&self.root, path, FOLDER_FLAGS, Mode::empty(), resolve)
        });
        match opened {
            // Old kernels do not know the call, and some sandboxes forbid it.
            Err(Errno::NOSYS | Errno::PERM) => walk_to_folder(self.root.as_fd(), folder),
            opened => above_streams(opened?),
        }
    }
}

/// Reads the name of a folder, where `""` is the root.
fn folder_name(folder: &str) -> Result<Cow<'_, OsStr>> {
    match folder {
        "" => Ok(Cow::Borrowed(OsStr::new(""))),
        folder => system_name(folder),
    }
}

/// Opens `folder` below `root` one part at a time, through no link.
fn walk_to_folder(root: BorrowedFd<'_>, folder: &OsStr) -> rustix::io::Result<OwnedFd> {
    let open = |from: BorrowedFd<'_>, part: &[u8]| {
        let opened = rustix::fs::openat(from, part, FOLDER_FLAGS, Mode::empty());
        opened.and_then(above_streams)
    };
    let mut reached = open(root, b".")?;
    let parts = folder.as_bytes().split(|byte| *byte == b'/');
    for part in parts.filter(|part| !part.is_empty()) {
        reached = open(reached.as_fd(), part)?;
    }
    Ok(reached)
}

impl Storage for RealStorage {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>> {
        let name = &*system_name(name)?;
        options.check()?;
        if options.create {
            self.latch.check(&self.path)?;
        }
        let path = self.path.join(name);
        let opened = self.in_folder("open", name, |folder, last| {
            open_at(folder, last, options).and_then(above_streams)
        });
        let descriptor = match opened {
            Err(Error::Io { source, .. }) if options.direct && is_invalid(&source) => {
                return Err(no_direct(&path));
            }
            opened => opened?,
        };
        let file_type = rustix::fs::fstat(&descriptor)
            .map(|status| FileType::from_raw_mode(status.st_mode))
            .map_err(|error| Error::io("status", &path, error.into()))?;
        match file_type {
            FileType::RegularFile => {}
            FileType::Directory => {
                let source = io::Error::from_raw_os_error(libc::EISDIR);
                return Err(Error::io("open", path, source));
            }
            _ => {
                let what = format!("open {}, which is no regular file", quoted(&path));
                return Err(Error::Unsupported { what });
            }
        }
        let alignment_bytes = match options.direct {
            true => direct_alignment_bytes(&descriptor).ok_or_else(|| no_direct(&path))?,
            false => 1,
        };
        let handle = Handle::new(path, options, alignment_bytes);
        Ok(Arc::new(RealFile {
            handle,
            locked: OnceLock::new(),
            descriptor,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.with_two_names("rename", from, to, |source, from, target, to| {
            retry_on_intr(|| rustix::fs::renameat(source, from, target, to))
        })
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.with_two_names("publish", from, to, |source, from, target, to| {
            let flags = RenameFlags::NOREPLACE;
            let renamed =
                retry_on_intr(|| rustix::fs::renameat_with(source, from, target, to, flags));
            match renamed {
                // Old kernels do not know the call, and some file systems not the flag.
                Err(Errno::NOSYS | Errno::INVAL) => {
                    let flags = AtFlags::empty();
                    retry_on_intr(|| rustix::fs::linkat(source, from, target, to, flags))?;
                    // A first name that cannot be removed harms nobody.
                    let _ = retry_on_intr(|| rustix::fs::unlinkat(source, from, flags));
                    Ok(())
                }
                renamed => renamed,
            }
        })
    }

    fn unlink(&self, name: &str) -> Result<()> {
        let name = &*system_name(name)?;
        self.latch.check(&self.path)?;
        self.in_folder("unlink", name, |folder, last| {
            retry_on_intr(|| rustix::fs::unlinkat(folder, last, AtFlags::empty()))
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        let folder = &*folder_name(folder)?;
        self.open_subfolder(folder)
            .and_then(|descriptor| list_folder(&descriptor))
            .map_err(|error| system_error("list", &self.path.join(folder), error.into()))
    }

    fn create_folder(&self, folder: &str) -> Result<()> {
        let folder = &*system_name(folder)?;
        self.latch.check(&self.path)?;
        self.in_folder("create folder", folder, |parent, last| {
            let above = Mode::from_raw_mode(rustix::fs::fstat(parent)?.st_mode);
            let mode = Mode::RWXU | above & Mode::RWXG;
            match retry_on_intr(|| rustix::fs::mkdirat(parent, last, mode)) {
                // A file or a link of that name is an error: asking opens it.
                Err(Errno::EXIST) => match walk_to_folder(parent, last) {
                    Err(Errno::NOTDIR | Errno::LOOP) => Err(Errno::EXIST),
                    opened => opened.map(drop),
                },
                result => result,
            }
        })
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        let folder = &*system_name(folder)?;
        self.latch.check(&self.path)?;
        self.in_folder("remove folder", folder, |parent, last| {
            retry_on_intr(|| rustix::fs::unlinkat(parent, last, AtFlags::REMOVEDIR))
        })
    }

    fn sync_directory(&self, folder: &str) -> Result<()> {
        let folder = &*folder_name(folder)?;
        self.latch.check(&self.path)?;
        let path = self.path.join(folder);
        let failed = |error: Errno| system_error("sync directory", &path, error.into());
        let found = self.open_subfolder(folder).map_err(failed)?;
        let open = |flags: OFlags, mode| {
            let flags = flags | OFlags::CLOEXEC;
            retry_on_intr(|| rustix::fs::openat(&found, ".", flags, mode))
        };
        let synced = match open(OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) {
            Ok(folder) => sync_folder(&folder),
            // A process that may write a folder and not read it has no descriptor to sync. So the whole file system is
            // synced.
            Err(Errno::ACCESS) => {
                let inside = open(OFlags::RDWR | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR);
                let inside = inside.map_err(|_| failed(Errno::ACCESS))?;
                retry_on_intr(|| rustix::fs::syncfs(&inside))
            }
            Err(error) => return Err(failed(error)),
        };
        self.latch.watch_sync(synced.map_err(failed))
    }

    fn has_locks(&self) -> bool {
        self.system().is_ok_and(|it| it == FileSystem::Local)
    }
}

/// Makes the names in an open folder durable. A file system of a network or of a process may sync no folder alone. Then
/// all of it is synced.
pub(super) fn sync_folder(folder: &impl AsFd) -> rustix::io::Result<()> {
    match retry_on_intr(|| rustix::fs::fsync(folder)) {
        Err(Errno::INVAL | Errno::NOTSUP | Errno::NOSYS) => {
            retry_on_intr(|| rustix::fs::syncfs(folder))
        }
        synced => synced,
    }
}

/// Opens a file. Another process, such as a file server, may hold a lease on it (`F_SETLEASE`). The kernel asks for the
/// lease and allows some time to give it up. This call waits for that, as a usual open does.
fn open_at(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    options: OpenOptions,
) -> rustix::io::Result<OwnedFd> {
    let (flags, mode) = (open_flags(options), Mode::from_raw_mode(options.mode));
    let open = |flags| retry_on_intr(|| rustix::fs::openat(folder, name, flags, mode));
    match open(flags) {
        Err(Errno::AGAIN) => {
            let found = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(found.st_mode) {
                FileType::RegularFile => open(flags.difference(OFlags::NONBLOCK)),
                _ => Err(Errno::AGAIN),
            }
        }
        opened => opened,
    }
}

fn open_flags(options: OpenOptions) -> OFlags {
    // Without NONBLOCK, opening a pipe that took a file's name would wait for a writer for ever.
    let mut flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    flags |= if options.write {
        OFlags::RDWR
    } else {
        OFlags::RDONLY
    };
    flags.set(OFlags::CREATE, options.create);
    flags.set(OFlags::EXCL, options.exclusive);
    flags.set(OFlags::DIRECT, options.direct);
    flags
}

fn is_invalid(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

fn no_direct(path: &Path) -> Error {
    let what = format!("direct I/O on {}", quoted(&path));
    Error::Unsupported { what }
}

/// Returns the alignment that direct I/O on the file needs; `None` without direct I/O.
fn direct_alignment_bytes(descriptor: &OwnedFd) -> Option<usize> {
    let fallback = Some(DIRECT_ALIGNMENT_FALLBACK_BYTES);
    let mask = StatxFlags::DIOALIGN;
    let Ok(status) = rustix::fs::statx(descriptor, "", AtFlags::EMPTY_PATH, mask) else {
        return fallback;
    };
    if status.stx_mask & mask.bits() == 0 {
        return fallback;
    }
    let alignment_bytes = status.stx_dio_offset_align.max(status.stx_dio_mem_align);
    let is_offered = status.stx_dio_offset_align > 0 && alignment_bytes.is_power_of_two();
    is_offered.then_some(alignment_bytes as usize)
}

fn list_folder(descriptor: &OwnedFd) -> rustix::io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = retry_on_intr(|| rustix::fs::openat(descriptor, ".", flags, Mode::empty()))?;
    for entry in rustix::fs::Dir::new(above_streams(readable)?)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        let file_type = match entry.file_type() {
            // Some file systems do not say in the listing.
            FileType::Unknown => {
                let found = rustix::fs::statat(descriptor, name, AtFlags::SYMLINK_NOFOLLOW);
                match found {
                    Ok(status) => FileType::from_raw_mode(status.st_mode),
                    Err(Errno::NOENT) => continue,
                    Err(error) => return Err(error),
                }
            }
            known => known,
        };
        let kind = match file_type {
            FileType::RegularFile => EntryKind::File,
            FileType::Directory => EntryKind::Folder,
            _ => EntryKind::Other,
        };
        let name = name.to_string();
        entries.push(Entry { name, kind });
    }
    entries.sort_unstable();
    Ok(entries)
}

struct RealFile {
    handle: Handle,
    /// Set once it may have a lock; dropped before the descriptor.
    locked: OnceLock<Noted>,
    descriptor: OwnedFd,
}

impl RealFile {
    fn raw_sync(&self) -> io::Result<()> {
        // An interrupted sync reported nothing and may run again; any other failure may not.
        Ok(retry_on_intr(|| rustix::fs::fdatasync(&self.descriptor))?)
    }

    fn fallocate(&self, mode: FallocateFlags, offset: u64, length_bytes: u64) -> io::Result<()> {
        if length_bytes == 0 {
            return Ok(());
        }
        let work = || fallocate(&self.descriptor, mode, offset, length_bytes);
        Ok(retry_on_intr(work).map_err(|error| match error {
            // Old kernels do not know the call, and some sandboxes forbid it: nothing has changed, and writes may do.
            Errno::NOSYS | Errno::PERM => Errno::OPNOTSUPP,
            error => error,
        })?)
    }
}

impl StorageFile for RealFile {
    fn path(&self) -> &Path {
        &self.handle.path
    }

    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let slices = buffers.iter().map(|buffer| &**buffer);
        self.handle.check_transfer(offset, slices)?;
        let alignment_bytes = self.handle.alignment_bytes;
        read_fully(buffers, offset, alignment_bytes, |buffers, offset| {
            Ok(rustix::io::preadv(&self.descriptor, buffers, offset)?)
        })
        .map_err(|error| self.handle.error("read", error))
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let slices = buffers.iter().map(|buffer| &**buffer);
        self.handle.check_transfer(offset, slices)?;
        let alignment_bytes = self.handle.alignment_bytes;
        self.handle.change("write", || {
            write_fully(buffers, offset, alignment_bytes, |buffers, offset| {
                Ok(rustix::io::pwritev(&self.descriptor, buffers, offset)?)
            })
        })
    }

    fn sync(&self) -> Result<()> {
        self.handle.sync(|| self.raw_sync())
    }

    fn write_after_failure(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.handle.check_transfer(offset, std::iter::once(bytes))?;
        let alignment_bytes = self.handle.alignment_bytes;
        let write = || {
            let buffers = [IoSlice::new(bytes)];
            write_fully(&buffers, offset, alignment_bytes, |buffers, offset| {
                Ok(rustix::io::pwritev(&self.descriptor, buffers, offset)?)
            })
        };
        self.handle.change_after_failure(write, || self.raw_sync())
    }

    fn lacks_room(&self) -> bool {
        self.handle.lacks_room()
    }

    fn resume(&self) {
        self.handle.resume();
    }

    fn truncate(&self, size_bytes: u64) -> Result<()> {
        self.handle.check_range(size_bytes, 0)?;
        self.handle.change("truncate", || {
            Ok(retry_on_intr(|| {
                rustix::fs::ftruncate(&self.descriptor, size_bytes)
            })?)
        })
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.handle.check_range(offset, length_bytes)?;
        self.handle.check_writable()?;
        self.fallocate(FallocateFlags::empty(), offset, length_bytes)
            .map_err(|error| self.handle.error("allocate", error))
    }

    fn punch(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.handle.check_range(offset, length_bytes)?;
        self.handle.change("punch", || {
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            self.fallocate(mode, offset, length_bytes)
        })
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> Result<bool> {
        self.handle.check_lock(&range, kind)?;
        self.locked.get_or_init(|| Noted::new(&self.descriptor));
        locks::try_lock(self.descriptor.as_fd(), &range, kind)
            .map_err(|error| self.handle.error("lock", error))
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.handle.check_lock(&range, LockKind::Shared)?;
        locks::unlock(self.descriptor.as_fd(), &range)
            .map_err(|error| self.handle.error("unlock", error))
    }

    fn first_conflict(&self, range: Range<u64>, kind: LockKind) -> Result<Option<HeldLock>> {
        self.handle.check_lock(&range, kind)?;
        locks::first_conflict(self.descriptor.as_fd(), &range, kind)
            .map_err(|error| self.handle.error("find lock", error))
    }

    fn status(&self) -> Result<FileStatus> {
        let status = rustix::fs::fstat(&self.descriptor)
            .map_err(|error| self.handle.error("status", error.into()))?;
        // Sizes are never negative, and st_blocks counts 512 bytes at any block size.
        Ok(FileStatus {
            size_bytes: status.st_size as u64,
            allocated_bytes: status.st_blocks as u64 * 512,
            mode: status.st_mode & 0o7777,
            identity: FileIdentity {
                device: status.st_dev,
                inode: status.st_ino,
            },
        })
    }

    fn alignment_bytes(&self) -> usize {
        self.handle.alignment_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{AlignedBuffer, differential_test};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn real() -> (tempfile::TempDir, RealStorage) {
        let folder = tempfile::tempdir().unwrap();
        let storage = RealStorage::open_folder(folder.path()).unwrap();
        (folder, storage)
    }

    #[test]
    fn real_files_and_memory_agree_on_random_operations() {
        let (folder, real) = real();
        println!("on {}", folder.path().display());
        differential_test::check(&real, 6000);
    }

    #[test]
    fn allocated_space_is_taken_and_given_back() {
        let (_folder, storage) = real();
        let file = storage.open("a", OpenOptions::create_new()).unwrap();
        let mebibyte = 1 << 20;
        if let Err(error @ Error::Unsupported { .. }) = file.allocate(0, 4 * mebibyte) {
            println!("skipped: {error}");
            return;
        }
        file.sync().unwrap();
        let before = file.status().unwrap();
        assert_eq!(before.size_bytes, 4 * mebibyte);
        assert!(before.allocated_bytes >= 4 * mebibyte, "{before:?}");
        match file.punch(mebibyte, 2 * mebibyte) {
            Err(error @ Error::Unsupported { .. }) => println!("skipped: {error}"),
            result => {
                result.unwrap();
                file.sync().unwrap();
                let after = file.status().unwrap();
                assert_eq!(after.size_bytes, before.size_bytes);
                let freed = before.allocated_bytes - after.allocated_bytes;
                assert!(freed >= mebibyte, "{before:?} {after:?}");
            }
        }
    }

    #[test]
    fn direct_transfers_work_where_the_file_system_offers_them() {
        let (folder, storage) = real();
        let options = OpenOptions {
            direct: true,
            ..OpenOptions::create_new()
        };
        let file = match storage.open("a", options) {
            Err(error @ Error::Unsupported { .. }) => {
                println!("skipped on {}: {error}", folder.path().display());
                return;
            }
            file => file.unwrap(),
        };
        let unit = file.alignment_bytes();
        println!("direct I/O needs multiples of {unit} bytes");
        assert!(unit.is_power_of_two() && unit <= AlignedBuffer::ALIGNMENT_BYTES);
        let mut buffer = AlignedBuffer::zeroed(8 * unit);
        buffer.fill(0xBE);
        file.write_at(&[IoSlice::new(&buffer)], unit as u64)
            .unwrap();
        file.truncate(9 * unit as u64 - 5).unwrap();
        let mut copy = AlignedBuffer::zeroed(16 * unit);
        let count = file.read_at(&mut [IoSliceMut::new(&mut copy)], 0).unwrap();
        assert_eq!(count, 9 * unit - 5);
        assert!(copy[..unit].iter().all(|byte| *byte == 0));
        assert!(copy[unit..count].iter().all(|byte| *byte == 0xBE));
        let odd = file.write_at(&[IoSlice::new(&buffer[..unit - 1])], 0);
        assert!(matches!(odd, Err(Error::Invalid { .. })), "{odd:?}");
        file.sync().unwrap();
    }

    #[test]
    fn no_name_and_no_link_leads_outside() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), b"secret").unwrap();
        let (folder, storage) = real();
        let secret = outside.path().join("secret");
        symlink(outside.path(), folder.path().join("link")).unwrap();
        symlink(&secret, folder.path().join("file")).unwrap();
        for name in [
            "/etc/passwd",
            "../x",
            "a/../../x",
            ".",
            "",
            "link/secret",
            "file",
        ] {
            let result = storage.open(name, OpenOptions::read_only());
            assert!(result.is_err(), "{name:?} was opened");
            assert!(storage.open(name, OpenOptions::create_new()).is_err());
        }
        assert!(storage.rename("link/secret", "mine").is_err());
        assert!(storage.unlink("link/secret").is_err());
        assert!(storage.list("link").is_err());
        assert!(storage.create_folder("link").is_err());
        assert!(walk_to_folder(storage.root.as_fd(), OsStr::new("link")).is_err());
        let entry = |name: &str| Entry {
            name: name.to_string(),
            kind: EntryKind::Other,
        };
        assert_eq!(storage.list("").unwrap(), [entry("file"), entry("link")]);
        assert_eq!(std::fs::read(&secret).unwrap(), b"secret");
    }

    #[test]
    fn folders_are_reached_with_and_without_openat2() {
        let (folder, storage) = real();
        storage.create_folder("a").unwrap();
        storage.create_folder("a/b").unwrap();
        storage.create_folder("a/b").unwrap();
        storage.open("a/b/c", OpenOptions::create_new()).unwrap();
        for path in ["", "a", "a/b"] {
            let walked = walk_to_folder(storage.root.as_fd(), OsStr::new(path)).unwrap();
            assert_eq!(list_folder(&walked).unwrap(), storage.list(path).unwrap());
        }
        let mode = std::fs::metadata(folder.path().join("a/b/c")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_never_waited_for() {
        let (folder, storage) = real();
        let path = folder.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap();
        for options in [OpenOptions::default(), OpenOptions::read_only()] {
            let result = storage.open("pipe", options);
            assert!(matches!(result, Err(Error::Unsupported { .. })));
        }
        storage.create_folder("folder").unwrap();
        let error = storage.open("folder", OpenOptions::read_only()).err();
        let message = error.unwrap().to_string();
        assert!(message.contains("folder: Is a directory"), "{message}");
    }
}
