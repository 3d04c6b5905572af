//! The cost of a decision: nanoseconds of a pick, alone, with a place's own costs, and in a stream.

use std::hint::black_box;
use std::path::Path;

use anyhow::{Result, ensure};
use breakeven::codec::Method;
use breakeven::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Observation, Prices, Profile, Quantities,
};
use breakeven::stream::Outlook;
use breakeven::stream::price::{Controller, Goal, Plant, Taken};
use breakeven::units::{BytesPerSecond, Estimate, Seconds};

use crate::experiment::{Experiment, no_pictures};
use crate::interleave::{self, Plan, Race};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/decide",
    claim: "A pick among 8 candidates takes at most 300 ns beside the place's own function.",
    source: "this project's own target",
    figure: "nanoseconds of processor time a pick, without a place's function",
    target: TARGET,
    parameters: &[
        (
            "candidates",
            "8: store, lz4:1, zstd:-1, zstd:1, zstd:3, zstd:9, xz:1, xz:6; variations with 2 and 13",
        ),
        (
            "classes",
            "one, or five alternating: blocks of 64 KiB, every method observed on each class",
        ),
        (
            "runs",
            "40 (quick: 6), each contender about 20 ms (quick: 2 ms), alternating; 256 picks a pass",
        ),
        (
            "beside it",
            "with a function that waits for a queue; with other prices at every pick; and a stream's whole pick for \
             two workers. That is entering the window, pricing, picking, and learning of the block and its write",
        ),
    ],
    analysis: "Each candidate's needs are kept for each class until something is learned, and its cost until a price \
        moves. So a pick adds and compares. Prices that move cost eight pricings, as much as a stream's pick needs \
        anyway. The tests time nothing. This is the record.",
    run,
    table,
    pictures: no_pictures,
};

const TARGET: Target = Target {
    low: 0.0,
    high: 300.0,
};
const BLOCK_BYTES: u64 = 64 << 10;
const PICKS: usize = 256;
const METHODS: [&str; 13] = [
    "store", "lz4:1", "zstd:-1", "zstd:1", "zstd:3", "zstd:9", "xz:1", "xz:6", "lz4:a8", "zstd:-5",
    "zstd:5", "zstd:15", "zstd:19",
];
const CONTENDERS: [&str; 4] = ["pick", "with-place", "other-prices", "stream"];
const COLUMNS: &[&str] = &["picks", "wall_seconds", "cpu_seconds"];
const TASK: &str = "pick";

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells(laboratory.quick))?;
    Ok(measured.iter().map(judge).collect())
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, EXPERIMENT.key, COLUMNS, |cells| {
        cells.iter().map(judge).collect()
    })
}

fn cells(quick: bool) -> Vec<Cell<'static>> {
    let plan = match quick {
        true => Plan {
            runs: 6,
            batch_seconds: 0.002,
        },
        false => Plan {
            runs: 40,
            batch_seconds: 0.02,
        },
    };
    let combinations = [(8, 1), (8, 5), (2, 1), (13, 5)];
    let cell = |(candidates, classes): (usize, usize)| Cell {
        name: format!("{candidates} candidates in {classes} classes"),
        parameters: format!(
            "candidates={candidates} classes={classes} block_bytes={BLOCK_BYTES} runs={} batch_seconds={}",
            plan.runs, plan.batch_seconds
        ),
        measure: Box::new(move || measure(candidates, classes, plan)),
    };
    combinations.into_iter().map(cell).collect()
}

fn measure(candidates: usize, classes: usize, plan: Plan) -> Result<Vec<Row>> {
    let mut race = Picking::new(candidates, classes)?;
    let runs = interleave::interleave(&mut race, CONTENDERS.len(), plan)?;
    let rows = runs.iter().enumerate().flat_map(|(run, batches)| {
        let row = move |(contender, batch): (usize, &interleave::Batch)| Row {
            task: TASK.to_string(),
            run: run + 1,
            runs: plan.runs,
            contender: CONTENDERS[contender].to_string(),
            values: vec![
                (batch.passes * PICKS as u64) as f64,
                batch.duration.wall_seconds,
                batch.duration.cpu_seconds,
            ],
        };
        batches.iter().enumerate().map(row)
    });
    Ok(rows.collect())
}

/// Choosers that know all their methods.
struct Picking {
    methods: Vec<Method>,
    classes: Vec<Class>,
    chooser: Chooser,
    controller: Controller,
    /// Seconds since the stream's first block.
    now: f64,
    picked: u64,
}

/// Returns the result of a method on a block: the denser, the slower.
fn observation(class: Class, method: Method, place: usize) -> Observation {
    Observation {
        class,
        method,
        raw_bytes: BLOCK_BYTES,
        stored_bytes: BLOCK_BYTES * 2 / (2 + place as u64),
        encode: Some(Seconds(2e-5 * 1.8_f64.powi(place as i32))),
        decode: None,
    }
}

