//! `breakeven replay`: the cost of policies of the buffer cache on a trace over real pages.
//!
//! Keys of the trace, or made-up ones, are bound to pages of the given files. Codecs run and are timed. Misses are
//! charged the time of `--miss` and not made, so that no device and no page cache disturbs the comparison. With
//! `--device` they read from the files. All policies get the same memory and the same accesses.

mod live;
mod run;
mod table;

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use breakeven::advise::{Preference, Setting};
use breakeven::cache::{AccessPrices, MissTime, Policy, ShardOptions};
use breakeven::decide::Profile;
use breakeven::meter::Machine;
use breakeven::model::Access;
use breakeven::quoted::quoted;
use breakeven::replay::{Contents, PageFiles, Pattern, Source, TraceFormat, Workload};
use breakeven::units::Seconds;
use breakeven_cli::report::replay::{PricesReport, RAW_ONLY, ReplayReport, SCHEMA, html};

use crate::advise::choose_power;
use crate::options::{NamedPolicy, ReplayOptions, parse_policy};
use crate::page;
use crate::prices::PriceFile;
use crate::standard;
use live::View;
use run::Trial;

/// Accesses that are made up unless their number is given.
const ACCESSES: u64 = 500_000;

/// A trace is held in memory; cut longer ones.
const TRACE_BYTES_MAX: u64 = 4 << 30;

/// Fixed splits that the curves of the page go through. Each is run for every method, and again with the rule that a
/// full share takes only pages that were asked for again.
const SHARES: [u32; 4] = [25, 50, 80, 95];

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
            let context = || format!("read {}", quoted(&path));
            let kind = fs::metadata(path).with_context(context)?;
            // A device may have no end.
            ensure!(kind.is_file(), "read {}: it is no file", quoted(&path));
            bytes.extend(fs::read(path).with_context(context)?);
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
    typed.report.as_deref().map(page::check).transpose()?;
    let pages = Pages::open(typed)?;
    let (of, keys) = keys(typed, pages.count())?;
    ensure!(!keys.is_empty(), "{of} has no accesses");
    let source = pages.source(typed.miss);
    let page_bytes = source.page_bytes() as u64;
    let different = keys.iter().collect::<HashSet<_>>().len() as u64;
    let memory_bytes = typed.memory.unwrap_or(different * page_bytes / 4);
    let mut report = ReplayReport {
        schema: SCHEMA.to_string(),
        headline: String::new(),
        machine: Machine::of_this_process(),
        accesses_of: of,
        accesses: keys.len() as u64,
        keys: different,
        pages: pages.count(),
        page_bytes,
        memory_bytes,
        miss_us: typed.miss * 1e6,
        is_read: typed.device,
        prefer: typed.prefer.name().to_string(),
        prices: None,
        policies: Vec::new(),
        splits: Vec::new(),
    };
    let mut options = ShardOptions::sized(memory_bytes, page_bytes as usize);
    if typed.prefer != Preference::Time {
        let prices = prices(typed, &report.machine)?;
        options.prices = AccessPrices {
            per_core_second: prices.per_core_second,
            per_waiting_second: prices.per_waiting_second,
        };
        report.prices = Some(prices);
    }
    let trial = Trial {
        keys: &keys,
        source,
        options,
    };
    replay_all(&trial, &typed.policy, &splits(typed)?, &mut report)?;
    if typed.device {
        report.miss_us = mean_miss_us(&report);
    }
    report.compare();
    let text = match typed.json {
        true => serde_json::to_string_pretty(&report).context("write the replay")? + "\n",
        false => table::render(&report),
    };
    if let Some(path) = &typed.report {
        page::write(path, &html(&report))?;
    }
    standard::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// The cost of seconds where the preference is not time, the same as for advice on a cache.
fn prices(typed: &ReplayOptions, machine: &Machine) -> Result<PricesReport> {
    let file = PriceFile::load(typed.prices.as_deref())?;
    let power = choose_power(typed.watts, machine)?;
    let sources = format!(
        "watts: {}, {}; prices of {}",
        power.model().source(),
        typed.medium.name,
        file.date
    );
    let setting = Setting {
        machine: machine.clone(),
        power: power.model().clone(),
        power_notes: Vec::new(),
        medium: typed.medium.clone(),
        // No access goes over it.
        link: typed.medium.clone(),
        profile: Profile::default(),
        prices: file.prices,
        prices_date: file.date,
        priced_machine_threads: file.machine_threads,
        offload: None,
    };
    let found = setting.access_prices(typed.prefer);
    let found = found.filter(|of| of.per_core_second > 0.0 && of.per_waiting_second > 0.0);
    let found = found.with_context(|| {
        format!(
            "waiting for {} or working costs no {}: there is nothing to weigh",
            typed.medium.name,
            typed.prefer.name()
        )
    })?;
    Ok(PricesReport {
        per_core_second: found.per_core_second,
        per_waiting_second: found.per_waiting_second,
        sources,
    })
}

