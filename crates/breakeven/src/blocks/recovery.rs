//! Reading a store back: the checkpoint that the superblock points to, and the commits behind it.
//!
//! Nothing is written here. Records read here are durable only once they have been written again, which the first
//! transaction does.

use std::ops::Range;
use std::sync::Arc;

use crc32c::crc32c_append;

use super::checkpoint::apply_live;
use super::dictionary::{DICTIONARIES_MAX, Kept};
use super::file::{StoreFile, frame_prefix};
use super::layout::{
    Checkpoint, Commit, FramePrefix, KIND_CHECKPOINT, KIND_COMMIT, KIND_END, KIND_FRAME, KIND_LIST,
    KIND_MOVE, KIND_OPERATIONS, KIND_PUBLICATION, Listed, Operation, Payload, Position,
    SEGMENTS_START, decode_head,
};
use super::log::{BUFFER_BYTES_MAX, Use, take_back};
use super::place::{Place, Segment, Segments, is_segment};
use super::state::{LiveChanges, State, Work};
use crate::error::{Error, Result};
use crate::storage::record::{
    Found, Gap, HEADER_BYTES, KIND_HEAD, Label, Placed, Record, RecordWriter, Region, Scanner,
    is_begun, parse, parse_head, was_begun,
};

/// The standing of a commit that was to be durable, as long as no publication follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unpublished {
    /// It is there: nobody else writes.
    Taken,
    /// Its writer may be making it durable, and may take it back.
    Awaited,
}

/// The result of reading a store.
pub(super) struct Recovery {
    pub(super) state: State,
    pub(super) live: Vec<u64>,
    pub(super) uses: Vec<Use>,
    /// The parts of the file that the log was read from.
    pub(super) replayed: Vec<Range<u64>>,
    /// The number of the first record that was not there.
    pub(super) sequence: u64,
    /// The highest generation of the log that was read.
    pub(super) generation: u64,
    pub(super) commits: u64,
    /// Whether the log ended in anything but untouched space.
    pub(super) is_torn: bool,
    /// Whether the file ends before a segment that was begun.
    pub(super) is_short: bool,
    /// The number behind the last durable record of the log, if its writer recorded it.
    end: Option<u64>,
    /// The segment that was read last.
    last: LogSegment,
    /// Every record with a lower number was synced once.
    synced: u64,
    /// The place where the log may go on.
    pub(super) position: Position,
    /// Whether records behind a gap are given up, durable or not.
    accepts_gap: bool,
    /// Whether anything was.
    pub(super) is_cut: bool,
    unpublished: Unpublished,
    /// The commit at the end whose publication is awaited.
    awaited: Option<Awaited>,
    /// Records that were read behind the last commit that counts.
    pending: Vec<Pending>,
    /// Whether the segment is at its end, so that its successor comes next.
    is_full: bool,
}

/// A commit that fits, with the records before it.
struct Awaited {
    commit: Commit,
    operations: Vec<Operation>,
    /// The name of its coordinator, empty without one.
    coordinator: Vec<u8>,
    place: Place,
    sequence: u64,
    checksum: u32,
}

/// A segment of the log.
#[derive(Clone, Copy)]
struct LogSegment {
    /// The number of its head, or an earlier one.
    sequence: u64,
    /// Its end in the file.
    end: u64,
}

/// A record that waits for its commit.
struct Pending {
    checksum: u32,
    change: Change,
}

/// The dictionary of a frame, 0 for none, and the generation of the segment that it lies in.
#[derive(Clone, Copy)]
struct Needs {
    dictionary: u32,
    generation: u64,
}

enum Change {
    Frame {
        prefix: FramePrefix,
        raw_bytes: u32,
        place: Place,
        needs: Needs,
    },
    Move {
        id: u32,
        place: Place,
        needs: Needs,
    },
    Operations(Vec<Operation>),
    /// Part of a checkpoint that was not finished.
    Other,
}

