//! xz blocks: one standard `.xz` stream each, by default without a check, since the store of a block has one.
//!
//! The window is cut to the block, so that small blocks do not need the many megabytes of the presets. Each block gets
//! a new stream. Only the C interface can reuse one, and that saved under 2 % of the processor time at 8 KiB and
//! nothing above.

#[cfg(feature = "xz")]
use liblzma::stream::{Action, Filters, LzmaOptions, Status, Stream};

use super::method::Filter;
#[cfg(feature = "xz")]
use crate::error::Error;
use crate::error::Result;

#[cfg(feature = "xz")]
const BLOCK: &str = "xz block";
/// LZMA2's smallest window.
const WINDOW_BYTES_MIN: usize = 4 << 10;
/// Presets whose match finder is a hash chain; the others build binary trees.
const HASH_CHAIN_LEVEL_MAX: u8 = 3;

/// The checksum of a stream's content.
#[derive(Clone, Copy)]
pub(super) enum Check {
    None,
    #[cfg(feature = "stream")]
    Crc64,
}

/// Compresses `source` as one stream; `None` if it does not fit in `target`.
#[cfg(feature = "xz")]
pub(super) fn compress(
    level: u8,
    filter: Filter,
    check: Check,
    source: &[u8],
    target: &mut [u8],
) -> Result<Option<usize>> {
    let mut options = LzmaOptions::new_preset(level.into()).map_err(|error| refused(&error))?;
    options.dict_size(window_bytes(level, source.len()) as u32);
    let mut filters = Filters::new();
    if let Filter::Delta { distance } = filter {
        // The filter's one property byte is the distance less one.
        let property = distance.wrapping_sub(1) as u8;
        filters
            .delta_properties(&[property])
            .map_err(|error| refused(&error))?;
    }
    filters.lzma2(&options);
    let check = match check {
        Check::None => liblzma::stream::Check::None,
        #[cfg(feature = "stream")]
        Check::Crc64 => liblzma::stream::Check::Crc64,
    };
    let mut stream =
        Stream::new_stream_encoder(&filters, check).map_err(|error| refused(&error))?;
    match stream.process(source, target, Action::Finish) {
        Ok(Status::StreamEnd) => Ok(Some(stream.total_out() as usize)),
        Ok(_) => Ok(None),
        Err(liblzma::stream::Error::Mem) => Err(no_memory()),
        Err(error) => Err(refused(&error)),
    }
}

#[cfg(not(feature = "xz"))]
pub(super) fn compress(
    _: u8,
    _: Filter,
    _: Check,
    _: &[u8],
    _: &mut [u8],
) -> Result<Option<usize>> {
    Err(super::not_built("xz"))
}

/// Decodes one stream that fills `target`, with at most `memory_limit_bytes` beside it.
#[cfg(feature = "xz")]
pub(super) fn decompress(
    memory_limit_bytes: usize,
    source: &[u8],
    target: &mut [u8],
) -> Result<()> {
    let mut stream = Stream::new_stream_decoder(memory_limit_bytes.max(1) as u64, 0)
        .map_err(|error| refused(&error))?;
    let outcome = stream.process(source, target, Action::Finish);
    let found = match outcome {
        Ok(Status::StreamEnd) if stream.total_in() != source.len() as u64 => {
            format!("{} more bytes", source.len() as u64 - stream.total_in())
        }
        Ok(Status::StreamEnd) if stream.total_out() == target.len() as u64 => return Ok(()),
        Ok(Status::StreamEnd) => format!("{} bytes", stream.total_out()),
        Ok(_) => "no end within the target".to_string(),
        Err(liblzma::stream::Error::MemLimit) => {
            return Err(Error::Limit {
                what: "xz window",
                limit_bytes: memory_limit_bytes as u64,
                // liblzma's safe interface says only that it needs more.
                needed_bytes: memory_limit_bytes as u64 + 1,
            });
        }
        Err(liblzma::stream::Error::Mem) => return Err(no_memory()),
        Err(error) => error.to_string(),
    };
    let expected = format!("{} decoded bytes and the end", target.len());
    Err(Error::corrupt(BLOCK, stream.total_in(), expected, found))
}

