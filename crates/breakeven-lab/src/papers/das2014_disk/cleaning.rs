//! A client's view of cleaning: its slowest requests while another writes the disk over, against those on a disk that
//! needs no cleaning.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::servers::{Beside, OURS, Server, fio, peers};
use super::speed::{TASK, row};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/cleaning",
    claim: "While a disk that is four fifths full is cleaned, the slowest of a hundred reads and of a hundred writes of 4 KiB take at most 5 times their time on an idle disk.",
    source: "this project's own target",
    figure: "99th percentile while cleaning over that of an idle disk",
    target: Target {
        low: 0.0,
        high: 5.0,
    },
    parameters: &[
        (
            "disk",
            "320 MiB, 256 of them written (quick: 20 and 16), with fio's data, other in each job: each 4 KiB are a third noise and then zeros",
        ),
        (
            "cleaning",
            "a disk that was written over five times, 4 to 64 KiB at a time at random places, while another client goes on with that at 32 MiB/s",
        ),
        (
            "idle",
            "a disk that was only just written, so that nothing has to be cleaned while it is measured",
        ),
        (
            "jobs",
            "reads, or writes, of 4 KiB at random, one at a time, for 1 s (quick: 100 ms) by fio's NBD engine",
        ),
        ("runs", "10 (quick: 2), both disks alternating"),
        (
            "written over",
            "the last of the five times by itself: the server's bytes to the system for each byte of the client's are the write amplification at steady state",
        ),
    ],
    analysis: "The other client's writes take their share of processors and of the write lock. That is part of the \
        figure. The server's bytes to the system show that it cleaned. They include replies to reads. Where one client \
        writes alone they are shown for each byte.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| table(records),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["p99_us", "requests", "given_bytes"];
const P99: usize = 0;
const REQUESTS: usize = 1;
const GIVEN: usize = 2;

const CLEANING: &str = "cleaning";
const IDLE: &str = "idle";
const CONTENDERS: [&str; 2] = [CLEANING, IDLE];
/// The disk that is cleaned, before another client is there.
const OVERWRITTEN: &str = "written over";

const JOBS: [(&str, &str); 2] = [
    ("read 4 KiB", "--rw=randread"),
    ("write 4 KiB", "--rw=randwrite"),
];
/// Writes that leave a little dead everywhere.
const OVERWRITE: [&str; 2] = ["--rw=randwrite", "--bsrange=4k-64k"];
/// The other client's bytes in a second: several times the slack that the disk may have over its live bytes.
const RATE: &str = "--rate=32m";
/// The other client is at work by then.
const BEGUN: Duration = Duration::from_millis(300);
const PASSES: u64 = 5;

/// How much is done.
#[derive(Clone, Copy)]
struct Length {
    written_bytes: u64,
    milliseconds: u64,
    runs: usize,
}

impl Length {
    /// Four fifths of it are written.
    fn disk_bytes(self) -> u64 {
        self.written_bytes / 4 * 5
    }

    fn words(self, words: &[&str]) -> Vec<String> {
        let size = format!("--size={}", self.written_bytes);
        let words = words.iter().map(|word| word.to_string());
        words.chain([size]).collect()
    }

    fn job(self, rw: &str) -> Vec<String> {
        let runtime = format!("--runtime={}ms", self.milliseconds);
        self.words(&[rw, "--bs=4k", "--time_based", &runtime])
    }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let length = match laboratory.quick {
        true => Length {
            written_bytes: 16 << 20,
            milliseconds: 100,
            runs: 2,
        },
        false => Length {
            written_bytes: 256 << 20,
            milliseconds: 1000,
            runs: 10,
        },
    };
    let peers = peers();
    let are_missing = peers.starts_with("missing");
    let cells = JOBS.iter().map(|(name, rw)| Cell {
        name: name.to_string(),
        parameters: format!(
            "written_bytes={} milliseconds={} runs={} {peers}",
            length.written_bytes, length.milliseconds, length.runs
        ),
        measure: Box::new(move || match are_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, rw, length),
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

/// A served disk with the folders of its file and its socket, in the order in which they go.
struct Served {
    server: Server,
    _folders: [tempfile::TempDir; 2],
}

impl Served {
    /// Makes a disk, serves it and writes four fifths of it.
    fn filled(laboratory: &Laboratory, length: Length) -> Result<Served> {
        let folder = laboratory.scratch()?;
        // The way to a socket is short, wherever the records are.
        let sockets = tempfile::tempdir()?;
        let server = Server::ours(folder.path(), sockets.path(), length.disk_bytes())?;
        fio(
            &server,
            &length.words(&["--rw=write", "--bs=1M", "--end_fsync=1"]),
        )?;
        Ok(Served {
            server,
            _folders: [folder, sockets],
        })
    }
}

fn rows(laboratory: &Laboratory, rw: &str, length: Length) -> Result<Vec<Row>> {
    let steady = Served::filled(laboratory, length)?;
    let write_over = |passes: u64| {
        let size = format!("--io_size={}", passes * length.written_bytes);
        let words = length.words(&[OVERWRITE[0], OVERWRITE[1], &size]);
        let before = steady.server.given_bytes()?;
        let told = fio(&steady.server, &words)?;
        anyhow::Ok((told.bytes, steady.server.given_bytes()? - before))
    };
    write_over(PASSES - 1)?;
    let (written, given) = write_over(1)?;
    let values = vec![f64::NAN, written / 4096.0, given];
    let mut rows = vec![row(OVERWRITTEN, 0, 1, values)];
    let job = length.job(rw);
    let beside = length.words(&[
        OVERWRITE[0],
        OVERWRITE[1],
        RATE,
        "--time_based",
        "--runtime=60s",
    ]);
    for run in 0..length.runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let idle = match CONTENDERS[index] {
                IDLE => Some(Served::filled(laboratory, length)?),
                _ => None,
            };
            let server = idle.as_ref().map_or(&steady.server, |idle| &idle.server);
            let before = server.given_bytes()?;
            let other = match idle {
                Some(_) => None,
                None => Some(Beside::start(server, &beside)?),
            };
            if other.is_some() {
                std::thread::sleep(BEGUN);
            }
            let told = fio(server, &job)?;
            drop(other);
            let requests = told.bytes / 4096.0;
            let values = vec![told.p99_us, requests, server.given_bytes()? - before];
            Ok(row(CONTENDERS[index], run, length.runs, values))
        })?);
    }
    Ok(rows)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        if let Some(missing) = programs::missing(cell) {
            return missing;
        }
        let p99 = |name| cell.column(TASK, name, P99);
        let found = Interval::of_quotients(&p99(CLEANING), &p99(IDLE));
        let median = |name, column| cell.median(TASK, name, column);
        Finding {
            question: cell.cell.clone(),
            core: true,
            found,
            verdict: EXPERIMENT.target.judge(found),
            note: format!(
                "target {}; {:.0} us against {:.0}, in {:.0} requests and {:.0}",
                EXPERIMENT.target,
                median(CLEANING, P99),
                median(IDLE, P99),
                median(CLEANING, REQUESTS),
                median(IDLE, REQUESTS),
            ),
        }
    };
    cells.iter().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    shown.push_str(&given(&cells));
    Ok(shown)
}

