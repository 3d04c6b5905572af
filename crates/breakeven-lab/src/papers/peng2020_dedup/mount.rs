//! Reading through a mounted snapshot, beside the same files on ext4.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};

use super::stores::{Program, Store};
use super::trees;
use crate::data::{Random, SEED};
use crate::device::{Device, run};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020-dedup/mount",
    claim: "A mounted snapshot reads as fast as ext4 does: at 0.95 of it from memory, at 1.0 in order and 0.3 at random from a medium of 200 MB/s and 1,000 requests a second.",
    source: "this project's own target; the deck's library is read by many hosts at once, of which it has no figures",
    figure: "bytes per second over those of the same files on the same ext4",
    target: Target::at_least(0.95),
    parameters: &[
        (
            "files",
            "programs, one behind the other in a file of 64 MiB (quick: 2 MiB); of ten hosts each has a copy of 24 MiB",
        ),
        (
            "device",
            "a loop device with ext4 for the files and the vault. The kernel holds its reads to 200 MB/s and 1,000 \
             requests a second, which stand for 1 ms each. A variation has this machine's own disk",
        ),
        (
            "jobs",
            "1 MiB at a time in order; 4 KiB at random places, 20,000 from memory and 400 from the medium; ten threads \
             that each read another copy in order. Before a cold job all files are put out of the page cache, and the \
             snapshot is mounted anew",
        ),
        ("runs", "10 (quick: 2), both alternating"),
    ],
    analysis: "The mount has its defaults, and one process with FUSE in between. Its answers are in the page cache as \
        ext4's are, so warm reads are the kernel's own. Needs root and the first version of the kernel's control groups.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["bytes", "seconds", "server_cpu_seconds", "resident_bytes"];
const TASK: &str = "read";
const BYTES: usize = 0;
const SECONDS: usize = 1;
const CPU: usize = 2;
const RESIDENT: usize = 3;
const OURS: &str = "mount";
const PEER: &str = "ext4";
const CONTENDERS: [&str; 2] = [OURS, PEER];

/// The medium's pace.
const BYTES_PER_SECOND: u64 = 200_000_000;
const REQUESTS_PER_SECOND: u64 = 1000;

/// The hosts that read at once.
const HOSTS: usize = 10;
const PIECE_BYTES: usize = 1 << 20;
const RANDOM_BYTES: usize = 4 << 10;

/// How a job reads.
#[derive(Clone, Copy, PartialEq)]
enum Job {
    InOrder,
    /// So many pieces at random places.
    AtRandom(usize),
    /// Every copy, each in order by a thread of its own.
    Hosts,
}

/// The state that a job finds.
#[derive(Clone, Copy, PartialEq)]
enum Medium {
    Memory,
    Paced,
    Own,
}

struct Case {
    name: &'static str,
    job: Job,
    medium: Medium,
    /// Without a target where the machine decides.
    target: Option<Target>,
}

const CASES: [Case; 7] = [
    case("warm in order", Job::InOrder, Medium::Memory, Some(0.95)),
    case(
        "warm at random",
        Job::AtRandom(20_000),
        Medium::Memory,
        Some(0.95),
    ),
    case("cold in order", Job::InOrder, Medium::Paced, Some(1.0)),
    case(
        "cold at random",
        Job::AtRandom(400),
        Medium::Paced,
        Some(0.3),
    ),
    case("cold by ten hosts", Job::Hosts, Medium::Paced, Some(1.0)),
    case("own disk in order", Job::InOrder, Medium::Own, None),
    case("own disk at random", Job::AtRandom(400), Medium::Own, None),
];

