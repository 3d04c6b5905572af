//! Writing the log: records into segments, one segment behind the other.
//!
//! A segment names its successor in its head, so the next one is chosen when a segment is opened. Segments are taken
//! from those that are free, or the file grows. Records that are laid out and not yet written can be taken back.
//! Written ones stay, and are worth nothing without their commit.

use std::sync::Arc;

use super::Reserve;
use super::goal::segment_bytes;
use super::layout::{KIND_END, KIND_PUBLICATION, Position, SEGMENTS_START, encode_head};
use super::place::{FILE_BYTES_MAX, Place, Segment, Segments};
use super::shared::Shared;
use crate::error::{Error, Result};
use crate::storage::StorageFile;
use crate::storage::record::{
    ALIGNMENT_BYTES, Appended, HEADER_BYTES, KIND_PADDING, Label, Placed, RecordWriter, Region,
    record_bytes,
};

/// Bytes that are laid out before they are written: one write carries a transaction up to this long. No record is
/// longer.
pub(super) const BUFFER_BYTES_MAX: u64 = 256 << 10;
/// Bytes of a segment's head, with the most that is left at the end of the segment before beside a record that did not
/// fit.
const HEAD_BYTES: u64 = 4 * HEADER_BYTES as u64;
/// Segments shorter than this part of a file, up to the longest record, are not begun again. They are the file's first
/// 256th at most: it grew by a 64th of its length at a time, up to 1 MiB.
const BEGUN_SHARE: u64 = 16_384;
/// Shorter files keep no share: one segment would be more than a sixteenth of them.
const SHARED_SEGMENTS: u64 = 16;
/// The least that a file system writes, in bytes, and so the cost of a sync for each block touched.
const BLOCK_BYTES: u64 = 4096;
/// At most this much of a block is left empty, so that the next transaction touches one less.
const PADDING_BYTES_MAX: u64 = BLOCK_BYTES / 4;
/// Bytes kept free behind a commit for its publication: a header, and the bytes that must be left behind one.
pub(super) const PUBLICATION_ROOM_BYTES: u64 = 2 * HEADER_BYTES as u64;
/// Bytes of a new part of the file filled with zeros at a time.
const ZERO_BYTES: usize = 64 << 10;
/// On nobody's stack: hosts have threads with less than that.
static ZEROS: [u8; ZERO_BYTES] = [0; ZERO_BYTES];

/// Whether a segment may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Nothing in it is needed by states of at least this version.
    Free { since: u64 },
    /// It holds something live, or something that a recovery would read, or is about to.
    Held,
}

/// Whether the host has given a segment its room, as this writer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backing {
    /// Another writer left it.
    Unknown,
    Given,
    /// It was given back, or the host must give it again.
    Missing,
}

/// Bytes that nothing refers to any more.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dead {
    /// In segments without live bytes.
    pub(super) whole_bytes: u64,
    pub(super) all_bytes: u64,
}

/// The rules for a store's file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) segment_bytes_min: u64,
    pub(super) file_bytes_max: u64,
    pub(super) reserve: Reserve,
}

