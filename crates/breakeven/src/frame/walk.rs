//! The end of a frame, found by its headers alone, without decoding.
//!
//! A [`Walk`] requests a few bytes at some place of the frame, takes them, and requests the next, until it knows the
//! frame's length. In Zstandard and LZ4 frames it goes from block to block, and in skippable ones it ends at once. An
//! `.xz` stream has its length only at its end, so its walk stays open.
//!
//! It checks only the facts that it needs to go on: the decoder must find out whether a frame is sound.

use super::{Kind, MAGIC_BYTES, corrupt, little, lz4, zstd};
use crate::error::{Error, Result};

/// The facts in a frame's header, before its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The format of the frame.
    pub kind: Kind,
    /// The decoded bytes, if the header states them; 0 for a skippable frame.
    pub content_bytes: Option<u64>,
    /// The memory of decoded bytes for decoding in pieces; 0 where it is not stated.
    pub window_bytes: u64,
}

/// The next request of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// The `bytes` bytes that begin `at` bytes into the frame.
    Read { at: u64, bytes: usize },
    /// Nothing: the frame has this many bytes.
    Whole(u64),
    /// Nothing: only decoding finds the end of the frame.
    Open,
}

/// The walk from the start of a frame to its end.
///
/// # Example
///
/// ```
/// use breakeven::frame::{EMPTY_FRAME, Walk, Walked};
///
/// let (mut walk, mut walked) = Walk::begin();
/// while let Walked::Read { at, bytes } = walked {
///     walked = walk.step(&EMPTY_FRAME[at as usize..][..bytes])?;
/// }
/// assert_eq!(walked, Walked::Whole(9));
/// # Ok::<(), breakeven::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    kind: Option<Kind>,
    shape: Option<Shape>,
    place: Place,
    at: u64,
    check_bytes: u64,
    block_check_bytes: u64,
    block_bytes_max: u64,
}

/// The meaning of the requested bytes.
#[derive(Clone, Copy, Debug)]
enum Place {
    Magic,
    Header,
    Block,
}

const SKIPPABLE_HEADER_BYTES: usize = 8;

impl Walk {
    /// Begins at a frame's first byte, and returns the first request.
    pub fn begin() -> (Walk, Walked) {
        let walk = Walk {
            kind: None,
            shape: None,
            place: Place::Magic,
            at: 0,
            check_bytes: 0,
            block_check_bytes: 0,
            block_bytes_max: 0,
        };
        (walk, read(0, MAGIC_BYTES))
    }

    /// Returns the frame's header, once it was read (of `.xz`, its magic number).
    pub fn shape(&self) -> Option<Shape> {
        self.shape
    }

    /// Goes on with the requested bytes.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the byte of the frame if no frame continues so. `Unsupported` for a frame that needs a dictionary
    /// we cannot know.
    ///
    /// # Panics
    ///
    /// If the number of bytes differs from the request.
    pub fn step(&mut self, bytes: &[u8]) -> Result<Walked> {
        match (self.place, self.kind) {
            (Place::Magic, _) => self.magic(bytes),
            (Place::Header, Some(Kind::Skippable)) => self.skippable_header(bytes),
            (Place::Header, Some(Kind::Lz4)) => self.lz4_header(bytes),
            (Place::Header, _) => self.zstd_header(bytes),
            (Place::Block, Some(Kind::Lz4)) => self.lz4_block(bytes),
            (Place::Block, _) => self.zstd_block(bytes),
        }
    }

    fn magic(&mut self, bytes: &[u8]) -> Result<Walked> {
        let kind = Kind::expect(bytes)?;
        self.place = Place::Header;
        self.kind = Some(kind);
        Ok(match kind {
            Kind::Xz | Kind::Gzip => {
                self.set_shape(kind, None, 0);
                Walked::Open
            }
            Kind::Skippable => read(0, SKIPPABLE_HEADER_BYTES),
            Kind::Lz4 => read(0, lz4_header_bytes(bytes[4])),
            Kind::Zstd => read(0, ZstdHeader::of(bytes[4]).bytes()),
        })
    }

    fn skippable_header(&mut self, bytes: &[u8]) -> Result<Walked> {
        let content = little(&bytes[4..8]);
        self.set_shape(Kind::Skippable, Some(0), 0);
        Ok(Walked::Whole(SKIPPABLE_HEADER_BYTES as u64 + content))
    }

    fn set_shape(&mut self, kind: Kind, content_bytes: Option<u64>, window_bytes: u64) {
        self.shape = Some(Shape {
            kind,
            content_bytes,
            window_bytes,
        });
    }

