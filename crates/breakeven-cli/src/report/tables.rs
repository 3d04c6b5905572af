//! The report's tables: all figures that the pictures show, and those that they leave out.

use std::fmt::Write;

use breakeven::advise::report::{
    ClassReport, MethodReport, Report, SuggestionReport, VerdictReport,
};
use breakeven::units::Estimate;

use super::model::Metric;
use super::scene::Scene;
use crate::draw::escape;
use crate::text::{
    DOUBT_LEGEND, answer, binary_size, figures, is_doubtful, marked_ratio, percent, percent_range,
    size, turns,
};

/// Where bytes wait, as the report names it, with words for people.
const PLACES: [(&str, &str); 4] = [
    ("file", "A file at rest"),
    ("link", "A link"),
    ("pages", "Database pages"),
    ("cache", "A buffer cache"),
];

/// All tables, each under its heading.
pub fn tables(scene: &Scene<'_>) -> String {
    let report = scene.report;
    let mut out = section(
        "verdicts",
        "Verdicts",
        "At each place and in each metric the best method for all data, its cost beside storing \
         raw, and what would turn the choice.",
        &(as_asked(
            "The rows of a file at rest follow the sliders and the data chosen above. Links, pages and caches are \
             as they were reported: what they rest on has no slider.",
        ) + &verdicts(scene)),
    );
    out.push_str(&section(
        "classes",
        "By class",
        "What kinds of data there are, and the best method for a file of each.",
        &classes(scene),
    ));
    if !report.suggestions.is_empty() {
        out.push_str(&section(
            "settings",
            "Settings to try",
            "What that means for tools: the best of the methods each of them offers, for all data, \
             with the terms this report was made for.",
            &(as_asked("As they were reported: no slider moves them.") + &suggestions(scene)),
        ));
    }
    out.push_str(&section(
        "methods",
        "Methods",
        "Measured on blocks of this data, on one core of this machine; intervals are 95 %.",
        &methods(scene),
    ));
    out.push_str(&section(
        "basis",
        "What the numbers rest on",
        "",
        &(basis(report) + &notes(report)),
    ));
    out
}

/// A line that the page shows once a slider has moved.
fn as_asked(text: &str) -> String {
    format!("<p class=\"about as-asked\" hidden>{}</p>", escape(text))
}

pub(super) fn section(id: &str, title: &str, about: &str, body: &str) -> String {
    let about = match about {
        "" => String::new(),
        about => format!("<p class=\"about\">{}</p>", escape(about)),
    };
    format!(
        "<section id=\"{id}\"><h2>{}</h2>{about}{body}</section>\n",
        escape(title)
    )
}

