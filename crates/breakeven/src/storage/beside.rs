//! A file at a path that the user chose: it appears whole or not at all. Only a regular file is ever replaced; anything
//! else is written to.
//!
//! It is made beside its place under a name of `unfinished`, and renamed when it is complete. Where the file system
//! renames nothing, as some mounts of object stores, its bytes are written under a name that is free. For single files;
//! stores work on the seam.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags, linkat, renameat_with,
    statx,
};
use rustix::io::{Errno, retry_on_intr};

use super::descriptor::above_streams;
use super::unfinished::{MADE, MakingFolder, make};
use super::{FileSystem, LockKind, closing, is_zero, locks, real};
use crate::error::{Error, Result};

/// The mode of a file that is its owner's alone until it has its own.
pub const OWNER_ALONE: u32 = 0o600;
/// The mode of a file that gets the usual one of new files.
pub const AS_NEW: u32 = 0o666;

/// The most symbolic links that are followed in a row, as in Linux.
const LINKS_MAX: usize = 40;

/// The bytes copied at a time, as GNU `cp` and `cat` do (`IO_BUFSIZE`).
const COPIED_BYTES: usize = 256 << 10;

/// The present holder of a path that will be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing, or a regular file that another may be renamed to. No symbolic link stands at the end of the path: a
    /// renamed file replaces the target of a link, and not the link.
    File { path: PathBuf, exists: bool },
    /// A pipe, a device or a socket: it is opened and written to, and never replaced.
    Other,
}

/// Finds the kind of place at a path.
///
/// # Errors
///
/// [`Error::Io`] with `path` for a folder, a path that ends with `/`, links that only lead to each other, and a place
/// that may not be inspected.
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

/// Returns whether a file must be synced before it gets a name that counts. It must where it replaces another, or a
/// power cut could leave neither. It must also on a network or under a program, which may report only then that it
/// could not write.
pub fn must_sync(file: &File, replaces: bool) -> bool {
    let magic = rustix::fs::fstatfs(file).map(|found| found.f_type as u32);
    replaces || magic.is_ok_and(|magic| FileSystem::of_magic(magic) != FileSystem::Local)
}

/// An unfinished file; it is removed if it is dropped before it has its name.
///
/// # Example
///
/// ```
/// use std::io::Write;
///
/// use breakeven::storage::beside::{self, Partial};
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("numbers");
/// let partial = Partial::create(&path, beside::AS_NEW)?;
/// partial.file().as_ref().write_all(b"1 2 3").unwrap();
/// partial.finish(true)?;
/// partial.publish()?;
/// assert_eq!(std::fs::read(&path).unwrap(), b"1 2 3");
/// # Ok::<(), breakeven::Error>(())
/// ```
#[derive(Debug)]
pub struct Partial {
    /// Its only descriptor, so that the error of closing it is seen.
    file: Arc<File>,
    /// Where it will stand.
    place: PathBuf,
    /// Where it stands.
    path: PathBuf,
    is_named: bool,
    /// Whether no folder has a name for it, since the folder would keep that name.
    is_nameless: bool,
}

impl Partial {
    /// Makes a file in the folder of `path`, to be read and written. The process's mask takes bits away from `mode`.
    /// In a folder that only gains names (`chattr +a`) it has no name until it is complete.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with `path` where its folder is missing or no file can be made in it; nothing is left
    /// behind.
    pub fn create(path: &Path, mode: u32) -> Result<Partial> {
        let folder = PathFolder { place: path, mode };
        let within = folder.path(".");
        let flags = attributes(&within);
        let nameless = flags.contains(StatxAttributes::APPEND);
        let nameless = nameless.then(|| open_nameless(&within, mode).ok());
        let is_nameless = matches!(nameless, Some(Some(_)));
        let (path_now, file) = match nameless.flatten() {
            Some(file) => (path_of(&file), file),
            None => make(&folder).map(|(name, file)| (folder.path(&name), file))?,
        };
        Ok(Partial {
            file: Arc::new(file),
            path: path_now,
            place: path.to_path_buf(),
            is_named: false,
            is_nameless,
        })
    }

