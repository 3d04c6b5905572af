//! Seeing the commits of another process, and reading on while it writes, for stores whose caller keeps writers apart.
//!
//! A process that writes to a store that it read back always begins with a checkpoint and a superblock of its own. So
//! this process knows the newest state while the superblock is the one it knows. Unless this process is the writer, a
//! second condition holds: nothing was written where the log ended.
//!
//! A commit that is to be durable counts when its publication follows. A commit without one belongs to its writer. The
//! writer makes it durable, publishes it or takes it back. If the writer died, the process that keeps others from
//! writing ends the commit. A reader that cannot write takes it as it is. The caller decides about a commit with a
//! coordinator.
//!
//! A writer may be in the middle of anything meanwhile. A record that is not whole yet is not there yet. Records that
//! were used again during the reading do not fit, and are read again from the newest superblock. A lock keeps a state
//! that was read (`shared`). The state is good if there is no newer superblock then, since only places that a
//! superblock frees are used again.

use std::sync::Arc;

use super::file::StoreFile;
use super::layout::{KIND, Payload};
use super::recovery::{Recovery, Unpublished, recover};
use super::{Blocks, BlocksOptions, Inner, Snapshot, Turn, decode_payload, is_for_room};
use crate::error::{Error, Result};
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::superblock::Superblocks;

/// The times in a row that a writer's checkpoint may overtake a reader, before its caller has to try again.
const OVERTAKEN_MAX: usize = 16;

/// How often the records behind one superblock are read before they are called corrupt. A writer may have used the
/// place again before its superblock shows it.
const TRIES_OF_ONE: usize = 3;

const OVERTAKEN: Error = Error::Busy {
    what: "block store, which is written without end,",
};

impl Blocks {
    /// Takes the commits of other processes, and returns the newest state. Nobody writes over it as long as it is held.
    /// Others may write meanwhile.
    ///
    /// # Errors
    /// As [`Blocks::open`]; the store then refuses changes and this call until it is opened again. [`Error::Busy`] if
    /// another process wrote one checkpoint after the other meanwhile, which changes nothing.
    ///
    /// # Cost
    /// One small read and a lock if this process wrote last; three and a lock if another one did and nothing changed
    /// since. Else the log since this process read it last, or the log since the last checkpoint if another process
    /// wrote one.
    pub fn newest(&self) -> Result<Snapshot> {
        let inner = &self.inner;
        inner.check()?;
        let mut turn = inner.lock_turn();
        for _ in 0..OVERTAKEN_MAX {
            // While a transaction of this process runs nobody else writes, nor until its turn has gone back.
            let is_writing = matches!(*turn, Turn::Taken);
            inner.catch_up(&mut turn, Inner::advanced)?;
            let is_early = is_seeded(SeededBug::NotLookedAgain) && inner.is_newest(&turn)?;
            let snapshot = Snapshot::new(Arc::clone(inner))?;
            if is_writing || is_early || inner.is_newest(&turn)? {
                return Ok(snapshot);
            }
            drop(snapshot);
            inner.catch_up(&mut turn, |inner, _| inner.recovered())?;
        }
        Err(OVERTAKEN)
    }

    /// Returns whether the log that [`Blocks::newest`] read last ends in a commit that another process has not
    /// published.
    pub fn is_unpublished(&self) -> bool {
        match &*self.inner.lock_turn() {
            Turn::Untouched(recovery, _) => recovery.awaited().is_some(),
            _ => false,
        }
    }

    /// Ends such a commit in its writer's place. It is made durable and published, or taken back if it has a
    /// coordinator and `is_committed` says no to its name. The caller keeps all others from writing, and so knows that
    /// the writer has died. A store opened for reading alone takes the commit as published, or as none. It does so only
    /// if nobody wrote since it read the commit.
    ///
    /// # Errors
    /// As [`Blocks::newest`], those of writing and syncing, and those of `is_committed`, which change nothing.
    ///
    /// # Cost
    /// The log since the last checkpoint is read, and written again.
    pub fn end_unpublished(
        &self,
        mut is_committed: impl FnMut(&[u8]) -> Result<bool>,
    ) -> Result<()> {
        let inner = &self.inner;
        inner.check()?;
        let mut told = Ok(());
        // The store itself is as good as before where that stays unclear.
        let mut decide = |coordinator: &[u8]| {
            let decided = is_committed(coordinator);
            decided.map_err(|error| told = Err(error)).ok()
        };
        inner.catch_up(&mut inner.lock_turn(), |inner, known| match known {
            Turn::Untouched(known, _) => inner.ended(known.awaited(), &mut decide),
            known => Ok(known),
        })?;
        told
    }
}

impl Inner {
    /// Returns whether the newest superblock is the known one.
    fn is_newest(&self, turn: &Turn) -> Result<bool> {
        match turn {
            Turn::Idle(writer) => writer.superblocks.is_newest(),
            Turn::Untouched(_, superblocks) => superblocks.is_newest(),
            Turn::Behind => Ok(false),
            Turn::Taken | Turn::Refused => Ok(true),
        }
    }

