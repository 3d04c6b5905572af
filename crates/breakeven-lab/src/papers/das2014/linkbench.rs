//! LinkBench (Armstrong and others 2013): nodes and links of a social graph, read and written by its mix of requests, each
//! durable before the next begins.

use std::path::Path;

use anyhow::Result;

use super::worker::{
    self, CONTENDERS, CPU, DELETE, FILE, OURS, SECONDS, WAL, WRITTEN, Work, at_most,
};
use crate::device::{Device, drop_caches};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::memory::MemoryGroup;
use crate::papers::harper2018_cache::energy_of;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/linkbench",
    claim: "LinkBench's requests are done twice as fast as with SQLite's rollback journal and as fast as with its write-ahead log. They are faster where the data exceed memory, and take 0.65 of the space.",
    source: "this project's own target; the paper runs LinkBench over MySQL",
    figure: "seconds over ours, and of the request that takes longer than 99 in 100; bytes, ours over theirs",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "graph",
            "10,000 nodes, beyond memory 60,000 (quick: 50), with some four links each; payloads of LinkBench's kind, pages of 4 KiB",
        ),
        (
            "requests",
            "LinkBench's mix, with 30 writes in 100; nodes drawn by Zipf's law, 0.8 for reads and 0.741 for writes; \
             2,000 after 200 that are not timed",
        ),
        (
            "memory",
            "beyond memory each process has 32 MiB with the system's cache of its files, by a control group, and \
             begins with none. The plain database is some 50 MB",
        ),
        (
            "written over",
            "in a cell of its own, after all rows of each database were written five times again, as in das2014/steady",
        ),
        (
            "runs",
            "10 (quick: 2), the three databases alternating, `synchronous=FULL`; bytes in a cell of their own, as in das2014/commits",
        ),
    ],
    analysis: "Python makes the requests, whose time is in all three. Databases are made by SQLite's own backup, \
        without dictionaries. Counters of links are compared with the links after every run.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const SCRIPT: &str = concat!(
    include_str!("connect.py"),
    include_str!("again.py"),
    include_str!("linkbench.py")
);
const TASK: &str = "requests";
const AGAIN: &str = "written again";
const COLUMNS: &[&str] = &[
    "seconds",
    "cpu_seconds",
    "written_bytes",
    "file_bytes",
    "slow_seconds",
];
const SLOW: usize = 4;
/// How many of 2,000 requests write, by LinkBench's mix.
const WRITES: f64 = 620.0;
/// A process's memory where the data exceed it, Python's own part included.
const MEMORY_BYTES: u64 = 32 << 20;
/// A cell with fewer nodes is none to judge a size by.
const JUDGED_NODES: usize = 1000;

/// The question of a cell.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Memory,
    /// As `Memory`, of databases that were written over.
    Over,
    Device,
    Beyond,
}

const CELLS: [(&str, Place); 4] = [
    ("in memory", Place::Memory),
    ("in memory written over", Place::Over),
    ("in memory on a device", Place::Device),
    ("beyond memory", Place::Beyond),
];

/// A figure: its cell, its name, its rival, the column, and its target. Times are theirs over ours, bytes ours over
/// theirs.
const QUESTIONS: [(Place, &str, &str, usize, Target); 15] = [
    (
        Place::Memory,
        "time, delete",
        DELETE,
        SECONDS,
        Target::at_least(2.0),
    ),
    (
        Place::Memory,
        "time, wal",
        WAL,
        SECONDS,
        Target::at_least(0.95),
    ),
    (
        Place::Memory,
        "slow requests, delete",
        DELETE,
        SLOW,
        Target::at_least(1.0),
    ),
    (
        Place::Memory,
        "slow requests, wal",
        WAL,
        SLOW,
        Target::at_least(1.0),
    ),
    (Place::Memory, "size", DELETE, FILE, at_most(0.65)),
    (
        Place::Over,
        "time, delete",
        DELETE,
        SECONDS,
        Target::at_least(2.0),
    ),
    (
        Place::Over,
        "time, wal",
        WAL,
        SECONDS,
        Target::at_least(0.95),
    ),
    (
        Place::Over,
        "slow requests, delete",
        DELETE,
        SLOW,
        Target::at_least(1.0),
    ),
    (
        Place::Over,
        "slow requests, wal",
        WAL,
        SLOW,
        Target::at_least(1.0),
    ),
    (
        Place::Device,
        "bytes written, delete",
        DELETE,
        WRITTEN,
        at_most(0.5),
    ),
    (
        Place::Device,
        "bytes written, wal",
        WAL,
        WRITTEN,
        at_most(0.8),
    ),
    (
        Place::Beyond,
        "time, delete",
        DELETE,
        SECONDS,
        Target::at_least(2.0),
    ),
    (
        Place::Beyond,
        "time, wal",
        WAL,
        SECONDS,
        Target::at_least(1.0),
    ),
    (
        Place::Beyond,
        "slow requests, delete",
        DELETE,
        SLOW,
        Target::at_least(1.0),
    ),
    (
        Place::Beyond,
        "slow requests, wal",
        WAL,
        SLOW,
        Target::at_least(1.0),
    ),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let runs = if laboratory.quick { 2 } else { 10 };
    let energy = &worker::energy()?;
    let cells = CELLS.iter().map(|(name, place)| {
        let nodes = match (laboratory.quick, place) {
            (true, _) => 50,
            (_, Place::Beyond) => 60_000,
            _ => 10_000,
        };
        let parts = match place {
            Place::Device if !Device::is_possible() => "missing=root".to_string(),
            Place::Beyond if !MemoryGroup::is_possible() => "missing=control+groups".to_string(),
            _ => worker::parts(),
        };
        let is_missing = parts.starts_with("missing");
        Cell {
            name: name.to_string(),
            parameters: format!("runs={runs} nodes={nodes} {energy} {parts}"),
            measure: Box::new(move || match is_missing {
                true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
                false => rows(laboratory, runs, nodes, *place),
            }),
        }
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn rows(laboratory: &Laboratory, runs: usize, nodes: usize, place: Place) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let device = (place == Place::Device).then(|| Device::mount(folder.path()));
    let device = device.transpose()?;
    let databases = device.as_ref().map_or(folder.path(), Device::point);
    let work = Work {
        script: SCRIPT,
        columns: COLUMNS,
        parameters: "",
        count: nodes,
        run: 0,
        memory: None,
    };
    work.make_all(databases)?;
    if place == Place::Over {
        for contender in CONTENDERS {
            work.told(databases, contender, AGAIN)?;
        }
    }
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let contender = CONTENDERS[index];
            let group = (place == Place::Beyond).then(|| MemoryGroup::new(MEMORY_BYTES));
            let group = group.transpose()?;
            if group.is_some() && !laboratory.quick {
                drop_caches()?;
            }
            let before = device.as_ref().map(Device::settled_bytes).transpose()?;
            let own = Work {
                run: run + 1,
                memory: group.as_ref(),
                ..work
            };
            let mut values = own.told(databases, contender, TASK)?;
            if let (Some(device), Some(before)) = (&device, before) {
                values[WRITTEN] = (device.written_bytes()? - before) as f64;
            }
            Ok(row(contender, run, runs, values))
        })?);
    }
    Ok(rows)
}

