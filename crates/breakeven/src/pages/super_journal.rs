//! One part of a transaction over several databases. A journal beside a compressed database names the transaction's
//! super-journal. SQLite removes the super-journal when all parts are durable (`docs/format.md`).
//!
//! The commit has the name too, and that alone decides for this database. The journal is for SQLite's own recovery of
//! the other parts: it removes a super-journal that no journal names any more. It begins with a zero, so that SQLite
//! plays nothing of it back.

use std::ffi::OsStr;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::blocks::COORDINATOR_BYTES_MAX;
use crate::error::{Error, Result};
use crate::storage::new_file::Unfinished;
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::{OpenOptions, Storage, StorageFile};

/// The first bytes of such a journal.
const HEAD: &[u8; 16] = b"\0breakeven part\0";
/// The end of every journal that names a super-journal, behind the name: its length, the sum of its bytes, and this
/// (`writeSuperJournal` of SQLite's `pager.c`).
const TAIL: [u8; 8] = [0xD9, 0xD5, 0x05, 0xF9, 0x20, 0xA1, 0x63, 0xD7];
const TAIL_BYTES: u64 = 16;
/// The longest name: the room for it in a commit.
const NAME_BYTES_MAX: u64 = COORDINATOR_BYTES_MAX as u64;
/// The longest super-journal: a name for each of the 127 databases in SQLite's largest transaction.
const SUPER_BYTES_MAX: u64 = 128 * NAME_BYTES_MAX;

/// Finds the folder of a file at any path, and its name there.
pub(super) type Paths = dyn Fn(&Path) -> Result<(Arc<dyn Storage>, String)> + Send + Sync;

/// Returns whether a file beside a compressed database is the journal of its part of a transaction over several
/// databases. `first` has the file's first bytes.
pub fn is_part_journal(first: &[u8]) -> bool {
    first.starts_with(HEAD)
}

/// The journal of a compressed database.
pub(super) struct PartJournal {
    storage: Arc<dyn Storage>,
    name: String,
    paths: Arc<Paths>,
}

impl PartJournal {
    /// Names the journal of a database in a folder.
    pub(super) fn new(storage: &Arc<dyn Storage>, database: &str, paths: &Arc<Paths>) -> Self {
        PartJournal {
            storage: Arc::clone(storage),
            name: format!("{database}-journal"),
            paths: Arc::clone(paths),
        }
    }

    /// Records durably that the database has a part in the transaction of a super-journal.
    ///
    /// # Errors
    /// [`Error::Io`] if another journal is there, and those of writing and syncing. There is no such journal then.
    pub(super) fn begin(self, super_journal: &[u8], mode: u32) -> Result<AttachedPart> {
        // An earlier journal says nothing any more: its commit has ended.
        self.remove()?;
        // Others' recovery must be able to read it, whoever wrote it.
        let unfinished = Unfinished::begin(&*self.storage, &self.name, mode | 0o444)?;
        match write(&**unfinished.file(), super_journal) {
            Ok(()) if is_seeded(SeededBug::PartUntold) => unfinished.give_up(),
            Ok(()) => unfinished.publish(&self.name)?,
            Err(error) => {
                unfinished.give_up();
                return Err(error);
            }
        }
        Ok(AttachedPart {
            journal: self,
            super_journal: super_journal.into(),
        })
    }

