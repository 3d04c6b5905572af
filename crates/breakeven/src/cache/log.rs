//! Logs of arena slabs: the places of the cache's bytes, raw and compressed.
//!
//! A [`Log`] is a queue of segments, each one slab; [`Segments`] owns them all. Blocks are appended to the newest
//! segment and leave with the oldest, whole. So a block needs no allocation, and fragmentation is limited to the end of
//! a segment and to removed blocks. A slab is free for the other pool as soon as its segment goes. A block that
//! deserves to stay is appended again: FIFO with reinsertion, which is CLOCK, in a log (as Segcache, NSDI 2021).
//!
//! The contents of a segment are listed beside it and not in headers between the blocks. So blocks of a power of two
//! fill a slab to the last byte and stay aligned. A record names an entry. It is live while that entry says that its
//! bytes are here, so a removal costs nothing here.
//!
//! A segment with lent bytes, to be read or to be filled, moves nothing and stays. The caller that lends to readers
//! sets the cap. Loans are given back without notice. So the log checks which of its noted segments are still lent. It
//! does so not at each loan, but when their number reaches the cap. Hits in several lanes at once keep [`Books`] each,
//! and have a part of the cap each.
#![deny(unsafe_code)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::arena::{Arena, FillLoan, LANES, Loan, Plain, SharedSlab};
use crate::error::Result;

/// Blocks start at multiples of this many bytes.
const ALIGNMENT: u32 = 8;

/// Where a block's bytes begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub segment: u32,
    pub offset: u32,
}

impl Place {
    /// No bytes.
    pub const NONE: Place = Place {
        segment: u32::MAX,
        offset: 0,
    };

    #[inline]
    pub fn is_some(self) -> bool {
        self.segment != Place::NONE.segment
    }
}

/// One block of a segment: its entry when it was appended, and its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    pub entry: u32,
    pub offset: u32,
}

impl Record {
    pub fn place(&self, segment: u32) -> Place {
        Place {
            segment,
            offset: self.offset,
        }
    }
}

/// The contents of a segment.
#[derive(Default)]
struct Contents {
    used_bytes: u32,
    /// Bytes of these in blocks that are known to have gone.
    hole_bytes: u32,
    records: Vec<Record>,
}

/// Every segment of a shard, by number.
pub(super) struct Segments {
    arena: Arena,
    /// All that a hit reads of a segment; `None` where the number is vacant.
    slabs: Vec<Option<SharedSlab>>,
    contents: Vec<Contents>,
    vacant: Vec<u32>,
    /// Lists of gone segments, kept so that the next ones need no allocation.
    lists: Vec<Vec<Record>>,
    record_capacity: usize,
    in_use: usize,
    books: [Books; LANES],
}

/// The notes on the loans in one lane, kept by its holder, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Books {
    /// Hits that were not yet counted elsewhere.
    hits: AtomicU64,
    /// The number of further segments that may be noted. In each lane, these and the noted ones together stay within
    /// the cap. The number is below 0 where the cap must be checked over all lanes.
    credit: AtomicI64,
    /// One bit for each segment that was lent to readers in this lane at the last count or since. A segment whose
    /// number was another's when it was noted counts as noted.
    noted: Vec<AtomicU64>,
}

/// Words of bits that are made at once, so that they mostly have cache lines of their own.
const NOTED_WORDS: usize = 32;

/// Hits of a lane after which they are added up.
const HITS_MAX: u64 = 1024;
/// Below 0, even after one lane finds the most possible segments free again.
const MUST_COUNT: i64 = i64::MIN / 2;

impl Books {
    #[inline(always)]
    fn at(&self, number: u32) -> (&AtomicU64, u64) {
        (&self.noted[number as usize / 64], 1 << (number % 64))
    }

    /// Notes a segment, if the lane knows that it may. No decision depends on its loads of the segment, so the
    /// processor may go on with the next hit.
    #[inline(always)]
    fn note(&self, number: u32) -> bool {
        let (word, bit) = self.at(number);
        let noted = word.load(Ordering::Relaxed);
        let is_new = noted & bit == 0;
        let credit = self.credit.load(Ordering::Relaxed);
        let credit = credit.wrapping_sub(i64::from(is_new));
        if credit < 0 {
            return false;
        }
        word.store(noted | bit, Ordering::Relaxed);
        self.credit.store(credit, Ordering::Relaxed);
        true
    }

