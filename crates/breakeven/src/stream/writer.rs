//! The writer: blocks to the workers, frames to the sink, in order and with back-pressure.
//!
//! ```text
//! caller --raw block--> worker 1..N --frame--> I/O thread --> sink
//!    ^                     |                       |
//!    +----- raw buffer ----+     frame buffer -----+--> caller, or the next asynchronous block
//! ```
//!
//! A stored block in a buffer of the writer's is not copied. Its frame is written around it where it lies, and its raw
//! buffer and the frame buffer change places. A block in a lent buffer is copied, because its owner needs the buffer
//! back.
//!
//! Each block leaves with a frame buffer, which comes back when its frame is written. So the workers are ahead of the
//! sink by at most as many blocks as there are frame buffers: Hirsch's pipeline (2017, section 4.1). It has at least 2
//! N buffers (equation 4.1); here there are 2 N + 4.
//!
//! Bytes come in three ways. [`Writer::write_all`] is for a stream: it returns when the bytes are copied.
//! [`Writer::write_at`] and [`Writer::write_async`] are the thesis's calls, with a place in the stream. `write_at`
//! returns when its bytes are compressed. `write_async` returns at once, and a caller may then wait for its buffer.
//! Compressed bytes that are not yet written drain from the frame buffers in the background.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::codec::{Codec, Method};
use crate::decide::Profile;
use crate::error::{Error, Result};
use crate::frame::{is_portable, is_storable};
use crate::pool::Pool;
use crate::units::{BytesPerSecond, Seconds};

use super::books::Books;
use super::drain::{Drain, Drained};
use super::feed::{Buffer, Feed, Job, Part, Piece, Raw};
use super::hint::{Hint, Hints, Outlook};
#[cfg(test)]
use super::kill_test as kill;
use super::pick::{Choice, Picker, Priced};
use super::price::Goal;
use super::shared::Shared;
use super::split::{Workspace, frames_bytes_max, part_frame_bytes_max};

/// The frames that a stream may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Container {
    /// Zstandard and skippable frames: any zstd reads them.
    #[default]
    Portable,
    /// LZ4 and xz frames as well: a zstd linked with liblz4 and liblzma reads them.
    Mixed,
}

impl Container {
    /// Returns whether a method's frames may stand in this container.
    pub fn holds(self, method: Method) -> bool {
        match self {
            Container::Portable => is_portable(method),
            Container::Mixed => is_storable(method),
        }
    }

    /// Returns the methods that a goal picks from by default.
    pub fn arms(self) -> Vec<Method> {
        let mixed = match self {
            Container::Portable => &[][..],
            Container::Mixed => &MIXED_ARMS,
        };
        let arms = PORTABLE_ARMS.iter().chain(mixed);
        arms.map(|name| name.parse().expect("a method of the list"))
            .collect()
    }
}

/// Methods that a goal picks from in every container.
const PORTABLE_ARMS: [&str; 11] = [
    "store", "zstd:-7", "zstd:-3", "zstd:-1", "zstd:1", "zstd:3", "zstd:5", "zstd:9", "zstd:12",
    "zstd:15", "zstd:19",
];
/// The further methods of a mixed stream.
const MIXED_ARMS: [&str; 6] = ["lz4:a32", "lz4:a8", "lz4:1", "xz:1", "xz:6", "delta8+xz:1"];

/// How a stream is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// The frames that it may hold. Default portable.
    pub container: Container,
    /// The choice of each block's method. Default `zstd:3` for all.
    pub choice: Choice,
    /// Raw bytes of each block but the last, 4 KiB to 64 MiB. Default 1 MiB.
    pub block_bytes: usize,
    /// Total raw bytes to come: zstd's pledged source size. It is a hint. With it no method is tried that cannot pay on
    /// the bytes to come, and a promised time ([`Goal::Within`]) is used to its end. Any other number of bytes is
    /// written as well. If up to 2 N + 4 blocks fewer come, for N workers, the stream may be late: by the time that
    /// those blocks would have given back. Default none.
    ///
    /// [`Goal::Within`]: super::Goal::Within
    pub pledged_source_bytes: Option<u64>,
    /// The speed of the link in a stream before this one into the same sink. An adaptive stream without a given link
    /// begins with this speed, and then follows its own writes. Default none.
    pub link_seen: Option<BytesPerSecond>,
    /// The caller sets it to stop: waits then end within a second. Default none.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            container: Container::Portable,
            choice: Choice::Fixed(Method::of(Codec::Zstd { level: 3 })),
            block_bytes: 1 << 20,
            pledged_source_bytes: None,
            link_seen: None,
            stop: None,
        }
    }
}

