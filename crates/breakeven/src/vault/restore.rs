//! Bringing a snapshot back.
//!
//! Promises: nothing is written outside of the target, whatever the vault says: names were checked when they were
//! read, folders are opened one within another without following links, and files are made anew. What exists is
//! kept unless the caller says otherwise. Every content is checked by its identity; a file whose content is
//! damaged is removed again and said.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::error::{Error, Result};

use super::cipher::Id;
use super::contents::{Chunks, Piece};
use super::excludes::Excludes;
use super::folder::{Entry, Node};
use super::index::Index;
use super::verify::DEPTH_MAX;
use super::{Progress, Vault};

/// How a snapshot is restored.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// Whether what exists is replaced. Default false: it is kept, and said.
    pub replaces: bool,
    /// Whether owners are restored, which needs root. Default: if this is root.
    pub owners: bool,
    /// What is not restored. Default nothing.
    pub excludes: Excludes,
    /// The most entries that are made. Default 2^32.
    pub entries_max: u64,
    /// The most bytes of files that are made, holes included. Default 2^50.
    pub bytes_max: u64,
    /// Memory that the index may take. Default 1 GiB.
    pub index_bytes_max: u64,
}

impl Default for RestoreOptions {
    fn default() -> RestoreOptions {
        RestoreOptions {
            replaces: false,
            owners: rustix::process::geteuid().is_root(),
            excludes: Excludes::default(),
            entries_max: 1 << 32,
            bytes_max: 1 << 50,
            index_bytes_max: 1 << 30,
        }
    }
}

/// What was restored.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// What could not be restored, and why.
    pub problems: Vec<(PathBuf, String)>,
}

