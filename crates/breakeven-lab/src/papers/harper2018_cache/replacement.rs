//! Replacement policies as in their papers, over blocks of size one: the rivals of the cache's own policy. They know
//! keys and nothing else.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// A policy.
pub trait Replacement {
    /// Asks for a key, takes it in, and returns whether it was held.
    fn access(&mut self, key: u64) -> bool;
}

/// Keys by how recently they were put in front.
#[derive(Default)]
struct Recency {
    by_time: BTreeMap<u64, u64>,
    times: HashMap<u64, u64>,
    now: u64,
}

impl Recency {
    fn len(&self) -> usize {
        self.times.len()
    }

    /// Puts a key in front, wherever it was.
    fn put_first(&mut self, key: u64) {
        self.remove(key);
        self.now += 1;
        self.by_time.insert(self.now, key);
        self.times.insert(key, self.now);
    }

    fn remove(&mut self, key: u64) -> bool {
        let Some(time) = self.times.remove(&key) else {
            return false;
        };
        self.by_time.remove(&time);
        true
    }

    fn pop_last(&mut self) -> Option<u64> {
        let (_, key) = self.by_time.pop_first()?;
        self.times.remove(&key);
        Some(key)
    }
}

/// Least recently used.
pub struct Lru {
    capacity: usize,
    keys: Recency,
}

impl Lru {
    pub fn new(capacity: usize) -> Lru {
        Lru {
            capacity,
            keys: Recency::default(),
        }
    }
}

impl Replacement for Lru {
    fn access(&mut self, key: u64) -> bool {
        let is_held = self.keys.times.contains_key(&key);
        self.keys.put_first(key);
        if self.keys.len() > self.capacity {
            self.keys.pop_last();
        }
        is_held
    }
}

/// Adaptive replacement.
///
/// Source: Megiddo and Modha, FAST 2003, Figure 4.
pub struct Arc {
    capacity: usize,
    /// Seen once lately, held and remembered (T1 and B1 of the paper).
    once: Recency,
    once_ghosts: Recency,
    /// Seen more than once (T2 and B2).
    often: Recency,
    often_ghosts: Recency,
    /// The target size of `once` (p).
    target: f64,
}

impl Arc {
    pub fn new(capacity: usize) -> Arc {
        Arc {
            capacity,
            once: Recency::default(),
            once_ghosts: Recency::default(),
            often: Recency::default(),
            often_ghosts: Recency::default(),
            target: 0.0,
        }
    }

    /// REPLACE of the paper.
    fn replace(&mut self, is_in_often_ghosts: bool) {
        let held = self.once.len() as f64;
        let from_once =
            held >= 1.0 && (held > self.target || is_in_often_ghosts && held == self.target);
        let (from, to) = match from_once {
            true => (&mut self.once, &mut self.once_ghosts),
            false => (&mut self.often, &mut self.often_ghosts),
        };
        if let Some(key) = from.pop_last() {
            to.put_first(key);
        }
    }

    /// Makes room for a key that is not remembered either (case IV of the paper).
    fn make_room(&mut self) {
        let known_once = self.once.len() + self.once_ghosts.len();
        if known_once == self.capacity {
            if self.once.len() < self.capacity {
                self.once_ghosts.pop_last();
                self.replace(false);
            } else {
                self.once.pop_last();
            }
            return;
        }
        let known = known_once + self.often.len() + self.often_ghosts.len();
        if known >= self.capacity {
            if known == 2 * self.capacity {
                self.often_ghosts.pop_last();
            }
            self.replace(false);
        }
    }
}

impl Replacement for Arc {
    fn access(&mut self, key: u64) -> bool {
        if self.once.remove(key) || self.often.times.contains_key(&key) {
            self.often.put_first(key);
            return true;
        }
        let (once, often) = (
            self.once_ghosts.len() as f64,
            self.often_ghosts.len() as f64,
        );
        if self.once_ghosts.remove(key) {
            self.target = (self.target + (often / once).max(1.0)).min(self.capacity as f64);
            self.replace(false);
            self.often.put_first(key);
        } else if self.often_ghosts.times.contains_key(&key) {
            self.target = (self.target - (once / often).max(1.0)).max(0.0);
            self.replace(true);
            self.often_ghosts.remove(key);
            self.often.put_first(key);
        } else {
            self.make_room();
            self.once.put_first(key);
        }
        false
    }
}

/// Three queues: a small one for new blocks, a main one, and ghosts.
///
/// Source: Yang, Zhang, Qiu, Yue and Rashmi, SOSP 2023, Algorithm 1. It has a tenth for the small queue, ghosts as many
/// as the main queue, frequencies up to 3, and promotes after more than one hit.
pub struct S3Fifo {
    capacity: usize,
    small: VecDeque<u64>,
    main: VecDeque<u64>,
    ghosts: VecDeque<u64>,
    /// How often held keys were hit, at most 3.
    hits: HashMap<u64, u8>,
    /// How often each ghost stands in its queue.
    remembered: HashMap<u64, u32>,
}

impl S3Fifo {
    pub fn new(capacity: usize) -> S3Fifo {
        S3Fifo {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghosts: VecDeque::new(),
            hits: HashMap::new(),
            remembered: HashMap::new(),
        }
    }

