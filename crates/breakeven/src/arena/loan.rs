//! Ranges of a slab lent out. Readers on any thread keep bytes while the owner goes on elsewhere in the slab, and a
//! loader fills its frame while nobody else touches it.
//!
//! A [`SharedSlab`] checks at each access, as `RefCell` does, that nothing is written under a reader and nothing is
//! read under a writer. A breach is a bug of the owner and panics. The checks take constant time for readers. The owner
//! appends, so while any reader may be left it writes only beyond the last byte that was ever lent. Ranges that are
//! being filled are few, and listed.
//!
//! A loan keeps the slab mapped, even when its owner is gone. It is given back by dropping it, on any thread and
//! without a lock. Loans are counted in two parts, as in biased reference counting (Choi, Shull and Torrellas, PACT
//! 2018). The lender is alone and counts in plain memory; each reader that gives a loan back counts it off. So lending
//! takes no locked instruction; a hit of the cache has few. Each of [`LANES`] has such counts, on cache lines of their
//! own. So the owner's threads may lend at once, each in a lane to which it has the [`LaneRight`], and each finds the
//! count where it left it.
//!
//! `unsafe` stands here for that count, which keeps the memory of loans alive, and for slices of parts of a slab. Those
//! must never be made from a slice of all of it: that would be a second borrow of lent bytes.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering, fence};

use super::Slab;

/// Ways in which a slab may be lent at once.
pub(crate) const LANES: usize = 2;

/// The right to lend in one lane.
#[derive(Debug)]
pub(crate) struct LaneRight(usize);

impl LaneRight {
    /// Makes the right to lend in a lane.
    ///
    /// # Safety
    ///
    /// For as long as it exists, another right of this lane may be used with a slab of this one, on any thread, only
    /// after all that was done before.
    #[inline(always)]
    pub unsafe fn new(lane: usize) -> LaneRight {
        assert!(lane < LANES, "lane {lane}");
        LaneRight(lane)
    }

    /// Returns which lane it is.
    #[inline(always)]
    pub fn lane(&self) -> usize {
        self.0
    }
}

/// A slab that belongs to its owner and its loans together, by lanes; whoever leaves last frees it.
type Counted = [Lane; LANES];

/// The counts of one lane.
///
/// While there is an owner, `balance` is 0 less the loans given back. When the owner leaves, it adds the loans it made;
/// from then on `balance` is the number of loans that are left. It cannot come to 0 by a loan before the owner left,
/// for then it was 0 or less before.
///
/// Both counts lie on one cache line of their own, the only one that lending and giving back write.
#[repr(align(64))]
struct Lane {
    /// Loans that were ever made. Only the holder of the right to lend writes it, so it is atomic in name only.
    made: AtomicI64,
    balance: AtomicI64,
    /// The lane's number.
    number: usize,
    /// Of the first: lanes that loans or the owner have not left.
    left: AtomicUsize,
    /// Of the first.
    slab: Option<Slab>,
}

/// One loan's part in a [`Counted`]: a lane of it, by a pointer that is good for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part(NonNull<Lane>);

/// The owner's part: always the first lane, from which the others are counted.
#[derive(Clone, Copy, Debug)]
struct Owner(Part);

impl Owner {
    fn of(slab: Slab) -> Owner {
        let mut slab = Some(slab);
        let counted: Box<Counted> = Box::new(std::array::from_fn(|number| Lane {
            made: AtomicI64::new(0),
            balance: AtomicI64::new(0),
            number,
            left: AtomicUsize::new(LANES),
            slab: slab.take(),
        }));
        Owner(Part(NonNull::from(Box::leak(counted)).cast()))
    }

    /// Returns a lane's part.
    #[inline]
    fn at(self, number: usize) -> Part {
        assert!(number < LANES, "lane {number}");
        // SAFETY: an owner is made by `of` alone, at the first of `LANES`, and the number is below that.
        Part(unsafe { self.0.0.add(number) })
    }

    /// Leaves as the owner.
    fn leave(self) {
        for part in (0..LANES).map(|number| self.at(number)) {
            let lane = part.lane();
            let made = lane.made.load(Ordering::Relaxed);
            let before = lane.balance.fetch_add(made, Ordering::Release);
            if before + made == 0 {
                part.leave_lane();
            }
        }
    }
}

impl Part {
    #[inline]
    fn lane(&self) -> &Lane {
        // SAFETY: the holder of a part has not left yet, and the last to leave frees it, so it is there. It is shared,
        // since nobody makes a mutable reference to it before that.
        unsafe { self.0.as_ref() }
    }

