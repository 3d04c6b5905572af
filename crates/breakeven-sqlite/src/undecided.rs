//! A file with nothing in it yet, which the VFS before has open. It may become a compressed database, or a plain one by
//! another connection that began before.
//!
//! As long as nothing is in it, it is locked as SQLite's own VFS locks, so that it is nobody's by mistake. A connection
//! that wants to write gets all of it (EXCLUSIVE) and makes the compressed database then. A connection that comes to it
//! again, with no lock, looks at its kind now. A plain one is left to the VFS before, as it is open; a compressed one
//! is closed there and opened here.
//!
//! `unsafe` here: SQLite calls by pointers, and lends memory that it allocated.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use breakeven::error::{Error, Result};
use breakeven::pages::{FileKind, LockLevel};

use crate::base::BaseFile;
use crate::database::{self, code_of};
use crate::ffi::{self, Api, Code, File, IoMethods};
use crate::fork;
use crate::memory;
use crate::refusals;
use crate::vfs::{self, Asked};

const SHARED: c_int = LockLevel::Shared as c_int;
const RESERVED: c_int = LockLevel::Reserved as c_int;
const EXCLUSIVE: c_int = LockLevel::Exclusive as c_int;

/// The methods of such files of one registration, and the place of their state: behind the state of the VFS before.
#[repr(C)]
pub struct Table {
    methods: IoMethods,
    state_at: usize,
}

impl Table {
    /// Makes the table for a VFS whose files take `base_bytes`.
    pub const fn new(base_bytes: c_int) -> Table {
        Table {
            methods: METHODS,
            state_at: (base_bytes as usize).next_multiple_of(align_of::<*mut Undecided>()),
        }
    }

    /// Returns the bytes that SQLite must allocate for a file.
    pub const fn file_bytes(&self) -> c_int {
        (self.state_at + size_of::<*mut Undecided>()) as c_int
    }
}

/// The state of a file with nothing in it.
pub struct Undecided {
    api: Api,
    base: BaseFile,
    path: PathBuf,
    asked: Asked,
    level: c_int,
    /// A child made by `fork` makes no database where its parent's connection was about to.
    forks: u32,
}

impl Undecided {
    /// Takes a file that is open by the VFS before.
    pub fn new(api: Api, base: BaseFile, path: &Path, asked: Asked) -> Undecided {
        Undecided {
            api,
            base,
            path: path.into(),
            asked,
            level: 0,
            forks: fork::count(),
        }
    }
}

/// Gives a file that is open by the VFS before to this one, until its kind is known.
///
/// # Safety
/// `file` is the one of `undecided`, and has as many bytes as the table says.
pub unsafe fn open(file: *mut File, table: &'static Table, undecided: Box<Undecided>) {
    // SAFETY: as the caller promises.
    unsafe {
        place_of(file, table).write(Box::into_raw(undecided));
        (*file).methods = (&raw const *table).cast();
    }
}

/// # Safety
/// As [`open`].
unsafe fn place_of(file: *mut File, table: &Table) -> *mut *mut Undecided {
    // SAFETY: as the caller promises.
    unsafe { file.byte_add(table.state_at).cast() }
}

/// # Safety
/// `file` was opened by [`open`], and is undecided still.
unsafe fn state_of<'a>(file: *mut File) -> &'a mut Undecided {
    // SAFETY: its methods are the first field of a `Table`.
    unsafe { &mut **place_of(file, &*(*file).methods.cast::<Table>()) }
}

/// The present kind of a file.
enum Became {
    /// Nothing is in it.
    Nothing,
    /// The methods are others' now.
    Decided,
    /// It cannot be found out.
    Unknown(Code),
}

/// Looks at the present kind of a file. The caller holds the lock that a plain database keeps.
///
/// # Safety
/// As [`state_of`].
unsafe fn settle(file: *mut File) -> Result<Became> {
    // SAFETY: as the caller promises.
    let state = unsafe { state_of(file) };
    let kind = match state.base.kind() {
        Ok(kind) => kind,
        Err(code) => return Ok(Became::Unknown(code)),
    };
    match kind {
        FileKind::Empty => Ok(Became::Nothing),
        FileKind::Plain | FileKind::Other => {
            vfs::refuse_taken_place(&state.path)?;
            // SAFETY: as the caller promises; the dropped one is not used any more.
            unsafe {
                let state = Box::from_raw(&raw mut *state);
                state.base.hand_over();
            }
            Ok(Became::Decided)
        }
        FileKind::Compressed if state.base.has_moved() => {
            Ok(Became::Unknown(ffi::READONLY_DBMOVED))
        }
        FileKind::Compressed => {
            state.base.unlock(0);
            let database = vfs::open_compressed(state.api, &state.path, state.asked)?;
            // SAFETY: as the caller promises; the dropped one is not used any more.
            unsafe {
                let state = Box::from_raw(&raw mut *state);
                state.base.close();
                database::open(file, Box::new(database));
            }
            Ok(Became::Decided)
        }
    }
}

