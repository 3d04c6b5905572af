//! The cheap features of a block: the numbers for a classifier, without its decisions.
//!
//! [`Features::of`] reads 4 KiB of a block, in 64 pieces spread over it. It reads all of the block only while every
//! byte is the same. [`Features::with_probe`] also compresses two pieces with LZ4. The places read are fixed by the
//! block's length, so equal blocks have equal features. A [`Glance`] has fewer features, in a fiftieth of the time.
//!
//! No policy here: no thresholds, no classes.

use std::sync::LazyLock;

use super::{Codec, Compressor, Method};
use crate::error::Result;

/// The features of one block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features {
    /// The length of the block in bytes.
    pub block_bytes: usize,
    /// The byte that fills the block, if there is one.
    pub all_equal: Option<u8>,
    /// The entropy of single bytes in bits, 0 to 8, corrected for the size of the sample.
    pub entropy_bits: f64,
    /// The entropy of each byte less the one a stride before it, for the strides of
    /// [`Features::STRIDES`]. Low at 8 means slowly changing 64-bit numbers.
    pub delta_entropy_bits: [f64; 4],
    /// The share of bytes that are printable ASCII, tab, newline or carriage return, 0 to 1.
    pub printable_share: f64,
    /// The ratio (raw over stored, at least 1) of LZ4 on a sample, if it was requested.
    pub probe_ratio: Option<f64>,
}

const PIECES: usize = 64;
const PIECE_BYTES: usize = 64;
const STRIDE_MAX: usize = 8;
const PROBE_BYTES: usize = 16 << 10;

impl Features {
    /// The strides at which delta entropies are taken, in bytes.
    pub const STRIDES: [usize; 4] = [1, 2, 4, 8];

    /// Takes the features of a block.
    ///
    /// # Cost
    ///
    /// Some 10 microseconds for any block of 4 KiB or more, and 20 where it is not in a cache. Leading equal bytes cost
    /// up to 60 microseconds per MiB. No allocation.
    pub fn of(block: &[u8]) -> Features {
        let all_equal = all_equal(block);
        let mut sample = Sample::new();
        match all_equal {
            Some(byte) => sample.bytes[usize::from(byte)] = 1,
            None => sample.gather(block),
        }
        let printable: u32 = (0..=255)
            .filter(|&byte| is_printable(byte))
            .map(|byte| sample.bytes[usize::from(byte)])
            .sum();
        let total: u32 = sample.bytes.iter().sum();
        Features {
            block_bytes: block.len(),
            all_equal,
            entropy_bits: entropy_bits(&sample.bytes),
            delta_entropy_bits: sample.deltas.each_ref().map(entropy_bits),
            printable_share: f64::from(printable) / f64::from(total.max(1)),
            probe_ratio: None,
        }
    }

    /// Takes the features of a block and LZ4's ratio on two pieces of 16 KiB, at one and three quarters of it. A block
    /// that is not longer than both is taken whole.
    ///
    /// # Errors
    ///
    /// As [`Features::probe`].
    ///
    /// # Cost
    ///
    /// As [`Features::of`], and LZ4's time for 32 KiB.
    pub fn with_probe(block: &[u8], compressor: &mut Compressor) -> Result<Features> {
        let mut features = Features::of(block);
        features.probe(block, compressor)?;
        Ok(features)
    }

    /// Takes the features of a block, with the ratio of LZ4 only where `needs_probe` returns true for the others.
    ///
    /// # Errors
    ///
    /// As [`Features::probe`].
    ///
    /// # Cost
    ///
    /// As [`Features::of`], and LZ4's time for 32 KiB where it is taken.
    pub fn as_needed(
        block: &[u8],
        compressor: &mut Compressor,
        needs_probe: impl FnOnce(&Features) -> bool,
    ) -> Result<Features> {
        let mut features = Features::of(block);
        if needs_probe(&features) {
            features.probe(block, compressor)?;
        }
        Ok(features)
    }

    /// Adds the ratio of LZ4 to the features of a block, as [`Features::with_probe`] takes it.
    ///
    /// # Errors
    ///
    /// As [`Compressor::compress`]; on blocks of this size lz4 only fails for want of memory.
    pub fn probe(&mut self, block: &[u8], compressor: &mut Compressor) -> Result<()> {
        let quarter = (block.len() / 4).saturating_sub(PROBE_BYTES / 2);
        let three_quarters = (block.len() - block.len() / 4).saturating_sub(PROBE_BYTES / 2);
        let pieces = if block.len() <= 2 * PROBE_BYTES {
            block.split_at(block.len() / 2)
        } else {
            (
                &block[quarter..][..PROBE_BYTES],
                &block[three_quarters..][..PROBE_BYTES],
            )
        };
        let (mut raw_bytes, mut stored_bytes) = (0, 0);
        let mut target = [0; PROBE_BYTES];
        for piece in [pieces.0, pieces.1] {
            let limit = &mut target[..piece.len()];
            let size = compressor.compress(PROBE, piece, limit)?;
            raw_bytes += piece.len();
            stored_bytes += size.unwrap_or(piece.len());
        }
        self.probe_ratio = Some(raw_bytes.max(1) as f64 / stored_bytes.max(1) as f64);
        Ok(())
    }

