//! The place of small objects: values under keys in memory, as memcached has them.
//!
//! [`Objects`] is shards with a lock each. A shard has an index of some fourteen bytes a key, and a log of segments.
//! There, items lie one behind the other, with eight bytes before each (`item.rs` has the bytes). New items go to the
//! front. When memory is short, segments are emptied a few items at a time by S3-FIFO (`evict.rs`). The storing thread
//! does this, or a thread of the caller that calls [`Objects::maintain`].
//!
//! Values are stored raw first, and encoded when they leave the fresh queue (`recode.rs`), each by the form of its
//! class (`class.rs`, `form.rs`). A thread of the caller that calls [`Objects::tune`] learns the form, perhaps with a
//! dictionary (`coding.rs`). The worth of memory decides: an item in the place of the saved bytes would spare misses,
//! if there are requests (`demand.rs`). [`Objects::classes`] and [`Objects::ledger`] report the choice and its
//! earnings.
//!
//! Promises:
//!
//! - A value is the one last stored under exactly this key, or there is none.
//! - An item is gone at the second set for it.
//! - CAS rises with each change of an item.
//! - Slabs, indexes and books together stay within [`ObjectsOptions::memory_bytes`], except while a trained dictionary
//!   is added.
//! - A request that finds memory short looks at a bounded number of items: at most those of one segment, when nothing
//!   else helps.
//!
//! Every call is complete when it returns. Values may one day lie farther away than memory. A call that begins a fetch
//! would then stand beside [`Objects::fetch`], and return its result or a ticket to wait for. The present calls do not
//! wait, so they would not change.
//!
//! Not here: clocks ([`Now`] is the caller's), threads, sockets, protocols.
#![deny(unsafe_code)]

mod books;
mod class;
mod coding;
mod demand;
mod evict;
mod form;
mod index;
mod item;
mod log;
mod predict;
mod recode;
mod request;
mod shard;
mod space;

#[cfg(test)]
mod model_test;

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::quality::FixedState;

use crate::error::{Error, Result};

use crate::decide::Ledger;
use crate::decide::ledger::Costs;
use crate::units::Seconds;

use coding::{Coding, Tally};
use evict::{Duty, Progress};
use log::CasCounter;
use shard::{Key, NoRoom, Shard};
use space::Space;

pub use books::{CLASS_FIELDS, ClassStats};
pub use item::KEY_BYTES_MAX;
pub use predict::{ClassForecast, Forecast, Prospect, Sampled, predict};
pub use request::{
    Count, CountOutcome, Delete, DeleteOutcome, Fetch, ItemRef, Now, ObjectsStats, Store,
    StoreMode, StoreOutcome, TouchOutcome, Win,
};

/// The least and the most bytes of a slab. A small one wastes its end on long values, a large one the rest of the
/// segment being filled.
const SLAB_BYTES: std::ops::RangeInclusive<usize> = (16 << 10)..=log::SLAB_BYTES_MAX;
/// The least slabs of a shard: some are always being filled, one for each queue and time of life.
const SHARD_SLABS_MIN: u64 = 32;
/// The least slabs of all shards together, unless they would be too small. Some four of each shard are half empty: 6 %
/// of 32, and 2 % of the 128 of a server's shard.
const SLABS_MIN: u64 = 2048;
/// The least memory: one shard of the smallest slabs.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Items that a request looks at when memory is short. One new item displaces one or two of its length, and some of the
/// candidates stay.
const ITEMS_A_REQUEST: usize = 8;
/// Rounds over the shards after which a request finds that no room can be made.
const ROUNDS_MAX: usize = 4;

