//! One volume as a device: bytes at offsets, aligned or not.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ahead::{Look, Looker};
use super::duplicates::{Address, Duplicates, sketch_of};
use super::{Inner, VolumeStatus, number_of, status};
use crate::blocks::{Durability, Snapshot, Transaction};
use crate::error::{Error, Result};

/// The work that is worth a thread of its own: some ten times the time to start one. Tests have shorter disks.
const SHARE_BYTES: usize = if cfg!(test) { 2 << 10 } else { 256 << 10 };

/// Bytes read and shown at a time. They stay in the processor's cache until they have been copied on.
const PIECE_BYTES: usize = if cfg!(test) { 1 << 10 } else { 128 << 10 };

/// A run of bytes that is stored, or a hole, which reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its length.
    pub length_bytes: u64,
    /// Whether nothing is stored.
    pub is_hole: bool,
}

/// A run of bytes that may differ from an earlier snapshot, or that are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangedExtent {
    /// Its length.
    pub length_bytes: u64,
    /// Whether they may differ.
    pub is_changed: bool,
}

/// A run of bytes in blocks that were looked for, or between them.
struct BlockRun {
    length_bytes: u64,
    is_found: bool,
}

/// A volume of a disk. All methods may be called from several threads.
pub struct Volume {
    inner: Arc<Inner>,
    status: VolumeStatus,
}

/// A part of one block.
pub(super) struct Piece {
    pub(super) index: u64,
    /// The range of bytes within the block.
    pub(super) within: Range<usize>,
    /// Their offset in the bytes that are read or written.
    pub(super) from: usize,
}

/// Returns a range's parts of blocks.
pub(super) fn pieces(
    block_bytes: usize,
    offset: u64,
    length: usize,
) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let start = (at % block_bytes as u64) as usize;
        let count = (block_bytes - start).min(length - done);
        let piece = Piece {
            index: at / block_bytes as u64,
            within: start..start + count,
            from: done,
        };
        done += count;
        (count > 0).then_some(piece)
    })
}

impl Volume {
    pub(super) fn new(inner: Arc<Inner>, status: VolumeStatus) -> Volume {
        Volume { inner, status }
    }

    /// Returns the facts about the volume.
    pub fn status(&self) -> &VolumeStatus {
        &self.status
    }

    fn block_bytes(&self) -> usize {
        self.status.block_bytes as usize
    }

    fn check(&self, offset: u64, length_bytes: u64) -> Result<()> {
        let size_bytes = self.status.size_bytes;
        match offset.checked_add(length_bytes) {
            Some(end) if end <= size_bytes => Ok(()),
            _ => {
                let reason =
                    format!("{length_bytes} bytes at {offset} of a volume of {size_bytes}");
                Err(Error::invalid("range", reason))
            }
        }
    }

    fn check_writable(&self) -> Result<()> {
        if self.status.is_read_only {
            let reason = format!(
                "'{}' is a snapshot, which nobody can write",
                self.status.name
            );
            return Err(Error::invalid("volume", reason));
        }
        Ok(())
    }

    fn pieces(&self, offset: u64, length: usize) -> impl Iterator<Item = Piece> + use<> {
        pieces(self.block_bytes(), offset, length)
    }

