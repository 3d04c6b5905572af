//! The controller on the simulated pipeline, with costs recorded from generated data. It runs against the best method
//! in hindsight and against the bound that no schedule can beat. Nothing here is timed.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::controlled_test::{Beginning, Controlled, control, control_as, control_for};
use super::hint::Outlook;
use super::oracle::{best_static, fastest, fewest_bytes};
use super::price::Goal;
use super::recorded_test::{
    ARMS, BLOCK_BYTES, Blocks, KINDS, all_blocks, all_blocks_from, block, blocks, blocks_from,
    class_of, pipeline,
};
use super::simulate::{Cost, Matrix, Pipeline, Run};
use super::split::PARTS;
use super::writer::Container;
use crate::codec::Method;
use crate::decide::{
    Class, Observation, Prices, Profile, TRIAL_BLOCKS, TRIAL_SECONDS, TRIAL_SHARE,
};
use crate::frame::{Encoder, frame_bytes_max};
use crate::units::{Estimate, Seconds};

pub const BETAS: [f64; 3] = [43.0, 4.2, 0.83];

/// The aim is 2 % with any number of workers; more of them learn less before all have begun.
const SLOWER_MAX: [(usize, f64); 2] = [(2, 0.03), (24, 0.1)];

/// Returns the longest time of a block by its best method.
fn dearest_block(pipeline: &Pipeline, blocks: &Blocks) -> f64 {
    let least = |row: &Vec<Cost>| {
        let times = row.iter().map(|it| {
            let write = pipeline.write_seconds(it.stored_bytes);
            pipeline.work_share(it.work).max(write)
        });
        times.fold(f64::INFINITY, f64::min)
    };
    let rows = blocks.matrix.costs.iter().map(least);
    rows.fold(0.0, f64::max)
}

/// The most by which trials exceed their fear: one of xz on numbers, which are harder for it than any data in the
/// survey.
const SURPRISE_SHARE_MAX: f64 = 0.015;

#[test]
fn the_fastest_goal_against_the_best_method_and_the_bound() {
    for (workers, slower_max) in SLOWER_MAX {
        let (mut worst, mut sum, mut cells) = (f64::NEG_INFINITY, 0.0, 0);
        for beta in BETAS {
            let pipeline = pipeline(beta, workers);
            for blocks in all_blocks(1000 * workers) {
                let (goal, outlook) = (Goal::Fastest, Outlook::default());
                let beginning = Beginning::default();
                let found = control_as(goal, &outlook, &pipeline, &blocks, beginning, &mut |_| {});
                let Controlled {
                    run,
                    tried_share: share,
                    surprise_share,
                    ..
                } = found;
                let best = best_static(&pipeline, &blocks.matrix);
                let bound = fastest(&pipeline, &blocks.matrix);
                let time = run.drained_after.0;
                let to_static = time / best.run.drained_after.0 - 1.0;
                println!(
                    "beta {beta:4}, {workers:2} workers, {:14}: {:+6.1} % to {:8} {:+6.1} % to the \
                     bound, tried {:.2} %, {:.2} % of it more than feared",
                    blocks.name,
                    100.0 * to_static,
                    ARMS[best.arm],
                    100.0 * (time / bound.lower_bound - 1.0),
                    100.0 * share,
                    100.0 * surprise_share
                );
                let least = fastest(&pipeline, &blocks.with_parts()).lower_bound;
                assert!(time >= least * (1.0 - 1e-9));
                let lent_blocks = TRIAL_BLOCKS * workers as f64;
                let lent = lent_blocks * dearest_block(&pipeline, &blocks) + TRIAL_SECONDS;
                let budget = TRIAL_SHARE + lent / bound.lower_bound;
                // A trial is charged as feared; a further cost is known at its end.
                let foreseen = share - surprise_share;
                assert!(foreseen <= budget, "tried {foreseen}, may {budget}");
                assert!(surprise_share <= SURPRISE_SHARE_MAX, "{surprise_share}");
                worst = worst.max(to_static);
                sum += to_static;
                cells += 1;
            }
        }
        let mean = sum / f64::from(cells);
        println!("{workers} workers, {cells} cells: worst {worst:+.4}, mean {mean:+.4}");
        assert!(worst <= slower_max && mean <= 0.05, "{worst}, {mean}");
    }
}

