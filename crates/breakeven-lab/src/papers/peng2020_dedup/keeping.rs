//! Keeping a vault: the same again, clones, verifying, collecting, many small files, a disk that changes, and the cost
//! of a GB when there are many.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::meter::PowerModel;
use breakeven::units::Seconds;

use super::nightly_disk::{EXTENT_BYTES, NightlyDisk};
use super::stores::{B3SUM, Program, Store, b3sum, peers_and_b3sum};
use super::trees;
use crate::data::{Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::papers::harper2018_cache::{energy, energy_of, power};
use crate::programs::{self, Used};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020-dedup/keeping",
    claim: "The daily steps of a vault cost as much as the change: adding again, clones, verifying, collecting, a changed GB of a disk, and a GB among a hundred.",
    source: "this project's own targets",
    figure: "see each cell",
    target: Target::at_least(0.0),
    parameters: &[
        (
            "again, verify",
            "512 MiB and 2 GiB of made-up mixed bytes in files of 64 KiB (quick: 1 and 4 MiB): added, added again, all \
                of it read; restic with its defaults beside it. 10 and 3 runs (quick: 1)",
        ),
        (
            "clone, growth",
            "2 GiB in files of 64 MiB (quick: 2 MiB in one). b3sum reads and hashes them. A vault that holds them adds \
                them as another host's, 10 times alternating (quick: 1) and then until a hundred GB were added (quick: \
                3 times)",
        ),
        (
            "collecting",
            "64 MiB of documents in eight folders (quick: 1 MiB). Either half of the snapshots is forgotten, of one \
                folder each. Or one is, from before every second folder, or every second file, was removed",
        ),
        (
            "small files",
            "20,000 and 100,000 files of 2 KiB (quick: 100 and 500), by ours, restic and borg with their defaults. 3 runs (quick: 1)",
        ),
        (
            "nightly disk",
            "a disk of 100 GiB with 3 GiB of made-up mixed bytes, of which 1 GiB was written anew in pieces of 1 MiB \
                (quick: a hundredth). restic with its defaults has a sparse file with the same bytes. 3 runs (quick: 1)",
        ),
    ],
    analysis: "Each step is a process of its own, with the derivation of its key from a password. Collecting reads \
        whole frames. So it reads more than the live bytes where live and dead lie in one frame. Memory at a million \
        files is extrapolated from the two cells. Joules are processor time times watts, by the model that the record \
        names.",
    run: |laboratory| Ok(judged(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &[
    "seconds",
    "cpu_seconds",
    "resident_bytes",
    "raw_bytes",
    "bytes",
    "told_bytes",
    "live_bytes",
    "joules",
];
const WALL: usize = 0;
const CPU: usize = 1;
const RESIDENT: usize = 2;
const RAW: usize = 3;
const BYTES: usize = 4;
const TOLD: usize = 5;
const LIVE: usize = 6;
const JOULES: usize = 7;

const OURS: Program = Program::Vault("default");
const RESTIC: Program = Program::Restic("auto");
const BORG: Program = Program::Borg("lz4");

/// Four times as much for the second.
const AGAIN: [&str; 2] = ["again and verify", "again and verify of four times as much"];
const CLONES: &str = "clone";
const COLLECTED: [&str; 3] = [
    "collect half of the snapshots",
    "collect every second folder",
    "collect every second file",
];
const GROWTH: &str = "growth";
const FOLDERS: usize = 8;
const SMALL_BYTES: usize = 2048;
/// A cell of less is none to judge by.
const JUDGED_BYTES: u64 = 16 << 20;
const SMALL: [u64; 2] = [20_000, 100_000];
const NIGHTLY_DISK: &str = "nightly disk";

/// Returns the cell of so many small files.
fn small(files: u64) -> String {
    format!("{files} small files")
}

/// The task, the contender, and the result.
fn row(task: &str, contender: &str, (run, runs): (usize, usize), values: Values) -> Row {
    let Values {
        used,
        raw_bytes,
        bytes,
        told_bytes,
        live_bytes,
        joules,
    } = values;
    let values = vec![
        used.wall_seconds,
        used.cpu_seconds,
        used.resident_bytes,
        raw_bytes,
        bytes,
        told_bytes,
        live_bytes,
        joules,
    ];
    Row::new(task, contender, (run, runs), values)
}

struct Values {
    used: Used,
    raw_bytes: f64,
    bytes: f64,
    told_bytes: f64,
    live_bytes: f64,
    joules: f64,
}

fn of(used: Used, raw_bytes: u64, bytes: u64) -> Values {
    Values {
        used,
        raw_bytes: raw_bytes as f64,
        bytes: bytes as f64,
        told_bytes: 0.0,
        live_bytes: 0.0,
        joules: 0.0,
    }
}

type Measured<'a> = Box<dyn FnOnce() -> Result<Vec<Row>> + 'a>;

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let quick = laboratory.quick;
    let runs = if quick { 1 } else { 10 };
    let [mixed, large, documents] = match quick {
        true => [1 << 20, 2 << 20, 1 << 20],
        false => [512 << 20, 2 << 30, 64 << 20],
    };
    let adds = if quick {
        3
    } else {
        (100_u64 << 30).div_ceil(large) as usize
    };
    let (peers, power) = (peers_and_b3sum(), power()?);
    let energy = energy(&power);
    let are_missing = peers.starts_with("missing");
    let cell = |name: &str, bytes: u64, runs: usize, measure: Measured<'static>| Cell {
        name: name.to_string(),
        parameters: format!("bytes={bytes} runs={runs} seed={SEED} {energy} {peers}"),
        measure: match are_missing {
            true => Box::new(|| Ok(Vec::new())),
            false => measure,
        },
    };
    let clones = Box::new(move || clones(large, runs));
    let mut cells = vec![cell(CLONES, large, runs, clones)];
    for (name, bytes, runs) in [(AGAIN[0], mixed, runs), (AGAIN[1], 4 * mixed, runs.min(3))] {
        let again = Box::new(move || again(bytes, runs));
        cells.push(cell(name, bytes, runs, again));
    }
    for (case, name) in COLLECTED.into_iter().enumerate() {
        let collect = Box::new(move || collect(case, documents));
        cells.push(cell(name, documents, 1, collect));
    }
    for files in SMALL {
        let (files, runs) = if quick { (files / 200, 1) } else { (files, 3) };
        let bytes = files * SMALL_BYTES as u64;
        let measure = Box::new(move || small_files(files, runs));
        cells.push(cell(&small(files), bytes, runs, measure));
    }
    let (extents, runs) = if quick { (10, 1) } else { (1024, 3) };
    let nightly = Box::new(move || nightly_disk(extents, runs));
    cells.push(cell(NIGHTLY_DISK, extents * EXTENT_BYTES, runs, nightly));
    let growing = Box::new(move || growth(large, adds, &power));
    cells.push(cell(GROWTH, large, adds, growing));
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells)
}

