//! Where contents are cut into chunks: by a gear hash whose table is a secret of the vault.
//!
//! After FastCDC (Xia et al. 2016 and 2020). No cut lies before the least length. The rule is harder before the mean
//! length than behind it, so lengths gather around the mean. The crates for this seed their public table with one
//! number of 64 bits. Here all 256 numbers come from the vault's key: cut points without a key show which known files a
//! vault holds.
//!
//! Promises: cut points follow from the bytes since the last cut, the limits and the table alone, and never change.

use crate::error::{Error, Result};

/// The longest chunk that any vault may have.
pub(super) const CHUNK_BYTES_LIMIT: usize = 4 << 20;
const CHUNK_BYTES_LEAST: usize = 64;
/// Bits that make the rule harder before the mean length, and easier behind it (FastCDC's level 2).
const NORMALIZATION_BITS: u32 = 2;

/// How long chunks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkLimits {
    /// No chunk but the last of a content is shorter. Default 16 KiB.
    pub least_bytes: usize,
    /// The length around which they gather, a power of two. Default 64 KiB.
    pub mean_bytes: usize,
    /// No chunk is longer. Default 256 KiB.
    pub most_bytes: usize,
}

impl Default for ChunkLimits {
    fn default() -> ChunkLimits {
        ChunkLimits {
            least_bytes: 16 << 10,
            mean_bytes: 64 << 10,
            most_bytes: 256 << 10,
        }
    }
}

impl ChunkLimits {
    /// Checks that the lengths are in order and within the format's limits.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they are not.
    pub fn check(&self) -> Result<()> {
        let ChunkLimits {
            least_bytes,
            mean_bytes,
            most_bytes,
        } = *self;
        let is_ordered = CHUNK_BYTES_LEAST <= least_bytes
            && least_bytes < mean_bytes
            && mean_bytes < most_bytes
            && most_bytes <= CHUNK_BYTES_LIMIT;
        match is_ordered && mean_bytes.is_power_of_two() {
            true => Ok(()),
            false => Err(Error::invalid(
                "chunk lengths",
                format!("{self:?}: from 64 bytes to 4 MiB, rising, the mean a power of two"),
            )),
        }
    }
}

/// Finds cut points.
pub(super) struct Chunker {
    table: Box<[u64; 256]>,
    limits: ChunkLimits,
    hard_mask: u64,
    easy_mask: u64,
}

impl Chunker {
    /// Makes the chunker of a vault.
    pub(super) fn new(cut_key: &[u8; 32], limits: ChunkLimits) -> Chunker {
        let mut reader = blake3::Hasher::new_keyed(cut_key).finalize_xof();
        let mut table = Box::new([0; 256]);
        for number in table.iter_mut() {
            let mut bytes = [0; 8];
            reader.fill(&mut bytes);
            *number = u64::from_le_bytes(bytes);
        }
        let bits = limits.mean_bytes.ilog2();
        let highest = |count: u32| u64::MAX << (64 - count);
        Chunker {
            table,
            limits,
            hard_mask: highest(bits + NORMALIZATION_BITS),
            easy_mask: highest(bits - NORMALIZATION_BITS),
        }
    }

    pub(super) fn most_bytes(&self) -> usize {
        self.limits.most_bytes
    }

    /// Returns the length of the first chunk of `bytes`: all of them unless a cut is found. The caller passes the
    /// longest length, or all that is left.
    pub(super) fn cut(&self, bytes: &[u8]) -> usize {
        let ChunkLimits {
            least_bytes,
            mean_bytes,
            most_bytes,
        } = self.limits;
        if bytes.len() <= least_bytes {
            return bytes.len();
        }
        let end = bytes.len().min(most_bytes);
        let middle = mean_bytes.min(end);
        let mut hash = 0;
        let hard = self.find(&bytes[least_bytes..middle], self.hard_mask, &mut hash);
        let mut easy = || self.find(&bytes[middle..end], self.easy_mask, &mut hash);
        match hard {
            Some(at) => least_bytes + at,
            None => easy().map_or(end, |at| middle + at),
        }
    }

