//! The objects behind a C program's pointers: a writer with its workers and the buffers it was lent, and a reader.
//!
//! `unsafe` here: a lent buffer is a pointer and a length that C promised to keep.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::mem;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use breakeven::codec::{Codec, Method};
use breakeven::decide::{Prices, Profile};
use breakeven::pool::{Pool, PoolOptions};
use breakeven::storage::beside::{self, Partial, Place};
use breakeven::storage::closing;
use breakeven::storage::descriptor::above_streams;
use breakeven::stream::{
    self, Choice, Container, Frozen, Goal, Pending, Priced, Reader, ReaderOptions, SeekableReader,
    Writer, WriterOptions, read_seek_table,
};
use breakeven::units::{BytesPerSecond, Estimate, Seconds};
use breakeven::{Error, Result};

use crate::{Hint, Money, Summary, Times};

/// Bytes of a C program, until they were waited for.
#[derive(Debug)]
pub struct Borrowed {
    first: *const u8,
    length: usize,
}

impl Borrowed {
    /// Takes bytes whose lifetime only the C program knows.
    ///
    /// # Safety
    ///
    /// They stay as they are until the last block of them is compressed.
    pub unsafe fn new(bytes: &[u8]) -> Borrowed {
        Borrowed {
            first: bytes.as_ptr(),
            length: bytes.len(),
        }
    }
}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: it was made of a slice, which stays as it is while this is there.
        unsafe { slice::from_raw_parts(self.first, self.length) }
    }
}

// SAFETY: the bytes are only read, and stay where and as they are.
unsafe impl Send for Borrowed {}
// SAFETY: as above.
unsafe impl Sync for Borrowed {}

/// How methods are found.
#[derive(Clone, Copy, Debug)]
pub enum Strategy {
    Fixed(Method),
    Fastest,
    Within(f64),
    Smallest,
    Money(Money),
}

impl Default for Strategy {
    fn default() -> Strategy {
        Strategy::Fixed(Method::of(Codec::Zstd { level: 3 }))
    }
}

/// A C program's settings of a writer; `None` where it leaves one to the library.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub worker_count: Option<usize>,
    pub block_bytes: Option<usize>,
    pub container: Container,
    pub is_synced: bool,
    /// The same bytes every time.
    pub is_deterministic: bool,
    pub strategy: Strategy,
    pub link_bytes_per_second: Option<f64>,
    /// Bytes that are to come in all.
    pub pledged_source_bytes: Option<u64>,
    /// Set when the C program wants no more.
    pub stop: Option<Arc<AtomicBool>>,
}

impl Settings {
    fn choice(&self) -> Result<Choice> {
        let goal = match self.strategy {
            Strategy::Fixed(method) => return Ok(Choice::Fixed(method)),
            Strategy::Fastest => Goal::Fastest,
            Strategy::Within(factor) if (1.0..=1e6).contains(&factor) => Goal::Within(factor),
            Strategy::Within(factor) => {
                let reason = format!("{factor} is not from 1 to 1,000,000");
                return Err(Error::invalid("factor of the time", reason));
            }
            Strategy::Smallest => Goal::Smallest,
            Strategy::Money(money) => cheapest(&money)?,
        };
        let arms = self.container.arms();
        let link = self.link_bytes_per_second.map(BytesPerSecond);
        if self.is_deterministic {
            let frozen = Frozen::for_goal(goal, arms, link)?;
            return Ok(Choice::Frozen(Box::new(frozen)));
        }
        Ok(Choice::Priced(Box::new(Priced {
            goal,
            arms,
            link,
            profile: Profile::default(),
        })))
    }

    fn writer_options(&self) -> Result<WriterOptions> {
        let usual = WriterOptions::default();
        Ok(WriterOptions {
            container: self.container,
            choice: self.choice()?,
            block_bytes: self.block_bytes.unwrap_or(usual.block_bytes),
            pledged_source_bytes: self.pledged_source_bytes,
            stop: self.stop.clone(),
            ..usual
        })
    }
}

/// The most days and reads of a stream that is to be cheap, as of a hint: a larger number is a mistake.
const DAYS_MAX: f64 = 1e6;
const READS_MAX: f64 = 1e9;
/// The most that a core for an hour or a terabyte for a year costs: sums of it are still finite.
const PRICE_MAX: f64 = 1e18;

