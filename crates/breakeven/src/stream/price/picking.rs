//! The arm of a block: the chooser's terms for it, and the queue's addition to each arm's cost.

use crate::decide::{BlockLife, Class, Decision, Picked, Prices, Quantities, TRIAL_SECONDS, Terms};
use crate::units::{Estimate, Seconds};

use super::super::hint::Outlook;
use super::super::split::PART_BYTES_MIN;
use super::parts::Spell;
use super::promise::Left;
use super::waits::Waits;
use super::{Controller, Goal};

/// The pick for a block, and its reason.
pub struct Way {
    pub picked: Picked,
    pub life: BlockLife,
    pub prices: Prices,
    pub expected: Quantities,
    /// The expected spell of encoding it.
    pub spell: Spell,
    pub waits: Waits,
}

impl Controller {
    /// Picks the arm of least cost, or one worth trying.
    pub(super) fn pick(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        now: Seconds,
    ) -> Way {
        let (usual, terms) = self.kind_of(class, raw_bytes);
        let life = outlook.life(usual);
        self.chooser.know(&life, &terms);
        let backlog = self.transit.backlog(now);
        let block = self.transit.write_seconds(raw_bytes as f64);
        let behind = self.blocks_behind(raw_bytes, outlook);
        let left = self.left(outlook, now, (block, backlog), behind);
        let prices = self.prices_now(outlook, now, (block, backlog), &left);
        self.saved_blocks = left.saved_blocks;
        let waits = self.waits(&prices, backlog, &left);
        let terms = self.terms(terms, &prices, behind);
        let mut delays = std::mem::take(&mut self.scratch.delays);
        self.transit.gather_helpers(now, &mut delays);
        let Controller { chooser, parts, .. } = self;
        let picked = chooser.pick_on(&life, &prices, &terms, |at, it| {
            added(&waits, it, (raw_bytes, parts[at % parts.len()]), &delays)
        });
        let expected = chooser.expected(class, raw_bytes).nth(picked.candidate);
        let expected = *expected.expect("it was picked for");
        let wall = waits.wall_of(&expected);
        let spell = Spell::of(wall, parts[picked.candidate % parts.len()], &delays);
        self.scratch.delays = delays;
        Way {
            picked,
            life,
            prices,
            expected,
            spell,
            waits,
        }
    }

    /// Returns the decision behind a pick, with its prices and waits.
    pub(super) fn decision_of(&mut self, way: &Way) -> Decision {
        let Controller {
            chooser,
            parts,
            scratch,
            ..
        } = self;
        let (life, prices) = (&way.life, &way.prices);
        chooser.decided(way.picked.candidate, life, prices, |at, it| {
            let form = (life.raw_bytes, parts[at % parts.len()]);
            Estimate::exact(added(&way.waits, it, form, &scratch.delays))
        })
    }

    /// Returns the chooser's terms for a block, beside those for all like it.
    fn terms(&self, kind: Terms, prices: &Prices, blocks_behind: f64) -> Terms {
        let workers = self.plant().workers as f64;
        let is_bold = matches!(self.goal, Goal::Within(_));
        let is_ending = self.goal == Goal::Fastest && self.is_ending(blocks_behind);
        Terms {
            blocks_behind,
            second_cost: prices.per_core_second.mean * workers + self.link_second(prices),
            // Where a time is promised, a trial costs bytes, and may be late as well.
            is_curious: !is_bold,
            is_bold,
            // Without a known difference, bytes are the surer gain.
            unnoticed_cost: is_ending.then_some(TRIAL_SECONDS),
            ..kind
        }
    }

    fn waits(&self, prices: &Prices, backlog: f64, left: &Left) -> Waits {
        Waits {
            workers: self.plant().workers,
            wall: self.wall,
            period: self.period,
            room: self.room(),
            backlog,
            deviation: self.surprise.sqrt(),
            link_second: self.link_second(prices),
            core_second: prices.per_core_second.mean,
            write_overhead: self.plant().write_overhead.0,
            byte_seconds: self.transit.byte_seconds(),
            left: left.seconds,
        }
    }
}

/// Returns the queue's addition to the cost of a block, by its bytes and parts; infinite where the parts would be too
/// short.
fn added(waits: &Waits, it: &Quantities, (raw_bytes, parts): (u64, usize), delays: &[f64]) -> f64 {
    if parts > 1 && raw_bytes.div_ceil(parts as u64) < PART_BYTES_MIN as u64 {
        return f64::INFINITY;
    }
    waits.cost(it, parts, &Spell::of(waits.wall_of(it), parts, delays))
}
