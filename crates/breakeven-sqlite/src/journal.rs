//! The rollback journal of a compressed database: in memory, and in a file without a name when it grows.
//!
//! It serves a ROLLBACK of the process that writes it. After a crash nobody wants it: a transaction that
//! was not committed is not in the database. So it is never synced, and no other process sees it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// What a journal keeps in memory: VACUUM journals every page of the database.
pub const MEMORY_BYTES_MAX: u64 = 64 << 20;

/// A journal.
#[derive(Default)]
pub struct Journal {
    memory: Vec<u8>,
    /// All of it, from when it was too long on.
    file: Option<File>,
    size_bytes: u64,
}

impl Journal {
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
            let file = unnamed()?;
            file.write_all_at(&self.memory, 0)?;
            self.memory = Vec::new();
            self.file = Some(file);
        }
        match &self.file {
            Some(file) => file.write_all_at(source, offset)?,
            None => {
                let (start, end) = (offset as usize, end as usize);
                if self.memory.len() < end {
                    self.memory.resize(end, 0);
                }
                self.memory[start..end].copy_from_slice(source);
            }
        }
        self.size_bytes = self.size_bytes.max(end);
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

/// Makes a file without a name in the folder for what is temporary.
fn unnamed() -> io::Result<File> {
    breakeven::storage::beside::nameless(&std::env::temp_dir()).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_is_the_same_in_memory_and_in_a_file() {
        let mut journal = Journal::default();
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
}