/// Returns the goal of least money.
fn cheapest(money: &Money) -> Result<Goal> {
    const HOUR: f64 = 3_600.0;
    const DAY: f64 = 24.0 * HOUR;
    const TB_YEAR: f64 = 1e12 * 365.0 * DAY;
    let Money {
        price_per_core_hour,
        price_per_tb_year,
        days,
        reads,
    } = *money;
    for (what, amount, most) in [
        (
            "price of a core for an hour",
            price_per_core_hour,
            PRICE_MAX,
        ),
        ("price of a TB for a year", price_per_tb_year, PRICE_MAX),
        ("days kept", days, DAYS_MAX),
    ] {
        if !(amount > 0.0 && amount <= most) {
            let reason = format!("{amount} is not above 0 and at most {most:e}");
            return Err(Error::invalid(what, reason));
        }
    }
    if !(0.0..=READS_MAX).contains(&reads) {
        let reason = format!("{reads} is not from 0 to {READS_MAX:e}");
        return Err(Error::invalid("reads", reason));
    }
    Ok(Goal::Money {
        prices: Prices {
            per_core_second: Estimate::exact(price_per_core_hour / HOUR),
            per_byte_second_held: Estimate::exact(price_per_tb_year / TB_YEAR),
            ..Prices::default()
        },
        held: Seconds(days * DAY),
        reads,
    })
}

/// A pool with at least one worker: it must not fall to the thread that waits for the medium to give
/// a buffer back.
fn pool(worker_count: Option<usize>) -> Result<Pool> {
    let worker_count = worker_count.unwrap_or(PoolOptions::default().worker_count);
    Pool::new(PoolOptions {
        worker_count: worker_count.max(1),
    })
}

/// An asynchronous call whose buffer may still be read.
struct Call {
    /// Where the buffer lies.
    addresses: Range<usize>,
    pending: Pending<Borrowed>,
}

/// A stream that is being written.
pub struct WriterHandle {
    /// There until it is closed or was stopped.
    writer: Option<Writer<Arc<File>>>,
    /// Asynchronous calls under way, in their order.
    calls: Vec<Call>,
    path: PathBuf,
    /// Until it is closed; none where a pipe or a device is written to.
    partial: Option<Partial>,
    is_synced: bool,
    stop: Option<Arc<AtomicBool>>,
    /// Behind the writer, which needs it.
    _pool: Pool,
}

impl WriterHandle {
    pub fn open(path: &Path, settings: &Settings) -> Result<WriterHandle> {
        let options = settings.writer_options()?;
        options.check()?;
        let pool = pool(settings.worker_count)?;
        let (path, file, partial) = match beside::find(path)? {
            Place::File { path, .. } => {
                let partial = Partial::create(&path, beside::AS_NEW)?;
                (path, Arc::clone(partial.file()), Some(partial))
            }
            Place::Other => {
                let opened = OpenOptions::new().write(true).open(path);
                let opened = opened.and_then(|file| Ok(above_streams(file.into())?));
                let file = opened.map_err(|error| Error::io("open", path, error))?;
                (path.to_path_buf(), Arc::new(file.into()), None)
            }
        };
        let mut handle = WriterHandle {
            writer: None,
            calls: Vec::new(),
            path,
            partial,
            is_synced: settings.is_synced,
            stop: options.stop.clone(),
            _pool: pool,
        };
        handle.writer = Some(Writer::new(file, &handle._pool, options)?);
        Ok(handle)
    }

    fn writer(&mut self) -> Result<&mut Writer<Arc<File>>> {
        self.writer.as_mut().ok_or_else(stopped)
    }

    pub fn advise(&mut self, hint: &Hint) -> Result<()> {
        self.writer()?.advise(&stream::Hint {
            range: hint.start..hint.end,
            number: hint.number,
            payload: hint.payload,
        })
    }

    pub fn write(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        self.writer()?.write_at(bytes, offset)
    }

    pub fn write_async(&mut self, buffer: Borrowed, offset: u64) -> Result<()> {
        let first = buffer.first.addr();
        let addresses = first..first + buffer.length;
        let pending = self.writer()?.write_async(buffer, offset)?;
        self.calls.push(Call { addresses, pending });
        Ok(())
    }

    /// Waits until no buffer is under way, whatever fails.
    pub fn wait(&mut self) -> Result<()> {
        let calls = mem::take(&mut self.calls);
        self.let_go(calls)
    }

    /// Waits until nothing of these addresses is under way, whatever fails.
    pub fn wait_for(&mut self, addresses: &Range<usize>) -> Result<()> {
        let overlaps =
            |it: &Call| it.addresses.start < addresses.end && addresses.start < it.addresses.end;
        let all = mem::take(&mut self.calls).into_iter();
        let (wanted, others) = all.partition(overlaps);
        self.calls = others;
        self.let_go(wanted)
    }

    /// Waits until these calls' buffers are the program's again.
    fn let_go(&mut self, calls: Vec<Call>) -> Result<()> {
        let mut outcome = Ok(());
        for call in &calls {
            outcome = outcome.and_then(|()| call.pending.wait_compressed());
        }
        let is_stopped = |stop: &Arc<AtomicBool>| stop.load(Ordering::Relaxed);
        if outcome.is_err() && self.stop.as_ref().is_some_and(is_stopped) {
            // Jobs that no worker has yet are dropped; the workers finish the rest.
            self.writer = None;
        }
        calls.into_iter().for_each(|it| it.pending.let_go());
        outcome
    }

