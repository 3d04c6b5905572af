//! The writer of long frames: one frame for all of the content, made by libzstd's own workers.
//!
//! ```text
//! caller --content--> LongEncoder (libzstd's workers) --pieces--> I/O thread --> sink
//! ```
//!
//! A row of short frames ([`super::Writer`]) may have a method of its own for each MiB and is decoded in parallel. A
//! long frame finds repeats over megabytes. A file that is kept needs the second.
//!
//! Promises: one standard frame with its checksum, and nothing before it. The frame states the length of the content
//! where that is known or below [`EARLY_BYTES`]. The bytes do not depend on the number of workers. Content beyond the
//! stated length goes into another frame; content that ends before it is an error.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::codec::{Compressor, Features};
use crate::decide::Class;
use crate::error::{Error, Result};
use crate::frame::{BLOCK_BYTES_MAX, EMPTY_FRAME, LongEncoder, LongOptions, Step};
use crate::meter::{process_cpu, process_waiting};
use crate::storage::is_zero;
use crate::units::Seconds;

use super::books::SeenLink;
use super::pace::{JOB_BYTES_MAX, Job, Pacer, Standing};
use super::writer::Summary;

/// Content of unknown length that is held back, since a short length can then be stated.
pub const EARLY_BYTES: usize = 1 << 20;
/// Bytes of a piece that goes to the sink at once: the output of libzstd for a block, and some.
const PIECE_BYTES: usize = 256 << 10;
/// Bytes for the sink at a time, so that a slow one shows soon.
const PART_BYTES: usize = 64 << 10;
/// The rest of a piece is enough for the encoder to do something.
const ROOM_BYTES_MIN: usize = 16;
/// Consecutive zeros after which the workers' jobs end and the further zeros bypass the workers: a job of level 3.
const ZEROS_BYTES_MIN: u64 = 8 << 20;
/// The stack of the thread that writes to the sink: four times that of a thread in musl, 128 KiB. With the usual 2 MiB
/// `repack` starts no thread in 50 MB of addresses, which a test gives it.
const IO_STACK_BYTES: usize = 512 << 10;
/// Pieces that may wait for the sink: 4 MiB, so that a job for a slow link does not block the workers.
const PIECES: usize = 16;
/// The window where the level follows a link. With 4 MiB a tar of documents and sources took 5 % more bytes by level 3,
/// in the same time.
const WINDOW_LOG: u32 = 23;
/// The window for far matches: 16 MiB. With it two workers take no more memory than stock `zstd -9 -T2`; with 32 MiB
/// they took 160 MB against its 140.
const WINDOW_LOG_FAR: u32 = 24;

/// Writes one long frame into a sink.
///
/// Dropping a writer that was not finished leaves the frame without its end.
///
/// # Cost
///
/// Memory as [`LongEncoder`], 4 MiB of pieces that wait for the sink, up to 1 MiB held back; one thread
/// beside libzstd's.
///
/// # Example
///
/// ```
/// use breakeven::frame::LongOptions;
/// use breakeven::stream::LongWriter;
///
/// let mut writer = LongWriter::new(Vec::new(), LongOptions::default())?;
/// writer.write_all(&vec![7; 3_000_000])?;
/// let (stream, summary) = writer.finish()?;
/// assert_eq!((summary.blocks, summary.stored_bytes), (1, stream.len() as u64));
/// # Ok::<(), breakeven::Error>(())
/// ```
pub struct LongWriter<S: Write + Send + 'static> {
    options: LongOptions,
    encoder: Option<LongEncoder>,
    /// Content before the start of the first frame.
    early: Vec<u8>,
    /// The bytes for the sink, as far as the piece is filled.
    piece: Vec<u8>,
    filled: usize,
    pieces: Option<Pieces>,
    /// None where the level stays.
    paced: Option<Paced>,
    /// Bytes that were handed to the I/O thread.
    put_bytes: u64,
    sunk: Arc<Mutex<Sunk>>,
    io: Option<JoinHandle<(S, Result<u64>)>>,
    /// Bytes of content in the frame that was begun.
    frame_content: u64,
    /// Zeros at the end of the content so far.
    zeros: u64,
    summary: Summary,
    begun: Option<Instant>,
}

