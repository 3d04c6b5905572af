//! An open compressed database and its journal, in SQLite's calls.
//!
//! SQLite writes pages under EXCLUSIVE, then says SYNC by a file control, then syncs, then says COMMIT_PHASETWO. The
//! commit is written at the first control, which comes even where the host asked for no syncs. The sync makes it
//! durable, and the last control shows it to all others. In a transaction over several files the last control comes
//! when every file has had its sync, and when the super-journal is gone. The name of that journal comes with the first
//! control. Truncation and the freed pages follow then, when no rollback can come any more.
//!
//! A transaction that fails after the first control is rolled back by writing, or by a second SYNC. The former state is
//! there still.
//!
//! `unsafe` here: SQLite calls by pointers, and lends memory that it allocated.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::os::unix::fs::MetadataExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use breakeven::error::{Error, Result};
use breakeven::pages::{Connection, LockLevel, check};
use breakeven::quoted::quoted;

use crate::ffi::{self, Api, Code, File, IoMethods};
use crate::fork;
use crate::journal::Journal;
use crate::memory;
use crate::refusals;
use crate::vfs::{Asked, Opened};

/// The bytes that SQLite allocates for a file of ours.
pub const FILE_BYTES: c_int = size_of::<OwnFile>() as c_int;

#[repr(C)]
struct OwnFile {
    file: File,
    /// A [`Database`] or a [`Journal`], as the methods say.
    state: *mut c_void,
}

/// An open compressed database.
pub struct Database {
    api: Api,
    connection: Connection,
    opened: Opened,
    is_read_only: bool,
    /// Whether commits are made visible and left to the system to write.
    is_lazy: bool,
    /// Whether the host never locks, as it promises by `nolock=1` or `immutable=1`.
    is_unlocked: bool,
    /// A child made by `fork` must not use its parent's open files.
    forks: u32,
    /// A call panicked.
    is_broken: bool,
}

impl Database {
    /// Takes an open connection.
    pub fn new(api: Api, connection: Connection, opened: Opened, asked: &Asked) -> Database {
        Database {
            api,
            connection,
            opened,
            is_read_only: asked.options.is_read_only,
            is_lazy: asked.is_lazy,
            is_unlocked: asked.is_unlocked,
            forks: fork::count(),
            is_broken: false,
        }
    }

