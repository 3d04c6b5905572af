//! Where chunks lie: identity to pack, frame and place in the frame.
//!
//! Promises: at most 32 bytes of memory a chunk, slack counted, at 10,000 chunks or more. Never more than the given
//! cap. Chunks known for long lie in one sorted table of 24 bytes each, found by interpolation, since identities are
//! evenly spread. Newer chunks lie in a hash table of at most 1/16 as many, until both are merged. A frame costs 16
//! bytes more, which full frames share among some 16 chunks.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use crate::error::{Error, Result};

use super::bytes::{Reader, put_number};
use super::cipher::Id;
use super::damage_log::DamageLog;
use super::pack::{ChunkKind, Contents, FrameEntry, PACK_BYTES_LIMIT, PackKind, Resemblance};
use super::similar::{BasePlace, Sketch, SketchTable};

/// New chunks before a merge: as a share of the others, and at the least.
const RECENT_SHARE: usize = 16;
const RECENT_LEAST: usize = 1024;
/// The kind by which an index says of a pack of folders that it has a copy.
const COPIED_KIND: u8 = 3;
/// The memory of sketches beside the index: this share of its cap, so that both take half as much again.
const SKETCHES_SHARE: u64 = 2;
/// A frame that holds deltas. No pack is so long that its frames need this bit.
const DELTA_BIT: u32 = 1 << 31;
/// A place that stands for a list.
const LIST_BIT: u32 = 1 << 31;

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The frame's number in the index.
    pub frame: u32,
    /// The chunk's place among those of the frame.
    pub ordinal: u32,
    pub kind: ChunkKind,
}

/// One chunk in memory: 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: Id,
    frame: u32,
    ordinal_and_kind: u32,
}

impl Entry {
    fn new(id: Id, place: Place) -> Entry {
        let list = if place.kind == ChunkKind::List {
            LIST_BIT
        } else {
            0
        };
        Entry {
            id,
            frame: place.frame,
            ordinal_and_kind: place.ordinal | list,
        }
    }

    fn place(&self) -> Place {
        Place {
            frame: self.frame,
            ordinal: self.ordinal_and_kind & !LIST_BIT,
            kind: match self.ordinal_and_kind & LIST_BIT {
                0 => ChunkKind::Plain,
                _ => ChunkKind::List,
            },
        }
    }
}

/// Where a frame lies: 12 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePlace {
    /// The pack's number in the index; [`FramePlace::PENDING`] until the pack has a name.
    pub pack: u32,
    pub offset: u32,
    sealed_bytes_and_delta: u32,
}

impl FramePlace {
    pub(super) const PENDING: u32 = u32::MAX;

    /// Returns the place of a frame that has no pack yet.
    pub(super) fn pending(is_delta: bool) -> FramePlace {
        FramePlace {
            pack: FramePlace::PENDING,
            offset: 0,
            sealed_bytes_and_delta: if is_delta { DELTA_BIT } else { 0 },
        }
    }

    /// Returns the place of a frame in a pack.
    pub(super) fn of(pack: u32, frame: &FrameEntry) -> FramePlace {
        let delta = FramePlace::pending(frame.is_delta()).sealed_bytes_and_delta;
        FramePlace {
            pack,
            offset: frame.offset,
            sealed_bytes_and_delta: frame.sealed_bytes | delta,
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.pack == FramePlace::PENDING
    }

    pub(super) fn sealed_bytes(&self) -> u32 {
        self.sealed_bytes_and_delta & !DELTA_BIT
    }

    pub(super) fn is_delta(&self) -> bool {
        self.sealed_bytes_and_delta & DELTA_BIT != 0
    }
}

/// A pack that the index knows.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackPlace {
    pub name: Id,
    pub kind: PackKind,
    pub size_bytes: u64,
    /// Whether the same bytes lie under another name as well.
    pub has_copy: bool,
}

/// Identities are hashes already.
#[derive(Default)]
struct Plain(u64);

