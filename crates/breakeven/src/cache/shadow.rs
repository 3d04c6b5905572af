//! Miniature simulations, always running: the cost of the cache under other policies.
//!
//! A [`Shadow`] runs one replica of the cache for each [`Arm`]: the same queues, counters and rules, without the bytes.
//! It takes a spatial sample of the keys, chosen by hash, and a memory smaller by the same factor (Waldspurger et al.,
//! USENIX ATC 2017, section 3; the sampling is that of SHARDS, FAST 2015). A replica is charged the cost of its misses,
//! compressions and restorations at the prices measured here. So the arm of least cost is the best static split, method
//! and rule of admission for the recent accesses. Raw-only is an arm like the others: while it wins, nothing is
//! compressed. The gain of the ledger is raw-only's cost less the cache's real spending, changes of the arm and
//! half-filled pools included. One more replica switches from arm to arm as the cache does. Its outcomes weight the
//! accesses in comparisons of arms.
//!
//! Costs are compared on the same accesses, so that the costs common to all arms cancel out. They are compared over
//! groups of keys, and the disagreement of the groups is the error of the sample. The shadow leaves an arm only for one
//! that is better by more than that error. Old accesses fade, so that it follows phases of the workload.
//!
//! Its memory is bounded by the number of keys that it may know, and its time by the sampled share of keys, which the
//! shard sets. It knows no bytes and reads no clock.
#![deny(unsafe_code)]

use hashbrown::HashTable;

use super::costs::{Costs, PerByte};
use super::replica::{
    Arm, DECODE, ENCODE, ENTRY_BYTES, Events, INCOMPRESSIBLE, Key, Replica, World, state,
};
use crate::statistics::student_t_975;
use crate::units::Estimate;

/// Sampled accesses of a window.
const WINDOW: u32 = 128;
/// The factor for each older window.
const FADE: f64 = 0.92;
/// Windows before anything is compared.
const WINDOWS_MIN: u32 = 5;
/// Windows after which a replica that began empty has the cache's contents.
const SETTLED_WINDOWS: u32 = 12;
/// The most misses of the cache, over those of its own replica, beyond chance. Above that, the sample has too few of
/// the keys that barely fit, and replicas get less memory. They lose a step every few windows, so that the effect is
/// seen before the next, down to a least share.
const MISSES_UNFORESEEN: f64 = 1.5;
const MISSES_UNFORESEEN_ERRORS: f64 = 3.0;
const ROOM_STEP: f64 = 0.01;
const ROOM_STEP_WINDOWS: u32 = 4;
const ROOM_MIN: f64 = 0.8;
/// An arm must be better by so many standard errors of the difference: where compressing begins, and where it goes on
/// otherwise or ends. It must also be better by this share of the cost.
const ERRORS_MIN: f64 = 1.0;
const ERRORS_MIN_LATER: f64 = 0.4;
const GAIN_MIN: f64 = 0.003;
const GAIN_MIN_LATER: f64 = 0.01;
/// The part of the cost of filling its pool that an arm must have saved before it begins.
const REPAID_MIN: f64 = 0.5;
/// The smaller part for another method's pool, where the savings of the arm in force pay for the rest.
const REPAID_MIN_BY_SAVINGS: f64 = 0.25;
/// The most that new arms may lose at any time, as a share of raw-only's cost so far. Together with the overhead, this
/// keeps within the promised hundredth.
const LOSS_MAX: f64 = 0.004;
/// An arm is given up when the cache has surely lost so many times the cost of filling its pool.
const FILLINGS_LOST_MAX: f64 = 4.0;
/// Keys for the simulation of all arms; with fewer keys there are fewer arms, and with too few there is no shadow.
const KEYS_FOR_ALL_ARMS: usize = 512;
const KEYS_WANTED: usize = 256;
const KEYS_MIN: usize = 64;
/// Keys that the shadow may know for each raw block that the cache could hold.
const KEYS_PER_BLOCK: u64 = 4;
/// The share of its keys that the shadow keeps when it has too many.
const THINNED: f64 = 0.85;
/// Groups of sampled keys, whose disagreement shows the error.
pub(super) const GROUPS: usize = 16;
/// The outcomes of an access: raw, compressed, or a miss.
const OUTCOMES: usize = 3;
pub(super) const FOUND_RAW: usize = 0;
pub(super) const FOUND_PACKED: usize = 1;
pub(super) const FOUND_NOTHING: usize = 2;
/// One more than the highest threshold: the unit of the sampled share is 2^-24.
const HASH_SPAN: u64 = 1 << 24;

/// One access in the shadow's terms.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub hash: u64,
    pub raw_bytes: u32,
    pub class: u8,
}

/// The cache's own figures at the access of a sampled key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Actual {
    /// The outcome of this access.
    pub outcome: usize,
    /// Accesses so far, by their outcomes.
    pub found: [u64; OUTCOMES],
    /// The cost of misses, compressing and restoring so far.
    pub spent: f64,
    /// Whether it holds compressed forms.
    pub has_forms: bool,
}

/// An arm's recent saving against the one in force, never below zero (the cumulated sum of Page 1954). Beside it stands
/// the cost of the arm's compressing since the sum was last zero. That is the time to which Page's sum dates the change
/// of the workload.
#[derive(Clone, Copy, Debug, Default)]
struct CumulatedSum {
    saved: f64,
    encoded: f64,
    /// The bytes that raw-only dropped in this time.
    dropped_bytes: f64,
}

impl CumulatedSum {
    fn add(&mut self, saved: f64, encoded: f64, dropped_bytes: f64) {
        self.saved = (self.saved + saved).max(0.0);
        if self.saved > 0.0 {
            self.encoded += encoded;
            self.dropped_bytes += dropped_bytes;
        } else {
            *self = CumulatedSum::default();
        }
    }
}

/// Sampled accesses by their outcomes.
#[derive(Clone, Copy, Debug)]
struct Strata {
    /// How many they were, faded.
    counts: [f64; OUTCOMES],
    /// The weight of each outcome.
    weights: [f64; OUTCOMES],
}

impl Default for Strata {
    fn default() -> Strata {
        Strata {
            counts: [0.0; OUTCOMES],
            weights: [1.0; OUTCOMES],
        }
    }
}