/// Makes files of one length, each unlike the others.
fn make(folder: &Path, bytes: u64, file_bytes: usize, kind: Kind) -> Result<()> {
    for file in 0..(bytes / file_bytes as u64).max(1) {
        let below = folder.join((file / 200).to_string());
        fs::create_dir_all(&below)?;
        let content = kind.generate(file_bytes, SEED + file);
        fs::write(below.join(file.to_string()), content)?;
    }
    Ok(())
}

/// Adds, adds again and verifies, alternating with restic.
fn again(bytes: u64, runs: usize) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let tree = scratch.path().join("tree");
    make(&tree, bytes, 64 << 10, Kind::Mixed)?;
    let mut rows = Vec::new();
    for run in 0..runs {
        let turns = interleave::in_turn(run, 2, |index| {
            let program = [OURS, RESTIC][index];
            let store = Store::create(program, scratch.path().join("store"))?;
            let at = (run, runs);
            let first = store.add(&tree, "one")?;
            let stored = store.stored_bytes()?;
            let second = store.add(&tree, "two")?;
            let more = store.stored_bytes()? - stored;
            let verified = store.verify()?;
            let name = program.name();
            Ok([
                row("add", &name, at, of(first, bytes, stored)),
                row("again", &name, at, of(second, bytes, more)),
                row("verify", &name, at, of(verified, bytes, stored)),
            ])
        })?;
        rows.extend(turns.into_iter().flatten());
    }
    Ok(rows)
}

