//! The price of a worker's time against the link's, and the method of each block at that price.
//!
//! Every goal is a price in the one rule of `decide`: a block goes by the arm of least cost.
//!
//! - fastest: work costs `lambda / n`, the link `1 - lambda`. Lambda is such that the last blocks would keep workers
//!   and link equally long (the dual of the fluid problem, `oracle.rs`);
//! - within a factor: bytes cost 1. The price of work is such that the blocks so far, with fading weights, take the
//!   time allowed. Time saved by some is there for others, but none is lent. A method that would make the stream late
//!   if it ended with this block is charged for that. Where the coming bytes are known, the last blocks lend each other
//!   the time that they can give back, and leave nothing;
//! - smallest, money: fixed prices.
//!
//! The prices alone do not see the queue. The link starves if a block takes longer to encode than the frames before it
//! keep the link busy. Other workers stall if a block takes longer than the buffers can hold. Both waits are charged to
//! the method that would cause them, at the price of the waiting part and at their expected length. Blocks take longer
//! or shorter than expected, and the gain of shorter ones does not make up for an idle link. A block that does not fit
//! may be split (`parts.rs`), if its parts with the remaining waits cost less than the whole. Where two methods tie,
//! the fill of the buffers tips the price towards the side that is behind. So errors of the estimates do not add up.
//! Alternating between two ties is right while it is shorter than the buffers.
//!
//! Arms that may be better than their estimates are tried, for at most a hundredth of all cost. The knowledge comes
//! from a [`Profile`], which learns as blocks are completed.
//!
//! | what the controller stands on | file |
//! |---|---|
//! | what is known of each arm, trials, ties and the pick | `decide::Chooser` |
//! | the arm of a block: what the chooser is told of it | `picking.rs` |
//! | the waits that an arm would cause | `waits.rs` |
//! | the blocks on their way, and when the link is through with them | `transit.rs` |
//! | the prices at which the last blocks balance, tipped by what is seen now | `repricing.rs`, `balance.rs` |
//! | what is left of a promised time | `promise.rs` |
//! | how the parts of a block go | `parts.rs` |
//! | what a worker takes beside its codec | `line.rs` |
//! | what a pick comes to in the books | `booking.rs` |
//!
//! Hints are numbers in the same rule (`hint.rs`). Reads are priced as the link and the workers are. A held byte is
//! priced by the cost of storage against the time of a machine. Where the application computes at the same time, its
//! computing is work like that of the blocks. So a method that leaves it too little is too dear, and at the limit only
//! storing pays.
//!
//! Not here: clocks, threads and bytes.

mod balance;
mod booking;
mod goal;
mod line;
mod parts;
mod picking;
mod promise;
mod repricing;
mod transit;
mod waits;

use std::collections::VecDeque;

use crate::codec::Method;
use crate::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Decision, Observation, Prices, Profile,
    Quantities, Terms,
};
use crate::units::{BytesPerSecond, Seconds};

use super::hint::Outlook;
use super::split::{PART_BYTES_MIN, PARTS};
use balance::{Balance, Group, join};
use line::{Line, Pairs};
use picking::Way;
use transit::{Sent, Transit, WAKING_SECONDS};
use waits::Waits;

pub use booking::Entry;
pub use goal::Goal;
pub(super) use repricing::held_seconds_per_byte_second;
pub(super) use transit::HIDDEN_BYTES;
pub use transit::Plant;

/// The cost of encoding a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// The codec's result on it, with core time.
    pub observation: Observation,
    /// The worker's time for the block, choosing included: longer than the codec's core time where other threads had
    /// the core.
    pub wall: Seconds,
}

/// A pick with its reasons.
#[derive(Clone, Copy, Debug)]
pub struct Explained {
    /// Its place among the arms.
    pub arm: usize,
    /// The ticket for the report on the block's outcome.
    pub ticket: u64,
    /// The decision, at the prices and with the waits of the moment.
    pub decision: Decision,
    /// Whether it is a trial: not the best known arm, but one that might be better.
    pub is_trial: bool,
}

