//! The simulated disk: a file system in memory that loses, tears and misdirects, from a seed.
//!
//! It keeps two states apart: the *cached* state is the running program's view, the *durable* state that of the medium.
//! It records every change and every sync. A program runs on it once. Then [`Recording::for_each_crash`] enumerates the
//! possible remains of a power cut at every boundary, and [`Recording::with_lie`] those of a lying medium. Faults that
//! calls report are injected while it runs ([`SimulatedDisk::set_fault`]).
//!
//! Several processes may share a disk. Process death is not a power cut. [`SimulatedProcess::kill`] ends the handles
//! and locks of one process and keeps the page cache; [`SimulatedDisk::kill_processes`] ends those of all.
//! [`SimulatedDisk::cut_power`] ends all handles and leaves the contents of the medium.
//!
//! It promises that equal seeds and equal calls give equal disks. It does not model time, nor reads
//! that go wrong by themselves: rot is put into an [`Image`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

use crate::error::Result;
use crate::storage::handle::{Handle, Latch, system_error, two_names_error};
use crate::storage::locks::LockTable;
use crate::storage::memory::DIRECT_ALIGNMENT_BYTES;
use crate::storage::namespace::{Namespace, check_folder, check_name};
use crate::storage::transfer::{read_fully, write_fully};
use crate::storage::{
    Entry, FileIdentity, FileStatus, HeldLock, LockKind, OpenOptions, Storage, StorageFile,
};

mod damage;
mod fault;
mod medium;
mod recording;

pub use damage::{Damage, SECTOR_BYTES};
pub use fault::{Call, Fault, FaultKind};
pub use recording::{Crash, Image, Lie, Recording};

use fault::{Injector, Strike};
use medium::{Change, Event, InodeNumber, Medium, View};

/// A disk with one folder of files. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct SimulatedDisk {
    disk: Arc<Mutex<Disk>>,
}

type ProcessNumber = u64;
type HandleNumber = u64;

#[derive(Debug)]
struct Disk {
    /// The processes that live.
    processes: BTreeSet<ProcessNumber>,
    next_process: ProcessNumber,
    cached: View,
    medium: Medium,
    base: View,
    events: Vec<Event>,
    next_inode: InodeNumber,
    /// Open handles: a file without a name lives until its last handle goes.
    handles: BTreeMap<HandleNumber, (ProcessNumber, InodeNumber)>,
    next_handle: HandleNumber,
    /// The locks, by the handles' numbers.
    locks: BTreeMap<InodeNumber, LockTable>,
    capacity_bytes: Option<u64>,
    injector: Option<Injector>,
    random: Rng,
}

