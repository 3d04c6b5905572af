//! Adding the volume of a disk: only the parts that its map shows as changed are read.
//!
//! The disk keeps a snapshot of the state that the last add stored, under a random name that the file's stamp holds.
//! The next add asks for the difference of the two maps. Chunks outside of it are taken from the list of the last
//! content. The identity of such a content is of its items (docs/format.md), so nobody hashes the rest either.
//!
//! Promises: without that snapshot, and where the list or a chunk of it is missing, the volume is read. The file is
//! like any other for all readers.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};

use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::quoted::quoted;
use crate::storage::is_zero;

use super::cipher::Id;
use super::contents::{Chunks, ContentExtent, ListCursor, identity_of_items};
use super::folder::{Entry, Node, Stamp, is_safe_name};
use super::images;
use super::index::Index;
use super::metadata::HeldInode;
use super::pack::{ChunkKind, name_of};
use super::record::Snapshot;
use super::repair::unless_damaged;
use super::walk::{AddOptions, Added, NODE_FLAGS, entry_of, parts_of, stamp_of};
use super::writer::{Group, List, Writer};
use super::{Progress, Vault};

/// Chunks of a part of the list; tests have shorter volumes. With items of 26 bytes at the most, a part is shorter than
/// 128 KiB, to which other lists are cut.
const PART_CHUNKS: u64 = if cfg!(test) { 16 } else { 4096 };
/// Bytes that are read at a time: a disk decodes the quarters of so long a read in threads.
const READ_BYTES: u64 = 1 << 20;

/// A volume of a disk, which knows what changed since a state that it still has.
pub trait DiskSource {
    /// Freezes the present state, which all other calls are about, under its name. Returns the length of the state
    /// before, if that is still there to compare with.
    ///
    /// # Errors
    /// Those of the disk.
    fn begin(&mut self, states: &DiskStates) -> Result<Option<u64>>;

    /// Returns the volume's length.
    fn size_bytes(&self) -> u64;

    /// Fills `target` from `offset`.
    ///
    /// # Errors
    /// Those of the disk.
    fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<()>;

    /// Returns the runs of stored bytes from an offset on. All others are zeros.
    ///
    /// # Errors
    /// Those of the disk.
    fn stored(&mut self, from: u64) -> Result<DiskRuns>;

    /// Returns the runs from an offset on that may differ from the state before. It is called only if there is one.
    ///
    /// # Errors
    /// Those of the disk.
    fn changed(&mut self, from: u64) -> Result<DiskRuns>;
}

/// The names of a volume's states, as a disk can name its snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStates {
    /// The beginning of the names of all states of this volume for this vault. When an add has ended, only the state of
    /// the last snapshot is of use.
    pub prefix: String,
    /// The name of the present state.
    pub now: String,
    /// The name of the state that the last snapshot holds, if there is one.
    pub before: Option<String>,
}

/// Some runs of a volume's bytes, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskRuns {
    /// The runs.
    pub runs: Vec<Range<u64>>,
    /// The offset up to which these are all.
    pub until: u64,
}

/// The file of a volume in a snapshot.
struct VolumeFile {
    state: Id,
    content: Id,
    size_bytes: u64,
}

