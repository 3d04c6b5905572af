//! The distribution of access costs: counts in buckets of about 3 %, in any unit.
#![deny(unsafe_code)]

use std::collections::BTreeMap;

/// Bits of a double below its bucket number: five bits of the fraction are kept.
const DROPPED_BITS: u32 = 47;

/// Costs of accesses by size, each to within 1.6 %.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostDistribution {
    free: u64,
    /// By the upper bits of the cost, which order positive doubles as their values do.
    counts: BTreeMap<u64, u64>,
}

impl CostDistribution {
    /// Adds one access.
    pub fn add(&mut self, cost: f64) {
        if cost > 0.0 {
            *self
                .counts
                .entry(cost.to_bits() >> DROPPED_BITS)
                .or_insert(0) += 1;
        } else {
            self.free += 1;
        }
    }

    /// Returns the cost that this share of all accesses do not exceed; 0 without accesses.
    ///
    /// # Panics
    ///
    /// If the share is not within 0 and 1.
    pub fn quantile(&self, share: f64) -> f64 {
        assert!((0.0..=1.0).contains(&share), "a share of {share}");
        let total = self.count();
        let rank = (share * total as f64).ceil() as u64;
        let mut below = self.free;
        if rank <= below {
            return 0.0;
        }
        for (&bucket, count) in &self.counts {
            below += count;
            if rank <= below {
                return f64::midpoint(lower_end(bucket), lower_end(bucket + 1));
            }
        }
        0.0
    }

    /// Returns how many accesses there were.
    pub fn count(&self) -> u64 {
        self.free + self.counts.values().sum::<u64>()
    }

    /// Returns the upper end of each non-empty bucket with its accesses, in rising order; accesses without cost stand
    /// first at 0.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let free = (self.free > 0).then_some((0.0, self.free));
        let dear = self.counts.iter();
        free.into_iter()
            .chain(dear.map(|(bucket, count)| (lower_end(bucket + 1), *count)))
    }
}

fn lower_end(bucket: u64) -> f64 {
    f64::from_bits(bucket << DROPPED_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_costs() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut costs: Vec<f64> = (0..10_000)
            .map(|_| 10f64.powf(random.f64() * 9.0 - 9.0))
            .collect();
        costs.extend([0.0; 5000]);
        let mut found = CostDistribution::default();
        costs.iter().for_each(|cost| found.add(*cost));
        costs.sort_by(f64::total_cmp);
        for share in [0.0, 0.3, 0.34, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let rank = (share * 15_000.0_f64).ceil() as usize;
            let expected = costs[rank.saturating_sub(1)];
            let found = found.quantile(share);
            let error = (found - expected).abs();
            assert!(
                error <= 0.016 * expected,
                "{share}: {found}, expected {expected}"
            );
        }
        let buckets: Vec<(f64, u64)> = found.buckets().collect();
        assert_eq!(buckets.iter().map(|it| it.1).sum::<u64>(), found.count());
        assert!(buckets.is_sorted_by(|one, other| one.0 < other.0));
        assert_eq!(buckets[0], (0.0, 5000));
        assert_eq!(CostDistribution::default().quantile(0.5), 0.0);
    }
}