/// Blocks' worth of saved time from which a goal with a time hopes for twice as much from untried arms. It then has
/// more time than it can use.
const BOLD_BLOCKS: f64 = 24.0;
/// The weight of a block against the next for a goal with a time, and the least weight that counts.
const PAST_KEPT: f64 = 1.0 - 1.0 / 256.0;
const PAST_MIN: f64 = 0.1;
/// Blocks over which the deviation from the expected time is measured, and the most weight of one.
const SURPRISE_BLOCKS: f64 = 32.0;
const SURPRISE_MAX: f64 = 1.0;
/// The line of a worker without time beside its codec's.
const CORE_ALONE: Line = Line {
    constant: 0.0,
    slope: 1.0,
};
/// The most by which other programs stretch a block's core time. A longer time means that the machine stood still, and
/// shows nothing of the next block.
const STRETCH_MAX: f64 = 8.0;
/// The least share of the time for which the buffers hold work at which splitting a block is considered.
const SPLIT_ROOM_MIN: f64 = 1.0;

/// Picks the arm of each block.
pub struct Controller {
    goal: Goal,
    arms: Vec<Method>,
    /// Workers among which a block may be split.
    pub(super) split_workers: usize,
    chooser: Chooser,
    /// The numbers of parts: each arm has one form for each.
    parts: Vec<usize>,
    /// The last blocks, as many as the buffers hold: blocks further apart cannot balance each other.
    window: VecDeque<Group>,
    /// Whether the window changed since the prices were found.
    is_window_other: bool,
    /// All blocks so far, with fading weights: a goal with a time may save it here and spend it there.
    past: Vec<Group>,
    /// The balance for the blocks of the window.
    prices: Prices,
    /// Seconds of a byte and of a write at the last pricing.
    link_priced: (f64, f64),
    /// Seconds that a block takes on average.
    period: f64,
    transit: Transit,
    /// Recent pairs of the core time of encoding and the worker's time for the block.
    walls: Pairs,
    /// The squared share by which recent blocks deviated from their expected times.
    surprise: f64,
    /// A worker's time by its codec's. Classifying, choosing and waiting for a core are the same for every method, and
    /// contention stretches the codec's time.
    wall: Line,
    /// Bytes that are to come in all, where a pledge gives them.
    pledged_bytes: Option<u64>,
    /// Bytes of the blocks so far, and their seconds uncompressed.
    raw_bytes: u64,
    raw_seconds: f64,
    /// The part of these seconds in which the application computed.
    solver_seconds: f64,
    /// Core seconds of encoding so far, with the expected ones of the blocks under way.
    core_seconds: f64,
    /// Time without any work.
    paused: f64,
    /// The time left of a promise at the last choice, in blocks.
    saved_blocks: f64,
    scratch: Scratch,
}

/// Working memory of a choice, used again for each block.
#[derive(Default)]
struct Scratch {
    groups: Vec<Group>,
    balance: Balance,
    /// When each worker could help with a block.
    delays: Vec<f64>,
}

impl Controller {
    /// Makes a controller that picks among `arms` by the profile's estimates.
    ///
    /// # Panics
    ///
    /// If there are no arms, or the plant has no worker or no speed.
    pub fn new(goal: Goal, arms: Vec<Method>, plant: Plant, profile: Profile) -> Controller {
        assert!(!arms.is_empty() && plant.workers > 0 && plant.link.0 > 0.0);
        let few = |parts: &usize| *parts <= plant.workers.next_power_of_two();
        let parts: Vec<usize> = PARTS.into_iter().filter(few).collect();
        let options = ChooserOptions {
            workers: plant.workers,
            ..ChooserOptions::default()
        };
        let mut controller = Controller {
            goal,
            split_workers: plant.workers,
            chooser: Chooser::new(candidates(&arms, &parts), profile, options),
            arms,
            parts,
            window: VecDeque::with_capacity(plant.frames),
            is_window_other: false,
            past: Vec::new(),
            prices: Prices::default(),
            link_priced: (0.0, 0.0),
            period: f64::INFINITY,
            transit: Transit::new(plant),
            walls: Pairs::default(),
            surprise: 0.0,
            wall: CORE_ALONE,
            pledged_bytes: None,
            raw_bytes: 0,
            raw_seconds: 0.0,
            solver_seconds: 0.0,
            core_seconds: 0.0,
            paused: 0.0,
            saved_blocks: 0.0,
            scratch: Scratch::default(),
        };
        controller.reprice();
        controller
    }

