//! `breakeven pack` that measures its link, beside one with a given link and beside `cat`. Its strategies beside the
//! levels of `zstd` that take the same time.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use breakeven::units::BytesPerSecond;

use super::super::hirsch2017::link::Link;
use super::pack_programs::{
    ARCHIVE, COLUMNS, DATA, FOLDERS, PACK, RUNS, STORED, TASK, WALL, all_data, archive, beside,
    halves, median, over, race_links, run_to_file, table, text, verify, whole_archive, words,
};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs::{self, ZSTD, own_program};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target, Verdict};

pub const AUTO: Experiment = Experiment {
    key: "breakeven/pack-auto",
    claim: "`pack` that measures its link takes at most 1.05 of the time of one with a given link, 1.10 of 64 MB. With \
        a given link it takes at most 1.05 of `cat`'s at 2,000 MB/s.",
    source: "this project's own target",
    figure: "time until a link of this speed has the last byte, over that of pack told of the link, and of cat,",
    target: Target {
        low: 0.0,
        high: 1.05,
    },
    parameters: &[
        (
            "data",
            "`archive`: 210 MiB of the archive of this machine's headers and documents; `data`: all files of --data in one; `first`: 64 MB of \
             the archive; `short`: 48 MB of documents and headers",
        ),
        (
            "the link",
            "a pipe that is read no faster than 2,000 MB/s, and of `short` no faster than 12 MB/s",
        ),
        (
            "contenders",
            "cat, pack with a given link, pack --link auto",
        ),
        ("runs", "10 (quick: 2 of 2 MiB), all alternating"),
    ],
    analysis: "A link of 2,000 MB/s is as fast as a pipe of this machine. So the figure is the cost of reading, \
        classifying, storing and checking beside copying. On two processors the reader of the pipe has one of them.",
    run: |laboratory| Ok(auto_judged(&measure_auto(laboratory)?)),
    table: |records| table(records, AUTO.key, auto_judged),
    pictures: no_pictures,
};

pub const STRATEGIES: Experiment = Experiment {
    key: "breakeven/pack-strategies",
    claim: "`money`, `free` and `within` store at most as many bytes as the densest level of zstd -T2 that takes no more time.",
    source: "this project's own target",
    figure: "bytes over those of the densest level of zstd that takes at most as long",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "data",
            "`headers`: 64 MiB of this machine's headers; `archive`: 210 MiB of its headers and documents; `data`: all files of --data in one",
        ),
        (
            "contenders",
            "pack --strategy money into a file, beside zstd -T2 -1 to -15 into a file. pack --strategy free and \
             within:1.5 over a link of 40 MB/s, beside the same levels over the same link",
        ),
        ("runs", "10 (quick: 2 of 2 MiB), all alternating"),
    ],
    analysis: "The level is the densest that did not certainly take longer. Where all certainly did, it is the \
        lightest. `zstd` looks for no far matches (`--long`); `money` does. Sizes of `free` and `within` follow the \
        clock, so they have an interval.",
    run: |laboratory| Ok(strategies_judged(&measure_strategies(laboratory)?)),
    table: |records| table(records, STRATEGIES.key, strategies_judged),
    pictures: no_pictures,
};

pub(super) const HEADERS: &str = "headers";
const FIRST: &str = "first";
const SHORT: &str = "short";
const AUTO_NAME: &str = "pack auto";
const CAT: &str = "cat";

/// Makes the input of pack; a quick run has 2 MiB of headers for every name.
fn make(name: &str, laboratory: &Laboratory, target: &Path) -> Result<()> {
    match (name, &laboratory.data) {
        _ if laboratory.quick => archive(&FOLDERS[1..], 2 << 20, target),
        (HEADERS, _) => archive(&FOLDERS[1..], 64 << 20, target),
        (FIRST, _) => archive(&[FOLDERS[1], FOLDERS[0]], 64_000_000, target),
        (SHORT, _) => halves(24_000_000, target),
        (DATA, Some(data)) => all_data(data, target),
        _ => whole_archive(target),
    }
}

