//! The reads per write that make compressing pay: Kothiyal's read-write model.
//!
//! A file is written once and read `n` times, plain or compressed. The saving of compression is then a straight line in
//! `n`: [`Line`]. The line crosses zero at the break-even, and its two signs give the four [`Outcome`]s. Each metric
//! (time, energy, energy-delay, money) passes through this file on its own: one may pay where another never does.
//!
//! Boundary conventions, the same for every function here: compressing *pays* only where it saves something. A tie is
//! not a gain, so nothing saved anywhere is [`Outcome::Never`]. If nothing is lost anywhere and something is saved
//! somewhere, that is [`Outcome::Always`]. At the break-even itself the two costs are equal. `n` is any real number
//! from 0 up.
//!
//! If the inputs have bands, a [`Verdict`] is [`Answer::Undecided`] when the class of the answer is not the same over
//! the whole band. A factor common to all quantities (uncertain watts) cancels in a break-even and belongs in
//! [`SharedFactor`], never in the single bands.
//!
//! Source: Kothiyal 2009, section 4.4, and the symbols of Tables 5.1 to 5.3.

use serde::{Deserialize, Serialize};

use crate::units::Estimate;

/// The four tasks of the read-write model in one metric (seconds, joules, joule-seconds, euros).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quadruple {
    /// Cost of writing the raw data (plain-write, M_w).
    pub write: f64,
    /// Cost of compressing and writing the smaller data (compress-write, M_c).
    pub compress: f64,
    /// Cost of reading the raw data (plain-read, M_r).
    pub read: f64,
    /// Cost of reading the smaller data and decompressing (decompress-read, M_d).
    pub decompress: f64,
}

impl Quadruple {
    /// Returns the saving of compression as a line over reads per write.
    pub fn line(&self) -> Line {
        Line {
            at_zero: self.write - self.compress,
            per_unit: self.read - self.decompress,
        }
    }
}

/// A saving that is linear in some quantity from 0 up: reads per write, days kept, a price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// The saving when the quantity is 0; negative is a loss.
    pub at_zero: f64,
    /// The saving of each further unit of the quantity; negative is a loss.
    pub per_unit: f64,
}

/// The values of the quantity (reads per write, days, a price) for which compressing pays.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Outcome {
    /// It never loses and saves somewhere (the nabla of the tables).
    Always,
    /// It saves nothing anywhere (the cross of the tables).
    Never,
    /// It pays above this break-even and loses below it.
    Above(f64),
    /// It pays below this break-even and loses above it: writing saves, reading loses.
    Below(f64),
}

impl Outcome {
    /// Returns the break-even, where there is one.
    pub fn break_even(&self) -> Option<f64> {
        match *self {
            Outcome::Always | Outcome::Never => None,
            Outcome::Above(value) | Outcome::Below(value) => Some(value),
        }
    }

    /// Returns the answer for this outcome without uncertainty.
    pub fn answer(&self) -> Answer {
        match self {
            Outcome::Always => Answer::Pays,
            Outcome::Never => Answer::Never,
            Outcome::Above(_) => Answer::PaysAbove,
            Outcome::Below(_) => Answer::PaysBelow,
        }
    }
}

impl Line {
    /// Returns the saving at `value`; negative is a loss.
    ///
    /// # Panics
    /// When `value` is negative, infinite or NaN.
    pub fn at(&self, value: f64) -> f64 {
        assert!(
            value >= 0.0 && value.is_finite(),
            "a saving is asked for at {value}"
        );
        self.at_zero + value * self.per_unit
    }

    /// Returns the values for which compressing pays.
    ///
    /// A break-even that is too small or too large for an `f64` becomes the outcome at that end.
    ///
    /// # Panics
    /// When a coefficient is NaN or infinite.
    pub fn outcome(&self) -> Outcome {
        assert!(
            self.at_zero.is_finite() && self.per_unit.is_finite(),
            "a saving that is not a number: {self:?}"
        );
        let crossing = -self.at_zero / self.per_unit;
        if self.at_zero < 0.0 && self.per_unit > 0.0 {
            match crossing {
                0.0 => Outcome::Always,
                f64::INFINITY => Outcome::Never,
                _ => Outcome::Above(crossing),
            }
        } else if self.at_zero > 0.0 && self.per_unit < 0.0 {
            match crossing {
                0.0 => Outcome::Never,
                f64::INFINITY => Outcome::Always,
                _ => Outcome::Below(crossing),
            }
        } else if self.at_zero > 0.0 || self.per_unit > 0.0 {
            Outcome::Always
        } else {
            Outcome::Never
        }
    }
}

