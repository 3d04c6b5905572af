//! The chooser: one decision for every place.
//!
//! A place makes one [`Chooser`] (or one for each shard) of its candidates and of the knowledge about this machine. It
//! passes in a block's life and its prices. A function gives a candidate's costs that only the place knows: waits of a
//! queue, an eviction. [`Chooser::pick`] returns a candidate, and [`Chooser::observe`] learns from its result.
//! [`Chooser::decide`] fills a whole [`Decision`] for a caller that prints or books one.
//!
//! Promises: it picks the candidate of least cost, or one that might be better than its estimate. Trying such
//! candidates takes at most [`ChooserOptions::trial_share`] of all cost. An unseen candidate is assumed to be as bad as
//! it may be, so it is a trial. With no share for trials the pick follows from the profile alone.
//!
//! Not here: clocks, bytes, queues, and the movement of prices.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use crate::codec::Method;
use crate::decide::class::Class;
use crate::decide::decision::{Decision, Offer, choose, decided, plainer};
use crate::decide::known::{EXPECTED, Known, OPTIMISTIC, PESSIMISTIC};
use crate::decide::price::{BlockLife, Prices, Quantities};
use crate::decide::profile::{Observation, Profile, length_bits};
use crate::decide::trials::{TRIAL_BLOCKS, TRIAL_SECONDS, TRIAL_SHARE, Trial, Trials};
use crate::units::{Estimate, Seconds};

/// Observations after which estimates are recomputed; at first each one counts.
const LESSON_BLOCKS: u64 = 8;
/// Methods around the best, in the order of encoding time, among which one is tried.
const TRIAL_REACH: usize = 2;
/// The share of the best one's cost below which any other's hoped cost must lie for a trial, where a place is bold.
const PROMISING: f64 = 0.9;
/// The least saving of another form on the plain one, as a share of its cost.
const FORM_GAIN_MIN: f64 = 0.01;

/// A way to store a block: a method, in a form that the place numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The method.
    pub method: Method,
    /// The form, 0 for the plain one: the number of parts of a split block, the length of a frame.
    pub form: u16,
    /// The length that the codec sees at once, as a share of the block: 0.5 for a block in two parts. Default 1.
    pub length_share: f64,
}

impl Candidate {
    /// Makes a candidate in its plain form.
    pub fn new(method: Method) -> Candidate {
        Candidate {
            method,
            form: 0,
            length_share: 1.0,
        }
    }

    /// Makes another form of a method, in which the codec sees this share of the block at once.
    pub fn in_form(method: Method, form: u16, length_share: f64) -> Candidate {
        Candidate {
            form,
            length_share,
            ..Candidate::new(method)
        }
    }
}

/// The limits of a chooser.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChooserOptions {
    /// Share of all cost that trying may take. Default 0.01. At 0 nothing is tried, and an unseen candidate is taken as
    /// expected.
    pub trial_share: f64,
    /// Blocks under way at once; all of them may have to wait for a trial. Default 1.
    pub workers: usize,
    /// A codec is chosen only if it costs less than this share of storing raw. Default 1: every gain counts.
    pub worth_while: f64,
    /// Among candidates that cost at most this share more than the best, the one with the fewest core seconds is
    /// picked. Default 0.
    pub tie_share: f64,
}

impl Default for ChooserOptions {
    fn default() -> ChooserOptions {
        ChooserOptions {
            trial_share: TRIAL_SHARE,
            workers: 1,
            worth_while: 1.0,
            tie_share: 0.0,
        }
    }
}

/// Further facts that a place may give about a block; most places give none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Core seconds of a method's plain form from which its other forms are considered. Default 0.
    pub forms_from: Seconds,
    /// Blocks of the same length still to come, on which a trial must be expected to pay. Default infinite.
    pub blocks_behind: f64,
    /// The cost of a second of the whole place. Trying may take some of such seconds that nobody notices. Default 0.
    pub second_cost: f64,
    /// Whether an unseen method next to the best is tried without hope of a gain. Default true.
    pub is_curious: bool,
    /// Whether any candidate may be tried that is hoped to be much better, even a slow one. Default false.
    pub is_bold: bool,
    /// Whether twice as much is hoped of unseen candidates. Default false.
    pub is_hopeful: bool,
    /// Set where no later block could pay for a trial. Among methods that cost at most this more than the best, and
    /// might be as good, the one that stores least is picked. Default none.
    pub unnoticed_cost: Option<f64>,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            forms_from: Seconds(0.0),
            blocks_behind: f64::INFINITY,
            second_cost: 0.0,
            is_curious: true,
            is_bold: false,
            is_hopeful: false,
            unnoticed_cost: None,
        }
    }
}