/// Measures cells, each of which packs the input that its first word names; those of real data only where there are
/// some.
pub(super) fn measure<'a>(
    laboratory: &'a Laboratory,
    (key, parameters, runs): (&str, &str, usize),
    plans: &[(&'static str, &'static str)],
    race: impl Fn(&str, &Path, usize) -> Result<Vec<Row>> + Copy + 'a,
) -> Result<Vec<CellRecord>> {
    let folder = laboratory.scratch()?;
    let runs = if laboratory.quick { 2 } else { runs };
    let plans = match laboratory.quick {
        true => &plans[..1],
        false => plans,
    };
    let has_data = laboratory.data.is_some();
    let cells = plans.iter().filter(|it| it.0 != DATA || has_data);
    let cells = cells.map(|&(input, what)| {
        let raw: PathBuf = folder.path().join("input");
        Cell {
            name: format!("{input} {what}"),
            parameters: format!("runs={runs} quick={}{parameters}", laboratory.quick),
            measure: Box::new(move || {
                make(input, laboratory, &raw)?;
                let outcome = race(what, &raw, runs);
                fs::remove_file(&raw)?;
                outcome
            }),
        }
    });
    laboratory.measure(key, COLUMNS, cells.collect())
}

fn measure_auto(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    const FAST: &str = "2000 MB/s";
    const SLOW: &str = "12 MB/s";
    let plans = [(FIRST, FAST), (ARCHIVE, FAST), (DATA, FAST), (SHORT, SLOW)];
    let program = text(&own_program()?);
    let race = |speed: &str, raw: &Path, runs: usize| {
        let told = speed.replace(' ', "");
        let megabytes: f64 = speed.trim_end_matches(" MB/s").parse()?;
        let pack = |link: &str| words(&[&program, "pack", "-q", "-c", "--link", link]);
        let mut contenders = vec![
            (PACK.to_string(), pack(&told)),
            (AUTO_NAME.to_string(), pack("auto")),
        ];
        if speed == FAST {
            contenders.push((CAT.to_string(), words(&["cat"])));
        }
        let link = BytesPerSecond(1e6 * megabytes);
        let send = || Ok(Box::new(Link::new(link)) as Box<dyn Write>);
        race_links(&contenders, raw, runs, &send)
    };
    measure(laboratory, (AUTO.key, "", RUNS), &plans, race)
}

fn auto_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let is_long = [ARCHIVE, DATA].iter().any(|it| cell.cell.starts_with(it));
        let pairs = [(AUTO_NAME, PACK), (PACK, CAT), (AUTO_NAME, CAT)];
        for (one, other) in pairs {
            if cell.column(TASK, other, WALL).is_empty() {
                continue;
            }
            // The first 64 MB have an allowance for measuring the link.
            let high = if is_long || one == PACK { 1.05 } else { 1.10 };
            let (target, found) = (Target { low: 0.0, high }, over(cell, one, other, WALL));
            findings.push(Finding {
                question: format!("{} {one} over {other}", cell.cell),
                core: (one, other) != (AUTO_NAME, CAT),
                found,
                verdict: target.judge(found),
                note: format!(
                    "target {target}; {}; {}",
                    beside(cell, one),
                    beside(cell, other)
                ),
            });
        }
    }
    findings
}

/// Levels that race.
const LEVELS: [&str; 6] = ["-1", "-3", "-6", "-9", "-12", "-15"];
const MONEY: &str = "money";

fn measure_strategies(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let plans = [
        (HEADERS, "free"),
        (HEADERS, "within:1.5"),
        (HEADERS, MONEY),
        (ARCHIVE, "free"),
        (ARCHIVE, "within:1.5"),
        (ARCHIVE, MONEY),
        (DATA, "within:1.5"),
        (DATA, MONEY),
    ];
    let program = text(&own_program()?);
    let race = |strategy: &str, raw: &Path, runs: usize| match strategy {
        MONEY => race_files(&program, raw, runs),
        _ => {
            let strategy = ["--strategy", strategy, "--link", "40MB/s"];
            let own = [&[&program as &str, "pack", "-q", "-c"], &strategy[..]].concat();
            let mut contenders = vec![(PACK.to_string(), words(&own))];
            contenders.extend(LEVELS.map(|level| {
                let words = words(&["zstd", "-q", "-c", level, "-T2"]);
                (format!("zstd {level}"), words)
            }));
            let send = || Ok(Box::new(Link::new(BytesPerSecond(40e6))) as Box<dyn Write>);
            race_links(&contenders, raw, runs, &send)
        }
    };
    let zstd = format!(" {}", programs::peers(&[ZSTD]));
    measure(laboratory, (STRATEGIES.key, &zstd, RUNS), &plans, race)
}

