//! The bytes of one file, holes included, in shared 4 KiB blocks.
//!
//! Cloning copies the map of blocks and none of their bytes. That makes it cheap to keep the cached and the durable
//! state of a disk apart, and to build thousands of crash images. Blocks that were never written take no room and read
//! as zeros, so a file may have any size.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// The unit in which space is allocated and given back.
pub(super) const BLOCK_BYTES: usize = 4096;

type Block = [u8; BLOCK_BYTES];

/// A file's content: a size, and the blocks that are allocated.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct SparseBytes {
    size_bytes: u64,
    blocks: BTreeMap<u64, Arc<Block>>,
}

impl SparseBytes {
    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK_BYTES) as u64
    }

    /// Returns how many bytes a write or an allocation of the range would allocate.
    pub(super) fn missing_bytes(&self, offset: u64, length_bytes: u64) -> u64 {
        let Some(last) = last_block(offset, length_bytes) else {
            return 0;
        };
        let first = offset / BLOCK_BYTES as u64;
        let present = self.blocks.range(first..=last).count() as u64;
        (last - first + 1 - present) * BLOCK_BYTES as u64
    }

    /// Copies from `offset` into `out`; returns the bytes up to the end of the file.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let count = self.size_bytes.saturating_sub(offset).min(out.len() as u64) as usize;
        for piece in pieces(offset, count) {
            let target = &mut out[piece.done..piece.done + piece.length];
            match self.blocks.get(&piece.block) {
                Some(block) => target.copy_from_slice(&block[piece.start..][..piece.length]),
                None => target.fill(0),
            }
        }
        count
    }

    /// Writes `bytes` at `offset`, extending the file if needed.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.done..piece.done + piece.length];
            self.block_mut(piece.block)[piece.start..][..piece.length].copy_from_slice(source);
        }
        if !bytes.is_empty() {
            self.size_bytes = self.size_bytes.max(offset + bytes.len() as u64);
        }
    }

    /// Cuts or extends the file; bytes behind the new end are forgotten.
    pub(super) fn truncate(&mut self, size_bytes: u64) {
        if size_bytes < self.size_bytes {
            let end = self.size_bytes.next_multiple_of(BLOCK_BYTES as u64);
            self.punch(size_bytes, end - size_bytes);
            let kept = size_bytes.div_ceil(BLOCK_BYTES as u64);
            self.blocks.split_off(&kept);
        }
        self.size_bytes = size_bytes;
    }

    /// Allocates the blocks of the range, extending the file to its end if needed.
    pub(super) fn allocate(&mut self, offset: u64, length_bytes: u64) {
        let Some(last) = last_block(offset, length_bytes) else {
            return;
        };
        for block in offset / BLOCK_BYTES as u64..=last {
            self.blocks.entry(block).or_insert_with(zero_block);
        }
        self.size_bytes = self.size_bytes.max(offset + length_bytes);
    }

    /// Makes the range read as zeros and gives back the blocks that lie wholly in it.
    pub(super) fn punch(&mut self, offset: u64, length_bytes: u64) {
        let Some(last) = last_block(offset, length_bytes) else {
            return;
        };
        let first = offset / BLOCK_BYTES as u64;
        let touched: Vec<u64> = self.blocks.range(first..=last).map(|(at, _)| *at).collect();
        for block in touched {
            let block_start = block * BLOCK_BYTES as u64;
            let start = offset.saturating_sub(block_start) as usize;
            let end = (offset + length_bytes - block_start).min(BLOCK_BYTES as u64) as usize;
            if end - start == BLOCK_BYTES {
                self.blocks.remove(&block);
            } else {
                self.block_mut(block)[start..end].fill(0);
            }
        }
    }

    fn block_mut(&mut self, block: u64) -> &mut Block {
        Arc::make_mut(self.blocks.entry(block).or_insert_with(zero_block))
    }
}

impl fmt::Debug for SparseBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size_bytes, count) = (self.size_bytes, self.blocks.len());
        write!(f, "SparseBytes({size_bytes} bytes, {count} blocks)")
    }
}

/// The part of a range that lies in one block.
struct Piece {
    block: u64,
    /// Where it starts in the block.
    start: usize,
    length: usize,
    /// The bytes of the range before it.
    done: usize,
}

fn pieces(offset: u64, count: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == count {
            return None;
        }
        let position = offset + done as u64;
        let start = (position % BLOCK_BYTES as u64) as usize;
        let length = (BLOCK_BYTES - start).min(count - done);
        let piece = Piece {
            block: position / BLOCK_BYTES as u64,
            start,
            length,
            done,
        };
        done += length;
        Some(piece)
    })
}

fn last_block(offset: u64, length_bytes: u64) -> Option<u64> {
    let last_byte = (offset + length_bytes).checked_sub(1)?;
    (length_bytes > 0).then_some(last_byte / BLOCK_BYTES as u64)
}

fn zero_block() -> Arc<Block> {
    static ZERO: OnceLock<Arc<Block>> = OnceLock::new();
    Arc::clone(ZERO.get_or_init(|| Arc::new([0; BLOCK_BYTES])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Applies random operations to sparse bytes and to a plain vector and compares all of it.
    #[test]
    fn random_operations_agree_with_a_vector() {
        let mut random = fastrand::Rng::with_seed(crate::storage::test_seed());
        let (mut sparse, mut plain) = (SparseBytes::default(), Vec::<u8>::new());
        for _ in 0..3000 {
            let offset = random.usize(..60_000);
            let length = random.usize(..9000);
            let end = offset + length;
            match random.u8(..5) {
                0 | 1 => {
                    let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
                    if length > 0 {
                        plain.resize(plain.len().max(end), 0);
                    }
                    sparse.write(offset as u64, &bytes);
                    if length > 0 {
                        plain[offset..end].copy_from_slice(&bytes);
                    }
                }
                2 => {
                    sparse.truncate(offset as u64);
                    plain.resize(offset, 0);
                }
                3 => {
                    sparse.punch(offset as u64, length as u64);
                    let size = plain.len();
                    plain[offset.min(size)..end.min(size)].fill(0);
                }
                _ => {
                    let missing = sparse.missing_bytes(offset as u64, length as u64);
                    let before = sparse.allocated_bytes();
                    sparse.allocate(offset as u64, length as u64);
                    assert_eq!(sparse.allocated_bytes(), before + missing);
                    if length > 0 {
                        plain.resize(plain.len().max(end), 0);
                    }
                }
            }
            assert_eq!(sparse.size_bytes(), plain.len() as u64);
            let mut copy = vec![0xAA; plain.len() + 10];
            assert_eq!(sparse.read(0, &mut copy), plain.len());
            assert_eq!(copy[..plain.len()], plain);
        }
    }

    #[test]
    fn a_file_may_be_larger_than_any_memory() {
        let mut sparse = SparseBytes::default();
        sparse.write(1 << 60, b"end");
        assert_eq!(sparse.size_bytes(), (1 << 60) + 3);
        assert_eq!(sparse.allocated_bytes(), BLOCK_BYTES as u64);
        sparse.truncate(5);
        assert_eq!(sparse.allocated_bytes(), 0);
    }
}
