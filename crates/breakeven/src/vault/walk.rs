//! Adding trees of the file system.
//!
//! Folders are opened one within another and links are never followed, so a tree that changes meanwhile leads nowhere
//! else. A file is taken for unchanged if path, size, both times and inode equal those of the snapshot before. The
//! exception is a change so shortly before that snapshot that the clock could not show it. A file that changes while it
//! is read is read again. If it never holds still it is stored as it was read last, marked, and reported. Attributes of
//! unchanged files are read where the snapshot before does not know them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::quoted::{quoted, quoted_bytes};

use super::cipher::Id;
use super::clones::Clones;
use super::contents::{Chunks, FOLDER};
use super::folder::{Entry, NAME_BYTES_MAX, Node, Stamp, Time, is_safe_name, is_target};
use super::metadata::{Attributes, HeldInode, LACKS_PROC};
use super::patterns::PathPatterns;
use super::reading::{FileSource, moments};
use super::record::Snapshot;
use super::repair::is_damage;
use super::restore_files::{Inode, inode_of, open_below};
use super::verify::DEPTH_MAX;
use super::writer::{Source, Writer, WriterOptions};
use super::{INDEX_PHASE, Progress, RECORD_BYTES_MAX, Vault};

/// The coarsest clock of a file system: 2 s on FAT, 10 ms elsewhere.
const CLOCK_GRAIN_SECONDS: i64 = 2;
/// Folders within each other that are held open; those above are opened again when their turn comes. A process may have
/// 256 files open where little is allowed, and a vault takes a few of them.
pub(super) const OPEN_FOLDERS_MAX: usize = 64;
/// The most bytes of a snapshot's paths: half of the longest record that a reader accepts.
const PATHS_BYTES_MAX: usize = RECORD_BYTES_MAX as usize / 2;
/// How often a file is read that changes while it is read.
const READS_MAX: usize = 3;
const CACHE_TAG: &[u8] = b"CACHEDIR.TAG";
const CACHE_SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
const CHANGED_KIND: &str = "it became something else while it was looked at";

/// The choices of an add.
#[derive(Clone, Debug, Default)]
pub struct AddOptions {
    /// The tags of the snapshot.
    pub tags: Vec<String>,
    /// The name of this machine.
    pub host: String,
    /// The user who adds.
    pub user: String,
    /// Patterns of the entries that are left out.
    pub excludes: PathPatterns,
    /// Whether folders with a CACHEDIR.TAG are left out, except for the tag.
    pub excludes_caches: bool,
    /// Whether other file systems are left out.
    pub one_file_system: bool,
    /// Whether every file is read, unchanged or not.
    pub rereads: bool,
    /// Whether a file is taken for unchanged if only its inode's change time (ctime) differs.
    pub ignores_ctime: bool,
    /// Whether a file is taken for unchanged if only its inode, and with it the ctime, differs.
    pub ignores_inode: bool,
    /// Whether it only finds out how much would be stored: no object is put but the lock of the turn.
    pub is_trial: bool,
    /// The time now.
    pub now: Time,
    /// The choices of its writer.
    pub writer: WriterOptions,
}

/// The outcome of an add.
#[derive(Clone, Debug, Default)]
pub struct Added {
    /// The snapshot's number; 0 if nothing was committed.
    pub epoch: u64,
    /// Its record.
    pub snapshot: Snapshot,
    /// Files taken as they were in the snapshot before.
    pub unchanged_files: u64,
    /// Files that were not read because they share all extents with a file that was.
    pub shared_files: u64,
    /// Files that were read, by the reason.
    pub read: ReadFiles,
    /// Files that changed each time they were read, and are stored as they were read last.
    pub torn_files: u64,
    /// The entries that could not be stored, or are not stored as they were, and why.
    pub problems: Vec<(PathBuf, String)>,
    /// Bytes that were read of a disk's volume.
    pub disk_read_bytes: u64,
    /// Memory that the index took at the end.
    pub index_bytes: u64,
}

/// How many files were read, by the reason for the read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadFiles {
    /// Files that the snapshot before has not.
    pub new: u64,
    /// Of another size or time of change.
    pub changed: u64,
    /// Only the inode's change time (ctime) differs.
    pub ctime: u64,
    /// Another inode, and perhaps another ctime, of the same size and time of change.
    pub inode: u64,
    /// Unchanged, but so young at the snapshot before that the clock could not show a change.
    pub young: u64,
    /// They changed while they were read for the snapshot before.
    pub torn: u64,
    /// Unchanged, but the vault lacks their content.
    pub lost: u64,
    /// All files, as the caller asked.
    pub asked: u64,
}

