//! What the handles of one store in one process share: the newest state, and who reads which.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::state::State;
use crate::error::{Error, Result};

/// The newest state and the snapshots that are held.
pub(super) struct Shared {
    published: Mutex<Published>,
}

struct Published {
    state: Arc<State>,
    /// The versions that snapshots hold, and how many each.
    held: BTreeMap<u64, usize>,
    /// Why the store refuses to be changed.
    failure: Option<String>,
}

impl Shared {
    pub(super) fn new(state: State) -> Shared {
        Shared {
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

    /// Returns the newest state and keeps what it needs from being written over.
    pub(super) fn hold(&self) -> Arc<State> {
        let mut published = self.lock();
        let state = Arc::clone(&published.state);
        *published.held.entry(state.version).or_default() += 1;
        state
    }

    /// Gives back what [`Shared::hold`] gave.
    pub(super) fn release(&self, version: u64) {
        let mut published = self.lock();
        let count = published.held.get_mut(&version).expect("a held version");
        *count -= 1;
        if *count == 0 {
            published.held.remove(&version);
        }
    }

    /// Returns how many snapshots are held.
    pub(super) fn held_count(&self) -> u64 {
        self.lock().held.values().sum::<usize>() as u64
    }

    /// Returns the oldest version that anybody may still read.
    pub(super) fn horizon(&self) -> u64 {
        let published = self.lock();
        let oldest = published.held.keys().next().copied();
        oldest.unwrap_or(published.state.version)
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
