//! `breakeven db import` and `export`, each page proved, beside a program that compresses the file and proves nothing.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use breakeven::meter::{Meter, Scope};

use super::worker::{self, DELETE};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::peers;
use crate::programs::{self, Used, ZSTD};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014/import",
    claim: "A database is imported at half the speed of `zstd -3 -T2` on its file and exported at half that of `zstd -d`. Every page is read again and compared.",
    source: "this project's own target",
    figure: "seconds of the program over ours",
    target: Target::at_least(0.5),
    parameters: &[
        (
            "database",
            "60,000 made-up messages as JSON (quick: 50), as in das2014/size",
        ),
        (
            "programs",
            "`breakeven db import` and `export`, which sync their output, read it again and compare it; `zstd -3 -T2` \
             and `zstd -d`, and a sync",
        ),
        (
            "runs",
            "10 (quick: 2), the two programs alternating, the file in the system's cache",
        ),
    ],
    analysis: "Every run compares the export with the imported database.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["seconds", "cpu_seconds", "resident_bytes", "file_bytes"];
const SECONDS: usize = 0;
const CPU: usize = 1;
const RESIDENT: usize = 2;
const FILE: usize = 3;
const TASKS: [&str; 2] = ["import", "export"];
const CONTENDERS: [&str; 2] = ["breakeven", "zstd"];
const CELL: &str = "messages";

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (runs, count) = if laboratory.quick {
        (2, 50)
    } else {
        (10, 60_000)
    };
    let parts = match worker::parts() {
        parts if parts.starts_with("missing") => parts,
        _ => programs::peers(&[ZSTD]),
    };
    let is_missing = parts.starts_with("missing");
    let cell = Cell {
        name: CELL.to_string(),
        parameters: format!("runs={runs} count={count} {parts}"),
        measure: Box::new(move || match is_missing {
            true => Ok(missing()),
            false => rows(laboratory, runs, count),
        }),
    };
    laboratory.measure(EXPERIMENT.key, COLUMNS, vec![cell])
}

fn missing() -> Vec<Row> {
    let of = |task: &&str| Row::unmeasured(task, &CONTENDERS, COLUMNS);
    TASKS.iter().flat_map(of).collect()
}

fn rows(laboratory: &Laboratory, runs: usize, count: usize) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    worker::run(folder.path(), DELETE, "fill", count, 0)?;
    let plain = folder.path().join("delete.db");
    let mut rows = Vec::new();
    for run in 0..runs {
        for task in TASKS {
            rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
                let (used, made) = turn(folder.path(), task, CONTENDERS[index])?;
                let values = vec![
                    used.wall_seconds,
                    used.cpu_seconds,
                    used.resident_bytes,
                    made as f64,
                ];
                Ok(Row::new(task, CONTENDERS[index], (run, runs), values))
            })?);
        }
        for contender in CONTENDERS {
            let back = folder.path().join(format!("{contender}.back"));
            let is_same = std::fs::read(&back)? == std::fs::read(&plain)?;
            ensure!(is_same, "{contender} gave back another database");
            std::fs::remove_file(back)?;
            std::fs::remove_file(folder.path().join(format!("{contender}.small")))?;
        }
    }
    Ok(rows)
}

/// Has a program do its part; returns its usage and the length of its output.
fn turn(folder: &Path, task: &str, contender: &str) -> Result<(Used, u64)> {
    let [small, back] = ["small", "back"].map(|end| format!("{contender}.{end}"));
    let (from, to) = match task {
        "import" => ("delete.db", small.as_str()),
        _ => (small.as_str(), back.as_str()),
    };
    let mut command = match contender {
        "zstd" => {
            let mut zstd = peers::command("zstd");
            zstd.arg("-q").args(match task {
                "import" => &["-3", "-T2"][..],
                _ => &["-d"],
            });
            zstd.args([from, "-o", to]);
            zstd
        }
        _ => {
            let mut own = Command::new(programs::own_program()?);
            own.args(["db", task, from, to]);
            own
        }
    };
    command
        .current_dir(folder)
        .stdout(std::process::Stdio::null());
    let mut used = programs::run(&mut command)?;
    let made = std::fs::File::open(folder.join(to))?;
    if contender == "zstd" {
        // Its output is to last, as ours does.
        let (begun, meter) = (Instant::now(), Meter::start(Scope::Process));
        made.sync_all()?;
        used.wall_seconds += begun.elapsed().as_secs_f64();
        used.cpu_seconds += meter.stop(0).cpu.total().0;
    }
    let made = made.metadata()?.len();
    Ok((used, made))
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let [ours, theirs] = CONTENDERS;
    let of_cell = |cell: &CellRecord| {
        TASKS.map(|task| {
            let of = |contender| cell.column(task, contender, SECONDS);
            let found = Interval::of_quotients(&of(theirs), &of(ours));
            worker::finding(cell, task.to_string(), found, EXPERIMENT.target)
        })
    };
    cells.iter().flat_map(of_cell).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    let whole = |cell: &&CellRecord| cell.parameter("missing").is_none();
    if !cells.iter().any(|cell| whole(&cell)) {
        return Ok(shown);
    }
    shown.push_str(
        "\nMedians of a run.\n\n| task | program | seconds | core seconds | memory MB | file MB |\n|---|---|---:|---:|---:|---:|\n",
    );
    for cell in cells.iter().filter(whole) {
        for (task, contender) in TASKS
            .iter()
            .flat_map(|task| CONTENDERS.map(|it| (task, it)))
        {
            let of = |column| cell.median(task, contender, column);
            shown.push_str(&format!(
                "| {task} | {contender} | {:.2} | {:.2} | {:.0} | {:.1} |\n",
                of(SECONDS),
                of(CPU),
                of(RESIDENT) / 1e6,
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
    fn half_the_speed_is_enough_and_missing_programs_prove_nothing() {
        let check = |parameters: &str, ours: f64, expected: Verdict| {
            let rows = (0..10).flat_map(|run| {
                let values = |factor: f64| vec![factor * (1.0 + run as f64), 1.0, 1.0, 1.0];
                TASKS.map(|task| {
                    [("breakeven", ours), ("zstd", 1.0)].map(|(contender, factor)| {
                        Row::new(task, contender, (run, 10), values(factor))
                    })
                })
            });
            let cell = CellRecord::made_up(CELL, parameters, rows.flatten().collect());
            for finding in findings(&[cell]) {
                assert_eq!(finding.verdict, expected, "{finding:?}");
            }
        };
        check("peers=zstd", 1.8, Verdict::Holds);
        check("peers=zstd", 2.2, Verdict::Differs);
        check("missing=zstd", 1.0, Verdict::CannotTell);
    }
}
