//! The course of the trace: time per access from part to part, and the split in force.

use super::super::scene::{FRAME, Figure, end_names};
use super::colour;
use super::facts::{ADAPTIVE, PartReport, PolicyReport, RAW_ONLY, ReplayReport};
use crate::draw::mark::{self, Position};
use crate::draw::{Axis, Frame, Kind, Plot, Scale};

const SIZES: Frame = Frame {
    right: 108.0,
    ..FRAME
};

/// The share of the parts that may be too dear to be shown: while a cache fills, it misses everything.
const DEAR_SHARE: f64 = 0.05;

/// The colour of the room of compressed pages.
const HELD: &str = "xz-2";

/// Draws the time per access, part by part: of raw-only, of the best fixed split, of the adaptive
/// cache.
pub fn times(report: &ReplayReport) -> Figure {
    let shown = shown(report);
    let scale = Scale::new(Kind::Linear, (0.0, 1.1 * shown_max(&shown)), SIZES.up());
    let plot = plot(
        report,
        ("course", "microseconds per access while the trace runs"),
        ("microseconds per access", scale),
    );
    let mean = |part: &PartReport| part.us / part.accesses.max(1) as f64;
    let (mut lines, mut ends) = (String::new(), Vec::new());
    for of in &shown {
        let points = points(&plot, of, &mean);
        let line = match of.policy.as_str() {
            ADAPTIVE => mark::line(&points, "strong"),
            _ => mark::line(&points, ""),
        };
        lines.push_str(&mark::group(&class(of), &line));
        let name = of.policy.trim_start_matches("split:").to_string();
        ends.push((name, colour(of), points.last().map_or(0.0, |(_, y)| *y)));
    }
    Figure {
        id: "course",
        title: "While the trace runs".to_string(),
        metric: None,
        caption:
            "The same accesses under each policy, from an empty cache on: raw-only, the best of \
                  the fixed splits, and the adaptive cache, which has to find its split first."
                .to_string(),
        svg: plot.svg(&(mark::group(&plot.clip(), &lines) + &end_names(&plot, &ends))),
    }
}

/// Draws the split of the adaptive cache over the trace; none without one.
pub fn split(report: &ReplayReport) -> Option<Figure> {
    let adaptive = report.find(ADAPTIVE)?;
    let scale = Scale::new(Kind::Linear, (0.0, 100.0), SIZES.up());
    let plot = plot(
        report,
        (
            "split",
            "the share of memory for compressed pages while the trace runs",
        ),
        ("% of memory", scale),
    );
    let wanted = points(&plot, adaptive, &|part| 100.0 * part.compressed_share);
    let held = points(&plot, adaptive, &|part| 100.0 * part.packed_share);
    let floor: Vec<Position> = held.iter().map(|(x, _)| (*x, scale.at(0.0))).collect();
    let area = mark::group(
        &format!("class=\"{HELD}\""),
        &(mark::area(&held, &floor, "") + &mark::line(&held, "thin")),
    );
    let line = mark::group("class=\"adaptive\"", &mark::line(&wanted, "strong"));
    let height = |line: &[Position]| line.last().map_or(0.0, |(_, y)| *y);
    let ends = [
        ("in force".to_string(), "adaptive", height(&wanted)),
        ("held so far".to_string(), HELD, height(&held)),
    ];
    Some(Figure {
        id: "split",
        title: "The split it found".to_string(),
        metric: None,
        caption: format!(
            "What the adaptive cache allowed compressed pages, and what they filled of it. It changed \
             its mind {}.",
            match adaptive.moves {
                0 => "never".to_string(),
                1 => "once".to_string(),
                moves => format!("{moves} times"),
            }
        ),
        svg: plot.svg(&(mark::group(&plot.clip(), &(area + &line)) + &end_names(&plot, &ends))),
    })
}

/// The policies of the picture, the adaptive one on top.
fn shown(report: &ReplayReport) -> Vec<&PolicyReport> {
    let best = report.best_fixed().filter(|of| of.policy != RAW_ONLY);
    let found = [report.find(RAW_ONLY), best, report.find(ADAPTIVE)];
    let found = found.into_iter().flatten();
    found.filter(|of| !of.parts.is_empty()).collect()
}

/// The time up to which parts are shown: all but the dearest few.
fn shown_max(shown: &[&PolicyReport]) -> f64 {
    let mut times: Vec<f64> = shown
        .iter()
        .flat_map(|of| &of.parts)
        .map(|part| part.us / part.accesses.max(1) as f64)
        .collect();
    times.sort_by(f64::total_cmp);
    let rank = ((1.0 - DEAR_SHARE) * times.len() as f64) as usize;
    times
        .get(rank.min(times.len().saturating_sub(1)))
        .map_or(1.0, |us| us.max(1e-3))
}

fn plot(report: &ReplayReport, (id, of): (&str, &str), (title, y): (&str, Scale)) -> Plot {
    let x = Scale::new(
        Kind::Linear,
        (0.0, report.accesses.max(1) as f64),
        SIZES.across(),
    );
    Plot {
        id: id.to_string(),
        title: format!("Over the accesses: {of}"),
        description: "One line for each policy.".to_string(),
        frame: SIZES,
        x: Axis {
            title: "accesses".to_string(),
            scale: x,
            ticks: x.ticks(4),
        },
        y: Axis {
            title: title.to_string(),
            scale: y,
            ticks: y.ticks(6),
        },
    }
}

/// One point in the middle of each part.
fn points(plot: &Plot, of: &PolicyReport, value: &dyn Fn(&PartReport) -> f64) -> Vec<Position> {
    let mut begun = 0.0;
    let at = |part: &PartReport| {
        let middle = begun + 0.5 * part.accesses as f64;
        begun += part.accesses as f64;
        (plot.x.scale.at(middle), plot.y.scale.at(value(part)))
    };
    of.parts.iter().map(at).collect()
}

fn class(of: &PolicyReport) -> String {
    format!("class=\"{}\"", colour(of))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn raw_only_the_best_split_and_the_adaptive_cache_are_shown() {
        let report = testing::report();
        let names: Vec<&str> = shown(&report).iter().map(|of| of.policy.as_str()).collect();
        assert_eq!(names, [RAW_ONLY, "split:80:zstd", ADAPTIVE]);
        let svg = times(&report).svg;
        assert_eq!(svg.matches("class=\"line ").count(), 3);
        let split = split(&report).expect("an adaptive cache").svg;
        assert_eq!(split.matches("class=\"area").count(), 1);
        let mut alone = report;
        alone.policies.pop();
        assert!(super::split(&alone).is_none());
    }

    #[test]
    fn a_cold_start_does_not_flatten_the_rest() {
        let mut report = testing::report();
        for of in &mut report.policies {
            of.parts[0].us = 1e9;
        }
        assert!(shown_max(&shown(&report)) < 20.0);
    }
}