    /// Returns the place behind the first byte at which the bits of the mask are zeros.
    fn find(&self, bytes: &[u8], mask: u64, hash: &mut u64) -> Option<usize> {
        let mut rolling = *hash;
        for (at, byte) in bytes.iter().enumerate() {
            rolling = (rolling << 1).wrapping_add(self.table[usize::from(*byte)]);
            if rolling & mask == 0 {
                return Some(at + 1);
            }
        }
        *hash = rolling;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(chunker: &Chunker, mut bytes: &[u8]) -> Vec<usize> {
        let mut cuts = Vec::new();
        while !bytes.is_empty() {
            let cut = chunker.cut(&bytes[..bytes.len().min(chunker.most_bytes())]);
            cuts.push(cut);
            bytes = &bytes[cut..];
        }
        cuts
    }

    fn noise(count: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(crate::testing::seed(20_261_123));
        (0..count).map(|_| random.u8(..)).collect()
    }

    /// The same by the text of the format, byte by byte.
    fn naive(key: &[u8; 32], limits: ChunkLimits, bytes: &[u8]) -> Vec<usize> {
        let mut table = [0; 2048];
        blake3::Hasher::new_keyed(key)
            .finalize_xof()
            .fill(&mut table);
        let number = |byte: u8| {
            let at = usize::from(byte) * 8;
            u64::from_le_bytes(table[at..at + 8].try_into().unwrap())
        };
        let (mut lengths, mut start) = (Vec::new(), 0);
        let bits = (limits.mean_bytes as f64).log2() as u32;
        let (mut hash, mut length) = (0u64, 0);
        while start + length < bytes.len() {
            let byte = bytes[start + length];
            length += 1;
            let mut ends = length == limits.most_bytes || start + length == bytes.len();
            if length > limits.least_bytes {
                hash = hash.wrapping_mul(2).wrapping_add(number(byte));
                let zeros = if length <= limits.mean_bytes {
                    bits + 2
                } else {
                    bits - 2
                };
                ends |= hash.leading_zeros() >= zeros;
            }
            if ends {
                lengths.push(length);
                (start, hash, length) = (start + length, 0, 0);
            }
        }
        lengths
    }

    #[test]
    fn cuts_are_those_of_the_format() {
        let bytes = noise(300_000);
        for (least_bytes, mean_bytes, most_bytes) in
            [(64, 256, 1024), (512, 2048, 4096), (16384, 65536, 262144)]
        {
            let limits = ChunkLimits {
                least_bytes,
                mean_bytes,
                most_bytes,
            };
            limits.check().unwrap();
            let chunker = Chunker::new(&[7; 32], limits);
            assert_eq!(cuts(&chunker, &bytes), naive(&[7; 32], limits, &bytes));
        }
    }

    #[test]
    fn an_insertion_changes_few_chunks_and_another_key_all() {
        let limits = ChunkLimits {
            least_bytes: 256,
            mean_bytes: 1024,
            most_bytes: 4096,
        };
        let mut bytes = noise(400_000);
        let chunker = Chunker::new(&[1; 32], limits);
        let ends = |lengths: &[usize]| -> Vec<usize> {
            lengths
                .iter()
                .scan(0, |end, length| {
                    *end += length;
                    Some(*end)
                })
                .collect()
        };
        let before = ends(&cuts(&chunker, &bytes));
        let other = ends(&cuts(&Chunker::new(&[2; 32], limits), &bytes));
        bytes.insert(1000, 1);
        let after = ends(&cuts(&chunker, &bytes));
        let kept = before
            .iter()
            .filter(|end| after.contains(&(*end + 1)))
            .count();
        assert!(kept + 10 > before.len(), "{kept} of {}", before.len());
        let shared = before.iter().filter(|end| other.contains(end)).count();
        assert!(shared * 50 < before.len(), "{shared} of {}", before.len());
    }
}
