//! The costs that the thesis sets to zero: hits, the search among all buffers, the branches between compressed and raw
//! buffers, and processor time taken from others.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use breakeven::cache::{Arm, Bench, Lookup, Policy, Shard, ShardOptions};
use breakeven::codec::{Compressor, Decompressor, Method};
use breakeven::model::Overheads;
use breakeven::units::Seconds;

use super::figures::{FAULT_US, METHODS};
use super::{Claim, at_most, bystander, corpus};
use crate::clock;
use crate::data::{Random, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::Interval;
use crate::tables;

pub const RECORD: &str = "harper2018-cache/overheads";

pub const EXPERIMENT: Experiment = Experiment {
    key: RECORD,
    claim: "Branches, search and hits, which the thesis sets to zero, take less than a hundredth of a page fault.",
    source: "Harper 2018, chapter 3, Assumptions; his page fault of 110 us",
    figure: "time over that of a page fault",
    target: at_most(0.01),
    parameters: &[
        (
            "hit",
            "looking up one of 512 blocks of 64 bytes that are held as they are, in any order",
        ),
        (
            "search",
            "the cost of each doubling up to 32,768 blocks, times the doublings up to a million. His search takes log2 comparisons, ours is a table of hashes",
        ),
        (
            "branches",
            "hits of pages that are raw in a cache half of whose memory is compressed, less hits of as many in one that compresses nothing",
        ),
        (
            "stolen",
            "one page compressed, or restored, on one core: the loss meanwhile of a thread on another core whose work wants its caches",
        ),
        ("runs", "10 (quick: 2), all alternating"),
    ],
    analysis: "A difference of two times of some nanoseconds may come out below zero. It is recorded as it is and \
        counts as measured. Where the two processors are threads of one core, a bystander loses much whenever the \
        other thread computes, at any work. A core is not idle because one of its threads is.",
    run: |laboratory| {
        let cells = laboratory.measure(RECORD, COLUMNS, cells(laboratory))?;
        Ok(findings(&cells))
    },
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["us"];
const HIT: &str = "hit";
const SEARCH: &str = "search";
const BRANCH: &str = "branch";
const COMPRESS: &str = "stolen-compress";
const RESTORE: &str = "stolen-restore";
const SMALL: u64 = 512;
const LARGE: u64 = 32_768;
/// Doublings of buffers up to a million, which the thesis's cache of 15 GB holds about.
const DOUBLINGS: f64 = 20.0;
const PAGE_BYTES: usize = 8 << 10;

/// How long things are done in one run.
#[derive(Clone, Copy)]
struct Length {
    hits: usize,
    pages: usize,
    /// How long the bystander works alone.
    alone: Duration,
    runs: usize,
}

/// Costs to be put back into the model, in microseconds.
#[derive(Clone, Debug, Default)]
pub struct Left {
    hit: f64,
    search: f64,
    branch: f64,
    /// Of compressing and restoring, by method.
    stolen: Vec<(String, f64, f64)>,
}

impl Left {
    fn of(cell: &CellRecord) -> Left {
        let us = |task: &str, contender: &str| match cell.column(task, contender, 0) {
            values if values.is_empty() => 0.0,
            values => Interval::of_pairs(&values).middle,
        };
        let stolen = METHODS.map(|method| {
            (
                method.to_string(),
                us(COMPRESS, method),
                us(RESTORE, method),
            )
        });
        Left {
            hit: us(HIT, CACHE),
            search: us(SEARCH, CACHE),
            branch: us(BRANCH, CACHE),
            stolen: stolen.into(),
        }
    }

    /// Returns the costs as the model takes them, of an access alone. A cost that came out below zero is nothing.
    pub fn own(&self) -> Overheads {
        let seconds = |us: f64| Seconds(1e-6 * us.max(0.0));
        // A hit was measured with the search among few buffers in it.
        let few = f64::from(SMALL.ilog2());
        Overheads {
            hit: seconds(self.hit - few * self.search),
            branch: seconds(self.branch),
            comparison: seconds(self.search),
            ..Overheads::default()
        }
    }

    /// Returns the same with the costs of others whose processor is taken.
    pub fn all(&self, method: &str) -> Overheads {
        let stolen = self.stolen.iter().find(|(name, ..)| name == method);
        let (compress, restore) =
            stolen.map_or((0.0, 0.0), |(_, compress, restore)| (*compress, *restore));
        Overheads {
            stolen_by_compress: Seconds(1e-6 * compress.max(0.0)),
            stolen_by_decompress: Seconds(1e-6 * restore.max(0.0)),
            ..self.own()
        }
    }
}

/// The contender of hits, searches and branches.
const CACHE: &str = "cache";

fn cells(laboratory: &Laboratory) -> Vec<Cell<'_>> {
    let length = match laboratory.quick {
        true => Length {
            hits: 20_000,
            pages: 64,
            alone: Duration::from_millis(5),
            runs: 2,
        },
        false => Length {
            hits: 1_000_000,
            pages: 2048,
            alone: Duration::from_millis(100),
            runs: 10,
        },
    };
    vec![Cell {
        name: "one thread".to_string(),
        parameters: format!(
            "{} hits={} pages={} runs={}",
            corpus::label(laboratory),
            length.hits,
            length.pages,
            length.runs
        ),
        measure: Box::new(move || {
            let bytes = corpus::Set::Database.load(laboratory)?;
            rows(&bytes, length)
        }),
    }]
}

/// Measures the costs to put back, or takes them from the record.
pub fn measured(laboratory: &Laboratory) -> Result<Left> {
    let cells = laboratory.need(RECORD, COLUMNS, cells(laboratory))?;
    Ok(Left::of(
        cells.last().context("overheads are measured or recorded")?,
    ))
}

/// Returns the record.
pub fn recorded(records: &Path) -> Result<Option<Left>> {
    let cells = Record::new(records, RECORD, COLUMNS).latest()?;
    Ok(cells.last().map(Left::of))
}

fn rows(bytes: &[u8], length: Length) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for run in 0..length.runs {
        let mut row = |task: &str, contender: &str, us: f64| {
            rows.push(Row {
                task: task.to_string(),
                run: run + 1,
                runs: length.runs,
                contender: contender.to_string(),
                values: vec![us],
            });
        };
        let small = hit_us(SMALL, Policy::RawOnly, length.hits)?;
        let large = hit_us(LARGE, Policy::RawOnly, length.hits)?;
        row(HIT, CACHE, small);
        row(
            SEARCH,
            CACHE,
            (large - small) / f64::from((LARGE / SMALL).ilog2()),
        );
        let half = Policy::Static(Arm {
            compressed_share: 0.5,
            method: 0,
            admits_once: true,
        });
        row(
            BRANCH,
            CACHE,
            split_hit_us(bytes, half, length.hits)?
                - split_hit_us(bytes, Policy::RawOnly, length.hits)?,
        );
        for method in METHODS {
            let (compress, restore) = stolen_us(bytes, method.parse()?, length)?;
            row(COMPRESS, method, compress);
            row(RESTORE, method, restore);
        }
    }
    Ok(rows)
}