/// Returns the reads per write for which compressing pays: n_be = (M_c - M_w) / (M_r - M_d), with the signs of its two
/// parts kept apart.
///
/// Source: Kothiyal 2009, section 4.4; its tables show three of the four outcomes.
///
/// # Panics
/// When a cost is NaN or infinite.
///
/// # Example
/// ```
/// use breakeven::model::{Outcome, Quadruple, outcome};
/// let seconds = Quadruple { write: 40.0, compress: 54.0, read: 30.0, decompress: 25.0 };
/// assert_eq!(outcome(&seconds), Outcome::Above(2.8));
/// ```
pub fn outcome(quadruple: &Quadruple) -> Outcome {
    quadruple.line().outcome()
}

/// Returns the saving of compression over one write and `reads_per_write` reads, in the metric's own unit: E_sav(n) = n
/// (E_r - E_d) + (E_w - E_c). Negative is a loss.
///
/// Source: Kothiyal 2009, section 4.4 and Figure 5.4.
///
/// # Panics
/// When `reads_per_write` is negative, infinite or NaN.
pub fn savings(quadruple: &Quadruple, reads_per_write: f64) -> f64 {
    quadruple.line().at(reads_per_write)
}

/// The answer of a verdict, as reports print it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Compressing pays at any value of the quantity.
    Pays,
    /// Compressing pays above the break-even.
    PaysAbove,
    /// Compressing pays below the break-even.
    PaysBelow,
    /// Compressing pays at no value of the quantity.
    Never,
    /// The answer differs within the band of the inputs.
    Undecided,
}

/// An answer with its break-even and the band of the break-even.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The answer that holds over the whole band, or `Undecided`.
    pub answer: Answer,
    /// The break-even of the means; `None` if the means have none.
    pub break_even: Option<f64>,
    /// The least break-even inside the band; `None` when no value in the band has one.
    pub low: Option<f64>,
    /// The largest break-even inside the band; `None` when there is none or no upper bound.
    pub high: Option<f64>,
}

/// The four tasks of the read-write model in one metric, each with its own, independent band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuadrupleEstimate {
    /// Cost of writing the raw data.
    pub write: Estimate,
    /// Cost of compressing and writing the smaller data.
    pub compress: Estimate,
    /// Cost of reading the raw data.
    pub read: Estimate,
    /// Cost of reading the smaller data and decompressing.
    pub decompress: Estimate,
}

impl QuadrupleEstimate {
    /// Returns the means.
    pub fn mean(&self) -> Quadruple {
        Quadruple {
            write: self.write.mean,
            compress: self.compress.mean,
            read: self.read.mean,
            decompress: self.decompress.mean,
        }
    }

    /// Returns the savings of the write and of a read, with the widest bands of independent errors. If two errors go
    /// together (both writes wait for one disk), the caller can make a narrower [`SavingsEstimate`].
    pub fn savings(&self) -> SavingsEstimate {
        SavingsEstimate {
            write: difference(&self.write, &self.compress),
            read: difference(&self.read, &self.decompress),
        }
    }
}

/// The savings of compression at the write and at each read, in one metric, with bands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SavingsEstimate {
    /// M_w - M_c: the saving of the one write; negative is a loss.
    pub write: Estimate,
    /// M_r - M_d: the saving of each read; negative is a loss.
    pub read: Estimate,
}

impl SavingsEstimate {
    /// Makes savings that are known exactly.
    pub fn exact(quadruple: &Quadruple) -> SavingsEstimate {
        let line = quadruple.line();
        SavingsEstimate {
            write: Estimate::exact(line.at_zero),
            read: Estimate::exact(line.per_unit),
        }
    }

