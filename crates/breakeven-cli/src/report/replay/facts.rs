//! The results of replays of one trace, as plain data: the table, the JSON and the page are made of it.

use breakeven::meter::Machine;
use breakeven::statistics::student_t_975;
use breakeven::units::Estimate;
use serde::{Deserialize, Serialize};

/// The name and version of the JSON form. Fields are only added under the same one.
pub const SCHEMA: &str = "breakeven.replay/1";

/// The name of the policy that all others are compared with.
pub const RAW_ONLY: &str = "raw-only";
/// The name of the policy that finds its split.
pub const ADAPTIVE: &str = "adaptive";

/// With fewer parts of a trace there is no interval.
const PARTS_MIN: usize = 8;

/// Replays of one trace under several policies, at equal memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayReport {
    pub schema: String,
    /// The advice and its saving, in one sentence.
    pub headline: String,
    pub machine: Machine,
    /// The source of the accesses: the trace's name, or the rule that made them up.
    pub accesses_of: String,
    pub accesses: u64,
    /// Different pages that the trace asks for.
    pub keys: u64,
    /// Pages of the data that stand for them.
    pub pages: u64,
    pub page_bytes: u64,
    pub memory_bytes: u64,
    /// Mean time of a miss.
    pub miss_us: f64,
    /// Whether misses were read from a device; otherwise each was charged the same time.
    pub is_read: bool,
    /// The preference: time, energy or money.
    #[serde(default = "time")]
    pub prefer: String,
    /// The cost of seconds; none for time.
    #[serde(default)]
    pub prices: Option<PricesReport>,
    /// The policies asked for.
    pub policies: Vec<PolicyReport>,
    /// Fixed splits, replayed for the curves of the page.
    #[serde(default)]
    pub splits: Vec<PolicyReport>,
}

fn time() -> String {
    "time".to_string()
}

/// The cost of seconds, in joules or euros.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PricesReport {
    /// Of a core at work, and of waiting for a miss.
    pub per_core_second: f64,
    pub per_waiting_second: f64,
    /// Where watts and prices come from.
    pub sources: String,
}

/// One policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyReport {
    /// Its typed name: `adaptive`, `raw-only`, `split:80:zstd:again`.
    pub policy: String,
    /// The share of memory for compressed blocks, 0 to 1, on the mean over all accesses.
    pub compressed_share: f64,
    /// The method that compressed at the end.
    pub method: Option<String>,
    /// Whether, once the share is full, only pages that were asked for again are compressed.
    pub again: bool,
    /// The split in force at the end, in words.
    pub in_force: String,
    /// Mean time of an access: misses, compressing, restoring and finding out; a raw hit counts none.
    pub us_per_access: f64,
    /// The cost of that in the preferred unit, seconds, joules or euros; `None` where only time is known.
    #[serde(default)]
    pub cost_per_access: Option<f64>,
    pub tail_us: TailReport,
    /// The whole tail: each of these shares of the accesses took longer than its time.
    pub slower: Vec<SlowerReport>,
    pub accesses: u64,
    pub raw_hits: u64,
    pub packed_hits: u64,
    pub misses: u64,
    /// Compressed blocks; compressed forms without any later access; blocks that did not shrink.
    pub compressed: u64,
    pub wasted: u64,
    pub incompressible: u64,
    /// Changes of the split.
    pub moves: u64,
    pub miss_seconds: f64,
    pub encode_seconds: f64,
    pub decode_seconds: f64,
    /// The time of the shadow cache and of trials of methods.
    pub overhead_seconds: f64,
    /// Processor time of the whole loop.
    pub loop_core_seconds: f64,
    pub budget_bytes: u64,
    /// The most bytes in use, and those at the end.
    pub peak_bytes: u64,
    pub in_use_bytes: u64,
    pub raw_bytes: u64,
    pub packed_bytes: u64,
    /// Uncompressed bytes of all blocks held at the end.
    pub held_bytes: u64,
    /// The saved share of raw-only's cost on these accesses, in the preferred unit; `None` without a replay of
    /// raw-only.
    pub saved_share: Option<Estimate>,
    /// The same as the policy itself estimates it, by its own simulation of raw-only.
    pub told_saved_share: Option<Estimate>,
    /// The trace in parts of equal length; the last may be shorter.
    pub parts: Vec<PartReport>,
}

