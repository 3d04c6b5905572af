//! The replay in figures: policies side by side, the ledger, and every split that was replayed.

use std::fmt::Write;

use super::super::tables::{cell, number, section, table};
use super::facts::{PolicyReport, ReplayReport};
use super::{colour, expansion, sentence};
use crate::draw::escape;
use crate::text::{figures, memory_size, percent};

pub fn tables(report: &ReplayReport) -> String {
    let mut out = section(
        "policies",
        "Side by side",
        "All policies got the same accesses and the same memory. A raw hit counts no time; what is \
         saved is against raw-only on the same accesses, with its 95 % interval by how much the parts \
         of the trace disagree.",
        &policies(report),
    );
    out.push_str(&section(
        "ledger",
        "The ledger",
        "What was spent, in seconds over the whole trace. The adaptive cache keeps this book itself \
         and simulates raw-only beside it; what that tells stands in the last column.",
        &ledger(report),
    ));
    if !report.splits.is_empty() {
        out.push_str(&section(
            "splits",
            "Fixed splits",
            "The dots of the curves. The best of them is what the adaptive cache is measured by; nobody \
             knows it before the trace has run.",
            &splits(report),
        ));
    }
    out
}

/// A policy with its colour.
fn name(of: &PolicyReport) -> String {
    format!(
        "<th scope=\"row\"><span class=\"chip {}\">{}</span></th>",
        colour(of),
        escape(&of.policy)
    )
}

fn saved(of: &PolicyReport) -> String {
    of.saved_share
        .as_ref()
        .map_or(String::new(), sentence::percent_saved)
}

fn policies(report: &ReplayReport) -> String {
    let mut rows = String::new();
    for of in &report.policies {
        let tail = &of.tail_us;
        let cells = [
            figures(of.us_per_access),
            saved(of),
            percent(of.share(of.raw_hits)),
            percent(of.share(of.packed_hits)),
            percent(of.share(of.misses)),
            figures(tail.p50),
            figures(tail.p99),
            figures(tail.p999),
            figures(tail.max),
            memory_size(of.peak_bytes),
            figures(expansion(of)),
        ];
        let cells: String = cells.iter().map(|text| number(text)).collect();
        let _ = writeln!(rows, "<tr>{}{cells}{}</tr>", name(of), cell(&of.in_force));
    }
    table(
        &[
            "policy",
            "us/access",
            "saved",
            "raw",
            "compressed",
            "missed",
            "median us",
            "99 %",
            "99.9 %",
            "most",
            "memory",
            "expansion",
            "in force at the end",
        ],
        &rows,
    )
}

fn ledger(report: &ReplayReport) -> String {
    let mut rows = String::new();
    for of in &report.policies {
        let told = of.told_saved_share.as_ref();
        let cells = [
            figures(of.miss_seconds),
            figures(of.decode_seconds),
            figures(of.encode_seconds),
            figures(of.overhead_seconds),
            figures(of.loop_core_seconds),
            of.compressed.to_string(),
            of.wasted.to_string(),
            of.incompressible.to_string(),
            told.map_or(String::new(), sentence::percent_saved),
        ];
        let cells: String = cells.iter().map(|text| number(text)).collect();
        let _ = writeln!(rows, "<tr>{}{cells}</tr>", name(of));
    }
    table(
        &[
            "policy",
            "misses s",
            "restoring s",
            "compressing s",
            "finding out s",
            "processor s, all",
            "compressed",
            "in vain",
            "did not shrink",
            "saved, as it tells",
        ],
        &rows,
    )
}

fn splits(report: &ReplayReport) -> String {
    let best = report.best_fixed().map(|of| of.policy.as_str());
    let mut rows = String::new();
    for of in &report.splits {
        let cells = [
            figures(of.us_per_access),
            saved(of),
            percent(of.hit_ratio()),
            percent(of.share(of.packed_hits)),
            figures(of.tail_us.p99),
            of.compressed.to_string(),
            of.wasted.to_string(),
        ];
        let cells: String = cells.iter().map(|text| number(text)).collect();
        let class = match best == Some(of.policy.as_str()) {
            true => " class=\"best\"",
            false => "",
        };
        let _ = writeln!(rows, "<tr{class}>{}{cells}</tr>", name(of));
    }
    table(
        &[
            "split",
            "us/access",
            "saved",
            "hits",
            "of them compressed",
            "99 % us",
            "compressed",
            "in vain",
        ],
        &rows,
    )
}
