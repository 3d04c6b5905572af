//! The state shared by the caller, the workers and the I/O thread of a writer. It has the free buffers, the parts of
//! calls that wait for them, the counts of finished work, and the failure.
//!
//! A buffer is taken by the caller, passes through worker and I/O thread and comes back here. There is one lock, held
//! for some instructions, and one condition. Each returned buffer, a failure and the end wake a waiting thread. The
//! thread also checks the caller's stop flag four times a second.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::units::Seconds;

use super::feed::Part;

/// The interval at which a waiting caller checks its stop flag.
const STOP_INTERVAL: Duration = Duration::from_millis(250);

pub struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// The caller's stop flag, if it gave one.
    stop: Option<Arc<AtomicBool>>,
}

pub struct State {
    /// Empty buffers with room for a block each.
    pub raw: Vec<Vec<u8>>,
    /// Buffers as long as the longest frame.
    pub frames: Vec<Vec<u8>>,
    /// Parts of asynchronous calls that wait for frames, in their order.
    pub parts: VecDeque<Part>,
    /// Compressed blocks, and those of them that reached the sink.
    compressed_blocks: u64,
    drained_blocks: u64,
    /// The last call.
    pub call: Option<Call>,
    /// Flushes that reached the sink.
    pub flushed: u64,
    /// The I/O thread has ended, with or without an error.
    pub has_ended: bool,
    /// The stream will never be finished: the I/O thread must end.
    pub is_abandoned: bool,
    failure: Failure,
    waiting_threads: usize,
}

/// A call, and the times at which its bytes were done.
pub struct Call {
    begun: Instant,
    /// The number of blocks in the stream up to its last one; unknown before it is cut into blocks.
    blocks: Option<u64>,
    pub compressed_after: Option<Seconds>,
    pub drained_after: Option<Seconds>,
}

enum Failure {
    None,
    /// Not yet reported.
    New(Error),
    /// Reported; its text remains for later calls.
    Told(String),
}

impl Shared {
    pub fn new(
        raw: Vec<Vec<u8>>,
        frames: Vec<Vec<u8>>,
        stop: Option<Arc<AtomicBool>>,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            state: Mutex::new(State {
                raw,
                frames,
                parts: VecDeque::new(),
                compressed_blocks: 0,
                drained_blocks: 0,
                call: None,
                flushed: 0,
                has_ended: false,
                is_abandoned: false,
                failure: Failure::None,
                waiting_threads: 0,
            }),
            changed: Condvar::new(),
            stop,
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the waiting threads, if there are any.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let found = change(&mut state);
        let wakes = state.waiting_threads > 0;
        drop(state);
        if wakes {
            self.changed.notify_all();
        }
        found
    }

    /// Notes the first failure; later ones follow from it.
    pub fn fail(&self, error: Error) {
        self.change(|state| {
            if matches!(state.failure, Failure::None) {
                state.failure = Failure::New(error);
            }
        });
    }

    /// Marks the stream as never to be finished. Returns the parts that will never be compressed, to be dropped without
    /// a lock.
    pub fn abandon(&self) -> VecDeque<Part> {
        self.change(|state| {
            state.is_abandoned = true;
            if matches!(state.failure, Failure::None) {
                state.failure = Failure::Told("its writer was dropped".to_string());
            }
            std::mem::take(&mut state.parts)
        })
    }

    pub fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    /// Returns the failure: the error itself the first time, then the fact that there was one.
    pub fn failure(&self) -> Option<Error> {
        self.lock().failure()
    }

    /// Returns the last call's times, as far as they are known.
    pub fn call_times(&self) -> Option<(Option<Seconds>, Option<Seconds>)> {
        let state = self.lock();
        let call = state.call.as_ref()?;
        Some((call.compressed_after, call.drained_after))
    }

    /// Waits until `take` returns a value.
    ///
    /// # Errors
    ///
    /// The failure of the stream. `Interrupted` if the caller's stop flag is set. That is a failure as well: the
    /// caller's work is left half done.
    pub fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        self.wait_for(|state| match state.failure() {
            Some(error) => Some(Err(error)),
            None => take(state).map(Ok),
        })?
    }

    /// Waits until `take` returns a value, even if the stream failed.
    ///
    /// # Errors
    ///
    /// `Interrupted` if the caller's stop flag is set before that.
    pub fn wait_for<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        let mut state = self.lock();
        loop {
            if self.is_stopped() && !state.is_failed() {
                state.failure = Failure::Told(Error::Interrupted.to_string());
                return Err(Error::Interrupted);
            }
            if let Some(found) = take(&mut state) {
                return Ok(found);
            }
            if self.is_stopped() {
                return Err(Error::Interrupted);
            }
            state.waiting_threads += 1;
            let woken = self.changed.wait_timeout(state, STOP_INTERVAL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting_threads -= 1;
        }
    }

    /// Waits until `is_so`, despite any failure and the stop flag.
    pub fn wait_until(&self, is_so: impl Fn() -> bool) {
        let mut state = self.lock();
        while !is_so() {
            state.waiting_threads += 1;
            let woken = self.changed.wait_timeout(state, STOP_INTERVAL);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting_threads -= 1;
        }
    }

    /// Waits until so many blocks are compressed, counted from the start of the stream.
    pub fn wait_compressed(&self, blocks: u64) -> Result<()> {
        self.wait(|state| (state.compressed_blocks >= blocks).then_some(()))
    }

    fn is_stopped(&self) -> bool {
        (self.stop.as_ref()).is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl State {
    fn is_failed(&self) -> bool {
        !matches!(self.failure, Failure::None)
    }

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

    /// Queues the parts of an asynchronous call. Once the I/O thread has ended, no thread would compress them or give
    /// their buffer back.
    ///
    /// # Errors
    ///
    /// The failure of the stream.
    pub fn queue(&mut self, parts: &mut Vec<Part>) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        self.parts.extend(parts.drain(..));
        Ok(())
    }

    /// Notes that a block more is compressed.
    pub fn compressed_block(&mut self) {
        self.compressed_blocks += 1;
        self.note_times();
    }

    /// Notes that a block more reached the sink.
    pub fn drained_block(&mut self) {
        self.drained_blocks += 1;
        self.note_times();
    }

    /// Notes that a call begins.
    pub fn begin_call(&mut self, begun: Instant) {
        self.call = Some(Call {
            begun,
            blocks: None,
            compressed_after: None,
            drained_after: None,
        });
    }

    /// Notes that the last call's blocks end with block number `blocks` of the stream.
    pub fn end_call(&mut self, blocks: u64) {
        if let Some(call) = &mut self.call {
            call.blocks = Some(blocks);
        }
        self.note_times();
    }

    fn note_times(&mut self) {
        let Some(call) = &mut self.call else { return };
        let Some(blocks) = call.blocks else { return };
        let begun = call.begun;
        let elapsed = || Seconds(begun.elapsed().as_secs_f64());
        if call.compressed_after.is_none() && self.compressed_blocks >= blocks {
            call.compressed_after = Some(elapsed());
        }
        if call.drained_after.is_none() && self.drained_blocks >= blocks {
            call.drained_after = Some(elapsed());
        }
    }
}