impl Strata {
    /// Weighs each outcome by its frequency in the cache over that in the sample. The weight corrects for keys that
    /// the sample has too many or too few of (post-stratification, Cochran 1977, section 5A.9). Raw hits have no
    /// weight. The sample's missing or extra hits are hits of the hottest keys, which every arm holds raw (SHARDS-adj,
    /// Waldspurger et al., FAST 2015).
    fn weigh(&mut self, expected: &[f64; OUTCOMES]) {
        for outcome in [FOUND_PACKED, FOUND_NOTHING] {
            let (expected, found) = (expected[outcome], self.counts[outcome]);
            self.weights[outcome] = match expected > 0.0 && found > 0.0 {
                true => (expected / found).clamp(0.5, 2.0),
                false => 1.0,
            };
        }
    }
}

/// Replicas of the cache, one for each arm, and one that follows the cache itself.
pub(super) struct Shadow {
    /// The arms; the last is that of the cache's own replica, the arm in force.
    arms: Vec<Arm>,
    replicas: Vec<Replica>,
    table: HashTable<u16>,
    keys: Vec<Key>,
    states: Vec<u8>,
    vacant: Vec<u16>,
    freed: Vec<u16>,
    keys_max: usize,
    heap_bytes: usize,
    /// Keys with a hash below this, in units of 2^-24, are sampled.
    threshold: u64,
    capacity_bytes: u64,
    /// The replicas' share of the memory for the sampled share of keys.
    room: f64,
    /// The first window in which that may change.
    room_from: u32,
    accesses: u32,
    windows: u32,
    /// `sums[arm]`: faded cost by the access's outcome in the cache's own replica, and by group of keys.
    sums: Vec<[[f64; GROUPS]; OUTCOMES]>,
    /// The part of it for compressing and restoring, by the outcome of the access.
    work_sums: Vec<[[f64; 2]; OUTCOMES]>,
    /// The cost of the simulated access for each arm, and its part for compressing.
    costs_now: Vec<[f64; 2]>,
    /// The sums against the arm in force, since it came into force.
    cumulated: Vec<CumulatedSum>,
    /// By the outcome in the cache's own replica, and by that in the cache.
    simulated: Strata,
    actual: Strata,
    /// Faded counts of the outcomes of the cache's accesses, scaled down by the sampled share of keys.
    found_expected: [f64; OUTCOMES],
    /// The outcomes of the cache's accesses at the end of the last window.
    counted: [u64; OUTCOMES],
    /// The cache's spending at the last sampled key.
    spent: Option<f64>,
    /// The window from which the cache is the same as raw-only: dropped forms leave room that it has to fill.
    alike_from: u32,
    /// The window from which replicas that began empty hold the contents of a cache that did not.
    filled_from: u32,
    chosen: usize,
    gain: Gain,
    /// The gain when the arm in force came into force.
    gain_before: Gain,
    /// Whether the arm in force began with all victims, while it has room.
    fills: bool,
}

/// The cache's spending, and raw-only's cost, with each access weighted by what its key stands for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gain {
    sampled: u64,
    /// Spending while the cache was the same as raw-only, and otherwise.
    spent_raw: f64,
    spent: f64,
    /// Raw-only's cost in the same time, by outcome and by group of keys, and the number of those accesses.
    raw_only: [[f64; GROUPS]; OUTCOMES],
    accesses: [[f64; GROUPS]; OUTCOMES],
    /// The saving of the cache's own replica against that of raw-only. Both have the same keys, so the difference is
    /// exact where little is saved or lost. But the cache costs more than its replica, which loses nothing to half-full
    /// slabs and to forms made again.
    simulated: f64,
}

impl Shadow {
    /// Makes a shadow of a cache with so many methods in `memory_bytes`, or in up to twice as much for few keys. `None`
    /// if the memory is for too few keys to be useful. Savings are counted on from `gain`.
    pub fn new(method_count: usize, memory_bytes: u64, gain: Gain) -> Option<Shadow> {
        let many = Arm::grid(method_count, &[0.5, 0.8, 0.95], &[0.5, 0.8, 0.95]);
        if Shadow::keys_max(many.len() + 1, memory_bytes) >= KEYS_FOR_ALL_ARMS {
            return Some(Shadow::of_arms(many, memory_bytes, gain));
        }
        let few = Arm::grid(method_count, &[0.9], &[0.5, 0.9]);
        let count = few.len() + 1;
        let wanted = Shadow::fixed_bytes(count) + KEYS_WANTED * Shadow::key_bytes(count);
        let memory_bytes = (wanted as u64).clamp(memory_bytes, 2 * memory_bytes);
        (Shadow::keys_max(count, memory_bytes) >= KEYS_MIN)
            .then(|| Shadow::of_arms(few, memory_bytes, gain))
    }

    fn of_arms(mut arms: Vec<Arm>, memory_bytes: u64, gain: Gain) -> Shadow {
        arms.push(Arm::RAW_ONLY);
        let keys_max = Shadow::keys_max(arms.len(), memory_bytes);
        let mut shadow = Shadow {
            replicas: Vec::new(),
            table: HashTable::new(),
            keys: Vec::new(),
            states: Vec::new(),
            vacant: Vec::new(),
            freed: Vec::new(),
            keys_max,
            heap_bytes: 0,
            threshold: 0,
            capacity_bytes: 0,
            room: 1.0,
            room_from: 0,
            accesses: 0,
            windows: 0,
            sums: Vec::new(),
            work_sums: Vec::new(),
            costs_now: Vec::new(),
            cumulated: Vec::new(),
            simulated: Strata::default(),
            actual: Strata::default(),
            found_expected: [0.0; OUTCOMES],
            counted: [0; OUTCOMES],
            spent: None,
            alike_from: 0,
            filled_from: 0,
            chosen: 0,
            gain,
            gain_before: gain,
            fills: true,
            arms,
        };
        shadow.reset(0.0, 0);
        shadow
    }

    /// Makes a shadow of a cache of this capacity that samples every key; there may be 2^16 of them.
    pub fn of_all_keys(arms: Vec<Arm>, capacity_bytes: u64) -> Shadow {
        let mut shadow = Shadow::of_arms(arms, u64::MAX, Gain::default());
        shadow.reset(1.0, capacity_bytes);
        shadow
    }

    /// Runs all replicas on one access and returns its outcome under each arm, by number.
    ///
    /// # Panics
    ///
    /// If there are more keys than may be known.
    pub fn count(&mut self, sample: &Sample, costs: &Costs, mut told: impl FnMut(usize, Events)) {
        let key = self.number(sample).expect("room for every key");
        let own = self.own();
        self.for_each(costs, |replica, world| {
            if world.index != own {
                replica.access(world, key);
                told(world.index, std::mem::take(&mut replica.events));
            }
        });
    }