#[test]
fn goals_with_a_time_keep_it_and_come_near_the_fewest_bytes() {
    let (mut worst_time, mut worst_bytes, mut kept, mut cells) = (0.0_f64, 0.0_f64, 0, 0);
    for beta in BETAS {
        for factor in [1.0, 1.5] {
            let pipeline = pipeline(beta, 2);
            for blocks in all_blocks(2000) {
                let (run, _) = control(Goal::Within(factor), &pipeline, &blocks);
                let count = blocks.classes.len() as f64;
                let budget = factor * count * pipeline.write_seconds(BLOCK_BYTES as f64);
                let late = run.drained_after.0 / budget - 1.0;
                // Time beyond the promise counts once, as lateness.
                let taken = budget.max(run.drained_after.0);
                let fewest = fewest_bytes(&pipeline, &blocks.matrix, taken);
                let more = run.stored_bytes / fewest - 1.0;
                println!(
                    "beta {beta:4}, within {factor}: {:14}: time {:+6.1} %, bytes {:+6.1} %",
                    blocks.name,
                    100.0 * late,
                    100.0 * more
                );
                worst_time = worst_time.max(late);
                kept += u32::from(late <= 0.03);
                cells += 1;
                worst_bytes = worst_bytes.max(more);
            }
        }
    }
    println!(
        "{kept} of {cells} within 3 % of the time; worst {worst_time:+.4}, {worst_bytes:+.4} in bytes"
    );
    // The aim is 3 % everywhere; all cells but one are within 1 %.
    assert!(worst_time <= 0.02 && kept == cells, "{worst_time}");
    // Trials of unpromising methods made it 0.2.
    assert!(worst_bytes <= 0.18, "{worst_bytes}");
}

/// The results of rows of blocks under a goal with a time.
struct Promised {
    /// Their end over the promised time, on average and for the latest.
    time: f64,
    latest: f64,
    /// Bytes over the fewest in the promised time, on average.
    bytes: f64,
}

/// Sends rows of a kind through behind a slow link, with so many blocks pledged.
fn promised(kind: usize, factor: f64, count: usize, pledged_blocks: Option<usize>) -> Promised {
    let pipeline = pipeline(43.0, 2);
    let promised = factor * count as f64 * pipeline.write_seconds(BLOCK_BYTES as f64);
    let rows = SPLIT_SEEDS.map(|seed| {
        let row = blocks_from(seed, KINDS[kind], (&[kind], 1), count);
        let beginning = Beginning {
            pledged_blocks,
            ..Beginning::default()
        };
        let (goal, outlook) = (Goal::Within(factor), Outlook::default());
        let run = control_as(goal, &outlook, &pipeline, &row, beginning, &mut |_| {}).run;
        let fewest = fewest_bytes(&pipeline, &row.matrix, promised);
        (run.drained_after.0 / promised, run.stored_bytes / fewest)
    });
    let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
    Promised {
        time: mean(|it| it.0),
        latest: rows.iter().map(|it| it.0).fold(0.0, f64::max),
        bytes: mean(|it| it.1),
    }
}

/// Kinds and lengths of rows in which the time of a few blocks counts.
const PROMISED_KINDS: [usize; 2] = [0, 1];
const PROMISED_COUNTS: [usize; 3] = [55, 80, 160];

