//! The cache's report on itself: the place of a block and the reason for it, and the balance of compression.
#![deny(unsafe_code)]

use std::fmt;
use std::hash::{BuildHasher, Hash};

use super::entry::{Flags, Queue};
use super::replica::Arm;
use super::shard::Shard;
use super::shared::Cache;
use crate::codec::Method;
use crate::decide::Earnings;
use crate::units::Estimate;

/// Where a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Nowhere.
    Absent,
    /// Being loaded.
    Loading,
    /// Changed and not yet written, outside the slabs.
    Dirty,
    /// As it is.
    Raw,
    /// Raw, and compressed as well: dropping the raw bytes will cost nothing.
    RawWithTwin,
    /// Compressed.
    Compressed,
    /// As the one byte that fills it.
    Filled,
}

/// The cache's knowledge of a block, and the figures by which it judges the block. Costs are in the unit of the prices.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Where it is.
    pub holding: Holding,
    /// Bytes of the block.
    pub raw_bytes: usize,
    /// Bytes of its compressed form, if it has or had one.
    pub packed_bytes: Option<usize>,
    /// The method of that form, or the one that would make it.
    pub method: Method,
    /// Whether that method saved too little on it.
    pub is_incompressible: bool,
    /// Whether it was asked for again since it was loaded, or came back soon after it was dropped.
    pub is_again: bool,
    /// Raw hits since its last inspection for eviction, 0 to 3.
    pub hits: u8,
    /// The cost of a miss.
    pub miss_cost: f64,
    /// The cost of compressing this block.
    pub encode_cost: f64,
    /// The cost of restoring it.
    pub decode_cost: f64,
    /// The policy in force.
    pub arm: Arm,
}