/// The jobs of a frame whose level follows the link.
struct Paced {
    pacer: Pacer,
    job: Option<Job>,
    /// Bytes of content in the job so far.
    filled: usize,
    /// Bytes to come, if that is known.
    pledged: Option<u64>,
    compressor: Compressor,
    /// Bytes by each level.
    levels: Vec<(i8, u64)>,
}

/// The bytes that the sink has taken.
#[derive(Clone, Copy, Default)]
struct Sunk {
    bytes: u64,
    /// The time of its writes, without the current part.
    took: Duration,
    /// When it got its current part.
    since: Option<Instant>,
}

impl Sunk {
    /// The time of all its writes.
    fn sinking(&self) -> Duration {
        self.took + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Notes that it took a part.
    fn end(&mut self, bytes: usize) {
        self.took = self.sinking();
        self.since = None;
        self.bytes += bytes as u64;
    }
}

/// A buffer, and its filled length.
struct Piece {
    bytes: Vec<u8>,
    filled: usize,
}

/// Pieces on their way to the sink and back.
struct Pieces {
    full: SyncSender<Piece>,
    empty: Receiver<Vec<u8>>,
    /// Pieces that were made.
    count: usize,
}

impl<S: Write + Send + 'static> LongWriter<S> {
    /// Begins a stream.
    ///
    /// # Errors
    ///
    /// `Invalid` for an option out of range, `Io` if the system starts no thread.
    pub fn new(sink: S, options: LongOptions) -> Result<LongWriter<S>> {
        options.check()?;
        let (full, pieces) = sync_channel(PIECES);
        let (used, empty) = sync_channel(PIECES + 2);
        let sunk = Arc::new(Mutex::new(Sunk::default()));
        let taken = Arc::clone(&sunk);
        let io = std::thread::Builder::new()
            .name("breakeven-io".to_string())
            .stack_size(IO_STACK_BYTES)
            .spawn(move || write_pieces(sink, &pieces, &used, &taken))
            .map_err(|error| Error::io("start", "an I/O thread", error))?;
        Ok(LongWriter {
            options,
            encoder: None,
            early: Vec::new(),
            piece: vec![0; PIECE_BYTES],
            filled: 0,
            pieces: Some(Pieces {
                full,
                empty,
                count: 1,
            }),
            paced: None,
            put_bytes: 0,
            sunk,
            io: Some(io),
            frame_content: 0,
            zeros: 0,
            summary: Summary::default(),
            begun: None,
        })
    }

    /// Begins a stream whose levels follow a link, or a promised time. The bytes then depend on the speed of workers
    /// and link. `content_bytes` is a hint.
    ///
    /// # Errors
    ///
    /// As [`LongWriter::new`].
    pub fn paced(sink: S, pacer: Pacer, content_bytes: Option<u64>) -> Result<LongWriter<S>> {
        let matches_far = pacer.matches_far();
        let options = LongOptions {
            workers: pacer.workers() as u32,
            matches_far,
            window_log: Some(if matches_far {
                WINDOW_LOG_FAR
            } else {
                WINDOW_LOG
            }),
            job_bytes: Some(JOB_BYTES_MAX as u32),
            ..LongOptions::default()
        };
        let mut writer = LongWriter::new(sink, options)?;
        writer.paced = Some(Paced {
            pacer,
            job: None,
            filled: 0,
            pledged: content_bytes,
            compressor: Compressor::new(),
            levels: Vec::new(),
        });
        Ok(writer)
    }

    /// Lets the first frame state that `content_bytes` come, for readers that decode a frame in one go. Content beyond
    /// them goes into another frame; content that ends before them is an error.
    pub fn stating(mut self, content_bytes: u64) -> LongWriter<S> {
        self.options.content_bytes = Some(content_bytes);
        self
    }

