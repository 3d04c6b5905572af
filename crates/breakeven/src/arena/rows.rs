//! Rows of one kind, one behind the other in pages of their own: a list that grows at its end and never moves.
//!
//! The pages are the system's and not the heap's. Freed rows leave no holes there, and only pages with rows are
//! resident. `unsafe` stands here for reading and writing rows in them.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{HUGE_PAGE_BYTES, Region, sanitizer};

/// See the module.
pub(crate) struct Rows<T> {
    pieces: Vec<Region>,
    count: usize,
    kind: PhantomData<T>,
}

impl<T> Default for Rows<T> {
    fn default() -> Rows<T> {
        Rows {
            pieces: Vec::new(),
            count: 0,
            kind: PhantomData,
        }
    }
}

impl<T: Copy> Rows<T> {
    const IN_PIECE: usize = HUGE_PAGE_BYTES / size_of::<T>();

    /// Adds a row and returns its place; `None` if the system has no address space for it.
    pub fn push(&mut self, row: T) -> Option<usize> {
        const { assert!(HUGE_PAGE_BYTES.is_multiple_of(size_of::<T>())) };
        if self.count == self.pieces.len() * Self::IN_PIECE {
            let page_bytes = rustix::param::page_size();
            let piece = Region::map(HUGE_PAGE_BYTES / page_bytes, page_bytes).ok()?;
            sanitizer::permit(&piece.base, piece.bytes);
            self.pieces.push(piece);
        }
        self.count += 1;
        // SAFETY: the place is mapped and ours alone.
        unsafe { self.place(self.count - 1).write(row) };
        Some(self.count - 1)
    }

    pub fn at(&self, place: usize) -> &T {
        // SAFETY: a row was written there, and `&mut self` excludes whoever would change it.
        unsafe { &*self.place(place) }
    }

    pub fn at_mut(&mut self, place: usize) -> &mut T {
        // SAFETY: as for `at`, and `&mut self` excludes every other borrow.
        unsafe { &mut *self.place(place) }
    }

    /// Bytes of the pages that hold rows, and of the list of them.
    pub fn memory_bytes(&self) -> usize {
        let rows = self.count * size_of::<T>();
        rows.next_multiple_of(rustix::param::page_size())
            + self.pieces.capacity() * size_of::<Region>()
    }

    fn place(&self, place: usize) -> *mut T {
        assert!(place < self.count, "row {place} of {}", self.count);
        let base = self.pieces[place / Self::IN_PIECE].base.0.cast::<T>();
        // SAFETY: a piece has room for so many rows, and is aligned for any of them.
        unsafe { base.add(place % Self::IN_PIECE) }.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_keep_their_place_over_many_pieces() {
        let mut rows = Rows::<[u64; 8]>::default();
        assert_eq!((rows.count, rows.memory_bytes()), (0, 0));
        let count = 3 * Rows::<[u64; 8]>::IN_PIECE + 5;
        for number in 0..count {
            assert_eq!(rows.push([number as u64; 8]), Some(number));
        }
        rows.at_mut(7)[3] = u64::MAX;
        for number in 0..count {
            let mut expected = [number as u64; 8];
            if number == 7 {
                expected[3] = u64::MAX;
            }
            assert_eq!(*rows.at(number), expected);
        }
        let bytes = rows.memory_bytes() - count * 64;
        assert!(bytes < 2 * rustix::param::page_size(), "{bytes} bytes more");
    }

    #[test]
    #[should_panic(expected = "row 1 of 1")]
    fn no_row_is_read_that_was_not_written() {
        let mut rows = Rows::<u64>::default();
        rows.push(1);
        rows.at(1);
    }
}