impl WriterOptions {
    /// Returns the options of a portable stream that adapts. Each block is compressed for the goal on this machine and
    /// at the speed of this sink. Both are measured while the stream is written.
    pub fn adaptive(goal: Goal) -> WriterOptions {
        let container = Container::default();
        let priced = Priced {
            goal,
            arms: container.arms(),
            link: None,
            profile: Profile::default(),
        };
        WriterOptions {
            container,
            choice: Choice::Priced(Box::new(priced)),
            ..WriterOptions::default()
        }
    }

    /// Checks that the values are in range and the method's frames may stand in the container.
    ///
    /// # Errors
    ///
    /// `Invalid`, with the accepted values.
    pub fn check(&self) -> Result<()> {
        if !(4 << 10..=64 << 20).contains(&self.block_bytes) {
            let reason = format!("{} bytes are outside 4 KiB to 64 MiB", self.block_bytes);
            return Err(Error::invalid("block of a stream", reason));
        }
        if self.choice.methods().is_empty() {
            return Err(Error::invalid("methods of a stream", "there are none"));
        }
        for method in self.choice.methods() {
            method.check()?;
            if !self.container.holds(*method) {
                let accepted = match self.container {
                    Container::Portable => "store and zstd; a mixed stream also takes lz4 and xz",
                    Container::Mixed => "store, zstd, lz4, lz4hc and xz, and delta before xz",
                };
                let reason = format!("{method} is none of {accepted}");
                return Err(Error::invalid("method of a stream", reason));
            }
        }
        Ok(())
    }

    /// Returns the most memory that a writer takes with `worker_count` workers, beside 12 bytes for each frame written.
    ///
    /// With N workers (at least 1) it has 3 N + 6 buffers as long as the longest frames of a block: 2 N + 4 for frames
    /// and N + 2 for raw blocks. The methods take N times their memory ([`Method::compressor_bytes`], the most of each
    /// codec). A goal may split blocks, and this takes N times half a block more.
    pub fn memory_bytes(&self, worker_count: usize) -> usize {
        let workers = worker_count.max(1);
        let part_bytes = match self.choice {
            Choice::Priced(_) => part_frame_bytes_max(self.block_bytes),
            Choice::Fixed(_) | Choice::Frozen(_) | Choice::Rule(_) => 0,
        };
        (frame_count(workers) + raw_count(workers)) * frames_bytes_max(self.block_bytes)
            + workers * (self.choice.compressor_bytes(self.block_bytes) + part_bytes)
    }
}

fn frame_count(workers: usize) -> usize {
    2 * workers + 4
}

fn raw_count(workers: usize) -> usize {
    // One for each worker, one waiting for a worker, one being filled.
    workers + 2
}

/// The totals of a finished stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Blocks written.
    pub blocks: u64,
    /// Blocks whose method did not make them smaller, or that are one byte repeated.
    pub plain_blocks: u64,
    /// Bytes that came in.
    pub raw_bytes: u64,
    /// All bytes written, tables and headers included.
    pub stored_bytes: u64,
    /// From the first call until all blocks are compressed: the wait of an application.
    pub compressed_after: Seconds,
    /// From the first call until the last byte is written.
    pub drained_after: Seconds,
}

impl Summary {
    /// Returns the ratio, raw over stored bytes.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.stored_bytes.max(1) as f64
    }
}

/// The times at which the bytes of a call were done, counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CallTimes {
    /// When all of it was compressed, which is the duration of a synchronous call; `None` before that.
    pub compressed_after: Option<Seconds>,
    /// When the sink had taken all of it; `None` before that.
    pub drained_after: Option<Seconds>,
}