/// A pick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Picked {
    /// The place among the candidates.
    pub candidate: usize,
    /// Set for a trial, which is not the best known candidate but might be: for [`Chooser::settle`].
    pub trial: Option<Trial>,
}

/// Picks the candidate of each block of a place.
///
/// # Cost
/// A pick of 8 candidates takes some hundred nanoseconds beside the place's own function while life and prices stay. It
/// takes some 2 microseconds more where one changes. Some 1.2 KB for each candidate and class, at most
/// [`Chooser::KNOWN_MAX`] classes at once, beside the profile.
///
/// # Example
/// A store of 4 KiB pages on a medium of 100 MB/s, whose writes wait for the medium:
/// ```
/// use breakeven::decide::{
///     BlockLife, Candidate, Chooser, ChooserOptions, Class, Observation, Prices, Profile, Quantities,
/// };
/// use breakeven::units::{Estimate, Seconds};
///
/// let methods = ["store", "lz4:1", "zstd:3"].map(|name| name.parse().unwrap());
/// let candidates = methods.map(Candidate::new).to_vec();
/// let mut chooser = Chooser::new(candidates, Profile::default(), ChooserOptions::default());
///
/// let life = BlockLife::new(Class::place(7), 4096);
/// let prices = Prices {
///     per_core_second: Estimate::exact(1.0),
///     per_byte_written: Estimate::exact(1e-8),
///     per_byte_read: Estimate::exact(1e-8),
///     ..Prices::default()
/// };
/// // What only this place knows: writes behind a queue of 64 KiB wait for its bytes.
/// let wait = |_: usize, it: &Quantities| if it.stored_bytes.mean > 3000.0 { 6e-4 } else { 0.0 };
/// for _ in 0..20 {
///     let picked = chooser.pick(&life, &prices, wait);
///     let method = chooser.candidates()[picked.candidate].method;
///     // Here the page is compressed, and what it took is observed.
///     chooser.observe(&picked, &Observation {
///         class: life.class,
///         method,
///         raw_bytes: 4096,
///         stored_bytes: if method == methods[2] { 1100 } else { 1900 },
///         encode: Some(Seconds(2e-5)),
///         decode: None,
///     });
/// }
/// let decision = chooser.decide(&life, &prices, |at, it| Estimate::exact(wait(at, it)));
/// println!("{decision}");
/// assert_eq!(decision.method, methods[2]);
/// ```
#[derive(Clone, Debug)]
pub struct Chooser {
    candidates: Vec<Candidate>,
    /// The candidates of one method each, the plain form first.
    methods: Vec<Range<usize>>,
    options: ChooserOptions,
    profile: Profile,
    known: BTreeMap<(Class, u8), Known>,
    trials: Trials,
    observed: u64,
    decodings: u64,
    /// Counted up when the profile has learned enough for new estimates; 1 at first.
    lesson: u64,
    costs: Vec<Costs>,
}

/// The costs of a method in its best form on a block.
#[derive(Clone, Copy, Debug)]
struct Costs {
    /// The candidate of its best form, and that of the plain one.
    candidate: usize,
    plain: usize,
    expected: f64,
    optimistic: f64,
    pessimistic: f64,
    /// Whether its encoding time is close to that of the best.
    is_near: bool,
}

impl Chooser {
    /// Classes and lengths that are known at once; when there are more, all are estimated again.
    pub const KNOWN_MAX: usize = 256;

    /// Makes a chooser among `candidates` by the profile's estimates.
    ///
    /// # Panics
    /// When there are no candidates, or a form does not follow the plain one of its method.
    pub fn new(candidates: Vec<Candidate>, profile: Profile, options: ChooserOptions) -> Chooser {
        let mut methods: Vec<Range<usize>> = Vec::new();
        for (index, candidate) in candidates.iter().enumerate() {
            if candidate.form == 0 {
                methods.push(index..index + 1);
                continue;
            }
            let range = methods.last_mut();
            let range = range.filter(|it| candidates[it.start].method == candidate.method);
            let range = range.expect("the plain form of a method before its others");
            range.end = index + 1;
        }
        assert!(!methods.is_empty(), "a chooser without candidates");
        Chooser {
            costs: Vec::with_capacity(methods.len()),
            candidates,
            methods,
            options,
            profile,
            known: BTreeMap::new(),
            trials: Trials::default(),
            observed: 0,
            decodings: 0,
            lesson: 1,
        }
    }

