//! The C libraries called directly: the other side of the block interface's comparison.
//!
//! Each codec in two ways. `Usual` is the call that most programs make, with a context that is kept
//! where the call takes one; `Best` keeps everything that can be kept. Where a library has one way
//! only, the two are the same call, and their difference is the noise.
//!
//! `unsafe` here: the calls of liblz4, which has no safe binding for blocks, and their needs.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use anyhow::{Context, Result, bail, ensure};
use breakeven::codec::{Codec, Method};
use lz4_sys::{
    LZ4_compress_default, LZ4_createStream, LZ4_decompress_safe, LZ4_freeStream, LZ4StreamEncode,
};
use zstd_safe::{CCtx, CParameter, DCtx};

// A function of liblz4 1.10 that lz4-sys links but does not declare.
unsafe extern "C" {
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut LZ4StreamEncode,
        source: *const c_char,
        target: *mut c_char,
        source_bytes: c_int,
        target_bytes: c_int,
        acceleration: c_int,
    ) -> c_int;
}

/// Whether a library has two ways of compressing by a method; every library has one of decoding.
pub fn has_two_ways(method: Method) -> bool {
    matches!(method.codec, Codec::Lz4 { .. } | Codec::Zstd { .. })
}

/// How a library is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Usual,
    Best,
}

