//! A requested expansion factor in place of a split: the compressed share follows from the ratio of the data.
//!
//! Where memory is short and time is not, the user knows the data to be held and not the cost of a miss. IBM's Active
//! Memory Expansion has the same input. The cache must hold `factor` times the bytes in use. The share follows from the
//! bytes of blocks that a byte of either pool holds, which are measured as the cache works. With d for the raw pool and
//! e for the compressed one, s = (wanted - d) / (e - d). Here `wanted` is the factor that the pools alone must reach,
//! since entries and lists hold nothing.
#![deny(unsafe_code)]

use super::replica::Arm;

/// The largest share: some blocks are always raw.
const SHARE_MAX: f64 = 0.95;
/// The most by which the share moves each time a segment leaves.
const STEP_MAX: f64 = 0.02;
/// The assumed bytes that a byte of the pool holds before anything is compressed.
const DENSITY_GUESS: f64 = 2.0;
/// The number of leaving segments, for each slab of the budget, before the next method is taken. The method must have
/// held too little for all of them, since a pool fills slowly.
const PATIENCE: usize = 3;
/// A method also holds too little where it fills less than this part of the room of its share. Most blocks then do not
/// shrink by it.
const FILLED_MIN: f64 = 0.5;

/// The contents of the pools.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pools {
    /// Slabs that the budget leaves room for.
    pub slabs_max: usize,
    pub slab_bytes: f64,
    pub raw_slabs: usize,
    pub packed_slabs: usize,
    /// Raw bytes of the blocks that are raw, and of those that are only compressed.
    pub raw_bytes: f64,
    pub only_packed_bytes: f64,
    /// The whole budget.
    pub budget_bytes: f64,
}

/// A shard's progress towards its factor.
#[derive(Debug)]
pub(super) struct Expansion {
    factor: f64,
    method_count: u8,
    /// Segments that left while the method held too little.
    short_for: usize,
}

impl Expansion {
    pub fn new(factor: f64, method_count: usize) -> Expansion {
        Expansion {
            factor,
            method_count: method_count as u8,
            short_for: 0,
        }
    }

    /// Returns the arm to go on with.
    pub fn next(&mut self, arm: Arm, pools: &Pools) -> Arm {
        let room = pools.slabs_max.max(1) as f64 * pools.slab_bytes;
        let wanted = self.factor * pools.budget_bytes / room;
        let density = |bytes: f64, slabs: usize| bytes / (slabs as f64 * pools.slab_bytes);
        let raw = match pools.raw_slabs {
            0 => 1.0,
            slabs => density(pools.raw_bytes, slabs).min(1.0),
        };
        // A pool of a slab or two is mostly unused room.
        let packed = match pools.packed_slabs {
            0..4 => DENSITY_GUESS,
            slabs => density(pools.only_packed_bytes, slabs),
        };
        let share = match packed > raw {
            true => ((wanted - raw) / (packed - raw)).clamp(0.0, SHARE_MAX),
            false => SHARE_MAX,
        };
        let share = if wanted <= raw { 0.0 } else { share };
        let step = (share - arm.compressed_share).clamp(-STEP_MAX, STEP_MAX);
        let compressed_share = arm.compressed_share + step;
        let given = compressed_share * pools.slabs_max as f64;
        let is_unfilled = (pools.packed_slabs as f64) < FILLED_MIN * given;
        let is_short = (compressed_share >= SHARE_MAX || is_unfilled)
            && (raw * pools.raw_slabs as f64 + packed * pools.packed_slabs as f64)
                < wanted * pools.slabs_max as f64;
        self.short_for = if is_short { self.short_for + 1 } else { 0 };
        let mut method = arm.method;
        if self.short_for > PATIENCE * pools.slabs_max && method + 1 < self.method_count {
            method += 1;
            self.short_for = 0;
        }
        Arm {
            compressed_share,
            method,
            admits_once: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bench, MissTime, Policy, Record, RecordedMethod, Shard, ShardOptions};
    use super::*;
    use crate::units::Seconds;

    /// Runs a shard with these ratios of its two methods. Returns its bytes held over its budget, and its arm.
    fn held(factor: f64, ratios: [f64; 2]) -> (f64, Arm) {
        let names = ["lz4:1", "zstd:1"];
        let methods = names.map(|name| name.parse().expect("a method"));
        let record = Record {
            methods: methods
                .into_iter()
                .zip(ratios)
                .map(|(method, ratio)| RecordedMethod {
                    method,
                    encode_seconds_per_byte: 1e-9,
                    decode_seconds_per_byte: 1e-9,
                    ratios: [ratio; 2],
                })
                .collect(),
            miss: MissTime::default(),
            shadow_sample: Seconds(0.0),
        };
        let mut bench = Bench::recorded(record);
        let mut shard: Shard<u64> = Shard::new(ShardOptions {
            policy: Policy::Expansion(factor),
            ..ShardOptions::sized(8 << 20, 4096)
        })
        .expect("a shard");
        for access in 0..60_000_u64 {
            // Accesses are even over more blocks than it can ever hold.
            let key = access.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
            shard
                .get_or_load(key, 4096, &mut bench, |frame| {
                    frame[..8].copy_from_slice(&key.to_le_bytes());
                    frame[8] = !frame[0];
                    Ok(())
                })
                .expect("loaded");
        }
        let memory = shard.memory();
        assert!(memory.in_use_bytes() <= memory.budget_bytes);
        let held = memory.held_bytes as f64 / memory.budget_bytes as f64;
        (held, shard.arm())
    }

    #[test]
    fn the_factor_is_met_where_the_data_allow() {
        for (factor, ratios, method) in [
            (1.5, [2.5, 4.0], 0),
            (2.0, [4.0, 6.0], 0),
            (2.5, [1.6, 4.0], 1),
            // The first shrinks nothing.
            (1.15, [1.0, 1.33], 1),
        ] {
            let (found, arm) = held(factor, ratios);
            println!("{factor} of {ratios:?}: {found:.3}, {arm:?}");
            assert!((found / factor - 1.0).abs() < 0.05, "{factor}: {found}");
            assert_eq!(arm.method, method);
            assert!(arm.compressed_share < SHARE_MAX, "{arm:?}");
        }
    }

    #[test]
    fn what_cannot_be_held_takes_all_there_is_and_nothing_of_nothing() {
        let (found, arm) = held(8.0, [2.0, 3.0]);
        assert_eq!((arm.compressed_share, arm.method), (SHARE_MAX, 1));
        assert!((2.4..3.0).contains(&found), "{found}");
        let (found, _) = held(2.0, [1.0, 1.0]);
        assert!((0.85..1.0).contains(&found), "{found}");
        let (found, arm) = held(0.5, [2.0, 4.0]);
        assert_eq!(arm.compressed_share, 0.0);
        assert!((0.85..1.0).contains(&found), "{found}");
    }

    #[test]
    fn a_factor_that_means_nothing_is_refused() {
        for factor in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let options = ShardOptions {
                policy: Policy::Expansion(factor),
                ..ShardOptions::default()
            };
            assert!(Shard::<u64>::new(options).is_err(), "{factor}");
        }
    }
}
