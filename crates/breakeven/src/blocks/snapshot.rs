//! A snapshot: one state of the store, for reading during any writes.

use std::ops::Range;
use std::sync::Arc;

use super::Inner;
use super::place::Place;
use super::state::State;
use crate::error::{Error, Result};

/// A block's place, the same for as long as its bytes are: a key for a cache of decoded blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// Distinguishes stores.
    pub store: u64,
    /// The use of the segment it lies in.
    pub generation: u64,
    /// Its offset in the file.
    pub address: u64,
    frame: u32,
    length_bytes: u32,
}

impl Location {
    /// Returns the bytes of the block in the file, its record's header included.
    pub fn stored_bytes(&self) -> u32 {
        self.length_bytes
    }
}

/// One state of the store. Its blocks are not written over while it is held.
pub struct Snapshot {
    inner: Arc<Inner>,
    state: Arc<State>,
}

impl Snapshot {
    pub(super) fn new(inner: Arc<Inner>) -> Result<Snapshot> {
        let state = inner.shared.hold()?;
        Ok(Snapshot { inner, state })
    }

    pub(super) fn state(&self) -> &State {
        &self.state
    }

    /// Returns the number of the last transaction in it.
    pub fn commit(&self) -> u64 {
        self.state.commit
    }

    /// Returns the numbers of all volumes.
    pub fn volumes(&self) -> impl Iterator<Item = u32> + '_ {
        self.state.volumes.keys().copied()
    }

    /// Returns the length of a volume's blocks.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such volume, as all that take one.
    pub fn block_bytes(&self, volume: u32) -> Result<u32> {
        Ok(self.state.volume(volume)?.block_bytes)
    }

    /// Returns the number of blocks of a volume, holes included.
    ///
    /// # Errors
    /// As [`Snapshot::block_bytes`].
    pub fn size_blocks(&self, volume: u32) -> Result<u64> {
        Ok(self.state.volume(volume)?.size_blocks)
    }

    /// Returns the bytes noted under `key`.
    pub fn note(&self, key: u32) -> Option<Arc<[u8]>> {
        self.state.notes.get(key).cloned()
    }

    /// Reads a block. Holes, and blocks behind the volume's end, are zeros.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `target` is not one block, [`Error::Corrupt`] if the stored bytes differ from the written
    /// ones, and those of reading.
    ///
    /// # Cost
    /// One read of the stored length, its checksum, and the decoding.
    pub fn read(&self, volume: u32, index: u64, target: &mut [u8]) -> Result<()> {
        match self.find(volume, index, target.len())? {
            None => target.fill(0),
            Some((id, place)) => {
                let known = (&self.state.segments, &self.state.dictionaries);
                self.inner.file.read_frame(place, id, known, target)?;
            }
        }
        Ok(())
    }

    /// Reads a run of blocks from block `first` on. Holes, and blocks behind the volume's end, are zeros.
    ///
    /// # Errors
    /// As [`Snapshot::read`], if `target` is not whole blocks.
    ///
    /// # Cost
    /// One read for up to 256 KiB that lie together in the file, as blocks do that were written together.
    pub fn read_run(&self, volume: u32, first: u64, target: &mut [u8]) -> Result<()> {
        let found = self.state.volume(volume)?;
        let block_bytes = found.block_bytes as usize;
        let count = (target.len() / block_bytes) as u64;
        if !target.len().is_multiple_of(block_bytes) || first.checked_add(count).is_none() {
            let reason = format!(
                "{} bytes at {first} for blocks of {block_bytes}",
                target.len()
            );
            return Err(Error::invalid("run of blocks", reason));
        }
        let file = &self.inner.file;
        let ids = self.state.frames(&found, first..first + count, file)?;
        let places = self.state.places(&ids, file)?;
        let known = (&self.state.segments, &self.state.dictionaries);
        file.read_frames(&ids, &places, known, target)
    }

    /// Returns a block's place, `None` for a hole.
    ///
    /// # Errors
    /// As [`Snapshot::block_bytes`], and those of reading the map.
    pub fn locate(&self, volume: u32, index: u64) -> Result<Option<Location>> {
        let block_bytes = self.state.volume(volume)?.block_bytes as usize;
        let Some((frame, place)) = self.find(volume, index, block_bytes)? else {
            return Ok(None);
        };
        let segment = self.state.segments.find(place.address());
        let segment = segment
            .ok_or_else(|| Error::corrupt("block store", place.address(), "a segment", "none"))?;
        Ok(Some(Location {
            store: self.inner.number,
            generation: self.state.segments.get(segment).generation,
            address: place.address(),
            frame,
            length_bytes: place.record_bytes() as u32,
        }))
    }

    /// Reads the block that [`Snapshot::locate`] of this snapshot found.
    ///
    /// # Errors
    /// As [`Snapshot::read`].
    pub fn read_located(&self, location: &Location, target: &mut [u8]) -> Result<()> {
        let place = Place::new(location.address, location.length_bytes.into());
        let known = (&self.state.segments, &self.state.dictionaries);
        let file = &self.inner.file;
        file.read_frame(place, location.frame, known, target)
            .map(drop)
    }

    /// Returns the next run of mapped blocks that begins at or behind `from`.
    ///
    /// # Errors
    /// As [`Snapshot::block_bytes`], and those of reading the map.
    ///
    /// # Cost
    /// As [`Snapshot::next_mapped_within`].
    pub fn next_mapped(&self, volume: u32, from: u64) -> Result<Option<Range<u64>>> {
        self.next_mapped_within(volume, from..u64::MAX, u64::MAX)
    }

    /// Returns the first run of mapped blocks in a range, as far as it lies in it, and `blocks_max` of it at most.
    ///
    /// # Errors
    /// As [`Snapshot::block_bytes`], and those of reading the map.
    ///
    /// # Cost
    /// A walk over the run.
    pub fn next_mapped_within(
        &self,
        volume: u32,
        range: Range<u64>,
        blocks_max: u64,
    ) -> Result<Option<Range<u64>>> {
        let found = self.state.volume(volume)?;
        let file = &self.inner.file;
        let start = self.first_mapped(volume, range.start)?;
        let Some(start) = start.filter(|start| *start < range.end) else {
            return Ok(None);
        };
        let mut end = start + 1;
        let end_max = range.end.min(start.saturating_add(blocks_max));
        while end < found.size_blocks.min(end_max) && self.state.frame(&found, end, file)? != 0 {
            end += 1;
        }
        Ok(Some(start..end))
    }

    /// Returns the first mapped block at or behind `from`.
    ///
    /// # Errors
    /// As [`Snapshot::block_bytes`], and those of reading the map.
    pub fn first_mapped(&self, volume: u32, from: u64) -> Result<Option<u64>> {
        let found = self.state.volume(volume)?;
        self.state.next_mapped(&found, from, &self.inner.file)
    }

    /// Returns the first run of blocks in a range that differs between two volumes, as far as it lies in the range, and
    /// `blocks_max` of it at most. Blocks that were written with the same bytes again may be among them.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one of them does not exist or their blocks differ in length, and those of reading the
    /// maps.
    ///
    /// # Cost
    /// A walk over the run, and over the differing parts of the maps before it.
    pub fn next_difference_within(
        &self,
        volumes: [u32; 2],
        range: Range<u64>,
        blocks_max: u64,
    ) -> Result<Option<Range<u64>>> {
        let [one, other] = [
            self.state.volume(volumes[0])?,
            self.state.volume(volumes[1])?,
        ];
        if one.block_bytes != other.block_bytes {
            let reason = format!("blocks of {} and {}", one.block_bytes, other.block_bytes);
            return Err(Error::invalid("volumes to compare", reason));
        }
        let file = &self.inner.file;
        let start = (self.state).next_difference([&one, &other], range.start, file)?;
        let Some(start) = start.filter(|start| *start < range.end) else {
            return Ok(None);
        };
        let differ = |index| -> Result<bool> {
            Ok(self.state.frame(&one, index, file)? != self.state.frame(&other, index, file)?)
        };
        let mut end = start + 1;
        let end_max = range.end.min(start.saturating_add(blocks_max));
        while end < end_max && differ(end)? {
            end += 1;
        }
        Ok(Some(start..end))
    }

    fn find(&self, volume: u32, index: u64, bytes: usize) -> Result<Option<(u32, Place)>> {
        find(&self.inner, &self.state, volume, index, bytes)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        self.inner.shared.release(self.state.version);
    }
}

/// Returns the frame of a block and its place, `None` for a hole; `bytes` must be the block's.
pub(super) fn find(
    inner: &Inner,
    state: &State,
    volume: u32,
    index: u64,
    bytes: usize,
) -> Result<Option<(u32, Place)>> {
    let found = state.volume(volume)?;
    if bytes != found.block_bytes as usize {
        let reason = format!("{bytes} bytes for a block of {}", found.block_bytes);
        return Err(Error::invalid("block", reason));
    }
    match state.frame(&found, index, &inner.file)? {
        0 => Ok(None),
        id => Ok(Some((id, state.entry(id, &inner.file)?.place))),
    }
}