/// How objects are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectsOptions {
    /// The most bytes held: slabs, indexes, books. At least 1 MiB. Default: 64 MiB.
    pub memory_bytes: u64,
    /// The longest item, counted as memcached counts it. At most half the memory. Default: 1 MiB.
    pub item_bytes_max: usize,
    /// The number of shards as a power of two; fewer are made where memory is small. Default: 6, for 64 shards.
    pub shards_log2: u8,
    /// Whether items may be dropped before their end. Default true.
    pub evict: bool,
    /// The seed of key hashing: choose it at random if others choose the keys. Default 0.
    pub seed: u64,
    /// The CAS above which items are numbered, rounded down to a multiple of the shards. Give each process another one,
    /// so that a client's CAS from before a restart never names another value. Below 2^62. Default 0.
    pub cas_after: u64,
    /// Whether values are encoded as they age. Default true.
    pub encode: bool,
    /// The most bytes of dictionaries, their prepared forms and samples; 0 for no dictionaries. Default: 2 % of the
    /// memory.
    pub dictionary_bytes_max: Option<u64>,
    /// The client's cost of a miss, in microseconds. The worth of memory follows from it. Default 1,000.
    pub miss_microseconds: u32,
}

impl Default for ObjectsOptions {
    fn default() -> ObjectsOptions {
        ObjectsOptions {
            memory_bytes: 64 << 20,
            item_bytes_max: 1 << 20,
            shards_log2: 6,
            evict: true,
            seed: 0,
            cas_after: 0,
            encode: true,
            dictionary_bytes_max: None,
            miss_microseconds: 1000,
        }
    }
}

/// How a key is hashed.
#[derive(Clone)]
struct Hasher {
    state: FixedState,
    /// Fewer bits make keys of one hash, for tests.
    mask: u64,
}

impl Hasher {
    fn of(&self, key: &[u8]) -> u64 {
        self.state.hash_one(key) & self.mask
    }
}

/// Values under keys, for many threads.
///
/// # Example
/// ```
/// use breakeven::objects::{Now, Objects, ObjectsOptions, Store, StoreMode};
///
/// let objects = Objects::new(ObjectsOptions::default())?;
/// let now = Now { seconds: 1 };
/// objects.store(&Store::new(StoreMode::Set, b"key", b"value"), now);
/// assert_eq!(objects.get(b"key", now, |item| item.value.to_vec()), Some(b"value".to_vec()));
/// # Ok::<(), breakeven::Error>(())
/// ```
///
/// # Cost
/// Some 14 bytes of index a key, and 8 bytes of header beside key and value. 4 more where the item expires, 4 where it
/// has flags. One short lock a call.
pub struct Objects {
    shards: Box<[Mutex<Shard>]>,
    space: Arc<Space>,
    hasher: Hasher,
    item_bytes_max: usize,
    evicts: AtomicBool,
    coding: Option<Arc<Coding>>,
    /// The next shard to make room for others.
    turn: AtomicUsize,
}

impl Objects {
    /// Makes an empty store.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an option is out of range.
    pub fn new(options: ObjectsOptions) -> Result<Objects> {
        Objects::with_hash_bits(options, 64)
    }

    fn with_hash_bits(options: ObjectsOptions, hash_bits: u32) -> Result<Objects> {
        let memory_bytes = options.memory_bytes;
        if memory_bytes < MEMORY_BYTES_MIN {
            let reason =
                format!("{memory_bytes} bytes, where at least {MEMORY_BYTES_MIN} are needed");
            return Err(Error::invalid("memory of objects", reason));
        }
        let item_bytes_most = (memory_bytes / 2).min(1 << 30);
        if !(1024..=item_bytes_most).contains(&(options.item_bytes_max as u64)) {
            let reason = format!(
                "{} bytes, where 1024 to {item_bytes_most} are accepted",
                options.item_bytes_max
            );
            return Err(Error::invalid("longest item", reason));
        }
        if options.shards_log2 > 12 {
            let reason = format!("2^{}, where at most 2^12 are accepted", options.shards_log2);
            return Err(Error::invalid("number of shards", reason));
        }
        if options.cas_after >= 1 << 62 {
            let reason = format!("{}, where less than 2^62 is accepted", options.cas_after);
            return Err(Error::invalid("first CAS", reason));
        }
        let shards_most = memory_bytes / (SHARD_SLABS_MIN * *SLAB_BYTES.start() as u64);
        let shards_log2 = u32::from(options.shards_log2).min(shards_most.max(1).ilog2());
        let slabs_wanted = (SHARD_SLABS_MIN << shards_log2).max(SLABS_MIN);
        let slab_bytes = 1_usize << (memory_bytes / slabs_wanted).ilog2();
        let slab_bytes = slab_bytes.clamp(*SLAB_BYTES.start(), *SLAB_BYTES.end());
        let space = Space::new(memory_bytes, slab_bytes, 1 << shards_log2)?;
        let hasher = Hasher {
            state: FixedState::with_seed(options.seed),
            mask: u64::MAX >> (64 - hash_bits),
        };
        let coding = options.encode.then(|| {
            let dictionary_bytes = options
                .dictionary_bytes_max
                .unwrap_or_else(|| Coding::dictionary_bytes(memory_bytes));
            let miss = Seconds(f64::from(options.miss_microseconds) / 1e6);
            Coding::new(dictionary_bytes.min(memory_bytes / 2), miss)
        });
        let coding = coding.transpose()?.map(Arc::new);
        let shard = |number: u64| {
            Mutex::new(Shard::new(
                Arc::clone(&space),
                options.item_bytes_max,
                hasher.clone(),
                coding.clone(),
                CasCounter::new(options.cas_after, number, shards_log2),
            ))
        };
        Ok(Objects {
            shards: (0..1 << shards_log2).map(shard).collect(),
            space,
            hasher,
            item_bytes_max: options.item_bytes_max,
            evicts: AtomicBool::new(options.evict),
            coding,
            turn: AtomicUsize::new(0),
        })
    }

