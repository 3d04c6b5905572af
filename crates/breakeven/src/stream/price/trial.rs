//! Trials: arms that might be better than they are known to be, what they take, and what they may.

use crate::decide::{BlockLife, Prices, Quantities};

use super::parts::Spell;

/// Share of all cost that trying may take.
pub const TRIAL_SHARE: f64 = 0.01;
/// Blocks' worth of cost for each worker, but two at least, that trying may take at once, before there is much to
/// take a share of: the more there are, the more blocks go through while one is encoded, and may have to wait for it.
pub const TRIAL_BLOCKS: f64 = 2.0;
/// Seconds of the pipeline that trying may take besides: what nobody notices.
pub const TRIAL_SECONDS: f64 = 4e-3;

/// An arm that is tried, and what the best one known would have cost.
#[derive(Clone, Copy, Debug)]
pub struct Trial {
    pub arm: usize,
    /// What is charged for it until it is done.
    pub charge: f64,
    pub best_cost: f64,
    pub expected: Quantities,
    pub parts: usize,
    /// While it is encoded, as expected.
    pub spell: Spell,
    pub life: BlockLife,
    pub prices: Prices,
    pub backlog: f64,
}

/// What trying took so far, and all cost beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trials {
    /// What all blocks would have cost by the best arms known.
    all: f64,
    /// What trials took, or are feared to take.
    tried: f64,
    /// What they took beyond what was feared of them.
    surprise: f64,
}

impl Trials {
    /// Returns the share of all cost that trials took.
    pub fn share(&self) -> f64 {
        self.tried / self.all.max(f64::MIN_POSITIVE)
    }

    /// Returns the share of all cost that they took beyond what was feared of them.
    pub fn surprise_share(&self) -> f64 {
        self.surprise / self.all.max(f64::MIN_POSITIVE)
    }

    /// Returns what trying may still take of its share.
    pub fn earned(&self) -> f64 {
        TRIAL_SHARE * self.all - self.tried
    }

    /// Returns what it may take beyond its share, where a block costs so much and so much a second of
    /// the whole pipeline.
    pub fn lent(workers: usize, block: f64, second: f64) -> f64 {
        TRIAL_BLOCKS * workers.max(2) as f64 * block + TRIAL_SECONDS * second
    }

    /// Counts a block that would cost so much by the best arm known.
    pub fn chose(&mut self, best_cost: f64, trial: Option<&Trial>) {
        self.all += best_cost;
        self.tried += trial.map_or(0.0, |it| it.charge);
    }

    /// Replaces what was feared of a trial by what it cost.
    pub fn settle(&mut self, trial: &Trial, cost: f64) {
        let beyond = (cost - trial.best_cost).max(0.0) - trial.charge;
        self.tried += beyond;
        self.surprise += beyond.max(0.0);
    }
}
