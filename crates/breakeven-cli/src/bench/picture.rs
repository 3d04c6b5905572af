//! How long requests took, as a picture: of each step the share of requests that took longer than a time.
//!
//! Both axes are logarithmic, since the few slow requests matter most. A step holds where its line passes left of the
//! corner of the limit and one in a hundred. The picture is as wide as a phone, so that its type can be read there.

use breakeven_cli::draw::label::{self, Wish};
use breakeven_cli::draw::mark::{self, Anchor, Position};
use breakeven_cli::draw::{Axis, Frame, Kind, Plot, Scale, Tick, standalone};
use hdrhistogram::Histogram;

use super::report::SHARE_OVER_MAX;

/// One step.
pub struct Curve {
    /// The keys a second that were offered.
    pub name: String,
    /// Whether few enough took longer than the limit.
    pub holds: bool,
    /// Of requests, in nanoseconds.
    pub latencies: Histogram<u64>,
}

const FRAME: Frame = Frame {
    width: 420.0,
    height: 400.0,
    left: 62.0,
    right: 18.0,
    top: 72.0,
    bottom: 48.0,
};
/// Shares below this are not shown.
const SHARE_MIN: f64 = 1e-5;
/// Where a line gets its name, if it comes so low.
const NAMED_AT: f64 = 2e-4;
/// Points of a line for each factor of ten of its shares.
const POINTS_A_DECADE: usize = 24;

const HOLDS: &str = "lz4-3";
const FAILS: &str = "other-2";

/// Draws all steps and the limit that they were held to.
pub fn picture(title: &str, limit_seconds: f64, curves: &[Curve]) -> String {
    let shares = shares();
    let points: Vec<Vec<(f64, f64)>> = curves.iter().map(|it| it.points(&shares)).collect();
    let all = || points.iter().flatten().map(|(us, _)| *us);
    let limit_us = limit_seconds * 1e6;
    let low = all().fold(f64::INFINITY, f64::min);
    let low = if low.is_finite() { low } else { 1.0 };
    let high = all().fold(low, f64::max);
    // The limit is shown where it is not far off.
    let has_limit = (low / 100.0..=high * 100.0).contains(&limit_us);
    let (low, high) = match has_limit {
        true => (low.min(limit_us), high.max(limit_us)),
        false => (low, high),
    };
    let x = Scale::new(Kind::Log, (low * 0.9, high * 1.1), FRAME.across());
    let y = Scale::new(Kind::Log, (SHARE_MIN, 1.0), FRAME.up());
    let plot = Plot {
        id: "latencies".to_string(),
        title: format!("How long requests took, {title}"),
        description: "One line for each rate that was offered: the share of requests that took longer than a time."
            .to_string(),
        frame: FRAME,
        x: Axis {
            title: "time of a request".to_string(),
            scale: x,
            ticks: x.ticks(4).into_iter().map(|it| Tick { label: time(it.value), ..it }).collect(),
        },
        y: Axis {
            title: "requests that took longer".to_string(),
            scale: y,
            ticks: y.ticks(6).into_iter().map(|it| Tick { label: share(it.value), ..it }).collect(),
        },
    };
    let at = |(us, share): &(f64, f64)| -> Position { (x.at(*us), y.at(*share)) };
    let mut lines = String::new();
    for (curve, points) in curves.iter().zip(&points) {
        let points: Vec<Position> = points.iter().map(at).collect();
        lines.push_str(&mark::line(&points, curve.colour()));
    }
    let mut marks = corner(&plot, has_limit.then_some(limit_us));
    marks.push_str(&mark::group(&plot.clip(), &lines));
    marks.push_str(&names(&plot, curves, &points));
    let legend = [
        (HOLDS, "rates that hold"),
        (FAILS, "rates that do not hold"),
    ];
    let legend = legend
        .iter()
        .filter(|(colour, _)| curves.iter().any(|it| it.colour() == *colour));
    let legend: Vec<(&str, &str)> = legend.copied().collect();
    marks.push_str(&mark::text(
        (6.0, 18.0),
        Anchor::Start,
        "label",
        &shortened(title),
    ));
    marks.push_str(&mark::legend(&legend, (6.0, 38.0), FRAME.width - 12.0).0);
    standalone(&plot.svg(&marks))
}

/// The shares at which lines have points, from 1 down.
fn shares() -> Vec<f64> {
    let decades = -SHARE_MIN.log10();
    let count = (decades * POINTS_A_DECADE as f64).round() as usize;
    let share = |number: usize| 10f64.powf(-decades * number as f64 / count as f64);
    (0..=count).map(share).collect()
}

