//! Seeing what another process wrote, for stores whose caller keeps processes apart by locks of its own.
//!
//! A process that writes to a store that it read back always begins with a checkpoint and a superblock of
//! its own. So what this process knows is the newest for as long as the superblock is the one it
//! knows, and, if it is not the writer itself, nothing was written where the log ended.

use std::sync::Arc;

use super::layout::KIND;
use super::recovery::{Recovery, recover};
use super::{Blocks, Inner, Turn, decode_payload};
use crate::error::{Error, Result};
use crate::storage::superblock::Superblocks;

impl Blocks {
    /// Takes what other processes committed since; returns whether there was anything. Does nothing
    /// while a transaction runs.
    ///
    /// The caller keeps others from writing while this runs, and from the last refresh on for as long as it
    /// holds a snapshot or writes.
    ///
    /// # Errors
    /// As [`Blocks::open`], after which the store refuses changes and refreshes until it is opened again.
    ///
    /// # Cost
    /// Two or four small reads if nothing changed, else the log since this process read it last, or the
    /// log since the last checkpoint if another process wrote one.
    pub fn refresh(&self) -> Result<bool> {
        let inner = &self.inner;
        inner.check()?;
        let mut turn = inner.lock_turn();
        let refreshed = match std::mem::replace(&mut *turn, Turn::Refused) {
            Turn::Idle(writer) => {
                let sequence = writer.superblocks.current().sequence;
                inner.newest().and_then(|superblocks| {
                    match superblocks.current().sequence == sequence {
                        true => Ok((Turn::Idle(writer), false)),
                        false => inner.read_again(&superblocks),
                    }
                })
            }
            Turn::Untouched(recovery, payload) => inner.newest().and_then(|superblocks| {
                match superblocks.current().payload == payload.encode() {
                    true => inner
                        .advance(recovery)
                        .map(|(recovery, is_new)| (Turn::Untouched(recovery, payload), is_new)),
                    false => inner.read_again(&superblocks),
                }
            }),
            other => Ok((other, false)),
        };
        match refreshed {
            Ok((next, is_new)) => {
                *turn = next;
                Ok(is_new)
            }
            Err(error) => {
                drop(turn);
                inner.watch(Err(error))
            }
        }
    }
}

impl Inner {
    fn newest(&self) -> Result<Superblocks> {
        let superblocks = Superblocks::open(Arc::clone(&self.file.file), KIND)?;
        let log_id = superblocks.current().log_id;
        if log_id != self.file.log_id {
            let (expected, found) = [self.file.log_id, log_id]
                .map(|id| format!("store {id:02x?}"))
                .into();
            return Err(Error::corrupt("superblock", 0, expected, found));
        }
        Ok(superblocks)
    }

    fn advance(&self, mut recovery: Box<Recovery>) -> Result<(Box<Recovery>, bool)> {
        if !recovery.is_behind(&self.file)? {
            return Ok((recovery, false));
        }
        let before = recovery.state.commit;
        recovery.advance(&self.file)?;
        let is_new = recovery.state.commit != before;
        if is_new {
            self.shared.publish(recovery.state.clone());
        }
        Ok((recovery, is_new))
    }

    fn read_again(&self, superblocks: &Superblocks) -> Result<(Turn, bool)> {
        let payload = decode_payload(&superblocks.current().payload)?;
        let recovery = Box::new(recover(&self.file, &payload)?);
        self.shared.publish(recovery.state.clone());
        Ok((Turn::Untouched(recovery, payload), true))
    }
}
