//! One block in, one whole frame out, by any method that has a standard frame.

use super::{lz4, zstd};
use crate::codec::{Codec, Compressor, Filter, Method};
use crate::error::{Error, Result};

/// One finished frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Bytes of the frame.
    pub frame_bytes: usize,
    /// The low 32 bits of the XXH64 of the block, for the seek table.
    pub check: u32,
    /// Whether the method's frame was kept; otherwise the block is stored raw or as a run.
    pub used_method: bool,
}

/// Makes frames, and holds the working memory of every method in use.
///
/// # Cost
///
/// Memory as [`Method::compressor_bytes`]. In the steady state nothing is allocated, but for xz,
/// which allocates for each frame.
#[derive(Default)]
pub struct Encoder {
    compressor: Compressor,
}

/// Returns whether a method has a frame that stock readers know.
pub fn is_storable(method: Method) -> bool {
    match (method.codec, method.filter) {
        _ if method.dictionary => false,
        (Codec::Deflate { .. } | Codec::Bzip2 { .. } | Codec::Fsst, _)
        | (_, Filter::Shuffle { .. }) => false,
        (Codec::Store | Codec::Lz4 { .. } | Codec::Lz4Hc { .. }, _) => true,
        (Codec::Zstd { .. } | Codec::Xz { .. }, _) => true,
    }
}

/// Returns whether a method's frame is a Zstandard frame.
pub fn is_portable(method: Method) -> bool {
    is_storable(method) && matches!(method.codec, Codec::Store | Codec::Zstd { .. })
}

/// Returns the most bytes of a block's frame by any method: those of the raw frame.
pub fn frame_bytes_max(block_bytes: usize) -> usize {
    zstd::raw_frame_bytes(block_bytes)
}

impl Encoder {
    /// Makes an encoder that holds no memory yet.
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Returns the compressor, for features of the block to be encoded.
    pub fn compressor(&mut self) -> &mut Compressor {
        &mut self.compressor
    }

    /// Writes the frame of `block` by `method`. It writes the raw frame if that is not larger, and the frame of a run
    /// if all bytes are equal.
    ///
    /// # Errors
    ///
    /// `Unsupported` for a method without a standard frame; as [`Compressor::compress`].
    ///
    /// # Panics
    ///
    /// If the target is shorter than [`frame_bytes_max`] of the block.
    pub fn encode(&mut self, method: Method, block: &[u8], target: &mut [u8]) -> Result<Encoded> {
        assert!(
            target.len() >= frame_bytes_max(block.len()),
            "a target too short for a frame"
        );
        if method == Method::STORE && constant(block).is_none() {
            let (frame_bytes, check) = zstd::write_raw(block, target);
            return Ok(Encoded {
                frame_bytes,
                check,
                used_method: true,
            });
        }
        let (encoded, is_left) = self.encode_or_leave(method, block, target)?;
        if is_left {
            let mut at = 0;
            for piece in zstd::RawFrame::new(block.len(), encoded.check).pieces(block) {
                target[at..][..piece.len()].copy_from_slice(piece);
                at += piece.len();
            }
        }
        Ok(encoded)
    }

    /// Writes the frame of `block` as [`Encoder::encode`] does, unless that is the raw frame. The raw frame is left for
    /// the caller, to be written around the block in place ([`super::RawFrame`]). Returns whether that is so.
    ///
    /// # Errors
    ///
    /// As [`Encoder::encode`].
    ///
    /// # Panics
    ///
    /// As [`Encoder::encode`].
    pub fn encode_or_leave(
        &mut self,
        method: Method,
        block: &[u8],
        target: &mut [u8],
    ) -> Result<(Encoded, bool)> {
        if !is_storable(method) {
            return Err(Error::Unsupported {
                what: format!("{method} in a stream: no stock reader knows such a frame"),
            });
        }
        let raw_bytes = frame_bytes_max(block.len());
        let check = zstd::check(block);
        let encoded = |frame_bytes, used_method| Encoded {
            frame_bytes,
            check,
            used_method,
        };
        if let Some(byte) = constant(block) {
            let bytes = zstd::write_constant(byte, block.len(), check, target);
            return Ok((encoded(bytes, false), false));
        }
        // A frame must be smaller than the raw one to be worth decoding.
        let room = &mut target[..raw_bytes - 1];
        let size = match method.codec {
            Codec::Zstd { .. } => self.encode_zstd(method, block, check, room)?,
            Codec::Lz4 { .. } | Codec::Lz4Hc { .. } => self.encode_lz4(method, block, room)?,
            Codec::Xz { .. } => self.compressor.compress_checked(method, block, room)?,
            _ => None,
        };
        Ok(match size {
            Some(bytes) => (encoded(bytes, true), false),
            None => (encoded(raw_bytes, method == Method::STORE), true),
        })
    }

    fn encode_zstd(
        &mut self,
        method: Method,
        block: &[u8],
        check: u32,
        room: &mut [u8],
    ) -> Result<Option<usize>> {
        let Some(limit) = room.len().checked_sub(zstd::CHECK_BYTES) else {
            return Ok(None);
        };
        let size = self
            .compressor
            .compress(method, block, &mut room[..limit])?;
        Ok(size.map(|size| {
            // The codec writes no check: the frame gets one here, and the table uses it again.
            room[zstd::MAGIC.len()] |= zstd::CHECK_FLAG;
            room[size..][..zstd::CHECK_BYTES].copy_from_slice(&check.to_le_bytes());
            size + zstd::CHECK_BYTES
        }))
    }

    fn encode_lz4(
        &mut self,
        method: Method,
        block: &[u8],
        room: &mut [u8],
    ) -> Result<Option<usize>> {
        let Some(end) = room.len().checked_sub(lz4::TRAILER_BYTES) else {
            return Ok(None);
        };
        if end < lz4::HEADER_BYTES {
            return Ok(None);
        }
        lz4::write_header(block.len(), room);
        let mut at = lz4::HEADER_BYTES;
        for piece in block.chunks(lz4::BLOCK_BYTES_MAX) {
            let Some(limit) = end.checked_sub(at + 4) else {
                return Ok(None);
            };
            let (length, body) = room[at..].split_at_mut(4);
            // A piece that does not shrink is stored raw.
            let limit = limit.min(piece.len() - 1);
            let stored = match self
                .compressor
                .compress(method, piece, &mut body[..limit])?
            {
                Some(size) => (size, size as u32),
                None if at + 4 + piece.len() > end => return Ok(None),
                None => {
                    body[..piece.len()].copy_from_slice(piece);
                    (piece.len(), piece.len() as u32 | lz4::STORED_FLAG)
                }
            };
            length.copy_from_slice(&stored.1.to_le_bytes());
            at += 4 + stored.0;
        }
        lz4::write_trailer(block, &mut room[at..]);
        Ok(Some(at + lz4::TRAILER_BYTES))
    }
}

/// Returns the byte that fills a block, if there is one.
fn constant(block: &[u8]) -> Option<u8> {
    let &first = block.first()?;
    // Pieces compare as fast as memory is read, and the first differing piece ends it.
    let run = [first; 64];
    let is_run = block.chunks(64).all(|piece| *piece == run[..piece.len()]);
    is_run.then_some(first)
}
