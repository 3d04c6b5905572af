//! The prediction of a cache ([`predict`]) against the shard's own result.

use std::hash::{BuildHasherDefault, DefaultHasher};

use super::{Pattern, Workload};
use crate::cache::{
    Accesses, Arm, Bench, BlockKind, Events, MissTime, Policy, Predicted, Prospect, Record,
    RecordedMethod, Shard, ShardOptions, predict,
};
use crate::model::{Access, Coverage};
use crate::units::{Estimate, Seconds};

const BLOCK: u32 = 8192;
/// The methods' sizes of a block: they leave about half a block at the end of a slab of 32 KiB.
const PACKED: [f64; 2] = [3851.0, 2110.0];

fn arm(compressed_share: f64, method: u8, admits_once: bool) -> Arm {
    Arm {
        compressed_share,
        method,
        admits_once,
    }
}

fn prospect(memory_bytes: u64, kinds: Vec<BlockKind>) -> Prospect {
    Prospect {
        memory_bytes,
        block_bytes: BLOCK,
        methods: ["lz4:1", "zstd:1"]
            .map(|name| name.parse().expect("a method"))
            .to_vec(),
        kinds,
        arms: vec![arm(0.5, 1, true), arm(0.8, 1, true), arm(0.8, 0, false)],
        part: 1.0,
    }
}

fn shrinking() -> BlockKind {
    BlockKind {
        share: 1.0,
        packed_per_raw: PACKED.map(|bytes| bytes / f64::from(BLOCK)).to_vec(),
    }
}

/// Misses, restorations and compressions of an access, as the shard itself counts them.
fn really(keys: &[u64], memory_bytes: u64, arm: Arm) -> [f64; 3] {
    let method = |name: &str, packed: f64| RecordedMethod {
        method: name.parse().expect("a method"),
        encode_seconds_per_byte: 0.0,
        decode_seconds_per_byte: 0.0,
        ratios: [f64::from(BLOCK) / (packed - 0.5); 2],
    };
    let record = Record {
        methods: vec![method("lz4:1", PACKED[0]), method("zstd:1", PACKED[1])],
        miss: MissTime {
            core: Seconds(0.0),
            waiting: Seconds(1e-3),
        },
        shadow_sample: Seconds(0.0),
    };
    let options = ShardOptions {
        policy: Policy::Static(arm),
        ..ShardOptions::sized(memory_bytes, BLOCK as usize)
    };
    // The same hashes each time: with others some runs deviate more.
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut shard = Shard::with_hasher(options, hasher).expect("a shard");
    let mut bench = Bench::recorded(record);
    let filling = keys.len() / 3;
    let mut before = *shard.stats();
    for (at, key) in keys.iter().enumerate() {
        if at == filling {
            before = *shard.stats();
        }
        let load = |frame: &mut [u8]| {
            frame[..8].copy_from_slice(&(key << 8 | 1).to_le_bytes());
            Ok(())
        };
        let found = shard.get_or_load(*key, BLOCK as usize, &mut bench, load);
        found.expect("the loader is sound");
    }
    let (now, count) = (shard.stats(), (keys.len() - filling) as f64);
    let found = [
        now.misses - before.misses,
        now.packed_hits - before.packed_hits,
        now.compressed - before.compressed,
    ];
    found.map(|events| events as f64 / count)
}

fn per_access(of: &Predicted) -> [f64; 3] {
    let events = of.events();
    [events.misses, events.restored, events.compressed]
        .map(|count| count as f64 / events.accesses as f64)
}

