//! A bounded crew of worker threads, owned by whoever starts it.
//!
//! A [`Pool`] is some threads. A [`Stage`] is one kind of job for them: a function with a workspace, created once for
//! each worker, and a ring of a fixed number of jobs. Jobs are owned values, started in the order they were submitted,
//! and their results come out in that order. A full ring refuses, or makes a [`Submitter`] wait. A worker's thread
//! starts when more jobs wait than workers; beside that, submitting allocates nothing. One pool serves any number of
//! stages, first come first served.
//!
//! A job that panics is an error in the place of its result, and its worker goes on with a new workspace. Every wait
//! ends: a running job ends, and where no worker can come, the waiting thread does the work. That is so in a pool
//! without workers (one processor), and where the system starts no thread. It is so after the pool was dropped, and
//! inside a job that uses a stage itself. It is so in a forked child, which has the parent's memory but not its
//! threads. There neither threads nor locks of the parent are touched, jobs that were under way are reported as lost,
//! and new ones run inline.
//!
//! The pool keeps no clock and no priorities, and does not bind threads to processors. `unsafe`
//! stands only in the test that forks.

#![deny(unsafe_code)]

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::error::{Error, Result};

mod stage;

use stage::Code;
pub(crate) use stage::message_of;
pub use stage::{Refused, Results, Stage, Submitter};

const WORKER_COUNT_MAX: usize = 1024;

/// How a pool is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Threads, at most 1,024; with 0, jobs run in the thread that waits for them. Default: one for
    /// each processor this process may use, none if that is one.
    pub worker_count: usize,
}

impl Default for PoolOptions {
    fn default() -> PoolOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        PoolOptions {
            worker_count: if processors > 1 {
                processors.min(WORKER_COUNT_MAX)
            } else {
                0
            },
        }
    }
}

/// Worker threads. Dropping the pool waits for the running jobs and ends the threads. Jobs still queued then run in the
/// threads that wait for them.
///
/// # Example
///
/// ```
/// use breakeven::pool::{Pool, PoolOptions};
///
/// let pool = Pool::new(PoolOptions { worker_count: 2 })?;
/// let square = |scratch: &mut Vec<u64>, job: u64| {
///     scratch.push(job);
///     Ok(job * job)
/// };
/// let mut stage = pool.stage(4, Vec::new, square)?;
/// let mut squares = Vec::new();
/// stage.run(0..10, |square| Ok(squares.push(square?)))?;
/// assert_eq!(squares[9], 81);
/// # Ok::<(), breakeven::Error>(())
/// ```
pub struct Pool {
    crew: Arc<Crew>,
}

impl Pool {
    /// Makes a pool, whose threads start with their first jobs.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for more than 1,024 workers.
    pub fn new(options: PoolOptions) -> Result<Pool> {
        if options.worker_count > WORKER_COUNT_MAX {
            return Err(Error::invalid(
                "worker count",
                format!("{} is more than {WORKER_COUNT_MAX}", options.worker_count),
            ));
        }
        Ok(Pool {
            crew: Arc::new(Crew {
                worker_count: options.worker_count,
                process: std::process::id(),
                is_closed: AtomicBool::new(false),
                queue: Mutex::new(Queue::default()),
                work: Condvar::new(),
            }),
        })
    }

    /// Returns how many workers there are for this process: none in a forked child.
    pub fn worker_count(&self) -> usize {
        if self.crew.is_ours() {
            self.crew.worker_count
        } else {
            0
        }
    }

    /// Makes a stage: a ring of `capacity` jobs, each done by `work` with a workspace that `create`
    /// makes once for each worker.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a capacity of 0.
    ///
    /// # Cost
    ///
    /// Memory for `capacity` jobs or results, and a workspace for each worker that got a job; one more where the
    /// waiting thread works. Handing a job over takes some microseconds: 4 to 10 where a sleeping thread must be woken,
    /// below 1 without workers. So a job should take 50 or more, and small blocks go several to a job. With twice as
    /// many places as workers, none of them is idle while results are taken.
    pub fn stage<J: Send + 'static, R: Send + 'static, W: Send + 'static>(
        &self,
        capacity: usize,
        create: impl Fn() -> W + Send + Sync + 'static,
        work: impl Fn(&mut W, J) -> Result<R> + Send + Sync + 'static,
    ) -> Result<Stage<J, R, W>> {
        if capacity == 0 {
            return Err(Error::invalid("capacity of a stage", "0 jobs"));
        }
        let code = Arc::new(Code {
            create: Box::new(create),
            work: Box::new(work),
        });
        // In a worker there may be no other to do the work, so it stays where it is.
        let has_help = self.worker_count() > 0 && !in_worker();
        let crew = has_help.then(|| Arc::clone(&self.crew));
        if let Some(crew) = &crew {
            crew.make_room(capacity);
        }
        Ok(Stage::new(code, crew, capacity))
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({} workers)", self.worker_count())
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if !self.crew.is_ours() {
            // A forked child: the threads are not here, neither to be joined nor to be let go.
            return std::mem::forget(Arc::clone(&self.crew));
        }
        self.crew.close();
        let threads = std::mem::take(&mut self.crew.lock().threads);
        let this_thread = std::thread::current().id();
        for thread in threads {
            // The last owner may be a job; its own thread ends by itself.
            if thread.thread().id() != this_thread {
                let _ = thread.join();
            }
        }
    }
}