impl Vault {
    /// Adds a snapshot of paths, which must be absolute.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a relative path or while another writes, those of the vault's storage. An entry that
    /// cannot be read is no error but a problem.
    pub fn add(
        &mut self,
        pool: &Pool,
        paths: &[PathBuf],
        options: &AddOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Added> {
        let mut wanted = Wanted::default();
        for path in paths {
            wanted.insert(path)?;
        }
        let mut snapshot = self.describe(names_of(paths)?, options);
        let root = rustix::fs::open("/", FOLDER_FLAGS, Mode::empty());
        let root = root.map_err(|error| Error::io("open", "/", error.into()))?;
        let (writer, parent) = self.begin_add(pool, &mut snapshot, options, progress)?;
        let parents = parent.as_ref().map(|it| [it.folder, it.stamps]);
        let total = parent.as_ref().map_or(0, |it| it.raw_bytes);
        let mut walk = Walk {
            chunks: Chunks::new(&writer.vault().far, &writer.vault().keys),
            unchanged_before: (parent.as_ref())
                .map_or(i64::MIN, |it| it.begun.seconds - CLOCK_GRAIN_SECONDS),
            parent_has_attributes: parent.is_some_and(|it| it.has_attributes),
            lacks_proc: false,
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
        let (folder, stamps) = walk.add_tree(root, &wanted, parent)?;
        let Walk {
            writer, mut added, ..
        } = walk;
        added.index_bytes = writer.index_bytes();
        (added.snapshot.folder, added.snapshot.stamps) = (folder, stamps);
        let epoch = writer.end(&mut added.snapshot)?;
        self.added(epoch, added)
    }

    /// Begins an add. Returns the newest snapshot of the same host and paths, too, which becomes the parent.
    pub(super) fn begin_add(
        &mut self,
        pool: &Pool,
        snapshot: &mut Snapshot,
        options: &AddOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(Writer<'_>, Option<Snapshot>)> {
        let mut writer = Writer::new(self, pool, options.writer)?;
        writer.is_trial = options.is_trial;
        // Only now: the writer has read the newest state.
        let parent = (writer.vault()).newest_of(&options.host, &snapshot.paths)?;
        progress(&Progress {
            phase: INDEX_PHASE,
            done: writer.index_bytes(),
            total: options.writer.index_bytes_max,
        });
        snapshot.parent = parent.as_ref().map_or(0, |(epoch, _)| *epoch);
        Ok((writer, parent.map(|(_, it)| it)))
    }

    pub(super) fn describe(&self, paths: Vec<Vec<u8>>, options: &AddOptions) -> Snapshot {
        Snapshot {
            begun: options.now,
            host: options.host.clone(),
            user: options.user.clone(),
            tags: options.tags.clone(),
            paths,
            has_attributes: true,
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
            let name = quoted_bytes(name);
            return Err(Error::invalid(
                "name of the stream",
                format!("'{name}' is no file name"),
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
                is_sparse: false,
                is_torn: false,
                content,
            },
            mode: 0o600,
            user: rustix::process::getuid().as_raw(),
            group: rustix::process::getgid().as_raw(),
            changed: options.now,
            link_group: 0,
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

    /// Reads the snapshot as committed, if it was.
    pub(super) fn added(&self, epoch: Option<u64>, mut added: Added) -> Result<Added> {
        if let Some(epoch) = epoch {
            added.epoch = epoch;
            added.snapshot = self.snapshot(epoch)?;
        }
        Ok(added)
    }
}

/// Returns the paths as a snapshot names them.
fn names_of(paths: &[PathBuf]) -> Result<Vec<Vec<u8>>> {
    let names = paths
        .iter()
        .map(|path| path.as_os_str().as_bytes().to_vec());
    let mut names: Vec<Vec<u8>> = names.collect();
    names.sort();
    names.dedup();
    let needed_bytes: usize = names.iter().map(Vec::len).sum();
    match needed_bytes <= PATHS_BYTES_MAX {
        true => Ok(names),
        false => Err(Error::Limit {
            what: "paths of a snapshot",
            limit_bytes: PATHS_BYTES_MAX as u64,
            needed_bytes: needed_bytes as u64,
        }),
    }
}

/// Returns the parts of a path.
///
/// # Errors
/// [`Error::Invalid`] if it is not absolute, or a part of it leads elsewhere.
pub(super) fn parts_of(path: &Path) -> Result<Vec<&[u8]>> {
    let text = path.as_os_str().as_bytes();
    let parts = text.split(|byte| *byte == b'/');
    let parts: Vec<&[u8]> = parts.filter(|part| !part.is_empty()).collect();
    if text.first() != Some(&b'/') || !parts.iter().all(|part| is_safe_name(part)) {
        let reason = format!(
            "{} is not absolute, or has a part '.' or '..'",
            quoted(&path)
        );
        return Err(Error::invalid("path", reason));
    }
    Ok(parts)
}

/// The paths to add as a tree of their parts.
#[derive(Default)]
struct Wanted {
    below: BTreeMap<Vec<u8>, Wanted>,
    is_whole: bool,
}

impl Wanted {
    fn insert(&mut self, path: &Path) -> Result<()> {
        let mut at = self;
        for part in parts_of(path)? {
            at = at.below.entry(part.to_vec()).or_default();
        }
        at.is_whole = true;
        Ok(())
    }
}

/// All of a folder.
static WHOLE: Wanted = Wanted {
    below: BTreeMap::new(),
    is_whole: true,
};

/// A folder that is being added.
struct AddedFolder<'w> {
    /// Its own entry, but for its content; the root has none.
    itself: Option<Stored>,
    /// Nothing while a folder far below is added.
    descriptor: Option<OwnedFd>,
    inode: Inode,
    /// The remaining names.
    names: std::vec::IntoIter<Vec<u8>>,
    /// The entries wanted of it, where that is not all.
    wanted: Option<&'w Wanted>,
    is_counted: bool,
    /// The file system on which its entries have to lie.
    device: Option<u64>,
    parent: Parent,
    entries: Vec<Entry>,
    stamps: Vec<Stamp>,
}

impl AddedFolder<'_> {
    fn put(&mut self, (entry, stamp): Stored) {
        self.entries.push(entry);
        self.stamps.push(stamp);
    }

    fn put_some(&mut self, stored: Option<Stored>) {
        stored.into_iter().for_each(|stored| self.put(stored));
    }
}

/// The fate of a name.
enum Step<'w> {
    /// It is added, unless there was a problem.
    Done(Option<Stored>),
    /// It is a folder, which comes first.
    Into(Box<AddedFolder<'w>>),
}

fn inode_at(folder: &OwnedFd) -> rustix::io::Result<Inode> {
    rustix::fs::fstat(folder).map(|status| inode_of(&status))
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
    /// The stored entries of files with several names, by device and inode.
    links: BTreeMap<(u64, u64), Stored>,
    clones: Clones,
    /// The folder below which clones were read.
    root: OwnedFd,
    devices: Vec<u64>,
    added: Added,
    progress: &'o mut dyn FnMut(&Progress),
    total: u64,
    unchanged_before: i64,
    parent_has_attributes: bool,
    lacks_proc: bool,
}

const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// A pipe may have taken the file's place: opening must not wait for its other end.
const FILE_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
/// Holds an inode without opening it.
pub(super) const NODE_FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

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
            // A folder that a repair could not save is added as if it had not been there.
            Err(error) if is_damage(&error) => Ok(Parent::default()),
            read => read,
        }
    }

    fn problem(&mut self, reason: impl std::fmt::Display) {
        let path = self.path.iter().fold(PathBuf::from("/"), |path, part| {
            path.join(OsStr::from_bytes(part))
        });
        self.added.problems.push((path, reason.to_string()));
    }

    /// Adds the wanted entries, below the root.
    fn add_tree(&mut self, root: OwnedFd, wanted: &Wanted, parent: Parent) -> Result<(Id, Id)> {
        let mut open = vec![self.opened(None, root, parent, (wanted, None))];
        loop {
            let folder = open.last_mut().expect("the root ends it");
            let Some(name) = folder.names.next() else {
                let folder = open.pop().expect("it was there");
                let ids = self.end_folder(&folder)?;
                let (Some((mut entry, mut stamp)), Some(above)) = (folder.itself, open.last_mut())
                else {
                    return Ok(ids);
                };
                (entry.node, stamp.folder) = (Node::Folder { content: ids.0 }, ids.1);
                above.put((entry, stamp));
                self.path.pop();
                self.open_again(above);
                continue;
            };
            self.path.push(name.clone());
            let wanted = folder.wanted.map(|it| &it.below[&name]);
            // A path that was named is added whatever its name matches.
            if wanted.is_none() && self.options.excludes.matches(&self.path) {
                self.path.pop();
                continue;
            }
            match self.add_entry(folder, &name, wanted)? {
                Step::Into(below) => {
                    open.push(*below);
                    if let Some(far) = open.len().checked_sub(OPEN_FOLDERS_MAX + 1) {
                        open[far].descriptor = None;
                    }
                }
                Step::Done(stored) => {
                    folder.put_some(stored);
                    self.path.pop();
                }
            }
        }
    }

    /// Opens a folder again that was closed while the entries below it were added.
    fn open_again(&mut self, folder: &mut AddedFolder<'_>) {
        if folder.descriptor.is_some() {
            return;
        }
        let opened = open_below(&self.root, &self.path);
        let opened = opened.map_err(|error| error.to_string());
        match opened.and_then(|it| Ok((inode_at(&it).map_err(|error| error.to_string())?, it))) {
            Ok((inode, opened)) if inode == folder.inode => folder.descriptor = Some(opened),
            other => {
                let reason = other
                    .err()
                    .unwrap_or_else(|| "it is another now".to_string());
                self.problem(format_args!("the rest of it cannot be read: {reason}"));
                folder.names = Vec::new().into_iter();
            }
        }
    }

    /// Begins with a folder; all or some of its entries are wanted.
    fn opened<'w>(
        &mut self,
        itself: Option<Stored>,
        descriptor: OwnedFd,
        parent: Parent,
        (wanted, device): (&'w Wanted, Option<u64>),
    ) -> AddedFolder<'w> {
        let wanted = Some(wanted).filter(|wanted| !wanted.is_whole);
        let names = match wanted {
            Some(wanted) => Ok(wanted.below.keys().cloned().collect()),
            None => self.names(&descriptor),
        };
        let is_listed = names.is_ok();
        let mut names: Vec<Vec<u8>> = names.unwrap_or_else(|error| {
            self.problem(format_args!("cannot be listed: {error}"));
            Vec::new()
        });
        if wanted.is_none() && self.options.excludes_caches && is_cache(&descriptor) {
            names.retain(|name| name == CACHE_TAG);
        }
        AddedFolder {
            itself,
            inode: inode_at(&descriptor).unwrap_or_default(),
            descriptor: Some(descriptor),
            names: names.into_iter(),
            wanted,
            is_counted: wanted.is_none() && is_listed,
            device,
            parent,
            entries: Vec::new(),
            stamps: Vec::new(),
        }
    }

