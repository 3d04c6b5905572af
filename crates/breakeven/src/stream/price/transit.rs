//! The blocks chosen and not yet written, in their order, and when the link is through with them.

use std::collections::VecDeque;

use crate::decide::Trial;
use crate::units::{BytesPerSecond, Seconds};

use super::parts::Spell;
use super::waits::Waits;

/// Seconds for which whoever feeds the link may have waited for a core: no sign of a slow link.
pub const WAKING_SECONDS: f64 = 10e-3;
/// The most bytes that a sink is thought to hold and to send later. Linux lets the send buffer of a TCP connection grow
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
    /// When it was or is to be compressed.
    pub encoded_at: f64,
    pub stored_bytes: f64,
    /// Core seconds that encoding it takes, as expected.
    pub core_seconds: f64,
    /// The chooser's pick.
    pub candidate: usize,
    /// Into how many parts it is split.
    pub parts: usize,
    pub is_encoded: bool,
    pub trial: Option<(Trial, Spell, Waits)>,
}

/// The blocks on their way, and their pipeline.
pub struct Transit {
    pub plant: Plant,
    queue: VecDeque<Sent>,
    /// Tickets given out; the queue's first is this less the queue's length.
    tickets: u64,
    /// When the link is through with its bytes, as far as is known: a sink may hold some of them still.
    link_ended: f64,
    /// Seconds a byte that the block now on the link has taken already, at least.
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

    /// Changes what is known of the link.
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

    /// Returns how many blocks are on their way.
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
    /// sends them later. So the link is busy for as long as its speed says, and not only until now.
    pub fn written(&mut self, now: Seconds) {
        if let Some(first) = self.queue.pop_front() {
            let began = self.link_ended.max(first.encoded_at);
            let ended = began + self.write_seconds(first.stored_bytes);
            self.link_ended = ended.clamp(now.0, now.0 + HIDDEN_BYTES * self.byte_seconds());
        }
        self.byte_seconds_min = 0.0;
    }

    /// Returns for how long there was nothing to do before a block that starts now.
    pub fn pause(&self, raw_bytes: f64, now: Seconds) -> f64 {
        let pause = now.0 - self.link_ended;
        // A time longer than a block is no gap between two of them.
        let is_pause =
            self.queue.is_empty() && self.tickets > 0 && pause > self.write_seconds(raw_bytes);
        if is_pause { pause } else { 0.0 }
    }

    /// Takes the link to be slower than it was while a block has it for longer than it should; returns
    /// whether a block has it.
    pub fn watch_link(&mut self, now: Seconds) -> bool {
        let Some(first) = self.queue.front().filter(|it| it.is_encoded) else {
            return self.link_ended > now.0;
        };
        let began = first.encoded_at.max(self.link_ended);
        let taken = now.0 - began;
        self.byte_seconds_min = (taken - WAKING_SECONDS).max(0.0) / first.stored_bytes.max(1.0);
        taken > 0.0 || self.link_ended > now.0
    }

    /// Returns for how long the link has something to do, all blocks on their way included.
    pub fn backlog(&self, now: Seconds) -> f64 {
        let mut free = self.link_ended;
        for sent in &self.queue {
            let began = free.max(sent.encoded_at);
            free = (began + self.write_seconds(sent.stored_bytes)).max(now.0);
        }
        (free - now.0).max(0.0)
    }

    /// Finds when each worker can take parts of a block that starts now: its own worker at once, the others when they
    /// are done with their work.
    pub fn gather_helpers(&self, now: Seconds, delays: &mut Vec<f64>) {
        delays.clear();
        delays.push(0.0);
        let under_way = self.queue.iter().filter(|it| !it.is_encoded);
        let others = under_way.map(|it| (it.encoded_at - now.0).max(0.0));
        delays.extend(others.take(self.plant.workers - 1));
        delays.resize(self.plant.workers, 0.0);
    }

    /// Returns for how long the link has a frame.
    pub fn write_seconds(&self, stored_bytes: f64) -> f64 {
        self.plant.write_overhead.0 + stored_bytes * self.byte_seconds()
    }

    /// Returns what the link takes now: seconds of a byte, and of a write.
    pub fn link(&self) -> (f64, f64) {
        (self.byte_seconds(), self.plant.write_overhead.0)
    }

    /// Returns what a byte takes the link now, in seconds.
    pub fn byte_seconds(&self) -> f64 {
        (1.0 / self.plant.link.0).max(self.byte_seconds_min)
    }
}
