//! The holdout: the small random share of blocks on which both choices are measured.
//!
//! A durable store never stores a block worse to learn the cost of that. [`Holdout::draws`] draws blocks. If a drawn
//! block was stored raw, the place compresses a copy in memory by the decision's best codec and discards it. If it was
//! compressed, the place already knows the codec's cost. In both cases [`price`] gives the costs of both choices, for
//! [`Ledger::counterfactual`](crate::decide::Ledger::counterfactual). It also gives the cost of the sampling, for
//! [`Ledger::overhead`](crate::decide::Ledger::overhead).
//!
//! It draws by a given hash, and prices given sizes and times. It has no bytes, no clock and no randomness.

use crate::codec::Method;
use crate::decide::decision::Decision;
use crate::decide::ledger::Counterfactual;
use crate::decide::price::{BlockLife, Prices, Quantities};
use crate::units::{Estimate, Seconds};

/// The rule that draws blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdout {
    /// One block in so many is drawn. Default 64; 1 for every block.
    pub one_in: u64,
}

impl Default for Holdout {
    fn default() -> Holdout {
        Holdout { one_in: 64 }
    }
}

impl Holdout {
    /// Returns whether a block is drawn, by any hash of its name or number and of a seed. The same block always gets
    /// the same answer, and neighbours are drawn independently of each other.
    ///
    /// # Panics
    /// When the rate is one in 0 blocks.
    pub fn draws(&self, hash: u64) -> bool {
        assert!(self.one_in > 0, "one in 0 blocks");
        // The finalizer of SplitMix64 (Steele, Lea and Flood 2014), since a hash may be a plain number.
        let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) <= u64::MAX / self.one_in
    }
}

/// The codec's time and result for a decision, as the place measured them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Bytes that it leaves; the raw length if it gives up.
    pub stored_bytes: u64,
    /// Core time of encoding.
    pub encode: Seconds,
    /// Core time of decoding it again.
    pub decode: Seconds,
}

/// The cost of both choices on a block, and the cost of the sampling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// Both costs, for the ledger.
    pub counterfactual: Counterfactual,
    /// The cost of encoding in vain, at the prices: 0 if the block was stored by that codec.
    pub overhead_cost: f64,
}

