//! Locks of the concurrent cache: the standard library's, which tests can put under a scheduler.
//!
//! The only user code under these locks hashes and compares keys. So a poisoned one means that a key panicked there, or
//! a bug here. Later calls panic too. Only destructors take a poisoned lock, to save unwritten blocks.
#![deny(unsafe_code)]

#[cfg(not(test))]
pub(super) use system::{Condvar, Guard, Mutex, ThreadId, current, let_others};

#[cfg(test)]
pub(super) use super::explore_test::{Condvar, Guard, Mutex, ThreadId, current, let_others};

#[cfg(not(test))]
mod system {
    use std::sync::{MutexGuard as StandardGuard, PoisonError};
    pub use std::thread::ThreadId;

    pub type Guard<'a, T> = StandardGuard<'a, T>;

    #[derive(Default)]
    pub struct Mutex<T>(std::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(std::sync::Mutex::new(value))
        }

        #[inline]
        pub fn lock(&self) -> Guard<'_, T> {
            self.0.lock().expect("no panic under a lock of the cache")
        }

        pub fn lock_even_poisoned(&self) -> Guard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        /// Returns whether a thread panicked under the lock; for its holder the answer does not change.
        pub fn is_poisoned(&self) -> bool {
            self.0.is_poisoned()
        }
    }

    pub struct Condvar(std::sync::Condvar);

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(std::sync::Condvar::new())
        }

        pub fn wait<'a, T>(&self, guard: Guard<'a, T>) -> Guard<'a, T> {
            let guard = self.0.wait(guard);
            guard.expect("no panic under a lock of the cache")
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    pub fn current() -> ThreadId {
        std::thread::current().id()
    }

    /// Lets other threads go on, for waits without a lock.
    pub fn let_others() {
        std::thread::yield_now();
    }
}