/// The end of the log, where it is written.
pub(super) struct Log {
    file: Arc<dyn StorageFile>,
    log_id: [u8; 16],
    pub(super) geometry: Geometry,
    shared: Arc<Shared>,
    pub(super) segments: Segments,
    /// The bytes of records in each segment that a state needs, without those of the checkpoint's lists.
    pub(super) live: Vec<u64>,
    pub(super) uses: Vec<Use>,
    backing: Vec<Backing>,
    spare: Spare,
    writer: RecordWriter,
    current: usize,
    successor: usize,
    /// The least length of a segment that is begun.
    begun_bytes_min: u64,
    /// The number of segments that a recovery knows, beside those that the log names one behind the other.
    listed: usize,
    generation: u64,
    /// The generation of the first segment that this writer began.
    pub(super) first_generation: u64,
    /// The number of the first record that is not written yet.
    flushed_sequence: u64,
    /// Every record below this number is durable.
    pub(super) synced_sequence: u64,
    /// The number behind the last transaction.
    committed_sequence: u64,
    /// Whether the file was synced since the last superblock.
    pub(super) has_synced: bool,
    pub(super) appended_bytes: u64,
    /// Bytes that another writer left of its last segment, until a cleaning: they are as good as written.
    pub(super) given_up_bytes: u64,
    /// Bytes that died since the last cleaning, beside the overwritten ones. They pay for giving back as much.
    pub(super) freed_bytes: u64,
    /// The length of a file that is too long and did not get shorter when that was tried, 0 for none.
    pub(super) least_bytes: u64,
    /// Bytes laid out since the last sync of a transaction, and the count of transactions.
    unsynced_bytes: u64,
    unsynced_count: u64,
    /// The usual bytes of a transaction where each is synced, else 0.
    usual_bytes: u64,
    /// The room within the file that the present writer leaves to others.
    pub(super) kept_bytes: u64,
    /// Whether the last refusal was for want of room, before anything was written.
    pub(super) lacks_room: bool,
    /// Bytes of the last transaction that found no room.
    pub(super) refused_bytes: u64,
    /// Whether the file could not grow when it was to.
    pub(super) is_tight: bool,
    /// The last refusal of the host, or of the file's limit.
    pub(super) refusal: Option<Error>,
    /// Dead bytes that could not be freed when room was last made and there was too little; none where there was
    /// enough.
    pub(super) futile_bytes: Option<u64>,
    /// Bytes that died since the last checkpoint, and since the last look at whether they are worth one.
    pub(super) died_bytes: u64,
}

/// The segments that may be written at once: they are free for all readers, and the host has given them their room.
#[derive(Clone, Copy, Debug, Default)]
struct Spare {
    bytes: u64,
    longest_bytes: u64,
}

/// The start values of a new log.
pub(super) struct Start {
    pub(super) segments: Segments,
    pub(super) live: Vec<u64>,
    pub(super) uses: Vec<Use>,
    /// The generation of the first segment that it opens.
    pub(super) generation: u64,
    pub(super) sequence: u64,
}

impl Log {
    /// Opens a fresh segment and starts a log in it.
    pub(super) fn start(
        file: Arc<dyn StorageFile>,
        log_id: [u8; 16],
        geometry: Geometry,
        shared: Arc<Shared>,
        start: Start,
    ) -> Result<Log> {
        // A region of no bytes, until the first segment is open.
        let nowhere = Region::new(log_id, 0, 0..0);
        let backing = vec![Backing::Unknown; start.segments.len()];
        let listed = start.segments.len();
        let mut log = Log {
            file,
            log_id,
            geometry,
            shared,
            segments: start.segments,
            live: start.live,
            uses: start.uses,
            backing,
            spare: Spare::default(),
            writer: RecordWriter::new(nowhere, 0, start.sequence, 0),
            current: usize::MAX,
            successor: usize::MAX,
            begun_bytes_min: 0,
            listed,
            generation: start.generation - 1,
            first_generation: start.generation,
            flushed_sequence: start.sequence,
            synced_sequence: 0,
            committed_sequence: 0,
            has_synced: false,
            appended_bytes: 0,
            given_up_bytes: 0,
            freed_bytes: 0,
            least_bytes: 0,
            unsynced_bytes: 0,
            unsynced_count: 0,
            usual_bytes: 0,
            kept_bytes: 0,
            lacks_room: false,
            refused_bytes: 0,
            is_tight: false,
            refusal: None,
            futile_bytes: None,
            died_bytes: 0,
        };
        log.set_begun_bytes_min();
        log.open()?;
        Ok(log)
    }

    /// Returns the place of the next record.
    pub(super) fn position(&self) -> Position {
        let successor = self.segments.get(self.successor);
        Position {
            segment: self.segments.get(self.current),
            successor: (successor.start, successor.bytes),
            address: self.writer.next_address(),
            sequence: self.writer.next_sequence(),
        }
    }

    /// Returns whether all transactions are durable.
    pub(super) fn is_durable(&self) -> bool {
        self.synced_sequence >= self.committed_sequence
    }

