//! Replay: a trace over real pages, to find the cost of a policy of the cache.
//!
//! Keys of the trace are bound to pages. So data are as compressible as real data, and the same at each access. Codecs
//! run and are timed. With a [`Source`] in memory, a miss copies its page and is charged the declared time, so no
//! device is needed and none disturbs. With a source in files, a miss reads its page past the page cache and takes the
//! real time. The rest of the loop's processor time is reported beside it.
#![deny(unsafe_code)]

mod distribution;
mod oracle;
mod page_files;
mod trace;
mod workload;

use std::collections::HashMap;
use std::time::Instant;

use foldhash::quality::FixedState;

pub use distribution::CostDistribution;
pub use oracle::{BlockCosts, least_cost, least_cost_of_fixed_contents};
pub use page_files::PageFiles;
pub use trace::{Request, TraceFormat};
pub use workload::{Pattern, Workload};

use crate::cache::{Arm, Bench, MissTime, Shard, ShardMemory, ShardOptions, ShardStats};
use crate::error::{Error, Result};
use crate::meter::thread_cpu;
use crate::storage::AlignedBuffer;
use crate::units::{Estimate, Seconds};
use page_files::page_of;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod policy_test;
#[cfg(test)]
mod predict_test;
#[cfg(test)]
mod regimes_test;

/// The pages for keys.
#[derive(Clone, Debug)]
pub struct Contents {
    bytes: Vec<u8>,
    page_bytes: usize,
}

impl Contents {
    /// Cuts bytes into pages; a rest at the end is not used.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if there is not one whole page, or pages have no bytes.
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

    /// Returns the page of a key, always the same; it is independent of the key's popularity.
    pub fn page(&self, key: u64) -> &[u8] {
        let page = page_of(key, self.page_count()) as usize;
        &self.bytes[page * self.page_bytes..][..self.page_bytes]
    }
}

/// The source of missed pages.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// From memory: a miss copies its page and is charged this time.
    Charged(&'a Contents, MissTime),
    /// From files: a miss reads its page.
    Read(&'a PageFiles),
}

impl Source<'_> {
    /// Returns the bytes of a page.
    pub fn page_bytes(&self) -> usize {
        match self {
            Source::Charged(contents, _) => contents.page_bytes(),
            Source::Read(files) => files.page_bytes(),
        }
    }
}

/// Seconds of the accesses, at any price of a second; a raw hit counts none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ReplaySeconds {
    /// Misses: the declared time, or that of reading.
    pub miss: f64,
    /// Compressing.
    pub encode: f64,
    /// Restoring.
    pub decode: f64,
    /// Trials of methods and the shadow.
    pub overhead: f64,
}

impl ReplaySeconds {
    /// Returns all of them.
    pub fn total(&self) -> f64 {
        self.miss + self.encode + self.decode + self.overhead
    }
}

/// How a replay went.
#[derive(Clone, Debug, PartialEq)]
pub struct Replayed {
    /// The counters of the shard, and their cost at its prices.
    pub stats: ShardStats,
    /// The time of that.
    pub seconds: ReplaySeconds,
    /// The times of single accesses, in seconds.
    pub distribution: CostDistribution,
    /// The shard's bytes at the end, by place.
    pub memory: ShardMemory,
    /// The arm in force at the end.
    pub arm: Arm,
    /// The saving of compression against raw-only, and raw-only's cost, by the shadow.
    pub gain: Option<(Estimate, f64)>,
    /// Processor time of the whole loop, copying pages at misses and the trace itself included.
    pub core: Seconds,
}

/// A replay in pieces.
///
/// # Example
///
/// ```
/// use breakeven::cache::{MissTime, ShardOptions};
/// use breakeven::replay::{Contents, Replay, Source};
/// use breakeven::units::Seconds;
///
/// let contents = Contents::new(b"some text ".repeat(10_000), 4096)?;
/// let miss = MissTime { core: Seconds(0.0), waiting: Seconds(73e-6) };
/// let source = Source::Charged(&contents, miss);
/// let mut replay = Replay::new(source, ShardOptions::default())?;
/// replay.run([1, 2, 1])?;
/// replay.run([2, 3])?;
/// let replayed = replay.so_far();
/// assert_eq!((replayed.stats.misses, replayed.stats.raw_hits), (3, 2));
/// assert!(replayed.distribution.quantile(0.9) > 70e-6);
/// # Ok::<(), breakeven::Error>(())
/// ```
pub struct Replay<'a> {
    source: Source<'a>,
    /// It hashes like a cache, but with one seed, so that hash-dependent decisions are the same in each replay.
    shard: Shard<u64, FixedState>,
    bench: Bench,
    core_price: f64,
    /// The time of misses so far.
    miss_seconds: f64,
    /// The buffer for reading a page.
    buffer: AlignedBuffer,
    /// The mark of each key's page at its last read.
    marks: HashMap<u64, Mark>,
    distribution: CostDistribution,
    core: Seconds,
}

/// Bytes of a page that distinguish it from another without reading all of it.
type Mark = [u8; 3];