    /// Hands the item of a key to a function, while its shard is locked; `None` if there is none.
    ///
    /// The function must not call this store.
    pub fn get<R>(&self, key: &[u8], now: Now, look: impl FnOnce(ItemRef<'_>) -> R) -> Option<R> {
        self.fetch(key, &Fetch::default(), now, look)
    }

    /// Adds the value of a key to `target`, and returns its flags and CAS.
    pub fn get_into(&self, key: &[u8], now: Now, target: &mut Vec<u8>) -> Option<(u32, u64)> {
        self.get(key, now, |item| {
            target.extend_from_slice(item.value);
            (item.flags, item.cas)
        })
    }

    /// Hands the items of many keys to a function, in the order of the keys, each with the number of its key.
    pub fn get_many(
        &self,
        keys: &[&[u8]],
        now: Now,
        mut look: impl FnMut(usize, Option<ItemRef<'_>>),
    ) {
        let mut held: Option<(usize, MutexGuard<'_, Shard>)> = None;
        for (number, key) in keys.iter().enumerate() {
            let Some(key) = self.key(key) else {
                look(number, None);
                continue;
            };
            let at = self.shard_of(key.hash);
            let mut shard = match held.take() {
                Some((shard, guard)) if shard == at => guard,
                // The previous lock is released first: no thread holds two.
                other => {
                    drop(other);
                    self.lock(at, now)
                }
            };
            let mut is_there = false;
            let seen = shard.fetch(key, &Fetch::default(), now.seconds, |item| {
                is_there = true;
                look(number, Some(item));
            });
            assert!(seen.is_ok(), "a fetch that changes nothing wants no room");
            if !is_there {
                look(number, None);
            }
            held = Some((at, shard));
        }
    }

    /// As [`Objects::get`], with the changes that the fetch requests.
    pub fn fetch<R>(
        &self,
        key: &[u8],
        fetch: &Fetch,
        now: Now,
        look: impl FnOnce(ItemRef<'_>) -> R,
    ) -> Option<R> {
        let key = self.key(key)?;
        let mut look = Some(look);
        let mut found = |fetch: &Fetch| {
            self.with_room(key, now, |shard| {
                shard.fetch(key, fetch, now.seconds, |item| {
                    let look = look.take().expect("an item is seen once");
                    look(item)
                })
            })
        };
        let untouched = || Fetch {
            touch: None,
            ..*fetch
        };
        found(fetch)
            .or_else(|NoRoom| found(&untouched()))
            .unwrap_or_default()
    }

    /// Sets the end of an item.
    pub fn touch(&self, key: &[u8], expires: Option<u32>, now: Now) -> TouchOutcome {
        let Some(key) = self.key(key) else {
            return TouchOutcome::NotFound;
        };
        let fetch = Fetch {
            touch: Some(expires),
            without_value: true,
            ..Fetch::default()
        };
        let found = self.with_room(key, now, |shard| {
            shard.fetch(key, &fetch, now.seconds, |_| ())
        });
        match found {
            Ok(Some(())) => TouchOutcome::Touched,
            Ok(None) => TouchOutcome::NotFound,
            Err(NoRoom) => TouchOutcome::OutOfMemory,
        }
    }

    /// Sets the end of an item and hands it to a function; `None` if there is none. If there is no room for an end in
    /// an item without one, the item keeps none.
    pub fn get_and_touch<R>(
        &self,
        key: &[u8],
        expires: Option<u32>,
        now: Now,
        look: impl FnOnce(ItemRef<'_>) -> R,
    ) -> Option<R> {
        let fetch = Fetch {
            touch: Some(expires),
            ..Fetch::default()
        };
        self.fetch(key, &fetch, now, look)
    }

    /// Stores a value.
    pub fn store(&self, store: &Store<'_>, now: Now) -> StoreOutcome {
        let Some(key) = self.key(store.key) else {
            return StoreOutcome::TooLarge;
        };
        let outcome = self.with_room(key, now, |shard| shard.store(store, key, now.seconds));
        outcome.unwrap_or_else(|NoRoom| {
            if store.mode == StoreMode::Set {
                // A missing item is better than the old one, which the request replaces.
                self.delete(store.key, &Delete::default(), now);
            }
            StoreOutcome::OutOfMemory
        })
    }

    /// Returns whether an item of this size would be refused, before its value arrives.
    pub fn is_too_large(&self, key_bytes: usize, value_bytes: usize, flags: u32) -> bool {
        shard::is_too_large(key_bytes, value_bytes, flags, self.item_bytes_max)
    }

    /// Deletes an item, or marks it stale.
    pub fn delete(&self, key: &[u8], delete: &Delete, now: Now) -> DeleteOutcome {
        let Some(key) = self.key(key) else {
            return DeleteOutcome::NotFound;
        };
        let outcome = self.with_room(key, now, |shard| shard.delete(key, delete, now.seconds));
        // Without room for the mark, the item goes: a stale item may be absent.
        outcome.unwrap_or_else(|NoRoom| {
            self.delete(
                key.bytes,
                &Delete {
                    marks_stale: false,
                    ..*delete
                },
                now,
            )
        })
    }

    /// Changes a decimal number.
    pub fn count(&self, key: &[u8], count: &Count, now: Now) -> CountOutcome {
        let Some(key) = self.key(key) else {
            return CountOutcome::NotFound;
        };
        let outcome = self.with_room(key, now, |shard| shard.count(key, count, now.seconds));
        outcome.unwrap_or(CountOutcome::OutOfMemory)
    }

    /// Drops at second `at` all items that are stored before it; at once if that second is not in the future.
    pub fn flush_all(&self, at: u32, now: Now) {
        (0..self.shards.len()).for_each(|shard| self.lock(shard, now).flush_at(at, now.seconds));
    }

    /// Shows every item of one shard to a function, with its key but without its value, and counts no access. The last
    /// shard is [`Objects::shard_count`] less one.
    pub fn visit(&self, shard: usize, now: Now, look: impl FnMut(&[u8], ItemRef<'_>)) {
        self.lock(shard, now).visit(now.seconds, look);
    }

    /// Returns the number of shards.
    pub fn shard_count(&self) -> usize {
        self.shards.len()
    }

    /// Does the due work of up to `items` items in each shard. Expired items go, and room is made where it is short.
    /// Returns whether more is due.
    pub fn maintain(&self, items: usize, now: Now) -> bool {
        let mut is_more = false;
        for at in 0..self.shards.len() {
            let mut shard = self.lock(at, now);
            shard.follow();
            is_more |= match self.is_tight() {
                true => shard.work(self.duty(items, now)) == Progress::More,
                false => shard.expire_segment(now.seconds).is_some(),
            };
        }
        is_more
    }

    /// Learns the best encoding of classes of values, from values that reached the end of the fresh queue. Trains a
    /// dictionary or measures one class, off the request path. Call it some times a second from a thread of low
    /// priority. Returns whether more is due.
    ///
    /// # Errors
    /// Errors of compressing.
    ///
    /// # Cost
    /// A training takes some tenths of a second of one core, a measurement some milliseconds. Shards are locked for
    /// moments.
    pub fn tune(&self, now: Now) -> Result<bool> {
        let Some(coding) = &self.coding else {
            return Ok(false);
        };
        let is_more = coding.tune(&self.space, &self.tally(), self.evicts.load(Relaxed))?;
        self.give_way(now);
        Ok(is_more)
    }

    /// Makes room where more is held than allowed.
    fn give_way(&self, now: Now) {
        for _ in 0..ROUNDS_MAX * self.shards.len() * SHARD_SLABS_MIN as usize {
            let duty = self.duty(usize::MAX, now);
            if self.space.slabs_left() >= 0 || !self.make_room(duty) {
                break;
            }
        }
    }

    /// Switches learning from values on or off, on at first. Earlier learning stays in use.
    pub fn set_learning(&self, is_learning: bool) {
        if let Some(coding) = &self.coding {
            coding.set_learning(is_learning);
        }
    }

    fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for shard in &self.shards {
            let shard = lock(shard);
            let counts = &shard.books.classes;
            if tally.classes.len() < counts.len() {
                tally.classes.resize(counts.len(), Default::default());
            }
            for (sum, counts) in tally.classes.iter_mut().zip(counts) {
                sum.add(counts);
            }
            tally.items += shard.stats.items;
            tally.bytes += shard.stats.bytes;
            tally.judged += shard.stats.judged;
            tally.judged_fetched += shard.stats.judged_fetched;
            tally.stored += shard.stats.items_total;
            tally.fetches += shard.stats.fetches;
        }
        tally
    }

    /// Returns the report on each class of values with a decision.
    pub fn classes(&self) -> Vec<ClassStats> {
        let Some(coding) = &self.coding else {
            return Vec::new();
        };
        let plan = coding.plan();
        let (tally, costs) = (self.tally(), self.costs());
        let stats = plan.classes().map(|(class, it)| {
            let decision = it.decision();
            let generation = it.form.as_ref().and_then(|form| form.generation.as_ref());
            let counts = tally.classes.get(usize::from(class));
            let counts = counts.copied().unwrap_or_default();
            let costs = costs.get(&class).copied().unwrap_or_default();
            ClassStats {
                name: plan.prefixes.name(class),
                method: decision.method,
                runner_up: decision.runner_up,
                margin: decision.margin.mean / decision.cost.mean.max(1e-30),
                generation: generation.map_or(0, |it| it.number),
                dictionary_bytes: generation.map_or(0, |it| it.dictionary.memory_bytes() as u64),
                demoted: counts.demoted,
                encoded: counts.encoded,
                refused: counts.refused,
                raw_bytes: counts.raw_bytes,
                stored_bytes: counts.stored_bytes,
                decoded: counts.decoded,
                promoted: counts.promoted,
                samples: costs.samples(),
                store_cost: costs.store_cost,
                saved_cost: costs.earnings().map(|earned| earned.saved_cost),
                missed_cost: costs.missed(),
            }
        });
        stats.collect()
    }

    /// Returns the savings of compressing for each class; shards are parts of its values.
    fn costs(&self) -> BTreeMap<u16, Costs> {
        let mut costs = BTreeMap::<u16, Costs>::new();
        for shard in &self.shards {
            for (class, part) in &lock(shard).books.costs {
                costs.entry(*class).or_default().merge(part);
            }
        }
        costs
    }

    /// Returns the ledger of all values that reached the end of the fresh queue; its costs are seconds.
    pub fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::default();
        for shard in &self.shards {
            if let Some(other) = &lock(shard).books.ledger {
                ledger.merge(other);
            }
        }
        ledger
    }

    /// Changes the most bytes that may be held. Items go as shards make room.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is less than 1 MiB or than twice the longest item.
    pub fn set_memory(&self, memory_bytes: u64, now: Now) -> Result<()> {
        let least = MEMORY_BYTES_MIN.max(2 * self.item_bytes_max as u64);
        if memory_bytes < least {
            let reason = format!("{memory_bytes} bytes, where at least {least} are needed");
            return Err(Error::invalid("memory of objects", reason));
        }
        self.space.set_memory(memory_bytes);
        self.give_way(now);
        Ok(())
    }

    /// Sets whether items may be dropped before their end, from now on.
    pub fn set_evict(&self, evict: bool) {
        self.evicts.store(evict, Relaxed);
    }

    /// Returns the counts of all shards.
    pub fn stats(&self) -> ObjectsStats {
        let mut stats = ObjectsStats {
            memory_bytes: self.space.memory_bytes(),
            held_bytes: self.space.held_bytes(),
            slab_bytes: self.space.slab_bytes() as u64,
            dictionary_bytes: self.coding.as_ref().map_or(0, |it| it.held_bytes()),
            ..ObjectsStats::default()
        };
        for shard in &self.shards {
            stats.add(&lock(shard).stats());
        }
        stats
    }

    /// Sets the counts of the past back to zero.
    pub fn reset_stats(&self) {
        self.shards
            .iter()
            .for_each(|shard| lock(shard).stats.reset());
    }

    fn key<'a>(&self, bytes: &'a [u8]) -> Option<Key<'a>> {
        let is_fit = (1..=KEY_BYTES_MAX).contains(&bytes.len());
        is_fit.then(|| Key {
            bytes,
            hash: self.hasher.of(bytes),
        })
    }

    /// The highest bits choose the shard; the index uses the lowest.
    fn shard_of(&self, hash: u64) -> usize {
        let bits = self.shards.len().ilog2();
        hash.unbounded_shr(64 - bits) as usize
    }

    fn lock(&self, shard: usize, now: Now) -> MutexGuard<'_, Shard> {
        let mut shard = lock(&self.shards[shard]);
        shard.begin(now.seconds);
        shard
    }

    fn duty(&self, items: usize, now: Now) -> Duty {
        Duty {
            items,
            evicts: self.evicts.load(Relaxed),
            drops: false,
            share_slabs: self.space.slabs_max() / self.shards.len() as u64,
            now: now.seconds,
        }
    }

    /// Memory is tight when the shards could not each open a segment soon.
    fn is_tight(&self) -> bool {
        self.space.slabs_left() < 4 + self.shards.len() as i64 / 8
    }

    /// Calls an operation on the shard of a key; where there is no room, makes some and calls it again.
    fn with_room<R>(
        &self,
        key: Key<'_>,
        now: Now,
        mut operation: impl FnMut(&mut Shard) -> std::result::Result<R, NoRoom>,
    ) -> std::result::Result<R, NoRoom> {
        let at = self.shard_of(key.hash);
        let slab_bytes = self.space.slab_bytes();
        let slabs_most = self.item_bytes_max / slab_bytes + 2;
        for round in 0..=ROUNDS_MAX * (1 + slabs_most) {
            let mut shard = self.lock(at, now);
            let index_bytes = shard.index.memory_bytes();
            let result = operation(&mut shard);
            if shard.index.memory_bytes() != index_bytes {
                shard.settle();
            }
            if result.is_ok() {
                if self.is_tight() {
                    self.make_some_room(shard, now);
                } else {
                    shard.tidy(ITEMS_A_REQUEST, now.seconds);
                }
                return result;
            }
            let duty = Duty {
                drops: round >= ROUNDS_MAX,
                ..self.duty(usize::MAX, now)
            };
            let freed = shard.work(duty);
            drop(shard);
            if freed == Progress::Nothing && !self.make_room(duty) {
                break;
            }
        }
        Err(NoRoom)
    }

    /// Does a request's part of making room: in its own shard, or in the next shard in order.
    fn make_some_room(&self, mut shard: MutexGuard<'_, Shard>, now: Now) {
        let duty = self.duty(ITEMS_A_REQUEST, now);
        if shard.is_due(duty) {
            shard.work(duty);
        } else {
            // Nobody holds two.
            drop(shard);
            let at = self.turn.fetch_add(1, Relaxed) % self.shards.len();
            self.lock(at, now).work(duty);
        }
    }

    /// Lets the shards free a segment, one after another. False if none can.
    fn make_room(&self, duty: Duty) -> bool {
        (0..self.shards.len()).any(|_| {
            let at = self.turn.fetch_add(1, Relaxed) % self.shards.len();
            let now = Now { seconds: duty.now };
            self.lock(at, now).work(duty) == Progress::Freed
        })
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
