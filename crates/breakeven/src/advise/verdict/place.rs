//! A place that is written once and read several times: a file at rest, database pages.
//!
//! A raw byte has four tasks in each metric (Kothiyal's plain-write, compress-write, plain-read, decompress-read);
//! stages add. The break-even is in reads per write.

use super::{
    Case, Choosing, MethodCosts, Metric, Metrics, Quantity, Subject, Weighed, report, rivals, turn,
};
use crate::advise::report::{Flip, VerdictReport};
use crate::codec::Method;
use crate::model::{EnergyDelay, Outcome, Quadruple, WorkOutcome};
use crate::units::Estimate;

/// The times of the medium of a place for a raw byte.
#[derive(Clone, Copy, Debug)]
pub struct PlaceTimes {
    /// Seconds of every write that do not depend on the bytes, per raw byte of a block. Compressing looks better, the
    /// smaller this part of the write's time is.
    pub write_fixed: Estimate,
    /// Seconds for each byte written.
    pub write_byte: Estimate,
    /// Seconds of every read that do not depend on the bytes, per raw byte of a block.
    pub read_fixed: Estimate,
    /// Seconds for each byte read.
    pub read_byte: Estimate,
}

/// One place, with all inputs to weigh any method there.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Its name in reports.
    pub name: &'a str,
    /// The times of an operation there.
    pub times: PlaceTimes,
    /// The costs of seconds, joules and bytes there.
    pub metrics: Metrics,
    /// Reads for each write.
    pub reads_per_write: Estimate,
}

