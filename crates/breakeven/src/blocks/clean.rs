//! Cleaning: what is still live in segments that are mostly dead is written again at the end of the log,
//! denser than before if somebody asked for it, so that the segments become free.
//!
//! A frame is moved by one entry of the frame table, whoever refers to it. Map nodes and chunks of the
//! table are marked as changed: the checkpoint behind the moves writes them elsewhere.

use std::sync::Arc;

use super::checkpoint::Leaves;
use super::coding::{Coding, Hidden, Moment, Subject};
use super::dense::Encoded;
use super::dictionary::KeptDictionaries;
use super::file::{StoreFile, Workspace, decode_frame, frame_prefix};
use super::goal::{Goal, Measure};
use super::layout::{
    FRAME_PREFIX_BYTES, KIND_CHUNK, KIND_DICTIONARY, KIND_FRAME, KIND_MOVE, KIND_NODE,
    NODE_PREFIX_BYTES, SEGMENTS_START, u32_at,
};
use super::log::{BUFFER_BYTES_MAX, Log, Use};
use super::place::{Place, Segment};
use super::{BLOCK_BYTES_MAX, Blocks, BlocksOptions, Reserve, Transaction, Turn, is_for_room};
use crate::codec::Decoder;
use crate::error::{Error, Result};
use crate::storage::record::{
    ALIGNMENT_BYTES, Found, HEADER_BYTES, Label, Record, Region, Scanner, parse, parse_head,
};

/// A segment is left alone when more than this part of it is live, whatever the options ask for: ten would
/// have to be written to free one.
const LIVE_SHARE_MAX: f64 = 0.9;
/// The same of a file with a share as its reserve, where the host has no room: to free some of it is worth the work of thirty times
/// as much. A disk has a reserve that lasts until a segment is emptier.
const LIVE_SHARE_TIGHT_MAX: f64 = 31.0 / 32.0;
/// A cleaning that is due reads at most this many times what was written since the last checkpoint: enough
/// for segments that are four fifths live.
const BUDGET_FACTOR: u64 = 6;
/// Where writers take turns, a cleaning makes room for so many of them.
const TURNS_AHEAD: u64 = 4;
/// Shrinking ends when this many cleanings in a row did not make the file shorter.
const IDLE_ROUNDS_MAX: usize = 4;

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

impl Cleaned {
    /// Adds what another cleaning did.
    pub fn add(&mut self, other: &Cleaned) {
        self.segments += other.segments;
        self.read_bytes += other.read_bytes;
        self.moved_bytes += other.moved_bytes;
        self.freed_segments += other.freed_segments;
    }
}

/// What is to be cleaned.
#[derive(Debug)]
pub(super) struct Plan {
    victims: Vec<usize>,
    /// Whether a checkpoint alone frees or cuts something.
    has_dead: bool,
    /// From where on the file is too long.
    tail: Option<u64>,
    /// Segments with more than this part live are left alone.
    live_share_max: f64,
    measure: Measure,
}

impl Plan {
    /// To move some segments.
    pub(super) fn of(victims: Vec<usize>, measure: Measure) -> Plan {
        Plan {
            victims,
            has_dead: false,
            tail: None,
            live_share_max: LIVE_SHARE_MAX,
            measure,
        }
    }

    /// Takes what makes so much room. Of a file that is too long the end moves, whether dead or not, and needs room before
    /// it.
    fn take_for_room(&mut self, segments: Vec<Candidate>, lacking_bytes: u64, budget: &mut Budget) {
        let tail = self.tail.unwrap_or(u64::MAX);
        let (mut before, mut behind): (Vec<_>, Vec<_>) =
            segments.into_iter().partition(|it| it.start < tail);
        let coming_bytes: u64 = behind.iter().map(|it| it.live_bytes).sum();
        self.take_emptiest(&mut before, lacking_bytes + coming_bytes, budget);
        self.take_tail(&mut behind, budget);
    }

