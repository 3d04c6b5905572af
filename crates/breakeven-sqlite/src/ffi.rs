//! SQLite's interface to extensions, as far as it is used here: the words of `sqlite3.h` and the places of
//! `sqlite3ext.h`. They have not changed since they were first published and cannot change.
//!
//! `unsafe` here: functions are taken from SQLite's table by their place, and called by pointers.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

/// A plain result code, an extended one, or a flag.
pub type Code = c_int;

pub const OK: Code = 0;
pub const ERROR: Code = 1;
pub const BUSY: Code = 5;
/// The state read is not the newest any more.
pub const BUSY_SNAPSHOT: Code = BUSY | 2 << 8;
pub const READONLY_DBMOVED: Code = 8 | 4 << 8;
pub const IOERR: Code = 10;
pub const CORRUPT: Code = 11;
pub const NOTFOUND: Code = 12;
pub const FULL: Code = 13;
pub const CANTOPEN: Code = 14;
pub const IOERR_READ: Code = IOERR | 1 << 8;
pub const IOERR_SHORT_READ: Code = IOERR | 2 << 8;
pub const IOERR_WRITE: Code = IOERR | 3 << 8;
pub const IOERR_FSYNC: Code = IOERR | 4 << 8;
pub const IOERR_TRUNCATE: Code = IOERR | 6 << 8;
pub const IOERR_FSTAT: Code = IOERR | 7 << 8;
pub const IOERR_UNLOCK: Code = IOERR | 8 << 8;
pub const IOERR_NOMEM: Code = IOERR | 12 << 8;
pub const IOERR_LOCK: Code = IOERR | 15 << 8;
/// The extension stays loaded when the connection that loaded it is closed.
pub const OK_LOAD_PERMANENTLY: Code = 1 << 8;

pub const OPEN_READONLY: c_int = 0x1;
pub const OPEN_READWRITE: c_int = 0x2;
pub const OPEN_MAIN_DB: c_int = 0x100;
pub const OPEN_MAIN_JOURNAL: c_int = 0x800;

pub const ACCESS_EXISTS: c_int = 0;

/// A text of a function is UTF-8.
pub const UTF8: c_int = 1;

pub const FCNTL_LOCKSTATE: c_int = 1;
pub const FCNTL_SIZE_HINT: c_int = 5;
pub const FCNTL_CHUNK_SIZE: c_int = 6;
pub const FCNTL_VFSNAME: c_int = 12;
pub const FCNTL_PRAGMA: c_int = 14;
pub const FCNTL_HAS_MOVED: c_int = 20;
pub const FCNTL_SYNC: c_int = 21;
pub const FCNTL_COMMIT_PHASETWO: c_int = 22;
/// The question of `dbstat` to a compressed file: the page's number comes in, its offset and length go out.
pub const FCNTL_PAGE_PLACE: c_int = 230_440;

pub const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;

/// `sqlite3_file`: SQLite allocates it for us, and we fill it.
#[repr(C)]
pub struct File {
    pub methods: *const IoMethods,
}

/// `sqlite3_io_methods`, of its first version: without shared memory, and so without a write-ahead log.
#[repr(C)]
pub struct IoMethods {
    pub version: c_int,
    pub close: unsafe extern "C" fn(*mut File) -> Code,
    pub read: unsafe extern "C" fn(*mut File, *mut c_void, c_int, i64) -> Code,
    pub write: unsafe extern "C" fn(*mut File, *const c_void, c_int, i64) -> Code,
    pub truncate: unsafe extern "C" fn(*mut File, i64) -> Code,
    pub sync: unsafe extern "C" fn(*mut File, c_int) -> Code,
    pub file_size: unsafe extern "C" fn(*mut File, *mut i64) -> Code,
    pub lock: unsafe extern "C" fn(*mut File, c_int) -> Code,
    pub unlock: unsafe extern "C" fn(*mut File, c_int) -> Code,
    pub check_reserved_lock: unsafe extern "C" fn(*mut File, *mut c_int) -> Code,
    pub file_control: unsafe extern "C" fn(*mut File, c_int, *mut c_void) -> Code,
    pub sector_size: unsafe extern "C" fn(*mut File) -> c_int,
    pub device_characteristics: unsafe extern "C" fn(*mut File) -> c_int,
}

/// `sqlite3_vfs`. A method that is not called here is a pointer that is passed on as it is.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Vfs {
    pub version: c_int,
    pub file_bytes: c_int,
    pub path_bytes_max: c_int,
    pub next: *mut Vfs,
    pub name: *const c_char,
    pub data: *mut c_void,
    pub open: unsafe extern "C" fn(*mut Vfs, *const c_char, *mut File, c_int, *mut c_int) -> Code,
    pub delete: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> Code,
    pub access: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> Code,
    pub full_pathname: unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> Code,
    pub dl_open: unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void,
    pub dl_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char),
    pub dl_symbol: unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> *mut c_void,
    pub dl_close: unsafe extern "C" fn(*mut Vfs, *mut c_void),
    pub randomness: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub sleep: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub current_time: unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int,
    pub get_last_error: unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int,
    pub current_time_ms: unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int,
    pub set_system_call: *const c_void,
    pub get_system_call: *const c_void,
    pub next_system_call: *const c_void,
}

