//! Measures methods on blocks: stored bytes and core-seconds each way.
//!
//! Compresses, decompresses, compares, and reads the thread's CPU clock in between. A block that does not shrink is
//! stored raw and charged for the attempt, as every place does. Clocks are read around a batch of blocks and not around
//! each, since reading the thread clock is a system call.

use crate::codec::{Compressor, Decoder, Decompressor, Features, Method};
use crate::decide::{Class, Observation, Profile};
use crate::error::{Error, Result};
use crate::meter::thread_cpu;
use crate::units::Seconds;

/// The bytes that a page store keeps before each stored page: its frame header.
pub const PAGE_HEADER_BYTES: u64 = 32;

/// One measured combination: a method at a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Raw bytes of a block.
    pub block_bytes: usize,
    /// The method.
    pub method: Method,
    /// Measured only on a subsample, since a block takes milliseconds.
    pub slow: bool,
}

/// The sums of a method over some blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Blocks that were measured.
    pub blocks: u64,
    /// Their raw bytes.
    pub raw_bytes: u64,
    /// Their stored bytes.
    pub stored_bytes: u64,
    /// Stored bytes with a page header, each block rounded up to the allocation unit.
    pub allocated_bytes: u64,
    /// Raw bytes, each block rounded up so.
    pub raw_allocated_bytes: u64,
    /// Stored bytes with each file rounded up to the allocation unit, and kept raw where that is no larger.
    pub file_bytes: u64,
    /// Raw bytes with each file rounded up so.
    pub raw_file_bytes: u64,
    /// Seconds of compressing.
    pub encode_seconds: f64,
    /// Seconds of decompressing.
    pub decode_seconds: f64,
}

impl Sums {
    /// Returns the average of one block, as an observation for a profile.
    ///
    /// # Panics
    /// Without a block.
    pub fn of_one_block(&self, class: Class, method: Method) -> Observation {
        assert!(self.blocks > 0, "no block was measured");
        let blocks = self.blocks as f64;
        Observation {
            class,
            method,
            raw_bytes: self.raw_bytes / self.blocks,
            stored_bytes: self.stored_bytes / self.blocks,
            encode: Some(Seconds(self.encode_seconds / blocks)),
            decode: Some(Seconds(self.decode_seconds / blocks)),
        }
    }

    /// Adds the measurements on other blocks.
    pub fn add(&mut self, other: &Sums) {
        self.blocks += other.blocks;
        self.raw_bytes += other.raw_bytes;
        self.stored_bytes += other.stored_bytes;
        self.allocated_bytes += other.allocated_bytes;
        self.raw_allocated_bytes += other.raw_allocated_bytes;
        self.file_bytes += other.file_bytes;
        self.raw_file_bytes += other.raw_file_bytes;
        self.encode_seconds += other.encode_seconds;
        self.decode_seconds += other.decode_seconds;
    }
}

/// Corrects a profile by this machine's speed, in about 2 ms: one cheap method on made-up text.
///
/// # Errors
/// Errors of the codec.
pub fn scale_test(profile: &mut Profile) -> Result<()> {
    let method: Method = "zstd:1".parse()?;
    let mut random = fastrand::Rng::with_seed(2);
    let words = [
        "ether", "storage ", "pays ", "block ", "of ", "the ", "64", ", ", "\n", "read ",
    ];
    let mut text = Vec::with_capacity(SCALE_TEST_BYTES + 16);
    while text.len() < SCALE_TEST_BYTES {
        text.extend_from_slice(words[random.usize(..words.len())].as_bytes());
    }
    text.truncate(SCALE_TEST_BYTES);
    let sums = Bench::new(1).measure(method, &[text.as_slice(); 4])?;
    let class = Class::content(&Features::of(&text));
    profile.scale(&sums.of_one_block(class, method))
}

/// Blocks of one file.
#[derive(Clone, Copy, Debug)]
pub struct FilePart {
    /// How many there are.
    pub blocks: usize,
    /// Whether the file ends with them.
    pub ends_file: bool,
}

/// Extents of one file that a file system compresses one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct ExtentRun {
    /// How many there are.
    pub extents: usize,
    /// Whether they are all of a file.
    pub is_file: bool,
}