    /// Returns the file to write to. A duplicate that is dropped takes the system's answer with it.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Returns where it will stand.
    pub fn place(&self) -> &Path {
        &self.place
    }

    /// Returns its path until it has its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that all bytes were written, by closing and, on request, by syncing.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] with the path of its final name.
    pub fn finish(&self, is_synced: bool) -> Result<()> {
        if is_synced {
            let synced = self.file.sync_all();
            synced.map_err(|error| Error::io("sync", &self.place, error))?;
        }
        closing::ask(&self.file).map_err(|error| Error::io("close", &self.place, error))
    }

    /// Gives it its name, which must be free. Where the file system cannot rename, its bytes are written to a new file:
    /// a process that is killed then leaves a part.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if a file of that name exists, and errors of renaming; nothing is left behind.
    pub fn publish(self) -> Result<()> {
        self.rename(rename_if_free)
    }

    /// The same, in place of the present file of that name. A file that is a mount point, as containers have them,
    /// cannot be replaced: it gets these bytes, and a process that is killed meanwhile leaves a part.
    ///
    /// # Errors
    ///
    /// Errors of renaming; the present file then keeps its name.
    pub fn replace(self) -> Result<()> {
        if is_mount_point(&self.place) {
            return self.write_over();
        }
        self.rename(|from, to| fs::rename(from, to))
    }

    fn rename(mut self, rename: impl FnOnce(&Path, &Path) -> io::Result<()>) -> Result<()> {
        if self.is_nameless {
            return self.link();
        }
        // If this file was removed and its name now belongs to another, the name is left alone.
        let is_there = is_at(&self.file, &self.path);
        let renamed = match is_there {
            Ok(true) => rename(&self.path, &self.place),
            Ok(false) => Err(io::ErrorKind::NotFound.into()),
            Err(error) => Err(error),
        };
        match renamed {
            Err(error) if renames_nothing(&error) && is_free(&self.place) => self.write_there(),
            renamed => {
                renamed.map_err(|error| Error::io("rename to", &self.place, error))?;
                self.is_named = true;
                Ok(())
            }
        }
    }

    /// Gives a nameless file its name.
    fn link(self) -> Result<()> {
        let flags = AtFlags::SYMLINK_FOLLOW;
        match linkat(CWD, &self.path, CWD, &self.place, flags) {
            // Without `/proc`.
            Err(Errno::NOENT) if is_free(&self.place) => self.write_there(),
            linked => linked.map_err(|error| Error::io("link to", &self.place, error.into())),
        }
    }

    /// Writes its bytes to the present file of its name.
    fn write_over(self) -> Result<()> {
        let failed = |error| Error::io("write", &self.place, error);
        let mut wanted = OpenOptions::new();
        let there = wanted.write(true).truncate(true).open(&self.place);
        let there = there.map_err(failed)?;
        copy(&self.file, &there).map_err(failed)?;
        there.sync_all().map_err(failed)?;
        closing::close(there).map_err(failed)
    }

    /// Writes its bytes to a file of its name.
    fn write_there(&self) -> Result<()> {
        let failed = |error| Error::io("write", &self.place, error);
        let made = new_file(&self.place, OWNER_ALONE);
        let mut there = Partial {
            file: Arc::new(made.map_err(|error| Error::io("create", &self.place, error))?),
            place: self.place.clone(),
            path: self.place.clone(),
            is_named: false,
            is_nameless: false,
        };
        copy(&self.file, &there.file).map_err(failed)?;
        give_metadata(&self.file, &there.file).map_err(failed)?;
        there.finish(true)?;
        there.is_named = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.is_named && !self.is_nameless && is_at(&self.file, &self.path).unwrap_or(false) {
            // Where names cannot be removed, at least the room is freed; but a second name may be somebody's.
            let has_other_names = || self.file.metadata().is_ok_and(|it| it.nlink() > 1);
            if fs::remove_file(&self.path).is_err() && !has_other_names() {
                let _ = self.file.set_len(0);
            }
        }
    }
}