    /// Takes a hint on the total number of bytes. A trial must then be expected to pay on the bytes to come. Where a
    /// time is promised, the last blocks take the rest of it. Further bytes are chosen for as without a pledge.
    pub fn pledge(&mut self, bytes: u64) {
        self.pledged_bytes = Some(bytes);
    }

    /// Returns the goal of its picks.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// Returns the arms.
    pub fn arms(&self) -> &[Method] {
        &self.arms
    }

    /// Returns the plant as known now.
    pub fn plant(&self) -> &Plant {
        &self.transit.plant
    }

    /// Returns the profile of the arms so far.
    pub fn profile(&self) -> &Profile {
        self.chooser.profile()
    }

    /// Returns the prices at which the last blocks balance: of a core's second, of a stored byte and
    /// of a write.
    pub fn balance_prices(&self) -> &Prices {
        &self.prices
    }

    /// Returns the line of a worker's time for a block over the core time of encoding it.
    pub(super) fn wall(&self) -> Line {
        self.wall
    }

    /// Returns the mean time of all workers together for a block: infinite before the first.
    pub fn worker_seconds(&self) -> Seconds {
        Seconds(self.period * self.plant().workers as f64)
    }

    /// Returns the expected share of all cost that trials of other arms took.
    pub fn trial_share(&self) -> f64 {
        self.chooser.trial_share()
    }

    /// Returns the share of all cost by which trials exceeded their feared cost.
    pub fn trial_surprise_share(&self) -> f64 {
        self.chooser.trial_surprise_share()
    }

    /// Changes the known speed of the link.
    pub fn set_link(&mut self, link: BytesPerSecond, write_overhead: Seconds) {
        self.transit.set_link(link, write_overhead);
    }

    /// Picks the arm of a block that starts now, `now` after the first, with the hints in `outlook`. Returns the arm's
    /// index, and a ticket for the report of its outcome.
    pub fn choose_for(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        now: Seconds,
    ) -> (usize, u64) {
        let way = self.way_for(class, raw_bytes, outlook, now);
        self.send(&way, outlook, now)
    }

    /// Picks as [`Controller::choose_for`] does, and returns the reason.
    pub fn explain_for(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        now: Seconds,
    ) -> Explained {
        let way = self.way_for(class, raw_bytes, outlook, now);
        let decision = self.decision_of(&way);
        let (arm, ticket) = self.send(&way, outlook, now);
        Explained {
            arm,
            ticket,
            decision,
            is_trial: way.picked.trial.is_some(),
        }
    }

    fn way_for(&mut self, class: Class, raw_bytes: u64, outlook: &Outlook, now: Seconds) -> Way {
        let kind = (Some(class), *outlook);
        let is_new = !self.window.iter().any(|it| (it.class, it.outlook) == kind);
        self.enter(Some(class), raw_bytes, outlook, now);
        // While the link waits for blocks, prices stay: following every block was slower.
        let is_busy = self.transit.watch_link(now);
        let is_other = self.is_window_other || self.link_priced != self.transit.link();
        if is_new || self.period.is_infinite() || is_busy && is_other {
            self.reprice();
        }
        self.pick(class, raw_bytes, outlook, now)
    }