const fn case(name: &'static str, job: Job, medium: Medium, least: Option<f64>) -> Case {
    Case {
        name,
        job,
        medium,
        target: match least {
            Some(least) => Some(Target::at_least(least)),
            None => None,
        },
    }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (bytes, runs) = match laboratory.quick {
        true => (2 << 20, 2),
        false => (64 << 20, 10),
    };
    let peers = programs::peers(&[("fusermount3", "--version")]);
    let peers = match peers {
        peers if peers.starts_with("missing") || Device::is_pace_possible() => peers,
        _ => "missing=a-device-with-a-pace".to_string(),
    };
    let are_missing = peers.starts_with("missing");
    let cells = CASES.iter().map(|case| Cell {
        name: case.name.to_string(),
        parameters: format!("bytes={bytes} runs={runs} seed={SEED} {peers}"),
        measure: Box::new(move || match are_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, case, bytes, runs),
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn rows(laboratory: &Laboratory, case: &Case, bytes: u64, runs: usize) -> Result<Vec<Row>> {
    let folder = laboratory.scratch()?;
    let mut device = Device::mount(folder.path())?;
    let plain = device.point().join("plain");
    fs::create_dir(&plain)?;
    let (copies, bytes) = match case.job {
        Job::Hosts => (HOSTS, bytes * 3 / 8),
        _ => (1, bytes),
    };
    for copy in 0..copies {
        fs::write(plain.join(copy.to_string()), programs_of(bytes)?)?;
    }
    let store = Store::create(Program::Vault("default"), device.point().join("store"))?;
    store.add(&plain, "one")?;
    device.settled_bytes()?;
    if case.medium == Medium::Paced {
        device.pace(BYTES_PER_SECOND)?;
        device.pace_requests(REQUESTS_PER_SECOND)?;
    }
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let point = tempfile::tempdir()?;
            let mounted = Mounted::start(&store, point.path())?;
            let files = match CONTENDERS[index] {
                OURS => point.path().join(plain.strip_prefix("/")?),
                _ => plain.clone(),
            };
            if case.medium == Medium::Memory {
                read(&files, Job::Hosts, run)?;
            } else {
                chill(device.point())?;
            }
            let before = mounted.cpu_seconds()?;
            let begun = Instant::now();
            let bytes = read(&files, case.job, run)?;
            let seconds = begun.elapsed().as_secs_f64();
            let values = vec![
                bytes as f64,
                seconds,
                mounted.cpu_seconds()? - before,
                programs::resident(&mounted.child),
            ];
            Ok(Row::new(TASK, CONTENDERS[index], (run, runs), values))
        })?);
    }
    Ok(rows)
}

/// Returns the bytes of this machine's programs, one behind the other.
fn programs_of(bytes: u64) -> Result<Vec<u8>> {
    let folder = trees::scratch()?;
    trees::copy_some(Path::new("/usr/bin"), folder.path(), bytes)?;
    let mut content = Vec::new();
    for file in trees::files(folder.path())? {
        content.extend(fs::read(file)?);
    }
    content.resize(bytes as usize, 0);
    Ok(content)
}

/// Does a job, and returns the bytes that it read.
fn read(files: &Path, job: Job, run: usize) -> Result<u64> {
    let path = |copy: usize| files.join(copy.to_string());
    match job {
        Job::InOrder => read_in_order(&path(0)),
        Job::AtRandom(count) => read_at_random(&path(0), count, SEED + run as u64),
        Job::Hosts => std::thread::scope(|scope| {
            let present = (0..HOSTS).map(path).filter(|path| path.exists());
            let hosts: Vec<_> = present
                .map(|path| scope.spawn(move || read_in_order(&path)))
                .collect();
            let mut bytes = 0;
            for host in hosts {
                bytes += host.join().expect("a reader does not panic")?;
            }
            Ok(bytes)
        }),
    }
}

fn read_in_order(path: &Path) -> Result<u64> {
    let mut file = File::open(path)?;
    let (mut buffer, mut bytes) = (vec![0; PIECE_BYTES], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            count => bytes += count as u64,
        }
    }
}

fn read_at_random(path: &Path, count: usize, seed: u64) -> Result<u64> {
    let file = File::open(path)?;
    let pieces = file.metadata()?.len() / RANDOM_BYTES as u64;
    let (mut buffer, mut random) = ([0; RANDOM_BYTES], Random::new(seed));
    for _ in 0..count {
        let at = random.next() % pieces * RANDOM_BYTES as u64;
        file.read_exact_at(&mut buffer, at)?;
    }
    Ok((count * RANDOM_BYTES) as u64)
}

