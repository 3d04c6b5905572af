//! How much faster two threads compress than one: Figures 5.2 to 5.4 for as many threads as there are
//! here.

use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use breakeven::codec::Method;
use breakeven::frame::{Encoder, frame_bytes_max};

use super::bench::WORKERS;
use super::corpus::{Corpus, File, Place};
use super::judge;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

const RECORD: &str = "hirsch2017/threads";
const COLUMNS: &[&str] = &["raw_bytes", "wall_seconds"];
const WALL_SECONDS: usize = 1;
const TASK: &str = "compress";
/// Threads of the contenders, and their names.
const CONTENDERS: [(usize, &str); 2] = [(1, "one thread"), (WORKERS, "two threads")];

pub const EXPERIMENT: Experiment = Experiment {
    key: RECORD,
    claim: "Two threads compress twice as fast as one.",
    source: "Hirsch 2017, section 5.1.4 and Figures 5.2 to 5.4: two threads as expected 2, twelve under 10, 24 by Hyper-Threading \
        under 14",
    figure: "time of one thread over that of two",
    target: Target {
        low: 1.8,
        high: 2.2,
    },
    parameters: &[
        (
            "data",
            "16 blocks of 1 MiB of text, of --data where it is given; each thread takes the next block, over and over",
        ),
        (
            "methods",
            "LZ4 with acceleration 1, 10, 20 and 50, zstd 1, 3, 5, 9, 14 and 19, xz 1, 3, 6 and 9",
        ),
        (
            "runs",
            "10 (quick: 3) of about 0.3 s by one thread, wall time, alternating with two",
        ),
    ],
    analysis: "The thesis has twelve cores with two threads each; its curves bend where threads share a core or the memory's bandwidth. \
        Here are two processors of a virtual machine, which may be the two threads of one core: a speedup well below 2 says that they \
        are. All other experiments use both.",
    run: |laboratory| Ok(speedups(&measure(laboratory)?)),
    table: |records| tables::table_of(records, RECORD, COLUMNS, speedups),
    pictures: no_pictures,
};

fn methods(is_quick: bool) -> &'static [&'static str] {
    const ALL: &[&str] = &[
        "lz4:1", "lz4:a10", "lz4:a20", "lz4:a50", "zstd:1", "zstd:3", "zstd:5", "zstd:9",
        "zstd:14", "zstd:19", "xz:1", "xz:3", "xz:6", "xz:9",
    ];
    if is_quick { &ALL[..2] } else { ALL }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let corpus = Corpus::load(laboratory)?;
    let (runs, seconds) = if laboratory.quick {
        (3, 0.002)
    } else {
        (10, 0.3)
    };
    let corpus = &corpus;
    let cell = |name: &'static str| Cell {
        name: name.to_string(),
        parameters: format!(
            "origin={} block_bytes={} blocks={} runs={runs} seconds={seconds}",
            File::Text.origin(laboratory),
            corpus.shape.block_bytes,
            corpus.shape.blocks
        ),
        measure: Box::new(move || race(corpus, name.parse()?, (runs, seconds))),
    };
    let cells = methods(laboratory.quick)
        .iter()
        .copied()
        .map(cell)
        .collect();
    laboratory.measure(RECORD, COLUMNS, cells)
}

fn race(corpus: &Corpus, method: Method, (runs, seconds): (usize, f64)) -> Result<Vec<Row>> {
    // Each contender encodes the same blocks: a whole number for each thread.
    let alone = encode(corpus, method, 1, WORKERS)?;
    let rounds = (seconds / alone).ceil().max(1.0) as usize;
    let blocks = rounds * WORKERS;
    let mut rows = Vec::new();
    for run in 0..runs {
        let turns = interleave::in_turn(run, CONTENDERS.len(), |index| {
            encode(corpus, method, CONTENDERS[index].0, blocks)
        })?;
        for ((_, name), wall_seconds) in CONTENDERS.iter().zip(turns) {
            rows.push(Row {
                task: TASK.to_string(),
                run: run + 1,
                runs,
                contender: name.to_string(),
                values: vec![(blocks * corpus.shape.block_bytes) as f64, wall_seconds],
            });
        }
    }
    Ok(rows)
}

/// Encodes so many blocks by so many threads; returns the seconds until the last has its share.
fn encode(corpus: &Corpus, method: Method, threads: usize, blocks: usize) -> Result<f64> {
    let worker = |first: usize| -> Result<()> {
        let mut encoder = Encoder::new();
        let mut frame = vec![0; frame_bytes_max(corpus.shape.block_bytes)];
        for index in (first..blocks).step_by(threads) {
            let place = Place {
                file: File::Text,
                block: index % corpus.shape.blocks,
            };
            encoder.encode(method, corpus.block(place), &mut frame)?;
        }
        Ok(())
    };
    let begun = Instant::now();
    thread::scope(|scope| -> Result<()> {
        let worker = &worker;
        let spawned: Vec<_> = (0..threads)
            .map(|first| scope.spawn(move || worker(first)))
            .collect();
        for thread in spawned {
            thread.join().ok().context("a thread panicked")??;
        }
        Ok(())
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

fn speedups(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        let of = |(_, name): (usize, &str)| cell.column(TASK, name, WALL_SECONDS);
        let found = Interval::of_quotients(&of(CONTENDERS[0]), &of(CONTENDERS[1]));
        judge(&EXPERIMENT, cell.cell.clone(), true, found, String::new())
    };
    cells.iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn a_thread_that_adds_nothing_is_seen() {
        let check = |two: f64, expected: Verdict| {
            let row = |run: usize, (_, name): (usize, &str), seconds: f64| Row {
                task: TASK.to_string(),
                run,
                runs: 10,
                contender: name.to_string(),
                values: vec![1e6, seconds],
            };
            let rows = (1..=10)
                .flat_map(|run| [row(run, CONTENDERS[0], 1.0), row(run, CONTENDERS[1], two)]);
            let cell = CellRecord::made_up("lz4:1", "runs=10", rows.collect());
            assert_eq!(speedups(&[cell])[0].verdict, expected, "{two}");
        };
        check(0.5, Verdict::Holds);
        check(0.9, Verdict::Differs);
    }
}
