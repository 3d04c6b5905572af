//! Ghosts: what the cache remembers of blocks it no longer holds.
//!
//! A [`Ghosts`] table keeps 8 bytes of a dropped block: a fingerprint of its key, when it was
//! dropped, whether compressing it was in vain, by what method it was compressed and to what size.
//! A block that comes back while its ghost is young was dropped too early (S3-FIFO, SOSP 2023,
//! section 4.1), and needs no second trial of what was found out. One that had its time in the main log
//! was not: its ghost is old from the first, and no other ages by it.
//!
//! Sets of four; a full set forgets its oldest. A fingerprint may lie: one lookup in some 2^22 finds
//! the ghost of another key, which costs a worse guess and never a wrong byte.
#![deny(unsafe_code)]

const WAYS: usize = 4;
/// Units of the remembered size: 64 bytes, so that 4095 of them are some 256 KiB.
const SIZE_UNIT: u32 = 64;
const SIZE_UNITS_MAX: u32 = 4095;

const SIZE_SHIFT: u32 = 0;
const METHOD_SHIFT: u32 = 12;
const STAMP_SHIFT: u32 = 16;
const FINGERPRINT_SHIFT: u32 = 40;
const STAMP_MASK: u64 = (1 << 24) - 1;
/// The age of a ghost that is old from the first: half of what a stamp can tell.
const AGE_OLD: u64 = 1 << 23;

/// What was found out about a block before it was dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The method that was tried, if any: below 7.
    pub method: Option<u8>,
    /// Whether it saved too little.
    pub is_incompressible: bool,
    /// What it made of the block, rounded up to 64 bytes; 0 for unknown or too large to tell.
    pub packed_bytes: u32,
}

/// A bounded memory of dropped blocks.
pub(super) struct Ghosts {
    sets: Box<[[u64; WAYS]]>,
    /// Ghosts ever made: the clock of their age. Starts at 1, so that no ghost is all zeros.
    clock: u64,
}

impl Ghosts {
    /// Makes an empty table for `capacity` ghosts, rounded down to whole sets.
    pub fn new(capacity: usize) -> Ghosts {
        let count = capacity / WAYS;
        Ghosts {
            sets: vec![[0; WAYS]; count].into_boxed_slice(),
            clock: 1,
        }
    }

    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.sets)
    }

    /// Returns how many ghosts there is room for.
    pub fn capacity(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Remembers a block that is dropped, as a young ghost or an old one.
    pub fn remember(&mut self, hash: u64, memory: &Memory, is_young: bool) {
        let Some(set) = self.set(hash) else { return };
        let units = memory.packed_bytes.div_ceil(SIZE_UNIT);
        let units = if units > SIZE_UNITS_MAX { 0 } else { units };
        let method = memory.method.map_or(0, |method| u64::from(method) + 1) & 7
            | u64::from(memory.is_incompressible) << 3;
        let born = if is_young { 0 } else { AGE_OLD };
        let ghost = fingerprint(hash) << FINGERPRINT_SHIFT
            | (self.clock.wrapping_sub(born) & STAMP_MASK) << STAMP_SHIFT
            | method << METHOD_SHIFT
            | u64::from(units) << SIZE_SHIFT;
        let clock = self.clock;
        let ways = &mut self.sets[set];
        let same = ways.iter().position(|&way| is_of(way, hash));
        let oldest = || {
            (0..WAYS)
                .max_by_key(|&way| age(ways[way], clock))
                .unwrap_or(0)
        };
        ways[same.unwrap_or_else(oldest)] = ghost;
        self.clock += u64::from(is_young);
    }

    /// Takes out what is remembered of a block, with its age: how many were dropped since.
    pub fn take(&mut self, hash: u64) -> Option<(Memory, u64)> {
        let set = self.set(hash)?;
        let clock = self.clock;
        let way = self.sets[set].iter_mut().find(|way| is_of(**way, hash))?;
        let ghost = std::mem::take(way);
        let method = ghost >> METHOD_SHIFT & 7;
        let units = (ghost >> SIZE_SHIFT) as u32 & SIZE_UNITS_MAX;
        let memory = Memory {
            method: method.checked_sub(1).map(|method| method as u8),
            is_incompressible: ghost >> METHOD_SHIFT & 8 != 0,
            packed_bytes: units * SIZE_UNIT,
        };
        Some((memory, age(ghost, clock)))
    }

    /// Returns how many were dropped since a block that is remembered.
    pub fn age_of(&self, hash: u64) -> Option<u64> {
        let set = &self.sets[self.set(hash)?];
        let way = set.iter().find(|way| is_of(**way, hash))?;
        Some(age(*way, self.clock))
    }

    fn set(&self, hash: u64) -> Option<usize> {
        let count = self.sets.len() as u128;
        // The high bits choose the set; the fingerprint is of the low ones.
        (count > 0).then(|| ((u128::from(hash) * count) >> 64) as usize)
    }
}