/// Prices both choices for a decided block: by its method, or by its best codec if the method is `store`.
///
/// # Example
/// ```
/// use breakeven::codec::Method;
/// use breakeven::decide::holdout::{self, Holdout, Measured};
/// use breakeven::decide::{choose, BlockLife, Class, Ledger, Offer, Prices, Profile, Quantities, Written};
/// use breakeven::units::{Estimate, Joules, Seconds};
///
/// let life = BlockLife::new(Class::INCOMPRESSIBLE, 4096);
/// let prices = Prices {
///     per_core_second: Estimate::exact(1.0),
///     per_byte_written: Estimate::exact(1e-9),
///     ..Prices::default()
/// };
/// let method: Method = "zstd:3".parse()?;
/// let estimate = Profile::default().estimate(life.class, method, life.raw_bytes);
/// let decision = choose(&life, &prices, 1.0, [Offer::new(method, Quantities::of(&estimate, &life))]);
/// assert_eq!(decision.method, Method::STORE);
///
/// let mut ledger = Ledger::default();
/// let page = Holdout { one_in: 1 };
/// ledger.wrote(&decision, &Written { stored_bytes: 4096, encode: Seconds(0.0), energy: Joules(0.0) });
/// if page.draws(17) {
///     // Here a copy is compressed by `decision.alternative()` and thrown away.
///     let found = Measured { stored_bytes: 4096, encode: Seconds(9e-6), decode: Seconds(1e-6) };
///     let sampled = holdout::price(&decision, &life, &prices, &found);
///     ledger.counterfactual(&decision, &sampled.counterfactual);
///     ledger.overhead(sampled.overhead_cost);
/// }
/// assert_eq!(ledger.stats().samples, 1);
/// # Ok::<(), breakeven::Error>(())
/// ```
pub fn price(decision: &Decision, life: &BlockLife, prices: &Prices, found: &Measured) -> Sampled {
    let was_stored = decision.method == Method::STORE;
    let stored_bytes = found.stored_bytes.min(life.raw_bytes);
    // A block that does not shrink is stored raw, and is never decoded.
    let decode = match stored_bytes == life.raw_bytes {
        true => 0.0,
        false => found.decode.0,
    };
    let codec = Quantities {
        encode_core_seconds: Estimate::exact(found.encode.0),
        decode_core_seconds: Estimate::exact(decode),
        ..Quantities::of_store(life).storing(stored_bytes, life)
    };
    Sampled {
        counterfactual: Counterfactual {
            store_cost: Quantities::of_store(life).cost(life, prices),
            codec_cost: codec.cost(life, prices),
        },
        overhead_cost: match was_stored {
            true => found.encode.0 * prices.per_core_second.mean,
            false => 0.0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Class, Ledger, Offer, Written, choose, seeded};
    use crate::model::Allocation;
    use crate::units::Joules;

    #[test]
    fn one_block_in_so_many_is_drawn_whatever_the_hash() {
        for one_in in [1, 2, 64, 1000] {
            let holdout = Holdout { one_in };
            let blocks = 200_000_u64;
            for step in [1, 4096, 1 << 40] {
                let drawn = (0..blocks).filter(|at| holdout.draws(at * step)).count() as f64;
                let expected = blocks as f64 / one_in as f64;
                // Five standard deviations of so many draws.
                let most = 5.0 * expected.sqrt();
                assert!(
                    (drawn - expected).abs() <= most,
                    "1 in {one_in} of {step}: {drawn}"
                );
            }
        }
    }

    fn life() -> BlockLife {
        BlockLife {
            reads_per_write: Estimate::exact(2.0),
            allocation: Allocation {
                unit_bytes: 1024,
                minimum_bytes: 0,
            },
            held_seconds: Estimate::exact(10.0),
            ..BlockLife::new(Class::TEXT, 4096)
        }
    }

    fn prices() -> Prices {
        Prices {
            per_core_second: Estimate::exact(1000.0),
            per_byte_written: Estimate::exact(0.01),
            per_byte_read: Estimate::exact(0.001),
            per_byte_second_held: Estimate::exact(0.0001),
            ..Prices::default()
        }
    }

    fn decision(stored_share: f64) -> Decision {
        let bytes = Estimate::exact(4096.0 * stored_share);
        let quantities = Quantities {
            stored_bytes: bytes,
            held_bytes: bytes,
            ..Quantities::of_store(&life())
        };
        let method = "zstd:3".parse().expect("a method");
        choose(&life(), &prices(), 1.0, [Offer::new(method, quantities)])
    }

    #[test]
    fn both_choices_are_priced_by_what_was_measured() {
        let check = |decision: &Decision, stored_bytes: u64, codec_cost: f64, overhead: f64| {
            let found = Measured {
                stored_bytes,
                encode: Seconds(0.002),
                decode: Seconds(0.001),
            };
            let sampled = price(decision, &life(), &prices(), &found);
            let near = |found: f64, expected: f64| {
                assert!(
                    (found - expected).abs() < 1e-9,
                    "{found}, expected {expected}"
                );
            };
            // 40.96 written, twice 4.096 read, 10 s of four units held.
            near(sampled.counterfactual.store_cost, 40.96 + 8.192 + 4.096);
            near(sampled.counterfactual.codec_cost, codec_cost);
            near(sampled.overhead_cost, overhead);
        };
        let (compressed, stored) = (decision(0.3), decision(1.5));
        assert_eq!(compressed.method.to_string(), "zstd:3");
        assert_eq!(stored.method, Method::STORE);
        // 1500 bytes occupy two units; encoding costs 2 and decoding 1 a read.
        let cost = 2.0 + 15.0 + 2.0 * (1.5 + 1.0) + 2.048;
        check(&compressed, 1500, cost, 0.0);
        check(&stored, 1500, cost, 2.0);
        // A block that does not shrink costs as much as storing it raw, plus the lost time.
        check(&stored, 9000, 2.0 + 40.96 + 8.192 + 4.096, 2.0);
    }

    #[test]
    fn the_ledger_of_drawn_blocks_holds_what_all_of_them_come_to() {
        let mut random = seeded("holdouts");
        let (holdout, mut ledger) = (Holdout { one_in: 16 }, Ledger::default());
        let (mut saved, mut missed) = (0.0, 0.0);
        for block in 0..20_000_u64 {
            let decision = decision(if block % 3 == 0 { 1.5 } else { 0.3 });
            let found = Measured {
                stored_bytes: random.u64(1000..2000),
                encode: Seconds(0.002 * random.f64()),
                decode: Seconds(0.001),
            };
            let stored_bytes = found.stored_bytes;
            let written = Written {
                stored_bytes,
                encode: found.encode,
                energy: Joules(0.0),
            };
            ledger.wrote(&decision, &written);
            let sampled = price(&decision, &life(), &prices(), &found);
            let both = sampled.counterfactual;
            match decision.method {
                Method::STORE => missed += both.store_cost - both.codec_cost,
                _ => saved += both.store_cost - both.codec_cost,
            }
            if holdout.draws(block) {
                ledger.counterfactual(&decision, &both);
            }
        }
        let stats = ledger.stats();
        let earned = stats.earnings.expect("samples").saved_cost;
        let lost = stats.missed.expect("samples");
        for (found, truth) in [(earned, saved), (lost, missed)] {
            // Twice the interval: once in 10,000 tries.
            let width = found.high - found.low;
            assert!(
                (found.mean - truth).abs() < width,
                "{found:?}, truly {truth}"
            );
            assert!(width < 0.1 * truth, "{found:?}");
        }
        assert!((1_000..1_500).contains(&stats.samples), "{}", stats.samples);
    }
}
