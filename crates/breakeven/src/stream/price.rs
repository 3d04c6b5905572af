//! The price of a worker's time against the link's, and the method of each block at that price.
//!
//! Every goal is a price in the one rule of `decide`: a block goes by the arm of least cost.
//!
//! - fastest: work costs `lambda / n`, the link `1 - lambda`, with the lambda at which the last blocks
//!   would keep workers and link equally long (the dual of the fluid problem, `oracle.rs`);
//! - within a factor: bytes cost 1, work costs what makes the blocks so far, the older the less, take the
//!   time allowed. Time saved by some is there for others, but none is lent: a method by which the stream
//!   would be late if it ended with this block is charged for it. Where it was told how much is to come, the
//!   last blocks lend each other what they can give back, and leave nothing;
//! - smallest, money: fixed prices.
//!
//! The prices alone do not see the queue. A block that takes longer to encode than the frames before
//! it keep the link lets the link starve, and one that takes longer than the buffers can hold lets
//! the other workers stall; both waits are charged to the method that would cause them, at the
//! price of what waits, and as long as they may be on the mean: blocks take longer or shorter than
//! expected, and what is won where they are shorter does not make up for a link that stands still.
//! A block that does not fit may be split (`parts.rs`), if its parts cost less with
//! the waits that are left than the whole does. Where two methods tie, how full the buffers are tips
//! the price to the side that helps whoever is behind, so errors of the estimates do not add up. Going
//! to and fro between two ties is right as long as it is shorter than the buffers.
//!
//! Arms that might be better than they are known to be are tried, for at most a hundredth
//! of all cost. What is known comes from a [`Profile`], which learns as blocks are completed.
//!
//! Hints are numbers in the same rule (`hint.rs`): reads cost what the link and the workers cost, a
//! byte held costs what storage costs against the time of a machine, and where the application
//! computes meanwhile, its computing is work like that of the blocks. So a method that leaves it too
//! little is too dear, up to where only storing pays.
//!
//! Not here: clocks, threads and bytes.

use std::collections::{BTreeMap, VecDeque};

use crate::codec::Method;
use crate::decide::{BlockLife, Class, Decision, Observation, Prices, Profile, Quantities};
use crate::model::prices::HIRSCH_2017;
use crate::statistics::mean_excess;
use crate::units::{BytesPerSecond, Estimate, Seconds};

use super::arms::{Costs, Known, Splitting, least};
use super::balance::{Balance, Group, Weighed, join, turn};
use super::hint::Outlook;
use super::line::{Line, Pairs};
use super::parts::{Shares, Spell};

/// What a stream is to be.
#[expect(clippy::large_enum_variant, reason = "there is one a stream")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// Over as soon as can be (Hirsch's S1).
    Fastest,
    /// As small as can be in at most this factor of the time it takes uncompressed, at least 1: 1
    /// for no loss of time (S2), more to give time for space (S3).
    Within(f64),
    /// As small as can be.
    Smallest,
    /// As cheap as can be at fixed prices, held for some time and read so often.
    Money {
        prices: Prices,
        held: Seconds,
        reads: f64,
    },
}

impl Goal {
    /// Returns the unit of what blocks cost under this goal, as it is booked: for the fastest end
    /// the block's share of the time in which workers and link end together, where space counts
    /// its bytes.
    pub fn unit(&self) -> &'static str {
        match self {
            Goal::Fastest => "seconds",
            Goal::Within(_) | Goal::Smallest => "bytes",
            Goal::Money { .. } => "price",
        }
    }

    /// Returns the life of a block of which hints tell nothing.
    fn usual_life(&self, class: Class, raw_bytes: u64) -> BlockLife {
        let mut life = BlockLife::new(class, raw_bytes);
        life.reads_per_write = Estimate::exact(0.0);
        if let Goal::Money { held, reads, .. } = self {
            life.held_seconds = Estimate::exact(held.0);
            life.reads_per_write = Estimate::exact(*reads);
        }
        life
    }
}

/// What the blocks go through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plant {
    /// Workers, at least 1.
    pub workers: usize,
    /// Frame buffers.
    pub frames: usize,
    /// Speed of the link.
    pub link: BytesPerSecond,
    /// Seconds of each write beside its bytes.
    pub write_overhead: Seconds,
}

/// What encoding a block took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// What the codec made of it, with core time.
    pub observation: Observation,
    /// The worker's time for the block, choosing included: longer than the codec's core time where
    /// others had the core.
    pub wall: Seconds,
}

/// Completions after which prices and estimates are computed anew.
const UPDATE_BLOCKS: usize = 8;
/// Share of all cost that trying may take.
pub(super) const TRIAL_SHARE: f64 = 0.01;
/// Blocks' worth of cost that trying may take at once, before there is much to take a share of.
pub(super) const TRIAL_BLOCKS: f64 = 4.0;
/// Seconds of the pipeline that trying may take besides: what nobody notices.
pub(super) const TRIAL_SECONDS: f64 = 4e-3;
/// Odds of the two prices of the fastest end beyond which the lesser counts for nothing. A price of
/// nothing would waste the workers on a gain of nothing.
const ODDS_MAX: f64 = 1e3;
/// How far full or empty buffers move the logarithm of these odds: as much to either side.
const FILL_ODDS: f64 = 0.25;
/// Blocks by which an application may be late before the odds of its workers' time double no more.
const LATE_MAX: f64 = 10.0;
/// Blocks' worth of time saved at which a goal with a time halves the price of work.
const SAVED_BLOCKS: f64 = 4.0;
/// Blocks' worth of time saved from which on a goal with a time hopes for twice as much of what it has
/// not seen: there is more time than it knows to use.
const BOLD_BLOCKS: f64 = 24.0;
/// What a block counts for a goal with a time beside the next, and from what on it counts at all.
const PAST_KEPT: f64 = 1.0 - 1.0 / 256.0;
const PAST_MIN: f64 = 0.1;
/// Blocks over which it is seen how far from what was expected they take, and the most that one counts.
const SURPRISE_BLOCKS: f64 = 32.0;
const SURPRISE_MAX: f64 = 1.0;
/// Seconds for which whoever feeds the link may have waited for a core: no sign of a slow link.
const WAKING_SECONDS: f64 = 10e-3;
/// A worker that takes no longer than its codec.
const CORE_ALONE: Line = Line {
    constant: 0.0,
    slope: 1.0,
};
/// Times its core time that a block takes at most by others' doing; what takes longer is a machine that
/// stood still, and tells nothing of the next block.
const STRETCH_MAX: f64 = 8.0;
/// The most bytes that a sink is thought to hold and to send later: Linux lets the send buffer of a
/// TCP connection grow to 4 MiB, and a queue of the link may hold as much.
pub(super) const HIDDEN_BYTES: f64 = 8.0 * MIB;
const MIB: f64 = (1 << 20) as f64;
/// The share of the time for which the buffers hold work that a block must take before splitting it is
/// thought of.
const SPLIT_ROOM_MIN: f64 = 1.0;

