//! A reserve for when the system gives no memory. Rust ends the process where an allocation fails, and a host must not
//! end because it has little room. The reserve serves the allocation. SQLite's later calls are refused, as without
//! memory, until as much can be kept again.
//!
//! It is for one call of SQLite: the allocations of a call are bounded by a segment's buffer, a few pages and their
//! frames. A longer allocation fails by itself, as an error of the library. Several threads share it.
//!
//! `unsafe` here: an allocator is one by its nature, and passes all calls on to the system's.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Four of the longest buffers of a segment, which are a MiB. It is address space: nothing of it is ever written.
const KEPT: Layout = match Layout::from_size_align(4 << 20, 16) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two"),
};

static RESERVE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The system's allocator, and the reserve.
struct Reserved;

#[global_allocator]
static ALLOCATOR: Reserved = Reserved;

impl Reserved {
    /// Allocates, and once more after the reserve was given up.
    fn twice(allocate: impl Fn() -> *mut u8) -> *mut u8 {
        let first = allocate();
        if !first.is_null() {
            return first;
        }
        let kept = RESERVE.swap(null_mut(), Ordering::AcqRel);
        if kept.is_null() {
            return first;
        }
        // SAFETY: `is_short` allocated it by this layout, and nobody else has it any more.
        unsafe { System.dealloc(kept, KEPT) };
        allocate()
    }
}

// SAFETY: the system's allocator, called with the caller's arguments.
unsafe impl GlobalAlloc for Reserved {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        Reserved::twice(|| unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises.
        Reserved::twice(|| unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as the caller promises; a failed call leaves the old one as it is.
        Reserved::twice(|| unsafe { System.realloc(old, layout, bytes) })
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(old, layout) }
    }
}

/// Says whether there is less memory than a call may need; keeps it aside if that can be had again.
pub fn is_short() -> bool {
    if !RESERVE.load(Ordering::Acquire).is_null() {
        return false;
    }
    // SAFETY: the layout has a size.
    let kept = unsafe { System.alloc(KEPT) };
    if kept.is_null() {
        return true;
    }
    let swapped = RESERVE.compare_exchange(null_mut(), kept, Ordering::AcqRel, Ordering::Acquire);
    if swapped.is_err() {
        // Another thread was first.
        // SAFETY: allocated just now.
        unsafe { System.dealloc(kept, KEPT) };
    }
    false
}