/// Times of single accesses, in microseconds: this many of a hundred or a thousand take no longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TailReport {
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
}

/// A share of the accesses took longer than so many microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SlowerReport {
    pub share: f64,
    pub us: f64,
}

/// A part of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    pub accesses: u64,
    pub hits: u64,
    /// The time of its accesses together.
    pub us: f64,
    /// Their cost together in the preferred unit.
    #[serde(default)]
    pub cost: Option<f64>,
    /// The share of memory for compressed blocks at its end, and the share that held some.
    pub compressed_share: f64,
    pub packed_share: f64,
}

impl PolicyReport {
    /// Returns the share of accesses that hit.
    pub fn hit_ratio(&self) -> f64 {
        self.share(self.raw_hits + self.packed_hits)
    }

    /// Returns a count as a share of all accesses.
    pub fn share(&self, count: u64) -> f64 {
        count as f64 / self.accesses.max(1) as f64
    }

    /// Returns seconds in microseconds for each access.
    pub fn per_access(&self, seconds: f64) -> f64 {
        1e6 * seconds / self.accesses.max(1) as f64
    }

    /// Returns the mean cost of an access in the preferred unit: seconds, joules or euros.
    pub fn cost(&self) -> f64 {
        self.cost_per_access.unwrap_or(1e-6 * self.us_per_access)
    }

    /// Returns whether no block was compressed, not even one of a repeated byte, which is held without its bytes.
    pub fn has_compressed_nothing(&self) -> bool {
        self.compressed == 0 && self.packed_hits == 0
    }

    /// Returns whether its split never changes.
    pub fn is_fixed(&self) -> bool {
        self.policy != ADAPTIVE
    }

    /// Returns the share that it saves of another policy's cost on the same accesses. The 95 % interval comes from the
    /// differences between parts of the trace; there is none for traces that are too short.
    ///
    /// Source: Cochran 1977, section 6.3 (the ratio of sums over equal parts). Parts are taken to be independent, so
    /// phases of the trace widen the interval.
    pub fn saved_share(&self, other: &PolicyReport) -> Option<Estimate> {
        let pairs = || self.parts.iter().zip(&other.parts);
        let same = self.parts.len() == other.parts.len()
            && pairs().all(|(one, other)| one.accesses == other.accesses);
        let whole: f64 = other.parts.iter().map(PartReport::cost).sum();
        if !same || self.parts.len() < PARTS_MIN || whole <= 0.0 {
            return None;
        }
        let ratio = self.parts.iter().map(PartReport::cost).sum::<f64>() / whole;
        let squares: f64 = pairs()
            .map(|(one, other)| (one.cost() - ratio * other.cost()).powi(2))
            .sum();
        let count = self.parts.len() as f64;
        let error = (squares * count / (count - 1.0)).sqrt() / whole;
        let half_width = student_t_975(self.parts.len() - 1) * error;
        Some(Estimate::plus_minus(1.0 - ratio, half_width))
    }
}

impl PartReport {
    fn cost(&self) -> f64 {
        self.cost.unwrap_or(1e-6 * self.us)
    }
}

impl ReplayReport {
    /// Returns the policy of a name, if it was replayed.
    pub fn find(&self, name: &str) -> Option<&PolicyReport> {
        self.all().find(|of| of.policy == name)
    }

    /// Returns all replayed policies, the requested ones first, each once.
    pub fn all(&self) -> impl Iterator<Item = &PolicyReport> {
        let asked = |of: &&PolicyReport| !self.policies.iter().any(|it| it.policy == of.policy);
        self.policies.iter().chain(self.splits.iter().filter(asked))
    }

    /// Returns the fixed split of least cost, raw-only among them.
    pub fn best_fixed(&self) -> Option<&PolicyReport> {
        self.all()
            .filter(|of| of.is_fixed())
            .min_by(|one, other| one.cost().total_cmp(&other.cost()))
    }

