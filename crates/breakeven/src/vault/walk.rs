//! Adding trees of the file system.
//!
//! Folders are opened one within another and links are never followed, so that a tree that changes meanwhile
//! leads nowhere else. A file is taken for unchanged if path, size, both times and inode are those of the
//! snapshot before, unless it changed so shortly before that snapshot that the clock could not tell. A file that
//! changes while it is read is read again, and then said to be left out.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use crate::error::{Error, Result};
use crate::pool::Pool;

use super::cipher::Id;
use super::clones::Clones;
use super::contents::{Chunks, FOLDER};
use super::excludes::Excludes;
use super::folder::{Entry, NAME_BYTES_MAX, Node, Stamp, Time, is_safe_name, is_target};
use super::record::Snapshot;
use super::writer::{Source, Writer, WriterOptions};
use super::{INDEX_PHASE, Progress, Vault};

/// What the clock of a file system may be too coarse to tell: 2 s on FAT, 10 ms elsewhere.
const CLOCK_GRAIN_SECONDS: i64 = 2;
/// Folders within folders that are followed: as many as handles are open at once.
const DEPTH_MAX: usize = 512;
/// A file that changes while it is read is read so often.
const READS_MAX: usize = 3;
const CACHE_TAG: &[u8] = b"CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
/// The longest extended attribute, and list of their names, as Linux has them.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// What is added, and how.
#[derive(Clone, Debug, Default)]
pub struct AddOptions {
    /// What the snapshot is tagged with.
    pub tags: Vec<String>,
    /// The name of this machine.
    pub host: String,
    /// Who adds.
    pub user: String,
    /// What is left out.
    pub excludes: Excludes,
    /// Whether folders with a CACHEDIR.TAG are left out, but for the tag.
    pub excludes_caches: bool,
    /// Whether other file systems are left out.
    pub one_file_system: bool,
    /// Whether every file is read, unchanged or not.
    pub rereads: bool,
    /// Whether it is only found out what would be stored: nothing is put but the lock of the turn.
    pub is_trial: bool,
    /// The time now.
    pub now: Time,
    /// How it is written.
    pub writer: WriterOptions,
}

/// What was added.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// The snapshot's number; 0 if nothing was committed.
    pub epoch: u64,
    /// What it says of itself.
    pub snapshot: Snapshot,
    /// Files taken as they were in the snapshot before.
    pub unchanged_files: u64,
    /// Files that were not read because they share all extents with one that was.
    pub shared_files: u64,
    /// What could not be stored, and why.
    pub problems: Vec<(PathBuf, String)>,
    /// Memory that the index took at the end.
    pub index_bytes: u64,
}

