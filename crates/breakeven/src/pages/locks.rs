//! SQLite's locks, at SQLite's own bytes, by open file description.
//!
//! A writer holds RESERVED from the moment it decides to write until it has ended, so there is one writer at a time. A
//! connection that reads a snapshot needs no lock here to read. A connection without one keeps writers out while it
//! reads, and writers keep it out.
//!
//! The bytes and their order are those of SQLite's file format and of its VFS for UNIX. A reader holds the range
//! SHARED. A connection about to write holds RESERVED. A connection that waits for readers to leave holds PENDING,
//! which keeps new ones out. EXCLUSIVE is the whole range. So programs of both kinds keep out of each other's way, and
//! `breakeven db` out of the way of either.

use std::ops::Range;
use std::sync::Arc;

use crate::error::Result;
use crate::storage::{LockKind, StorageFile};

const PENDING: Range<u64> = 0x4000_0000..0x4000_0001;
const RESERVED: Range<u64> = 0x4000_0001..0x4000_0002;
const SHARED: Range<u64> = 0x4000_0002..0x4000_0002 + 510;
/// The three, one behind the other.
const ALL: Range<u64> = PENDING.start..SHARED.end;

/// The lock level of a connection, in SQLite's words and order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockLevel {
    /// Nothing: others may do anything.
    #[default]
    None,
    /// It reads; nobody writes.
    Shared,
    /// It will write; others still read.
    Reserved,
    /// It waits for readers to end; no new ones come.
    Pending,
    /// It writes, alone.
    Exclusive,
}

/// The locks of one connection.
pub(super) struct Locks {
    file: Arc<dyn StorageFile>,
    level: LockLevel,
    /// Whether readers keep writers out.
    keeps_out: bool,
}

impl Locks {
    /// Takes a handle of the connection's own: two connections of one handle would not see each other.
    pub(super) fn new(file: Arc<dyn StorageFile>) -> Locks {
        Locks {
            file,
            level: LockLevel::None,
            keeps_out: true,
        }
    }

    /// Makes locks of a connection that reads snapshots.
    pub(super) fn of_snapshots(file: Arc<dyn StorageFile>) -> Locks {
        Locks {
            keeps_out: false,
            ..Locks::new(file)
        }
    }

    pub(super) fn level(&self) -> LockLevel {
        self.level
    }

    /// Raises the lock; returns whether it could, at once. A refused EXCLUSIVE leaves PENDING.
    pub(super) fn raise(&mut self, to: LockLevel) -> Result<bool> {
        if to <= self.level {
            return Ok(true);
        }
        if self.level == LockLevel::None && !self.share()? {
            return Ok(false);
        }
        // SQLite would play a hot journal back without RESERVED; there is none here, and others rely on it.
        if to >= LockLevel::Reserved && self.level < LockLevel::Reserved {
            if !self.file.try_lock(RESERVED, LockKind::Exclusive)? {
                return Ok(false);
            }
            self.level = LockLevel::Reserved;
        }
        // One call where nobody is in the way; a refused one has changed nothing.
        if to == LockLevel::Exclusive && self.file.try_lock(ALL, LockKind::Exclusive)? {
            self.level = LockLevel::Exclusive;
            return Ok(true);
        }
        if to >= LockLevel::Pending && self.level < LockLevel::Pending {
            if !self.file.try_lock(PENDING, LockKind::Exclusive)? {
                return Ok(false);
            }
            self.level = LockLevel::Pending;
        }
        if to == LockLevel::Exclusive {
            if !self.file.try_lock(SHARED, LockKind::Exclusive)? {
                return Ok(false);
            }
            self.level = LockLevel::Exclusive;
        }
        Ok(true)
    }

    /// Takes SHARED, by way of PENDING, so that a waiting writer goes first.
    fn share(&mut self) -> Result<bool> {
        if !self.keeps_out {
            self.level = LockLevel::Shared;
            return Ok(true);
        }
        if !self.file.try_lock(PENDING, LockKind::Shared)? {
            return Ok(false);
        }
        let locked = self.file.try_lock(SHARED, LockKind::Shared);
        self.file.unlock(PENDING)?;
        if locked? {
            self.level = LockLevel::Shared;
        }
        Ok(self.level == LockLevel::Shared)
    }

    /// Lowers the lock to SHARED or to nothing.
    pub(super) fn lower(&mut self, to: LockLevel) -> Result<()> {
        if self.level <= to {
            return Ok(());
        }
        let holds_any = self.keeps_out || self.level > LockLevel::Shared;
        if to == LockLevel::None || !self.keeps_out {
            if holds_any {
                self.file.unlock(ALL)?;
            }
        } else {
            // A lock that this handle holds becomes a lesser one: nobody can be in the way.
            self.file.try_lock(SHARED, LockKind::Shared)?;
            self.file.unlock(PENDING.start..RESERVED.end)?;
        }
        self.level = to;
        Ok(())
    }

    /// Returns whether anybody, this connection too, is about to write.
    pub(super) fn is_reserved(&self) -> Result<bool> {
        if self.level >= LockLevel::Reserved {
            return Ok(true);
        }
        let conflict = self.file.first_conflict(RESERVED, LockKind::Shared)?;
        Ok(conflict.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, OpenOptions, Storage};

    #[test]
    fn locks_keep_apart_what_sqlite_keeps_apart() {
        use LockLevel::{Exclusive, None, Reserved, Shared};
        let storage = MemoryStorage::new();
        storage.open("db", OpenOptions::create_new()).unwrap();
        let open = || Locks::new(storage.open("db", OpenOptions::default()).unwrap());
        let (mut one, mut two) = (open(), open());
        assert!(one.raise(Shared).unwrap() && two.raise(Shared).unwrap());
        assert!(one.raise(Reserved).unwrap() && !two.raise(Reserved).unwrap());
        assert!(two.is_reserved().unwrap() && one.is_reserved().unwrap());
        // The writer waits, and no reader comes in any more.
        assert!(!one.raise(Exclusive).unwrap());
        assert_eq!(one.level(), LockLevel::Pending);
        let mut three = open();
        assert!(!three.raise(Shared).unwrap());
        two.lower(None).unwrap();
        assert!(one.raise(Exclusive).unwrap() && !two.raise(Shared).unwrap());
        one.lower(Shared).unwrap();
        assert!(three.raise(Shared).unwrap() && !three.is_reserved().unwrap());
        one.lower(None).unwrap();
        // From SHARED at once, as a hot journal is played back.
        assert!(three.raise(Exclusive).unwrap() && !one.raise(Shared).unwrap());
    }
}
