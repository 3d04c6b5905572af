//! Places of records, and their segments.
//!
//! A [`Place`] is 7 bytes in a word: an offset in units of 16 bytes and a length in the same unit. [`Segments`] is the
//! list of all segments by their start. It is cheap to clone: the states of a store share chunks of it until one of
//! them changes.

use std::ops::Range;
use std::sync::Arc;

use super::SEGMENT_BYTES_MAX;
use super::layout::SEGMENTS_START;
use crate::error::{Error, Result};
use crate::storage::record::ALIGNMENT_BYTES;

const UNIT_BYTES: u64 = ALIGNMENT_BYTES as u64;
const OFFSET_BITS: u32 = 40;
const LENGTH_BITS: u32 = 16;
/// The end of the largest file: 16 TiB.
pub(super) const FILE_BYTES_MAX: u64 = UNIT_BYTES << OFFSET_BITS;

/// Offset and length of a record, or no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place(u64);

impl Place {
    /// No place: a frame that was not written yet.
    pub(super) const NONE: Place = Place(0);

    pub(super) fn new(address: u64, record_bytes: u64) -> Place {
        let (offset, length) = (address / UNIT_BYTES, record_bytes / UNIT_BYTES);
        assert!(
            address.is_multiple_of(UNIT_BYTES) && record_bytes.is_multiple_of(UNIT_BYTES),
            "{record_bytes} bytes at {address}"
        );
        assert!(
            offset >> OFFSET_BITS == 0 && length >> LENGTH_BITS == 0,
            "{record_bytes} bytes at {address}"
        );
        Place(offset | length << OFFSET_BITS)
    }

    /// Takes a stored word as a place. The highest byte is reserved.
    pub(super) fn from_stored(word: u64) -> Option<Place> {
        (word >> (OFFSET_BITS + LENGTH_BITS) == 0).then_some(Place(word))
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    pub(super) fn address(self) -> u64 {
        (self.0 & ((1 << OFFSET_BITS) - 1)) * UNIT_BYTES
    }

    pub(super) fn record_bytes(self) -> u64 {
        (self.0 >> OFFSET_BITS) * UNIT_BYTES
    }
}

/// A part of the file that is written from its start to its end, and then waits to be free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// The generation of its present use, 0 if it was never written.
    pub(super) generation: u64,
}

impl Segment {
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.start + self.bytes
    }
}

const CHUNK: usize = 256;

/// All segments of a file, one behind another.
#[derive(Clone, Debug, Default)]
pub(super) struct Segments {
    chunks: Arc<Vec<Arc<Vec<Segment>>>>,
}

impl Segments {
    pub(super) fn len(&self) -> usize {
        match self.chunks.split_last() {
            None => 0,
            Some((last, full)) => full.len() * CHUNK + last.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Segment {
        self.chunks[index / CHUNK][index % CHUNK]
    }

    /// Returns the offset behind the last segment, or `start` if there is none.
    pub(super) fn end(&self, start: u64) -> u64 {
        match self.len() {
            0 => start,
            count => self.get(count - 1).range().end,
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Segment> + '_ {
        self.chunks.iter().flat_map(|chunk| chunk.iter().copied())
    }

    /// Adds a segment behind all others.
    pub(super) fn push(&mut self, segment: Segment) {
        let chunks = Arc::make_mut(&mut self.chunks);
        match chunks.last_mut() {
            Some(last) if last.len() < CHUNK => Arc::make_mut(last).push(segment),
            _ => chunks.push(Arc::new(vec![segment])),
        }
    }

    /// Forgets all segments but the first `count`.
    pub(super) fn truncate(&mut self, count: usize) {
        let chunks = Arc::make_mut(&mut self.chunks);
        chunks.truncate(count.div_ceil(CHUNK));
        if let Some(last) = chunks.last_mut() {
            let left = count - (count - 1) / CHUNK * CHUNK;
            Arc::make_mut(last).truncate(left);
        }
    }

    pub(super) fn set_generation(&mut self, index: usize, generation: u64) {
        let chunk = &mut Arc::make_mut(&mut self.chunks)[index / CHUNK];
        Arc::make_mut(chunk)[index % CHUNK].generation = generation;
    }

    /// Returns the index of the segment that `address` lies in.
    pub(super) fn find(&self, address: u64) -> Option<usize> {
        let chunk = self
            .chunks
            .partition_point(|chunk| chunk[0].start <= address);
        let chunk = chunk.checked_sub(1)?;
        let segments = &self.chunks[chunk];
        let index = segments.partition_point(|segment| segment.start <= address) - 1;
        let is_inside = segments[index].range().contains(&address);
        is_inside.then_some(chunk * CHUNK + index)
    }

    /// Returns the index of exactly this range, adding it behind the last segment if it is new.
    pub(super) fn find_or_push(&mut self, start: u64, bytes: u64, first: u64) -> Result<usize> {
        if let Some(index) = self.find(start) {
            let found = self.get(index);
            if (found.start, found.bytes) == (start, bytes) {
                return Ok(index);
            }
        } else if start == self.end(first) && is_segment(start, bytes) {
            self.push(Segment {
                start,
                bytes,
                generation: 0,
            });
            return Ok(self.len() - 1);
        }
        let found = format!("{bytes} bytes at {start}");
        Err(Error::corrupt("block store", start, "a segment", found))
    }
}

/// Returns whether a segment may lie there, before the read values lead to any allocation.
pub(super) fn is_segment(start: u64, bytes: u64) -> bool {
    start.is_multiple_of(UNIT_BYTES)
        && bytes.is_multiple_of(UNIT_BYTES)
        && (SEGMENTS_START..FILE_BYTES_MAX).contains(&start)
        && (1..=SEGMENT_BYTES_MAX).contains(&bytes)
        && start + bytes < FILE_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_keeps_offset_and_length() {
        for (address, bytes) in [(8192, 48), (FILE_BYTES_MAX - 16, 16), (16, 65_535 * 16)] {
            let place = Place::new(address, bytes);
            assert_eq!((place.address(), place.record_bytes()), (address, bytes));
            assert_eq!(Place::from_stored(place.word()), Some(place));
        }
        assert_eq!(Place::from_stored(1 << 56), None);
    }

    #[test]
    fn a_segment_is_found_by_any_address_in_it() {
        let mut segments = Segments::default();
        for index in 0..1000u64 {
            segments.push(Segment {
                start: 8192 + index * 4096,
                bytes: if index == 500 { 2048 } else { 4096 },
                generation: index,
            });
        }
        let other = segments.clone();
        segments.set_generation(3, 7);
        assert_eq!(
            (other.get(3).generation, segments.get(3).generation),
            (3, 7)
        );
        assert_eq!((segments.len(), segments.end(0)), (1000, 8192 + 4_096_000));
        for (address, expected) in [
            (8191, None),
            (8192, Some(0)),
            (8192 + 4095, Some(0)),
            (8192 + 256 * 4096, Some(256)),
            (8192 + 500 * 4096 + 2047, Some(500)),
            (8192 + 500 * 4096 + 2048, None),
            (8192 + 4_096_000, None),
        ] {
            assert_eq!(segments.find(address), expected, "{address}");
        }
    }
}
