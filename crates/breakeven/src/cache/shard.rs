//! One shard of the cache: raw and compressed blocks in one budget, by one policy, for one thread.
//!
//! New blocks are loaded in place into the small raw log, and a block that is asked for again moves to the main one.
//! The [`Arm`] in force decides whether a block that leaves the raw logs is compressed or dropped. A block that is hit
//! twice while compressed becomes raw again. It keeps its compressed form, its twin, until that leaves on its own, so
//! that compressing it again costs nothing. The raw logs are S3-FIFO (SOSP 2023). The compressed log is FIFO with one
//! reinsertion for each use of a form. A [`Shadow`] chooses the arm.
//!
//! The budget is memory: slabs, entries, table, ghosts and shadow together never exceed it, loads in flight included.
//! Only the [`Bench`], which a thread shares between shards, is on top. Empty bytes of a slab count like the others.
//!
//! Operations come in pieces, so that a wrapper can load, compress and restore without holding the shard. A
//! [`Reservation`] is filled and committed; a [`Handle`] shows by its version whether its block is still the same. Keys
//! are compared whole. Eviction is in `evict.rs`.
#![deny(unsafe_code)]

use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use super::KeyHasher;
use super::anew::Search;
use super::bench::Bench;
use super::costs::{AccessPrices, CLASS_COUNT, Costs, MissTime};
use super::entry::{Entries, Entry, Flags, Queue};
use super::expansion::{Expansion, Pools};
use super::ghost::Ghosts;
use super::log::{Log, Place, Segments};
use super::replica::{Arm, GHOSTS_SHARE, METHODS_MAX};
use super::shadow::{Actual, FOUND_NOTHING, FOUND_PACKED, FOUND_RAW, Gain, Sample, Shadow};
use crate::arena::{Arena, ArenaOptions, FillLoan};
use crate::codec::Method;
use crate::error::{Error, Result};
use crate::units::{Estimate, Seconds};

/// The share of measured access cost that trials of methods may take. `decide::Trials` weighs one more costly pick
/// against its possible saving. Here every method encodes a sampled block, beside its normal handling. Here every
/// method encodes a sampled block, beside its normal handling.
const TRIAL_SHARE: f64 = 0.001;
/// The future misses that trials may count on: those of filling the cache so many times.
const FILLS_AHEAD: f64 = 8.0;
/// Trials of methods before their cost is weighed.
const FREE_TRIALS: u32 = 8;
/// One key in so many is tried while there is no shadow.
const TRIED_OF_ASLEEP: u64 = 64;
/// The mean share of its bytes that a block may keep for the shadow to be worth its cost.
const PACKED_MEAN_MAX: f64 = 0.95;
/// Accesses after which the sampled share is reconsidered.
const RETUNE_EVERY: u64 = 8192;
/// Loads after which the size of blocks is known well enough for sampling.
const FIRST_LOADS: u64 = 64;
/// The sampled share falls when less than this part of it is affordable.
const THIN_BELOW: f64 = 0.8;
/// The part of the budget that a wrapper's benches may take, at most.
const BENCH_SHARE: u64 = 4;
/// The assumed cost of a sampled access before the first one is timed.
const SAMPLE_COST_GUESS: f64 = 400e-9;
/// The most that one sampled access counts, as a multiple of a usual one.
const SAMPLE_OUTLIER: f64 = 4.0;

/// The split of the pools, and the choice of the method.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Policy {
    /// By the measured costs.
    #[default]
    Adaptive,
    /// Nothing is compressed, and nothing is spent on the question.
    RawOnly,
    /// Always the same.
    Static(Arm),
    /// The share that holds this many times the bytes in use, above 0, if the data shrink enough. It is for users who
    /// know the data to be held, but not the cost of a miss. The first of the methods compresses. The next one takes
    /// over when it has held too little for some three fillings of the cache.
    Expansion(f64),
}

/// The block for [`Cache::get_or_load`](super::Cache::get_or_load) to load: its length, and the kind of its data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockSpec {
    /// Bytes that the loader fills.
    pub raw_bytes: usize,
    /// The caller's kind of data, by which costs are kept apart: 0 if there is one kind.
    pub class: u8,
}

impl From<usize> for BlockSpec {
    /// A block of this many bytes, of the only kind.
    fn from(raw_bytes: usize) -> BlockSpec {
        BlockSpec {
            raw_bytes,
            class: 0,
        }
    }
}

/// How a shard is made.
#[derive(Clone, Debug, PartialEq)]
pub struct ShardOptions {
    /// The most bytes of memory. Default 64 MiB.
    pub budget_bytes: u64,
    /// Bytes of a slab, a power of two; no larger block is kept. Default 256 KiB.
    pub slab_bytes: usize,
    /// Methods that may compress, at most 4. Default lz4:1 and zstd:1.
    pub methods: Vec<Method>,
    /// How the pools are split. Default adaptive.
    pub policy: Policy,
    /// The cost of seconds. Default: time.
    pub prices: AccessPrices,
    /// The share of the budget that the shadow may fill, or up to twice as much for few keys. More of it narrows the
    /// errors of its estimates. Default 0.005.
    pub shadow_memory_share: f64,
    /// The share of measured access cost that the shadow may take. Default 0.002.
    pub shadow_cost_share: f64,
}

impl Default for ShardOptions {
    fn default() -> ShardOptions {
        ShardOptions {
            budget_bytes: 64 << 20,
            slab_bytes: 256 << 10,
            methods: ["lz4:1", "zstd:1"]
                .map(|name| name.parse().expect("a method"))
                .to_vec(),
            policy: Policy::default(),
            prices: AccessPrices::default(),
            shadow_memory_share: 0.005,
            shadow_cost_share: 0.002,
        }
    }
}

impl ShardOptions {
    /// Makes the defaults for a budget and blocks of `block_bytes`. Slabs have about 1/256 of the budget, since three
    /// are half full; from 16 KiB to 1 MiB, and at least four blocks.
    pub fn sized(budget_bytes: u64, block_bytes: usize) -> ShardOptions {
        let wanted = (budget_bytes / 256).clamp(16 << 10, 1 << 20) as usize;
        let slab_bytes = wanted.max(4 * block_bytes).next_power_of_two();
        ShardOptions {
            budget_bytes,
            slab_bytes: slab_bytes.min(1 << 30),
            ..ShardOptions::default()
        }
    }
}