    /// Returns whether it is there.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn is_there(&self) -> Result<bool> {
        Ok(self.first()?.is_some_and(|first| is_part_journal(&first)))
    }

    /// Returns the first bytes of the present journal, whoever owns it.
    fn first(&self) -> Result<Option<Vec<u8>>> {
        let Some(file) = found(self.storage.open(&self.name, OpenOptions::read_only()))? else {
            return Ok(None);
        };
        let mut first = vec![0; HEAD.len()];
        let count = file.read_at(&mut [IoSliceMut::new(&mut first)], 0)?;
        first.truncate(count);
        Ok(Some(first))
    }

    /// Removes it, or one without a byte; another journal stays.
    fn remove(&self) -> Result<()> {
        match self.first()? {
            Some(first) if first.is_empty() || is_part_journal(&first) => {
                self.storage.unlink(&self.name)
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the transaction of a super-journal is committed. It is if that file is gone, as SQLite looks for
    /// it. A file without a byte counts as gone.
    ///
    /// # Errors
    /// Those of reading, when this stays unclear.
    pub(super) fn is_committed(&self, super_journal: &[u8]) -> Result<bool> {
        match self.open_at(super_journal)? {
            _ if is_seeded(SeededBug::CoordinatorIgnored) => Ok(true),
            Some(file) => Ok(file.status()?.size_bytes == 0),
            None => Ok(true),
        }
    }

    /// Removes the remains of an ended part, and the super-journal if no journal in its list names it any more.
    ///
    /// # Errors
    /// Those of reading and removing. Nothing depends on the remains.
    pub(super) fn clear(&self, super_journal: &[u8]) -> Result<()> {
        self.remove()?;
        let Some(file) = self.open_at(super_journal)? else {
            return Ok(());
        };
        let size_bytes = file.status()?.size_bytes;
        if size_bytes > SUPER_BYTES_MAX {
            return Ok(());
        }
        let mut listed = vec![0; size_bytes as usize];
        file.read_exact_at(&mut listed, 0)?;
        for journal in listed.split(|byte| *byte == 0).filter(|it| !it.is_empty()) {
            let named = match self.open_at(journal)? {
                Some(file) => named_in(&*file)?,
                None => None,
            };
            if named.is_some_and(|named| named == super_journal) {
                return Ok(());
            }
        }
        let (storage, name) = (self.paths)(path_of(super_journal))?;
        storage.unlink(&name)
    }

    /// Removes the journal of a part whose commit never was there, or has ended.
    ///
    /// # Errors
    /// As [`PartJournal::clear`].
    pub(super) fn clear_stale(&self) -> Result<()> {
        let file = found(self.storage.open(&self.name, OpenOptions::read_only()))?;
        let named = file.map(|file| named_in(&*file)).transpose()?;
        match named.flatten() {
            Some(super_journal) => self.clear(&super_journal),
            None => self.remove(),
        }
    }

    fn open_at(&self, path: &[u8]) -> Result<Option<Arc<dyn StorageFile>>> {
        let opened = (self.paths)(path_of(path))
            .and_then(|(storage, name)| storage.open(&name, OpenOptions::read_only()));
        found(opened)
    }
}

/// A part of a transaction over several databases, from before its commit is written until it is published or taken
/// back.
pub(super) struct AttachedPart {
    journal: PartJournal,
    super_journal: Box<[u8]>,
}

impl AttachedPart {
    /// Returns the name of the super-journal.
    pub(super) fn super_journal(&self) -> &[u8] {
        &self.super_journal
    }

    /// As [`PartJournal::is_committed`].
    ///
    /// # Errors
    /// As there.
    pub(super) fn is_committed(&self) -> Result<bool> {
        self.journal.is_committed(&self.super_journal)
    }

    /// Removes the journal, which says nothing any more. The next opening of the database removes one that stays.
    pub(super) fn end(self) {
        let _ = self.journal.remove();
    }
}

/// Writes a journal that names a super-journal, and syncs it.
fn write(file: &dyn StorageFile, super_journal: &[u8]) -> Result<()> {
    let length = super_journal.len() as u32;
    let parts: [&[u8]; 5] = [
        HEAD,
        super_journal,
        &length.to_be_bytes(),
        &sum(super_journal).to_be_bytes(),
        &TAIL,
    ];
    file.write_at(&parts.map(IoSlice::new), 0)?;
    file.sync()
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Returns a file that was looked for, if it is there.
fn found(opened: Result<Arc<dyn StorageFile>>) -> Result<Option<Arc<dyn StorageFile>>> {
    match opened {
        Ok(file) => Ok(Some(file)),
        Err(Error::Io { source, .. })
            if matches!(
                source.kind(),
                ErrorKind::NotFound | ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Adds the bytes of a name as the machine's C does.
fn sum(name: &[u8]) -> u32 {
    let bytes = name.iter().map(|byte| *byte as std::ffi::c_char);
    bytes.fold(0, |sum, byte| sum.wrapping_add(byte as u32))
}

/// Returns the super-journal that a journal names, if any.
fn named_in(file: &dyn StorageFile) -> Result<Option<Vec<u8>>> {
    let Some(tail_at) = file.status()?.size_bytes.checked_sub(TAIL_BYTES) else {
        return Ok(None);
    };
    let mut tail = [0; TAIL_BYTES as usize];
    file.read_exact_at(&mut tail, tail_at)?;
    let word = |at: usize| u32::from_be_bytes(*tail[at..].first_chunk().expect("four bytes"));
    let length = u64::from(word(0));
    if tail[8..] != TAIL || !(1..=NAME_BYTES_MAX.min(tail_at)).contains(&length) {
        return Ok(None);
    }
    let mut name = vec![0; length as usize];
    file.read_exact_at(&mut name, tail_at - length)?;
    Ok((sum(&name) == word(4)).then_some(name))
}
