//! A replica: the contents and the cost of the cache under one policy.
//!
//! The queues, counters and rules of the shard (`evict.rs`) on a sample of its keys, without the bytes. A change there
//! must be made here too, or the shadow predicts a different cache. [`shadow`](super::shadow) runs one replica for each
//! [`Arm`] and compares their costs.
#![deny(unsafe_code)]

use std::collections::VecDeque;

use super::costs::Costs;

/// Methods a shard may use.
pub(super) const METHODS_MAX: usize = 4;
/// The operations of codecs.
pub(super) const ENCODE: usize = 0;
pub(super) const DECODE: usize = 1;
/// Bytes of an entry beside its block.
pub(super) const ENTRY_BYTES: u64 = 64;
/// A block that keeps more than this share of its bytes counts as incompressible.
pub(super) const PACKED_SHARE_MAX: f64 = 0.875;
/// Share of the raw pool that new entries may take (S3-FIFO, section 4.1).
pub(super) const SMALL_SHARE: f64 = 0.1;
/// Hits that bring a new entry into the main queue. S3-FIFO needs two; one hits 0.4 of a hundred accesses more on nine
/// traces of disks and webs, and as many on made-up ones.
pub(super) const PROMOTE_HITS: u8 = 1;
/// A block was dropped too early if at most this share of the held blocks' number was dropped since.
pub(super) const GHOSTS_SHARE: f64 = 0.9;

/// One policy of the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Arm {
    /// The share of memory for compressed blocks, 0 to 1; 0 compresses nothing.
    pub compressed_share: f64,
    /// The shard's method that compresses.
    pub method: u8,
    /// Whether blocks without a second access are compressed where others must make way for them; while the compressed
    /// share has room, all are.
    pub admits_once: bool,
}

impl Arm {
    /// Compresses nothing.
    pub const RAW_ONLY: Arm = Arm {
        compressed_share: 0.0,
        method: 0,
        admits_once: false,
    };

    /// Returns raw-only and, by each method, these shares for all victims and for those asked for again.
    pub(super) fn grid(method_count: usize, of_all: &[f64], of_again: &[f64]) -> Vec<Arm> {
        let mut arms = vec![Arm::RAW_ONLY];
        for method in 0..method_count as u8 {
            let arm = |admits_once| {
                move |&compressed_share: &f64| Arm {
                    compressed_share,
                    method,
                    admits_once,
                }
            };
            arms.extend(of_all.iter().map(arm(true)));
            arms.extend(of_again.iter().map(arm(false)));
        }
        arms
    }
}

/// The facts about a sampled key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Key {
    pub hash: u64,
    pub raw_bytes: u32,
    /// Compressed size by method: 0 for unknown, [`INCOMPRESSIBLE`], a guess with its bit set, or the known size.
    pub packed_bytes: [u32; METHODS_MAX],
    /// The number of replicas that hold or remember it.
    pub holders: u16,
    pub class: u8,
}

impl Key {
    /// Returns whether a method's result on the block is still unknown.
    pub fn is_unknown(&self, method: u8) -> bool {
        let packed = self.packed_bytes[usize::from(method)];
        packed == 0 || packed != INCOMPRESSIBLE && packed & GUESSED != 0
    }
}

pub(super) const INCOMPRESSIBLE: u32 = u32::MAX;
/// Marks a size that was guessed from the class when the block was first assumed compressed. It stays until the size is
/// known, so that the same size is booked in and out.
const GUESSED: u32 = 1 << 31;

/// The place of a key in one replica.
pub(super) mod state {
    // For a raw block, the number of its hits; for others, one bit of it has another meaning.
    pub const SMALL: u8 = 1;
    pub const MAIN: u8 = 2;
    pub const RAW: u8 = SMALL | MAIN;
    pub const FREQUENCY: u8 = 3 << 2;
    pub const FREQUENCY_ONE: u8 = 1 << 2;
    /// A block that is only compressed: it was hit since it was appended.
    pub const REFERENCED: u8 = FREQUENCY_ONE;
    pub const PACKED: u8 = 16;
    /// The number of times that the compressed form is appended again before it goes.
    pub const USES: u8 = 3 << 5;
    pub const USE: u8 = 1 << 5;
    pub const AGAIN: u8 = 128;
    /// Neither raw nor compressed.
    pub const GHOST: u8 = AGAIN;

