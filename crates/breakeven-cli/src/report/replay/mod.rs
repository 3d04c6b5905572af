//! A replay as one page: Harper's curves for the replayed trace with the adaptive cache on them. The parts of its time,
//! its course, and all figures follow.
//!
//! The page has no script and fetches nothing. All text from the facts (names of traces, policies and methods) is
//! escaped.

mod bars;
mod course;
mod curves;
mod facts;
mod sentence;
mod tables;
mod tail;
#[cfg(test)]
mod testing;

use std::fmt::Write;

use super::scene::Figure;
use super::{figure, footer, machine_fact, sheet, top};
use crate::draw;
use crate::text::{binary_size, figures, memory_size, percent};

pub use sentence::Unit;

pub use facts::{
    ADAPTIVE, PartReport, PolicyReport, PricesReport, RAW_ONLY, ReplayReport, SCHEMA, SlowerReport,
    TailReport,
};

const STYLE: &str = include_str!("page.css");

/// Makes the page of a replay.
pub fn html(report: &ReplayReport) -> String {
    let figures: String = draw_all(report).iter().map(figure).collect();
    let body = format!(
        "<style>\n{STYLE}</style>\n{}{}<main>\n<div class=\"figures\">\n{figures}</div>\n{}</main>\n{}",
        header(report),
        cards(report),
        tables::tables(report),
        footer("Codecs ran and were timed as the trace was replayed."),
    );
    sheet(&report.accesses_of, "", &body)
}

/// Returns the pictures of a replay as files that stand alone: their names and their SVG.
pub fn pictures(report: &ReplayReport) -> Vec<(&'static str, String)> {
    let alone = |of: Figure| {
        let svg = draw::standalone(&of.svg);
        (
            of.id,
            svg.replacen("</style>", &format!("{STYLE}</style>"), 1),
        )
    };
    draw_all(report).into_iter().map(alone).collect()
}

fn draw_all(report: &ReplayReport) -> Vec<Figure> {
    let mut figures = vec![
        curves::times(report),
        curves::hit_ratios(report),
        bars::times(report),
        bars::pools(report),
        course::times(report),
    ];
    figures.extend(course::split(report));
    figures.push(tail::figure(report));
    figures.push(bars::memory(report));
    figures
}

/// The colour class of a policy: that of the compressing method, at any split.
fn colour(of: &PolicyReport) -> &'static str {
    match (of.policy.as_str(), of.method.as_deref()) {
        (ADAPTIVE, _) => "adaptive",
        (RAW_ONLY, _) | (_, None) => "store-1",
        (_, Some(method)) if method.starts_with("lz4") => "lz4-2",
        (_, Some(method)) if method.starts_with("zstd") => "zstd-3",
        _ => "other-2",
    }
}

/// The line of a fixed split among the curves; none for a policy that compresses nothing.
fn line_name(of: &PolicyReport) -> Option<String> {
    let method = of.method.as_ref()?;
    let again = if of.again { " again" } else { "" };
    (of.compressed_share > 0.0).then(|| format!("{method}{again}"))
}

fn header(report: &ReplayReport) -> String {
    let memory = report.memory_bytes as f64;
    let data = report.keys as f64 * report.page_bytes as f64;
    let facts = [
        format!(
            "{} accesses to {} pages of {} ({})",
            figures(report.accesses as f64),
            figures(report.keys as f64),
            binary_size(report.page_bytes),
            report.accesses_of
        ),
        format!(
            "memory {}, {} of what is asked for",
            memory_size(report.memory_bytes),
            percent(memory / data.max(1.0))
        ),
        format!(
            "a miss takes {} us, {}",
            figures(report.miss_us),
            if report.is_read {
                "read from the device"
            } else {
                "charged"
            }
        ),
        machine_fact(&report.machine),
    ];
    top("What would a cache make of this?", &report.headline, &facts)
}

