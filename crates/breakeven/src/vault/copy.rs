//! Copying snapshots from one vault into another.
//!
//! The two vaults have other keys, so a chunk has another identity in each. Contents are read, cut and named again;
//! chunks that the target knows are not stored again. A content under the same path in a snapshot that was copied
//! before is not even read. Of such a folder, the folders below are read in the target, since a repair may have lost
//! some. Each snapshot is a commit of its own. A snapshot that lacks something in the source is not copied at all.
//!
//! Promises: a snapshot in the target equals the one in the source; the source is only read.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Error, Result};
use crate::pool::Pool;

use super::cipher::Id;
use super::contents::Chunks;
use super::folder::{Entry, Node, Stamp};
use super::index::Index;
use super::record::Snapshot;
use super::repair::is_damage;
use super::verify::DEPTH_MAX;
use super::writer::{Writer, WriterOptions};
use super::{Progress, Vault};

/// Contents copied in one run whose identities in both vaults are remembered: a little over 48 bytes each.
const KNOWN_MAX: usize = 1 << 20;

/// The counts of a copy.
#[derive(Clone, Debug, Default)]
pub struct Copied {
    /// The numbers of snapshots in the source and in the target.
    pub snapshots: Vec<(u64, u64)>,
    /// Snapshots of the source that the target had already.
    pub present: Vec<u64>,
    /// Snapshots that cannot be read whole, and why.
    pub problems: Vec<(u64, String)>,
    /// Bytes of files that were read.
    pub read_bytes: u64,
}

