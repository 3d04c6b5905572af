//! The cost of deciding where there is nothing to decide: bytes that do not shrink behind a link that is no limit, and
//! calls that are over before anything was learnt.

use anyhow::Result;
use breakeven::codec::Method;
use breakeven::stream::{Container, Goal};

use super::bench::{BETAS, Bench, Contender, Regime};
use super::corpus::{File, Input};
use super::fastest::{self, S1};
use super::plan::{Behind, Planned};
use super::race::{self, COLUMNS, DRAINED_SECONDS, Race, WRITE};
use super::{costs, judge};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Finding, Laboratory};
use crate::record::CellRecord;
use crate::statistics::{Interval, Target};

const COPY_RECORD: &str = "hirsch2017/copy";
const CALLS_RECORD: &str = "hirsch2017/short-calls";
const STORE: &str = "store";
const S1_MIXED: &str = "S1 mixed";
/// The link of the copy: so much slower is LZ4 than it.
const OPEN_BETA: f64 = 0.02;

pub const COPY: Experiment = Experiment {
    key: COPY_RECORD,
    claim: "On incompressible data behind a link faster than the workers, the controller is at most 2 % slower than a plain copy.",
    source: "Hirsch 2017, section 5.3.3: matrix.bin by LZ4 does not reach the link of 6000 MB/s, S1 is slower than LZ4",
    figure: "time until the last byte is written, over that of store,",
    target: Target {
        low: 0.0,
        high: 1.02,
    },
    parameters: &[
        (
            "data",
            "noise; a variation is the matrix, which only slow methods shrink",
        ),
        (
            "link",
            "fifty times as fast as LZ4 by two workers: none to speak of",
        ),
        (
            "the plain copy",
            "the same writer with store for every block: the same buffers, threads, checksums and seek table",
        ),
        ("runs", "10 (quick: 3) of about 3 s; 10 s with --paper-size"),
    ],
    analysis: "A plain copy is little more than two checksums and two moves in memory. Two hundredths of it are some \
        microseconds a block. The class of each block has to be found in that.",
    run: |laboratory| Ok(copies(&measure_copies(laboratory)?)),
    table: |records| race::table(records, COPY_RECORD, copies),
    pictures: no_pictures,
};

pub const CALLS: Experiment = Experiment {
    key: CALLS_RECORD,
    claim: "A short call takes at most 2 % and 5 ms longer than by the best static method.",
    source: "the thesis writes 1 GiB a call; short calls are ours",
    figure: "milliseconds beyond 1.02 times the best static method's",
    target: Target {
        low: -1e4,
        high: 5.0,
    },
    parameters: &[
        ("data", "text and noise: 1, 4 and 16 blocks of 1 MiB a call"),
        (
            "links and pipeline",
            "as in hirsch2017/fastest, portable container, beta 43, 4.2 and 0.83; each call begins cold",
        ),
        (
            "static methods",
            "those of hirsch2017/fastest by arithmetic, for this call's blocks, at most three",
        ),
        ("runs", "10 (quick: 3), one call each"),
    ],
    analysis: "A call of one block has nothing to learn from, so it goes by the methods' built-in figures. The 5 ms \
        are the allowed cost of a trial. The tail of a short call drains from the buffers. So the time until all is \
        compressed, which an application waits for, is shorter.",
    run: |laboratory| Ok(calls(&measure_calls(laboratory)?)),
    table: |records| race::table(records, CALLS_RECORD, calls),
    pictures: no_pictures,
};

