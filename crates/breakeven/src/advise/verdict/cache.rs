//! A buffer cache that holds compressed buffers in a share of its memory.
//!
//! The cache's own simulation ([`crate::cache::predict`]) predicts the splits of the memory for the given accesses. It
//! does so at the means and at both corners of the methods' ratios on the data. It counts misses, restorations and
//! compressions. The metric prices these, on one thread, because the cache does them while a client waits. The verdict
//! is at the best split; the break-even is the share of memory from which its method pays.

use std::thread;
use std::time::{Duration, Instant};

use super::{
    Case, Choosing, MethodCosts, Metric, Metrics, Quantity, Subject, Weighed, report, rivals, turn,
};
use crate::advise::report::{BestSplitReport, CacheReport, Flip, SplitReport, VerdictReport};
use crate::cache::{Accesses, Arm, BlockKind, Events, Predicted, Prospect, predict};
use crate::codec::Method;
use crate::error::Result;
use crate::model::Outcome;
use crate::units::Estimate;

/// Simulated shares of memory for compressed buffers.
const SHARES: [f64; 7] = [0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95];
/// Methods that are simulated together.
const METHODS_AT_ONCE: usize = 4;
/// The most kinds of buffers that are kept apart.
const KINDS_MAX: usize = 8;
/// Halvings of the part of the keys that is simulated first when time is short. A sixteenth takes little beside the
/// whole, and shows how long the whole takes.
const HALVINGS_MAX: i32 = 4;

/// A buffer cache in front of a medium.
#[derive(Clone, Copy, Debug)]
pub struct Cache<'a> {
    /// Memory of the cache.
    pub memory_bytes: u64,
    /// The data behind it.
    pub data_bytes: u64,
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// How accesses spread.
    pub accesses: Accesses<'a>,
    /// Seconds until a missed buffer is read.
    pub miss: Estimate,
    /// The cost of one thread's work.
    pub metrics: Metrics,
}

/// Buffers that are alike: their share of the data, and the methods' ratios on them, in the order of the methods.
#[derive(Clone, Debug)]
pub struct Kind {
    /// Its share of the data.
    pub share: f64,
    /// Stored over raw bytes of each method.
    pub stored: Vec<Estimate>,
}

/// A split, with the outcome of accesses in each case.
#[derive(Clone)]
struct Split {
    method: usize,
    arm: Arm,
    cases: [Predicted; 3],
}

/// A cache with all splits simulated.
#[derive(Clone)]
pub struct Outlook<'a> {
    cache: Cache<'a>,
    methods: Vec<MethodCosts>,
    /// Without compression the result is the same for any ratios of the methods.
    raw: Predicted,
    splits: Vec<Split>,
    /// Whether only a part of the keys was simulated, for want of time.
    pub is_cut: bool,
}

