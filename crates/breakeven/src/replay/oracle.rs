//! The bound that no cache can beat on a trace, even with compression and knowledge of the future. Also the best
//! contents that never change.
//!
//! Between two accesses of a block a cache may keep it raw, keep it compressed, or drop it. Keeping it costs bytes for
//! the length of the interval. It saves a miss, less a restoration if the block is compressed. A cache of M bytes has
//! at most M times the length of the trace to spend. Take the best intervals by saving per byte and time while there is
//! room, and a part of the last one. They save at least as much as any cache can. The bytes must fit only on average
//! and not at each moment. Compressing is free, and eviction knows the future.
//!
//! Source: Berger, Beckmann and Harchol-Balter 2018, *Practical Bounds on Optimal Caching with Variable Object Sizes*,
//! section 5 (PFOO-L). The choice of compressed form is ours. It makes each interval a step of a multiple-choice
//! knapsack. The relaxation is solved greedily on the convex hull of its choices (Sinha and Zoltners 1979).
//!
//! No cache knows the next access of a block, but a cache may learn how frequent they are. If accesses are independent
//! of each other, there is nothing else to know. Then no cache does better than one that always holds the blocks that
//! save most, raw or compressed. Source: Aho, Denning and Ullman 1971, for blocks of one size.
#![deny(unsafe_code)]

use std::collections::HashMap;

/// The bytes and the cost of a trace's blocks, all the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCosts {
    /// Bytes of a raw block.
    pub raw_bytes: f64,
    /// Bytes of a block compressed.
    pub packed_bytes: f64,
    /// Cost of a miss.
    pub miss: f64,
    /// Cost of restoring a block.
    pub decode: f64,
}

/// A step of one interval, or of one block: a saving, and its bytes times accesses, or bytes.
struct Step {
    saved: f64,
    volume: f64,
}

/// Returns a lower bound for the cost of any cache of `memory_bytes` on these accesses, with any use of compression, in
/// the unit of the costs.
///
/// # Cost
///
/// 16 bytes a key and 32 an access; a sort of all intervals.
///
/// # Example
///
/// ```
/// use breakeven::replay::{BlockCosts, least_cost};
/// let costs = BlockCosts { raw_bytes: 8.0, packed_bytes: 4.0, miss: 10.0, decode: 1.0 };
/// // Room for both blocks raw: two first misses and nothing more.
/// assert_eq!(least_cost(&[1, 2, 1, 2], &costs, 16.0), 20.0);
/// ```
pub fn least_cost(keys: &[u64], costs: &BlockCosts, memory_bytes: f64) -> f64 {
    let mut steps = Vec::new();
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (now, &key) in keys.iter().enumerate() {
        if let Some(before) = last.insert(key, now) {
            add_steps((1.0, (now - before) as f64), costs, &mut steps);
        }
    }
    let room = memory_bytes * keys.len() as f64;
    keys.len() as f64 * costs.miss - most_saved(steps, room)
}

/// Returns the cost of these accesses if the memory holds the same blocks from their first access to the end, in their
/// cheapest forms. This is the best for a cache that knows how often each block is asked for, but not when. Compressing
/// is free, and part of a block may be held.
///
/// # Cost
///
/// 16 bytes a key; a sort of all keys.
///
/// # Example
///
/// ```
/// use breakeven::replay::{BlockCosts, least_cost_of_fixed_contents};
/// let costs = BlockCosts { raw_bytes: 8.0, packed_bytes: 4.0, miss: 10.0, decode: 1.0 };
/// // Room for one block raw, or for both compressed: two first misses and two restorations.
/// assert_eq!(least_cost_of_fixed_contents(&[1, 2, 1, 2], &costs, 8.0), 22.0);
/// ```
pub fn least_cost_of_fixed_contents(keys: &[u64], costs: &BlockCosts, memory_bytes: f64) -> f64 {
    let mut counts: HashMap<u64, f64> = HashMap::new();
    for &key in keys {
        *counts.entry(key).or_default() += 1.0;
    }
    let mut steps = Vec::new();
    for count in counts.values() {
        add_steps((count - 1.0, 1.0), costs, &mut steps);
    }
    keys.len() as f64 * costs.miss - most_saved(steps, memory_bytes)
}

/// Returns the joint saving of the best steps that fit, the last one in part.
fn most_saved(mut steps: Vec<Step>, mut room: f64) -> f64 {
    let worth = |step: &Step| step.saved / step.volume.max(f64::MIN_POSITIVE);
    steps.sort_by(|one, other| worth(other).total_cmp(&worth(one)));
    let mut saved = 0.0;
    for step in &steps {
        let part = (room / step.volume.max(f64::MIN_POSITIVE)).min(1.0);
        saved += part * step.saved;
        room -= part * step.volume;
        if room <= 0.0 {
            break;
        }
    }
    saved
}

/// Adds the choices of a block on their convex hull: compressed, then raw instead; or raw at once. The block is asked
/// for again `count` times while it is held for `length`.
fn add_steps((count, length): (f64, f64), costs: &BlockCosts, steps: &mut Vec<Step>) {
    let raw = Step {
        saved: count * costs.miss,
        volume: costs.raw_bytes * length,
    };
    let packed = Step {
        saved: count * (costs.miss - costs.decode),
        volume: costs.packed_bytes * length,
    };
    let is_on_hull = packed.saved > 0.0 && packed.saved * raw.volume > raw.saved * packed.volume;
    if !is_on_hull {
        steps.push(raw);
        return;
    }
    steps.push(Step {
        saved: raw.saved - packed.saved,
        volume: raw.volume - packed.volume,
    });
    steps.push(packed);
}