/// Picks the arm of each block.
pub struct Controller {
    goal: Goal,
    arms: Vec<Method>,
    plant: Plant,
    /// Workers among which a block may be split.
    pub(super) split_workers: usize,
    profile: Profile,
    known: BTreeMap<Class, Known>,
    /// The last blocks, as many as the buffers hold: what lies further apart cannot be set off
    /// against each other.
    window: VecDeque<Group>,
    /// Whether there are other blocks in it than when the prices were found.
    is_window_other: bool,
    /// All blocks so far, the older the less: a goal with a time may save it here and spend it there.
    past: Vec<Group>,
    /// Where the balance lies for the blocks of the window.
    prices: Prices,
    /// Seconds of a byte and of a write by which the prices were found.
    link_priced: (f64, f64),
    /// Seconds that a block takes on the whole.
    period: f64,
    /// Blocks chosen and not yet written, in their order.
    queue: VecDeque<Sent>,
    /// Tickets given out; the queue's first is this less the queue's length.
    tickets: u64,
    /// When the link is through with what it was given, as far as is known: a sink may hold some of it
    /// still.
    link_ended: f64,
    /// Seconds a byte that the block now on the link has taken already, at least.
    byte_seconds_min: f64,
    /// Core time of encoding and the worker's time for the block, lately.
    walls: Pairs,
    /// Squared share by which blocks were encoded later or sooner than expected, lately.
    surprise: f64,
    /// What a worker takes by what its codec does: classifying, choosing and waiting for a core are the
    /// same for every method, contention stretches the codec's time.
    wall: Line,
    completed: usize,
    /// Bytes that are to come in all, where that was told.
    pledged_bytes: Option<u64>,
    /// Bytes of the blocks so far, and seconds that they would take uncompressed.
    raw_bytes: u64,
    raw_seconds: f64,
    /// Those of them in which the application computed.
    solver_seconds: f64,
    /// Core seconds that encoding took so far, with what is expected of the blocks under way.
    core_seconds: f64,
    /// Time in which there was nothing to do.
    paused: f64,
    cost_total: f64,
    trial_cost: f64,
    /// What trials took beyond what was feared of them.
    trial_surprise: f64,
    /// Time that a goal with a time had left at the last choice, in blocks.
    saved_blocks: f64,
    /// Counted up when the profile has learnt enough to estimate anew.
    lessons: u64,
    scratch: Scratch,
}

/// Memory that choosing needs again for each block.
#[derive(Default)]
struct Scratch {
    groups: Vec<Group>,
    balance: Balance,
    costs: Costs,
}

/// A pick on its way to the books.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What was expected, in the goal's unit ([`Goal::unit`]).
    pub decision: Decision,
    life: BlockLife,
    prices: Prices,
}

impl Entry {
    /// Returns what the block really cost, in the unit and at the prices of the decision.
    pub fn real_cost(&self, taken: &Taken) -> f64 {
        real(&self.decision.quantities, taken).cost(&self.life, &self.prices)
    }
}

/// A block on its way.
#[derive(Clone, Copy, Debug)]
struct Sent {
    chosen_at: f64,
    /// When it was or is to be compressed.
    encoded_at: f64,
    stored_bytes: f64,
    /// Core seconds that encoding it takes, as expected.
    core_seconds: f64,
    /// Into how many parts it is split.
    parts: usize,
    is_encoded: bool,
    trial: Option<Trial>,
}

/// An arm that is tried, and what the best one known would have cost.
#[derive(Clone, Copy, Debug)]
struct Trial {
    arm: usize,
    /// What is charged for it until it is done.
    charge: f64,
    best_cost: f64,
    expected: Quantities,
    parts: usize,
    /// While it is encoded, as expected.
    spell: Spell,
    life: BlockLife,
    prices: Prices,
    backlog: f64,
}

/// What is left for a block of a promised time.
struct Left {
    /// Seconds until it must be through; without end where no time is promised.
    seconds: f64,
    /// Blocks' worth of time that those before it saved.
    saved_blocks: f64,
    /// Blocks as long that are to come behind it; without end where that was not told.
    blocks_behind: f64,
}

/// A choice for a block.
struct Picked {
    arm: usize,
    way: Shares,
    /// Until it is encoded.
    latency: f64,
    trial: Option<Trial>,
}