/// Files that are in the store, read by it and by b3sum.
fn clones(bytes: u64, runs: usize) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let tree = scratch.path().join("tree");
    let file_bytes = (64 << 20).min(bytes as usize);
    make(&tree, bytes, file_bytes, Kind::Text)?;
    let store = Store::create(Program::Vault("fast"), scratch.path().join("store"))?;
    store.add(&tree, "one")?;
    let mut rows = Vec::new();
    for run in 0..runs {
        let turns = interleave::in_turn(run, 2, |index| match index {
            0 => {
                let used = store.add_as(&tree, &format!("host-{run}"))?;
                let name = OURS.name();
                Ok(row(CLONES, &name, (run, runs), of(used, bytes, 0)))
            }
            _ => Ok(row(CLONES, B3SUM, (run, runs), of(b3sum(&tree)?, bytes, 0))),
        })?;
        rows.extend(turns);
    }
    Ok(rows)
}

/// A disk of which a hundredth is written anew before each run.
fn nightly_disk(extents: u64, runs: usize) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let nightly = NightlyDisk::create(extents)?;
    let ours = Store::create(OURS, scratch.path().join("ours"))?;
    let restic = Store::create(RESTIC, scratch.path().join("restic"))?;
    nightly.add_disk(&ours)?;
    nightly.add_image(&restic, "first")?;
    let mut rows = Vec::new();
    for run in 0..runs {
        nightly.change(run as u64)?;
        let turns = interleave::in_turn(run, 2, |index| {
            let store = [&ours, &restic][index];
            let before = store.stored_bytes()?;
            let used = match index {
                0 => nightly.add_disk(store)?,
                _ => nightly.add_image(store, &run.to_string())?,
            };
            let more = store.stored_bytes()? - before;
            let name = [OURS, RESTIC][index].name();
            let values = of(used, extents * EXTENT_BYTES, more);
            Ok(row(NIGHTLY_DISK, &name, (run, runs), values))
        })?;
        rows.extend(turns);
    }
    Ok(rows)
}

/// The same clones until there are many.
fn growth(bytes: u64, adds: usize, power: &PowerModel) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let tree = scratch.path().join("tree");
    let file_bytes = (64 << 20).min(bytes as usize);
    make(&tree, bytes, file_bytes, Kind::Text)?;
    let store = Store::create(OURS, scratch.path().join("store"))?;
    let add = |run: usize| {
        let used = store.add_as(&tree, &format!("host-{run}"))?;
        let stored = store.stored_bytes()?;
        let values = Values {
            joules: power.core_energy(Seconds(used.cpu_seconds)).0,
            ..of(used, bytes, stored)
        };
        Ok(row(GROWTH, &OURS.name(), (run, adds), values))
    };
    (0..adds).map(add).collect()
}

/// Forgets a half in one of three ways, and collects.
fn collect(case: usize, bytes: u64) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let tree = scratch.path().join("tree");
    let store = Store::create(OURS, scratch.path().join("store"))?;
    fs::create_dir(&tree)?;
    trees::copy_some(Path::new("/usr/share/doc"), &tree, bytes)?;
    let mut folders = Vec::new();
    for (number, file) in trees::files(&tree)?.into_iter().enumerate() {
        let folder = scratch.path().join(format!("parts/{}", number % FOLDERS));
        fs::create_dir_all(&folder)?;
        fs::rename(file, folder.join(number.to_string()))?;
        if number < FOLDERS {
            folders.push(folder);
        }
    }
    let parts = scratch.path().join("parts");
    let forgotten: Vec<String> = match case {
        0 => {
            for folder in &folders {
                store.add(folder, "one")?;
            }
            (1..=folders.len())
                .step_by(2)
                .map(|it| it.to_string())
                .collect()
        }
        _ => {
            store.add(&parts, "one")?;
            match case {
                1 => folders.iter().step_by(2).try_for_each(fs::remove_dir_all)?,
                _ => {
                    let mut files = trees::files(&parts)?;
                    files.sort();
                    files.iter().step_by(2).try_for_each(fs::remove_file)?;
                }
            }
            store.add(&parts, "two")?;
            vec!["1".to_string()]
        }
    };
    store.forget(&forgotten)?;
    let (used, told) = store.collect()?;
    let number = |name: &str| told[name].as_f64().context("a number");
    let (to_read, to_write) = (number("bytes_to_read")?, number("bytes_to_write")?);
    let live_bytes = number("bytes_live")?;
    let values = |bytes: f64, told_bytes: f64| Values {
        used,
        raw_bytes: 0.0,
        bytes,
        told_bytes,
        live_bytes,
        joules: 0.0,
    };
    let (read, written) = (number("read_bytes")?, number("written_bytes")?);
    ensure!(
        number("dead_packs")? + number("moved_packs")? > 0.0,
        "nothing to collect: {told}"
    );
    let name = OURS.name();
    Ok(vec![
        row("read", &name, (0, 1), values(read, to_read)),
        row("rewritten", &name, (0, 1), values(written, to_write)),
    ])
}

