//! Cleaning: what is still live in segments that are mostly dead is written again at the end of the log,
//! denser than before, so that the segments become free.
//!
//! A frame is moved by one entry of the frame table, whoever refers to it. Map nodes and chunks of the
//! table are marked as changed: the checkpoint behind the moves writes them elsewhere.

use std::sync::Arc;

use super::file::{Workspace, decode_frame, frame_prefix};
use super::layout::{
    FRAME_PREFIX_BYTES, KIND_CHUNK, KIND_FRAME, KIND_MOVE, KIND_NODE, NODE_PREFIX_BYTES, u32_at,
};
use super::log::{BUFFER_BYTES_MAX, Use};
use super::place::{Place, Segment};
use super::transaction::encode;
use super::{BLOCK_BYTES_MAX, Blocks, BlocksOptions, Durability, Transaction};
use crate::codec::Decoder;
use crate::error::Result;
use crate::storage::record::{
    ALIGNMENT_BYTES, Found, HEADER_BYTES, Label, Record, Region, Scanner, parse, parse_head,
};

/// A segment is left alone when more than this part of it is live, whatever the options ask for: ten would
/// have to be written to free one.
const LIVE_SHARE_MAX: f64 = 0.9;

/// What a cleaning did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Segments that were read.
    pub segments: usize,
    /// Their bytes.
    pub read_bytes: u64,
    /// Bytes of blocks that were written again, with their headers.
    pub moved_bytes: u64,
    /// Segments that became free, those included that were dead already.
    pub freed_segments: usize,
}

/// What is to be cleaned.
#[derive(Debug, Default)]
struct Plan {
    victims: Vec<usize>,
    /// Whether a checkpoint alone frees something.
    has_dead: bool,
}

impl Blocks {
    /// Cleans segments of at most `budget_bytes` together, those with the least live bytes first, until no
    /// more than [`BlocksOptions::space_amp`] is taken; one is cleaned whatever the budget. What moves
    /// is encoded by [`BlocksOptions::clean_method`] where that is shorter. Held snapshots stay as they
    /// are, and so do the segments that they need.
    ///
    /// A cleaning that moves anything is a transaction with a number of its own, and ends with a
    /// checkpoint.
    ///
    /// # Errors
    /// As [`Blocks::begin`], and those of reading and writing. [`crate::Error::Limit`] if there is not even
    /// room for cleaning; nothing has happened then.
    ///
    /// # Cost
    /// No other transaction runs meanwhile. The budget is read, the live part of it decoded, encoded and
    /// written, and a checkpoint.
    pub fn clean(&self, budget_bytes: u64) -> Result<Cleaned> {
        let (cleaned, lacks_room) = self.clean_once(budget_bytes, true);
        match cleaned {
            // The file was to grow and cannot: what is free already is there for this.
            Err(_) if lacks_room => self.clean_once(budget_bytes, false).0,
            cleaned => cleaned,
        }
    }

    /// Cleans; returns too whether it was for want of room that it failed.
    fn clean_once(&self, budget_bytes: u64, may_grow: bool) -> (Result<Cleaned>, bool) {
        let mut transaction = match self.begin() {
            Ok(transaction) => transaction,
            Err(error) => return (Err(error), false),
        };
        let log = &mut transaction.writer().log;
        (log.reserved_bytes, log.lacks_room) = (0, false);
        let plan = transaction.plan(budget_bytes, may_grow);
        let cleaned = transaction.carry_out(&plan);
        (cleaned, transaction.writer().log.lacks_room)
    }
}

impl Transaction {
    /// Chooses the segments to be cleaned.
    fn plan(&mut self, budget_bytes: u64, may_grow: bool) -> Plan {
        let options = self.inner.options;
        let writer = self.writer();
        let log = &writer.log;
        let mut plan = Plan::default();
        let mut segments = Vec::new();
        for (index, used) in log.uses.iter().enumerate() {
            match log.live[index] {
                _ if *used != Use::Held || log.is_at(index) => {}
                0 => plan.has_dead |= !writer.pinned.contains(&index),
                live_bytes => segments.push((index, log.segments.get(index).bytes, live_bytes)),
            }
        }
        let share = |(_, bytes, live_bytes): &(usize, u64, u64)| *live_bytes as f64 / *bytes as f64;
        segments.sort_by(|a, b| share(a).total_cmp(&share(b)));
        let live_bytes: u64 = segments.iter().map(|segment| segment.2).sum();
        let wanted_bytes = (live_bytes as f64 * options.space_amp) as u64;
        let mut held_bytes: u64 = segments.iter().map(|segment| segment.1).sum();
        // The other half is for the checkpoint, and for what does not fit at the ends of segments.
        let room_bytes = log.room_bytes(may_grow) / 2;
        let (mut read_bytes, mut moved_bytes) = (0, 0);
        for (index, bytes, live_bytes) in &segments {
            let is_over = !plan.victims.is_empty() && read_bytes + bytes > budget_bytes;
            let is_dense = *live_bytes as f64 > *bytes as f64 * LIVE_SHARE_MAX;
            moved_bytes += live_bytes;
            if held_bytes <= wanted_bytes || is_over || is_dense || moved_bytes > room_bytes {
                break;
            }
            plan.victims.push(*index);
            read_bytes += bytes;
            held_bytes -= bytes - live_bytes;
        }
        plan
    }