/// The counters of a shard, and the places of its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShardStats {
    /// Accesses that found a raw block.
    pub raw_hits: u64,
    /// Accesses that restored a block from its compressed form.
    pub packed_hits: u64,
    /// Accesses that loaded a block.
    pub misses: u64,
    /// Blocks that were compressed, trials apart.
    pub compressed: u64,
    /// Compressed forms that left without a hit.
    pub wasted: u64,
    /// Blocks that left the raw pool while their compressed form was still there.
    pub twins: u64,
    /// Blocks that did not shrink enough by their method.
    pub incompressible: u64,
    /// Blocks of one byte repeated, kept without bytes.
    pub filled: u64,
    /// Compressed forms whose check failed; each was a miss.
    pub corrupt: u64,
    /// Blocks that were too large to keep.
    pub too_large: u64,
    /// Price of all misses.
    pub miss_cost: f64,
    /// Price of all compressing.
    pub encode_cost: f64,
    /// Price of all restoring.
    pub decode_cost: f64,
    /// Price of trials of methods and of the shadow.
    pub overhead_cost: f64,
    /// Accesses the shadow sampled.
    pub sampled: u64,
    /// Changes of the arm in force.
    pub moves: u64,
}

impl ShardStats {
    /// Returns the number of accesses.
    #[inline]
    pub fn accesses(&self) -> u64 {
        self.raw_hits + self.packed_hits + self.misses
    }

    /// Adds the counts of another shard.
    pub(super) fn add(&mut self, other: &ShardStats) {
        self.raw_hits += other.raw_hits;
        self.packed_hits += other.packed_hits;
        self.misses += other.misses;
        self.compressed += other.compressed;
        self.wasted += other.wasted;
        self.twins += other.twins;
        self.incompressible += other.incompressible;
        self.filled += other.filled;
        self.corrupt += other.corrupt;
        self.too_large += other.too_large;
        self.miss_cost += other.miss_cost;
        self.encode_cost += other.encode_cost;
        self.decode_cost += other.decode_cost;
        self.overhead_cost += other.overhead_cost;
        self.sampled += other.sampled;
        self.moves += other.moves;
    }

    /// Returns the price of everything measured; a raw hit counts nothing.
    pub fn cost(&self) -> f64 {
        self.miss_cost + self.encode_cost + self.decode_cost + self.overhead_cost
    }
}

/// Where a shard's bytes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardMemory {
    /// The most that may be in use.
    pub budget_bytes: u64,
    /// Bytes of slabs, in use or not.
    pub slab_bytes: u64,
    /// Bytes of entries, table, ghosts, shadow and lists, and the bytes that a wrapper charged.
    pub overhead_bytes: u64,
    /// Bytes of raw blocks.
    pub raw_bytes: u64,
    /// Bytes of compressed blocks, their checks included.
    pub packed_bytes: u64,
    /// Blocks held in any form.
    pub blocks: u64,
    /// Raw bytes of these blocks.
    pub held_bytes: u64,
}

impl ShardMemory {
    /// Returns all bytes in use.
    pub fn in_use_bytes(&self) -> u64 {
        self.slab_bytes + self.overhead_bytes
    }

    /// Adds another shard's bytes.
    pub(super) fn add(&mut self, other: &ShardMemory) {
        self.budget_bytes += other.budget_bytes;
        self.slab_bytes += other.slab_bytes;
        self.overhead_bytes += other.overhead_bytes;
        self.raw_bytes += other.raw_bytes;
        self.packed_bytes += other.packed_bytes;
        self.blocks += other.blocks;
        self.held_bytes += other.held_bytes;
    }

    /// Returns the expansion factor: raw bytes of the blocks held, over bytes in use. It is above 1 only where
    /// compressing makes the memory hold more than its size.
    pub fn expansion(&self) -> f64 {
        self.held_bytes as f64 / self.in_use_bytes().max(1) as f64
    }
}

/// A found block. The handle is valid until the shard changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle {
    pub(super) entry: u32,
    pub(super) version: u32,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The raw bytes.
    Raw(Handle),
    /// A compressed form, to be restored.
    Packed(Handle),
    /// Nothing.
    Absent,
}

/// Where a restored block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// In the raw pool.
    Raw(Handle),
    /// In the bench, until it restores another.
    Bench,
    /// Nowhere: the compressed form was damaged or had to go.
    Lost,
}

/// Room for a block that is being loaded.
#[derive(Debug)]
pub struct Reservation {
    entry: u32,
    hash: u64,
    place: Place,
    frame: FillLoan,
    /// All earlier bytes here are gone.
    is_own: bool,
}

impl Reservation {
    /// Returns the bytes to load the block into, zeros at first. Bytes that a loader does not fill, as after a short
    /// read, must not show another key's block.
    pub fn frame_mut(&mut self) -> &mut [u8] {
        if !self.is_own {
            // The fill is here and not where room is made, because others wait there.
            self.frame.fill(0);
            self.is_own = true;
        }
        &mut self.frame
    }

    /// Loads a given block.
    fn copy(&mut self, block: &[u8]) {
        self.frame.copy_from_slice(block);
        self.is_own = true;
    }
}

/// One shard.
///
/// # Cost
///
/// For each block 40 bytes beside its key (48 with one of 8 bytes), 4 for its vacant number, and 8 for its place in a
/// segment. The table takes 6 to 12, ghosts 16 to 32; and, if adaptive, the shadow takes 1/200 of the budget.
///
/// # Example
///
/// ```
/// use breakeven::cache::{Bench, Shard, ShardOptions};
///
/// let mut bench = Bench::new();
/// let mut shard: Shard<u64> = Shard::new(ShardOptions::default())?;
/// let page = shard.get_or_load(7, 4096, &mut bench, |frame| {
///     frame.fill(b'x');
///     Ok(())
/// })?;
/// assert_eq!(page[0], b'x');
/// assert!(shard.get(&7, &mut bench).is_some());
/// # Ok::<(), breakeven::Error>(())
/// ```
// The order is on purpose: fields that hits write lie elsewhere, and counters come first. So the fields that a hit
// reads may stay in several cores' caches.
#[repr(C)]
pub struct Shard<K, S = KeyHasher> {
    pub(super) stats: ShardStats,
    pub(super) options: ShardOptions,
    hasher: S,
    table: HashTable<u32>,
    pub(super) entries: Entries<K>,
    pub(super) segments: Segments,
    pub(super) small: Log,
    pub(super) main: Log,
    pub(super) packed: Log,
    /// Segments that were to go while they were lent, with their logs.
    pub(super) aside: Vec<(u32, Queue)>,
    ghosts: Ghosts,
    // Large, seldom used fields are boxed: a new shard is moved through stacks that may be small.
    pub(super) costs: Box<Costs>,
    /// `None` where the policy is fixed, and while no method can pay.
    pub(super) shadow: Option<Box<Shadow>>,
    /// The saving until the shadow was last removed.
    past_gain: Box<Gain>,
    /// Classes on which methods were tried, one bit each.
    classes_tried: u8,
    sample_cost: f64,
    /// Of the last loads.
    mean_block_bytes: f64,
    trials: u32,
    trial_cost: f64,
    /// The number of accesses at which the sampled share is next reconsidered.
    retune_at: u64,
    pub(super) arm: Arm,
    pub(super) search: Search,
    /// Set where a factor is requested in place of an arm.
    expansion: Option<Expansion>,
    /// Segments that the budget leaves room for.
    pub(super) slabs_max: usize,
    reserved: usize,
    /// Raw bytes of blocks, held in any form.
    held_bytes: u64,
    /// Bytes that a wrapper holds for its callers.
    pub(super) charged: Arc<AtomicU64>,
    /// Bytes of a wrapper's own lists.
    pub(super) list_bytes: u64,
    /// Bytes of a wrapper's benches, and the number of shards that share them.
    pub(super) benches: (Arc<AtomicU64>, u64),
    /// The most bytes that a wrapper's guards may keep: whole slabs where blocks are lent, and charged bytes.
    pub(super) guard_bytes_max: u64,
    /// The same, for any budget.
    #[cfg(test)]
    slabs_held: Option<usize>,
    /// Memory for the list of a segment that leaves.
    pub(super) victims: Vec<(u32, u32)>,
}