    /// Fills `target` from `offset`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if that passes the end, [`Error::Corrupt`] if the stored bytes differ from the written ones,
    /// and those of reading.
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        self.check(offset, target.len() as u64)?;
        self.read_at(&self.inner.blocks.snapshot(), offset, target)
    }

    /// Reads a range piece by piece, each as it is at that moment, and hands each to `show` with its offset. The pieces
    /// come in any order, and from several threads if the range is long, so that one is shown while the next is
    /// decoded. The pieces are read into `scratch`, which gets the length that is needed.
    ///
    /// # Errors
    /// As [`Volume::read`], and those of `show`; pieces may have been shown before.
    pub fn read_in_pieces<E: From<Error> + Send>(
        &self,
        offset: u64,
        length_bytes: u64,
        scratch: &mut Vec<u8>,
        show: impl Fn(u64, &[u8]) -> std::result::Result<(), E> + Sync,
    ) -> std::result::Result<(), E> {
        self.check(offset, length_bytes)?;
        if length_bytes == 0 {
            return Ok(());
        }
        let end = offset + length_bytes;
        // Both are powers of two.
        let piece_bytes = PIECE_BYTES.max(self.block_bytes()) as u64;
        let pieces = offset / piece_bytes..end.div_ceil(piece_bytes);
        let count = (pieces.end - pieces.start) as usize;
        let threads = count.min(self.inner.options.threads.max(1));
        scratch.resize(threads * piece_bytes as usize, 0);
        let next = AtomicU64::new(pieces.start);
        let work = |target: &mut [u8]| {
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= pieces.end {
                    return Ok(());
                }
                let start = (piece * piece_bytes).max(offset);
                let end = ((piece + 1) * piece_bytes).min(end);
                let target = &mut target[..(end - start) as usize];
                // A receiver may take long over a piece, and a lent block is not written over.
                let read = self.read_at(&self.inner.blocks.snapshot(), start, target);
                if let Err(error) = read.map_err(E::from).and_then(|()| show(start, target)) {
                    // Nobody needs the others any more.
                    next.store(pieces.end, Ordering::Relaxed);
                    return Err(error);
                }
            }
        };
        side_by_side(scratch.chunks_mut(piece_bytes as usize), &work)
    }

    /// Says whether all of a range is holes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range passes the end, and those of reading the map.
    pub fn is_hole(&self, offset: u64, length_bytes: u64) -> Result<bool> {
        self.check(offset, length_bytes)?;
        let block_bytes = u64::from(self.status.block_bytes);
        let snapshot = self.inner.blocks.snapshot();
        let end = (offset + length_bytes).div_ceil(block_bytes);
        let mapped = snapshot.first_mapped(self.status.number, offset / block_bytes)?;
        Ok(mapped.is_none_or(|mapped| mapped >= end))
    }

    fn read_at(&self, snapshot: &Snapshot, offset: u64, target: &mut [u8]) -> Result<()> {
        let whole = self.whole_blocks(offset, target.len() as u64);
        let block_bytes = self.block_bytes();
        if !whole.is_empty() {
            let from = (whole.start * block_bytes as u64 - offset) as usize;
            let length = (whole.end - whole.start) as usize * block_bytes;
            self.read_whole(snapshot, whole.start, &mut target[from..from + length])?;
        }
        let mut block = Vec::new();
        let partial = |piece: &Piece| piece.within.len() < block_bytes;
        for piece in self.pieces(offset, target.len()).filter(partial) {
            block.resize(block_bytes, 0);
            snapshot.read(self.status.number, piece.index, &mut block)?;
            target[piece.from..piece.from + piece.within.len()]
                .copy_from_slice(&block[piece.within]);
        }
        Ok(())
    }

    /// Reads whole blocks, a long run in several threads.
    fn read_whole(&self, snapshot: &Snapshot, first: u64, target: &mut [u8]) -> Result<()> {
        let block_bytes = self.block_bytes();
        let shares = self.shares(target.len());
        let blocks = (target.len() / block_bytes).div_ceil(shares);
        let read = |(share, target): (usize, &mut [u8])| {
            let first = first + (share * blocks) as u64;
            snapshot.read_run(self.status.number, first, target)
        };
        side_by_side(target.chunks_mut(blocks * block_bytes).enumerate(), &read)
    }

    /// Returns the number of shares for work on so many bytes at a time.
    fn shares(&self, bytes: usize) -> usize {
        (bytes / SHARE_BYTES).clamp(1, self.inner.options.threads.max(1))
    }

    /// Writes `bytes` at `offset`: after a crash all of them or none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if that passes the end or the volume is a snapshot. [`Error::Limit`] if there is no room;
    /// nothing has changed then. Those of writing.
    ///
    /// # Cost
    /// Each block that is written in part is read first.
    pub fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<()> {
        self.check(offset, bytes.len() as u64)?;
        self.check_writable()?;
        let looks = match bytes.len() < SHARE_BYTES {
            true => Vec::new(),
            false => self.looker().look(offset, bytes)?,
        };
        self.write_looked_at(offset, bytes, &looks, durability)
    }

    /// Writes `bytes` as [`Volume::write`] does, with the help of the disk's threads if there are many. They are lent
    /// to the threads, and given back.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn write_lent(
        &self,
        offset: u64,
        bytes: &mut Vec<u8>,
        durability: Durability,
    ) -> Result<()> {
        let shares = self.shares(bytes.len());
        let Some(crew) = self.inner.crew.as_ref().filter(|_| shares > 1) else {
            return self.write(offset, bytes, durability);
        };
        self.check(offset, bytes.len() as u64)?;
        self.check_writable()?;
        let lent = Arc::new(std::mem::take(bytes));
        let looks = crew.look(&self.looker(), offset, &lent, shares);
        let written =
            looks.and_then(|looks| self.write_looked_at(offset, &lent, &looks, durability));
        *bytes = Arc::try_unwrap(lent).unwrap_or_default();
        written
    }

    fn looker(&self) -> Looker {
        Looker::new(&self.inner, self.status.number, self.block_bytes())
    }

    /// Writes bytes with the results of their looks. Where `looks` has nothing, nothing is known of the bytes.
    fn write_looked_at(
        &self,
        offset: u64,
        bytes: &[u8],
        looks: &[Option<Look>],
        durability: Durability,
    ) -> Result<()> {
        let block_bytes = self.block_bytes();
        let mut writing = self.begin(bytes.len() as u64)?;
        let mut block = Vec::new();
        for (at, piece) in self.pieces(offset, bytes.len()).enumerate() {
            let new = &bytes[piece.from..piece.from + piece.within.len()];
            if new.len() == block_bytes {
                match looks.get(at).and_then(Option::as_ref) {
                    Some(look) => writing.put_as(piece.index, new, look)?,
                    None => writing.put(piece.index, new)?,
                }
            } else {
                block.resize(block_bytes, 0);
                writing.read(piece.index, &mut block)?;
                block[piece.within].copy_from_slice(new);
                writing.put(piece.index, &block)?;
            }
        }
        writing.commit(durability)
    }

    /// Makes a range read as zeros; whole blocks become holes.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn zero(&self, offset: u64, length_bytes: u64, durability: Durability) -> Result<()> {
        self.check(offset, length_bytes)?;
        self.check_writable()?;
        let block_bytes = u64::from(self.status.block_bytes);
        let whole = self.whole_blocks(offset, length_bytes);
        let mut writing = self.begin(0)?;
        let end = offset + length_bytes;
        let inside = whole.start * block_bytes..whole.end * block_bytes;
        let edges = match whole.is_empty() {
            true => [offset..end, end..end],
            false => [offset..inside.start, inside.end..end],
        };
        for edge in edges {
            self.clear(&mut writing, edge)?;
        }
        writing.trim(whole)?;
        writing.commit(durability)
    }

    /// Fills parts of blocks with zeros.
    fn clear(&self, writing: &mut Writing<'_>, range: Range<u64>) -> Result<()> {
        let mut block = vec![0; self.block_bytes()];
        for piece in self.pieces(range.start, (range.end - range.start) as usize) {
            writing.read(piece.index, &mut block)?;
            block[piece.within].fill(0);
            writing.put(piece.index, &block)?;
        }
        Ok(())
    }

    /// Gives the whole blocks of a range back, which then read as zeros. The rest of it stays as it was. The last block
    /// is a whole one where the volume ends within it.
    ///
    /// # Errors
    /// As [`Volume::write`].
    pub fn trim(&self, offset: u64, length_bytes: u64, durability: Durability) -> Result<()> {
        self.check(offset, length_bytes)?;
        self.check_writable()?;
        let mut writing = self.begin_trim()?;
        let whole = self.whole_blocks(offset, length_bytes);
        let end = offset + length_bytes;
        let last = whole.end * u64::from(self.status.block_bytes);
        writing.trim(whole)?;
        // The volume may have grown since this handle was opened. Bytes behind its end stay as they are.
        if end == self.status.size_bytes && (offset..end).contains(&last) {
            self.clear(&mut writing, last..end)?;
        }
        writing.commit(durability)
    }

    /// Returns the blocks that lie in a range with all their bytes.
    fn whole_blocks(&self, offset: u64, length_bytes: u64) -> Range<u64> {
        let block_bytes = u64::from(self.status.block_bytes);
        let start = offset.div_ceil(block_bytes);
        start..((offset + length_bytes) / block_bytes).max(start)
    }

    /// Returns the stored parts and holes of a range: extents from its start, with no two neighbours alike. They end
    /// with the range, or where `blocks_max` blocks are stored, and cover at least one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the range is empty or passes the end, and those of reading the map.
    pub fn extents(&self, range: Range<u64>, blocks_max: u64) -> Result<Vec<Extent>> {
        let snapshot = self.inner.blocks.snapshot();
        let number = self.status.number;
        let next = |blocks: Range<u64>, most| snapshot.next_mapped_within(number, blocks, most);
        let runs = self.runs(range, blocks_max, next)?;
        let extent = |run: BlockRun| Extent {
            length_bytes: run.length_bytes,
            is_hole: !run.is_found,
        };
        Ok(runs.into_iter().map(extent).collect())
    }

    /// Returns the parts of a range that may differ from the snapshot of a name, which was made of this volume or of
    /// its original. They are extents from its start, with no two neighbours alike. They end with the range, or where
    /// `blocks_max` blocks differ, and cover at least one.
    ///
    /// # Errors
    /// As [`Volume::extents`]; [`Error::Invalid`] if no snapshot of blocks of this length has the name.
    ///
    /// # Cost
    /// A walk over the parts of the two maps that differ.
    pub fn changes(
        &self,
        since: &str,
        range: Range<u64>,
        blocks_max: u64,
    ) -> Result<Vec<ChangedExtent>> {
        let snapshot = self.inner.blocks.snapshot();
        let since = status(&snapshot, number_of(&snapshot, since)?)?;
        if !since.is_read_only {
            let reason = format!("'{}' is no snapshot", since.name);
            return Err(Error::invalid("volume", reason));
        }
        let numbers = [since.number, self.status.number];
        let next =
            |blocks: Range<u64>, most| snapshot.next_difference_within(numbers, blocks, most);
        let runs = self.runs(range, blocks_max, next)?;
        let extent = |run: BlockRun| ChangedExtent {
            length_bytes: run.length_bytes,
            is_changed: run.is_found,
        };
        Ok(runs.into_iter().map(extent).collect())
    }

    /// Returns the parts of a range: the runs of found blocks, and the runs between them.
    fn runs(
        &self,
        range: Range<u64>,
        blocks_max: u64,
        next: impl Fn(Range<u64>, u64) -> Result<Option<Range<u64>>>,
    ) -> Result<Vec<BlockRun>> {
        let length_bytes = range.end.saturating_sub(range.start);
        self.check(range.start, length_bytes)?;
        if length_bytes == 0 {
            return Err(Error::invalid("range", "it is empty"));
        }
        let block_bytes = u64::from(self.status.block_bytes);
        let end = range.end.div_ceil(block_bytes);
        let mut runs: Vec<BlockRun> = Vec::new();
        let mut at = range.start;
        let mut add = |until: u64, is_found: bool| {
            let until = until.min(range.end);
            if until > at {
                let length_bytes = until - at;
                runs.push(BlockRun {
                    length_bytes,
                    is_found,
                });
                at = until;
            }
        };
        let mut from = range.start / block_bytes;
        let mut left = blocks_max.max(1);
        while from < end && left > 0 {
            let Some(found) = next(from..end, left)? else {
                add(range.end, false);
                break;
            };
            add(found.start * block_bytes, false);
            add(found.end * block_bytes, true);
            left -= found.end - found.start;
            from = found.end;
        }
        Ok(runs)
    }

    /// Makes everything durable that was written before, to all volumes of the disk.
    ///
    /// # Errors
    /// As [`super::Disk::flush`].
    pub fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn begin(&self, bytes: u64) -> Result<Writing<'_>> {
        let transaction = self.inner.begin(bytes)?;
        Ok(Writing::new(self, transaction))
    }

    /// Trims find room where writes find none: they make some.
    fn begin_trim(&self) -> Result<Writing<'_>> {
        Ok(Writing::new(self, self.inner.blocks.begin()?))
    }
}