    /// Takes the commits of others.
    pub(super) fn catch_up(
        &self,
        turn: &mut Turn,
        take: impl FnOnce(&Inner, Turn) -> Result<Turn>,
    ) -> Result<()> {
        let refreshed = match std::mem::replace(turn, Turn::Refused) {
            Turn::Taken => Ok(Turn::Taken),
            Turn::Refused => Ok(Turn::Refused),
            known => take(self, known),
        };
        match refreshed {
            Ok(next) => {
                *turn = next;
                Ok(())
            }
            Err(error) if matches!(error, Error::Busy { .. }) || is_for_room(&error) => {
                *turn = Turn::Behind;
                Err(error)
            }
            Err(error) => self.watch(Err(error)),
        }
    }

    /// Reads on from the log's last end.
    fn advanced(&self, known: Turn) -> Result<Turn> {
        let (recovery, superblocks) = match known {
            Turn::Untouched(recovery, superblocks) => (recovery, superblocks),
            Turn::Behind => return self.recovered(),
            known => return Ok(known),
        };
        match self.advance(recovery) {
            Ok(recovery) => Ok(Turn::Untouched(recovery, superblocks)),
            // It was overtaken.
            Err(Error::Corrupt { .. }) => self.recovered(),
            Err(error) => Err(error),
        }
    }

    /// Reads the store from the newest superblock on.
    pub(super) fn recovered(&self) -> Result<Turn> {
        self.recovered_with(|_| Ok(()))
    }

    /// Reads the store again, and ends an unfinished commit: any commit, or the known one where others may have written
    /// since. A commit that `decide` leaves unclear stays.
    fn ended(
        &self,
        known: Option<u64>,
        decide: &mut dyn FnMut(&[u8]) -> Option<bool>,
    ) -> Result<Turn> {
        let mut is_taken_back = false;
        let turn = self.recovered_with(|recovery| {
            let found = recovery.awaited();
            if found.is_none() || (!self.is_writable && found != known) {
                return Ok(());
            }
            let is_committed = match recovery.coordinator() {
                Some(coordinator) => decide(coordinator),
                None => Some(true),
            };
            match is_committed {
                Some(true) => self.end_awaited(recovery),
                Some(false) if self.is_writable => {
                    is_taken_back = true;
                    recovery.take_back_awaited(&self.file)
                }
                _ => Ok(()),
            }
        })?;
        match is_taken_back {
            true => self.recovered(),
            false => Ok(turn),
        }
    }

    /// Ends a commit that is there.
    fn end_awaited(&self, recovery: &mut Recovery) -> Result<()> {
        recovery.take_awaited(&self.file)?;
        if self.is_writable {
            recovery.write_again(&self.file)?;
            self.file.file.sync()?;
            recovery.publish(&self.file)?;
        }
        Ok(())
    }

    pub(super) fn recovered_with(
        &self,
        end: impl FnOnce(&mut Recovery) -> Result<()>,
    ) -> Result<Turn> {
        // Transactions that found no room are read back.
        self.file.file.resume();
        let unpublished = self.options.unpublished();
        let superblocks = newest(&self.file)?;
        let (superblocks, _, mut recovery) = recover_newest(&self.file, superblocks, unpublished)?;
        end(&mut recovery)?;
        self.shared.publish(recovery.state.clone());
        Ok(Turn::Untouched(Box::new(recovery), Box::new(superblocks)))
    }

    fn advance(&self, mut recovery: Box<Recovery>) -> Result<Box<Recovery>> {
        if recovery.is_behind(&self.file)? {
            let before = recovery.state.commit;
            recovery.advance(&self.file)?;
            if recovery.state.commit != before {
                self.shared.publish(recovery.state.clone());
            }
        }
        Ok(recovery)
    }
}

impl BlocksOptions {
    /// Returns the standing of an unpublished commit.
    pub(super) fn unpublished(&self) -> Unpublished {
        match self.is_guarded {
            true => Unpublished::Awaited,
            false => Unpublished::Taken,
        }
    }
}

fn newest(file: &StoreFile) -> Result<Superblocks> {
    let superblocks = Superblocks::open(Arc::clone(&file.file), KIND)?;
    let log_id = superblocks.current().log_id;
    if log_id != file.log_id {
        let (expected, found) = [file.log_id, log_id]
            .map(|id| format!("store {id:02x?}"))
            .into();
        return Err(Error::corrupt("superblock", 0, expected, found));
    }
    Ok(superblocks)
}

/// Reads a store back from the newest superblock, which `superblocks` was when it was read.
///
/// # Errors
/// [`Error::Busy`] if a writer wrote a newer one each time. [`Error::Corrupt`] if the records behind one that stays do
/// not fit. Those of reading.
pub(super) fn recover_newest(
    file: &StoreFile,
    mut superblocks: Superblocks,
    unpublished: Unpublished,
) -> Result<(Superblocks, Payload, Recovery)> {
    let (mut overtaken, mut tries_of_one) = (0, 0);
    loop {
        let payload = decode_payload(&superblocks.current().payload)?;
        let error = match recover(file, &payload, unpublished) {
            Ok(recovery) => return Ok((superblocks, payload, recovery)),
            Err(error @ Error::Corrupt { .. }) => error,
            Err(error) => return Err(error),
        };
        let newer = newest(file)?;
        if newer.current() == superblocks.current() {
            // In a store without writers the result is the same again, and then counts.
            tries_of_one += 1;
            if tries_of_one == TRIES_OF_ONE {
                return Err(error);
            }
        } else {
            (overtaken, tries_of_one) = (overtaken + 1, 0);
            if overtaken == OVERTAKEN_MAX {
                return Err(OVERTAKEN);
            }
        }
        superblocks = newer;
    }
}
