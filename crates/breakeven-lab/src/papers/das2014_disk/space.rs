//! The bytes of clones, and the garbage of overwriting: the library's disk on a real file, without a server.
//!
//! Sizes have no noise but are the file's, with all that waits to be used again in it.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use breakeven::blocks::Durability;
use breakeven::disk::{Disk, DiskOptions, Volume};
use breakeven::storage::{OpenOptions, RealStorage, Storage};

use crate::data::{Random, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/space",
    claim: "Ten clones of an image, each with 1 % changed, take at most 1.15 of one image, and each is made in at most 50 ms. A disk that is written over keeps to 1.5 times its live bytes.",
    source: "this project's own targets, the last the default of `space_amp`",
    figure: "bytes of the file over those of one image, or over the live ones; milliseconds",
    target: Target {
        low: 0.0,
        high: 1.5,
    },
    parameters: &[
        (
            "disk",
            "1 TiB, 256 MiB of it written (quick: 4 MiB), in blocks of 4 KiB: a third of each is noise and the rest one byte",
        ),
        (
            "changes",
            "other such blocks in runs of 64 KiB at random places of each clone, and in a variation of 4 KiB",
        ),
        (
            "written over",
            "five times as many bytes as there are, 4 to 64 KiB at a time at random places, then a flush",
        ),
        (
            "checkpoints",
            "one when the last clone was changed, as from a server that ends then. The cell of ten servers has one after each clone",
        ),
        (
            "cleaning",
            "as in a server: after writes, when enough was written. In a cell of its own, `breakeven disk compact` before the first clone and after the last",
        ),
    ],
    analysis: "Ten clones with 1 % of their own are 1.10 images at least. A change in a clone makes a leaf of its map \
        its own, which counts the entries of all 1,024 blocks below it. Each checkpoint writes those parts of the \
        frame table again, which are dead with the next. A clone is made durable by a sync, which is most of its time. \
        The file's bytes are those allocated in the host's file system, with segments that wait to be used again.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| table(records),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["base_bytes", "file_bytes", "milliseconds"];
const BASE: usize = 0;
const FILE: usize = 1;
const MILLISECONDS: usize = 2;

const DISK_BYTES: u64 = 1 << 40;
const BLOCK_BYTES: usize = 4096;
const NOISE_BYTES: usize = BLOCK_BYTES / 3;
const CLONES: usize = 10;
const PASSES: usize = 5;
/// The longest write, in blocks.
const WRITE_BLOCKS: u64 = 16;
/// A cell with less written is none to judge by: a segment or two are a share of it.
const JUDGED_BYTES: u64 = 64 << 20;

const CLONED: &str = "clone";
const PASS: &str = "pass";
const OURS: &str = "breakeven";

const CLONES_TARGET: Target = Target {
    low: 0.0,
    high: 1.15,
};
const MILLISECONDS_TARGET: Target = Target {
    low: 0.0,
    high: 50.0,
};

#[derive(Clone, Copy, PartialEq)]
enum Work {
    /// Ten clones, changed in runs of so many blocks, with a checkpoint after each.
    Clones(u64),
    /// The same, as one server makes them, with a checkpoint when it ends.
    Served(u64),
    /// The same, compacted before and after.
    Compacted(u64),
    Overwrite,
}

const CASES: [(&str, Work); 5] = [
    ("ten clones 64 KiB", Work::Clones(16)),
    ("ten clones 4 KiB", Work::Clones(1)),
    ("written over", Work::Overwrite),
    ("ten clones 64 KiB compacted", Work::Compacted(16)),
    ("ten clones 64 KiB served", Work::Served(16)),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let written_bytes = if laboratory.quick { 4 << 20 } else { 256 << 20 };
    let cells = CASES.iter().map(|(name, work)| Cell {
        name: name.to_string(),
        parameters: format!("written_bytes={written_bytes} disk_bytes={DISK_BYTES} seed={SEED}"),
        measure: Box::new(move || {
            let mut scene = Scene::create(laboratory, written_bytes)?;
            match work {
                Work::Clones(run_blocks) => scene.clones(*run_blocks, true),
                Work::Served(run_blocks) => scene.clones(*run_blocks, false),
                Work::Compacted(run_blocks) => {
                    scene = scene.compacted()?;
                    let one_bytes = scene.file_bytes()?;
                    let mut rows = scene.clones(*run_blocks, true)?;
                    let last = rows.last_mut().context("a clone")?;
                    last.values[BASE] = one_bytes;
                    last.values[FILE] = scene.compacted()?.file_bytes()?;
                    Ok(rows)
                }
                Work::Overwrite => scene.overwrite(),
            }
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

/// A disk with an image on it.
struct Scene {
    disk: Disk,
    volume: Volume,
    storage: RealStorage,
    random: Random,
    /// The image's length.
    blocks: u64,
    // Removed with everything in it when this is dropped.
    _folder: tempfile::TempDir,
}

impl Scene {
    const NAME: &'static str = "disk";

    fn create(laboratory: &Laboratory, written_bytes: u64) -> Result<Scene> {
        let folder = laboratory.scratch()?;
        let storage = RealStorage::open_folder(folder.path())?;
        let disk = Disk::create(&storage, Scene::NAME, DiskOptions::default())?;
        disk.create_volume(OURS, DISK_BYTES)?;
        let mut scene = Scene {
            volume: disk.volume(OURS)?,
            disk,
            storage,
            random: Random::new(SEED),
            blocks: written_bytes / BLOCK_BYTES as u64,
            _folder: folder,
        };
        for index in (0..scene.blocks).step_by(WRITE_BLOCKS as usize) {
            write(
                &scene.disk,
                &scene.volume,
                &mut scene.random,
                index,
                WRITE_BLOCKS,
            )?;
        }
        scene.disk.checkpoint()?;
        Ok(scene)
    }

    /// Does the work of `breakeven disk compact`.
    fn compacted(self) -> Result<Scene> {
        let Scene {
            disk,
            volume,
            storage,
            random,
            blocks,
            _folder,
        } = self;
        drop((volume, disk));
        let disk = Disk::open(&storage, Scene::NAME, DiskOptions::compacting())?;
        disk.compact()?;
        drop(disk);
        let disk = Disk::open(&storage, Scene::NAME, DiskOptions::default())?;
        Ok(Scene {
            volume: disk.volume(OURS)?,
            disk,
            storage,
            random,
            blocks,
            _folder,
        })
    }

    fn file_bytes(&self) -> Result<f64> {
        let file = self.storage.open(Scene::NAME, OpenOptions::read_only())?;
        Ok(file.status()?.allocated_bytes as f64)
    }

    /// Makes clones and changes a hundredth of each; there is a checkpoint after the last, or after each.
    fn clones(&mut self, run_blocks: u64, each: bool) -> Result<Vec<Row>> {
        let one_bytes = self.file_bytes()?;
        let runs_of_clone = (self.blocks / 100 / run_blocks).max(1);
        let mut rows = Vec::new();
        for clone in 0..CLONES {
            let name = format!("clone-{clone}");
            let begun = Instant::now();
            self.disk.clone_volume(OURS, &name, false)?;
            let milliseconds = 1e3 * begun.elapsed().as_secs_f64();
            let volume = self.disk.volume(&name)?;
            for _ in 0..runs_of_clone {
                let index = self.random.below(self.blocks / run_blocks) * run_blocks;
                write(&self.disk, &volume, &mut self.random, index, run_blocks)?;
            }
            if each || clone + 1 == CLONES {
                self.disk.checkpoint()?;
            }
            let values = vec![one_bytes, self.file_bytes()?, milliseconds];
            rows.push(row(CLONED, clone, CLONES, values));
        }
        Ok(rows)
    }

    /// Writes the image over, at random.
    fn overwrite(&mut self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for pass in 0..PASSES {
            let begun = Instant::now();
            let mut left = self.blocks;
            while left > 0 {
                let count = (1 + self.random.below(WRITE_BLOCKS)).min(left);
                let index = self.random.below(self.blocks - count + 1);
                write(&self.disk, &self.volume, &mut self.random, index, count)?;
                left -= count;
            }
            self.disk.flush()?;
            let milliseconds = 1e3 * begun.elapsed().as_secs_f64();
            let live_bytes = self.disk.stats().live_bytes.context("live bytes")?;
            let values = vec![live_bytes as f64, self.file_bytes()?, milliseconds];
            rows.push(row(PASS, pass, PASSES, values));
        }
        Ok(rows)
    }
}

/// Writes blocks that were never there, and cleans as a server does.
fn write(disk: &Disk, volume: &Volume, random: &mut Random, index: u64, blocks: u64) -> Result<()> {
    let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
    for block in bytes.chunks_mut(BLOCK_BYTES) {
        for word in block[..NOISE_BYTES].chunks_mut(8) {
            word.copy_from_slice(&random.next().to_le_bytes()[..word.len()]);
        }
    }
    volume.write(index * BLOCK_BYTES as u64, &bytes, Durability::Lazy)?;
    disk.tidy()?;
    Ok(())
}

fn row(task: &str, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(task, OURS, (run, runs), values)
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(findings_of).collect()
}

fn findings_of(cell: &CellRecord) -> Vec<Finding> {
    let written_bytes = cell.parameter("written_bytes");
    let written_bytes = written_bytes.and_then(|bytes| bytes.parse::<u64>().ok());
    let is_small = written_bytes.is_none_or(|bytes| bytes < JUDGED_BYTES);
    let judge = |question: &str, core: bool, target: Target, found: Interval, note: String| {
        let verdict = match is_small {
            true => Verdict::CannotTell,
            false => target.judge(found),
        };
        Finding {
            question: format!("{}{question}", cell.cell),
            core,
            found,
            verdict,
            note: format!("target {target}; {note}"),
        }
    };
    let last = |task: &str, column: usize| {
        let column = cell.column(task, OURS, column);
        column.last().copied().unwrap_or(f64::NAN)
    };
    let over = |task: &str| last(task, FILE) / last(task, BASE);
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    if cell.cell == CASES[2].0 {
        let note = format!(
            "{:.1} MiB for {:.1} live",
            mib(last(PASS, FILE)),
            mib(last(PASS, BASE))
        );
        let found = Interval::exact(over(PASS));
        return vec![judge("", true, EXPERIMENT.target, found, note)];
    }
    let is_core = [0, 3, 4]
        .iter()
        .any(|case: &usize| CASES[*case].0 == cell.cell);
    let note = format!(
        "{:.1} MiB, one image {:.1}",
        mib(last(CLONED, FILE)),
        mib(last(CLONED, BASE))
    );
    let found = Interval::exact(over(CLONED));
    let size = judge("", is_core, CLONES_TARGET, found, note);
    let milliseconds = cell.column(CLONED, OURS, MILLISECONDS);
    let longest = milliseconds.iter().copied().fold(0.0, f64::max);
    let found = Interval::of_pairs(&milliseconds);
    let note = format!("the longest took {longest:.1} ms");
    let time = judge(", ms", is_core, MILLISECONDS_TARGET, found, note);
    vec![size, time]
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
    fn the_last_row_is_judged_and_small_disks_never() {
        let cell = |name: &str, task: &str, written: u64, last: f64| {
            let rows = (0..10).map(|run| {
                let file = if run == 9 { last } else { 9.0 };
                row(task, run, 10, vec![1.0, file, 7.0])
            });
            CellRecord::made_up(name, format!("written_bytes={written}"), rows.collect())
        };
        let check = |cell: CellRecord, expected: &[Verdict]| {
            let found = findings(&[cell]);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        let [(clones, _), _, (over, _), ..] = CASES;
        check(cell(clones, CLONED, 1 << 28, 1.14), &[Holds, Holds]);
        check(cell(clones, CLONED, 1 << 28, 1.16), &[Differs, Holds]);
        check(cell(clones, CLONED, 1 << 22, 1.0), &[CannotTell; 2]);
        check(cell(over, PASS, 1 << 28, 1.49), &[Holds]);
        check(cell(over, PASS, 1 << 28, 1.51), &[Differs]);
    }
}
