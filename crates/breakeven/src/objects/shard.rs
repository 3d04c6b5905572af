//! One shard: its index over its log, and every operation on one key.
//!
//! The holder of a shard's lock calls these. An operation that lacks a slab changes nothing and reports it.
//! [`Shard::work`] then makes room (`evict.rs`), here or in another shard.

use std::sync::Arc;

use super::books::Books;
use super::coding::{Coding, Plan};
use super::form::{Form, on_bench};
use super::index::{Index, Place, Spot};
use super::item::{self, FETCHED, Header, STALE, Stored, TOKEN, chained};
use super::log::{CasCounter, Content, Log, Queue};
use super::request::{
    Count, CountOutcome, Delete, DeleteOutcome, Fetch, ItemRef, ObjectsStats, Store, StoreMode,
    StoreOutcome, Win,
};
use super::space::{Purpose, Space};

/// There are not enough slabs.
#[derive(Debug)]
pub(super) struct NoRoom;

/// Scratch memory above this is not kept.
const SCRATCH_BYTES_KEPT: usize = 64 << 10;

/// The bytes that memcached counts for an item in its answer "too large": header, CAS, and the ends of key and value; 4
/// more for flags.
const ITEM_BYTES_JUDGED: usize = 48 + 8 + 1 + 2;

/// Returns whether an item is too long, by memcached's count.
pub(super) fn is_too_large(
    key_bytes: usize,
    value_bytes: usize,
    flags: u32,
    item_bytes_max: usize,
) -> bool {
    let flags_bytes = if flags == 0 { 0 } else { 4 };
    (ITEM_BYTES_JUDGED + key_bytes + flags_bytes).saturating_add(value_bytes) > item_bytes_max
}

/// A key with its hash.
#[derive(Clone, Copy)]
pub(super) struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u64,
}

/// An item that was found.
#[derive(Clone, Copy)]
pub(super) struct Found {
    pub spot: Spot,
    pub place: Place,
    pub header: Header,
    pub key_at: usize,
}

pub(super) struct Shard {
    pub space: Arc<Space>,
    pub index: Index,
    pub log: Log,
    pub stats: ObjectsStats,
    /// The second from which everything stored before is gone; 0 for none.
    flush_at: u32,
    item_bytes_max: usize,
    /// The bytes of index and log that are charged to the space.
    charged_bytes: usize,
    scratch: Vec<u8>,
    /// An item on the move.
    pub moving: Vec<u8>,
    /// The position in a segment that is being emptied, and whether its items stay unchanged.
    pub cursor: u32,
    pub is_tidying: bool,
    /// Segments that aged; some are looked at.
    pub aged: u32,
    /// The second up to which expired segments were searched for.
    pub expiry_scanned: u32,
    /// The state of the hash by which items on the move find their slot.
    pub hash: super::Hasher,
    /// The source of encodings, and its last plan; `None` where nothing is encoded.
    pub coding: Option<Arc<Coding>>,
    pub plan: Arc<Plan>,
    pub books: Books,
    /// The values until the next one for the learner.
    pub offers_in: u32,
    /// A state of xorshift32 (Marsaglia 2003), never 0.
    draws: u32,
}

impl Shard {
    pub fn new(
        space: Arc<Space>,
        item_bytes_max: usize,
        hash: super::Hasher,
        coding: Option<Arc<Coding>>,
        cas: CasCounter,
    ) -> Shard {
        let mut shard = Shard {
            index: Index::new(),
            log: Log::new(Arc::clone(&space), cas),
            space,
            stats: ObjectsStats::default(),
            flush_at: 0,
            item_bytes_max,
            charged_bytes: 0,
            scratch: Vec::new(),
            moving: Vec::new(),
            cursor: 0,
            is_tidying: false,
            aged: 0,
            expiry_scanned: 0,
            hash,
            plan: coding.as_ref().map(|it| it.plan()).unwrap_or_default(),
            coding,
            books: Books::default(),
            offers_in: 0,
            draws: 0x9E37_79B9,
        };
        shard.settle();
        shard
    }

