//! The course of a stream: a row of short frames or a long one, and the turn from one to the other when the link shows
//! its speed.
//!
//! ```text
//! a pipe, not told ---> long frame ---takes more than workers make of level 1---> row
//!                          |  ^                                                     |
//!                 is slow  |  +----------------is slower---------------------------+
//!                          v
//!               long frame that looks far
//! ```
//!
//! A sink may take some MiB at once and send them later. So a slow link shows at once, and a fast one only after a
//! while.

use std::time::Instant;

use anyhow::Result;
use breakeven::decide::Ledger;
use breakeven::meter::{process_cpu, process_waiting};
use breakeven::pool::Pool;
use breakeven::stream::{
    Books, Contention, Goal, LinkBasis, LongWriter, Pace, Pacer, SeenLink, Summary, Writer,
    WriterOptions,
};
use breakeven::units::{BytesPerSecond, Seconds};

use super::earned::Booked;
use super::form::{self, Aim, Booking};
use super::place::{Head, Source};
use super::{Counted, Packing};
use crate::options::Strategy;

/// The factor by which a link must be faster than long frames before they are left for a row: turning takes some ms.
const FASTER: f64 = 1.5;
/// Bytes of the lightest jobs that a sink must have taken without being behind: as many as a socket holds. The count
/// doubles each time that the sink proves slower after all.
const OUTRUN_BYTES: u64 = 4 << 20;

/// Content between looks at the machine; each look reads some files in `/proc`.
const LOOK_BYTES: usize = 4 << 20;

/// A source on its way through writers.
pub struct Course<'a> {
    packing: &'a Packing<'a>,
    workers: u32,
    pool: &'a Pool,
    /// `None` only while one writer follows another.
    writer: Option<AnyWriter>,
    /// The books of a row; a long frame has none.
    books: Option<Books>,
    /// Of the long frame.
    booking: Booking,
    /// The totals of the finished parts.
    before: Summary,
    ledger: Ledger,
    /// Core seconds of the last hundredth of the time, in the finished parts.
    last_percent: Option<Seconds>,
    begun: Instant,
    switch: FormSwitch,
}

/// The rule for switching to the other form.
#[derive(Default)]
struct FormSwitch {
    /// The number of times that the stream went on as a row.
    rows: u32,
    /// The effect of other programs on a core second now.
    contention: Contention,
    /// Content since the last look at it.
    unlooked_bytes: usize,
}

impl FormSwitch {
    fn begin() -> FormSwitch {
        let mut switch = FormSwitch::default();
        switch.look();
        switch
    }

    /// Looks at how long threads wait for cores.
    fn look(&mut self) {
        self.unlooked_bytes = 0;
        self.contention.see(process_cpu(), process_waiting());
    }

    fn pass(&mut self, bytes: usize) {
        self.unlooked_bytes += bytes;
        if self.unlooked_bytes >= LOOK_BYTES {
            self.look();
        }
    }
}

/// A stream that was written.
pub struct Written {
    pub summary: Summary,
    pub goal: Goal,
    pub booked: Option<Booked>,
    /// The level of most of a long frame, if the stream ended as one.
    pub level: Option<i8>,
}

/// A writer that ended.
struct Ended {
    /// The goal whose unit the books have.
    goal: Goal,
    /// The level of most of a long frame.
    level: Option<i8>,
}

/// The form in which a stream goes on.
enum Turn {
    Row(BytesPerSecond),
    Long(BytesPerSecond),
}

