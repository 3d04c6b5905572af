//! The page's arithmetic: the verdict on a file at rest, at any position of the sliders.
//!
//! The arithmetic of the library's verdicts, from the report alone. `page.js` has it again, and tests hold the three
//! together. Everything is per GB (10^9 raw bytes): seconds, joules and euros. Compressing is evaluated in three cases:
//! at the means, at the worst values and at the best.

use breakeven::advise::report::{ClassReport, Evidence, MethodReport, Report, WorkReport};
use breakeven::model::{EnergyDelay, Quadruple, crossing};
use breakeven::units::Estimate;

pub use breakeven::advise::verdict::{Metric, WORTH_WHILE};

/// The choice of values for the uncertain inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    Means,
    /// Dense data, slow cores, a fast medium.
    Worst,
    Best,
}

impl Case {
    fn cost(self, estimate: Estimate) -> f64 {
        match self {
            Case::Means => estimate.mean,
            Case::Worst => estimate.high,
            Case::Best => estimate.low,
        }
    }
}

/// Where the sliders are.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    pub reads: Estimate,
    /// The medium's speed over the one measured.
    pub speed: f64,
    pub days: f64,
    pub eur_per_kwh: f64,
    pub storage_eur_per_tb_year: f64,
    pub core_eur_per_hour: f64,
}

impl Position {
    /// Returns the position that the report was made for.
    pub fn of(report: &Report) -> Position {
        let (terms, prices) = (&report.terms, &report.terms.prices);
        Position {
            reads: terms.reads_per_write,
            speed: 1.0,
            days: terms.days_kept,
            eur_per_kwh: prices.eur_per_kwh,
            storage_eur_per_tb_year: prices.storage_eur_per_tb_year,
            core_eur_per_hour: prices.core_eur_per_hour,
        }
    }
}

/// The weights that a metric gives to the parts of a task.
#[derive(Clone, Copy, Debug)]
struct Weights {
    medium_second: f64,
    core_second: f64,
    device_second: f64,
    joule: f64,
    gigabyte_written: f64,
    gigabyte_read: f64,
}

/// A report at a position of the sliders.
#[derive(Clone, Copy, Debug)]
pub struct Model<'r> {
    pub report: &'r Report,
    pub at: Position,
}

/// The best method at a position, and its comparison with storing raw.
#[derive(Clone, Copy, Debug)]
pub struct Standing<'r> {
    /// The method that compresses at the least cost.
    pub candidate: &'r MethodReport,
    /// Its cost over raw's at the report's reads, with the band over all cases.
    pub cost_ratio: Estimate,
    /// The reads per write nearest below and above the report's at which the winner changes.
    pub from: Option<f64>,
    pub to: Option<f64>,
}