    /// Takes the segments with the least live bytes for their length, until as much becomes free.
    fn take_emptiest(
        &mut self,
        segments: &mut [Candidate],
        wanted_bytes: u64,
        budget: &mut Budget,
    ) {
        segments.sort_by(|a, b| a.live_share().total_cmp(&b.live_share()));
        let mut freed_bytes = 0;
        for segment in &*segments {
            let is_dense = segment.live_share() > self.live_share_max;
            let is_enough = freed_bytes >= wanted_bytes;
            if is_enough || is_dense || !budget.allows(segment, self.victims.is_empty()) {
                break;
            }
            self.victims.push(segment.index);
            freed_bytes += segment.bytes - segment.live_bytes;
        }
    }

    /// Takes the segments that lie too far behind, from the file's end on.
    fn take_tail(&mut self, segments: &mut [Candidate], budget: &mut Budget) {
        segments.sort_by_key(|segment| std::cmp::Reverse(segment.start));
        self.take_all(segments.iter(), budget);
    }

    /// Takes the segments up to a generation.
    fn take_old(&mut self, segments: &[Candidate], generation: u64, budget: &mut Budget) {
        let is_old = |segment: &&Candidate| segment.generation <= generation;
        self.take_all(segments.iter().filter(is_old), budget);
    }

    fn take_all<'a>(&mut self, segments: impl Iterator<Item = &'a Candidate>, budget: &mut Budget) {
        for segment in segments {
            if self.victims.contains(&segment.index) {
                continue;
            }
            if !budget.allows(segment, self.victims.is_empty()) {
                break;
            }
            self.victims.push(segment.index);
        }
    }
}

/// What a cleaning is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) budget_bytes: u64,
    /// So much is to become free, whatever the file's measure.
    pub(super) wanted_bytes: u64,
    /// Whether the segments in use are to keep to the file's measure by themselves, room or not.
    pub(super) is_thorough: bool,
    /// Whether blocks are encoded anew where that is shorter.
    pub(super) recodes: bool,
    /// All segments up to this generation are moved, dead or not; 0 for none.
    pub(super) rewritten: u64,
    pub(super) measure: Measure,
}

impl Aim {
    /// To read what makes a checkpoint due, and encode it anew.
    pub(super) fn of(options: &BlocksOptions) -> Aim {
        Aim {
            budget_bytes: options.checkpoint_bytes,
            wanted_bytes: 0,
            is_thorough: false,
            recodes: true,
            rewritten: 0,
            measure: Measure::of(options),
        }
    }

    /// Returns the live part up to which a segment is cleaned.
    fn live_share_max(&self, log: &Log) -> f64 {
        let is_share = log.geometry.reserve == Reserve::Share;
        match is_share && log.is_tight && self.wanted_bytes > 0 {
            true => LIVE_SHARE_TIGHT_MAX,
            false => LIVE_SHARE_MAX,
        }
    }
}

/// The room within the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Room {
    bytes: u64,
    lacking_bytes: u64,
    /// What a checkpoint may come to.
    checkpoint_bytes: u64,
}

/// A segment that could be cleaned.
#[derive(Debug)]
struct Candidate {
    index: usize,
    start: u64,
    bytes: u64,
    generation: u64,
    live_bytes: u64,
}

impl Candidate {
    fn live_share(&self) -> f64 {
        self.live_bytes as f64 / self.bytes as f64
    }
}

/// What is left of the work that a cleaning may do.
struct Budget {
    read_bytes: u64,
    moved_bytes: u64,
}

impl Budget {
    /// Takes a segment's work out of the budget, unless that is spent; of what is read the first may be more.
    fn allows(&mut self, segment: &Candidate, is_first: bool) -> bool {
        let fits = is_first || segment.bytes <= self.read_bytes;
        let is_allowed = fits && segment.live_bytes <= self.moved_bytes;
        if is_allowed {
            self.read_bytes = self.read_bytes.saturating_sub(segment.bytes);
            self.moved_bytes -= segment.live_bytes;
        }
        is_allowed
    }
}