    fn fixed_bytes(replica_count: usize) -> usize {
        let sums = size_of::<([[f64; GROUPS + 2]; OUTCOMES], [f64; 2], CumulatedSum)>();
        replica_count * (sums + size_of::<(Replica, Arm)>())
    }

    /// The number of keys that fit a memory.
    fn keys_max(replica_count: usize, memory_bytes: u64) -> usize {
        let left = memory_bytes.saturating_sub(Shadow::fixed_bytes(replica_count) as u64);
        (left / Shadow::key_bytes(replica_count) as u64).min(1 << 16) as usize
    }

    /// Bytes for each key: its row of states, and two places in the queues of each replica. Most keys are in one queue,
    /// and queues grow by doubling. The key itself, with its part of the table and of the list of vacant numbers, comes
    /// on top.
    fn key_bytes(arm_count: usize) -> usize {
        arm_count * (1 + 2 * size_of::<u16>()) + size_of::<Key>() + 8
    }

    /// Returns its bytes, with those of growth that is due.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }

    /// Counts the real bytes of its queues, which exceed the plan where many keys have twins.
    fn count_heap(&mut self) {
        let queues: usize = self.replicas.iter().map(Replica::heap_bytes).sum();
        let arms = self.arms.len();
        let planned = self.keys_max * Shadow::key_bytes(arms);
        let found = self.keys_max * Shadow::key_bytes(0) + self.states.capacity() + queues;
        self.heap_bytes = Shadow::fixed_bytes(arms) + planned.max(found);
    }

    /// Returns the number of the cache's own replica.
    fn own(&self) -> usize {
        self.arms.len() - 1
    }

    /// Starts again with another share of the keys and another size of the cache. The arm in force and its saving
    /// remain.
    pub fn reset(&mut self, sampled_share: f64, capacity_bytes: u64) {
        self.threshold = (sampled_share.clamp(0.0, 1.0) * HASH_SPAN as f64) as u64;
        self.capacity_bytes = capacity_bytes;
        (self.room, self.room_from) = (1.0, SETTLED_WINDOWS);
        let sampled = self.sampled_bytes();
        let replicas = self.arms.iter().map(|arm| Replica::new(arm, sampled));
        self.replicas = replicas.collect();
        self.table.clear();
        self.keys.clear();
        self.states.clear();
        self.vacant.clear();
        self.freed.clear();
        self.sums = vec![[[0.0; GROUPS]; OUTCOMES]; self.arms.len()];
        self.work_sums = vec![[[0.0; 2]; OUTCOMES]; self.arms.len()];
        self.costs_now = vec![[0.0; 2]; self.arms.len()];
        self.cumulated = vec![CumulatedSum::default(); self.arms.len()];
        (self.simulated, self.actual) = (Strata::default(), Strata::default());
        self.found_expected = [0.0; OUTCOMES];
        self.alike_from = self.alike_from.saturating_sub(self.windows);
        self.filled_from = match self.gain.sampled {
            0 => 0,
            _ => SETTLED_WINDOWS,
        };
        (self.accesses, self.windows) = (0, 0);
        self.count_heap();
    }

    /// Samples fewer keys from now on, and forgets the others.
    pub fn thin(&mut self, sampled_share: f64, costs: &Costs) {
        let threshold = (sampled_share * HASH_SPAN as f64) as u64;
        self.threshold = self.threshold.min(threshold);
        for key in 0..self.keys.len() as u32 {
            let Key { hash, holders, .. } = self.keys[key as usize];
            if holders > 0 && !self.wants(hash) {
                self.for_each(costs, |replica, world| replica.remove(world, key as u16));
            }
        }
        self.resize(costs);
    }

    /// Gives all replicas the memory for the sampled share of keys.
    fn resize(&mut self, costs: &Costs) {
        let sampled = self.sampled_bytes();
        self.for_each(costs, |replica, world| replica.resize(world, sampled));
    }

    fn sampled_bytes(&self) -> f64 {
        self.capacity_bytes as f64 * self.sampled_share() * self.room
    }

    /// Returns the sampled share of keys.
    pub fn sampled_share(&self) -> f64 {
        self.threshold as f64 / HASH_SPAN as f64
    }

    /// Returns the largest share of keys that fits its memory, if a cache of this capacity holds blocks of
    /// `block_bytes`. It allows for so many keys for each raw block, with compressed blocks and ghosts. If there are
    /// more, the shadow thins them out.
    pub fn share_max(&self, capacity_bytes: u64, block_bytes: u64) -> f64 {
        let blocks = capacity_bytes / (block_bytes + ENTRY_BYTES);
        (self.keys_max as f64 / (KEYS_PER_BLOCK * blocks).max(1) as f64).min(1.0)
    }

    /// Returns whether a key is sampled.
    #[inline]
    pub fn wants(&self, hash: u64) -> bool {
        // These are not the bits by which tables find their places.
        hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 < self.threshold
    }

    /// Runs all replicas on the access of a sampled key. Returns whether it chose another arm.
    ///
    /// # Cost
    ///
    /// Some 5 ns for each replica that hits, 30 ns for each that misses.
    pub fn access(&mut self, sample: &Sample, actual: &Actual, costs: &Costs) -> bool {
        let key = loop {
            match self.number(sample) {
                Some(key) => break key,
                None => self.thin(self.sampled_share() * THINNED, costs),
            }
            if !self.wants(sample.hash) {
                return false;
            }
        };
        let own = self.own();
        let outcome = match self.states[usize::from(key) * self.arms.len() + own] {
            state if state & state::RAW != 0 => FOUND_RAW,
            state if state & state::PACKED != 0 => FOUND_PACKED,
            _ => FOUND_NOTHING,
        };
        let group = (sample.hash >> 20) as usize % GROUPS;
        let mut sums = std::mem::take(&mut self.sums);
        let mut work_sums = std::mem::take(&mut self.work_sums);
        let mut costs_now = std::mem::take(&mut self.costs_now);
        let mut dropped_bytes = 0.0;
        // The number of accesses that this one stands for.
        let count = self.simulated.weights[outcome] / self.sampled_share();
        self.for_each(costs, |replica, world| {
            replica.access(world, key);
            let cost = std::mem::take(&mut replica.cost);
            sums[world.index][outcome][group] += cost;
            let work = std::mem::take(&mut replica.work);
            let sums = &mut work_sums[world.index][outcome];
            for (sum, cost) in sums.iter_mut().zip(work) {
                *sum += cost;
            }
            costs_now[world.index] = [cost, work[ENCODE]];
            let gone = std::mem::take(&mut replica.dropped_bytes);
            dropped_bytes += if world.index == 0 { gone } else { 0.0 };
        });
        (self.sums, self.work_sums) = (sums, work_sums);
        let [raw_only, chosen, in_force] = [0, self.chosen, own].map(|arm| costs_now[arm][0]);
        for (sum, [cost, encoded]) in self.cumulated.iter_mut().zip(&costs_now) {
            sum.add(
                (chosen - cost) * count,
                encoded * count,
                dropped_bytes * count,
            );
        }
        self.costs_now = costs_now;
        self.simulated.counts[outcome] += 1.0;
        self.actual.counts[actual.outcome] += 1.0;
        self.gain.simulated += (raw_only - in_force) * count;
        self.book(actual, group, raw_only);
        self.accesses += 1;
        self.accesses.is_multiple_of(WINDOW) && self.close_window(sample, actual, costs)
    }

