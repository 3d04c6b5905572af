//! A disk of a TiB with blocks written all over, so that its map is as large as so many blocks make it. The figures are
//! the server's memory for that, and its speed then.

use std::path::Path;

use anyhow::Result;

use super::servers::{OURS, PEER, Server, fio, peers};
use super::speed::{CONTENDERS, TASK};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/sparse",
    claim: "The server of a disk of 1 TiB that is written at random places needs at most 160 MiB: 64 for the map, 16 for equal blocks, and the rest for requests.",
    source: "this project's own target; the two caps are the defaults of `map_cache_bytes` and `--duplicates`",
    figure: "MiB of resident memory, at most",
    target: Target {
        low: 0.0,
        high: 160.0,
    },
    parameters: &[
        (
            "disk",
            "1 TiB, and a sparse file of that length behind nbdkit",
        ),
        (
            "jobs",
            "fio's NBD engine, 16 requests in flight. 4 KiB at random places of all of it, 1 GiB together (quick: 4 \
             MiB), then 64 MiB of the same places read, then 64 MiB written at other places",
        ),
        (
            "runs",
            "10 (quick: 2) of the reads and of the writes, both servers alternating, after the first writes",
        ),
    ],
    analysis: "262,144 blocks at random places of 268 million share few parts of the map. Almost each has a leaf of \
        its own, 8 KiB in memory, 2 GiB together; 64 MiB of it are kept. Memory is the server's peak resident size, \
        from its start.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| table(records),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["bytes", "seconds", "resident_bytes"];
const BYTES: usize = 0;
const SECONDS: usize = 1;
const RESIDENT: usize = 2;

const DISK_BYTES: u64 = 1 << 40;
/// A cell with less written is none to judge by.
const JUDGED_BYTES: u64 = 256 << 20;
/// The seed of the reads: that of the writes that filled the disk.
const SEED: &str = "--randseed=2014";

const JOBS: [(&str, &[&str]); 2] = [
    ("read 4 KiB", &["--rw=randread", SEED]),
    ("write 4 KiB", &["--rw=randwrite"]),
];

#[derive(Clone, Copy)]
struct Length {
    written_bytes: u64,
    job_bytes: u64,
    runs: usize,
}

impl Length {
    fn job(words: &[&str], bytes: u64) -> Vec<String> {
        let words = words.iter().map(|word| word.to_string());
        let all = ["--bs=4k", "--iodepth=16", "--norandommap"].map(str::to_string);
        let sizes = [format!("--size={DISK_BYTES}"), format!("--io_size={bytes}")];
        words.chain(all).chain(sizes).collect()
    }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let length = match laboratory.quick {
        true => Length {
            written_bytes: 4 << 20,
            job_bytes: 1 << 20,
            runs: 2,
        },
        false => Length {
            written_bytes: 1 << 30,
            job_bytes: 64 << 20,
            runs: 10,
        },
    };
    let peers = peers();
    let are_missing = peers.starts_with("missing");
    let cells = JOBS.iter().map(|(name, words)| Cell {
        name: name.to_string(),
        parameters: format!(
            "written_bytes={} job_bytes={} runs={} {peers}",
            length.written_bytes, length.job_bytes, length.runs
        ),
        measure: Box::new(move || match are_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, words, length),
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn row(contender: &str, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (run, runs), values)
}

fn rows(laboratory: &Laboratory, words: &[&str], length: Length) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    // The way to a socket is short, wherever the records are.
    let sockets = tempfile::tempdir()?;
    let servers = [
        Server::ours(folder.path(), sockets.path(), DISK_BYTES)?,
        Server::peer(folder.path(), sockets.path(), DISK_BYTES)?,
    ];
    let first = Length::job(
        &["--rw=randwrite", SEED, "--end_fsync=1"],
        length.written_bytes,
    );
    for server in &servers {
        fio(server, &first)?;
    }
    let job = Length::job(words, length.job_bytes);
    let mut rows = Vec::new();
    for run in 0..length.runs {
        rows.extend(interleave::in_turn(run, servers.len(), |index| {
            let told = fio(&servers[index], &job)?;
            let values = vec![told.bytes, told.seconds, servers[index].resident_bytes()];
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
        let written = cell.parameter("written_bytes");
        let written = written.and_then(|it| it.parse::<u64>().ok());
        let most = |name| {
            let column = cell.column(TASK, name, RESIDENT);
            column.into_iter().fold(0.0, f64::max) / f64::from(1 << 20)
        };
        let found = Interval::exact(most(OURS));
        Finding {
            question: cell.cell.clone(),
            core: true,
            found,
            verdict: match written.is_none_or(|bytes| bytes < JUDGED_BYTES) {
                true => Verdict::CannotTell,
                false => EXPERIMENT.target.judge(found),
            },
            note: format!(
                "target {}; nbdkit had {:.0} MiB",
                EXPERIMENT.target,
                most(PEER)
            ),
        }
    };
    cells.iter().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    let measured = |cell: &&CellRecord| cell.parameter("missing").is_none();
    if cells.iter().any(|cell| measured(&cell)) {
        shown.push_str(
            "\nMedians of the runs.\n\n| cell | server | MiB/s | MiB of memory |\n|---|---|---:|---:|\n",
        );
    }
    for cell in cells.iter().filter(measured) {
        for contender in CONTENDERS {
            let of = |column| cell.median(TASK, contender, column) / f64::from(1 << 20);
            shown.push_str(&format!(
                "| {} | {contender} | {:.1} | {:.1} |\n",
                cell.cell,
                of(BYTES) / cell.median(TASK, contender, SECONDS),
                of(RESIDENT),
            ));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_memory_is_judged_and_little_written_never() {
        let check = |parameters: &str, mib: f64, expected: Verdict| {
            let rows = (0..10).flat_map(|run| {
                let most = if run == 7 { mib } else { 20.0 } * f64::from(1 << 20);
                CONTENDERS.map(|name| row(name, run, 10, vec![1.0, 1.0, most]))
            });
            let cell = CellRecord::made_up(JOBS[0].0, parameters, rows.collect());
            let found = findings(&[cell]);
            assert_eq!(found[0].verdict, expected, "{found:?}");
        };
        check("written_bytes=1073741824", 159.0, Verdict::Holds);
        check("written_bytes=1073741824", 161.0, Verdict::Differs);
        check("written_bytes=4194304", 20.0, Verdict::CannotTell);
        check("missing=fio", 20.0, Verdict::CannotTell);
    }
}
