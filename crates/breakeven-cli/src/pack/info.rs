//! `breakeven info`: the parts of a stream, found without decoding it where possible.

use std::io::Seek;
use std::process::ExitCode;

use anyhow::{Result, bail};
use breakeven::stream::{ReaderOptions, Survey, survey};

use super::content::unreadable;
use super::place::Source;
use crate::options::InfoOptions;
use crate::standard;

/// The name and version of the JSON form. Fields are only added under the same one.
const SCHEMA: &str = "breakeven.info/1";

/// Runs `info`.
pub fn run(typed: &InfoOptions) -> Result<ExitCode> {
    list(typed, false)
}

/// Runs `info`, or prints a line for each fact, as `zstd -lv` does.
pub fn list(typed: &InfoOptions, is_verbose: bool) -> Result<ExitCode> {
    let reading = ReaderOptions {
        window_bytes_max: typed.window_max,
        ..ReaderOptions::default()
    };
    let mut outcome = ExitCode::SUCCESS;
    let mut lines = Vec::new();
    for path in &typed.paths {
        let found = Source::open_file(path).and_then(|mut source| {
            if source.file.stream_position().is_err() {
                bail!("{} is not seekable: give a file", source.name);
            }
            let survey = survey(&mut source.file, &reading);
            let survey = survey.map_err(|error| unreadable(&source.name, error))?;
            Ok((source, survey))
        });
        match found {
            Ok(found) => lines.push(found),
            Err(error) => {
                standard::complain(crate::describe(&error));
                outcome = ExitCode::from(1);
            }
        }
    }
    let text = if typed.json {
        let files: Vec<_> = lines
            .iter()
            .map(|(of, it)| json(&of.data_name(), it))
            .collect();
        let all = serde_json::json!({ "schema": SCHEMA, "files": files });
        serde_json::to_string_pretty(&all)? + "\n"
    } else if lines.is_empty() {
        String::new()
    } else if is_verbose {
        let facts = lines.iter().map(|(of, it)| facts(&of.name, it));
        facts.collect()
    } else {
        let mut text = format!(
            "{:>8} {:>14} {:>14} {:>7}  {:<16} {:<5}  {}\n",
            "frames", "stored bytes", "raw bytes", "ratio", "kinds", "table", "file"
        );
        for (source, survey) in &lines {
            text.push_str(&line(&source.name, survey));
        }
        text
    };
    standard::print(&text);
    Ok(outcome)
}

fn kinds(survey: &Survey) -> [(&'static str, u64); 5] {
    let counted = survey.counted;
    [
        ("zstd", counted.zstd_frames),
        ("lz4", counted.lz4_frames),
        ("xz", counted.xz_frames),
        ("gzip", counted.gzip_members),
        ("skippable", counted.skippable_frames),
    ]
}

fn line(name: &str, survey: &Survey) -> String {
    let counted = survey.counted;
    let there = kinds(survey).into_iter().filter(|kind| kind.1 > 0);
    let mut names: Vec<_> = there.map(|kind| kind.0).collect();
    if counted.padding_bytes > 0 {
        names.push("zeros");
    }
    let names = names.join("+").replace("skippable", "skip");
    let (raw, ratio) = match survey.states_content {
        true => (
            counted.content_bytes.to_string(),
            format!("{:.3}", ratio(survey)),
        ),
        false => ("not stated".to_string(), "-".to_string()),
    };
    let table = if survey.has_table { "yes" } else { "no" };
    format!(
        "{:>8} {:>14} {raw:>14} {ratio:>7}  {names:<16} {table:<5}  {name}\n",
        counted.frames(),
        counted.stored_bytes
    )
}

/// The facts on a stream, a line for each, with the names that scripts of `zstd -lv` look for.
fn facts(name: &str, survey: &Survey) -> String {
    let counted = survey.counted;
    let mut lines = vec![name.to_string()];
    for (kind, count) in kinds(survey).into_iter().filter(|kind| kind.1 > 0) {
        let kind = match kind {
            "zstd" => "Zstandard",
            "skippable" => "Skippable",
            other => other,
        };
        lines.push(format!("# {kind} Frames: {count}"));
    }
    let mut bytes = |name: &str, count: u64| {
        lines.push(format!("{name}: {} ({count} B)", binary(count)));
    };
    if survey.window_bytes > 0 {
        bytes("Window Size", survey.window_bytes);
    }
    bytes("Compressed Size", counted.stored_bytes);
    if survey.states_content {
        bytes("Decompressed Size", counted.content_bytes);
        lines.push(format!("Ratio: {:.4}", ratio(survey)));
    }
    lines.push("\n".to_string());
    lines.join("\n")
}

/// Words a size in three digits, by powers of two.
fn binary(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let power = bytes.max(1).ilog2() / 10;
    let number = bytes as f64 / (1_u64 << (10 * power)) as f64;
    let decimals = match number {
        _ if power == 0 => 0,
        100.0.. => 0,
        10.0.. => 1,
        _ => 2,
    };
    format!("{number:.decimals$} {}", units[power as usize])
}

fn ratio(survey: &Survey) -> f64 {
    survey.counted.content_bytes as f64 / survey.counted.stored_bytes.max(1) as f64
}

fn json(name: &str, survey: &Survey) -> serde_json::Value {
    let frames: serde_json::Map<_, _> = (kinds(survey).into_iter())
        .map(|(kind, count)| (kind.to_string(), count.into()))
        .collect();
    serde_json::json!({
        "file": name,
        "frames": frames,
        "stored_bytes": survey.counted.stored_bytes,
        "raw_bytes": survey.states_content.then_some(survey.counted.content_bytes),
        "ratio": survey.states_content.then(|| ratio(survey)),
        "seek_table": survey.has_table,
        "padding_bytes": survey.counted.padding_bytes,
    })
}