/// Four figures that sum up one policy: the adaptive one, else the best requested one.
fn cards(report: &ReplayReport) -> String {
    let best = || {
        let order =
            |one: &&PolicyReport, other: &&PolicyReport| one.cost().total_cmp(&other.cost());
        report.policies.iter().min_by(order)
    };
    let Some(of) = report.find(ADAPTIVE).or_else(best) else {
        return String::new();
    };
    let raw = report.find(RAW_ONLY).filter(|raw| raw.policy != of.policy);
    let mark = sentence::mark(of);
    let unit = sentence::Unit::of(report);
    let saved = of.saved_share.as_ref().map(sentence::percent_saved);
    let beside = |text: &dyn Fn(&PolicyReport) -> String| {
        raw.map_or(String::new(), |raw| format!("raw-only {}", text(raw)))
    };
    let cards = [
        (
            unit.title,
            format!("{} {}", unit.figure(of), unit.name),
            beside(&|raw| format!("{} {}", unit.figure(raw), unit.name)),
            saved.map_or(String::new(), |saved| format!("saves {saved}")),
        ),
        (
            "Hits",
            percent(of.hit_ratio()),
            beside(&|raw| percent(raw.hit_ratio())),
            format!(
                "{} raw, {} compressed",
                percent(of.share(of.raw_hits)),
                percent(of.share(of.packed_hits))
            ),
        ),
        (
            "Slowest access of a hundred",
            format!("{} us", figures(of.tail_us.p99)),
            beside(&|raw| format!("{} us", figures(raw.tail_us.p99))),
            format!("of a thousand {} us", figures(of.tail_us.p999)),
        ),
        (
            "Data in a byte of memory",
            format!("{} bytes", figures(expansion(of))),
            beside(&|raw| figures(expansion(raw))),
            format!("at most {} in use", memory_size(of.peak_bytes)),
        ),
    ];
    let mut out = format!(
        "<section class=\"cards\" aria-label=\"{}\">\n",
        draw::escape(&of.policy)
    );
    for (title, value, cost, bounds) in cards {
        let _ = writeln!(
            out,
            "<div class=\"card {mark}\"><span class=\"metric\">{title}</span><b>{}</b>\
             <span class=\"cost\">{}</span><span class=\"bounds\">{}</span></div>",
            draw::escape(&value),
            draw::escape(&cost),
            draw::escape(&bounds)
        );
    }
    out + "</section>\n"
}

/// Bytes of pages held over bytes in use.
fn expansion(of: &PolicyReport) -> f64 {
    of.held_bytes as f64 / of.in_use_bytes.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PICTURES: [&str; 8] = [
        "times", "hits", "parts", "pools", "course", "split", "tail", "memory",
    ];

    #[test]
    fn the_page_has_its_pictures_and_no_script() {
        let page = html(&testing::report());
        for id in PICTURES {
            let start = format!("<svg class=\"plot\" id=\"{id}\"");
            assert_eq!(page.matches(&start).count(), 1, "{id}");
        }
        for word in [
            "http://", "https://", "url(http", "@import", "NaN", "inf ", "<script",
        ] {
            assert!(!page.contains(word), "{word}");
        }
        for element in [
            "svg", "g", "text", "table", "tr", "td", "section", "figure", "div",
        ] {
            let open = page.matches(&format!("<{element}>")).count()
                + page.matches(&format!("<{element} ")).count();
            let closed = page.matches(&format!("</{element}>")).count();
            assert_eq!(open, closed, "{element}");
        }
    }

    #[test]
    fn hostile_names_stay_text() {
        let plain = html(&testing::report());
        for name in [
            "</script><script>alert(1)</script>",
            "\"><img src=x>",
            "' onload='x",
            "<!--",
        ] {
            let mut report = testing::report();
            report.accesses_of = name.to_string();
            report.headline = name.to_string();
            report.machine.processor.name = name.to_string();
            for of in report.policies.iter_mut().chain(&mut report.splits) {
                of.policy.push_str(name);
                of.method = Some(name.to_string());
                of.in_force = name.to_string();
            }
            let page = html(&report);
            for element in ["<script", "<img", "<!--", "' onload"] {
                let expected = plain.matches(element).count();
                assert_eq!(page.matches(element).count(), expected, "{name}");
            }
        }
    }

    #[test]
    fn strange_numbers_do_not_break_the_page() {
        for value in [0.0, -1.0, 1e300, f64::NAN, f64::INFINITY] {
            let mut report = testing::report();
            report.miss_us = value;
            report.accesses = 0;
            report.keys = 0;
            report.memory_bytes = 0;
            for of in report.policies.iter_mut().chain(&mut report.splits) {
                of.us_per_access = value;
                of.compressed_share = value;
                of.encode_seconds = value;
                of.accesses = 0;
                of.parts[0].us = value;
                of.slower[0].us = value;
            }
            report.compare();
            let page = html(&report);
            assert!(page.contains("</html>") && !page.contains("NaN"), "{value}");
        }
        let mut nothing = testing::report();
        nothing.policies.clear();
        nothing.splits.clear();
        nothing.compare();
        assert!(html(&nothing).contains("</html>"));
    }

    /// A replay that was saved and read again makes the same page.
    #[test]
    fn the_saved_replay_is_enough() {
        let report = testing::report();
        let saved = serde_json::to_string(&report).expect("JSON");
        let read: ReplayReport = serde_json::from_str(&saved).expect("a replay");
        assert_eq!(html(&read), html(&report));
    }

    #[test]
    fn pictures_stand_alone() {
        let names: Vec<&str> = pictures(&testing::report()).iter().map(|it| it.0).collect();
        assert_eq!(names, PICTURES);
    }
}
