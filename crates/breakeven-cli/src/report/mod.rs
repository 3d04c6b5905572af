//! The report as one page: pictures, sliders and tables in a file that needs nothing else.
//!
//! [`html`] draws every picture for the numbers of the report, so that the page reads without a script and on paper.
//! The script in `page.js` moves the parts that depend on the sliders, with the arithmetic of [`model`], and draws the
//! same marks again. Nothing is fetched: the page forbids that to itself. All text from the report (names of classes,
//! methods and files) is escaped.

mod blocks;
mod buffers;
mod frontier;
mod model;
mod redemption;
pub mod replay;
mod savings;
mod scene;
mod sentence;
mod splits;
mod tables;
#[cfg(test)]
pub(crate) mod testing;
mod winners;

use std::fmt::Write;

use breakeven::advise::report::Report;
use breakeven::meter::Machine;
use serde::Serialize;

use crate::draw::{self, escape};
use crate::text::{binary_size, figures, percent, size};
use buffers::Buffers;
use frontier::Way;
use model::{Metric, Position};
use scene::{Figure, Scene};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The script's input besides the report.
#[derive(Serialize)]
struct Data<'r> {
    report: &'r Report,
    colours: Vec<(&'r str, &'r str)>,
    buffers: Option<&'r Buffers>,
}

/// Returns the pictures of a report as files that stand alone, in time: their names and their SVG. They have no
/// sliders.
pub fn pictures(report: &Report) -> Vec<(&'static str, String)> {
    let mut scene = Scene::new(report);
    scene.metric = Metric::Time;
    let buffers = buffers::buffers(&scene);
    draw_all(&scene, buffers.as_ref())
        .into_iter()
        .map(|figure| (figure.id, draw::standalone(&figure.svg)))
        .collect()
}

fn draw_all(scene: &Scene<'_>, buffers: Option<&Buffers>) -> Vec<Figure> {
    let mut figures = vec![
        winners::figure(scene),
        savings::figure(scene),
        frontier::figure(scene, Way::Compress),
        frontier::figure(scene, Way::Decompress),
        redemption::figure(scene),
        blocks::figure(scene),
    ];
    if let Some(buffers) = buffers {
        figures.push(buffers::times(scene, buffers));
        figures.push(buffers::hit_ratios(buffers));
    }
    figures.extend(splits::figure(scene));
    figures
}

/// Makes the page of a report.
pub fn html(report: &Report) -> String {
    let scene = Scene::new(report);
    let buffers = buffers::buffers(&scene);
    let data = Data {
        report,
        colours: scene.methods(),
        buffers: buffers.as_ref(),
    };
    let figures = draw_all(&scene, buffers.as_ref());
    let pictures: String = figures.iter().map(figure).collect();
    let seed = format!("From a sample with seed {}.", report.sample.seed);
    let body = format!(
        "{}{}{}<main>\n<div class=\"figures\">\n{pictures}</div>\n{}</main>\n{}\
         <script type=\"application/json\" id=\"data\">{}</script>\n<script>\n{SCRIPT}</script>\n",
        header(report),
        cards(&scene),
        controls(&scene),
        tables::tables(&scene),
        footer(&format!("{seed} The whole report is inside as JSON.")),
        json(&data),
    );
    sheet(&report.medium.name, "script-src 'unsafe-inline'; ", &body)
}

/// A page with its style around a body that may load nothing but `sources`.
fn sheet(title: &str, sources: &str, body: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; {sources}img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Breakeven: {}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>\n{}{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n",
        escape(title),
        draw::STYLE,
    )
}

/// JSON that cannot end the element it stands in.
fn json(data: &Data<'_>) -> String {
    let text = serde_json::to_string(data).expect("plain data is JSON");
    text.replace('<', "\\u003c")
}

