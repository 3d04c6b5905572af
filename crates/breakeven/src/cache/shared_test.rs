//! The cache for many threads: against a map in one thread, then by several, in orders of the
//! system's choice and of the scheduler's.
//!
//! Threads follow one rule. A block carries its key and a version; the store counts versions up and publishes one once
//! the cache knows of it. A later reader finds this version or a newer one, of this key, under all other traffic.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use super::explore_test::{Mutex, explore, switch};
use super::model_test::Fixed;
use super::shared::guard_bytes_max;
use super::*;
use crate::error::{Error, Result};
use crate::testing::{is_full, seeded};

type Tested = Cache<u64, Fixed>;
type Task = Box<dyn FnOnce() + Send>;

/// The slab size that [`CacheOptions`] choose for small blocks and small budgets.
const SLAB: usize = 16 << 10;

fn lz4(compressed_share: f64) -> Policy {
    Policy::Static(Arm {
        compressed_share,
        method: 0,
        admits_once: true,
    })
}

fn cache(policy: Policy, shard_count: usize, budget_bytes: u64) -> Tested {
    let options = CacheOptions {
        budget_bytes,
        block_bytes: 1024,
        shard_count: Some(shard_count),
        policy,
        pinned_bytes_max: Some((shard_count * 6 * SLAB) as u64),
        ..CacheOptions::default()
    };
    Cache::with_hasher(options, Fixed::default()).expect("a cache")
}

fn audit(cache: &Tested) {
    for slot in &cache.slots {
        slot.lock().shard.audit();
    }
}

/// Writes the block of a version of a key: it can be compressed, and says whose it is at both ends.
fn write(frame: &mut [u8], key: u64, version: u64) {
    frame.fill(key as u8);
    let name = [key.to_le_bytes(), version.to_le_bytes()].concat();
    let tail = frame.len() - 16;
    frame[..16].copy_from_slice(&name);
    frame[tail..].copy_from_slice(&name);
}

/// Returns the version of a block of this key.
fn read(block: &[u8], key: u64) -> u64 {
    let number = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes"));
    let (end, middle) = (block.len() - 16, &block[16..block.len() - 16]);
    assert_eq!((number(0), number(end)), (key, key), "another key's block");
    assert_eq!(number(8), number(end + 8), "parts of two versions");
    assert!(middle.iter().all(|byte| *byte == key as u8), "key {key}");
    number(8)
}

/// The cache and a map, and some guards that are held.
struct Pair {
    cache: Tested,
    blocks: HashMap<u64, Vec<u8>>,
    held: Vec<(BlockGuard, Vec<u8>)>,
    versions: u64,
    found: u64,
    refused: u64,
}

impl Pair {
    fn next(&mut self, key: u64, random: &mut fastrand::Rng) -> Vec<u8> {
        self.versions += 1;
        let length = match random.u32(0..30) {
            0 => SLAB,
            1 => SLAB + random.usize(1..9000),
            _ => random.usize(32..2500),
        };
        let mut block = vec![0; length];
        write(&mut block, key, self.versions);
        if key.is_multiple_of(4) {
            let noise = &mut block[16..length - 16];
            noise.iter_mut().for_each(|byte| *byte = random.u8(..));
        }
        block
    }

    /// Takes in a guard, sometimes to keep; a refusal means too many guards.
    fn hold(&mut self, found: Result<BlockGuard>, expected: Vec<u8>, random: &mut fastrand::Rng) {
        match found {
            Ok(guard) => {
                assert_eq!(*guard, *expected);
                if random.u32(0..8) == 0 {
                    self.held.push((guard, expected));
                }
            }
            Err(Error::Limit { .. }) if !self.held.is_empty() => self.refused += 1,
            Err(other) => panic!("{other}"),
        }
    }

    fn get_or_load(&mut self, key: u64, random: &mut fastrand::Rng) {
        let new = self.next(key, random);
        let mut was_loaded = false;
        let load = |frame: &mut [u8]| {
            was_loaded = true;
            frame.copy_from_slice(&new);
            Ok(())
        };
        let (raw_bytes, class) = (new.len(), key as u8 % 3);
        let spec = BlockSpec { raw_bytes, class };
        let found = self.cache.get_or_load(key, spec, load);
        if was_loaded {
            self.blocks.insert(key, new.clone());
            return self.hold(found, new, random);
        }
        self.found += u64::from(found.is_ok());
        // It may have been refused before the look-up.
        let expected = self.blocks.get(&key).cloned().unwrap_or_default();
        self.hold(found, expected, random);
    }

