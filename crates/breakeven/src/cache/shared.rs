//! The cache for many threads: a thin wrapper over [`Shard`]s.
//!
//! Keys are spread over shards by their hash. Each shard is behind a lock, held to look up, to make room and to put in.
//! No loader runs under it, and no requested block is restored under it. Hits of hot raw blocks, which change nothing,
//! share it ([`Lanes`]). A key is loaded once at a time. A thread that asks for the same key waits for that load and
//! gets its result, its error or its panic too ([`Turn`]). A load is not kept if its key was put in or removed after
//! its start, so no older bytes come back. Blocks are handed out as [`BlockGuard`]s.
//!
//! The budget is divided evenly. It covers the contents of the shards, loads in flight, the bytes of guards outside the
//! slabs, and the codecs' memory up to a quarter of it. After a cut of the budget, only slabs pinned by guards stay
//! above it.
//!
//! A thread that has to make room compresses victims one at a time, without the lock. A segment may leave under the
//! lock only where the budget or a list changes its size. Not here: threads of its own.
#![deny(unsafe_code)]

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::hint::black_box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::KeyHasher;
use super::bench::Bench;
use super::costs::{AccessPrices, MissTime};
use super::evict::{EFFORT_MAX, Leaving};
use super::guard::{BlockGuard, OWN_BYTES, OwnBlock};
use super::lanes::{Alone, Guard, Lanes};
use super::shard::{
    BlockSpec, Handle, Lookup, Policy, Reservation, Shard, ShardMemory, ShardOptions, ShardStats,
};
use super::sync::Mutex;
use super::turn::{End, Ending, Turn, Waits};
use super::write_back::{Dirty, Hook};
use crate::codec::Method;
use crate::error::{Error, Result};
use crate::pool::message_of;

/// The least budget for each further shard.
const SHARD_BYTES_MIN: u64 = 16 << 20;
/// Shards for each processor.
const SHARDS_PER_PROCESSOR: usize = 4;
const SHARDS_MAX: usize = 1024;
/// Slabs that guards may hold of each shard by default.
const GUARD_SLABS_MIN: u64 = 8;
/// The bytes of a load in flight beside its frame.
pub(super) const TURN_BYTES: u64 = 256;

/// How a cache is made.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheOptions {
    /// The most bytes of memory. Default 64 MiB.
    pub budget_bytes: u64,
    /// Bytes of a usual block, which set the slab size: blocks of up to four times as many bytes are sure to be kept.
    /// Default 8 KiB.
    pub block_bytes: usize,
    /// Shards, rounded up to a power of two. `None` for one in 16 MiB of the budget, at most four for each processor,
    /// rounded down, and few enough that guards have eight slabs of each. More shards disturb each other less, and know
    /// less each. Default none.
    pub shard_count: Option<usize>,
    /// Methods that may compress, at most 4. Default lz4:1 and zstd:1.
    pub methods: Vec<Method>,
    /// The split of the memory between raw and compressed blocks. Default adaptive.
    pub policy: Policy,
    /// The cost of seconds. Default: time.
    pub prices: AccessPrices,
    /// The most bytes that guards may pin, with whole slabs for blocks in the cache. Each shard has an even part of it.
    /// None for a quarter of the budget, or eight slabs of each shard if these are more. Default none.
    pub pinned_bytes_max: Option<u64>,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        let ShardOptions {
            budget_bytes,
            methods,
            policy,
            prices,
            ..
        } = ShardOptions::default();
        CacheOptions {
            budget_bytes,
            block_bytes: 8 << 10,
            shard_count: None,
            methods,
            policy,
            prices,
            pinned_bytes_max: None,
        }
    }
}