    /// Returns the options of its frames.
    pub fn options(&self) -> &LongOptions {
        &self.options
    }

    /// Returns the level of most of the content so far.
    pub fn main_level(&self) -> i8 {
        let most = self.levels().into_iter().max_by_key(|it| it.1);
        most.map_or(self.options.level, |it| it.0)
    }

    /// Returns the levels so far, each with its content.
    pub fn levels(&self) -> Vec<(i8, u64)> {
        match &self.paced {
            Some(paced) => paced.levels.clone(),
            None => vec![(self.options.level, self.summary.raw_bytes)],
        }
    }

    /// Returns the cost of the last hundredth of the link's time, where levels follow a link ([`Pacer::last_percent`]).
    pub fn last_percent(&self) -> Option<Seconds> {
        self.paced.as_ref()?.pacer.last_percent()
    }

    /// Returns the evidence about a link of unknown speed, once the speed shows.
    pub fn link_seen(&self) -> Option<SeenLink> {
        self.paced.as_ref()?.pacer.seen()
    }

    /// Returns the bytes that the sink has taken since jobs became as light as possible ([`Pacer::light_bytes`]).
    pub fn light_bytes(&self) -> u64 {
        self.paced.as_ref().map_or(0, |it| it.pacer.light_bytes())
    }

