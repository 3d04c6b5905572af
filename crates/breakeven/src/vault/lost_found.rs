//! Lost and found: contents to which no snapshot leads any more, where folders or records of snapshots are lost.
//!
//! A lost folder hides all below it, and a lost record a whole tree. Their contents lie in whole packs, and a
//! collection would take them for dead. They are put into a snapshot of their own. It has the folders that no other
//! names, whole contents, and chunks: small files or parts of files. Contents that were forgotten and not yet collected
//! look the same, and are found as well.
//!
//! Promises: found contents can be restored, and none of them is removed from its place. Memory: two bits for each
//! chunk, and an entry for each content found.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Result;
use crate::pool::Pool;

use super::Vault;
use super::cipher::Id;
use super::collect::Marks;
use super::contents::Chunks;
use super::folder::{Entry, Node, Stamp, Time};
use super::index::Index;
use super::pack::{ChunkKind, PackKind};
use super::record::{Record, Snapshot};
use super::repair::{is_damaged, unless_damaged};
use super::verify::DEPTH_MAX;
use super::writer::{Writer, WriterOptions};

/// The host and the tag of such a snapshot, and the folder of all its entries.
const NAME: &str = "lost+found";

/// The contents to which no snapshot led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostFound {
    /// The number of the snapshot that it is in now.
    pub epoch: u64,
    /// Folders that no other names, with all below them.
    pub folders: u64,
    /// Whole contents of files that no folder names.
    pub files: u64,
    /// Chunks that no list names: small files, and parts of others.
    pub chunks: u64,
}

/// Contents to which no snapshot and no other orphan leads.
#[derive(Default)]
struct Orphans {
    folders: Vec<Id>,
    /// With their lengths.
    files: BTreeMap<Id, u64>,
    chunks: BTreeMap<Id, u64>,
}

impl Orphans {
    fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.files.is_empty() && self.chunks.is_empty()
    }
}

impl Vault {
    /// Puts the contents to which nothing leads into a snapshot, if a folder or one of `lost_records` is lost. Drops
    /// those records.
    pub(super) fn find_lost(
        &mut self,
        pool: &Pool,
        options: WriterOptions,
        lost_records: &[u64],
        now: i64,
    ) -> Result<Option<LostFound>> {
        let index = self.index(options.index_bytes_max)?;
        let mut search = Search::new(self, &index);
        let has_lost = search.follow_snapshots(lost_records)?;
        let orphans = match has_lost || !lost_records.is_empty() {
            true => search.orphans()?,
            false => Orphans::default(),
        };
        drop(index);
        if orphans.is_empty() {
            self.let_go(lost_records)?;
            return Ok(None);
        }
        let session = self.begin()?;
        let mut writer = Writer::healing(self, session, pool, options)?;
        writer.let_go(lost_records);
        let mut snapshot = Snapshot {
            host: NAME.to_string(),
            tags: vec![NAME.to_string()],
            paths: vec![format!("/{NAME}/{now}").into_bytes()],
            has_attributes: true,
            ..Snapshot::default()
        };
        let mut builder = Builder::new(&mut writer, &mut snapshot);
        let below = [
            ("chunks", builder.spread(&orphans.chunks)?),
            ("files", builder.spread(&orphans.files)?),
            ("folders", builder.folders(&orphans.folders)?),
        ];
        let below = below.into_iter().filter(|(_, it)| it[0] != Id::NONE);
        let below: Vec<_> = below.map(|(name, it)| folder_entry(name, it)).collect();
        let mut root = builder.folder(below)?;
        for name in [&now.to_string()[..], NAME] {
            root = builder.folder(vec![folder_entry(name, root)])?;
        }
        [snapshot.folder, snapshot.stamps] = root;
        let epoch = writer.commit(snapshot)?;
        Ok(Some(LostFound {
            epoch,
            folders: orphans.folders.len() as u64,
            files: orphans.files.len() as u64,
            chunks: orphans.chunks.len() as u64,
        }))
    }

    /// Commits a state without some snapshots.
    fn let_go(&mut self, snapshots: &[u64]) -> Result<()> {
        if !snapshots.iter().any(|it| self.state.snapshots.contains(it)) {
            return Ok(());
        }
        let session = self.begin()?;
        let mut state = self.state.clone();
        state.snapshots.retain(|epoch| !snapshots.contains(epoch));
        self.commit(session, Record::Change(state)).map(drop)
    }
}

/// The search for contents to which nothing leads.
struct Search<'s> {
    vault: &'s Vault,
    index: &'s Index,
    chunks: Chunks,
    /// The chunks to which a snapshot, or the list of an orphan, leads.
    covered: Marks<'s>,
    /// The contents that an orphaned folder names.
    named: Marks<'s>,
}

