//! The programs beside others that want the processors: advice within its time, files and links beside stock zstd.
//!
//! The others are loops of a shell, as many as a cell says, for as long as the cell is measured.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use breakeven::units::BytesPerSecond;

use super::super::hirsch2017::link::Link;
use super::pack_programs::{
    COLUMNS, CPU, FOLDERS, PACK, RUNS, STORED, TASK, WALL, archive, beside, median, over,
    race_files, race_links, text, whole_archive, words,
};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs::{self, ZSTD, own_program};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const ADVISE: Experiment = Experiment {
    key: "breakeven/busy-advise",
    claim: "`advise --time T` answers within 1.2 of its time beside ten busy processes.",
    source: "this project's own target",
    figure: "wall time over --time",
    target: WITHIN_TIME,
    parameters: &[
        ("data", "this machine's documents and headers"),
        ("beside it", "no, two and ten busy loops"),
        ("runs", "10 of 20 s (quick: 1 of 2 s beside two)"),
    ],
    analysis: "The program is the one that is installed, and nothing is remembered from run to run. The time is that from its start to its end.",
    run: |laboratory| Ok(advice_judged(&measure_advice(laboratory)?)),
    table: |records| tables::table_of(records, ADVISE.key, ADVISE_COLUMNS, advice_judged),
    pictures: no_pictures,
};

pub const LINK: Experiment = Experiment {
    key: "breakeven/busy-link",
    claim: "Beside two and eight busy processes `pack` over a link takes at most 1.1 of the time of the best of `zstd -1` and `-3`.",
    source: "this project's own target",
    figure: "time until a link of this speed has the last byte, over that of the best static zstd,",
    target: Target {
        low: 0.0,
        high: 1.1,
    },
    parameters: &[
        ("data", "210 MiB of this machine's headers and documents"),
        (
            "the link",
            "a pipe that is read no faster than 12 or 117 MB/s, but for 4 MiB that it holds",
        ),
        ("beside it", "two and eight busy loops"),
        (
            "contenders",
            "pack with a given link, pack that measures the link; zstd -1 and -3, on one thread and on two",
        ),
        ("runs", "10 (quick: 2 of 4 MiB), all alternating"),
    ],
    analysis: "The best static level is known only afterwards: it has the least median. A program of more threads gets \
        more of busy processors. zstd has as many as pack in two of its four.",
    run: |laboratory| Ok(links_judged(&measure_links(laboratory)?)),
    table: |records| tables::table_of(records, LINK.key, COLUMNS, links_judged),
    pictures: no_pictures,
};

pub const FILE: Experiment = Experiment {
    key: "breakeven/busy-file",
    claim: "Over this machine's archives `pack FILE` takes at most 0.95 of the bytes of `zstd FILE` and 1.2 of its \
        core seconds. It takes at most its wall time when idle, and 1.2 of it beside two busy processes.",
    source: "this project's own target",
    figure: "sum over all archives of pack FILE over that of zstd FILE",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "data",
            "archives of this machine's documents, headers and programs, up to 200 MiB of each",
        ),
        ("beside it", "nothing, and two busy loops"),
        (
            "contenders",
            "breakeven pack FILE and zstd FILE without options, into a file beside the records",
        ),
        (
            "runs",
            "10 (quick: 5 of 4 MiB of headers), both alternating",
        ),
    ],
    analysis: "The file is in the page cache for both, and the copy is not synced, as neither program does.",
    run: |laboratory| Ok(files_judged(&measure_files(laboratory)?)),
    table: |records| tables::table_of(records, FILE.key, COLUMNS, files_judged),
    pictures: no_pictures,
};

/// Loops that keep processors busy until they are dropped.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    fn start(count: usize) -> Result<BusyLoops> {
        let mut loops = BusyLoops(Vec::with_capacity(count));
        for _ in 0..count {
            // Nobody is left busy for longer than an hour of a core, even if this process dies.
            let child = Command::new("sh")
                .args(["-c", "ulimit -t 3600; while :; do :; done"])
                .stdin(Stdio::null())
                .spawn()
                .context("start a busy loop")?;
            loops.0.push(child);
        }
        Ok(loops)
    }
}

impl Drop for BusyLoops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // One that is gone already is as good.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The cell's parameter that says how many loops are beside it.
const LOOPS: &str = "loops";

fn loops_of(cell: &CellRecord) -> &str {
    cell.parameter(LOOPS).unwrap_or("0")
}

const WITHIN_TIME: Target = Target {
    low: 0.0,
    high: 1.2,
};
const ADVISE_COLUMNS: &[&str] = &["limit_seconds", "wall_seconds"];
const ADVISE_TASK: &str = "advise";
const ADVISED: &str = "advise --time";

