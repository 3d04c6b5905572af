//! Checkpoints. Everything that changed since the last one goes into the log, and a superblock points to it. A recovery
//! starts there, and older segments become free.

use std::sync::Arc;

use super::file::StoreFile;
use super::goal::Measure;
use super::layout::{
    Checkpoint, KIND_CHECKPOINT, KIND_CHUNK, KIND_LIST, KIND_NODE, Listed, Payload,
};
use super::log::{Log, Use};
use super::overlay::Overlay;
use super::place::{Place, Segment};
use super::state::{LiveChanges, Node, State, Work};
use super::table::Chunk;
use super::{Reserve, SEGMENT_BYTES_MAX, SEGMENT_SHARE};
use crate::dictionaries::Generation;
use crate::error::{Error, Result};
use crate::storage::record::{Label, Placed};
use crate::storage::superblock::Superblocks;

/// Lists are cut into records of at least about this length. No record is longer than the least segment.
const LIST_BYTES: usize = 3 << 10;
/// The most bytes of one such record: half of the bytes read at once.
const LIST_BYTES_MAX: usize = 128 << 10;
/// Bytes of a list's place in the record behind the lists. A list gets about as long as that record with the places of
/// all lists, so neither is much longer than the other. Both fit into the least segment: 11 KiB with all possible
/// notes.
const LISTED_PLACE_BYTES: u64 = 40;

/// The most of a database's file that is kept for moves out of one segment.
const MOVED_SHARE: u64 = 12;
/// A file keeps a 32nd for transactions that free, up to this many bytes, and a 64th above. That is 250 pages, the
/// shortest of a kilobyte each, where a DELETE touches that many.
const SMALL_FREEING_BYTES_MAX: u64 = 256 << 10;

/// The data that only the writer of a store has.
pub(super) struct Writer {
    pub(super) log: Log,
    pub(super) superblocks: Superblocks,
    pub(super) payload: Payload,
    /// The segments in which the last checkpoint's lists lie.
    pub(super) pinned: Vec<usize>,
    /// The number of segments that the last checkpoint freed.
    pub(super) freed_segments: usize,
    /// Dictionaries that enter with the next checkpoint.
    pub(super) pending: Vec<Arc<Generation>>,
}

/// The room within the file that a writer leaves to others. With it a store on a full host can be cleaned, and
/// transactions that free more than they take can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaves {
    /// The room of the next checkpoint, for cleaning.
    Checkpoint,
    /// That of everything that may still change before it: for transactions without blocks.
    Frees,
    /// That, and room for moves: for transactions that free more than they write.
    Cleaning,
    /// That, and room for transactions that free: a checkpoint that frees nothing, and half a segment.
    All,
}

/// The lists of a checkpoint.
struct Lists {
    places: Vec<(Segment, Place)>,
    /// The number of remaining segments, if not all are listed.
    kept: Option<usize>,
    listed: usize,
}

fn label(kind: u8) -> Label {
    Label {
        kind,
        ..Label::default()
    }
}

impl Writer {
    /// Writes a checkpoint of `state` and makes it durable. Returns the same state as stored there.
    ///
    /// # Errors
    /// Those of writing. Before the superblock is written nothing has changed.
    pub(super) fn checkpoint(
        &mut self,
        file: &StoreFile,
        state: &State,
        measure: &Measure,
    ) -> Result<State> {
        self.log.kept_bytes = 0;
        let mut new = state.clone();
        let mut live = LiveChanges::new();
        self.write_dictionaries(file, &mut new, &mut live)?;
        let nodes = self.write_nodes(file, &mut new, &mut live)?;
        let chunks = self.write_chunks(file, &mut new, &mut live)?;
        // Listed segments stay.
        self.log.forget_short();
        new.segments = self.log.segments.clone();
        let lists = self.write_lists(&new, &live, measure)?;
        let checkpoint = Checkpoint {
            commit: new.commit,
            chain: new.chain,
            next_volume: new.next_volume,
            table_root: new.table.root,
            table_height: new.table.height,
            next_frame: new.table.next_frame,
            free_head: new.table.free_head,
            lists: lists.places,
        };
        let end = self
            .log
            .append(label(KIND_CHECKPOINT), &[&checkpoint.encode()])?;
        self.log.flush()?;
        self.log.sync()?;
        // The newest one with it.
        self.superblocks.trust();
        let end_place = place_of(&end);
        let payload = Payload {
            checkpoint: Some((self.log.current(), end_place)),
            log: self.log.position(),
            end: None,
            ..self.payload
        };
        self.superblocks.write(&payload.encode())?;
        self.log.has_synced = false;
        self.payload = payload;
        new.version = end.sequence;
        new.segments = self.log.segments.clone();
        let places = checkpoint.lists.iter().map(|(_, place)| *place);
        let places = places.chain([end_place]).map(Place::address);
        self.pinned = places.filter_map(|at| new.segments.find(at)).collect();
        apply_live(&mut self.log.live, &live)?;
        self.free_unused(new.version);
        (self.log.appended_bytes, self.log.died_bytes) = (0, 0);
        // Neither superblock that a recovery may find leads here any more.
        if let Some(kept) = lists.kept {
            self.log.cut(kept)?;
        }
        self.log.note_listed(lists.listed);
        new.segments = self.log.segments.clone();
        for (id, place, node) in &nodes {
            file.keep_node(*place, *id, &new.segments, node);
        }
        for (number, place, chunk) in &chunks {
            file.keep_chunk(*place, *number, &new.segments, chunk);
        }
        Ok(new)
    }

