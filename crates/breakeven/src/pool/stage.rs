//! Jobs of one kind: a ring in which they are queued, done, and taken out in order.
//!
//! A slot of the ring goes from empty to queued, running, done and back. Jobs start in the order of the ring, and
//! finish in any. For each queued job one entry stands in the pool's queue, or a worker is on its way with it. A worker
//! that finds the job already started goes away again.

#![deny(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};

use super::{Crew, Task, in_worker};

/// A job that was not taken.
pub enum Refused<J> {
    /// The ring is full; take a result first.
    Full(J),
    /// Nobody will take results any more: their receiver was dropped, or the process was forked.
    Closed(J),
}

impl<J> Refused<J> {
    /// Returns the job.
    pub fn into_job(self) -> J {
        match self {
            Refused::Full(job) | Refused::Closed(job) => job,
        }
    }
}

impl<J> fmt::Display for Refused<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refused::Full(_) => "the stage is full",
            Refused::Closed(_) => "nobody takes results of the stage any more",
        })
    }
}

impl<J> fmt::Debug for Refused<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<J> std::error::Error for Refused<J> {}

/// One kind of job, with its ring: jobs go in and results come out in the same order.
///
/// A stage is used by one thread at a time; [`Stage::split`] parts it for two. Dropping it drops
/// the jobs that have not started; those that run end by themselves.
pub struct Stage<J: Send + 'static, R: Send + 'static, W: Send + 'static> {
    submitter: Submitter<J, R, W>,
    results: Results<J, R, W>,
    outstanding: usize,
    /// Jobs that were under way when the process was forked, in the child.
    lost: usize,
}

impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> Stage<J, R, W> {
    pub(super) fn new(
        code: Arc<Code<J, R, W>>,
        crew: Option<Arc<Crew>>,
        capacity: usize,
    ) -> Stage<J, R, W> {
        let core = Arc::new(Core::new(code, crew, capacity));
        Stage {
            submitter: Submitter {
                core: Arc::clone(&core),
                workspace: None,
            },
            results: Results {
                core,
                workspace: None,
                has_failed: false,
            },
            outstanding: 0,
            lost: 0,
        }
    }

    /// Returns how many jobs the ring holds.
    pub fn capacity(&self) -> usize {
        self.results.core.capacity
    }

    /// Returns how many results are still to be taken.
    pub fn outstanding(&self) -> usize {
        self.outstanding + self.lost
    }

    /// Tells whether the next job would be refused.
    pub fn is_full(&self) -> bool {
        self.outstanding == self.capacity()
    }

    /// Queues a job, without waiting.
    ///
    /// # Errors
    ///
    /// [`Refused::Full`] with the job if no result was taken for as many jobs as the ring holds.
    pub fn submit(&mut self, job: J) -> std::result::Result<(), Refused<J>> {
        self.leave_parent();
        self.submitter.place(job)?;
        self.outstanding += 1;
        Ok(())
    }

    /// Returns the result of the oldest job not yet taken, waiting for it if need be. Nothing if there is no such job.
    ///
    /// The result is an error if the job returned one, if it panicked, or if it was lost in a fork.
    pub fn next_result(&mut self) -> Option<Result<R>> {
        self.leave_parent();
        if self.lost > 0 {
            self.lost -= 1;
            return Some(Err(lost_in_fork()));
        }
        if self.outstanding == 0 {
            return None;
        }
        self.outstanding -= 1;
        self.results.wait_for_head()
    }

    /// Returns the result of the oldest job not yet taken if it is there. Without workers this does
    /// the job.
    pub fn ready_result(&mut self) -> Option<Result<R>> {
        self.leave_parent();
        if self.lost > 0 {
            return self.next_result();
        }
        let result = self.results.take_ready()?;
        self.outstanding -= 1;
        Some(result)
    }

    /// Does all `jobs` and hands their results to `take`, in order, as they come.
    ///
    /// # Errors
    ///
    /// The first error that `take` returns; no more is then drawn from `jobs`, and the results of
    /// those already queued are dropped.
    ///
    /// # Panics
    ///
    /// If results of earlier jobs were not taken.
    pub fn run(
        &mut self,
        jobs: impl IntoIterator<Item = J>,
        mut take: impl FnMut(Result<R>) -> Result<()>,
    ) -> Result<()> {
        assert_eq!(self.outstanding(), 0, "results of earlier jobs are left");
        let mut verdict = jobs.into_iter().try_for_each(|job| {
            if self.is_full() {
                self.next_result().map_or(Ok(()), &mut take)?;
            }
            self.submit(job)
                .expect("room for one job in a stage of our own");
            while let Some(result) = self.ready_result() {
                take(result)?;
            }
            Ok(())
        });
        while let Some(result) = self.next_result() {
            if verdict.is_ok() {
                verdict = take(result);
            }
        }
        verdict
    }

    /// Parts the stage for a thread that submits and one that takes results.
    ///
    /// # Panics
    ///
    /// If results of earlier jobs were not taken.
    pub fn split(mut self) -> (Submitter<J, R, W>, Results<J, R, W>) {
        self.leave_parent();
        assert_eq!(self.outstanding(), 0, "results of earlier jobs are left");
        (self.submitter, self.results)
    }

    /// In a forked child, leaves the parent's ring alone and goes on with a new one, inline.
    fn leave_parent(&mut self) {
        if self.results.core.is_ours() {
            return;
        }
        let code = Arc::clone(&self.results.core.code);
        let lost = self.outstanding();
        *self = Stage::new(code, None, self.capacity());
        self.lost = lost;
    }
}

impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> fmt::Debug for Stage<J, R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Stage({} of {} jobs)",
            self.outstanding(),
            self.capacity()
        )
    }
}

/// The end of a stage where jobs go in.
pub struct Submitter<J: Send + 'static, R: Send + 'static, W: Send + 'static> {
    core: Arc<Core<J, R, W>>,
    workspace: Option<W>,
}

impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> Submitter<J, R, W> {
    /// Queues a job, waiting while the ring is full.
    ///
    /// # Errors
    ///
    /// [`Refused::Closed`] with the job once the [`Results`] were dropped, and in a forked child.
    pub fn submit(&mut self, job: J) -> std::result::Result<(), Refused<J>> {
        let mut refused = self.try_submit(job);
        while let Err(Refused::Full(job)) = refused {
            self.wait_for_room();
            refused = self.place(job);
        }
        refused
    }

    /// Queues a job, without waiting.
    ///
    /// # Errors
    ///
    /// [`Refused::Full`] or [`Refused::Closed`], with the job.
    pub fn try_submit(&mut self, job: J) -> std::result::Result<(), Refused<J>> {
        if !self.core.is_ours() {
            return Err(Refused::Closed(job));
        }
        self.place(job)
    }

    /// Queues a job in the process that made the stage.
    fn place(&mut self, job: J) -> std::result::Result<(), Refused<J>> {
        let core = &self.core;
        let mut ring = core.lock();
        if ring.results_gone {
            return Err(Refused::Closed(job));
        }
        if ring.is_full() {
            return Err(Refused::Full(job));
        }
        ring.push(job);
        let calls_worker = core.crew.is_some() && ring.tasks < ring.queued();
        ring.tasks += usize::from(calls_worker);
        // With workers a taker waits for a result, not for a job.
        let calls_taker = match ring.taker {
            Taker::Away => false,
            Taker::WaitsForWorker => core.has_no_workers(),
            Taker::WaitsAlone => true,
        };
        drop(ring);
        if calls_taker {
            core.head_changed.notify_one();
        }
        if let (true, Some(crew)) = (calls_worker, &core.crew) {
            let task: Arc<dyn Task> = Arc::<Core<J, R, W>>::clone(core);
            if !crew.enqueue(task) {
                // The pool closed in between: whoever waits for a worker waits no longer.
                core.wake();
            }
        }
        Ok(())
    }

    /// Waits until the ring is not full, or nobody takes results; does queued jobs meanwhile if no
    /// worker will.
    fn wait_for_room(&mut self) {
        let core = &self.core;
        let mut ring = core.lock();
        while ring.is_full() && !ring.results_gone {
            if ring.has_queued() && core.is_alone() {
                drop(ring);
                core.help(&mut self.workspace);
                ring = core.lock();
            } else {
                ring.submitter_waits = true;
                ring = core.room.wait(ring).unwrap_or_else(PoisonError::into_inner);
                ring.submitter_waits = false;
            }
        }
    }
}

impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> Drop for Submitter<J, R, W> {
    fn drop(&mut self) {
        if !self.core.is_ours() {
            return leave_behind(&self.core, self.workspace.take());
        }
        self.core.lock().submitter_gone = true;
        self.core.head_changed.notify_one();
        if let Some(crew) = &self.core.crew {
            crew.release_room(self.core.capacity);
        }
    }
}

/// The end of a stage where results come out, in the order of their jobs. It ends when the [`Submitter`] was dropped
/// and all results were taken.
pub struct Results<J: Send + 'static, R: Send + 'static, W: Send + 'static> {
    core: Arc<Core<J, R, W>>,
    workspace: Option<W>,
    /// The loss in a fork was reported.
    has_failed: bool,
}

impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> Results<J, R, W> {
    /// Returns the next result if it is there. Without workers this does the job.
    pub fn ready_result(&mut self) -> Option<Result<R>> {
        if self.core.is_ours() {
            self.take_ready()
        } else {
            self.fail_once()
        }
    }

    /// Takes the result at the head if it is done, or can be done here.
    fn take_ready(&mut self) -> Option<Result<R>> {
        let core = &self.core;
        let ring = core.lock();
        if ring.has_queued() && !ring.is_head_done() && core.is_alone() {
            drop(ring);
            core.help(&mut self.workspace);
            return core.take(core.lock());
        }
        core.take(ring)
    }

    /// Waits until the job at the head is done, and takes its result. Nothing once the submitter is gone and all is
    /// taken. Does queued jobs meanwhile if no worker will.
    fn wait_for_head(&mut self) -> Option<Result<R>> {
        let core = &self.core;
        let mut ring = core.lock();
        loop {
            if ring.is_head_done() {
                return core.take(ring);
            }
            if ring.is_empty() && ring.submitter_gone {
                return None;
            }
            let is_alone = core.is_alone();
            if ring.has_queued() && is_alone {
                drop(ring);
                core.help(&mut self.workspace);
                ring = core.lock();
            } else {
                ring.taker = if is_alone {
                    Taker::WaitsAlone
                } else {
                    Taker::WaitsForWorker
                };
                ring = core
                    .head_changed
                    .wait(ring)
                    .unwrap_or_else(PoisonError::into_inner);
                ring.taker = Taker::Away;
            }
        }
    }

    /// Reports the fork, then the end.
    fn fail_once(&mut self) -> Option<Result<R>> {
        let is_first = !std::mem::replace(&mut self.has_failed, true);
        is_first.then(|| Err(lost_in_fork()))
    }
}

impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> Iterator for Results<J, R, W> {
    type Item = Result<R>;

    /// Waits for the result of the oldest job not yet taken.
    fn next(&mut self) -> Option<Result<R>> {
        if self.core.is_ours() {
            self.wait_for_head()
        } else {
            self.fail_once()
        }
    }
}

impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> Drop for Results<J, R, W> {
    fn drop(&mut self) {
        if !self.core.is_ours() {
            return leave_behind(&self.core, self.workspace.take());
        }
        let left = self.core.lock().close();
        self.core.room.notify_one();
        // Outside the lock: a job may do anything when it is dropped.
        drop(left);
    }
}

/// Keeps the parent process's state from being dropped in a forked child: a lock in it may be held for ever.
fn leave_behind<J, R, W>(core: &Arc<Core<J, R, W>>, workspace: Option<W>) {
    std::mem::forget(Arc::clone(core));
    std::mem::forget(workspace);
}