fn row(contender: &str, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (run, runs), values)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(findings_of).collect()
}

fn findings_of(cell: &CellRecord) -> Vec<Finding> {
    let place = CELLS.iter().find(|(name, _)| *name == cell.cell);
    let own = QUESTIONS
        .iter()
        .filter(|(of, ..)| place.is_some_and(|(_, place)| place == of));
    let nodes = cell.parameter("nodes").and_then(|it| it.parse().ok());
    own.map(|(_, question, peer, column, target)| {
        let of = |contender| cell.column(TASK, contender, *column);
        let found = match *column {
            SECONDS | SLOW => Interval::of_quotients(&of(peer), &of(OURS)),
            FILE => Interval::exact(cell.median(TASK, OURS, FILE) / cell.median(TASK, peer, FILE)),
            _ => Interval::of_quotients(&of(OURS), &of(peer)),
        };
        let question = format!("{question}, {}", cell.cell);
        let mut finding = worker::finding(cell, question, found, *target);
        if nodes < Some(JUDGED_NODES) {
            finding.verdict = Verdict::CannotTell;
        }
        finding
    })
    .collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    let whole = |cell: &&CellRecord| cell.parameter("missing").is_none();
    if !cells.iter().any(|cell| whole(&cell)) {
        return Ok(shown);
    }
    shown.push_str(&format!(
        "\nMedians of a run; joules are {}; written bytes are for each of the requests that write.\n\n\
         | cell | database | seconds | core seconds | mJ | slow ms | MB written | kB a write | file MB |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|\n",
        cells.iter().find(whole).map_or("", energy_of)
    ));
    for cell in cells.iter().filter(whole) {
        for contender in CONTENDERS {
            let of = |column| cell.median(TASK, contender, column);
            shown.push_str(&format!(
                "| {} | {contender} | {:.2} | {:.2} | {} | {:.2} | {:.2} | {:.1} | {:.1} |\n",
                cell.cell,
                of(SECONDS),
                of(CPU),
                worker::millijoules(cell, of(CPU)),
                1e3 * of(SLOW),
                of(WRITTEN) / 1e6,
                of(WRITTEN) / 1e3 / WRITES,
                of(FILE) / 1e6,
            ));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_its_questions_and_few_nodes_prove_nothing() {
        let check = |name: &str, parameters: &str, peer: f64, expected: &[Verdict]| {
            let rows = (0..10).flat_map(|run| {
                let values = |factor: f64| {
                    let seconds = factor * (1.0 + run as f64);
                    vec![seconds, 1.0, factor, factor, seconds]
                };
                [(OURS, 1.0), (DELETE, peer), (WAL, peer)]
                    .map(|(contender, factor)| row(contender, run, 10, values(factor)))
            });
            let cell = CellRecord::made_up(name, parameters, rows.collect());
            let found = findings(&[cell]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("in memory", "nodes=10000", 2.5, &[Holds; 5]);
        check("in memory", "nodes=10000", 0.9, &[Differs; 5]);
        check("in memory", "nodes=50", 2.5, &[CannotTell; 5]);
        check("in memory written over", "nodes=10000", 2.5, &[Holds; 4]);
        check("in memory written over", "nodes=50", 2.5, &[CannotTell; 4]);
        check("in memory on a device", "nodes=10000", 2.5, &[Holds; 2]);
        check(
            "beyond memory",
            "nodes=60000",
            1.5,
            &[Differs, Holds, Holds, Holds],
        );
        check(
            "beyond memory",
            "nodes=60000 missing=python3",
            2.5,
            &[CannotTell; 4],
        );
    }
}