    /// Returns the first lane's part.
    fn first(self) -> Part {
        // SAFETY: a lane has as many before it as its number says.
        Part(unsafe { self.0.sub(self.lane().number) })
    }

    fn slab(&self) -> &Slab {
        let slab = self.lane().slab.as_ref();
        slab.expect("the first lane has it")
    }

    /// Counts a loan, as the one with the right to lend.
    #[inline]
    fn lend(&self) {
        let made = &self.lane().made;
        made.store(
            made.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Returns, as the one with the right to lend, how many loans are not given back yet. Once it says none, all
    /// that was read was read before.
    #[inline]
    fn outstanding(&self) -> i64 {
        let lane = self.lane();
        lane.made.load(Ordering::Relaxed) + lane.balance.load(Ordering::Acquire)
    }

    /// Takes a loan off.
    #[inline]
    fn give_back(self) {
        // Release: what was read of the loan was read before anybody sees it given back.
        if self.lane().balance.fetch_sub(1, Ordering::Release) == 1 {
            self.leave_lane();
        }
    }

    /// Leaves a lane as the last one, and frees the slab if that was the last lane.
    #[cold]
    fn leave_lane(self) {
        let first = self.first();
        // Acquire: pairs with the releases by which the others left the lane.
        fence(Ordering::Acquire);
        if first.lane().left.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: it was leaked by `of`, and the balances said that this is the only part left. None can come to
            // nothing twice, since the owner leaves once and each loan is given back once.
            drop(unsafe { Box::from_raw(first.0.cast::<Counted>().as_ptr()) });
        }
    }
}

/// A slab with one owner who writes, and lends.
///
/// Half a cache line, and never on two, since every loan reads it.
#[derive(Debug)]
#[repr(align(32))]
pub(crate) struct SharedSlab {
    owner: Owner,
    /// Where it begins, as the slab says.
    start: NonNull<u8>,
    /// Up to here bytes may be lent to readers without another look: 0 while anything is being filled, else
    /// no more than `frozen_bytes`.
    plain_bytes: u32,
    /// No reader has a byte from here on. A slab has 1 GiB at most.
    frozen_bytes: u32,
    /// None while nothing is lent to be filled.
    filling: Option<Box<Filling>>,
}

/// The ranges lent to be filled: mostly one range, for which there is one allocation.
#[derive(Debug)]
struct Filling {
    one: Range<usize>,
    others: Vec<Range<usize>>,
}

impl Filling {
    fn ranges(&self) -> impl Iterator<Item = &Range<usize>> {
        std::iter::once(&self.one).chain(&self.others)
    }
}

const _: () = assert!(size_of::<Option<SharedSlab>>() == 32);

/// Bytes that may be lent to readers for as long as nothing is written to the slab.
pub(crate) struct Plain<'a> {
    slab: &'a SharedSlab,
    start: NonNull<u8>,
    bytes: usize,
}

impl Plain<'_> {
    /// Lends the bytes in a lane, while others may lend in other lanes.
    #[inline(always)]
    pub fn lend(self, right: &mut LaneRight) -> Loan {
        lend(self.start, self.bytes, self.slab.owner.at(right.0))
    }
}

#[inline(always)]
fn lend(start: NonNull<u8>, bytes: usize, part: Part) -> Loan {
    prefetch(start);
    part.lend();
    Loan { start, bytes, part }
}

/// Bytes that stay as they are for as long as this lives.
#[derive(Debug)]
pub(crate) struct Loan {
    start: NonNull<u8>,
    bytes: usize,
    /// Keeps the slab mapped, and counts.
    part: Part,
}

/// Bytes that the holder alone reads and writes. They stay locked until [`SharedSlab::take_back`].
#[derive(Debug)]
pub(crate) struct FillLoan {
    start: NonNull<u8>,
    range: Range<usize>,
    part: Part,
}

// SAFETY: the address and the part are of memory that belongs to the process, and the slab behind the part may be
// dropped on any thread. All else is plain data.
unsafe impl Send for SharedSlab {}
// SAFETY: as for `Send`; a shared slab gives shared slices alone, and its count is atomic.
unsafe impl Sync for SharedSlab {}
// SAFETY: a loan is shared reading of bytes that nobody writes. Their memory belongs to the process and stays mapped
// while the loan has its part; the count is atomic.
unsafe impl Send for Loan {}
// SAFETY: as for `Send`; a shared loan gives shared slices alone.
unsafe impl Sync for Loan {}
// SAFETY: the holder is the only one to use the range, on whichever thread; the count is atomic.
unsafe impl Send for FillLoan {}
// SAFETY: a shared loan to fill gives shared slices alone, as `&mut [u8]` does.
unsafe impl Sync for FillLoan {}