impl Hasher for Plain {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        let (head, _) = bytes
            .split_first_chunk::<8>()
            .expect("an identity of 16 bytes");
        self.0 = u64::from_le_bytes(*head);
    }

    fn write_usize(&mut self, _: usize) {}
}

/// All chunks that are known.
pub(super) struct Index {
    sorted: Vec<Entry>,
    recent: HashMap<[u8; 16], Place, BuildHasherDefault<Plain>>,
    frames: Vec<FramePlace>,
    packs: Vec<PackPlace>,
    cap_bytes: u64,
    /// Where possible bases of deltas lie, if the caller wants deltas.
    sketches: Option<SketchTable>,
    /// Where damage is noted that a copy repairs.
    pub(super) damages: Arc<DamageLog>,
}

impl Index {
    /// Makes an empty index that may take up to `cap_bytes` of memory.
    pub(super) fn new(cap_bytes: u64) -> Index {
        Index {
            sorted: Vec::new(),
            recent: HashMap::default(),
            frames: Vec::new(),
            packs: Vec::new(),
            cap_bytes,
            sketches: None,
            damages: Arc::default(),
        }
    }

    /// Makes an empty index that also finds chunks by likeness.
    pub(super) fn with_sketches(cap_bytes: u64) -> Index {
        Index {
            sketches: Some(SketchTable::new(cap_bytes / SKETCHES_SHARE)),
            ..Index::new(cap_bytes)
        }
    }

    /// Returns the place of a chunk similar to this sketch.
    pub(super) fn similar(&self, sketch: Sketch) -> Option<BasePlace> {
        self.sketches.as_ref()?.find(sketch)
    }

    /// Notes that a chunk with this sketch lies there.
    pub(super) fn note_sketch(&mut self, sketch: Sketch, place: Place) {
        if let (Some(sketches), Ok(ordinal)) = (&mut self.sketches, u16::try_from(place.ordinal)) {
            let frame = place.frame;
            sketches.insert(sketch, BasePlace { frame, ordinal });
        }
    }

    /// Returns how many chunks are known.
    pub(super) fn chunk_count(&self) -> usize {
        self.sorted.len() + self.recent.len()
    }

    /// Returns the allocated memory, used or not.
    pub(super) fn memory_bytes(&self) -> u64 {
        let entry = size_of::<Entry>();
        // A bucket is a key with its place and a byte beside it; 7 of 8 may be taken.
        let bucket = size_of::<([u8; 16], Place)>() + 1;
        let recent = (self.recent.capacity() * 8 / 7) * bucket;
        let frames = self.frames.capacity() * size_of::<FramePlace>();
        let packs = self.packs.capacity() * size_of::<PackPlace>();
        (self.sorted.capacity() * entry + recent + frames + packs) as u64
    }

    /// Returns the place of a chunk.
    pub(super) fn find(&self, id: &Id) -> Option<Place> {
        if let Some(place) = self.recent.get(&id.0) {
            return Some(*place);
        }
        self.position(id).map(|at| self.sorted[at].place())
    }

    /// Returns the place among the sorted ones, by interpolation and then by halving.
    fn position(&self, id: &Id) -> Option<usize> {
        let (mut low, mut high) = (0, self.sorted.len());
        let key = lead(id);
        for step in 0.. {
            if low >= high {
                return None;
            }
            let (first, last) = (lead(&self.sorted[low].id), lead(&self.sorted[high - 1].id));
            let span = (high - low - 1) as u128;
            let guess = match step < 4 && first < last && (first..=last).contains(&key) {
                true => low + ((key - first) as u128 * span / (last - first) as u128) as usize,
                false => low + (high - low) / 2,
            };
            match self.sorted[guess].id.cmp(id) {
                std::cmp::Ordering::Equal => return Some(guess),
                std::cmp::Ordering::Less => low = guess + 1,
                std::cmp::Ordering::Greater => high = guess,
            }
        }
        unreachable!("the range shrinks in each step")
    }