    /// Moves what is live in the segments of a plan, and frees them by a checkpoint.
    fn carry_out(&mut self, plan: &Plan) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        if plan.victims.is_empty() && !plan.has_dead {
            return Ok(cleaned);
        }
        for victim in &plan.victims {
            let segment = self.state.segments.get(*victim);
            cleaned.segments += 1;
            cleaned.read_bytes += segment.bytes;
            cleaned.moved_bytes += self.move_segment(segment)?;
        }
        if !plan.victims.is_empty() {
            self.publish(Durability::Lazy)?;
        }
        let inner = Arc::clone(&self.inner);
        let writer = self.writer();
        inner.checkpoint(writer)?;
        cleaned.freed_segments = writer.freed_segments;
        Ok(cleaned)
    }

    /// Moves what is live in a segment; returns how many bytes were written again.
    fn move_segment(&mut self, segment: Segment) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        let (file, log_id) = (&*inner.file.file, inner.file.log_id);
        let mut head = [0; 2 * HEADER_BYTES];
        file.read_exact_at(&mut head, segment.start)?;
        let region = Region::new(log_id, segment.generation, segment.range());
        let first = parse_head(&head, log_id, segment.range())
            .and_then(|_| parse(&head, &region, segment.start))
            .map_err(|gap| gap.into_error(segment.start))?;
        let sequence = first.sequence;
        let mut scanner = Scanner::new(file, region, segment.start, sequence, BUFFER_BYTES_MAX);
        let mut moved_bytes = 0;
        while let Some(found) = scanner.next()? {
            // A gap is the end, or what is behind it: what is live there stays, and the segment with it.
            if let Found::Record(record) = found {
                moved_bytes += self.move_record(&record)?;
            }
        }
        Ok(moved_bytes)
    }

    /// Moves a record if it is live; returns how many bytes were written now.
    fn move_record(&mut self, record: &Record<'_>) -> Result<u64> {
        let place = Place::new(record.address, record.end() - record.address);
        let inner = Arc::clone(&self.inner);
        let has_prefix = record.body.len() >= NODE_PREFIX_BYTES;
        match record.label.kind {
            KIND_FRAME | KIND_MOVE => {
                let id = frame_prefix(record)?.id;
                let entry = self.state.entry(id, &inner.file)?;
                if entry.references == 0 || entry.place != place {
                    return Ok(0);
                }
                let new = self.move_frame(record, id)?;
                self.work().set_place(id, new)?;
                Ok(new.record_bytes())
            }
            KIND_NODE if has_prefix => {
                let (id, level) = (u32_at(record.body, 0), u32_at(record.body, 4));
                let entry = self.state.entry(id, &inner.file)?;
                let is_live = entry.references > 0 && entry.place == place;
                if is_live && self.state.nodes.get(id).is_none() {
                    let node = self.state.node(id, level, &inner.file)?;
                    self.state.nodes.insert(id, node);
                }
                Ok(0)
            }
            KIND_CHUNK if has_prefix => {
                let (level, number) = (u32_at(record.body, 0), u32_at(record.body, 4));
                let state = &mut self.state;
                let (table, segments) = (&mut state.table, &state.segments);
                table.touch_at(level, number, place, &inner.file, segments)?;
                Ok(0)
            }
            _ => Ok(0),
        }
    }

    /// Writes a block again; returns where.
    fn move_frame(&mut self, record: &Record<'_>, id: u32) -> Result<Place> {
        let inner = Arc::clone(&self.inner);
        inner.file.with_workspace(|workspace| {
            let dense = encode_densely(record, id, &inner.options, workspace);
            let label = |decoder: Decoder| Label {
                kind: KIND_MOVE,
                codec: decoder.codec,
                filter: decoder.filter,
                dictionary: decoder.dictionary,
                ..record.label
            };
            let (prefix, stored) = record.body.split_at(FRAME_PREFIX_BYTES);
            match dense {
                Some((decoder, length)) => {
                    self.append(label(decoder), &[prefix, &workspace.bytes[..length]])
                }
                None => {
                    let as_it_is = Label {
                        kind: KIND_MOVE,
                        ..record.label
                    };
                    self.append(as_it_is, &[prefix, stored])
                }
            }
        })
    }
}

/// Encodes the block of a frame by the denser method; returns how and the length in the workspace, or
/// `None` if that is not worth it, was tried before, or if the block cannot be decoded: then it is no worse
/// elsewhere.
fn encode_densely(
    record: &Record<'_>,
    id: u32,
    options: &BlocksOptions,
    workspace: &mut Workspace,
) -> Option<(Decoder, usize)> {
    let raw_bytes = record.label.raw_bytes;
    if record.label.kind == KIND_MOVE || raw_bytes > BLOCK_BYTES_MAX {
        return None;
    }
    let mut block = std::mem::take(&mut workspace.block);
    block.resize(raw_bytes as usize, 0);
    let decoded = decode_frame(record, id, &mut workspace.decompressor, &mut block);
    let stored_bytes = record.body.len() - FRAME_PREFIX_BYTES;
    let limit = stored_bytes.saturating_sub(ALIGNMENT_BYTES);
    let encoded = decoded.and_then(|()| encode(options.clean_method, workspace, &block, limit));
    workspace.block = block;
    encoded.ok().flatten()
}
