//! The right length of a store's file: its live bytes, a share of dead ones, and room for the next writes.
//!
//! A cleaned log needs room for three things: writes until the next cleaning, moves before they free anything, and
//! segments that are begun or kept in reserve. All of it is part of the length that [`BlocksOptions::space_amp`] asks
//! for. So the file keeps to it, and not only the segments in use.

use super::layout::SEGMENTS_START;
use super::log::{Log, Use, is_free};
use super::{BlocksOptions, Reserve, SEGMENT_BYTES_MAX, SEGMENT_SHARE};

/// The file's goal is below the option's limit by this part, which is for the writes between.
const MARGIN_SHARE: u64 = 32;
/// Cleanings are this part of the file apart. More frequent ones need less room and more checkpoints.
const INTERVAL_SHARE: u64 = 32;

/// Cleanings of a database are at least so far apart, up to half of its live bytes: some 50 commits of one row, each
/// with its own sync.
const INTERVAL_BYTES_MIN: u64 = 64 << 10;

/// A file that exceeds its due length by this part is much too long. Cleaning may hold as much beside it.
const MUCH_SHARE: u64 = 4;

/// Segments of a packed file may be empty by this part. Blocks written in one go leave only the ends of records empty.
const PACKED_SHARE: u64 = 64;

/// The inputs of a file's due length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measure {
    options: BlocksOptions,
    /// The bytes free in it beside that.
    left_bytes: u64,
}

impl Measure {
    pub(super) fn of(options: &BlocksOptions) -> Measure {
        Measure {
            options: *options,
            left_bytes: 0,
        }
    }

    /// Of a file that is as short as full segments get it, with `left_bytes` more left free.
    pub(super) fn packed(options: &BlocksOptions, left_bytes: u64) -> Measure {
        Measure {
            options: BlocksOptions {
                space_amp: 0.0,
                ..*options
            },
            left_bytes,
        }
    }

    /// Returns the most bytes of segments in use, as a multiple of the live bytes.
    pub(super) fn space_amp(&self) -> f64 {
        self.options.space_amp
    }
}

/// The goal of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Goal {
    /// The length at which it is neither cleaned for its length nor cut.
    pub(super) file_bytes: u64,
    /// Bytes written between two cleanings.
    pub(super) interval_bytes: u64,
    /// With less room than this cleaning is due.
    pub(super) room_bytes_min: u64,
    /// The room that a cleaning makes.
    pub(super) room_bytes: u64,
    /// The length of a segment in a file of that length.
    pub(super) segment_bytes: u64,
}

impl Goal {
    /// Returns the goal for so many live bytes, in segments of such a length at least.
    pub(super) fn of(live_bytes: u64, measure: &Measure, segment_bytes_min: u64) -> Goal {
        let options = &measure.options;
        let allowed_bytes = (live_bytes as f64 * options.space_amp.max(1.0)) as u64;
        let segment_bytes = segment_bytes(allowed_bytes, segment_bytes_min);
        let most = (options.checkpoint_bytes / 2).max(segment_bytes);
        let is_packed = options.space_amp < 1.0;
        let least_bytes = match options.reserve {
            // A disk has room for the next segments alone once its host is full.
            Reserve::All => segment_bytes,
            // The segments of a small file are short, and a cleaning has its syncs even if it frees little.
            Reserve::Share => segment_bytes.max((live_bytes / 2).min(INTERVAL_BYTES_MIN)),
        };
        let interval_bytes = match is_packed {
            true => segment_bytes,
            false => (allowed_bytes / INTERVAL_SHARE).max(least_bytes).min(most),
        };
        // Two segments are kept for cleaning, and as many bytes as were written may have to move.
        let room_bytes_min = 2 * segment_bytes + interval_bytes;
        let room_bytes = room_bytes_min + interval_bytes;
        // Where the option asks for less than that takes, the segments would have to be full. A packed file keeps no
        // room but in the begun segment and the one behind it.
        let least_bytes = match is_packed {
            true => live_bytes + live_bytes / PACKED_SHARE + 2 * segment_bytes,
            false => live_bytes + live_bytes / 8 + room_bytes + segment_bytes,
        };
        let file_bytes = (allowed_bytes - allowed_bytes / MARGIN_SHARE).max(least_bytes);
        Goal {
            file_bytes: file_bytes + measure.left_bytes + SEGMENTS_START,
            interval_bytes,
            room_bytes_min,
            room_bytes,
            segment_bytes,
        }
    }

    /// Returns whether a file of this length exceeds its goal by more than its usual variation.
    pub(super) fn is_passed_by(&self, file_bytes: u64) -> bool {
        let slack_bytes = (self.file_bytes / MARGIN_SHARE).max(self.segment_bytes);
        file_bytes > self.file_bytes + slack_bytes
    }
}