impl Blocks {
    /// Cleans segments of at most `budget_bytes` together, those with the least live bytes first, until no
    /// more than [`BlocksOptions::space_amp`] is taken and there is room within that for what comes, and
    /// those at the end of a file that is longer; one is cleaned whatever the budget. What moves is encoded anew where
    /// that is shorter. Held snapshots stay as they
    /// are, and so do the segments that they need.
    ///
    /// A cleaning that moves anything is a transaction with a number of its own, and ends with a
    /// checkpoint, which cuts off what is free at the end of a file that is too long.
    ///
    /// # Errors
    /// As [`Blocks::begin`], and those of reading and writing. [`crate::Error::Limit`] if there is not even
    /// room for cleaning; nothing has happened then.
    ///
    /// # Cost
    /// No other transaction runs meanwhile. The budget is read, the live part of it decoded, encoded and
    /// written, and a checkpoint.
    pub fn clean(&self, budget_bytes: u64) -> Result<Cleaned> {
        self.clean_by(Aim {
            budget_bytes,
            is_thorough: true,
            ..Aim::of(&self.inner.options)
        })
    }

    /// Moves everything, each block encoded anew where that is shorter, and then makes the file as short as
    /// [`Blocks::shrink`] does.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// All that is live is read, decoded, encoded and written, with a checkpoint for each
    /// [`BlocksOptions::checkpoint_bytes`], by which the file may grow meanwhile.
    pub fn rewrite(&self) -> Result<Cleaned> {
        self.rewrite_with(&mut |_, _| true)
    }

    /// As [`Blocks::rewrite`]; `progress` hears how many of how many segments were moved, and says whether to go on.
    ///
    /// # Errors
    /// Those too, and [`Error::Interrupted`] if it is not to go on: what was moved by then stays where it went.
    pub fn rewrite_with(&self, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<Cleaned> {
        self.learn_from_itself()?;
        let mut rewritten = 0;
        self.with_writer(|_, writer| {
            rewritten = writer.log.current().generation;
            Ok(())
        })?;
        let total = self.live_segments(rewritten)? as u64;
        let mut report = |left: u64| match progress(total.saturating_sub(left), total) {
            true => Ok(()),
            false => Err(Error::Interrupted),
        };
        report(total)?;
        let mut sum = Cleaned::default();
        // What is broken stays where it is.
        let (mut idle, mut left) = (0, usize::MAX);
        while left > 0 && idle < IDLE_ROUNDS_MAX {
            let cleaned = self.clean_by(Aim {
                rewritten,
                ..Aim::of(&self.inner.options)
            })?;
            sum.add(&cleaned);
            if cleaned.segments == 0 {
                break;
            }
            let before = left;
            left = self.live_segments(rewritten)?;
            idle = if left < before { 0 } else { idle + 1 };
            report(left as u64)?;
        }
        sum.add(&self.shrink()?);
        Ok(sum)
    }

    /// Counts the segments up to a generation that have anything live and are not written now.
    fn live_segments(&self, generation: u64) -> Result<usize> {
        let mut count = 0;
        self.with_writer(|_, writer| {
            let log = &writer.log;
            let is_old = |index: usize| {
                let is_live = log.live[index] > 0 && !log.is_at(index);
                is_live && log.segments.get(index).generation <= generation
            };
            count = (0..log.live.len()).filter(|index| is_old(*index)).count();
            Ok(())
        })?;
        Ok(count)
    }

    /// Makes room within the file, as far as that goes, until `bytes` can be written and what is kept is left behind them: by a
    /// checkpoint if that frees any, and by cleaning.
    ///
    /// # Errors
    /// Those of reading and writing. That there is no room is none: whoever writes is told.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        let (mut best_bytes, mut idle) = (0, 0);
        loop {
            let room = self.free_for_room(bytes)?;
            if room.lacking_bytes == 0 {
                return Ok(());
            }
            // A checkpoint takes room before the next one frees what it replaces.
            idle = if room.bytes > best_bytes { 0 } else { idle + 1 };
            best_bytes = best_bytes.max(room.bytes);
            if idle == IDLE_ROUNDS_MAX {
                return self.with_writer(|_, writer| {
                    let dead = writer.log.dead_bytes(&writer.pinned);
                    writer.log.futile_bytes = Some(dead.all_bytes);
                    Ok(())
                });
            }
            let cleaned = self.clean_by(Aim {
                // The checkpoint behind it takes some.
                wanted_bytes: room.lacking_bytes + room.checkpoint_bytes,
                is_thorough: true,
                ..Aim::of(&self.inner.options)
            });
            match cleaned {
                Err(error) if is_for_room(&error) => {}
                cleaned => drop(cleaned?),
            }
        }
    }