fn measure_advice(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (program, folder) = (own_program()?, laboratory.scratch()?);
    let (plans, runs, limit): (&[usize], _, _) = match laboratory.quick {
        true => (&[2], 1, 2.0),
        false => (&[0, 2, 10], RUNS, 20.0),
    };
    let cells = plans.iter().map(|&loops| {
        let (program, cache) = (program.clone(), folder.path().join("cache"));
        Cell {
            name: format!("beside {loops}"),
            parameters: format!("runs={runs} limit={limit} {LOOPS}={loops}"),
            measure: Box::new(move || {
                let _busy = BusyLoops::start(loops)?;
                (0..runs)
                    .map(|run| {
                        let wall_seconds = advise_once(&program, &cache, limit)?;
                        let values = vec![limit, wall_seconds];
                        Ok(Row::new(ADVISE_TASK, ADVISED, (run, runs), values))
                    })
                    .collect()
            }),
        }
    });
    laboratory.measure(ADVISE.key, ADVISE_COLUMNS, cells.collect())
}

/// Returns the wall time of one advice that remembers nothing.
fn advise_once(program: &Path, cache: &Path, limit: f64) -> Result<f64> {
    let _ = std::fs::remove_dir_all(cache);
    let mut command = Command::new(program);
    command.args(["advise", "--medium", "nvme", "--time", &limit.to_string()]);
    let folders = FOLDERS.map(|folder| Path::new("/").join(folder));
    command.args(folders.iter().filter(|folder| folder.exists()));
    command.env("XDG_CACHE_HOME", cache);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok(programs::run(&mut command)?.wall_seconds)
}

fn advice_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        let values = |column| cell.column(ADVISE_TASK, ADVISED, column);
        let found = Interval::of_quotients(&values(1), &values(0));
        Finding {
            question: cell.cell.clone(),
            core: true,
            found,
            verdict: WITHIN_TIME.judge(found),
            note: format!(
                "target {WITHIN_TIME}; {:.1} s of {:.0} s",
                cell.median(ADVISE_TASK, ADVISED, 1),
                cell.median(ADVISE_TASK, ADVISED, 0)
            ),
        }
    };
    cells.iter().map(of_cell).collect()
}

/// The buffer of a link: Linux lets the send buffer of a TCP connection grow to so many bytes. Its reader waits for a
/// core as well, and must not be the measured part.
const SOCKET_BYTES: u64 = 4 << 20;
const UNTOLD: &str = "pack untold";
const STATICS: [&str; 4] = ["zstd -1", "zstd -3", "zstd -1 -T2", "zstd -3 -T2"];

fn link_contenders(program: &str, megabytes: f64) -> Vec<(String, Vec<String>)> {
    let link = format!("{megabytes}MB/s");
    let mut all = vec![
        (
            PACK.to_string(),
            words(&[program, "pack", "-c", "--link", &link]),
        ),
        (UNTOLD.to_string(), words(&[program, "pack", "-c"])),
    ];
    for of in STATICS {
        let typed: Vec<&str> = of.split(' ').chain(["-q", "-c"]).collect();
        all.push((of.to_string(), words(&typed)));
    }
    all
}

fn measure_links(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (program, folder) = (text(&own_program()?), laboratory.scratch()?);
    let quick = laboratory.quick;
    let (plans, runs): (&[(usize, f64)], _) = match quick {
        true => (&[(2, 117.0)], 2),
        false => (&[(2, 12.0), (2, 117.0), (8, 12.0), (8, 117.0)], RUNS),
    };
    let zstd = programs::peers(&[ZSTD]);
    let cells = plans.iter().map(|&(loops, megabytes)| {
        let (program, raw) = (program.clone(), folder.path().join("input"));
        Cell {
            name: format!("{megabytes} MB/s beside {loops}"),
            parameters: format!("runs={runs} {LOOPS}={loops} {zstd}"),
            measure: Box::new(move || {
                match quick {
                    true => archive(&FOLDERS[1..], 4 << 20, &raw)?,
                    false => whole_archive(&raw)?,
                }
                let _busy = BusyLoops::start(loops)?;
                let speed = BytesPerSecond(1e6 * megabytes);
                let send = || {
                    Ok(Box::new(Link::new(speed).holding(SOCKET_BYTES)) as Box<dyn std::io::Write>)
                };
                race_links(&link_contenders(&program, megabytes), &raw, runs, &send)
            }),
        }
    });
    laboratory.measure(LINK.key, COLUMNS, cells.collect())
}

fn links_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        let seconds = |name: &str| median(cell, name, WALL);
        let best = STATICS
            .into_iter()
            .min_by(|one, other| seconds(one).total_cmp(&seconds(other)))
            .expect("there are static levels");
        [PACK, UNTOLD].map(|name| {
            let found = over(cell, name, best, WALL);
            Finding {
                question: format!("{} {name} over {best}", cell.cell),
                core: true,
                found,
                verdict: LINK.target.judge(found),
                note: format!(
                    "target {}; {}; {}",
                    LINK.target,
                    beside(cell, name),
                    beside(cell, best)
                ),
            }
        })
    };
    cells.iter().flat_map(of_cell).collect()
}

/// Archives and the folders that are in them.
const ARCHIVES: [(&str, &str); 3] = [
    ("documents", FOLDERS[0]),
    ("headers", FOLDERS[1]),
    ("programs", "usr/bin"),
];
const ZSTD_FILE: &str = "zstd";

