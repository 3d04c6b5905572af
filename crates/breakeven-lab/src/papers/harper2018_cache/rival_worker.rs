//! A child process as a cache: a trace over pages by one thread, or blocks of many sizes by two.
//!
//! Children, so that a cache's addition to resident memory can be seen. `rocksdb_cache.cpp` does the same as the first
//! for RocksDB and prints the same line.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use breakeven::cache::{Arm, Bench, MissTime, Policy, Shard, ShardOptions};
use breakeven::meter::{Meter, Scope};
use breakeven::units::Seconds;
use clap::{Args, Subcommand};

use super::memory::{self, Churn};

/// The work of a child process of the laboratory.
#[derive(Subcommand)]
pub enum Order {
    /// Serve a trace over pages
    Trace(Trace),
    /// Serve blocks of many sizes
    Churn(Churn),
}

/// A cache, a trace and its pages.
#[derive(Args)]
pub struct Trace {
    /// adaptive, fixed or raw-only
    name: String,
    /// Pages, one after the other
    pages: PathBuf,
    page_bytes: usize,
    /// Pairs of a key and the number of its page
    trace: PathBuf,
    /// Accesses that are not counted
    warm: usize,
    /// Memory of the cache
    bytes: u64,
    /// The charge of a miss
    miss_us: f64,
}

/// The counts of a child.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    pub accesses: u64,
    pub misses: u64,
    pub cpu_seconds: f64,
    /// Resident memory before there was a cache, and at the end.
    pub before_bytes: u64,
    pub after_bytes: u64,
}

impl Counted {
    /// Reads the line that a child prints.
    pub fn parse(line: &str) -> Result<Counted> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [accesses, misses, cpu_seconds, before, after] = words[..] else {
            bail!("'{line}' is no line of counts");
        };
        Ok(Counted {
            accesses: accesses.parse()?,
            misses: misses.parse()?,
            cpu_seconds: cpu_seconds.parse()?,
            before_bytes: before.parse()?,
            after_bytes: after.parse()?,
        })
    }

    /// Returns how much the cache added to resident memory.
    pub fn growth_bytes(&self) -> u64 {
        self.after_bytes.saturating_sub(self.before_bytes)
    }

    /// Returns accesses per second where a miss takes so long.
    pub fn rate(&self, miss_us: f64) -> f64 {
        let seconds = self.cpu_seconds + self.misses as f64 * miss_us * 1e-6;
        self.accesses as f64 / seconds
    }
}

/// Does it, and prints the counts.
pub fn run(order: &Order) -> Result<()> {
    match order {
        Order::Trace(trace) => serve(trace),
        Order::Churn(churn) => memory::churn(churn),
    }
}

fn serve(order: &Trace) -> Result<()> {
    let pages = read(&order.pages)?;
    let trace = read(&order.trace)?;
    let work = Work {
        pages: &pages,
        page_bytes: order.page_bytes,
        trace: trace.as_chunks::<16>().0,
        warm: order.warm,
    };
    let policy = match order.name.as_str() {
        "adaptive" => Policy::Adaptive,
        "raw-only" => Policy::RawOnly,
        "fixed" => Policy::Static(Arm {
            compressed_share: 0.95,
            method: 0,
            admits_once: false,
        }),
        name => bail!("no cache '{name}'"),
    };
    let before_bytes = resident_bytes()?;
    let options = ShardOptions {
        policy,
        ..ShardOptions::sized(order.bytes, order.page_bytes)
    };
    let mut shard: Shard<u64> = Shard::new(options)?;
    let mut bench = Bench::new();
    bench.set_miss(MissTime {
        core: Seconds(0.0),
        waiting: Seconds(1e-6 * order.miss_us),
    });
    let counted = work.drive(before_bytes, |key, page| {
        let mut has_missed = false;
        let found = shard.get_or_load(key, page.len(), &mut bench, |frame| {
            has_missed = true;
            frame.copy_from_slice(page);
            Ok(())
        })?;
        check(found, page)?;
        Ok(has_missed)
    })?;
    println!(
        "{} {} {:.9} {} {}",
        counted.accesses,
        counted.misses,
        counted.cpu_seconds,
        counted.before_bytes,
        counted.after_bytes
    );
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

fn check(found: &[u8], page: &[u8]) -> Result<()> {
    let ends = |page: &[u8]| [page[0], page[page.len() / 2], page[page.len() - 1]];
    ensure!(
        found.len() == page.len() && ends(found) == ends(page),
        "another page came back"
    );
    Ok(())
}

/// Accesses over pages.
struct Work<'a> {
    pages: &'a [u8],
    page_bytes: usize,
    trace: &'a [[u8; 16]],
    warm: usize,
}

impl Work<'_> {
    /// Makes all accesses; `access` gets a key and its page, and returns whether it missed.
    fn drive(
        &self,
        before_bytes: u64,
        mut access: impl FnMut(u64, &[u8]) -> Result<bool>,
    ) -> Result<Counted> {
        let mut go = |part: &[[u8; 16]]| -> Result<u64> {
            let mut misses = 0;
            for pair in part {
                let word =
                    |at: usize| u64::from_le_bytes(pair[at..at + 8].try_into().expect("8 bytes"));
                let page = usize::try_from(word(8))? * self.page_bytes;
                misses += u64::from(access(word(0), &self.pages[page..page + self.page_bytes])?);
            }
            Ok(misses)
        };
        let (warm, measured) = self.trace.split_at(self.warm);
        go(warm)?;
        let meter = Meter::start(Scope::Process);
        let misses = go(measured)?;
        let cpu = meter.stop(0).cpu.total();
        Ok(Counted {
            accesses: measured.len() as u64,
            misses,
            cpu_seconds: cpu.0,
            before_bytes,
            after_bytes: resident_bytes()?,
        })
    }
}

/// Returns this process's own resident memory by the system. It excludes the pages of program files, which come as code
/// first runs: a MiB in a program that brings codecs and peers.
pub fn resident_bytes() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    Ok(kib.context("/proc/self/status says no RssAnon")? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_counts_reads_back() {
        let counted = Counted::parse("1000 250 0.005 1048576 3145728\n").unwrap();
        assert_eq!((counted.misses, counted.growth_bytes()), (250, 2 << 20));
        // 5 ms of processor time and 250 misses of 20 us.
        assert!((counted.rate(20.0) - 1e5).abs() < 1e-6);
        assert!(Counted::parse("1 2 3").is_err() && Counted::parse("a b c d e").is_err());
        assert!(resident_bytes().unwrap() > 100_000);
    }

    #[test]
    fn every_access_gets_its_page() {
        let pages: Vec<u8> = (0..4096_u32).map(|byte| (byte / 512) as u8).collect();
        let trace: Vec<[u8; 16]> = (0..100_u64)
            .map(|at| {
                let mut pair = [0; 16];
                pair[..8].copy_from_slice(&(at % 10).to_le_bytes());
                pair[8..].copy_from_slice(&(at % 8).to_le_bytes());
                pair
            })
            .collect();
        let work = Work {
            pages: &pages,
            page_bytes: 512,
            trace: &trace,
            warm: 20,
        };
        let mut seen = 0;
        let counted = work.drive(0, |key, page| {
            check(page, &[((seen % 8) as u8); 512])?;
            seen += 1;
            Ok(key == 3)
        });
        let counted = counted.unwrap();
        assert_eq!((counted.accesses, counted.misses, seen), (80, 8, 100));
    }
}
