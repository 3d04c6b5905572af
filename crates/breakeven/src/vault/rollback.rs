//! A client's memory of a vault: it shows that an older state was put back.
//!
//! No object of a vault shows that there was a newer one. A client knows if it keeps the newest record that it has seen
//! outside of the vault's storage. Promises: a vault that nobody put back is not called older, since epochs only rise.
//! The exception is a record that was seen before it was durable, and that a power cut took. Not noticed: writes of
//! others that this client never saw, and an older state with more writes since than were removed.

use crate::error::Result;

use super::Vault;
use super::cipher::Id;

/// The newest record that a client has seen of a vault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its epoch.
    pub epoch: u64,
    /// The hash of its bytes, cut to 16: a second record of that epoch has another.
    pub digest: Id,
}

impl Vault {
    /// Returns the identity of the vault; all copies of it share it.
    pub fn id(&self) -> Id {
        Id(self.keys.vault)
    }

    /// Returns the newest record, nothing before the first.
    pub fn newest_record(&self) -> Option<SeenRecord> {
        (self.epoch > 0).then_some(SeenRecord {
            epoch: self.epoch,
            digest: self.digest,
        })
    }

    /// Says whether the vault is in a state before a record that was seen, or in another one of the same epoch.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn is_older_than(&self, seen: &SeenRecord) -> Result<bool> {
        if self.epoch == seen.epoch {
            return Ok(self.digest != seen.digest);
        }
        // The listing may be old; a new one is not.
        let is_behind = |newest: u64| newest < seen.epoch;
        Ok(is_behind(self.newest.max(self.epoch))
            && is_behind(self.epochs("snapshots")?.last().copied().unwrap_or(0)))
    }
}
