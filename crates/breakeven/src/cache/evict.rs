//! How a shard makes room: the segment that leaves, the blocks that stay, and the fate of the others.
//!
//! Eviction goes through the oldest segment of a raw log. A block with enough hits stays, in free room of the main
//! log's newest segment, or else in place. The others are victims: one with a twin keeps the twin, another is
//! compressed or dropped. A segment in which nothing stays is given back. Other segments, also of the compressed log,
//! are compacted in place and become the newest. So cleaning needs no slab and copies little. Slabs move from one pool
//! to the other here, one at a time: a pool above its share gives, and one below it takes.
//!
//! One slab is kept free while the compressed log has to grow. Nothing here fails: a block without room is dropped.
//!
//! A segment leaves in steps ([`Leaving`], [`Packing`]). So a wrapper with a lock can compress its victims without
//! holding the shard. Until its turn a victim can still be found, and it stays if it is hit by then.
#![deny(unsafe_code)]

use std::hash::{BuildHasher, Hash};

use super::bench::Bench;
use super::entry::{Entry, Flags, Queue};
use super::log::{Place, Record};
use super::replica::{PACKED_SHARE_MAX, PROMOTE_HITS, SMALL_SHARE};
use super::shard::Shard;
use crate::arena::Loan;
use crate::codec::Method;
use crate::error::Result;
use crate::units::Seconds;

/// Slabs that the raw pool keeps at any split.
pub(super) const RAW_SLABS_MIN: usize = 4;
/// The least share of holes in a compressed segment at which room is made in it before any form goes.
const HOLES_SHARE: f64 = 0.125;
/// Segments that are looked at for one block before the block is given up.
pub(super) const EFFORT_MAX: usize = 64;

/// The most bytes, without the check, of a block that counts as compressed: the codec stops at this limit.
pub(super) fn packed_bytes_max(raw_bytes: usize) -> usize {
    (raw_bytes as f64 * PACKED_SHARE_MAX) as usize
}

/// The blocks of a segment that stay.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    /// All, which only forms may.
    All,
    /// The blocks that were of use.
    Used,
    None,
}

/// A leaving raw segment, with those of its blocks that are not settled yet.
pub(super) struct Leaving {
    segment: u32,
    queue: Queue,
    /// Number and version of each that did not stay at first sight.
    victims: Vec<(u32, u32)>,
    settled: usize,
}

/// A victim to be compressed. Its bytes stay in place until then.
pub(super) struct Packing {
    number: u32,
    version: u32,
    class: u8,
    method: (u8, Method),
    raw: Loan,
}

/// A codec's result on a block, in the scratch of a bench: the length, if it fits, and the time, if it was taken.
pub(super) type Made = Result<(Option<usize>, Option<Seconds>)>;

