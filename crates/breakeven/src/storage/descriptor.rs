//! The numbers of file descriptors: never those of the standard streams.
//!
//! A host that closed its standard streams has 0, 1 or 2 free, and the next file that it opens gets one of them. A
//! library that prints to "standard error" then writes into that file. SQLite keeps to the same rule
//! (`SQLITE_MINIMUM_FILE_DESCRIPTOR`; "How To Corrupt An SQLite Database File", section 1.1).

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};

/// The first number that does not belong to a standard stream.
const FIRST: i32 = 3;

/// Returns a descriptor of the same file whose number is not that of a standard stream. It is the given one or a copy.
/// A copy is closed when a program is executed.
///
/// # Errors
/// Errors for want of descriptors; the given one is closed.
pub fn above_streams(descriptor: OwnedFd) -> Result<OwnedFd, Errno> {
    if descriptor.as_raw_fd() >= FIRST {
        return Ok(descriptor);
    }
    retry_on_intr(|| fcntl_dupfd_cloexec(&descriptor, FIRST))
}