    /// The state of a key whose compressed form was of use.
    pub fn used(state: u8) -> u8 {
        match state & USES {
            USES => state,
            _ => state + USE,
        }
    }
}

/// The policy on sampled keys: queues of key numbers. A number in a queue whose state is elsewhere is stale and is
/// skipped.
#[derive(Default)]
pub(super) struct Replica {
    /// The capacity of both pools: the unfilled part of the compressed one serves the raw one.
    capacity: u64,
    packed_capacity: u64,
    small: VecDeque<u16>,
    main: VecDeque<u16>,
    packed: VecDeque<u16>,
    ghosts: VecDeque<u16>,
    small_bytes: u64,
    main_bytes: u64,
    pub packed_bytes: u64,
    /// Bytes that this access dropped without compressing them.
    pub dropped_bytes: f64,
    /// The cost of this access, and its part for compressing and restoring.
    pub cost: f64,
    pub work: [f64; 2],
    pub events: Events,
}

/// The outcome of accesses under one arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// All of them.
    pub accesses: u64,
    /// Accesses that loaded their block.
    pub misses: u64,
    /// Accesses that restored it.
    pub restored: u64,
    /// Victims that were compressed.
    pub compressed: u64,
}

impl Events {
    /// Adds other accesses.
    pub(super) fn add(&mut self, other: &Events) {
        self.accesses += other.accesses;
        self.misses += other.misses;
        self.restored += other.restored;
        self.compressed += other.compressed;
    }
}

/// The inputs of a replica beside its own queues.
pub(super) struct World<'a> {
    pub arm: &'a Arm,
    /// Whether all victims are compressed while the compressed share has room.
    pub fills: bool,
    /// The states of one key in all replicas, side by side.
    pub states: &'a mut [u8],
    pub stride: usize,
    pub index: usize,
    pub keys: &'a mut [Key],
    pub costs: &'a Costs,
    pub freed: &'a mut Vec<u16>,
}

impl World<'_> {
    pub fn state(&self, key: u16) -> u8 {
        self.states[usize::from(key) * self.stride + self.index]
    }

    fn set(&mut self, key: u16, new: u8) {
        let state = &mut self.states[usize::from(key) * self.stride + self.index];
        let old = std::mem::replace(state, new);
        let holders = &mut self.keys[usize::from(key)].holders;
        match (old, new) {
            (0, 1..) => *holders += 1,
            (1.., 0) => {
                *holders -= 1;
                if *holders == 0 {
                    self.freed.push(key);
                }
            }
            _ => {}
        }
    }

    fn raw_bytes(&self, key: u16) -> u64 {
        u64::from(self.keys[usize::from(key)].raw_bytes)
    }

    /// The compressed size under the arm's method; `None` for a block that does not shrink.
    pub fn packed_bytes(&mut self, key: u16) -> Option<u64> {
        let key = &mut self.keys[usize::from(key)];
        let raw = f64::from(key.raw_bytes);
        let packed = &mut key.packed_bytes[usize::from(self.arm.method)];
        match *packed {
            INCOMPRESSIBLE => return None,
            0 => {
                let guess = raw
                    * self
                        .costs
                        .packed_guess(key.class, self.arm.method, key.hash);
                if guess > raw * PACKED_SHARE_MAX {
                    return None;
                }
                *packed = guess as u32 | GUESSED;
            }
            _ => {}
        }
        Some(u64::from(*packed & !GUESSED))
    }

    fn encode_cost(&self, key: u16) -> f64 {
        let key = &self.keys[usize::from(key)];
        self.costs.per_byte(key.class, self.arm.method).encode * f64::from(key.raw_bytes)
    }

    fn decode_cost(&self, key: u16) -> f64 {
        let key = &self.keys[usize::from(key)];
        self.costs.per_byte(key.class, self.arm.method).decode * f64::from(key.raw_bytes)
    }
}

