//! Possible places of blocks with the same bytes: an index in memory that forgets.
//!
//! It only points: the caller compares the bytes. A block is looked up by a sketch, a hash of a few of its words. That
//! costs so little that every block is looked for and noted. Three ways of a bucket keep the last blocks that were
//! written, and one keeps anchors. A small share of all blocks are anchors, by their sketch, so that way goes back much
//! further. Behind a found block its neighbours are looked for beside the block that it equals, whether the index knows
//! them or not. That is how a long copy is found by its anchors (the locality of Zhu and others 2008, section 4.3, and
//! the sampling of Lillibridge and others 2009, section 3).
//!
//! The index is not stored: [`super::Disk::recall`] fills it again. It counts the core time of comparing different
//! blocks, and the worth of the bytes that need not be written. Where comparing does not pay it compares seldom. Equal
//! blocks are read instead of encoded, which takes about as long.

use xxhash_rust::xxh64::xxh64;

/// The entries of a sketch that are looked at: one line of the processor's cache.
const WAYS: usize = 4;
/// The ways for all blocks but anchors; the last one is for these.
const RECENT_WAYS: usize = WAYS - 1;
const ENTRY_BYTES: usize = 16;
/// One block in so many is an anchor. The way for anchors then goes back ten times as far as the three for all others.
const ANCHOR_BITS: u32 = 5;
/// The words of 8 bytes in a sketch. Different blocks with equal sketches, per thousand, on some 470 MB of each folder:
///
/// | words | `/usr/share` | `/usr/lib` |
/// |---|---|---|
/// | 8 | 4 | 5 |
/// | 16 | 2 | 3 |
/// | 32 | 3 | 1 |
const SKETCH_WORDS: usize = 16;
const WORD_BYTES: usize = 8;
/// The number of blocks with candidates between two decisions whether comparing pays.
const ROUND: u32 = 512;
/// The core time of reading a block of 4 KiB and comparing it. Reads of 4 KiB in das2014-disk/speed take some ten
/// seconds for a GiB, and most of that is the server's.
const COMPARE_SECONDS: f64 = 2e-6;
/// The rounds without comparing between two with it, when it does not pay.
const REST: u32 = 15;
/// The copies followed at once: as many as a connection's requests in progress.
const TRAILS: usize = 8;
/// The distance from its last block at which a copy is followed. Requests come in any order, and the longest one has so
/// many blocks of 4 KiB.
const REACH_BLOCKS: u64 = 8192;
/// A copy is left after so many blocks in a row that differ, or after fewer if fewer were found.
const CREDIT_MAX: u32 = 4;

/// Returns the sketch of a block, which comes without the zeros at its end and is not empty.
pub(super) fn sketch_of(used: &[u8]) -> u64 {
    let mut words = [0; SKETCH_WORDS * WORD_BYTES];
    let last = used.len().saturating_sub(WORD_BYTES);
    for (number, word) in words.chunks_exact_mut(WORD_BYTES).enumerate() {
        let at = last * number / (SKETCH_WORDS - 1);
        word.copy_from_slice(&used[at..at + WORD_BYTES]);
    }
    xxh64(&words, used.len() as u64)
}

/// The address of a block.
pub(super) type Address = (u32, u64);

/// Counts of the search for duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DuplicateStats {
    /// Blocks that were looked for.
    pub looked: u64,
    /// Blocks that were there already, and were not stored again.
    pub found: u64,
    /// Bytes not written for the found blocks.
    pub saved_bytes: u64,
}

/// A copy that is being written.
#[derive(Clone, Copy, Debug)]
struct Trail {
    volume: u32,
    /// The volume that has the blocks.
    original: u32,
    /// The difference to add to an index here for the one there, modulo 2^64.
    offset: u64,
    /// The index of the block that was found last.
    last: u64,
    /// The number of blocks that may differ before it is left.
    credit: u32,
}

impl Trail {
    fn new(from: Address, here: Address) -> Trail {
        Trail {
            volume: here.0,
            original: from.0,
            offset: from.1.wrapping_sub(here.1),
            last: here.1,
            credit: 1,
        }
    }

    fn covers(&self, here: Address) -> bool {
        self.volume == here.0 && self.last.abs_diff(here.1) <= REACH_BLOCKS
    }

    fn leads_to(&self, from: Address, here: Address) -> bool {
        self.covers(here) && self.original_of(here) == from
    }

    fn original_of(&self, here: Address) -> Address {
        (self.original, here.1.wrapping_add(self.offset))
    }
}

/// The index: a plain table, so that its memory is exactly the requested amount.
pub(super) struct Duplicates {
    /// A tag and a volume, and an index plus one; zeros are no entry.
    entries: Vec<[u64; 2]>,
    bucket_mask: u64,
    trails: Vec<Trail>,
    next_trail: usize,
    /// The worth of a byte that is not written, in seconds of a core.
    worth: f64,
    /// Whether all is compared, whether that pays or not.
    is_thorough: bool,
    in_round: u32,
    /// Earnings of comparing in this round less its cost, in seconds of a core.
    balance: f64,
    rests: u32,
    pub(super) stats: DuplicateStats,
}

