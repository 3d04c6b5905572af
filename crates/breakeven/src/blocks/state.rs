//! One state of a store: its volumes, notes, maps and the frame table, and changes of them.
//!
//! A state is cheap to clone and never changes under a reader. A transaction changes a clone of it through [`Work`].
//! The replay of a log goes the same way, so a log of requests leads to the same ids.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use super::dictionary::KeptDictionaries;
use super::file::{StoreFile, check_block_bytes};
use super::layout::Operation;
use super::overlay::Overlay;
use super::place::{Place, Segments};
use super::table::{CHUNK_RECORD_BYTES, Entry, HEIGHT_MAX, Table};
use crate::error::{Error, Result};

/// Block indexes are below this.
pub const INDEX_MAX: u64 = 1 << 40;
const NODE_BITS: u32 = 10;
/// The children of a map node.
pub(super) const NODE_SLOTS: usize = 1 << NODE_BITS;
/// 2^40 indexes.
pub(super) const MAP_HEIGHT_MAX: u32 = 4;
/// The most bytes of notes together, which each checkpoint writes whole. That is an eighth of the log that makes one
/// due by default, and the names of 15,000 volumes of a disk, each of the greatest length.
pub(super) const NOTES_BYTES_MAX: usize = 2 << 20;
/// The most bytes of one note: it is part of a commit.
pub(super) const NOTE_BYTES_MAX: usize = 1024;

/// A node of a volume's map: frame ids of its children, of blocks at level 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) level: u32,
    /// Without the zeros at the end.
    pub(super) slots: Vec<u32>,
}

impl Node {
    fn slot(&self, index: usize) -> u32 {
        self.slots.get(index).copied().unwrap_or(0)
    }

    fn set_slot(&mut self, index: usize, id: u32) {
        if self.slots.len() <= index {
            self.slots.resize(index + 1, 0);
        }
        self.slots[index] = id;
        while self.slots.last() == Some(&0) {
            self.slots.pop();
        }
    }
}

/// Returns the child of a node at `level` that leads to `index`.
fn slot_of(index: u64, level: u32) -> usize {
    (index >> (NODE_BITS * level)) as usize % NODE_SLOTS
}

/// Returns the number of blocks below a node at `level`.
fn span(level: u32) -> u64 {
    1 << (NODE_BITS * (level + 1))
}

/// One address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) block_bytes: u32,
    pub(super) size_blocks: u64,
    /// The frame of the map's highest node, which has the level `height` - 1; 0 for an empty map.
    pub(super) root: u32,
    pub(super) height: u32,
}

/// A few bytes of the caller's under each key.
#[derive(Clone, Debug, Default)]
pub(super) struct Notes {
    by_key: BTreeMap<u32, Arc<[u8]>>,
    stored_bytes: usize,
}

impl Notes {
    pub(super) fn get(&self, key: u32) -> Option<&Arc<[u8]>> {
        self.by_key.get(&key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<[u8]>)> {
        self.by_key.iter().map(|(key, bytes)| (*key, bytes))
    }

    /// Puts bytes under a key; an empty slice removes it.
    pub(super) fn set(&mut self, key: u32, bytes: Arc<[u8]>) {
        let taken = |note: &Arc<[u8]>| note.len() + 8;
        let new_bytes = taken(&bytes);
        let old = match bytes.is_empty() {
            true => self.by_key.remove(&key),
            false => {
                self.stored_bytes += new_bytes;
                self.by_key.insert(key, bytes)
            }
        };
        self.stored_bytes -= old.as_ref().map_or(0, taken);
    }

    /// Returns the bytes of all of them in the lists of a checkpoint.
    pub(super) fn stored_bytes(&self) -> usize {
        self.stored_bytes
    }
}

/// The state of a store at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The number of the last transaction.
    pub(super) commit: u64,
    /// The number of the record that made the state: it grows with every change, moves and checkpoints
    /// too.
    pub(super) version: u64,
    /// The checksum chained over all commits.
    pub(super) chain: u32,
    pub(super) next_volume: u32,
    pub(super) volumes: Arc<BTreeMap<u32, Volume>>,
    pub(super) notes: Arc<Notes>,
    pub(super) table: Table,
    /// The map nodes that changed since the last checkpoint, by frame.
    pub(super) nodes: Overlay<Arc<Node>>,
    pub(super) segments: Segments,
    pub(super) dictionaries: KeptDictionaries,
    /// The last claimed leaf, so that the path to its neighbours is not walked again.
    pub(super) own_leaf: Option<OwnLeaf>,
}

