//! The log of one shard: segments of items, filled from the front, in queues by age and in groups by their end.
//!
//! The log itself never moves items. It only removes them one by one or with their whole segment. A segment whose last
//! item is killed is freed at once, unless it is being filled or emptied.

use std::collections::VecDeque;
use std::sync::Arc;

use super::form::Form;
use super::index::{OFFSET_BITS, Place, SEGMENT_BITS};
use super::item::{self, Base, Header, Stored};
use super::space::{Purpose, Room, Space};

/// A shard's numbers of stored values. No number is given twice in a store, since each shard has its own remainder.
#[derive(Clone, Copy, Debug)]
pub(super) struct CasCounter {
    newest: u64,
    shift: u32,
}

impl CasCounter {
    /// Of one of 2 to `shift` shards.
    pub fn new(after: u64, shard: u64, shift: u32) -> CasCounter {
        CasCounter {
            newest: ((after >> shift) << shift) | shard,
            shift,
        }
    }

    pub fn next(&mut self) -> u64 {
        self.newest += 1 << self.shift;
        self.newest
    }

    /// The number of this shard some steps below one that may be another's.
    fn below(self, cas: u64, steps: u64) -> u64 {
        let remainder = self.newest & ((1 << self.shift) - 1);
        ((cas >> self.shift).saturating_sub(steps) << self.shift) | remainder
    }
}

/// A segment is a slab, whose offsets an index slot can hold.
pub(super) const SLAB_BYTES_MAX: usize = 1 << OFFSET_BITS;

/// Groups of segments by the remaining time of their items when stored: none, or up to so many seconds.
const LIFE_SECONDS: [u32; 4] = [64, 1024, 16 << 10, u32::MAX];
const LIVES: usize = LIFE_SECONDS.len() + 1;
/// Steps of the CAS below the newest, for items that are stored again with their old CAS.
const FRESH_CAS_BELOW: u64 = 1 << 12;
/// The reserve below the first item that moved into a segment, in steps of the CAS and seconds of access. Items within
/// it have short forms.
const MOVED_CAS_BELOW: u64 = 1 << 15;
const MOVED_ACCESS_BELOW: u32 = 1 << 14;

/// The queues of S3-FIFO, in the order of an item's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// New items, as they came.
    Fresh,
    /// Items without a fetch while they were fresh.
    Cold,
    /// Items that were fetched.
    Main,
    /// Items that were decoded so often that they are stored raw again.
    Hot,
}

pub(super) const QUEUES: usize = 4;

pub(super) struct Segment {
    room: Room,
    pub queue: Queue,
    life: u8,
    used: u32,
    pub live_items: u32,
    pub live_bytes: u32,
    pub base: Base,
    /// The second from which all of it is gone; `u32::MAX` for never.
    expires_last: u32,
    sequence: u32,
    /// The decoders of its encoded items: they name a place in this list.
    forms: Vec<Arc<Form>>,
}

/// Entries of freed segments that a queue may hold, beside one for each segment it has. When there are more, all are
/// looked at.
const FREED_ENTRIES: usize = 16;

/// Forms of a segment, which items name by a byte.
const FORMS_MAX: usize = 1 << 8;

/// An item to be added: its stored bytes come in two parts.
#[derive(Clone, Copy)]
pub(super) struct Content<'a> {
    pub header: &'a Header,
    pub key: &'a [u8],
    pub stored: [&'a [u8]; 2],
    /// Its decoder, if it is encoded; the number in the header is not used.
    pub form: Option<&'a Arc<Form>>,
}

/// Segments, their queues, and chains of slabs.
pub(super) struct Log {
    space: Arc<Space>,
    /// By their number; number 0 is none.
    segments: Vec<Option<Segment>>,
    vacant: Vec<u32>,
    filling: [[u32; LIVES]; QUEUES],
    /// Closed segments, the oldest first, with the sequence that shows whether they are unchanged.
    queues: [VecDeque<(u32, u32)>; QUEUES],
    counts: [u32; QUEUES],
    chains: Vec<Vec<Room>>,
    chains_vacant: Vec<u32>,
    chained_slabs: u32,
    /// Places in all segments' lists of forms.
    form_places: usize,
    sequence: u32,
    pub cas: CasCounter,
    /// A segment that is being emptied; the thread that empties it frees it.
    pub emptying: u32,
}