/// Replays the requested policies, then the splits. Where misses are made, the policies that a verdict compares
/// alternate. The rest, for the curves alone, go one by one, because alternating needs the memory of all.
fn replay_all(
    trial: &Trial<'_>,
    policies: &[NamedPolicy],
    splits: &[NamedPolicy],
    report: &mut ReplayReport,
) -> Result<()> {
    let mut view = View::new(policies.len() + splits.len());
    let all: Vec<&NamedPolicy> = policies.iter().chain(splits).collect();
    let raw = splits
        .iter()
        .filter(|split| split.policy == Policy::RawOnly);
    let together = match report.is_read {
        true => policies.len() + raw.count(),
        false => 1,
    };
    let (first, rest) = all.split_at(together);
    for group in std::iter::once(first).chain(rest.chunks(1)) {
        for found in trial.run(group, report.find(RAW_ONLY), &mut view)? {
            match report.policies.len() < policies.len() {
                true => report.policies.push(found),
                false => report.splits.push(found),
            }
        }
    }
    view.end();
    Ok(())
}

/// Returns the splits that the page's curves need beside the requested policies.
fn splits(typed: &ReplayOptions) -> Result<Vec<NamedPolicy>> {
    if typed.report.is_none() {
        return Ok(Vec::new());
    }
    let mut names = vec![RAW_ONLY.to_string()];
    for method in ["lz4", "zstd"] {
        for again in ["", ":again"] {
            names.extend(SHARES.map(|share| format!("split:{share}:{method}{again}")));
        }
    }
    let parsed = names.iter().map(|name| parse_policy(name));
    let splits: Result<Vec<_>, _> = parsed.collect();
    let mut splits = splits.map_err(anyhow::Error::msg)?;
    let same = |one: &NamedPolicy, other: &NamedPolicy| {
        (one.policy, one.method) == (other.policy, other.method)
    };
    splits.retain(|split| !typed.policy.iter().any(|of| same(of, split)));
    Ok(splits)
}

/// Returns the mean time of a miss over all replays.
fn mean_miss_us(report: &ReplayReport) -> f64 {
    let seconds: f64 = report.all().map(|of| of.miss_seconds).sum();
    let misses: u64 = report.all().map(|of| of.misses).sum();
    1e6 * seconds / misses.max(1) as f64
}

/// Returns the name of the accesses, and their keys.
fn keys(typed: &ReplayOptions, page_count: u64) -> Result<(String, Vec<u64>)> {
    let count = |accesses| usize::try_from(accesses).context("a number of accesses");
    if let Some(path) = &typed.trace {
        let (name, mut keys) = read_trace(path, typed.format)?;
        if let Some(accesses) = typed.accesses {
            keys.truncate(count(accesses)?);
        }
        return Ok((name, keys));
    }
    let pattern = match typed.skew {
        Access::Even => Pattern::Even,
        Access::Pareto => Pattern::Pareto,
        Access::Zipf(exponent) => Pattern::Zipf(exponent),
    };
    let workload = Workload::new(pattern, page_count, typed.seed);
    let count = count(typed.accesses.unwrap_or(ACCESSES))?;
    let of = format!("made up, {}, seed {}", typed.skew, typed.seed);
    Ok((of, workload.take(count).collect()))
}

/// Reads a trace, from standard input for `-`: its name and its keys.
pub fn read_trace(path: &Path, format: TraceFormat) -> Result<(String, Vec<u64>)> {
    let is_stdin = path == Path::new("-");
    let name = match is_stdin {
        true => standard::INPUT.to_string(),
        false => quoted(&path).to_string(),
    };
    let context = || format!("trace {name}");
    let source: Box<dyn Read> = match is_stdin {
        true => Box::new(standard::input()?),
        false => Box::new(File::open(path).with_context(context)?),
    };
    let mut bytes = Vec::new();
    // It may be a pipe, or a device without an end.
    let read = source.take(TRACE_BYTES_MAX + 1).read_to_end(&mut bytes);
    let read = read.with_context(context)? as u64;
    ensure!(
        read <= TRACE_BYTES_MAX,
        "trace {name}: longer than {TRACE_BYTES_MAX} bytes"
    );
    let requests = format.parse(&bytes).with_context(context)?;
    Ok((name, requests.iter().map(|it| it.key).collect()))
}