    /// Notes a chunk, unless it is known. A chunk of bytes stands before a list: it is a whole content as well, and the
    /// entries of packs' footers have no order. A chunk that is no delta stands before a delta: others may be deltas of
    /// it.
    pub(super) fn insert(&mut self, id: Id, place: Place) -> Result<()> {
        if let Some(known) = self.find(&id) {
            return match (known.kind, place.kind) {
                (ChunkKind::List, ChunkKind::Plain) => self.replace(id, place).map(drop),
                (ChunkKind::Plain, ChunkKind::Plain)
                    if self.is_delta(known) && !self.is_delta(place) =>
                {
                    self.replace(id, place).map(drop)
                }
                _ => Ok(()),
            };
        }
        let most = (self.sorted.len() / RECENT_SHARE).max(RECENT_LEAST);
        if self.recent.len() >= most {
            self.merge()?;
        }
        self.recent.insert(id.0, place);
        Ok(())
    }

    /// Notes a chunk in place of the known one with its identity; says whether there was one.
    pub(super) fn replace(&mut self, id: Id, place: Place) -> Result<bool> {
        if let Some(known) = self.recent.get_mut(&id.0) {
            *known = place;
        } else if let Some(at) = self.position(&id) {
            self.sorted[at] = Entry::new(id, place);
        } else {
            return self.insert(id, place).map(|()| false);
        }
        Ok(true)
    }

    /// Forgets where chunks lie.
    pub(super) fn forget(&mut self, ids: &BTreeSet<Id>) {
        if !ids.is_empty() {
            self.recent.retain(|id, _| !ids.contains(&Id(*id)));
            self.sorted.retain(|entry| !ids.contains(&entry.id));
        }
    }

    /// Sorts the new ones in among the others, in place.
    pub(super) fn merge(&mut self) -> Result<()> {
        let recent = std::mem::take(&mut self.recent);
        let added = recent.len();
        let needed_bytes = self.memory_bytes() + (added * size_of::<Entry>()) as u64;
        if needed_bytes > self.cap_bytes {
            return Err(Error::Limit {
                what: "index",
                limit_bytes: self.cap_bytes,
                needed_bytes,
            });
        }
        let mut fresh: Vec<Entry> = (recent.into_iter())
            .map(|(id, place)| Entry::new(Id(id), place))
            .collect();
        fresh.sort_unstable_by_key(|entry| entry.id);
        let mut from = self.sorted.len();
        self.sorted.reserve_exact(added);
        self.sorted.extend_from_slice(&fresh);
        // From the end, so that nothing is overwritten before it was moved.
        let mut to = self.sorted.len();
        while let Some(last) = fresh.last() {
            to -= 1;
            if from > 0 && self.sorted[from - 1].id > last.id {
                from -= 1;
                self.sorted[to] = self.sorted[from];
            } else {
                self.sorted[to] = *last;
                fresh.pop();
            }
        }
        Ok(())
    }

    /// Notes a pack, and returns its number.
    pub(super) fn add_pack(&mut self, pack: PackPlace) -> u32 {
        self.packs.push(pack);
        (self.packs.len() - 1) as u32
    }

    /// Notes a frame, and returns its number.
    pub(super) fn add_frame(&mut self, frame: FramePlace) -> Result<u32> {
        let number = u32::try_from(self.frames.len());
        let number = number.map_err(|_| Error::invalid("vault", "more than 2^32 frames"))?;
        self.frames.push(frame);
        Ok(number)
    }

    /// Sets the place of a frame that was noted before.
    pub(super) fn place_frame(&mut self, number: u32, frame: FramePlace) {
        self.frames[number as usize] = frame;
    }

    pub(super) fn frame(&self, number: u32) -> FramePlace {
        self.frames[number as usize]
    }

    pub(super) fn pack(&self, number: u32) -> PackPlace {
        self.packs[number as usize]
    }

    pub(super) fn packs(&self) -> &[PackPlace] {
        &self.packs
    }

