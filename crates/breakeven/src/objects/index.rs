//! The index of a shard: the possible places of a key's item, by some bits of its hash.
//!
//! Linear hashing (Litwin 1980): one bucket is split at a time, so that no request pays for a doubling and memory never
//! jumps. A bucket is a cache line: seven slots and the number of the bucket that overflows it. A slot is eight bytes:
//! 22 bits of hash, 2 of frequency, 20 of segment and 20 of offset. Buckets are split by these bits of hash, so that a
//! split reads no item. The bits that have not yet separated buckets distinguish the keys.
//!
//! The index never sees a key. A slot with the right tag is a candidate, and its holder compares the key. The holder
//! changes or removes a slot only by its place, which no two items share.
//!
//! # Cost
//! A bucket is split when the mean exceeds `FILL` of its seven slots: 64 / (7 x 0.8) = 11.4 bytes a key. Buckets that
//! overflow take more, since unsplit ones are twice as full as the others. Measured over a tenfold growth to 200,000
//! keys: 14.2 bytes in the mean, at most 14.6; 14.3 where keys came and went ten times.

use std::mem::take;

use crate::arena::Rows;

const SLOTS: usize = 7;
/// The slots in use, of a hundred, above which a bucket is split.
const FILL: usize = 80;

pub(super) const OFFSET_BITS: u32 = 20;
pub(super) const SEGMENT_BITS: u32 = 20;
const FREQUENCY_SHIFT: u32 = OFFSET_BITS + SEGMENT_BITS;
const TAG_SHIFT: u32 = FREQUENCY_SHIFT + 2;
const TAG_BITS: u32 = 64 - TAG_SHIFT;
/// The first bit of the hash in the tag. The bits below are always the same within a bucket.
const TAG_BIT_FIRST: u32 = 4;
/// The most accesses that are counted, as in S3-FIFO.
const FREQUENCY_MAX: u64 = 3;

/// The place of an item: its segment, which is never 0, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub segment: u32,
    pub offset: u32,
}

/// A found slot, valid until the index changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    bucket: u32,
    slot: u32,
}

#[repr(align(64))]
#[derive(Clone, Copy, Default)]
struct Bucket {
    slots: [u64; SLOTS],
    /// The bucket of the overflow list behind this one, plus 1.
    overflow: u32,
    /// Slots in use, which come first.
    used: u32,
}

/// The slots of one shard.
#[derive(Default)]
pub(super) struct Index {
    /// Home buckets and overflow buckets.
    home: Rows<Bucket>,
    spill: Rows<Bucket>,
    spill_free: Vec<u32>,
    /// Home buckets in use.
    home_count: usize,
    count: usize,
}

/// Bit that distinguishes an overflow bucket's number from a home bucket's.
const SPILLED: u32 = 1 << 31;

impl Index {
    pub fn new() -> Index {
        let mut index = Index::default();
        for _ in 0..1 << TAG_BIT_FIRST {
            let added = index.home.push(Bucket::default());
            added.expect("address space for an index");
        }
        index.home_count = 1 << TAG_BIT_FIRST;
        index
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        self.count
    }

    pub fn memory_bytes(&self) -> usize {
        self.home.memory_bytes() + self.spill.memory_bytes() + self.spill_free.capacity() * 4
    }

