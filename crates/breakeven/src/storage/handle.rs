//! The common part of all handles: path, rights, alignment and failure latch.
//!
//! All three implementations make their changes through here, so that no store can forget the care. After the first
//! failure nothing is changed through the same handle again.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::{LockKind, OpenOptions};

/// Remembers the first failure, and refuses work after it.
#[derive(Debug, Default)]
pub(super) struct Latch {
    failure: Mutex<Option<Failure>>,
}

#[derive(Debug)]
struct Failure {
    cause: String,
    /// Whether it may count as a refusal, once the file was read back.
    lacks_room: bool,
}

/// How a failure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failing {
    /// A change, whose outcome can be read back.
    Change,
    /// A sync, after which the durability of earlier changes is unknown.
    Sync,
}

impl Latch {
    /// Fails if an earlier operation did.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        match &*self.failure() {
            None => Ok(()),
            Some(_) if is_seeded(SeededBug::FailureIgnored) => Ok(()),
            Some(failure) => Err(Error::Poisoned {
                what: quoted(&path).to_string(),
                cause: failure.cause.clone(),
            }),
        }
    }

    /// Passes `result` on, remembering it if the system failed in it. A refusal without a change is another error than
    /// [`Error::Io`] and is not remembered.
    fn watch<T>(&self, failing: Failing, result: Result<T>) -> Result<T> {
        if let Err(error @ Error::Io { .. }) = &result {
            let lacks_room = failing == Failing::Change && error.is_out_of_space();
            let mut failure = self.failure();
            // The first failure is the cause, unless it counts for less; later ones are its consequences.
            if failure
                .as_ref()
                .is_none_or(|it| it.lacks_room && !lacks_room)
            {
                let cause = error.to_string();
                *failure = Some(Failure { cause, lacks_room });
            }
        }
        result
    }

    /// As [`Latch::watch`], of a sync.
    pub(super) fn watch_sync<T>(&self, result: Result<T>) -> Result<T> {
        self.watch(Failing::Sync, result)
    }

    fn lacks_room(&self) -> bool {
        self.failure().as_ref().is_some_and(|it| it.lacks_room)
    }

    fn failure(&self) -> MutexGuard<'_, Option<Failure>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One open file's path, rights, alignment and latch.
#[derive(Debug)]
pub(super) struct Handle {
    pub(super) path: PathBuf,
    pub(super) alignment_bytes: usize,
    writable: bool,
    latch: Latch,
    sync_turn: Mutex<()>,
}

impl Handle {
    /// Makes the handle of a file opened with `options`; `direct_alignment_bytes` counts only if
    /// they ask for direct I/O.
    pub(super) fn new(
        path: PathBuf,
        options: OpenOptions,
        direct_alignment_bytes: usize,
    ) -> Handle {
        let alignment_bytes = if options.direct {
            direct_alignment_bytes
        } else {
            1
        };
        assert!(alignment_bytes.is_power_of_two(), "{alignment_bytes}");
        Handle {
            path,
            alignment_bytes,
            writable: options.write,
            latch: Latch::default(),
            sync_turn: Mutex::new(()),
        }
    }

    /// Wraps a system error; "not supported" becomes an error that says just that.
    pub(super) fn error(&self, operation: &'static str, error: io::Error) -> Error {
        system_error(operation, &self.path, error)
    }

    /// Checks that a transfer stays within the largest file and fits direct I/O.
    pub(super) fn check_transfer<'a>(
        &self,
        offset: u64,
        buffers: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        let mask = self.alignment_bytes - 1;
        let mut length_bytes = 0u64;
        let mut misaligned = offset & mask as u64 != 0;
        for buffer in buffers {
            misaligned |= (buffer.len() | buffer.as_ptr().addr()) & mask != 0;
            length_bytes = length_bytes.saturating_add(buffer.len() as u64);
        }
        if misaligned {
            let unit = self.alignment_bytes;
            let reason = format!("offset, length or buffer is no multiple of {unit} bytes");
            return Err(Error::invalid("direct transfer", reason));
        }
        self.check_range(offset, length_bytes)
    }

    /// Checks that a range ends below the largest file offset, 2^63 - 1.
    pub(super) fn check_range(&self, offset: u64, length_bytes: u64) -> Result<()> {
        match offset.checked_add(length_bytes) {
            Some(end) if end <= i64::MAX as u64 => Ok(()),
            _ => {
                let reason = format!("{length_bytes} bytes at {offset} pass the largest offset");
                Err(Error::invalid("file range", reason))
            }
        }
    }

    /// Checks that a range can be locked in that way by this handle. The latch does not count: locks
    /// must be given up after a failure too.
    pub(super) fn check_lock(&self, range: &Range<u64>, kind: LockKind) -> Result<()> {
        if range.is_empty() {
            let reason = format!("bytes {} to {} are none", range.start, range.end);
            return Err(Error::invalid("locked range", reason));
        }
        self.check_range(range.end, 0)?;
        match kind {
            LockKind::Shared => Ok(()),
            LockKind::Exclusive => self.check_opened_for_writing(),
        }
    }

    /// Checks that the handle may change the file.
    pub(super) fn check_writable(&self) -> Result<()> {
        self.check_opened_for_writing()?;
        self.latch.check(&self.path)
    }

    fn check_opened_for_writing(&self) -> Result<()> {
        if !self.writable {
            let reason = format!("{} was opened for reading only", quoted(&self.path));
            return Err(Error::invalid("file handle", reason));
        }
        Ok(())
    }

    /// Runs a changing operation unless an earlier one failed, and remembers its failure.
    pub(super) fn change<T>(
        &self,
        operation: &'static str,
        work: impl FnOnce() -> io::Result<T>,
    ) -> Result<T> {
        self.check_writable()?;
        let result = work().map_err(|error| self.error(operation, error));
        self.latch.watch(Failing::Change, result)
    }

    /// Returns whether changes are refused only because a write found no room.
    pub(super) fn lacks_room(&self) -> bool {
        self.latch.lacks_room()
    }

    /// Takes changes again if they are refused only for want of room.
    pub(super) fn resume(&self) {
        let mut failure = self.latch.failure();
        if failure.as_ref().is_some_and(|it| it.lacks_room) {
            *failure = None;
        }
    }

    /// Runs a sync unless an earlier operation failed. Syncs take turns: the kernel reports a
    /// write-back failure once, so a second sync running at the same time could see success.
    pub(super) fn sync(&self, work: impl FnOnce() -> io::Result<()>) -> Result<()> {
        let _turn = self
            .sync_turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.latch.check(&self.path)?;
        let synced = work().map_err(|error| self.error("sync", error));
        self.latch.watch_sync(synced)
    }

    /// Runs a write and its sync, even after a failure.
    pub(super) fn change_after_failure(
        &self,
        write: impl FnOnce() -> io::Result<()>,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> Result<()> {
        self.check_opened_for_writing()?;
        let _turn = self
            .sync_turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let written = write().map_err(|error| self.error("take back", error));
        self.latch.watch(Failing::Change, written)?;
        let synced = sync().map_err(|error| self.error("take back", error));
        self.latch.watch_sync(synced)
    }
}

