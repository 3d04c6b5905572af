//! The common parts of all pictures of a report: its numbers, and one colour for each method.

use std::collections::BTreeMap;

use breakeven::advise::report::{ClassReport, MethodReport, Report};

use super::model::{Metric, Model, Position};
use crate::draw::label::spread;
use crate::draw::mark::{self, Anchor};
use crate::draw::{Frame, Kind, Plot, Scale, palette};

/// The size of every picture, so that the page's style can scale them alike.
pub const FRAME: Frame = Frame {
    width: 540.0,
    height: 358.0,
    left: 52.0,
    right: 26.0,
    top: 32.0,
    bottom: 46.0,
};

/// A picture with its words.
pub struct Figure {
    pub id: &'static str,
    pub title: String,
    /// The metric it shows first, where the page can show another.
    pub metric: Option<Metric>,
    /// The caption of the picture, as HTML.
    pub caption: String,
    pub svg: String,
}

/// A report with the colours of its methods.
pub struct Scene<'r> {
    pub report: &'r Report,
    pub model: Model<'r>,
    /// The page's first metric: that of its headline, or money where that is space.
    pub metric: Metric,
    colours: BTreeMap<&'r str, String>,
}

impl<'r> Scene<'r> {
    /// Makes the scene of a report at the numbers it was made for.
    pub fn new(report: &'r Report) -> Scene<'r> {
        let mut methods: Vec<&str> = vec!["store"];
        for method in report.classes.iter().flat_map(|class| &class.methods) {
            if !methods.contains(&method.method.as_str()) {
                methods.push(&method.method);
            }
        }
        let colours = methods.iter().copied().zip(palette::classes(&methods));
        let at = Position::of(report);
        Scene {
            report,
            model: Model { report, at },
            metric: Metric::ALL
                .into_iter()
                .find(|metric| metric.name() == report.terms.prefer)
                .unwrap_or(Metric::Money),
            colours: colours.collect(),
        }
    }

    /// Returns the colour class of a method.
    pub fn colour(&self, method: &str) -> &str {
        self.colours.get(method).map_or("other-1", String::as_str)
    }

    /// Returns every method with its colour class, in the order of the report.
    pub fn methods(&self) -> Vec<(&'r str, &str)> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        for method in self.report.classes.iter().flat_map(|class| &class.methods) {
            let name = method.method.as_str();
            if !found.iter().any(|(seen, _)| *seen == name) {
                found.push((name, self.colour(name)));
            }
        }
        found
    }

    /// Returns the index of the class shown first: all data, which comes last.
    pub fn first_class(&self) -> usize {
        self.report.classes.len().saturating_sub(1)
    }

    /// Draws a group of marks for each class; the page shows one at a time.
    pub fn for_each_class(&self, marks: impl Fn(&'r ClassReport) -> String) -> String {
        let group = |(index, class): (usize, &'r ClassReport)| {
            let hidden = match index == self.first_class() {
                true => "",
                false => " class=\"hidden\"",
            };
            format!("<g data-class=\"{index}\"{hidden}>{}</g>", marks(class))
        };
        self.report.classes.iter().enumerate().map(group).collect()
    }
}

/// Returns the attribute by which the page finds the marks of a method.
pub fn of_method(method: &MethodReport) -> String {
    format!("data-m=\"{}\"", crate::draw::escape(&method.method))
}

/// Names lines at their right ends, from their names, colour classes and end points.
pub fn end_names(plot: &Plot, ends: &[(String, &str, f64)]) -> String {
    let ((_, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let wanted: Vec<f64> = ends.iter().map(|(_, _, y)| y + 4.0).collect();
    let placed = spread(&wanted, 14.0, top + 4.0, bottom + 4.0);
    ends.iter()
        .zip(placed)
        .map(|((name, colour, _), y)| {
            let text = mark::text((right + 6.0, y), Anchor::Start, "series", name);
            mark::group(&format!("class=\"{colour}\""), &text)
        })
        .collect()
}

/// Returns a scale of ratios that shows all of `ratios`: linear where they are alike.
pub fn ratio_scale(ratios: impl Iterator<Item = f64>, range: (f64, f64)) -> Scale {
    let high = ratios.filter(|ratio| ratio.is_finite()).fold(1.5, f64::max);
    if high > 15.0 {
        Scale::new(Kind::Log, (0.9, 1.3 * high), range)
    } else {
        Scale::new(Kind::Linear, (1.0_f64.min(high), 1.06 * high), range)
    }
}
