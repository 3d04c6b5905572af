//! Making room: segments are emptied a few items at a time, by S3-FIFO.
//!
//! S3-FIFO (Yang et al. 2023): new items wait in a short queue. Fetched items go on to the main one, and the others
//! leave. The main queue gives each item one more round for each fetch, up to three. Here the queues consist of
//! segments, and all items of the oldest are judged before it is freed. The short queue has two parts: fresh items in
//! their first form, and behind them encoded items without a fetch so far. An item that moves on is encoded as its
//! class is (`recode.rs`). Where no class is encoded, fresh segments become cold ones unchanged, except for some that
//! serve as samples.
//!
//! Without eviction, items are encoded when they leave the fresh queue. Otherwise they only move together, where enough
//! of a segment is dead.
//!
//! While memory is not short, overwritten bytes would lie dead until it is. The store does not ask the system for more
//! than twice the live bytes, though. The items of mostly dead segments then move together, unchanged
//! ([`Shard::tidy`]).

use super::index::Place;
use super::item::FETCHED;
use super::log::{Content, Queue};
use super::shard::{Found, Shard};
use super::space::Purpose;

/// The slabs of fresh items, of a hundred slabs of a shard's share, above which the oldest of them move on. Each takes
/// the room of one slab of encoded items. A value overwritten or deleted within that time is never encoded.
pub(super) const FRESH_PERCENT: u64 = 6;
/// The slabs of items that are raw again, of a hundred slabs of a shard's share. Above that the oldest of these items
/// are encoded before anything is dropped.
const HOT_PERCENT: u64 = 2;
/// The slabs of fresh and cold items, of a hundred slabs of a shard's share, from which the oldest of them are judged.
const SHORT_PERCENT: u64 = 10;

/// One ageing segment in so many is looked at where no class is encoded, so that the learner follows the values.
const AGED_LOOKED_AT_ONE_IN: u32 = 8;

/// Slabs that a shard may always hold before it looks for dead bytes, since slabs that are being filled are not full.
const TIDY_SLABS_MIN: u64 = 2;

/// The orders for a shard to make room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duty {
    /// The most items to look at.
    pub items: usize,
    /// Whether items may be dropped before their end.
    pub evicts: bool,
    /// Whether to begin with dropping items: moving them freed nothing.
    pub drops: bool,
    /// The number of slabs in this shard's share.
    pub share_slabs: u64,
    pub now: u32,
}

impl Duty {
    /// Whether a segment must be freed now, because a value waits to be stored.
    fn is_urgent(&self) -> bool {
        self.items == usize::MAX
    }
}

/// The outcome of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// A segment was freed.
    Freed,
    /// Items were looked at; there is more to do.
    More,
    /// Nothing can be freed now.
    Nothing,
}

impl Shard {
    /// Goes on with the segment that is being emptied, or begins with another.
    pub fn work(&mut self, duty: Duty) -> Progress {
        self.follow();
        let progress = self
            .expire_segment(duty.now)
            .unwrap_or_else(|| self.empty_some(duty));
        self.settle();
        progress
    }

    /// Frees one segment whose items are all past their end. Segments are looked through once a second.
    pub fn expire_segment(&mut self, now: u32) -> Option<Progress> {
        if self.expiry_scanned >= now {
            return None;
        }
        let Some(number) = self.log.take_expired(now) else {
            self.expiry_scanned = now;
            return None;
        };
        let end = self.log.used(number);
        let mut at = 0;
        while at < end {
            let place = Place {
                segment: number,
                offset: at,
            };
            let (found, next) = self.item_at(place);
            at = next;
            if let Some(found) = found {
                // No other thread frees it while items are taken out one by one.
                let emptying = std::mem::replace(&mut self.log.emptying, number);
                self.expire(found);
                self.log.emptying = emptying;
            }
        }
        self.log.free(number);
        Some(Progress::Freed)
    }

