//! The compressed disks of others, by the same path: qcow2 behind QEMU's own server, and a plain file on btrfs with
//! compression. Also the cost of our longer blocks for short writes.

use std::path::Path;

use anyhow::{Context, Result};

use super::servers::{OURS, PEER, Server, fio};
use super::speed::TASK;
use crate::device::Device;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::papers::harper2018_cache::{energy, energy_of, power};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/peers",
    claim: "A served disk moves 0.9 of the data that qcow2 and a plain file on a compressing btrfs move, in no more room than the latter.",
    source: "this project's own target",
    figure: "bytes per second over the peer's; stored bytes over btrfs'",
    target: Target::at_least(0.9),
    parameters: &[
        (
            "disks",
            "ours with blocks of 4, 16 and 64 KiB, qcow2 by `qemu-nbd`, and nbdkit's file on ext4 and on btrfs with \
             `compress=zstd:1`; 128 MiB, written once before (quick: 4 MiB)",
        ),
        (
            "device",
            "a loop device each, with ext4 but for btrfs. The kernel counts its reads and writes, with the sync after \
             each job",
        ),
        (
            "jobs",
            "fio's NBD engine: 1 MiB in order, writes with a flush at the end; 4 KiB at random for 1 s (quick: 100 \
             ms), writes with a flush after each 32; data as in das2014-disk/speed",
        ),
        ("runs", "10 (quick: 2), all alternating"),
    ],
    analysis: "Processor time is that of the whole machine meanwhile, the client's included: btrfs compresses in \
        threads of the kernel. The device's bytes over the client's are the write amplification. Short writes into \
        longer blocks read, change and write a whole block. QEMU's filter that compresses clusters of a qcow2 image \
        writes each once and refuses overwrites, so it is none of the disks. Needs root.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| table(records),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &[
    "bytes",
    "seconds",
    "machine_cpu_seconds",
    "device_bytes",
    "stored_bytes",
];
const BYTES: usize = 0;
const SECONDS: usize = 1;
const CPU: usize = 2;
const DEVICE: usize = 3;
const STORED: usize = 4;

const BTRFS: &str = "btrfs zstd:1";
const QCOW2: &str = "qcow2";
const CONTENDERS: [&str; 6] = [
    OURS,
    "breakeven 16 KiB blocks",
    "breakeven 64 KiB blocks",
    QCOW2,
    PEER,
    BTRFS,
];
/// Whose speed ours is judged by.
const JUDGED: [&str; 2] = [QCOW2, BTRFS];