    /// Returns the candidates.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Returns the profile of the methods.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the expected share of all cost that trials took.
    pub fn trial_share(&self) -> f64 {
        self.trials.share()
    }

    /// Returns the share of all cost by which trials exceeded their feared cost.
    pub fn trial_surprise_share(&self) -> f64 {
        self.trials.surprise_share()
    }

    /// Picks the candidate of least cost, or one worth trying. `place_cost` returns the place's addition to the cost of
    /// a candidate; infinite for an impossible one.
    ///
    /// # Panics
    /// When no candidate can be.
    pub fn pick(
        &mut self,
        life: &BlockLife,
        prices: &Prices,
        place_cost: impl Fn(usize, &Quantities) -> f64,
    ) -> Picked {
        self.pick_on(life, prices, &Terms::default(), place_cost)
    }

    /// Picks as [`Chooser::pick`] does, with further facts from the place.
    pub fn pick_on(
        &mut self,
        life: &BlockLife,
        prices: &Prices,
        terms: &Terms,
        place_cost: impl Fn(usize, &Quantities) -> f64,
    ) -> Picked {
        let tries = self.options.trial_share > 0.0;
        self.learn_of(life.class, life.raw_bytes, terms);
        let Chooser {
            candidates,
            methods,
            known,
            costs,
            ..
        } = self;
        let known = (known.get_mut(&key(life.class, life.raw_bytes))).expect("it was learned of");
        known.price(candidates, life, prices);
        fill(costs, known, methods, (tries, terms.is_bold), &place_cost);
        let best = least(costs, known, |it| it.pessimistic);
        assert!(costs[best].pessimistic.is_finite(), "no candidate can be");
        let earned = self.trials.earned(self.options.trial_share);
        let workers = self.options.workers.max(2) as f64;
        let lent =
            TRIAL_BLOCKS * workers * costs[best].pessimistic + TRIAL_SECONDS * terms.second_cost;
        let allowed = match terms.is_curious {
            true => (earned, earned + lent),
            false => (f64::NEG_INFINITY, earned + lent),
        };
        let chosen = match terms.unnoticed_cost {
            _ if !tries => best,
            Some(unnoticed) => densest_tie(costs, known, allowed.1, unnoticed),
            None => worth_trying(costs, known, best, allowed, terms.blocks_behind),
        };
        let best_cost = costs[best].pessimistic;
        let is_tried = chosen != best;
        let chosen = match is_tried {
            true => chosen,
            false => lightest_tie(costs, known, best, self.options.tie_share),
        };
        let Costs {
            candidate,
            plain,
            pessimistic,
            ..
        } = costs[chosen];
        let trial = is_tried.then(|| {
            known.rows[plain].on_trial += 1;
            let expected = known.rows[candidate].asks[EXPECTED];
            Trial {
                candidate,
                class: life.class,
                charge: pessimistic - best_cost,
                best_cost,
                expected,
                place_cost: place_cost(candidate, &expected),
                life: *life,
                prices: *prices,
            }
        });
        self.trials.chose(best_cost, trial.as_ref());
        Picked { candidate, trial }
    }

    /// Learns the result of a block: the method that stored it, and its time and bytes. Returns whether estimates are
    /// recomputed from now on.
    pub fn observe(&mut self, picked: &Picked, observation: &Observation) -> bool {
        if let Some(trial) = &picked.trial {
            self.settle(trial, trial.real_cost(observation));
        }
        self.learn(picked.candidate, observation)
    }

    /// Replaces the feared cost of a trial by its real cost, at the prices of the trial. It is for a place that now
    /// knows its own part of the cost better. [`Chooser::observe`] does so by itself.
    pub fn settle(&mut self, trial: &Trial, cost: f64) {
        self.trials.settle(trial, cost);
        let plain = self.plain_of(trial.candidate);
        if let Some(known) = (self.known).get_mut(&key(trial.class, trial.life.raw_bytes)) {
            let row = &mut known.rows[plain];
            row.on_trial = row.on_trial.saturating_sub(1);
            row.is_told = true;
        }
    }

