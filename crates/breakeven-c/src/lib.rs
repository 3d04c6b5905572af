//! The C library: streams written and read by C programs. The door itself is `include/breakeven.h`,
//! which documents every function, unit and code; a test holds its numbers and layouts to those here.
//!
//! It does three things and no more. It turns pointers into references after looking for nulls and impossible lengths.
//! It turns errors into codes with a message. It lets no panic out. All else is the library's.
//!
//! `unsafe` here: pointers come from C. Each function says what its caller must have kept.
#![allow(unsafe_code)]
// Standard error may be full or gone, and these end the process then.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod handles;

use std::cell::RefCell;
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use breakeven::stream::{Container, PAYLOAD_BYTES};
use breakeven::{Error, Result};

use handles::{Borrowed, Settings, Strategy};
pub use handles::{ReaderHandle, WriterHandle};

/// Done.
pub const OK: c_int = 0;
/// A null pointer, an option or a range that cannot be.
pub const INVALID: c_int = 1;
/// The operating system refused.
pub const IO: c_int = 2;
/// The input is no whole stream.
pub const CORRUPT: c_int = 3;
/// Reading would take more memory than is allowed.
pub const LIMIT: c_int = 4;
/// Well formed, but not served by this version.
pub const UNSUPPORTED: c_int = 5;
/// Refused because of an error before.
pub const POISONED: c_int = 6;
/// A bug in the library.
pub const PANIC: c_int = 7;
/// Stopped by the program.
pub const STOPPED: c_int = 8;

/// One method for all blocks.
pub const FIXED: u32 = 0;
/// Over as soon as can be.
pub const FASTEST: u32 = 1;
/// As small as can be in a factor of the uncompressed time.
pub const WITHIN: u32 = 2;
/// As small as can be.
pub const SMALLEST: u32 = 3;
/// As cheap as can be.
pub const MONEY: u32 = 4;

/// LZ4 and xz frames as well.
pub const MIXED: u32 = 1;
/// Closing waits until the file is on the medium.
pub const SYNC: u32 = 2;
/// The same bytes every time.
pub const DETERMINISTIC: u32 = 4;

/// Options of a writer: `breakeven_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub size: u32,
    pub workers: u32,
    pub block: u32,
    pub flags: u32,
    pub strategy: u32,
    pub reserved: u32,
    pub factor: f64,
    pub link: f64,
    pub method: *const c_char,
    pub stop: *const StopHandle,
    pub pledged_source_size: u64,
    pub money: *const Money,
}

/// The prices for a stream that is to be cheap: `breakeven_money`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Money {
    pub price_per_core_hour: f64,
    pub price_per_tb_year: f64,
    pub days: f64,
    pub reads: f64,
}

/// The handle by which a program stops its writers: `breakeven_stop`.
pub struct StopHandle(Arc<AtomicBool>);

/// The totals of a closed stream: `breakeven_summary`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    pub raw: u64,
    pub stored: u64,
    pub blocks: u64,
    pub plain_blocks: u64,
    pub compressed_seconds: f64,
    pub drained_seconds: f64,
}

/// When the last call's bytes were done with: `breakeven_times`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    pub compressed_seconds: f64,
    pub drained_seconds: f64,
}

/// A hint: `breakeven_hint`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hint {
    pub start: u64,
    pub end: u64,
    pub number: u16,
    pub payload: [u8; PAYLOAD_BYTES],
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// `breakeven_message`.
#[unsafe(no_mangle)]
pub extern "C" fn breakeven_message() -> *const c_char {
    // Where the thread is ending there is nothing to say any more.
    (MESSAGE.try_with(|message| message.borrow().as_ptr())).unwrap_or(c"".as_ptr())
}

/// `breakeven_version`.
#[unsafe(no_mangle)]
pub extern "C" fn breakeven_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0")
        .as_ptr()
        .cast::<c_char>()
}

/// `breakeven_stop_new`.
#[unsafe(no_mangle)]
pub extern "C" fn breakeven_stop_new() -> *mut StopHandle {
    Box::into_raw(Box::new(StopHandle(Arc::default())))
}

/// `breakeven_stop_set`.
///
/// # Safety
///
/// `stop` is null or of [`breakeven_stop_new`] and not yet freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_stop_set(stop: *const StopHandle) {
    // One store and nothing else: this is called by signal handlers.
    // SAFETY: null or a stop that is there, as the caller must keep.
    if let Some(stop) = unsafe { stop.as_ref() } {
        stop.0.store(true, Ordering::Relaxed);
    }
}