    /// Frees what a checkpoint alone frees, if there is room for one, and returns what room there is then.
    pub(super) fn free_for_room(&self, bytes: u64) -> Result<Room> {
        let mut room = Room::default();
        self.with_writer(|inner, writer| {
            let has_dead = writer.log.dead_bytes(&writer.pinned).whole_bytes > 0;
            if has_dead || inner.shared.state().changed_bytes() > 0 {
                match inner.checkpoint(writer) {
                    Err(error) if is_for_room(&error) => {}
                    written => written?,
                }
            }
            writer.log.recount();
            let state = inner.shared.state();
            room.bytes = writer.log.room_inside();
            room.checkpoint_bytes = writer.kept_bytes(&state, Leaves::Frees);
            let kept_bytes = writer.kept_bytes(&state, Leaves::All);
            room.lacking_bytes = (kept_bytes + bytes).saturating_sub(room.bytes);
            writer.log.futile_bytes = None;
            Ok(())
        })?;
        Ok(room)
    }

    pub(super) fn clean_by(&self, aim: Aim) -> Result<Cleaned> {
        let mut transaction = self.begin_within()?;
        transaction.clean();
        let plan = transaction.plan(aim);
        let recoding = match aim.recodes {
            true => Recoding::Now,
            false => Recoding::Never,
        };
        transaction.carry_out(&plan, &recoding)
    }

    /// Cleans if that is due: little room is left, in the file where the host has none, or the file is too long, and enough was written since the
    /// last checkpoint to pay for one. What moves keeps its encoding: where blocks are written over, most of what
    /// moves is soon dead, and commits wait. To be called behind every transaction, or every few.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// A look at the list of segments; if cleaning is due, that of reading a few times what was written since the
    /// last checkpoint.
    pub fn tidy(&self) -> Result<Cleaned> {
        self.tidy_within(u64::MAX)
    }

    /// As [`Blocks::tidy`], reading at most so much, or one segment. What is left to do is due again behind the next transactions.
    ///
    /// # Errors
    /// As [`Blocks::tidy`].
    pub fn tidy_within(&self, bytes_max: u64) -> Result<Cleaned> {
        if let Some(room_bytes) = self.room_due() {
            self.make_room(room_bytes)?;
        }
        let Some(budget_bytes) = self.cleaning_budget() else {
            return Ok(Cleaned::default());
        };
        let cleaned = self.clean_by(Aim {
            budget_bytes: budget_bytes.min(bytes_max),
            recodes: false,
            ..Aim::of(&self.inner.options)
        });
        match cleaned {
            // Whoever writes is told.
            Err(error) if is_for_room(&error) => Ok(Cleaned::default()),
            cleaned => cleaned,
        }
    }

    /// Returns whether [`Blocks::tidy`] would do anything. Held snapshots keep what it frees from use.
    pub fn is_cleaning_due(&self) -> bool {
        self.room_due().is_some() || self.cleaning_budget().is_some()
    }

    /// Returns what room is to be made in the file beside what is kept, where the host has none.
    fn room_due(&self) -> Option<u64> {
        let state = self.inner.shared.state();
        match &*self.inner.lock_turn() {
            Turn::Idle(writer) if writer.is_room_due(&state) => {
                Some(writer.log.next_segment_bytes())
            }
            _ => None,
        }
    }

    fn cleaning_budget(&self) -> Option<u64> {
        match &*self.inner.lock_turn() {
            Turn::Idle(writer) => {
                let log = &writer.log;
                let goal = log.goal(&Measure::of(&self.inner.options));
                let written_bytes = log.appended_bytes.max(goal.segment_bytes);
                (log.is_cleaning_due(&goal)).then_some(BUDGET_FACTOR * written_bytes)
            }
            // Who has not written since opening the store has nothing to pay for.
            _ => None,
        }
    }