    /// Goes through the noted segments and forgets those without readers; returns their number.
    fn forget(&self, is_read: impl Fn(usize) -> bool) -> i64 {
        let mut forgotten = 0;
        for (index, word) in self.noted.iter().enumerate() {
            let noted = word.load(Ordering::Relaxed);
            let (mut left, mut kept) = (noted, noted);
            while left != 0 {
                let number = index * 64 + left.trailing_zeros() as usize;
                let bit = left & left.wrapping_neg();
                left -= bit;
                if !is_read(number) {
                    kept -= bit;
                    forgotten += 1;
                }
            }
            if kept != noted {
                word.store(kept, Ordering::Relaxed);
            }
        }
        forgotten
    }

    fn noted_count(&self) -> u32 {
        let words = self.noted.iter();
        words
            .map(|word| word.load(Ordering::Relaxed).count_ones())
            .sum()
    }
}

impl Segments {
    pub fn new(arena: Arena) -> Segments {
        Segments {
            arena,
            slabs: Vec::new(),
            contents: Vec::new(),
            vacant: Vec::new(),
            lists: Vec::new(),
            record_capacity: 0,
            in_use: 0,
            books: Default::default(),
        }
    }

    pub fn arena(&self) -> &Arena {
        &self.arena
    }

    pub fn slab_bytes(&self) -> usize {
        self.arena.slab_bytes()
    }

    /// Returns how many segments there are.
    pub fn count(&self) -> usize {
        self.in_use
    }

    /// Returns the bytes on the heap, lists of records included.
    pub fn heap_bytes(&self) -> usize {
        self.slabs.capacity() * size_of::<Option<SharedSlab>>()
            + self.contents.capacity() * size_of::<Contents>()
            + self.vacant.capacity() * size_of::<u32>()
            + LANES * self.books[0].noted.capacity() * size_of::<AtomicU64>()
            + self.lists.capacity() * size_of::<Vec<Record>>()
            + self.record_capacity * size_of::<Record>()
            + self.in_use * SharedSlab::HEAP_BYTES
    }

    /// Takes a slab for a new segment.
    ///
    /// # Errors
    ///
    /// As [`Arena::allocate`].
    pub fn open(&mut self) -> Result<u32> {
        let slab = SharedSlab::new(self.arena.allocate()?);
        let contents = Contents {
            used_bytes: 0,
            hole_bytes: 0,
            records: self.lists.pop().unwrap_or_default(),
        };
        self.in_use += 1;
        if let Some(number) = self.vacant.pop() {
            self.slabs[number as usize] = Some(slab);
            self.contents[number as usize] = contents;
            return Ok(number);
        }
        let number = self.slabs.len();
        self.slabs.push(Some(slab));
        self.contents.push(contents);
        for books in &mut self.books {
            if number / 64 >= books.noted.len() {
                let words = books.noted.len() + NOTED_WORDS;
                books.noted.reserve_exact(NOTED_WORDS);
                books.noted.resize_with(words, AtomicU64::default);
            }
        }
        Ok(number as u32)
    }

    /// Gives a segment's slab back to the arena.
    pub fn close(&mut self, number: u32) {
        let slab = self.slabs[number as usize].take().expect("an open segment");
        assert!(!slab.is_lent(), "a lent segment is closed");
        let contents = std::mem::take(&mut self.contents[number as usize]);
        self.recycle(contents.records);
        self.vacant.push(number);
        self.in_use -= 1;
    }

    /// Returns whether `bytes` fit at the end of a segment.
    pub fn has_room(&self, number: u32, bytes: usize) -> bool {
        let used = self.contents[number as usize].used_bytes as usize;
        bytes.max(1) <= self.slab_bytes().saturating_sub(used)
    }

    /// Reserves `bytes` at the end of a segment for an entry, or returns `None` if they do not fit.
    pub fn append(&mut self, number: u32, entry: u32, bytes: usize) -> Option<Place> {
        let slab_bytes = self.slab_bytes();
        let segment = &mut self.contents[number as usize];
        let offset = segment.used_bytes;
        // A block of no bytes takes a place too, or a segment could list them without end.
        let end = (offset as usize).checked_add(bytes.max(1))?;
        if end > slab_bytes {
            return None;
        }
        segment.used_bytes = (end as u32).next_multiple_of(ALIGNMENT);
        let before = segment.records.capacity();
        segment.records.push(Record { entry, offset });
        let grown = segment.records.capacity() - before;
        self.record_capacity += grown;
        Some(Place {
            segment: number,
            offset,
        })
    }

