//! The bytes of other databases: one of real data, and LinkBench's graph, when they were imported and after every row
//! was written five times again.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::worker::{self, COLUMNS, DELETE, FILE, OURS, Work, at_most};
use crate::data;
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/steady",
    claim: "A database of coordinate systems takes at most 0.35 of a plain one, and LinkBench's graph 0.65. That holds after the import and after every row was written five times again.",
    source: "this project's own target",
    figure: "bytes of the file over those of the plain one",
    target: at_most(0.65),
    parameters: &[
        (
            "databases",
            "`proj.db` of Debian's PROJ, 8 MB, if real data are there; LinkBench's graph of 10,000 nodes (quick: 50), as in \
             das2014/linkbench",
        ),
        (
            "imported",
            "by `breakeven db import`, which trains dictionaries",
        ),
        (
            "written again",
            "in each table all rows five times, 20 in a transaction, at random, by a value of theirs that stays; both databases alike",
        ),
    ],
    analysis: "Sizes have no noise, but random places do: one run each. Values stay the same, so that both databases \
        hold the same before and after. Files are as they lie, with room that waits to be used again.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const GRAPH_SCRIPT: &str = concat!(include_str!("connect.py"), include_str!("linkbench.py"));
const GRAPH_COLUMNS: &[&str] = &["seconds", "cpu", "written", "file", "slow"];
const SCRIPT: &str = concat!(
    include_str!("connect.py"),
    include_str!("again.py"),
    include_str!("steady.py")
);
const TASKS: [&str; 2] = ["imported", "written again"];
const CONTENDERS: [&str; 2] = [OURS, DELETE];
const REAL: &str = "sqlite/proj.db";
const CASES: [(&str, Target); 2] = [("proj.db", at_most(0.35)), ("LinkBench", at_most(0.65))];
/// A graph of fewer nodes is none to judge by.
const JUDGED_NODES: usize = 1000;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let nodes = if laboratory.quick { 50 } else { 10_000 };
    let parts = match worker::parts() {
        parts if parts.starts_with("missing") => parts,
        parts => match programs::own_program() {
            Ok(_) => parts,
            Err(_) => "missing=breakeven".to_string(),
        },
    };
    let cells = CASES.iter().enumerate().map(|(case, (name, _))| {
        let has_data = case != 0 || (laboratory.data.is_some() && !laboratory.quick);
        let parts = match has_data {
            true => parts.clone(),
            false => "missing=real+data".to_string(),
        };
        let is_missing = parts.starts_with("missing");
        Cell {
            name: name.to_string(),
            parameters: format!("nodes={nodes} {parts}"),
            measure: Box::new(move || match is_missing {
                true => Ok(missing()),
                false => rows(laboratory, case == 0, nodes),
            }),
        }
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn missing() -> Vec<Row> {
    let of = |task: &&str| Row::unmeasured(task, &CONTENDERS, COLUMNS);
    TASKS.iter().flat_map(of).collect()
}

fn rows(laboratory: &Laboratory, is_real: bool, nodes: usize) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let plain = folder.path().join("delete.db");
    let graph = Work {
        script: GRAPH_SCRIPT,
        columns: GRAPH_COLUMNS,
        parameters: "",
        count: nodes,
        run: 0,
        memory: None,
    };
    match is_real {
        true => std::fs::write(&plain, real(laboratory)?)?,
        false => drop(graph.told(folder.path(), DELETE, "fill")?),
    }
    let imported = Command::new(programs::own_program()?)
        .args(["db", "import", "delete.db", "breakeven.db"])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .status();
    ensure!(imported?.success(), "the import failed");
    let work = Work {
        script: SCRIPT,
        columns: COLUMNS,
        ..graph
    };
    let mut rows = Vec::new();
    for task in TASKS {
        for contender in CONTENDERS {
            rows.push(row(
                task,
                contender,
                work.told(folder.path(), contender, task)?,
            ));
        }
    }
    Ok(rows)
}

/// Returns the real database.
fn real(laboratory: &Laboratory) -> Result<Vec<u8>> {
    let folder = laboratory.data.as_deref().context("no real data")?;
    let files = data::shared_files(folder)?;
    let file = files.iter().find(|file| file.name == REAL);
    file.with_context(|| format!("no {REAL}"))?.load(folder)
}

fn row(task: &str, contender: &str, values: Vec<f64>) -> Row {
    Row::new(task, contender, (0, 1), values)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        let case = CASES.iter().find(|(name, _)| *name == cell.cell);
        let target = case.map_or(EXPERIMENT.target, |(_, target)| *target);
        let nodes = cell.parameter("nodes").and_then(|it| it.parse().ok());
        TASKS.map(|task| {
            let of = |contender| {
                let all = cell.column(task, contender, FILE);
                all.first().copied().unwrap_or(f64::NAN)
            };
            let found = Interval::exact(of(OURS) / of(DELETE));
            let question = format!("{} {task}", cell.cell);
            let mut finding = worker::finding(cell, question, found, target);
            if nodes < Some(JUDGED_NODES) {
                finding.verdict = Verdict::CannotTell;
            }
            finding
        })
    };
    cells.iter().flat_map(of_cell).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    shown.push_str(&worker::medians(&cells, &CONTENDERS));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_database_has_its_target_and_small_ones_prove_nothing() {
        let check = |name: &str, parameters: &str, ours: f64, expected: Verdict| {
            let rows = TASKS.iter().flat_map(|task| {
                [(OURS, ours), (DELETE, 1.0)]
                    .map(|(name, it)| row(task, name, vec![1.0, 1.0, 1.0, it]))
            });
            let found = findings(&[CellRecord::made_up(name, parameters, rows.collect())]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, [expected; 2], "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("proj.db", "nodes=10000", 0.34, Holds);
        check("proj.db", "nodes=10000", 0.36, Differs);
        check("LinkBench", "nodes=10000", 0.64, Holds);
        check("LinkBench", "nodes=50", 0.64, CannotTell);
        check("proj.db", "nodes=10000 missing=real+data", 0.3, CannotTell);
    }
}
