//! The prices: the balance for the last blocks, and how present observations tip it.

use crate::decide::{Prices, Quantities};
use crate::model::prices::HIRSCH_2017;
use crate::units::{Estimate, Seconds};

use super::super::hint::Outlook;
use super::balance::{Group, Weighed, join, turn};
use super::promise::Left;
use super::{Controller, Goal};

/// Odds of the two prices of the fastest end beyond which the lesser counts for nothing. A price of
/// nothing would waste the workers on a gain of nothing.
const ODDS_MAX: f64 = 1e3;
/// The most by which full or empty buffers move the logarithm of these odds, to either side.
const FILL_ODDS: f64 = 0.25;
/// Blocks' worth of saved time at which a goal with a time halves the price of work.
const SAVED_BLOCKS: f64 = 4.0;

impl Controller {
    /// Returns the prices of the window, tipped by the present state. Where a time is promised, the saved blocks' worth
    /// of it tips them.
    pub(super) fn prices_now(
        &self,
        outlook: &Outlook,
        now: Seconds,
        (block, backlog): (f64, f64),
        left: &Left,
    ) -> Prices {
        match self.goal {
            Goal::Fastest if self.is_ending(left.blocks_behind) => self.prices_of_time(0.0),
            Goal::Fastest => {
                let room = self
                    .transit
                    .plant
                    .frames
                    .saturating_sub(self.plant().workers)
                    .max(1);
                let waiting = (self.transit.blocks() + 1).saturating_sub(self.plant().workers);
                // Many small frames or few large ones: either way the link has enough to do.
                let waiting = (waiting as f64).max(backlog / self.period);
                let fill = (waiting / room as f64).min(1.0);
                let mut tip = (FILL_ODDS * (1.0 - 2.0 * fill)).exp();
                if outlook.asynchronism > 0.0 {
                    // The buffers do not show that the application will be late.
                    let late = self.asked() - (now.0 - self.paused);
                    tip *= (late / block).max(0.0).exp2().min(ODDS_MAX);
                }
                let work = self.prices.per_core_second.mean * self.plant().workers as f64 * tip;
                self.prices_of_time(work / (work + self.link_second(&self.prices)))
            }
            Goal::Within(_) => {
                // Near the end there are few blocks left to spend it on.
                let halving = SAVED_BLOCKS.min((left.blocks_behind + 1.0) / 2.0);
                let tip = (-left.saved_blocks / halving).clamp(-4.0, 4.0);
                self.prices_of_bytes(self.prices.per_core_second.mean * tip.exp2())
            }
            Goal::Smallest | Goal::Money { .. } | Goal::Energy { .. } => self.prices,
        }
    }

    /// Returns the cost of a second of the link: 0 where bytes are counted and not time.
    pub(super) fn link_second(&self, prices: &Prices) -> f64 {
        match self.goal {
            Goal::Fastest => prices.per_byte_written.mean / self.transit.byte_seconds(),
            _ => 0.0,
        }
    }

    /// Prices of a worker's second, of a byte and an operation of the link, read or written, and of a
    /// byte held for a second.
    pub(super) fn prices(work: f64, byte: f64, operation: f64, held: f64) -> Prices {
        Prices {
            per_core_second: Estimate::exact(work),
            per_byte_written: Estimate::exact(byte),
            per_byte_read: Estimate::exact(byte),
            per_write_operation: Estimate::exact(operation),
            per_read_operation: Estimate::exact(operation),
            per_byte_second_held: Estimate::exact(held),
        }
    }

    /// Returns the prices of the fastest end at a lambda, in seconds.
    fn prices_of_time(&self, lambda: f64) -> Prices {
        let link = 1.0 - lambda;
        Controller::prices(
            lambda / self.plant().workers as f64,
            link * self.transit.byte_seconds(),
            link * self.plant().write_overhead.0,
            held_seconds_per_byte_second(),
        )
    }

    /// Returns the prices of the fewest bytes at a price of work, in bytes written.
    fn prices_of_bytes(&self, work: f64) -> Prices {
        let held = held_seconds_per_byte_second() / self.transit.byte_seconds();
        Controller::prices(work, 1.0, 0.0, held)
    }

