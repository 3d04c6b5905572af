//! Zstandard blocks: one standard frame each, content size on, checksum off. A bare block is the content of the one
//! compressed block of such a frame; its length determines its headers.
//!
//! The frame's window is the block (the library picks it from the content size), so decoding needs no memory beyond the
//! target. Contexts are reused; the level is set only when it changes.
//!
//! `unsafe` here: calls of libzstd that have no safe name. They compute a size from numbers, and make and use a context
//! in our memory.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use zstd_safe::zstd_sys::{self, ZSTD_CCtx, ZSTD_ErrorCode, ZSTD_ResetDirective, ZSTD_cParameter};
use zstd_safe::{CCtx, CDict, CParameter, DCtx, DDict, SafeResult};

use crate::error::{Error, Result};

/// The lowest level accepted; lower ones hardly get faster.
pub(super) const LEVEL_MIN: i8 = -7;
/// The highest level libzstd has.
pub(super) const LEVEL_MAX: i8 = 22;

/// The least window that libzstd takes, `ZSTD_WINDOWLOG_MIN`.
const WINDOW_LOG_MIN: u32 = 10;

const MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// The longest block of the format, and so the longest that can be bare.
pub(super) const BARE_BYTES_MAX: usize = 128 << 10;
/// The header of a frame without content size, checksum or dictionary id, with a window of 128 KiB.
const BARE_FRAME: [u8; 6] = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x38];
const BLOCK_HEADER_BYTES: usize = 3;
/// Most bytes of the headers that are left out.
const HEADERS_BYTES_MAX: usize = 18 + BLOCK_HEADER_BYTES;
/// A block header of the last block, compressed.
const LAST_COMPRESSED: u32 = 1 | 2 << 1;

/// Compression contexts that keep their tables between blocks.
#[derive(Default)]
pub(super) struct Encoder {
    context: Context,
    /// For prepared dictionaries.
    dictionary_context: Option<CCtx<'static>>,
    /// A frame before its headers are taken off.
    frame: Vec<u8>,
}

impl Encoder {
    /// Compresses `source` as one frame; `None` if it does not fit in `target`.
    pub(super) fn compress(
        &mut self,
        level: i8,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        fitted(self.context.compress(level, source, target)?)
    }

    /// As [`Encoder::compress`], with a prepared dictionary, whose level it takes.
    pub(super) fn compress_with(
        &mut self,
        dictionary: &CDict<'_>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        let context = match &mut self.dictionary_context {
            Some(context) => context,
            slot => slot.insert(CCtx::try_create().ok_or_else(no_memory)?),
        };
        fitted(context.compress_using_cdict(target, source, dictionary))
    }

    /// Compresses `source` as one frame that refers to a prefix, whose bytes the decoder needs as well.
    ///
    /// A new context, because one that refers to a prefix must not outlive it.
    pub(super) fn compress_after(
        prefix: &[u8],
        level: i8,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        // The whole prefix stays within reach to the end of the source.
        let reach = (prefix.len() + source.len()).max(1 << WINDOW_LOG_MIN);
        let window_log = reach.next_power_of_two().ilog2();
        let mut context = CCtx::try_create().ok_or_else(no_memory)?;
        let parameters = [
            CParameter::CompressionLevel(level.into()),
            CParameter::WindowLog(window_log),
        ];
        for parameter in parameters {
            context.set_parameter(parameter).map_err(bug)?;
        }
        context.ref_prefix(prefix).map_err(bug)?;
        fitted(context.compress2(target, source))
    }

    /// Compresses `source` as one bare block, with a prepared dictionary or at a level. Returns `None` if it does not
    /// fit, is longer than a block may be, or takes several blocks.
    pub(super) fn compress_bare(
        &mut self,
        how: std::result::Result<&CDict<'_>, i8>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        if source.len() > BARE_BYTES_MAX {
            return Ok(None);
        }
        let mut frame = std::mem::take(&mut self.frame);
        let bytes = bound(source.len()).min(target.len() + HEADERS_BYTES_MAX);
        let room = super::room(&mut frame, bytes);
        let size = match how {
            Ok(dictionary) => self.compress_with(dictionary, source, room),
            Err(level) => self.compress(level, source, room),
        };
        let bare = size.map(|size| {
            let content = content_of(&room[..size?])?;
            target.get_mut(..content.len())?.copy_from_slice(content);
            Some(content.len())
        });
        self.frame = frame;
        bare
    }
}

/// Returns the content of a frame's block, if the frame has one compressed block.
fn content_of(frame: &[u8]) -> Option<&[u8]> {
    // SAFETY: reads the slice alone.
    let header = unsafe { zstd_sys::ZSTD_frameHeaderSize(frame.as_ptr().cast(), frame.len()) };
    let (block, content) = frame
        .get(checked(header).ok()?..)?
        .split_at_checked(BLOCK_HEADER_BYTES)?;
    let header = u32::from_le_bytes([block[0], block[1], block[2], 0]);
    let is_whole = header & 7 == LAST_COMPRESSED && (header >> 3) as usize == content.len();
    is_whole.then_some(content)
}