impl SimulatedDisk {
    /// Makes an empty disk of unlimited capacity.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk::from_view(View::default(), seed)
    }

    /// Makes a disk with the remains of a crash, all of them durable.
    pub fn from_image(image: &Image, seed: u64) -> SimulatedDisk {
        SimulatedDisk::from_view(image.view.clone(), seed)
    }

    fn from_view(view: View, seed: u64) -> SimulatedDisk {
        let last_inode = view.files.iter().map(|(inode, _)| *inode).max();
        let disk = Disk {
            processes: BTreeSet::new(),
            next_process: 0,
            cached: view.clone(),
            medium: Medium::new(view.clone()),
            base: view,
            events: Vec::new(),
            next_inode: last_inode.map_or(0, |inode| inode + 1),
            handles: BTreeMap::new(),
            next_handle: 0,
            locks: BTreeMap::new(),
            capacity_bytes: None,
            injector: None,
            random: Rng::with_seed(seed),
        };
        SimulatedDisk {
            disk: Arc::new(Mutex::new(disk)),
        }
    }

    /// Starts a process that sees the disk's folder. It lives until it is killed or the power is cut; after that all
    /// its calls fail (EBADF).
    pub fn start_process(&self) -> Arc<SimulatedProcess> {
        let mut disk = self.lock();
        let number = disk.next_process;
        disk.next_process += 1;
        disk.processes.insert(number);
        Arc::new(SimulatedProcess {
            disk: self.clone(),
            number,
            latch: Latch::default(),
        })
    }

    /// Ends all processes. Written data stays in the page cache: the next process sees it, and a later power cut may
    /// still lose it.
    pub fn kill_processes(&self) {
        let mut disk = self.lock();
        for process in std::mem::take(&mut disk.processes) {
            disk.end_process(process);
        }
    }

    /// Ends all handles and leaves the contents of the medium. Unsynced changes suffer `damage`, or none where it does
    /// not apply. The recording starts again.
    pub fn cut_power(&self, damage: Damage) {
        self.kill_processes();
        let mut disk = self.lock();
        let Disk { medium, random, .. } = &mut *disk;
        let mut view = damage
            .image(medium, random)
            .unwrap_or_else(|| medium.durable.clone());
        view.remove_orphans();
        disk.cached = view.clone();
        disk.medium = Medium::new(view.clone());
        disk.base = view;
        disk.events.clear();
    }

    /// Limits the bytes all files together may have allocated; `None` lifts the limit.
    pub fn set_capacity_bytes(&self, capacity_bytes: Option<u64>) {
        self.lock().capacity_bytes = capacity_bytes;
    }

    /// Puts a fault in waiting, or takes it away; the count of calls starts again.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.lock().injector = fault.map(Injector::new);
    }

    /// Returns how many calls the present fault could have struck since it was set.
    pub fn fault_call_count(&self) -> u64 {
        let disk = self.lock();
        disk.injector.as_ref().map_or(0, Injector::call_count)
    }

    /// Notes in the recording that the program reached `mark`: every crash behind it carries it.
    pub fn mark(&self, mark: u64) {
        self.lock().events.push(Event::Mark(mark));
    }

    /// Returns the recording since the disk was made or the power was last cut.
    pub fn recording(&self) -> Recording {
        let disk = self.lock();
        Recording {
            base: disk.base.clone(),
            events: disk.events.clone(),
        }
    }

    /// Returns how many bytes all files together have allocated.
    pub fn allocated_bytes(&self) -> u64 {
        self.lock().allocated_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        // A test that panicked elsewhere must not fail here too.
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk {
    fn end_process(&mut self, process: ProcessNumber) {
        self.processes.remove(&process);
        let ended: Vec<HandleNumber> = (self.handles.iter())
            .filter(|(_, (owner, _))| *owner == process)
            .map(|(handle, _)| *handle)
            .collect();
        for handle in ended {
            self.close(handle);
        }
    }

    /// Ends a handle, its locks with it, unless its process ended before.
    fn close(&mut self, handle: HandleNumber) {
        let Some((_, inode)) = self.handles.remove(&handle) else {
            return;
        };
        if let Some(locks) = self.locks.get_mut(&inode) {
            locks.release(handle);
        }
        if !self.handles.values().any(|(_, open)| *open == inode) {
            self.locks.remove(&inode);
            self.remove_unused();
        }
    }

    fn check_alive(&self, process: ProcessNumber) -> io::Result<()> {
        match self.processes.contains(&process) {
            true => Ok(()),
            false => Err(io::Error::from_raw_os_error(libc::EBADF)),
        }
    }

    /// Starts a call of a process.
    fn enter(&mut self, process: ProcessNumber, call: Call) -> io::Result<Option<Strike>> {
        self.check_alive(process)?;
        let strike = self.injector.as_mut().and_then(|waits| waits.strike(call));
        if let Some(Strike::Fail(FaultKind::ProcessDeath, error)) = strike {
            self.end_process(process);
            return Err(error);
        }
        Ok(strike)
    }

    /// Starts a call that fails whole if it is struck.
    fn enter_whole(&mut self, process: ProcessNumber, call: Call) -> io::Result<()> {
        match self.enter(process, call)? {
            Some(Strike::Fail(_, error)) => Err(error),
            _ => Ok(()),
        }
    }

    /// Records a change that the cached names already show.
    fn record(&mut self, change: Change) {
        let event = Event::Change(change);
        self.medium.follow(&event);
        self.events.push(event);
    }

    /// Makes and records a change of content.
    fn change(&mut self, change: Change) {
        self.cached.apply(&change);
        self.record(change);
    }

    fn sync(&mut self, event: Event) {
        self.medium.follow(&event);
        self.events.push(event);
    }

    fn allocated_bytes(&self) -> u64 {
        let files = self.cached.files.iter();
        files.map(|(_, content)| content.allocated_bytes()).sum()
    }

    /// Returns whether the range of `inode` finds the space it needs.
    fn has_room(&self, inode: InodeNumber, offset: u64, length_bytes: u64) -> bool {
        let content = self.cached.content(inode);
        let missing = content.map_or(0, |content| content.missing_bytes(offset, length_bytes));
        let is_within = |capacity| self.allocated_bytes().saturating_add(missing) <= capacity;
        self.capacity_bytes.is_none_or(is_within)
    }

    /// Forgets contents that have neither a name nor a handle.
    fn remove_unused(&mut self) {
        let Disk {
            cached, handles, ..
        } = self;
        let View { names, files, .. } = cached;
        files.retain(|(inode, _)| {
            handles.values().any(|(_, open)| open == inode)
                || names.files().any(|(_, named)| named == inode)
        });
    }

    fn fail_sync(&mut self, inode: InodeNumber, kind: FaultKind) {
        let seed = self.random.u64(..);
        self.sync(Event::SyncFailed { inode, seed });
        if kind == FaultKind::SyncErrorPagesDropped {
            let durable = self.medium.durable.content(inode).cloned();
            *self.cached.content_mut(inode) = durable.unwrap_or_default();
        }
    }
}

/// The folder as one process sees it.
#[derive(Debug)]
pub struct SimulatedProcess {
    disk: SimulatedDisk,
    number: ProcessNumber,
    latch: Latch,
}

impl SimulatedProcess {
    /// Ends the process with its handles and locks, and no other process.
    pub fn kill(&self) {
        self.disk.lock().end_process(self.number);
    }

    fn call<T>(
        &self,
        call: Call,
        operation: &'static str,
        name: &str,
        work: impl FnOnce(&mut Disk) -> io::Result<T>,
    ) -> Result<T> {
        let mut disk = self.disk.lock();
        disk.enter_whole(self.number, call)
            .and_then(|()| work(&mut disk))
            .map_err(|error| system_error(operation, Path::new(name), error))
    }

    /// Renames a file as `rename` does it.
    fn rename_by(
        &self,
        operation: &'static str,
        from: &str,
        to: &str,
        rename: impl FnOnce(&mut Namespace<InodeNumber>) -> io::Result<InodeNumber>,
    ) -> Result<()> {
        check_name(from)?;
        check_name(to)?;
        self.check_latch()?;
        let mut disk = self.disk.lock();
        let renamed = disk
            .enter_whole(self.number, Call::Rename)
            .and_then(|()| rename(&mut disk.cached.names));
        let inode = renamed
            .map_err(|error| two_names_error(operation, Path::new(""), [from, to], error))?;
        let (from, to) = (from.to_string(), to.to_string());
        disk.record(Change::Rename { from, to, inode });
        disk.remove_unused();
        Ok(())
    }

    /// Fails if a directory sync failed before.
    fn check_latch(&self) -> Result<()> {
        self.latch.check(Path::new("simulated disk"))
    }
}

impl Storage for SimulatedProcess {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>> {
        check_name(name)?;
        options.check()?;
        if options.create {
            self.check_latch()?;
        }
        let (inode, number) = self.call(Call::Open, "open", name, |disk| {
            let next_inode = disk.next_inode;
            let opened = disk.cached.names.open(name, options, || next_inode);
            let (inode, is_new) = opened?;
            if is_new {
                disk.next_inode += 1;
                disk.cached.content_mut(inode);
                let (name, mode) = (name.to_string(), options.mode);
                disk.cached.modes.insert(inode, mode);
                disk.record(Change::Create { name, inode, mode });
            }
            let number = disk.next_handle;
            disk.next_handle += 1;
            disk.handles.insert(number, (self.number, inode));
            Ok((inode, number))
        })?;
        Ok(Arc::new(SimulatedFile {
            handle: Handle::new(PathBuf::from(name), options, DIRECT_ALIGNMENT_BYTES),
            disk: self.disk.clone(),
            process: self.number,
            number,
            inode,
        }))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.rename_by("rename", from, to, |names| {
            names.rename(from, to).map(|(inode, _)| inode)
        })
    }

    fn publish(&self, from: &str, to: &str) -> Result<()> {
        self.rename_by("publish", from, to, |names| names.publish(from, to))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        check_name(name)?;
        self.check_latch()?;
        self.call(Call::Unlink, "unlink", name, |disk| {
            disk.cached.names.unlink(name)?;
            let name = name.to_string();
            disk.record(Change::Unlink { name });
            disk.remove_unused();
            Ok(())
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<Entry>> {
        check_folder(folder)?;
        self.call(Call::List, "list", folder, |disk| {
            disk.cached.names.list(folder)
        })
    }

    fn create_folder(&self, folder: &str) -> Result<()> {
        check_name(folder)?;
        self.check_latch()?;
        self.call(Call::CreateFolder, "create folder", folder, |disk| {
            if disk.cached.names.create_folder(folder)? {
                let name = folder.to_string();
                disk.record(Change::CreateFolder { name });
            }
            Ok(())
        })
    }

    fn remove_folder(&self, folder: &str) -> Result<()> {
        check_name(folder)?;
        self.check_latch()?;
        self.call(Call::RemoveFolder, "remove folder", folder, |disk| {
            disk.cached.names.remove_folder(folder)?;
            let name = folder.to_string();
            disk.record(Change::RemoveFolder { name });
            Ok(())
        })
    }

    fn sync_directory(&self, folder: &str) -> Result<()> {
        check_folder(folder)?;
        self.check_latch()?;
        let mut disk = self.disk.lock();
        let error = |error| system_error("sync directory", Path::new(folder), error);
        // A missing folder was not synced, and nothing is wrong with the medium.
        disk.cached.names.check_is_folder(folder).map_err(error)?;
        let entered = disk.enter_whole(self.number, Call::SyncDirectory);
        self.latch.watch_sync(entered.map_err(error))?;
        let folder = folder.to_string();
        disk.sync(Event::SyncDirectory { folder });
        Ok(())
    }
}

/// One open file of one process.
struct SimulatedFile {
    handle: Handle,
    disk: SimulatedDisk,
    process: ProcessNumber,
    number: HandleNumber,
    inode: InodeNumber,
}

impl SimulatedFile {
    /// Does the work of one system call: perhaps less than requested.
    fn raw_read(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> io::Result<usize> {
        let mut disk = self.disk.lock();
        let mut left = match disk.enter(self.process, Call::Read)? {
            Some(Strike::Fail(_, error)) => return Err(error),
            Some(Strike::Short) => self.half(buffers.iter().map(|buffer| buffer.len()).sum()),
            None => usize::MAX,
        };
        let mut done = 0;
        for buffer in buffers {
            let count = buffer.len().min(left);
            let content = disk.cached.content(self.inode);
            let read = content.map_or(0, |content| {
                content.read(offset + done as u64, &mut buffer[..count])
            });
            done += read;
            left -= read;
            if read < buffer.len() {
                break;
            }
        }
        Ok(done)
    }

    fn raw_write(&self, buffers: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let mut bytes = Vec::with_capacity(buffers.iter().map(|buffer| buffer.len()).sum());
        for buffer in buffers {
            bytes.extend_from_slice(buffer);
        }
        let mut disk = self.disk.lock();
        let mut failure = None;
        match disk.enter(self.process, Call::Write)? {
            Some(Strike::Fail(FaultKind::Interrupted, error)) => return Err(error),
            Some(Strike::Fail(_, error)) => {
                bytes.truncate(bytes.len() / 2);
                failure = Some(error);
            }
            Some(Strike::Short) => bytes.truncate(self.half(bytes.len())),
            None => {}
        }
        while !disk.has_room(self.inode, offset, bytes.len() as u64) {
            if bytes.len() <= DIRECT_ALIGNMENT_BYTES {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            bytes.truncate(self.half(bytes.len()));
        }
        let count = bytes.len();
        disk.change(Change::Write {
            inode: self.inode,
            offset,
            bytes: Arc::from(bytes),
        });
        failure.map_or(Ok(count), Err)
    }

    fn raw_sync(&self) -> io::Result<()> {
        let mut disk = self.disk.lock();
        match disk.enter(self.process, Call::Sync)? {
            Some(Strike::Fail(kind, error)) => {
                disk.fail_sync(self.inode, kind);
                Err(error)
            }
            _ => {
                disk.sync(Event::Sync { inode: self.inode });
                Ok(())
            }
        }
    }

    /// Returns about half of a transfer, which is never nothing and fits direct I/O.
    fn half(&self, length_bytes: usize) -> usize {
        let unit = self.handle.alignment_bytes;
        (length_bytes / 2 / unit * unit).max(unit).min(length_bytes)
    }

    fn with_locks<T>(
        &self,
        call: Call,
        operation: &'static str,
        work: impl FnOnce(&mut LockTable) -> T,
    ) -> Result<T> {
        let mut disk = self.disk.lock();
        disk.enter_whole(self.process, call)
            .map_err(|error| self.handle.error(operation, error))?;
        Ok(work(disk.locks.entry(self.inode).or_default()))
    }

    fn call(&self, call: Call, change: Change) -> io::Result<()> {
        let mut disk = self.disk.lock();
        disk.enter_whole(self.process, call)?;
        disk.change(change);
        Ok(())
    }
}

impl Drop for SimulatedFile {
    fn drop(&mut self) {
        self.disk.lock().close(self.number);
    }
}

impl StorageFile for SimulatedFile {
    fn path(&self) -> &Path {
        &self.handle.path
    }

    fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
        let slices = buffers.iter().map(|buffer| &**buffer);
        self.handle.check_transfer(offset, slices)?;
        let alignment_bytes = self.handle.alignment_bytes;
        read_fully(buffers, offset, alignment_bytes, |buffers, offset| {
            self.raw_read(buffers, offset)
        })
        .map_err(|error| self.handle.error("read", error))
    }

    fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let slices = buffers.iter().map(|buffer| &**buffer);
        self.handle.check_transfer(offset, slices)?;
        let alignment_bytes = self.handle.alignment_bytes;
        self.handle.change("write", || {
            write_fully(buffers, offset, alignment_bytes, |buffers, offset| {
                self.raw_write(buffers, offset)
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
                self.raw_write(buffers, offset)
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
        let inode = self.inode;
        self.handle.change("truncate", || {
            self.call(Call::Truncate, Change::Truncate { inode, size_bytes })
        })
    }

    fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.handle.check_range(offset, length_bytes)?;
        self.handle.check_writable()?;
        let allocate = || {
            let mut disk = self.disk.lock();
            disk.enter_whole(self.process, Call::Allocate)?;
            if !disk.has_room(self.inode, offset, length_bytes) {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            disk.change(Change::Allocate {
                inode: self.inode,
                offset,
                length_bytes,
            });
            Ok(())
        };
        allocate().map_err(|error| self.handle.error("allocate", error))
    }

    fn punch(&self, offset: u64, length_bytes: u64) -> Result<()> {
        self.handle.check_range(offset, length_bytes)?;
        let change = Change::Punch {
            inode: self.inode,
            offset,
            length_bytes,
        };
        self.handle
            .change("punch", || self.call(Call::Punch, change))
    }

    fn try_lock(&self, range: Range<u64>, kind: LockKind) -> Result<bool> {
        self.handle.check_lock(&range, kind)?;
        self.with_locks(Call::Lock, "lock", |locks| {
            locks.try_lock(self.number, &range, kind)
        })
    }

    fn unlock(&self, range: Range<u64>) -> Result<()> {
        self.handle.check_lock(&range, LockKind::Shared)?;
        self.with_locks(Call::Unlock, "unlock", |locks| {
            locks.unlock(self.number, &range);
        })
    }

    fn first_conflict(&self, range: Range<u64>, kind: LockKind) -> Result<Option<HeldLock>> {
        self.handle.check_lock(&range, kind)?;
        self.with_locks(Call::Lock, "find lock", |locks| {
            locks.first_conflict(self.number, &range, kind)
        })
    }

    fn status(&self) -> Result<FileStatus> {
        let disk = self.disk.lock();
        disk.check_alive(self.process)
            .map_err(|error| self.handle.error("status", error))?;
        let content = disk.cached.content(self.inode);
        let mode = disk.cached.modes.get(&self.inode);
        Ok(FileStatus {
            size_bytes: content.map_or(0, |content| content.size_bytes()),
            allocated_bytes: content.map_or(0, |content| content.allocated_bytes()),
            mode: mode.copied().unwrap_or(OpenOptions::default().mode),
            identity: FileIdentity {
                device: 0,
                inode: self.inode,
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
    use crate::error::Error;
    use crate::storage::{differential_test, test_seed};

    fn open(storage: &dyn Storage, name: &str) -> Arc<dyn StorageFile> {
        let options = OpenOptions {
            create: true,
            ..OpenOptions::default()
        };
        storage.open(name, options).unwrap()
    }

    fn write(file: &dyn StorageFile, offset: u64, bytes: &[u8]) {
        file.write_at(&[IoSlice::new(bytes)], offset).unwrap();
    }

    fn content(storage: &dyn Storage, name: &str) -> Option<Vec<u8>> {
        let file = storage.open(name, OpenOptions::read_only()).ok()?;
        let mut bytes = vec![0; file.status().unwrap().size_bytes as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        Some(bytes)
    }

    #[test]
    fn a_disk_without_faults_is_a_file_system() {
        let disk = SimulatedDisk::new(1);
        differential_test::check(&*disk.start_process(), 6000);
    }

    #[test]
    fn short_and_interrupted_calls_change_nothing() {
        for kind in [
            FaultKind::ShortRead,
            FaultKind::ShortWrite,
            FaultKind::Interrupted,
        ] {
            let disk = SimulatedDisk::new(1);
            disk.set_fault(Some(Fault {
                kind,
                first_call: 0,
                is_lasting: true,
            }));
            differential_test::check(&*disk.start_process(), 1000);
            assert!(disk.fault_call_count() > 300, "{kind:?} never struck");
        }
    }

    #[test]
    fn process_death_keeps_the_cache_and_a_power_cut_does_not() {
        let disk = SimulatedDisk::new(1);
        let process = disk.start_process();
        let file = open(&*process, "a");
        write(&*file, 0, b"synced");
        file.sync().unwrap();
        process.sync_directory("").unwrap();
        write(&*file, 0, b"cached");
        disk.kill_processes();
        let error = file.write_at(&[IoSlice::new(b"x")], 0).unwrap_err();
        assert!(error.to_string().contains("Bad file descriptor"), "{error}");
        assert!(process.list("").is_err() && file.status().is_err());
        let process = disk.start_process();
        assert_eq!(content(&*process, "a").unwrap(), b"cached");
        disk.cut_power(Damage::LoseAll);
        assert!(process.list("").is_err());
        assert_eq!(content(&*disk.start_process(), "a").unwrap(), b"synced");
    }

    #[test]
    fn one_process_of_two_dies_with_its_locks() {
        let disk = SimulatedDisk::new(1);
        let (left, right) = (disk.start_process(), disk.start_process());
        let (of_left, of_right) = (open(&*left, "a"), open(&*right, "a"));
        let whole = || 0..1 << 62;
        assert!(of_left.try_lock(whole(), LockKind::Exclusive).unwrap());
        assert!(!of_right.try_lock(5..6, LockKind::Shared).unwrap());
        let conflict = of_right.first_conflict(5..6, LockKind::Shared).unwrap();
        assert_eq!(conflict.unwrap().range, whole());
        write(&*of_left, 0, b"written by the dead");
        left.kill();
        assert!(of_left.try_lock(whole(), LockKind::Shared).is_err() && left.list("").is_err());
        assert!(of_right.try_lock(whole(), LockKind::Exclusive).unwrap());
        assert_eq!(content(&*right, "a").unwrap(), b"written by the dead");
        // A process dies in a call, and the other goes on.
        let third = disk.start_process();
        let of_third = open(&*third, "a");
        disk.set_fault(Some(Fault {
            kind: FaultKind::ProcessDeath,
            first_call: 1,
            is_lasting: false,
        }));
        assert!(!of_third.try_lock(0..1, LockKind::Shared).unwrap());
        assert!(of_right.unlock(whole()).is_err());
        assert!(of_third.try_lock(0..1, LockKind::Shared).unwrap());
        let fourth = disk.start_process();
        let of_fourth = open(&*fourth, "a");
        drop(of_third);
        assert!(of_fourth.try_lock(0..1, LockKind::Exclusive).unwrap());
    }

    #[test]
    fn a_name_is_lost_until_its_folder_is_synced() {
        let disk = SimulatedDisk::new(1);
        let process = disk.start_process();
        process.create_folder("d").unwrap();
        let file = open(&*process, "d/a");
        write(&*file, 0, b"data");
        file.sync().unwrap();
        process.sync_directory("d").unwrap();
        let names = |damage| {
            let mut names = None;
            disk.recording().for_each_crash(&[damage], 1, |crash| {
                names = Some(crash.image.names());
            });
            names.unwrap()
        };
        // The file is in its folder, but the folder is not yet in the root.
        assert!(names(Damage::LoseAll).is_empty());
        process.sync_directory("").unwrap();
        assert_eq!(names(Damage::LoseAll), ["d/a"]);
        process.rename("d/a", "b").unwrap();
        process.sync_directory("").unwrap();
        assert_eq!(names(Damage::LoseAll), ["d/a"]);
        assert_eq!(names(Damage::KeepAll), ["b"]);
        process.sync_directory("d").unwrap();
        assert_eq!(names(Damage::LoseAll), ["b"]);
    }

    #[test]
    fn a_failed_sync_forgets_pages_and_may_not_be_retried() {
        for kind in [
            FaultKind::SyncErrorPagesKept,
            FaultKind::SyncErrorPagesDropped,
        ] {
            let disk = SimulatedDisk::new(7);
            let process = disk.start_process();
            let file = open(&*process, "a");
            process.sync_directory("").unwrap();
            file.truncate(64 * 4096).unwrap();
            file.sync().unwrap();
            let bytes = vec![0xBE; 64 * 4096];
            write(&*file, 0, &bytes);
            disk.set_fault(Some(Fault {
                kind,
                first_call: 0,
                is_lasting: false,
            }));
            assert!(matches!(file.sync(), Err(Error::Io { .. })));
            assert!(matches!(file.sync(), Err(Error::Poisoned { .. })));
            let seen = content(&*process, "a").unwrap();
            assert_eq!(seen == bytes, kind == FaultKind::SyncErrorPagesKept);
            // The bytes that are to replace the write are there, and no other part of it.
            file.write_after_failure(&[0x77; 4096], 0).unwrap();
            assert!(matches!(file.sync(), Err(Error::Poisoned { .. })));
            // Another handle's sync succeeds and writes nothing: the pages count as clean.
            open(&*process, "a").sync().unwrap();
            disk.cut_power(Damage::KeepAll);
            let left = content(&*disk.start_process(), "a").unwrap();
            assert_eq!(left[..4096], [0x77; 4096]);
            assert_ne!(left[4096..], bytes[4096..]);
            assert!(left.contains(&0xBE), "some pages reached the medium");
        }
    }

    #[test]
    fn faults_strike_the_call_they_were_set_for() {
        let disk = SimulatedDisk::new(1);
        let process = disk.start_process();
        let mut lasting = false;
        for _ in 0..2 {
            disk.set_fault(Some(Fault {
                kind: FaultKind::PunchUnsupported,
                first_call: 1,
                is_lasting: lasting,
            }));
            let file = open(&*process, "a");
            let results = [(); 4].map(|()| file.punch(0, 10).is_ok());
            assert_eq!(results, [true, false, !lasting, !lasting]);
            assert_eq!(disk.fault_call_count(), 4);
            lasting = true;
        }
        disk.set_fault(Some(Fault {
            kind: FaultKind::RenameAcrossDevices,
            first_call: 0,
            is_lasting: false,
        }));
        let error = process.rename("a", "b").unwrap_err().to_string();
        assert!(error.starts_with("rename a to b: "), "{error}");
        process.rename("a", "b").unwrap();
    }

    #[test]
    fn a_full_disk_takes_what_fits() {
        let disk = SimulatedDisk::new(1);
        disk.set_capacity_bytes(Some(10 * 4096));
        let process = disk.start_process();
        let file = open(&*process, "a");
        assert!(file.allocate(0, 11 * 4096).is_err());
        file.allocate(0, 6 * 4096).unwrap();
        let other = open(&*process, "b");
        let bytes = vec![1; 8 * 4096];
        let error = other.write_at(&[IoSlice::new(&bytes)], 0).unwrap_err();
        assert!(error.to_string().contains("No space left"), "{error}");
        assert_eq!(disk.allocated_bytes(), 10 * 4096);
        process.unlink("a").unwrap();
        assert_eq!(disk.allocated_bytes(), 10 * 4096);
        drop(file);
        assert_eq!(disk.allocated_bytes(), 4 * 4096);
    }

    /// The contents of a file after each of its changes since the last sync.
    type Versions = Vec<Vec<u8>>;

    fn sector(version: &[u8], number: usize) -> [u8; SECTOR_BYTES as usize] {
        let mut sector = [0; SECTOR_BYTES as usize];
        let start = (number * sector.len()).min(version.len());
        let end = (start + sector.len()).min(version.len());
        sector[..end - start].copy_from_slice(&version[start..end]);
        sector
    }

    /// Checks a crash image of one file against the model's rule. Every sector holds a version of itself or, in new
    /// space, anything. The size is that of a version.
    fn check_image(crash: &Crash, versions: &Versions) {
        let mut found = vec![0; crash.image.size_bytes("a") as usize];
        crash.image.read("a", 0, &mut found);
        let sizes = versions.iter().map(|version| version.len());
        assert!(sizes.clone().any(|size| size == found.len()), "{crash:?}");
        let mut strange = 0;
        for number in 0..found.len().div_ceil(SECTOR_BYTES as usize) {
            let is_known = versions.iter().any(|version| {
                // The cut of a smaller size hides the bytes behind it.
                let cut = &version[..version.len().min(found.len())];
                sector(cut, number) == sector(&found, number)
            });
            strange += usize::from(!is_known);
        }
        let allowed = match crash.damage {
            Damage::GarbageTail => usize::MAX,
            Damage::ZeroSector => 1,
            _ => 0,
        };
        assert!(
            strange <= allowed,
            "{strange} sectors in {:?}",
            crash.damage
        );
    }

    #[test]
    fn every_crash_image_follows_the_rule_of_the_model() {
        let mut random = Rng::with_seed(test_seed());
        let (mut images, mut distinct) = (0, std::collections::BTreeSet::new());
        for run in 0..40 {
            let disk = SimulatedDisk::new(run);
            let process = disk.start_process();
            let file = open(&*process, "a");
            process.sync_directory("").unwrap();
            // The versions each step of the recording can show, by the step's number.
            let mut versions: Vec<Versions> = vec![Vec::new(), Vec::new(), vec![Vec::new()]];
            for _ in 0..25 {
                let offset = random.usize(..12_000);
                let bytes: Vec<u8> = (0..random.usize(1..6000)).map(|_| random.u8(..)).collect();
                let mut next = versions.last().unwrap().clone();
                match random.u8(..6) {
                    0 => file.truncate(offset as u64).unwrap(),
                    1 => file.punch(offset as u64, bytes.len() as u64).unwrap(),
                    2 => {
                        file.sync().unwrap();
                        next.clear();
                    }
                    _ => write(&*file, offset as u64, &bytes),
                }
                next.push(content(&*process, "a").unwrap());
                versions.push(next);
            }
            disk.recording().for_each_crash(&Damage::ALL, run, |crash| {
                let versions = &versions[crash.step];
                if crash.step >= 2 && !versions.is_empty() {
                    check_image(&crash, versions);
                    images += 1;
                    let mut bytes = vec![0; crash.image.size_bytes("a") as usize];
                    crash.image.read("a", 0, &mut bytes);
                    distinct.insert(crc32c::crc32c(&bytes));
                }
            });
        }
        println!(
            "{images} images checked, {} of them distinct",
            distinct.len()
        );
        assert!(images > 10_000 && distinct.len() > 4000);
    }

    #[test]
    fn a_replay_ends_where_the_run_did() {
        let disk = SimulatedDisk::new(3);
        differential_test::check(&*disk.start_process(), 3000);
        let recording = disk.recording();
        let mut cached = disk.lock().cached.clone();
        cached.remove_orphans();
        cached.files.sort_by_key(|(inode, _)| *inode);
        let mut end = recording.end();
        end.view.files.sort_by_key(|(inode, _)| *inode);
        assert_eq!(end.view, cached);
        assert!(recording.write_count() > 300 && recording.step_count() > 1000);
    }

    #[test]
    fn a_lie_changes_one_write_and_no_sync_reveals_it() {
        let disk = SimulatedDisk::new(3);
        let process = disk.start_process();
        let file = open(&*process, "a");
        for number in 0..8u64 {
            write(&*file, number * 1024, &[number as u8 + 1; 1024]);
            file.sync().unwrap();
        }
        process.sync_directory("").unwrap();
        let recording = disk.recording();
        let read = |image: &Image| {
            let mut bytes = vec![0; 8 * 1024];
            image.read("a", 0, &mut bytes);
            bytes
        };
        let honest = read(&recording.end());
        for lie in Lie::ALL {
            for which in 0..8 {
                let lied = read(&recording.with_lie(which, lie, 5).end());
                assert_ne!(lied, honest, "{lie:?} {which}");
            }
        }
    }
}