/// `breakeven_stop_free`.
///
/// # Safety
///
/// `stop` is null or of [`breakeven_stop_new`] and not yet freed, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_stop_free(stop: *mut StopHandle) {
    if !stop.is_null() {
        // SAFETY: it came from a box, and is not used again, as the caller must keep.
        drop(unsafe { Box::from_raw(stop) });
    }
}

/// `breakeven_writer_open`.
///
/// # Safety
///
/// `path` and the options' method are null or text that ends with a 0. The options' stop is null or of
/// [`breakeven_stop_new`] and not yet freed. `options` and their money are null or one of their kind. `writer` is null
/// or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_writer_open(
    path: *const c_char,
    options: *const Options,
    writer: *mut *mut WriterHandle,
) -> c_int {
    guard(|| {
        // SAFETY: null or to be written to, as the caller must keep.
        let writer = unsafe { writer.as_mut() }.ok_or_else(|| null("writer"))?;
        *writer = ptr::null_mut();
        // SAFETY: null or text, as the caller must keep.
        let path = unsafe { path_of(path) }?;
        // SAFETY: null or options, as the caller must keep.
        let settings = match unsafe { options.as_ref() } {
            // SAFETY: the method is null or text, stop and money null or one, as the caller must keep.
            Some(options) => unsafe { settings_of(options) }?,
            None => Settings::default(),
        };
        let handle = WriterHandle::open(path, &settings)?;
        *writer = Box::into_raw(Box::new(handle));
        Ok(())
    })
}

/// `breakeven_advise`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed; `hints` are `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_advise(
    writer: *mut WriterHandle,
    hints: *const Hint,
    count: usize,
) -> c_int {
    guard(|| {
        // SAFETY: null or a writer that nobody else uses now, as the caller must keep.
        let writer = unsafe { writer.as_mut() }.ok_or_else(|| null("writer"))?;
        // SAFETY: so many hints, as the caller must keep.
        let hints = unsafe { items("hints", hints, count) }?;
        hints.iter().try_for_each(|hint| writer.advise(hint))
    })
}

/// `breakeven_write`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed; `buffer` has `length` bytes
/// that nobody changes before this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_write(
    writer: *mut WriterHandle,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> c_int {
    guard(|| {
        // SAFETY: null or a writer that nobody else uses now, as the caller must keep.
        let writer = unsafe { writer.as_mut() }.ok_or_else(|| null("writer"))?;
        // SAFETY: so many bytes that nobody changes now, as the caller must keep.
        let bytes = unsafe { items("buffer", buffer.cast::<u8>(), length) }?;
        writer.write(bytes, offset)
    })
}

/// `breakeven_write_async`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed. `buffer` has `length` bytes that stay and that
/// nobody changes until [`breakeven_wait`], [`breakeven_wait_for`] of them, [`breakeven_writer_close`] or
/// [`breakeven_writer_abandon`] returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_write_async(
    writer: *mut WriterHandle,
    buffer: *const c_void,
    length: usize,
    offset: u64,
) -> c_int {
    guard(|| {
        // SAFETY: null or a writer that nobody else uses now, as the caller must keep.
        let writer = unsafe { writer.as_mut() }.ok_or_else(|| null("writer"))?;
        // SAFETY: so many bytes that stay until they were waited for, as the caller must keep.
        let buffer = unsafe { Borrowed::new(items("buffer", buffer.cast::<u8>(), length)?) };
        writer.write_async(buffer, offset)
    })
}

/// `breakeven_wait`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_wait(writer: *mut WriterHandle) -> c_int {
    guard(|| {
        // SAFETY: null or a writer that nobody else uses now, as the caller must keep.
        let writer = unsafe { writer.as_mut() }.ok_or_else(|| null("writer"))?;
        writer.wait()
    })
}

/// `breakeven_wait_for`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed. The bytes behind `buffer` are not looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_wait_for(
    writer: *mut WriterHandle,
    buffer: *const c_void,
    length: usize,
) -> c_int {
    guard(|| {
        // SAFETY: null or a writer that nobody else uses now, as the caller must keep.
        let writer = unsafe { writer.as_mut() }.ok_or_else(|| null("writer"))?;
        check_length("buffer", buffer.is_null(), length, 1)?;
        let first = buffer.addr();
        writer.wait_for(&(first..first.saturating_add(length)))
    })
}

/// `breakeven_call_times`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed; `times` is null or may be
/// written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_call_times(
    writer: *mut WriterHandle,
    times: *mut Times,
) -> c_int {
    guard(|| {
        // SAFETY: null or a writer that nobody else uses now, as the caller must keep.
        let writer = unsafe { writer.as_mut() }.ok_or_else(|| null("writer"))?;
        // SAFETY: null or to be written to, as the caller must keep.
        let times = unsafe { times.as_mut() }.ok_or_else(|| null("times"))?;
        *times = writer.call_times()?;
        Ok(())
    })
}

