//! Faults from below and from outside: compressors that fail, lengths that cannot be held.

use super::model_test::{Fixed, Tested};
use super::*;
use crate::error::Error;

fn shard(policy: Policy) -> Tested {
    let options = ShardOptions {
        budget_bytes: 200_000,
        slab_bytes: 4096,
        policy,
        ..ShardOptions::default()
    };
    Shard::with_hasher(options, Fixed::default()).expect("a shard")
}

fn content(key: u64) -> Vec<u8> {
    format!("block {key} ").into_bytes().repeat(64)
}

/// Asks for keys, one after another, and checks every byte. Returns how often a block was found.
fn ask(shard: &mut Tested, bench: &mut Bench, accesses: u64) -> u64 {
    let before = shard.stats().misses;
    let mut random = crate::testing::seeded("failing compressors", 5);
    for _ in 0..accesses {
        let key = (400.0 * random.f64().powi(2)) as u64;
        let expected = content(key);
        let load = |frame: &mut [u8]| {
            frame.copy_from_slice(&expected);
            Ok(())
        };
        let found = shard.get_or_load(key, expected.len(), bench, load);
        assert_eq!(found.expect("the loader is sound"), expected);
        shard.audit();
    }
    accesses - (shard.stats().misses - before)
}

#[test]
fn a_compressor_that_fails_loses_room_and_no_byte() {
    let split = Policy::Static(Arm {
        compressed_share: 0.8,
        method: 1,
        admits_once: true,
    });
    let run = |policy, fails_every| {
        let (mut shard, mut bench) = (shard(policy), Bench::new());
        bench.fails_every = fails_every;
        let found = ask(&mut shard, &mut bench, 6000);
        (found, *shard.stats(), shard.memory())
    };
    let (sound, stats, _) = run(split, 0);
    assert!(
        stats.compressed > 100 && stats.packed_hits > 1000,
        "{stats:?}"
    );
    let (found, stats, _) = run(split, 3);
    assert!(
        stats.compressed > 100 && stats.packed_hits > 100,
        "{stats:?}"
    );
    assert!(found <= sound, "{found} of {sound}");
    let (_, stats, memory) = run(split, 1);
    assert_eq!(
        (stats.compressed, stats.packed_hits, memory.packed_bytes),
        (0, 0, 0)
    );
    assert!(stats.raw_hits > 1000, "{stats:?}");
    // Nor if methods are tried before anything is compressed.
    for fails_every in [1, 2] {
        let (found, stats, _) = run(Policy::Adaptive, fails_every);
        assert!(found > 1000 && stats.raw_hits > 1000, "{stats:?}");
    }
}

#[test]
fn a_compressor_that_recovers_is_used_again() {
    let (mut shard, mut bench) = (
        shard(Policy::Static(Arm {
            compressed_share: 0.8,
            method: 0,
            admits_once: true,
        })),
        Bench::new(),
    );
    bench.fails_every = 1;
    ask(&mut shard, &mut bench, 3000);
    assert_eq!(shard.stats().compressed, 0);
    bench.fails_every = 0;
    ask(&mut shard, &mut bench, 3000);
    assert!(
        shard.stats().compressed > 100,
        "a failure is no verdict on the block"
    );
}

#[test]
fn lengths_that_nothing_can_hold_are_refused() {
    let (mut shard, mut bench) = (shard(Policy::Adaptive), Bench::new());
    for raw_bytes in [usize::MAX, usize::MAX / 2, 1 << 60] {
        let found = shard.get_or_load(1, raw_bytes, &mut bench, |_| Ok(()));
        assert!(matches!(found, Err(Error::Invalid { .. })), "{raw_bytes}");
        shard.audit();
    }
    // A block larger than a slab is handed through, of any odd length.
    for raw_bytes in [0, 1, 4095, 4096, 4097, 1_000_003] {
        let found = shard.get_or_load(raw_bytes as u64, raw_bytes, &mut bench, |frame| {
            frame.fill(7);
            Ok(())
        });
        assert_eq!(found.expect("loaded"), vec![7; raw_bytes]);
        shard.audit();
    }
    assert_eq!(shard.stats().too_large, 2);
}