    /// Goes on freeing a mostly dead segment, where more is dead than live.
    pub fn tidy(&mut self, items: usize, now: u32) {
        if self.log.emptying == 0 {
            let wasted = self.log.items_bytes() as u64
                > 2 * self.stats.bytes + TIDY_SLABS_MIN * self.log.slab_bytes() as u64;
            let Some(number) = wasted.then(|| self.log.take_sparsest()).flatten() else {
                return;
            };
            self.log.emptying = number;
            self.cursor = 0;
            self.is_tidying = true;
        } else if !self.is_tidying {
            return;
        }
        let number = self.log.emptying;
        let end = self.log.used(number);
        for _ in 0..items {
            if self.cursor >= end {
                break;
            }
            let place = Place {
                segment: number,
                offset: self.cursor,
            };
            let (found, next) = self.item_at(place);
            match found {
                Some(found) if found.header.is_expired(now) => self.expire(found),
                Some(found) if !self.shift(found, now) => {
                    self.log.emptying = 0;
                    self.log.put_back(number);
                    return;
                }
                _ => {}
            }
            self.cursor = next;
        }
        if self.cursor >= end {
            self.log.emptying = 0;
            self.log.free(number);
            self.settle();
        }
    }

    /// Moves an item unchanged to the end of its queue. False if there is no slab.
    fn shift(&mut self, found: Found, now: u32) -> bool {
        let queue = self.log.segment(found.place.segment).queue;
        let mut item = std::mem::take(&mut self.moving);
        item.clear();
        let key_bytes = usize::from(found.header.key_bytes);
        let bytes = key_bytes + found.header.stored.inline_bytes();
        item.extend_from_slice(self.log.bytes(found.place.segment, found.key_at, bytes));
        let form = self.form_of(&found).cloned();
        let content = Content {
            header: &found.header,
            key: &item[..key_bytes],
            stored: [&item[key_bytes..], &[]],
            form: form.as_ref(),
        };
        let place = self.log.append((queue, Purpose::New), content, now);
        if let Some(place) = place {
            let frequency = self.index.frequency(found.spot);
            self.index.redirect(found.spot, place, frequency);
            self.stats.moved += 1;
            self.stats.bytes += self.log.item_bytes(place) as u64;
            self.stats.bytes -= self.log.forget(found.place.segment, &found.header) as u64;
        }
        self.moving = item;
        place.is_some()
    }

    fn empty_some(&mut self, duty: Duty) -> Progress {
        self.is_tidying = false;
        if self.log.emptying == 0 {
            let Some(number) = self.choose_segment(duty) else {
                return Progress::Nothing;
            };
            self.log.emptying = number;
            self.cursor = 0;
        }
        let number = self.log.emptying;
        let end = self.log.used(number);
        for _ in 0..duty.items {
            if self.cursor >= end {
                break;
            }
            let place = Place {
                segment: number,
                offset: self.cursor,
            };
            let (found, next) = self.item_at(place);
            if found.is_some_and(|found| !self.judge(found, duty)) {
                if !duty.evicts {
                    self.log.emptying = 0;
                    self.log.put_back(number);
                }
                return Progress::Nothing;
            }
            self.cursor = next;
        }
        if self.cursor < end {
            return Progress::More;
        }
        self.log.emptying = 0;
        self.log.free(number);
        Progress::Freed
    }

    /// Whether this shard should make room first. It should if there are fresh items to encode, a segment is half
    /// empty, or the shard holds more than its share. Otherwise the busiest shards would drop items first, while others
    /// hold items raw.
    pub fn is_due(&self, duty: Duty) -> bool {
        let fresh = u64::from(self.log.slabs_of(Queue::Fresh));
        self.log.emptying != 0
            || fresh * 100 > duty.share_slabs * FRESH_PERCENT
            || u64::from(self.log.slabs()) * 8 > duty.share_slabs * 9
    }

    /// Whether the next to make room are fresh items, because there are twice as many as needed.
    pub fn has_more_fresh_than_due(&self) -> bool {
        let fresh = u64::from(self.log.slabs_of(Queue::Fresh));
        fresh * 100 > u64::from(self.log.slabs()) * 2 * FRESH_PERCENT
    }