    /// Puts a folder whose entries are all added.
    fn end_folder(&mut self, folder: &AddedFolder<'_>) -> Result<(Id, Id)> {
        self.added.snapshot.folders += u64::from(folder.is_counted);
        self.put_folder(&folder.entries, &folder.stamps)
    }

    /// Puts a folder. A folder too long for a reader is a problem, and empty.
    fn put_folder(&mut self, entries: &[Entry], stamps: &[Stamp]) -> Result<(Id, Id)> {
        match self.writer.add_folder(entries, stamps) {
            Err(error @ Error::Limit { what: FOLDER, .. }) => {
                self.problem(error);
                Ok((Id::NONE, Id::NONE))
            }
            put => put,
        }
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

    /// Adds one name; nothing if there is a problem.
    fn add_entry<'w>(
        &mut self,
        above: &AddedFolder<'_>,
        name: &[u8],
        wanted: Option<&'w Wanted>,
    ) -> Result<Step<'w>> {
        // Some file systems have longer names, and one of them makes a reader refuse the whole folder.
        if !is_safe_name(name) {
            let length = name.len();
            self.problem(format_args!(
                "a name of {length} bytes; at most {NAME_BYTES_MAX} are kept"
            ));
            return Ok(Step::Done(None));
        }
        let folder = above.descriptor.as_ref().expect("it is gone on with");
        moments::pass();
        let status = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => status,
            Err(error) => {
                self.problem(error);
                return Ok(Step::Done(None));
            }
        };
        let known = above.parent.find(name);
        Ok(match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Step::Done(self.add_file(folder, name, &status, known)?),
            FileType::Directory => {
                let device = above.device.filter(|_| self.options.one_file_system);
                self.add_below(folder, (name, &status), known, device, wanted)?
            }
            FileType::Unknown => Step::Done(None),
            _ => Step::Done(self.add_node(folder, name, &status, known)),
        })
    }

    /// Adds an entry that is neither file nor folder.
    fn add_node(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        status: &Stat,
        known: Option<(&Entry, &Stamp)>,
    ) -> Option<Stored> {
        if let Some(known) = known.filter(|_| self.parent_has_attributes)
            && let Some(stored) = self.unchanged_node(known, name, status)
        {
            return Some(stored);
        }
        moments::pass();
        let held = rustix::fs::openat(folder, name, NODE_FLAGS, Mode::empty());
        let held = held.and_then(|held| Ok((rustix::fs::fstat(&held)?, held)));
        let (status, held) = match held {
            Ok(held) => held,
            Err(error) => {
                self.problem(error);
                return None;
            }
        };
        let device = status.st_rdev;
        let node = match FileType::from_raw_mode(status.st_mode) {
            FileType::Symlink => self.link(&held)?,
            FileType::Fifo => Node::Pipe,
            FileType::Socket => Node::Socket,
            FileType::CharacterDevice => Node::CharacterDevice { device },
            FileType::BlockDevice => Node::BlockDevice { device },
            _ => {
                self.problem(CHANGED_KIND);
                return None;
            }
        };
        let attributes = self.attributes(HeldInode::Named(held.as_fd()));
        let entry = Entry {
            node,
            attributes,
            link_group: self.group_of(&status),
            ..entry_of(name, &status)
        };
        Some((entry, stamp_of(&status)))
    }

    /// Returns the stored entry of a link, pipe, socket or device that is unchanged since the snapshot before.
    fn unchanged_node(
        &mut self,
        (before, stamped): (&Entry, &Stamp),
        name: &[u8],
        status: &Stat,
    ) -> Option<Stored> {
        let is_kind = match (&before.node, FileType::from_raw_mode(status.st_mode)) {
            (Node::Link { .. }, FileType::Symlink)
            | (Node::Pipe, FileType::Fifo)
            | (Node::Socket, FileType::Socket) => true,
            (Node::CharacterDevice { device }, FileType::CharacterDevice)
            | (Node::BlockDevice { device }, FileType::BlockDevice) => *device == status.st_rdev,
            _ => false,
        };
        let (entry, stamp) = (entry_of(name, status), stamp_of(status));
        let is_same = is_kind && before.changed == entry.changed && *stamped == stamp;
        let is_old = stamp.inode_changed.seconds < self.unchanged_before;
        (is_same && is_old).then(|| {
            let entry = Entry {
                node: before.node.clone(),
                attributes: before.attributes.clone(),
                link_group: self.group_of(status),
                ..entry
            };
            (entry, stamp)
        })
    }

    fn link(&mut self, held: &OwnedFd) -> Option<Node> {
        match rustix::fs::readlinkat(held, c"", Vec::new()) {
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

    fn attributes(&mut self, held: HeldInode<'_>) -> Attributes {
        let mut problems = Vec::new();
        let attributes = held.attributes(&mut |reason| problems.push(reason));
        for reason in problems {
            if reason != LACKS_PROC || !std::mem::replace(&mut self.lacks_proc, true) {
                self.problem(reason);
            }
        }
        attributes
    }

    /// Begins with a folder that is an entry.
    fn add_below<'w>(
        &mut self,
        folder: &OwnedFd,
        (name, status): (&[u8], &Stat),
        known: Option<(&Entry, &Stamp)>,
        device: Option<u64>,
        wanted: Option<&'w Wanted>,
    ) -> Result<Step<'w>> {
        let (mut entry, stamp) = (entry_of(name, status), stamp_of(status));
        entry.node = Node::Folder { content: Id::NONE };
        if device.is_some_and(|device| device != status.st_dev) {
            return Ok(Step::Done(Some((entry, stamp))));
        }
        if self.path.len() > DEPTH_MAX {
            self.problem(format_args!(
                "more than {DEPTH_MAX} folders within each other"
            ));
            return Ok(Step::Done(None));
        }
        moments::pass();
        let opened = match rustix::fs::openat(folder, name, FOLDER_FLAGS, Mode::empty()) {
            Ok(opened) => opened,
            Err(error) => {
                self.problem(error);
                return Ok(Step::Done(None));
            }
        };
        entry.attributes = self.attributes(HeldInode::Open(opened.as_fd()));
        let ids = known.and_then(|(entry, stamp)| match entry.node {
            Node::Folder { content } => Some([content, stamp.folder]),
            _ => None,
        });
        let parent = self.parent(ids)?;
        let wanted = wanted.unwrap_or(&WHOLE);
        let device = (wanted.is_whole && self.options.one_file_system).then_some(status.st_dev);
        let itself = Some((entry, stamp));
        let below = self.opened(itself, opened, parent, (wanted, device));
        Ok(Step::Into(Box::new(below)))
    }

    fn add_file(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        status: &Stat,
        known: Option<(&Entry, &Stamp)>,
    ) -> Result<Option<Stored>> {
        let link = (status.st_nlink > 1).then_some((status.st_dev, status.st_ino));
        let (entry, stamp) = (entry_of(name, status), stamp_of(status));
        let unchanged = self.unchanged(known, &entry, &stamp);
        let stored = match &unchanged {
            Ok(before) => self.taken_over(folder, before, entry, stamp),
            Err(_) => None,
        };
        let stored = if stored.is_some() {
            self.added.unchanged_files += 1;
            stored
        } else if let Some((entry, stamp)) = link.and_then(|link| self.links.get(&link)) {
            // All facts about one inode are of one moment.
            let name = name.to_vec();
            let entry = entry.clone();
            Some((Entry { name, ..entry }, *stamp))
        } else {
            let is_changed = matches!(unchanged, Err(Reason::Changed | Reason::Torn));
            let stored = self.read_file(folder, name, is_changed)?;
            if stored.is_some() {
                self.added.read.count(unchanged.err());
            }
            stored
        };
        let Some((mut entry, stamp)) = stored else {
            return Ok(None);
        };
        entry.link_group = self.group_of(status);
        if let Some(link) = link {
            self.links.insert(link, (entry.clone(), stamp));
        }
        if let Node::File { size_bytes, .. } = entry.node {
            self.added.snapshot.files += 1;
            self.added.snapshot.raw_bytes += size_bytes;
            let (done, total) = (self.added.snapshot.raw_bytes, self.total);
            (self.progress)(&Progress {
                phase: "adding",
                done,
                total,
            });
        }
        Ok(Some((entry, stamp)))
    }

    /// Numbers the names of an inode by the inode, so the number is the same next time.
    fn group_of(&mut self, status: &Stat) -> u64 {
        if status.st_nlink < 2 {
            return 0;
        }
        let device = status.st_dev;
        let at = self.devices.iter().position(|known| *known == device);
        let at = at.unwrap_or_else(|| {
            self.devices.push(device);
            self.devices.len() - 1
        });
        status.st_ino ^ (at as u64) << 48
    }

    /// Returns the stored entry of a file that is unchanged since the snapshot before, or the reason to read it.
    fn unchanged<'k>(
        &self,
        known: Option<(&'k Entry, &Stamp)>,
        entry: &Entry,
        stamp: &Stamp,
    ) -> std::result::Result<Before<'k>, Reason> {
        if self.options.rereads {
            return Err(Reason::Asked);
        }
        let Some((before, stamped)) = known else {
            return Err(Reason::New);
        };
        let (
            Node::File {
                size_bytes: was, ..
            },
            Node::File { size_bytes: is, .. },
        ) = (&before.node, &entry.node)
        else {
            return Err(Reason::New);
        };
        let is_inode = stamped.inode == stamp.inode;
        let is_ctime = stamped.inode_changed == stamp.inode_changed;
        let ignores_ctime = self.options.ignores_ctime || self.options.ignores_inode;
        let is_young = |time: &Time| time.seconds >= self.unchanged_before;
        match &before.node {
            _ if before.changed != entry.changed || was != is => Err(Reason::Changed),
            _ if !is_inode && !self.options.ignores_inode => Err(Reason::Inode),
            _ if !is_ctime && !ignores_ctime => Err(Reason::InodeChanged),
            Node::File { is_torn: true, .. } => Err(Reason::Torn),
            _ if is_young(&entry.changed) => Err(Reason::Young),
            _ if is_young(&stamp.inode_changed) && !ignores_ctime => Err(Reason::Young),
            // A list that a live snapshot names is not read: a collection keeps all its chunks, and a repair drops a
            // list that lacks one.
            Node::File { content, .. } if !self.writer.index.has_content(content) => {
                Err(Reason::Lost)
            }
            _ => Ok(Before {
                node: &before.node,
                attributes: (self.parent_has_attributes && is_inode && is_ctime)
                    .then_some(&before.attributes),
            }),
        }
    }

    /// Takes over a file's entry from the snapshot before, without attributes that it does not know. Nothing is taken
    /// over of a file that has changed since it was looked at.
    fn taken_over(
        &mut self,
        folder: &OwnedFd,
        before: &Before<'_>,
        entry: Entry,
        stamp: Stamp,
    ) -> Option<Stored> {
        let attributes = match before.attributes {
            Some(attributes) => attributes.clone(),
            None => match open_file(folder, &entry.name) {
                Ok((status, _)) if stamp_of(&status) != stamp => return None,
                Ok((_, file)) => self.attributes(HeldInode::Open(file.as_fd())),
                Err(reason) => {
                    self.problem(format_args!("its attributes cannot be read: {reason}"));
                    Attributes::new()
                }
            },
        };
        let node = before.node.clone();
        let entry = Entry {
            node,
            attributes,
            ..entry
        };
        Some((entry, stamp))
    }

    /// Reads a file, and again if it changed meanwhile. A file that changes each time is stored as it was read last.
    fn read_file(
        &mut self,
        folder: &OwnedFd,
        name: &[u8],
        is_changed: bool,
    ) -> Result<Option<Stored>> {
        let mut last = None;
        let mut expected = Expected {
            is_bounded: true,
            is_changed,
        };
        for _ in 0..READS_MAX {
            let opened = open_file(folder, name);
            let read = match opened {
                Ok((status, file)) => self.read_once(name, &status, file, expected)?,
                Err(reason) => Err(reason),
            };
            match read {
                Ok(Reading {
                    stored,
                    is_settled: true,
                    has_more: false,
                }) => return Ok(Some(stored)),
                Ok(reading) => {
                    // Such a file has another length than the stated one.
                    expected.is_bounded = !reading.is_settled;
                    last = Some(reading.stored);
                }
                // The bytes that were read before it went are kept.
                Err(_) if last.is_some() => break,
                Err(reason) => {
                    self.problem(reason);
                    return Ok(None);
                }
            }
        }
        if let Some((entry, _)) = &mut last
            && let Node::File { is_torn, .. } = &mut entry.node
        {
            *is_torn = true;
            self.added.torn_files += 1;
            self.problem("it changed each time it was read; it is stored as it was read last");
        }
        Ok(last)
    }

    /// Reads an open file; returns the reason if it cannot.
    fn read_once(
        &mut self,
        name: &[u8],
        status: &Stat,
        file: OwnedFd,
        expected: Expected,
    ) -> Result<std::result::Result<Reading, String>> {
        moments::pass();
        let attributes = self.attributes(HeldInode::Open(file.as_fd()));
        let extents = self.clones.extents(&file, status);
        let shared = extents.and_then(|it| self.clones.find(&self.root, &it));
        let length = status.st_size as u64;
        // Files that the system makes up state a length of 0.
        let limit = Some(length).filter(|length| expected.is_bounded && *length > 0);
        let mut source = FileSource::new(File::from(file), limit, expected.is_changed);
        let stored = match shared {
            Some(content) => Ok((content, length)),
            None => self.writer.add_content(&mut source),
        };
        let has_more = limit.is_some_and(|limit| source.has_more(limit));
        if let Some(failure) = source.failure() {
            return Ok(Err(failure));
        }
        let (content, size_bytes) = stored?;
        moments::pass();
        let after = rustix::fs::fstat(source.descriptor());
        let is_settled = after.is_ok_and(|after| {
            stamp_of(&after) == stamp_of(status) && entry_of(name, &after) == entry_of(name, status)
        });
        if is_settled && !has_more {
            self.added.shared_files += u64::from(shared.is_some());
            if let Some(extents) = extents {
                self.clones.remember(extents, &self.path, status, content);
            }
        }
        let node = Node::File {
            size_bytes,
            is_sparse: (status.st_blocks as u64) < size_bytes / 512,
            is_torn: false,
            content,
        };
        let entry = Entry {
            node,
            attributes,
            ..entry_of(name, status)
        };
        Ok(Ok(Reading {
            stored: (entry, stamp_of(status)),
            is_settled,
            has_more,
        }))
    }
}

