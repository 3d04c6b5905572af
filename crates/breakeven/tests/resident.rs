//! The growth of a process by a cache while blocks of many sizes come and go: never more than its budget and 3 %.
//!
//! Each cache has a process to itself, so that nothing else is measured; the test starts itself again for that. The
//! process is measured, and not the cache's own figures: allocator, codecs and lists are included.

use std::env;
use std::fs;
use std::process::{Child, Command};

use breakeven::cache::{Arm, Cache, CacheOptions, Policy};

/// Names the case of this process.
const CASE: &str = "BREAKEVEN_RESIDENT_CASE";
const TEST: &str = "a_cache_adds_no_more_than_its_budget_to_its_process";
const BUDGET_BYTES: u64 = 32 << 20;
/// The most of the process, over the budget.
const SHARE_MAX: f64 = 1.03;
/// The least of it, so that the cache was really seen.
const SHARE_MIN: f64 = 0.8;
/// The number of measurements.
const LOOKS: u64 = 128;

/// Blocks of a cache and its work on them.
struct Case {
    name: &'static str,
    policy: Policy,
    /// Lengths as powers of two, all equally likely.
    log2_bytes: (f64, f64),
    /// As the options say.
    block_bytes: usize,
    /// Keys are drawn from so many times the blocks that the budget would hold.
    keys_over_held: u64,
    /// Bytes put in, over the budget.
    rounds: u64,
}

const SPLIT: Policy = Policy::Static(Arm {
    compressed_share: 0.8,
    method: 1,
    admits_once: true,
});

const CASES: [Case; 4] = [
    case("raw of all sizes", Policy::RawOnly, (0.0, 20.0), 24),
    case("compressed of all sizes", SPLIT, (0.0, 20.0), 24),
    case("raw below 300 bytes", Policy::RawOnly, (0.0, 8.23), 3),
    case("compressed below 300 bytes", SPLIT, (0.0, 8.23), 3),
];

const fn case(name: &'static str, policy: Policy, log2_bytes: (f64, f64), rounds: u64) -> Case {
    Case {
        name,
        policy,
        log2_bytes,
        block_bytes: if log2_bytes.1 > 18.0 {
            256 << 10
        } else {
            8 << 10
        },
        keys_over_held: 4,
        rounds,
    }
}

impl Case {
    /// The length of a key's block.
    fn bytes(&self, key: u64) -> usize {
        let (low, high) = self.log2_bytes;
        let at = fastrand::Rng::with_seed(key).f64();
        (low + at * (high - low)).exp2() as usize
    }

    fn mean_bytes(&self) -> u64 {
        let (low, high) = self.log2_bytes;
        let area = (high.exp2() - low.exp2()) / std::f64::consts::LN_2;
        (area / (high - low)) as u64
    }
}

/// Returns the bytes of the process that have memory behind them, as its page tables say.
fn resident_bytes() -> u64 {
    let rollup = fs::read_to_string("/proc/self/smaps_rollup").expect("a Linux of 2017 or later");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kib: u64 = kib.expect("a size").trim().parse().expect("a number");
    kib << 10
}

#[test]
fn a_cache_adds_no_more_than_its_budget_to_its_process() {
    if let Ok(name) = env::var(CASE) {
        let case = CASES.iter().find(|case| case.name == name);
        churn(case.expect("a case"));
        return;
    }
    let program = env::current_exe().expect("this program");
    let start = |case: &Case| -> Child {
        let mut child = Command::new(&program);
        child
            .args(["--exact", TEST, "--nocapture"])
            .env(CASE, case.name);
        child.spawn().expect("itself")
    };
    let children: Vec<Child> = CASES.iter().map(start).collect();
    for (mut child, case) in children.into_iter().zip(&CASES) {
        let status = child.wait().expect("it ends");
        assert!(status.success(), "{}", case.name);
    }
}

/// Puts blocks in, and looks some of them up again, for the rounds of the case.
fn churn(case: &Case) {
    let mut random = fastrand::Rng::with_seed(7);
    let text: Vec<u8> = (0..2 << 20)
        .map(|at: u32| (at >> 4).wrapping_mul(2_654_435_761).to_be_bytes()[at as usize & 1])
        .collect();
    let options = CacheOptions {
        budget_bytes: BUDGET_BYTES,
        block_bytes: case.block_bytes,
        policy: case.policy,
        ..CacheOptions::default()
    };
    let keys = case.keys_over_held * BUDGET_BYTES / case.mean_bytes();
    let accesses = case.rounds * BUDGET_BYTES / case.mean_bytes();
    let before = resident_bytes();
    let cache: Cache<u64> = Cache::new(options).expect("a cache");
    let (mut most, mut used_most) = (0, 0);
    for access in 0..accesses {
        // Half of them from a quarter of the keys, so that some come back.
        let reach = if random.bool() { keys / 4 } else { keys };
        let key = random.u64(..reach);
        let bytes = case.bytes(key);
        let at = random.usize(..text.len() - bytes);
        let block = &text[at..][..bytes];
        if random.u8(..10) == 0 {
            cache.insert(key, block, 0).expect("inserted");
        } else {
            let found = cache.get_or_load(key, bytes, |frame| {
                frame.copy_from_slice(block);
                Ok(())
            });
            assert_eq!(found.expect("loaded").len(), bytes);
        }
        if access % (accesses / LOOKS) == 0 {
            most = most.max(resident_bytes().saturating_sub(before));
            used_most = used_most.max(cache.stats().memory.in_use_bytes());
        }
    }
    let share = |bytes: u64| bytes as f64 / BUDGET_BYTES as f64;
    let found = share(most);
    let blocks = cache.stats().memory.blocks;
    println!(
        "{}: {found:.4} of the budget, {:.4} by its own account, {accesses} accesses, {blocks} blocks at the end",
        case.name,
        share(used_most)
    );
    assert!(
        found <= SHARE_MAX,
        "{}: {found:.4} of the budget",
        case.name
    );
    assert!(
        found >= SHARE_MIN,
        "{}: {found:.4} of the budget",
        case.name
    );
}
