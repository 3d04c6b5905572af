//! Zstandard frames assembled without libzstd: raw and run-length blocks, and the check on a finished frame.
//!
//! libzstd has no level that stores, and a search for matches in noise costs up to nine times as much as copying. So
//! raw frames are put together here (RFC 8878, section 3.1.1).

/// Zstandard's magic number.
pub const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
/// A whole frame of no bytes: header of one segment and size 0, one last raw block of size 0.
pub const EMPTY_FRAME: [u8; 9] = [0x28, 0xB5, 0x2F, 0xFD, 0x20, 0, 1, 0, 0];
/// Bytes of the content check.
pub const CHECK_BYTES: usize = 4;
/// The longest block of a frame.
pub const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The flag in byte 4, the frame header's descriptor: the frame ends with a check.
pub const CHECK_FLAG: u8 = 1 << 2;

const SINGLE_SEGMENT: u8 = 1 << 5;
const BLOCK_HEADER_BYTES: usize = 3;
/// Magic number, descriptor, and a size of eight bytes.
const HEAD_BYTES_MAX: usize = 13;
const LAST: u32 = 1;
const RAW: u32 = 0;
const RUN_LENGTH: u32 = 1;

/// Returns the check of a content: the low 32 bits of its XXH64.
pub fn check(content: &[u8]) -> u32 {
    xxhash_rust::xxh64::xxh64(content, 0) as u32
}

/// Returns the bytes of the raw frame of a content.
pub fn raw_frame_bytes(content_bytes: usize) -> usize {
    let blocks = content_bytes.div_ceil(BLOCK_BYTES_MAX).max(1);
    header_bytes(content_bytes) + blocks * BLOCK_HEADER_BYTES + content_bytes + CHECK_BYTES
}

fn header_bytes(content_bytes: usize) -> usize {
    let size_bytes = match content_bytes {
        ..256 => 1,
        256..65_792 => 2,
        65_792..=0xFFFF_FFFF => 4,
        _ => 8,
    };
    MAGIC.len() + 1 + size_bytes
}

/// Writes bytes one behind another.
struct Out<'a> {
    target: &'a mut [u8],
    at: usize,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.target[self.at..][..bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn header(&mut self, content_bytes: usize) {
        self.put(&MAGIC);
        let flags = SINGLE_SEGMENT | CHECK_FLAG;
        let size = content_bytes as u64;
        match header_bytes(content_bytes) {
            6 => self.put(&[flags, size as u8]),
            7 => {
                self.put(&[flags | 1 << 6]);
                self.put(&((size - 256) as u16).to_le_bytes());
            }
            9 => {
                self.put(&[flags | 2 << 6]);
                self.put(&(size as u32).to_le_bytes());
            }
            _ => {
                self.put(&[flags | 3 << 6]);
                self.put(&size.to_le_bytes());
            }
        }
    }

    fn block_header(&mut self, kind: u32, bytes: usize, is_last: bool) {
        let header = (bytes as u32) << 3 | kind << 1 | if is_last { LAST } else { 0 };
        self.put(&header.to_le_bytes()[..BLOCK_HEADER_BYTES]);
    }
}

/// Bytes that are copied before the next are read. So memory is read once, for the check and the copy.
const PIECE_BYTES: usize = 1 << 10;

/// Writes the raw frame of `content`, and returns its bytes, [`raw_frame_bytes`], and its check.
///
/// # Panics
///
/// If the target is too short.
pub fn write_raw(content: &[u8], target: &mut [u8]) -> (usize, u32) {
    let mut out = Out { target, at: 0 };
    out.header(content.len());
    if content.is_empty() {
        out.block_header(RAW, 0, true);
    }
    let mut check = xxhash_rust::xxh64::Xxh64::new(0);
    let count = content.len().div_ceil(BLOCK_BYTES_MAX);
    for (index, block) in content.chunks(BLOCK_BYTES_MAX).enumerate() {
        out.block_header(RAW, block.len(), index + 1 == count);
        for piece in block.chunks(PIECE_BYTES) {
            check.update(piece);
            out.put(piece);
        }
    }
    let check = check.digest() as u32;
    out.put(&check.to_le_bytes());
    (out.at, check)
}

