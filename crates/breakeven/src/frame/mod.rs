//! Standard frames in and out: Zstandard, LZ4, .xz and skippable frames, and the seek table.
//!
//! [`Encoder`] makes one whole frame of one block. [`Walk`] finds the end of a frame without decoding it, if its format
//! allows that. [`decode_whole`] decodes a whole frame in memory, [`Decoder`] one that comes in pieces.
//! `docs/format.md` shows the bytes.
//!
//! Promises: the formats' own tools decode all frames written here. No input makes a reader panic or take memory beyond
//! the stated limits. Errors name the byte of the frame.
//!
//! Not here: threads, files, the choice of a block's method.
#![deny(unsafe_code)]

mod decoder;
mod encoder;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod long;
mod lz4;
mod lz4_decoder;
mod seek_table;
mod walk;
mod zstd;

pub use decoder::{Decoder, DecoderLimits, Step, Workspace};
pub use encoder::{Encoded, Encoder, frame_bytes_max, is_portable, is_storable};
pub use long::{BLOCK_BYTES_MAX, LongEncoder, LongOptions, Progress, WINDOW_LOG_MAX};
pub use seek_table::{ENTRY_BYTES, Entry, FOOTER_BYTES, SEEK_TABLE_ENTRIES_MAX, SeekTable};
pub use walk::{Shape, Walk, Walked};
pub use zstd::{EMPTY_FRAME, RawFrame};

use crate::error::{Error, Result};

/// The name of wrong bytes in a reader's errors.
pub(crate) const STREAM: &str = "stream";

/// The kinds of frames that a stream may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A Zstandard frame (RFC 8878).
    Zstd,
    /// A skippable frame (RFC 8878), which holds no content.
    Skippable,
    /// An LZ4 frame (version 1.6).
    Lz4,
    /// An `.xz` stream.
    Xz,
    /// A member of a gzip file (RFC 1952), which is read and never written.
    Gzip,
}

/// Bytes that show the kind of any frame.
pub const MAGIC_BYTES: usize = 6;

/// Returns the name of compressed data with these first bytes, if the programs that pass other data on decode it (zstd's
/// own, and gzip's `zcat`) and this library does not.
pub fn unserved(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x02, 0x21, 0x4C, 0x18, ..] => Some("an LZ4 legacy frame"),
        [0x22..=0x27, 0xB5, 0x2F, 0xFD, ..] => Some("a Zstandard frame before version 0.8"),
        [0x5D, 0, ..] => Some("an .lzma stream"),
        [0x1F, 0x9D, ..] => Some("a .Z file of compress, which `gzip -d` and `uncompress` decode,"),
        _ => None,
    }
}

impl Kind {
    /// Returns the unit of zeros that may stand behind such a frame, any number of times. They are padding of `.xz`.
    /// For gzip they are the zeros that tapes and bsdtar add to a file, which gzip skips as well.
    pub fn padding_bytes(self) -> usize {
        match self {
            Kind::Xz => 4,
            Kind::Gzip | Kind::Zstd | Kind::Skippable | Kind::Lz4 => 1,
        }
    }

    /// Returns the kind of the frame that begins with `bytes`; `None` if none does. Four bytes are enough, except for
    /// `.xz`, which needs six.
    pub fn of(bytes: &[u8]) -> Option<Kind> {
        match bytes {
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Some(Kind::Zstd),
            [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Some(Kind::Skippable),
            [0x04, 0x22, 0x4D, 0x18, ..] => Some(Kind::Lz4),
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Some(Kind::Xz),
            [0x1F, 0x8B, 8, ..] => Some(Kind::Gzip),
            _ => None,
        }
    }

    /// Returns the kind of the frame that begins with `bytes`.
    ///
    /// # Errors
    ///
    /// `Corrupt` at byte 0 if no frame begins so; a known format that is not supported is named.
    pub fn expect(bytes: &[u8]) -> Result<Kind> {
        Kind::of(bytes).ok_or_else(|| {
            let known = match (unserved(bytes), bytes) {
                (Some(known), _) => known,
                (None, [b'B', b'Z', b'h', ..]) => "a bzip2 stream",
                _ => "",
            };
            let first: Vec<String> = (bytes.iter().take(4))
                .map(|byte| format!("{byte:02X}"))
                .collect();
            let found = match (known, bytes.len()) {
                ("", 0) => "nothing".to_string(),
                ("", _) => first.join(" "),
                _ => format!("{known} ({})", first.join(" ")),
            };
            Error::corrupt(STREAM, 0, "a frame of zstd, lz4, xz or gzip", found)
        })
    }

    /// Returns the name people read.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Zstd => "zstd",
            Kind::Skippable => "skippable",
            Kind::Lz4 => "lz4",
            Kind::Xz => "xz",
            Kind::Gzip => "gzip",
        }
    }
}

fn corrupt(offset: u64, expected: impl std::fmt::Display, found: impl std::fmt::Display) -> Error {
    Error::corrupt(STREAM, offset, expected, found)
}

/// Reads a little-endian number of up to 8 bytes.
fn little(bytes: &[u8]) -> u64 {
    (bytes.iter().rev()).fold(0, |value, &byte| value << 8 | u64::from(byte))
}