/// Reads the store that `payload` describes.
///
/// # Errors
/// [`Error::Corrupt`] if the checkpoint cannot be read, if a transaction does not fit the state, or if the log has a
/// gap before something that was synced. Those of reading.
pub(super) fn recover(
    file: &StoreFile,
    payload: &Payload,
    unpublished: Unpublished,
) -> Result<Recovery> {
    let mut recovery = load(file, payload)?;
    recovery.unpublished = unpublished;
    recovery.advance(file)?;
    Ok(recovery)
}

/// Reads as much of the store as there is: synced records behind a gap are given up.
///
/// # Errors
/// As [`recover`], for anything else.
pub(super) fn recover_to_gap(file: &StoreFile, payload: &Payload) -> Result<Recovery> {
    let mut recovery = load(file, payload)?;
    recovery.accepts_gap = true;
    recovery.advance(file)?;
    Ok(recovery)
}

fn scanner<'a>(file: &'a StoreFile, position: &Position) -> Scanner<'a> {
    let segment = position.segment;
    let region = Region::new(file.log_id, segment.generation, segment.range());
    Scanner::new(
        &*file.file,
        region,
        position.address,
        position.sequence,
        BUFFER_BYTES_MAX,
    )
}

/// Returns the log's continuation behind a segment, if its successor has the next generation and a head whose number is
/// accepted.
fn follow(
    file: &StoreFile,
    position: &Position,
    accepts: impl Fn(u64) -> bool,
) -> Result<Option<Position>> {
    let (start, bytes) = position.successor;
    if !is_segment(start, bytes) {
        return Ok(None);
    }
    let mut head = [0; 2 * HEADER_BYTES];
    let mut buffers = [std::io::IoSliceMut::new(&mut head)];
    let read = file.file.read_at(&mut buffers, start)?;
    let Ok((region, body)) = parse_head(&head[..read], file.log_id, start..start + bytes) else {
        return Ok(None);
    };
    let generation = position.segment.generation + 1;
    let record = parse(&head[..read], &region, start).expect("parsed as a head");
    let Some(successor) = decode_head(body).filter(|_| region.generation() == generation) else {
        return Ok(None);
    };
    Ok(
        (is_segment(successor.0, successor.1) && accepts(record.sequence)).then(|| Position {
            segment: Segment {
                start,
                bytes,
                generation,
            },
            successor,
            address: record.end(),
            sequence: record.sequence + 1,
        }),
    )
}

/// Reads one record of a checkpoint from the given segment.
pub(super) fn read_in<R>(
    file: &StoreFile,
    (segment, place): (Segment, Place),
    kind: u8,
    decode: impl FnOnce(&[u8]) -> Option<R>,
) -> Result<R> {
    let mut segments = Segments::default();
    segments.push(segment);
    file.with_record(place, &segments, |record, _| {
        let body = (record.label.kind == kind).then(|| decode(record.body));
        body.flatten().ok_or_else(|| {
            let (expected, found) = (
                "part of a checkpoint",
                format!("kind {}", record.label.kind),
            );
            Error::corrupt("block store", place.address(), expected, found)
        })
    })
}

/// Reads the checkpoint.
fn load(file: &StoreFile, payload: &Payload) -> Result<Recovery> {
    let mut state = State {
        version: payload.log.sequence.saturating_sub(1),
        ..State::default()
    };
    let mut live = Vec::new();
    let mut known = vec![payload.log.segment];
    if let Some(end) = payload.checkpoint {
        let checkpoint = read_in(file, end, KIND_CHECKPOINT, Checkpoint::decode)?;
        known.push(end.0);
        for list in &checkpoint.lists {
            known.push(list.0);
            for listed in read_in(file, *list, KIND_LIST, Listed::decode_all)? {
                take_listed(listed, &mut state, &mut live)?;
            }
        }
        (state.commit, state.chain) = (checkpoint.commit, checkpoint.chain);
        state.next_volume = checkpoint.next_volume;
        state.table = super::table::Table::stored(
            checkpoint.table_root,
            checkpoint.table_height,
            checkpoint.next_frame,
            checkpoint.free_head,
        );
    }
    let (start, bytes) = payload.log.successor;
    known.push(Segment {
        start,
        bytes,
        generation: 0,
    });
    let held = add_known(known, &mut state.segments)?;
    live.resize(state.segments.len(), 0);
    // A reader of an older state may need any of them.
    let since = state.version;
    let uses = live.iter().map(|live_bytes| match live_bytes {
        0 => Use::Free { since },
        _ => Use::Held,
    });
    let mut uses: Vec<Use> = uses.collect();
    held.iter().for_each(|index| uses[*index] = Use::Held);
    read_dictionaries(file, &mut state)?;
    Ok(Recovery {
        state,
        live,
        uses,
        replayed: Vec::new(),
        sequence: payload.log.sequence,
        generation: payload.log.segment.generation,
        commits: 0,
        is_torn: false,
        is_short: false,
        end: payload.end,
        last: LogSegment {
            sequence: 0,
            end: payload.log.segment.range().end,
        },
        // It was synced before the superblock was written.
        synced: payload.log.sequence,
        position: payload.log,
        accepts_gap: false,
        is_cut: false,
        unpublished: Unpublished::Taken,
        awaited: None,
        pending: Vec::new(),
        is_full: false,
    })
}