/// All contenders write a file of their own, alternating.
fn race_files(program: &str, raw: &Path, runs: usize) -> Result<Vec<Row>> {
    let (name, made) = (text(raw), raw.with_extension("made"));
    let stream = text(&made);
    let own = [
        program,
        "pack",
        "-q",
        "--strategy",
        MONEY,
        "-o",
        &stream,
        &name,
    ];
    let mut contenders = vec![(PACK.to_string(), words(&own))];
    contenders.extend(LEVELS.map(|level| {
        let words = words(&["zstd", "-q", level, "-T2", "-o", &stream, &name]);
        (format!("zstd {level}"), words)
    }));
    let raw_bytes = fs::metadata(raw)?.len();
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, contenders.len(), |index| {
            let (contender, words) = &contenders[index];
            let used = run_to_file(words, &made)?;
            if run == 0 {
                verify(&made, raw)?;
            }
            fs::remove_file(&made)?;
            Ok(used.row(contender, (run, runs), raw_bytes))
        })?);
    }
    ensure!(!rows.is_empty(), "nothing was run");
    Ok(rows)
}

fn strategies_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        let levels = LEVELS.map(|level| format!("zstd {level}"));
        // Of one that may have taken as long it cannot be said that it took longer.
        let in_time = |level: &&String| over(cell, level, PACK, WALL).low <= 1.0;
        let in_time = levels.iter().filter(in_time);
        let least =
            |a: &&String, b: &&String| median(cell, a, STORED).total_cmp(&median(cell, b, STORED));
        let level = in_time.min_by(least).unwrap_or(&levels[0]);
        let found: Interval = over(cell, PACK, level, STORED);
        let verdict = match cell.parameter("quick") {
            Some("true") => Verdict::CannotTell,
            _ => STRATEGIES.target.judge(found),
        };
        Finding {
            question: format!("{} over {level}", cell.cell),
            core: true,
            found,
            verdict,
            note: format!("{}; {}", beside(cell, PACK), beside(cell, level)),
        }
    };
    cells.iter().map(of_cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(contender: &str, run: usize, stored: f64, wall: f64) -> Row {
        Row::new(
            TASK,
            contender,
            (run, RUNS),
            vec![1e8, stored, wall, 1.0, 1e6],
        )
    }

    #[test]
    fn a_strategy_is_held_to_the_densest_level_in_its_time() {
        let mut rows = Vec::new();
        for run in 0..RUNS {
            rows.push(row(PACK, run, 20e6, 3.0));
            for (place, level) in LEVELS.iter().enumerate() {
                let (stored, wall) = (30e6 - 3e6 * place as f64, 1.0 + place as f64);
                rows.push(row(&format!("zstd {level}"), run, stored, wall));
            }
        }
        let cell = CellRecord::made_up("archive money", "quick=false", rows);
        let found = strategies_judged(&[cell]);
        assert_eq!(found[0].question, "archive money over zstd -6");
        assert_eq!(found[0].verdict, Verdict::Holds);
        assert!((found[0].found.middle - 20.0 / 24.0).abs() < 1e-9);
    }

    #[test]
    fn the_first_megabytes_may_take_longer() {
        let check = |name: &str, expected: Verdict| {
            let mut rows = Vec::new();
            for run in 0..RUNS {
                rows.push(row(PACK, run, 1e8, 1.0));
                rows.push(row(AUTO_NAME, run, 1e8, 1.08));
            }
            let found = auto_judged(&[CellRecord::made_up(name, "quick=false", rows)]);
            assert_eq!((found.len(), found[0].verdict), (1, expected), "{name}");
        };
        check("first 2000 MB/s", Verdict::Holds);
        check("archive 2000 MB/s", Verdict::Differs);
    }
}
