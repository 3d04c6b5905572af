//! Ratio against speed, each way: the methods that no other beats in both.

use breakeven::advise::report::{ClassReport, MethodReport};

use super::scene::{FRAME, Figure, Scene, of_method, ratio_scale};
use crate::draw::label::{self, Wish};
use crate::draw::mark::{self, Anchor, Position};
use crate::draw::{Axis, Kind, Plot, Scale};
use crate::text::figures;

/// Compressing or decompressing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Compress,
    Decompress,
}

impl Way {
    fn rate(self, method: &MethodReport) -> f64 {
        match self {
            Way::Compress => method.compress_mb_s,
            Way::Decompress => method.decompress_mb_s,
        }
    }
}

/// Draws the picture of one way.
pub fn figure(scene: &Scene<'_>, way: Way) -> Figure {
    let (id, title, does) = match way {
        Way::Compress => ("compress", "Ratio against speed: compressing", "compresses"),
        Way::Decompress => (
            "decompress",
            "Ratio against speed: reading back",
            "decompresses",
        ),
    };
    let x = speeds(scene, way);
    // Each class has its own ratios, so it has its own axis.
    let marks = scene.for_each_class(|class| {
        let plot = plot(scene, id, x, class);
        plot.axes() + &marks(scene, &plot, class, way)
    });
    let empty = Plot {
        title: title.to_string(),
        description: format!("Each method as a point: how fast one core {does}, and the ratio."),
        ..plot_without_axes(id, x)
    };
    let caption = format!(
        "One core {does} at this speed. The line joins the methods that no other beats in both; \
         hollow ones are beaten. Bars are 95 % intervals of the ratio."
    );
    Figure {
        id,
        title: title.to_string(),
        metric: None,
        caption,
        svg: empty.svg(&marks),
    }
}

/// One axis of speeds for all classes, so that they can be compared.
fn speeds(scene: &Scene<'_>, way: Way) -> Scale {
    let classes = scene.report.classes.iter();
    let rates: Vec<f64> = classes
        .flat_map(|class| scene.model.methods(class))
        .map(|method| way.rate(method))
        .filter(|rate| rate.is_finite() && *rate > 0.0)
        .collect();
    let low = rates.iter().copied().fold(1e3, f64::min);
    let high = rates.iter().copied().fold(1e3, f64::max);
    Scale::new(Kind::Log, (0.6 * low, 1.7 * high), FRAME.across())
}

fn plot_without_axes(id: &str, x: Scale) -> Plot {
    let axis = |title: &str, scale: Scale| Axis {
        title: title.to_string(),
        scale,
        ticks: Vec::new(),
    };
    let y = Scale::new(Kind::Linear, (0.0, 1.0), FRAME.up());
    Plot {
        id: id.to_string(),
        title: String::new(),
        description: String::new(),
        frame: FRAME,
        x: axis("", x),
        y: axis("", y),
    }
}

fn plot(scene: &Scene<'_>, id: &str, x: Scale, class: &ClassReport) -> Plot {
    let methods = scene.model.methods(class);
    let ratios = methods.iter().map(|method| method.ratio.mean);
    let y = ratio_scale(ratios, FRAME.up());
    let axis = |title: &str, scale: Scale| Axis {
        title: title.to_string(),
        scale,
        ticks: scale.ticks(6),
    };
    Plot {
        x: axis("MB/s of one core", x),
        y: axis("ratio, raw over stored", y),
        ..plot_without_axes(id, x)
    }
}

fn marks(scene: &Scene<'_>, plot: &Plot, class: &ClassReport, way: Way) -> String {
    let methods = scene.model.methods(class);
    let at = |method: &MethodReport| -> Position {
        (
            plot.x.scale.at(way.rate(method)),
            plot.y.scale.at(method.ratio.mean),
        )
    };
    let frontier = frontier(&methods, way);
    let points: Vec<Position> = frontier.iter().map(|method| at(method)).collect();
    let mut out = mark::line(&points, "frontier");
    for method in &methods {
        let (x, y) = at(method);
        let colour = scene.colour(&method.method);
        let ends = [method.ratio.low, method.ratio.high].map(|ratio| (x, plot.y.scale.at(ratio)));
        let on_frontier = frontier.iter().any(|other| other.method == method.method);
        let shape = if on_frontier { "" } else { "hollow" };
        let title = format!(
            "{}: ratio {} ({} to {}), {} MB/s",
            method.method,
            figures(method.ratio.mean),
            figures(method.ratio.low),
            figures(method.ratio.high),
            figures(way.rate(method))
        );
        let parts = mark::rule(ends[0], ends[1], "error") + &mark::dot((x, y), 5.5, shape, &title);
        out.push_str(&mark::group(
            &format!("class=\"{colour}\" {}", of_method(method)),
            &parts,
        ));
    }
    mark::group(&plot.clip(), &out) + &labels(scene, plot, &methods, &at)
}

fn labels(
    scene: &Scene<'_>,
    plot: &Plot,
    methods: &[&MethodReport],
    at: &dyn Fn(&MethodReport) -> Position,
) -> String {
    let wishes: Vec<Wish> = methods
        .iter()
        .map(|method| Wish {
            at: at(method),
            text: method.method.clone(),
        })
        .collect();
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let places = label::place(&wishes, (left, top), (right + 12.0, bottom));
    let text = |(method, place): (&&MethodReport, Position)| {
        let text = mark::text(place, Anchor::Start, "series halo", &method.method);
        let colour = scene.colour(&method.method);
        mark::group(&format!("class=\"{colour}\" {}", of_method(method)), &text)
    };
    methods.iter().zip(places).map(text).collect()
}

/// Returns the methods that no other beats in speed and ratio both, the fastest first.
fn frontier<'r>(methods: &[&'r MethodReport], way: Way) -> Vec<&'r MethodReport> {
    let mut order = methods.to_vec();
    order.sort_by(|a, b| way.rate(b).total_cmp(&way.rate(a)));
    let mut best = f64::NEG_INFINITY;
    order
        .into_iter()
        .filter(|method| {
            let better = method.ratio.mean > best;
            best = best.max(method.ratio.mean);
            better
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn nothing_on_the_frontier_is_beaten() {
        let report = testing::report();
        let scene = Scene::new(&report);
        for way in [Way::Compress, Way::Decompress] {
            for class in &report.classes {
                let methods = scene.model.methods(class);
                let frontier = frontier(&methods, way);
                assert!(!frontier.is_empty(), "{}", class.name);
                for method in &methods {
                    let beaten = methods.iter().any(|other| {
                        way.rate(other) > way.rate(method) && other.ratio.mean >= method.ratio.mean
                    });
                    let on = frontier.iter().any(|of| of.method == method.method);
                    assert_eq!(on, !beaten, "{} of {}", method.method, class.name);
                }
            }
        }
    }

    #[test]
    fn every_class_has_its_points_and_labels() {
        let report = testing::report();
        let scene = Scene::new(&report);
        let svg = figure(&scene, Way::Compress).svg;
        let methods: usize = report
            .classes
            .iter()
            .map(|class| scene.model.methods(class).len())
            .sum();
        assert_eq!(svg.matches("<circle").count(), methods);
        assert_eq!(svg.matches("series halo").count(), methods);
        assert_eq!(
            svg.matches("class=\"hidden\"").count(),
            report.classes.len() - 1
        );
    }
}
