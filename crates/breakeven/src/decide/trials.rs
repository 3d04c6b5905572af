//! Trials: candidates that might be better than their estimates, their cost, and the allowance for it.

use crate::decide::class::Class;
use crate::decide::price::{BlockLife, Prices, Quantities};
use crate::decide::profile::Observation;
use crate::units::Estimate;

/// Share of all cost that trying may take.
pub const TRIAL_SHARE: f64 = 0.01;
/// The cost that trials may take at once for each worker, in blocks' worth, with a minimum of two. It applies before
/// there is much cost to take a share of. With more workers, more blocks pass during one encoding, and may have to wait
/// for it.
pub const TRIAL_BLOCKS: f64 = 2.0;
/// Further seconds for trials, where a place gives the cost of a second: few enough to go unnoticed.
pub const TRIAL_SECONDS: f64 = 4e-3;

/// A candidate on trial, and the expected cost of the best known one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trial {
    /// The number of the candidate.
    pub candidate: usize,
    /// The class of its block.
    pub class: Class,
    /// The charge for it until its end.
    pub(super) charge: f64,
    pub(super) best_cost: f64,
    /// Its expected quantities.
    pub expected: Quantities,
    /// The place's own part of its cost.
    pub(super) place_cost: f64,
    /// The life and the prices of its block.
    pub life: BlockLife,
    /// The prices of its trial.
    pub prices: Prices,
}

impl Trial {
    /// Returns its cost at the prices of its trial, with the place's own part as expected.
    pub(super) fn real_cost(&self, observation: &Observation) -> f64 {
        let expected = self.expected;
        let encode = observation.encode.map(|it| Estimate::exact(it.0));
        let real = Quantities {
            encode_core_seconds: encode.unwrap_or(expected.encode_core_seconds),
            ..expected.storing(observation.stored_bytes, &self.life)
        };
        real.cost(&self.life, &self.prices) + self.place_cost
    }
}

/// The cost of trials so far, and all cost beside it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trials {
    /// The cost of all blocks by the best known candidates.
    all: f64,
    /// The cost of trials, real or feared.
    tried: f64,
    /// The cost of trials beyond the fear.
    surprise: f64,
}

impl Trials {
    /// Returns the share of all cost that trials took.
    pub fn share(&self) -> f64 {
        self.tried / self.all.max(f64::MIN_POSITIVE)
    }

    /// Returns the share of all cost by which trials exceeded their feared cost.
    pub fn surprise_share(&self) -> f64 {
        self.surprise / self.all.max(f64::MIN_POSITIVE)
    }

    /// Returns the rest of the trials' share.
    pub fn earned(&self, share: f64) -> f64 {
        share * self.all - self.tried
    }

    /// Counts a block of given cost by the best known candidate.
    pub fn chose(&mut self, best_cost: f64, trial: Option<&Trial>) {
        self.all += best_cost;
        self.tried += trial.map_or(0.0, |it| it.charge);
    }

    /// Replaces the feared cost of a trial by its real cost.
    pub fn settle(&mut self, trial: &Trial, cost: f64) {
        let beyond = (cost - trial.best_cost).max(0.0) - trial.charge;
        self.tried += beyond;
        self.surprise += beyond.max(0.0);
    }
}
