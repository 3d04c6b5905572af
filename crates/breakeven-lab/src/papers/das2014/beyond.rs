//! Reads, and few writes, of a database that is three times as long as its reader's memory.

use std::path::Path;

use anyhow::Result;

use super::worker::{self, COLUMNS, CONTENDERS, DELETE, OURS, SECONDS, WAL, Work};
use crate::device::drop_caches;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::memory::MemoryGroup;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/beyond",
    claim: "Of a database three times as long as memory, messages are read faster if it is compressed than if it is plain.",
    source: "this project's own target",
    figure: "seconds over ours",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "database",
            "120,000 made-up messages as JSON (quick: 50), as in das2014/size, some 150 MB, copied page by page",
        ),
        (
            "requests",
            "9,500 messages read by number, each as likely, and 500 changed, each durable; after as many that are not timed (quick: 100)",
        ),
        (
            "memory",
            "50 MiB for each process with the system's cache of its files, by a control group, and none of the files in it before",
        ),
        ("runs", "10 (quick: 2), all three alternating"),
    ],
    analysis: "Some 15 MiB of the memory are Python's own. Data outside memory comes from this machine's device, which \
        may be quick. On a slower one a miss costs more.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const SCRIPT: &str = concat!(include_str!("connect.py"), include_str!("beyond.py"));
const TASK: &str = "requests";
const CELL: &str = "read mostly";
const MEMORY_BYTES: u64 = 50 << 20;
/// A cell of fewer messages is none to judge by.
const JUDGED_MESSAGES: usize = 1000;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (runs, count) = if laboratory.quick {
        (2, 50)
    } else {
        (10, 120_000)
    };
    let parts = match MemoryGroup::is_possible() {
        true => worker::parts(),
        false => "missing=control+groups".to_string(),
    };
    let is_missing = parts.starts_with("missing");
    let cell = Cell {
        name: CELL.to_string(),
        parameters: format!("runs={runs} count={count} {} {parts}", worker::energy()?),
        measure: Box::new(move || match is_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, runs, count),
        }),
    };
    laboratory.measure(EXPERIMENT.key, COLUMNS, vec![cell])
}

fn rows(laboratory: &Laboratory, runs: usize, count: usize) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let databases = folder.path();
    let work = Work {
        script: SCRIPT,
        columns: COLUMNS,
        parameters: "",
        count,
        run: 0,
        memory: None,
    };
    work.make_all(databases)?;
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let group = MemoryGroup::new(MEMORY_BYTES)?;
            if !laboratory.quick {
                drop_caches()?;
            }
            let own = Work {
                run: run + 1,
                memory: Some(&group),
                ..work
            };
            let values = own.told(databases, CONTENDERS[index], TASK)?;
            Ok(row(CONTENDERS[index], run, runs, values))
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
        [DELETE, WAL].map(|peer| {
            let of = |contender| cell.column(TASK, contender, SECONDS);
            let found = Interval::of_quotients(&of(peer), &of(OURS));
            let question = format!("{} against {peer}", cell.cell);
            let mut finding = worker::finding(cell, question, found, EXPERIMENT.target);
            if count < Some(JUDGED_MESSAGES) {
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
    fn both_journals_are_judged_and_few_messages_prove_nothing() {
        let check = |parameters: &str, peer: f64, expected: [Verdict; 2]| {
            let rows = (0..10).flat_map(|run| {
                let seconds = 1.0 + run as f64;
                [(OURS, 1.0), (DELETE, peer), (WAL, peer)]
                    .map(|(name, factor)| row(name, run, 10, vec![factor * seconds, 1.0, 1.0, 1.0]))
            });
            let found = findings(&[CellRecord::made_up(CELL, parameters, rows.collect())]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("count=120000", 1.2, [Holds; 2]);
        check("count=120000", 0.9, [Differs; 2]);
        check("count=50", 1.2, [CannotTell; 2]);
        check("count=120000 missing=python3", 1.2, [CannotTell; 2]);
    }
}
