//! A scheduler for tests. It runs one thread at a time, and switches where they synchronise, in an order given by a
//! seed.
//!
//! [`explore`] runs a scene of several tasks under many orders. The next task is drawn at random among those that can
//! go on: at each lock, wait and end, and where a task calls [`switch`]. A failing order runs again by its seed. Tasks
//! that all wait are a deadlock, which fails.
//!
//! Tasks are real threads that hand a baton on, so they run the same code as without it, except for these locks. Memory
//! orders other than sequential are not explored, and atomics are no place to switch. The machine orders the atomics of
//! charged bytes, of benches, and of a loan that a guard gives back without the lock (`arena/loan.rs`). Two crates
//! explore them, but shuttle brings a second `getrandom`, which the bans refuse, and loom some twenty crates. The
//! loans' orders are argued in their own file, and not proved.
#![deny(unsafe_code)]

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, PoisonError, TryLockError};
pub(super) use std::thread::ThreadId;

use crate::testing::seed;

/// The state of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Ready,
    /// Until the lock or condition at this address is free.
    Blocked(usize),
    Over,
}

struct Baton {
    tasks: Vec<Task>,
    running: usize,
    random: fastrand::Rng,
    switches: u64,
    is_deadlock: bool,
}

struct Scheduler {
    baton: std::sync::Mutex<Baton>,
    passed: std::sync::Condvar,
}

thread_local! {
    static TASK: RefCell<Option<(Arc<Scheduler>, usize)>> = const { RefCell::new(None) };
}

impl Scheduler {
    fn baton(&self) -> std::sync::MutexGuard<'_, Baton> {
        self.baton.lock().expect("no panic under the baton")
    }

    /// Records the fate of this task, passes the baton on, and waits until it comes back.
    fn pass(&self, me: usize, task: Task) {
        let mut baton = self.baton();
        baton.tasks[me] = task;
        baton.switches += 1;
        let ready = |baton: &Baton| -> Vec<usize> {
            let tasks = 0..baton.tasks.len();
            tasks
                .filter(|&task| baton.tasks[task] == Task::Ready)
                .collect()
        };
        let ready = ready(&baton);
        if ready.is_empty() {
            baton.is_deadlock = baton.tasks.iter().any(|task| *task != Task::Over);
        } else {
            let choice = baton.random.usize(..ready.len());
            baton.running = ready[choice];
        }
        self.passed.notify_all();
        if task != Task::Over {
            drop(self.await_baton(baton, me));
        }
    }

    fn await_baton<'a>(
        &'a self,
        mut baton: std::sync::MutexGuard<'a, Baton>,
        me: usize,
    ) -> std::sync::MutexGuard<'a, Baton> {
        while baton.running != me || baton.tasks[me] != Task::Ready {
            if baton.is_deadlock {
                drop(baton);
                resume_unwind(Box::new("deadlock".to_string()));
            }
            baton = self.passed.wait(baton).expect("no panic under the baton");
        }
        baton
    }

    /// Frees all tasks that waited at this address.
    fn free(&self, address: usize) {
        for task in &mut self.baton().tasks {
            if *task == Task::Blocked(address) {
                *task = Task::Ready;
            }
        }
    }
}

/// Calls `work` with the scheduler of this thread, if it has one. A task that unwinds lets the others go
/// on and takes locks as it can.
fn scheduled<T>(work: impl FnOnce(&Scheduler, usize) -> T) -> Option<T> {
    if std::thread::panicking() {
        return None;
    }
    let task = TASK.with(|task| task.borrow().clone());
    task.map(|(scheduler, me)| work(&scheduler, me))
}

/// Lets another task go on, if this one is scheduled.
pub(super) fn switch() {
    scheduled(|scheduler, me| scheduler.pass(me, Task::Ready));
}

/// Lets others go on, scheduled or not.
pub(super) fn let_others() {
    switch();
    std::thread::yield_now();
}

pub(super) fn current() -> ThreadId {
    std::thread::current().id()
}

/// A lock that takes part in the schedule.
#[derive(Default)]
pub(super) struct Mutex<T>(std::sync::Mutex<T>);

/// The holder of a [`Mutex`].
pub(super) struct Guard<'a, T> {
    inner: Option<std::sync::MutexGuard<'a, T>>,
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> Guard<'_, T> {
        let guard = self.lock_even_poisoned();
        assert!(!self.is_poisoned(), "no panic under a lock");
        guard
    }

    pub fn lock_even_poisoned(&self) -> Guard<'_, T> {
        switch();
        let inner = scheduled(|scheduler, me| {
            loop {
                match self.0.try_lock() {
                    Ok(inner) => return inner,
                    Err(TryLockError::WouldBlock) => {}
                    Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                }
                scheduler.pass(me, Task::Blocked(self.address()));
            }
        });
        let wait = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Guard {
            inner: Some(inner.unwrap_or_else(wait)),
            mutex: self,
        }
    }

    pub fn is_poisoned(&self) -> bool {
        self.0.is_poisoned()
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        if self.inner.take().is_some() {
            scheduled(|scheduler, _| scheduler.free(self.mutex.address()));
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_deref().expect("held until it is dropped")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_deref_mut().expect("held until it is dropped")
    }
}