impl Duplicates {
    /// Makes an index of at most `bytes`, `None` if that is too little for any. `worth` is that of a byte that is not
    /// written, in seconds of a core.
    pub(super) fn new(bytes: usize, worth: f64) -> Option<Duplicates> {
        let buckets = bytes / (WAYS * ENTRY_BYTES);
        let buckets = 1usize << buckets.checked_ilog2()?;
        Some(Duplicates {
            entries: vec![[0, 0]; buckets * WAYS],
            bucket_mask: buckets as u64 - 1,
            trails: Vec::with_capacity(TRAILS),
            next_trail: 0,
            worth,
            is_thorough: false,
            in_round: 0,
            balance: 0.0,
            rests: 0,
            stats: DuplicateStats::default(),
        })
    }

    /// Has every candidate compared from now on.
    pub(super) fn be_thorough(&mut self) {
        self.is_thorough = true;
    }

    /// Returns the number of entries that it has room for.
    pub(super) fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Says whether to compare the next block with its candidates: while that pays, and now and then to see whether it
    /// does.
    fn compares(&mut self) -> bool {
        if self.in_round == ROUND {
            self.rests = match self.rests {
                0 if self.balance >= 0.0 => 0,
                0 => REST,
                rests => rests - 1,
            };
            (self.in_round, self.balance) = (0, 0.0);
        }
        self.in_round += 1;
        self.rests == 0 || self.is_thorough
    }

    fn bucket(&self, sketch: u64) -> std::ops::Range<usize> {
        let start = (sketch & self.bucket_mask) as usize * WAYS;
        start..start + WAYS
    }

    fn word(sketch: u64, volume: u32) -> u64 {
        (sketch & !u64::from(u32::MAX)) | u64::from(volume)
    }

    fn is_anchor(sketch: u64) -> bool {
        sketch.leading_zeros() >= ANCHOR_BITS
    }

    /// Says whether a block of this sketch is probably there already, by the index alone, without comparing.
    pub(super) fn may_have(&self, sketch: u64, here: Address) -> bool {
        let is_followed = |trail: &Trail| trail.credit > 1 && trail.covers(here);
        self.rests == 0
            && (self.of_sketch(sketch).next().is_some() || self.trails.iter().any(is_followed))
    }

    /// Returns the addresses beside the last found block, as `here` is beside its copies.
    pub(super) fn beside(&self, here: Address) -> impl Iterator<Item = Address> {
        let trails = self.trails.iter().filter(move |trail| trail.covers(here));
        trails.map(move |trail| trail.original_of(here))
    }

    /// Returns the addresses that are known under a sketch.
    pub(super) fn of_sketch(&self, sketch: u64) -> impl Iterator<Item = Address> {
        let entries = self.entries[self.bucket(sketch)].iter();
        let known = entries.filter(move |[word, index]| *index != 0 && word >> 32 == sketch >> 32);
        known.map(|[word, index]| (*word as u32, index - 1))
    }