/// Writes a stream of frames into a sink.
///
/// Dropping an unfinished writer leaves the stream without its last blocks and without a seek table. The drop does not
/// wait for the sink.
///
/// # Cost
///
/// Memory as [`WriterOptions::memory_bytes`], taken at the start, and one thread beside the pool's. A stored block goes
/// to the sink by vectored writes, one if it is of 1 MiB. A sink without vectored writes gets 18 short and long ones
/// for that block. A block of [`Writer::write_async`] is copied and goes by a plain write. Nothing is allocated for a
/// block after each buffer was used once, except by xz and for a block that is split.
///
/// # Example
///
/// ```
/// use breakeven::pool::{Pool, PoolOptions};
/// use breakeven::stream::{Writer, WriterOptions};
///
/// let pool = Pool::new(PoolOptions { worker_count: 2 })?;
/// let mut writer = Writer::new(Vec::new(), &pool, WriterOptions::default())?;
/// writer.write_all(&vec![7; 3_000_000])?;
/// let (stream, summary) = writer.finish()?;
/// assert_eq!((summary.blocks, summary.stored_bytes), (3, stream.len() as u64));
/// # Ok::<(), breakeven::Error>(())
/// ```
///
/// A checkpoint that is compressed while the next step is computed:
///
/// ```
/// # use breakeven::pool::{Pool, PoolOptions};
/// # use breakeven::stream::{Writer, WriterOptions};
/// # let pool = Pool::new(PoolOptions { worker_count: 2 })?;
/// # let mut writer = Writer::new(Vec::new(), &pool, WriterOptions::default())?;
/// let state = vec![1; 5_000_000];
/// let pending = writer.write_async(state, 0)?;
/// let next = vec![2; 5_000_000]; // computed meanwhile
/// let mut state = pending.wait()?;
/// state.copy_from_slice(&next);
/// writer.write_at(&state, 5_000_000)?;
/// let (_, summary) = writer.finish()?;
/// assert_eq!(summary.raw_bytes, 10_000_000);
/// # Ok::<(), breakeven::Error>(())
/// ```
pub struct Writer<S: Write + Send + 'static> {
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    picker: Arc<Picker>,
    drain: Option<JoinHandle<(S, Drained)>>,
    filling: Option<Filling>,
    hints: Hints,
    block_bytes: usize,
    /// Bytes taken so far.
    position: u64,
    /// Blocks handed on so far, and those of the waiting parts.
    blocks: u64,
    flushes: u64,
    begun: Option<Instant>,
    /// Whose workers compress.
    process: u32,
}

/// The block that is being filled.
struct Filling {
    raw: Vec<u8>,
    /// The hints on all of it.
    outlook: Outlook,
    /// Its end: that of a hint, or of the buffer.
    end_bytes: usize,
}