    /// Books the cache's spending since the last sampled key, and raw-only's cost.
    fn book(&mut self, actual: &Actual, group: usize, raw_only: f64) {
        let spent = actual.spent - self.spent.replace(actual.spent).unwrap_or(actual.spent);
        let share = self.sampled_share();
        let gain = &mut self.gain;
        gain.sampled += 1;
        if actual.has_forms {
            self.alike_from = self.windows + SETTLED_WINDOWS;
        }
        if self.windows >= self.alike_from {
            gain.spent_raw += spent;
        } else if self.windows >= self.filled_from {
            let count = self.actual.weights[actual.outcome] / share;
            gain.spent += spent;
            gain.raw_only[actual.outcome][group] += raw_only * count;
            gain.accesses[actual.outcome][group] += count;
        }
    }

    /// Adds a method's result on a sampled key's block; `None` for one that does not shrink.
    pub fn learn(&mut self, hash: u64, method: u8, packed_bytes: Option<u32>, costs: &Costs) {
        let Some(key) = self.find(hash) else { return };
        let known = packed_bytes.unwrap_or(INCOMPRESSIBLE);
        if self.keys[usize::from(key)].packed_bytes[usize::from(method)] == known {
            return;
        }
        // A block booked in at the old size is booked out at the old size.
        let mut differences = vec![0i64; self.arms.len()];
        let is_held = |world: &World| {
            let is_packed = world.state(key) & state::PACKED != 0;
            is_packed && world.arm.method == method
        };
        self.for_each(costs, |_, world| {
            if is_held(world) {
                differences[world.index] -= world.packed_bytes(key).unwrap_or(0) as i64;
            }
        });
        self.keys[usize::from(key)].packed_bytes[usize::from(method)] = known;
        self.for_each(costs, |replica, world| {
            if is_held(world) {
                let more = differences[world.index] + world.packed_bytes(key).unwrap_or(0) as i64;
                replica.packed_bytes = replica.packed_bytes.saturating_add_signed(more);
            }
        });
    }

    /// Returns whether a method's result on a sampled key's block is still unknown.
    pub fn is_unknown(&self, hash: u64, method: u8) -> bool {
        let key = self.find(hash).map(|key| &self.keys[usize::from(key)]);
        key.is_some_and(|key| key.is_unknown(method))
    }

    /// Forgets a sampled key that is no longer valid.
    pub fn remove(&mut self, hash: u64, costs: &Costs) {
        if let Some(key) = self.find(hash) {
            self.for_each(costs, |replica, world| replica.remove(world, key));
        }
    }

    /// Returns the arm of least cost, by more than the noise.
    pub fn chosen(&self) -> &Arm {
        &self.arms[self.chosen]
    }

    /// Returns whether all victims are compressed while the compressed share has room.
    pub fn fills(&self) -> bool {
        self.fills
    }

    /// Returns the savings of the arms in force, to be continued or reported.
    pub fn gain(&self) -> Gain {
        self.gain
    }

    /// Returns each arm with its cost over that of raw-only in the remembered windows.
    pub fn forecast(&self) -> Vec<(Arm, f64)> {
        if self.windows < WINDOWS_MIN {
            return Vec::new();
        }
        let share = |arm| {
            let difference = self.difference(arm, 0);
            1.0 + difference.sum / difference.base
        };
        let arms = self.arms[..self.own()].iter().enumerate();
        arms.map(|(index, arm)| (*arm, share(index))).collect()
    }

    fn find(&self, hash: u64) -> Option<u16> {
        let found = self
            .table
            .find(hash, |&key| self.keys[usize::from(key)].hash == hash);
        found.copied()
    }

    /// Returns the number of a key, a new one for an unknown key; `None` if there are too many.
    fn number(&mut self, sample: &Sample) -> Option<u16> {
        if let Some(key) = self.find(sample.hash) {
            return Some(key);
        }
        let new = Key {
            hash: sample.hash,
            raw_bytes: sample.raw_bytes,
            class: sample.class,
            ..Key::default()
        };
        let key = match self.vacant.pop() {
            Some(key) => {
                self.keys[usize::from(key)] = new;
                key
            }
            None if self.keys.len() < self.keys_max => {
                self.keys.push(new);
                self.states.resize(self.keys.len() * self.arms.len(), 0);
                (self.keys.len() - 1) as u16
            }
            None => return None,
        };
        let keys = &self.keys;
        self.table
            .insert_unique(sample.hash, key, |&key| keys[usize::from(key)].hash);
        Some(key)
    }

    fn for_each(&mut self, costs: &Costs, mut work: impl FnMut(&mut Replica, &mut World)) {
        let own = self.own();
        for (index, replica) in self.replicas.iter_mut().enumerate() {
            let mut world = World {
                arm: &self.arms[index],
                fills: index != own || self.fills,
                states: &mut self.states,
                stride: self.arms.len(),
                index,
                keys: &mut self.keys,
                costs,
                freed: &mut self.freed,
            };
            work(replica, &mut world);
        }
        while let Some(key) = self.freed.pop() {
            let Key { hash, holders, .. } = self.keys[usize::from(key)];
            // The key may have come back, or be on the list twice.
            if holders == 0
                && let Ok(entry) = self.table.find_entry(hash, |&other| other == key)
            {
                entry.remove();
                self.vacant.push(key);
            }
        }
    }

