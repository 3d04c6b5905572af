//! Reads and writes of a disk through NBD against a plain file through nbdkit.
//!
//! Both servers run all the time and serve one client, alternating. Files lie in a folder beside the records.

use std::path::Path;

use anyhow::Result;

use super::servers::{OURS, PEER, Server, fio, peers};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/speed",
    claim: "A served disk reads and writes long pieces at 0.9 of a plain file's speed at least. It reads blocks at 0.8 of it, and writes blocks with flushes at 1.5 times it.",
    source: "this project's own target; nbdkit's file plugin is the plain file",
    figure: "bytes per second over nbdkit's",
    target: Target::at_least(0.8),
    parameters: &[
        (
            "data",
            "fio's, other in each run: each 4 KiB, and in variations each 512 bytes, are a third noise and then zeros; 256 MiB, written once before (quick: 4 MiB)",
        ),
        (
            "client",
            "fio's NBD engine, one connection on a UNIX socket, both servers with their defaults",
        ),
        (
            "jobs",
            "1 MiB in order, writes with a flush at the end; 4 KiB at random for 2 s with 1 and 16 requests in flight; writes of 4 KiB at random with a flush after each 32",
        ),
        ("runs", "10 (quick: 2), both servers alternating"),
    ],
    analysis: "Reads come from the host's page cache on both sides. So the figure is the path through the server, and \
        fewer bytes to read win nothing. That changes on a device slower than the codec (das2014-disk/paced). fio's \
        engine has one connection. Our server does as many of its requests at a time as there are processors, and \
        nbdkit sixteen. Processor time is the server's. fio makes data of ratio 3 as noise with zeros behind it in \
        each block, and our blocks end where the zeros begin. Much of the gain of reads is due to that. \"Mixed\" \
        alternates noise and zeros in each 512 bytes, and gains less.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["bytes", "seconds", "p99_us", "server_cpu_seconds"];
pub(super) const BYTES: usize = 0;
const SECONDS: usize = 1;
const P99: usize = 2;
const CPU: usize = 3;

pub(super) const CONTENDERS: [&str; 2] = [OURS, PEER];
pub(super) const TASK: &str = "job";

/// One cell.
struct Case {
    name: &'static str,
    words: &'static [&'static str],
    /// Whether it is bounded by time instead of bytes.
    is_timed: bool,
    is_core: bool,
    target: Target,
}

/// Noise and zeros alternate within a block.
const MIXED: &str = "--buffer_compress_chunk=512";

const CASES: [Case; 7] = [
    case(
        "write 1 MiB",
        &["--rw=write", "--bs=1M", "--end_fsync=1"],
        0.9,
    ),
    case("read 1 MiB", &["--rw=read", "--bs=1M"], 0.9),
    timed("read 4 KiB", &["--rw=randread", "--bs=4k"], 0.8),
    timed(
        "read 4 KiB 16 in flight",
        &["--rw=randread", "--bs=4k", "--iodepth=16"],
        0.8,
    ),
    timed(
        "write 4 KiB flushed",
        &["--rw=randwrite", "--bs=4k", "--fsync=32"],
        1.5,
    ),
    Case {
        is_core: false,
        ..case(
            "write 1 MiB mixed",
            &["--rw=write", "--bs=1M", "--end_fsync=1", MIXED],
            0.9,
        )
    },
    Case {
        is_core: false,
        ..case("read 1 MiB mixed", &["--rw=read", "--bs=1M", MIXED], 0.9)
    },
];