    /// Takes all of `bytes`; waits while the workers or the sink are behind.
    ///
    /// # Errors
    ///
    /// `Io` if the sink failed, `Panicked` if it panicked, `OutOfMemory` without memory. The stream is then
    /// of no use.
    pub fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.begun.get_or_insert_with(Instant::now);
        self.summary.raw_bytes += bytes.len() as u64;
        if self.encoder.is_none() {
            let is_known = self.options.content_bytes.is_some() || self.summary.blocks > 0;
            if !is_known && self.early.len() + bytes.len() <= EARLY_BYTES {
                self.early.extend_from_slice(bytes);
                return Ok(());
            }
            if bytes.is_empty() {
                return Ok(());
            }
            self.begin()?;
        }
        while !bytes.is_empty() {
            let stated = self.options.content_bytes;
            let room = stated.map_or(u64::MAX, |all| all.saturating_sub(self.frame_content));
            if room == 0 {
                // The source grew: the stated content is written, and the rest is another frame.
                self.end_frame()?;
                self.options.content_bytes = None;
                self.begin()?;
                continue;
            }
            let count = usize::try_from(room).map_or(bytes.len(), |room| room.min(bytes.len()));
            self.encode(&bytes[..count])?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Ends the stream: the rest of the frame and a flush of the sink, which is given back.
    ///
    /// # Errors
    ///
    /// As [`LongWriter::write_all`]; `Invalid` if the content is shorter than was stated.
    pub fn finish(mut self) -> Result<(S, Summary)> {
        let begun = *self.begun.get_or_insert_with(Instant::now);
        let seconds = || Seconds(begun.elapsed().as_secs_f64());
        if self.summary.raw_bytes == 0 {
            self.piece[..EMPTY_FRAME.len()].copy_from_slice(&EMPTY_FRAME);
            self.filled = EMPTY_FRAME.len();
        } else {
            if self.encoder.is_none() {
                self.options.content_bytes = Some(self.early.len() as u64);
                self.begin()?;
            }
            self.end_frame()?;
        }
        self.summary.compressed_after = seconds();
        self.put()?;
        let (sink, outcome) = self.join()?;
        self.summary.stored_bytes = outcome?;
        self.summary.drained_after = seconds();
        Ok((sink, self.summary))
    }

    /// Begins a frame with the bytes that were held back.
    fn begin(&mut self) -> Result<()> {
        let mut encoder = LongEncoder::begin(&self.options)?;
        if self.options.passes_zeros {
            // Only then are its options known.
            encoder.prepare()?;
        }
        self.encoder = Some(encoder);
        (self.frame_content, self.zeros) = (0, 0);
        self.summary.blocks += 1;
        let early = std::mem::take(&mut self.early);
        self.encode(&early)
    }

    fn encode(&mut self, source: &[u8]) -> Result<()> {
        if self.paced.is_some() {
            return self.encode_paced(source);
        }
        self.frame_content += source.len() as u64;
        let encoder = self.encoder.as_ref().expect("a frame that was begun");
        match encoder.passes_zeros() {
            true => self.encode_around_zeros(source),
            false => self.feed(source),
        }
    }

    /// Hands all of some content to the workers.
    fn feed(&mut self, source: &[u8]) -> Result<()> {
        let mut at = 0;
        while at < source.len() {
            at += self
                .step(|encoder, room| encoder.encode(&source[at..], room))?
                .0;
        }
        Ok(())
    }

    /// Hands content to the workers, but for zeros behind a job of zeros.
    fn encode_around_zeros(&mut self, source: &[u8]) -> Result<()> {
        let (mut taken, mut at) = (0, 0);
        for block in source.chunks(BLOCK_BYTES_MAX) {
            let passed = self.zeros > ZEROS_BYTES_MIN;
            self.zeros = match is_zero(block) {
                true => self.zeros + block.len() as u64,
                false => 0,
            };
            let begin = at;
            at += block.len();
            if self.zeros <= ZEROS_BYTES_MIN {
                continue;
            }
            if !passed {
                self.feed(&source[taken..begin])?;
                while !self.step(LongEncoder::drain)?.1 {}
            }
            while self.step(|encoder, room| encoder.zeros(block, room))?.0 == 0 {}
            taken = at;
        }
        self.feed(&source[taken..])
    }

    /// Hands content to the workers in jobs, each at the level that the pacer picks at its start.
    fn encode_paced(&mut self, mut source: &[u8]) -> Result<()> {
        while !source.is_empty() {
            let job = self.job(source)?;
            let paced = self.paced.as_mut().expect("a pace");
            let room = job.bytes - paced.filled;
            let (now, later) = source.split_at(room.min(source.len()));
            paced.filled += now.len();
            let is_full = paced.filled == job.bytes;
            match paced.levels.iter_mut().find(|it| it.0 == job.level) {
                Some(level) => level.1 += now.len() as u64,
                None => paced.levels.push((job.level, now.len() as u64)),
            }
            if is_full {
                paced.job = None;
                paced.filled = 0;
            }
            self.frame_content += now.len() as u64;
            let encoder = self.encoder.as_ref().expect("a frame that was begun");
            let is_full = is_full && encoder.has_workers();
            let begun = self.jobs_begun();
            let mut at = 0;
            while at < now.len() {
                let step = |encoder: &mut LongEncoder, room: &mut [u8]| match is_full {
                    true => encoder.end_job(&now[at..], room),
                    false => encoder.encode(&now[at..], room),
                };
                at += self.step(step)?.0;
            }
            // All workers may be busy, and their jobs not yet handed out.
            while is_full && self.jobs_begun() == begun {
                self.step(|encoder, room| encoder.end_job(&[], room))?;
            }
            // An idle link gets the bytes that are ready.
            if is_full && self.sunk().bytes == self.put_bytes {
                self.put()?;
            }
            source = later;
        }
        Ok(())
    }

    fn sunk(&self) -> Sunk {
        *lock(&self.sunk)
    }

    fn jobs_begun(&self) -> u32 {
        let encoder = self.encoder.as_ref().expect("a frame that was begun");
        encoder.progress().jobs
    }

    /// Returns the job that is being filled, or begins one for content with this start.
    fn job(&mut self, source: &[u8]) -> Result<Job> {
        if let Some(job) = self.paced.as_ref().and_then(|paced| paced.job) {
            return Ok(job);
        }
        let sunk = self.sunk();
        let encoder = self.encoder.as_mut().expect("a frame that was begun");
        let paced = self.paced.as_mut().expect("a pace");
        let begun = self.begun.expect("it was set by the first bytes");
        let class = Class::content(&Features::as_needed(
            source,
            &mut paced.compressor,
            Class::needs_probe,
        )?);
        let left = paced
            .pledged
            .map(|all| all.saturating_sub(self.frame_content));
        let progress = encoder.progress();
        let job = paced.pacer.job(&Standing {
            now: Seconds(begun.elapsed().as_secs_f64()),
            raw_bytes: self.frame_content,
            left_bytes: left.filter(|&left| left > 0),
            consumed_bytes: progress.consumed,
            produced_bytes: progress.produced,
            sunk_bytes: sunk.bytes,
            sinking: Seconds(sunk.sinking().as_secs_f64()),
            core: process_cpu(),
            waiting: process_waiting(),
            is_hopeless: class == Class::INCOMPRESSIBLE || class == Class::PACKED,
        });
        encoder.set_level(job.level)?;
        // Only then is it known whether there are workers.
        encoder.prepare()?;
        paced.job = Some(job);
        Ok(job)
    }

    fn end_frame(&mut self) -> Result<()> {
        while !self.step(|encoder, room| encoder.end(&[], room))?.1 {}
        self.encoder = None;
        Ok(())
    }

    /// Lets the encoder do a step into the piece; returns how much it read and whether the frame ended.
    fn step(
        &mut self,
        step: impl FnOnce(&mut LongEncoder, &mut [u8]) -> Result<Step>,
    ) -> Result<(usize, bool)> {
        let encoder = self.encoder.as_mut().expect("a frame that was begun");
        let step = step(encoder, &mut self.piece[self.filled..])?;
        self.filled += step.written;
        if PIECE_BYTES - self.filled < ROOM_BYTES_MIN {
            self.put()?;
        }
        Ok((step.read, step.ended))
    }

    /// Hands the piece to the I/O thread.
    fn put(&mut self) -> Result<()> {
        if self.filled == 0 {
            return Ok(());
        }
        let Some(pieces) = self.pieces.as_mut() else {
            return Err(gone());
        };
        let next = match pieces.empty.try_recv() {
            Ok(next) => next,
            Err(_) if pieces.count < PIECES + 2 => {
                let mut next = Vec::new();
                let taken = next.try_reserve_exact(PIECE_BYTES);
                taken.map_err(|_| Error::OutOfMemory {
                    what: "what waits for the sink",
                })?;
                next.resize(PIECE_BYTES, 0);
                pieces.count += 1;
                next
            }
            Err(_) => match pieces.empty.recv() {
                Ok(next) => next,
                Err(_) => return self.fail(),
            },
        };
        let piece = std::mem::replace(&mut self.piece, next);
        let piece = Piece {
            bytes: piece,
            filled: std::mem::take(&mut self.filled),
        };
        self.put_bytes += piece.filled as u64;
        match pieces.full.send(piece) {
            Ok(()) => Ok(()),
            Err(_) => self.fail(),
        }
    }

    /// Returns the error that ended the I/O thread early.
    fn fail(&mut self) -> Result<()> {
        let (_, outcome) = self.join()?;
        outcome.map(drop).and(Err(gone()))
    }

    fn join(&mut self) -> Result<(S, Result<u64>)> {
        self.pieces = None;
        let io = self.io.take().ok_or_else(gone)?;
        io.join().map_err(|_| Error::Panicked {
            what: "I/O thread",
            message: "no message".to_string(),
        })
    }
}

fn gone() -> Error {
    Error::Poisoned {
        what: "stream".to_string(),
        cause: "an earlier write failed".to_string(),
    }
}

fn lock(sunk: &Mutex<Sunk>) -> MutexGuard<'_, Sunk> {
    sunk.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes pieces until there are no more, and returns the sink and how many bytes it took.
fn write_pieces<S: Write>(
    mut sink: S,
    pieces: &Receiver<Piece>,
    used: &SyncSender<Vec<u8>>,
    sunk: &Mutex<Sunk>,
) -> (S, Result<u64>) {
    // A sink that panics must not leave the caller waiting.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut stored = 0;
        for Piece { bytes, filled } in pieces {
            for part in bytes[..filled].chunks(PART_BYTES) {
                lock(sunk).since = Some(Instant::now());
                sink.write_all(part).map_err(sink_error)?;
                lock(sunk).end(part.len());
            }
            stored += filled as u64;
            // At the end there is nobody to take it back.
            let _ = used.try_send(bytes);
        }
        sink.flush().map_err(sink_error)?;
        Ok(stored)
    }));
    let outcome = outcome.unwrap_or_else(|panic| {
        Err(Error::Panicked {
            what: "the stream's sink",
            message: crate::pool::message_of(panic.as_ref()),
        })
    });
    (sink, outcome)
}