    /// Returns whether it can only be read.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn is_elsewhere(&self) -> bool {
        self.forks != fork::count()
    }

    fn lock(&mut self, level: c_int) -> Result<Code> {
        Ok(match self.connection.lock(level_of(level))? {
            true => ffi::OK,
            false if self.connection.is_stale() => ffi::BUSY_SNAPSHOT,
            false => ffi::BUSY,
        })
    }

    fn unlock(&mut self, level: c_int) -> Result<Code> {
        self.connection.unlock(level_of(level))?;
        if level == 0 && !self.is_unlocked && self.opened.take_journal() {
            // Nothing depends on it.
            let _ = self.connection.clear_left_part();
        }
        Ok(ffi::OK)
    }

    /// Does the last work of a process on the file, unless something is in the way: nothing is lost without that.
    fn end(&mut self) {
        if !(self.is_read_only || self.is_unlocked || self.is_broken) {
            let _ = self.connection.close();
        }
    }

    /// Says why a database cannot be used.
    fn refuse(&self, otherwise: Code) -> Code {
        let why = match self.is_elsewhere() {
            true => "used by a child of the process that opened it",
            false => "a call failed before, which is a bug",
        };
        let path = quoted(self.opened.path());
        let code = if self.is_broken {
            ffi::IOERR
        } else {
            otherwise
        };
        refusals::tell_sentence(self.api, code, format!("{path}: {why}"));
        code
    }

    /// Locks for a host that does not, before it uses the file; returns whether that could be done. Such a host
    /// reads the 16 bytes at 24 whenever it begins.
    fn lock_unlocked(&mut self, level: LockLevel, begins: bool) -> Result<bool> {
        if !self.is_unlocked || (!begins && self.connection.level() >= level) {
            return Ok(true);
        }
        if begins {
            self.connection.unlock(LockLevel::None)?;
        }
        self.connection.lock(level)
    }

    /// SQLite's call before it syncs; it comes a second time in a transaction only if that rolls back. In a transaction
    /// over several files it gives the super-journal.
    fn prepare(&mut self, super_journal: Option<&[u8]>) -> Result<Code> {
        let prepared = match super_journal {
            _ if self.connection.is_prepared() => self.connection.roll_back(),
            Some(name) => self.connection.prepare_part(name),
            None => self.connection.prepare(),
        };
        prepared.map(|()| ffi::OK)
    }

    /// The work after a transaction is final. Failing here cannot undo it.
    fn finish(&mut self) -> Result<Code> {
        if self.connection.level() == LockLevel::Exclusive {
            self.connection.publish()?;
            // The transaction is there. Later faults are reported to the next one.
            let freed = self.connection.trim();
            if let Err(error) = freed.and_then(|_| self.connection.tidy()) {
                let path = quoted(self.opened.path());
                let sentence = format!("{path}: making room: {error}");
                refusals::tell_sentence(self.api, ffi::IOERR, sentence);
            }
            if self.is_unlocked {
                self.connection.unlock(LockLevel::Shared)?;
            }
        }
        Ok(ffi::OK)
    }

    fn has_moved(&self) -> Result<bool> {
        let identity = self.connection.status()?.identity;
        Ok(match std::fs::metadata(self.opened.path()) {
            Ok(now) => (now.dev(), now.ino()) != (identity.device, identity.inode),
            Err(_) => true,
        })
    }

    /// Answers a pragma; `None` leaves it to SQLite.
    fn pragma(&mut self, name: &str, value: Option<&str>) -> Result<Option<String>> {
        Ok(match name.to_ascii_lowercase().as_str() {
            // There is no shared memory here, and SQLite would do without where it has the file alone.
            "journal_mode" if value.is_some_and(|mode| mode.eq_ignore_ascii_case("wal")) => {
                Some("delete".into())
            }
            "breakeven_stats" => Some(self.statistics()?),
            "breakeven_verify" => Some(self.verify()?),
            "breakeven_gc" => Some(self.collect()?),
            _ => None,
        })
    }

    /// Runs `work` under a lock, which may be there already.
    fn with_lock(
        &mut self,
        level: LockLevel,
        work: impl FnOnce(&mut Connection) -> Result<String>,
    ) -> Result<String> {
        let before = self.connection.level();
        let is_locked = self.connection.lock(level)?;
        let result = match is_locked {
            true => work(&mut self.connection),
            false => Ok("busy".into()),
        };
        if before <= LockLevel::Shared {
            self.connection.unlock_unseen(before)?;
        }
        result
    }

    fn statistics(&mut self) -> Result<String> {
        self.with_lock(LockLevel::Shared, |connection| {
            let space = connection.space()?;
            Ok(format!(
                "logical_bytes={} stored_bytes={} file_bytes={} allocated_bytes={} \
                 stored_blocks={} block_bytes={}",
                space.logical_bytes,
                space.stored_bytes,
                space.file_bytes,
                space.allocated_bytes,
                space.stored_blocks,
                space.block_bytes
            ))
        })
    }

    fn verify(&mut self) -> Result<String> {
        let store = Arc::clone(self.connection.store());
        self.with_lock(LockLevel::Shared, |_| {
            let checked = check(store, &mut |_, _| true)?;
            Ok(match checked.broken.first() {
                None => "ok".into(),
                Some((page, why)) => {
                    format!("{} pages broken; page {page}: {why}", checked.broken.len())
                }
            })
        })
    }

    fn collect(&mut self) -> Result<String> {
        if self.connection.level() > LockLevel::Shared {
            return Ok("busy".into());
        }
        self.with_lock(LockLevel::Exclusive, |connection| {
            let before = connection.status()?.size_bytes;
            let (trimmed, cleaned) = connection.shrink()?;
            let after = connection.status()?.size_bytes;
            Ok(format!(
                "trimmed_blocks={} moved_bytes={} file_bytes_before={before} file_bytes={after}",
                trimmed.blocks, cleaned.moved_bytes
            ))
        })
    }
}

fn level_of(level: c_int) -> LockLevel {
    match level {
        0 => LockLevel::None,
        1 => LockLevel::Shared,
        2 => LockLevel::Reserved,
        3 => LockLevel::Pending,
        _ => LockLevel::Exclusive,
    }
}