    /// Cleans until the file is as short as [`BlocksOptions::space_amp`] asks for, or gets no shorter. A file that is so
    /// already is left as it is, and so is one that somebody reads: what is freed could not be given back, and what is
    /// moved would make it longer.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// What lies behind that length is read, encoded anew where that is shorter, and written, with a checkpoint for each
    /// [`BlocksOptions::checkpoint_bytes`].
    pub fn shrink(&self) -> Result<Cleaned> {
        self.shrink_within(u64::MAX, true)
    }

    /// As [`Blocks::shrink`], by as much as the transactions since the last cleaning freed pays for, and at least
    /// [`BlocksOptions::checkpoint_bytes`], but reading at most `bytes_max`; what moves keeps its encoding. To be called behind every transaction where what
    /// is freed is to go back soon: a file that got longer than it is to be, since somebody read long or much was deleted,
    /// gets shorter by a step with each.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// As [`Blocks::tidy`].
    pub fn give_back(&self, bytes_max: u64) -> Result<Cleaned> {
        match self.giving_back_budget() {
            Some(budget_bytes) => self.shrink_within(budget_bytes.min(bytes_max), false),
            None => Ok(Cleaned::default()),
        }
    }

    /// As [`Blocks::give_back`], for who does it again and again until [`Blocks::can_shrink`] says no, or in vain.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    pub fn shrink_by_a_step(&self, bytes_max: u64) -> Result<Cleaned> {
        let step_bytes = self.inner.options.checkpoint_bytes;
        self.shrink_within(step_bytes.min(bytes_max), false)
    }

    /// Returns what a cleaning may read that somebody waits for who did not ask for it: two steps of
    /// [`BlocksOptions::checkpoint_bytes`], or as much as comes to a tenth of the work of this process so far, by the bytes that it
    /// encoded and decoded, less what such cleanings have read already.
    pub fn cleaning_allowance(&self) -> u64 {
        let share_bytes = self.inner.file.work.earned_bytes();
        share_bytes.max(self.inner.options.checkpoint_bytes.saturating_mul(2))
    }

    /// Notes what such a cleaning read.
    pub fn note_unasked(&self, cleaned: &Cleaned) {
        self.inner.file.work.spend(cleaned.read_bytes);
    }

    /// Returns whether [`Blocks::give_back`] would try anything were there no readers.
    pub fn is_giving_back_due(&self) -> bool {
        self.giving_back_budget().is_some()
    }

    fn giving_back_budget(&self) -> Option<u64> {
        match &*self.inner.lock_turn() {
            Turn::Idle(writer) => {
                let log = &writer.log;
                let paid_bytes = BUDGET_FACTOR.saturating_mul(log.freed_bytes);
                let is_due = log.is_giving_back_due(&log.goal(&Measure::of(&self.inner.options)));
                is_due.then_some(paid_bytes.max(self.inner.options.checkpoint_bytes))
            }
            _ => None,
        }
    }

    /// Shrinks until so much was read.
    fn shrink_within(&self, budget_bytes: u64, recodes: bool) -> Result<Cleaned> {
        let mut sum = Cleaned::default();
        let (mut idle, mut least_bytes) = (0, self.inner.shared.state().segments.end(0));
        while idle < IDLE_ROUNDS_MAX && sum.read_bytes < budget_bytes && self.can_shrink() {
            let left_bytes = budget_bytes - sum.read_bytes;
            let cleaned = self.clean_by(Aim {
                budget_bytes: left_bytes.min(self.inner.options.checkpoint_bytes),
                recodes,
                ..Aim::of(&self.inner.options)
            });
            // What a cleaning freed is cut off behind the next one. A length that comes and goes is none that got shorter.
            let file_bytes = self.inner.shared.state().segments.end(0);
            idle = if file_bytes < least_bytes {
                0
            } else {
                idle + 1
            };
            least_bytes = least_bytes.min(file_bytes);
            if idle == IDLE_ROUNDS_MAX || cleaned.is_err() {
                self.note_least_length();
            }
            sum.add(&cleaned?);
        }
        Ok(sum)
    }

    /// Keeps the next transactions from trying in vain.
    fn note_least_length(&self) {
        if let Turn::Idle(writer) = &mut *self.inner.lock_turn() {
            writer.log.least_bytes = writer.log.file_bytes();
        }
    }

    /// Returns whether [`Blocks::shrink`] would do anything. Nothing is written: whoever writes first after opening a store
    /// makes its file longer by that.
    pub fn can_shrink(&self) -> bool {
        self.can_shrink_to(&Measure::of(&self.inner.options))
    }

    pub(super) fn can_shrink_to(&self, measure: &Measure) -> bool {
        if self.inner.shared.is_read() {
            return false;
        }
        match &*self.inner.lock_turn() {
            Turn::Idle(writer) => writer.log.is_too_long(&writer.log.goal(measure)),
            Turn::Untouched(recovery, _) => {
                let least_bytes = self.inner.options.segment_bytes_min.into();
                let goal = Goal::of(recovery.live.iter().sum(), measure, least_bytes);
                goal.is_passed_by(recovery.state.segments.end(SEGMENTS_START))
            }
            // Who cleans waits, or is told why it cannot.
            Turn::Behind | Turn::Taken | Turn::Refused => true,
        }
    }
}