    /// Learns the cost of a candidate, encoded or read back. Returns whether estimates are recomputed from now on.
    pub fn learn(&mut self, candidate: usize, observation: &Observation) -> bool {
        let share = self.candidates[candidate].length_share;
        let part = |bytes: u64| (bytes as f64 * share).ceil() as u64;
        let drifts = self.profile.observe(&Observation {
            raw_bytes: part(observation.raw_bytes),
            stored_bytes: (observation.stored_bytes as f64 * share) as u64,
            encode: observation.encode.map(|it| it * share),
            decode: observation.decode.map(|it| it * share),
            ..*observation
        });
        self.decodings += u64::from(observation.decode.is_some());
        self.observed += 1;
        let is_due = self.observed.is_multiple_of(LESSON_BLOCKS) || self.observed < LESSON_BLOCKS;
        if drifts || is_due {
            self.refresh();
        }
        drifts || is_due
    }

    /// Makes all estimates again from now on.
    pub fn refresh(&mut self) {
        self.lesson += 1;
    }

    /// Prepares the expected quantities of each candidate on a block, for [`Chooser::expected`].
    pub fn know(&mut self, life: &BlockLife, terms: &Terms) {
        self.learn_of(life.class, life.raw_bytes, terms);
        let known = (self.known).get_mut(&key(life.class, life.raw_bytes));
        (known.expect("it was learned of")).ask(&self.candidates, life);
    }

    /// Returns the expected quantities of each candidate on the last such block in [`Chooser::pick`] or
    /// [`Chooser::know`]. Empty if there was none.
    pub fn expected(&self, class: Class, raw_bytes: u64) -> impl Iterator<Item = &Quantities> {
        let known = self.known.get(&key(class, raw_bytes));
        (known.into_iter()).flat_map(|it| it.rows.iter().map(|row| &row.asks[EXPECTED]))
    }

    /// Decides for the candidate of least expected cost, with all details, and without the ties that a pick allows. The
    /// place's own part of a cost has a band here.
    pub fn decide(
        &mut self,
        life: &BlockLife,
        prices: &Prices,
        place_cost: impl Fn(usize, &Quantities) -> Estimate,
    ) -> Decision {
        let known = self.prepare(life);
        let offers = self.offers(&self.known[&known], (life, prices), &place_cost);
        choose(life, prices, self.options.worth_while, offers)
    }

    /// Returns the decision for a picked candidate, of least cost or not.
    pub fn decided(
        &mut self,
        picked: usize,
        life: &BlockLife,
        prices: &Prices,
        place_cost: impl Fn(usize, &Quantities) -> Estimate,
    ) -> Decision {
        let known = self.prepare(life);
        let known = &self.known[&known];
        let chosen = self.offer(known, picked, &place_cost);
        let others = self.offers(known, (life, prices), &place_cost);
        let others = others.filter(|it| it.method != chosen.method);
        decided(life, prices, chosen, others)
    }

    fn prepare(&mut self, life: &BlockLife) -> (Class, u8) {
        let key = key(life.class, life.raw_bytes);
        // The terms are those of the last pick for a similar block.
        let terms = self.known.get(&key).map_or(Terms::default(), |it| it.terms);
        self.know(life, &terms);
        key
    }

    /// Returns each method in its best form.
    fn offers(
        &self,
        known: &Known,
        (life, prices): (&BlockLife, &Prices),
        place_cost: &impl Fn(usize, &Quantities) -> Estimate,
    ) -> impl Iterator<Item = Offer> {
        let offers = self.methods.iter().map(move |forms| {
            let cost = |at: usize| {
                let it = &known.rows[at].asks[EXPECTED];
                it.cost(life, prices) + place_cost(at, it).mean
            };
            self.offer(known, best_form(known, forms, cost).0, place_cost)
        });
        // An impossible method is no offer.
        offers.filter(|it| it.place_cost.mean.is_finite())
    }

    fn offer(
        &self,
        known: &Known,
        index: usize,
        place_cost: &impl Fn(usize, &Quantities) -> Estimate,
    ) -> Offer {
        let Candidate { method, form, .. } = self.candidates[index];
        let quantities = known.rows[index].asks[EXPECTED];
        Offer {
            method,
            form,
            quantities,
            place_cost: place_cost(index, &quantities),
        }
    }

