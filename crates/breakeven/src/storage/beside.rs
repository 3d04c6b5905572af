//! A file beside another under a free name, to be renamed to it when it is complete, and where that may be:
//! what is no regular file is written to, and never replaced.
//!
//! For what is one file at a path of somebody's choosing and appears whole or not at all; stores work on
//! the seam. Writing, syncing, renaming and removing are the caller's, who alone knows what an
//! unfinished file is worth.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::FileSystem;
use crate::error::{Error, Result};

/// The mode of a file that is its owner's alone until it has its own.
pub const OWNER_ALONE: u32 = 0o600;
/// The mode of a file that shall have the one that new files have.
pub const AS_NEW: u32 = 0o666;

/// Symbolic links that are followed one after the other, as Linux does.
const LINKS_MAX: usize = 40;

/// What stands where somebody wants to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing, or a regular file that another may be renamed to. The path leads there through no symbolic
    /// link of its own, so that a renamed file replaces what a link points to, and not the link.
    File { path: PathBuf, exists: bool },
    /// A pipe, a device, a socket: to be opened and written to, and never replaced.
    Other,
}

/// Finds out what stands under a path.
///
/// # Errors
///
/// [`Error::Io`] with `path` for a folder, a path that ends with `/`, links that lead nowhere but to each
/// other, and what may not be looked at.
pub fn find(path: &Path) -> Result<Place> {
    let failed = |error| Error::io("write to", path, error);
    let exists = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => {
            return Err(failed(io::ErrorKind::IsADirectory.into()));
        }
        Ok(metadata) if !metadata.is_file() => return Ok(Place::Other),
        Ok(_) => true,
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) => return Err(failed(error)),
    };
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(failed(io::ErrorKind::IsADirectory.into()));
    }
    let mut path = path.to_path_buf();
    // More of them were an error above.
    for _ in 0..LINKS_MAX {
        let Ok(target) = fs::read_link(&path) else {
            break;
        };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    Ok(Place::File { path, exists })
}

/// Returns whether a file is to be synced before it gets a name that counts: where it replaces another, lest a power cut
/// leave neither; and where a network or a program keeps it, which may tell only then what it could not write.
pub fn must_sync(file: &File, replaces: bool) -> bool {
    let magic = rustix::fs::fstatfs(file).map(|found| found.f_type as u32);
    replaces || magic.is_ok_and(|magic| FileSystem::of_magic(magic) != FileSystem::Local)
}

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
    fn links_are_followed_to_what_is_there_or_shall_be() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("sub")).unwrap();
        fs::write(at("sub/old"), b"old").unwrap();
        for (target, link) in [
            ("sub/old", "link"),
            ("../link", "sub/back"),
            ("sub/new", "dangling"),
            ("round", "round"),
            ("sub", "folder"),
        ] {
            std::os::unix::fs::symlink(target, at(link)).unwrap();
        }
        std::os::unix::fs::symlink(at("none"), at("absolute")).unwrap();
        let check = |name: &str, leads_to: &str, exists| {
            let Place::File {
                path,
                exists: found,
            } = find(&at(name)).unwrap()
            else {
                panic!("{name} is no file");
            };
            // The way there may be a longer one.
            let real = |path: &Path| fs::canonicalize(path.parent().unwrap()).unwrap();
            assert_eq!(real(&path), real(&at(leads_to)), "{name}");
            assert_eq!(path.file_name(), at(leads_to).file_name(), "{name}");
            assert_eq!(found, exists, "{name}");
        };
        check("sub/old", "sub/old", true);
        check("link", "sub/old", true);
        check("sub/back", "sub/old", true);
        check("dangling", "sub/new", false);
        check("absolute", "none", false);
        check("none", "none", false);
        // A folder that is missing is told by whoever creates the file.
        assert!(find(&at("none/file")).is_ok());
        for refused in ["sub", "folder", "round", "new/", "sub/old/file"] {
            let error = find(&at(refused)).unwrap_err().to_string();
            assert!(error.contains(refused), "{error}");
        }
        // A pipe of this process, under a path where no file could be made.
        let (_reader, pipe) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&pipe));
        assert_eq!(find(Path::new(&path)).unwrap(), Place::Other);
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