impl Curve {
    fn colour(&self) -> &'static str {
        if self.holds { HOLDS } else { FAILS }
    }

    /// Returns times in microseconds with the share of requests that took longer, while there are any.
    fn points(&self, shares: &[f64]) -> Vec<(f64, f64)> {
        let count = self.latencies.len();
        let shown = shares.iter().filter(|share| **share * count as f64 >= 1.0);
        let time = |share: f64| self.latencies.value_at_quantile(1.0 - share) as f64 / 1e3;
        shown
            .map(|share| (time(*share).max(1e-3), *share))
            .collect()
    }
}

/// Draws the limit and the share of requests that may take longer.
fn corner(plot: &Plot, limit_us: Option<f64>) -> String {
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let y = plot.y.scale.at(SHARE_OVER_MAX);
    let mut out = mark::rule((left, y), (right, y), "guide");
    if let Some(limit_us) = limit_us {
        let x = plot.x.scale.at(limit_us);
        out.push_str(&mark::rule((x, bottom), (x, top), "guide"));
    }
    out
}

/// Names the lines, apart from each other and from the points they belong to.
fn names(plot: &Plot, curves: &[Curve], points: &[Vec<(f64, f64)>]) -> String {
    let named = |points: &Vec<(f64, f64)>| {
        points
            .iter()
            .rfind(|(_, share)| *share >= NAMED_AT)
            .copied()
    };
    let wishes: Vec<Wish> = curves
        .iter()
        .zip(points)
        .filter_map(|(curve, points)| {
            let (us, share) = named(points)?;
            Some(Wish {
                at: (plot.x.scale.at(us), plot.y.scale.at(share)),
                text: curve.name.clone(),
            })
        })
        .collect();
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let places = label::place(&wishes, (left, top), (right, bottom));
    let texts = wishes.iter().zip(places);
    texts
        .map(|(wish, at)| mark::text(at, Anchor::Start, "label halo", &wish.text))
        .collect()
}

/// Writes a time as people do.
fn time(us: f64) -> String {
    use breakeven_cli::draw::scale::number;
    match us {
        us if us >= 1e6 => format!("{} s", number(us / 1e6)),
        us if us >= 1e3 => format!("{} ms", number(us / 1e3)),
        us => format!("{} us", number(us)),
    }
}

fn share(share: f64) -> String {
    format!("{} %", breakeven_cli::draw::scale::number(share * 100.0))
}

/// Cuts a title to the picture's width.
fn shortened(title: &str) -> String {
    let room = ((FRAME.width - 12.0) / label::width("m")) as usize;
    match title.chars().count() > room {
        true => title.chars().take(room - 3).chain("...".chars()).collect(),
        false => title.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(name: &str, holds: bool, latencies_us: impl Iterator<Item = u64>) -> Curve {
        let mut latencies = Histogram::new_with_bounds(1, 60_000_000_000, 3).unwrap();
        latencies_us.for_each(|us| latencies.saturating_record(us * 1000));
        Curve {
            name: name.to_string(),
            holds,
            latencies,
        }
    }

    #[test]
    fn a_line_has_the_shares_that_took_longer() {
        let points = curve("10", true, 1..=1000).points(&shares());
        let longer = |share: f64| points.iter().find(|it| it.1 <= share * 1.0001).unwrap().0;
        for (share, expected) in [(0.1, 900.0), (0.01, 990.0), (0.001, 999.0)] {
            let found = longer(share);
            assert!((found / expected - 1.0).abs() < 0.005, "{share}: {found}");
        }
        // Less than one request is none.
        assert!(points.iter().all(|it| it.1 >= 0.000_999), "{points:?}");
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1));
    }

    #[test]
    fn a_picture_names_every_rate_and_is_whole_without_any() {
        let steps = [
            curve("flat out", false, (1..=20_000).map(|it| it % 3000 + 100)),
            curve("100,000", true, (1..=20_000).map(|it| it % 300 + 50)),
        ];
        let svg = picture("server <1>: gets", 1e-3, &steps);
        for part in [
            "flat out",
            "100,000",
            "server &lt;1&gt;",
            "1 ms",
            "0.001 %",
            "rates that do not hold",
        ] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert_eq!(svg.matches("class=\"line ").count(), 2);
        for (limit, curves) in [
            (0.0, &steps[..0]),
            (30.0, &steps[1..]),
            (f64::MAX, &steps[..]),
        ] {
            let svg = picture("a", limit, curves);
            assert!(
                svg.ends_with("</svg>\n") && !svg.contains("NaN") && !svg.contains("inf"),
                "{svg}"
            );
        }
    }
}
