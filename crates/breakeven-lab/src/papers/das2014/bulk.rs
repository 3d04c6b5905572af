//! A load in one transaction, whose pages one thread encodes, or two: the paper's multi-threaded flush.

use std::path::Path;

use anyhow::Result;

use super::worker::{self, COLUMNS, DELETE, OURS, SCRIPT, SECONDS, WAL, Work};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/bulk",
    claim: "A load in one transaction takes no longer if two threads encode its pages than if one does, and no longer than a plain database's.",
    source: "this project's own target; Das and others 2014 flush by several threads (MT-Flush)",
    figure: "seconds over those of two threads",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "rows",
            "40,000 made-up messages as JSON (quick: 50), as in das2014/size, made before the time is taken; into an empty table, one \
             transaction, `synchronous=FULL`",
        ),
        (
            "databases",
            "ours by `threads=1` and by `threads=2`, and the plain one with both journals",
        ),
        ("runs", "10 (quick: 2), all four alternating"),
    ],
    analysis: "SQLite writes while nobody encodes, and waits while they encode: a MiB of pages is encoded at a time. Its own part and Python's are in all \
        four.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const TASK: &str = "bulk";
const TWO: &str = "breakeven by two threads";
const ONE: &str = "breakeven by one thread";
/// Its name in records, the script's mode, and the options of our URI.
const CONTENDERS: [(&str, &str, &str); 4] = [
    (TWO, OURS, "&threads=2"),
    (ONE, OURS, "&threads=1"),
    (DELETE, DELETE, ""),
    (WAL, WAL, ""),
];

fn names() -> [&'static str; 4] {
    CONTENDERS.map(|(name, ..)| name)
}

/// A load of fewer rows is none to judge by.
const JUDGED_ROWS: usize = 1000;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (runs, count) = if laboratory.quick {
        (2, 50)
    } else {
        (10, 40_000)
    };
    let parts = worker::parts();
    let is_missing = parts.starts_with("missing");
    let cell = Cell {
        name: "one transaction".to_string(),
        parameters: format!("runs={runs} count={count} {} {parts}", worker::energy()?),
        measure: Box::new(move || match is_missing {
            true => Ok(Row::unmeasured(TASK, &names(), COLUMNS)),
            false => rows(laboratory, runs, count),
        }),
    };
    laboratory.measure(EXPERIMENT.key, COLUMNS, vec![cell])
}

fn rows(laboratory: &Laboratory, runs: usize, count: usize) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let (name, contender, parameters) = CONTENDERS[index];
            let work = Work {
                script: SCRIPT,
                columns: COLUMNS,
                parameters,
                count,
                run,
                memory: None,
            };
            Ok(row(
                name,
                run,
                runs,
                work.told(folder.path(), contender, TASK)?,
            ))
        })?);
    }
    Ok(rows)
}

fn row(contender: &str, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (run, runs), values)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        let count = cell.parameter("count").and_then(|it| it.parse().ok());
        let others = CONTENDERS[1..].iter();
        let finding = |(name, ..): &(&str, &str, &str)| {
            let of = |contender| cell.column(TASK, contender, SECONDS);
            let found = Interval::of_quotients(&of(name), &of(TWO));
            let question = format!("{name} over two threads");
            let mut finding = worker::finding(cell, question, found, EXPERIMENT.target);
            if count < Some(JUDGED_ROWS) {
                finding.verdict = Verdict::CannotTell;
            }
            finding
        };
        others.map(finding).collect::<Vec<_>>()
    };
    cells.iter().flat_map(of_cell).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    shown.push_str(&worker::medians(&cells, &names()));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_threads_are_the_measure_and_few_rows_prove_nothing() {
        let check = |parameters: &str, others: f64, expected: [Verdict; 3]| {
            let rows = (0..10).flat_map(|run| {
                let seconds = 1.0 + run as f64;
                CONTENDERS.map(|(name, ..)| {
                    let factor = if name == TWO { 1.0 } else { others };
                    row(name, run, 10, vec![factor * seconds, 1.0, 1.0, 1.0])
                })
            });
            let cell = CellRecord::made_up("one transaction", parameters, rows.collect());
            let found = findings(&[cell]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("count=40000", 1.2, [Holds; 3]);
        check("count=40000", 0.9, [Differs; 3]);
        check("count=50", 1.2, [CannotTell; 3]);
        check("count=40000 missing=python3", 1.2, [CannotTell; 3]);
    }
}
