//! The saving of compression over the reads per write, and the places where each line crosses zero.
//!
//! Source: Kothiyal 2009, section 4.4 and Figure 5.4.

use breakeven::advise::report::{ClassReport, MethodReport};

use super::model::Metric;
use super::scene::{FRAME, Figure, Scene, of_method};
use crate::draw::label::spread;
use crate::draw::mark::{self, Anchor, Position};
use crate::draw::scale::round_step;
use crate::draw::{Axis, Frame, Kind, Plot, Scale, coordinate};
use crate::text::figures;

/// Points of each line: energy-delay is a parabola.
const POINTS: usize = 24;

/// Draws the picture in energy, for all data; the page draws it again for the chosen class.
pub fn figure(scene: &Scene<'_>) -> Figure {
    let metric = Metric::Energy;
    let class = scene.report.classes.get(scene.first_class());
    let methods = class.map_or(Vec::new(), |class| scene.model.methods(class));
    let plot = plot(scene, metric, &methods);
    let marks = class.map_or(String::new(), |class| lines(scene, &plot, metric, class));
    let live = mark::group("data-live=\"savings\"", &(plot.axes() + &marks));
    let empty = plot.bare();
    Figure {
        id: "savings",
        title: "Saved or lost, read by read".to_string(),
        metric: Some(metric),
        caption: "What one GB saves over one write and its reads. Above the zero line compressing \
                  pays; a dot marks the break-even. The shaded reads are those asked about. After \
                  Kothiyal 2009, Figure 5.4."
            .to_string(),
        svg: empty.svg(&live),
    }
}

fn plot(scene: &Scene<'_>, metric: Metric, methods: &[&MethodReport]) -> Plot {
    let frame = Frame {
        left: 58.0,
        right: 76.0,
        ..FRAME
    };
    let x = Scale::new(
        Kind::Linear,
        (0.0, reads_max(scene.model.at.reads.high)),
        frame.across(),
    );
    let ends: Vec<f64> = methods
        .iter()
        .flat_map(|method| {
            [0.0, x.domain().1]
                .map(|reads| scale_of(metric) * scene.model.saving(metric, method, reads))
        })
        .collect();
    let y = Scale::new(Kind::Linear, savings_shown(&ends), frame.up());
    let axis = |title: String, scale: Scale| Axis {
        title,
        scale,
        ticks: scale.ticks(6),
    };
    Plot {
        id: "savings".to_string(),
        title: "Savings over reads per write".to_string(),
        description: "One line for each method; where it crosses zero is its break-even."
            .to_string(),
        frame,
        x: axis("reads per write".to_string(), x),
        y: axis(title(metric).to_string(), y),
    }
}

fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::Time => "seconds saved per GB",
        Metric::Energy => "joules saved per GB",
        Metric::EnergyDelay => "joule-seconds saved on one GB",
        Metric::Money => "EUR saved per TB",
    }
}

/// Euros for a GB would all begin with zeros.
fn scale_of(metric: Metric) -> f64 {
    match metric {
        Metric::Money => 1e3,
        _ => 1.0,
    }
}

/// The largest reads of the picture: several times the report's.
fn reads_max(reads: f64) -> f64 {
    let most = (2.5 * reads).max(10.0);
    let step = round_step(most / 5.0);
    (most / step).ceil() * step
}

/// The savings that are shown: all gains, and as much of the losses as leaves the gains visible.
fn savings_shown(ends: &[f64]) -> (f64, f64) {
    let high = ends.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let low = ends.iter().copied().fold(f64::INFINITY, f64::min);
    if high > 0.0 && low.is_finite() {
        (1.05 * low.clamp(-0.6 * high, 0.0), 1.08 * high)
    } else if high < 0.0 && high.is_finite() {
        (4.0 * high, -0.4 * high)
    } else {
        (-1.0, 1.0)
    }
}