fn small_files(files: u64, runs: usize) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let tree = scratch.path().join("tree");
    let bytes = files * SMALL_BYTES as u64;
    make(&tree, bytes, SMALL_BYTES, Kind::Text)?;
    let mut rows = Vec::new();
    for run in 0..runs {
        let programs = [OURS, RESTIC, BORG];
        let turns = interleave::in_turn(run, programs.len(), |index| {
            let program = programs[index];
            let store = Store::create(program, scratch.path().join("store"))?;
            let added = store.add(&tree, "one")?;
            let stored = store.stored_bytes()?;
            let restored = store.restore(&tree, "one")?;
            let name = program.name();
            Ok([
                row("add", &name, (run, runs), of(added, bytes, stored)),
                row("restore", &name, (run, runs), of(restored, bytes, stored)),
            ])
        })?;
        rows.extend(turns.into_iter().flatten());
    }
    Ok(rows)
}

fn judged(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(judged_of).collect()
}

fn at_most(high: f64) -> Target {
    Target { low: 0.0, high }
}

/// One cell, and the findings of it.
struct Judged<'a>(&'a CellRecord);

impl Judged<'_> {
    fn values(&self, task: &str, who: &str, column: usize) -> Vec<f64> {
        self.0.column(task, who, column)
    }

    fn finding(&self, what: &str, found: Interval, target: Target, note: String) -> Finding {
        let bytes = self.0.parameter("bytes");
        let bytes = bytes.and_then(|it| it.parse::<u64>().ok());
        Finding {
            question: format!("{}: {what}", self.0.cell),
            core: true,
            found,
            verdict: match bytes.is_some_and(|it| it >= JUDGED_BYTES) {
                true => target.judge_by(found, 3),
                false => Verdict::CannotTell,
            },
            note: format!("target {target}; {note}"),
        }
    }

    fn exact(&self, what: &str, value: f64, target: Target, note: String) -> Finding {
        self.finding(what, Interval::exact(value), target, note)
    }

    /// Judges one contender's column over another's.
    fn ratio(
        &self,
        what: &str,
        (over, who): (&str, &str),
        (under, whose): (&str, &str),
        column: usize,
        target: Target,
    ) -> Finding {
        let over = self.values(over, who, column);
        let under = self.values(under, whose, column);
        let note = format!(
            "{who} {:.3} s, {whose} {:.3} s",
            middle(&over),
            middle(&under)
        );
        self.finding(what, Interval::of_quotients(&over, &under), target, note)
    }

    fn again(&self, ours: &str, restic: &str) -> Vec<Finding> {
        let stored = middle(&self.values("again", ours, BYTES));
        let more = stored / middle(&self.values("add", ours, RAW));
        let (add, again) = (("add", ours), ("again", ours));
        let verify = [("verify", ours), ("verify", restic)];
        vec![
            self.ratio(
                "add over add again",
                add,
                again,
                WALL,
                Target::at_least(20.0),
            ),
            self.exact(
                "bytes more",
                more,
                at_most(0.0002),
                format!("{stored:.0} bytes"),
            ),
            self.ratio(
                "verify over restic's",
                verify[0],
                verify[1],
                WALL,
                at_most(0.5),
            ),
        ]
    }

    fn clones(&self, ours: &str) -> Vec<Finding> {
        let (hashed, added) = ((CLONES, B3SUM), (CLONES, ours));
        let least = Target::at_least(0.8);
        vec![
            self.ratio("b3sum over a clone", hashed, added, WALL, least),
            self.ratio("core seconds of the same", hashed, added, CPU, least),
        ]
    }

    fn collected(&self, ours: &str) -> Vec<Finding> {
        let each = ["read", "rewritten"].into_iter().flat_map(|task| {
            let [bytes, told, live] =
                [BYTES, TOLD, LIVE].map(|column| self.0.median(task, ours, column));
            // Where nothing moves, nothing is read and nothing was said to be.
            let over = |under: f64| if bytes == 0.0 { 0.0 } else { bytes / under };
            let wrong = if told == 0.0 {
                bytes
            } else {
                (bytes / told - 1.0).abs()
            };
            let note = format!(
                "{:.2} MB; {:.2} MB live in packs that move",
                bytes / 1e6,
                live / 1e6
            );
            let said = format!("{:.2} MB said", told / 1e6);
            [
                self.exact(&format!("{task} over live"), over(live), at_most(1.2), note),
                self.exact(
                    &format!("error of {task} as said"),
                    wrong,
                    at_most(0.1),
                    said,
                ),
            ]
        });
        each.collect()
    }

    fn nightly_disk(&self, ours: &str, restic: &str) -> Vec<Finding> {
        let seconds = Interval::of_values(&self.values(NIGHTLY_DISK, ours, WALL));
        let (ours, restic) = ((NIGHTLY_DISK, ours), (NIGHTLY_DISK, restic));
        let note = "ours".to_string();
        vec![
            self.finding("seconds of a changed GB", seconds, at_most(10.0), note),
            self.ratio("seconds over restic's", ours, restic, WALL, at_most(0.2)),
            self.ratio(
                "core seconds over restic's",
                ours,
                restic,
                CPU,
                at_most(0.6),
            ),
        ]
    }

    fn growth(&self, ours: &str) -> Vec<Finding> {
        let cpu = self.values(GROWTH, ours, CPU);
        let early = middle(&cpu[1.min(cpu.len())..cpu.len().min(6)]);
        let late = middle(&cpu[cpu.len().saturating_sub(5)..]);
        let note = format!(
            "core seconds of an add: {late:.3} of the last, {early:.3} of the second to sixth"
        );
        vec![self.exact("late over early", late / early, at_most(1.1), note)]
    }

    fn small_files(&self, ours: &str, restic: &str) -> Vec<Finding> {
        let steps = [
            ("add", "add over restic's"),
            ("restore", "restore over restic's"),
        ];
        let ratio = |(task, what): (&str, &str)| {
            self.ratio(what, (task, ours), (task, restic), WALL, at_most(0.33))
        };
        steps.map(ratio).into()
    }
}