fn mark(page: &[u8]) -> Mark {
    [page[0], page[page.len() / 2], page[page.len() - 1]]
}

impl<'a> Replay<'a> {
    /// Begins with an empty shard.
    ///
    /// # Errors
    ///
    /// As [`Shard::new`]; [`Error::Invalid`] for a core second without cost.
    pub fn new(source: Source<'a>, options: ShardOptions) -> Result<Replay<'a>> {
        let core_price = options.prices.per_core_second;
        if !(core_price.is_finite() && core_price > 0.0) {
            let reason = format!("{core_price}, expected more than 0");
            return Err(Error::invalid("price of a core second", reason));
        }
        let mut bench = Bench::new();
        let mut buffer = AlignedBuffer::zeroed(0);
        match source {
            Source::Charged(_, miss) => bench.set_miss(miss),
            Source::Read(files) => buffer = AlignedBuffer::zeroed(files.page_bytes()),
        }
        Ok(Replay {
            source,
            shard: Shard::with_hasher(options, FixedState::default())?,
            bench,
            core_price,
            miss_seconds: 0.0,
            buffer,
            marks: HashMap::new(),
            distribution: CostDistribution::default(),
            core: Seconds(0.0),
        })
    }

    /// Goes on with these accesses.
    ///
    /// # Errors
    ///
    /// Errors of reading a page; [`Error::Corrupt`] if a block differs from its page, which is a bug.
    pub fn run(&mut self, keys: impl IntoIterator<Item = u64>) -> Result<()> {
        let begun = thread_cpu();
        let outcome = keys.into_iter().try_for_each(|key| self.access(key));
        self.core += thread_cpu() - begun;
        outcome
    }

    fn access(&mut self, key: u64) -> Result<()> {
        let before = self.seconds().total();
        let (shard, bench, miss_seconds) =
            (&mut self.shard, &mut self.bench, &mut self.miss_seconds);
        let (found, expected) = match self.source {
            Source::Charged(contents, miss) => {
                let page = contents.page(key);
                let load = |frame: &mut [u8]| {
                    frame.copy_from_slice(page);
                    *miss_seconds += miss.core.0 + miss.waiting.0;
                    Ok(())
                };
                let found = shard.get_or_load(key, page.len(), bench, load)?;
                (mark(found), mark(page))
            }
            Source::Read(files) => {
                let (buffer, mut read) = (&mut self.buffer, None);
                let load = |frame: &mut [u8]| {
                    let begun = Instant::now();
                    files.read(key, buffer)?;
                    *miss_seconds += begun.elapsed().as_secs_f64();
                    frame.copy_from_slice(buffer);
                    read = Some(mark(buffer));
                    Ok(())
                };
                let found = mark(shard.get_or_load(key, files.page_bytes(), bench, load)?);
                if let Some(read) = read {
                    self.marks.insert(key, read);
                }
                (found, self.marks.get(&key).copied().unwrap_or_default())
            }
        };
        if found != expected {
            let (expected, found) = (format!("{expected:?}"), format!("{found:?}"));
            return Err(Error::corrupt("cached page", 0, expected, found));
        }
        self.distribution.add(self.seconds().total() - before);
        Ok(())
    }

    /// The time of the accesses so far: all time but that of misses is core time at its price.
    fn seconds(&self) -> ReplaySeconds {
        let stats = self.shard.stats();
        ReplaySeconds {
            miss: self.miss_seconds,
            encode: stats.encode_cost / self.core_price,
            decode: stats.decode_cost / self.core_price,
            overhead: stats.overhead_cost / self.core_price,
        }
    }

    /// Returns the results so far.
    pub fn so_far(&self) -> Replayed {
        Replayed {
            stats: *self.shard.stats(),
            seconds: self.seconds(),
            distribution: self.distribution.clone(),
            memory: self.shard.memory(),
            arm: self.shard.arm(),
            gain: self.shard.gain(),
            core: self.core,
        }
    }
}

/// Replays keys over pages.
///
/// # Errors
///
/// As [`Replay::new`] and [`Replay::run`].
pub fn replay(
    keys: impl IntoIterator<Item = u64>,
    source: Source<'_>,
    options: ShardOptions,
) -> Result<Replayed> {
    let mut replay = Replay::new(source, options)?;
    replay.run(keys)?;
    Ok(replay.so_far())
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::Arc;

    use super::*;
    use crate::cache::{AccessPrices, Policy};
    use crate::storage::{MemoryStorage, OpenOptions, Storage};

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
        run_at(policy, miss, AccessPrices::default())
    }

    fn run_at(policy: Policy, miss: f64, prices: AccessPrices) -> Replayed {
        let options = ShardOptions {
            budget_bytes: 4 << 20,
            slab_bytes: 64 << 10,
            policy,
            prices,
            ..ShardOptions::default()
        };
        let keys = Workload::new(Pattern::Even, 1600, 1).take(100_000);
        let miss = MissTime {
            core: Seconds(0.0),
            waiting: Seconds(miss),
        };
        let contents = contents(1600);
        replay(keys, Source::Charged(&contents, miss), options).expect("replayed")
    }

