//! Stored blocks, noted in the index of equal blocks: some when a disk was opened, and all when it is compacted.
//! Compacting makes one of equal blocks that were stored apart.

use super::duplicates::{Address, Duplicates, sketch_of};
use super::volume::show_other;
use super::{Disk, Durability};
use crate::blocks::{Snapshot, without_tail};
use crate::error::{Error, Result};

/// One block in so many is noted at least. A copy is found from its first noted block on, and files of less than 64 KiB
/// seldom.
const STRIDE_BLOCKS: u64 = 16;
/// Noted blocks take this part of the index at most, and written ones the rest.
const INDEX_PART: u64 = 4;
/// Blocks seldom shrink below this part, so a file seldom has more than that many times its length.
const RATIO_MOST: u64 = 4;
/// The blocks that are read in one step: some thousandths of a second where the file lies in memory.
const STEP_BLOCKS: usize = 256;
/// The blocks that are looked for in one transaction.
const MERGED_BLOCKS: usize = 1024;

/// Notes some of a disk's blocks, in steps.
pub struct Recall {
    disk: Disk,
    stride: u64,
    left: u64,
    at: Address,
}

impl Disk {
    /// Begins to note some stored blocks in the index of equal blocks, so that copies of them are found. The index
    /// knows nothing written before the disk was opened. The opener calls [`Recall::step`] until it says that nothing
    /// is left, beside any other work.
    pub fn recall(&self) -> Recall {
        let duplicates = self.inner.lock_duplicates();
        let capacity = duplicates.as_ref().map_or(0, Duplicates::capacity) as u64;
        drop(duplicates);
        let left = capacity / INDEX_PART;
        let block_bytes = u64::from(self.inner.options.block_bytes);
        let blocks = self.stats().file_bytes * RATIO_MOST / block_bytes;
        Recall {
            disk: self.clone(),
            stride: STRIDE_BLOCKS.max(blocks.checked_div(left).unwrap_or(0)),
            left,
            at: (0, 0),
        }
    }

    /// Looks for every block among those before it, and shows one of two equal blocks at both addresses. Returns how
    /// many there were. Nobody else writes meanwhile.
    ///
    /// # Errors
    /// Those of reading and writing. A block that cannot be read stays where it is.
    ///
    /// # Cost
    /// Every block is read once, and equal ones twice.
    pub(super) fn merge_equal(&self) -> Result<u64> {
        self.compare_all();
        let before = self.duplicate_stats().found;
        let mut next = Some((0, 0));
        while let Some(at) = next {
            next = self.merge_some(at)?;
        }
        Ok(self.duplicate_stats().found - before)
    }

    /// Does so with some blocks from an address on; returns that of the next.
    fn merge_some(&self, from: Address) -> Result<Option<Address>> {
        let mut transaction = self.inner.blocks.begin()?;
        let mut index = self.inner.lock_duplicates();
        let Some(index) = index.as_mut() else {
            return Ok(None);
        };
        let snapshot = self.inner.blocks.snapshot();
        let mut block = Vec::new();
        let mut next = Some(from);
        for _ in 0..MERGED_BLOCKS {
            let Some(here) = next_stored(&snapshot, next.expect("an address"))? else {
                next = None;
                break;
            };
            next = Some((here.0, here.1 + 1));
            let place = snapshot.locate(here.0, here.1)?;
            let is_same = |from: &Address| matches!(snapshot.locate(from.0, from.1), Ok(other) if other == place);
            // A block that volumes share is not read for each of them.
            let shared = index.beside(here).find(is_same);
            if let Some(from) = shared {
                index.note_shared(from, here);
                continue;
            }
            block.resize(snapshot.block_bytes(here.0)? as usize, 0);
            match transaction.read(here.0, here.1, &mut block) {
                Err(Error::Corrupt { .. }) => continue,
                read => read?,
            };
            let used = without_tail(&block);
            if used.is_empty() {
                continue;
            }
            let sketch = sketch_of(used);
            let shared = index.of_sketch(sketch).find(is_same);
            match shared {
                Some(from) => index.note_shared(from, here),
                None => drop(show_other(&mut transaction, index, (sketch, here), &block)?),
            }
        }
        transaction.commit(Durability::Lazy)?;
        Ok(next)
    }
}

/// Returns the first address at or behind one that has a block, in the order of volumes.
fn next_stored(snapshot: &Snapshot, (volume, index): Address) -> Result<Option<Address>> {
    for number in snapshot.volumes().filter(|number| *number >= volume) {
        let from = if number == volume { index } else { 0 };
        if let Some(found) = snapshot.first_mapped(number, from)? {
            return Ok(Some((number, found)));
        }
    }
    Ok(None)
}

impl Recall {
    /// Reads and notes some blocks; returns whether any are left.
    ///
    /// # Errors
    /// Those of reading; a block that is damaged is passed over.
    pub fn step(&mut self) -> Result<bool> {
        let snapshot = self.disk.inner.blocks.try_snapshot()?;
        let mut block = Vec::new();
        for _ in 0..STEP_BLOCKS {
            let Some(here) = next_stored(&snapshot, self.at)?.filter(|_| self.left > 0) else {
                return Ok(false);
            };
            self.left -= 1;
            self.at = (here.0, (here.1 / self.stride + 1) * self.stride);
            block.resize(snapshot.block_bytes(here.0)? as usize, 0);
            match snapshot.read(here.0, here.1, &mut block) {
                Err(Error::Corrupt { .. }) => continue,
                read => read?,
            }
            let used = without_tail(&block);
            if let Some(index) = &mut *self.disk.inner.lock_duplicates()
                && !used.is_empty()
            {
                index.insert(sketch_of(used), here);
            }
        }
        Ok(true)
    }
}