    /// Books a window and looks for a better arm; returns whether there is one.
    fn close_window(&mut self, sample: &Sample, actual: &Actual, costs: &Costs) -> bool {
        let share = self.sampled_share();
        for (outcome, count) in actual.found.into_iter().enumerate() {
            let more = count.saturating_sub(self.counted[outcome]);
            self.found_expected[outcome] += more as f64 * share;
        }
        self.counted = actual.found;
        self.windows += 1;
        // While replicas fill up, they miss what a full cache does not.
        if self.windows >= SETTLED_WINDOWS {
            self.simulated.weigh(&self.found_expected);
            self.actual.weigh(&self.found_expected);
        }
        self.fit_room(costs);
        self.count_heap();
        let has_moved = self.windows >= WINDOWS_MIN && self.choose(sample, costs);
        let sums = self.sums.as_flattened_mut().as_flattened_mut();
        let work = self.work_sums.as_flattened_mut().as_flattened_mut();
        let sums = sums.iter_mut().chain(work);
        let counts = (self.simulated.counts.iter_mut())
            .chain(&mut self.actual.counts)
            .chain(&mut self.found_expected);
        sums.chain(counts).for_each(|it| *it *= FADE);
        has_moved
    }

    /// Gives the replicas less memory where they would hold blocks that the cache does not, and more again where the
    /// cache holds more. The sample may have some keys too few or too many, and where the data nearly fit, that decides
    /// whether they do. Weights do not show this, because an access that no replica misses has none.
    fn fit_room(&mut self, costs: &Costs) {
        if self.windows < self.room_from || !self.windows.is_multiple_of(ROOM_STEP_WINDOWS) {
            return;
        }
        let (found, simulated) = (
            self.found_expected[FOUND_NOTHING],
            self.simulated.counts[FOUND_NOTHING],
        );
        let chance = MISSES_UNFORESEEN_ERRORS * found.sqrt();
        let room = if self.chosen > 0
            && found > MISSES_UNFORESEEN * simulated
            && found > simulated + chance
        {
            (self.room - ROOM_STEP).max(ROOM_MIN)
        } else if found < simulated {
            (self.room + ROOM_STEP).min(1.0)
        } else {
            return;
        };
        if room != self.room {
            self.room = room;
            self.resize(costs);
        }
    }

    fn choose(&mut self, sample: &Sample, costs: &Costs) -> bool {
        let now = self.chosen;
        let saved = self.saved_by_arm();
        if saved.is_some_and(|it| self.has_failed(&it, sample, costs)) {
            self.go_over(0, costs);
            return true;
        }
        let (best, difference) = (0..self.own())
            .filter(|&arm| now == 0 || arm == now || self.may_change(arm, saved, sample, costs))
            .map(|arm| (arm, self.difference(arm, now)))
            .min_by(|one, other| one.1.sum.total_cmp(&other.1.sum))
            .expect("raw-only at least");
        let (errors_min, gain_min) = match now {
            0 => (ERRORS_MIN, GAIN_MIN),
            _ => (ERRORS_MIN_LATER, GAIN_MIN_LATER),
        };
        let needed = errors_min * difference.error + gain_min * difference.base;
        if -difference.sum <= needed {
            return false;
        }
        if now == 0 {
            let filling = self.filling_cost(&self.arms[best], sample, costs);
            let encode = costs.per_byte(sample.class, self.arms[best].method).encode;
            let Some(fills) = self.may_begin(best, filling, encode) else {
                return false;
            };
            self.fills = fills;
        }
        self.go_over(best, costs);
        true
    }

    fn go_over(&mut self, arm: usize, costs: &Costs) {
        self.chosen = arm;
        self.room_from = self.windows + SETTLED_WINDOWS;
        self.cumulated.fill(CumulatedSum::default());
        self.gain_before = self.gain;
        self.follow(costs);
    }

    /// Returns the saving since the arm in force came into force, if that is known; zero for raw-only.
    fn saved_by_arm(&self) -> Option<Estimate> {
        if self.chosen == 0 {
            return None;
        }
        let estimate = self.gain.since(&self.gain_before).estimate();
        estimate.map(|(saved, _)| saved)
    }

    /// Returns whether the cache surely spent more than raw-only would have since its arm came in force, with `saved`
    /// as its saving. The difference must exceed the allowed cost of filling a pool and finding that out. The replicas
    /// do not count here.
    fn has_failed(&self, saved: &Estimate, sample: &Sample, costs: &Costs) -> bool {
        let filling = self.filling_cost(&self.arms[self.chosen], sample, costs);
        saved.high < -FILLINGS_LOST_MAX * filling
    }

    /// Returns whether an arm may begin, and then whether all victims may be compressed until its pool is full. It must
    /// have saved a part of the cost of filling the pool. The loss until then, if the trial ended there, must be small
    /// against the spending so far. While the pool fills, the arm saves half as much as lately. If only blocks that
    /// were asked for again fill the pool, compressing costs as much as lately, and the filling takes longer. If all
    /// victims do, it costs all bytes that raw-only dropped, at `encode` a byte.
    fn may_begin(&self, arm: usize, filling: f64, encode: f64) -> Option<bool> {
        let CumulatedSum {
            saved,
            encoded,
            dropped_bytes,
        } = self.cumulated[arm];
        let really = self.gain.estimate().map_or(0.0, |(saved, _)| saved.high);
        let lost_before = -self.gain.simulated.min(really).min(0.0);
        let may_be_lost = LOSS_MAX * self.gain.raw_only() - lost_before;
        let is_little = |work: f64| {
            let repaid = 0.5 * (saved + encoded) / work.max(f64::MIN_POSITIVE);
            filling * (1.0 - repaid).max(0.0) <= may_be_lost
        };
        if saved < REPAID_MIN * filling {
            return None;
        }
        let works = [
            (true, encoded.max(dropped_bytes * encode)),
            (false, encoded),
        ];
        let found = works.into_iter().find(|(_, work)| is_little(*work));
        found.map(|(fills, _)| fills)
    }

