//! Writing the log: records into segments, one segment behind the other.
//!
//! A segment names its successor in its head, so the next one is chosen when a segment is opened.
//! Segments are taken from those that are free, or the file grows. What is laid out and not yet
//! written can be taken back; what was written stays, and is worth nothing without its commit.

use std::sync::Arc;

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

/// What is laid out before it is written: one write carries a transaction up to this long. No record is
/// longer.
pub(super) const BUFFER_BYTES_MAX: u64 = 256 << 10;
/// Transactions leave this many free segments alone, so that a full store can be cleaned: one for what
/// moves, one for the checkpoint behind it.
const RESERVED_SEGMENTS: usize = 2;
/// What a file system writes at least, and so what a sync costs for each that was touched.
const BLOCK_BYTES: u64 = 4096;
/// At most this much of a block is left empty for the next transaction to touch one less.
const PADDING_BYTES_MAX: u64 = BLOCK_BYTES / 4;
/// What is kept free behind a commit for its publication: a header, and what must be left behind one.
const PUBLICATION_ROOM_BYTES: u64 = 2 * HEADER_BYTES as u64;
/// What a new part of the file is filled with at a time.
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

/// How a store goes about its file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    pub(super) segment_bytes_min: u64,
    pub(super) file_bytes_max: u64,
}

/// The end of the log, where it is written.
pub(super) struct Log {
    file: Arc<dyn StorageFile>,
    log_id: [u8; 16],
    geometry: Geometry,
    shared: Arc<Shared>,
    pub(super) segments: Segments,
    /// The bytes of records in each segment that a state needs, without those of the checkpoint's lists.
    pub(super) live: Vec<u64>,
    pub(super) uses: Vec<Use>,
    writer: RecordWriter,
    current: usize,
    successor: usize,
    generation: u64,
    /// The number of the first record that is not written yet.
    flushed_sequence: u64,
    /// Every record below this number is durable.
    pub(super) synced_sequence: u64,
    /// The number behind the last transaction.
    committed_sequence: u64,
    /// Whether the file was synced since the last superblock.
    pub(super) has_synced: bool,
    pub(super) appended_bytes: u64,
    /// What another writer left of its last segment, until a cleaning: it is as good as written.
    pub(super) given_up_bytes: u64,
    /// What died since the last cleaning beside what was written over: it pays for giving back as much.
    pub(super) freed_bytes: u64,
    /// The length of a file that is too long and got no shorter when that was tried, 0 for none.
    pub(super) least_bytes: u64,
    /// What was laid out since the last sync of a transaction, and how many transactions.
    unsynced_bytes: u64,
    unsynced_count: u64,
    /// What a transaction usually comes to where each is synced, else 0.
    usual_bytes: u64,
    /// The room that must be left below the limit beside [`RESERVED_SEGMENTS`]; 0 for those that it is
    /// left for.
    pub(super) reserved_bytes: u64,
    /// Whether the last refusal was for want of room, before anything was written.
    pub(super) lacks_room: bool,
}

