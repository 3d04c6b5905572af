//! The memory of all shards together: slabs of the arena, and the lists beside them.
//!
//! Slabs, indexes and lists of segments all count against one limit. Growth on the heap lowers the allowed number of
//! slabs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::arena::{Arena, ArenaOptions, Slab};
use crate::error::Result;

/// Slabs that only moving items may take, so that a segment can be emptied when all else is full.
const RESERVED_SLABS: u64 = 4;

/// The bytes of the arena's lists for each slab, with room for reserved slabs.
const ARENA_SLAB_BYTES: u64 = 48;

/// The purpose of a slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A new item.
    New,
    /// A moving item, so that memory is freed soon.
    Moved,
}

/// Memory with its books.
pub(super) struct Space {
    arena: Arena,
    slab_bytes: usize,
    memory_bytes: AtomicU64,
    heap_bytes: AtomicU64,
    slabs_out: AtomicU64,
}

/// A slab that is counted while it is held.
pub(super) struct Room {
    pub slab: Slab,
    space: Arc<Space>,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.space.slabs_out.fetch_sub(1, Relaxed);
    }
}

impl Space {
    /// The first few slabs are not taken in huge pages: each shard begins one, and few items do not fill it.
    pub fn new(memory_bytes: u64, slab_bytes: usize, first_slabs: u64) -> Result<Arc<Space>> {
        let options = ArenaOptions {
            slab_bytes,
            budget_bytes: memory_bytes,
            small_pages_bytes: first_slabs * slab_bytes as u64,
        };
        Ok(Arc::new(Space {
            arena: Arena::new(options)?,
            slab_bytes,
            memory_bytes: AtomicU64::new(memory_bytes),
            heap_bytes: AtomicU64::new(0),
            slabs_out: AtomicU64::new(0),
        }))
    }

    pub fn slab_bytes(&self) -> usize {
        self.slab_bytes
    }

    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes.load(Relaxed)
    }

    /// Returns the held bytes: slabs and heap.
    pub fn held_bytes(&self) -> u64 {
        let arena = self.arena.stats();
        self.heap_bytes.load(Relaxed) + arena.mapped_bytes + arena.bookkeeping_bytes
    }

    #[cfg(test)]
    pub fn heap_bytes(&self) -> u64 {
        self.heap_bytes.load(Relaxed)
    }

    pub fn slabs_max(&self) -> u64 {
        let books = self.heap_bytes.load(Relaxed);
        let slab_bytes = self.slab_bytes as u64 + ARENA_SLAB_BYTES;
        self.memory_bytes().saturating_sub(books) / slab_bytes
    }

    /// Returns the slabs that new items may still take; negative where the limit was lowered.
    pub fn slabs_left(&self) -> i64 {
        let out = (self.slabs_out.load(Relaxed) + RESERVED_SLABS) as i64;
        self.slabs_max() as i64 - out
    }

    pub fn allocate(self: &Arc<Space>, purpose: Purpose) -> Option<Room> {
        let reserved = match purpose {
            Purpose::New => RESERVED_SLABS,
            Purpose::Moved => 0,
        };
        let out = self.slabs_out.fetch_add(1, Relaxed) + 1;
        let slab = match out + reserved <= self.slabs_max() {
            true => self.arena.allocate().ok(),
            false => None,
        };
        let Some(slab) = slab else {
            self.slabs_out.fetch_sub(1, Relaxed);
            return None;
        };
        Some(Room {
            slab,
            space: Arc::clone(self),
        })
    }

    /// Books that something on the heap had `before` bytes and has `after`.
    pub fn charge(&self, before: usize, after: usize) {
        if before == after {
            return;
        }
        let slabs = self.slabs_max();
        match after.checked_sub(before) {
            Some(more) => self.heap_bytes.fetch_add(more as u64, Relaxed),
            None => self.heap_bytes.fetch_sub((before - after) as u64, Relaxed),
        };
        if self.slabs_max() != slabs {
            self.bound_arena();
        }
    }

    /// Changes the limit; slabs go as shards make room.
    pub fn set_memory(&self, bytes: u64) {
        self.memory_bytes.store(bytes, Relaxed);
        self.bound_arena();
    }

    fn bound_arena(&self) {
        // The budget holds even if locked memory could not be given back.
        let _ = self
            .arena
            .set_budget(self.slabs_max() * self.slab_bytes as u64);
    }
}
