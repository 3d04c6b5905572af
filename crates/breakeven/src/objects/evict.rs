//! Room is made: segments are emptied a few items at a time, by S3-FIFO.
//!
//! S3-FIFO (Yang et al. 2023): new items wait in a short queue, from which those that were fetched go on to the main
//! one and the others go; the main queue gives each item as many more rounds as it was fetched, up to three. Here
//! the queues consist of segments, and all items of the oldest are judged before it is freed.
//!
//! Without eviction items are only moved together, where enough of a segment is dead.

use super::index::Place;
use super::item::{FETCHED, Header};
use super::log::Queue;
use super::shard::{Found, Shard};
use super::space::Purpose;

/// Of a hundred slabs of a shard's share, those of new items from which the oldest of them are judged.
const FRESH_PERCENT: u64 = 10;

/// What a shard is told when it is to make room.
#[derive(Clone, Copy, Debug)]
pub(super) struct Duty {
    /// The most items to look at.
    pub items: usize,
    /// Whether items may be dropped before their end.
    pub evicts: bool,
    /// Slabs that are this shard's share.
    pub share_slabs: u64,
    pub now: u32,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// A segment was freed.
    Freed,
    /// Items were looked at; there is more to do.
    More,
    /// There is nothing that could be freed.
    Nothing,
}

impl Shard {
    /// Goes on with the segment that is being emptied, or begins with another.
    pub fn work(&mut self, duty: Duty) -> Progress {
        let progress = self
            .expire_segment(duty.now)
            .unwrap_or_else(|| self.empty_some(duty));
        self.settle();
        progress
    }

    /// Frees one segment that is past its end as a whole. Segments are looked through once a second.
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
                // Nobody else frees it while items are taken out one by one.
                let emptying = std::mem::replace(&mut self.log.emptying, number);
                self.expire(found);
                self.log.emptying = emptying;
            }
        }
        self.log.free(number);
        Some(Progress::Freed)
    }

    fn empty_some(&mut self, duty: Duty) -> Progress {
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
                self.log.emptying = 0;
                self.log.put_back(number);
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

    fn choose_segment(&mut self, duty: Duty) -> Option<u32> {
        if !duty.evicts {
            return self.log.take_sparsest();
        }
        let fresh = u64::from(self.log.slabs_of(Queue::Fresh));
        let order = match fresh * 100 > duty.share_slabs * FRESH_PERCENT {
            true => [Queue::Fresh, Queue::Main],
            false => [Queue::Main, Queue::Fresh],
        };
        order.into_iter().find_map(|queue| self.log.oldest(queue))
    }

    /// Returns the item at a place if it is still the one that the index points to, and where the next one begins.
    pub fn item_at(&self, place: Place) -> (Option<Found>, u32) {
        let (header, key_at) = self.log.header(place);
        let next = place.offset + self.log.item_bytes(place) as u32;
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

    /// Moves an item, or lets it go. False if it could do neither.
    fn judge(&mut self, found: Found, duty: Duty) -> bool {
        if found.header.is_expired(duty.now) {
            self.expire(found);
            return true;
        }
        let frequency = self.index.frequency(found.spot);
        let queue = self.log.segment(found.place.segment).queue;
        if !duty.evicts {
            return self.move_to(found, queue, frequency, duty.now);
        }
        let left = match queue {
            Queue::Main => frequency.saturating_sub(1),
            Queue::Fresh | Queue::Cold => 0,
        };
        if frequency == 0 || !self.move_to(found, Queue::Main, left, duty.now) {
            self.evict(found);
        }
        true
    }

    fn evict(&mut self, found: Found) {
        self.stats.evictions += 1;
        self.stats.evicted_unfetched += u64::from(found.header.bits & FETCHED == 0);
        self.remove(found);
    }

    /// Copies an item as it is to the end of a queue. False if there is no slab.
    fn move_to(&mut self, found: Found, queue: Queue, frequency: u8, now: u32) -> bool {
        let Header {
            key_bytes, stored, ..
        } = found.header;
        let key_bytes = usize::from(key_bytes);
        let bytes = key_bytes + stored.inline_bytes();
        let item = self
            .log
            .bytes(found.place.segment, found.key_at, bytes)
            .to_vec();
        let (key, inline) = item.split_at(key_bytes);
        let to = (queue, Purpose::Moved);
        let Some(place) = self.log.append(to, &found.header, key, [inline, &[]], now) else {
            return false;
        };
        self.index.redirect(found.spot, place, frequency);
        self.stats.moved += 1;
        self.stats.bytes += self.log.item_bytes(place) as u64;
        self.stats.bytes -= self.log.forget(found.place.segment, &found.header) as u64;
        true
    }
}
