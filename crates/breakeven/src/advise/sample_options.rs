//! The sampling: the data, the blocks, the methods, and the time.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::advise::measure::Cell;
use crate::codec::Method;

/// The block sizes in use besides the files' own: cache buffers and database pages.
pub const CACHE_BLOCK_BYTES: usize = 8 << 10;
/// The allowed database pages, powers of two.
pub const PAGE_BYTES: RangeInclusive<usize> = 4 << 10..=128 << 10;
/// The bytes that btrfs compresses at once.
pub const EXTENT_BLOCK_BYTES: usize = 128 << 10;
/// The bytes that btrfs gives to one thread to compress. If an extent does not save a sector, btrfs leaves the rest of
/// these bytes raw.
///
/// Source: Linux, fs/btrfs/inode.c, compress_file_range.
pub const EXTENT_RUN_BYTES: usize = 512 << 10;

/// Returns whether database pages of this size are allowed.
pub fn is_page_size(bytes: usize) -> bool {
    bytes.is_power_of_two() && PAGE_BYTES.contains(&bytes)
}

/// The allowed blocks of files and links.
pub const BLOCK_BYTES: RangeInclusive<usize> = 4 << 10..=1 << 20;

/// The data and the time of sampling.
#[derive(Clone, Debug)]
pub struct SampleOptions {
    /// Seed of the order in which clusters are drawn; printed with the advice.
    pub seed: u64,
    /// Time for drawing and measuring. Default 40 s.
    pub time_limit: Duration,
    /// Drawing stops when the 95 % half-width of every important ratio is below this share of it. Default 0.01.
    pub precision: f64,
    /// Blocks of files and links, 4 KiB to 1 MiB. Default 1 MiB.
    pub block_bytes: usize,
    /// Methods measured on every cluster.
    pub cheap: Vec<Method>,
    /// Further blocks in which cheap methods are measured, if smaller than files' own. Default those of a cache, of
    /// small and usual database pages, and of btrfs.
    pub small_block_bytes: Vec<usize>,
    /// Methods measured on a subsample, at the files' block size only.
    pub slow: Vec<Method>,
    /// The steps of allocated space where pages are stored. Default 4096.
    pub allocation_unit_bytes: u64,
}

impl Default for SampleOptions {
    fn default() -> SampleOptions {
        let methods = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.parse().expect("a method's text"))
                .collect()
        };
        SampleOptions {
            seed: 1,
            time_limit: Duration::from_secs(40),
            precision: 0.01,
            block_bytes: 1 << 20,
            cheap: methods(&["lz4:1", "zstd:1", "zstd:3"]),
            // No tool that takes a setting runs this deflate, so it is measured only on request.
            slow: methods(&["lz4hc:9", "zstd:9", "zstd:19", "bzip2:9", "xz:6"]),
            small_block_bytes: vec![CACHE_BLOCK_BYTES, 4 << 10, 16 << 10, EXTENT_BLOCK_BYTES],
            allocation_unit_bytes: 4096,
        }
    }
}

/// The cells in measuring order: cheap methods at the files' block size, slow ones, small blocks.
pub fn cells(options: &SampleOptions) -> Vec<Cell> {
    let cell = |block_bytes: usize, method: Method, slow: bool| Cell {
        block_bytes,
        method,
        slow,
    };
    let file = options.block_bytes;
    let mut cells: Vec<Cell> = options
        .cheap
        .iter()
        .map(|method| cell(file, *method, false))
        .collect();
    cells.extend(options.slow.iter().map(|method| cell(file, *method, true)));
    for (at, &block_bytes) in options.small_block_bytes.iter().enumerate() {
        if block_bytes < file && !options.small_block_bytes[..at].contains(&block_bytes) {
            cells.extend(
                options
                    .cheap
                    .iter()
                    .map(|method| cell(block_bytes, *method, false)),
            );
        }
    }
    cells
}
