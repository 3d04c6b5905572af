//! The record of every table and figure: each contender writes and reads each type of file.
//!
//! A cell is a race over one file. Its contenders alternate in every run. One whose two times are known well enough
//! sits the later runs out, as the paper's rule says (section 4.3).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::medium::folder::Folder;
use breakeven::meter::{Clock, EnergyMeter, EnergyOptions, Machine, Roots};

use super::contenders::{self, CONTENDERS, Contender, Share};
use super::files::{self, FileType};
use super::task::{Bench, Cold, Used};
use crate::interleave;
use crate::laboratory::{Cell, Laboratory};
use crate::peers;
use crate::programs::{self, ZSTD};
use crate::record::{CellRecord, Record, Row, Unfinished};
use crate::statistics::Interval;
use crate::tables;

/// The record that all experiments of this paper on single files share.
pub const RECORD: &str = "kothiyal2009/tasks";

pub const COLUMNS: &[&str] = &[
    "raw_bytes",
    "stored_bytes",
    "restored_bytes",
    "wall_seconds",
    "user_seconds",
    "system_seconds",
    "passive_joules",
    "active_joules",
];
pub const RAW_BYTES: usize = 0;
pub const STORED_BYTES: usize = 1;
pub const WALL_SECONDS: usize = 3;
pub const USER_SECONDS: usize = 4;
pub const SYSTEM_SECONDS: usize = 5;
pub const PASSIVE_JOULES: usize = 6;
pub const ACTIVE_JOULES: usize = 7;

pub const WRITE: &str = "write";
pub const READ: &str = "read";

/// The paper's file.
pub const PAPER_BYTES: usize = 2 << 30;
const QUICK_BYTES: usize = 2 << 20;

/// When a contender has run often enough.
#[derive(Clone, Copy, Debug)]
struct Stopping {
    runs_min: usize,
    runs_max: usize,
    /// Enough if the half-width of the mean's 95 % interval is below this share of it.
    half_width: f64,
}

impl Stopping {
    fn of(laboratory: &Laboratory) -> Stopping {
        let (runs_min, runs_max) = if laboratory.quick { (2, 2) } else { (5, 10) };
        Stopping {
            runs_min,
            runs_max,
            half_width: 0.05,
        }
    }

    /// Whether a contender need not run again.
    fn is_known<'r>(&self, rows: impl Iterator<Item = &'r Row> + Clone) -> bool {
        let narrow = |task: &str| {
            let of_task = rows.clone().filter(|row| row.task == task);
            let seconds: Vec<f64> = of_task.map(|row| row.values[WALL_SECONDS]).collect();
            seconds.len() >= self.runs_min
                && Interval::of_values(&seconds).half_width() < self.half_width
        };
        narrow(WRITE) && narrow(READ)
    }
}

/// Measures all cells, or takes them from the record.
pub fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let setting = Setting::new(laboratory)?;
    let mut cells = Vec::new();
    for file in FileType::ALL {
        for share in Share::ALL {
            let racing = setting.racing(share);
            // The plain one alone proves nothing.
            if racing.len() > 1 {
                cells.push(setting.cell(file, share, racing)?);
            }
        }
    }
    laboratory.measure(RECORD, COLUMNS, cells)
}

/// Reads the latest record of each cell.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    Record::new(records, RECORD, COLUMNS).latest()
}

/// Where and how the cells of this paper are measured.
pub struct Place {
    pub cold: Cold,
    pub energy: EnergyMeter,
    /// The file system and the device below the scratch folder.
    pub medium: String,
}

/// The part that all cells share.
struct Setting<'a> {
    laboratory: &'a Laboratory,
    stopping: Stopping,
    place: Place,
}

impl Place {
    /// Looks at the folder of records, and announces its new files.
    pub fn new(laboratory: &Laboratory, record: &str) -> Result<Place> {
        // Beside the records, because the folder of temporary files is often memory.
        std::fs::create_dir_all(&laboratory.records)?;
        let folder = Folder::look_up(&laboratory.records)?;
        let device = folder.device.unwrap_or_default();
        let medium = format!("{}:{device}", folder.file_system);
        ensure!(
            laboratory.quick || !["tmpfs", "ramfs"].contains(&folder.file_system.as_str()),
            "{} lies in memory: a full run wants a disk",
            laboratory.records.display()
        );
        eprintln!(
            "{record}: scratch files in {} ({medium}), removed at the end",
            laboratory.records.display()
        );
        let machine = Machine::read(&Roots::default());
        let energy = EnergyMeter::choose(&EnergyOptions::default(), &machine, Clock::real())?;
        Ok(Place {
            cold: Cold::choose(laboratory.quick),
            energy,
            medium,
        })
    }
}