impl Place<'_> {
    /// The four tasks of one raw byte in one quantity.
    fn quadruple(&self, quantity: Quantity, costs: &MethodCosts, case: Case) -> Quadruple {
        let weights = self.metrics.weights(quantity);
        let stored = case.cost(costs.stored);
        let write = |bytes: f64| {
            (case.cost(self.times.write_fixed) + bytes * case.saving(self.times.write_byte))
                * weights.medium_second
                + bytes * weights.byte_written
        };
        let read = |bytes: f64| {
            (case.cost(self.times.read_fixed) + bytes * case.saving(self.times.read_byte))
                * weights.medium_second
                + bytes * weights.byte_read
        };
        Quadruple {
            write: write(1.0),
            compress: write(stored) + costs.encode.cost(weights, case),
            read: read(1.0),
            decompress: read(stored) + costs.decode.cost(weights, case),
        }
    }

    /// Costs of storing raw and of a method over one write and `reads` reads.
    pub(super) fn totals(
        &self,
        metric: Metric,
        costs: &MethodCosts,
        case: Case,
        reads: f64,
    ) -> (f64, f64) {
        let mut totals = (1.0, 1.0);
        for quantity in metric.factors() {
            let tasks = self.quadruple(quantity, costs, case);
            totals.0 *= tasks.write + reads * tasks.read;
            totals.1 *= tasks.compress + reads * tasks.decompress;
        }
        totals
    }

    fn outcome(&self, metric: Metric, costs: &MethodCosts, case: Case) -> WorkOutcome {
        let tasks = |quantity: Quantity| self.quadruple(quantity, costs, case);
        match metric {
            Metric::EnergyDelay => EnergyDelay {
                energy: tasks(Quantity::Energy),
                time: tasks(Quantity::Time),
            }
            .outcome(),
            metric => tasks(metric.leading()).line().outcome().into(),
        }
    }

    /// Cost over raw's, over one write and `reads` reads.
    fn cost_ratio(&self, metric: Metric, costs: &MethodCosts, case: Case, reads: f64) -> f64 {
        let (raw, compressed) = self.totals(metric, costs, case, reads);
        compressed / raw
    }

    /// The method to use at `reads` reads per write: `store` unless compressing costs less.
    pub(super) fn chosen(
        &self,
        metric: Metric,
        choosing: &Choosing<'_>,
        reads: f64,
    ) -> Option<Method> {
        let ratio = |costs: &MethodCosts| self.cost_ratio(metric, costs, Case::Means, reads);
        choosing.decide(ratio).map(|(_, decision)| decision.method)
    }

    /// Returns the verdict in one metric for one class, its break-even in reads per write.
    pub fn verdict(
        &self,
        metric: Metric,
        class: &str,
        methods: &[MethodCosts],
    ) -> Option<VerdictReport> {
        let Estimate { mean, low, high } = self.reads_per_write;
        let ratio = |costs: &MethodCosts| self.cost_ratio(metric, costs, Case::Means, mean);
        let choosing = Choosing::among(methods);
        let (costs, decision) = choosing.decide(ratio)?;
        // The requested number as well: energy-delay may have its minimum or its maximum between the ends.
        let band = |costs: &MethodCosts| {
            let band = [low, mean, high].map(|reads| {
                [Case::Worst, Case::Best].map(|case| self.cost_ratio(metric, costs, case, reads))
            });
            let band = band.as_flattened().iter().copied();
            Some(Estimate {
                mean: ratio(costs),
                low: band.clone().fold(f64::INFINITY, f64::min),
                high: band.fold(f64::NEG_INFINITY, f64::max),
            })
        };
        let (cost_ratio, rivals) = rivals(methods, costs.method, band)?;
        let weighed = Weighed {
            candidate: costs.method,
            method: decision.method,
            outcomes: Case::ALL.map(|case| single(self.outcome(metric, costs, case), mean)),
            cost_ratio,
            rivals,
        };
        let flips = [
            self.medium_flip(metric, &choosing),
            self.reads_flip(metric, &choosing),
        ];
        let subject = Subject {
            place: self.name,
            metric,
            class,
            unit: "reads_per_write",
            stages: "serial",
            unit_scale: 1.0,
        };
        Some(report(
            &subject,
            weighed,
            flips.into_iter().flatten().collect(),
        ))
    }

    /// The factor on the medium's speed beyond which the choice turns.
    fn medium_flip(&self, metric: Metric, choosing: &Choosing<'_>) -> Option<Flip> {
        let at_speed = |speed: f64| {
            let mut place = *self;
            place.times.write_byte = self.times.write_byte.map(|seconds| seconds / speed);
            place.times.read_byte = self.times.read_byte.map(|seconds| seconds / speed);
            place.times.write_fixed = self.times.write_fixed.map(|seconds| seconds / speed);
            place.times.read_fixed = self.times.read_fixed.map(|seconds| seconds / speed);
            place.chosen(metric, choosing, self.reads_per_write.mean)
        };
        // A slower medium favours compressing, a faster one storing raw.
        let slower = at_speed(1.0)? == Method::STORE;
        let (value, then) = turn(1.0, if slower { 1.0 / 1.25 } else { 1.25 }, 1e3, |speed| {
            let method = at_speed(speed)?;
            // Between compressing methods the choice always moves; only the change from or to storing raw counts here.
            Some((method == Method::STORE, method))
        })?;
        Some(Flip {
            quantity: "medium_speed_factor".to_string(),
            value,
            then: then.to_string(),
        })
    }

    /// The reads per write beyond which another method is best.
    fn reads_flip(&self, metric: Metric, choosing: &Choosing<'_>) -> Option<Flip> {
        let start = self.reads_per_write.mean.max(0.01);
        let (value, then) = turn(start, 1.25, 100.0, |reads| {
            let method = self.chosen(metric, choosing, reads)?;
            Some((method, method))
        })?;
        Some(Flip {
            quantity: "reads_per_write".to_string(),
            value,
            then: then.to_string(),
        })
    }
}

/// Reduces an outcome with two break-evens to the one next to the requested reads.
fn single(outcome: WorkOutcome, reads: f64) -> Outcome {
    match outcome {
        WorkOutcome::Always => Outcome::Always,
        WorkOutcome::Never => Outcome::Never,
        WorkOutcome::Above(value) => Outcome::Above(value),
        WorkOutcome::Below(value) => Outcome::Below(value),
        WorkOutcome::Between { low, .. } if reads <= low => Outcome::Above(low),
        WorkOutcome::Between { high, .. } => Outcome::Below(high),
        WorkOutcome::Outside { high, .. } if reads >= high => Outcome::Above(high),
        WorkOutcome::Outside { low, .. } => Outcome::Below(low),
    }
}
