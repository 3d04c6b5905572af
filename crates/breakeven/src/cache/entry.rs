//! The cache's entries for the blocks that it holds, in chunks that never move.
//!
//! [`Entries`] hands out numbers and takes them back. Chunks are added one at a time. So growth never copies entries,
//! and never needs twice the memory for a moment.
#![deny(unsafe_code)]

use super::log::Place;
use super::replica::METHODS_MAX;

/// One bit for each possible method.
pub(super) const METHODS_MASK: u8 = (1 << METHODS_MAX) - 1;
/// Entries of a chunk.
const CHUNK: usize = 256;

/// The raw log that holds an entry's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// New entries; most are never asked for again.
    Small,
    /// Entries that were asked for again.
    Main,
}

/// One block of the cache.
// The order is on purpose: a raw hit reads the first fields, so that they seldom lie on two cache lines.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Entry<K> {
    pub key: K,
    /// The raw bytes, if they are held.
    pub raw: Place,
    pub raw_bytes: u32,
    pub flags: Flags,
    /// The caller's own kind of data.
    pub class: u8,
    /// The method of the shard that made, or would make, the compressed form.
    pub method: u8,
    /// The compressed form, if it is held; a block may have both forms.
    pub packed: Place,
    /// Length of the compressed form with its check. Without a form, it is the length of the last one, perhaps from a
    /// ghost, or 0 if none was ever made.
    pub packed_bytes: u32,
    /// Changes when the number goes to another block, and when its bytes change.
    pub version: u32,
    /// Byte that fills the block, where `IS_FILLED`.
    pub fill: u8,
}

/// The flags of an entry, and its hits: 0 to 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u16);

impl Flags {
    const FREQUENCY: u16 = 0b11;
    /// It lies in the main log.
    pub const IS_MAIN: u16 = 1 << 2;
    /// Its compressed form was hit since it was last appended: the next hit makes it raw.
    pub const IS_REFERENCED: u16 = 1 << 3;
    /// It was asked for again since it was last loaded, or soon after it was dropped.
    pub const IS_AGAIN: u16 = 1 << 4;
    /// Every byte is the same, so its compressed form has no bytes.
    pub const IS_FILLED: u16 = 1 << 5;
    /// Its compressed form was hit since it was made.
    pub const IS_USED: u16 = 1 << 6;
    /// The number of times, 0 to 3, that its compressed form is appended again before it goes.
    const USES: u16 = 0b11 << 7;
    const USE: u16 = 1 << 7;
    const REFUSED_SHIFT: u32 = 9;
    /// The flags of the compressed form, which end with it.
    pub const OF_PACKED: u16 =
        Flags::IS_REFERENCED | Flags::IS_USED | Flags::IS_FILLED | Flags::USES;

    /// Notes that the compressed form was of use: hit, or still there when the raw block left.
    pub fn count_use(&mut self) {
        if self.0 & Flags::USES != Flags::USES {
            self.0 += Flags::USE;
        }
    }

    /// Takes over the marks of hits on the form that this one replaces.
    pub fn take_over_uses(&mut self, other: Flags) {
        self.0 |= other.0 & (Flags::USES | Flags::IS_REFERENCED);
    }

    /// Returns how often the compressed form would be appended again.
    pub fn uses(self) -> u8 {
        ((self.0 & Flags::USES) / Flags::USE) as u8
    }

    /// Takes a use away; returns whether there was one.
    pub fn take_use(&mut self) -> bool {
        let has_use = self.0 & Flags::USES != 0;
        self.0 -= if has_use { Flags::USE } else { 0 };
        has_use
    }

    /// Returns the methods that saved too little on it, one bit each.
    pub fn refused(self) -> u8 {
        (self.0 >> Flags::REFUSED_SHIFT) as u8 & METHODS_MASK
    }

    /// Returns whether a method saved too little on it.
    pub fn is_refused(self, method: u8) -> bool {
        self.refused() & 1 << method != 0
    }

    /// Notes methods, one bit each, that saved too little on it.
    pub fn refuse(&mut self, methods: u8) {
        self.0 |= u16::from(methods & METHODS_MASK) << Flags::REFUSED_SHIFT;
    }

    pub fn has(self, flag: u16) -> bool {
        self.0 & flag != 0
    }

    pub fn set(&mut self, flag: u16, value: bool) {
        self.0 = if value { self.0 | flag } else { self.0 & !flag };
    }

    pub fn frequency(self) -> u8 {
        (self.0 & Flags::FREQUENCY) as u8
    }