fn fingerprint(hash: u64) -> u64 {
    hash & 0xff_ffff
}

fn is_of(ghost: u64, hash: u64) -> bool {
    ghost != 0 && ghost >> FINGERPRINT_SHIFT == fingerprint(hash)
}

/// Ghosts made since this one; the greatest age for none.
fn age(ghost: u64, clock: u64) -> u64 {
    match ghost {
        0 => u64::MAX,
        _ => clock.wrapping_sub(ghost >> STAMP_SHIFT & STAMP_MASK) & STAMP_MASK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::seeded;

    fn check(memory: Memory, expected: Memory) {
        let mut ghosts = Ghosts::new(512);
        ghosts.remember(42, &memory, true);
        assert_eq!(ghosts.take(42), Some((expected, 1)));
        assert_eq!(ghosts.take(42), None, "a ghost is taken once");
    }

    #[test]
    fn what_was_found_out_comes_back() {
        check(Memory::default(), Memory::default());
        for method in 0..6 {
            let memory = Memory {
                method: Some(method),
                is_incompressible: method == 3,
                packed_bytes: 64 * (u32::from(method) + 7),
            };
            check(memory, memory);
        }
        let odd = Memory {
            method: Some(1),
            is_incompressible: false,
            packed_bytes: 65,
        };
        check(
            odd,
            Memory {
                packed_bytes: 128,
                ..odd
            },
        );
        let huge = Memory {
            packed_bytes: 1 << 20,
            ..odd
        };
        check(
            huge,
            Memory {
                packed_bytes: 0,
                ..odd
            },
        );
    }

    #[test]
    fn the_last_ones_are_remembered_and_the_oldest_forgotten() {
        let mut random = seeded("ghosts", 5);
        let mut ghosts = Ghosts::new(1024);
        let hashes: Vec<u64> = (0..4096).map(|_| random.u64(..)).collect();
        for &hash in &hashes {
            ghosts.remember(hash, &Memory::default(), true);
        }
        let found: Vec<bool> = hashes
            .iter()
            .rev()
            .map(|&hash| ghosts.take(hash).is_some())
            .collect();
        let among = |range: std::ops::Range<usize>| found[range].iter().filter(|it| **it).count();
        println!(
            "{} of 512, {} of 4096 remembered",
            among(0..512),
            among(0..4096)
        );
        assert!(among(0..512) >= 480, "half of the table is nearly sure");
        assert!(among(0..4096) <= 1024 + 8, "there is room for 1024");
        assert_eq!(ghosts.heap_bytes(), 8 * 1024);
    }

    #[test]
    fn ages_count_what_was_dropped_since() {
        let mut ghosts = Ghosts::new(1 << 13);
        for hash in 1..=10u64 {
            ghosts.remember(hash << 54 | hash, &Memory::default(), true);
        }
        assert_eq!(ghosts.age_of(10 << 54 | 10), Some(1));
        assert_eq!(ghosts.take(10 << 54 | 10).map(|it| it.1), Some(1));
        assert_eq!(ghosts.age_of(10 << 54 | 10), None);
        assert_eq!(ghosts.take(1 << 54 | 1).map(|it| it.1), Some(10));
        assert_eq!(Ghosts::new(0).take(1), None);
        Ghosts::new(3).remember(1, &Memory::default(), true);
        // An old one is old at once and lets the others stay as young as they are.
        ghosts.remember(11 << 54 | 11, &Memory::default(), false);
        assert_eq!(ghosts.take(11 << 54 | 11).map(|it| it.1), Some(AGE_OLD));
        assert_eq!(ghosts.take(9 << 54 | 9).map(|it| it.1), Some(2));
    }
}
