//! The prediction of splits: the shadow's replicas on made-up or recorded accesses, without blocks and without a clock.
//!
//! [`predict`] runs one replica for each [`Arm`] and counts the outcomes of its accesses: misses, restorations,
//! compressions. The caller prices these, so one run answers for any price. A data set of more blocks than a shadow can
//! know is scaled down together with the memory. Of made-up accesses, each key stands for several blocks of adjacent
//! rank, so that no skew is lost. Of a trace, a sample of the keys is kept, as the shadow does (SHARDS, FAST 2015). The
//! first part of the accesses fills the cache and is not counted.
//!
//! It leaves out trials, and the time to find and to fill the split.
#![deny(unsafe_code)]

use std::collections::HashSet;

use super::costs::{AccessPrices, CLASS_COUNT, Costs, PerByte};
use super::evict::RAW_SLABS_MIN;
use super::replica::{Arm, Events, METHODS_MAX, PACKED_SHARE_MAX};
use super::shadow::{GROUPS, Sample, Shadow};
use super::shard::ShardOptions;
use crate::codec::Method;
use crate::error::{Error, Result};
use crate::model::{Access, Coverage};
use crate::statistics::student_t_975;
use crate::units::Estimate;

/// Keys into which made-up data are cut.
const KEYS_MADE_UP: u64 = 1 << 14;
/// Accesses that are made up for each key.
const ACCESSES_PER_KEY: u64 = 24;
/// The most keys of a trace; beyond them a sample stands for all.
const KEYS_OF_TRACE_MAX: usize = 60_000;
/// The share of the memory that is not the shadow's.
const SLABS_SHARE: f64 = 1.0 - 1.0 / 200.0;
/// Slabs without room for blocks: on average three slabs are half full.
const SLABS_UNUSED: f64 = 1.5;
/// The share of the accesses that fill the cache.
const FILLING_SHARE: f64 = 1.0 / 3.0;
/// Seed of made-up accesses.
const SEED: u64 = 7;
/// Replicas that one shadow may have.
const ARMS_MAX: usize = 256;

/// The accesses.
#[derive(Clone, Copy, Debug)]
pub enum Accesses<'a> {
    /// Made up: their distribution over so many blocks.
    MadeUp(Access, u64),
    /// The keys of a trace, in order.
    Trace(&'a [u64]),
}

/// Blocks that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct BlockKind {
    /// Their share of all blocks; shares are taken in proportion.
    pub share: f64,
    /// The bytes that each method leaves of a raw byte. A block that keeps more than 7/8 of its bytes is never held
    /// compressed.
    pub packed_per_raw: Vec<f64>,
}

/// A cache to predict.
#[derive(Clone, Debug)]
pub struct Prospect {
    /// Memory for blocks, compressed ones among them.
    pub memory_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Methods that may compress, at most 4.
    pub methods: Vec<Method>,
    /// The kinds of the blocks, at most 8. The kind of a key is independent of its popularity.
    pub kinds: Vec<BlockKind>,
    /// The splits to try, without raw-only.
    pub arms: Vec<Arm>,
    /// The part of the usual number of keys to simulate, above 0 and at most 1. Fewer keys take less time, and give a
    /// wider band.
    pub part: f64,
}

/// The outcome of accesses under one split.
#[derive(Clone, Debug, PartialEq)]
pub struct Predicted {
    /// The split.
    pub arm: Arm,
    /// By groups of keys, whose disagreement shows the error.
    groups: [Events; GROUPS],
}

impl Predicted {
    /// Returns the sum of all counted accesses.
    pub fn events(&self) -> Events {
        let mut all = Events::default();
        self.groups.iter().for_each(|group| all.add(group));
        all
    }

    /// Returns the cost over that of another split, at the given prices of events, with its 95 % interval.
    ///
    /// Source: Cochran 1977, section 6.3, over groups of keys (ratio of sums).
    pub fn cost_ratio(&self, other: &Predicted, cost: impl Fn(&Events) -> f64) -> Estimate {
        let pairs: Vec<(f64, f64)> = (self.groups.iter().zip(&other.groups))
            .map(|(one, other)| (cost(one), cost(other)))
            .collect();
        let whole: f64 = pairs.iter().map(|(_, other)| other).sum();
        if whole <= 0.0 {
            return Estimate::exact(1.0);
        }
        let ratio = pairs.iter().map(|(one, _)| one).sum::<f64>() / whole;
        let squares: f64 = (pairs.iter())
            .map(|(one, other)| (one - ratio * other).powi(2))
            .sum();
        let count = GROUPS as f64;
        let error = (squares * count / (count - 1.0)).sqrt() / whole;
        Estimate::plus_minus(ratio, student_t_975(GROUPS - 1) * error)
    }
}