    pub fn set_frequency(&mut self, frequency: u8) {
        self.0 = self.0 & !Flags::FREQUENCY | u16::from(frequency.min(3));
    }

    /// Returns whether a hit changes nothing. The hottest entries are not written, so that they can stay in several
    /// cores' caches.
    #[inline]
    pub fn is_hottest(self) -> bool {
        self.0 & Flags::FREQUENCY == Flags::FREQUENCY
    }

    /// Notes a hit.
    #[inline]
    pub fn count_hit(&mut self) {
        if !self.is_hottest() {
            self.0 += 1;
        }
    }
}

impl<K> Entry<K> {
    pub fn queue(&self) -> Queue {
        match self.flags.has(Flags::IS_MAIN) {
            true => Queue::Main,
            false => Queue::Small,
        }
    }

    /// Notes a hit of the compressed form, and returns whether there was one since it was appended.
    pub fn hit_packed(&mut self) -> bool {
        let is_second = self.flags.has(Flags::IS_REFERENCED);
        for flag in [Flags::IS_REFERENCED, Flags::IS_AGAIN, Flags::IS_USED] {
            self.flags.set(flag, true);
        }
        self.flags.count_use();
        is_second
    }
}

/// Entries by number.
pub(super) struct Entries<K> {
    chunks: Vec<Box<[Entry<K>; CHUNK]>>,
    /// Numbers below this were given out; entries from here on are meaningless.
    known: usize,
    vacant: Vec<u32>,
    count: usize,
    /// The version of a new number, above those of numbers that [`Entries::shrink`] gave back. So a holder of an old
    /// number does not take the new entry for the old one.
    version_min: u32,
}

impl<K: Copy> Entries<K> {
    pub fn new() -> Entries<K> {
        Entries {
            chunks: Vec::new(),
            known: 0,
            vacant: Vec::new(),
            count: 0,
            version_min: 0,
        }
    }

