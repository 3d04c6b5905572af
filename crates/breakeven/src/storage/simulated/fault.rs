//! Faults that calls report, as opposed to those a power cut leaves behind.

use std::io;

/// The calls that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Open,
    Read,
    Write,
    Sync,
    Truncate,
    Allocate,
    Punch,
    Rename,
    Unlink,
    List,
    CreateFolder,
    RemoveFolder,
    SyncDirectory,
    Lock,
    Unlock,
}

/// The kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// Reads and listings fail (EIO).
    ReadError,
    /// Writes fail after half of their bytes (EIO).
    WriteError,
    /// Writes, allocations and new files find no space (ENOSPC), writes after half of their bytes.
    NoSpace,
    /// The same for a quota (EDQUOT).
    NoQuota,
    /// Writes pass the largest file size (EFBIG).
    FileTooBig,
    /// Reads return half of the requested bytes.
    ShortRead,
    /// Writes take half of the given bytes.
    ShortWrite,
    /// Reads and writes are interrupted (EINTR) before they work at the next try.
    Interrupted,
    /// Syncs fail (EIO): some pages reach the medium, all are marked clean and stay readable.
    SyncErrorPagesKept,
    /// Syncs fail (EIO): some pages reach the medium, the others are dropped from the cache too.
    SyncErrorPagesDropped,
    /// Directory syncs fail (EIO).
    SyncDirectoryError,
    /// Truncations fail (EIO).
    TruncateError,
    /// Punching is not supported (EOPNOTSUPP).
    PunchUnsupported,
    /// Allocating is not supported (EOPNOTSUPP).
    AllocateUnsupported,
    /// Renames, and publications as well, cross devices (EXDEV).
    RenameAcrossDevices,
    /// No more files can be opened (EMFILE).
    TooManyFiles,
    /// Unlinks and removals of folders fail (EIO).
    UnlinkError,
    /// The system has no room for locks (ENOLCK).
    NoLocks,
    /// The process dies in any call, before the call does anything. Others live on.
    ProcessDeath,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 19] = [
        FaultKind::ReadError,
        FaultKind::WriteError,
        FaultKind::NoSpace,
        FaultKind::NoQuota,
        FaultKind::FileTooBig,
        FaultKind::ShortRead,
        FaultKind::ShortWrite,
        FaultKind::Interrupted,
        FaultKind::SyncErrorPagesKept,
        FaultKind::SyncErrorPagesDropped,
        FaultKind::SyncDirectoryError,
        FaultKind::TruncateError,
        FaultKind::PunchUnsupported,
        FaultKind::AllocateUnsupported,
        FaultKind::RenameAcrossDevices,
        FaultKind::TooManyFiles,
        FaultKind::UnlinkError,
        FaultKind::NoLocks,
        FaultKind::ProcessDeath,
    ];

    /// Returns whether calls of this kind can meet the fault.
    pub fn strikes(self, call: Call) -> bool {
        match self {
            FaultKind::ReadError => matches!(call, Call::Read | Call::List),
            FaultKind::WriteError | FaultKind::FileTooBig | FaultKind::ShortWrite => {
                call == Call::Write
            }
            FaultKind::NoSpace | FaultKind::NoQuota => matches!(
                call,
                Call::Write | Call::Allocate | Call::Open | Call::CreateFolder
            ),
            FaultKind::ShortRead => call == Call::Read,
            FaultKind::Interrupted => matches!(call, Call::Read | Call::Write),
            FaultKind::SyncErrorPagesKept | FaultKind::SyncErrorPagesDropped => call == Call::Sync,
            FaultKind::SyncDirectoryError => call == Call::SyncDirectory,
            FaultKind::TruncateError => call == Call::Truncate,
            FaultKind::PunchUnsupported => call == Call::Punch,
            FaultKind::AllocateUnsupported => call == Call::Allocate,
            FaultKind::RenameAcrossDevices => call == Call::Rename,
            FaultKind::TooManyFiles => call == Call::Open,
            FaultKind::UnlinkError => matches!(call, Call::Unlink | Call::RemoveFolder),
            FaultKind::NoLocks => call == Call::Lock,
            FaultKind::ProcessDeath => true,
        }
    }

    fn errno(self) -> Option<i32> {
        match self {
            FaultKind::ShortRead | FaultKind::ShortWrite => None,
            FaultKind::NoSpace => Some(libc::ENOSPC),
            FaultKind::NoQuota => Some(libc::EDQUOT),
            FaultKind::FileTooBig => Some(libc::EFBIG),
            FaultKind::Interrupted => Some(libc::EINTR),
            FaultKind::PunchUnsupported | FaultKind::AllocateUnsupported => Some(libc::EOPNOTSUPP),
            FaultKind::RenameAcrossDevices => Some(libc::EXDEV),
            FaultKind::TooManyFiles => Some(libc::EMFILE),
            FaultKind::NoLocks => Some(libc::ENOLCK),
            FaultKind::ProcessDeath => Some(libc::EBADF),
            _ => Some(libc::EIO),
        }
    }
}

/// A fault and when it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of failure.
    pub kind: FaultKind,
    /// The first call struck, counting from 0 those calls alone that the kind can strike.
    pub first_call: u64,
    /// Strike all later calls too, not only the first.
    pub is_lasting: bool,
}

/// A fault in waiting: counts the calls it could strike.
#[derive(Clone, Debug)]
pub(super) struct Injector {
    fault: Fault,
    call_count: u64,
    was_interrupted: bool,
}

/// The effect of a struck call.
#[derive(Debug)]
pub(super) enum Strike {
    /// It fails, a write after the first half of its bytes.
    Fail(FaultKind, io::Error),
    /// It transfers half.
    Short,
}

impl Injector {
    pub(super) fn new(fault: Fault) -> Injector {
        Injector {
            fault,
            call_count: 0,
            was_interrupted: false,
        }
    }

    /// Returns how many calls the fault could have struck so far.
    pub(super) fn call_count(&self) -> u64 {
        self.call_count
    }

    /// Counts a call, and says whether and how it is struck.
    pub(super) fn strike(&mut self, call: Call) -> Option<Strike> {
        let Fault {
            kind,
            first_call,
            is_lasting,
        } = self.fault;
        if !kind.strikes(call) {
            return None;
        }
        if kind == FaultKind::Interrupted && std::mem::take(&mut self.was_interrupted) {
            return None;
        }
        let number = self.call_count;
        self.call_count += 1;
        if number < first_call || (number > first_call && !is_lasting) {
            return None;
        }
        self.was_interrupted = kind == FaultKind::Interrupted;
        Some(match kind.errno() {
            Some(errno) => Strike::Fail(kind, io::Error::from_raw_os_error(errno)),
            None => Strike::Short,
        })
    }
}
