//! Forms by another method than the one in force, and their replacement by forms of this one.
//!
//! A form that is hit is made again from the restored block. A form without hits would keep its room until its segment
//! leaves. The cache looks for such forms, oldest first, a few for each compressed block.
#![deny(unsafe_code)]

use std::hash::{BuildHasher, Hash};

use super::bench::Bench;
use super::entry::Flags;
use super::handout::{Ran, Restoring};
use super::shard::{Handle, Shard};

/// Forms that are made again for each block that is compressed.
const ANEW_FOR_EACH: u8 = 2;
/// Forms that are looked at for one that is made again.
const LOOKS_MAX: usize = 16;

/// The place of the search for the next form of another method.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Search {
    /// The segment and the number of the record in it; `None` when all were seen.
    next: Option<(u32, usize)>,
    /// Whether the search found one since it began at the oldest segment.
    has_found: bool,
    /// The number of forms to make again next.
    due: u8,
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Shard<K, S> {
    /// Begins to look for forms of another method.
    pub(super) fn search_stragglers(&mut self) {
        self.search = Search {
            next: self.packed.oldest().map(|segment| (segment, 0)),
            has_found: false,
            ..self.search
        };
    }

    /// Makes more forms due, for a block that was compressed.
    pub(super) fn owe_stragglers(&mut self) {
        self.search.due = ANEW_FOR_EACH;
    }

    /// Returns the next due form by another method, if a new form is worth the work.
    pub(super) fn next_straggler(&mut self, bench: &mut Bench) -> Option<Restoring> {
        self.search.due = self.search.due.checked_sub(1)?;
        for _ in 0..LOOKS_MAX {
            let (segment, index) = self.search.next?;
            if index >= self.segments.record_count(segment) {
                match self.packed.after(segment) {
                    Some(next) => self.search.next = Some((next, 0)),
                    None if self.search.has_found => self.search_stragglers(),
                    None => self.search.next = None,
                }
                continue;
            }
            self.search.next = Some((segment, index + 1));
            let record = self.segments.record(segment, index);
            let Some(entry) = self.entries.get(record.entry) else {
                continue;
            };
            if entry.packed != record.place(segment) || !self.is_worth_anew(record.entry) {
                continue;
            }
            self.search.has_found = true;
            let handle = Handle {
                entry: record.entry,
                version: self.entries.at(record.entry).version,
            };
            return Some(self.begin_anew(handle, true, bench));
        }
        None
    }

    /// Books the outcome for a form that was to be made again, and gives the block's memory back.
    pub(super) fn end_straggler(
        &mut self,
        straggler: Restoring,
        block: Vec<u8>,
        ran: &Ran,
        bench: &mut Bench,
    ) {
        self.end_restore(straggler, &block, ran, bench);
        bench.put_restored(block);
    }

    /// Puts a new form, from the scratch of the bench, in the place of its old form, if that is still there.
    pub(super) fn take_anew(
        &mut self,
        handle: Handle,
        (before, method): (u8, u8),
        size: Option<usize>,
        bench: &mut Bench,
    ) {
        let entry = self.entries.find(handle.entry, handle.version);
        let is_there = entry.is_some_and(|it| it.packed.is_some() && it.method == before);
        if is_there {
            self.learn(handle.entry, method, size.map(|size| size as u32));
        }
        let Some(size) = size else {
            if is_there {
                self.entries.at_mut(handle.entry).flags.refuse(1 << method);
            }
            return;
        };
        if !is_there || !self.replace_packed(handle.entry, method, size, bench) {
            self.stats.wasted += 1;
            return;
        }
        self.settle(bench);
    }

    /// Returns whether to compress a block again whose form is by another method than the arm's. The work pays if the
    /// bytes that the new form saves, as a share of a usual form's, are worth it.
    pub(super) fn is_worth_anew(&self, number: u32) -> bool {
        let entry = self.entries.at(number);
        let Some(shadow) = &self.shadow else {
            return false;
        };
        let is_final = entry.flags.has(Flags::IS_FILLED) || entry.flags.is_refused(self.arm.method);
        if entry.method == self.arm.method || is_final {
            return false;
        }
        let usual = self.costs.per_byte(entry.class, entry.method).packed;
        let usual_bytes = usual * f64::from(entry.raw_bytes);
        let worth = shadow.worth_anew(entry.method, entry.flags.uses());
        worth.is_some_and(|worth| worth * f64::from(entry.packed_bytes) > usual_bytes)
    }
}
