//! The frame table: the place of each frame, and the number of addresses that show it.
//!
//! A tree of chunks with 256 entries each. A chunk lies in the file wherever the last checkpoint put it, and its parent
//! holds its place. Later changes are in an overlay, found by number without walking the tree. Free ids are a stack
//! that runs through the entries of the frames that are gone.

use std::sync::Arc;

use super::file::StoreFile;
use super::overlay::Overlay;
use super::place::{Place, Segments};
use crate::error::{Error, Result};

/// The entries of a leaf, and the children of a node above.
pub(super) const FANOUT: usize = 256;
const FANOUT_BITS: u32 = 8;
/// Frame ids are 32 bits.
pub(super) const HEIGHT_MAX: u32 = 4;
/// A bound on the bytes of a chunk's record.
pub(super) const CHUNK_RECORD_BYTES: u64 = (FANOUT * ENTRY_BYTES) as u64 + 64;
/// The bytes of a stored entry.
pub(super) const ENTRY_BYTES: usize = 12;

/// A frame's place and the count of its references; a count of 0 is a free id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its place; for a free id, the next free one.
    pub(super) place: Place,
    /// Saturates: a frame with 2^32 - 1 is never freed.
    pub(super) references: u32,
}

/// One chunk of the table, without the unused entries at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    Leaf(Vec<Entry>),
    Inner(Vec<Place>),
}

impl Chunk {
    /// Returns the stored bytes: of leaves words and counts, above words alone.
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Chunk::Leaf(entries) => entries
                .iter()
                .flat_map(|entry| {
                    let mut bytes = [0; ENTRY_BYTES];
                    bytes[..8].copy_from_slice(&entry.place.word().to_le_bytes());
                    bytes[8..].copy_from_slice(&entry.references.to_le_bytes());
                    bytes
                })
                .collect(),
            Chunk::Inner(places) => {
                let words = places.iter().map(|place| place.word().to_le_bytes());
                words.flatten().collect()
            }
        }
    }

    /// Reads stored bytes; `None` if they are no chunk of this level.
    pub(super) fn decode(level: u32, bytes: &[u8]) -> Option<Chunk> {
        let word = |bytes: &[u8]| {
            let word = u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"));
            Place::from_stored(word)
        };
        let unit = if level == 0 { ENTRY_BYTES } else { 8 };
        if !bytes.len().is_multiple_of(unit) || bytes.len() / unit > FANOUT {
            return None;
        }
        let units = bytes.chunks_exact(unit);
        if level > 0 {
            return units.map(word).collect::<Option<_>>().map(Chunk::Inner);
        }
        let entry = |bytes: &[u8]| {
            Some(Entry {
                place: word(bytes)?,
                references: u32::from_le_bytes(*bytes[8..].first_chunk().expect("four bytes")),
            })
        };
        units.map(entry).collect::<Option<_>>().map(Chunk::Leaf)
    }
}

/// The table of one state of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    /// The place of the highest chunk, which has the level `height` - 1.
    pub(super) root: Place,
    pub(super) height: u32,
    /// The id above all that were ever given, less one: ids begin at 1.
    pub(super) next_frame: u32,
    /// The first free id below that, 0 for none.
    pub(super) free_head: u32,
    changed: Overlay<Arc<Chunk>>,
}

/// The overlay's key of a chunk.
fn key(level: u32, number: u32) -> u32 {
    level << 24 | number
}

/// Returns the entry of a frame in its own leaf. A missing entry is free.
fn entry_of(leaf: Option<&Chunk>, id: u32) -> Entry {
    match leaf {
        Some(Chunk::Leaf(entries)) => {
            let entry = entries.get(id as usize % FANOUT);
            entry.copied().unwrap_or_default()
        }
        _ => Entry::default(),
    }
}

impl Table {
    /// Makes the table that a checkpoint describes.
    pub(super) fn stored(root: Place, height: u32, next_frame: u32, free_head: u32) -> Table {
        Table {
            root,
            height,
            next_frame,
            free_head,
            changed: Overlay::default(),
        }
    }

    /// Returns the number of levels for all ids given so far.
    fn needed_height(&self) -> u32 {
        let mut height = 1;
        while height < HEIGHT_MAX && self.next_frame.saturating_sub(1) >> (FANOUT_BITS * height) > 0
        {
            height += 1;
        }
        height
    }

