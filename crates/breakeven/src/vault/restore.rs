//! Bringing a snapshot back.
//!
//! Promises: nothing is written outside of the target, whatever the vault says. Names were checked when they were read,
//! folders are opened one within another without following links, and files are new. Existing entries stay unless the
//! caller says otherwise, and then until their replacement is whole under another name. Every content is checked by its
//! identity. Of a file with damaged content the rest is written, unless another lies there, and the lost parts are
//! reported. A far end that does not answer ends it. A content that was restored before is cloned from that file, unless
//! that has changed since.
//!
//! One thread makes folders and links; the pool makes files, in batches. A folder gets its mode and times when all its
//! entries are there. An existing folder stays as it is, unless existing entries are replaced.

use crate::quoted::quoted_bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::pool::{Pool, Stage};

use super::cipher::Id;
use super::contents::Chunks;
use super::folder::{Entry, Node};
use super::index::Index;
use super::metadata::{HeldInode, MetadataOptions, is_new_node, shown};
use super::patterns::PathPatterns;
use super::record::Snapshot;
use super::repair::is_damage;
use super::restore_files::{Batch, FileJob, Files, Inode, Made, Place, inode_of, open_below};
use super::tree_reader::TreeReader;
use super::verify::DEPTH_MAX;
use super::walk::{NODE_FLAGS, OPEN_FOLDERS_MAX};
use super::{Progress, Vault};

/// How a snapshot is restored.
#[derive(Clone, Debug)]
pub struct RestoreOptions {
    /// Whether existing entries are replaced. Default false: they are kept, and reported.
    pub replaces: bool,
    /// Whether owners are restored, which needs root. Default: if this is root.
    pub owners: bool,
    /// The part of the snapshot that is restored: the entries of that folder, or one file. Default `/`, all of it.
    pub path: Vec<u8>,
    /// Patterns of the entries restored of that, with the folders that lead to them; all if there are none. Default
    /// none.
    pub includes: PathPatterns,
    /// Patterns of the entries that are not restored. Default nothing.
    pub excludes: PathPatterns,
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
            path: b"/".to_vec(),
            includes: PathPatterns::default(),
            excludes: PathPatterns::default(),
            entries_max: 1 << 32,
            bytes_max: 1 << 50,
            index_bytes_max: 1 << 30,
        }
    }
}

impl RestoreOptions {
    /// Returns the bytes that are restored, if known in advance.
    fn total_bytes(&self, snapshot: &Snapshot) -> u64 {
        match self.path == b"/" && self.includes.is_empty() {
            true => snapshot.raw_bytes,
            false => 0,
        }
    }
}

/// The outcome of a restore.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// Files.
    pub files: u64,
    /// Folders.
    pub folders: u64,
    /// Bytes of files.
    pub bytes: u64,
    /// Files that had changed while they were read for the snapshot.
    pub torn_files: u64,
    /// Whether the snapshot knows extended attributes.
    pub has_attributes: bool,
    /// The entries that could not be restored, and why.
    pub problems: Vec<(PathBuf, String)>,
}

pub(super) const FOLDER_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const BECAME_ANOTHER: &str = "something else has taken its place since it was made";
/// The beginning of the names under which replacements are made.
const TEMPORARY: &str = ".breakeven-";
/// The most bytes of a batch of files; small ones share the decoding of a frame.
const BATCH_BYTES: u64 = 1 << 20;
const BATCH_FILES: usize = 256;
/// Folders that wait for files in them; each is held open.
const FOLDERS_WAITING: usize = 64;