    /// Returns whether the arm in force, which compresses, may make way for another. The other must have saved a part
    /// of two costs: compressing the further blocks of its pool, and loading again the blocks that it no longer holds.
    /// If the pool needs another method, the whole pool is charged, because the present forms still serve. Up to three
    /// quarters of the part may come from the arm's real saving, `saved`, so that nothing is lost with it. Going back
    /// to raw-only is free.
    fn may_change(
        &self,
        arm: usize,
        saved: Option<Estimate>,
        sample: &Sample,
        costs: &Costs,
    ) -> bool {
        let (from, to) = (&self.arms[self.chosen], &self.arms[arm]);
        if to.compressed_share == 0.0 {
            return true;
        }
        let filling = self.filling_cost(to, sample, costs);
        let more = 1.0 - from.compressed_share / to.compressed_share;
        let filled = match from.method == to.method {
            true => REPAID_MIN * more.max(0.0) * filling,
            false => {
                let earned = saved.map_or(0.0, |it| it.mean);
                (filling - earned.max(0.0)).max(REPAID_MIN_BY_SAVINGS * filling)
            }
        };
        let per_byte = costs.per_byte(sample.class, from.method);
        let less = (from.compressed_share - to.compressed_share).max(0.0);
        let given_up = self.blocks_packed(less, sample, per_byte) * costs.miss();
        self.cumulated[arm].saved >= filled + REPAID_MIN * given_up
    }

    /// Returns the cost of an arm's compressing, or restoring, in the windows.
    fn work(&self, arm: usize, of: usize) -> f64 {
        let by_outcome = self.work_sums[arm].iter().zip(self.simulated.weights);
        by_outcome.map(|(sums, weight)| sums[of] * weight).sum()
    }

    /// Returns the worth of compressing a block again by the method of the arm in force: its saving while the new form
    /// stays, over its cost. `method` made the old form, and `hits` is the block's recent hits. The saving is the
    /// difference in misses between all forms by that method and all by the arm's. Two things are taken off: dearer
    /// restorations, counted once for each hit of the form, and the error of the sample. The cost is that of the arm's
    /// compressing in the same time. On average, a form stays until as many forms are compressed as are held (Little
    /// 1961). So its part of the pool's saving in that time is the saving of all, over the number compressed. `None`
    /// where the sample is no evidence.
    pub fn worth_anew(&self, method: u8, hits: u8) -> Option<f64> {
        let other = Arm {
            method,
            ..self.arms[self.chosen]
        };
        let other = self.arms[..self.own()].iter().position(|it| *it == other)?;
        if other == self.chosen || self.windows < WINDOWS_MIN {
            return None;
        }
        let more = |of: usize| self.work(other, of) - self.work(self.chosen, of);
        let Difference { sum, error, .. } = self.difference(other, self.chosen);
        let misses = sum - more(ENCODE) - more(DECODE);
        let saved = misses + f64::from(hits) * more(DECODE) - error;
        Some(saved / self.work(self.chosen, ENCODE))
    }

    /// Switches the cache's own replica to the chosen arm. Its compressed blocks stay, and count as if the arm's method
    /// had made them. That costs the replica nothing; the cache itself compresses again the blocks that are worth it.
    fn follow(&mut self, costs: &Costs) {
        let (own, keys) = (self.own(), self.keys.len());
        self.arms[own] = self.arms[self.chosen];
        let sampled = self.sampled_bytes();
        self.for_each(costs, |replica, world| {
            if world.index == own {
                replica.follow(world, keys, sampled);
            }
        });
    }

    /// The cost of filling an arm's pool with blocks like this one.
    fn filling_cost(&self, arm: &Arm, sample: &Sample, costs: &Costs) -> f64 {
        let per_byte = costs.per_byte(sample.class, arm.method);
        let blocks = self.blocks_packed(arm.compressed_share, sample, per_byte);
        blocks * f64::from(sample.raw_bytes.max(1)) * per_byte.encode
    }

    /// Returns the number of blocks like this one that a share of memory holds compressed.
    fn blocks_packed(&self, share: f64, sample: &Sample, per_byte: &PerByte) -> f64 {
        let packed_bytes = f64::from(sample.raw_bytes.max(1)) * per_byte.packed;
        self.capacity_bytes as f64 * share / (packed_bytes + ENTRY_BYTES as f64)
    }

    /// Compares two arms over the windows, the newest with the most weight.
    fn difference(&self, arm: usize, base: usize) -> Difference {
        let cost = |arm: usize, group: usize| -> f64 {
            let by_outcome = self.sums[arm].iter().zip(self.simulated.weights);
            by_outcome
                .map(|(groups, weight)| groups[group] * weight)
                .sum()
        };
        let groups: [f64; GROUPS] =
            std::array::from_fn(|group| cost(arm, group) - cost(base, group));
        let (sum, error) = total(&groups);
        Difference {
            sum,
            error,
            base: (0..GROUPS).map(|group| cost(base, group)).sum(),
        }
    }
}

/// The difference of two arms, its standard error, and the cost of one of them.
struct Difference {
    sum: f64,
    error: f64,
    base: f64,
}

impl Gain {
    /// Returns the gain since an earlier one.
    fn since(&self, before: &Gain) -> Gain {
        let less = |now: &[[f64; GROUPS]; OUTCOMES], before: &[[f64; GROUPS]; OUTCOMES]| {
            let mut left = *now;
            let pairs = left.as_flattened_mut().iter_mut();
            let pairs = pairs.zip(before.as_flattened());
            pairs.for_each(|(now, before)| *now -= before);
            left
        };
        Gain {
            sampled: self.sampled - before.sampled,
            spent_raw: self.spent_raw - before.spent_raw,
            spent: self.spent - before.spent,
            raw_only: less(&self.raw_only, &before.raw_only),
            accesses: less(&self.accesses, &before.accesses),
            simulated: self.simulated - before.simulated,
        }
    }

    /// Returns the cost of raw-only, in the unit of the prices.
    fn raw_only(&self) -> f64 {
        self.spent_raw + self.raw_only.as_flattened().iter().sum::<f64>()
    }

