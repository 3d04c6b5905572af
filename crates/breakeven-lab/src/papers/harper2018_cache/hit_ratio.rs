//! The replacement policy alone: hit ratios of blocks of one size, nothing compressed, against LRU,
//! ARC and S3-FIFO on traces that others published.
//!
//! Our shard counts bytes and works by slabs, so a run finds how many blocks it holds. The others get its mean.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::path::Path;

use anyhow::Result;
use breakeven::cache::{Bench, MissTime, Policy, Shard, ShardOptions};
use breakeven::meter::PowerModel;
use breakeven::units::Seconds;

use super::corpus::{TRACES, Trace};
use super::replacement::{Arc, Lru, Replacement, S3Fifo};
use super::{Claim, corpus, energy, energy_of, findings_table, power, shown};
use crate::clock;
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::Shown;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018-cache/hit-ratio",
    claim: "With blocks of one size and nothing compressed the policy hits at least as often as S3-FIFO, ARC and LRU.",
    source: "this project's own target; Yang et al. 2023 (S3-FIFO), Megiddo and Modha 2003 (ARC)",
    figure: "mean hit ratio less that of the other policy",
    target: NO_LESS,
    parameters: &[
        (
            "traces",
            "nine of --data, at most a million accesses of each: a storage array, two web servers, an object mapper, a content network, and four of LIRS",
        ),
        (
            "sizes",
            "all 1: a trace's own sizes are not looked at, a key is one block, and a cache is so many blocks",
        ),
        (
            "memory",
            "about 1, 10 and 25 % of the keys of the trace; the others hold as many blocks as ours in the mean, rounded up",
        ),
        (
            "policies",
            "ours with blocks of 512 bytes in slabs of 4 KiB; the others as in their papers, written here and checked against simple ones by tests",
        ),
    ],
    analysis: "Counts have no error. Ours works by slabs of some blocks and so evicts several blocks where the others evict one. \
        Means are over traces and sizes alike; each has its own row. \
        Processor time is that of ours, which moves blocks; the others here move none, so theirs would say nothing. Nothing is compressed, so \
        nobody loses work to that. Joules are processor time times watts, by the model that the record names.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const NO_LESS: Target = Target::at_least(0.0);
