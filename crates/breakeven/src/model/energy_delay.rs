//! Energy-delay: the thesis's, task by task, and that of the whole work.
//!
//! Energy-delay is total energy times total time. It does not add up over tasks: two blocks of 1 J and 1 s each cost 4
//! J s together and not 2. This file keeps three views of it apart:
//!
//! - [`EnergyDelay::of_tasks`]: energy times time of each task, then linear in the reads. This is how Tables 5.1 to 5.3
//!   were made; it reproduces them, but says nothing about the whole work.
//! - [`EnergyDelay::outcome`]: total energy times total time over one write and `n` reads. The saving is a parabola in
//!   `n`. If compressing saves one metric at few reads and the other at many, it may pay only between two break-evens,
//!   or only outside them.
//! - [`RunningTotals`]: the whole work followed block by block with linear prices. A second costs the joules spent so
//!   far, and a joule the seconds spent so far.
//!
//! A factor common to all energies cancels in each of them, as it does in a break-even of energy.
//!
//! Source: Kothiyal 2009, chapter 3 and section 4.4 (task by task); the rest is this project's.

use super::break_even::{Answer, Line, Outcome, Quadruple, QuadrupleEstimate, Verdict};
use crate::units::{Estimate, Joules, Seconds};

/// The four tasks of the read-write model in energy and in time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnergyDelay {
    /// Joules of each task.
    pub energy: Quadruple,
    /// Seconds of each task.
    pub time: Quadruple,
}

/// The reads per write for which compressing pays in the energy-delay of the whole work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WorkOutcome {
    /// It never loses and saves somewhere.
    Always,
    /// It saves nothing anywhere.
    Never,
    /// It pays above this break-even and loses below it.
    Above(f64),
    /// It pays below this break-even and loses above it.
    Below(f64),
    /// It pays between the two break-evens only.
    Between { low: f64, high: f64 },
    /// It pays below the low and above the high break-even, and loses between them.
    Outside { low: f64, high: f64 },
}

impl WorkOutcome {
    /// Returns whether compressing saves something at `reads_per_write`.
    pub fn pays_at(&self, reads_per_write: f64) -> bool {
        match *self {
            WorkOutcome::Always => true,
            WorkOutcome::Never => false,
            WorkOutcome::Above(value) => reads_per_write > value,
            WorkOutcome::Below(value) => reads_per_write < value,
            WorkOutcome::Between { low, high } => low < reads_per_write && reads_per_write < high,
            WorkOutcome::Outside { low, high } => reads_per_write < low || high < reads_per_write,
        }
    }

    /// Returns the outcome as one of the four that have at most one break-even.
    fn single(&self) -> Option<Outcome> {
        match *self {
            WorkOutcome::Always => Some(Outcome::Always),
            WorkOutcome::Never => Some(Outcome::Never),
            WorkOutcome::Above(value) => Some(Outcome::Above(value)),
            WorkOutcome::Below(value) => Some(Outcome::Below(value)),
            WorkOutcome::Between { .. } | WorkOutcome::Outside { .. } => None,
        }
    }
}

impl From<Outcome> for WorkOutcome {
    fn from(outcome: Outcome) -> WorkOutcome {
        match outcome {
            Outcome::Always => WorkOutcome::Always,
            Outcome::Never => WorkOutcome::Never,
            Outcome::Above(value) => WorkOutcome::Above(value),
            Outcome::Below(value) => WorkOutcome::Below(value),
        }
    }
}

impl EnergyDelay {
    /// Returns energy times time of each task, in J s, to be treated as a linear metric.
    ///
    /// Source: Kothiyal 2009, section 4.4, the third number of each cell of Tables 5.1 to 5.3.
    pub fn of_tasks(&self) -> Quadruple {
        Quadruple {
            write: self.energy.write * self.time.write,
            compress: self.energy.compress * self.time.compress,
            read: self.energy.read * self.time.read,
            decompress: self.energy.decompress * self.time.decompress,
        }
    }

