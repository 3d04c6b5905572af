//! The simulated regimes as one table of cells: the result of a row of blocks under each goal, in the goal's own unit.
//! All cells together judge a change of the rules, and the affected cells a tuned number.

use std::fmt::Write as _;

use super::controlled_test::{Beginning, Controlled, control_as};
use super::hint::Outlook;
use super::price::Goal;
use super::recorded_test::{ARMS, BLOCK_BYTES, Blocks, KINDS, all_blocks, blocks_from, pipeline};
use super::regimes_test::{BETAS, money_for_days, money_of};
use super::simulate::{Pipeline, Run};

const RECORD: &str = include_str!("../../tests/matrices/cells.csv");

/// The most by which all cells, in the geometric mean, and any one cell may exceed their recorded cost.
const DEARER_MEAN_MAX: f64 = 0.005;
const DEARER_MAX: f64 = 0.03;

/// A name and its result: seconds, bytes, or money.
type Cell = (String, f64);

fn send(goal: Goal, pipeline: &Pipeline, blocks: &Blocks, beginning: Beginning) -> Controlled {
    let outlook = Outlook::default();
    control_as(goal, &outlook, pipeline, blocks, beginning, &mut |_| {})
}

/// Returns the bytes of a run with a promised time, and for lateness as many more as the link could send in it.
fn charged_bytes(pipeline: &Pipeline, factor: f64, count: usize, run: &Run) -> f64 {
    let promised = factor * count as f64 * pipeline.write_seconds(BLOCK_BYTES as f64);
    let late = (run.drained_after.0 - promised).max(0.0);
    run.stored_bytes + late * pipeline.link_bytes_per_second
}

fn fastest(cells: &mut Vec<Cell>) {
    for (workers, beta) in [2, 24]
        .into_iter()
        .flat_map(|it| BETAS.map(|beta| (it, beta)))
    {
        let pipeline = pipeline(beta, workers);
        for blocks in all_blocks(250 * workers) {
            let run = send(Goal::Fastest, &pipeline, &blocks, Beginning::default()).run;
            let name = format!("fastest/{workers} workers/beta {beta}/{}", blocks.name);
            cells.push((name, run.drained_after.0));
        }
    }
}

/// Seconds that go unnoticed, an allowance for short rows.
const UNNOTICED: f64 = 5e-3;

/// Rows too short to learn much; those of one and two blocks know their length.
fn short(cells: &mut Vec<Cell>) {
    for beta in BETAS {
        let pipeline = pipeline(beta, 2);
        for count in [1, 2, 8, 16, 64] {
            for blocks in all_blocks(count).into_iter().take(6) {
                let beginning = Beginning {
                    pledged_blocks: (count <= 2).then_some(count),
                    ..Beginning::default()
                };
                let run = send(Goal::Fastest, &pipeline, &blocks, beginning).run;
                let name = format!("short/{count} blocks/beta {beta}/{}", blocks.name);
                cells.push((name, UNNOTICED + run.drained_after.0));
            }
        }
    }
}

/// The factor for a block's time while the machine stands still.
const STALL: f64 = 100.0;

/// Links of unknown speed behind sinks that hold some bytes, beside a neighbour that comes and goes, and on a machine
/// that stands still for a block.
fn unknown(cells: &mut Vec<Cell>) {
    for beta in BETAS {
        let told = pipeline(beta, 2);
        let hiding = Pipeline {
            hidden_bytes: 4e6,
            ..told
        };
        for blocks in all_blocks(600) {
            let untold = Beginning {
                is_told: false,
                ..Beginning::default()
            };
            let run = send(Goal::Fastest, &hiding, &blocks, untold).run;
            let name = format!("untold link/beta {beta}/{}", blocks.name);
            cells.push((name, run.drained_after.0));
            let beside = Beginning {
                neighbour: 200..400,
                ..Beginning::default()
            };
            let run = send(Goal::Fastest, &told, &blocks, beside).run;
            let name = format!("neighbour/beta {beta}/{}", blocks.name);
            cells.push((name, run.drained_after.0));
            let stalled = Beginning {
                neighbour: 200..201,
                stretch: STALL,
                ..Beginning::default()
            };
            let run = send(Goal::Fastest, &told, &blocks, stalled).run;
            let name = format!("stall/beta {beta}/{}", blocks.name);
            cells.push((name, run.drained_after.0));
        }
    }
}

