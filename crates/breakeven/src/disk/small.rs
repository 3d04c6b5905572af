//! Disks for proofs of the library and of servers. They are small enough to be read whole for every image that a crash
//! may leave.

use std::cell::Cell;
use std::ops::Range;

use super::DiskOptions;
use crate::blocks::BlocksOptions;

/// The length of a block.
pub const BLOCK_BYTES: usize = 512;
/// Large enough for requests that overlap.
pub const SIZE_BYTES: usize = 16 * BLOCK_BYTES;

thread_local! {
    /// No two openings of a test draw the same generations, and the next run of it draws the same ones.
    static OPENED: Cell<u64> = const { Cell::new(0) };
}

/// Returns the options of such a disk, with other generations each time.
pub fn options() -> DiskOptions {
    let opened = OPENED.with(|opened| opened.replace(opened.get() + 1));
    DiskOptions {
        block_bytes: BLOCK_BYTES as u32,
        duplicates_bytes: 4096,
        // Several threads would have another order in each run.
        threads: 1,
        blocks: BlocksOptions {
            block_bytes_max: BLOCK_BYTES as u32,
            segment_bytes_min: 8192,
            checkpoint_bytes: 6000,
            map_cache_bytes: 1 << 20,
            seed: Some(opened.wrapping_mul(0x9E37_79B9_7F4A_7C15)),
            ..BlocksOptions::default()
        },
    }
}

/// Returns the bytes of the whole blocks of a range, which a trim drops.
pub fn whole_blocks(offset: usize, length: usize) -> Range<usize> {
    whole_blocks_of(BLOCK_BYTES, offset, length)
}

/// As [`whole_blocks`], of blocks of another length.
pub fn whole_blocks_of(block_bytes: usize, offset: usize, length: usize) -> Range<usize> {
    let start = offset.next_multiple_of(block_bytes);
    start..((offset + length) / block_bytes * block_bytes).max(start)
}
