//! The writer: blocks to the workers, frames to the sink, in order and with back-pressure.
//!
//! ```text
//! caller --raw block--> worker 1..N --frame--> I/O thread --> sink
//!    ^                     |                       |
//!    +----- raw buffer ----+     frame buffer -----+--> caller
//! ```
//!
//! Each block leaves with a raw buffer and a frame buffer; the first comes back when the block is
//! compressed, the second when its frame is written. So the workers are at most as many blocks
//! ahead of the sink as there are frame buffers, which is Hirsch's pipeline (2017, section 4.1):
//! at least 2 N of them (equation 4.1), here 2 N + 4.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::codec::{Codec, Method};
use crate::error::{Error, Result};
use crate::frame::{
    EMPTY_FRAME, Encoder, Entry, SEEK_TABLE_ENTRIES_MAX, SeekTable, frame_bytes_max, is_portable,
    is_storable,
};
use crate::pool::{Pool, Results, Submitter};
use crate::units::Seconds;

use super::pick::{Choice, Picker};
use super::shared::Shared;

/// Which frames a stream may hold.
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
}

/// How a stream is written.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Which frames it may hold. Default portable.
    pub container: Container,
    /// How the method of each block is found. Default `zstd:3` for all.
    pub choice: Choice,
    /// Raw bytes of each block but the last, 4 KiB to 64 MiB. Default 1 MiB.
    pub block_bytes: usize,
    /// Set by the caller when it wants no more: waits then end within a second. Default none.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            container: Container::Portable,
            choice: Choice::Fixed(Method::of(Codec::Zstd { level: 3 })),
            block_bytes: 1 << 20,
            stop: None,
        }
    }
}

impl WriterOptions {
    /// Checks that the values are in range and the method's frames may stand in the container.
    ///
    /// # Errors
    ///
    /// `Invalid`, with what would be accepted.
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

    /// Returns the most memory that a writer takes with `worker_count` workers, beside 12 bytes for
    /// each block written: (2 N + 4) frames, (N + 2) raw blocks, and N times what the methods take
    /// ([`Method::compressor_bytes`], of each codec the most), with N at least 1.
    pub fn memory_bytes(&self, worker_count: usize) -> usize {
        let workers = worker_count.max(1);
        frame_count(workers) * frame_bytes_max(self.block_bytes)
            + raw_count(workers) * self.block_bytes
            + workers * self.choice.compressor_bytes(self.block_bytes)
    }
}

fn frame_count(workers: usize) -> usize {
    2 * workers + 4
}

fn raw_count(workers: usize) -> usize {
    // One for each worker, one waiting for a worker, one being filled.
    workers + 2
}

/// What a finished stream came to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary {
    /// Blocks written.
    pub blocks: u64,
    /// Blocks whose method did not make them smaller, or that are one byte repeated.
    pub plain_blocks: u64,
    /// Bytes that came in.
    pub raw_bytes: u64,
    /// Bytes that went out, everything included.
    pub stored_bytes: u64,
    /// From the first call to all blocks being compressed: what an application waits for.
    pub compressed_after: Seconds,
    /// From the first call to the last byte being written.
    pub drained_after: Seconds,
}

impl Summary {
    /// Returns the ratio, raw over stored bytes.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes as f64 / self.stored_bytes.max(1) as f64
    }
}

/// Writes a stream of frames into a sink.
///
/// Dropping a writer that was not finished leaves the stream without its last blocks and without a
/// seek table, and does not wait for the sink.
///
/// # Cost
///
/// Memory as [`WriterOptions::memory_bytes`], taken at the start, and one thread beside the pool's.
/// Nothing is allocated for a block (xz excepted) after each buffer was used once.
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
pub struct Writer<S: Write + Send + 'static> {
    shared: Arc<Shared>,
    submitter: Submitter<Job, Piece, Encoder>,
    drain: Option<JoinHandle<(S, Drained)>>,
    /// The block that is being filled.
    filling: Option<Vec<u8>>,
    block_bytes: usize,
    raw_bytes: u64,
    flushes: u64,
    begun: Option<Instant>,
}

/// What goes to a worker.
enum Job {
    Block { raw: Vec<u8>, frame: Vec<u8> },
    Flush,
}

/// What comes back from a worker.
enum Piece {
    Frame {
        frame: Vec<u8>,
        entry: Entry,
        is_plain: bool,
    },
    Flush,
}

/// What the I/O thread counted.
#[derive(Default)]
struct Drained {
    table: SeekTable,
    blocks: u64,
    plain_blocks: u64,
    stored_bytes: u64,
}