impl Controller {
    /// Makes a controller that picks among `arms` on what the profile knows.
    ///
    /// # Panics
    ///
    /// If there are no arms, or the plant has no worker or no speed.
    pub fn new(goal: Goal, arms: Vec<Method>, plant: Plant, profile: Profile) -> Controller {
        assert!(!arms.is_empty() && plant.workers > 0 && plant.link.0 > 0.0);
        let mut controller = Controller {
            goal,
            arms,
            plant,
            split_workers: plant.workers,
            profile,
            known: BTreeMap::new(),
            window: VecDeque::with_capacity(plant.frames),
            is_window_other: false,
            past: Vec::new(),
            prices: Prices::default(),
            link_priced: (0.0, 0.0),
            period: f64::INFINITY,
            queue: VecDeque::new(),
            tickets: 0,
            link_ended: 0.0,
            byte_seconds_min: 0.0,
            walls: Pairs::default(),
            surprise: 0.0,
            wall: CORE_ALONE,
            completed: 0,
            pledged_bytes: None,
            raw_bytes: 0,
            raw_seconds: 0.0,
            solver_seconds: 0.0,
            core_seconds: 0.0,
            paused: 0.0,
            cost_total: 0.0,
            trial_cost: 0.0,
            trial_surprise: 0.0,
            saved_blocks: 0.0,
            lessons: 0,
            scratch: Scratch::default(),
        };
        controller.reprice();
        controller
    }

    /// Takes a hint on how many bytes there are in all. What is tried must be hoped to pay on those to come, and
    /// where a time is promised the last blocks take what is left of it. If there are more, those are chosen for
    /// as if nothing had been told.
    pub fn pledge(&mut self, bytes: u64) {
        self.pledged_bytes = Some(bytes);
    }

    /// Returns the arms.
    pub fn arms(&self) -> &[Method] {
        &self.arms
    }

    /// Returns what the blocks go through, as far as it is known now.
    pub fn plant(&self) -> &Plant {
        &self.plant
    }

    /// Returns what is known of the arms.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the prices at which the last blocks balance: of a core's second, of a stored byte and
    /// of a write.
    pub fn balance_prices(&self) -> &Prices {
        &self.prices
    }

    /// Returns the time that a worker takes for a block, in the core time of encoding it.
    pub(super) fn wall(&self) -> Line {
        self.wall
    }

    /// Returns the time of all workers together in which a block goes through, as far as it is known:
    /// infinite before the first.
    pub fn worker_seconds(&self) -> Seconds {
        Seconds(self.period * self.plant.workers as f64)
    }

    /// Returns the pick of an arm and of a number of parts for a block, of a class that
    /// [`Controller::choose_for`] has seen, as it goes to the books.
    ///
    /// # Panics
    ///
    /// If the class was never seen, or there is no such arm.
    pub fn entry_for(
        &self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        (arm, parts): (usize, usize),
    ) -> Entry {
        let known = &self.known[&class];
        let share = raw_bytes as f64 / known.life.raw_bytes.max(1) as f64;
        let mut life = BlockLife {
            raw_bytes,
            ..known.life
        };
        // Time and bytes are booked of the writing alone.
        if matches!(self.goal, Goal::Money { .. }) {
            life = outlook.life(life);
        }
        let prices = self.booked_prices();
        let way = known.partings[arm].in_parts_or_whole(parts);
        let picked = scaled(&way.of(&known.likely[arm]), share);
        let method = self.arms[arm];
        let others = self.arms.iter().zip(&known.likely);
        let others = others.map(|(&it, likely)| (it, scaled(likely, share).cost(&life, &prices)));
        let store_cost = self.booked_store_cost(&life, &prices);
        Entry {
            decision: Decision::picked(
                &life,
                (method, picked.cost(&life, &prices), picked),
                others,
                store_cost,
            ),
            life,
            prices,
        }
    }

    /// Returns the pick of a block that [`Controller::pass`] was told of, as it goes to the books: it is
    /// of class [`Class::UNSEEN`], and there was nothing to pick from.
    pub fn entry_of_passed(&self, raw_bytes: u64, outlook: &Outlook) -> Entry {
        let mut life = self.goal.usual_life(Class::UNSEEN, raw_bytes);
        if matches!(self.goal, Goal::Money { .. }) {
            life = outlook.life(life);
        }
        let prices = self.booked_prices();
        let stored = Quantities::of_store(&life);
        let store_cost = self.booked_store_cost(&life, &prices);
        let only = (Method::STORE, stored.cost(&life, &prices), stored);
        Entry {
            decision: Decision::picked(&life, only, std::iter::empty(), store_cost),
            life,
            prices,
        }
    }

    /// Returns the prices that blocks are booked at.
    fn booked_prices(&self) -> Prices {
        // The link as it is known, and not as one write that takes long may make it look.
        let byte_seconds = 1.0 / self.plant.link.0;
        let write_seconds = self.plant.write_overhead.0;
        match self.goal {
            Goal::Fastest => {
                let work = self.prices.per_core_second.mean;
                let link = 1.0 - work * self.plant.workers as f64;
                Controller::prices(work, link * byte_seconds, link * write_seconds, 0.0)
            }
            Goal::Money { prices, .. } => prices,
            Goal::Within(_) | Goal::Smallest => Controller::prices(0.0, 1.0, 0.0, 0.0),
        }
    }

    /// Returns what a block would have cost uncompressed, as it is booked.
    fn booked_store_cost(&self, life: &BlockLife, prices: &Prices) -> f64 {
        match self.goal {
            // Alone on its way it would take the link as long as this, and hide all other work.
            Goal::Fastest => {
                self.plant.write_overhead.0 + life.raw_bytes as f64 / self.plant.link.0
            }
            _ => Quantities::of_store(life).cost(life, prices),
        }
    }

    /// Returns the share of all cost, as it was expected, that trying other arms took.
    pub fn trial_share(&self) -> f64 {
        self.trial_cost / self.cost_total.max(f64::MIN_POSITIVE)
    }

