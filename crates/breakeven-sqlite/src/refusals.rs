//! Why something was refused, in a sentence: SQLite has only a number for it, and words of its own for the number.
//!
//! A sentence goes to SQLite's log. The last one of the process is kept for the SQL function `breakeven_why()`, and for
//! `xGetLastError`. A frequent refusal, such as that another connection writes, is kept alone.
//!
//! `unsafe` here: SQLite calls the function by a pointer.
#![allow(unsafe_code)]

use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use breakeven::error::Error;
use breakeven::quoted::quoted;

use crate::ffi::{self, Api, Code, Function};

type Sentence = Option<Cow<'static, str>>;

static LAST: Mutex<Sentence> = Mutex::new(None);

/// Reports why a call on a file is refused by this code.
pub fn tell(api: Api, code: Code, path: &Path, error: &Error) {
    let next = match error {
        Error::Corrupt { .. } => "; `breakeven db fsck` says what can be read",
        _ => "",
    };
    tell_sentence(api, code, format!("{}: {error}{next}", quoted(path)));
}

/// As [`tell`], with a sentence of its own.
pub fn tell_sentence(api: Api, code: Code, sentence: String) {
    api.log(code, &format!("breakeven: {sentence}"));
    keep(sentence);
}

/// Keeps a sentence.
pub fn keep(sentence: impl Into<Cow<'static, str>>) {
    if let Some(mut last) = lock() {
        *last = Some(sentence.into());
    }
}

/// Locks it, if that can be had now: another thread of the parent may have had it when a child was made by `fork`.
fn lock() -> Option<MutexGuard<'static, Sentence>> {
    match LAST.try_lock() {
        Ok(last) => Some(last),
        Err(TryLockError::Poisoned(last)) => Some(last.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Keeps a code's meaning, where nothing more is known of a refused call on a file.
pub fn keep_code(path: &Path, code: Code) {
    let why = match code {
        ffi::IOERR_NOMEM => return keep("the system gives no memory"),
        ffi::BUSY => "another connection writes, or keeps writers out",
        ffi::BUSY_SNAPSHOT => {
            "another connection has written since this one began to read: end the transaction, and begin again"
        }
        ffi::READONLY_DBMOVED => {
            "the file that is open has another name, or none: no journal may be written beside the name"
        }
        ffi::FULL => "there is no room left",
        _ => return,
    };
    keep(format!("{}: {why}", quoted(path)));
}

/// Returns the last sentence of the process.
pub fn last() -> Option<Cow<'static, str>> {
    lock().and_then(|last| last.clone())
}

/// The SQLite libraries of the process that have the function. SQLite does not say which library calls, so each has a
/// function of its own. A process with more of them does without there.
static LIBRARIES: [OnceLock<Api>; 4] = [const { OnceLock::new() }; 4];
const FUNCTIONS: [Function; 4] = [why::<0>, why::<1>, why::<2>, why::<3>];

/// Gives a connection the function `breakeven_why()`; one that has it keeps it, where SQLite runs a statement.
///
/// # Safety
/// `database` is an open connection of the library.
pub unsafe fn add_function(api: Api, database: *mut c_void) {
    let is_own = |library: &OnceLock<Api>| *library.get_or_init(|| api) == api;
    if let Some(number) = LIBRARIES.iter().position(is_own) {
        // SAFETY: as the caller promises.
        unsafe {
            api.create_function(database, c"breakeven_why".as_ptr(), FUNCTIONS[number]);
        }
    }
}

/// Answers the last sentence, or NULL.
unsafe extern "C" fn why<const LIBRARY: usize>(
    context: *mut c_void,
    _count: c_int,
    _arguments: *mut *mut c_void,
) {
    if let (Some(api), Some(sentence)) = (LIBRARIES[LIBRARY].get(), last()) {
        // SAFETY: SQLite calls it now, the library that it was made for.
        unsafe { api.result_text(context, &sentence) };
    }
}
