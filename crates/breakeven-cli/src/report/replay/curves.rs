//! Time per access and hit ratio over the share of memory that holds compressed pages. Lines go through fixed splits,
//! and the adaptive cache stands at its mean.
//!
//! Source: Harper 2018, Figures 10 and 12, which the thesis computed; here each dot was replayed.

use super::super::scene::{FRAME, Figure, end_names};
use super::facts::{ADAPTIVE, PolicyReport, RAW_ONLY, ReplayReport};
use super::{colour, line_name};
use crate::draw::mark::{self, Anchor, Position};
use crate::draw::{Axis, Frame, Kind, Plot, Scale};
use crate::text::figures;

const SIZES: Frame = Frame {
    right: 112.0,
    ..FRAME
};

/// A line through fixed splits of one method.
struct Curve<'r> {
    name: String,
    colour: &'static str,
    /// By share.
    points: Vec<&'r PolicyReport>,
}

fn curves(report: &ReplayReport) -> Vec<Curve<'_>> {
    let raw = report.find(RAW_ONLY);
    let mut found: Vec<Curve> = Vec::new();
    for split in report.all().filter(|of| of.is_fixed()) {
        let Some(name) = line_name(split) else {
            continue;
        };
        match found.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(split),
            None => found.push(Curve {
                name,
                colour: colour(split),
                points: raw.into_iter().chain([split]).collect(),
            }),
        }
    }
    for curve in &mut found {
        let order = |one: &&PolicyReport, other: &&PolicyReport| {
            one.compressed_share.total_cmp(&other.compressed_share)
        };
        curve.points.sort_by(order);
    }
    found
}

/// Draws the times.
pub fn times(report: &ReplayReport) -> Figure {
    let us = |of: &PolicyReport| of.us_per_access;
    let most = report.all().map(us).fold(0.0, f64::max);
    let raw = report.find(RAW_ONLY).map_or(most, us);
    let scale = Scale::new(Kind::Linear, (0.0, 1.08 * most.min(2.0 * raw)), SIZES.up());
    let plot = plot("times", "microseconds per access", scale);
    let best = report.best_fixed().map_or(String::new(), |best| {
        let words = format!(
            " Of the fixed splits {} takes least, {} us.",
            crate::draw::escape(&best.policy),
            figures(best.us_per_access)
        );
        words
    });
    Figure {
        id: "times",
        title: "Time per access, by the share that is compressed".to_string(),
        metric: None,
        caption: format!(
            "Each dot is a replay of all accesses from an empty cache, dashed lines compress only what \
             was asked for again once the share is full. The ring is the adaptive cache, at the share it had on the mean.\
             {best} After Harper 2018, Figure 12."
        ),
        svg: plot.svg(&lines(report, &plot, &us)),
    }
}

/// Draws the hit ratios.
pub fn hit_ratios(report: &ReplayReport) -> Figure {
    let percent = |of: &PolicyReport| 100.0 * of.hit_ratio();
    let (low, high) = report
        .all()
        .map(percent)
        .fold((100.0, 0.0), |(low, high): (f64, f64), hits| {
            (low.min(hits), high.max(hits))
        });
    // Lines may start above zero, since the picture is about the gain.
    let room = (0.15 * (high - low)).max(1.0);
    let domain = ((low - room).max(0.0), (high + room).min(100.0));
    let scale = Scale::new(Kind::Linear, domain, SIZES.up());
    let plot = plot("hits", "% of accesses that hit", scale);
    Figure {
        id: "hits",
        title: "Hit ratio, by the share that is compressed".to_string(),
        metric: None,
        caption:
            "Compressed pages are smaller, so more of them stay. More hits are worth their while \
                  only as far as restoring them takes less than the misses that went away. After \
                  Harper 2018, Figure 10."
                .to_string(),
        svg: plot.svg(&lines(report, &plot, &percent)),
    }
}

