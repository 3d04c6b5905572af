//! The databases' work, done by Debian's Python in a process of its own. So its bytes and processor time are the
//! system's figures.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::laboratory::Finding;
use crate::memory::MemoryGroup;
use crate::papers::harper2018_cache;
use crate::peers;
use crate::record::CellRecord;
use crate::statistics::{Interval, Target, Verdict};

/// Debian's, which loads extensions; others on the path may not.
const PYTHON: &str = "/usr/bin/python3";
const VERSIONS: &str = "import platform, sqlite3; print('Python', platform.python_version(), 'SQLite', sqlite3.sqlite_version)";
/// The script of tasks on messages.
pub const SCRIPT: &str = concat!(include_str!("connect.py"), include_str!("worker.py"));

pub const OURS: &str = "breakeven";
pub const DELETE: &str = "delete";
pub const WAL: &str = "wal";
/// How a database commits, in the words that the script takes.
pub const CONTENDERS: [&str; 3] = [OURS, DELETE, WAL];

pub const COLUMNS: &[&str] = &["seconds", "cpu_seconds", "written_bytes", "file_bytes"];
pub const SECONDS: usize = 0;
pub const CPU: usize = 1;
pub const WRITTEN: usize = 2;
pub const FILE: usize = 3;

/// The folder where cargo puts the extension: beside its dependents, or above that.
fn extension() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let name = "libbreakeven_sqlite.so";
    let found = [folder.join("deps").join(name), folder.join(name)];
    found.into_iter().find(|path| path.exists())
}

/// Returns the command of a Python that loads extensions.
fn python() -> Command {
    let found = peers::of_root("python3");
    found.unwrap_or_else(|| Command::new(PYTHON))
}

/// Returns the versions of a cell's programs, or the missing ones.
pub fn parts() -> String {
    let version = python().args(["-c", VERSIONS]).output();
    match (version, extension()) {
        (Err(_), _) => "missing=python3".to_string(),
        (_, None) => "missing=extension".to_string(),
        (Ok(version), Some(_)) => {
            let version = String::from_utf8_lossy(&version.stdout);
            format!("with={}", version.trim().replace(' ', "+"))
        }
    }
}

/// Has a database of messages do a task, and returns the values of [`COLUMNS`].
///
/// # Errors
/// As [`Work::told`].
pub fn run(
    folder: &Path,
    contender: &str,
    task: &str,
    count: usize,
    run: usize,
) -> Result<Vec<f64>> {
    let work = Work {
        script: SCRIPT,
        columns: COLUMNS,
        parameters: "",
        count,
        run,
        memory: None,
    };
    work.told(folder, contender, task)
}

/// The work of a script.
#[derive(Clone, Copy)]
pub struct Work<'a> {
    /// The text after `connect.py`.
    pub script: &'a str,
    /// The columns that it prints.
    pub columns: &'a [&'a str],
    /// The parameters appended to the URI of our database.
    pub parameters: &'a str,
    pub count: usize,
    pub run: usize,
    /// The bound of its memory.
    pub memory: Option<&'a MemoryGroup>,
}

impl Work<'_> {
    /// Makes the database of each contender: one is filled, the others are its copies.
    ///
    /// # Errors
    /// As [`Work::told`].
    pub fn make_all(&self, folder: &Path) -> Result<()> {
        self.told(folder, DELETE, "fill")?;
        for contender in [OURS, WAL] {
            self.told(folder, contender, "copy")?;
        }
        Ok(())
    }

    /// Has a database do a task, and returns the script's figures.
    ///
    /// # Errors
    /// If the script fails: a wrong database ends it.
    pub fn told(&self, folder: &Path, contender: &str, task: &str) -> Result<Vec<f64>> {
        let library = extension().context("the extension is not built")?;
        let group = self.memory.map(MemoryGroup::processes).unwrap_or_default();
        let output = python()
            .args(["-c", self.script, contender, task])
            .args([&self.count.to_string(), &self.run.to_string()])
            .arg(library.with_extension(""))
            .arg(self.parameters)
            .arg(group)
            .current_dir(folder)
            .output()
            .context("starting Python")?;
        told_by(&output, self.columns).with_context(|| format!("{contender} {task}"))
    }
}

fn told_by(output: &Output, columns: &[&str]) -> Result<Vec<f64>> {
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let values: Result<Vec<f64>, _> = told.split_whitespace().map(str::parse).collect();
    let values = values.with_context(|| format!("told {told}"))?;
    ensure!(values.len() == columns.len(), "told {told}");
    Ok(values)
}

/// Judges a figure of a cell, unless that was not measured.
pub fn finding(cell: &CellRecord, question: String, found: Interval, target: Target) -> Finding {
    let (found, verdict, note) = match cell.parameter("missing") {
        Some(missing) => (
            Interval::exact(f64::NAN),
            Verdict::CannotTell,
            format!("not measured without {missing}"),
        ),
        None => (found, target.judge(found), format!("target {target}")),
    };
    Finding {
        question,
        core: true,
        found,
        verdict,
        note,
    }
}

/// Returns the source of joules of processor time, as words of a cell's parameters.
///
/// # Errors
/// If the machine does not say its power.
pub fn energy() -> Result<String> {
    let power = harper2018_cache::power()?;
    let watts = power.marginal_watts_per_core().0;
    Ok(format!(
        "watts={watts:.3} {}",
        harper2018_cache::energy(&power)
    ))
}

/// Shows the joules of processor time in a cell, in thousandths; nothing where the cell names no source of them.
pub fn millijoules(cell: &CellRecord, cpu_seconds: f64) -> String {
    let watts = cell
        .parameter("watts")
        .and_then(|it| it.parse::<f64>().ok());
    watts.map_or(String::new(), |watts| {
        format!("{:.2}", 1e3 * watts * cpu_seconds)
    })
}

/// Returns a table of all tasks and contenders of cells that were measured: medians of [`COLUMNS`], and joules.
pub fn medians(cells: &[CellRecord], contenders: &[&str]) -> String {
    let whole = |cell: &&CellRecord| cell.parameter("missing").is_none();
    let Some(first) = cells.iter().find(whole) else {
        return String::new();
    };
    let mut shown = format!(
        "\nMedians of a run; joules are {}.\n\n| cell | work | database | seconds | core seconds | mJ | MB written | file MB |\n\
         |---|---|---|---:|---:|---:|---:|---:|\n",
        harper2018_cache::energy_of(first)
    );
    for cell in cells.iter().filter(whole) {
        let mut tasks: Vec<&str> = cell.rows.iter().map(|row| row.task.as_str()).collect();
        tasks.dedup();
        let mut seen = Vec::new();
        tasks.retain(|task| {
            !seen.contains(task) && {
                seen.push(*task);
                true
            }
        });
        for (task, contender) in tasks
            .iter()
            .flat_map(|task| contenders.iter().map(move |it| (task, it)))
        {
            let of = |column| cell.median(task, contender, column);
            shown.push_str(&format!(
                "| {} | {task} | {contender} | {:.3} | {:.3} | {} | {:.2} | {:.2} |\n",
                cell.cell,
                of(SECONDS),
                of(CPU),
                millijoules(cell, of(CPU)),
                of(WRITTEN) / 1e6,
                of(FILE) / 1e6,
            ));
        }
    }
    shown
}

/// Returns a target for figures that should be small.
pub const fn at_most(high: f64) -> Target {
    Target { low: 0.0, high }
}
