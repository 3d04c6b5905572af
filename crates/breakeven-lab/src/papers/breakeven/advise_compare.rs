//! Does `compare` stay quiet where nothing changed? Pairs of advice on the same data and machine.
//!
//! Each advice is a user's own: the medium is probed again, nothing is remembered. A pair that counts a verdict as
//! changed would fail somebody's build for nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use breakeven::advise::compare::compare;
use breakeven::advise::population::Population;
use breakeven::advise::report::Report;
use breakeven::advise::sample::SampleOptions;
use breakeven::advise::{AdviseOptions, advise, default_data};
use breakeven::medium::Medium;
use breakeven::medium::probe::{ProbeOptions, probe};

use super::advise_accuracy::setting;
use crate::data::{Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/advise-compare",
    claim: "`compare` counts no verdict as changed between two runs on the same data and machine.",
    source: "this project's own target",
    figure: "share of pairs in which a verdict counts as changed",
    target: CHANGED,
    parameters: &[
        (
            "data",
            "16 MiB of each of four generated kinds; the files that `advise` gathers from this machine without a path; the folder of --data",
        ),
        (
            "pairs",
            "25 of each, one run after the other, none in two pairs. Each sample takes 5 s, and the medium is probed for 2.5 s before it",
        ),
    ],
    analysis: "Verdicts that differ at costs whose bands meet are no change. They are counted beside, since a \
        comparison of verdicts alone would fail these pairs. Other load on the machine is part of the figure.",
    run,
    table,
    pictures: no_pictures,
};

/// One pair in twenty.
const CHANGED: Target = Target {
    low: 0.0,
    high: 0.05,
};
const COLUMNS: &[&str] = &["compared", "changed", "within_error"];
const CHANGED_COLUMN: usize = 1;
const WITHIN_COLUMN: usize = 2;
/// Of three kinds of data 75 without a change are as many as it takes to show that no more than one in twenty has one.
const PAIRS: usize = 25;

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let folder = laboratory.scratch()?;
    let quick = laboratory.quick;
    let kinds = [Kind::Text, Kind::Rows, Kind::Numbers, Kind::Mixed];
    for kind in kinds {
        let bytes = if quick { 1 << 19 } else { 16 << 20 };
        let path = folder.path().join(kind.to_string());
        fs::write(path, kind.generate(bytes, SEED))?;
    }
    let mut data: Vec<(&str, Option<PathBuf>)> =
        vec![("generated", Some(folder.path().to_path_buf()))];
    if !quick {
        data.push(("machine", None));
        data.extend(laboratory.data.clone().map(|path| ("files", Some(path))));
    }
    let cells = data.into_iter().map(|(name, path)| {
        let beside = folder.path().to_path_buf();
        Cell {
            name: name.to_string(),
            parameters: format!("quick={quick} seed={SEED}"),
            measure: Box::new(move || pairs(path.as_deref(), &beside, quick)),
        }
    });
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())?;
    Ok(judge(&measured))
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, EXPERIMENT.key, COLUMNS, judge)
}

/// Compares pairs of advice on some data, or on the machine's own.
fn pairs(path: Option<&Path>, beside: &Path, quick: bool) -> Result<Vec<Row>> {
    let population = match path {
        Some(path) => Population::walk(&[path.to_path_buf()], Duration::from_secs(10), SEED)?,
        None => default_data::gather()?,
    };
    let runs = if quick { 1 } else { PAIRS };
    let mut rows = Vec::with_capacity(runs);
    for run in 1..=runs {
        let before = report(&population, beside, quick)?;
        let comparison = compare(&before, &report(&population, beside, quick)?);
        for change in &comparison.verdicts {
            let (was, is) = (&change.before, &change.after);
            eprintln!(
                "changed: {} {} on {}: {} {:?} -> {} {:?}",
                change.place,
                change.metric,
                change.class,
                was.method,
                was.cost_ratio,
                is.method,
                is.cost_ratio
            );
        }
        rows.push(Row {
            task: "pair".to_string(),
            run,
            runs,
            contender: "compare".to_string(),
            values: vec![
                comparison.verdicts_compared as f64,
                comparison.verdicts.len() as f64,
                comparison.within_error.len() as f64,
            ],
        });
    }
    Ok(rows)
}

fn report(population: &Population, beside: &Path, quick: bool) -> Result<Report> {
    let stop = AtomicBool::new(false);
    let medium: Medium = match quick {
        true => "nvme".parse()?,
        false => probe(beside, &ProbeOptions::default(), &stop, &mut |_| {})?.medium(),
    };
    let mut sample = SampleOptions {
        time_limit: Duration::from_secs(5),
        ..SampleOptions::default()
    };
    if quick {
        sample.slow = vec!["zstd:9".parse()?];
    }
    let options = AdviseOptions {
        sample,
        ..AdviseOptions::default()
    };
    Ok(advise(
        population,
        &options,
        &mut setting(medium)?,
        &stop,
        &mut |_| {},
    )?)
}

fn judge(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |question: String, cells: &[&CellRecord], core: bool| {
        let rows = || cells.iter().flat_map(|cell| &cell.rows);
        let count = |column: usize| rows().filter(|row| row.values[column] > 0.0).count();
        let (tried, changed) = (rows().count(), count(CHANGED_COLUMN));
        let found = Interval::of_share(changed, tried);
        Finding {
            question,
            core,
            found,
            verdict: CHANGED.judge(found),
            note: format!(
                "{changed} of {tried} pairs; {} with verdicts that turned within their bands",
                count(WITHIN_COLUMN)
            ),
        }
    };
    let all: Vec<&CellRecord> = cells.iter().collect();
    let mut findings = vec![finding("all data".to_string(), &all, true)];
    findings.extend(
        all.iter()
            .map(|cell| finding(cell.cell.clone(), &[*cell], false)),
    );
    findings
}