#[test]
fn a_trace_is_foreseen_as_the_shard_has_it() {
    let memory = 8 << 20;
    // Of misses, restorations, compressions.
    let tolerances = [0.02, 0.02, 0.05];
    // A loop that just fits depends on the last block: this one fits.
    for (pattern, blocks) in [
        (Pattern::Zipf(0.9), 3000),
        (Pattern::Even, 3000),
        (Pattern::Loop, 2600),
    ] {
        let keys: Vec<u64> = Workload::new(pattern.clone(), blocks, 1)
            .take(90_000)
            .collect();
        let prospect = prospect(memory, vec![shrinking()]);
        let found = predict(&prospect, Accesses::Trace(&keys)).expect("foreseen");
        assert_eq!(found[0].arm, Arm::RAW_ONLY);
        assert_eq!(found[0].events().accesses, 60_000);
        for of in found {
            let (told, really) = (per_access(&of), really(&keys, memory, of.arm));
            println!(
                "{pattern:?} {:?}: told {told:.3?}, really {really:.3?}",
                of.arm
            );
            for ((told, really), tolerance) in told.iter().zip(really).zip(tolerances) {
                let off = (told - really).abs();
                assert!(off < tolerance, "{told} and {really}");
            }
        }
    }
}

/// A cache consists of slabs of at least four blocks. A small one holds less than its memory, and in less than one slab
/// nothing.
#[test]
fn small_memories_are_foreseen_by_their_slabs() {
    let keys: Vec<u64> = Workload::new(Pattern::Even, 200, 1).take(30_000).collect();
    for (memory, tolerance) in [(4 << 10, 0.0), (32 << 10, 0.0), (512 << 10, 0.1)] {
        let prospect = prospect(memory, vec![shrinking()]);
        for of in predict(&prospect, Accesses::Trace(&keys)).expect("foreseen") {
            let [told, ..] = per_access(&of);
            let [really, ..] = really(&keys, memory, of.arm);
            println!("{memory} {:?}: told {told:.3}, really {really:.3}", of.arm);
            assert!((told - really).abs() <= tolerance, "{told} and {really}");
        }
    }
}

#[test]
fn made_up_accesses_are_those_of_the_workload() {
    let memory = 8 << 20;
    let keys: Vec<u64> = Workload::new(Pattern::Zipf(0.9), 4096, 3)
        .take(150_000)
        .collect();
    let prospect = prospect(memory, vec![shrinking()]);
    let made_up = Accesses::MadeUp(Access::Zipf(0.9), 4096);
    let made_up = predict(&prospect, made_up).expect("foreseen");
    let trace = predict(&prospect, Accesses::Trace(&keys)).expect("foreseen");
    for (one, other) in made_up.iter().zip(&trace) {
        for (one, other) in per_access(one).iter().zip(per_access(other)) {
            assert!((one - other).abs() < 0.02, "{one} and {other}");
        }
    }
}

/// Data of any size are predicted from the same number of keys, without loss of skew.
#[test]
fn large_data_are_cut_down_with_their_skew() {
    for access in [
        Access::Zipf(0.9),
        Access::Zipf(1.1),
        Access::Pareto,
        Access::Even,
    ] {
        let blocks = 1u64 << 31;
        let memory = blocks / 4 * u64::from(BLOCK);
        let prospect = prospect(memory, vec![shrinking()]);
        let found = predict(&prospect, Accesses::MadeUp(access, blocks)).expect("foreseen");
        let raw = 1.0 - per_access(&found[0])[0];
        // The bound of any cache: one that always holds the hottest quarter.
        let best = access.hit_ratio(&Coverage {
            cached_buffers: blocks as f64 / 4.0,
            data_set_buffers: blocks as f64,
        });
        assert!(
            raw <= best + 0.02 && raw > best - 0.12,
            "{access:?}: {raw} of {best}"
        );
        assert!(per_access(&found[2])[0] < per_access(&found[0])[0]);
    }
}

