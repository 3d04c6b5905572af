//! Writes of 16 KiB against trims of a part of them, by two threads. It is the paper's Figure 14, on file systems and
//! on a disk of ours, in a file system as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use breakeven::blocks::Durability;
use breakeven::disk::{Disk, DiskOptions, Volume};
use breakeven::storage::RealStorage;
use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate};

use super::speed::{TASK, row};
use crate::data::{Random, SEED};
use crate::device::Device;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/trims",
    claim: "Writes of 16 KiB beside trims of 1 to 12 KiB take no longer on a disk of ours than on the quickest of ext4, XFS and btrfs.",
    source: "Das and others 2014, Figure 14, whose picture has no numbers here; the target is this project's own",
    figure: "seconds of the quickest file system over ours",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "file",
            "64 MiB (quick: 1 MiB) of half noise and half one byte in each KiB, where the paper's has zeros; out of the page cache",
        ),
        (
            "work",
            "one thread writes the file over in pieces of 16 KiB, another makes a hole of the end of each. A sync ends the run, within the time",
        ),
        (
            "device",
            "a loop device each, whose reads and writes the kernel counts; ours on ext4",
        ),
        ("runs", "10 (quick: 2), all alternating"),
    ],
    analysis: "By the paper's figure, NVMFS takes a time that grows with the trims and reads nothing. XFS and ext4 \
        read and write whole blocks for trims below 4 KiB, and write more. Its own layer is in the flash device's. \
        Ours is a log in a file: a block of 4 KiB is read to make a hole of a part of it. It runs in the process that \
        writes, without NBD, and cleans as a server does. Needs root.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| table(records),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["seconds", "read_bytes", "written_bytes"];
const SECONDS: usize = 0;
const READ: usize = 1;
const WRITTEN: usize = 2;

const OURS: &str = "breakeven";
const CONTENDERS: [&str; 4] = [OURS, "ext4", "xfs", "btrfs"];
const TRIMS_KIB: [u64; 5] = [1, 2, 4, 8, 12];
const WRITE_BYTES: u64 = 16 << 10;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (file_bytes, runs, trims) = match laboratory.quick {
        true => (1 << 20, 2, &TRIMS_KIB[..1]),
        false => (64 << 20, 10, &TRIMS_KIB[..]),
    };
    let programs = [
        ("mkfs.ext4", "-V"),
        ("mkfs.xfs", "-V"),
        ("mkfs.btrfs", "--version"),
    ];
    let peers = match programs::peers(&programs) {
        peers if peers.starts_with("missing") || Device::is_possible() => peers,
        _ => "missing=a-device".to_string(),
    };
    let are_missing = peers.starts_with("missing");
    let cells = trims.iter().map(|kib| Cell {
        name: format!("trims of {kib} KiB"),
        parameters: format!("file_bytes={file_bytes} runs={runs} seed={SEED} {peers}"),
        measure: Box::new(move || match are_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, file_bytes, kib << 10, runs),
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

/// The target of the writes: a file, or a disk.
enum Written {
    File(File),
    Disk(Disk, Box<Volume>),
}

const FILE: &str = "file";

impl Written {
    fn create(contender: &str, folder: &Path, file_bytes: u64) -> Result<Written> {
        if contender != OURS {
            let path = folder.join(FILE);
            let options = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&path);
            return Ok(Written::File(options.context("a file")?));
        }
        let storage = RealStorage::open_folder(folder)?;
        let disk = Disk::create(&storage, FILE, DiskOptions::default())?;
        disk.create_volume(FILE, file_bytes)?;
        let volume = disk.volume(FILE)?;
        Ok(Written::Disk(disk, Box::new(volume)))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        match self {
            Written::File(file) => file.write_all_at(bytes, at)?,
            Written::Disk(disk, volume) => {
                volume.write(at, bytes, Durability::Lazy)?;
                disk.tidy()?;
            }
        }
        Ok(())
    }

    fn trim(&self, at: u64, length_bytes: u64) -> Result<()> {
        match self {
            Written::File(file) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(file, mode, at, length_bytes)?;
            }
            Written::Disk(disk, volume) => {
                volume.zero(at, length_bytes, Durability::Lazy)?;
                disk.tidy()?;
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        match self {
            Written::File(file) => Ok(file.sync_data()?),
            Written::Disk(disk, _) => Ok(disk.flush()?),
        }
    }

    /// Reads all of a part, to check its bytes.
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        match self {
            Written::File(file) => Ok(file.read_exact_at(bytes, at)?),
            Written::Disk(_, volume) => Ok(volume.read(at, bytes)?),
        }
    }
}

/// Half noise, half one byte, in each KiB: other bytes for each number.
fn piece(number: u64) -> Vec<u8> {
    let mut random = Random::new(SEED ^ number);
    let mut bytes = vec![0; WRITE_BYTES as usize];
    for part in bytes.chunks_mut(1024) {
        for word in part[..512].chunks_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes());
        }
        part[512..].fill(number as u8 | 1);
    }
    bytes
}