    /// Returns the saving against raw-only since the cache was made, with the interval that the groups of keys give. It
    /// also returns raw-only's cost, in the unit of the prices. `None` before some windows. For each outcome, the
    /// number of all accesses is known. So the groups' errors are the differences of raw-only's cost from its cost for
    /// all accesses of the same outcome (Cochran 1977, section 5A.9).
    pub fn estimate(&self) -> Option<(Estimate, f64)> {
        if self.sampled < u64::from(WINDOW * WINDOWS_MIN) {
            return None;
        }
        let mut rest = [0.0; GROUPS];
        for (costs, counts) in self.raw_only.iter().zip(&self.accesses) {
            let count = counts.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            let mean = costs.iter().sum::<f64>() / count;
            for (group, rest) in rest.iter_mut().enumerate() {
                *rest += costs[group] - mean * counts[group];
            }
        }
        let half_width = student_t_975(GROUPS - 1) * total(&rest).1;
        let raw_only = self.raw_only();
        let saved = raw_only - self.spent_raw - self.spent;
        Some((Estimate::plus_minus(saved, half_width), raw_only))
    }
}

/// Returns the sum over groups and its standard error, from their disagreement.
fn total(groups: &[f64; GROUPS]) -> (f64, f64) {
    let (sum, count) = (groups.iter().sum::<f64>(), GROUPS as f64);
    let squares: f64 = groups.iter().map(|it| (it - sum / count).powi(2)).sum();
    (sum, (squares * count / (count - 1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::super::costs::{AccessPrices, CLASS_COUNT, MissTime};
    use super::*;
    use crate::units::Seconds;

    const BLOCK: u32 = 8192;
    const MISS: f64 = 73e-6;
    const COMPRESS: f64 = 17e-6;
    const RESTORE: f64 = 3e-6;

    fn costs() -> Costs {
        told(MISS, &[(COMPRESS, RESTORE, 0.3)])
    }

    /// The costs of a miss and, by method, of compressing and restoring a block, with the bytes left of a byte.
    fn told(miss: f64, methods: &[(f64, f64, f64)]) -> Costs {
        let per_byte = |&(encode, decode, packed): &(f64, f64, f64)| PerByte {
            encode: encode / f64::from(BLOCK),
            decode: decode / f64::from(BLOCK),
            packed,
        };
        let row: Vec<PerByte> = methods.iter().map(per_byte).collect();
        let names = ["lz4:1", "zstd:1"].map(|name| name.parse().expect("a method"));
        let names = &names[..methods.len()];
        let mut costs = Costs::told(AccessPrices::default(), names, row.repeat(CLASS_COUNT));
        costs.missed(&MissTime {
            core: Seconds(0.0),
            waiting: Seconds(miss),
        });
        costs
    }

    /// There are four times as many keys as fit raw, and each is as likely to be next. Nearly all fit by the second
    /// method, which takes longer.
    #[test]
    fn forms_are_worth_making_anew_where_misses_are_dear() {
        let worth = |miss: f64, hits: u8| {
            let costs = told(miss, &[(17e-6, 3e-6, 0.39), (42e-6, 14e-6, 0.25)]);
            let mut shadow = Shadow::new(2, 1 << 20, Gain::default()).expect("room for keys");
            shadow.reset(1.0, 2 << 20);
            let mut random = fastrand::Rng::with_seed(5);
            for _ in 0..40_000 {
                let sample = Sample {
                    hash: random.u64(..1000).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                    raw_bytes: BLOCK,
                    class: 0,
                };
                shadow.access(&sample, &Actual::default(), &costs);
            }
            let worth = [0, 1].map(|method| shadow.worth_anew(method, hits));
            println!("{miss}: {:?}, {worth:?}", shadow.chosen());
            let in_force = usize::from(shadow.chosen().method);
            assert_eq!(worth[in_force], None, "there is no other form");
            (in_force, worth[1 - in_force].expect("the other"))
        };
        let (in_force, rarely) = worth(1e-3, 1);
        let (_, often) = worth(1e-3, 3);
        assert!(in_force == 1 && often > 10.0 && rarely > often);
        // For a block with many hits the quicker method, which is in force here, restores better.
        let (in_force, rarely) = worth(26e-6, 1);
        let (_, often) = worth(26e-6, 3);
        assert!(in_force == 0 && rarely < 1.0 && often > 1.0);
    }

    /// Every key is sampled, and the cache is the same as its own replica. The reported saving must be the difference
    /// between its cost and raw-only's, from the first access to the last.
    #[test]
    fn savings_are_counted_through_changes_of_the_arm() {
        let costs = costs();
        let mut shadow = Shadow::new(1, 1 << 20, Gain::default()).expect("room for keys");
        shadow.reset(1.0, 2 << 20);
        let mut random = fastrand::Rng::with_seed(4);
        let cost = |of: &Replica| {
            let Events {
                misses,
                restored,
                compressed,
                ..
            } = of.events;
            misses as f64 * MISS + restored as f64 * RESTORE + compressed as f64 * COMPRESS
        };
        let (mut moves, mut found) = (0, [0; OUTCOMES]);
        for access in 0..60_000 {
            // First twice as many keys as fit, then as many as fit raw.
            let keys = if access < 30_000 { 512 } else { 200 };
            let sample = Sample {
                hash: random.u64(..keys).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                raw_bytes: BLOCK,
                class: 0,
            };
            let own = &shadow.replicas[shadow.own()];
            let outcome = shadow.find(sample.hash).map_or(FOUND_NOTHING, |key| {
                match shadow.states[usize::from(key) * shadow.arms.len() + shadow.own()] {
                    state if state & state::RAW != 0 => FOUND_RAW,
                    state if state & state::PACKED != 0 => FOUND_PACKED,
                    _ => FOUND_NOTHING,
                }
            });
            found[outcome] += 1;
            let actual = Actual {
                outcome,
                found,
                spent: cost(own),
                has_forms: own.packed_bytes > 0,
            };
            moves += u32::from(shadow.access(&sample, &actual, &costs));
        }
        let saved = cost(&shadow.replicas[0]) - cost(&shadow.replicas[shadow.own()]);
        let (told, raw_only) = shadow.gain().estimate().expect("enough was seen");
        println!("{moves} moves, saved {saved} of {raw_only}, told {told:?}");
        assert!(moves >= 2 && *shadow.chosen() == Arm::RAW_ONLY);
        assert!(saved > 0.3 * raw_only);
        assert!((told.mean - saved).abs() < 2e-3 * raw_only);
    }

    /// Replicas say that four in five accesses fit if compressed, but the cache loads each block and compresses
    /// another.
    #[test]
    fn an_arm_under_which_the_cache_loses_is_given_up() {
        let costs = costs();
        let mut shadow = Shadow::new(1, 1 << 20, Gain::default()).expect("room for keys");
        shadow.reset(1.0, 2 << 20);
        let mut random = fastrand::Rng::with_seed(6);
        let (mut compressing, mut begun, mut spent, mut found) = (0, 0, 0.0, [0; OUTCOMES]);
        for _ in 0..60_000 {
            let sample = Sample {
                hash: random.u64(..512).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                raw_bytes: BLOCK,
                class: 0,
            };
            let was_raw_only = *shadow.chosen() == Arm::RAW_ONLY;
            compressing += u32::from(!was_raw_only);
            found[FOUND_NOTHING] += 1;
            spent += if was_raw_only {
                0.5 * MISS
            } else {
                MISS + COMPRESS
            };
            let actual = Actual {
                outcome: FOUND_NOTHING,
                found,
                spent,
                has_forms: !was_raw_only,
            };
            let has_moved = shadow.access(&sample, &actual, &costs);
            begun += u32::from(has_moved && was_raw_only);
        }
        println!("begun {begun} times, in force for {compressing} accesses");
        assert!(begun >= 1 && compressing < 6000);
    }

    /// An arm whose pool costs 2 to fill.
    #[test]
    fn an_arm_is_begun_where_little_can_be_lost_by_it() {
        let check = |sum: (f64, f64, f64), raw_only: f64, saved_before: f64, expected| {
            let mut shadow = Shadow::new(1, 1 << 20, Gain::default()).expect("room for keys");
            let (saved, encoded, dropped_bytes) = sum;
            shadow.cumulated[1] = CumulatedSum {
                saved,
                encoded,
                dropped_bytes,
            };
            shadow.gain.spent_raw = raw_only / LOSS_MAX;
            shadow.gain.simulated = saved_before;
            let found = shadow.may_begin(1, 2.0, 0.5);
            assert_eq!(found, expected, "{sum:?}, {raw_only}, {saved_before}");
        };
        // While its pool fills, it saves 0.6 for each 1 that it spends.
        check((1.0, 5.0, 10.0), 0.79, 0.0, None);
        check((1.0, 5.0, 10.0), 0.81, 0.0, Some(true));
        check((0.99, 4.95, 9.9), 0.81, 0.0, None);
        // An earlier loss counts, an earlier saving does not.
        check((1.0, 5.0, 10.0), 0.81, -0.1, None);
        check((1.0, 5.0, 10.0), 0.79, 5.0, None);
        // Nothing is lost where half of the saving pays for the work.
        check((1.0, 1.0, 2.0), 0.0, 0.0, Some(true));
        check((1.0, 0.0, 0.0), 0.0, 0.0, Some(true));
        // It saves 0.3 for each 1 spent on all victims: half of them have no second access.
        check((1.0, 5.0, 20.0), 1.41, 0.0, Some(true));
        check((1.0, 5.0, 20.0), 1.39, 0.0, Some(false));
        check((1.0, 5.0, 20.0), 0.79, 0.0, None);
    }

    /// Pools of 2 MiB: compressed, 8192 bytes take 0.3 times as many. So filling half of one costs some 7 ms.
    #[test]
    fn going_over_is_repaid_first() {
        let costs = told(
            MISS,
            &[(COMPRESS, RESTORE, 0.3), (2.0 * COMPRESS, RESTORE, 0.3)],
        );
        let mut shadow = Shadow::new(2, 1 << 20, Gain::default()).expect("room for keys");
        shadow.reset(1.0, 2 << 20);
        let sample = Sample {
            hash: 0,
            raw_bytes: BLOCK,
            class: 0,
        };
        let arms = shadow.arms.clone();
        let number = |share: f64, method: u8| {
            let is_it = |it: &Arm| (it.compressed_share, it.method) == (share, method);
            arms.iter().position(is_it).expect("an arm")
        };
        let blocks = |share: f64| share * f64::from(2 << 20) / (0.3 * f64::from(BLOCK) + 64.0);
        let mut check = |from: (f64, u8), to: (f64, u8), earned: f64, price: f64| {
            shadow.chosen = number(from.0, from.1);
            shadow.gain.sampled = u64::from(WINDOW * WINDOWS_MIN);
            // The earlier savings of other arms pay for nothing.
            shadow.gain_before.spent = -7.0;
            shadow.gain.spent = -7.0 - earned;
            let to = number(to.0, to.1);
            for (saved, expected) in [(0.99 * price, price == 0.0), (1.01 * price, true)] {
                shadow.cumulated[to].saved = saved;
                let found = shadow.may_change(to, shadow.saved_by_arm(), &sample, &costs);
                assert_eq!(found, expected, "{from:?} to {to}: {saved}");
            }
        };
        check((0.5, 0), (0.8, 0), 0.0, 0.5 * blocks(0.3) * COMPRESS);
        check((0.8, 0), (0.5, 0), 0.0, 0.5 * blocks(0.3) * MISS);
        check((0.5, 0), (0.5, 1), 0.0, 2.0 * blocks(0.5) * COMPRESS);
        check((0.8, 1), (0.0, 0), 0.0, 0.0);
        // The saving pays for a part of another method's pool.
        let filling = 2.0 * blocks(0.5) * COMPRESS;
        check((0.5, 0), (0.5, 1), 0.5 * filling, 0.5 * filling);
        check(
            (0.5, 0),
            (0.5, 1),
            5.0 * filling,
            REPAID_MIN_BY_SAVINGS * filling,
        );
        check((0.5, 0), (0.5, 1), -filling, filling);
        check(
            (0.5, 0),
            (0.8, 0),
            5.0 * filling,
            0.5 * blocks(0.3) * COMPRESS,
        );
    }

    #[test]
    fn small_caches_have_fewer_arms_and_more_of_their_memory() {
        let check = |memory_bytes, arms, keys: std::ops::RangeInclusive<usize>| {
            let shadow = Shadow::new(2, memory_bytes, Gain::default()).expect("room for keys");
            println!("{memory_bytes} bytes: {} keys", shadow.keys_max);
            assert_eq!(shadow.own(), arms);
            assert!(keys.contains(&shadow.keys_max));
            assert!(shadow.heap_bytes() as u64 <= 2 * memory_bytes);
        };
        // Half a percent of 2, 8, 16 and 64 MiB.
        check(10_485, 7, 150..=255);
        check(41_943, 7, 256..=511);
        check(83_886, 13, 512..=1000);
        check(335_544, 13, 2500..=4000);
        assert!(Shadow::new(2, 1000, Gain::default()).is_none());
    }
}