/// Returns the length of a new segment in a file of `file_bytes`.
pub(super) fn segment_bytes(file_bytes: u64, least: u64) -> u64 {
    let wanted = (file_bytes / SEGMENT_SHARE).min(SEGMENT_BYTES_MAX);
    (wanted / least * least).max(least)
}

impl Log {
    /// Returns the goal for the present live bytes.
    pub(super) fn goal(&self, measure: &Measure) -> Goal {
        self.goal_of(self.live.iter().sum(), measure)
    }

    /// Returns the goal for so many live bytes.
    pub(super) fn goal_of(&self, live_bytes: u64, measure: &Measure) -> Goal {
        Goal::of(live_bytes, measure, self.geometry.segment_bytes_min)
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.segments.end(SEGMENTS_START)
    }

    /// Returns the room for new writes: the bytes free for all readers, and those by which the file may still grow.
    pub(super) fn room_below(&self, goal: &Goal) -> u64 {
        self.room_at(goal, self.horizon())
    }

    /// Returns the room as it would be without readers. Segments that only they keep from use come back by themselves.
    /// Cleaning more meanwhile would lengthen the file.
    pub(super) fn room_without_readers(&self, goal: &Goal) -> u64 {
        self.room_at(goal, u64::MAX)
    }

    fn room_at(&self, goal: &Goal, horizon: u64) -> u64 {
        let listed = self.segments.iter().zip(&self.uses);
        let free = listed
            .filter(|(segment, used)| segment.start < goal.file_bytes && is_free(used, horizon));
        let free = free.filter(|(segment, _)| self.is_long_enough(segment));
        let free_bytes: u64 = free.map(|(segment, _)| segment.bytes).sum();
        free_bytes + goal.file_bytes.saturating_sub(self.file_bytes())
    }

    /// Returns whether cleaning is due, once the written bytes are worth a checkpoint.
    pub(super) fn is_cleaning_due(&self, goal: &Goal) -> bool {
        let changed_bytes = self.appended_bytes.max(self.died_bytes);
        // A turn gives up a segment, however short.
        if changed_bytes < goal.interval_bytes / 2 && self.given_up_bytes == 0 {
            return false;
        }
        // Blocks behind the goal need room before it to move to.
        let lacks_room = self.room_without_readers(goal) < goal.room_bytes_min;
        lacks_room || (self.is_too_long(goal) && self.room_below(goal) >= goal.room_bytes_min)
    }

    /// Returns whether giving the end of the file back is worth checkpoints. It is once as much was written or freed as
    /// for a cleaning, or where the end is long, unless that was tried at this length.
    pub(super) fn is_giving_back_due(&self, goal: &Goal) -> bool {
        let has_written = self.appended_bytes + self.freed_bytes >= goal.interval_bytes / 2;
        let file_bytes = self.file_bytes();
        let excess_bytes = file_bytes.saturating_sub(goal.file_bytes);
        let is_much = excess_bytes > goal.file_bytes / MUCH_SHARE && file_bytes != self.least_bytes;
        // Where writers take turns each begins a segment. It leaves the length to the cleaning that is due by itself.
        let is_turn = self.given_up_bytes > 0;
        self.is_too_long(goal) && (has_written || (is_much && !is_turn))
    }

    /// Returns whether the file exceeds its goal by more than its usual variation.
    pub(super) fn is_too_long(&self, goal: &Goal) -> bool {
        goal.is_passed_by(self.file_bytes())
    }

    /// Returns how many segments are left without the free ones at the file's end behind the goal. Those are free for
    /// all readers. `None` if there are none, or `list_bytes` of records might not fit into the free room before them.
    pub(super) fn kept_segments(&self, goal: &Goal, list_bytes: u64) -> Option<usize> {
        let horizon = self.horizon();
        let is_tail = |index: &usize| {
            is_free(&self.uses[*index], horizon)
                && self.segments.get(*index).start >= goal.file_bytes
        };
        let cut = (0..self.uses.len()).rev().take_while(is_tail).count();
        let kept = self.uses.len() - cut;
        // Every segment takes a third of its length in records at least.
        let fits = self.left_bytes() >= list_bytes || self.room_before(kept) >= 3 * list_bytes;
        (cut > 0 && fits).then_some(kept)
    }

    /// Keeps the segments from `kept` on from being written, while a list without them is written.
    pub(super) fn hold_tail(&mut self, kept: usize) {
        self.uses[kept..].fill(Use::Held);
        self.recount();
    }
}