    /// Returns total energy times total time of one plain write and `reads_per_write` plain reads,
    /// in J s.
    pub fn plain(&self, reads_per_write: f64) -> f64 {
        let energy = self.energy.write + reads_per_write * self.energy.read;
        let time = self.time.write + reads_per_write * self.time.read;
        energy * time
    }

    /// Returns total energy times total time of the same work done compressed, in J s.
    pub fn compressed(&self, reads_per_write: f64) -> f64 {
        let energy = self.energy.compress + reads_per_write * self.energy.decompress;
        let time = self.time.compress + reads_per_write * self.time.decompress;
        energy * time
    }

    /// Returns the reads per write for which compressing pays over the whole work.
    ///
    /// # Panics
    /// When a product of the costs is not finite.
    pub fn outcome(&self) -> WorkOutcome {
        let (energy, time) = (&self.energy, &self.time);
        let square = energy.read * time.read - energy.decompress * time.decompress;
        let linear = (energy.write * time.read - energy.compress * time.decompress)
            + (energy.read * time.write - energy.decompress * time.compress);
        let constant = energy.write * time.write - energy.compress * time.compress;
        assert!(
            square.is_finite() && linear.is_finite() && constant.is_finite(),
            "an energy-delay that is not a number: {self:?}"
        );
        if square == 0.0 {
            let line = Line {
                at_zero: constant,
                per_unit: linear,
            };
            return line.outcome().into();
        }
        let at_start = [constant, linear, square]
            .into_iter()
            .find(|&coefficient| coefficient != 0.0);
        let pays_first = at_start.is_some_and(|coefficient| coefficient > 0.0);
        match (positive_crossings(square, linear, constant), pays_first) {
            ([None, _], true) => WorkOutcome::Always,
            ([None, _], false) => WorkOutcome::Never,
            ([Some(value), None], false) => WorkOutcome::Above(value),
            ([Some(value), None], true) => WorkOutcome::Below(value),
            ([Some(low), Some(high)], false) => WorkOutcome::Between { low, high },
            ([Some(low), Some(high)], true) => WorkOutcome::Outside { low, high },
        }
    }
}

/// The four tasks in energy and in time, each with its own band. A band that all energies share (uncertain watts) must
/// not be included, because it cancels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EnergyDelayEstimate {
    /// Joules of each task.
    pub energy: QuadrupleEstimate,
    /// Seconds of each task.
    pub time: QuadrupleEstimate,
}

impl EnergyDelayEstimate {
    /// Returns the means.
    pub fn mean(&self) -> EnergyDelay {
        EnergyDelay {
            energy: self.energy.mean(),
            time: self.time.mean(),
        }
    }

    /// Returns energy times time of each task with its band, to be treated as a linear metric.
    pub fn of_tasks(&self) -> QuadrupleEstimate {
        let (energy, time) = (&self.energy, &self.time);
        QuadrupleEstimate {
            write: product(&energy.write, &time.write),
            compress: product(&energy.compress, &time.compress),
            read: product(&energy.read, &time.read),
            decompress: product(&energy.decompress, &time.decompress),
        }
    }

    /// Returns the answer over all reads per write for the whole work. At every number of reads, the least saving has
    /// plain work cheapest and compressed work dearest. For the largest saving it is the reverse. These two curves
    /// decide.
    ///
    /// A curve with two break-evens has no single answer. The verdict is undecided, and `low` and `high` are the least
    /// and the largest of all break-evens in the band.
    ///
    /// # Panics
    /// When a lower end is negative, or a product of the costs is not finite.
    pub fn verdict(&self) -> Verdict {
        let mean = self.mean().outcome();
        let ends = [
            self.end(|band| band.low, |band| band.high).outcome(),
            self.end(|band| band.high, |band| band.low).outcome(),
        ];
        if let (Some(mean), Some(low), Some(high)) =
            (mean.single(), ends[0].single(), ends[1].single())
        {
            return Verdict::over(mean, [low, high]);
        }
        let crossings = || {
            let all = ends.iter().chain([&mean]);
            all.flat_map(|outcome| match *outcome {
                WorkOutcome::Between { low, high } | WorkOutcome::Outside { low, high } => {
                    [Some(low), Some(high)]
                }
                _ => [outcome.single().and_then(|one| one.break_even()), None],
            })
            .flatten()
        };
        Verdict {
            answer: Answer::Undecided,
            break_even: mean.single().and_then(|outcome| outcome.break_even()),
            low: crossings().reduce(f64::min),
            high: crossings().reduce(f64::max),
        }
    }

