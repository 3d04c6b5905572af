//! A file beside another under a free name, to be renamed to it when it is complete.
//!
//! For what is one file at a path of somebody's choosing and appears whole or not at all; stores work on
//! the seam. Writing, syncing, renaming and removing are the caller's, who alone knows what an
//! unfinished file is worth.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result};

/// The mode of a file that is its owner's alone until it has its own.
pub const OWNER_ALONE: u32 = 0o600;
/// The mode of a file that shall have the one that new files have.
pub const AS_NEW: u32 = 0o666;

/// Files of this process so far.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Creates a file in the folder of `path`, to be read and written, and returns it with its path: a name that
/// begins with `.breakeven-` and ends with `.partial`, whatever that of `path` is. Of `mode` remains what
/// the process's mask allows.
///
/// Names that are taken are passed over, however many: what killed processes of the same number left, of
/// which a container that is started again and again has many. It ends because a folder has no more of
/// them than were made.
///
/// # Errors
///
/// [`Error::Io`] with `path` where its folder is missing or no file can be made in it; nothing is left
/// behind.
///
/// # Example
///
/// ```
/// use breakeven::storage::beside;
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("numbers");
/// let (mut file, partial) = beside::create(&path, beside::AS_NEW)?;
/// std::io::Write::write_all(&mut file, b"1 2 3").unwrap();
/// std::fs::rename(partial, &path).unwrap();
/// # Ok::<(), breakeven::Error>(())
/// ```
pub fn create(path: &Path, mode: u32) -> Result<(File, PathBuf)> {
    create_counted(path, mode, &COUNT)
}

fn create_counted(path: &Path, mode: u32, count: &AtomicU64) -> Result<(File, PathBuf)> {
    loop {
        let (process, count) = (std::process::id(), count.fetch_add(1, Ordering::Relaxed));
        // Without the file's name, which may be as long as a name can be.
        let partial = path.with_file_name(format!(".breakeven-{process}-{count}.partial"));
        let created = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&partial);
        match created {
            Ok(file) => return Ok((file, partial)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error::io("create", path, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn taken_names_are_passed_over_however_many() {
        let folder = tempfile::tempdir().unwrap();
        let left = 300;
        for count in 0..left {
            let name = format!(".breakeven-{}-{count}.partial", std::process::id());
            fs::write(folder.path().join(name), b"left").unwrap();
        }
        let path = folder.path().join("s".repeat(255));
        let count = AtomicU64::new(0);
        let (_, partial) = create_counted(&path, AS_NEW, &count).unwrap();
        assert_eq!(count.into_inner(), left + 1);
        assert_eq!(partial.parent(), path.parent());
        assert_eq!(fs::metadata(partial).unwrap().len(), 0);
        let names = fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count() as u64, left + 1);
    }

    #[test]
    fn what_was_left_is_neither_opened_nor_followed() {
        let folder = tempfile::tempdir().unwrap();
        let process = std::process::id();
        let elsewhere = folder.path().join("elsewhere");
        let link = folder
            .path()
            .join(format!(".breakeven-{process}-0.partial"));
        std::os::unix::fs::symlink(&elsewhere, link).unwrap();
        let count = AtomicU64::new(0);
        create_counted(&folder.path().join("file"), AS_NEW, &count).unwrap();
        assert_eq!(count.into_inner(), 2);
        assert!(!elsewhere.exists());
    }

    #[test]
    fn the_mode_is_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mode = |mode| {
            let (file, _) = create(&path, mode).unwrap();
            file.metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode(OWNER_ALONE), 0o600);
        // As the mask says, which is that of every file.
        let usual = File::create(folder.path().join("usual")).unwrap();
        let usual = usual.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(AS_NEW), usual);
    }

    #[test]
    fn an_error_names_the_file_that_was_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none").join("file");
        let error = create(&path, AS_NEW).unwrap_err().to_string();
        assert!(error.contains("create"), "{error}");
        assert!(error.contains("none/file: No such"), "{error}");
    }
}