fn header(report: &Report) -> String {
    let (sample, medium) = (&report.sample, &report.medium);
    let share = sample.bytes as f64 / sample.population_bytes.max(1) as f64;
    let read = match share > 0.999 {
        true => "all of it measured".to_string(),
        false => format!("{} of it measured", percent(share)),
    };
    let facts = [
        format!(
            "{} in {} files, {read} in blocks of {}",
            size(sample.population_bytes as f64),
            sample.files,
            binary_size(sample.block_bytes)
        ),
        format!("the least certain ratio \u{b1}{}", percent(sample.bound)),
        format!(
            "{} reads {}, writes {} MB/s",
            medium.name,
            figures(medium.read_mb_s.mean),
            figures(medium.write_mb_s.mean)
        ),
        machine_fact(&report.machine),
    ];
    top("Does compressing pay here?", &report.headline, &facts)
}

/// Names the machine that a report was made on.
fn machine_fact(machine: &Machine) -> String {
    let processor = match machine.processor.name.as_str() {
        "" => "unknown processor",
        name => name,
    };
    format!("{processor}, {} cores", machine.cores)
}

/// The top of a page: its question, the answer, and the evidence.
fn top(question: &str, headline: &str, facts: &[String]) -> String {
    let facts: String = facts
        .iter()
        .map(|fact| format!("<li>{}</li>", escape(fact)))
        .collect();
    format!(
        "<header>\n<p class=\"brand\">{LOGO}Breakeven <span>{question}</span></p>\n\
         <h1 id=\"headline\" aria-live=\"polite\">{}</h1>\n<ul class=\"facts\">{facts}</ul>\n</header>\n",
        escape(headline)
    )
}

/// A line that crosses zero.
const LOGO: &str = "<svg class=\"logo\" viewBox=\"0 0 28 28\" aria-hidden=\"true\">\
    <path d=\"M2 17H26\"/><path class=\"up\" d=\"M3 25L25 5\"/><circle cx=\"11.8\" cy=\"17\" r=\"3.4\"/></svg>";

/// One card for each metric; the cards choose the metric of the pictures.
fn cards(scene: &Scene<'_>) -> String {
    let Some(class) = scene.report.classes.last() else {
        return String::new();
    };
    let mut out =
        String::from("<section class=\"cards\" aria-label=\"Verdicts on a file at rest\">\n");
    for metric in Metric::ALL {
        let Some(standing) = scene.model.standing(metric, class) else {
            continue;
        };
        let bounds = match sentence::mark(&standing) {
            "undecided" => format!("at the means {}", sentence::bounds(&standing)),
            _ => sentence::bounds(&standing),
        };
        let _ = writeln!(
            out,
            "<button type=\"button\" class=\"card {}\" data-metric=\"{}\" aria-pressed=\"{}\">\
             <span class=\"metric\">{}</span><b>{}</b><span class=\"cost\">{}</span>\
             <span class=\"bounds\">{}</span></button>",
            sentence::mark(&standing),
            metric.name(),
            metric == scene.metric,
            sentence::title(metric),
            escape(sentence::choice(&standing)),
            escape(&sentence::cost(&standing)),
            escape(&bounds),
        );
    }
    out + "</section>\n"
}

/// A slider over powers of ten, whose range includes its first value.
struct Slider {
    key: &'static str,
    name: &'static str,
    value: f64,
    low: f64,
    high: f64,
    text: String,
}

fn sliders(scene: &Scene<'_>) -> [Slider; 6] {
    let at: &Position = &scene.model.at;
    let speed = scene.report.medium.write_mb_s.mean;
    let slider = |key, name, value: f64, low: f64, high: f64, unit: &str| Slider {
        key,
        name,
        value,
        low: low.min(value.max(low / 1e6)),
        high: high.max(value),
        text: format!("{} {unit}", figures(value)),
    };
    let reads = match (at.reads.low, at.reads.high) {
        (low, high) if low < high => format!("{} to {}", figures(low), figures(high)),
        (low, _) => figures(low),
    };
    [
        Slider {
            text: reads,
            ..slider("reads", "Reads per write", at.reads.mean, 0.01, 1000.0, "")
        },
        slider("speed", "Device writes", speed, 10.0, 30_000.0, "MB/s"),
        slider("days", "Kept", at.days, 0.1, 3650.0, "days"),
        slider(
            "core",
            "Processor",
            at.core_eur_per_hour,
            0.001,
            1.0,
            "EUR/core-hour",
        ),
        slider(
            "storage",
            "Storage",
            at.storage_eur_per_tb_year,
            1.0,
            2000.0,
            "EUR/TB-year",
        ),
        slider("kwh", "Electricity", at.eur_per_kwh, 0.01, 2.0, "EUR/kWh"),
    ]
}

