//! Markdown from records, and its place in a page.
//!
//! A page keeps a pair of marks for each experiment. `breakeven-lab figures` alone writes the text between them, from
//! the records. The rest of the page is prose.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::experiment::Experiment;
use crate::laboratory::Finding;
use crate::record::{self, CellRecord, Record};
use crate::statistics::{Interval, Verdict};

/// The part of an experiment's records that a page shows.
pub struct Shown {
    /// The findings; nothing where nothing is recorded, or nothing judged.
    pub findings: Vec<Finding>,
    /// Markdown: where the findings come from, their table, and tables beside it.
    pub text: String,
}

impl Shown {
    /// Shows a text in which nothing is judged.
    pub fn unjudged(text: String) -> Shown {
        Shown {
            findings: Vec::new(),
            text,
        }
    }

    /// Shows some more Markdown below.
    pub fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }
}

/// Returns a size as people write it, in KiB or MiB where it is whole.
pub fn binary_size(bytes: usize) -> String {
    match bytes {
        _ if bytes > 0 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes > 0 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} bytes"),
    }
}

/// Returns a line that says where cells come from.
pub fn origin(records: &Path, cells: &[CellRecord]) -> String {
    let Some(last) = cells.last() else {
        return "Nothing is recorded yet.\n".to_string();
    };
    let machine = record::machine_description(records, &last.machine);
    let first = cells.iter().map(|cell| &cell.date).min();
    let first = first.map_or("", |date| &date[..date.len().min(10)]);
    let mut commits: Vec<&str> = cells.iter().map(|cell| cell.commit.as_str()).collect();
    commits.dedup();
    format!(
        "Machine: {machine}. Code: {}. Since {first}.{}\n\n",
        commits.join(", "),
        versions(cells)
    )
}

/// Returns a sentence on the peers that cells were measured beside, as their parameters name them.
fn versions(cells: &[CellRecord]) -> String {
    let mut versions: Vec<String> = Vec::new();
    for cell in cells {
        let told = ["peers", "with"].map(|name| cell.parameter(name).unwrap_or_default());
        for version in told.iter().flat_map(|told| split_versions(told)) {
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
    }
    match versions.is_empty() {
        true => String::new(),
        false => format!(" Peers: {}.", versions.join(", ")),
    }
}

/// Splits versions at the signs between programs; Debian has the same sign within versions.
fn split_versions(told: &str) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for piece in told.split('+') {
        let is_within = ["deb", "dfsg", "ds"].iter().any(|it| piece.starts_with(it))
            || piece.starts_with(|letter: char| letter.is_ascii_digit());
        match versions.last_mut().filter(|_| is_within) {
            Some(last) => last.push_str(&format!("+{piece}")),
            None => versions.push(piece.to_string()),
        }
    }
    let words = |version: String| {
        let words = version.replace(['-', '+'], " ").replace('*', "");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let versions = versions.into_iter().map(words);
    versions.filter(|version| !version.is_empty()).collect()
}

/// Returns a table of findings.
pub fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let mut text =
        "| cell | figure | 95 % interval | verdict | |\n|---|---:|---:|---|---|\n".to_string();
    for finding in findings {
        let found = &finding.found;
        let interval = match found.runs {
            0 => "exact".to_string(),
            _ => format!("{:.3} to {:.3}", found.low, found.high),
        };
        text.push_str(&format!(
            "| {} | {} | {interval} | {} | {} |\n",
            finding.question,
            figure(found),
            finding.verdict,
            finding.note
        ));
    }
    text
}

/// Writes the middle of an interval: a count that is exact in full, a share to five digits.
fn figure(found: &Interval) -> String {
    let exact = found.middle;
    match found.runs {
        0 if exact.fract() == 0.0 => exact.to_string(),
        0 => {
            let decimals = (4.0 - exact.abs().log10().floor()).clamp(0.0, 12.0);
            let rounded = format!("{exact:.0$}", decimals as usize);
            // Without zeros at its end.
            rounded.parse::<f64>().unwrap_or(exact).to_string()
        }
        _ => format!("{:.3}", found.middle),
    }
}

/// Returns the source of findings, their verdict, and their table; of none only the first.
pub fn judged(origin: String, findings: Vec<Finding>) -> Shown {
    if findings.is_empty() {
        return Shown::unjudged(origin);
    }
    let (rows, summary) = (self::findings(&findings), summary(&findings));
    Shown {
        findings,
        text: format!("{origin}Verdict: {summary}.\n\n{rows}"),
    }
}

/// Returns the findings of the latest cells of a record.
pub fn table_of(
    records: &Path,
    record: &str,
    columns: &'static [&'static str],
    judge: impl Fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<Shown> {
    let cells = Record::new(records, record, columns).latest()?;
    let findings = match cells.is_empty() {
        true => Vec::new(),
        false => judge(&cells),
    };
    Ok(judged(origin(records, &cells), findings))
}

/// Returns the verdict on a claim: the worst on its core cells.
pub fn verdict(findings: &[Finding]) -> Option<Verdict> {
    let core = findings.iter().filter(|finding| finding.core);
    core.map(|finding| finding.verdict).max()
}