    /// Charges the present bytes of index and log.
    pub fn settle(&mut self) {
        let bytes = self.index.memory_bytes() + self.log.memory_bytes() + self.books.memory_bytes();
        self.space.charge(self.charged_bytes, bytes);
        self.charged_bytes = bytes;
    }

    /// Does the work that is due at this second: an earlier flush.
    pub fn begin(&mut self, now: u32) {
        if self.flush_at != 0 && self.flush_at <= now {
            self.flush_at = 0;
            self.clear();
        }
    }

    /// Drops everything that is stored before this second.
    pub fn flush_at(&mut self, at: u32, now: u32) {
        self.flush_at = at.max(1);
        self.begin(now);
    }

    fn clear(&mut self) {
        // The old one goes first: there may be no address space for both.
        self.index = Index::default();
        self.index = Index::new();
        self.log = Log::new(Arc::clone(&self.space), self.log.cas);
        self.cursor = 0;
        self.is_tidying = false;
        self.stats.items = 0;
        self.stats.bytes = 0;
        self.stats.bytes_logical = 0;
        self.stats.encoded_items = 0;
        self.settle();
    }

    /// Finds the item of a key; one past its end is removed.
    pub fn find(&mut self, key: Key<'_>, now: u32) -> Option<Found> {
        let log = &self.log;
        let (spot, place) = self
            .index
            .find(key.hash, |place| log.has_key(place, key.bytes))?;
        let (header, key_at) = log.header(place);
        let found = Found {
            spot,
            place,
            header,
            key_at,
        };
        if header.is_expired(now) {
            self.stats.asked_expired += 1;
            self.expire(found);
            return None;
        }
        Some(found)
    }

    pub fn expire(&mut self, found: Found) {
        self.stats.expired += 1;
        self.stats.expired_unfetched += u64::from(found.header.bits & FETCHED == 0);
        self.remove(found);
    }

    /// Removes an item for good.
    pub fn remove(&mut self, found: Found) {
        self.index.remove(found.spot);
        self.uncount(&found.header);
        self.stats.bytes -= self.log.kill(found.place) as u64;
    }

    /// Takes an item out of the counts that do not depend on its place.
    fn uncount(&mut self, header: &Header) {
        self.stats.items -= 1;
        self.stats.bytes_logical -= logical_bytes(header);
        self.stats.encoded_items -= is_encoded(header);
    }

    fn next_cas(&mut self, wanted: Option<u64>) -> u64 {
        wanted.unwrap_or_else(|| self.log.cas.next())
    }

    /// Stores a value.
    pub fn store(
        &mut self,
        store: &Store<'_>,
        key: Key<'_>,
        now: u32,
    ) -> Result<StoreOutcome, NoRoom> {
        let old = self.find(key, now);
        let mut bits = 0;
        let mut expires = store.expires.map_or(0, |second| second.max(1));
        let mut flags = store.flags;
        let mut joined = None;
        match (store.mode, &old) {
            (StoreMode::Set, _) | (StoreMode::Add, None) | (StoreMode::Replace, Some(_)) => {}
            (StoreMode::Add, Some(old)) => {
                // The field's server counts this as an access.
                self.index.touch(old.spot);
                return Ok(StoreOutcome::NotStored);
            }
            (StoreMode::Replace, None) => return Ok(StoreOutcome::NotStored),
            (StoreMode::Append | StoreMode::Prepend, None) if store.vivifies => {}
            (StoreMode::Append | StoreMode::Prepend, None) => return Ok(StoreOutcome::NotStored),
            (StoreMode::Cas(_), None) => return Ok(StoreOutcome::NotFound),
            (StoreMode::Cas(cas), Some(old)) if cas == old.header.cas => {}
            (StoreMode::Cas(cas), Some(old)) if store.invalidates && cas < old.header.cas => {
                bits = STALE | (old.header.bits & TOKEN);
                expires = old.header.expires;
            }
            (StoreMode::Cas(_), Some(_)) => return Ok(StoreOutcome::Exists),
            (StoreMode::Append | StoreMode::Prepend, Some(old)) => {
                let is_front = store.mode == StoreMode::Prepend;
                (flags, expires) = (old.header.flags, old.header.expires);
                if store.cas.is_none_or(|cas| cas == old.header.cas) {
                    joined = Some(self.joined(old, store.value, is_front));
                }
            }
        }
        if old.is_some_and(|old| store.cas.is_some_and(|cas| cas != old.header.cas)) {
            return Ok(StoreOutcome::Exists);
        }
        let value = joined.as_deref().unwrap_or(store.value);
        if is_too_large(key.bytes.len(), value.len(), flags, self.item_bytes_max) {
            if let (StoreMode::Set, Some(old)) = (store.mode, old) {
                self.remove(old);
            }
            return Ok(StoreOutcome::TooLarge);
        }
        let header = Header {
            key_bytes: key.bytes.len() as u8,
            bits,
            access: now,
            cas: self.next_cas(store.cas_new),
            flags,
            expires,
            stored: Stored::Raw {
                bytes: value.len() as u32,
            },
        };
        self.put(key, old, header, value, now)?;
        Ok(StoreOutcome::Stored { cas: header.cas })
    }