/// The most bytes of a file in the metadata of btrfs, compressed or not (btrfs(5), `max_inline`). Uncompressed, the file
/// has at most a sector (Linux, fs/btrfs/inode.c, can_cow_file_range_inline).
const INLINE_BYTES_MAX: usize = 2048;

/// The bytes that warm a method up. Then all blocks at hand do, if these took less than the seconds.
const WARM_UP_BYTES: usize = 64 << 10;
const WARM_UP_SECONDS: f64 = 2e-3;

/// A block of the scale test.
const SCALE_TEST_BYTES: usize = 64 << 10;

/// Workspaces reused from block to block: codec contexts and two buffers.
///
/// Memory: the codecs' workspaces (see `Method::compressor_bytes`), twice the largest batch.
pub struct Bench {
    compressor: Compressor,
    decompressor: Decompressor,
    encoded: Vec<u8>,
    decoded: Vec<u8>,
    /// Start, length and decoder of each block in `encoded`.
    stored: Vec<(usize, usize, Decoder)>,
    warm: Vec<Method>,
    allocation_unit_bytes: u64,
}

impl Bench {
    /// Makes a bench that rounds stored pages up to `allocation_unit_bytes` (at least 1).
    pub fn new(allocation_unit_bytes: u64) -> Bench {
        Bench {
            compressor: Compressor::new(),
            decompressor: Decompressor::new(),
            encoded: Vec::new(),
            decoded: Vec::new(),
            stored: Vec::new(),
            warm: Vec::new(),
            allocation_unit_bytes: allocation_unit_bytes.max(1),
        }
    }

    /// Stores and restores `blocks` by `method`, and returns the bytes and times.
    ///
    /// # Errors
    /// Errors of the codec; `Corrupt` if a restored block differs.
    pub fn measure(&mut self, method: Method, blocks: &[&[u8]]) -> Result<Sums> {
        if !self.warm.contains(&method) {
            // The first calls of a method allocate its contexts, which is not a cost of the blocks.
            let start = thread_cpu();
            let first = &blocks[0][..blocks[0].len().min(WARM_UP_BYTES)];
            self.encode(method, &[first])?;
            self.decode(&[first])?;
            if (thread_cpu() - start).0 < WARM_UP_SECONDS {
                // For fast methods, more of the time goes to tables that grow with the block.
                self.encode(method, blocks)?;
                self.decode(blocks)?;
            }
            self.warm.push(method);
        }
        let start = thread_cpu();
        self.encode(method, blocks)?;
        let encoded = thread_cpu();
        self.decode(blocks)?;
        let decoded = thread_cpu();
        self.compare(blocks)?;
        let mut sums = Sums {
            encode_seconds: (encoded - start).0,
            decode_seconds: (decoded - encoded).0,
            ..Sums::default()
        };
        for (block, (_, length, _)) in blocks.iter().zip(&self.stored) {
            let (raw, stored) = (block.len() as u64, *length as u64);
            let unit = self.allocation_unit_bytes;
            let page = |bytes: u64| bytes.div_ceil(unit) * unit;
            sums.blocks += 1;
            sums.raw_bytes += raw;
            sums.stored_bytes += stored;
            sums.allocated_bytes += page(raw).min(page(stored + PAGE_HEADER_BYTES));
            sums.raw_allocated_bytes += page(raw);
        }
        (sums.file_bytes, sums.raw_file_bytes) = (sums.stored_bytes, sums.raw_bytes);
        Ok(sums)
    }

    /// Counts the blocks of the last measurement as parts of files in whole units. A part that does not end its file
    /// fills no unit up.
    pub fn count_files(&self, sums: &mut Sums, blocks: &[&[u8]], parts: &[FilePart]) {
        (sums.file_bytes, sums.raw_file_bytes) = (0, 0);
        let mut at = 0;
        for part in parts {
            let unit = match part.ends_file {
                true => self.allocation_unit_bytes,
                false => 1,
            };
            let whole = |bytes: usize| (bytes as u64).div_ceil(unit) * unit;
            let of_part = at..at + part.blocks;
            let raw: usize = blocks[of_part.clone()].iter().map(|it| it.len()).sum();
            let stored: usize = self.stored[of_part].iter().map(|it| it.1).sum();
            sums.raw_file_bytes += whole(raw);
            sums.file_bytes += whole(stored).min(whole(raw));
            at += part.blocks;
        }
    }

