//! `breakeven compare`: reads two reports and prints the changes. Its exit code says whether a verdict changed.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use breakeven::advise::compare::{
    Comparison, MethodMoved, Moved, Presence, Stance, VerdictChange, compare,
};
use breakeven::quoted::quoted;
use breakeven::units::Estimate;
use breakeven_cli::text::{binary_size, figures, percent_range, printable};

use crate::options::CompareOptions;
use crate::page;

/// Lines of one kind that people are shown; `--json` has all.
const LINES_MAX: usize = 20;

/// Runs the command.
pub fn run(typed: &CompareOptions) -> Result<ExitCode> {
    let before = page::read(&typed.before)?;
    let after = page::read(&typed.after)?;
    let comparison = compare(&before, &after);
    // Silence would read as consent.
    ensure!(
        comparison.verdicts_compared > 0,
        "{} and {} have no verdict in common",
        quoted(&typed.before),
        quoted(&typed.after)
    );
    let text = if typed.json {
        serde_json::to_string_pretty(&comparison).context("write the comparison")? + "\n"
    } else {
        render(&comparison)
    };
    crate::standard::print(&text);
    Ok(ExitCode::from(u8::from(comparison.changed)))
}

fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    let (changed, compared) = (comparison.verdicts.len(), comparison.verdicts_compared);
    let _ = match changed {
        0 => writeln!(out, "No verdict changed ({compared} compared)."),
        _ => writeln!(out, "{changed} of {compared} verdicts changed."),
    };
    section(&mut out, "", &comparison.verdicts, verdict);
    let title = "say something else within their errors, so it is no change:";
    section(&mut out, title, &comparison.within_error, verdict);
    let title = "not alike, so a change may come from it:";
    section(&mut out, title, &comparison.unlike, |difference| {
        let (of, what) = (difference.of, difference.what);
        format!("{of} {what}: {} -> {}", difference.before, difference.after)
    });
    let title = "the medium moved beyond its error:";
    section(&mut out, title, &comparison.medium, moved);
    let title = "methods moved beyond their error:";
    section(&mut out, title, &comparison.methods, method_moved);
    section(&mut out, "new:", &comparison.new, presence);
    section(&mut out, "gone:", &comparison.gone, presence);
    out
}

/// Prints lines under a title, if there are any.
fn section<T>(out: &mut String, title: &str, items: &[T], line: impl Fn(&T) -> String) {
    if items.is_empty() {
        return;
    }
    out.push('\n');
    if !title.is_empty() {
        let _ = writeln!(out, "{title}");
    }
    for item in items.iter().take(LINES_MAX) {
        for line in line(item).lines() {
            let _ = writeln!(out, "  {}", printable(line));
        }
    }
    if items.len() > LINES_MAX {
        let _ = writeln!(out, "  and {} more (--json)", items.len() - LINES_MAX);
    }
}

fn verdict(change: &VerdictChange) -> String {
    let VerdictChange {
        place,
        metric,
        class,
        before,
        after,
    } = change;
    format!(
        "{place} {metric} on {class}: {} -> {}\n    before  {}\n    after   {}",
        says(before),
        says(after),
        rests_on(before),
        rests_on(after),
    )
}

/// The advice of a verdict.
fn says(stance: &Stance) -> &str {
    match stance.answer.as_str() {
        "undecided" => "undecided",
        _ => &stance.method,
    }
}

/// The figures that a verdict rests on.
fn rests_on(stance: &Stance) -> String {
    let answer = stance.answer.replace('_', " ");
    let mut text = format!(
        "{} {answer}: {} of the cost of raw",
        stance.candidate,
        percent_range(&stance.cost_ratio)
    );
    if let Some(ratio) = stance.ratio {
        let _ = write!(text, ", ratio {}", with_interval(&ratio));
    }
    let work = [
        (stance.compress_core_s_per_gb, "compress"),
        (stance.decompress_core_s_per_gb, "decompress"),
    ];
    for (seconds, direction) in work {
        if let Some(seconds) = seconds {
            let _ = write!(text, ", {} core-s/GB to {direction}", figures(seconds.mean));
        }
    }
    text
}

fn with_interval(estimate: &Estimate) -> String {
    let [mean, low, high] = [estimate.mean, estimate.low, estimate.high].map(figures);
    if low == high {
        return mean;
    }
    format!("{mean} ({low} to {high})")
}

fn moved(moved: &Moved) -> String {
    let quantity = match moved.quantity {
        "read_mb_s" => "reads MB/s",
        "write_mb_s" => "writes MB/s",
        "random_read_us" => "random read us",
        "compress_core_s_per_gb" => "core-s/GB to compress",
        "decompress_core_s_per_gb" => "core-s/GB to decompress",
        other => other,
    };
    let (before, after) = (with_interval(&moved.before), with_interval(&moved.after));
    format!("{quantity}: {before} -> {after}")
}

fn method_moved(method: &MethodMoved) -> String {
    format!(
        "{} on {}, {}, {}",
        method.method,
        method.class,
        binary_size(method.block_bytes),
        moved(&method.moved)
    )
}

fn presence(presence: &Presence) -> String {
    format!("{} {}", presence.what, presence.name)
}
