//! The blocks chosen and not yet written, in their order, and the time at which the link is free of them.

use std::collections::VecDeque;

use crate::decide::Trial;
use crate::units::{BytesPerSecond, Seconds};

use super::parts::Spell;
use super::waits::Waits;

/// Seconds for which the feeder of the link may have waited for a core: no sign of a slow link.
pub const WAKING_SECONDS: f64 = 10e-3;
/// The most bytes that a sink is assumed to hold and to send later. Linux lets the send buffer of a TCP connection grow
/// to 4 MiB, and a queue of the link may hold as much.
pub const HIDDEN_BYTES: f64 = 8.0 * MIB;
const MIB: f64 = (1 << 20) as f64;

/// The workers, buffers and link of the blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plant {
    /// Workers, at least 1.
    pub workers: usize,
    /// Frame buffers.
    pub frames: usize,
    /// Speed of the link.
    pub link: BytesPerSecond,
    /// Seconds of each write beside its bytes.
    pub write_overhead: Seconds,
}

/// A block on its way.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub chosen_at: f64,
    /// The time of its compression, past or expected.
    pub encoded_at: f64,
    pub stored_bytes: f64,
    /// Expected core seconds of encoding it.
    pub core_seconds: f64,
    /// The chooser's pick.
    pub candidate: usize,
    /// The number of its parts.
    pub parts: usize,
    pub is_encoded: bool,
    pub trial: Option<(Trial, Spell, Waits)>,
}

/// The blocks on their way, and their pipeline.
pub struct Transit {
    pub plant: Plant,
    queue: VecDeque<Sent>,
    /// Tickets given out; the first in the queue is this less the queue's length.
    tickets: u64,
    /// The known time at which the link has sent its bytes; a sink may still hold some of them.
    link_ended: f64,
    /// The least seconds a byte, by the time that the current block on the link has taken already.
    byte_seconds_min: f64,
}

impl Transit {
    pub fn new(plant: Plant) -> Transit {
        Transit {
            plant,
            queue: VecDeque::new(),
            tickets: 0,
            link_ended: 0.0,
            byte_seconds_min: 0.0,
        }
    }

    /// Changes the known speed of the link.
    pub fn set_link(&mut self, link: BytesPerSecond, write_overhead: Seconds) {
        if link.0 > 0.0 && link.0.is_finite() && write_overhead.0 >= 0.0 {
            self.plant.link = link;
            self.plant.write_overhead = write_overhead;
        }
    }

    /// Queues a block and returns its ticket.
    pub fn send(&mut self, sent: Sent) -> u64 {
        self.queue.push_back(sent);
        self.tickets += 1;
        self.tickets - 1
    }

    /// Returns the place in the queue of the block of a ticket, unless it was written.
    fn place_of(&self, ticket: u64) -> Option<usize> {
        let first = self.tickets - self.queue.len() as u64;
        let place = ticket.checked_sub(first)? as usize;
        (place < self.queue.len()).then_some(place)
    }

    /// Returns the block of a ticket, unless it was written.
    pub fn sent(&self, ticket: u64) -> Option<&Sent> {
        self.place_of(ticket).map(|place| &self.queue[place])
    }

    pub fn sent_mut(&mut self, ticket: u64) -> Option<&mut Sent> {
        self.place_of(ticket).map(|place| &mut self.queue[place])
    }

    /// Returns the number of blocks under way.
    pub fn blocks(&self) -> usize {
        self.queue.len()
    }

    /// Notes that a block's frame was finished `now`.
    pub fn stored(&mut self, ticket: u64, stored_bytes: u64, now: Seconds) {
        if let Some(sent) = self.sent_mut(ticket) {
            sent.encoded_at = now.0;
            sent.stored_bytes = stored_bytes as f64;
            sent.is_encoded = true;
        }
    }

    /// Notes that the sink took the first of the blocks on their way. A socket's buffer takes some MiB at once and
    /// sends them later. So the link is busy for the time that its speed gives, and not only until now.
    pub fn written(&mut self, now: Seconds) {
        if let Some(first) = self.queue.pop_front() {
            let began = self.link_ended.max(first.encoded_at);
            let ended = began + self.write_seconds(first.stored_bytes);
            self.link_ended = ended.clamp(now.0, now.0 + HIDDEN_BYTES * self.byte_seconds());
        }
        self.byte_seconds_min = 0.0;
    }

    /// Returns the time without work before a block that starts now.
    pub fn pause(&self, raw_bytes: f64, now: Seconds) -> f64 {
        let pause = now.0 - self.link_ended;
        // A time longer than a block is no gap between two of them.
        let is_pause =
            self.queue.is_empty() && self.tickets > 0 && pause > self.write_seconds(raw_bytes);
        if is_pause { pause } else { 0.0 }
    }

    /// Assumes a slower link while a block has it for longer than expected; returns whether a block has it.
    pub fn watch_link(&mut self, now: Seconds) -> bool {
        let Some(first) = self.queue.front().filter(|it| it.is_encoded) else {
            return self.link_ended > now.0;
        };
        let began = first.encoded_at.max(self.link_ended);
        let taken = now.0 - began;
        self.byte_seconds_min = (taken - WAKING_SECONDS).max(0.0) / first.stored_bytes.max(1.0);
        taken > 0.0 || self.link_ended > now.0
    }

    /// Returns the time for which the link has bytes to send, all blocks under way included.
    pub fn backlog(&self, now: Seconds) -> f64 {
        let mut free = self.link_ended;
        for sent in &self.queue {
            let began = free.max(sent.encoded_at);
            free = (began + self.write_seconds(sent.stored_bytes)).max(now.0);
        }
        (free - now.0).max(0.0)
    }

    /// Finds when each worker can take parts of a block that starts now: its own worker at once, the others after their
    /// work.
    pub fn gather_helpers(&self, now: Seconds, delays: &mut Vec<f64>) {
        delays.clear();
        delays.push(0.0);
        let under_way = self.queue.iter().filter(|it| !it.is_encoded);
        let others = under_way.map(|it| (it.encoded_at - now.0).max(0.0));
        delays.extend(others.take(self.plant.workers - 1));
        delays.resize(self.plant.workers, 0.0);
    }

    /// Returns the time of a frame on the link.
    pub fn write_seconds(&self, stored_bytes: f64) -> f64 {
        self.plant.write_overhead.0 + stored_bytes * self.byte_seconds()
    }

    /// Returns the present costs of the link: seconds of a byte, and of a write.
    pub fn link(&self) -> (f64, f64) {
        (self.byte_seconds(), self.plant.write_overhead.0)
    }

    /// Returns the present seconds of a byte on the link.
    pub fn byte_seconds(&self) -> f64 {
        (1.0 / self.plant.link.0).max(self.byte_seconds_min)
    }
}
