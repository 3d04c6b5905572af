//! A full verification: every map, every frame, every count of references, every segment's live bytes.

use std::collections::{BTreeMap, HashMap};

use super::file::StoreFile;
use super::place::Place;
use super::state::State;
use super::table::{Chunk, Entry, FANOUT};
use super::{Blocks, Turn};
use crate::error::{Error, Result};

/// The most faults that are listed one by one.
const FAULTS_MAX: usize = 100;
/// The number of frames between two calls of the caller's progress.
const PROGRESS_FRAMES: u64 = 256;

/// The findings of a verification.
#[derive(Debug, Default)]
pub struct Verified {
    /// The number of the last transaction in the verified state.
    pub commit: u64,
    /// Addresses of all volumes that are no holes.
    pub mapped_blocks: u64,
    /// Blocks that were read and decoded, each once, however many addresses show it.
    pub frames: u64,
    /// Their bytes, with headers, in the file.
    pub stored_bytes: u64,
    /// The nodes of all maps.
    pub nodes: u64,
    /// The dictionaries. Each lies there twice.
    pub dictionaries: u64,
    /// The chunks of the frame table that lie in the file.
    pub chunks: u64,
    /// Whether the live bytes of segments were compared: not while a transaction runs.
    pub has_compared_live: bool,
    /// Blocks that could not be read. Each is a fault.
    pub broken_blocks: u64,
    /// The number of faults.
    pub fault_count: u64,
    /// The faults, the first hundred.
    pub faults: Vec<Error>,
}

impl Verified {
    fn note<T>(&mut self, result: Result<T>) -> Option<T> {
        match result {
            Ok(value) => return Some(value),
            Err(error) => {
                self.fault_count += 1;
                if self.faults.len() < FAULTS_MAX {
                    self.faults.push(error);
                }
            }
        }
        None
    }

    fn check(&mut self, what: &'static str, at: u64, expected: u64, found: u64) {
        if expected != found {
            let (expected, found) = (expected.to_string(), found.to_string());
            let fault: Result<()> = Err(Error::corrupt(what, at, expected, found));
            self.note(fault);
        }
    }
}

impl Blocks {
    /// Reads and decodes every block of the newest state. Counts its references and the live bytes of each segment
    /// again. Others read and write meanwhile. `progress` hears how many of how many ids it has seen, and stops it by
    /// `false`.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if it was stopped. The faults are in the result.
    ///
    /// # Cost
    /// All maps and all blocks are read once; 8 bytes of memory or a few more for each frame.
    pub fn verify(&self, mut progress: impl FnMut(u64, u64) -> bool) -> Result<Verified> {
        let turn = self.inner.lock_turn();
        // Nobody can change either while nobody writes.
        let live = match &*turn {
            Turn::Idle(writer) => Some(writer.log.live.clone()),
            Turn::Untouched(recovery, _) => Some(recovery.live.clone()),
            Turn::Taken | Turn::Behind | Turn::Refused => None,
        };
        let snapshot = self.snapshot();
        drop(turn);
        verify_state(&self.inner.file, snapshot.state(), live, &mut progress)
    }
}

/// Reads and decodes every block of a state. Counts its references again and, where `live` is given, the live bytes of
/// each segment.
pub(super) fn verify_state(
    file: &StoreFile,
    state: &State,
    live: Option<Vec<u64>>,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Verified> {
    let mut verifier = Verifier {
        file,
        state,
        references: HashMap::new(),
        live: BTreeMap::new(),
        used_ids: 0,
        verified: Verified {
            commit: state.commit,
            ..Verified::default()
        },
    };
    verifier.maps();
    verifier.frames(progress)?;
    verifier.chunks();
    verifier.dictionaries();
    verifier.free_ids();
    let (counted, mut verified) = (verifier.live, verifier.verified);
    verified.has_compared_live = live.is_some();
    for (index, expected) in live.unwrap_or_default().into_iter().enumerate() {
        let found = counted.get(&index).copied().unwrap_or(0);
        // A transaction that was taken back may have made the file longer.
        let segments = &state.segments;
        let is_known = index < segments.len();
        let start = is_known.then(|| segments.get(index).start);
        let start = start.unwrap_or_else(|| segments.end(0));
        verified.check("live bytes of the segment", start, expected, found);
    }
    Ok(verified)
}

/// A frame's references, by the maps.
#[derive(Clone, Copy, Default)]
struct Referred {
    count: u32,
    is_node: bool,
    /// The length of the block.
    raw_bytes: u32,
}

struct Verifier<'a> {
    file: &'a StoreFile,
    state: &'a State,
    references: HashMap<u32, Referred>,
    live: BTreeMap<usize, u64>,
    /// Ids with references, by the table.
    used_ids: u64,
    verified: Verified,
}