impl Transaction {
    /// Has the room that is kept for cleaning.
    pub(super) fn clean(&mut self) {
        self.leaves = Leaves::Checkpoint;
        self.writer().log.recount();
    }

    /// Chooses the segments to be cleaned.
    fn plan(&mut self, aim: Aim) -> Plan {
        let state = self.state.clone();
        let writer = self.writer();
        let log = &writer.log;
        let goal = log.goal(&aim.measure);
        let present_bytes = log.room_below(&goal);
        // Going on at lower places takes room that may not be there.
        let is_too_long = !log.is_tight && log.is_too_long(&goal);
        let mut plan = Plan {
            tail: is_too_long.then_some(goal.file_bytes),
            live_share_max: aim.live_share_max(log),
            ..Plan::of(Vec::new(), aim.measure)
        };
        let mut room_bytes = log.room_without_readers(&goal);
        let mut segments = Vec::new();
        for (index, used) in log.uses.iter().enumerate() {
            let Segment {
                start,
                bytes,
                generation,
            } = log.segments.get(index);
            match log.live[index] {
                0 if *used != Use::Held => plan.has_dead |= plan.tail.is_some_and(|at| start >= at),
                _ if *used != Use::Held || log.is_at(index) => {}
                0 if writer.pinned.contains(&index) => {}
                0 => {
                    plan.has_dead = true;
                    room_bytes += if start < goal.file_bytes { bytes } else { 0 };
                }
                live_bytes => segments.push(Candidate {
                    index,
                    start,
                    bytes,
                    generation,
                    live_bytes,
                }),
            }
        }
        // What moves needs room before it frees any, and of the last room some is for what does not fit at the ends of
        // segments.
        let kept_bytes = writer.kept_bytes(&state, Leaves::Checkpoint);
        let most_bytes = log.room_bytes().saturating_sub(kept_bytes) * 3 / 4;
        let within_bytes = present_bytes.max(2 * goal.segment_bytes);
        let mut budget = Budget {
            read_bytes: aim.budget_bytes,
            moved_bytes: match aim.is_thorough || aim.rewritten > 0 {
                true => most_bytes,
                false => most_bytes.min(within_bytes),
            },
        };
        let live_bytes: u64 = segments.iter().map(|segment| segment.live_bytes).sum();
        let held_bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        let allowed_bytes = (live_bytes as f64 * aim.measure.space_amp()) as u64;
        let excess_bytes = match aim.is_thorough {
            true => held_bytes.saturating_sub(allowed_bytes),
            false => 0,
        };
        // Where writers take turns each begins a segment, and the ones before are nearly empty: several at a time.
        let wanted_bytes = goal.room_bytes + TURNS_AHEAD * log.given_up_bytes;
        let lacking_bytes = wanted_bytes.saturating_sub(room_bytes);
        if aim.rewritten > 0 {
            plan.take_old(&segments, aim.rewritten, &mut budget);
        } else {
            let wanted_bytes = lacking_bytes.max(excess_bytes).max(aim.wanted_bytes);
            plan.take_for_room(segments, wanted_bytes, &mut budget);
        }
        plan
    }