impl Drop for SharedSlab {
    fn drop(&mut self) {
        self.owner.leave();
    }
}

impl Drop for Loan {
    #[inline]
    fn drop(&mut self) {
        self.part.give_back();
    }
}

impl Drop for FillLoan {
    fn drop(&mut self) {
        self.part.give_back();
    }
}

impl SharedSlab {
    /// The heap bytes of one slab: its counts, aligned, and the allocator's own bytes for that.
    pub const HEAP_BYTES: usize = size_of::<Counted>() + align_of::<Counted>();

    pub fn new(slab: Slab) -> SharedSlab {
        SharedSlab {
            start: slab.address.0,
            owner: Owner::of(slab),
            plain_bytes: 0,
            frozen_bytes: 0,
            filling: None,
        }
    }

    /// Says whether any loan may be left. Once it says no, all that was read was read before.
    pub fn is_lent(&self) -> bool {
        (0..LANES).any(|lane| self.owner.at(lane).outstanding() > 0)
    }

    /// Says whether any loan to a reader may be left of a lane, to whoever has the right to lend in it.
    pub fn is_read(&self, lane: usize) -> bool {
        // A range to be filled was lent in the first lane.
        let filling = self.filling.as_ref().filter(|_| lane == 0);
        let filling = filling.map_or(0, |it| 1 + it.others.len());
        assert!(lane < LANES, "lane {lane}");
        self.owner.at(lane).outstanding() > filling as i64
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
        // SAFETY: the range lies in the slab, as for `bytes`. Nobody else has it while this borrow lives. `&mut self`
        // excludes the owner's other borrows, loans to fill do not touch it, and the ranges of readers end before it,
        // as asserted.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }

    /// Lends bytes to a reader.
    pub fn lend(&mut self, offset: usize, length: usize) -> Loan {
        if self.plain(offset, length).is_none() {
            self.look_before_lending(offset, length);
        }
        // SAFETY: the range lies in the slab: that was asserted just now, or of all up to `plain_bytes`.
        let start = unsafe { self.start.add(offset) };
        lend(start, length, self.owner.0)
    }

    /// Returns bytes that may be lent without another look, if they are such, by any lane.
    #[inline(always)]
    pub fn plain(&self, offset: usize, length: usize) -> Option<Plain<'_>> {
        let end = offset.checked_add(length)?;
        if end > self.plain_bytes as usize {
            return None;
        }
        // SAFETY: the range lies in the slab, as all up to `plain_bytes` does.
        let start = unsafe { self.start.add(offset) };
        Some(Plain {
            slab: self,
            start,
            bytes: length,
        })
    }

    /// Makes sure that bytes may be lent to a reader, and freezes them.
    #[cold]
    fn look_before_lending(&mut self, offset: usize, length: usize) {
        self.assert_not_filling(offset, length);
        self.start_of(offset, length);
        self.frozen_bytes = self.frozen_bytes.max((offset + length) as u32);
        if self.filling.is_none() {
            self.plain_bytes = self.frozen_bytes;
        }
    }

    /// Lends bytes that nobody has to somebody who fills them.
    pub fn lend_to_fill(&mut self, offset: usize, length: usize) -> FillLoan {
        self.assert_not_filling(offset, length);
        self.assert_not_read(offset);
        let start = self.start_of(offset, length);
        let range = offset..offset + length;
        self.plain_bytes = 0;
        match &mut self.filling {
            Some(filling) => filling.others.push(range.clone()),
            None => {
                let (one, others) = (range.clone(), Vec::new());
                self.filling = Some(Box::new(Filling { one, others }));
            }
        }
        self.owner.0.lend();
        FillLoan {
            start,
            range,
            part: self.owner.0,
        }
    }

    /// Takes back what was lent to be filled.
    pub fn take_back(&mut self, loan: FillLoan) {
        assert_eq!(loan.part, self.owner.0, "a loan of another slab");
        let filling = self.filling.as_mut().expect("something that was lent");
        if filling.one != loan.range {
            let at = filling.others.iter().position(|it| *it == loan.range);
            filling
                .others
                .swap_remove(at.expect("a range that was lent"));
        } else if let Some(other) = filling.others.pop() {
            filling.one = other;
        } else {
            self.filling = None;
        }
    }