/// Returns a line that sums findings up.
pub fn summary(findings: &[Finding]) -> String {
    let verdict = verdict(findings);
    let verdict = verdict.map_or("nothing measured".to_string(), |verdict| {
        verdict.to_string()
    });
    let mut text = format!("{verdict} (core: {}", counts(findings, true));
    if findings.iter().any(|finding| !finding.core) {
        text.push_str(&format!("; variations: {}", counts(findings, false)));
    }
    text + ")"
}

/// Says how many of the core cells, or of the others, have each verdict.
fn counts(findings: &[Finding], core: bool) -> String {
    let count = |verdict: Verdict| {
        let same = findings
            .iter()
            .filter(|f| f.core == core && f.verdict == verdict);
        same.count()
    };
    format!(
        "{} hold, {} differ, {} cannot tell",
        count(Verdict::Holds),
        count(Verdict::Differs),
        count(Verdict::CannotTell)
    )
}

/// Returns the expected figure of an experiment, with its source.
pub fn expectation(experiment: &Experiment) -> String {
    format!(
        "Expected: {} {} ({})",
        experiment.figure, experiment.target, experiment.source
    )
}

/// How many cells of an experiment that lose an overview names.
const WORST_SHOWN: usize = 6;

/// Returns a table of experiments: the expected figure of each, the least and the greatest figure of its core cells,
/// their verdict, and those that lose, the worst first.
pub fn overview(shown: &[(&Experiment, Vec<Finding>)]) -> String {
    let mut text = "Figures and verdicts are those of the core cells. Each experiment's own table has the variations, the intervals, and the \
         targets of cells that have their own.\n\n\
         | experiment | claim | expected | least | greatest | verdict | cells that differ |\n|---|---|---|---:|---:|---|---|\n"
        .to_string();
    for (experiment, findings) in shown {
        let core = findings.iter().filter(|finding| finding.core);
        let mut core: Vec<&Finding> = core.collect();
        core.sort_by(|a, b| a.found.middle.total_cmp(&b.found.middle));
        let end = |of: Option<&&Finding>| of.map_or("-".to_string(), |it| figure(&it.found));
        let verdict = match verdict(findings) {
            Some(verdict) => format!("{verdict}: {}", counts(findings, true)),
            None => "nothing measured".to_string(),
        };
        let (least, greatest) = (end(core.first()), end(core.last()));
        core.retain(|it| it.verdict == Verdict::Differs);
        let target = experiment.target;
        let excess = |it: &Finding| {
            let middle = it.found.middle;
            (target.low - middle).max(middle - target.high)
        };
        core.sort_by(|a, b| excess(b).total_cmp(&excess(a)));
        let worst = core.iter().take(WORST_SHOWN);
        let mut differs: Vec<String> = worst
            .map(|it| format!("{} {}", it.question, figure(&it.found)))
            .collect();
        if core.len() > WORST_SHOWN {
            differs.push(format!("{} more", core.len() - WORST_SHOWN));
        }
        let _ = writeln!(
            text,
            "| [{}](#{}) | {} | {} {} | {least} | {greatest} | {verdict} | {} |",
            experiment.name(),
            experiment.key.replace('/', ""),
            experiment.claim.trim_end_matches('.'),
            experiment.figure,
            experiment.target,
            differs.join("; ")
        );
    }
    text
}

/// Returns all that a page says about an experiment.
pub fn section(experiment: &Experiment, shown: &Shown) -> String {
    let mut text = format!("**{}** {}.\n\n", experiment.claim, expectation(experiment));
    for (name, value) in experiment.parameters {
        text.push_str(&format!("- {name}: {value}\n"));
    }
    text.push_str(&format!("\n{}\n\n", experiment.analysis));
    let told = |option: &str| {
        let texts = experiment.parameters.iter().map(|(_, text)| *text);
        texts
            .chain([experiment.analysis])
            .any(|text| text.contains(option))
    };
    let data = if told("--data") { " --data FOLDER" } else { "" };
    let size = if told("--paper-size") {
        " --paper-size"
    } else {
        ""
    };
    text.push_str(&format!(
        "    cargo run -p breakeven-lab -- run {}{data}{size} && cargo run -p breakeven-lab -- figures\n\n",
        experiment.key
    ));
    text.push_str(shown.text.trim_end());
    text
}

/// Makes text harmless inside Markdown's brackets, emphasis and tables.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        if "\\[]*_|`<".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

/// Returns the mark at the beginning of a key's text on a page.
fn begin(key: &str) -> String {
    format!("<!-- BEGIN {key} -->\n")
}

/// Returns whether a page has a place for a key's text.
pub fn has_marks(page: &str, key: &str) -> bool {
    page.contains(&begin(key))
}