impl Vault {
    /// Adds a snapshot of paths, which must be absolute.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a relative path or while another writes, those of the vault's storage. What cannot
    /// be read is no error but a problem.
    pub fn add(
        &mut self,
        pool: &Pool,
        paths: &[PathBuf],
        options: &AddOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Added> {
        let mut wanted = Wanted::default();
        let mut names: Vec<Vec<u8>> = Vec::new();
        for path in paths {
            wanted.insert(path)?;
            names.push(path.as_os_str().as_bytes().to_vec());
        }
        names.sort();
        let before = self.snapshots()?.into_iter().rev();
        let parent = { before }.find(|(_, it)| it.host == options.host && it.paths == names);
        let mut snapshot = self.describe(names, options);
        let root = rustix::fs::open("/", FOLDER_FLAGS, Mode::empty());
        let root = root.map_err(|error| Error::io("open", "/", error.into()))?;
        let mut writer = Writer::new(self, pool, options.writer)?;
        writer.is_trial = options.is_trial;
        progress(&Progress {
            phase: INDEX_PHASE,
            done: writer.index_bytes(),
            total: options.writer.index_bytes_max,
        });
        let parents = parent.as_ref().map(|(_, it)| [it.folder, it.stamps]);
        let total = parent.as_ref().map_or(0, |(_, it)| it.raw_bytes);
        snapshot.parent = parent.as_ref().map_or(0, |(epoch, _)| *epoch);
        let mut walk = Walk {
            chunks: Chunks::new(&writer.vault().far, &writer.vault().keys),
            unchanged_before: parent
                .map_or(i64::MIN, |(_, it)| it.begun.seconds - CLOCK_GRAIN_SECONDS),
            writer,
            options,
            path: Vec::new(),
            links: BTreeMap::new(),
            clones: Clones::default(),
            root: root
                .try_clone()
                .map_err(|error| Error::io("open", "/", error))?,
            devices: Vec::new(),
            added: Added {
                snapshot,
                ..Added::default()
            },
            progress,
            total,
        };
        let parent = walk.parent(parents)?;
        let (folder, stamps) = walk.add_wanted(root, &wanted, &parent)?;
        let Walk {
            writer, mut added, ..
        } = walk;
        added.index_bytes = writer.index_bytes();
        (added.snapshot.folder, added.snapshot.stamps) = (folder, stamps);
        let epoch = writer.end(&mut added.snapshot)?;
        self.added(epoch, added)
    }

    fn describe(&self, paths: Vec<Vec<u8>>, options: &AddOptions) -> Snapshot {
        Snapshot {
            begun: options.now,
            host: options.host.clone(),
            user: options.user.clone(),
            tags: options.tags.clone(),
            paths,
            ..Snapshot::default()
        }
    }

    /// Adds a snapshot of one file whose content is a stream.
    ///
    /// # Errors
    /// As [`Vault::add`], and those of the stream.
    pub fn add_stream(
        &mut self,
        pool: &Pool,
        name: &[u8],
        source: &mut dyn Source,
        options: &AddOptions,
    ) -> Result<Added> {
        if !is_safe_name(name) {
            let name = String::from_utf8_lossy(name);
            return Err(Error::invalid(
                "name of the stream",
                format!("{name:?} is no file name"),
            ));
        }
        let path = [b"/", name].concat();
        let mut snapshot = self.describe(vec![path], options);
        let mut writer = Writer::new(self, pool, options.writer)?;
        writer.is_trial = options.is_trial;
        let (content, size_bytes) = writer.add_content(source)?;
        let entry = Entry {
            name: name.to_vec(),
            node: Node::File {
                size_bytes,
                link_group: 0,
                is_sparse: false,
                content,
            },
            mode: 0o600,
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            changed: options.now,
            attributes: Vec::new(),
        };
        (snapshot.folder, snapshot.stamps) = writer.add_folder(&[entry], &[Stamp::default()])?;
        (snapshot.files, snapshot.raw_bytes) = (1, size_bytes);
        let mut added = Added {
            index_bytes: writer.index_bytes(),
            snapshot,
            ..Added::default()
        };
        let epoch = writer.end(&mut added.snapshot)?;
        self.added(epoch, added)
    }

    /// Takes up the snapshot as it was committed, if it was.
    fn added(&self, epoch: Option<u64>, mut added: Added) -> Result<Added> {
        if let Some(epoch) = epoch {
            added.epoch = epoch;
            added.snapshot = self.snapshot(epoch)?;
        }
        Ok(added)
    }
}

/// The paths to add as a tree of their parts.
#[derive(Default)]
struct Wanted {
    below: BTreeMap<Vec<u8>, Wanted>,
    is_whole: bool,
}

impl Wanted {
    fn insert(&mut self, path: &Path) -> Result<()> {
        let text = path.as_os_str().as_bytes();
        let parts: Vec<&[u8]> = text
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .collect();
        if text.first() != Some(&b'/') || !parts.iter().all(|part| is_safe_name(part)) {
            let reason = format!(
                "{} is not absolute, or has a part '.' or '..'",
                path.display()
            );
            return Err(Error::invalid("path", reason));
        }
        let mut at = self;
        for part in parts {
            at = at.below.entry(part.to_vec()).or_default();
        }
        at.is_whole = true;
        Ok(())
    }
}

/// A folder as the snapshot before has it.
#[derive(Default)]
struct Parent {
    entries: Vec<Entry>,
    stamps: Vec<Stamp>,
}

impl Parent {
    fn find(&self, name: &[u8]) -> Option<(&Entry, &Stamp)> {
        let at = self
            .entries
            .binary_search_by(|entry| entry.name[..].cmp(name))
            .ok()?;
        Some((&self.entries[at], &self.stamps[at]))
    }
}

struct Walk<'v, 'o> {
    writer: Writer<'v>,
    chunks: Chunks,
    options: &'o AddOptions,
    path: Vec<Vec<u8>>,
    /// What was stored of files with several names, by device and inode.
    links: BTreeMap<(u64, u64), Node>,
    clones: Clones,
    /// Below which clones were read.
    root: OwnedFd,
    devices: Vec<u64>,
    added: Added,
    progress: &'o mut dyn FnMut(&Progress),
    total: u64,
    unchanged_before: i64,
}

const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Without waiting for the other end of a pipe that took a file's place.
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

impl Walk<'_, '_> {
    fn parent(&mut self, ids: Option<[Id; 2]>) -> Result<Parent> {
        let Some([folder, stamps]) = ids.filter(|_| !self.options.rereads) else {
            return Ok(Parent::default());
        };
        let index = &self.writer.index;
        let entries = self.chunks.folder(index, folder);
        let read = entries.and_then(|entries| {
            let stamps = self.chunks.stamps(index, &entries, stamps)?;
            Ok(Parent { entries, stamps })
        });
        match read {
            // What a repair could not save is added as if it had not been there.
            Err(Error::Corrupt { .. }) => Ok(Parent::default()),
            read => read,
        }
    }