/// The workers' shared state: tasks waiting for a free worker.
struct Crew {
    worker_count: usize,
    process: u32,
    /// Set under the lock of the queue, read without it.
    is_closed: AtomicBool,
    queue: Mutex<Queue>,
    work: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Each stands for one queued job of its stage.
    tasks: VecDeque<Arc<dyn Task>>,
    /// Jobs that the living stages can hold together.
    room: usize,
    /// Workers that sleep.
    idle: usize,
    /// The workers that have started.
    threads: Vec<JoinHandle<()>>,
    /// Whether the system refused to start one more.
    is_refused: bool,
}

/// A stage as its workers see it, whatever its jobs are.
trait Task: Send + Sync {
    /// Does the oldest queued job, if there is one.
    fn run_one(&self, worker_index: usize);
    /// Wakes those who wait for this stage, to look again.
    fn wake(&self);
}

thread_local! {
    static IN_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Tells whether this thread is a worker of any pool.
fn in_worker() -> bool {
    IN_WORKER.get()
}

impl Crew {
    /// Tells whether this is the process that started the workers.
    fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing panics under this lock.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the queue large enough for `capacity` jobs more, so that queueing allocates nothing.
    fn make_room(&self, capacity: usize) {
        let mut queue = self.lock();
        queue.room += capacity;
        let additional = queue.room.saturating_sub(queue.tasks.len());
        queue.tasks.reserve(additional);
    }

    fn release_room(&self, capacity: usize) {
        self.lock().room -= capacity;
    }

    /// Queues one job of a stage; says no once the pool is closed.
    fn enqueue(self: &Arc<Crew>, task: Arc<dyn Task>) -> bool {
        let mut queue = self.lock();
        if self.is_closed() {
            return false;
        }
        queue.tasks.push_back(task);
        let calls_worker = queue.idle > 0;
        if queue.tasks.len() > queue.idle {
            self.start_worker(&mut queue);
        }
        let has_workers = !queue.threads.is_empty();
        drop(queue);
        if !has_workers {
            // Nobody will come: whoever waits for a job does it.
            self.close();
            return false;
        }
        // Waking costs a system call even if nobody sleeps.
        if calls_worker {
            self.work.notify_one();
        }
        true
    }

    /// Starts a worker more, if the pool is to have one and the system lets it.
    fn start_worker(self: &Arc<Crew>, queue: &mut Queue) {
        let worker_index = queue.threads.len();
        if worker_index == self.worker_count || queue.is_refused {
            return;
        }
        let crew = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name(format!("breakeven-{worker_index}"))
            .spawn(move || crew.work(worker_index));
        match started {
            Ok(thread) => queue.threads.push(thread),
            Err(_) => queue.is_refused = true,
        }
    }

    /// Lets the workers end, and whoever waits for a queued job do it.
    fn close(&self) {
        let tasks = {
            let mut queue = self.lock();
            self.is_closed.store(true, Ordering::SeqCst);
            std::mem::take(&mut queue.tasks)
        };
        self.work.notify_all();
        for task in tasks {
            task.wake();
        }
    }

    /// The loop of a worker until the pool closes.
    fn work(&self, worker_index: usize) {
        IN_WORKER.set(true);
        while let Some(task) = self.next_task() {
            // Jobs catch their own panics; this is for values that panic when they are dropped.
            let _ = catch_unwind(AssertUnwindSafe(|| task.run_one(worker_index)));
        }
    }

    fn next_task(&self) -> Option<Arc<dyn Task>> {
        let mut queue = self.lock();
        loop {
            if self.is_closed() {
                return None;
            }
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            queue.idle += 1;
            queue = self
                .work
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use rustix::process::{Pid, WaitOptions, waitpid};

    use super::*;

    fn pool(worker_count: usize) -> Pool {
        Pool::new(PoolOptions { worker_count }).expect("a pool")
    }

    /// A gate that jobs wait at, and the key to it; each job says first that it has started.
    fn gate() -> (
        impl Fn() + Send + Sync,
        mpsc::Sender<()>,
        mpsc::Receiver<()>,
    ) {
        let (open, closed) = mpsc::channel::<()>();
        let (tell_started, started) = mpsc::channel();
        let gate = Mutex::new((tell_started, closed));
        let pass = move || {
            let gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = gate.0.send(());
            // Ends when the gate is opened once, or for ever.
            let _ = gate.1.recv();
        };
        (pass, open, started)
    }

    #[test]
    fn options_are_checked() {
        let most = PoolOptions::default().worker_count;
        assert!(most != 1 && most <= WORKER_COUNT_MAX, "{most}");
        let worker_count = WORKER_COUNT_MAX + 1;
        assert!(matches!(
            Pool::new(PoolOptions { worker_count }),
            Err(Error::Invalid { .. })
        ));
        assert_eq!(pool(3).worker_count(), 3);
    }

    #[test]
    fn threads_start_when_jobs_wait_for_them() {
        let pool = pool(3);
        let threads = || pool.crew.lock().threads.len();
        let (pass, open, _started) = gate();
        let work = move |(): &mut (), job: u64| {
            pass();
            Ok(job)
        };
        let mut stage = pool.stage(4, || (), work).expect("a stage");
        assert_eq!(threads(), 0);
        for job in 0..3 {
            stage.submit(job).expect("room");
            assert_eq!(threads(), job as usize + 1);
        }
        stage.submit(3).expect("room");
        assert_eq!(threads(), 3);
        drop(open);
        let results: Vec<u64> = std::iter::from_fn(|| stage.next_result())
            .flatten()
            .collect();
        assert_eq!(results, [0, 1, 2, 3]);
    }

    #[test]
    fn dropping_the_pool_ends_its_threads_and_loses_no_job() {
        let pool = pool(1);
        let (pass, open, started) = gate();
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let work = move |(): &mut (), job: u64| {
            pass();
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(job)
        };
        let mut stage = pool.stage(4, || (), work).expect("a stage");
        for job in 0..4 {
            stage.submit(job).expect("room");
        }
        started.recv().expect("the first job runs");
        let crew = Arc::downgrade(&pool.crew);
        std::thread::scope(|scope| {
            let closing = scope.spawn(move || drop(pool));
            while !crew.upgrade().is_none_or(|crew| crew.is_closed()) {
                std::thread::yield_now();
            }
            assert_eq!(runs.load(Ordering::SeqCst), 0, "the first job still runs");
            drop(open);
            closing.join().expect("closed");
        });
        assert_eq!(
            runs.load(Ordering::SeqCst),
            1,
            "only what ran was waited for"
        );
        // The rest is done here, and so are later jobs.
        assert_eq!(stage.next_result().expect("a job").expect("a result"), 0);
        stage.submit(4).expect("room");
        let rest: Vec<u64> = std::iter::from_fn(|| stage.next_result())
            .flatten()
            .collect();
        assert_eq!(rest, [1, 2, 3, 4]);
        drop(stage);
        assert_eq!(
            Arc::strong_count(&runs),
            1,
            "nobody holds what the jobs held"
        );
    }

    #[test]
    fn whoever_waits_when_the_pool_closes_does_the_work() {
        let pool = pool(1);
        let (pass, open, started) = gate();
        let mut blocking = pool
            .stage(
                1,
                || (),
                move |(): &mut (), ()| {
                    pass();
                    Ok(())
                },
            )
            .expect("a stage");
        blocking.submit(()).expect("room");
        started.recv().expect("the only worker is held");
        let mut stage = pool
            .stage(2, || (), |(): &mut (), job: u64| Ok(job))
            .expect("a stage");
        stage.submit(7).expect("room");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || stage.next_result());
            let closing = scope.spawn(move || drop(pool));
            let result = waiting.join().expect("no panic").expect("a job");
            assert_eq!(result.expect("a result"), 7);
            drop(open);
            closing.join().expect("closed");
        });
        blocking.next_result().expect("a job").expect("a result");
    }

    #[test]
    fn room_in_the_queue_is_released_with_its_stage() {
        let pool = pool(1);
        for _ in 0..100 {
            let mut stage = pool
                .stage(50, || (), |(): &mut (), job: u64| Ok(job))
                .expect("a stage");
            stage
                .run(0..60, |result| result.map(|_| ()))
                .expect("a run");
        }
        let queue = pool.crew.lock();
        assert_eq!(queue.room, 0);
        assert!(queue.tasks.capacity() <= 128, "{}", queue.tasks.capacity());
    }

    #[test]
    fn a_forked_child_works_inline_and_touches_nothing_of_its_parent() {
        const ROLE: &str = "BREAKEVEN_TEST_FORKS";
        if std::env::var_os(ROLE).is_some() {
            return fork_with_locks_held();
        }
        // In a process of its own, where no other test has threads and locks to inherit.
        let name = "pool::tests::a_forked_child_works_inline_and_touches_nothing_of_its_parent";
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env(ROLE, "1")
            .output()
            .expect("a process");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{text}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(text.contains("the child did its work"), "{text}");
    }

    /// Forks while both workers are held in jobs and others hold every lock of the pool.
    fn fork_with_locks_held() {
        let pool = pool(2);
        let (pass, open, started) = gate();
        let is_parent = Arc::new(AtomicBool::new(true));
        let waits = Arc::clone(&is_parent);
        let work = move |(): &mut (), job: u64| {
            if waits.load(Ordering::SeqCst) {
                pass();
            }
            Ok(job * 2)
        };
        let plain = |(): &mut (), job: u64| Ok(job + 1);
        let mut stage = pool.stage(4, || (), work).expect("a stage");
        for job in 0..4 {
            stage.submit(job).expect("room");
        }
        started.recv().expect("a worker is held");
        let other = pool.stage(2, || (), plain).expect("a stage");
        let holders = [stage.hold_lock(), other.hold_lock()];
        let (mut submitter, mut results) = other.split();
        let crew = Arc::clone(&pool.crew);
        let queue = crew.lock();

        let Some(child) = fork() else {
            end_child(move || {
                is_parent.store(false, Ordering::SeqCst);
                assert_eq!((pool.worker_count(), stage.outstanding()), (0, 4));
                for _ in 0..4 {
                    let lost = stage.next_result().expect("a job").expect_err("lost");
                    assert!(lost.to_string().contains("forked"), "{lost}");
                }
                assert!(stage.next_result().is_none());
                stage.submit(21).expect("room");
                assert_eq!(stage.next_result().expect("a job").expect("inline"), 42);
                let mut new = pool.stage(2, || (), plain).expect("a stage");
                new.run(0..5, |result| result.map(drop))
                    .expect("all inline");
                assert!(matches!(submitter.submit(5), Err(Refused::Closed(5))));
                assert!(matches!(results.next(), Some(Err(Error::Poisoned { .. }))));
                assert!(results.next().is_none() && results.ready_result().is_none());
                drop((stage, submitter, results, new, pool));
            });
        };
        let ended = waitpid(Some(child), WaitOptions::empty()).expect("waited");
        let status = ended.expect("the child").1.exit_status();

        // A failure is reported after everything is released, or the end of the test would wait for it.
        drop(queue);
        for (release, holder) in holders {
            drop(release);
            holder.join().expect("released");
        }
        drop(open);
        assert_eq!(
            status,
            Some(0),
            "the child failed, or hung at a lock until its alarm"
        );
        let doubled: Vec<u64> = std::iter::from_fn(|| stage.next_result())
            .flatten()
            .collect();
        assert_eq!(doubled, [0, 2, 4, 6], "the parent goes on as before");
        submitter.submit(1).expect("room");
        assert_eq!(results.next().expect("a job").expect("a result"), 2);
        println!("the child did its work");
    }

    /// Forks this process, and returns the child's number in the parent.
    #[allow(unsafe_code)]
    fn fork() -> Option<Pid> {
        // SAFETY: the child runs only code that is meant for a forked child, which takes no lock of its parent's. The C
        // library keeps its allocator usable across a fork.
        let process = unsafe { libc::fork() };
        assert!(process >= 0, "fork: {}", std::io::Error::last_os_error());
        Pid::from_raw(process)
    }

    /// Does the child's part and ends it, at the latest by an alarm.
    #[allow(unsafe_code)]
    fn end_child(part: impl FnOnce()) -> ! {
        // SAFETY: the call sets a timer of this process and touches no memory.
        unsafe { libc::alarm(60) };
        let status = i32::from(catch_unwind(AssertUnwindSafe(part)).is_err());
        // SAFETY: the call ends the process without running anything of the parent's at exit.
        unsafe { libc::_exit(status) }
    }
}