impl<K: Copy + Eq + Hash> Shard<K> {
    /// Makes an empty shard with a hasher of random seed.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a slab size, a number of methods, an expansion factor, a price or a share out
    /// of range.
    pub fn new(options: ShardOptions) -> Result<Shard<K>> {
        Shard::with_hasher(options, KeyHasher::default())
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Shard<K, S> {
    /// Makes an empty shard with this hasher, which should not be guessable if others choose the keys.
    ///
    /// # Errors
    ///
    /// As [`Shard::new`].
    pub fn with_hasher(options: ShardOptions, hasher: S) -> Result<Shard<K, S>> {
        if !(1..=METHODS_MAX).contains(&options.methods.len()) {
            let reason = format!("{}, expected 1 to {METHODS_MAX}", options.methods.len());
            return Err(Error::invalid("number of methods", reason));
        }
        options.prices.check()?;
        let mut shares = vec![options.shadow_memory_share, options.shadow_cost_share];
        if let Policy::Static(arm) = options.policy {
            shares.push(arm.compressed_share);
        }
        for share in shares {
            if !(0.0..=1.0).contains(&share) {
                return Err(Error::invalid("share", format!("{share}, expected 0 to 1")));
            }
        }
        let expansion = match options.policy {
            Policy::Expansion(factor) if !(factor.is_finite() && factor > 0.0) => {
                let reason = format!("{factor}, expected a number above 0");
                return Err(Error::invalid("expansion factor", reason));
            }
            Policy::Expansion(factor) => Some(Expansion::new(factor, options.methods.len())),
            Policy::Adaptive | Policy::RawOnly | Policy::Static(_) => None,
        };
        let arena = Arena::new(ArenaOptions {
            slab_bytes: options.slab_bytes,
            budget_bytes: 0,
            ..ArenaOptions::default()
        })?;
        let mut shard = Shard {
            hasher,
            table: HashTable::new(),
            entries: Entries::new(),
            segments: Segments::new(arena),
            small: Log::default(),
            main: Log::default(),
            packed: Log::default(),
            aside: Vec::new(),
            ghosts: Ghosts::new(0),
            costs: Box::new(Costs::new(options.prices, &options.methods, 8192)),
            shadow: None,
            past_gain: Box::default(),
            classes_tried: 0,
            sample_cost: SAMPLE_COST_GUESS * options.prices.per_core_second,
            mean_block_bytes: 0.0,
            trials: 0,
            trial_cost: 0.0,
            retune_at: RETUNE_EVERY,
            search: Search::default(),
            arm: match options.policy {
                Policy::Static(arm) => arm,
                Policy::Adaptive | Policy::RawOnly | Policy::Expansion(_) => Arm::RAW_ONLY,
            },
            expansion,
            slabs_max: 0,
            reserved: 0,
            held_bytes: 0,
            charged: Arc::default(),
            list_bytes: 0,
            benches: (Arc::default(), 1),
            guard_bytes_max: 0,
            #[cfg(test)]
            slabs_held: None,
            victims: Vec::new(),
            stats: ShardStats::default(),
            options,
        };
        shard.divide_budget();
        Ok(shard)
    }

    /// Returns a block's bytes, restored if need be; `None` if it is not held.
    pub fn get<'a>(&'a mut self, key: &K, bench: &'a mut Bench) -> Option<&'a [u8]> {
        match self.find_or_restore(key, bench) {
            Restored::Raw(handle) => self.bytes(handle),
            Restored::Bench => Some(bench.restored()),
            Restored::Lost => None,
        }
    }

    /// Returns a block's bytes; if it is not held, `load` fills its bytes, which are zeros at first.
    ///
    /// # Errors
    ///
    /// The error of `load`; the block is then not held, nor if `load` panics. [`Error::Invalid`] for a block without
    /// enough memory.
    pub fn get_or_load<'a>(
        &'a mut self,
        key: K,
        block: impl Into<BlockSpec>,
        bench: &'a mut Bench,
        load: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<&'a [u8]> {
        match self.find_or_restore(&key, bench) {
            Restored::Raw(handle) => return Ok(self.bytes(handle).expect("a block just found")),
            Restored::Bench => return Ok(bench.restored()),
            Restored::Lost => {}
        }
        let BlockSpec { raw_bytes, class } = block.into();
        let Some(mut reservation) = self.reserve(key, raw_bytes, class, bench) else {
            let begun = bench.begin_load();
            let memory = bench.scratch_for(raw_bytes)?;
            memory.fill(0);
            load(memory)?;
            self.missed(&begun.end());
            self.stats.too_large += 1;
            return Ok(bench.scratch(raw_bytes));
        };
        let begun = bench.begin_load();
        match catch_unwind(AssertUnwindSafe(|| load(reservation.frame_mut()))) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.abandon(reservation);
                return Err(error);
            }
            Err(panic) => {
                self.abandon(reservation);
                resume_unwind(panic);
            }
        }
        let time = begun.end();
        let handle = self.commit(reservation, Some(&time), bench);
        Ok(self.bytes(handle).expect("a block just committed"))
    }

    /// Puts in a block, in place of the one under its key; returns whether it is held.
    pub fn insert(&mut self, key: K, bytes: &[u8], class: u8, bench: &mut Bench) -> bool {
        self.remove(&key);
        let Some(mut reservation) = self.reserve(key, bytes.len(), class, bench) else {
            self.stats.too_large += 1;
            return false;
        };
        reservation.copy(bytes);
        self.commit(reservation, None, bench);
        true
    }

    /// Takes a block out; returns whether it was held.
    pub fn remove(&mut self, key: &K) -> bool {
        self.remove_hashed(self.hasher.hash_one(key), key)
    }

    /// Takes out a block whose key has this hash.
    pub(super) fn remove_hashed(&mut self, hash: u64, key: &K) -> bool {
        let Some(number) = self.find(hash, key) else {
            return false;
        };
        self.discard(number);
        if let Some(shadow) = &mut self.shadow
            && shadow.wants(hash)
        {
            shadow.remove(hash, &self.costs);
        }
        true
    }

    /// Looks a block up and counts the access.
    pub fn lookup(&mut self, key: &K, bench: &mut Bench) -> Lookup {
        self.lookup_hashed(self.hasher.hash_one(key), key, bench)
    }

    /// Looks up a block whose key has this hash.
    pub(super) fn lookup_hashed(&mut self, hash: u64, key: &K, bench: &mut Bench) -> Lookup {
        let Some(number) = self.find(hash, key) else {
            return Lookup::Absent;
        };
        let entry = self.entries.at_mut(number);
        let (raw_bytes, class) = (entry.raw_bytes, entry.class);
        let handle = Handle {
            entry: number,
            version: entry.version,
        };
        let is_raw = entry.raw.is_some();
        if is_raw {
            entry.flags.count_hit();
            self.stats.raw_hits += 1;
        } else {
            self.stats.packed_hits += 1;
        }
        let outcome = if is_raw { FOUND_RAW } else { FOUND_PACKED };
        self.sample_found(outcome, hash, raw_bytes, class, bench);
        match is_raw {
            true => Lookup::Raw(handle),
            false => Lookup::Packed(handle),
        }
    }

    /// Returns the bytes of a raw block; `None` if it is no longer the same.
    pub fn bytes(&self, handle: Handle) -> Option<&[u8]> {
        let entry = self.entries.find(handle.entry, handle.version)?;
        let is_raw = entry.raw.is_some();
        is_raw.then(|| self.segments.bytes(entry.raw, entry.raw_bytes as usize))
    }

    /// Restores a compressed block into the bench, and at its second hit puts it into the raw pool too.
    pub fn restore(&mut self, handle: Handle, bench: &mut Bench) -> Restored {
        let Some(entry) = self.entries.find(handle.entry, handle.version) else {
            return Restored::Lost;
        };
        if entry.raw.is_some() {
            return Restored::Raw(handle);
        }
        let restoring = self.begin_restore(handle, bench);
        // It is taken out of the bench, which may have to make room for it.
        let (block, ran) = restoring.run_on_bench(bench);
        self.end_restore(restoring, &block, &ran, bench);
        bench.put_restored(block);
        match ran.time {
            Ok(_) => Restored::Bench,
            Err(_) => Restored::Lost,
        }
    }

    /// Makes room for a block to be loaded; `None` if it cannot be kept.
    pub fn reserve(
        &mut self,
        key: K,
        raw_bytes: usize,
        class: u8,
        bench: &mut Bench,
    ) -> Option<Reservation> {
        if raw_bytes > self.segments.slab_bytes() || self.slabs_max == 0 {
            return None;
        }
        let (hash, entry) = self.begin_entry(key, raw_bytes, class);
        let queue = self.recall(hash, entry);
        let Some(place) = self.append_raw(queue, entry, raw_bytes, bench) else {
            self.end_entry(entry);
            return None;
        };
        let reservation = Reservation {
            entry,
            hash,
            place,
            // From here on its segment stays in place.
            frame: self.segments.lend_to_fill(place, raw_bytes),
            is_own: false,
        };
        if self.settle(bench) {
            return Some(reservation);
        }
        self.abandon(reservation);
        None
    }

    /// Gives back unused room.
    pub fn abandon(&mut self, reservation: Reservation) {
        let Reservation {
            entry,
            place,
            frame,
            ..
        } = reservation;
        self.segments.take_back(place.segment, frame);
        self.segments.retract(place);
        self.end_entry(entry);
    }

    /// Makes an entry that is not yet known, and room for it in the table; returns its key's hash and its number.
    pub(super) fn begin_entry(&mut self, key: K, raw_bytes: usize, class: u8) -> (u64, u32) {
        let hash = self.hasher.hash_one(key);
        let number = self.entries.add(key, raw_bytes as u32, class);
        self.reserved += 1;
        let (entries, hasher) = (&self.entries, &self.hasher);
        let of = |number: &u32| hasher.hash_one(entries.at(*number).key);
        self.table.reserve(self.reserved, of);
        if self.entries.count() > self.ghosts.capacity() {
            // Ghosts of the smaller table cannot be moved, because they do not contain their hash.
            self.ghosts = Ghosts::new(2 * self.entries.count().next_power_of_two());
        }
        (hash, number)
    }

    /// Takes back an entry that did not become known.
    pub(super) fn end_entry(&mut self, number: u32) {
        self.reserved -= 1;
        self.entries.remove(number);
    }

    /// Makes an entry known whose bytes are there.
    pub(super) fn make_known(&mut self, hash: u64, number: u32) {
        let (entries, hasher) = (&self.entries, &self.hasher);
        let of = |number: &u32| hasher.hash_one(entries.at(*number).key);
        self.table.insert_unique(hash, number, of);
        self.reserved -= 1;
        self.held_bytes += u64::from(self.entries.at(number).raw_bytes);
    }

    /// Makes a loaded block known, with the time of the loading, if it was a miss.
    pub fn commit(
        &mut self,
        mut reservation: Reservation,
        time: Option<&MissTime>,
        bench: &mut Bench,
    ) -> Handle {
        // A loader that never took the frame has a block of zeros.
        reservation.frame_mut();
        let Reservation {
            entry: number,
            hash,
            place,
            frame,
            is_own: _,
        } = reservation;
        let raw_bytes = frame.len();
        self.segments.take_back(place.segment, frame);
        let key = self.entries.at(number).key;
        // A later load wins over an earlier one.
        if let Some(old) = self.find(hash, &key) {
            self.discard(old);
        }
        self.make_known(hash, number);
        let entry = self.entries.at_mut(number);
        entry.raw = place;
        let (version, class) = (entry.version, entry.class);
        let queue = entry.queue();
        self.log_mut(queue).live_bytes += raw_bytes as u64;
        let weight = if self.mean_block_bytes > 0.0 {
            1.0 / 64.0
        } else {
            1.0
        };
        self.mean_block_bytes += (raw_bytes as f64 - self.mean_block_bytes) * weight;
        if let Some(time) = time {
            self.missed(time);
            self.sample_found(FOUND_NOTHING, hash, raw_bytes as u32, class, bench);
            self.tell_recalled(hash, number);
            self.try_methods(hash, number, bench);
        }
        Handle {
            entry: number,
            version,
        }
    }

    /// Changes the budget at once: blocks over it are compressed or dropped. Slabs with lent bytes stay.
    ///
    /// # Cost
    ///
    /// Ghosts and shadow start again.
    pub fn set_budget(&mut self, bytes: u64, bench: &mut Bench) {
        self.options.budget_bytes = bytes;
        self.divide_budget();
        self.settle(bench);
        self.entries.shrink();
        let (entries, hasher) = (&self.entries, &self.hasher);
        let of = |number: &u32| hasher.hash_one(entries.at(*number).key);
        self.table.shrink_to(self.table.len() + self.reserved, of);
        self.settle(bench);
    }

    /// Returns each arm the shadow simulates with its recent cost over that of raw-only. Empty where there is no shadow
    /// or it saw too little.
    pub fn forecast(&self) -> Vec<(Arm, f64)> {
        self.shadow
            .as_ref()
            .map_or_else(Vec::new, |it| it.forecast())
    }

    /// Returns the counters so far.
    pub fn stats(&self) -> &ShardStats {
        &self.stats
    }

    /// Returns the arm in force.
    pub fn arm(&self) -> Arm {
        self.arm
    }

    /// Returns the saving of compression against raw-only, with its 95 % interval, and raw-only's cost, in the unit of
    /// the prices. `None` where the shadow saw too little. The saving is raw-only's cost, by the shadow's estimate,
    /// less the spending. The spending includes changes of the arm, filling pools and forms made again, but not the
    /// overhead.
    pub fn gain(&self) -> Option<(Estimate, f64)> {
        let gain = self.shadow.as_ref().map_or(*self.past_gain, |it| it.gain());
        gain.estimate()
    }

    /// Returns where the bytes are.
    pub fn memory(&self) -> ShardMemory {
        ShardMemory {
            budget_bytes: self.options.budget_bytes,
            slab_bytes: (self.segments.count() * self.segments.slab_bytes()) as u64,
            overhead_bytes: self.overhead_bytes(),
            raw_bytes: self.small.live_bytes + self.main.live_bytes,
            packed_bytes: self.packed.live_bytes,
            blocks: self.table.len() as u64,
            held_bytes: self.held_bytes,
        }
    }

    fn find_or_restore(&mut self, key: &K, bench: &mut Bench) -> Restored {
        match self.lookup(key, bench) {
            Lookup::Raw(handle) => Restored::Raw(handle),
            Lookup::Packed(handle) => self.restore(handle, bench),
            Lookup::Absent => Restored::Lost,
        }
    }

    pub(super) fn find(&self, hash: u64, key: &K) -> Option<u32> {
        let is_it = |number: &u32| self.entries.at(*number).key == *key;
        self.table.find(hash, is_it).copied()
    }

    /// Returns an entry directly from the table, so that it need not be looked up by its number.
    #[inline(always)]
    pub(super) fn find_entry(&self, hash: u64, key: &K) -> Option<&Entry<K>> {
        let mut found = None;
        self.table.find(hash, |&number| {
            let entry = self.entries.at(number);
            let is_it = entry.key == *key;
            if is_it {
                found = Some(entry);
            }
            is_it
        });
        found
    }

    /// Books a block that is raw again.
    pub(super) fn promoted(&mut self, handle: Handle, place: Place, bench: &mut Bench) {
        let entry = self.entries.at_mut(handle.entry);
        entry.raw = place;
        entry.flags.set(Flags::IS_MAIN, true);
        entry.flags.set_frequency(0);
        self.main.live_bytes += u64::from(entry.raw_bytes);
        let _stays = self.segments.lend(place, entry.raw_bytes as usize);
        if !self.settle(bench) {
            self.discard(handle.entry);
        }
    }

    /// Returns the queue for a key that is not held.
    pub(super) fn queue_for(&self, hash: u64) -> Queue {
        match self
            .ghosts
            .age_of(hash)
            .is_some_and(|age| self.is_young(age))
        {
            true => Queue::Main,
            false => Queue::Small,
        }
    }

    /// Returns whether a block was dropped too early, by the number of drops since.
    fn is_young(&self, age: u64) -> bool {
        age as f64 <= GHOSTS_SHARE * self.table.len() as f64
    }

    /// Gives an entry the memory of its key, and returns the queue that it begins in.
    pub(super) fn recall(&mut self, hash: u64, number: u32) -> Queue {
        let Some((memory, age)) = self.ghosts.take(hash) else {
            return Queue::Small;
        };
        let is_young = self.is_young(age);
        let entry = self.entries.at_mut(number);
        entry.flags.set(Flags::IS_AGAIN, is_young);
        entry.flags.set(Flags::IS_MAIN, is_young);
        entry.flags.refuse(memory.refused);
        if let Some((method, packed_bytes)) = memory.form(entry.raw_bytes) {
            entry.method = method;
            entry.packed_bytes = packed_bytes;
        }
        entry.queue()
    }

    /// Remembers a block that is dropped.
    pub(super) fn remember(&mut self, number: u32) {
        let entry = self.entries.at(number);
        let hash = self.hasher.hash_one(entry.key);
        let memory = super::ghost::Memory::new(
            entry.flags.refused(),
            entry.method,
            entry.packed_bytes,
            entry.raw_bytes,
        );
        // A block that leaves the main log had its time.
        let is_young = !entry.raw.is_some() || entry.queue() == Queue::Small;
        self.ghosts.remember(hash, &memory, is_young);
    }

    /// Takes a block out of the table and its bytes out of the books.
    pub(super) fn discard(&mut self, number: u32) {
        let entry = *self.entries.at(number);
        let hash = self.hasher.hash_one(entry.key);
        if let Ok(found) = self.table.find_entry(hash, |&other| other == number) {
            found.remove();
        }
        self.held_bytes -= u64::from(entry.raw_bytes);
        if entry.raw.is_some() {
            self.log_mut(entry.queue()).live_bytes -= u64::from(entry.raw_bytes);
        }
        self.forget_packed(number);
        self.entries.remove(number);
    }

    /// Takes a compressed form out of the books.
    pub(super) fn forget_packed(&mut self, number: u32) {
        let entry = self.entries.at_mut(number);
        if !entry.packed.is_some() {
            return;
        }
        let bytes = entry.packed_bytes as usize;
        self.segments.leave_hole(entry.packed, bytes);
        entry.packed = Place::NONE;
        self.stats.wasted += u64::from(!entry.flags.has(Flags::IS_USED));
        entry.flags.set(Flags::OF_PACKED, false);
        self.packed.live_bytes -= bytes as u64;
    }

    pub(super) fn log_mut(&mut self, queue: Queue) -> &mut Log {
        match queue {
            Queue::Small => &mut self.small,
            Queue::Main => &mut self.main,
        }
    }

    pub(super) fn missed(&mut self, time: &MissTime) {
        self.stats.misses += 1;
        self.stats.miss_cost += self.costs.missed(time);
        if self.stats.misses == FIRST_LOADS {
            self.retune();
        }
    }

    /// Books the cost of restoring a form that may have been replaced by now.
    pub(super) fn book_decode(
        &mut self,
        of: (u8, u8),
        raw_bytes: usize,
        packed_bytes: usize,
        time: Option<Seconds>,
    ) {
        let (raw, packed) = (raw_bytes as u64, packed_bytes as u64);
        let guess = self.costs.per_byte(of.0, of.1).decode * raw as f64;
        self.stats.decode_cost += time.map_or(guess, |time| self.costs.core(time));
        if time.is_some() {
            self.costs.observe(of, raw, packed, None, time);
        }
    }

    /// Returns whether the shadow samples a key.
    #[inline(always)]
    pub(super) fn is_sampled(&self, hash: u64) -> bool {
        self.shadow.as_ref().is_some_and(|it| it.wants(hash))
    }

    /// Counts hits that a wrapper's threads made by [`Shard::find_hot`].
    pub(super) fn count_hits(&mut self) {
        self.stats.raw_hits += self.segments.take_hits();
    }

    /// Reports an access and its outcome to the shadow, if it samples the key.
    fn sample_found(
        &mut self,
        outcome: usize,
        hash: u64,
        raw_bytes: u32,
        class: u8,
        bench: &mut Bench,
    ) {
        if self.stats.accesses() >= self.retune_at {
            self.retune_at = (self.stats.accesses() / RETUNE_EVERY + 1) * RETUNE_EVERY;
            self.retune();
        }
        if self.is_sampled(hash) {
            let sample = Sample {
                hash,
                raw_bytes,
                class,
            };
            self.sample_wanted(outcome, &sample, bench);
        }
    }

    #[cold]
    fn sample_wanted(&mut self, outcome: usize, sample: &Sample, bench: &mut Bench) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let stats = &self.stats;
        let actual = Actual {
            outcome,
            found: [stats.raw_hits, stats.packed_hits, stats.misses],
            spent: stats.cost() - stats.overhead_cost,
            has_forms: self.packed.segment_count() > 0,
        };
        let (costs, mut has_moved) = (&self.costs, false);
        let time = bench.time_shadow(|| has_moved = shadow.access(sample, &actual, costs));
        if let Some(time) = time {
            // The cost is elapsed time, because the processor clock takes as long as a sample. A sample in which the
            // thread was not running must not count as ten thousand.
            let cost = self.costs.core(time).min(SAMPLE_OUTLIER * self.sample_cost);
            self.sample_cost += (cost - self.sample_cost) / 64.0;
        }
        self.stats.sampled += 1;
        self.stats.overhead_cost += self.sample_cost;
        if has_moved {
            let before = std::mem::replace(&mut self.arm, *shadow.chosen());
            self.stats.moves += 1;
            if before.method != self.arm.method {
                self.search_stragglers();
            }
        }
    }

    /// Moves the split towards the expansion factor, if one is requested.
    pub(super) fn expand(&mut self) {
        let Some(expansion) = &mut self.expansion else {
            return;
        };
        let raw_bytes = self.small.live_bytes + self.main.live_bytes;
        let before = self.arm;
        self.arm = expansion.next(
            before,
            &Pools {
                slabs_max: self.slabs_max,
                slab_bytes: self.segments.slab_bytes() as f64,
                raw_slabs: self.small.segment_count() + self.main.segment_count(),
                packed_slabs: self.packed.segment_count(),
                raw_bytes: raw_bytes as f64,
                only_packed_bytes: self.held_bytes.saturating_sub(raw_bytes) as f64,
                budget_bytes: self.options.budget_bytes as f64,
            },
        );
        self.stats.moves += u64::from(self.arm.method != before.method);
    }

    /// Returns whether any method shrinks the loaded blocks, and restores them in less than the time of a miss.
    /// Otherwise no arm can beat raw-only.
    fn can_pay(&self) -> bool {
        let tried = (0..CLASS_COUNT as u8).filter(|class| self.classes_tried & 1 << class != 0);
        tried.into_iter().any(|class| {
            (0..self.options.methods.len() as u8).any(|method| {
                let found = self.costs.per_byte(class, method);
                let decode = found.decode * self.mean_block_bytes;
                found.packed < PACKED_MEAN_MAX && decode < self.costs.miss()
            })
        })
    }

    fn put_shadow_away(&mut self) {
        if let Some(shadow) = self.shadow.take() {
            *self.past_gain = shadow.gain();
        }
    }

    /// Removes the shadow, with its memory, while nothing can pay, and makes one again after that.
    fn wake_or_sleep(&mut self) {
        let is_asleep = self.shadow.is_none();
        let can_pay = self.can_pay();
        if is_asleep && can_pay {
            let memory_bytes = self.options.budget_bytes as f64 * self.options.shadow_memory_share;
            let methods = self.options.methods.len();
            self.shadow = Shadow::new(methods, memory_bytes as u64, *self.past_gain).map(Box::new);
        } else if !is_asleep && !can_pay && self.arm == Arm::RAW_ONLY {
            self.put_shadow_away();
        }
    }

    /// Decides again whether the shadow is worth its cost, and its affordable share of the keys.
    #[cold]
    fn retune(&mut self) {
        if self.options.policy != Policy::Adaptive {
            return;
        }
        self.wake_or_sleep();
        let accesses = self.stats.accesses().max(1);
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let fixed = (self.ghosts.heap_bytes() + shadow.heap_bytes()) as u64;
        let capacity = self.options.budget_bytes.saturating_sub(fixed);
        let share_max = shadow.share_max(capacity, self.mean_block_bytes as u64);
        let mean_cost = self.stats.cost() / accesses as f64;
        let affordable = self.options.shadow_cost_share * mean_cost / self.sample_cost;
        let wanted = affordable.clamp(share_max / 64.0, share_max);
        let now = shadow.sampled_share();
        if now == 0.0 || wanted > now * 4.0 {
            shadow.reset(wanted, capacity);
        } else if wanted < now * THIN_BELOW {
            shadow.thin(wanted, &self.costs);
        }
    }

    /// Tries the methods on a sampled block, if that can be afforded.
    fn try_methods(&mut self, hash: u64, number: u32, bench: &mut Bench) {
        let is_sampled = match &self.shadow {
            Some(shadow) => shadow.wants(hash),
            None => hash.is_multiple_of(TRIED_OF_ASLEEP),
        };
        let is_free = self.trials < FREE_TRIALS;
        // Future misses are assumed, because early knowledge is used longest.
        let blocks = self.options.budget_bytes as f64 / self.mean_block_bytes.max(1.0);
        let ahead = FILLS_AHEAD * blocks * self.costs.miss();
        let affordable = TRIAL_SHARE * self.stats.cost().max(ahead);
        let is_wanted = is_free || is_sampled && self.trial_cost <= affordable;
        if self.options.policy != Policy::Adaptive || !is_wanted {
            return;
        }
        let entry = *self.entries.at(number);
        let block = self.segments.bytes(entry.raw, entry.raw_bytes as usize);
        for (index, &method) in self.options.methods.iter().enumerate() {
            let index = index as u8;
            // Where restoring takes longer than a miss, no result of it can pay.
            let decode = self.costs.per_byte(entry.class, index).decode * block.len() as f64;
            let shadow = self.shadow.as_ref();
            let is_unknown = shadow.is_none_or(|shadow| shadow.is_unknown(hash, index) || is_free);
            if !is_unknown || decode > self.costs.miss() {
                continue;
            }
            self.classes_tried |= 1 << entry.class.min(CLASS_COUNT as u8 - 1);
            let limit = super::evict::packed_bytes_max(block.len());
            let Ok(trial) = bench.try_method(method, entry.class, block, limit) else {
                continue;
            };
            let (of, raw) = ((entry.class, index), block.len());
            let guess = *self.costs.per_byte(of.0, of.1);
            let cost = |time: Option<Seconds>, per_byte: f64| {
                time.map_or(per_byte * raw as f64, |time| self.costs.core(time))
            };
            let cost = cost(trial.encode, guess.encode) + cost(trial.decode, guess.decode);
            self.trials += 1;
            self.trial_cost += cost;
            self.stats.overhead_cost += cost;
            let size = trial.packed_bytes;
            let packed = size.unwrap_or(raw) as u64;
            self.costs
                .observe(of, raw as u64, packed, trial.encode, trial.decode);
            if let Some(shadow) = &mut self.shadow {
                shadow.learn(hash, index, size.map(|size| size as u32), &self.costs);
            }
        }
    }

    /// Gives the shadow the memory of a ghost whose block was loaded again, so that it needs no trial.
    fn tell_recalled(&mut self, hash: u64, number: u32) {
        let Some(shadow) = self.shadow.as_mut().filter(|it| it.wants(hash)) else {
            return;
        };
        let entry = self.entries.at(number);
        for method in 0..self.options.methods.len() as u8 {
            let made =
                (entry.method == method && entry.packed_bytes > 0).then_some(entry.packed_bytes);
            let is_known = made.is_some() || entry.flags.is_refused(method);
            if is_known && shadow.is_unknown(hash, method) {
                shadow.learn(hash, method, made, &self.costs);
            }
        }
    }

    /// Gives the shadow a method's result on a block.
    pub(super) fn learn(&mut self, number: u32, method: u8, packed_bytes: Option<u32>) {
        let Some(shadow) = &mut self.shadow else {
            return;
        };
        let hash = self.hasher.hash_one(self.entries.at(number).key);
        if shadow.wants(hash) {
            shadow.learn(hash, method, packed_bytes, &self.costs);
        }
    }

    /// Sets apart the budget of ghosts and shadow.
    fn divide_budget(&mut self) {
        self.ghosts = Ghosts::new(0);
        self.put_shadow_away();
        if self.options.policy == Policy::Adaptive {
            self.arm = Arm::RAW_ONLY;
        }
        self.limit_slabs();
        if self.stats.misses >= FIRST_LOADS {
            self.retune();
        }
    }

    fn overhead_bytes(&self) -> u64 {
        let heap = self.table.allocation_size()
            + self.entries.heap_bytes()
            + self.segments.heap_bytes()
            + self.small.heap_bytes()
            + self.main.heap_bytes()
            + self.packed.heap_bytes()
            + self.ghosts.heap_bytes()
            + self.aside.capacity() * size_of::<(u32, Queue)>()
            + self.victims.capacity() * size_of::<(u32, u32)>()
            + self.shadow.as_ref().map_or(0, |it| it.heap_bytes());
        heap as u64 + self.list_bytes + self.charged.load(Ordering::Relaxed)
    }

    /// Returns whether all victims are compressed while the compressed share has room. They are with a fixed arm, and
    /// with one that began at such low risk.
    pub(super) fn fills(&self) -> bool {
        self.shadow.as_ref().is_none_or(|it| it.fills())
    }

    /// Computes the number of slabs in the rest of the memory.
    pub(super) fn limit_slabs(&mut self) {
        let slab_bytes = self.segments.slab_bytes() as u64;
        let budget_bytes = self.options.budget_bytes;
        let benches = self.benches.0.load(Ordering::Relaxed) / self.benches.1;
        let beside = self.overhead_bytes() + benches.min(budget_bytes / BENCH_SHARE);
        let left = budget_bytes.saturating_sub(beside);
        let slabs_max = (left >> slab_bytes.trailing_zeros()) as usize;
        #[cfg(test)]
        let slabs_max = self.slabs_held.unwrap_or(slabs_max);
        if slabs_max != self.slabs_max {
            self.slabs_max = slabs_max;
            let arena = self.segments.arena();
            // Locked memory stays, but the slabs are not used.
            let _ = arena.set_budget(slabs_max as u64 * slab_bytes);
        }
    }

    /// Gives the shard this many slabs, without regard to its budget and its heap.
    #[cfg(test)]
    pub(crate) fn hold_slabs(&mut self, count: usize) {
        self.slabs_held = Some(count);
        self.limit_slabs();
    }

    /// Returns the numbers of all known entries.
    #[cfg(test)]
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.table.iter().copied().collect()
    }

    /// Returns the number of the method of each compressed form.
    #[cfg(all(test, feature = "replay"))]
    pub(crate) fn methods_of_forms(&self) -> Vec<u8> {
        let entries = self.table.iter().map(|number| self.entries.at(*number));
        let packed = entries.filter(|entry| entry.packed.is_some());
        packed.map(|entry| entry.method).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Record, RecordedMethod};
    use super::*;

    const BLOCK: usize = 4096;

    /// A shard of 4 MiB and a bench of methods with these ratios.
    fn shard(policy: Policy, ratios: [f64; 2]) -> (Shard<u64>, Bench) {
        let methods = ["lz4:1", "zstd:1"].map(|name| name.parse().expect("a method"));
        let recorded = |(method, ratio)| RecordedMethod {
            method,
            encode_seconds_per_byte: 2e-9,
            decode_seconds_per_byte: 1e-9,
            ratios: [ratio; 2],
        };
        let bench = Bench::recorded(Record {
            methods: methods.into_iter().zip(ratios).map(recorded).collect(),
            miss: MissTime {
                core: Seconds(0.0),
                waiting: Seconds(1e-3),
            },
            shadow_sample: Seconds(400e-9),
        });
        let options = ShardOptions {
            policy,
            methods: methods.to_vec(),
            ..ShardOptions::sized(4 << 20, BLOCK)
        };
        (Shard::new(options).expect("a shard"), bench)
    }

    fn load(shard: &mut Shard<u64>, bench: &mut Bench, keys: std::ops::Range<u64>) {
        for key in keys {
            let fill = |frame: &mut [u8]| {
                frame[..8].copy_from_slice(&(key << 8 | 1).to_le_bytes());
                Ok(())
            };
            let loaded = shard.get_or_load(key, BLOCK, bench, fill);
            assert_eq!(loaded.expect("a sound loader").len(), BLOCK);
        }
    }

    /// Neither the frame of a kept block, nor memory for one that is too large, nor unwritten room shows earlier
    /// contents.
    #[test]
    fn what_a_loader_leaves_is_zero() {
        let (mut shard, mut bench) = shard(Policy::RawOnly, [1.0, 1.0]);
        let sizes = [BLOCK, shard.segments.slab_bytes() + BLOCK];
        for (size, keys) in sizes.into_iter().zip([0..4000, 4000..4002]) {
            for key in keys {
                let fill = |frame: &mut [u8]| {
                    frame.fill(0xff);
                    Ok(())
                };
                let loaded = shard.get_or_load(key, size, &mut bench, fill);
                assert_eq!(loaded.expect("a sound loader").len(), size);
            }
        }
        for (size, keys) in sizes.into_iter().zip([5000..9000, 9000..9002]) {
            for key in keys {
                let loaded = shard.get_or_load(key, size, &mut bench, |_| Ok(()));
                let block = loaded.expect("a loader that does nothing");
                assert!(block.iter().all(|byte| *byte == 0), "another key's bytes");
            }
        }
        let room = shard.reserve(10_000, BLOCK, 0, &mut bench).expect("room");
        let handle = shard.commit(room, None, &mut bench);
        let block = shard.bytes(handle).expect("a block just committed");
        assert!(block.iter().all(|byte| *byte == 0), "another key's bytes");
    }

    /// The second method compresses the blocks on which the first was tried in vain, and which were dropped. Neither
    /// tries a block twice while it is remembered.
    #[test]
    fn a_method_that_makes_nothing_says_nothing_of_another() {
        let arm = |method| Arm {
            compressed_share: 0.8,
            method,
            admits_once: true,
        };
        let (mut shard, mut bench) = shard(Policy::Static(arm(0)), [1.0, 4.0]);
        for _ in 0..6 {
            load(&mut shard, &mut bench, 0..1500);
        }
        let tried = shard.stats().incompressible;
        assert_eq!(shard.stats().compressed, 0);
        let forms = |shard: &Shard<u64>| {
            let numbers = shard.numbers().into_iter();
            numbers
                .filter(|it| shard.entries.at(*it).packed.is_some())
                .count()
        };
        shard.arm = arm(1);
        for _ in 0..3 {
            load(&mut shard, &mut bench, 0..1500);
        }
        let (packed, blocks) = (forms(&shard), shard.memory().blocks);
        println!("{tried} tried in vain, then {packed} forms of {blocks} blocks");
        assert!((1400..3500).contains(&tried), "9000 loads of 1500 blocks");
        assert!(packed > 600 && blocks > 1400);
    }

    /// The shadow lost its knowledge, and no trial can be afforded.
    #[test]
    fn the_shadow_learns_from_ghosts() {
        let (mut shard, mut bench) = shard(Policy::Adaptive, [1.0, 4.0]);
        load(&mut shard, &mut bench, 0..4000);
        shard.trial_cost = 1e9;
        let capacity = shard.options.budget_bytes;
        shard
            .shadow
            .as_mut()
            .expect("a shadow")
            .reset(1.0, capacity);
        let known = |shard: &mut Shard<u64>, bench: &mut Bench, form: u32, refused: u8| {
            let is_plain = |number: &u32| {
                let entry = shard.entries.at(*number);
                entry.raw.is_some() && entry.packed_bytes == 0 && entry.flags.refused() == 0
            };
            let number = shard.numbers().into_iter().find(is_plain);
            let number = number.expect("a block that was never compressed");
            let entry = shard.entries.at_mut(number);
            let key = entry.key;
            (entry.method, entry.packed_bytes) = (1, form);
            entry.flags.refuse(refused);
            shard.remember(number);
            shard.discard(number);
            load(shard, bench, key..key + 1);
            let (hash, shadow) = (shard.hasher.hash_one(key), shard.shadow.as_ref());
            let shadow = shadow.expect("a shadow");
            assert!(shadow.wants(hash));
            [0, 1].map(|method| !shadow.is_unknown(hash, method))
        };
        assert_eq!(known(&mut shard, &mut bench, 0, 0), [false, false]);
        assert_eq!(known(&mut shard, &mut bench, 1028, 1), [true, true]);
        assert_eq!(known(&mut shard, &mut bench, 1028, 0), [false, true]);
        assert_eq!(known(&mut shard, &mut bench, 0, 1), [true, false]);
    }
}
