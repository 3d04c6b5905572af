//! Waiting writers, shown to other connections by locks of the file, so that a connection that writes without end lets
//! them in.
//!
//! SQLite sleeps up to a tenth of a second between two tries to get a lock. A program that writes one transaction after
//! the other leaves the lock free for some microseconds only. Another may come too late for ever. So a connection that
//! was refused twice in a row says until when it comes again, by the byte that it locks. A connection that has written
//! for a while waits behind a commit, with no lock, until a waiting one has come. The mark of a process that asks no
//! more is soon out of date, and it ends with the process.
//!
//! The mark affects only the order of writers. A mark that cannot be set is left out.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::error::Result;
use crate::storage::{LockKind, StorageFile};

/// A connection that comes again by millisecond n of the machine's clock locks the byte at this offset plus n.
const WAITING_BYTE: u64 = 3 << 60;
/// The longest sleep of SQLite's own handler between two tries (`sqliteDefaultBusyCallback`), so that a waiting
/// connection comes within a turn.
const TURN_MS: u64 = 100;
/// Each sleep of that handler is at most two and a half times the one before. The third is for a busy machine.
const SLEEP_GROWTH: u64 = 3;
/// No mark is true for longer.
const MARK_MS_MAX: u64 = 2 * TURN_MS;

/// A connection's mark while it waits, and the state of its turn.
pub(super) struct WriterQueue {
    file: Arc<dyn StorageFile>,
    /// The time of the last refusal, without an admission since.
    refused_ms: Option<u64>,
    mark: Option<Range<u64>>,
    /// The time when its turn began: it first ended a transaction, and nobody had come in between.
    turn_ms: Option<u64>,
}

impl WriterQueue {
    /// Takes the handle of the connection, by which others tell it from themselves.
    pub(super) fn new(file: Arc<dyn StorageFile>) -> WriterQueue {
        WriterQueue {
            file,
            refused_ms: None,
            mark: None,
            turn_ms: None,
        }
    }

    /// Notes that another connection writes.
    pub(super) fn refused(&mut self) {
        self.refused_at(now_ms());
    }

    fn refused_at(&mut self, now_ms: u64) {
        self.turn_ms = None;
        // A connection that asks once may never ask again.
        let Some(before) = self.refused_ms.replace(now_ms) else {
            return;
        };
        self.unmark();
        let slept = now_ms.saturating_sub(before).max(1);
        let until = now_ms + (SLEEP_GROWTH * slept).min(MARK_MS_MAX);
        let mark = bytes(until..until + 1);
        // Nobody locks these bytes otherwise than shared.
        if matches!(self.file.try_lock(mark.clone(), LockKind::Shared), Ok(true)) {
            self.mark = Some(mark);
        }
    }

    /// Notes that it may write.
    pub(super) fn admitted(&mut self) {
        self.refused_ms = None;
        self.unmark();
    }

    fn unmark(&mut self) {
        if let Some(mark) = self.mark.take() {
            let _ = self.file.unlock(mark);
        }
    }

    /// Lets in a waiting connection, if this one has written for a turn. It has no lock any more; `is_taken` says
    /// whether somebody has come.
    pub(super) fn ended(&mut self, is_taken: impl Fn() -> Result<bool>) -> Result<()> {
        let begun = now_ms();
        if !self.is_over(begun) {
            return Ok(());
        }
        let mut now = begun;
        while now < begun + TURN_MS && self.is_awaited(now)? && !is_taken()? {
            std::thread::sleep(Duration::from_millis(1));
            now = now_ms();
        }
        Ok(())
    }

    /// Returns whether a turn is over when a transaction ends.
    fn is_over(&mut self, now_ms: u64) -> bool {
        let begun = *self.turn_ms.get_or_insert(now_ms);
        let is_over = now_ms.saturating_sub(begun) >= TURN_MS;
        if is_over {
            self.turn_ms = None;
        }
        is_over
    }

    /// Returns whether another connection is expected.
    fn is_awaited(&self, now_ms: u64) -> Result<bool> {
        let marks = bytes(now_ms..now_ms + MARK_MS_MAX + 1);
        let mark = self.file.first_conflict(marks, LockKind::Exclusive)?;
        Ok(mark.is_some())
    }
}

fn bytes(ms: Range<u64>) -> Range<u64> {
    WAITING_BYTE + ms.start..WAITING_BYTE + ms.end
}

/// Returns the time since the machine began, which its processes have in common.
fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, OpenOptions, Storage};

    #[test]
    fn who_asks_again_is_waited_for_as_long_as_it_may_sleep() {
        let storage = MemoryStorage::new();
        storage.open("db", OpenOptions::create_new()).unwrap();
        let queue = || WriterQueue::new(storage.open("db", OpenOptions::default()).unwrap());
        let (mut waits, writes) = (queue(), queue());
        waits.refused_at(1000);
        assert!(!writes.is_awaited(1000).unwrap());
        waits.refused_at(1010);
        assert!(writes.is_awaited(1010).unwrap() && writes.is_awaited(1040).unwrap());
        assert!(!writes.is_awaited(1041).unwrap() && !waits.is_awaited(1010).unwrap());
        // Another that waits keeps the first one's mark from nobody.
        let mut third = queue();
        third.refused_at(1009);
        third.refused_at(1010);
        waits.admitted();
        assert!(writes.is_awaited(1013).unwrap() && !writes.is_awaited(1014).unwrap());
        third.refused_at(9000);
        assert!(!writes.is_awaited(1010).unwrap());
        assert!(writes.is_awaited(9200).unwrap() && !writes.is_awaited(9201).unwrap());
        drop(third);
        assert!(!writes.is_awaited(9000).unwrap());
    }

    #[test]
    fn a_turn_is_over_with_a_later_transaction() {
        let storage = MemoryStorage::new();
        let file = storage.open("db", OpenOptions::create_new()).unwrap();
        let mut queue = WriterQueue::new(file);
        let mut over = |now| queue.is_over(now);
        assert!(!over(5) && !over(104) && over(105) && !over(106) && over(206));
        queue.refused_at(207);
        assert!(!queue.is_over(400));
    }
}