    fn end(&self, plain: fn(&Estimate) -> f64, compressed: fn(&Estimate) -> f64) -> EnergyDelay {
        let one = |costs: &QuadrupleEstimate| {
            let lows = [costs.write, costs.compress, costs.read, costs.decompress];
            assert!(
                lows.iter().all(|band| band.low >= 0.0),
                "a negative energy or time: {costs:?}"
            );
            Quadruple {
                write: plain(&costs.write),
                compress: compressed(&costs.compress),
                read: plain(&costs.read),
                decompress: compressed(&costs.decompress),
            }
        };
        EnergyDelay {
            energy: one(&self.energy),
            time: one(&self.time),
        }
    }
}

/// The energy and time spent so far by a work that is followed block by block.
///
/// A further block of e joules and t seconds adds (E + e)(T + t) - E T = T e + E t + e t to energy-delay. The last term
/// is left out, because it is small against the others once the block is small against the work. At the very start both
/// prices are 0: begin with the expected totals, not with nothing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunningTotals {
    /// Energy spent so far, the price of a second.
    pub energy: Joules,
    /// Time spent so far, the price of a joule.
    pub time: Seconds,
}

impl RunningTotals {
    /// Returns energy times time so far, in J s.
    pub fn energy_delay(&self) -> f64 {
        self.energy.0 * self.time.0
    }

    /// Returns the linear price of a further block, in J s: time priced at the running energy,
    /// energy at the running time.
    pub fn price(&self, energy: Joules, time: Seconds) -> f64 {
        self.time.0 * energy.0 + self.energy.0 * time.0
    }

    /// Returns the totals after a further block.
    pub fn after(&self, energy: Joules, time: Seconds) -> RunningTotals {
        RunningTotals {
            energy: self.energy + energy,
            time: self.time + time,
        }
    }
}

/// Returns where `square n^2 + linear n + constant` changes its sign above 0, in order.
fn positive_crossings(square: f64, linear: f64, constant: f64) -> [Option<f64>; 2] {
    // Scaled to the largest coefficient, the discriminant neither overflows nor vanishes.
    let scale = square.abs().max(linear.abs()).max(constant.abs());
    let (square, linear, constant) = (square / scale, linear / scale, constant / scale);
    let discriminant = linear * linear - 4.0 * square * constant;
    if discriminant <= 0.0 {
        return [None, None];
    }
    // The form that subtracts nothing: one root from the larger sum, the other from their product.
    let half = -0.5 * (linear + discriminant.sqrt().copysign(linear));
    let keep = |root: f64| (root > 0.0 && root.is_finite()).then_some(root);
    match [keep(half / square), keep(constant / half)] {
        [Some(a), Some(b)] => [Some(a.min(b)), Some(a.max(b))],
        [a, b] => [a.or(b), None],
    }
}

/// Returns the product of two estimates that are not negative.
fn product(a: &Estimate, b: &Estimate) -> Estimate {
    Estimate {
        mean: a.mean * b.mean,
        low: a.low * b.low,
        high: a.high * b.high,
    }
}

#[cfg(test)]
mod tests {
    use super::super::break_even::outcome;
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

