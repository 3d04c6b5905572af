//! Stores at rest are made dense. Segments whose blocks would be shorter in the denser methods are written again, and
//! the file is cut to its live bytes. The steps are small, and anybody may write between them.
//!
//! The long part of a step, decoding and encoding, runs beside writers, and is given up when a writer wants the turn.
//! Then only encoded blocks are moved as a transaction. Some blocks of a segment predict its length. A few segments
//! speak for all segments from before the opening: nothing of this is stored.

use std::collections::{HashMap, HashSet};

use super::checkpoint::Leaves;
use super::clean::{Aim, Cleaned, Dense, Plan, Recoding, encode_densely, scanner_of};
use super::file::frame_prefix;
use super::goal::{Goal, Measure};
use super::layout::{KIND_FRAME, KIND_MOVE, SEGMENTS_START};
use super::log::Use;
use super::place::{Place, Segment};
use super::{Blocks, Snapshot, Turn, spread};
use crate::codec::Decoder;
use crate::error::Result;
use crate::storage::record::{Found, Record};

/// Bytes that a step encodes, or reads to cut the file: two of the longest segments.
const STEP_BYTES: u64 = 2 << 20;
/// The first blocks of a segment, and one in so many of the others, predict its length.
const SAMPLED_PART: u64 = 16;
const SAMPLED_FIRST: u64 = 4;
/// A segment is left as it is where it would get shorter by less than this part. All together then take at most 1.07 of
/// their least length.
const SAVED_PART: u64 = 16;
/// So many segments speak for all from before the opening. If none of them gets shorter, less than a tenth of all
/// would, at 95 %.
const SPEAKERS: u64 = 32;
/// Cutting begins where the file exceeds its possible length by this part. It ends when this many steps in a row did
/// not make it shorter.
const EXCESS_PART: u64 = 16;
const IDLE_STEPS_MAX: usize = 4;

/// Facts about a store that is made dense.
#[derive(Debug, Default)]
pub struct Density {
    has_learned: bool,
    has_heard_speakers: bool,
    /// The generations of segments that need not be looked at again.
    judged: HashSet<u64>,
    is_packing: bool,
    /// Whether the file is cut behind every move, even by little.
    is_thorough: bool,
    idle_steps: usize,
    cleaned: Cleaned,
}

impl Density {
    /// Of a store whose every segment is looked at, whoever wrote it.
    fn thorough() -> Density {
        Density {
            has_heard_speakers: true,
            is_thorough: true,
            ..Density::default()
        }
    }

    /// Notes that something was written since then.
    pub fn note_written(&mut self) {
        (self.is_packing, self.idle_steps) = (false, 0);
    }
}

/// The result of a step of making a store dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Densified {
    /// There is more to do.
    Some,
    /// A writer is active, or a reader needs the segments that would be freed.
    Later,
    All,
}

/// The shorter encodings of blocks of segments, by place.
pub(super) type Encoded = HashMap<u64, (Decoder, Vec<u8>)>;

/// The result of a look at a segment.
enum Look {
    Dense,
    Shorter(Encoded),
    GivenUp,
}

/// Segments to look at.
struct Unjudged {
    segments: Vec<Segment>,
    /// Whether a few of them speak for all.
    are_old: bool,
}