const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const FILE_FLAGS: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl Vault {
    /// Restores a snapshot into a folder, which is made if it is missing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown snapshot, [`Error::Limit`] past a limit, those of the target's root. What
    /// else cannot be made or read is a problem.
    pub fn restore(
        &self,
        epoch: u64,
        target: &Path,
        options: &RestoreOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Restored> {
        let snapshot = self.snapshot(epoch)?;
        let index = self.index(options.index_bytes_max)?;
        std::fs::create_dir_all(target)
            .map_err(|error| Error::io("create folder", target, error))?;
        let root = rustix::fs::openat(
            CWD,
            target,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let root = root.map_err(|error| Error::io("open", target, error.into()))?;
        let mut restore = Restore {
            chunks: Chunks::new(&self.far, &self.keys),
            index,
            options,
            target,
            path: Vec::new(),
            links: BTreeMap::new(),
            entries: 0,
            restored: Restored::default(),
            total: snapshot.raw_bytes,
            progress,
        };
        restore.folder(&root, snapshot.folder)?;
        Ok(restore.restored)
    }
}

struct Restore<'r> {
    chunks: Chunks,
    index: Index,
    options: &'r RestoreOptions,
    target: &'r Path,
    path: Vec<Vec<u8>>,
    /// Where the first name of each group of hard links lies below the target.
    links: BTreeMap<u64, Vec<Vec<u8>>>,
    entries: u64,
    restored: Restored,
    total: u64,
    progress: &'r mut dyn FnMut(&Progress),
}

impl Restore<'_> {
    fn problem(&mut self, reason: impl std::fmt::Display) {
        let path = self
            .path
            .iter()
            .fold(self.target.to_path_buf(), |path, part| {
                path.join(OsStr::from_bytes(part))
            });
        self.restored.problems.push((path, reason.to_string()));
    }

    /// Restores the entries of a folder.
    fn folder(&mut self, folder: &OwnedFd, content: Id) -> Result<()> {
        let entries = match self.chunks.folder(&self.index, content) {
            Ok(entries) => entries,
            Err(error) => {
                self.problem(error);
                return Ok(());
            }
        };
        for entry in &entries {
            self.entries += 1;
            if self.entries > self.options.entries_max {
                return Err(Error::invalid(
                    "snapshot",
                    format!("more than {} entries", self.options.entries_max),
                ));
            }
            self.path.push(entry.name.clone());
            if !self.options.excludes.matches(&self.path)
                && let Err(error) = self.entry(folder, entry)
            {
                if matches!(error, Error::Limit { .. }) {
                    return Err(error);
                }
                self.problem(error);
            }
            self.path.pop();
        }
        self.restored.folders += 1;
        Ok(())
    }

    fn entry(&mut self, folder: &OwnedFd, entry: &Entry) -> Result<()> {
        if !matches!(entry.node, Node::Folder { .. }) {
            self.make_room(folder, entry)?;
        }
        let name = &entry.name[..];
        match &entry.node {
            Node::File { link_group, .. } => {
                let first = self
                    .links
                    .get(link_group)
                    .filter(|_| *link_group != 0)
                    .cloned();
                if let Some(first) = first {
                    return self.link(folder, name, &first);
                }
                self.file(folder, entry)?;
                if *link_group != 0 {
                    self.links.insert(*link_group, self.path.clone());
                }
                return Ok(());
            }
            Node::Folder { content } => return self.below(folder, entry, *content),
            Node::Link { target } => {
                let made = rustix::fs::symlinkat(&target[..], folder, name);
                made.map_err(|error| io("make the link", error))?;
            }
            Node::Pipe => make_node(folder, entry, FileType::Fifo, 0)?,
            Node::Socket => make_node(folder, entry, FileType::Socket, 0)?,
            Node::CharacterDevice { device } => {
                make_node(folder, entry, FileType::CharacterDevice, *device)?
            }
            Node::BlockDevice { device } => {
                make_node(folder, entry, FileType::BlockDevice, *device)?
            }
        }
        self.finish_named(folder, entry)
    }

    /// Removes what has the name of an entry, or refuses to.
    fn make_room(&mut self, folder: &OwnedFd, entry: &Entry) -> Result<()> {
        if !self.options.replaces {
            // Whatever is made is made so that it fails where the name is taken.
            return Ok(());
        }
        match rustix::fs::unlinkat(folder, &entry.name[..], AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(io("replace", error)),
        }
    }

    /// Makes another name of a file that was restored; its path is followed without links.
    fn link(&mut self, folder: &OwnedFd, name: &[u8], first: &[Vec<u8>]) -> Result<()> {
        let (last, folders) = first.split_last().expect("a path of a file");
        let opened = rustix::fs::openat(
            CWD,
            self.target,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        );
        let mut at = opened.map_err(|error| io("open the target", error))?;
        for part in folders {
            let opened = rustix::fs::openat(&at, &part[..], FOLDER_FLAGS, Mode::empty());
            at = opened.map_err(|error| io("open the folder of a hard link", error))?;
        }
        let linked = rustix::fs::linkat(&at, &last[..], folder, name, AtFlags::empty());
        linked.map_err(|error| io("make the hard link", error))?;
        self.restored.files += 1;
        Ok(())
    }

    fn below(&mut self, folder: &OwnedFd, entry: &Entry, content: Id) -> Result<()> {
        if self.path.len() > DEPTH_MAX {
            return Err(Error::invalid(
                "folder",
                format!("more than {DEPTH_MAX} within each other"),
            ));
        }
        let name = &entry.name[..];
        match rustix::fs::mkdirat(folder, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(io("make the folder", error)),
        }
        let opened = rustix::fs::openat(folder, name, FOLDER_FLAGS, Mode::empty());
        let opened = opened.map_err(|error| io("open the folder", error))?;
        if content == Id::NONE {
            self.restored.folders += 1;
        } else {
            self.folder(&opened, content)?;
        }
        self.finish(&opened, entry)
    }

    fn file(&mut self, folder: &OwnedFd, entry: &Entry) -> Result<()> {
        let Node::File {
            size_bytes,
            is_sparse,
            content,
            ..
        } = entry.node
        else {
            unreachable!("a file");
        };
        let needed_bytes = self.restored.bytes.saturating_add(size_bytes);
        if needed_bytes > self.options.bytes_max {
            let limit_bytes = self.options.bytes_max;
            return Err(Error::Limit {
                what: "snapshot",
                limit_bytes,
                needed_bytes,
            });
        }
        let name = &entry.name[..];
        let opened = rustix::fs::openat(folder, name, FILE_FLAGS, Mode::from_raw_mode(0o600));
        let file = File::from(opened.map_err(|error| io("make the file", error))?);
        let written = self.write_file(&file, (size_bytes, is_sparse), content);
        if let Err(error) = written {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
            return Err(error);
        }
        self.restored.files += 1;
        self.restored.bytes += size_bytes;
        let (done, total) = (self.restored.bytes, self.total);
        (self.progress)(&Progress {
            phase: "restoring",
            done,
            total,
        });
        self.finish(&OwnedFd::from(file), entry)
    }

    fn write_file(
        &mut self,
        file: &File,
        (size_bytes, is_sparse): (u64, bool),
        content: Id,
    ) -> Result<()> {
        if size_bytes == 0 {
            return Ok(());
        }
        let mut at = 0;
        let wrong = |length: u64| super::fail("file", 0, format!("{size_bytes} bytes"), length);
        let write = |error| Error::io("write", "the file", error);
        self.chunks.read(&self.index, content, &mut |piece| {
            let length = match &piece {
                Piece::Bytes(bytes) => bytes.len() as u64,
                Piece::Zeros(count) => *count,
            };
            let end = at + length;
            if end > size_bytes {
                return Err(wrong(end));
            }
            match piece {
                Piece::Bytes(bytes) if is_sparse && bytes.iter().all(|byte| *byte == 0) => {}
                Piece::Bytes(bytes) => file.write_all_at(bytes, at).map_err(write)?,
                // A new file reads as zeros where nothing was written.
                Piece::Zeros(_) => {}
            }
            at = end;
            Ok(())
        })?;
        if at != size_bytes {
            return Err(wrong(at));
        }
        file.set_len(size_bytes).map_err(write)
    }

    /// Gives an open file or folder what its entry says.
    fn finish(&mut self, file: &OwnedFd, entry: &Entry) -> Result<()> {
        if self.options.owners {
            let (user, group) = owners(entry);
            let owned = rustix::fs::fchown(file, user, group);
            owned.map_err(|error| io("set the owner", error))?;
        }
        for (name, value) in &entry.attributes {
            if let Err(error) = rustix::fs::fsetxattr(file, &name[..], value, XattrFlags::empty()) {
                let name = String::from_utf8_lossy(name).into_owned();
                self.problem(format_args!("attribute {name}: {error}"));
            }
        }
        // After the owner, whose change takes some bits away.
        let mode = rustix::fs::fchmod(file, Mode::from_raw_mode(entry.mode));
        mode.map_err(|error| io("set the mode", error))?;
        rustix::fs::futimens(file, &times(entry)).map_err(|error| io("set the times", error))
    }

    /// The same for what is not opened.
    fn finish_named(&mut self, folder: &OwnedFd, entry: &Entry) -> Result<()> {
        let name = &entry.name[..];
        if self.options.owners {
            let (user, group) = owners(entry);
            let owned = rustix::fs::chownat(folder, name, user, group, AtFlags::SYMLINK_NOFOLLOW);
            owned.map_err(|error| io("set the owner", error))?;
        }
        let timed = rustix::fs::utimensat(folder, name, &times(entry), AtFlags::SYMLINK_NOFOLLOW);
        timed.map_err(|error| io("set the times", error))
    }
}

fn owners(entry: &Entry) -> (Option<Uid>, Option<Gid>) {
    // The highest number means "as it is" to the system.
    let number = |number: u32| (number != u32::MAX).then_some(number);
    (
        number(entry.user).map(Uid::from_raw),
        number(entry.group).map(Gid::from_raw),
    )
}

fn times(entry: &Entry) -> Timestamps {
    let changed = Timespec {
        tv_sec: entry.changed.seconds,
        tv_nsec: entry.changed.nanoseconds.into(),
    };
    Timestamps {
        last_access: changed,
        last_modification: changed,
    }
}

fn make_node(folder: &OwnedFd, entry: &Entry, kind: FileType, device: u64) -> Result<()> {
    let mode = Mode::from_raw_mode(entry.mode);
    let made = rustix::fs::mknodat(folder, &entry.name[..], kind, mode, device);
    made.map_err(|error| io("make the node", error))
}

fn io(operation: &'static str, error: Errno) -> Error {
    Error::io(operation, "the target", error.into())
}