/// Returns SQLite's word for an error; `otherwise` for an error that has none of its own.
pub fn code_of(error: &Error, otherwise: Code) -> Code {
    match error {
        Error::Limit { .. } => ffi::FULL,
        Error::Busy { .. } => ffi::BUSY,
        error if error.is_out_of_memory() => ffi::IOERR_NOMEM,
        error if error.is_out_of_space() => ffi::FULL,
        // The shell's `.dump` goes on behind it, as in a plain database; behind an I/O error it gives up.
        Error::Corrupt { .. } => ffi::CORRUPT,
        _ => otherwise,
    }
}

/// Gives the file to a database.
///
/// # Safety
/// `file` has at least [`FILE_BYTES`].
pub unsafe fn open(file: *mut File, database: Box<Database>) {
    let own = OwnFile {
        file: File { methods: &METHODS },
        state: Box::into_raw(database).cast(),
    };
    // SAFETY: as the caller promises.
    unsafe { file.cast::<OwnFile>().write(own) };
}

/// Gives the file to a new journal.
///
/// # Safety
/// As [`open`].
pub unsafe fn open_journal(file: *mut File, journal: Journal) {
    let own = OwnFile {
        file: File {
            methods: &JOURNAL_METHODS,
        },
        state: Box::into_raw(Box::new(journal)).cast(),
    };
    // SAFETY: as the caller promises.
    unsafe { file.cast::<OwnFile>().write(own) };
}

/// Returns whether a call may be refused for want of memory, by its usual answer. A call that gives up or ends
/// something never may.
pub fn needs_memory(otherwise: Code) -> bool {
    matches!(
        otherwise,
        ffi::IOERR_READ
            | ffi::IOERR_WRITE
            | ffi::IOERR_TRUNCATE
            | ffi::IOERR_FSYNC
            | ffi::IOERR_LOCK
    )
}

/// Runs `work` on the database of a file. An error is logged and becomes `otherwise` or its own code.
///
/// # Safety
/// `file` was opened by [`open`].
unsafe fn with(
    file: *mut File,
    otherwise: Code,
    work: impl FnOnce(&mut Database) -> Result<Code>,
) -> Code {
    // SAFETY: SQLite uses a file by one thread at a time.
    let database = unsafe { &mut *(*file.cast::<OwnFile>()).state.cast::<Database>() };
    if database.is_broken || database.is_elsewhere() {
        return database.refuse(otherwise);
    }
    if needs_memory(otherwise) && memory::is_short() {
        refusals::keep_code(database.opened.path(), ffi::IOERR_NOMEM);
        return ffi::IOERR_NOMEM;
    }
    match catch_unwind(AssertUnwindSafe(|| work(database))) {
        Ok(Ok(code)) => {
            refusals::keep_code(database.opened.path(), code);
            code
        }
        Ok(Err(error)) => {
            let code = code_of(&error, otherwise);
            refusals::tell(database.api, code, database.opened.path(), &error);
            code
        }
        Err(_) => {
            database.is_broken = true;
            ffi::IOERR
        }
    }
}

static METHODS: IoMethods = IoMethods {
    version: 1,
    close,
    read,
    write,
    truncate,
    sync,
    file_size,
    lock,
    unlock,
    check_reserved_lock,
    file_control,
    sector_size,
    device_characteristics,
};

unsafe extern "C" fn close(file: *mut File) -> Code {
    // SAFETY: made by `open`, and SQLite closes a file once.
    let database = unsafe { Box::from_raw((*file.cast::<OwnFile>()).state.cast::<Database>()) };
    // SAFETY: as above.
    unsafe { (*file).methods = std::ptr::null() };
    if database.is_elsewhere() {
        // Another thread of the parent may have held a lock that is needed here.
        std::mem::forget(database);
        return ffi::OK;
    }
    let end = || {
        let mut database = database;
        database.end();
    };
    match catch_unwind(AssertUnwindSafe(end)) {
        Ok(()) => ffi::OK,
        Err(_) => ffi::IOERR,
    }
}

unsafe extern "C" fn read(file: *mut File, target: *mut c_void, count: c_int, offset: i64) -> Code {
    // SAFETY: SQLite lends as many bytes.
    let target = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), count as usize) };
    let read = |database: &mut Database| {
        let begins = (offset, target.len()) == (24, 16);
        if !database.lock_unlocked(LockLevel::Shared, begins)? {
            return Ok(ffi::BUSY);
        }
        let is_locked = database.connection.level() > LockLevel::None;
        let there = match database.connection.read(offset as u64, target) {
            Err(error) if is_locked => return Err(error),
            // Before it locks SQLite only looks, and looks again.
            Err(_) => {
                target.fill(0);
                0
            }
            Ok(there) => there,
        };
        Ok(match there == target.len() {
            true => ffi::OK,
            false => ffi::IOERR_SHORT_READ,
        })
    };
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_READ, read) }
}

