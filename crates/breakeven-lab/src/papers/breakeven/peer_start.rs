//! The cost of starting a peer out of a root of its own: the machine's own zstd as it is, and out of a root that holds
//! it alone.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::data::{Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::peers::Root;
use crate::programs::{self, ZSTD};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/peer-start",
    claim: "A peer that is started out of a root of its own takes at most 1.01 of the time that it takes as it is.",
    source: "this project's own target",
    figure: "time out of a root over that as it is",
    target: Target {
        low: 0.0,
        high: 1.01,
    },
    parameters: &[
        (
            "root",
            "this machine's own zstd with its libraries, copied into a folder, and entered as `breakeven-lab peer` enters one",
        ),
        (
            "work",
            "`zstd -3` of made-up text in the page cache, 64 MiB (quick: 1 MiB); and `zstd -V`, which is the start alone",
        ),
        ("runs", "40 (quick: 2), both alternating"),
    ],
    analysis: "The time is that from before the start until the end. No figure of the laboratory counts the start \
        alone; its time stands beside the other.",
    run: |laboratory| Ok(judged(&measured(laboratory)?)),
    table: |records| tables::table_of(records, EXPERIMENT.key, COLUMNS, judged),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["seconds"];
const TASK: &str = "start and work";
const AS_IT_IS: &str = "as it is";
const OF_A_ROOT: &str = "of a root";
const CONTENDERS: [&str; 2] = [AS_IT_IS, OF_A_ROOT];
const COMPRESS: &str = "zstd -3";
const START: &str = "zstd -V";

fn measured(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (bytes, runs) = match laboratory.quick {
        true => (1 << 20, 2),
        false => (64 << 20, 40),
    };
    let peers = programs::peers(&[ZSTD]);
    let is_missing = peers.starts_with("missing");
    let cells = [COMPRESS, START].map(|name| Cell {
        name: name.to_string(),
        parameters: format!("bytes={bytes} runs={runs} seed={SEED} {peers}"),
        measure: Box::new(move || match is_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, name, bytes, runs),
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.into())
}

fn rows(laboratory: &Laboratory, work: &str, bytes: usize, runs: usize) -> Result<Vec<Row>> {
    let scratch = laboratory.scratch()?;
    let (raw, made) = (scratch.path().join("raw"), scratch.path().join("made"));
    fs::write(&raw, Kind::Text.generate(bytes, SEED))?;
    let (root, program) = Root::of_machine(&scratch.path().join("root"), ZSTD.0)?;
    let turn = |contender: &str| -> Result<f64> {
        let mut zstd = match contender {
            OF_A_ROOT => root.command(ZSTD.0.as_ref()).context("a zstd")?,
            _ => Command::new(&program),
        };
        match work {
            START => zstd.arg("-V"),
            _ => zstd.args(["-3", "-q", "-f"]).arg(&raw).arg("-o").arg(&made),
        };
        zstd.stdin(Stdio::null()).stdout(Stdio::null());
        let begun = Instant::now();
        let status = zstd.status()?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(status.success(), "{zstd:?}: {status}");
        Ok(seconds)
    };
    for contender in CONTENDERS {
        turn(contender)?;
    }
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let name = CONTENDERS[index];
            Ok(Row::new(TASK, name, (run, runs), vec![turn(name)?]))
        })?);
    }
    Ok(rows)
}

fn judged(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        if let Some(missing) = programs::missing(cell) {
            return missing;
        }
        let seconds = |name| cell.column(TASK, name, 0);
        let found = Interval::of_quotients(&seconds(OF_A_ROOT), &seconds(AS_IT_IS));
        let milliseconds = |name| 1e3 * cell.median(TASK, name, 0);
        Finding {
            question: cell.cell.clone(),
            core: cell.cell == COMPRESS,
            found,
            verdict: EXPERIMENT.target.judge(found),
            note: format!(
                "target {}; {:.1} ms, as it is {:.1} ms",
                EXPERIMENT.target,
                milliseconds(OF_A_ROOT),
                milliseconds(AS_IT_IS)
            ),
        }
    };
    cells.iter().map(of_cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn only_work_is_judged() {
        let check = |name: &str, factor: f64, expected: (bool, Verdict)| {
            let rows = (0..40).flat_map(|run| {
                let seconds = 1.0 + run as f64 / 100.0;
                let row = |name, value| Row::new(TASK, name, (run, 40), vec![value]);
                [row(AS_IT_IS, seconds), row(OF_A_ROOT, factor * seconds)]
            });
            let cell = CellRecord::made_up(name, "peers=zstd", rows.collect());
            let found = &judged(&[cell])[0];
            assert_eq!((found.core, found.verdict), expected, "{found:?}");
        };
        check(COMPRESS, 1.005, (true, Verdict::Holds));
        check(COMPRESS, 1.02, (true, Verdict::Differs));
        check(START, 2.0, (false, Verdict::Differs));
    }
}