/// Predicts a cache: the outcome of accesses under raw-only, which comes first in the result, and under each split.
///
/// # Errors
///
/// [`Error::Invalid`] for no block or no access, and for too many methods, kinds or splits.
///
/// # Cost
///
/// Some 20 ns for each access and split. With 30 splits, made-up accesses take a quarter of a second, and a part of
/// them takes as much less.
///
/// # Example
///
/// ```
/// use breakeven::cache::{Accesses, Arm, BlockKind, Prospect, predict};
/// use breakeven::model::Access;
///
/// let half = Arm { compressed_share: 0.5, method: 0, admits_once: true };
/// let prospect = Prospect {
///     memory_bytes: 16 << 20,
///     block_bytes: 8192,
///     methods: vec!["zstd:1".parse()?],
///     kinds: vec![BlockKind { share: 1.0, packed_per_raw: vec![0.25] }],
///     arms: vec![half],
///     part: 1.0,
/// };
/// let found = predict(&prospect, Accesses::MadeUp(Access::Zipf(0.9), 8192))?;
/// assert!(found[1].events().misses < found[0].events().misses);
/// # Ok::<(), breakeven::Error>(())
/// ```
pub fn predict(prospect: &Prospect, accesses: Accesses<'_>) -> Result<Vec<Predicted>> {
    prospect.check()?;
    match accesses {
        Accesses::MadeUp(access, blocks) => {
            if blocks == 0 {
                return Err(Error::invalid("data", "no block"));
            }
            let strata = Strata::new(access, blocks, prospect.part);
            let kept = strata.weights.len() as f64 / blocks as f64;
            let count = ACCESSES_PER_KEY * strata.weights.len() as u64;
            Ok(prospect.run(strata.take(count as usize), count, kept))
        }
        Accesses::Trace(keys) => {
            if keys.is_empty() {
                return Err(Error::invalid("trace", "no access"));
            }
            let all: HashSet<u64> = keys.iter().copied().collect();
            let kept = (prospect.part * KEYS_OF_TRACE_MAX as f64 / all.len() as f64).min(1.0);
            let threshold = (kept * u64::MAX as f64) as u64;
            let wanted = |key: &u64| kept >= 1.0 || mixed(*key) <= threshold;
            let found = all.iter().filter(|key| wanted(key)).count();
            let count = keys.iter().filter(|key| wanted(key)).count() as u64;
            let sampled = keys.iter().copied().filter(wanted);
            Ok(prospect.run(sampled, count, found as f64 / all.len() as f64))
        }
    }
}

