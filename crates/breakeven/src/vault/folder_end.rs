//! The far end of a vault in a folder: objects that appear whole under names that are free.
//!
//! Promises: when [`FarEnd::put`] returns, the object is durable with its name, or was there before. An object is
//! written under another name in its folder, synced, published, and the folder synced. After a failure in any step,
//! this far end refuses all changes until the vault is opened again.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::error::{Error, Result};
use crate::storage::{EntryKind, LockKind, OpenOptions, Storage, StorageFile};

use super::CONFIG;
use super::bytes::fail;
use super::copies::COPIES;
use super::far_end::{AddMark, FarEnd, Listed, Put, Turn, not_there};

/// The first byte of the names under which objects are written, in the folder where they will lie. One sync of that
/// folder makes both the file and its new name durable.
const TEMPORARY: char = '~';
/// The file that writers of a vault lock.
const TURN: &str = "locks/turn";
/// The byte of it that the holder of the turn locks.
const WRITING: Range<u64> = 0..1;
/// The byte of it that processes which add lock together.
const ADDING: Range<u64> = 1..2;
/// A vault belongs to the user who made it.
const OWN_MODE: u32 = 0o600;
/// The rights that a group may get.
const GROUP_MODE: u32 = 0o060;
/// The file that is deleted to make room for a change that gives some back.
const ROOM: &str = "locks/room";

/// The folder of a vault.
pub struct FolderEnd {
    storage: Arc<dyn Storage>,
    /// The mode of new files, once it is known.
    mode: OnceLock<u32>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Folders that are known to be there.
    folders: BTreeSet<String>,
    temporaries: u64,
    room: Room,
    failure: Option<String>,
}

const WRITES: &str = "another process writes to it; try again when that has ended";

/// The state of the room that is kept aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Room {
    /// It stays.
    #[default]
    Kept,
    /// It goes when there is no other room.
    Usable,
    /// It went.
    Used,
}

impl FolderEnd {
    /// Makes the far end in a storage's root.
    pub fn shared(storage: Arc<dyn Storage>) -> Arc<dyn FarEnd> {
        Arc::new(FolderEnd {
            storage,
            mode: OnceLock::new(),
            state: Mutex::new(State::default()),
        })
    }

    /// Returns how files are made: for their owner alone, and for the group as far as the vault's configuration is. So
    /// a vault that was given to a group (`chmod -R g+rwX`) gives it later objects, too.
    fn new_file(&self) -> OpenOptions {
        let of_config = || {
            let config = self.storage.open(CONFIG, OpenOptions::read_only()).ok()?;
            Some(config.status().ok()?.mode)
        };
        let mode = match self.mode.get() {
            Some(mode) => *mode,
            // A new vault has none yet.
            None => of_config().map_or(OWN_MODE, |mode| {
                *self.mode.get_or_init(|| OWN_MODE | mode & GROUP_MODE)
            }),
        };
        OpenOptions {
            write: true,
            create: true,
            mode,
            ..OpenOptions::default()
        }
    }

    /// Runs a change, unless an earlier one failed.
    fn change<T>(&self, work: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = &state.failure {
            return Err(Error::Poisoned {
                what: "vault".to_string(),
                cause: cause.clone(),
            });
        }
        let result = work(&mut state);
        if let Err(error) = &result {
            state.failure = Some(error.to_string());
        }
        result
    }

    /// Makes a new file. An old one is never taken: where publishing is linking, it may be an object's second name.
    fn temporary(&self, state: &mut State, folder: &str) -> Result<(String, Arc<dyn StorageFile>)> {
        loop {
            state.temporaries += 1;
            let name = format!("{TEMPORARY}{}.{}", std::process::id(), state.temporaries);
            let name = within(folder, &name);
            let new = OpenOptions {
                exclusive: true,
                ..self.new_file()
            };
            match self.storage.open(&name, new) {
                Err(error) if is_errno(&error, libc::EEXIST) => {}
                opened => return Ok((name, opened?)),
            }
        }
    }