    /// Makes segments begun from now on long enough for blocks of such a length. The next superblock records it; until
    /// then the volume that has them does.
    pub(super) fn make_for(&mut self, block_bytes: u32) {
        self.payload = self.payload.with_blocks_of(block_bytes);
        self.log.geometry.segment_bytes_min = self.payload.segment_bytes_min.into();
        self.log.set_begun_bytes_min();
    }

    /// Records where the durable part of the log ends. This writer writes nothing more. The record needs no sync.
    ///
    /// # Errors
    /// Those of writing.
    pub(super) fn tell_end(&mut self) -> Result<()> {
        if self.log.has_synced {
            self.superblocks.trust();
        }
        let payload = Payload {
            end: Some(self.log.synced_sequence),
            ..self.payload
        };
        self.superblocks.write_unsynced(&payload.encode())
    }

    /// Writes the map nodes that changed, and notes their places in the table.
    fn write_nodes(
        &mut self,
        file: &StoreFile,
        new: &mut State,
        live: &mut LiveChanges,
    ) -> Result<Vec<(u32, Place, Arc<Node>)>> {
        let mut written = Vec::new();
        for id in new.nodes.keys() {
            let node = Arc::clone(new.nodes.get(id).expect("a changed node"));
            let slots = node.slots.iter().flat_map(|slot| slot.to_le_bytes());
            let slots: Vec<u8> = slots.collect();
            let body: [&[u8]; 3] = [&id.to_le_bytes(), &node.level.to_le_bytes(), &slots];
            let placed = self.log.append(label(KIND_NODE), &body)?;
            new.segments = self.log.segments.clone();
            let mut work = Work {
                file,
                state: new,
                live,
            };
            work.set_place(id, place_of(&placed))?;
            written.push((id, place_of(&placed), node));
        }
        new.nodes = Overlay::default();
        Ok(written)
    }

    /// Writes the chunks of the table that changed.
    fn write_chunks(
        &mut self,
        file: &StoreFile,
        new: &mut State,
        live: &mut LiveChanges,
    ) -> Result<Vec<(u32, Place, Arc<Chunk>)>> {
        let mut written = Vec::new();
        let log = &mut self.log;
        let segments = new.segments.clone();
        new.table
            .write_out(file, &segments, |level, number, chunk, old| {
                let body = chunk.encode();
                let body: [&[u8]; 3] = [&level.to_le_bytes(), &number.to_le_bytes(), &body];
                let place = place_of(&log.append(label(KIND_CHUNK), &body)?);
                for (place, sign) in [(old, -1), (place, 1)] {
                    if let Some(segment) = log.segments.find(place.address()) {
                        *live.entry(segment).or_default() += sign * place.record_bytes() as i64;
                    }
                }
                written.push((number, place, Arc::clone(chunk)));
                Ok(place)
            })?;
        new.segments = log.segments.clone();
        Ok(written)
    }