impl<'a> Setting<'a> {
    fn new(laboratory: &'a Laboratory) -> Result<Setting<'a>> {
        for program in missing_programs() {
            eprintln!("{RECORD}: {program} is not installed: left out");
        }
        Ok(Setting {
            laboratory,
            stopping: Stopping::of(laboratory),
            place: Place::new(laboratory, RECORD)?,
        })
    }

    /// Returns the contenders of a file of this share: the plain one first.
    fn racing(&self, share: Share) -> Vec<Contender> {
        let missing = missing_programs();
        let here = |contender: &&Contender| {
            let place = match self.laboratory.paper_size {
                true => Share::Whole,
                false => contender.share,
            };
            place == share
                && !contender
                    .program()
                    .is_some_and(|name| missing.contains(&name))
        };
        let racing = CONTENDERS.iter().filter(here).copied();
        [contenders::plain(share)]
            .into_iter()
            .chain(racing)
            .collect()
    }

    fn cell(&self, file: FileType, share: Share, racing: Vec<Contender>) -> Result<Cell<'_>> {
        let whole = if self.laboratory.quick {
            QUICK_BYTES
        } else {
            PAPER_BYTES
        };
        let bytes = match self.laboratory.paper_size {
            true => share.of(whole),
            false => file.enough(share.of(whole)),
        };
        let names: Vec<&str> = racing.iter().map(|contender| contender.name).collect();
        let parameters = format!(
            "file={} raw_bytes={bytes} period_bytes={} source={} contenders={} runs={}..{} \
             half_width={} cold={} medium={} energy={}{}",
            file.name(),
            files::period_bytes(bytes),
            file.source(self.laboratory)?,
            names.join("+"),
            self.stopping.runs_min,
            self.stopping.runs_max,
            self.stopping.half_width,
            self.place.cold.name(),
            self.place.medium,
            self.place.energy.model().source(),
            versions(&racing),
        );
        let name = format!("{} {}", file.name(), tables::binary_size(bytes));
        let parameters = parameters.replace(',', " ");
        let kept = self
            .laboratory
            .unfinished(RECORD, COLUMNS, &name, &parameters)?;
        Ok(Cell {
            name,
            parameters,
            measure: Box::new(move || self.race(file, bytes, &racing, kept)),
        })
    }

    fn race(
        &self,
        file: FileType,
        bytes: usize,
        racing: &[Contender],
        mut kept: Unfinished,
    ) -> Result<Vec<Row>> {
        let scratch = self.laboratory.scratch()?;
        let bench = Bench {
            raw: scratch.path().join("raw"),
            stored: scratch.path().join("stored.7z"),
            cold: self.place.cold,
            energy: &self.place.energy,
        };
        file.write(self.laboratory, &bench.raw, bytes)?;
        for run in kept.next_run()..self.stopping.runs_max {
            let known = |index: usize| {
                let of_it = |row: &&Row| row.contender == racing[index].name;
                self.stopping.is_known(kept.rows().iter().filter(of_it))
            };
            if (1..racing.len()).all(known) {
                break;
            }
            let order: Vec<usize> = interleave::order(run, racing.len())
                .into_iter()
                // All others are compared with the plain one, so it runs in every run.
                .filter(|index| *index == 0 || !known(*index))
                .collect();
            eprintln!("{RECORD}: run {} of {} contenders", run + 1, order.len());
            let mut rows = Vec::new();
            for index in order {
                let contender = &racing[index];
                let turn = take_turn(&bench, contender, bytes as u64, run);
                rows.extend(turn.with_context(|| contender.name.to_string())?);
            }
            kept.add(rows)?;
        }
        Ok(in_order(kept.finish()?, racing))
    }
}

/// Returns the version of the one program that may be a peer out of another root, as one more word.
fn versions(racing: &[Contender]) -> String {
    let is_zstd = |contender: &Contender| contender.program() == Some(ZSTD.0);
    match racing.iter().any(is_zstd) {
        true => format!(" {}", programs::peers(&[ZSTD])),
        false => String::new(),
    }
}

fn missing_programs() -> Vec<&'static str> {
    let programs = CONTENDERS.iter().filter_map(Contender::program);
    let mut missing: Vec<&str> = programs.filter(|name| !peers::is_installed(name)).collect();
    missing.dedup();
    missing
}

/// Writes and reads once, and checks the bytes that came back.
fn take_turn(bench: &Bench<'_>, contender: &Contender, bytes: u64, run: usize) -> Result<Vec<Row>> {
    let (write, stored_bytes) = bench.write(contender)?;
    let (read, restored_bytes) = bench.read(contender)?;
    if run == 0 {
        bench.verify(contender)?;
    }
    ensure!(
        restored_bytes.is_none_or(|restored| restored >= bytes),
        "restored {restored_bytes:?} of {bytes} bytes"
    );
    let row = |task: &str, used: &Used, restored: u64| Row {
        task: task.to_string(),
        run: run + 1,
        // How many there are is known at the end.
        runs: 0,
        contender: contender.name.to_string(),
        values: vec![
            bytes as f64,
            stored_bytes as f64,
            restored as f64,
            used.wall_seconds,
            used.user_seconds,
            used.system_seconds,
            used.passive_joules,
            used.active_joules,
        ],
    };
    Ok(vec![
        row(WRITE, &write, 0),
        row(READ, &read, restored_bytes.unwrap_or(0)),
    ])
}

/// Puts the rows of each run in the order of the contenders, each with its contender's number of runs.
fn in_order(mut rows: Vec<Row>, racing: &[Contender]) -> Vec<Row> {
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for row in &rows {
        let most = runs.entry(row.contender.clone()).or_default();
        *most = row.run.max(*most);
    }
    rows.iter_mut()
        .for_each(|row| row.runs = runs[&row.contender]);
    let place = |row: &Row| racing.iter().position(|one| one.name == row.contender);
    rows.sort_by_key(|row| (row.run, place(row)));
    rows
}
