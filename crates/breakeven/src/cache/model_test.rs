//! The shard against a map: only bytes that were put in, and every byte accounted for after each operation.
//!
//! A cache may forget, so the map gives the right content of any found block. The tests of the policy check that blocks
//! are found.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher};

use super::entry::Queue;
use super::*;
use crate::error::Error;
use crate::testing::{is_full, seeded};

pub(super) type Fixed = BuildHasherDefault<DefaultHasher>;
pub(super) type Tested = Shard<u64, Fixed>;

const SLAB: usize = 4096;

/// Makes the content of a version of a key: text, noise or one byte, of any length.
fn content(key: u64, version: u64, random: &mut fastrand::Rng) -> Vec<u8> {
    let length = match random.u32(0..20) {
        0 => 0,
        1 => SLAB,
        2 => SLAB + random.usize(1..5000),
        3..8 => random.usize(1..64),
        _ => random.usize(1..2000),
    };
    let mut bytes: Vec<u8> = match key % 4 {
        0 => (0..length).map(|_| random.u8(..)).collect(),
        1 => vec![version as u8; length],
        _ => (0..length).map(|at| b"compressible "[at % 13]).collect(),
    };
    // The name of the block, so that no two are the same.
    if key % 4 != 1 {
        let name = [key.to_le_bytes(), version.to_le_bytes()].concat();
        bytes
            .iter_mut()
            .zip(name)
            .for_each(|(byte, mark)| *byte = mark);
    }
    bytes
}

fn shard(policy: Policy, budget_bytes: u64) -> Tested {
    let options = ShardOptions {
        budget_bytes,
        slab_bytes: SLAB,
        policy,
        ..ShardOptions::default()
    };
    Shard::with_hasher(options, Fixed::default()).expect("a shard")
}

impl Tested {
    /// Counts everything again and compares it with the books.
    pub(super) fn audit(&mut self) {
        let memory = self.memory();
        let (mut raw, mut packed, mut known, mut held) = ([0u64; 2], 0u64, 0u64, 0u64);
        let mut forms_of = HashMap::<u32, usize>::new();
        for number in self.numbers() {
            let entry = self.entries.at(number);
            known += 1;
            held += u64::from(entry.raw_bytes);
            if entry.raw.is_some() {
                raw[usize::from(entry.queue() == Queue::Main)] += u64::from(entry.raw_bytes);
                self.segments.bytes(entry.raw, entry.raw_bytes as usize);
            }
            if entry.packed.is_some() {
                packed += u64::from(entry.packed_bytes);
                let form = entry.packed_bytes.max(1).next_multiple_of(8);
                *forms_of.entry(entry.packed.segment).or_default() += form as usize;
                self.segments
                    .bytes(entry.packed, entry.packed_bytes as usize);
            }
            assert!(
                entry.raw.is_some() || entry.packed.is_some(),
                "an entry without bytes"
            );
        }
        assert_eq!(raw, [self.small.live_bytes, self.main.live_bytes]);
        assert_eq!(packed, self.packed.live_bytes);
        for (segment, forms) in forms_of {
            let used = forms + self.segments.hole_bytes(segment);
            assert_eq!(used, self.segments.used_bytes(segment), "form or hole");
        }
        assert_eq!((known, held), (memory.blocks, memory.held_bytes));
        let segments = [&self.small, &self.main, &self.packed].map(|log| log.segment_count());
        let segments = segments.iter().sum::<usize>() + self.aside.len();
        assert_eq!(segments, self.segments.count(), "a segment is in no log");
        let arena = self.segments.arena().stats();
        assert_eq!(arena.in_use_bytes, memory.slab_bytes);
        assert!(arena.mapped_bytes <= memory.slab_bytes.max(arena.budget_bytes));
        // A block set aside while it is lent goes for good at the next making of room.
        let lent = self.segments.count_lent();
        if lent + self.aside.len() == 0 {
            let (found, most) = (memory.in_use_bytes(), memory.budget_bytes);
            assert!(found <= most || memory.slab_bytes == 0, "{memory:?}");
        }
    }
}

/// A shard, and the right content of its blocks.
struct Pair {
    shard: Tested,
    bench: Bench,
    blocks: HashMap<u64, Vec<u8>>,
    versions: u64,
    found: u64,
}

impl Pair {
    fn new(policy: Policy, budget_bytes: u64) -> Pair {
        Pair {
            shard: shard(policy, budget_bytes),
            bench: Bench::new(),
            blocks: HashMap::new(),
            versions: 0,
            found: 0,
        }
    }