    pub fn call_times(&mut self) -> Result<Times> {
        let times = self.writer()?.call_times();
        let times = times.ok_or_else(|| Error::invalid("times of a call", "there was none"))?;
        let seconds = |time: Option<Seconds>| time.map_or(-1.0, |time| time.0);
        Ok(Times {
            compressed_seconds: seconds(times.compressed_after),
            drained_seconds: seconds(times.drained_after),
        })
    }

    pub fn close(mut self) -> Result<Summary> {
        self.wait()?;
        let writer = self.writer.take().ok_or_else(stopped)?;
        let (file, summary) = writer.finish()?;
        match self.partial.take() {
            Some(partial) => {
                let replaces = self.path.exists();
                partial.finish(self.is_synced || beside::must_sync(&file, replaces))?;
                partial.replace()?;
                if self.is_synced {
                    beside::sync_folder(&self.path)?;
                }
            }
            None => {
                if self.is_synced || beside::must_sync(&file, false) {
                    match file.sync_all() {
                        // A pipe has nothing to wait for.
                        Err(error) if is_refused(&error) => {}
                        synced => synced.map_err(|error| Error::io("sync", &self.path, error))?,
                    }
                }
                let closed = closing::ask(&file);
                closed.map_err(|error| Error::io("close", &self.path, error))?;
            }
        }
        Ok(Summary {
            raw: summary.raw_bytes,
            stored: summary.stored_bytes,
            blocks: summary.blocks,
            plain_blocks: summary.plain_blocks,
            compressed_seconds: summary.compressed_after.0,
            drained_seconds: summary.drained_after.0,
        })
    }
}

impl Drop for WriterHandle {
    /// Gives up what was not closed.
    fn drop(&mut self) {
        // First, so that nobody goes on with jobs that are waited for.
        self.writer = None;
        let _ = self.wait();
    }
}

fn stopped() -> Error {
    Error::Poisoned {
        what: "the stream".to_string(),
        cause: "it was stopped".to_string(),
    }
}

/// Returns whether what a file cannot do at all was asked of it.
fn is_refused(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported
    )
}

/// A stream that is being read.
pub struct ReaderHandle {
    source: Source,
    /// The decoded byte that comes next.
    position: u64,
    /// Behind the source, which needs it.
    _pool: Pool,
}

enum Source {
    /// With a seek table.
    Anywhere(Box<SeekableReader<File>>),
    InOrder(Box<Reader<File>>),
}

impl Source {
    fn fill(&mut self) -> Result<&[u8]> {
        match self {
            Source::Anywhere(reader) => reader.fill(),
            Source::InOrder(reader) => reader.fill(),
        }
    }

    fn consume(&mut self, count: usize) {
        match self {
            Source::Anywhere(reader) => reader.consume(count),
            Source::InOrder(reader) => reader.consume(count),
        }
    }
}

impl ReaderHandle {
    pub fn open(path: &Path) -> Result<ReaderHandle> {
        let opened = File::open(path).and_then(|file| Ok(above_streams(file.into())?));
        let mut file = File::from(opened.map_err(|error| Error::io("open", path, error))?);
        let pool = pool(None)?;
        let options = ReaderOptions::default();
        // A source that cannot seek, as a pipe, has no usable table.
        let table = match file.stream_position() {
            Ok(_) => read_seek_table(&mut file)?,
            Err(_) => None,
        };
        let source = match table {
            Some(table) => {
                let reader = SeekableReader::new(file, &table, &pool, &options)?;
                Source::Anywhere(Box::new(reader))
            }
            None => Source::InOrder(Box::new(Reader::new(file, &pool, options)?)),
        };
        Ok(ReaderHandle {
            source,
            position: 0,
            _pool: pool,
        })
    }

    /// Returns decoded bytes from a place on, none at the end.
    pub fn content_at(&mut self, offset: u64) -> Result<&[u8]> {
        match &mut self.source {
            Source::Anywhere(reader) => {
                let sought = reader.seek(SeekFrom::Start(offset));
                sought.map_err(|error| Error::io("seek in", "the stream", error))?;
                self.position = offset;
            }
            Source::InOrder(reader) => {
                if offset < self.position {
                    let at = self.position;
                    let reason = format!("byte {offset} is behind, at byte {at}: no seek table");
                    return Err(Error::invalid("place in a stream", reason));
                }
                while self.position < offset {
                    let ahead = usize::try_from(offset - self.position).unwrap_or(usize::MAX);
                    let count = reader.fill()?.len().min(ahead);
                    if count == 0 {
                        return Ok(&[]);
                    }
                    reader.consume(count);
                    self.position += count as u64;
                }
            }
        }
        self.source.fill()
    }

    /// Marks bytes that [`ReaderHandle::content_at`] returned as used.
    pub fn consume(&mut self, count: usize) {
        self.source.consume(count);
        self.position += count as u64;
    }
}
