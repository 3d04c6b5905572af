//! The standard streams: all reading, printing and messages go through here.
//!
//! **Standard output** is written through one descriptor. It is closed at the end, because some file systems report a
//! failed write only then. A failed print of a report is remembered and reported at the end. A reader that left, or a
//! full disk, changes nothing in the work and results of a command. Data is different: a failed write of it ends the
//! command, by [`ReaderGone`] where only the reader left.
//!
//! **Closed streams.** Rust opens `/dev/null` in place of closed ones, before `main`, so that no file gets their
//! numbers by chance. A read from nowhere, or a lost output, would then pass for success. So before that happens, a
//! file is put there that can only be used in the wrong direction, as GNU's `stdopen` does.
//!
//! `unsafe` here: a function that the linker runs before `main`, and the number of standard output, which the process
//! has from its start.
#![allow(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::mem::forget;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use breakeven::storage::closing;
use breakeven_cli::text::printable;
use indicatif::ProgressBar;
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;

/// The stream's name for messages.
pub const OUTPUT: &str = "standard output";
/// The other's.
pub const INPUT: &str = "standard input";

// SAFETY: the C library calls the functions in this section once, before there are threads. The function uses nothing
// of Rust's that `main` would have to prepare.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = occupy;

/// Opens a file for each of the three streams that is closed: one for writing in place of the input, and so on.
extern "C" fn occupy() {
    // The system gives the lowest free number, so the first that is none of the three ends the loop.
    while let Ok(file) = open("/dev/null", OFlags::RDONLY, Mode::empty()) {
        match file.as_raw_fd() {
            0 => {
                drop(file);
                forget(open("/dev/null", OFlags::WRONLY, Mode::empty()));
            }
            1 | 2 => forget(file),
            _ => return,
        }
    }
}

/// The reader of the data on standard output left, so there is nobody to go on for.
#[derive(Debug)]
pub struct ReaderGone;

impl fmt::Display for ReaderGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads standard output any more")
    }
}

/// Reports at once the error that [`finish`] would report, where nothing is open to write to.
///
/// # Errors
///
/// Standard output was closed, or is open for reading only.
pub fn check() -> Result<()> {
    check_open(io::stdout().as_fd(), OFlags::RDONLY).context(OUTPUT)
}

/// Returns standard input as a file.
///
/// # Errors
///
/// It was closed, or is open for writing only.
pub fn input() -> Result<File> {
    let stdin = io::stdin();
    check_open(stdin.as_fd(), OFlags::WRONLY).context(INPUT)?;
    make_blocking(stdin.as_fd());
    let duplicate = stdin.as_fd().try_clone_to_owned().context(INPUT)?;
    Ok(File::from(duplicate))
}

/// Refuses a stream that is open only the other way round.
fn check_open(stream: BorrowedFd<'_>, wrong: OFlags) -> io::Result<()> {
    match fcntl_getfl(stream)? & OFlags::RWMODE {
        mode if mode == wrong => Err(io::Error::from_raw_os_error(Errno::BADF.raw_os_error())),
        _ => Ok(()),
    }
}

/// Makes a stream blocking that was handed down as non-blocking, as gzip does: a slow reader is no error. Where that
/// fails, the first call that would wait reports it.
pub fn make_blocking(stream: BorrowedFd<'_>) {
    let flags = fcntl_getfl(stream).unwrap_or(OFlags::empty());
    if flags.contains(OFlags::NONBLOCK) {
        let _ = fcntl_setfl(stream, flags.difference(OFlags::NONBLOCK));
    }
}

/// Returns standard output as a file. It is the only descriptor, so that the error of closing it is seen.
pub fn output() -> Arc<File> {
    static FILE: OnceLock<Arc<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        // SAFETY: `occupy` saw to it that it is open, and it stays open until `finish` ends its use; a static is never
        // dropped.
        let file = unsafe { File::from_raw_fd(1) };
        make_blocking(file.as_fd());
        Arc::new(file)
    });
    Arc::clone(file)
}

/// Why something could not be printed: the first reason.
static UNPRINTED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Prints a report, or as much of it as possible; [`finish`] reports a failure.
pub fn print(text: impl AsRef<[u8]>) {
    let mut unprinted = UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    if unprinted.is_none() {
        *unprinted = output().as_ref().write_all(text.as_ref()).err();
    }
}

/// Prints a line that a server goes on without.
pub fn greet(text: &str) {
    let _ = output().as_ref().write_all(text.as_bytes());
}

/// Ends the use of standard output; nothing may write to it after this.
///
/// # Errors
///
/// The output that could not be printed and why, or the error of closing. A reader that left is no error.
pub fn finish() -> Result<()> {
    let mut unprinted = UNPRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: as in `output`; it is closed once, at the end of the program.
    let closed = closing::close(unsafe { OwnedFd::from_raw_fd(1) });
    let outcome = match unprinted.take() {
        None => closed,
        Some(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        Some(error) => Err(error),
    };
    outcome.context(OUTPUT)
}

/// Prints a message for people, in one line but for the line feeds of a text that has several; names in it are quoted.
/// Nothing changes where nobody can read it any more.
pub fn tell(text: &str) {
    let lines: Vec<String> = text.lines().map(printable).collect();
    let _ = io::stderr().write_all((lines.join("\n") + "\n").as_bytes());
}

/// Draws a bar again and again, as long as it is shown. Where the system starts no thread, it is drawn as it moves.
pub fn keep_drawing(bar: &ProgressBar, every: Duration) {
    if bar.is_hidden() {
        return;
    }
    let bar = bar.downgrade();
    let draw = move || {
        while let Some(bar) = bar.upgrade().filter(|bar| !bar.is_finished()) {
            bar.tick();
            drop(bar);
            std::thread::park_timeout(every);
        }
    };
    let _ = std::thread::Builder::new().spawn(draw);
}

static SILENT: AtomicBool = AtomicBool::new(false);

/// Ends all complaints, for callers who look at the exit code alone.
pub fn silence() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Prints an error under the program's name, in one line with any names.
pub fn complain(text: impl fmt::Display) {
    if SILENT.load(Ordering::Relaxed) {
        return;
    }
    tell(&printable(&format!("breakeven: {text}")));
}
