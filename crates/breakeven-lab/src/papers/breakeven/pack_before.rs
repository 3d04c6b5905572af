//! `breakeven pack` beside itself as it was: rows of frames whose methods are picked, by a build of an older revision.
//!
//! `tools/build-before REVISION` puts that build beside the laboratory.

use std::io::Write;
use std::path::Path;

use anyhow::Result;
use breakeven::units::BytesPerSecond;

use super::super::hirsch2017::link::Link;
use super::pack_programs::{
    ARCHIVE, DATA, PACK, STORED, WALL, beside, over, race_links, table, text, words,
};
use super::pack_strategies::{HEADERS, measure};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Finding, Laboratory};
use crate::programs::{self, own_program};
use crate::record::{CellRecord, Row};
use crate::statistics::Target;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/pack-before",
    claim: "Since one chooser decides, `pack` takes at most 2 % longer than before, and stores at most 2 % more where a time is promised.",
    source: "this project's own target",
    figure: "time until a link of this speed has the last byte, or bytes within a promised time, over those of the build before",
    target: Target {
        low: 0.0,
        high: 1.02,
    },
    parameters: &[
        (
            "data",
            "`headers`: 64 MiB of this machine's headers; `archive`: 210 MiB of its headers and documents; `data`: all files of --data in one",
        ),
        (
            "contenders",
            "pack --mixed --strategy S --link RATE by this build, and by a build of an older revision",
        ),
        ("runs", "20 (quick: 2 of 2 MiB), both alternating"),
    ],
    analysis: "Only rows of frames can be compared: long frames came after the chooser. The older build's --version \
        does not name its revision. That is the one given to tools/build-before, 082fc9a for the record.",
    run: |laboratory| Ok(judged(&measured(laboratory)?)),
    table: |records| table(records, EXPERIMENT.key, judged),
    pictures: no_pictures,
};

const BEFORE: &str = "pack before";
const RUNS: usize = 20;
const CELLS: [(&str, &str); 4] = [
    (HEADERS, "fastest at 117 MB/s"),
    (ARCHIVE, "fastest at 117 MB/s"),
    (ARCHIVE, "within:1.5 at 60 MB/s"),
    (DATA, "fastest at 400 MB/s"),
];

fn measured(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let program = own_program()?;
    let before = program.with_file_name("breakeven-before");
    let parameters = match before.is_file() {
        true => "",
        false => " missing=breakeven-before",
    };
    let own = [text(&program), text(&before)];
    let race = |what: &str, raw: &Path, runs: usize| race(&own, what, raw, runs);
    measure(laboratory, (EXPERIMENT.key, parameters, RUNS), &CELLS, race)
}

fn race(programs: &[String; 2], what: &str, raw: &Path, runs: usize) -> Result<Vec<Row>> {
    let (strategy, speed) = what.split_once(" at ").unwrap_or((what, "117 MB/s"));
    let link = speed.replace(' ', "");
    let megabytes: f64 = speed.trim_end_matches(" MB/s").parse()?;
    let contenders: Vec<(String, Vec<String>)> = [PACK, BEFORE]
        .iter()
        .zip(programs)
        .filter(|(_, program)| Path::new(program).is_file())
        .map(|(name, program)| {
            let words = words(&[
                program,
                "pack",
                "-q",
                "-c",
                "--mixed",
                "--strategy",
                strategy,
                "--link",
                &link,
            ]);
            (name.to_string(), words)
        })
        .collect();
    let send = || Ok(Box::new(Link::new(BytesPerSecond(1e6 * megabytes))) as Box<dyn Write>);
    race_links(&contenders, raw, runs, &send)
}

fn judged(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        if let Some(missing) = programs::missing(cell) {
            return vec![missing];
        }
        let is_promised = cell.cell.contains("within");
        let columns = [("time", WALL), ("bytes", STORED)];
        let finding = |(what, column): (&str, usize)| {
            let found = over(cell, PACK, BEFORE, column);
            Finding {
                question: format!("{} {what}", cell.cell),
                core: (column == STORED) == is_promised,
                found,
                verdict: EXPERIMENT.target.judge(found),
                note: format!("{}; {}", beside(cell, PACK), beside(cell, BEFORE)),
            }
        };
        columns.map(finding).to_vec()
    };
    cells.iter().flat_map(of_cell).collect()
}

#[cfg(test)]
mod tests {
    use super::super::pack_programs::TASK;
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn a_promise_is_judged_by_bytes_and_haste_by_time() {
        let row = |contender: &str, run: usize, stored: f64, wall: f64| {
            Row::new(
                TASK,
                contender,
                (run, RUNS),
                vec![1e8, stored, wall, 1.0, 1e6],
            )
        };
        let mut rows = Vec::new();
        for run in 0..RUNS {
            rows.push(row(PACK, run, 1.01e7, 1.1));
            rows.push(row(BEFORE, run, 1e7, 1.0));
        }
        let check = |name: &str, expected: Verdict| {
            let found = judged(&[CellRecord::made_up(name, "runs=20", rows.clone())]);
            let core: Vec<_> = found
                .iter()
                .filter(|it| it.core)
                .map(|it| it.verdict)
                .collect();
            assert_eq!(core, [expected], "{name}");
        };
        check("archive within:1.5 at 60 MB/s", Verdict::Holds);
        check("archive fastest at 117 MB/s", Verdict::Differs);
        let missing = CellRecord::made_up("archive", "missing=breakeven-before", Vec::new());
        assert_eq!(judged(&[missing])[0].verdict, Verdict::CannotTell);
    }
}
