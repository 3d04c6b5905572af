//! Processor time by kind, from `getrusage`.
//!
//! The only file of the meter with `unsafe`: the system call fills a struct by pointer, and
//! `rustix` does not offer it. It promises the kernel's own split of user and system time for
//! three scopes, in microseconds of resolution; it does not read any other field.
#![allow(unsafe_code)]

use crate::units::Seconds;

use super::usage::{CpuTime, Scope};

/// Returns the user and system time spent so far in `scope`.
pub(super) fn cpu_time(scope: Scope) -> CpuTime {
    let who = match scope {
        Scope::Thread => libc::RUSAGE_THREAD,
        Scope::Process => libc::RUSAGE_SELF,
        Scope::Children => libc::RUSAGE_CHILDREN,
    };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live, writable `rusage` of the right layout for the whole call.
    let result = unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "getrusage refused a valid scope");
    // SAFETY: all-zero bytes are a valid `rusage` (integers only), and the call filled it.
    let usage = unsafe { usage.assume_init() };
    CpuTime {
        user: seconds(usage.ru_utime),
        system: seconds(usage.ru_stime),
    }
}

fn seconds(time: libc::timeval) -> Seconds {
    Seconds(time.tv_sec as f64 + time.tv_usec as f64 / 1e6)
}