    /// Returns the stride of the lowest delta entropy, and that entropy in bits.
    pub fn best_stride(&self) -> (usize, f64) {
        let mut best = (Features::STRIDES[0], self.delta_entropy_bits[0]);
        for (stride, bits) in Features::STRIDES.into_iter().zip(self.delta_entropy_bits) {
            if bits < best.1 {
                best = (stride, bits);
            }
        }
        best
    }
}

/// The features of 256 bytes spread over a block. They let a caller find a class in less time than encoding the block
/// takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// The number of different bytes among them.
    pub distinct: u32,
    /// The number of printable ASCII, tab, newline and carriage return among them.
    pub printable: u32,
}

impl Glance {
    /// The bytes that are read, fewer in a shorter block.
    pub const BYTES: usize = 256;

    /// Looks at a block.
    ///
    /// # Cost
    ///
    /// Some 200 nanoseconds. No allocation.
    pub fn of(block: &[u8]) -> Glance {
        let step = (block.len() / Glance::BYTES).max(1);
        let mut sample = [0u8; Glance::BYTES];
        let mut length = 0;
        while length < Glance::BYTES && length * step < block.len() {
            sample[length] = block[length * step];
            length += 1;
        }
        // A byte for each value and for each sample: no step waits for the one before, and many are counted at once.
        let mut seen = [0u8; 256];
        let mut printable = [0u8; Glance::BYTES];
        for (printable, byte) in printable.iter_mut().zip(&sample[..length]) {
            *printable = u8::from(is_printable(*byte));
            seen[usize::from(*byte)] = 1;
        }
        let count = |ones: &[u8; 256]| {
            let sum = |sum: u16, one: &u8| sum.wrapping_add((*one).into());
            u32::from(ones.iter().fold(0, sum))
        };
        Glance {
            distinct: count(&seen),
            printable: count(&printable),
        }
    }
}

const PROBE: Method = Method::of(Codec::Lz4 { acceleration: 1 });

/// Histograms of the bytes and of their differences at each stride.
struct Sample {
    bytes: [u32; 256],
    deltas: [[u32; 256]; 4],
}

impl Sample {
    fn new() -> Sample {
        Sample {
            bytes: [0; 256],
            deltas: [[0; 256]; 4],
        }
    }