    /// Finds the prices at which the balance lies for the blocks of the window.
    pub(super) fn reprice(&mut self) {
        self.link_priced = self.transit.link();
        self.is_window_other = false;
        match self.goal {
            Goal::Fastest => {
                self.weigh(&self.prices_of_time(0.0), &self.prices_of_time(1.0));
                let balance = &self.scratch.balance;
                let is_too_low = |lambda| {
                    let (work, write) = balance.needs_at(lambda);
                    work > write
                };
                let odds_min = 1.0 / (1.0 + ODDS_MAX);
                let lambda = turn(0.0..1.0, is_too_low).clamp(odds_min, 1.0 - odds_min);
                // The dual's value: it is the same on both sides of a tie, where the sums are not.
                let (work, write) = balance.needs_at(lambda);
                self.prices = self.prices_of_time(lambda);
                self.set_period(lambda * work + (1.0 - lambda) * write);
            }
            Goal::Within(factor) => {
                self.weigh(&self.prices_of_bytes(0.0), &self.prices_of_bytes(1.0));
                let groups = &self.scratch.groups;
                let raw: f64 = groups.iter().map(|it| self.raw_seconds_of(it)).sum();
                let at = |log: f64| f64::exp2(log) / self.plant().workers as f64;
                let balance = &self.scratch.balance;
                let is_too_low = |log| balance.needs_at(at(log)).0 > factor * raw;
                self.prices = self.prices_of_bytes(at(turn(-10.0..60.0, is_too_low)));
                let count: f64 = groups.iter().map(|it| it.count).sum();
                if count > 0.0 {
                    self.period = factor * raw / count;
                }
            }
            Goal::Smallest => self.prices = self.prices_of_bytes(0.0),
            Goal::Money { prices, .. } | Goal::Energy { prices, .. } => self.prices = prices,
        }
    }

    /// Gathers the blocks that prices are found for, alike ones together.
    fn gather(&mut self) {
        let groups = &mut self.scratch.groups;
        groups.clear();
        match self.goal {
            Goal::Within(_) => groups.extend_from_slice(&self.past),
            _ => self.window.iter().for_each(|it| join(groups, it)),
        }
    }

    /// Weighs the blocks of the window at the two ends of a price, 0 and 1.
    fn weigh(&mut self, at_zero: &Prices, at_one: &Prices) {
        self.gather();
        for index in 0..self.scratch.groups.len() {
            let group = self.scratch.groups[index];
            if let Some(class) = group.class {
                let (usual, terms) = self.kind_of(class, group.block_bytes());
                self.chooser.know(&usual, &terms);
            }
        }
        let mut balance = std::mem::take(&mut self.scratch.balance);
        balance.clear();
        for group in &self.scratch.groups {
            let raw_seconds = self.raw_seconds_of(group);
            // The application's computing counts as work.
            balance.work += group.outlook.asynchronism * raw_seconds;
            let Some(class) = group.class else {
                balance.write += raw_seconds;
                continue;
            };
            let usual = self.goal.usual_life(class, group.block_bytes());
            let life = group.outlook.life(usual);
            let weighed = |it: &Quantities| {
                let zero = it.cost(&life, at_zero);
                let work = match group.outlook.asynchronism > 0.0 {
                    // The block waits for the application's computing, which is counted already.
                    true => it.encode_core_seconds.mean,
                    false => self.wall_of(it),
                };
                Weighed {
                    at_zero: zero,
                    per_price: it.cost(&life, at_one) - zero,
                    work: work / self.plant().workers as f64,
                    write: self.transit.write_seconds(it.stored_bytes.mean),
                }
            };
            let known = self.known(group.class, group.block_bytes());
            balance.arms.extend(known.map(weighed));
            balance.groups.push((group.count, balance.arms.len()));
        }
        self.scratch.balance = balance;
    }

    /// Returns the uncompressed time of blocks.
    pub(super) fn raw_seconds_of(&self, group: &Group) -> f64 {
        group.count * self.plant().write_overhead.0 + group.raw_bytes * self.transit.byte_seconds()
    }

    fn set_period(&mut self, window_seconds: f64) {
        if !self.window.is_empty() {
            self.period = window_seconds / self.window.len() as f64;
        }
    }
}

/// Returns the cost of holding a byte for a second, in seconds of the machine that writes it: one rent against the
/// other.
///
/// Source: Hirsch 2017, sections 3.4.1 and 3.4.2.
pub fn held_seconds_per_byte_second() -> f64 {
    let second = Seconds(1.0);
    let held = HIRSCH_2017.storage_cost(1.0, second).total();
    held.0 / HIRSCH_2017.machine_cost(second).total().0
}
