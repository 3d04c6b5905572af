//! A replay as text: policies side by side.

use std::fmt::Write;

use breakeven_cli::report::replay::{PolicyReport, ReplayReport, Unit};
use breakeven_cli::text::{binary_size, figures, memory_size, percent};

/// Renders the answer, its basis, and a row for each policy.
pub fn render(report: &ReplayReport) -> String {
    let mut out = format!("{}\n\n{}\n\n", report.headline, heading(report));
    let unit = Unit::of(report);
    if let Some(prices) = &report.prices {
        let [core, waiting] = [prices.per_core_second, prices.per_waiting_second].map(|price| {
            let scale = if report.prefer == "money" {
                3600.0
            } else {
                1.0
            };
            figures(scale * price)
        });
        let per = match report.prefer.as_str() {
            "money" => "EUR an hour",
            _ => "W",
        };
        let _ = writeln!(
            out,
            "a core at work costs {core} {per}, waiting for a miss {waiting} [{}]\n",
            prices.sources
        );
    }
    let _ = writeln!(
        out,
        "{:<20} {:>9} {:>8} {:>8} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9}  in force at the end",
        "policy",
        unit.column,
        "over 1st",
        "p99 us",
        "p99.9",
        "raw",
        "packed",
        "miss",
        "in vain",
        "core s",
        "memory"
    );
    let first = report.policies.first().map_or(1.0, PolicyReport::cost);
    for of in &report.policies {
        let _ = writeln!(out, "{}", row(of, first, &unit));
    }
    for of in &report.policies {
        if let Some(saved) = of.told_saved_share {
            let _ = writeln!(
                out,
                "\n{} saved {:.1} % ({:.1} to {:.1}) by its own simulation of raw-only",
                of.policy,
                100.0 * saved.mean,
                100.0 * saved.low,
                100.0 * saved.high
            );
        }
    }
    out
}

fn heading(report: &ReplayReport) -> String {
    let miss = match report.is_read {
        true => format!(
            "misses are read from the device, {} us each",
            figures(report.miss_us)
        ),
        false => format!("a miss takes {} us", figures(report.miss_us)),
    };
    format!(
        "{} accesses ({}) to {} keys over {} pages of {}; memory {}; {miss}",
        report.accesses,
        report.accesses_of,
        report.keys,
        report.pages,
        binary_size(report.page_bytes),
        memory_size(report.memory_bytes),
    )
}

fn row(of: &PolicyReport, first: f64, unit: &Unit) -> String {
    format!(
        "{:<20} {:>9.3} {:>8.3} {:>8.1} {:>8.1} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9}  {}",
        of.policy,
        unit.amount(of),
        if first > 0.0 { of.cost() / first } else { 1.0 },
        of.tail_us.p99,
        of.tail_us.p999,
        percent(of.share(of.raw_hits)),
        percent(of.share(of.packed_hits)),
        percent(of.share(of.misses)),
        percent(of.wasted as f64 / of.compressed.max(1) as f64),
        figures(of.loop_core_seconds),
        memory_size(of.peak_bytes),
        of.in_force,
    )
}