    fn problem(&mut self, reason: impl std::fmt::Display) {
        let path = self.path.iter().fold(PathBuf::from("/"), |path, part| {
            path.join(OsStr::from_bytes(part))
        });
        self.added.problems.push((path, reason.to_string()));
    }

    /// Adds what is wanted of a folder that is not wanted whole.
    fn add_wanted(
        &mut self,
        folder: OwnedFd,
        wanted: &Wanted,
        parent: &Parent,
    ) -> Result<(Id, Id)> {
        if wanted.is_whole {
            return self.add_folder(folder, parent, None);
        }
        let (mut entries, mut stamps) = (Vec::new(), Vec::new());
        for (name, wanted) in &wanted.below {
            self.path.push(name.clone());
            if let Some((entry, stamp)) =
                self.add_entry(&folder, name, parent, None, Some(wanted))?
            {
                entries.push(entry);
                stamps.push(stamp);
            }
            self.path.pop();
        }
        self.put_folder(&entries, &stamps)
    }

    /// Puts a folder. One that no reader would take is a problem, and empty.
    fn put_folder(&mut self, entries: &[Entry], stamps: &[Stamp]) -> Result<(Id, Id)> {
        match self.writer.add_folder(entries, stamps) {
            Err(error @ Error::Limit { what: FOLDER, .. }) => {
                self.problem(error);
                Ok((Id::NONE, Id::NONE))
            }
            put => put,
        }
    }

    /// Adds a folder with all that is in it.
    fn add_folder(
        &mut self,
        folder: OwnedFd,
        parent: &Parent,
        device: Option<u64>,
    ) -> Result<(Id, Id)> {
        let mut names = match self.names(&folder) {
            Ok(names) => names,
            Err(error) => {
                self.problem(format_args!("cannot be listed: {error}"));
                return Ok((Id::NONE, Id::NONE));
            }
        };
        if self.options.excludes_caches && is_cache(&folder) {
            names.retain(|name| name == CACHE_TAG);
        }
        let (mut entries, mut stamps) = (Vec::new(), Vec::new());
        for name in names {
            self.path.push(name.clone());
            if !self.options.excludes.matches(&self.path)
                && let Some((entry, stamp)) =
                    self.add_entry(&folder, &name, parent, device, None)?
            {
                entries.push(entry);
                stamps.push(stamp);
            }
            self.path.pop();
        }
        self.added.snapshot.folders += 1;
        self.put_folder(&entries, &stamps)
    }