    fn chunk(
        &self,
        level: u32,
        number: u32,
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<Option<Arc<Chunk>>> {
        if let Some(chunk) = self.changed.get(key(level, number)) {
            return Ok(Some(Arc::clone(chunk)));
        }
        if level >= self.height {
            return Ok(None);
        }
        let place = match level + 1 == self.height {
            true if number == 0 => self.root,
            true => Place::NONE,
            false => match self
                .chunk(level + 1, number >> FANOUT_BITS, file, segments)?
                .as_deref()
            {
                Some(Chunk::Inner(places)) => {
                    let place = places.get(number as usize % FANOUT);
                    place.copied().unwrap_or_default()
                }
                _ => Place::NONE,
            },
        };
        if place.is_none() {
            return Ok(None);
        }
        file.chunk(place, level, number, segments).map(Some)
    }

    /// Returns the entry of a frame. An id that was never given has the empty one.
    pub(super) fn get(&self, id: u32, file: &StoreFile, segments: &Segments) -> Result<Entry> {
        let leaf = self.chunk(0, id >> FANOUT_BITS, file, segments)?;
        Ok(entry_of(leaf.as_deref(), id))
    }

    /// Returns the places of frames, none for frame 0. Neighbours share one look for their chunk.
    pub(super) fn places(
        &self,
        ids: &[u32],
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<Vec<Place>> {
        let mut leaf = None;
        let mut number = None;
        let mut places = Vec::with_capacity(ids.len());
        for id in ids {
            if *id != 0 && number != Some(id >> FANOUT_BITS) {
                number = Some(id >> FANOUT_BITS);
                leaf = self.chunk(0, id >> FANOUT_BITS, file, segments)?;
            }
            places.push(match id {
                0 => Place::NONE,
                id => entry_of(leaf.as_deref(), *id).place,
            });
        }
        Ok(places)
    }

    /// Changes the entry of a frame.
    pub(super) fn set(
        &mut self,
        id: u32,
        entry: Entry,
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<()> {
        self.touch(0, id >> FANOUT_BITS, file, segments)?;
        let Chunk::Leaf(entries) = self.changed_mut(0, id >> FANOUT_BITS) else {
            panic!("level 0 has leaves");
        };
        let index = id as usize % FANOUT;
        if entries.len() <= index {
            entries.resize(index + 1, Entry::default());
        }
        entries[index] = entry;
        Ok(())
    }

    /// Makes a chunk one of the changed ones.
    pub(super) fn touch(
        &mut self,
        level: u32,
        number: u32,
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<()> {
        if self.changed.get(key(level, number)).is_some() {
            return Ok(());
        }
        let chunk = self.chunk(level, number, file, segments)?;
        let chunk = chunk.unwrap_or_else(|| {
            Arc::new(match level {
                0 => Chunk::Leaf(Vec::new()),
                _ => Chunk::Inner(Vec::new()),
            })
        });
        self.changed.insert(key(level, number), chunk);
        Ok(())
    }

    /// Makes a chunk one of the changed ones if it lies at `place`.
    pub(super) fn touch_at(
        &mut self,
        level: u32,
        number: u32,
        place: Place,
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<()> {
        let is_known = level < self.height && number >> (32 - FANOUT_BITS) == 0;
        if is_known && self.place_of(level, number, file, segments)? == place {
            self.touch(level, number, file, segments)?;
        }
        Ok(())
    }

    /// Returns a leaf of the table, if it was ever needed.
    pub(super) fn leaf(
        &self,
        number: u32,
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<Option<Arc<Chunk>>> {
        self.chunk(0, number, file, segments)
    }

    /// Returns the places of all chunks at the last checkpoint.
    pub(super) fn stored_places(
        &self,
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<Vec<Place>> {
        let (mut places, mut above) = (Vec::new(), Vec::new());
        if !self.root.is_none() {
            places.push(self.root);
            above.push(0);
        }
        for level in (1..self.height).rev() {
            for number in std::mem::take(&mut above) {
                let chunk = self.chunk(level, number, file, segments)?;
                let Some(Chunk::Inner(children)) = chunk.as_deref() else {
                    continue;
                };
                for (index, place) in children.iter().enumerate() {
                    if !place.is_none() {
                        places.push(*place);
                        above.push(number << FANOUT_BITS | index as u32);
                    }
                }
            }
        }
        Ok(places)
    }

    /// Returns a bound on the bytes of all chunks.
    pub(super) fn bytes_max(&self) -> u64 {
        let entries = u64::from(self.next_frame);
        let leaves = entries / FANOUT as u64 + 1;
        let above = match leaves {
            1 => 0,
            few if few <= FANOUT as u64 => few * 8 + 64,
            more => (more / 128 + u64::from(HEIGHT_MAX)) * CHUNK_RECORD_BYTES,
        };
        entries * ENTRY_BYTES as u64 + leaves * 64 + above
    }

    /// Returns the number of changed chunks.
    pub(super) fn changed_count(&self) -> usize {
        self.changed.len()
    }

    fn changed_mut(&mut self, level: u32, number: u32) -> &mut Chunk {
        let chunk = self.changed.get_mut(key(level, number));
        Arc::make_mut(chunk.expect("a touched chunk"))
    }

    /// Takes an id for a new frame with one reference.
    pub(super) fn allocate(&mut self, file: &StoreFile, segments: &Segments) -> Result<u32> {
        let id = match self.free_head {
            0 => {
                let id = self.next_frame.max(1);
                if id == u32::MAX {
                    let reason = "2^32 - 2 frames, and none is free";
                    return Err(Error::invalid("block store", reason));
                }
                self.next_frame = id + 1;
                id
            }
            id => {
                let entry = self.get(id, file, segments)?;
                let next = u32::try_from(entry.place.word());
                let next = next.ok().filter(|next| *next < self.next_frame);
                let (0, Some(next)) = (entry.references, next) else {
                    return Err(Error::corrupt(
                        "frame table",
                        id.into(),
                        "a free id",
                        "a frame",
                    ));
                };
                self.free_head = next;
                id
            }
        };
        let entry = Entry {
            place: Place::NONE,
            references: 1,
        };
        self.set(id, entry, file, segments)?;
        Ok(id)
    }

    /// Gives back the id of a frame without references.
    pub(super) fn free(&mut self, id: u32, file: &StoreFile, segments: &Segments) -> Result<()> {
        let next = Place::from_stored(self.free_head.into()).expect("32 bits");
        let entry = Entry {
            place: next,
            references: 0,
        };
        self.set(id, entry, file, segments)?;
        self.free_head = id;
        Ok(())
    }

    /// Hands every changed chunk to `write`, children first, and takes the place it returns. `write` also hears the
    /// chunk's place before.
    pub(super) fn write_out(
        &mut self,
        file: &StoreFile,
        segments: &Segments,
        mut write: impl FnMut(u32, u32, &Arc<Chunk>, Place) -> Result<Place>,
    ) -> Result<()> {
        let height = self.needed_height().max(self.height);
        if self.changed.len() == 0 {
            return Ok(());
        }
        if self.height > 0 && height > self.height {
            // The old root becomes the first child of a chunk above it.
            let (root, level) = (self.root, self.height);
            self.changed
                .insert(key(level, 0), Arc::new(Chunk::Inner(vec![root])));
        }
        let keys = |table: &Table, level: u32| {
            let mut keys = table.changed.keys();
            keys.retain(|key| key >> 24 == level);
            keys
        };
        for level in 0..height {
            for key in keys(self, level) {
                let number = key & 0xFF_FFFF;
                let old = self.place_of(level, number, file, segments)?;
                let chunk = Arc::clone(self.changed.get(key).expect("a changed chunk"));
                let place = write(level, number, &chunk, old)?;
                if level + 1 == height {
                    self.root = place;
                    continue;
                }
                let parent = number >> FANOUT_BITS;
                self.touch(level + 1, parent, file, segments)?;
                let Chunk::Inner(places) = self.changed_mut(level + 1, parent) else {
                    panic!("leaves are at level 0");
                };
                let index = number as usize % FANOUT;
                if places.len() <= index {
                    places.resize(index + 1, Place::NONE);
                }
                places[index] = place;
            }
        }
        self.height = height;
        self.changed = Overlay::default();
        Ok(())
    }

    /// Returns the place of a chunk at the last checkpoint.
    fn place_of(
        &self,
        level: u32,
        number: u32,
        file: &StoreFile,
        segments: &Segments,
    ) -> Result<Place> {
        if level + 1 >= self.height {
            let is_root = level + 1 == self.height && number == 0;
            return Ok(if is_root { self.root } else { Place::NONE });
        }
        let parent = self.chunk(level + 1, number >> FANOUT_BITS, file, segments)?;
        Ok(match parent.as_deref() {
            Some(Chunk::Inner(places)) => {
                let place = places.get(number as usize % FANOUT);
                place.copied().unwrap_or_default()
            }
            _ => Place::NONE,
        })
    }
}
