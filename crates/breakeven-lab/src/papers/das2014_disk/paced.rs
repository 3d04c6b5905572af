//! Long pieces written and read on a device slower than the codec, where fewer bytes to move count.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Advice, fadvise};

use super::servers::{OURS, PEER, Server, fio, peers};
use super::speed::{BYTES, CONTENDERS, TASK, judged, row, shown};
use crate::device::Device;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Row};
use crate::statistics::Target;
use crate::tables::Shown;

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/paced",
    claim: "On a device slower than the codec a served disk reads and writes data of ratio 3 at 1.5 times a plain file's speed at least.",
    source: "this project's own target; nbdkit's file plugin is the plain file",
    figure: "bytes per second over nbdkit's",
    target: Target::at_least(1.5),
    parameters: &[
        (
            "data",
            "fio's, other in each run, each 4 KiB shrinking to about a third; 64 MiB, written once before (quick: 8 MiB)",
        ),
        (
            "device",
            "a loop device with ext4 for both files. The kernel holds its reads and writes to 100 MB/s. Variations \
             have 200 and 500, which is not slower than the codec",
        ),
        (
            "client",
            "fio's NBD engine, one connection on a UNIX socket, both servers with their defaults",
        ),
        (
            "jobs",
            "1 MiB in order, writes with a flush at the end; both files are synced and put out of the page cache before each",
        ),
        ("runs", "10 (quick: 2), both servers alternating"),
    ],
    analysis: "The device stands for a network disk or a hard disk: it has a pace and no seeks. Needs root and the first version of \
        the kernel's control groups.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &[
    "bytes",
    "seconds",
    "p99_us",
    "server_cpu_seconds",
    "device_bytes",
];
const DEVICE: usize = 4;

const JOBS: [(&str, &[&str]); 2] = [
    ("write 1 MiB", &["--rw=write", "--bs=1M", "--end_fsync=1"]),
    ("read 1 MiB", &["--rw=read", "--bs=1M"]),
];
/// The device's pace in MB/s, and the target there; the first is the core's, the last is not slower than the codec.
const PACES: [(u64, Target); 3] = [
    (100, EXPERIMENT.target),
    (200, EXPERIMENT.target),
    (500, Target::at_least(0.9)),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (size_bytes, runs, paces) = match laboratory.quick {
        true => (8 << 20, 2, &PACES[..1]),
        false => (64 << 20, 10, &PACES[..]),
    };
    let peers = match peers() {
        peers if peers.starts_with("missing") || Device::is_pace_possible() => peers,
        _ => "missing=a-device-with-a-pace".to_string(),
    };
    let are_missing = peers.starts_with("missing");
    let cells = paces
        .iter()
        .flat_map(|(pace, _)| JOBS.map(|job| (*pace, job)));
    let cells = cells.map(|(pace, (name, job))| Cell {
        name: format!("{name} at {pace} MB/s"),
        parameters: format!("size_bytes={size_bytes} pace={pace} runs={runs} {peers}"),
        measure: Box::new(move || match are_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, size_bytes, pace * 1_000_000, runs, job),
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn rows(
    laboratory: &Laboratory,
    size_bytes: u64,
    bytes_per_second: u64,
    runs: usize,
    job: &[&str],
) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let mut device = Device::mount(folder.path())?;
    // The way to a socket is short, wherever the records are.
    let sockets = tempfile::tempdir()?;
    // They end before the device is unmounted.
    let servers = [
        Server::ours(device.point(), sockets.path(), size_bytes)?,
        Server::peer(device.point(), sockets.path(), size_bytes)?,
    ];
    let size = format!("--size={size_bytes}");
    let with_size = |words: &[&str]| -> Vec<String> {
        let words = words.iter().copied().chain([size.as_str()]);
        words.map(str::to_string).collect()
    };
    for server in &servers {
        fio(server, &with_size(JOBS[0].1))?;
    }
    device.pace(bytes_per_second)?;
    let job = with_size(job);
    let moved = || -> Result<u64> { Ok(device.read_bytes()? + device.written_bytes()?) };
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, servers.len(), |index| {
            device.settled_bytes()?;
            chill(device.point())?;
            let before = (servers[index].cpu_seconds()?, moved()?);
            let told = fio(&servers[index], &job)?;
            let values = vec![
                told.bytes,
                told.seconds,
                told.p99_us,
                servers[index].cpu_seconds()? - before.0,
                (moved()? - before.1) as f64,
            ];
            Ok(row(CONTENDERS[index], run, runs, values))
        })?);
    }
    Ok(rows)
}

/// Puts the files of a folder out of the page cache.
fn chill(folder: &Path) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let file = File::open(entry.path())?;
            fadvise(&file, 0, None, Advice::DontNeed).context("advise that a file is cold")?;
        }
    }
    Ok(())
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        let pace = cell.parameter("pace").and_then(|pace| pace.parse().ok());
        let at = PACES.iter().position(|(of, _)| Some(*of) == pace);
        let target = at.map_or(EXPERIMENT.target, |at| PACES[at].1);
        let moved = |name| cell.median(TASK, name, DEVICE) / cell.median(TASK, name, BYTES);
        let note = format!(
            "the device moved {:.2} bytes for each of the client's against {:.2}",
            moved(OURS),
            moved(PEER)
        );
        judged(cell, at == Some(0), target, note)
    };
    cells.iter().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    shown(records, EXPERIMENT.key, COLUMNS, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn each_pace_is_judged_and_a_missing_device_proves_nothing() {
        let check = |parameters: &str, factor: f64, core: bool, expected: Verdict| {
            let values = |speed: f64| vec![speed, 1.0, 1.0, 1.0, speed];
            let rows = (0..10).flat_map(|run| {
                let speed = 100.0 + run as f64;
                [
                    row(OURS, run, 10, values(factor * speed)),
                    row(PEER, run, 10, values(speed)),
                ]
            });
            let cell = CellRecord::made_up("read 1 MiB", parameters, rows.collect());
            let found = findings(&[cell]);
            assert_eq!(
                (found[0].core, found[0].verdict),
                (core, expected),
                "{found:?}"
            );
        };
        check("pace=100 peers=fio", 1.6, true, Verdict::Holds);
        check("pace=100 peers=fio", 1.4, true, Verdict::Differs);
        check("pace=200 peers=fio", 1.4, false, Verdict::Differs);
        check("pace=500 peers=fio", 1.4, false, Verdict::Holds);
        check("pace=100 missing=fio", 9.0, true, Verdict::CannotTell);
    }
}
