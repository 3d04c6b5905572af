//! A buffer cache of which a share of the memory holds compressed buffers.
//!
//! Harper's model with the honest restoration: whoever hits a compressed buffer waits for one
//! thread, victims are compressed in bulk. The break-even is the share of memory given to the
//! compressed pool; the verdict is at the best share. At worst the cache places hits blindly, as
//! the thesis has it; at the means and at best it keeps its hottest buffers raw.

use super::{
    Case, MethodCosts, Metric, Metrics, Quantity, Subject, Weighed, Weights, Work, cheapest,
    or_store, report, turn,
};
use crate::advise::report::{Flip, VerdictReport};
use crate::model::{Access, BufferCache, BufferCodec, Outcome, Overheads, Placement, Rates};
use crate::units::{Estimate, Seconds};

/// A buffer cache in front of a medium.
#[derive(Clone, Copy, Debug)]
pub struct Cache {
    pub memory_bytes: f64,
    pub data_bytes: f64,
    pub buffer_bytes: f64,
    pub access: Access,
    /// Seconds until a missed buffer is read.
    pub miss: Estimate,
    /// What compressing victims in bulk costs, on all threads.
    pub metrics: Metrics,
    /// What restoring a buffer costs while somebody waits for one thread.
    pub restore_metrics: Metrics,
}

impl Cache {
    /// The model's cache with every time weighed by the quantity: its "seconds" are then joules or
    /// euros, which the model only adds up and compares.
    fn weighed(&self, quantity: Quantity, costs: &MethodCosts, case: Case) -> BufferCache {
        let bulk = self.metrics.weights(quantity);
        let alone = self.restore_metrics.weights(quantity);
        let buffer =
            |work: Work, weights: &Weights| Seconds(work.cost(weights, case) * self.buffer_bytes);
        BufferCache {
            memory_bytes: self.memory_bytes,
            data_set_bytes: self.data_bytes,
            buffer_bytes: self.buffer_bytes,
            access: self.access,
            disk_read: Seconds(case.saving(self.miss) * bulk.medium_second),
            codec: BufferCodec {
                ratio: 1.0 / case.cost(costs.stored).max(1e-9),
                compress_bulk: buffer(costs.encode, bulk),
                decompress_bulk: buffer(costs.decode, bulk),
                compress_latency: buffer(costs.encode, alone),
                decompress_latency: buffer(costs.decode, alone),
            },
            rates: Rates::default(),
            overheads: Overheads::default(),
            placement: if case == Case::Worst {
                Placement::Blind
            } else {
                Placement::HottestRaw
            },
        }
    }

    /// Cost over the raw cache's at the best share of compressed memory.
    fn cost_ratio(&self, metric: Metric, costs: &MethodCosts, case: Case) -> f64 {
        let at_best = |quantity: Quantity| {
            let cache = self.weighed(quantity, costs, case);
            let raw = cache.raw_cost();
            // Where no share pays, the least bad one stands for the method.
            cache
                .best_share()
                .map_or_else(|| cache.cost(0.0) / raw, |share| cache.cost(share) / raw)
        };
        metric.factors().map(at_best).product()
    }

    /// The share of memory from which compressing pays.
    fn outcome(&self, metric: Metric, costs: &MethodCosts, case: Case) -> Outcome {
        // Energy-delay has no share of its own: that of energy, the stricter one, stands for it.
        match self.weighed(metric.leading(), costs, case).break_even() {
            None => Outcome::Never,
            Some(shares) if shares.from <= 0.001 => Outcome::Always,
            Some(shares) => Outcome::Above(shares.from),
        }
    }

    /// Returns the verdict in one metric for one class, its break-even in the share of memory given
    /// to compressed buffers. Where the raw cache misses nothing there is nothing to decide.
    pub fn verdict(
        &self,
        metric: Metric,
        class: &str,
        methods: &[MethodCosts],
    ) -> Option<VerdictReport> {
        if self.memory_bytes >= self.data_bytes {
            return None;
        }
        let ratio = |costs: &MethodCosts| self.cost_ratio(metric, costs, Case::Means);
        let (costs, mean_ratio) = cheapest(methods, ratio)?;
        let asked = Case::ALL.map(|case| self.cost_ratio(metric, costs, case));
        let weighed = Weighed {
            candidate: costs.method,
            outcomes: Case::ALL.map(|case| self.outcome(metric, costs, case)),
            asked,
            cost_ratio: Estimate {
                mean: mean_ratio,
                low: asked[2].min(mean_ratio),
                high: asked[1].max(mean_ratio),
            },
        };
        let flip = self.miss_flip(metric, methods, mean_ratio < 1.0);
        let subject = Subject {
            place: "cache",
            metric,
            class,
            unit: "compressed_share",
            stages: "serial",
            unit_scale: 1.0,
        };
        Some(report(&subject, &weighed, flip.into_iter().collect()))
    }

    /// The miss cost at which compressing starts or stops to pay.
    fn miss_flip(&self, metric: Metric, methods: &[MethodCosts], pays: bool) -> Option<Flip> {
        let step = if pays { 0.5 } else { 2.0 };
        let (value, then) = turn(self.miss.mean, step, 1e3, |miss| {
            let cache = Cache {
                miss: Estimate::exact(miss),
                ..*self
            };
            let ratio = |costs: &MethodCosts| cache.cost_ratio(metric, costs, Case::Means);
            let method = cheapest(methods, ratio).map(or_store)?;
            Some((method == crate::codec::Method::STORE, method))
        })?;
        Some(Flip {
            quantity: "miss_us".to_string(),
            value: value * 1e6,
            then: then.to_string(),
        })
    }
}
