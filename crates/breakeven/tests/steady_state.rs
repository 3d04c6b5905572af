//! A stream and a cache in their steady state: no allocation for a block that is compressed, and no page fault
//! in a stream.
//!
//! One test alone in its process, because it counts the calls of all threads. `unsafe` here: a global allocator that
//! counts, which is an unsafe trait.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use breakeven::cache::{Arm, Bench, Cache, CacheOptions, Policy, Shard, ShardOptions};
use breakeven::codec::{Codec, Compressor, Method};
use breakeven::decide::Profile;
use breakeven::error::Result;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{
    Choice, Container, Frozen, Goal, Outcome, Priced, Rule, Writer, WriterOptions,
};
use breakeven::units::BytesPerSecond;

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 64;
/// Allocations that a goal may need in so many blocks: the record of an untried method takes memory once.
const TRIALS: u64 = 4;

/// Allocations of a load in a shard, for the list of frames being filled.
const LOAD_ALLOCATIONS: u64 = 2;
/// Allocations that a table may take to be made again.
const TABLE_ALLOCATIONS_MAX: u64 = 4;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the page faults of this process so far that needed no disk, or `None` where the system
/// does not tell.
fn page_faults() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name in brackets may hold spaces; the tenth field is the eighth behind it.
    stat.rsplit(')')
        .next()?
        .split_whitespace()
        .nth(7)?
        .parse()
        .ok()
}

#[test]
fn a_block_in_a_steady_state_allocates_nothing() {
    of_a_shard();
    of_a_cache();
    of_a_stream();
    of_levels_that_change();
    of_the_usual_methods();
}

fn of_a_stream() {
    let mut random = fastrand::Rng::with_seed(5);
    let words: Vec<String> = (0..300).map(|_| format!("{:x} ", random.u16(..))).collect();
    let mut block = String::new();
    while block.len() < BLOCK {
        block.push_str(&words[random.usize(..300)]);
    }
    let block = &block.as_bytes()[..BLOCK];
    let pool = Pool::new(PoolOptions { worker_count: 2 }).unwrap();
    let buffer: Arc<[u8]> = block.repeat(BLOCKS).into();
    let names = ["store", "lz4:1", "lz4:a8", "zstd:-3", "zstd:1", "zstd:5"];
    let methods: Vec<Method> = names.map(|it| it.parse().unwrap()).to_vec();
    let link = BytesPerSecond(3e8);
    let frozen = Frozen::balanced(methods.clone(), Profile::default(), 2, link);
    let goals = [Goal::Fastest, Goal::Within(1.5), Goal::Smallest];
    let priced = goals.map(|goal| {
        Choice::Priced(Box::new(Priced {
            goal,
            arms: methods.clone(),
            link: Some(link),
            profile: Profile::default(),
        }))
    });
    let fixed = methods.iter().copied().map(Choice::Fixed);
    let picked = [Choice::Frozen(Box::new(frozen))].into_iter().chain(priced);
    for choice in fixed.chain(picked) {
        let (name, trials) = match &choice {
            Choice::Fixed(method) => (method.to_string(), 0),
            Choice::Priced(priced) => (format!("{:?}", priced.goal), TRIALS),
            _ => ("frozen".to_string(), 0),
        };
        let options = WriterOptions {
            container: Container::Mixed,
            choice,
            block_bytes: BLOCK,
            ..WriterOptions::default()
        };
        let mut writer = Writer::new(io::sink(), &pool, options).unwrap();
        // Every buffer and every worker's tables are used by now.
        for _ in 0..4 * BLOCKS {
            writer.write_all(block).unwrap();
        }
        write_in_background(&mut writer, &buffer);
        writer.flush().unwrap();
        let case = format!("{name}, {BLOCKS} blocks");
        // An asynchronous call makes two allocations, for any number of blocks.
        let few = BLOCKS as u64 / 8 + first_touches(2, BLOCK);
        count(&case, (trials, few), || {
            for _ in 0..BLOCKS {
                writer.write_all(block).unwrap();
            }
            writer.flush().unwrap();
        });
        let case = format!("{case} in the background");
        count(&case, (2 + trials, few), || {
            write_in_background(&mut writer, &buffer);
            writer.flush().unwrap();
        });
        writer.finish().unwrap();
    }
}