#[cfg(test)]
mod tests {
    use super::*;

    const COSTS: BlockCosts = BlockCosts {
        raw_bytes: 8.0,
        packed_bytes: 2.0,
        miss: 10.0,
        decode: 1.0,
    };

    fn check(keys: &[u64], memory_bytes: f64, expected: f64) {
        let found = least_cost(keys, &COSTS, memory_bytes);
        assert!(
            (found - expected).abs() < 1e-9,
            "{keys:?}: {found}, expected {expected}"
        );
    }

    #[test]
    fn small_traces_by_hand() {
        check(&[1, 2, 3], 100.0, 30.0);
        check(&[1, 1, 1], 0.0, 30.0);
        check(&[1, 1, 1], 8.0, 10.0);
        // Two intervals of two accesses, 4 * 4 bytes times accesses. Both compressed take 8 and leave 8, of the further
        // 24 for both raw.
        check(&[1, 2, 1, 2], 4.0, 20.0 + 2.0 - 2.0 * 8.0 / 24.0);
        // With ratio 1 and a dear restoration, compressing is never chosen.
        let costs = BlockCosts {
            packed_bytes: 8.0,
            decode: 20.0,
            ..COSTS
        };
        assert_eq!(least_cost(&[1, 1, 1], &costs, 8.0), 10.0);
        assert_eq!(least_cost(&[], &costs, 8.0), 0.0);
    }

    #[test]
    fn fixed_contents_by_hand() {
        let check = |keys: &[u64], memory_bytes: f64, expected: f64| {
            let found = least_cost_of_fixed_contents(keys, &COSTS, memory_bytes);
            assert!(
                (found - expected).abs() < 1e-9,
                "{keys:?}: {found}, expected {expected}"
            );
        };
        check(&[1, 2, 3], 100.0, 30.0);
        check(&[1, 1, 1], 0.0, 30.0);
        check(&[1, 1, 1], 2.0, 12.0);
        check(&[1, 1, 1], 8.0, 10.0);
        // Both compressed take 4. The 3 bytes left are half of the further bytes for 1 raw at its second hit.
        check(&[1, 2, 1, 2, 1], 7.0, 20.0 + 3.0 - 0.5 * 2.0);
        // One of them has twice as many accesses, and it alone is raw.
        check(&[1, 1, 1, 2, 2], 10.0, 20.0 + 1.0);
        assert_eq!(least_cost_of_fixed_contents(&[], &COSTS, 8.0), 0.0);
    }

    /// Knowing the times is never worse than knowing the frequencies.
    #[test]
    fn contents_that_change_cost_no_more_than_fixed_ones() {
        let mut random = crate::testing::seeded("fixed contents", 8);
        for _ in 0..200 {
            let keys: Vec<u64> = (0..40).map(|_| random.u64(0..8)).collect();
            for memory in [0.0, 3.0, 10.0, 30.0] {
                let fixed = least_cost_of_fixed_contents(&keys, &COSTS, memory);
                assert!(least_cost(&keys, &COSTS, memory) <= fixed + 1e-9);
            }
        }
    }

    /// The least cost of one block size by trying every choice at every access.
    fn exhaustive(keys: &[u64], memory: i64) -> f64 {
        fn go(keys: &[u64], held: &mut Vec<(u64, i64)>, memory: i64) -> f64 {
            let Some((&key, rest)) = keys.split_first() else {
                return 0.0;
            };
            let at = held.iter().position(|it| it.0 == key);
            let cost = match at.map(|at| held.swap_remove(at).1) {
                None => 10.0,
                Some(8) => 0.0,
                Some(_) => 1.0,
            };
            held.push((key, 8));
            let mut best = f64::INFINITY;
            // Held blocks may be dropped or compressed, in any combination.
            let choices = 3usize.pow(held.len() as u32);
            for choice in 0..choices {
                let mut next = Vec::new();
                let mut code = choice;
                for &(key, bytes) in held.iter() {
                    match code % 3 {
                        0 => {}
                        1 => next.push((key, 2)),
                        _ => next.push((key, bytes)),
                    }
                    code /= 3;
                }
                if next.iter().map(|it| it.1).sum::<i64>() <= memory {
                    best = best.min(go(rest, &mut next, memory));
                }
            }
            cost + best
        }
        go(keys, &mut Vec::new(), memory)
    }

    #[test]
    fn no_choice_of_any_cache_is_cheaper() {
        let mut random = crate::testing::seeded("bound", 8);
        let mut tried = 0;
        for _ in 0..60 {
            let keys: Vec<u64> = (0..6).map(|_| random.u64(0..3)).collect();
            for memory in [0, 2, 4, 8, 10, 16] {
                let bound = least_cost(&keys, &COSTS, memory as f64);
                let best = exhaustive(&keys, memory);
                assert!(
                    bound <= best + 1e-9,
                    "{keys:?} in {memory}: {bound} above {best}"
                );
                tried += 1;
            }
        }
        println!("{tried} bounds at or below the best of all choices");
        assert_eq!(tried, 360);
    }
}