#[test]
fn the_last_blocks_of_a_told_length_take_the_time_that_is_left() {
    for kind in PROMISED_KINDS {
        for factor in [1.0, 1.5] {
            let mut nearer = 0.0;
            for count in PROMISED_COUNTS {
                let untold = promised(kind, factor, count, None);
                let told = promised(kind, factor, count, Some(count));
                println!(
                    "{count:3} blocks of {:6}, within {factor}: {:.3} of the time, at most {:.3}, bytes {:.4}; \
                     untold {:.3}, {:.4}",
                    KINDS[kind], told.time, told.latest, told.bytes, untold.time, untold.bytes
                );
                assert!((0.97..=1.03).contains(&told.time), "{}", told.time);
                assert!(told.latest <= 1.03, "{}", told.latest);
                nearer += untold.bytes - told.bytes;
            }
            assert!(nearer > 0.0, "{nearer}");
        }
    }
}

#[test]
fn a_length_that_is_told_wrong_makes_no_row_late() {
    let mut latest = 0.0_f64;
    for kind in PROMISED_KINDS {
        for factor in [1.0, 1.5] {
            for count in PROMISED_COUNTS {
                for told in [0, count / 2, 2 * count] {
                    let found = promised(kind, factor, count, Some(told));
                    println!(
                        "{count:3} blocks of {:6}, told {told:3}, within {factor}: at most {:.3} of the time",
                        KINDS[kind], found.latest
                    );
                    latest = latest.max(found.latest);
                }
            }
        }
    }
    // The most lateness of a row of unknown length.
    assert!(latest <= 1.02, "{latest}");
}

#[test]
fn the_smallest_goal_is_as_small_as_the_smallest_method() {
    let pipeline = pipeline(4.2, 2);
    for blocks in all_blocks(2000) {
        let (run, _) = control(Goal::Smallest, &pipeline, &blocks);
        let fewest: f64 = (blocks.matrix.costs.iter())
            .map(|row| {
                row.iter()
                    .map(|it| it.stored_bytes)
                    .fold(f64::INFINITY, f64::min)
            })
            .sum();
        let more = run.stored_bytes / fewest - 1.0;
        println!(
            "{}: {:+.2} % of the fewest bytes",
            blocks.name,
            100.0 * more
        );
        assert!(more <= 0.03, "{}: {more}", blocks.name);
    }
}

/// Makes a row of blocks of a kind under every method of the mixed container. It has their real bytes, and the work
/// that is believed before any measurement.
fn blocks_as_believed(kind: &'static str, count: usize) -> Blocks {
    let block = block(kind, 0);
    let class = class_of(&block);
    let arms = Container::Mixed.arms();
    let (mut encoder, mut frame) = (Encoder::new(), vec![0; frame_bytes_max(BLOCK_BYTES)]);
    let profile = Profile::default();
    let cost = |&arm: &Method| {
        let estimate = profile.estimate(class, arm, BLOCK_BYTES as u64);
        Cost {
            work: estimate.encode_seconds_per_byte.value.mean * BLOCK_BYTES as f64,
            stored_bytes: encoder.encode(arm, &block, &mut frame).unwrap().frame_bytes as f64,
        }
    };
    let row: Vec<Cost> = arms.iter().map(cost).collect();
    Blocks {
        name: kind,
        arms: arms.iter().map(|it| it.to_string().into()).collect(),
        parts: vec![vec![[Cost::default(); PARTS.len() - 1]; row.len()]; count],
        matrix: Matrix {
            costs: vec![row; count],
        },
        classes: vec![class; count],
    }
}

/// Returns the goal of money for data kept so many days.
pub fn money_for_days(days: f64) -> Goal {
    const DAY: f64 = 86_400.0;
    Goal::Money {
        prices: Prices {
            // Rent of a core, and of a disk: some 0.02 EUR an hour, 50 EUR a TB and year.
            per_core_second: Estimate::exact(5e-6),
            per_byte_second_held: Estimate::exact(50e-12 / (365.0 * DAY)),
            ..Prices::default()
        },
        held: Seconds(days * DAY),
        reads: 0.0,
    }
}

