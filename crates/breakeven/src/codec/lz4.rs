//! LZ4 blocks: raw, without frame or length; the fast and the dense compressor.
//!
//! The working states are allocated once. Their reuse avoids the 16 KiB (or 256 KiB) clearing that the plain calls do
//! for each block.
//!
//! `unsafe` here: the C functions of the pinned liblz4 1.10, which has no safe binding for states,
//! limits and dictionaries.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::ptr::NonNull;
use std::sync::Arc;

use lz4_sys::{LZ4_createStream, LZ4_decompress_safe, LZ4_freeStream, LZ4StreamEncode};

use crate::error::{Error, Result};

/// A greater acceleration has no further effect in LZ4.
pub(super) const ACCELERATION_MAX: u32 = 65_537;
/// Bytes of the fast compressor's state (`LZ4_STREAM_MINSIZE`).
pub(super) const FAST_STATE_BYTES: usize = (1 << 14) + 32;
/// Bytes of the dense compressor's state (`LZ4_STREAMHC_MINSIZE`).
pub(super) const DENSE_STATE_BYTES: usize = 262_200;

const BLOCK: &str = "lz4 block";

/// The dense compressor's state, known to us only by address.
#[repr(C)]
pub(super) struct DenseState {
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
    fn LZ4_initStream(state: *mut LZ4StreamEncode, state_bytes: usize) -> *mut LZ4StreamEncode;
    fn LZ4_resetStream_fast(state: *mut LZ4StreamEncode);
    fn LZ4_loadDictSlow(
        state: *mut LZ4StreamEncode,
        dictionary: *const c_char,
        dictionary_bytes: c_int,
    ) -> c_int;
    fn LZ4_attach_dictionary(state: *mut LZ4StreamEncode, dictionary: *const LZ4StreamEncode);
    fn LZ4_compress_fast_continue(
        state: *mut LZ4StreamEncode,
        source: *const c_char,
        target: *mut c_char,
        source_bytes: c_int,
        target_bytes: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe_usingDict(
        source: *const c_char,
        target: *mut c_char,
        source_bytes: c_int,
        target_bytes: c_int,
        dictionary: *const c_char,
        dictionary_bytes: c_int,
    ) -> c_int;
    fn LZ4_resetStreamHC_fast(state: *mut DenseState, level: c_int);
    fn LZ4_loadDictHC(
        state: *mut DenseState,
        dictionary: *const c_char,
        dictionary_bytes: c_int,
    ) -> c_int;
    fn LZ4_attach_HC_dictionary(state: *mut DenseState, dictionary: *const DenseState);
    fn LZ4_compress_HC_continue(
        state: *mut DenseState,
        source: *const c_char,
        target: *mut c_char,
        source_bytes: c_int,
        target_bytes: c_int,
    ) -> c_int;
}

/// The two compressors, each with a state for plain blocks and one for blocks with a dictionary, made at first use.
#[derive(Default)]
pub(super) struct Encoder {
    fast: Option<State<LZ4StreamEncode>>,
    fast_with: Option<State<LZ4StreamEncode>>,
    dense: Option<State<DenseState>>,
    dense_with: Option<State<DenseState>>,
}

/// The working memory of a compressor of liblz4.
pub(super) trait Working {
    /// Allocates and initialises a state, or returns null.
    fn create() -> *mut Self;

    /// # Safety
    /// `state` comes from `create`, and is not used afterwards.
    unsafe fn free(state: *mut Self);
}

impl Working for LZ4StreamEncode {
    fn create() -> *mut LZ4StreamEncode {
        // SAFETY: allocates and initialises, or returns null.
        unsafe { LZ4_createStream() }
    }

    unsafe fn free(state: *mut LZ4StreamEncode) {
        // SAFETY: as the caller promises.
        unsafe { LZ4_freeStream(state) };
    }
}

impl Working for DenseState {
    fn create() -> *mut DenseState {
        // SAFETY: allocates zeroed memory, or returns null.
        unsafe { LZ4_createStreamHC() }
    }

    unsafe fn free(state: *mut DenseState) {
        // SAFETY: as the caller promises.
        unsafe { LZ4_freeStreamHC(state) };
    }
}

/// A compressor's state, always initialised.
struct State<T: Working>(NonNull<T>);

// SAFETY: the states are plain memory of liblz4, bound to no thread.
unsafe impl<T: Working> Send for State<T> {}

impl<T: Working> State<T> {
    fn new() -> Result<State<T>> {
        NonNull::new(T::create()).map(State).ok_or_else(no_memory)
    }

