//! A stream in its steady state: no allocation and no page fault for a block.
//!
//! One test alone in its process, because it counts what all threads do. `unsafe` here: a global
//! allocator that counts, which is an unsafe trait.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use breakeven::codec::Method;
use breakeven::decide::Profile;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{Choice, Container, Frozen, Goal, Priced, Writer, WriterOptions};
use breakeven::units::BytesPerSecond;

const BLOCK: usize = 256 << 10;
const BLOCKS: usize = 64;
/// Allocations that a goal may need in so many blocks: what is learned of a method that was not tried
/// before takes memory once.
const TRIALS: u64 = 4;

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator as it is.
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
fn a_block_allocates_nothing_and_touches_no_new_page() {
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
        // Every buffer and every worker's tables have been used after this.
        for _ in 0..4 * BLOCKS {
            writer.write_all(block).unwrap();
        }
        write_in_background(&mut writer, &buffer);
        writer.flush().unwrap();
        let case = format!("{name}, {BLOCKS} blocks");
        // An asynchronous call is two allocations, however many blocks it has.
        count(&case, trials, || {
            for _ in 0..BLOCKS {
                writer.write_all(block).unwrap();
            }
            writer.flush().unwrap();
        });
        count(&format!("{case} in the background"), 2 + trials, || {
            write_in_background(&mut writer, &buffer);
            writer.flush().unwrap();
        });
        writer.finish().unwrap();
    }
}

fn write_in_background(writer: &mut Writer<io::Sink>, buffer: &Arc<[u8]>) {
    let at = writer.position();
    let pending = writer.write_async(Arc::clone(buffer), at).unwrap();
    pending.wait().unwrap();
}

/// Counts allocations and page faults of `work`, and holds them to the most there may be.
fn count(case: &str, allocations_max: u64, work: impl FnOnce()) {
    // Reading the count of faults allocates: it comes first, and last.
    let (faults, allocations) = (page_faults(), ALLOCATIONS.load(Ordering::Relaxed));
    work();
    let allocated = ALLOCATIONS.load(Ordering::Relaxed) - allocations;
    let faulted = page_faults()
        .zip(faults)
        .map(|(after, before)| after - before);
    println!("{case}: {allocated} allocations, {faulted:?} page faults");
    assert!(allocated <= allocations_max, "{case}: {allocated}");
    let few = BLOCKS as u64 / 8;
    assert!(
        faulted.is_none_or(|it| it <= few),
        "{case}: {faulted:?} faults"
    );
}
