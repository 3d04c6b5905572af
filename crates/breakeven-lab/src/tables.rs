//! Markdown from records, and its place in a page.
//!
//! A page keeps, for each experiment, a pair of marks; what stands between them is written by
//! `breakeven-lab figures` from the records and by nobody else. The rest of the page is prose.

use std::path::Path;

use anyhow::{Context, Result};

use crate::experiment::Experiment;
use crate::laboratory::Finding;
use crate::record::{self, CellRecord, Record};
use crate::statistics::Verdict;

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
        "Machine: {machine}. Code: {}. Since {first}.\n\n",
        commits.join(", ")
    )
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
        let mean = match found.runs {
            0 => found.middle.to_string(),
            _ => format!("{:.3}", found.middle),
        };
        text.push_str(&format!(
            "| {} | {mean} | {interval} | {} | {} |\n",
            finding.question, finding.verdict, finding.note
        ));
    }
    text
}

/// Returns where findings come from, what they come to, and their table; of none only the first.
pub fn judged(origin: String, findings: &[Finding]) -> String {
    if findings.is_empty() {
        return origin;
    }
    let (rows, summary) = (self::findings(findings), summary(findings));
    format!("{origin}Verdict: {summary}.\n\n{rows}")
}

/// Returns what is found in the latest cells of a record.
pub fn table_of(
    records: &Path,
    record: &str,
    columns: &'static [&'static str],
    judge: impl Fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<String> {
    let cells = Record::new(records, record, columns).latest()?;
    let findings = match cells.is_empty() {
        true => Vec::new(),
        false => judge(&cells),
    };
    Ok(judged(origin(records, &cells), &findings))
}

/// Returns the verdict on a claim: the worst on its core cells.
pub fn verdict(findings: &[Finding]) -> Option<Verdict> {
    let core = findings.iter().filter(|finding| finding.core);
    core.map(|finding| finding.verdict).max()
}

/// Returns a line that sums findings up.
pub fn summary(findings: &[Finding]) -> String {
    let counts = |core: bool| {
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
    };
    let verdict = verdict(findings);
    let verdict = verdict.map_or("nothing measured".to_string(), |verdict| {
        verdict.to_string()
    });
    let mut text = format!("{verdict} (core: {}", counts(true));
    if findings.iter().any(|finding| !finding.core) {
        text.push_str(&format!("; variations: {}", counts(false)));
    }
    text + ")"
}

/// Returns what is expected of an experiment, and by whom.
pub fn expectation(experiment: &Experiment) -> String {
    format!(
        "Expected: {} {} ({})",
        experiment.figure, experiment.target, experiment.source
    )
}

/// Returns all that a page says about an experiment.
pub fn section(experiment: &Experiment, records: &Path) -> Result<String> {
    let mut text = format!("**{}** {}.\n\n", experiment.claim, expectation(experiment));
    for (name, value) in experiment.parameters {
        text.push_str(&format!("- {name}: {value}\n"));
    }
    text.push_str(&format!("\n{}\n\n", experiment.analysis));
    text.push_str(&format!(
        "    cargo run -p breakeven-lab -- run {} && cargo run -p breakeven-lab -- figures\n\n",
        experiment.key
    ));
    text.push_str((experiment.table)(records)?.trim_end());
    Ok(text)
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

/// Puts `section` between the marks of `key`.
///
/// # Errors
///
/// If the page has no such marks, or the second before the first.
pub fn splice(page: &str, key: &str, section: &str) -> Result<String> {
    let (begin, end) = (
        format!("<!-- BEGIN {key} -->\n"),
        format!("<!-- END {key} -->\n"),
    );
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