    fn names(&mut self, folder: &OwnedFd) -> rustix::io::Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Adds one name; nothing where that is a problem.
    fn add_entry(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        parent: &Parent,
        device: Option<u64>,
        wanted: Option<&Wanted>,
    ) -> Result<Option<(Entry, Stamp)>> {
        // File systems of others have longer names, and a reader refuses the whole folder for one.
        if !is_safe_name(name) {
            let length = name.len();
            self.problem(format_args!(
                "a name of {length} bytes; at most {NAME_BYTES_MAX} are kept"
            ));
            return Ok(None);
        }
        let status = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            Err(error) => {
                self.problem(error);
                return Ok(None);
            }
        };
        let known = parent.find(name);
        let mut entry = entry_of(name, &status);
        let mut stamp = stamp_of(&status);
        let kind = FileType::from_raw_mode(status.st_mode);
        let node = match kind {
            FileType::RegularFile => {
                self.add_file(folder, name, &mut entry, &mut stamp, (&status, known))?
            }
            FileType::Directory => {
                let device = device.filter(|_| self.options.one_file_system);
                self.add_below(
                    folder,
                    name,
                    (&mut entry, &mut stamp),
                    (&status, known),
                    device,
                    wanted,
                )?
            }
            FileType::Symlink => self.link(folder, name),
            FileType::Fifo => Some(Node::Pipe),
            FileType::Socket => Some(Node::Socket),
            FileType::CharacterDevice => Some(Node::CharacterDevice {
                device: status.st_rdev,
            }),
            FileType::BlockDevice => Some(Node::BlockDevice {
                device: status.st_rdev,
            }),
            FileType::Unknown => None,
        };
        Ok(node.map(|node| (Entry { node, ..entry }, stamp)))
    }

    fn link(&mut self, folder: &OwnedFd, name: &[u8]) -> Option<Node> {
        match rustix::fs::readlinkat(folder, name, Vec::new()) {
            Ok(target) if is_target(target.as_bytes()) => Some(Node::Link {
                target: target.into_bytes(),
            }),
            Ok(target) => {
                let length = target.as_bytes().len();
                self.problem(format_args!("a link to a path of {length} bytes"));
                None
            }
            Err(error) => {
                self.problem(error);
                None
            }
        }
    }

    /// Adds a folder that is an entry.
    fn add_below(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        (entry, stamp): (&mut Entry, &mut Stamp),
        (status, known): (&Stat, Option<(&Entry, &Stamp)>),
        device: Option<u64>,
        wanted: Option<&Wanted>,
    ) -> Result<Option<Node>> {
        if device.is_some_and(|device| device != status.st_dev) {
            return Ok(Some(Node::Folder { content: Id::NONE }));
        }
        if self.path.len() > DEPTH_MAX {
            self.problem(format_args!(
                "more than {DEPTH_MAX} folders within each other"
            ));
            return Ok(None);
        }
        let opened = match rustix::fs::openat(folder, name, FOLDER_FLAGS, Mode::empty()) {
            Ok(opened) => opened,
            Err(error) => {
                self.problem(error);
                return Ok(None);
            }
        };
        entry.attributes = attributes_of(&opened);
        let ids = known.and_then(|(entry, stamp)| match entry.node {
            Node::Folder { content } => Some([content, stamp.folder]),
            _ => None,
        });
        let parent = self.parent(ids)?;
        let (content, stamps) = match wanted {
            Some(wanted) if !wanted.is_whole => self.add_wanted(opened, wanted, &parent)?,
            _ => {
                let device = self.options.one_file_system.then_some(status.st_dev);
                self.add_folder(opened, &parent, device)?
            }
        };
        stamp.folder = stamps;
        Ok(Some(Node::Folder { content }))
    }

    fn add_file(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        entry: &mut Entry,
        stamp: &mut Stamp,
        (status, known): (&Stat, Option<(&Entry, &Stamp)>),
    ) -> Result<Option<Node>> {
        let link = (status.st_nlink > 1).then_some((status.st_dev, status.st_ino));
        let node = if let Some(node) = known.and_then(|known| self.unchanged(known, entry, stamp)) {
            entry.attributes = known
                .map(|(entry, _)| entry.attributes.clone())
                .unwrap_or_default();
            self.added.unchanged_files += 1;
            Some(node)
        } else if let Some(node) = link.and_then(|link| self.links.get(&link)) {
            Some(node.clone())
        } else {
            self.read_file(folder, name, entry, stamp)?
        };
        let Some(mut node) = node else {
            return Ok(None);
        };
        if let (Node::File { link_group, .. }, Some(link)) = (&mut node, link) {
            *link_group = self.group_of(link);
            self.links.insert(link, node.clone());
        }
        if let Node::File { size_bytes, .. } = &node {
            self.added.snapshot.files += 1;
            self.added.snapshot.raw_bytes += size_bytes;
            let (done, total) = (self.added.snapshot.raw_bytes, self.total);
            (self.progress)(&Progress {
                phase: "adding",
                done,
                total,
            });
        }
        Ok(Some(node))
    }