impl<S: Write + Send + 'static> Writer<S> {
    /// Begins a stream on the workers of `pool`.
    ///
    /// # Errors
    ///
    /// `Invalid` for an option out of range, `OutOfMemory` without memory, `Io` if the system starts no thread.
    pub fn new(sink: S, pool: &Pool, options: WriterOptions) -> Result<Writer<S>> {
        options.check()?;
        let workers = pool.worker_count().max(1);
        let block_bytes = options.block_bytes;
        // A stored block swaps its two buffers, so both kinds have one length.
        let frame_bytes = frames_bytes_max(block_bytes);
        let buffers = raw_count(workers) + frame_count(workers);
        Error::try_memory(buffers * frame_bytes, "buffers of a stream")?;
        let raw = (0..raw_count(workers)).map(|_| Vec::with_capacity(frame_bytes));
        let frames = (0..frame_count(workers)).map(|_| vec![0; frame_bytes]);
        let shared = Shared::new(raw.collect(), frames.collect(), options.stop.clone());
        let picker = Arc::new(Picker::new(options.choice, workers, frame_count(workers)));
        if let Some(bytes) = options.pledged_source_bytes {
            picker.pledge(bytes);
        }
        if let Some(link) = options.link_seen {
            picker.expect_link(link);
        }
        let (from_worker, picks) = (Arc::clone(&shared), Arc::clone(&picker));
        let work = move |workspace: &mut Workspace, job| work(workspace, &picks, &from_worker, job);
        // A flush and the end have no frame buffer, so they need places of their own.
        let stage = pool.stage(frame_count(workers) + 2, Workspace::default, work)?;
        let (submitter, results) = stage.split();
        let feed = Feed::new(submitter, Arc::clone(&shared));
        let drain = Drain {
            results,
            shared: Arc::clone(&shared),
            picker: Arc::clone(&picker),
            feed: Arc::downgrade(&feed),
            frame_bytes,
        };
        let drain = std::thread::Builder::new()
            .name("breakeven-io".to_string())
            .spawn(move || drain.run(sink))
            .map_err(|error| Error::io("start", "an I/O thread", error))?;
        Ok(Writer {
            shared,
            feed,
            picker,
            drain: Some(drain),
            filling: None,
            hints: Hints::default(),
            block_bytes,
            position: 0,
            blocks: 0,
            flushes: 0,
            process: std::process::id(),
            begun: None,
        })
    }

    /// Returns the books, which stay open after the end of the stream. `None` where one method is fixed for all blocks:
    /// then nothing is decided or booked.
    pub fn books(&self) -> Option<Books> {
        (self.picker.keeps_books()).then(|| Books(Arc::clone(&self.picker)))
    }

    /// Returns the bytes taken so far. They are the place of the next byte of [`Writer::write_all`], and the least
    /// place for a call.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns when the bytes of the last [`Writer::write_at`] or [`Writer::write_async`] were done, if they are.
    /// `None` before the first.
    pub fn call_times(&self) -> Option<CallTimes> {
        let (compressed_after, drained_after) = self.shared.call_times()?;
        Some(CallTimes {
            compressed_after,
            drained_after,
        })
    }

    /// Takes a hint on bytes that are not written yet. A block ends where a hint begins or ends, so
    /// ranges are best some MiB long. Hints may overlap; of one type, the last one counts.
    ///
    /// Hints count as prices do. With [`Choice::Fixed`] only [`Advice::NoCompression`] does anything. With a goal they
    /// set the block's life and the workers' time.
    ///
    /// [`Advice::NoCompression`]: super::Advice::NoCompression
    ///
    /// # Errors
    ///
    /// `Invalid` for a payload that does not fit its type. A hint of an unknown type is ignored. As
    /// [`Writer::write_all`] where it ends a block that is being filled.
    pub fn advise(&mut self, hint: &Hint) -> Result<()> {
        let Some(advice) = hint.advice()? else {
            return Ok(());
        };
        if hint.range.end <= self.position {
            return Ok(());
        }
        let unfinished = self.filling.as_ref().map_or(0, |it| it.raw.len());
        let full_at = self.position - unfinished as u64 + self.block_bytes as u64;
        if hint.range.start < full_at {
            self.submit_block()?;
        }
        self.hints.forget_before(self.position);
        self.hints.take(hint.range.clone(), advice);
        Ok(())
    }

    /// Takes all of `bytes`; waits while the sink is behind.
    ///
    /// # Errors
    ///
    /// `Io` if the sink failed, `Panicked` if a worker did, each once; `Interrupted` if the caller's
    /// stop flag was set. The stream is then `Poisoned`.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.fill(bytes.len() as u64, |raw, count| {
            let (now, later) = bytes.split_at(count);
            raw.extend_from_slice(now);
            bytes = later;
        })
    }

    /// Writes `bytes` to a place of the stream, and returns when all of it is compressed. Its first byte begins a
    /// block, and its last one ends a block.
    ///
    /// Places ascend: `offset` is at least [`Writer::position`]. The gap before them is zeros, which take 45 bytes and
    /// some 0.1 ms for each MiB.
    ///
    /// Source: `lwrite` (Hirsch 2017, listing 4.1 and section 4.1).
    ///
    /// # Errors
    ///
    /// `Invalid` for a place that was written before or an end beyond 2^64, and the stream goes on.
    /// Otherwise as [`Writer::write_all`].
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.begin_call(bytes.len(), offset)?;
        self.write_all(bytes)?;
        self.submit_block()?;
        self.shared.change(|state| state.end_call(self.blocks));
        self.shared.wait_compressed(self.blocks)
    }

    /// Writes a buffer to a place of the stream in the background, and returns at once. The buffer is compressed where
    /// it lies, and [`Pending::wait`] waits for it.
    ///
    /// Places are as in [`Writer::write_at`], and later bytes wait behind these. Here only a gap, or the end of an
    /// unfinished block before `offset`, may have to wait for the sink.
    ///
    /// Source: `lwrite_async` (Hirsch 2017, listing 4.1 and section 4.1).
    ///
    /// # Errors
    ///
    /// As [`Writer::write_at`], for errors so far. The buffer is then dropped.
    ///
    /// # Cost
    ///
    /// Two allocations for the call, none for a block.
    pub fn write_async<B: AsRef<[u8]> + Send + Sync + 'static>(
        &mut self,
        buffer: B,
        offset: u64,
    ) -> Result<Pending<B>> {
        let length = buffer.as_ref().len();
        self.begin_call(length, offset)?;
        let buffer = Arc::new(buffer);
        let mut parts = Vec::with_capacity(1);
        let mut at = 0;
        while at < length {
            let (outlook, end) = self.hints.at(offset + at as u64);
            let end = usize::try_from(end - offset).map_or(length, |end| end.min(length));
            parts.push(Part {
                buffer: Arc::<B>::clone(&buffer) as Buffer,
                range: at..end,
                outlook,
                block_bytes: self.block_bytes,
            });
            at = end;
        }
        self.blocks += parts.iter().map(Part::blocks).sum::<u64>();
        self.position += length as u64;
        let blocks = self.blocks;
        self.shared.change(|state| {
            state.end_call(blocks);
            state.queue(&mut parts)
        })?;
        if let Err(error) = self.feed.pump() {
            drop(self.shared.abandon());
            // A worker may have begun with the buffer, which now belongs to the caller again. A forked child has no
            // workers.
            if self.process == std::process::id() {
                let is_free = || Arc::strong_count(&buffer) == 1;
                self.shared.wait_until(is_free);
            }
            return Err(error);
        }
        Ok(Pending {
            buffer,
            blocks,
            shared: Arc::clone(&self.shared),
        })
    }

    /// Ends the current block early and waits until all bytes so far have reached the sink, flushed.
    ///
    /// # Errors
    ///
    /// As [`Writer::write_all`].
    pub fn flush(&mut self) -> Result<()> {
        self.submit_block()?;
        self.flushes += 1;
        let wanted = self.flushes;
        self.feed.mark(Job::Flush)?;
        self.shared
            .wait(|state| (state.flushed >= wanted).then_some(()))
    }

    /// Ends the stream: the last block, the seek table, and a flush of the sink. Returns the sink.
    ///
    /// # Errors
    ///
    /// As [`Writer::write_all`].
    pub fn finish(self) -> Result<(S, Summary)> {
        self.end(true)
    }

    /// Ends the row of frames without a seek table, so that another writer may go on in the same sink.
    ///
    /// # Errors
    ///
    /// As [`Writer::write_all`].
    pub fn leave(self) -> Result<(S, Summary)> {
        self.end(false)
    }

    fn end(mut self, has_table: bool) -> Result<(S, Summary)> {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.submit_block()?;
        self.shared.wait_compressed(self.blocks)?;
        let compressed_after = seconds(begun);
        self.feed.mark(Job::End { has_table })?;
        self.shared.wait(|state| state.has_ended.then_some(()))?;
        let drain = self.drain.take().expect("a stream is finished once");
        let (sink, drained) = drain.join().map_err(|_| Error::Panicked {
            what: "I/O thread",
            message: "no message".to_string(),
        })?;
        let summary = Summary {
            blocks: drained.blocks,
            plain_blocks: drained.plain_blocks,
            raw_bytes: self.position,
            stored_bytes: drained.stored_bytes,
            compressed_after,
            drained_after: seconds(begun),
        };
        Ok((sink, summary))
    }

    /// Checks a call's place, brings the stream there, and begins to count its time.
    fn begin_call(&mut self, length: usize, offset: u64) -> Result<()> {
        let begun = Instant::now();
        let Some(gap) = offset.checked_sub(self.position) else {
            let reason = format!(
                "byte {offset} was written before: the stream is at byte {}",
                self.position
            );
            return Err(Error::invalid("place in a stream", reason));
        };
        if offset.checked_add(length as u64).is_none() {
            let reason = format!("{length} bytes from byte {offset} on end beyond 2^64");
            return Err(Error::invalid("place in a stream", reason));
        }
        self.shared.change(|state| state.begin_call(begun));
        self.begun.get_or_insert(begun);
        self.fill(gap, |raw, count| raw.resize(raw.len() + count, 0))?;
        self.submit_block()
    }

    /// Fills blocks with `count` bytes, which `put` appends in pieces, and hands on those that are
    /// full.
    fn fill(&mut self, mut count: u64, mut put: impl FnMut(&mut Vec<u8>, usize)) -> Result<()> {
        self.begun.get_or_insert_with(Instant::now);
        while count > 0 {
            let mut filling = match self.filling.take() {
                Some(filling) => filling,
                None => self.begin_block()?,
            };
            let room = filling.end_bytes - filling.raw.len();
            let now = usize::try_from(count).map_or(room, |count| count.min(room));
            put(&mut filling.raw, now);
            count -= now as u64;
            self.position += now as u64;
            let is_full = filling.raw.len() == filling.end_bytes;
            self.filling = Some(filling);
            if is_full {
                self.submit_block()?;
            }
        }
        Ok(())
    }

    fn begin_block(&mut self) -> Result<Filling> {
        let (outlook, end) = self.hints.at(self.position);
        let until_end = usize::try_from(end - self.position).unwrap_or(usize::MAX);
        Ok(Filling {
            raw: self.shared.wait(|state| state.raw.pop())?,
            outlook,
            end_bytes: until_end.min(self.block_bytes),
        })
    }

    /// Hands the block that is being filled to the workers, if there is one.
    fn submit_block(&mut self) -> Result<()> {
        let Some(filling) = self.filling.take() else {
            return Ok(());
        };
        self.blocks += 1;
        self.feed.block(filling.raw, filling.outlook)
    }
}