/// Sends a row through without splitting; returns its cost in the goal's unit, and its methods.
fn spent(goal: Goal, blocks: &Blocks, pledged_blocks: Option<usize>) -> (f64, String) {
    let beginning = Beginning {
        splits: false,
        pledged_blocks,
        ..Beginning::default()
    };
    let (pipeline, outlook) = (pipeline(4.2, 2), Outlook::default());
    let run = control_as(goal, &outlook, &pipeline, blocks, beginning, &mut |_| {}).run;
    let cost = |(costs, &arm): (&Vec<Cost>, &usize)| match goal {
        Goal::Smallest => costs[arm].stored_bytes,
        _ => money_of(goal, costs)[arm],
    };
    let cost = blocks.matrix.costs.iter().zip(&run.arms).map(cost).sum();
    let names = run.arms.iter().map(|&arm| &*blocks.arms[arm]);
    (cost, names.collect::<Vec<_>>().join(" "))
}

/// A larger choice of methods makes a short stream no larger and no dearer, with its length known or not.
#[test]
fn a_short_stream_by_more_methods_is_no_dearer() {
    let money = money_for_days(90.0);
    let portable = Container::Portable.arms();
    let portable: Vec<String> = portable.iter().map(Method::to_string).collect();
    let portable: Vec<&str> = portable.iter().map(String::as_str).collect();
    let mut overs = Vec::new();
    for kind in ["text", "source"] {
        let longest = blocks_as_believed(kind, 16);
        for count in [1, 2, 4, 8, 16] {
            let mut mixed = longest.clone();
            mixed.matrix.costs.truncate(count);
            mixed.classes.truncate(count);
            let few = mixed.only(&portable);
            for goal in [Goal::Smallest, money] {
                for pledged_blocks in [None, Some(count)] {
                    let [few, mixed] =
                        [&few, &mixed].map(|blocks| spent(goal, blocks, pledged_blocks));
                    let over = mixed.0 / few.0 - 1.0;
                    let is_told = pledged_blocks.is_some();
                    println!(
                        "{kind}, {count} blocks, {}, told {is_told}: {:+.2} % by {} over {}",
                        goal.unit(),
                        100.0 * over,
                        mixed.1,
                        few.1
                    );
                    overs.push(over);
                }
            }
        }
    }
    let worst = overs.iter().copied().fold(f64::MIN, f64::max);
    let mean = overs.iter().sum::<f64>() / overs.len() as f64;
    println!("{} cells, worst {worst:+.4}, mean {mean:+.4}", overs.len());
    assert!(overs.len() == 40 && mean <= 0.0, "{mean}");
    // One trial among few blocks: of a delta on text, for all under way, it was 1.2.
    assert!(worst <= 0.04, "{worst}");
}

/// The cost of blocks by arm at fixed prices, for the goal's time of keeping.
pub fn money_of(goal: Goal, costs: &[Cost]) -> Vec<f64> {
    let Goal::Money { prices, held, .. } = goal else {
        panic!("{goal:?} has no prices");
    };
    let cost = |it: &Cost| {
        it.work * prices.per_core_second.mean
            + it.stored_bytes * held.0 * prices.per_byte_second_held.mean
    };
    costs.iter().map(cost).collect()
}

#[test]
fn the_money_goal_costs_little_more_than_the_cheapest_methods() {
    let pipeline = pipeline(4.2, 2);
    let (mut densities, mut overs) = (Vec::new(), Vec::new());
    for days in [0.0, 1.0, 30.0, 3650.0] {
        let goal = money_for_days(days);
        let mut stored = 0.0;
        for blocks in all_blocks(2000) {
            let (run, share) = control(goal, &pipeline, &blocks);
            let (mut spent, mut least) = (0.0, 0.0);
            for (costs, &arm) in blocks.matrix.costs.iter().zip(&run.arms) {
                let money = money_of(goal, costs);
                spent += money[arm];
                least += money.iter().copied().fold(f64::INFINITY, f64::min);
            }
            println!(
                "{days} days, {}: {:+.2} % of the least money, {:.2} % stored, tried {:.2} %",
                blocks.name,
                100.0 * (spent / least - 1.0),
                100.0 * run.stored_bytes / (blocks.classes.len() * BLOCK_BYTES) as f64,
                100.0 * share
            );
            overs.push(spent / least - 1.0);
            stored += run.stored_bytes;
        }
        densities.push(stored);
    }
    let worst = overs.iter().copied().fold(0.0, f64::max);
    let mean = overs.iter().sum::<f64>() / overs.len() as f64;
    println!("worst {worst:+.4}, mean {mean:+.4}");
    assert!(worst <= 0.02 && mean <= 0.006, "{worst}, {mean}");
    // The longer the data are kept, the more work is worthwhile.
    assert!(
        densities.windows(2).all(|pair| pair[1] < pair[0]),
        "{densities:?}"
    );
}

