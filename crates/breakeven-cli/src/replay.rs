//! `breakeven replay`: what policies of the buffer cache would cost on a trace over real pages.
//!
//! Keys of the trace, or made-up ones, are bound to pages of the given files. Codecs run and are timed;
//! misses are charged what `--miss` says and not made, so that no device and no page cache disturbs
//! the comparison, or with `--device` read from the files. All policies get the same memory and the
//! same accesses.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use breakeven::cache::{
    Arm, Contents, MissTime, PageFiles, Pattern, Replayed, ShardOptions, Source, Workload, replay,
};
use breakeven::model::Access;
use breakeven::units::Seconds;
use breakeven_cli::text::{binary_size, percent};

use crate::advise::parse_access;
use crate::options::{NamedPolicy, ReplayOptions};

/// Seed of made-up accesses.
const SEED: u64 = 1;

/// The pages of the given files.
enum Pages {
    Memory(Contents),
    Files(PageFiles),
}

impl Pages {
    fn open(typed: &ReplayOptions) -> Result<Pages> {
        let page_bytes = usize::try_from(typed.page).context("a page size")?;
        if typed.device {
            return Ok(Pages::Files(PageFiles::open(&typed.data, page_bytes)?));
        }
        let mut bytes = Vec::new();
        for path in &typed.data {
            let more = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
            bytes.extend(more);
        }
        Ok(Pages::Memory(Contents::new(bytes, page_bytes)?))
    }

    fn count(&self) -> u64 {
        match self {
            Pages::Memory(contents) => contents.page_count(),
            Pages::Files(files) => files.page_count(),
        }
    }

    fn source(&self, miss_seconds: f64) -> Source<'_> {
        let miss = MissTime {
            core: Seconds(0.0),
            waiting: Seconds(miss_seconds),
        };
        match self {
            Pages::Memory(contents) => Source::Charged(contents, miss),
            Pages::Files(files) => Source::Read(files),
        }
    }
}

/// Runs the command.
pub fn run(typed: &ReplayOptions) -> Result<ExitCode> {
    let pages = Pages::open(typed)?;
    let (of, keys) = keys(typed, pages.count())?;
    ensure!(!keys.is_empty(), "{of} has no accesses");
    let source = pages.source(typed.miss);
    let page_bytes = source.page_bytes();
    let data_bytes = pages.count() * page_bytes as u64;
    let memory_bytes = typed.memory.unwrap_or(data_bytes / 4);
    let mut rows = Vec::new();
    for named in &typed.policy {
        let options = ShardOptions {
            policy: named.policy,
            ..ShardOptions::sized(memory_bytes, page_bytes)
        };
        let replayed = replay(keys.iter().copied(), source, options)
            .with_context(|| format!("replay under {}", named.name))?;
        rows.push((named, replayed));
    }
    let text = match typed.json {
        true => serde_json::to_string_pretty(&json(&rows)).context("write the replay")? + "\n",
        false => {
            let pages = format!(
                "{} pages of {}",
                pages.count(),
                binary_size(page_bytes as u64)
            );
            let miss = match typed.device {
                true => "misses are read from the device".to_string(),
                false => format!("a miss takes {} us", typed.miss * 1e6),
            };
            let heading = format!(
                "{} accesses ({of}) over {pages}; memory {}; {miss}\n\n",
                keys.len(),
                binary_size(memory_bytes),
            );
            heading + &table(&rows)
        }
    };
    io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// Returns what the accesses are, and their keys.
fn keys(typed: &ReplayOptions, page_count: u64) -> Result<(String, Vec<u64>)> {
    let Some(path) = &typed.trace else {
        let pattern = match parse_access(&typed.skew)? {
            Access::Even => Pattern::Even,
            Access::Pareto => Pattern::Pareto,
            Access::Zipf(exponent) => Pattern::Zipf(exponent),
        };
        let workload = Workload::new(pattern, page_count, SEED);
        let count = usize::try_from(typed.accesses).context("a number of accesses")?;
        return Ok((
            format!("made up, {}", typed.skew),
            workload.take(count).collect(),
        ));
    };
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("read {name}"))?;
    let requests = typed.format.parse(&bytes).with_context(|| name.clone())?;
    Ok((name, requests.iter().map(|it| it.key).collect()))
}