    /// Returns the saving over one write and `reads_per_write` reads.
    ///
    /// # Panics
    /// When `reads_per_write` is negative, infinite or NaN.
    pub fn at(&self, reads_per_write: f64) -> Estimate {
        Estimate {
            mean: self.mean_line().at(reads_per_write),
            low: self.low_line().at(reads_per_write),
            high: self.high_line().at(reads_per_write),
        }
    }

    /// Answers for a workload and not for all reads per write. It is `Pays`, `Never`, or `Undecided` if the saving
    /// changes its sign within the bands or within the workload's reads per write.
    ///
    /// # Panics
    /// When the interval of `reads_per_write` starts below 0.
    pub fn answer_at(&self, reads_per_write: &Estimate) -> Answer {
        let ends = [self.at(reads_per_write.low), self.at(reads_per_write.high)];
        let low = ends[0].low.min(ends[1].low);
        let high = ends[0].high.max(ends[1].high);
        if high <= 0.0 {
            Answer::Never
        } else if low >= 0.0 {
            Answer::Pays
        } else {
            Answer::Undecided
        }
    }

    /// Returns the answer over all reads per write. All lines of the band lie between the least and the largest saving,
    /// so these two decide.
    pub fn verdict(&self) -> Verdict {
        Verdict::over(
            self.mean_line().outcome(),
            [self.low_line().outcome(), self.high_line().outcome()],
        )
    }

    fn mean_line(&self) -> Line {
        Line {
            at_zero: self.write.mean,
            per_unit: self.read.mean,
        }
    }

    fn low_line(&self) -> Line {
        Line {
            at_zero: self.write.low,
            per_unit: self.read.low,
        }
    }

    fn high_line(&self) -> Line {
        Line {
            at_zero: self.write.high,
            per_unit: self.read.high,
        }
    }
}

/// Savings in which one uncertain factor multiplies every part. Examples are joules that all come from one uncertain
/// figure of watts, or euros from one uncertain price.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedFactor {
    /// The savings at a factor of 1.
    pub savings: SavingsEstimate,
    /// The factor with its band; all of it above 0.
    pub factor: Estimate,
}

/// Returns the answer over all reads per write for four costs with independent bands.
///
/// # Panics
/// When a cost is NaN or infinite.
pub fn verdict(costs: &QuadrupleEstimate) -> Verdict {
    costs.savings().verdict()
}

/// Returns the answer over all reads per write if part of the savings has a common factor.
///
/// With `own` all zero the factor cancels. The break-even of energy does not depend on the watts, so their uncertainty
/// does not make it undecided. In money, where energy is one part of the cost, the factor counts in that part.
///
/// # Panics
/// When the factor's band is not above 0, or a saving is NaN or infinite.
pub fn verdict_with_factor(own: &SavingsEstimate, shared: &SharedFactor) -> Verdict {
    let factor = shared.factor;
    assert!(
        factor.low > 0.0 && factor.high.is_finite(),
        "a shared factor must be above 0: {factor:?}"
    );
    let sum = |own: Line, shared: Line, factor: f64| {
        let line = Line {
            at_zero: own.at_zero + factor * shared.at_zero,
            per_unit: own.per_unit + factor * shared.per_unit,
        };
        line.outcome()
    };
    let savings = &shared.savings;
    Verdict::over(
        sum(own.mean_line(), savings.mean_line(), factor.mean),
        [
            sum(own.low_line(), savings.low_line(), factor.low),
            sum(own.low_line(), savings.low_line(), factor.high),
            sum(own.high_line(), savings.high_line(), factor.low),
            sum(own.high_line(), savings.high_line(), factor.high),
        ],
    )
}

impl Verdict {
    /// Makes the verdict of a certain outcome.
    pub fn exact(outcome: Outcome) -> Verdict {
        Verdict::over(outcome, [outcome])
    }

