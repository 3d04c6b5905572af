//! A file system that shows a folder unchanged, with one flaw: a refusal of servers behind a mount, or a late answer.
//!
//! It lacks attributes, reserved room and holes, like many such servers. Each inode is held by a descriptor of its own
//! while the kernel knows it, so that names may change.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File, FileType as StdFileType, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirEntryExt, FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, chmodat, chownat,
    fstatvfs, linkat, openat, renameat_with, utimensat,
};
use rustix::io::Errno as SystemError;

use super::matrix::Flaw;

/// The time for which the kernel may keep an answer: none.
const KEPT: Duration = Duration::ZERO;
/// The delay of calls that look at an inode, as for a server some hundred kilometres away.
const LATE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 5_000_000,
};
/// Flags of an open file that belong to the kernel, or have done their work.
const OPENED: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::APPEND)
    .union(OFlags::DIRECT);

/// Shows `below` at `target`, until that is unmounted.
pub fn mount(below: &Path, target: &Path, flaw: Flaw) -> io::Result<BackgroundSession> {
    let root = open_path(CWD, below.as_os_str())?;
    let held = Held {
        inode: root,
        lookups: 1,
    };
    let served = Flawed {
        flaw,
        inodes: Mutex::new(HashMap::from([(INodeNo::ROOT.0, held)])),
        files: Mutex::default(),
        folders: Mutex::default(),
        next: AtomicU64::new(1),
    };
    fuser::spawn_mount(served, target, &Config::default())
}

/// An inode that the kernel knows, and the number of its references.
struct Held {
    inode: OwnedFd,
    lookups: u64,
}

struct OpenFile {
    file: File,
    is_written: AtomicBool,
    /// Its length at its opening, or at its last sync.
    safe_bytes: AtomicU64,
}

struct Listed {
    number: u64,
    kind: FileType,
    name: std::ffi::OsString,
}

struct Flawed {
    flaw: Flaw,
    inodes: Mutex<HashMap<u64, Held>>,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    folders: Mutex<HashMap<u64, Arc<Vec<Listed>>>>,
    next: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open_path(folder: impl std::os::fd::AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(folder, name, flags, Mode::empty())?)
}

fn kind_of(kind: StdFileType) -> FileType {
    match () {
        () if kind.is_dir() => FileType::Directory,
        () if kind.is_symlink() => FileType::Symlink,
        () if kind.is_fifo() => FileType::NamedPipe,
        () if kind.is_socket() => FileType::Socket,
        () => FileType::RegularFile,
    }
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let below = Duration::from_nanos(nanoseconds as u64);
    match seconds {
        0.. => UNIX_EPOCH + whole + below,
        _ => UNIX_EPOCH - whole + below,
    }
}

