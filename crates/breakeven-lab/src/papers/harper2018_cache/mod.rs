//! Harper 2018, "Viability of time-memory trade-offs in large data sets", his last page: "a full cache
//! replacement system" in a benchmark. Here it is: the library's cache against itself without
//! compression, against every fixed split, against what no cache can beat, on a disk, against the
//! caches of others, and against his model, whose figures are measured instead of computed.
//!
//! Misses are charged at what a cell says and not made, but on the disk; codecs always run. Costs are
//! those that the cache accounts for: misses, compressing, restoring, and finding out whether that
//! pays. What a hit takes is measured apart, in processor time.

mod bystander;
mod cases;
mod corpus;
mod disk;
mod figures;
mod hit_ratio;
mod hits;
mod memory;
mod overheads;
mod pictures;
mod pictures_of_figures;
mod policies;
mod replacement;
pub mod rival_worker;
mod rivals;

use std::path::Path;

use anyhow::Result;

use super::Experiment;
use super::harper2018::Claim;
use crate::laboratory::Finding;
use crate::record::{CellRecord, Record};
use crate::statistics::Target;
use crate::tables;

pub const EXPERIMENTS: &[Experiment] = &[
    policies::RAW_ONLY,
    policies::SPLITS,
    policies::BOUND,
    disk::EXPERIMENT,
    overheads::EXPERIMENT,
    figures::FIGURES,
    figures::MODEL,
    hit_ratio::EXPERIMENT,
    hits::EXPERIMENT,
    rivals::EXPERIMENT,
    memory::EXPERIMENT,
];

/// Makes Markdown of what is found in the last record of each cell.
fn table_of(
    records: &Path,
    key: &str,
    columns: &'static [&'static str],
    findings: fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<String> {
    let cells = tables::latest(Record::new(records, key, columns).read()?);
    Ok(findings_table(records, &cells, &findings(&cells)))
}

/// Makes Markdown of findings and where they come from.
fn findings_table(records: &Path, cells: &[CellRecord], findings: &[Finding]) -> String {
    let origin = tables::origin(records, cells);
    if findings.is_empty() {
        return origin;
    }
    let (rows, summary) = (tables::findings(findings), tables::summary(findings));
    format!("{origin}Verdict: {summary}.\n\n{rows}\n")
}

/// The figures that are at most this.
const fn at_most(high: f64) -> Target {
    Target { low: 0.0, high }
}