/// Makes the names in the folder of a path durable.
///
/// # Errors
///
/// [`Error::Io`] with the path.
pub fn sync_folder(path: &Path) -> Result<()> {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    let opened = File::open(folder.unwrap_or(Path::new(".")));
    let synced = opened.and_then(|it| Ok(real::sync_folder(&it)?));
    synced.map_err(|error| Error::io("sync the folder of", path, error))
}

/// How a small file is written.
#[derive(Clone, Copy, Debug)]
pub struct SmallFileOptions {
    /// The permission bits of a new file, less those of the process's mask. Default [`AS_NEW`].
    pub mode: u32,
    /// Whether it is durable before an old one goes. Default yes.
    pub is_synced: bool,
    /// Whether a pipe without a reader is waited for. Default yes.
    pub waits_for_reader: bool,
}

impl Default for SmallFileOptions {
    fn default() -> SmallFileOptions {
        SmallFileOptions {
            mode: AS_NEW,
            is_synced: true,
            waits_for_reader: true,
        }
    }
}

/// Writes a small file whole: in place of a regular file, or to any other thing at the path.
///
/// # Errors
///
/// [`Error::Io`] with the path; the present thing there is unchanged.
pub fn write(path: &Path, bytes: &[u8], options: SmallFileOptions) -> Result<()> {
    let failed = |error| Error::io("write", path, error);
    match find(path)? {
        Place::Other => {
            let flags = match options.waits_for_reader {
                true => OFlags::NOCTTY,
                false => OFlags::NOCTTY | OFlags::NONBLOCK,
            };
            let mut wanted = OpenOptions::new();
            wanted.write(true).custom_flags(flags.bits() as i32);
            let mut file = wanted.open(path).map_err(failed)?;
            file.write_all(bytes).map_err(failed)?;
            closing::close(file).map_err(failed)
        }
        Place::File { path: place, .. } => {
            let partial = Partial::create(&place, options.mode)?;
            partial.file().as_ref().write_all(bytes).map_err(failed)?;
            partial.finish(options.is_synced)?;
            partial.replace()?;
            match options.is_synced {
                true => sync_folder(&place),
                false => Ok(()),
            }
        }
    }
}

/// Makes a file without a name in a folder, for its owner to read and write. It is gone when it is closed, and a killed
/// process leaves nothing.
///
/// # Errors
///
/// [`Error::Io`] with the folder.
pub fn nameless(folder: &Path) -> Result<File> {
    match open_nameless(folder, OWNER_ALONE) {
        // File systems without such files, and kernels that do not know them.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            let partial = Partial::create(&folder.join("nameless"), OWNER_ALONE)?;
            let file = partial.file().try_clone();
            file.map_err(|error| Error::io("open", folder, error))
        }
        Err(error) => Err(Error::io("create a file in", folder, error.into())),
        Ok(file) => Ok(file),
    }
}

fn open_nameless(folder: &Path, mode: u32) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    let opened = retry_on_intr(|| rustix::fs::open(folder, flags, mode)).and_then(above_streams);
    Ok(opened?.into())
}

/// Returns the path that leads to an open file without a name.
fn path_of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Returns the attributes of a file; none where nothing is known of them.
fn attributes(path: &Path) -> StatxAttributes {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::TYPE);
    found.map_or(StatxAttributes::empty(), |found| found.stx_attributes)
}

/// Returns whether a file is a mount point, so that no other can have its name.
pub fn is_mount_point(path: &Path) -> bool {
    attributes(path).contains(StatxAttributes::MOUNT_ROOT)
}

/// Renames a file unless another has the new name. Where neither the call nor hard links are known, one that appears at
/// the same moment is replaced.
fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Old kernels do not know the call, and some file systems not the flag.
        Err(Errno::NOSYS | Errno::INVAL) => match fs::hard_link(from, to) {
            // A first name that cannot be removed harms nobody.
            Ok(()) => {
                let _ = fs::remove_file(from);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            Err(_) if fs::symlink_metadata(to).is_ok() => Err(Errno::EXIST.into()),
            Err(_) => fs::rename(from, to),
        },
        renamed => Ok(renamed?),
    }
}