    /// Returns the share of all cost that trials took beyond what was feared of them.
    pub fn trial_surprise_share(&self) -> f64 {
        self.trial_surprise / self.cost_total.max(f64::MIN_POSITIVE)
    }

    /// Changes what is known of the link.
    pub fn set_link(&mut self, link: BytesPerSecond, write_overhead: Seconds) {
        if link.0 > 0.0 && link.0.is_finite() && write_overhead.0 >= 0.0 {
            self.plant.link = link;
            self.plant.write_overhead = write_overhead;
        }
    }

    /// Picks the arm of a block that starts now, `now` after the first, and of which hints tell what is
    /// in `outlook`: its place among the arms, and a ticket by which to tell what became of it.
    pub fn choose_for(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        now: Seconds,
    ) -> (usize, u64) {
        let kind = (Some(class), *outlook);
        let is_new = !self.window.iter().any(|it| (it.class, it.outlook) == kind);
        self.enter(Some(class), raw_bytes, outlook, now);
        self.learn_of(class, raw_bytes);
        // While the link waits for blocks, prices stay: following every block has been slower.
        let is_busy = self.watch_link(now);
        let is_other = self.is_window_other || self.link_priced != self.link();
        if is_new || self.period.is_infinite() || is_busy && is_other {
            self.reprice();
        }
        let Picked {
            arm,
            way,
            latency,
            trial,
        } = self.pick(class, raw_bytes, outlook, now);
        self.count_raw(raw_bytes, outlook);
        let quantities = way.of(&self.known[&class].likely[arm]);
        let sent = Sent {
            chosen_at: now.0,
            encoded_at: now.0 + latency,
            stored_bytes: quantities.stored_bytes.mean,
            core_seconds: quantities.encode_core_seconds.mean,
            parts: way.parts,
            is_encoded: false,
            trial,
        };
        self.core_seconds += sent.core_seconds;
        (arm, self.send(sent))
    }

    /// Returns into how many equal parts the block of a ticket is to be split, 1 for none; parts are
    /// encoded by several workers, and their frames follow each other.
    pub fn parts_of(&self, ticket: u64) -> usize {
        self.place_of(ticket).map_or(1, |it| self.queue[it].parts)
    }

    /// Returns the place in the queue of the block of a ticket, unless it was written.
    fn place_of(&self, ticket: u64) -> Option<usize> {
        let first = self.tickets - self.queue.len() as u64;
        let place = ticket.checked_sub(first)? as usize;
        (place < self.queue.len()).then_some(place)
    }

    /// Notes a block that starts now and is stored as it is, whatever the price; returns its ticket,
    /// for [`Controller::stored`].
    pub fn pass(&mut self, raw_bytes: u64, outlook: &Outlook, now: Seconds) -> u64 {
        self.enter(None, raw_bytes, outlook, now);
        self.count_raw(raw_bytes, outlook);
        self.send(Sent {
            chosen_at: now.0,
            encoded_at: now.0,
            stored_bytes: raw_bytes as f64,
            core_seconds: 0.0,
            parts: 1,
            is_encoded: false,
            trial: None,
        })
    }

    /// Notes that a block's frame was finished `now`.
    pub fn stored(&mut self, ticket: u64, stored_bytes: u64, now: Seconds) {
        if let Some(place) = self.place_of(ticket) {
            let sent = &mut self.queue[place];
            sent.encoded_at = now.0;
            sent.stored_bytes = stored_bytes as f64;
            sent.is_encoded = true;
        }
    }

    /// Puts a block into the window.
    fn enter(&mut self, class: Option<Class>, raw_bytes: u64, outlook: &Outlook, now: Seconds) {
        let raw_bytes = raw_bytes as f64;
        let pause = now.0 - self.link_ended;
        // What takes longer than a block is no gap between two of them.
        if self.queue.is_empty() && self.tickets > 0 && pause > self.write_seconds(raw_bytes) {
            self.paused += pause;
        }
        let new = Group {
            class,
            outlook: *outlook,
            count: 1.0,
            raw_bytes,
        };
        let is_full = self.window.len() >= self.plant.frames.max(1);
        let old = is_full.then(|| self.window.pop_front()).flatten();
        self.window.push_back(new);
        self.is_window_other |= old != Some(new);
        if matches!(self.goal, Goal::Within(_)) {
            self.remember(&new);
        }
    }

    /// Counts a block among all so far.
    fn remember(&mut self, new: &Group) {
        self.past.retain_mut(|it| {
            it.count *= PAST_KEPT;
            it.raw_bytes *= PAST_KEPT;
            it.count >= PAST_MIN
        });
        join(&mut self.past, new);
    }

    fn count_raw(&mut self, raw_bytes: u64, outlook: &Outlook) {
        let raw_seconds = self.write_seconds(raw_bytes as f64);
        self.raw_bytes += raw_bytes;
        self.raw_seconds += raw_seconds;
        self.solver_seconds += outlook.asynchronism * raw_seconds;
    }

    /// Queues a block and returns its ticket.
    fn send(&mut self, sent: Sent) -> u64 {
        self.queue.push_back(sent);
        self.tickets += 1;
        self.tickets - 1
    }