    /// Returns whether a segment is being written, or is the next to be.
    pub(super) fn is_at(&self, segment: usize) -> bool {
        segment == self.current || segment == self.successor
    }

    pub(super) fn current(&self) -> Segment {
        self.segments.get(self.current)
    }

    /// Returns the bytes of records that the present segment has room for.
    pub(super) fn left_bytes(&self) -> u64 {
        self.current().range().end - self.writer.next_address()
    }

    /// Returns the oldest version that a reader may still use.
    pub(super) fn horizon(&self) -> u64 {
        self.shared.horizon()
    }

    /// Returns the bytes of a record that is laid out and not yet written.
    pub(super) fn unwritten(&self, place: Place) -> Option<(Region, &[u8])> {
        let (address, bytes) = self.writer.unwritten();
        let start = place.address().checked_sub(address)? as usize;
        let record = bytes.get(start..start + place.record_bytes() as usize)?;
        Some((*self.writer.region(), record))
    }

    /// Lays a record out, in the next segment if it must be.
    ///
    /// # Errors
    /// Those of writing, and of room where it needs a segment and there is none: [`Log::make_sure`] asks before.
    pub(super) fn append(&mut self, label: Label, parts: &[&[u8]]) -> Result<Placed> {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        loop {
            // The successor of a long segment may be short.
            self.leave_short(record_bytes(body_bytes as u64))?;
            match self.writer.append(label, parts)? {
                Appended::At(placed) => {
                    self.appended_bytes += placed.record_bytes;
                    self.unsynced_bytes += placed.record_bytes;
                    return Ok(placed);
                }
                Appended::BufferFull => self.flush()?,
                Appended::RegionFull => self.next_segment()?,
            }
        }
    }

    /// Goes on in a segment that is long enough for a record. This one, and its successor, may have been begun when
    /// blocks or the file were shorter.
    fn leave_short(&mut self, record_bytes: u64) -> Result<()> {
        let wanted_bytes = record_bytes + HEAD_BYTES;
        if wanted_bytes <= self.current().bytes {
            return Ok(());
        }
        let usual_bytes = self.begun_bytes_min;
        self.begun_bytes_min = usual_bytes.max(wanted_bytes);
        let left = (0..2).try_for_each(|_| match wanted_bytes <= self.current().bytes {
            true => Ok(()),
            false => self.next_segment(),
        });
        self.begun_bytes_min = usual_bytes;
        self.recount();
        left
    }

    /// Lays out a commit that will be published, with room for the publication behind it in its segment.
    pub(super) fn append_commit(&mut self, label: Label, parts: &[&[u8]]) -> Result<Placed> {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let wanted_bytes = record_bytes(body_bytes as u64) + PUBLICATION_ROOM_BYTES;
        if self.left_bytes() < wanted_bytes {
            self.next_segment()?;
        }
        self.append(label, parts)
    }

    /// Publishes the last written commit, without a sync.
    pub(super) fn publish(&mut self) -> Result<()> {
        let label = Label {
            kind: KIND_PUBLICATION,
            ..Label::default()
        };
        self.append(label, &[])?;
        self.flush()
    }

    /// Takes back the commit that was written last.
    pub(super) fn take_back(&mut self, commit: &Placed) -> Result<()> {
        take_back(&*self.file, self.writer.region(), commit)
    }

