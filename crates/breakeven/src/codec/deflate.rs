//! Deflate blocks: one raw deflate stream each, by libdeflate.
//!
//! Bytes after the final deflate block are ignored: libdeflate's safe interface does not say where it stopped. The
//! compressor is kept while its level stays the same.

#[cfg(feature = "deflate")]
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

#[cfg(feature = "deflate")]
use crate::error::Error;
use crate::error::Result;

/// Bytes of libdeflate's decompressor, for any block.
pub(super) const DECOMPRESSOR_BYTES: usize = 11_568;

#[cfg(feature = "deflate")]
const BLOCK: &str = "deflate block";

/// A compressor kept with its level.
#[derive(Default)]
pub(super) struct Encoder {
    #[cfg(feature = "deflate")]
    compressor: Option<(Compressor, u8)>,
}

impl Encoder {
    /// Compresses `source`; `None` if it does not fit in `target`.
    #[cfg(feature = "deflate")]
    pub(super) fn compress(
        &mut self,
        level: u8,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        let (compressor, _) = match &mut self.compressor {
            Some(entry) if entry.1 == level => entry,
            slot => {
                let effort = CompressionLvl::new(level.into())
                    .map_err(|_| Error::invalid("method", "deflate level outside 1..12"))?;
                slot.insert((Compressor::new(effort), level))
            }
        };
        Ok(compressor.deflate_compress(source, target).ok())
    }

    #[cfg(not(feature = "deflate"))]
    pub(super) fn compress(&mut self, _: u8, _: &[u8], _: &mut [u8]) -> Result<Option<usize>> {
        Err(super::not_built("deflate"))
    }
}

/// A decompressor made at its first use.
#[derive(Default)]
pub(super) struct Reader {
    #[cfg(feature = "deflate")]
    decompressor: Option<Decompressor>,
}

impl Reader {
    #[cfg(not(feature = "deflate"))]
    pub(super) fn decompress(&mut self, _: &[u8], _: &mut [u8]) -> Result<()> {
        Err(super::not_built("deflate"))
    }

    /// Decodes one stream that fills `target`.
    #[cfg(feature = "deflate")]
    pub(super) fn decompress(&mut self, source: &[u8], target: &mut [u8]) -> Result<()> {
        let decompressor = self.decompressor.get_or_insert_with(Decompressor::new);
        let found = match decompressor.deflate_decompress(source, target) {
            Ok(size) if size == target.len() => return Ok(()),
            Ok(size) => format!("{size} bytes"),
            Err(DecompressionError::BadData) => "malformed data".to_string(),
            Err(DecompressionError::InsufficientSpace) => "more bytes".to_string(),
        };
        let expected = format!("{} decoded bytes", target.len());
        Err(Error::corrupt(BLOCK, 0, expected, found))
    }
}

/// Returns the most bytes a stream of `source_bytes` bytes takes.
pub(super) fn bound(source_bytes: usize) -> usize {
    source_bytes + 5 * source_bytes.div_ceil(5000).max(1) + 1
}

/// Returns the memory of a compressor of libdeflate 1.26, which depends on the level alone.
pub(super) fn compressor_bytes(level: u8) -> usize {
    match level {
        0..=1 => 202_720,
        2..=9 => 668_256,
        _ => 9_011_712,
    }
}
