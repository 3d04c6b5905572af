//! A scan of one table and a join of seven, as TPC-H's first and eighth query do them, over and over in one connection.

use std::path::Path;

use anyhow::{Result, ensure};

use super::worker::{self, CPU, DELETE, OURS, SECONDS, Work, at_most};
use crate::device::drop_caches;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::memory::MemoryGroup;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::Interval;
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/scans",
    claim: "Where the decoded pages fit the cache, scans and joins of a compressed database take at most 1.05 and 1.15 of a plain one's time. Where only the compressed ones fit memory, they take at most 1.2 and 1.4.",
    source: "this project's own target, after sqlite_zstd_vfs, whose own test asks TPC-H's queries",
    figure: "seconds of a query over the plain database's",
    target: at_most(1.4),
    parameters: &[
        (
            "data",
            "made up in the shapes of TPC-H: 60,000 orders (quick: 200) with four lines each, an index of the lines by part",
        ),
        (
            "queries",
            "Q1, a scan of the lines with ten aggregates; Q8, a join of seven tables for eight types of part. Each \
             runs twice after one that is not timed, in one connection with SQLite's own cache of 2 MB",
        ),
        (
            "cells",
            "`page_cache` of 64 MiB, which holds every page, and of 4 MiB, the usual one. Also memory of 30 and 20 \
             MiB, by a control group that counts the system's cache of files. The compressed database of 16 MB fits 30 \
             MiB beside Python. The plain one of 30 MB does not, and neither fits 20 MiB. Each run starts with no \
             files in that cache",
        ),
        ("runs", "10 (quick: 2), the two databases alternating"),
    ],
    analysis: "Answers are compared. No cell asks for the speed of the first scan: the disk decides that.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const SCRIPT: &str = concat!(include_str!("connect.py"), include_str!("scans.py"));
const COLUMNS: &[&str] = &["seconds", "cpu_seconds", "file_bytes", "answer"];
const FILE: usize = 2;
const ANSWER: usize = 3;
const TASKS: [&str; 2] = ["q1", "q8"];
const CONTENDERS: [&str; 2] = [OURS, DELETE];

/// A cell: its name, the options of our URI, the memory of a process, and the targets of both queries, none for a
/// variation.
type Case = (&'static str, &'static str, Option<u64>, Option<[f64; 2]>);

const CASES: [Case; 4] = [
    ("in the cache", "&page_cache=64", None, Some([1.05, 1.15])),
    ("usual cache", "", None, None),
    ("compressed in memory", "", Some(30 << 20), Some([1.2, 1.4])),
    ("beyond memory", "", Some(20 << 20), None),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (runs, orders) = if laboratory.quick {
        (2, 200)
    } else {
        (10, 60_000)
    };
    let cells = CASES.iter().map(|case| {
        let parts = match case.2 {
            Some(_) if !MemoryGroup::is_possible() => "missing=control+groups".to_string(),
            _ => worker::parts(),
        };
        let is_missing = parts.starts_with("missing");
        Cell {
            name: case.0.to_string(),
            parameters: format!("runs={runs} orders={orders} {parts}"),
            measure: Box::new(move || match is_missing {
                true => Ok(missing()),
                false => rows(laboratory, runs, orders, case),
            }),
        }
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn missing() -> Vec<Row> {
    let of = |task: &&str| Row::unmeasured(task, &CONTENDERS, COLUMNS);
    TASKS.iter().flat_map(of).collect()
}

fn rows(laboratory: &Laboratory, runs: usize, orders: usize, case: &Case) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let databases = folder.path();
    let (_, parameters, memory_bytes, _) = *case;
    let work = Work {
        script: SCRIPT,
        columns: COLUMNS,
        parameters,
        count: orders,
        run: 0,
        memory: None,
    };
    work.told(databases, DELETE, "fill")?;
    work.told(databases, OURS, "copy")?;
    let mut rows = Vec::new();
    for run in 0..runs {
        for task in TASKS {
            let both = interleave::in_turn(run, CONTENDERS.len(), |index| {
                let group = memory_bytes.map(MemoryGroup::new).transpose()?;
                if group.is_some() && !laboratory.quick {
                    drop_caches()?;
                }
                let own = Work {
                    run: run + 1,
                    memory: group.as_ref(),
                    ..work
                };
                let values = own.told(databases, CONTENDERS[index], task)?;
                Ok(Row::new(task, CONTENDERS[index], (run, runs), values))
            })?;
            let [ours, theirs] = [0, 1].map(|index: usize| both[index].values[ANSWER]);
            ensure!(ours == theirs, "{task} answers {ours} and {theirs}");
            rows.extend(both);
        }
    }
    Ok(rows)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(findings_of).collect()
}

fn findings_of(cell: &CellRecord) -> Vec<Finding> {
    let case = CASES.iter().find(|case| case.0 == cell.cell);
    let targets = case.and_then(|case| case.3);
    let finding = |(index, task): (usize, &&str)| {
        let of = |contender| cell.column(task, contender, SECONDS);
        let found = Interval::of_quotients(&of(OURS), &of(DELETE));
        let target = targets.map_or(EXPERIMENT.target, |targets| at_most(targets[index]));
        let question = format!("{task}, {}", cell.cell);
        Finding {
            core: targets.is_some(),
            ..worker::finding(cell, question, found, target)
        }
    };
    TASKS.iter().enumerate().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    let whole = |cell: &&CellRecord| cell.parameter("missing").is_none();
    if !cells.iter().any(|cell| whole(&cell)) {
        return Ok(shown);
    }
    shown.push_str(
        "\nMedians of a run.\n\n| cell | query | database | seconds | core seconds | file MB |\n|---|---|---|---:|---:|---:|\n",
    );
    for cell in cells.iter().filter(whole) {
        for (task, contender) in TASKS
            .iter()
            .flat_map(|task| CONTENDERS.map(|it| (task, it)))
        {
            let of = |column| cell.median(task, contender, column);
            shown.push_str(&format!(
                "| {} | {task} | {contender} | {:.3} | {:.3} | {:.1} |\n",
                cell.cell,
                of(SECONDS),
                of(CPU),
                of(FILE) / 1e6,
            ));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn each_query_has_the_target_of_its_cell() {
        let check = |name: &str, parameters: &str, ours: f64, expected: [Verdict; 2]| {
            let rows = (0..10).flat_map(|run| {
                let values = |factor: f64| vec![factor * (1.0 + run as f64), 1.0, 1.0, 1.0];
                TASKS.map(|task| {
                    [(OURS, ours), (DELETE, 1.0)].map(|(contender, factor)| {
                        Row::new(task, contender, (run, 10), values(factor))
                    })
                })
            });
            let cell = CellRecord::made_up(name, parameters, rows.flatten().collect());
            let found = findings(&[cell]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("in the cache", "orders=60000", 1.0, [Holds; 2]);
        check("in the cache", "orders=60000", 1.1, [Differs, Holds]);
        check(
            "compressed in memory",
            "orders=60000",
            1.3,
            [Differs, Holds],
        );
        check("beyond memory", "orders=60000", 1.3, [Holds; 2]);
        check("in the cache", "missing=python3", 1.0, [CannotTell; 2]);
    }
}
