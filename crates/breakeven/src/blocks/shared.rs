//! The data that the handles of one store in one process share: the newest state, and its readers' states.
//!
//! Where other processes may write, locks of the file show them the versions that this one reads: a shared one on the
//! byte of each. They end with the process, however it ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::State;
use crate::error::{Error, Result};
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::{LockKind, StorageFile};

/// A reader of version n has a lock on the byte at this offset plus n.
const READERS_BYTE: u64 = 1 << 62;

/// Versions are numbers of records, all below this.
const VERSIONS: u64 = 1 << 48;

/// The newest state and the snapshots that are held.
pub(super) struct Shared {
    published: Mutex<Published>,
    /// The file whose locks show held versions to other processes.
    told: Option<Arc<dyn StorageFile>>,
}

struct Published {
    state: Arc<State>,
    /// The versions that snapshots hold, and the number of snapshots for each.
    held: BTreeMap<u64, usize>,
    /// The reason why the store refuses to be changed.
    failure: Option<String>,
}

impl Shared {
    /// `told` is the store's file if other processes may write it.
    pub(super) fn new(state: State, told: Option<Arc<dyn StorageFile>>) -> Shared {
        Shared {
            told,
            published: Mutex::new(Published {
                state: Arc::new(state),
                held: BTreeMap::new(),
                failure: None,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Published> {
        self.published
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest state.
    pub(super) fn state(&self) -> Arc<State> {
        Arc::clone(&self.lock().state)
    }

    pub(super) fn publish(&self, state: State) {
        self.lock().state = Arc::new(state);
    }

    /// Returns the newest state and keeps its blocks from being written over by this process. Other processes keep them
    /// too, if the state is still the newest when they are asked to.
    ///
    /// # Errors
    /// Those of locking.
    pub(super) fn hold(&self) -> Result<Arc<State>> {
        let mut published = self.lock();
        let state = Arc::clone(&published.state);
        if let Some(file) = &self.told
            && !published.held.contains_key(&state.version)
        {
            // Nobody locks these bytes otherwise than shared.
            file.try_lock(reader_byte(state.version), LockKind::Shared)?;
        }
        *published.held.entry(state.version).or_default() += 1;
        Ok(state)
    }

    /// Gives back the version that [`Shared::hold`] gave.
    pub(super) fn release(&self, version: u64) {
        let mut published = self.lock();
        let count = published.held.get_mut(&version).expect("a held version");
        *count -= 1;
        if *count == 0 {
            published.held.remove(&version);
            if let Some(file) = &self.told {
                // A lock that stays keeps room from being used, and nothing else.
                let _ = file.unlock(reader_byte(version));
            }
        }
    }

    /// Returns the number of held snapshots.
    pub(super) fn held_count(&self) -> u64 {
        self.lock().held.values().sum::<usize>() as u64
    }

    /// Returns whether anybody reads.
    pub(super) fn is_read(&self) -> bool {
        let is_told = self.told.as_ref();
        self.held_count() > 0 || is_told.is_some_and(|file| is_read_elsewhere(&**file))
    }

    /// Returns the oldest version that a reader may still use.
    pub(super) fn horizon(&self) -> u64 {
        let published = self.lock();
        let oldest = published.held.keys().next().copied();
        let own = oldest.unwrap_or(published.state.version);
        drop(published);
        match &self.told {
            Some(file) if !is_seeded(SeededBug::ReadersIgnored) => oldest_told(&**file, own),
            _ => own,
        }
    }

    /// Refuses all changes from now on.
    pub(super) fn fail(&self, cause: &Error) {
        let mut published = self.lock();
        if published.failure.is_none() {
            published.failure = Some(cause.to_string());
        }
    }

    pub(super) fn check(&self, what: impl FnOnce() -> String) -> Result<()> {
        match &self.lock().failure {
            None => Ok(()),
            Some(cause) => Err(Error::Poisoned {
                what: what(),
                cause: cause.clone(),
            }),
        }
    }
}

/// Returns whether another handle of a file reads any version of the store in it, as far as the system shows it.
pub(super) fn is_read_elsewhere(file: &dyn StorageFile) -> bool {
    let all = READERS_BYTE..READERS_BYTE + VERSIONS;
    let found = file.first_conflict(all, LockKind::Exclusive);
    found.map_or(true, |lock| lock.is_some())
}

fn reader_byte(version: u64) -> std::ops::Range<u64> {
    READERS_BYTE + version..READERS_BYTE + version + 1
}

/// Returns the oldest version that another process reads, if that is below `below`.
///
/// A segment that a checkpoint freed is of no use to later readers. A reader with its lock looks for a newer
/// superblock, and lets go if there is one. So one question is enough, without keeping others out, as long as it comes
/// behind the superblock.
fn oldest_told(file: &dyn StorageFile, below: u64) -> u64 {
    let mut oldest = below;
    while oldest > 0 {
        let older = READERS_BYTE..READERS_BYTE + oldest;
        match file.first_conflict(older, LockKind::Exclusive) {
            Ok(None) => break,
            // Of several the system reports any.
            Ok(Some(lock)) => {
                oldest = lock
                    .range
                    .start
                    .saturating_sub(READERS_BYTE)
                    .min(oldest - 1);
            }
            Err(_) => return 0,
        }
    }
    oldest
}
