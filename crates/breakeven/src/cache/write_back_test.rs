//! Changes of blocks: none is lost, despite evictions, removals, flushes and failures.
//!
//! A block is a counter. Threads count it up in the cache, the hook writes it to a store, and loaders read it from
//! there. In the end the store must hold the full count.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::explore_test::{explore, switch};
use super::model_test::Fixed;
use super::*;
use crate::error::{Error, Result};
use crate::testing::is_full;

const BLOCK: usize = 1000;

/// A store of counters, behind a cache that writes back to it.
struct Counters {
    cache: Cache<u64, Fixed>,
    stored: Arc<Vec<AtomicU64>>,
    /// An older block was written after a newer one. The hook cannot report it itself: its panics count as faults of
    /// the store here.
    went_back: Arc<AtomicBool>,
    /// One write in so many fails; 0 for none.
    fails_every: Arc<AtomicU64>,
    counted: Vec<AtomicU64>,
}

fn number(block: &[u8]) -> u64 {
    u64::from_le_bytes(block[..8].try_into().expect("8 bytes"))
}

impl Counters {
    fn new(keys: usize, fails_every: u64, pinned_bytes_max: u64) -> Arc<Counters> {
        let numbers = || (0..keys).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let stored = Arc::new(numbers());
        let fails_every = Arc::new(AtomicU64::new(fails_every));
        let went_back = Arc::new(AtomicBool::new(false));
        let (store, fails, back, writes) = (
            Arc::clone(&stored),
            Arc::clone(&fails_every),
            Arc::clone(&went_back),
            AtomicU64::new(0),
        );
        let write = move |key: &u64, block: &[u8]| {
            switch();
            let turn = writes.fetch_add(1, SeqCst) + 1;
            match fails.load(SeqCst) {
                0 => {}
                every if !turn.is_multiple_of(every) => {}
                _ if turn.is_multiple_of(2) => resume_unwind(Box::new("a broken disk")),
                _ => return Err(Error::Interrupted),
            }
            let before = store[*key as usize].swap(number(block), SeqCst);
            back.fetch_or(before > number(block), SeqCst);
            Ok(())
        };
        let options = CacheOptions {
            budget_bytes: 200_000,
            block_bytes: BLOCK,
            shard_count: Some(1),
            policy: Policy::Static(Arm {
                compressed_share: 0.3,
                method: 0,
                admits_once: true,
            }),
            pinned_bytes_max: Some(pinned_bytes_max),
            ..CacheOptions::default()
        };
        Arc::new(Counters {
            cache: Cache::writing_back_with_hasher(options, Fixed::default(), write)
                .expect("a cache"),
            stored,
            went_back,
            fails_every,
            counted: numbers(),
        })
    }

    fn load(&self, key: u64, frame: &mut [u8]) -> Result<()> {
        switch();
        let found = self.stored[key as usize].load(SeqCst);
        switch();
        frame.fill(key as u8);
        frame[..8].copy_from_slice(&found.to_le_bytes());
        Ok(())
    }

    /// Counts up; returns whether it could.
    fn count(&self, key: u64) -> bool {
        let found = self
            .cache
            .get_mut_or_load(key, BLOCK, |frame| self.load(key, frame));
        match found {
            Ok(mut block) => {
                assert!(block[8..].iter().all(|byte| *byte == key as u8));
                let more = number(&block) + 1;
                switch();
                block[..8].copy_from_slice(&more.to_le_bytes());
                self.counted[key as usize].fetch_add(1, SeqCst);
                true
            }
            Err(error) => {
                assert_is_fault(&error);
                false
            }
        }
    }

    /// Asks for a counter, which never goes back.
    fn ask(&self, key: u64, least: u64) -> u64 {
        let found = self
            .cache
            .get_or_load(key, BLOCK, |frame| self.load(key, frame));
        let found = found.map_or(least, |block| number(&block));
        assert!(found >= least, "key {key}: {found} after {least}");
        found
    }

    fn finish(&self) {
        self.fails_every.store(0, SeqCst);
        self.cache.flush().expect("nothing fails any more");
        assert!(!self.went_back.load(SeqCst), "an older block was written");
        let numbers = |of: &[AtomicU64]| of.iter().map(|it| it.load(SeqCst)).collect::<Vec<_>>();
        assert_eq!(numbers(&self.stored), numbers(&self.counted));
        assert_eq!(self.cache.stats().dirty_bytes, 0);
    }
}