/// An application shares the cores and needs them for `share` of the uncompressed time. It is done when its work and
/// the blocks' are, and the call when the link is too.
#[test]
fn beside_a_solver_no_more_is_taken_than_it_leaves() {
    let mut cells = 0;
    // A goal with a time misses it by as much without an application, on doubles that only xz shrinks.
    for (goal, late_max) in [(Goal::Fastest, 0.05), (Goal::Within(1.0), 0.15)] {
        let mut worst = f64::NEG_INFINITY;
        for share in [0.12, 0.2, 0.33, 0.5, 0.8] {
            for beta in BETAS {
                let pipeline = pipeline(beta, 2);
                for blocks in all_blocks(2000) {
                    let outlook = Outlook {
                        asynchronism: share,
                        ..Outlook::default()
                    };
                    let (run, _) = control_for(goal, &outlook, &pipeline, &blocks);
                    let count = blocks.classes.len() as f64;
                    let raw = count * pipeline.write_seconds(BLOCK_BYTES as f64);
                    let cores = share * raw + run.work.0 / pipeline.workers as f64;
                    let late = cores.max(run.drained_after.0) / raw - 1.0;
                    println!(
                        "{goal:?}, {share}, beta {beta:4}, {:14}: {:+6.1} % of the time, ratio {:.2}",
                        blocks.name,
                        100.0 * late,
                        count * BLOCK_BYTES as f64 / run.stored_bytes
                    );
                    worst = worst.max(late);
                    cells += 1;
                }
            }
        }
        println!("{goal:?}: at worst {worst:+.4} of the uncompressed time");
        assert!(worst <= late_max, "{goal:?}: {worst}");
    }
    assert_eq!(cells, 240);
}

#[test]
fn what_is_kept_longer_is_stored_no_larger() {
    let pipeline = pipeline(4.2, 2);
    for blocks in all_blocks(2000) {
        let stored = [0.0, 1.0, 30.0, 3650.0].map(|days| {
            let outlook = Outlook {
                held: Some(Seconds(days * 86_400.0)),
                ..Outlook::default()
            };
            let (run, _) = control_for(Goal::Fastest, &outlook, &pipeline, &blocks);
            run.stored_bytes
        });
        println!("{}: {stored:?}", blocks.name);
        // Ties may fall to either side.
        let grows = stored.windows(2).any(|pair| pair[1] > pair[0] * 1.01);
        assert!(!grows, "{}: {stored:?}", blocks.name);
    }
}

#[test]
fn what_is_read_often_is_quicker_to_decode() {
    let xz = |run: &Run| {
        let arms = run.arms.iter().filter(|&&arm| ARMS[arm].starts_with("xz"));
        arms.count()
    };
    let pipeline = pipeline(200.0, 2);
    let blocks = blocks("source", &[1], 1, 400);
    let count_at = |reads_per_write| {
        let outlook = Outlook {
            reads_per_write: Some(reads_per_write),
            ..Outlook::default()
        };
        xz(&control_for(Goal::Fastest, &outlook, &pipeline, &blocks).0)
    };
    let (seldom, often) = (count_at(0.0), count_at(1000.0));
    println!("xz: {seldom} blocks read never, {often} read 1000 times");
    assert!(often < seldom, "{seldom}, {often}");
}

/// Rows of each kind that judge splitting. A tie of two methods in one block decides much of the later blocks, so one
/// row is little evidence.
const SPLIT_SEEDS: [u64; 4] = [77, 78, 79, 80];

