//! Costs and savings of looking for equal blocks, by their share: the library's disk on a real file, without a server.

use std::path::Path;

use anyhow::Result;
use breakeven::blocks::Durability;
use breakeven::disk::{Disk, DiskOptions};
use breakeven::storage::{OpenOptions, RealStorage, Storage};

use crate::clock;
use crate::data::{Kind, Random, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/equal",
    claim: "Looking for equal blocks costs a disk at most 2 % more than it saves, however few of them there are.",
    source: "this project's own target",
    figure: "core time and what the bytes are worth, over those of a disk that does not look",
    target: Target {
        low: 0.0,
        high: 1.02,
    },
    parameters: &[
        (
            "data",
            "256 MiB (quick: 4) of all generated kinds in extents of 4 to 64 KiB. Some of its blocks of 4 KiB are copies of an earlier one, drawn of all",
        ),
        (
            "disks",
            "one that looks, with the default of 16 MiB for it, and one that does not, `--duplicates 1`",
        ),
        (
            "writes",
            "64 KiB at a time, in order, each tidied afterwards as a server does, and a flush at the end",
        ),
        (
            "cost",
            "processor time of the thread that writes, and 10 s of it for each GB of the file, which is the default of `seconds_per_gb`",
        ),
        (
            "runs",
            "10 (quick: 2), both disks alternating, on new files",
        ),
    ],
    analysis: "A disk that finds too little rests, and looks at one block in sixteen to see whether that changed. A \
        block that comes while it rests is not found later.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| table(records),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["core_seconds", "file_bytes", "looked", "found"];
const CORE: usize = 0;
const FILE: usize = 1;
const LOOKED: usize = 2;
const FOUND: usize = 3;

const TASK: &str = "write";
const CONTENDERS: [&str; 2] = ["looks", "does not look"];
const BLOCK_BYTES: usize = 4096;
const WRITE_BYTES: usize = 64 << 10;
/// A cell with less written is none to judge by: a disk does not rest before it saw 32 MiB.
const JUDGED_BYTES: u64 = 64 << 20;

/// Cells, with how many blocks there are for one that is the same as another; 0 for none.
const CASES: [(&str, u64); 6] = [
    ("none equal", 0),
    ("1 in 400 equal", 400),
    ("1 in 100 equal", 100),
    ("1 in 40 equal", 40),
    ("1 in 10 equal", 10),
    ("1 in 3 equal", 3),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (bytes, runs) = match laboratory.quick {
        true => (4 << 20, 2),
        false => (256 << 20, 10),
    };
    let cells = CASES.iter().map(|(name, one_in)| Cell {
        name: name.to_string(),
        parameters: format!("bytes={bytes} runs={runs} seed={SEED}"),
        measure: Box::new(move || {
            let data = data(bytes, *one_in);
            let turns = (0..runs).map(|run| {
                interleave::in_turn(run, CONTENDERS.len(), |contender| {
                    let values = write(laboratory, contender, &data)?;
                    Ok(Row::new(TASK, CONTENDERS[contender], (run, runs), values))
                })
            });
            let turns: Result<Vec<Vec<Row>>> = turns.collect();
            Ok(turns?.concat())
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

fn data(bytes: usize, one_in: u64) -> Vec<u8> {
    let mut data = Kind::Mixed.generate(bytes, SEED);
    let mut random = Random::new(SEED);
    for block in 1..(bytes / BLOCK_BYTES) as u64 {
        if one_in > 0 && random.below(one_in) == 0 {
            let from = random.below(block) as usize * BLOCK_BYTES;
            data.copy_within(from..from + BLOCK_BYTES, block as usize * BLOCK_BYTES);
        }
    }
    data
}

/// Writes a new disk, and returns the columns.
fn write(laboratory: &Laboratory, contender: usize, data: &[u8]) -> Result<Vec<f64>> {
    let folder = laboratory.scratch()?;
    let storage = RealStorage::open_folder(folder.path())?;
    let mut options = DiskOptions::default();
    if contender > 0 {
        options.duplicates_bytes = 0;
    }
    let disk = Disk::create(&storage, "disk", options)?;
    disk.create_volume("disk", data.len() as u64)?;
    let volume = disk.volume("disk")?;
    let (duration, written) = clock::time(|| {
        for (number, bytes) in data.chunks(WRITE_BYTES).enumerate() {
            volume.write((number * WRITE_BYTES) as u64, bytes, Durability::Lazy)?;
            disk.tidy()?;
        }
        disk.flush()
    });
    written?;
    let mut stored = vec![0; WRITE_BYTES];
    for (number, bytes) in data.chunks(WRITE_BYTES).enumerate() {
        volume.read((number * WRITE_BYTES) as u64, &mut stored)?;
        anyhow::ensure!(stored == bytes, "other bytes than were written");
    }
    let stats = disk.duplicate_stats();
    let file = storage.open("disk", OpenOptions::read_only())?;
    Ok(vec![
        duration.cpu_seconds,
        file.status()?.allocated_bytes as f64,
        stats.looked as f64,
        stats.found as f64,
    ])
}

/// Returns the cost of each run, in seconds of a core.
fn costs(cell: &CellRecord, contender: &str) -> Vec<f64> {
    let worth = DiskOptions::default().blocks.seconds_per_gb / 1e9;
    let column = |column| cell.column(TASK, contender, column);
    let pairs = column(CORE).into_iter().zip(column(FILE));
    pairs.map(|(core, file)| core + worth * file).collect()
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        let [looks, does_not] = CONTENDERS;
        let found = Interval::of_quotients(&costs(cell, looks), &costs(cell, does_not));
        let bytes = cell.parameter("bytes").and_then(|it| it.parse().ok());
        let verdict = match bytes.is_none_or(|bytes: u64| bytes < JUDGED_BYTES) {
            true => Verdict::CannotTell,
            false => EXPERIMENT.target.judge(found),
        };
        let median = |contender, column| cell.median(TASK, contender, column);
        let mib = |contender| median(contender, FILE) / f64::from(1 << 20);
        Finding {
            question: cell.cell.clone(),
            core: true,
            found,
            verdict,
            note: format!(
                "core time {:.3} s against {:.3}; {:.1} MiB against {:.1}; looked for {:.0} blocks, found {:.0}",
                median(looks, CORE),
                median(does_not, CORE),
                mib(looks),
                mib(does_not),
                median(looks, LOOKED),
                median(looks, FOUND),
            ),
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

    #[test]
    fn core_time_and_bytes_are_judged_together() {
        let check = |bytes: u64, core: f64, file: f64, expected: Verdict| {
            let rows = (0..10).flat_map(|run| {
                let at = |contender: usize, values: [f64; 2]| {
                    let values = vec![values[0], values[1], 1.0, 1.0];
                    Row::new(TASK, CONTENDERS[contender], (run, 10), values)
                };
                [at(0, [core, file]), at(1, [1.0, 1e8])]
            });
            let cell = CellRecord::made_up("a", format!("bytes={bytes}"), rows.collect());
            assert_eq!(findings(&[cell])[0].verdict, expected);
        };
        check(1 << 28, 1.03, 1e8, Verdict::Holds);
        check(1 << 28, 1.03, 1.02e8, Verdict::Differs);
        check(1 << 28, 1.1, 0.9e8, Verdict::Holds);
        check(1 << 20, 2.0, 2e8, Verdict::CannotTell);
    }

    #[test]
    fn the_share_of_blocks_is_the_same_as_another() {
        let count = |one_in| {
            let data = data(4 << 20, one_in);
            let blocks = data
                .chunks(BLOCK_BYTES)
                .filter(|it| it.iter().any(|it| *it != 0));
            let (all, different) = (
                blocks.clone().count(),
                blocks.collect::<std::collections::HashSet<_>>().len(),
            );
            all - different
        };
        assert_eq!(count(0), 0);
        assert!((20..60).contains(&count(20)), "{}", count(20));
    }
}