const COLUMNS: &[&str] = &["hit_ratio", "blocks", "accesses", "cpu_us", "active_uj"];
const HIT_RATIO: usize = 0;
const BLOCKS: usize = 1;
const CPU: usize = 3;
const JOULES: usize = 4;
const OURS: &str = "ours";
const OTHERS: [&str; 3] = ["S3-FIFO", "ARC", "LRU"];
/// Percent of the keys that fit.
const PERCENTS: [u64; 3] = [1, 10, 25];
const KEYS_MAX: usize = 1_000_000;
const QUICK_KEYS: usize = 20_000;
const BLOCK_BYTES: usize = 512;
/// The rough bytes of an entry beside its block: the budget is only a wish.
const ENTRY_BYTES: u64 = 120;
/// Accesses between two looks at how many blocks are held.
const LOOK_EVERY: usize = 1024;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (traces, keys_max) = match laboratory.quick {
        true => (&TRACES[..1], QUICK_KEYS),
        false => (&TRACES[..], KEYS_MAX),
    };
    let power = &power()?;
    let cells = traces.iter().map(|trace| Cell {
        name: trace.name.to_string(),
        parameters: format!(
            "{} accesses_max={keys_max} {}",
            corpus::label(laboratory),
            energy(power)
        ),
        measure: Box::new(move || rows(trace, laboratory, keys_max, power)),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn rows(
    trace: &Trace,
    laboratory: &Laboratory,
    keys_max: usize,
    power: &PowerModel,
) -> Result<Vec<Row>> {
    let keys = trace.keys(laboratory, keys_max)?;
    let different = keys.iter().collect::<HashSet<_>>().len() as u64;
    let mut rows = Vec::new();
    for percent in PERCENTS {
        let wanted = (different * percent / 100).max(64);
        let (duration, found) = clock::time(|| ours(&keys, wanted));
        let (ratio, blocks) = found?;
        let core_seconds = duration.cpu_seconds / keys.len() as f64;
        let joules = power.core_energy(Seconds(core_seconds)).0;
        let capacity = blocks.ceil() as usize;
        let mut row = |contender: &str, ratio: f64, core: [f64; 2]| {
            let mut values = vec![ratio, blocks, keys.len() as f64];
            values.extend(core);
            rows.push(Row {
                task: format!("{percent} %"),
                run: 1,
                runs: 1,
                contender: contender.to_string(),
                values,
            });
        };
        row(OURS, ratio, [1e6 * core_seconds, 1e6 * joules]);
        let none = [f64::NAN; 2];
        row(OTHERS[0], hit_ratio(S3Fifo::new(capacity), &keys), none);
        row(OTHERS[1], hit_ratio(Arc::new(capacity), &keys), none);
        row(OTHERS[2], hit_ratio(Lru::new(capacity), &keys), none);
    }
    Ok(rows)
}

fn hit_ratio(mut policy: impl Replacement, keys: &[u64]) -> f64 {
    let hits = keys.iter().filter(|key| policy.access(**key)).count();
    hits as f64 / keys.len() as f64
}

/// Returns our hit ratio in a memory for about `wanted` blocks, and how many were held in the mean
/// once it was full.
fn ours(keys: &[u64], wanted: u64) -> Result<(f64, f64)> {
    let options = ShardOptions {
        budget_bytes: wanted * (BLOCK_BYTES as u64 + ENTRY_BYTES),
        slab_bytes: 4096,
        policy: Policy::RawOnly,
        ..ShardOptions::default()
    };
    // Not random, so that the figures have no error.
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut shard: Shard<u64, _> = Shard::with_hasher(options, hasher)?;
    let mut bench = Bench::new();
    bench.set_miss(MissTime {
        core: Seconds(0.0),
        waiting: Seconds(1e-6),
    });
    let (mut held, mut looks, mut most) = (0, 0, 0);
    for (at, key) in keys.iter().enumerate() {
        shard.get_or_load(*key, BLOCK_BYTES, &mut bench, |frame| {
            frame[..8].copy_from_slice(&key.to_le_bytes());
            Ok(())
        })?;
        if at % LOOK_EVERY == 0 {
            let blocks = shard.memory().blocks;
            most = most.max(blocks);
            // Filling up is not part of a cache of a size.
            if 10 * blocks >= 9 * most && at > 0 {
                (held, looks) = (held + blocks, looks + 1);
            }
        }
    }
    let stats = shard.stats();
    let ratio = stats.raw_hits as f64 / stats.accesses() as f64;
    Ok((ratio, held as f64 / f64::from(looks.max(1))))
}

fn ratio(cell: &CellRecord, task: &str, contender: &str) -> f64 {
    of(cell, task, contender, HIT_RATIO)
}

/// Returns a figure of the one run.
fn of(cell: &CellRecord, task: &str, contender: &str, column: usize) -> f64 {
    cell.column(task, contender, column)
        .first()
        .copied()
        .unwrap_or(f64::NAN)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let doubt = cells.iter().find_map(|cell| corpus::doubt(cell));
    for other in OTHERS {
        let mut differences = Vec::new();
        let mut rows = Vec::new();
        for cell in cells {
            for percent in PERCENTS {
                let task = format!("{percent} %");
                let (ours, theirs) = (ratio(cell, &task, OURS), ratio(cell, &task, other));
                differences.push(ours - theirs);
                let note = format!("{:.1} against {:.1} %", 100.0 * ours, 100.0 * theirs);
                let question = format!("{} {task}, less {other}", cell.cell);
                rows.push(claim(question, false, rounded(ours - theirs), &note, doubt));
            }
        }
        if differences.is_empty() {
            continue;
        }
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        let better = differences
            .iter()
            .filter(|difference| **difference >= 0.0)
            .count();
        let note = format!("no worse in {better} of {}", differences.len());
        findings.push(claim(
            format!("mean of all, less {other}"),
            true,
            rounded(mean),
            &note,
            doubt,
        ));
        findings.extend(rows);
    }
    findings
}

/// To a hundredth of a percent.
fn rounded(ratio: f64) -> f64 {
    (1e4 * ratio).round() / 1e4
}

fn claim(question: String, core: bool, figure: f64, note: &str, doubt: Option<&str>) -> Finding {
    let claim = Claim {
        question,
        core,
        target: NO_LESS,
        note,
    };
    claim.judge(Interval::exact(figure), doubt)
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let all = findings(&cells);
    let core: Vec<Finding> = all.iter().filter(|finding| finding.core).cloned().collect();
    let mut text = findings_table(records, &cells, core);
    let Some(first) = cells.first() else {
        return Ok(text);
    };
    text.push_str(&format!(
        "\nHit ratios, with the number of blocks held; of an access of ours, processor time and joules ({}):\n\n\
         | trace | size | blocks | ours | S3-FIFO | ARC | LRU | core us | uJ |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        energy_of(first)
    ));
    for cell in &cells {
        for percent in PERCENTS {
            let task = format!("{percent} %");
            let ours = |column| of(cell, &task, OURS, column);
            let blocks = ours(BLOCKS);
            text.push_str(&format!("| {} | {task} | {blocks:.0} |", cell.cell));
            for policy in [OURS].into_iter().chain(OTHERS) {
                text.push_str(&format!(" {:.2} % |", 100.0 * ratio(cell, &task, policy)));
            }
            let core = [(CPU, 2), (JOULES, 1)].map(|(column, digits)| shown(ours(column), digits));
            text.push_str(&format!(" {} | {} |\n", core[0], core[1]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn ours_holds_about_what_was_wanted() {
        let keys: Vec<u64> = (0..40_000_u64).map(|at| at * 7919 % 4001).collect();
        let (_, blocks) = ours(&keys, 1000).unwrap();
        assert!((850.0..1100.0).contains(&blocks), "{blocks}");
        let (ratio, blocks) = ours(&keys, 8000).unwrap();
        assert!(
            blocks <= 4001.0 && (ratio - 36_000.0 / 40_000.0).abs() < 0.001,
            "{ratio} {blocks}"
        );
    }

    #[test]
    fn the_mean_decides_and_rows_stand_beside() {
        let cell = |name: &str, ours: f64| {
            let mut rows = Vec::new();
            for percent in PERCENTS {
                for (contender, ratio) in [
                    (OURS, ours),
                    (OTHERS[0], 0.5),
                    (OTHERS[1], 0.4),
                    (OTHERS[2], 0.7),
                ] {
                    rows.push(Row {
                        task: format!("{percent} %"),
                        run: 1,
                        runs: 1,
                        contender: contender.to_string(),
                        values: vec![ratio, 100.0, 1000.0, 0.5, 3.0],
                    });
                }
            }
            CellRecord::made_up(name, "data=real", rows)
        };
        let found = findings(&[cell("one", 0.6), cell("two", 0.48)]);
        let core: Vec<Verdict> = found
            .iter()
            .filter(|it| it.core)
            .map(|it| it.verdict)
            .collect();
        assert_eq!(core, [Verdict::Holds, Verdict::Holds, Verdict::Differs]);
        assert_eq!(found.len(), 3 * (1 + 2 * PERCENTS.len()));
        assert!(
            found[0].note.contains("no worse in 3 of 6"),
            "{:?}",
            found[0]
        );
    }
}
