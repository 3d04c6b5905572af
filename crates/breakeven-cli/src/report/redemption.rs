//! Days until compressing has redeemed itself, over the ratio.
//!
//! Source: Hirsch 2017, section 3.4.3 and Figure 3.8. Besides the codec's work, a method saves the medium's work at
//! once. That is counted with the storage it saves.

use breakeven::advise::report::{ClassReport, MethodReport, WorkReport};

use super::model::Model;
use super::scene::{FRAME, Figure, Scene, of_method, ratio_scale};
use crate::draw::label::{self, Wish};
use crate::draw::mark::{self, Anchor, Position};
use crate::draw::{Axis, Kind, Plot, Scale, Tick, escape};
use crate::text::figures;

/// Days shown: from a minute to thirty years.
const DAYS: (f64, f64) = (1.0 / 1440.0, 10_950.0);
const NAMED_DAYS: [(f64, &str); 6] = [
    (1.0 / 1440.0, "1 min"),
    (1.0 / 24.0, "1 hour"),
    (1.0, "1 day"),
    (30.0, "1 month"),
    (365.0, "1 year"),
    (3650.0, "10 years"),
];
/// Points of each curve.
const POINTS: usize = 48;

/// Draws the picture for all data; the page draws it again for the chosen class.
pub fn figure(scene: &Scene<'_>) -> Figure {
    let class = scene.report.classes.get(scene.first_class());
    let plot = plot(scene, class);
    let marks = class.map_or(String::new(), |class| curves(scene, &plot, class));
    let live = plot.axes() + &marks;
    let empty = plot.clone().bare();
    Figure {
        id: "redemption",
        title: "Days until it has paid for itself".to_string(),
        metric: None,
        caption: "Each curve is what a method's work costs, set against the storage that a ratio \
                  saves; the dot is the ratio measured. Below the dashed line it pays within the \
                  days kept. After Hirsch 2017, Figure 3.8."
            .to_string(),
        svg: empty.svg(&mark::group("data-live=\"redemption\"", &live)),
    }
}

fn plot(scene: &Scene<'_>, class: Option<&ClassReport>) -> Plot {
    let frame = crate::draw::Frame {
        left: 72.0,
        ..FRAME
    };
    let methods = class.map_or(Vec::new(), |class| scene.model.methods(class));
    let ratios = methods.iter().map(|method| method.ratio.mean);
    let x = ratio_scale(ratios, frame.across());
    let tick = |(value, label): (f64, &str)| Tick {
        value,
        label: label.to_string(),
    };
    Plot {
        id: "redemption".to_string(),
        title: "Days to redemption over the ratio".to_string(),
        description: "One curve for each method, with a dot at the ratio it reaches.".to_string(),
        frame,
        x: Axis {
            title: "ratio, raw over stored".to_string(),
            scale: x,
            ticks: x.ticks(6),
        },
        y: Axis {
            title: "kept until redeemed".to_string(),
            scale: Scale::new(Kind::Log, DAYS, frame.up()),
            ticks: NAMED_DAYS.map(tick).to_vec(),
        },
    }
}

/// The cost and the saving of a GB in euros, for any ratio.
struct Account {
    /// The codec's work: compressing once, decompressing at every read.
    codec: f64,
    /// The saving of a GB not written and not read, at once.
    moved: f64,
    /// The saving of a GB not held, in a day.
    per_day: f64,
}

impl Account {
    fn of(model: &Model<'_>, method: &MethodReport) -> Account {
        let (terms, medium) = (&model.report.terms, &model.report.medium);
        let reads = model.at.reads.mean;
        let work = |work: &WorkReport| {
            work.core_s_per_gb.mean * model.eur_per_core_second()
                + work.device_j_per_gb * model.eur_per_joule()
        };
        let seconds = |mb_s: f64| 1e3 / (mb_s * model.at.speed);
        let medium_eur = terms.medium_watts * model.eur_per_joule();
        let write = seconds(medium.write_mb_s.mean) * medium_eur + terms.prices.write_eur_per_gb;
        let read = seconds(medium.read_mb_s.mean) * medium_eur + terms.prices.read_eur_per_gb;
        Account {
            codec: work(&method.compress_work) + reads * work(&method.decompress_work),
            moved: write + reads * read,
            per_day: model.eur_per_gb_day(),
        }
    }