impl Vault {
    /// Restores a snapshot or a part of it into a folder, which is made if it is missing.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown snapshot or path, [`Error::Limit`] past a limit, those of the target's root
    /// and of a far end that does not answer. Any other entry that cannot be made or read is a problem.
    pub fn restore(
        &self,
        pool: &Pool,
        epoch: u64,
        target: &Path,
        options: &RestoreOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Restored> {
        let snapshot = self.snapshot(epoch)?;
        let index = Arc::new(self.index(options.index_bytes_max)?);
        let mut tree = self.tree_reader_of(&index);
        let found = tree.find(&snapshot, &options.path)?;
        let entry = found.ok_or_else(|| {
            let path = quoted_bytes(&options.path);
            Error::invalid("path", format!("there is no {path} in snapshot {epoch}"))
        })?;
        let leading = Leading::find(&mut tree, &entry, options)?;
        let root = Arc::new(open_target(target)?);
        let metadata = MetadataOptions {
            owners: options.owners,
            attributes: snapshot.has_attributes,
        };
        let (own_index, own_root) = (Arc::clone(&index), Arc::clone(&root));
        let files = Files::new(own_index, own_root, options.replaces, metadata);
        let (far, keys) = (Arc::clone(&self.far), Arc::clone(&self.keys));
        let create = move || Chunks::new(&far, &keys);
        let work = move |chunks: &mut Chunks, batch: Batch| files.make(chunks, batch);
        let mut restore = Restore {
            chunks: Chunks::new(&self.far, &self.keys),
            stage: pool.stage(pool.worker_count() + 1, create, work)?,
            index,
            options,
            metadata,
            root: Arc::clone(&root),
            path: Vec::new(),
            links: BTreeMap::new(),
            linked: BTreeMap::new(),
            entries: 0,
            planned_bytes: 0,
            batch: Batch::default(),
            submitted: 0,
            completed: 0,
            waiting: VecDeque::new(),
            is_over: false,
            restored: Restored {
                has_attributes: snapshot.has_attributes,
                problems: leading.problems,
                ..Restored::default()
            },
            leading: leading.folders,
            total: options.total_bytes(&snapshot),
            progress,
        };
        let place = Arc::new(Place {
            folder: root,
            path: Vec::new(),
        });
        match entry.node {
            Node::Folder { content } => restore.tree(place, content)?,
            _ => restore.named(&place, entry)?,
        }
        restore.wait_for(restore.last_batch())?;
        let mut restored = restore.restored;
        for (path, _) in &mut restored.problems {
            *path = target.join(&*path);
        }
        restored.problems.sort();
        Ok(restored)
    }
}

/// The folders that are restored only for their entries.
#[derive(Default)]
struct Leading {
    folders: Option<BTreeSet<Vec<Vec<u8>>>>,
    problems: Vec<(PathBuf, String)>,
}

impl Leading {
    fn find(tree: &mut TreeReader, entry: &Entry, options: &RestoreOptions) -> Result<Leading> {
        let (Node::Folder { content }, false) = (&entry.node, options.includes.is_empty()) else {
            return Ok(Leading::default());
        };
        let found = tree.included(*content, &options.includes, &options.excludes)?;
        let mut problems = found.problems;
        for pattern in found.unmatched {
            let pattern = options.includes.typed(pattern);
            let path = PathBuf::from(OsStr::from_bytes(pattern));
            problems.push((path, "nothing in the snapshot is named so".to_string()));
        }
        Ok(Leading {
            folders: Some(found.folders),
            problems,
        })
    }
}

/// Opens the folder to restore into, and makes it if it is missing.
fn open_target(target: &Path) -> Result<OwnedFd> {
    std::fs::create_dir_all(target).map_err(|error| Error::io("create folder", target, error))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(CWD, target, flags, Mode::empty());
    opened.map_err(|error| Error::io("open", target, error.into()))
}

/// A folder that is being restored.
struct RestoredFolder {
    /// Nothing while a folder far below is restored.
    place: Option<Arc<Place>>,
    inode: Inode,
    /// The remaining entries.
    entries: std::vec::IntoIter<Entry>,
    /// The metadata that it gets in the end; nothing where it stays as it was.
    entry: Option<Entry>,
    is_read: bool,
}

/// A folder that waits for the files in it.
struct WaitingFolder {
    place: Arc<Place>,
    /// The metadata that it gets then; nothing where it stays as it was.
    entry: Option<Entry>,
    /// The batch with the last of them.
    batch: u64,
}

struct Restore<'r> {
    chunks: Chunks,
    stage: Stage<Batch, Made, Chunks>,
    index: Arc<Index>,
    options: &'r RestoreOptions,
    metadata: MetadataOptions,
    root: Arc<OwnedFd>,
    path: Vec<Vec<u8>>,
    /// Where the first name of each group of hard links lies below the target, and the batch that makes it.
    links: BTreeMap<u64, (Vec<Vec<u8>>, u64)>,
    /// The files of groups of hard links that were made there.
    linked: BTreeMap<u64, Inode>,
    entries: u64,
    planned_bytes: u64,
    /// Files that are not yet handed to the pool.
    batch: Batch,
    /// Batches that were handed over, and batches that came back.
    submitted: u64,
    completed: u64,
    /// Folders with files that are not yet made.
    waiting: VecDeque<WaitingFolder>,
    /// Whether the far end does not answer, or making files ended in a panic.
    is_over: bool,
    restored: Restored,
    /// The folders that are restored only for their entries; none where all is restored.
    leading: Option<BTreeSet<Vec<Vec<u8>>>>,
    total: u64,
    progress: &'r mut dyn FnMut(&Progress),
}