/// A part of a volume's map, or a frame, whose height is 0; nothing where `root` is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Subtree {
    root: u32,
    height: u32,
}

/// A leaf of a volume's map without other references to it or to a node above it, until the next operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnLeaf {
    volume: u32,
    /// The leaf's number within the volume.
    number: u64,
    /// The leaf's frame.
    leaf: u32,
}

impl State {
    pub(super) fn volume(&self, volume: u32) -> Result<Volume> {
        let found = self.volumes.get(&volume).copied();
        found.ok_or_else(|| Error::invalid("volume", format!("{volume} does not exist")))
    }

    pub(super) fn entry(&self, id: u32, file: &StoreFile) -> Result<Entry> {
        self.table.get(id, file, &self.segments)
    }

    /// Returns the places of frames, none for frame 0.
    pub(super) fn places(&self, ids: &[u32], file: &StoreFile) -> Result<Vec<Place>> {
        self.table.places(ids, file, &self.segments)
    }

    /// Returns a rough bound on the bytes of a checkpoint of this state.
    pub(super) fn checkpoint_bytes_max(&self) -> u64 {
        // Records of 4 KiB and their headers, and the waste at the ends of segments. Of the shortest that is a third at
        // most, since no record is half as long.
        let nodes_bytes = self.nodes.len() as u64 * self.node_bytes_max();
        let changed_bytes = nodes_bytes + self.changed_chunks_bytes();
        let lists_bytes = self.list_bytes_max() + self.dictionaries.moved_bytes() as u64;
        let bytes = changed_bytes + lists_bytes;
        bytes + bytes / 2
    }

    /// Returns a bound on the bytes of the table's chunks that the next checkpoint writes.
    fn changed_chunks_bytes(&self) -> u64 {
        let changed = (self.nodes.len() + self.table.changed_count()) as u64;
        let chunks = 2 * changed + u64::from(HEIGHT_MAX);
        (chunks * CHUNK_RECORD_BYTES).min(self.table.bytes_max())
    }

    /// Returns about the bytes of all nodes and chunks, where maps are dense, with the waste at the ends of segments.
    pub(super) fn table_bytes(&self) -> u64 {
        2 * self.table.bytes_max() + self.unchanged_nodes_bytes(0)
    }

    /// Returns about the bytes of those that the next checkpoint does not write yet.
    pub(super) fn unchanged_bytes(&self) -> u64 {
        let chunks_bytes = self.table.bytes_max() - self.changed_chunks_bytes();
        2 * chunks_bytes + self.unchanged_nodes_bytes(self.nodes.len() as u64)
    }

    fn unchanged_nodes_bytes(&self, changed: u64) -> u64 {
        // The least that changes is a path to one block.
        let nodes = u64::from(self.table.next_frame) / NODE_SLOTS as u64 + 2;
        nodes.saturating_sub(changed) * 2 * self.node_bytes_max()
    }

    /// Returns a bound on the bytes of a map node's record.
    fn node_bytes_max(&self) -> u64 {
        // With many volumes only one has full nodes.
        const FEW: usize = 8;
        let sizes = self.volumes.values().map(|volume| volume.size_blocks);
        let slots = match self.volumes.len() <= FEW {
            true => sizes.max().unwrap_or(0).min(NODE_SLOTS as u64),
            false => NODE_SLOTS as u64,
        };
        4 * slots + 64
    }

