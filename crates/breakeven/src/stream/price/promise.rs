//! The rest of a promised time, and the choice of the blocks that count as the last.

use crate::units::Seconds;

use super::super::hint::Outlook;
use super::balance::Group;
use super::{Controller, Goal};

/// The rest of a promised time for a block.
pub struct Left {
    /// Seconds until it must be finished; infinite where no time is promised.
    pub seconds: f64,
    /// Blocks' worth of time that earlier blocks saved.
    pub saved_blocks: f64,
    /// Blocks of the same length behind it; infinite where that is unknown.
    pub blocks_behind: f64,
}

impl Controller {
    /// Returns the number of blocks of the same length behind one that starts now. It is infinite without a pledge,
    /// beyond the pledged bytes, and where the workers do not have the cores alone.
    pub(super) fn blocks_behind(&self, raw_bytes: u64, outlook: &Outlook) -> f64 {
        let so_far = self.raw_bytes + raw_bytes;
        let behind = self.pledged_bytes.and_then(|it| it.checked_sub(so_far));
        match behind.filter(|_| outlook.asynchronism == 0.0) {
            Some(bytes) => bytes as f64 / raw_bytes.max(1) as f64,
            None => f64::INFINITY,
        }
    }

    /// Returns whether a block is one of the last. No later block needs their workers, and the stream ends when they
    /// are encoded and written.
    pub(super) fn is_ending(&self, blocks_behind: f64) -> bool {
        blocks_behind < self.plant().workers as f64
    }

    /// Returns the time of all cores together that the blocks and the application's computing needed.
    pub(super) fn asked(&self) -> f64 {
        self.core_seconds / self.plant().workers as f64 + self.solver_seconds
    }

    /// Returns the rest of a promised time for a block of given uncompressed time, while the link has a backlog.
    pub(super) fn left(
        &self,
        outlook: &Outlook,
        now: Seconds,
        (block, backlog): (f64, f64),
        blocks_behind: f64,
    ) -> Left {
        let Goal::Within(factor) = self.goal else {
            return Left {
                seconds: f64::INFINITY,
                saved_blocks: 0.0,
                blocks_behind,
            };
        };
        let clock = now.0 - self.paused;
        let taken = match outlook.asynchronism > 0.0 {
            true => self.asked().max(clock),
            false => clock,
        };
        let seconds = factor * (self.raw_seconds + block) - taken;
        Left {
            seconds: seconds + self.lent(factor, blocks_behind),
            saved_blocks: (seconds - backlog) / (factor * block),
            blocks_behind,
        }
    }

    /// Returns the time that the last blocks can give back to an earlier one: their allowance less their need, if they
    /// are like those of the window. Only as many count as the buffers hold. So a stream that ends before its pledge is
    /// late by no more.
    fn lent(&self, factor: f64, blocks_behind: f64) -> f64 {
        if blocks_behind > self.plant().frames as f64 {
            return 0.0;
        }
        let spare = |it: &Group| factor * self.raw_seconds_of(it) - self.least_seconds_of(it);
        let spare: f64 = self.window.iter().map(spare).sum();
        blocks_behind * spare / self.window.len() as f64
    }

    /// Returns the least time for blocks, with workers and link both kept busy.
    fn least_seconds_of(&self, group: &Group) -> f64 {
        let seconds = self.known(group.class, group.block_bytes()).map(|it| {
            let work = self.wall_of(it) / self.plant().workers as f64;
            work.max(self.transit.write_seconds(it.stored_bytes.mean))
        });
        seconds.fold(self.raw_seconds_of(group), f64::min)
    }
}