/// An application that needs the cores for a fifth of the uncompressed time.
fn beside_a_solver(cells: &mut Vec<Cell>) {
    const SHARE: f64 = 0.2;
    let outlook = Outlook {
        asynchronism: SHARE,
        ..Outlook::default()
    };
    for beta in BETAS {
        let pipeline = pipeline(beta, 2);
        for blocks in all_blocks(600) {
            let (goal, beginning) = (Goal::Fastest, Beginning::default());
            let run = control_as(goal, &outlook, &pipeline, &blocks, beginning, &mut |_| {}).run;
            let raw = blocks.classes.len() as f64 * pipeline.write_seconds(BLOCK_BYTES as f64);
            let cores = SHARE * raw + run.work.0 / pipeline.workers as f64;
            let name = format!("solver/beta {beta}/{}", blocks.name);
            cells.push((name, cores.max(run.drained_after.0)));
        }
    }
}

fn within(cells: &mut Vec<Cell>) {
    for (beta, factor) in BETAS
        .into_iter()
        .flat_map(|it| [1.0, 1.5].map(|factor| (it, factor)))
    {
        let pipeline = pipeline(beta, 2);
        for blocks in all_blocks(1000) {
            let run = send(
                Goal::Within(factor),
                &pipeline,
                &blocks,
                Beginning::default(),
            )
            .run;
            let charged = charged_bytes(&pipeline, factor, blocks.classes.len(), &run);
            let name = format!("within {factor}/beta {beta}/{}", blocks.name);
            cells.push((name, charged));
        }
    }
    let pipeline = pipeline(43.0, 2);
    for (kind, count) in [0, 1]
        .into_iter()
        .flat_map(|it| [55, 80, 160].map(|count| (it, count)))
    {
        for (factor, pledged_blocks) in [(1.0, None), (1.0, Some(count)), (1.5, Some(count))] {
            let blocks = blocks_from(77, KINDS[kind], (&[kind], 1), count);
            let beginning = Beginning {
                pledged_blocks,
                ..Beginning::default()
            };
            let run = send(Goal::Within(factor), &pipeline, &blocks, beginning).run;
            let charged = charged_bytes(&pipeline, factor, count, &run);
            let told = if pledged_blocks.is_some() {
                "told"
            } else {
                "untold"
            };
            let name = format!("within {factor}/{count} blocks {told}/{}", blocks.name);
            cells.push((name, charged));
        }
    }
}

fn small_or_cheap(cells: &mut Vec<Cell>) {
    let pipeline = pipeline(4.2, 2);
    for blocks in all_blocks(1000) {
        let run = send(Goal::Smallest, &pipeline, &blocks, Beginning::default()).run;
        cells.push((format!("smallest/{}", blocks.name), run.stored_bytes));
        for days in [1.0, 90.0] {
            let goal = money_for_days(days);
            let run = send(goal, &pipeline, &blocks, Beginning::default()).run;
            let rows = blocks.matrix.costs.iter().zip(&run.arms);
            let spent: f64 = rows.map(|(costs, &arm)| money_of(goal, costs)[arm]).sum();
            cells.push((format!("money {days} days/{}", blocks.name), spent));
        }
    }
}

/// Compares all cells with the record, or, with `BREAKEVEN_CELLS` naming a file, writes the record again.
#[test]
fn the_cells_cost_what_they_did() {
    assert_eq!(ARMS.len(), 13);
    let mut cells = Vec::new();
    fastest(&mut cells);
    short(&mut cells);
    unknown(&mut cells);
    beside_a_solver(&mut cells);
    within(&mut cells);
    small_or_cheap(&mut cells);
    if let Some(path) = std::env::var_os("BREAKEVEN_CELLS") {
        let mut text = String::from("cell,cost\n");
        for (name, cost) in &cells {
            writeln!(text, "{name},{cost:e}").unwrap();
        }
        std::fs::write(path, text).unwrap();
        return;
    }
    let recorded = RECORD
        .lines()
        .skip(1)
        .map(|line| line.rsplit_once(',').expect("a cell"));
    let recorded: Vec<(&str, f64)> = recorded
        .map(|(name, cost)| (name, cost.parse().unwrap()))
        .collect();
    let (mut sum, mut worst) = (0.0, (f64::NEG_INFINITY, ""));
    assert_eq!(cells.len(), recorded.len());
    for ((name, cost), (known, before)) in cells.iter().zip(&recorded) {
        assert_eq!(name, known);
        let dearer = (cost / before).ln();
        if dearer.abs() > 1e-9 {
            println!("{name}: {:+.3} %", 100.0 * dearer.exp_m1());
        }
        sum += dearer;
        if dearer > worst.0 {
            worst = (dearer, name);
        }
    }
    let mean = (sum / cells.len() as f64).exp_m1();
    println!(
        "{} cells: mean {mean:+.5}, worst {:+.4} ({})",
        cells.len(),
        worst.0.exp_m1(),
        worst.1
    );
    assert!(cells.len() >= 320 && mean <= DEARER_MEAN_MAX, "{mean}");
    assert!(worst.0.exp_m1() <= DEARER_MAX, "{worst:?}");
}
