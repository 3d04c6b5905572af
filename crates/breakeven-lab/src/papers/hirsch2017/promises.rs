//! S2 and S3: no more time than uncompressed, or half as much again, and the fewest bytes in it.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use breakeven::stream::{Container, Goal};

use super::bench::{BETAS, Bench, Contender, Regime};
use super::corpus::{File, Input};
use super::costs::{self, Known};
use super::judge;
use super::plan::Behind;
use super::race::{
    self, BOUND, BoundOf, COLUMNS, DRAINED_SECONDS, LINK, RAW_BYTES, Race, STORED_BYTES, WRITE,
};
use super::rules::{Stepping, Strategy};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Finding, Laboratory};
use crate::record::{CellRecord, Record};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const RECORD: &str = "hirsch2017/promises";

const PARAMETERS: &[(&str, &str)] = &[
    (
        "data",
        "text, matrix and redundant, and rows in which all five kinds take turns every 16 MiB",
    ),
    (
        "links and pipeline",
        "as in hirsch2017/fastest, mixed container, beta 43, 4.2 and 0.83",
    ),
    (
        "strategies",
        "S2 as long as uncompressed, S3 half as long again; the thesis's by its level stepping beside ours. Ours knows \
         the row's length, as pack knows a file's",
    ),
    (
        "runs",
        "10 (quick: 3), of the thesis's rule 10 at beta 43, 4 at 4.2 (1 at 0.83 and of redundant), of about 1 s uncompressed, 3 s at beta 43, and of whole rounds; 10 s with --paper-size",
    ),
];

pub const TIME: Experiment = Experiment {
    key: RECORD,
    claim: "S2 and S3 end within 3 % of the time they promise.",
    source: "Hirsch 2017, section 5.3: S2 from 22 % too slow to clearly too fast, S3 from 12 % too slow to clearly too fast",
    figure: "time until the last byte is written, over the time promised,",
    target: Target {
        low: 0.97,
        high: 1.03,
    },
    parameters: PARAMETERS,
    analysis: "Promised is the time that the bytes take uncompressed, times 1 or 1.5. Where it ends earlier and \
        the time left could not have saved 1.5 % of the bytes, only lateness counts. The thesis's rule stands beside it as a \
        variation.",
    run: |laboratory| Ok(times(&measure(laboratory)?)),
    table: |records| race::table(records, RECORD, times),
    pictures: no_pictures,
};

pub const BYTES: Experiment = Experiment {
    key: "hirsch2017/promised-ratio",
    claim: "S2 and S3 store within 1.5 % of the fewest bytes that the promised time allows.",
    source: "the linear program of docs/model.md; the thesis has no bound",
    figure: "bytes stored, over the bound,",
    target: Target {
        low: 0.0,
        high: 1.015,
    },
    parameters: PARAMETERS,
    analysis: "The bound knows all costs beforehand, has buffers without end and decides for nothing. The bytes of \
        the seek table, 12 for each block, are counted against us.",
    run: |laboratory| Ok(bytes(&measure(laboratory)?)),
    table: |records| tables::table_of(records, RECORD, COLUMNS, bytes),
    pictures: no_pictures,
};

pub const RIVALS: Experiment = Experiment {
    key: "hirsch2017/promise-rivals",
    claim: "S2 and S3 are never slower than the thesis's.",
    source: "Hirsch 2017, sections 3.2.5 and 4.2 with Listing 4.2",
    figure: "time until the last byte is written, over that of the thesis's strategy,",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: PARAMETERS,
    analysis: "A contender that ends later than promised may store less for it. The table has each one's bytes beside \
        the fewest bytes for the promised time.",
    run: |laboratory| Ok(against_theirs(&measure(laboratory)?)),
    table: |records| tables::table_of(records, RECORD, COLUMNS, against_theirs),
    pictures: no_pictures,
};

/// Runs of the thesis's rule: as many as of ours where they are close, over the slowest link, and else enough to see
/// how far it is off. Some take a minute.
fn runs_of_rules(input: Input, beta: f64) -> usize {
    match beta {
        _ if beta < 1.0 || input == Input::Plain(File::Redundant) => 1,
        _ if beta == BETAS[0] => 10,
        _ => 4,
    }
}

/// A strategy, ours and the thesis's.
struct Promise {
    ours: &'static str,
    theirs: &'static str,
    factor: f64,
}

const PROMISES: [Promise; 2] = [
    Promise {
        ours: "S2",
        theirs: "thesis S2",
        factor: 1.0,
    },
    Promise {
        ours: "S3",
        theirs: "thesis S3",
        factor: 1.5,
    },
];

fn promise_of(contender: &str) -> Option<&'static Promise> {
    (PROMISES.iter()).find(|it| it.ours == contender || it.theirs == contender)
}