    fn next(&mut self, key: u64, random: &mut fastrand::Rng) -> Vec<u8> {
        self.versions += 1;
        content(key, self.versions, random)
    }

    /// Does one operation at random.
    fn step(&mut self, random: &mut fastrand::Rng) {
        // A few keys are frequent, and many rare.
        let key = (300.0 * random.f64().powi(3)) as u64;
        match random.u32(0..1000) {
            0..500 => {
                let new = self.next(key, random);
                let before = self.shard.stats().misses;
                let load = |frame: &mut [u8]| {
                    frame.copy_from_slice(&new);
                    Ok(())
                };
                let (raw_bytes, class) = (new.len(), key as u8 % 3);
                let spec = BlockSpec { raw_bytes, class };
                let found = self
                    .shard
                    .get_or_load(key, spec, &mut self.bench, load)
                    .expect("the loader is sound")
                    .to_vec();
                if self.shard.stats().misses > before {
                    assert_eq!(found, new, "key {key} as it was loaded");
                    self.blocks.insert(key, new);
                } else {
                    assert_eq!(Some(&found), self.blocks.get(&key), "key {key}");
                    self.found += 1;
                }
            }
            500..750 => {
                if let Some(found) = self.shard.get(&key, &mut self.bench) {
                    assert_eq!(
                        Some(found),
                        self.blocks.get(&key).map(|it| &it[..]),
                        "key {key}"
                    );
                    self.found += 1;
                }
            }
            750..880 => {
                let new = self.next(key, random);
                if self.shard.insert(key, &new, 0, &mut self.bench) {
                    let found = self.shard.get(&key, &mut self.bench).expect("just put in");
                    assert_eq!(found, new);
                }
                self.blocks.insert(key, new);
            }
            880..950 => {
                self.shard.remove(&key);
                assert_eq!(self.shard.get(&key, &mut self.bench), None);
                self.blocks.remove(&key);
            }
            950..999 => {
                let result = self
                    .shard
                    .get_or_load(1000 + key, 100, &mut self.bench, |_| {
                        Err(Error::Interrupted)
                    });
                assert!(matches!(result, Err(Error::Interrupted)));
                assert_eq!(self.shard.get(&(1000 + key), &mut self.bench), None);
            }
            _ => {
                let budget = [0, 20_000, 100_000, 150_000, 200_000][random.usize(0..5)];
                self.shard.set_budget(budget, &mut self.bench);
            }
        }
    }
}

fn check_model(name: &str, policy: Policy) {
    let steps = if is_full() { 400_000 } else { 20_000 };
    let mut random = seeded(&format!("{name}, {steps} steps"), 11);
    let mut pair = Pair::new(policy, 200_000);
    for _ in 0..steps {
        pair.step(&mut random);
        pair.shard.audit();
    }
    let stats = *pair.shard.stats();
    println!("{name}: {} found, {stats:?}", pair.found);
    assert!(pair.found > steps / 10, "hardly anything was found");
    assert!(stats.too_large > steps / 200 && stats.misses > steps / 20);
    if let Policy::Static(arm) = policy
        && arm.compressed_share > 0.0
    {
        assert!(stats.compressed > steps / 100 && stats.packed_hits > steps / 100);
        assert!(stats.filled > 100 && stats.incompressible > 20 && stats.twins > 20);
    }
    pair.shard.set_budget(0, &mut pair.bench);
    assert_eq!(pair.shard.memory().slab_bytes, 0);
}

fn split(compressed_share: f64, method: u8, admits_once: bool) -> Policy {
    Policy::Static(Arm {
        compressed_share,
        method,
        admits_once,
    })
}

#[test]
fn no_byte_is_wrong_or_uncounted_raw_only() {
    check_model("raw only", Policy::RawOnly);
}

#[test]
fn no_byte_is_wrong_or_uncounted_with_lz4() {
    check_model("lz4", split(0.4, 0, true));
}

#[test]
fn no_byte_is_wrong_or_uncounted_with_zstd() {
    check_model("zstd", split(0.8, 1, false));
}

#[test]
fn no_byte_is_wrong_or_uncounted_adaptive() {
    check_model("adaptive", Policy::Adaptive);
}