    fn joined(&self, old: &Found, value: &[u8], is_front: bool) -> Vec<u8> {
        let mut joined = Vec::with_capacity(old.header.stored.raw_bytes() + value.len());
        if is_front {
            joined.extend_from_slice(value);
        }
        self.read_value(old, &mut joined);
        if !is_front {
            joined.extend_from_slice(value);
        }
        joined
    }

    /// Appends an item, in a chain if it is longer than a slab holds, and lets the index point to it.
    fn put(
        &mut self,
        key: Key<'_>,
        old: Option<Found>,
        mut header: Header,
        value: &[u8],
        now: u32,
    ) -> Result<(), NoRoom> {
        if old.is_none() && !self.index.has_room() {
            return Err(NoRoom);
        }
        let slab_bytes = self.log.slab_bytes();
        let mut chain = None;
        let mut inline = value;
        if item::HEADER_BYTES_MAX + key.bytes.len() + value.len() > slab_bytes {
            header.stored = chained(value.len() as u32, slab_bytes);
            let whole_bytes = value.len() + 4 - header.stored.inline_bytes();
            let mut rooms = Vec::with_capacity(whole_bytes.div_ceil(slab_bytes));
            for part in value[..whole_bytes].chunks(slab_bytes) {
                let mut room = self.space.allocate(Purpose::New).ok_or(NoRoom)?;
                room.slab[..part.len()].copy_from_slice(part);
                rooms.push(room);
            }
            inline = &value[whole_bytes..];
            chain = Some(rooms);
        }
        let queue = (Queue::Fresh, Purpose::New);
        let place = if let Some(rooms) = chain {
            let number = self.log.add_chain(rooms);
            let first = number.to_le_bytes();
            let content = Content {
                header: &header,
                key: key.bytes,
                stored: [&first, inline],
                form: None,
            };
            let place = self.log.append(queue, content, now);
            if place.is_none() {
                self.log.free_chain(number);
            }
            place
        } else {
            let content = Content {
                header: &header,
                key: key.bytes,
                stored: [inline, &[]],
                form: None,
            };
            self.log.append(queue, content, now)
        };
        let place = place.ok_or(NoRoom)?;
        let frequency = old.map_or(0, |old| self.index.frequency(old.spot));
        match old {
            Some(old) => {
                self.index.redirect(old.spot, place, frequency);
                self.uncount(&old.header);
                self.stats.bytes -= self.log.kill(old.place) as u64;
            }
            None => self.index.insert(key.hash, place),
        }
        self.stats.items += 1;
        self.stats.items_total += 1;
        self.stats.bytes_logical += logical_bytes(&header);
        self.stats.bytes += self.log.item_bytes(place) as u64;
        Ok(())
    }

    /// Adds the value of an item to `target`.
    pub fn read_value(&self, found: &Found, target: &mut Vec<u8>) {
        let at = found.key_at + usize::from(found.header.key_bytes);
        let segment = found.place.segment;
        match found.header.stored {
            Stored::Raw { bytes } => {
                target.extend_from_slice(self.log.bytes(segment, at, bytes as usize))
            }
            stored @ Stored::Chained { .. } => self.log.read_chain(segment, at, stored, target),
            Stored::Encoded {
                bytes, raw_bytes, ..
            } => {
                let form = self.form_of(found).expect("an encoded item has a form");
                let stored = self.log.bytes(segment, at, bytes as usize);
                on_bench(|bench| bench.decode(form, stored, raw_bytes as usize, target));
            }
        }
    }

