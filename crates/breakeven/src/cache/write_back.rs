//! Changing blocks in the cache, and writing them to where they belong before they leave it.
//!
//! A changed block is dirty until the cache's hook has written it. Dirty blocks lie beside the shards, outside
//! eviction, so none can be dropped unwritten. They count against the budget and against the bytes of guards. Once
//! they exceed half of those bytes, or a quarter of the budget if that is less, every further change first writes the
//! oldest back. A block that was written goes into its shard as if it had been loaded.
//!
//! A thread that changes or writes a block holds its [`Claim`]. Other writers wait, and readers see the old block. So
//! no change is lost to another, and no write overtakes a later one. The hook runs without a lock and may read from the
//! cache. If it fails or panics the block stays dirty, and the thread that asked for room or for the write gets the
//! error.
#![deny(unsafe_code)]

use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::KeyHasher;
use super::guard::{BlockGuard, OwnBlock};
use super::shard::BlockSpec;
use super::shared::{Cache, CacheOptions, State, TURN_BYTES};
use super::turn::{End, Ending, Turn};
use crate::error::{Error, Result};
use crate::pool::message_of;

/// The function that writes a block to its place.
pub(super) type Hook<K> = Box<dyn Fn(&K, &[u8]) -> Result<()> + Send + Sync>;

/// A block that is not written yet.
pub(super) struct Dirty {
    block: Arc<OwnBlock>,
    pub class: u8,
}

impl Dirty {
    pub fn guard(&self) -> BlockGuard {
        BlockGuard::own(Arc::clone(&self.block))
    }
}

/// The right to change one block, until it is dropped.
struct Claim<'a, K: Copy + Eq + Hash, S: BuildHasher + Clone> {
    cache: &'a Cache<K, S>,
    key: K,
    hash: u64,
    turn: Arc<Turn>,
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Drop for Claim<'_, K, S> {
    fn drop(&mut self) {
        // Also if a key panics below: waiting threads must go on, and then find the lock poisoned.
        let _ending = Ending::of(Arc::clone(&self.turn), End::Look);
        let lock = self.cache.slot(self.hash);
        let mut state = lock.lock_even_poisoned();
        if !lock.is_poisoned() {
            state.claims.remove(&self.key);
            state.shard.list_bytes -= TURN_BYTES;
        }
    }
}

/// A block in the process of change: a copy. If it was borrowed to be changed, it takes the block's place, dirty, when
/// the guard is dropped. Nobody else changes the block before that.
///
/// If a panic ends the scope of the guard, the block stays unchanged. Any other exit publishes the changes so far, even
/// an early return by `?`: call [`WriteGuard::discard`] before, or change the block in one go. A thread with a
/// guard must not wait for a thread that asks for the same block: both would wait for ever. The parent of scoped
/// threads is such a thread, if it holds a guard while they ask.
pub struct WriteGuard<'a, K: Copy + Eq + Hash, S: BuildHasher + Clone = KeyHasher> {
    claim: Claim<'a, K, S>,
    block: Option<OwnBlock>,
    class: u8,
    is_changed: bool,
    /// The guard was made during the unwinding of a panic, which does not end the guard's own scope.
    was_panicking: bool,
    /// A waiter for the claim needs to know its thread.
    _stays: PhantomData<*const ()>,
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Deref for WriteGuard<'_, K, S> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.block.as_ref().expect("until it is dropped").bytes
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> DerefMut for WriteGuard<'_, K, S> {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.is_changed = true;
        &mut self.block.as_mut().expect("until it is dropped").bytes
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Drop for WriteGuard<'_, K, S> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take()
            && self.is_changed
            && (self.was_panicking || !std::thread::panicking())
        {
            self.claim.publish(block, self.class);
        }
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> WriteGuard<'_, K, S> {
    /// Gives the changes up: the block stays unchanged.
    pub fn discard(mut self) {
        self.is_changed = false;
    }
}