/// Makes the database, for a connection that is about to write.
///
/// # Safety
/// As [`state_of`].
unsafe fn become_compressed(file: *mut File) -> Result<Code> {
    // SAFETY: as the caller promises.
    let state = unsafe { state_of(file) };
    for level in [RESERVED, EXCLUSIVE] {
        let code = state.base.lock(level);
        if code != ffi::OK {
            return Ok(code);
        }
    }
    // The database is made by its name, and nothing in a file of others.
    if state.base.has_moved() {
        return Ok(ffi::READONLY_DBMOVED);
    }
    // SQLite has seen that it is empty, and a library beside this one may have written since.
    match state.base.kind() {
        Ok(FileKind::Empty) => {}
        Ok(_) => return Ok(ffi::BUSY_SNAPSHOT),
        Err(code) => return Ok(code),
    }
    let Some(made) = vfs::create(&state.path, state.asked)? else {
        return Ok(ffi::BUSY_SNAPSHOT);
    };
    // From here on nobody writes without seeing it, and as long as this lock is there nobody commits.
    state.base.unlock(SHARED);
    let Some(database) = vfs::connect_made(state.api, &state.path, state.asked, made)? else {
        return Ok(ffi::BUSY);
    };
    // SAFETY: as the caller promises; the dropped one is not used any more.
    unsafe {
        let state = Box::from_raw(&raw mut *state);
        state.base.unlock(0);
        state.base.close();
        database::open(file, Box::new(database));
    }
    Ok(ffi::OK)
}

/// Runs a call; an error is logged and becomes a code, and so does a panic.
///
/// # Safety
/// As [`state_of`].
unsafe fn with(file: *mut File, otherwise: Code, work: impl FnOnce() -> Result<Code>) -> Code {
    if database::needs_memory(otherwise) && memory::is_short() {
        return ffi::IOERR_NOMEM;
    }
    // SAFETY: as the caller promises.
    let (api, path) = unsafe {
        let state = state_of(file);
        (state.api, state.path.clone())
    };
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(code)) => {
            refusals::keep_code(&path, code);
            code
        }
        Ok(Err(error)) => {
            let code = code_of(&error, otherwise);
            refusals::tell(api, code, &path, &error);
            code
        }
        Err(_) => ffi::IOERR,
    }
}

const METHODS: IoMethods = IoMethods {
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
    sector_size: database::sector_size,
    device_characteristics: database::device_characteristics,
};

unsafe extern "C" fn close(file: *mut File) -> Code {
    // SAFETY: made by `open`, and SQLite closes a file once.
    let state = unsafe { Box::from_raw(&raw mut *state_of(file)) };
    state.base.close()
}

/// Nothing is there.
unsafe extern "C" fn read(
    _file: *mut File,
    target: *mut c_void,
    count: c_int,
    _offset: i64,
) -> Code {
    // SAFETY: SQLite lends as many bytes.
    unsafe { target.cast::<u8>().write_bytes(0, count as usize) };
    ffi::IOERR_SHORT_READ
}

/// A writer has locked, and that decided the kind.
unsafe extern "C" fn write(_: *mut File, _: *const c_void, _: c_int, _: i64) -> Code {
    ffi::IOERR_WRITE
}

unsafe extern "C" fn truncate(_file: *mut File, _size: i64) -> Code {
    ffi::IOERR_TRUNCATE
}

unsafe extern "C" fn sync(_file: *mut File, _flags: c_int) -> Code {
    ffi::OK
}

