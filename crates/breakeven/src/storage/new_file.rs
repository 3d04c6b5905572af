//! Files of the seam that get their name when they are whole; until then they have one of `unfinished`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::unfinished::{MADE, MakingFolder, folder_of, make};
use super::{LockKind, OpenOptions, Storage, StorageFile};
use crate::error::{Error, Result};

/// An unfinished file of the seam. If dropped, it stays for the next maker to remove: [`Unfinished::publish`] gives it
/// its name, [`Unfinished::give_up`] removes it.
pub(crate) struct Unfinished<'a> {
    storage: &'a dyn Storage,
    name: String,
    file: Arc<dyn StorageFile>,
}

/// A folder of the seam, and the mode of new files in it.
struct SeamFolder<'a> {
    storage: &'a dyn Storage,
    folder: &'a str,
    mode: u32,
}

impl<'a> Unfinished<'a> {
    /// Makes an empty file in the folder of `target`.
    ///
    /// # Errors
    /// Errors of making a file there.
    pub(crate) fn begin(
        storage: &'a dyn Storage,
        target: &'a str,
        mode: u32,
    ) -> Result<Unfinished<'a>> {
        let folder = SeamFolder {
            storage,
            folder: folder_of(target),
            mode,
        };
        let (name, file) = make(&folder)?;
        Ok(Unfinished {
            storage,
            name: folder.within(&name),
            file,
        })
    }

    /// Returns its name until then.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns its handle, which keeps its lock.
    pub(crate) fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// Gives it its name, which must be free, and makes that durable; removes a file that cannot have the name.
    ///
    /// # Errors
    /// [`Error::Io`] if a file of that name exists, and errors of renaming and syncing.
    pub(crate) fn publish(self, target: &str) -> Result<()> {
        match self.storage.publish(&self.name, target) {
            Ok(()) => self.storage.sync_directory(folder_of(target)),
            Err(error) => {
                self.give_up();
                Err(error)
            }
        }
    }

    /// Returns an error with the name of `target` where it has this file's, which nobody asked for.
    pub(crate) fn error(&self, error: Error, target: &str) -> Error {
        match error {
            Error::Io {
                operation,
                path,
                source,
            } if path.ends_with(&self.name) => {
                let target = Path::new(target).file_name().unwrap_or_default();
                Error::io(operation, path.with_file_name(target), source)
            }
            error => error,
        }
    }

    /// Removes it. The failure that led here matters more than a failed removal.
    pub(crate) fn give_up(self) {
        // Where names cannot be removed, at least the room is freed.
        if self.storage.unlink(&self.name).is_err() {
            let _ = self.file.truncate(0);
        }
    }
}

impl SeamFolder<'_> {
    fn within(&self, name: &str) -> String {
        match self.folder {
            "" => name.to_string(),
            folder => format!("{folder}/{name}"),
        }
    }
}

impl MakingFolder for SeamFolder<'_> {
    type File = Arc<dyn StorageFile>;

    fn make(&self, name: &str) -> Result<Self::File> {
        let new = OpenOptions {
            mode: self.mode,
            ..OpenOptions::create_new()
        };
        self.storage.open(&self.within(name), new)
    }

    fn open(&self, name: &str) -> Result<Self::File> {
        self.storage
            .open(&self.within(name), OpenOptions::default())
    }

    fn lock(&self, file: &Self::File) -> Result<bool> {
        file.try_lock(MADE, LockKind::Exclusive)
    }

    fn leads_to(&self, name: &str, file: &Self::File) -> Result<bool> {
        let named = self
            .storage
            .open(&self.within(name), OpenOptions::default());
        match named {
            Ok(named) => Ok(named.status()?.identity == file.status()?.identity),
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.storage.unlink(&self.within(name))
    }

    fn has_locks(&self) -> bool {
        self.storage.has_locks()
    }
}

/// Refuses a taken name, before anybody waits for a file that cannot have it.
///
/// # Errors
/// [`Error::Io`] (EEXIST).
pub(crate) fn check_free(storage: &dyn Storage, name: &str) -> Result<()> {
    let path = match storage.open(name, OpenOptions::read_only()) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(Error::Io { path, source, .. }) => match source.raw_os_error() {
            // Then nothing is known of the name.
            Some(libc::EMFILE | libc::ENFILE) => return Err(Error::io("create", path, source)),
            _ => path,
        },
        Err(_) => name.into(),
        Ok(file) => file.path().to_path_buf(),
    };
    let taken = io::Error::from_raw_os_error(libc::EEXIST);
    Err(Error::io("create", path, taken))
}