    /// Notes all chunks of a pack.
    pub(super) fn add_contents(&mut self, pack: PackPlace, contents: &Contents) -> Result<()> {
        let pack = self.add_pack(pack);
        for frame in &contents.frames {
            self.add_frame_entry(pack, frame)?;
        }
        Ok(())
    }

    fn add_frame_entry(&mut self, pack: u32, frame: &FrameEntry) -> Result<()> {
        let number = self.add_frame(FramePlace::of(pack, frame))?;
        for (ordinal, chunk) in frame.chunks.iter().enumerate() {
            if chunk.id == Id::NONE {
                continue;
            }
            let place = Place {
                frame: number,
                ordinal: ordinal as u32,
                kind: chunk.kind,
            };
            self.insert(chunk.id, place)?;
            if let Resemblance::Sketch(sketch) = chunk.resemblance {
                self.note_sketch(sketch, place);
            }
        }
        Ok(())
    }

    fn is_delta(&self, place: Place) -> bool {
        // Only in the tests of this file are there places without frames.
        let frame = self.frames.get(place.frame as usize);
        frame.is_some_and(FramePlace::is_delta)
    }

    /// Returns the place of a chunk that can be a base.
    pub(super) fn find_base(&self, id: &Id) -> Option<Place> {
        let is_base = |it: &Place| it.kind == ChunkKind::Plain && !self.is_delta(*it);
        self.find(id).filter(is_base)
    }

    pub(super) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Returns the name of the pack from which a chunk is read, nothing while it has no name.
    pub(super) fn pack_of(&self, id: &Id) -> Option<Id> {
        let frame = self.frame(self.find(id)?.frame);
        (!frame.is_pending()).then(|| self.pack(frame.pack).name)
    }

    /// Returns the kind of that pack.
    pub(super) fn kind_of_pack(&self, id: &Id) -> Option<PackKind> {
        let frame = self.frame(self.find(id)?.frame);
        (!frame.is_pending()).then(|| self.pack(frame.pack).kind)
    }

    /// Hides the lists and deltas of a pack that are read from another one.
    pub(super) fn hide_dependents(&self, pack: &PackPlace, contents: &mut Contents) {
        contents.hide_dependents(|id| self.pack_of(id) == Some(pack.name));
    }

    /// Says whether a chunk of bytes is known: a list that names the identity of another list is not whole.
    pub(super) fn has_chunk(&self, id: &Id) -> bool {
        (self.find(id)).is_some_and(|place| place.kind == ChunkKind::Plain)
    }

    /// Returns the identity under which a content lies: its own, or that of its list with gaps.
    pub(super) fn lies_under(&self, id: Id) -> Id {
        let is_list = |place: Place| place.kind == ChunkKind::List;
        let with_gaps = id.with_gaps();
        match self.find(&id).is_none() && self.find(&with_gaps).is_some_and(is_list) {
            true => with_gaps,
            false => id,
        }
    }

    /// Says whether a content is known; an empty one always is.
    pub(super) fn has_content(&self, id: &Id) -> bool {
        *id == Id::NONE || self.find(id).is_some()
    }

    /// Returns the identities of all lists, in the order of their places, so that a frame is read once for all of its
    /// own.
    pub(super) fn lists(&self) -> Vec<Id> {
        let recent = self.recent.iter().map(|(id, place)| (Id(*id), *place));
        let all = self.sorted.iter().map(|entry| (entry.id, entry.place()));
        let all = all.chain(recent);
        let mut lists: Vec<(Id, Place)> = all
            .filter(|(_, place)| place.kind == ChunkKind::List)
            .collect();
        lists.sort_unstable_by_key(|(_, place)| (place.frame, place.ordinal));
        lists.into_iter().map(|(id, _)| id).collect()
    }