    /// Learns what encoding a block took, that was finished `now`.
    pub fn encoded(&mut self, ticket: u64, taken: &Taken, now: Seconds) {
        let observation = &taken.observation;
        self.be_surprised(ticket, now);
        self.stored(ticket, observation.stored_bytes, now);
        let mut parts = 1;
        if let Some(place) = self.place_of(ticket) {
            let sent = &mut self.queue[place];
            parts = sent.parts;
            let core = observation.encode.unwrap_or(taken.wall).0;
            self.core_seconds += core - sent.core_seconds;
            if let Some(trial) = sent.trial.take() {
                self.settle(&trial, taken);
            }
        }
        if let Some(core) = observation.encode {
            let most = STRETCH_MAX * core.0 + WAKING_SECONDS;
            self.walls.add(core.0, taken.wall.0.min(most).max(core.0));
            self.wall = self.walls.line(1.0).unwrap_or(CORE_ALONE);
        }
        let drifts = self.profile.observe(&of_part(observation, parts));
        self.completed += 1;
        if drifts || self.completed.is_multiple_of(UPDATE_BLOCKS) || self.completed < UPDATE_BLOCKS
        {
            self.lessons += 1;
            self.reprice();
        }
    }

    /// Learns how far from what was expected blocks are encoded. Of a trial little was expected.
    fn be_surprised(&mut self, ticket: u64, now: Seconds) {
        let Some(sent) = self.place_of(ticket).map(|place| &self.queue[place]) else {
            return;
        };
        let expected = sent.encoded_at - sent.chosen_at;
        if sent.trial.is_none() && expected > 0.0 {
            let later = (now.0 - sent.encoded_at) / expected;
            let squared = later.powi(2).min(SURPRISE_MAX);
            self.surprise += (squared - self.surprise) / SURPRISE_BLOCKS;
        }
    }

    /// Notes that the sink took the first of the blocks on their way. A socket's buffer takes some MiB at
    /// once and sends them later, so that the link is busy for as long as its speed says, and not only
    /// until now.
    pub fn written(&mut self, now: Seconds) {
        if let Some(first) = self.queue.pop_front() {
            let began = self.link_ended.max(first.encoded_at);
            let ended = began + self.write_seconds(first.stored_bytes);
            self.link_ended = ended.clamp(now.0, now.0 + HIDDEN_BYTES * self.byte_seconds());
        }
        self.byte_seconds_min = 0.0;
    }

    /// Takes the link to be slower than it was while a block has it for longer than it should; returns
    /// whether a block has it.
    fn watch_link(&mut self, now: Seconds) -> bool {
        let Some(first) = self.queue.front().filter(|it| it.is_encoded) else {
            return self.link_ended > now.0;
        };
        let began = first.encoded_at.max(self.link_ended);
        let taken = now.0 - began;
        self.byte_seconds_min = (taken - WAKING_SECONDS).max(0.0) / first.stored_bytes.max(1.0);
        taken > 0.0 || self.link_ended > now.0
    }

    /// Returns for how long the link has something to do, all blocks on their way included.
    fn backlog(&self, now: Seconds) -> f64 {
        let mut free = self.link_ended;
        for sent in &self.queue {
            let began = free.max(sent.encoded_at);
            free = (began + self.write_seconds(sent.stored_bytes)).max(now.0);
        }
        (free - now.0).max(0.0)
    }

    /// Returns the wall time that a worker takes to encode.
    fn wall_of(&self, quantities: &Quantities) -> f64 {
        self.wall.at(quantities.encode_core_seconds.mean)
    }

    /// Finds when each worker can take parts of a block that starts now: the one who has it at once, the
    /// others when they are done with what they have.
    fn gather_helpers(&self, now: Seconds, delays: &mut Vec<f64>) {
        delays.clear();
        delays.push(0.0);
        let under_way = self.queue.iter().filter(|it| !it.is_encoded);
        let others = under_way.map(|it| (it.encoded_at - now.0).max(0.0));
        delays.extend(others.take(self.plant.workers - 1));
        delays.resize(self.plant.workers, 0.0);
    }

    /// Returns the time that all frame buffers but one hold work for.
    fn room(&self) -> f64 {
        self.period * self.plant.frames.saturating_sub(1).max(1) as f64
    }

    fn write_seconds(&self, stored_bytes: f64) -> f64 {
        self.plant.write_overhead.0 + stored_bytes * self.byte_seconds()
    }

    /// Returns what the link takes now: seconds of a byte, and of a write.
    fn link(&self) -> (f64, f64) {
        (self.byte_seconds(), self.plant.write_overhead.0)
    }

    fn byte_seconds(&self) -> f64 {
        (1.0 / self.plant.link.0).max(self.byte_seconds_min)
    }

    /// Brings the estimates for a class at hand, for blocks as long as its first.
    fn learn_of(&mut self, class: Class, raw_bytes: u64) {
        let splitting = Splitting {
            workers: self.split_workers,
            core_seconds_min: (SPLIT_ROOM_MIN * self.room() - self.wall.constant) / self.wall.slope,
        };
        let is_bold = matches!(self.goal, Goal::Within(_)) && self.saved_blocks > BOLD_BLOCKS;
        let Controller {
            goal,
            arms,
            profile,
            known,
            lessons,
            ..
        } = self;
        let known = known
            .entry(class)
            .or_insert_with(|| Known::new(goal.usual_life(class, raw_bytes)));
        if known.lesson != *lessons || known.likely.is_empty() {
            known.estimate(profile, arms, &splitting, is_bold);
            known.lesson = *lessons;
        }
    }

    /// Picks the arm of least cost, or one worth trying; with what trying may cost, if it is that.
    ///
    /// An arm of which nothing was seen is a trial, charged as bad as it may be until it is done.
    fn pick(&mut self, class: Class, raw_bytes: u64, outlook: &Outlook, now: Seconds) -> Picked {
        let mut costs = std::mem::take(&mut self.scratch.costs);
        let picked = self.pick_by(class, raw_bytes, outlook, now, &mut costs);
        self.scratch.costs = costs;
        picked
    }