fn plot(id: &str, title: &str, y: Scale) -> Plot {
    let x = Scale::new(Kind::Linear, (0.0, 100.0), SIZES.across());
    Plot {
        id: id.to_string(),
        title: format!("{title} over the compressed share"),
        description:
            "One line for each method, a level one for the cache that compresses nothing, \
                      and a ring for the adaptive cache."
                .to_string(),
        frame: SIZES,
        x: Axis {
            title: "% of memory that holds compressed pages".to_string(),
            scale: x,
            ticks: x.ticks(5),
        },
        y: Axis {
            title: title.to_string(),
            scale: y,
            ticks: y.ticks(6),
        },
    }
}

fn lines(report: &ReplayReport, plot: &Plot, value: &dyn Fn(&PolicyReport) -> f64) -> String {
    let (x, y) = (&plot.x.scale, &plot.y.scale);
    let at = |of: &PolicyReport| (x.at(100.0 * of.compressed_share), y.at(value(of)));
    let (left, right) = plot.frame.across();
    let (mut marks, mut ends) = (String::new(), Vec::new());
    if let Some(raw) = report.find(RAW_ONLY) {
        let level = y.at(value(raw));
        let line = mark::line(&[(left, level), (right, level)], "thin");
        marks.push_str(&mark::group("class=\"store-1\"", &line));
        ends.push((RAW_ONLY.to_string(), "store-1", level));
    }
    for curve in curves(report) {
        let points: Vec<Position> = curve.points.iter().map(|of| at(of)).collect();
        let is_dashed = curve.points.iter().any(|of| of.again);
        let mut inside = mark::line(&points, if is_dashed { "dashed" } else { "" });
        for (of, point) in curve.points.iter().zip(&points) {
            let title = format!("{}: {}", of.policy, figures(value(of)));
            inside.push_str(&mark::dot(*point, 3.2, "", &title));
        }
        marks.push_str(&mark::group(
            &format!("class=\"{}\"", curve.colour),
            &inside,
        ));
        let end = points.last().map_or(left, |(_, y)| *y);
        ends.push((curve.name, curve.colour, end));
    }
    let adaptive = report.find(ADAPTIVE);
    let ring = adaptive.map_or(String::new(), |of| ring(at(of), &title(of, value(of))));
    mark::group(&plot.clip(), &marks) + &end_names(plot, &ends) + &ring
}

fn title(of: &PolicyReport, value: f64) -> String {
    format!("{}: {}, {}", of.policy, figures(value), of.in_force)
}

/// The ring of the adaptive cache with its name above, or below where there is no room.
fn ring((x, y): Position, title: &str) -> String {
    let mark = mark::dot((x, y), 6.5, "hollow", title) + &mark::dot((x, y), 2.6, "", title);
    let above = if y > FRAME.top + 26.0 { -12.0 } else { 21.0 };
    let text = mark::text((x, y + above), Anchor::Middle, "label halo", ADAPTIVE);
    mark::group("class=\"adaptive\"", &(mark + &text))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn every_split_is_a_dot_and_the_adaptive_cache_a_ring() {
        let report = testing::report();
        for figure in [times(&report), hit_ratios(&report)] {
            // Each of the four lines begins with raw-only.
            let dots = 4 * 5 + 2;
            assert_eq!(figure.svg.matches("<circle").count(), dots, "{}", figure.id);
            assert_eq!(
                figure.svg.matches("line dashed").count(),
                2,
                "{}",
                figure.id
            );
            assert_eq!(figure.svg.matches("class=\"dot hollow\"").count(), 1);
            assert!(!figure.svg.contains("NaN"));
        }
    }

    #[test]
    fn lines_begin_with_raw_only_and_go_by_share() {
        let mut report = testing::report();
        report.splits.reverse();
        let found = curves(&report);
        let names: Vec<&str> = found.iter().map(|curve| curve.name.as_str()).collect();
        assert_eq!(names, ["zstd:1 again", "zstd:1", "lz4:1 again", "lz4:1"]);
        for curve in found {
            let shares: Vec<f64> = curve.points.iter().map(|of| of.compressed_share).collect();
            assert_eq!(shares, [0.0, 0.25, 0.5, 0.8, 0.95]);
        }
    }
}