    /// Makes energies of seconds and of watts, task by task.
    fn work(seconds: [f64; 4], watts: [f64; 4]) -> EnergyDelay {
        EnergyDelay {
            energy: quadruple([0, 1, 2, 3].map(|task| seconds[task] * watts[task])),
            time: quadruple(seconds),
        }
    }

    /// Prints an outcome as the tables do: one decimal, above 100 only the magnitude.
    fn as_printed(outcome: Outcome, decimals: usize) -> String {
        match outcome {
            Outcome::Always => "always".into(),
            Outcome::Never => "x".into(),
            Outcome::Below(value) => format!("below {value:.1}"),
            Outcome::Above(value) if value < 100.0 => format!("{value:.decimals$}"),
            Outcome::Above(value) => format!("~10^{}", value.log10().floor()),
        }
    }

    #[track_caller]
    fn check_cell(seconds: [f64; 4], watts: [f64; 4], expected: &str) {
        let work = work(seconds, watts);
        let decimals = if expected.contains("0.03") { 2 } else { 1 };
        let cell = [work.time, work.energy, work.of_tasks()]
            .map(|costs| as_printed(outcome(&costs), decimals));
        assert_eq!(cell.join(" / "), expected);
    }

    /// Tables 5.1 to 5.3 print break-evens only, so the seconds and watts are made up. Each class of cell has one set
    /// that gives the printed value, with each metric classified apart.
    #[test]
    fn every_class_of_cell_in_table_5_1() {
        // Server: gz-1 and gz-6 on text, lzo-1 on binary (below 1: one read pays several writes).
        check_cell(
            [48.0, 92.8, 37.0, 21.0],
            [187.0, 317.0, 176.0, 262.0],
            "2.8 / 20.2 / 18.3",
        );
        check_cell(
            [73.0, 105.7, 24.0, 21.0],
            [141.0, 272.0, 235.0, 224.0],
            "10.9 / 19.7 / 62.5",
        );
        check_cell(
            [58.0, 62.8, 30.0, 24.0],
            [236.0, 272.0, 167.0, 141.0],
            "0.8 / 2.1 / 4.0",
        );
        // Server: lzo-9 and bz-1 on zeros.
        check_cell(
            [65.0, 104.6, 28.0, 17.0],
            [137.0, 269.0, 190.0, 104.0],
            "3.6 / 5.4 / 19.9",
        );
        check_cell(
            [40.0, 16.0, 22.0, 18.0],
            [150.0, 393.0, 202.0, 193.0],
            "always / 0.3 / always",
        );
        // lzo-1 on text, and anything on random bytes.
        check_cell(
            [40.0, 26.0, 35.0, 11.0],
            [250.0; 4],
            "always / always / always",
        );
        check_cell([40.0, 90.0, 35.0, 36.0], [250.0; 4], "x / x / x");
    }

    #[test]
    fn every_class_of_cell_in_tables_5_2_and_5_3() {
        // Desktop: gz-1 on text (no energy ever, but time and energy-delay), bz-1 on zeros, lzo-9
        // on binary (magnitudes).
        check_cell(
            [44.0, 44.8, 40.0, 36.0],
            [119.0, 207.0, 135.0, 151.0],
            "0.2 / x / 9.1",
        );
        check_cell(
            [66.0, 62.0, 48.0, 36.0],
            [131.0, 259.0, 182.0, 84.0],
            "always / 1.3 / 1.4",
        );
        check_cell(
            [53.0, 676.0, 28.0, 21.0],
            [241.0, 200.0, 145.0, 161.0],
            "89.0 / ~10^2 / ~10^3",
        );
        // Laptop: gz-1, gz-6 and c-10 on text, gz-1 on binary.
        check_cell(
            [49.0, 44.0, 53.0, 6.0],
            [237.0, 268.0, 139.0, 267.0],
            "always / 0.03 / always",
        );
        check_cell(
            [47.0, 42.0, 30.0, 19.0],
            [139.0, 376.0, 224.0, 97.0],
            "always / 1.9 / 2.1",
        );
        check_cell(
            [79.0, 80.0, 41.0, 36.0],
            [129.0, 208.0, 119.0, 192.0],
            "0.2 / x / x",
        );
        check_cell(
            [79.0, 84.6, 20.0, 12.0],
            [103.0, 216.0, 122.0, 205.0],
            "0.7 / x / 46.8",
        );
    }

