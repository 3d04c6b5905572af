//! The entry of a pick in the books. It has the expected cost of the pick, of the other arms and of storing, and the
//! real cost, in the goal's unit.

use crate::decide::{BlockLife, Class, Decision, Prices, Quantities, choose};
use crate::units::Estimate;

use super::super::hint::Outlook;
use super::{Controller, Goal, Taken};

/// A pick on its way to the books.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The expected costs, in the goal's unit ([`Goal::unit`]).
    pub decision: Decision,
    life: BlockLife,
    prices: Prices,
}

impl Entry {
    /// Returns the real cost of the block, in the unit and at the prices of the decision.
    pub fn real_cost(&self, taken: &Taken) -> f64 {
        real(&self.decision.quantities, taken).cost(&self.life, &self.prices)
    }
}

impl Controller {
    /// Returns the entry of a pick: an arm and a number of parts for a block, of a class that
    /// [`Controller::choose_for`] has seen.
    ///
    /// # Panics
    ///
    /// If there is no such arm.
    pub fn entry_for(
        &mut self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        (arm, parts): (usize, usize),
    ) -> Entry {
        let life = self.booked_life(class, raw_bytes, outlook);
        let prices = self.booked_prices();
        let form = self.parts.iter().position(|it| *it == parts);
        let candidate = arm * self.parts.len() + form.unwrap_or(0);
        let free = |_: usize, _: &Quantities| Estimate::exact(0.0);
        let decision = self.chooser.decided(candidate, &life, &prices, free);
        let store_cost = self.booked_store_cost(&life, &prices);
        Entry {
            decision: decision.against(store_cost),
            life,
            prices,
        }
    }

    /// Returns the entry of a block reported to [`Controller::pass`]. Its class is [`Class::UNSEEN`], and it had no
    /// alternative.
    pub fn entry_of_passed(&self, raw_bytes: u64, outlook: &Outlook) -> Entry {
        let life = self.booked_life(Class::UNSEEN, raw_bytes, outlook);
        let prices = self.booked_prices();
        let store_cost = self.booked_store_cost(&life, &prices);
        let decision = choose(&life, &prices, 1.0, std::iter::empty());
        Entry {
            decision: decision.against(store_cost),
            life,
            prices,
        }
    }

    /// Returns the life that a block is booked for: with goals of time and bytes, the writing alone.
    fn booked_life(&self, class: Class, raw_bytes: u64, outlook: &Outlook) -> BlockLife {
        let life = self.goal.usual_life(class, raw_bytes);
        match self.goal {
            Goal::Money { .. } | Goal::Energy { .. } => outlook.life(life),
            _ => life,
        }
    }

    /// Returns the prices that blocks are booked at.
    fn booked_prices(&self) -> Prices {
        // The known link, and not the one that a single long write may suggest.
        let byte_seconds = 1.0 / self.plant().link.0;
        let write_seconds = self.plant().write_overhead.0;
        match self.goal {
            Goal::Fastest => {
                let work = self.prices.per_core_second.mean;
                let link = 1.0 - work * self.plant().workers as f64;
                Controller::prices(work, link * byte_seconds, link * write_seconds, 0.0)
            }
            Goal::Money { prices, .. } | Goal::Energy { prices, .. } => prices,
            Goal::Within(_) | Goal::Smallest => Controller::prices(0.0, 1.0, 0.0, 0.0),
        }
    }

    /// Returns the cost of a block uncompressed, in the unit of the books.
    fn booked_store_cost(&self, life: &BlockLife, prices: &Prices) -> f64 {
        match self.goal {
            // A block alone in the pipeline would take the link as long as this, and hide all other work.
            Goal::Fastest => {
                self.plant().write_overhead.0 + life.raw_bytes as f64 / self.plant().link.0
            }
            _ => Quantities::of_store(life).cost(life, prices),
        }
    }
}

/// Returns the quantities that a block took, together with those that only a read can show.
pub(super) fn real(expected: &Quantities, taken: &Taken) -> Quantities {
    let it = &taken.observation;
    let stored = Estimate::exact(it.stored_bytes as f64);
    Quantities {
        // Core time: contention is added where waits are counted.
        encode_core_seconds: Estimate::exact(it.encode.unwrap_or(taken.wall).0),
        stored_bytes: stored,
        held_bytes: stored,
        ..*expected
    }
}