    /// Returns the first slot of this hash whose place satisfies `is_it`.
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(Place) -> bool) -> Option<(Spot, Place)> {
        let mut number = self.home_of(hash);
        loop {
            let bucket = self.bucket(number);
            for (at, slot) in bucket.slots[..bucket.used as usize].iter().enumerate() {
                if slot >> TAG_SHIFT == tag(hash) && is_it(place(*slot)) {
                    return Some((
                        Spot {
                            bucket: number,
                            slot: at as u32,
                        },
                        place(*slot),
                    ));
                }
            }
            number = (bucket.overflow.checked_sub(1)?) | SPILLED;
        }
    }

    /// Makes sure that a slot can be added; false if the system has no address space for it.
    pub fn has_room(&mut self) -> bool {
        if self.spill_free.is_empty()
            && let Some(added) = self.spill.push(Bucket::default())
        {
            self.spill_free.push(added as u32);
        }
        !self.spill_free.is_empty()
    }

    /// Adds a slot. There may be others of the same hash.
    ///
    /// # Panics
    /// If there is no address space for it; [`Index::has_room`] checks this beforehand.
    ///
    /// # Cost
    /// At most one bucket and its overflow are split.
    pub fn insert(&mut self, hash: u64, place: Place) {
        self.count += 1;
        self.put(self.home_of(hash), slot(hash, place));
        if self.count * 100 > self.home_count * SLOTS * FILL {
            self.split();
        }
    }

    /// Points a slot elsewhere, and sets its frequency.
    pub fn redirect(&mut self, spot: Spot, to: Place, frequency: u8) {
        let old = self.slot_mut(spot);
        *old = (*old >> TAG_SHIFT << TAG_SHIFT)
            | u64::from(frequency) << FREQUENCY_SHIFT
            | u64::from(to.segment) << OFFSET_BITS
            | u64::from(to.offset);
    }

    pub fn frequency(&self, spot: Spot) -> u8 {
        let slot = self.bucket(spot.bucket).slots[spot.slot as usize];
        (slot >> FREQUENCY_SHIFT & FREQUENCY_MAX) as u8
    }

    /// Counts an access.
    pub fn touch(&mut self, spot: Spot) {
        let slot = self.slot_mut(spot);
        if *slot >> FREQUENCY_SHIFT & FREQUENCY_MAX < FREQUENCY_MAX {
            *slot += 1 << FREQUENCY_SHIFT;
        }
    }

    /// Removes a slot; the last one of its list takes its place, and an empty overflow bucket goes.
    pub fn remove(&mut self, spot: Spot) {
        self.count -= 1;
        let (mut before, mut last) = (None, spot.bucket);
        while let Some(next) = self.bucket(last).overflow.checked_sub(1) {
            (before, last) = (Some(last), next | SPILLED);
        }
        // An overflow bucket that lost its own last slot stays: from it there is no way to the one before.
        if let (0, Some(previous)) = (self.bucket(last).used, before) {
            self.drop_overflow_of(previous);
            (before, last) = (None, previous);
        }
        let bucket = self.bucket_mut(last);
        bucket.used -= 1;
        let used = bucket.used;
        let moved = take(&mut bucket.slots[used as usize]);
        if last != spot.bucket || used != spot.slot {
            *self.slot_mut(spot) = moved;
        }
        if let (0, Some(previous)) = (used, before) {
            self.drop_overflow_of(previous);
        }
    }

    /// Removes the empty bucket behind another from the list.
    fn drop_overflow_of(&mut self, number: u32) {
        let empty = take(&mut self.bucket_mut(number).overflow) - 1;
        self.spill_free.push(empty);
    }

    fn home_of(&self, hash: u64) -> u32 {
        let mask = self.home_count.next_power_of_two() - 1;
        let number = hash as usize & mask;
        (if number < self.home_count {
            number
        } else {
            number & mask >> 1
        }) as u32
    }

    /// Adds a bucket, and moves its entries to it from the next bucket in order.
    fn split(&mut self) {
        let bit = self.home_count.ilog2();
        if bit >= TAG_BIT_FIRST + TAG_BITS {
            return;
        }
        let mut next = Some((self.home_count - (1 << bit)) as u32);
        let old = next.unwrap_or_default();
        // Without memory lists grow longer.
        let Some(new) = self.home.push(Bucket::default()) else {
            return;
        };
        let new = new as u32;
        self.home_count += 1;
        while let Some(number) = next {
            let bucket = take(self.bucket_mut(number));
            if number & SPILLED != 0 {
                self.spill_free.push(number & !SPILLED);
            }
            next = bucket.overflow.checked_sub(1).map(|next| next | SPILLED);
            // Returned slots go to the front of the list, which is never longer than the list taken.
            for &slot in &bucket.slots[..bucket.used as usize] {
                let is_new = slot >> (TAG_SHIFT + bit - TAG_BIT_FIRST) & 1 == 1;
                self.put(if is_new { new } else { old }, slot);
            }
        }
    }

    fn put(&mut self, mut number: u32, slot: u64) {
        loop {
            let bucket = self.bucket_mut(number);
            if (bucket.used as usize) < SLOTS {
                bucket.slots[bucket.used as usize] = slot;
                bucket.used += 1;
                return;
            }
            number = match bucket.overflow.checked_sub(1) {
                Some(next) => next | SPILLED,
                None => {
                    let next = self.spill_free.pop().unwrap_or_else(|| {
                        let added = self.spill.push(Bucket::default());
                        added.expect("address space for an index") as u32
                    });
                    self.bucket_mut(number).overflow = next + 1;
                    next | SPILLED
                }
            };
        }
    }

    fn bucket(&self, number: u32) -> &Bucket {
        match number & SPILLED {
            0 => self.home.at(number as usize),
            _ => self.spill.at((number & !SPILLED) as usize),
        }
    }

    fn bucket_mut(&mut self, number: u32) -> &mut Bucket {
        match number & SPILLED {
            0 => self.home.at_mut(number as usize),
            _ => self.spill.at_mut((number & !SPILLED) as usize),
        }
    }

    fn slot_mut(&mut self, spot: Spot) -> &mut u64 {
        &mut self.bucket_mut(spot.bucket).slots[spot.slot as usize]
    }
}