    /// Numbers names of one file by its inode, so that the number is the same the next time.
    fn group_of(&mut self, (device, inode): (u64, u64)) -> u64 {
        let at = self.devices.iter().position(|known| *known == device);
        let at = at.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        inode ^ (at as u64) << 48
    }

    /// Returns what the snapshot before has of a file that is as it was then.
    fn unchanged(
        &self,
        (before, stamped): (&Entry, &Stamp),
        entry: &Entry,
        stamp: &Stamp,
    ) -> Option<Node> {
        let is_same = before.changed == entry.changed
            && stamped.inode_changed == stamp.inode_changed
            && stamped.inode == stamp.inode
            && matches!((&before.node, &entry.node),
                (Node::File { size_bytes: was, .. }, Node::File { size_bytes: is, .. }) if was == is);
        let is_old = entry.changed.seconds < self.unchanged_before
            && stamp.inode_changed.seconds < self.unchanged_before;
        // A list that a live snapshot names is not read: a collection keeps all that it needs, and a repair drops one that
        // lacks a chunk.
        let is_there = matches!(&before.node,
            Node::File { content, .. } if self.writer.index.has_content(content));
        (is_same && is_old && is_there).then(|| before.node.clone())
    }

    fn read_file(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        entry: &mut Entry,
        stamp: &mut Stamp,
    ) -> Result<Option<Node>> {
        for _ in 0..READS_MAX {
            let opened = rustix::fs::openat(folder, name, FILE_FLAGS, Mode::empty());
            let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
            let (status, file) = match opened {
                Ok((status, file))
                    if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile =>
                {
                    (status, file)
                }
                Ok(_) => break,
                Err(error) => {
                    self.problem(error);
                    return Ok(None);
                }
            };
            let attributes = attributes_of(&file);
            let extents = self.clones.extents(&file, &status);
            let shared = extents.and_then(|it| self.clones.find(&self.root, &it));
            let mut source = FileSource {
                file: Arc::new(File::from(file)),
                failure: None,
            };
            let stored = match shared {
                Some(content) => Ok((content, status.st_size as u64)),
                None => self.writer.add_content(&mut source),
            };
            if let Some(failure) = source.failure {
                self.problem(failure);
                return Ok(None);
            }
            let (content, size_bytes) = stored?;
            let after = rustix::fs::fstat(&source.file);
            let is_same = |after: &Stat| {
                stamp_of(after) == stamp_of(&status)
                    && entry_of(name, after) == entry_of(name, &status)
            };
            if size_bytes == status.st_size as u64 && after.as_ref().is_ok_and(is_same) {
                *entry = Entry {
                    attributes,
                    ..entry_of(name, &status)
                };
                *stamp = stamp_of(&status);
                self.added.shared_files += u64::from(shared.is_some());
                if let Some(extents) = extents {
                    self.clones.remember(extents, &self.path, &status, content);
                }
                let is_sparse = (status.st_blocks as u64) * 512 < size_bytes;
                return Ok(Some(Node::File {
                    size_bytes,
                    link_group: 0,
                    is_sparse,
                    content,
                }));
            }
        }
        self.problem("it changed each time it was read; it is not in the snapshot");
        Ok(None)
    }
}

fn entry_of(name: &[u8], status: &Stat) -> Entry {
    Entry {
        name: name.to_vec(),
        node: Node::File {
            size_bytes: status.st_size as u64,
            link_group: 0,
            is_sparse: false,
            content: Id::NONE,
        },
        mode: status.st_mode & 0o7777,
        user: status.st_uid,
        group: status.st_gid,
        changed: Time {
            seconds: status.st_mtime,
            nanoseconds: status.st_mtime_nsec as u32,
        },
        attributes: Vec::new(),
    }
}

