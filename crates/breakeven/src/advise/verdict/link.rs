//! A link that data travels over: stages overlap, so the slowest decides, with the time of a block in each of the
//! others.
//!
//! The break-even is the link's speed (Hirsch 2017, section 3.2.2). The block's time and the processors' other work are
//! this project's (`docs/model.md` section 5).

use super::{
    Case, Choosing, MethodCosts, Metric, Metrics, Quantity, Subject, Weighed, Work, report, rivals,
    turn,
};
use crate::advise::report::{Flip, VerdictReport};
use crate::bisection::bisect;
use crate::model::{CodecSpeeds, OneBlock, Outcome};
use crate::units::{BytesPerSecond, Estimate};

/// Core seconds of reading, copying and checking a raw byte, in the writer of rows of frames. `pack` took 0.48 to 0.64
/// ns beside its codecs on two processors.
const HANDLING: Estimate = Estimate {
    mean: 0.55e-9,
    low: 0.3e-9,
    high: 0.9e-9,
};

/// A link: stages overlap, so the slowest decides.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// Its rate.
    pub bytes_per_second: f64,
    /// Compressing and decompressing threads at either end.
    pub threads: f64,
    /// Processors at either end, which also read, copy and check.
    pub processors: f64,
    /// A block's share of the travelling bytes.
    pub block_share: f64,
    /// In time only the link's second counts: cores and devices work during it.
    pub metrics: Metrics,
}

impl Link {
    fn speeds(&self, costs: &MethodCosts, case: Case) -> CodecSpeeds {
        let rate = |work: Work| {
            let handled = Work {
                core_seconds: Estimate {
                    mean: work.core_seconds.mean + HANDLING.mean,
                    low: work.core_seconds.low + HANDLING.low,
                    high: work.core_seconds.high + HANDLING.high,
                },
                ..work
            };
            let codec = work.elapsed_seconds(self.threads, case);
            let all = handled.elapsed_seconds(self.processors, case);
            BytesPerSecond(1.0 / codec.max(all))
        };
        CodecSpeeds {
            compress: rate(costs.encode),
            decompress: rate(costs.decode),
            ratio: 1.0 / case.cost(costs.stored).max(1e-9),
        }
    }

    fn one_block(&self, costs: &MethodCosts, case: Case) -> OneBlock {
        OneBlock {
            share: self.block_share,
            compress_seconds_per_byte: costs.encode.elapsed_seconds(1.0, case),
            decompress_seconds_per_byte: costs.decode.elapsed_seconds(1.0, case),
        }
    }

    /// Cost of moving one raw byte raw, and compressed, over a link of `speed` bytes per second.
    pub(super) fn totals(
        &self,
        metric: Metric,
        costs: &MethodCosts,
        case: Case,
        speed: f64,
    ) -> (f64, f64) {
        let link = BytesPerSecond(speed);
        let seconds = self
            .speeds(costs, case)
            .transfer_time(1.0, link, self.one_block(costs, case))
            .0;
        let stored = case.cost(costs.stored);
        // Time counts for the slowest stage; work beside it is paid for as well.
        let of = |quantity: Quantity| {
            let weights = self.metrics.weights(quantity);
            let moved = |seconds: f64, bytes: f64| {
                seconds * weights.medium_second + bytes * weights.byte_written
            };
            let work = costs.encode.cost(weights, case) + costs.decode.cost(weights, case);
            (moved(1.0 / speed, 1.0), moved(seconds, stored) + work)
        };
        let totals = metric.factors().map(of);
        totals.fold((1.0, 1.0), |product, of| {
            (product.0 * of.0, product.1 * of.1)
        })
    }

    fn cost_ratio(&self, metric: Metric, costs: &MethodCosts, case: Case, speed: f64) -> f64 {
        let (raw, compressed) = self.totals(metric, costs, case, speed);
        compressed / raw
    }

    /// Returns the verdict in one metric for one class, its break-even in MB/s of the link.
    pub fn verdict(
        &self,
        metric: Metric,
        class: &str,
        methods: &[MethodCosts],
    ) -> Option<VerdictReport> {
        let speed = self.bytes_per_second;
        let choosing = Choosing::among(methods);
        let at = |speed: f64| {
            choosing.decide(|costs| self.cost_ratio(metric, costs, Case::Means, speed))
        };
        let (costs, decision) = at(speed)?;
        let band = |costs: &MethodCosts| {
            let corner = |case| self.cost_ratio(metric, costs, case, speed);
            Some(Estimate {
                mean: corner(Case::Means),
                low: corner(Case::Best),
                high: corner(Case::Worst),
            })
        };
        let (cost_ratio, rivals) = rivals(methods, costs.method, band)?;
        let weighed = Weighed {
            candidate: costs.method,
            method: decision.method,
            outcomes: Case::ALL.map(|case| self.break_even(metric, costs, case)),
            cost_ratio,
            rivals,
        };
        let chosen = |speed: f64| at(speed).map(|(_, it)| (it.method, it.method));
        let flips = [1.25, 1.0 / 1.25].into_iter().filter_map(|step| {
            let (value, then) = turn(speed, step, 1e3, chosen)?;
            let quantity = "link_mb_s".to_string();
            Some(Flip {
                quantity,
                value: value / 1e6,
                then: then.to_string(),
            })
        });
        let subject = Subject {
            place: "link",
            metric,
            class,
            unit: "link_mb_s",
            stages: "overlapped",
            unit_scale: 1e6,
        };
        Some(report(&subject, weighed, flips.collect()))
    }

    /// The link speed below which a method pays. In time this has a closed form. In the other metrics the saving falls
    /// as the link gets faster, so bisection finds its zero.
    fn break_even(&self, metric: Metric, costs: &MethodCosts, case: Case) -> Outcome {
        if metric == Metric::Time {
            let one = self.one_block(costs, case);
            return self.speeds(costs, case).pays_at_link(one);
        }
        let saves = |speed: f64| {
            let (raw, compressed) = self.totals(metric, costs, case, speed);
            compressed < raw
        };
        let (slow, fast) = (1e3_f64, 1e13_f64);
        match (saves(slow), saves(fast)) {
            (false, _) => return Outcome::Never,
            (true, true) => return Outcome::Always,
            (true, false) => {}
        }
        // To less than one part in a million.
        let turn = bisect(slow.ln()..fast.ln(), 25, |ln| saves(ln.exp()));
        Outcome::Below(f64::midpoint(turn.start, turn.end).exp())
    }
}