fn seconds(since: Instant) -> Seconds {
    Seconds(since.elapsed().as_secs_f64())
}

impl<S: Write + Send + 'static> Drop for Writer<S> {
    fn drop(&mut self) {
        if self.drain.is_some() {
            drop(self.shared.abandon());
        }
    }
}

impl<S: Write + Send + 'static> Write for Writer<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Writer::flush(self).map_err(io::Error::other)
    }
}

/// A buffer that is being compressed. Dropping it releases the buffer after its last block.
#[must_use = "the buffer comes back by waiting for it"]
pub struct Pending<B> {
    buffer: Arc<B>,
    /// Blocks of the stream up to its last.
    blocks: u64,
    shared: Arc<Shared>,
}

impl<B> Pending<B> {
    /// Waits until the buffer is compressed and gives it back. Unwritten bytes drain from the frame buffers. The wait
    /// may also come after the end of the stream.
    ///
    /// Source: `lwait` (Hirsch 2017, listing 4.1 and section 4.1).
    ///
    /// # Errors
    ///
    /// As [`Writer::write_all`]; `Poisoned` if the writer was dropped. Except for `Interrupted`, nobody reads the
    /// buffer any more, and it is dropped.
    pub fn wait(self) -> Result<B> {
        let outcome = self.shared.wait_compressed(self.blocks);
        let is_free = || Arc::strong_count(&self.buffer) == 1;
        self.shared.wait_for(|_| is_free().then_some(()))?;
        let buffer = Arc::into_inner(self.buffer);
        outcome.map(|()| buffer.expect("a buffer that everybody let go"))
    }