fn fill(shard: &mut Tested, bench: &mut Bench, keys: std::ops::Range<u64>, bytes: usize) {
    for key in keys {
        let load = |frame: &mut [u8]| {
            frame.fill(b'-');
            frame
                .iter_mut()
                .zip(key.to_le_bytes())
                .for_each(|(byte, mark)| *byte = mark);
            Ok(())
        };
        shard.get_or_load(key, bytes, bench, load).expect("loaded");
        shard.audit();
    }
}

#[test]
fn a_handle_from_before_the_budget_changed_finds_nothing() {
    let mut bench = Bench::new();
    let mut shard = shard(split(0.5, 0, true), 100_000);
    fill(&mut shard, &mut bench, 0..200, 512);
    let handles: Vec<Handle> = (0..200)
        .filter_map(|key| match shard.lookup(&key, &mut bench) {
            Lookup::Raw(handle) | Lookup::Packed(handle) => Some(handle),
            Lookup::Absent => None,
        })
        .collect();
    assert!(handles.len() > 100);
    let is_found = |shard: &mut Tested, handle: Handle, bench: &mut Bench| {
        shard.bytes(handle).is_some() || shard.restore(handle, bench) != Restored::Lost
    };
    shard.set_budget(0, &mut bench);
    for &handle in &handles {
        assert!(!is_found(&mut shard, handle, &mut bench), "{handle:?}");
    }
    shard.set_budget(100_000, &mut bench);
    fill(&mut shard, &mut bench, 1000..1200, 512);
    for &handle in &handles {
        assert!(!is_found(&mut shard, handle, &mut bench), "{handle:?}");
    }
}

#[test]
fn a_damaged_compressed_block_is_absent_and_counted() {
    let mut bench = Bench::new();
    let mut shard = shard(split(0.5, 0, true), 100_000);
    fill(&mut shard, &mut bench, 0..200, 1024);
    let packed: Vec<u32> = shard
        .numbers()
        .into_iter()
        .filter(|&number| {
            let entry = shard.entries.at(number);
            entry.packed.is_some() && !entry.raw.is_some()
        })
        .collect();
    assert!(packed.len() > 50, "{} compressed", packed.len());
    let (mut damaged, mut sound) = (0, 0);
    for (turn, number) in packed.into_iter().enumerate() {
        let entry = *shard.entries.at(number);
        let bytes = entry.packed_bytes as usize;
        let at = turn % bytes;
        shard.segments.bytes_mut(entry.packed, bytes)[at] ^= 1 << (turn % 8);
        assert_eq!(
            shard.get(&entry.key, &mut bench),
            None,
            "byte {at} of {bytes}"
        );
        damaged += 1;
        shard.audit();
        sound += u64::from(shard.get(&(entry.key + 1), &mut bench).is_some());
    }
    assert_eq!(shard.stats().corrupt, damaged);
    println!("{damaged} damaged blocks found, {sound} sound neighbours read");
    assert!(sound > 20);
}

#[test]
fn a_panic_of_the_loader_leaves_no_block() {
    let mut bench = Bench::new();
    let mut shard = shard(Policy::RawOnly, 100_000);
    for _ in 0..100 {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let load =
                |_: &mut [u8]| -> crate::Result<()> { std::panic::resume_unwind(Box::new(7)) };
            shard.get_or_load(1, 4000, &mut bench, load).is_ok()
        }));
        assert!(panicked.is_err());
        shard.audit();
        assert_eq!(shard.get(&1, &mut bench), None);
    }
    assert_eq!(shard.memory().blocks, 0);
}

#[test]
fn keys_that_collide_are_told_apart() {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Colliding(u64);
    impl std::hash::Hash for Colliding {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            state.write_u64(self.0 % 2);
        }
    }
    let mut bench = Bench::new();
    let options = ShardOptions {
        budget_bytes: 200_000,
        slab_bytes: SLAB,
        policy: split(0.5, 0, true),
        ..ShardOptions::default()
    };
    let mut shard: Shard<Colliding> = Shard::new(options).expect("a shard");
    let mut found = 0;
    for round in 0..6 {
        for key in 0..300 {
            let before = shard.stats().misses;
            let load = |frame: &mut [u8]| {
                frame.fill(key as u8);
                frame[0] = (key >> 8) as u8;
                Ok(())
            };
            let block = shard
                .get_or_load(Colliding(key), 900, &mut bench, load)
                .expect("loaded");
            assert_eq!(
                [block[0], block[899]],
                [(key >> 8) as u8, key as u8],
                "round {round}"
            );
            found += u64::from(shard.stats().misses == before);
        }
    }
    println!("{found} of 1800 found");
    assert!(found > 200);
}