fn judged_of(cell: &CellRecord) -> Vec<Finding> {
    if let Some(missing) = programs::missing(cell) {
        return vec![missing];
    }
    let (ours, restic) = (OURS.name(), RESTIC.name());
    let judged = Judged(cell);
    match cell.cell.as_str() {
        name if AGAIN.contains(&name) => judged.again(&ours, &restic),
        CLONES => judged.clones(&ours),
        GROWTH => judged.growth(&ours),
        NIGHTLY_DISK => judged.nightly_disk(&ours, &restic),
        name if COLLECTED.contains(&name) => judged.collected(&ours),
        _ => judged.small_files(&ours, &restic),
    }
}

/// Returns the median.
fn middle(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), judged(&cells));
    if let Some(text) = memory(&cells) {
        shown.push_str(&text);
    }
    if let Some(text) = costs(&cells) {
        shown.push_str(&text);
    }
    Ok(shown)
}

/// Returns the memory of programs for small files, and extrapolates it to a million.
fn memory(cells: &[CellRecord]) -> Option<String> {
    let of = |files: u64| cells.iter().find(|cell| cell.cell == small(files));
    let [few, many] = [of(SMALL[0])?, of(SMALL[1])?];
    let mut text = "\nMB resident, medians; for a million files extrapolated on the line through both.\n\n\
         | program | step | 20,000 files | 100,000 | 1,000,000, extrapolated |\n|---|---|---:|---:|---:|\n"
        .to_string();
    for program in [OURS, RESTIC, BORG] {
        for task in ["add", "restore"] {
            let [few, many] =
                [few, many].map(|cell| cell.median(task, &program.name(), RESIDENT) / 1e6);
            let slope = (many - few) / (SMALL[1] - SMALL[0]) as f64;
            let million = many + slope * (1e6 - SMALL[1] as f64);
            text.push_str(&format!(
                "| {} | {task} | {few:.0} | {many:.0} | {million:.0} |\n",
                program.name()
            ));
        }
    }
    Some(text)
}