    /// Prepares the estimates for a class, for blocks of about so many bytes.
    fn learn_of(&mut self, class: Class, raw_bytes: u64, terms: &Terms) {
        let key = key(class, raw_bytes);
        if self.known.len() >= Chooser::KNOWN_MAX && !self.known.contains_key(&key) {
            self.known.clear();
        }
        let known = self.known.entry(key).or_default();
        if known.lesson != self.lesson {
            known.estimate(
                &self.profile,
                &self.candidates,
                (class, 1 << key.1),
                terms,
                self.decodings,
            );
            known.lesson = self.lesson;
        }
    }

    fn plain_of(&self, candidate: usize) -> usize {
        let range = self.methods.iter().find(|it| it.contains(&candidate));
        range.expect("a candidate is of a method").start
    }
}

fn key(class: Class, raw_bytes: u64) -> (Class, u8) {
    (class, length_bits(raw_bytes))
}

/// Returns a method's form of least expected cost, and that cost: the plain form unless another is clearly better.
fn best_form(known: &Known, forms: &Range<usize>, cost: impl Fn(usize) -> f64) -> (usize, f64) {
    let plain = (forms.start, cost(forms.start));
    let mut best = (plain.0, plain.1 * (1.0 - FORM_GAIN_MIN));
    for at in forms.clone().skip(1).filter(|&at| known.rows[at].is_open) {
        let cost = cost(at);
        if cost < best.1 {
            best = (at, cost);
        }
    }
    if best.0 == plain.0 { plain } else { best }
}

fn cost(
    known: &Known,
    at: usize,
    which: usize,
    place_cost: &impl Fn(usize, &Quantities) -> f64,
) -> f64 {
    let row = &known.rows[at];
    row.costs[which] + place_cost(at, &row.asks[which])
}

/// Finds each method's cost in its best form. Only methods near the best are hoped to be better than expected.
fn fill(
    costs: &mut Vec<Costs>,
    known: &Known,
    methods: &[Range<usize>],
    (tries, is_bold): (bool, bool),
    place_cost: &impl Fn(usize, &Quantities) -> f64,
) {
    costs.clear();
    costs.extend(methods.iter().map(|forms| {
        let of = |at: usize| cost(known, at, EXPECTED, place_cost);
        let (candidate, expected) = best_form(known, forms, of);
        Costs {
            candidate,
            plain: forms.start,
            expected,
            optimistic: expected,
            pessimistic: match tries && !known.rows[candidate].is_seen {
                true => cost(known, candidate, PESSIMISTIC, place_cost),
                false => expected,
            },
            is_near: false,
        }
    }));
    if !tries {
        return;
    }
    let best = least(costs, known, |it| it.expected);
    let (middle, best_cost) = (known.rows[costs[best].plain].rank, costs[best].expected);
    for it in costs.iter_mut() {
        let is_next = known.rows[it.plain].rank.abs_diff(middle) <= TRIAL_REACH;
        if is_next || is_bold {
            let hoped = cost(known, it.candidate, OPTIMISTIC, place_cost);
            // Where a place is bold, a slow one may be the best by far.
            it.is_near = is_next || hoped < PROMISING * best_cost;
            it.optimistic = if it.is_near { hoped } else { it.expected };
        }
    }
}

/// Returns the index of the fewest core seconds among those that cost at most a share more than the best.
fn lightest_tie(costs: &[Costs], known: &Known, best: usize, share: f64) -> usize {
    let limit = costs[best].pessimistic * (1.0 + share);
    let work = |at: usize| {
        known.rows[costs[at].candidate].asks[EXPECTED]
            .encode_core_seconds
            .mean
    };
    let ties = (0..costs.len()).filter(|&at| share > 0.0 && costs[at].pessimistic <= limit);
    let lightest = ties.min_by(|&a, &b| work(a).total_cmp(&work(b)));
    lightest.unwrap_or(best)
}

/// Returns the index of the least cost; a tie goes to the plainer of the two.
fn least(costs: &[Costs], known: &Known, cost: impl Fn(&Costs) -> f64) -> usize {
    let asks = |it: &Costs| &known.rows[it.candidate].asks[EXPECTED];
    let mut least = 0;
    for at in 1..costs.len() {
        let (new, old) = (&costs[at], &costs[least]);
        let order = cost(new).total_cmp(&cost(old));
        if order.then_with(|| plainer(asks(new), asks(old))) == Ordering::Less {
            least = at;
        }
    }
    least
}

