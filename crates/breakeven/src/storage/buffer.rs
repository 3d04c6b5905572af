//! The buffer that direct I/O accepts.
//!
//! It promises an address that is a multiple of [`AlignedBuffer::ALIGNMENT_BYTES`] for as long as
//! it lives, a fixed length, and zeros at the start. It needs no `unsafe`: it owns a vector one
//! alignment too long, never grows it, and shows the aligned part.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// Bytes at an address that direct I/O accepts on every common device.
pub struct AlignedBuffer {
    bytes: Vec<u8>,
    start: usize,
    length_bytes: usize,
}

impl AlignedBuffer {
    /// The alignment of the first byte: a page, the most that any common block device asks for.
    pub const ALIGNMENT_BYTES: usize = 4096;

    /// Makes a buffer of `length_bytes` zeros.
    ///
    /// # Cost
    /// `length_bytes + 4096` bytes of address space, whose untouched pages the system does not back.
    pub fn zeroed(length_bytes: usize) -> AlignedBuffer {
        let bytes = vec![0u8; length_bytes + Self::ALIGNMENT_BYTES];
        let start = bytes.as_ptr().align_offset(Self::ALIGNMENT_BYTES);
        assert!(
            start < Self::ALIGNMENT_BYTES,
            "no aligned byte in {start} bytes"
        );
        AlignedBuffer {
            bytes,
            start,
            length_bytes,
        }
    }
}

impl From<&[u8]> for AlignedBuffer {
    fn from(source: &[u8]) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(source.len());
        buffer.copy_from_slice(source);
        buffer
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length_bytes]
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length_bytes]
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length_bytes)
    }
}

/// Whether all bytes are zeros.
pub fn is_zero(bytes: &[u8]) -> bool {
    // Without an exit within a piece, which is compiled to wide instructions.
    (bytes.chunks(64)).all(|piece| piece.iter().fold(0, |any, byte| any | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_zeroed_and_stays_where_it_is() {
        for length_bytes in [0, 1, 511, 4096, 1 << 20] {
            let mut buffer = AlignedBuffer::zeroed(length_bytes);
            assert_eq!(buffer.len(), length_bytes);
            assert_eq!(buffer.as_ptr().addr() % AlignedBuffer::ALIGNMENT_BYTES, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            let address = buffer.as_ptr();
            let moved = buffer;
            assert_eq!(moved.as_ptr(), address);
            assert!(moved.iter().all(|byte| *byte == 7));
        }
    }
}