impl Restore<'_> {
    fn problem(&mut self, reason: impl std::fmt::Display) {
        let path = path_of(&self.path);
        self.restored.problems.push((path, reason.to_string()));
    }

    /// Says whether the entry at the path is to be restored.
    fn is_wanted(&self, entry: &Entry) -> bool {
        let is_included = match &self.leading {
            Some(leading) => {
                self.options.includes.matches_around(&self.path)
                    || matches!(entry.node, Node::Folder { .. }) && leading.contains(&self.path)
            }
            None => true,
        };
        is_included && !self.options.excludes.matches(&self.path)
    }

    /// Restores all entries of a folder.
    fn tree(&mut self, place: Arc<Place>, content: Id) -> Result<()> {
        let mut open = vec![self.opened(place, content, None)?];
        while let Some(folder) = open.last_mut() {
            let Some(entry) = folder.entries.next() else {
                let folder = open.pop().expect("it was there");
                self.restored.folders += u64::from(folder.is_read);
                let Some(above) = open.last_mut() else {
                    return Ok(());
                };
                let ended = self.end_folder(folder);
                self.go_on(ended)?;
                self.path.pop();
                self.open_again(above);
                continue;
            };
            self.entries += 1;
            if self.entries > self.options.entries_max {
                return Err(Error::invalid(
                    "snapshot",
                    format!("more than {} entries", self.options.entries_max),
                ));
            }
            let place = folder.place.clone().expect("it is gone on with");
            let Node::Folder { content } = entry.node else {
                self.named(&place, entry)?;
                continue;
            };
            self.path.push(entry.name.clone());
            let made = match self.is_wanted(&entry) {
                true => self.make_folder(&place, entry).map(Some),
                false => Ok(None),
            };
            match self.go_on(made)?.flatten() {
                Some((place, entry)) => open.push(self.opened(place, content, entry)?),
                None => drop(self.path.pop()),
            }
            if let Some(far) = open.len().checked_sub(OPEN_FOLDERS_MAX + 1)
                && let Some(place) = open[far].place.take()
                && Arc::strong_count(&place) > 1
            {
                // Files that are not yet made hold it open as well.
                drop(place);
                let waited = self.wait_for(self.last_batch());
                self.go_on(waited)?;
            }
        }
        Ok(())
    }

    /// Notes the problem at the path; returns the error where nothing else can be restored either.
    fn go_on<T>(&mut self, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(result) => Ok(Some(result)),
            Err(error) if self.is_over || matches!(error, Error::Limit { .. }) => Err(error),
            Err(error) => {
                self.problem(error);
                Ok(None)
            }
        }
    }

    /// Begins with a folder that was made.
    fn opened(
        &mut self,
        place: Arc<Place>,
        content: Id,
        entry: Option<Entry>,
    ) -> Result<RestoredFolder> {
        let entries = match content {
            Id::NONE => Ok(Vec::new()),
            content => self.chunks.folder(&self.index, content),
        };
        let is_read = entries.is_ok();
        let entries = entries.or_else(|error| {
            self.is_over = !is_damage(&error);
            self.go_on(Err(error)).map(Option::unwrap_or_default)
        })?;
        Ok(RestoredFolder {
            inode: rustix::fs::fstat(&*place.folder).map_or((0, 0), |it| inode_of(&it)),
            place: Some(place),
            entries: entries.into_iter(),
            entry,
            is_read,
        })
    }

    /// Opens a folder again that was closed while the entries below it were restored.
    fn open_again(&mut self, folder: &mut RestoredFolder) {
        if folder.place.is_some() {
            return;
        }
        let opened = open_below(&self.root, &self.path);
        let is_same = |it: &OwnedFd| {
            rustix::fs::fstat(it).is_ok_and(|status| inode_of(&status) == folder.inode)
        };
        match opened.map_err(|error| io("open the folder", error)) {
            Ok(opened) if is_same(&opened) => {
                folder.place = Some(Arc::new(Place {
                    folder: Arc::new(opened),
                    path: self.path.clone(),
                }));
            }
            other => {
                let lost = Error::invalid("folder", BECAME_ANOTHER);
                self.problem(other.err().unwrap_or(lost));
                folder.entries = Vec::new().into_iter();
            }
        }
    }

    /// Has a folder wait for its files; then it gets its metadata.
    fn end_folder(&mut self, folder: RestoredFolder) -> Result<()> {
        let Some(place) = folder.place else {
            return Ok(());
        };
        self.waiting.push_back(WaitingFolder {
            place,
            entry: folder.entry,
            batch: self.last_batch(),
        });
        match self.waiting.len() > FOLDERS_WAITING {
            true => self.wait_for(self.last_batch()),
            false => Ok(()),
        }
    }

    /// Restores one name in a folder, if it is wanted.
    fn named(&mut self, place: &Arc<Place>, entry: Entry) -> Result<()> {
        self.path.push(entry.name.clone());
        let restored = match (self.is_wanted(&entry), &entry.node) {
            (false, _) => Ok(()),
            (true, Node::File { .. }) => self.file(place, entry),
            (true, _) => self.node(place, &entry),
        };
        self.go_on(restored)?;
        self.path.pop();
        Ok(())
    }

    /// Makes an entry that is neither file nor folder.
    fn node(&mut self, place: &Place, entry: &Entry) -> Result<()> {
        if entry.link_group != 0
            && let Some((first, _)) = self.links.get(&entry.link_group).cloned()
            && let Some(inode) = self.linked.get(&entry.link_group).copied()
            && self.link(&place.folder, &entry.name, (&first[..], inode))?
        {
            return Ok(());
        }
        let folder = &*place.folder;
        let held = make_named(folder, &entry.name, self.options.replaces, |name| {
            make_special(folder, name, entry)?;
            // Another process that may write in the folder can have replaced it.
            let held = rustix::fs::openat(folder, name, NODE_FLAGS, Mode::empty());
            let held = held.map_err(|error| io("open the node", error))?;
            let status = rustix::fs::fstat(&held).map_err(|error| io("open the node", error))?;
            if !is_new_node(&status, entry) {
                return Err(Error::invalid("node", BECAME_ANOTHER));
            }
            let path = path_of(&self.path);
            let problems = &mut self.restored.problems;
            let mut problem = |reason| problems.push((path.clone(), reason));
            HeldInode::Named(held.as_fd()).give(entry, self.metadata, &mut problem);
            Ok((held, inode_of(&status)))
        });
        let inode = match held {
            Ok((_, inode)) => inode,
            // An equal entry stays.
            Err(_) if is_equal_link(folder, entry) => return Ok(()),
            Err(error) => return Err(error),
        };
        if entry.link_group != 0 {
            self.links.insert(entry.link_group, (self.path.clone(), 0));
            self.linked.insert(entry.link_group, inode);
        }
        Ok(())
    }

    /// Has a file made, or another name of one that was made.
    fn file(&mut self, place: &Arc<Place>, entry: Entry) -> Result<()> {
        let Node::File { size_bytes, .. } = entry.node else {
            unreachable!("a file");
        };
        let link_group = entry.link_group;
        if link_group != 0
            && let Some((first, batch)) = self.links.get(&link_group).cloned()
        {
            self.wait_for(batch)?;
            if let Some(inode) = self.linked.get(&link_group).copied()
                && self.link(&place.folder, &entry.name, (&first[..], inode))?
            {
                self.restored.files += 1;
                return Ok(());
            }
        }
        let needed_bytes = self.planned_bytes.saturating_add(size_bytes);
        if needed_bytes > self.options.bytes_max {
            return Err(Error::Limit {
                what: "snapshot",
                limit_bytes: self.options.bytes_max,
                needed_bytes,
            });
        }
        self.planned_bytes = needed_bytes;
        if link_group != 0 {
            let batch = self.submitted + 1;
            self.links.insert(link_group, (self.path.clone(), batch));
        }
        self.batch.size_bytes += size_bytes;
        self.batch.files.push(FileJob {
            place: Arc::clone(place),
            entry,
        });
        let is_full = self.batch.size_bytes >= BATCH_BYTES || self.batch.files.len() >= BATCH_FILES;
        match is_full {
            true => self.submit(),
            false => Ok(()),
        }
    }

    /// Hands the open batch to the pool.
    fn submit(&mut self) -> Result<()> {
        if self.batch.files.is_empty() {
            return Ok(());
        }
        while self.stage.is_full() {
            self.take_made()?;
        }
        let batch = std::mem::take(&mut self.batch);
        if self.stage.submit(batch).is_err() {
            return Err(Error::invalid("pool", "it takes no jobs"));
        }
        self.submitted += 1;
        Ok(())
    }

    /// Takes the oldest batch that was made, and finishes the folders that waited for it.
    fn take_made(&mut self) -> Result<()> {
        let made = self.stage.next_result();
        let made = made.expect("a batch that was handed over");
        self.is_over |= made.is_err();
        let made = made?;
        self.completed += 1;
        self.restored.files += made.files;
        self.restored.bytes += made.bytes;
        self.restored.torn_files += made.torn_files;
        self.restored.problems.extend(made.problems);
        self.linked.extend(made.linked);
        let (done, total) = (self.restored.bytes, self.total);
        (self.progress)(&Progress {
            phase: "restoring",
            done,
            total,
        });
        self.finish_folders();
        Ok(())
    }

    fn finish_folders(&mut self) {
        while let Some(folder) = self.waiting.front()
            && folder.batch <= self.completed
        {
            let folder = self.waiting.pop_front().expect("it was there");
            let WaitingFolder { place, entry, .. } = folder;
            let Some(entry) = entry else { continue };
            let problems = &mut self.restored.problems;
            let mut problem = |reason| problems.push((path_of(&place.path), reason));
            HeldInode::Open(place.folder.as_fd()).give(&entry, self.metadata, &mut problem);
        }
    }

    fn last_batch(&self) -> u64 {
        self.submitted + u64::from(!self.batch.files.is_empty())
    }

    /// Waits until a batch is made.
    fn wait_for(&mut self, batch: u64) -> Result<()> {
        if batch > self.submitted {
            self.submit()?;
        }
        while self.completed < batch {
            self.take_made()?;
        }
        self.finish_folders();
        Ok(())
    }

    /// Makes another name of a restored file; its path is followed without links. Says whether it did: something else
    /// may lie there now.
    fn link(
        &self,
        folder: &OwnedFd,
        name: &[u8],
        (first, inode): (&[Vec<u8>], Inode),
    ) -> Result<bool> {
        let (last, folders) = first.split_last().expect("a path of a file");
        let Ok(at) = open_below(&self.root, folders) else {
            return Ok(false);
        };
        let Ok(held) = rustix::fs::openat(&at, &last[..], NODE_FLAGS, Mode::empty()) else {
            return Ok(false);
        };
        if !rustix::fs::fstat(&held).is_ok_and(|status| inode_of(&status) == inode) {
            return Ok(false);
        }
        make_named(folder, name, self.options.replaces, |name| {
            let linked = link_held(&held, folder, name);
            linked.map_err(|error| io("make the hard link", error))
        })?;
        Ok(true)
    }

    /// Makes a folder, and returns the metadata that it gets in the end: nothing where it exists and stays as it is.
    fn make_folder(&self, place: &Place, entry: Entry) -> Result<(Arc<Place>, Option<Entry>)> {
        if self.path.len() > DEPTH_MAX {
            return Err(Error::invalid(
                "folder",
                format!("more than {DEPTH_MAX} within each other"),
            ));
        }
        let name = &entry.name[..];
        let is_new = match rustix::fs::mkdirat(&*place.folder, name, Mode::from_raw_mode(0o700)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(io("make the folder", error)),
        };
        let opened = rustix::fs::openat(&*place.folder, name, FOLDER_FLAGS, Mode::empty());
        let opened = opened.map_err(|error| io("open the folder", error))?;
        if is_new && !is_empty(&opened).map_err(|error| io("list the folder", error))? {
            return Err(Error::invalid("folder", BECAME_ANOTHER));
        }
        let place = Arc::new(Place {
            folder: Arc::new(opened),
            path: self.path.clone(),
        });
        Ok((place, (is_new || self.options.replaces).then_some(entry)))
    }
}