    /// Writes the lists of segments, volumes and notes. Free segments at the end of a file that is too long are left
    /// out, and nothing is written there.
    fn write_lists(&mut self, new: &State, live: &LiveChanges, measure: &Measure) -> Result<Lists> {
        let mut after = self.log.live.clone();
        apply_live(&mut after, live)?;
        let goal = self.log.goal_of(after.iter().sum(), measure);
        let kept = self.log.kept_segments(&goal, new.list_bytes_max());
        if let Some(kept) = kept {
            self.log.hold_tail(kept);
            after.truncate(kept);
        }
        Ok(Lists {
            places: self.write_listed(new, &after)?,
            kept,
            listed: after.len(),
        })
    }

    fn write_listed(&mut self, new: &State, live: &[u64]) -> Result<Vec<(Segment, Place)>> {
        let segments = new.segments.iter().zip(live);
        let segments = segments.map(|(segment, live_bytes)| Listed::Segment {
            segment,
            live_bytes: *live_bytes,
        });
        let volumes = new.volumes.iter().map(|(number, volume)| Listed::Volume {
            number: *number,
            volume: *volume,
        });
        let notes = new.notes.iter().map(|(key, bytes)| Listed::Note {
            key,
            bytes: Arc::clone(bytes),
        });
        let dictionaries = new
            .dictionaries
            .iter()
            .map(|(id, kept)| Listed::Dictionary {
                id,
                last_use: kept.last_use,
                places: kept.places,
            });
        let mut lists = Vec::new();
        let mut bytes = Vec::new();
        let list_bytes = (new.list_bytes_max() * LISTED_PLACE_BYTES).isqrt() as usize;
        let list_bytes = list_bytes.clamp(LIST_BYTES, LIST_BYTES_MAX);
        let listed = segments.chain(volumes).chain(notes);
        let mut listed = listed.chain(dictionaries).peekable();
        while let Some(next) = listed.next() {
            next.encode(&mut bytes);
            if bytes.len() >= list_bytes || listed.peek().is_none() {
                let placed = self.log.append(label(KIND_LIST), &[&bytes])?;
                lists.push((self.log.current(), place_of(&placed)));
                bytes.clear();
            }
        }
        Ok(lists)
    }

    /// Gives free segments back to the host, where the file takes more than it should. Segments that a checkpoint freed
    /// are free once its state is published.
    pub(super) fn give_back(&mut self, state: &State, measure: &Measure) -> Result<()> {
        let goal = self.log.goal(measure);
        self.log.recount();
        if !goal.is_passed_by(self.log.taken_bytes()) && !self.log.is_too_long(&goal) {
            return Ok(());
        }
        let kept_bytes = goal.room_bytes_min.max(self.kept_bytes(state, Leaves::All));
        self.log.give_back(goal.file_bytes, kept_bytes)
    }

    /// Returns whether the host has no room, and the next checkpoint needs the rest of the file's room.
    pub(super) fn is_short_of_room(&self, state: &State) -> bool {
        let is_short = || self.log.room_inside() < self.kept_bytes(state, Leaves::Cleaning);
        self.log.is_tight && is_short()
    }

    /// Returns whether hardly anything died since the last attempt to make room failed.
    pub(super) fn is_futile(&self, state: &State) -> bool {
        // A checkpoint makes room by itself for the changes that it writes.
        let has_changed = state.changed_bytes() > 0;
        let futile_bytes = self.log.futile_bytes.filter(|_| !has_changed);
        futile_bytes.is_some_and(|futile_bytes| {
            let segment_bytes = self.log.next_segment_bytes();
            let least_bytes = match self.log.geometry.reserve {
                Reserve::All => segment_bytes,
                // Scattered rows free little at a time.
                Reserve::Share => segment_bytes / 4,
            };
            self.log.dead_bytes(&self.pinned).all_bytes < futile_bytes + least_bytes
        })
    }

    /// Returns whether the host has no room, and the file lacks its reserve with a segment more.
    pub(super) fn is_room_due(&self, state: &State) -> bool {
        let wanted_bytes = || self.kept_bytes(state, Leaves::All) + self.log.next_segment_bytes();
        self.log.is_tight && self.log.room_inside() < wanted_bytes() && !self.is_futile(state)
    }

    /// Returns whether a checkpoint gives enough back, or frees room that the host does not have.
    pub(super) fn is_freeing_due(&self, measure: &Measure) -> bool {
        if self.log.died_bytes == 0 {
            return false;
        }
        let goal = self.log.goal(measure);
        let is_worth_a_look = self.log.died_bytes >= goal.segment_bytes || self.log.is_tight;
        let is_long = || goal.is_passed_by(self.log.taken_bytes());
        let dead_bytes = || self.log.dead_bytes(&self.pinned).whole_bytes;
        is_worth_a_look
            && match self.log.is_tight {
                true => dead_bytes() > 0,
                false => is_long() && dead_bytes() >= goal.interval_bytes,
            }
    }

