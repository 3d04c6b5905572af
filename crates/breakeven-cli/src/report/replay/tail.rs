//! The share of accesses that take longer than a time.

use super::super::scene::{FRAME, Figure};
use super::colour;
use super::facts::{ADAPTIVE, PolicyReport, RAW_ONLY, ReplayReport};
use crate::draw::mark::{self, Position};
use crate::draw::{Axis, Frame, Kind, Plot, Scale, Tick};

const SIZES: Frame = Frame {
    left: 66.0,
    top: 54.0,
    ..FRAME
};

/// The accesses that must lie beyond the end of the curve.
const BEYOND: f64 = 4.0;

/// Draws the picture.
pub fn figure(report: &ReplayReport) -> Figure {
    let shown = shown(report);
    let times = || shown.iter().flat_map(|of| &of.slower).map(|at| at.us);
    let low = times().filter(|us| *us > 0.0).fold(f64::INFINITY, f64::min);
    let high = times().fold(1.0, f64::max);
    let low = if low.is_finite() { low } else { 0.1 };
    let x = Scale::new(Kind::Log, (low / 1.3, 1.3 * high), SIZES.across());
    let least = (BEYOND / report.accesses.max(1) as f64).clamp(1e-5, 0.1);
    let y = Scale::new(Kind::Log, (least, 1.0), SIZES.up());
    let ticks = [1.0, 0.1, 0.01, 0.001, 1e-4, 1e-5];
    let tick = |share: f64| Tick {
        value: share,
        label: format!("{} %", 100.0 * share),
    };
    let plot = Plot {
        id: "tail".to_string(),
        title: "Share of accesses that take longer".to_string(),
        description: "One line for each policy, falling from left to right.".to_string(),
        frame: SIZES,
        x: Axis {
            title: "microseconds".to_string(),
            scale: x,
            ticks: x.ticks(6),
        },
        y: Axis {
            title: "accesses that take longer".to_string(),
            scale: y,
            ticks: ticks
                .into_iter()
                .filter(|share| y.shows(*share))
                .map(tick)
                .collect(),
        },
    };
    Figure {
        id: "tail",
        title: "How long single accesses take".to_string(),
        metric: None,
        caption:
            "A raw hit counts as nothing, so lines begin at the share of accesses that take any \
                  time. An access that misses may also wait for the victims it pushes out to be \
                  compressed."
                .to_string(),
        svg: plot.svg(&lines(&plot, &shown)),
    }
}

/// The requested policies, the adaptive one last, on top.
fn shown(report: &ReplayReport) -> Vec<&PolicyReport> {
    let mut shown: Vec<&PolicyReport> = report.policies.iter().collect();
    if let Some(best) = report.best_fixed()
        && best.policy != RAW_ONLY
        && !shown.iter().any(|of| of.policy == best.policy)
    {
        shown.push(best);
    }
    shown.sort_by_key(|of| of.policy == ADAPTIVE);
    shown
}

fn lines(plot: &Plot, shown: &[&PolicyReport]) -> String {
    let mut lines = String::new();
    for of in shown {
        let points: Vec<Position> = of
            .slower
            .iter()
            .filter(|at| at.us > 0.0)
            .map(|at| (plot.x.scale.at(at.us), plot.y.scale.at(at.share)))
            .collect();
        let strength = if of.policy == ADAPTIVE { "strong" } else { "" };
        let class = format!("class=\"{}\"", colour(of));
        lines.push_str(&mark::group(&class, &mark::line(&points, strength)));
    }
    let names: Vec<(&str, &str)> = shown
        .iter()
        .map(|of| (colour(of), of.policy.trim_start_matches("split:")))
        .collect();
    let (legend, _) = mark::legend(&names, (plot.frame.left, 20.0), 460.0);
    mark::group(&plot.clip(), &lines) + &legend
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn lines_fall() {
        let report = testing::report();
        let figure = figure(&report);
        assert_eq!(figure.svg.matches("class=\"line ").count(), 3);
        assert!(!figure.svg.contains("NaN"));
        let mut nothing = report;
        for of in &mut nothing.policies {
            of.slower.clear();
        }
        nothing.splits.clear();
        assert!(!super::figure(&nothing).svg.contains("NaN"));
    }
}
