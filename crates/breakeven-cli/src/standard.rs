//! Standard input and standard output where nothing is open: what is read or written there is an error.
//!
//! Rust opens `/dev/null` in their place before `main`, so that no file gets their numbers by chance. Reading a
//! stream from nowhere, or losing one, would then pass for success. Before that happens a file is put there which
//! can only be used the wrong way round, as GNU's `stdopen` does.
//!
//! `unsafe` here: a function that runs before `main`, of which the linker has to be told.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{self, Write};
use std::mem::forget;
use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::{Mode, OFlags, fcntl_getfl, open};
use rustix::io::Errno;

// SAFETY: the C library calls what it finds in this section once, before there are threads, and the function
// uses nothing of Rust's that `main` would have to prepare.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = occupy;

/// Opens a file for each of the three that is closed: one to be written for what is read, and so on.
extern "C" fn occupy() {
    // The lowest free number is taken, so that the first that is none of the three ends it.
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

/// Says at once what [`print`] would say at the end, where nothing is open to print to.
///
/// # Errors
///
/// Standard output was closed, or is open for reading only.
pub fn check() -> io::Result<()> {
    let mode = fcntl_getfl(io::stdout().as_fd())? & OFlags::RWMODE;
    match mode == OFlags::RDONLY {
        true => Err(io::Error::from_raw_os_error(Errno::BADF.raw_os_error())),
        false => Ok(()),
    }
}

/// Prints to standard output. [`io::Stdout`] takes it for success where nothing can be written.
///
/// # Errors
///
/// Those of writing.
pub fn print(bytes: &[u8]) -> io::Result<()> {
    File::from(io::stdout().as_fd().try_clone_to_owned()?).write_all(bytes)
}