impl<'a> Cache<'a> {
    /// Simulates all splits with these methods, in the available time; `None` if nothing is missed, or no method
    /// compresses. With less time, fewer keys are simulated, and the bands are wider.
    ///
    /// # Errors
    ///
    /// No access in a trace.
    pub fn outlook(
        &self,
        methods: &[MethodCosts],
        kinds: &[Kind],
        time: Option<Duration>,
    ) -> Result<Option<Outlook<'a>>> {
        let numbered = methods.iter().enumerate();
        let compressing: Vec<(usize, MethodCosts)> = numbered
            .filter(|(_, costs)| costs.method != Method::STORE)
            .map(|(number, costs)| (number, *costs))
            .collect();
        if self.memory_bytes >= self.data_bytes || compressing.is_empty() || kinds.is_empty() {
            return Ok(None);
        }
        let kinds = joined(kinds);
        let simulated = |halvings| self.outlook_of(&compressing, &kinds, halvings).map(Some);
        let Some(time) = time else {
            return simulated(0);
        };
        let begun = Instant::now();
        let first = simulated(HALVINGS_MAX)?;
        let took = begun.elapsed();
        match halvings_within(time.saturating_sub(took), took) {
            HALVINGS_MAX => Ok(first),
            halvings => simulated(halvings),
        }
    }

    /// Simulates all splits of all methods on a part of the keys.
    fn outlook_of(
        &self,
        methods: &[(usize, MethodCosts)],
        kinds: &[Kind],
        halvings: i32,
    ) -> Result<Outlook<'a>> {
        let (mut raw, mut splits) = (None, Vec::new());
        for (at, chunk) in methods.chunks(METHODS_AT_ONCE).enumerate() {
            let [means, worst, best] = self.simulate_all(chunk, kinds, halvings);
            let (means, worst, best) = (means?, worst?, best?);
            raw.get_or_insert_with(|| means[0].clone());
            let cases = means.into_iter().zip(worst).zip(best).skip(1);
            splits.extend(cases.map(|((means, worst), best)| Split {
                method: at * METHODS_AT_ONCE + usize::from(means.arm.method),
                arm: means.arm,
                cases: [means, worst, best],
            }));
        }
        Ok(Outlook {
            cache: *self,
            methods: methods.iter().map(|(_, costs)| *costs).collect(),
            raw: raw.expect("there are methods"),
            splits,
            is_cut: halvings > 0,
        })
    }

    /// Simulates all cases, at the same time if the system gives threads: on a busy machine three of them wait no
    /// longer than one.
    fn simulate_all(
        &self,
        methods: &[(usize, MethodCosts)],
        kinds: &[Kind],
        halvings: i32,
    ) -> [Result<Vec<Predicted>>; 3] {
        thread::scope(|scope| {
            let begin = |case| {
                let work = move || self.simulate(methods, kinds, case, halvings);
                (thread::Builder::new().spawn_scoped(scope, work).ok(), case)
            };
            Case::ALL.map(begin).map(|(begun, case)| match begun {
                Some(begun) => begun.join().expect("a simulation does not panic"),
                None => self.simulate(methods, kinds, case, halvings),
            })
        })
    }

    fn simulate(
        &self,
        methods: &[(usize, MethodCosts)],
        kinds: &[Kind],
        case: Case,
        halvings: i32,
    ) -> Result<Vec<Predicted>> {
        let kind = |kind: &Kind| BlockKind {
            share: kind.share,
            packed_per_raw: methods
                .iter()
                .map(|(number, _)| case.cost(kind.stored[*number]))
                .collect(),
        };
        let mut arms = Vec::new();
        for method in 0..methods.len() as u8 {
            for admits_once in [true, false] {
                arms.extend(SHARES.map(|compressed_share| Arm {
                    compressed_share,
                    method,
                    admits_once,
                }));
            }
        }
        let prospect = Prospect {
            memory_bytes: self.memory_bytes,
            block_bytes: self.buffer_bytes as u32,
            methods: methods.iter().map(|(_, costs)| costs.method).collect(),
            kinds: kinds.iter().map(kind).collect(),
            arms,
            part: 0.5f64.powi(halvings),
        };
        predict(&prospect, self.accesses)
    }
}

/// Returns how often to halve the keys for a simulation of at most `time`, if the first part of them `took` so long.
fn halvings_within(time: Duration, took: Duration) -> i32 {
    let takes = |halvings: &i32| took * (1 << (HALVINGS_MAX - halvings));
    let fits = (0..HALVINGS_MAX).find(|halvings| takes(halvings) <= time);
    fits.unwrap_or(HALVINGS_MAX)
}

/// The largest kinds, and one kind for all the rest.
fn joined(kinds: &[Kind]) -> Vec<Kind> {
    let mut kinds = kinds.to_vec();
    kinds.sort_by(|one, other| other.share.total_cmp(&one.share));
    let rest = kinds.split_off(kinds.len().min(KINDS_MAX - 1));
    let share: f64 = rest.iter().map(|kind| kind.share).sum();
    if share > 0.0 {
        let mean = |method: usize| {
            let of = |end: fn(&Estimate) -> f64| {
                let sum: f64 = rest
                    .iter()
                    .map(|kind| kind.share * end(&kind.stored[method]))
                    .sum();
                sum / share
            };
            Estimate {
                mean: of(|it| it.mean),
                low: of(|it| it.low),
                high: of(|it| it.high),
            }
        };
        let stored = (0..rest[0].stored.len()).map(mean).collect();
        kinds.push(Kind { share, stored });
    }
    kinds
}