impl<S: Write + Send + 'static> Writer<S> {
    /// Begins a stream on the workers of `pool`.
    ///
    /// # Errors
    ///
    /// `Invalid` for an option out of range, `Io` if the system starts no thread.
    pub fn new(sink: S, pool: &Pool, options: WriterOptions) -> Result<Writer<S>> {
        options.check()?;
        let workers = pool.worker_count().max(1);
        let block_bytes = options.block_bytes;
        let raw = (0..raw_count(workers)).map(|_| Vec::with_capacity(block_bytes));
        let frame_bytes = frame_bytes_max(block_bytes);
        let frames = (0..frame_count(workers)).map(|_| vec![0; frame_bytes]);
        let shared = Shared::new(raw.collect(), frames.collect(), options.stop.clone());
        let picker = Arc::new(Picker::new(options.choice, workers, frame_count(workers)));
        let (from_worker, picks) = (Arc::clone(&shared), Arc::clone(&picker));
        let work = move |encoder: &mut Encoder, job| work(encoder, &picks, &from_worker, job);
        // A flush has no frame buffer, so it needs a place of its own.
        let stage = pool.stage(frame_count(workers) + 1, Encoder::new, work)?;
        let (submitter, results) = stage.split();
        let for_drain = Arc::clone(&shared);
        let drain = std::thread::Builder::new()
            .name("breakeven-io".to_string())
            .spawn(move || drain(sink, results, &for_drain, &picker))
            .map_err(|error| Error::io("start", "an I/O thread", error))?;
        Ok(Writer {
            shared,
            submitter,
            drain: Some(drain),
            filling: None,
            block_bytes,
            raw_bytes: 0,
            flushes: 0,
            begun: None,
        })
    }

    /// Takes all of `bytes`; waits while the sink is behind.
    ///
    /// # Errors
    ///
    /// `Io` if the sink failed, `Panicked` if a worker did, each once; then `Poisoned`.
    /// `Interrupted` if the caller's stop flag was set.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.begun.get_or_insert_with(Instant::now);
        while !bytes.is_empty() {
            let mut raw = match self.filling.take() {
                Some(raw) => raw,
                None => self.shared.wait(|state| state.raw.pop())?,
            };
            let (now, later) = bytes.split_at(bytes.len().min(self.block_bytes - raw.len()));
            raw.extend_from_slice(now);
            bytes = later;
            let is_full = raw.len() == self.block_bytes;
            self.filling = Some(raw);
            if is_full {
                self.submit_block()?;
            }
        }
        Ok(())
    }

    /// Ends the current block early and waits until all so far has reached the sink, flushed.
    ///
    /// # Errors
    ///
    /// As [`Writer::write_all`].
    pub fn flush(&mut self) -> Result<()> {
        self.submit_block()?;
        self.flushes += 1;
        let wanted = self.flushes;
        self.submit(Job::Flush)?;
        self.shared
            .wait(|state| (state.flushed >= wanted).then_some(()))
    }

    /// Ends the stream: the last block, the seek table, a flush of the sink, which is given back.
    ///
    /// # Errors
    ///
    /// As [`Writer::write_all`].
    pub fn finish(mut self) -> Result<(S, Summary)> {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        self.submit_block()?;
        self.shared.wait_compressed()?;
        let compressed_after = seconds(begun);
        self.shared.change(|state| state.is_finishing = true);
        self.submit(Job::Flush)?;
        self.shared.wait(|state| state.has_ended.then_some(()))?;
        let drain = self.drain.take().expect("a stream is finished once");
        let (sink, drained) = drain.join().map_err(|_| Error::Panicked {
            what: "I/O thread",
            message: "no message".to_string(),
        })?;
        let summary = Summary {
            blocks: drained.blocks,
            plain_blocks: drained.plain_blocks,
            raw_bytes: self.raw_bytes,
            stored_bytes: drained.stored_bytes,
            compressed_after,
            drained_after: seconds(begun),
        };
        Ok((sink, summary))
    }

    /// Hands the block that is being filled to the workers, if there is one.
    fn submit_block(&mut self) -> Result<()> {
        let Some(raw) = self.filling.take() else {
            return Ok(());
        };
        self.raw_bytes += raw.len() as u64;
        let frame = self.shared.wait(|state| state.frames.pop())?;
        self.submit(Job::Block { raw, frame })
    }

    fn submit(&mut self, job: Job) -> Result<()> {
        self.submitter.submit(job).map_err(|_| {
            // The I/O thread took its end of the stage away, because it failed, or after a fork.
            let failure = self.shared.failure();
            failure.unwrap_or_else(|| Error::Poisoned {
                what: "the stream".to_string(),
                cause: "its I/O thread is gone".to_string(),
            })
        })
    }
}

fn seconds(since: Instant) -> Seconds {
    Seconds(since.elapsed().as_secs_f64())
}