/// The bytes of a raw frame beside its content, to be written around the content in place.
pub struct RawFrame {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: usize,
    /// The header before each block but the last.
    full: [u8; BLOCK_HEADER_BYTES],
    last: [u8; BLOCK_HEADER_BYTES],
    check: [u8; CHECK_BYTES],
}

impl RawFrame {
    /// Makes the frame of a content with this length and check.
    pub fn new(content_bytes: usize, check: u32) -> RawFrame {
        let mut frame = RawFrame {
            head: [0; HEAD_BYTES_MAX],
            head_bytes: header_bytes(content_bytes),
            full: [0; BLOCK_HEADER_BYTES],
            last: [0; BLOCK_HEADER_BYTES],
            check: check.to_le_bytes(),
        };
        let out = |target| Out { target, at: 0 };
        out(&mut frame.head[..]).header(content_bytes);
        out(&mut frame.full[..]).block_header(RAW, BLOCK_BYTES_MAX, false);
        let last_bytes = match content_bytes % BLOCK_BYTES_MAX {
            0 if content_bytes > 0 => BLOCK_BYTES_MAX,
            bytes => bytes,
        };
        out(&mut frame.last[..]).block_header(RAW, last_bytes, true);
        frame
    }

    /// Returns the frame piece by piece; `content` must have the stated length.
    pub fn pieces<'a>(&'a self, content: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let head = std::iter::once(&self.head[..self.head_bytes]);
        let count = content.len().div_ceil(BLOCK_BYTES_MAX);
        let blocks = (0..count.max(1)).flat_map(move |index| {
            let start = index * BLOCK_BYTES_MAX;
            let block = &content[start..content.len().min(start + BLOCK_BYTES_MAX)];
            let header = if index + 1 < count {
                &self.full
            } else {
                &self.last
            };
            [&header[..], block]
        });
        head.chain(blocks).chain(std::iter::once(&self.check[..]))
    }
}

/// Writes the frame of `content_bytes` (at least 1) times `byte` and returns its bytes.
///
/// # Panics
///
/// If the target is shorter than the content's raw frame.
pub fn write_constant(byte: u8, content_bytes: usize, check: u32, target: &mut [u8]) -> usize {
    let mut out = Out { target, at: 0 };
    out.header(content_bytes);
    let mut left = content_bytes;
    while left > 0 {
        let block = left.min(BLOCK_BYTES_MAX);
        left -= block;
        out.block_header(RUN_LENGTH, block, left == 0);
        out.put(&[byte]);
    }
    out.put(&check.to_le_bytes());
    out.at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_made_frames_decode_with_the_library() {
        let lengths = [
            0,
            1,
            255,
            256,
            257,
            65_791,
            65_792,
            131_071,
            131_072,
            131_073,
            1 << 20,
            3_000_001,
        ];
        for length in lengths {
            let mut random = fastrand::Rng::with_seed(length as u64);
            let noise: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            let constant = vec![0xA7; length];
            for content in [noise, constant] {
                let mut frame = vec![0; raw_frame_bytes(length)];
                let written = write_raw(&content, &mut frame);
                assert_eq!(written, (frame.len(), check(&content)));
                let around = RawFrame::new(length, written.1);
                let pieces: Vec<&[u8]> = around.pieces(&content).collect();
                assert!(pieces.concat() == frame, "{length} bytes where they lie");
                let mut back = vec![1; length];
                assert_eq!(zstd_safe::decompress(&mut back[..], &frame), Ok(length));
                assert!(back == content);
                // The check works: another content is refused.
                if let Some(last) = frame.len().checked_sub(CHECK_BYTES + 1) {
                    frame[last] ^= u8::from(length > 0);
                    let outcome = zstd_safe::decompress(&mut back[..], &frame);
                    assert_eq!(outcome.is_err(), length > 0, "{length} bytes");
                }
                if content.first() == Some(&0xA7) && content[length - 1] == 0xA7 && length > 1 {
                    let size = write_constant(0xA7, length, check(&content), &mut frame);
                    let outcome = zstd_safe::decompress(&mut back[..], &frame[..size]);
                    assert_eq!(outcome, Ok(length));
                    assert!(back == content);
                }
            }
        }
        assert_eq!(
            zstd_safe::decompress(&mut [0_u8; 4][..], &EMPTY_FRAME),
            Ok(0)
        );
        assert_eq!(raw_frame_bytes(1 << 20) - (1 << 20), 37);
    }
}