    /// Returns about the bytes of the nodes and chunks that changed since the last checkpoint, in memory and in the
    /// next.
    pub(super) fn changed_bytes(&self) -> u64 {
        // A node of 4 KiB is a frame, whose entry is in a chunk of 3 KiB, below one of 2 KiB.
        const CHUNKS_BYTES: usize = (3 << 10) + (2 << 10) + 256;
        let nodes = self.nodes.len() * ((4 << 10) + 64 + CHUNKS_BYTES);
        let chunks = self.table.changed_count() * CHUNKS_BYTES;
        (nodes + chunks) as u64
    }

    /// Returns the number of entries, of 33 bytes at most, in the lists of a checkpoint.
    fn listed_count(&self) -> usize {
        self.segments.len() + self.volumes.len() + self.dictionaries.len()
    }

    /// Returns a bound on the bytes of a checkpoint's lists and the record behind them.
    pub(super) fn list_bytes_max(&self) -> u64 {
        let listed = self.listed_count() * 33 + self.notes.stored_bytes();
        (listed + listed / 16 + 1024) as u64
    }

    /// Returns a map node that must have this level.
    pub(super) fn node(&self, id: u32, level: u32, file: &StoreFile) -> Result<Arc<Node>> {
        let node = match self.nodes.get(id) {
            Some(node) => Arc::clone(node),
            None => file.node(self.entry(id, file)?.place, id, &self.segments)?,
        };
        if node.level != level {
            let (expected, found) = (format!("level {level}"), format!("level {}", node.level));
            return Err(Error::corrupt("map node", id.into(), expected, found));
        }
        Ok(node)
    }

    /// Returns the frame of a block, 0 for a hole.
    pub(super) fn frame(&self, volume: &Volume, index: u64, file: &StoreFile) -> Result<u32> {
        let leaf = self.leaf(volume, index, file)?;
        Ok(leaf.map_or(0, |leaf| leaf.slot(slot_of(index, 0))))
    }

    /// Returns the frames of a run of blocks, 0 for those that are holes.
    pub(super) fn frames(
        &self,
        volume: &Volume,
        run: Range<u64>,
        file: &StoreFile,
    ) -> Result<Vec<u32>> {
        let mut frames = Vec::with_capacity((run.end - run.start) as usize);
        let mut at = run.start;
        while at < run.end {
            let end = run.end.min((at | (NODE_SLOTS as u64 - 1)) + 1);
            let leaf = self.leaf(volume, at, file)?;
            let slot = |index| leaf.as_ref().map_or(0, |leaf| leaf.slot(slot_of(index, 0)));
            frames.extend((at..end).map(slot));
            at = end;
        }
        Ok(frames)
    }

    /// Returns the lowest node above a block, `None` if all its blocks are holes.
    fn leaf(&self, volume: &Volume, index: u64, file: &StoreFile) -> Result<Option<Arc<Node>>> {
        if index >> (NODE_BITS * volume.height) != 0 || volume.root == 0 || volume.height == 0 {
            return Ok(None);
        }
        let mut node = self.node(volume.root, volume.height - 1, file)?;
        for level in (0..volume.height - 1).rev() {
            node = match node.slot(slot_of(index, level + 1)) {
                0 => return Ok(None),
                id => self.node(id, level, file)?,
            };
        }
        Ok(Some(node))
    }

    /// Returns the first mapped block at or behind `from`.
    pub(super) fn next_mapped(
        &self,
        volume: &Volume,
        from: u64,
        file: &StoreFile,
    ) -> Result<Option<u64>> {
        match volume.height {
            0 => Ok(None),
            height => self.next_below(volume.root, height - 1, 0, from, file),
        }
    }

    /// Returns the first index at or behind `from` at which two volumes show different frames.
    ///
    /// # Errors
    /// Those of reading the maps.
    ///
    /// # Cost
    /// A walk over the differing parts of the two maps.
    pub(super) fn next_difference(
        &self,
        volumes: [&Volume; 2],
        from: u64,
        file: &StoreFile,
    ) -> Result<Option<u64>> {
        let trees = volumes.map(|volume| Subtree {
            root: volume.root,
            height: volume.height,
        });
        let height = trees[0].height.max(trees[1].height);
        match height {
            0 => Ok(None),
            height => self.next_difference_below(trees, height - 1, 0, from, file),
        }
    }