    #[test]
    fn misses_that_are_dear_are_worth_compressing_for() {
        let [raw, adaptive] = [Policy::RawOnly, Policy::Adaptive].map(|it| run(it, 10e-3));
        assert_eq!((raw.stats.packed_hits, raw.arm), (0, Arm::RAW_ONLY));
        let per_miss = raw.stats.miss_cost / raw.stats.misses as f64;
        assert!((per_miss - 10e-3).abs() < 1e-9, "{per_miss}");
        println!("raw-only {:?}\nadaptive {:?}", raw.stats, adaptive.stats);
        // The codecs' times are real, but a miss costs a thousand times as much.
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

    /// The dear resource decides, but the times are reported in seconds.
    #[test]
    fn prices_decide_and_seconds_are_told() {
        let found = |per_waiting_second: f64| {
            let prices = AccessPrices {
                per_core_second: 2.0,
                per_waiting_second,
            };
            run_at(Policy::Adaptive, 1e-3, prices)
        };
        let [dear, cheap] = [found(1.0), found(1e-6)];
        assert!(dear.stats.compressed > 0 && dear.arm.compressed_share > 0.0);
        assert_eq!((cheap.stats.compressed, cheap.arm), (0, Arm::RAW_ONLY));
        for (found, per_waiting_second) in [(dear, 1.0), (cheap, 1e-6)] {
            let (stats, seconds) = (found.stats, found.seconds);
            let expected = stats.misses as f64 * 1e-3;
            assert!((seconds.miss / expected - 1.0).abs() < 1e-9, "{seconds:?}");
            let cores = seconds.total() - seconds.miss;
            let cost = 2.0 * cores + per_waiting_second * seconds.miss;
            assert!((stats.cost() / cost - 1.0).abs() < 1e-9, "{seconds:?}");
            let slowest = found.distribution.quantile(0.999);
            assert!(slowest > 0.9e-3, "{slowest}");
        }
        let free = ShardOptions {
            prices: AccessPrices {
                per_core_second: 0.0,
                per_waiting_second: 1.0,
            },
            ..ShardOptions::default()
        };
        let contents = contents(1);
        let source = Source::Charged(&contents, MissTime::default());
        assert!(Replay::new(source, free).is_err());
    }

    #[test]
    fn pages_of_files_are_read_and_timed() {
        let storage = MemoryStorage::new();
        let file = storage
            .open("pages", OpenOptions::create_new())
            .expect("a file");
        let pages = contents(600).bytes;
        file.write_at(&[IoSlice::new(&pages)], 0).expect("written");
        let files = PageFiles::new(vec![Arc::clone(&file)], 4096).expect("pages");
        let options = |policy| ShardOptions {
            policy,
            ..ShardOptions::sized(1 << 20, 4096)
        };
        let arm = Arm {
            compressed_share: 0.8,
            method: 0,
            admits_once: true,
        };
        let keys = || Workload::new(Pattern::Zipf(0.9), 600, 1).take(20_000);
        let misses = [Policy::RawOnly, Policy::Static(arm)].map(|policy| {
            let source = Source::Read(&files);
            let found = replay(keys(), source, options(policy)).expect("replayed");
            let stats = found.stats;
            assert_eq!(stats.accesses(), 20_000);
            assert!(stats.miss_cost > 0.0, "a miss was timed");
            stats.misses
        });
        assert!(misses[1] < misses[0], "{misses:?}");
        // A changed file is no damage of the cache: the last read counts.
        let mut replay =
            Replay::new(Source::Read(&files), options(Policy::Static(arm))).expect("a shard");
        replay.run(keys()).expect("replayed");
        file.write_at(&[IoSlice::new(&vec![7; pages.len()])], 0)
            .expect("written");
        replay.run(keys()).expect("replayed");
        file.truncate(0).expect("cut");
        // Keys without earlier accesses.
        let found = replay.run(600..1200);
        assert!(matches!(found, Err(Error::Corrupt { .. })), "{found:?}");
    }

    /// Only times differ. With few blocks it shows at once which of their ghosts displace others, and the hash decides
    /// that.
    #[test]
    fn a_replay_repeats() {
        let contents = contents(300);
        let source = Source::Charged(&contents, MissTime::default());
        let arm = Arm {
            compressed_share: 0.8,
            method: 1,
            admits_once: false,
        };
        for policy in [Policy::RawOnly, Policy::Static(arm)] {
            let replayed = || {
                let options = ShardOptions {
                    policy,
                    ..ShardOptions::sized(256 << 10, 4096)
                };
                let keys = Workload::new(Pattern::Zipf(0.9), 300, 5).take(3000);
                let found = replay(keys, source, options).expect("replayed").stats;
                (found.misses, found.packed_hits, found.compressed)
            };
            let first = replayed();
            assert!((1..3000).contains(&first.0), "{first:?}");
            for _ in 0..5 {
                assert_eq!(replayed(), first, "{policy:?}");
            }
        }
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
