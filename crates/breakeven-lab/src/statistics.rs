//! The statistics of a verdict: an interval about a median or a mean, and a target it lies in or not.
//!
//! Paired runs have a median. A host that stands still for a while moves it by one rank, and a mean by as much as it
//! stood. Ratios of unlike things are averaged as logarithms. Nothing is left out: there are no outliers here, only
//! measurements.

use std::fmt;

use breakeven::statistics::{outer_rank, student_t_975};

/// The fewest pairs that a verdict may rest on.
pub const PAIRS_MIN: usize = 10;

/// A mean or median with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub middle: f64,
    pub low: f64,
    pub high: f64,
    /// Independent measurements behind it; 0 for a count or a size, which has no error.
    pub runs: usize,
}

impl Interval {
    /// Makes the interval of a number that has no error.
    pub fn exact(value: f64) -> Interval {
        Interval {
            middle: value,
            low: value,
            high: value,
            runs: 0,
        }
    }

    /// Returns the arithmetic mean of `values` with its 95 % interval.
    ///
    /// Source: Student's t. With fewer than two values the interval is everything.
    ///
    /// # Panics
    ///
    /// If there are none.
    pub fn of_values(values: &[f64]) -> Interval {
        assert!(!values.is_empty(), "no values");
        let (mean, half_width) = mean_and_half_width(values);
        Interval {
            middle: mean,
            low: mean - half_width,
            high: mean + half_width,
            runs: values.len(),
        }
    }

    /// Returns the counted share of independent tries, with its interval.
    ///
    /// Source: Clopper and Pearson 1934, from the binomial distribution itself.
    ///
    /// # Panics
    ///
    /// If nothing was tried, or more was counted than was tried.
    pub fn of_share(counted: usize, tried: usize) -> Interval {
        assert!(tried > 0 && counted <= tried, "{counted} of {tried}");
        // The share at which this count is the outer fortieth of its distribution.
        let bound = |counted: usize| {
            let (mut low, mut high) = (0.0, 1.0);
            for _ in 0..60 {
                let share = f64::midpoint(low, high);
                match at_most(counted, tried, share) > 0.025 {
                    true => low = share,
                    false => high = share,
                }
            }
            low
        };
        Interval {
            middle: counted as f64 / tried as f64,
            low: 1.0 - bound(tried - counted),
            high: bound(counted),
            runs: tried,
        }
    }

    /// Returns half the width of an arithmetic mean's interval, as a share of the mean.
    pub fn half_width(&self) -> f64 {
        (self.high - self.middle) / self.middle
    }

    /// Returns the median of paired runs' ratios or differences, with its interval.
    ///
    /// Source: the sign test, which asks nothing of how they are distributed. Ten values yield the second least and the
    /// second largest, which cover the median 97.9 times in 100. Fewer than six cannot cover it 95 times, and yield
    /// their range.
    ///
    /// # Panics
    ///
    /// If there are none, or one is not finite: a clock that stood still is a fault of the run.
    pub fn of_pairs(values: &[f64]) -> Interval {
        assert!(!values.is_empty(), "no values");
        assert!(values.iter().all(|value| value.is_finite()), "{values:?}");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len() - 1;
        let outside = outer_rank(sorted.len());
        Interval {
            middle: f64::midpoint(sorted[last / 2], sorted[sorted.len() / 2]),
            low: sorted[outside],
            high: sorted[last - outside],
            runs: sorted.len(),
        }
    }

    /// Returns the median of quotients of values of the same runs, with its interval, as [`Interval::of_pairs`] does.
    pub fn of_quotients(over: &[f64], under: &[f64]) -> Interval {
        let pairs = over.iter().zip(under);
        let quotients: Vec<f64> = pairs.map(|(over, under)| over / under).collect();
        Interval::of_pairs(&quotients)
    }