/// Returns whether a refusal to rename may apply to all names of the file system, although it makes and removes names.
fn renames_nothing(error: &io::Error) -> bool {
    // Answers of servers behind a mount for a call that they lack, and of folders that cannot remove names.
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::NOSYS
                | Errno::OPNOTSUPP
                | Errno::PERM
                | Errno::ACCESS
                | Errno::XDEV
                | Errno::INVAL
                | Errno::IO
        )
    )
}

/// Returns whether nothing stands under a path.
fn is_free(path: &Path) -> bool {
    fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Copies the bytes of a file, holes as holes.
fn copy(from: &File, to: &File) -> io::Result<()> {
    let found = from.metadata()?;
    // `st_blocks` counts in units of 512 bytes (stat(2)).
    let has_holes = found.blocks() * 512 < found.len();
    let mut buffer = vec![0; COPIED_BYTES];
    let mut at = 0;
    while at < found.len() {
        let count = (found.len() - at).min(COPIED_BYTES as u64) as usize;
        let part = &mut buffer[..count];
        from.read_exact_at(part, at)?;
        if !(has_holes && is_zero(part)) {
            to.write_all_at(part, at)?;
        }
        at += count as u64;
    }
    match has_holes {
        true => to.set_len(found.len()),
        false => Ok(()),
    }
}

/// Gives a file the metadata of another, which its file system let that one have.
fn give_metadata(from: &File, to: &File) -> io::Result<()> {
    let (wanted, has) = (from.metadata()?, to.metadata()?);
    if (wanted.uid(), wanted.gid()) != (has.uid(), has.gid()) {
        fchown(to, Some(wanted.uid()), Some(wanted.gid()))?;
    }
    if wanted.mode() != has.mode() {
        to.set_permissions(wanted.permissions())?;
    }
    // The time of reading it just now is as good where none may be set.
    let times = FileTimes::new().set_modified(wanted.modified()?);
    let _ = to.set_times(times.set_accessed(wanted.accessed()?));
    Ok(())
}

/// Makes a file that must not exist, to be read and written; leaves nothing on failure.
fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    let mut wanted = OpenOptions::new();
    wanted.read(true).write(true).create_new(true).mode(mode);
    let raised = above_streams(wanted.open(path)?.into());
    Ok(raised.inspect_err(|_| drop(fs::remove_file(path)))?.into())
}

/// Returns whether a path leads to a file.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The folder of a place, and the mode of new files in it.
struct PathFolder<'a> {
    place: &'a Path,
    mode: u32,
}

impl PathFolder<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.place.with_file_name(name)
    }

    fn error(&self, operation: &'static str, error: io::Error) -> Error {
        Error::io(operation, self.place, error)
    }
}

