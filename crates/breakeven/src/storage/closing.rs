//! The file system's answer when a file is closed. One that keeps bytes for a network, or hands them to a program, may
//! report a failed write only then.
//!
//! A file of the standard library ignores the answer of closing. Here it is returned. The system reports once for all
//! descriptors of one opening. So writes go through one descriptor, or the answer is requested before the others are
//! dropped.
//!
//! `unsafe` here: closing a descriptor by its number, which has no safe name that returns the answer.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};

/// Closes a file, and returns the system's answer.
///
/// # Errors
/// Errors of closing; the file is closed all the same.
pub fn close(file: impl Into<OwnedFd>) -> io::Result<()> {
    let number = file.into().into_raw_fd();
    // SAFETY: the descriptor was owned until here, so that nobody else uses or closes it.
    match unsafe { libc::close(number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Asks for the same while the file stays open, by closing another descriptor of it.
///
/// # Errors
/// Errors of closing, and of making the descriptor.
pub fn ask(file: &File) -> io::Result<()> {
    close(file.try_clone()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_asked_is_open_still() {
        let file = tempfile::tempfile().unwrap();
        ask(&file).unwrap();
        file.set_len(7).unwrap();
        close(file).unwrap();
    }
}
