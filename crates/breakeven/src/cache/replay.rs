//! Replay: a trace over real pages, to see what a policy of the cache would have cost.
//!
//! Keys of the trace are bound to pages of given [`Contents`], so that data are as compressible as
//! real data are and the same at each access. Codecs run and are timed; a miss copies its page and is
//! charged what it is declared to take, so no device is needed and none disturbs. The rest of the
//! loop's processor time is reported beside it.
#![deny(unsafe_code)]

use super::bench::Bench;
use super::costs::MissTime;
use super::shadow::Arm;
use super::shard::{Shard, ShardMemory, ShardOptions, ShardStats};
use crate::error::{Error, Result};
use crate::meter::thread_cpu;
use crate::units::{Estimate, Seconds};

/// Pages that keys are bound to.
#[derive(Clone, Debug)]
pub struct Contents {
    bytes: Vec<u8>,
    page_bytes: usize,
}

impl Contents {
    /// Cuts bytes into pages; what is left at the end is not used.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if they are not one page long, or pages have no bytes.
    pub fn new(bytes: Vec<u8>, page_bytes: usize) -> Result<Contents> {
        if page_bytes == 0 || bytes.len() < page_bytes {
            let reason = format!("{} bytes are no page of {page_bytes}", bytes.len());
            return Err(Error::invalid("contents", reason));
        }
        Ok(Contents { bytes, page_bytes })
    }

    /// Returns how many pages there are.
    pub fn page_count(&self) -> u64 {
        (self.bytes.len() / self.page_bytes) as u64
    }

    /// Returns the bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Returns the page of a key, always the same; which one has nothing to do with how hot the key
    /// is.
    pub fn page(&self, key: u64) -> &[u8] {
        let mixed = key.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let page = ((u128::from(mixed) * u128::from(self.page_count())) >> 64) as usize;
        &self.bytes[page * self.page_bytes..][..self.page_bytes]
    }
}

/// How a replay went.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// What the shard did, and what that cost.
    pub stats: ShardStats,
    /// Where its bytes were at the end.
    pub memory: ShardMemory,
    /// The arm in force at the end.
    pub arm: Arm,
    /// What compressing saved against raw-only, and what raw-only would have cost, by the shadow.
    pub gain: Option<(Estimate, f64)>,
    /// Processor time of the whole loop, copying pages at misses and the trace itself included.
    pub core: Seconds,
}

/// Replays keys over contents, each miss taking `miss`.
///
/// # Errors
///
/// As [`Shard::new`]; [`Error::Corrupt`] if a block is not its page, which is a bug.
///
/// # Example
///
/// ```
/// use breakeven::cache::{Contents, MissTime, ShardOptions, replay};
/// use breakeven::units::Seconds;
///
/// let contents = Contents::new(b"some text ".repeat(10_000), 4096)?;
/// let miss = MissTime { core: Seconds(0.0), waiting: Seconds(73e-6) };
/// let replayed = replay([1, 2, 1, 2, 3], &contents, miss, ShardOptions::default())?;
/// assert_eq!((replayed.stats.misses, replayed.stats.raw_hits), (3, 2));
/// # Ok::<(), breakeven::Error>(())
/// ```
pub fn replay(
    keys: impl IntoIterator<Item = u64>,
    contents: &Contents,
    miss: MissTime,
    options: ShardOptions,
) -> Result<Replayed> {
    let mut shard: Shard<u64> = Shard::new(options)?;
    let mut bench = Bench::new();
    bench.set_miss(miss);
    let begun = thread_cpu();
    for key in keys {
        let page = contents.page(key);
        let load = |frame: &mut [u8]| {
            frame.copy_from_slice(page);
            Ok(())
        };
        let found = shard.get_or_load(key, page.len(), 0, &mut bench, load)?;
        // The ends tell a wrong block without reading all of each.
        let (half, end) = (page.len() / 2, page.len() - 1);
        if [found[0], found[half], found[end]] != [page[0], page[half], page[end]] {
            let (expected, found) = (format!("{:?}", &page[..1]), format!("{:?}", &found[..1]));
            return Err(Error::corrupt("cached page", 0, expected, found));
        }
    }
    Ok(Replayed {
        stats: *shard.stats(),
        memory: shard.memory(),
        arm: shard.arm(),
        gain: shard.gain(),
        core: thread_cpu() - begun,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Pattern, Policy, Workload};

    /// Pages of words, all different.
    fn contents(pages: usize) -> Contents {
        let mut random = fastrand::Rng::with_seed(3);
        let mut bytes = Vec::new();
        while bytes.len() < pages * 4096 {
            let word = b"a page of words that come again and again ";
            bytes.extend(&word[random.usize(..20)..][..random.usize(3..20)]);
            bytes.extend(random.u16(..).to_string().bytes());
        }
        Contents::new(bytes, 4096).expect("contents")
    }

    fn run(policy: Policy, miss: f64) -> Replayed {
        let options = ShardOptions {
            budget_bytes: 4 << 20,
            slab_bytes: 64 << 10,
            policy,
            ..ShardOptions::default()
        };
        let keys = Workload::new(Pattern::Even, 1600, 1).take(100_000);
        let miss = MissTime {
            core: Seconds(0.0),
            waiting: Seconds(miss),
        };
        replay(keys, &contents(1600), miss, options).expect("replayed")
    }

    #[test]
    fn misses_that_are_dear_are_worth_compressing_for() {
        let [raw, adaptive] = [Policy::RawOnly, Policy::Adaptive].map(|it| run(it, 10e-3));
        assert_eq!((raw.stats.packed_hits, raw.arm), (0, Arm::RAW_ONLY));
        let per_miss = raw.stats.miss_cost / raw.stats.misses as f64;
        assert!((per_miss - 10e-3).abs() < 1e-9, "{per_miss}");
        println!("raw-only {:?}\nadaptive {:?}", raw.stats, adaptive.stats);
        // The codecs' times are real, but a miss is a thousand times as dear as they are.
        assert!(adaptive.arm.compressed_share > 0.0 && adaptive.stats.packed_hits > 1000);
        assert!(adaptive.stats.cost() < 0.8 * raw.stats.cost());
        let (gain, raw_only) = adaptive.gain.expect("a gain");
        assert!(gain.mean > 0.0 && gain.mean < raw_only);
        assert!(adaptive.memory.in_use_bytes() <= 4 << 20);
    }

    #[test]
    fn misses_for_nothing_are_not() {
        let found = run(Policy::Adaptive, 1e-9);
        assert_eq!(found.stats.compressed, 0);
        assert_eq!(found.arm, Arm::RAW_ONLY);
    }

    #[test]
    fn a_key_has_one_page_and_pages_are_used_evenly() {
        let contents = contents(100);
        assert_eq!(contents.page_count(), 100);
        let mut used = std::collections::BTreeMap::new();
        for key in 0..10_000u64 {
            assert_eq!(contents.page(key), contents.page(key));
            *used
                .entry(contents.page(key).as_ptr() as usize)
                .or_insert(0) += 1;
        }
        assert_eq!(used.len(), 100);
        assert!(
            used.values().all(|count| (50..200).contains(count)),
            "{used:?}"
        );
        assert!(Contents::new(vec![0; 10], 11).is_err());
        assert!(Contents::new(vec![0; 10], 0).is_err());
    }
}