    fn zstd_header(&mut self, bytes: &[u8]) -> Result<Walked> {
        let header = ZstdHeader::of(bytes[4]);
        let (window, rest) = bytes[5..].split_at(header.window_bytes);
        let (dictionary, size) = rest.split_at(header.dictionary_bytes);
        if little(dictionary) != 0 {
            return Err(needs_dictionary(little(dictionary)));
        }
        let content = match header.size_bytes {
            0 => None,
            2 => Some(little(size) + 256),
            _ => Some(little(size)),
        };
        let window_bytes = match window.first() {
            None => content.unwrap_or(0),
            Some(&code) => {
                let base = 1_u64 << (10 + (code >> 3));
                base + base / 8 * u64::from(code & 7)
            }
        };
        self.set_shape(Kind::Zstd, content, window_bytes);
        self.check_bytes = if bytes[4] & zstd::CHECK_FLAG == 0 {
            0
        } else {
            zstd::CHECK_BYTES as u64
        };
        self.block_bytes_max = zstd::BLOCK_BYTES_MAX as u64;
        self.place = Place::Block;
        self.at = header.bytes() as u64;
        Ok(read(self.at, 3))
    }

    fn zstd_block(&mut self, bytes: &[u8]) -> Result<Walked> {
        let header = little(&bytes[..3]);
        let (is_last, kind, size) = (header & 1 == 1, header >> 1 & 3, header >> 3);
        if kind == 3 || size > self.block_bytes_max {
            let found = format!("type {kind} of {size} bytes");
            return Err(corrupt(self.at, "a block of at most 128 KiB", found));
        }
        // A run is one byte, at any length.
        self.at += 3 + if kind == 1 { 1 } else { size };
        Ok(match is_last {
            true => Walked::Whole(self.at + self.check_bytes),
            false => read(self.at, 3),
        })
    }

    fn lz4_header(&mut self, bytes: &[u8]) -> Result<Walked> {
        let flags = bytes[4];
        let maximum = lz4::block_maximum(bytes[5] >> 4);
        let (Some(maximum), 1) = (maximum, flags >> 6) else {
            let found = format!("flags {flags:02X}, block size {:02X}", bytes[5]);
            return Err(corrupt(4, "version 1 and a block size of 4 to 7", found));
        };
        let content = (flags >> 3 & 1 == 1).then(|| little(&bytes[6..14]));
        if flags & 1 == 1 {
            let id = bytes.len() - 5;
            return Err(needs_dictionary(little(&bytes[id..id + 4])));
        }
        self.set_shape(Kind::Lz4, content, maximum as u64);
        self.check_bytes = if flags >> 2 & 1 == 1 { 4 } else { 0 };
        self.block_check_bytes = if flags >> 4 & 1 == 1 { 4 } else { 0 };
        self.block_bytes_max = maximum as u64;
        self.place = Place::Block;
        self.at = bytes.len() as u64;
        Ok(read(self.at, 4))
    }

    fn lz4_block(&mut self, bytes: &[u8]) -> Result<Walked> {
        let length = little(&bytes[..4]);
        if length == 0 {
            return Ok(Walked::Whole(self.at + 4 + self.check_bytes));
        }
        let size = length & u64::from(!lz4::STORED_FLAG);
        if size > self.block_bytes_max {
            let expected = format!("a block of at most {} bytes", self.block_bytes_max);
            return Err(corrupt(self.at, expected, size));
        }
        self.at += 4 + size + self.block_check_bytes;
        Ok(read(self.at, 4))
    }
}

fn read(at: u64, bytes: usize) -> Walked {
    Walked::Read { at, bytes }
}

fn needs_dictionary(id: u64) -> Error {
    Error::Unsupported {
        what: format!("a frame that needs dictionary {id}"),
    }
}

/// Returns the bytes of an LZ4 frame's header by its flags.
fn lz4_header_bytes(flags: u8) -> usize {
    let content_size = if flags >> 3 & 1 == 1 { 8 } else { 0 };
    let dictionary = if flags & 1 == 1 { 4 } else { 0 };
    4 + 1 + 1 + content_size + dictionary + 1
}

/// The fields of a Zstandard frame header, by its descriptor.
struct ZstdHeader {
    window_bytes: usize,
    dictionary_bytes: usize,
    size_bytes: usize,
}

impl ZstdHeader {
    fn of(descriptor: u8) -> ZstdHeader {
        let is_single_segment = descriptor >> 5 & 1 == 1;
        ZstdHeader {
            window_bytes: usize::from(!is_single_segment),
            dictionary_bytes: [0, 1, 2, 4][usize::from(descriptor & 3)],
            size_bytes: match descriptor >> 6 {
                0 => usize::from(is_single_segment),
                flag => 1 << flag,
            },
        }
    }

    fn bytes(&self) -> usize {
        5 + self.window_bytes + self.dictionary_bytes + self.size_bytes
    }
}
