//! What is known of the arms on one class of blocks, and what each of them would cost on a block.
//!
//! Not here: prices, and what has become of other blocks.

use crate::codec::Method;
use crate::decide::{BlockLife, Factor, MethodEstimate, Profile, Quantities, Standing};
use crate::units::Estimate;

use super::parts::{Parting, Shares};

/// Arms around the best, in the order of encoding time, among which one is tried.
const TRIAL_REACH: usize = 2;
/// The share of the best one's cost that any other must be hoped to cost to be tried where time is
/// saved up.
const PROMISING: f64 = 0.9;
/// Observations of an arm on a class from which it is known, and no longer feared.
const SEEN_MIN: f64 = 0.9;

/// What is known of the arms on one class, for blocks of one length.
pub struct Known {
    /// The lesson it is from.
    pub lesson: u64,
    pub life: BlockLife,
    pub likely: Vec<Quantities>,
    /// As good as each arm may well be: one standard error better, or two of what was not seen if bold.
    pub hopeful: Vec<Quantities>,
    /// As bad as an arm may be of which too little was seen: two standard errors worse.
    pub fearful: Vec<Quantities>,
    /// How a block of each arm may be split.
    pub partings: Vec<Parting>,
    /// Whether too little was seen of each arm to know it.
    pub is_unseen: Vec<bool>,
    /// Whether a trial of each arm told what is not known here yet.
    pub is_told: Vec<bool>,
    /// How many arms are likely to take less time than each.
    ranks: Vec<usize>,
    /// What of the estimates is found once: nobody decodes here.
    standings: Vec<Standing>,
}

/// When blocks are split.
pub struct Splitting {
    pub workers: usize,
    /// The least core time of a block; what takes less surely fits the buffers.
    pub core_seconds_min: f64,
}

/// What each arm costs on a block: as it is known, as good as it may be, as bad as it may be.
#[derive(Default)]
pub struct Costs {
    /// When each worker could help with it.
    pub delays: Vec<f64>,
    /// How the block is best split.
    pub ways: Vec<Shares>,
    pub likely: Vec<f64>,
    pub hopeful: Vec<f64>,
    pub fearful: Vec<f64>,
    /// Whether it takes about as long to encode as the best.
    near: Vec<bool>,
}

impl Known {
    /// Knows nothing yet but what blocks of a class are for.
    pub fn new(life: BlockLife) -> Known {
        Known {
            lesson: 0,
            life,
            likely: Vec::new(),
            hopeful: Vec::new(),
            fearful: Vec::new(),
            partings: Vec::new(),
            is_unseen: Vec::new(),
            is_told: Vec::new(),
            ranks: Vec::new(),
            standings: Vec::new(),
        }
    }

    /// Takes what a profile knows of some arms.
    pub fn estimate(
        &mut self,
        profile: &Profile,
        arms: &[Method],
        splitting: &Splitting,
        is_bold: bool,
    ) {
        self.is_told.clear();
        self.is_told.resize(arms.len(), false);
        let Known {
            life,
            likely,
            hopeful,
            fearful,
            partings,
            is_unseen,
            ranks,
            standings,
            ..
        } = self;
        if standings.is_empty() {
            let standing = |arm: &Method| profile.standing(life.class, *arm, life.raw_bytes);
            standings.extend(arms.iter().map(standing));
        }
        is_unseen.clear();
        partings.clear();
        likely.clear();
        hopeful.clear();
        fearful.clear();
        for (&arm, standing) in arms.iter().zip(standings) {
            let mut estimate = profile.estimate_again(standing);
            let core = estimate.encode_seconds_per_byte.value.mean * life.raw_bytes as f64;
            let of_part = |bytes| profile.estimate(life.class, arm, bytes);
            let mut parting = Parting::NONE;
            if core > splitting.core_seconds_min {
                parting = Parting::of(life.raw_bytes, splitting.workers, &mut estimate, of_part);
            }
            // What was never seen is tried whole, charged with all its waits.
            let is_seen = estimate.encode_seconds_per_byte.weight >= SEEN_MIN;
            is_unseen.push(!is_seen);
            partings.push(if is_seen { parting } else { Parting::NONE });
            let quantities = |value: fn(&Factor) -> f64| {
                let mut estimate: MethodEstimate = estimate;
                for factor in [
                    &mut estimate.encode_seconds_per_byte,
                    &mut estimate.stored_per_raw,
                ] {
                    factor.value = Estimate::exact(value(factor));
                }
                Quantities::of(&estimate, life)
            };
            likely.push(quantities(|it| it.value.mean));
            hopeful.push(match is_bold && !is_seen {
                true => quantities(|it| it.value.low),
                false => quantities(one_error_below),
            });
            fearful.push(match is_seen {
                // As it is known, so it is feared.
                true => likely[likely.len() - 1],
                false => quantities(|it| match it.weight >= SEEN_MIN {
                    true => it.value.mean,
                    false => it.value.high,
                }),
            });
        }
        let work = |it: &Quantities| it.encode_core_seconds.mean;
        let rank = |it: &Quantities| likely.iter().filter(|other| work(other) < work(it)).count();
        ranks.clear();
        ranks.extend(likely.iter().map(rank));
    }
}

