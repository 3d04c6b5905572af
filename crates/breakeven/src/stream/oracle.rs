//! The bound that no schedule can beat, and a schedule with knowledge of all costs.
//!
//! With `n` workers and one link, a choice of arms `a(i)` takes at least `sum x_i / n` (workers) and at least `sum y_i`
//! (link). So it takes at least any mean of the two. Its least value over all choices is the dual of the fluid problem,
//!
//! ```text
//! LB = max over 0 <= lambda <= 1 of sum over i of min over a of
//!          lambda x_i(a) / n + (1 - lambda) y_i(a)
//! ```
//!
//! lambda is the price of a worker's time against the link's. At the best price two choices tie. Mixing them block by
//! block meets the bound to within a block or so, if the buffers hide the slower one. If one block takes longer than
//! all buffers last, the ordered link waits for it. A mix may then end later than one method for all. So the rounded
//! choice is an upper bound, and not always a good one.
//!
//! The fluid problem balances any block's work against any other's time on the link. A pipeline with `F` frames cannot:
//! block `k` starts when block `k - F` is written. Cut the row into groups. Take the time from the start of a group's
//! first block until `F - 1` blocks before its end are written. It holds the work and the writes of all blocks until
//! there. It lies before the next group's start. So
//!
//! ```text
//! T >= sum over groups of LB(the group but for its last F - 1 blocks; the last group whole)
//! ```
//!
//! and both bounds here are the best over some even cuts, the whole row among them.

use std::ops::Range;

use crate::bisection::bisect;

use super::simulate::{Cost, Matrix, Pipeline, Run, simulate_chosen, simulate_static};

/// Halvings of the range of a price.
const HALVINGS: usize = 60;

/// The fastest that can be.
#[derive(Clone, Debug, PartialEq)]
pub struct Fastest {
    /// Seconds below which no schedule ends.
    pub lower_bound: f64,
    /// The price of a worker's time at which the bound is reached.
    pub price: f64,
    /// The choice that mixes the best two at that price, and its run.
    pub rounded: Run,
}

/// The best arm for all blocks in hindsight.
#[derive(Clone, Debug, PartialEq)]
pub struct BestStatic {
    pub arm: usize,
    pub run: Run,
}

/// Returns the arm that ends first if all blocks are compressed by it.
///
/// # Panics
///
/// If there are no arms.
pub fn best_static(pipeline: &Pipeline, matrix: &Matrix) -> BestStatic {
    (0..matrix.arm_count())
        .map(|arm| BestStatic {
            arm,
            run: simulate_static(pipeline, matrix, arm),
        })
        .min_by(|a, b| a.run.drained_after.0.total_cmp(&b.run.drained_after.0))
        .expect("at least one arm")
}

/// Sums of a choice.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    /// Work of all workers over their number.
    work: f64,
    /// Time of the link.
    write: f64,
    stored_bytes: f64,
}

/// Picks for each block the arm of least score, the first of equals.
fn pick(rows: &[Vec<Cost>], score: impl Fn(f64, f64) -> f64, pipeline: &Pipeline) -> Vec<usize> {
    let workers = pipeline.workers as f64;
    let best = |row: &Vec<Cost>| {
        let scored = row
            .iter()
            .map(|it| score(it.work / workers, it.stored_bytes));
        let best = scored.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(0, |it| it.0)
    };
    rows.iter().map(best).collect()
}

fn sums(pipeline: &Pipeline, rows: &[Vec<Cost>], arms: &[usize]) -> Sums {
    let mut sums = Sums::default();
    for (row, &arm) in rows.iter().zip(arms) {
        sums.work += pipeline.work_share(row[arm].work);
        sums.write += pipeline.write_seconds(row[arm].stored_bytes);
        sums.stored_bytes += row[arm].stored_bytes;
    }
    sums
}

/// Returns the frames between a block's start and that of the block which waits for its buffer. Their number has no
/// bound where the sink holds some, since they may be very small.
fn frames_held(pipeline: &Pipeline) -> usize {
    match pipeline.hidden_bytes > 0.0 {
        true => usize::MAX,
        false => pipeline.frames,
    }
}

/// Blocks of a group in the cuts that are tried; the whole row besides.
const GROUP_BLOCKS: [usize; 3] = [32, 64, 128];

/// Returns, for each cut, the blocks of each group that its time holds.
fn cuts(count: usize, frames: usize) -> impl Iterator<Item = Vec<Range<usize>>> {
    let lengths = GROUP_BLOCKS.into_iter().filter(move |it| *it < count);
    lengths.chain([count.max(1)]).map(move |length| {
        let groups = (0..count).step_by(length).map(|start| {
            let end = start + length;
            match end < count {
                true => start..(end + 1).saturating_sub(frames).max(start),
                false => start..count,
            }
        });
        groups.collect()
    })
}

/// The fluid problem's dual on some blocks.
struct Dual {
    /// Seconds below which no schedule of them ends.
    value: f64,
    /// The price of a worker's time for that bound.
    price: f64,
    /// The choices at both sides of the tie.
    dense: Vec<usize>,
    light: Vec<usize>,
}

