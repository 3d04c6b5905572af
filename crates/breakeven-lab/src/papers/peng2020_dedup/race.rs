//! Trees added, added again and restored by each program, alternating.
//!
//! Source, stores and targets lie in memory, so that programs are measured and no disk.

use std::path::{Path, PathBuf};

use anyhow::Result;

use super::stores::{Program, Store, peers};
use super::trees::{self, Tree};
use crate::data::SEED;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

const DATA: (&str, &str) = (
    "trees",
    "48 MiB each of a game's data (Debian's neverball-data); eight versions of a program's sources, this one's; this \
        machine's headers; its documents; programs in five copies of a folder; two archives of headers, one with a \
        file more at its start; two images of a file system, one block in 50 of the second written over; made-up text \
        in files of 2 KiB (quick: 1 MiB of headers and documents)",
);

pub const DEFAULTS: Experiment = Experiment {
    key: "peng2020-dedup/defaults",
    claim: "A vault takes no more bytes and no more time than restic and borg with their defaults, and restores in half of restic's time.",
    source: "this project's own target",
    figure: "bytes, and seconds, over those of the better of restic and borg; of restoring over restic's",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        DATA,
        (
            "contenders",
            "breakeven vault with --prices default and fast, restic --compression auto, borg -C lz4 with repokey-blake2",
        ),
        (
            "runs",
            "10 (quick: 1), all alternating, each a new store: add, add again, restore",
        ),
    ],
    analysis: "Each step is a process of its own, with the derivation of its key from a password, which is part of a \
        user's wait. Adding again finds nothing new. Files that programs keep beside a store to be faster do not count \
        as its bytes. The fast prices are held to half of the others' time, small files to a third of restic's.",
    run: |laboratory| Ok(judged(&measure(laboratory, &DEFAULTS)?)),
    table: |records| table(records, &DEFAULTS, judged),
    pictures: no_pictures,
};

pub const BEST: Experiment = Experiment {
    key: "peng2020-dedup/best",
    claim: "With its best prices a vault takes at most 1.02 of the bytes of restic and borg at their best settings on each tree, and fewer in sum.",
    source: "this project's own target",
    figure: "bytes over those of the better of restic and borg",
    target: Target {
        low: 0.0,
        high: 1.02,
    },
    parameters: &[
        DATA,
        (
            "contenders",
            "breakeven vault --prices best, restic --compression max, borg -C zstd,19; at the paper's size borg -C lzma,9 as well",
        ),
    ],
    analysis: "Sizes hardly change from run to run, though keys do, and cuts with them: one run. lzma at 9 takes minutes a tree.",
    run: |laboratory| Ok(best_judged(&measure(laboratory, &BEST)?)),
    table: |records| table(records, &BEST, best_judged),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &[
    "raw_bytes",
    "files",
    "stored_bytes",
    "add_seconds",
    "add_cpu_seconds",
    "add_resident_bytes",
    "again_seconds",
    "again_stored_bytes",
    "restore_seconds",
    "restore_cpu_seconds",
];
const RAW: usize = 0;
const FILES: usize = 1;
const STORED: usize = 2;
const ADD: usize = 3;
const ADD_CPU: usize = 4;
const RESIDENT: usize = 5;
const AGAIN: usize = 6;
const AGAIN_STORED: usize = 7;
const RESTORE: usize = 8;
const RESTORE_CPU: usize = 9;
const TASK: &str = "tree";

const OURS: Program = Program::Vault("default");
const FAST: Program = Program::Vault("fast");
const RESTIC: Program = Program::Restic("auto");
const BORG: Program = Program::Borg("lz4");
const OURS_BEST: Program = Program::Vault("best");
const PEERS_BEST: [Program; 3] = [
    Program::Restic("max"),
    Program::Borg("zstd,19"),
    Program::Borg("lzma,9"),
];

const SMALL_FILES: &str = "small files";
/// A cell with less in it is none to judge by: starting the programs takes longer.
const JUDGED_BYTES: u64 = 16 << 20;

pub(super) fn is_small(cell: &CellRecord) -> bool {
    let bytes = cell.parameter("bytes");
    bytes
        .and_then(|it| it.parse::<u64>().ok())
        .is_none_or(|it| it < JUDGED_BYTES)
}

fn contenders(laboratory: &Laboratory, of: &Experiment) -> Vec<Program> {
    if of.key == DEFAULTS.key {
        return vec![OURS, FAST, RESTIC, BORG];
    }
    let peers = &PEERS_BEST[..if laboratory.paper_size { 3 } else { 2 }];
    [&[OURS_BEST], peers].concat()
}

fn measure(laboratory: &Laboratory, of: &Experiment) -> Result<Vec<CellRecord>> {
    let bytes = if laboratory.quick { 1 << 20 } else { 48 << 20 };
    let runs = if laboratory.quick || of.key == BEST.key {
        1
    } else {
        10
    };
    let (peers, contenders) = (peers(), contenders(laboratory, of));
    let are_missing = peers.starts_with("missing");
    let trees = trees::all(laboratory.quick).iter();
    let cells = trees.map(|tree: &Tree| Cell {
        name: tree.name.to_string(),
        parameters: format!(
            "bytes={bytes} runs={runs} contenders={} seed={SEED} {peers}",
            contenders.len()
        ),
        measure: Box::new({
            let contenders = contenders.clone();
            move || match are_missing {
                true => Ok(contenders
                    .iter()
                    .map(|program| row(*program, 0, 1, vec![f64::NAN; COLUMNS.len()]))
                    .collect()),
                false => rows(tree, bytes, &contenders, runs),
            }
        }),
    });
    laboratory.measure(of.key, COLUMNS, cells.collect())
}

fn row(program: Program, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(TASK, &program.name(), (run, runs), values)
}

fn rows(tree: &Tree, bytes: u64, contenders: &[Program], runs: usize) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let folder: PathBuf = scratch.path().join("tree");
    std::fs::create_dir(&folder)?;
    (tree.make)(&folder, bytes)?;
    let (raw_bytes, files) = trees::measure(&folder)?;
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, contenders.len(), |index| {
            let program = contenders[index];
            let store = Store::create(program, scratch.path().join("store"))?;
            let added = store.add(&folder, "one")?;
            let stored_bytes = store.stored_bytes()?;
            let again = store.add(&folder, "two")?;
            let again_bytes = store.stored_bytes()? - stored_bytes;
            let restored = store.restore(&folder, "two")?;
            let values = vec![
                raw_bytes as f64,
                files as f64,
                stored_bytes as f64,
                added.wall_seconds,
                added.cpu_seconds,
                added.resident_bytes,
                again.wall_seconds,
                again_bytes as f64,
                restored.wall_seconds,
                restored.cpu_seconds,
            ];
            Ok(row(program, run, runs, values))
        })?);
    }
    Ok(rows)
}

