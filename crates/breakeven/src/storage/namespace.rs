//! Names and folders in memory, with the errors the system gives for them.
//!
//! [`MemoryStorage`](crate::storage::MemoryStorage) and the simulated disk share it, and the name
//! rules are checked here for all three implementations. `T` stands for a file.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::error::{Error, Result};
use crate::storage::{Entry, EntryKind, OpenOptions};

/// The longest part of a name, as on all Linux file systems.
const PART_BYTES_MAX: usize = 255;
/// The longest name, as the system takes it.
const NAME_BYTES_MAX: usize = 4095;

/// Files and folders by their full name; the root folder is `""` and always there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Namespace<T> {
    files: BTreeMap<String, T>,
    folders: BTreeSet<String>,
}

/// Checks that `name` is a relative path that cannot leave its root.
pub(super) fn check_name(name: &str) -> Result<()> {
    check_bytes(name.as_bytes())
}

fn check_bytes(name: &[u8]) -> Result<()> {
    let fault = |part: &[u8]| {
        if part.is_empty() {
            Some("an empty part")
        } else if part == b"." || part == b".." {
            Some("a part '.' or '..'")
        } else if part.contains(&0) {
            Some("a NUL")
        } else if part.len() > PART_BYTES_MAX {
            Some("a part over 255 bytes")
        } else {
            None
        }
    };
    let found = match name.split(|byte| *byte == b'/').find_map(fault) {
        None if name.len() > NAME_BYTES_MAX => Some("over 4095 bytes"),
        found => found,
    };
    match found {
        None => Ok(()),
        Some(fault) => {
            let name = String::from_utf8_lossy(name);
            Err(Error::invalid("file name", format!("{name:?} has {fault}")))
        }
    }
}

/// Translates a name of the system into one of the seam. A byte that is not UTF-8 becomes a NUL, which no name has, and
/// two hexadecimal digits. So a suffix of a name is a suffix in the system too.
pub(super) fn name_of_system(name: &OsStr) -> String {
    let mut seam = String::new();
    for chunk in name.as_bytes().utf8_chunks() {
        seam.push_str(chunk.valid());
        seam.extend(chunk.invalid().iter().map(|byte| format!("\0{byte:02x}")));
    }
    seam
}

/// Translates a result of [`name_of_system`] back, and checks it as [`check_name`] does.
pub(super) fn system_name(name: &str) -> Result<Cow<'_, OsStr>> {
    let system = decoded(name);
    check_bytes(system.as_bytes())?;
    Ok(system)
}