pub(super) fn table(head: &[&str], rows: &str) -> String {
    let head: String = head
        .iter()
        .map(|cell| format!("<th scope=\"col\">{}</th>", escape(cell)))
        .collect();
    format!(
        "<div class=\"scroll\"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )
}

pub(super) fn cell(text: &str) -> String {
    format!("<td>{}</td>", escape(text))
}

pub(super) fn number(text: &str) -> String {
    format!("<td class=\"n\">{}</td>", escape(text))
}

/// A method with its colour.
fn chip(scene: &Scene<'_>, method: &str) -> String {
    let name = if method == "store" {
        "store raw"
    } else {
        method
    };
    format!(
        "<span class=\"chip {}\">{}</span>",
        scene.colour(method),
        escape(name)
    )
}

fn verdicts(scene: &Scene<'_>) -> String {
    let mut rows = String::new();
    for (place, words) in PLACES {
        let of_place = |verdict: &&VerdictReport| verdict.place == place && verdict.class == "all";
        let found: Vec<&VerdictReport> = scene.report.verdicts.iter().filter(of_place).collect();
        for (index, verdict) in found.iter().enumerate() {
            let first = match index {
                0 => format!(
                    "<th scope=\"rowgroup\" rowspan=\"{}\">{words}</th>",
                    found.len()
                ),
                _ => String::new(),
            };
            let best = match verdict.answer.as_str() {
                "undecided" => "<span class=\"undecided\">undecided</span>".to_string(),
                _ => chip(scene, &verdict.method),
            };
            let start = if index == 0 { " class=\"start\"" } else { "" };
            let metric = escape(&verdict.metric);
            // The script fills the cells of files again: the best method, its cost, the answer, and the condition that
            // turns it.
            let _ = write!(
                rows,
                "<tr{start} data-place=\"{place}\" data-metric=\"{metric}\">{first}<td>{metric}</td>\
                 <td class=\"live\">{best}</td><td class=\"live n\">{}</td><td class=\"live\">{}</td>\
                 <td class=\"live\">{}</td></tr>",
                escape(&percent_range(&verdict.cost_ratio)),
                escape(&answer(verdict)),
                escape(&turns(verdict))
            );
        }
    }
    table(
        &[
            "place",
            "metric",
            "best",
            "cost of raw",
            "answer",
            "what would turn it",
        ],
        &rows,
    )
}

fn classes(scene: &Scene<'_>) -> String {
    let report = scene.report;
    let total = report.sample.population_bytes as f64;
    let mut rows = String::new();
    let classes = report.classes.iter().enumerate();
    for (index, class) in classes.filter(|(_, class)| class.name != "all") {
        let share = class.bytes.mean / total;
        let best: String = Metric::ALL
            .into_iter()
            .map(|metric| {
                let verdict = report.verdicts.iter().find(|verdict| {
                    verdict.place == "file"
                        && verdict.metric == metric.name()
                        && verdict.class == class.name
                });
                let best = match verdict {
                    Some(verdict) if verdict.answer == "undecided" => {
                        "<span class=\"undecided\">undecided</span>".to_string()
                    }
                    Some(verdict) => chip(scene, &verdict.method),
                    None => String::new(),
                };
                let name = metric.name();
                format!("<td class=\"live\" data-metric=\"{name}\">{best}</td>")
            })
            .collect();
        let _ = write!(
            rows,
            "<tr data-index=\"{index}\"><th scope=\"row\">{}</th>{}<td class=\"bar\"><i style=\"width:{:.1}%\"></i>{}</td>{best}</tr>",
            escape(&class.name),
            number(&size(class.bytes.mean)),
            (100.0 * share).clamp(0.0, 100.0),
            escape(&percent(share)),
        );
    }
    table(
        &[
            "class",
            "bytes",
            "share",
            "time",
            "energy",
            "energy-delay",
            "money",
        ],
        &rows,
    )
}

fn suggestions(scene: &Scene<'_>) -> String {
    let row = |suggestion: &SuggestionReport| {
        let lines = suggestion.settings.iter();
        let lines: String = lines
            .map(|line| format!("<code>{}</code>", escape(line)))
            .collect();
        let best = match suggestion.answer.as_str() {
            "undecided" => "<span class=\"undecided\">undecided</span>".to_string(),
            "leave_off" => chip(scene, "store"),
            _ => chip(scene, &suggestion.method),
        };
        let about = format!("{}; since {}", suggestion.note, suggestion.since);
        format!(
            "<tr><th scope=\"row\">{} <small>{}</small></th><td>{best}</td>{}{}\
             <td class=\"setting\">{lines}<small>{}</small></td></tr>",
            escape(&suggestion.tool),
            escape(&suggestion.subject),
            number(&percent_range(&suggestion.cost_ratio)),
            cell(&suggestion.metric),
            escape(&about),
        )
    };
    let rows: String = scene.report.suggestions.iter().map(row).collect();
    table(&["tool", "best", "cost of raw", "in", "setting"], &rows)
}

/// The methods on all data open, those on each class to be opened.
fn methods(scene: &Scene<'_>) -> String {
    let of = |class: &ClassReport| {
        let rows: String = class
            .methods
            .iter()
            .map(|method| method_row(scene, method))
            .collect();
        table(
            &[
                "method",
                "block",
                "ratio",
                "compress MB/s",
                "decompress MB/s",
                "compress J/GB",
                "decompress J/GB",
            ],
            &rows,
        )
    };
    let mut out = String::new();
    for class in scene.report.classes.iter().rev() {
        let open = if class.name == "all" { " open" } else { "" };
        let _ = write!(
            out,
            "<details{open}><summary>{}</summary>{}</details>",
            escape(if class.name == "all" {
                "all data"
            } else {
                &class.name
            }),
            of(class)
        );
    }
    let mut methods = scene.report.classes.iter().flat_map(|class| &class.methods);
    if methods.any(is_doubtful) {
        let _ = write!(out, "<p class=\"about\">{}.</p>", escape(DOUBT_LEGEND));
    }
    out
}

fn method_row(scene: &Scene<'_>, method: &MethodReport) -> String {
    format!(
        "<tr><td>{}</td>{}{}{}{}{}{}</tr>",
        chip(scene, &method.method),
        number(&binary_size(method.block_bytes)),
        number(&marked_ratio(method)),
        number(&figures(method.compress_mb_s)),
        number(&figures(method.decompress_mb_s)),
        number(&with_band(&method.energy.compress_j_per_gb)),
        number(&with_band(&method.energy.decompress_j_per_gb)),
    )
}

/// Machine, sample, medium and prices, each with its source.
fn basis(report: &Report) -> String {
    let mut facts = measured(report);
    facts.extend(assumed(report));
    let rows: String = facts
        .iter()
        .map(|(what, value)| format!("<dt>{what}</dt><dd>{}</dd>", escape(value)))
        .collect();
    format!("<dl>{rows}</dl>")
}

type Fact = (&'static str, String);

fn measured(report: &Report) -> Vec<Fact> {
    let (machine, medium, sample) = (&report.machine, &report.medium, &report.sample);
    let where_it_runs = machine.virtualisation.as_deref().unwrap_or("bare metal");
    let told = [
        machine.memory_bytes.map(|bytes| size(bytes as f64)),
        machine.kernel.clone(),
        machine.governor.clone(),
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    vec![
        (
            "Machine",
            format!(
                "{}, {} cores, {} threads, {where_it_runs}",
                machine.processor, machine.cores, machine.threads
            ),
        ),
        ("Memory, kernel", told.join(", ")),
        (
            "Sample",
            format!(
                "{} of {} in {} files, {} s, ended: {}, seed {}",
                size(sample.bytes as f64),
                size(sample.population_bytes as f64),
                sample.files,
                figures(sample.seconds),
                sample.ended,
                sample.seed
            ),
        ),
        ("Medium", format!("{} [{}]", medium.name, medium.source)),
        (
            "Reads, writes",
            format!(
                "{} MB/s, {} MB/s",
                with_band(&medium.read_mb_s),
                with_band(&medium.write_mb_s)
            ),
        ),
        (
            "Random read of 8 KiB",
            format!("{} us", with_band(&medium.random_read_us)),
        ),
    ]
}

fn assumed(report: &Report) -> Vec<Fact> {
    let (terms, prices) = (&report.terms, &report.terms.prices);
    let method = report.classes.iter().flat_map(|of| &of.methods).next();
    let source = method.map_or("", |method| method.energy.source.as_str());
    vec![
        (
            "Link",
            format!("{}, {} MB/s", terms.link_name, figures(terms.link_mb_s)),
        ),
        (
            "Power",
            format!(
                "idle {} W, a busy core {} W more, the medium {} W more [{source}]",
                figures(terms.idle_watts),
                figures(terms.core_watts),
                figures(terms.medium_watts)
            ),
        ),
        (
            "Prices",
            format!(
                "of {}: {} EUR/kWh, {} EUR for a core-hour, {} EUR for a TB and year",
                prices.date,
                figures(prices.eur_per_kwh),
                figures(prices.core_eur_per_hour),
                figures(prices.storage_eur_per_tb_year)
            ),
        ),
    ]
}

fn with_band(estimate: &Estimate) -> String {
    let [mean, low, high] = [estimate.mean, estimate.low, estimate.high].map(figures);
    format!("{mean} ({low} to {high})")
}

fn notes(report: &Report) -> String {
    let notes: String = report
        .notes
        .iter()
        .map(|note| format!("<li>{}</li>", escape(note.trim())))
        .collect();
    match notes.as_str() {
        "" => String::new(),
        notes => format!("<ul class=\"notes\">{notes}</ul>"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;
    use breakeven::advise::report::Evidence;

    #[test]
    fn methods_hardly_known_are_marked_and_do_not_win() {
        let mut report = testing::report();
        assert!(!tables(&Scene::new(&report)).contains(DOUBT_LEGEND));
        let best = report.verdicts[0].candidate.clone();
        for class in &mut report.classes {
            for method in class.methods.iter_mut().filter(|of| of.method == best) {
                method.evidence = Evidence::Predicted;
            }
        }
        let scene = Scene::new(&report);
        let html = tables(&scene);
        assert!(
            html.contains(DOUBT_LEGEND) && html.contains(">~ "),
            "{html}"
        );
        for class in &report.classes {
            for metric in Metric::ALL {
                let standing = scene.model.standing(metric, class).expect("a method");
                assert_ne!(standing.candidate.method, best);
            }
        }
    }

    #[test]
    fn settings_are_shown_where_there_are_some() {
        let mut report = testing::report();
        report.suggestions.clear();
        assert!(!tables(&Scene::new(&report)).contains("id=\"settings\""));
        report.suggestions.push(SuggestionReport {
            tool: "<tool>".to_string(),
            subject: "files".to_string(),
            since: "1.0".to_string(),
            metric: "money".to_string(),
            answer: "compress".to_string(),
            method: "zstd:3".to_string(),
            ratio: Estimate::exact(2.0),
            cost_ratio: Estimate::exact(0.5),
            settings: vec!["set a=1".to_string(), "set b=\"<2>\"".to_string()],
            note: "a note".to_string(),
        });
        let html = tables(&Scene::new(&report));
        assert!(html.contains("<code>set a=1</code><code>set b="), "{html}");
        assert!(html.contains("&lt;tool&gt;") && !html.contains("<tool>"));
        assert!(html.contains("a note; since 1.0"));
    }
}
