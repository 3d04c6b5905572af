//! The queue's addition to the cost of an arm: the waits that a block would cause, and being late.

use crate::decide::Quantities;
use crate::statistics::mean_excess;

use super::line::Line;
use super::parts::Spell;

/// A backlog of so many blocks' time of every worker rules out a wait of the link.
const LASTING_ROUNDS: f64 = 2.0;

/// The pipeline at the time of a pick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waits {
    pub workers: usize,
    /// A worker's time, over core time.
    pub wall: Line,
    /// Seconds that a block takes on average.
    pub period: f64,
    /// The time for which all frame buffers but one hold work.
    pub room: f64,
    /// The time for which the link has bytes to send.
    pub backlog: f64,
    /// Share by which blocks take longer or shorter than expected.
    pub deviation: f64,
    /// The cost of a second of the link and of a worker.
    pub link_second: f64,
    pub core_second: f64,
    /// Seconds of a write beside its bytes, and of a byte.
    pub write_overhead: f64,
    pub byte_seconds: f64,
    /// Seconds left of a promised time.
    pub left: f64,
}

impl Waits {
    /// Returns the addition of this place to the cost of a block in so many parts.
    pub fn cost(&self, it: &Quantities, parts: usize, spell: &Spell) -> f64 {
        self.waits(spell, parts, self.deviation)
            + self.lateness(it, spell.latency)
            + self.drain(it, parts)
    }

    /// Returns the cost of the waits of a block, from its real costs.
    pub fn afterwards(&self, expected: &Quantities, real: &Quantities, spell: &Spell) -> f64 {
        let longer = self.wall_of(real) / self.wall_of(expected).max(1e-12);
        self.waits(&spell.times(longer), spell.parts, 0.0)
    }

    /// Returns the wall time that a worker takes to encode.
    pub fn wall_of(&self, it: &Quantities) -> f64 {
        self.wall.at(it.encode_core_seconds.mean)
    }

    fn write_seconds(&self, it: &Quantities) -> f64 {
        self.write_overhead + it.stored_bytes.mean * self.byte_seconds
    }

    /// Returns the cost of the waits while a block is encoded. The link waits when it has sent everything before the
    /// block. Workers that do not help wait when all buffers are behind the block, and its own worker waits for the
    /// last of its parts. All waits are means, over blocks that take longer or shorter by the share `deviation`.
    fn waits(&self, spell: &Spell, parts: usize, deviation: f64) -> f64 {
        let others = self.workers.saturating_sub(parts) as f64;
        let deviation = deviation * spell.latency;
        // When all workers were on its parts, the link waits for the next block as well.
        let next = match parts > 1 && others == 0.0 {
            true => self.period * self.workers as f64,
            false => 0.0,
        };
        let starved = match self.link_second > 0.0 {
            true => mean_excess(spell.latency + next, self.backlog, deviation),
            false => 0.0,
        };
        let stalled = mean_excess(spell.latency, self.room, deviation) * others;
        starved * self.link_second + (stalled + spell.idle) * self.core_second
    }

    /// Returns the cost of being late, if the stream ended with this block or with the last that lends to it: the last
    /// block is not known beforehand. Each second costs as many bytes as the link could send.
    fn lateness(&self, it: &Quantities, latency: f64) -> f64 {
        let through = latency.max(self.backlog) + self.write_seconds(it);
        (through - self.left).max(0.0) / self.byte_seconds
    }

    /// Returns the cost of a block in parts for the blocks behind it. While all workers encode its parts, they give the
    /// link fewer bytes than it sends. When little is left, the link waits for those blocks instead of this one.
    /// Workers' time is cheap where all wait for the link. So nothing else holds back a method that takes twice as much
    /// of it in block after block, each split to spare the link a wait.
    fn drain(&self, it: &Quantities, parts: usize) -> f64 {
        if parts == 1 || self.period.is_infinite() {
            return 0.0;
        }
        let workers = self.workers as f64;
        let missing = (LASTING_ROUNDS - self.backlog / (workers * self.period)).clamp(0.0, 1.0);
        let longer = (self.wall_of(it) / workers - self.write_seconds(it)).max(0.0);
        missing * longer * self.link_second
    }
}