    /// Queues a block.
    fn send(&mut self, way: &Way, outlook: &Outlook, now: Seconds) -> (usize, u64) {
        self.count_raw(way.life.raw_bytes, outlook);
        let candidate = way.picked.candidate;
        let sent = Sent {
            chosen_at: now.0,
            encoded_at: now.0 + way.spell.latency,
            stored_bytes: way.expected.stored_bytes.mean,
            core_seconds: way.expected.encode_core_seconds.mean,
            candidate,
            parts: self.parts_in(candidate),
            is_encoded: false,
            trial: way.picked.trial.map(|it| (it, way.spell, way.waits)),
        };
        self.core_seconds += sent.core_seconds;
        (candidate / self.parts.len(), self.transit.send(sent))
    }

    /// Returns the number of parts of a candidate's block.
    fn parts_in(&self, candidate: usize) -> usize {
        self.parts[candidate % self.parts.len()]
    }

    /// Returns the number of equal parts for the block of a ticket, 1 for no split. Several workers encode parts, and
    /// their frames follow each other.
    pub fn parts_of(&self, ticket: u64) -> usize {
        self.transit.sent(ticket).map_or(1, |it| it.parts)
    }

    /// Notes a block that starts now and is stored at any price; returns its ticket, for [`Controller::stored`].
    pub fn pass(&mut self, raw_bytes: u64, outlook: &Outlook, now: Seconds) -> u64 {
        self.enter(None, raw_bytes, outlook, now);
        self.count_raw(raw_bytes, outlook);
        self.transit.send(Sent {
            chosen_at: now.0,
            encoded_at: now.0,
            stored_bytes: raw_bytes as f64,
            core_seconds: 0.0,
            candidate: 0,
            parts: 1,
            is_encoded: false,
            trial: None,
        })
    }

    /// Notes that a block's frame was finished `now`.
    pub fn stored(&mut self, ticket: u64, stored_bytes: u64, now: Seconds) {
        self.transit.stored(ticket, stored_bytes, now);
    }

    /// Notes that the sink took the first of the blocks on their way.
    pub fn written(&mut self, now: Seconds) {
        self.transit.written(now);
    }

    /// Adds a block to the window.
    fn enter(&mut self, class: Option<Class>, raw_bytes: u64, outlook: &Outlook, now: Seconds) {
        let raw_bytes = raw_bytes as f64;
        self.paused += self.transit.pause(raw_bytes, now);
        let new = Group {
            class,
            outlook: *outlook,
            count: 1.0,
            raw_bytes,
        };
        let is_full = self.window.len() >= self.plant().frames.max(1);
        let old = is_full.then(|| self.window.pop_front()).flatten();
        self.window.push_back(new);
        self.is_window_other |= old != Some(new);
        if matches!(self.goal, Goal::Within(_)) {
            self.remember(&new);
        }
    }

    /// Adds a block to all so far.
    fn remember(&mut self, new: &Group) {
        self.past.retain_mut(|it| {
            it.count *= PAST_KEPT;
            it.raw_bytes *= PAST_KEPT;
            it.count >= PAST_MIN
        });
        join(&mut self.past, new);
    }

    fn count_raw(&mut self, raw_bytes: u64, outlook: &Outlook) {
        let raw_seconds = self.transit.write_seconds(raw_bytes as f64);
        self.raw_bytes += raw_bytes;
        self.raw_seconds += raw_seconds;
        self.solver_seconds += outlook.asynchronism * raw_seconds;
    }

