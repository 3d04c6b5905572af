//! Measures a real folder: what an operation on it costs, by size, order, direction and depth.
//!
//! [`probe`] writes one scratch file of bounded size, and runs short slices of operations on it in turns, so that a
//! disturbance falls on all cells alike. The cells are sequential, random and nine to one, reads and writes, 4 to 128
//! KiB, one and four in flight. A cell's value is the median of its slices. Files are judged by streams of 1 MiB
//! operations, four in flight. Their slices are longer. Their value is the fastest slice, because other programs only
//! slow a medium down. The interval is their range, because a medium that pauses does so in a file's stream as well.
//!
//! Its promises:
//! * **Nothing stays.** The scratch file loses its name as soon as it is open, so it always goes with the process. Only
//!   a process killed between these two calls leaves an empty file `.breakeven-scratch-...` behind. It takes at most
//!   half of the space that is free.
//! * **Bounded.** Time, bytes of the file and bytes written are limits of the caller. The probe looks at the stop flag
//!   and the deadline before each operation. One operation that hangs in the kernel cannot be cut short.
//! * **The device is measured, not the page cache.** I/O is direct. Where the file system does not offer that, reads
//!   follow an advice to drop the cache, and writes include a sync for each slice. The report says so
//!   ([`Access::Buffered`]).
//! * **Nothing can be saved on the data.** Every write is of fresh random bytes: no compression and
//!   no deduplication below can shrink it.
//! * **Luck with memory is left out.** Where buffers lie in scattered pages, a driver cuts an operation into as many
//!   segments. That was measured to cost up to 1.8 times as much. Here they lie in huge pages, as far as the system has
//!   any. And no read goes where one went just before: a read into memory in the processor's cache is a quarter faster
//!   than a stream is.
//!
//! It cannot see past the memory of the drive or of a hypervisor, which may hold a file of this size. Nor can it see
//! that a disk's arm has a short way within the file. Both make a device look faster.
//!
//! This file reads a clock, because it measures.

#![deny(unsafe_code)]

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::Advice;
use serde::Serialize;

use super::folder::Folder;
use super::{Curve, Direction, Figure, Medium, Pattern, Point, Service, presets};
use crate::arena::{Arena, ArenaOptions, Slab};
use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::statistics::outer_rank;
use crate::storage::{AlignedBuffer, OpenOptions, RealStorage, Storage, StorageFile};
use crate::units::{Estimate, Source};

/// Sizes measured, the ones that matter most first: a round that does not end still has these.
const SIZES_BYTES: [usize; 6] = [16 << 10, 4 << 10, 128 << 10, 8 << 10, 32 << 10, 64 << 10];
const DEPTHS: [u32; 2] = [1, 4];
/// The operation of a stream, and how many of it are in flight. So many are the most in a slice
/// that the first and the last few, which have fewer beside them, do not weigh much.
const STREAM_BYTES: usize = 1 << 20;
const STREAM_DEPTH: u32 = 4;
const STREAM_SLICE_BYTES: usize = 32 << 20;
const STREAM_SLICE_TIME_MAX: Duration = Duration::from_millis(50);
/// Slices of a stream that fit into a probe, so that a short one has several, too: those of the usual 2.5 s.
const STREAM_SLICES_MAX: u32 = 50;
/// Slices of a stream in each round: all verdicts on files hang on two cells.
const STREAM_SLICES_PER_ROUND: usize = 2;
const WORKER_COUNT: usize = 4;
const PATTERNS: [Pattern; 3] = [Pattern::Sequential, Pattern::Random, Pattern::Mix9to1];
const DIRECTIONS: [Direction; 2] = [Direction::Read, Direction::Write];
const CELL_COUNT: u32 = 74;

/// The time is cut so that each cell gets about this many slices. Six are the fewest whose range is a 95 % interval of
/// the median under any distribution.
const SLICES_PER_CELL: u32 = 8;

/// The fewest values whose range is a 95 % interval of the median.
const VALUES_MIN: usize = 6;

/// The longest probe that may be asked for.
const TIME_MAX: Duration = Duration::from_secs(3600);

/// No slice needs to be longer: more slices say more than longer ones.
const SLICE_TIME_MAX: Duration = Duration::from_millis(5);

/// Bytes of fresh random data made for one slice of writes that is no stream. Ten operations of the largest size are
/// the fewest that hold a whole mix of nine to one.
const PAYLOAD_BYTES: usize = MIX_RUN * (128 << 10);

/// Operations of one slice at most.
const SLICE_OPERATIONS_MAX: usize = 1024;

/// The smallest scratch file on which positions can differ.
const SCRATCH_BYTES_MIN: u64 = 1 << 20;

/// A mix is a run of this many operations; the first begins anywhere.
const MIX_RUN: usize = 10;

/// Limits of a probe.
#[derive(Clone, Debug)]
pub struct ProbeOptions {
    /// Time in all, at most an hour. Default 2.5 s.
    pub time_max: Duration,
    /// Size of the scratch file, 1 MiB to 1 GiB. It is smaller when less than twice of it is free or may be written.
    /// Default 64 MiB.
    pub scratch_bytes: u64,
    /// Bytes written in all, the scratch file's first filling counted; then only reads go on.
    /// Default 1 GiB.
    pub written_bytes_max: u64,
    /// Rounds after which nothing is measured any further: of a stream two slices in each, of any
    /// other cell one. Default 16.
    pub rounds_max: u32,
    /// Seed of positions and data. Two probes of one seed write the same bytes, which a store that
    /// deduplicates would see if both files existed at once. Default 1.
    pub seed: u64,
}

impl Default for ProbeOptions {
    fn default() -> ProbeOptions {
        ProbeOptions {
            time_max: Duration::from_millis(2500),
            scratch_bytes: 64 << 20,
            written_bytes_max: 1 << 30,
            rounds_max: 16,
            seed: 1,
        }
    }
}

/// The events of a running probe.
#[derive(Clone, Copy, Debug)]
pub enum ProbeEvent<'a> {
    /// It is about to write this scratch file of at most so many bytes.
    Scratch { path: &'a Path, bytes: u64 },
    /// It has used this share of its time, 0 to 1.
    Progress { share: f64 },
}

/// How the file was reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "access")]
pub enum Access {
    /// Past the page cache.
    Direct,
    /// Through the page cache, dropped by advice before each slice of reads and synced after each
    /// slice of writes, because direct I/O was refused.
    Buffered { reason: String },
}

