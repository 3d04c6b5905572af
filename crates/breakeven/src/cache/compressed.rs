//! Blocks that go in and out compressed. A form from a caller is kept unchanged, and a held form is handed out
//! unchanged.
#![deny(unsafe_code)]

use std::hash::{BuildHasher, Hash};

use super::bench::{Bench, CHECK_BYTES};
use super::entry::Flags;
use super::evict::packed_bytes_max;
use super::shard::{Handle, Lookup, Shard};
use super::shared::Cache;
use crate::codec::Method;
use crate::error::{Error, Result};

/// A block in compressed form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedBlock {
    /// The method that made the form.
    pub method: Method,
    /// Raw bytes of the block.
    pub raw_bytes: usize,
    /// The form, without a frame.
    pub bytes: Vec<u8>,
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Cache<K, S> {
    /// Puts in a block that the caller holds compressed, in place of the block under its key; returns whether it is
    /// held. It is kept in this form if the split has room for one and the form saves an eighth, else raw. A fault of a
    /// kept form is found when it is restored: the block is then absent, and the fault counted.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for a method that is not among the cache's. [`Error::Corrupt`] if the form had to be
    /// restored now and could not be. [`Error::Limit`] if guards leave no room for it. Otherwise as [`Cache::insert`].
    pub fn insert_compressed(&self, key: K, block: &CompressedBlock, class: u8) -> Result<bool> {
        let hash = self.hasher.hash_one(key);
        let slot = self.slot(hash);
        let mut state = slot.lock();
        let method = state.shard.number_of(block.method)?;
        let is_plain = self.write.is_none();
        self.benches.with(|bench| {
            if is_plain {
                state.overtake(&key);
                if state
                    .shard
                    .insert_packed(key, (class, method), block, bench)
                {
                    return Ok(true);
                }
            }
            let mut raw = state.own(block.raw_bytes, bench)?;
            drop(state);
            bench.decode(block.method, &block.bytes, &mut raw.bytes)?;
            self.insert(key, &raw.bytes, class)
        })
    }

    /// Returns the compressed form of a block, if there is one; `None` does not mean that the block is absent. It
    /// counts as an access, not as a use of the form.
    pub fn get_compressed(&self, key: &K) -> Option<CompressedBlock> {
        let hash = self.hasher.hash_one(key);
        let state = &mut *self.slot(hash).lock();
        match state.shard.lookup_hashed(hash, key, state.timer.get()) {
            Lookup::Raw(handle) | Lookup::Packed(handle) => state.shard.compressed(handle),
            Lookup::Absent => None,
        }
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> Shard<K, S> {
    /// Returns the number of a method.
    fn number_of(&self, method: Method) -> Result<u8> {
        let found = self.options.methods.iter().position(|it| *it == method);
        found.map(|at| at as u8).ok_or_else(|| Error::Unsupported {
            what: format!("blocks compressed by {method}, which is not a method of this cache"),
        })
    }

    /// Puts in a block that is already compressed; returns whether it is held compressed.
    fn insert_packed(
        &mut self,
        key: K,
        (class, method): (u8, u8),
        block: &CompressedBlock,
        bench: &mut Bench,
    ) -> bool {
        self.remove(&key);
        let (raw_bytes, size) = (block.raw_bytes, block.bytes.len() + CHECK_BYTES);
        let is_small = block.bytes.len() <= packed_bytes_max(raw_bytes);
        if !is_small || raw_bytes > self.segments.slab_bytes() {
            return false;
        }
        let (hash, number) = self.begin_entry(key, raw_bytes, class);
        self.recall(hash, number);
        let place = match self.settle(bench) {
            true => self.append_packed(number, size),
            false => None,
        };
        let Some(place) = place else {
            self.end_entry(number);
            return false;
        };
        let target = self.segments.bytes_mut(place, size);
        let (check, form) = target.split_at_mut(CHECK_BYTES);
        check.copy_from_slice(&crc32c::crc32c(&block.bytes).to_le_bytes());
        form.copy_from_slice(&block.bytes);
        self.hold_packed(number, place, size);
        self.make_known(hash, number);
        let entry = self.entries.at_mut(number);
        entry.method = method;
        entry.flags.set(Flags::IS_MAIN, false);
        self.learn(number, method, Some(size as u32));
        self.settle(bench);
        true
    }

    /// Returns the compressed form of a block that was just found, if it has one with bytes.
    fn compressed(&self, handle: Handle) -> Option<CompressedBlock> {
        let entry = self.entries.at(handle.entry);
        if !entry.packed.is_some() || entry.flags.has(Flags::IS_FILLED) {
            return None;
        }
        let packed = self
            .segments
            .bytes(entry.packed, entry.packed_bytes as usize);
        Some(CompressedBlock {
            method: self.options.methods[usize::from(entry.method)],
            raw_bytes: entry.raw_bytes as usize,
            bytes: packed[CHECK_BYTES..].to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arm, CacheOptions, Policy};
    use super::*;

    fn cache(compressed_share: f64) -> Cache<u64> {
        let arm = Arm {
            compressed_share,
            method: 0,
            admits_once: true,
        };
        Cache::new(CacheOptions {
            budget_bytes: 400_000,
            block_bytes: 1000,
            shard_count: Some(1),
            policy: Policy::Static(arm),
            ..CacheOptions::default()
        })
        .expect("a cache")
    }

    fn block(key: u64) -> Vec<u8> {
        (0..2000).map(|at| (at / 100) as u8 ^ key as u8).collect()
    }

    fn compressed(key: u64, method: &str) -> CompressedBlock {
        let (method, raw) = (method.parse().expect("a method"), block(key));
        let (size, bytes) = {
            let mut bench = Bench::new();
            let size = bench.compress(method, 0, &raw, 1500).expect("a codec").0;
            let size = size.expect("it shrinks");
            (size, bench.scratch(size).to_vec())
        };
        CompressedBlock {
            method,
            raw_bytes: raw.len(),
            bytes: bytes[CHECK_BYTES..size].to_vec(),
        }
    }

    #[test]
    fn compressed_blocks_are_kept_and_handed_out_as_they_came() {
        let cache = cache(0.5);
        for key in 0..100 {
            let form = compressed(key, ["lz4:1", "zstd:1"][key as usize % 2]);
            assert!(cache.insert_compressed(key, &form, 0).expect("room"));
            assert_eq!(cache.get_compressed(&key), Some(form));
        }
        let memory = cache.stats().memory;
        assert!(
            memory.raw_bytes == 0 && memory.packed_bytes > 0,
            "{memory:?}"
        );
        for key in 0..100 {
            let found = cache.get(&key).expect("room").expect("held");
            assert_eq!(*found, *block(key));
        }
        assert_eq!(cache.stats().shards.compressed, 0);
        assert!(cache.stats().shards.packed_hits >= 100);
        for slot in &cache.slots {
            let memory = slot.lock().shard.memory();
            assert!(memory.in_use_bytes() <= memory.budget_bytes, "{memory:?}");
        }
        assert!(cache.remove(&1).expect("nothing to write"));
        assert_eq!(cache.get_compressed(&1), None);
    }

    #[test]
    fn where_nothing_is_compressed_the_block_is_kept_raw() {
        let cache = cache(0.0);
        let form = compressed(3, "lz4:1");
        assert!(cache.insert_compressed(3, &form, 0).expect("room"));
        assert_eq!(cache.get_compressed(&3), None);
        assert_eq!(*cache.get(&3).expect("room").expect("held"), *block(3));
        let wrong_length = CompressedBlock {
            raw_bytes: 1999,
            ..form
        };
        assert!(cache.insert_compressed(4, &wrong_length, 0).is_err());
        assert!(cache.get(&4).expect("room").is_none());
    }

    #[test]
    fn a_form_that_lies_is_absent_and_one_of_another_method_refused() {
        let cache = cache(0.5);
        let other = compressed(1, "zstd:3");
        let refused = cache.insert_compressed(1, &other, 0);
        assert!(matches!(refused, Err(Error::Unsupported { .. })));
        for raw_bytes in [1999, 2001, 16_000] {
            let lying = CompressedBlock {
                raw_bytes,
                ..compressed(1, "lz4:1")
            };
            assert!(cache.insert_compressed(1, &lying, 0).expect("room"));
            assert!(cache.get(&1).expect("room").is_none(), "{raw_bytes}");
        }
        assert_eq!(cache.stats().shards.corrupt, 3);
    }
}