fn tag(hash: u64) -> u64 {
    hash >> TAG_BIT_FIRST & ((1 << TAG_BITS) - 1)
}

fn slot(hash: u64, place: Place) -> u64 {
    tag(hash) << TAG_SHIFT | u64::from(place.segment) << OFFSET_BITS | u64::from(place.offset)
}

fn place(slot: u64) -> Place {
    Place {
        segment: (slot >> OFFSET_BITS) as u32 & ((1 << SEGMENT_BITS) - 1),
        offset: slot as u32 & ((1 << OFFSET_BITS) - 1),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn random_place(random: &mut fastrand::Rng) -> Place {
        Place {
            segment: random.u32(1..1 << SEGMENT_BITS),
            offset: random.u32(0..1 << OFFSET_BITS),
        }
    }

    /// A map of the standard library is the oracle; few hashes make many keys of one hash.
    #[test]
    fn slots_are_found_moved_and_removed_by_their_place() {
        let mut random = crate::testing::seeded("index", 20_200_302);
        let mut tried = 0;
        for hash_bits in [3, 9, 40] {
            let mut index = Index::new();
            let mut oracle: HashMap<(u32, u32), u64> = HashMap::new();
            let mut known: Vec<Place> = Vec::new();
            for _ in 0..20_000 {
                let grows = random.u8(0..8) < 5;
                if grows || known.is_empty() {
                    let hash = random.u64(..) >> (64 - hash_bits);
                    let place = random_place(&mut random);
                    if oracle.insert((place.segment, place.offset), hash).is_none() {
                        index.insert(hash, place);
                        known.push(place);
                    }
                } else {
                    let at = random.usize(0..known.len());
                    let place = known[at];
                    let hash = oracle
                        .remove(&(place.segment, place.offset))
                        .expect("known");
                    let (spot, found) = index.find(hash, |found| found == place).expect("there");
                    assert_eq!(found, place);
                    if random.bool() {
                        let to = random_place(&mut random);
                        index.redirect(spot, to, 2);
                        assert_eq!(index.frequency(spot), 2);
                        oracle.insert((to.segment, to.offset), hash);
                        known[at] = to;
                    } else {
                        index.remove(spot);
                        known.swap_remove(at);
                    }
                }
                tried += 1;
            }
            assert_eq!(index.count(), oracle.len());
            for ((segment, offset), hash) in oracle {
                let place = Place { segment, offset };
                assert!(index.find(hash, |found| found == place).is_some());
            }
        }
        println!("index: {tried} changes tried");
        assert!(tried >= 60_000);
    }

    #[test]
    fn memory_a_key_stays_low_when_keys_come_and_go() {
        const KEYS: usize = 50_000;
        let mut random = crate::testing::seeded("index churn", 20_200_304);
        let mut index = Index::new();
        let mut known = std::collections::VecDeque::new();
        for _ in 0..10 * KEYS {
            let (hash, place) = (random.u64(..), random_place(&mut random));
            index.insert(hash, place);
            known.push_back((hash, place));
            if known.len() > KEYS {
                let (hash, place) = known.pop_front().expect("just added");
                let (spot, _) = index.find(hash, |found| found == place).expect("there");
                index.remove(spot);
            }
        }
        let bytes = index.memory_bytes() as f64 / KEYS as f64;
        println!("index: {bytes:.1} bytes a key after ten times as many");
        assert!(bytes < 17.0 && index.count() == KEYS);
    }

    #[test]
    fn memory_a_key_stays_low_over_a_growth() {
        let mut random = crate::testing::seeded("index growth", 20_200_303);
        let mut index = Index::new();
        let (mut sum, mut samples, mut most) = (0.0, 0, 0.0_f64);
        for count in 1..=200_000_usize {
            index.insert(random.u64(..), random_place(&mut random));
            if count >= 20_000 && count % 100 == 0 {
                let bytes = index.memory_bytes() as f64 / count as f64;
                (sum, samples, most) = (sum + bytes, samples + 1, most.max(bytes));
            }
        }
        let mean = sum / f64::from(samples);
        println!("index growth: mean {mean:.2} bytes a key, at most {most:.2}");
        assert!(mean <= 15.0 && most <= 17.0, "{mean} {most}");
    }
}
