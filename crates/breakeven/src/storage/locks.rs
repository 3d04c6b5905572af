//! Byte-range locks: their words, their table in memory, and the system's calls for real files.
//!
//! The locks are those of open file descriptions (`F_OFD_SETLK`). So the owner is the handle, and closing another
//! handle of the file drops nothing. They are advisory: no read and no write looks at them. [`LockTable`] behaves for
//! files in memory and on the simulated disk as Linux does for real ones, even in its choice of the reported conflict.
//!
//! `unsafe` here: `fcntl` with `F_OFD_*`, which has no safe name in the crates this library stands on.
#![allow(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The kinds of locks on a range of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Any number of handles may hold it together. Needs a handle that reads.
    Shared,
    /// One handle alone holds it. Needs a handle that writes.
    Exclusive,
}

impl LockKind {
    fn conflicts_with(self, other: LockKind) -> bool {
        self == LockKind::Exclusive || other == LockKind::Exclusive
    }
}

/// A lock on a range of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLock {
    /// The bytes it covers, at most up to 2^63 - 1; they need not exist.
    pub range: Range<u64>,
    /// How they are locked.
    pub kind: LockKind,
}

/// The number of a handle among those of one file.
pub(super) type LockOwner = u64;

/// The locks of one file in memory, by owner in the order of their first lock. The locks of each owner are sorted,
/// without overlaps, and joined where they touch and are of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct LockTable {
    held: Vec<(LockOwner, Vec<HeldLock>)>,
}

impl LockTable {
    /// Locks the range for `owner`, over its own locks there, unless another owner is in the way; returns whether it
    /// did.
    pub(super) fn try_lock(
        &mut self,
        owner: LockOwner,
        range: &Range<u64>,
        kind: LockKind,
    ) -> bool {
        if self.first_conflict(owner, range, kind).is_some() {
            return false;
        }
        let at = self.held.iter().position(|(held, _)| *held == owner);
        let at = at.unwrap_or_else(|| {
            self.held.push((owner, Vec::new()));
            self.held.len() - 1
        });
        let locks = &mut self.held[at].1;
        cut(locks, range);
        locks.push(HeldLock {
            range: range.clone(),
            kind,
        });
        locks.sort_unstable_by_key(|lock| lock.range.start);
        locks.dedup_by(|next, lock| {
            let joins = next.kind == lock.kind && next.range.start == lock.range.end;
            if joins {
                lock.range.end = next.range.end;
            }
            joins
        });
        true
    }

    /// Gives up the locks of `owner` in the range.
    pub(super) fn unlock(&mut self, owner: LockOwner, range: &Range<u64>) {
        for (held, locks) in &mut self.held {
            if *held == owner {
                cut(locks, range);
            }
        }
        self.held.retain(|(_, locks)| !locks.is_empty());
    }

    /// Gives up all locks of `owner`.
    pub(super) fn release(&mut self, owner: LockOwner) {
        self.held.retain(|(held, _)| *held != owner);
    }

    /// Returns the first lock in the way of `owner`: the lowest of the owner that has held locks longest.
    pub(super) fn first_conflict(
        &self,
        owner: LockOwner,
        range: &Range<u64>,
        kind: LockKind,
    ) -> Option<HeldLock> {
        let others = self.held.iter().filter(|(held, _)| *held != owner);
        let mut locks = others.flat_map(|(_, locks)| locks);
        let conflict = locks.find(|lock| {
            let overlaps = lock.range.start < range.end && range.start < lock.range.end;
            overlaps && lock.kind.conflicts_with(kind)
        });
        conflict.cloned()
    }
}

/// Cuts `range` out of the locks, which may leave both ends of one.
fn cut(locks: &mut Vec<HeldLock>, range: &Range<u64>) {
    let mut left = Vec::with_capacity(locks.len() + 1);
    for lock in locks.drain(..) {
        let before = lock.range.start..lock.range.end.min(range.start);
        let after = lock.range.start.max(range.end)..lock.range.end;
        for range in [before, after] {
            if !range.is_empty() {
                left.push(HeldLock {
                    range,
                    kind: lock.kind,
                });
            }
        }
    }
    *locks = left;
}

/// Locks a range of a real file unless another description is in the way; returns whether it did.
pub(super) fn try_lock(
    file: BorrowedFd<'_>,
    range: &Range<u64>,
    kind: LockKind,
) -> io::Result<bool> {
    let mut request = request(range, lock_type(kind));
    match control(file, libc::F_OFD_SETLK, &mut request) {
        Ok(()) => Ok(true),
        Err(error) if is_refusal(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives up the locks of a real file's description in the range.
pub(super) fn unlock(file: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<()> {
    control(file, libc::F_OFD_SETLK, &mut request(range, libc::F_UNLCK))
}

/// Returns a lock on a real file that is in the way, if there is one.
pub(super) fn first_conflict(
    file: BorrowedFd<'_>,
    range: &Range<u64>,
    kind: LockKind,
) -> io::Result<Option<HeldLock>> {
    let mut answer = request(range, lock_type(kind));
    control(file, libc::F_OFD_GETLK, &mut answer)?;
    let kind = match i32::from(answer.l_type) {
        libc::F_UNLCK => return Ok(None),
        libc::F_RDLCK => LockKind::Shared,
        _ => LockKind::Exclusive,
    };
    // The system answers with a place from the file's start; a length of 0 means to the end of all.
    let start = answer.l_start as u64;
    let end = match answer.l_len {
        0 => i64::MAX as u64,
        length => start + length as u64,
    };
    Ok(Some(HeldLock {
        range: start..end,
        kind,
    }))
}

fn lock_type(kind: LockKind) -> i32 {
    match kind {
        LockKind::Shared => libc::F_RDLCK,
        LockKind::Exclusive => libc::F_WRLCK,
    }
}

/// Describes a range that is not empty and ends at 2^63 - 1 at the latest, as every caller has checked.
fn request(range: &Range<u64>, lock_type: i32) -> libc::flock {
    // SAFETY: the struct is plain numbers, and all may be 0; the process id has to be.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = lock_type as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    request.l_start = range.start as libc::off_t;
    request.l_len = (range.end - range.start) as libc::off_t;
    request
}

fn control(file: BorrowedFd<'_>, command: i32, request: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open while it is borrowed, and these commands read and write one
        // `flock`, which lives during the call.
        let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut *request) };
        if result != -1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// The system refuses with either number.
fn is_refusal(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_joined_and_replaced() {
        let mut table = LockTable::default();
        assert!(table.try_lock(1, &(0..10), LockKind::Shared));
        assert!(table.try_lock(1, &(10..20), LockKind::Shared));
        assert!(table.try_lock(1, &(4..6), LockKind::Exclusive));
        let ranges = |table: &LockTable| -> Vec<(u64, u64)> {
            let locks = &table.held[0].1;
            locks.iter().map(|l| (l.range.start, l.range.end)).collect()
        };
        assert_eq!(ranges(&table), [(0, 4), (4, 6), (6, 20)]);
        assert!(!table.try_lock(2, &(5..7), LockKind::Shared));
        assert!(table.try_lock(2, &(6..7), LockKind::Shared));
        assert!(!table.try_lock(1, &(0..20), LockKind::Exclusive));
        assert_eq!(ranges(&table), [(0, 4), (4, 6), (6, 20)]);
        table.release(2);
        assert!(table.try_lock(1, &(0..20), LockKind::Exclusive));
        assert_eq!(ranges(&table), [(0, 20)]);
        table.unlock(1, &(0..u64::MAX));
        assert!(table.held.is_empty());
    }
}