    /// Counts the blocks of the last measurement as extents that btrfs allocates. Behind an extent that does not save a
    /// unit, the rest of its run stays raw. A short file lies in the metadata, and takes its own bytes there.
    pub fn count_runs(&self, sums: &mut Sums, blocks: &[&[u8]], runs: &[ExtentRun]) {
        let unit = self.allocation_unit_bytes;
        let whole = |bytes: usize| (bytes as u64).div_ceil(unit) * unit;
        (sums.allocated_bytes, sums.raw_allocated_bytes) = (0, 0);
        let mut blocks = (blocks.iter().zip(&self.stored)).map(|(block, of)| (block.len(), of.1));
        for run in runs {
            let mut is_raw = false;
            for (raw, stored) in blocks.by_ref().take(run.extents) {
                let is_short = run.is_file && raw as u64 <= unit;
                let given = |bytes: usize| match is_short && bytes <= INLINE_BYTES_MAX {
                    true => bytes as u64,
                    false => whole(bytes),
                };
                is_raw |= given(stored) >= given(raw);
                sums.raw_allocated_bytes += given(raw);
                sums.allocated_bytes += given(if is_raw { raw } else { stored });
            }
        }
    }

    fn encode(&mut self, method: Method, blocks: &[&[u8]]) -> Result<()> {
        let bytes: usize = blocks.iter().map(|block| block.len()).sum();
        if self.encoded.len() < bytes {
            self.encoded.resize(bytes, 0);
            self.decoded.resize(bytes, 0);
        }
        self.stored.clear();
        let mut start = 0;
        for block in blocks {
            let target = &mut self.encoded[start..start + block.len()];
            // One byte less than raw: a block that does not shrink is not worth a decoder's time.
            let limit = block.len().saturating_sub(1);
            let stored = match self
                .compressor
                .compress(method, block, &mut target[..limit])?
            {
                Some(length) => (start, length, method.decoder()),
                None => {
                    target.copy_from_slice(block);
                    (start, block.len(), Method::STORE.decoder())
                }
            };
            self.stored.push(stored);
            start += block.len();
        }
        Ok(())
    }

    fn decode(&mut self, blocks: &[&[u8]]) -> Result<()> {
        let mut start = 0;
        for (block, (from, length, decoder)) in blocks.iter().zip(&self.stored) {
            let target = &mut self.decoded[start..start + block.len()];
            self.decompressor
                .decompress(*decoder, &self.encoded[*from..from + length], target)?;
            start += block.len();
        }
        Ok(())
    }