fn controls(scene: &Scene<'_>) -> String {
    let mut out = String::from("<section class=\"controls\" aria-label=\"What if\">\n");
    let class = scene.report.classes.last();
    let words = class.and_then(|class| {
        let standing = scene.model.standing(scene.metric, class)?;
        Some(sentence::sentence(scene.metric, &standing))
    });
    let options: String = scene
        .report
        .classes
        .iter()
        .enumerate()
        .rev()
        .map(|(index, class)| {
            let name = if class.name == "all" {
                "all data"
            } else {
                &class.name
            };
            format!("<option value=\"{index}\">{}</option>", escape(name))
        })
        .collect();
    let _ = writeln!(
        out,
        "<div class=\"now\"><p id=\"sentence\" aria-live=\"polite\">{}</p>\
         <label class=\"class\">Data <select id=\"class\" autocomplete=\"off\">{options}</select></label>\
         <button type=\"button\" id=\"reset\">Reset</button></div>\n<div class=\"sliders\">",
        escape(&words.unwrap_or_default())
    );
    for slider in sliders(scene) {
        let share = (slider.value / slider.low).ln() / (slider.high / slider.low).ln();
        let _ = writeln!(
            out,
            "<label class=\"slider\"><span>{}</span><output>{}</output>\
             <input type=\"range\" autocomplete=\"off\" id=\"{}\" min=\"0\" max=\"1000\" value=\"{:.0}\" \
             data-low=\"{}\" data-high=\"{}\"></label>",
            slider.name,
            escape(slider.text.trim()),
            slider.key,
            1000.0 * if share.is_finite() { share } else { 0.0 },
            slider.low,
            slider.high,
        );
    }
    let legend: String = std::iter::once(("store", "store-1"))
        .chain(scene.methods())
        .map(|(method, colour)| {
            let name = if method == "store" {
                "store raw"
            } else {
                method
            };
            format!(
                "<li class=\"chip {colour}\" data-key=\"{}\">{}</li>",
                escape(method),
                escape(name)
            )
        })
        .collect();
    out + &format!(
        "</div>\n<ul class=\"legend\" aria-label=\"Methods\">{legend}</ul>\n</section>\n"
    )
}

fn figure(figure: &Figure) -> String {
    let metric = figure.metric.map_or(String::new(), |metric| {
        let title = sentence::title(metric);
        format!(
            " <span class=\"tag\" data-tag=\"{}\">{title}</span>",
            figure.id
        )
    });
    format!(
        "<figure id=\"figure-{}\"><h2>{}{metric}</h2>{}<figcaption>{}</figcaption></figure>\n",
        figure.id,
        escape(&figure.title),
        figure.svg,
        figure.caption
    )
}

