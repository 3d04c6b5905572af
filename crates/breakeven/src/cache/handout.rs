//! Pieces that a shard hands out for use without it: frames to fill, blocks to read, compressed forms to restore
//! elsewhere. This file also charges them.
//!
//! A wrapper with a lock composes its operations of these pieces. No codec runs here on a requested block, so nobody
//! waits for another thread's block.
#![deny(unsafe_code)]

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::Ordering;

use super::bench::Bench;
use super::costs::MissTime;
use super::entry::{Flags, Queue};
use super::evict::{Leaving, packed_bytes_max};
use super::shard::{Handle, Shard};
use crate::arena::{Loan, Plain};
use crate::codec::Method;
use crate::error::{Error, Result};
use crate::units::Seconds;

/// A compressed block that is being restored.
pub(super) struct Restoring {
    handle: Handle,
    pub raw_bytes: usize,
    class: u8,
    /// Requested, and not only made again.
    is_hit: bool,
    /// Hit for the second time, so it becomes raw again.
    is_second: bool,
    /// How to make the block of the copied bytes.
    source: Source,
    /// The method that compresses it again, if that is worth it.
    anew: Option<(u8, Method)>,
}

/// The outcome of restoring a block.
pub(super) struct Ran {
    /// The time, if it was taken; `Corrupt` if the form was damaged.
    pub time: Result<Option<Seconds>>,
    /// The outcome of compressing it again, in the scratch of the bench: the length, if it fits, and the time, if it
    /// was taken.
    anew: Option<(Option<usize>, Option<Seconds>)>,
}

enum Source {
    /// Every byte is this one.
    Filled(u8),
    /// The compressed form, with its check, and the number of its method.
    Packed {
        method: (u8, Method),
        packed: Vec<u8>,
    },
}

impl Restoring {
    /// Makes the block from its compressed form, and a new form of it where that is worth it.
    pub fn run(&self, target: &mut [u8], bench: &mut Bench) -> Ran {
        let time = match &self.source {
            Source::Filled(byte) => {
                target.fill(*byte);
                Ok(None)
            }
            Source::Packed { method, packed } => bench.decompress(method.1, packed, target),
        };
        let anew = self.anew.filter(|_| time.is_ok()).and_then(|(_, method)| {
            let limit = packed_bytes_max(target.len());
            bench.compress(method, self.class, target, limit).ok()
        });
        Ran { time, anew }
    }

