//! What the caller, the workers and the I/O thread of a writer share: free buffers and the failure.
//!
//! A buffer is taken by the caller, passes through worker and I/O thread and comes back here. There
//! is one lock, held for some instructions, and one condition; whoever waits is woken by each buffer
//! that comes back, by a failure and by the end, and looks at the caller's stop flag four times a
//! second.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};

/// How often a waiting caller looks at its stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(250);

pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The caller's wish to stop, if it has a way to say so.
    stop: Option<Arc<AtomicBool>>,
    raw_count: usize,
}

pub struct State {
    /// Empty buffers with room for a block each.
    pub raw: Vec<Vec<u8>>,
    /// Buffers as long as the longest frame.
    pub frames: Vec<Vec<u8>>,
    /// Flushes that reached the sink.
    pub flushed: u64,
    /// The I/O thread has ended, well or not.
    pub has_ended: bool,
    /// The next flush is the end of the stream.
    pub is_finishing: bool,
    /// Nobody will finish the stream: the I/O thread is to end.
    pub is_abandoned: bool,
    failure: Failure,
    is_awaited: bool,
}

enum Failure {
    None,
    /// Not yet told.
    New(Error),
    /// Told; what it was, for those who ask again.
    Told(String),
}

impl Shared {
    pub fn new(
        raw: Vec<Vec<u8>>,
        frames: Vec<Vec<u8>>,
        stop: Option<Arc<AtomicBool>>,
    ) -> Arc<Shared> {
        let raw_count = raw.len();
        Arc::new(Shared {
            state: Mutex::new(State {
                raw,
                frames,
                flushed: 0,
                has_ended: false,
                is_finishing: false,
                is_abandoned: false,
                failure: Failure::None,
                is_awaited: false,
            }),
            changed: Condvar::new(),
            stop,
            raw_count,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the caller, if it waits.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let wakes = state.is_awaited;
        drop(state);
        if wakes {
            self.changed.notify_all();
        }
    }

    /// Notes the first failure; later ones follow from it.
    pub fn fail(&self, error: Error) {
        self.change(|state| {
            if matches!(state.failure, Failure::None) {
                state.failure = Failure::New(error);
            }
        });
    }

    pub fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    pub fn is_finishing(&self) -> bool {
        self.lock().is_finishing
    }

    /// Returns the failure: itself the first time, then that there was one.
    pub fn failure(&self) -> Option<Error> {
        self.lock().failure()
    }

    /// Waits until `take` finds what it looks for.
    ///
    /// # Errors
    ///
    /// The failure of the stream; `Interrupted` if the caller's stop flag is set.
    pub fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(error) = state.failure() {
                return Err(error);
            }
            if self.is_stopped() {
                return Err(Error::Interrupted);
            }
            if let Some(found) = take(&mut state) {
                return Ok(found);
            }
            state.is_awaited = true;
            let woken = self.changed.wait_timeout(state, STOP_INTERVAL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.is_awaited = false;
        }
    }

    /// Waits until no block is with a worker, or on its way to one.
    pub fn wait_compressed(&self) -> Result<()> {
        self.wait(|state| (state.raw.len() == self.raw_count).then_some(()))
    }

    fn is_stopped(&self) -> bool {
        (self.stop.as_ref()).is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl State {
    fn failure(&mut self) -> Option<Error> {
        match std::mem::replace(&mut self.failure, Failure::None) {
            Failure::None => None,
            Failure::New(error) => {
                self.failure = Failure::Told(error.to_string());
                Some(error)
            }
            Failure::Told(cause) => {
                self.failure = Failure::Told(cause.clone());
                Some(Error::Poisoned {
                    what: "the stream".to_string(),
                    cause,
                })
            }
        }
    }
}