    /// Returns a number for each chunk that stays while nothing is inserted, for marking; all must be merged.
    pub(super) fn number_of(&self, id: &Id) -> Option<usize> {
        assert!(
            self.recent.is_empty(),
            "numbers of an index that is not merged"
        );
        self.position(id)
    }
}

fn lead(id: &Id) -> u64 {
    u64::from_be_bytes(id.0[..8].try_into().expect("8 bytes of 16"))
}

/// Appends a pack's contents to an index object.
pub(super) fn write_pack(bytes: &mut Vec<u8>, pack: &PackPlace, contents: &Contents) {
    bytes.extend_from_slice(&pack.name.0);
    bytes.push(match pack.has_copy {
        true => COPIED_KIND,
        false => pack.kind.number(),
    });
    put_number(bytes, pack.size_bytes);
    contents.write(bytes);
}

/// Reads an index object, pack by pack.
pub(super) fn read_packs(
    content: &[u8],
    mut take: impl FnMut(PackPlace, Contents) -> Result<()>,
) -> Result<()> {
    let mut reader = Reader::new("index", content);
    while !reader.is_empty() {
        let name = reader.id()?;
        let number = reader.byte()?;
        let has_copy = number == COPIED_KIND;
        let kind = match has_copy {
            true => Some(PackKind::Folders),
            false => PackKind::from_number(number),
        };
        let kind = kind.ok_or_else(|| reader.wrong("a kind of packs", number))?;
        let size_bytes = reader.number_to(2 * PACK_BYTES_LIMIT as u64)?;
        let contents = Contents::read(&mut reader)?;
        take(
            PackPlace {
                name,
                kind,
                size_bytes,
                has_copy,
            },
            contents,
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u32) -> Place {
        let kind = if number.is_multiple_of(7) {
            ChunkKind::List
        } else {
            ChunkKind::Plain
        };
        Place {
            frame: number / 16,
            ordinal: number % 16,
            kind,
        }
    }

    fn id(number: u32) -> Id {
        let hash = blake3::hash(&number.to_le_bytes());
        Id(hash.as_bytes()[..16].try_into().unwrap())
    }

    #[test]
    fn every_chunk_is_found_and_no_other() {
        let mut index = Index::new(u64::MAX);
        for number in 0..40_000 {
            index.insert(id(number), place(number)).unwrap();
            index.insert(id(number / 2), place(0)).unwrap();
            if number.is_multiple_of(997) {
                assert_eq!(index.find(&id(number / 3)), Some(place(number / 3)));
                assert_eq!(index.find(&id(number + 1)), None);
            }
        }
        for number in 0..40_000 {
            assert_eq!(index.find(&id(number)), Some(place(number)), "{number}");
            assert_eq!(index.find(&id(number + 40_000)), None);
        }
        assert_eq!(index.chunk_count(), 40_000);
    }

    /// Ten million in the long tests; the last tables there are as long as those of half a TB.
    #[test]
    fn a_chunk_takes_at_most_32_bytes() {
        let count = match crate::testing::is_full() {
            true => 10_000_000,
            false => 300_000,
        };
        let mut index = Index::new(u64::MAX);
        let mut most = 0.0f64;
        let mut random = fastrand::Rng::with_seed(crate::testing::seed(3));
        for number in 0..count as u32 {
            index
                .insert(Id(random.u128(..).to_le_bytes()), place(number))
                .unwrap();
            if number.is_multiple_of(16) {
                index.add_frame(FramePlace::pending(false)).unwrap();
            }
            if number >= 30_000 {
                most = most.max(index.memory_bytes() as f64 / f64::from(number + 1));
            }
        }
        println!("{count} chunks, at most {most:.1} bytes each");
        assert!(most <= 32.0, "{most}");
    }

    #[test]
    fn the_cap_is_kept() {
        let mut index = Index::new(100_000);
        let full = (0..10_000).try_for_each(|number| index.insert(id(number), place(number)));
        assert!(matches!(full, Err(Error::Limit { .. })), "{full:?}");
        assert!(index.memory_bytes() <= 100_000);
    }
}
