//! Tables 5.1 to 5.3 again: from how many reads per write compressing pays, in T, E and ET.

use std::path::Path;

use anyhow::Result;
use breakeven::model::{Answer, Outcome, Verdict as Answered, outcome};

use super::claims::PARAMETERS;
use super::contenders::PLAIN;
use super::files::FileType;
use super::measured::{self, Measured, Metric, RUNS_MIN};
use super::pictures;
use super::published::{self, BREAK_EVENS};
use super::tasks;
use crate::experiment::Experiment;
use crate::laboratory::Finding;
use crate::record::CellRecord;
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::Shown;

pub const EXPERIMENT: Experiment = Experiment {
    key: "kothiyal2009/break-even",
    claim: "The reads per write from which compressing pays in time are those of Table 5.1 for the server.",
    source: "section 4.4, equation 2, and Table 5.1",
    figure: "our break-even in time over the published one, 0 where it always pays here and infinite where it never does",
    target: Target {
        low: 0.5,
        high: 2.0,
    },
    parameters: PARAMETERS,
    analysis: "A break-even is a quotient of two differences, each of a fast and a slow thing. So it moves by factors \
        where times move by percents. A claim of its size holds for one processor and one disk. In E the watts are \
        modelled, not measured. A common factor in them cancels. Their split between idle and busy does not, and the \
        split is the model's. The numbers in E and ET are therefore arithmetic on measured times, no finding about \
        energy.",
    run: |laboratory| Ok(findings(&tasks::measure(laboratory)?)),
    table,
    pictures: pictures::saved,
};

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in FileType::ALL {
        for row in published::SERVER.rows {
            let number = published::number(row.cell(file), 0);
            let measured = measured::find(cells, file, row.name);
            if let (Some(number), Some(measured)) = (number, measured) {
                found.push(finding(&measured, file, number));
            }
        }
    }
    found
}

fn finding(measured: &Measured<'_>, file: FileType, number: f64) -> Finding {
    let own = outcome(&measured.costs(Metric::Time).mean());
    let answered = measured.verdict(Metric::Time);
    let found = quotient(own, &answered, number, measured.runs_min());
    let from = measured.scaled_from();
    Finding {
        question: format!("{} {}", file.name(), measured.name),
        core: file == FileType::Text,
        found,
        verdict: match answered.answer {
            Answer::Undecided => Verdict::CannotTell,
            _ => EXPERIMENT.target.judge_by(found, RUNS_MIN),
        },
        note: format!(
            "{} here, published {number}{}",
            words(own),
            from.map_or(String::new(), |size| format!("; scaled from {size}"))
        ),
    }
}

/// Returns our break-even over the published one with its interval.
fn quotient(own: Outcome, answered: &Answered, number: f64, runs: usize) -> Interval {
    let single = |value: f64| Interval {
        middle: value,
        low: value,
        high: value,
        runs,
    };
    match own {
        Outcome::Always | Outcome::Below(_) => single(0.0),
        Outcome::Never => single(f64::INFINITY),
        Outcome::Above(value) => Interval {
            middle: value / number,
            low: answered.low.unwrap_or(0.0) / number,
            high: answered.high.unwrap_or(f64::INFINITY) / number,
            runs,
        },
    }
}

/// Returns an outcome as the paper's tables print it, and the fourth one that they lack.
pub fn words(outcome: Outcome) -> String {
    let number = |value: f64| match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("~10^{}", value.log10().floor()),
    };
    match outcome {
        Outcome::Always => "always".to_string(),
        Outcome::Never => "never".to_string(),
        Outcome::Above(value) => number(value),
        Outcome::Below(value) => format!("below {}", number(value)),
    }
}

/// Our break-evens of a contender in T / E / ET, or one word where all three say it.
fn cell(measured: &Measured<'_>) -> String {
    let all = Metric::ALL.map(|metric| words(outcome(&measured.costs(metric).mean())));
    let undecided = measured.verdict(Metric::Time).answer == Answer::Undecided;
    let mark = if undecided { " ?" } else { "" };
    if all.iter().all(|one| *one == all[0]) && all[0].chars().all(char::is_alphabetic) {
        return format!("{}{mark}", all[0]);
    }
    format!("{}{mark}", all.join(" / "))
}

fn table(records: &Path) -> Result<Shown> {
    let mut text = super::claims::table(records, findings)?;
    let cells = tasks::recorded(records)?;
    if cells.is_empty() {
        return Ok(text);
    }
    text.push_str(
        "\nTables 5.1, 5.2 and 5.3 again: reads per write from which compressing pays, in T / E / ET. `?`: \
         the answer in T is not the same over the whole interval of the times. E and ET with modelled watts.\n",
    );
    for file in FileType::ALL {
        let titles: Vec<&str> = BREAK_EVENS.iter().map(|table| table.title).collect();
        text.push_str(&format!(
            "\n| {} | here | {} |\n|---|---|---|---|---|\n",
            file.name(),
            titles.join(" | ")
        ));
        let all = measured::of_file(&cells, file).into_iter();
        for measured in all.filter(|measured| measured.name != PLAIN) {
            let published = BREAK_EVENS.iter().map(|table| {
                let row = published::find(table.rows, measured.name);
                row.map_or("", |row| row.cell(file))
            });
            let published: Vec<&str> = published.collect();
            let from = measured.scaled_from();
            let from = from.map_or(String::new(), |size| format!(" (from {size})"));
            text.push_str(&format!(
                "| {}{from} | {} | {} |\n",
                measured.name,
                cell(&measured),
                published.join(" | ")
            ));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_printed_as_the_paper_does() {
        let check = |outcome: Outcome, expected: &str| assert_eq!(words(outcome), expected);
        check(Outcome::Always, "always");
        check(Outcome::Never, "never");
        check(Outcome::Above(0.834), "0.83");
        check(Outcome::Above(24.93), "24.9");
        check(Outcome::Above(1234.0), "~10^3");
        check(Outcome::Below(3.0), "below 3.00");
    }
}
