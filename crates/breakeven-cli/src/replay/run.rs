//! One policy on the trace, in pieces: between them the view is shown and the parts are booked.

use std::time::Instant;

use anyhow::Result;
use breakeven::cache::{Arm, Policy, Replay, Replayed, ShardOptions, Source};
use breakeven_cli::report::replay::{
    ADAPTIVE, PartReport, PolicyReport, RAW_ONLY, SlowerReport, TailReport,
};

use super::live::{Sight, View};
use crate::options::NamedPolicy;

/// Parts of equal length into which the trace is cut, and pieces of each part.
const PARTS: usize = 64;
const PIECES: usize = 16;

/// Steps of each power of ten at which the tail is told, and their number.
const TAIL_STEPS: u32 = 4;
const TAIL_POINTS: u32 = 5 * TAIL_STEPS + 1;

/// What all policies are given alike.
pub struct Trial<'a> {
    pub keys: &'a [u64],
    pub source: Source<'a>,
    pub options: ShardOptions,
}

impl Trial<'_> {
    /// Replays the trace under a policy. `raw` is how raw-only went, if it did already.
    pub fn run(
        &self,
        named: &NamedPolicy,
        raw: Option<&PolicyReport>,
        view: &mut View,
    ) -> Result<PolicyReport> {
        let options = ShardOptions {
            policy: named.policy,
            ..self.options.clone()
        };
        let mut replay = Replay::new(self.source, options)?;
        let begun = Instant::now();
        let mut found = PolicyReport {
            policy: canonical(named),
            ..PolicyReport::default()
        };
        view.begin(&named.name, self.keys.len() as u64);
        let mut before = replay.so_far();
        let mut shares = 0.0;
        for part in self.keys.chunks(self.keys.len().div_ceil(PARTS).max(1)) {
            let mut now = before.clone();
            for piece in part.chunks(part.len().div_ceil(PIECES).max(1)) {
                replay.run(piece.iter().copied())?;
                now = replay.so_far();
                shares += now.arm.compressed_share * piece.len() as f64;
                found.peak_bytes = found.peak_bytes.max(now.memory.in_use_bytes());
                view.show(&Sight {
                    replayed: &now,
                    in_force: &self.describe(&now.arm),
                    seconds: begun.elapsed().as_secs_f64(),
                    raw_us: raw.and_then(|raw| us_after(raw, now.stats.accesses())),
                });
            }
            found.parts.push(part_report(&before, &now));
            before = now;
        }
        found.compressed_share = match named.policy {
            Policy::Static(arm) => arm.compressed_share,
            _ => shares / self.keys.len().max(1) as f64,
        };
        self.fill_in(&mut found, &before);
        view.done(&found, begun.elapsed().as_secs_f64());
        Ok(found)
    }

    /// Words a split.
    fn describe(&self, arm: &Arm) -> String {
        match self.method(arm) {
            None => "raw only".to_string(),
            Some(method) => {
                let again = if arm.admits_once { "" } else { ", seen again" };
                let percent = (100.0 * arm.compressed_share).round();
                format!("{percent} % {method}{again}")
            }
        }
    }

    /// The method of a split; none where nothing is compressed.
    fn method(&self, arm: &Arm) -> Option<String> {
        let method = self.options.methods.get(usize::from(arm.method))?;
        (arm.compressed_share > 0.0).then(|| method.to_string())
    }

    fn fill_in(&self, found: &mut PolicyReport, replayed: &Replayed) {
        let (stats, memory) = (&replayed.stats, &replayed.memory);
        found.accesses = stats.accesses();
        found.us_per_access = found.per_access(stats.cost());
        found.method = self.method(&replayed.arm);
        found.again = found.method.is_some() && !replayed.arm.admits_once;
        found.in_force = self.describe(&replayed.arm);
        let us = |share: f64| 1e6 * replayed.distribution.quantile(share);
        found.tail_us = TailReport {
            p50: us(0.5),
            p90: us(0.9),
            p99: us(0.99),
            p999: us(0.999),
            max: us(1.0),
        };
        let slower = |step: u32| {
            let share = 10f64.powf(-f64::from(step) / f64::from(TAIL_STEPS));
            SlowerReport {
                share,
                us: us(1.0 - share),
            }
        };
        found.slower = (0..TAIL_POINTS).map(slower).collect();
        found.raw_hits = stats.raw_hits;
        found.packed_hits = stats.packed_hits;
        found.misses = stats.misses;
        found.compressed = stats.compressed;
        found.wasted = stats.wasted;
        found.incompressible = stats.incompressible;
        found.moves = stats.moves;
        found.miss_seconds = stats.miss_cost;
        found.encode_seconds = stats.encode_cost;
        found.decode_seconds = stats.decode_cost;
        found.overhead_seconds = stats.overhead_cost;
        found.loop_core_seconds = replayed.core.0;
        found.budget_bytes = memory.budget_bytes;
        found.in_use_bytes = memory.in_use_bytes();
        found.raw_bytes = memory.raw_bytes;
        found.packed_bytes = memory.packed_bytes;
        found.held_bytes = memory.held_bytes;
        found.told_saved_share = replayed
            .gain
            .filter(|(_, raw_only)| *raw_only > 0.0)
            .map(|(saved, raw_only)| saved.map(|saved| (saved - stats.overhead_cost) / raw_only));
    }
}

/// The name under which a policy is found again, whatever was typed for it.
fn canonical(named: &NamedPolicy) -> String {
    match named.policy {
        Policy::Adaptive => ADAPTIVE.to_string(),
        Policy::RawOnly => RAW_ONLY.to_string(),
        _ => named.name.clone(),
    }
}

fn part_report(before: &Replayed, now: &Replayed) -> PartReport {
    let hits = |of: &Replayed| of.stats.raw_hits + of.stats.packed_hits;
    PartReport {
        accesses: now.stats.accesses() - before.stats.accesses(),
        hits: hits(now) - hits(before),
        us: 1e6 * (now.stats.cost() - before.stats.cost()),
        compressed_share: now.arm.compressed_share,
        packed_share: now.memory.packed_bytes as f64 / now.memory.budget_bytes.max(1) as f64,
    }
}

/// What a policy's first accesses took on the mean; parts are taken to be even within.
fn us_after(of: &PolicyReport, accesses: u64) -> Option<f64> {
    let (mut left, mut us) = (accesses, 0.0);
    for part in &of.parts {
        let taken = left.min(part.accesses);
        us += part.us * taken as f64 / part.accesses.max(1) as f64;
        left -= taken;
    }
    (accesses > 0 && left == 0).then(|| us / accesses as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_accesses_of_another_policy_are_summed() {
        let part = |us| PartReport {
            accesses: 10,
            us,
            ..PartReport::default()
        };
        let of = PolicyReport {
            parts: vec![part(100.0), part(50.0)],
            ..PolicyReport::default()
        };
        let check = |accesses, expected| assert_eq!(us_after(&of, accesses), expected);
        check(0, None);
        check(5, Some(10.0));
        check(15, Some(125.0 / 15.0));
        check(20, Some(7.5));
        check(21, None);
    }
}