/// `breakeven_writer_close`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed, and is not used again;
/// `summary` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_writer_close(
    writer: *mut WriterHandle,
    summary: *mut Summary,
) -> c_int {
    guard(|| {
        if writer.is_null() {
            return Err(null("writer"));
        }
        // SAFETY: it came from a box, and is not used again, as the caller must keep.
        let writer = unsafe { Box::from_raw(writer) };
        let found = writer.close()?;
        // SAFETY: null or to be written to, as the caller must keep.
        if let Some(summary) = unsafe { summary.as_mut() } {
            *summary = found;
        }
        Ok(())
    })
}

/// `breakeven_writer_abandon`.
///
/// # Safety
///
/// `writer` is null or of [`breakeven_writer_open`] and not yet closed, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_writer_abandon(writer: *mut WriterHandle) {
    guard(|| {
        if !writer.is_null() {
            // SAFETY: it came from a box, and is not used again, as the caller must keep.
            drop(unsafe { Box::from_raw(writer) });
        }
        Ok(())
    });
}

/// `breakeven_reader_open`.
///
/// # Safety
///
/// `path` is null or text that ends with a 0, `reader` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_reader_open(
    path: *const c_char,
    reader: *mut *mut ReaderHandle,
) -> c_int {
    guard(|| {
        // SAFETY: null or to be written to, as the caller must keep.
        let reader = unsafe { reader.as_mut() }.ok_or_else(|| null("reader"))?;
        *reader = ptr::null_mut();
        // SAFETY: null or text, as the caller must keep.
        let path = unsafe { path_of(path) }?;
        *reader = Box::into_raw(Box::new(ReaderHandle::open(path)?));
        Ok(())
    })
}

/// `breakeven_read`.
///
/// # Safety
///
/// `reader` is null or of [`breakeven_reader_open`] and not yet closed. `buffer` has room for `length` bytes, which
/// nobody else uses now. `done` is null or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_read(
    reader: *mut ReaderHandle,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
    done: *mut usize,
) -> c_int {
    guard(|| {
        // SAFETY: null or a reader that nobody else uses now, as the caller must keep.
        let reader = unsafe { reader.as_mut() }.ok_or_else(|| null("reader"))?;
        // SAFETY: null or to be written to, as the caller must keep.
        let done = unsafe { done.as_mut() }.ok_or_else(|| null("done"))?;
        *done = 0;
        check_length("buffer", buffer.is_null(), length, 1)?;
        while *done < length {
            let content = reader.content_at(offset.saturating_add(*done as u64))?;
            let count = content.len().min(length - *done);
            if count == 0 {
                break;
            }
            // SAFETY: `buffer` has room for `length` bytes, as the caller must keep, and the decoded bytes lie
            // elsewhere. C's memory may hold no values yet, so it is not made a slice.
            unsafe {
                let target = buffer.cast::<u8>().add(*done);
                ptr::copy_nonoverlapping(content.as_ptr(), target, count);
            }
            reader.consume(count);
            *done += count;
        }
        Ok(())
    })
}

/// `breakeven_reader_close`.
///
/// # Safety
///
/// `reader` is null or of [`breakeven_reader_open`] and not yet closed, and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn breakeven_reader_close(reader: *mut ReaderHandle) {
    guard(|| {
        if !reader.is_null() {
            // SAFETY: it came from a box, and is not used again, as the caller must keep.
            drop(unsafe { Box::from_raw(reader) });
        }
        Ok(())
    });
}

/// Does the work of a function: its error becomes a code and a message, and so does a panic.
fn guard(work: impl FnOnce() -> Result<()>) -> c_int {
    let error = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(())) => return OK,
        Ok(Err(error)) => error,
        Err(panic) => Error::Panicked {
            what: "the library",
            message: (panic.downcast_ref::<&str>().map(ToString::to_string))
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default(),
        },
    };
    let mut text = error.to_string();
    // A path may hold what a C text cannot.
    text.retain(|letter| letter != '\0');
    let text = CString::new(text).unwrap_or_default();
    let _ = MESSAGE.try_with(|message| message.replace(text));
    code_of(&error)
}