/// An entry and its stamp.
type Stored = (Entry, Stamp);

/// The entry of a file in the snapshot before.
struct Before<'k> {
    node: &'k Node,
    /// Its attributes, where they are known.
    attributes: Option<&'k Attributes>,
}

/// Why a file is read.
enum Reason {
    New,
    Changed,
    InodeChanged,
    Inode,
    Young,
    Torn,
    Lost,
    Asked,
}

/// The expected facts about a file that is read.
#[derive(Clone, Copy)]
struct Expected {
    /// Whether its length is the stated one.
    is_bounded: bool,
    /// Whether its content is another than in the snapshot before.
    is_changed: bool,
}

/// A file that was read.
struct Reading {
    stored: Stored,
    /// Whether it is as it was before.
    is_settled: bool,
    /// Whether more follows than the stated length.
    has_more: bool,
}

impl ReadFiles {
    /// Counts a file that was read. Without a reason it changed while it was looked at.
    fn count(&mut self, reason: Option<Reason>) {
        *match reason {
            Some(Reason::New) => &mut self.new,
            Some(Reason::Changed) | None => &mut self.changed,
            Some(Reason::InodeChanged) => &mut self.ctime,
            Some(Reason::Inode) => &mut self.inode,
            Some(Reason::Young) => &mut self.young,
            Some(Reason::Torn) => &mut self.torn,
            Some(Reason::Lost) => &mut self.lost,
            Some(Reason::Asked) => &mut self.asked,
        } += 1;
    }
}

