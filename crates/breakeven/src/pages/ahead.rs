//! A long transaction's blocks are held back until there are enough for several threads to encode together.
//!
//! A transaction of a few pages never gets here: starting threads takes longer than encoding them. The threads end with
//! each batch, so that nothing of them is left where a process forks.

use std::collections::BTreeMap;

use crate::blocks::{Blocks, ChosenEncoding, EncodedBlock};
use crate::error::{Error, Result};

/// The most raw bytes that are encoded together: some milliseconds of work. Starting a thread costs little beside that.
const BATCH_BYTES: usize = 1 << 20;
/// Memory that must be free before threads start: their stacks of 2 MiB, and the C library's data for each. It exceeds
/// 32 MiB. For a freed allocation up to that length glibc raises its threshold, and maps no shorter ones.
const THREADS_BYTES: usize = 33 << 20;
/// Bytes that a transaction writes before anything is held back.
const SHORT_BYTES: usize = 256 << 10;

/// Blocks of a transaction by their index.
pub(super) type Batch = BTreeMap<u64, Vec<u8>>;

/// The blocks of a transaction that are held back.
#[derive(Default)]
pub(super) struct Held {
    blocks: Batch,
    bytes: usize,
    /// Bytes that the transaction wrote before the first held block.
    given_bytes: usize,
}

impl Held {
    /// Holds a block back, if there are threads for it and the transaction is long; says whether it did.
    pub(super) fn takes(&mut self, index: u64, block: &[u8], threads: usize) -> bool {
        if threads < 2 || self.given_bytes < SHORT_BYTES {
            self.given_bytes += block.len();
            return false;
        }
        let before = self.blocks.insert(index, block.to_vec());
        self.bytes += block.len() - before.map_or(0, |before| before.len());
        true
    }

    /// Says whether the held blocks fill a batch.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// Returns a block that is held.
    pub(super) fn block(&self, index: u64) -> Option<&[u8]> {
        self.blocks.get(&index).map(Vec::as_slice)
    }

    /// Returns all held blocks, and holds none any more.
    pub(super) fn take(&mut self) -> Batch {
        self.bytes = 0;
        std::mem::take(&mut self.blocks)
    }
}

/// Encodes blocks of a volume by several threads. The method of each block is chosen one after the other, so the same
/// blocks make the same bytes with any number of threads.
pub(super) fn encode(
    blocks: &Blocks,
    volume: u32,
    batch: &Batch,
    threads: usize,
) -> Result<Vec<EncodedBlock>> {
    let chosen = batch
        .iter()
        .map(|(index, block)| Ok((blocks.choose((volume, *index), block)?, &block[..])));
    let chosen = chosen.collect::<Result<Vec<(ChosenEncoding, &[u8])>>>()?;
    let work = &|share: &[(ChosenEncoding, &[u8])]| -> Result<Vec<EncodedBlock>> {
        let encoded = share
            .iter()
            .map(|(chosen, block)| blocks.encode_as(chosen, block));
        encoded.collect()
    };
    // The system ends the process if it has no memory for a thread's data when the thread begins.
    let threads = match Error::try_memory(THREADS_BYTES, "threads") {
        Ok(()) => threads.max(1),
        Err(_) => 1,
    };
    let share = chosen.len().div_ceil(threads).max(1);
    let (first, others) = chosen.split_at(share.min(chosen.len()));
    std::thread::scope(|scope| {
        let start = |share| std::thread::Builder::new().spawn_scoped(scope, move || work(share));
        let others: Vec<_> = others.chunks(share).map(|it| (it, start(it))).collect();
        let mut encoded = work(first)?;
        for (share, other) in others {
            encoded.extend(match other.map(|it| it.join()) {
                Ok(Ok(done)) => done?,
                Ok(Err(panic)) => std::panic::resume_unwind(panic),
                // The system has no thread for it.
                Err(_) => work(share)?,
            });
        }
        Ok(encoded)
    })
}
