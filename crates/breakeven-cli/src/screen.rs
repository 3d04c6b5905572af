//! The report on one screen: the advice for each place, its saving and cost, and the conditions that would turn it.
//!
//! At most [`LINES_MAX`] lines of [`COLUMNS`] columns. Everything there is stands in
//! [`text::render`](crate::text::render).

use std::fmt::Write;

use breakeven::advise::report::{
    BestSplitReport, ClassReport, MethodReport, Report, VerdictReport,
};
use breakeven::advise::sample::CACHE_BLOCK_BYTES;
use breakeven::advise::{class_words, densest, densest_of};
use breakeven::units::Estimate;

use crate::text::{
    archive, figures, flip, machine_line, percent, percent_range, printable, size, told,
};

/// Columns of a screen.
pub const COLUMNS: usize = 100;
/// Lines of a screen.
pub const LINES_MAX: usize = 40;
/// Kinds of data that are shown, and the share of the bytes below which one is not.
const KINDS_MAX: usize = 6;
const KIND_SHARE_MIN: f64 = 0.01;
/// Longer names of media and links lose their beginning.
const NAME_CHARACTERS_MAX: usize = 40;
const LINK_CHARACTERS_MAX: usize = 12;
/// Lines of notes.
const NOTES_MAX: usize = 4;

/// Renders a report for a screen.
pub fn render(report: &Report) -> String {
    let mut lines = wrapped("", &report.headline);
    lines.push(String::new());
    rests_on(&mut lines, report);
    lines.push(String::new());
    places(&mut lines, report);
    lines.push(String::new());
    kinds(&mut lines, report);
    tools(&mut lines, report);
    let saves = report.small_files.iter().find(|of| of.answer == "saves");
    if let Some(found) = saves {
        lines.extend(wrapped("archive  ", &archive(found)));
        lines.push(String::new());
    }
    let (last, note_count) = (
        "All tables, methods and reasons: --all; a page with pictures: --report FILE.html",
        report.notes.len(),
    );
    let room = LINES_MAX.saturating_sub(lines.len() + 1).min(NOTES_MAX);
    let mut notes = Vec::new();
    for note in &report.notes {
        let note = wrapped("note: ", note);
        // Half a sentence is worse than none, but for the first, which weighs most.
        if !notes.is_empty() && notes.len() + note.len() > room {
            break;
        }
        notes.extend(note);
    }
    notes.truncate(room);
    lines.extend(notes);
    lines.push(match note_count {
        0 => format!("{last}."),
        count => format!("{last}. Notes: {count}."),
    });
    let mut out = String::new();
    for line in lines {
        let _ = writeln!(out, "{}", printable(line.trim_end()));
    }
    out
}

/// Breaks a text between words; its first line begins with `title`, and the others as far in.
fn wrapped(title: &str, text: &str) -> Vec<String> {
    let indent = title.chars().count();
    let mut lines = Vec::new();
    let mut line = title.to_string();
    let mut width = indent;
    for word in text.split(' ') {
        let count = word.chars().count();
        if width > indent && width + count > COLUMNS {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            width = indent;
        }
        line.push_str(word);
        line.push(' ');
        width += count + 1;
    }
    lines.push(line);
    lines
}

fn rests_on(lines: &mut Vec<String>, report: &Report) {
    let (sample, medium, terms) = (&report.sample, &report.medium, &report.terms);
    let why = match sample.ended.as_str() {
        "complete" => "all of it was measured",
        "precise" => "which is as sure as asked for",
        "time" => "time was up (--time)",
        _ => "it was interrupted",
    };
    let looked_at = format!(
        "{} of {} in {} {}, the least certain ratio to +- {}: {why}; seed {}",
        size(sample.bytes as f64),
        size(sample.population_bytes as f64),
        grouped(sample.files),
        if sample.files == 1 { "file" } else { "files" },
        percent(sample.bound),
        sample.seed,
    );
    let rates = format!(
        "{}: reads {} MB/s, writes {} MB/s, random 8 KiB read {} us ({})",
        shortened(&medium.name, NAME_CHARACTERS_MAX),
        figures(medium.read_mb_s.mean),
        figures(medium.write_mb_s.mean),
        figures(medium.random_read_us.mean),
        medium.source,
    );
    let Estimate { low, high, .. } = terms.reads_per_write;
    let reads = match low == high {
        true => format!("{low}"),
        false => format!("{low} to {high}"),
    };
    let asked = format!(
        "{reads} reads for each write, kept {} days, compressed by {} threads",
        terms.days_kept, terms.threads
    );
    lines.extend(wrapped("sample   ", &looked_at));
    lines.extend(wrapped("medium   ", &rates));
    lines.extend(wrapped("machine  ", &machine_line(report)));
    lines.extend(wrapped("asked    ", &asked));
}

