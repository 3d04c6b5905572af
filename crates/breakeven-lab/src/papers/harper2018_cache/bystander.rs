//! Somebody else's work on the same machine: how much of it is done while a cache works beside it.
//!
//! A bystander looks up numbers in a table of 1 MiB, each place given by the number before. So it wants a core and its
//! caches, as a program that uses the cache's data does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use crate::data::{Random, SEED};

const TABLE_WORDS: usize = 1 << 17;
/// Lookups between two looks at whether it shall stop.
const BATCH: u64 = 4096;

/// A thread that works until it is stopped.
pub struct Bystander {
    has_to_stop: Arc<AtomicBool>,
    thread: JoinHandle<f64>,
}

impl Bystander {
    pub fn start() -> Bystander {
        let has_to_stop = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&has_to_stop);
        Bystander {
            has_to_stop,
            thread: std::thread::spawn(move || work(&stop)),
        }
    }

    /// Ends it and returns its lookups per second.
    pub fn stop(self) -> Result<f64> {
        self.has_to_stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow!("the bystander panicked"))
    }
}

fn work(stop: &AtomicBool) -> f64 {
    let mut random = Random::new(SEED);
    let table: Vec<u64> = (0..TABLE_WORDS).map(|_| random.next()).collect();
    let begun = Instant::now();
    let (mut at, mut count) = (1_u64, 0_u64);
    // At least one batch, so that there is a rate even if it was stopped before it got a core.
    loop {
        for _ in 0..BATCH {
            at = at.rotate_left(5) ^ table[at as usize % TABLE_WORDS];
        }
        count += BATCH;
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    std::hint::black_box(at);
    count as f64 / begun.elapsed().as_secs_f64()
}

/// Runs some work beside a bystander and returns the work's result, and the bystander's rate.
pub fn beside<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let bystander = Bystander::start();
    let outcome = work();
    let rate = bystander.stop()?;
    Ok((outcome?, rate))
}

/// Returns the rate of a bystander that has the machine for itself for so long.
pub fn alone(span: Duration) -> Result<f64> {
    let bystander = Bystander::start();
    std::thread::sleep(span);
    bystander.stop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bystander_works_as_long_as_others_do() {
        let (sum, rate) =
            beside(|| Ok((0..1_000_000_u64).map(std::hint::black_box).sum::<u64>())).unwrap();
        assert_eq!(sum, 499_999_500_000);
        assert!(rate.is_finite() && rate > 0.0);
        assert!(alone(Duration::ZERO).unwrap() > 0.0);
        assert!(beside(|| -> Result<()> { Err(anyhow!("failed")) }).is_err());
    }
}