    /// Moves what is live in the segments of a plan, and frees them by a checkpoint.
    pub(super) fn carry_out(&mut self, plan: &Plan, recoding: &Recoding<'_>) -> Result<Cleaned> {
        let mut cleaned = Cleaned::default();
        if plan.victims.is_empty() && !plan.has_dead {
            return Ok(cleaned);
        }
        if let Some(from) = plan.tail {
            self.writer().log.leave_tail(from)?;
        }
        for victim in &plan.victims {
            let segment = self.state.segments.get(*victim);
            match self.keep_room_for(*victim) {
                // What could be moved frees some.
                Err(error) if is_for_room(&error) && (plan.has_dead || cleaned.segments > 0) => {
                    break;
                }
                kept => kept?,
            }
            cleaned.segments += 1;
            cleaned.read_bytes += segment.bytes;
            cleaned.moved_bytes += self.move_segment(segment, recoding)?;
        }
        if cleaned.segments > 0 {
            self.write_commit(false, &[])?;
            self.show()?;
        } else if !plan.has_dead {
            return Ok(cleaned);
        }
        let inner = Arc::clone(&self.inner);
        let writer = self.writer();
        inner.checkpoint_for(writer, &plan.measure)?;
        (writer.log.given_up_bytes, writer.log.freed_bytes) = (0, 0);
        cleaned.freed_segments = writer.freed_segments;
        Ok(cleaned)
    }

    /// Sees to it that there is room for what is live in a segment and for a checkpoint behind it.
    fn keep_room_for(&mut self, segment: usize) -> Result<()> {
        let live_bytes = self.writer().log.live[segment];
        // Each frame may have its entry in a chunk of its own that did not change yet, of twice its length.
        let chunks_bytes = self.state.unchanged_bytes().min(3 * live_bytes);
        let needed_bytes = live_bytes + live_bytes / 4 + chunks_bytes;
        // What is left at a segment's end is lost for one record, not for all.
        let longest_bytes = self.writer().payload.block_bytes_max;
        let record_bytes = needed_bytes.min(longest_bytes.into());
        self.keep_room(record_bytes, needed_bytes - record_bytes)
    }