/// The allowed errors of a hook here, or too many guards.
fn assert_is_fault(error: &Error) {
    let is_fault = matches!(
        error,
        Error::Interrupted | Error::Panicked { .. } | Error::Limit { .. }
    );
    assert!(is_fault, "{error}");
}

fn tolerate<T>(result: Result<T>) {
    if let Err(error) = result {
        assert_is_fault(&error);
    }
}

#[test]
fn a_write_that_goes_back_is_noticed() {
    let counters = Counters::new(1, 0, 100_000);
    for (number, goes_back) in [(5_u64, false), (5, false), (4, true)] {
        let block = [&number.to_le_bytes()[..], &[0; BLOCK - 8]].concat();
        counters.cache.insert_dirty(0, &block, 0).expect("room");
        counters.cache.flush().expect("written");
        assert_eq!(counters.went_back.load(SeqCst), goes_back, "{number}");
    }
    counters.counted[0].store(4, SeqCst);
    let finished = catch_unwind(AssertUnwindSafe(|| counters.finish()));
    assert!(finished.is_err());
}

#[test]
fn no_order_loses_a_change() {
    let orders = if is_full() { 20_000 } else { 1000 };
    explore("changes", orders, || {
        let counters = Counters::new(1, 3, 200_000);
        let task = |work: fn(&Counters)| -> Box<dyn FnOnce() + Send> {
            let counters = Arc::clone(&counters);
            Box::new(move || work(&counters))
        };
        let counting = |it: &Counters| {
            it.count(0);
            it.count(0);
        };
        let removing = |it: &Counters| {
            tolerate(it.cache.remove(&0));
            tolerate(it.cache.flush());
            tolerate(it.cache.remove(&0));
        };
        let last: fn(&Counters) = |it: &Counters| {
            let least = it.ask(0, 0);
            it.count(0);
            it.ask(0, least);
        };
        let mut scene = vec![task(counting), task(counting), task(removing), task(last)];
        // The last thread checks, and which one that is cannot be known beforehand.
        let done = Arc::new(AtomicU64::new(0));
        scene = scene
            .into_iter()
            .map(|work| -> Box<dyn FnOnce() + Send> {
                let (counters, done) = (Arc::clone(&counters), Arc::clone(&done));
                Box::new(move || {
                    work();
                    if done.fetch_add(1, SeqCst) == 3 {
                        counters.finish();
                    }
                })
            })
            .collect();
        scene
    });
}

#[test]
fn threads_lose_no_change() {
    let rounds = if is_full() { 50_000 } else { 3000 };
    let counters = Counters::new(300, 11, 100_000);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let counters = &counters;
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                let mut seen = vec![0; 300];
                for _ in 0..rounds {
                    let key = random.u64(0..300);
                    let at = key as usize;
                    match random.u32(0..100) {
                        0..50 => drop(counters.count(key)),
                        50..90 => seen[at] = counters.ask(key, seen[at]),
                        90..97 => tolerate(counters.cache.remove(&key)),
                        97..99 => tolerate(counters.cache.set_budget(random.u64(0..200_000))),
                        _ => tolerate(counters.cache.flush()),
                    }
                }
            });
        }
    });
    let stats = counters.cache.stats();
    println!("{stats:?}");
    assert!(stats.written > 1000 && stats.write_failures > 100 && stats.dirty_hits > 100);
    tolerate(counters.cache.set_budget(200_000));
    counters.finish();
    counters.cache.set_budget(200_000).expect("nothing dirty");
    let memory = counters.cache.stats().memory;
    assert!(memory.in_use_bytes() <= 200_000, "{memory:?}");
    for slot in &counters.cache.slots {
        slot.lock().shard.audit();
    }
    let counted: u64 = counters.counted.iter().map(|it| it.load(SeqCst)).sum();
    assert!(counted > rounds / 2, "{counted} counted");
}

#[test]
fn a_block_that_cannot_be_written_stays() {
    let counters = Counters::new(2, 1, 100_000);
    let cache = &counters.cache;
    assert!(counters.count(1));
    let is_there = || {
        assert_eq!(counters.ask(1, 1), 1);
        assert_eq!(cache.explain(&1).holding, Holding::Dirty);
        assert_eq!(counters.stored[1].load(SeqCst), 0);
    };
    is_there();
    tolerate(Err::<(), _>(cache.remove(&1).expect_err("not written")));
    is_there();
    tolerate(Err::<(), _>(cache.flush().expect_err("not written")));
    is_there();
    tolerate(Err::<(), _>(cache.set_budget(0).expect_err("not written")));
    is_there();
    // A block put in over it must be written too.
    let newer = [7u64.to_le_bytes().to_vec(), vec![1; BLOCK - 8]].concat();
    assert!(cache.insert(1, &newer, 0).expect("room"));
    assert_eq!(cache.explain(&1).holding, Holding::Dirty);
    counters.fails_every.store(0, SeqCst);
    assert!(cache.remove(&1).expect("written"));
    assert_eq!(counters.stored[1].load(SeqCst), 7);
    assert!(cache.get(&1).expect("room").is_none());
}

