//! Ranges of a slab lent out: readers on any thread keep bytes while the owner goes on elsewhere in
//! the slab, and a loader fills its frame while nobody else touches it.
//!
//! A [`SharedSlab`] checks at each access, as `RefCell` does, that nothing is written under a
//! reader and nothing is read under a writer; a breach is a bug of the owner and panics. The checks
//! take constant time for readers: the owner appends, so while any reader may be left it writes
//! only beyond the last byte that was ever lent. Ranges that are being filled are few, and listed.
//!
//! A loan keeps the slab mapped, whatever becomes of its owner. It is given back by dropping it, on
//! any thread and without a lock: the slab's reference count is the count of its loans.
//!
//! `unsafe` stands here for slices of parts of a slab, which must never be made from a slice of all
//! of it: that would be a second borrow of what is lent.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::Slab;

/// A slab with one owner who writes, and lends.
#[derive(Debug)]
pub(crate) struct SharedSlab {
    slab: Arc<Slab>,
    /// Where it begins and how long it is, as the slab says.
    start: NonNull<u8>,
    bytes: usize,
    /// No reader has a byte from here on.
    frozen_bytes: usize,
    /// What is lent to be filled.
    filling: Vec<Range<usize>>,
}

/// Bytes that stay as they are for as long as this lives.
#[derive(Debug)]
pub(crate) struct Loan {
    start: NonNull<u8>,
    bytes: usize,
    /// Keeps the slab mapped, and counts.
    _slab: Arc<Slab>,
}

/// Bytes that the holder alone reads and writes. They stay locked until [`SharedSlab::take_back`].
#[derive(Debug)]
pub(crate) struct FillLoan {
    start: NonNull<u8>,
    range: Range<usize>,
    slab: Arc<Slab>,
}

// SAFETY: the address is the slab's, which may be used from any thread; all else is plain data.
unsafe impl Send for SharedSlab {}
// SAFETY: as for `Send`; a shared slab gives shared slices alone.
unsafe impl Sync for SharedSlab {}
// SAFETY: a loan is shared reading of bytes that nobody writes, of memory that belongs to the
// process and stays mapped while the loan has its slab.
unsafe impl Send for Loan {}
// SAFETY: as for `Send`; a shared loan gives shared slices alone.
unsafe impl Sync for Loan {}
// SAFETY: the holder is the only one to use the range, on whichever thread.
unsafe impl Send for FillLoan {}
// SAFETY: a shared loan to fill gives shared slices alone, as `&mut [u8]` does.
unsafe impl Sync for FillLoan {}

impl SharedSlab {
    pub fn new(slab: Slab) -> SharedSlab {
        SharedSlab {
            start: slab.address.0,
            bytes: slab.shared.slab_bytes,
            slab: Arc::new(slab),
            frozen_bytes: 0,
            filling: Vec::new(),
        }
    }

    /// Says whether any loan may be left. Once it says no, all that was read was read before.
    pub fn is_lent(&self) -> bool {
        let is_lent = Arc::strong_count(&self.slab) > 1;
        if !is_lent {
            // Pairs with the release by which the last loan took its count off.
            fence(Ordering::Acquire);
        }
        is_lent
    }

    /// Says whether any loan to a reader may be left.
    pub fn is_read(&self) -> bool {
        Arc::strong_count(&self.slab) > 1 + self.filling.len()
    }

    /// Returns bytes that are not being filled.
    pub fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        self.assert_not_filling(offset, length);
        let start = self.start_of(offset, length);
        // SAFETY: the range lies in the slab, whose bytes are initialised and mapped while `self`
        // has it. Nobody writes it while this borrow lives: the owner cannot (`bytes_mut` wants
        // `&mut self`), and it is not lent to be filled, as asserted.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// Returns bytes to write, which nobody has lent.
    pub fn bytes_mut(&mut self, offset: usize, length: usize) -> &mut [u8] {
        self.assert_not_filling(offset, length);
        self.assert_not_read(offset);
        let start = self.start_of(offset, length);
        // SAFETY: the range lies in the slab, as for `bytes`. Nobody else has it while this borrow
        // lives: `&mut self` excludes the owner's other borrows, loans to fill do not touch it, and
        // what readers have ends before it, as asserted.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// Lends bytes to a reader.
    #[inline]
    pub fn lend(&mut self, offset: usize, length: usize) -> Loan {
        self.assert_not_filling(offset, length);
        let start = self.start_of(offset, length);
        self.frozen_bytes = self.frozen_bytes.max(offset + length);
        Loan {
            start,
            bytes: length,
            _slab: Arc::clone(&self.slab),
        }
    }

    /// Lends bytes that nobody has to somebody who fills them.
    pub fn lend_to_fill(&mut self, offset: usize, length: usize) -> FillLoan {
        self.assert_not_filling(offset, length);
        self.assert_not_read(offset);
        let start = self.start_of(offset, length);
        let range = offset..offset + length;
        self.filling.push(range.clone());
        FillLoan {
            start,
            range,
            slab: Arc::clone(&self.slab),
        }
    }

    /// Takes back what was lent to be filled.
    pub fn take_back(&mut self, loan: FillLoan) {
        assert!(
            Arc::ptr_eq(&loan.slab, &self.slab),
            "a loan of another slab"
        );
        let at = self.filling.iter().position(|it| *it == loan.range);
        self.filling.swap_remove(at.expect("a range that was lent"));
        if self.filling.is_empty() {
            self.filling = Vec::new();
        }
    }

    #[inline]
    fn start_of(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "{length} bytes at {offset} of a slab"
        );
        // SAFETY: the offset lies in the slab or at its end, as asserted.
        unsafe { self.start.add(offset) }
    }

