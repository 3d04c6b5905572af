//! Data that does not change. The switches between methods on it: no more than the buffers hide. Also the sizes by many
//! workers, for whom one block takes long against the mean time between blocks.
//!
//! If the balance falls between two methods, the best choice alternates between both, so switching alone is no fault.
//! It is a fault if a turn takes longer than the buffers hold, because the link or the workers then stand still. A rule
//! that steps from level to level as buffers fill and empty does that.

use std::cell::Cell;
use std::collections::BTreeMap;

use super::controlled_test::{Beginning, Controlled, control_as};
use super::hint::Outlook;
use super::oracle::{best_static, fastest};
use super::price::Goal;
use super::recorded_test::{ARMS, Blocks, blocks, pipeline};
use super::regimes_test::BETAS;
use super::simulate::{Event, Matrix, Pipeline, Run, simulate, simulate_chosen};
use super::starts_test::earlier;
use crate::decide::Profile;

const COUNT: usize = 2000;

/// The figures of a steady state: the second half of a row.
#[derive(Debug)]
struct Swings {
    /// Changes of method while the buffers are filled once.
    switches: f64,
    /// The most blocks in a row by another method than the one used most.
    turn: usize,
    /// Time over the bound of all schedules.
    over: f64,
}

fn swings(pipeline: &Pipeline, matrix: &Matrix, run: &Run) -> Swings {
    let arms = &run.arms[COUNT / 2..];
    let half = Matrix {
        costs: matrix.costs[COUNT / 2..].to_vec(),
    };
    let mut counts = BTreeMap::new();
    for arm in arms {
        *counts.entry(arm).or_insert(0) += 1;
    }
    let usual = counts.into_iter().max_by_key(|it| it.1).unwrap().0;
    let switches = arms.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let turns = arms.split(|arm| arm == usual).map(<[usize]>::len);
    let time = simulate_chosen(pipeline, &half, arms).drained_after.0;
    Swings {
        switches: (switches * pipeline.frames) as f64 / arms.len() as f64,
        turn: turns.max().unwrap(),
        over: time / fastest(pipeline, &half).lower_bound - 1.0,
    }
}

/// A step to the next denser method while the buffers are more than half full. A step back while no more frames wait
/// than workers may have finished at once.
fn stepping(pipeline: &Pipeline, matrix: &Matrix) -> Run {
    let (waiting, arm) = (Cell::new(0), Cell::new(0_usize));
    let step = &mut |_: usize, _: f64| {
        let frames = waiting.get();
        if frames <= pipeline.workers {
            arm.set(arm.get().saturating_sub(1));
        } else if frames > pipeline.frames / 2 {
            arm.set((arm.get() + 1).min(ARMS.len() - 1));
        }
        arm.get()
    };
    simulate(pipeline, matrix, step, &mut |event| match event {
        Event::Compressed { .. } => waiting.set(waiting.get() + 1),
        Event::Written { .. } => waiting.set(waiting.get() - 1),
    })
}

fn controlled(pipeline: &Pipeline, row: &Blocks, beginning: Beginning) -> Controlled {
    let (goal, outlook) = (Goal::Fastest, Outlook::default());
    control_as(goal, &outlook, pipeline, row, beginning, &mut |_| {})
}

/// The most changes while the buffers are filled once: not with every block.
const SWITCHES_MAX: f64 = 6.0;
/// Fewer switches are not swings, but drift between equally good methods.
const SWITCHES_FEW: f64 = 0.5;
/// The most time that may be lost by them, and by undetected faults.
const OVER_MAX: f64 = 0.03;

fn is_hidden(pipeline: &Pipeline, found: &Swings) -> bool {
    let is_short = found.turn <= pipeline.frames || found.switches <= SWITCHES_FEW;
    is_short && found.switches <= SWITCHES_MAX && found.over <= OVER_MAX
}

#[test]
fn methods_swing_no_longer_than_the_buffers_hide() {
    let (mut cells, mut steps_hidden) = (0, 0);
    for beta in BETAS {
        let pipeline = pipeline(beta, 2);
        for kind in 0..5 {
            let row = blocks("constant", &[kind], 1, COUNT).all_alike();
            let whole = Beginning {
                splits: false,
                ..Beginning::default()
            };
            let ours = controlled(&pipeline, &row, whole).run;
            let ours = swings(&pipeline, &row.matrix, &ours);
            let steps = swings(&pipeline, &row.matrix, &stepping(&pipeline, &row.matrix));
            println!("beta {beta}, kind {kind}: {ours:.3?}; by steps {steps:.3?}");
            assert!(is_hidden(&pipeline, &ours), "{ours:?}");
            cells += 1;
            steps_hidden += usize::from(is_hidden(&pipeline, &steps));
        }
    }
    println!("{steps_hidden} of {cells} hidden by steps");
    // The same bounds refuse a rule that considers only the buffers.
    assert_eq!((cells, steps_hidden), (15, 0));
}

/// Returns the most, and the mean, by which rows on many workers take longer than by the best method in hindsight.
fn regret_of_many_workers(profile: impl Fn(f64) -> Profile) -> (f64, f64) {
    let mut regrets = Vec::new();
    for workers in [4, 8, 24] {
        for beta in BETAS {
            let (pipeline, profile) = (pipeline(beta, workers), profile(beta));
            for kind in 0..5 {
                let row = blocks("constant", &[kind], 1, COUNT).all_alike();
                let beginning = Beginning {
                    profile: profile.clone(),
                    ..Beginning::default()
                };
                let found = controlled(&pipeline, &row, beginning);
                let best = best_static(&pipeline, &row.matrix).run.drained_after.0;
                let regret = found.run.drained_after.0 / best - 1.0;
                let split = found.split_blocks;
                println!(
                    "{workers} workers, beta {beta}, kind {kind}: {regret:+.4}, {split} split"
                );
                regrets.push(regret);
            }
        }
    }
    let worst = regrets.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
    (worst, regrets.iter().sum::<f64>() / regrets.len() as f64)
}

#[test]
fn many_workers_do_not_split_what_leaves_the_link_waiting() {
    let (worst, mean) = regret_of_many_workers(|beta| earlier(beta, 1.0));
    println!("worst {worst:+.4}, mean {mean:+.4}");
    assert!(worst <= 0.08 && mean <= -0.025, "{worst}, {mean}");
}

#[test]
fn many_workers_find_out_what_pays() {
    let (worst, mean) = regret_of_many_workers(|_| Profile::default());
    println!("worst {worst:+.4}, mean {mean:+.4}");
    assert!(worst <= 0.12 && mean <= -0.02, "{worst}, {mean}");
}
