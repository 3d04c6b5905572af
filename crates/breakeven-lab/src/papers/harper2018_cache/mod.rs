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

use super::Experiment;
use super::harper2018::Claim;
use crate::laboratory::Finding;
use crate::record::CellRecord;
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

/// Makes Markdown of findings and where they come from.
fn findings_table(records: &Path, cells: &[CellRecord], findings: Vec<Finding>) -> tables::Shown {
    let mut shown = tables::judged(tables::origin(records, cells), findings);
    shown.push_str("\n");
    shown
}

/// The figures that are at most this.
const fn at_most(high: f64) -> Target {
    Target { low: 0.0, high }
}
