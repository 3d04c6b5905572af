//! Files in the making: their names until they are whole, and the remains of killed processes.
//!
//! An unfinished file has the first free name of a row, `.breakeven-0.partial`, `.breakeven-1.partial` and so on, in
//! the folder of its place. Its maker holds a lock on one of its bytes, and a lock dies with its process. A process
//! that finds a name taken and gets that lock has found the remains of a killed process, and removes them. So folders
//! do not fill up, and no list of a folder is read. If some users of a file may not see its locks, nothing is removed.
//!
//! The names do not contain the file's own name, which may have the greatest possible length.

use std::io;
use std::ops::Range;

use crate::error::{Error, Result};

/// The byte that a maker locks, past those of the stores.
const MADE_BYTE: u64 = (1 << 60) + 2;
/// That byte as a range.
pub(super) const MADE: Range<u64> = MADE_BYTE..MADE_BYTE + 1;
/// The names behind a taken one that are checked for remains. Their number is that of processes that seldom make files
/// in one folder at once. Each look is one call that fails, of a microsecond.
const LOOKED_AT: u64 = 16;

/// A folder in which files are made: one of the seam, or one by its path.
pub(super) trait MakingFolder {
    type File;
    /// Makes a file that must not exist, to be read and written.
    fn make(&self, name: &str) -> Result<Self::File>;
    /// Opens a regular file to be written, through no link.
    fn open(&self, name: &str) -> Result<Self::File>;
    /// Locks [`MADE`]; returns whether nobody else has it.
    fn lock(&self, file: &Self::File) -> Result<bool>;
    /// Returns whether a name leads to this file.
    fn leads_to(&self, name: &str, file: &Self::File) -> Result<bool>;
    fn remove(&self, name: &str) -> Result<()>;
    /// Returns whether a lock of any process keeps this one out.
    fn has_locks(&self) -> bool;
}

/// Makes a file under the first name that is free or has a dead maker, and removes other remains behind it. Returns the
/// name with the file, which keeps its lock while it is open.
///
/// It ends because a folder has at most as many of these names as files were made at once.
pub(super) fn make<F: MakingFolder>(folder: &F) -> Result<(String, F::File)> {
    let mut number = 0;
    loop {
        let name = name_of(number);
        let made = match folder.make(&name) {
            Err(error) if is_taken(&error) && clear(folder, &name) => folder.make(&name),
            made => made,
        };
        match made {
            Err(error) if is_taken(&error) => {}
            Err(error) => return Err(error),
            Ok(file) => {
                // Where there are no locks, nobody removes anything.
                let is_locked = folder.lock(&file).unwrap_or(true);
                // A process that came between making and locking took the file for remains, and removes it.
                if is_locked && folder.leads_to(&name, &file).unwrap_or(true) {
                    for behind in number + 1..=number + LOOKED_AT {
                        clear(folder, &name_of(behind));
                    }
                    return Ok((name, file));
                }
            }
        }
        number += 1;
    }
}

fn name_of(number: u64) -> String {
    format!(".breakeven-{number}.partial")
}

fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
}

/// Removes a file whose maker is gone; returns whether it did.
fn clear(folder: &impl MakingFolder, name: &str) -> bool {
    // A file that is not ours, or may not be touched, is skipped.
    let remove = || -> Result<bool> {
        let file = folder.open(name)?;
        let is_left = folder.has_locks() && folder.lock(&file)? && folder.leads_to(name, &file)?;
        if is_left {
            folder.remove(name)?;
        }
        Ok(is_left)
    };
    remove().unwrap_or(false)
}

/// Returns the folder that a name of the seam lies in.
#[cfg(feature = "blocks")]
pub(crate) fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}