    #[inline]
    fn start_of(&self, offset: usize, length: usize) -> NonNull<u8> {
        let end = offset.checked_add(length);
        assert!(
            end.is_some_and(|end| end <= self.owner.0.slab().shared.slab_bytes),
            "{length} bytes at {offset} of a slab"
        );
        // SAFETY: the offset lies in the slab or at its end, as asserted.
        unsafe { self.start.add(offset) }
    }

    #[inline]
    fn assert_not_filling(&self, offset: usize, length: usize) {
        let touches =
            |it: &Range<usize>| it.start < offset.saturating_add(length) && offset < it.end;
        let filling = self.filling.as_ref();
        assert!(
            !filling.is_some_and(|it| it.ranges().any(touches)),
            "{length} bytes at {offset} are being filled"
        );
    }

    fn assert_not_read(&mut self, offset: usize) {
        if offset < self.frozen_bytes as usize {
            assert!(!self.is_lent(), "bytes at {offset} are lent");
            self.thaw();
        }
    }

    /// Lets all bytes be written that were lent: nothing of them may be.
    pub fn thaw(&mut self) {
        assert!(!self.is_lent(), "bytes are lent");
        (self.plain_bytes, self.frozen_bytes) = (0, 0);
    }
}

/// Asks for the first line of a block, which its reader will want. Aligned blocks all begin in the same few sets of the
/// processor's caches, so that line is often further away than anything else of a hit.
#[inline]
fn prefetch(start: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing, whatever the address; every x86-64 has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(start.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = start;
}

impl Loan {
    /// Puts the same loan together again, out of parts that hide it from the compiler.
    #[inline(always)]
    pub fn anew(self) -> Loan {
        let loan = ManuallyDrop::new(self);
        Loan {
            start: black_box(loan.start),
            bytes: black_box(loan.bytes),
            part: Part(black_box(loan.part.0)),
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
            ..ArenaOptions::default()
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

    #[test]
    fn whoever_leaves_last_gives_the_slab_back() {
        let (arena, mut slab) = shared();
        let in_use = || arena.stats().in_use_bytes;
        slab.bytes_mut(0, SLAB).fill(1);
        let [first, second, third] = [0, 10, 20].map(|offset| slab.lend(offset, 10));
        let frame = slab.lend_to_fill(100, 10);
        drop(second);
        assert!(slab.is_read(0));
        drop(slab);
        assert_eq!(in_use(), SLAB as u64);
        drop((first, frame));
        assert_eq!((in_use(), &*third), (SLAB as u64, &[1; 10][..]));
        drop(third);
        assert_eq!(in_use(), 0);
        let mut again = SharedSlab::new(arena.allocate().expect("it is free"));
        drop(again.lend(0, 1));
        drop(again);
        assert_eq!(in_use(), 0, "the owner was the last");
    }

    #[test]
    fn every_lane_keeps_the_slab() {
        let (arena, mut slab) = shared();
        let in_use = || arena.stats().in_use_bytes;
        slab.bytes_mut(0, SLAB).fill(1);
        drop(slab.lend(0, 100));
        assert!(slab.plain(50, 50).is_some() && slab.plain(50, 51).is_none());
        // SAFETY: they are used here, one after another.
        let mut rights = [0, 1].map(|lane| unsafe { LaneRight::new(lane) });
        let lend = |right: &mut LaneRight| slab.plain(10, 10).expect("plain").lend(right);
        let [first, second] = rights.each_mut().map(lend);
        assert_eq!([0, 1].map(|lane| slab.is_read(lane)), [true; 2]);
        drop(first);
        assert_eq!([0, 1].map(|lane| slab.is_read(lane)), [false, true]);
        assert!(slab.is_lent() && is_refused(|| slab.bytes_mut(50, 1).len()));
        let frame = slab.lend_to_fill(200, 10);
        assert!(!slab.is_read(0) && slab.plain(10, 10).is_none());
        drop(slab);
        drop(frame);
        assert_eq!((in_use(), &*second), (SLAB as u64, &[1; 10][..]));
        drop(second);
        assert_eq!(in_use(), 0);
    }

    #[test]
    fn loans_are_counted_from_many_threads() {
        let (arena, mut slab) = shared();
        slab.bytes_mut(0, SLAB).fill(2);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let loans: Vec<Loan> = (0..100).map(|at| slab.lend(at * 8, 8)).collect();
                scope.spawn(move || assert!(loans.iter().all(|loan| loan[..] == [2; 8])));
            }
            drop(slab);
        });
        assert_eq!(arena.stats().in_use_bytes, 0);
    }
}