/// A transaction on one volume.
struct Writing<'v> {
    volume: u32,
    inner: &'v Inner,
    transaction: Transaction,
    /// Blocks of zeros that are not trimmed yet.
    zeros: Range<u64>,
    /// The blocks that were written.
    written_bytes: u64,
    trimmed_blocks: u64,
}

impl<'v> Writing<'v> {
    fn new(volume: &'v Volume, transaction: Transaction) -> Writing<'v> {
        Writing {
            volume: volume.status.number,
            inner: &volume.inner,
            transaction,
            zeros: 0..0,
            written_bytes: 0,
            trimmed_blocks: 0,
        }
    }

    fn read(&mut self, index: u64, block: &mut [u8]) -> Result<()> {
        self.settle_zeros()?;
        self.transaction.read(self.volume, index, block)?;
        Ok(())
    }

    fn trim(&mut self, range: Range<u64>) -> Result<()> {
        self.settle_zeros()?;
        if !range.is_empty() {
            self.trimmed_blocks += range.end - range.start;
            self.transaction.trim(self.volume, range)?;
        }
        Ok(())
    }

    fn settle_zeros(&mut self) -> Result<()> {
        let zeros = std::mem::take(&mut self.zeros);
        if !zeros.is_empty() {
            self.transaction.trim(self.volume, zeros)?;
        }
        Ok(())
    }

    fn put(&mut self, index: u64, block: &[u8]) -> Result<()> {
        self.put_as(index, block, &Look::at(block))
    }

    /// Writes a block: as a hole, as another address of one that is there, or its bytes.
    fn put_as(&mut self, index: u64, block: &[u8], look: &Look) -> Result<()> {
        if look.used_bytes == 0 {
            if self.zeros.end != index || self.zeros.is_empty() {
                self.settle_zeros()?;
                self.zeros = index..index;
            }
            self.zeros.end = index + 1;
            return Ok(());
        }
        self.settle_zeros()?;
        self.written_bytes += block.len() as u64;
        let inner = self.inner;
        let here = (self.volume, index);
        let mut duplicates = inner.lock_duplicates();
        let is_there = match duplicates.as_mut() {
            Some(duplicates) => {
                let sketch = || sketch_of(&block[..look.used_bytes]);
                let sketch = look.sketch.unwrap_or_else(sketch);
                show_other(&mut self.transaction, duplicates, (sketch, here), block)?
            }
            None => false,
        };
        match &look.encoded {
            _ if is_there => Ok(()),
            None => self.transaction.write(self.volume, index, block),
            Some(encoded) => self.transaction.write_encoded(here, block, encoded),
        }
    }

    fn commit(mut self, durability: Durability) -> Result<()> {
        self.settle_zeros()?;
        self.transaction.commit(durability)?;
        self.inner.written.add(self.written_bytes);
        self.inner.written.note_trimmed(self.trimmed_blocks);
        Ok(())
    }
}

/// Shows a stored block at an address, if one of the same bytes is found; notes this one otherwise.
pub(super) fn show_other(
    transaction: &mut Transaction,
    duplicates: &mut Duplicates,
    (sketch, here): (u64, Address),
    block: &[u8],
) -> Result<bool> {
    let mut other = Vec::new();
    for from in duplicates.candidates(sketch, here) {
        other.resize(block.len(), 0);
        // A volume that is gone, or one of other blocks, is no candidate any more.
        let read = transaction.read(from.0, from.1, &mut other);
        let equal = read.ok().filter(|_| other == block);
        duplicates.note_compared(from, here, equal);
        if equal.is_none() {
            continue;
        }
        if from != here {
            transaction.alias(from, here)?;
        }
        return Ok(true);
    }
    duplicates.insert(sketch, here);
    Ok(false)
}

/// Does the shares of some work, in this thread and in as many others as the system starts beside it. Returns the first
/// error.
fn side_by_side<S: Send, E: Send>(
    shares: impl ExactSizeIterator<Item = S> + Send,
    work: &(impl Fn(S) -> std::result::Result<(), E> + Sync),
) -> std::result::Result<(), E> {
    let count = shares.len();
    let shares = Mutex::new(shares);
    let next = || {
        let mut shares = shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.next()
    };
    let work = || std::iter::from_fn(next).try_for_each(work);
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, work).ok();
        let others: Vec<_> = (1..count).filter_map(spawn).collect();
        let mut result = work();
        for other in others {
            let other = other
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(other);
        }
        result
    })
}
