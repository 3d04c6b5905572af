//! Races: the same row of blocks over the same link, written once by each contender, alternating. The link is derived
//! again for each run.
//!
//! Here are also the columns of their records, and the meaning of a record of races.

use std::path::Path;

use anyhow::{Context, Result};
use breakeven::codec::Method;

use super::bench::{Bench, Contender, Regime, WORKERS};
use super::corpus::Input;
use super::link::Link;
use super::network::Network;
use crate::interleave;
use crate::laboratory::Finding;
use crate::record::{CellRecord, Record, Row, Unfinished};
use crate::statistics::Interval;
use crate::tables;

pub const COLUMNS: &[&str] = &[
    "raw_bytes",
    "stored_bytes",
    "compressed_seconds",
    "drained_seconds",
    "cpu_seconds",
    "active_joules",
    "link_bytes_per_second",
    "lz4_bytes_per_second",
    "block_seconds",
    "late_seconds",
    "bound",
];
pub const RAW_BYTES: usize = 0;
pub const STORED_BYTES: usize = 1;
pub const COMPRESSED_SECONDS: usize = 2;
pub const DRAINED_SECONDS: usize = 3;
pub const CPU_SECONDS: usize = 4;
pub const ACTIVE_JOULES: usize = 5;
pub const LINK: usize = 6;
pub const LZ4: usize = 7;
/// Processor time of the pipeline for a block, beside encoding it.
pub const BLOCK_SECONDS: usize = 8;
pub const LATE_SECONDS: usize = 9;
/// The bound of all schedules, in seconds or bytes, by the costs recorded before.
pub const BOUND: usize = 10;

/// The one task of these cells.
pub const WRITE: &str = "write";

/// Returns the bound of a contender's row, given the blocks written.
pub type BoundOf<'a> = Box<dyn Fn(&Contender, &Regime, usize) -> f64 + 'a>;

/// The path of the bytes.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// A link by deadline.
    Virtual,
    /// A socket, through the kernel.
    Socket(&'a Network),
}

/// A race over one input and link.
pub struct Race<'a> {
    pub bench: &'a Bench,
    pub way: Way<'a>,
    pub input: Input,
    pub beta: f64,
    pub contenders: Vec<Contender>,
    pub runs: usize,
    /// Returns how many blocks a run writes.
    pub blocks: Box<dyn Fn(&Regime) -> usize + 'a>,
    pub bound: BoundOf<'a>,
}

impl<'a> Race<'a> {
    /// Prepares a race over the virtual link in so many runs, with no bound to compare anybody with.
    pub fn behind(
        bench: &'a Bench,
        (input, beta, runs): (Input, f64, usize),
        contenders: Vec<Contender>,
        blocks: impl Fn(&Regime) -> usize + 'a,
    ) -> Race<'a> {
        Race {
            bench,
            way: Way::Virtual,
            input,
            beta,
            contenders,
            runs,
            blocks: Box::new(blocks),
            bound: Box::new(|_, _, _| 0.0),
        }
    }

    /// Measures the runs that are not kept yet.
    pub fn run(&self, kept: Unfinished) -> Result<Vec<Row>> {
        let mut blocks = self.bench.blocks_kept(&kept);
        kept.complete(self.runs, |run| {
            let regime = self.bench.regime(self.beta)?;
            if let Way::Socket(network) = self.way {
                network.shape(regime.link)?;
            }
            let blocks = *blocks.get_or_insert_with(|| (self.blocks)(&regime));
            if run == 0 {
                for contender in &self.contenders {
                    (self.bench.verify(contender, self.input, &regime))
                        .with_context(|| contender.name.clone())?;
                }
            }
            let rows = interleave::in_turn(run, self.contenders.len(), |index| {
                let contender = &self.contenders[index];
                let runs = contender.runs.unwrap_or(self.runs).min(self.runs);
                let takes_part = run < runs;
                let row = takes_part.then(|| self.turn(contender, &regime, blocks, (run, runs)));
                row.transpose().with_context(|| contender.name.clone())
            })?;
            Ok(rows.into_iter().flatten().collect())
        })
    }

    fn turn(
        &self,
        contender: &Contender,
        regime: &Regime,
        blocks: usize,
        (run, runs): (usize, usize),
    ) -> Result<Row> {
        let (bench, input) = (self.bench, self.input);
        let (late_seconds, used) = match self.way {
            Way::Virtual => {
                let link = Link::new(regime.link);
                let (link, used) = bench.write(contender, input, blocks, regime, link)?;
                (link.late_seconds(), used)
            }
            Way::Socket(network) => {
                let sender = network.sender()?;
                let (_, used) = bench.write(contender, input, blocks, regime, sender)?;
                (0.0, used)
            }
        };
        Ok(Row {
            task: WRITE.to_string(),
            run: run + 1,
            runs,
            contender: contender.name.clone(),
            values: vec![
                used.summary.raw_bytes as f64,
                used.summary.stored_bytes as f64,
                used.summary.compressed_after.0,
                used.summary.drained_after.0,
                used.cpu_seconds,
                used.active_joules,
                regime.link.0,
                regime.lz4.0,
                regime.block_seconds,
                late_seconds,
                (self.bound)(contender, regime, blocks),
            ],
        })
    }
}