/// The spending of a cache, and the savings of compression, in the unit of the prices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheLedger {
    /// Spent on misses.
    pub miss_cost: f64,
    /// Spent on compressing.
    pub encode_cost: f64,
    /// Spent on restoring.
    pub decode_cost: f64,
    /// Spent on the shadow and on trials of methods.
    pub overhead_cost: f64,
    /// The saving of compression against the same cache without it, by the shadow's estimate, less the overhead. `None`
    /// where the shadow saw too little.
    pub earnings: Option<Earnings>,
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Cache<K, S> {
    /// Returns the place of a block, and the reason. It does not count as an access.
    pub fn explain(&self, key: &K) -> Explanation {
        let hash = self.hasher.hash_one(key);
        let state = self.slot(hash).lock();
        let mut explanation = state.shard.explain(hash, key);
        if let Some(dirty) = state.dirty.get(key) {
            explanation.holding = Holding::Dirty;
            explanation.raw_bytes = dirty.guard().len();
        } else if explanation.holding == Holding::Absent && state.turns.contains_key(key) {
            explanation.holding = Holding::Loading;
        }
        explanation
    }

    /// Returns the spending and the savings, over all shards.
    pub fn ledger(&self) -> CacheLedger {
        let mut ledger = CacheLedger::default();
        let (mut saved, mut half_squared, mut raw_only) = (0.0, 0.0, 0.0);
        for slot in &self.slots {
            let state = slot.lock();
            let stats = state.shard.stats();
            ledger.miss_cost += stats.miss_cost;
            ledger.encode_cost += stats.encode_cost;
            ledger.decode_cost += stats.decode_cost;
            ledger.overhead_cost += stats.overhead_cost;
            if let Some((gain, cost)) = state.shard.gain() {
                saved += gain.mean;
                half_squared += ((gain.high - gain.low) / 2.0).powi(2);
                raw_only += cost;
            }
        }
        if raw_only > 0.0 {
            // Shards sample different keys, so their errors are independent.
            let saved = saved - ledger.overhead_cost;
            let saved_cost = Estimate::plus_minus(saved, half_squared.sqrt());
            ledger.earnings = Some(Earnings {
                saved_cost,
                saved_share: saved_cost.map(|cost| cost / raw_only),
            });
        }
        ledger
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Shard<K, S> {
    fn explain(&self, hash: u64, key: &K) -> Explanation {
        let last = self.options.methods.len() as u8 - 1;
        let found = self.find(hash, key).map(|number| *self.entries.at(number));
        let (class, raw_bytes) = found.map_or((0, 0), |it| (it.class, it.raw_bytes as usize));
        let packed = found.filter(|it| it.packed_bytes > 0);
        let method = packed.map_or(self.arm.method, |it| it.method).min(last);
        let per_byte = self.costs.per_byte(class, method);
        let has = |flag: u16| found.is_some_and(|it| it.flags.has(flag));
        let holding = match found {
            None => Holding::Absent,
            Some(entry) => match (entry.raw.is_some(), entry.packed.is_some()) {
                (true, true) => Holding::RawWithTwin,
                (true, false) => Holding::Raw,
                (false, _) if has(Flags::IS_FILLED) => Holding::Filled,
                (false, _) => Holding::Compressed,
            },
        };
        Explanation {
            holding,
            raw_bytes,
            packed_bytes: packed.map(|it| it.packed_bytes as usize),
            method: self.options.methods[usize::from(method)],
            is_incompressible: found.is_some_and(|it| it.flags.is_refused(method)),
            is_again: has(Flags::IS_AGAIN) || found.is_some_and(|it| it.queue() == Queue::Main),
            hits: found.map_or(0, |it| it.flags.frequency()),
            miss_cost: self.costs.miss(),
            encode_cost: per_byte.encode * raw_bytes as f64,
            decode_cost: per_byte.decode * raw_bytes as f64,
            arm: self.arm,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (raw, packed) = (self.raw_bytes, self.packed_bytes.unwrap_or(0));
        let method = self.method;
        match self.holding {
            Holding::Absent => write!(f, "not held")?,
            Holding::Loading => write!(f, "being loaded")?,
            Holding::Dirty => write!(f, "{raw} bytes, changed and not written yet")?,
            Holding::Raw => write!(f, "{raw} bytes as they are")?,
            Holding::RawWithTwin => {
                write!(f, "{raw} bytes as they are, and as {packed} by {method}")?;
            }
            Holding::Compressed => write!(f, "{raw} bytes as {packed} by {method}")?,
            Holding::Filled => write!(f, "{raw} bytes that are all the same")?,
        }
        if self.is_incompressible {
            write!(f, "; compressing it saved too little")?;
        } else if raw > 0 {
            let (encode, decode) = (self.encode_cost, self.decode_cost);
            write!(
                f,
                "; {method} costs {encode:.2e} and {decode:.2e} to restore"
            )?;
        }
        write!(f, "; a miss costs {:.2e}; ", self.miss_cost)?;
        let Arm {
            compressed_share,
            admits_once,
            ..
        } = self.arm;
        if compressed_share == 0.0 {
            return write!(f, "compressing does not pay now");
        }
        let whom = match admits_once {
            true => "all",
            false => "what was asked for again once that is full",
        };
        let share = compressed_share * 100.0;
        write!(
            f,
            "{share:.0} % of memory is for compressed blocks, of {whom}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CacheOptions, Policy};
    use super::*;

    #[test]
    fn a_block_is_explained_wherever_it_is() {
        let arm = Arm {
            compressed_share: 0.5,
            method: 1,
            admits_once: true,
        };
        let cache: Cache<u64> = Cache::new(CacheOptions {
            budget_bytes: 400_000,
            block_bytes: 2000,
            shard_count: Some(1),
            policy: Policy::Static(arm),
            ..CacheOptions::default()
        })
        .expect("a cache");
        let check = |key: u64, holding: Holding, words: &str| {
            let found = cache.explain(&key);
            assert_eq!(found.holding, holding, "key {key}: {found}");
            assert!(found.to_string().contains(words), "key {key}: {found}");
        };
        check(0, Holding::Absent, "not held; a miss costs 0.00e0; 50 %");
        for key in 0..300u64 {
            let load = |frame: &mut [u8]| {
                check(key, Holding::Loading, "being loaded");
                frame.fill(7);
                if key != 20 {
                    frame[..8].copy_from_slice(&key.to_le_bytes());
                }
                Ok(())
            };
            cache.get_or_load(key, 2000, load).expect("room");
        }
        check(299, Holding::Raw, "2000 bytes as they are; zstd:1 costs");
        check(20, Holding::Filled, "2000 bytes that are all the same");
        check(21, Holding::Compressed, "by zstd:1; zstd:1 costs");
        for _ in 0..2 {
            cache.get(&21).expect("room").expect("held");
        }
        check(21, Holding::RawWithTwin, "2000 bytes as they are, and as");
        let (before, ledger) = (cache.stats().shards, cache.ledger());
        cache.explain(&21);
        assert_eq!(cache.stats().shards, before, "it is no access");
        assert_eq!(ledger.miss_cost, before.miss_cost);
        assert!(ledger.miss_cost > 0.0 && ledger.encode_cost > 0.0);
        assert_eq!(ledger.earnings, None, "nothing was simulated");
    }
}