    fn step(&mut self, random: &mut fastrand::Rng) {
        let key = (300.0 * random.f64().powi(3)) as u64;
        match random.u32(0..1000) {
            0..500 => self.get_or_load(key, random),
            500..720 => match self.cache.get(&key) {
                Ok(None) => {}
                found => {
                    let expected = self.blocks.get(&key).cloned().unwrap_or_default();
                    self.found += u64::from(found.is_ok());
                    let found = found.map(|it| it.expect("none was left out"));
                    self.hold(found, expected, random);
                }
            },
            720..840 => {
                let new = self.next(key, random);
                self.cache.insert(key, &new, 0).expect("nothing to write");
                self.blocks.insert(key, new);
            }
            840..900 => {
                self.cache.remove(&key).expect("nothing to write");
                assert!(self.cache.get(&key).expect("nothing to hold").is_none());
                self.blocks.remove(&key);
            }
            900..996 => self.fail(1000 + key, random),
            _ => {
                let budget = [0, 100_000, 300_000, 500_000][random.usize(0..4)];
                self.cache.set_budget(budget).expect("nothing to write");
            }
        }
        if !self.held.is_empty() && random.u32(0..20) == 0 {
            let (guard, expected) = self.held.swap_remove(random.usize(..self.held.len()));
            assert_eq!(*guard, *expected, "a guard's bytes changed");
        }
    }

    /// Loads in vain.
    fn fail(&mut self, key: u64, random: &mut fastrand::Rng) {
        let panics = random.bool();
        let found = catch_unwind(AssertUnwindSafe(|| {
            self.cache.get_or_load(key, 100, |frame| {
                frame.fill(1);
                if panics {
                    resume_unwind(Box::new("on purpose"));
                }
                Err(Error::Interrupted)
            })
        }));
        match found {
            Ok(Err(Error::Interrupted)) => assert!(!panics),
            Ok(Err(Error::Limit { .. })) => assert!(!self.held.is_empty()),
            Ok(other) => panic!("{other:?}"),
            Err(_) => assert!(panics),
        }
        assert!(self.cache.get(&key).expect("nothing to hold").is_none());
    }
}

fn check_model(name: &str, policy: Policy, shard_count: usize) {
    let steps = if is_full() { 400_000 } else { 20_000 };
    let mut random = seeded(&format!("{name}, {steps} steps"), 5);
    let mut pair = Pair {
        cache: cache(policy, shard_count, 500_000),
        blocks: HashMap::new(),
        held: Vec::new(),
        versions: 0,
        found: 0,
        refused: 0,
    };
    for _ in 0..steps {
        pair.step(&mut random);
        audit(&pair.cache);
    }
    let stats = pair.cache.stats();
    let (found, refused) = (pair.found, pair.refused);
    println!("{name}: {found} found, {refused} refused, {stats:?}");
    assert!(found > steps / 10 && refused > steps / 1000);
    assert!(stats.failed > steps / 50 && stats.shards.too_large > steps / 500);
    if policy != Policy::RawOnly {
        // Few, since guards hold most slabs most of the time.
        assert!(stats.shards.packed_hits > steps / 400);
    }
    let Pair { cache, held, .. } = pair;
    cache.set_budget(0).expect("nothing to write");
    audit(&cache);
    for (guard, expected) in held {
        assert_eq!(*guard, *expected);
    }
    cache.set_budget(0).expect("nothing to write");
    let memory = cache.stats().memory;
    assert_eq!((memory.slab_bytes, memory.blocks), (0, 0));
}

#[test]
fn no_byte_is_wrong_or_uncounted_raw_only() {
    check_model("raw only, 1 shard", Policy::RawOnly, 1);
}

#[test]
fn no_byte_is_wrong_or_uncounted_with_lz4() {
    check_model("lz4, 2 shards", lz4(0.5), 2);
}

#[test]
fn a_cache_may_be_shared() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Cache<u64>>();
    is_shared::<BlockGuard>();
}

/// A store whose blocks have versions, behind a cache.
struct World {
    cache: Tested,
    block_bytes: usize,
    /// Versions in the store.
    stored: Vec<AtomicU64>,
    /// Versions that the cache knows of.
    told: Vec<AtomicU64>,
    /// One writer of a key at a time.
    writers: Vec<Mutex<()>>,
    loads: AtomicU64,
}

impl World {
    fn new(cache: Tested, keys: u64, block_bytes: usize) -> Arc<World> {
        let numbers = || (0..keys).map(|_| AtomicU64::new(1)).collect();
        Arc::new(World {
            cache,
            block_bytes,
            stored: numbers(),
            told: numbers(),
            writers: (0..keys).map(|_| Mutex::new(())).collect(),
            loads: AtomicU64::new(0),
        })
    }

