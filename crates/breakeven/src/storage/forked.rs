//! The descriptors that a child made by `fork` gives up: its copies of those with locks. Otherwise its parent's locks
//! would stay for as long as the child lives.
//!
//! `unsafe` here: a child may call only the functions that POSIX lists for signal handlers. libc has names for them.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

/// The most descriptors with locks that are known at a time. A child keeps one that finds no place.
const NOTED_MAX: usize = 4096;
const NONE: i32 = -1;

static NOTED: [AtomicI32; NOTED_MAX] = [const { AtomicI32::new(NONE) }; NOTED_MAX];

/// Says, while it lives, that a descriptor may have locks.
#[derive(Debug)]
pub(super) struct Noted(Option<usize>);

impl Noted {
    /// Notes a descriptor, which must live for longer.
    pub(super) fn new(descriptor: &OwnedFd) -> Noted {
        let number = descriptor.as_raw_fd();
        let order = Ordering::AcqRel;
        let note = |place: &AtomicI32| {
            place.load(Ordering::Relaxed) == NONE
                && (place.compare_exchange(NONE, number, order, Ordering::Relaxed)).is_ok()
        };
        Noted(NOTED.iter().position(note))
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            NOTED[place].store(NONE, Ordering::Release);
        }
    }
}

/// Closes every descriptor that may have locks, so that the locks stay the parent's alone. Each number goes to a
/// descriptor of the root folder that can neither be read nor written. For a child just made by `fork`, before anything
/// else runs in it; allowed in a handler of `pthread_atfork`.
///
/// A user of such a file gets an error from then on. That needs no file that a child may lack, and no further
/// descriptor.
pub fn give_up_locked() {
    for place in &NOTED {
        let number = place.load(Ordering::Acquire);
        if number != NONE {
            // SAFETY: an open descriptor of this process, which nobody else uses: it has one thread.
            unsafe { libc::close(number) };
            take(number);
        }
    }
}

/// Takes a free number, or leaves it free where the system refuses even that.
fn take(number: i32) {
    // SAFETY: a constant C string, and at most three system calls that are listed as safe after `fork`. One descriptor
    // was made here, and the other is free.
    unsafe {
        let root = libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        if root >= 0 && root != number {
            libc::dup2(root, number);
            libc::close(root);
        }
    }
}