fn lost_in_fork() -> Error {
    Error::Poisoned {
        what: "the job".to_string(),
        cause: "the process was forked while it was under way".to_string(),
    }
}

/// A worker's function for a job.
type Work<J, R, W> = dyn Fn(&mut W, J) -> Result<R> + Send + Sync;

/// The code of a stage's jobs.
pub(super) struct Code<J, R, W> {
    pub create: Box<dyn Fn() -> W + Send + Sync>,
    pub work: Box<Work<J, R, W>>,
}

impl<J, R, W> Code<J, R, W> {
    /// Does a job. After a panic the workspace is dropped, because nobody knows its state.
    fn run(&self, workspace: &mut Option<W>, job: J) -> Result<R> {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            (self.work)(workspace.get_or_insert_with(&self.create), job)
        }));
        outcome.unwrap_or_else(|panic| {
            let error = Error::Panicked {
                what: "job",
                message: message_of(panic.as_ref()),
            };
            let broken = workspace.take();
            let _ = catch_unwind(AssertUnwindSafe(move || drop((broken, panic))));
            Err(error)
        })
    }
}

/// Returns the message of a panic, if it has one.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_string()
}

/// The state that the two ends of a stage and the workers share.
struct Core<J, R, W> {
    code: Arc<Code<J, R, W>>,
    crew: Option<Arc<Crew>>,
    process: u32,
    capacity: usize,
    ring: Mutex<Ring<J, R>>,
    /// The taker waits here, until the head is done, is its own to do, or will never come.
    head_changed: Condvar,
    /// The submitter waits here, until there is room or nobody takes results.
    room: Condvar,
    /// Of each worker; its own alone.
    workspaces: Box<[Mutex<Option<W>>]>,
}

