//! Work on a block that one thread does and others wait for.
//!
//! A [`Turn`] ends once, with a result for its waiting threads. Its holder always ends it; after a panic it ends with
//! that. Nobody waits in vain: [`Waits`] knows the waits of all threads, and refuses one that would close a circle. The
//! circle may be one thread that comes back for its own block, or several threads. It sees the threads of one cache,
//! and only threads that wait in it.
#![deny(unsafe_code)]

use std::collections::HashMap;
use std::sync::Arc;

use super::guard::OwnBlock;
use super::sync::{Condvar, Mutex, ThreadId, current};
use crate::error::{Error, Result};

/// How a turn ended.
#[derive(Clone)]
pub(super) enum End {
    /// The block may be in the cache now: look again.
    Look,
    /// The block, which the cache does not keep.
    Passed(Arc<OwnBlock>),
    /// The work failed.
    Failed(Arc<Error>),
}

/// One piece of work.
pub(super) struct Turn {
    by: ThreadId,
    end: Mutex<Option<End>>,
    has_ended: Condvar,
}

impl Turn {
    /// Begins a turn of this thread.
    pub fn begin() -> Arc<Turn> {
        Arc::new(Turn {
            by: current(),
            end: Mutex::new(None),
            has_ended: Condvar::new(),
        })
    }

    /// Ends it and wakes its waiting threads. Only the first end counts.
    pub fn end(&self, end: End) {
        self.end.lock().get_or_insert(end);
        self.has_ended.notify_all();
    }

    fn is_over(&self) -> bool {
        self.end.lock().is_some()
    }

    fn wait(&self) -> End {
        let mut end = self.end.lock();
        loop {
            if let Some(end) = &*end {
                return end.clone();
            }
            end = self.has_ended.wait(end);
        }
    }
}

/// A turn that is ended when this is dropped, if not before.
pub(super) struct Ending {
    pub turn: Arc<Turn>,
    /// The result by which it ends; none for a failure.
    end: Option<End>,
}

impl Ending {
    /// Ends a turn as a failure, unless it gets another end.
    pub fn failed(turn: Arc<Turn>) -> Ending {
        Ending { turn, end: None }
    }

    /// Ends a turn by this.
    pub fn of(turn: Arc<Turn>, end: End) -> Ending {
        let end = Some(end);
        Ending { turn, end }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if self.turn.is_over() {
            return;
        }
        let failed = || {
            End::Failed(Arc::new(Error::Panicked {
                what: "a cache operation",
                message: "it never ended its turn".to_string(),
            }))
        };
        self.turn.end(self.end.take().unwrap_or_else(failed));
    }
}

/// The threads, and the turn that each waits for.
#[derive(Default)]
pub(super) struct Waits {
    waiting: Mutex<HashMap<ThreadId, Arc<Turn>>>,
}

impl Waits {
    /// Waits for the end of a turn.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if this thread would wait for itself, even through others.
    pub fn wait(&self, turn: &Arc<Turn>) -> Result<End> {
        let me = current();
        {
            let mut waiting = self.waiting.lock();
            if is_circle(&waiting, turn, me) {
                return Err(Error::invalid(
                    "cache access",
                    "it waits for work that cannot end before it returns",
                ));
            }
            waiting.insert(me, Arc::clone(turn));
        }
        let end = turn.wait();
        self.waiting.lock().remove(&me);
        Ok(end)
    }
}

/// Returns whether waiting for a turn would mean waiting for this thread. A finished turn holds nobody up, though its
/// waiting threads may not have woken yet.
fn is_circle(waiting: &HashMap<ThreadId, Arc<Turn>>, turn: &Arc<Turn>, me: ThreadId) -> bool {
    let mut turn = turn;
    loop {
        if turn.is_over() {
            return false;
        }
        if turn.by == me {
            return true;
        }
        match waiting.get(&turn.by) {
            Some(next) => turn = next,
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_end_counts() {
        let turn = Turn::begin();
        turn.end(End::Look);
        drop(Ending::failed(Arc::clone(&turn)));
        assert!(matches!(turn.wait(), End::Look));
        let turn = Turn::begin();
        drop(Ending::failed(Arc::clone(&turn)));
        assert!(matches!(turn.wait(), End::Failed(_)));
        let turn = Turn::begin();
        drop(Ending::of(Arc::clone(&turn), End::Look));
        assert!(matches!(turn.wait(), End::Look));
    }

    #[test]
    fn a_thread_does_not_wait_for_itself() {
        let waits = Waits::default();
        let turn = Turn::begin();
        let error = waits.wait(&turn).err().expect("refused");
        assert!(error.to_string().contains("cannot end"), "{error}");
        turn.end(End::Look);
        assert!(waits.wait(&turn).is_ok(), "it is over");
    }
}
