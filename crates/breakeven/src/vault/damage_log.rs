//! Damage that was met and got around: the command gave its result all the same, and its user should hear of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::error::Error;

/// An object that is damaged, or a snapshot that needs one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The object's name, or the name of a snapshot's record.
    pub name: String,
    /// The fault.
    pub reason: String,
}

/// Damage by the names of objects, each once.
#[derive(Default)]
pub(super) struct DamageLog {
    met: Mutex<BTreeMap<String, String>>,
}

impl DamageLog {
    /// Notes a fault of an object.
    pub(super) fn note(&self, name: &str, error: &Error) {
        let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = met.entry(name.to_string());
        reason.or_insert_with(|| error.to_string());
    }

    /// Says whether something was noted of an object.
    pub(super) fn has(&self, name: &str) -> bool {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.contains_key(name)
    }

    /// Returns all that was noted.
    pub(super) fn damages(&self) -> Vec<Damage> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        let damages = met.iter().map(|(name, reason)| Damage {
            name: name.clone(),
            reason: reason.clone(),
        });
        damages.collect()
    }
}