/// One measured combination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// The direction of the bytes.
    pub direction: Direction,
    /// The order of operations.
    pub pattern: Pattern,
    /// Bytes of one operation.
    pub bytes: u64,
    /// Operations in flight.
    pub depth: u32,
    /// Seconds of the medium per operation: the median of the slices and its interval of at least 95 %. With fewer than
    /// six slices it is the range widened by half. For a stream it is the fastest slice and the range, in which the
    /// stream of a file falls.
    pub seconds: Estimate,
    /// Seconds of the slowest slice over those of the fastest.
    pub spread: f64,
    /// Slices measured.
    pub slice_count: u32,
    /// Operations measured.
    pub operation_count: u64,
}

/// The results of a probe.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// The place.
    pub folder: Folder,
    /// How it was reached.
    pub access: Access,
    /// The cells measured at least once, smallest first; all 74 unless the time was too short.
    pub cells: Vec<Cell>,
    /// Bytes of the scratch file over which operations were spread.
    pub span_bytes: u64,
    /// Bytes written in all.
    pub written_bytes: u64,
    /// Bytes read in all.
    pub read_bytes: u64,
    /// Seconds from beginning to end.
    pub elapsed_seconds: f64,
    /// Whether the stop flag ended it early.
    pub is_interrupted: bool,
}

/// Measures what operations cost in a folder.
///
/// `observe` hears of the scratch file before it is made, and of progress. When `stop` becomes
/// true, what is known so far is returned.
///
/// # Errors
/// `Io` or `Invalid`, naming the folder or the scratch file, if it is missing, no folder, not writable, full, or
/// failed. `Interrupted` if it was stopped before every direction had a cell.
///
/// # Cost
/// The time and the bytes of the options, about 68 MiB of memory, and four threads in turns.
pub fn probe(
    path: &Path,
    options: &ProbeOptions,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ProbeEvent<'_>),
) -> Result<ProbeReport> {
    let start = Instant::now();
    let folder = Folder::look_up(path)?;
    let storage = RealStorage::open_folder(path)?;
    probe_storage(&storage, folder, options, start, stop, observe)
}

/// Does the work of [`probe`] on any storage; advice on the page cache needs `folder.path`.
fn probe_storage(
    storage: &dyn Storage,
    folder: Folder,
    options: &ProbeOptions,
    start: Instant,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(ProbeEvent<'_>),
) -> Result<ProbeReport> {
    let scratch_bytes = scratch_bytes(&folder, options)?;
    if stop.load(Ordering::Relaxed) {
        return Err(Error::Interrupted);
    }
    let name = scratch_name(options.seed);
    observe(ProbeEvent::Scratch {
        path: &folder.path.join(&name),
        bytes: scratch_bytes,
    });
    let scratch = Scratch::create(storage, &folder.path, &name)?;
    let mut run = Run {
        scratch,
        options,
        stop,
        start,
        deadline: start + options.time_max,
        random: fastrand::Rng::with_seed(options.seed),
        payload: memory(STREAM_SLICE_BYTES)?,
        buffers: memory(STREAM_SLICE_BYTES)?,
        span_bytes: 0,
        cursor_bytes: 0,
        written_bytes: 0,
        read_bytes: 0,
    };
    run.fill(scratch_bytes)?;
    let cells = run.measure(observe)?;
    let has = |direction| cells.iter().any(|cell: &Cell| cell.direction == direction);
    let is_interrupted = stop.load(Ordering::Relaxed);
    if !DIRECTIONS.into_iter().all(has) {
        return Err(match is_interrupted {
            true => Error::Interrupted,
            false => too_slow(&folder.path, options),
        });
    }
    Ok(ProbeReport {
        folder,
        access: run.scratch.access.clone(),
        cells,
        span_bytes: run.span_bytes,
        written_bytes: run.written_bytes,
        read_bytes: run.read_bytes,
        elapsed_seconds: start.elapsed().as_secs_f64(),
        is_interrupted,
    })
}

/// Checks the options and returns the size of the scratch file that the free space allows.
fn scratch_bytes(folder: &Folder, options: &ProbeOptions) -> Result<u64> {
    if options.time_max > TIME_MAX {
        let reason = format!(
            "time_max is {:?}, expected at most {TIME_MAX:?}",
            options.time_max
        );
        return Err(Error::invalid("probe", reason));
    }
    let wanted = options.scratch_bytes;
    if !(SCRATCH_BYTES_MIN..=1 << 30).contains(&wanted) {
        let reason = format!("scratch_bytes is {wanted}, expected 1 MiB to 1 GiB");
        return Err(Error::invalid("probe", reason));
    }
    let allowed = wanted
        .min(folder.free_bytes / 2)
        .min(options.written_bytes_max / 2);
    if allowed < SCRATCH_BYTES_MIN {
        let reason = format!(
            "{} has {} bytes free and {} may be written; the scratch file takes at most half of \
             either and needs {SCRATCH_BYTES_MIN} bytes",
            quoted(&folder.path),
            folder.free_bytes,
            options.written_bytes_max,
        );
        return Err(Error::invalid("probe", reason));
    }
    // Whole operations of every size fit into whole multiples of the smallest file.
    Ok(allowed / SCRATCH_BYTES_MIN * SCRATCH_BYTES_MIN)
}

/// Takes memory in one slab, a power of two of bytes and in huge pages where there are any.
fn memory(bytes: usize) -> Result<Slab> {
    let options = ArenaOptions {
        slab_bytes: bytes,
        budget_bytes: bytes as u64,
        ..ArenaOptions::default()
    };
    Arena::new(options)?.allocate()
}

fn scratch_name(seed: u64) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(".breakeven-scratch-{}-{count}-{seed:x}", std::process::id())
}

fn too_slow(path: &Path, options: &ProbeOptions) -> Error {
    let seconds = options.time_max.as_secs_f64();
    let reason = format!("{} is too slow to measure in {seconds} s", quoted(&path));
    Error::invalid("probe", reason)
}

/// The scratch file, already without a name.
struct Scratch {
    file: Arc<dyn StorageFile>,
    access: Access,
    /// A second handle for advice on the page cache, where the access is buffered.
    cached: Option<File>,
}

