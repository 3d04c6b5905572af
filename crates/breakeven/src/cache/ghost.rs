//! Ghosts: the cache's memory of blocks that it no longer holds.
//!
//! A [`Ghosts`] table keeps 8 bytes of a dropped block: a fingerprint of its key, and the time of the drop. It also
//! knows the methods that saved too little on it, and the ratio of another one. A block that comes back while its ghost
//! is young was dropped too early (S3-FIFO, SOSP 2023, section 4.1). The shadow needs no second trial of a known
//! result. A block that had its time in the main log was not dropped too early. Its ghost is old from the start, and
//! does not age the others.
//!
//! Sets of four; a full set forgets its oldest. A fingerprint may match another key: one lookup in some 2^22 finds the
//! ghost of another. That costs a worse guess, and never a wrong byte.
#![deny(unsafe_code)]

use super::entry::METHODS_MASK;
use super::replica::METHODS_MAX;

const WAYS: usize = 4;

/// Parts of a block's bytes, the unit of its remembered compressed size.
const SHARE_PARTS: u64 = 1 << 10;

const METHOD_SHIFT: u32 = 10;
const REFUSED_SHIFT: u32 = 12;
const STAMP_SHIFT: u32 = 16;
const _: () = assert!(METHODS_MAX <= 1 << (REFUSED_SHIFT - METHOD_SHIFT));
const _: () = assert!(METHODS_MAX <= (STAMP_SHIFT - REFUSED_SHIFT) as usize);
const FINGERPRINT_SHIFT: u32 = 40;
const STAMP_MASK: u64 = (1 << 24) - 1;
/// The age of a ghost that is old from the start: half of a stamp's range.
const AGE_OLD: u64 = 1 << 23;

/// The known facts about a block at its drop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Memory {
    /// The methods that saved too little, one bit each.
    pub refused: u8,
    /// The method that made its compressed form, if it ever had one.
    method: u8,
    /// The bytes left by that method as a share, in units of 1/1024, rounded up; 0 for unknown.
    packed_share: u16,
}

impl Memory {
    /// Makes the memory of a block of `raw_bytes` whose form by `method` has `packed_bytes`, 0 for no form.
    pub fn new(refused: u8, method: u8, packed_bytes: u32, raw_bytes: u32) -> Memory {
        let share = u64::from(packed_bytes) * SHARE_PARTS;
        let share = share.div_ceil(u64::from(raw_bytes).max(1));
        let is_known = share > 0 && share < SHARE_PARTS;
        Memory {
            refused,
            method: if is_known { method } else { 0 },
            packed_share: if is_known { share as u16 } else { 0 },
        }
    }

    /// Returns the method that made its compressed form, and the bytes of that form if the block still has `raw_bytes`.
    /// The bytes may be up to 1/1024 too many.
    pub fn form(&self, raw_bytes: u32) -> Option<(u8, u32)> {
        let bytes = u64::from(self.packed_share) * u64::from(raw_bytes) / SHARE_PARTS;
        (bytes > 0).then_some((self.method, bytes as u32))
    }
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
        let born = if is_young { 0 } else { AGE_OLD };
        let ghost = fingerprint(hash) << FINGERPRINT_SHIFT
            | (self.clock.wrapping_sub(born) & STAMP_MASK) << STAMP_SHIFT
            | u64::from(memory.refused & METHODS_MASK) << REFUSED_SHIFT
            | u64::from(memory.method) << METHOD_SHIFT
            | u64::from(memory.packed_share);
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

    /// Takes out the memory of a block, with its age: the number of blocks dropped since.
    pub fn take(&mut self, hash: u64) -> Option<(Memory, u64)> {
        let set = self.set(hash)?;
        let clock = self.clock;
        let way = self.sets[set].iter_mut().find(|way| is_of(**way, hash))?;
        let ghost = std::mem::take(way);
        let memory = Memory {
            refused: (ghost >> REFUSED_SHIFT) as u8 & METHODS_MASK,
            method: (ghost >> METHOD_SHIFT) as u8 & 3,
            packed_share: (ghost & (SHARE_PARTS - 1)) as u16,
        };
        Some((memory, age(ghost, clock)))
    }

    /// Returns the number of blocks dropped since a remembered one.
    pub fn age_of(&self, hash: u64) -> Option<u64> {
        let set = &self.sets[self.set(hash)?];
        let way = set.iter().find(|way| is_of(**way, hash))?;
        Some(age(*way, self.clock))
    }

    fn set(&self, hash: u64) -> Option<usize> {
        let count = self.sets.len() as u128;
        // The high bits choose the set; the fingerprint is made of the low ones.
        (count > 0).then(|| ((u128::from(hash) * count) >> 64) as usize)
    }
}

fn fingerprint(hash: u64) -> u64 {
    hash & 0xff_ffff
}

fn is_of(ghost: u64, hash: u64) -> bool {
    ghost != 0 && ghost >> FINGERPRINT_SHIFT == fingerprint(hash)
}

/// Ghosts made since this one; the greatest age for an empty place.
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

    fn check(memory: Memory, raw_bytes: u32, form: Option<(u8, u32)>) {
        let mut ghosts = Ghosts::new(512);
        ghosts.remember(42, &memory, true);
        let (found, age) = ghosts.take(42).expect("remembered");
        assert_eq!((found, age), (memory, 1));
        assert_eq!(found.form(raw_bytes), form, "{memory:?}");
        assert_eq!(ghosts.take(42), None, "a ghost is taken once");
    }

    #[test]
    fn what_was_found_out_comes_back() {
        check(Memory::default(), 8192, None);
        for method in 0..4 {
            let bytes = 800 * (u32::from(method) + 1);
            let found = Some((method, bytes));
            check(
                Memory::new(15 ^ 1 << method, method, bytes, 8192),
                8192,
                found,
            );
            check(Memory::new(1 << method, 0, 0, 8192), 8192, None);
        }
        check(Memory::new(0, 1, 65, 1000), 1000, Some((1, 65)));
        check(Memory::new(0, 1, 1001, 1 << 20), 1 << 20, Some((1, 1024)));
        // A form as long as the block is no information, and neither is the form of an empty block.
        check(Memory::new(0, 1, 20, 20), 20, None);
        check(Memory::new(0, 1, 4, 0), 0, None);
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
        // An old one is old at once and does not age the others.
        ghosts.remember(11 << 54 | 11, &Memory::default(), false);
        assert_eq!(ghosts.take(11 << 54 | 11).map(|it| it.1), Some(AGE_OLD));
        assert_eq!(ghosts.take(9 << 54 | 9).map(|it| it.1), Some(2));
    }
}