/// A count with its thousands set apart.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Keeps the end of a name, which says more of a path than its beginning.
fn shortened(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_string();
    }
    let end = name.chars().skip(count + 3 - most);
    format!("...{}", end.collect::<String>())
}

/// One row of the table of places.
struct Row {
    place: String,
    action: String,
    saves: String,
    costs: String,
    turns: String,
}

fn places(lines: &mut Vec<String>, report: &Report) {
    let link = format!(
        "link {}",
        shortened(&report.terms.link_name, LINK_CHARACTERS_MAX)
    );
    let names = [
        ("file", "files"),
        ("pages", "database pages"),
        ("link", link.as_str()),
        ("cache", "buffer cache"),
    ];
    let mut rows = vec![Row {
        place: "where".to_string(),
        action: "do".to_string(),
        saves: "saves (or would cost)".to_string(),
        costs: "core seconds a GB".to_string(),
        turns: "turns to".to_string(),
    }];
    for (place, name) in names {
        rows.extend(row(report, place, name));
    }
    let widest = |of: fn(&Row) -> &String| rows.iter().map(|row| of(row).len()).max().unwrap_or(0);
    let widths = [
        widest(|row| &row.place),
        widest(|row| &row.action),
        widest(|row| &row.saves),
        widest(|row| &row.costs),
    ];
    let [place, action, saves, costs] = widths;
    for row in &rows {
        let line = format!(
            "{:<place$}  {:<action$}  {:<saves$}  {:<costs$}  ",
            row.place, row.action, row.saves, row.costs
        );
        if line.len() + row.turns.len() <= COLUMNS {
            lines.push(line + &row.turns);
        } else {
            lines.push(line);
            let indent = " ".repeat(place + 2);
            lines.push(format!("{indent}turns to {}", row.turns));
        }
    }
}

/// The metric of a place: over a link and before a cache somebody waits, at any worth of space.
fn metric<'r>(report: &'r Report, place: &str) -> &'r str {
    match (place, report.terms.prefer.as_str()) {
        (_, "energy") => "energy",
        ("link" | "cache", _) | (_, "time") => "time",
        _ => "money",
    }
}

/// The row of a place of bytes at rest for users who want the least space.
fn row_of_space(report: &Report, place: &str, name: &str) -> Row {
    let dense = densest(report, block_bytes(report, place));
    Row {
        place: name.to_string(),
        action: dense.map_or("leave raw".to_string(), |of| of.method.clone()),
        saves: dense.map_or("no method saves 1 %".to_string(), |of| space(of, "space")),
        costs: dense.map_or("none".to_string(), work),
        turns: String::new(),
    }
}

/// Whether least space decides on a place.
fn is_by_space(report: &Report, place: &str) -> bool {
    report.terms.prefer == "space" && matches!(place, "file" | "pages")
}

fn row(report: &Report, place: &str, name: &str) -> Option<Row> {
    if is_by_space(report, place) {
        return Some(row_of_space(report, place, name));
    }
    let metric = metric(report, place);
    let verdict = report.verdicts.iter().find(|verdict| {
        verdict.class == "all" && verdict.place == place && verdict.metric == metric
    })?;
    let cost = percent_range(&verdict.cost_ratio);
    let turns = verdict.flips_at.first().map_or(String::new(), flip);
    let split = report.cache.as_ref().and_then(|cache| {
        let best = cache.best.iter().find(|best| best.metric == metric);
        best.filter(|_| place == "cache")
    });
    let method = |text: &str| measured(report, place, text);
    let would_cost = || format!("{}: {cost} of {metric}", verdict.candidate);
    let (action, saves, costs, turns) = match verdict.answer.as_str() {
        "undecided" => {
            let costs = method(&verdict.candidate).map_or(String::new(), work);
            ("undecided".to_string(), would_cost(), costs, turns)
        }
        _ if verdict.method != verdict.candidate => (
            "leave raw".to_string(),
            would_cost(),
            "none".to_string(),
            turns,
        ),
        _ => {
            let (action, saves) = compresses(verdict, split, method(&verdict.method));
            let costs = method(&verdict.method).map_or(String::new(), work);
            (action, saves, costs, turns)
        }
    };
    Some(Row {
        place: name.to_string(),
        action,
        saves,
        costs,
        turns,
    })
}

/// The advice where compressing pays, and its saving.
fn compresses(
    verdict: &VerdictReport,
    split: Option<&BestSplitReport>,
    method: Option<&MethodReport>,
) -> (String, String) {
    let kept = verdict.cost_ratio;
    let saved = Estimate {
        mean: 1.0 - kept.mean,
        low: 1.0 - kept.high,
        high: 1.0 - kept.low,
    };
    let metric = format!("{} of {}", percent_range(&saved), verdict.metric);
    if let Some(split) = split {
        let share = format!(
            "{} in {:.0} %",
            verdict.method,
            100.0 * split.compressed_share
        );
        return (share, metric);
    }
    let what = match verdict.place.as_str() {
        "link" => "bytes",
        _ => "space",
    };
    let saves = match method {
        Some(method) => format!("{}, {metric}", space(method, what)),
        None => metric,
    };
    (verdict.method.clone(), saves)
}