impl Log {
    pub fn new(space: Arc<Space>, cas: CasCounter) -> Log {
        Log {
            space,
            segments: vec![None],
            vacant: Vec::new(),
            filling: [[0; LIVES]; QUEUES],
            queues: Default::default(),
            counts: [0; QUEUES],
            chains: Vec::new(),
            chains_vacant: Vec::new(),
            chained_slabs: 0,
            form_places: 0,
            sequence: 0,
            cas,
            emptying: 0,
        }
    }

    pub fn slab_bytes(&self) -> usize {
        self.space.slab_bytes()
    }

    /// Slabs of a queue, chains not counted.
    pub fn slabs_of(&self, queue: Queue) -> u32 {
        self.counts[queue as usize]
    }

    /// Bytes of the segments, with dead and free bytes.
    pub fn items_bytes(&self) -> usize {
        self.counts.iter().sum::<u32>() as usize * self.slab_bytes()
    }

    /// Slabs that are held altogether.
    pub fn slabs(&self) -> u32 {
        self.counts.iter().sum::<u32>() + self.chained_slabs
    }

    pub fn memory_bytes(&self) -> usize {
        let queues: usize = self.queues.iter().map(VecDeque::capacity).sum();
        let chains: usize = self.chains.iter().map(Vec::capacity).sum();
        self.segments.capacity() * size_of::<Option<Segment>>()
            + queues * size_of::<(u32, u32)>()
            + (self.vacant.capacity() + self.chains_vacant.capacity()) * size_of::<u32>()
            + self.chains.capacity() * size_of::<Vec<Room>>()
            + chains * size_of::<Room>()
            + self.form_places * size_of::<Arc<Form>>()
    }

    pub fn segment(&self, number: u32) -> &Segment {
        self.segments[number as usize]
            .as_ref()
            .expect("a segment in use")
    }

    fn segment_mut(&mut self, number: u32) -> &mut Segment {
        self.segments[number as usize]
            .as_mut()
            .expect("a segment in use")
    }

    /// Returns the header of an item and where its key begins.
    pub fn header(&self, place: Place) -> (Header, usize) {
        let segment = self.segment(place.segment);
        let item = &segment.room.slab[place.offset as usize..];
        let (header, bytes) = Header::read(segment.base, self.slab_bytes(), item);
        (header, place.offset as usize + bytes)
    }

    /// Bytes of the item at a place, header, key and stored bytes.
    pub fn item_bytes(&self, place: Place) -> usize {
        let base = self.segment(place.segment).base;
        self.header(place).0.item_bytes(base)
    }

    /// Returns whether the item at a place is known to be dead.
    pub fn is_dead(&self, place: Place) -> bool {
        item::is_dead(&self.segment(place.segment).room.slab[place.offset as usize..])
    }

    /// Returns whether the item at a place has this key, with the least look at its header.
    pub fn has_key(&self, place: Place, key: &[u8]) -> bool {
        let first = self.segment(place.segment).room.slab[place.offset as usize];
        if usize::from(first) != key.len() {
            return false;
        }
        let (_, at) = self.header(place);
        self.bytes(place.segment, at, key.len()) == key
    }

    pub fn bytes(&self, segment: u32, at: usize, count: usize) -> &[u8] {
        &self.segment(segment).room.slab[at..at + count]
    }

    /// Returns the whole item, to be marked.
    pub fn item_mut(&mut self, place: Place) -> (&mut [u8], Base) {
        let segment = self.segment_mut(place.segment);
        (
            &mut segment.room.slab[place.offset as usize..],
            segment.base,
        )
    }

    /// Writes a header over an item whose length stays the same.
    ///
    /// # Panics
    /// If the length would change.
    pub fn rewrite(&mut self, place: Place, header: &Header) {
        let slab_bytes = self.slab_bytes();
        let (old, _) = self.header(place);
        let segment = self.segment_mut(place.segment);
        assert_eq!(
            old.item_bytes(segment.base),
            header.item_bytes(segment.base),
            "an item stays as long"
        );
        let expires = if header.expires == 0 {
            u32::MAX
        } else {
            header.expires
        };
        segment.expires_last = segment.expires_last.max(expires);
        header.write(
            segment.base,
            slab_bytes,
            &mut segment.room.slab[place.offset as usize..],
        );
    }