/// Returns the pages of all frame buffers. A buffer in its first use, or its first for a block stored whole, touches
/// the rest of its pages then. A fault for every page of every block would be eight times as many.
fn first_touches(workers: u64, block_bytes: usize) -> u64 {
    (2 * workers + 4) * block_bytes as u64 / 4096
}

/// Words with the frequencies of a text, for a block of the usual size.
fn usual_block() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(6);
    let words: Vec<String> = (0..4000)
        .map(|_| format!("{:x} ", random.u32(..)))
        .collect();
    let block_bytes = WriterOptions::default().block_bytes;
    let mut block = String::new();
    while block.len() < block_bytes {
        block.push_str(&words[4000_f64.powf(random.f64()) as usize - 1]);
    }
    block.truncate(block_bytes);
    block.into_bytes()
}

/// Picks the dearest method for one block. Then it picks each of the others for enough blocks that a context which
/// gives memory back has done so.
#[derive(Debug)]
struct Turns {
    methods: Vec<Method>,
    blocks: AtomicU64,
}

const TURN: u64 = 150;

impl Rule for Turns {
    fn methods(&self) -> &[Method] {
        &self.methods
    }

    fn choose(&self, _: &[u8], _: &mut Compressor) -> Result<Method> {
        let block = self.blocks.fetch_add(1, Ordering::Relaxed);
        let (dearest, others) = self.methods.split_last().unwrap();
        Ok(match block % TURN {
            0 => *dearest,
            block => others[block as usize % others.len()],
        })
    }

    fn encoded(&self, _: &Outcome) {}
}

/// A worker that changes the level with every block holds the memory of the dearest.
fn of_levels_that_change() {
    let block = usual_block();
    let pool = Pool::new(PoolOptions { worker_count: 1 }).unwrap();
    let names = ["store", "zstd:-7", "zstd:1", "zstd:3", "zstd:15"];
    let turns = Turns {
        methods: names.map(|it| it.parse().unwrap()).to_vec(),
        blocks: AtomicU64::new(0),
    };
    let options = WriterOptions {
        choice: Choice::Rule(Arc::new(turns)),
        ..WriterOptions::default()
    };
    let mut writer = Writer::new(io::sink(), &pool, options).unwrap();
    let mut write = |blocks| {
        for _ in 0..blocks {
            writer.write_all(&block).unwrap();
        }
        writer.flush().unwrap();
    };
    write(TURN);
    let few = 2 * TURN / 8 + first_touches(1, block.len());
    count("levels that change", (0, few), || write(2 * TURN));
    writer.finish().unwrap();
}

/// The fastest goal, its own methods and blocks of the usual size. A worker may meet a method late that needs more
/// memory than those before: each does once.
fn of_the_usual_methods() {
    const WORKERS: usize = 2;
    let block = usual_block();
    let pool = Pool::new(PoolOptions {
        worker_count: WORKERS,
    })
    .unwrap();
    let arms = Container::Portable.arms();
    let zstd = arms.iter().filter(|it| it.codec != Codec::Store);
    let bytes: usize = zstd.map(|it| it.compressor_bytes(block.len())).sum();
    let options = WriterOptions {
        choice: Choice::Priced(Box::new(Priced {
            goal: Goal::Fastest,
            arms,
            link: Some(BytesPerSecond(1e8)),
            profile: Profile::default(),
        })),
        ..WriterOptions::default()
    };
    let mut writer = Writer::new(io::sink(), &pool, options).unwrap();
    let mut write = || {
        for _ in 0..2 * BLOCKS {
            writer.write_all(&block).unwrap();
        }
        writer.flush().unwrap();
    };
    write();
    // Late trials, and the parts of a split block, take memory.
    let most = (2 * BLOCKS / 8, WORKERS * bytes / 4096);
    count(
        "the usual methods",
        (most.0 as u64, most.1 as u64),
        &mut write,
    );
    writer.finish().unwrap();
}

fn write_in_background(writer: &mut Writer<io::Sink>, buffer: &Arc<[u8]>) {
    let at = writer.position();
    let pending = writer.write_async(Arc::clone(buffer), at).unwrap();
    pending.wait().unwrap();
}