const JOBS: [(&str, &[&str]); 4] = [
    ("write 1 MiB", &["--rw=write", "--bs=1M", "--end_fsync=1"]),
    ("read 1 MiB", &["--rw=read", "--bs=1M"]),
    ("read 4 KiB", &["--rw=randread", "--bs=4k", "--time_based"]),
    (
        "write 4 KiB flushed",
        &["--rw=randwrite", "--bs=4k", "--fsync=32", "--time_based"],
    ),
];
/// The kernel's ticks, its unit of processor time.
const TICKS_PER_SECOND: f64 = 100.0;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (size_bytes, milliseconds, runs) = match laboratory.quick {
        true => (4 << 20, 100, 2),
        false => (128 << 20, 1000, 10),
    };
    let programs = [
        ("fio", "--version"),
        ("nbdkit", "--version"),
        ("qemu-nbd", "--version"),
        ("mkfs.btrfs", "--version"),
    ];
    let peers = match programs::peers(&programs) {
        peers if peers.starts_with("missing") || Device::is_possible() => peers,
        _ => "missing=a-device".to_string(),
    };
    let are_missing = peers.starts_with("missing");
    let power = power()?;
    let watts = power.marginal_watts_per_core().0;
    let energy = energy(&power);
    let cells = JOBS.iter().map(|(name, job)| {
        let runtime = format!("--runtime={milliseconds}ms");
        let is_timed = job.contains(&"--time_based");
        let size = format!("--size={size_bytes}");
        let words = job.iter().map(|word| word.to_string()).chain([size]);
        let job: Vec<String> = words.chain(is_timed.then_some(runtime)).collect();
        Cell {
            name: name.to_string(),
            parameters: format!(
                "size_bytes={size_bytes} milliseconds={milliseconds} runs={runs} watts={watts:.3} {energy} {peers}"
            ),
            measure: Box::new(move || match are_missing {
                true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
                false => rows(laboratory, size_bytes, &job, runs),
            }),
        }
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn row(contender: &str, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (run, runs), values)
}

/// A server with its ground, in the order in which they go.
struct Served {
    server: Server,
    device: Device,
    /// The file system's bytes while it was empty.
    empty_bytes: f64,
    _folders: [tempfile::TempDir; 2],
}

impl Served {
    fn make(laboratory: &Laboratory, contender: &str, size_bytes: u64) -> Result<Served> {
        let folder = laboratory.scratch()?;
        // The way to a socket is short, wherever the records are.
        let sockets = tempfile::tempdir()?;
        let device = match contender {
            BTRFS => Device::mount_with(folder.path(), "btrfs", "loop,compress=zstd:1")?,
            _ => Device::mount(folder.path())?,
        };
        let empty_bytes = device.used_bytes()?;
        let (point, to) = (device.point(), sockets.path());
        let server = match contender {
            QCOW2 => Server::qcow2(point, to, size_bytes)?,
            PEER | BTRFS => Server::peer(point, to, size_bytes)?,
            ours => {
                let kib = ours.split(' ').nth(1).map_or(Ok(4), str::parse::<u64>)?;
                Server::ours_of_blocks(point, to, size_bytes, kib << 10)?
            }
        };
        Ok(Served {
            server,
            device,
            empty_bytes,
            _folders: [folder, sockets],
        })
    }

    /// Returns the device's reads and writes, and has everything written for that.
    fn moved_bytes(&self) -> Result<u64> {
        Ok(self.device.settled_bytes()? + self.device.read_bytes()?)
    }
}

fn rows(laboratory: &Laboratory, size_bytes: u64, job: &[String], runs: usize) -> Result<Vec<Row>> {
    let made = CONTENDERS.map(|name| Served::make(laboratory, name, size_bytes));
    let disks = made.into_iter().collect::<Result<Vec<Served>>>()?;
    let size = format!("--size={size_bytes}");
    let first = ["--rw=write", "--bs=1M", "--end_fsync=1", &size].map(str::to_string);
    for disk in &disks {
        fio(&disk.server, &first)?;
    }
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let disk = &disks[index];
            let before = disk.moved_bytes()?;
            let busy = busy_seconds()?;
            let told = fio(&disk.server, job)?;
            let moved = disk.moved_bytes()? - before;
            let values = vec![
                told.bytes,
                told.seconds,
                busy_seconds()? - busy,
                moved as f64,
                disk.device.used_bytes()? - disk.empty_bytes,
            ];
            Ok(row(CONTENDERS[index], run, runs, values))
        })?);
    }
    Ok(rows)
}

/// Returns the processor time of everything until now: of users and of the kernel, the first fields of `/proc/stat`.
fn busy_seconds() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let ticks = busy_ticks(&text).with_context(|| format!("the system tells {text}"))?;
    Ok(ticks / TICKS_PER_SECOND)
}

fn busy_ticks(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks = line.split_whitespace().map(|word| word.parse::<f64>().ok());
    let ticks: Vec<f64> = ticks.collect::<Option<_>>()?;
    // User, nice, system, idle, waiting, interrupts of both kinds.
    let [user, nice, system, _, _, hard, soft, ..] = ticks[..] else {
        return None;
    };
    Some(user + nice + system + hard + soft)
}