    fn pick_by(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        now: Seconds,
        costs: &mut Costs,
    ) -> Picked {
        let known = &self.known[&class];
        let life = outlook.life(known.life);
        let backlog = self.backlog(now);
        let block = self.write_seconds(life.raw_bytes as f64);
        let behind = self.blocks_behind(raw_bytes, outlook);
        let left = self.left(outlook, now, (block, backlog), behind);
        let prices = self.prices_now(outlook, now, (block, backlog), &left);
        let is_bold = matches!(self.goal, Goal::Within(_));
        let mut delays = std::mem::take(&mut costs.delays);
        self.gather_helpers(now, &mut delays);
        let spell_of = |it: &Quantities, parts: usize| Spell::of(self.wall_of(it), parts, &delays);
        costs.fill(known, is_bold, |it, parts| {
            let spell = spell_of(it, parts);
            it.cost(&life, &prices)
                + self.waits(&spell, parts, &prices, backlog, self.surprise.sqrt())
                + self.lateness(it, spell.latency, left.seconds, backlog)
        });
        let Costs { ways, fearful, .. } = &*costs;
        let best = least(fearful);
        let second =
            prices.per_core_second.mean * self.plant.workers as f64 + self.link_second(&prices);
        let earned = TRIAL_SHARE * self.cost_total - self.trial_cost;
        let lent = TRIAL_BLOCKS * fearful[best] + TRIAL_SECONDS * second;
        // Where a time is promised a trial is paid in bytes, and late all the same.
        let curious = if is_bold { f64::NEG_INFINITY } else { earned };
        let on_trial = |arm: usize| {
            let mut trials = self.queue.iter().filter_map(|it| it.trial.as_ref());
            trials.any(|it| (it.arm, it.life.class) == (arm, class))
        };
        let allowed = (curious, earned + lent);
        let chosen = match self.goal {
            // Nothing behind it pays for a trial; where nothing tells two apart, bytes are the surer gain.
            Goal::Fastest if self.is_ending(behind) => {
                costs.densest_tie(known, allowed.1, TRIAL_SECONDS)
            }
            _ => costs.worth_trying(known, best, allowed, behind, on_trial),
        };
        let way = ways[chosen];
        let expected = way.of(&known.likely[chosen]);
        let spell = spell_of(&expected, way.parts);
        let trial = (chosen != best).then(|| Trial {
            arm: chosen,
            charge: fearful[chosen] - fearful[best],
            best_cost: fearful[best],
            expected,
            parts: way.parts,
            spell,
            life,
            prices,
            backlog,
        });
        self.saved_blocks = left.saved_blocks;
        self.cost_total += fearful[best];
        self.trial_cost += trial.map_or(0.0, |it| it.charge);
        costs.delays = delays;
        Picked {
            arm: chosen,
            way,
            latency: spell.latency,
            trial,
        }
    }

    /// Replaces what was feared of a trial by what it took.
    fn settle(&mut self, trial: &Trial, taken: &Taken) {
        let quantities = real(&trial.expected, taken);
        let longer = self.wall_of(&quantities) / self.wall_of(&trial.expected).max(1e-12);
        let spell = trial.spell.times(longer);
        let cost = quantities.cost(&trial.life, &trial.prices)
            + self.waits(&spell, trial.parts, &trial.prices, trial.backlog, 0.0);
        let beyond = (cost - trial.best_cost).max(0.0) - trial.charge;
        self.trial_cost += beyond;
        self.trial_surprise += beyond.max(0.0);
    }

    /// Returns what the waits cost while a block is encoded: of the link that has sent everything
    /// before it, of the workers that do not help when all buffers are behind it, and of the one who has
    /// it, for the last of its parts: on the mean, where it takes longer or shorter by `deviation`, a
    /// share.
    fn waits(
        &self,
        spell: &Spell,
        parts: usize,
        prices: &Prices,
        backlog: f64,
        deviation: f64,
    ) -> f64 {
        let others = self.plant.workers.saturating_sub(parts) as f64;
        let deviation = deviation * spell.latency;
        // When all workers were at its parts, the link waits for the block after it as well.
        let next = match parts > 1 && others == 0.0 {
            true => self.worker_seconds().0,
            false => 0.0,
        };
        let link = self.link_second(prices);
        let starved = match link > 0.0 {
            true => mean_excess(spell.latency + next, backlog, deviation),
            false => 0.0,
        };
        let stalled = mean_excess(spell.latency, self.room(), deviation) * others;
        starved * link + (stalled + spell.idle) * prices.per_core_second.mean
    }

    /// Returns what a second of the link costs: nothing where bytes are counted and not time.
    fn link_second(&self, prices: &Prices) -> f64 {
        match self.goal {
            Goal::Fastest => prices.per_byte_written.mean / self.byte_seconds(),
            _ => 0.0,
        }
    }

    /// Returns the prices of the window, tipped by what is seen now: where a time is promised, by how
    /// many blocks' worth of it are saved.
    fn prices_now(
        &self,
        outlook: &Outlook,
        now: Seconds,
        (block, backlog): (f64, f64),
        left: &Left,
    ) -> Prices {
        match self.goal {
            Goal::Fastest if self.is_ending(left.blocks_behind) => self.prices_of_time(0.0),
            Goal::Fastest => {
                let room = self.plant.frames.saturating_sub(self.plant.workers).max(1);
                let waiting = (self.queue.len() + 1).saturating_sub(self.plant.workers);
                // Many small frames or few large ones: either way the link has enough to do.
                let waiting = (waiting as f64).max(backlog / self.period);
                let fill = (waiting / room as f64).min(1.0);
                let mut tip = (FILL_ODDS * (1.0 - 2.0 * fill)).exp();
                if outlook.asynchronism > 0.0 {
                    // The buffers do not show that the application will be late.
                    let late = self.asked() - (now.0 - self.paused);
                    tip *= (late / block).clamp(0.0, LATE_MAX).exp2();
                }
                let work = self.prices.per_core_second.mean * self.plant.workers as f64 * tip;
                self.prices_of_time(work / (work + self.link_second(&self.prices)))
            }
            Goal::Within(_) if self.is_ending(left.blocks_behind) => self.prices_of_bytes(0.0),
            Goal::Within(_) => {
                // Near the end there are few blocks left to spend it on.
                let halving = SAVED_BLOCKS.min((left.blocks_behind + 1.0) / 2.0);
                let tip = (-left.saved_blocks / halving).clamp(-4.0, 4.0);
                self.prices_of_bytes(self.prices.per_core_second.mean * tip.exp2())
            }
            Goal::Smallest | Goal::Money { .. } => self.prices,
        }
    }