/// Returns the method that may well be the best, among those whose trial costs at most the maximum of `allowed`. If the
/// number of later blocks is known, the trial must also cost at most its possible saving on them. If that method is the
/// best known one, an unseen neighbour may still be better. The neighbour is tried if that costs at most the first of
/// `allowed`. An unseen method on trial is not tried again before the result. No method is tried before the result of
/// its last trial.
fn worth_trying(
    costs: &[Costs],
    known: &Known,
    best: usize,
    allowed: (f64, f64),
    blocks_behind: f64,
) -> usize {
    let charge = |at: usize| costs[at].pessimistic - costs[best].pessimistic;
    let may_pay = |at: usize| {
        let saved = costs[best].expected - costs[at].optimistic;
        blocks_behind.is_infinite() || charge(at) <= blocks_behind * saved
    };
    let is_free = |&at: &usize| {
        let row = &known.rows[costs[at].plain];
        !(row.is_told || !row.is_seen && row.on_trial > 0)
    };
    let is_affordable = |&at: &usize| charge(at) <= allowed.1 && may_pay(at);
    let places = || 0..costs.len();
    let affordable = places().filter(|it| *it == best || is_affordable(it) && is_free(it));
    let hopeful = affordable.min_by(|&a, &b| costs[a].optimistic.total_cmp(&costs[b].optimistic));
    let hopeful = hopeful.expect("the best is affordable");
    if hopeful != best {
        return hopeful;
    }
    let is_unseen = |at: usize| !known.rows[costs[at].plain].is_seen;
    let is_open = |&at: &usize| is_unseen(at) && costs[at].is_near && at != best;
    let open = (places().filter(is_open).filter(is_free)).filter(|&at| charge(at) <= allowed.0);
    let expected = open.min_by(|&a, &b| costs[a].expected.total_cmp(&costs[b].expected));
    expected.unwrap_or(best)
}