    /// Returns the addresses that may show the block that is to be written `here`: those beside the last found block,
    /// and those of its sketch.
    pub(super) fn candidates(&mut self, sketch: u64, here: Address) -> Vec<Address> {
        self.stats.looked += 1;
        let mut found: Vec<Address> = self.beside(here).collect();
        for address in self.of_sketch(sketch) {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        if !found.is_empty() && !self.compares() {
            found.clear();
        }
        found
    }

    /// Notes that `from` was compared with the block to write `here`. If they are equal, `record_bytes` is the length
    /// of the record that need not be written.
    pub(super) fn note_compared(
        &mut self,
        from: Address,
        here: Address,
        record_bytes: Option<u64>,
    ) {
        if let Some(record_bytes) = record_bytes {
            self.stats.found += 1;
            self.stats.saved_bytes += record_bytes;
            self.balance += record_bytes as f64 * self.worth;
            self.note_shared(from, here);
            return;
        }
        self.balance -= COMPARE_SECONDS;
        if let Some(trail) = self.trail(from, here) {
            self.trails[trail].credit -= 1;
            if self.trails[trail].credit == 0 {
                self.trails.swap_remove(trail);
            }
        }
    }

    fn trail(&self, from: Address, here: Address) -> Option<usize> {
        let mut trails = self.trails.iter();
        trails.position(|trail| trail.leads_to(from, here))
    }

    /// Notes that two addresses show the same block, so that their neighbours are looked for beside each other.
    pub(super) fn note_shared(&mut self, from: Address, here: Address) {
        match self.trail(from, here) {
            Some(at) => {
                let trail = &mut self.trails[at];
                trail.last = here.1;
                trail.credit = (trail.credit + 1).min(CREDIT_MAX);
            }
            None if self.trails.len() < TRAILS => self.trails.push(Trail::new(from, here)),
            None => {
                self.next_trail = (self.next_trail + 1) % TRAILS;
                self.trails[self.next_trail] = Trail::new(from, here);
            }
        }
    }

    /// Notes the place of a block of this sketch. An older entry is forgotten for it.
    pub(super) fn insert(&mut self, sketch: u64, (volume, index): Address) {
        let entry = [Duplicates::word(sketch, volume), index + 1];
        let range = self.bucket(sketch);
        let bucket = &mut self.entries[range];
        if Duplicates::is_anchor(sketch) {
            bucket[RECENT_WAYS] = entry;
            return;
        }
        let recent = &mut bucket[..RECENT_WAYS];
        let same = recent
            .iter()
            .position(|[word, _]| word >> 32 == sketch >> 32);
        recent[..=same.unwrap_or(RECENT_WAYS - 1)].rotate_right(1);
        recent[0] = entry;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    fn sketch(number: u64) -> u64 {
        xxh64(&number.to_le_bytes(), 0)
    }

    #[test]
    fn an_index_knows_what_was_put_in_last_and_anchors_of_what_was_before() {
        let mut index = Duplicates::new(64 << 10, 1e-8).unwrap();
        let count = 100_000;
        let here = (8, 0);
        for number in 0..count {
            index.insert(sketch(number), (7, number));
            let found = index.candidates(sketch(number), here);
            assert!(found.contains(&(7, number)), "{number}");
        }
        let mut left = |range: std::ops::Range<u64>| {
            let known = range.filter(|it| index.candidates(sketch(*it), here).contains(&(7, *it)));
            known.count()
        };
        let recent = left(count - 1536..count);
        assert!(recent > 1536 * 9 / 10, "{recent}");
        // One block in 32 is an anchor, and there are 1,024 places for them.
        let anchors = left(count - 16 * 1024..count - 8 * 1024);
        assert!((128..=256).contains(&anchors), "{anchors}");
        assert!(Duplicates::new(63, 1e-8).is_none());
    }

    #[test]
    fn neighbours_are_looked_for_beside_what_was_found_until_they_differ() {
        let mut index = Duplicates::new(1024, 1e-8).unwrap();
        let beside = |index: &mut Duplicates, at: u64| index.candidates(sketch(at), (2, at));
        index.note_compared((1, 100), (2, 1000), Some(4096));
        assert_eq!(beside(&mut index, 1001), [(1, 101)]);
        assert_eq!(beside(&mut index, 999), [(1, 99)]);
        assert_eq!(beside(&mut index, 1001 + REACH_BLOCKS), []);
        assert!(!index.may_have(sketch(1001), (2, 1001)));
        index.note_compared((1, 101), (2, 1001), Some(4096));
        assert!(index.may_have(sketch(1002), (2, 1002)));
        index.note_compared((1, 102), (2, 1002), None);
        assert_eq!(beside(&mut index, 1003), [(1, 103)]);
        index.note_compared((1, 103), (2, 1003), None);
        assert_eq!(beside(&mut index, 1004), []);
    }

    #[test]
    fn a_sketch_tells_blocks_of_any_length_apart() {
        let mut random = seeded("disk sketches", 4201);
        let mut seen = std::collections::HashSet::new();
        for length in (16..=4096).step_by(16) {
            let mut block = vec![0; length];
            random.fill(&mut block);
            assert!(seen.insert(sketch_of(&block)), "{length}");
            block[0] ^= 1;
            assert!(seen.insert(sketch_of(&block)), "{length}");
            block[length - 1] ^= 1;
            assert!(seen.insert(sketch_of(&block)), "{length}");
        }
    }

    /// Returns the share of so many rounds that is compared, where one block of `one_in` is equal.
    fn compared_share(one_in: u32, record_bytes: u64, rounds: u32, is_thorough: bool) -> f64 {
        let mut index = Duplicates::new(1024, 1e-8).unwrap();
        if is_thorough {
            index.be_thorough();
        }
        index.insert(sketch(1), (1, 1));
        let mut compared = 0;
        for number in 0..rounds * ROUND {
            let here = (2, u64::from(number) * 2 * REACH_BLOCKS);
            for from in index.candidates(sketch(1), here) {
                compared += 1;
                let is_equal = number % one_in == 0;
                index.note_compared(from, here, is_equal.then_some(record_bytes));
            }
        }
        f64::from(compared) / f64::from(rounds * ROUND)
    }

    #[test]
    fn comparing_rests_where_it_does_not_pay_and_comes_back() {
        let rounds = 4 * (REST + 1);
        let tries = 1.0 / f64::from(REST + 1);
        assert_eq!(compared_share(u32::MAX, 0, rounds, false), tries);
        assert_eq!(compared_share(u32::MAX, 0, rounds, true), 1.0);
        // One in eight pays for all if its bytes are worth the other seven.
        let enough = (7.0 * COMPARE_SECONDS / 1e-8) as u64;
        assert_eq!(compared_share(8, enough * 11 / 10, rounds, false), 1.0);
        assert_eq!(compared_share(8, enough * 9 / 10, rounds, false), tries);
    }
}