    /// Writes a new file with this content, which is durable then; returns its name.
    fn write_temporary(&self, state: &mut State, folder: &str, bytes: &[u8]) -> Result<String> {
        let (temporary, file) = self.temporary(state, folder)?;
        let written = file.write_at(&[IoSlice::new(bytes)], 0);
        match written.and_then(|()| file.sync()) {
            Ok(()) => Ok(temporary),
            Err(error) => {
                // The room that it took is needed.
                let _ = self.storage.unlink(&temporary);
                Err(error)
            }
        }
    }

    fn put_in(&self, state: &mut State, name: &str, bytes: &[u8]) -> Result<Put> {
        let (folder, _) = name.rsplit_once('/').unwrap_or(("", name));
        self.make_folder(state, folder)?;
        let temporary = self.write_temporary(state, folder, bytes)?;
        let put = match self.storage.publish(&temporary, name) {
            Ok(()) => Put::Created,
            Err(error) if is_errno(&error, libc::EEXIST) => {
                self.storage.unlink(&temporary)?;
                Put::Exists
            }
            Err(error) => return Err(error),
        };
        // Also where it exists: the process that put it may have died before its name was durable.
        self.storage.sync_directory(folder)?;
        Ok(put)
    }

    /// Returns the lock of a byte of the turn, unless another has it.
    fn locked(&self, byte: Range<u64>) -> Result<Turn> {
        let file = self.open_turn()?;
        match file.try_lock(byte, LockKind::Exclusive)? {
            true => Ok(Turn::new(file)),
            false => Err(Error::invalid("vault", WRITES)),
        }
    }

    fn open_turn(&self) -> Result<Arc<dyn StorageFile>> {
        self.settle("locks")?;
        self.storage.open(TURN, self.new_file())
    }

    fn make_room(&self, size_bytes: u64) -> Result<()> {
        let file = self.storage.open(ROOM, self.new_file())?;
        match file.status()?.size_bytes < size_bytes {
            true => file.allocate(0, size_bytes),
            false => Ok(()),
        }
    }

    fn list_of(&self, folder: &str, kind: EntryKind) -> Result<Vec<String>> {
        match self.storage.list(folder) {
            Ok(entries) => {
                let entries = entries.into_iter().filter(|entry| entry.kind == kind);
                Ok(entries.map(|entry| entry.name).collect())
            }
            Err(error) if is_errno(&error, libc::ENOENT) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Hands out the names of files in a folder and below it.
    fn each_file(&self, folder: &str, below: &str, take: &mut dyn FnMut(String)) -> Result<()> {
        let path = within(folder, below);
        for name in self.list_of(path.trim_end_matches('/'), EntryKind::File)? {
            take(within(below, &name));
        }
        for name in self.list_of(path.trim_end_matches('/'), EntryKind::Folder)? {
            self.each_file(folder, &within(below, &name), take)?;
        }
        Ok(())
    }

    fn open(&self, name: &str) -> Result<(Arc<dyn StorageFile>, u64)> {
        let opened = self.storage.open(name, OpenOptions::read_only());
        let file = match opened {
            Err(error) if is_errno(&error, libc::ENOENT) => return Err(not_there(name)),
            opened => opened?,
        };
        let size_bytes = file.status()?.size_bytes;
        Ok((file, size_bytes))
    }

    fn make_folder(&self, state: &mut State, folder: &str) -> Result<()> {
        if folder.is_empty() || state.folders.contains(folder) {
            return Ok(());
        }
        let (above, _) = folder.rsplit_once('/').unwrap_or(("", folder));
        self.make_folder(state, above)?;
        self.storage.create_folder(folder)?;
        self.storage.sync_directory(above)?;
        state.folders.insert(folder.to_string());
        Ok(())
    }
}

impl FarEnd for FolderEnd {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        self.change(|state| match self.put_in(state, name, bytes) {
            Err(error) if error.is_out_of_space() && state.room == Room::Usable => {
                state.room = Room::Used;
                match self.storage.unlink(ROOM) {
                    Err(absent) if is_errno(&absent, libc::ENOENT) => return Err(error),
                    unlinked => unlinked?,
                }
                self.storage.sync_directory("locks")?;
                self.put_in(state, name, bytes)
            }
            put => put,
        })
    }

    fn keep_room(&self, size_bytes: u64) {
        if self.make_room(size_bytes).is_err() {
            // Others may need the room, and not every file system can reserve it.
            let _ = self.storage.unlink(ROOM);
        }
    }

    fn use_kept_room(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.room = Room::Usable;
    }

    fn is_short(&self) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.room == Room::Used
    }