unsafe extern "C" fn write(
    file: *mut File,
    source: *const c_void,
    count: c_int,
    offset: i64,
) -> Code {
    // SAFETY: SQLite lends as many bytes.
    let source = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), count as usize) };
    let write = |database: &mut Database| {
        if !database.lock_unlocked(LockLevel::Exclusive, false)? {
            return Ok(ffi::BUSY);
        }
        let written = database.connection.write(offset as u64, source);
        written.map(|()| ffi::OK)
    };
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_WRITE, write) }
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> Code {
    let truncate = |database: &mut Database| {
        if !database.lock_unlocked(LockLevel::Exclusive, false)? {
            return Ok(ffi::BUSY);
        }
        let size_bytes = u64::try_from(size).unwrap_or(0);
        database.connection.truncate(size_bytes).map(|()| ffi::OK)
    };
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_TRUNCATE, truncate) }
}

unsafe extern "C" fn sync(file: *mut File, _flags: c_int) -> Code {
    let sync = |database: &mut Database| {
        if !database.is_lazy {
            database.connection.sync()?;
        }
        Ok(ffi::OK)
    };
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_FSYNC, sync) }
}

unsafe extern "C" fn file_size(file: *mut File, size: *mut i64) -> Code {
    let measure = |database: &mut Database| {
        let size_bytes = database.connection.size_bytes()?;
        // SAFETY: SQLite lends it.
        unsafe { *size = size_bytes as i64 };
        Ok(ffi::OK)
    };
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_FSTAT, measure) }
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> Code {
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_LOCK, |database| database.lock(level)) }
}

unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> Code {
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_UNLOCK, |database| database.unlock(level)) }
}

unsafe extern "C" fn check_reserved_lock(file: *mut File, result: *mut c_int) -> Code {
    let look = |database: &mut Database| {
        let is_reserved = database.connection.is_reserved()?;
        // SAFETY: SQLite lends it.
        unsafe { *result = is_reserved.into() };
        Ok(ffi::OK)
    };
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR_LOCK, look) }
}

pub unsafe extern "C" fn sector_size(_file: *mut File) -> c_int {
    4096
}

pub unsafe extern "C" fn device_characteristics(_file: *mut File) -> c_int {
    ffi::IOCAP_POWERSAFE_OVERWRITE
}

unsafe extern "C" fn file_control(
    file: *mut File,
    operation: c_int,
    argument: *mut c_void,
) -> Code {
    let control = |database: &mut Database| match operation {
        ffi::FCNTL_SYNC if memory::is_short() => Ok(ffi::IOERR_NOMEM),
        ffi::FCNTL_SYNC => {
            let name = argument.cast::<c_char>();
            // SAFETY: SQLite lends a name, or null.
            let name = (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) });
            database.prepare(name.map(CStr::to_bytes))
        }
        ffi::FCNTL_COMMIT_PHASETWO => database.finish(),
        ffi::FCNTL_SIZE_HINT | ffi::FCNTL_CHUNK_SIZE => Ok(ffi::OK),
        ffi::FCNTL_LOCKSTATE => {
            // SAFETY: SQLite lends an int.
            unsafe { *argument.cast::<c_int>() = database.connection.level() as c_int };
            Ok(ffi::OK)
        }
        ffi::FCNTL_HAS_MOVED => {
            let has_moved = database.has_moved()?;
            if has_moved {
                refusals::keep_code(database.opened.path(), ffi::READONLY_DBMOVED);
            }
            // SAFETY: SQLite lends an int.
            unsafe { *argument.cast::<c_int>() = has_moved.into() };
            Ok(ffi::OK)
        }
        ffi::FCNTL_VFSNAME => {
            let name = database.api.text("breakeven");
            // SAFETY: SQLite lends a pointer to a text that it will free.
            unsafe { *argument.cast::<*mut c_char>() = name };
            Ok(ffi::OK)
        }
        // SAFETY: SQLite lends two numbers.
        ffi::FCNTL_PAGE_PLACE => page_place(database, unsafe { &mut *argument.cast::<[i64; 2]>() }),
        // SAFETY: SQLite lends four pointers to texts.
        ffi::FCNTL_PRAGMA => pragma(database, unsafe {
            &mut *argument.cast::<[*mut c_char; 4]>()
        }),
        // Among them, each for a reason: OVERWRITE announces a VACUUM, which needs nothing here. By BUSYHANDLER and
        // LOCK_TIMEOUT a VFS waits inside of a lock, and here SQLite does that around it. TEMPFILENAME asks the VFS of
        // temporary files, which is not this one. PERSIST_WAL is of a log that does not exist here.
        _ => Ok(ffi::NOTFOUND),
    };
    // SAFETY: SQLite's own file.
    unsafe { with(file, ffi::IOERR, control) }
}