/// Shows the cost of a GB when so many were added.
fn costs(cells: &[CellRecord]) -> Option<String> {
    let cell = cells.iter().find(|cell| cell.cell == GROWTH)?;
    let column = |column| cell.column(GROWTH, &OURS.name(), column);
    let [wall, cpu, raw, stored, joules] = [WALL, CPU, RAW, BYTES, JOULES].map(column);
    let mut text = format!(
        "\nCosts of one more GB of clones, when so many GB were added; joules are {}.\n\n\
         | GB | seconds | core seconds | joules | MB of the vault |\n|---:|---:|---:|---:|---:|\n",
        energy_of(cell)
    );
    let (mut sum, mut next) = (0.0, 0.0);
    for (at, raw) in raw.iter().enumerate() {
        let gb = raw / 1e9;
        sum += gb;
        if sum < next && at + 1 < wall.len() {
            continue;
        }
        next = (2.0 * sum).min(100.0);
        text.push_str(&format!(
            "| {sum:.1} | {:.3} | {:.3} | {:.1} | {:.2} |\n",
            wall[at] / gb,
            cpu[at] / gb,
            joules[at] / gb,
            stored[at] / 1e6
        ));
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict::{CannotTell, Differs, Holds};

    /// A cell in which each of these came to so much of everything.
    fn cell(name: &str, bytes: u64, all: &[(&str, &str, f64)]) -> CellRecord {
        let rows = all.iter().flat_map(|(task, who, much)| {
            let used = Used {
                wall_seconds: *much,
                cpu_seconds: *much,
                resident_bytes: *much,
            };
            let values = move || Values {
                told_bytes: 1.0,
                live_bytes: 1.0,
                bytes: *much,
                ..of(used, 1, 1)
            };
            (0..3).map(move |run| row(task, who, (run, 3), values()))
        });
        CellRecord::made_up(name, format!("bytes={bytes}"), rows.collect())
    }

    fn verdicts(cell: CellRecord) -> Vec<Verdict> {
        judged(&[cell]).iter().map(|it| it.verdict).collect()
    }

    #[test]
    fn each_cell_is_judged_by_its_own_targets() {
        let (ours, restic) = (OURS.name(), RESTIC.name());
        let cloned = |much| [(CLONES, B3SUM, 1.0), (CLONES, &*ours, much)];
        let large = 1 << 30;
        assert_eq!(verdicts(cell(CLONES, large, &cloned(1.1))), [Holds; 2]);
        assert_eq!(verdicts(cell(CLONES, large, &cloned(1.4))), [Differs; 2]);
        assert_eq!(
            verdicts(cell(CLONES, 1 << 20, &cloned(1.1))),
            [CannotTell; 2]
        );
        let collected = [("read", &*ours, 1.3), ("rewritten", &*ours, 1.05)];
        let found = verdicts(cell(COLLECTED[1], large, &collected));
        assert_eq!(found, [Differs, Differs, Holds, Holds]);
        let small = ["add", "restore"];
        let small = small.map(|task| [(task, &*ours, 0.3), (task, &*restic, 1.0)]);
        let cells = [cell("20000 small files", large, &small.concat())];
        assert_eq!(judged(&cells).len(), 2);
        assert!(judged(&cells).iter().all(|it| it.verdict == Holds));
        let night = [(NIGHTLY_DISK, &*ours, 9.0), (NIGHTLY_DISK, &*restic, 30.0)];
        let found = verdicts(cell(NIGHTLY_DISK, large, &night));
        assert_eq!(found, [Holds, Differs, Holds]);
        let growing = cell(GROWTH, large, &[(GROWTH, &*ours, 1.0)]);
        assert!(
            costs(std::slice::from_ref(&growing))
                .unwrap()
                .contains("| 0.0 |")
        );
        assert_eq!(verdicts(growing), [Holds]);
    }
}