/// Opens a file to read it, without waiting for it; returns the reason if it cannot.
fn open_file(folder: &OwnedFd, name: &[u8]) -> std::result::Result<(Stat, OwnedFd), String> {
    moments::pass();
    let opened = rustix::fs::openat(folder, name, FILE_FLAGS, Mode::empty());
    moments::pass();
    let opened = opened.and_then(|file| Ok((rustix::fs::fstat(&file)?, file)));
    let (status, file) = opened.map_err(|error| error.to_string())?;
    match FileType::from_raw_mode(status.st_mode) {
        FileType::RegularFile => Ok((status, file)),
        _ => Err(CHANGED_KIND.to_string()),
    }
}

pub(super) fn entry_of(name: &[u8], status: &Stat) -> Entry {
    Entry {
        name: name.to_vec(),
        node: Node::File {
            size_bytes: status.st_size as u64,
            is_sparse: false,
            is_torn: false,
            content: Id::NONE,
        },
        mode: status.st_mode & 0o7777,
        user: status.st_uid,
        group: status.st_gid,
        changed: time(status.st_mtime, status.st_mtime_nsec),
        link_group: 0,
        attributes: Vec::new(),
    }
}

pub(super) fn stamp_of(status: &Stat) -> Stamp {
    Stamp {
        inode_changed: time(status.st_ctime, status.st_ctime_nsec),
        inode: status.st_ino,
        ..Stamp::default()
    }
}