    fn load(&self, key: u64, frame: &mut [u8]) {
        self.loads.fetch_add(1, SeqCst);
        switch();
        let version = self.stored[key as usize].load(SeqCst);
        switch();
        write(frame, key, version);
        switch();
    }

    fn check(&self, block: &[u8], key: u64, least: u64) {
        let version = read(block, key);
        let most = self.stored[key as usize].load(SeqCst);
        assert!(
            (least..=most).contains(&version),
            "key {key}: version {version} is none of {least} to {most}"
        );
    }

    /// Asks for a block; returns its guard, `None` for one guard too many.
    fn ask(&self, key: u64) -> Option<BlockGuard> {
        let least = self.told[key as usize].load(SeqCst);
        let load = |frame: &mut [u8]| {
            self.load(key, frame);
            Ok(())
        };
        match self.cache.get_or_load(key, self.block_bytes, load) {
            Ok(block) => {
                self.check(&block, key, least);
                Some(block)
            }
            Err(Error::Limit { .. }) => None,
            Err(other) => panic!("{other}"),
        }
    }

    fn look(&self, key: u64) -> bool {
        let least = self.told[key as usize].load(SeqCst);
        // A refusal for one guard too many counts as absence.
        let found = self.cache.get(&key).unwrap_or_default();
        if let Some(block) = &found {
            self.check(block, key, least);
        }
        found.is_some()
    }

    /// Writes a new version and tells the cache.
    fn update(&self, key: u64, inserts: bool) {
        let _one = self.writers[key as usize].lock();
        let version = self.stored[key as usize].fetch_add(1, SeqCst) + 1;
        switch();
        if inserts {
            let mut block = vec![0; self.block_bytes];
            write(&mut block, key, version);
            self.cache.insert(key, &block, 0).expect("nothing to write");
        } else {
            self.cache.remove(&key).expect("nothing to write");
        }
        self.told[key as usize].store(version, SeqCst);
    }
}

fn tasks(world: &Arc<World>, work: Vec<fn(&World)>) -> Vec<Task> {
    let task = |work: fn(&World)| -> Task {
        let world = Arc::clone(world);
        Box::new(move || work(&world))
    };
    work.into_iter().map(task).collect()
}

fn orders() -> u64 {
    if is_full() { 20_000 } else { 1000 }
}

#[test]
fn no_order_brings_old_bytes_back() {
    // Blocks that are kept, and blocks that are too large for that.
    for block_bytes in [512, SLAB + 8] {
        explore(&format!("updates of {block_bytes} bytes"), orders(), || {
            let world = World::new(cache(Policy::RawOnly, 1, 300_000), 1, block_bytes);
            let reader = |world: &World| {
                world.ask(0);
                world.ask(0);
            };
            let writer = |world: &World| {
                world.update(0, true);
                world.update(0, false);
            };
            let looker = |world: &World| {
                world.look(0);
                world.update(0, true);
                world.look(0);
            };
            tasks(&world, vec![reader, reader, writer, looker])
        });
    }
}

#[test]
fn no_order_mixes_up_what_is_being_restored() {
    let mut restored = 0;
    explore("restoring", orders() / 4, || {
        let world = World::new(cache(lz4(0.5), 1, 300_000), 400, 2000);
        for key in 0..200 {
            world.ask(key);
        }
        let before = world.cache.stats().shards;
        assert!(before.compressed > 20, "{before:?}");
        // The oldest of the compressed blocks, and those that displace it.
        let reader = |world: &World| {
            for key in [10, 11, 10, 11] {
                world.ask(key);
            }
        };
        let writer = |world: &World| {
            world.update(10, true);
            (300..310).for_each(|key| drop(world.ask(key)));
            world.update(11, false);
        };
        restored += u64::from((10..12).any(|key| {
            let state = &mut world.cache.slots[0].lock();
            let found = state.shard.lookup(&key, &mut Bench::new());
            matches!(found, Lookup::Packed(_))
        }));
        tasks(&world, vec![reader, writer, reader])
    });
    println!("{restored} scenes began with a compressed block");
    assert!(restored > 100);
}