impl Prospect {
    fn check(&self) -> Result<()> {
        let within = |what: &'static str, count: usize, most: usize| match count {
            0 => Err(Error::invalid(what, "none")),
            count if count > most => Err(Error::invalid(
                what,
                format!("{count}, expected at most {most}"),
            )),
            _ => Ok(()),
        };
        within("number of methods", self.methods.len(), METHODS_MAX)?;
        within("kinds of blocks", self.kinds.len(), CLASS_COUNT)?;
        within("number of splits", self.arms.len() + 1, ARMS_MAX)?;
        within("block size", self.block_bytes as usize, 1 << 30)?;
        if !(self.part > 0.0 && self.part <= 1.0) {
            let reason = format!("{}, expected more than 0 and at most 1", self.part);
            return Err(Error::invalid("part of the keys", reason));
        }
        let methods = self.methods.len();
        let fits = self
            .kinds
            .iter()
            .all(|kind| kind.packed_per_raw.len() == methods)
            && self
                .arms
                .iter()
                .all(|arm| usize::from(arm.method) < methods);
        match fits {
            true => Ok(()),
            false => Err(Error::invalid("methods", "not the same for all")),
        }
    }

    /// Runs `count` accesses to a share `kept` of all keys.
    fn run(&self, keys: impl Iterator<Item = u64>, count: u64, kept: f64) -> Vec<Predicted> {
        let arms: Vec<Arm> = std::iter::once(Arm::RAW_ONLY)
            .chain(self.arms.iter().copied())
            .collect();
        let memory = SLABS_SHARE * self.memory_bytes as f64;
        let slab = self.slab_bytes();
        let usable = (memory - SLABS_UNUSED * slab).max(0.0);
        // A small cache compresses less than requested, because raw blocks keep some slabs.
        let share_max = (1.0 - RAW_SLABS_MIN as f64 * slab / memory).max(0.0);
        let held = arms.iter().map(|arm| Arm {
            compressed_share: arm.compressed_share.min(share_max),
            ..*arm
        });
        let mut shadow = Shadow::of_all_keys(held.collect(), (usable * kept) as u64);
        let costs = self.costs();
        let filling = (FILLING_SHARE * count as f64) as u64;
        let mut groups = vec![[Events::default(); GROUPS]; arms.len()];
        for (at, key) in keys.enumerate() {
            let hash = mixed(key);
            let sample = Sample {
                hash,
                raw_bytes: self.block_bytes,
                class: self.kind(hash),
            };
            let group = hash as usize % GROUPS;
            let is_counted = at as u64 >= filling;
            shadow.count(&sample, &costs, |arm, events| {
                if is_counted {
                    groups[arm][group].add(&events);
                }
            });
        }
        let found = arms.into_iter().zip(groups);
        found
            .map(|(arm, groups)| Predicted { arm, groups })
            .collect()
    }

    fn slab_bytes(&self) -> f64 {
        ShardOptions::sized(self.memory_bytes, self.block_bytes as usize).slab_bytes as f64
    }

    /// Only sizes matter, and costs are not needed here. On average, half a compressed block does not fit at the end of
    /// each slab.
    fn costs(&self) -> Costs {
        let block = f64::from(self.block_bytes);
        let slab = self.slab_bytes();
        let mut table = vec![PerByte::default(); CLASS_COUNT * self.methods.len()];
        for (class, kind) in self.kinds.iter().enumerate() {
            for (method, packed) in kind.packed_per_raw.iter().enumerate() {
                let taken = packed * slab / (slab - block * packed.min(1.0) / 2.0);
                table[class * self.methods.len() + method].packed =
                    match *packed <= PACKED_SHARE_MAX {
                        true => taken.min(PACKED_SHARE_MAX),
                        false => *packed,
                    };
            }
        }
        Costs::told(AccessPrices::default(), &self.methods, table)
    }

    /// The kind of a key's block.
    fn kind(&self, hash: u64) -> u8 {
        let all: f64 = self.kinds.iter().map(|kind| kind.share).sum();
        let mut left = (mixed(hash) >> 11) as f64 / (1u64 << 53) as f64 * all;
        let last = self.kinds.len() - 1;
        for (number, kind) in self.kinds.iter().enumerate() {
            left -= kind.share;
            if left < 0.0 {
                return number as u8;
            }
        }
        last as u8
    }
}

/// Keys of made-up accesses. Each stands for as many blocks that follow each other in rank.
struct Strata {
    /// Cumulated shares of the accesses by rank.
    weights: Vec<f64>,
    random: fastrand::Rng,
}

impl Strata {
    fn new(access: Access, blocks: u64, part: f64) -> Strata {
        let count = blocks.min((part * KEYS_MADE_UP as f64).ceil() as u64);
        let weight = |rank: u64| {
            access.hit_ratio(&Coverage {
                cached_buffers: rank as f64 / count as f64 * blocks as f64,
                data_set_buffers: blocks as f64,
            })
        };
        Strata {
            weights: (1..=count).map(weight).collect(),
            random: fastrand::Rng::with_seed(SEED),
        }
    }
}

impl Iterator for Strata {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let at = self.random.f64();
        let rank = self.weights.partition_point(|weight| *weight <= at);
        Some(rank.min(self.weights.len() - 1) as u64)
    }
}

/// A hash that is independent of the key's order (the finalizer of splitmix64).
fn mixed(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}