/// Makes an entry with a name in a folder. A replacement is made under another name and takes its place when it is
/// whole.
pub(super) fn make_named<T, E: From<Error>>(
    folder: &OwnedFd,
    name: &[u8],
    replaces: bool,
    make: impl FnOnce(&[u8]) -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    if !replaces {
        return make(name);
    }
    let temporary = format!("{TEMPORARY}{:016x}", fastrand::u64(..));
    let placed = make(temporary.as_bytes()).and_then(|made| {
        let renamed = rustix::fs::renameat(folder, &temporary, folder, name);
        renamed.map_err(|error| io("replace", error))?;
        Ok(made)
    });
    // Also where both were one file; a rename leaves both as they are.
    let _ = rustix::fs::unlinkat(folder, &temporary, AtFlags::empty());
    placed
}

/// Gives an inode that is held another name.
fn link_held(held: &OwnedFd, folder: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
    match rustix::fs::linkat(held, c"", folder, name, AtFlags::EMPTY_PATH) {
        // A user without the right to search everywhere must show where the system keeps it.
        Err(Errno::NOENT | Errno::PERM) => {
            let shown = shown(held.as_fd());
            rustix::fs::linkat(CWD, shown, folder, name, AtFlags::SYMLINK_FOLLOW)
        }
        linked => linked,
    }
}