const fn case(name: &'static str, words: &'static [&'static str], least: f64) -> Case {
    Case {
        name,
        words,
        is_timed: false,
        is_core: true,
        target: Target::at_least(least),
    }
}

const fn timed(name: &'static str, words: &'static [&'static str], least: f64) -> Case {
    Case {
        is_timed: true,
        ..case(name, words, least)
    }
}

/// How much is done.
#[derive(Clone, Copy)]
struct Length {
    size_bytes: u64,
    milliseconds: u64,
    runs: usize,
}

impl Length {
    fn job(&self, case: &Case) -> Vec<String> {
        let mut job: Vec<String> = case.words.iter().map(ToString::to_string).collect();
        job.push(format!("--size={}", self.size_bytes));
        if case.is_timed {
            job.push("--time_based".to_string());
            job.push(format!("--runtime={}ms", self.milliseconds));
        }
        job
    }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let length = match laboratory.quick {
        true => Length {
            size_bytes: 4 << 20,
            milliseconds: 100,
            runs: 2,
        },
        false => Length {
            size_bytes: 256 << 20,
            milliseconds: 2000,
            runs: 10,
        },
    };
    let peers = peers();
    let are_missing = peers.starts_with("missing");
    let cells = CASES.iter().map(|case| Cell {
        name: case.name.to_string(),
        parameters: format!(
            "size_bytes={} milliseconds={} runs={} {peers}",
            length.size_bytes, length.milliseconds, length.runs
        ),
        measure: Box::new(move || match are_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, case, length),
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

pub(super) fn row(contender: &str, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (run, runs), values)
}

fn rows(laboratory: &Laboratory, case: &Case, length: Length) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    // The way to a socket is short, wherever the records are.
    let sockets = tempfile::tempdir()?;
    let servers = [
        Server::ours(folder.path(), sockets.path(), length.size_bytes)?,
        Server::peer(folder.path(), sockets.path(), length.size_bytes)?,
    ];
    for server in &servers {
        let size = format!("--size={}", length.size_bytes);
        let mut words = vec!["--rw=write", "--bs=1M", "--end_fsync=1", &size];
        words.extend(case.words.iter().filter(|word| **word == MIXED));
        let words: Vec<String> = words.into_iter().map(str::to_string).collect();
        fio(server, &words)?;
    }
    let job = length.job(case);
    let mut rows = Vec::new();
    for run in 0..length.runs {
        rows.extend(interleave::in_turn(run, servers.len(), |index| {
            let before = servers[index].cpu_seconds()?;
            let told = fio(&servers[index], &job)?;
            let cpu_seconds = servers[index].cpu_seconds()? - before;
            let values = vec![told.bytes, told.seconds, told.p99_us, cpu_seconds];
            Ok(row(CONTENDERS[index], run, length.runs, values))
        })?);
    }
    Ok(rows)
}

fn speeds(cell: &CellRecord, contender: &str) -> Vec<f64> {
    let bytes = cell.column(TASK, contender, BYTES);
    let seconds = cell.column(TASK, contender, SECONDS);
    bytes
        .iter()
        .zip(seconds)
        .map(|(one, other)| one / other)
        .collect()
}

/// Judges our speed over the peer's in a cell.
pub(super) fn judged(cell: &CellRecord, core: bool, target: Target, note: String) -> Finding {
    if let Some(missing) = programs::missing(cell) {
        return missing;
    }
    let found = Interval::of_quotients(&speeds(cell, OURS), &speeds(cell, PEER));
    Finding {
        question: cell.cell.clone(),
        core,
        found,
        verdict: target.judge(found),
        note: format!("target {target}; {note}"),
    }
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        let case = CASES.iter().find(|case| case.name == cell.cell);
        let is_core = case.is_none_or(|case| case.is_core);
        let target = case.map_or(EXPERIMENT.target, |case| case.target);
        let p99 = |name| cell.median(TASK, name, P99);
        let note = format!(
            "99th percentile {:.0} us against {:.0} us",
            p99(OURS),
            p99(PEER)
        );
        judged(cell, is_core, target, note)
    };
    cells.iter().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    shown(records, EXPERIMENT.key, COLUMNS, findings)
}

/// Returns the page's text for an experiment that has both servers' speeds.
pub(super) fn shown(
    records: &Path,
    key: &str,
    columns: &'static [&'static str],
    judge: fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<Shown> {
    let cells = Record::new(records, key, columns).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), judge(&cells));
    shown.push_str(&medians(&cells));
    Ok(shown)
}

/// Returns the table of both servers' speeds and processor time, nothing of no cells.
fn medians(cells: &[CellRecord]) -> String {
    let measured = |cell: &&CellRecord| cell.parameter("missing").is_none();
    if !cells.iter().any(|cell| measured(&cell)) {
        return String::new();
    }
    let mut shown =
        "\nMedians of the runs: MiB per second, and the server's processor time for each GiB.\n\n\
         | cell | server | MiB/s | core s/GiB |\n|---|---|---:|---:|\n"
            .to_string();
    for cell in cells.iter().filter(measured) {
        for contender in CONTENDERS {
            let speed = Interval::of_pairs(&speeds(cell, contender)).middle;
            let cpu = cell.median(TASK, contender, CPU) / cell.median(TASK, contender, BYTES);
            shown.push_str(&format!(
                "| {} | {contender} | {:.1} | {:.2} |\n",
                cell.cell,
                speed / f64::from(1 << 20),
                cpu * f64::from(1 << 30),
            ));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn each_job_has_a_target_and_missing_peers_prove_nothing() {
        let cell = |name: &str, parameters: &str, factor: f64| {
            let values = |speed: f64| vec![speed, 1.0, 1.0, 1.0];
            let rows = (0..10).flat_map(|run| {
                let speed = 100.0 + run as f64;
                [
                    row(OURS, run, 10, values(factor * speed)),
                    row(PEER, run, 10, values(speed)),
                ]
            });
            CellRecord::made_up(name, parameters, rows.collect())
        };
        let check = |name: &str, parameters: &str, factor: f64, expected: Verdict| {
            let found = findings(&[cell(name, parameters, factor)]);
            assert_eq!(found[0].verdict, expected, "{found:?}");
        };
        let raced = "peers=fio+nbdkit";
        check("write 1 MiB", raced, 0.91, Verdict::Holds);
        check("read 4 KiB", raced, 0.85, Verdict::Holds);
        check("read 1 MiB", raced, 0.85, Verdict::Differs);
        check("write 4 KiB flushed", raced, 1.4, Verdict::Differs);
        check("read 4 KiB", "missing=nbdkit", 2.0, Verdict::CannotTell);
    }
}
