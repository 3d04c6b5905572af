//! Transactions of one row, each durable before the next begins.

use std::path::Path;

use anyhow::Result;

use super::worker::{self, COLUMNS, CONTENDERS, CPU, DELETE, OURS, SECONDS, WAL, WRITTEN, at_most};
use crate::device::Device;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::papers::harper2018_cache::energy_of;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/commits",
    claim: "Commits of one row are at least 4 times as fast as with SQLite's rollback journal, for a quarter of the bytes. They are as fast as with its write-ahead log, for half of the bytes.",
    source: "this project's own target; Das and others 2014 write each page once by atomic writes",
    figure: "seconds over ours; bytes given to the block device, ours over theirs",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "database",
            "3,000 made-up messages as JSON (quick: 30), pages of 4 KiB, `synchronous=FULL`: each commit is durable",
        ),
        (
            "work",
            "as many commits: two rows inserted, then one changed, and so on",
        ),
        (
            "runs",
            "10 of 300 commits (quick: 2 of 30), the three databases alternating",
        ),
        (
            "bytes",
            "in a cell of their own, of 10 runs of 1,000 commits (quick: 2 of 30), on a loop device with ext4, which \
             needs root. It counts the device's writes, the file system's journal included",
        ),
    ],
    analysis: "The time includes Python's and SQLite's, the same for all three. 1,000 commits write the log into the \
        database about once. The part not yet written into it is not counted. The system's own count for a process is \
        no measure here. It adds up dirty folios, which are up to 64 KiB and more where a file was read ahead or \
        written in long pieces. Only their dirty blocks are written.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const TASK: &str = "commits";
/// Where the time is measured, and where the bytes.
const CELLS: [&str; 2] = ["one row", "one row on a device"];

/// A figure: its name, its rival, the column, and its target. Times are theirs over ours, bytes ours over theirs.
const QUESTIONS: [(&str, &str, usize, Target); 4] = [
    ("time, delete", DELETE, SECONDS, Target::at_least(4.0)),
    ("time, wal", WAL, SECONDS, Target::at_least(1.0)),
    ("bytes written, delete", DELETE, WRITTEN, at_most(0.25)),
    ("bytes written, wal", WAL, WRITTEN, at_most(0.5)),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (runs, filled, counts) = match laboratory.quick {
        true => (2, 30, [30, 30]),
        false => (10, 3000, [300, 1000]),
    };
    let parts = worker::parts();
    let missing = parts.starts_with("missing");
    let energy = &worker::energy()?;
    let cells = CELLS.iter().zip(counts).map(|(name, count)| {
        let has_device = *name == CELLS[1];
        let (is_missing, parts) = match has_device && !missing && !Device::is_possible() {
            true => (true, "missing=root".to_string()),
            false => (missing, parts.clone()),
        };
        Cell {
            name: name.to_string(),
            parameters: format!("runs={runs} filled={filled} count={count} {energy} {parts}"),
            measure: Box::new(move || match is_missing {
                true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
                false => rows(laboratory, runs, [filled, count], has_device),
            }),
        }
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn rows(
    laboratory: &Laboratory,
    runs: usize,
    [filled, count]: [usize; 2],
    has_device: bool,
) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let device = has_device.then(|| Device::mount(folder.path()));
    let device = device.transpose()?;
    let databases = device.as_ref().map_or(folder.path(), Device::point);
    for contender in CONTENDERS {
        worker::run(databases, contender, "fill", filled, 0)?;
    }
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let contender = CONTENDERS[index];
            let before = device.as_ref().map(Device::settled_bytes).transpose()?;
            let mut values = worker::run(databases, contender, TASK, count, run + 1)?;
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
    let finding = |(question, peer, column, target): &(&str, &str, usize, Target)| {
        let of = |contender| cell.column(TASK, contender, *column);
        let found = match *column {
            SECONDS => Interval::of_quotients(&of(peer), &of(OURS)),
            _ => Interval::of_quotients(&of(OURS), &of(peer)),
        };
        worker::finding(cell, question.to_string(), found, *target)
    };
    let of_bytes = cell.cell == CELLS[1];
    let questions = QUESTIONS.iter();
    let own = questions.filter(|(_, _, column, _)| (*column == WRITTEN) == of_bytes);
    own.map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    let whole = |cell: &&CellRecord| cell.parameter("missing").is_none();
    for cell in cells.iter().filter(whole) {
        shown.push_str(&format!(
            "\n{}: medians for one commit; joules are {}.\n\n| database | ms | core ms | mJ | KiB written |\n|---|---:|---:|---:|---:|\n",
            cell.cell,
            energy_of(cell)
        ));
        let count = cell
            .parameter("count")
            .and_then(|it| it.parse::<f64>().ok());
        for contender in CONTENDERS {
            let each = |column| cell.median(TASK, contender, column) / count.unwrap_or(f64::NAN);
            shown.push_str(&format!(
                "| {contender} | {:.2} | {:.2} | {} | {:.1} |\n",
                1e3 * each(SECONDS),
                1e3 * each(CPU),
                worker::millijoules(cell, each(CPU)),
                each(WRITTEN) / 1024.0,
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
    fn each_peer_has_targets_and_missing_parts_prove_nothing() {
        let check = |name: &str, parameters: &str, peer: f64, expected: [Verdict; 2]| {
            let rows = (0..10).flat_map(|run| {
                let values = |factor: f64| vec![factor * (1.0 + run as f64), 1.0, factor, 1.0];
                [
                    row(OURS, run, 10, values(1.0)),
                    row(DELETE, run, 10, values(peer)),
                    row(WAL, run, 10, values(peer)),
                ]
            });
            let cell = CellRecord::made_up(name, parameters, rows.collect());
            let found = findings(&[cell]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        for name in CELLS {
            check(name, "with=it", 4.5, [Holds; 2]);
            check(name, "with=it", 3.0, [Differs, Holds]);
            check(name, "with=it", 0.9, [Differs; 2]);
            check(name, "missing=python3", 4.5, [CannotTell; 2]);
        }
    }
}