fn space(method: &MethodReport, what: &str) -> String {
    let ratio = match what {
        "space" => method.space_ratio(),
        _ => method.ratio,
    };
    let saved = 1.0 - 1.0 / ratio.mean;
    format!("{:.0} % of {what}", 100.0 * saved)
}

/// The work of a core for a GB, each way.
fn work(method: &MethodReport) -> String {
    format!(
        "{} in, {} out",
        figures(method.compress_work.core_s_per_gb.mean),
        figures(method.decompress_work.core_s_per_gb.mean)
    )
}

fn block_bytes(report: &Report, place: &str) -> u64 {
    match place {
        "pages" => report.terms.page_bytes,
        "cache" => CACHE_BLOCK_BYTES as u64,
        _ => report.sample.block_bytes,
    }
}

/// The measurement of a method on all data, in the blocks of a place.
fn measured<'r>(report: &'r Report, place: &str, method: &str) -> Option<&'r MethodReport> {
    let block_bytes = block_bytes(report, place);
    let all = report.classes.iter().find(|class| class.name == "all")?;
    let mut methods = all.methods.iter();
    methods.find(|of| of.method == method && of.block_bytes == block_bytes)
}

/// The largest kinds of data, with the best method for files of them.
fn kinds(lines: &mut Vec<String>, report: &Report) {
    let total = report.sample.population_bytes.max(1) as f64;
    let share = |bytes: f64| percent(bytes / total);
    let classes = report.classes.iter().filter(|class| class.name != "all");
    let shown: Vec<_> = classes
        .clone()
        .filter(|class| class.bytes.mean >= KIND_SHARE_MIN * total)
        .take(KINDS_MAX)
        .collect();
    if shown.is_empty() {
        return;
    }
    lines.push(format!(
        "{:<26} {:>8}  {:<11} ratio",
        "kind of data", "bytes", "as files"
    ));
    for class in &shown {
        let (best, ratio) = best_of_kind(report, class);
        lines.push(format!(
            "{:<26} {:>8}  {best:<11} {ratio}",
            class_words(&class.name),
            share(class.bytes.mean),
        ));
    }
    let others = classes.count() - shown.len();
    let shown_bytes: f64 = shown.iter().map(|class| class.bytes.mean).sum();
    if others > 0 {
        let rest = share((total - shown_bytes).max(0.0));
        lines.push(format!("{:<26} {rest:>8}", format!("{others} other kinds")));
    }
    lines.push(String::new());
}

/// The best method for files of a kind, and its ratio.
fn best_of_kind(report: &Report, class: &ClassReport) -> (String, String) {
    let block = report.sample.block_bytes;
    if is_by_space(report, "file") {
        return match densest_of(class, block) {
            Some(dense) => (dense.method.clone(), crate::text::ratio(&dense.ratio)),
            None => ("leave raw".to_string(), String::new()),
        };
    }
    let verdict = report.verdicts.iter().find(|verdict| {
        let here = verdict.place == "file" && verdict.metric == metric(report, "file");
        here && verdict.class == class.name
    });
    let Some(verdict) = verdict else {
        return ("not measured".to_string(), String::new());
    };
    let is_candidate =
        |of: &&MethodReport| of.method == verdict.candidate && of.block_bytes == block;
    let found = class.methods.iter().find(is_candidate);
    let ratio = found.map_or(String::new(), |of| crate::text::ratio(&of.ratio));
    let by = format!("{ratio} by {}", verdict.candidate);
    match verdict.answer.as_str() {
        "undecided" => ("undecided".to_string(), by),
        _ if verdict.method == verdict.candidate => (verdict.method.clone(), ratio),
        _ => ("leave raw".to_string(), by),
    }
}

/// One line for each tool; of settings that are longer than it only the first.
fn tools(lines: &mut Vec<String>, report: &Report) {
    if report.suggestions.is_empty() {
        return;
    }
    for suggestion in &report.suggestions {
        let begin = format!("{:<10} {:<16} ", suggestion.tool, suggestion.subject);
        let whole = format!("{begin}{}", told(suggestion));
        let first = suggestion.settings.first();
        lines.push(match first {
            Some(first) if whole.chars().count() > COLUMNS => {
                let off = match suggestion.answer.as_str() {
                    "leave_off" => "leave it off: ",
                    _ => "",
                };
                format!("{begin}{off}{first} ...")
            }
            _ => whole,
        });
    }
    lines.push(String::new());
}