    /// Makes a verdict from the outcome of the means and the outcomes at the ends of the band.
    pub fn over<const COUNT: usize>(mean: Outcome, ends: [Outcome; COUNT]) -> Verdict {
        let all = || ends.iter().chain([&mean]);
        let has = |answer: Answer| all().any(|outcome| outcome.answer() == answer);
        let values = || all().filter_map(Outcome::break_even);
        let low = values().reduce(f64::min);
        let high = values().reduce(f64::max);
        let break_even = mean.break_even();
        let answer = mean.answer();
        if all().all(|outcome| outcome.answer() == answer) {
            return Verdict {
                answer,
                break_even,
                low,
                high,
            };
        }
        // The outcomes lie on a circle. A break-even that sinks to 0 turns "above" into "always" and "below" into
        // "never"; one that rises without bound does the opposite.
        let (pays, never) = (has(Answer::Pays), has(Answer::Never));
        let (above, below) = (has(Answer::PaysAbove), has(Answer::PaysBelow));
        let through_both = above == below || (pays && never);
        let through_zero = through_both || (above && pays) || (below && never);
        let through_infinity = through_both || (above && never) || (below && pays);
        Verdict {
            answer: Answer::Undecided,
            break_even,
            low: if through_zero { Some(0.0) } else { low },
            high: if through_infinity { None } else { high },
        }
    }
}