    /// Returns the room within the file that a writer with these `leaves` leaves to others.
    pub(super) fn kept_bytes(&self, state: &State, leaves: Leaves) -> u64 {
        let checkpoint_bytes = state.checkpoint_bytes_max();
        let file_bytes = self.log.file_bytes();
        // About the length of a segment in such a file, without steps.
        let least_bytes = u64::from(self.payload.segment_bytes_min);
        let segment_bytes = (file_bytes / SEGMENT_SHARE).clamp(least_bytes, SEGMENT_BYTES_MAX);
        let more_bytes = match self.log.geometry.reserve {
            Reserve::All => {
                // One trim, or the moves, may change entries all over the table and the maps. That happens before that
                // checkpoint and behind it, and the checkpoint may free nothing.
                let unchanged_bytes = state.unchanged_bytes().min(SEGMENT_BYTES_MAX);
                let table_bytes = state.table_bytes().min(SEGMENT_BYTES_MAX);
                let moved_bytes = (2 * segment_bytes).min(file_bytes / 8);
                let freeing_bytes = (segment_bytes / 2).min(file_bytes / 16);
                match leaves {
                    Leaves::Checkpoint => 0,
                    Leaves::Frees => unchanged_bytes,
                    Leaves::Cleaning => unchanged_bytes + moved_bytes,
                    Leaves::All => unchanged_bytes + table_bytes + moved_bytes + freeing_bytes,
                }
            }
            Reserve::Share if self.log.is_small() => 0,
            Reserve::Share => {
                // With the ends of segments, and the moved frames' entries all over the table
                // (`Transaction::keep_room_for`).
                let entries_bytes = state.unchanged_bytes().min(3 * segment_bytes);
                let moved_bytes = segment_bytes + segment_bytes / 4 + entries_bytes;
                let moved_bytes = moved_bytes.min(file_bytes / MOVED_SHARE);
                // Scattered rows in a small file touch more of it.
                let more_bytes = (2 * file_bytes / SEGMENT_SHARE).min(SMALL_FREEING_BYTES_MAX);
                let freeing_bytes = more_bytes.max(file_bytes / SEGMENT_SHARE);
                let freeing_bytes = freeing_bytes.clamp(least_bytes, SEGMENT_BYTES_MAX);
                match leaves {
                    Leaves::Checkpoint | Leaves::Frees => 0,
                    Leaves::Cleaning => moved_bytes,
                    Leaves::All => {
                        let segment_bytes = least_bytes.saturating_sub(checkpoint_bytes);
                        segment_bytes.max(moved_bytes + freeing_bytes)
                    }
                }
            }
        };
        checkpoint_bytes + more_bytes
    }

    /// Frees the segments that neither the state of this version nor a recovery needs.
    fn free_unused(&mut self, version: u64) {
        self.freed_segments = 0;
        for (index, live_bytes) in self.log.live.iter().enumerate() {
            let is_needed =
                *live_bytes > 0 || self.log.is_at(index) || self.pinned.contains(&index);
            let used = &mut self.log.uses[index];
            match used {
                Use::Free { .. } => {}
                Use::Held if is_needed => {}
                Use::Held => {
                    *used = Use::Free { since: version };
                    self.freed_segments += 1;
                }
            }
        }
    }
}

/// Returns the place of a record that was laid out.
pub(super) fn place_of(placed: &Placed) -> Place {
    Place::new(placed.address, placed.record_bytes)
}

/// Adds a transaction's changes to the live bytes of the segments.
///
/// # Errors
/// If more bytes die in a segment than lived there: the stored counts are wrong.
pub(super) fn apply_live(live: &mut [u64], changes: &LiveChanges) -> Result<()> {
    for (segment, change) in changes {
        let before = live[*segment];
        live[*segment] = before.checked_add_signed(*change).ok_or_else(|| {
            let found = format!("{} more bytes that died", change.unsigned_abs() - before);
            let expected = format!("{before} live bytes in segment {segment}");
            Error::corrupt("block store", 0, expected, found)
        })?;
    }
    Ok(())
}