fn describe(arm: &Arm) -> String {
    match arm.compressed_share {
        0.0 => "raw only".to_string(),
        share => {
            let methods = ShardOptions::default().methods;
            let again = if arm.admits_once { "" } else { ", seen again" };
            let method = methods[usize::from(arm.method)];
            format!("{} % {method}{again}", (100.0 * share).round())
        }
    }
}

/// Mean time of an access, in microseconds.
fn mean_us(replayed: &Replayed) -> f64 {
    replayed.stats.cost() / replayed.stats.accesses().max(1) as f64 * 1e6
}

/// The time that this share of all accesses do not exceed, in microseconds.
fn quantile_us(replayed: &Replayed, share: f64) -> f64 {
    1e6 * replayed.distribution.quantile(share)
}

fn table(rows: &[(&NamedPolicy, Replayed)]) -> String {
    let mut out = format!(
        "{:<20} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}  {}\n",
        "policy",
        "us/access",
        "over 1st",
        "p99 us",
        "p99.9",
        "raw",
        "packed",
        "miss",
        "in force at the end"
    );
    let first = rows.first().map_or(1.0, |(_, replayed)| mean_us(replayed));
    for (named, replayed) in rows {
        let stats = &replayed.stats;
        let share = |count: u64| percent(count as f64 / stats.accesses().max(1) as f64);
        let _ = writeln!(
            out,
            "{:<20} {:>10.3} {:>8.3} {:>8.1} {:>8.1} {:>8} {:>8} {:>8}  {}",
            named.name,
            mean_us(replayed),
            mean_us(replayed) / first,
            quantile_us(replayed, 0.99),
            quantile_us(replayed, 0.999),
            share(stats.raw_hits),
            share(stats.packed_hits),
            share(stats.misses),
            describe(&replayed.arm),
        );
    }
    for (named, replayed) in rows {
        if let Some((saved, raw_only)) = replayed.gain
            && raw_only > 0.0
        {
            let share = saved.map(|saved| 100.0 * saved / raw_only);
            let _ = writeln!(
                out,
                "\n{} saved {:.1} % ({:.1} to {:.1}) of what raw-only would have cost, by its own simulation",
                named.name, share.mean, share.low, share.high
            );
        }
    }
    out
}

fn json(rows: &[(&NamedPolicy, Replayed)]) -> serde_json::Value {
    let rows = rows.iter().map(|(named, replayed)| {
        let (stats, memory) = (&replayed.stats, &replayed.memory);
        serde_json::json!({
            "policy": named.name,
            "us_per_access": mean_us(replayed),
            "us_p50": quantile_us(replayed, 0.5),
            "us_p99": quantile_us(replayed, 0.99),
            "us_p999": quantile_us(replayed, 0.999),
            "accesses": stats.accesses(),
            "raw_hits": stats.raw_hits,
            "packed_hits": stats.packed_hits,
            "misses": stats.misses,
            "compressed": stats.compressed,
            "wasted": stats.wasted,
            "incompressible": stats.incompressible,
            "miss_seconds": stats.miss_cost,
            "encode_seconds": stats.encode_cost,
            "decode_seconds": stats.decode_cost,
            "overhead_seconds": stats.overhead_cost,
            "loop_core_seconds": replayed.core.0,
            "budget_bytes": memory.budget_bytes,
            "in_use_bytes": memory.in_use_bytes(),
            "in_force": describe(&replayed.arm),
            "saved_seconds": replayed.gain.map(|it| it.0),
            "raw_only_seconds": replayed.gain.map(|it| it.1),
        })
    });
    serde_json::Value::Array(rows.collect())
}