/// Says whether a folder is empty, as a new one is.
pub(super) fn is_empty(folder: &OwnedFd) -> rustix::io::Result<bool> {
    for entry in Dir::read_from(folder)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Says whether a symbolic link to the same target lies there.
fn is_equal_link(folder: &OwnedFd, entry: &Entry) -> bool {
    let Node::Link { target } = &entry.node else {
        return false;
    };
    let found = rustix::fs::readlinkat(folder, &entry.name[..], Vec::new());
    found.is_ok_and(|found| found.as_bytes() == &target[..])
}

/// Returns the path of names below the target.
pub(super) fn path_of(names: &[Vec<u8>]) -> PathBuf {
    names.iter().map(|name| OsStr::from_bytes(name)).collect()
}

/// Makes a node that is neither file nor folder.
fn make_special(folder: &OwnedFd, name: &[u8], entry: &Entry) -> Result<()> {
    let (kind, device) = match &entry.node {
        Node::Link { target } => {
            let made = rustix::fs::symlinkat(&target[..], folder, name);
            return made.map_err(|error| io("make the link", error));
        }
        Node::Pipe => (FileType::Fifo, 0),
        Node::Socket => (FileType::Socket, 0),
        Node::CharacterDevice { device } => (FileType::CharacterDevice, *device),
        Node::BlockDevice { device } => (FileType::BlockDevice, *device),
        Node::File { .. } | Node::Folder { .. } => unreachable!("made elsewhere"),
    };
    let made = rustix::fs::mknodat(folder, name, kind, Mode::from_raw_mode(0o600), device);
    made.map_err(|error| io("make the node", error))
}

pub(super) fn io(operation: &'static str, error: Errno) -> Error {
    Error::io(operation, "the target", error.into())
}