impl Packing {
    /// Compresses the block into the scratch of the bench.
    pub fn run(&self, bench: &mut Bench) -> Made {
        let limit = packed_bytes_max(self.raw.len());
        bench.compress(self.method.1, self.class, &self.raw, limit)
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Shard<K, S> {
    /// Reserves room in a raw log.
    pub(super) fn append_raw(
        &mut self,
        queue: Queue,
        entry: u32,
        bytes: usize,
        bench: &mut Bench,
    ) -> Option<Place> {
        if let Some(place) = self.append_to_newest(queue, entry, bytes) {
            return Some(place);
        }
        for effort in 0..EFFORT_MAX {
            // In the end a block has to go.
            let kept = if effort + 1 < EFFORT_MAX {
                Kept::Used
            } else {
                Kept::None
            };
            if self.slabs_spare() > 0 || !self.evict(queue, kept, bench) {
                break;
            }
            // The blocks that stay may have left room.
            if let Some(place) = self.append_to_newest(queue, entry, bytes) {
                return Some(place);
            }
        }
        let segment = self.open()?;
        self.log_mut(queue).push(segment);
        self.append_to_newest(queue, entry, bytes)
    }

    /// Evicts until the segments fit into the rest of the budget; returns whether they do.
    pub(super) fn settle(&mut self, bench: &mut Bench) -> bool {
        loop {
            self.limit_slabs();
            if self.segments.count() <= self.slabs_max {
                return true;
            }
            if !self.evict(Queue::Main, Kept::Used, bench) {
                return false;
            }
        }
    }

    fn slabs_free(&self) -> usize {
        self.slabs_max.saturating_sub(self.segments.count())
    }

    /// Free slabs for the raw pool: the compressed one takes its next while a raw segment is still there.
    fn slabs_spare(&self) -> usize {
        let is_growing = self.packed.segment_count() < self.packed_slabs_wanted();
        self.slabs_free().saturating_sub(usize::from(is_growing))
    }

    fn open(&mut self) -> Option<u32> {
        if self.slabs_free() == 0 {
            return None;
        }
        self.segments.open().ok()
    }

    fn append_to_newest(&mut self, queue: Queue, entry: u32, bytes: usize) -> Option<Place> {
        let newest = self.log_mut(queue).newest()?;
        self.segments.append(newest, entry, bytes)
    }

    /// Slabs that the compressed pool should have.
    fn packed_slabs_wanted(&self) -> usize {
        let wanted = (self.slabs_max as f64 * self.arm.compressed_share).round() as usize;
        wanted.min(self.slabs_max.saturating_sub(RAW_SLABS_MIN))
    }

    /// Returns whether a victim is compressed, which was or was not asked for again.
    fn admits(&self, is_again: bool) -> bool {
        let has_room = || self.fills() && self.is_packed_short();
        self.arm.compressed_share > 0.0 && (is_again || self.arm.admits_once || has_room())
    }

    /// Returns whether the compressed pool has fewer slabs than it should have.
    fn is_packed_short(&self) -> bool {
        self.packed.segment_count() < self.packed_slabs_wanted()
    }

    /// Frees a segment of the pool that has too many, to make room in a raw queue. Returns whether there was one to
    /// free.
    fn evict(&mut self, queue: Queue, kept: Kept, bench: &mut Bench) -> bool {
        if self.packed.segment_count() > self.packed_slabs_wanted() {
            return self.evict_packed();
        }
        self.evict_raw(queue, kept, bench) || self.evict_packed()
    }

    fn evict_raw(&mut self, queue: Queue, kept: Kept, bench: &mut Bench) -> bool {
        let Some(mut leaving) = self.begin_leaving(queue, kept) else {
            return false;
        };
        while let Some(packing) = self.next_packing(&mut leaving) {
            let made = packing.run(bench);
            self.end_packing(&leaving, packing, made, bench);
            while let Some(straggler) = self.next_straggler(bench) {
                let (block, ran) = straggler.run_on_bench(bench);
                self.end_straggler(straggler, block, &ran, bench);
            }
        }
        self.end_leaving(leaving);
        true
    }

    /// Begins to free a raw segment, if the pools compress and this is the way to make room for a block. It is for
    /// callers that can let its victims be compressed elsewhere.
    pub(super) fn leaving_for(&mut self, queue: Queue, bytes: usize) -> Option<Leaving> {
        let has_room = |shard: &mut Shard<K, S>| {
            let newest = shard.log_mut(queue).newest();
            newest.is_some_and(|newest| shard.segments.has_room(newest, bytes))
                || shard.slabs_spare() > 0
        };
        if bytes > self.segments.slab_bytes() || self.arm.compressed_share == 0.0 {
            return None;
        }
        while !has_room(self) {
            if self.packed.segment_count() <= self.packed_slabs_wanted() {
                return self.begin_leaving(queue, Kept::Used);
            }
            self.evict_packed();
        }
        None
    }

    /// Takes a raw segment out of its log, to make room in a queue, and finds the blocks of it that stay.
    fn begin_leaving(&mut self, queue: Queue, kept: Kept) -> Option<Leaving> {
        self.expand();
        let (segment, queue) = self.take_oldest_raw(queue)?;
        let mut victims = std::mem::take(&mut self.victims);
        // The last ones move to free room, because those in front need not move to lie together.
        for index in (0..self.segments.record_count(segment)).rev() {
            let record = self.segments.record(segment, index);
            // A segment that was kept aside may name entries that no longer exist.
            if !self.has_raw(segment, &record) {
                continue;
            }
            let entry = self.entries.at_mut(record.entry);
            let version = entry.version;
            if kept == Kept::None {
                entry.flags.set_frequency(0);
            }
            if !self.keep(record.entry, queue) {
                victims.push((record.entry, version));
            }
        }
        Some(Leaving {
            segment,
            queue,
            victims,
            settled: 0,
        })
    }

    /// Settles victims until one has to be compressed, and returns it; `None` when all are settled.
    pub(super) fn next_packing(&mut self, leaving: &mut Leaving) -> Option<Packing> {
        while let Some(&(number, version)) = leaving.victims.get(leaving.settled) {
            leaving.settled += 1;
            if !self.is_leaving(leaving, number, version) || self.keep(number, leaving.queue) {
                continue;
            }
            let entry = *self.entries.at(number);
            if entry.packed.is_some() {
                self.stats.twins += 1;
                let flags = &mut self.entries.at_mut(number).flags;
                flags.set(Flags::IS_REFERENCED, false);
                flags.count_use();
                self.end_raw(number);
                continue;
            }
            let is_again = entry.flags.has(Flags::IS_AGAIN) || entry.flags.frequency() > 0;
            if !self.admits(is_again) {
                self.drop_victim(number);
                continue;
            }
            let block = self.segments.bytes(entry.raw, entry.raw_bytes as usize);
            if let Some(fill) = filled(block) {
                match self.pack_filled(number, fill) {
                    true => self.end_raw(number),
                    false => self.drop_victim(number),
                }
            } else if entry.flags.is_refused(self.method_in_force().0) {
                self.drop_victim(number);
            } else {
                return Some(Packing {
                    number,
                    version,
                    class: entry.class,
                    method: self.method_in_force(),
                    raw: self.segments.lend(entry.raw, entry.raw_bytes as usize),
                });
            }
        }
        None
    }

    /// Returns the arm's method and its number.
    pub(super) fn method_in_force(&self) -> (u8, Method) {
        let number = self.arm.method.min(self.options.methods.len() as u8 - 1);
        (number, self.options.methods[usize::from(number)])
    }

    /// Returns whether a victim is still in its place.
    fn is_leaving(&self, leaving: &Leaving, number: u32, version: u32) -> bool {
        let entry = self.entries.find(number, version);
        entry.is_some_and(|entry| entry.raw.segment == leaving.segment)
    }

    /// Settles a victim by its new form, which is in the scratch of the bench.
    pub(super) fn end_packing(
        &mut self,
        leaving: &Leaving,
        packing: Packing,
        made: Made,
        bench: &mut Bench,
    ) {
        let number = packing.number;
        let is_there = self.is_leaving(leaving, number, packing.version);
        let size = made.as_ref().map_or(None, |made| made.0);
        let (class, method) = (packing.class, packing.method.0);
        if let Ok((size, time)) = made {
            self.book_encode((class, method), packing.raw.len(), size, time);
        }
        drop(packing.raw);
        self.owe_stragglers();
        if !is_there {
            // Its key was put in or removed in the meantime.
            self.stats.wasted += u64::from(size.is_some());
            return;
        }
        if made.is_ok() {
            self.entries.at_mut(number).method = method;
            self.learn(number, method, size.map(|size| size as u32));
            if size.is_none() {
                self.stats.incompressible += 1;
                self.entries.at_mut(number).flags.refuse(1 << method);
            }
        }
        let held = size.and_then(|size| Some((size, self.append_packed(number, size)?)));
        let Some((size, place)) = held else {
            self.drop_victim(number);
            return;
        };
        let target = self.segments.bytes_mut(place, size);
        target.copy_from_slice(bench.scratch(size));
        self.hold_packed(number, place, size);
        // It was hit in the meantime, so it stays raw and has its twin.
        if !self.keep(number, leaving.queue) {
            self.end_raw(number);
        }
    }

    /// Books the cost of compressing a block.
    pub(super) fn book_encode(
        &mut self,
        of: (u8, u8),
        raw_bytes: usize,
        size: Option<usize>,
        time: Option<Seconds>,
    ) {
        let raw_bytes = raw_bytes as u64;
        let guess = self.costs.per_byte(of.0, of.1).encode * raw_bytes as f64;
        self.stats.encode_cost += time.map_or(guess, |time| self.costs.core(time));
        self.stats.compressed += u64::from(size.is_some());
        if time.is_some() {
            let packed_bytes = size.map_or(raw_bytes, |size| size as u64);
            self.costs.observe(of, raw_bytes, packed_bytes, time, None);
        }
    }

    /// Settles a leaving segment after its victims: it becomes the newest of the main log, or is given back if nothing
    /// stayed in it. If readers got bytes of it in the meantime, its holes stay until its next turn, or it goes when
    /// they are done.
    pub(super) fn end_leaving(&mut self, leaving: Leaving) {
        let Leaving {
            segment,
            queue,
            mut victims,
            ..
        } = leaving;
        let count = self.segments.record_count(segment);
        let mut records = (0..count).map(|index| self.segments.record(segment, index));
        let has_stayed = records.any(|record| self.has_raw(segment, &record));
        match (has_stayed, self.segments.is_lent(segment)) {
            (true, is_lent) => {
                if !is_lent {
                    self.compact_raw(segment);
                }
                self.main.push(segment);
            }
            (false, true) => self.aside.push((segment, queue)),
            (false, false) => self.segments.close(segment),
        }
        victims.clear();
        if victims.capacity() > self.victims.capacity() {
            self.victims = victims;
        }
    }

    /// Returns whether the raw block of a record is still there.
    fn has_raw(&self, segment: u32, record: &Record) -> bool {
        let entry = self.entries.get(record.entry);
        entry.is_some_and(|entry| entry.raw == record.place(segment))
    }

    /// Slides the remaining blocks of a raw segment together.
    fn compact_raw(&mut self, segment: u32) {
        let mut records = self.segments.rewind(segment);
        records.retain(|record| self.has_raw(segment, record));
        self.slide_together(segment, &records, |entry| (&mut entry.raw, entry.raw_bytes));
        self.segments.recycle(records);
    }

    /// Moves the blocks of a rewound segment to its front. Each hole takes the last of them, so that few are copied, or
    /// the next one if the last is too long. This is two-finger compaction (Jones, Hosking and Moss, The Garbage
    /// Collection Handbook, section 3.1).
    fn slide_together(
        &mut self,
        segment: u32,
        mut staying: &[Record],
        part: impl Fn(&mut Entry<K>) -> (&mut Place, u32),
    ) {
        while let ([first, rest @ ..], [before @ .., last]) = (staying, staying) {
            let hole_bytes = first.offset as usize - self.segments.used_bytes(segment);
            let (_, last_bytes) = part(self.entries.at_mut(last.entry));
            let record = match last_bytes.max(1) as usize <= hole_bytes {
                true => {
                    staying = before;
                    last
                }
                false => {
                    staying = rest;
                    first
                }
            };
            let (place, bytes) = part(self.entries.at_mut(record.entry));
            let (from, bytes) = (*place, bytes as usize);
            let to = self.segments.append(segment, record.entry, bytes);
            let to = to.expect("no more than was there");
            *place = to;
            if to != from {
                self.segments.copy(from, to, bytes);
            }
        }
    }

    /// Takes the oldest segment that is not lent out of the raw log that must give one to let `longer` grow. A queue
    /// that has its share makes room for itself. No block that stays in main is copied for the sake of small.
    fn take_oldest_raw(&mut self, longer: Queue) -> Option<(u32, Queue)> {
        self.return_aside();
        let (small, main) = (self.small.segment_count(), self.main.segment_count());
        let small_max = ((small + main) as f64 * SMALL_SHARE).ceil() as usize;
        let small_then = small + usize::from(longer == Queue::Small);
        let order = match small_then > small_max || main == 0 {
            true => [(Queue::Small, true), (Queue::Main, true)],
            false => [(Queue::Main, true), (Queue::Small, true)],
        };
        // The newest segments go last.
        for (queue, keep_newest) in order
            .into_iter()
            .chain(order.map(|(queue, _)| (queue, false)))
        {
            while let Some(segment) = self.log_mut(queue).pop_oldest(keep_newest) {
                if !self.segments.is_lent(segment) {
                    return Some((segment, queue));
                }
                self.aside.push((segment, queue));
            }
        }
        None
    }

    /// Puts segments back that were to go while they were lent: they go next.
    fn return_aside(&mut self) {
        let mut at = 0;
        while let Some(&(segment, queue)) = self.aside.get(at) {
            if self.segments.is_lent(segment) {
                at += 1;
            } else {
                self.aside.swap_remove(at);
                self.log_mut(queue).restore(segment);
            }
        }
    }

    /// Returns whether an entry of a leaving segment stays, because it has enough hits. It then belongs to the main
    /// log. It lies in free room of the newest segment, or else in its old place.
    fn keep(&mut self, number: u32, queue: Queue) -> bool {
        let entry = *self.entries.at(number);
        let frequency = entry.flags.frequency();
        let (is_kept, frequency) = match queue {
            Queue::Small => (frequency >= PROMOTE_HITS, 0),
            Queue::Main => (frequency > 0, frequency.saturating_sub(1)),
        };
        if !is_kept {
            return false;
        }
        let bytes = entry.raw_bytes as usize;
        if let Some(place) = self.append_to_newest(Queue::Main, number, bytes) {
            self.segments.copy(entry.raw, place, bytes);
            self.entries.at_mut(number).raw = place;
        }
        self.log_mut(queue).live_bytes -= bytes as u64;
        self.main.live_bytes += bytes as u64;
        let entry = self.entries.at_mut(number);
        entry.flags.set(Flags::IS_MAIN, true);
        entry.flags.set(Flags::IS_AGAIN, true);
        entry.flags.set_frequency(frequency);
        true
    }

    /// Takes away the raw bytes of a victim that has a compressed form.
    fn end_raw(&mut self, number: u32) {
        let entry = *self.entries.at(number);
        self.log_mut(entry.queue()).live_bytes -= u64::from(entry.raw_bytes);
        let is_again = entry.flags.has(Flags::IS_AGAIN) || entry.flags.frequency() > 0;
        let entry = self.entries.at_mut(number);
        entry.raw = Place::NONE;
        entry.flags.set(Flags::IS_MAIN, false);
        entry.flags.set(Flags::IS_AGAIN, is_again);
        entry.flags.set_frequency(0);
    }

    /// Drops a victim; its ghost remains.
    fn drop_victim(&mut self, number: u32) {
        self.remember(number);
        self.discard(number);
    }

    fn pack_filled(&mut self, number: u32, fill: u8) -> bool {
        let Some(place) = self.append_packed(number, 0) else {
            return false;
        };
        self.hold_packed(number, place, 0);
        let entry = self.entries.at_mut(number);
        entry.flags.set(Flags::IS_FILLED, true);
        entry.fill = fill;
        self.stats.filled += 1;
        true
    }

    pub(super) fn hold_packed(&mut self, number: u32, place: Place, size: usize) {
        self.packed.live_bytes += size as u64;
        let entry = self.entries.at_mut(number);
        entry.packed = place;
        entry.packed_bytes = size as u32;
        entry.flags.set(Flags::OF_PACKED, false);
    }

    /// Replaces a block's compressed form by the form in the scratch of a bench. Returns whether there was room. If
    /// not, the block may have gone.
    pub(super) fn replace_packed(
        &mut self,
        number: u32,
        method: u8,
        size: usize,
        bench: &mut Bench,
    ) -> bool {
        let version = self.entries.at(number).version;
        let Some(place) = self.append_packed(number, size) else {
            return false;
        };
        if self.entries.at(number).version != version {
            // It had to go for its own room.
            self.segments.retract(place);
            return false;
        }
        let target = self.segments.bytes_mut(place, size);
        target.copy_from_slice(bench.scratch(size));
        let before = self.entries.at(number).flags;
        self.forget_packed(number);
        self.hold_packed(number, place, size);
        let entry = self.entries.at_mut(number);
        entry.method = method;
        entry.flags.take_over_uses(before);
        true
    }

    /// Reserves room in the compressed log: in a new slab while the log is below its share. Otherwise it takes the
    /// holes of the segment with the most, or the room that its oldest segments leave.
    pub(super) fn append_packed(&mut self, entry: u32, bytes: usize) -> Option<Place> {
        if let Some(newest) = self.packed.newest()
            && let Some(place) = self.segments.append(newest, entry, bytes)
        {
            return Some(place);
        }
        if self.is_packed_short()
            && let Some(segment) = self.open()
        {
            self.packed.push(segment);
            return self.segments.append(segment, entry, bytes);
        }
        let holes_min = (self.segments.slab_bytes() as f64 * HOLES_SHARE) as usize;
        for _ in 0..EFFORT_MAX {
            let segments = &self.segments;
            let holes_of = |segment| segments.hole_bytes(segment);
            let (segment, kept) = match self.packed.take_greatest(holes_min.max(bytes), holes_of) {
                Some(segment) => (segment, Kept::All),
                None => (self.packed.pop_oldest(false)?, Kept::Used),
            };
            self.compact(segment, kept);
            self.packed.push(segment);
            if let Some(place) = self.segments.append(segment, entry, bytes) {
                return Some(place);
            }
        }
        None
    }

    /// Gives up the oldest compressed segment.
    fn evict_packed(&mut self) -> bool {
        let Some(oldest) = self.packed.pop_oldest(false) else {
            return false;
        };
        self.compact(oldest, Kept::None);
        self.segments.close(oldest);
        true
    }

    /// Empties a compressed segment except for the kept forms, which slide to its front. A form stays for as many
    /// rounds as it was of use since it was made, up to three. The twin of a raw block just goes.
    fn compact(&mut self, segment: u32, kept: Kept) {
        let mut records = self.segments.rewind(segment);
        records.retain(|record| {
            let entry = self.entries.get(record.entry);
            let Some(entry) = entry.filter(|entry| entry.packed == record.place(segment)) else {
                return false;
            };
            let is_raw = entry.raw.is_some();
            let flags = &mut self.entries.at_mut(record.entry).flags;
            let is_used = kept == Kept::Used && flags.take_use();
            if is_used {
                flags.set(Flags::IS_REFERENCED, false);
            }
            if is_used || kept == Kept::All {
                return true;
            }
            if is_raw {
                self.forget_packed(record.entry);
            } else {
                self.remember(record.entry);
                self.discard(record.entry);
            }
            false
        });
        self.slide_together(segment, &records, |entry| {
            (&mut entry.packed, entry.packed_bytes)
        });
        self.segments.close_holes(segment);
        self.segments.recycle(records);
    }
}

/// The byte that fills a block, if there is one.
fn filled(block: &[u8]) -> Option<u8> {
    let (&first, rest) = block.split_first()?;
    rest.iter().all(|&byte| byte == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::super::{Arm, MissTime, Policy, Record, RecordedMethod, ShardOptions};
    use super::*;

    const SLAB: usize = 16 << 10;
    const BLOCK: usize = 1024;

    /// Where three of four blocks were hit, many of these keep their places when the others have gone.
    #[test]
    fn who_stays_is_hardly_moved() {
        let mut bench = Bench::new();
        let mut shard: Shard<u64> = Shard::new(ShardOptions {
            budget_bytes: 4 << 20,
            slab_bytes: 16 << 10,
            policy: Policy::RawOnly,
            ..ShardOptions::default()
        })
        .expect("a shard");
        shard.hold_slabs(64);
        let load = |shard: &mut Shard<u64>, bench: &mut Bench, key: u64| {
            let fill = |frame: &mut [u8]| {
                frame.fill(key as u8);
                Ok(())
            };
            let block = shard.get_or_load(key, BLOCK, bench, fill);
            assert!(
                block
                    .expect("a loader that fills")
                    .iter()
                    .all(|it| *it == key as u8)
            );
        };
        (0..1024).for_each(|key| load(&mut shard, &mut bench, key));
        assert_eq!(shard.stats().misses, 1024, "all are held");
        let hot = || (0..1024).filter(|key| key % 4 != 3);
        let places = |shard: &Shard<u64>| -> Vec<Place> {
            let place = |key| {
                let numbers = shard.numbers().into_iter();
                let mut entries = numbers.map(|number| shard.entries.at(number));
                entries.find(|it| it.key == key).expect("it is held").raw
            };
            hot().map(place).collect()
        };
        hot().for_each(|key| load(&mut shard, &mut bench, key));
        let before = places(&shard);
        (2000..2256).for_each(|key| load(&mut shard, &mut bench, key));
        let after = places(&shard);
        let stayed = before.iter().zip(&after).filter(|it| it.0 == it.1).count();
        println!("{stayed} of {} are where they were", after.len());
        assert!(stayed >= after.len() / 3);
        hot().for_each(|key| load(&mut shard, &mut bench, key));
        assert_eq!(shard.stats().misses, 1024 + 256, "all of them are held");
    }

    /// A shard of 64 slabs, half of them for blocks compressed to half their bytes, and its bench.
    fn half_compressed(admits_once: bool) -> (Shard<u64>, Bench) {
        let methods = ["lz4:1", "zstd:1"].map(|name| name.parse().expect("a method"));
        let recorded = |method| RecordedMethod {
            method,
            encode_seconds_per_byte: 1e-9,
            decode_seconds_per_byte: 1e-9,
            ratios: [2.0; 2],
        };
        let bench = Bench::recorded(Record {
            methods: methods.map(recorded).to_vec(),
            miss: MissTime::default(),
            shadow_sample: Seconds(0.0),
        });
        let mut shard = Shard::new(ShardOptions {
            budget_bytes: 4 << 20,
            slab_bytes: SLAB,
            methods: methods.to_vec(),
            policy: Policy::Static(Arm {
                compressed_share: 0.5,
                method: 0,
                admits_once,
            }),
            ..ShardOptions::default()
        })
        .expect("a shard");
        shard.hold_slabs(64);
        (shard, bench)
    }

    /// Loads the block of a new key.
    fn load(shard: &mut Shard<u64>, bench: &mut Bench, key: u64) {
        let fill = |frame: &mut [u8]| {
            frame[..8].copy_from_slice(&(key << 8 | 1).to_le_bytes());
            Ok(())
        };
        shard
            .get_or_load(key, BLOCK, bench, fill)
            .expect("the loader is sound");
    }

    /// Half of the forms of a pool are made again at an eighth of the length. The others stay, and the next blocks
    /// compressed take the room between them.
    #[test]
    fn no_form_goes_while_others_left_room() {
        let (mut shard, mut bench) = half_compressed(true);
        let mut loaded = 0;
        // One more slab may be opened, for the first forms that are made again.
        while shard.packed.segment_count() < 31 {
            load(&mut shard, &mut bench, loaded);
            loaded += 1;
            assert_eq!(shard.memory().blocks, loaded, "all are held");
        }
        let packed = |shard: &Shard<u64>, number: &u32| shard.entries.at(*number).packed.is_some();
        let mut forms = shard.numbers();
        forms.retain(|number| packed(&shard, number));
        for number in forms.iter().step_by(2) {
            assert!(shard.replace_packed(*number, 1, BLOCK / 16, &mut bench));
        }
        for _ in 0..forms.len() / 4 {
            load(&mut shard, &mut bench, loaded);
            loaded += 1;
        }
        println!("{loaded} blocks, {} forms, {:?}", forms.len(), shard.packed);
        assert!(forms.len() > 900 && forms.iter().all(|number| packed(&shard, number)));
        assert_eq!(
            (shard.memory().blocks, shard.stats().misses),
            (loaded, loaded)
        );
    }

    #[test]
    fn what_was_asked_for_once_is_compressed_while_there_is_room() {
        let (mut shard, mut bench) = half_compressed(false);
        let mut loaded = 0;
        while shard.packed.segment_count() < 31 {
            load(&mut shard, &mut bench, loaded);
            loaded += 1;
            assert_eq!(shard.memory().blocks, loaded, "all are held");
        }
        for _ in 0..4 * SLAB / BLOCK {
            load(&mut shard, &mut bench, loaded);
            loaded += 1;
        }
        let compressed = shard.stats().compressed;
        println!("{loaded} blocks, {compressed} of them compressed");
        assert!(compressed > 900);
        for _ in 0..1000 {
            load(&mut shard, &mut bench, loaded);
            loaded += 1;
        }
        assert_eq!(shard.stats().compressed, compressed, "none makes way");
    }
}
