//! Blocks on their way to the workers: the owner of their bytes, and the thread that hands them on.
//!
//! A block of a synchronous call is a copy, so that the caller may go on with its bytes at once. A block of an
//! asynchronous call lies in the caller's own buffer, which the call took over. That buffer is not copied, and it comes
//! back when its last block is compressed.
//!
//! A synchronous call hands on its own blocks, and waits for a free frame buffer for each. Nobody waits for an
//! asynchronous call. Its bytes without a frame buffer stay behind as parts. The I/O thread, which frees frame buffers,
//! sends each out again with the next block. Blocks leave in the order of the calls. A synchronous call waits for the
//! parts before it, and a part's block is taken and submitted under one lock.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::pool::{Refused, Submitter};

use super::hint::Outlook;
use super::shared::{Shared, State};
use super::split::{Frames, Workspace};

/// Bytes of a caller that workers read in place.
pub type Buffer = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The jobs of a worker.
pub enum Job {
    Block {
        raw: Raw,
        outlook: Outlook,
        frame: Vec<u8>,
    },
    Flush,
    End {
        has_table: bool,
    },
}

/// The results of a worker.
pub enum Piece {
    Frames { buffer: Vec<u8>, frames: Frames },
    Flush,
    End { has_table: bool },
}

/// The raw bytes of a block.
pub enum Raw {
    /// A copy, in a buffer of the writer.
    Own(Vec<u8>),
    /// The caller's.
    Lent(Lent),
}

impl Raw {
    /// Returns the bytes.
    ///
    /// # Panics
    ///
    /// If a caller's buffer is shorter than at the start of the call.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Raw::Own(bytes) => bytes,
            Raw::Lent(lent) => lent.bytes(),
        }
    }
}

/// A block of a caller's buffer; a thread that waits for the buffer is woken when the block releases it.
pub struct Lent {
    /// There until it is dropped.
    buffer: Option<Buffer>,
    range: Range<usize>,
    shared: Arc<Shared>,
}

impl Lent {
    fn bytes(&self) -> &[u8] {
        let buffer = self.buffer.as_ref().expect("a buffer that was not let go");
        &(**buffer).as_ref()[self.range.clone()]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // First release, then wake; and not under the lock, because this may be the last owner.
        drop(self.buffer.take());
        self.shared.change(|_| {});
    }
}

/// The rest of a caller's buffer, still to be cut into blocks.
pub struct Part {
    pub buffer: Buffer,
    pub range: Range<usize>,
    /// The hints on all of it.
    pub outlook: Outlook,
    /// Bytes of each block but the last.
    pub block_bytes: usize,
}

impl Part {
    /// Returns how many blocks it is cut into.
    pub fn blocks(&self) -> u64 {
        self.range.len().div_ceil(self.block_bytes) as u64
    }

    /// Cuts off the next block; returns whether it was the last.
    fn cut(&mut self, shared: &Arc<Shared>) -> (Lent, bool) {
        let end = self.range.end.min(self.range.start + self.block_bytes);
        let lent = Lent {
            buffer: Some(Arc::clone(&self.buffer)),
            range: self.range.start..end,
            shared: Arc::clone(shared),
        };
        self.range.start = end;
        (lent, self.range.is_empty())
    }
}

/// Hands blocks to the workers, from any thread that has one and a frame buffer for it.
pub struct Feed {
    submitter: Mutex<Submitter<Job, Piece, Workspace>>,
    shared: Arc<Shared>,
}

impl Feed {
    pub fn new(submitter: Submitter<Job, Piece, Workspace>, shared: Arc<Shared>) -> Arc<Feed> {
        Arc::new(Feed {
            submitter: Mutex::new(submitter),
            shared,
        })
    }

    /// Hands on a block of the caller; waits for a frame buffer, and for the parts before it.
    pub fn block(&self, bytes: Vec<u8>, outlook: Outlook) -> Result<()> {
        let take = |state: &mut State| match state.parts.is_empty() {
            true => state.frames.pop(),
            false => None,
        };
        let frame = self.shared.wait(take)?;
        let job = Job::Block {
            raw: Raw::Own(bytes),
            outlook,
            frame,
        };
        self.submit(&mut self.lock(), job)
    }

    /// Hands on a flush or the end, behind all blocks; waits for the parts before it.
    pub fn mark(&self, job: Job) -> Result<()> {
        self.shared
            .wait(|state| state.parts.is_empty().then_some(()))?;
        self.submit(&mut self.lock(), job)
    }

    /// Hands on blocks of asynchronous calls, as many as there are frame buffers for.
    pub fn pump(&self) -> Result<()> {
        let mut submitter = self.lock();
        while let Some(job) = self.shared.change(|state| self.next_lent(state)) {
            self.submit(&mut submitter, job)?;
        }
        Ok(())
    }

    fn next_lent(&self, state: &mut State) -> Option<Job> {
        let part = state.parts.front_mut()?;
        let frame = state.frames.pop()?;
        let outlook = part.outlook;
        let (lent, is_last) = part.cut(&self.shared);
        if is_last {
            // The block holds the buffer as well, so the buffer is not dropped here.
            state.parts.pop_front();
        }
        Some(Job::Block {
            raw: Raw::Lent(lent),
            outlook,
            frame,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Submitter<Job, Piece, Workspace>> {
        // Submitting does not panic halfway.
        self.submitter
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, submitter: &mut Submitter<Job, Piece, Workspace>, job: Job) -> Result<()> {
        submitter.try_submit(job).map_err(|refused| {
            // There is a place for every frame buffer, one for a flush and one for the end.
            assert!(matches!(refused, Refused::Closed(_)), "a ring too small");
            // The I/O thread closed its end of the stage, because it failed, or after a fork.
            let failure = self.shared.failure();
            failure.unwrap_or_else(|| Error::Poisoned {
                what: "the stream".to_string(),
                cause: "its I/O thread is gone".to_string(),
            })
        })
    }
}