/// Returns `a - b` with the band of independent errors.
fn difference(a: &Estimate, b: &Estimate) -> Estimate {
    Estimate {
        mean: a.mean - b.mean,
        low: a.low - b.high,
        high: a.high - b.low,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{assert_close, seeded};

    fn quadruple(values: [f64; 4]) -> Quadruple {
        let [write, compress, read, decompress] = values;
        Quadruple {
            write,
            compress,
            read,
            decompress,
        }
    }

    #[track_caller]
    fn check(values: [f64; 4], expected: Outcome) {
        assert_eq!(outcome(&quadruple(values)), expected, "{values:?}");
    }

    #[test]
    fn the_four_outcomes() {
        check([40.0, 30.0, 30.0, 10.0], Outcome::Always);
        check([40.0, 50.0, 30.0, 31.0], Outcome::Never);
        check([40.0, 50.0, 30.0, 25.0], Outcome::Above(2.0));
        check([40.0, 30.0, 20.0, 25.0], Outcome::Below(2.0));
    }

    #[test]
    fn ties_are_no_gain_and_no_loss() {
        check([40.0, 40.0, 30.0, 30.0], Outcome::Never);
        check([40.0, 40.0, 30.0, 31.0], Outcome::Never);
        check([40.0, 41.0, 30.0, 30.0], Outcome::Never);
        check([40.0, 40.0, 30.0, 29.0], Outcome::Always);
        check([40.0, 39.0, 30.0, 30.0], Outcome::Always);
        check([0.0; 4], Outcome::Never);
    }

    #[test]
    fn a_break_even_outside_the_numbers_is_the_outcome_at_that_end() {
        check([0.0, 1e300, 1e-300, 0.0], Outcome::Never);
        check([1e300, 0.0, 0.0, 1e-300], Outcome::Always);
        check([0.0, 1e-300, 1e300, 0.0], Outcome::Always);
        check([1e-300, 0.0, 0.0, 1e300], Outcome::Never);
    }

    #[test]
    #[should_panic(expected = "not a number")]
    fn nonsense_is_refused() {
        check([f64::NAN, 1.0, 1.0, 1.0], Outcome::Never);
    }

    #[test]
    fn savings_change_sign_at_the_next_whole_read_as_in_the_text() {
        // Section 5.3.1: gz-1 crosses at 20.2, "21 or more reads" save energy.
        let joules = quadruple([1000.0, 2010.0, 900.0, 850.0]);
        assert_eq!(outcome(&joules), Outcome::Above(20.2));
        assert!(savings(&joules, 20.0) < 0.0);
        assert!(savings(&joules, 21.0) > 0.0);
        assert_eq!(savings(&joules, 0.0), -1010.0);
    }

    /// The naive model: add up the whole work, once plain and once compressed.
    fn naive_saving(costs: &Quadruple, reads: u32) -> f64 {
        let (mut plain, mut compressed) = (costs.write, costs.compress);
        for _ in 0..reads {
            plain += costs.read;
            compressed += costs.decompress;
        }
        plain - compressed
    }

    #[test]
    fn random_quadruples_agree_with_adding_up_the_work() {
        let mut random = seeded("random_quadruples");
        let mut seen = [0u32; 4];
        for _ in 0..20_000 {
            // A tenth of the values are equal in pairs, so that ties occur too.
            let mut value =
                || (random.f64() * 30.0).round() + if random.bool() { 0.5 } else { 0.0 };
            let costs = quadruple([value(), value(), value(), value()]);
            let result = outcome(&costs);
            let class = match result {
                Outcome::Always => 0,
                Outcome::Never => 1,
                Outcome::Above(_) => 2,
                Outcome::Below(_) => 3,
            };
            seen[class] += 1;
            for reads in [0, 1, 2, 3, 7, 100] {
                let saving = naive_saving(&costs, reads);
                assert_close("saving", savings(&costs, f64::from(reads)), saving, 1e-12);
                let side = result
                    .break_even()
                    .map_or(0.0, |value| f64::from(reads) - value);
                match result {
                    Outcome::Always => assert!(saving >= 0.0, "{costs:?}"),
                    Outcome::Never => assert!(saving <= 0.0, "{costs:?}"),
                    Outcome::Above(_) => assert!(saving * side >= -1e-9, "{costs:?}"),
                    Outcome::Below(_) => assert!(saving * side <= 1e-9, "{costs:?}"),
                }
            }
            if let Some(value) = result.break_even() {
                let plain = costs.write + value * costs.read;
                let compressed = costs.compress + value * costs.decompress;
                assert_close("costs at the break-even", plain, compressed, 1e-12);
            }
        }
        println!("tried [always, never, above, below] = {seen:?}");
        assert!(seen.iter().all(|&count| count > 1000), "{seen:?}");
    }

    #[test]
    fn more_reads_save_monotonously() {
        let costs = quadruple([40.0, 50.0, 30.0, 25.0]);
        let mut last = f64::NEG_INFINITY;
        for reads in 0..100 {
            let saving = savings(&costs, f64::from(reads));
            assert!(saving > last);
            last = saving;
        }
    }

    fn around(value: f64, half_width: f64) -> Estimate {
        Estimate::plus_minus(value, half_width)
    }

    fn savings_of(write: Estimate, read: Estimate) -> SavingsEstimate {
        SavingsEstimate { write, read }
    }

    #[track_caller]
    fn check_verdict(savings: SavingsEstimate, expected: (Answer, [Option<f64>; 3])) {
        let verdict = savings.verdict();
        let found = [verdict.break_even, verdict.low, verdict.high];
        assert_eq!((verdict.answer, found), expected, "{savings:?}");
    }

    #[test]
    fn a_verdict_that_flips_inside_its_band_is_undecided() {
        use Answer::*;
        let some = Some;
        // Decided, with the band of the break-even.
        check_verdict(
            savings_of(around(-4.0, 2.0), around(2.0, 1.0)),
            (PaysAbove, [some(2.0), some(2.0 / 3.0), some(6.0)]),
        );
        check_verdict(
            savings_of(around(4.0, 2.0), around(-2.0, 1.0)),
            (PaysBelow, [some(2.0), some(2.0 / 3.0), some(6.0)]),
        );
        check_verdict(
            savings_of(around(4.0, 2.0), around(2.0, 1.0)),
            (Pays, [None; 3]),
        );
        check_verdict(
            savings_of(around(-4.0, 2.0), around(-2.0, 1.0)),
            (Never, [None; 3]),
        );
        // Flips at a break-even of 0, and without an upper bound.
        check_verdict(
            savings_of(around(-1.0, 2.0), around(2.0, 1.0)),
            (Undecided, [some(0.5), some(0.0), some(3.0)]),
        );
        check_verdict(
            savings_of(around(-4.0, 2.0), around(1.0, 2.0)),
            (Undecided, [some(4.0), some(2.0 / 3.0), None]),
        );
        check_verdict(
            savings_of(around(4.0, 2.0), around(-1.0, 2.0)),
            (Undecided, [some(4.0), some(2.0 / 3.0), None]),
        );
        check_verdict(
            savings_of(around(1.0, 2.0), around(-2.0, 1.0)),
            (Undecided, [some(0.5), some(0.0), some(3.0)]),
        );
        // Everything is possible.
        check_verdict(
            savings_of(around(1.0, 2.0), around(1.0, 2.0)),
            (Undecided, [None, some(0.0), None]),
        );
    }

    #[test]
    fn a_workload_can_be_answered_where_the_class_cannot() {
        let savings = savings_of(around(-1.0, 2.0), around(2.0, 1.0));
        assert_eq!(savings.verdict().answer, Answer::Undecided);
        let answer = |low, high| {
            savings.answer_at(&Estimate {
                mean: (low + high) / 2.0,
                low,
                high,
            })
        };
        assert_eq!(answer(3.0, 4.0), Answer::Pays);
        assert_eq!(answer(2.0, 4.0), Answer::Undecided);
        let losing = savings_of(around(-9.0, 1.0), around(2.0, 1.0));
        assert_eq!(losing.answer_at(&Estimate::exact(2.0)), Answer::Never);
    }

    #[test]
    fn every_line_of_the_band_obeys_the_verdict() {
        let mut random = seeded("every_line_of_the_band");
        let mut decided = 0;
        for _ in 0..5_000 {
            let mut estimate = |spread: f64| {
                let mean = random.f64() * 20.0 - 10.0;
                Estimate::plus_minus(mean, random.f64() * spread)
            };
            let savings = savings_of(estimate(4.0), estimate(4.0));
            let verdict = savings.verdict();
            for _ in 0..20 {
                let mut pick = |band: Estimate| band.low + random.f64() * (band.high - band.low);
                let line = Line {
                    at_zero: pick(savings.write),
                    per_unit: pick(savings.read),
                };
                let found = line.outcome();
                if verdict.answer != Answer::Undecided {
                    assert_eq!(found.answer(), verdict.answer, "{savings:?}");
                }
                if let Some(value) = found.break_even() {
                    let low = verdict
                        .low
                        .expect("a break-even exists, so it has a lower end");
                    let high = verdict.high.unwrap_or(f64::INFINITY);
                    let slack = 1e-9 * value;
                    assert!(low <= value + slack && value <= high + slack, "{savings:?}");
                }
            }
            decided += u32::from(verdict.answer != Answer::Undecided);
        }
        println!("decided {decided} of 5000");
        assert!((1000..5000).contains(&decided));
    }

    #[test]
    fn uncertain_watts_alone_do_not_make_energy_undecided() {
        // Seconds are known; watts only within a factor of 2.
        let seconds = quadruple([40.0, 50.0, 30.0, 25.0]);
        let watts = Estimate::within_factor(100.0, 2.0);
        let joules = |seconds: f64| Estimate::within_factor(seconds * watts.mean, 2.0);
        let independent = QuadrupleEstimate {
            write: joules(seconds.write),
            compress: joules(seconds.compress),
            read: joules(seconds.read),
            decompress: joules(seconds.decompress),
        };
        assert_eq!(verdict(&independent).answer, Answer::Undecided);

        let none = savings_of(Estimate::exact(0.0), Estimate::exact(0.0));
        let shared = SharedFactor {
            savings: SavingsEstimate::exact(&seconds),
            factor: watts,
        };
        let found = verdict_with_factor(&none, &shared);
        assert_eq!(found.answer, Answer::PaysAbove);
        assert_eq!(
            (found.break_even, found.low, found.high),
            (Some(2.0), Some(2.0), Some(2.0))
        );

        // In money, where watts are one part, they move the break-even.
        let own = savings_of(Estimate::exact(-100.0), Estimate::exact(300.0));
        let found = verdict_with_factor(&own, &shared);
        assert_eq!(found.answer, Answer::PaysAbove);
        assert!(found.low < found.break_even && found.break_even < found.high);
    }

    #[test]
    fn answers_have_the_names_of_the_report() {
        let text = serde_json::to_string(&[
            Answer::Pays,
            Answer::PaysAbove,
            Answer::PaysBelow,
            Answer::Never,
            Answer::Undecided,
        ]);
        assert_eq!(
            text.expect("a list of names is JSON"),
            r#"["pays","pays_above","pays_below","never","undecided"]"#
        );
    }
}