fn sink_error(error: std::io::Error) -> Error {
    Error::io("write", "the stream", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::Pace;
    use crate::units::BytesPerSecond;
    use std::io;

    fn write(
        content: &[u8],
        piece_bytes: usize,
        options: LongOptions,
    ) -> Result<(Vec<u8>, Summary)> {
        let mut writer = LongWriter::new(Vec::new(), options)?;
        for piece in content.chunks(piece_bytes) {
            writer.write_all(piece)?;
        }
        writer.finish()
    }

    #[test]
    fn a_stream_is_one_frame_that_states_its_length_where_it_is_known() {
        let mut random = fastrand::Rng::with_seed(3);
        let content: Vec<u8> = (0..3_000_000).map(|_| random.u8(..40)).collect();
        for (length, stated, states) in [
            (0, None, true),
            (1, None, true),
            (EARLY_BYTES, None, true),
            (EARLY_BYTES + 1, None, false),
            (3_000_000, None, false),
            (3_000_000, Some(3_000_000), true),
            (700, Some(700), true),
        ] {
            let options = LongOptions {
                content_bytes: stated,
                workers: 2,
                ..LongOptions::default()
            };
            let (stream, summary) = write(&content[..length], 70_000, options).unwrap();
            assert_eq!(summary.raw_bytes, length as u64);
            assert_eq!(summary.stored_bytes, stream.len() as u64);
            let frame_bytes = zstd_safe::find_frame_compressed_size(&stream);
            assert_eq!(frame_bytes, Ok(stream.len()), "{length} bytes");
            let found = zstd_safe::get_frame_content_size(&stream).unwrap();
            assert_eq!(found, states.then_some(length as u64), "{length} bytes");
            let mut back = vec![0; length];
            assert_eq!(zstd_safe::decompress(&mut back[..], &stream), Ok(length));
            assert!(back == content[..length]);
        }
    }

    #[test]
    fn a_paced_stream_is_dense_on_a_slow_link_and_light_on_a_fast_one() {
        let mut random = fastrand::Rng::with_seed(9);
        let words: Vec<String> = (0..3000)
            .map(|_| format!("{:x} ", random.u32(..1 << 22)))
            .collect();
        let mut content = Vec::new();
        while content.len() < 12_000_000 {
            content.extend(random.choice(&words).expect("words").bytes());
        }
        content.extend((0..3 << 20).map(|_| random.u8(..)));
        let write = |link: f64, pledged| {
            let pacer = Pacer::new(Pace::Fastest(BytesPerSecond(link)), 2);
            let mut writer = LongWriter::paced(Vec::new(), pacer, pledged).unwrap();
            content
                .chunks(300_001)
                .for_each(|it| writer.write_all(it).unwrap());
            let (stream, summary) = writer.finish().unwrap();
            let frame_bytes = zstd_safe::find_frame_compressed_size(&stream);
            assert_eq!((frame_bytes, summary.blocks), (Ok(stream.len()), 1));
            let mut back = vec![0; content.len()];
            assert_eq!(
                zstd_safe::decompress(&mut back[..], &stream),
                Ok(back.len())
            );
            assert!(back == content);
            stream.len()
        };
        let all = Some(content.len() as u64);
        for pledged in [None, all, Some(1), Some(1 << 40)] {
            let (slow, fast) = (write(1e5, pledged), write(1e12, pledged));
            println!("{slow} bytes for a slow link, {fast} for a fast one");
            assert!(slow < fast);
        }
    }

    /// Zeros behind a job of zeros bypass the workers: of any length and at any place, between data and at both ends.
    #[test]
    fn zeros_go_past_the_workers_and_come_back() {
        const MIB: usize = 1 << 20;
        let mut random = fastrand::Rng::with_seed(17);
        let text: Vec<u8> = (0..3 * MIB).map(|_| random.u8(..20)).collect();
        let mut tried = 0;
        for (before, zeros, after) in [
            (0, 9 * MIB, 0),
            (0, 8 * MIB, 0),
            (0, 8 * MIB + 1, 0),
            (0, 20 * MIB + 77, 5),
            (1, 30 * MIB, 0),
            (3 * MIB, 12 * MIB + 300_001, 3 * MIB),
            (100, 8 * MIB - 100, 200),
        ] {
            let mut content = text[..before].to_vec();
            content.resize(before + zeros, 0);
            content.extend_from_slice(&text[..after]);
            content.resize(content.len() + zeros / 3 * (tried % 2), 0);
            for (piece_bytes, workers, is_stated, has_check) in [
                (MIB, 2, true, true),
                (70_001, 1, false, true),
                (64 * MIB, 2, true, false),
            ] {
                let options = LongOptions {
                    workers,
                    has_check,
                    passes_zeros: true,
                    content_bytes: is_stated.then_some(content.len() as u64),
                    ..LongOptions::default()
                };
                let (stream, summary) = write(&content, piece_bytes, options).unwrap();
                let frame_bytes = zstd_safe::find_frame_compressed_size(&stream);
                assert_eq!((frame_bytes, summary.blocks), (Ok(stream.len()), 1));
                let stated = zstd_safe::get_frame_content_size(&stream).unwrap();
                assert_eq!(stated, options.content_bytes);
                assert_eq!(stream[4] & 4 > 0, has_check);
                let mut back = vec![1; content.len()];
                let decoded = zstd_safe::decompress(&mut back[..], &stream);
                assert_eq!(decoded, Ok(content.len()));
                assert!(back == content, "{before}, {zeros}, {after}");
                if has_check {
                    // The check is one of the content.
                    let mut wrong = stream.clone();
                    *wrong.last_mut().unwrap() ^= 1;
                    assert!(zstd_safe::decompress(&mut back[..], &wrong).is_err());
                }
                tried += 1;
            }
        }
        assert_eq!(tried, 21);
    }

    /// The cases are another length than stated, no worker, and nothing that may bypass the workers.
    #[test]
    fn zeros_that_do_not_go_past_the_workers_are_content_as_any_other() {
        const MIB: usize = 1 << 20;
        let zeros = vec![0; 30 * MIB];
        let options = LongOptions {
            passes_zeros: true,
            content_bytes: Some(40 << 20),
            ..LongOptions::default()
        };
        assert!(matches!(
            write(&zeros, MIB, options),
            Err(Error::Invalid { .. })
        ));
        let options = LongOptions {
            content_bytes: Some(20 << 20),
            ..options
        };
        let (stream, summary) = write(&zeros, MIB, options).unwrap();
        assert_eq!(summary.blocks, 2);
        let mut back = vec![1; zeros.len()];
        assert_eq!(
            zstd_safe::decompress(&mut back[..], &stream),
            Ok(zeros.len())
        );
        assert!(back == zeros);
        for options in [
            LongOptions {
                workers: 0,
                ..options
            },
            LongOptions {
                is_rsyncable: true,
                ..options
            },
            LongOptions {
                window_log: Some(12),
                ..options
            },
            LongOptions {
                matches_far: true,
                ..options
            },
        ] {
            let content_bytes = Some(zeros.len() as u64);
            let options = LongOptions {
                content_bytes,
                ..options
            };
            let (stream, _) = write(&zeros, MIB, options).unwrap();
            assert_eq!(
                zstd_safe::decompress(&mut back[..], &stream),
                Ok(zeros.len())
            );
        }
    }

    /// A short content of stated length is done without workers.
    #[test]
    fn a_paced_stream_of_any_length_comes_to_its_end() {
        let mut random = fastrand::Rng::with_seed(11);
        let content: Vec<u8> = (0..3 << 20).map(|_| random.u8(..90)).collect();
        let edges = [0, 1, 256, 512, 1024, 2048].map(|it| it << 10);
        let mut tried = 0;
        for length in edges.iter().flat_map(|&it| [it, it + 1]) {
            let exact = Some(length as u64);
            let knowledge = [
                (None, false),
                (exact, false),
                (exact, true),
                (Some(u64::MAX), false),
            ];
            for (pledged, is_stated) in knowledge {
                for pacer in [
                    Pacer::untold(2),
                    Pacer::new(Pace::Fastest(BytesPerSecond(1e6)), 2),
                ] {
                    let mut writer = LongWriter::paced(Vec::new(), pacer, pledged).unwrap();
                    if is_stated {
                        writer = writer.stating(length as u64);
                    }
                    writer.write_all(&content[..length]).unwrap();
                    let (stream, _) = writer.finish().unwrap();
                    let found = zstd_safe::get_frame_content_size(&stream).unwrap();
                    assert_eq!(found, exact.filter(|_| is_stated || length <= EARLY_BYTES));
                    let mut back = vec![0; length];
                    assert_eq!(zstd_safe::decompress(&mut back[..], &stream), Ok(length));
                    assert!(back == content[..length]);
                    tried += 1;
                }
            }
        }
        assert_eq!(tried, 96);
    }

    #[test]
    fn a_source_that_grows_goes_on_and_one_that_shrinks_is_an_error() {
        let content = b"what grows goes on; ".repeat(40_000);
        let options = LongOptions {
            content_bytes: Some(300_000),
            ..LongOptions::default()
        };
        let (stream, summary) = write(&content, 70_001, options).unwrap();
        assert_eq!(summary.blocks, 2);
        let mut back = vec![0; content.len()];
        assert_eq!(
            zstd_safe::decompress(&mut back[..], &stream),
            Ok(back.len())
        );
        assert!(back == content);
        let outcome = write(&content[..200_000], 70_001, options);
        assert!(matches!(outcome, Err(Error::Invalid { .. })));
    }

    /// Takes some bytes, then fails or panics.
    struct Full(usize, bool);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert!(self.0 > 0 || !self.1, "a sink that panics");
            if self.0 == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let count = self.0.min(bytes.len());
            self.0 -= count;
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_fails_ends_every_wait_with_its_error() {
        let mut random = fastrand::Rng::with_seed(4);
        let noise: Vec<u8> = (0..1 << 20).map(|_| random.u8(..)).collect();
        for panics in [false, true] {
            for room in [0, 3_000_000] {
                let mut writer =
                    LongWriter::new(Full(room, panics), LongOptions::default()).unwrap();
                let mut outcome = Ok(());
                for _ in 0..64 {
                    outcome = writer.write_all(&noise);
                    if outcome.is_err() {
                        break;
                    }
                }
                match outcome {
                    Err(Error::Panicked { .. }) => assert!(panics),
                    Err(Error::Io { source, .. }) => {
                        assert!(!panics && source.kind() == io::ErrorKind::StorageFull);
                    }
                    other => panic!("{other:?}"),
                }
                assert!(matches!(writer.finish(), Err(Error::Poisoned { .. })));
            }
        }
    }
}