impl Blocks {
    /// Does one step of making a store dense. `goes_on` is asked between blocks whether nobody wants to write. A step
    /// that frees keeps the file's usual room, and a dense store is not written.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// Some 2 MiB are decoded and encoded while others write, and then written in a transaction with a checkpoint. The
    /// first step trains dictionaries, if there are none and they pay.
    pub fn densify(&self, known: &mut Density, goes_on: &dyn Fn() -> bool) -> Result<Densified> {
        // Training writes.
        if !known.has_learned && self.has_written() {
            known.has_learned = true;
            // A newer dictionary would have all blocks of the present one written again.
            let has_none = self.inner.shared.state().dictionaries.len() == 0;
            if has_none && self.learn_from_itself()? > 0 {
                known.judged.clear();
            }
            return Ok(Densified::Some);
        }
        let Some(unjudged) = self.unjudged(known) else {
            return Ok(Densified::Later);
        };
        if unjudged.segments.is_empty() {
            return self.pack(known);
        }
        if unjudged.are_old {
            return self.hear_speakers(known, &unjudged.segments, goes_on);
        }
        let snapshot = self.try_snapshot()?;
        let (mut victims, mut encoded) = (Vec::new(), Encoded::new());
        let (mut looked, mut encoded_bytes) = (Vec::new(), 0);
        for segment in unjudged.segments {
            if encoded_bytes >= STEP_BYTES {
                break;
            }
            match self.look(&snapshot, segment, goes_on)? {
                Look::GivenUp => return Ok(Densified::Later),
                Look::Dense => {}
                Look::Shorter(blocks) => {
                    encoded_bytes += segment.bytes;
                    encoded.extend(blocks);
                    victims.push(segment);
                }
            }
            looked.push(segment.generation);
        }
        drop(snapshot);
        let Some(cleaned) = self.move_encoded(&victims, &encoded)? else {
            return Ok(Densified::Later);
        };
        known.cleaned.add(&cleaned);
        known.judged.extend(looked);
        Ok(Densified::Some)
    }

    /// Makes a store dense by as many steps as needed, while the caller keeps others from writing. A store with readers
    /// is left as it is: freed segments could not be given back.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// Everything is read, and a sixteenth of it encoded. Blocks that get shorter are written, with a checkpoint for
    /// each 2 MiB.
    pub fn make_dense(&self) -> Result<Cleaned> {
        let mut known = Density::thorough();
        let is_read = || self.inner.shared.is_read();
        while !is_read() && self.densify(&mut known, &|| true)? == Densified::Some {}
        Ok(known.cleaned)
    }

    /// Returns whether [`Blocks::make_dense`] would make the file shorter if `dying_bytes` of the live bytes were dead.
    /// A few segments speak for all. Nothing is written: the first write after an opening makes the file longer by
    /// that.
    ///
    /// # Errors
    /// Those of reading.
    pub fn is_sparse(&self, dying_bytes: u64) -> Result<bool> {
        if self.inner.shared.is_read() {
            return Ok(false);
        }
        let Some(unjudged) = self.unjudged(&mut Density::thorough()) else {
            return Ok(false);
        };
        let saving = self.saving_of_all(&unjudged.segments, &|| true)?;
        let slack = self.slack(dying_bytes, &saving.unwrap_or_default());
        Ok(slack.is_some_and(|slack| slack.is_much))
    }

    /// Returns the segments to look at, in the order of the file; `None` while somebody writes.
    fn unjudged(&self, known: &mut Density) -> Option<Unjudged> {
        let (mut segments, first_generation) = match &*self.inner.lock_turn() {
            Turn::Idle(writer) => {
                let log = &writer.log;
                let is_looked_at = |index: &usize| {
                    log.live[*index] > 0 && log.uses[*index] == Use::Held && !log.is_at(*index)
                };
                let indexes = (0..log.uses.len()).filter(is_looked_at);
                let segments = indexes.map(|index| log.segments.get(index));
                (segments.collect::<Vec<_>>(), log.first_generation)
            }
            Turn::Untouched(recovery, _) => {
                let segments = recovery.state.segments.iter().zip(&recovery.live);
                let live = segments.filter(|(_, live_bytes)| **live_bytes > 0);
                (live.map(|(segment, _)| segment).collect(), u64::MAX)
            }
            Turn::Behind | Turn::Taken | Turn::Refused => return None,
        };
        let present: HashSet<u64> = segments.iter().map(|it| it.generation).collect();
        known.judged.retain(|judged| present.contains(judged));
        segments.retain(|segment| !known.judged.contains(&segment.generation));
        let are_old = !known.has_heard_speakers;
        if are_old {
            segments.retain(|segment| segment.generation < first_generation);
            known.has_heard_speakers = segments.is_empty();
        }
        match are_old && segments.is_empty() {
            true => self.unjudged(known),
            false => Some(Unjudged { segments, are_old }),
        }
    }