    /// The class that the tables do not show: the write saves and reading loses.
    #[test]
    fn paying_only_below_a_break_even() {
        check_cell(
            [40.0, 30.0, 30.0, 35.0],
            [200.0; 4],
            "below 2.0 / below 2.0 / below 2.2",
        );
    }

    #[test]
    fn the_whole_work_is_not_the_sum_of_its_tasks() {
        let work = work([40.0, 50.0, 30.0, 25.0], [100.0, 130.0, 100.0, 110.0]);
        // n = 0 is one task, where both agree.
        assert_close(
            "one write",
            work.plain(0.0) - work.compressed(0.0),
            work.of_tasks().line().at_zero,
            1e-12,
        );
        let by_task = outcome(&work.of_tasks()).break_even();
        let by_task = by_task.expect("the tasks one by one pay above some n");
        let WorkOutcome::Above(whole) = work.outcome() else {
            panic!("{:?}", work.outcome());
        };
        assert_close("whole", work.plain(whole), work.compressed(whole), 1e-12);
        assert!((by_task - whole).abs() > 0.5, "{by_task} {whole}");
    }

    #[test]
    fn one_metric_may_save_at_few_reads_and_the_other_at_many() {
        // Energy pays only below, time only above. If the losing sides are light the product pays between, if they are
        // heavy it pays outside.
        let mixed = |energy: [f64; 4], time: [f64; 4]| EnergyDelay {
            energy: quadruple(energy),
            time: quadruple(time),
        };
        let between = mixed([10.0, 5.0, 1.0, 2.2], [1.0, 3.0, 10.0, 5.0]).outcome();
        assert!(matches!(between, WorkOutcome::Between { low, high } if low > 0.0 && high > low));
        let outside = mixed([1.0, 0.5, 10.0, 20.0], [10.0, 19.0, 1.0, 0.4]).outcome();
        assert!(matches!(outside, WorkOutcome::Outside { low, high } if low > 0.0 && high > low));
    }

    #[test]
    fn random_works_agree_with_multiplying_the_totals() {
        let mut random = seeded("random_works");
        let mut seen = [0u32; 6];
        for _ in 0..50_000 {
            let mut four = || [0; 4].map(|_| (random.f64() * 20.0).round() / 2.0 + 0.5);
            let work = EnergyDelay {
                energy: quadruple(four()),
                time: quadruple(four()),
            };
            let result = work.outcome();
            let (class, crossings) = match result {
                WorkOutcome::Always => (0, [None, None]),
                WorkOutcome::Never => (1, [None, None]),
                WorkOutcome::Above(value) => (2, [Some(value), None]),
                WorkOutcome::Below(value) => (3, [Some(value), None]),
                WorkOutcome::Between { low, high } => (4, [Some(low), Some(high)]),
                WorkOutcome::Outside { low, high } => (5, [Some(low), Some(high)]),
            };
            seen[class] += 1;
            for crossing in crossings.into_iter().flatten() {
                let (plain, compressed) = (work.plain(crossing), work.compressed(crossing));
                assert_close("costs at the break-even", plain, compressed, 1e-9);
            }
            for reads in [0.0, 0.5, 1.0, 3.0, 10.0, 1000.0] {
                let (plain, compressed) = (work.plain(reads), work.compressed(reads));
                if (plain - compressed).abs() > 1e-9 * plain {
                    assert_eq!(
                        result.pays_at(reads),
                        plain > compressed,
                        "{work:?} {reads}"
                    );
                }
            }
        }
        println!("tried [always, never, above, below, between, outside] = {seen:?}");
        assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
    }