impl Verifier<'_> {
    /// Walks all maps. A node with several references is walked once.
    fn maps(&mut self) {
        let volumes = self.state.volumes.clone();
        for volume in volumes.values() {
            let mut waiting = Vec::new();
            if volume.root != 0 {
                waiting.push((volume.root, volume.height - 1, true));
            }
            while let Some((id, level, leads_to_first)) = waiting.pop() {
                if !self.refer(id, true, volume.block_bytes) {
                    continue;
                }
                self.verified.nodes += 1;
                let node = self.state.node(id, level, self.file);
                let Some(node) = self.verified.note(node) else {
                    continue;
                };
                // A map that grows makes the path to index 0 first.
                let is_empty = node.slots.iter().all(|child| *child == 0) && !leads_to_first;
                (self.verified).check("emptiness of the map node", id.into(), 0, is_empty.into());
                let children = node.slots.iter().enumerate();
                for (slot, child) in children.filter(|(_, child)| **child != 0) {
                    match level {
                        0 => {
                            self.verified.mapped_blocks += 1;
                            self.refer(*child, false, volume.block_bytes);
                        }
                        _ => waiting.push((*child, level - 1, leads_to_first && slot == 0)),
                    }
                }
            }
        }
    }

    /// Counts a reference; returns whether it is the first.
    fn refer(&mut self, id: u32, is_node: bool, raw_bytes: u32) -> bool {
        let referred = self.references.entry(id).or_default();
        if referred.count == 0 {
            (referred.is_node, referred.raw_bytes) = (is_node, raw_bytes);
        }
        referred.count = referred.count.saturating_add(1);
        let (count, was_node) = (referred.count, referred.is_node);
        let kind = u64::from(is_node);
        (self.verified).check("kind of the frame", id.into(), kind, was_node.into());
        count == 1
    }

    /// Looks at every entry of the table, and reads every block.
    fn frames(&mut self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let total = u64::from(self.state.table.next_frame);
        let mut block = Vec::new();
        for number in 0..total.div_ceil(FANOUT as u64) as u32 {
            let (file, segments) = (self.file, &self.state.segments);
            let leaf = self.state.table.leaf(number, file, segments);
            let leaf = self.verified.note(leaf).flatten();
            let Some(Chunk::Leaf(entries)) = leaf.as_deref() else {
                continue;
            };
            for (index, entry) in entries.iter().enumerate() {
                self.frame(number * FANOUT as u32 + index as u32, *entry, &mut block);
            }
            let seen = (u64::from(number) + 1) * PROGRESS_FRAMES;
            if !progress(seen.min(total), total) {
                return Err(Error::Interrupted);
            }
        }
        // The remaining ones have no entry.
        let left = std::mem::take(&mut self.references);
        for (id, referred) in left {
            (self.verified).check(
                "references to the frame",
                id.into(),
                referred.count.into(),
                0,
            );
        }
        Ok(())
    }

    fn frame(&mut self, id: u32, entry: Entry, block: &mut Vec<u8>) {
        let referred = self.references.remove(&id).unwrap_or_default();
        if entry.references != u32::MAX {
            let (expected, found) = (referred.count.into(), entry.references.into());
            (self.verified).check("references to the frame", id.into(), expected, found);
        }
        if entry.references == 0 {
            return;
        }
        self.used_ids += 1;
        self.count(entry.place);
        if referred.is_node || referred.count == 0 {
            return;
        }
        block.resize(referred.raw_bytes as usize, 0);
        let (file, segments) = (self.file, &self.state.segments);
        let known = (segments, &self.state.dictionaries);
        let read = file.read_frame(entry.place, id, known, block);
        self.verified.broken_blocks += u64::from(read.is_err());
        if let Some(dictionary) = self.verified.note(read) {
            self.check_use(dictionary, entry.place);
            self.verified.frames += 1;
            self.verified.stored_bytes += entry.place.record_bytes();
        }
    }

    /// A dictionary that a frame needs must not go before the frame's segment does.
    fn check_use(&mut self, dictionary: u32, place: Place) {
        let segment = self.state.segments.find(place.address());
        let kept = self.state.dictionaries.get(dictionary);
        if let (Some(segment), Some(kept)) = (segment, kept) {
            let generation = self.state.segments.get(segment).generation;
            let last_use = kept.last_use.max(generation);
            (self.verified).check(
                "last use of the dictionary",
                place.address(),
                last_use,
                kept.last_use,
            );
        }
    }

    /// Reads both copies of every dictionary.
    fn dictionaries(&mut self) {
        let (file, state) = (self.file, self.state);
        for (id, kept) in state.dictionaries.iter() {
            self.verified.dictionaries += 1;
            for place in kept.places {
                let read = file.check_dictionary(place, id, &state.segments);
                self.verified.note(read);
                self.count(place);
            }
        }
    }

    fn count(&mut self, place: Place) {
        if let Some(segment) = self.state.segments.find(place.address()) {
            *self.live.entry(segment).or_default() += place.record_bytes();
        }
    }

    /// Counts the chunks of the table that lie in the file.
    fn chunks(&mut self) {
        let (file, segments) = (self.file, &self.state.segments);
        let places = self.state.table.stored_places(file, segments);
        for place in self.verified.note(places).unwrap_or_default() {
            self.verified.chunks += 1;
            self.count(place);
        }
    }

    /// Walks the stack of free ids: each is free, none is missing, and none comes twice.
    fn free_ids(&mut self) {
        let table = &self.state.table;
        let (mut free, mut next) = (0u64, table.free_head);
        // A circle is noticed before it was walked three times: one of its ids is marked when a power of two stands
        // behind it (Brent 1980).
        let mut marked = 0;
        while next != 0 && next != marked {
            if free.is_power_of_two() {
                marked = next;
            }
            free += 1;
            let entry = self.state.entry(next, self.file);
            let Some(entry) = self.verified.note(entry) else {
                return;
            };
            let references = entry.references.into();
            (self.verified).check("references to a free id", next.into(), 0, references);
            next = u32::try_from(entry.place.word()).unwrap_or(0);
        }
        let end = u64::from(next);
        self.verified.check("end of the free ids", end, 0, end);
        let used = self.used_ids;
        let ids = u64::from(table.next_frame.saturating_sub(1));
        self.verified.check(
            "free ids",
            table.free_head.into(),
            ids - used.min(ids),
            free,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{BlocksOptions, Durability};
    use crate::storage::MemoryStorage;

    #[test]
    fn a_circle_of_free_ids_is_told_and_left() {
        let options = BlocksOptions::default();
        let blocks = Blocks::create(&MemoryStorage::new(), "store", options).unwrap();
        let mut transaction = blocks.begin().unwrap();
        let volume = transaction.create_volume(4096).unwrap();
        for index in 0..64 {
            transaction.write(volume, index, &[7; 4096]).unwrap();
        }
        transaction.commit(Durability::Durable).unwrap();
        let mut transaction = blocks.begin().unwrap();
        transaction.trim(volume, 8..48).unwrap();
        transaction.commit(Durability::Durable).unwrap();
        let file = &blocks.inner.file;
        let mut state = State::clone(blocks.snapshot().state());
        let faults = |state: &State| {
            let verified = verify_state(file, state, None, &mut |_, _| true).unwrap();
            verified.fault_count
        };
        assert_eq!(faults(&state), 0);
        let mut free = vec![state.table.free_head];
        loop {
            let last = state.entry(free[free.len() - 1], file).unwrap();
            match u32::try_from(last.place.word()).unwrap() {
                0 => break,
                next => free.push(next),
            }
        }
        assert!(free.len() >= 40, "{}", free.len());
        let segments = state.segments.clone();
        for (from, to) in [(39, 0), (39, 39), (39, 31), (0, 0)] {
            let circle = Entry {
                place: Place::from_stored(free[to].into()).unwrap(),
                references: 0,
            };
            let before = state.entry(free[from], file).unwrap();
            state
                .table
                .set(free[from], circle, file, &segments)
                .unwrap();
            assert!(faults(&state) > 0, "{from} to {to}");
            state
                .table
                .set(free[from], before, file, &segments)
                .unwrap();
        }
    }
}
