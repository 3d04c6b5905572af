//! Made-up workloads: the access patterns for comparing caches.
//!
//! A [`Workload`] draws keys `0..blocks` by a [`Pattern`], always the same for one seed. Two patterns are those of
//! Harper 2018, chapter 4 (even, Pareto). Replacement policies differ on the others: skew, loops, scans between hot
//! blocks, and phases.
#![deny(unsafe_code)]

/// How keys are asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// Every key equally often.
    Even,
    /// 80 % of the accesses go to 20 % of the keys.
    Pareto,
    /// The k-th hottest key in proportion to `k^-s`.
    Zipf(f64),
    /// One key after the other, again and again.
    Loop,
    /// Zipf, interrupted by sequential scans: exponent, and the share of accesses in scans.
    Scans {
        /// Exponent of the accesses between.
        exponent: f64,
        /// The share of accesses in scans, 0 to 1.
        share: f64,
    },
    /// One pattern after the other, each for so many accesses, with other hot keys each time.
    Phases(Vec<Pattern>, u64),
}

/// Keys of a scan come in runs of this length.
const SCAN_RUN: u64 = 512;

/// A source of keys.
#[derive(Clone, Debug)]
pub struct Workload {
    pattern: Pattern,
    blocks: u64,
    random: fastrand::Rng,
    /// Cumulated weights by rank, for the Zipf exponents of the pattern.
    zipf: Vec<(f64, Vec<f64>)>,
    drawn: u64,
    scanned: u64,
    /// Accesses left of the current scan.
    run: u64,
}

impl Workload {
    /// Makes a source of keys `0..blocks`.
    ///
    /// # Panics
    ///
    /// If there is no block, or no pattern in a row of phases.
    ///
    /// # Cost
    ///
    /// 8 bytes a block for each exponent.
    pub fn new(pattern: Pattern, blocks: u64, seed: u64) -> Workload {
        assert!(blocks > 0, "a workload without blocks");
        let mut workload = Workload {
            zipf: Vec::new(),
            blocks,
            random: fastrand::Rng::with_seed(seed),
            drawn: 0,
            scanned: 0,
            run: 0,
            pattern: pattern.clone(),
        };
        workload.prepare(&pattern);
        workload
    }

    fn prepare(&mut self, pattern: &Pattern) {
        match pattern {
            Pattern::Zipf(exponent) | Pattern::Scans { exponent, .. } => {
                let mut sum = 0.0;
                let weights = (1..=self.blocks).map(|rank| {
                    sum += (rank as f64).powf(-exponent);
                    sum
                });
                self.zipf.push((*exponent, weights.collect()));
            }
            Pattern::Phases(patterns, _) => {
                assert!(!patterns.is_empty(), "phases without a pattern");
                patterns.iter().for_each(|pattern| self.prepare(pattern));
            }
            Pattern::Even | Pattern::Pareto | Pattern::Loop => {}
        }
    }

    fn zipf(&mut self, exponent: f64) -> u64 {
        let (_, weights) = (self.zipf.iter().find(|it| it.0 == exponent)).expect("prepared");
        let at = self.random.f64() * weights.last().copied().unwrap_or(1.0);
        weights.partition_point(|&weight| weight <= at) as u64
    }

    fn draw(&mut self, pattern: &Pattern) -> u64 {
        match *pattern {
            Pattern::Even => self.random.u64(0..self.blocks),
            Pattern::Pareto => {
                let hot = (self.blocks / 5).max(1);
                match self.random.f64() < 0.8 || hot == self.blocks {
                    true => self.random.u64(0..hot),
                    false => self.random.u64(hot..self.blocks),
                }
            }
            Pattern::Zipf(exponent) => self.zipf(exponent),
            Pattern::Loop => self.drawn % self.blocks,
            Pattern::Scans { exponent, share } => {
                if self.run == 0 && self.random.f64() < share / SCAN_RUN as f64 / (1.0 - share) {
                    self.run = SCAN_RUN;
                }
                if self.run == 0 {
                    return self.zipf(exponent);
                }
                self.run -= 1;
                self.scanned += 1;
                self.scanned % self.blocks
            }
            Pattern::Phases(ref patterns, accesses) => {
                let phase = self.drawn / accesses.max(1);
                let pattern = &patterns[(phase % patterns.len() as u64) as usize];
                let key = self.draw(pattern);
                // Other keys are hot in each phase.
                (key + phase * (self.blocks / 3)) % self.blocks
            }
        }
    }
}

impl Iterator for Workload {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let pattern = std::mem::replace(&mut self.pattern, Pattern::Even);
        let key = self.draw(&pattern);
        self.pattern = pattern;
        self.drawn += 1;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Access, Coverage};

    fn hot_share(pattern: Pattern, hot: u64) -> f64 {
        let keys = Workload::new(pattern, 1000, 3).take(200_000);
        keys.filter(|&key| key < hot).count() as f64 / 200_000.0
    }

    #[test]
    fn patterns_spread_as_the_model_says() {
        for (pattern, access) in [
            (Pattern::Even, Access::Even),
            (Pattern::Pareto, Access::Pareto),
            (Pattern::Zipf(0.7), Access::Zipf(0.7)),
            (Pattern::Zipf(1.1), Access::Zipf(1.1)),
        ] {
            for hot in [1, 50, 200, 700] {
                let expected = access.hit_ratio(&Coverage {
                    cached_buffers: hot as f64,
                    data_set_buffers: 1000.0,
                });
                let found = hot_share(pattern.clone(), hot);
                assert!(
                    (found - expected).abs() < 0.006,
                    "{pattern:?} {hot}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn loops_and_scans_go_in_order() {
        let keys: Vec<u64> = Workload::new(Pattern::Loop, 3, 1).take(7).collect();
        assert_eq!(keys, [0, 1, 2, 0, 1, 2, 0]);
        let pattern = Pattern::Scans {
            exponent: 1.0,
            share: 0.3,
        };
        let keys: Vec<u64> = Workload::new(pattern, 100_000, 1).take(300_000).collect();
        let steps = keys
            .windows(2)
            .filter(|pair| pair[1] == pair[0] + 1)
            .count();
        let share = steps as f64 / keys.len() as f64;
        assert!((share - 0.3).abs() < 0.03, "{share}");
    }

    #[test]
    fn the_same_seed_draws_the_same_and_phases_differ() {
        let pattern = Pattern::Phases(vec![Pattern::Zipf(1.0), Pattern::Even], 1000);
        let draw = |seed| {
            Workload::new(pattern.clone(), 500, seed)
                .take(3000)
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
        let keys = draw(5);
        let hottest = |keys: &[u64], key| keys.iter().filter(|it| **it == key).count();
        assert!(hottest(&keys[..1000], 0) > 100);
        assert!(hottest(&keys[1000..2000], 0) < 20, "an even phase");
        assert!(hottest(&keys[2000..], 2 * 166) > 100, "hot keys moved");
    }
}