    #[test]
    fn a_common_factor_of_energy_changes_nothing() {
        let one = work([40.0, 50.0, 30.0, 25.0], [100.0, 130.0, 100.0, 110.0]);
        let other = work([40.0, 50.0, 30.0, 25.0], [200.0, 260.0, 200.0, 220.0]);
        assert_eq!(one.outcome(), other.outcome());
        assert_eq!(outcome(&one.of_tasks()), outcome(&other.of_tasks()));
    }

    #[test]
    fn bands_widen_the_whole_works_verdict() {
        let banded = |values: [f64; 4], factor: f64| {
            let [write, compress, read, decompress] =
                values.map(|value| Estimate::within_factor(value, factor));
            QuadrupleEstimate {
                write,
                compress,
                read,
                decompress,
            }
        };
        let verdict = |factor: f64| {
            let work = EnergyDelayEstimate {
                energy: banded([4000.0, 9000.0, 3000.0, 1500.0], factor),
                time: banded([40.0, 60.0, 30.0, 20.0], factor),
            };
            (
                work.verdict(),
                super::super::break_even::verdict(&work.of_tasks()),
            )
        };
        let (exact, by_task) = verdict(1.0);
        assert_eq!(
            (exact.answer, by_task.answer),
            (Answer::PaysAbove, Answer::PaysAbove)
        );
        assert_eq!(exact.low, exact.high);
        let (close, _) = verdict(1.05);
        assert_eq!(close.answer, Answer::PaysAbove);
        assert!(close.low < exact.low && exact.high < close.high);
        let (wide, by_task) = verdict(1.5);
        assert_eq!(
            (wide.answer, by_task.answer),
            (Answer::Undecided, Answer::Undecided)
        );
    }

    #[test]
    fn linear_prices_follow_the_whole_work() {
        let mut random = seeded("linear_prices");
        let mut block = || (Joules(random.f64()), Seconds(random.f64()));
        let mut totals = RunningTotals {
            energy: Joules(100.0),
            time: Seconds(50.0),
        };
        for _ in 0..1000 {
            let (energy, time) = block();
            let next = totals.after(energy, time);
            let grown = next.energy_delay() - totals.energy_delay();
            let priced = totals.price(energy, time) + energy.0 * time.0;
            // The difference of two totals near 10^6 keeps ten of their sixteen digits.
            assert_close("growth", grown, priced, 1e-7);
            totals = next;
        }
    }

    /// The best choice over the whole work is also best at the prices of its own totals, except for the product that
    /// linear prices leave out.
    #[test]
    fn the_best_choice_is_best_at_its_own_prices() {
        let mut random = seeded("best_choice");
        for _ in 0..50 {
            let blocks = [0; 8]
                .map(|_| [0; 2].map(|_| (Joules(random.f64() + 0.1), Seconds(random.f64() + 0.1))));
            let zero = RunningTotals {
                energy: Joules(0.0),
                time: Seconds(0.0),
            };
            let total = |choice: usize| {
                blocks
                    .iter()
                    .enumerate()
                    .fold(zero, |sum, (block, methods)| {
                        let (energy, time) = methods[choice >> block & 1];
                        sum.after(energy, time)
                    })
            };
            let best = (0..256)
                .min_by(|&a, &b| total(a).energy_delay().total_cmp(&total(b).energy_delay()))
                .expect("there are 256 choices");
            let prices = total(best);
            for (block, methods) in blocks.iter().enumerate() {
                let (chosen, other) = (methods[best >> block & 1], methods[!best >> block & 1]);
                let slack = (other.0.0 - chosen.0.0) * (other.1.0 - chosen.1.0);
                assert!(
                    prices.price(chosen.0, chosen.1)
                        <= prices.price(other.0, other.1) + slack + 1e-9
                );
            }
        }
    }
}