impl Vault {
    /// Copies snapshots of another vault by their numbers; all live ones if none is named.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a number that does not live or while another writes; those of both far ends.
    pub fn copy_from(
        &mut self,
        source: &Vault,
        epochs: &[u64],
        pool: &Pool,
        options: WriterOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Copied> {
        let mut wanted = Vec::new();
        for epoch in epochs {
            wanted.push((*epoch, source.snapshot(*epoch)?));
        }
        let mut copied = Copied::default();
        if epochs.is_empty() {
            wanted = source.snapshots()?;
        }
        let index = source.index(options.index_bytes_max)?;
        let (mut known, mut whole) = (BTreeMap::new(), BTreeSet::new());
        let total = wanted.iter().map(|(_, it)| it.raw_bytes).sum();
        let mut done = 0;
        for (epoch, snapshot) in wanted {
            done += snapshot.raw_bytes;
            if self.counterpart(&snapshot)?.is_some() {
                copied.present.push(epoch);
                continue;
            }
            let before = self.copied_before(source, &snapshot)?;
            let parent = before.as_ref().map_or(0, |(_, (epoch, _))| *epoch);
            let pair = before.map(|(theirs, (_, ours))| {
                [[theirs.folder, theirs.stamps], [ours.folder, ours.stamps]]
            });
            let mut copy = Copy {
                from: Chunks::new(&source.far, &source.keys),
                to: Chunks::new(&self.far, &self.keys),
                index: &index,
                writer: Writer::new(self, pool, options)?,
                known: &mut known,
                whole: &mut whole,
                failure: None,
                read_bytes: 0,
                done: done - snapshot.raw_bytes,
                total,
                progress,
            };
            let made = copy.folder([snapshot.folder, snapshot.stamps], pair, 0);
            copied.read_bytes += copy.read_bytes;
            let Copy {
                writer, failure, ..
            } = copy;
            match (made, failure) {
                (_, Some(reason)) => copied.problems.push((epoch, reason)),
                (Err(error), None) => return Err(error),
                (Ok([folder, stamps]), None) => {
                    let ours = writer.commit(Snapshot {
                        folder,
                        stamps,
                        parent,
                        ..snapshot
                    })?;
                    copied.snapshots.push((epoch, ours));
                }
            }
        }
        Ok(copied)
    }

    /// Returns the snapshot here that is the counterpart of another vault's: a copy of it, or its source.
    fn counterpart(&self, theirs: &Snapshot) -> Result<Option<(u64, Snapshot)>> {
        let is_same = |ours: &Snapshot| {
            (ours.begun, &ours.host, &ours.paths) == (theirs.begun, &theirs.host, &theirs.paths)
        };
        let ours = self.snapshots()?;
        Ok(ours.into_iter().find(|(_, snapshot)| is_same(snapshot)))
    }

    /// Returns the newest snapshot of the source with the same host and paths that is here too, as both vaults have it.
    fn copied_before(
        &self,
        source: &Vault,
        snapshot: &Snapshot,
    ) -> Result<Option<(Snapshot, (u64, Snapshot))>> {
        for (_, theirs) in source.snapshots()?.into_iter().rev() {
            if (&theirs.host, &theirs.paths) != (&snapshot.host, &snapshot.paths) {
                continue;
            }
            if let Some(ours) = self.counterpart(&theirs)? {
                return Ok(Some((theirs, ours)));
            }
        }
        Ok(None)
    }
}

/// A folder and its stamps, in one vault.
type Ids = [Id; 2];

struct Copy<'c, 'v> {
    from: Chunks,
    to: Chunks,
    index: &'c Index,
    writer: Writer<'v>,
    /// The identities in the target of contents of the source.
    known: &'c mut BTreeMap<Id, Id>,
    /// Folders of the target that lack nothing, with all below them.
    whole: &'c mut BTreeSet<Ids>,
    /// The fault of the source, if it has one.
    failure: Option<String>,
    read_bytes: u64,
    done: u64,
    total: u64,
    progress: &'c mut dyn FnMut(&Progress),
}

impl Copy<'_, '_> {
    /// Notes a fault of the source before it is returned like any other.
    fn source<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            self.failure = Some(error.to_string());
        }
        result
    }

    /// Copies a folder. `pair` is the folder of the same path in a snapshot that both vaults have, there and here.
    fn folder(&mut self, ids: Ids, pair: Option<[Ids; 2]>, depth: usize) -> Result<Ids> {
        if ids[0] == Id::NONE {
            return Ok(ids);
        }
        if depth > DEPTH_MAX {
            let reason = Error::invalid("folder", "more within each other than there may be");
            return self.source(Err(reason));
        }
        if let Some([theirs, ours]) = pair
            && theirs == ids
            && self.is_whole(ours)?
        {
            return Ok(ours);
        }
        let (mut entries, mut stamps) = {
            let read = self.from.folder_and_stamps(self.index, ids);
            self.source(read)?
        };
        let before = pair.and_then(|[theirs, ours]| {
            let theirs = self.from.folder_and_stamps(self.index, theirs).ok()?;
            let ours = self.to.folder_and_stamps(&self.writer.index, ours).ok()?;
            Some((theirs, ours))
        });
        for (entry, stamp) in entries.iter_mut().zip(&mut stamps) {
            let named = before.as_ref().and_then(|(theirs, ours)| {
                Some([find(theirs, &entry.name)?, find(ours, &entry.name)?])
            });
            match &mut entry.node {
                Node::Folder { content } => {
                    let pair = named
                        .and_then(|[theirs, ours]| Some([folder_ids(theirs)?, folder_ids(ours)?]));
                    let made = self.folder([*content, stamp.folder], pair, depth + 1)?;
                    [*content, stamp.folder] = made;
                }
                Node::File { content, .. } if *content != Id::NONE => {
                    // The state of a disk is named for one vault.
                    stamp.disk = Id::NONE;
                    let was = named.and_then(|[theirs, ours]| {
                        Some([content_of(theirs.0)?, content_of(ours.0)?])
                    });
                    *content = self.content(*content, was)?;
                }
                _ => {}
            }
        }
        let (folder, stamps) = self.writer.add_folder(&entries, &stamps)?;
        Ok([folder, stamps])
    }

    /// Says whether a folder of the target lacks nothing.
    fn is_whole(&mut self, folder: Ids) -> Result<bool> {
        let (mut seen, mut left) = (BTreeSet::new(), vec![folder]);
        while let Some(ids) = left.pop() {
            if ids[0] == Id::NONE || self.whole.contains(&ids) || !seen.insert(ids) {
                continue;
            }
            let index = &self.writer.index;
            let (entries, stamps) = match self.to.folder_and_stamps(index, ids) {
                Err(error) if is_damage(&error) => return Ok(false),
                read => read?,
            };
            for (entry, stamp) in entries.iter().zip(&stamps) {
                match entry.node {
                    Node::File { content, .. } if !index.has_content(&content) => return Ok(false),
                    Node::Folder { content } => left.push([content, stamp.folder]),
                    _ => {}
                }
            }
        }
        self.whole.extend(seen);
        Ok(true)
    }

    fn content(&mut self, id: Id, was: Option<[Id; 2]>) -> Result<Id> {
        let was = was.filter(|[theirs, _]| *theirs == id).map(|it| it[1]);
        let known = was.or_else(|| self.known.get(&id).copied());
        if let Some(known) = known.filter(|known| self.writer.index.has_content(known)) {
            return Ok(known);
        }
        let mut source = match self.from.source(self.index, id) {
            Ok(source) => source,
            Err(error) => {
                self.failure = Some(error.to_string());
                return Err(error);
            }
        };
        let added = self.writer.add_content(&mut source);
        let (raw_bytes, failure) = (source.raw_bytes(), source.failure);
        self.failure = failure.or(self.failure.take());
        let (content, _) = added?;
        self.read_bytes += raw_bytes;
        if self.known.len() < KNOWN_MAX {
            self.known.insert(id, content);
        }
        (self.progress)(&Progress {
            phase: "copying",
            done: (self.done + self.read_bytes).min(self.total),
            total: self.total,
        });
        Ok(content)
    }
}

type Folder = (Vec<Entry>, Vec<Stamp>);

fn find<'f>((entries, stamps): &'f Folder, name: &[u8]) -> Option<(&'f Entry, &'f Stamp)> {
    let at = entries.binary_search_by(|entry| entry.name[..].cmp(name));
    at.ok().map(|at| (&entries[at], &stamps[at]))
}

fn folder_ids((entry, stamp): (&Entry, &Stamp)) -> Option<Ids> {
    match entry.node {
        Node::Folder { content } => Some([content, stamp.folder]),
        _ => None,
    }
}

fn content_of(entry: &Entry) -> Option<Id> {
    match entry.node {
        Node::File { content, .. } => Some(content),
        _ => None,
    }
}