fn speeds(cell: &CellRecord, contender: &str) -> Vec<f64> {
    let bytes = cell.column(TASK, contender, BYTES);
    let seconds = cell.column(TASK, contender, SECONDS);
    let both = bytes.iter().zip(seconds);
    both.map(|(bytes, seconds)| bytes / seconds).collect()
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(findings_of).collect()
}

fn findings_of(cell: &CellRecord) -> Vec<Finding> {
    if let Some(missing) = programs::missing(cell) {
        return vec![missing];
    }
    let mut findings: Vec<Finding> = JUDGED
        .iter()
        .map(|peer| {
            let found = Interval::of_quotients(&speeds(cell, OURS), &speeds(cell, peer));
            Finding {
                question: format!("{} against {peer}", cell.cell),
                core: true,
                found,
                verdict: EXPERIMENT.target.judge(found),
                note: format!("target {}", EXPERIMENT.target),
            }
        })
        .collect();
    if cell.cell == JOBS[0].0 {
        let stored = |name| cell.column(TASK, name, STORED);
        let room = Target {
            low: 0.0,
            high: 1.0,
        };
        let found = Interval::of_quotients(&stored(OURS), &stored(BTRFS));
        findings.push(Finding {
            question: format!("{} stored bytes against {BTRFS}", cell.cell),
            core: true,
            found,
            verdict: room.judge(found),
            note: format!("target {room}"),
        });
    }
    findings
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells));
    let measured = |cell: &&CellRecord| cell.parameter("missing").is_none();
    let Some(first) = cells.iter().find(measured) else {
        return Ok(shown);
    };
    shown.push_str(&format!(
        "\nMedians of the runs: MiB per second; of the whole machine, core seconds and joules ({}) for each GiB; the \
         device's bytes for each byte of the client's; the disk's MiB.\n\n\
         | cell | disk | MiB/s | core s/GiB | J/GiB | moved | MiB |\n|---|---|---:|---:|---:|---:|---:|\n",
        energy_of(first)
    ));
    for cell in cells.iter().filter(measured) {
        let watts = cell
            .parameter("watts")
            .and_then(|it| it.parse::<f64>().ok());
        for contender in CONTENDERS {
            let median = |column| cell.median(TASK, contender, column);
            let core = median(CPU) / median(BYTES) * f64::from(1 << 30);
            shown.push_str(&format!(
                "| {} | {contender} | {:.1} | {core:.2} | {:.1} | {:.2} | {:.1} |\n",
                cell.cell,
                Interval::of_pairs(&speeds(cell, contender)).middle / f64::from(1 << 20),
                core * watts.unwrap_or(f64::NAN),
                median(DEVICE) / median(BYTES),
                median(STORED) / f64::from(1 << 20),
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
    fn two_peers_and_one_size_are_judged() {
        let check = |name: &str, parameters: &str, factor: f64, expected: &[Verdict]| {
            let rows = (0..10).flat_map(|run| {
                let seconds = 1.0 + run as f64 / 100.0;
                let of = move |name: &&str| if *name == OURS { factor } else { 1.0 };
                let values = move |it: f64| vec![it, seconds, 1.0, 1.0, 1.0 / it];
                let rows = CONTENDERS
                    .iter()
                    .map(move |name| row(name, run, 10, values(of(name))));
                rows.collect::<Vec<_>>()
            });
            let found = findings(&[CellRecord::made_up(name, parameters, rows.collect())]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("write 1 MiB", "peers=all", 1.1, &[Holds; 3]);
        check("write 1 MiB", "peers=all", 0.8, &[Differs; 3]);
        check("read 1 MiB", "peers=all", 0.95, &[Holds; 2]);
        check("read 1 MiB", "missing=qemu-nbd", 2.0, &[CannotTell]);
    }

    #[test]
    fn what_the_system_was_busy_with_is_read() {
        let text = "cpu  10 1 20 900 5 3 4 0 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0\n";
        assert_eq!(busy_ticks(text), Some(38.0));
        assert_eq!(busy_ticks("cpu 1 2"), None);
        assert_eq!(busy_ticks("intr 5"), None);
    }
}