/// Returns a column of one contender over that of another, run by run.
pub fn over(cell: &CellRecord, one: &str, other: &str, column: usize) -> Interval {
    let of = |contender: &str| cell.column(WRITE, contender, column);
    Interval::of_quotients(&of(one), &of(other))
}

/// Returns the median of a column of a contender that took part.
pub fn median(cell: &CellRecord, contender: &str, column: usize) -> f64 {
    cell.median(WRITE, contender, column)
}

/// Returns the ratio that a contender reached.
pub fn ratio(cell: &CellRecord, contender: &str) -> f64 {
    median(cell, contender, RAW_BYTES) / median(cell, contender, STORED_BYTES)
}

/// Returns the method for all blocks that was fastest in a cell.
pub fn best_static(cell: &CellRecord) -> Option<&str> {
    let statics = contenders(cell).into_iter();
    let statics = statics.filter(|name| name.parse::<Method>().is_ok());
    let seconds = |name: &str| median(cell, name, DRAINED_SECONDS);
    statics.min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
}

/// Returns the contenders of a cell in their order.
pub fn contenders(cell: &CellRecord) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in &cell.rows {
        if !names.contains(&row.contender.as_str()) {
            names.push(&row.contender);
        }
    }
    names
}

/// Returns a contender's result in a cell: a line of a table.
fn line(cell: &CellRecord, contender: &str) -> String {
    let of = |column: usize| median(cell, contender, column);
    let raw = of(RAW_BYTES);
    let gigabytes = raw / 1e9;
    format!(
        "| {} | {contender} | {:.3} | {:.3} | {:.0} | {:.3} | {:.2} | {:.1} |\n",
        cell.cell,
        of(DRAINED_SECONDS),
        of(COMPRESSED_SECONDS),
        raw / of(DRAINED_SECONDS) / 1e6,
        ratio(cell, contender),
        of(CPU_SECONDS) / gigabytes,
        of(ACTIVE_JOULES) / gigabytes,
    )
}

/// The head of a table of such lines.
const LINES: &str = "| cell | by | drained after, s | compressed after, s | MB/s | ratio | core s per GB | J per GB |\n\
     |---|---|---:|---:|---:|---:|---:|---:|\n";

/// Returns how the cells were measured and a line for each contender of each; nothing of no cells.
fn lines(cells: &[CellRecord]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n{LINES}", about(cells));
    for cell in cells {
        for contender in contenders(cell) {
            text.push_str(&line(cell, contender));
        }
    }
    text
}

/// Makes Markdown of the findings of a record of races, with their lines.
pub fn table(
    records: &Path,
    record: &str,
    findings: fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<tables::Shown> {
    let mut shown = tables::table_of(records, record, COLUMNS, findings)?;
    shown.push_str(&lines(&Record::new(records, record, COLUMNS).latest()?));
    Ok(shown)
}

/// Says where the joules of some cells come from, and how fast links and LZ4 were.
fn about(cells: &[CellRecord]) -> String {
    let Some(cell) = cells.last() else {
        return String::new();
    };
    let energy = cell.parameter("energy").unwrap_or_default();
    let rows = cells.iter().flat_map(|cell| &cell.rows);
    let speeds: Vec<f64> = rows.clone().map(|row| row.values[LZ4] / 1e6).collect();
    let (low, high) = (
        speeds.iter().copied().fold(f64::INFINITY, f64::min),
        speeds.iter().copied().fold(0.0, f64::max),
    );
    let late = rows.map(|row| row.values[LATE_SECONDS] / row.values[DRAINED_SECONDS]);
    format!(
        "LZ4 by {WORKERS} workers, from which the links are derived: {low:.0} to {high:.0} MB/s. Joules are {energy}. \
         The link lost at most {:.2} % of a run to late wakings.\n",
        100.0 * late.fold(0.0, f64::max)
    )
}