    /// Returns the geometric mean of positive `ratios` with its 95 % interval.
    ///
    /// Source: Student's t on the logarithms. With fewer than two ratios the interval is everything.
    ///
    /// # Panics
    ///
    /// If a ratio is not positive and finite: a clock that stood still is a fault of the run.
    pub fn of_ratios(ratios: &[f64]) -> Interval {
        assert!(!ratios.is_empty(), "no ratios");
        assert!(
            ratios.iter().all(|ratio| *ratio > 0.0 && ratio.is_finite()),
            "a ratio is not positive: {ratios:?}"
        );
        let logarithms: Vec<f64> = ratios.iter().map(|ratio| ratio.ln()).collect();
        let (mean, half_width) = mean_and_half_width(&logarithms);
        Interval {
            middle: mean.exp(),
            low: (mean - half_width).exp(),
            high: (mean + half_width).exp(),
            runs: ratios.len(),
        }
    }
}

fn mean_and_half_width(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    if values.len() < 2 {
        return (mean, f64::INFINITY);
    }
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let standard_error = (squares / (count - 1.0) / count).sqrt();
    (mean, student_t_975(values.len() - 1) * standard_error)
}

/// The figures that agree with a claim: those from `low` to `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    pub low: f64,
    pub high: f64,
}

impl Target {
    pub const fn at_least(low: f64) -> Target {
        Target {
            low,
            high: f64::INFINITY,
        }
    }

    pub const fn exactly(figure: f64) -> Target {
        Target {
            low: figure,
            high: figure,
        }
    }

    /// Judges a figure: it holds if its whole interval lies in the target, differs if none of it does. Fewer than
    /// [`PAIRS_MIN`] runs are never enough.
    pub fn judge(&self, found: Interval) -> Verdict {
        self.judge_by(found, PAIRS_MIN)
    }

    /// Judges a figure that may rest on `runs_min` runs, because a paper's own rule says so.
    pub fn judge_by(&self, found: Interval, runs_min: usize) -> Verdict {
        let few = found.runs > 0 && found.runs < runs_min;
        if few {
            Verdict::CannotTell
        } else if self.low <= found.low && found.high <= self.high {
            Verdict::Holds
        } else if found.high < self.low || self.high < found.low {
            Verdict::Differs
        } else {
            Verdict::CannotTell
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.high == f64::INFINITY {
            write!(f, "at least {}", self.low)
        } else if self.low == self.high {
            write!(f, "{}", self.low)
        } else {
            write!(f, "{} to {}", self.low, self.high)
        }
    }
}

/// The verdict of a run on a claim, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Holds,
    CannotTell,
    Differs,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Holds => "holds",
            Verdict::CannotTell => "cannot tell",
            Verdict::Differs => "differs",
        })
    }
}