fn measure_files(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (program, folder) = (text(&own_program()?), laboratory.scratch()?);
    let (archives, bytes_max, runs) = match laboratory.quick {
        true => (&ARCHIVES[1..2], 4 << 20, 5),
        false => (&ARCHIVES[..], 200 << 20, RUNS),
    };
    let zstd = programs::peers(&[ZSTD]);
    let plans = [0, 2].map(|loops| archives.iter().map(move |of| (loops, of)));
    let cells = plans.into_iter().flatten().map(|(loops, (name, of))| {
        let program = program.clone();
        let raw: PathBuf = folder.path().join(name);
        Cell {
            name: format!("{name} beside {loops}"),
            parameters: format!("runs={runs} {LOOPS}={loops} {zstd}"),
            measure: Box::new(move || {
                archive(&[of], bytes_max, &raw)?;
                let _busy = BusyLoops::start(loops)?;
                race_files(&program, &raw, runs)
            }),
        }
    });
    laboratory.measure(FILE.key, COLUMNS, cells.collect())
}

/// Sums up the archives of as many loops, run by run.
fn summed(cells: &[&CellRecord], contender: &str, column: usize) -> Vec<f64> {
    let columns = cells
        .iter()
        .map(|cell| cell.column(TASK, contender, column));
    let add = |all: Vec<f64>, more: Vec<f64>| all.iter().zip(more).map(|(a, b)| a + b).collect();
    columns.reduce(add).unwrap_or_default()
}

fn files_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for loops in ["0", "2"] {
        let of: Vec<&CellRecord> = cells.iter().filter(|it| loops_of(it) == loops).collect();
        let wall_max = if loops == "0" { 1.0 } else { 1.2 };
        for (what, column, high) in [
            ("bytes", STORED, 0.95),
            ("core seconds", CPU, 1.2),
            ("wall time", WALL, wall_max),
        ] {
            let sums = |contender| summed(&of, contender, column);
            let (ours, theirs) = (sums(PACK), sums(ZSTD_FILE));
            if ours.is_empty() {
                continue;
            }
            let target = Target { low: 0.0, high };
            let found = Interval::of_quotients(&ours, &theirs);
            let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
            findings.push(Finding {
                question: format!("{what} beside {loops}"),
                core: true,
                found,
                verdict: target.judge(found),
                note: format!(
                    "target {target}; {:.4e}, zstd {:.4e}",
                    mean(&ours),
                    mean(&theirs)
                ),
            });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    fn rows(contenders: &[(&str, [f64; 5])], runs: usize, noise: f64) -> Vec<Row> {
        let of_run = |run: usize| {
            contenders.iter().map(move |(name, values)| {
                let factor = 1.0 + noise * run as f64;
                let values = values.iter().map(|value| value * factor).collect();
                Row::new(TASK, name, (run, runs), values)
            })
        };
        (0..runs).flat_map(of_run).collect()
    }

    #[test]
    fn archives_are_judged_by_their_sum() {
        let cell = |name: &str, loops: usize, ours: [f64; 5]| {
            let contenders = [(PACK, ours), (ZSTD_FILE, [9.0, 10.0, 10.0, 10.0, 1.0])];
            let rows = rows(&contenders, 20, 0.001);
            CellRecord::made_up(name, format!("runs=20 {LOOPS}={loops}"), rows)
        };
        let found = files_judged(&[
            cell("one idle", 0, [9.0, 8.0, 9.0, 9.0, 1.0]),
            cell("other idle", 0, [9.0, 10.0, 14.0, 12.0, 1.0]),
            cell("one busy", 2, [9.0, 8.0, 9.0, 11.0, 1.0]),
        ]);
        let said: Vec<_> = found
            .iter()
            .map(|it| (it.question.as_str(), it.verdict))
            .collect();
        assert_eq!(
            said,
            [
                ("bytes beside 0", Verdict::Holds),
                ("core seconds beside 0", Verdict::Holds),
                ("wall time beside 0", Verdict::Differs),
                ("bytes beside 2", Verdict::Holds),
                ("core seconds beside 2", Verdict::Holds),
                ("wall time beside 2", Verdict::Holds),
            ]
        );
    }

    #[test]
    fn links_are_judged_by_the_best_level() {
        let slow = [9.0, 8.0, 20.0, 1.0, 1.0];
        let contenders = [
            (PACK, [9.0, 8.0, 10.5, 1.0, 1.0]),
            (UNTOLD, [9.0, 8.0, 12.0, 1.0, 1.0]),
            (STATICS[0], slow),
            (STATICS[1], slow),
            (STATICS[2], [9.0, 8.0, 10.0, 1.0, 1.0]),
            (STATICS[3], slow),
        ];
        let rows = rows(&contenders, 20, 0.001);
        let found = links_judged(&[CellRecord::made_up("cell", "loops=8", rows)]);
        let said: Vec<_> = found
            .iter()
            .map(|it| (it.question.as_str(), it.verdict))
            .collect();
        assert_eq!(
            said,
            [
                ("cell pack over zstd -1 -T2", Verdict::Holds),
                ("cell pack untold over zstd -1 -T2", Verdict::Differs),
            ]
        );
    }
}