unsafe extern "C" fn file_size(_file: *mut File, size: *mut i64) -> Code {
    // SAFETY: SQLite lends it.
    unsafe { *size = 0 };
    ffi::OK
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> Code {
    let raise = || {
        // SAFETY: SQLite's own file.
        let state = unsafe { state_of(file) };
        if state.forks != fork::count() {
            let reason = "used by a child of the process that opened it";
            return Err(Error::invalid("database", reason));
        }
        if state.level < SHARED {
            let code = state.base.lock(SHARED);
            if code != ffi::OK {
                return Ok(code);
            }
            state.level = SHARED;
            // SAFETY: as above.
            let refused = match unsafe { settle(file) } {
                Ok(Became::Nothing) => None,
                Ok(Became::Decided) => {
                    // SAFETY: as above, with the methods that it has now.
                    return Ok(unsafe { ((*(*file).methods).lock)(file, level) });
                }
                Ok(Became::Unknown(code)) => Some(Ok(code)),
                Err(error) => Some(Err(error)),
            };
            if let Some(refused) = refused {
                state.base.unlock(0);
                state.level = 0;
                return refused;
            }
        }
        if level <= SHARED {
            return Ok(ffi::OK);
        }
        // SAFETY: as above.
        let made = unsafe { become_compressed(file) };
        match made {
            // SAFETY: as above, with the methods that it has now.
            Ok(ffi::OK) => Ok(unsafe { ((*(*file).methods).lock)(file, level) }),
            refused => {
                state.base.unlock(SHARED);
                refused
            }
        }
    };
    // SAFETY: as above.
    unsafe { with(file, ffi::IOERR_LOCK, raise) }
}

unsafe extern "C" fn unlock(file: *mut File, level: c_int) -> Code {
    // SAFETY: SQLite's own file.
    let state = unsafe { state_of(file) };
    state.level = state.level.min(level);
    state.base.unlock(level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut File, result: *mut c_int) -> Code {
    // SAFETY: SQLite's own file.
    unsafe { state_of(file) }.base.is_reserved(result)
}

unsafe extern "C" fn file_control(
    file: *mut File,
    operation: c_int,
    argument: *mut c_void,
) -> Code {
    // SAFETY: SQLite's own file.
    let state = unsafe { state_of(file) };
    match operation {
        ffi::FCNTL_VFSNAME => {
            // SAFETY: SQLite lends a pointer to a text that it will free.
            unsafe { *argument.cast::<*mut c_char>() = state.api.text("breakeven") };
            ffi::OK
        }
        // There is nothing yet whose length could be predicted.
        ffi::FCNTL_SIZE_HINT | ffi::FCNTL_CHUNK_SIZE => ffi::OK,
        ffi::FCNTL_PRAGMA => {
            // SAFETY: SQLite lends four pointers to texts.
            let arguments = unsafe { &mut *argument.cast::<[*mut c_char; 4]>() };
            let answer = || {
                // Under a lock it cannot have become anything.
                // SAFETY: as above.
                if state.level == 0 && matches!(unsafe { settle(file)? }, Became::Decided) {
                    // SAFETY: as above, with the methods that it has now.
                    return Ok(unsafe {
                        ((*(*file).methods).file_control)(file, operation, argument)
                    });
                }
                Ok(pragma(state.api, arguments))
            };
            // SAFETY: as above.
            unsafe { with(file, ffi::IOERR, answer) }
        }
        _ => state.base.control(operation, argument),
    }
}

/// Answers as an empty compressed database.
fn pragma(api: Api, arguments: &mut [*mut c_char; 4]) -> Code {
    let text = |at: usize| {
        // SAFETY: SQLite lends texts, or null.
        let text = (!arguments[at].is_null()).then(|| unsafe { CStr::from_ptr(arguments[at]) });
        text.and_then(|text| text.to_str().ok())
    };
    let (Some(name), value) = (text(1), text(2)) else {
        return ffi::NOTFOUND;
    };
    let Some(answer) = answer_of(&name.to_ascii_lowercase(), value) else {
        return ffi::NOTFOUND;
    };
    arguments[0] = api.text(answer);
    ffi::OK
}

fn answer_of(name: &str, value: Option<&str>) -> Option<&'static str> {
    match name {
        "journal_mode" if value.is_some_and(|mode| mode.eq_ignore_ascii_case("wal")) => {
            Some("delete")
        }
        "breakeven_stats" => Some(
            "logical_bytes=0 stored_bytes=0 file_bytes=0 allocated_bytes=0 stored_blocks=0 block_bytes=0",
        ),
        "breakeven_verify" => Some("ok"),
        "breakeven_gc" => Some("trimmed_blocks=0 moved_bytes=0 file_bytes_before=0 file_bytes=0"),
        _ => None,
    }
}