impl<J, R, W> Core<J, R, W> {
    fn new(code: Arc<Code<J, R, W>>, crew: Option<Arc<Crew>>, capacity: usize) -> Core<J, R, W> {
        let worker_count = crew.as_ref().map_or(0, |crew| crew.worker_count);
        Core {
            code,
            crew,
            process: std::process::id(),
            capacity,
            ring: Mutex::new(Ring::new(capacity)),
            head_changed: Condvar::new(),
            room: Condvar::new(),
            workspaces: (0..worker_count).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Tells whether this is the process that made the stage.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn has_no_workers(&self) -> bool {
        self.crew.as_ref().is_none_or(|crew| crew.is_closed())
    }

    /// Tells whether the thread that waits has to do the work itself.
    fn is_alone(&self) -> bool {
        self.has_no_workers() || in_worker()
    }

    fn lock(&self) -> MutexGuard<'_, Ring<J, R>> {
        // Nothing panics under this lock.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the result at the head, if it is done.
    fn take(&self, mut ring: MutexGuard<'_, Ring<J, R>>) -> Option<Result<R>> {
        let result = ring.take()?;
        let calls_submitter = ring.submitter_waits;
        drop(ring);
        // Waking costs a system call even if nobody sleeps, so it is asked for.
        if calls_submitter {
            self.room.notify_one();
        }
        Some(result)
    }

    /// Does the oldest queued job in this thread, if there is one.
    fn help(&self, workspace: &mut Option<W>) {
        let started = self.lock().start();
        if let Some((sequence, job)) = started {
            let result = self.code.run(workspace, job);
            self.finish(sequence, result);
        }
    }

    fn finish(&self, sequence: u64, result: Result<R>) {
        let mut ring = self.lock();
        let unwanted = ring.finish(sequence, result);
        let calls_taker = ring.taker != Taker::Away && ring.head == sequence;
        drop(ring);
        if calls_taker {
            self.head_changed.notify_one();
        }
        drop(unwanted);
    }
}

impl<J: Send, R: Send, W: Send> Task for Core<J, R, W> {
    fn run_one(&self, worker_index: usize) {
        let started = {
            let mut ring = self.lock();
            ring.tasks -= 1;
            ring.start()
        };
        let Some((sequence, job)) = started else {
            return;
        };
        let slot = &self.workspaces[worker_index];
        let result = {
            let mut workspace = slot.lock().unwrap_or_else(PoisonError::into_inner);
            self.code.run(&mut workspace, job)
        };
        self.finish(sequence, result);
    }

    fn wake(&self) {
        // A thread about to wait either has the lock, or sees the change made before this call.
        drop(self.lock());
        self.head_changed.notify_one();
        self.room.notify_one();
    }
}

/// Jobs by their sequence number, counted from the first: those in `head..start` run or are done,
/// those in `start..tail` are queued.
struct Ring<J, R> {
    slots: Box<[Slot<J, R>]>,
    head: u64,
    start: u64,
    tail: u64,
    /// Entries in the pool's queue, and workers on their way with one.
    tasks: usize,
    taker: Taker,
    submitter_waits: bool,
    submitter_gone: bool,
    results_gone: bool,
}

/// The activity of the thread that takes results.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taker {
    Away,
    /// For the head to be done by somebody else.
    WaitsForWorker,
    /// For the head to be done, or for a job to do itself.
    WaitsAlone,
}

enum Slot<J, R> {
    Empty,
    Queued(J),
    Running,
    Done(Result<R>),
}

impl<J, R> Ring<J, R> {
    fn new(capacity: usize) -> Ring<J, R> {
        Ring {
            slots: (0..capacity).map(|_| Slot::Empty).collect(),
            head: 0,
            start: 0,
            tail: 0,
            tasks: 0,
            taker: Taker::Away,
            submitter_waits: false,
            submitter_gone: false,
            results_gone: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    fn is_full(&self) -> bool {
        self.tail - self.head == self.slots.len() as u64
    }

    fn queued(&self) -> usize {
        (self.tail - self.start) as usize
    }

    fn has_queued(&self) -> bool {
        self.start < self.tail
    }

    fn is_head_done(&self) -> bool {
        let index = self.index(self.head);
        matches!(self.slots[index], Slot::Done(_))
    }

    fn index(&self, sequence: u64) -> usize {
        (sequence % self.slots.len() as u64) as usize
    }

    fn replace(&mut self, sequence: u64, slot: Slot<J, R>) -> Slot<J, R> {
        let index = self.index(sequence);
        std::mem::replace(&mut self.slots[index], slot)
    }

    fn push(&mut self, job: J) {
        let before = self.replace(self.tail, Slot::Queued(job));
        assert!(matches!(before, Slot::Empty), "a job in a slot in use");
        self.tail += 1;
    }

    /// Takes the oldest queued job to run it.
    fn start(&mut self) -> Option<(u64, J)> {
        if !self.has_queued() {
            return None;
        }
        let sequence = self.start;
        self.start += 1;
        match self.replace(sequence, Slot::Running) {
            Slot::Queued(job) => Some((sequence, job)),
            _ => unreachable!("a queued job without a job"),
        }
    }

    /// Puts a result in its place, or returns it if nobody will take it.
    fn finish(&mut self, sequence: u64, result: Result<R>) -> Option<Result<R>> {
        if self.results_gone {
            return Some(result);
        }
        let before = self.replace(sequence, Slot::Done(result));
        assert!(
            matches!(before, Slot::Running),
            "a result of a job that did not run"
        );
        None
    }

    /// Takes the oldest result, if it is there.
    fn take(&mut self) -> Option<Result<R>> {
        if !self.is_head_done() {
            return None;
        }
        match self.replace(self.head, Slot::Empty) {
            Slot::Done(result) => {
                self.head += 1;
                Some(result)
            }
            _ => unreachable!("a done job without a result"),
        }
    }

    /// Ends the taking of results, and returns what is left for dropping.
    fn close(&mut self) -> Box<[Slot<J, R>]> {
        self.results_gone = true;
        self.start = self.tail;
        std::mem::take(&mut self.slots)
    }
}

#[cfg(test)]
impl<J: Send + 'static, R: Send + 'static, W: Send + 'static> Stage<J, R, W> {
    /// Has a thread hold the lock of the ring until the sender is dropped.
    pub(super) fn hold_lock(&self) -> (std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>) {
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (tell_held, held) = std::sync::mpsc::channel();
        let core = Arc::clone(&self.results.core);
        let holder = std::thread::spawn(move || {
            let _ring = core.lock();
            let _ = tell_held.send(());
            let _ = released.recv();
        });
        held.recv().expect("the lock is held");
        (release, holder)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{is_full, seeded};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::super::{Pool, PoolOptions};
    use super::*;

    fn pool(worker_count: usize) -> Pool {
        Pool::new(PoolOptions { worker_count }).expect("a pool")
    }

    /// Some work, of a length that depends on the job, so that jobs do not finish in order.
    fn churn(job: u64) -> u64 {
        (0..job % 7 * 200).fold(job, |state, step| {
            std::hint::black_box(state ^ step.rotate_left(9))
        })
    }

    fn churned(_: &mut (), job: u64) -> Result<u64> {
        Ok(churn(job))
    }

    #[test]
    fn results_come_in_the_order_of_their_jobs() {
        for worker_count in [0, 1, 2, 5] {
            for capacity in [1, 2, 7] {
                let pool = pool(worker_count);
                let mut stage = pool.stage(capacity, || (), churned).expect("a stage");
                let mut found = Vec::new();
                let run = stage.run(0..500, |result| {
                    found.push(result?);
                    Ok(())
                });
                run.expect("all jobs");
                let expected: Vec<u64> = (0..500).map(churn).collect();
                assert_eq!(found, expected, "{worker_count} workers, {capacity} jobs");
            }
        }
    }

    #[test]
    fn the_first_error_of_the_taker_ends_a_run() {
        let pool = pool(2);
        let mut stage = pool.stage(4, || (), churned).expect("a stage");
        let (mut fed, mut taken) = (0, 0);
        let jobs = (0..1000).inspect(|_| fed += 1);
        let verdict = stage.run(jobs, |_| {
            taken += 1;
            if taken == 10 {
                Err(Error::Interrupted)
            } else {
                Ok(())
            }
        });
        assert!(matches!(verdict, Err(Error::Interrupted)));
        assert_eq!((taken, stage.outstanding()), (10, 0));
        assert!(fed <= 10 + 4, "{fed}");
    }

    #[test]
    fn a_full_ring_refuses_and_gives_the_job_back() {
        for worker_count in [0, 2] {
            let pool = pool(worker_count);
            let mut stage = pool.stage(3, || (), churned).expect("a stage");
            for job in 0..3 {
                assert!(!stage.is_full());
                stage.submit(job).expect("room");
            }
            assert!(stage.is_full());
            let refused = stage.submit(77).expect_err("full");
            assert_eq!(
                (refused.to_string().as_str(), refused.into_job()),
                ("the stage is full", 77)
            );
            assert_eq!(
                stage.next_result().expect("a job").expect("a result"),
                churn(0)
            );
            stage.submit(3).expect("room again");
            let rest: Vec<u64> = std::iter::from_fn(|| stage.next_result())
                .flatten()
                .collect();
            assert_eq!(rest, [churn(1), churn(2), churn(3)]);
            assert!(stage.next_result().is_none() && stage.ready_result().is_none());
        }
        assert!(pool(0).stage(0, || (), churned).is_err());
    }

    #[test]
    fn without_workers_the_waiting_thread_works() {
        let pool = pool(0);
        let here = thread::current().id();
        let mut stage = pool
            .stage(2, || (), |(), ()| Ok(thread::current().id()))
            .expect("a stage");
        stage.submit(()).expect("room");
        stage.submit(()).expect("room");
        assert_eq!(
            stage.ready_result().expect("done now").expect("a result"),
            here
        );
        assert_eq!(
            stage.next_result().expect("done now").expect("a result"),
            here
        );
    }

    #[test]
    fn a_panic_is_the_error_of_its_job_alone() {
        for worker_count in [0, 1, 3] {
            let created = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&created);
            let create = move || counted.fetch_add(1, Ordering::SeqCst);
            let work = |_: &mut usize, job: u64| match job % 10 {
                3 => panic!("job {job} on purpose"),
                6 => Err(Error::Interrupted),
                _ => Ok(job),
            };
            let pool = pool(worker_count);
            let mut stage = pool.stage(4, create, work).expect("a stage");
            let mut found = Vec::new();
            let run = stage.run(0..20, |result| {
                found.push(result.map_err(|error| error.to_string()));
                Ok(())
            });
            run.expect("a run");
            for (job, result) in found.iter().enumerate() {
                let expected = match job % 10 {
                    3 => Err(format!("job panicked: job {job} on purpose")),
                    6 => Err("interrupted".to_string()),
                    _ => Ok(job as u64),
                };
                assert_eq!(*result, expected);
            }
            assert_eq!(found.len(), 20);
            // A workspace for each thread that works, and a new one after each of two panics.
            let created = created.load(Ordering::SeqCst);
            assert!(
                (1 + 2..=worker_count.max(1) + 2).contains(&created),
                "{created}"
            );
        }
    }

    #[test]
    fn the_two_ends_may_live_in_two_threads() {
        for worker_count in [0, 1, 2] {
            let pool = pool(worker_count);
            let stage = pool.stage(3, || (), churned).expect("a stage");
            let (mut submitter, results) = stage.split();
            let found: Vec<u64> = thread::scope(|scope| {
                scope.spawn(move || {
                    (0..300).for_each(|job| submitter.submit(job).expect("a taker"));
                });
                results.map(|result| result.expect("a result")).collect()
            });
            let expected: Vec<u64> = (0..300).map(churn).collect();
            assert_eq!(found, expected, "{worker_count} workers");
        }
    }

    #[test]
    fn a_submitter_is_released_when_nobody_takes_results() {
        for worker_count in [0, 1] {
            let pool = pool(worker_count);
            let stage = pool.stage(2, || (), churned).expect("a stage");
            let (mut submitter, mut results) = stage.split();
            thread::scope(|scope| {
                let submitting = scope.spawn(move || {
                    let mut submitted = 0;
                    while submitter.submit(submitted).is_ok() {
                        submitted += 1;
                    }
                    (
                        submitted,
                        submitter.try_submit(0).expect_err("closed").to_string(),
                    )
                });
                for _ in 0..20 {
                    results.next().expect("a job").expect("a result");
                }
                drop(results);
                let (submitted, reason) = submitting.join().expect("no panic");
                assert!((20..=22).contains(&submitted), "{submitted}");
                assert!(reason.contains("nobody takes"), "{reason}");
            });
        }
    }

    #[test]
    fn dropping_a_stage_drops_the_jobs_that_have_not_started() {
        let pool = pool(1);
        let (release, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (tell_started, started) = mpsc::channel();
        let tell_started = Mutex::new(tell_started);
        let work = move |(): &mut (), job: Arc<u32>| {
            let _ = tell_started.lock().map(|tell| tell.send(()));
            let _ = gate.lock().map(|gate| gate.recv());
            Ok(job)
        };
        let mut stage = pool.stage(4, || (), work).expect("a stage");
        let jobs: Vec<Arc<u32>> = (0..4).map(Arc::new).collect();
        for job in &jobs {
            stage.submit(Arc::clone(job)).expect("room");
        }
        started.recv().expect("the first job runs");
        drop(stage);
        let holders = || jobs.iter().map(Arc::strong_count).collect::<Vec<_>>();
        assert_eq!(holders(), [2, 1, 1, 1]);
        release.send(()).expect("the job waits");
        drop(pool);
        assert_eq!(holders(), [1, 1, 1, 1]);
    }

    #[test]
    fn a_job_may_use_stages_itself() {
        // With one worker nobody else could do the inner jobs.
        for worker_count in [0, 1, 2] {
            let pool = Arc::new(pool(worker_count));
            let inner = pool.stage(2, || (), churned).expect("a stage");
            let (submitter, results) = pool.stage(1, || (), churned).expect("a stage").split();
            let shared = Mutex::new((inner, submitter, results));
            let crew = Arc::clone(&pool);
            let work = move |(): &mut (), job: u64| {
                let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (old, submitter, results) = &mut *shared;
                let mut sum = 0;
                let mut add = |result: Result<u64>| result.map(|value| sum += value);
                old.run(0..5, &mut add)?;
                let mut new = crew.stage(2, || (), churned)?;
                new.run(0..5, &mut add)?;
                submitter.submit(job).expect("room");
                add(results.next().expect("a job"))?;
                Ok(sum)
            };
            let mut outer = pool.stage(3, || (), work).expect("a stage");
            let inner_sum: u64 = (0..5).map(churn).sum();
            let mut next = 0;
            let run = outer.run(0..20, |sum| {
                assert_eq!(sum?, 2 * inner_sum + churn(next));
                next += 1;
                Ok(())
            });
            run.expect("all jobs");
            assert_eq!(next, 20);
        }
    }

    #[test]
    fn a_worker_held_up_by_a_full_stage_does_its_jobs() {
        // The only worker feeds a stage whose results another thread takes.
        let pool = pool(1);
        let (submitter, results) = pool.stage(2, || (), churned).expect("a stage").split();
        let submitter = Mutex::new(Some(submitter));
        let feed = move |(): &mut (), ()| {
            let mut submitter = submitter
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            let submitter = submitter.as_mut().expect("one feeding job");
            (0..100).for_each(|job| submitter.submit(job).expect("a taker"));
            Ok(())
        };
        let mut feeding = pool.stage(1, || (), feed).expect("a stage");
        feeding.submit(()).expect("room");
        let found: Vec<u64> = results.map(|result| result.expect("a result")).collect();
        let expected: Vec<u64> = (0..100).map(churn).collect();
        assert_eq!(found, expected);
        feeding.next_result().expect("the job").expect("fed");
    }

    #[test]
    fn stages_that_share_a_pool_equal_plain_queues_under_random_use() {
        let steps = if is_full() { 200_000 } else { 20_000 };
        let mut random = seeded(&format!("{steps} steps"), 1);
        let mut done = 0;
        for worker_count in [0, 1, 3] {
            let pool = pool(worker_count);
            let mut stages: Vec<_> = [1, 3, 8]
                .map(|capacity| {
                    (
                        pool.stage(capacity, || (), churned).expect("a stage"),
                        capacity,
                    )
                })
                .map(|(stage, capacity)| (stage, capacity, std::collections::VecDeque::new()))
                .into();
            for step in 0..steps / 3 {
                let stage_index = random.usize(..3);
                let (stage, capacity, naive) = &mut stages[stage_index];
                assert_eq!(stage.is_full(), naive.len() == *capacity, "step {step}");
                if random.u32(..100) < 55 {
                    let job = random.u64(..1000);
                    let submitted = stage.submit(job).is_ok();
                    assert_eq!(submitted, naive.len() < *capacity, "step {step}");
                    naive.extend(submitted.then(|| churn(job)));
                } else {
                    let is_ready = random.bool();
                    let result = if is_ready {
                        stage.ready_result()
                    } else {
                        stage.next_result()
                    };
                    let result = result.map(|result| result.expect("a result"));
                    let may_be_late = is_ready && worker_count > 0;
                    if result.is_some() || !may_be_late {
                        assert_eq!(result, naive.pop_front(), "step {step}");
                        done += usize::from(result.is_some());
                    }
                }
                assert_eq!(stage.outstanding(), naive.len());
            }
        }
        println!("{done} jobs done");
        assert!(done > steps / 4, "only {done} jobs in {steps} steps");
    }
}
