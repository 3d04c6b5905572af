//! Policies on the trace, in pieces: between them the view is shown and the parts are booked.

use std::time::Instant;

use anyhow::{Context, Result};
use breakeven::cache::{Arm, Policy, ShardOptions};
use breakeven::codec::Method;
use breakeven::replay::{Replay, Replayed, Source};
use breakeven_cli::report::replay::{
    ADAPTIVE, PartReport, PolicyReport, RAW_ONLY, SlowerReport, TailReport,
};

use super::live::{Sight, View};
use crate::options::NamedPolicy;

/// Parts of equal length into which the trace is cut, and pieces of each part.
const PARTS: usize = 64;
const PIECES: usize = 16;

/// Steps of each power of ten at which the tail is reported, and their number.
const TAIL_STEPS: u32 = 4;
const TAIL_POINTS: u32 = 5 * TAIL_STEPS + 1;

/// The inputs that all policies share.
pub struct Trial<'a> {
    pub keys: &'a [u64],
    pub source: Source<'a>,
    pub options: ShardOptions,
}

/// A policy that is being replayed.
struct Turn<'a> {
    named: &'a NamedPolicy,
    /// The methods that may compress.
    methods: Vec<Method>,
    replay: Replay<'a>,
    before: Replayed,
    found: PolicyReport,
    /// The compressed shares in force, summed over accesses.
    shares: f64,
    seconds: f64,
}

impl Trial<'_> {
    /// Replays the trace under policies that alternate over its parts. So the device's state and memory are the same
    /// for all. `raw` is the result of raw-only, if it ran already.
    pub fn run(
        &self,
        policies: &[&NamedPolicy],
        raw: Option<&PolicyReport>,
        view: &mut View,
    ) -> Result<Vec<PolicyReport>> {
        let begun = policies.iter().map(|named| self.begin(named));
        let mut turns = begun.collect::<Result<Vec<_>>>()?;
        let parts = self.keys.chunks(self.keys.len().div_ceil(PARTS).max(1));
        for (number, part) in parts.enumerate() {
            for at in order(number, turns.len()) {
                let beside = turns.iter().map(|turn| &turn.found);
                let raw = raw.or(beside.clone().find(|of| of.policy == RAW_ONLY));
                let raw_parts = raw.map(|raw| raw.parts.clone()).unwrap_or_default();
                view.turn_to(at, &turns[at].named.name, self.keys.len() as u64);
                self.go_on(&mut turns[at], part, &raw_parts, view)
                    .with_context(|| format!("replay under {}", turns[at].named.name))?;
            }
        }
        let found = turns.into_iter().map(|turn| self.end(turn, view));
        Ok(found.collect())
    }

    fn begin<'a>(&'a self, named: &'a NamedPolicy) -> Result<Turn<'a>> {
        let mut options = ShardOptions {
            policy: named.policy,
            ..self.options.clone()
        };
        if let Some(method) = named.method {
            options.methods = vec![method];
        }
        let methods = options.methods.clone();
        let replay = Replay::new(self.source, options)?;
        Ok(Turn {
            named,
            methods,
            before: replay.so_far(),
            replay,
            found: PolicyReport {
                policy: canonical(named),
                ..PolicyReport::default()
            },
            shares: 0.0,
            seconds: 0.0,
        })
    }

    /// Goes on with a part of the trace.
    fn go_on(
        &self,
        turn: &mut Turn<'_>,
        part: &[u64],
        raw_parts: &[PartReport],
        view: &mut View,
    ) -> Result<()> {
        let begun = Instant::now();
        let mut now = turn.before.clone();
        for piece in part.chunks(part.len().div_ceil(PIECES).max(1)) {
            turn.replay.run(piece.iter().copied())?;
            now = turn.replay.so_far();
            turn.shares += now.arm.compressed_share * piece.len() as f64;
            turn.found.peak_bytes = turn.found.peak_bytes.max(now.memory.in_use_bytes());
            view.show(&Sight {
                replayed: &now,
                in_force: &describe(&now.arm, &turn.methods),
                seconds: turn.seconds + begun.elapsed().as_secs_f64(),
                raw_us: us_after(raw_parts, now.stats.accesses()),
            });
        }
        turn.seconds += begun.elapsed().as_secs_f64();
        turn.found.parts.push(part_report(&turn.before, &now));
        turn.before = now;
        Ok(())
    }

    fn end(&self, turn: Turn<'_>, view: &mut View) -> PolicyReport {
        let mut found = turn.found;
        found.compressed_share = match turn.named.policy {
            Policy::Static(arm) => arm.compressed_share,
            _ => turn.shares / self.keys.len().max(1) as f64,
        };
        fill_in(&mut found, &turn.before, &turn.methods);
        view.done(&found, turn.seconds);
        found
    }
}

