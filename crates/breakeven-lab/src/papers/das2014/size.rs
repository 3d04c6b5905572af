//! The bytes of a history of messages: when it was made, and after five times as many rows were written over.

use std::path::Path;

use anyhow::Result;

use super::worker::{self, COLUMNS, CPU, DELETE, FILE, OURS, SECONDS, WRITTEN};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/size",
    claim: "A history of JSON messages takes at most 0.35 of a plain database, when it is made and after it was written over five times.",
    source: "this project's own target",
    figure: "bytes of the file over those of the plain one",
    target: Target {
        low: 0.0,
        high: 0.35,
    },
    parameters: &[
        (
            "messages",
            "made up: identifiers, times, words by a power law; 500 and 10,000 of them (quick: 20), some 1.2 kB each",
        ),
        ("made", "100 rows in a transaction"),
        (
            "written over",
            "five times as many rows as there are, each at random and all of it new, 10 in a transaction",
        ),
    ],
    analysis: "Sizes have no noise, but random places do: one run each. Files are as they lie, with room that waits to \
        be used again. A file has segments of 64 KiB at least, which small databases feel.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const CONTENDERS: [&str; 2] = [OURS, DELETE];
const TASKS: [&str; 2] = ["fill", "overwrite"];
/// A cell with fewer messages is none to judge by.
const JUDGED_MESSAGES: usize = 500;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let counts: &[usize] = if laboratory.quick {
        &[20]
    } else {
        &[500, 10_000]
    };
    let parts = worker::parts();
    let is_missing = parts.starts_with("missing");
    let cells = counts.iter().map(|count| Cell {
        name: format!("{count} messages"),
        parameters: format!("count={count} {parts}"),
        measure: Box::new(move || rows(laboratory, *count, is_missing)),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn rows(laboratory: &Laboratory, count: usize, is_missing: bool) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let mut rows = Vec::new();
    for (run, task) in TASKS.iter().enumerate() {
        for contender in CONTENDERS {
            let values = match is_missing {
                true => vec![f64::NAN; COLUMNS.len()],
                false => worker::run(folder.path(), contender, task, count, run)?,
            };
            rows.push(row(task, contender, values));
        }
    }
    Ok(rows)
}

fn row(task: &str, contender: &str, values: Vec<f64>) -> Row {
    Row::new(task, contender, (0, 1), values)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(findings_of).collect()
}

fn findings_of(cell: &CellRecord) -> Vec<Finding> {
    let count = cell.parameter("count").and_then(|it| it.parse().ok());
    let is_judged = cell.parameter("missing").is_none() && count >= Some(JUDGED_MESSAGES);
    let finding = |task: &&str| {
        let of = |contender, column| cell.median(task, contender, column);
        let found = Interval::exact(of(OURS, FILE) / of(DELETE, FILE));
        let done = if *task == TASKS[0] {
            "made"
        } else {
            "written over"
        };
        Finding {
            question: format!("{}, {done}", cell.cell),
            core: true,
            found,
            verdict: match is_judged {
                true => EXPERIMENT.target.judge(found),
                false => Verdict::CannotTell,
            },
            note: match cell.parameter("missing") {
                Some(missing) => format!("not measured without {missing}"),
                None => format!("{:.2} MB", of(OURS, FILE) / 1e6),
            },
        }
    };
    TASKS.iter().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    let whole: Vec<&CellRecord> = (cells.iter())
        .filter(|cell| cell.parameter("missing").is_none())
        .collect();
    if whole.is_empty() {
        return Ok(shown);
    }
    shown.push_str(
        "\n| cell | work | database | file MB | written MB | seconds | core seconds |\n|---|---|---|---:|---:|---:|---:|\n",
    );
    for cell in whole {
        for task in TASKS {
            for contender in CONTENDERS {
                let of = |column| cell.median(task, contender, column);
                shown.push_str(&format!(
                    "| {} | {task} | {contender} | {:.2} | {:.2} | {:.2} | {:.2} |\n",
                    cell.cell,
                    of(FILE) / 1e6,
                    of(WRITTEN) / 1e6,
                    of(SECONDS),
                    of(CPU),
                ));
            }
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_judged_after_each_work_and_small_ones_never() {
        let check = |parameters: &str, ours: f64, expected: Verdict| {
            let rows = TASKS.iter().flat_map(|task| {
                [(OURS, ours), (DELETE, 100.0)]
                    .map(|(name, bytes)| row(task, name, vec![1.0, 1.0, 1.0, bytes]))
            });
            let cell = CellRecord::made_up("messages", parameters, rows.collect());
            let found = findings(&[cell]);
            assert!(found.iter().all(|it| it.verdict == expected), "{found:?}");
        };
        check("count=500", 35.0, Verdict::Holds);
        check("count=500", 36.0, Verdict::Differs);
        check("count=20", 1.0, Verdict::CannotTell);
        check("count=500 missing=python3", 1.0, Verdict::CannotTell);
    }
}