/// Returns the best known method, among those whose trial costs at most `allowed`. If others may well be as good, and
/// are expected to cost at most `unnoticed` more, it returns the one that stores least.
fn densest_tie(costs: &[Costs], known: &Known, allowed: f64, unnoticed: f64) -> usize {
    let feared = least(costs, known, |it| it.pessimistic);
    let is_allowed = |&at: &usize| costs[at].pessimistic - costs[feared].pessimistic <= allowed;
    let places = (0..costs.len()).filter(is_allowed);
    let best = (places.clone().map(|at| costs[at].expected)).fold(f64::INFINITY, f64::min);
    let is_tie =
        |&at: &usize| costs[at].optimistic <= best && costs[at].expected <= best + unnoticed;
    let stored = |at: usize| known.rows[costs[at].plain].asks[EXPECTED].stored_bytes.mean;
    let densest = places
        .filter(is_tie)
        .min_by(|&a, &b| stored(a).total_cmp(&stored(b)));
    densest.unwrap_or(feared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::seeded;

    const BLOCK: u64 = 64 << 10;
    const NAMES: [&str; 6] = ["store", "lz4:1", "zstd:1", "zstd:3", "zstd:9", "xz:6"];

    fn plain(names: &[&str]) -> Vec<Candidate> {
        let candidate = |name: &&str| Candidate::new(name.parse().unwrap());
        names.iter().map(candidate).collect()
    }

    fn life(class: Class) -> BlockLife {
        BlockLife {
            reads_per_write: Estimate::exact(1.0),
            ..BlockLife::new(class, BLOCK)
        }
    }

    fn time(mb_s: f64) -> Prices {
        Prices {
            per_core_second: Estimate::exact(1.0),
            per_byte_written: Estimate::exact(1e-6 / mb_s),
            per_byte_read: Estimate::exact(1e-6 / mb_s),
            ..Prices::default()
        }
    }

    fn fixed() -> ChooserOptions {
        ChooserOptions {
            trial_share: 0.0,
            ..ChooserOptions::default()
        }
    }

    /// The real cost of storing a block by a candidate.
    fn block(class: Class, candidate: &Candidate, seconds: f64, stored: f64) -> Observation {
        Observation {
            class,
            method: candidate.method,
            raw_bytes: BLOCK,
            stored_bytes: (stored * BLOCK as f64) as u64,
            encode: Some(Seconds(seconds)),
            decode: None,
        }
    }

    #[test]
    fn without_trials_the_pick_is_of_least_expected_cost() {
        let mut random = seeded("picks against brute force");
        let (mut picks, mut stores) = (0, 0);
        for _ in 0..40 {
            let mut profile = Profile::default();
            for candidate in plain(&NAMES) {
                let seconds = 1e-5 * 300_f64.powf(random.f64());
                profile.observe(&block(Class::TEXT, &candidate, seconds, random.f64()));
            }
            let mut chooser = Chooser::new(plain(&NAMES), profile.clone(), fixed());
            for _ in 0..50 {
                let prices = time(10_f64.powf(4.0 * random.f64()));
                let raw_bytes = random.u64(1..200_000);
                let life = BlockLife {
                    raw_bytes,
                    ..life(Class::TEXT)
                };
                let waits: Vec<f64> = NAMES.iter().map(|_| 1e-4 * random.f64()).collect();
                let picked = chooser.pick(&life, &prices, |at, _| waits[at]);
                // The profile keeps blocks of similar lengths together.
                let length = raw_bytes.next_power_of_two().max(64);
                let cost = |at: usize| {
                    let method = chooser.candidates()[at].method;
                    let estimate = profile.estimate(life.class, method, length);
                    Quantities::of(&estimate, &life).cost(&life, &prices) + waits[at]
                };
                let costs: Vec<f64> = (0..NAMES.len()).map(cost).collect();
                let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
                assert!(
                    costs[picked.candidate] <= least * (1.0 + 1e-12),
                    "{costs:?}"
                );
                let place_cost = |at: usize, _: &Quantities| Estimate::exact(waits[at]);
                let decision = chooser.decide(&life, &prices, place_cost);
                assert_eq!(
                    decision.method,
                    chooser.candidates()[picked.candidate].method
                );
                let of_picked = chooser.decided(picked.candidate, &life, &prices, place_cost);
                assert_eq!(of_picked, decision);
                assert!((decision.cost.mean / least - 1.0).abs() < 1e-9);
                assert!(picked.trial.is_none() && decision.margin.mean >= 0.0);
                picks += 1;
                stores += u32::from(decision.method == Method::STORE);
            }
        }
        println!("{picks} picks, {stores} store");
        assert!(picks == 2000 && (100..1900).contains(&stores));
    }

    /// Lets a chooser pick for blocks with given costs and sizes of candidates, and returns how often each was picked
    /// at last.
    fn run(chooser: &mut Chooser, blocks: usize, truth: &[(f64, f64)]) -> Vec<usize> {
        let (life, prices) = (life(Class::TEXT), time(100.0));
        let mut late = vec![0; truth.len()];
        for at in 0..blocks {
            let picked = chooser.pick(&life, &prices, |_, _| 0.0);
            let (seconds, stored) = truth[picked.candidate];
            let candidate = chooser.candidates()[picked.candidate];
            chooser.observe(&picked, &block(life.class, &candidate, seconds, stored));
            late[picked.candidate] += usize::from(at >= blocks / 2);
        }
        late
    }

    #[test]
    fn what_is_better_than_was_believed_is_found_by_trials_within_their_share() {
        let mut random = seeded("trials");
        let (mut found, mut rows) = (0, 0);
        for _ in 0..30 {
            // Times of a slow machine on some kind of data; one method is made much better on it.
            let slower = 0.5 + 3.0 * random.f64();
            let mut truth: Vec<(f64, f64)> = [0.0, 1e-4, 2e-4, 4e-4, 1.5e-3, 2e-2]
                .iter()
                .zip([1.0, 0.5, 0.36, 0.33, 0.30, 0.25])
                .map(|(seconds, stored)| (seconds * slower, stored))
                .collect();
            let better = random.usize(1..4);
            truth[better] = (5e-5, 0.15);
            let mut chooser =
                Chooser::new(plain(&NAMES), Profile::default(), ChooserOptions::default());
            let late = run(&mut chooser, 400, &truth);
            assert!(
                chooser.trial_share() < 2.0 * TRIAL_SHARE,
                "{}",
                chooser.trial_share()
            );
            rows += 1;
            found += u32::from(late[better] > 150);
        }
        println!("{found} of {rows} found");
        assert!(rows == 30 && found >= 28, "{found}");
    }

    #[test]
    fn of_those_that_cost_about_the_same_the_lightest_is_picked() {
        let check = |tie_share: f64, places: [f64; 6], expected: &str| {
            let options = ChooserOptions {
                tie_share,
                ..fixed()
            };
            let mut profile = Profile::default();
            let takes = [0.0, 1e-4, 2e-4, 4e-4, 1.5e-3, 2e-2];
            for (candidate, seconds) in plain(&NAMES).iter().zip(takes) {
                profile.observe(&block(Class::TEXT, candidate, seconds, 0.5));
            }
            let mut chooser = Chooser::new(plain(&NAMES), profile, options);
            let free = Prices::default();
            let picked = chooser.pick(&life(Class::TEXT), &free, |at, _| places[at]);
            assert_eq!(NAMES[picked.candidate], expected, "{tie_share}, {places:?}");
            assert!(picked.trial.is_none());
        };
        let places = [1.5, 1.2, 1.019, 1.01, 1.0, 1.0];
        check(0.0, places, "zstd:9");
        check(0.02, places, "zstd:1");
        check(0.015, places, "zstd:3");
        // An impossible method ties with nothing.
        let none = f64::INFINITY;
        check(0.02, [none, none, none, none, none, 1.0], "xz:6");
    }

    #[test]
    fn what_cannot_be_is_no_runner_up() {
        let names = &NAMES[1..];
        let mut chooser = Chooser::new(plain(names), Profile::default(), fixed());
        let only =
            |at: usize, _: &Quantities| Estimate::exact(if at == 1 { 0.0 } else { f64::INFINITY });
        let decision = chooser.decided(1, &life(Class::TEXT), &time(100.0), only);
        assert_eq!(decision.method.to_string(), names[1]);
        assert_eq!(decision.runner_up, Some(Method::STORE));
        assert!(decision.margin.mean.is_finite() && decision.saving.mean.is_finite());
    }

    #[test]
    fn a_form_is_picked_where_the_plain_one_must_wait() {
        let method: Method = "xz:6".parse().unwrap();
        let mut candidates = plain(&["store", "xz:6"]);
        candidates
            .extend([2, 4].map(|parts| Candidate::in_form(method, parts, 1.0 / f64::from(parts))));
        let mut profile = Profile::default();
        profile.observe(&block(Class::TEXT, &candidates[1], 0.02, 0.2));
        let mut chooser = Chooser::new(candidates, profile, fixed());
        let (life, prices) = (life(Class::TEXT), time(0.5));
        let mut check = |terms: Terms, wait: f64, expected: usize| {
            let wait = |at: usize, it: &Quantities| {
                let parts = [1.0, 1.0, 2.0, 4.0][at];
                wait * it.encode_core_seconds.mean / parts
            };
            let picked = chooser.pick_on(&life, &prices, &terms, wait);
            assert_eq!(picked.candidate, expected);
            chooser.refresh();
        };
        let slow = Terms {
            forms_from: Seconds(1.0),
            ..Terms::default()
        };
        check(Terms::default(), 0.0, 1);
        check(slow, 3.0, 1);
        check(Terms::default(), 3.0, 3);
        let decision = chooser.decide(&life, &prices, |at, _| {
            Estimate::exact(if at == 2 { -1.0 } else { 0.0 })
        });
        assert_eq!((decision.method, decision.form), (method, 2));
        assert_eq!(decision.reason.saves_in, Some(crate::decide::Part::Place));
    }

    #[test]
    fn what_cannot_be_is_not_picked() {
        let mut chooser =
            Chooser::new(plain(&NAMES), Profile::default(), ChooserOptions::default());
        let only = |at: usize, _: &Quantities| if at == 4 { 1.0 } else { f64::INFINITY };
        for _ in 0..100 {
            let picked = chooser.pick(&life(Class::TEXT), &time(100.0), only);
            assert_eq!((picked.candidate, picked.trial), (4, None));
        }
    }

    #[test]
    fn many_classes_are_forgotten_and_estimated_anew() {
        let mut chooser = Chooser::new(plain(&NAMES), Profile::default(), fixed());
        let mut pick = |class| {
            chooser
                .pick(&life(class), &time(100.0), |_, _| 0.0)
                .candidate
        };
        let first = pick(Class::place(0));
        let all = (1..1000)
            .map(|number| pick(Class::place(number)))
            .collect::<Vec<_>>();
        assert!(all.iter().all(|it| *it == first));
        assert!(chooser.known.len() <= Chooser::KNOWN_MAX);
    }
}