#[test]
fn failures_reach_who_waits_in_every_order() {
    let outcomes = Arc::new([const { AtomicU64::new(0) }; 3]);
    explore("failures", orders(), || {
        let world = World::new(cache(Policy::RawOnly, 1, 300_000), 1, 512);
        let task = || -> Task {
            let (world, outcomes) = (Arc::clone(&world), Arc::clone(&outcomes));
            Box::new(move || {
                let found = catch_unwind(AssertUnwindSafe(|| {
                    world.cache.get_or_load(0, 512, |frame| {
                        world.load(0, frame);
                        // The second load panics, the third succeeds.
                        match world.loads.load(SeqCst) {
                            1 => Err(Error::invalid("store", "the first load")),
                            2 => resume_unwind(Box::new("the second load")),
                            _ => Ok(()),
                        }
                    })
                }));
                let outcome = match found {
                    Ok(Ok(block)) => {
                        world.check(&block, 0, 1);
                        0
                    }
                    Ok(Err(Error::Invalid { reason, .. })) => {
                        assert_eq!(reason, "the first load");
                        1
                    }
                    Ok(Err(Error::Panicked { message, .. })) => {
                        assert_eq!(message, "the second load");
                        2
                    }
                    Ok(Err(other)) => panic!("{other}"),
                    Err(panic) => {
                        let message = panic.downcast_ref::<&str>();
                        assert_eq!(message, Some(&"the second load"));
                        2
                    }
                };
                outcomes[outcome].fetch_add(1, SeqCst);
            })
        };
        (0..4).map(|_| task()).collect()
    });
    let found = outcomes.each_ref().map(|it| it.load(SeqCst));
    println!("{found:?} succeeded, failed, panicked");
    assert!(found.iter().all(|count| *count > orders() / 100));
}

#[test]
fn who_waits_for_an_overtaken_load_gets_the_block_before_it_ends() {
    let waits = Arc::new(AtomicU64::new(0));
    explore("overtaken and failed", orders(), || {
        let world = World::new(cache(Policy::RawOnly, 1, 300_000), 1, 512);
        let is_served = Arc::new(AtomicBool::new(false));
        let served = Arc::clone(&is_served);
        let failing = move |world: &World| {
            let load = |_: &mut [u8]| {
                // Many times the need of the others, by chance alone.
                let others_are_served = (0..10_000).any(|_| {
                    switch();
                    served.load(SeqCst)
                });
                assert!(others_are_served, "somebody waits though there is a block");
                Err(Error::Interrupted)
            };
            match world.cache.get_or_load(0, 512, load) {
                Ok(block) => world.check(&block, 0, 1),
                Err(error) => assert!(matches!(error, Error::Interrupted), "{error}"),
            }
        };
        let waits = Arc::clone(&waits);
        let waiting = move |world: &World| {
            assert!(world.ask(0).is_some());
            waits.fetch_add(world.cache.stats().waits, SeqCst);
            is_served.store(true, SeqCst);
        };
        let task = |work: Box<dyn FnOnce(&World) + Send>| -> Task {
            let world = Arc::clone(&world);
            Box::new(move || work(&world))
        };
        vec![
            task(Box::new(failing)),
            task(Box::new(waiting)),
            task(Box::new(|world: &World| world.update(0, true))),
        ]
    });
    let waits = waits.load(SeqCst);
    println!("{waits} waited for the load");
    assert!(waits > orders() / 20);
}

#[test]
fn loaders_that_need_each_other_do_not_hang() {
    let refused = Arc::new(AtomicU64::new(0));
    explore("circles", orders(), || {
        let world = World::new(cache(Policy::RawOnly, 2, 400_000), 3, 512);
        let task = |key: u64| -> Task {
            let (world, refused) = (Arc::clone(&world), Arc::clone(&refused));
            Box::new(move || {
                let next = (key + 1) % 3;
                let found = world.cache.get_or_load(key, 512, |frame| {
                    let other = world.cache.get_or_load(next, 512, |frame| {
                        world.load(next, frame);
                        Ok(())
                    })?;
                    read(&other, next);
                    world.load(key, frame);
                    Ok(())
                });
                match found {
                    Ok(block) => drop(read(&block, key)),
                    Err(Error::Invalid { .. }) => drop(refused.fetch_add(1, SeqCst)),
                    Err(other) => panic!("{other}"),
                }
            })
        };
        vec![task(0), task(1), task(2)]
    });
    let refused = refused.load(SeqCst);
    println!("{refused} loads were part of a circle");
    assert!(refused > 0 && refused < 2 * orders());
}