fn values(cell: &CellRecord, program: Program, column: usize) -> Vec<f64> {
    cell.column(TASK, &program.name(), column)
}

fn median(cell: &CellRecord, program: Program, column: usize) -> f64 {
    cell.median(TASK, &program.name(), column)
}

/// Returns the better of the peers in a column, by its median.
fn better(cell: &CellRecord, peers: &[Program], column: usize) -> Option<Program> {
    let there = peers
        .iter()
        .filter(|it| !values(cell, **it, column).is_empty());
    let order = |one: &&Program, other: &&Program| {
        median(cell, **one, column).total_cmp(&median(cell, **other, column))
    };
    there.min_by(order).copied()
}

fn judged(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(judged_of).collect()
}

fn judged_of(cell: &CellRecord) -> Vec<Finding> {
    if let Some(missing) = programs::missing(cell) {
        return vec![missing];
    }
    let peers = [RESTIC, BORG];
    let is_small = is_small(cell);
    let at_most = |high| Target { low: 0.0, high };
    let finding = |what: &str, ours: Program, peer: Program, column: usize, target: Target| {
        let found =
            Interval::of_quotients(&values(cell, ours, column), &values(cell, peer, column));
        let verdict = match is_small {
            true => Verdict::CannotTell,
            false => target.judge(found),
        };
        let (one, other) = (median(cell, ours, column), median(cell, peer, column));
        let note = match column {
            STORED => format!("{:.2} MB, {} {:.2} MB", one / 1e6, peer.name(), other / 1e6),
            _ => format!("{one:.2} s, {} {other:.2} s", peer.name()),
        };
        Finding {
            question: format!("{} {what}", cell.cell),
            core: true,
            found,
            verdict,
            note: format!("target {target}; {note}"),
        }
    };
    let least = |column| better(cell, &peers, column).expect("two peers");
    let is_of_small = cell.cell == SMALL_FILES;
    let of_small = if is_of_small { 0.33 } else { 0.5 };
    let mut findings = vec![
        finding("bytes", OURS, least(STORED), STORED, at_most(1.0)),
        finding("add", OURS, least(ADD), ADD, at_most(1.0)),
        finding("add fast", FAST, least(ADD), ADD, at_most(0.5)),
        finding("add again", OURS, least(AGAIN), AGAIN, at_most(1.0)),
        finding("restore", OURS, RESTIC, RESTORE, at_most(of_small)),
    ];
    if is_of_small {
        findings.push(finding(
            "add beside restic",
            OURS,
            RESTIC,
            ADD,
            at_most(of_small),
        ));
    }
    findings
}