fn rows(
    laboratory: &Laboratory,
    file_bytes: u64,
    trim_bytes: u64,
    runs: usize,
) -> Result<Vec<Row>> {
    std::fs::create_dir_all(&laboratory.records)?;
    let mut places = Vec::new();
    for contender in CONTENDERS {
        let folder = laboratory.scratch()?;
        let kind = if contender == OURS { "ext4" } else { contender };
        let device = Device::mount_as(folder.path(), kind)?;
        let target = Written::create(contender, device.point(), file_bytes)?;
        // In the order in which they go.
        places.push((target, device, folder));
    }
    let count = file_bytes / WRITE_BYTES;
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let (target, device, _) = &places[index];
            let number = |at: u64| at + 2 * count * run as u64;
            for at in 0..count {
                target.write(at * WRITE_BYTES, &piece(number(at)))?;
            }
            target.sync()?;
            let before = (device.settled_bytes()?, device.read_bytes()?);
            let file = File::open(device.point().join(FILE))?;
            fadvise(&file, 0, None, Advice::DontNeed).context("advise that a file is cold")?;
            let pieces: Vec<Vec<u8>> = (0..count).map(|at| piece(number(at + count))).collect();
            let seconds = work(target, &pieces, trim_bytes)?;
            let after = (device.settled_bytes()?, device.read_bytes()?);
            check(target, &pieces, trim_bytes)?;
            let moved = [after.1 - before.1, after.0 - before.0].map(|bytes| bytes as f64);
            let values = vec![seconds, moved[0], moved[1]];
            Ok(row(CONTENDERS[index], run, runs, values))
        })?);
    }
    Ok(rows)
}

/// Returns the seconds of two threads: one writes while the other trims.
fn work(target: &Written, pieces: &[Vec<u8>], trim_bytes: u64) -> Result<f64> {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let trims = scope.spawn(|| {
            let starts = (1..=pieces.len() as u64).map(|piece| piece * WRITE_BYTES - trim_bytes);
            let mut starts = starts;
            starts.try_for_each(|at| target.trim(at, trim_bytes))
        });
        let mut writes = pieces.iter().zip((0..).step_by(WRITE_BYTES as usize));
        let written = writes.try_for_each(|(piece, at)| target.write(at, piece));
        let trimmed = trims.join().expect("a thread that trims");
        written.and(trimmed)
    })?;
    target.sync()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Every piece is there up to its end, which is zeros or written bytes: the threads were not in step.
fn check(target: &Written, pieces: &[Vec<u8>], trim_bytes: u64) -> Result<()> {
    let mut found = vec![0; WRITE_BYTES as usize];
    let kept = (WRITE_BYTES - trim_bytes) as usize;
    for (piece, at) in pieces.iter().zip((0..).step_by(WRITE_BYTES as usize)) {
        target.read(at, &mut found)?;
        let is_end = found[kept..] == piece[kept..] || found[kept..].iter().all(|byte| *byte == 0);
        anyhow::ensure!(
            found[..kept] == piece[..kept] && is_end,
            "other bytes at {at}"
        );
    }
    Ok(())
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        if let Some(missing) = programs::missing(cell) {
            return missing;
        }
        let median = |name: &&str| cell.median(TASK, name, SECONDS);
        let others = CONTENDERS[1..].iter();
        let quickest = others.min_by(|one, other| median(one).total_cmp(&median(other)));
        let quickest = quickest.expect("some file systems");
        let seconds = |name| cell.column(TASK, name, SECONDS);
        let found = Interval::of_quotients(&seconds(quickest), &seconds(OURS));
        Finding {
            question: cell.cell.clone(),
            core: true,
            found,
            verdict: EXPERIMENT.target.judge(found),
            note: format!("target {}; the quickest is {quickest}", EXPERIMENT.target),
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
            "\nMedians of the runs: the run time, and the device's reads and writes.\n\n\
             | cell | file system | seconds | MiB read | MiB written |\n|---|---|---:|---:|---:|\n",
        );
    }
    for cell in cells.iter().filter(measured) {
        for contender in CONTENDERS {
            let median = |column| cell.median(TASK, contender, column);
            shown.push_str(&format!(
                "| {} | {contender} | {:.3} | {:.1} | {:.1} |\n",
                cell.cell,
                median(SECONDS),
                median(READ) / f64::from(1 << 20),
                median(WRITTEN) / f64::from(1 << 20),
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
    fn the_quickest_file_system_is_the_measure() {
        let check = |parameters: &str, factor: f64, expected: Verdict| {
            let rows = (0..10).flat_map(|run| {
                let seconds = 1.0 + run as f64 / 100.0;
                let slower = [factor, 1.0, 1.2, 3.0];
                let values = |slower: f64| vec![slower * seconds, 1.0, 1.0];
                let rows = CONTENDERS.into_iter().zip(slower);
                rows.map(move |(name, slower)| row(name, run, 10, values(slower)))
                    .collect::<Vec<_>>()
            });
            let cell = CellRecord::made_up("trims of 1 KiB", parameters, rows.collect());
            let found = findings(&[cell]);
            assert_eq!(found[0].verdict, expected, "{found:?}");
        };
        check("peers=all", 0.9, Verdict::Holds);
        check("peers=all", 1.1, Verdict::Differs);
        check("missing=a-device", 0.5, Verdict::CannotTell);
    }

    #[test]
    fn two_threads_leave_what_was_written_and_holes() {
        let folder = tempfile::tempdir().unwrap();
        for contender in [CONTENDERS[0], CONTENDERS[1]] {
            let folder = folder.path().join(contender);
            std::fs::create_dir(&folder).unwrap();
            let target = Written::create(contender, &folder, 8 * WRITE_BYTES).unwrap();
            let pieces: Vec<Vec<u8>> = (0..8).map(piece).collect();
            work(&target, &pieces, 3072).unwrap();
            check(&target, &pieces, 3072).unwrap();
            let others: Vec<Vec<u8>> = (8..16).map(piece).collect();
            assert!(check_fails(&target, &others));
        }
    }

    fn check_fails(target: &Written, pieces: &[Vec<u8>]) -> bool {
        super::check(target, pieces, 3072).is_err()
    }
}