/// What a new log starts with.
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
        let mut log = Log {
            file,
            log_id,
            geometry,
            shared,
            segments: start.segments,
            live: start.live,
            uses: start.uses,
            writer: RecordWriter::new(nowhere, 0, start.sequence, 0),
            current: usize::MAX,
            successor: usize::MAX,
            generation: start.generation - 1,
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
            reserved_bytes: 0,
            lacks_room: false,
        };
        let first = log.choose()?;
        log.open(first)?;
        Ok(log)
    }

    /// Returns where the next record will lie.
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

    /// Returns how many bytes of records the present segment has room for.
    pub(super) fn left_bytes(&self) -> u64 {
        self.current().range().end - self.writer.next_address()
    }

    /// Returns the oldest version that anybody may still read.
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
    pub(super) fn append(&mut self, label: Label, parts: &[&[u8]]) -> Result<Placed> {
        loop {
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

    /// Lays a commit out that is to be published, with room behind it in its segment, so that this needs no other.
    pub(super) fn append_commit(&mut self, label: Label, parts: &[&[u8]]) -> Result<Placed> {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let wanted_bytes = record_bytes(body_bytes as u64) + PUBLICATION_ROOM_BYTES;
        if self.left_bytes() < wanted_bytes {
            self.next_segment()?;
        }
        self.append(label, parts)
    }

    /// Says that the commit that was written last may be seen, without a sync.
    pub(super) fn publish(&mut self) -> Result<()> {
        let label = Label {
            kind: KIND_PUBLICATION,
            ..Label::default()
        };
        self.append(label, &[])?;
        self.flush()
    }

    /// Writes padding over the commit that was written last, so that nobody finds it, and makes that durable: what the
    /// medium holds of the commit by then may be all of it.
    pub(super) fn take_back(&mut self, commit: &Placed) -> Result<()> {
        let (region, buffer_bytes) = (*self.writer.region(), buffer_bytes(self.current()));
        let mut writer = RecordWriter::new(region, commit.address, commit.sequence, buffer_bytes);
        let label = Label {
            kind: KIND_PADDING,
            ..Label::default()
        };
        let zeros = vec![0; commit.record_bytes as usize - HEADER_BYTES];
        writer.append(label, &[&zeros])?;
        let (address, bytes) = writer.unwritten();
        self.file.write_after_failure(bytes, address)
    }

    /// Writes what is laid out.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.writer.write_to(&*self.file)?;
        self.flushed_sequence = self.writer.next_sequence();
        Ok(())
    }

    /// Writes a transaction that is laid out. Where each is synced, the next one begins in the next block of the file
    /// system if that is near and what usually comes next would touch one more.
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

    /// Makes all that was written durable.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.file.sync()?;
        self.has_synced = true;
        self.synced_sequence = self.flushed_sequence;
        Ok(())
    }

    /// Forgets what is laid out and not yet written.
    pub(super) fn rewind(&mut self) {
        let (address, bytes) = self.writer.unwritten();
        if !bytes.is_empty() {
            let buffer_bytes = buffer_bytes(self.current());
            let region = *self.writer.region();
            self.writer = RecordWriter::new(region, address, self.flushed_sequence, buffer_bytes);
        }
    }

    /// Goes on at lower places if there are any free, so that the file's end becomes free: the successor is
    /// chosen when a segment is begun, so that it takes two steps. Readers of the log follow.
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
        self.segments.truncate(kept);
        self.live.truncate(kept);
        self.uses.truncate(kept);
        self.file.truncate(self.segments.end(SEGMENTS_START))
    }

    /// Says goodbye to the present segment and opens its successor.
    fn next_segment(&mut self) -> Result<()> {
        let next = self.successor;
        self.prepare(next)?;
        let successor = self.choose_except(next)?;
        let left = self.current().range().end - self.writer.next_address();
        if left > 0 {
            // What is left must be nothing, or have room for a header.
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
    fn open(&mut self, index: usize) -> Result<()> {
        self.prepare(index)?;
        let successor = self.choose_except(index)?;
        self.begin(index, successor)
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

    fn choose_except(&mut self, index: usize) -> Result<usize> {
        let before = std::mem::replace(&mut self.uses[index], Use::Held);
        let chosen = self.choose();
        self.uses[index] = before;
        chosen
    }

    /// Returns the segments that are free for all readers, those that were never written left out.
    fn free(&self) -> impl Iterator<Item = usize> + '_ {
        let horizon = self.horizon();
        let uses = self.uses.iter().enumerate();
        let free = uses.filter(move |(_, used)| is_free(used, horizon));
        let free = free.map(|(index, _)| index);
        free.filter(|index| self.segments.get(*index).generation != 0)
    }

    fn free_bytes(&self) -> u64 {
        self.free()
            .map(|index| self.segments.get(index).bytes)
            .sum()
    }

    /// Returns the bytes that may be written, in what is free and, if it may grow, behind the file's end.
    pub(super) fn room_bytes(&self, may_grow: bool) -> u64 {
        let behind = self.limit_bytes() - self.segments.end(SEGMENTS_START);
        self.free_bytes() + if may_grow { behind } else { 0 }
    }

    fn limit_bytes(&self) -> u64 {
        let limit = self.geometry.file_bytes_max.min(FILE_BYTES_MAX - 1);
        limit.max(self.segments.end(SEGMENTS_START))
    }

    /// Returns a segment that may be written: the first that is free for all readers, or a new one.
    fn choose(&mut self) -> Result<usize> {
        let (start, limit) = (self.segments.end(SEGMENTS_START), self.limit_bytes());
        let bytes = segment_bytes(start, self.geometry.segment_bytes_min);
        let (kept, reserved_bytes) = match self.reserved_bytes {
            0 => (0, 0),
            reserved => (
                RESERVED_SEGMENTS,
                reserved + RESERVED_SEGMENTS as u64 * bytes,
            ),
        };
        // One that was asked for before, when there was no room for it.
        let asked = (0..self.uses.len()).rev().find(|index| {
            is_free(&self.uses[*index], u64::MAX) && self.segments.get(*index).generation == 0
        });
        let mut free = self.free();
        let (first, others) = (free.next(), free.count());
        let taken_bytes = match first {
            Some(first) if others >= kept => self.segments.get(first).bytes,
            _ if asked.is_some() => 0,
            _ => bytes,
        };
        let left = self.room_bytes(true).checked_sub(taken_bytes);
        let has_room = left.is_some_and(|left| left >= reserved_bytes);
        match (first, asked) {
            (Some(first), _) if has_room && others >= kept => return Ok(first),
            (_, Some(asked)) if has_room => return Ok(asked),
            _ if has_room && start + bytes <= limit => {}
            _ => {
                self.lacks_room = true;
                return Err(Error::Limit {
                    what: "block store",
                    limit_bytes: limit,
                    needed_bytes: start + bytes + reserved_bytes,
                });
            }
        }
        self.segments.push(Segment {
            start,
            bytes,
            generation: 0,
        });
        self.live.push(0);
        self.uses.push(Use::Free { since: 0 });
        Ok(self.segments.len() - 1)
    }

    /// Gives a segment that was never written its room. Zeros are written ahead, so that a sync later
    /// finds blocks that the file system already knows.
    fn prepare(&mut self, index: usize) -> Result<()> {
        let prepared = self.fill(index);
        if let Err(error) = &prepared {
            self.lacks_room = error.is_out_of_space();
        }
        prepared
    }

    fn fill(&mut self, index: usize) -> Result<()> {
        let segment = self.segments.get(index);
        if segment.generation != 0 {
            return Ok(());
        }
        // Asked for before anything is written: a refusal then changes nothing.
        match self.file.allocate(segment.start, segment.bytes) {
            Ok(()) | Err(Error::Unsupported { .. }) => {}
            Err(error) => return Err(error),
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

fn buffer_bytes(segment: Segment) -> usize {
    segment.bytes.min(BUFFER_BYTES_MAX) as usize
}
