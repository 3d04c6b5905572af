//! What a pick comes to in the books: what was expected of it, of the other arms and of storing, and
//! what it really cost, in the goal's unit.

use crate::codec::Method;
use crate::decide::{BlockLife, Class, Decision, Prices, Quantities};
use crate::units::Estimate;

use super::super::hint::Outlook;
use super::{Controller, Goal, Taken};

/// A pick on its way to the books.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// What was expected, in the goal's unit ([`Goal::unit`]).
    pub decision: Decision,
    life: BlockLife,
    prices: Prices,
}

impl Entry {
    /// Returns what the block really cost, in the unit and at the prices of the decision.
    pub fn real_cost(&self, taken: &Taken) -> f64 {
        real(&self.decision.quantities, taken).cost(&self.life, &self.prices)
    }
}

impl Controller {
    /// Returns the pick of an arm and of a number of parts for a block, of a class that
    /// [`Controller::choose_for`] has seen, as it goes to the books.
    ///
    /// # Panics
    ///
    /// If the class was never seen, or there is no such arm.
    pub fn entry_for(
        &self,
        class: Class,
        raw_bytes: u64,
        outlook: &Outlook,
        (arm, parts): (usize, usize),
    ) -> Entry {
        let known = &self.known[&class];
        let share = raw_bytes as f64 / known.life.raw_bytes.max(1) as f64;
        let mut life = BlockLife {
            raw_bytes,
            ..known.life
        };
        // Time and bytes are booked of the writing alone.
        if matches!(self.goal, Goal::Money { .. }) {
            life = outlook.life(life);
        }
        let prices = self.booked_prices();
        let way = known.partings[arm].in_parts_or_whole(parts);
        let picked = scaled(&way.of(&known.likely[arm]), share);
        let method = self.arms[arm];
        let others = self.arms.iter().zip(&known.likely);
        let others = others.map(|(&it, likely)| (it, scaled(likely, share).cost(&life, &prices)));
        let store_cost = self.booked_store_cost(&life, &prices);
        Entry {
            decision: Decision::picked(
                &life,
                (method, picked.cost(&life, &prices), picked),
                others,
                store_cost,
            ),
            life,
            prices,
        }
    }

    /// Returns the pick of a block that [`Controller::pass`] was told of, as it goes to the books: it is
    /// of class [`Class::UNSEEN`], and there was nothing to pick from.
    pub fn entry_of_passed(&self, raw_bytes: u64, outlook: &Outlook) -> Entry {
        let mut life = self.goal.usual_life(Class::UNSEEN, raw_bytes);
        if matches!(self.goal, Goal::Money { .. }) {
            life = outlook.life(life);
        }
        let prices = self.booked_prices();
        let stored = Quantities::of_store(&life);
        let store_cost = self.booked_store_cost(&life, &prices);
        let only = (Method::STORE, stored.cost(&life, &prices), stored);
        Entry {
            decision: Decision::picked(&life, only, std::iter::empty(), store_cost),
            life,
            prices,
        }
    }

    /// Returns the prices that blocks are booked at.
    fn booked_prices(&self) -> Prices {
        // The link as it is known, and not as one write that takes long may make it look.
        let byte_seconds = 1.0 / self.plant().link.0;
        let write_seconds = self.plant().write_overhead.0;
        match self.goal {
            Goal::Fastest => {
                let work = self.prices.per_core_second.mean;
                let link = 1.0 - work * self.plant().workers as f64;
                Controller::prices(work, link * byte_seconds, link * write_seconds, 0.0)
            }
            Goal::Money { prices, .. } => prices,
            Goal::Within(_) | Goal::Smallest => Controller::prices(0.0, 1.0, 0.0, 0.0),
        }
    }

    /// Returns what a block would have cost uncompressed, as it is booked.
    fn booked_store_cost(&self, life: &BlockLife, prices: &Prices) -> f64 {
        match self.goal {
            // Alone on its way it would take the link as long as this, and hide all other work.
            Goal::Fastest => {
                self.plant().write_overhead.0 + life.raw_bytes as f64 / self.plant().link.0
            }
            _ => Quantities::of_store(life).cost(life, prices),
        }
    }
}

/// Returns the quantities that a block took, beside what is only known when it is read.
pub(super) fn real(expected: &Quantities, taken: &Taken) -> Quantities {
    let it = &taken.observation;
    let stored = Estimate::exact(it.stored_bytes as f64);
    Quantities {
        // Core time: contention is put on it where waits are counted.
        encode_core_seconds: Estimate::exact(it.encode.unwrap_or(taken.wall).0),
        stored_bytes: stored,
        held_bytes: stored,
        ..*expected
    }
}

/// Returns the quantities of a block as long as a share of another.
fn scaled(of: &Quantities, share: f64) -> Quantities {
    let scaled = |it: Estimate| it.map(|value| value * share);
    Quantities {
        encode_core_seconds: scaled(of.encode_core_seconds),
        decode_core_seconds: scaled(of.decode_core_seconds),
        encode_device_joules: scaled(of.encode_device_joules),
        decode_device_joules: scaled(of.decode_device_joules),
        stored_bytes: scaled(of.stored_bytes),
        held_bytes: scaled(of.held_bytes),
    }
}