    /// Looks at some blocks of a few segments. If they would not get shorter, all segments are left as they are.
    fn hear_speakers(
        &self,
        known: &mut Density,
        segments: &[Segment],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Densified> {
        let Some(saving) = self.saving_of_all(segments, goes_on)? else {
            return Ok(Densified::Later);
        };
        known.has_heard_speakers = true;
        if !saving.is_worth_it() {
            let generations = segments.iter().map(|segment| segment.generation);
            known.judged.extend(generations);
        }
        Ok(Densified::Some)
    }

    /// Returns the saving over some blocks of a few segments; `None` if that is given up.
    fn saving_of_all(
        &self,
        segments: &[Segment],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Saving>> {
        let snapshot = self.try_snapshot()?;
        let mut saving = Saving::default();
        for index in spread(segments.len() as u64, SPEAKERS) {
            match self.saving(&snapshot, segments[index as usize], goes_on)? {
                Some(of_one) => saving.add(&of_one),
                None => return Ok(None),
            }
        }
        Ok(Some(saving))
    }

    /// Looks at some blocks of a segment, and encodes all of them if they would be shorter.
    fn look(
        &self,
        snapshot: &Snapshot,
        segment: Segment,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Look> {
        match self.saving(snapshot, segment, goes_on)? {
            None => return Ok(Look::GivenUp),
            Some(saving) if !saving.is_worth_it() => return Ok(Look::Dense),
            Some(_) => {}
        }
        let mut encoded = Encoded::new();
        let is_whole = self.for_each_frame(snapshot, segment, &mut |record, id| {
            let denser = self.denser(snapshot, record, id);
            encoded.extend(denser.map(|denser| (record.address, denser)));
            goes_on()
        })?;
        Ok(match is_whole {
            true => Look::Shorter(encoded),
            false => Look::GivenUp,
        })
    }

    /// Returns the saving over some blocks of a segment; `None` if that is given up.
    fn saving(
        &self,
        snapshot: &Snapshot,
        segment: Segment,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Saving>> {
        let (mut saving, mut number) = (Saving::default(), 0);
        let is_whole = self.for_each_frame(snapshot, segment, &mut |record, id| {
            if number < SAMPLED_FIRST || number % SAMPLED_PART == 0 {
                let before = record.body.len() as u64;
                let denser = self.denser(snapshot, record, id);
                let after = denser.map_or(before, |(_, bytes)| bytes.len() as u64);
                saving.add(&Saving {
                    present_bytes: before,
                    saved_bytes: before.saturating_sub(after),
                });
            }
            number += 1;
            goes_on()
        })?;
        Ok(is_whole.then_some(saving))
    }

    /// Returns a shorter encoding of a block, if there is one.
    fn denser(
        &self,
        snapshot: &Snapshot,
        record: &Record<'_>,
        id: u32,
    ) -> Option<(Decoder, Vec<u8>)> {
        let inner = &self.inner;
        let dictionaries = &snapshot.state().dictionaries;
        inner.file.with_workspace(|workspace| {
            let dense = encode_densely(record, id, (&inner.coding, dictionaries), workspace);
            match dense {
                Dense::Encoded(decoder, length) => {
                    Some((decoder, workspace.bytes[..length].to_vec()))
                }
                Dense::Raw | Dense::AsItIs => None,
            }
        })
    }

    /// Shows the blocks of a segment that are live in a snapshot. Returns whether all were shown before `show` had
    /// enough.
    fn for_each_frame(
        &self,
        snapshot: &Snapshot,
        segment: Segment,
        show: &mut dyn FnMut(&Record<'_>, u32) -> bool,
    ) -> Result<bool> {
        let file = &self.inner.file;
        let Some(mut scanner) = scanner_of(file, segment)? else {
            return Ok(true);
        };
        while let Some(found) = scanner.next()? {
            let Found::Record(record) = found else {
                continue;
            };
            if !matches!(record.label.kind, KIND_FRAME | KIND_MOVE) {
                continue;
            }
            let id = frame_prefix(&record)?.id;
            let entry = snapshot.state().entry(id, file)?;
            let place = Place::new(record.address, record.end() - record.address);
            let is_live = entry.references > 0 && entry.place == place;
            if is_live && !show(&record, id) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Moves segments whose blocks were encoded; `None` if somebody writes.
    fn move_encoded(&self, segments: &[Segment], encoded: &Encoded) -> Result<Option<Cleaned>> {
        if segments.is_empty() {
            return Ok(Some(Cleaned::default()));
        }
        let Some(mut transaction) = self.try_begin()? else {
            return Ok(None);
        };
        transaction.clean();
        let log = &transaction.writer().log;
        let same = segments.iter().filter_map(|segment| {
            let index = log.segments.find(segment.start)?;
            (log.segments.get(index) == *segment).then_some(index)
        });
        let plan = Plan::of(same.collect(), Measure::of(&self.inner.options));
        let cleaned = transaction.carry_out(&plan, &Recoding::Ahead(encoded))?;
        Ok(Some(cleaned))
    }

    /// Returns the length that the file could be cut to, with `dying_bytes` dead and so much of the others saved;
    /// `None` while somebody writes.
    fn slack(&self, dying_bytes: u64, saving: &Saving) -> Option<Slack> {
        let options = &self.inner.options;
        let state = self.inner.shared.state();
        let mut least_bytes = u64::from(options.segment_bytes_min);
        let (live_bytes, kept_bytes) = match &*self.inner.lock_turn() {
            Turn::Idle(writer) => {
                least_bytes = writer.log.geometry.segment_bytes_min;
                let live_bytes: u64 = writer.log.live.iter().sum();
                (live_bytes, writer.kept_bytes(&state, Leaves::All))
            }
            Turn::Untouched(recovery, _) => {
                // About that, and the segments that the next writer begins.
                let kept_bytes = state.checkpoint_bytes_max() + state.table_bytes();
                let begun_bytes = 4 * least_bytes;
                (recovery.live.iter().sum(), kept_bytes + begun_bytes)
            }
            Turn::Behind | Turn::Taken | Turn::Refused => return None,
        };
        let measure = Measure::packed(options, kept_bytes);
        let left_bytes = live_bytes.saturating_sub(dying_bytes);
        let saved_bytes = (left_bytes as f64 * saving.share()) as u64;
        let goal = Goal::of(left_bytes - saved_bytes, &measure, least_bytes);
        let most_bytes = goal.file_bytes + goal.file_bytes / EXCESS_PART;
        Some(Slack {
            measure,
            is_much: state.segments.end(SEGMENTS_START) > most_bytes,
        })
    }

    /// Does one step of cutting the file to its live bytes, if it is longer by enough.
    fn pack(&self, known: &mut Density) -> Result<Densified> {
        let Some(Slack { measure, is_much }) = self.slack(0, &Saving::default()) else {
            return Ok(Densified::Later);
        };
        known.is_packing |= is_much || (known.is_thorough && known.cleaned.segments > 0);
        if known.is_packing && self.inner.shared.is_read() {
            return Ok(Densified::Later);
        }
        let is_left = known.idle_steps < IDLE_STEPS_MAX && self.can_shrink_to(&measure);
        if !known.is_packing || !is_left {
            known.is_packing = false;
            return Ok(Densified::All);
        }
        let before = self.inner.shared.state().segments.end(0);
        let cleaned = self.clean_by(Aim {
            budget_bytes: STEP_BYTES,
            recodes: false,
            measure,
            ..Aim::of(&self.inner.options)
        })?;
        known.cleaned.add(&cleaned);
        let after = self.inner.shared.state().segments.end(0);
        known.idle_steps = if after < before {
            0
        } else {
            known.idle_steps + 1
        };
        Ok(Densified::Some)
    }
}

/// The length that a file could be cut to, and whether that is worth it.
struct Slack {
    measure: Measure,
    is_much: bool,
}

/// The bytes by which blocks would get shorter.
#[derive(Default)]
struct Saving {
    present_bytes: u64,
    saved_bytes: u64,
}

impl Saving {
    fn add(&mut self, other: &Saving) {
        self.present_bytes += other.present_bytes;
        self.saved_bytes += other.saved_bytes;
    }

    fn share(&self) -> f64 {
        self.saved_bytes as f64 / self.present_bytes.max(1) as f64
    }

    fn is_worth_it(&self) -> bool {
        self.saved_bytes * SAVED_PART >= self.present_bytes.max(1)
    }
}
