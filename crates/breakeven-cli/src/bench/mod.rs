//! `breakeven bench`: the speed and answers of any memcached under load, with every value verified.
//!
//! | file | what it is |
//! |---|---|
//! | `values` | what is stored under which key, and which keys are asked for |
//! | `shape` | what a request is, and when it is due |
//! | `load` | connections, requests, replies, latencies |
//! | `report` | the table, the sentence, JSON |
//! | `picture` | how long requests took, as SVG |

mod load;
mod picture;
mod report;
mod shape;
mod values;

use std::process::ExitCode;

use anyhow::{Context, Result};
use breakeven_memcached::client::Client;

use crate::options::{BenchOptions, BenchShape};
use load::{Found, Load, Pace};
use report::{Report, Step};
use shape::Shape;
use values::{Values, push_key};

/// Values that are stored with one request.
const FILL_BATCH: u32 = 200;
/// The share of a step's seconds for the run that finds the greatest speed of the server.
const TOP_SHARE: f64 = 0.2;

/// Runs the command.
pub fn run(options: &BenchOptions) -> Result<ExitCode> {
    crate::standard::check().context("standard output")?;
    if let Some(path) = &options.plot {
        crate::page::check(path)?;
    }
    let values = Values::load(options.values.as_deref(), options.keys, options.seed)?;
    let context = || format!("connect to {}", options.address);
    let mut control = Client::connect(&options.address).with_context(context)?;
    let version = control.stats("")?.remove("version").unwrap_or_default();
    if !options.no_fill {
        fill(&mut control, &values)?;
    }
    let shape = match options.shape {
        BenchShape::Batched => Shape::BATCHED,
        BenchShape::Paced => Shape::PACED,
        BenchShape::Single => Shape::single(options.pipeline),
        BenchShape::Sets => Shape::sets(options.pipeline),
    };
    let load = Load {
        address: &options.address,
        values: &values,
        draws: &values.draws(options.skew, options.seed),
        shape,
        connections: options.connections,
        miss_ns: options.miss.map(|seconds| (seconds * 1e9) as u64),
        seed: options.seed,
    };
    let mut report = Report::new(options, shape, &version, values.mean_bytes());
    match (options.flat_out, options.rate) {
        (true, _) => report.add(None, load.run(Pace::FlatOut, options.seconds)?)?,
        (false, Some(rate)) => {
            let found = load.run(Pace::KeysPerSecond(rate), options.seconds)?;
            report.add(Some(rate), found)?;
        }
        (false, None) => search(options, &load, &mut report)?,
    }
    report.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Stores the value of every key.
fn fill(control: &mut Client, values: &Values) -> Result<()> {
    for first in (0..values.keys).step_by(FILL_BATCH as usize) {
        let keys = first..(first + FILL_BATCH).min(values.keys);
        let items = keys.map(|key| {
            let mut text = Vec::new();
            push_key(&mut text, key);
            (text, values.of(key))
        });
        control.store(items).context("store the values")?;
    }
    Ok(())
}

/// Seeks the highest rate, in keys a second, at which few enough requests take too long: between nothing and the
/// server's rate flat out.
fn search(options: &BenchOptions, load: &Load<'_>, report: &mut Report) -> Result<()> {
    let top = load.run(Pace::FlatOut, (options.seconds * TOP_SHARE).max(0.2))?;
    let (mut low, mut high) = (0.0, top.keys_per_second());
    report.add(None, top)?;
    for _ in 0..options.steps {
        let rate = f64::midpoint(low, high);
        let found = load.run(Pace::KeysPerSecond(rate), options.seconds)?;
        let step = Step::of(Some(rate), &found, options.limit);
        match step.holds() {
            true => low = rate,
            false => high = rate,
        }
        report.add(Some(rate), found)?;
    }
    Ok(())
}
