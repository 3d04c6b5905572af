//! Work on a long write's blocks before its transaction begins: each is examined once, and encoded if it will be
//! stored.
//!
//! A [`Crew`] does shares of that beside the writing thread, in threads that stay. Starting a thread for each write
//! took as long as encoding a tenth of it.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use super::Inner;
use super::duplicates::sketch_of;
use super::volume::pieces;
use crate::blocks::{EncodedBlock, without_tail};
use crate::error::Result;
use crate::pool::{Pool, PoolOptions, Stage};

/// The result of one look at a whole block, for any later use of it.
#[derive(Default)]
pub(super) struct Look {
    /// Its bytes before the zeros at its end.
    pub(super) used_bytes: usize,
    /// Its sketch for the lookup, where that is known.
    pub(super) sketch: Option<u64>,
    /// `None` for a block that may be there already.
    pub(super) encoded: Option<EncodedBlock>,
}

impl Look {
    pub(super) fn at(block: &[u8]) -> Look {
        Look {
            used_bytes: without_tail(block).len(),
            ..Look::default()
        }
    }
}

/// Looks at the blocks of one volume.
#[derive(Clone)]
pub(super) struct Looker {
    inner: Arc<Inner>,
    volume: u32,
    block_bytes: usize,
    /// Whether equal blocks are looked for.
    is_looking: bool,
}

impl Looker {
    pub(super) fn new(inner: &Arc<Inner>, volume: u32, block_bytes: usize) -> Looker {
        Looker {
            is_looking: inner.lock_duplicates().is_some(),
            inner: Arc::clone(inner),
            volume,
            block_bytes,
        }
    }

    /// Looks at the bytes of a write at an offset, piece by piece, at the pieces that are whole blocks.
    pub(super) fn look(&self, offset: u64, bytes: &[u8]) -> Result<Vec<Option<Look>>> {
        let pieces = pieces(self.block_bytes, offset, bytes.len());
        let looks = pieces.map(|piece| match piece.within.len() < self.block_bytes {
            true => Ok(None),
            false => {
                let block = &bytes[piece.from..piece.from + self.block_bytes];
                self.look_at(piece.index, block).map(Some)
            }
        });
        looks.collect()
    }

    fn look_at(&self, index: u64, block: &[u8]) -> Result<Look> {
        let mut look = Look::at(block);
        let used = &block[..look.used_bytes];
        if used.is_empty() {
            return Ok(look);
        }
        let here = (self.volume, index);
        look.sketch = self.is_looking.then(|| sketch_of(used));
        let may_be_there = look.sketch.is_some_and(|sketch| {
            let duplicates = self.inner.lock_duplicates();
            duplicates
                .as_ref()
                .is_some_and(|index| index.may_have(sketch, here))
        });
        if !may_be_there {
            look.encoded = Some(self.inner.blocks.encode(here, used)?);
        }
        Ok(look)
    }
}

/// A share of a write.
struct Share {
    looker: Looker,
    offset: u64,
    bytes: Arc<Vec<u8>>,
    range: Range<usize>,
}

impl Share {
    fn look(&self) -> Result<Vec<Option<Look>>> {
        let offset = self.offset + self.range.start as u64;
        self.looker.look(offset, &self.bytes[self.range.clone()])
    }
}

type Shares = Stage<Share, Vec<Option<Look>>, ()>;

/// The threads that help a writer.
pub(super) struct Crew {
    pool: Pool,
    worker_count: usize,
    /// Stages that nobody uses, each for one write at a time.
    idle: Mutex<Vec<Shares>>,
}

impl Crew {
    /// Starts that many threads, `None` for none.
    pub(super) fn new(worker_count: usize) -> Result<Option<Crew>> {
        if worker_count == 0 {
            return Ok(None);
        }
        let crew = Crew {
            pool: Pool::new(PoolOptions { worker_count })?,
            worker_count,
            idle: Mutex::default(),
        };
        Ok(Some(crew))
    }

    /// Looks at a long write in so many shares, the first in this thread. When it returns nobody else has `bytes`.
    pub(super) fn look(
        &self,
        looker: &Looker,
        offset: u64,
        bytes: &Arc<Vec<u8>>,
        share_count: usize,
    ) -> Result<Vec<Option<Look>>> {
        let cut = |share: usize| match share == share_count {
            true => bytes.len(),
            false => {
                // The start of a block.
                let at = offset + (bytes.len() * share / share_count) as u64;
                let at = at / looker.block_bytes as u64 * looker.block_bytes as u64;
                at.saturating_sub(offset) as usize
            }
        };
        let share = |number: usize| Share {
            looker: looker.clone(),
            offset,
            bytes: Arc::clone(bytes),
            range: cut(number)..cut(number + 1),
        };
        let mut stage = match self.lock_idle().pop() {
            Some(stage) => stage,
            None => {
                let look = |_: &mut (), share: Share| share.look();
                self.pool.stage(self.worker_count, || (), look)?
            }
        };
        for number in 1..share_count {
            (stage.submit(share(number))).expect("as many places as workers");
        }
        let mut looks = share(0).look();
        while let Some(others) = stage.next_result() {
            looks = looks.and_then(|mut looks| {
                looks.extend(others?);
                Ok(looks)
            });
        }
        self.lock_idle().push(stage);
        looks
    }

    fn lock_idle(&self) -> std::sync::MutexGuard<'_, Vec<Shares>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