/// Words a split.
fn describe(arm: &Arm, methods: &[Method]) -> String {
    match method(arm, methods) {
        None => "raw only".to_string(),
        Some(method) => {
            let again = if arm.admits_once { "" } else { ", seen again" };
            let percent = (100.0 * arm.compressed_share).round();
            format!("{percent} % {method}{again}")
        }
    }
}

/// The method of a split; none where nothing is compressed.
fn method(arm: &Arm, methods: &[Method]) -> Option<String> {
    let method = methods.get(usize::from(arm.method))?;
    (arm.compressed_share > 0.0).then(|| method.to_string())
}

fn fill_in(found: &mut PolicyReport, replayed: &Replayed, methods: &[Method]) {
    let Replayed {
        stats,
        seconds,
        memory,
        ..
    } = replayed;
    found.accesses = stats.accesses();
    found.us_per_access = found.per_access(seconds.total());
    found.cost_per_access = Some(stats.cost() / stats.accesses().max(1) as f64);
    found.method = method(&replayed.arm, methods);
    found.again = found.method.is_some() && !replayed.arm.admits_once;
    found.in_force = describe(&replayed.arm, methods);
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
    found.miss_seconds = seconds.miss;
    found.encode_seconds = seconds.encode;
    found.decode_seconds = seconds.decode;
    found.overhead_seconds = seconds.overhead;
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

/// The name under which a policy is found, in any typed form.
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
        us: 1e6 * (now.seconds.total() - before.seconds.total()),
        cost: Some(now.stats.cost() - before.stats.cost()),
        compressed_share: now.arm.compressed_share,
        packed_share: now.memory.packed_bytes as f64 / now.memory.budget_bytes.max(1) as f64,
    }
}

/// The order of policies in a part: forwards and backwards by turns, so that each goes before each other in every
/// second part.
fn order(part: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..count).map(move |at| match part.is_multiple_of(2) {
        true => at,
        false => count - 1 - at,
    })
}

/// The mean time of a policy's first accesses; within a part, time is taken to be even.
fn us_after(parts: &[PartReport], accesses: u64) -> Option<f64> {
    let (mut left, mut us) = (accesses, 0.0);
    for part in parts {
        let taken = left.min(part.accesses);
        us += part.us * taken as f64 / part.accesses.max(1) as f64;
        left -= taken;
    }
    (accesses > 0 && left == 0).then(|| us / accesses as f64)
}

#[cfg(test)]
mod tests {
    use breakeven::cache::MissTime;
    use breakeven::replay::Contents;
    use breakeven::units::Seconds;

    use super::*;
    use crate::options::parse_policy;

    #[test]
    fn each_goes_before_each_other_as_often() {
        for count in 1..6 {
            let mut before = vec![0; count * count];
            for part in 0..PARTS {
                let order: Vec<usize> = order(part, count).collect();
                for (place, one) in order.iter().enumerate() {
                    for other in &order[place + 1..] {
                        before[one * count + other] += 1;
                    }
                }
            }
            for one in 0..count {
                for other in 0..count {
                    let expected = if one == other { 0 } else { PARTS / 2 };
                    assert_eq!(before[one * count + other], expected);
                }
            }
        }
    }

    #[test]
    fn policies_that_take_turns_do_as_each_alone() {
        let bytes = (0..400_000u32).flat_map(|at| (at % 997).to_le_bytes());
        let contents = Contents::new(bytes.collect(), 4096).expect("contents");
        let miss = MissTime {
            core: Seconds(0.0),
            waiting: Seconds(1e-3),
        };
        let keys: Vec<u64> = (0..3000).map(|at| at * at % 390).collect();
        let trial = Trial {
            keys: &keys,
            source: Source::Charged(&contents, miss),
            options: ShardOptions::sized(512 << 10, 4096),
        };
        let named = |name| parse_policy(name).expect("a policy");
        let policies = ["raw-only", "split:80:zstd"].map(named);
        let mut view = View::new(4);
        let both: Vec<&NamedPolicy> = policies.iter().collect();
        let found = trial.run(&both, None, &mut view).expect("replayed");
        for (named, found) in policies.iter().zip(found) {
            let alone = trial.run(&[named], None, &mut view).expect("replayed");
            let counts = |of: &PolicyReport| (of.policy.clone(), of.misses, of.packed_hits);
            assert_eq!(counts(&found), counts(&alone[0]));
            assert_eq!(found.parts.len(), alone[0].parts.len());
        }
    }

    #[test]
    fn the_first_accesses_of_another_policy_are_summed() {
        let part = |us| PartReport {
            accesses: 10,
            us,
            ..PartReport::default()
        };
        let parts = [part(100.0), part(50.0)];
        let check = |accesses, expected| assert_eq!(us_after(&parts, accesses), expected);
        check(0, None);
        check(5, Some(10.0));
        check(15, Some(125.0 / 15.0));
        check(20, Some(7.5));
        check(21, None);
    }
}