fn best_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let (mut ours_sum, mut peers_sum, mut findings) = (0.0, 0.0, Vec::new());
    for cell in cells {
        if let Some(missing) = programs::missing(cell) {
            return vec![missing];
        }
        let Some(peer) = better(cell, &PEERS_BEST, STORED) else {
            continue;
        };
        let (ours, theirs) = (median(cell, OURS_BEST, STORED), median(cell, peer, STORED));
        (ours_sum, peers_sum) = (ours_sum + ours, peers_sum + theirs);
        findings.push(best_finding(
            &cell.cell,
            ours / theirs,
            BEST.target,
            is_small(cell),
            &{
                let name = peer.name();
                format!("{:.2} MB, {name} {:.2} MB", ours / 1e6, theirs / 1e6)
            },
        ));
    }
    if !findings.is_empty() {
        let none_small = !cells.iter().any(is_small);
        let note = format!(
            "{:.2} MB, the better one's {:.2} MB",
            ours_sum / 1e6,
            peers_sum / 1e6
        );
        let found = ours_sum / peers_sum;
        findings.push(best_finding(
            "sum",
            found,
            DEFAULTS.target,
            !none_small,
            &note,
        ));
    }
    findings
}

fn best_finding(what: &str, found: f64, target: Target, is_small: bool, note: &str) -> Finding {
    let found = Interval::exact(found);
    Finding {
        question: what.to_string(),
        core: true,
        found,
        verdict: match is_small {
            true => Verdict::CannotTell,
            false => target.judge(found),
        },
        note: format!("target {target}; {note}"),
    }
}

fn table(
    records: &Path,
    of: &Experiment,
    judge: fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<Shown> {
    let cells = Record::new(records, of.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), judge(&cells));
    if cells.is_empty() {
        return Ok(shown);
    }
    shown.push_str(
        "\nMedians of the runs: MB stored, seconds and core seconds of adding and restoring, seconds of adding again and the KB that \
         it stored, and MB resident while adding.\n\n\
         | tree | program | MB | stored | add | core | again | KB | restore | core | resident |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let programs = [&[OURS, FAST, RESTIC, BORG, OURS_BEST][..], &PEERS_BEST].concat();
    for cell in cells.iter().filter(|it| it.parameter("missing").is_none()) {
        for program in &programs {
            if values(cell, *program, STORED).is_empty() {
                continue;
            }
            let of = |column| median(cell, *program, column);
            shown.push_str(&format!(
                "| {}, {:.0} files | {} | {:.1} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.2} | {:.2} | {:.0} |\n",
                cell.cell,
                of(FILES),
                program.name(),
                of(RAW) / 1e6,
                of(STORED) / 1e6,
                of(ADD),
                of(ADD_CPU),
                of(AGAIN),
                of(AGAIN_STORED) / 1e3,
                of(RESTORE),
                of(RESTORE_CPU),
                of(RESIDENT) / 1e6,
            ));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell in which this project's programs take so much of everything, and the others 1.
    fn cell(name: &str, bytes: u64, ours: f64) -> CellRecord {
        let programs = [OURS, FAST, RESTIC, BORG, OURS_BEST, PEERS_BEST[0]];
        let rows = (0..10).flat_map(|run| {
            programs.map(|program| {
                let much = match program {
                    Program::Vault(_) => ours,
                    _ => 1.0,
                };
                row(program, run, 10, vec![much; COLUMNS.len()])
            })
        });
        CellRecord::made_up(name, format!("bytes={bytes}"), rows.collect())
    }

    fn verdicts(findings: Vec<Finding>) -> Vec<Verdict> {
        findings.into_iter().map(|it| it.verdict).collect()
    }

    #[test]
    fn trees_are_judged_by_the_better_peer_and_small_ones_never() {
        use Verdict::{CannotTell, Differs, Holds};
        let check = |cell: CellRecord, expected: &[Verdict]| {
            assert_eq!(verdicts(judged(&[cell])), expected);
        };
        check(cell("headers", 48 << 20, 0.45), &[Holds; 5]);
        check(
            cell("headers", 48 << 20, 0.9),
            &[Holds, Holds, Differs, Holds, Differs],
        );
        check(cell("headers", 1 << 20, 0.9), &[CannotTell; 5]);
        check(
            cell(SMALL_FILES, 48 << 20, 0.4),
            &[Holds, Holds, Holds, Holds, Differs, Differs],
        );
        let sum = [cell("a", 48 << 20, 1.01), cell("b", 48 << 20, 1.01)];
        assert_eq!(verdicts(best_judged(&sum)), [Holds, Holds, Differs]);
    }
}