/// Returns a time of a file system; some report more nanoseconds than a second has.
fn time(seconds: i64, nanoseconds: u64) -> Time {
    Time {
        seconds,
        nanoseconds: nanoseconds.min(999_999_999) as u32,
    }
}

fn is_cache(folder: &OwnedFd) -> bool {
    let opened = rustix::fs::openat(folder, CACHE_TAG, FILE_FLAGS, Mode::empty());
    let mut head = [0; CACHE_SIGNATURE.len()];
    opened
        .is_ok_and(|file| File::from(file).read_exact(&mut head).is_ok() && head == CACHE_SIGNATURE)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::contents::{WHOLE_BYTES_MAX, check_whole};
    use super::super::{Entropy, FolderEnd, PasswordCost, VaultOptions};
    use super::*;
    use crate::pool::PoolOptions;
    use crate::storage::MemoryStorage;

    /// Tests cannot count on a file system with such names, so the walk is asked for one without a file.
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
            parent_has_attributes: false,
            lacks_proc: false,
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
            let wanted = Wanted::default();
            let root = root.try_clone().unwrap();
            let open = walk.opened(None, root, Parent::default(), (&wanted, None));
            let added = walk.add_entry(&open, &name, None);
            assert!(matches!(added.unwrap(), Step::Done(None)));
            walk.added.problems.pop().expect("a problem").1
        };
        assert!(add(256).contains("a name of 256 bytes"));
        // This one is merely missing.
        assert!(!add(255).contains("a name of"));
    }

    #[test]
    fn a_folder_that_no_reader_takes_is_refused() {
        let refused = check_whole(WHOLE_BYTES_MAX + 1);
        assert!(matches!(refused, Err(Error::Limit { what: FOLDER, .. })));
        check_whole(WHOLE_BYTES_MAX).unwrap();
    }
}
