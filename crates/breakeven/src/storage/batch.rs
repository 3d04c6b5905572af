//! Batches of operations that are submitted together and completed later.
//!
//! A batch owns its buffers, as a kernel ring requires, and gives them back on completion. A [`Batch::sync`] orders the
//! rest: operations before it are on the file before it begins, and operations after it start later. Operations with no
//! sync between them may run in any order, so their ranges must not overlap. Today they run one after another before
//! `submit` returns, and after the first failure the rest is skipped.

use std::io::{IoSlice, IoSliceMut};

use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, StorageFile};

/// Operations on one file, in the order they were added.
#[derive(Debug, Default)]
pub struct Batch {
    operations: Vec<Operation>,
}

/// One operation of a batch, with its buffer.
#[derive(Debug)]
pub enum Operation {
    /// Fill the buffer from the offset, or as much of it as the file has.
    Read { offset: u64, buffer: AlignedBuffer },
    /// Write the whole buffer at the offset.
    Write { offset: u64, buffer: AlignedBuffer },
    /// Make everything before durable.
    Sync,
}

/// The outcome of one operation.
#[derive(Debug)]
pub enum Outcome {
    /// The operation succeeded. `bytes` is the count read or written, 0 for a sync.
    Done { bytes: usize },
    /// It failed.
    Failed(Error),
    /// It was not started, because an earlier operation failed.
    Skipped,
}

/// One operation after its end: its buffer, and its outcome.
#[derive(Debug)]
pub struct Completion {
    /// The operation as submitted; a read's buffer is filled.
    pub operation: Operation,
    /// Its outcome.
    pub outcome: Outcome,
}

/// A submitted batch that is not yet completed.
#[must_use = "a batch is known to be done only when it is completed"]
#[derive(Debug)]
pub struct Submission {
    completions: Vec<Completion>,
}

impl Batch {
    /// Makes an empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a read that fills `buffer` from `offset`.
    pub fn read(&mut self, offset: u64, buffer: AlignedBuffer) -> &mut Batch {
        self.operations.push(Operation::Read { offset, buffer });
        self
    }

    /// Adds a write of `buffer` at `offset`.
    pub fn write(&mut self, offset: u64, buffer: AlignedBuffer) -> &mut Batch {
        self.operations.push(Operation::Write { offset, buffer });
        self
    }

    /// Adds a sync, which also orders the operations around it.
    pub fn sync(&mut self) -> &mut Batch {
        self.operations.push(Operation::Sync);
        self
    }

    /// Runs the operations one after another on `file`.
    pub(super) fn run_in_order<F: StorageFile + ?Sized>(self, file: &F) -> Submission {
        let mut failed = false;
        let run = |mut operation: Operation| {
            let outcome = if failed {
                Outcome::Skipped
            } else {
                match operation.run(file) {
                    Ok(bytes) => Outcome::Done { bytes },
                    Err(error) => {
                        failed = true;
                        Outcome::Failed(error)
                    }
                }
            };
            Completion { operation, outcome }
        };
        let completions = self.operations.into_iter().map(run).collect();
        Submission { completions }
    }
}

impl Operation {
    fn run<F: StorageFile + ?Sized>(&mut self, file: &F) -> Result<usize> {
        match self {
            Operation::Read { offset, buffer } => {
                file.read_at(&mut [IoSliceMut::new(buffer)], *offset)
            }
            Operation::Write { offset, buffer } => {
                file.write_at(&[IoSlice::new(buffer)], *offset)?;
                Ok(buffer.len())
            }
            Operation::Sync => file.sync().map(|()| 0),
        }
    }
}

impl Submission {
    /// Waits until every operation has ended; returns them in the order they were added.
    pub fn complete(self) -> Vec<Completion> {
        self.completions
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, OpenOptions, Storage};

    #[test]
    fn a_batch_runs_in_order_and_gives_its_buffers_back() {
        let storage = MemoryStorage::new();
        let file = storage.open("a", OpenOptions::create_new()).unwrap();
        let mut batch = Batch::new();
        batch
            .write(0, AlignedBuffer::from(&b"first "[..]))
            .write(6, AlignedBuffer::from(&b"second"[..]))
            .sync()
            .read(0, AlignedBuffer::zeroed(64));
        let mut completions = file.submit(batch).complete();
        assert_eq!(completions.len(), 4);
        let last = completions.pop().unwrap();
        assert!(matches!(last.outcome, Outcome::Done { bytes: 12 }));
        let Operation::Read { buffer, .. } = last.operation else {
            panic!("the last operation was a read: {last:?}");
        };
        assert_eq!(&buffer[..12], b"first second");
    }

    #[test]
    fn what_follows_a_failure_is_skipped() {
        let storage = MemoryStorage::new();
        storage.open("a", OpenOptions::create_new()).unwrap();
        let file = storage.open("a", OpenOptions::read_only()).unwrap();
        let mut batch = Batch::new();
        batch
            .read(0, AlignedBuffer::zeroed(1))
            .write(0, AlignedBuffer::zeroed(1))
            .sync();
        let outcomes: Vec<Outcome> = file
            .submit(batch)
            .complete()
            .into_iter()
            .map(|completion| completion.outcome)
            .collect();
        assert!(
            matches!(
                outcomes[..],
                [
                    Outcome::Done { bytes: 0 },
                    Outcome::Failed(_),
                    Outcome::Skipped
                ]
            ),
            "{outcomes:?}"
        );
    }
}
