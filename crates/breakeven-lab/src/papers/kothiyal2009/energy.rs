//! The paper's claims about energy, with the watts of this machine. They are modelled where nothing counts joules, and
//! then no claim about them is judged.

use std::path::Path;

use anyhow::Result;

use super::claims::PARAMETERS;
use super::files::FileType;
use super::measured::{self, Measured, Metric, RUNS_MIN};
use super::tasks::{self, READ, WRITE};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::Finding;
use crate::record::{self, CellRecord};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "kothiyal2009/energy",
    claim: "Energy is proportional to time: every task draws the mean power of a plain one.",
    source: "section 5.6, server and desktop",
    figure: "mean watts of a task over those of the plain task",
    target: Target {
        low: 0.9,
        high: 1.1,
    },
    parameters: PARAMETERS,
    analysis: "Modelled joules are watts times time. About proportionality they repeat the model's assumption and say \
        nothing about this machine, so with modelled watts the verdict is always cannot tell. The paper's server draws \
        218 W idle and little more when busy, so its energy follows time. A share of a modern server draws a multiple \
        when busy. So a task that computes costs more for each second than one that waits, as on the paper's laptop. A \
        disk's draw is not in the model.",
    run: |laboratory| Ok(findings(&tasks::measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut found = Vec::new();
    for file in [FileType::Text, FileType::Binary] {
        let all = measured::of_file(cells, file).into_iter();
        for measured in all.filter(|measured| super::claims::is_of_paper(measured.name)) {
            for task in [WRITE, READ] {
                found.push(finding(&measured, file, task));
            }
        }
    }
    found
}

fn finding(measured: &Measured<'_>, file: FileType, task: &str) -> Finding {
    let energy = measured.over_plain(task, Metric::Energy);
    let time = measured.over_plain(task, Metric::Time);
    let found = measured.power_over_plain(task);
    Finding {
        question: format!("{} {} {task}", file.name(), measured.name),
        core: file == FileType::Text,
        found,
        verdict: judge(found, measured.energy_source()),
        note: format!(
            "{:.1} W; {:.2} of the plain energy in {:.2} of the plain time",
            measured.parts(task).watts(),
            energy.middle,
            time.middle
        ),
    }
}

/// Judges a figure of energy: only where joules were counted.
fn judge(found: Interval, source: &str) -> Verdict {
    match source.starts_with("measured") {
        true => EXPERIMENT.target.judge_by(found, RUNS_MIN),
        false => Verdict::CannotTell,
    }
}

fn table(records: &Path) -> Result<Shown> {
    let mut text = super::claims::table(records, |_| Vec::new())?;
    let cells = tasks::recorded(records)?;
    let findings = findings(&cells);
    if findings.is_empty() {
        return Ok(text);
    }
    text.push_str(&machines(records, &cells));
    let source = measured::of_file(&cells, FileType::Text);
    let source = source
        .first()
        .map_or("default", |plain| plain.energy_source());
    text.push_str(&format!(
        "Verdict: {}.\n\nMean watts of each task, writing / reading. Source of the watts: {source}.\n\n\
         | | text | binary | random | zero |\n|---|---:|---:|---:|---:|\n",
        tables::summary(&findings)
    ));
    for measured in measured::of_file(&cells, FileType::Text) {
        let cell = |file: FileType| {
            let found = measured::find(&cells, file, measured.name);
            let watts = |measured: Measured<'_>| {
                let [write, read] = [WRITE, READ].map(|task| measured.parts(task).watts());
                format!("{write:.2} / {read:.2}")
            };
            found.map_or("-".to_string(), watts)
        };
        let row: Vec<String> = FileType::ALL.map(cell).into();
        text.push_str(&format!("| {} | {} |\n", measured.name, row.join(" | ")));
    }
    text.findings = findings;
    Ok(text)
}

/// Table 4.1 again: this machine beside those of the paper.
fn machines(records: &Path, cells: &[CellRecord]) -> String {
    let Some(cell) = cells.last() else {
        return String::new();
    };
    let description = record::machine_description(records, &cell.machine);
    let parts: Vec<&str> = description.split("; ").collect();
    let part = |index: usize| parts.get(index).copied().unwrap_or("-");
    let medium = cell.parameter("medium");
    let idle = measured::of_file(cells, FileType::Text);
    let idle = idle.first().map_or(0.0, |plain| {
        let parts = plain.parts(WRITE);
        parts.passive_joules / parts.seconds.middle
    });
    format!(
        "Table 4.1 again.\n\n| | here | server | desktop | laptop |\n|---|---|---|---|---|\n\
         | processor | {} | Intel Xeon, 2.8 GHz | Intel Pentium 4, 1.7 GHz | Intel Core Duo, 1.6 GHz |\n\
         | cores; used | {}; all that are left to the run | 2 x 2; 1 | 1; 1 | 2; 1 |\n\
         | memory | {} | 2,048 MB | 1,152 MB | 2,560 MB |\n\
         | disk | {} | 10,000 RPM, 320 Mbps | 7,200 RPM, 133 Mbps | 5,400 RPM, 100 Mbps |\n\
         | mean idle power | {idle:.2} W, modelled, this machine's share of a server | 218 W | 91 W | 17 W |\n\n",
        part(0),
        part(1),
        part(3),
        medium.unwrap_or("-"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modelled_watts_prove_nothing() {
        let found = Interval {
            middle: 1.0,
            low: 0.99,
            high: 1.01,
            runs: 5,
        };
        let check = |source: &str, expected: Verdict| assert_eq!(judge(found, source), expected);
        check("measured-rapl(pkg)", Verdict::Holds);
        check("measured-wall", Verdict::Holds);
        check("model-specpower(amd-epyc-gen5)", Verdict::CannotTell);
        check("vrapl(pkg)", Verdict::CannotTell);
        check("default", Verdict::CannotTell);
    }
}