    fn as_ptr(&mut self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T: Working> Drop for State<T> {
    fn drop(&mut self) {
        // SAFETY: made by `create` and freed only here.
        unsafe { T::free(self.0.as_ptr()) };
    }
}

/// A dictionary indexed for a compressor.
pub(super) struct Indexed<T: Working> {
    state: State<T>,
    /// The state points into these bytes.
    _bytes: Arc<[u8]>,
}

/// A dictionary indexed for the fast compressor.
pub(super) type FastDictionary = Indexed<LZ4StreamEncode>;
/// A dictionary indexed for the dense compressor: for its level 2, or for those above.
pub(super) type DenseDictionary = Indexed<DenseState>;

// SAFETY: once made, the state is only read, by the compressions it is attached to.
unsafe impl<T: Working> Sync for Indexed<T> {}

impl FastDictionary {
    pub(super) fn new(bytes: Arc<[u8]>) -> Result<FastDictionary> {
        let mut state = State::new()?;
        // SAFETY: a fresh state; the bytes live as long as the state, in the same struct.
        unsafe { LZ4_loadDictSlow(state.as_ptr(), bytes.as_ptr().cast(), length(bytes.len())) };
        Ok(Indexed {
            state,
            _bytes: bytes,
        })
    }
}

impl DenseDictionary {
    pub(super) fn new(level: u8, bytes: Arc<[u8]>) -> Result<DenseDictionary> {
        let mut state = State::new()?;
        // SAFETY: the state is fresh, and its level is set before the load as the library asks. The bytes live as long
        // as the state, in the same struct.
        unsafe {
            LZ4_resetStreamHC_fast(state.as_ptr(), level.into());
            LZ4_loadDictHC(state.as_ptr(), bytes.as_ptr().cast(), length(bytes.len()));
        }
        Ok(Indexed {
            state,
            _bytes: bytes,
        })
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
        let state = made_once(&mut self.fast)?;
        // SAFETY: an initialised state, and the slices with their lengths.
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
        Ok(settle(state, size))
    }

    /// As [`Encoder::compress_fast`], with a dictionary.
    pub(super) fn compress_fast_with(
        &mut self,
        acceleration: u32,
        dictionary: &FastDictionary,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        if source.is_empty() {
            return Ok(write_empty(target));
        }
        let state = made_once(&mut self.fast_with)?;
        // SAFETY: an initialised state that starts a new chain of one block, and the slices with their lengths. The
        // dictionary outlives the call. Before the next call, the reset forgets all references to it and to the source.
        let size = unsafe {
            LZ4_resetStream_fast(state.as_ptr());
            LZ4_attach_dictionary(state.as_ptr(), dictionary.state.0.as_ptr());
            LZ4_compress_fast_continue(
                state.as_ptr(),
                source.as_ptr().cast(),
                target.as_mut_ptr().cast(),
                length(source.len()),
                length(target.len()),
                acceleration as c_int,
            )
        };
        Ok(settle(state, size))
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
        let state = made_once(&mut self.dense)?;
        // SAFETY: an initialised state, and the slices with their lengths. After a call that ran out of room, the
        // library itself resets the state in full.
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

    /// As [`Encoder::compress_dense`], with a dictionary.
    pub(super) fn compress_dense_with(
        &mut self,
        level: u8,
        dictionary: &DenseDictionary,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Option<usize>> {
        if source.is_empty() {
            return Ok(write_empty(target));
        }
        let state = made_once(&mut self.dense_with)?;
        // SAFETY: as for the fast compressor with a dictionary.
        let size = unsafe {
            LZ4_resetStreamHC_fast(state.as_ptr(), level.into());
            LZ4_attach_HC_dictionary(state.as_ptr(), dictionary.state.0.as_ptr());
            LZ4_compress_HC_continue(
                state.as_ptr(),
                source.as_ptr().cast(),
                target.as_mut_ptr().cast(),
                length(source.len()),
                length(target.len()),
            )
        };
        Ok(written(size))
    }
}

fn made_once<T: Working>(slot: &mut Option<State<T>>) -> Result<&mut State<T>> {
    match slot {
        Some(state) => Ok(state),
        None => Ok(slot.insert(State::new()?)),
    }
}

/// Takes the outcome of a call of the fast compressor. A state that ran out of room is undefined:
/// it starts afresh. (The dense compressor's is reset by the library itself.)
fn settle(state: &mut State<LZ4StreamEncode>, size: c_int) -> Option<usize> {
    if size <= 0 {
        // SAFETY: the memory of the state, with its size.
        unsafe { LZ4_initStream(state.as_ptr(), FAST_STATE_BYTES) };
    }
    written(size)
}

/// Decodes one block that fills `target`.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Result<()> {
    // SAFETY: the lengths are those of the two slices; the decoder stays inside them for any bytes.
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

/// As [`decompress`], with the dictionary the block was compressed with.
pub(super) fn decompress_with(dictionary: &[u8], source: &[u8], target: &mut [u8]) -> Result<()> {
    // SAFETY: as for `decompress`; matches before the target are read only from the dictionary.
    let size = unsafe {
        LZ4_decompress_safe_usingDict(
            source.as_ptr().cast(),
            target.as_mut_ptr().cast(),
            length(source.len()),
            length(target.len()),
            dictionary.as_ptr().cast(),
            length(dictionary.len()),
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
        // A negative result is minus the place of the fault, minus one.
        Err(_) => Error::corrupt(
            BLOCK,
            u64::from(size.unsigned_abs()) - 1,
            expected,
            "a malformed sequence",
        ),
    })
}

/// Writes the block of no bytes. The dense compressor computes an address some bytes before the end of its source. For
/// an empty slice, whose pointer may be very low, that could wrap around.
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
    Error::OutOfMemory {
        what: "a state of lz4",
    }
}

/// Returns the most bytes a block of `source_bytes` bytes takes.
pub(super) fn bound(source_bytes: usize) -> usize {
    source_bytes + source_bytes / 255 + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" {
        fn LZ4_sizeofState() -> c_int;
        fn LZ4_sizeofStateHC() -> c_int;
    }

    #[test]
    fn states_have_the_stated_size() {
        // SAFETY: both take nothing and return a constant of the library.
        let (fast, dense) = unsafe { (LZ4_sizeofState(), LZ4_sizeofStateHC()) };
        assert_eq!(usize::try_from(fast), Ok(FAST_STATE_BYTES));
        assert_eq!(usize::try_from(dense), Ok(DENSE_STATE_BYTES));
    }
}