#[cfg(test)]
mod tests {
    use breakeven::advise::report::{Evidence, SmallFilesReport};

    use super::*;
    use crate::report::testing::report;

    #[track_caller]
    fn check_fits(report: &Report) -> String {
        let text = render(report);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() <= LINES_MAX, "{} lines:\n{text}", lines.len());
        for line in lines {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
        text
    }

    #[test]
    fn a_report_fits_a_screen_and_has_every_place() {
        let mut report = report();
        for prefer in ["money", "time", "energy", "space"] {
            report.terms.prefer = prefer.to_string();
            let text = check_fits(&report);
            for word in [
                "files ",
                "database pages ",
                "link ",
                "sample ",
                "medium ",
                "--all",
            ] {
                assert!(text.contains(word), "{word}:\n{text}");
            }
        }
    }

    #[test]
    fn least_space_decides_on_the_kinds_of_data_too() {
        let mut report = report();
        report.terms.prefer = "space".to_string();
        let block = report.sample.block_bytes;
        for class in &mut report.classes {
            for method in &mut class.methods {
                let is_dense = method.method == "xz:6" && method.block_bytes == block;
                let ratio = Estimate::exact(if is_dense { 9.0 } else { 1.001 });
                (method.ratio, method.allocated_ratio) = (ratio, Some(ratio));
                method.evidence = Evidence::Measured;
            }
        }
        let packed = report.classes[0].name.clone();
        report.classes[0].methods.retain(|of| of.method != "xz:6");
        let text = check_fits(&report);
        let begin = text.find("kind of data").expect("the kinds");
        let kinds: Vec<&str> = text[begin..]
            .lines()
            .skip(1)
            .take(report.classes.len() - 1)
            .collect();
        for kind in kinds.iter().filter(|kind| !kind.contains("other kinds")) {
            let is_packed = kind.starts_with(&class_words(&packed));
            let expected = if is_packed { "leave raw" } else { "xz:6" };
            assert!(kind.contains(expected), "{kind}: {expected}\n{text}");
        }
        assert!(text.contains("files           xz:6"), "{text}");
    }

    #[test]
    fn an_archive_is_told_where_it_saves() {
        let mut report = report();
        let mut found = SmallFilesReport {
            files: 3400,
            bytes: 12_000_000,
            method: "zstd:3".to_string(),
            matches_far: true,
            answer: "saves".to_string(),
            alone_bytes: 14e6,
            archive_bytes: 2.8e6,
            saved_share: Estimate::plus_minus(0.8, 0.02),
            read_alone_us: 120.0,
            read_archived_us: 14_000.0,
            runs: 11,
        };
        report.small_files = Some(found.clone());
        let text = check_fits(&report);
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "archive 3400 small files of 12.0 MB in one archive: saves 78-82 %; by zstd:3 with far matches it takes 2.80 MB in place of 14.0 MB,",
            "to read one file 14.0 ms on the mean in place of 0.120",
        ] {
            assert!(words.contains(part), "{words}");
        }
        found.answer = "saves_nothing".to_string();
        report.small_files = Some(found);
        assert!(!check_fits(&report).contains("small files"));
    }

    #[test]
    fn counts_are_told_whole() {
        for (count, expected) in [
            (0, "0"),
            (55, "55"),
            (1_000, "1,000"),
            (12_345_678, "12,345,678"),
        ] {
            assert_eq!(grouped(count), expected);
        }
    }

    #[test]
    fn notes_are_whole_or_left_out() {
        let mut report = report();
        report.sample.files = 1;
        let long = "word ".repeat(30) + "end";
        report.notes = vec!["a first".to_string(), long.clone(), long.clone()];
        let text = check_fits(&report);
        assert_eq!(text.matches(" end\n").count(), 1, "{text}");
        assert_eq!(text.matches("note: ").count(), 2, "{text}");
        assert!(text.contains(" in 1 file, "), "{text}");
    }

    #[test]
    fn many_kinds_notes_and_long_names_fit_too() {
        let mut report = report();
        report.medium.name = "/a\u{1b}[31m/".to_string() + &"long/".repeat(40);
        report.terms.link_name = "a link with quite a long name of its own".to_string();
        report.notes = (0..50)
            .map(|number| format!("{number} {}", "word ".repeat(60)))
            .collect();
        let class = report.classes[0].clone();
        for number in 0..30 {
            let mut other = class.clone();
            other.name = format!("rough-numbers-{number}");
            report.classes.insert(0, other);
        }
        let text = check_fits(&report);
        assert!(!text.contains('\u{1b}'), "control codes reach the terminal");
        assert!(text.contains("noisy 29-byte numbers"), "{text}");
    }
}
