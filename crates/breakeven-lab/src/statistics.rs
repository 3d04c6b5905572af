//! The statistics of a verdict: an interval by Student's t, and a target it lies in or not.
//!
//! Ratios are averaged as logarithms, so that a ratio and its inverse are treated alike. Nothing is
//! left out: there are no outliers here, only measurements.

use std::fmt;

/// The fewest pairs that a verdict may rest on.
pub const PAIRS_MIN: usize = 10;

const CONFIDENCE: f64 = 0.95;

/// A mean with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
    /// Independent measurements behind it; 0 for a count or a size, which has no error.
    pub runs: usize,
}

impl Interval {
    /// Makes the interval of a number that has no error.
    pub fn exact(value: f64) -> Interval {
        Interval {
            mean: value,
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
            mean,
            low: mean - half_width,
            high: mean + half_width,
            runs: values.len(),
        }
    }

    /// Returns half the width of an arithmetic mean's interval, as a share of the mean.
    pub fn half_width(&self) -> f64 {
        (self.high - self.mean) / self.mean
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
            mean: mean.exp(),
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
    (
        mean,
        student_t(CONFIDENCE, values.len() - 1) * standard_error,
    )
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

    /// Judges a figure: it holds if its whole interval lies in the target, differs if none of it
    /// does. Fewer than [`PAIRS_MIN`] runs never tell.
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

/// What a run says about a claim, the worst last.
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

/// Returns the t for which a Student variable of `degrees` degrees of freedom lies in -t..t with
/// probability `confidence`.
pub fn student_t(confidence: f64, degrees: usize) -> f64 {
    let (mut low, mut high) = (0.0_f64, 1e6);
    // Each step halves the bracket: 80 of them pass the precision of a double.
    for _ in 0..80 {
        let middle = 0.5 * (low + high);
        if student_probability(middle, degrees) < confidence {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Returns the probability that a Student variable lies in -t..t.
///
/// Source: Abramowitz and Stegun 1964, equations 26.7.3 and 26.7.4.
fn student_probability(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = (angle.sin(), angle.cos());
    let odd = degrees % 2 == 1;
    let (mut term, mut sum) = if odd { (cosine, 0.0) } else { (1.0, 0.0) };
    let mut power = if odd { 1 } else { 0 };
    while power + 2 <= degrees {
        sum += term;
        power += 2;
        term *= cosine * cosine * (power as f64 - 1.0) / power as f64;
    }
    if odd {
        std::f64::consts::FRAC_2_PI * (angle + sine * sum)
    } else {
        sine * sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Random;

    /// Columns 0.95 and 0.99 (two-sided) of the printed tables.
    #[test]
    fn t_matches_the_printed_tables() {
        let check = |degrees: usize, expected_95: f64, expected_99: f64| {
            let (found_95, found_99) = (student_t(0.95, degrees), student_t(0.99, degrees));
            assert!(
                (found_95 - expected_95).abs() < 5.1e-4,
                "{degrees}: {found_95}"
            );
            assert!(
                (found_99 - expected_99).abs() < 5.1e-4,
                "{degrees}: {found_99}"
            );
        };
        check(1, 12.706, 63.657);
        check(2, 4.303, 9.925);
        check(3, 3.182, 5.841);
        check(4, 2.776, 4.604);
        check(5, 2.571, 4.032);
        check(9, 2.262, 3.250);
        check(10, 2.228, 3.169);
        check(29, 2.045, 2.756);
        check(30, 2.042, 2.750);
        check(120, 1.980, 2.617);
    }

    #[test]
    fn an_interval_by_hand() {
        // Logarithms 0, 1, 2: mean 1, deviation 1, error 1/sqrt(3), t with 2 degrees 4.3027.
        let e = std::f64::consts::E;
        let found = Interval::of_ratios(&[1.0, e, e * e]);
        assert!((found.mean - e).abs() < 1e-9);
        assert!((found.low.ln() - (1.0 - 4.302_653 / 3_f64.sqrt())).abs() < 1e-5);
        assert!((found.high.ln() - (1.0 + 4.302_653 / 3_f64.sqrt())).abs() < 1e-5);
        let plain = Interval::of_values(&[0.0, 1.0, 2.0]);
        assert!((plain.mean - 1.0).abs() < 1e-12);
        assert!((plain.half_width() - 4.302_653 / 3_f64.sqrt()).abs() < 1e-5);
        let single = Interval::of_ratios(&[2.0]);
        assert_eq!((single.low, single.high), (0.0, f64::INFINITY));
    }

    #[test]
    fn the_interval_covers_the_truth_as_often_as_it_says() {
        let seed = crate::data::test_seed();
        let mut random = Random::new(seed);
        for runs in [10, 30] {
            let tried = 4000;
            let covered = (0..tried)
                .filter(|_| {
                    // The sum of 12 uniforms less 6 is close to a standard normal.
                    let mut normal = || (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0;
                    let ratios: Vec<f64> =
                        (0..runs).map(|_| 0.97 * (0.05 * normal()).exp()).collect();
                    let found = Interval::of_ratios(&ratios);
                    found.low <= 0.97 && 0.97 <= found.high
                })
                .count();
            let share = covered as f64 / f64::from(tried);
            println!("seed {seed}: {runs} runs, {tried} intervals, {share} cover the truth");
            // Four standard errors of a share of 0.95 in 4,000 are 0.0138.
            assert!((share - 0.95).abs() < 0.0138, "{share}");
        }
    }

    #[test]
    fn verdicts() {
        let check = |target: Target, low: f64, high: f64, runs: usize, expected: Verdict| {
            let mean = 0.5 * (low + high);
            let found = Interval {
                mean,
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
            mean: 1.0,
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
