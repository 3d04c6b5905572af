//! Cleaning. Live records in mostly dead segments are written again at the end of the log, denser than before if a
//! caller asked for it. So the segments become free.
//!
//! One entry of the frame table moves a frame, whoever refers to it. Map nodes and chunks of the table are marked as
//! changed: the checkpoint behind the moves writes them elsewhere.

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

/// A segment is left alone when more than this part of it is live, whatever the options ask for. At that share ten
/// would have to be written to free one.
const LIVE_SHARE_MAX: f64 = 0.9;
/// The same of a file with a share as its reserve, where the host has no room. Freeing some of it is worth the work of
/// thirty times as much. A disk has a reserve that lasts until a segment is emptier.
const LIVE_SHARE_TIGHT_MAX: f64 = 31.0 / 32.0;
/// A due cleaning reads at most this many times the bytes written since the last checkpoint: enough for segments that
/// are four fifths live.
const BUDGET_FACTOR: u64 = 6;
/// Where writers alternate, a cleaning makes room for so many turns.
const TURNS_AHEAD: u64 = 4;
/// Shrinking ends when this many cleanings in a row did not make the file shorter.
const IDLE_ROUNDS_MAX: usize = 4;
/// The same of compacting, which has moved everything. Two cleanings lead the log away from the file's end, two more free
/// the places of its checkpoints, and the next one cuts.
const IDLE_ROUNDS_COMPACTING: usize = 8;

/// The result of a cleaning.
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
    /// Adds the result of another cleaning.
    pub fn add(&mut self, other: &Cleaned) {
        self.segments += other.segments;
        self.read_bytes += other.read_bytes;
        self.moved_bytes += other.moved_bytes;
        self.freed_segments += other.freed_segments;
    }
}

/// The segments to clean.
#[derive(Debug)]
pub(super) struct Plan {
    victims: Vec<usize>,
    /// Whether a checkpoint alone frees or cuts something.
    has_dead: bool,
    /// The offset from which on the file is too long.
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

    /// Takes the segments that make so much room. Of a file that is too long the end moves, whether dead or not, and
    /// needs room before it.
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

/// The purpose of a cleaning.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) budget_bytes: u64,
    /// Bytes that must become free, beyond the file's own goal.
    pub(super) wanted_bytes: u64,
    /// Whether the segments in use must keep to the file's due length by themselves, room or not.
    pub(super) is_thorough: bool,
    /// Whether blocks are encoded again where that is shorter.
    pub(super) recodes: bool,
    /// All segments up to this generation are moved, dead or not; 0 for none.
    pub(super) rewritten: u64,
    pub(super) measure: Measure,
}

impl Aim {
    /// To read the log that makes a checkpoint due, and encode its blocks again.
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

    /// Returns the greatest live part of a segment to clean.
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
    /// The most bytes of a checkpoint.
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

/// The rest of the work that a cleaning may do.
struct Budget {
    read_bytes: u64,
    moved_bytes: u64,
}

impl Budget {
    /// Takes a segment's work out of the budget, unless that is spent. The first segment read may exceed it.
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
    /// Cleans segments of at most `budget_bytes` together, those with the least live bytes first. It goes on until the
    /// file takes no more than [`BlocksOptions::space_amp`] and has room within that for new writes. It also cleans the
    /// segments at the end of a longer file. One is cleaned with any budget. Moved blocks are encoded again where that
    /// is shorter. Held snapshots stay as they are, and so do the segments that they need.
    ///
    /// A cleaning that moves anything is a transaction with a number of its own. It ends with a checkpoint, which cuts
    /// off the free end of a file that is too long.
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

    /// Moves everything, each block encoded again where that is shorter. Then it makes the file as short as
    /// [`Blocks::shrink`] does.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// All live blocks are read, decoded, encoded and written, with a checkpoint for each
    /// [`BlocksOptions::checkpoint_bytes`]. The file may grow by that meanwhile.
    pub fn rewrite(&self) -> Result<Cleaned> {
        self.rewrite_with(&mut |_, _| true)
    }

    /// As [`Blocks::rewrite`]; `progress` hears how many of how many segments were moved, and says whether to go on.
    ///
    /// # Errors
    /// Those too, and [`Error::Interrupted`] if it is not to go on. Blocks moved by then stay where they went.
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
        // Broken blocks stay where they are.
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