impl<'r> Model<'r> {
    /// Returns the methods of a class at the block size of files that are known well enough to win.
    pub fn methods(&self, class: &'r ClassReport) -> Vec<&'r MethodReport> {
        let block_bytes = self.report.sample.block_bytes;
        let methods = class.methods.iter();
        methods
            .filter(|method| method.block_bytes == block_bytes && method.method != "store")
            .filter(|method| method.evidence == Evidence::Measured)
            .collect()
    }

    /// Returns the price of a joule, cooling included.
    pub fn eur_per_joule(&self) -> f64 {
        self.at.eur_per_kwh / 3.6e6 * (1.0 + self.report.terms.prices.cooling_share)
    }

    /// Returns the price of one core working for a second.
    pub fn eur_per_core_second(&self) -> f64 {
        self.at.core_eur_per_hour / 3600.0 + self.report.terms.core_watts * self.eur_per_joule()
    }

    /// Returns the price of holding a GB for a day.
    pub fn eur_per_gb_day(&self) -> f64 {
        let watts = self.report.terms.prices.storage_watts_per_tb / 1e3;
        self.at.storage_eur_per_tb_year / 365e3 + watts * 86_400.0 * self.at.eur_per_kwh / 3.6e6
    }

    fn weights(&self, metric: Metric) -> Weights {
        let terms = &self.report.terms;
        let threads = f64::from(terms.threads.max(1));
        let days = self.at.days.max(terms.prices.billable_days_min);
        match metric {
            Metric::Energy => Weights {
                medium_second: terms.idle_watts + terms.medium_watts,
                core_second: terms.core_watts + terms.idle_watts / threads,
                device_second: terms.idle_watts,
                joule: 1.0,
                gigabyte_written: 0.0,
                gigabyte_read: 0.0,
            },
            Metric::Money => Weights {
                medium_second: terms.medium_watts * self.eur_per_joule(),
                core_second: self.eur_per_core_second(),
                device_second: 0.0,
                joule: self.eur_per_joule(),
                gigabyte_written: terms.prices.write_eur_per_gb + days * self.eur_per_gb_day(),
                gigabyte_read: terms.prices.read_eur_per_gb,
            },
            Metric::Time | Metric::EnergyDelay => Weights {
                medium_second: 1.0,
                core_second: 1.0 / threads,
                device_second: 1.0,
                joule: 0.0,
                gigabyte_written: 0.0,
                gigabyte_read: 0.0,
            },
        }
    }

    /// The four tasks of a GB in a metric that adds up.
    fn tasks(&self, metric: Metric, method: &MethodReport, case: Case) -> Quadruple {
        let weights = self.weights(metric);
        let medium = &self.report.medium;
        // Compressing looks worst on a fast medium.
        let rate = |rate: Estimate| 1e3 / (case.cost(rate) * self.at.speed);
        let (write, read) = (rate(medium.write_mb_s), rate(medium.read_mb_s));
        let write = |part: f64| part * (write * weights.medium_second + weights.gigabyte_written);
        let read = |part: f64| part * (read * weights.medium_second + weights.gigabyte_read);
        let work = |work: &WorkReport| {
            case.cost(work.core_s_per_gb) * weights.core_second
                + work.device_s_per_gb * weights.device_second
                + work.device_j_per_gb * weights.joule
        };
        let stored = case.cost(method.ratio.map(|ratio| 1.0 / ratio));
        Quadruple {
            write: write(1.0),
            compress: write(stored) + work(&method.compress_work),
            read: read(1.0),
            decompress: read(stored) + work(&method.decompress_work),
        }
    }

    /// Returns the costs of storing a GB raw and by a method, over one write and `reads` reads.
    pub fn costs(
        &self,
        metric: Metric,
        method: &MethodReport,
        case: Case,
        reads: f64,
    ) -> (f64, f64) {
        if metric == Metric::EnergyDelay {
            let work = EnergyDelay {
                energy: self.tasks(Metric::Energy, method, case),
                time: self.tasks(Metric::Time, method, case),
            };
            return (work.plain(reads), work.compressed(reads));
        }
        let tasks = self.tasks(metric, method, case);
        (
            tasks.write + reads * tasks.read,
            tasks.compress + reads * tasks.decompress,
        )
    }

    /// Returns the saving of a method on a GB over one write and `reads` reads; negative is a loss.
    pub fn saving(&self, metric: Metric, method: &MethodReport, reads: f64) -> f64 {
        let (raw, compressed) = self.costs(metric, method, Case::Means, reads);
        raw - compressed
    }

    fn cost_ratio(&self, metric: Metric, method: &MethodReport, case: Case, reads: f64) -> f64 {
        let (raw, compressed) = self.costs(metric, method, case, reads);
        compressed / raw
    }

    /// Returns the index of the method of least cost among `methods`, `None` for storing raw.
    pub fn winner(&self, metric: Metric, methods: &[&MethodReport], reads: f64) -> Option<usize> {
        let ratio = |method: &MethodReport| self.cost_ratio(metric, method, Case::Means, reads);
        let (index, least) = methods
            .iter()
            .map(|method| ratio(method))
            .enumerate()
            .min_by(|(_, a), (_, b)| a.total_cmp(b))?;
        (least < 1.0).then_some(index)
    }

    /// Returns how the best method of a class stands; `None` where nothing was measured.
    pub fn standing(&self, metric: Metric, class: &'r ClassReport) -> Option<Standing<'r>> {
        let Estimate { mean, low, high } = self.at.reads;
        let ratio =
            |method: &MethodReport, case, reads| self.cost_ratio(metric, method, case, reads);
        let methods = self.methods(class);
        let candidate = methods
            .into_iter()
            .min_by(|a, b| ratio(a, Case::Means, mean).total_cmp(&ratio(b, Case::Means, mean)))?;
        let band = [low, mean, high]
            .map(|reads| [Case::Worst, Case::Best].map(|case| ratio(candidate, case, reads)));
        let band = band.as_flattened().iter().copied();
        let (from, to) = self.bounds(metric, candidate, mean);
        Some(Standing {
            candidate,
            cost_ratio: Estimate {
                mean: ratio(candidate, Case::Means, mean),
                low: band.clone().fold(f64::INFINITY, f64::min),
                high: band.fold(f64::NEG_INFINITY, f64::max),
            },
            from,
            to,
        })
    }

    /// Returns the reads per write at which a method starts or stops to pay: the nearest ones below and above `reads`,
    /// up to a million.
    fn bounds(
        &self,
        metric: Metric,
        method: &MethodReport,
        reads: f64,
    ) -> (Option<f64>, Option<f64>) {
        let crossings = self.crossings(metric, method);
        let below = crossings.iter().rev().find(|at| **at < reads);
        let above = crossings.iter().find(|at| **at >= reads);
        (below.copied(), above.copied())
    }

    /// Returns the reads per write at which a method's saving changes its sign, in order.
    pub fn crossings(&self, metric: Metric, method: &MethodReport) -> Vec<f64> {
        let saving = |reads: f64| self.saving(metric, method, reads);
        let steps: Vec<f64> = std::iter::once(0.0)
            .chain((-60..=120).map(|step| 10f64.powf(f64::from(step) / 20.0)))
            .collect();
        steps
            .windows(2)
            .filter_map(|pair| crossing(pair[0]..=pair[1], saving))
            .collect()
    }
}

impl Standing<'_> {
    /// Returns whether the method pays at the means, by at least the least worthwhile gain.
    pub fn pays(&self) -> bool {
        self.cost_ratio.mean < WORTH_WHILE
    }

    /// Returns whether the answer is the same over the whole band of the cost.
    pub fn is_decided(&self) -> bool {
        let Estimate { low, high, .. } = self.cost_ratio;
        (low < WORTH_WHILE) == (high < WORTH_WHILE)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    /// The page's arithmetic against the library's: every class, every metric.
    #[test]
    fn it_agrees_with_the_verdicts_of_the_report() {
        let report = testing::report();
        let model = Model {
            report: &report,
            at: Position::of(&report),
        };
        let mut tried = 0;
        for verdict in report.verdicts.iter().filter(|of| of.place == "file") {
            let class = report.classes.iter().find(|of| of.name == verdict.class);
            let metric = Metric::ALL
                .into_iter()
                .find(|of| of.name() == verdict.metric);
            let (class, metric) = (class.expect("a class"), metric.expect("a metric"));
            let standing = model.standing(metric, class).expect("methods");
            let what = format!("{} {}", verdict.metric, verdict.class);
            assert_eq!(standing.candidate.method, verdict.candidate, "{what}");
            for (found, expected) in [
                (standing.cost_ratio.mean, verdict.cost_ratio.mean),
                (standing.cost_ratio.low, verdict.cost_ratio.low),
                (standing.cost_ratio.high, verdict.cost_ratio.high),
            ] {
                assert!(
                    (found / expected - 1.0).abs() < 1e-9,
                    "{what}: {found}, expected {expected}"
                );
            }
            assert_eq!(
                standing.is_decided(),
                verdict.answer != "undecided",
                "{what}"
            );
            if let Some(at) = verdict.break_even {
                let nearest = [standing.from, standing.to];
                let agrees = |found: &Option<f64>| {
                    found.is_some_and(|found| (found / at - 1.0).abs() < 1e-6)
                };
                assert!(
                    nearest.iter().any(agrees),
                    "{what}: {nearest:?}, expected {at}"
                );
            }
            tried += 1;
        }
        assert!(tried >= 12, "{tried} verdicts");
    }

    #[test]
    fn the_sliders_move_the_verdict() {
        let report = testing::report();
        let all = report.classes.last().expect("all");
        let at = |change: fn(&mut Position)| {
            let mut position = Position::of(&report);
            change(&mut position);
            let model = Model {
                report: &report,
                at: position,
            };
            let ratio = |metric| {
                model
                    .standing(metric, all)
                    .expect("methods")
                    .cost_ratio
                    .mean
            };
            Metric::ALL.map(ratio)
        };
        let [time, energy, _, money] = at(|_| ());
        assert!(at(|position| position.speed = 0.1)[0] < time);
        assert!(at(|position| position.speed = 100.0)[0] > 1.0);
        assert!(at(|position| position.core_eur_per_hour *= 50.0)[3] > money);
        assert!(at(|position| position.days *= 10.0)[3] < money);
        assert!(at(|position| position.storage_eur_per_tb_year *= 10.0)[3] < money);
        assert_eq!(at(|position| position.eur_per_kwh *= 10.0)[1], energy);
    }
}