/// A compression context in memory that grows to the need of a level and a block, and is kept.
///
/// A context that takes its own memory gives it back when, after 128 frames, a block needs only a third of it. It takes
/// memory again for the next block that needs more. Where levels change from block to block, that is thousands of page
/// faults each time.
#[derive(Default)]
struct Context {
    /// Its vector length is 0, because only libzstd knows its contents.
    memory: Vec<u64>,
    made: Option<Made>,
}

/// A context in its memory.
struct Made {
    context: NonNull<ZSTD_CCtx>,
    level: i8,
    /// Bytes of the last block, for which the memory is known to suffice at the level.
    block_bytes: usize,
}

// SAFETY: the context lies in the memory beside it and refers to nothing else between two calls. Both move together,
// and one thread at a time has them.
unsafe impl Send for Context {}

impl Context {
    fn compress(&mut self, level: i8, source: &[u8], target: &mut [u8]) -> Result<SafeResult> {
        let context = self.prepared(level, source.len())?;
        let (to, from) = (target.as_mut_ptr().cast(), source.as_ptr().cast());
        // SAFETY: the context is alive, as its memory is; both slices have the stated lengths, and are not kept.
        let code = unsafe {
            zstd_sys::ZSTD_compress2(context.as_ptr(), to, target.len(), from, source.len())
        };
        let outcome = checked(code);
        if outcome.is_err() {
            // A failed frame leaves the context in the middle of it.
            reset(context, ZSTD_ResetDirective::ZSTD_reset_session_only)?;
        }
        Ok(outcome)
    }

    /// Returns the context at a level, with memory enough for a block.
    fn prepared(&mut self, level: i8, block_bytes: usize) -> Result<NonNull<ZSTD_CCtx>> {
        let is_known = |it: &&mut Made| (it.level, it.block_bytes) == (level, block_bytes);
        if let Some(made) = self.made.as_mut().filter(is_known) {
            return Ok(made.context);
        }
        let words = compressor_bytes(level, block_bytes.max(1)) / size_of::<u64>();
        if self.memory.capacity() < words {
            // The old memory is freed before the new is taken.
            self.made = None;
            self.memory = Vec::new();
            let taken = self.memory.try_reserve_exact(words);
            taken.map_err(|_| no_memory())?;
        }
        let (context, current) = match &self.made {
            Some(made) => (made.context, made.level),
            None => {
                let bytes = self.memory.capacity() * size_of::<u64>();
                let memory = self.memory.as_mut_ptr().cast();
                // SAFETY: the memory has the stated length, is aligned to 8 bytes, and belongs to nobody else.
                let made = unsafe { zstd_sys::ZSTD_initStaticCCtx(memory, bytes) };
                let context = NonNull::new(made).ok_or_else(no_memory)?;
                // It comes with every parameter 0, and not with the documented defaults of libzstd.
                reset(context, ZSTD_ResetDirective::ZSTD_reset_parameters)?;
                (context, 0)
            }
        };
        if current != level {
            let parameter = ZSTD_cParameter::ZSTD_c_compressionLevel;
            // SAFETY: the context is alive.
            let code = unsafe {
                zstd_sys::ZSTD_CCtx_setParameter(context.as_ptr(), parameter, level.into())
            };
            checked(code).map_err(bug)?;
        }
        self.made = Some(Made {
            context,
            level,
            block_bytes,
        });
        Ok(context)
    }
}

fn reset(context: NonNull<ZSTD_CCtx>, what: ZSTD_ResetDirective) -> Result<()> {
    // SAFETY: the context was made by this file and is alive.
    let code = unsafe { zstd_sys::ZSTD_CCtx_reset(context.as_ptr(), what) };
    checked(code).map(drop).map_err(bug)
}

/// Distinguishes an error code of libzstd from a size.
fn checked(code: usize) -> SafeResult {
    // SAFETY: computes from its argument alone.
    match unsafe { zstd_sys::ZSTD_isError(code) } {
        0 => Ok(code),
        _ => Err(code),
    }
}

/// A decompression context that is reused between blocks.
#[derive(Default)]
pub(super) struct Reader {
    context: Option<DCtx<'static>>,
    /// A bare block with the headers that were left out.
    frame: Vec<u8>,
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

    /// As [`Reader::decompress`], with the prefix the frame refers to.
    pub(super) fn decompress_after(prefix: &[u8], source: &[u8], target: &mut [u8]) -> Result<()> {
        check_one_frame(source)?;
        let mut context = DCtx::try_create().ok_or_else(no_memory)?;
        context.ref_prefix(prefix).map_err(bug)?;
        filled(context.decompress(target, source), target.len())
    }