impl CacheOptions {
    /// Returns the number of shards on a machine with these processors, and the usual size of one.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for numbers out of range, and where guards may not hold one slab of each
    /// shard.
    pub(super) fn layout(&self, processors: usize) -> Result<(usize, ShardOptions)> {
        let asked = self.shard_count;
        if let Some(count) = asked.filter(|count| !(1..=SHARDS_MAX).contains(count)) {
            let reason = format!("{count}, expected 1 to {SHARDS_MAX}");
            return Err(Error::invalid("number of shards", reason));
        }
        let by_processors = processors.saturating_mul(SHARDS_PER_PROCESSOR);
        let shards_max = by_processors.clamp(1, SHARDS_MAX) as u64;
        let by_budget = (self.budget_bytes / SHARD_BYTES_MIN).clamp(1, shards_max);
        let mut count = match asked {
            Some(count) => count.next_power_of_two(),
            None => 1 << by_budget.ilog2(),
        };
        let guarded = self.pinned_bytes_max.unwrap_or(self.budget_bytes / 4);
        loop {
            let sized = ShardOptions::sized(self.budget_bytes / count as u64, self.block_bytes);
            let (each, slab_bytes) = (guarded / count as u64, sized.slab_bytes as u64);
            if count > 1 && asked.is_none() && each < GUARD_SLABS_MIN * slab_bytes {
                count /= 2;
                continue;
            }
            if self.pinned_bytes_max.is_some() && each < slab_bytes {
                let reason = format!("{each} for each of {count} shards, a slab has {slab_bytes}");
                return Err(Error::invalid("bytes that may be pinned", reason));
            }
            return Ok((count, sized));
        }
    }
}

/// Returns the bytes that guards may hold of a shard.
pub(super) fn guard_bytes_max(asked: Option<u64>, shard: &ShardOptions) -> u64 {
    let usual = || (shard.budget_bytes / 4).max(GUARD_SLABS_MIN * shard.slab_bytes as u64);
    asked.unwrap_or_else(usual)
}

/// The counters of a cache, over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CacheStats {
    /// The counters of the shards.
    pub shards: ShardStats,
    /// Where their bytes are.
    pub memory: ShardMemory,
    /// Accesses that waited for another thread's load.
    pub waits: u64,
    /// Loads that were not kept because the block was put in or removed during the load.
    pub overtaken: u64,
    /// Loads that failed or panicked.
    pub failed: u64,
    /// Accesses that found a changed block that is not yet written.
    pub dirty_hits: u64,
    /// Bytes of such blocks; they count as overhead of the shards.
    pub dirty_bytes: u64,
    /// Blocks written back.
    pub written: u64,
    /// Writes that failed or panicked.
    pub write_failures: u64,
}

/// A cache for blocks under keys, to be shared between threads.
///
/// # Cost
///
/// Memory as that of [`Shard`], and for each load in flight 256 bytes. A hit of a raw block takes a lock that two
/// threads share.
///
/// # Panics
///
/// If hashing or comparing a key panics. From then on any call for a key of the same shard panics, except for a hit of
/// a raw block. Its changed blocks are still written when the cache is dropped.
///
/// # Example
///
/// ```
/// use breakeven::cache::{Cache, CacheOptions};
///
/// let cache: Cache<u64> = Cache::new(CacheOptions::default())?;
/// let page = cache.get_or_load(7, 4096, |frame| {
///     frame.fill(b'x');
///     Ok(())
/// })?;
/// assert_eq!(page[0], b'x');
/// assert!(cache.get(&7)?.is_some());
/// # Ok::<(), breakeven::Error>(())
/// ```
pub struct Cache<K: Copy + Eq + Hash, S: BuildHasher + Clone = KeyHasher> {
    pub(super) hasher: S,
    pub(super) slots: Box<[Slot<K, S>]>,
    pub(super) benches: Benches,
    pub(super) waits: Waits,
    /// Held while the budget changes, so that all shards end with the same.
    resizing: Mutex<()>,
    /// The bytes that guards may hold of each shard, if the options gave them.
    guard_bytes_max: Option<u64>,
    /// `None` if blocks are not changed in the cache.
    pub(super) write: Option<Hook<K>>,
}

/// A shard on cache lines of its own.
#[repr(align(128))]
pub(super) struct Slot<K, S> {
    state: Lanes<State<K, S>>,
}