#[test]
fn threads_see_no_old_and_no_foreign_bytes() {
    let rounds = if is_full() { 200_000 } else { 10_000 };
    for (policy, budget_bytes) in [(Policy::RawOnly, 400_000), (lz4(0.6), 300_000)] {
        let world = World::new(cache(policy, 2, budget_bytes), 400, 1500);
        let mut random = seeded("threads", 3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (world, mut random) = (&world, random.fork());
                scope.spawn(move || {
                    let mut held: Vec<(u64, u64, BlockGuard)> = Vec::new();
                    for _ in 0..rounds {
                        let key = (400.0 * random.f64().powi(2)) as u64;
                        match random.u32(0..100) {
                            0..60 => {
                                if let Some(block) = world.ask(key)
                                    && held.len() < 4
                                {
                                    let version = read(&block, key);
                                    held.push((key, version, block));
                                }
                            }
                            60..80 => drop(world.look(key)),
                            80..90 => world.update(key, random.bool()),
                            _ if !held.is_empty() => {
                                let at = random.usize(..held.len());
                                let (key, version, block) = held.swap_remove(at);
                                assert_eq!(read(&block, key), version);
                            }
                            _ => {}
                        }
                    }
                });
            }
            for round in 0..rounds / 100 {
                world
                    .cache
                    .set_budget([100_000, 300_000, 400_000, 0][round % 4])
                    .expect("nothing to write");
                std::thread::yield_now();
            }
            world
                .cache
                .set_budget(budget_bytes)
                .expect("nothing to write");
        });
        audit(&world.cache);
        let stats = world.cache.stats();
        println!("{stats:?}");
        assert!(stats.shards.raw_hits > rounds as u64 / 10 && stats.shards.misses > 1000);
    }
}

/// Loads one key by many threads at once; each waiter is there before the load ends.
fn load_together(
    cache: &Tested,
    raw_bytes: usize,
    end: fn() -> Result<()>,
) -> Vec<Result<Vec<u8>>> {
    let loads = AtomicU64::new(0);
    let ask = || {
        cache.get_or_load(7, raw_bytes, |frame| {
            loads.fetch_add(1, SeqCst);
            while cache.stats().waits < 5 {
                std::thread::yield_now();
            }
            frame.fill(9);
            end()
        })
    };
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6).map(|_| scope.spawn(ask)).collect();
        let results = threads.into_iter().map(|thread| thread.join());
        let told = |result: std::thread::Result<Result<BlockGuard>>| match result {
            Ok(result) => result.map(|block| block.to_vec()),
            Err(panic) => Err(Error::Panicked {
                what: "the thread",
                message: crate::pool::message_of(panic.as_ref()),
            }),
        };
        results.map(told).collect()
    });
    assert_eq!(loads.load(SeqCst), 1, "one load for all");
    results
}

#[test]
fn one_load_serves_all_who_wait() {
    for raw_bytes in [512, SLAB + 1] {
        let cache = cache(Policy::RawOnly, 1, 300_000);
        for result in load_together(&cache, raw_bytes, || Ok(())) {
            assert_eq!(result.expect("loaded"), vec![9; raw_bytes]);
        }
        let is_kept = cache.get(&7).expect("room").is_some();
        assert_eq!(is_kept, raw_bytes < SLAB);
    }
}

#[test]
fn a_failure_reaches_all_who_wait() {
    let cache_of = || cache(Policy::RawOnly, 1, 300_000);
    let denied = || {
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        Err(Error::io("read", "the store", source))
    };
    for result in load_together(&cache_of(), 512, denied) {
        let error = result.expect_err("it failed").to_string();
        assert!(error.starts_with("read the store: "), "{error}");
    }
    let panics = || resume_unwind(Box::new("on purpose"));
    for result in load_together(&cache_of(), 512, panics) {
        let Err(Error::Panicked { message, .. }) = result else {
            panic!("{result:?}");
        };
        assert_eq!(message, "on purpose");
    }
}

#[test]
fn a_loader_may_use_the_cache_but_not_wait_for_itself() {
    let cache = cache(Policy::RawOnly, 1, 300_000);
    let fill = |byte: u8| {
        move |frame: &mut [u8]| {
            frame.fill(byte);
            Ok(())
        }
    };
    let block = cache.get_or_load(1, 100, |frame| {
        let other = cache.get_or_load(2, 100, fill(2))?;
        frame.copy_from_slice(&other);
        let again = cache.get_or_load(1, 100, fill(3));
        assert!(matches!(again, Err(Error::Invalid { .. })), "{again:?}");
        assert!(cache.get(&1)?.is_none());
        cache.remove(&3)?;
        Ok(())
    });
    assert_eq!(*block.expect("loaded"), [2; 100]);
    // A block that the loader puts in itself is newer than the one it loads.
    let block = cache.get_or_load(5, 100, |frame| {
        cache.insert(5, &[6; 50], 0)?;
        frame.fill(5);
        Ok(())
    });
    assert_eq!(*block.expect("loaded"), [5; 100]);
    assert_eq!(*cache.get(&5).expect("room").expect("held"), [6; 50]);
    assert_eq!(cache.stats().overtaken, 1);
    audit(&cache);
}