fn measure_copies(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let costs = costs::measure(laboratory, &bench)?;
    let files = [File::Noise, File::Matrix];
    let files = &files[..if laboratory.quick { 1 } else { 2 }];
    let plans = files.iter().map(|file| {
        let place = (Input::Plain(*file), OPEN_BETA);
        Planned {
            name: file.name().to_string(),
            ..Behind::new(laboratory, place, (3, 0.01), 3.0).cell()
        }
    });
    let record = (COPY_RECORD, COLUMNS);
    bench.measure(laboratory, record, plans.collect(), |plan, kept| {
        let contenders = vec![
            Contender::goal(S1, Goal::Fastest, Container::Portable),
            Contender::goal(S1_MIXED, Goal::Fastest, Container::Mixed),
            Contender::fixed(Method::STORE),
        ];
        let store = costs.known(plan.input, bench.corpus.shape, vec![Method::STORE]);
        let blocks = |regime: &Regime| store.blocks_in(plan.seconds, regime);
        Race::behind(&bench, plan.place_and_runs(), contenders, blocks).run(kept)
    })
}

fn copies(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        let is_core = cell.cell == File::Noise.name();
        [S1, S1_MIXED].map(|contender| {
            let found = race::over(cell, contender, STORE, DRAINED_SECONDS);
            let seconds = |name: &str| race::median(cell, name, DRAINED_SECONDS);
            let blocks = race::median(cell, STORE, race::RAW_BYTES) / (1 << 20) as f64;
            let note = format!(
                "{:.0} us a MiB, the copy {:.0}",
                1e6 * seconds(contender) / blocks,
                1e6 * seconds(STORE) / blocks
            );
            let question = format!("{} {contender}", cell.cell);
            judge(&COPY, question, is_core, found, note)
        })
    };
    cells.iter().flat_map(of_cell).collect()
}

/// Returns the calls: input, beta and blocks.
fn short_calls(laboratory: &Laboratory) -> Vec<(Input, f64, usize)> {
    if laboratory.quick {
        return vec![(Input::Plain(File::Text), 4.2, 4)];
    }
    let mut calls = Vec::new();
    for file in [File::Text, File::Noise] {
        for beta in BETAS {
            for blocks in [1, 4, 16] {
                calls.push((Input::Plain(file), beta, blocks));
            }
        }
    }
    calls
}

fn measure_calls(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let costs = costs::measure(laboratory, &bench)?;
    let runs = if laboratory.quick { 3 } else { 10 };
    let plan = |call| {
        let (input, beta, blocks) = call;
        Planned {
            plan: call,
            name: format!("{input} beta {beta} {blocks} MiB"),
            input,
            parameters: format!("beta={beta} runs={runs} call_blocks={blocks}"),
        }
    };
    let plans = short_calls(laboratory).into_iter().map(plan);
    let record = (CALLS_RECORD, COLUMNS);
    bench.measure(laboratory, record, plans.collect(), |call, kept| {
        let (input, beta, blocks) = call;
        let known = costs.known(input, bench.corpus.shape, Container::Portable.arms());
        let choose = || Ok(known.statics(blocks, &bench.regime(beta)?));
        let ours = vec![Contender::goal(S1, Goal::Fastest, Container::Portable)];
        let contenders = fastest::against_statics(ours, 3, &kept, choose)?;
        Race::behind(&bench, (input, beta, runs), contenders, |_| blocks).run(kept)
    })
}

fn calls(cells: &[CellRecord]) -> Vec<Finding> {
    const ALLOWED: f64 = 1.02;
    let of_cell = |cell: &CellRecord| {
        let seconds = |name: &str| race::median(cell, name, DRAINED_SECONDS);
        let best = race::best_static(cell)?;
        let ours = cell.column(WRITE, S1, DRAINED_SECONDS);
        let theirs = cell.column(WRITE, best, DRAINED_SECONDS);
        let excess: Vec<f64> = (ours.iter().zip(&theirs))
            .map(|(ours, best)| 1e3 * (ours - ALLOWED * best))
            .collect();
        let note = format!(
            "{:.1} ms, {best} {:.1} ms",
            1e3 * seconds(S1),
            1e3 * seconds(best)
        );
        let found = Interval::of_pairs(&excess);
        Some(judge(&CALLS, cell.cell.clone(), true, found, note))
    };
    cells.iter().filter_map(of_cell).collect()
}