    /// Makes room within the file, as far as possible, until `bytes` can be written with the reserve left behind them.
    /// It uses a checkpoint if that frees any, and cleaning.
    ///
    /// # Errors
    /// Those of reading and writing. A lack of room is none: the next write reports it.
    pub fn make_room(&self, bytes: u64) -> Result<()> {
        let (mut best_bytes, mut idle) = (0, 0);
        loop {
            let room = self.free_for_room(bytes)?;
            if room.lacking_bytes == 0 {
                return Ok(());
            }
            // A checkpoint takes room before the next one frees the records that it replaces.
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

    /// Frees the room that a checkpoint alone frees, if there is room for one. Returns the room there is then.
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

    /// Cleans if that is due. It is due once enough was written since the last checkpoint to pay for one, in two cases.
    /// The file has little room and the host has none, or the file is too long. Moved blocks keep their encoding: where
    /// blocks are overwritten, most moved ones are soon dead, and commits wait. Call it behind every transaction, or
    /// every few.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// A look at the list of segments. A due cleaning reads a few times the bytes written since the last checkpoint.
    pub fn tidy(&self) -> Result<Cleaned> {
        self.tidy_within(u64::MAX)
    }

    /// As [`Blocks::tidy`], reading at most so much, or one segment. The remaining work is due again behind the next
    /// transactions.
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
            // The next write reports it.
            Err(error) if is_for_room(&error) => Ok(Cleaned::default()),
            cleaned => cleaned,
        }
    }

    /// Returns whether [`Blocks::tidy`] would do anything. Held snapshots keep the segments that it frees from use.
    pub fn is_cleaning_due(&self) -> bool {
        self.room_due().is_some() || self.cleaning_budget().is_some()
    }

    /// Returns the room to make in the file beside its reserve, where the host has none.
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
            // A process that has not written since the opening has nothing to pay for.
            _ => None,
        }
    }

    /// Cleans until the file is as short as [`BlocksOptions::space_amp`] asks for, or gets no shorter. A file that is
    /// short enough is left as it is. So is one with readers: its freed segments could not be given back, and moves
    /// would make it longer.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    ///
    /// # Cost
    /// Blocks behind that length are read, encoded again where that is shorter, and written. A checkpoint comes for
    /// each [`BlocksOptions::checkpoint_bytes`].
    pub fn shrink(&self) -> Result<Cleaned> {
        self.shrink_within(u64::MAX, true)
    }

    /// As [`Blocks::shrink`], but bounded. The bytes freed by transactions since the last cleaning pay for its reading,
    /// with at least [`BlocksOptions::checkpoint_bytes`] and at most `bytes_max`. Moved blocks keep their encoding.
    /// Call it behind every transaction where freed bytes are to go back soon. A file that is longer than it should be,
    /// after a long reader or a large delete, gets shorter by a step with each.
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

    /// As [`Blocks::give_back`], for callers that repeat it until [`Blocks::can_shrink`] says no, or a step was in
    /// vain.
    ///
    /// # Errors
    /// As [`Blocks::clean`].
    pub fn shrink_by_a_step(&self, bytes_max: u64) -> Result<Cleaned> {
        let step_bytes = self.inner.options.checkpoint_bytes;
        self.shrink_within(step_bytes.min(bytes_max), false)
    }

    /// Returns the bytes that an unasked cleaning may read while a caller waits. They are two steps of
    /// [`BlocksOptions::checkpoint_bytes`], or a tenth of this process's work so far if that is more. Work counts by
    /// the bytes encoded and decoded, less the bytes that such cleanings have read already.
    pub fn cleaning_allowance(&self) -> u64 {
        let share_bytes = self.inner.file.work.earned_bytes();
        share_bytes.max(self.inner.options.checkpoint_bytes.saturating_mul(2))
    }

    /// Notes the bytes that such a cleaning read.
    pub fn note_unasked(&self, cleaned: &Cleaned) {
        self.inner.file.work.spend(cleaned.read_bytes);
    }

    /// Returns whether [`Blocks::give_back`] would try anything if there were no readers.
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

    /// Shrinks until it has read so many bytes.
    fn shrink_within(&self, budget_bytes: u64, recodes: bool) -> Result<Cleaned> {
        let mut sum = Cleaned::default();
        let (mut idle, mut least_bytes) = (0, self.inner.shared.state().segments.end(0));
        let idle_max = match recodes {
            true => IDLE_ROUNDS_COMPACTING,
            false => IDLE_ROUNDS_MAX,
        };
        while idle < idle_max && sum.read_bytes < budget_bytes && self.can_shrink() {
            let left_bytes = budget_bytes - sum.read_bytes;
            let cleaned = self.clean_by(Aim {
                budget_bytes: left_bytes.min(self.inner.options.checkpoint_bytes),
                recodes,
                ..Aim::of(&self.inner.options)
            });
            // Segments that a cleaning freed are cut off behind the next one. A length that comes and goes did not get
            // shorter.
            let file_bytes = self.inner.shared.state().segments.end(0);
            idle = if file_bytes < least_bytes {
                0
            } else {
                idle + 1
            };
            least_bytes = least_bytes.min(file_bytes);
            if idle == idle_max || cleaned.is_err() {
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

    /// Returns whether [`Blocks::shrink`] would do anything. Nothing is written: the first write after an opening makes
    /// the file longer by that.
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
            // A cleaning caller waits, or gets the error.
            Turn::Behind | Turn::Taken | Turn::Refused => true,
        }
    }
}

