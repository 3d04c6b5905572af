//! Contenders measured alternating, so that other load of the machine falls on all of them.
//!
//! A run times every contender once, over the same number of passes. The order changes from run to run: none always
//! goes first or always follows the same one. Working memory is allocated again before each timing and warmed by one
//! pass, so that a lucky place in memory becomes noise and not bias. Every timed batch is verified afterwards, outside
//! the clock.

use anyhow::Result;

use crate::clock::{self, Duration};

/// Things that do the same work and are to be compared.
pub trait Race {
    /// Makes a contender ready, and its earlier results unrecognisable.
    fn prepare(&mut self, contender: usize) -> Result<()>;
    /// Does the work once: the timed part.
    fn pass(&mut self, contender: usize) -> Result<()>;
    /// Checks the results of the last pass.
    fn verify(&mut self, contender: usize) -> Result<()>;
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub runs: usize,
    /// About how long one contender works in one run, in seconds.
    pub batch_seconds: f64,
}

/// One timed batch.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    pub passes: u64,
    pub duration: Duration,
}

/// Runs the race and returns the batches by run, then by contender.
pub fn interleave(race: &mut dyn Race, contenders: usize, plan: Plan) -> Result<Vec<Vec<Batch>>> {
    race.prepare(0)?;
    let passes = passes_of(race, plan.batch_seconds)?;
    let mut runs = Vec::with_capacity(plan.runs);
    for run in 0..plan.runs {
        runs.push(in_turn(run, contenders, |contender| {
            race.prepare(contender)?;
            race.pass(contender)?;
            let (duration, outcome) =
                clock::time(|| (0..passes).try_for_each(|_| race.pass(contender)));
            outcome?;
            race.verify(contender)?;
            Ok(Batch { passes, duration })
        })?);
    }
    Ok(runs)
}

/// Returns the passes that take about `batch_seconds`, by the first contender's speed.
fn passes_of(race: &mut dyn Race, batch_seconds: f64) -> Result<u64> {
    race.pass(0)?;
    let mut passes = 1_u64;
    loop {
        let (duration, outcome) = clock::time(|| (0..passes).try_for_each(|_| race.pass(0)));
        outcome?;
        // A quarter of the batch is long enough to measure by.
        if duration.cpu_seconds >= batch_seconds / 4.0 {
            let wanted = passes as f64 * batch_seconds / duration.cpu_seconds;
            return Ok(wanted.ceil().max(1.0) as u64);
        }
        passes *= 2;
    }
}

/// Lets every contender take its turn in the order of one run; returns the result of each, by contender.
pub fn in_turn<T>(
    run: usize,
    contenders: usize,
    mut turn: impl FnMut(usize) -> Result<T>,
) -> Result<Vec<T>> {
    let mut outcomes = Vec::with_capacity(contenders);
    for contender in order(run, contenders) {
        outcomes.push((contender, turn(contender)?));
    }
    outcomes.sort_by_key(|(contender, _)| *contender);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Returns the order of one run: each rotation of the contenders, forward and then backward.
pub fn order(run: usize, contenders: usize) -> Vec<usize> {
    let first = run / 2;
    let forward = (0..contenders).map(|index| (first + index) % contenders);
    if run.is_multiple_of(2) {
        forward.collect()
    } else {
        forward.rev().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::ensure;

    /// Contenders that only count.
    #[derive(Default)]
    struct Counted {
        calls: Vec<(char, usize)>,
        sum: u64,
    }

    impl Race for Counted {
        fn prepare(&mut self, contender: usize) -> Result<()> {
            self.calls.push(('p', contender));
            self.sum = 0;
            Ok(())
        }
        fn pass(&mut self, _: usize) -> Result<()> {
            self.sum += std::hint::black_box((0..2000_u64).map(|x| x ^ 5)).sum::<u64>();
            Ok(())
        }
        fn verify(&mut self, contender: usize) -> Result<()> {
            self.calls.push(('v', contender));
            ensure!(self.sum > 0, "nothing was done");
            Ok(())
        }
    }

    #[test]
    fn everybody_runs_in_every_run_and_is_verified() {
        let mut race = Counted::default();
        let plan = Plan {
            runs: 4,
            batch_seconds: 1e-4,
        };
        let runs = interleave(&mut race, 2, plan).unwrap();
        assert_eq!(runs.len(), 4);
        assert!(runs.iter().all(|run| run.len() == 2));
        let passes = runs[0][0].passes;
        assert!(runs.iter().flatten().all(|batch| batch.passes == passes));
        let order: Vec<usize> = race
            .calls
            .iter()
            .filter(|(call, _)| *call == 'v')
            .map(|(_, contender)| *contender)
            .collect();
        assert_eq!(order, [0, 1, 1, 0, 1, 0, 0, 1]);
    }

    #[test]
    fn orders_are_fair() {
        for contenders in [2, 3, 4] {
            let runs = 2 * contenders;
            let mut firsts = vec![0; contenders];
            for run in 0..runs {
                let order = order(run, contenders);
                firsts[order[0]] += 1;
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..contenders));
            }
            assert!(firsts.iter().all(|count| *count == 2), "{firsts:?}");
        }
    }

    #[test]
    fn a_wrong_answer_ends_the_race() {
        struct Wrong;
        impl Race for Wrong {
            fn prepare(&mut self, _: usize) -> Result<()> {
                Ok(())
            }
            fn pass(&mut self, _: usize) -> Result<()> {
                std::hint::black_box((0..1000_u64).sum::<u64>());
                Ok(())
            }
            fn verify(&mut self, contender: usize) -> Result<()> {
                ensure!(contender != 1, "contender 1 is wrong");
                Ok(())
            }
        }
        let plan = Plan {
            runs: 1,
            batch_seconds: 1e-5,
        };
        let error = interleave(&mut Wrong, 2, plan).unwrap_err();
        assert_eq!(error.to_string(), "contender 1 is wrong");
    }
}