impl<'a> Outlook<'a> {
    /// The cost of events with a method, in one quantity.
    fn cost(&self, quantity: Quantity, costs: &MethodCosts, case: Case, events: &Events) -> f64 {
        let weights = self.cache.metrics.weights(quantity);
        let buffer = self.cache.buffer_bytes as f64;
        let miss = case.saving(self.cache.miss) * weights.medium_second;
        events.misses as f64 * miss
            + events.compressed as f64 * buffer * costs.encode.cost(weights, case)
            + events.restored as f64 * buffer * costs.decode.cost(weights, case)
    }

    /// Cost over raw-only's, with the simulation's own error.
    fn cost_ratio(&self, metric: Metric, split: &Split, case: Case) -> Estimate {
        let costs = &self.methods[split.method];
        let found = &split.cases[case as usize];
        let of = |quantity: Quantity| {
            found.cost_ratio(&self.raw, |events| self.cost(quantity, costs, case, events))
        };
        metric
            .factors()
            .map(of)
            .fold(Estimate::exact(1.0), |all, ratio| Estimate {
                mean: all.mean * ratio.mean,
                low: all.low * ratio.low.max(0.0),
                high: all.high * ratio.high,
            })
    }

    /// The band of a split's cost over raw-only's: the means, and the far ends of both corners.
    fn band(&self, metric: Metric, split: &Split) -> Estimate {
        let [means, worst, best] = Case::ALL.map(|case| self.cost_ratio(metric, split, case));
        Estimate {
            mean: means.mean,
            low: best.low.min(means.low),
            high: worst.high.max(means.high),
        }
    }

    /// The split of least cost at the means, and its cost over raw-only's.
    fn best(&self, metric: Metric) -> Option<(&Split, f64)> {
        self.best_of(metric, |_| true)
    }

    /// The same among the splits of some methods.
    fn best_of(&self, metric: Metric, of: impl Fn(Method) -> bool) -> Option<(&Split, f64)> {
        let ratio = |split: &Split| self.cost_ratio(metric, split, Case::Means).mean;
        let splits = self
            .splits
            .iter()
            .filter(|split| of(self.methods[split.method].method));
        let splits = splits.map(|split| (split, ratio(split)));
        splits.min_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Returns the verdict in one metric, its break-even in the share of memory given to compressed
    /// buffers.
    pub fn verdict(&self, metric: Metric, class: &str) -> Option<VerdictReport> {
        let (best, ratio) = self.best(metric)?;
        let candidate = self.methods[best.method].method;
        let (cost_ratio, rivals) = rivals(&self.methods, candidate, |costs| {
            let (split, _) = self.best_of(metric, |method| method == costs.method)?;
            Some(self.band(metric, split))
        })?;
        let weighed = Weighed {
            candidate,
            method: (self.choosing(best.method).decide(|_| ratio))?.1.method,
            outcomes: Case::ALL.map(|case| self.outcome(metric, best, case)),
            cost_ratio,
            rivals,
        };
        let flip = self.miss_flip(metric, ratio < 1.0);
        let subject = Subject {
            place: "cache",
            metric,
            class,
            unit: "compressed_share",
            stages: "serial",
            unit_scale: 1.0,
        };
        Some(report(&subject, weighed, flip.into_iter().collect()))
    }

    /// The share of memory from which a split's method and admission pay, between the simulated shares.
    fn outcome(&self, metric: Metric, split: &Split, case: Case) -> Outcome {
        let alike = self.splits.iter().filter(|other| {
            other.method == split.method && other.arm.admits_once == split.arm.admits_once
        });
        let mut before = (0.0, 1.0);
        for other in alike {
            let ratio = self.cost_ratio(metric, other, case).mean;
            let share = other.arm.compressed_share;
            if ratio < 1.0 {
                let (from, at) = before;
                let part = if at > 1.0 {
                    (at - 1.0) / (at - ratio)
                } else {
                    0.0
                };
                let crossing = from + part * (share - from);
                return match crossing <= 0.001 {
                    true => Outcome::Always,
                    false => Outcome::Above(crossing),
                };
            }
            before = (share, ratio);
        }
        Outcome::Never
    }

    fn choosing(&self, method: usize) -> Choosing<'_> {
        Choosing::among(&self.methods[method..=method])
    }

