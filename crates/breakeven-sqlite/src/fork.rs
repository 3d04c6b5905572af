//! Children made by `fork`: they give up their copies of descriptors with locks, and their parent's open files are
//! refused to them. Files that they open themselves are theirs.
//!
//! `unsafe` here: a function of C's registers the handler with the system.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use breakeven::storage::forked::give_up_locked;

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

/// How often this process and those before it were made by `fork`, since the extension was loaded.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns a number that is another one in a child.
pub fn count() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Registers the duties of children. Without memory for that they are left out.
pub fn watch() {
    static ONCE: Once = Once::new();
    // SAFETY: the handler lives as long as the extension, which stays loaded, and calls nothing that a child may not.
    ONCE.call_once(|| unsafe {
        pthread_atfork(None, None, Some(begin));
    });
}

unsafe extern "C" fn begin() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    give_up_locked();
}