/// Gives `dbstat` the place of a page and its length.
fn page_place(database: &mut Database, place: &mut [i64; 2]) -> Result<Code> {
    let Ok(number) = u64::try_from(place[0]) else {
        return Ok(ffi::NOTFOUND);
    };
    let (address, bytes) = database.connection.page_place(number)?;
    *place = [address as i64, bytes as i64];
    Ok(ffi::OK)
}

fn pragma(database: &mut Database, arguments: &mut [*mut c_char; 4]) -> Result<Code> {
    let text = |at: usize| {
        // SAFETY: SQLite lends texts, or null.
        let text = (!arguments[at].is_null()).then(|| unsafe { CStr::from_ptr(arguments[at]) });
        text.and_then(|text| text.to_str().ok())
    };
    let Some(name) = text(1) else {
        return Ok(ffi::NOTFOUND);
    };
    let value = text(2);
    Ok(match database.pragma(name, value) {
        Ok(None) => ffi::NOTFOUND,
        Ok(Some(answer)) => {
            arguments[0] = database.api.text(&answer);
            ffi::OK
        }
        Err(error) => {
            arguments[0] = database.api.text(&error.to_string());
            code_of(&error, ffi::ERROR)
        }
    })
}

/// Returns whether a write failed for want of room, or at a limit of the file or its owner.
fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), FileTooLarge | QuotaExceeded | StorageFull)
}

/// Runs `work` on the journal of a file.
///
/// # Safety
/// `file` was opened by [`open_journal`].
unsafe fn with_journal(
    file: *mut File,
    otherwise: Code,
    work: impl FnOnce(&mut Journal) -> std::io::Result<Code>,
) -> Code {
    // SAFETY: SQLite uses a file by one thread at a time.
    let journal = unsafe { &mut *(*file.cast::<OwnFile>()).state.cast::<Journal>() };
    if journal.is_elsewhere() {
        return otherwise;
    }
    if otherwise == ffi::IOERR_WRITE && memory::is_short() {
        return ffi::IOERR_NOMEM;
    }
    match catch_unwind(AssertUnwindSafe(|| work(journal))) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            refusals::keep(format!("the rollback journal: {error}"));
            if is_full(&error) {
                ffi::FULL
            } else {
                otherwise
            }
        }
        Err(_) => ffi::IOERR,
    }
}

static JOURNAL_METHODS: IoMethods = IoMethods {
    version: 1,
    close: journal_close,
    read: journal_read,
    write: journal_write,
    truncate: journal_truncate,
    sync: journal_sync,
    file_size: journal_size,
    lock: journal_lock,
    unlock: journal_lock,
    check_reserved_lock: journal_reserved,
    file_control: journal_control,
    sector_size,
    device_characteristics,
};

unsafe extern "C" fn journal_close(file: *mut File) -> Code {
    // SAFETY: made by `open_journal`, and SQLite closes a file once.
    drop(unsafe { Box::from_raw((*file.cast::<OwnFile>()).state.cast::<Journal>()) });
    // SAFETY: as above.
    unsafe { (*file).methods = std::ptr::null() };
    ffi::OK
}

unsafe extern "C" fn journal_read(
    file: *mut File,
    target: *mut c_void,
    count: c_int,
    offset: i64,
) -> Code {
    // SAFETY: SQLite lends as many bytes.
    let target = unsafe { std::slice::from_raw_parts_mut(target.cast::<u8>(), count as usize) };
    let read = |journal: &mut Journal| {
        let there = journal.read(offset as u64, target)?;
        target[there..].fill(0);
        Ok(match there == target.len() {
            true => ffi::OK,
            false => ffi::IOERR_SHORT_READ,
        })
    };
    // SAFETY: SQLite's own file.
    unsafe { with_journal(file, ffi::IOERR_READ, read) }
}