/// Blocks whole and split, over fast and slow links, by all methods and by few with two slow ones.
#[test]
fn slow_methods_stall_an_ordered_stream_less_in_parts() {
    let few = ["store", "lz4:1", "zstd:3", "xz:1", "xz:6"];
    let goal = Goal::Fastest;
    let (mut changes, mut split) = (Vec::new(), 0);
    for arms in [&few[..], &ARMS[..]] {
        for workers in [2, 24] {
            for beta in [400.0, 43.0, 4.2, 0.83] {
                let pipeline = pipeline(beta, workers);
                let rows = SPLIT_SEEDS.map(|seed| all_blocks_from(seed, 250 * workers));
                for kind in 0..rows[0].len() {
                    let found = rows
                        .each_ref()
                        .map(|row| split_against_whole(goal, &pipeline, &row[kind].only(arms)));
                    let times = found.map(|it| it.0);
                    let mean = times.iter().sum::<f64>() / times.len() as f64;
                    let blocks = found.iter().map(|it| it.1).sum::<usize>();
                    println!(
                        "{:2} arms, {workers:2} workers, {:5.0} MB/s, {:14}: {:+.1} % of the time ({:?}), \
                         {blocks} blocks split",
                        arms.len(),
                        pipeline.link_bytes_per_second / 1e6,
                        rows[0][kind].name,
                        100.0 * mean,
                        times.map(|it| (1e3 * it).round() / 10.0),
                    );
                    changes.push(mean);
                    split += blocks;
                }
            }
        }
    }
    let (worst, best) = (changes.iter()).fold((f64::MIN, f64::MAX), |(worst, best), &it| {
        (worst.max(it), best.min(it))
    });
    let mean = changes.iter().sum::<f64>() / changes.len() as f64;
    println!(
        "{} cells, {split} blocks split; S1 in parts: mean {mean:+.4}, worst {worst:+.4}, best {best:+.4}",
        changes.len()
    );
    assert!(worst <= 0.02 && best <= -0.05, "{worst}, {best}");
}

/// Returns by how much a row of blocks takes longer if blocks may be split, and the number of split blocks.
fn split_against_whole(goal: Goal, pipeline: &Pipeline, blocks: &Blocks) -> (f64, usize) {
    let [whole, parts] = [false, true].map(|splits| {
        let beginning = Beginning {
            splits,
            ..Beginning::default()
        };
        let outlook = Outlook::default();
        control_as(goal, &outlook, pipeline, blocks, beginning, &mut |_| {})
    });
    let time = parts.run.drained_after.0 / whole.run.drained_after.0 - 1.0;
    (time, parts.split_blocks)
}

/// A sink that holds unsent bytes, as sockets do, looks faster than its link.
#[test]
fn a_link_behind_a_sink_that_holds_some_of_it_is_seen_through() {
    let (mut worst, mut cells) = ([f64::MIN; 2], 0);
    for beta in [43.0, 4.2] {
        for hidden_bytes in [0.0, 256e3, 4e6] {
            for is_told in [true, false] {
                let pipeline = Pipeline {
                    hidden_bytes,
                    ..pipeline(beta, 2)
                };
                for blocks in all_blocks(1000) {
                    let beginning = Beginning {
                        is_told,
                        ..Beginning::default()
                    };
                    let (goal, outlook) = (Goal::Fastest, Outlook::default());
                    let found =
                        control_as(goal, &outlook, &pipeline, &blocks, beginning, &mut |_| {});
                    let best = best_static(&pipeline, &blocks.matrix);
                    let ratio = found.run.drained_after.0 / best.run.drained_after.0;
                    println!(
                        "beta {beta:4}, {:4.0} kB hidden, {}, {:14}: {:+6.1} % to {}, ratio {:.2}",
                        hidden_bytes / 1e3,
                        if is_told { "told  " } else { "untold" },
                        blocks.name,
                        100.0 * (ratio - 1.0),
                        ARMS[best.arm],
                        (blocks.classes.len() * BLOCK_BYTES) as f64 / found.run.stored_bytes
                    );
                    let worst = &mut worst[usize::from(is_told)];
                    *worst = worst.max(ratio - 1.0);
                    cells += 1;
                }
            }
        }
    }
    println!("{cells} cells, worst untold and told {worst:?}");
    // Data that shrinks to a fortieth is nearly all written before a sink has taken more than it can hold.
    assert!(worst[1] <= 0.04 && worst[0] <= 0.25, "{worst:?}");
}