    /// Moves what is live in a segment; returns how many bytes were written again.
    fn move_segment(&mut self, segment: Segment, recoding: &Recoding<'_>) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        let Some(mut scanner) = scanner_of(&inner.file, segment)? else {
            // Its records cannot be followed, and stay.
            return Ok(0);
        };
        let mut moved_bytes = 0;
        while let Some(found) = scanner.next()? {
            // A gap is the end, or what is behind it: what is live there stays, and the segment with it.
            if let Found::Record(record) = found {
                moved_bytes += self.move_record(&record, recoding)?;
            }
        }
        Ok(moved_bytes)
    }

    /// Moves a record if it is live; returns how many bytes were written now.
    fn move_record(&mut self, record: &Record<'_>, recoding: &Recoding<'_>) -> Result<u64> {
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
                let label = record.label;
                let recoding = match self.state.dictionaries.is_superseded(label.dictionary) {
                    // What was written with it is all that keeps it.
                    true => &Recoding::Now,
                    false => recoding,
                };
                let new = self.move_frame(record, id, recoding)?;
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
            KIND_DICTIONARY if has_prefix => {
                let id = u32_at(record.body, 0);
                self.state.dictionaries.move_from(id, place);
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

    /// Writes a block again, encoded anew if it is to be; returns where.
    fn move_frame(
        &mut self,
        record: &Record<'_>,
        id: u32,
        recoding: &Recoding<'_>,
    ) -> Result<Place> {
        let inner = Arc::clone(&self.inner);
        let dictionaries = self.state.dictionaries.clone();
        inner.file.with_workspace(|workspace| {
            let dense = match recoding {
                Recoding::Now => {
                    encode_densely(record, id, (&inner.coding, &dictionaries), workspace)
                }
                Recoding::Ahead(encoded) => match encoded.get(&record.address) {
                    Some((decoder, bytes)) if dictionaries.has(decoder.dictionary) => {
                        workspace.bytes.clear();
                        workspace.bytes.extend_from_slice(bytes);
                        Dense::Encoded(*decoder, bytes.len())
                    }
                    _ => Dense::AsItIs,
                },
                Recoding::Never => Dense::AsItIs,
            };
            let label = |decoder: Decoder| Label {
                kind: KIND_MOVE,
                codec: decoder.codec,
                filter: decoder.filter,
                dictionary: decoder.dictionary,
                ..record.label
            };
            let (prefix, stored) = record.body.split_at(FRAME_PREFIX_BYTES);
            match dense {
                Dense::Encoded(decoder, length) => {
                    self.append(label(decoder), &[prefix, &workspace.bytes[..length]])
                }
                Dense::Raw => self.append(label(Decoder::STORE), &[prefix, &workspace.block]),
                Dense::AsItIs => {
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

/// Returns what reads the records of a segment; `None` if its head is broken.
pub(super) fn scanner_of(file: &StoreFile, segment: Segment) -> Result<Option<Scanner<'_>>> {
    let log_id = file.log_id;
    let mut head = [0; 2 * HEADER_BYTES];
    file.file.read_exact_at(&mut head, segment.start)?;
    let region = Region::new(log_id, segment.generation, segment.range());
    let first = parse_head(&head, log_id, segment.range())
        .and_then(|_| parse(&head, &region, segment.start));
    let Ok(Record { sequence, .. }) = first else {
        return Ok(None);
    };
    let start = segment.start;
    Ok(Some(Scanner::new(
        &*file.file,
        region,
        start,
        sequence,
        BUFFER_BYTES_MAX,
    )))
}

/// Whether blocks that move are encoded anew where that is shorter.
pub(super) enum Recoding<'e> {
    Never,
    Now,
    /// They were, before their transaction.
    Ahead(&'e Encoded),
}

/// What becomes of a block that moves.
pub(super) enum Dense {
    /// It lies in the workspace, so long.
    Encoded(Decoder, usize),
    /// It lies in the workspace as it is.
    Raw,
    AsItIs,
}

/// Encodes the block of a frame by the denser method: it stays as it is if that is not worth it, or if the block
/// cannot be decoded: then it is no worse elsewhere. What a superseded dictionary is needed for does not stay.
pub(super) fn encode_densely(
    record: &Record<'_>,
    id: u32,
    (coding, dictionaries): (&Coding, &KeptDictionaries),
    workspace: &mut Workspace,
) -> Dense {
    let raw_bytes = record.label.raw_bytes;
    if raw_bytes > BLOCK_BYTES_MAX {
        return Dense::AsItIs;
    }
    let mut block = std::mem::take(&mut workspace.block);
    block.resize(raw_bytes as usize, 0);
    let with = (dictionaries, &mut workspace.decompressor);
    let decoded = decode_frame(record, id, with, &mut block);
    let is_superseded = dictionaries.is_superseded(record.label.dictionary);
    let present_bytes = match is_superseded {
        true => block.len(),
        false => record.body.len() - FRAME_PREFIX_BYTES,
    };
    let encoded = decoded.and_then(|()| {
        let subject = Subject {
            block: &block,
            moment: Moment::Moved,
            dictionaries,
            hash: record.sequence,
            limit: present_bytes.saturating_sub(ALIGNMENT_BYTES),
        };
        coding.encode(&subject, &mut Hidden::NONE.clone(), workspace)
    });
    workspace.block = block;
    match encoded {
        Ok(Some((decoder, length))) => Dense::Encoded(decoder, length),
        Ok(None) if is_superseded => Dense::Raw,
        Ok(None) | Err(_) => Dense::AsItIs,
    }
}