fn decoded(name: &str) -> Cow<'_, OsStr> {
    let mut pieces = name.split('\0');
    let first = pieces.next().unwrap_or_default();
    if first.len() == name.len() {
        return Cow::Borrowed(OsStr::new(name));
    }
    let mut bytes = first.as_bytes().to_vec();
    for piece in pieces {
        let digits = piece.get(..2).filter(|it| it.is_ascii());
        match digits.and_then(|it| u8::from_str_radix(it, 16).ok()) {
            // Others are UTF-8 by themselves, or mean something in a name.
            Some(byte @ 0x80..) => {
                bytes.push(byte);
                bytes.extend_from_slice(&piece.as_bytes()[2..]);
            }
            _ => {
                bytes.push(0);
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    Cow::Owned(OsString::from_vec(bytes))
}

/// Checks the name of a folder, where `""` is the root.
pub(super) fn check_folder(folder: &str) -> Result<()> {
    if folder.is_empty() {
        return Ok(());
    }
    check_name(folder)
}

/// Splits a name into its folder and its last part.
pub(super) fn split_name(name: &str) -> (&str, &str) {
    name.rsplit_once('/').unwrap_or(("", name))
}

/// As [`split_name`], for a name of the system.
pub(super) fn split_system_name(name: &OsStr) -> (&OsStr, &OsStr) {
    let bytes = name.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (
            OsStr::from_bytes(&bytes[..at]),
            OsStr::from_bytes(&bytes[at + 1..]),
        ),
        None => (OsStr::new(""), name),
    }
}

impl<T> Default for Namespace<T> {
    fn default() -> Namespace<T> {
        Namespace {
            files: BTreeMap::new(),
            folders: BTreeSet::from([String::new()]),
        }
    }
}

impl<T: Clone> Namespace<T> {
    /// Opens the file of that name, or creates it with `make` if the options say so; returns
    /// whether it is new.
    pub(super) fn open(
        &mut self,
        name: &str,
        options: OpenOptions,
        make: impl FnOnce() -> T,
    ) -> io::Result<(T, bool)> {
        self.check_ancestors(name)?;
        let exists = self.files.contains_key(name) || self.folders.contains(name);
        if exists && options.exclusive {
            return Err(failure(libc::EEXIST));
        }
        match self.lookup(name)? {
            Some(file) => Ok((file, false)),
            None if options.create => {
                let file = make();
                self.files.insert(name.to_string(), file.clone());
                Ok((file, true))
            }
            None => Err(failure(libc::ENOENT)),
        }
    }

    /// Removes the name of a file and returns the file.
    pub(super) fn unlink(&mut self, name: &str) -> io::Result<T> {
        self.lookup(name)?;
        self.files.remove(name).ok_or_else(|| failure(libc::ENOENT))
    }

    /// Renames a file and returns it, with the file it replaced.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> io::Result<(T, Option<T>)> {
        self.check_ancestors(from)?;
        self.check_ancestors(to)?;
        let file = self.lookup(from)?.ok_or_else(|| failure(libc::ENOENT))?;
        if from.starts_with(&format!("{to}/")) {
            return Err(failure(libc::ENOTEMPTY));
        }
        let replaced = self.lookup(to)?;
        if from == to {
            return Ok((file, None));
        }
        self.files.remove(from);
        self.files.insert(to.to_string(), file.clone());
        Ok((file, replaced))
    }

    /// Renames a file to a name that is free, and returns it.
    pub(super) fn publish(&mut self, from: &str, to: &str) -> io::Result<T> {
        self.check_ancestors(from)?;
        self.check_ancestors(to)?;
        self.lookup(from)?.ok_or_else(|| failure(libc::ENOENT))?;
        if self.files.contains_key(to) || self.folders.contains(to) {
            return Err(failure(libc::EEXIST));
        }
        self.rename(from, to).map(|(file, _)| file)
    }

    /// Removes an empty folder.
    pub(super) fn remove_folder(&mut self, folder: &str) -> io::Result<()> {
        self.check_is_folder(folder)?;
        if !self.list(folder)?.is_empty() {
            return Err(failure(libc::ENOTEMPTY));
        }
        self.forget_folder(folder);
        Ok(())
    }

    /// Creates a folder; returns whether it is new.
    pub(super) fn create_folder(&mut self, folder: &str) -> io::Result<bool> {
        self.check_ancestors(folder)?;
        if self.files.contains_key(folder) {
            return Err(failure(libc::EEXIST));
        }
        Ok(self.folders.insert(folder.to_string()))
    }

    /// Checks that `folder` is a folder.
    pub(super) fn check_is_folder(&self, folder: &str) -> io::Result<()> {
        self.check_ancestors(folder)?;
        if self.folders.contains(folder) {
            return Ok(());
        }
        let is_file = self.files.contains_key(folder);
        Err(failure(if is_file { libc::ENOTDIR } else { libc::ENOENT }))
    }

    /// Lists the entries directly in `folder`, sorted.
    pub(super) fn list(&self, folder: &str) -> io::Result<Vec<Entry>> {
        self.check_is_folder(folder)?;
        let entry = |name: &String, kind| {
            let (parent, last) = split_name(name);
            let name = last.to_string();
            (parent == folder && !last.is_empty()).then_some(Entry { name, kind })
        };
        let prefix = match folder {
            "" => String::new(),
            folder => format!("{folder}/"),
        };
        let is_below = |name: &&String| name.starts_with(&prefix);
        let files = (self.files.range(prefix.clone()..)).map(|(name, _)| name);
        let files = (files.take_while(is_below)).filter_map(|name| entry(name, EntryKind::File));
        let folders = self.folders.range(prefix.clone()..).take_while(is_below);
        let folders = folders.filter_map(|name| entry(name, EntryKind::Folder));
        let mut entries: Vec<Entry> = files.chain(folders).collect();
        entries.sort_unstable();
        Ok(entries)
    }

    /// Names a file, over any former use of the name: some changes may be missing from a replay.
    pub(super) fn link(&mut self, name: &str, file: T) {
        self.folders.remove(name);
        self.files.insert(name.to_string(), file);
    }

    /// Makes a folder, over any former use of the name.
    pub(super) fn link_folder(&mut self, folder: &str) {
        self.files.remove(folder);
        self.folders.insert(folder.to_string());
    }

    /// Removes the name of a file if it is there.
    pub(super) fn forget(&mut self, name: &str) {
        self.files.remove(name);
    }

    /// Removes a folder if it is there, with any contents.
    pub(super) fn forget_folder(&mut self, folder: &str) {
        self.folders.remove(folder);
    }

    /// Forgets names whose folder is gone.
    pub(super) fn remove_orphans(&mut self) {
        // Folders sort before their contents, so one pass sees parents first.
        for folder in std::mem::take(&mut self.folders) {
            if folder.is_empty() || self.folders.contains(split_name(&folder).0) {
                self.folders.insert(folder);
            }
        }
        let Namespace { files, folders } = self;
        files.retain(|name, _| folders.contains(split_name(name).0));
    }

    /// Returns all files by their full name, sorted.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &T)> {
        self.files.iter().map(|(name, file)| (name.as_str(), file))
    }

    fn lookup(&self, name: &str) -> io::Result<Option<T>> {
        self.check_ancestors(name)?;
        if self.folders.contains(name) {
            return Err(failure(libc::EISDIR));
        }
        Ok(self.files.get(name).cloned())
    }

    fn check_ancestors(&self, name: &str) -> io::Result<()> {
        for (at, _) in name.match_indices('/') {
            let ancestor = &name[..at];
            if self.files.contains_key(ancestor) {
                return Err(failure(libc::ENOTDIR));
            }
            if !self.folders.contains(ancestor) {
                return Err(failure(libc::ENOENT));
            }
        }
        Ok(())
    }
}