fn dual(pipeline: &Pipeline, rows: &[Vec<Cost>]) -> Dual {
    let at = |price: f64| {
        let score =
            |work: f64, bytes: f64| price * work + (1.0 - price) * pipeline.write_seconds(bytes);
        let arms = pick(rows, score, pipeline);
        let sums = sums(pipeline, rows, &arms);
        (price * sums.work + (1.0 - price) * sums.write, sums, arms)
    };
    let (mut dear, mut cheap) = (at(1.0), at(0.0));
    let mut best = if dear.0 > cheap.0 {
        (dear.0, 1.0)
    } else {
        (cheap.0, 0.0)
    };
    bisect(0.0..1.0, HALVINGS, |price| {
        let found = at(price);
        if found.0 > best.0 {
            best = (found.0, price);
        }
        // The work falls as its price rises: where it is still the longer part, raise it.
        let is_too_low = found.1.work > found.1.write;
        *(if is_too_low { &mut cheap } else { &mut dear }) = found;
        is_too_low
    });
    Dual {
        value: best.0,
        price: best.1,
        dense: cheap.2,
        light: dear.2,
    }
}

/// Returns bound and rounded choice of the fastest end.
///
/// # Cost
///
/// 240 passes over the matrix.
pub fn fastest(pipeline: &Pipeline, matrix: &Matrix) -> Fastest {
    let rows = &matrix.costs;
    let whole = dual(pipeline, rows);
    let bound = |groups: Vec<Range<usize>>| -> f64 {
        let of = |group: Range<usize>| dual(pipeline, &rows[group]).value;
        groups.into_iter().map(of).sum()
    };
    let rounded = mix(pipeline, matrix, &whole.dense, &whole.light, 0.0);
    Fastest {
        lower_bound: cuts(rows.len(), frames_held(pipeline))
            .map(bound)
            .fold(whole.value, f64::max),
        price: whole.price,
        rounded: simulate_chosen(pipeline, matrix, &rounded),
    }
}

/// Mixes two choices block by block, so that work and the link's time keep step. It takes the denser one while the link
/// is behind by more than `ahead` seconds.
fn mix(
    pipeline: &Pipeline,
    matrix: &Matrix,
    dense: &[usize],
    light: &[usize],
    ahead: f64,
) -> Vec<usize> {
    let mut balance = 0.0;
    let mut arms = Vec::with_capacity(dense.len());
    for (block, row) in matrix.costs.iter().enumerate() {
        let arm = if balance > ahead {
            dense[block]
        } else {
            light[block]
        };
        balance +=
            pipeline.write_seconds(row[arm].stored_bytes) - pipeline.work_share(row[arm].work);
        arms.push(arm);
    }
    arms
}

/// Returns the fewest bytes that a schedule within `budget` seconds can reach.
///
/// A schedule that ends in time has `sum over groups of max(work, write) <= budget`. Take a price of `mu` bytes for a
/// second, and replace the larger of both by any mean `l work + (1 - l) write`. Then the rest is a choice block by
/// block. Every `mu` and `l` gives a bound.
///
/// # Cost
///
/// Some 4,000 passes over the matrix.
pub fn fewest_bytes(pipeline: &Pipeline, matrix: &Matrix, budget: f64) -> f64 {
    let rows = &matrix.costs;
    let least = |row: &Vec<Cost>| {
        let bytes = row.iter().map(|it| it.stored_bytes);
        bytes.fold(f64::INFINITY, f64::min)
    };
    let unlimited: f64 = rows.iter().map(least).sum();
    let bound = |groups: Vec<Range<usize>>| -> f64 {
        let outside = |groups: &[Range<usize>]| -> f64 {
            let held = |block: &usize| groups.iter().any(|it| it.contains(block));
            (0..rows.len())
                .filter(|block| !held(block))
                .map(|block| least(&rows[block]))
                .sum()
        };
        let outside = outside(&groups);
        let at = |log: f64| -> f64 {
            let price = log.exp2();
            let held = groups.iter().cloned();
            let bytes: f64 = held
                .map(|group| priced_bytes(pipeline, &rows[group], price))
                .sum();
            outside + bytes - price * budget
        };
        // Prices in bytes for a second, over all sensible magnitudes.
        peak(-20.0, 80.0, at).max(unlimited)
    };
    cuts(rows.len(), frames_held(pipeline))
        .map(bound)
        .fold(unlimited, f64::max)
}

/// Steps towards a peak; each leaves 0.62 of the range.
const PEAK_STEPS: usize = 48;
/// Halvings of the mean of work and write at each price.
const MEAN_HALVINGS: usize = 16;