    /// Returns whether an item with this header would have the same length as the one at this place.
    pub fn fits_over(&self, place: Place, header: &Header) -> bool {
        let base = self.segment(place.segment).base;
        self.header(place).0.item_bytes(base) == header.item_bytes(base)
    }

    pub fn bytes_mut(&mut self, segment: u32, at: usize, count: usize) -> &mut [u8] {
        &mut self.segment_mut(segment).room.slab[at..at + count]
    }

    /// Returns the decoder of an item of a segment.
    pub fn form(&self, segment: u32, number: u8) -> &Arc<Form> {
        &self.segment(segment).forms[usize::from(number)]
    }

    /// Adds an item to a queue; `None` if there is no slab for it.
    pub fn append(
        &mut self,
        (queue, purpose): (Queue, Purpose),
        content: Content<'_>,
        now: u32,
    ) -> Option<Place> {
        let mut header = *content.header;
        let left = header.expires.saturating_sub(now);
        let life = match header.expires {
            0 => 0,
            _ => {
                1 + LIFE_SECONDS
                    .iter()
                    .position(|most| left <= *most)
                    .unwrap_or(LIVES - 2)
            }
        };
        let number = self.room_for(queue, purpose, life, content, now)?;
        if let (Stored::Encoded { form, .. }, Some(wanted)) = (&mut header.stored, content.form) {
            *form = self.number_of_form(number, wanted);
        }
        let slab_bytes = self.slab_bytes();
        let segment = self.segment_mut(number);
        let start = segment.used as usize;
        let mut at =
            start + header.write(segment.base, slab_bytes, &mut segment.room.slab[start..]);
        for part in [content.key, content.stored[0], content.stored[1]] {
            segment.room.slab[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        assert_eq!(
            at - start,
            header.item_bytes(segment.base),
            "an item is as long as it says"
        );
        segment.used = at as u32;
        segment.live_items += 1;
        segment.live_bytes += (at - start) as u32;
        let expires = if header.expires == 0 {
            u32::MAX
        } else {
            header.expires
        };
        segment.expires_last = segment.expires_last.max(expires);
        Some(Place {
            segment: number,
            offset: start as u32,
        })
    }

    /// Returns the place of a form in a segment's list, which has room for it.
    fn number_of_form(&mut self, segment: u32, wanted: &Arc<Form>) -> u8 {
        let forms = &mut self.segment_mut(segment).forms;
        let found = forms.iter().position(|form| Arc::ptr_eq(form, wanted));
        let number = found.unwrap_or(forms.len());
        if found.is_none() {
            forms.push(Arc::clone(wanted));
            self.form_places += 1;
        }
        assert!(number < FORMS_MAX, "a segment has room for another form");
        number as u8
    }

    /// Returns the segment of a group that has room for an item, a new one where the last is full.
    fn room_for(
        &mut self,
        queue: Queue,
        purpose: Purpose,
        life: usize,
        content: Content<'_>,
        now: u32,
    ) -> Option<u32> {
        let header = content.header;
        let slab_bytes = self.slab_bytes();
        let current = self.filling[queue as usize][life];
        if current != 0 {
            let segment = self.segment(current);
            let is_new = |form: &Arc<Form>| !segment.forms.iter().any(|it| Arc::ptr_eq(it, form));
            let is_full = segment.forms.len() >= FORMS_MAX && content.form.is_some_and(is_new);
            if !is_full && segment.used as usize + header.item_bytes(segment.base) <= slab_bytes {
                return Some(current);
            }
        }
        let room = self.space.allocate(purpose)?;
        self.close(queue, life);
        let base = match queue {
            Queue::Fresh => Base {
                cas: self.cas.below(self.cas.newest, FRESH_CAS_BELOW),
                cas_shift: self.cas.shift,
                opened: now,
            },
            _ => Base {
                cas: self.cas.below(header.cas, MOVED_CAS_BELOW),
                cas_shift: self.cas.shift,
                opened: header.access.min(now).saturating_sub(MOVED_ACCESS_BELOW),
            },
        };
        self.sequence = self.sequence.wrapping_add(1);
        let segment = Segment {
            room,
            queue,
            life: life as u8,
            used: 0,
            live_items: 0,
            live_bytes: 0,
            base,
            expires_last: 0,
            sequence: self.sequence,
            forms: Vec::new(),
        };
        assert!(header.item_bytes(base) <= slab_bytes, "an item fits a slab");
        let number = self.vacant.pop().unwrap_or_else(|| {
            self.segments.push(None);
            (self.segments.len() - 1) as u32
        });
        assert!(number < 1 << SEGMENT_BITS, "a shard has few segments");
        self.segments[number as usize] = Some(segment);
        self.counts[queue as usize] += 1;
        self.filling[queue as usize][life] = number;
        Some(number)
    }

    /// Closes the segment of a group that is being filled.
    fn close(&mut self, queue: Queue, life: usize) {
        let number = std::mem::take(&mut self.filling[queue as usize][life]);
        if number == 0 {
            return;
        }
        let segment = self.segment(number);
        match segment.live_items {
            0 => self.free(number),
            _ => {
                self.put_back(number);
            }
        }
    }

    /// Counts an item as gone, and frees its chain, and its segment if that was the last. Returns its bytes.
    pub fn kill(&mut self, place: Place) -> usize {
        let (header, key_at) = self.header(place);
        if let Stored::Chained { .. } = header.stored {
            let chain = self.chain_at(place.segment, key_at + usize::from(header.key_bytes));
            self.free_chain(chain);
        }
        item::mark_dead(self.item_mut(place).0);
        self.forget(place.segment, &header)
    }

    /// Counts an item as gone whose chain now belongs to another.
    pub fn forget(&mut self, number: u32, header: &Header) -> usize {
        let is_busy = number == self.emptying;
        let segment = self.segment_mut(number);
        let bytes = header.item_bytes(segment.base);
        segment.live_items -= 1;
        segment.live_bytes -= bytes as u32;
        let group = (segment.queue as usize, segment.life as usize);
        if segment.live_items == 0 && !is_busy && self.filling[group.0][group.1] != number {
            self.free(number);
        }
        bytes
    }

    /// Frees a segment that holds nothing.
    pub fn free(&mut self, number: u32) {
        let segment = self.segments[number as usize]
            .take()
            .expect("a segment in use");
        assert_eq!(segment.live_items, 0, "a segment is freed when it is empty");
        let group = (segment.queue as usize, segment.life as usize);
        if self.filling[group.0][group.1] == number {
            self.filling[group.0][group.1] = 0;
        }
        self.counts[segment.queue as usize] -= 1;
        self.form_places -= segment.forms.len();
        self.vacant.push(number);
    }

    /// Turns the oldest closed segment of the fresh queue into the youngest of the cold one. False if there is none.
    pub fn age_oldest(&mut self) -> bool {
        let Some(number) = self.oldest_closed(Queue::Fresh) else {
            return false;
        };
        self.segment_mut(number).queue = Queue::Cold;
        self.counts[Queue::Fresh as usize] -= 1;
        self.counts[Queue::Cold as usize] += 1;
        self.put_back(number);
        true
    }

    fn oldest_closed(&mut self, queue: Queue) -> Option<u32> {
        while let Some((number, sequence)) = self.queues[queue as usize].pop_front() {
            let segment = self.segments[number as usize].as_ref();
            if segment.is_some_and(|segment| segment.sequence == sequence) {
                return Some(number);
            }
        }
        None
    }

    /// Takes the oldest closed segment of a queue to be emptied; if there is none, the fullest open one.
    pub fn oldest(&mut self, queue: Queue) -> Option<u32> {
        if let Some(number) = self.oldest_closed(queue) {
            return Some(number);
        }
        let filling = self.filling[queue as usize];
        let life = (0..LIVES).filter(|life| filling[*life] != 0);
        let life = life.max_by_key(|life| self.segment(filling[*life]).used)?;
        self.filling[queue as usize][life] = 0;
        Some(filling[life])
    }

    /// Takes a segment out of its queue whose items are all past their end.
    pub fn take_expired(&mut self, now: u32) -> Option<u32> {
        let number = (1..self.segments.len()).find(|number| {
            let segment = self.segments[*number].as_ref();
            segment.is_some_and(|s| s.used > 0 && s.expires_last <= now)
                && *number as u32 != self.emptying
        })? as u32;
        let segment = self.segment(number);
        let (queue, life, sequence) = (
            segment.queue as usize,
            segment.life as usize,
            segment.sequence,
        );
        if self.filling[queue][life] == number {
            self.filling[queue][life] = 0;
        }
        self.queues[queue].retain(|entry| *entry != (number, sequence));
        Some(number)
    }

    /// Puts a segment back as the youngest of its queue.
    pub fn put_back(&mut self, number: u32) {
        let (queue, sequence) = (self.segment(number).queue, self.segment(number).sequence);
        let segments = &self.segments;
        let entries = &mut self.queues[queue as usize];
        // A segment that loses its last item is freed in place in the queue.
        let most = 2 * self.counts[queue as usize] as usize + FREED_ENTRIES;
        if entries.len() >= most {
            entries.retain(|(number, sequence)| {
                let segment = segments[*number as usize].as_ref();
                segment.is_some_and(|segment| segment.sequence == *sequence)
            });
            entries.shrink_to(most);
        }
        entries.push_back((number, sequence));
    }

    /// Bytes of a segment that hold items, dead ones too.
    pub fn used(&self, number: u32) -> u32 {
        self.segment(number).used
    }

    /// Numbers of the segments in use.
    pub fn numbers(&self) -> impl Iterator<Item = u32> {
        let numbers = self.segments.iter().enumerate();
        numbers
            .filter(|(_, segment)| segment.is_some())
            .map(|(number, _)| number as u32)
    }

    /// Keeps the whole slabs of a value, and returns the chain's number.
    pub fn add_chain(&mut self, rooms: Vec<Room>) -> u32 {
        self.chained_slabs += rooms.len() as u32;
        match self.chains_vacant.pop() {
            Some(number) => {
                self.chains[number as usize] = rooms;
                number
            }
            None => {
                self.chains.push(rooms);
                (self.chains.len() - 1) as u32
            }
        }
    }

    pub fn free_chain(&mut self, number: u32) {
        let rooms = std::mem::take(&mut self.chains[number as usize]);
        self.chained_slabs -= rooms.len() as u32;
        self.chains_vacant.push(number);
    }

    fn chain_at(&self, segment: u32, at: usize) -> u32 {
        let bytes = self.bytes(segment, at, 4);
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// Adds the value of a chained item, whose stored bytes begin at `at`.
    pub fn read_chain(&self, segment: u32, at: usize, stored: Stored, target: &mut Vec<u8>) {
        let chain = self.chain_at(segment, at);
        let tail = stored.inline_bytes() - 4;
        let mut left = stored.raw_bytes() - tail;
        for room in &self.chains[chain as usize] {
            let count = left.min(room.slab.len());
            target.extend_from_slice(&room.slab[..count]);
            left -= count;
        }
        assert_eq!(left, 0, "a chain holds its value");
        target.extend_from_slice(self.bytes(segment, at + 4, tail));
    }
}

impl Log {
    /// Takes the segment with the most dead bytes out of its queue, if emptying it would free an eighth of a slab.
    pub fn take_sparsest(&mut self) -> Option<u32> {
        let filling = self.filling;
        let closed = self
            .numbers()
            .filter(|number| filling.iter().flatten().all(|f| f != number));
        let number = closed.min_by_key(|number| self.segment(*number).live_bytes)?;
        let segment = self.segment(number);
        if segment.live_bytes as usize > self.slab_bytes() / 8 * 7 {
            return None;
        }
        let (queue, sequence) = (segment.queue as usize, segment.sequence);
        self.queues[queue].retain(|entry| *entry != (number, sequence));
        Some(number)
    }
}