/// Returns the chance of counting at most so many of `tried`, each with a chance of `share`.
fn at_most(counted: usize, tried: usize, share: f64) -> f64 {
    let (mut chance, mut sum) = ((1.0 - share).powi(tried as i32), 0.0);
    for one in 0..=counted {
        sum += chance;
        chance *= (tried - one) as f64 / (one + 1) as f64 * share / (1.0 - share);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Random;

    #[test]
    fn a_share_has_the_interval_of_its_tables() {
        // Clopper and Pearson's limits for 0 and 1 of 10, and 5 of 20.
        for (counted, tried, low, high) in [
            (0, 10, 0.0, 0.3085),
            (1, 10, 0.0025, 0.4450),
            (5, 20, 0.0866, 0.4910),
            (10, 10, 0.6915, 1.0),
        ] {
            let found = Interval::of_share(counted, tried);
            let is_near = |found: f64, expected: f64| (found - expected).abs() < 1e-4;
            assert!(
                is_near(found.low, low) && is_near(found.high, high),
                "{counted} of {tried}: {found:?}"
            );
        }
    }

    #[test]
    fn an_interval_by_hand() {
        // Logarithms 0, 1, 2: mean 1, deviation 1, error 1/sqrt(3), t with 2 degrees 4.3027.
        let e = std::f64::consts::E;
        let found = Interval::of_ratios(&[1.0, e, e * e]);
        assert!((found.middle - e).abs() < 1e-9);
        assert!((found.low.ln() - (1.0 - 4.302_653 / 3_f64.sqrt())).abs() < 1e-5);
        assert!((found.high.ln() - (1.0 + 4.302_653 / 3_f64.sqrt())).abs() < 1e-5);
        let plain = Interval::of_values(&[0.0, 1.0, 2.0]);
        assert!((plain.middle - 1.0).abs() < 1e-12);
        assert!((plain.half_width() - 4.302_653 / 3_f64.sqrt()).abs() < 1e-5);
        let single = Interval::of_ratios(&[2.0]);
        assert_eq!((single.low, single.high), (0.0, f64::INFINITY));
    }

    #[test]
    fn a_median_by_hand() {
        let check = |ratios: &[f64], expected: (f64, f64, f64)| {
            let found = Interval::of_pairs(ratios);
            assert_eq!(
                (found.low, found.middle, found.high),
                expected,
                "{ratios:?}"
            );
        };
        check(&[3.0], (3.0, 3.0, 3.0));
        check(&[9.0, -1.0], (-1.0, 4.0, 9.0));
        check(&[5.0, 1.0, 4.0, 2.0, 9.0], (1.0, 4.0, 9.0));
        // Of ten tosses of a coin at most one head: 11 of 1024; at most two: 56 of 1024 are over 2.5 %.
        let ten = [1.0, 2.0, 3.0, 4.0, 4.0, 4.0, 5.0, 6.0, 7.0, 99.0];
        check(&ten, (2.0, 4.0, 7.0));
        let found = Interval::of_quotients(&[6.0, 5.0, 1.0], &[2.0, 5.0, 4.0]);
        assert_eq!((found.low, found.middle, found.high), (0.25, 1.0, 3.0));
    }

    #[test]
    fn the_intervals_cover_the_truth_as_often_as_they_say() {
        let seed = crate::data::test_seed();
        let mut random = Random::new(seed);
        let mut check = |make: fn(&[f64]) -> Interval, runs: usize, expected: f64| {
            let tried = 4000;
            let covered = (0..tried)
                .filter(|_| {
                    // The sum of 12 uniforms less 6 is close to a standard normal.
                    let mut normal = || (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0;
                    let ratios: Vec<f64> =
                        (0..runs).map(|_| 0.97 * (0.05 * normal()).exp()).collect();
                    let found = make(&ratios);
                    found.low <= 0.97 && 0.97 <= found.high
                })
                .count();
            let share = covered as f64 / f64::from(tried);
            println!("seed {seed}: {runs} runs, {tried} intervals, {share} cover the truth");
            // Four standard errors of a share of 0.95 in 4,000 are 0.0138.
            assert!((share - expected).abs() < 0.0138, "{share}");
        };
        check(Interval::of_ratios, 10, 0.95);
        check(Interval::of_ratios, 30, 0.95);
        check(Interval::of_pairs, 10, 1.0 - 2.0 * 11.0 / 1024.0);
        check(Interval::of_pairs, 5, 1.0 - 2.0 / 32.0);
    }

    #[test]
    fn verdicts() {
        let check = |target: Target, low: f64, high: f64, runs: usize, expected: Verdict| {
            let found = Interval {
                middle: 0.5 * (low + high),
                low,
                high,
                runs,
            };
            assert_eq!(target.judge(found), expected, "{found:?} in {target}");
        };
        let floor = Target::at_least(0.97);
        check(floor, 0.98, 1.01, 10, Verdict::Holds);
        check(floor, 0.90, 0.96, 10, Verdict::Differs);
        check(floor, 0.90, 1.10, 10, Verdict::CannotTell);
        check(floor, 0.98, 1.01, 9, Verdict::CannotTell);
        check(floor, 0.90, 0.96, 9, Verdict::CannotTell);
        let five = Interval {
            middle: 1.0,
            low: 0.98,
            high: 1.02,
            runs: 5,
        };
        assert_eq!(floor.judge_by(five, 5), Verdict::Holds);
        assert_eq!(floor.judge_by(five, 6), Verdict::CannotTell);
        check(Target::exactly(0.0), 0.0, 0.0, 0, Verdict::Holds);
        check(Target::exactly(0.0), 3.0, 3.0, 0, Verdict::Differs);
        assert!(Verdict::Holds < Verdict::CannotTell && Verdict::CannotTell < Verdict::Differs);
    }
}