    /// Returns whether a block is one of the last: nothing comes behind them that their workers could be
    /// wanted for, and the stream ends when they are encoded and written.
    fn is_ending(&self, blocks_behind: f64) -> bool {
        blocks_behind < self.plant.workers as f64
    }

    /// Returns what the blocks and the application's computing asked of the cores.
    fn asked(&self) -> f64 {
        self.core_seconds / self.plant.workers as f64 + self.solver_seconds
    }

    /// Returns how many blocks come behind one that starts now, as long as it: without end where nobody told,
    /// where there are more than was told, and where the cores are not the workers' alone.
    fn blocks_behind(&self, raw_bytes: u64, outlook: &Outlook) -> f64 {
        let so_far = self.raw_bytes + raw_bytes;
        let behind = self.pledged_bytes.and_then(|it| it.checked_sub(so_far));
        match behind.filter(|_| outlook.asynchronism == 0.0) {
            Some(bytes) => bytes as f64 / raw_bytes.max(1) as f64,
            None => f64::INFINITY,
        }
    }

    /// Returns what is left of a promised time for a block that takes so long uncompressed, while the link
    /// has a backlog.
    fn left(
        &self,
        outlook: &Outlook,
        now: Seconds,
        (block, backlog): (f64, f64),
        blocks_behind: f64,
    ) -> Left {
        let Goal::Within(factor) = self.goal else {
            return Left {
                seconds: f64::INFINITY,
                saved_blocks: 0.0,
                blocks_behind,
            };
        };
        let clock = now.0 - self.paused;
        let taken = match outlook.asynchronism > 0.0 {
            true => self.asked().max(clock),
            false => clock,
        };
        let seconds = factor * (self.raw_seconds + block) - taken;
        Left {
            seconds: seconds + self.lent(factor, blocks_behind),
            saved_blocks: (seconds - backlog) / (factor * block),
            blocks_behind,
        }
    }

    /// Returns the time that the last blocks can give back to one before them: what they are allowed less
    /// what they need, if they are like those of the window. Only as many as the buffers hold, so that a
    /// stream that ends earlier than was told is late by no more.
    fn lent(&self, factor: f64, blocks_behind: f64) -> f64 {
        if blocks_behind > self.plant.frames as f64 {
            return 0.0;
        }
        let spare = |it: &Group| factor * self.raw_seconds_of(it) - self.least_seconds_of(it);
        let spare: f64 = self.window.iter().map(spare).sum();
        blocks_behind * spare / self.window.len() as f64
    }

    /// Returns the least time in which blocks go through, workers and link both kept busy.
    fn least_seconds_of(&self, group: &Group) -> f64 {
        let known = group.class.and_then(|class| self.known.get(&class));
        let arms = known.into_iter().flat_map(|it| &it.likely);
        let seconds = arms.map(|it| {
            let work = self.wall_of(it) / self.plant.workers as f64;
            work.max(self.write_seconds(it.stored_bytes.mean))
        });
        seconds.fold(self.raw_seconds_of(group), f64::min)
    }

    /// Returns what it costs that the stream would be late if it ended with this block, since nobody knows
    /// its last block before, or with the last that lends to it: each second as many bytes as the link could
    /// send.
    fn lateness(&self, quantities: &Quantities, latency: f64, left: f64, backlog: f64) -> f64 {
        let through = latency.max(backlog) + self.write_seconds(quantities.stored_bytes.mean);
        (through - left).max(0.0) / self.byte_seconds()
    }

    /// Prices of a worker's second, of a byte and an operation of the link, read or written, and of a
    /// byte held for a second.
    fn prices(work: f64, byte: f64, operation: f64, held: f64) -> Prices {
        Prices {
            per_core_second: Estimate::exact(work),
            per_byte_written: Estimate::exact(byte),
            per_byte_read: Estimate::exact(byte),
            per_write_operation: Estimate::exact(operation),
            per_read_operation: Estimate::exact(operation),
            per_byte_second_held: Estimate::exact(held),
            ..Prices::default()
        }
    }

    /// Returns the prices of the fastest end at a lambda, in seconds.
    fn prices_of_time(&self, lambda: f64) -> Prices {
        let link = 1.0 - lambda;
        Controller::prices(
            lambda / self.plant.workers as f64,
            link * self.byte_seconds(),
            link * self.plant.write_overhead.0,
            held_seconds_per_byte_second(),
        )
    }

    /// Returns the prices of the fewest bytes at a price of work, in bytes written.
    fn prices_of_bytes(&self, work: f64) -> Prices {
        let held = held_seconds_per_byte_second() / self.byte_seconds();
        Controller::prices(work, 1.0, 0.0, held)
    }

    /// Gathers the blocks that prices are found for, those together that are alike.
    fn gather(&mut self) {
        let groups = &mut self.scratch.groups;
        groups.clear();
        match self.goal {
            Goal::Within(_) => groups.extend_from_slice(&self.past),
            _ => self.window.iter().for_each(|it| join(groups, it)),
        }
    }