/// At least half of the kept blocks are compressed by the second method.
const SPLIT: Policy = Policy::Static(Arm {
    compressed_share: 0.6,
    method: 1,
    admits_once: true,
});
const PAGE: usize = 4096;
const CACHE_BYTES: u64 = 4 << 20;

/// Fills a page of a key so that half of it remains.
fn fill(key: u64, page: &mut [u8]) {
    let mut random = fastrand::Rng::with_seed(key);
    let (noise, rest) = page.split_at_mut(page.len() / 3);
    noise.fill_with(|| random.u8(..));
    rest.fill(key as u8);
}

/// Four times as many pages as fit the budget, the first ones most often.
fn some_key(random: &mut fastrand::Rng) -> u64 {
    let keys = 4 * CACHE_BYTES / PAGE as u64;
    (keys as f64 * random.f64().powi(2)) as u64
}

/// Blocks are loaded, compressed, restored and dropped.
fn of_a_shard() {
    let options = ShardOptions {
        policy: SPLIT,
        ..ShardOptions::sized(CACHE_BYTES, PAGE)
    };
    let mut shard: Shard<u64> = Shard::new(options).unwrap();
    let (mut bench, mut random) = (Bench::new(), fastrand::Rng::with_seed(7));
    let mut run = |accesses: u32| {
        for _ in 0..accesses {
            let key = some_key(&mut random);
            let page = shard.get_or_load(key, PAGE, &mut bench, |page| {
                fill(key, page);
                Ok(())
            });
            assert_eq!(page.unwrap().len(), PAGE);
        }
        *shard.stats()
    };
    let before = run(60_000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    let after = run(40_000);
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    let compressed = after.compressed - before.compressed;
    let restored = after.packed_hits - before.packed_hits;
    let missed = after.misses - before.misses;
    println!(
        "shard: {allocated} allocations, {compressed} compressed, {restored} restored, {missed} missed"
    );
    assert!(compressed > 5_000 && restored > 5_000);
    let loading = LOAD_ALLOCATIONS * missed;
    assert!(allocated <= loading + TABLE_ALLOCATIONS_MAX);
}

/// Hits of a cache: none for a raw block, and for a compressed one the guard's own memory.
fn of_a_cache() {
    let cache: Cache<u64> = Cache::new(CacheOptions {
        budget_bytes: CACHE_BYTES,
        block_bytes: PAGE,
        policy: SPLIT,
        ..CacheOptions::default()
    })
    .unwrap();
    let keys = CACHE_BYTES / PAGE as u64 * 5 / 4;
    let mut random = fastrand::Rng::with_seed(8);
    let load = |key: u64| {
        let page = cache.get_or_load(key, PAGE, |page| {
            fill(key, page);
            Ok(())
        });
        assert_eq!(page.unwrap().len(), PAGE);
    };
    for _ in 0..60_000 {
        load(random.u64(..keys));
    }
    let before = cache.stats().shards;
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..20_000 {
        load(random.u64(..keys));
    }
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    let after = cache.stats().shards;
    let restored = after.packed_hits - before.packed_hits;
    println!("cache: {allocated} allocations, {restored} restored");
    assert!(restored > 5_000 && after.misses == before.misses);
    // A block and its count of owners; and sometimes a list, of a leaving segment.
    assert!(allocated <= 2 * restored + restored / 32, "{allocated}");
}

/// Counts allocations and page faults of `work`, and limits them.
fn count(case: &str, (allocations_max, faults_max): (u64, u64), work: impl FnOnce()) {
    // Reading the count of faults allocates, so it comes first, and last.
    let (faults, allocations) = (page_faults(), ALLOCATIONS.load(Ordering::Relaxed));
    work();
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    let faulted = page_faults()
        .zip(faults)
        .map(|(after, before)| after - before);
    println!("{case}: {allocated} allocations, {faulted:?} page faults");
    assert!(allocated <= allocations_max, "{case}: {allocated}");
    assert!(
        faulted.is_none_or(|it| it <= faults_max),
        "{case}: {faulted:?} faults"
    );
}