impl<S: Write + Send + 'static> Drop for Writer<S> {
    fn drop(&mut self) {
        self.shared.change(|state| state.is_abandoned = true);
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

/// What a worker does with a job.
fn work(encoder: &mut Encoder, picker: &Picker, shared: &Shared, job: Job) -> Result<Piece> {
    let Job::Block { mut raw, mut frame } = job else {
        return Ok(Piece::Flush);
    };
    #[cfg(test)]
    assert!(!raw.starts_with(tests::PANIC), "on purpose");
    let outcome = picker.encode(encoder, &raw, &mut frame);
    let content_bytes = raw.len() as u32;
    raw.clear();
    shared.change(|state| state.raw.push(raw));
    let encoded = outcome?;
    picker.frame_waits();
    Ok(Piece::Frame {
        frame,
        entry: Entry {
            stored_bytes: encoded.frame_bytes as u32,
            content_bytes,
            check: encoded.check,
        },
        is_plain: !encoded.used_method,
    })
}

/// What the I/O thread does: writes frames until the stream is finished, abandoned or failed.
fn drain<S: Write>(
    mut sink: S,
    mut results: Results<Job, Piece, Encoder>,
    shared: &Shared,
    picker: &Picker,
) -> (S, Drained) {
    let mut drained = Drained::default();
    // Room for the table of the first 4 GiB at once.
    drained.table.entries.reserve(4 << 10);
    // A sink that panics must not leave the caller waiting.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        write_frames(&mut sink, &mut results, shared, picker, &mut drained)
    }));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(error)) => shared.fail(error),
        Err(panic) => shared.fail(Error::Panicked {
            what: "the stream's sink",
            message: crate::pool::message_of(panic.as_ref()),
        }),
    }
    shared.change(|state| state.has_ended = true);
    // Only now is the stage closed: whoever finds it closed finds the failure as well.
    drop(results);
    (sink, drained)
}

fn write_frames<S: Write>(
    sink: &mut S,
    results: &mut Results<Job, Piece, Encoder>,
    shared: &Shared,
    picker: &Picker,
    drained: &mut Drained,
) -> Result<()> {
    drained.put(sink, &EMPTY_FRAME)?;
    drained.note(Entry {
        stored_bytes: EMPTY_FRAME.len() as u32,
        content_bytes: 0,
        // Of no bytes, as any other check is of the content.
        check: xxhash_rust::xxh64::xxh64(&[], 0) as u32,
    });
    for piece in results {
        if shared.is_abandoned() {
            return Ok(());
        }
        match piece? {
            Piece::Frame {
                frame,
                entry,
                is_plain,
            } => {
                let bytes = &frame[..entry.stored_bytes as usize];
                picker.write(bytes.len(), || drained.put(sink, bytes))?;
                drained.note(entry);
                drained.blocks += 1;
                drained.plain_blocks += u64::from(is_plain);
                shared.change(|state| state.frames.push(frame));
            }
            Piece::Flush => {
                if shared.is_finishing() {
                    return drained.end(sink);
                }
                sink.flush().map_err(sink_error)?;
                shared.change(|state| state.flushed += 1);
            }
        }
    }
    Ok(())
}

impl Drained {
    fn put(&mut self, sink: &mut impl Write, bytes: &[u8]) -> Result<()> {
        sink.write_all(bytes).map_err(sink_error)?;
        self.stored_bytes += bytes.len() as u64;
        Ok(())
    }

    fn note(&mut self, entry: Entry) {
        // One more than a table may hold says that there will be none.
        if self.table.entries.len() <= SEEK_TABLE_ENTRIES_MAX {
            self.table.entries.push(entry);
        }
    }

    fn end(&mut self, sink: &mut impl Write) -> Result<()> {
        if self.table.entries.len() <= SEEK_TABLE_ENTRIES_MAX {
            let frame = self.table.to_frame();
            self.put(sink, &frame)?;
        }
        sink.flush().map_err(sink_error)
    }
}

fn sink_error(error: io::Error) -> Error {
    Error::io("write", "the stream's sink", error)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::sync::{Mutex, mpsc};

    use super::*;
    use crate::pool::PoolOptions;

    /// A block that begins so makes its worker panic.
    pub(super) const PANIC: &[u8] = b"a worker panics on this block, on purpose";

    const BLOCK: usize = 16 << 10;

    fn pool(worker_count: usize) -> Pool {
        Pool::new(PoolOptions { worker_count }).unwrap()
    }

    fn options(method: &str) -> WriterOptions {
        WriterOptions {
            container: Container::Mixed,
            choice: Choice::Fixed(method.parse().unwrap()),
            block_bytes: BLOCK,
            stop: None,
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

    /// Writes all data and finishes; returns the errors that the calls brought.
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
                    // The flush before the end cuts no block, so the bytes are the same but one.
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

    #[test]
    fn a_panic_in_a_worker_ends_the_stream_in_order() {
        let data = data();
        let blocks = data.len() / BLOCK;
        for worker_count in [0, 1, 3] {
            for panicking in [0, 1, 5, blocks - 1] {
                let mut data = data.clone();
                data[panicking * BLOCK..][..PANIC.len()].copy_from_slice(PANIC);
                let taken = Arc::default();
                let sink = Faulty::sound(&taken);
                let writer = Writer::new(sink, &pool(worker_count), options("store")).unwrap();
                let errors = errors_of(writer, &data);
                assert!(matches!(errors[0], Error::Panicked { .. }), "{}", errors[0]);
                let mut back = vec![0; data.len()];
                let taken = taken.lock().unwrap();
                let size = zstd_safe::decompress(&mut back[..], &taken[..]).unwrap();
                assert_eq!(size, panicking * BLOCK, "what came before is whole");
                assert!(back[..size] == data[..size]);
            }
        }
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
                    // More than all buffers hold, so that it waits for the sink.
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
