//! The distribution of accesses over buffers, and the share of them that a cache of the hottest ones serves.
//!
//! There are three patterns. The first is even. The second is Harper's Pareto rule: 80 % of the accesses go to 20 % of
//! the data, evenly within each part. In the third, Zipf's, the k-th hottest buffer has weight `k^-s`. The cache is
//! assumed to hold the hottest buffers, as with a perfect replacement strategy.
//!
//! Source: Harper 2018, chapter 4, Objective 1 (even and Pareto).

use std::fmt;

/// The hot part of the data under the Pareto rule.
const PARETO_HOT_DATA: f64 = 0.2;
/// The share of accesses that goes to the hot part.
const PARETO_HOT_ACCESSES: f64 = 0.8;

/// The distribution of accesses over the buffers of a data set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access {
    /// Every buffer equally often.
    Even,
    /// 80 % of the accesses go to 20 % of the buffers.
    Pareto,
    /// The k-th hottest buffer in proportion to `k^-s`; `s` from 0 (even) to 100.
    Zipf(f64),
}

/// The number of a data set's hottest buffers that a cache holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coverage {
    /// Buffers held; it may be a fraction, and more than there are.
    pub cached_buffers: f64,
    /// Buffers in the data set, above 0.
    pub data_set_buffers: f64,
}

impl fmt::Display for Access {
    /// Writes it in the form of options and reports: `even`, `pareto`, `zipf:0.9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Access::Even => f.write_str("even"),
            Access::Pareto => f.write_str("pareto"),
            Access::Zipf(exponent) => write!(f, "zipf:{exponent}"),
        }
    }
}

impl Access {
    /// Returns the share of accesses that find their buffer in the cache, 0 to 1.
    ///
    /// # Panics
    /// When the coverage is negative or NaN, the data set is empty, or a Zipf exponent is out of
    /// range.
    ///
    /// # Cost
    /// Zipf: about 40 powers, for any number of buffers; relative error below 1e-9.
    ///
    /// # Example
    /// ```
    /// use breakeven::model::{Access, Coverage};
    /// let coverage = Coverage { cached_buffers: 15.0, data_set_buffers: 200.0 };
    /// assert!((Access::Pareto.hit_ratio(&coverage) - 0.30).abs() < 1e-12);
    /// ```
    pub fn hit_ratio(&self, coverage: &Coverage) -> f64 {
        let Coverage {
            cached_buffers,
            data_set_buffers,
        } = *coverage;
        assert!(
            cached_buffers >= 0.0 && data_set_buffers > 0.0 && data_set_buffers.is_finite(),
            "no such cache: {coverage:?}"
        );
        let share = (cached_buffers / data_set_buffers).min(1.0);
        match *self {
            Access::Even => share,
            Access::Pareto if share <= PARETO_HOT_DATA => {
                share / PARETO_HOT_DATA * PARETO_HOT_ACCESSES
            }
            Access::Pareto => {
                let cold = (share - PARETO_HOT_DATA) / (1.0 - PARETO_HOT_DATA);
                PARETO_HOT_ACCESSES + cold * (1.0 - PARETO_HOT_ACCESSES)
            }
            Access::Zipf(exponent) => {
                assert!(
                    (0.0..=100.0).contains(&exponent),
                    "a Zipf exponent of {exponent}"
                );
                let cached_buffers = cached_buffers.min(data_set_buffers);
                zipf_weight(cached_buffers, exponent) / zipf_weight(data_set_buffers, exponent)
            }
        }
    }
}

/// Returns the weight of the `count` hottest buffers, the sum of `k^-s` for k from 1. A fraction of a buffer counts for
/// that fraction of the next term.
fn zipf_weight(count: f64, exponent: f64) -> f64 {
    let whole = count.floor();
    let next_term = (count - whole) * (whole + 1.0).powf(-exponent);
    whole_zipf_weight(whole, exponent) + next_term
}