    #[inline]
    fn assert_not_filling(&self, offset: usize, length: usize) {
        let touches =
            |it: &Range<usize>| it.start < offset.saturating_add(length) && offset < it.end;
        assert!(
            !self.filling.iter().any(touches),
            "{length} bytes at {offset} are being filled"
        );
    }

    fn assert_not_read(&mut self, offset: usize) {
        if offset < self.frozen_bytes {
            assert!(!self.is_lent(), "bytes at {offset} are lent");
            self.frozen_bytes = 0;
        }
    }
}

impl Deref for Loan {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the range was checked when it was lent, its slab stays mapped while the loan has
        // it, and nobody writes it while the loan counts.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl Deref for FillLoan {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: as for `Loan`, and nobody but the holder has the range until it is taken back.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.range.len()) }
    }
}

impl DerefMut for FillLoan {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` excludes every other borrow of the loan.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::arena::{Arena, ArenaOptions};

    const SLAB: usize = 4096;

    fn shared() -> (Arena, SharedSlab) {
        let arena = Arena::new(ArenaOptions {
            slab_bytes: SLAB,
            budget_bytes: SLAB as u64,
        })
        .expect("an arena");
        let slab = arena.allocate().expect("a slab");
        (arena, SharedSlab::new(slab))
    }

    fn is_refused<T>(work: impl FnOnce() -> T) -> bool {
        catch_unwind(AssertUnwindSafe(|| drop(work()))).is_err()
    }

    #[test]
    fn nothing_is_written_under_a_reader() {
        let (_arena, mut slab) = shared();
        slab.bytes_mut(100, 50).fill(7);
        assert!(!slab.is_lent());
        let loan = slab.lend(100, 50);
        assert!(slab.is_lent());
        for offset in [0, 99, 100, 149] {
            assert!(is_refused(|| slab.bytes_mut(offset, 1).len()), "{offset}");
            assert!(is_refused(|| slab.lend_to_fill(offset, 1)), "{offset}");
        }
        slab.bytes_mut(150, SLAB - 150).fill(8);
        assert_eq!((slab.bytes(149, 2), &*loan), (&[7, 8][..], &[7; 50][..]));
        let other = slab.lend(0, 10);
        drop(loan);
        assert!(is_refused(|| slab.bytes_mut(120, 1).len()), "one is left");
        drop(other);
        assert!(!slab.is_lent());
        slab.bytes_mut(0, SLAB).fill(9);
    }

    #[test]
    fn what_is_being_filled_is_the_fillers_alone() {
        let (_arena, mut slab) = shared();
        let mut frame = slab.lend_to_fill(1000, 100);
        for (offset, length) in [(999, 2), (1000, 1), (1099, 1), (0, SLAB)] {
            assert!(is_refused(|| slab.bytes(offset, length).len()));
            assert!(is_refused(|| slab.bytes_mut(offset, length).len()));
            assert!(is_refused(|| slab.lend(offset, length)));
            assert!(is_refused(|| slab.lend_to_fill(offset, length)));
        }
        let reader = slab.lend(1100, 100);
        std::thread::scope(|scope| {
            scope.spawn(|| frame.fill(3));
            slab.bytes_mut(1200, 100).fill(4);
        });
        slab.take_back(frame);
        assert_eq!(slab.bytes(1000, 100), [3; 100]);
        drop(reader);
        assert!(!slab.is_lent());
    }

    #[test]
    fn ranges_outside_the_slab_and_foreign_loans_are_refused() {
        let (_one, mut slab) = shared();
        let (_two, mut other) = shared();
        for (offset, length) in [(SLAB, 1), (0, SLAB + 1), (1, SLAB), (usize::MAX, 2)] {
            assert!(is_refused(|| slab.bytes(offset, length).len()));
            assert!(is_refused(|| slab.bytes_mut(offset, length).len()));
            assert!(is_refused(|| slab.lend(offset, length)));
        }
        assert!(slab.bytes(SLAB, 0).is_empty());
        let frame = slab.lend_to_fill(0, 10);
        other.bytes_mut(0, 10).fill(1);
        assert!(is_refused(|| other.take_back(frame)));
    }

    #[test]
    fn a_loan_outlives_its_slabs_owner_and_the_arena() {
        let (arena, mut slab) = shared();
        slab.bytes_mut(0, 10).fill(5);
        let loan = slab.lend(0, 10);
        drop(slab);
        assert_eq!(arena.stats().in_use_bytes, SLAB as u64);
        assert!(arena.allocate().is_err(), "the only slab is lent");
        drop(arena);
        let seen = std::thread::scope(|scope| {
            let reader = scope.spawn(|| loan.iter().all(|byte| *byte == 5));
            reader.join().expect("a reader")
        });
        assert!(seen);
    }
}