    /// Forgets the last block that was appended to a segment, if it is this one.
    pub fn retract(&mut self, place: Place) {
        let segment = &mut self.contents[place.segment as usize];
        let is_last = segment.records.last().map(|record| record.offset) == Some(place.offset);
        if is_last {
            segment.records.pop();
            segment.used_bytes = place.offset;
        }
    }

    /// Notes that a block has gone.
    pub fn leave_hole(&mut self, place: Place, bytes: usize) {
        let hole = (bytes.max(1) as u32).next_multiple_of(ALIGNMENT);
        self.contents[place.segment as usize].hole_bytes += hole;
    }

    /// Returns the bytes of blocks that have gone since a segment was opened or its holes were closed.
    pub fn hole_bytes(&self, number: u32) -> usize {
        self.contents[number as usize].hole_bytes as usize
    }

    /// Notes that the blocks of a segment lie close again.
    pub fn close_holes(&mut self, number: u32) {
        self.contents[number as usize].hole_bytes = 0;
    }

    pub fn bytes(&self, place: Place, length: usize) -> &[u8] {
        self.slab(place.segment)
            .bytes(place.offset as usize, length)
    }

    pub fn bytes_mut(&mut self, place: Place, length: usize) -> &mut [u8] {
        self.slab_mut(place.segment)
            .bytes_mut(place.offset as usize, length)
    }