fn attributes(number: u64, of: &Metadata) -> FileAttr {
    FileAttr {
        ino: INodeNo(number),
        size: of.size(),
        blocks: of.blocks(),
        atime: time(of.atime(), of.atime_nsec()),
        mtime: time(of.mtime(), of.mtime_nsec()),
        ctime: time(of.ctime(), of.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: kind_of(of.file_type()),
        perm: (of.mode() & 0o7777) as u16,
        nlink: of.nlink() as u32,
        uid: of.uid(),
        gid: of.gid(),
        rdev: of.rdev() as u32,
        blksize: of.blksize() as u32,
        flags: 0,
    }
}

fn timespec(given: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match given {
        None => special(UTIME_OMIT),
        Some(TimeOrNow::Now) => special(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timespec {
                tv_sec: since.as_secs() as i64,
                tv_nsec: since.subsec_nanos().into(),
            },
            Err(before) => Timespec {
                tv_sec: -(before.duration().as_secs() as i64),
                tv_nsec: 0,
            },
        },
    }
}

impl Flawed {
    /// Refuses a call if this is the file system's flaw.
    fn allow(&self, asked: Flaw) -> io::Result<()> {
        match asked == self.flaw {
            true => Err(asked.error().into()),
            false => Ok(()),
        }
    }

    /// Refuses to give a file another name.
    fn allow_name(&self) -> io::Result<()> {
        match self.flaw {
            Flaw::Name(_) => Err(self.flaw.error().into()),
            _ => Ok(()),
        }
    }

    /// Waits where the file system is late.
    fn begin(&self) {
        if self.flaw == Flaw::Late {
            // No descriptor can report anything: only the time counts.
            let _ = rustix::event::poll(&mut [], Some(&LATE));
        }
    }

    /// The path by which the system finds an inode that is held.
    fn path(&self, number: INodeNo) -> io::Result<PathBuf> {
        self.begin();
        let inodes = lock(&self.inodes);
        let held = inodes.get(&number.0).ok_or(SystemError::NOENT)?;
        Ok(format!("/proc/self/fd/{}", held.inode.as_raw_fd()).into())
    }

    fn status(&self, number: INodeNo) -> io::Result<FileAttr> {
        Ok(attributes(number.0, &fs::metadata(self.path(number)?)?))
    }

    /// Holds the inode of a name, and reports it to the kernel.
    fn enter(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let inode = open_path(CWD, self.path(parent)?.join(name).as_os_str())?;
        let found = fs::metadata(format!("/proc/self/fd/{}", inode.as_raw_fd()))?;
        let mut inodes = lock(&self.inodes);
        let held = inodes.entry(found.ino());
        held.or_insert(Held { inode, lookups: 0 }).lookups += 1;
        Ok(attributes(found.ino(), &found))
    }

    /// The same for a new inode, with the mode that the kernel asks for.
    fn enter_new(&self, parent: INodeNo, name: &OsStr, mode: u32) -> io::Result<FileAttr> {
        let path = self.path(parent)?.join(name);
        fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))?;
        self.enter(parent, name)
    }

    fn opened(&self, file: File) -> io::Result<FileHandle> {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        let open = OpenFile {
            is_written: AtomicBool::new(false),
            safe_bytes: AtomicU64::new(file.metadata()?.len()),
            file,
        };
        lock(&self.files).insert(handle, Arc::new(open));
        Ok(FileHandle(handle))
    }

    fn open_file(&self, number: INodeNo, flags: OpenFlags) -> io::Result<FileHandle> {
        let flags = OFlags::from_bits_retain(flags.0 as u32).difference(OPENED);
        let file = openat(
            CWD,
            self.path(number)?,
            flags | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        self.opened(file.into())
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<OpenFile>> {
        self.begin();
        let files = lock(&self.files);
        Ok(files.get(&handle.0).cloned().ok_or(SystemError::BADF)?)
    }

    fn list(&self, number: INodeNo) -> io::Result<FileHandle> {
        let mut listed = Vec::new();
        for entry in fs::read_dir(self.path(number)?)? {
            let entry = entry?;
            listed.push(Listed {
                number: entry.ino(),
                kind: kind_of(entry.file_type()?),
                name: entry.file_name(),
            });
        }
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.folders).insert(handle, Arc::new(listed));
        Ok(FileHandle(handle))
    }

    fn sync(&self, handle: FileHandle) -> io::Result<()> {
        self.allow(Flaw::Sync)?;
        let open = self.file(handle)?;
        let length = open.file.metadata()?.len();
        open.safe_bytes.store(length, Ordering::Relaxed);
        open.is_written.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Closes a file; bytes added since the last sync are lost if that is refused.
    fn close(&self, handle: FileHandle) -> io::Result<()> {
        let open = self.file(handle)?;
        if !open.is_written.load(Ordering::Relaxed) {
            return Ok(());
        }
        let safe_bytes = open.safe_bytes.load(Ordering::Relaxed);
        let allowed = self.allow(Flaw::Close);
        if allowed.is_err() && open.file.metadata()?.len() > safe_bytes {
            open.file.set_len(safe_bytes)?;
        }
        allowed
    }

    fn change(
        &self,
        number: INodeNo,
        mode: Option<u32>,
        owner: [Option<u32>; 2],
    ) -> io::Result<()> {
        let path = self.path(number)?;
        if let Some(mode) = mode {
            self.allow(Flaw::Mode)?;
            chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        if owner != [None; 2] {
            self.allow(Flaw::Owner)?;
            let user = owner[0].map(rustix::fs::Uid::from_raw);
            let group = owner[1].map(rustix::fs::Gid::from_raw);
            chownat(CWD, &path, user, group, AtFlags::empty())?;
        }
        Ok(())
    }
}

/// Answers by a value, or by an error.
macro_rules! answer {
    ($reply:ident, $found:expr, $value:pat => $sent:expr) => {
        match $found {
            Ok($value) => $sent,
            Err(error) => $reply.error(error.into()),
        }
    };
}

impl Filesystem for Flawed {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        answer!(reply, self.enter(parent, name), it => reply.entry(&KEPT, &it, Generation(0)));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        let mut inodes = lock(&self.inodes);
        if let Some(held) = inodes.get_mut(&number.0)
            && number != INodeNo::ROOT
        {
            held.lookups = held.lookups.saturating_sub(lookups);
            if held.lookups == 0 {
                inodes.remove(&number.0);
            }
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.status(number), it => reply.attr(&KEPT, &it));
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        user: Option<u32>,
        group: Option<u32>,
        size: Option<u64>,
        read: Option<TimeOrNow>,
        changed: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let work = || -> io::Result<_> {
            self.change(number, mode, [user, group])?;
            if let Some(size) = size {
                let file = OpenOptions::new().write(true).open(self.path(number)?)?;
                file.set_len(size)?;
            } else if read.is_some() || changed.is_some() {
                self.allow(Flaw::Times)?;
                let times = Timestamps {
                    last_access: timespec(read),
                    last_modification: timespec(changed),
                };
                utimensat(CWD, self.path(number)?, &times, AtFlags::empty())?;
            }
            self.status(number)
        };
        answer!(reply, work(), it => reply.attr(&KEPT, &it));
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let work = || -> io::Result<_> {
            let inodes = lock(&self.inodes);
            let held = inodes.get(&number.0).ok_or(SystemError::NOENT)?;
            Ok(rustix::fs::readlinkat(&held.inode, "", Vec::new())?)
        };
        answer!(reply, work(), it => reply.data(it.as_bytes()));
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let work = || -> io::Result<_> {
            fs::create_dir(self.path(parent)?.join(name))?;
            self.enter_new(parent, name, mode)
        };
        answer!(reply, work(), it => reply.entry(&KEPT, &it, Generation(0)));
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let work = || -> io::Result<_> {
            let path = self.path(parent)?.join(name);
            let kind = rustix::fs::FileType::from_raw_mode(mode);
            rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device.into())?;
            self.enter_new(parent, name, mode)
        };
        answer!(reply, work(), it => reply.entry(&KEPT, &it, Generation(0)));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let work = || fs::remove_file(self.path(parent)?.join(name));
        answer!(reply, work(), () => reply.ok());
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let work = || fs::remove_dir(self.path(parent)?.join(name));
        answer!(reply, work(), () => reply.ok());
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let work = || -> io::Result<_> {
            symlink(target, self.path(parent)?.join(name))?;
            self.enter(parent, name)
        };
        answer!(reply, work(), it => reply.entry(&KEPT, &it, Generation(0)));
    }

    fn rename(
        &self,
        _: &Request,
        from: INodeNo,
        name: &OsStr,
        to: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let work = || -> io::Result<_> {
            self.allow_name()?;
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            let (from, to) = (self.path(from)?.join(name), self.path(to)?.join(new_name));
            Ok(renameat_with(CWD, from, CWD, to, flags)?)
        };
        answer!(reply, work(), () => reply.ok());
    }

    fn link(&self, _: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let work = || -> io::Result<_> {
            self.allow_name()?;
            let (from, to) = (self.path(number)?, self.path(parent)?.join(name));
            linkat(CWD, from, CWD, to, AtFlags::SYMLINK_FOLLOW)?;
            self.enter(parent, name)
        };
        answer!(reply, work(), it => reply.entry(&KEPT, &it, Generation(0)));
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.open_file(number, flags), it => reply.opened(it, FopenFlags::empty()));
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let work = || -> io::Result<_> {
            let flags = OFlags::from_bits_retain(flags as u32)
                .difference(OFlags::APPEND | OFlags::DIRECT)
                .union(OFlags::CREATE | OFlags::CLOEXEC);
            let path = self.path(parent)?.join(name);
            let file = openat(CWD, path, flags, Mode::from_raw_mode(0o600))?;
            Ok((
                self.enter_new(parent, name, mode)?,
                self.opened(file.into())?,
            ))
        };
        answer!(reply, work(), (it, handle) =>
            reply.created(&KEPT, &it, Generation(0), handle, FopenFlags::empty()));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; size as usize];
        let opened = self.file(handle);
        match opened.and_then(|open| open.file.read_at(&mut buffer, offset)) {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let work = || -> io::Result<_> {
            let open = self.file(handle)?;
            open.is_written.store(true, Ordering::Relaxed);
            open.file.write_at(data, offset)
        };
        answer!(reply, work(), count => reply.written(count as u32));
    }

    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        answer!(reply, self.close(handle), () => reply.ok());
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.files).remove(&handle.0);
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.sync(handle), () => reply.ok());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        answer!(reply, self.allow(Flaw::Sync), () => reply.ok());
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.list(number), it => reply.opened(it, FopenFlags::empty()));
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(listed) = lock(&self.folders).get(&handle.0).cloned() else {
            return reply.error(Errno::EBADF);
        };
        let dot = |name: &str| Listed {
            number: number.0,
            kind: FileType::Directory,
            name: name.into(),
        };
        let dots = [dot("."), dot("..")];
        let all = dots.iter().chain(listed.iter()).enumerate();
        for (at, it) in all.skip(offset as usize) {
            if reply.add(INodeNo(it.number), at as u64 + 1, it.kind, &it.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        lock(&self.folders).remove(&handle.0);
        reply.ok();
    }

    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        let work = || -> io::Result<_> {
            let inodes = lock(&self.inodes);
            let held = inodes.get(&number.0).ok_or(SystemError::NOENT)?;
            Ok(fstatvfs(&held.inode)?)
        };
        answer!(reply, work(), it => reply.statfs(
            it.f_blocks,
            it.f_bfree,
            it.f_bavail,
            it.f_files,
            it.f_ffree,
            it.f_bsize as u32,
            it.f_namemax as u32,
            it.f_frsize as u32,
        ));
    }
}