impl<'s> Search<'s> {
    fn new(vault: &'s Vault, index: &'s Index) -> Search<'s> {
        Search {
            vault,
            index,
            chunks: Chunks::new(&vault.far, &vault.keys),
            covered: Marks::new(index),
            named: Marks::new(index),
        }
    }

    /// Marks the contents to which the snapshots lead; says whether a folder of theirs is lost.
    fn follow_snapshots(&mut self, lost_records: &[u64]) -> Result<bool> {
        let mut has_lost = false;
        let mut seen = BTreeSet::new();
        for epoch in &self.vault.state.snapshots {
            if lost_records.contains(epoch) {
                continue;
            }
            let snapshot = self.vault.snapshot(*epoch)?;
            let mut left = vec![([snapshot.folder, snapshot.stamps], 0)];
            while let Some((ids, depth)) = left.pop() {
                if depth > DEPTH_MAX || !seen.insert(ids) {
                    continue;
                }
                match self.follow(ids)? {
                    Some(below) => left.extend(below.into_iter().map(|it| (it, depth + 1))),
                    None => has_lost = true,
                }
            }
        }
        Ok(has_lost)
    }

    /// Marks a folder, its stamps and its files; returns the folders in it, and nothing if it is lost.
    fn follow(&mut self, [folder, stamps]: [Id; 2]) -> Result<Option<Vec<[Id; 2]>>> {
        if folder == Id::NONE {
            return Ok(Some(Vec::new()));
        }
        let Some(entries) = unless_damaged(self.chunks.folder(self.index, folder))? else {
            return Ok(None);
        };
        let read = self.chunks.stamps(self.index, &entries, stamps);
        let known = unless_damaged(read)?.unwrap_or_else(|| vec![Stamp::default(); entries.len()]);
        for content in [folder, stamps] {
            self.cover(content)?;
        }
        let mut below = Vec::new();
        for (entry, stamp) in entries.iter().zip(known) {
            match entry.node {
                Node::File { content, .. } => drop(self.cover(content)?),
                Node::Folder { content } => below.push([content, stamp.folder]),
                _ => {}
            }
        }
        Ok(Some(below))
    }

    /// Marks the chunks of a content; returns the last of them, and nothing if the content is not whole.
    fn cover(&mut self, content: Id) -> Result<Option<Id>> {
        if content == Id::NONE || self.index.find(&content).is_none() {
            return Ok(None);
        }
        let (mut last, mut parts) = (content, Vec::new());
        let each = self.chunks.each_chunk(self.index, content, &mut |id| {
            parts.push(id);
            last = id;
        });
        if is_damaged(each)? {
            return Ok(None);
        }
        parts.iter().for_each(|id| self.covered.mark(id));
        Ok(Some(last))
    }

    fn orphans(&mut self) -> Result<Orphans> {
        let mut orphans = Orphans::default();
        // Lists first: the chunks that they name are no orphans of their own.
        for list in self.index.lists() {
            if self.covered.has(&list) {
                continue;
            }
            let raw_bytes = unless_damaged(self.chunks.source(self.index, list))?;
            let Some(raw_bytes) = raw_bytes.map(|source| source.raw_bytes()) else {
                continue;
            };
            if let Some(part) = self.cover(list)? {
                self.take(list, part, raw_bytes, &mut orphans)?;
            }
        }
        let (vault, index) = (self.vault, self.index);
        vault.each_pack(|_, contents| {
            for chunk in contents.frames.iter().flat_map(|frame| &frame.chunks) {
                let is_plain = chunk.kind == ChunkKind::Plain;
                if is_plain && index.has_chunk(&chunk.id) && !self.covered.has(&chunk.id) {
                    self.covered.mark(&chunk.id);
                    self.take(chunk.id, chunk.id, chunk.length_bytes.into(), &mut orphans)?;
                }
            }
            Ok(())
        })?;
        orphans.folders.retain(|id| !self.named.has(id));
        orphans.files.retain(|id, _| !self.named.has(id));
        orphans.chunks.retain(|id, _| !self.named.has(id));
        Ok(orphans)
    }

    /// Decides the kind of a content by the pack of one of its parts. Short ones beside folders that are no folders are
    /// stamps and parts of lists, and are of no use.
    fn take(&mut self, id: Id, part: Id, raw_bytes: u64, orphans: &mut Orphans) -> Result<()> {
        let is_list = !self.index.has_chunk(&id);
        let is_beside = self.index.kind_of_pack(&part) == Some(PackKind::Folders);
        let entries = match is_beside {
            true => unless_damaged(self.chunks.folder(self.index, id))?,
            false => None,
        };
        if let Some(entries) = entries {
            for entry in entries {
                if let Node::File { content, .. } | Node::Folder { content } = entry.node {
                    self.named.mark(&content);
                }
            }
            orphans.folders.push(id);
        } else if is_list {
            orphans.files.insert(id, raw_bytes);
        } else if !is_beside {
            orphans.chunks.insert(id, raw_bytes);
        }
        Ok(())
    }
}