impl Scratch {
    /// Makes the file, opens it past the page cache if that is offered, and takes its name away.
    fn create(storage: &dyn Storage, root: &Path, name: &str) -> Result<Scratch> {
        // Not in one step: a refused direct open may leave the file behind all the same.
        let plain = storage.open(name, OpenOptions::create_new())?;
        let direct = OpenOptions {
            direct: true,
            ..OpenOptions::default()
        };
        let opened = storage.open(name, direct);
        let cached = File::open(root.join(name)).ok();
        storage.unlink(name)?;
        let (file, access) = match opened {
            Ok(file) if file.alignment_bytes() <= AlignedBuffer::ALIGNMENT_BYTES => {
                (file, Access::Direct)
            }
            Ok(file) => {
                let reason = format!("direct I/O needs {} bytes", file.alignment_bytes());
                (plain, Access::Buffered { reason })
            }
            Err(error @ Error::Unsupported { .. }) => {
                let reason = error.to_string();
                (plain, Access::Buffered { reason })
            }
            Err(error) => return Err(error),
        };
        Ok(Scratch {
            file,
            access,
            cached,
        })
    }

    fn is_direct(&self) -> bool {
        self.access == Access::Direct
    }

    /// Asks the system to forget the pages it holds of the file, which it may or may not do.
    fn forget_cached(&self) {
        if let (false, Some(file)) = (self.is_direct(), &self.cached) {
            let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        }
    }
}

/// A combination to be measured, and the results of its slices.
struct Task {
    direction: Direction,
    pattern: Pattern,
    bytes: usize,
    depth: u32,
    slices: Vec<f64>,
    operation_count: u64,
}

impl Task {
    /// Returns all combinations, the most telling first.
    fn all() -> Vec<Task> {
        let mut tasks = Vec::with_capacity(CELL_COUNT as usize);
        let mut push = |pattern, bytes, depth| {
            tasks.extend(DIRECTIONS.map(|direction| Task {
                direction,
                pattern,
                bytes,
                depth,
                slices: Vec::new(),
                operation_count: 0,
            }));
        };
        for (index, bytes) in SIZES_BYTES.into_iter().enumerate() {
            for depth in DEPTHS {
                for pattern in PATTERNS {
                    push(pattern, bytes, depth);
                }
            }
            // Not first: on a slow medium a small operation is done when a stream has hardly begun.
            if index == 0 {
                push(Pattern::Sequential, STREAM_BYTES, STREAM_DEPTH);
            }
        }
        assert_eq!(tasks.len(), CELL_COUNT as usize);
        tasks
    }

    fn is_stream(&self) -> bool {
        self.bytes == STREAM_BYTES
    }

    /// Returns the bytes after which a slice is over.
    fn slice_bytes_max(&self) -> usize {
        match (self.is_stream(), self.direction) {
            (true, _) => STREAM_SLICE_BYTES,
            (false, Direction::Write) => PAYLOAD_BYTES,
            (false, Direction::Read) => SLICE_OPERATIONS_MAX * self.bytes,
        }
    }

    /// Returns the operations after which a slice may end, and whose multiples it may end at.
    fn group(&self) -> usize {
        match self.pattern {
            Pattern::Mix9to1 => MIX_RUN,
            Pattern::Sequential | Pattern::Random => self.depth as usize,
        }
    }

    fn cell(&self) -> Option<Cell> {
        Some(Cell {
            direction: self.direction,
            pattern: self.pattern,
            bytes: self.bytes as u64,
            depth: self.depth,
            seconds: match self.is_stream() {
                true => fastest_range(&self.slices)?,
                false => median_interval(&self.slices)?,
            },
            spread: spread(&self.slices),
            slice_count: self.slices.len() as u32,
            operation_count: self.operation_count,
        })
    }
}

/// A probe at work.
struct Run<'a> {
    scratch: Scratch,
    options: &'a ProbeOptions,
    stop: &'a AtomicBool,
    start: Instant,
    deadline: Instant,
    random: fastrand::Rng,
    payload: Slab,
    /// Where reads go: an equal part for each worker.
    buffers: Slab,
    span_bytes: u64,
    cursor_bytes: u64,
    written_bytes: u64,
    read_bytes: u64,
}