/// The shard comes first, for the sake of its counters.
#[repr(C)]
pub(super) struct State<K, S> {
    pub(super) shard: Shard<K, S>,
    /// The clock for the shadow's time: a bench whose codecs are unused and so have no memory.
    pub(super) timer: Alone<Bench>,
    /// Loads in flight that are still valid.
    pub(super) turns: HashMap<K, Arc<Turn>, S>,
    pub(super) charged: Arc<AtomicU64>,
    /// Blocks that are being changed or written.
    pub(super) claims: HashMap<K, Arc<Turn>, S>,
    /// Blocks that are not yet written; none of them is in the shard.
    pub(super) dirty: HashMap<K, Dirty, S>,
    pub(super) dirty_bytes: u64,
    /// Keys of dirty blocks, each once, in the order of their writing.
    pub(super) order: VecDeque<K>,
    pub(super) stats: SlotStats,
}

/// The counters beside the shard.
#[derive(Clone, Copy, Default)]
pub(super) struct SlotStats {
    waits: u64,
    overtaken: u64,
    failed: u64,
    dirty_hits: u64,
    pub written: u64,
    pub write_failures: u64,
}

/// The result of a lookup.
enum Found {
    Block(BlockGuard),
    Packed(Handle),
    Absent,
}

/// The place that a block is loaded to.
enum Room {
    /// A frame in the cache.
    Frame(Reservation),
    /// Memory outside the cache, which does not keep the block.
    Own(OwnBlock),
}

/// How a loader ended.
type Loaded = std::thread::Result<Result<()>>;