/// A neighbour on the cores lengthens all methods by the clock, but makes no data harder. Estimates of core time stay,
/// and the choice returns when it has gone.
#[test]
fn a_neighbour_on_the_cores_is_not_taken_for_hard_data() {
    const COUNT: usize = 1200;
    const SEEN: usize = 64;
    let mean = |of: &VecDeque<f64>| of.iter().sum::<f64>() / of.len() as f64;
    let (mut worst, mut farthest, mut far, mut compared) = (f64::MIN, 0.0_f64, 0, 0);
    for beta in BETAS {
        let pipeline = pipeline(beta, 2);
        for blocks in all_blocks(COUNT) {
            let beside = |neighbour: Range<usize>, observed: &mut dyn FnMut(&Observation)| {
                let beginning = Beginning {
                    splits: false,
                    neighbour,
                    ..Beginning::default()
                };
                let (goal, outlook) = (Goal::Fastest, Outlook::default());
                control_as(goal, &outlook, &pipeline, &blocks, beginning, observed)
            };
            // The last quarter by its methods, some time after the neighbour has gone.
            let end = |found: &Controlled| {
                let chosen = (blocks.matrix.costs.iter().zip(&found.run.arms))
                    .skip(COUNT * 3 / 4)
                    .map(|(costs, &arm)| costs[arm]);
                let (mut work, mut write) = (0.0, 0.0);
                for it in chosen {
                    work += pipeline.work_share(it.work);
                    write += pipeline.write_seconds(it.stored_bytes);
                }
                work.max(write)
            };
            let [with, without] =
                [COUNT / 3..COUNT * 2 / 3, 0..0].map(|it| end(&beside(it, &mut |_| {})));
            let longer = with / without - 1.0;
            println!(
                "beta {beta:4}, {:9}: end longer by {longer:+.4}",
                blocks.name
            );
            worst = worst.max(longer);
            // Beside the neighbour, the profile keeps to core time: to the times of each method's last blocks.
            let mut seen: BTreeMap<(Class, Method), VecDeque<f64>> = BTreeMap::new();
            let mut observed = |it: &Observation| {
                let last = seen.entry((it.class, it.method)).or_default();
                last.push_back(it.encode.unwrap().0);
                if last.len() > SEEN {
                    last.pop_front();
                }
            };
            let found = beside(COUNT / 3..COUNT, &mut observed);
            for ((class, method), works) in &seen {
                if works.len() < SEEN || *method == Method::STORE {
                    continue;
                }
                let estimate = found.profile.estimate(*class, *method, BLOCK_BYTES as u64);
                let known = estimate.encode_seconds_per_byte.value.mean * BLOCK_BYTES as f64;
                let off = (known / mean(works)).ln().abs();
                println!("beta {beta:4}, {:9}: {method} off by {off:.3}", blocks.name);
                farthest = farthest.max(off);
                far += usize::from(off > 0.15);
                compared += 1;
            }
        }
    }
    println!(
        "{compared} estimates off by at most {farthest:.3}; end longer by at most {worst:+.4}"
    );
    // As hard data this would be ln 1.5 = 0.41. Where kinds share a class, an estimate may lag the last blocks.
    assert!(compared >= 40 && farthest <= 0.3, "{compared}, {farthest}");
    assert!(far * 20 <= compared, "{far} of {compared}");
    // A neighbour that counts for 64 blocks after its end made it 0.046.
    assert!(worst <= 0.03, "{worst}");
}