/// Sums up to a whole `count`: the first terms one by one, the rest by the Euler-Maclaurin formula to its fifth
/// derivative. The error of the formula is below `1e-9` of the sum from term 32 on.
fn whole_zipf_weight(count: f64, exponent: f64) -> f64 {
    const FIRST: f64 = 32.0;
    let term = |k: f64| k.powf(-exponent);
    if count <= FIRST {
        return (1..=count as u32).map(|k| term(f64::from(k))).sum();
    }
    let one_by_one: f64 = (1..FIRST as u32).map(|k| term(f64::from(k))).sum();
    let s = exponent;
    let corrections = |k: f64| {
        let first = -s * term(k) / k;
        let third = first * (s + 1.0) * (s + 2.0) / (k * k);
        let fifth = third * (s + 3.0) * (s + 4.0) / (k * k);
        term(k) / 2.0
            + [first / 12.0, -third / 720.0, fifth / 30_240.0]
                .iter()
                .sum::<f64>()
    };
    // Both ends get half a term; the derivatives are those at the upper end less those at the lower.
    one_by_one + integral(FIRST, count, s) + corrections(count) + term(FIRST) - corrections(FIRST)
}

/// Returns the integral of `x^-s` from `low` to `high`, also where `s` is near 1.
fn integral(low: f64, high: f64, exponent: f64) -> f64 {
    let span = (high / low).ln();
    let power = 1.0 - exponent;
    let stretch = power * span;
    // exp_m1(y) / y keeps its digits near 0, where a difference of powers would lose them all.
    let mean_growth = if stretch == 0.0 {
        1.0
    } else {
        stretch.exp_m1() / stretch
    };
    low.powf(power) * span * mean_growth
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::assert_close;

    fn coverage(cached_buffers: f64, data_set_buffers: f64) -> Coverage {
        Coverage {
            cached_buffers,
            data_set_buffers,
        }
    }

    #[test]
    fn zipf_agrees_with_summing_every_term() {
        let mut tried = 0;
        for exponent in [
            0.0,
            0.3,
            0.6,
            0.9,
            0.99,
            1.0,
            1.0 + 1e-9,
            1.01,
            1.2,
            2.0,
            5.0,
            30.0,
        ] {
            for buffers in [1u32, 2, 10, 31, 32, 33, 34, 100, 1_000, 100_000] {
                // Smallest terms first: the naive sum must be the better one to be an oracle.
                let weights = |count: u32| -> f64 {
                    (1..=count)
                        .rev()
                        .map(|k| f64::from(k).powf(-exponent))
                        .sum()
                };
                let all = weights(buffers);
                for cached in [0, 1, buffers / 7, buffers / 2, buffers - 1, buffers] {
                    let found = Access::Zipf(exponent)
                        .hit_ratio(&coverage(f64::from(cached), f64::from(buffers)));
                    assert_close("hit ratio", found, weights(cached) / all, 1e-9);
                    tried += 1;
                }
            }
        }
        println!("tried {tried} sums");
        assert_eq!(tried, 12 * 10 * 6);
    }

    #[test]
    fn hit_ratios_rise_from_nothing_to_one_with_falling_gain() {
        let patterns = [
            Access::Even,
            Access::Pareto,
            Access::Zipf(0.0),
            Access::Zipf(0.8),
            Access::Zipf(1.0),
            Access::Zipf(1.7),
        ];
        for access in patterns {
            let ratio = |cached: f64| access.hit_ratio(&coverage(cached, 1000.0));
            assert_eq!(ratio(0.0), 0.0);
            assert_close("everything cached", ratio(1000.0), 1.0, 1e-15);
            assert_close("more than everything", ratio(5000.0), 1.0, 1e-15);
            let mut last_gain = f64::INFINITY;
            for step in 1..=2000 {
                let cached = f64::from(step) / 2.0;
                let gain = ratio(cached) - ratio(cached - 0.5);
                assert!(gain > 0.0, "{access:?} {cached}");
                assert!(gain <= last_gain + 1e-9, "{access:?} {cached}");
                last_gain = gain;
            }
        }
    }

    #[test]
    fn zipf_without_skew_is_even() {
        for cached in [0.5, 3.0, 400.25, 999.0] {
            let at = coverage(cached, 1000.0);
            let (zipf, even) = (
                Access::Zipf(0.0).hit_ratio(&at),
                Access::Even.hit_ratio(&at),
            );
            assert_close("hit ratio", zipf, even, 1e-12);
        }
    }

    #[test]
    fn billions_of_buffers_are_no_trouble() {
        let ratio = Access::Zipf(1.0).hit_ratio(&coverage(1e6, 1e12));
        // H(n) is ln n + 0.5772... + 1 / (2 n).
        let euler = 0.577_215_664_901_532_9;
        let expected = ((1e6f64).ln() + euler + 5e-7) / ((1e12f64).ln() + euler);
        assert_close("hit ratio", ratio, expected, 1e-12);
    }
}