    fn read(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>> {
        let (file, needed_bytes) = self.open(name)?;
        if needed_bytes > most_bytes {
            return Err(Error::Limit {
                what: "object",
                limit_bytes: most_bytes,
                needed_bytes,
            });
        }
        let mut bytes = vec![0; needed_bytes as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn read_range(&self, name: &str, offset: u64, length_bytes: usize) -> Result<Vec<u8>> {
        let (file, size_bytes) = self.open(name)?;
        check_range(name, offset, length_bytes, size_bytes)?;
        let mut bytes = vec![0; length_bytes];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn size_bytes(&self, name: &str) -> Result<Option<u64>> {
        match self.open(name) {
            Ok((_, size_bytes)) => Ok(Some(size_bytes)),
            Err(error) if is_errno(&error, libc::ENOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let mut listed = Vec::new();
        self.each_file(folder, "", &mut |name| {
            if !is_temporary(&name) {
                let size_bytes = None;
                listed.push(Listed { name, size_bytes });
            }
        })?;
        listed.sort();
        Ok(listed)
    }

    fn delete(&self, folder: &str, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        self.change(|_| {
            for name in names {
                match self.storage.unlink(&within(folder, name)) {
                    Err(error) if !is_errno(&error, libc::ENOENT) => return Err(error),
                    _ => {}
                }
            }
            match self.storage.sync_directory(folder) {
                // Names in a folder that is gone are gone.
                Err(error) if is_errno(&error, libc::ENOENT) => Ok(()),
                synced => synced,
            }
        })
    }

    fn take_turn(&self) -> Result<Turn> {
        self.locked(WRITING)
    }

    fn share(&self) -> Result<Box<dyn AddMark>> {
        let file = self.open_turn()?;
        if file.try_lock(ADDING, LockKind::Exclusive)? {
            self.clear("packs")?;
            self.clear(COPIES)?;
        }
        match file.try_lock(ADDING, LockKind::Shared)? {
            true => Ok(Box::new(Adding { file })),
            false => Err(Error::invalid("vault", WRITES)),
        }
    }

    fn exclude(&self) -> Result<Turn> {
        self.locked(ADDING)
    }

    fn break_turn(&self) -> Result<()> {
        // A process that holds a lock of the file keeps it, but no other finds that file any more.
        self.delete("locks", &["turn".to_string()])
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.change(|state| {
            self.make_folder(state, folder)?;
            self.storage.sync_directory(folder)
        })
    }

    fn clear(&self, folder: &str) -> Result<()> {
        let mut temporaries: Vec<String> = Vec::new();
        self.each_file(folder, "", &mut |name| {
            if is_temporary(&name) {
                temporaries.push(within(folder, &name));
            }
        })?;
        for path in temporaries {
            let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
            self.delete(folder, &[name.to_string()])?;
        }
        Ok(())
    }
}

/// The lock of a process that adds.
struct Adding {
    file: Arc<dyn StorageFile>,
}

impl AddMark for Adding {
    fn has_others(&self) -> Result<bool> {
        let other = self.file.first_conflict(ADDING, LockKind::Exclusive)?;
        Ok(other.is_some())
    }
}

fn is_temporary(name: &str) -> bool {
    let (_, last) = name.rsplit_once('/').unwrap_or(("", name));
    last.starts_with(TEMPORARY)
}

/// Checks that a range lies within an object.
pub(super) fn check_range(
    name: &str,
    offset: u64,
    length_bytes: usize,
    size_bytes: u64,
) -> Result<()> {
    if offset.saturating_add(length_bytes as u64) > size_bytes {
        let expected = format!("{length_bytes} bytes of {name}");
        let found = format!("{size_bytes} in all");
        return Err(fail("object", offset, expected, found));
    }
    Ok(())
}

/// Returns the path of a name in a folder, the root among them.
pub(super) fn within(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_string(),
        _ => format!("{folder}/{name}"),
    }
}

pub(super) fn is_errno(error: &Error, errno: i32) -> bool {
    matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(errno))
}
