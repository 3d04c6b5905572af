//! LZ4 blocks: raw, without frame or length; the fast and the dense compressor.
//!
//! The working states are allocated once and reused without the 16 KiB (or 256 KiB) clearing that
//! the plain calls do for each block.
//!
//! `unsafe` here: the C functions of the pinned liblz4 1.10, which has no safe binding for states,
//! limits and dictionaries.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;

use lz4_sys::{LZ4_createStream, LZ4_decompress_safe, LZ4_freeStream, LZ4StreamEncode};

use crate::error::{Error, Result};

/// The acceleration above which LZ4 changes nothing.
pub(super) const ACCELERATION_MAX: u32 = 65_537;
/// Bytes of the fast compressor's state (`LZ4_STREAM_MINSIZE`).
pub(super) const FAST_STATE_BYTES: usize = (1 << 14) + 32;
/// Bytes of the dense compressor's state (`LZ4_STREAMHC_MINSIZE`).
pub(super) const DENSE_STATE_BYTES: usize = 262_200;

const BLOCK: &str = "lz4 block";

/// The dense compressor's state, known to us only by address.
#[repr(C)]
struct DenseState {
    _private: [u8; 0],
}

// Functions of liblz4 1.10 that lz4-sys links but does not declare.
unsafe extern "C" {
    fn LZ4_compress_fast_extState_fastReset(
        state: *mut LZ4StreamEncode,
        source: *const c_char,
        target: *mut c_char,
        source_bytes: c_int,
        target_bytes: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_createStreamHC() -> *mut DenseState;
    fn LZ4_freeStreamHC(state: *mut DenseState) -> c_int;
    fn LZ4_compress_HC_extStateHC_fastReset(
        state: *mut DenseState,
        source: *const c_char,
        target: *mut c_char,
        source_bytes: c_int,
        target_bytes: c_int,
        level: c_int,
    ) -> c_int;
}

/// The two compressors, each with a state that is made at its first use.
#[derive(Default)]
pub(super) struct Encoder {
    fast: Option<Fast>,
    dense: Option<Dense>,
}

struct Fast(NonNull<LZ4StreamEncode>);
struct Dense(NonNull<DenseState>);

// SAFETY: the states are plain memory of liblz4, reached only through `&mut`, bound to no thread.
unsafe impl Send for Fast {}
// SAFETY: as above.
unsafe impl Send for Dense {}

impl Drop for Fast {
    fn drop(&mut self) {
        // SAFETY: made by LZ4_createStream and freed only here.
        unsafe { LZ4_freeStream(self.0.as_ptr()) };
    }
}

impl Drop for Dense {
    fn drop(&mut self) {
        // SAFETY: made by LZ4_createStreamHC and freed only here.
        unsafe { LZ4_freeStreamHC(self.0.as_ptr()) };
    }
}

impl Encoder {
    /// Compresses with the fast compressor; `None` if the block does not fit in `target`.
    pub(super) fn compress_fast(
        &mut self,
        acceleration: u32,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        if source.is_empty() {
            return Ok(write_empty(target));
        }
        let state = match &self.fast {
            Some(state) => state.0,
            // SAFETY: allocates, or returns null.
            None => match NonNull::new(unsafe { LZ4_createStream() }) {
                Some(state) => self.fast.insert(Fast(state)).0,
                None => return Err(no_memory()),
            },
        };
        // SAFETY: the state was initialised by LZ4_createStream and every call that used it
        // succeeded (it is dropped below otherwise); the lengths are those of the two slices.
        let size = unsafe {
            LZ4_compress_fast_extState_fastReset(
                state.as_ptr(),
                source.as_ptr().cast(),
                target.as_mut_ptr().cast(),
                length(source.len()),
                length(target.len()),
                acceleration as c_int,
            )
        };
        if size <= 0 {
            // A state that ran out of room may not be reused without a full reset.
            self.fast = None;
        }
        Ok(written(size))
    }

    /// Compresses with the dense compressor; `None` if the block does not fit in `target`.
    pub(super) fn compress_dense(
        &mut self,
        level: u8,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        if source.is_empty() {
            return Ok(write_empty(target));
        }
        let state = match &self.dense {
            Some(state) => state.0,
            // SAFETY: allocates zeroed memory, or returns null.
            None => match NonNull::new(unsafe { LZ4_createStreamHC() }) {
                Some(state) => self.dense.insert(Dense(state)).0,
                None => return Err(no_memory()),
            },
        };
        // SAFETY: the state was initialised by LZ4_createStreamHC; after a failed call the library
        // itself resets it in full. The lengths are those of the two slices.
        let size = unsafe {
            LZ4_compress_HC_extStateHC_fastReset(
                state.as_ptr(),
                source.as_ptr().cast(),
                target.as_mut_ptr().cast(),
                length(source.len()),
                length(target.len()),
                level.into(),
            )
        };
        Ok(written(size))
    }
}

/// Decodes one block that fills `target`.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    // SAFETY: the lengths are those of the two slices; the decoder reads and writes inside them
    // whatever the bytes are.
    let size = unsafe {
        LZ4_decompress_safe(
            source.as_ptr().cast(),
            target.as_mut_ptr().cast(),
            length(source.len()),
            length(target.len()),
        )
    };
    filled(size, target.len())
}

fn filled(size: c_int, target_bytes: usize) -> Result<()> {
    if usize::try_from(size) == Ok(target_bytes) {
        return Ok(());
    }
    let expected = format!("{target_bytes} decoded bytes");
    Err(match usize::try_from(size) {
        Ok(size) => Error::corrupt(BLOCK, 0, expected, format!("{size} bytes")),
        // A negative result is minus the place of the fault, and one.
        Err(_) => Error::corrupt(
            BLOCK,
            u64::from(size.unsigned_abs()) - 1,
            expected,
            "a malformed sequence",
        ),
    })
}

/// Writes the block of no bytes. The dense compressor looks some bytes before the end of its
/// source, and the pointer of an empty slice may be so low that this wraps around.
fn write_empty(target: &mut [u8]) -> Option<usize> {
    *target.first_mut()? = 0;
    Some(1)
}

fn written(size: c_int) -> Option<usize> {
    usize::try_from(size).ok().filter(|&size| size > 0)
}

/// The C interface counts in `int`. Blocks are at most 1 GiB; a longer target is used in part.
fn length(bytes: usize) -> c_int {
    c_int::try_from(bytes).unwrap_or(c_int::MAX)
}

fn no_memory() -> Error {
    Error::Unsupported {
        what: "lz4: the system gave no memory for a state".to_string(),
    }
}

/// Returns the most bytes a block of `source_bytes` bytes takes.
pub(super) fn bound(source_bytes: usize) -> usize {
    source_bytes + source_bytes / 255 + 16
}