fn contenders(input: Input, beta: f64) -> Vec<Contender> {
    let mut contenders = Vec::new();
    for promise in &PROMISES {
        let goal = Goal::Within(promise.factor);
        contenders.push(Contender::goal(promise.ours, goal, Container::Mixed));
        let rule = Contender::rule(promise.theirs, |regime| {
            let strategy = Strategy::Within(promise.factor);
            Arc::new(Stepping::new(strategy, regime))
        });
        contenders.push(rule.in_runs(runs_of_rules(input, beta)));
    }
    contenders
}

fn plans(laboratory: &Laboratory) -> Vec<(Input, f64)> {
    if laboratory.quick {
        return vec![(Input::Plain(File::Text), 4.2)];
    }
    let of = |input: Input| BETAS.map(|beta| (input, beta));
    let plain = [File::Text, File::Matrix, File::Redundant].map(Input::Plain);
    (plain.into_iter().chain([Input::Mixed(16)]))
        .flat_map(of)
        .collect()
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let costs = costs::measure(laboratory, &bench)?;
    let cell = |place| Behind::new(laboratory, place, (3, 0.02), 1.0).cell();
    let plans = plans(laboratory).into_iter().map(cell).collect();
    bench.measure(laboratory, (RECORD, COLUMNS), plans, |plan, kept| {
        let known = costs.known(plan.input, bench.corpus.shape, Container::Mixed.arms());
        let blocks = |regime: &Regime| bench.blocks_uncompressed(&plan, regime);
        let race = Race {
            bound: fewest_bytes(&known),
            ..Race::behind(
                &bench,
                plan.place_and_runs(),
                contenders(plan.input, plan.beta),
                blocks,
            )
        };
        race.run(kept)
    })
}

/// Returns a function that says how few bytes the promised time of a contender allows.
fn fewest_bytes<'a>(known: &'a Known<'_>) -> BoundOf<'a> {
    Box::new(move |contender, regime, blocks| {
        let Some(promise) = promise_of(&contender.name) else {
            return 0.0;
        };
        let promised = promise.factor * regime.raw_seconds(known.raw_bytes(blocks));
        known.fewest_bytes(blocks, regime, promised)
    })
}

/// Returns times over those promised.
fn over_promised(cell: &CellRecord, contender: &str, factor: f64) -> Interval {
    let column = |column| cell.column(WRITE, contender, column);
    let (raw, link) = (column(RAW_BYTES), column(LINK));
    let promised = raw.iter().zip(&link).map(|(raw, link)| factor * raw / link);
    Interval::of_quotients(&column(DRAINED_SECONDS), &promised.collect::<Vec<f64>>())
}

/// Returns bytes over the bound.
fn over_fewest(cell: &CellRecord, contender: &str) -> Interval {
    let column = |column| cell.column(WRITE, contender, column);
    Interval::of_quotients(&column(STORED_BYTES), &column(BOUND))
}

fn times(cells: &[CellRecord]) -> Vec<Finding> {
    /// As near to the fewest bytes as this, time that is left could not have been used.
    const NEAR: f64 = 1.015;
    let mut findings = Vec::new();
    for cell in cells {
        for promise in &PROMISES {
            for (contender, is_ours) in [(promise.ours, true), (promise.theirs, false)] {
                let found = over_promised(cell, contender, promise.factor);
                let bytes = over_fewest(cell, contender).middle;
                let mut finding = judge(
                    &TIME,
                    format!("{} {contender}", cell.cell),
                    is_ours,
                    found,
                    format!("{bytes:.3} of the fewest bytes for this time"),
                );
                if found.middle < TIME.target.low && bytes <= NEAR {
                    let without_floor = Target {
                        low: 0.0,
                        ..TIME.target
                    };
                    finding.verdict = without_floor.judge(found);
                    finding.note.push_str("; more time would not save more");
                }
                findings.push(finding);
            }
        }
    }
    findings
}

fn bytes(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        for promise in &PROMISES {
            for (contender, is_ours) in [(promise.ours, true), (promise.theirs, false)] {
                let found = over_fewest(cell, contender);
                let time = over_promised(cell, contender, promise.factor);
                let note = format!("in {:.3} of the promised time", time.middle);
                let question = format!("{} {contender}", cell.cell);
                findings.push(judge(&BYTES, question, is_ours, found, note));
            }
        }
    }
    findings
}

fn against_theirs(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        for Promise { ours, theirs, .. } in &PROMISES {
            let found = race::over(cell, ours, theirs, DRAINED_SECONDS);
            let [own, other] = [ours, theirs].map(|it| over_fewest(cell, it).middle);
            let note = format!("{own:.3} of the fewest bytes, theirs {other:.3}");
            let question = format!("{} {ours}", cell.cell);
            findings.push(judge(&RIVALS, question, true, found, note));
        }
    }
    findings
}

/// Reads the latest record of each cell.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    Record::new(records, RECORD, COLUMNS).latest()
}