/// Makes the folders of the contents found.
struct Builder<'b, 'v> {
    writer: &'b mut Writer<'v>,
    snapshot: &'b mut Snapshot,
    chunks: Chunks,
}

impl<'b, 'v> Builder<'b, 'v> {
    fn new(writer: &'b mut Writer<'v>, snapshot: &'b mut Snapshot) -> Builder<'b, 'v> {
        let vault = writer.vault();
        let chunks = Chunks::new(&vault.far, &vault.keys);
        Builder {
            writer,
            snapshot,
            chunks,
        }
    }

    /// Makes a folder of entries that are sorted by name, with the stamps of the folders among them.
    fn folder(&mut self, entries: Vec<(Entry, Id)>) -> Result<[Id; 2]> {
        if entries.is_empty() {
            return Ok([Id::NONE; 2]);
        }
        self.snapshot.folders += 1;
        let (entries, stamps): (Vec<_>, Vec<_>) = entries.into_iter().unzip();
        for entry in &entries {
            if let Node::File { size_bytes, .. } = entry.node {
                self.snapshot.files += 1;
                self.snapshot.raw_bytes += size_bytes;
            }
        }
        let stamps = stamps.into_iter().map(|folder| Stamp {
            folder,
            ..Stamp::default()
        });
        let (folder, stamps) = (self.writer).add_folder(&entries, &stamps.collect::<Vec<_>>())?;
        Ok([folder, stamps])
    }

    /// Makes a folder of files by their identities, below folders of the first two digits: a folder has at most 1 GiB.
    fn spread(&mut self, files: &BTreeMap<Id, u64>) -> Result<[Id; 2]> {
        let mut spread: Vec<(Entry, Id)> = Vec::new();
        let files: Vec<(&Id, &u64)> = files.iter().collect();
        for same in files.chunk_by(|(one, _), (other, _)| one.0[0] == other.0[0]) {
            let name = format!("{:02x}", same[0].0.0[0]);
            let below = same.iter().map(|(id, size_bytes)| {
                let node = Node::File {
                    size_bytes: **size_bytes,
                    is_sparse: false,
                    is_torn: false,
                    content: **id,
                };
                (entry(id.hex().as_bytes(), node, 0o600), Id::NONE)
            });
            let below = self.folder(below.collect())?;
            spread.push(folder_entry(&name, below));
        }
        self.folder(spread)
    }

    /// Makes a folder of folders as they were, without their lost entries.
    fn folders(&mut self, folders: &[Id]) -> Result<[Id; 2]> {
        let mut made: BTreeMap<Id, [Id; 2]> = BTreeMap::new();
        for root in folders {
            self.make_again(*root, &mut made)?;
        }
        let folders: BTreeSet<&Id> = folders.iter().collect();
        let entries = folders.into_iter().filter_map(|id| {
            let below = made.get(id)?;
            Some(folder_entry(&id.hex(), *below))
        });
        let entries = entries.collect();
        self.folder(entries)
    }

    /// Makes a folder with all below it again, each folder once; a lost folder is not made.
    fn make_again(&mut self, root: Id, made: &mut BTreeMap<Id, [Id; 2]>) -> Result<()> {
        // The flag says whether the folders below were queued.
        let mut left = vec![(root, 0, false)];
        while let Some((id, depth, has_asked)) = left.pop() {
            if id == Id::NONE || depth > DEPTH_MAX || made.contains_key(&id) {
                continue;
            }
            let read = self.chunks.folder(&self.writer.index, id);
            let Some(mut entries) = unless_damaged(read)? else {
                continue;
            };
            if !has_asked {
                left.push((id, depth, true));
                let below = entries.iter().filter_map(|entry| match entry.node {
                    Node::Folder { content } => Some((content, depth + 1, false)),
                    _ => None,
                });
                left.extend(below);
                continue;
            }
            entries.retain(|entry| match entry.node {
                Node::File { content, .. } => self.writer.index.has_content(&content),
                Node::Folder { content } => content == Id::NONE || made.contains_key(&content),
                _ => true,
            });
            let entries = entries.into_iter().map(|mut entry| {
                let mut stamps = Id::NONE;
                if let Node::Folder { content } = &mut entry.node
                    && let Some(below) = made.get(content)
                {
                    [*content, stamps] = *below;
                }
                (entry, stamps)
            });
            let entries = entries.collect();
            made.insert(id, self.folder(entries)?);
        }
        Ok(())
    }
}

fn entry(name: &[u8], node: Node, mode: u32) -> Entry {
    Entry {
        name: name.to_vec(),
        node,
        mode,
        user: 0,
        group: 0,
        changed: Time::default(),
        link_group: 0,
        attributes: Vec::new(),
    }
}

/// Returns the entry of a folder with its stamps.
fn folder_entry(name: &str, [content, stamps]: [Id; 2]) -> (Entry, Id) {
    let node = Node::Folder { content };
    (entry(name.as_bytes(), node, 0o700), stamps)
}
