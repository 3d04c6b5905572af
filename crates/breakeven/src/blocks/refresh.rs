//! Seeing what another process wrote, and reading on while it writes, for stores whose caller keeps those apart
//! who write.
//!
//! A process that writes to a store that it read back always begins with a checkpoint and a superblock of
//! its own. So what this process knows is the newest for as long as the superblock is the one it
//! knows, and, if it is not the writer itself, nothing was written where the log ended.
//!
//! A writer may be in the middle of anything meanwhile. What is not whole yet is not there yet, and what was used
//! again while it was read does not fit: it is read again from the newest superblock. A state that was read is kept
//! by a lock (`shared`) and is good if there is no newer superblock then, since only what a
//! superblock frees is used again.

use std::sync::Arc;

use super::file::StoreFile;
use super::layout::{KIND, Payload};
use super::recovery::{Recovery, recover};
use super::{Blocks, Inner, Snapshot, Turn, decode_payload};
use crate::error::{Error, Result};
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::superblock::Superblocks;

/// How often in a row a reader may be overtaken by a writer's checkpoint. What still does not fit then is
/// corrupt.
const OVERTAKEN_MAX: usize = 16;

impl Blocks {
    /// Takes what other processes committed since, and returns the newest state, which nobody writes over as long
    /// as it is held. Others may write meanwhile.
    ///
    /// # Errors
    /// As [`Blocks::open`], after which the store refuses changes and this too until it is opened again.
    ///
    /// # Cost
    /// One small read and a lock if this process wrote last, three and a lock if another one did and nothing
    /// changed since; else the log since this process read it last, or the log since the last checkpoint if
    /// another process wrote one.
    pub fn newest(&self) -> Result<Snapshot> {
        let inner = &self.inner;
        inner.check()?;
        let mut turn = inner.lock_turn();
        for _ in 0..OVERTAKEN_MAX {
            // While a transaction of this process runs nobody else writes, nor before it has given its turn back.
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
        let what = "block store that is written without end";
        Err(Error::Unsupported { what: what.into() })
    }
}

impl Inner {
    /// Returns whether the newest superblock is the one that is known.
    fn is_newest(&self, turn: &Turn) -> Result<bool> {
        match turn {
            Turn::Idle(writer) => writer.superblocks.is_newest(),
            Turn::Untouched(_, superblocks) => superblocks.is_newest(),
            Turn::Taken | Turn::Refused => Ok(true),
        }
    }

    /// Takes what others committed.
    fn catch_up(
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
            Err(error) => self.watch(Err(error)),
        }
    }

    /// Reads on where the log ended.
    fn advanced(&self, known: Turn) -> Result<Turn> {
        let Turn::Untouched(recovery, superblocks) = known else {
            return Ok(known);
        };
        match self.advance(recovery) {
            Ok(recovery) => Ok(Turn::Untouched(recovery, superblocks)),
            // It was overtaken.
            Err(Error::Corrupt { .. }) => self.recovered(),
            Err(error) => Err(error),
        }
    }

    /// Reads the store from the newest superblock on.
    fn recovered(&self) -> Result<Turn> {
        let (superblocks, _, recovery) = recover_newest(&self.file, newest(&self.file)?)?;
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
pub(super) fn recover_newest(
    file: &StoreFile,
    mut superblocks: Superblocks,
) -> Result<(Superblocks, Payload, Recovery)> {
    let mut overtaken = 0;
    loop {
        let payload = decode_payload(&superblocks.current().payload)?;
        match recover(file, &payload) {
            Ok(recovery) => return Ok((superblocks, payload, recovery)),
            Err(Error::Corrupt { .. }) if overtaken < OVERTAKEN_MAX => {
                let newer = newest(file)?;
                // In a store that nobody writes it is the same again, and is then believed.
                let is_same = newer.current() == superblocks.current();
                overtaken += if is_same { OVERTAKEN_MAX / 2 } else { 1 };
                superblocks = newer;
            }
            Err(error) => return Err(error),
        }
    }
}