impl<'a> Course<'a> {
    /// Reads the first piece of a source and begins the stream that it deserves.
    pub fn begin(
        packing: &'a Packing<'a>,
        source: &mut Source,
        (sink, goes_to_file): (Counted, bool),
        (pool, is_thrifty): (&'a Pool, bool),
    ) -> Result<(Course<'a>, Vec<u8>, usize)> {
        let workers = pool.worker_count().max(1) as u32;
        let aim = Aim::of(packing.typed, packing.typed.link.0, goes_to_file, workers);
        let aim = aim.map(|it| it.for_source(source)).transpose()?;
        let Head {
            piece,
            count,
            content_bytes,
        } = source.head()?;
        let writer = match aim {
            None => {
                let mut writer = Writer::new(sink, pool, packing.options(content_bytes)?)?;
                for hint in &packing.typed.hint {
                    writer.advise(hint)?;
                }
                AnyWriter::Row(writer)
            }
            Some(aim) => {
                let pacer = match aim {
                    Aim::Paced(pace) => Some(Pacer::new(pace, workers as usize)),
                    Aim::Untold => Some(Pacer::untold(workers as usize)),
                    _ => None,
                };
                AnyWriter::Long(match pacer {
                    _ if is_thrifty => {
                        let options = form::thrifty_options(aim, content_bytes);
                        LongWriter::new(sink, packing.typed.frame.apply_thriftily(options))?
                    }
                    Some(pacer) => {
                        let writer = LongWriter::paced(sink, pacer, content_bytes)?;
                        match content_bytes {
                            // Over a link of given speed a stream never switches to a row.
                            Some(bytes) if matches!(aim, Aim::Paced(_)) => writer.stating(bytes),
                            _ => writer,
                        }
                    }
                    None => {
                        let known = (&piece[..count], content_bytes);
                        let options = form::long_options(aim, packing.setting, workers, known)?;
                        LongWriter::new(sink, packing.typed.frame.apply(options))?
                    }
                })
            }
        };
        let mut course = Course {
            packing,
            workers,
            pool,
            books: writer.books(),
            writer: Some(writer),
            booking: Booking::open(),
            before: Summary::default(),
            ledger: Ledger::default(),
            last_percent: None,
            begun: Instant::now(),
            switch: FormSwitch::begin(),
        };
        // The first piece was already read, to decide how to begin.
        course.see(&piece[..count])?;
        Ok((course, piece, count))
    }

    /// Looks at a piece that is about to be written, for the books.
    pub fn see(&mut self, piece: &[u8]) -> Result<()> {
        match self.packing.typed.ledger {
            true => self.booking.see(piece),
            false => Ok(()),
        }
    }

    pub fn write_all(&mut self, piece: &[u8]) -> Result<()> {
        self.switch.pass(piece.len());
        Ok(self.writer.as_mut().expect("a writer").write_all(piece)?)
    }

    /// Goes on in the other form if the link shows that it is better.
    pub fn follow(&mut self, left_bytes: Option<u64>) -> Result<()> {
        let Some(turn) = self.turn() else {
            return Ok(());
        };
        let (sink, _) = self.end(false)?;
        self.booking = Booking::open();
        self.books = None;
        self.writer = Some(match turn {
            Turn::Row(link) => {
                // No stream is so long that 2^32 times as many bytes come.
                self.switch.rows = (self.switch.rows + 1).min(32);
                let options = WriterOptions {
                    link_seen: Some(link),
                    ..self.packing.options(left_bytes)?
                };
                let row = Writer::new(sink, self.pool, options)?;
                self.books = row.books();
                AnyWriter::Row(row)
            }
            Turn::Long(link) => {
                let workers = self.workers as usize;
                let pacer = match form::pace(self.packing.typed.strategy, link) {
                    Pace::Fastest(_) => Pacer::following(link, workers),
                    promised => Pacer::new(promised, workers),
                };
                AnyWriter::Long(LongWriter::paced(sink, pacer, left_bytes)?)
            }
        });
        Ok(())
    }

    /// Ends the stream and closes its books.
    pub fn finish(mut self) -> Result<Written> {
        let link = self.link();
        let (_, ended) = self.end(true)?;
        let is_booked = ended.level.is_some() || self.books.is_some();
        Ok(Written {
            summary: self.before,
            goal: ended.goal,
            booked: is_booked.then_some(Booked {
                ledger: self.ledger,
                link,
                row: self.books,
                last_percent: self.last_percent,
            }),
            level: ended.level,
        })
    }

    /// Ends the current writer, as the last one or not, and books its output.
    fn end(&mut self, is_last: bool) -> Result<(Counted, Ended)> {
        let link = self.link();
        let (sink, summary, level, last) = match self.writer.take().expect("a writer") {
            AnyWriter::Row(row) => {
                let (sink, summary) = if is_last { row.finish()? } else { row.leave()? };
                let last = self.books.as_ref().and_then(Books::last_percent);
                (sink, summary, None, last)
            }
            AnyWriter::Long(long) => {
                let (level, last) = (long.main_level(), long.last_percent());
                let (sink, summary) = long.finish()?;
                (sink, summary, Some(level), last)
            }
        };
        self.last_percent = match (self.last_percent, last) {
            (Some(before), Some(last)) => Some(before + last),
            (before, last) => before.or(last),
        };
        let goal = match level {
            Some(level) => self.book((level, &summary), link)?,
            None => self.packing.goal,
        };
        if let Some(books) = &self.books {
            self.packing.setting.learn(books);
            self.ledger.merge(&books.ledger());
        }
        self.before = together(self.before, summary, self.begun);
        Ok((sink, Ended { goal, level }))
    }

    /// Books a long frame, and returns the unit of the books.
    fn book(&mut self, long: (i8, &Summary), link: Option<SeenLink>) -> Result<Goal> {
        let usual = match link {
            Some(_) => Strategy::Fastest,
            None => Strategy::Money,
        };
        let packing = self.packing;
        let goal = (packing.setting).goal(packing.typed.strategy.unwrap_or(usual))?;
        let speed = link.map(|it| it.speed);
        let ledger = (self.booking).close(long, (goal, speed), &packing.setting.profile());
        self.ledger.merge(&ledger);
        Ok(goal)
    }

    /// Returns the link as far as it is known.
    fn link(&self) -> Option<SeenLink> {
        let seen = match self.writer.as_ref().expect("a writer") {
            AnyWriter::Row(_) => self.books.as_ref().and_then(Books::link),
            AnyWriter::Long(long) => long.link_seen(),
        };
        seen.or(self.packing.typed.link.0.map(SeenLink::given))
    }

    /// Workers that wait for cores produce less of level 1, so a link counts as fast sooner.
    fn turn(&self) -> Option<Turn> {
        let limit = form::FAST_LINK * f64::from(self.workers) / self.switch.contention.stretch();
        match self.writer.as_ref()? {
            AnyWriter::Row(_) => {
                let link = self.link().filter(|it| it.basis == LinkBasis::Measured)?;
                let told = Some(link.speed);
                let aim = Aim::of(self.packing.typed, told, false, self.workers);
                let is_long = matches!(aim, Some(Aim::Paced(_))) && link.speed.0 < limit;
                (is_long && self.packing.typed.link.0.is_none()).then_some(Turn::Long(link.speed))
            }
            AnyWriter::Long(long) => {
                let link = long.link_seen()?.speed;
                // A sink that waits for workers seems as fast as memory, until jobs are so light that the sink falls
                // behind.
                if link.0 > FASTER * limit {
                    let is_outrun = long.light_bytes() >= OUTRUN_BYTES << self.switch.rows;
                    return is_outrun.then_some(Turn::Row(link));
                }
                let looks_far = Pacer::following(link, self.workers as usize).matches_far();
                (looks_far && !long.options().matches_far).then_some(Turn::Long(link))
            }
        }
    }
}

/// Returns the totals of two parts of a stream.
fn together(before: Summary, after: Summary, begun: Instant) -> Summary {
    if before.blocks == 0 {
        return after;
    }
    let seconds = Seconds(begun.elapsed().as_secs_f64());
    Summary {
        blocks: before.blocks + after.blocks,
        plain_blocks: before.plain_blocks + after.plain_blocks,
        raw_bytes: before.raw_bytes + after.raw_bytes,
        stored_bytes: before.stored_bytes + after.stored_bytes,
        compressed_after: seconds,
        drained_after: seconds,
    }
}

/// Writes a stream of either form.
#[expect(clippy::large_enum_variant, reason = "there is one a stream")]
pub enum AnyWriter {
    Row(Writer<Counted>),
    Long(LongWriter<Counted>),
}

impl AnyWriter {
    pub fn books(&self) -> Option<Books> {
        match self {
            AnyWriter::Row(writer) => writer.books(),
            AnyWriter::Long(_) => None,
        }
    }

    pub fn write_all(&mut self, bytes: &[u8]) -> breakeven::Result<()> {
        match self {
            AnyWriter::Row(writer) => writer.write_all(bytes),
            AnyWriter::Long(writer) => writer.write_all(bytes),
        }
    }

    /// Ends the stream.
    pub fn finish(self) -> breakeven::Result<Summary> {
        match self {
            AnyWriter::Row(writer) => writer.finish().map(|(_, summary)| summary),
            AnyWriter::Long(writer) => writer.finish().map(|(_, summary)| summary),
        }
    }
}