impl MakingFolder for PathFolder<'_> {
    type File = File;

    fn make(&self, name: &str) -> Result<File> {
        let made = new_file(&self.path(name), self.mode);
        made.map_err(|error| self.error("create", error))
    }

    fn open(&self, name: &str) -> Result<File> {
        // The file that now has the name may be a pipe, or a link to somewhere else.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(flags.bits() as i32)
            .open(self.path(name))
            .and_then(|file| match file.metadata()?.is_file() {
                true => Ok(file),
                false => Err(io::ErrorKind::InvalidInput.into()),
            });
        opened.map_err(|error| self.error("open", error))
    }

    fn lock(&self, file: &File) -> Result<bool> {
        let locked = locks::try_lock(file.as_fd(), &MADE, LockKind::Exclusive);
        locked.map_err(|error| self.error("lock", error))
    }

    fn leads_to(&self, name: &str, file: &File) -> Result<bool> {
        is_at(file, &self.path(name)).map_err(|error| self.error("status", error))
    }

    fn remove(&self, name: &str) -> Result<()> {
        fs::remove_file(self.path(name)).map_err(|error| self.error("unlink", error))
    }

    fn has_locks(&self) -> bool {
        let folder = self.path(".");
        let found = rustix::fs::statfs(&folder).map(|found| found.f_type as u32);
        found.is_ok_and(|magic| FileSystem::of_magic(magic) == FileSystem::Local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// The names in a folder, sorted.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> = entries
            .map(|entry| name(entry).into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn what_killed_processes_left_is_removed_and_what_others_make_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // One living file, and the files of killed processes around it.
        fs::write(at(".breakeven-0.partial"), b"left").unwrap();
        let path = at(&"s".repeat(255));
        let living = Partial::create(&path, AS_NEW).unwrap();
        assert_eq!(living.path(), at(".breakeven-0.partial"));
        assert_eq!(fs::metadata(living.path()).unwrap().len(), 0);
        for number in [1, 2, 4, 9] {
            fs::write(at(&format!(".breakeven-{number}.partial")), b"left").unwrap();
        }
        let next = Partial::create(&path, AS_NEW).unwrap();
        assert_eq!(next.path(), at(".breakeven-1.partial"));
        assert_eq!(
            names(folder.path()),
            [".breakeven-0.partial", ".breakeven-1.partial"]
        );
        living.file().as_ref().write_all(b"whole").unwrap();
        living.finish(true).unwrap();
        living.publish().unwrap();
        // Nobody may remove a file that has its name, and a taken name stays another's.
        next.finish(false).unwrap();
        let refused = next.publish().unwrap_err().to_string();
        assert!(refused.contains("File exists"), "{refused}");
        assert_eq!(names(folder.path()), ["s".repeat(255)]);
        assert_eq!(fs::read(&path).unwrap(), b"whole");
    }

    #[test]
    fn where_nothing_is_renamed_a_free_name_is_written_to_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let made = |text: &[u8]| {
            let partial = Partial::create(&path, OWNER_ALONE).unwrap();
            partial.file().set_len(3 << 20).unwrap();
            partial.file().write_all_at(text, 1 << 20).unwrap();
            let mode = fs::Permissions::from_mode(0o640);
            partial.file().set_permissions(mode).unwrap();
            let day = FileTimes::new().set_modified(std::time::UNIX_EPOCH);
            partial.file().set_times(day).unwrap();
            partial
        };
        for errno in [Errno::PERM, Errno::NOSYS, Errno::IO, Errno::XDEV] {
            made(b"whole").rename(|_, _| Err(errno.into())).unwrap();
            let found = fs::read(&path).unwrap();
            let expected = [&vec![0; 1 << 20][..], b"whole", &vec![0; (2 << 20) - 5]].concat();
            assert!(found == expected, "{errno}");
            let status = fs::metadata(&path).unwrap();
            assert_eq!(status.mode() & 0o777, 0o640);
            assert_eq!(status.modified().unwrap(), std::time::UNIX_EPOCH);
            assert!(
                status.blocks() * 512 < 1 << 20,
                "{} blocks",
                status.blocks()
            );
            assert_eq!(names(folder.path()), ["file"]);
            // The present owner of the name keeps it.
            let refused = made(b"other").rename(|_, _| Err(errno.into())).unwrap_err();
            assert!(refused.to_string().contains("file: "), "{refused}");
            assert!(fs::read(&path).unwrap() == expected, "{errno}");
            assert_eq!(names(folder.path()), ["file"]);
            fs::remove_file(&path).unwrap();
        }
        // It is not written either if there is no room for a name.
        let refused = made(b"whole").rename(|_, _| Err(Errno::NOSPC.into()));
        assert!(refused.is_err());
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn what_is_no_file_of_ours_is_neither_opened_nor_followed_nor_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let elsewhere = at("elsewhere");
        fs::write(&elsewhere, b"another's").unwrap();
        std::os::unix::fs::symlink(&elsewhere, at(".breakeven-0.partial")).unwrap();
        fs::create_dir(at(".breakeven-1.partial")).unwrap();
        rustix::fs::mknodat(
            CWD,
            at(".breakeven-2.partial"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let partial = Partial::create(&at("file"), AS_NEW).unwrap();
        assert_eq!(partial.path(), at(".breakeven-3.partial"));
        drop(partial);
        assert_eq!(names(folder.path()).len(), 4);
        assert_eq!(fs::read(&elsewhere).unwrap(), b"another's");
    }

    #[test]
    fn a_file_that_was_removed_meanwhile_is_not_taken_for_the_next_ones() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let one = Partial::create(&path, AS_NEW).unwrap();
        fs::remove_file(one.path()).unwrap();
        let other = Partial::create(&path, AS_NEW).unwrap();
        assert_eq!(one.path(), other.path());
        assert!(one.replace().is_err());
        other.replace().unwrap();
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn many_make_files_at_once_and_each_has_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let make = |number: u32| {
            for round in 0..50 {
                let path = folder.path().join(format!("file-{number}-{round}"));
                let partial = Partial::create(&path, AS_NEW).unwrap();
                let text = format!("{number} {round}");
                partial.file().as_ref().write_all(text.as_bytes()).unwrap();
                partial.finish(false).unwrap();
                partial.publish().unwrap();
                assert_eq!(fs::read_to_string(path).unwrap(), text);
            }
        };
        std::thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || make(number));
            }
        });
        assert_eq!(names(folder.path()).len(), 200);
    }

    #[test]
    fn the_mode_is_what_was_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mode = |mode| {
            let partial = Partial::create(&path, mode).unwrap();
            partial.file().metadata().unwrap().permissions().mode() & 0o777
        };
        assert_eq!(mode(OWNER_ALONE), 0o600);
        // The mask decides, as for every file.
        let usual = File::create(folder.path().join("usual")).unwrap();
        let usual = usual.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(AS_NEW), usual);
    }

    #[test]
    fn a_small_file_replaces_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("old"), b"old").unwrap();
        std::os::unix::fs::symlink("old", at("link")).unwrap();
        let options = SmallFileOptions {
            waits_for_reader: false,
            ..SmallFileOptions::default()
        };
        for name in ["new", "link"] {
            write(&at(name), b"text", options).unwrap();
            assert_eq!(fs::read(at(name)).unwrap(), b"text");
        }
        assert!(at("link").is_symlink());
        assert_eq!(fs::read(at("old")).unwrap(), b"text");
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(CWD, at("pipe"), fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        // Nobody reads it, which is reported at once.
        assert!(write(&at("pipe"), b"text", options).is_err());
        let mut reader = OpenOptions::new();
        reader.read(true);
        let flags = OFlags::NONBLOCK.bits() as i32;
        let mut reader = reader.custom_flags(flags).open(at("pipe")).unwrap();
        write(&at("pipe"), b"text", options).unwrap();
        let mut found = [0; 4];
        io::Read::read_exact(&mut reader, &mut found).unwrap();
        assert_eq!(&found, b"text");
        for path in ["/dev/full", "/dev/null/below"] {
            assert!(write(Path::new(path), b"text", options).is_err());
        }
        write(Path::new("/dev/null"), b"text", options).unwrap();
        assert_eq!(names(folder.path()), ["link", "new", "old", "pipe"]);
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
            // The path to it may be longer.
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
        // The creator of the file reports a missing folder.
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
    fn a_file_without_a_name_is_seen_by_nobody() {
        use std::os::unix::fs::FileExt;
        let folder = tempfile::tempdir().unwrap();
        let file = nameless(folder.path()).unwrap();
        file.write_all_at(b"bytes", 7).unwrap();
        let mut found = [0; 5];
        file.read_exact_at(&mut found, 7).unwrap();
        assert_eq!(&found, b"bytes");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let error = nameless(&folder.path().join("none")).unwrap_err();
        assert!(error.to_string().contains("none"), "{error}");
    }

    #[test]
    fn an_error_names_the_file_that_was_to_be() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none").join("file");
        let error = Partial::create(&path, AS_NEW).unwrap_err().to_string();
        assert!(error.contains("create"), "{error}");
        assert!(error.contains("none/file: No such"), "{error}");
    }
}