#[test]
fn a_guard_held_for_ever_stops_nothing() {
    let cache = cache(lz4(0.3), 1, 400_000);
    let ask = |key: u64| {
        cache.get_or_load(key, 1000, |frame| {
            write(frame, key, 1);
            Ok(())
        })
    };
    let held = ask(1).expect("loaded");
    assert!(held.is_lent());
    for key in 100..2000 {
        ask(key).expect("room");
    }
    cache.remove(&1).expect("nothing to write");
    cache.set_budget(0).expect("nothing to write");
    assert_eq!(cache.stats().memory.slab_bytes, SLAB as u64, "its slab");
    assert!(!ask(2).expect("handed through").is_lent());
    cache.set_budget(400_000).expect("nothing to write");
    for key in 0..500 {
        ask(key).expect("room");
        audit(&cache);
    }
    assert_eq!(read(&held, 1), 1);
    drop(cache);
    assert_eq!(read(&held, 1), 1, "it outlives the cache");
}

#[test]
fn a_slab_that_was_held_goes_after_the_numbers_of_its_blocks() {
    let cache = cache(Policy::RawOnly, 1, 400_000);
    for key in 0..600 {
        let load = |frame: &mut [u8]| {
            write(frame, key, 1);
            Ok(())
        };
        cache.get_or_load(key, 200, load).expect("room");
    }
    let held = cache.get(&599).expect("room").expect("the newest");
    cache.set_budget(0).expect("nothing to write");
    assert_eq!(cache.stats().memory.slab_bytes, SLAB as u64);
    assert_eq!(read(&held, 599), 1);
    drop(held);
    cache.set_budget(0).expect("nothing to write");
    assert_eq!(cache.stats().memory.slab_bytes, 0);
    audit(&cache);
}

#[test]
fn guards_have_a_cap() {
    let cache = cache(Policy::RawOnly, 1, 400_000);
    let ask = |key: u64, raw_bytes: usize| cache.get_or_load(key, raw_bytes, |_| Ok(()));
    let mut held: Vec<BlockGuard> = (0..6)
        .map(|key| ask(key, SLAB).expect("six slabs"))
        .collect();
    for raw_bytes in [SLAB, SLAB + 1] {
        let refused = ask(6, raw_bytes).expect_err("the seventh");
        let Error::Limit { limit_bytes, .. } = refused else {
            panic!("{refused}");
        };
        assert_eq!(limit_bytes, 6 * SLAB as u64);
    }
    assert!(cache.get(&0).is_ok(), "it is pinned already");
    held.pop();
    ask(6, SLAB).expect("one slab");
    ask(7, 100).expect("the other guard was dropped at once");
    let huge = ask(8, usize::MAX).expect_err("more than there is");
    assert!(matches!(huge, Error::Limit { .. }), "{huge}");
    held.clear();
    assert_eq!(ask(9, 5 * SLAB).expect("handed through").len(), 5 * SLAB);
    audit(&cache);
}

/// Loads blocks by loaders that report success without filling the end of their frame, as after a short read. The
/// cache's memory held other keys' blocks before.
fn check_unfilled(name: &str, policy: Policy) {
    const OTHERS: u64 = 4000;
    let mut random = seeded(name, 0x51de);
    let cache = cache(policy, 1, 1 << 20);
    for key in 1..OTHERS {
        let block = cache.get_or_load(key, 1024, |frame| {
            write(frame, key, 1);
            Ok(())
        });
        read(&block.expect("a sound loader"), key);
    }
    let mut left = 0;
    for key in OTHERS..2 * OTHERS {
        let length = match key % 50 {
            0 => SLAB + 1024,
            _ => random.usize(32..2500),
        };
        let written = random.usize(0..length);
        let mut overtaken = false;
        let block = cache.get_or_load(key, length, |frame| {
            frame[..written].fill(key as u8);
            overtaken = key % 50 == 1;
            if overtaken {
                cache.insert(key, &[key as u8; 1024], 0)?;
            }
            Ok(())
        });
        let block = block.expect("a sound loader");
        let (head, tail) = block.split_at(written);
        assert!(head.iter().all(|byte| *byte == key as u8), "key {key}");
        assert!(tail.iter().all(|byte| *byte == 0), "another key's bytes");
        left += tail.len();
        if !overtaken && let Some(again) = cache.get(&key).expect("room for a guard") {
            assert_eq!(*again, *block);
        }
    }
    audit(&cache);
    println!("{name}: {left} bytes left by loaders");
    assert!(left > 1 << 20, "{left} bytes left by loaders");
}

