//! The worth of memory, by the recent requests.
//!
//! A byte that is held from one end of the queue to the other is worth some misses: those that an item in its place
//! would spare. That is the remembered share of items that were fetched before they reached the end. If there were
//! none, a small share is assumed while anything is fetched at all. Otherwise a store too small for hits would give its
//! memory no value, and would hold little for ever. If values are stored and never requested, the memory is worth
//! nothing in the end, and nothing is encoded for its sake.

use super::books::ClassCounts;
use super::coding::Tally;
use crate::units::Seconds;

/// The least assumed share of fetched items at the end of their queue, where there is a fetch for each stored value.
const FETCHED_SHARE_MIN: f64 = 0.01;
/// After so many turnovers of the held items, the earlier counts weigh a third. A memory that is filled before the
/// first fetch is filled like one in use.
const TURNOVERS_REMEMBERED: f64 = 4.0;
/// The start: as if a hundred items had reached the end, and one in twenty had been fetched.
const JUDGED_AT_FIRST: f64 = 100.0;
const FETCHED_AT_FIRST: f64 = 5.0;
/// Bytes of index for an item.
const INDEX_BYTES: f64 = 14.0;

/// The requests, with old ones forgotten.
#[derive(Debug)]
pub(super) struct Demand {
    judged: f64,
    judged_fetched: f64,
    /// Fetches for each stored value, at most 1.
    asked: f64,
    seen: Tally,
}

impl Default for Demand {
    fn default() -> Demand {
        Demand {
            judged: 0.0,
            judged_fetched: 0.0,
            asked: 1.0,
            seen: Tally::default(),
        }
    }
}

impl Demand {
    /// Adds the counts since the last time.
    pub fn follow(&mut self, tally: &Tally) {
        // The counts may have been reset in the meantime.
        let since =
            |count: fn(&Tally) -> u64| count(tally).saturating_sub(count(&self.seen)) as f64;
        let remembered = TURNOVERS_REMEMBERED * tally.items.max(1) as f64;
        let judged = since(|it| it.judged);
        let kept = (-judged / remembered).exp();
        self.judged = self.judged * kept + judged;
        self.judged_fetched = self.judged_fetched * kept + since(|it| it.judged_fetched);
        let stored = since(|it| it.stored);
        let kept = (-stored / remembered).exp();
        let asked = (since(|it| it.fetches) / stored.max(1.0)).min(1.0);
        self.asked = self.asked * kept + asked * (1.0 - kept);
        self.seen = tally.clone();
    }

    /// Returns the counts of each class.
    pub fn counts(&self) -> &[ClassCounts] {
        &self.seen.classes
    }

    /// Returns the worth, in misses, of a byte that is held from one end of the queue to the other.
    pub fn worth_of_byte(&self, miss: Seconds) -> f64 {
        let share = (self.judged_fetched + FETCHED_AT_FIRST) / (self.judged + JUDGED_AT_FIRST);
        let item_bytes = self.seen.bytes as f64 / self.seen.items.max(1) as f64 + INDEX_BYTES;
        share.max(FETCHED_SHARE_MIN * self.asked) * miss.0 / item_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the worth of a byte after so many turnovers of a memory of 1000 items of 186 bytes. The unit is its
    /// worth if one item in a hundred of such a memory were fetched.
    fn worth(
        turnovers: u64,
        fetched_percent: u64,
        fetches_a_store: u64,
        before: Demand,
    ) -> (f64, Demand) {
        let mut demand = before;
        for _ in 0..turnovers {
            let seen = &demand.seen;
            let tally = Tally {
                items: 1000,
                bytes: 186_000,
                judged: seen.judged + 1000,
                judged_fetched: seen.judged_fetched + 10 * fetched_percent,
                stored: seen.stored + 1000,
                fetches: seen.fetches + 1000 * fetches_a_store,
                ..Tally::default()
            };
            demand.follow(&tally);
        }
        let worth = demand.worth_of_byte(Seconds(200.0)) / 0.01;
        (worth, demand)
    }

    #[test]
    fn memory_is_worth_what_is_asked_of_it() {
        let check = |found: f64, least: f64, most: f64| {
            assert!(
                (least..=most).contains(&found),
                "{least} <= {found} <= {most}"
            );
        };
        // A fetch counts at once, and its absence only after a long time.
        check(worth(1, 50, 2, Demand::default()).0, 40.0, 50.0);
        check(worth(40, 0, 2, Demand::default()).0, 0.9, 1.1);
        // A memory that is filled once or twice is worth something before the first fetch.
        check(worth(2, 0, 0, Demand::default()).0, 0.6, 1.0);
        let (found, unasked) = worth(40, 0, 0, Demand::default());
        check(found, 0.0, 0.2);
        check(worth(8, 0, 1, unasked).0, 0.8, 1.0);
        let (_, asked) = worth(40, 50, 2, Demand::default());
        check(worth(40, 0, 0, asked).0, 0.0, 0.2);
    }
}