/// The type of an SQL function: SQLite calls it with the context, the number of arguments, and the arguments.
pub type Function = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void);

/// `sqlite3_api_routines`: a row of functions, each at a place of its own for ever.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Api(*const *const c_void);

// SAFETY: the table and the functions in it are constant for as long as the library is loaded.
unsafe impl Send for Api {}
// SAFETY: as above; the functions that are called here may be called by any thread.
unsafe impl Sync for Api {}

/// Calls the function at a place of the table, of the type that `sqlite3ext.h` gives it.
macro_rules! call {
    ($api:expr, $place:literal, fn($($type:ty),* $(,)?) -> $result:ty, $($argument:expr),*) => {{
        // SAFETY: the caller's table is SQLite's, and the function at this place has this type.
        let function = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($type),*) -> $result>(
                *$api.0.add($place),
            )
        };
        // SAFETY: the caller of this method promises the right arguments.
        unsafe { function($($argument),*) }
    }};
}

impl Api {
    /// # Safety
    /// `table` is the one that SQLite handed to the extension's entry.
    pub unsafe fn new(table: *const c_void) -> Api {
        Api(table.cast())
    }

    /// `sqlite3_malloc64`, for memory that SQLite frees.
    pub fn allocate(&self, bytes: u64) -> *mut c_void {
        call!(self, 197, fn(u64) -> *mut c_void, bytes)
    }

    /// `sqlite3_create_function`, of a function without arguments.
    ///
    /// # Safety
    /// `database` is open, and `name` is a C string.
    pub unsafe fn create_function(
        &self,
        database: *mut c_void,
        name: *const c_char,
        function: Function,
    ) -> Code {
        let (none, data): (Option<Function>, *mut c_void) = (None, std::ptr::null_mut());
        call!(
            self,
            45,
            fn(
                *mut c_void,
                *const c_char,
                c_int,
                c_int,
                *mut c_void,
                Function,
                Option<Function>,
                Option<Function>,
            ) -> Code,
            database,
            name,
            0,
            UTF8,
            data,
            function,
            none,
            none
        )
    }

    /// `sqlite3_result_text`, of a text that SQLite copies.
    ///
    /// # Safety
    /// `context` is that of a function that SQLite calls now.
    pub unsafe fn result_text(&self, context: *mut c_void, text: &str) {
        // SQLITE_TRANSIENT.
        let copied = -1_isize;
        call!(
            self,
            85,
            fn(*mut c_void, *const c_char, c_int, isize) -> (),
            context,
            text.as_ptr().cast(),
            text.len() as c_int,
            copied
        );
    }

    /// `sqlite3_vfs_find`.
    ///
    /// # Safety
    /// `name` is null, for the default, or a C string.
    pub unsafe fn find_vfs(&self, name: *const c_char) -> *mut Vfs {
        call!(self, 141, fn(*const c_char) -> *mut Vfs, name)
    }

    /// `sqlite3_vfs_register`.
    ///
    /// # Safety
    /// `vfs` lives as long as the process.
    pub unsafe fn register_vfs(&self, vfs: *mut Vfs, is_default: bool) -> Code {
        call!(
            self,
            142,
            fn(*mut Vfs, c_int) -> Code,
            vfs,
            is_default.into()
        )
    }

    /// `sqlite3_uri_parameter`.
    ///
    /// # Safety
    /// `name` is the file name that SQLite handed to `xOpen` for a database.
    pub unsafe fn uri_parameter(&self, name: *const c_char, key: *const c_char) -> *const c_char {
        call!(
            self,
            189,
            fn(*const c_char, *const c_char) -> *const c_char,
            name,
            key
        )
    }

    /// `sqlite3_log` with a message that is no format: percent signs are taken out.
    pub fn log(&self, code: Code, message: &str) {
        let plain: Vec<u8> = message
            .bytes()
            .filter(|byte| !b"%\0".contains(byte))
            .collect();
        let text = std::ffi::CString::new(plain).expect("no zeros");
        // SAFETY: the function at this place takes a code, a format, and the format's arguments, here none.
        let log = unsafe {
            std::mem::transmute::<*const c_void, unsafe extern "C" fn(c_int, *const c_char, ...)>(
                *self.0.add(167),
            )
        };
        // SAFETY: as above.
        unsafe { log(code, text.as_ptr()) }
    }

    /// Returns a copy of a text for SQLite to free, null without memory.
    pub fn text(&self, text: &str) -> *mut c_char {
        let copy: *mut c_char = self.allocate(text.len() as u64 + 1).cast();
        if !copy.is_null() {
            // SAFETY: as many bytes were allocated, and one for the end.
            unsafe {
                copy.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
                copy.add(text.len()).write(0);
            }
        }
        copy
    }
}