    /// Lets fresh segments become cold unchanged, where no item would change on the way.
    fn age(&mut self, duty: Duty) {
        let is_old = |fresh: u32| u64::from(fresh) * 100 > duty.share_slabs * FRESH_PERCENT;
        while duty.evicts && self.plan.is_raw() && is_old(self.log.slabs_of(Queue::Fresh)) {
            self.aged = self.aged.wrapping_add(1);
            if self.aged.is_multiple_of(AGED_LOOKED_AT_ONE_IN) || !self.log.age_oldest() {
                break;
            }
        }
    }

    fn choose_segment(&mut self, duty: Duty) -> Option<u32> {
        self.age(duty);
        let fresh = u64::from(self.log.slabs_of(Queue::Fresh));
        let short = fresh + u64::from(self.log.slabs_of(Queue::Cold));
        let is_above = |slabs: u64, percent: u64| slabs * 100 > duty.share_slabs * percent;
        let is_old = is_above(fresh, FRESH_PERCENT);
        let is_hot = is_above(self.log.slabs_of(Queue::Hot).into(), HOT_PERCENT);
        if !duty.evicts {
            let oldest = match is_old && self.coding.is_some() {
                true => self.log.oldest(Queue::Fresh),
                false => None,
            };
            return oldest.or_else(|| self.log.take_sparsest());
        }
        use Queue::{Cold, Fresh, Hot, Main};
        let order = match (is_old, is_hot, is_above(short, SHORT_PERCENT)) {
            _ if duty.drops => [Cold, Main, Hot, Fresh],
            (true, ..) => [Fresh, Hot, Cold, Main],
            (false, true, _) => [Hot, Cold, Main, Fresh],
            (false, false, true) => [Cold, Main, Hot, Fresh],
            (false, false, false) => [Main, Cold, Hot, Fresh],
        };
        order.into_iter().find_map(|queue| self.log.oldest(queue))
    }

    /// Returns the item at a place if the index still points to it, and the start of the next one.
    pub fn item_at(&self, place: Place) -> (Option<Found>, u32) {
        let (header, key_at) = self.log.header(place);
        let base = self.log.segment(place.segment).base;
        let next = place.offset + header.item_bytes(base) as u32;
        if self.log.is_dead(place) {
            return (None, next);
        }
        let key = self
            .log
            .bytes(place.segment, key_at, header.key_bytes.into());
        let spot = self.index.find(self.hash.of(key), |found| found == place);
        (
            spot.map(|(spot, place)| Found {
                spot,
                place,
                header,
                key_at,
            }),
            next,
        )
    }

    /// Moves an item, or drops it. False if there is no slab for the move, and the item may stay in place for now.
    /// Another shard has then begun a slab and will soon free another.
    fn judge(&mut self, found: Found, duty: Duty) -> bool {
        if found.header.is_expired(duty.now) {
            self.expire(found);
            return true;
        }
        let frequency = self.index.frequency(found.spot);
        let queue = self.log.segment(found.place.segment).queue;
        if !duty.evicts {
            let queue = match queue {
                Queue::Fresh | Queue::Hot if self.coding.is_some() => Queue::Main,
                queue => queue,
            };
            return self.move_to(found, queue, frequency, duty.now);
        }
        if matches!(queue, Queue::Cold | Queue::Main) {
            self.stats.judged += 1;
            self.stats.judged_fetched += u64::from(frequency > 0);
        }
        let (stays, to, left) = match (queue, frequency) {
            (Queue::Fresh, 0) => (self.coding.is_some(), Queue::Cold, 0),
            (Queue::Hot, _) => (true, Queue::Main, frequency),
            (Queue::Main, _) => (frequency > 0, Queue::Main, frequency.saturating_sub(1)),
            (Queue::Fresh | Queue::Cold, _) => (frequency > 0, Queue::Main, 0),
        };
        let is_moved = stays && self.move_to(found, to, left, duty.now);
        let may_wait = stays && !duty.is_urgent();
        if !is_moved && !may_wait {
            self.evict(found);
        }
        is_moved || !may_wait
    }

    fn evict(&mut self, found: Found) {
        self.stats.evictions += 1;
        self.stats.evicted_unfetched += u64::from(found.header.bits & FETCHED == 0);
        self.remove(found);
    }
}