impl Replica {
    /// Makes one that holds nothing yet.
    pub fn new(arm: &Arm, sampled_bytes: f64) -> Replica {
        Replica {
            capacity: sampled_bytes as u64,
            packed_capacity: (sampled_bytes * arm.compressed_share) as u64,
            ..Replica::default()
        }
    }

    /// Returns the bytes of its queues.
    pub fn heap_bytes(&self) -> usize {
        let queues = [&self.small, &self.main, &self.packed, &self.ghosts];
        queues.map(VecDeque::capacity).iter().sum::<usize>() * size_of::<u16>()
    }

    /// Runs the policy on one access.
    pub fn access(&mut self, world: &mut World, key: u16) {
        let found = world.state(key);
        self.events.accesses += 1;
        if found & state::RAW != 0 {
            if found & state::FREQUENCY != state::FREQUENCY {
                world.set(key, found + state::FREQUENCY_ONE);
            }
        } else if found & state::PACKED != 0 {
            let decode_cost = world.decode_cost(key);
            self.cost += decode_cost;
            self.work[DECODE] += decode_cost;
            self.events.restored += 1;
            let used = state::used(found);
            if found & state::REFERENCED != 0 {
                self.enter(world, key, used & !state::FREQUENCY | state::MAIN);
            } else {
                world.set(key, used | state::REFERENCED | state::AGAIN);
            }
        } else {
            self.cost += world.costs.miss();
            self.events.misses += 1;
            let new = match found {
                state::GHOST => state::MAIN | state::AGAIN,
                _ => state::SMALL,
            };
            self.enter(world, key, new);
        }
    }

    /// Puts a key into the raw pool, in the given state.
    fn enter(&mut self, world: &mut World, key: u16, new: u8) {
        world.set(key, new);
        let bytes = world.raw_bytes(key) + ENTRY_BYTES;
        if new & state::SMALL != 0 {
            self.small.push_back(key);
            self.small_bytes += bytes;
        } else {
            self.main.push_back(key);
            self.main_bytes += bytes;
        }
        while self.is_over() && self.evict_raw(world) {}
    }

    fn is_over(&self) -> bool {
        self.small_bytes + self.main_bytes + self.packed_bytes > self.capacity
    }

    fn evict_raw(&mut self, world: &mut World) -> bool {
        let raw_bytes = self.small_bytes + self.main_bytes;
        let small_max = (raw_bytes as f64 * SMALL_SHARE) as u64;
        if self.small_bytes > small_max || self.main.is_empty() {
            let Some(key) = self.small.pop_front() else {
                return false;
            };
            let found = world.state(key);
            if found & state::SMALL == 0 {
                return true;
            }
            let bytes = world.raw_bytes(key) + ENTRY_BYTES;
            self.small_bytes -= bytes;
            if (found & state::FREQUENCY) >> 2 >= PROMOTE_HITS {
                let kept = found & !(state::SMALL | state::FREQUENCY);
                world.set(key, kept | state::MAIN | state::AGAIN);
                self.main.push_back(key);
                self.main_bytes += bytes;
            } else {
                self.demote(world, key, found);
            }
        } else {
            let Some(key) = self.main.pop_front() else {
                return false;
            };
            let found = world.state(key);
            if found & state::MAIN == 0 {
                return true;
            }
            if found & state::FREQUENCY != 0 {
                world.set(key, (found - state::FREQUENCY_ONE) | state::AGAIN);
                self.main.push_back(key);
            } else {
                self.main_bytes -= world.raw_bytes(key) + ENTRY_BYTES;
                self.demote(world, key, found);
            }
        }
        true
    }