    /// The miss cost at which compressing starts or stops to pay.
    fn miss_flip(&self, metric: Metric, pays: bool) -> Option<Flip> {
        let step = if pays { 0.5 } else { 2.0 };
        let (value, then) = turn(self.cache.miss.mean, step, 1e3, |miss| {
            let mut other = self.clone();
            other.cache.miss = Estimate::exact(miss);
            let (split, ratio) = other.best(metric)?;
            let method = self.choosing(split.method).decide(|_| ratio)?.1.method;
            Some((method == Method::STORE, method))
        })?;
        Some(Flip {
            quantity: "miss_us".to_string(),
            value: value * 1e6,
            then: then.to_string(),
        })
    }

    /// Returns the simulated splits, in time, and the best split in each metric.
    pub fn report(&self, access: &str) -> CacheReport {
        let us = |events: &Events, costs: &MethodCosts, case| {
            let seconds = self.cost(Quantity::Time, costs, case, events);
            1e6 * seconds / events.accesses.max(1) as f64
        };
        let splits = self.splits.iter().map(|split| {
            let costs = &self.methods[split.method];
            let events = split.cases[0].events();
            SplitReport {
                method: costs.method.to_string(),
                compressed_share: split.arm.compressed_share,
                again: !split.arm.admits_once,
                hit_ratio: 1.0 - per_access(&events, events.misses),
                restored: per_access(&events, events.restored),
                compressed: per_access(&events, events.compressed),
                us_per_access: us(&events, costs, Case::Means),
                cost_ratio: self.band(Metric::Time, split),
            }
        });
        let raw = self.raw.events();
        let best = Metric::ALL.into_iter().filter_map(|metric| {
            let verdict = self.verdict(metric, "all")?;
            let (split, _) = self.best(metric)?;
            let events = split.cases[0].events();
            Some(BestSplitReport {
                metric: metric.to_string(),
                answer: verdict.answer,
                method: self.methods[split.method].method.to_string(),
                compressed_share: split.arm.compressed_share,
                again: !split.arm.admits_once,
                hit_ratio: 1.0 - per_access(&events, events.misses),
                restored: per_access(&events, events.restored),
                cost_ratio: verdict.cost_ratio,
            })
        });
        CacheReport {
            memory_bytes: self.cache.memory_bytes,
            data_bytes: self.cache.data_bytes,
            buffer_bytes: self.cache.buffer_bytes,
            access: access.to_string(),
            accesses: raw.accesses,
            miss_us: self.cache.miss.map(|seconds| 1e6 * seconds),
            raw_hit_ratio: 1.0 - per_access(&raw, raw.misses),
            raw_us_per_access: us(&raw, &self.methods[0], Case::Means),
            best: best.collect(),
            splits: splits.collect(),
        }
    }
}

fn per_access(events: &Events, count: u64) -> f64 {
    count as f64 / events.accesses.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_halved_until_the_time_suffices() {
        let check = |seconds: f64, took: f64, expected: i32| {
            let of = Duration::from_secs_f64;
            assert_eq!(halvings_within(of(seconds), of(took)), expected);
        };
        check(20.0, 1.0, 0);
        check(15.0, 1.0, 1);
        check(7.9, 1.0, 2);
        check(2.0, 1.0, 3);
        check(1.9, 1.0, HALVINGS_MAX);
        check(0.0, 1.0, HALVINGS_MAX);
        check(0.0, 0.0, 0);
    }
}