impl Transaction {
    /// Lets the transaction use the room that is kept for cleaning.
    pub(super) fn clean(&mut self) {
        self.leaves = Leaves::Checkpoint;
        self.writer().log.recount();
    }

    /// Chooses the segments to clean.
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
        // Moves need room before they free any. Some of the last room is lost at the ends of segments.
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
        // Where writers alternate, each begins a segment, and the ones before are nearly empty. So several are cleaned
        // at a time.
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

    /// Moves the live records in the segments of a plan, and frees them by a checkpoint.
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
                // The records that could be moved free some.
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

    /// Ensures room for the live records of a segment and for a checkpoint behind it.
    fn keep_room_for(&mut self, segment: usize) -> Result<()> {
        let live_bytes = self.writer().log.live[segment];
        // Each frame may have its entry in a chunk of its own that did not change yet. That takes twice the chunk's
        // length.
        let chunks_bytes = self.state.unchanged_bytes().min(3 * live_bytes);
        let needed_bytes = live_bytes + live_bytes / 4 + chunks_bytes;
        // The rest of a segment's end is lost for one record, not for all.
        let longest_bytes = self.writer().payload.block_bytes_max;
        let record_bytes = needed_bytes.min(longest_bytes.into());
        self.keep_room(record_bytes, needed_bytes - record_bytes)
    }

    /// Moves the live records of a segment. Returns how many bytes were written again.
    fn move_segment(&mut self, segment: Segment, recoding: &Recoding<'_>) -> Result<u64> {
        let inner = Arc::clone(&self.inner);
        let Some(mut scanner) = scanner_of(&inner.file, segment)? else {
            // Its records cannot be followed, and stay.
            return Ok(0);
        };
        let mut moved_bytes = 0;
        while let Some(found) = scanner.next()? {
            // A gap is the end, or has records behind it. Live ones there stay, and the segment with them.
            if let Found::Record(record) = found {
                moved_bytes += self.move_record(&record, recoding)?;
            }
        }
        Ok(moved_bytes)
    }

    /// Moves a record if it is live. Returns the bytes written now.
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
                    // Only blocks written with it keep it.
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

    /// Writes a block again, encoded again if it is to be. Returns its place.
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

/// Returns a reader of the records of a segment; `None` if its head is broken.
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

/// Whether moved blocks are encoded again where that is shorter.
pub(super) enum Recoding<'e> {
    Never,
    Now,
    /// They were encoded before their transaction.
    Ahead(&'e Encoded),
}

/// The fate of a block that moves.
pub(super) enum Dense {
    /// It lies in the workspace, encoded, with this length.
    Encoded(Decoder, usize),
    /// It lies in the workspace as it is.
    Raw,
    AsItIs,
}

/// Encodes the block of a frame by the denser method. It stays as it is if that is not worth it, or if it cannot be
/// decoded: it is no worse elsewhere. A block that needs a superseded dictionary does not stay.
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
