//! The times of a block's parts: each goes to the worker that is free first.
//!
//! A part compresses less than the whole, since it starts with an empty window, and it is done sooner. The profile's
//! estimates for blocks of the part's length give its cost: parts are forms of an arm (`decide::Candidate`).

use super::super::split::PARTS_MAX;

/// How a block's parts go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spell {
    pub parts: usize,
    /// Until the last part is done.
    pub latency: f64,
    /// The time in which the block's own worker does none of its parts.
    pub idle: f64,
}

impl Spell {
    /// Times a block of `wall` seconds of work in all, with each part done by the first free worker. `delays` are those
    /// of the workers; the first of them has the block.
    pub fn of(wall: f64, parts: usize, delays: &[f64]) -> Spell {
        if parts == 1 {
            return Spell {
                parts,
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
            parts,
            latency,
            idle: latency - part * f64::from(done[0]),
        }
    }

    /// Returns the spell with all times multiplied.
    pub fn times(&self, longer: f64) -> Spell {
        Spell {
            parts: self.parts,
            latency: self.latency * longer,
            idle: self.idle * longer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_go_to_whoever_is_free_first() {
        let check = |parts: usize, delays: &[f64], latency: f64, idle: f64| {
            let expected = Spell {
                parts,
                latency,
                idle,
            };
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
}