/// Puts the files below a folder out of the page cache.
fn chill(folder: &Path) -> Result<()> {
    for path in trees::files(folder)? {
        fadvise(File::open(path)?, 0, None, Advice::DontNeed)
            .context("advise that a file is cold")?;
    }
    Ok(())
}

/// A mounted vault; dropping it unmounts it.
struct Mounted {
    child: Child,
    point: PathBuf,
}

impl Mounted {
    /// Mounts the newest snapshot and waits until it can be read.
    fn start(store: &Store, point: &Path) -> Result<Mounted> {
        let mut command = store.mount(point)?;
        let mut child = command.stdout(Stdio::piped()).spawn().context("mount")?;
        let mut line = [0; 16];
        let told = child.stdout.take().context("a pipe")?.read(&mut line)?;
        ensure!(told > 0, "the vault was not mounted");
        Ok(Mounted {
            child,
            point: point.to_path_buf(),
        })
    }

    /// Returns the processor time that the process has used.
    fn cpu_seconds(&self) -> Result<f64> {
        programs::cpu_seconds(&self.child)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = run(Command::new("fusermount3").arg("-u").arg(&self.point));
        let _ = self.child.wait();
    }
}

fn speeds(cell: &CellRecord, contender: &str) -> Vec<f64> {
    let bytes = cell.column(TASK, contender, BYTES);
    let seconds = cell.column(TASK, contender, SECONDS);
    let pairs = bytes.iter().zip(seconds);
    pairs.map(|(bytes, seconds)| bytes / seconds).collect()
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        if let Some(missing) = programs::missing(cell) {
            return missing;
        }
        let case = CASES.iter().find(|case| case.name == cell.cell);
        let target = case.and_then(|case| case.target);
        let found = Interval::of_quotients(&speeds(cell, OURS), &speeds(cell, PEER));
        let speed = |name| Interval::of_pairs(&speeds(cell, name)).middle / 1e6;
        let speeds = format!(
            "{:.1} MB/s against {:.1}; the mount has {:.0} MiB and takes {:.2} core seconds",
            speed(OURS),
            speed(PEER),
            cell.median(TASK, OURS, RESIDENT) / f64::from(1 << 20),
            cell.median(TASK, OURS, CPU),
        );
        Finding {
            question: cell.cell.clone(),
            core: target.is_some(),
            found,
            verdict: target.unwrap_or(Target::at_least(0.0)).judge(found),
            note: match target {
                Some(target) => format!("target {target}; {speeds}"),
                None => format!("without a target; {speeds}"),
            },
        }
    };
    cells.iter().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    Ok(tables::judged(
        tables::origin(records, &cells),
        findings(&cells),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn each_job_has_its_target_and_the_machines_disk_has_none() {
        let check = |name: &str, factor: f64, core: bool, expected: Verdict| {
            let rows = (0..10).flat_map(|run| {
                let speed = 100.0 + f64::from(run as u8);
                let row = |contender, speed| {
                    Row::new(TASK, contender, (run, 10), vec![speed, 1.0, 0.1, 1e6])
                };
                [row(OURS, factor * speed), row(PEER, speed)]
            });
            let cell = CellRecord::made_up(name, "peers=fusermount3", rows.collect());
            let found = findings(&[cell]);
            assert_eq!((found[0].core, found[0].verdict), (core, expected));
        };
        check("warm in order", 0.97, true, Verdict::Holds);
        check("warm in order", 0.93, true, Verdict::Differs);
        check("cold in order", 0.97, true, Verdict::Differs);
        check("cold at random", 0.31, true, Verdict::Holds);
        check("own disk at random", 0.1, false, Verdict::Holds);
    }

    #[test]
    fn every_byte_is_read_and_copies_at_once() {
        let folder = tempfile::tempdir().unwrap();
        for copy in 0..3 {
            fs::write(folder.path().join(copy.to_string()), vec![1; 3_000_000]).unwrap();
        }
        assert_eq!(read(folder.path(), Job::InOrder, 0).unwrap(), 3_000_000);
        assert_eq!(read(folder.path(), Job::Hosts, 0).unwrap(), 9_000_000);
        assert_eq!(read(folder.path(), Job::AtRandom(7), 0).unwrap(), 7 * 4096);
    }
}
