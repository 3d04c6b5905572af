//! What no schedule can beat, and what one that knows all costs can reach.
//!
//! With `n` workers and one link, a choice of arms `a(i)` takes at least `sum x_i / n` (workers) and
//! at least `sum y_i` (link), so at least any mean of the two. Its least value over all choices is
//! the dual of the fluid problem,
//!
//! ```text
//! LB = max over 0 <= lambda <= 1 of sum over i of min over a of
//!          lambda x_i(a) / n + (1 - lambda) y_i(a)
//! ```
//!
//! lambda is the price of a worker's time against the link's. At the best price two choices tie. Mixing
//! them block by block meets the bound but for a block or so where the buffers hide the slower one;
//! where one block takes longer than all buffers last, the ordered link waits for it, and a mix may
//! end later than one method for all. So the rounded choice is an upper bound, and not always a good
//! one.

use super::simulate::{Matrix, Pipeline, Run, simulate_chosen, simulate_static};

/// Halvings of the range of a price.
const HALVINGS: usize = 60;

/// The fastest that can be.
#[derive(Clone, Debug, PartialEq)]
pub struct Fastest {
    /// Seconds below which no schedule ends.
    pub lower_bound: f64,
    /// The price of a worker's time at which the bound is reached.
    pub price: f64,
    /// The choice that mixes the best two at that price, and how it goes.
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
fn pick(matrix: &Matrix, score: impl Fn(f64, f64) -> f64, pipeline: &Pipeline) -> Vec<usize> {
    let workers = pipeline.workers as f64;
    let best = |row: &Vec<super::simulate::Cost>| {
        let scored = row
            .iter()
            .map(|it| score(it.work / workers, it.stored_bytes));
        let best = scored.enumerate().min_by(|a, b| a.1.total_cmp(&b.1));
        best.map_or(0, |it| it.0)
    };
    matrix.costs.iter().map(best).collect()
}

fn sums(pipeline: &Pipeline, matrix: &Matrix, arms: &[usize]) -> Sums {
    let mut sums = Sums::default();
    for (row, &arm) in matrix.costs.iter().zip(arms) {
        sums.work += row[arm].work / pipeline.workers as f64;
        sums.write += pipeline.write_seconds(row[arm].stored_bytes);
        sums.stored_bytes += row[arm].stored_bytes;
    }
    sums
}

/// Returns bound and rounded choice of the fastest end.
///
/// # Cost
///
/// 60 passes over the matrix.
pub fn fastest(pipeline: &Pipeline, matrix: &Matrix) -> Fastest {
    let at = |price: f64| {
        let score =
            |work: f64, bytes: f64| price * work + (1.0 - price) * pipeline.write_seconds(bytes);
        let arms = pick(matrix, score, pipeline);
        let sums = sums(pipeline, matrix, &arms);
        (price * sums.work + (1.0 - price) * sums.write, sums, arms)
    };
    let (mut dear, mut cheap) = (at(1.0), at(0.0));
    let mut best = if dear.0 > cheap.0 {
        (dear.0, 1.0)
    } else {
        (cheap.0, 0.0)
    };
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..HALVINGS {
        let price = (low + high) / 2.0;
        let found = at(price);
        if found.0 > best.0 {
            best = (found.0, price);
        }
        // The work falls as its price rises: where it is still the longer part, raise it.
        if found.1.work > found.1.write {
            (low, cheap) = (price, found);
        } else {
            (high, dear) = (price, found);
        }
    }
    let rounded = mix(pipeline, matrix, &cheap.2, &dear.2, 0.0);
    Fastest {
        lower_bound: best.0,
        price: best.1,
        rounded: simulate_chosen(pipeline, matrix, &rounded),
    }
}

/// Mixes two choices block by block so that work and time of the link keep step: the denser one as
/// long as the link is behind by more than `ahead` seconds.
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
            pipeline.write_seconds(row[arm].stored_bytes) - row[arm].work / pipeline.workers as f64;
        arms.push(arm);
    }
    arms
}

/// Returns the fewest bytes that a schedule within `budget` seconds of work can reach; every
/// schedule that keeps the budget stores at least as many.
pub fn fewest_bytes(pipeline: &Pipeline, matrix: &Matrix, budget: f64) -> f64 {
    let bound = |price: f64| {
        let arms = pick(matrix, |work, bytes| bytes + price * work, pipeline);
        let sums = sums(pipeline, matrix, &arms);
        (sums.stored_bytes + price * (sums.work - budget), sums.work)
    };
    let mut best = bound(0.0).0;
    // Prices in bytes per second, over all magnitudes that mean anything.
    let (mut low, mut high) = (-20.0_f64, 80.0_f64);
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        let (value, work) = bound(middle.exp2());
        best = best.max(value);
        if work > budget {
            low = middle
        } else {
            high = middle
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::super::simulate::Cost;
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
            for _ in 0..10 {
                let arms: Vec<usize> = (matrix.costs.iter())
                    .map(|row| random.usize(..row.len()))
                    .collect();
                let run = simulate_chosen(&pipeline, &matrix, &arms);
                check(&run);
                let work = sums(&pipeline, &matrix, &arms).work;
                let bytes = fewest_bytes(&pipeline, &matrix, work);
                assert!(run.stored_bytes >= bytes * (1.0 - 1e-9), "{run:?}: {bytes}");
            }
        }
        println!("{tried} schedules");
        assert!(tried >= 3000, "only {tried} schedules");
    }

    #[test]
    fn equal_blocks_reach_the_bound_by_mixing() {
        // The first is bound by the link (1 s a block), the second by its workers (2 s): half of
        // each takes two thirds of the better one's time.
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
        assert!((bytes - 1500.0).abs() < 1e-3, "{bytes}");
    }
}
