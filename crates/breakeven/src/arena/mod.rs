//! Memory in mapped slabs of one size, every byte of it under a budget.
//!
//! An [`Arena`] hands out [`Slab`]s: zeroed or used memory of one power-of-two size, aligned to that size (so fit for
//! direct I/O), returned on drop. Memory that is mapped is either in use or free for the next caller. Both count
//! against the budget, which may change at any time. Memory over the budget goes back to the system at once, and
//! [`Arena::give_back`] returns all that is free. Caches and buffer pools that share one arena trade whole slabs
//! through it, which makes the budget the memory the process really has.
//!
//! Address space is reserved in regions of many slabs. A slab is given back with `MADV_DONTNEED` and not `munmap`. Its
//! memory leaves the process in the same call, but the map is not cut to pieces (a process has some 65,000). Nor does
//! the map's lock hold up the other threads' page faults. `MADV_FREE` would leave the memory counted until the system
//! is short of it.
//!
//! Slabs lie in huge pages where there are any. Direct I/O from memory in one piece was measured to be up to 1.8 times
//! as fast as from scattered pages, and random reads find a page's place sooner. A huge page gives memory to all slabs
//! in it at once. So small slabs have one only where the budget has room for all of them, and then all count as mapped.
//! A huge page lets go of a slab at once when it is given back. The system has the memory when the rest has gone too or
//! memory is short. A slab without memory refuses huge pages, or the system would fill it again. The first slabs may do
//! without ([`ArenaOptions::small_pages_bytes`]), so that slabs which are hardly filled take hardly any memory. When
//! more are wanted, their contents move to huge pages, one whenever another is asked for. Address space itself is
//! returned when the last handle is gone. Until then it is bounded by the largest budget that was ever in use.
//!
//! Built for the address sanitizer (`make test-sanitized`), an arena forbids every byte of slabs that nobody holds. Use
//! of a slab that was given back then ends the program at once.
//!
//! `unsafe` stands here for the maps and for slices of them. The arena does not divide slabs, does not move them, and
//! does not clear them: a slab may hold its last user's bytes.
#![allow(unsafe_code)]

mod loan;
#[cfg(feature = "objects")]
mod rows;

pub(crate) use loan::{FillLoan, LANES, LaneRight, Loan, Plain, SharedSlab};
#[cfg(feature = "objects")]
pub(crate) use rows::Rows;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, Result};

/// A region holds slabs of this many bytes together, or one larger slab.
const REGION_BYTES: usize = 32 << 20;
/// A huge page. Slabs of this size and more have theirs to themselves.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const SLAB_BYTES_MAX: usize = 1 << 30;

/// How an arena is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaOptions {
    /// Bytes of a slab: a power of two from the page size to 1 GiB. Default: 1 MiB.
    pub slab_bytes: usize,
    /// The most bytes that are mapped at once. Default: 64 MiB.
    pub budget_bytes: u64,
    /// As long as no more than so many bytes are mapped, new slabs lie in small pages and take memory page by page.
    /// Default: 0.
    pub small_pages_bytes: u64,
}

impl Default for ArenaOptions {
    fn default() -> ArenaOptions {
        ArenaOptions {
            slab_bytes: 1 << 20,
            budget_bytes: 64 << 20,
            small_pages_bytes: 0,
        }
    }
}

/// Where an arena's bytes are. All counts are exact at the moment of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArenaStats {
    /// Bytes of a slab.
    pub slab_bytes: u64,
    /// The most bytes that may be mapped.
    pub budget_bytes: u64,
    /// Bytes of slabs that may hold memory: in use and free.
    pub mapped_bytes: u64,
    /// Bytes of slabs that callers hold.
    pub in_use_bytes: u64,
    /// Bytes of mapped slabs that nobody holds.
    pub free_bytes: u64,
    /// The most bytes that were ever mapped.
    pub peak_mapped_bytes: u64,
    /// Address space reserved, with or without memory behind it.
    pub reserved_bytes: u64,
    /// Heap bytes of the arena's own lists: 16 for each reserved slab, 16 for each region, 8 for each huge page that
    /// small pages stand in for.
    pub bookkeeping_bytes: u64,
}

/// A budget of mapped slabs. Clones are handles of the same arena; slabs keep it alive.
///
/// # Example
///
/// ```
/// use breakeven::arena::{Arena, ArenaOptions};
///
/// let arena = Arena::new(ArenaOptions { slab_bytes: 64 << 10, budget_bytes: 128 << 10, ..ArenaOptions::default() })?;
/// let mut slab = arena.allocate()?;
/// slab[..5].copy_from_slice(b"bytes");
/// assert_eq!(arena.stats().in_use_bytes, 64 << 10);
/// drop(slab);
/// assert_eq!(arena.give_back()?, 64 << 10);
/// assert_eq!(arena.stats().mapped_bytes, 0);
/// # Ok::<(), breakeven::Error>(())
/// ```
#[derive(Clone)]
pub struct Arena {
    shared: Arc<Shared>,
}

impl Arena {
    /// Makes an empty arena.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the slab size is out of range or no power of two.
    pub fn new(options: ArenaOptions) -> Result<Arena> {
        let slab_bytes = options.slab_bytes;
        let range = rustix::param::page_size()..=SLAB_BYTES_MAX;
        if !slab_bytes.is_power_of_two() || !range.contains(&slab_bytes) {
            return Err(Error::invalid(
                "slab size",
                format!(
                    "{slab_bytes} bytes is not a power of two from {} to {}",
                    range.start(),
                    range.end()
                ),
            ));
        }
        Ok(Arena {
            shared: Arc::new(Shared {
                slab_bytes,
                small_pages_bytes: options.small_pages_bytes,
                state: Mutex::new(State {
                    budget_bytes: options.budget_bytes,
                    ..State::default()
                }),
            }),
        })
    }