    /// Weighs the blocks of the window at the two ends of a price, 0 and 1.
    fn weigh(&mut self, at_zero: &Prices, at_one: &Prices) {
        self.gather();
        for index in 0..self.scratch.groups.len() {
            let Group { class, .. } = self.scratch.groups[index];
            let known = class.and_then(|class| Some((class, self.known.get(&class)?)));
            if let Some((class, raw_bytes)) = known.map(|it| (it.0, it.1.life.raw_bytes)) {
                self.learn_of(class, raw_bytes);
            }
        }
        let mut balance = std::mem::take(&mut self.scratch.balance);
        balance.clear();
        for group in &self.scratch.groups {
            let raw_seconds = self.raw_seconds_of(group);
            // The application's computing counts as work.
            balance.work += group.outlook.asynchronism * raw_seconds;
            let known = group.class.and_then(|class| self.known.get(&class));
            let Some(known) = known else {
                balance.write += raw_seconds;
                continue;
            };
            let life = group.outlook.life(known.life);
            let weighed = |it: &Quantities| {
                let zero = it.cost(&life, at_zero);
                let work = match group.outlook.asynchronism > 0.0 {
                    // What it waits for is the application's computing, which is counted already.
                    true => it.encode_core_seconds.mean,
                    false => self.wall_of(it),
                };
                Weighed {
                    at_zero: zero,
                    per_price: it.cost(&life, at_one) - zero,
                    work: work / self.plant.workers as f64,
                    write: self.write_seconds(it.stored_bytes.mean),
                }
            };
            balance.arms.extend(known.likely.iter().map(weighed));
            balance.groups.push((group.count, balance.arms.len()));
        }
        self.scratch.balance = balance;
    }

    /// Returns the time that blocks take uncompressed.
    fn raw_seconds_of(&self, group: &Group) -> f64 {
        group.count * self.plant.write_overhead.0 + group.raw_bytes * self.byte_seconds()
    }

    /// Finds the prices at which the balance lies for the blocks of the window.
    fn reprice(&mut self) {
        self.link_priced = self.link();
        self.is_window_other = false;
        match self.goal {
            Goal::Fastest => {
                self.weigh(&self.prices_of_time(0.0), &self.prices_of_time(1.0));
                let balance = &self.scratch.balance;
                let is_too_low = |lambda| {
                    let (work, write) = balance.needs_at(lambda);
                    work > write
                };
                let odds_min = 1.0 / (1.0 + ODDS_MAX);
                let lambda = turn(0.0, 1.0, is_too_low).clamp(odds_min, 1.0 - odds_min);
                // The dual's value: the same on both sides of a tie, where the sums are not.
                let (work, write) = balance.needs_at(lambda);
                self.prices = self.prices_of_time(lambda);
                self.set_period(lambda * work + (1.0 - lambda) * write);
            }
            Goal::Within(factor) => {
                self.weigh(&self.prices_of_bytes(0.0), &self.prices_of_bytes(1.0));
                let groups = &self.scratch.groups;
                let raw: f64 = groups.iter().map(|it| self.raw_seconds_of(it)).sum();
                let at = |log: f64| f64::exp2(log) / self.plant.workers as f64;
                let balance = &self.scratch.balance;
                let is_too_low = |log| balance.needs_at(at(log)).0 > factor * raw;
                self.prices = self.prices_of_bytes(at(turn(-10.0, 60.0, is_too_low)));
                let count: f64 = groups.iter().map(|it| it.count).sum();
                if count > 0.0 {
                    self.period = factor * raw / count;
                }
            }
            Goal::Smallest => self.prices = self.prices_of_bytes(0.0),
            Goal::Money { prices, .. } => self.prices = prices,
        }
    }

    fn set_period(&mut self, window_seconds: f64) {
        if !self.window.is_empty() {
            self.period = window_seconds / self.window.len() as f64;
        }
    }
}

/// Returns what it costs to hold a byte for a second, in seconds of the machine that writes it: one
/// rent against the other.
///
/// Source: Hirsch 2017, sections 3.4.1 and 3.4.2.
pub(super) fn held_seconds_per_byte_second() -> f64 {
    let second = Seconds(1.0);
    let held = HIRSCH_2017.storage_cost(1.0, second).total();
    held.0 / HIRSCH_2017.machine_cost(second).total().0
}

/// Returns the quantities that a block took, beside what is only known when it is read.
fn real(expected: &Quantities, taken: &Taken) -> Quantities {
    let it = &taken.observation;
    let stored = Estimate::exact(it.stored_bytes as f64);
    Quantities {
        // Core time: contention is put on it where waits are counted.
        encode_core_seconds: Estimate::exact(it.encode.unwrap_or(taken.wall).0),
        stored_bytes: stored,
        held_bytes: stored,
        ..*expected
    }
}

/// Returns what a part of a block took, on the mean.
fn of_part(observation: &Observation, parts: usize) -> Observation {
    let parts = parts as u64;
    Observation {
        raw_bytes: observation.raw_bytes.div_ceil(parts),
        stored_bytes: observation.stored_bytes / parts,
        encode: observation.encode.map(|it| Seconds(it.0 / parts as f64)),
        // What is known of decoding stays as it is (`arms.rs`).
        decode: None,
        ..*observation
    }
}

/// Returns the quantities of a block as long as a share of another.
fn scaled(of: &Quantities, share: f64) -> Quantities {
    let scaled = |it: Estimate| it.map(|value| value * share);
    Quantities {
        encode_core_seconds: scaled(of.encode_core_seconds),
        decode_core_seconds: scaled(of.decode_core_seconds),
        encode_device_joules: scaled(of.encode_device_joules),
        decode_device_joules: scaled(of.decode_device_joules),
        stored_bytes: scaled(of.stored_bytes),
        held_bytes: scaled(of.held_bytes),
    }
}