    /// Makes the block in memory of the bench, which gets the memory back.
    pub fn run_on_bench(&self, bench: &mut Bench) -> (Vec<u8>, Ran) {
        let mut block = bench.take_restored(self.raw_bytes);
        let ran = self.run(&mut block, bench);
        (block, ran)
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Shard<K, S> {
    /// Finds a block that can be lent directly: it is raw, of the hottest, and not a sample. Guards are known to have
    /// room for it, and the loan is noted. Nothing else is looked up or changed, so other threads may do the same in
    /// other lanes. Each instruction counts: the processor overlaps the cache misses of as many hits as it has room
    /// for.
    #[inline(always)]
    pub(super) fn find_hot(&self, hash: u64, key: &K, lane: usize) -> Option<Plain<'_>> {
        let entry = self.find_entry(hash, key)?;
        if !entry.flags.is_hottest() || self.is_sampled(hash) {
            return None;
        }
        self.segments
            .plain(lane, entry.raw, entry.raw_bytes as usize)
    }

    /// Lends the bytes of a raw block that was just found.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the loans and charges would exceed the limit of guards.
    pub(super) fn lend(&mut self, handle: Handle) -> Result<Loan> {
        let entry = self.entries.at(handle.entry);
        assert_eq!(entry.version, handle.version, "a block just found");
        let (place, raw_bytes) = (entry.raw, entry.raw_bytes as usize);
        let charged = self.charged.load(Ordering::Relaxed);
        let slab_bytes = self.options.slab_bytes as u64;
        let segments_max = self.guard_bytes_max.saturating_sub(charged) / slab_bytes;
        let noted = self.segments.note(place.segment, segments_max as usize);
        noted.map_err(|segments| self.over_the_cap(segments as u64 * slab_bytes + charged))?;
        Ok(self.segments.lend(place, raw_bytes))
    }

    /// Charges bytes for a caller outside the slabs, and makes room for them. Their holder takes them off
    /// [`Shard::charged`] when they are gone.
    ///
    /// # Errors
    ///
    /// As [`Shard::lend`].
    pub(super) fn charge(&mut self, bytes: u64, bench: &mut Bench) -> Result<()> {
        let slab_bytes = self.segments.slab_bytes() as u64;
        let held =
            self.segments.count_lent() as u64 * slab_bytes + self.charged.load(Ordering::Relaxed);
        let needed = held.saturating_add(bytes);
        if needed > self.guard_bytes_max {
            return Err(self.over_the_cap(needed));
        }
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        self.settle(bench);
        Ok(())
    }

    fn over_the_cap(&self, needed_bytes: u64) -> Error {
        Error::Limit {
            what: "pinned memory of a cache shard",
            limit_bytes: self.guard_bytes_max,
            needed_bytes,
        }
    }

    /// Books a miss of a block that is not kept.
    pub(super) fn passed_through(&mut self, time: &MissTime) {
        self.missed(time);
        self.stats.too_large += 1;
    }

    /// Returns the class of a block, if it is held.
    pub(super) fn class_of(&self, hash: u64, key: &K) -> Option<u8> {
        let number = self.find(hash, key)?;
        Some(self.entries.at(number).class)
    }

    /// Notes the hit of a block that was just found compressed, and copies its compressed form.
    pub(super) fn begin_restore(&mut self, handle: Handle, bench: &mut Bench) -> Restoring {
        let entry = self.entries.at_mut(handle.entry);
        assert_eq!(entry.version, handle.version, "a block just found");
        let is_second = entry.hit_packed();
        // At its second hit, making room for it may need the scratch.
        let is_anew = !is_second && self.is_worth_anew(handle.entry);
        Restoring {
            is_hit: true,
            is_second,
            ..self.begin_anew(handle, is_anew, bench)
        }
    }

    /// Copies the compressed form of a block, to restore it, and to make a new form if that is due.
    pub(super) fn begin_anew(&self, handle: Handle, is_anew: bool, bench: &mut Bench) -> Restoring {
        let entry = *self.entries.at(handle.entry);
        let source = match entry.flags.has(Flags::IS_FILLED) {
            true => Source::Filled(entry.fill),
            false => {
                let packed = self
                    .segments
                    .bytes(entry.packed, entry.packed_bytes as usize);
                Source::Packed {
                    method: (
                        entry.method,
                        self.options.methods[usize::from(entry.method)],
                    ),
                    packed: bench.copy_packed(packed),
                }
            }
        };
        Restoring {
            handle,
            raw_bytes: entry.raw_bytes as usize,
            class: entry.class,
            is_hit: false,
            is_second: false,
            source,
            anew: is_anew.then(|| self.method_in_force()),
        }
    }

    /// Begins to free a segment for a restored block that becomes raw again, if that involves compressing.
    pub(super) fn leaving_for_promotion(&mut self, restoring: &Restoring) -> Option<Leaving> {
        match restoring.is_second {
            true => self.leaving_for(Queue::Main, restoring.raw_bytes),
            false => None,
        }
    }

    /// Books a restored block, and makes it raw again if that is due; a damaged form goes.
    pub(super) fn end_restore(
        &mut self,
        restoring: Restoring,
        block: &[u8],
        ran: &Ran,
        bench: &mut Bench,
    ) {
        let handle = restoring.handle;
        let entry = self.entries.find(handle.entry, handle.version);
        // `None` if it is gone, else whether it is raw again by now.
        let is_raw = entry.map(|entry| entry.raw.is_some());
        let Ok(time) = ran.time else {
            self.stats.corrupt += 1;
            self.stats.packed_hits -= u64::from(restoring.is_hit);
            match is_raw {
                Some(true) => self.forget_packed(handle.entry),
                Some(false) => self.discard(handle.entry),
                None => {}
            }
            return;
        };
        let Source::Packed { method, packed } = restoring.source else {
            return;
        };
        let packed_bytes = packed.len();
        bench.put_packed(packed);
        if is_raw.is_some() {
            let of = (restoring.class, method.0);
            self.book_decode(of, block.len(), packed_bytes, time);
        }
        if let (Some((number, _)), Some((size, time))) = (restoring.anew, ran.anew) {
            self.book_encode((restoring.class, number), block.len(), size, time);
            self.take_anew(handle, (method.0, number), size, bench);
        }
        if restoring.is_second && is_raw == Some(false) {
            self.promote(handle, block, bench);
        }
    }

    /// Puts a restored block into the raw pool, if there is room.
    fn promote(&mut self, handle: Handle, block: &[u8], bench: &mut Bench) {
        let Some(place) = self.append_raw(Queue::Main, handle.entry, block.len(), bench) else {
            return;
        };
        if self.entries.at(handle.entry).version != handle.version {
            // It had to go for its own room.
            self.segments.retract(place);
            return;
        }
        self.segments
            .bytes_mut(place, block.len())
            .copy_from_slice(block);
        self.promoted(handle, place, bench);
    }
}