    fn next_difference_below(
        &self,
        trees: [Subtree; 2],
        level: u32,
        base: u64,
        from: u64,
        file: &StoreFile,
    ) -> Result<Option<u64>> {
        if trees[0] == trees[1] || from >= base + span(level) {
            return Ok(None);
        }
        let [one, other] = [
            self.children(trees[0], level, file)?,
            self.children(trees[1], level, file)?,
        ];
        let child_span = span(level) / NODE_SLOTS as u64;
        let first = (from.saturating_sub(base) / child_span) as usize;
        for slot in first..one.len().max(other.len()) {
            let start = base + slot as u64 * child_span;
            let children = [&one, &other].map(|tree| tree.get(slot).copied().unwrap_or_default());
            let found = match level {
                0 => (children[0] != children[1]).then_some(start),
                _ => self.next_difference_below(children, level - 1, start, from, file)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// Returns the children of a tree at `level`. A tree that is not as high is its own first child.
    fn children(&self, tree: Subtree, level: u32, file: &StoreFile) -> Result<Vec<Subtree>> {
        if tree.root == 0 {
            return Ok(Vec::new());
        }
        if tree.height <= level {
            return Ok(vec![tree]);
        }
        let node = self.node(tree.root, level, file)?;
        let below = node.slots.iter().map(|id| Subtree {
            root: *id,
            height: if *id == 0 { 0 } else { level },
        });
        Ok(below.collect())
    }

    fn next_below(
        &self,
        id: u32,
        level: u32,
        base: u64,
        from: u64,
        file: &StoreFile,
    ) -> Result<Option<u64>> {
        if id == 0 || from >= base + span(level) {
            return Ok(None);
        }
        let node = self.node(id, level, file)?;
        let child_span = span(level) / NODE_SLOTS as u64;
        let first = from.saturating_sub(base) / child_span;
        for (slot, child) in node.slots.iter().enumerate().skip(first as usize) {
            let start = base + slot as u64 * child_span;
            let found = match (level, *child) {
                (_, 0) => None,
                (0, _) => Some(start),
                (_, child) => self.next_below(child, level - 1, start, from, file)?,
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        // A node goes with the last block below it, except for the path to index 0. A map that grows makes that path
        // first.
        match from <= base && base > 0 {
            true => Err(Error::corrupt(
                "map node",
                id.into(),
                "blocks below it",
                "none",
            )),
            false => Ok(None),
        }
    }
}

/// A transaction's changes to the live bytes of each segment, by index.
pub(super) type LiveChanges = HashMap<usize, i64>;

/// A state that is being changed.
pub(super) struct Work<'a> {
    pub(super) file: &'a StoreFile,
    pub(super) state: &'a mut State,
    pub(super) live: &'a mut LiveChanges,
}

impl Work<'_> {
    fn entry(&self, id: u32) -> Result<Entry> {
        self.state.entry(id, self.file)
    }

    fn set_entry(&mut self, id: u32, entry: Entry) -> Result<()> {
        let State {
            table, segments, ..
        } = &mut *self.state;
        table.set(id, entry, self.file, segments)
    }

    fn allocate(&mut self) -> Result<u32> {
        let State {
            table, segments, ..
        } = &mut *self.state;
        table.allocate(self.file, segments)
    }

    fn count(&mut self, place: Place, sign: i64) {
        if place.is_none() {
            return;
        }
        if let Some(segment) = self.state.segments.find(place.address()) {
            let bytes = place.record_bytes() as i64;
            *self.live.entry(segment).or_default() += sign * bytes;
        }
    }

    /// Notes that a frame lies at `place` now, and no longer in its old place.
    pub(super) fn set_place(&mut self, id: u32, place: Place) -> Result<()> {
        let mut entry = self.entry(id)?;
        if entry.references == 0 {
            return Err(Error::corrupt(
                "frame table",
                id.into(),
                "a frame",
                "a free id",
            ));
        }
        self.count(entry.place, -1);
        self.count(place, 1);
        entry.place = place;
        self.set_entry(id, entry)
    }

    fn add_reference(&mut self, id: u32) -> Result<()> {
        let mut entry = self.entry(id)?;
        if entry.references == 0 {
            return Err(Error::corrupt(
                "frame table",
                id.into(),
                "a frame",
                "a free id",
            ));
        }
        entry.references = entry.references.saturating_add(1);
        self.set_entry(id, entry)
    }

    /// Takes one reference away; returns whether it was the last.
    fn drop_reference(&mut self, id: u32) -> Result<bool> {
        let mut entry = self.entry(id)?;
        match entry.references {
            0 => Err(Error::corrupt(
                "frame table",
                id.into(),
                "a frame",
                "a free id",
            )),
            u32::MAX => Ok(false),
            1 => Ok(true),
            _ => {
                entry.references -= 1;
                self.set_entry(id, entry)?;
                Ok(false)
            }
        }
    }

    fn free(&mut self, id: u32) -> Result<()> {
        let place = self.entry(id)?.place;
        self.count(place, -1);
        self.state.nodes.remove(id);
        let State {
            table, segments, ..
        } = &mut *self.state;
        table.free(id, self.file, segments)
    }

    fn release_block(&mut self, id: u32) -> Result<()> {
        if self.drop_reference(id)? {
            self.free(id)?;
        }
        Ok(())
    }

    /// Releases a map node, and its children if nobody else refers to it.
    fn release_node(&mut self, id: u32, level: u32) -> Result<()> {
        let entry = self.entry(id)?;
        if entry.references != 1 {
            return self.drop_reference(id).map(drop);
        }
        let node = self.state.node(id, level, self.file)?;
        for child in node.slots.iter().filter(|child| **child != 0) {
            match level {
                0 => self.release_block(*child)?,
                _ => self.release_node(*child, level - 1)?,
            }
        }
        self.free(id)
    }

    fn new_node(&mut self, level: u32) -> Result<u32> {
        let id = self.allocate()?;
        let node = Node {
            level,
            slots: Vec::new(),
        };
        self.state.nodes.insert(id, Arc::new(node));
        Ok(id)
    }

    /// Returns a node with this content and no reference but the caller's: the node itself, or a copy.
    fn own(&mut self, id: u32, level: u32) -> Result<u32> {
        if self.entry(id)?.references == 1 {
            return Ok(id);
        }
        let node = self.state.node(id, level, self.file)?;
        self.drop_reference(id)?;
        for child in node.slots.iter().filter(|child| **child != 0) {
            self.add_reference(*child)?;
        }
        let copy = self.allocate()?;
        self.state.nodes.insert(copy, node);
        Ok(copy)
    }

    /// Changes a slot of a node with only one parent.
    fn set_slot(&mut self, id: u32, level: u32, slot: usize, child: u32) -> Result<()> {
        if self.state.nodes.get(id).is_none() {
            let node = self.state.node(id, level, self.file)?;
            self.state.nodes.insert(id, node);
        }
        let node = self.state.nodes.get_mut(id).expect("inserted above");
        Arc::make_mut(node).set_slot(slot, child);
        Ok(())
    }

    fn save(&mut self, number: u32, volume: Volume) {
        if self.state.volumes.get(&number) != Some(&volume) {
            Arc::make_mut(&mut self.state.volumes).insert(number, volume);
        }
    }

    /// Makes the path to a block the volume's own; returns the leaf.
    fn own_path(&mut self, volume: &mut Volume, index: u64) -> Result<u32> {
        while volume.height == 0 || index >> (NODE_BITS * volume.height) != 0 {
            let root = self.new_node(volume.height)?;
            if volume.root != 0 {
                self.set_slot(root, volume.height, 0, volume.root)?;
            }
            (volume.root, volume.height) = (root, volume.height + 1);
        }
        volume.root = self.own(volume.root, volume.height - 1)?;
        let mut at = volume.root;
        for level in (1..volume.height).rev() {
            let slot = slot_of(index, level);
            let child = self.state.node(at, level, self.file)?.slot(slot);
            let owned = match child {
                0 => self.new_node(level - 1)?,
                _ => self.own(child, level - 1)?,
            };
            if owned != child {
                self.set_slot(at, level, slot, owned)?;
            }
            at = owned;
        }
        Ok(at)
    }

    /// Returns the frame that a block is about to be written to. It is the block's own, if nobody else refers to that,
    /// or a new one. The volume grows if it has to.
    pub(super) fn claim(&mut self, number: u32, index: u64) -> Result<u32> {
        let mut volume = self.state.volume(number)?;
        check_index(index)?;
        volume.size_blocks = volume.size_blocks.max(index + 1);
        let leaf = match self.state.own_leaf {
            Some(own) if (own.volume, own.number) == (number, index >> NODE_BITS) => own.leaf,
            _ => self.own_path(&mut volume, index)?,
        };
        self.state.own_leaf = Some(OwnLeaf {
            volume: number,
            number: index >> NODE_BITS,
            leaf,
        });
        let slot = slot_of(index, 0);
        let old = self.state.node(leaf, 0, self.file)?.slot(slot);
        let id = match old {
            0 => self.allocate()?,
            _ if self.drop_reference(old)? => old,
            _ => self.allocate()?,
        };
        if id != old {
            self.set_slot(leaf, 0, slot, id)?;
        }
        self.save(number, volume);
        Ok(id)
    }

    /// Carries out an operation of the log, or of a caller; all but the writing of blocks.
    pub(super) fn apply(&mut self, operation: &Operation) -> Result<()> {
        self.state.own_leaf = None;
        match operation {
            Operation::Trim { volume, range } => self.trim(*volume, range.clone()),
            Operation::Resize {
                volume,
                size_blocks,
            } => self.resize(*volume, *size_blocks),
            Operation::Note { key, bytes } => self.note(*key, bytes),
            Operation::Alias { from, to } => self.alias(*from, *to),
            Operation::Create {
                volume,
                block_bytes,
            } => {
                let new = Volume {
                    block_bytes: *block_bytes,
                    size_blocks: 0,
                    root: 0,
                    height: 0,
                };
                self.add_volume(*volume, new)
            }
            Operation::Clone { from, to } => {
                let volume = self.state.volume(*from)?;
                if volume.root != 0 {
                    self.add_reference(volume.root)?;
                }
                self.add_volume(*to, volume)
            }
            Operation::Remove { volume } => {
                let found = self.state.volume(*volume)?;
                if found.root != 0 {
                    self.release_node(found.root, found.height - 1)?;
                }
                Arc::make_mut(&mut self.state.volumes).remove(volume);
                Ok(())
            }
        }
    }

    fn add_volume(&mut self, number: u32, volume: Volume) -> Result<()> {
        check_block_bytes(volume.block_bytes)?;
        let next = self.state.next_volume;
        if number != next || next == u32::MAX {
            let found = format!("volume {number}");
            return Err(Error::corrupt(
                "block store",
                0,
                format!("volume {next}"),
                found,
            ));
        }
        self.state.next_volume += 1;
        Arc::make_mut(&mut self.state.volumes).insert(number, volume);
        Ok(())
    }

    fn note(&mut self, key: u32, bytes: &[u8]) -> Result<()> {
        let notes = Arc::make_mut(&mut self.state.notes);
        notes.set(key, Arc::from(bytes));
        let needed = notes.stored_bytes();
        if needed > NOTES_BYTES_MAX || bytes.len() > NOTE_BYTES_MAX {
            return Err(Error::Limit {
                what: "notes",
                limit_bytes: NOTES_BYTES_MAX as u64,
                needed_bytes: needed as u64,
            });
        }
        Ok(())
    }

    fn resize(&mut self, number: u32, size_blocks: u64) -> Result<()> {
        let volume = self.state.volume(number)?;
        if size_blocks > INDEX_MAX {
            return Err(Error::invalid(
                "volume size",
                format!("{size_blocks} blocks"),
            ));
        }
        if size_blocks < volume.size_blocks {
            self.trim(number, size_blocks..volume.size_blocks)?;
        }
        let volume = self.state.volume(number)?;
        self.save(
            number,
            Volume {
                size_blocks,
                ..volume
            },
        );
        Ok(())
    }

    fn trim(&mut self, number: u32, range: Range<u64>) -> Result<()> {
        let mut volume = self.state.volume(number)?;
        if volume.root == 0 || range.is_empty() {
            return Ok(());
        }
        let level = volume.height - 1;
        let end = range.end.min(span(level));
        if range.start < end {
            volume.root = self.trim_below(volume.root, level, range.start..end)?;
            volume.height = if volume.root == 0 { 0 } else { volume.height };
        }
        self.save(number, volume);
        Ok(())
    }

    /// Trims a range of the blocks below a node, counted from its first block. Returns the node, its copy, or 0 if
    /// nothing is left.
    fn trim_below(&mut self, id: u32, level: u32, range: Range<u64>) -> Result<u32> {
        if range.start == 0 && range.end == span(level) {
            self.release_node(id, level)?;
            return Ok(0);
        }
        let id = self.own(id, level)?;
        let node = self.state.node(id, level, self.file)?;
        let child_span = span(level) / NODE_SLOTS as u64;
        let first = (range.start / child_span) as usize;
        let end = (range.end.div_ceil(child_span) as usize).min(node.slots.len());
        for slot in first..end {
            let child = node.slot(slot);
            if child == 0 {
                continue;
            }
            let base = slot as u64 * child_span;
            let left = if level == 0 {
                self.release_block(child)?;
                0
            } else {
                let below = range.start.max(base) - base..(range.end - base).min(child_span);
                self.trim_below(child, level - 1, below)?
            };
            if left != child {
                self.set_slot(id, level, slot, left)?;
            }
        }
        if self.state.node(id, level, self.file)?.slots.is_empty() {
            self.release_node(id, level)?;
            return Ok(0);
        }
        Ok(id)
    }

    fn alias(&mut self, from: (u32, u64), to: (u32, u64)) -> Result<()> {
        let (source, mut target) = (self.state.volume(from.0)?, self.state.volume(to.0)?);
        check_index(from.1)?;
        check_index(to.1)?;
        if source.block_bytes != target.block_bytes {
            let reason = format!(
                "{} to {} bytes a block",
                source.block_bytes, target.block_bytes
            );
            return Err(Error::invalid("alias", reason));
        }
        let frame = self.state.frame(&source, from.1, self.file)?;
        if frame == 0 {
            self.trim(to.0, to.1..to.1 + 1)?;
            target = self.state.volume(to.0)?;
        } else {
            self.add_reference(frame)?;
            let leaf = self.own_path(&mut target, to.1)?;
            let slot = slot_of(to.1, 0);
            let old = self.state.node(leaf, 0, self.file)?.slot(slot);
            self.set_slot(leaf, 0, slot, frame)?;
            if old != 0 {
                self.release_block(old)?;
            }
        }
        target.size_blocks = target.size_blocks.max(to.1 + 1);
        self.save(to.0, target);
        Ok(())
    }
}

fn check_index(index: u64) -> Result<()> {
    if index >= INDEX_MAX {
        return Err(Error::invalid(
            "block index",
            format!("{index} is not below 2^40"),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{Blocks, BlocksOptions};
    use crate::storage::MemoryStorage;

    /// Four nodes. Each stands a thousand times below the one above it, and there is nothing at the end.
    #[test]
    fn a_map_of_nodes_without_blocks_is_refused() {
        let storage = MemoryStorage::new();
        let blocks = Blocks::create(&storage, "store", BlocksOptions::default()).unwrap();
        let file = &blocks.inner.file;
        let mut state = State::clone(&blocks.inner.shared.state());
        let mut work = Work {
            file,
            state: &mut state,
            live: &mut LiveChanges::new(),
        };
        let mut root = work.new_node(0).unwrap();
        for level in 1..MAP_HEIGHT_MAX {
            let above = work.new_node(level).unwrap();
            for slot in 0..NODE_SLOTS {
                work.set_slot(above, level, slot, root).unwrap();
            }
            root = above;
        }
        let volume = Volume {
            block_bytes: 512,
            size_blocks: INDEX_MAX,
            root,
            height: MAP_HEIGHT_MAX,
        };
        let found = state.next_mapped(&volume, 0, file);
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
    }
}