#[cfg(not(feature = "xz"))]
pub(super) fn decompress(_: usize, _: &[u8], _: &mut [u8]) -> Result<()> {
    Err(super::not_built("xz"))
}

#[cfg(feature = "xz")]
fn refused(error: &liblzma::stream::Error) -> Error {
    match error {
        liblzma::stream::Error::Mem => no_memory(),
        error => Error::Unsupported {
            what: format!("xz: {error}"),
        },
    }
}

#[cfg(feature = "xz")]
fn no_memory() -> Error {
    Error::OutOfMemory {
        what: "a stream of xz",
    }
}

fn window_bytes(level: u8, block_bytes: usize) -> usize {
    const PRESET_LOG: [u32; 10] = [18, 20, 21, 22, 22, 23, 23, 24, 25, 26];
    let preset = 1 << PRESET_LOG[usize::from(level.min(9))];
    block_bytes.clamp(WINDOW_BYTES_MIN, preset)
}

/// Returns the most bytes of a stream for `source_bytes` bytes: three for each chunk that LZMA2 stores, and the
/// headers, index and footer.
pub(super) fn bound(source_bytes: usize) -> usize {
    source_bytes + 3 * (source_bytes / 8192 + 1) + 128
}

/// Returns the memory of the match finder and the rest. It consists of a window and a half, and a hash of half the
/// window's positions (at least 64 Ki) with short hashes. Links take 4 or 8 bytes for each position, and the rest a
/// MiB.
pub(super) fn compressor_bytes(level: u8, block_bytes: usize) -> usize {
    let window = window_bytes(level, block_bytes);
    let link_bytes = if level <= HASH_CHAIN_LEVEL_MAX { 4 } else { 8 };
    let short_slots = if level == 0 { 1 << 10 } else { 65 << 10 };
    let slots = (window.next_power_of_two() / 2).max(64 << 10) + short_slots;
    window * 3 / 2 + window * link_bytes + slots * 4 + (1 << 20)
}

/// Returns the memory of a decoder: the window and LZMA's tables.
pub(super) fn decompressor_bytes(level: u8, block_bytes: usize) -> usize {
    // The stream's header can only state 2^n or 3 * 2^n.
    let window = window_bytes(level, block_bytes);
    let stated = [2, 3]
        .iter()
        .flat_map(|&mantissa| (11..=30).map(move |shift| mantissa << shift))
        .filter(|&stated| stated >= window)
        .min();
    stated.unwrap_or(window) + (128 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures are those of liblzma 5.8.4's `lzma_raw_encoder_memusage` and
    /// `lzma_raw_decoder_memusage`.
    fn check(level: u8, block_bytes: usize, encoder_bytes: usize, decoder_bytes: usize) {
        let pairs = [
            (compressor_bytes(level, block_bytes), encoder_bytes),
            (decompressor_bytes(level, block_bytes), decoder_bytes),
        ];
        for (stated, found) in pairs {
            let most = found + found * 15 / 100 + (64 << 10);
            assert!(
                (found..=most).contains(&stated),
                "xz:{level}, {block_bytes} bytes: {stated} stated, {found} by liblzma"
            );
        }
    }

    #[test]
    fn memory_is_what_liblzma_states() {
        check(0, 4096, 1_174_023, 70_264);
        check(0, 1 << 18, 2_855_431, 328_312);
        check(1, 1 << 20, 9_015_815, 1_114_744);
        check(3, 4 << 20, 32_608_775, 4_260_472);
        check(4, 1 << 16, 2_036_235, 131_704);
        check(6, 1 << 20, 13_210_123, 1_114_744);
        check(6, 100 << 20, 97_620_491, 8_454_776);
        check(9, 1 << 30, 705_794_571, 67_175_032);
    }
}