impl<K: Copy + Eq + Hash> Cache<K> {
    /// Makes an empty cache of blocks that may be changed; `write` writes a block to its place.
    ///
    /// Dirty blocks are written when the cache is dropped, and an error is lost then: call [`Cache::flush`] before.
    ///
    /// # Errors
    ///
    /// As [`Cache::new`].
    pub fn writing_back(
        options: CacheOptions,
        write: impl Fn(&K, &[u8]) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Cache<K>> {
        Cache::writing_back_with_hasher(options, KeyHasher::default(), write)
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Cache<K, S> {
    /// Makes a cache as [`Cache::writing_back`] with this hasher, which should not be guessable if others choose the
    /// keys.
    ///
    /// # Errors
    ///
    /// As [`Cache::new`].
    pub fn writing_back_with_hasher(
        options: CacheOptions,
        hasher: S,
        write: impl Fn(&K, &[u8]) -> Result<()> + Send + Sync + 'static,
    ) -> Result<Cache<K, S>> {
        let mut cache = Cache::with_hasher(options, hasher)?;
        cache.write = Some(Box::new(write));
        Ok(cache)
    }

    /// Takes a block out without writing it; returns whether it was held. It is for a block that can no longer be
    /// written, as of a truncated file. Its changes are lost.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if this thread holds a [`WriteGuard`] of it.
    pub fn forget(&self, key: &K) -> Result<bool> {
        let claim = self.claim(key)?;
        let mut state = self.slot(claim.hash).lock();
        let was_dirty = state.take_dirty(key).is_some();
        Ok(state.remove(claim.hash, key) || was_dirty)
    }

    /// Returns a block to change; `None` if it is not held. While the guard lives nobody else changes the block, and
    /// other callers that want to wait for it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] without a hook. The hook's, if room had to be made by writing
    /// another block and it failed. [`Error::Limit`] as [`Cache::get`]. [`Error::Invalid`] if this
    /// thread would wait for itself.
    pub fn get_mut(&self, key: &K) -> Result<Option<WriteGuard<'_, K, S>>> {
        let claim = self.claim_to_change(key)?;
        match self.get(key)? {
            Some(block) => self.copy_to_change(claim, &block, 0).map(Some),
            None => Ok(None),
        }
    }

    /// Returns a block to change, loaded by `load` if it is not held: as [`Cache::get_mut`] and
    /// [`Cache::get_or_load`].
    ///
    /// # Errors
    ///
    /// Errors of both.
    pub fn get_mut_or_load(
        &self,
        key: K,
        block: impl Into<BlockSpec>,
        load: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<WriteGuard<'_, K, S>> {
        let claim = self.claim_to_change(&key)?;
        let spec = block.into();
        let block = self.get_or_load(key, spec, load)?;
        self.copy_to_change(claim, &block, spec.class)
    }

    /// Puts in a block that must be written.
    ///
    /// # Errors
    ///
    /// As [`Cache::get_mut`]; the old block is then unchanged.
    pub fn insert_dirty(&self, key: K, bytes: &[u8], class: u8) -> Result<()> {
        let claim = self.claim_to_change(&key)?;
        let mut block = self.own_to_change(claim.hash, bytes.len())?;
        block.bytes.copy_from_slice(bytes);
        claim.publish(block, class);
        Ok(())
    }

    /// Writes back every block that is dirty now, the oldest of each shard first, and waits for those that other
    /// threads change or write. It does not wait for changes of blocks that were clean before.
    ///
    /// # Errors
    ///
    /// The hook's first error, after all were tried; a block that failed stays dirty. [`Error::Invalid`] if this thread
    /// holds a [`WriteGuard`] of one.
    pub fn flush(&self) -> Result<()> {
        let mut result = Ok(());
        for slot in &self.slots {
            let keys: Vec<K> = slot.lock().order.iter().copied().collect();
            for key in keys {
                let written = self.claim(&key).and_then(|claim| claim.write());
                result = result.and(written.map(|_| ()));
            }
        }
        result
    }

    /// Waits until nobody else changes a block, and keeps others from it.
    fn claim(&self, key: &K) -> Result<Claim<'_, K, S>> {
        let hash = self.hasher.hash_one(key);
        loop {
            let mut state = self.slot(hash).lock();
            let Some(turn) = state.claims.get(key).map(Arc::clone) else {
                return Ok(self.claim_free(&mut state, *key, hash));
            };
            drop(state);
            self.waits.wait(&turn)?;
        }
    }

    /// Claims a block that nobody has claimed.
    fn claim_free(&self, state: &mut State<K, S>, key: K, hash: u64) -> Claim<'_, K, S> {
        let turn = Turn::begin();
        state.claims.insert(key, Arc::clone(&turn));
        state.shard.list_bytes += TURN_BYTES;
        Claim {
            cache: self,
            key,
            hash,
            turn,
        }
    }