    /// Writes everything that is laid out.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.writer.write_to(&*self.file)?;
        self.flushed_sequence = self.writer.next_sequence();
        Ok(())
    }

    /// Writes a transaction that is laid out. Where each is synced, the next one may begin in the next block of the
    /// file system. It does so if that block is near and the usual next transaction would touch one more.
    pub(super) fn flush_transaction(&mut self) -> Result<()> {
        self.unsynced_count += 1;
        if self.usual_bytes > 0 {
            self.pad()?;
        }
        self.flush()?;
        self.committed_sequence = self.flushed_sequence;
        Ok(())
    }

    /// Makes transactions durable.
    pub(super) fn sync_transactions(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.unsynced_bytes);
        self.usual_bytes = match std::mem::take(&mut self.unsynced_count) {
            0 => self.usual_bytes,
            1 if self.usual_bytes > 0 => (3 * self.usual_bytes + bytes) / 4,
            1 => bytes,
            _ => 0,
        };
        self.sync()
    }

    fn pad(&mut self) -> Result<()> {
        let used_bytes = self.writer.next_address() % BLOCK_BYTES;
        let left_bytes = BLOCK_BYTES - used_bytes;
        let blocks = (used_bytes + self.usual_bytes).div_ceil(BLOCK_BYTES);
        let saves_one = blocks > self.usual_bytes.div_ceil(BLOCK_BYTES);
        let is_near = (HEADER_BYTES as u64..=PADDING_BYTES_MAX).contains(&left_bytes);
        let has_room = left_bytes + PUBLICATION_ROOM_BYTES <= self.left_bytes();
        if !saves_one || !is_near || !has_room {
            return Ok(());
        }
        if let Some(Appended::At(placed)) = self.writer.pad_to(BLOCK_BYTES)? {
            self.appended_bytes += placed.record_bytes;
        }
        Ok(())
    }

    /// Makes all written records durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync()?;
        self.has_synced = true;
        self.synced_sequence = self.flushed_sequence;
        Ok(())
    }

    /// Forgets everything that is laid out and not yet written.
    pub(super) fn rewind(&mut self) {
        let (address, bytes) = self.writer.unwritten();
        if !bytes.is_empty() {
            let buffer_bytes = buffer_bytes(self.current());
            let region = *self.writer.region();
            self.writer = RecordWriter::new(region, address, self.flushed_sequence, buffer_bytes);
        }
    }

    /// Goes on at lower places if there are any free, so that the file's end becomes free. The successor is chosen when
    /// a segment is begun, so this takes two steps. Readers of the log follow.
    pub(super) fn leave_tail(&mut self, from: u64) -> Result<()> {
        for _ in 0..2 {
            let at = [self.current, self.successor].map(|index| self.segments.get(index).start);
            let free = self.free().next();
            let is_lower = free.is_some_and(|free| self.segments.get(free).start < from);
            if at.iter().all(|start| *start < from) || !is_lower {
                break;
            }
            self.next_segment()?;
        }
        Ok(())
    }

    /// Cuts the file behind the first `kept` segments, which nothing on the medium refers to any more.
    pub(super) fn cut(&mut self, kept: usize) -> Result<()> {
        let is_below = |index| index < kept;
        assert!(is_below(self.current) && is_below(self.successor), "{kept}");
        self.truncate_to(kept);
        self.file.truncate(self.segments.end(SEGMENTS_START))
    }

    /// Ends the present segment and opens its successor.
    fn next_segment(&mut self) -> Result<()> {
        let next = self.successor;
        self.prepare(next)?;
        let successor = self.choose()?;
        let left = self.current().range().end - self.writer.next_address();
        if left > 0 {
            // The rest must be nothing, or have room for a header.
            let extra = left - HEADER_BYTES as u64 == ALIGNMENT_BYTES as u64;
            let body: &[u8] = if extra { &[0; ALIGNMENT_BYTES] } else { &[] };
            let label = Label {
                kind: KIND_END,
                ..Label::default()
            };
            if self.writer.append(label, &[body])? == Appended::BufferFull {
                self.flush()?;
                self.writer.append(label, &[body])?;
            }
        }
        self.flush()?;
        self.begin(next, successor)
    }

    /// Opens a segment that no other names as its successor.
    fn open(&mut self) -> Result<()> {
        let first = self.choose()?;
        self.prepare(first)?;
        let before = std::mem::replace(&mut self.uses[first], Use::Held);
        match self.choose() {
            Ok(successor) => self.begin(first, successor),
            Err(error) => {
                self.uses[first] = before;
                Err(error)
            }
        }
    }

    /// Writes the head of a prepared segment and goes on in it.
    fn begin(&mut self, index: usize, successor: usize) -> Result<()> {
        self.uses[index] = Use::Held;
        self.uses[successor] = Use::Held;
        self.generation += 1;
        self.segments.set_generation(index, self.generation);
        let segment = self.segments.get(index);
        let region = Region::new(self.log_id, self.generation, segment.range());
        let sequence = self.writer.next_sequence();
        self.writer = RecordWriter::new(region, segment.start, sequence, buffer_bytes(segment));
        (self.current, self.successor) = (index, successor);
        let next = self.segments.get(successor);
        self.writer
            .append_head(&encode_head((next.start, next.bytes)))?;
        self.flush()
    }

    /// Returns the segments that are free for all readers, with or without room from the host.
    fn free(&self) -> impl Iterator<Item = usize> + '_ {
        let free = self.free_or_short();
        free.filter(|index| self.is_long_enough(&self.segments.get(*index)))
    }

    /// Returns those as well that are now too short to be begun.
    fn free_or_short(&self) -> impl Iterator<Item = usize> + '_ {
        let horizon = self.horizon();
        let uses = self.uses.iter().enumerate();
        let free = uses.filter(move |(_, used)| is_free(used, horizon));
        free.map(|(index, _)| index)
    }

    /// Returns whether a segment has room for the longest record. The first ones were made when blocks were shorter, or
    /// when the file was and its checkpoints had shorter lists.
    pub(super) fn is_long_enough(&self, segment: &Segment) -> bool {
        segment.bytes >= self.begun_bytes_min
    }

    /// Sets the least length of begun segments, for the present blocks and file.
    pub(super) fn set_begun_bytes_min(&mut self) {
        let listed_bytes = (self.file_bytes() / BEGUN_SHARE).min(BUFFER_BYTES_MAX);
        self.begun_bytes_min = self.geometry.segment_bytes_min.max(listed_bytes);
        self.recount();
    }

    /// Notes how many segments the lists of the newest checkpoint have.
    pub(super) fn note_listed(&mut self, listed: usize) {
        self.listed = listed;
        self.set_begun_bytes_min();
    }

    /// Forgets segments behind the listed ones which are not to be begun, and all behind the first of them. A recovery
    /// knows of them by the log alone, which names the segments there one after the other.
    pub(super) fn forget_short(&mut self) {
        let is_unnamed =
            |index: &usize| matches!(self.uses[*index], Use::Free { .. }) && !self.is_at(*index);
        let behind = (self.listed..self.uses.len()).rev();
        let unnamed = behind.take_while(is_unnamed).count();
        let mut behind = self.uses.len() - unnamed..self.uses.len();
        let is_short = |index: &usize| !self.is_long_enough(&self.segments.get(*index));
        if let Some(from) = behind.find(is_short) {
            self.truncate_to(from);
        }
    }

    fn truncate_to(&mut self, kept: usize) {
        self.segments.truncate(kept);
        self.live.truncate(kept);
        self.uses.truncate(kept);
        self.backing.truncate(kept);
        self.recount();
    }

    /// Returns the segments that may be written at once.
    fn spare(&self) -> impl Iterator<Item = usize> + '_ {
        self.free()
            .filter(|index| self.backing[*index] == Backing::Given)
    }

    /// Counts the bytes that may be written at once. Readers may have gone, or a checkpoint may have freed some.
    pub(super) fn recount(&mut self) {
        self.spare = self.count_spare(self.uses.len());
    }

    fn count_spare(&self, end: usize) -> Spare {
        let mut counted = Spare::default();
        for index in self.spare().take_while(|index| *index < end) {
            let bytes = self.segments.get(index).bytes;
            counted.bytes += bytes;
            counted.longest_bytes = counted.longest_bytes.max(bytes);
        }
        counted
    }

    /// Returns the bytes that may be written at once, without asking the host for any.
    pub(super) fn room_inside(&self) -> u64 {
        self.left_bytes() + self.room_behind(self.spare)
    }

    /// Returns the bytes that may be written at once before a segment, behind the present one.
    pub(super) fn room_before(&self, end: usize) -> u64 {
        self.room_behind(self.count_spare(end))
    }

    /// Returns the bytes that may be written behind the present segment. The last segment that is free can only be the
    /// successor of the one before it.
    fn room_behind(&self, spare: Spare) -> u64 {
        match spare.bytes {
            0 => 0,
            bytes => self.segments.get(self.successor).bytes + bytes - spare.longest_bytes,
        }
    }

    /// Ensures that a record of so many bytes can be laid out with the reserve left behind it. The file may grow for
    /// that.
    ///
    /// # Errors
    /// If neither has room; nothing has happened then.
    pub(super) fn make_sure(&mut self, record_bytes: u64) -> Result<()> {
        if self.is_small() {
            return Ok(());
        }
        self.prepare(self.successor)?;
        let left_bytes = self.left_bytes();
        let lost_bytes = match record_bytes <= left_bytes {
            true => 0,
            false => left_bytes + HEAD_BYTES + self.skipped_bytes(record_bytes),
        };
        let needed_bytes = record_bytes + lost_bytes + self.kept_bytes;
        if self.room_inside() >= needed_bytes {
            return Ok(());
        }
        self.recount();
        while self.room_inside() < needed_bytes {
            self.grow()?;
        }
        Ok(())
    }

    /// Returns the bytes of the successor if it is too short for a record.
    fn skipped_bytes(&self, record_bytes: u64) -> u64 {
        match self.segments.get(self.successor).bytes {
            bytes if record_bytes + HEAD_BYTES > bytes => bytes,
            _ => 0,
        }
    }

    /// Returns two sums: the bytes of segments with nothing live that only a checkpoint keeps from being free, and the
    /// dead bytes of all segments in use.
    pub(super) fn dead_bytes(&self, pinned: &[usize]) -> Dead {
        let mut dead = Dead::default();
        for (index, live_bytes) in self.live.iter().enumerate() {
            if self.uses[index] != Use::Held || self.is_at(index) || pinned.contains(&index) {
                continue;
            }
            let bytes = self.segments.get(index).bytes;
            dead.all_bytes += bytes - live_bytes;
            dead.whole_bytes += if *live_bytes == 0 { bytes } else { 0 };
        }
        dead
    }

    /// Returns the bytes that the file takes of the host: segments in use, and free ones that have their room.
    pub(super) fn taken_bytes(&self) -> u64 {
        let is_taken = |index: &usize| {
            self.uses[*index] == Use::Held || self.backing[*index] != Backing::Missing
        };
        let taken = (0..self.uses.len()).filter(is_taken);
        taken.map(|index| self.segments.get(index).bytes).sum()
    }

    /// Gives free segments back to the host, from the end on. It stops when the file takes no more than `goal_bytes`,
    /// or when `kept_bytes` are left free. Those lie before that length if the host has room for them there. To be
    /// called when neither superblock leads there any more.
    ///
    /// # Errors
    /// Those of punching. A file system that cannot punch is no error.
    pub(super) fn give_back(&mut self, goal_bytes: u64, kept_bytes: u64) -> Result<()> {
        let mut excess_bytes = self.taken_bytes().saturating_sub(goal_bytes);
        let free: Vec<usize> = self.free_or_short().collect();
        let has_room = |log: &Log, index: &usize| log.backing[*index] != Backing::Missing;
        let (given, mut missing): (Vec<usize>, Vec<usize>) =
            free.into_iter().partition(|index| has_room(self, index));
        // Segments that are too short are no room.
        let room_of = |log: &Log, index: usize| {
            let segment = log.segments.get(index);
            u64::from(log.is_long_enough(&segment)) * segment.bytes
        };
        let mut left_bytes: u64 = given.iter().map(|index| room_of(self, *index)).sum();
        // The lowest one is asked for first.
        missing.reverse();
        for index in given.into_iter().rev() {
            let segment = self.segments.get(index);
            let is_behind = segment.start >= goal_bytes;
            if excess_bytes == 0 && !is_behind {
                break;
            }
            let own_bytes = room_of(self, index);
            while own_bytes > 0 && left_bytes < kept_bytes + own_bytes && is_behind {
                let lower = missing.pop().filter(|lower| *lower < index);
                let Some(lower) = lower.filter(|lower| self.give_room(*lower).is_ok()) else {
                    break;
                };
                left_bytes += room_of(self, lower);
            }
            if own_bytes > 0 && left_bytes < kept_bytes + own_bytes {
                break;
            }
            match self.file.punch(segment.start, segment.bytes) {
                Err(Error::Unsupported { .. }) => break,
                punched => punched?,
            }
            self.backing[index] = Backing::Missing;
            self.segments.set_generation(index, 0);
            left_bytes -= own_bytes;
            excess_bytes = excess_bytes.saturating_sub(segment.bytes);
        }
        self.recount();
        Ok(())
    }

    /// Returns the bytes that may be written, in free segments and behind the file's end.
    pub(super) fn room_bytes(&self) -> u64 {
        self.room_inside() + self.limit_bytes() - self.segments.end(SEGMENTS_START)
    }

    /// Returns the length of the next segment by which the file grows.
    pub(super) fn next_segment_bytes(&self) -> u64 {
        let end = self.segments.end(SEGMENTS_START);
        segment_bytes(end, self.geometry.segment_bytes_min)
    }

    fn limit_bytes(&self) -> u64 {
        let limit = self.geometry.file_bytes_max.min(FILE_BYTES_MAX - 1);
        limit.max(self.segments.end(SEGMENTS_START))
    }

    /// Returns a segment that may be written, filled if it is new. It is the first that is free for all readers, or one
    /// that the host gives its room.
    fn choose(&mut self) -> Result<usize> {
        self.forget_short();
        // A segment that was free when the host gave its room may have got a reader of an older state. The file grows by
        // one that none can have.
        let mut chosen = self.spare().next();
        for _ in 0..=self.uses.len() {
            if chosen.is_some() {
                break;
            }
            if self.is_small() {
                return self.choose_without_room();
            }
            self.grow()?;
            chosen = self.spare().next();
        }
        // If a system reports nothing about readers, every state is assumed to have some.
        let Some(chosen) = chosen else {
            self.lacks_room = true;
            return Err(Error::Limit {
                what: "block store",
                limit_bytes: self.limit_bytes(),
                needed_bytes: self.file_bytes() + self.next_segment_bytes(),
            });
        };
        self.fill(chosen)?;
        // Others are counted without it, and also if the choice fails.
        let before = std::mem::replace(&mut self.uses[chosen], Use::Held);
        self.recount();
        self.uses[chosen] = before;
        Ok(chosen)
    }

    /// Returns whether the file is too short to keep a share of it. It then gets the room of a segment when that is
    /// begun.
    pub(super) fn is_small(&self) -> bool {
        let shortest_bytes = SHARED_SEGMENTS * self.geometry.segment_bytes_min;
        self.geometry.reserve == Reserve::Share && self.file_bytes() < shortest_bytes
    }

    /// Returns a segment without asking for its room yet: a free one, or one behind the last.
    fn choose_without_room(&mut self) -> Result<usize> {
        if let Some(free) = self.free().next() {
            return Ok(free);
        }
        let segment = self.next_segment_of_file()?;
        self.push(segment, Backing::Missing);
        Ok(self.segments.len() - 1)
    }

    /// Gives a segment that is about to be begun its room, and fills it if it is new.
    fn prepare(&mut self, index: usize) -> Result<()> {
        if self.backing[index] == Backing::Given {
            return Ok(());
        }
        let prepared = self.give_room(index).and_then(|()| self.fill(index));
        self.is_tight = (prepared.as_ref()).is_err_and(|error| error.is_out_of_space());
        self.lacks_room |= self.is_tight;
        prepared
    }

    /// Asks the host for the room of one segment more. It is a free one whose room went back, or one behind the last.
    ///
    /// # Errors
    /// If it has none, or the file may not grow. Nothing has happened then.
    fn grow(&mut self) -> Result<()> {
        let grown = self.ask();
        self.is_tight = grown.is_err();
        self.refusal = grown.as_ref().err().map(Error::duplicate);
        self.lacks_room |= self.is_tight;
        self.recount();
        grown
    }

    fn ask(&mut self) -> Result<()> {
        self.forget_short();
        let mut without: Vec<usize> = (self.free())
            .filter(|index| self.backing[*index] != Backing::Given)
            .collect();
        without.sort_by_key(|index| self.backing[*index] == Backing::Missing);
        for index in without {
            match self.give_room(index) {
                Ok(()) => return Ok(()),
                // Others may have their room.
                Err(error)
                    if error.is_out_of_space() && self.backing[index] == Backing::Unknown =>
                {
                    self.backing[index] = Backing::Missing;
                    self.segments.set_generation(index, 0);
                }
                Err(error) => return Err(error),
            }
        }
        let segment = self.next_segment_of_file()?;
        self.allocate(segment)?;
        self.push(segment, Backing::Given);
        Ok(())
    }

    /// Returns the segment behind the last one.
    fn next_segment_of_file(&mut self) -> Result<Segment> {
        let (start, limit_bytes) = (self.segments.end(SEGMENTS_START), self.limit_bytes());
        let least_bytes = self.geometry.segment_bytes_min;
        let begun_bytes = self.begun_bytes_min.next_multiple_of(least_bytes);
        let bytes = self.next_segment_bytes().max(begun_bytes);
        if start + bytes > limit_bytes {
            self.lacks_room = true;
            return Err(Error::Limit {
                what: "block store",
                limit_bytes,
                needed_bytes: start + bytes,
            });
        }
        Ok(Segment {
            start,
            bytes,
            generation: 0,
        })
    }

    fn push(&mut self, segment: Segment, backing: Backing) {
        self.segments.push(segment);
        self.live.push(0);
        self.uses.push(Use::Free { since: 0 });
        self.backing.push(backing);
    }

    /// Asks the host for the room of a free segment.
    fn give_room(&mut self, index: usize) -> Result<()> {
        self.allocate(self.segments.get(index))?;
        self.backing[index] = Backing::Given;
        Ok(())
    }

    fn allocate(&self, segment: Segment) -> Result<()> {
        match self.file.allocate(segment.start, segment.bytes) {
            // Where the file system cannot be asked, the write shows it.
            Ok(()) | Err(Error::Unsupported { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Fills a segment that was never written with zeros, so that a sync later finds blocks that the file system
    /// already knows.
    fn fill(&mut self, index: usize) -> Result<()> {
        let segment = self.segments.get(index);
        if segment.generation != 0 {
            return Ok(());
        }
        let mut at = segment.start;
        while at < segment.range().end {
            let count = (segment.range().end - at).min(ZERO_BYTES as u64);
            let zeros = std::io::IoSlice::new(&ZEROS[..count as usize]);
            self.file.write_at(&[zeros], at)?;
            at += count;
        }
        Ok(())
    }
}

pub(super) fn is_free(used: &Use, horizon: u64) -> bool {
    matches!(used, Use::Free { since } if *since <= horizon)
}

/// Writes padding over the commit that stands last in a log, so that nobody finds it. Makes that durable: the medium
/// may hold all of the commit by then.
pub(super) fn take_back(file: &dyn StorageFile, region: &Region, commit: &Placed) -> Result<()> {
    let buffer_bytes = commit.record_bytes as usize;
    let mut writer = RecordWriter::new(*region, commit.address, commit.sequence, buffer_bytes);
    let label = Label {
        kind: KIND_PADDING,
        ..Label::default()
    };
    let zeros = vec![0; buffer_bytes - HEADER_BYTES];
    writer.append(label, &[&zeros])?;
    let (address, bytes) = writer.unwritten();
    file.write_after_failure(bytes, address)
}

fn buffer_bytes(segment: Segment) -> usize {
    segment.bytes.min(BUFFER_BYTES_MAX) as usize
}