    fn small_capacity(&self) -> usize {
        (self.capacity / 10).max(1)
    }

    fn evict(&mut self) {
        let is_small_full = self.small.len() >= self.small_capacity();
        if !(is_small_full || self.main.is_empty()) || !self.evict_small() {
            self.evict_main();
        }
    }

    /// Evicts from the small queue; returns whether it could.
    fn evict_small(&mut self) -> bool {
        while let Some(key) = self.small.pop_front() {
            if self.hits[&key] > 1 {
                self.hits.insert(key, 0);
                self.main.push_back(key);
                if self.main.len() > self.capacity - self.small_capacity() {
                    self.evict_main();
                    return true;
                }
            } else {
                self.hits.remove(&key);
                self.remember(key);
                return true;
            }
        }
        false
    }

    fn evict_main(&mut self) {
        while let Some(key) = self.main.pop_front() {
            let hits = self.hits.get_mut(&key).expect("a held key");
            if *hits == 0 {
                self.hits.remove(&key);
                return;
            }
            *hits -= 1;
            self.main.push_back(key);
        }
    }

    fn remember(&mut self, key: u64) {
        self.ghosts.push_back(key);
        *self.remembered.entry(key).or_insert(0) += 1;
        if self.ghosts.len() > self.capacity - self.small_capacity() {
            let old = self.ghosts.pop_front().expect("there are ghosts");
            let count = self.remembered.get_mut(&old).expect("a ghost");
            *count -= 1;
            if *count == 0 {
                self.remembered.remove(&old);
            }
        }
    }
}

impl Replacement for S3Fifo {
    fn access(&mut self, key: u64) -> bool {
        if let Some(hits) = self.hits.get_mut(&key) {
            *hits = (*hits + 1).min(3);
            return true;
        }
        while self.hits.len() >= self.capacity {
            self.evict();
        }
        self.hits.insert(key, 0);
        match self.remembered.contains_key(&key) {
            true => self.main.push_back(key),
            false => self.small.push_back(key),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Random;

    fn hits(policy: &mut dyn Replacement, keys: &[u64]) -> Vec<bool> {
        keys.iter().map(|key| policy.access(*key)).collect()
    }

    fn policies(capacity: usize) -> [Box<dyn Replacement>; 3] {
        [
            Box::new(Lru::new(capacity)),
            Box::new(Arc::new(capacity)),
            Box::new(S3Fifo::new(capacity)),
        ]
    }

    #[test]
    fn lru_is_a_list_in_order_of_use() {
        let mut random = Random::new(3);
        let (mut lru, mut list) = (Lru::new(20), Vec::<u64>::new());
        for _ in 0..5000 {
            let key = random.below(40);
            let at = list.iter().position(|held| *held == key);
            if let Some(at) = at {
                list.remove(at);
            }
            list.insert(0, key);
            list.truncate(20);
            assert_eq!(lru.access(key), at.is_some());
        }
    }

    #[test]
    fn nobody_holds_more_than_fits_nor_forgets_what_does() {
        let mut random = Random::new(5);
        let keys: Vec<u64> = (0..20_000)
            .map(|_| random.below(60).min(random.below(200)))
            .collect();
        let mut arc = Arc::new(20);
        let mut fifo = S3Fifo::new(20);
        for key in &keys {
            arc.access(*key);
            fifo.access(*key);
            let held = arc.once.len() + arc.often.len();
            let known = held + arc.once_ghosts.len() + arc.often_ghosts.len();
            assert!(held <= 20 && known <= 40 && arc.once.len() + arc.once_ghosts.len() <= 20);
            assert!(fifo.hits.len() <= 20 && fifo.small.len() + fifo.main.len() == fifo.hits.len());
            assert!(fifo.ghosts.len() <= 18);
            assert_eq!(
                fifo.remembered.values().sum::<u32>() as usize,
                fifo.ghosts.len()
            );
        }
        for mut policy in policies(200) {
            let found = hits(&mut *policy, &keys);
            let different: std::collections::BTreeSet<u64> = keys.iter().copied().collect();
            assert_eq!(
                found.iter().filter(|is_hit| !**is_hit).count(),
                different.len()
            );
        }
    }

    /// LRU never hits in a loop one longer than the cache, and the others survive a scan.
    #[test]
    fn scans_part_the_policies() {
        let looped: Vec<u64> = (0..2100).map(|at| at % 21).collect();
        let mut lru = Lru::new(20);
        assert!(hits(&mut lru, &looped).iter().all(|is_hit| !is_hit));
        // Hot keys, asked for three times in a row, and between them keys that never come again.
        let mut keys = Vec::new();
        for round in 0..300 {
            keys.extend((0..10).chain(0..10).chain(0..10));
            keys.extend((0..30).map(|at| 1000 + round * 30 + at));
        }
        let counts = policies(20).map(|mut policy| {
            let found = hits(&mut *policy, &keys);
            found.iter().filter(|is_hit| **is_hit).count()
        });
        // LRU finds none of the first of three.
        assert_eq!(counts[0], 300 * 20);
        assert!(counts[1] > 8000 && counts[2] > 8000, "{counts:?}");
    }
}
