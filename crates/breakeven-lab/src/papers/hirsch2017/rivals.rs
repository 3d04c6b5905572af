//! The rules of others on the same pipeline, over the same link, in the same run.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use breakeven::stream::{Container, Goal};

use super::bench::{BETAS, Bench, Contender, Regime};
use super::corpus::{File, Input};
use super::fastest::{self, S1};
use super::plan::Behind;
use super::race::{self, COLUMNS, DRAINED_SECONDS, Race};
use super::rules::{Ace, Datacomp, Pebble, Stepping, Strategy, ZfsGate};
use super::{costs, judge, pictures};
use crate::experiment::Experiment;
use crate::laboratory::{Finding, Laboratory};
use crate::record::{CellRecord, Record};
use crate::statistics::Target;

pub const RECORD: &str = "hirsch2017/rivals";

pub const EXPERIMENT: Experiment = Experiment {
    key: RECORD,
    claim: "The controller is never slower than the thesis's level stepping, ACE's yes or no, Datacomp's table, ZFS's gate or \
        Pebble's rule on the same pipeline.",
    source: "Hirsch 2017, sections 2.3, 3.2.5 and 4.2 with Listing 4.2; Sucu and Krintz 2003; Peterson and Reiher 2016; OpenZFS \
        pull request 13244; cockroachdb/pebble, adaptive compressor",
    figure: "time until the last byte is written, over the rival's,",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "data",
            "text, matrix and redundant, and rows in which all five kinds take turns every 16 MiB",
        ),
        (
            "rivals",
            "each its source's rule with the nearest codecs that a stock reader of one stream decodes; every difference stands above its \
             code in src/papers/hirsch2017/rules.rs",
        ),
        (
            "links and pipeline",
            "as in hirsch2017/fastest, mixed container, beta 43, 4.2 and 0.83; the speed of the link is given to all",
        ),
        (
            "runs",
            "10 (quick: 3) of about 0.8 s by the fastest schedule's time, 2.4 s at beta 43; 10 s with --paper-size",
        ),
    ],
    analysis: "Where a rival stands where we do (all on the right method from the first block), neither can be faster. \
        The interval straddles 1, and the result is inconclusive. ZFS's gate and Pebble's rule know no link, so a slow \
        or a fast one must find them wrong. The divisor of the thesis's rule is not published. Ours spans its levels \
        on this machine.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| race::table(records, RECORD, findings),
    pictures: pictures::rivals,
};

/// Names of the rivals.
pub const RIVALS: [&str; 5] = ["thesis S1", "ACE", "Datacomp", "ZFS gate", "Pebble"];

fn contenders() -> Vec<Contender> {
    let [thesis, ace, datacomp, zfs, pebble] = RIVALS;
    vec![
        Contender::goal(S1, Goal::Fastest, Container::Mixed),
        Contender::rule(thesis, |regime| {
            Arc::new(Stepping::new(Strategy::S1, regime))
        }),
        Contender::rule(ace, |regime| Arc::new(Ace::new(regime))),
        Contender::rule(datacomp, |regime| Arc::new(Datacomp::new(regime))),
        Contender::rule(zfs, |_| Arc::new(ZfsGate::new())),
        Contender::rule(pebble, |_| Arc::new(Pebble::new())),
    ]
}

/// Returns the cells: input and beta.
fn plans(laboratory: &Laboratory) -> Vec<(Input, f64)> {
    if laboratory.quick {
        return vec![(Input::Mixed(1), 4.2)];
    }
    let mixed = BETAS.map(|beta| (Input::Mixed(16), beta));
    let plain = [
        (Input::Plain(File::Text), 4.2),
        (Input::Plain(File::Matrix), 43.0),
        (Input::Plain(File::Redundant), 4.2),
    ];
    mixed.into_iter().chain(plain).collect()
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let costs = costs::measure(laboratory, &bench)?;
    let cell = |place| Behind::new(laboratory, place, (3, 0.02), 0.8).cell();
    let plans = plans(laboratory).into_iter().map(cell).collect();
    bench.measure(laboratory, (RECORD, COLUMNS), plans, |plan, kept| {
        let known = costs.known(plan.input, bench.corpus.shape, Container::Mixed.arms());
        let blocks = |regime: &Regime| known.blocks_in(plan.seconds, regime);
        let race = Race {
            bound: fastest::fluid_bound(&known),
            ..Race::behind(&bench, plan.place_and_runs(), contenders(), blocks)
        };
        race.run(kept)
    })
}

/// Reads the latest record of each cell.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    Record::new(records, RECORD, COLUMNS).latest()
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let of_cell = |cell: &CellRecord| {
        let finding = |rival: &str| {
            let found = race::over(cell, S1, rival, DRAINED_SECONDS);
            let ratio = |name: &str| race::ratio(cell, name);
            let note = format!("ratio {:.2}, the rival's {:.2}", ratio(S1), ratio(rival));
            let question = format!("{} against {rival}", cell.cell);
            judge(&EXPERIMENT, question, true, found, note)
        };
        RIVALS.map(finding)
    };
    cells.iter().flat_map(of_cell).collect()
}
