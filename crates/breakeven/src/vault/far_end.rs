//! The far end of a vault in a folder: objects that appear whole under names that are free.
//!
//! Promises: when [`FarEnd::put`] returns, the object is durable with its name, or was there before. An object is
//! written under another name in its folder, synced, published, and the folder synced. After a failure in
//! any of that, this far end refuses to change anything until the vault is opened again.

use std::collections::BTreeSet;
use std::io::IoSlice;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::storage::{EntryKind, LockKind, OpenOptions, Storage, StorageFile};

use super::bytes::fail;

/// What names begin with that objects are written under, in the folder where they will lie: one sync of it makes
/// both the file and its new name durable.
const TEMPORARY: char = '~';
/// What the writer of a vault holds a lock of.
const TURN: &str = "locks/turn";

/// What became of an object that was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there now.
    Created,
    /// Another object has that name; nothing was changed.
    Exists,
}

/// The folder of a vault.
pub struct FarEnd {
    storage: Arc<dyn Storage>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Folders that are known to be there.
    folders: BTreeSet<String>,
    temporaries: u64,
    failure: Option<String>,
}

/// The turn to write; it ends when this is dropped, or with its process.
pub(super) struct Turn {
    _file: Arc<dyn StorageFile>,
}

impl FarEnd {
    /// Makes the far end in a storage's root.
    pub fn new(storage: Arc<dyn Storage>) -> FarEnd {
        FarEnd {
            storage,
            state: Mutex::new(State::default()),
        }
    }

    /// Runs what changes something, unless something failed before.
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

    /// Puts an object under a name, unless the name is taken.
    ///
    /// # Errors
    /// Those of the storage. Whether the object is there is then unknown.
    pub fn put(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        let (folder, _) = name.rsplit_once('/').unwrap_or(("", name));
        self.change(|state| {
            self.make_folder(state, folder)?;
            let (temporary, file) = self.temporary(state, folder)?;
            file.write_at(&[IoSlice::new(bytes)], 0)?;
            file.sync()?;
            drop(file);
            let put = match self.storage.publish(&temporary, name) {
                Ok(()) => Put::Created,
                Err(error) if is_errno(&error, libc::EEXIST) => {
                    self.storage.unlink(&temporary)?;
                    Put::Exists
                }
                Err(error) => return Err(error),
            };
            // Also where it exists: whoever put it may have died before its name was durable.
            self.storage.sync_directory(folder)?;
            Ok(put)
        })
    }

    /// Makes a new file. An old one is never taken: where publishing is linking, it may be an object's second name.
    fn temporary(&self, state: &mut State, folder: &str) -> Result<(String, Arc<dyn StorageFile>)> {
        loop {
            state.temporaries += 1;
            let name = format!("{TEMPORARY}{}.{}", std::process::id(), state.temporaries);
            let name = within(folder, &name);
            match self.storage.open(&name, OpenOptions::create_new()) {
                Err(error) if is_errno(&error, libc::EEXIST) => {}
                opened => return Ok((name, opened?)),
            }
        }
    }

    /// Reads a whole object of at most `most_bytes`.
    ///
    /// # Errors
    /// [`Error::Limit`] for a longer one, and those of the storage.
    pub fn read(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>> {
        let file = self.storage.open(name, OpenOptions::read_only())?;
        let needed_bytes = file.status()?.size_bytes;
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

    /// Reads a part of an object, which must have all of it.
    ///
    /// # Errors
    /// Those of the storage, and [`Error::Corrupt`] where the object is shorter.
    pub fn read_range(&self, name: &str, offset: u64, length_bytes: usize) -> Result<Vec<u8>> {
        let file = self.storage.open(name, OpenOptions::read_only())?;
        let size_bytes = file.status()?.size_bytes;
        if offset.saturating_add(length_bytes as u64) > size_bytes {
            let expected = format!("{length_bytes} bytes of {name}");
            return Err(fail(
                "object",
                offset,
                expected,
                format!("{size_bytes} in all"),
            ));
        }
        let mut bytes = vec![0; length_bytes];
        file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Returns the size of an object.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn size_bytes(&self, name: &str) -> Result<u64> {
        let file = self.storage.open(name, OpenOptions::read_only())?;
        Ok(file.status()?.size_bytes)
    }

    /// Lists the objects directly in a folder, sorted; none if there is no such folder.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn list(&self, folder: &str) -> Result<Vec<String>> {
        let mut names = self.list_of(folder, EntryKind::File)?;
        names.retain(|name| !name.starts_with(TEMPORARY));
        Ok(names)
    }

    /// Lists the folders directly in a folder, sorted.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn list_folders(&self, folder: &str) -> Result<Vec<String>> {
        self.list_of(folder, EntryKind::Folder)
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

    /// Deletes objects of one folder; those that are not there are no error.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn delete(&self, folder: &str, names: &[String]) -> Result<()> {
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
            self.storage.sync_directory(folder)
        })
    }

    /// Makes the names in a folder durable, which whoever put them may not have done.
    pub(super) fn settle(&self, folder: &str) -> Result<()> {
        self.change(|state| {
            self.make_folder(state, folder)?;
            self.storage.sync_directory(folder)
        })
    }

    /// Makes a folder with all above it, durably.
    pub(super) fn make_folders(&self, folders: &[&str]) -> Result<()> {
        self.change(|state| {
            let mut folders = folders.iter();
            folders.try_for_each(|folder| self.make_folder(state, folder))
        })
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

    /// Takes the turn to write, unless another process has it.
    pub(super) fn take_turn(&self) -> Result<Turn> {
        let options = OpenOptions {
            write: true,
            create: true,
            ..OpenOptions::default()
        };
        let file = self.storage.open(TURN, options)?;
        if !file.try_lock(0..1, LockKind::Exclusive)? {
            let reason = "another process writes to it; try again when that has ended";
            return Err(Error::invalid("vault", reason));
        }
        Ok(Turn { _file: file })
    }

    /// Removes what writers left that died; for the one who has the turn.
    pub(super) fn clear_temporaries(&self, folder: &str) -> Result<()> {
        let mut names = self.list_of(folder, EntryKind::File)?;
        names.retain(|name| name.starts_with(TEMPORARY));
        self.delete(folder, &names)
    }
}

fn within(folder: &str, name: &str) -> String {
    match folder {
        "" => name.to_string(),
        _ => format!("{folder}/{name}"),
    }
}

pub(super) fn is_errno(error: &Error, errno: i32) -> bool {
    matches!(error, Error::Io { source, .. } if source.raw_os_error() == Some(errno))
}
