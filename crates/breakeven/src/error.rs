//! The one error of the library.
//!
//! A bug in this library panics. Bad bytes, a bad disk, a bad option or a caller's limit is an `Error`. It names the
//! thing, its place, the expected value and the value found.

use crate::quoted::quoted;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A result whose error is [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// The failures of the library, worded for people: the thing, the place, expected against found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused an operation on a file or device.
    Io {
        /// The operation: `open`, `read`.
        operation: &'static str,
        /// The file or device.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Stored bytes are not what was written: a checksum, a length or a structure is wrong.
    Corrupt {
        /// The damaged thing.
        what: &'static str,
        /// The byte of it where that was seen.
        offset: u64,
        /// The expected value.
        expected: String,
        /// The value found.
        found: String,
    },
    /// A limit the caller set would be passed.
    Limit {
        /// The limited thing.
        what: &'static str,
        /// The limit.
        limit_bytes: u64,
        /// The bytes that the operation would take.
        needed_bytes: u64,
    },
    /// The bytes or the request are well formed, but this build or version cannot serve them.
    Unsupported {
        /// The thing that is not supported.
        what: String,
    },
    /// The system gave no memory. The request itself is sound: fewer threads, a smaller window or more memory may serve
    /// it.
    OutOfMemory {
        /// The purpose of the memory.
        what: &'static str,
    },
    /// A text (method, price, profile, trace) could not be read.
    Parse {
        /// The thing to be read.
        what: &'static str,
        /// The text.
        text: String,
        /// Its fault, and the values that are accepted.
        reason: String,
    },
    /// An option has a value outside its range.
    Invalid {
        /// The option.
        what: &'static str,
        /// The fault of its value, and the values that are accepted.
        reason: String,
    },
    /// The store refuses work because an earlier write or sync failed; reopen it.
    Poisoned {
        /// The store.
        what: String,
        /// The cause of the failure.
        cause: String,
    },
    /// A piece of work ended in a panic: a bug, in it or below it.
    Panicked {
        /// The piece of work.
        what: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// Somebody else was in the way for as long as it was tried; nothing is wrong, and trying again is right.
    Busy {
        /// The missing thing.
        what: &'static str,
    },
    /// The caller asked to stop.
    Interrupted,
}

impl Error {
    /// Wraps an operating-system error with the operation and the path it concerned.
    pub fn io(operation: &'static str, path: impl AsRef<Path>, source: io::Error) -> Error {
        Error::Io {
            operation,
            path: path.as_ref().to_path_buf(),
            source,
        }
    }

    /// Reports stored bytes at `offset` in `what` that differ from the bytes written.
    pub fn corrupt(
        what: &'static str,
        offset: u64,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Error {
        Error::Corrupt {
            what,
            offset,
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }

    /// Returns whether the system refused for want of room: a full file system, a quota, the longest file it has.
    pub fn is_out_of_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let Error::Io { source, .. } = self else {
            return false;
        };
        matches!(source.kind(), FileTooLarge | QuotaExceeded | StorageFull)
    }

    /// Says whether the system gave no memory.
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Error::OutOfMemory { .. } => true,
            Error::Io { source, .. } => source.kind() == io::ErrorKind::OutOfMemory,
            _ => false,
        }
    }

    /// Sees whether the system would give memory, where taking it without asking would end the process.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if it would not.
    #[cfg(any(feature = "pages", feature = "stream"))]
    pub(crate) fn try_memory(bytes: usize, what: &'static str) -> Result<()> {
        let mut taken = Vec::<u8>::new();
        let outcome = taken.try_reserve_exact(bytes);
        // An allocation that nothing looks at would be left out.
        std::hint::black_box(&taken);
        outcome.map_err(|_| Error::OutOfMemory { what })
    }

    /// Returns the error with its place moved by `bytes`: from a part's own count to the whole's.
    pub fn moved_by(self, bytes: u64) -> Error {
        match self {
            Error::Corrupt {
                what,
                offset,
                expected,
                found,
            } => Error::Corrupt {
                what,
                offset: offset + bytes,
                expected,
                found,
            },
            other => other,
        }
    }

    /// Returns the same error for another who waited for the same work. An operating-system error
    /// keeps its number, another one its kind and message.
    pub(crate) fn duplicate(&self) -> Error {
        match self {
            Error::Io {
                operation,
                path,
                source,
            } => Error::Io {
                operation,
                path: path.clone(),
                source: match source.raw_os_error() {
                    Some(number) => io::Error::from_raw_os_error(number),
                    None => io::Error::new(source.kind(), source.to_string()),
                },
            },
            Error::Corrupt {
                what,
                offset,
                expected,
                found,
            } => Error::corrupt(what, *offset, expected, found),
            &Error::Limit {
                what,
                limit_bytes,
                needed_bytes,
            } => Error::Limit {
                what,
                limit_bytes,
                needed_bytes,
            },
            Error::Unsupported { what } => Error::Unsupported { what: what.clone() },
            &Error::OutOfMemory { what } => Error::OutOfMemory { what },
            Error::Parse { what, text, reason } => Error::Parse {
                what,
                text: text.clone(),
                reason: reason.clone(),
            },
            Error::Invalid { what, reason } => Error::invalid(what, reason),
            Error::Poisoned { what, cause } => Error::Poisoned {
                what: what.clone(),
                cause: cause.clone(),
            },
            Error::Panicked { what, message } => Error::Panicked {
                what,
                message: message.clone(),
            },
            &Error::Busy { what } => Error::Busy { what },
            Error::Interrupted => Error::Interrupted,
        }
    }

    /// Reports a text that could not be read as a `what`, cut to its first 120 characters.
    pub fn parse(what: &'static str, text: &str, reason: impl fmt::Display) -> Error {
        let text = text.chars().take(120).collect();
        Error::Parse {
            what,
            text,
            reason: reason.to_string(),
        }
    }

    /// Reports an option outside its range.
    pub fn invalid(what: &'static str, reason: impl fmt::Display) -> Error {
        Error::Invalid {
            what,
            reason: reason.to_string(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io {
                operation,
                path,
                source,
            } => {
                write!(f, "{operation} {}: {source}", quoted(&path))
            }
            Error::Corrupt {
                what,
                offset,
                expected,
                found,
            } => {
                write!(
                    f,
                    "corrupt {what} at byte {offset}: expected {expected}, found {found}"
                )
            }
            Error::Limit {
                what,
                limit_bytes,
                needed_bytes,
            } => {
                write!(
                    f,
                    "{what} needs {needed_bytes} bytes, the limit is {limit_bytes} bytes"
                )
            }
            Error::Unsupported { what } => write!(f, "not supported: {what}"),
            Error::OutOfMemory { what } => write!(f, "not enough memory for {what}"),
            Error::Parse { what, text, reason } => write!(f, "{what} '{text}': {reason}"),
            Error::Invalid { what, reason } => write!(f, "{what}: {reason}"),
            Error::Poisoned { what, cause } => {
                write!(
                    f,
                    "{what} refuses work after a failure ({cause}); reopen it"
                )
            }
            Error::Panicked { what, message } => write!(f, "{what} panicked: {message}"),
            Error::Busy { what } => write!(f, "{what} is in use; try again"),
            Error::Interrupted => write!(f, "interrupted"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_thing_and_the_numbers() {
        let error = Error::corrupt("record", 4096, "crc 0x01020304", "crc 0x00000000");
        assert_eq!(
            error.to_string(),
            "corrupt record at byte 4096: expected crc 0x01020304, found crc 0x00000000"
        );
        let error = Error::io("open", "/no/such", io::Error::from(io::ErrorKind::NotFound));
        assert!(error.to_string().starts_with("open /no/such: "));
    }

    #[test]
    fn a_duplicate_says_the_same() {
        let limit = Error::Limit {
            what: "slab",
            limit_bytes: 1,
            needed_bytes: 2,
        };
        let poisoned = Error::Poisoned {
            what: "store".to_string(),
            cause: "a full disk".to_string(),
        };
        let unsupported = Error::Unsupported {
            what: "lz5".to_string(),
        };
        let panicked = Error::Panicked {
            what: "job",
            message: "on purpose".to_string(),
        };
        for error in [
            Error::io("read", "/a", io::Error::from_raw_os_error(5)),
            Error::io("read", "/a", io::Error::other("a special one")),
            Error::corrupt("record", 7, 1, 2),
            Error::parse("method", "lz5:1", "no such"),
            Error::invalid("slab size", "3"),
            limit,
            poisoned,
            unsupported,
            panicked,
            Error::OutOfMemory { what: "a window" },
            Error::Interrupted,
        ] {
            let duplicate = error.duplicate();
            assert_eq!(duplicate.to_string(), error.to_string());
            assert_eq!(
                std::mem::discriminant(&duplicate),
                std::mem::discriminant(&error)
            );
        }
    }
}
