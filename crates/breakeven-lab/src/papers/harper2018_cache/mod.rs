//! Harper 2018, "Viability of time-memory trade-offs in large data sets", his last page: "a full cache replacement
//! system" in a benchmark. Here it is the library's cache against others. Those are itself without compression, every
//! fixed split, the bound of all caches, a disk, and the caches of others. His model is one more: its figures are
//! measured instead of computed.
//!
//! Misses are charged at the cell's price and not made, but on the disk. Codecs always run. Costs are those that the
//! cache accounts for: misses, compressing, restoring, and finding out whether that pays. The cost of a hit is measured
//! apart, in processor time.

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
use breakeven::meter::{Clock, EnergyMeter, EnergyOptions, Machine, PowerModel, Roots};

use super::Experiment;
use super::harper2018::Claim;
use crate::laboratory::Finding;
use crate::record::CellRecord;
use crate::statistics::{Interval, Target};
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

/// Returns the model of this machine's watts.
pub fn power() -> Result<PowerModel> {
    let machine = Machine::read(&Roots::default());
    let options = EnergyOptions {
        counters: false,
        ..EnergyOptions::default()
    };
    let meter = EnergyMeter::choose(&options, &machine, Clock::real())?;
    Ok(meter.model().clone())
}

/// Says where joules come from, as a parameter of a cell.
pub fn energy(power: &PowerModel) -> String {
    format!("energy={}", power.source()).replace(',', " ")
}

/// Says the same in a table, of a cell on record.
pub fn energy_of(cell: &CellRecord) -> &str {
    cell.parameter("energy").unwrap_or("of no model yet")
}

/// Writes a figure into a table; nothing where it was not measured.
fn shown(figure: f64, digits: usize) -> String {
    match figure.is_nan() {
        true => String::new(),
        false => format!("{figure:.digits$}"),
    }
}

/// Returns the median of values, and no number if there is none of any run.
fn middle(values: &[f64]) -> f64 {
    match values.is_empty() || values.iter().any(|value| value.is_nan()) {
        true => f64::NAN,
        false => Interval::of_pairs(values).middle,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_shows_as_nothing() {
        let check = |values: &[f64], expected: &str| assert_eq!(shown(middle(values), 1), expected);
        check(&[1.0, 3.0, 2.0], "2.0");
        check(&[], "");
        check(&[1.0, f64::NAN], "");
    }
}