#[test]
fn what_a_loader_leaves_is_zero_raw_only() {
    check_unfilled("unfilled raw only", Policy::RawOnly);
}

#[test]
fn what_a_loader_leaves_is_zero_with_lz4() {
    check_unfilled("unfilled with lz4", lz4(0.5));
}

#[test]
fn a_damaged_block_is_loaded_again() {
    let cache = cache(lz4(0.5), 1, 300_000);
    let ask = |key: u64, version: u64| {
        let load = |frame: &mut [u8]| {
            write(frame, key, version);
            Ok(())
        };
        read(&cache.get_or_load(key, 2000, load).expect("loaded"), key)
    };
    for key in 0..200 {
        ask(key, 1);
    }
    let mut damaged = Vec::new();
    {
        let shard = &mut cache.slots[0].lock().shard;
        for number in shard.numbers() {
            let entry = *shard.entries.at(number);
            if entry.packed.is_some() && !entry.raw.is_some() {
                let length = entry.packed_bytes as usize;
                shard.segments.bytes_mut(entry.packed, length)[length / 2] ^= 1;
                damaged.push(entry.key);
            }
        }
    }
    assert!(damaged.len() > 20);
    let loaded_again = damaged.iter().filter(|key| ask(**key, 2) == 2).count();
    let corrupt = cache.stats().shards.corrupt;
    println!("{corrupt} damaged blocks found, {loaded_again} loaded again");
    assert!(loaded_again == damaged.len() && corrupt > 10);
    audit(&cache);
}

#[test]
fn keys_that_collide_are_told_apart_by_threads() {
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Colliding(u64);
    impl Hash for Colliding {
        fn hash<H: Hasher>(&self, state: &mut H) {
            state.write_u64(self.0 % 2);
        }
    }
    let options = CacheOptions {
        budget_bytes: 300_000,
        block_bytes: 1024,
        shard_count: Some(1),
        policy: lz4(0.5),
        ..CacheOptions::default()
    };
    let cache: Cache<Colliding> = Cache::new(options).expect("a cache");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for round in 0..4 {
                    for key in 0..400 {
                        let block = cache
                            .get_or_load(Colliding(key), 900, |frame| {
                                write(frame, key, 1);
                                Ok(())
                            })
                            .expect("loaded");
                        assert_eq!(read(&block, key), 1, "round {round}");
                    }
                }
            });
        }
    });
    let stats = cache.stats().shards;
    assert!(stats.raw_hits > 100 && stats.packed_hits > 100, "{stats:?}");
}

#[test]
fn the_defaults_suit_every_budget_and_machine() {
    for budget_bits in 20..=40 {
        for processors in 1..=256 {
            for block_bytes in [512, 8 << 10, 256 << 10] {
                let options = CacheOptions {
                    budget_bytes: 1 << budget_bits,
                    block_bytes,
                    ..CacheOptions::default()
                };
                let (count, sized) = options.layout(processors).expect("the defaults");
                let (budget, slab_bytes) = (options.budget_bytes, sized.slab_bytes);
                assert!(count.is_power_of_two() && count <= processors * 4);
                let guarded = guard_bytes_max(None, &sized);
                let name = format!("{budget} bytes, {processors} processors, {count} shards");
                assert!(guarded >= 8 * slab_bytes as u64, "{name}");
                // At most a quarter, where several shards share it.
                assert!(count == 1 || guarded * count as u64 <= budget / 4, "{name}");
            }
        }
    }
}

#[test]
fn a_cap_that_was_asked_for_has_fewer_shards() {
    let options = CacheOptions {
        budget_bytes: 8 << 30,
        pinned_bytes_max: Some(16 << 20),
        ..CacheOptions::default()
    };
    for processors in [1, 5, 16, 64] {
        let (count, sized) = options.layout(processors).expect("shards enough");
        assert!(count as u64 * 8 * sized.slab_bytes as u64 <= 16 << 20);
    }
}