    /// Returns the bytes of a slab.
    pub fn slab_bytes(&self) -> usize {
        self.shared.slab_bytes
    }

    /// Hands out a slab: a free one as its last user left it, else a new one of zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if the budget is used up, [`Error::Io`] if the system has no memory map
    /// to give.
    ///
    /// # Cost
    ///
    /// One lock, some 40 ns. A new slab then takes a page fault for each page as it is touched, which makes filling it
    /// ten times as long. It takes none if it was [prepared](Arena::prepare), and one for all slabs in a huge page. A
    /// new region, once in 32 MiB, takes some system calls. A huge page that small slabs share takes one system call,
    /// and the copying of 2 MiB where others lie in small pages.
    pub fn allocate(&self) -> Result<Slab> {
        Ok(Slab {
            address: self.shared.take()?,
            shared: Arc::clone(&self.shared),
        })
    }

    /// Maps and touches memory so that the next slabs, up to `bytes` together, cause no page
    /// fault.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] if they do not fit the budget, with nothing changed; [`Error::Io`] if the
    /// system has no memory.
    pub fn prepare(&self, bytes: u64) -> Result<()> {
        let shared = &self.shared;
        let slab_bytes = shared.slab_bytes as u64;
        let slab_count = bytes.div_ceil(slab_bytes);
        {
            let state = shared.lock();
            let needed = slab_count
                .checked_mul(slab_bytes)
                .and_then(|bytes| bytes.checked_add(state.in_use_bytes));
            if needed.is_none_or(|needed| needed > state.budget_bytes.max(state.mapped_bytes)) {
                return Err(Error::Limit {
                    what: "prepared slabs",
                    limit_bytes: state.budget_bytes,
                    needed_bytes: needed.unwrap_or(u64::MAX),
                });
            }
        }
        // Held together until all are touched, or the same one would be touched again and again.
        let mut slabs = Vec::new();
        for _ in 0..slab_count {
            let mut slab = self.allocate()?;
            slab.touch()?;
            slabs.push(slab);
        }
        Ok(())
    }

    /// Changes the budget. Free slabs beyond it go back to the system now, slabs in use as their
    /// holders drop them.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system does not take memory back (it is locked); the budget has
    /// changed all the same.
    pub fn set_budget(&self, bytes: u64) -> Result<()> {
        self.shared.lock().budget_bytes = bytes;
        let is_over = |state: &State| state.mapped_bytes > state.budget_bytes;
        self.shared.give_back_while(is_over).map(|_| ())
    }

    /// Gives all free slabs back to the system, and returns how many bytes these were.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the system does not take memory back (it is locked).
    ///
    /// # Cost
    ///
    /// A system call for each slab, two for small ones, with the arena unlocked.
    pub fn give_back(&self) -> Result<u64> {
        self.shared.give_back_while(|_| true)
    }