unsafe extern "C" fn journal_write(
    file: *mut File,
    source: *const c_void,
    count: c_int,
    offset: i64,
) -> Code {
    // SAFETY: SQLite lends as many bytes.
    let source = unsafe { std::slice::from_raw_parts(source.cast::<u8>(), count as usize) };
    let write = |journal: &mut Journal| journal.write(offset as u64, source).map(|()| ffi::OK);
    // SAFETY: SQLite's own file.
    unsafe { with_journal(file, ffi::IOERR_WRITE, write) }
}

unsafe extern "C" fn journal_truncate(file: *mut File, size: i64) -> Code {
    let truncate = |journal: &mut Journal| journal.truncate(size as u64).map(|()| ffi::OK);
    // SAFETY: SQLite's own file.
    unsafe { with_journal(file, ffi::IOERR_TRUNCATE, truncate) }
}

unsafe extern "C" fn journal_sync(_file: *mut File, _flags: c_int) -> Code {
    ffi::OK
}

unsafe extern "C" fn journal_size(file: *mut File, size: *mut i64) -> Code {
    let measure = |journal: &mut Journal| {
        // SAFETY: SQLite lends it.
        unsafe { *size = journal.size_bytes() as i64 };
        Ok(ffi::OK)
    };
    // SAFETY: SQLite's own file.
    unsafe { with_journal(file, ffi::IOERR_FSTAT, measure) }
}

unsafe extern "C" fn journal_lock(_file: *mut File, _level: c_int) -> Code {
    ffi::OK
}

unsafe extern "C" fn journal_reserved(_file: *mut File, result: *mut c_int) -> Code {
    // SAFETY: SQLite lends it.
    unsafe { *result = 0 };
    ffi::OK
}

