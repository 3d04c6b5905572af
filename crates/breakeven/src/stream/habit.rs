//! Which blocks to classify: all, as long as that takes next to nothing beside the rest.
//!
//! Behind a fast link a block is through in a tenth of a millisecond, and telling its class takes half
//! as long again. So classifying has a share of the workers' time, and where it would take more, only
//! some blocks are classified; those between them that look the same at a glance are taken to be of
//! the same class.
//!
//! Not here: what a class means, and clocks.

use crate::decide::Class;
use crate::units::Seconds;

/// Share of the workers' time that classifying may take.
const SHARE: f64 = 0.005;
/// Blocks after which one is classified whatever it costs.
const BLOCKS_MAX: f64 = 64.0;
/// Bytes looked at, in places of a word each.
const PLACES: usize = 32;
const WORD_BYTES: usize = 8;
/// Of 256 bytes looked at, by how many more or fewer values, or printable bytes, two blocks of one
/// kind differ: noise shows 162 values, 6 more or fewer from block to block.
const VALUES_APART: u32 = 20;
const PRINTABLE_APART: u32 = 24;

/// What 256 bytes of a block look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// Different values among them.
    values: u32,
    /// Printable ones among them.
    printable: u32,
}

/// What the last classified block was, and for how many more that will do.
#[derive(Debug, Default)]
pub struct Habit {
    last: Option<(Glance, Class)>,
    left: u32,
    /// Core time of classifying, lately.
    seconds: Option<f64>,
}

impl Glance {
    /// Looks at a block.
    ///
    /// # Cost
    /// That of reading 32 words and counting their bytes.
    pub fn of(block: &[u8]) -> Glance {
        let mut seen = [0_u64; 4];
        let mut printable = 0;
        let mut count = |bytes: &[u8]| {
            for &byte in bytes {
                seen[usize::from(byte >> 6)] |= 1 << (byte & 63);
                printable += u32::from(byte.wrapping_sub(b' ') < 95);
            }
        };
        if block.len() <= PLACES * WORD_BYTES {
            count(block);
        } else {
            let slot = block.len() / PLACES;
            for index in 0..PLACES {
                // A different place in each slot, so that a header is not all that is seen.
                let jitter = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
                let offset = index * slot + jitter as usize % (slot - WORD_BYTES + 1);
                count(&block[offset..][..WORD_BYTES]);
            }
        }
        Glance {
            values: seen.iter().map(|word| word.count_ones()).sum(),
            printable,
        }
    }

    fn is_like(&self, other: &Glance) -> bool {
        self.values.abs_diff(other.values) <= VALUES_APART
            && self.printable.abs_diff(other.printable) <= PRINTABLE_APART
    }
}

impl Habit {
    /// Returns what a block is taken to be, if it need not be classified.
    pub fn class_of(&mut self, glance: &Glance) -> Option<Class> {
        let (last, class) = self.last?;
        let is_enough = self.left > 0 && last.is_like(glance);
        self.left = self.left.saturating_sub(1);
        is_enough.then_some(class)
    }

    /// Learns the class of a block and what telling it took, where a block gets so much of the
    /// workers' time.
    pub fn learn(&mut self, glance: Glance, class: Class, taken: Seconds, of_block: Seconds) {
        const KEPT: f64 = 0.75;
        let before = self.seconds.unwrap_or(taken.0);
        let seconds = KEPT * before + (1.0 - KEPT) * taken.0;
        self.seconds = Some(seconds);
        let blocks = (seconds / (SHARE * of_block.0)).ceil();
        // Rounded to nothing where blocks take for ever, as before the first.
        self.left = (blocks.clamp(1.0, BLOCKS_MAX) as u32).saturating_sub(1);
        self.last = Some((glance, class));
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
            assert_eq!(habit.class_of(&glance), None);
            habit.learn(glance, Class::TEXT, Seconds(50e-6), Seconds(of_block));
            let taken = (0..1000).take_while(|_| habit.class_of(&glance) == Some(Class::TEXT));
            assert_eq!(taken.count(), expected, "{of_block} s");
        };
        check(f64::INFINITY, 0);
        check(20e-3, 0);
        check(1e-3, 9);
        check(0.0, 63);
    }

    #[test]
    fn another_kind_is_looked_at_at_once() {
        let mut habit = Habit::default();
        let text = Glance::of(&b"some words ".repeat(1000));
        habit.learn(text, Class::TEXT, Seconds(1.0), Seconds(1.0));
        assert_eq!(habit.class_of(&text), Some(Class::TEXT));
        assert_eq!(habit.class_of(&Glance::of(&noise(1 << 12, 3))), None);
        assert_eq!(habit.class_of(&text), Some(Class::TEXT));
    }
}
