//! LZ4 frames decoded in pieces, by the library's own frame decoder.
//!
//! It supports linked blocks, block checks and content checks, which bare blocks do not have. Memory: at most two
//! blocks of the frame's maximum (4 MiB each) and 128 KiB.
//!
//! `unsafe` here: the C functions of the pinned liblz4 1.10, which have no safe binding.
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;

use lz4_sys::{
    LZ4F_createDecompressionContext, LZ4F_decompress, LZ4F_freeDecompressionContext,
    LZ4F_getErrorName, LZ4F_isError, LZ4F_resetDecompressionContext, LZ4FDecompressionContext,
};

use super::corrupt;
use crate::error::{Error, Result};

const VERSION: u32 = 100;

/// A context of the library's frame decoder, always initialised.
pub struct Context(LZ4FDecompressionContext);

// SAFETY: the context is plain memory of liblz4, bound to no thread.
unsafe impl Send for Context {}

impl Context {
    pub fn new() -> Result<Context> {
        let mut context = LZ4FDecompressionContext(ptr::null_mut());
        // SAFETY: writes an initialised context to the place it is given, or returns an error.
        let code = unsafe { LZ4F_createDecompressionContext(&mut context, VERSION) };
        match name_of(code) {
            None => Ok(Context(context)),
            Some(NO_MEMORY) => Err(no_memory()),
            Some(name) => Err(Error::Unsupported {
                what: format!("lz4: {name}"),
            }),
        }
    }

    /// Makes ready for another frame.
    pub fn reset(&mut self) {
        // SAFETY: a live context.
        unsafe { LZ4F_resetDecompressionContext(LZ4FDecompressionContext(self.0.0)) };
    }

    /// Decodes a piece: returns the bytes read, the bytes written, and whether the frame ended.
    pub fn decode(&mut self, source: &[u8], target: &mut [u8]) -> Result<(usize, usize, bool)> {
        let (mut read, mut written) = (source.len(), target.len());
        // SAFETY: a live context and the two slices with their lengths. The decoder stays inside them for all bytes,
        // and keeps no pointer into the target: without `stableDst` it copies the window it needs.
        let code = unsafe {
            LZ4F_decompress(
                LZ4FDecompressionContext(self.0.0),
                target.as_mut_ptr(),
                &mut written,
                source.as_ptr(),
                &mut read,
                ptr::null(),
            )
        };
        match name_of(code) {
            None => Ok((read, written, code == 0)),
            Some(NO_MEMORY) => Err(no_memory()),
            Some(name) => Err(corrupt(0, "a sound lz4 frame", name)),
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: a live context, freed once.
        unsafe { LZ4F_freeDecompressionContext(LZ4FDecompressionContext(self.0.0)) };
    }
}

/// liblz4's name for the error that the system gave no memory.
const NO_MEMORY: &str = "ERROR_allocation_failed";

fn no_memory() -> Error {
    Error::OutOfMemory {
        what: "a decoder of lz4",
    }
}

/// Returns the name of an error code; `None` for success.
fn name_of(code: usize) -> Option<&'static str> {
    // SAFETY: both look at the number alone; the name is a constant string of the library.
    let name = unsafe {
        if LZ4F_isError(code) == 0 {
            return None;
        }
        CStr::from_ptr(LZ4F_getErrorName(code))
    };
    Some(name.to_str().unwrap_or("an error without a name"))
}