/// A condition that takes part in the schedule.
pub(super) struct Condvar(std::sync::Condvar);

impl Condvar {
    pub fn new() -> Condvar {
        Condvar(std::sync::Condvar::new())
    }

    pub fn wait<'a, T>(&self, mut guard: Guard<'a, T>) -> Guard<'a, T> {
        let mutex = guard.mutex;
        let inner = guard.inner.take().expect("held");
        let is_scheduled = TASK.with(|task| task.borrow().is_some());
        if !is_scheduled {
            guard.inner = Some(self.0.wait(inner).expect("no panic under a lock"));
            return guard;
        }
        drop(inner);
        // No other task runs between these two.
        scheduled(|scheduler, me| {
            scheduler.free(mutex.address());
            scheduler.pass(me, Task::Blocked(self.address()));
        });
        mutex.lock()
    }

    pub fn notify_all(&self) {
        scheduled(|scheduler, _| scheduler.free(self.address()));
        self.0.notify_all();
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

type Scene = Vec<Box<dyn FnOnce() + Send>>;

/// Runs one scene in one order; returns how often the baton was passed.
fn run(scene: Scene, seed: u64) -> Result<u64, String> {
    let scheduler = Arc::new(Scheduler {
        baton: std::sync::Mutex::new(Baton {
            tasks: vec![Task::Ready; scene.len()],
            running: 0,
            random: fastrand::Rng::with_seed(seed),
            switches: 0,
            is_deadlock: false,
        }),
        passed: std::sync::Condvar::new(),
    });
    let threads: Vec<_> = scene
        .into_iter()
        .enumerate()
        .map(|(me, work)| {
            let scheduler = Arc::clone(&scheduler);
            std::thread::spawn(move || {
                drop(scheduler.await_baton(scheduler.baton(), me));
                TASK.set(Some((Arc::clone(&scheduler), me)));
                let result = catch_unwind(AssertUnwindSafe(|| {
                    switch();
                    work();
                }));
                TASK.set(None);
                scheduler.pass(me, Task::Over);
                result
            })
        })
        .collect();
    let mut fault = None;
    for thread in threads {
        let result = thread.join().and_then(|result| result);
        fault = result.err().or(fault);
    }
    if let Some(fault) = fault {
        return Err(crate::pool::message_of(fault.as_ref()));
    }
    let switches = scheduler.baton().switches;
    Ok(switches)
}

/// Runs a scene, a new one each time, under `orders` orders.
///
/// # Panics
///
/// With the order's own seed, if one fails.
pub(super) fn explore(name: &str, orders: u64, mut scene: impl FnMut() -> Scene) {
    let first = seed(1);
    let mut switches = 0;
    for order in 0..orders {
        let seed = first.wrapping_add(order);
        let found = run(scene(), seed);
        switches += found.unwrap_or_else(|fault| panic!("{name}, BREAKEVEN_SEED={seed}: {fault}"));
    }
    println!("{name}: {orders} orders, {switches} switches");
    assert!(switches > 10 * orders, "{name} hardly switched");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tasks that read, let others go on, and write: the test must find the lost update.
    fn losing() -> (Scene, Arc<Mutex<u32>>) {
        let count = Arc::new(Mutex::new(0));
        let task = |count: Arc<Mutex<u32>>| -> Box<dyn FnOnce() + Send> {
            Box::new(move || {
                let found = *count.lock();
                *count.lock() = found + 1;
            })
        };
        let scene = vec![task(Arc::clone(&count)), task(Arc::clone(&count))];
        (scene, count)
    }

    #[test]
    fn both_orders_of_a_race_are_found() {
        let mut found = [0; 3];
        for order in 0..200 {
            let (scene, count) = losing();
            run(scene, order).expect("no fault");
            found[*count.lock() as usize] += 1;
        }
        println!("{found:?} ended at 0, 1 and 2");
        assert!(found[0] == 0 && found[1] > 20 && found[2] > 20);
    }

    #[test]
    fn a_deadlock_is_found_and_not_waited_for() {
        let mut found = 0;
        for order in 0..50 {
            let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
            let task = |first: usize| -> Box<dyn FnOnce() + Send> {
                let locks = Arc::clone(&locks);
                Box::new(move || {
                    let _first = locks[first].lock();
                    let _second = locks[1 - first].lock();
                })
            };
            found += u32::from(run(vec![task(0), task(1)], order).is_err());
        }
        println!("{found} of 50 orders are a deadlock");
        assert!((5..45).contains(&found));
    }

    #[test]
    fn the_same_seed_is_the_same_order() {
        let outcomes = |seed| {
            let (scene, count) = losing();
            let switches = run(scene, seed).expect("no fault");
            (switches, *count.lock())
        };
        for seed in 0..20 {
            assert_eq!(outcomes(seed), outcomes(seed));
        }
    }
}