/// A compressor of one method, without anything between it and the library.
pub enum DirectCompressor {
    Lz4Default,
    Lz4State(Lz4State),
    Zstd(CCtx<'static>, i32),
    ZstdParameter(CCtx<'static>),
    Deflate(libdeflater::Compressor),
}

/// The state of liblz4's fast compressor.
pub struct Lz4State(*mut LZ4StreamEncode);

impl Drop for Lz4State {
    fn drop(&mut self) {
        // SAFETY: made by LZ4_createStream and freed only here.
        unsafe { LZ4_freeStream(self.0) };
    }
}

impl DirectCompressor {
    /// Makes the compressor of `lz4:1`, a `zstd` or a `deflate` method.
    pub fn new(method: Method, way: Way) -> Result<DirectCompressor> {
        Ok(match (method.codec, way) {
            (Codec::Lz4 { acceleration: 1 }, Way::Usual) => DirectCompressor::Lz4Default,
            (Codec::Lz4 { acceleration: 1 }, Way::Best) => {
                // SAFETY: allocates and initialises, or returns null.
                let state = unsafe { LZ4_createStream() };
                ensure!(!state.is_null(), "no memory for liblz4");
                DirectCompressor::Lz4State(Lz4State(state))
            }
            (Codec::Zstd { level }, Way::Usual) => {
                let context = CCtx::try_create().context("no memory for libzstd")?;
                DirectCompressor::Zstd(context, level.into())
            }
            (Codec::Zstd { level }, Way::Best) => {
                let mut context = CCtx::try_create().context("no memory for libzstd")?;
                let parameter = CParameter::CompressionLevel(level.into());
                context.set_parameter(parameter).map_err(zstd_error)?;
                DirectCompressor::ZstdParameter(context)
            }
            (Codec::Deflate { level }, _) => {
                let level = libdeflater::CompressionLvl::new(level.into());
                let level = level.map_err(|error| anyhow::anyhow!("deflate level: {error:?}"))?;
                DirectCompressor::Deflate(libdeflater::Compressor::new(level))
            }
            _ => bail!("{method} has no direct call here"),
        })
    }

    /// Compresses a block and returns the bytes it took.
    pub fn compress(&mut self, source: &[u8], target: &mut [u8]) -> Result<usize> {
        match self {
            DirectCompressor::Lz4Default => {
                // SAFETY: the lengths are those of the two slices.
                let size = unsafe {
                    LZ4_compress_default(
                        source.as_ptr().cast(),
                        target.as_mut_ptr().cast(),
                        source.len() as c_int,
                        target.len() as c_int,
                    )
                };
                lz4_size(size)
            }
            DirectCompressor::Lz4State(state) => {
                // SAFETY: as above; the state was initialised and every call with it succeeded,
                // because a failed one ends the experiment.
                let size = unsafe {
                    LZ4_compress_fast_extState_fastReset(
                        state.0,
                        source.as_ptr().cast(),
                        target.as_mut_ptr().cast(),
                        source.len() as c_int,
                        target.len() as c_int,
                        1,
                    )
                };
                lz4_size(size)
            }
            DirectCompressor::Zstd(context, level) => {
                context.compress(target, source, *level).map_err(zstd_error)
            }
            DirectCompressor::ZstdParameter(context) => {
                context.compress2(target, source).map_err(zstd_error)
            }
            DirectCompressor::Deflate(compressor) => compressor
                .deflate_compress(source, target)
                .context("libdeflate: does not fit"),
        }
    }
}

/// A decoder of one codec, without anything between it and the library.
pub enum DirectDecompressor {
    Lz4,
    Zstd(DCtx<'static>),
    Deflate(libdeflater::Decompressor),
}

impl DirectDecompressor {
    /// Makes the decoder of a method's output. No library has a second way.
    pub fn new(method: Method) -> Result<DirectDecompressor> {
        Ok(match method.codec {
            Codec::Lz4 { .. } => DirectDecompressor::Lz4,
            Codec::Zstd { .. } => {
                DirectDecompressor::Zstd(DCtx::try_create().context("no memory for libzstd")?)
            }
            Codec::Deflate { .. } => DirectDecompressor::Deflate(libdeflater::Decompressor::new()),
            _ => bail!("{method} has no direct call here"),
        })
    }

    /// Decodes a block and returns the bytes it made.
    pub fn decompress(&mut self, source: &[u8], target: &mut [u8]) -> Result<usize> {
        match self {
            DirectDecompressor::Lz4 => {
                // SAFETY: the lengths are those of the two slices, and the decoder keeps to them.
                let size = unsafe {
                    LZ4_decompress_safe(
                        source.as_ptr().cast(),
                        target.as_mut_ptr().cast(),
                        source.len() as c_int,
                        target.len() as c_int,
                    )
                };
                lz4_size(size)
            }
            DirectDecompressor::Zstd(context) => {
                context.decompress(target, source).map_err(zstd_error)
            }
            DirectDecompressor::Deflate(decompressor) => decompressor
                .deflate_decompress(source, target)
                .context("libdeflate: bad data"),
        }
    }
}

fn lz4_size(size: c_int) -> Result<usize> {
    match usize::try_from(size) {
        Ok(size) if size > 0 => Ok(size),
        _ => bail!("liblz4 failed with {size}"),
    }
}

fn zstd_error(code: usize) -> anyhow::Error {
    anyhow::anyhow!("libzstd: {}", zstd_safe::get_error_name(code))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Kind, SEED};

    #[test]
    fn direct_calls_give_blocks_back() {
        let source = Kind::Mixed.generate(200_000, SEED);
        for method in ["lz4:1", "zstd:1", "zstd:3", "deflate:6"] {
            let method: Method = method.parse().unwrap();
            for way in [Way::Usual, Way::Best] {
                let mut compressor = DirectCompressor::new(method, way).unwrap();
                let mut decompressor = DirectDecompressor::new(method).unwrap();
                for block in [&source[..8192], &source, &source[..1]] {
                    let mut stored = vec![0; method.bound(block.len())];
                    let size = compressor.compress(block, &mut stored).unwrap();
                    let mut back = vec![0; block.len()];
                    let found = decompressor.decompress(&stored[..size], &mut back).unwrap();
                    assert_eq!(found, block.len(), "{method} {way:?}");
                    assert!(back == block, "{method} {way:?}");
                    assert!(decompressor.decompress(b"\xff\xff\xff", &mut back).is_err());
                }
            }
        }
        assert!(DirectCompressor::new("xz:6".parse().unwrap(), Way::Best).is_err());
    }
}