unsafe extern "C" fn journal_control(
    _file: *mut File,
    _operation: c_int,
    _argument: *mut c_void,
) -> Code {
    ffi::NOTFOUND
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use breakeven::pages::{PageOptions, PageStore};
    use breakeven::storage::{MemoryStorage, Storage};

    use super::*;

    static LOGGED: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn log(_code: c_int, _format: *const c_char) {
        LOGGED.fetch_add(1, Ordering::Relaxed);
    }

    /// SQLite's table with its log alone.
    fn api() -> Api {
        let mut table = [std::ptr::null::<c_void>(); 280];
        table[167] = log as *const c_void;
        let table = Box::leak(Box::new(table));
        // SAFETY: nothing else of the table is called here, and it lives for ever.
        unsafe { Api::new(table.as_ptr().cast()) }
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_handle_is_used_no_more() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let options = PageOptions::default();
        PageStore::create(&*storage, "db", options).unwrap();
        let store = Arc::new(PageStore::new(storage, "db", options));
        let connection = Connection::open(Arc::clone(&store)).unwrap();
        let opened = Opened::new(Path::new("/db"));
        let database = Database::new(api(), connection, opened, &Asked::default());
        let mut own = std::mem::MaybeUninit::<OwnFile>::uninit();
        let file = own.as_mut_ptr().cast::<File>();
        // SAFETY: `own` is as long as it has to be, and is used by this thread until it is closed.
        unsafe {
            open(file, Box::new(database));
            assert_eq!(lock(file, 4), ffi::OK);
            let panicked = with(file, ffi::IOERR_WRITE, |database| {
                database.connection.write(0, &[7; 512])?;
                panic!("made up");
            });
            assert_eq!(panicked, ffi::IOERR);
            let mut size = 0;
            assert_eq!(file_size(file, &raw mut size), ffi::IOERR);
            assert_eq!(
                file_control(file, ffi::FCNTL_SYNC, std::ptr::null_mut()),
                ffi::IOERR
            );
            assert_eq!(LOGGED.load(Ordering::Relaxed), 2);
            assert_eq!(close(file), ffi::OK);
        }
        // Its room is free, and nothing of it was written.
        let mut other = Connection::open(store).unwrap();
        assert!(other.lock(LockLevel::Exclusive).unwrap());
        assert_eq!(other.size_bytes().unwrap(), 0);
    }

    /// The open file of one process, in SQLite's calls.
    struct Used(Box<std::mem::MaybeUninit<OwnFile>>);

    impl Used {
        fn new(storage: &Arc<dyn Storage>) -> Used {
            let mut own = Box::new(std::mem::MaybeUninit::<OwnFile>::uninit());
            let opened = Opened::new(Path::new("/visible"));
            let database = Database::new(api(), connected(storage), opened, &Asked::default());
            // SAFETY: as long as it has to be, and used by this thread until it is closed.
            unsafe { open(own.as_mut_ptr().cast(), Box::new(database)) };
            Used(own)
        }

        /// Runs a call that must succeed.
        fn run(&mut self, call: impl FnOnce(*mut File) -> Code) {
            assert_eq!(call(self.0.as_mut_ptr().cast()), ffi::OK);
        }

        fn write(&mut self, offset: i64, byte: u8) {
            let page = [byte; 512];
            // SAFETY: the file is open, and as many bytes are there.
            self.run(|file| unsafe { write(file, page.as_ptr().cast(), 512, offset) });
        }

        fn control(&mut self, operation: c_int) {
            // SAFETY: the file is open.
            self.run(|file| unsafe { file_control(file, operation, std::ptr::null_mut()) });
        }

        /// Locks it and writes a page, up to the last step of a commit.
        fn prepare(&mut self, offset: i64, byte: u8) {
            for level in 1..=4 {
                // SAFETY: the file is open.
                self.run(|file| unsafe { lock(file, level) });
            }
            self.write(offset, byte);
            self.sync();
        }

        fn sync(&mut self) {
            self.control(ffi::FCNTL_SYNC);
            // SAFETY: the file is open.
            self.run(|file| unsafe { sync(file, 2) });
        }

        fn unlock(&mut self) {
            // SAFETY: the file is open.
            self.run(|file| unsafe { unlock(file, 0) });
        }
    }

    fn connected(storage: &Arc<dyn Storage>) -> Connection {
        let store = PageStore::new(Arc::clone(storage), "db", PageOptions::default());
        Connection::open(Arc::new(store)).unwrap()
    }

    /// Returns another process's view: the first byte, and the length.
    fn seen(storage: &Arc<dyn Storage>) -> (u8, u64) {
        let mut connection = connected(storage);
        assert!(connection.lock(LockLevel::Shared).unwrap());
        let mut byte = [0];
        connection.read(0, &mut byte).unwrap();
        (byte[0], connection.size_bytes().unwrap())
    }

    #[test]
    fn a_commit_is_seen_with_its_last_step_and_one_without_it_never() {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        PageStore::create(&*storage, "db", PageOptions::default()).unwrap();
        let mut used = Used::new(&storage);
        used.prepare(0, 1);
        assert_eq!(seen(&storage), (0, 0));
        used.write(512, 1);
        used.write(0, 1);
        used.sync();
        assert_eq!(seen(&storage), (0, 0));
        // A truncation carries nothing, and follows.
        // SAFETY: the file is open.
        used.run(|file| unsafe { truncate(file, 512) });
        used.control(ffi::FCNTL_COMMIT_PHASETWO);
        assert_eq!(seen(&storage), (1, 512));
        used.unlock();
        // Another file of the transaction failed: SQLite writes the old content, and syncs that.
        used.prepare(0, 2);
        used.write(0, 1);
        used.sync();
        assert_eq!(seen(&storage), (1, 512));
        used.unlock();
        assert_eq!(seen(&storage), (1, 512));
        // Nothing was there before: SQLite cuts it off again. It does not unlock if it has the file for itself.
        used.prepare(512, 3);
        // SAFETY: the file is open.
        used.run(|file| unsafe { truncate(file, 512) });
        used.sync();
        let mut size = 0;
        // SAFETY: the file is open.
        used.run(|file| unsafe { file_size(file, &raw mut size) });
        assert_eq!((size, seen(&storage)), (512, (1, 512)));
        used.prepare(0, 4);
        used.control(ffi::FCNTL_COMMIT_PHASETWO);
        assert_eq!(seen(&storage), (4, 512));
        used.unlock();
        // It is closed in the middle.
        used.prepare(0, 5);
        // SAFETY: the file is open.
        used.run(|file| unsafe { close(file) });
        assert_eq!(seen(&storage), (4, 512));
    }
}
