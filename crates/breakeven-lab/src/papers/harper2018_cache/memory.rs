//! Resident memory: the addition of a cache to its process while blocks of many sizes come and go, and while its budget
//! changes.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use breakeven::cache::{Arm, Cache, CacheOptions, Policy};
use breakeven::meter::{Meter, PowerModel, Scope};
use breakeven::units::Seconds;
use clap::Args;

use super::rival_worker::resident_bytes;
use super::{at_most, energy, energy_of, findings_table, middle, power, shown};
use crate::data::{Kind, Random, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::Interval;
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018-cache/memory",
    claim: "The cache's own share of resident memory never passes its budget by more than 3 %.",
    source: "this project's own target",
    figure: "largest growth of resident memory over the budget",
    target: at_most(1.03),
    parameters: &[
        (
            "blocks",
            "of 64 bytes to 32 KiB, as many of each power of two, four times as many bytes as the budget, of text. Any is asked for next, and a tenth is replaced by insertion",
        ),
        (
            "churn",
            "by two threads, each holding four blocks all the time; resident memory is looked at every 256 accesses",
        ),
        (
            "budget",
            "64 MiB (quick: 8 MiB); `resized` goes down to half of it and back up, and counts the bytes above the larger",
        ),
        ("runs", "10 (quick: 3) processes of their own"),
    ],
    analysis: "The figure is the process's, with its allocator's slack, codecs and threads. It excludes memory from \
        before the cache, and pages of program files. With the pages of code that ran meanwhile the record before this \
        one had 1.024 to 1.038. Guards are held all the while, so that slabs cannot always be given back. Processor \
        time is that of the whole churn, with looking at memory and comparing blocks, which the four share. No cache \
        has threads of its own: the caller that needs room compresses. Joules are processor time times watts, by the \
        model that the record names.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["growth", "in_use", "cpu_us", "active_uj"];
const GROWTH: usize = 0;
const IN_USE: usize = 1;
const CPU: usize = 2;
const JOULES: usize = 3;
const CONTENDERS: [&str; 4] = ["raw-only", "adaptive", "split", "resized"];
const TASK: &str = "churn";
/// Powers of two of sizes, from 64 bytes on.
const SIZES: u64 = 10;
const THREADS: u64 = 2;
const HELD: usize = 4;
const LOOK_EVERY: u64 = 256;

/// The work of a child.
#[derive(Args)]
pub struct Churn {
    /// raw-only, adaptive, split or resized
    name: String,
    /// Memory of the cache
    bytes: u64,
    /// Accesses of each thread
    accesses: u64,
    seed: u64,
}

/// Does it, and prints the largest growth of resident memory, the most that the cache says it uses, and the
/// processor seconds of all accesses.
pub fn churn(order: &Churn) -> Result<()> {
    let text = Kind::Text.generate(1 << 20, SEED);
    // Touched, so that it counts as held before.
    ensure!(text.iter().any(|byte| *byte > 0), "no text");
    let before = resident_bytes()?;
    let policy = match order.name.as_str() {
        "raw-only" => Policy::RawOnly,
        "adaptive" => Policy::Adaptive,
        _ => Policy::Static(Arm {
            compressed_share: 0.8,
            method: 1,
            admits_once: true,
        }),
    };
    let cache: Cache<u64> = Cache::new(CacheOptions {
        budget_bytes: order.bytes,
        policy,
        ..CacheOptions::default()
    })?;
    let meter = Meter::start(Scope::Process);
    let most = std::thread::scope(|scope| -> Result<(u64, u64)> {
        let work = |thread| {
            scope.spawn({
                let (cache, text) = (&cache, &text);
                move || one_thread(order, thread, cache, text)
            })
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        let mut most = (0, 0);
        for thread in threads {
            let found = thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            most = (most.0.max(found.0), most.1.max(found.1));
        }
        Ok(most)
    })?;
    let core = meter.stop(0).cpu.total();
    println!("{} {} {:.9}", most.0.saturating_sub(before), most.1, core.0);
    Ok(())
}

/// Returns the most resident memory and the most that the cache said it used.
fn one_thread(order: &Churn, thread: u64, cache: &Cache<u64>, text: &[u8]) -> Result<(u64, u64)> {
    let mut random = Random::new(order.seed * THREADS + thread);
    let mean_bytes = (64 << SIZES) / SIZES;
    let keys = 4 * order.bytes / mean_bytes;
    let mut held = std::collections::VecDeque::new();
    let mut most = (0, 0);
    for access in 0..order.accesses {
        let key = random.below(keys);
        let size = 64 << (key % SIZES);
        let place = Random::new(key).below((text.len() - size) as u64) as usize;
        let block = &text[place..][..size];
        if random.below(10) == 0 {
            cache.insert(key, block, 0)?;
        } else {
            let found = cache.get_or_load(key, size, |frame| {
                frame.copy_from_slice(block);
                Ok(())
            })?;
            ensure!(found[..] == *block, "another block came back");
            held.push_back(found);
            if held.len() > HELD {
                held.pop_front();
            }
        }
        if access % LOOK_EVERY == 0 {
            most = (
                most.0.max(resident_bytes()?),
                most.1.max(cache.stats().memory.in_use_bytes()),
            );
            // A quarter of the way down, the next up, and so on.
            if order.name == "resized" && thread == 0 {
                let is_low = (4 * access / order.accesses) % 2 == 1;
                cache.set_budget(order.bytes >> u32::from(is_low))?;
            }
        }
    }
    Ok(most)
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (bytes, accesses, runs) = match laboratory.quick {
        true => (8_u64 << 20, 1000_u64, 3),
        false => (64 << 20, 100_000, 10),
    };
    let power = &power()?;
    let cells = vec![Cell {
        name: "many sizes".to_string(),
        parameters: format!(
            "budget_bytes={bytes} accesses={accesses} runs={runs} {}",
            energy(power)
        ),
        measure: Box::new(move || {
            let mut rows = Vec::new();
            for run in 0..runs {
                for name in CONTENDERS {
                    rows.push(Row {
                        task: TASK.to_string(),
                        run: run + 1,
                        runs,
                        contender: name.to_string(),
                        values: child(name, bytes, accesses, run as u64, power)?,
                    });
                }
            }
            Ok(rows)
        }),
    }];
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells)
}

fn child(name: &str, bytes: u64, accesses: u64, seed: u64, power: &PowerModel) -> Result<Vec<f64>> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["rival", "churn", name]);
    let output = child
        .args([bytes, accesses, seed].map(|number| number.to_string()))
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{name}: {error}");
    let line = String::from_utf8(output.stdout)?;
    let words: Option<Vec<f64>> = line
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let Some([growth, in_use, core_seconds]) = words.as_deref() else {
        bail!("'{line}' is no line of counts");
    };
    let each = core_seconds / (THREADS * accesses) as f64;
    Ok(vec![
        growth / bytes as f64,
        in_use / bytes as f64,
        1e6 * each,
        1e6 * power.core_energy(Seconds(each)).0,
    ])
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        for name in CONTENDERS {
            let growth = cell.column(TASK, name, GROWTH);
            if growth.is_empty() {
                continue;
            }
            let in_use = Interval::of_pairs(&cell.column(TASK, name, IN_USE)).middle;
            let found = Interval::of_pairs(&growth);
            findings.push(Finding {
                question: format!("{}, {name}", cell.cell),
                core: true,
                found,
                verdict: EXPERIMENT.target.judge(found),
                note: format!("the cache says {in_use:.3}"),
            });
        }
    }
    findings
}

fn table(records: &Path) -> Result<tables::Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut text = findings_table(records, &cells, findings(&cells));
    let Some(first) = cells.first() else {
        return Ok(text);
    };
    text.push_str(&format!(
        "\nMedians of the runs: of an access, processor time of all threads and joules ({}).\n\n\
         | cell | cache | core us | uJ |\n|---|---|---:|---:|\n",
        energy_of(first)
    ));
    for cell in &cells {
        for name in CONTENDERS {
            let of = |column, digits| shown(middle(&cell.column(TASK, name, column)), digits);
            let (core, joules) = (of(CPU, 2), of(JOULES, 1));
            text.push_str(&format!("| {} | {name} | {core} | {joules} |\n", cell.cell));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_sizes_come_back_in_a_budget_that_changes() {
        for name in CONTENDERS {
            let order = Churn {
                name: name.to_string(),
                bytes: 4 << 20,
                accesses: 1500,
                seed: 1,
            };
            churn(&order).unwrap();
        }
    }
}