/// Returns the time of a hit of one of `blocks` small blocks that are all raw.
fn hit_us(blocks: u64, policy: Policy, hits: usize) -> Result<f64> {
    let (mut shard, mut bench) = (shard(policy, 64 << 20)?, Bench::new());
    for key in 0..blocks {
        shard.get_or_load(key, 64, &mut bench, |frame| {
            frame.fill(key as u8);
            Ok(())
        })?;
    }
    let keys: Vec<u64> = (0..blocks).collect();
    time_hits(&mut shard, &mut bench, &keys, hits)
}

fn shard(policy: Policy, budget_bytes: u64) -> Result<Shard<u64>> {
    let options = ShardOptions {
        policy,
        ..ShardOptions::sized(budget_bytes, PAGE_BYTES)
    };
    Ok(Shard::new(options)?)
}

/// Returns the time of a hit of those pages that a cache of this policy holds raw, at most 512.
fn split_hit_us(bytes: &[u8], policy: Policy, hits: usize) -> Result<f64> {
    let (mut shard, mut bench) = (shard(policy, 16 << 20)?, Bench::new());
    let pages = bytes.chunks_exact(PAGE_BYTES).zip(0_u64..).take(8192);
    let count = (bytes.len() / PAGE_BYTES).min(8192) as u64;
    for (page, key) in pages {
        shard.get_or_load(key, PAGE_BYTES, &mut bench, |frame| {
            frame.copy_from_slice(page);
            Ok(())
        })?;
    }
    let raw = (0..count)
        .rev()
        .filter(|key| matches!(shard.lookup(key, &mut bench), Lookup::Raw(_)));
    let keys: Vec<u64> = raw.take(SMALL as usize).collect();
    ensure!(!keys.is_empty(), "no page is raw");
    time_hits(&mut shard, &mut bench, &keys, hits)
}

fn time_hits(shard: &mut Shard<u64>, bench: &mut Bench, keys: &[u64], hits: usize) -> Result<f64> {
    let mut random = Random::new(SEED);
    let order: Vec<u64> = (0..hits)
        .map(|_| keys[random.below(keys.len() as u64) as usize])
        .collect();
    let mut found = 0;
    let (duration, ()) = clock::time(|| {
        for key in &order {
            found += usize::from(shard.get(key, bench).is_some());
        }
    });
    ensure!(found == hits, "{found} of {hits} hits");
    Ok(1e6 * duration.cpu_seconds / hits as f64)
}

