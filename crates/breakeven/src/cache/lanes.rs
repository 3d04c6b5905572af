//! A readers' lock; readers on several threads write no cache line in common.
//!
//! [`Lanes`] has a few lanes, each on cache lines of its own. The holder of one lane may read the value, and the holder
//! of all lanes may change it. Linux 2.4 had this as its "big reader" lock. Reading takes one locked instruction, on a
//! line that mostly no other core has, and leaving takes none. A change takes one for each lane beside those of a
//! mutex. The lock suits many readers that stay for some ten nanoseconds each. A writer spins until they have left, and
//! a reader must take the whole lock while it is held.
//!
//! `unsafe` stands here for the value, which is shared while a lane is held and exclusive while all are. It also stands
//! for the right to lend by a lane, which goes with the lane.
#![allow(unsafe_code)]

use std::cell::{Cell, UnsafeCell};
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::sync::{self, Mutex};
use crate::arena::{LANES, LaneRight};

/// Nobody has the lane.
const FREE: u32 = 0;
/// A reader has it.
const READ: u32 = 1;
/// The lane belongs to the holder of all of them.
const OWNED: u32 = 2;
/// A holder of all lanes panicked: no reader gets the value any more.
const POISONED: u32 = 3;
/// How often a reader looks for a free lane, while others only read, before it takes the whole lock.
const LOOKS: usize = 32;
/// How often a writer looks at a lane before it lets other threads run.
const SPINS: usize = 64;

/// A value behind lanes.
pub(super) struct Lanes<T> {
    lanes: [Lane; LANES],
    /// Held by the holder, or next holder, of all lanes.
    owner: Mutex<()>,
    value: UnsafeCell<T>,
}

/// Two cache lines, since processors fetch them in pairs.
#[repr(align(128))]
struct Lane(AtomicU32);

// SAFETY: the holder of the lock has the value, from one thread after another, and readers share it in between.
unsafe impl<T: Send> Send for Lanes<T> {}
// SAFETY: readers on several threads have `&T` at once, which needs `Sync`, and the holder of all lanes has `&mut T`,
// which needs `Send`.
unsafe impl<T: Send + Sync> Sync for Lanes<T> {}
// As for a mutex: a panic under the whole lock poisons it, and readers change nothing.
impl<T> UnwindSafe for Lanes<T> {}
impl<T> RefUnwindSafe for Lanes<T> {}

/// A reader of the value, by one lane.
pub(super) struct Entered<'a, T> {
    lanes: &'a Lanes<T>,
    lane: &'a Lane,
    right: LaneRight,
}

/// The holder of all lanes.
pub(super) struct Guard<'a, T> {
    lanes: &'a Lanes<T>,
    /// `None` after its release.
    owner: Option<sync::Guard<'a, ()>>,
}

/// The part of a value that only the holder of all lanes uses.
pub(super) struct Alone<T>(T);

// SAFETY: a shared one gives nothing of its value.
unsafe impl<T: Send> Sync for Alone<T> {}

impl<T> Alone<T> {
    pub fn new(value: T) -> Alone<T> {
        Alone(value)
    }

    pub fn get(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Lanes<T> {
    pub fn new(value: T) -> Lanes<T> {
        Lanes {
            lanes: std::array::from_fn(|_| Lane(AtomicU32::new(FREE))),
            owner: Mutex::new(()),
            value: UnsafeCell::new(value),
        }
    }

    /// Lets a reader in, by this thread's lane if it is free. `None` if the whole lock is held, or the lanes are all in
    /// use.
    #[inline(always)]
    pub fn enter(&self) -> Option<Entered<'_, T>> {
        #[cfg(test)]
        super::explore_test::switch();
        let own = own_lane();
        let number = match self.lanes[own].take(FREE, READ) {
            true => own,
            false => self.enter_elsewhere(own)?,
        };
        Some(Entered {
            lanes: self,
            lane: &self.lanes[number],
            // SAFETY: the lane was free and now is this reader's until it leaves. The holder of all lanes has this one
            // too, so no other right of this lane exists for this lock. A lock lends only slabs of its own value.
            right: unsafe { LaneRight::new(number) },
        })
    }

    #[cold]
    fn enter_elsewhere(&self, own: usize) -> Option<usize> {
        for _ in 0..LOOKS {
            for number in (0..LANES).map(|further| (own + further) % LANES) {
                let lane = &self.lanes[number];
                match lane.0.load(Ordering::Relaxed) {
                    FREE if lane.take(FREE, READ) => return Some(number),
                    OWNED | POISONED => return None,
                    _ => std::hint::spin_loop(),
                }
            }
        }
        None
    }

    /// Waits for the whole lock.
    ///
    /// # Panics
    ///
    /// If an earlier holder panicked.
    pub fn lock(&self) -> Guard<'_, T> {
        let owner = self.owner.lock();
        self.own(owner)
    }

    pub fn lock_even_poisoned(&self) -> Guard<'_, T> {
        let owner = self.owner.lock_even_poisoned();
        self.own(owner)
    }

    fn own<'a>(&'a self, owner: sync::Guard<'a, ()>) -> Guard<'a, T> {
        for lane in &self.lanes {
            let mut spins = 0;
            while !lane.take(FREE, OWNED) && !lane.take(POISONED, OWNED) {
                spins += 1;
                match spins < SPINS {
                    true => std::hint::spin_loop(),
                    // The reader may wait for this processor.
                    false => sync::let_others(),
                }
            }
        }
        Guard {
            lanes: self,
            owner: Some(owner),
        }
    }

    /// Returns whether a holder of the whole lock panicked; for the present holder the answer does not change.
    pub fn is_poisoned(&self) -> bool {
        self.owner.is_poisoned()
    }
}

