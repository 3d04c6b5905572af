//! bzip2 blocks: one standard `.bz2` stream each.
//!
//! A level is a block size in hundreds of kilobytes. The block size is cut to the bytes of the source. That spares
//! memory, and changes one digit of the header and nothing else.

#[cfg(feature = "bzip2")]
use bzip2::{Action, Compress, Compression, Decompress, Status};

#[cfg(feature = "bzip2")]
use crate::error::Error;
use crate::error::Result;

#[cfg(feature = "bzip2")]
const BLOCK: &str = "bzip2 block";
const LEVEL_BYTES: usize = 100_000;
/// bzip2 keeps this many bytes of a block's room free, so that a source just below the block size may need one more.
const ROOM_BYTES: usize = 19;

/// Compresses `source` as one stream; `None` if it does not fit in `target`.
#[cfg(feature = "bzip2")]
pub(super) fn compress(level: u8, source: &[u8], target: &mut [u8]) -> Result<Option<usize>> {
    let level = level_for(level, source.len());
    let mut stream = Compress::new(Compression::new(level), 0);
    match stream.compress(source, target, Action::Finish) {
        Ok(Status::StreamEnd) => Ok(Some(stream.total_out() as usize)),
        Ok(_) => Ok(None),
        Err(error) => Err(Error::Unsupported {
            what: format!("bzip2: {error}"),
        }),
    }
}

#[cfg(not(feature = "bzip2"))]
pub(super) fn compress(_: u8, _: &[u8], _: &mut [u8]) -> Result<Option<usize>> {
    Err(super::not_built("bzip2"))
}

/// Decodes one stream that fills `target`, with at most `memory_limit_bytes` beside it.
#[cfg(feature = "bzip2")]
pub(super) fn decompress(
    memory_limit_bytes: usize,
    source: &[u8],
    target: &mut [u8],
) -> Result<()> {
    let level = match source.get(..4) {
        Some([b'B', b'Z', b'h', digit @ b'1'..=b'9']) => digit - b'0',
        _ => return Err(Error::corrupt(BLOCK, 0, "BZh1 to BZh9", "neither")),
    };
    let needed_bytes = reader_bytes(level);
    if needed_bytes > memory_limit_bytes {
        return Err(Error::Limit {
            what: "bzip2 tables",
            limit_bytes: memory_limit_bytes as u64,
            needed_bytes: needed_bytes as u64,
        });
    }
    let mut stream = Decompress::new(false);
    let outcome = stream.decompress(source, target);
    let found = match outcome {
        Ok(Status::StreamEnd) if stream.total_in() != source.len() as u64 => {
            format!("{} more bytes", source.len() as u64 - stream.total_in())
        }
        Ok(Status::StreamEnd) if stream.total_out() == target.len() as u64 => return Ok(()),
        Ok(Status::StreamEnd) => format!("{} bytes", stream.total_out()),
        Ok(_) => "no end within the target".to_string(),
        Err(error) => error.to_string(),
    };
    let expected = format!("{} decoded bytes and the end", target.len());
    Err(Error::corrupt(BLOCK, stream.total_in(), expected, found))
}

#[cfg(not(feature = "bzip2"))]
pub(super) fn decompress(_: usize, _: &[u8], _: &mut [u8]) -> Result<()> {
    Err(super::not_built("bzip2"))
}

fn level_for(level: u8, source_bytes: usize) -> u32 {
    let filled = (source_bytes + ROOM_BYTES).div_ceil(LEVEL_BYTES).max(1);
    filled.min(level.into()) as u32
}

/// Returns the most bytes a stream of `source_bytes` bytes takes, as bzip2's manual states it.
pub(super) fn bound(source_bytes: usize) -> usize {
    source_bytes + source_bytes / 100 + 600
}

/// Returns the memory of a compressor, as bzip2's manual states it.
pub(super) fn compressor_bytes(level: u8, block_bytes: usize) -> usize {
    400_000 + 8 * LEVEL_BYTES * level_for(level, block_bytes) as usize
}

/// Returns the memory of a decompressor for blocks made at this level.
pub(super) fn decompressor_bytes(level: u8, block_bytes: usize) -> usize {
    reader_bytes(level_for(level, block_bytes) as u8)
}

fn reader_bytes(level: u8) -> usize {
    100_000 + 4 * LEVEL_BYTES * usize::from(level)
}