    /// Returns where the bytes are.
    pub fn stats(&self) -> ArenaStats {
        let state = self.shared.lock();
        let pointer = size_of::<Address>();
        let lists = state.free.capacity() + state.vacant.capacity() + state.small.capacity();
        let lists = lists * pointer;
        let regions = state.regions.capacity() * size_of::<Region>();
        ArenaStats {
            slab_bytes: self.shared.slab_bytes as u64,
            budget_bytes: state.budget_bytes,
            mapped_bytes: state.mapped_bytes,
            in_use_bytes: state.in_use_bytes,
            free_bytes: state.mapped_bytes - state.in_use_bytes,
            peak_mapped_bytes: state.peak_mapped_bytes,
            reserved_bytes: state.regions.iter().map(|region| region.bytes as u64).sum(),
            bookkeeping_bytes: (lists + regions) as u64,
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

/// One slab of memory, the holder's alone until it is dropped. It reads and writes as a byte
/// slice, and its address is a multiple of its size.
pub struct Slab {
    address: Address,
    shared: Arc<Shared>,
}

impl Slab {
    /// Makes every page present.
    fn touch(&mut self) -> Result<()> {
        let bytes = self.shared.slab_bytes;
        // SAFETY: the range is this slab, which is mapped and held by us alone. The advice makes its pages present and
        // does not change their contents.
        let result = unsafe { madvise(self.address.pointer(), bytes, Advice::LinuxPopulateWrite) };
        match result {
            // Kernels before 5.14 do not know the advice.
            Err(Errno::INVAL) => {
                for page in self.chunks_mut(rustix::param::page_size()) {
                    page[0] = std::hint::black_box(page[0]);
                }
                Ok(())
            }
            other => other.map_err(|error| system_error("touch", error)),
        }
    }
}

impl Deref for Slab {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the slab's whole range is mapped readable for as long as `shared` lives, and holds initialised bytes
        // (zeros when new). Nobody else has it while this handle exists.
        unsafe { std::slice::from_raw_parts(self.address.0.as_ptr(), self.shared.slab_bytes) }
    }
}

impl DerefMut for Slab {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` excludes every other borrow of the slab.
        unsafe { std::slice::from_raw_parts_mut(self.address.0.as_ptr(), self.shared.slab_bytes) }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        self.shared.put(Address(self.address.0));
    }
}

impl fmt::Debug for Slab {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Slab({:?}, {} bytes)",
            self.address.0, self.shared.slab_bytes
        )
    }
}

/// The address of a slab. Its holder has the slab: it is never in two places.
struct Address(NonNull<u8>);

// SAFETY: the address stands for memory that belongs to the process, not to a thread, and its one
// holder is the only one to use it.
unsafe impl Send for Address {}
// SAFETY: a shared address gives no more than shared reading of the slab's bytes.
unsafe impl Sync for Address {}

impl Address {
    fn pointer(&self) -> *mut std::ffi::c_void {
        self.0.as_ptr().cast()
    }
}

struct Shared {
    slab_bytes: usize,
    small_pages_bytes: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    budget_bytes: u64,
    /// Slabs in use, free, and just being given back.
    mapped_bytes: u64,
    in_use_bytes: u64,
    peak_mapped_bytes: u64,
    /// Slabs that nobody holds and that may hold memory; the last one dropped is the next to go.
    free: Vec<Address>,
    /// Slabs without memory: new, or given back.
    vacant: Vec<Address>,
    /// Where the huge pages would begin that slabs in small pages could have.
    small: Vec<usize>,
    /// Dropped last, when no slab is left: each slab holds the arena.
    regions: Vec<Region>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing here panics half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Address> {
        let slab_bytes = self.slab_bytes as u64;
        let mut state = self.lock();
        let address = match state.free.pop() {
            Some(address) => address,
            None => {
                let needed_bytes = state.mapped_bytes.saturating_add(slab_bytes);
                if needed_bytes > state.budget_bytes {
                    return Err(Error::Limit {
                        what: "slab",
                        limit_bytes: state.budget_bytes,
                        needed_bytes,
                    });
                }
                let address = match state.vacant.pop() {
                    Some(address) => address,
                    None => self.extend(&mut state)?,
                };
                state.mapped_bytes = needed_bytes;
                self.ask_for_huge_page(&mut state, &address);
                state.peak_mapped_bytes = state.peak_mapped_bytes.max(state.mapped_bytes);
                address
            }
        };
        state.in_use_bytes += slab_bytes;
        sanitizer::permit(&address, self.slab_bytes);
        Ok(address)
    }

    fn put(&self, address: Address) {
        sanitizer::forbid(&address, self.slab_bytes);
        let mut state = self.lock();
        state.in_use_bytes -= self.slab_bytes as u64;
        state.free.push(address);
        let is_over = state.mapped_bytes > state.budget_bytes;
        drop(state);
        if is_over {
            // Memory that the system does not take now stays free and counted, for the next attempt.
            let _ = self.give_back_while(|state| state.mapped_bytes > state.budget_bytes);
        }
    }

    /// Asks for a huge page where a slab without memory is the first of one. None of the others in it may have memory,
    /// and the budget must have room for them: they are free from now on.
    fn ask_for_huge_page(&self, state: &mut State, first: &Address) {
        let is_first = first.0.as_ptr().align_offset(HUGE_PAGE_BYTES) == 0;
        if self.slab_bytes >= HUGE_PAGE_BYTES || !is_first {
            return;
        }
        if state.mapped_bytes <= self.small_pages_bytes {
            let start = first.0.as_ptr().expose_provenance();
            if !state.small.contains(&start) {
                state.small.push(start);
            }
            return;
        }
        let others = HUGE_PAGE_BYTES / self.slab_bytes - 1;
        let bytes = (others * self.slab_bytes) as u64;
        let is_room = state.mapped_bytes.saturating_add(bytes) <= state.budget_bytes;
        let Some(at) = state.vacant.len().checked_sub(others).filter(|_| is_room) else {
            return;
        };
        // The next to be handed out is the last.
        let mut expected = first.0.as_ptr();
        let mut follows = |it: &Address| {
            expected = expected.wrapping_add(self.slab_bytes);
            it.0.as_ptr() == expected
        };
        if !state.vacant[at..].iter().rev().all(&mut follows) {
            return;
        }
        // SAFETY: the range is slabs of one region, as they follow each other, and they are nobody's or about to be
        // ours. The advice changes no bytes.
        let result = unsafe { madvise(first.pointer(), HUGE_PAGE_BYTES, Advice::LinuxHugepage) };
        // A kernel without huge pages refuses; nothing hangs on it but speed.
        if result.is_ok() {
            let State { vacant, free, .. } = state;
            free.extend(vacant.drain(at..));
            state.mapped_bytes += bytes;
            self.move_to_huge_page(state);
        }
    }

    /// Lets the system put slabs that lie in small pages into a huge page, if each of them has memory.
    fn move_to_huge_page(&self, state: &mut State) {
        let Some(start) = state.small.pop() else {
            return;
        };
        let within = start..start + HUGE_PAGE_BYTES;
        let is_vacant = |it: &Address| within.contains(&(it.0.as_ptr() as usize));
        let held_bytes = state.in_use_bytes + (state.free.len() * self.slab_bytes) as u64;
        // The one that is being taken is counted as mapped alone; more than that is being given back just now.
        let is_going = state.mapped_bytes - held_bytes > self.slab_bytes as u64;
        if is_going || state.vacant.iter().any(is_vacant) {
            return;
        }
        let start = std::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the range is mapped slabs of one region, and none of them is being given back. Neither advice changes
        // a byte of them, even under readers and writers. Where a kernel refuses, all stays as it is.
        unsafe {
            if madvise(start, HUGE_PAGE_BYTES, Advice::LinuxHugepage).is_ok() {
                libc::madvise(start, HUGE_PAGE_BYTES, libc::MADV_COLLAPSE);
            }
        }
    }

    /// Reserves one more region and returns one of its slabs, leaving the others vacant.
    fn extend(&self, state: &mut State) -> Result<Address> {
        let slab_bytes = self.slab_bytes;
        let budget_left = state.budget_bytes.saturating_sub(state.mapped_bytes);
        let wanted = usize::try_from(budget_left).unwrap_or(usize::MAX);
        let slab_count = (wanted.min(REGION_BYTES) / slab_bytes).max(1);
        let region = Region::map(slab_count, slab_bytes)?;
        let slab_count_total = state
            .regions
            .iter()
            .map(|region| region.bytes / slab_bytes)
            .sum::<usize>()
            + slab_count;
        // Room for every slab in both lists, so that dropping one never allocates.
        let (free_len, vacant_len) = (state.free.len(), state.vacant.len());
        state.free.reserve_exact(slab_count_total - free_len);
        state.vacant.reserve_exact(slab_count_total - vacant_len);
        // From the end, so that slabs are handed out in rising order.
        for index in (1..slab_count).rev() {
            state.vacant.push(region.slab(index, slab_bytes));
        }
        let first = region.slab(0, slab_bytes);
        state.regions.push(region);
        Ok(first)
    }

    /// Gives free slabs back, one after the other, for as long as `wanted` holds.
    fn give_back_while(&self, wanted: impl Fn(&State) -> bool) -> Result<u64> {
        let mut given_back_bytes = 0;
        loop {
            let mut state = self.lock();
            if !wanted(&state) {
                return Ok(given_back_bytes);
            }
            let Some(address) = state.free.pop() else {
                return Ok(given_back_bytes);
            };
            drop(state);
            if self.slab_bytes < HUGE_PAGE_BYTES {
                // SAFETY: the range is one mapped slab that nobody holds; the advice changes no bytes.
                let _ =
                    unsafe { madvise(address.pointer(), self.slab_bytes, Advice::LinuxNoHugepage) };
            }
            // Neither free nor vacant meanwhile: nobody can take it before its memory is gone.
            // SAFETY: the range is one mapped slab that nobody holds; it reads as zeros afterwards.
            let result =
                unsafe { madvise(address.pointer(), self.slab_bytes, Advice::LinuxDontNeed) };
            let mut state = self.lock();
            if let Err(error) = result {
                state.free.push(address);
                return Err(system_error("give back", error));
            }
            state.vacant.push(address);
            state.mapped_bytes -= self.slab_bytes as u64;
            given_back_bytes += self.slab_bytes as u64;
        }
    }
}

/// Address space for some slabs, unmapped on drop.
struct Region {
    base: Address,
    bytes: usize,
}

impl Region {
    fn map(slab_count: usize, slab_bytes: usize) -> Result<Region> {
        let bytes = slab_count * slab_bytes;
        let alignment = match bytes < HUGE_PAGE_BYTES {
            true => slab_bytes,
            false => slab_bytes.max(HUGE_PAGE_BYTES),
        };
        // The kernel aligns to a page: map so much more, and cut the excess off at both ends.
        let whole = bytes + alignment;
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // SAFETY: a new anonymous map at a place of the kernel's choice touches no memory of ours.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), whole, protection, flags) }
            .map_err(|error| system_error("map", error))?;
        let before = start.align_offset(alignment);
        assert!(before < alignment, "no aligned start in a map that long");
        let region = Region {
            base: Address(
                NonNull::new(start.wrapping_byte_add(before).cast()).expect("a map at 0"),
            ),
            bytes,
        };
        let end = start.wrapping_byte_add(before + bytes);
        for (cut, length) in [(start, before), (end, alignment - before)] {
            if length > 0 {
                // SAFETY: the range is an end of the map just made, outside the region kept.
                unsafe { munmap(cut, length) }.map_err(|error| system_error("unmap", error))?;
            }
        }
        let advice = match slab_bytes < HUGE_PAGE_BYTES {
            true => Advice::LinuxNoHugepage,
            false => Advice::LinuxHugepage,
        };
        // A kernel without huge pages refuses either.
        // SAFETY: the range is the region just mapped; the advice changes no bytes.
        let _ = unsafe { madvise(region.base.pointer(), bytes, advice) };
        sanitizer::forbid(&region.base, bytes);
        Ok(region)
    }

    /// Returns the address of a slab. Called once for each, when the region is new.
    fn slab(&self, index: usize, slab_bytes: usize) -> Address {
        let offset = index * slab_bytes;
        assert!(offset < self.bytes, "slab {index} outside its region");
        // SAFETY: the offset lies within the region's one map, as asserted.
        Address(unsafe { self.base.0.add(offset) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // The addresses may be somebody else's next.
        sanitizer::permit(&self.base, self.bytes);
        // SAFETY: the range is the region's own map; the arena drops with its last slab, so nothing
        // borrows from it.
        let result = unsafe { munmap(self.base.pointer(), self.bytes) };
        // Fails only for a range that is no map, or when a split would be one map too many.
        debug_assert!(result.is_ok(), "unmap: {result:?}");
    }
}

/// The calls that describe to the address sanitizer memory that it did not hand out itself.
#[cfg(breakeven_sanitized)]
mod sanitizer {
    use super::Address;

    unsafe extern "C" {
        fn __asan_poison_memory_region(start: *const std::ffi::c_void, bytes: usize);
        fn __asan_unpoison_memory_region(start: *const std::ffi::c_void, bytes: usize);
        #[cfg(test)]
        fn __asan_address_is_poisoned(address: *const std::ffi::c_void) -> i32;
    }

    pub fn forbid(address: &Address, bytes: usize) {
        // SAFETY: the sanitizer only notes it; that it holds is the caller's to say.
        unsafe { __asan_poison_memory_region(address.pointer(), bytes) }
    }

    pub fn permit(address: &Address, bytes: usize) {
        // SAFETY: as for `forbid`.
        unsafe { __asan_unpoison_memory_region(address.pointer(), bytes) }
    }

    #[cfg(test)]
    pub fn is_forbidden(address: *const u8) -> bool {
        // SAFETY: it looks the address up in the sanitizer's own tables and reads nothing there.
        unsafe { __asan_address_is_poisoned(address.cast()) != 0 }
    }
}

#[cfg(not(breakeven_sanitized))]
mod sanitizer {
    use super::Address;

    pub fn forbid(_: &Address, _: usize) {}
    pub fn permit(_: &Address, _: usize) {}
}

/// Returns freed memory that the C library's allocator keeps to the system. It is for after work that takes megabytes
/// once in a while. Does nothing where there is no such call.
#[cfg(feature = "objects")]
pub(crate) fn give_back_heap() {
    #[cfg(target_env = "gnu")]
    {
        unsafe extern "C" {
            fn malloc_trim(left_bytes: usize) -> std::ffi::c_int;
        }
        // SAFETY: it lets go of free memory alone, under the allocator's own locks.
        unsafe { malloc_trim(0) };
    }
}

/// Lets the C library's allocator keep hardly any memory that was freed. By itself it learns from the first large piece
/// that is freed to keep pieces of that size. A server that trained once would keep some 8 MiB for each thread that
/// did. Does nothing where there is no such call.
#[cfg(feature = "objects")]
pub fn keep_heap_small() {
    /// The allocator's first value (mallopt(3)); once it is set, the allocator learns no other.
    #[cfg(target_env = "gnu")]
    const MAPPED_BYTES_MIN: i32 = 128 << 10;
    // SAFETY: sets a number of the allocator.
    #[cfg(target_env = "gnu")]
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES_MIN);
    }
}

/// Lets go of the pages of programs' and libraries' files that the process has mapped and does not write to. It is for
/// a server that has started, and will hardly use again the pages that starting took. A needed page comes back from the
/// file. Does nothing where there are other threads, or where the system does not list the mappings.
#[cfg(feature = "objects")]
pub fn give_back_program() {
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    let Ok(maps) = std::fs::read_to_string("/proc/self/smaps") else {
        return;
    };
    for (start, end) in maps_unwritten(&maps).filter(|_| threads == 1) {
        // SAFETY: the mapping is private, not writable and has no page of its own, nor one in the swap. So all of it is
        // in the file. No other thread is there to change it meanwhile.
        let _ = unsafe { madvise(start as *mut _, end - start, Advice::LinuxDontNeed) };
    }
}

/// Returns the ranges of private mappings of files that nobody can write to and nobody has.
#[cfg(feature = "objects")]
fn maps_unwritten(maps: &str) -> impl Iterator<Item = (usize, usize)> {
    let mut range = None;
    maps.lines().filter_map(move |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Swap:", "0", "kB"] => range.take(),
            ["Anonymous:" | "Swap:", kib, "kB"] => {
                range = range.take().filter(|_| kib == "0");
                None
            }
            // START-END PERMISSIONS OFFSET DEVICE INODE PATH
            [range_text, permissions, ..] if range_text.contains('-') => {
                let is_file = words.get(5).is_some_and(|path| path.starts_with('/'));
                let is_fixed = permissions.starts_with("r-") && permissions.ends_with('p');
                let ends = range_text.split_once('-').filter(|_| is_file && is_fixed);
                range = ends.and_then(|(start, end)| {
                    let number = |text: &str| usize::from_str_radix(text, 16).ok();
                    Some((number(start)?, number(end)?))
                });
                None
            }
            _ => None,
        }
    })
}

fn system_error(operation: &'static str, error: Errno) -> Error {
    Error::io(operation, "slab memory", error.into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{is_full, seeded};
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    #[cfg(feature = "objects")]
    fn only_what_lies_in_a_file_is_let_go() {
        let header = |range: &str, permissions: &str, path: &str| {
            format!("{range} {permissions} 00000000 fe:00 12 {path}\nSize: 8 kB\n")
        };
        let check = |permissions: &str, path: &str, anonymous: [u32; 2], expected: bool| {
            let [own, swapped] = anonymous;
            let maps = header("1000-3000", permissions, path)
                + &format!("Anonymous: {own} kB\nSwap: {swapped} kB\nVmFlags: rd ex mr\n")
                // The next mapping has nothing of the one before.
                + "5000-6000 rw-p 00000000 00:00 0\nAnonymous: 0 kB\nSwap: 0 kB\n";
            let found: Vec<(usize, usize)> = maps_unwritten(&maps).collect();
            let wanted = if expected {
                vec![(0x1000, 0x3000)]
            } else {
                vec![]
            };
            assert_eq!(found, wanted, "{maps}");
        };
        check("r-xp", "/usr/bin/program", [0, 0], true);
        check("r--p", "/usr/lib/library.so (deleted)", [0, 0], true);
        // Relocated, and put out since; written, shared, unreadable, of no file.
        check("r--p", "/usr/bin/program", [4, 0], false);
        check("r--p", "/usr/bin/program", [0, 4], false);
        check("rw-p", "/usr/bin/program", [0, 0], false);
        check("r--s", "/usr/bin/program", [0, 0], false);
        check("---p", "/usr/bin/program", [0, 0], false);
        check("r-xp", "[vdso]", [0, 0], false);
        // Among other threads nothing is done; nothing is lost either.
        give_back_program();
    }

    const SLAB: usize = 64 << 10;

    #[cfg(breakeven_sanitized)]
    #[test]
    fn slabs_that_nobody_holds_are_forbidden() {
        let arena = arena(SLAB, 4);
        let (one, other) = (
            arena.allocate().expect("one"),
            arena.allocate().expect("two"),
        );
        let ends = [one.as_ptr(), other.as_ptr()].map(|start| start.wrapping_add(SLAB - 1));
        assert_eq!(ends.map(sanitizer::is_forbidden), [false; 2]);
        drop(one);
        assert_eq!(ends.map(sanitizer::is_forbidden), [true, false]);
        let again = arena.allocate().expect("the one given back");
        assert_eq!(ends.map(sanitizer::is_forbidden), [false; 2]);
        drop((again, other, arena));
        assert_eq!(
            ends.map(sanitizer::is_forbidden),
            [false; 2],
            "no longer ours"
        );
    }

    fn arena(slab_bytes: usize, slab_count: u64) -> Arena {
        Arena::new(ArenaOptions {
            slab_bytes,
            budget_bytes: slab_count * slab_bytes as u64,
            ..ArenaOptions::default()
        })
        .expect("an arena")
    }

    /// Bytes of the range that have memory behind them, by the process's page table. It is the range's part of the
    /// resident size, independent of other tests.
    fn resident_bytes(address: usize, bytes: usize) -> usize {
        let page_bytes = rustix::param::page_size();
        let mut entries = vec![0u8; bytes / page_bytes * 8];
        std::fs::File::open("/proc/self/pagemap")
            .and_then(|file| file.read_exact_at(&mut entries, (address / page_bytes * 8) as u64))
            .expect("the page table");
        // The highest bits of an entry: present, swapped.
        entries
            .chunks(8)
            .filter(|entry| entry[7] & 0xc0 != 0)
            .count()
            * page_bytes
    }

    #[test]
    fn memory_leaves_the_process_when_it_is_given_back() {
        for slab_bytes in [SLAB, 4 << 20] {
            let count = REGION_BYTES / slab_bytes;
            let arena = arena(slab_bytes, count as u64);
            let mut slabs: Vec<Slab> = (0..count)
                .map(|_| arena.allocate().expect("a slab"))
                .collect();
            let address = slabs
                .iter()
                .map(|slab| slab.as_ptr() as usize)
                .min()
                .expect("slabs");
            for slab in &mut slabs {
                slab.fill(0x5a);
            }
            let resident = || resident_bytes(address, REGION_BYTES);
            assert_eq!(resident(), REGION_BYTES);
            drop(slabs);
            assert_eq!(arena.stats().free_bytes, REGION_BYTES as u64);
            assert_eq!(
                resident(),
                REGION_BYTES,
                "free slabs are kept for the next caller"
            );
            assert_eq!(arena.give_back().expect("given back"), REGION_BYTES as u64);
            assert_eq!(resident(), 0);
            let mut again = arena.allocate().expect("a slab");
            assert!(again.iter().all(|byte| *byte == 0), "new memory is zero");
            again[0] = 1;
        }
    }

    #[test]
    fn prepared_slabs_cause_no_page_fault() {
        // Too few for a huge page.
        const SLABS: u64 = (HUGE_PAGE_BYTES / SLAB) as u64 - 1;
        let faults = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("the thread");
            let after_name = stat.rsplit_once(')').expect("a name").1;
            let minor = after_name
                .split_ascii_whitespace()
                .nth(7)
                .expect("minor faults");
            minor.parse::<u64>().expect("a number")
        };
        let fill = |arena: &Arena| {
            let mut slabs: Vec<Slab> = (0..SLABS)
                .map(|_| arena.allocate().expect("a slab"))
                .collect();
            let before = faults();
            for slab in &mut slabs {
                slab.fill(7);
            }
            faults() - before
        };
        let pages = SLABS * (SLAB / rustix::param::page_size()) as u64;
        let cold = fill(&arena(SLAB, SLABS));
        assert!(cold >= pages, "{cold} faults for {pages} pages");
        let arena = arena(SLAB, SLABS);
        arena.prepare(SLABS * SLAB as u64).expect("memory");
        assert_eq!(arena.stats().free_bytes, SLABS * SLAB as u64);
        let warm = fill(&arena);
        assert!(
            warm < pages / 16,
            "{warm} faults for {pages} prepared pages"
        );
    }

    #[test]
    fn a_huge_page_is_within_the_budget_and_let_go_with_its_slabs() {
        const IN_ONE: u64 = (HUGE_PAGE_BYTES / SLAB) as u64;
        // Room for two huge pages and some of a third.
        let arena = arena(SLAB, 2 * IN_ONE + 5);
        let mapped = || arena.stats().mapped_bytes / SLAB as u64;
        let take = |count: u64| -> Vec<Slab> {
            let slab = |_| {
                let mut slab = arena.allocate().expect("a slab");
                slab.fill(7);
                slab
            };
            (0..count).map(slab).collect()
        };
        let mut slabs = take(1);
        assert_eq!(mapped(), IN_ONE, "all that one huge page gives memory to");
        let first = slabs[0].as_ptr() as usize;
        assert!(resident_bytes(first, HUGE_PAGE_BYTES) <= HUGE_PAGE_BYTES);
        slabs.extend(take(IN_ONE));
        assert_eq!(mapped(), 2 * IN_ONE);
        slabs.extend(take(IN_ONE + 4));
        assert_eq!(mapped(), 2 * IN_ONE + 5);
        assert!(arena.allocate().is_err());
        let places = slabs.iter().map(|slab| slab.as_ptr() as usize);
        let whole = |place: usize| place < first + 2 * HUGE_PAGE_BYTES && place >= first;
        assert_eq!(places.filter(|it| whole(*it)).count() as u64, 2 * IN_ONE);
        // A slab given back has no memory any more, and its neighbours keep theirs.
        arena.set_budget(0).expect("a budget");
        let gone = slabs.remove(3);
        let place = gone.as_ptr() as usize;
        drop(gone);
        assert_eq!(resident_bytes(place, SLAB), 0);
        assert!(slabs.iter().all(|slab| slab.iter().all(|byte| *byte == 7)));
        drop(slabs);
        assert_eq!(
            (mapped(), resident_bytes(first, 2 * HUGE_PAGE_BYTES)),
            (0, 0)
        );
    }

    #[test]
    fn the_first_slabs_take_memory_page_by_page() {
        const IN_ONE: u64 = (HUGE_PAGE_BYTES / SLAB) as u64;
        let arena = Arena::new(ArenaOptions {
            slab_bytes: SLAB,
            budget_bytes: 4 * HUGE_PAGE_BYTES as u64,
            small_pages_bytes: HUGE_PAGE_BYTES as u64,
        })
        .expect("an arena");
        let mapped = || arena.stats().mapped_bytes / SLAB as u64;
        let take = || arena.allocate().expect("a slab");
        let mut slabs: Vec<Slab> = (0..IN_ONE).map(|_| take()).collect();
        slabs.iter_mut().for_each(|slab| slab[0] = 7);
        assert_eq!(mapped(), IN_ONE);
        let first = slabs[0].as_ptr() as usize;
        let page_bytes = rustix::param::page_size();
        assert_eq!(
            resident_bytes(first, HUGE_PAGE_BYTES),
            IN_ONE as usize * page_bytes
        );
        slabs.push(take());
        assert_eq!(mapped(), 2 * IN_ONE, "the next have a huge page");
        let is_kept = |slab: &Slab| slab[0] == 7 && slab[1..].iter().all(|byte| *byte == 0);
        assert!(slabs[..IN_ONE as usize].iter().all(is_kept));
        drop(slabs);
        arena.give_back().expect("given back");
        assert_eq!(
            (mapped(), resident_bytes(first, 2 * HUGE_PAGE_BYTES)),
            (0, 0)
        );
    }

    #[test]
    fn slabs_are_aligned_and_do_not_overlap() {
        for slab_bytes in [rustix::param::page_size(), SLAB, 1 << 20, 64 << 20] {
            let arena = arena(slab_bytes, 3);
            let slabs: Vec<Slab> = (0..3).map(|_| arena.allocate().expect("a slab")).collect();
            let mut addresses: Vec<usize> =
                slabs.iter().map(|slab| slab.as_ptr() as usize).collect();
            addresses.sort_unstable();
            for pair in addresses.windows(2) {
                assert!(pair[1] - pair[0] >= slab_bytes);
            }
            for (slab, address) in slabs.iter().zip(&addresses) {
                assert_eq!((slab.len(), address % slab_bytes), (slab_bytes, 0));
            }
        }
    }

    #[test]
    fn the_budget_is_refused_by_name_and_number() {
        let arena = arena(SLAB, 2);
        let held = (
            arena.allocate().expect("one"),
            arena.allocate().expect("two"),
        );
        let refused = arena.allocate().expect_err("over the budget");
        let (limit, needed) = (2 * SLAB, 3 * SLAB);
        assert_eq!(
            refused.to_string(),
            format!("slab needs {needed} bytes, the limit is {limit} bytes")
        );
        assert!(matches!(arena.prepare(1), Err(Error::Limit { .. })));
        assert!(matches!(arena.prepare(u64::MAX), Err(Error::Limit { .. })));
        drop(held);
        arena.prepare(2 * SLAB as u64).expect("room");
        assert!(matches!(
            arena.prepare(2 * SLAB as u64 + 1),
            Err(Error::Limit { .. })
        ));
        for slab_bytes in [0, 1, 100, 3 << 20, 2 << 30] {
            let options = ArenaOptions {
                slab_bytes,
                ..ArenaOptions::default()
            };
            assert!(
                matches!(Arena::new(options), Err(Error::Invalid { .. })),
                "{slab_bytes}"
            );
        }
    }

    #[test]
    fn a_slab_outlives_the_arena_it_came_from() {
        let mut slab = arena(SLAB, 1).allocate().expect("a slab");
        slab.fill(9);
        assert!(slab.iter().all(|byte| *byte == 9));
    }

    /// The expected accounting, in whole slabs.
    #[derive(Debug, Default)]
    struct Naive {
        budget: u64,
        in_use: u64,
        free: u64,
        peak: u64,
    }

    impl Naive {
        fn check(&mut self, arena: &Arena, step: &str) {
            self.peak = self.peak.max(self.in_use + self.free);
            let stats = arena.stats();
            let slabs = |bytes: u64| {
                assert_eq!(bytes % SLAB as u64, 0);
                bytes / SLAB as u64
            };
            let found = [
                slabs(stats.in_use_bytes),
                slabs(stats.free_bytes),
                slabs(stats.mapped_bytes),
                slabs(stats.peak_mapped_bytes),
            ];
            let expected = [self.in_use, self.free, self.in_use + self.free, self.peak];
            assert_eq!(found, expected, "after {step}: {self:?}");
            assert!(stats.reserved_bytes >= stats.mapped_bytes);
            let slabs_reserved = stats.reserved_bytes / SLAB as u64;
            assert!(stats.bookkeeping_bytes <= 16 * slabs_reserved + 16 * 4.max(slabs_reserved));
        }

        /// Gives free slabs back until the budget holds.
        fn shrink(&mut self) {
            while self.free > 0 && self.in_use + self.free > self.budget {
                self.free -= 1;
            }
        }

        fn allocate(&mut self) -> bool {
            if self.free > 0 {
                self.free -= 1;
            } else if self.in_use >= self.budget {
                return false;
            }
            self.in_use += 1;
            true
        }

        fn prepare(&mut self, count: u64) -> bool {
            let fits = self.in_use + count <= self.budget.max(self.in_use + self.free);
            if fits {
                self.free = self.free.max(count);
            }
            fits
        }
    }

    /// Does to both, at random, one of the operations that need no slab.
    fn change(arena: &Arena, naive: &mut Naive, random: &mut fastrand::Rng) -> &'static str {
        match random.u32(0..3) {
            0 => {
                let bytes = arena.give_back().expect("given back");
                assert_eq!(bytes, naive.free * SLAB as u64);
                naive.free = 0;
                "give back"
            }
            1 => {
                naive.budget = random.u64(0..24);
                // Not a whole number of slabs: the rest is of no use.
                let rest = random.u64(..SLAB as u64);
                let budget_bytes = naive.budget * SLAB as u64 + rest;
                arena.set_budget(budget_bytes).expect("set");
                naive.shrink();
                "set budget"
            }
            _ => {
                let count = random.u64(0..6);
                let prepared = arena.prepare(count * SLAB as u64).is_ok();
                assert_eq!(prepared, naive.prepare(count), "{count}: {naive:?}");
                "prepare"
            }
        }
    }

    #[test]
    fn accounting_equals_a_naive_model_under_random_operations() {
        let steps = if is_full() { 200_000 } else { 20_000 };
        let mut random = seeded(&format!("{steps} steps"), 1);
        let arena = arena(SLAB, 8);
        let mut naive = Naive {
            budget: 8,
            ..Naive::default()
        };
        let mut held: Vec<(u8, Slab)> = Vec::new();
        let mut refused = 0;
        for step in 0..steps {
            let operation = match random.u32(0..100) {
                0..50 => {
                    let slab = arena.allocate();
                    assert_eq!(slab.is_ok(), naive.allocate(), "step {step}");
                    match slab {
                        Ok(mut slab) => {
                            let mark = random.u8(..);
                            (slab[0], slab[SLAB - 1]) = (mark, mark);
                            held.push((mark, slab));
                        }
                        Err(_) => refused += 1,
                    }
                    "allocate"
                }
                50..90 if !held.is_empty() => {
                    let (mark, slab) = held.swap_remove(random.usize(..held.len()));
                    assert_eq!((slab[0], slab[SLAB - 1]), (mark, mark), "step {step}");
                    drop(slab);
                    naive.in_use -= 1;
                    naive.free += 1;
                    naive.shrink();
                    "drop"
                }
                _ => change(&arena, &mut naive, &mut random),
            };
            naive.check(&arena, operation);
        }
        println!("{refused} allocations refused");
        assert!(
            refused > steps / 100,
            "the budget was hardly tried: {refused}"
        );
    }

    /// Takes, marks, checks and drops slabs, and disturbs the arena now and then; returns how often
    /// it was refused.
    fn take_in_turns(arena: &Arena, mark: u8, rounds: u64) -> u64 {
        let mut refused = 0;
        for round in 0..rounds {
            let mut slab = loop {
                match arena.allocate() {
                    Ok(slab) => break slab,
                    Err(_) => refused += 1,
                }
                std::thread::yield_now();
            };
            for place in [0, SLAB / 2, SLAB - 1] {
                slab[place] = mark;
            }
            std::thread::yield_now();
            assert_eq!([slab[0], slab[SLAB / 2], slab[SLAB - 1]], [mark; 3]);
            drop(slab);
            match round % 16 {
                0 => drop(arena.give_back().expect("given back")),
                8 => arena
                    .set_budget(SLAB as u64 * (2 + round % 5))
                    .expect("set"),
                _ => {}
            }
        }
        refused
    }

    #[test]
    fn threads_never_share_a_slab() {
        let arena = arena(SLAB, 6);
        let rounds = 2_000;
        let refused: u64 = std::thread::scope(|scope| {
            let take = |mark| take_in_turns(&arena, mark, rounds);
            let workers: Vec<_> = (0..4).map(|mark| scope.spawn(move || take(mark))).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker"))
                .sum()
        });
        println!("4 threads took {rounds} slabs each and were refused {refused} times");
        assert_eq!(arena.stats().in_use_bytes, 0);
        arena.give_back().expect("given back");
        assert_eq!(arena.stats().mapped_bytes, 0);
    }
}