impl Run<'_> {
    /// Writes the file once, for at most a quarter of the time; what was written is the span.
    fn fill(&mut self, scratch_bytes: u64) -> Result<()> {
        let enough = self.start + self.options.time_max / 4;
        let chunk_bytes = SCRATCH_BYTES_MIN as usize;
        while self.span_bytes < scratch_bytes {
            if self.stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            let now = Instant::now();
            if now >= self.deadline || (now >= enough && self.span_bytes > 0) {
                break;
            }
            let chunk = &mut self.payload[..chunk_bytes];
            self.random.fill(chunk);
            let chunk = [IoSlice::new(chunk)];
            self.scratch.file.write_at(&chunk, self.span_bytes)?;
            self.span_bytes += chunk_bytes as u64;
        }
        self.written_bytes = self.span_bytes;
        // Blocks that are still to be allocated would be paid for by the first slices.
        self.scratch.file.sync()
    }

    /// Runs rounds of a slice or two for each task, in a new order each round, until time is up or nothing is left to
    /// measure.
    fn measure(&mut self, observe: &mut dyn FnMut(ProbeEvent<'_>)) -> Result<Vec<Cell>> {
        let mut tasks = Task::all();
        let slices = |at: usize| match tasks[at].is_stream() {
            true => STREAM_SLICES_PER_ROUND,
            false => 1,
        };
        let mut order: Vec<usize> = (0..tasks.len())
            .flat_map(|at| std::iter::repeat_n(at, slices(at)))
            .collect();
        for _ in 0..self.options.rounds_max {
            for &at in &order {
                if self.span_bytes == 0 || self.is_over() {
                    break;
                }
                self.slice(&mut tasks[at])?;
                let used = self.start.elapsed().as_secs_f64();
                let share = (used / self.options.time_max.as_secs_f64()).min(1.0);
                observe(ProbeEvent::Progress { share });
            }
            self.random.shuffle(&mut order);
        }
        tasks.sort_by_key(|task| (task.bytes, task.depth));
        Ok(tasks.iter().filter_map(Task::cell).collect())
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    /// Measures one slice of a task, unless it would pass the bytes to be written.
    fn slice(&mut self, task: &mut Task) -> Result<()> {
        let is_write = task.direction == Direction::Write;
        let count_max = self.operations_max(task);
        if count_max == 0 {
            return Ok(());
        }
        if is_write {
            let payload = &mut self.payload[..count_max * task.bytes];
            self.random.fill(payload);
        } else {
            self.scratch.forget_cached();
        }
        let offsets = self.offsets(task.pattern, task.bytes, count_max);
        let slice_time = match task.is_stream() {
            true => (self.options.time_max / STREAM_SLICES_MAX).min(STREAM_SLICE_TIME_MAX),
            false => {
                let share = self.options.time_max.mul_f64(0.7) / (CELL_COUNT * SLICES_PER_CELL);
                share.min(SLICE_TIME_MAX)
            }
        };
        let begin = Instant::now();
        let slice = Slice {
            file: &*self.scratch.file,
            payload: is_write.then_some(&*self.payload),
            offsets: &offsets,
            bytes: task.bytes,
            group: task.group(),
            stop: self.stop,
            end: begin + slice_time,
            deadline: self.deadline,
            next: AtomicUsize::new(0),
            limit: AtomicUsize::new(offsets.len()),
            gate: Mutex::new(()),
        };
        let buffers = self.buffers.chunks_mut(STREAM_SLICE_BYTES / WORKER_COUNT);
        let mut span = slice.run(buffers.take(task.depth as usize).collect())?;
        if is_write && !self.scratch.is_direct() {
            self.scratch.file.sync()?;
            span.end = Instant::now();
        }
        let moved = (span.count * task.bytes) as u64;
        match is_write {
            true => self.written_bytes += moved,
            false => self.read_bytes += moved,
        }
        // A slice that was cut off inside its first group says nothing of the pattern.
        if span.count >= task.group() {
            let seconds = (span.end - span.start).as_secs_f64() / span.count as f64;
            // A clock may not move during an operation in memory; a cost is above zero.
            task.slices.push(seconds.max(1e-9));
            task.operation_count += span.count as u64;
        }
        Ok(())
    }

    /// Returns how many operations a slice may have: a multiple of the task's group, zero if the
    /// bytes that may still be written allow none.
    fn operations_max(&self, task: &Task) -> usize {
        let mut bytes = task.slice_bytes_max();
        if task.direction == Direction::Write {
            let left_bytes = self.options.written_bytes_max - self.written_bytes;
            bytes = left_bytes.min(bytes as u64) as usize;
        }
        let count = (bytes / task.bytes).min(SLICE_OPERATIONS_MAX);
        count - count % task.group()
    }

    /// Returns positions of `count` operations of `bytes` within the span, in order.
    fn offsets(&mut self, pattern: Pattern, bytes: usize, count: usize) -> Vec<u64> {
        let bytes = bytes as u64;
        let block_count = self.span_bytes / bytes;
        let mut at = self.cursor_bytes.div_ceil(bytes) % block_count;
        let mut offsets = Vec::with_capacity(count);
        for index in 0..count {
            let jumps = match pattern {
                Pattern::Sequential => false,
                Pattern::Random => true,
                Pattern::Mix9to1 => index % MIX_RUN == 0,
            };
            if jumps {
                at = self.random.u64(..block_count);
            }
            offsets.push(at * bytes);
            at = (at + 1) % block_count;
        }
        if pattern == Pattern::Sequential {
            self.cursor_bytes = at * bytes;
        }
        offsets
    }
}

/// When some operations ran, and how many were completed.
struct Span {
    start: Instant,
    end: Instant,
    count: usize,
}

/// A run of operations shared by workers; each worker has one in flight.
struct Slice<'a> {
    file: &'a dyn StorageFile,
    /// The bytes to write, one operation after another; `None` to read.
    payload: Option<&'a [u8]>,
    offsets: &'a [u64],
    bytes: usize,
    group: usize,
    stop: &'a AtomicBool,
    /// When to end at the next multiple of the group.
    end: Instant,
    /// When to end at once.
    deadline: Instant,
    next: AtomicUsize,
    limit: AtomicUsize,
    /// Held while workers are started, so that they begin together.
    gate: Mutex<()>,
}