/// Adds segments that something leads to, with their known generations. Returns their indexes.
fn add_known(mut known: Vec<Segment>, segments: &mut Segments) -> Result<Vec<usize>> {
    known.sort_by_key(|segment| segment.start);
    let mut held = Vec::new();
    for segment in known {
        let index = segments.find_or_push(segment.start, segment.bytes, SEGMENTS_START)?;
        if segment.generation != 0 {
            segments.set_generation(index, segment.generation);
        }
        held.push(index);
    }
    Ok(held)
}

/// Reads the dictionaries that are listed. If no copy of a dictionary is whole, the frames that need it are in error.
/// If the first one is not, the next checkpoint writes it again.
fn read_dictionaries(file: &StoreFile, state: &mut State) -> Result<()> {
    let listed: Vec<(u32, Kept)> = (state.dictionaries.iter())
        .map(|(id, kept)| (id, kept.clone()))
        .collect();
    for (id, mut kept) in listed {
        let read = file.dictionary(kept.places, id, &state.segments)?;
        if let Some((generation, is_first)) = read {
            (kept.generation, kept.is_moved) = (Some(generation), !is_first);
        }
        state.dictionaries.insert(id, kept);
    }
    Ok(())
}

fn take_listed(listed: Listed, state: &mut State, live: &mut Vec<u64>) -> Result<()> {
    match listed {
        Listed::Segment {
            segment,
            live_bytes,
        } => {
            let count = state.segments.len();
            let (start, bytes) = (segment.start, segment.bytes);
            let index = state.segments.find_or_push(start, bytes, SEGMENTS_START)?;
            if index != count || live_bytes > bytes {
                let found = format!("{live_bytes} live bytes of {bytes} at {start}");
                return Err(Error::corrupt(
                    "block store",
                    start,
                    "the next segment",
                    found,
                ));
            }
            state.segments.set_generation(index, segment.generation);
            live.push(live_bytes);
        }
        Listed::Volume { number, volume } => {
            Arc::make_mut(&mut state.volumes).insert(number, volume);
        }
        Listed::Note { key, bytes } => {
            Arc::make_mut(&mut state.notes).set(key, bytes);
        }
        Listed::Dictionary {
            id,
            last_use,
            places,
        } => {
            if state.dictionaries.len() >= DICTIONARIES_MAX {
                let expected = format!("at most {DICTIONARIES_MAX} dictionaries");
                return Err(Error::corrupt("block store", id.into(), expected, "more"));
            }
            let kept = Kept {
                generation: None,
                places,
                last_use,
                is_moved: false,
            };
            state.dictionaries.insert(id, kept);
        }
    }
    Ok(())
}

impl Recovery {
    /// Reads the log on from its last end.
    ///
    /// # Errors
    /// As [`recover`].
    pub(super) fn advance(&mut self, file: &StoreFile) -> Result<()> {
        self.read_on(file)?;
        if self.end == Some(self.sequence) {
            // Bytes behind its end belong to nobody.
            self.is_torn = false;
        }
        self.check_end()?;
        self.check_length(file)
    }

    /// Returns whether the log reaches its recorded end.
    fn is_complete(&self) -> bool {
        self.end.is_some_and(|end| end <= self.sequence)
    }

