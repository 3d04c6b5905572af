//! A profile's record of one factor: a normal belief, and the moments of the observations.
//!
//! Private to `decide`. Everything is a logarithm, since costs and ratios vary by factors. The mean of the value itself
//! is kept as well, because a set's ratio is sum over sum.

use crate::decide::prior::BLOCK_DEVIATION;
use crate::decide::profile::ProfileOptions;
use crate::units::Estimate;

/// A normal belief about a logarithm.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Normal {
    pub mean: f64,
    pub variance: f64,
}

impl Normal {
    /// Zero within a standard deviation.
    pub fn zero(deviation: f64) -> Normal {
        Normal {
            mean: 0.0,
            variance: deviation * deviation,
        }
    }

    /// The belief after a value that deviates from the truth by `variance`.
    pub fn observe(self, value: f64, variance: f64) -> Normal {
        let share = self.variance / (self.variance + variance);
        Normal {
            mean: self.mean + share * (value - self.mean),
            variance: self.variance * (1.0 - share),
        }
    }

    /// The value with its 95 % interval, none above `value_max`.
    pub fn interval(self, value_max: f64) -> Estimate {
        let half_width = 1.96 * self.variance.sqrt();
        let at = |ln: f64| ln.exp().min(value_max);
        Estimate {
            mean: at(self.mean),
            low: at(self.mean - half_width),
            high: at(self.mean + half_width),
        }
    }
}

/// The weight of a cell after a drift, and by age alone.
pub(super) const FADED_WEIGHT: f64 = 2.0;
/// Observations that the usual variance counts for in a cell's own.
const USUAL_VARIANCE_WEIGHT: f64 = 2.0;

/// Weighted moments of one factor of one cell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Tracker {
    /// Effective number of observations.
    pub weight: f64,
    /// Mean of the logarithm.
    pub mean_ln: f64,
    /// Variance of the logarithm.
    pub variance_ln: f64,
    /// Mean of the value itself: of a set, sum over sum, and not the geometric mean.
    pub mean: f64,
    /// Cumulated shift upward and downward.
    up: f64,
    down: f64,
}

impl Tracker {
    /// Least weight at which a residual is judged.
    const DRIFT_WEIGHT_MIN: f64 = 6.0;
    /// Shift per observation, in standard deviations, that is not counted.
    const DRIFT_ALLOWANCE: f64 = 0.5;
    /// The farthest residual that counts in full: one odd block is no drift.
    const DRIFT_RESIDUAL_MAX: f64 = 3.0;

    pub fn of_moments(weight: f64, mean_ln: f64, variance_ln: f64, mean: f64) -> Tracker {
        Tracker {
            weight,
            mean_ln,
            variance_ln,
            mean,
            ..Tracker::default()
        }
    }

    pub fn observe(&mut self, value: f64, factor: usize, options: &ProfileOptions) -> bool {
        let drifts = self.drifts(value.ln(), factor, options.drift_threshold);
        self.weight = self.weight * options.kept_per_observation() + 1.0;
        let share = 1.0 / self.weight;
        let residual = value.ln() - self.mean_ln;
        self.mean_ln += share * residual;
        self.variance_ln = (1.0 - share) * (self.variance_ln + share * residual * residual);
        self.mean += share * (value - self.mean);
        drifts
    }

    fn drifts(&mut self, ln: f64, factor: usize, threshold: f64) -> bool {
        if self.weight < Tracker::DRIFT_WEIGHT_MIN {
            return false;
        }
        let deviation = self.block_variance(factor).sqrt();
        let residual = (ln - self.mean_ln) / deviation;
        let limit = Tracker::DRIFT_RESIDUAL_MAX;
        let residual = residual.clamp(-limit, limit);
        self.up = (self.up + residual - Tracker::DRIFT_ALLOWANCE).max(0.0);
        self.down = (self.down - residual - Tracker::DRIFT_ALLOWANCE).max(0.0);
        self.up > threshold || self.down > threshold
    }

    /// Moves the observations by a factor, given by its logarithm.
    pub fn move_by(&mut self, ln: f64) {
        self.mean_ln += ln;
        self.mean *= ln.exp();
    }

    pub fn fade(&mut self) {
        self.weight = self.weight.min(FADED_WEIGHT);
        (self.up, self.down) = (0.0, 0.0);
    }

    pub fn merged(&self, other: &Tracker, weight_max: f64) -> Tracker {
        let weight = self.weight + other.weight;
        if weight <= 0.0 {
            return Tracker::default();
        }
        let share = other.weight / weight;
        let apart = other.mean_ln - self.mean_ln;
        let mix = |ours: f64, theirs: f64| ours + share * (theirs - ours);
        Tracker {
            weight: weight.min(weight_max),
            mean_ln: mix(self.mean_ln, other.mean_ln),
            variance_ln: mix(self.variance_ln, other.variance_ln)
                + share * (1.0 - share) * apart * apart,
            mean: mix(self.mean, other.mean),
            ..Tracker::default()
        }
    }

    /// Variance of the logarithm from block to block, pulled to the usual value while there are few blocks.
    pub fn block_variance(&self, factor: usize) -> f64 {
        let usual = BLOCK_DEVIATION[factor].powi(2);
        let squares = self.weight * self.variance_ln + USUAL_VARIANCE_WEIGHT * usual;
        squares / ((self.weight - 1.0).max(0.0) + USUAL_VARIANCE_WEIGHT)
    }

    /// Variance of the mean of the logarithm.
    pub fn mean_variance(&self, factor: usize) -> f64 {
        self.block_variance(factor) / self.weight
    }
}