impl Vault {
    /// Adds a snapshot of one file: a volume of the disk in the file `disk`, by absolute path. The file is called as the
    /// disk, with a colon and the volume's name behind it.
    ///
    /// # Errors
    /// As [`Vault::add`], and those of the disk. [`Error::Unsupported`] in a vault of version 1.
    pub fn add_disk(
        &mut self,
        pool: &Pool,
        disk: &Path,
        volume: &str,
        source: &mut dyn DiskSource,
        options: &AddOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Added> {
        if !self.has_deltas {
            let what = "changed blocks of a disk in a vault of version 1 (copy it to a new one)";
            return Err(Error::Unsupported { what: what.into() });
        }
        let tree = DiskTree::of(disk, volume)?;
        let path = tree.path();
        let mut states = self.states_of(options, &path);
        let now = Id(self.entropy.take());
        states.now = format!("{}{}", states.prefix, now.hex());
        let mut snapshot = self.describe(vec![path], options);
        let (mut writer, parent) = self.begin_add(pool, &mut snapshot, options, progress)?;
        let mut chunks = Chunks::new(&writer.vault().far, &writer.vault().keys);
        let mut before = match parent {
            Some(parent) => tree.file_in(&parent, &mut chunks, &writer.index)?,
            None => None,
        };
        states.before = (before.as_ref()).map(|it| format!("{}{}", states.prefix, it.state.hex()));
        let known_bytes = source.begin(&states)?;
        before = before.filter(|it| known_bytes == Some(it.size_bytes) && !options.rereads);
        let mut added = Added {
            snapshot,
            ..Added::default()
        };
        let size_bytes = source.size_bytes();
        let chunk_bytes = writer.chunk_bytes_of(size_bytes);
        before = before.filter(|it| writer.chunk_bytes_of(it.size_bytes) == chunk_bytes);
        let before = before.map(|it| it.content);
        let (content, read_bytes) = writer.add_volume(source, before, progress)?;
        added.disk_read_bytes = read_bytes;
        let file = VolumeFile {
            state: now,
            content,
            size_bytes,
        };
        let ids = tree.put(&mut writer, file, &mut added)?;
        [added.snapshot.folder, added.snapshot.stamps] = ids;
        (added.snapshot.files, added.snapshot.raw_bytes) = (1, size_bytes);
        added.index_bytes = writer.index_bytes();
        let epoch = writer.end(&mut added.snapshot)?;
        self.added(epoch, added)
    }

    /// Returns the names of the states of a file, but for the present one.
    fn states_of(&self, options: &AddOptions, path: &[u8]) -> DiskStates {
        let place = name_of(&[options.host.as_bytes(), b"\0", path].concat());
        let vault = Id(self.keys.vault).hex();
        DiskStates {
            prefix: format!("vault-{}-{}-", &vault[..16], &place.hex()[..16]),
            now: String::new(),
            before: None,
        }
    }
}

/// The path of a disk's file, as entries of folders.
struct DiskTree {
    /// From the root down, with the file as the last.
    nodes: Vec<(Entry, Stamp)>,
    problems: Vec<String>,
}

impl DiskTree {
    fn of(disk: &Path, volume: &str) -> Result<DiskTree> {
        let mut tree = DiskTree {
            nodes: Vec::new(),
            problems: Vec::new(),
        };
        let mut path = Path::new("/").to_path_buf();
        let parts = parts_of(disk)?;
        let is_file = |at: usize| at + 1 == parts.len();
        for (at, part) in parts.iter().enumerate() {
            path.push(OsStr::from_bytes(part));
            // Opening and closing the disk itself would unlock it.
            let held = rustix::fs::openat(CWD, &path, NODE_FLAGS, Mode::empty());
            let held: OwnedFd = held.map_err(|error| Error::io("open", &path, error.into()))?;
            let status = rustix::fs::fstat(&held);
            let status = status.map_err(|error| Error::io("stat", &path, error.into()))?;
            let kind = match is_file(at) {
                true => FileType::RegularFile,
                false => FileType::Directory,
            };
            if FileType::from_raw_mode(status.st_mode) != kind {
                let reason = format!("{} is something else", quoted(&path));
                return Err(Error::invalid("path of a disk", reason));
            }
            let mut entry = entry_of(part, &status);
            if is_file(at) {
                entry.name = [part, &b":"[..], volume.as_bytes()].concat();
            } else {
                let held = HeldInode::Named(held.as_fd());
                entry.node = Node::Folder { content: Id::NONE };
                entry.attributes = held.attributes(&mut |reason| tree.problems.push(reason));
            }
            tree.nodes.push((entry, stamp_of(&status)));
        }
        match tree.nodes.last() {
            Some((file, _)) if is_safe_name(&file.name) => Ok(tree),
            _ => {
                let reason = format!("{}:{volume} is no file name", quoted(&disk));
                Err(Error::invalid("path of a disk", reason))
            }
        }
    }