impl Lane {
    #[inline(always)]
    fn take(&self, from: u32, to: u32) -> bool {
        let taken = self
            .0
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }
}

impl<T> Entered<'_, T> {
    /// Returns the value, with the right to lend by this lane.
    #[inline(always)]
    pub fn parts(&mut self) -> (&T, &mut LaneRight) {
        // SAFETY: a lane is held, so nobody has all of them: the value is only shared.
        let value = unsafe { &*self.lanes.value.get() };
        (value, &mut self.right)
    }
}

impl<T> Drop for Entered<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lane.0.store(FREE, Ordering::Release);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: all lanes are held, so nobody else has the value.
        unsafe { &*self.lanes.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: all lanes are held, so nobody else has the value, and `&mut self` excludes the holder's own
        // other borrows.
        unsafe { &mut *self.lanes.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // This goes first, because it notes a panic; the next holder waits for the lanes.
        drop(self.owner.take());
        let word = match self.lanes.is_poisoned() {
            true => POISONED,
            false => FREE,
        };
        for lane in &self.lanes.lanes {
            lane.0.store(word, Ordering::Release);
        }
    }
}

/// Returns this thread's lane, if it is free: threads get lanes in the order of their first reads.
#[inline(always)]
fn own_lane() -> usize {
    thread_local! {
        static LANE: Cell<usize> = const { Cell::new(LANES) };
    }
    let lane = LANE.get();
    if lane < LANES {
        return lane;
    }
    let lane = next_lane();
    LANE.set(lane);
    lane
}

#[cold]
fn next_lane() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed) % LANES
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    use super::super::explore_test::{explore, switch};
    use super::*;

    /// Returns both halves of a value, with a chance for other threads in between.
    fn read(lanes: &Lanes<[u64; 2]>) -> Option<[u64; 2]> {
        let mut entered = lanes.enter()?;
        let first = entered.parts().0[0];
        switch();
        Some([first, entered.parts().0[1]])
    }

    fn change(lanes: &Lanes<[u64; 2]>) {
        let mut value = lanes.lock();
        value[0] += 1;
        switch();
        value[1] += 1;
    }

    #[test]
    fn nobody_reads_what_is_being_changed_in_any_order() {
        let found = Arc::new([const { AtomicUsize::new(0) }; 3]);
        explore("lanes", 500, || {
            let lanes = Arc::new(Lanes::new([0; 2]));
            let task = |is_reader: bool| -> Box<dyn FnOnce() + Send> {
                let (lanes, found) = (Arc::clone(&lanes), Arc::clone(&found));
                Box::new(move || {
                    for _ in 0..4 {
                        if !is_reader {
                            change(&lanes);
                            continue;
                        }
                        let seen = read(&lanes);
                        let [one, other] = seen.unwrap_or_default();
                        assert_eq!(one, other);
                        let kind = seen.map_or(0, |seen| 1 + usize::from(seen[0] > 0));
                        found[kind].fetch_add(1, Ordering::Relaxed);
                        switch();
                    }
                    let [one, other] = *lanes.lock();
                    assert_eq!(one, other);
                })
            };
            vec![task(true), task(true), task(true), task(false), task(false)]
        });
        let found = found.each_ref().map(|it| it.load(Ordering::Relaxed));
        println!("{found:?} refused, before a change, after one");
        assert!(found.iter().all(|count| *count > 20), "{found:?}");
    }

    #[test]
    fn threads_change_and_read_one_value() {
        let lanes = Lanes::new([0; 2]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        change(&lanes);
                        let [one, other] = read(&lanes).unwrap_or_default();
                        assert_eq!(one, other);
                    }
                });
            }
        });
        assert_eq!(*lanes.lock(), [2000; 2]);
        assert_eq!(read(&lanes), Some([2000; 2]));
    }

    #[test]
    fn readers_have_lanes_of_their_own_and_the_whole_lock_keeps_them_out() {
        let lanes = Lanes::new(());
        let mut readers: Vec<_> = (0..LANES).map(|_| lanes.enter().expect("a lane")).collect();
        let rights = readers.iter_mut().map(|it| it.parts().1.lane());
        let mut rights: Vec<usize> = rights.collect();
        rights.sort_unstable();
        assert_eq!(rights, Vec::from_iter(0..LANES));
        assert!(lanes.enter().is_none(), "no lane is left");
        readers.pop();
        assert!(lanes.enter().is_some());
        drop(readers);
        let whole = lanes.lock();
        assert!(lanes.enter().is_none());
        drop(whole);
        assert!(lanes.enter().is_some());
    }

    #[test]
    fn a_panic_under_the_whole_lock_keeps_everybody_out() {
        let lanes = Lanes::new(1);
        let panics = |work: &dyn Fn()| catch_unwind(AssertUnwindSafe(work)).is_err();
        assert!(panics(&|| {
            let _entered = lanes.enter();
            panic!("a reader");
        }));
        assert!(lanes.enter().is_some() && !lanes.is_poisoned());
        assert!(panics(&|| {
            let _whole = lanes.lock();
            panic!("the owner");
        }));
        assert!(lanes.is_poisoned() && lanes.enter().is_none());
        assert!(panics(&|| drop(lanes.lock())));
        assert_eq!(*lanes.lock_even_poisoned(), 1);
        assert!(lanes.enter().is_none(), "it stays so");
    }
}
