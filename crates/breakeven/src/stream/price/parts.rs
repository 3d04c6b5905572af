//! Into how many parts a block is best split: one while it fits the buffers.
//!
//! A part compresses less than the whole, since it starts with an empty window, and is done sooner.
//! What that comes to is known as other things are, from the profile's estimates for blocks of
//! the part's length.

use crate::decide::{MethodEstimate, Quantities};
use crate::units::Estimate;

use super::super::split::{PART_BYTES_MIN, PARTS, PARTS_MAX};

/// What splitting must save, as a share of the block's cost.
const GAIN_MIN: f64 = 0.01;

/// A way to split a block, with its core time and bytes beside those of the whole.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    pub parts: usize,
    work: f64,
    stored: f64,
}

/// The ways to split a block that are thought of, by one arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parting {
    ways: [Shares; PARTS.len()],
    count: usize,
}

const WHOLE: Shares = Shares {
    parts: 1,
    work: 1.0,
    stored: 1.0,
};

impl Parting {
    /// Leaves the block whole.
    pub const NONE: Parting = Parting {
        ways: [WHOLE; PARTS.len()],
        count: 1,
    };

    /// Returns the ways to split a block among so many workers. `estimate` tells what is known of parts
    /// of a length; what was seen of them counts as seen of the whole, lest all of it be tried again.
    pub fn of(
        raw_bytes: u64,
        workers: usize,
        whole: &mut MethodEstimate,
        estimate: impl Fn(u64) -> MethodEstimate,
    ) -> Parting {
        let mut parting = Parting::NONE;
        for parts in &PARTS[1..] {
            let part_bytes = raw_bytes.div_ceil(*parts as u64);
            if *parts > workers.next_power_of_two() || part_bytes < PART_BYTES_MIN as u64 {
                break;
            }
            let part = estimate(part_bytes);
            let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 1.0 };
            parting.ways[parting.count] = Shares {
                parts: *parts,
                work: share(
                    part.encode_seconds_per_byte.value.mean,
                    whole.encode_seconds_per_byte.value.mean,
                ),
                stored: share(
                    part.stored_per_raw.value.mean,
                    whole.stored_per_raw.value.mean,
                ),
            };
            parting.count += 1;
            for (whole, part) in [
                (
                    &mut whole.encode_seconds_per_byte,
                    part.encode_seconds_per_byte,
                ),
                (&mut whole.stored_per_raw, part.stored_per_raw),
            ] {
                whole.weight = whole.weight.max(part.weight);
            }
        }
        parting
    }

    /// Returns the ways, the whole block first.
    pub fn ways(&self) -> &[Shares] {
        &self.ways[..self.count]
    }

    /// Returns the way of the least cost by what the whole block takes and into how many parts it is
    /// split: whole unless another is clearly better.
    pub fn best(&self, whole: &Quantities, cost: impl Fn(&Quantities, usize) -> f64) -> Shares {
        if self.count == 1 {
            return WHOLE;
        }
        let mut best = (WHOLE, cost(whole, 1) * (1.0 - GAIN_MIN));
        for way in &self.ways()[1..] {
            let cost = cost(&way.of(whole), way.parts);
            if cost < best.1 {
                best = (*way, cost);
            }
        }
        best.0
    }

    /// Returns the way into so many parts, the whole block if that is not thought of.
    pub fn in_parts_or_whole(&self, parts: usize) -> &Shares {
        let way = self.ways().iter().find(|it| it.parts == parts);
        way.unwrap_or(&WHOLE)
    }
}

/// How a block's parts go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spell {
    /// Until the last part is done.
    pub latency: f64,
    /// While the worker who has the block does none of its parts.
    pub idle: f64,
}

impl Spell {
    /// Lets a block that takes its workers `wall` seconds in all be done, each part by whoever is first
    /// to be free; `delays` are those of the workers, the first of them who has it.
    pub fn of(wall: f64, parts: usize, delays: &[f64]) -> Spell {
        if parts == 1 {
            return Spell {
                latency: wall,
                idle: 0.0,
            };
        }
        let part = wall / parts as f64;
        let mut done = [0; PARTS_MAX];
        let mut latency: f64 = 0.0;
        for _ in 0..parts {
            let workers = delays.iter().take(PARTS_MAX).zip(&mut done);
            let ends = workers.map(|(delay, done)| (delay + part * f64::from(*done + 1), done));
            let first = ends.min_by(|a, b| a.0.total_cmp(&b.0));
            let (end, done) = first.expect("at least one worker");
            *done += 1;
            latency = latency.max(end);
        }
        Spell {
            latency,
            idle: latency - part * f64::from(done[0]),
        }
    }

    /// Returns it where all takes so many times as long.
    pub fn times(&self, longer: f64) -> Spell {
        Spell {
            latency: self.latency * longer,
            idle: self.idle * longer,
        }
    }
}

impl Shares {
    /// Returns what a block takes in parts, of which the whole takes `whole`.
    pub fn of(&self, whole: &Quantities) -> Quantities {
        let by = |it: Estimate, share: f64| it.map(|value| value * share);
        Quantities {
            encode_core_seconds: by(whole.encode_core_seconds, self.work),
            stored_bytes: by(whole.stored_bytes, self.stored),
            held_bytes: by(whole.held_bytes, self.stored),
            ..*whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Method;
    use crate::decide::{Class, Profile};

    #[test]
    fn parts_go_to_whoever_is_free_first() {
        let check = |parts: usize, delays: &[f64], latency: f64, idle: f64| {
            let expected = Spell { latency, idle };
            assert_eq!(
                Spell::of(8.0, parts, delays),
                expected,
                "{parts}, {delays:?}"
            );
        };
        check(1, &[0.0, 0.0], 8.0, 0.0);
        check(2, &[0.0, 0.0], 4.0, 0.0);
        check(2, &[0.0, 3.0], 7.0, 3.0);
        check(2, &[0.0, 5.0], 8.0, 0.0);
        check(4, &[0.0, 3.0], 6.0, 0.0);
        check(8, &[0.0, 0.0, 4.0], 4.0, 0.0);
        check(4, &[0.0], 8.0, 0.0);
    }

    #[test]
    fn blocks_are_split_no_finer_than_there_are_workers_and_bytes() {
        let profile = Profile::default();
        let method: Method = "xz:6".parse().expect("a method");
        let estimate = |bytes: u64| profile.estimate(Class::TEXT, method, bytes);
        let parts = |raw_bytes: u64, workers: usize| -> Vec<usize> {
            let parting = Parting::of(raw_bytes, workers, &mut estimate(raw_bytes), estimate);
            parting.ways().iter().map(|it| it.parts).collect()
        };
        assert_eq!(parts(1 << 20, 1), [1]);
        assert_eq!(parts(1 << 20, 2), [1, 2]);
        assert_eq!(parts(1 << 20, 3), [1, 2, 4]);
        assert_eq!(parts(1 << 20, 24), [1, 2, 4, 8]);
        assert_eq!(parts(200 << 10, 24), [1, 2]);
        assert_eq!(parts(100 << 10, 24), [1]);
        // Shorter windows find less.
        let parting = Parting::of(1 << 20, 8, &mut estimate(1 << 20), estimate);
        let stored = parting.ways().iter().map(|it| it.stored);
        let stored: Vec<f64> = stored.collect();
        assert!(stored.is_sorted() && stored[3] > 1.0, "{stored:?}");
    }
}