    /// Returns the decoder of an item; `None` if it is not encoded.
    pub fn form_of(&self, found: &Found) -> Option<&Arc<Form>> {
        match found.header.stored {
            Stored::Encoded { form, .. } => Some(self.log.form(found.place.segment, form)),
            _ => None,
        }
    }

    /// Returns true once in so many times.
    pub fn draw(&mut self, one_in: u32) -> bool {
        let mut state = self.draws;
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        self.draws = state;
        state.is_multiple_of(one_in.max(1))
    }

    /// Hands an item to a function, and counts the access.
    pub fn fetch<R>(
        &mut self,
        key: Key<'_>,
        fetch: &Fetch,
        now: u32,
        look: impl FnOnce(ItemRef<'_>) -> R,
    ) -> Result<Option<R>, NoRoom> {
        self.stats.fetches += 1;
        let mut found = self.find(key, now);
        let is_vivified = found.is_none() && fetch.vivify.is_some();
        if let (None, Some(expires)) = (found, fetch.vivify) {
            let store = Store {
                expires,
                ..Store::new(StoreMode::Set, key.bytes, b"")
            };
            self.store(&store, key, now)?;
            found = self.find(key, now);
        }
        let Some(mut found) = found else {
            return Ok(None);
        };
        let before = found.header;
        let mut win = match before.bits & TOKEN != 0 {
            true => Win::Taken,
            false => Win::None,
        };
        let is_near = fetch.recache_below_seconds.is_some_and(|seconds| {
            before.expires != 0 && before.expires.saturating_sub(now) < seconds
        });
        let is_stale = before.bits & STALE != 0;
        let is_wanted = is_vivified || fetch.may_win && (is_stale || is_near);
        if win == Win::None && is_wanted {
            win = Win::Won;
        }
        if let Some(expires) = fetch.touch {
            self.set_end(key, &mut found, expires, now)?;
        }
        let token = if win == Win::Won { TOKEN } else { 0 };
        let (bytes, base) = self.log.item_mut(found.place);
        if fetch.leaves_access {
            item::mark(bytes, token, before.access, base.opened);
        } else {
            item::mark(bytes, FETCHED | token, now, base.opened);
            self.index.touch(found.spot);
        }
        let item = ItemRef {
            value: &[],
            value_bytes: found.header.stored.raw_bytes(),
            flags: before.flags,
            cas: found.header.cas,
            expires: Some(found.header.expires).filter(|second| *second != 0),
            is_fetched: before.bits & FETCHED != 0,
            last_access: before.access,
            is_stale,
            win,
            is_vivified,
            stored_bytes: self.log.item_bytes(found.place),
        };
        Ok(Some(match fetch.without_value {
            true => look(item),
            false => self.look(key, &found, item, look, now),
        }))
    }

    fn look<R>(
        &mut self,
        key: Key<'_>,
        found: &Found,
        item: ItemRef<'_>,
        look: impl FnOnce(ItemRef<'_>) -> R,
        now: u32,
    ) -> R {
        if let Stored::Raw { bytes } = found.header.stored {
            let at = found.key_at + usize::from(found.header.key_bytes);
            let value = self.log.bytes(found.place.segment, at, bytes as usize);
            return look(ItemRef { value, ..item });
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        self.read_value(found, &mut scratch);
        let result = look(ItemRef {
            value: &scratch,
            ..item
        });
        if let Stored::Encoded { .. } = found.header.stored {
            self.after_decoding(key, *found, &scratch, now);
        }
        if scratch.capacity() <= SCRATCH_BYTES_KEPT {
            self.scratch = scratch;
        }
        result
    }

    /// Sets the end of an item, which moves if its header has no field for one.
    fn set_end(
        &mut self,
        key: Key<'_>,
        found: &mut Found,
        expires: Option<u32>,
        now: u32,
    ) -> Result<(), NoRoom> {
        let header = Header {
            expires: expires.map_or(0, |second| second.max(1)),
            ..found.header
        };
        self.change(key, found, header, now)
    }

    /// Writes a changed header over an item, or writes the item again.
    fn change(
        &mut self,
        key: Key<'_>,
        found: &mut Found,
        header: Header,
        now: u32,
    ) -> Result<(), NoRoom> {
        if self.log.fits_over(found.place, &header) {
            self.log.rewrite(found.place, &header);
        } else {
            let mut inline = Vec::new();
            let at = found.key_at + usize::from(header.key_bytes);
            inline.extend_from_slice(self.log.bytes(
                found.place.segment,
                at,
                header.stored.inline_bytes(),
            ));
            let queue = (self.log.segment(found.place.segment).queue, Purpose::New);
            let form = self.form_of(found).cloned();
            let content = Content {
                header: &header,
                key: key.bytes,
                stored: [&inline, &[]],
                form: form.as_ref(),
            };
            let place = self.log.append(queue, content, now).ok_or(NoRoom)?;
            let frequency = self.index.frequency(found.spot);
            self.index.redirect(found.spot, place, frequency);
            self.stats.bytes += self.log.item_bytes(place) as u64;
            self.stats.bytes -= self.log.forget(found.place.segment, &found.header) as u64;
            found.place = place;
        }
        (found.header, found.key_at) = self.log.header(found.place);
        Ok(())
    }

    pub fn delete(
        &mut self,
        key: Key<'_>,
        delete: &Delete,
        now: u32,
    ) -> Result<DeleteOutcome, NoRoom> {
        let Some(mut found) = self.find(key, now) else {
            return Ok(DeleteOutcome::NotFound);
        };
        if delete.cas.is_some_and(|cas| cas != found.header.cas) {
            return Ok(DeleteOutcome::Exists);
        }
        if !delete.marks_stale {
            self.remove(found);
            return Ok(DeleteOutcome::Deleted);
        }
        let mut header = found.header;
        header.bits = (header.bits | STALE) & !TOKEN;
        header.cas = self.next_cas(delete.cas_new);
        if let Some(expires) = delete.touch {
            header.expires = expires.map_or(0, |second| second.max(1));
        }
        self.change(key, &mut found, header, now)?;
        Ok(DeleteOutcome::Deleted)
    }

    pub fn count(&mut self, key: Key<'_>, count: &Count, now: u32) -> Result<CountOutcome, NoRoom> {
        let Some(mut found) = self.find(key, now) else {
            return self.count_new(key, count, now);
        };
        // In the field's server an empty value is not a number, with any CAS. For other values the CAS is compared
        // first.
        if found.header.stored.raw_bytes() == 0 {
            return Ok(CountOutcome::NotNumeric);
        }
        if count.cas.is_some_and(|cas| cas != found.header.cas) {
            return Ok(CountOutcome::Exists);
        }
        let mut digits = Vec::new();
        if !matches!(found.header.stored, Stored::Chained { .. }) {
            self.read_value(&found, &mut digits);
        }
        let Some(number) = parse_number(&digits) else {
            return Ok(CountOutcome::NotNumeric);
        };
        let number = match count.is_decrement {
            true => number.saturating_sub(count.delta),
            false => number.wrapping_add(count.delta),
        };
        let width = digits.len();
        digits = number.to_string().into_bytes();
        // A number that gets shorter is padded with spaces, as in the field's server.
        digits.resize(digits.len().max(width), b' ');
        let mut header = found.header;
        header.cas = self.next_cas(count.cas_new);
        if let Some(expires) = count.touch {
            header.expires = expires.map_or(0, |second| second.max(1));
        }
        header.stored = Stored::Raw {
            bytes: digits.len() as u32,
        };
        header.access = now;
        if digits.len() > width {
            // As in the field's server, an item that grows is a new one: not fetched, and not stale.
            header.bits = 0;
        }
        if found.header.stored == header.stored && self.log.fits_over(found.place, &header) {
            self.change(key, &mut found, header, now)?;
            let at = found.key_at + key.bytes.len();
            self.log
                .bytes_mut(found.place.segment, at, digits.len())
                .copy_from_slice(&digits);
        } else {
            self.put(key, Some(found), header, &digits, now)?;
        }
        self.index_touch(key);
        let expires = Some(header.expires).filter(|second| *second != 0);
        Ok(CountOutcome::Counted {
            number,
            cas: header.cas,
            expires,
            is_vivified: false,
        })
    }

    /// Counts without an item: the initial number is stored, if there is one.
    fn count_new(&mut self, key: Key<'_>, count: &Count, now: u32) -> Result<CountOutcome, NoRoom> {
        let Some((number, expires)) = count.initial else {
            return Ok(CountOutcome::NotFound);
        };
        let value = number.to_string();
        let store = Store {
            expires,
            cas_new: count.cas_new,
            ..Store::new(StoreMode::Set, key.bytes, value.as_bytes())
        };
        Ok(match self.store(&store, key, now)? {
            StoreOutcome::Stored { cas } => CountOutcome::Counted {
                number,
                cas,
                expires,
                is_vivified: true,
            },
            _ => CountOutcome::OutOfMemory,
        })
    }

    fn index_touch(&mut self, key: Key<'_>) {
        let log = &self.log;
        if let Some((spot, _)) = self
            .index
            .find(key.hash, |place| log.has_key(place, key.bytes))
        {
            self.index.touch(spot);
        }
    }

    /// Shows every live item, without its value.
    pub fn visit(&mut self, now: u32, mut look: impl FnMut(&[u8], ItemRef<'_>)) {
        for number in self.log.numbers() {
            let (mut at, end) = (0, self.log.used(number));
            while at < end {
                let place = Place {
                    segment: number,
                    offset: at,
                };
                let (found, next) = self.item_at(place);
                at = next;
                let live = found.filter(|found| !found.header.is_expired(now));
                let Some(Found { header, key_at, .. }) = live else {
                    continue;
                };
                let item = ItemRef {
                    value: &[],
                    value_bytes: header.stored.raw_bytes(),
                    flags: header.flags,
                    cas: header.cas,
                    expires: Some(header.expires).filter(|second| *second != 0),
                    is_fetched: header.bits & FETCHED != 0,
                    last_access: header.access,
                    is_stale: header.bits & STALE != 0,
                    win: Win::None,
                    is_vivified: false,
                    stored_bytes: self.log.item_bytes(place),
                };
                look(
                    self.log.bytes(number, key_at, header.key_bytes.into()),
                    item,
                );
            }
        }
    }

    /// Returns the counts, together with those of the present.
    pub fn stats(&self) -> ObjectsStats {
        ObjectsStats {
            index_bytes: self.index.memory_bytes() as u64,
            slabs: self.log.slabs().into(),
            fresh_slabs: self.log.slabs_of(Queue::Fresh).into(),
            cold_slabs: self.log.slabs_of(Queue::Cold).into(),
            main_slabs: self.log.slabs_of(Queue::Main).into(),
            hot_slabs: self.log.slabs_of(Queue::Hot).into(),
            ..self.stats
        }
    }
}

pub(super) fn logical_bytes(header: &Header) -> u64 {
    u64::from(header.key_bytes) + header.stored.raw_bytes() as u64
}

pub(super) fn is_encoded(header: &Header) -> u64 {
    u64::from(matches!(header.stored, Stored::Encoded { .. }))
}

/// Reads a number as memcached does: C's `strtoull` up to a space or the end, with nothing negative.
fn parse_number(text: &[u8]) -> Option<u64> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_space(byte))?;
    let text = &text[start..];
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    if text.get(end).is_some_and(|byte| !is_space(byte)) {
        return None;
    }
    str::from_utf8(&text[..end]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_field_reads_them() {
        let check = |text: &str, expected: Option<u64>| {
            assert_eq!(parse_number(text.as_bytes()), expected, "{text:?}");
        };
        check("0", Some(0));
        check("12 ", Some(12));
        check(" 12", Some(12));
        check("+5", Some(5));
        check("18446744073709551615", Some(u64::MAX));
        check("18446744073709551616", None);
        check("-1", None);
        check("", None);
        check(" ", None);
        check("5a", None);
        check("5 a", Some(5));
        check("+", None);
    }
}
