//! Where blocks of the same bytes may lie: an index of hashes in memory that forgets.
//!
//! It only points: whoever asks compares the bytes. It is not stored, and what was written before it was
//! made is unknown to it. It keeps books of the core time that looking takes and of what the bytes are worth that need
//! not be written, and rests where that does not pay.

use xxhash_rust::xxh64::xxh64;

/// The entries of a hash that are looked at: one line of the processor's cache.
const WAYS: usize = 4;
const ENTRY_BYTES: usize = 16;
/// The blocks after which it is decided whether looking pays.
const ROUND: u32 = 8192;
/// The core time of a look: meeting a line of a table that is larger than the processor's caches, twice, and hashing at
/// some 10 GB/s. In das2014-disk/equal a block of 4 KiB took 1.1 microseconds in all.
const LOOK_SECONDS: f64 = 700e-9;
const HASH_SECONDS_PER_BYTE: f64 = 0.1e-9;
/// The rounds without looking between two with it, when it does not pay.
const REST: u32 = 15;

/// Returns the hash that a block is looked up by, which comes without the zeros at its end.
pub(super) fn hash_of(used: &[u8]) -> u64 {
    xxh64(used, 0)
}

/// The address of a block.
pub(super) type Address = (u32, u64);

/// What looking for duplicates came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DuplicateStats {
    /// Blocks that were looked for.
    pub looked: u64,
    /// Blocks that were there already, and were not stored again.
    pub found: u64,
    /// What these did not write.
    pub saved_bytes: u64,
}

/// The index; a plain table, so that its memory is what was asked for.
pub(super) struct Duplicates {
    /// A tag and a volume, and an index plus one; zeros are no entry.
    entries: Vec<[u64; 2]>,
    bucket_mask: u64,
    next_way: usize,
    /// What a byte is worth that is not written, in seconds of a core.
    worth: f64,
    in_round: u32,
    /// What looking earned in this round less what it took, in seconds of a core.
    balance: f64,
    rests: u32,
    pub(super) stats: DuplicateStats,
}

impl Duplicates {
    /// Makes an index of at most `bytes`, `None` if that is too little for any; a byte that is not written is worth so
    /// many seconds of a core.
    pub(super) fn new(bytes: usize, worth: f64) -> Option<Duplicates> {
        let buckets = bytes / (WAYS * ENTRY_BYTES);
        let buckets = 1usize << buckets.checked_ilog2()?;
        Some(Duplicates {
            entries: vec![[0, 0]; buckets * WAYS],
            bucket_mask: buckets as u64 - 1,
            next_way: 0,
            worth,
            in_round: 0,
            balance: 0.0,
            rests: 0,
            stats: DuplicateStats::default(),
        })
    }

    /// Says whether the next block, of so many bytes, is to be looked for: while that pays, and now and then to see
    /// whether it does.
    pub(super) fn looks(&mut self, used_bytes: usize) -> bool {
        if self.in_round == ROUND {
            self.rests = match self.rests {
                0 if self.balance >= 0.0 => 0,
                0 => REST,
                rests => rests - 1,
            };
            (self.in_round, self.balance) = (0, 0.0);
        }
        self.in_round += 1;
        let looks = self.is_looking();
        if looks {
            self.stats.looked += 1;
            self.balance -= LOOK_SECONDS + used_bytes as f64 * HASH_SECONDS_PER_BYTE;
        }
        looks
    }

    /// Says whether blocks are looked for.
    pub(super) fn is_looking(&self) -> bool {
        self.rests == 0
    }

    fn bucket(&self, hash: u64) -> std::ops::Range<usize> {
        let start = (hash & self.bucket_mask) as usize * WAYS;
        start..start + WAYS
    }

    fn word(hash: u64, volume: u32) -> u64 {
        (hash & !u64::from(u32::MAX)) | u64::from(volume)
    }

    /// Says whether a block of this hash may be there already, of what is known without comparing.
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let tag = |hash: u64| hash >> 32;
        let mut entries = self.entries[self.bucket(hash)].iter();
        entries.any(|[word, index]| *index != 0 && tag(*word) == tag(hash))
    }

    /// Returns the addresses that may show a block of this hash.
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = Address> + use<> {
        let mut found = [(0, 0); WAYS];
        let mut count = 0;
        for [word, index] in &self.entries[self.bucket(hash)] {
            if *index != 0 && word >> 32 == hash >> 32 {
                found[count] = (*word as u32, index - 1);
                count += 1;
            }
        }
        found.into_iter().take(count)
    }

    /// Notes that a block was found to be a duplicate of one whose record takes so many bytes.
    pub(super) fn note_found(&mut self, record_bytes: u64) {
        self.stats.found += 1;
        self.stats.saved_bytes += record_bytes;
        self.balance += record_bytes as f64 * self.worth;
    }

    /// Notes where a block of this hash lies now; something older is forgotten for it.
    pub(super) fn insert(&mut self, hash: u64, (volume, index): Address) {
        let range = self.bucket(hash);
        let bucket = &mut self.entries[range];
        let same = bucket.iter().position(|[word, _]| word >> 32 == hash >> 32);
        let way = same.or_else(|| bucket.iter().position(|[_, index]| *index == 0));
        self.next_way = (self.next_way + 1) % WAYS;
        bucket[way.unwrap_or(self.next_way)] = [Self::word(hash, volume), index + 1];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_finds_what_was_put_in_last_and_forgets_what_is_too_much() {
        let mut index = Duplicates::new(64 << 10, 1e-8).unwrap();
        let hash = |number: u64| xxh64(&number.to_le_bytes(), 0);
        for number in 0..100_000 {
            index.insert(hash(number), (7, number));
            let found: Vec<Address> = index.candidates(hash(number)).collect();
            assert!(found.contains(&(7, number)), "{number}");
        }
        let left = (0..100_000)
            .filter(|number| index.candidates(hash(*number)).any(|at| at == (7, *number)));
        let left = left.count();
        assert!((2000..=4096).contains(&left), "{left}");
        assert!(Duplicates::new(63, 1e-8).is_none());
    }

    /// Returns the share of so many rounds that is looked at, where one block of `one_in` is found.
    fn looked_share(one_in: u32, record_bytes: u64, rounds: u32) -> f64 {
        let mut index = Duplicates::new(1024, 1e-8).unwrap();
        for number in 0..rounds * ROUND {
            if index.looks(4096) && number % one_in == 0 {
                index.note_found(record_bytes);
            }
        }
        index.stats.looked as f64 / f64::from(rounds * ROUND)
    }

    #[test]
    fn looking_rests_where_it_does_not_pay_and_comes_back() {
        let rounds = 4 * (REST + 1);
        let tries = 1.0 / f64::from(REST + 1);
        assert_eq!(looked_share(u32::MAX, 0, rounds), tries);
        let look = LOOK_SECONDS + 4096.0 * HASH_SECONDS_PER_BYTE;
        // One in a hundred pays for all if its bytes are worth a hundred looks.
        let enough = (100.0 * look / 1e-8) as u64;
        assert_eq!(looked_share(100, enough * 11 / 10, rounds), 1.0);
        assert_eq!(looked_share(100, enough * 9 / 10, rounds), tries);
    }
}
