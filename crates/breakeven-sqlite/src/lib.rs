//! A loadable extension that gives any stock SQLite compressed database files.
//!
//! After `.load ./libbreakeven_sqlite`, `file:app.db?vfs=breakeven` is a database whose pages lie compressed in the
//! file `app.db`. By the second entry, `sqlite3_breakeven_default_init`, every database that is opened afterwards is
//! one. Databases that are plain already are passed to the VFS that was the default.
//!
//! | file | what it is |
//! |---|---|
//! | `ffi` | SQLite's interface, as far as it is used |
//! | `vfs` | the VFS: which files are compressed, which are passed on |
//! | `base` | a file that the VFS before has open |
//! | `undecided` | a file with nothing in it yet |
//! | `database` | an open compressed database, in SQLite's calls |
//! | `journal` | its rollback journal, which stays in memory |
//! | `refusals` | why something was refused, in a sentence |
//! | `fork` | what a child of the process does not keep |
//!
//! It keeps the promise of `breakeven::pages`: a transaction is there whole or not at all, and one write and one sync
//! make it durable. No panic crosses into SQLite: the call fails, and the handle after it.
//!
//! `unsafe` here and in the modules: SQLite calls by pointers, and lends memory that it allocated.
#![allow(unsafe_code)]
// Standard error may be full or gone, and these end the process then.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

mod base;
mod database;
mod ffi;
mod fork;
mod journal;
mod memory;
mod refusals;
mod undecided;
mod vfs;

/// The entry that SQLite calls when it loads the extension: adds the VFS `breakeven`.
///
/// # Safety
/// SQLite calls it, with its table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    database: *mut c_void,
    _message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    register(database, table, false)
}

/// The entry that also makes it the default: databases that are opened from now on are compressed ones.
///
/// # Safety
/// SQLite calls it, with its table of functions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_breakeven_default_init(
    database: *mut c_void,
    _message: *mut *mut c_char,
    table: *const c_void,
) -> c_int {
    register(database, table, true)
}

fn register(database: *mut c_void, table: *const c_void, is_default: bool) -> c_int {
    // SAFETY: the entries pass on SQLite's own pointers.
    let api = unsafe { ffi::Api::new(table) };
    let register = || {
        let registered = vfs::register(api, is_default);
        if registered == ffi::OK && !database.is_null() {
            // SAFETY: as above.
            unsafe { refusals::add_function(api, database) };
        }
        registered
    };
    match catch_unwind(AssertUnwindSafe(register)) {
        Ok(ffi::OK) => ffi::OK_LOAD_PERMANENTLY,
        Ok(code) => code,
        Err(_) => ffi::ERROR,
    }
}
