//! The knowledge about the candidates on one class of blocks of about one length. Each has three estimates: expected,
//! as good as it may well be, as bad as it may be.
//!
//! Private to `decide`. Nothing here is lost for good, because all of it can be computed from the [`Profile`] again.

use crate::decide::chooser::{Candidate, Terms};
use crate::decide::class::Class;
use crate::decide::price::{BlockLife, Prices, Quantities};
use crate::decide::profile::{Factor, MethodEstimate, Profile, Standing};
use crate::units::Estimate;

/// Observations of a method on a class from which it is known, and no longer feared.
const SEEN_MIN: f64 = 0.9;

/// The knowledge about all candidates on one class.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// The lesson it is from; 0 for none.
    pub lesson: u64,
    /// The facts given about the block of the estimate.
    pub terms: Terms,
    /// Decodings observed by then.
    decodings: u64,
    pub rows: Vec<Row>,
    /// The block that the rows' quantities belong to.
    asked: Option<BlockLife>,
    /// The life and the prices that the rows are priced for.
    priced: Option<(BlockLife, Prices)>,
}

/// One candidate.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The part of the estimate that is computed once.
    standing: Standing,
    /// The estimate for each byte: expected, as good and as bad as it may be.
    estimates: [MethodEstimate; 3],
    /// Work and stored bytes as shares of the plain form's.
    shares: (f64, f64),
    /// Whether the form is considered; the plain one always is.
    pub is_open: bool,
    /// Whether enough was seen of the method to know it.
    pub is_seen: bool,
    /// Whether a trial of it gave a result that is not yet included here.
    pub is_told: bool,
    /// Trials of it under way.
    pub on_trial: u32,
    /// The number of methods with less expected time.
    pub rank: usize,
    /// Its quantities on a block of the life that it is priced for.
    pub asks: [Quantities; 3],
    /// The costs of those.
    pub costs: [f64; 3],
}

/// The places of the three in a [`Row`].
pub(super) const EXPECTED: usize = 0;
pub(super) const OPTIMISTIC: usize = 1;
pub(super) const PESSIMISTIC: usize = 2;