/// Puts `section` between the marks of `key`.
///
/// # Errors
///
/// If the page has no such marks, or the second before the first.
pub fn splice(page: &str, key: &str, section: &str) -> Result<String> {
    let (begin, end) = (begin(key), format!("<!-- END {key} -->\n"));
    let missing = || format!("the page has no '{}'", begin.trim_end());
    let (before, rest) = page.split_once(&begin).with_context(missing)?;
    let missing = || format!("the page has no '{}' after its begin", end.trim_end());
    let (_, after) = rest.split_once(&end).with_context(missing)?;
    Ok(format!(
        "{before}{begin}\n{}\n\n{end}{after}",
        section.trim()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::{Interval, Target};

    #[test]
    fn versions_are_told_apart() {
        let check = |parameters: &str, expected: &str| {
            let cell = CellRecord::made_up("a", parameters, Vec::new());
            assert_eq!(versions(&[cell.clone(), cell]), expected);
        };
        check(
            "peers=fio-3.33+nbdkit-1.32.5 runs=1",
            " Peers: fio 3.33, nbdkit 1.32.5.",
        );
        check(
            "with=Python+3.11.2+SQLite+3.40.1",
            " Peers: Python 3.11.2, SQLite 3.40.1.",
        );
        check(
            "peers=***-Zstandard-CLI-v1.5.4-***",
            " Peers: Zstandard CLI v1.5.4.",
        );
        check(
            "peers=qemu-nbd-7.2.22-(Debian-1:7.2+dfsg-7+deb12u1)+mkfs.btrfs-6",
            " Peers: qemu nbd 7.2.22 (Debian 1:7.2 dfsg 7 deb12u1), mkfs.btrfs 6.",
        );
        check("missing=zstd", "");
        check("peers=", "");
    }

    #[test]
    fn sections_are_put_between_their_marks() {
        let page = "a\n<!-- BEGIN x/y -->\nold\n<!-- END x/y -->\nb\n";
        let found = splice(page, "x/y", "new\n").unwrap();
        assert_eq!(
            found,
            "a\n<!-- BEGIN x/y -->\n\nnew\n\n<!-- END x/y -->\nb\n"
        );
        assert_eq!(splice(&found, "x/y", "new").unwrap(), found);
        assert!(splice(page, "x/z", "new").is_err());
        assert!(splice("<!-- END x/y -->\n<!-- BEGIN x/y -->\n", "x/y", "").is_err());
    }

    #[test]
    fn findings_become_rows() {
        let found = Interval {
            middle: 0.9812,
            low: 0.975,
            high: 0.99,
            runs: 12,
        };
        let list = [
            Finding {
                question: "lz4:1 8 KiB compress".to_string(),
                core: true,
                found,
                verdict: Target::at_least(0.97).judge(found),
                note: "a note".to_string(),
            },
            Finding {
                question: "sizes".to_string(),
                core: false,
                found: Interval::exact(3.0),
                verdict: Verdict::Differs,
                note: "rows".to_string(),
            },
        ];
        let text = findings(&list);
        assert!(
            text.contains("| lz4:1 8 KiB compress | 0.981 | 0.975 to 0.990 | holds | a note |\n")
        );
        assert!(text.contains("| sizes | 3 | exact | differs | rows |\n"));
        for (exact, expected) in [
            (1.021995101733233, "1.022"),
            (0.44, "0.44"),
            (0.020987365596791596, "0.020987"),
            (123456.7, "123457"),
            (1e9, "1000000000"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(figure(&Interval::exact(exact)), expected);
        }
        assert_eq!(verdict(&list), Some(Verdict::Holds));
        assert_eq!(
            summary(&list),
            "holds (core: 1 hold, 0 differ, 0 cannot tell; \
             variations: 0 hold, 1 differ, 0 cannot tell)"
        );
        assert_eq!(verdict(&list[1..]), None);
        assert!(summary(&[]).starts_with("nothing measured"));
    }

    #[test]
    fn an_overview_shows_who_loses() {
        let experiment = crate::papers::all().next().unwrap();
        let finding = |question: &str, middle: f64, core: bool, verdict: Verdict| Finding {
            question: question.to_string(),
            core,
            found: Interval {
                middle,
                low: middle,
                high: middle,
                runs: 10,
            },
            verdict,
            note: String::new(),
        };
        let list = vec![
            finding("b", 1.25, true, Verdict::Differs),
            finding("a", 1.0, true, Verdict::Holds),
            finding("c", 9.0, false, Verdict::Differs),
            finding("d", 1.5, true, Verdict::Differs),
        ];
        let check = |findings: Vec<Finding>, expected: &str| {
            let text = overview(&[(experiment, findings)]);
            let row = text.lines().last().unwrap();
            assert!(
                row.starts_with("| [codec-overhead](#breakevencodec-overhead) |")
                    && row.ends_with(expected),
                "{row}"
            );
        };
        check(
            list,
            "| 1.000 | 1.500 | differs: 1 hold, 2 differ, 0 cannot tell | b 1.250; d 1.500 |",
        );
        check(Vec::new(), "| - | - | nothing measured |  |");
    }

    #[test]
    fn text_is_harmless() {
        assert_eq!(escape("a_b [c](d) *e*"), "a\\_b \\[c\\](d) \\*e\\*");
    }

    #[test]
    fn sizes_are_binary() {
        assert_eq!(binary_size(8192), "8 KiB");
        assert_eq!(binary_size(1 << 20), "1 MiB");
        assert_eq!(binary_size(1000), "1000 bytes");
    }
}
