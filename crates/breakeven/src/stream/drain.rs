//! The I/O thread of a writer: frames to the sink in their order, then the seek table.

use std::io::{self, IoSlice, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use crate::error::{Error, Result};
use crate::frame::{EMPTY_FRAME, Entry, Kind, RawFrame, SEEK_TABLE_ENTRIES_MAX, SeekTable};
use crate::pool::Results;

use super::feed::{Feed, Job, Piece};
use super::pick::Picker;
use super::shared::Shared;
use super::split::{Frames, Workspace};

/// Pieces of a frame written at once: those of a block of 1 MiB, and some.
const PIECES: usize = 20;

/// The counters of the I/O thread.
#[derive(Default)]
pub struct Drained {
    table: SeekTable,
    pub blocks: u64,
    pub plain_blocks: u64,
    pub stored_bytes: u64,
}

/// The source of frames and the receiver of their outcomes.
pub struct Drain {
    pub results: Results<Job, Piece, Workspace>,
    pub shared: Arc<Shared>,
    pub picker: Arc<Picker>,
    /// Gone when the writer is, so that the stage ends.
    pub feed: Weak<Feed>,
    /// The length of a frame buffer.
    pub frame_bytes: usize,
}

impl Drain {
    /// Writes frames until the stream is finished, abandoned or failed.
    pub fn run<S: Write>(mut self, mut sink: S) -> (S, Drained) {
        let mut drained = Drained::default();
        // Room for the table of the first 4 GiB at once.
        drained.table.entries.reserve(4 << 10);
        // A sink that panics must not leave the caller waiting.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.write_frames(&mut sink, &mut drained)
        }));
        match outcome {
            Ok(Ok(())) => {}
            Ok(Err(error)) => self.shared.fail(error),
            Err(panic) => self.shared.fail(Error::Panicked {
                what: "the stream's sink",
                message: crate::pool::message_of(panic.as_ref()),
            }),
        }
        let parts = self.shared.change(|state| {
            state.has_ended = true;
            std::mem::take(&mut state.parts)
        });
        // Only now is the stage closed: a thread that finds it closed finds the failure as well.
        drop(self.results);
        drop(parts);
        // Threads that wait for one of these buffers have it now.
        self.shared.change(|_| {});
        (sink, drained)
    }

    fn write_frames(&mut self, sink: &mut impl Write, drained: &mut Drained) -> Result<()> {
        for piece in &mut self.results {
            if self.shared.is_abandoned() {
                return Ok(());
            }
            match piece? {
                Piece::Frames { mut buffer, frames } => {
                    let bytes = frames.stored_bytes();
                    let is_zstd = frames.is_left || Kind::of(&buffer[..bytes]) == Some(Kind::Zstd);
                    if drained.blocks == 0 && !is_zstd {
                        drained.put_empty(sink)?;
                    }
                    self.picker.write(bytes, || match frames.is_left {
                        true => drained.put_around(sink, &buffer, &frames),
                        false => drained.put(sink, &buffer[..bytes]),
                    })?;
                    buffer.resize(self.frame_bytes, 0);
                    frames.entries().iter().for_each(|it| drained.note(*it));
                    drained.blocks += 1;
                    drained.plain_blocks += u64::from(frames.is_plain);
                    let waits = self.shared.change(|state| {
                        state.frames.push(buffer);
                        state.drained_block();
                        !state.parts.is_empty()
                    });
                    if waits && let Some(feed) = self.feed.upgrade() {
                        feed.pump()?;
                    }
                }
                Piece::Flush => {
                    sink.flush().map_err(sink_error)?;
                    self.shared.change(|state| state.flushed += 1);
                }
                Piece::End { has_table } => {
                    if drained.blocks == 0 && has_table {
                        drained.put_empty(sink)?;
                    }
                    return drained.end(sink, has_table);
                }
            }
        }
        Ok(())
    }
}

impl Drained {
    fn put(&mut self, sink: &mut impl Write, bytes: &[u8]) -> Result<()> {
        sink.write_all(bytes).map_err(sink_error)?;
        self.stored_bytes += bytes.len() as u64;
        Ok(())
    }

    /// Writes the empty frame that marks a stream of zstd, where no other frame does.
    fn put_empty(&mut self, sink: &mut impl Write) -> Result<()> {
        self.put(sink, &EMPTY_FRAME)?;
        self.note(Entry {
            stored_bytes: EMPTY_FRAME.len() as u32,
            content_bytes: 0,
            // The check is of the content, here of no bytes.
            check: xxhash_rust::xxh64::xxh64(&[], 0) as u32,
        });
        Ok(())
    }

    /// Writes the raw frame of a block that lies in `content`.
    fn put_around(&mut self, sink: &mut impl Write, content: &[u8], frames: &Frames) -> Result<()> {
        let around = RawFrame::new(content.len(), frames.entries()[0].check);
        let mut pieces = around.pieces(content).peekable();
        while pieces.peek().is_some() {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = slices.iter_mut().zip(&mut pieces).fold(0, |count, it| {
                *it.0 = IoSlice::new(it.1);
                count + 1
            });
            write_all_vectored(sink, &mut slices[..count]).map_err(sink_error)?;
        }
        self.stored_bytes += frames.stored_bytes() as u64;
        Ok(())
    }

    fn note(&mut self, entry: Entry) {
        // One entry more than a table may hold shows that there will be no table.
        if self.table.entries.len() <= SEEK_TABLE_ENTRIES_MAX {
            self.table.entries.push(entry);
        }
    }

    fn end(&mut self, sink: &mut impl Write, has_table: bool) -> Result<()> {
        if has_table && self.table.entries.len() <= SEEK_TABLE_ENTRIES_MAX {
            let frame = self.table.to_frame();
            self.put(sink, &frame)?;
        }
        sink.flush().map_err(sink_error)
    }
}

/// Writes all of some slices, for any number that the sink takes at once.
fn write_all_vectored(sink: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match sink.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut slices, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn sink_error(error: io::Error) -> Error {
    Error::io("write", "the stream", error)
}
