//! The choice of blocks to classify: all, while that takes almost no time beside the rest.
//!
//! Behind a fast link a block passes in a tenth of a millisecond, and finding its class takes half as long again. So
//! classifying has a share of the workers' time. Where it would take more, only some blocks are classified. Another
//! block gets the class of one of the last kinds, if a glance finds them alike. In an archive, files alternate, so the
//! kind of the last block alone is not enough.
//!
//! Not here: the meaning of a class, and clocks.

use crate::decide::Class;
use crate::units::Seconds;

/// The share of the workers' time for classifying kinds that were seen before.
const SHARE: f64 = 0.005;
/// The share for classifying kinds that were not seen before.
const NEW_SHARE: f64 = 0.01;
/// Blocks after which one of a kind is classified at any cost.
const BLOCKS_MAX: f64 = 64.0;
/// New kinds that may follow each other before their share of the time is used up.
const NEW_MAX: f64 = 4.0;
/// Kinds that are remembered.
const KINDS_MAX: usize = 8;
/// Places that are looked at, a word each.
const PLACES: usize = 32;
const WORD_BYTES: usize = 8;
/// The most by which the number of distinct values, among 256 bytes looked at, may differ between two blocks of one
/// kind. Noise shows 162 values, 6 more or fewer from block to block.
const VALUES_APART: u32 = 20;
/// The most bytes that may have moved from one eighth to another, counted at both ends. Blocks of one file of prose,
/// records or numbers differ by 14 to 62 on the median, prose and records by 100 to 400.
const EIGHTHS_APART: u32 = 80;

/// A sample of 256 bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Different values among them.
    values: u32,
    /// Bytes in the first eighth of all values, and so on.
    eighths: [u16; 8],
}

/// The last kinds of blocks, each with the number of further blocks that its class still serves.
#[derive(Debug, Default)]
pub struct Habit {
    /// The latest last.
    kinds: Vec<Kind>,
    /// Core time of classifying, lately.
    seconds: Option<f64>,
    /// Core time that new kinds may still take.
    credit: f64,
}

#[derive(Debug)]
struct Kind {
    glance: Glance,
    class: Class,
    left: u32,
}

impl Glance {
    /// Looks at a block.
    ///
    /// # Cost
    /// The time to read 32 words and to count their bytes.
    pub fn of(block: &[u8]) -> Glance {
        let mut seen = [0_u64; 4];
        let mut eighths = [0; 8];
        let mut count = |bytes: &[u8]| {
            for &byte in bytes {
                seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
                eighths[usize::from(byte >> 5)] += 1;
            }
        };
        if block.len() <= PLACES * WORD_BYTES {
            count(block);
        } else {
            let slot = block.len() / PLACES;
            // All are read before any is counted: a block is not in the caches, so the reads overlap.
            let mut words = [[0; WORD_BYTES]; PLACES];
            for (index, word) in words.iter_mut().enumerate() {
                // The place differs from slot to slot, so that headers are not the only bytes seen.
                let jitter = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
                let offset = index * slot + jitter as usize % (slot - WORD_BYTES + 1);
                word.copy_from_slice(&block[offset..][..WORD_BYTES]);
            }
            count(words.as_flattened());
        }
        Glance {
            values: seen.iter().map(|word| word.count_ones()).sum(),
            eighths,
        }
    }

    /// Returns how many bytes went from one eighth to another.
    fn distance(&self, other: &Glance) -> u32 {
        let eighths = self.eighths.iter().zip(&other.eighths);
        eighths.map(|(a, b)| u32::from(a.abs_diff(*b))).sum()
    }

    fn is_like(&self, other: &Glance) -> bool {
        self.values.abs_diff(other.values) <= VALUES_APART && self.distance(other) <= EIGHTHS_APART
    }
}

impl Habit {
    /// Returns the assumed class of a block that need not be classified, given the workers' time for a block.
    pub fn class_of(&mut self, glance: &Glance, of_block: Seconds) -> Option<Class> {
        let seconds = self.seconds?;
        self.credit = (self.credit + NEW_SHARE * of_block.0).min(NEW_MAX * seconds);
        let (place, is_like) = self.nearest(glance)?;
        let kind = &mut self.kinds[place];
        if !is_like && self.credit >= seconds || is_like && kind.left == 0 {
            return None;
        }
        kind.left = kind.left.saturating_sub(1);
        Some(kind.class)
    }

    /// Returns the place of the kind most like a block, and whether it is near enough.
    fn nearest(&self, glance: &Glance) -> Option<(usize, bool)> {
        let kinds = self.kinds.iter().enumerate();
        let order = |kind: &Kind| (!kind.glance.is_like(glance), kind.glance.distance(glance));
        let (place, kind) = kinds.min_by_key(|(_, kind)| order(kind))?;
        Some((place, kind.glance.is_like(glance)))
    }