fn footer(about: &str) -> String {
    format!(
        "<footer><p>Made by Breakeven {}. {about} Everything in this page is in it: nothing is \
         fetched.</p></footer>\n",
        env!("CARGO_PKG_VERSION"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURES: [&str; 8] = [
        "map",
        "savings",
        "compress",
        "decompress",
        "redemption",
        "blocks",
        "buffers",
        "hits",
    ];

    #[test]
    fn the_pictures_of_the_documents_are_those_of_the_example() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/pictures");
        let drawn = pictures(&testing::report());
        for name in ["map", "savings"] {
            let kept = std::fs::read_to_string(folder.join(format!("{name}.svg")));
            let (_, svg) = drawn.iter().find(|of| of.0 == name).expect("a picture");
            assert_eq!(&kept.expect("a file"), svg, "{name}: run make pictures");
        }
    }

    #[test]
    fn the_page_has_its_pictures_and_fetches_nothing() {
        // The name of SVG's vocabulary looks like an address and is none.
        let page = html(&testing::report()).replace("http://www.w3.org/2000/svg", "");
        for id in PICTURES {
            assert_eq!(
                page.matches(&format!("<svg class=\"plot\" id=\"{id}\""))
                    .count(),
                1,
                "{id}"
            );
        }
        for word in [
            "http://", "https://", "url(http", "@import", "NaN", "src=", "//cdn",
        ] {
            assert!(!page.contains(word), "{word}");
        }
        let open = |element: &str| {
            page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count()
        };
        for element in [
            "svg", "g", "text", "table", "tr", "td", "section", "figure", "li",
        ] {
            let closed = page.matches(&format!("</{element}>")).count();
            assert_eq!(open(element), closed, "{element}");
        }
    }

    /// Any name stays text: in elements, in attributes and in the data.
    #[test]
    fn hostile_names_stay_text() {
        let hostile = [
            "</script><script>alert(1)</script>",
            "\"><img src=x onerror=alert(1)>",
            "' onload='alert(1)",
            "<!--",
            "\u{fffd}\u{202e}\u{0}",
        ];
        for name in hostile {
            let mut report = testing::report();
            report.headline = name.to_string();
            report.medium.name = name.to_string();
            report.terms.link_name = name.to_string();
            report.notes.push(name.to_string());
            report.classes[0].name = name.to_string();
            for class in &mut report.classes {
                class.methods[0].method = name.to_string();
                class.methods[1].energy.source = name.to_string();
            }
            for verdict in &mut report.verdicts {
                verdict.class = verdict.class.replace("text", name);
                verdict.candidate = name.to_string();
                verdict.method = name.to_string();
                verdict.unit = name.to_string();
                for flip in &mut verdict.flips_at {
                    (flip.quantity, flip.then) = (name.to_string(), name.to_string());
                }
            }
            let plain = html(&testing::report());
            let page = html(&report);
            for element in ["<script", "</script", "<img", "<!--"] {
                let expected = plain.matches(element).count();
                assert_eq!(
                    page.matches(element).count(),
                    expected,
                    "{element} from {name:?}"
                );
            }
            let (markup, _) = page.split_once("id=\"data\"").expect("the data comes last");
            assert!(
                !markup.contains("\"><img") && !markup.contains("' onload"),
                "{name:?}"
            );
        }
    }

    #[test]
    fn pictures_stand_alone() {
        let pictures = pictures(&testing::report());
        let names: Vec<&str> = pictures.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, PICTURES);
        for (name, svg) in pictures {
            assert!(svg.starts_with("<svg xmlns="), "{name}");
            assert_eq!(svg.matches("<style>").count(), 1, "{name}");
        }
    }

    /// A report that was saved and read again makes the same page.
    #[test]
    fn the_saved_report_is_enough() {
        let report = testing::report();
        let saved = serde_json::to_string(&report).expect("JSON");
        let read: Report = serde_json::from_str(&saved).expect("a report");
        assert_eq!(html(&read), html(&report));
    }

    #[test]
    fn strange_numbers_do_not_break_the_page() {
        let strange = [0.0, -1.0, 1e300, f64::NAN, f64::INFINITY];
        for value in strange {
            let mut report = testing::report();
            report.medium.write_mb_s.mean = value;
            report.terms.reads_per_write.high = value;
            report.terms.days_kept = value;
            report.terms.prices.storage_eur_per_tb_year = value;
            report.sample.population_bytes = 0;
            for class in &mut report.classes {
                class.bytes.mean = value;
                class.methods[0].ratio.mean = value;
                class.methods[1].compress_mb_s = value;
                class.methods[2].compress_work.core_s_per_gb.mean = value;
                class.methods[0].block_bytes = 0;
            }
            assert!(html(&report).contains("id=\"redemption\""), "{value}");
        }
        let mut report = testing::report();
        report.classes.clear();
        report.verdicts.clear();
        assert!(html(&report).contains("</html>"));
    }
}