/// Fewer keys give the same with a wider band, for made-up accesses and for a trace.
#[test]
fn a_part_of_the_keys_tells_the_same_less_sharply() {
    let blocks = 1 << 17;
    let keys: Vec<u64> = Workload::new(Pattern::Zipf(0.9), blocks, 1)
        .take(2 * blocks as usize)
        .collect();
    let whole = prospect(blocks / 4 * u64::from(BLOCK), vec![shrinking()]);
    let misses = |events: &Events| events.misses as f64;
    for accesses in [
        Accesses::MadeUp(Access::Zipf(0.9), blocks),
        Accesses::Trace(&keys),
    ] {
        let ratios = |part: f64| {
            let prospect = Prospect {
                part,
                ..whole.clone()
            };
            let found = predict(&prospect, accesses).expect("foreseen");
            let ratio = |of: &Predicted| of.cost_ratio(&found[0], misses);
            let ratios: Vec<Estimate> = found[1..].iter().map(ratio).collect();
            (found[0].events().accesses, ratios)
        };
        let (all_accesses, all) = ratios(1.0);
        for part in [0.25, 1.0 / 16.0] {
            let (accesses, some) = ratios(part);
            assert!((accesses as f64) < 1.5 * part * all_accesses as f64);
            for (some, all) in some.iter().zip(&all) {
                println!("{part}: {some:.4?}, of all {all:.4?}");
                assert!((some.mean / all.mean - 1.0).abs() < 0.05);
                assert!(some.high - some.low > all.high - all.low);
            }
        }
    }
}

#[test]
fn blocks_that_do_not_shrink_are_never_compressed() {
    let noise = BlockKind {
        share: 3.0,
        packed_per_raw: vec![1.0; 2],
    };
    let found = |kinds: Vec<BlockKind>| {
        let prospect = prospect(8 << 20, kinds);
        let made_up = Accesses::MadeUp(Access::Even, 4096);
        per_access(&predict(&prospect, made_up).expect("foreseen")[1])
    };
    let [raw_misses, restored, compressed] = found(vec![noise.clone()]);
    assert_eq!([restored, compressed], [0.0; 2]);
    let [all_misses, ..] = found(vec![shrinking()]);
    let [misses, restored, _] = found(vec![noise, shrinking()]);
    assert!(restored > 0.1 && restored < 0.25, "{restored}");
    assert!(all_misses < misses && misses < raw_misses, "{misses}");
}

#[test]
fn the_ratio_of_costs_has_the_error_of_its_groups() {
    let found = predict(
        &prospect(8 << 20, vec![shrinking()]),
        Accesses::MadeUp(Access::Zipf(0.9), 4096),
    )
    .expect("foreseen");
    let misses = |events: &Events| events.misses as f64;
    let ratio = found[2].cost_ratio(&found[0], misses);
    let expected = per_access(&found[2])[0] / per_access(&found[0])[0];
    assert!((ratio.mean - expected).abs() < 1e-12);
    assert!(
        ratio.low < ratio.mean && ratio.high - ratio.low < 0.2,
        "{ratio:?}"
    );
    assert_eq!(found[0].cost_ratio(&found[0], misses), Estimate::exact(1.0));
    assert_eq!(
        found[0].cost_ratio(&found[1], |_| 0.0),
        Estimate::exact(1.0)
    );
}

#[test]
fn what_cannot_be_foreseen_is_refused() {
    let sound = prospect(1 << 20, vec![shrinking()]);
    let refused = |prospect: &Prospect, accesses| {
        predict(prospect, accesses)
            .expect_err("nothing to foresee")
            .to_string()
    };
    assert!(refused(&sound, Accesses::Trace(&[])).contains("no access"));
    assert!(refused(&sound, Accesses::MadeUp(Access::Even, 0)).contains("no block"));
    let no_kinds = prospect(1 << 20, Vec::new());
    assert!(refused(&no_kinds, Accesses::Trace(&[1])).contains("kinds"));
    let mut other = sound.clone();
    other.arms.push(arm(0.5, 2, true));
    assert!(refused(&other, Accesses::Trace(&[1])).contains("methods"));
    let mut many = sound.clone();
    many.arms = vec![arm(0.5, 0, true); 1 << 10];
    assert!(refused(&many, Accesses::Trace(&[1])).contains("splits"));
    for part in [0.0, 1.5, f64::NAN] {
        let other = Prospect {
            part,
            ..sound.clone()
        };
        assert!(refused(&other, Accesses::Trace(&[1])).contains("part of the keys"));
    }
    // A cache without memory always misses.
    let none = prospect(0, vec![shrinking()]);
    let found = predict(&none, Accesses::Trace(&[1; 30])).expect("foreseen");
    assert_eq!(found[0].events().misses, 20);
}