    /// Returns a block's bytes, to lend them to a reader in a lane while other lanes may be in use, and notes the loan.
    /// It does so if the cap is known to allow it and nobody is known to fill them. Otherwise the sole holder of the
    /// segments must check.
    #[inline(always)]
    pub fn plain(&self, lane: usize, place: Place, length: usize) -> Option<Plain<'_>> {
        // No segment has the number that stands for no bytes.
        let slab = self.slabs.get(place.segment as usize)?.as_ref()?;
        let plain = slab.plain(place.offset as usize, length)?;
        let books = &self.books[lane];
        if !books.note(place.segment) && !self.note_again(lane, place.segment) {
            return None;
        }
        let hits = books.hits.load(Ordering::Relaxed).wrapping_add(1);
        books.hits.store(hits, Ordering::Relaxed);
        Some(plain)
    }

    /// Finds a lane's noted segments that readers gave back, and notes a segment if that makes room for it.
    #[cold]
    fn note_again(&self, lane: usize, number: u32) -> bool {
        let books = &self.books[lane];
        let credit = books.credit.load(Ordering::Relaxed);
        if credit < 0 || books.hits.load(Ordering::Relaxed) >= HITS_MAX {
            return false;
        }
        let forgotten = books.forget(|number| self.is_read(number, lane));
        books.credit.store(credit + forgotten, Ordering::Relaxed);
        books.note(number)
    }

    /// Returns the hits in all lanes since the last call.
    pub fn take_hits(&mut self) -> u64 {
        let hits = self.books.iter_mut().map(|books| &mut books.hits);
        hits.map(|hits| std::mem::take(hits.get_mut())).sum()
    }

    /// Counts the segments that are lent to readers, and notes a loan of this one, unless they would then exceed
    /// `segments_max`.
    ///
    /// # Errors
    ///
    /// How many there would be.
    pub fn note(&mut self, number: u32, segments_max: usize) -> std::result::Result<(), usize> {
        if self.books[0].note(number) {
            return Ok(());
        }
        let count = self.count_lent();
        let has = |books: &Books| {
            let (word, bit) = books.at(number);
            word.load(Ordering::Relaxed) & bit != 0
        };
        let is_new = !self.books.iter().any(has);
        if is_new && count >= segments_max {
            return Err(count + 1);
        }
        let (word, bit) = self.books[0].at(number);
        word.fetch_or(bit, Ordering::Relaxed);
        // A segment noted in two lanes counts twice, because each lane may find on its own that its readers have left.
        let noted = self
            .books
            .iter()
            .map(|books| i64::from(books.noted_count()));
        let left = segments_max as i64 - noted.sum::<i64>();
        if left >= 0 {
            let each = left / LANES as i64;
            for books in &self.books {
                books.credit.store(each, Ordering::Relaxed);
            }
            let first = left - each * (LANES as i64 - 1);
            self.books[0].credit.store(first, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Lends a block's bytes to a reader, or keeps them in place for a while: a segment that is not noted counts
    /// against no cap.
    pub fn lend(&mut self, place: Place, length: usize) -> Loan {
        let slab = self.slab_mut(place.segment);
        slab.lend(place.offset as usize, length)
    }

    /// Counts the segments with readers. The count of new loans starts again.
    pub fn count_lent(&mut self) -> usize {
        for (lane, books) in self.books.iter().enumerate() {
            books.forget(|number| self.is_read(number, lane));
            books.credit.store(MUST_COUNT, Ordering::Relaxed);
        }
        let [first, others @ ..] = &self.books;
        let mut count = 0;
        for at in 0..first.noted.len() {
            let of = |books: &Books| books.noted[at].load(Ordering::Relaxed);
            let all = others.iter().fold(of(first), |all, books| all | of(books));
            count += all.count_ones() as usize;
        }
        count
    }

    /// Returns whether readers may have bytes of a segment that was noted in a lane: some were closed since.
    fn is_read(&self, number: usize, lane: usize) -> bool {
        let slab = self.slabs[number].as_ref();
        slab.is_some_and(|slab| slab.is_read(lane))
    }

    /// Lends a block's bytes to be filled.
    pub fn lend_to_fill(&mut self, place: Place, length: usize) -> FillLoan {
        let slab = self.slab_mut(place.segment);
        slab.lend_to_fill(place.offset as usize, length)
    }

    /// Takes back the loan of a segment's bytes for filling.
    pub fn take_back(&mut self, number: u32, loan: FillLoan) {
        self.slab_mut(number).take_back(loan);
    }

    /// Copies a block to another place; within one segment only downwards.
    pub fn copy(&mut self, from: Place, to: Place, length: usize) {
        let (source, target) = (from.offset as usize, to.offset as usize);
        if from.segment == to.segment {
            assert!(target <= source);
            let span = source + length - target;
            let slab = self.slab_mut(from.segment);
            slab.bytes_mut(target, span).copy_within(span - length.., 0);
            return;
        }
        let (source, target) = self.pair((from, length), (to, length));
        target.copy_from_slice(source);
    }

    /// Returns the bytes of a block to read, and those of a block in another segment to write.
    fn pair(&mut self, from: (Place, usize), to: (Place, usize)) -> (&[u8], &mut [u8]) {
        let pair = [from.0.segment as usize, to.0.segment as usize];
        let [one, other] = self.slabs.get_disjoint_mut(pair).expect("two segments");
        let one = one.as_ref().expect("an open segment");
        let other = other.as_mut().expect("an open segment");
        (
            one.bytes(from.0.offset as usize, from.1),
            other.bytes_mut(to.0.offset as usize, to.1),
        )
    }

    /// Returns the filled length of a segment.
    pub fn used_bytes(&self, number: u32) -> usize {
        self.contents[number as usize].used_bytes as usize
    }

    /// Returns how many blocks were appended to a segment.
    pub fn record_count(&self, number: u32) -> usize {
        self.contents[number as usize].records.len()
    }

    pub fn record(&self, number: u32, index: usize) -> Record {
        self.contents[number as usize].records[index]
    }

    /// Empties a segment so that deserving blocks can be appended again, and returns its records. The records come back
    /// by [`Segments::recycle`].
    pub fn rewind(&mut self, number: u32) -> Vec<Record> {
        let list = self.lists.pop().unwrap_or_default();
        // The next block may lie in the place of a block that readers had.
        self.slab_mut(number).thaw();
        let segment = &mut self.contents[number as usize];
        segment.used_bytes = 0;
        std::mem::replace(&mut segment.records, list)
    }

    /// Takes back a list of records.
    pub fn recycle(&mut self, mut records: Vec<Record>) {
        records.clear();
        self.lists.push(records);
    }

    /// Returns whether a segment must stay unchanged.
    pub fn is_lent(&self, number: u32) -> bool {
        self.slab(number).is_lent()
    }

    #[inline(always)]
    fn slab(&self, number: u32) -> &SharedSlab {
        let slab = self.slabs[number as usize].as_ref();
        slab.expect("an open segment")
    }

    fn slab_mut(&mut self, number: u32) -> &mut SharedSlab {
        let slab = self.slabs[number as usize].as_mut();
        slab.expect("an open segment")
    }
}

/// A queue of segments, oldest first; new blocks go into the newest.
#[derive(Debug, Default)]
pub(super) struct Log {
    order: VecDeque<u32>,
    /// Bytes of live blocks.
    pub live_bytes: u64,
}

impl Log {
    /// Returns how many segments the log has.
    pub fn segment_count(&self) -> usize {
        self.order.len()
    }

    pub fn newest(&self) -> Option<u32> {
        self.order.back().copied()
    }

    pub fn oldest(&self) -> Option<u32> {
        self.order.front().copied()
    }

    /// Returns the next younger segment.
    pub fn after(&self, number: u32) -> Option<u32> {
        let at = self.order.iter().position(|&it| it == number)?;
        self.order.get(at + 1).copied()
    }

    /// Makes a segment the newest.
    pub fn push(&mut self, number: u32) {
        self.order.push_back(number);
    }

    /// Takes the oldest segment out, but not the newest if `keep_newest`.
    pub fn pop_oldest(&mut self, keep_newest: bool) -> Option<u32> {
        if self.order.len() <= usize::from(keep_newest) {
            return None;
        }
        self.order.pop_front()
    }

    /// Takes out the segment with the greatest `of`, if that is at least `least`.
    pub fn take_greatest(&mut self, least: usize, of: impl Fn(u32) -> usize) -> Option<u32> {
        let sizes = self.order.iter().map(|&number| of(number));
        let (index, size) = sizes.enumerate().max_by_key(|&(_, size)| size)?;
        (size >= least).then(|| self.order.remove(index))?
    }

    /// Puts a segment back as the oldest.
    pub fn restore(&mut self, number: u32) {
        self.order.push_front(number);
    }

    pub fn heap_bytes(&self) -> usize {
        self.order.capacity() * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::ArenaOptions;

    const SLAB: usize = 4096;

    fn segments(count: u64) -> Segments {
        let options = ArenaOptions {
            slab_bytes: SLAB,
            budget_bytes: count * SLAB as u64,
            ..ArenaOptions::default()
        };
        Segments::new(Arena::new(options).expect("an arena"))
    }

    #[test]
    fn blocks_of_a_power_of_two_fill_a_slab() {
        let mut segments = segments(1);
        let number = segments.open().expect("a slab");
        for index in 0..4 {
            let place = segments.append(number, index, 1024).expect("room");
            assert_eq!(place.offset as usize, index as usize * 1024);
            segments.bytes_mut(place, 1024).fill(index as u8);
        }
        assert_eq!(segments.append(number, 4, 1), None);
        assert_eq!(segments.append(number, 4, 0), None);
        assert_eq!(segments.append(number, 4, usize::MAX), None);
        for index in 0..4 {
            let record = segments.record(number, index);
            let place = Place {
                segment: number,
                offset: record.offset,
            };
            assert_eq!(segments.bytes(place, 1024), [record.entry as u8; 1024]);
        }
        assert!(segments.open().is_err(), "the arena's budget is one slab");
        segments.close(number);
        assert_eq!(segments.count(), 0);
        assert_eq!(segments.arena().stats().in_use_bytes, 0);
    }

    #[test]
    fn the_segment_of_most_holes_is_taken_out_of_a_log() {
        let mut segments = segments(3);
        let mut log = Log::default();
        for entry in 0..3 {
            let number = segments.open().expect("a slab");
            log.push(number);
            let place = segments.append(number, entry, 1000).expect("room");
            if entry == 1 {
                segments.leave_hole(place, 1000);
            }
        }
        assert_eq!(log.take_greatest(1001, |it| segments.hole_bytes(it)), None);
        let found = log.take_greatest(1000, |it| segments.hole_bytes(it));
        assert_eq!((found, log.segment_count()), (Some(1), 2));
        segments.close_holes(1);
        assert_eq!(segments.hole_bytes(1), 0);
        assert_eq!((log.pop_oldest(false), log.newest()), (Some(0), Some(2)));
    }

    #[test]
    fn blocks_move_within_and_between_segments() {
        let mut segments = segments(2);
        let (one, other) = (segments.open().expect("one"), segments.open().expect("two"));
        let first = segments.append(one, 0, 100).expect("room");
        let second = segments.append(one, 1, 100).expect("room");
        segments.bytes_mut(first, 100).fill(1);
        segments.bytes_mut(second, 100).fill(2);
        let elsewhere = segments.append(other, 1, 100).expect("room");
        segments.copy(second, elsewhere, 100);
        assert_eq!(segments.bytes(elsewhere, 100), [2; 100]);
        let records = segments.rewind(one);
        assert_eq!(records.len(), 2);
        let again = segments.append(one, 1, 100).expect("room");
        segments.copy(second, again, 100);
        assert_eq!(
            (again.offset, segments.bytes(again, 100)),
            (0, &[2; 100][..])
        );
        segments.recycle(records);
        segments.retract(again);
        assert_eq!(segments.record_count(one), 0);
        assert!(segments.heap_bytes() > 0);
    }

    #[test]
    fn what_is_appended_after_a_rewind_may_lie_where_readers_were() {
        let mut segments = segments(1);
        let number = segments.open().expect("a slab");
        let [first, second] = [0, 1].map(|entry| segments.append(number, entry, 100));
        for place in [first, second] {
            drop(segments.lend(place.expect("room"), 100));
        }
        let records = segments.rewind(number);
        segments.recycle(records);
        // It stays where it was.
        assert_eq!(segments.append(number, 0, 100), first);
        let held = segments.lend(first.expect("room"), 100);
        assert_eq!(segments.append(number, 2, 100), second);
        segments.bytes_mut(second.expect("room"), 100).fill(2);
        assert!(held.iter().all(|byte| *byte == 0));
    }

    fn lend(
        segments: &mut Segments,
        place: Place,
        most: usize,
    ) -> std::result::Result<Loan, usize> {
        segments.note(place.segment, most)?;
        Ok(segments.lend(place, 100))
    }

    #[test]
    fn a_segment_that_was_given_back_makes_way_for_another() {
        let mut segments = segments(4);
        let places: Vec<Place> = (0..4)
            .map(|entry| {
                let number = segments.open().expect("a slab");
                segments.append(number, entry, 100).expect("room")
            })
            .collect();
        let kept = lend(&mut segments, places[0], 2).expect("room for two");
        for round in 0..10 {
            for place in &places[1..] {
                drop(lend(&mut segments, *place, 2).expect("one makes way"));
                assert!(segments.books[0].noted_count() <= 2, "round {round}");
            }
        }
        let other = lend(&mut segments, places[1], 2).expect("the second");
        for (place, expected) in places.iter().zip([None, None, Some(3), Some(3)]) {
            assert_eq!(lend(&mut segments, *place, 2).err(), expected);
        }
        assert_eq!(segments.count_lent(), 2);
        for place in &places[..2] {
            drop(lend(&mut segments, *place, 2).expect("it is lent already"));
        }
        assert_eq!(segments.count_lent(), 2);
        assert_eq!(
            lend(&mut segments, places[2], 1).err(),
            Some(3),
            "a lower cap"
        );
        drop((kept, other));
        assert_eq!(lend(&mut segments, places[3], 1).err(), None);
        assert_eq!(segments.count_lent(), 0);
    }

    #[test]
    fn readers_are_counted_by_segment() {
        let mut segments = segments(1);
        let number = segments.open().expect("a slab");
        let [one, other, frame] =
            [0, 1, 2].map(|entry| segments.append(number, entry, 100).expect("room"));
        let first = lend(&mut segments, one, 1).expect("the first segment");
        let second = lend(&mut segments, other, 0).expect("the same one");
        let frame_loan = segments.lend_to_fill(frame, 100);
        assert_eq!((segments.count_lent(), segments.is_lent(number)), (1, true));
        drop(first);
        assert_eq!(segments.count_lent(), 1);
        drop(second);
        // A loader that fills is not a reader, but the segment stays all the same.
        assert_eq!((segments.count_lent(), segments.is_lent(number)), (0, true));
        segments.take_back(number, frame_loan);
        assert!(!segments.is_lent(number));
        assert_eq!(lend(&mut segments, one, 0).err(), Some(1));
        let held = segments.lend(one, 100);
        assert!(segments.is_lent(number));
        drop(held);
        assert!(!segments.is_lent(number));
    }
}