    /// Takes a key out of the raw pool: compressed if the arm admits it, else dropped.
    fn demote(&mut self, world: &mut World, key: u16, found: u8) {
        let is_again = found & (state::AGAIN | state::FREQUENCY) != 0;
        if found & state::PACKED != 0 {
            let rest = found & !(state::RAW | state::FREQUENCY);
            world.set(key, state::used(rest));
            return;
        }
        // The room of a whole block, because the displaced ones leave less than that.
        let has_room =
            world.fills && self.packed_bytes + world.raw_bytes(key) <= self.packed_capacity;
        let is_admitted = is_again || world.arm.admits_once || has_room;
        let admits = world.arm.compressed_share > 0.0 && is_admitted;
        let Some(bytes) = world.packed_bytes(key).filter(|_| admits) else {
            self.dropped_bytes += world.raw_bytes(key) as f64;
            match found & state::MAIN {
                0 => self.forget(world, key),
                // It had its time.
                _ => world.set(key, 0),
            }
            return;
        };
        let encode_cost = world.encode_cost(key);
        self.cost += encode_cost;
        self.work[ENCODE] += encode_cost;
        self.events.compressed += 1;
        let again = if is_again { state::AGAIN } else { 0 };
        world.set(key, state::PACKED | again);
        self.packed.push_back(key);
        self.packed_bytes += bytes + ENTRY_BYTES;
        while self.packed_bytes > self.packed_capacity && self.evict_packed(world) {}
    }

    fn evict_packed(&mut self, world: &mut World) -> bool {
        let Some(key) = self.packed.pop_front() else {
            return false;
        };
        let found = world.state(key);
        if found & state::PACKED == 0 {
            return true;
        }
        let is_raw = found & state::RAW != 0;
        if found & state::USES != 0 {
            let referenced = if is_raw { 0 } else { state::REFERENCED };
            world.set(key, (found - state::USE) & !referenced);
            self.packed.push_back(key);
            return true;
        }
        let bytes = world.packed_bytes(key).unwrap_or(0) + ENTRY_BYTES;
        self.packed_bytes = self.packed_bytes.saturating_sub(bytes);
        if is_raw {
            world.set(key, found & !state::PACKED);
        } else {
            self.forget(world, key);
        }
        true
    }

    /// Drops a key and leaves its ghost.
    fn forget(&mut self, world: &mut World, key: u16) {
        world.set(key, state::GHOST);
        self.ghosts.push_back(key);
        let held = self.small.len() + self.main.len() + self.packed.len();
        while self.ghosts.len() as f64 > GHOSTS_SHARE * held.max(2) as f64 {
            let Some(old) = self.ghosts.pop_front() else {
                break;
            };
            if world.state(old) == state::GHOST {
                world.set(old, 0);
            }
        }
    }

    /// Takes a new size, and forgets stale numbers in its queues.
    pub fn resize(&mut self, world: &mut World, sampled_bytes: f64) {
        let share = world.arm.compressed_share;
        self.capacity = sampled_bytes as u64;
        self.packed_capacity = (sampled_bytes * share) as u64;
        self.small
            .retain(|&key| world.state(key) & state::SMALL != 0);
        self.main.retain(|&key| world.state(key) & state::MAIN != 0);
        self.packed
            .retain(|&key| world.state(key) & state::PACKED != 0);
        self.ghosts.retain(|&key| world.state(key) == state::GHOST);
        while self.packed_bytes > self.packed_capacity && self.evict_packed(world) {}
        while self.is_over() && self.evict_raw(world) {}
    }

    /// Switches to another arm, that of `world`. Its compressed blocks, of `key_count` keys, stay and count as the
    /// arm's method's.
    pub fn follow(&mut self, world: &mut World, key_count: usize, sampled_bytes: f64) {
        self.packed_bytes = 0;
        for key in 0..key_count as u32 {
            let key = key as u16;
            if world.state(key) & state::PACKED != 0 {
                self.packed_bytes += world.packed_bytes(key).unwrap_or(0) + ENTRY_BYTES;
            }
        }
        self.resize(world, sampled_bytes);
    }

    /// Takes a key out that is no longer valid.
    pub fn remove(&mut self, world: &mut World, key: u16) {
        let found = world.state(key);
        let raw_bytes = world.raw_bytes(key) + ENTRY_BYTES;
        if found & state::SMALL != 0 {
            self.small_bytes -= raw_bytes;
        }
        if found & state::MAIN != 0 {
            self.main_bytes -= raw_bytes;
        }
        if found & state::PACKED != 0 {
            let bytes = world.packed_bytes(key).unwrap_or(0) + ENTRY_BYTES;
            self.packed_bytes = self.packed_bytes.saturating_sub(bytes);
        }
        world.set(key, 0);
    }
}