impl Picking {
    fn new(candidates: usize, classes: usize) -> Result<Picking> {
        let methods = METHODS[..candidates].iter().map(|it| it.parse());
        let methods = methods.collect::<Result<Vec<Method>, _>>()?;
        let classes: Vec<Class> = Class::all_content().skip(14).take(classes).collect();
        let mut profile = Profile::default();
        for _ in 0..8 {
            for &class in &classes {
                for (place, &method) in methods.iter().enumerate() {
                    profile.observe(&observation(class, method, place));
                }
            }
        }
        let plant = Plant {
            workers: 2,
            frames: 8,
            link: BytesPerSecond(2e8),
            write_overhead: Seconds(2e-5),
        };
        Ok(Picking {
            chooser: Chooser::new(
                methods.iter().copied().map(Candidate::new).collect(),
                profile.clone(),
                ChooserOptions::default(),
            ),
            controller: Controller::new(Goal::Fastest, methods.clone(), plant, profile),
            methods,
            classes,
            now: 0.0,
            picked: 0,
        })
    }

    /// Picks for as many blocks as a pass has, at prices that move by `step`.
    fn pick(&mut self, step: f64, place_cost: impl Fn(usize, &Quantities) -> f64 + Copy) {
        for block in 0..PICKS {
            let class = self.classes[block % self.classes.len()];
            let life = BlockLife::new(class, BLOCK_BYTES);
            let per_byte = 1e-8 * (1.0 + step * block as f64);
            let prices = Prices {
                per_core_second: Estimate::exact(1.0),
                per_byte_written: Estimate::exact(per_byte),
                ..Prices::default()
            };
            let picked = self
                .chooser
                .pick(black_box(&life), black_box(&prices), place_cost);
            self.picked += black_box(picked.candidate) as u64 + 1;
        }
    }

    /// Lets a stream pick for as many blocks, each encoded and written when the next is chosen for.
    fn stream(&mut self) {
        let outlook = Outlook::default();
        for block in 0..PICKS {
            let class = self.classes[block % self.classes.len()];
            let controller = &mut self.controller;
            let (arm, ticket) =
                controller.choose_for(class, BLOCK_BYTES, &outlook, Seconds(self.now));
            let observation = observation(class, self.methods[arm], arm);
            let taken = Taken {
                observation,
                wall: observation.encode.unwrap_or_default(),
            };
            self.now += 3e-4;
            controller.encoded(ticket, &taken, Seconds(self.now));
            controller.written(Seconds(self.now));
            self.picked += black_box(arm) as u64 + 1;
        }
    }
}

impl Race for Picking {
    fn prepare(&mut self, _: usize) -> Result<()> {
        self.picked = 0;
        Ok(())
    }

    fn pass(&mut self, contender: usize) -> Result<()> {
        match contender {
            0 => self.pick(0.0, |_, _| 0.0),
            1 => self.pick(0.0, |_, it| {
                // A queue of 64 KiB that is full: stored bytes wait, and encoding runs meanwhile.
                let wait = 1e-8 * (64e3 + it.stored_bytes.mean) - it.encode_core_seconds.mean;
                wait.max(0.0)
            }),
            2 => self.pick(1e-4, |_, _| 0.0),
            _ => self.stream(),
        }
        Ok(())
    }

    fn verify(&mut self, contender: usize) -> Result<()> {
        ensure!(self.picked > 0, "{} picked nothing", CONTENDERS[contender]);
        Ok(())
    }
}

fn judge(cell: &CellRecord) -> Finding {
    let nanoseconds = |contender: &str| {
        let seconds = cell.column(TASK, contender, 2);
        let picks = cell.column(TASK, contender, 0);
        let each: Vec<f64> = seconds
            .iter()
            .zip(&picks)
            .map(|(a, b)| 1e9 * a / b)
            .collect();
        Interval::of_pairs(&each)
    };
    let found = nanoseconds(CONTENDERS[0]);
    let [place, prices, stream] =
        [1, 2, 3].map(|contender| nanoseconds(CONTENDERS[contender]).middle);
    Finding {
        question: cell.cell.clone(),
        core: cell.parameters.starts_with("candidates=8 "),
        found,
        verdict: TARGET.judge(found),
        note: format!(
            "{:+.0} ns by a place's function; {prices:.0} ns where prices move; a stream's whole pick {stream:.0} ns",
            place - found.middle
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn a_pick_is_judged_without_the_place() {
        let mut rows = Vec::new();
        for run in 1..=10 {
            for (contender, nanoseconds) in CONTENDERS.iter().zip([250.0, 280.0, 900.0, 2000.0]) {
                rows.push(Row {
                    task: TASK.to_string(),
                    run,
                    runs: 10,
                    contender: contender.to_string(),
                    values: vec![1000.0, 1.0, nanoseconds * 1e-6],
                });
            }
        }
        let cell = CellRecord::made_up("cell", "candidates=8 classes=1", rows);
        let found = judge(&cell);
        assert!(found.core && found.verdict == Verdict::Holds, "{found:?}");
        assert!((found.found.middle - 250.0).abs() < 1e-6);
        assert!(found.note.starts_with("+30 ns by a place's"), "{found:?}");
    }

    #[test]
    fn every_contender_picks() {
        let mut race = Picking::new(8, 5).unwrap();
        for contender in 0..CONTENDERS.len() {
            race.prepare(contender).unwrap();
            race.pass(contender).unwrap();
            race.verify(contender).unwrap();
        }
    }
}
