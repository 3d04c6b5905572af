//! Memory under a limit of the address space, as `ulimit -v` sets one.
//!
//! glibc maps 64 MiB for each thread that asks for memory, so that threads need not wait for each other. A handful of
//! threads then uses up the allowed address space, and hardly any of it is memory. With one arena they share it.
//!
//! `unsafe` here: a call of the C library, which has no safe binding.
#![allow(unsafe_code)]

use rustix::process::{Resource, getrlimit};

/// Lets all threads share one arena where the address space is limited.
pub fn share_where_limited() {
    #[cfg(target_env = "gnu")]
    if getrlimit(Resource::As).current.is_some() {
        // SAFETY: it sets a number of the allocator, before there are threads.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}