impl Slice<'_> {
    /// Runs the slice with as many workers as there are buffers.
    fn run(&self, mut buffers: Vec<&mut [u8]>) -> Result<Span> {
        if let [only] = &mut buffers[..] {
            return self.work(only);
        }
        let spans = thread::scope(|scope| {
            let closed = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
            let mut workers = Vec::with_capacity(buffers.len());
            let mut failure = None;
            for buffer in buffers {
                let started = thread::Builder::new().spawn_scoped(scope, || self.work(buffer));
                match started {
                    Ok(worker) => workers.push(worker),
                    Err(error) => {
                        self.limit.store(0, Ordering::Relaxed);
                        failure = Some(Error::io("start a thread for", self.file.path(), error));
                        break;
                    }
                }
            }
            drop(closed);
            let mut spans = Vec::with_capacity(workers.len());
            for worker in workers {
                match worker.join().expect("a worker does not panic") {
                    Ok(span) => spans.push(span),
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            match failure {
                Some(error) => Err(error),
                None => Ok(spans),
            }
        })?;
        let ran = || spans.iter().filter(|span| span.count > 0);
        let start = ran().map(|span| span.start).min();
        let end = ran().map(|span| span.end).max();
        let now = Instant::now();
        Ok(Span {
            start: start.unwrap_or(now),
            end: end.unwrap_or(now),
            count: ran().map(|span| span.count).sum(),
        })
    }

    /// Takes operations one after another until the slice is over.
    fn work(&self, buffer: &mut [u8]) -> Result<Span> {
        drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        let start = Instant::now();
        let mut span = Span {
            start,
            end: start,
            count: 0,
        };
        loop {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            if at >= self.limit.load(Ordering::Relaxed) || self.ends_before(at, span.end) {
                return Ok(span);
            }
            // Around the whole buffer, so that a read finds no memory that is in the cache.
            let place = span.count % (buffer.len() / self.bytes) * self.bytes;
            let target = &mut buffer[place..place + self.bytes];
            if let Err(error) = self.operate(at, target) {
                self.limit.store(0, Ordering::Relaxed);
                return Err(error);
            }
            span.count += 1;
            span.end = Instant::now();
        }
    }

    fn ends_before(&self, at: usize, now: Instant) -> bool {
        let is_late = now >= self.end && at >= self.group && at.is_multiple_of(self.group);
        let ends = is_late || now >= self.deadline || self.stop.load(Ordering::Relaxed);
        if ends {
            self.limit.fetch_min(at, Ordering::Relaxed);
        }
        ends
    }

    fn operate(&self, at: usize, target: &mut [u8]) -> Result<()> {
        let offset = self.offsets[at];
        match self.payload {
            Some(payload) => {
                let block = &payload[at * self.bytes..(at + 1) * self.bytes];
                self.file.write_at(&[IoSlice::new(block)], offset)
            }
            None => {
                let read = self.file.read_at(&mut [IoSliceMut::new(target)], offset)?;
                if read == self.bytes {
                    return Ok(());
                }
                let expected = format!("{} bytes", self.bytes);
                Err(Error::corrupt("scratch file", offset, expected, read))
            }
        }
    }
}

/// Returns the median of some values with an interval, `None` if there are none.
///
/// With six values or more the interval is between two of them. They are the closest pair that holds the true median
/// with a probability of at least 95 % under any distribution. Fewer values have their range.
fn median_interval(values: &[f64]) -> Option<Estimate> {
    let mut interval = median_range(values)?;
    if values.len() >= VALUES_MIN {
        let sorted = sorted(values);
        let outer = outer_rank(sorted.len());
        (interval.low, interval.high) = (sorted[outer], sorted[sorted.len() - 1 - outer]);
    }
    Some(interval)
}

/// Returns the median of some values with their range, `None` if there are none. With fewer than
/// [`VALUES_MIN`] it is widened by half, that of a single value by the band of a default.
fn median_range(values: &[f64]) -> Option<Estimate> {
    let sorted = sorted(values);
    let count = sorted.len();
    let (&first, &last) = (sorted.first()?, sorted.last()?);
    let factor = match count {
        1 => Source::Default.band(),
        2..VALUES_MIN => 1.5,
        _ => 1.0,
    };
    Some(Estimate {
        mean: (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0,
        low: first / factor,
        high: last * factor,
    })
}

/// Returns the least of some values with their range, as [`median_range`] has it.
fn fastest_range(values: &[f64]) -> Option<Estimate> {
    let range = median_range(values)?;
    let fastest = values.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Estimate {
        mean: fastest,
        ..range
    })
}

/// Returns the largest of some values over the least; 1 for none.
fn spread(values: &[f64]) -> f64 {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    (most / least).max(1.0)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

impl ProbeReport {
    /// How many cells a probe with enough time measures.
    pub const CELL_COUNT: usize = CELL_COUNT as usize;

    /// Returns the factor by which the streams of one direction differed most.
    pub fn stream_spread(&self) -> f64 {
        let is_stream = |cell: &&Cell| cell.bytes == STREAM_BYTES as u64;
        let streams = self.cells.iter().filter(is_stream);
        streams.map(|cell| cell.spread).fold(1.0, f64::max)
    }

    /// Returns the probed place as a medium: measured times and the file system's allocation unit. Its power is the
    /// default for a device of its kind, because that was not measured.
    pub fn medium(&self) -> Medium {
        let like = self.nearest_preset();
        let service = |direction: Direction, like: Service| {
            Service::new(self.curves(direction), like.watts_above_idle)
        };
        let device = self.folder.device.as_deref().unwrap_or("no single device");
        let access = match &self.access {
            Access::Direct => "past the page cache".to_string(),
            Access::Buffered { reason } => format!("through the page cache, because {reason}"),
        };
        Medium {
            name: quoted(&self.folder.path).to_string(),
            description: format!("{} on {device}, {access}", self.folder.file_system),
            kind: like.kind,
            source: Source::Measured,
            read: service(Direction::Read, like.read),
            write: service(Direction::Write, like.write),
            allocation_unit_bytes: self.folder.allocation_unit_bytes,
            idle_watts: like.idle_watts,
            holding_watts_per_gib: like.holding_watts_per_gib,
            machine_idle_watts: None,
            price_eur_per_gib_month: None,
            billable_object_bytes_min: 0,
            billable_days_min: 0.0,
        }
    }

    fn curves(&self, direction: Direction) -> Vec<Curve> {
        let mut curves = Vec::new();
        for pattern in PATTERNS {
            for depth in DEPTHS {
                let is_of = |cell: &&Cell| {
                    cell.direction == direction && cell.pattern == pattern && cell.depth == depth
                };
                let point = |cell: &Cell| Point {
                    bytes: cell.bytes,
                    seconds: Figure {
                        estimate: cell.seconds,
                        source: Source::Measured,
                    },
                };
                let points: Vec<Point> = self.cells.iter().filter(is_of).map(point).collect();
                if !points.is_empty() {
                    curves.push(Curve::new(Some(pattern), depth, points));
                }
            }
        }
        curves
    }

    /// Returns the preset whose power the place most likely has.
    fn nearest_preset(&self) -> Medium {
        if matches!(self.folder.file_system.as_str(), "tmpfs" | "ramfs") {
            let memory = presets::preset("ram").expect("a preset of that name");
            return presets::with_power_assumed(memory);
        }
        let is_random_read = |cell: &&Cell| {
            (cell.direction, cell.pattern, cell.depth) == (Direction::Read, Pattern::Random, 1)
        };
        let random_read = self.cells.iter().find(is_random_read);
        let random_read_s = random_read.map_or(0.0, |cell| cell.seconds.mean);
        presets::similar(
            random_read_s,
            self.fastest_read(),
            self.folder.is_rotational,
        )
    }

    fn fastest_read(&self) -> f64 {
        self.cells
            .iter()
            .filter(|cell| cell.direction == Direction::Read)
            .map(|cell| cell.bytes as f64 / cell.seconds.mean)
            .fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::ops::Range;
    use std::path::PathBuf;

    use crate::storage::{Entry, FileStatus, HeldLock, LockKind, MemoryStorage};

    /// The failures of a [`Faulty`] storage, by the number of the call from 0.
    #[derive(Clone, Copy, Default)]
    struct Faults {
        open: Option<i32>,
        direct_refused: bool,
        unlink: Option<i32>,
        write: Option<(u64, i32)>,
        read: Option<(u64, i32)>,
        sync: Option<(u64, i32)>,
    }

    #[derive(Default)]
    struct Counts {
        writes: AtomicU64,
        reads: AtomicU64,
        syncs: AtomicU64,
        written: Mutex<Vec<u8>>,
    }

    /// A storage that fails on demand, and remembers the writes.
    struct Faulty {
        inner: Arc<dyn Storage>,
        faults: Faults,
        counts: Arc<Counts>,
    }

    struct FaultyFile {
        inner: Arc<dyn StorageFile>,
        faults: Faults,
        counts: Arc<Counts>,
    }

    fn faulty(faults: Faults) -> Faulty {
        Faulty {
            inner: Arc::new(MemoryStorage::new()),
            faults,
            counts: Arc::default(),
        }
    }

    fn errno(operation: &'static str, path: &Path, number: i32) -> Error {
        Error::io(operation, path, std::io::Error::from_raw_os_error(number))
    }

    impl Storage for Faulty {
        fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>> {
            if let Some(number) = self.faults.open {
                return Err(errno("open", Path::new(name), number));
            }
            if options.direct && self.faults.direct_refused {
                let what = "direct I/O here".to_string();
                return Err(Error::Unsupported { what });
            }
            Ok(Arc::new(FaultyFile {
                inner: self.inner.open(name, options)?,
                faults: self.faults,
                counts: Arc::clone(&self.counts),
            }))
        }

        fn rename(&self, from: &str, to: &str) -> Result<()> {
            self.inner.rename(from, to)
        }

        fn publish(&self, from: &str, to: &str) -> Result<()> {
            self.inner.publish(from, to)
        }

        fn unlink(&self, name: &str) -> Result<()> {
            match self.faults.unlink {
                Some(number) => Err(errno("unlink", Path::new(name), number)),
                None => self.inner.unlink(name),
            }
        }

        fn list(&self, folder: &str) -> Result<Vec<Entry>> {
            self.inner.list(folder)
        }

        fn create_folder(&self, folder: &str) -> Result<()> {
            self.inner.create_folder(folder)
        }

        fn remove_folder(&self, folder: &str) -> Result<()> {
            self.inner.remove_folder(folder)
        }

        fn sync_directory(&self, folder: &str) -> Result<()> {
            self.inner.sync_directory(folder)
        }
    }

    impl FaultyFile {
        fn fail(
            &self,
            operation: &'static str,
            count: &AtomicU64,
            fault: Option<(u64, i32)>,
        ) -> Result<()> {
            let at = count.fetch_add(1, Ordering::Relaxed);
            match fault {
                Some((from, number)) if at >= from => Err(errno(operation, self.path(), number)),
                _ => Ok(()),
            }
        }
    }

    impl StorageFile for FaultyFile {
        fn path(&self) -> &Path {
            self.inner.path()
        }

        fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
            self.fail("read", &self.counts.reads, self.faults.read)?;
            self.inner.read_at(buffers, offset)
        }

        fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()> {
            self.fail("write", &self.counts.writes, self.faults.write)?;
            let mut written = self.counts.written.lock().expect("no poison");
            // Enough to judge the data by; the whole run would be half a gigabyte.
            if written.len() < 16 << 20 {
                buffers
                    .iter()
                    .for_each(|buffer| written.extend_from_slice(buffer));
            }
            self.inner.write_at(buffers, offset)
        }

        fn sync(&self) -> Result<()> {
            self.fail("sync", &self.counts.syncs, self.faults.sync)?;
            self.inner.sync()
        }

        fn truncate(&self, size_bytes: u64) -> Result<()> {
            self.inner.truncate(size_bytes)
        }

        fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
            self.inner.allocate(offset, length_bytes)
        }

        fn punch(&self, offset: u64, length_bytes: u64) -> Result<()> {
            self.inner.punch(offset, length_bytes)
        }

        fn try_lock(&self, range: Range<u64>, kind: LockKind) -> Result<bool> {
            self.inner.try_lock(range, kind)
        }

        fn unlock(&self, range: Range<u64>) -> Result<()> {
            self.inner.unlock(range)
        }

        fn first_conflict(&self, range: Range<u64>, kind: LockKind) -> Result<Option<HeldLock>> {
            self.inner.first_conflict(range, kind)
        }

        fn status(&self) -> Result<FileStatus> {
            self.inner.status()
        }

        fn alignment_bytes(&self) -> usize {
            self.inner.alignment_bytes()
        }
    }

    /// One slice of each cell, and a deadline that only keeps a broken run from hanging.
    fn quick() -> ProbeOptions {
        ProbeOptions {
            time_max: Duration::from_secs(600),
            scratch_bytes: 2 << 20,
            rounds_max: 1,
            ..ProbeOptions::default()
        }
    }

    fn made_up(free_bytes: u64) -> Folder {
        Folder {
            path: PathBuf::from("/made/up"),
            file_system: "ext4".to_string(),
            allocation_unit_bytes: 4096,
            free_bytes,
            device: Some("sda".to_string()),
            is_rotational: Some(true),
        }
    }

    fn run_on(storage: &dyn Storage, options: &ProbeOptions) -> Result<ProbeReport> {
        let stop = AtomicBool::new(false);
        let folder = made_up(1 << 30);
        probe_storage(storage, folder, options, Instant::now(), &stop, &mut |_| {})
    }

    fn check_sound(report: &ProbeReport) {
        for cell in &report.cells {
            let Estimate { mean, low, high } = cell.seconds;
            assert!(0.0 < low && low <= mean && mean <= high, "{cell:?}");
            let fewest = if cell.pattern == Pattern::Mix9to1 {
                10
            } else {
                1
            };
            assert!(cell.operation_count >= fewest, "{cell:?}");
            assert!(cell.slice_count >= 1, "{cell:?}");
        }
        let moved = |direction| -> u64 {
            let cells = report
                .cells
                .iter()
                .filter(|cell| cell.direction == direction);
            cells.map(|cell| cell.bytes * cell.operation_count).sum()
        };
        assert!(report.read_bytes >= moved(Direction::Read));
        assert!(report.written_bytes >= moved(Direction::Write) + report.span_bytes);
        let medium = report.medium();
        medium.check().expect("a sound medium");
        assert_eq!(medium.source, Source::Measured);
        serde_json::to_string(report).expect("a report is JSON");
    }

    #[test]
    fn every_cell_is_measured_and_nothing_stays() {
        let storage = MemoryStorage::new();
        let report = run_on(&storage, &quick()).expect("memory does not fail");
        check_sound(&report);
        let keys: HashSet<_> = report
            .cells
            .iter()
            .map(|cell| (cell.direction, cell.pattern, cell.bytes, cell.depth))
            .collect();
        assert_eq!((report.cells.len(), keys.len()), (74, 74));
        assert!(
            report
                .cells
                .is_sorted_by_key(|cell| (cell.bytes, cell.depth))
        );
        assert_eq!(report.access, Access::Direct);
        assert_eq!(report.span_bytes, 2 << 20);
        assert!(!report.is_interrupted);
        assert!(storage.list("").expect("a folder").is_empty());
        // Each cell is found again in the medium, up to the pooling of noise.
        let medium = report.medium();
        for service in [&medium.read, &medium.write] {
            assert_eq!(service.curves.len(), 6);
            let points: Vec<usize> = service.curves.iter().map(|of| of.points.len()).collect();
            assert_eq!(points, [6, 7, 6, 6, 6, 6]);
        }
    }

    #[test]
    fn a_real_folder_is_measured_and_left_empty() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut scratches = Vec::new();
        let mut shares = Vec::new();
        let stop = AtomicBool::new(false);
        let report = probe(folder.path(), &quick(), &stop, &mut |event| match event {
            ProbeEvent::Scratch { path, bytes } => {
                assert!(!path.exists(), "announced before it is made");
                scratches.push((path.to_path_buf(), bytes));
            }
            ProbeEvent::Progress { share } => {
                let left = std::fs::read_dir(folder.path()).expect("a folder").count();
                assert_eq!(left, 0, "the file has no name while it is used");
                shares.push(share);
            }
        })
        .expect("a writable folder");
        check_sound(&report);
        assert_eq!(report.folder.path, folder.path());
        let [(path, bytes)] = &scratches[..] else {
            panic!("announced {scratches:?}");
        };
        assert_eq!((path.parent(), *bytes), (Some(folder.path()), 2 << 20));
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a name");
        assert!(name.starts_with(".breakeven-scratch-"), "{name}");
        assert!(shares.is_sorted() && shares.len() >= report.cells.len());
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            0
        );
        assert!(
            report
                .medium()
                .description
                .starts_with(&report.folder.file_system)
        );
    }

    #[test]
    fn a_failing_storage_is_named_and_left_empty() {
        let check = |faults: Faults, expected: &str| {
            let storage = faulty(faults);
            let error = run_on(&storage, &quick()).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
            assert!(error.contains(".breakeven-scratch-"), "{error}");
            assert!(storage.list("").expect("a folder").is_empty(), "{expected}");
        };
        let none = Faults::default();
        let write = |at, number| Faults {
            write: Some((at, number)),
            ..none
        };
        let read = |at, number| Faults {
            read: Some((at, number)),
            ..none
        };
        check(
            Faults {
                open: Some(libc::EACCES),
                ..none
            },
            "open .breakeven",
        );
        check(
            Faults {
                open: Some(libc::EROFS),
                ..none
            },
            "Read-only",
        );
        // On a full disk: at once, in the middle of the file, and while it is measured. However short
        // the slices are, there are 180 reads and as many writes.
        check(write(0, libc::ENOSPC), "No space left");
        check(write(1, libc::ENOSPC), "No space left");
        check(write(2, libc::EDQUOT), "quota");
        check(write(150, libc::EIO), "write .breakeven");
        check(read(0, libc::EIO), "read .breakeven");
        check(read(150, libc::EIO), "read .breakeven");
        check(
            Faults {
                sync: Some((0, libc::EIO)),
                ..none
            },
            "sync .breakeven",
        );
    }

    #[test]
    fn a_name_that_cannot_be_taken_away_is_told() {
        let storage = faulty(Faults {
            unlink: Some(libc::EPERM),
            ..Faults::default()
        });
        let error = run_on(&storage, &quick())
            .expect_err("no unlink")
            .to_string();
        assert!(error.contains("unlink .breakeven-scratch-"), "{error}");
        assert_eq!(storage.counts.writes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_refused_direct_access_is_labelled_and_synced() {
        let storage = faulty(Faults {
            direct_refused: true,
            ..Faults::default()
        });
        let report = run_on(&storage, &quick()).expect("buffered is good enough");
        check_sound(&report);
        let expected = "not supported: direct I/O here".to_string();
        assert_eq!(report.access, Access::Buffered { reason: expected });
        let text = report.medium().description;
        assert!(text.contains("through the page cache"), "{text}");
        // Once for the file, once for each of the 38 slices of writes.
        assert_eq!(storage.counts.syncs.load(Ordering::Relaxed), 39);
    }

    #[test]
    fn a_real_folder_without_direct_access_is_measured_through_the_cache() {
        let folder = tempfile::tempdir().expect("a folder");
        let storage = Faulty {
            inner: Arc::new(RealStorage::open_folder(folder.path()).expect("it is there")),
            ..faulty(Faults {
                direct_refused: true,
                ..Faults::default()
            })
        };
        let scratch = Scratch::create(&storage, folder.path(), "scratch").expect("a file");
        assert!(!scratch.is_direct() && scratch.cached.is_some());
        let place = Folder::look_up(folder.path()).expect("it is there");
        let stop = AtomicBool::new(false);
        let report = probe_storage(
            &storage,
            place,
            &quick(),
            Instant::now(),
            &stop,
            &mut |_| {},
        )
        .expect("a writable folder");
        check_sound(&report);
        assert_ne!(report.access, Access::Direct);
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            0
        );
    }

    #[test]
    fn data_can_be_neither_compressed_nor_deduplicated() {
        let storage = faulty(Faults::default());
        run_on(&storage, &quick()).expect("no fault");
        let written = storage.counts.written.lock().expect("no poison");
        assert!(written.len() >= 4 << 20);
        let blocks: HashSet<&[u8]> = written.chunks_exact(4096).collect();
        assert_eq!(blocks.len(), written.len() / 4096);
        let mut packed = vec![0; zstd_safe::compress_bound(written.len())];
        let packed_bytes = zstd_safe::compress(&mut packed[..], &written, 3).expect("it fits");
        assert!(
            packed_bytes >= written.len(),
            "{packed_bytes} of {}",
            written.len()
        );
    }

    #[test]
    fn the_stop_flag_is_honoured() {
        let check = |stop_after: usize| {
            let storage = faulty(Faults::default());
            let stop = AtomicBool::new(stop_after == 0);
            let mut slices = 0;
            let mut observe = |event: ProbeEvent<'_>| {
                if let ProbeEvent::Progress { .. } = event {
                    slices += 1;
                    stop.store(slices >= stop_after, Ordering::Relaxed);
                }
            };
            let folder = made_up(1 << 30);
            let options = quick();
            let result = probe_storage(
                &storage,
                folder,
                &options,
                Instant::now(),
                &stop,
                &mut observe,
            );
            assert_eq!(slices, stop_after);
            assert!(storage.list("").expect("a folder").is_empty());
            let writes = storage.counts.writes.load(Ordering::Relaxed);
            (result, writes)
        };
        let (result, writes) = check(0);
        assert!(matches!(result, Err(Error::Interrupted)));
        assert_eq!(writes, 0);
        // A read alone is no answer; a read and a write of one size are.
        assert!(matches!(check(1).0, Err(Error::Interrupted)));
        let report = check(2).0.expect("what is known so far");
        assert!(report.is_interrupted);
        assert_eq!(report.cells.len(), 2);
        check_sound(&report);
    }

    #[test]
    fn bytes_written_are_bounded() {
        let options = ProbeOptions {
            scratch_bytes: 64 << 20,
            written_bytes_max: 5 << 20,
            rounds_max: 2,
            ..quick()
        };
        let report = run_on(&MemoryStorage::new(), &options).expect("both directions");
        assert_eq!(report.span_bytes, 2 << 20);
        assert!(report.written_bytes <= options.written_bytes_max);
        let reads = report
            .cells
            .iter()
            .filter(|cell| cell.direction == Direction::Read);
        assert_eq!(reads.count(), 37);
        check_sound(&report);
    }

    #[test]
    fn limits_that_allow_nothing_are_refused() {
        let check = |scratch_bytes, written_bytes_max, free_bytes, expected: &str| {
            let options = ProbeOptions {
                scratch_bytes,
                written_bytes_max,
                ..quick()
            };
            let storage = MemoryStorage::new();
            let stop = AtomicBool::new(false);
            let folder = made_up(free_bytes);
            let error = probe_storage(
                &storage,
                folder,
                &options,
                Instant::now(),
                &stop,
                &mut |_| {},
            )
            .expect_err(expected)
            .to_string();
            assert!(error.contains(expected), "{error}");
            assert!(storage.list("").expect("a folder").is_empty());
        };
        check(0, 1 << 30, 1 << 30, "scratch_bytes is 0");
        check(2 << 30, 1 << 30, 1 << 30, "expected 1 MiB to 1 GiB");
        check(1 << 20, 1 << 20, 1 << 30, "1048576 may be written");
        check(1 << 20, 1 << 30, 100_000, "/made/up has 100000 bytes free");
        let stop = AtomicBool::new(false);
        let error = probe(Path::new("/proc"), &quick(), &stop, &mut |_| {});
        let error = error.expect_err("no disk").to_string();
        assert!(error.contains("/proc has 0 bytes free"), "{error}");
        let error = probe(Path::new("/no/such"), &quick(), &stop, &mut |_| {});
        let error = error.expect_err("nothing there").to_string();
        assert!(error.contains("/no/such"), "{error}");
    }

    #[test]
    fn no_time_at_all_and_too_much_are_told() {
        let options = ProbeOptions {
            time_max: Duration::MAX,
            ..quick()
        };
        let error = run_on(&MemoryStorage::new(), &options).expect_err("too long");
        assert!(
            error.to_string().contains("expected at most 3600s"),
            "{error}"
        );
        let options = ProbeOptions {
            time_max: Duration::ZERO,
            ..quick()
        };
        let storage = MemoryStorage::new();
        let error = run_on(&storage, &options).expect_err("no time").to_string();
        assert!(
            error.contains("/made/up is too slow to measure in 0 s"),
            "{error}"
        );
        assert!(storage.list("").expect("a folder").is_empty());
    }

    #[test]
    fn positions_follow_the_pattern() {
        let options = quick();
        let stop = AtomicBool::new(false);
        let storage = MemoryStorage::new();
        let now = Instant::now();
        let mut run = Run {
            scratch: Scratch::create(&storage, Path::new(""), "scratch").expect("a file"),
            options: &options,
            stop: &stop,
            start: now,
            deadline: now,
            random: fastrand::Rng::with_seed(3),
            payload: memory(STREAM_BYTES).expect("memory"),
            buffers: memory(STREAM_BYTES).expect("memory"),
            span_bytes: 64 << 20,
            cursor_bytes: 0,
            written_bytes: 0,
            read_bytes: 0,
        };
        let mut jumps = |pattern: Pattern, bytes: usize| {
            let offsets = run.offsets(pattern, bytes, 1000);
            let in_range = |&offset: &u64| {
                offset.is_multiple_of(bytes as u64) && offset + bytes as u64 <= 64 << 20
            };
            assert_eq!(offsets.len(), 1000);
            assert!(offsets.iter().all(in_range), "{pattern:?} {bytes}");
            let follows = |pair: &&[u64]| pair[1] == (pair[0] + bytes as u64) % (64 << 20);
            999 - offsets.windows(2).filter(follows).count()
        };
        assert_eq!(jumps(Pattern::Sequential, 4096), 0);
        // The next stream goes on where the last one ended.
        assert_eq!(jumps(Pattern::Sequential, 131_072), 0);
        assert!((98..=99).contains(&jumps(Pattern::Mix9to1, 4096)));
        assert!(jumps(Pattern::Random, 4096) > 990);
        let offsets = run.offsets(Pattern::Sequential, 4096, 1);
        assert_ne!(offsets, [0]);
    }

    #[test]
    fn intervals_of_the_median_by_hand() {
        let interval = |values: &[f64]| {
            let Estimate { mean, low, high } = median_interval(values).expect("values");
            (mean, low, high)
        };
        assert_eq!(median_interval(&[]), None);
        assert_eq!(interval(&[3.0]), (3.0, 1.0, 9.0));
        assert_eq!(interval(&[3.0, 6.0]), (4.5, 2.0, 9.0));
        assert_eq!(interval(&[6.0, 1.0, 5.0, 2.0, 4.0, 3.0]), (3.5, 1.0, 6.0));
        let nine: Vec<f64> = (1..=9).map(f64::from).collect();
        assert_eq!(interval(&nine), (5.0, 2.0, 8.0));
        assert_eq!(median_range(&[]), None);
        assert_eq!(median_range(&[3.0]), median_interval(&[3.0]));
        let Estimate { mean, low, high } = median_range(&nine).expect("values");
        assert_eq!((mean, low, high), (5.0, 1.0, 9.0));
        let Estimate { mean, low, high } = fastest_range(&nine).expect("values");
        assert_eq!((mean, low, high), (1.0, 1.0, 9.0));
        assert_eq!(
            [spread(&nine), spread(&[2.0]), spread(&[])],
            [9.0, 1.0, 1.0]
        );
    }
}
