//! The value under each key, so that every value that comes back can be checked.
//!
//! Values are the lines of a file, or records made up. Each key has one of them for good, drawn by its number. So a
//! value under another's key is detected, too.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::model::Access;
use breakeven::quoted::quoted;

/// How keys begin.
const PREFIX: &str = "bench:";
/// Values that are made up, and their lengths.
const MADE_UP: usize = 20_000;
const MADE_UP_BYTES: std::ops::RangeInclusive<usize> = 200..=1000;
/// Draws of keys that are made before the clock starts, and then taken again and again.
const DRAWS: usize = 1 << 20;
/// The longest value that servers take by default, with room for key and header.
const VALUE_BYTES_MAX: usize = 1_000_000;

/// See the module.
pub struct Values {
    values: Vec<Box<[u8]>>,
    pub keys: u32,
}

impl Values {
    /// Reads the lines of a file, or makes values up, for so many keys.
    pub fn load(path: Option<&Path>, keys: u32, seed: u64) -> Result<Values> {
        let values: Vec<Box<[u8]>> = match path {
            None => made_up(seed),
            Some(path) => {
                let bytes = fs::read(path).with_context(|| format!("read {}", quoted(&path)))?;
                let lines = bytes.split(|byte| *byte == b'\n');
                let fits = |line: &&[u8]| !line.is_empty() && line.len() <= VALUE_BYTES_MAX;
                lines.filter(fits).map(Box::from).collect()
            }
        };
        ensure!(
            !values.is_empty(),
            "the file of values has no line that can be one"
        );
        Ok(Values { values, keys })
    }

    /// Returns the value of a key.
    pub fn of(&self, key: u32) -> &[u8] {
        self.drawn(key.into())
    }

    /// Returns another value for a key, mostly of another length, as programs overwrite their values.
    pub fn another(&self, key: u32, number: usize) -> &[u8] {
        self.drawn(u64::from(key) | (number as u64 + 1) << 32)
    }

    fn drawn(&self, number: u64) -> &[u8] {
        &self.values[(mixed(number) % self.values.len() as u64) as usize]
    }

    /// Returns the mean length of the values.
    pub fn mean_bytes(&self) -> f64 {
        let bytes: usize = self.values.iter().map(|it| it.len()).sum();
        bytes as f64 / self.values.len() as f64
    }

    /// Draws the requested keys, in an order of their own.
    pub fn draws(&self, skew: Access, seed: u64) -> Vec<u32> {
        let mut random = fastrand::Rng::with_seed(seed);
        let keys = u64::from(self.keys);
        let shares = cumulated(skew, self.keys);
        let mut draw = || match &shares {
            None => random.u64(..keys) as u32,
            Some(shares) => {
                let at = random.f64() * shares.last().copied().unwrap_or_default();
                let rank = shares.partition_point(|share| *share <= at) as u64;
                // Hot keys are not those that were stored first, and they do not lie together.
                (rank.min(keys - 1) * STRIDE % keys) as u32
            }
        };
        (0..DRAWS).map(|_| draw()).collect()
    }
}

/// A prime, so that all ranks have keys of their own.
const STRIDE: u64 = 2_654_435_761;

/// Returns the cumulated frequency of keys up to a rank; `None` where all are alike.
fn cumulated(skew: Access, keys: u32) -> Option<Vec<f64>> {
    let share = |rank: u32| match skew {
        Access::Even => None,
        // 80 % of the accesses for 20 % of the keys.
        Access::Pareto => Some(if rank < keys.div_ceil(5) { 16.0 } else { 1.0 }),
        Access::Zipf(s) => Some(f64::from(rank + 1).powf(-s)),
    };
    let mut sum = 0.0;
    let mut add = |rank: u32| {
        sum += share(rank)?;
        Some(sum)
    };
    (0..keys).map(&mut add).collect()
}

/// Writes a key.
pub fn push_key(target: &mut Vec<u8>, key: u32) {
    let mut digits = [b'0'; 8];
    let mut left = key;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (left % 10) as u8;
        left /= 10;
    }
    target.extend_from_slice(PREFIX.as_bytes());
    target.extend_from_slice(&digits);
}

/// Reads a key.
pub fn key_of(text: &[u8]) -> Option<u32> {
    let digits = text.strip_prefix(PREFIX.as_bytes())?;
    let number = breakeven_memcached::client::number(digits).filter(|_| digits.len() == 8)?;
    u32::try_from(number).ok()
}

/// SplitMix64 (Steele, Lea and Flood 2014).
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Makes up records as programs keep them in caches: JSON with names that repeat and contents that hardly do.
fn made_up(seed: u64) -> Vec<Box<[u8]>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let words: Vec<String> = (0..4000)
        .map(|_| {
            (0..random.usize(2..10))
                .map(|_| random.lowercase())
                .collect()
        })
        .collect();
    let record = |random: &mut fastrand::Rng| {
        let length = random.usize(MADE_UP_BYTES);
        let mut text = format!(
            "{{\"id\":{},\"created_at\":\"2026-{:02}-{:02}T{:02}:{:02}:00Z\",\"token\":\"{:016x}\",\"score\":{:.3},\"text\":\"",
            random.u32(..),
            random.u8(1..13),
            random.u8(1..29),
            random.u8(..24),
            random.u8(..60),
            random.u64(..),
            random.f64() * 100.0,
        );
        while text.len() + 16 < length {
            // Frequent words are drawn as a power law would.
            let rank = (words.len() as f64).powf(random.f64()) as usize;
            text.push_str(&words[rank.min(words.len() - 1)]);
            text.push(' ');
        }
        text.push_str("\",\"ok\":true}");
        text.into_bytes().into_boxed_slice()
    };
    (0..MADE_UP).map(|_| record(&mut random)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let check = |key: u32| {
            let mut text = Vec::new();
            push_key(&mut text, key);
            assert_eq!(key_of(&text), Some(key), "{}", text.escape_ascii());
        };
        [0, 7, 99_999_999].into_iter().for_each(check);
        assert_eq!(key_of(b"bench:1"), None);
        assert_eq!(key_of(b"other:00000001"), None);
    }

    #[test]
    fn made_up_values_have_the_lengths_and_are_the_same_again() {
        let values = Values::load(None, 10, 3).unwrap();
        let again = Values::load(None, 10, 3).unwrap();
        for key in 0..10 {
            assert_eq!(values.of(key), again.of(key));
            assert!((100..1100).contains(&values.of(key).len()), "{key}");
        }
    }

    #[test]
    fn draws_follow_the_skew() {
        let values = Values::load(None, 1000, 1).unwrap();
        let check = |skew: Access, hottest: std::ops::Range<usize>| {
            let mut counts = vec![0; 1000];
            values
                .draws(skew, 1)
                .iter()
                .for_each(|key| counts[*key as usize] += 1);
            let most = counts.iter().copied().max().unwrap();
            assert!(hottest.contains(&most), "{skew}: {most} of {DRAWS}");
            assert!(counts.iter().all(|count| *count > 0), "{skew}");
        };
        check(Access::Even, 1000..1300);
        check(Access::Pareto, 4000..4700);
        // The first of 1,000 has 1 / 7.485.
        check(Access::Zipf(1.0), 135_000..145_000);
    }
}