fn failure(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, expected: bool) {
        let result = check_name(name);
        assert_eq!(result.is_ok(), expected, "{name:?}: {result:?}");
    }

    #[test]
    fn names_cannot_leave_the_root() {
        check("a", true);
        check("a/b.c/d", true);
        check("...", true);
        check(&"x".repeat(255), true);
        for name in [
            "", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/.", "a\0b",
        ] {
            check(name, false);
        }
        check(&"x".repeat(256), false);
        check(&"x/".repeat(2500), false);
        assert!(check_folder("").is_ok());
    }

    #[test]
    fn names_of_the_system_go_in_and_out_whatever_their_bytes() {
        let check = |bytes: &[u8], seam: &str| {
            assert_eq!(name_of_system(OsStr::from_bytes(bytes)), seam);
            assert_eq!(system_name(seam).unwrap().as_bytes(), bytes);
        };
        check(b"app.db", "app.db");
        check("\u{fffd}\u{e9}".as_bytes(), "\u{fffd}\u{e9}");
        check(b"\xff.db", "\0ff.db");
        check(b"a\xc3/\xe2\x82", "a\0c3/\0e2\0\u{38}2");
        check(
            b"\xff-wal",
            &(name_of_system(OsStr::from_bytes(b"\xff")) + "-wal"),
        );
        // No other name has the sign.
        for name in [
            "\0", "\x002f", "\x0000", "a\x002e", "\0f", "\0\u{e9}", "\0gg",
        ] {
            assert!(system_name(name).is_err(), "{name:?}");
        }
        assert!(
            system_name(&"\0ff".repeat(255)).is_ok() && system_name(&"\0ff".repeat(256)).is_err()
        );
    }
}
