//! Reports as pages: `--report FILE` of advise and replay, and `breakeven report` for saved results.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use breakeven::advise::report::{Report, SCHEMA};
use breakeven::quoted::{printable, quoted};
use breakeven::storage::beside::{self, SmallFileOptions};
use breakeven_cli::report::{html, pictures, replay};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::options::ReportOptions;

/// A saved report of a thousand classes is smaller than this.
const REPORT_BYTES_MAX: u64 = 64 << 20;

/// The head of every report.
#[derive(Deserialize)]
struct Named {
    schema: String,
}

/// Runs `breakeven report`.
pub fn run(typed: &ReportOptions) -> Result<ExitCode> {
    let text = read_bytes(&typed.json)?;
    let context = || format!("report {}", quoted(&typed.json));
    let named: Named = serde_json::from_slice(&text).with_context(context)?;
    let (page, pictures) = if named.schema == replay::SCHEMA {
        let report = from_slice(&text).with_context(context)?;
        (replay::html(&report), replay::pictures(&report))
    } else {
        let report = parse(&typed.json, &text)?;
        (html(&report), pictures(&report))
    };
    write(&typed.output, &page)?;
    if let Some(folder) = &typed.pictures {
        for (name, svg) in pictures {
            write(&folder.join(format!("{name}.svg")), &svg)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads a report that `advise --json` wrote.
pub fn read(path: &Path) -> Result<Report> {
    parse(path, &read_bytes(path)?)
}

fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let context = || format!("report {}", quoted(&path));
    let mut text = Vec::new();
    let file = File::open(path).with_context(context)?;
    file.take(REPORT_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .with_context(context)?;
    let size = text.len() as u64;
    ensure!(
        size <= REPORT_BYTES_MAX,
        "report {}: longer than {REPORT_BYTES_MAX} bytes",
        quoted(&path)
    );
    Ok(text)
}

fn parse(path: &Path, text: &[u8]) -> Result<Report> {
    let context = || format!("report {}", quoted(&path));
    let report: Report = from_slice(text).with_context(context)?;
    ensure!(
        report.schema == SCHEMA,
        "report {}: its schema is '{}', expected '{SCHEMA}'",
        quoted(&path),
        report.schema
    );
    Ok(report)
}

/// Reads JSON that anybody may have written: each of its texts is one line.
fn from_slice<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    fn quote(value: &mut Value) {
        match value {
            Value::String(text) => *text = printable(text),
            Value::Array(values) => values.iter_mut().for_each(quote),
            Value::Object(fields) => fields.values_mut().for_each(quote),
            _ => {}
        }
    }
    let mut value: Value = serde_json::from_slice(text)?;
    quote(&mut value);
    serde_json::from_value(value)
}

/// Checks early that a page can be written, before anybody has waited for it.
pub fn check(path: &Path) -> Result<()> {
    let folder = folder(path);
    ensure!(
        folder.is_dir(),
        "write {}: there is no folder {}",
        quoted(&path),
        quoted(&folder)
    );
    ensure!(!path.is_dir(), "write {}: it is a folder", quoted(&path));
    Ok(())
}

fn folder(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|of| !of.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}

/// Writes the page of a report: all of it, or nothing.
pub fn write_report(path: &Path, report: &Report) -> Result<()> {
    write(path, &html(report))
}

/// Writes a page: all of it, or nothing.
pub fn write(path: &Path, text: &str) -> Result<()> {
    check(path)?;
    Ok(beside::write(
        path,
        text.as_bytes(),
        SmallFileOptions::default(),
    )?)
}