    fn compare(&self, blocks: &[&[u8]]) -> Result<()> {
        let mut start = 0;
        for block in blocks {
            if self.decoded[start..start + block.len()] != **block {
                return Err(Error::corrupt(
                    "restored block",
                    start as u64,
                    "the bytes that were compressed",
                    "other bytes",
                ));
            }
            start += block.len();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_stays_raw_behind_a_block_that_does_not_shrink() {
        let mut random = fastrand::Rng::with_seed(2);
        let noise: Vec<u8> = (0..8192).map(|_| random.u8(..)).collect();
        let text = [b'a'; 8192];
        let check = |blocks: &[&[u8]], runs: &[usize], expected: u64| {
            let runs: Vec<ExtentRun> = (runs.iter())
                .map(|&extents| ExtentRun {
                    extents,
                    is_file: false,
                })
                .collect();
            let mut bench = Bench::new(4096);
            let method: Method = "zstd:1".parse().expect("a method");
            let mut sums = bench.measure(method, blocks).expect("a measurement");
            bench.count_runs(&mut sums, blocks, &runs);
            assert_eq!(sums.allocated_bytes, expected * 4096);
        };
        check(&[&text, &noise, &text, &text], &[4], 1 + 2 + 2 + 2);
        check(&[&text, &noise, &text, &text], &[2, 2], 1 + 2 + 1 + 1);
        check(&[&text, &noise, &text, &text], &[1, 1, 1, 1], 1 + 2 + 1 + 1);
        // A block of one unit cannot save one.
        check(&[&text[..4000], &text], &[2], 1 + 2);
    }

    /// The bytes that a btrfs stores: see the test of the advice on it.
    #[test]
    fn a_short_file_lies_in_the_metadata() {
        let mut random = fastrand::Rng::with_seed(2);
        let noise: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
        let text = b"one or two words; ".repeat(400);
        let check = |block: &[u8], is_file: bool, [raw, stored]: [Option<u64>; 2]| {
            let mut bench = Bench::new(4096);
            let method: Method = "zstd:1".parse().expect("a method");
            let mut sums = bench.measure(method, &[block]).expect("a measurement");
            let runs = [ExtentRun {
                extents: 1,
                is_file,
            }];
            let own = [sums.raw_bytes, sums.stored_bytes];
            bench.count_runs(&mut sums, &[block], &runs);
            let expected = [raw.unwrap_or(own[0]), stored.unwrap_or(own[1])];
            let found = [sums.raw_allocated_bytes, sums.allocated_bytes];
            assert_eq!(found, expected, "{} bytes", block.len());
        };
        check(&text[..2048], true, [None, None]);
        check(&text[..2049], true, [Some(4096), None]);
        check(&text[..4096], true, [Some(4096), None]);
        check(&text[..4097], true, [Some(8192), Some(4096)]);
        check(&noise[..2048], true, [None, None]);
        check(&noise[..2049], true, [Some(4096), Some(4096)]);
        // The end of a longer file.
        check(&text[..1000], false, [Some(4096), Some(4096)]);
    }

    #[test]
    fn files_lie_in_whole_units_raw_and_compressed() {
        let text = [b'a'; 20_000];
        let mut random = fastrand::Rng::with_seed(3);
        let noise: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
        let part = |blocks: usize, ends_file: bool| FilePart { blocks, ends_file };
        let check = |blocks: &[&[u8]], files: &[FilePart], raw: u64, stored: Option<u64>| {
            let mut bench = Bench::new(4096);
            let method: Method = "zstd:1".parse().expect("a method");
            let mut sums = bench.measure(method, blocks).expect("a measurement");
            assert_eq!(sums.raw_file_bytes, sums.raw_bytes);
            bench.count_files(&mut sums, blocks, files);
            let stored = stored.unwrap_or(sums.stored_bytes);
            assert_eq!((sums.raw_file_bytes, sums.file_bytes), (raw, stored));
        };
        // A short file takes a unit, compressed or not.
        check(&[&text[..100]], &[part(1, true)], 4096, Some(4096));
        check(&[&text[..5000]], &[part(1, true)], 8192, Some(4096));
        // A file that does not shrink is stored raw.
        check(&[&noise], &[part(1, true)], 8192, Some(8192));
        // Two blocks of one file are filled up once, together.
        let halves = [&text[..8192], &text[8192..]];
        check(&halves, &[part(2, true)], 20_480, Some(4096));
        let two = [&text[..8192], noise.as_slice()];
        check(&two, &[part(1, true), part(1, true)], 16_384, Some(12_288));
        // The middle of a file has only its own bytes.
        check(&[&text], &[part(1, false)], 20_000, None);
    }

    #[test]
    fn sums_are_of_whole_blocks_and_rounded_pages() {
        let text: Vec<u8> = b"what is measured is what is stored. ".repeat(2000);
        let mut random = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..4096).map(|_| random.u8(..)).collect();
        let blocks: Vec<&[u8]> = vec![&text[..16384], &text[16384..32768], &noise];
        let mut bench = Bench::new(4096);
        let method: Method = "zstd:1".parse().expect("a method");
        let sums = bench.measure(method, &blocks).expect("a measurement");
        assert_eq!((sums.blocks, sums.raw_bytes), (3, 36_864));
        // Two compressible pages of one unit each, and one that is kept raw.
        assert_eq!(sums.allocated_bytes, 3 * 4096);
        assert_eq!(sums.raw_allocated_bytes, 36_864);
        // A short file takes a page raw, too: compressing it saves nothing, and costs no more.
        let short = bench.measure(method, &[&text[..56]]);
        let short = short.expect("a measurement");
        let allocated = (short.allocated_bytes, short.raw_allocated_bytes);
        assert_eq!(allocated, (4096, 4096));
        assert!(
            sums.stored_bytes > 4096 && sums.stored_bytes < 8192,
            "{}",
            sums.stored_bytes
        );
    }
}