impl Costs {
    /// Finds what each arm costs, split as is best for it. Only those near the best are hoped to be
    /// better than likely.
    pub fn fill(&mut self, known: &Known, is_bold: bool, cost: impl Fn(&Quantities, usize) -> f64) {
        let Costs {
            ways,
            likely,
            hopeful,
            fearful,
            near,
            ..
        } = self;
        ways.clear();
        let best_way = |(parting, it): (&Parting, &Quantities)| parting.best(it, &cost);
        ways.extend(known.partings.iter().zip(&known.likely).map(best_way));
        let cost_of = |arm: usize, it: &Quantities| match ways[arm].parts {
            1 => cost(it, 1),
            parts => cost(&ways[arm].of(it), parts),
        };
        let arms = || 0..known.likely.len();
        likely.clear();
        likely.extend(arms().map(|arm| cost_of(arm, &known.likely[arm])));
        fearful.clear();
        fearful.extend(arms().map(|arm| match known.is_unseen[arm] {
            true => cost_of(arm, &known.fearful[arm]),
            false => likely[arm],
        }));
        let best = least(likely);
        let middle = known.ranks[best];
        near.clear();
        hopeful.clear();
        for arm in arms() {
            let is_next = known.ranks[arm].abs_diff(middle) <= TRIAL_REACH;
            let hoped = match is_next || is_bold {
                true => cost_of(arm, &known.hopeful[arm]),
                false => likely[arm],
            };
            // Where time is saved up, a slow one may be the best by far.
            let is_near = is_next || is_bold && hoped < PROMISING * likely[best];
            near.push(is_near);
            hopeful.push(if is_near { hoped } else { likely[arm] });
        }
    }

    /// Returns the arm that may well be the best of those whose trial costs no more than the most of
    /// `allowed`, nor than what it is hoped to save on the blocks behind, where their number is known. If
    /// that is the best one known, what is next to it and was never tried is not known to be worse: it is
    /// tried where that costs no more than the first of `allowed`. What was never seen and is `on_trial` is not
    /// tried again before that tells, and nothing is before what its last trial told is known.
    pub fn worth_trying(
        &self,
        known: &Known,
        best: usize,
        allowed: (f64, f64),
        blocks_behind: f64,
        on_trial: impl Fn(usize) -> bool,
    ) -> usize {
        let charge = |arm: usize| self.fearful[arm] - self.fearful[best];
        let may_pay = |arm: usize| {
            let saved = self.likely[best] - self.hopeful[arm];
            blocks_behind.is_infinite() || charge(arm) <= blocks_behind * saved
        };
        let arms = || 0..self.likely.len();
        let is_free = |&arm: &usize| !(known.is_told[arm] || known.is_unseen[arm] && on_trial(arm));
        let is_affordable = |&arm: &usize| charge(arm) <= allowed.1 && may_pay(arm);
        let affordable = arms().filter(|it| *it == best || is_affordable(it) && is_free(it));
        let hopeful = affordable.min_by(|&a, &b| self.hopeful[a].total_cmp(&self.hopeful[b]));
        let hopeful = hopeful.expect("the best is affordable");
        if hopeful != best {
            return hopeful;
        }
        let is_open = |&arm: &usize| known.is_unseen[arm] && self.near[arm] && arm != best;
        let open = (arms().filter(is_open).filter(is_free)).filter(|&arm| charge(arm) <= allowed.0);
        let likely = open.min_by(|&a, &b| self.likely[a].total_cmp(&self.likely[b]));
        likely.unwrap_or(best)
    }

    /// Returns the best one known of those whose trial costs no more than `allowed`; or of those that may well
    /// be as good, and likely cost at most `unnoticed` more, the one that stores least.
    pub fn densest_tie(&self, known: &Known, allowed: f64, unnoticed: f64) -> usize {
        let least_feared = self.fearful[least(&self.fearful)];
        let arms =
            (0..self.likely.len()).filter(|&arm| self.fearful[arm] - least_feared <= allowed);
        let best = (arms.clone().map(|arm| self.likely[arm])).fold(f64::INFINITY, f64::min);
        let is_tie =
            |&arm: &usize| self.hopeful[arm] <= best && self.likely[arm] <= best + unnoticed;
        let stored = |arm: usize| known.likely[arm].stored_bytes.mean;
        let densest = arms
            .filter(is_tie)
            .min_by(|&a, &b| stored(a).total_cmp(&stored(b)));
        densest.unwrap_or_else(|| least(&self.fearful))
    }
}

/// Returns the place of the least cost.
pub fn least(costs: &[f64]) -> usize {
    let costs = costs.iter().enumerate();
    let least = costs.min_by(|a, b| a.1.total_cmp(b.1));
    least.expect("at least one arm").0
}

/// Returns the value one standard error below the mean, of an interval of 95 % whose logarithm is
/// normal.
fn one_error_below(factor: &Factor) -> f64 {
    let Estimate { mean, low, .. } = factor.value;
    if mean <= 0.0 || low <= 0.0 {
        return mean;
    }
    mean * (low / mean).powf(1.0 / 1.96)
}