impl<K: Copy + Eq + Hash> Cache<K> {
    /// Makes an empty cache with a hasher of random seed.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for numbers out of range, and where guards may not hold one slab of each
    /// shard.
    pub fn new(options: CacheOptions) -> Result<Cache<K>> {
        Cache::with_hasher(options, KeyHasher::default())
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Cache<K, S> {
    /// Makes an empty cache with this hasher, which should not be guessable if others choose the keys.
    ///
    /// # Errors
    ///
    /// As [`Cache::new`].
    pub fn with_hasher(options: CacheOptions, hasher: S) -> Result<Cache<K, S>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let block_bytes_max = 256 << 20;
        if !(1..=block_bytes_max).contains(&options.block_bytes) {
            let reason = format!("{}, expected 1 to {block_bytes_max}", options.block_bytes);
            return Err(Error::invalid("bytes of a block", reason));
        }
        let (count, sized) = options.layout(processors)?;
        let mut cache = Cache {
            hasher,
            slots: Box::default(),
            benches: Benches::new(processors),
            waits: Waits::default(),
            resizing: Mutex::default(),
            guard_bytes_max: options.pinned_bytes_max.map(|bytes| bytes / count as u64),
            write: None,
        };
        let shard = ShardOptions {
            budget_bytes: options.budget_bytes / count as u64,
            methods: options.methods,
            policy: options.policy,
            prices: options.prices,
            ..sized
        };
        let guards = guard_bytes_max(cache.guard_bytes_max, &shard);
        // Without adapters: each of them would move a slot by way of the stack.
        let mut slots = Vec::with_capacity(count);
        for _ in 0..count {
            let benches = (Arc::clone(&cache.benches.bytes), count as u64);
            let slot = Slot::new(shard.clone(), guards, benches, &cache.hasher)?;
            slots.push(slot);
        }
        cache.slots = slots.into_boxed_slice();
        Ok(cache)
    }

    /// Returns a block; `None` if it is not held.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if guards hold as much as the options allow.
    // Always inline, like all parts of a raw hit. The other paths assemble their result again, so that a guard stays in
    // registers. Returned through memory, it is copied 16 bytes at once after it was written by eight. That copy waits
    // for all earlier work, even for the cache misses of the last block's reader. A byte anywhere of a page took 137 ns
    // in place of 94.
    #[inline(always)]
    pub fn get(&self, key: &K) -> Result<Option<BlockGuard>> {
        let hash = self.hasher.hash_one(key);
        let slot = self.slot(hash);
        if let Some(mut entered) = slot.state.enter() {
            let (state, right) = entered.parts();
            if let Some(bytes) = state.shard.find_hot(hash, key, right.lane()) {
                return Ok(Some(BlockGuard::lent(bytes.lend(right))));
            }
        }
        match self.get_other(slot, hash, key) {
            Ok(Some(block)) => Ok(Some(block.anew())),
            Ok(None) => Ok(None),
            Err(error) => Err(black_box(error)),
        }
    }

    /// Returns a block that is not a plain raw hit.
    #[cold]
    fn get_other(&self, slot: &Slot<K, S>, hash: u64, key: &K) -> Result<Option<BlockGuard>> {
        let mut state = slot.lock();
        match state.look_up(hash, key)? {
            Found::Block(block) => Ok(Some(block)),
            Found::Packed(handle) => self.restore(slot, state, handle),
            Found::Absent => Ok(None),
        }
    }

    /// Returns a block; if it is not held, `load` fills its bytes. `block` is its length, or a [`BlockSpec`] if the
    /// caller distinguishes kinds of data.
    ///
    /// The bytes are zeros at first, and those that the loader does not fill, as after a short read, stay zeros. A
    /// block that is held, or that another thread is loading, has its own length, and `block` is ignored.
    ///
    /// One thread loads a key at a time; the others that ask for it wait. The loader holds no lock and may use the
    /// cache. If its key is put in or removed during the load, the loaded block is handed out and not kept. The waiting
    /// threads then ask again at once.
    ///
    /// # Errors
    ///
    /// The loader's error, for all threads that wait for it as well; these get [`Error::Panicked`] if it panicked.
    /// [`Error::Limit`] as [`Cache::get`], and for a block that is not kept and larger than guards may hold.
    /// [`Error::Invalid`] if waiting for a load of the key would never end, because that load waits for this thread,
    /// directly or through others. Threads that a loader starts and waits for itself are not detected.
    ///
    /// # Panics
    ///
    /// If `load` does; no block is then held.
    #[inline(always)]
    pub fn get_or_load(
        &self,
        key: K,
        block: impl Into<BlockSpec>,
        load: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<BlockGuard> {
        let hash = self.hasher.hash_one(key);
        let slot = self.slot(hash);
        if let Some(mut entered) = slot.state.enter() {
            let (state, right) = entered.parts();
            if let Some(bytes) = state.shard.find_hot(hash, &key, right.lane()) {
                return Ok(BlockGuard::lent(bytes.lend(right)));
            }
        }
        match self.get_other_or_load(slot, (hash, key), block.into(), load) {
            Ok(block) => Ok(block.anew()),
            Err(error) => Err(black_box(error)),
        }
    }

    /// Returns or loads a block that is not a plain raw hit.
    #[inline(never)]
    fn get_other_or_load(
        &self,
        slot: &Slot<K, S>,
        (hash, key): (u64, K),
        block: BlockSpec,
        load: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<BlockGuard> {
        let mut state = slot.lock();
        let mut segments_left = EFFORT_MAX;
        loop {
            match state.look_up(hash, &key)? {
                Found::Block(block) => return Ok(block),
                Found::Packed(handle) => match self.restore(slot, state, handle)? {
                    Some(block) => return Ok(block),
                    None => {
                        state = slot.lock();
                        continue;
                    }
                },
                Found::Absent => {}
            }
            let Some(turn) = state.turns.get(&key).map(Arc::clone) else {
                let leaving = match segments_left {
                    0 => None,
                    _ => state.leaving_for(hash, block.raw_bytes),
                };
                if let Some(leaving) = leaving {
                    // Others may have loaded the block by now.
                    state = self.benches.with(|bench| slot.leave(state, leaving, bench));
                    segments_left -= 1;
                    continue;
                }
                let room = self.make_room(&mut state, key, block)?;
                return self.load(slot, state, key, room, load);
            };
            state.stats.waits += 1;
            drop(state);
            match self.waits.wait(&turn)? {
                End::Look => {}
                End::Passed(block) => return Ok(BlockGuard::own(block)),
                End::Failed(error) => return Err(error.duplicate()),
            }
            state = slot.lock();
        }
    }

    /// Puts in a block that is already in the store, in place of the block under its key; returns whether it is held.
    /// If the old one is dirty, the new one is too, so that the last insertion is also the last write.
    ///
    /// # Errors
    ///
    /// None, except in a cache that writes back: there as [`Cache::get_mut`].
    pub fn insert(&self, key: K, bytes: &[u8], class: u8) -> Result<bool> {
        if self.write.is_some() {
            return self.insert_claimed(key, bytes, class);
        }
        let hash = self.hasher.hash_one(key);
        let mut state = self.lock_with_room(hash, bytes.len());
        Ok(self.insert_at(&mut state, key, bytes, class))
    }

    /// Takes a block out, after it was written if it is dirty; returns whether it was held.
    ///
    /// # Errors
    ///
    /// None except in a cache that writes back. There it is the hook's error, and the block stays, until it can be
    /// written or [`Cache::forget`] gives it up.
    pub fn remove(&self, key: &K) -> Result<bool> {
        if self.write.is_some() {
            return self.remove_claimed(key);
        }
        let hash = self.hasher.hash_one(key);
        let mut state = self.slot(hash).lock();
        Ok(state.remove(hash, key))
    }

    /// Changes the budget at once: blocks over it are compressed or dropped. Pinned slabs stay until their guards are
    /// gone and their shard makes room again. Dirty blocks stay until they are written, which is tried at once if they
    /// exceed the new budget.
    ///
    /// # Errors
    ///
    /// The hook's; the budget has changed all the same.
    ///
    /// # Cost
    ///
    /// Ghosts and shadows start again.
    pub fn set_budget(&self, bytes: u64) -> Result<()> {
        let each = bytes / self.slots.len() as u64;
        let mut is_dirty = false;
        let one_at_a_time = self.resizing.lock();
        for slot in &self.slots {
            let mut state = slot.lock();
            self.benches
                .with(|bench| state.shard.set_budget(each, bench));
            state.shard.guard_bytes_max =
                guard_bytes_max(self.guard_bytes_max, &state.shard.options);
            // Loans were counted under the old cap.
            state.shard.segments.count_lent();
            is_dirty |= state.has_too_many_dirty();
        }
        drop(one_at_a_time);
        match is_dirty {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Returns the counters so far, and the bytes by place. Shards are read one after another.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        for slot in &self.slots {
            let state = slot.lock();
            stats.shards.add(state.shard.stats());
            stats.memory.add(&state.shard.memory());
            stats.waits += state.stats.waits;
            stats.overtaken += state.stats.overtaken;
            stats.failed += state.stats.failed;
            stats.dirty_hits += state.stats.dirty_hits;
            stats.written += state.stats.written;
            stats.write_failures += state.stats.write_failures;
            stats.dirty_bytes += state.dirty_bytes;
        }
        stats
    }

    pub(super) fn slot(&self, hash: u64) -> &Slot<K, S> {
        // These are not the bits by which ghosts, tables and the shadow's groups find their places. They are mixed, for
        // hashers that return the key unchanged.
        let mixed = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let index = (mixed >> 32) as usize & (self.slots.len() - 1);
        &self.slots[index]
    }

    /// Takes the lock of a shard after making room for a block of this key, or at least some.
    pub(super) fn lock_with_room(&self, hash: u64, bytes: usize) -> Guard<'_, State<K, S>> {
        let slot = self.slot(hash);
        let mut state = slot.lock();
        for _ in 0..EFFORT_MAX {
            let Some(leaving) = state.leaving_for(hash, bytes) else {
                break;
            };
            state = self.benches.with(|bench| slot.leave(state, leaving, bench));
        }
        state
    }

    /// Puts a block into its shard.
    pub(super) fn insert_at(
        &self,
        state: &mut State<K, S>,
        key: K,
        bytes: &[u8],
        class: u8,
    ) -> bool {
        state.overtake(&key);
        self.benches
            .with(|bench| state.shard.insert(key, bytes, class, bench))
    }

    /// Restores a compressed block without the lock; `None` if it was damaged.
    fn restore<'a>(
        &'a self,
        slot: &'a Slot<K, S>,
        mut state: Guard<'a, State<K, S>>,
        handle: Handle,
    ) -> Result<Option<BlockGuard>> {
        self.benches.with(|bench| {
            let restoring = state.shard.begin_restore(handle, bench);
            let mut block = state.own(restoring.raw_bytes, bench)?;
            drop(state);
            let ran = restoring.run(&mut block.bytes, bench);
            let mut state = slot.lock();
            for _ in 0..EFFORT_MAX {
                let Some(leaving) = state.shard.leaving_for_promotion(&restoring) else {
                    break;
                };
                state = slot.leave(state, leaving, bench);
            }
            let shard = &mut state.shard;
            shard.end_restore(restoring, &block.bytes, &ran, bench);
            let is_sound = ran.time.is_ok();
            Ok(is_sound.then(|| BlockGuard::own(Arc::new(block))))
        })
    }

    /// Makes room for a block to be loaded, and charges its turn.
    fn make_room(
        &self,
        state: &mut State<K, S>,
        key: K,
        BlockSpec { raw_bytes, class }: BlockSpec,
    ) -> Result<Room> {
        state.shard.list_bytes += TURN_BYTES;
        self.benches.with(|bench| {
            let shard = &mut state.shard;
            let Some(reservation) = shard.reserve(key, raw_bytes, class, bench) else {
                let block = state.own(raw_bytes, bench);
                if block.is_err() {
                    state.shard.list_bytes -= TURN_BYTES;
                }
                return block.map(Room::Own);
            };
            Ok(Room::Frame(reservation))
        })
    }

    /// Loads a block as the holder of its turn.
    fn load<'a>(
        &'a self,
        slot: &'a Slot<K, S>,
        mut state: Guard<'a, State<K, S>>,
        key: K,
        mut room: Room,
        load: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<BlockGuard> {
        let turn = Turn::begin();
        let ending = Ending::failed(Arc::clone(&turn));
        state.turns.insert(key, Arc::clone(&turn));
        let begun = state.timer.get().begin_load();
        drop(state);
        let loaded = catch_unwind(AssertUnwindSafe(|| load(room.bytes_mut())));
        let time = begun.end();
        let mut state = slot.lock();
        state.shard.list_bytes -= TURN_BYTES;
        let is_current = state.end_turn(&key, &turn);
        let loaded = match loaded {
            Ok(Ok(())) => Ok(self.benches.with(|bench| match is_current {
                true => state.keep(room, &time, bench),
                false => state.hand_through(room, &time, bench),
            })),
            fault => {
                state.give_up(room);
                Err(fault)
            }
        };
        drop(state);
        match loaded {
            Ok((block, end)) => {
                ending.turn.end(end);
                block
            }
            Err(fault) => fail(&ending, fault),
        }
    }
}

/// Reports a failed load to all waiting threads, and to its own.
fn fail(ending: &Ending, fault: Loaded) -> Result<BlockGuard> {
    let tell = |error: &Error| ending.turn.end(End::Failed(Arc::new(error.duplicate())));
    match fault {
        Ok(result) => {
            let error = result.expect_err("a load that failed");
            tell(&error);
            Err(error)
        }
        Err(panic) => {
            tell(&panicked(panic.as_ref()));
            resume_unwind(panic)
        }
    }
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    Error::Panicked {
        what: "a loader of the cache",
        message: message_of(panic),
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> fmt::Debug for Cache<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({} shards)", self.slots.len())
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Slot<K, S> {
    fn new(
        options: ShardOptions,
        guard_bytes_max: u64,
        benches: (Arc<AtomicU64>, u64),
        hasher: &S,
    ) -> Result<Slot<K, S>> {
        let mut shard = Shard::with_hasher(options, hasher.clone())?;
        shard.guard_bytes_max = guard_bytes_max;
        shard.benches = benches;
        Ok(Slot {
            state: Lanes::new(State {
                charged: Arc::clone(&shard.charged),
                shard,
                timer: Alone::new(Bench::new()),
                turns: HashMap::with_hasher(hasher.clone()),
                claims: HashMap::with_hasher(hasher.clone()),
                dirty: HashMap::with_hasher(hasher.clone()),
                dirty_bytes: 0,
                order: VecDeque::new(),
                stats: SlotStats::default(),
            }),
        })
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Slot<K, S> {
    /// Waits for the whole lock of the shard.
    pub(super) fn lock(&self) -> Guard<'_, State<K, S>> {
        let mut state = self.state.lock();
        state.shard.count_hits();
        state
    }

    pub(super) fn lock_even_poisoned(&self) -> Guard<'_, State<K, S>> {
        self.state.lock_even_poisoned()
    }

    /// Returns whether a thread panicked under the lock; for its holder the answer does not change.
    pub(super) fn is_poisoned(&self) -> bool {
        self.state.is_poisoned()
    }

    /// Frees a segment; its victims are compressed without the lock.
    fn leave<'a>(
        &'a self,
        mut state: Guard<'a, State<K, S>>,
        mut leaving: Leaving,
        bench: &mut Bench,
    ) -> Guard<'a, State<K, S>> {
        while let Some(packing) = state.shard.next_packing(&mut leaving) {
            drop(state);
            let made = packing.run(bench);
            state = self.lock();
            state.shard.end_packing(&leaving, packing, made, bench);
            while let Some(straggler) = state.shard.next_straggler(bench) {
                drop(state);
                let (block, ran) = straggler.run_on_bench(bench);
                state = self.lock();
                state.shard.end_straggler(straggler, block, &ran, bench);
            }
        }
        state.shard.end_leaving(leaving);
        state
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> State<K, S> {
    fn look_up(&mut self, hash: u64, key: &K) -> Result<Found> {
        if !self.dirty.is_empty()
            && let Some(dirty) = self.dirty.get(key)
        {
            self.stats.dirty_hits += 1;
            return Ok(Found::Block(dirty.guard()));
        }
        Ok(
            match self.shard.lookup_hashed(hash, key, self.timer.get()) {
                Lookup::Raw(handle) => Found::Block(BlockGuard::lent(self.shard.lend(handle)?)),
                Lookup::Packed(handle) => Found::Packed(handle),
                Lookup::Absent => Found::Absent,
            },
        )
    }

    /// Begins to free a segment for a block that is not held, if that involves compressing.
    fn leaving_for(&mut self, hash: u64, bytes: usize) -> Option<Leaving> {
        let queue = self.shard.queue_for(hash);
        self.shard.leaving_for(queue, bytes)
    }

    /// Makes a block outside the slabs.
    ///
    /// # Errors
    ///
    /// As [`Shard::charge`], and [`Error::Limit`] for more than there is memory.
    pub(super) fn own(&mut self, bytes: usize, bench: &mut Bench) -> Result<OwnBlock> {
        let limit = |limit_bytes| Error::Limit {
            what: "memory for a block",
            limit_bytes,
            needed_bytes: bytes as u64,
        };
        // The length may come from a medium, and without a cap this is the only bound.
        let mut memory = Vec::new();
        let is_there = memory.try_reserve_exact(bytes);
        is_there.map_err(|_| limit(self.shard.guard_bytes_max.min(isize::MAX as u64)))?;
        self.shard.charge(bytes as u64 + OWN_BYTES, bench)?;
        memory.resize(bytes, 0);
        Ok(OwnBlock::charged(memory, &self.charged))
    }

    /// Returns whether a dirty block must be written before another becomes one. The limit is half of the bytes that
    /// guards may hold, and at most a quarter of the budget.
    pub(super) fn has_too_many_dirty(&self) -> bool {
        let own = self.dirty.len() as u64 * OWN_BYTES;
        let most = self.shard.options.budget_bytes / 2;
        let most = self.shard.guard_bytes_max.min(most) / 2;
        self.dirty_bytes + own > most
    }

    /// Returns the class of a block, if it is held.
    pub(super) fn class_of(&self, hash: u64, key: &K) -> Option<u8> {
        let dirty = self.dirty.get(key).map(|dirty| dirty.class);
        dirty.or_else(|| self.shard.class_of(hash, key))
    }

    /// Takes a block out that is not dirty.
    pub(super) fn remove(&mut self, hash: u64, key: &K) -> bool {
        self.overtake(key);
        self.shard.remove_hashed(hash, key)
    }

    /// Marks a load under a key so that its block is not kept. The waiting threads look again at once: the result of
    /// that load is no longer theirs.
    pub(super) fn overtake(&mut self, key: &K) {
        if !self.turns.is_empty()
            && let Some(turn) = self.turns.remove(key)
        {
            turn.end(End::Look);
        }
    }

    /// Takes a turn out; returns whether its load is still valid.
    fn end_turn(&mut self, key: &K, turn: &Arc<Turn>) -> bool {
        let is_current = self.turns.get(key).is_some_and(|it| Arc::ptr_eq(it, turn));
        if is_current {
            self.turns.remove(key);
        }
        is_current
    }

    /// Makes a loaded block known.
    fn keep(
        &mut self,
        room: Room,
        time: &MissTime,
        bench: &mut Bench,
    ) -> (Result<BlockGuard>, End) {
        match room {
            Room::Frame(reservation) => {
                let handle = self.shard.commit(reservation, Some(time), bench);
                let block = self.shard.lend(handle).map(BlockGuard::lent);
                (block, End::Look)
            }
            Room::Own(block) => {
                self.shard.passed_through(time);
                let block = Arc::new(block);
                (Ok(BlockGuard::own(Arc::clone(&block))), End::Passed(block))
            }
        }
    }

    /// Hands a loaded block to its loader alone, because it may be out of date.
    fn hand_through(
        &mut self,
        room: Room,
        time: &MissTime,
        bench: &mut Bench,
    ) -> (Result<BlockGuard>, End) {
        self.stats.overtaken += 1;
        self.shard.missed(time);
        let block = match room {
            Room::Own(block) => Ok(block),
            Room::Frame(mut reservation) => {
                let frame = reservation.frame_mut();
                let block = self.own(frame.len(), bench).map(|mut block| {
                    block.bytes.copy_from_slice(frame);
                    block
                });
                self.shard.abandon(reservation);
                block
            }
        };
        (block.map(|it| BlockGuard::own(Arc::new(it))), End::Look)
    }

    fn give_up(&mut self, room: Room) {
        self.stats.failed += 1;
        if let Room::Frame(reservation) = room {
            self.shard.abandon(reservation);
        }
    }
}

impl Room {
    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Room::Frame(reservation) => reservation.frame_mut(),
            Room::Own(block) => &mut block.bytes,
        }
    }
}

/// Benches for the threads at work, never more than threads that work at once.
pub(super) struct Benches {
    idle: std::sync::Mutex<Vec<Bench>>,
    idle_max: usize,
    /// The bytes of all of them.
    bytes: Arc<AtomicU64>,
}

impl Benches {
    fn new(idle_max: usize) -> Benches {
        Benches {
            idle: std::sync::Mutex::default(),
            idle_max,
            bytes: Arc::default(),
        }
    }

    /// Does something with a bench.
    pub fn with<T>(&self, work: impl FnOnce(&mut Bench) -> T) -> T {
        let idle = || self.idle.lock().expect("nothing panics under this lock");
        let taken = idle().pop();
        let mut bench = taken.unwrap_or_default();
        let before = bench.heap_bytes() as u64;
        let result = work(&mut bench);
        let after = bench.heap_bytes() as u64;
        if after != before {
            self.bytes
                .fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
        let mut idle = idle();
        if idle.len() < self.idle_max {
            idle.push(bench);
        } else {
            self.bytes.fetch_sub(after, Ordering::Relaxed);
        }
        result
    }
}
