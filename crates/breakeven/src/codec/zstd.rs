//! Zstandard blocks: one standard frame each, content size on, checksum off.
//!
//! The frame's window is the block (the library picks it from the content size), so decoding
//! needs no memory beyond the target. Contexts are reused; the level is set only when it changes.
//!
//! `unsafe` here: two calls of libzstd that compute a size from numbers and have no safe name.
#![allow(unsafe_code)]

use zstd_safe::zstd_sys::{self, ZSTD_ErrorCode};
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, ResetDirective};

use crate::error::{Error, Result};

/// The lowest level accepted; lower ones hardly get faster.
pub(super) const LEVEL_MIN: i8 = -7;
/// The highest level libzstd has.
pub(super) const LEVEL_MAX: i8 = 22;

const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// A compression context that keeps its tables and its level between blocks.
#[derive(Default)]
pub(super) struct Encoder {
    context: Option<(CCtx<'static>, i8)>,
}

impl Encoder {
    /// Compresses `source` as one frame; `None` if it does not fit in `target`.
    pub(super) fn compress(
        &mut self,
        level: i8,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        let context = self.context_at(level)?;
        let outcome = context.compress2(target, source);
        if outcome.is_err() {
            // A failed frame leaves the context in the middle of it.
            context.reset(ResetDirective::SessionOnly).map_err(bug)?;
        }
        fitted(outcome)
    }

    /// As [`Encoder::compress`], with a prepared dictionary, whose level it takes.
    pub(super) fn compress_with(
        &mut self,
        dictionary: &CDict<'_>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        fitted(
            self.context()?
                .0
                .compress_using_cdict(target, source, dictionary),
        )
    }

    fn context_at(&mut self, level: i8) -> Result<&mut CCtx<'static>> {
        let (context, current) = self.context()?;
        if *current != level {
            let parameter = CParameter::CompressionLevel(level.into());
            context.set_parameter(parameter).map_err(bug)?;
            *current = level;
        }
        Ok(context)
    }

    /// Returns the context and the level it is set to, 0 for none yet.
    fn context(&mut self) -> Result<&mut (CCtx<'static>, i8)> {
        match &mut self.context {
            Some(context) => Ok(context),
            slot => Ok(slot.insert((CCtx::try_create().ok_or_else(no_memory)?, 0))),
        }
    }
}

/// A decompression context that is reused between blocks.
#[derive(Default)]
pub(super) struct Reader {
    context: Option<DCtx<'static>>,
}

impl Reader {
    /// Decodes one frame that fills `target`.
    pub(super) fn decompress(&mut self, source: &[u8], target: &mut [u8]) -> Result<()> {
        check_one_frame(source)?;
        let context = self.context()?;
        filled(context.decompress(target, source), target.len())
    }

    /// As [`Reader::decompress`], with the dictionary the frame was compressed with.
    pub(super) fn decompress_with(
        &mut self,
        dictionary: &DDict<'_>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        check_one_frame(source)?;
        let context = self.context()?;
        filled(
            context.decompress_using_ddict(target, source, dictionary),
            target.len(),
        )
    }

    fn context(&mut self) -> Result<&mut DCtx<'static>> {
        match &mut self.context {
            Some(context) => Ok(context),
            slot => Ok(slot.insert(DCtx::try_create().ok_or_else(no_memory)?)),
        }
    }
}

/// Refuses what libzstd would also take: skippable frames and several frames in a row.
fn check_one_frame(source: &[u8]) -> Result<()> {
    if !source.starts_with(&MAGIC) {
        return Err(Error::corrupt(BLOCK, 0, "a frame's magic number", "none"));
    }
    match zstd_safe::find_frame_compressed_size(source) {
        Ok(size) if size == source.len() => Ok(()),
        Ok(size) => Err(Error::corrupt(
            BLOCK,
            size as u64,
            "the end of the block",
            format!("{} more bytes", source.len() - size),
        )),
        Err(code) => Err(Error::corrupt(BLOCK, 0, "one whole frame", name(code))),
    }
}

const BLOCK: &str = "zstd block";

fn fitted(outcome: zstd_safe::SafeResult) -> Result<Option<usize>> {
    const TOO_SMALL: usize = (ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();
    const NO_MEMORY: usize = (ZSTD_ErrorCode::ZSTD_error_memory_allocation as usize).wrapping_neg();
    match outcome {
        Ok(size) => Ok(Some(size)),
        Err(TOO_SMALL) => Ok(None),
        Err(NO_MEMORY) => Err(no_memory()),
        Err(code) => Err(bug(code)),
    }
}

fn filled(outcome: zstd_safe::SafeResult, target_bytes: usize) -> Result<()> {
    let found = match outcome {
        Ok(size) if size == target_bytes => return Ok(()),
        Ok(size) => format!("{size} bytes"),
        Err(code) => name(code).to_string(),
    };
    let expected = format!("{target_bytes} decoded bytes");
    Err(Error::corrupt(BLOCK, 0, expected, found))
}

fn name(code: usize) -> &'static str {
    zstd_safe::get_error_name(code)
}

fn no_memory() -> Error {
    Error::Unsupported {
        what: "zstd: the system gave no memory for a context".to_string(),
    }
}

/// libzstd refused what it documents to accept.
fn bug(code: usize) -> Error {
    Error::Unsupported {
        what: format!("zstd: {}", name(code)),
    }
}

/// Returns the most bytes a frame of `source_bytes` bytes takes.
pub(super) fn bound(source_bytes: usize) -> usize {
    zstd_safe::compress_bound(source_bytes)
}

/// Returns the memory of a context for one level and block size.
pub(super) fn compressor_bytes(level: i8, block_bytes: usize) -> usize {
    // SAFETY: both functions compute from their arguments alone.
    unsafe {
        let parameters = zstd_sys::ZSTD_getCParams(level.into(), block_bytes as u64, 0);
        zstd_sys::ZSTD_estimateCCtxSize_usingCParams(parameters)
    }
}

/// Returns the memory of a decompression context.
pub(super) fn decompressor_bytes() -> usize {
    // SAFETY: takes no argument and returns a constant of the library.
    unsafe { zstd_sys::ZSTD_estimateDCtxSize() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_stay_within_their_formula() {
        let mut target = vec![0; bound(1 << 20)];
        let block: Vec<u8> = (0..1u32 << 18)
            .flat_map(|i| i.wrapping_mul(i).to_le_bytes())
            .collect();
        for level in [-7, -1, 1, 3, 5, 9, 13, 16, 19, 22] {
            for block_bytes in [300, 8192, 65_536, 1 << 20] {
                let mut encoder = Encoder::default();
                let size = encoder.compress(level, &block[..block_bytes], &mut target);
                assert!(size.unwrap().is_some());
                let found = encoder.context().unwrap().0.sizeof();
                let stated = compressor_bytes(level, block_bytes);
                assert!(
                    found <= stated,
                    "level {level}, {block_bytes} bytes: {found} held, {stated} stated"
                );
            }
        }
        let mut reader = Reader::default();
        assert!(reader.context().unwrap().sizeof() <= decompressor_bytes());
    }

    #[test]
    fn frames_have_the_stated_header() {
        let mut target = vec![0; bound(8192)];
        let size = Encoder::default().compress(3, &[7; 8192], &mut target);
        let frame = &target[..size.unwrap().unwrap()];
        // One segment and a content size of two bytes; no checksum, no dictionary id.
        assert_eq!(frame[..5], [0x28, 0xB5, 0x2F, 0xFD, 0x60]);
        let content = zstd_safe::get_frame_content_size(frame).unwrap();
        assert_eq!(content, Some(8192));
    }
}