    /// Waits until the buffer is compressed, and keeps it.
    ///
    /// # Errors
    ///
    /// As [`Pending::wait`]; a worker may then still read the buffer.
    pub fn wait_compressed(&self) -> Result<()> {
        self.shared.wait_compressed(self.blocks)
    }

    /// Waits until nobody reads the buffer any more, despite any failure and the stop flag. If the stream was stopped,
    /// its writer must be dropped first, or this waits for the sink.
    pub fn let_go(self) {
        let is_free = || Arc::strong_count(&self.buffer) == 1;
        self.shared.wait_until(is_free);
    }
}

impl<B> fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending(up to block {})", self.blocks)
    }
}

/// A worker's function for a job.
fn work(workspace: &mut Workspace, picker: &Picker, shared: &Shared, job: Job) -> Result<Piece> {
    let (mut raw, outlook, mut frame) = match job {
        Job::Block {
            raw,
            outlook,
            frame,
        } => (raw, outlook, frame),
        Job::Flush => return Ok(Piece::Flush),
        Job::End { has_table } => return Ok(Piece::End { has_table }),
    };
    // Parts before this block in the stream go first.
    picker.help(workspace);
    #[cfg(test)]
    kill::begin(raw.bytes());
    let outcome = picker.encode(workspace, (&mut raw, &mut frame), &outlook);
    // The caller has its bytes back before it learns of their compression.
    let own = match raw {
        Raw::Own(mut raw) => {
            if outcome.as_ref().is_ok_and(|frames| frames.is_left) {
                // A stored block leaves in its own buffer.
                std::mem::swap(&mut raw, &mut frame);
            }
            raw.clear();
            Some(raw)
        }
        Raw::Lent(lent) => {
            drop(lent);
            None
        }
    };
    shared.change(|state| {
        state.raw.extend(own);
        if outcome.is_ok() {
            state.compressed_block();
        }
    });
    let frames = outcome?;
    #[cfg(test)]
    kill::at(kill::Step::GivenBack);
    picker.frame_waits();
    Ok(Piece::Frames {
        buffer: frame,
        frames,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::frame::SeekTable;
    use crate::pool::PoolOptions;

    const BLOCK: usize = 16 << 10;

    fn pool(worker_count: usize) -> Pool {
        Pool::new(PoolOptions { worker_count }).unwrap()
    }

    fn options(method: &str) -> WriterOptions {
        WriterOptions {
            container: Container::Mixed,
            choice: Choice::Fixed(method.parse().unwrap()),
            block_bytes: BLOCK,
            ..WriterOptions::default()
        }
    }

    /// Text, noise, runs and numbers, in pieces that are no multiple of a block.
    fn data() -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(3);
        let mut data = Vec::new();
        for round in 0..4_u32 {
            data.extend(
                "what is saved must be more than what is spent; "
                    .repeat(900)
                    .bytes(),
            );
            data.extend((0..40_000).map(|_| random.u8(..)));
            data.extend(vec![round as u8; 50_000]);
            data.extend((0..9_000_u32).flat_map(|i| (i * (round + 1)).to_le_bytes()));
        }
        data
    }

    fn pack(pool: &Pool, options: WriterOptions, data: &[u8], piece: usize) -> (Vec<u8>, Summary) {
        let mut writer = Writer::new(Vec::new(), pool, options).unwrap();
        for piece in data.chunks(piece) {
            writer.write_all(piece).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn portable_streams_decode_with_libzstd_and_do_not_depend_on_threads() {
        let data = data();
        for method in ["store", "zstd:-5", "zstd:1", "zstd:9"] {
            let options = WriterOptions {
                container: Container::Portable,
                ..options(method)
            };
            let mut streams = Vec::new();
            for (worker_count, piece) in [(0, 1000), (1, data.len()), (3, BLOCK)] {
                let (stream, summary) = pack(&pool(worker_count), options.clone(), &data, piece);
                let mut back = vec![0; data.len() + 1];
                let size = zstd_safe::decompress(&mut back[..], &stream);
                assert_eq!(size, Ok(data.len()), "{method}");
                assert!(back[..data.len()] == data, "{method}");
                assert_eq!(summary.raw_bytes, data.len() as u64);
                assert_eq!(summary.stored_bytes, stream.len() as u64);
                assert_eq!(summary.blocks, data.len().div_ceil(BLOCK) as u64);
                assert!(summary.compressed_after <= summary.drained_after);
                streams.push(stream);
            }
            assert!(
                streams.windows(2).all(|pair| pair[0] == pair[1]),
                "{method}"
            );
        }
    }

    #[test]
    fn the_table_lists_the_frames() {
        let data = data();
        let (stream, summary) = pack(&pool(2), options("lz4:1"), &data, 7777);
        let footer = stream.last_chunk().unwrap();
        let table_bytes = SeekTable::frame_bytes_by_footer(footer).unwrap();
        let start = stream.len() - table_bytes as usize;
        let table = SeekTable::from_frame(&stream[start..]).unwrap();
        assert_eq!(table.stored_bytes(), start as u64);
        assert_eq!(table.entries.len() as u64, summary.blocks + 1);
        let mut content = &data[..];
        for entry in &table.entries {
            let block = content.split_off(..entry.content_bytes as usize).unwrap();
            assert_eq!(entry.check, xxhash_rust::xxh64::xxh64(block, 0) as u32);
        }
        assert!(content.is_empty());
    }

    #[test]
    fn an_empty_stream_and_a_flush_are_whole_frames() {
        let (stream, summary) = pack(&pool(1), options("zstd:1"), &[], 1);
        assert_eq!((stream.len(), summary.blocks), (9 + 8 + 12 + 9, 0));
        let mut writer = Writer::new(Vec::new(), &pool(1), options("zstd:1")).unwrap();
        writer.write_all(b"one").unwrap();
        writer.flush().unwrap();
        writer.write_all(b"two").unwrap();
        let (stream, summary) = writer.finish().unwrap();
        assert_eq!(summary.blocks, 2);
        let mut back = [0; 6];
        assert_eq!(zstd_safe::decompress(&mut back[..], &stream), Ok(6));
        assert_eq!(&back, b"onetwo");
    }

    #[test]
    fn wrong_options_are_refused() {
        let portable = |method| WriterOptions {
            container: Container::Portable,
            ..options(method)
        };
        let small = WriterOptions {
            block_bytes: 100,
            ..options("store")
        };
        for wrong in [
            portable("lz4:1"),
            portable("xz:6"),
            options("deflate:6"),
            small,
        ] {
            assert!(
                matches!(wrong.check(), Err(Error::Invalid { .. })),
                "{wrong:?}"
            );
        }
    }

    /// A sink that takes a few bytes at a time and fails at a call, once or for ever.
    struct Faulty {
        taken: Arc<Mutex<Vec<u8>>>,
        calls_left: usize,
        fails_once: bool,
        panics: bool,
    }

    impl Faulty {
        /// A sink that does not fail.
        fn sound(taken: &Arc<Mutex<Vec<u8>>>) -> Faulty {
            Faulty {
                taken: Arc::clone(taken),
                calls_left: usize::MAX,
                fails_once: true,
                panics: false,
            }
        }
    }

    impl Write for Faulty {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.calls_left == 0 {
                self.calls_left = if self.fails_once { usize::MAX } else { 0 };
                assert!(!self.panics, "a sink that panics, on purpose");
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.calls_left -= 1;
            let short = bytes.len().min(5000);
            self.taken.lock().unwrap().extend(&bytes[..short]);
            Ok(short)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Writes all data and finishes; returns the errors of the calls.
    fn errors_of<S: Write + Send + 'static>(mut writer: Writer<S>, data: &[u8]) -> Vec<Error> {
        let mut errors = Vec::new();
        for piece in data.chunks(5_000) {
            errors.extend(writer.write_all(piece).err());
        }
        errors.extend(writer.flush().err());
        errors.extend(writer.finish().err());
        errors
    }

    #[test]
    fn a_failing_sink_is_told_once_and_leaves_a_prefix() {
        let data = data();
        let (whole, _) = pack(&pool(2), options("zstd:1"), &data, BLOCK);
        let mut tried = 0;
        for calls_left in 0..70 {
            for (fails_once, panics) in [(true, false), (false, false), (true, true)] {
                let taken = Arc::default();
                let sink = Faulty {
                    taken: Arc::clone(&taken),
                    calls_left,
                    fails_once,
                    panics,
                };
                let writer = Writer::new(sink, &pool(2), options("zstd:1")).unwrap();
                let errors = errors_of(writer, &data);
                let taken = taken.lock().unwrap();
                if errors.is_empty() {
                    // The flush before the end cuts no block, so all bytes but one are the same.
                    assert!(taken.len() >= whole.len(), "{calls_left} calls");
                    continue;
                }
                match (&errors[0], panics) {
                    (Error::Io { source, .. }, false) => {
                        assert_eq!(source.kind(), io::ErrorKind::StorageFull);
                    }
                    (Error::Panicked { .. }, true) => {}
                    (other, _) => panic!("{other}"),
                }
                let told_once = |error: &Error| matches!(error, Error::Poisoned { .. });
                assert!(errors[1..].iter().all(told_once), "{errors:?}");
                assert!(whole.starts_with(&taken), "{calls_left} calls");
                tried += 1;
            }
        }
        println!("{tried} faults of a sink");
        assert!(tried >= 90, "only {tried} faults tried");
    }

    /// A sink that takes nothing until its gate is opened.
    struct Stuck(mpsc::Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // Ends when the sender is gone.
            let _ = self.0.recv();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_caller_that_wants_no_more_is_not_held_by_a_stuck_sink() {
        for worker_count in [0, 2] {
            let data = data();
            let (open, gate) = mpsc::channel();
            let stop = Arc::new(AtomicBool::new(false));
            let options = WriterOptions {
                stop: Some(Arc::clone(&stop)),
                ..options("zstd:1")
            };
            let pool = pool(worker_count);
            let mut writer = Writer::new(Stuck(gate), &pool, options).unwrap();
            let writing = std::thread::spawn(move || {
                loop {
                    // These are more bytes than all buffers hold, so the writer waits for the sink.
                    if let Err(error) = writer.write_all(&data) {
                        return error;
                    }
                }
            });
            stop.store(true, Ordering::Relaxed);
            let error = writing.join().unwrap();
            assert!(matches!(error, Error::Interrupted), "{error}");
            drop(open);
        }
    }

    #[test]
    fn a_dropped_writer_leaves_no_table() {
        let taken = Arc::default();
        let sink = Faulty::sound(&taken);
        let mut writer = Writer::new(sink, &pool(1), options("store")).unwrap();
        writer.write_all(&data()).unwrap();
        let drain = writer.drain.take().unwrap();
        drop(writer);
        drain.join().unwrap();
        let taken = taken.lock().unwrap();
        let footer = taken.last_chunk().unwrap();
        assert_eq!(SeekTable::frame_bytes_by_footer(footer), None);
    }
}