fn stamp_of(status: &Stat) -> Stamp {
    Stamp {
        inode_changed: Time {
            seconds: status.st_ctime,
            nanoseconds: status.st_ctime_nsec as u32,
        },
        inode: status.st_ino,
        folder: Id::NONE,
    }
}

/// Reads the extended attributes of an open file or folder; those that cannot be read are left out.
fn attributes_of(file: &impl AsFd) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut attributes = Vec::new();
    // Most files have none, which the length alone tells.
    let length = match rustix::fs::flistxattr(file, &mut [0u8; 0][..]) {
        Ok(length) if length > 0 && length <= ATTRIBUTE_BYTES_MAX => length,
        _ => return attributes,
    };
    let mut names = vec![0; length];
    let Ok(length) = rustix::fs::flistxattr(file, &mut names[..]) else {
        return attributes;
    };
    for name in names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
    {
        let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
        if let Ok(length) = rustix::fs::fgetxattr(file, name, &mut value[..]) {
            value.truncate(length);
            attributes.push((name.to_vec(), value));
        }
    }
    attributes.sort();
    attributes
}

fn is_cache(folder: &OwnedFd) -> bool {
    let opened = rustix::fs::openat(folder, CACHE_TAG, FILE_FLAGS, Mode::empty());
    let mut head = [0; CACHE_SIGNATURE.len()];
    opened
        .is_ok_and(|file| File::from(file).read_exact(&mut head).is_ok() && head == CACHE_SIGNATURE)
}

struct FileSource {
    file: Arc<File>,
    failure: Option<String>,
}

impl FileSource {
    fn watch<T>(&mut self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|error| {
            self.failure = Some(error.to_string());
            Error::io("read", "a file", error)
        })
    }
}

impl Source for FileSource {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            match (&*self.file).read(buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                result => return self.watch(result),
            }
        }
    }

    fn rewind(&mut self) -> Result<bool> {
        let rewound = (&*self.file).rewind();
        self.watch(rewound).map(|()| true)
    }

    fn file(&self) -> Option<&Arc<File>> {
        Some(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::super::contents::{WHOLE_BYTES_MAX, check_whole};
    use super::super::{Entropy, FolderEnd, PasswordCost, VaultOptions};
    use super::*;
    use crate::pool::PoolOptions;
    use crate::storage::MemoryStorage;

    /// Such a name lies on no file system that a test can count on: it is asked for without one.
    #[test]
    fn a_name_that_no_reader_takes_is_a_problem() {
        let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
        let cost = PasswordCost {
            memory_kib: 8,
            passes: 1,
            lanes: 1,
        };
        let (options, entropy) = (VaultOptions::default(), Entropy::seeded(1));
        let mut vault = Vault::init(far, options, b"a password", cost, entropy).unwrap();
        let pool = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
        let options = AddOptions::default();
        let writer = Writer::new(&mut vault, &pool, options.writer).unwrap();
        let root = rustix::fs::open("/", FOLDER_FLAGS, Mode::empty()).unwrap();
        let mut walk = Walk {
            chunks: Chunks::new(&writer.vault().far, &writer.vault().keys),
            unchanged_before: i64::MIN,
            writer,
            options: &options,
            path: Vec::new(),
            links: BTreeMap::new(),
            clones: Clones::default(),
            root: root.try_clone().unwrap(),
            devices: Vec::new(),
            added: Added::default(),
            progress: &mut |_| (),
            total: 0,
        };
        let mut add = |length: usize| {
            let name = vec![b'x'; length];
            let added = walk.add_entry(&root, &name, &Parent::default(), None, None);
            assert!(added.unwrap().is_none());
            walk.added.problems.pop().expect("a problem").1
        };
        assert!(add(256).contains("a name of 256 bytes"));
        // This one is only not there.
        assert!(!add(255).contains("a name of"));
    }

    #[test]
    fn a_folder_that_no_reader_takes_is_refused() {
        let refused = check_whole(WHOLE_BYTES_MAX + 1);
        assert!(matches!(refused, Err(Error::Limit { what: FOLDER, .. })));
        check_whole(WHOLE_BYTES_MAX).unwrap();
    }
}
