//! The rollback journal of a compressed database: in memory, and in a file without a name when it grows.
//!
//! It serves a ROLLBACK of the process that writes it. After a crash nobody wants it: a transaction that was not
//! committed is not in the database. So it is never synced, and no other process sees it. The file lies in the
//! database's folder, as SQLite's own would. Where that has no room left, it lies in the folders for temporary files,
//! in SQLite's order.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use breakeven::storage::beside;

use crate::fork;

/// The memory of a journal: VACUUM journals every page of the database.
pub const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// The bytes of a journal that are copied at a time to a place with more room.
const COPY_BYTES: usize = 1 << 20;
/// The folders for temporary files that are tried behind those of the environment, as `os_unix.c` has them.
const FOLDERS: [&str; 3] = ["/var/tmp", "/usr/tmp", "/tmp"];
/// The variables that name such folders, as `os_unix.c` has them.
const VARIABLES: [&str; 2] = ["SQLITE_TMPDIR", "TMPDIR"];

/// A journal.
pub struct Journal {
    memory: Vec<u8>,
    /// All of it, from when it was too long on.
    file: Option<File>,
    size_bytes: u64,
    /// Where no file was tried yet.
    folders: VecDeque<PathBuf>,
    /// A child made by `fork` has the file in common with its parent.
    forks: u32,
}

impl Journal {
    /// Makes one for a database in a folder.
    pub fn new(folder: &Path) -> Journal {
        let told = VARIABLES
            .iter()
            .filter_map(std::env::var_os)
            .map(PathBuf::from);
        let usual = FOLDERS.iter().map(PathBuf::from);
        Journal {
            memory: Vec::new(),
            file: None,
            size_bytes: 0,
            folders: std::iter::once(folder.to_path_buf())
                .chain(told)
                .chain(usual)
                .collect(),
            forks: fork::count(),
        }
    }

    /// Returns whether it is its parent's, in a child made by `fork`.
    pub fn is_elsewhere(&self) -> bool {
        self.forks != fork::count()
    }

    /// Returns its length.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Reads at `offset`; returns how many bytes there are.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> io::Result<usize> {
        let there = self.size_bytes.saturating_sub(offset);
        let count = there.min(target.len() as u64) as usize;
        match &self.file {
            Some(file) => file.read_exact_at(&mut target[..count], offset)?,
            None if count > 0 => {
                let start = offset as usize;
                target[..count].copy_from_slice(&self.memory[start..start + count]);
            }
            None => {}
        }
        Ok(count)
    }

    /// Writes at `offset`; a gap is zeros.
    pub fn write(&mut self, offset: u64, source: &[u8]) -> io::Result<()> {
        let end = offset + source.len() as u64;
        if self.file.is_none() && end > MEMORY_BYTES_MAX {
            self.move_on(io::ErrorKind::StorageFull.into())?;
        }
        // There are as many tries as folders.
        while let Some(file) = &self.file {
            match file.write_all_at(source, offset) {
                Err(error) if is_no_room(&error) => self.move_on(error)?,
                written => {
                    written?;
                    break;
                }
            }
        }
        if self.file.is_none() {
            let (start, end) = (offset as usize, end as usize);
            if self.memory.len() < end {
                self.memory.resize(end, 0);
            }
            self.memory[start..end].copy_from_slice(source);
        }
        self.size_bytes = self.size_bytes.max(end);
        Ok(())
    }

    /// Moves the journal to a file in the next folder that has room for it. Fails with the last folder's error where
    /// none has.
    fn move_on(&mut self, mut reason: io::Error) -> io::Result<()> {
        while let Some(folder) = self.folders.pop_front() {
            let made = beside::nameless(&folder).map_err(io::Error::other);
            match made.and_then(|file| self.copy_to(&file).map(|()| file)) {
                Ok(file) => {
                    self.file = Some(file);
                    self.memory = Vec::new();
                    return Ok(());
                }
                Err(error) if is_no_room(&error) => reason = error,
                // Folders that are not there, or not for this user, say nothing of room.
                Err(_) => {}
            }
        }
        Err(reason)
    }

    fn copy_to(&self, target: &File) -> io::Result<()> {
        if self.file.is_none() {
            return target.write_all_at(&self.memory, 0);
        }
        let mut piece = vec![0; COPY_BYTES];
        for offset in (0..self.size_bytes).step_by(COPY_BYTES) {
            let count = self.read(offset, &mut piece)?;
            target.write_all_at(&piece[..count], offset)?;
        }
        Ok(())
    }

    /// Cuts it, or makes it longer by zeros.
    pub fn truncate(&mut self, size_bytes: u64) -> io::Result<()> {
        match &self.file {
            Some(file) => file.set_len(size_bytes)?,
            None if size_bytes > MEMORY_BYTES_MAX => return self.write(size_bytes - 1, &[0]),
            None => {
                self.memory.resize(size_bytes as usize, 0);
                self.memory.shrink_to(1 << 20);
            }
        }
        self.size_bytes = size_bytes;
        Ok(())
    }
}

fn is_no_room(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_the_same_in_memory_and_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(folder.path());
        journal.write(3, b"abc").unwrap();
        let mut found = [9; 8];
        assert_eq!(journal.read(1, &mut found).unwrap(), 5);
        assert_eq!(found, [0, 0, b'a', b'b', b'c', 9, 9, 9]);
        journal.write(MEMORY_BYTES_MAX, b"end").unwrap();
        assert!(journal.file.is_some() && journal.memory.is_empty());
        assert_eq!(journal.size_bytes(), MEMORY_BYTES_MAX + 3);
        assert_eq!(journal.read(4, &mut found[..2]).unwrap(), 2);
        assert_eq!(&found[..2], b"bc");
        assert_eq!(journal.read(MEMORY_BYTES_MAX + 1, &mut found).unwrap(), 2);
        assert_eq!(&found[..2], b"nd");
        journal.truncate(4).unwrap();
        assert_eq!(journal.read(3, &mut found).unwrap(), 1);
    }

    #[test]
    fn a_journal_goes_on_where_there_is_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::new(&folder.path().join("none"));
        journal.folders.insert(1, folder.path().to_path_buf());
        journal.write(5, b"early").unwrap();
        journal.write(MEMORY_BYTES_MAX, b"late").unwrap();
        // As if the folder were full from here on.
        let second = tempfile::tempdir().unwrap();
        journal.folders.push_front(second.path().to_path_buf());
        journal.move_on(io::ErrorKind::StorageFull.into()).unwrap();
        let mut found = [0; 5];
        assert_eq!(journal.read(5, &mut found).unwrap(), 5);
        assert_eq!(&found, b"early");
        assert_eq!(journal.read(MEMORY_BYTES_MAX, &mut found).unwrap(), 4);
        assert_eq!(&found[..4], b"late");
        journal.folders.clear();
        let refused = journal.move_on(io::ErrorKind::QuotaExceeded.into());
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(journal.read(5, &mut found).unwrap(), 5);
    }
}