    /// Decodes one bare block that fills `target`, with the dictionary it was compressed with.
    pub(super) fn decompress_bare(
        &mut self,
        dictionary: Option<&DDict<'_>>,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        if source.len() > BARE_BYTES_MAX {
            let found = format!("{} bytes", source.len());
            return Err(Error::corrupt(BLOCK, 0, "at most 128 KiB", found));
        }
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        frame.extend_from_slice(&BARE_FRAME);
        let header = LAST_COMPRESSED | (source.len() as u32) << 3;
        frame.extend_from_slice(&header.to_le_bytes()[..BLOCK_HEADER_BYTES]);
        frame.extend_from_slice(source);
        let context = self.context()?;
        let outcome = match dictionary {
            Some(dictionary) => context.decompress_using_ddict(target, &frame[..], dictionary),
            None => context.decompress(target, &frame[..]),
        };
        self.frame = frame;
        filled(outcome, target.len())
    }

    fn context(&mut self) -> Result<&mut DCtx<'static>> {
        match &mut self.context {
            Some(context) => Ok(context),
            slot => Ok(slot.insert(DCtx::try_create().ok_or_else(no_memory)?)),
        }
    }
}

/// Refuses input that libzstd would also take: skippable frames and several frames in a row.
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

const NO_MEMORY: usize = (ZSTD_ErrorCode::ZSTD_error_memory_allocation as usize).wrapping_neg();

fn fitted(outcome: SafeResult) -> Result<Option<usize>> {
    const TOO_SMALL: usize = (ZSTD_ErrorCode::ZSTD_error_dstSize_tooSmall as usize).wrapping_neg();
    match outcome {
        Ok(size) => Ok(Some(size)),
        Err(TOO_SMALL) => Ok(None),
        Err(NO_MEMORY) => Err(no_memory()),
        Err(code) => Err(bug(code)),
    }
}

fn filled(outcome: SafeResult, target_bytes: usize) -> Result<()> {
    let found = match outcome {
        Ok(size) if size == target_bytes => return Ok(()),
        Ok(size) => format!("{size} bytes"),
        Err(NO_MEMORY) => return Err(no_memory()),
        Err(code) => name(code).to_string(),
    };
    let expected = format!("{target_bytes} decoded bytes");
    Err(Error::corrupt(BLOCK, 0, expected, found))
}

fn name(code: usize) -> &'static str {
    zstd_safe::get_error_name(code)
}

fn no_memory() -> Error {
    Error::OutOfMemory {
        what: "a context of zstd",
    }
}

/// libzstd refused input that it documents to accept.
fn bug(code: usize) -> Error {
    Error::Unsupported {
        what: format!("zstd: {}", name(code)),
    }
}

/// Returns the most bytes a frame of `source_bytes` bytes takes.
pub(super) fn bound(source_bytes: usize) -> usize {
    zstd_safe::compress_bound(source_bytes)
}

/// Returns the memory of a context for one level and block size, in whole words.
pub(super) fn compressor_bytes(level: i8, block_bytes: usize) -> usize {
    // SAFETY: both functions compute from their arguments alone.
    unsafe {
        let parameters = zstd_sys::ZSTD_getCParams(level.into(), block_bytes as u64, 0);
        zstd_sys::ZSTD_estimateCCtxSize_usingCParams(parameters).next_multiple_of(size_of::<u64>())
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
                let found = encoder.context.memory.capacity() * size_of::<u64>();
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
    fn one_context_for_all_levels_and_lengths_does_as_one_of_libzstd_for_each() {
        let mut random = fastrand::Rng::with_seed(11);
        let block: Vec<u8> = (0..300_000_u32)
            .map(|at| ((at >> 3) as u8 & 0x1f) ^ (random.u8(..) >> 6))
            .collect();
        let (mut found, mut expected) = (vec![0; bound(block.len())], vec![0; bound(block.len())]);
        let lengths = [
            0, 1, 300, 4096, 16_384, 16_385, 131_072, 131_073, 262_145, 300_000,
        ];
        let mut encoder = Encoder::default();
        let mut same = 0;
        // Both ways, so that the next block needs more memory, and less.
        for level in (LEVEL_MIN..=LEVEL_MAX).chain((LEVEL_MIN..=LEVEL_MAX).rev()) {
            let level = if level == 0 { LEVEL_MAX } else { level };
            let mut fresh = CCtx::create();
            let parameter = CParameter::CompressionLevel(level.into());
            fresh.set_parameter(parameter).unwrap();
            for length in lengths {
                let source = &block[..length];
                let short = encoder.compress(level, source, &mut [0; 5]).unwrap();
                assert_eq!(short, None);
                let size = encoder
                    .compress(level, source, &mut found)
                    .unwrap()
                    .unwrap();
                let wanted = fresh.compress2(&mut expected[..], source).unwrap();
                assert!(
                    found[..size] == expected[..wanted],
                    "level {level}, {length} bytes"
                );
                same += 1;
            }
        }
        assert_eq!(same, 600);
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
