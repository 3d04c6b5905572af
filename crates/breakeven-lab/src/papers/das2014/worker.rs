//! The databases' work, done by Debian's Python in a process of its own, so that what it wrote and the processor time
//! it took are the system's figures.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Debian's, which loads extensions; others on the path may not.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = include_str!("worker.py");

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

/// Where cargo puts the extension: beside what is linked with it, or above that.
fn extension() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let folder = program.parent()?;
    let name = "libbreakeven_sqlite.so";
    let found = [folder.join("deps").join(name), folder.join(name)];
    found.into_iter().find(|path| path.exists())
}

/// Says what a cell is measured with, or what is missing for it.
pub fn parts() -> String {
    let version = Command::new(PYTHON).arg("--version").output();
    match (version, extension()) {
        (Err(_), _) => "missing=python3".to_string(),
        (_, None) => "missing=extension".to_string(),
        (Ok(version), Some(_)) => {
            let version = String::from_utf8_lossy(&version.stdout);
            format!("with={}", version.trim().replace(' ', "+"))
        }
    }
}

/// Has a database do a task, and returns the values of [`COLUMNS`].
///
/// # Errors
/// If the script fails: a database that is not what it should be ends it.
pub fn run(
    folder: &Path,
    contender: &str,
    task: &str,
    count: usize,
    run: usize,
) -> Result<Vec<f64>> {
    let library = extension().context("the extension is not built")?;
    let output = Command::new(PYTHON)
        .args(["-c", SCRIPT, contender, task])
        .args([&count.to_string(), &run.to_string()])
        .arg(library.with_extension(""))
        .current_dir(folder)
        .output()
        .context("starting Python")?;
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{contender} {task}: {told}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let values: Result<Vec<f64>, _> = told.split_whitespace().map(str::parse).collect();
    let values = values.with_context(|| format!("{contender} {task} told {told}"))?;
    ensure!(
        values.len() == COLUMNS.len(),
        "{contender} {task} told {told}"
    );
    Ok(values)
}