    /// Learns the cost of encoding a block that was finished `now`.
    pub fn encoded(&mut self, ticket: u64, taken: &Taken, now: Seconds) {
        let observation = &taken.observation;
        self.be_surprised(ticket, now);
        self.transit.stored(ticket, observation.stored_bytes, now);
        let arm = self.arms.iter().position(|it| *it == observation.method);
        let mut candidate = arm.map(|it| it * self.parts.len());
        let mut was_trial = false;
        if let Some(sent) = self.transit.sent_mut(ticket) {
            candidate = Some(sent.candidate);
            let core = observation.encode.unwrap_or(taken.wall).0;
            self.core_seconds += core - sent.core_seconds;
            if let Some((trial, spell, waits)) = sent.trial.take() {
                was_trial = true;
                let real = booking::real(&trial.expected, taken);
                let cost = real.cost(&trial.life, &trial.prices);
                // The queue as known now, except for the blocks under way then.
                let waits = Waits {
                    wall: self.wall,
                    period: self.period,
                    room: self.room(),
                    link_second: self.link_second(&trial.prices),
                    ..waits
                };
                let waited = waits.afterwards(&trial.expected, &real, &spell);
                self.chooser.settle(&trial, cost + waited);
            }
        }
        if let Some(core) = observation.encode {
            let most = STRETCH_MAX * core.0 + WAKING_SECONDS;
            self.walls.add(core.0, taken.wall.0.min(most).max(core.0));
            self.wall = self.walls.line(1.0).unwrap_or(CORE_ALONE);
        }
        let is_due = candidate.is_some_and(|it| self.chooser.learn(it, observation));
        // Where time is saved up, a trial is of a method that may store far less, so its result is used at once.
        // Otherwise, prices that follow every result were slower.
        let is_awaited = was_trial && matches!(self.goal, Goal::Within(_));
        if is_awaited && !is_due {
            self.chooser.refresh();
        }
        if is_due || is_awaited {
            self.reprice();
        }
    }

    /// Learns how far the encoding of blocks deviates from the expectation. For a trial the expectation was low.
    fn be_surprised(&mut self, ticket: u64, now: Seconds) {
        let Some(sent) = self.transit.sent(ticket) else {
            return;
        };
        let expected = sent.encoded_at - sent.chosen_at;
        if sent.trial.is_none() && expected > 0.0 {
            let later = (now.0 - sent.encoded_at) / expected;
            let squared = later.powi(2).min(SURPRISE_MAX);
            self.surprise += (squared - self.surprise) / SURPRISE_BLOCKS;
        }
    }

    /// Returns the wall time that a worker takes to encode.
    fn wall_of(&self, quantities: &Quantities) -> f64 {
        self.wall.at(quantities.encode_core_seconds.mean)
    }

    /// Returns the time for which all frame buffers but one hold work.
    fn room(&self) -> f64 {
        self.period * self.plant().frames.saturating_sub(1).max(1) as f64
    }

    /// Returns the life of a block without its hints, and the chooser's terms for all like it.
    fn kind_of(&self, class: Class, raw_bytes: u64) -> (BlockLife, Terms) {
        let is_long = raw_bytes >= 2 * PART_BYTES_MIN as u64 && self.split_workers > 1;
        let room = (SPLIT_ROOM_MIN * self.room() - self.wall.constant) / self.wall.slope;
        let terms = Terms {
            forms_from: Seconds(if is_long { room } else { f64::INFINITY }),
            is_hopeful: matches!(self.goal, Goal::Within(_)) && self.saved_blocks > BOLD_BLOCKS,
            ..Terms::default()
        };
        (self.goal.usual_life(class, raw_bytes), terms)
    }

    /// Returns the estimate of each whole arm on a class.
    fn known(&self, class: Option<Class>, raw_bytes: u64) -> impl Iterator<Item = &Quantities> {
        let known = class.map(|it| self.chooser.expected(it, raw_bytes));
        known.into_iter().flatten().step_by(self.parts.len())
    }
}

/// Returns each arm whole and in each number of parts.
fn candidates(arms: &[Method], parts: &[usize]) -> Vec<Candidate> {
    let forms = |&arm: &Method| {
        let in_parts = move |(form, &parts): (usize, &usize)| {
            Candidate::in_form(arm, form as u16, 1.0 / parts as f64)
        };
        parts.iter().enumerate().map(in_parts).collect::<Vec<_>>()
    };
    arms.iter().flat_map(forms).collect()
}