    /// Returns the path of the file in the snapshot.
    fn path(&self) -> Vec<u8> {
        let names = self.nodes.iter().map(|(entry, _)| &entry.name[..]);
        names
            .flat_map(|name| [b"/", name])
            .collect::<Vec<_>>()
            .concat()
    }

    /// Finds the file in an earlier snapshot, if it is of a disk there and not lost.
    fn file_in(
        &self,
        snapshot: &Snapshot,
        chunks: &mut Chunks,
        index: &Index,
    ) -> Result<Option<VolumeFile>> {
        let mut folder = [snapshot.folder, snapshot.stamps];
        for (wanted, _) in &self.nodes {
            let read = unless_damaged(chunks.folder_and_stamps(index, folder))?;
            let Some((entries, stamps)) = read else {
                return Ok(None);
            };
            let at = entries.binary_search_by(|entry| entry.name.cmp(&wanted.name));
            let Ok(at) = at else {
                return Ok(None);
            };
            match (&entries[at].node, &wanted.node) {
                (Node::Folder { content }, Node::Folder { .. }) => {
                    folder = [*content, stamps[at].folder];
                }
                (
                    Node::File {
                        content,
                        size_bytes,
                        ..
                    },
                    Node::File { .. },
                ) => {
                    let state = stamps[at].disk;
                    let is_known = state != Id::NONE && index.find(content).is_some();
                    return Ok(is_known.then_some(VolumeFile {
                        state,
                        content: *content,
                        size_bytes: *size_bytes,
                    }));
                }
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Stores the folders down to the file with its content; returns the root and its stamps.
    fn put(self, writer: &mut Writer<'_>, file: VolumeFile, added: &mut Added) -> Result<[Id; 2]> {
        let mut ids = [Id::NONE; 2];
        let path = self.path();
        for (mut entry, mut stamp) in self.nodes.into_iter().rev() {
            match &mut entry.node {
                Node::Folder { content } => [*content, stamp.folder] = ids,
                node => {
                    stamp.disk = file.state;
                    *node = Node::File {
                        size_bytes: file.size_bytes,
                        is_sparse: true,
                        is_torn: false,
                        content: file.content,
                    };
                }
            }
            ids = writer.add_folder(&[entry], &[stamp])?.into();
        }
        let path = Path::new(OsStr::from_bytes(&path));
        let problems = self.problems.into_iter();
        added
            .problems
            .extend(problems.map(|it| (path.to_path_buf(), it)));
        Ok(ids)
    }
}

/// The list of the last content.
struct ListBefore {
    chunks: Chunks,
    /// Nothing if it is damaged from here on.
    cursor: Option<ListCursor>,
}

impl ListBefore {
    fn open(mut chunks: Chunks, index: &Index, content: Id) -> Result<Option<ListBefore>> {
        let cursor = unless_damaged(chunks.cursor(index, content))?;
        Ok(cursor.map(|cursor| ListBefore {
            chunks,
            cursor: Some(cursor),
        }))
    }

    fn extent_at(&mut self, index: &Index, offset: u64) -> Result<Option<ContentExtent>> {
        let Some(cursor) = &mut self.cursor else {
            return Ok(None);
        };
        let found = cursor.extent_at(&mut self.chunks, index, offset);
        let found = unless_damaged(found)?.map(|extent| extent.cloned());
        if found.is_none() {
            self.cursor = None;
        }
        Ok(found.flatten())
    }
}

/// Runs that a disk names, taken in rising order.
#[derive(Default)]
struct RunQueue {
    runs: VecDeque<Range<u64>>,
    until: u64,
}

impl RunQueue {
    /// Returns the first run that ends behind an offset, or an empty one at the end.
    fn next(
        &mut self,
        from: u64,
        size_bytes: u64,
        mut ask: impl FnMut(u64) -> Result<DiskRuns>,
    ) -> Result<Range<u64>> {
        loop {
            while self.runs.front().is_some_and(|run| run.end <= from) {
                self.runs.pop_front();
            }
            if let Some(run) = self.runs.front() {
                return Ok(run.clone());
            }
            let from = self.until.max(from);
            if from >= size_bytes {
                return Ok(size_bytes..size_bytes);
            }
            let found = ask(from)?;
            assert!(found.until > from, "the runs from {from} on: {found:?}");
            (self.runs, self.until) = (found.runs.into(), found.until);
        }
    }
}

/// The next part of a volume, and the way to it.
enum VolumeSpan {
    Zeros(u64),
    /// A chunk that the vault has.
    Known(Id, u64),
    /// Chunks that are read together.
    Unread(u64),
}

/// A volume on its way into a list.
struct VolumeCopy<'s> {
    source: &'s mut dyn DiskSource,
    size_bytes: u64,
    chunk_bytes: u64,
    list: Option<ListBefore>,
    stored: RunQueue,
    changed: RunQueue,
    read_bytes: u64,
}

impl VolumeCopy<'_> {
    /// Returns the part that begins at an offset, which is a chunk's.
    fn span_at(&mut self, at: u64, index: &Index) -> Result<VolumeSpan> {
        let (size_bytes, chunk_bytes) = (self.size_bytes, self.chunk_bytes);
        // The volume's end is a chunk's as well.
        let chunk_start = |offset: u64| match offset >= size_bytes {
            true => size_bytes,
            false => offset - offset % chunk_bytes,
        };
        let chunk_end = size_bytes.min(at + chunk_bytes);
        let mut end = size_bytes;
        if let Some(list) = &mut self.list {
            let changed = &mut self.changed;
            let changed = changed.next(at, size_bytes, |from| self.source.changed(from))?;
            let from = chunk_start(changed.start);
            end = changed.end;
            if at < from {
                match list.extent_at(index, at)? {
                    Some(extent) if extent.id == Id::NONE => {
                        let end = chunk_start(extent.range.end.min(from));
                        if end > at {
                            return Ok(VolumeSpan::Zeros(end - at));
                        }
                    }
                    Some(ContentExtent { range, id })
                        if range == (at..chunk_end) && index.has_chunk(&id) =>
                    {
                        return Ok(VolumeSpan::Known(id, chunk_end - at));
                    }
                    _ => {}
                }
                end = chunk_end;
            }
        }
        let stored = &mut self.stored;
        let stored = stored.next(at, size_bytes, |from| self.source.stored(from))?;
        let from = chunk_start(stored.start);
        if at < from {
            return Ok(VolumeSpan::Zeros(from - at));
        }
        let end = stored.end.min(end).next_multiple_of(chunk_bytes);
        let end = end.min(at + READ_BYTES.max(chunk_bytes)).min(size_bytes);
        Ok(VolumeSpan::Unread(end - at))
    }
}

/// A list that is cut at fixed places of its content, and the hash of its items.
struct PartList {
    list: List,
    part_bytes: u64,
    hasher: blake3::Hasher,
}

impl PartList {
    /// Returns the bytes from the end of the list to the end of its last part.
    fn left_bytes(&self) -> u64 {
        self.part_bytes - self.list.raw_bytes % self.part_bytes
    }

