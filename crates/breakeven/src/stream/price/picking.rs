//! The arm of a block: what each would cost with the waits that it would cause, and the least of them, or
//! one worth trying.

use crate::decide::{Class, Prices, Quantities};
use crate::statistics::mean_excess;
use crate::units::Seconds;

use super::super::hint::Outlook;
use super::arms::{Costs, least};
use super::parts::{Shares, Spell};
use super::trial::{TRIAL_SECONDS, Trial, Trials};
use super::{Controller, Goal, Taken, booking};

/// Blocks' time of every worker for which the link has something to do where it need not be feared to wait.
const LASTING_ROUNDS: f64 = 2.0;

/// A choice for a block.
pub struct Picked {
    pub arm: usize,
    pub way: Shares,
    /// Until it is encoded.
    pub latency: f64,
    pub trial: Option<Trial>,
}

impl Controller {
    /// Picks the arm of least cost, or one worth trying; with what trying may cost, if it is that.
    ///
    /// An arm of which nothing was seen is a trial, charged as bad as it may be until it is done.
    pub(super) fn pick(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        now: Seconds,
    ) -> Picked {
        let mut costs = std::mem::take(&mut self.scratch.costs);
        let picked = self.pick_by(class, raw_bytes, outlook, now, &mut costs);
        self.scratch.costs = costs;
        picked
    }

    fn pick_by(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        now: Seconds,
        costs: &mut Costs,
    ) -> Picked {
        let known = &self.known[&class];
        let life = outlook.life(known.life);
        let backlog = self.transit.backlog(now);
        let block = self.transit.write_seconds(life.raw_bytes as f64);
        let behind = self.blocks_behind(raw_bytes, outlook);
        let left = self.left(outlook, now, (block, backlog), behind);
        let prices = self.prices_now(outlook, now, (block, backlog), &left);
        let is_bold = matches!(self.goal, Goal::Within(_));
        let mut delays = std::mem::take(&mut costs.delays);
        self.transit.gather_helpers(now, &mut delays);
        let spell_of = |it: &Quantities, parts: usize| Spell::of(self.wall_of(it), parts, &delays);
        costs.fill(known, is_bold, |it, parts| {
            let spell = spell_of(it, parts);
            it.cost(&life, &prices)
                + self.waits(&spell, parts, &prices, backlog, self.surprise.sqrt())
                + self.lateness(it, spell.latency, left.seconds, backlog)
                + self.drain(it, parts, &prices, backlog)
        });
        let Costs { ways, fearful, .. } = &*costs;
        let best = least(fearful);
        let second =
            prices.per_core_second.mean * self.plant().workers as f64 + self.link_second(&prices);
        let earned = self.trials.earned();
        let lent = Trials::lent(self.plant().workers, fearful[best], second);
        // Where a time is promised a trial is paid in bytes, and late all the same.
        let curious = if is_bold { f64::NEG_INFINITY } else { earned };
        let on_trial = |arm: usize| self.transit.has_trial_of(arm, class);
        let allowed = (curious, earned + lent);
        let chosen = match self.goal {
            // Nothing behind it pays for a trial; where nothing tells two apart, bytes are the surer gain.
            Goal::Fastest if self.is_ending(behind) => {
                costs.densest_tie(known, allowed.1, TRIAL_SECONDS)
            }
            _ => costs.worth_trying(known, best, allowed, behind, on_trial),
        };
        let way = ways[chosen];
        let expected = way.of(&known.likely[chosen]);
        let spell = spell_of(&expected, way.parts);
        let trial = (chosen != best).then(|| Trial {
            arm: chosen,
            charge: fearful[chosen] - fearful[best],
            best_cost: fearful[best],
            expected,
            parts: way.parts,
            spell,
            life,
            prices,
            backlog,
        });
        self.saved_blocks = left.saved_blocks;
        self.trials.chose(fearful[best], trial.as_ref());
        costs.delays = delays;
        Picked {
            arm: chosen,
            way,
            latency: spell.latency,
            trial,
        }
    }

    /// Replaces what was feared of a trial by what it took.
    pub(super) fn settle(&mut self, trial: &Trial, taken: &Taken) {
        let quantities = booking::real(&trial.expected, taken);
        let longer = self.wall_of(&quantities) / self.wall_of(&trial.expected).max(1e-12);
        let spell = trial.spell.times(longer);
        let cost = quantities.cost(&trial.life, &trial.prices)
            + self.waits(&spell, trial.parts, &trial.prices, trial.backlog, 0.0);
        self.trials.settle(trial, cost);
    }

    /// Returns what the waits cost while a block is encoded: of the link that has sent everything
    /// before it, of the workers that do not help when all buffers are behind it, and of the one who has
    /// it, for the last of its parts: on the mean, where it takes longer or shorter by `deviation`, a
    /// share.
    fn waits(
        &self,
        spell: &Spell,
        parts: usize,
        prices: &Prices,
        backlog: f64,
        deviation: f64,
    ) -> f64 {
        let others = self.plant().workers.saturating_sub(parts) as f64;
        let deviation = deviation * spell.latency;
        // When all workers were at its parts, the link waits for the block after it as well.
        let next = match parts > 1 && others == 0.0 {
            true => self.worker_seconds().0,
            false => 0.0,
        };
        let link = self.link_second(prices);
        let starved = match link > 0.0 {
            true => mean_excess(spell.latency + next, backlog, deviation),
            false => 0.0,
        };
        let stalled = mean_excess(spell.latency, self.room(), deviation) * others;
        starved * link + (stalled + spell.idle) * prices.per_core_second.mean
    }

    /// Returns what a block in parts costs the blocks behind it: while all workers are at it they give the link
    /// less to do than it sends, and where little is left, it waits for these blocks in the place of this one.
    /// Workers' time is cheap where the link is what all wait for, and so nothing else keeps a method that
    /// takes twice as much of it from block after block, each split lest the link wait for it.
    fn drain(&self, it: &Quantities, parts: usize, prices: &Prices, backlog: f64) -> f64 {
        if parts == 1 || self.period.is_infinite() {
            return 0.0;
        }
        let workers = self.plant().workers as f64;
        let missing = (LASTING_ROUNDS - backlog / (workers * self.period)).clamp(0.0, 1.0);
        let write = self.transit.write_seconds(it.stored_bytes.mean);
        let longer = (self.wall_of(it) / workers - write).max(0.0);
        missing * longer * self.link_second(prices)
    }
}