    fn gather(&mut self, block: &[u8]) {
        if block.len() <= PIECES * PIECE_BYTES {
            return self.count(block);
        }
        let slot_bytes = block.len() / PIECES;
        for index in 0..PIECES {
            // The place differs from slot to slot, so that page headers are not the only bytes seen.
            let jitter = (index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
            let offset = jitter as usize % (slot_bytes - PIECE_BYTES + 1);
            self.count(&block[index * slot_bytes + offset..][..PIECE_BYTES]);
        }
    }

    fn count(&mut self, piece: &[u8]) {
        for &byte in piece {
            self.bytes[usize::from(byte)] += 1;
        }
        for window in piece.windows(STRIDE_MAX + 1) {
            let byte = window[STRIDE_MAX];
            for (histogram, stride) in self.deltas.iter_mut().zip(Features::STRIDES) {
                let delta = byte.wrapping_sub(window[STRIDE_MAX - stride]);
                histogram[usize::from(delta)] += 1;
            }
        }
    }
}

fn all_equal(block: &[u8]) -> Option<u8> {
    let (&first, rest) = block.split_first()?;
    (rest == &block[..rest.len()]).then_some(first)
}

/// Without a branch, which would be mispredicted half the time.
fn is_printable(byte: u8) -> bool {
    let is_in = |first: u8, last: u8| byte.wrapping_sub(first) <= last - first;
    is_in(b' ', b'~') | is_in(b'\t', b'\n') | (byte == b'\r')
}

/// Returns the entropy of a histogram in bits, at most 8. The correction of Miller (1955) for samples adds (symbols -
/// 1) / (2 * samples * ln 2).
fn entropy_bits(histogram: &[u32; 256]) -> f64 {
    static PRODUCTS: LazyLock<Vec<f64>> = LazyLock::new(|| {
        let product = |count: usize| count as f64 * (count.max(1) as f64).log2();
        (0..=PIECES * PIECE_BYTES).map(product).collect()
    });
    let (mut total, mut symbols, mut products) = (0u32, 0u32, 0.0);
    for &count in histogram {
        total += count;
        symbols += u32::from(count > 0);
        products += PRODUCTS[count as usize];
    }
    if symbols <= 1 {
        return 0.0;
    }
    let total = f64::from(total);
    let correction = f64::from(symbols - 1) / (2.0 * total * std::f64::consts::LN_2);
    (total.log2() - products / total + correction).min(8.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: f64, expected: f64, tolerance: f64) {
        assert!(
            (found - expected).abs() <= tolerance,
            "found {found}, expected {expected} within {tolerance}"
        );
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(3);
        (0..length).map(|_| random.u8(..)).collect()
    }

    #[test]
    fn constant_blocks_are_seen_in_full() {
        let mut block = vec![b'x'; 1 << 20];
        let features = Features::of(&block);
        assert_eq!(features.all_equal, Some(b'x'));
        assert_eq!(features.entropy_bits, 0.0);
        assert_eq!(features.printable_share, 1.0);
        *block.last_mut().unwrap() = b'y';
        assert_eq!(Features::of(&block).all_equal, None);
        assert_eq!(Features::of(&[0]).all_equal, Some(0));
    }

    #[test]
    fn no_length_is_too_short() {
        let mut compressor = Compressor::new();
        let block = noise(70_000);
        for length in (0..100).chain([4095, 4096, 4097, 32_767, 32_768, 32_769, 70_000]) {
            let features = Features::with_probe(&block[..length], &mut compressor).unwrap();
            assert_eq!(features.block_bytes, length);
            assert!((0.0..=8.0).contains(&features.entropy_bits));
            assert!(features.probe_ratio.unwrap() >= 1.0);
        }
        assert_eq!(Features::of(&[]).all_equal, None);
    }

    #[test]
    fn noise_has_eight_bits_at_every_stride() {
        let mut compressor = Compressor::new();
        let features = Features::with_probe(&noise(1 << 20), &mut compressor).unwrap();
        near(features.entropy_bits, 8.0, 0.05);
        for bits in features.delta_entropy_bits {
            near(bits, 8.0, 0.05);
        }
        near(features.printable_share, 98.0 / 256.0, 0.04);
        assert_eq!(features.probe_ratio, Some(1.0));
    }

    #[test]
    fn the_entropy_is_that_of_the_distribution() {
        let mut random = fastrand::Rng::with_seed(5);
        let four: Vec<u8> = (0..1 << 20).map(|_| b"acgt"[random.usize(..4)]).collect();
        let features = Features::of(&four);
        near(features.entropy_bits, 2.0, 0.02);
        assert_eq!(features.printable_share, 1.0);
    }

    #[test]
    fn a_glance_counts_what_it_sees() {
        let check = |block: &[u8], distinct: std::ops::RangeInclusive<u32>, printable: u32| {
            let glance = Glance::of(block);
            assert!(distinct.contains(&glance.distinct), "{glance:?}");
            assert!(glance.printable.abs_diff(printable) <= 30, "{glance:?}");
        };
        // Of 256 draws from 256 values, 162 differ, five more or less.
        check(&noise(4096), 145..=180, 98);
        check(&noise(100), 60..=100, 38);
        check(&[7; 4096], 1..=1, 0);
        check(b"words and spaces ".repeat(300).as_slice(), 5..=11, 256);
        check(&[], 0..=0, 0);
    }

    #[test]
    fn the_stride_of_numbers_is_found() {
        let check = |numbers: Vec<u8>, expected: usize| {
            let features = Features::of(&numbers);
            let (stride, bits) = features.best_stride();
            assert_eq!(stride, expected, "{features:?}");
            assert!(bits < features.entropy_bits - 0.5, "{features:?}");
        };
        let mut random = fastrand::Rng::with_seed(9);
        check(
            (0..30_000u64)
                .flat_map(|index| (index * 40_503 + random.u64(..60_000)).to_le_bytes())
                .collect(),
            8,
        );
        check(
            (0..60_000u32)
                .flat_map(|index| (index * 991).to_be_bytes())
                .collect(),
            4,
        );
    }

    #[test]
    fn the_probe_tells_text_from_noise() {
        let mut compressor = Compressor::new();
        let text = "what compresses well is worth compressing; ".repeat(30_000);
        let features = Features::with_probe(text.as_bytes(), &mut compressor).unwrap();
        assert!(features.probe_ratio.unwrap() > 50.0);
        assert!(features.printable_share == 1.0);
    }
}