#[test]
fn loads_in_flight_are_not_held_against_guards() {
    // Each thread holds four guards while it loads, in shards of as many slabs as threads.
    let threads = 8;
    let options = CacheOptions {
        budget_bytes: 64 << 20,
        shard_count: Some(1),
        pinned_bytes_max: Some(threads * 4 * (256 << 10)),
        ..CacheOptions::default()
    };
    let cache = Cache::<u64, Fixed>::with_hasher(options, Fixed::default()).expect("a cache");
    // The slabs of these are listed one after another, up to the last that is allowed.
    let block_bytes = 256 << 10;
    let ask = |key: u64| cache.get_or_load(key, block_bytes, |_| Ok(()));
    let held: Vec<BlockGuard> = (0..threads * 4 - 1)
        .map(|key| ask(key).expect("room"))
        .collect();
    let last = ask(1000).expect("the last one");
    drop(last);
    drop(ask(1001).expect("in its place"));
    let loaded = cache.get_or_load(2000, 100, |_| {
        // A load is in flight in another slab, and another thread asks for the held block.
        let again = cache.get(&1000)?.expect("held");
        assert!(again.is_lent());
        Ok(())
    });
    drop(loaded.expect("room for both"));
    drop(held);
}

#[test]
fn no_length_is_too_large_to_be_refused() {
    let options = CacheOptions {
        pinned_bytes_max: Some(u64::MAX),
        shard_count: Some(1),
        ..CacheOptions::default()
    };
    let cache: Cache<u64> = Cache::new(options).expect("a cache");
    for raw_bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        let found = cache.get_or_load(1, raw_bytes, |_| Ok(()));
        assert!(matches!(found, Err(Error::Limit { .. })), "{found:?}");
    }
    assert_eq!(
        cache.get_or_load(1, 10, |_| Ok(())).expect("room").len(),
        10
    );
}

#[test]
fn keys_that_are_their_own_hash_are_spread() {
    #[derive(Clone, Default)]
    struct Same(u64);
    impl Hasher for Same {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, _: &[u8]) {
            unreachable!("keys are numbers");
        }
        fn write_u64(&mut self, key: u64) {
            self.0 = key;
        }
    }
    let options = CacheOptions {
        shard_count: Some(16),
        ..CacheOptions::default()
    };
    let hasher = BuildHasherDefault::<Same>::default();
    let cache: Cache<u64, _> = Cache::with_hasher(options, hasher).expect("a cache");
    for key in 0..1600 {
        cache.insert(key, &[1; 100], 0).expect("nothing to write");
    }
    let counts = cache
        .slots
        .iter()
        .map(|slot| slot.lock().shard.memory().blocks);
    let counts: Vec<u64> = counts.collect();
    assert!(
        counts.iter().all(|count| (50..200).contains(count)),
        "{counts:?}"
    );
}

#[test]
fn all_shards_end_with_one_budget() {
    explore("budgets", orders() / 4, || {
        let world = World::new(cache(Policy::RawOnly, 4, 300_000), 1, 512);
        let done = Arc::new(AtomicU64::new(0));
        let task = |bytes: u64| -> Task {
            let (world, done) = (Arc::clone(&world), Arc::clone(&done));
            Box::new(move || {
                world.cache.set_budget(bytes).expect("nothing to write");
                if done.fetch_add(1, SeqCst) == 1 {
                    let of = |at: usize| {
                        let state = world.cache.slots[at].lock();
                        state.shard.memory().budget_bytes
                    };
                    let budgets = [0, 1, 2, 3].map(of);
                    assert!(budgets.iter().all(|it| *it == budgets[0]), "{budgets:?}");
                }
            })
        };
        vec![task(100_000), task(200_000)]
    });
}

#[test]
fn options_out_of_range_are_refused() {
    let refused = |change: fn(&mut CacheOptions)| {
        let mut options = CacheOptions::default();
        change(&mut options);
        match Cache::<u64>::new(options) {
            Err(Error::Invalid { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(|it| it.shard_count = Some(0)), "number of shards");
    assert_eq!(refused(|it| it.block_bytes = 0), "bytes of a block");
    assert_eq!(
        refused(|it| it.pinned_bytes_max = Some(1 << 10)),
        "bytes that may be pinned"
    );
    assert_eq!(refused(|it| it.methods.clear()), "number of methods");
    assert_eq!(
        refused(|it| it.prices.per_core_second = f64::NAN),
        "price of a second"
    );
    assert_eq!(
        refused(|it| it.prices.per_core_second = -1.0),
        "price of a second"
    );
    assert_eq!(
        refused(|it| it.prices.per_waiting_second = f64::INFINITY),
        "price of a second"
    );
    assert_eq!(refused(|it| it.policy = lz4(f64::NAN)), "share");
    assert_eq!(refused(|it| it.policy = lz4(1.5)), "share");
}