#[test]
fn a_block_that_cannot_be_written_can_be_forgotten() {
    let counters = Counters::new(200, 1, 100_000);
    let cache = &counters.cache;
    // As many as there is room for.
    let refused = (0..200).find(|key| !counters.count(*key));
    let dirty = refused.expect("nothing can be written");
    assert!(cache.stats().dirty_bytes > 0);
    for key in 0..dirty {
        assert!(cache.forget(&key).expect("nobody has it"));
        counters.counted[key as usize].store(0, SeqCst);
        assert!(!cache.forget(&key).expect("nobody has it"));
        assert!(cache.get(&key).expect("room").is_none());
    }
    assert_eq!(cache.stats().dirty_bytes, 0);
    assert!(counters.count(0), "there is room again");
    {
        let held = cache.get_mut(&0).expect("room").expect("held");
        assert!(matches!(cache.forget(&0), Err(Error::Invalid { .. })));
        held.discard();
    }
    counters.finish();
    assert!(cache.forget(&0).expect("nobody has it"), "clean ones too");
}

#[test]
fn dirty_blocks_are_bounded_and_written_oldest_first() {
    let counters = Counters::new(200, 0, 100_000);
    for key in 0..200 {
        assert!(counters.count(key));
        let dirty_bytes = counters.cache.stats().dirty_bytes;
        assert!(dirty_bytes <= 50_000 + BLOCK as u64, "{dirty_bytes}");
    }
    let written: Vec<u64> = counters.stored.iter().map(|it| it.load(SeqCst)).collect();
    let first_dirty = written.iter().position(|count| *count == 0).expect("some");
    assert!(first_dirty > 100 && written[first_dirty..].iter().all(|it| *it == 0));
    // A failing disk stops changes before they are made, and loses none.
    counters.fails_every.store(1, SeqCst);
    let refused = (0..60).filter(|key| !counters.count(*key)).count();
    assert!(refused > 40, "{refused}");
    counters.finish();
}

#[test]
fn a_change_is_whole_or_none() {
    let counters = Counters::new(3, 0, 100_000);
    let cache = &counters.cache;
    counters.count(1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let mut block = cache.get_mut(&1).expect("room").expect("held");
        block.fill(9);
        resume_unwind(Box::new("half-way"));
    }));
    assert!(panicked.is_err());
    assert_eq!(counters.ask(1, 1), 1);
    assert!(cache.get_mut(&2).expect("room").is_none());
    {
        let mut block = cache.get_mut(&1).expect("room").expect("held");
        block[8..].fill(8);
        let as_it_was = cache.get(&1).expect("room").expect("held");
        assert_eq!(as_it_was[8..], [1; BLOCK - 8]);
        let again = cache.get_mut(&1).map(|_| ());
        assert!(matches!(again, Err(Error::Invalid { .. })));
        assert!(matches!(cache.flush(), Err(Error::Invalid { .. })));
    }
    assert_eq!(
        cache.get(&1).expect("room").expect("held")[8..],
        [8; BLOCK - 8]
    );
    let stored = Arc::clone(&counters.stored);
    assert_eq!(stored[1].load(SeqCst), 0);
    drop(counters);
    assert_eq!(stored[1].load(SeqCst), 1, "dropping the cache writes");
}

#[test]
fn a_change_made_while_a_panic_unwinds_is_whole() {
    struct Header<'a>(&'a Counters);
    impl Drop for Header<'_> {
        fn drop(&mut self) {
            assert!(self.0.count(1), "there is room");
        }
    }
    let counters = Counters::new(2, 0, 100_000);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _header = Header(&counters);
        resume_unwind(Box::new("elsewhere"));
    }));
    assert!(panicked.is_err());
    assert_eq!(counters.ask(1, 1), 1);
    counters.finish();
}

