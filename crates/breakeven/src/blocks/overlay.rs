//! The changes of a store's state since its last checkpoint, and the nodes that any state has read.
//!
//! An [`Overlay`] is a map whose clones share everything that none of them changed. A [`NodeCache`] keeps nodes that
//! were read from the file, by place and generation, under a cap. A node in the file never changes, so all states and
//! all threads share one cache.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use foldhash::fast::FixedState;

/// Enough that a changed shard is small, and few enough that cloning their list is cheap.
const SHARDS: usize = 64;

/// A map from numbers, cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Overlay<V> {
    shards: Arc<Vec<Arc<HashMap<u32, V, FixedState>>>>,
    count: usize,
}

impl<V: Clone> Default for Overlay<V> {
    fn default() -> Overlay<V> {
        // One empty map for all: each is copied when it is changed.
        Overlay {
            shards: Arc::new(vec![Arc::default(); SHARDS]),
            count: 0,
        }
    }
}

impl<V: Clone> Overlay<V> {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn get(&self, key: u32) -> Option<&V> {
        self.shards[key as usize % SHARDS].get(&key)
    }

    pub(super) fn get_mut(&mut self, key: u32) -> Option<&mut V> {
        self.shard(key).get_mut(&key)
    }

    pub(super) fn insert(&mut self, key: u32, value: V) {
        let is_new = self.shard(key).insert(key, value).is_none();
        self.count += usize::from(is_new);
    }

    pub(super) fn remove(&mut self, key: u32) {
        if self.get(key).is_some() {
            self.shard(key).remove(&key);
            self.count -= 1;
        }
    }

    /// Returns all keys, sorted, so that the written order does not depend on hashing.
    pub(super) fn keys(&self) -> Vec<u32> {
        let keys = self.shards.iter().flat_map(|shard| shard.keys().copied());
        let mut keys: Vec<u32> = keys.collect();
        keys.sort_unstable();
        keys
    }

    fn shard(&mut self, key: u32) -> &mut HashMap<u32, V, FixedState> {
        let shards = Arc::make_mut(&mut self.shards);
        Arc::make_mut(&mut shards[key as usize % SHARDS])
    }
}

const CACHE_SHARDS: usize = 16;

/// Keys are this process's own, so that the hash needs no secret.
type Nodes<K, V> = HashMap<K, Arc<V>, FixedState>;

/// Nodes by their place in the file.
///
/// # Cost
/// At most `count_max` nodes. Any node may go.
#[derive(Debug)]
pub(super) struct NodeCache<K, V> {
    shards: Vec<Mutex<Nodes<K, V>>>,
    shard_count_max: usize,
}

impl<K: Copy + Eq + Hash, V> NodeCache<K, V> {
    pub(super) fn new(count_max: usize) -> NodeCache<K, V> {
        NodeCache {
            shards: (0..CACHE_SHARDS).map(|_| Mutex::default()).collect(),
            shard_count_max: (count_max / CACHE_SHARDS).max(1),
        }
    }

    /// Returns the node of `key`; `shard` spreads keys evenly.
    pub(super) fn get(&self, key: K, shard: u64) -> Option<Arc<V>> {
        self.lock(shard).get(&key).cloned()
    }

    pub(super) fn insert(&self, key: K, shard: u64, value: Arc<V>) {
        let mut nodes = self.lock(shard);
        if nodes.len() >= self.shard_count_max && !nodes.contains_key(&key) {
            // The map's own order is random enough.
            let victim = nodes.keys().next().copied();
            victim.map(|victim| nodes.remove(&victim));
        }
        nodes.insert(key, value);
    }

    fn lock(&self, shard: u64) -> std::sync::MutexGuard<'_, Nodes<K, V>> {
        let shard = &self.shards[(shard % CACHE_SHARDS as u64) as usize];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_does_not_see_later_changes() {
        let mut overlay = Overlay::default();
        for key in 0..1000 {
            overlay.insert(key, key);
        }
        let before = overlay.clone();
        *overlay.get_mut(7).unwrap() = 70;
        overlay.remove(8);
        overlay.insert(8000, 1);
        assert_eq!((before.get(7), before.get(8)), (Some(&7), Some(&8)));
        assert_eq!((overlay.get(7), overlay.get(8)), (Some(&70), None));
        assert_eq!((before.len(), overlay.len()), (1000, 1000));
        assert_eq!(before.keys(), (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn the_cache_keeps_its_cap() {
        let cache = NodeCache::new(160);
        for key in 0..10_000u64 {
            cache.insert(key, key, Arc::new(key));
            assert_eq!(cache.get(key, key).as_deref(), Some(&key));
        }
        let kept = (0..10_000).filter(|key| cache.get(*key, *key).is_some());
        assert_eq!(kept.count(), 160);
    }
}