impl Known {
    /// Takes a profile's estimates of the candidates on blocks of about so many bytes, under the terms given for the
    /// block.
    pub fn estimate(
        &mut self,
        profile: &Profile,
        candidates: &[Candidate],
        (class, block_bytes): (Class, u64),
        terms: &Terms,
        decodings: u64,
    ) {
        let standing = |it: &Candidate| {
            let length = (block_bytes as f64 * it.length_share).ceil();
            profile.standing(class, it.method, length as u64)
        };
        if self.rows.is_empty() {
            let life = BlockLife::new(class, block_bytes);
            let row = |it: &Candidate| Row::new(profile, standing(it), &life);
            self.rows.extend(candidates.iter().map(row));
        } else if self.decodings != decodings {
            for (row, candidate) in self.rows.iter_mut().zip(candidates) {
                row.standing = standing(candidate);
            }
        }
        self.decodings = decodings;
        let mut plain = 0;
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.form == 0 {
                plain = index;
                self.rows[index].estimates[EXPECTED] =
                    profile.estimate_again(&self.rows[index].standing);
                self.rows[index].is_open = true;
                continue;
            }
            let whole = self.rows[plain].estimates[EXPECTED];
            let core = whole.encode_seconds_per_byte.value.mean * block_bytes as f64;
            let row = &mut self.rows[index];
            row.is_open = core > terms.forms_from.0;
            if row.is_open {
                let form = profile.estimate_again(&row.standing);
                row.shares = shares(&form, &whole);
                // An observation of a form counts as one of the method, or the whole method would be tried again.
                let whole = &mut self.rows[plain].estimates[EXPECTED];
                for (whole, form) in [
                    (
                        &mut whole.encode_seconds_per_byte,
                        form.encode_seconds_per_byte,
                    ),
                    (&mut whole.stored_per_raw, form.stored_per_raw),
                ] {
                    whole.weight = whole.weight.max(form.weight);
                }
            }
        }
        self.spread(candidates, terms.is_hopeful);
        self.terms = *terms;
        (self.asked, self.priced) = (None, None);
    }

    /// Finds the best and the worst case of each, and the order of their times.
    fn spread(&mut self, candidates: &[Candidate], is_hopeful: bool) {
        let work = |row: &Row| row.estimates[EXPECTED].encode_seconds_per_byte.value.mean;
        let is_plain = |index: &usize| candidates[*index].form == 0;
        let mut plain = 0;
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.form > 0 {
                // An unseen method is tried in its plain form, charged with all its waits.
                self.rows[index].is_open &= self.rows[plain].is_seen;
                self.rows[index].is_seen = self.rows[plain].is_seen;
                self.rows[index].is_told = false;
                continue;
            }
            plain = index;
            let own = work(&self.rows[index]);
            let methods = (0..self.rows.len()).filter(is_plain);
            let rank = methods.filter(|&it| work(&self.rows[it]) < own).count();
            let row = &mut self.rows[index];
            let expected = row.estimates[EXPECTED];
            row.rank = rank;
            row.is_told = false;
            row.is_seen = expected.encode_seconds_per_byte.weight >= SEEN_MIN;
            row.estimates[OPTIMISTIC] = match is_hopeful && !row.is_seen {
                true => at(&expected, |it| it.value.low),
                false => at(&expected, one_error_below),
            };
            row.estimates[PESSIMISTIC] = match row.is_seen {
                // The feared value of a known method is the expected one.
                true => expected,
                false => at(&expected, |it| match it.weight >= SEEN_MIN {
                    true => it.value.mean,
                    false => it.value.high,
                }),
            };
        }
    }

    /// Finds the quantities of all candidates on a block, unless they are known from one of the same length and
    /// storage.
    pub fn ask(&mut self, candidates: &[Candidate], life: &BlockLife) {
        let is_alike = |it: &BlockLife| {
            (it.raw_bytes, it.allocation) == (life.raw_bytes, life.allocation)
                && (it.overhead_bytes, it.moves_whole_units)
                    == (life.overhead_bytes, life.moves_whole_units)
        };
        if self.asked.as_ref().is_some_and(is_alike) {
            return;
        }
        let mut plain = 0;
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.form == 0 {
                plain = index;
                let row = &mut self.rows[index];
                row.asks[EXPECTED] = Quantities::of(&row.estimates[EXPECTED], life);
                row.asks[OPTIMISTIC] = Quantities::of(&row.estimates[OPTIMISTIC], life);
                row.asks[PESSIMISTIC] = match row.is_seen {
                    true => row.asks[EXPECTED],
                    false => Quantities::of(&row.estimates[PESSIMISTIC], life),
                };
            } else if self.rows[index].is_open {
                let (work, stored) = self.rows[index].shares;
                self.rows[index].asks = self.rows[plain].asks.map(|it| it.shared(work, stored));
            }
        }
        self.asked = Some(*life);
    }

    /// Prices all candidates for a block, unless they are for one like it.
    pub fn price(&mut self, candidates: &[Candidate], life: &BlockLife, prices: &Prices) {
        self.ask(candidates, life);
        let is_priced = |it: &(BlockLife, Prices)| it.1 == *prices && it.0 == *life;
        if self.priced.as_ref().is_some_and(is_priced) {
            return;
        }
        for row in self.rows.iter_mut().filter(|row| row.is_open) {
            row.costs[EXPECTED] = row.asks[EXPECTED].cost(life, prices);
            row.costs[OPTIMISTIC] = row.asks[OPTIMISTIC].cost(life, prices);
            row.costs[PESSIMISTIC] = match row.is_seen {
                true => row.costs[EXPECTED],
                false => row.asks[PESSIMISTIC].cost(life, prices),
            };
        }
        self.priced = Some((*life, *prices));
    }
}

impl Row {
    fn new(profile: &Profile, standing: Standing, life: &BlockLife) -> Row {
        Row {
            standing,
            estimates: [profile.estimate_again(&standing); 3],
            shares: (1.0, 1.0),
            is_open: false,
            is_seen: false,
            is_told: false,
            on_trial: 0,
            rank: 0,
            asks: [Quantities::of_store(life); 3],
            costs: [f64::INFINITY; 3],
        }
    }
}

/// Returns work and stored bytes of a form as shares of the whole's.
fn shares(form: &MethodEstimate, whole: &MethodEstimate) -> (f64, f64) {
    let share = |form: &Factor, whole: &Factor| match whole.value.mean > 0.0 {
        true => form.value.mean / whole.value.mean,
        false => 1.0,
    };
    (
        share(
            &form.encode_seconds_per_byte,
            &whole.encode_seconds_per_byte,
        ),
        share(&form.stored_per_raw, &whole.stored_per_raw),
    )
}

/// Returns an estimate with exact values of encoding time and stored bytes.
fn at(expected: &MethodEstimate, value: fn(&Factor) -> f64) -> MethodEstimate {
    let mut estimate = *expected;
    for factor in [
        &mut estimate.encode_seconds_per_byte,
        &mut estimate.stored_per_raw,
    ] {
        factor.value = Estimate::exact(value(factor));
    }
    estimate
}

/// Returns the value one standard error below the mean, for a 95 % interval with a normal logarithm.
fn one_error_below(factor: &Factor) -> f64 {
    let Estimate { mean, low, .. } = factor.value;
    if mean <= 0.0 || low <= 0.0 {
        return mean;
    }
    mean * (low / mean).powf(1.0 / 1.96)
}