#[test]
fn a_look_changes_nothing_and_a_change_can_be_given_up() {
    let counters = Counters::new(1, 0, 100_000);
    let cache = &counters.cache;
    counters.ask(0, 0);
    let look = cache.get_mut(&0).expect("room").expect("held");
    assert_eq!(number(&look), 0);
    drop(look);
    assert_eq!(cache.stats().dirty_bytes, 0);
    let half_way = || -> Result<()> {
        let mut block = cache.get_mut(&0)?.expect("held");
        block[..8].fill(9);
        block.discard();
        Err(Error::Interrupted)
    };
    assert!(half_way().is_err());
    assert_eq!(cache.stats().dirty_bytes, 0);
    assert_eq!(counters.ask(0, 0), 0);
    assert!(counters.count(0), "nobody has it");
    assert_eq!(cache.stats().dirty_bytes, BLOCK as u64);
    counters.finish();
}

thread_local! {
    /// The next comparison of a [`Fragile`] key by this thread panics.
    static BREAKS: Cell<bool> = const { Cell::new(false) };
}

#[derive(Clone, Copy)]
struct Fragile(u64);

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Fragile) -> bool {
        if BREAKS.take() {
            resume_unwind(Box::new("a broken key"));
        }
        self.0 == other.0
    }
}

impl Eq for Fragile {}

/// A cache of dirty blocks in several shards, and the sum of the first bytes of the written blocks.
fn fragile() -> (Cache<Fragile>, Arc<AtomicU64>) {
    let written = Arc::new(AtomicU64::new(0));
    let options = CacheOptions {
        shard_count: Some(4),
        ..CacheOptions::default()
    };
    let sum = Arc::clone(&written);
    let cache = Cache::writing_back(options, move |_: &Fragile, block| {
        sum.fetch_add(u64::from(block[0]), SeqCst);
        Ok(())
    });
    let cache = cache.expect("a cache");
    for key in 0..FRAGILE {
        cache
            .insert_dirty(Fragile(key), &[1; 100], 0)
            .expect("room");
    }
    (cache, written)
}

const FRAGILE: u64 = 64;

fn breaks(work: impl FnOnce()) {
    BREAKS.set(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    let message = crate::pool::message_of(result.expect_err("it breaks").as_ref());
    assert_eq!(message, "a broken key");
}

#[test]
fn a_key_that_panics_loses_no_change() {
    let (cache, written) = fragile();
    breaks(|| {
        // Dropped by the panic.
        let cache = cache;
        drop(cache.get(&Fragile(1)));
    });
    assert_eq!(written.load(SeqCst), FRAGILE);
    let (cache, written) = fragile();
    breaks(|| drop(cache.get(&Fragile(1))));
    drop(cache);
    assert_eq!(written.load(SeqCst), FRAGILE);
}

#[test]
fn a_key_that_panics_leaves_nobody_waiting() {
    let (cache, written) = fragile();
    let mut block = cache.get_mut(&Fragile(1)).expect("room").expect("held");
    block.fill(7);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| cache.get_mut(&Fragile(1)).map(|_| ()));
        breaks(|| drop(cache.get(&Fragile(1))));
        drop(block);
        assert!(waiting.join().is_err(), "the lock is poisoned");
    });
    drop(cache);
    assert_eq!(written.load(SeqCst), FRAGILE + 6, "the last change too");
}

#[test]
fn dirty_blocks_leave_room_for_others_whatever_guards_may_hold() {
    for (block_bytes, pinned_bytes_max) in [(8 << 10, 16 << 20), (16, 16 << 20), (16, 512 << 10)] {
        let options = CacheOptions {
            budget_bytes: 4 << 20,
            pinned_bytes_max: Some(pinned_bytes_max),
            ..CacheOptions::default()
        };
        let cache = Cache::<u64>::writing_back(options, |_, _| Ok(())).expect("a cache");
        let block = vec![1; block_bytes];
        for key in 0..20_000 {
            cache.insert_dirty(key, &block, 0).expect("room");
        }
        let memory = cache.stats().memory;
        assert!(memory.in_use_bytes() <= 4 << 20, "{memory:?}");
        assert!(memory.blocks > 100, "written blocks are cached: {memory:?}");
        cache.set_budget(1 << 20).expect("written");
        for key in 0..1000 {
            cache.insert_dirty(key, &block, 0).expect("room");
        }
        let memory = cache.stats().memory;
        assert!(memory.in_use_bytes() <= 1 << 20, "{memory:?}");
    }
}

#[test]
fn without_a_hook_nothing_is_changed() {
    let cache: Cache<u64> = Cache::new(CacheOptions::default()).expect("a cache");
    let refused = cache.insert_dirty(1, &[1; 10], 0);
    assert!(matches!(refused, Err(Error::Unsupported { .. })));
    assert!(cache.get_mut(&1).is_err());
    assert!(cache.get(&1).expect("room").is_none());
}