/// Returns a bystander's loss while one page is compressed, and while one is restored.
fn stolen_us(bytes: &[u8], method: Method, length: Length) -> Result<(f64, f64)> {
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    let pages: Vec<&[u8]> = bytes.chunks_exact(PAGE_BYTES).take(length.pages).collect();
    let mut packed = Vec::new();
    let mut target = vec![0; PAGE_BYTES];
    let alone = bystander::alone(length.alone)?;
    let (compressing, beside) = bystander::beside(|| {
        let (duration, outcome) = clock::time(|| {
            pages.iter().try_for_each(|page| {
                if let Some(size) = compressor.compress(method, page, &mut target)? {
                    packed.push(target[..size].to_vec());
                }
                Ok::<(), breakeven::Error>(())
            })
        });
        outcome?;
        Ok(duration.wall_seconds / pages.len() as f64)
    })?;
    let lost = |rate: f64| 1.0 - rate / alone;
    let compress = 1e6 * compressing * lost(beside);
    let (restoring, beside) = bystander::beside(|| {
        // As long as compressing took, which is longer.
        let (duration, outcome) = clock::time(|| {
            (0..4).try_for_each(|_| {
                packed.iter().try_for_each(|packed| {
                    decompressor.decompress(method.decoder(), packed, &mut target)
                })
            })
        });
        outcome?;
        Ok(duration.wall_seconds / (4 * packed.len().max(1)) as f64)
    })?;
    Ok((compress, 1e6 * restoring * lost(beside)))
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let mut claim = |question: &str, core: bool, us: Vec<f64>| {
            if us.is_empty() {
                return;
            }
            let shares: Vec<f64> = us.iter().map(|us| us / FAULT_US).collect();
            let note = format!("{:.4} us", Interval::of_pairs(&us).middle);
            let claim = Claim {
                question: question.to_string(),
                core,
                // Less than nothing is a small difference of two times.
                target: crate::statistics::Target {
                    low: f64::NEG_INFINITY,
                    high: EXPERIMENT.target.high,
                },
                note: &note,
            };
            findings.push(claim.judge(Interval::of_pairs(&shares), corpus::doubt(cell)));
        };
        claim("a hit", true, cell.column(HIT, CACHE, 0));
        let search = cell.column(SEARCH, CACHE, 0);
        claim(
            "a search among a million",
            true,
            search.iter().map(|us| us * DOUBLINGS).collect(),
        );
        claim("the branches of a hit", true, cell.column(BRANCH, CACHE, 0));
        for method in METHODS {
            claim(
                &format!("stolen by compressing a page, {method}"),
                false,
                cell.column(COMPRESS, method, 0),
            );
            claim(
                &format!("stolen by restoring a page, {method}"),
                false,
                cell.column(RESTORE, method, 0),
            );
        }
    }
    findings
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, RECORD, COLUMNS, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn costs_are_put_back_as_they_were_found() {
        let row = |task: &str, contender: &str, run: usize, us: f64| Row {
            task: task.to_string(),
            run,
            runs: 10,
            contender: contender.to_string(),
            values: vec![us],
        };
        let mut rows = Vec::new();
        for run in 1..=10 {
            rows.push(row(HIT, CACHE, run, 2.0));
            rows.push(row(SEARCH, CACHE, run, 0.2));
            rows.push(row(BRANCH, CACHE, run, -0.01));
            rows.push(row(COMPRESS, METHODS[1], run, 9.0));
        }
        let cell = CellRecord::made_up("one thread", "data=real", rows);
        let left = Left::of(&cell);
        let (own, all) = (left.own(), left.all(METHODS[1]));
        // Nine doublings of 0.2 us are in a hit of 2 us.
        assert!((own.hit.0 - 0.2e-6).abs() < 1e-12 && own.branch.0 == 0.0);
        assert!(own.stolen_by_compress.0 == 0.0);
        assert!((all.stolen_by_compress.0 - 9e-6).abs() < 1e-12);
        let found = findings(&[cell]);
        let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
        // A hit of 2 us, and 20 doublings of 0.2 us, are too much of 110.
        assert_eq!(
            verdicts,
            [
                Verdict::Differs,
                Verdict::Differs,
                Verdict::Holds,
                Verdict::Differs
            ]
        );
    }

    #[test]
    fn everything_is_measured_once_a_run() {
        let bytes = crate::data::Kind::Text.generate(4 << 20, SEED);
        let length = Length {
            hits: 2000,
            pages: 16,
            alone: Duration::from_millis(5),
            runs: 2,
        };
        let rows = rows(&bytes, length).unwrap();
        assert_eq!(rows.len(), 2 * (3 + 2 * METHODS.len()));
        assert!(rows.iter().all(|row| row.values[0].is_finite()));
    }
}