/// Returns the maximum of a function that rises up to some place and then falls, by golden section. A level stretch
/// counts as rising.
fn peak(mut low: f64, mut high: f64, at: impl Fn(f64) -> f64) -> f64 {
    let share = (5.0_f64.sqrt() - 1.0) / 2.0;
    let inner = |low: f64, high: f64| (high - share * (high - low), low + share * (high - low));
    let (left, right) = inner(low, high);
    let (mut left, mut right) = ((left, at(left)), (right, at(right)));
    for _ in 0..PEAK_STEPS {
        if left.1 > right.1 {
            (high, right) = (right.0, left);
            let place = inner(low, high).0;
            left = (place, at(place));
        } else {
            (low, left) = (left.0, right);
            let place = inner(low, high).1;
            right = (place, at(place));
        }
    }
    left.1.max(right.1)
}

/// Returns the least of bytes plus `price` times the longer of work and write over all choices, or
/// a little less.
fn priced_bytes(pipeline: &Pipeline, rows: &[Vec<Cost>], price: f64) -> f64 {
    let at = |mean: f64| {
        let seconds = |work: f64, write: f64| mean * work + (1.0 - mean) * write;
        let score =
            |work: f64, bytes: f64| bytes + price * seconds(work, pipeline.write_seconds(bytes));
        let sums = sums(pipeline, rows, &pick(rows, score, pipeline));
        let value = sums.stored_bytes + price * seconds(sums.work, sums.write);
        (value, sums.work > sums.write)
    };
    let mut best = at(0.0).0.max(at(1.0).0);
    bisect(0.0..1.0, MEAN_HALVINGS, |mean| {
        let (value, is_work_longer) = at(mean);
        best = best.max(value);
        is_work_longer
    });
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random costs in which denser arms take longer, more or less.
    fn random_matrix(random: &mut fastrand::Rng) -> Matrix {
        let arms = random.usize(1..6);
        let costs = (0..random.usize(1..200)).map(|_| {
            let block = random.f64() + 0.1;
            let cost = |arm: usize| Cost {
                work: block * random.f64() * f64::from(3_u32.pow(arm as u32)),
                stored_bytes: block * 1e6 * random.f64() / (arm + 1) as f64,
            };
            (0..arms).map(cost).collect()
        });
        Matrix {
            costs: costs.collect(),
        }
    }

    fn random_pipeline(random: &mut fastrand::Rng) -> Pipeline {
        let workers = random.usize(1..9);
        Pipeline {
            workers,
            frames: workers + random.usize(0..12),
            link_bytes_per_second: 1e3 * 10_f64.powf(4.0 * random.f64()),
            write_overhead: random.f64() * 1e-2,
            work_overhead: random.f64() * 1e-1,
            hidden_bytes: f64::from(random.u8(..2)) * 1e6 * random.f64(),
        }
    }

    #[test]
    fn no_schedule_beats_the_bound() {
        let seed = std::env::var("BREAKEVEN_SEED").map_or(11, |it| it.parse().expect("a seed"));
        println!("BREAKEVEN_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let mut tried = 0;
        for _ in 0..300 {
            let (matrix, pipeline) = (random_matrix(&mut random), random_pipeline(&mut random));
            let bound = fastest(&pipeline, &matrix);
            let least = bound.lower_bound * (1.0 - 1e-9);
            let mut check = |run: &Run| {
                assert!(run.drained_after.0 >= least, "{run:?} beats {bound:?}");
                tried += 1;
            };
            check(&bound.rounded);
            check(&best_static(&pipeline, &matrix).run);
            for schedule in 0..10 {
                let arms: Vec<usize> = (matrix.costs.iter())
                    .map(|row| random.usize(..row.len()))
                    .collect();
                let run = simulate_chosen(&pipeline, &matrix, &arms);
                check(&run);
                if schedule > 0 {
                    continue;
                }
                let bytes = fewest_bytes(&pipeline, &matrix, run.drained_after.0);
                assert!(run.stored_bytes >= bytes * (1.0 - 1e-9), "{run:?}: {bytes}");
            }
        }
        println!("{tried} schedules");
        assert!(tried >= 3000, "only {tried} schedules");
    }

    #[test]
    fn equal_blocks_reach_the_bound_by_mixing() {
        // The first block is bound by the link (1 s a block), the second by its workers (2 s). Half of each takes two
        // thirds of the better one's time.
        let row = vec![
            Cost {
                work: 0.0,
                stored_bytes: 1.0,
            },
            Cost {
                work: 2.0,
                stored_bytes: 0.0,
            },
        ];
        let matrix = Matrix {
            costs: vec![row; 3000],
        };
        let pipeline = Pipeline {
            workers: 1,
            frames: 6,
            link_bytes_per_second: 1.0,
            write_overhead: 0.0,
            work_overhead: 0.0,
            hidden_bytes: 0.0,
        };
        let found = fastest(&pipeline, &matrix);
        assert!(
            (found.lower_bound - 2000.0).abs() < 1e-6,
            "{}",
            found.lower_bound
        );
        let rounded = found.rounded.drained_after.0;
        assert!(rounded < 2010.0, "{rounded}");
        assert_eq!(best_static(&pipeline, &matrix).run.drained_after.0, 3000.0);
        // A budget of 1 s of work a block lets every second block vanish.
        let bytes = fewest_bytes(&pipeline, &matrix, 3000.0);
        assert!((bytes - 1500.0).abs() < 1e-2, "{bytes}");
    }
}
