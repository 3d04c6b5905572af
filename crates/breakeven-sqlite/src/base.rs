//! A file that the VFS before has open in the memory that SQLite lends for it.
//!
//! Closing any descriptor of a file drops all POSIX locks that the process has on it, and SQLite's own VFS locks by
//! them. So a file that may be a plain database is opened once, by that VFS and as a database. That VFS alone knows
//! which locks of other connections it would drop, and waits with the close. We only look, through its own handle.
//!
//! `unsafe` here: its functions are called by pointers.
#![allow(unsafe_code)]

use std::ffi::c_int;

use breakeven::error::Error;
use breakeven::pages::{FileKind, file_kind_by};

use crate::ffi::{self, Code, File, IoMethods};

/// A database that the VFS before has open.
#[derive(Clone, Copy)]
pub struct BaseFile {
    file: *mut File,
    methods: *const IoMethods,
}

impl BaseFile {
    /// # Safety
    /// `file` was opened by the VFS before, with these methods, and is used by one thread at a time until it is closed.
    pub unsafe fn new(file: *mut File, methods: *const IoMethods) -> BaseFile {
        BaseFile { file, methods }
    }

    /// Runs a call with the file's own methods in their place, where those of another stand meanwhile.
    fn call<T>(self, work: impl FnOnce(*mut File, &IoMethods) -> T) -> T {
        // SAFETY: as was promised when it was made; the methods live as long as the file is open.
        unsafe {
            let others = (*self.file).methods;
            (*self.file).methods = self.methods;
            let result = work(self.file, &*self.methods);
            (*self.file).methods = others;
            result
        }
    }

    /// Returns the kind of the file, or SQLite's word for why it cannot be found out.
    pub fn kind(self) -> Result<FileKind, Code> {
        let mut refused = ffi::IOERR;
        let kind = file_kind_by(&mut |target, offset| {
            self.read(target, offset).map_err(|code| {
                refused = code;
                Error::Interrupted
            })
        });
        kind.map_err(|_| refused)
    }

    fn read(self, target: &mut [u8], offset: u64) -> Result<usize, Code> {
        let bytes = target.as_mut_ptr().cast();
        // SAFETY: SQLite's own file, which fills as many bytes.
        let code = self.call(|file, methods| unsafe {
            (methods.read)(file, bytes, target.len() as c_int, offset as i64)
        });
        match code {
            ffi::OK => Ok(target.len()),
            ffi::IOERR_SHORT_READ => {
                let there = self.size_bytes()?.saturating_sub(offset);
                Ok(there.min(target.len() as u64) as usize)
            }
            code => Err(code),
        }
    }

    fn size_bytes(self) -> Result<u64, Code> {
        let mut size = 0;
        // SAFETY: SQLite's own file, and a number for its length.
        let code = self.call(|file, methods| unsafe { (methods.file_size)(file, &raw mut size) });
        match code {
            ffi::OK => Ok(size as u64),
            code => Err(code),
        }
    }

    pub fn lock(self, level: c_int) -> Code {
        // SAFETY: SQLite's own file.
        self.call(|file, methods| unsafe { (methods.lock)(file, level) })
    }

    pub fn unlock(self, level: c_int) -> Code {
        // SAFETY: SQLite's own file.
        self.call(|file, methods| unsafe { (methods.unlock)(file, level) })
    }

    pub fn is_reserved(self, result: *mut c_int) -> Code {
        // SAFETY: SQLite's own file, and an argument that it lends.
        self.call(|file, methods| unsafe { (methods.check_reserved_lock)(file, result) })
    }

    pub fn control(self, operation: c_int, argument: *mut std::ffi::c_void) -> Code {
        // SAFETY: SQLite's own file, and an argument that it lends.
        self.call(|file, methods| unsafe { (methods.file_control)(file, operation, argument) })
    }

    /// Returns whether the name leads to another file by now, or to none.
    pub fn has_moved(self) -> bool {
        let mut has_moved: c_int = 0;
        let code = self.control(ffi::FCNTL_HAS_MOVED, (&raw mut has_moved).cast());
        code == ffi::OK && has_moved != 0
    }

    /// Closes it; the memory is free for another.
    pub fn close(self) -> Code {
        // SAFETY: SQLite's own file, which is used no more.
        let code = self.call(|file, methods| unsafe { (methods.close)(file) });
        // SAFETY: the memory is SQLite's still.
        unsafe { (*self.file).methods = std::ptr::null() };
        code
    }

    /// Leaves it to SQLite, as if it had been opened by the VFS before alone.
    pub fn hand_over(self) {
        // SAFETY: as was promised when it was made.
        unsafe { (*self.file).methods = self.methods };
    }
}