fn lines(scene: &Scene<'_>, plot: &Plot, metric: Metric, class: &ClassReport) -> String {
    let methods = scene.model.methods(class);
    let (x, y) = (&plot.x.scale, &plot.y.scale);
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let reads = scene.model.at.reads;
    let (from, to) = (x.at(reads.low), x.at(reads.high).min(right));
    let band = format!(
        "<rect class=\"band\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
        coordinate(from - 0.75),
        coordinate(top),
        coordinate(to - from + 1.5),
        coordinate(bottom - top)
    );
    let mut out = band + &mark::rule((left, y.at(0.0)), (right, y.at(0.0)), "zero");
    let value = |method: &MethodReport, reads: f64| {
        scale_of(metric) * scene.model.saving(metric, method, reads)
    };
    let mut clipped = String::new();
    let mut dots = String::new();
    for method in &methods {
        let at = |index: usize| {
            let reads = x.domain().1 * index as f64 / POINTS as f64;
            (x.at(reads), y.at(value(method, reads)))
        };
        let points: Vec<Position> = (0..=POINTS).map(at).collect();
        let colour = format!(
            "class=\"{}\" {}",
            scene.colour(&method.method),
            of_method(method)
        );
        clipped.push_str(&mark::group(&colour, &mark::line(&points, "")));
        for reads in scene.model.crossings(metric, method) {
            if x.shows(reads) {
                let title = format!("{}: break-even at {} reads", method.method, figures(reads));
                let dot = mark::dot((x.at(reads), y.at(0.0)), 4.5, "", &title);
                dots.push_str(&mark::group(&colour, &dot));
            }
        }
    }
    out.push_str(&mark::group(&plot.clip(), &clipped));
    out + &dots + &names(scene, plot, &methods, &|method| value(method, x.domain().1))
}

/// Names at the lines' right ends; a line of text names the lines that leave the picture below.
fn names(
    scene: &Scene<'_>,
    plot: &Plot,
    methods: &[&MethodReport],
    end: &dyn Fn(&MethodReport) -> f64,
) -> String {
    let y = &plot.y.scale;
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let (inside, below): (Vec<&MethodReport>, Vec<&MethodReport>) = methods
        .iter()
        .copied()
        .partition(|method| end(method) >= y.domain().0);
    let wanted: Vec<f64> = inside
        .iter()
        .map(|method| y.at(end(method)) + 4.0)
        .collect();
    let placed = spread(&wanted, 14.0, top + 4.0, bottom + 4.0);
    let mut out = String::new();
    for (method, place) in inside.iter().zip(placed) {
        let text = mark::text(
            (right + 6.0, place),
            Anchor::Start,
            "series",
            &method.method,
        );
        let group = format!(
            "class=\"{}\" {}",
            scene.colour(&method.method),
            of_method(method)
        );
        out.push_str(&mark::group(&group, &text));
    }
    if !below.is_empty() {
        let names: Vec<&str> = below.iter().map(|method| method.method.as_str()).collect();
        let text = format!("far below: {}", names.join(", "));
        out.push_str(&mark::text(
            (left + 8.0, bottom - 8.0),
            Anchor::Start,
            "soft halo",
            &text,
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn what_is_shown_holds_zero_and_the_gains() {
        let check = |ends: &[f64], expected: (f64, f64)| {
            let found = savings_shown(ends);
            let close = |a: f64, b: f64| (a - b).abs() < 1e-9;
            assert!(
                close(found.0, expected.0) && close(found.1, expected.1),
                "{found:?}"
            );
        };
        check(&[-1000.0, 10.0], (-6.3, 10.8));
        check(&[5.0, 10.0], (0.0, 10.8));
        check(&[-5.0, -10.0], (-20.0, 2.0));
        check(&[], (-1.0, 1.0));
        check(&[0.0], (-1.0, 1.0));
    }

    #[test]
    fn the_axis_of_reads_follows_what_is_asked() {
        let check = |reads: f64, expected: f64| assert_eq!(reads_max(reads), expected);
        check(4.0, 10.0);
        check(10.0, 25.0);
        check(100.0, 250.0);
    }

    /// The dots stand where the model says that the saving is nothing.
    #[test]
    fn lines_cross_zero_at_their_dots() {
        let report = testing::report();
        let scene = Scene::new(&report);
        let all = report.classes.last().expect("all");
        for metric in Metric::ALL {
            let methods = scene.model.methods(all);
            let plot = plot(&scene, metric, &methods);
            let svg = lines(&scene, &plot, metric, all);
            let crossings: usize = methods
                .iter()
                .flat_map(|method| scene.model.crossings(metric, method))
                .filter(|at| plot.x.scale.shows(*at))
                .count();
            assert_eq!(svg.matches("<circle").count(), crossings, "{metric:?}");
            assert_eq!(svg.matches("class=\"line ").count(), methods.len());
            assert!(!svg.contains("NaN"));
        }
    }
}