    /// Days until redeemed at a ratio: d = (c / (1 - 1/f) - moved) / per day; below 0 means at once.
    fn days(&self, ratio: f64) -> f64 {
        let saved = 1.0 - 1.0 / ratio;
        if saved <= 0.0 {
            return f64::INFINITY;
        }
        (self.codec / saved - self.moved) / self.per_day
    }
}

fn curves(scene: &Scene<'_>, plot: &Plot, class: &ClassReport) -> String {
    let (x, y) = (&plot.x.scale, &plot.y.scale);
    let ((left, right), (bottom, top)) = (plot.frame.across(), plot.frame.up());
    let kept = y.at(scene.model.at.days).clamp(top, bottom);
    let guide = mark::rule((left, kept), (right, kept), "guide");
    let text = format!("kept {} days", figures(scene.model.at.days));
    let guide = guide + &mark::text((right - 4.0, kept - 5.0), Anchor::End, "soft halo", &text);
    let (mut lines, mut dots, mut wishes) = (String::new(), String::new(), Vec::new());
    for method in scene.model.methods(class) {
        let account = Account::of(&scene.model, method);
        let place = |ratio: f64| (x.at(ratio), y.at(account.days(ratio).max(1e-9)));
        // Points are closer where the curve is steep.
        let point = |index: usize| place(x.value((index as f64 / POINTS as f64).powi(2)));
        let points: Vec<Position> = (1..=POINTS).map(point).collect();
        let group = format!(
            "class=\"{}\" {}",
            scene.colour(&method.method),
            of_method(method)
        );
        lines.push_str(&mark::group(&group, &mark::line(&points, "thin")));
        let days = account.days(method.ratio.mean);
        let (at, height) = place(method.ratio.mean);
        let at = (at, height.clamp(top, bottom));
        if days.is_finite() {
            let title = format!(
                "{}: redeemed after {} days",
                method.method,
                figures(days.max(0.0))
            );
            dots.push_str(&mark::group(&group, &mark::dot(at, 5.5, "", &title)));
            wishes.push(Wish {
                at,
                text: method.method.clone(),
            });
        }
    }
    let places = label::place(&wishes, (left, top), (right + 12.0, bottom));
    let names: String = wishes
        .iter()
        .zip(places)
        .map(|(wish, place)| {
            let text = mark::text(place, Anchor::Start, "series halo", &wish.text);
            let (colour, name) = (scene.colour(&wish.text), escape(&wish.text));
            mark::group(&format!("class=\"{colour}\" data-m=\"{name}\""), &text)
        })
        .collect();
    mark::group(&plot.clip(), &lines) + &guide + &dots + &names
}

#[cfg(test)]
mod tests {
    use super::super::model::Metric;
    use super::super::testing;
    use super::*;

    /// On the day of redemption money is neither saved nor lost, as the verdict's arithmetic has it.
    #[test]
    fn nothing_is_won_or_lost_on_the_day() {
        let report = testing::report();
        let scene = Scene::new(&report);
        let mut tried = 0;
        for class in &report.classes {
            for method in scene.model.methods(class) {
                let days = Account::of(&scene.model, method).days(method.ratio.mean);
                if !(days.is_finite() && days > 0.0) {
                    continue;
                }
                let mut model = scene.model;
                model.at.days = days;
                let reads = model.at.reads.mean;
                let saving = model.saving(Metric::Money, method, reads);
                let (raw, _) = model.costs(
                    Metric::Money,
                    method,
                    super::super::model::Case::Means,
                    reads,
                );
                assert!(
                    saving.abs() < 1e-9 * raw,
                    "{} {days} {saving}",
                    method.method
                );
                tried += 1;
            }
        }
        assert!(tried >= 10, "{tried}");
    }

    #[test]
    fn every_method_that_shrinks_has_its_dot() {
        let report = testing::report();
        let scene = Scene::new(&report);
        let all = report.classes.last().expect("all");
        let svg = figure(&scene).svg;
        assert_eq!(
            svg.matches("<circle").count(),
            scene.model.methods(all).len()
        );
        assert!(svg.contains(">1 day</text>") && svg.contains("kept 90"));
    }
}