    /// Learns the class of a block and the time of finding it, given the workers' time for a block.
    pub fn learn(&mut self, glance: Glance, class: Class, taken: Seconds, of_block: Seconds) {
        const KEPT: f64 = 0.75;
        let before = self.seconds.unwrap_or(taken.0);
        let seconds = KEPT * before + (1.0 - KEPT) * taken.0;
        self.seconds = Some(seconds);
        let blocks = (seconds / (SHARE * of_block.0)).ceil();
        // Rounded to 0 where blocks take for ever, as before the first.
        let left = (blocks.clamp(1.0, BLOCKS_MAX) as u32).saturating_sub(1);
        match self.nearest(&glance) {
            Some((place, true)) => drop(self.kinds.remove(place)),
            _ => self.credit -= seconds,
        }
        if self.kinds.len() == KINDS_MAX {
            self.kinds.remove(0);
        }
        self.kinds.push(Kind {
            glance,
            class,
            left,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..length).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn kinds_differ_at_a_glance_and_blocks_of_one_do_not() {
        let text = b"what compresses well is worth compressing, or so they say; ".repeat(20_000);
        let zeros = vec![0; 1 << 20];
        let check = |one: &[u8], other: &[u8], expected: bool| {
            let (one, other) = (Glance::of(one), Glance::of(other));
            assert_eq!(one.is_like(&other), expected, "{one:?} {other:?}");
        };
        check(&text, &text[7..], true);
        check(&text, &noise(1 << 20, 1), false);
        check(&text, &zeros, false);
        check(&zeros, &noise(1 << 20, 1), false);
        let alike = (0..100).filter(|seed| {
            let pair = [noise(1 << 20, *seed), noise(1 << 20, 1000 + seed)];
            Glance::of(&pair[0]).is_like(&Glance::of(&pair[1]))
        });
        assert!(alike.count() >= 95);
        for length in [0, 1, 255, 256, 257, 300] {
            Glance::of(&text[..length]);
        }
    }

    #[test]
    fn blocks_are_looked_at_as_often_as_their_time_allows() {
        let check = |of_block: f64, expected: usize| {
            let mut habit = Habit::default();
            let glance = Glance::of(b"text");
            assert_eq!(habit.class_of(&glance, Seconds(of_block)), None);
            habit.learn(glance, Class::TEXT, Seconds(50e-6), Seconds(of_block));
            let taken = (0..1000)
                .take_while(|_| habit.class_of(&glance, Seconds(of_block)) == Some(Class::TEXT));
            assert_eq!(taken.count(), expected, "{of_block} s");
        };
        check(f64::INFINITY, 0);
        check(20e-3, 0);
        check(1e-3, 9);
        check(0.0, 63);
    }

    #[test]
    fn another_kind_is_looked_at_at_once_and_the_first_remembered() {
        let mut habit = Habit::default();
        let (cost, of_block) = (Seconds(50e-6), Seconds(1e-3));
        let text = Glance::of(&b"some words ".repeat(1000));
        let noisy = Glance::of(&noise(1 << 12, 3));
        assert_eq!(habit.class_of(&text, of_block), None);
        habit.learn(text, Class::TEXT, cost, of_block);
        assert_eq!(habit.class_of(&text, of_block), Some(Class::TEXT));
        habit.credit = cost.0;
        assert_eq!(habit.class_of(&noisy, of_block), None);
        habit.learn(noisy, Class::INCOMPRESSIBLE, cost, of_block);
        for _ in 0..4 {
            assert_eq!(habit.class_of(&text, of_block), Some(Class::TEXT));
            let found = habit.class_of(&noisy, of_block);
            assert_eq!(found, Some(Class::INCOMPRESSIBLE));
        }
    }

    #[test]
    fn blocks_that_never_look_the_same_are_classified_within_a_share_of_the_time() {
        let (cost, of_block) = (Seconds(50e-6), Seconds(1e-3));
        let mut habit = Habit::default();
        let mut classified = 0;
        for index in 0..10_000_usize {
            // Each kind lies in its own eighth, and no more kinds are remembered than turn up between.
            let bytes: Vec<u8> = (0..256)
                .map(|it| (index * 37 % 251 + it / 32 * 7) as u8)
                .collect();
            let glance = Glance::of(&bytes);
            if habit.class_of(&glance, of_block).is_none() {
                habit.learn(glance, Class::BINARY, cost, of_block);
                classified += 1;
            }
        }
        let share = f64::from(classified) * cost.0 / (10_000.0 * of_block.0);
        assert!(share <= 1.2 * (SHARE + NEW_SHARE), "{share}");
    }
}