/// Wraps a system error; "not supported" becomes an error that says just that.
pub(super) fn system_error(operation: &'static str, path: &Path, error: io::Error) -> Error {
    if error.raw_os_error() == Some(libc::EOPNOTSUPP) {
        let what = format!("{operation} {}", quoted(&path));
        return Error::Unsupported { what };
    }
    Error::io(operation, path, error)
}

/// Wraps the error of an operation that concerns two names below `root`.
pub(super) fn two_names_error(
    operation: &'static str,
    root: &Path,
    [from, to]: [impl AsRef<Path>; 2],
    error: io::Error,
) -> Error {
    let (from, to) = (root.join(from), root.join(to));
    let both = format!("{} to {}", quoted(&from), quoted(&to));
    system_error(operation, Path::new(&both), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(options: OpenOptions) -> Handle {
        Handle::new(PathBuf::from("a"), options, 512)
    }

    #[test]
    fn after_a_failure_changing_work_is_refused_with_its_cause() {
        let handle = handle(OpenOptions::default());
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        assert!(matches!(
            handle.change("write", || Err::<(), _>(full())),
            Err(Error::Io { .. })
        ));
        let refused = handle.change("write", || -> io::Result<()> { panic!("must not run") });
        let Err(Error::Poisoned { what, cause }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(what, "a");
        assert!(cause.starts_with("write a: No space left"), "{cause}");
        assert!(matches!(
            handle.sync(|| panic!("must not run")),
            Err(Error::Poisoned { .. })
        ));
    }

    #[test]
    fn want_of_room_is_forgiven_and_nothing_else() {
        let fail = |handle: &Handle, number| {
            let failed = handle.change("write", || {
                Err::<(), _>(io::Error::from_raw_os_error(number))
            });
            assert!(matches!(failed, Err(Error::Io { .. })));
        };
        for number in [libc::ENOSPC, libc::EDQUOT, libc::EFBIG] {
            let handle = handle(OpenOptions::default());
            fail(&handle, number);
            assert!(handle.lacks_room());
            handle.resume();
            handle.change("write", || Ok(())).unwrap();
            handle.sync(|| Ok(())).unwrap();
            // A later failure counts for more.
            fail(&handle, number);
            let full = || Err(io::Error::from_raw_os_error(number));
            let failed = handle.change_after_failure(|| Ok(()), full);
            assert!(matches!(failed, Err(Error::Io { .. })));
            handle.resume();
            assert!(!handle.lacks_room() && handle.sync(|| Ok(())).is_err());
        }
        let handle = handle(OpenOptions::default());
        fail(&handle, libc::EIO);
        handle.resume();
        assert!(!handle.lacks_room() && handle.check_writable().is_err());
    }

    #[test]
    fn what_is_not_supported_does_not_latch() {
        let handle = handle(OpenOptions::default());
        let refusal = || Err::<(), _>(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        assert!(matches!(
            handle.change("punch", refusal),
            Err(Error::Unsupported { .. })
        ));
        handle.change("write", || Ok(())).unwrap();
        handle.sync(|| Ok(())).unwrap();
    }

    #[test]
    fn ranges_and_alignment_are_checked() {
        let direct = OpenOptions {
            direct: true,
            ..OpenOptions::default()
        };
        let buffer = crate::storage::AlignedBuffer::zeroed(2048);
        let check = |options, offset, range: std::ops::Range<usize>, expected: bool| {
            let result = handle(options).check_transfer(offset, std::iter::once(&buffer[range]));
            assert_eq!(result.is_ok(), expected, "{result:?}");
        };
        check(direct, 512, 512..1024, true);
        check(direct, 511, 512..1024, false);
        check(direct, 512, 512..1023, false);
        check(direct, 512, 511..1023, false);
        check(OpenOptions::default(), 511, 3..7, true);
        check(OpenOptions::default(), i64::MAX as u64 - 4, 0..4, true);
        check(OpenOptions::default(), i64::MAX as u64 - 3, 0..4, false);
        check(OpenOptions::default(), u64::MAX, 0..4, false);
    }
}