/// Shows the servers' bytes to the system, and for each byte of a client's where one writes alone.
fn given(cells: &[CellRecord]) -> String {
    let mut text = String::new();
    for cell in cells.iter().filter(|it| it.parameter("missing").is_none()) {
        for disk in [OVERWRITTEN, CLEANING, IDLE] {
            // Older records have no last pass by itself.
            if cell.column(TASK, disk, GIVEN).is_empty() {
                continue;
            }
            let given = cell.median(TASK, disk, GIVEN);
            let written = cell.median(TASK, disk, REQUESTS) * 4096.0;
            let is_written = disk == OVERWRITTEN || (disk == IDLE && cell.cell == JOBS[1].0);
            let for_each = match is_written {
                true => format!("{:.2}", given / written),
                false => String::new(),
            };
            let mib = given / f64::from(1 << 20);
            text.push_str(&format!(
                "| {} | {disk} | {mib:.1} | {for_each} |\n",
                cell.cell
            ));
        }
    }
    match text.is_empty() {
        true => text,
        false => format!(
            "\nMedians of the runs: MiB that the server of {OURS} gave to the system, and given for each byte of a client that writes alone.\n\n\
             | cell | disk | MiB | given for each byte |\n|---|---|---:|---:|\n{text}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn slow_requests_are_judged_and_missing_programs_prove_nothing() {
        let check = |parameters: &str, factor: f64, expected: Verdict| {
            let rows = (0..10).flat_map(|run| {
                let p99 = 100.0 + run as f64;
                let at = |name, p99| row(name, run, 10, vec![p99, 1.0, 1.0]);
                [at(CLEANING, factor * p99), at(IDLE, p99)]
            });
            let cell = CellRecord::made_up(JOBS[0].0, parameters, rows.collect());
            let found = findings(&[cell]);
            assert_eq!(found[0].verdict, expected, "{found:?}");
        };
        check("peers=fio", 4.9, Verdict::Holds);
        check("peers=fio", 5.1, Verdict::Differs);
        check("missing=fio", 1.0, Verdict::CannotTell);
    }

    #[test]
    fn what_is_given_for_each_byte_is_shown_where_one_client_writes_alone() {
        let check = |job: &str, parameters: &str, expected: &[&str]| {
            let at = |name, given| row(name, 0, 1, vec![1.0, 512.0, given]);
            let mib = f64::from(1 << 20);
            let rows = [(OVERWRITTEN, 3.0), (CLEANING, 9.0), (IDLE, 1.0)];
            let rows = rows.map(|(name, given)| at(name, given * mib));
            let text = given(&[CellRecord::made_up(job, parameters, rows.into())]);
            let ends = text.lines().filter_map(|line| line.strip_prefix("| "));
            let ends = ends.filter_map(|line| line.strip_prefix(job));
            assert_eq!(ends.collect::<Vec<_>>(), expected);
        };
        let [read, write] = JOBS.map(|(name, _)| name);
        let over = " | written over | 3.0 | 1.50 |";
        let cleaning = " | cleaning | 9.0 |  |";
        let peers = "peers=fio";
        check(read, peers, &[over, cleaning, " | idle | 1.0 |  |"]);
        check(write, peers, &[over, cleaning, " | idle | 1.0 | 0.50 |"]);
        check(read, "missing=fio", &[]);
    }
}
