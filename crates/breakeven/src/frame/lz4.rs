//! LZ4 frames around bare blocks (LZ4 frame format 1.6.3): header, blocks, end mark, check.
//!
//! The encoder writes independent blocks of at most 4 MiB with content size and content check. So a reader can bound
//! its memory and decode blocks by themselves.

use xxhash_rust::xxh32::xxh32;

/// The frame format's magic number, little endian.
pub const MAGIC: [u8; 4] = [0x04, 0x22, 0x4D, 0x18];
/// The longest block of a frame.
pub const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Magic, flags, block size, content size, header check.
pub const HEADER_BYTES: usize = 4 + 1 + 1 + 8 + 1;
/// End mark and content check.
pub const TRAILER_BYTES: usize = 4 + 4;
/// The flag in a block's length for a block that is not compressed.
pub const STORED_FLAG: u32 = 1 << 31;

/// Version 1, independent blocks, content size, content check.
const FLAGS: u8 = 0b0110_1100;

/// Returns the code of the smallest block maximum that holds `block_bytes`: 4 to 7 for 64 KiB,
/// 256 KiB, 1 MiB and 4 MiB.
fn block_code(block_bytes: usize) -> u8 {
    (4..7)
        .find(|&code| block_maximum(code).is_some_and(|most| block_bytes <= most))
        .unwrap_or(7)
}

/// Returns the block maximum of a code, if it is one.
pub fn block_maximum(code: u8) -> Option<usize> {
    (4..=7).contains(&code).then(|| 1 << (8 + 2 * code))
}

/// Writes the header of a frame that holds `content_bytes`.
///
/// # Panics
///
/// If the target is shorter than [`HEADER_BYTES`].
pub fn write_header(content_bytes: usize, target: &mut [u8]) {
    target[..4].copy_from_slice(&MAGIC);
    target[4] = FLAGS;
    target[5] = block_code(content_bytes) << 4;
    target[6..14].copy_from_slice(&(content_bytes as u64).to_le_bytes());
    target[14] = (xxh32(&target[4..14], 0) >> 8) as u8;
}

/// Writes end mark and content check.
///
/// # Panics
///
/// If the target is shorter than [`TRAILER_BYTES`].
pub fn write_trailer(content: &[u8], target: &mut [u8]) {
    target[..4].fill(0);
    target[4..8].copy_from_slice(&xxh32(content, 0).to_le_bytes());
}