    /// Fills in the comparisons between policies, and the sentence about them.
    pub fn compare(&mut self) {
        if let Some(raw) = self.find(RAW_ONLY).cloned() {
            for policy in self.policies.iter_mut().chain(&mut self.splits) {
                policy.saved_share = match policy.policy.as_str() {
                    RAW_ONLY => None,
                    _ => policy.saved_share(&raw),
                };
            }
        }
        self.headline = super::sentence::headline(self);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A policy whose parts took the given times.
    pub fn policy(name: &str, share: f64, method: Option<&str>, parts: &[f64]) -> PolicyReport {
        let us: f64 = parts.iter().sum();
        let accesses = 1000 * parts.len() as u64;
        let part = |us: &f64| PartReport {
            accesses: 1000,
            hits: 600,
            us: *us,
            cost: None,
            compressed_share: share,
            packed_share: 0.9 * share,
        };
        PolicyReport {
            policy: name.to_string(),
            compressed_share: share,
            method: method.map(str::to_string),
            again: name.ends_with(":again"),
            in_force: name.to_string(),
            us_per_access: us / accesses as f64,
            tail_us: TailReport {
                p50: 0.0,
                p90: 20.0,
                p99: 73.0,
                p999: 91.5,
                max: 410.0,
            },
            slower: (0..=20)
                .map(|step| SlowerReport {
                    share: 10f64.powf(-f64::from(step) / 4.0),
                    us: f64::from(step) * 12.0,
                })
                .collect(),
            accesses,
            raw_hits: accesses * 5 / 10,
            packed_hits: if share > 0.0 { accesses / 4 } else { 0 },
            misses: accesses / 2 - if share > 0.0 { accesses / 4 } else { 0 },
            compressed: accesses / 3,
            wasted: accesses / 9,
            miss_seconds: 0.7e-6 * us,
            encode_seconds: 0.2e-6 * us,
            decode_seconds: 0.1e-6 * us,
            budget_bytes: 16 << 20,
            peak_bytes: 16 << 20,
            in_use_bytes: 15 << 20,
            raw_bytes: (14.0 * (1.0 - share)) as u64 * 1_048_576,
            packed_bytes: (14.0 * share) as u64 * 1_048_576,
            held_bytes: 30 << 20,
            parts: parts.iter().map(part).collect(),
            ..PolicyReport::default()
        }
    }

    #[test]
    fn what_is_saved_has_an_interval() {
        let raw = policy(RAW_ONLY, 0.0, None, &[10.0; 16]);
        let saved = |parts: &[f64]| policy("split:80:zstd", 0.8, None, parts).saved_share(&raw);
        let exact = saved(&[6.0; 16]).expect("an estimate");
        assert!((exact.mean - 0.4).abs() < 1e-12 && exact.high - exact.low < 1e-9);
        let parts: Vec<f64> = (0..16).map(|at| 6.0 + f64::from(at % 2)).collect();
        let wide = saved(&parts).expect("an estimate");
        // Deviations of 0.5 on 16 parts of 10: t(15) = 2.131 of sqrt(16 * 0.25 * 16 / 15) / 160.
        let half_width = 2.131_449_5 * (4.0f64 * 16.0 / 15.0).sqrt() / 160.0;
        assert!((wide.mean - 0.35).abs() < 1e-12, "{wide:?}");
        assert!(
            (wide.high - wide.mean - half_width).abs() < 1e-6,
            "{wide:?}"
        );
        assert_eq!(saved(&[6.0; 15]), None, "other parts");
        let short = policy(RAW_ONLY, 0.0, None, &[10.0; 4]);
        assert_eq!(short.saved_share(&short), None, "too few parts");
        let free = policy(RAW_ONLY, 0.0, None, &[0.0; 16]);
        assert_eq!(raw.saved_share(&free), None, "nothing to save from");
    }

    #[test]
    fn each_policy_is_told_once() {
        let mut report = super::super::testing::report();
        let before = report.all().count();
        report.splits.push(report.policies[0].clone());
        assert_eq!(report.all().count(), before);
        let saved = report.policies.iter().map(|of| of.saved_share);
        assert_eq!(saved.clone().next().expect("raw-only first"), None);
        assert!(saved.skip(1).all(|saved| saved.is_some()));
    }
}