    fn hash_part(&mut self) {
        self.list.flush_zeros();
        self.hasher.update(self.list.level(0));
    }
}

impl Writer<'_> {
    /// Returns the length of the chunks of a volume.
    fn chunk_bytes_of(&self, size_bytes: u64) -> u64 {
        let most_bytes = self.vault().options().chunks.mean_bytes;
        images::chunk_bytes_of(size_bytes, most_bytes) as u64
    }

    /// Stores the content of a volume, whose state before had another content; returns its identity, and how many
    /// bytes were read.
    pub(super) fn add_volume(
        &mut self,
        source: &mut dyn DiskSource,
        before: Option<Id>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<(Id, u64)> {
        let size_bytes = source.size_bytes();
        let list = match before {
            Some(before) => {
                let chunks = Chunks::new(&self.vault().far, &self.vault().keys);
                ListBefore::open(chunks, &self.index, before)?
            }
            None => None,
        };
        let mut copy = VolumeCopy {
            source,
            size_bytes,
            chunk_bytes: self.chunk_bytes_of(size_bytes),
            list,
            stored: RunQueue::default(),
            changed: RunQueue::default(),
            read_bytes: 0,
        };
        let content = match size_bytes {
            0 => Id::NONE,
            _ => self.copy_volume(&mut copy, progress)?,
        };
        Ok((content, copy.read_bytes))
    }

    fn copy_volume(
        &mut self,
        copy: &mut VolumeCopy<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Id> {
        let mut list = PartList {
            list: List::default(),
            part_bytes: PART_CHUNKS * copy.chunk_bytes,
            hasher: self.vault().keys.items_hasher(),
        };
        let mut buffer = Vec::new();
        while list.list.raw_bytes < copy.size_bytes {
            let at = list.list.raw_bytes;
            match copy.span_at(at, &self.index)? {
                VolumeSpan::Zeros(count) => self.push_zeros(&mut list, count)?,
                VolumeSpan::Known(id, length) => self.push_chunk(&mut list, length, id)?,
                VolumeSpan::Unread(length) => {
                    buffer.resize(length as usize, 0);
                    copy.source.read(at, &mut buffer)?;
                    copy.read_bytes += length;
                    for chunk in buffer.chunks(copy.chunk_bytes as usize) {
                        self.add_chunk(&mut list, chunk)?;
                    }
                    let (phase, total) = ("adding", copy.size_bytes);
                    let done = list.list.raw_bytes;
                    progress(&Progress { phase, done, total });
                }
            }
        }
        list.hash_part();
        let identity = identity_of_items(list.hasher, list.list.raw_bytes);
        self.put_list(identity, &mut list.list)?;
        Ok(identity.id)
    }

    fn add_chunk(&mut self, list: &mut PartList, chunk: &[u8]) -> Result<()> {
        let length_bytes = chunk.len() as u64;
        if is_zero(chunk) {
            return self.push_zeros(list, length_bytes);
        }
        let id = self.vault().keys.id(chunk);
        self.put_chunk(Group::Contents, ChunkKind::Plain, id, chunk)?;
        self.push_chunk(list, length_bytes, id)
    }

    fn push_chunk(&mut self, list: &mut PartList, length_bytes: u64, id: Id) -> Result<()> {
        let is_last = length_bytes == list.left_bytes();
        list.list.push(length_bytes as usize, id);
        list.list.raw_bytes += length_bytes;
        match is_last {
            true => self.end_part(list),
            false => Ok(()),
        }
    }

    /// Appends zeros. A part with a chunk ends at its boundary.
    fn push_zeros(&mut self, list: &mut PartList, mut count: u64) -> Result<()> {
        let left_bytes = list.left_bytes();
        if !list.list.level(0).is_empty() && count >= left_bytes {
            list.list.zeros += left_bytes;
            list.list.raw_bytes += left_bytes;
            count -= left_bytes;
            self.end_part(list)?;
        }
        list.list.zeros += count;
        list.list.raw_bytes += count;
        Ok(())
    }

    fn end_part(&mut self, list: &mut PartList) -> Result<()> {
        list.hash_part();
        self.cut_level(&mut list.list, 0)?;
        self.cut_list(&mut list.list, 1)
    }
}