    fn read_on(&mut self, file: &StoreFile) -> Result<()> {
        let mut pending = std::mem::take(&mut self.pending);
        let mut from = self.position.address;
        loop {
            let position = self.position;
            let mut scanner = scanner(file, &position);
            self.generation = position.segment.generation;
            // Once at its end, a segment has nothing behind it but old bytes.
            let was_full = self.is_full;
            self.is_full = was_full || self.replay(file, &mut scanner, &mut pending)?;
            self.sequence = scanner.next_sequence();
            (self.position.address, self.position.sequence) = (scanner.address(), self.sequence);
            self.replayed.push(from..scanner.address());
            let gap = self.sequence;
            if !self.is_full {
                self.pending = pending;
                return self.check_behind(file, scanner, &position, gap);
            }
            let Some(next) = follow(file, &position, |found| found == gap)? else {
                self.pending = pending;
                // Behind a full segment there is a head at once, or when the next transaction is written.
                self.is_torn |= !was_full;
                return self.check_successor(file, &position, gap);
            };
            self.hold(&next)?;
            (self.position, from) = (next, next.segment.start);
            self.is_full = false;
        }
    }

    /// Returns whether a record was begun where the log ended: there, or at the head of the next segment.
    pub(super) fn is_behind(&self, file: &StoreFile) -> Result<bool> {
        let Position {
            segment,
            successor: (start, bytes),
            address,
            sequence,
        } = self.position;
        let next = (start..start + bytes, segment.generation + 1);
        for ((range, generation), at) in [
            ((segment.range(), segment.generation), address),
            (next, start),
        ] {
            let mut header = [0; HEADER_BYTES];
            let mut buffers = [std::io::IoSliceMut::new(&mut header)];
            file.file.read_at(&mut buffers, at)?;
            if is_begun(
                &header,
                &Region::new(file.log_id, generation, range),
                sequence,
            ) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Writes the log that was read again, where it lies: the page cache may have shown bytes that the medium does not
    /// hold. The same bytes cannot tear those that it does hold.
    pub(super) fn write_again(&self, file: &StoreFile) -> Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES_MAX as usize];
        for range in &self.replayed {
            let mut at = range.start;
            while at < range.end {
                let bytes = &mut buffer[..(range.end - at).min(BUFFER_BYTES_MAX) as usize];
                file.file.read_exact_at(bytes, at)?;
                file.file.write_at(&[std::io::IoSlice::new(bytes)], at)?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    /// Notes that the log goes on in a segment.
    fn hold(&mut self, position: &Position) -> Result<()> {
        let segments = &mut self.state.segments;
        let Segment { start, bytes, .. } = position.segment;
        let index = segments.find_or_push(start, bytes, SEGMENTS_START)?;
        segments.set_generation(index, position.segment.generation);
        let (start, bytes) = position.successor;
        let next = segments.find_or_push(start, bytes, SEGMENTS_START)?;
        self.live.resize(segments.len(), 0);
        self.uses.resize(segments.len(), Use::Held);
        (self.uses[index], self.uses[next]) = (Use::Held, Use::Held);
        self.last = LogSegment {
            // The head is the record before.
            sequence: position.sequence - 1,
            end: position.segment.range().end,
        };
        Ok(())
    }

    /// Replays the records of a segment; returns whether the log goes on behind it.
    fn replay(
        &mut self,
        file: &StoreFile,
        scanner: &mut Scanner<'_>,
        pending: &mut Vec<Pending>,
    ) -> Result<bool> {
        loop {
            let record = match scanner.next()? {
                None => return Ok(true),
                Some(Found::Gap {
                    address,
                    sequence,
                    gap,
                }) => {
                    self.is_torn |= is_damage(gap) || self.was_begun(file, address, sequence)?;
                    return Ok(false);
                }
                Some(Found::Record(record)) => record,
            };
            if let Some(awaited) = self.awaited.take() {
                let is_published = record.label.kind == KIND_PUBLICATION;
                if !is_published && !awaited.is_there(file, &self.state.segments)? {
                    return Err(unfit(&record, "a publication"));
                }
                self.apply(file, &awaited, pending)?;
            }
            let place = Place::new(record.address, record.end() - record.address);
            let needs = Needs {
                dictionary: record.label.dictionary,
                generation: self.generation,
            };
            let change = match record.label.kind {
                KIND_HEAD | KIND_PUBLICATION => continue,
                KIND_END => return Ok(true),
                KIND_COMMIT => {
                    if !self.commit(file, &record, pending)? {
                        self.is_torn = true;
                        return Ok(false);
                    }
                    continue;
                }
                KIND_FRAME => Change::Frame {
                    prefix: frame_prefix(&record)?,
                    raw_bytes: record.label.raw_bytes,
                    place,
                    needs,
                },
                KIND_MOVE => Change::Move {
                    id: frame_prefix(&record)?.id,
                    place,
                    needs,
                },
                KIND_OPERATIONS => {
                    let operations = Operation::decode_all(record.body);
                    Change::Operations(operations.ok_or_else(|| unfit(&record, "operations"))?)
                }
                _ => Change::Other,
            };
            let checksum = record.checksum;
            pending.push(Pending { checksum, change });
        }
    }

    /// Takes a commit if it covers the records before it, for now or until its publication; returns whether it does.
    fn commit(
        &mut self,
        file: &StoreFile,
        record: &Record<'_>,
        pending: &mut Vec<Pending>,
    ) -> Result<bool> {
        let decoded = Commit::decode(record.body);
        let (commit, rest) = decoded.ok_or_else(|| unfit(record, "a commit"))?;
        let (operations, coordinator) = commit.split(rest);
        let operations = Operation::decode_all(operations);
        let operations = operations.ok_or_else(|| unfit(record, "a commit"))?;
        let first = pending.len().checked_sub(commit.record_count as usize);
        let Some(own) = first.map(|first| &pending[first..]) else {
            return Ok(false);
        };
        let checksums = own.iter().map(|pending| pending.checksum);
        let chain = chain(self.state.chain, checksums, rest);
        if chain != commit.chain || commit.number != self.state.commit + 1 {
            return Ok(false);
        }
        let awaited = Awaited {
            commit,
            operations,
            coordinator: coordinator.to_vec(),
            place: Place::new(record.address, record.end() - record.address),
            sequence: record.sequence,
            checksum: record.checksum,
        };
        // The store alone does not show whether a part of a larger transaction is there.
        let is_awaited = self.unpublished == Unpublished::Awaited || !coordinator.is_empty();
        if commit.is_durable && is_awaited {
            self.awaited = Some(awaited);
        } else {
            self.apply(file, &awaited, pending)?;
        }
        Ok(true)
    }

    /// Applies a transaction.
    fn apply(
        &mut self,
        file: &StoreFile,
        awaited: &Awaited,
        pending: &mut Vec<Pending>,
    ) -> Result<()> {
        let (commit, address) = (&awaited.commit, awaited.place.address());
        let own = &pending[pending.len() - commit.record_count as usize..];
        let mut live = LiveChanges::new();
        let mut work = Work {
            file,
            state: &mut self.state,
            live: &mut live,
        };
        for pending in own {
            replay_change(&mut work, &pending.change)?;
        }
        (awaited.operations.iter()).try_for_each(|operation| work.apply(operation))?;
        let state = &mut self.state;
        let left = (state.table.next_frame, state.table.free_head);
        if left != (commit.next_frame, commit.free_head) {
            let (expected, found) = ("the frames of this transaction", format!("{left:?}"));
            return Err(Error::corrupt("block store", address, expected, found));
        }
        (state.commit, state.chain) = (commit.number, commit.chain);
        state.version = awaited.sequence;
        apply_live(&mut self.live, &live)?;
        self.synced = self.synced.max(commit.synced_sequence);
        self.commits += 1;
        pending.clear();
        Ok(())
    }

    /// Returns the number of the record of the commit whose publication is awaited.
    pub(super) fn awaited(&self) -> Option<u64> {
        self.awaited.as_ref().map(|awaited| awaited.sequence)
    }

    /// Returns the name of that commit's coordinator, if it has one.
    pub(super) fn coordinator(&self) -> Option<&[u8]> {
        let awaited = self.awaited.as_ref()?;
        (!awaited.coordinator.is_empty()).then_some(&awaited.coordinator)
    }

    /// Takes back that commit in its writer's place, durably, as the writer would have. The store must be read again
    /// behind it.
    pub(super) fn take_back_awaited(&self, file: &StoreFile) -> Result<()> {
        let Some(awaited) = &self.awaited else {
            return Ok(());
        };
        let segment = self.position.segment;
        let region = Region::new(file.log_id, segment.generation, segment.range());
        let placed = Placed {
            address: awaited.place.address(),
            sequence: awaited.sequence,
            checksum: awaited.checksum,
            record_bytes: awaited.place.record_bytes(),
        };
        take_back(&*file.file, &region, &placed)
    }

    /// Takes that commit, for callers that know that its writer will not end it.
    pub(super) fn take_awaited(&mut self, file: &StoreFile) -> Result<()> {
        if let Some(awaited) = self.awaited.take() {
            let mut pending = std::mem::take(&mut self.pending);
            self.apply(file, &awaited, &mut pending)?;
        }
        Ok(())
    }

    /// Publishes the commit that was taken in its writer's place, unless something stands behind it.
    pub(super) fn publish(&mut self, file: &StoreFile) -> Result<()> {
        let Position {
            segment,
            address,
            sequence,
            ..
        } = self.position;
        let left_bytes = segment.range().end - address;
        if self.is_torn || left_bytes < 2 * HEADER_BYTES as u64 {
            return Ok(());
        }
        let region = Region::new(file.log_id, segment.generation, segment.range());
        let mut writer = RecordWriter::new(region, address, sequence, 2 * HEADER_BYTES);
        let label = Label {
            kind: KIND_PUBLICATION,
            ..Label::default()
        };
        writer.append(label, &[])?;
        writer.write_to(&*file.file)?;
        self.sequence = writer.next_sequence();
        (self.position.address, self.position.sequence) = (writer.next_address(), self.sequence);
        Ok(())
    }

    /// Returns whether the record that is missing at `address` stood there once.
    fn was_begun(&self, file: &StoreFile, address: u64, sequence: u64) -> Result<bool> {
        let mut header = [0; HEADER_BYTES];
        file.file
            .read_at(&mut [std::io::IoSliceMut::new(&mut header)], address)?;
        let segment = self.position.segment;
        let region = Region::new(file.log_id, segment.generation, segment.range());
        Ok(was_begun(&header, &region, sequence))
    }

    /// Refuses a log that does not reach its recorded end.
    fn check_end(&mut self) -> Result<()> {
        match self.end {
            Some(end) if end > self.sequence => {
                let expected = format!("the log up to record {end}");
                let found = format!("its end at record {}", self.sequence);
                self.lose(self.position.address, expected, found)
            }
            _ => Ok(()),
        }
    }

    /// Looks whether the file ends before a segment that was begun. A segment is filled before it is begun. If it was
    /// synced then, the file was longer, and the continuation of the log may be lost.
    fn check_length(&mut self, file: &StoreFile) -> Result<()> {
        let file_bytes = file.file.status()?.size_bytes;
        let segments = &self.state.segments;
        let last = (0..segments.len()).rev().map(|index| segments.get(index));
        let mut behind = last.take_while(|segment| segment.range().end > file_bytes);
        self.is_short = behind.any(|segment| segment.generation != 0);
        let LogSegment { sequence, end } = self.last;
        if end <= file_bytes || sequence >= self.synced || self.is_complete() {
            return Ok(());
        }
        let expected = format!("{end} bytes of file, as there were");
        self.lose(file_bytes, expected, format!("{file_bytes}"))
    }

    /// Refuses a store that lost something durable, unless that is given up.
    fn lose(&mut self, address: u64, expected: String, found: String) -> Result<()> {
        self.is_cut = true;
        match self.accepts_gap {
            true => Ok(()),
            false => Err(Error::corrupt("block store", address, expected, found)),
        }
    }

    /// Looks for proof that the log did not end with its segment, whose successor has no head.
    fn check_successor(&mut self, file: &StoreFile, position: &Position, gap: u64) -> Result<()> {
        let (start, bytes) = position.successor;
        if !is_segment(start, bytes) {
            return Ok(());
        }
        let behind = Position {
            segment: Segment {
                start,
                bytes,
                generation: position.segment.generation + 1,
            },
            // Only the head has it.
            successor: (0, 0),
            address: start,
            sequence: gap,
        };
        self.check_behind(file, scanner(file, &behind), &behind, gap)
    }

    /// Looks for proof that the log did not end at its gap: a record behind it that says that more was synced.
    fn check_behind<'a>(
        &mut self,
        file: &'a StoreFile,
        mut scanner: Scanner<'a>,
        position: &Position,
        gap: u64,
    ) -> Result<()> {
        let mut position = *position;
        loop {
            while let Some(found) = scanner.next()? {
                let Found::Record(record) = found else {
                    continue;
                };
                // Any record there is worth a report: the end is a torn one.
                self.is_torn = true;
                let commit =
                    Commit::decode(record.body).filter(|_| record.label.kind == KIND_COMMIT);
                if commit.is_some_and(|(commit, _)| commit.synced_sequence > gap) {
                    let address = record.address;
                    let (expected, found) = ("the record synced here", "a gap before durable ones");
                    return self.lose(address, expected.into(), found.into());
                }
            }
            match follow(file, &position, |found| found >= gap)? {
                None => return Ok(()),
                Some(next) => position = next,
            }
            self.is_torn = true;
            scanner = self::scanner(file, &position);
        }
    }
}

impl Awaited {
    /// Returns whether the commit still stands where it was read, and was not taken back.
    fn is_there(&self, file: &StoreFile, segments: &Segments) -> Result<bool> {
        let checksum = |record: &Record<'_>| record.checksum;
        let found = file.with_record(self.place, segments, |record, _| Ok(checksum(record)))?;
        Ok(found == self.checksum)
    }
}

/// Returns whether a gap is a record of this log that went wrong. In a segment that is used again any old bytes may
/// stand behind the end, so the lack of a record proves nothing.
fn is_damage(gap: Gap) -> bool {
    matches!(
        gap,
        Gap::Checksum { .. } | Gap::Length { .. } | Gap::Sequence { .. } | Gap::GivenUp
    )
}

fn note_use(work: &mut Work<'_>, needs: &Needs) {
    let dictionaries = &mut work.state.dictionaries;
    dictionaries.note_use(needs.dictionary, needs.generation);
}

fn replay_change(work: &mut Work<'_>, change: &Change) -> Result<()> {
    match change {
        Change::Frame {
            prefix,
            raw_bytes,
            place,
            needs,
        } => {
            let volume = work.state.volume(prefix.volume)?;
            let id = work.claim(prefix.volume, prefix.index)?;
            if id != prefix.id || *raw_bytes > volume.block_bytes {
                let expected = format!("frame {id} of {} bytes", volume.block_bytes);
                let found = format!("frame {} of {raw_bytes} bytes", prefix.id);
                return Err(Error::corrupt(
                    "block store",
                    place.address(),
                    expected,
                    found,
                ));
            }
            note_use(work, needs);
            work.set_place(id, *place)
        }
        Change::Move { id, place, needs } => {
            note_use(work, needs);
            work.set_place(*id, *place)
        }
        Change::Operations(operations) => operations
            .iter()
            .try_for_each(|operation| work.apply(operation)),
        Change::Other => Ok(()),
    }
}

/// Chains a transaction's records, and the operations in its commit, to the commit before.
pub(super) fn chain(before: u32, checksums: impl Iterator<Item = u32>, operations: &[u8]) -> u32 {
    let start = crc32c_append(0, &before.to_le_bytes());
    let chained = checksums.fold(start, |chain, next| {
        crc32c_append(chain, &next.to_le_bytes())
    });
    crc32c_append(chained, operations)
}

fn unfit(record: &Record<'_>, expected: &'static str) -> Error {
    let found = format!("a record of kind {}", record.label.kind);
    Error::corrupt("block store", record.address, expected, found)
}