    /// Returns how many entries are in use.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        self.chunks.len() * CHUNK * size_of::<Entry<K>>()
            + self.chunks.capacity() * size_of::<Box<[Entry<K>; CHUNK]>>()
            + self.vacant.capacity() * size_of::<u32>()
    }

    /// Makes an entry without bytes and returns its number.
    pub fn add(&mut self, key: K, raw_bytes: u32, class: u8) -> u32 {
        let mut entry = Entry {
            key,
            raw: Place::NONE,
            packed: Place::NONE,
            raw_bytes,
            packed_bytes: 0,
            version: self.version_min,
            class,
            method: 0,
            flags: Flags::default(),
            fill: 0,
        };
        self.count += 1;
        if let Some(number) = self.vacant.pop() {
            let old = self.at_mut(number);
            entry.version = old.version.wrapping_add(1);
            *old = entry;
            return number;
        }
        let number = self.known as u32;
        self.known += 1;
        if self.known > self.chunks.len() * CHUNK {
            let chunk = vec![entry; CHUNK].into_boxed_slice();
            let chunk = chunk.try_into().unwrap_or_else(|_| unreachable!("so many"));
            self.chunks.push(chunk);
            // Room for every number, so that removing never allocates.
            let most = self.chunks.len() * CHUNK;
            self.vacant.reserve_exact(most - self.vacant.len());
        } else {
            *self.at_mut(number) = entry;
        }
        number
    }

    /// Takes a number back. Its version changes, so that holders of the number notice.
    pub fn remove(&mut self, number: u32) {
        let entry = self.at_mut(number);
        entry.version = entry.version.wrapping_add(1);
        entry.raw = Place::NONE;
        entry.packed = Place::NONE;
        entry.flags = Flags::default();
        self.vacant.push(number);
        self.count -= 1;
    }

    /// Gives back chunks at the end that hold no entry.
    pub fn shrink(&mut self) {
        let mut is_vacant = vec![false; self.known];
        for &number in &self.vacant {
            is_vacant[number as usize] = true;
        }
        while let Some(chunk) = self.chunks.last() {
            let first = (self.chunks.len() - 1) * CHUNK;
            if is_vacant[first..self.known].contains(&false) {
                break;
            }
            let given_out = &chunk[..self.known - first];
            let last = given_out.iter().map(|entry| entry.version).max();
            self.version_min = self.version_min.max(last.unwrap_or(0).wrapping_add(1));
            self.chunks.pop();
            self.known = first;
            self.vacant.retain(|&number| (number as usize) < first);
        }
        self.chunks.shrink_to_fit();
        self.vacant.shrink_to_fit();
        let most = self.chunks.len() * CHUNK;
        self.vacant.reserve_exact(most - self.vacant.len());
    }

    /// Returns an entry if its number still belongs to the same block in this version.
    pub fn find(&self, number: u32, version: u32) -> Option<&Entry<K>> {
        let entry = self.get(number)?;
        (entry.version == version).then_some(entry)
    }

    /// Returns the entry of a number that may have been given back.
    pub fn get(&self, number: u32) -> Option<&Entry<K>> {
        ((number as usize) < self.known).then(|| self.at(number))
    }

    #[inline]
    pub fn at(&self, number: u32) -> &Entry<K> {
        &self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }

    #[inline]
    pub fn at_mut(&mut self, number: u32) -> &mut Entry<K> {
        &mut self.chunks[number as usize / CHUNK][number as usize % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_page_cache_takes_48_bytes() {
        assert_eq!(size_of::<Entry<u64>>(), 48);
        let mut entries = Entries::new();
        let numbers: Vec<u32> = (0..1000u64).map(|key| entries.add(key, 8, 0)).collect();
        // 4 chunks; 4 bytes more for each entry's number when it is vacant.
        let lists = entries.chunks.capacity() * size_of::<Box<[Entry<u64>; CHUNK]>>();
        assert_eq!(entries.heap_bytes(), 1024 * (48 + 4) + lists);
        assert_eq!((entries.count(), numbers[999]), (1000, 999));
    }

    #[test]
    fn uses_are_three_at_most_and_end_with_the_form() {
        let mut flags = Flags::default();
        flags.set(Flags::IS_MAIN, true);
        (0..5).for_each(|_| flags.count_use());
        assert_eq!(flags.uses(), 3);
        assert_eq!((0..5).filter(|_| flags.take_use()).count(), 3);
        flags.count_use();
        let mut other = Flags::default();
        other.take_over_uses(flags);
        assert!(other.take_use() && !other.take_use() && !other.has(Flags::IS_MAIN));
        flags.set(Flags::OF_PACKED, false);
        assert!(!flags.take_use() && flags.has(Flags::IS_MAIN));
    }

    #[test]
    fn numbers_come_back_with_another_version() {
        let mut entries = Entries::new();
        let number = entries.add(7u64, 8192, 1);
        let version = entries.at(number).version;
        entries.at_mut(number).flags.set(Flags::IS_MAIN, true);
        entries.remove(number);
        assert_eq!(entries.add(8, 16, 0), number);
        let entry = entries.at(number);
        assert_ne!(entry.version, version);
        assert_eq!(
            (entry.key, entry.raw_bytes, entry.queue()),
            (8, 16, Queue::Small)
        );
    }

    #[test]
    fn numbers_that_were_given_back_are_not_taken_for_new_ones() {
        let mut entries = Entries::new();
        let numbers: Vec<u32> = (0..600u64).map(|key| entries.add(key, 8, 0)).collect();
        let old: Vec<(u32, u32)> = numbers
            .iter()
            .map(|&number| (number, entries.at(number).version))
            .collect();
        numbers.iter().for_each(|&number| entries.remove(number));
        let is_found = |entries: &Entries<u64>| {
            let mut found = old
                .iter()
                .map(|&(number, version)| entries.find(number, version));
            found.any(|entry| entry.is_some())
        };
        assert!(!is_found(&entries));
        entries.shrink();
        assert!(entries.chunks.is_empty() && !is_found(&entries));
        for key in 0..600 {
            entries.add(key, 8, 0);
            assert!(!is_found(&entries), "entry {key}");
        }
    }

    #[test]
    fn flags_and_frequency_do_not_touch_each_other() {
        let mut flags = Flags::default();
        flags.set(Flags::IS_AGAIN, true);
        flags.set_frequency(9);
        assert_eq!((flags.frequency(), flags.has(Flags::IS_AGAIN)), (3, true));
        flags.set(Flags::IS_AGAIN, false);
        assert_eq!((flags.frequency(), flags.has(Flags::IS_AGAIN)), (3, false));
        flags.set_frequency(0);
        assert_eq!(flags, Flags::default());
        flags.refuse(1 << 3);
        assert_eq!((flags.refused(), flags.frequency()), (8, 0));
        assert!(flags.is_refused(3) && !flags.is_refused(2) && flags.uses() == 0);
        flags = Flags::default();
        flags.set(Flags::IS_MAIN, true);
        for expected in [1, 2, 3, 3] {
            flags.count_hit();
            assert_eq!(
                (flags.frequency(), flags.has(Flags::IS_MAIN)),
                (expected, true)
            );
        }
    }
}