fn code_of(error: &Error) -> c_int {
    match error {
        Error::Invalid { .. } | Error::Parse { .. } => INVALID,
        Error::Io { .. } => IO,
        Error::Corrupt { .. } => CORRUPT,
        Error::Limit { .. } => LIMIT,
        Error::Unsupported { .. } => UNSUPPORTED,
        Error::Panicked { .. } => PANIC,
        Error::Interrupted => STOPPED,
        // Any later error of the library ends the stream.
        _ => POISONED,
    }
}

fn null(what: &'static str) -> Error {
    Error::invalid(what, "a null pointer")
}

/// Refuses what no memory can hold: a null pointer with items, or more bytes than there can be.
fn check_length(what: &'static str, is_null: bool, count: usize, size: usize) -> Result<()> {
    if is_null && count > 0 {
        return Err(null(what));
    }
    if count > isize::MAX as usize / size {
        let reason = format!("{count} times {size} bytes are more than there can be");
        return Err(Error::invalid(what, reason));
    }
    Ok(())
}

/// Returns what C calls an array.
///
/// # Safety
///
/// `first` is null or has `count` items behind it, which nobody changes while they are used.
unsafe fn items<'a, T>(what: &'static str, first: *const T, count: usize) -> Result<&'a [T]> {
    check_length(what, first.is_null(), count, size_of::<T>())?;
    if count == 0 {
        return Ok(&[]);
    }
    if !first.is_aligned() {
        return Err(Error::invalid(what, "a pointer that is not aligned"));
    }
    // SAFETY: not null, aligned, not too long, and there, as the caller must keep.
    Ok(unsafe { slice::from_raw_parts(first, count) })
}

/// # Safety
///
/// `path` is null or text that ends with a 0.
unsafe fn path_of<'a>(path: *const c_char) -> Result<&'a Path> {
    if path.is_null() {
        return Err(null("path"));
    }
    // SAFETY: text that ends with a 0, as the caller must keep.
    let path = unsafe { CStr::from_ptr(path) };
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// # Safety
///
/// The method is null or text that ends with a 0, stop and money null or one that is there.
unsafe fn settings_of(options: &Options) -> Result<Settings> {
    let invalid = |reason: String| Err(Error::invalid("options of a writer", reason));
    if options.size as usize != size_of::<Options>() {
        let size = size_of::<Options>();
        return invalid(format!("their size is {}, here {size}", options.size));
    }
    if options.flags & !(MIXED | SYNC | DETERMINISTIC) != 0 || options.reserved != 0 {
        let Options {
            flags, reserved, ..
        } = options;
        return invalid(format!("unknown flags: {flags:#x} and {reserved:#x}"));
    }
    let method = match options.method.is_null() {
        true => None,
        // SAFETY: text that ends with a 0, as the caller must keep.
        false => Some(unsafe { CStr::from_ptr(options.method) }.to_string_lossy()),
    };
    // SAFETY: null or one that is there, as the caller must keep.
    let money = unsafe {
        items(
            "money",
            options.money,
            usize::from(!options.money.is_null()),
        )
    }?;
    let strategy = match (options.strategy, &method) {
        (FIXED, None) => Strategy::default(),
        (FIXED, Some(method)) => Strategy::Fixed(method.parse()?),
        (FASTEST..=MONEY, Some(_)) => return invalid("a method and a strategy".to_string()),
        (FASTEST, None) => Strategy::Fastest,
        (WITHIN, None) => Strategy::Within(options.factor),
        (SMALLEST, None) => Strategy::Smallest,
        (MONEY, None) => Strategy::Money(*money.first().ok_or_else(|| null("money"))?),
        (other, _) => return invalid(format!("unknown strategy {other}")),
    };
    if options.strategy != MONEY && !money.is_empty() {
        return invalid("money that nothing goes by".to_string());
    }
    if options.strategy != WITHIN && options.factor != 0.0 {
        return invalid(format!("a factor of {} for nothing", options.factor));
    }
    if !(options.link >= 0.0 && options.link.is_finite()) {
        return invalid(format!("a link of {} bytes per second", options.link));
    }
    Ok(Settings {
        worker_count: (options.workers > 0).then_some(options.workers as usize),
        block_bytes: (options.block > 0).then_some(options.block as usize),
        container: match options.flags & MIXED {
            0 => Container::Portable,
            _ => Container::Mixed,
        },
        is_synced: options.flags & SYNC != 0,
        is_deterministic: options.flags & DETERMINISTIC != 0,
        // SAFETY: null or a stop that is there, as the caller must keep.
        stop: unsafe { options.stop.as_ref() }.map(|it| Arc::clone(&it.0)),
        strategy,
        link_bytes_per_second: (options.link > 0.0).then_some(options.link),
        pledged_source_bytes: (options.pledged_source_size > 0)
            .then_some(options.pledged_source_size),
    })
}