    /// Claims a block once there is room for one more that is dirty.
    fn claim_to_change(&self, key: &K) -> Result<Claim<'_, K, S>> {
        if self.write.is_none() {
            return Err(Error::Unsupported {
                what: "changing blocks of a cache that has no hook to write them".to_string(),
            });
        }
        while let Some(oldest) = self.oldest_in_the_way(self.hasher.hash_one(key)) {
            oldest.write()?;
        }
        self.claim(key)
    }

    /// Claims the oldest dirty block of a shard that has too many.
    fn oldest_in_the_way(&self, hash: u64) -> Option<Claim<'_, K, S>> {
        let state = &mut *self.slot(hash).lock();
        if !state.has_too_many_dirty() {
            return None;
        }
        let is_free = |key: &&K| !state.claims.contains_key(*key);
        let key = *state.order.iter().find(is_free)?;
        let hash = self.hasher.hash_one(key);
        Some(self.claim_free(state, key, hash))
    }

    fn own_to_change(&self, hash: u64, bytes: usize) -> Result<OwnBlock> {
        let mut state = self.slot(hash).lock();
        self.benches.with(|bench| state.own(bytes, bench))
    }

    fn copy_to_change<'a>(
        &'a self,
        claim: Claim<'a, K, S>,
        found: &BlockGuard,
        class: u8,
    ) -> Result<WriteGuard<'a, K, S>> {
        let mut block = self.own_to_change(claim.hash, found.len())?;
        block.bytes.copy_from_slice(found);
        let known = self
            .slot(claim.hash)
            .lock()
            .class_of(claim.hash, &claim.key);
        Ok(WriteGuard {
            claim,
            block: Some(block),
            class: known.unwrap_or(class),
            is_changed: false,
            was_panicking: std::thread::panicking(),
            _stays: PhantomData,
        })
    }

    /// Puts in a block whose bytes are already in the store, if nobody changes it. It is dirty if the replaced block
    /// is, so that no older write comes after it.
    pub(super) fn insert_claimed(&self, key: K, bytes: &[u8], class: u8) -> Result<bool> {
        let claim = self.claim(&key)?;
        {
            let mut state = self.lock_with_room(claim.hash, bytes.len());
            if !state.dirty.contains_key(&key) {
                return Ok(self.insert_at(&mut state, key, bytes, class));
            }
        }
        let mut block = self.own_to_change(claim.hash, bytes.len())?;
        block.bytes.copy_from_slice(bytes);
        claim.publish(block, class);
        Ok(true)
    }

    /// Takes out a block that nobody changes, after writing it if it is dirty.
    pub(super) fn remove_claimed(&self, key: &K) -> Result<bool> {
        let claim = self.claim(key)?;
        let was_dirty = claim.write()?;
        let mut state = self.slot(claim.hash).lock();
        Ok(state.remove(claim.hash, key) || was_dirty)
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Claim<'_, K, S> {
    /// Makes a block the one under the key, dirty.
    fn publish(&self, block: OwnBlock, class: u8) {
        let lock = self.cache.slot(self.hash);
        let mut state = lock.lock_even_poisoned();
        if !lock.is_poisoned() {
            // Otherwise nobody reads from the shard any more, and the change must still be written.
            state.remove(self.hash, &self.key);
        }
        let block = Arc::new(block);
        state.put_dirty(self.key, Dirty { block, class });
    }

    /// Writes the block, if it is dirty, and makes it an ordinary one; returns whether it was dirty.
    fn write(&self) -> Result<bool> {
        let slot = self.cache.slot(self.hash);
        let block = slot
            .lock()
            .dirty
            .get(&self.key)
            .map(|it| Arc::clone(&it.block));
        let (Some(block), Some(hook)) = (block, &self.cache.write) else {
            return Ok(false);
        };
        let written = write_by(hook, &self.key, &block.bytes);
        let mut state = self.cache.lock_with_room(self.hash, block.bytes.len());
        let dirty = state.take_dirty(&self.key).expect("claimed and dirty");
        if let Err(error) = written {
            state.stats.write_failures += 1;
            // The others are tried before this one again.
            state.put_dirty(self.key, dirty);
            return Err(error);
        }
        state.stats.written += 1;
        self.cache
            .insert_at(&mut state, self.key, &block.bytes, dirty.class);
        Ok(true)
    }
}

impl<K: Copy + Eq + Hash, S: BuildHasher> State<K, S> {
    /// Makes a block dirty: as the newest if it was clean, else in its old place.
    fn put_dirty(&mut self, key: K, dirty: Dirty) {
        self.dirty_bytes += dirty.block.bytes.len() as u64;
        match self.dirty.insert(key, dirty) {
            Some(old) => self.dirty_bytes -= old.block.bytes.len() as u64,
            None => self.order.push_back(key),
        }
    }

    /// Takes a dirty block out.
    fn take_dirty(&mut self, key: &K) -> Option<Dirty> {
        let dirty = self.dirty.remove(key)?;
        self.dirty_bytes -= dirty.block.bytes.len() as u64;
        // It is mostly the oldest, so this is not far.
        let at = self.order.iter().position(|other| other == key);
        self.order
            .remove(at.expect("every dirty block has its turn"));
        Some(dirty)
    }
}

/// Writes a block; a panic of the hook is an error.
fn write_by<K>(hook: &Hook<K>, key: &K, block: &[u8]) -> Result<()> {
    let written = catch_unwind(AssertUnwindSafe(|| hook(key, block)));
    written.unwrap_or_else(|panic| {
        Err(Error::Panicked {
            what: "the hook that writes blocks back",
            message: message_of(panic.as_ref()),
        })
    })
}

impl<K: Copy + Eq + Hash, S: BuildHasher + Clone> Drop for Cache<K, S> {
    fn drop(&mut self) {
        let Some(hook) = &self.write else { return };
        for slot in &self.slots {
            // Nobody else uses the cache. Dirty blocks are whole even where a key panicked.
            let mut state = slot.lock_even_poisoned();
            let dirty: Vec<(K, Dirty)> = state.dirty.drain().collect();
            drop(state);
            for (key, dirty) in dirty {
                // There is nobody to tell; to see errors, call `flush` before.
                let _ = write_by(hook, &key, &dirty.block.bytes);
            }
        }
    }
}
