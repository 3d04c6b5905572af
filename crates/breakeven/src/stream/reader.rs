//! The reader of streams that come in order: from a pipe, a socket, any file.
//!
//! A frame that states a modest content, and shows its end in its headers, is copied whole. A worker decodes it while
//! the next one is read. The calling thread decodes others (one huge frame of stock zstd, an `.xz` stream) in pieces,
//! when all before them is done.
//!
//! An error comes behind the last good byte, and names its place in the stream.

use std::io::{self, Read};

use crate::error::{Error, Result};
use crate::frame::{Decoder, Kind, MAGIC_BYTES, STREAM, Shape, Walk, Walked, Workspace};
use crate::pool::Pool;
use crate::storage::is_zero;

use super::decoding::{Frame, Frames, ReaderOptions, copy_front, placed, set_length};
use super::input::Input;

/// The longest content of a frame that is decoded as a whole.
const WHOLE_BYTES_MAX: u64 = 4 << 20;
/// The longest frame that is decoded as a whole: its content, and headers for a stored one.
const STORED_BYTES_MAX: u64 = WHOLE_BYTES_MAX + (64 << 10);
/// Bytes of a piece of a frame that is decoded in pieces.
const PIECE_BYTES: usize = 256 << 10;

/// Reads a stream of standard frames from a source that cannot seek.
///
/// # Cost
///
/// Memory, with N workers (at least 1): 2 N + 2 frames with their contents, each at most 4 MiB and no longer than the
/// longest of the stream. The window on the source takes at most 4.5 MiB. Decoding in pieces takes
/// [`ReaderOptions::window_bytes_max`] at the most.
///
/// # Example
///
/// ```
/// use std::io::Read;
/// use breakeven::pool::{Pool, PoolOptions};
/// use breakeven::stream::{Reader, ReaderOptions, Writer, WriterOptions};
///
/// let pool = Pool::new(PoolOptions { worker_count: 2 })?;
/// let mut writer = Writer::new(Vec::new(), &pool, WriterOptions::default())?;
/// writer.write_all(b"what comes in goes out")?;
/// let (stream, _) = writer.finish()?;
/// let mut back = String::new();
/// Reader::new(&stream[..], &pool, ReaderOptions::default())?.read_to_string(&mut back).unwrap();
/// assert_eq!(back, "what comes in goes out");
/// # Ok::<(), breakeven::Error>(())
/// ```
pub struct Reader<R: Read> {
    input: Input<R>,
    options: ReaderOptions,
    frames: Frames,
    /// A frame that is decoded here, in pieces; it waits for the workers.
    inline: Option<Inline>,
    /// The unit of zeros that may stand behind the last frame; 0 before the first.
    padding_unit_bytes: usize,
    workspace: Workspace,
    /// The frame being handed out, from `at` on.
    current: Frame,
    at: usize,
    counted: Counted,
    /// The end of the input, reported when all before it was handed out.
    end: Option<Result<()>>,
}

/// The counters of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Zstandard frames, an empty first one included.
    pub zstd_frames: u64,
    /// LZ4 frames.
    pub lz4_frames: u64,
    /// `.xz` streams.
    pub xz_frames: u64,
    /// Members of gzip files.
    pub gzip_members: u64,
    /// Skippable frames, the seek table included.
    pub skippable_frames: u64,
    /// Zeros behind frames, which are no frames themselves.
    pub padding_bytes: u64,
    /// Bytes of the stream.
    pub stored_bytes: u64,
    /// Bytes decoded from it.
    pub content_bytes: u64,
}

impl Counted {
    pub(super) fn count(&mut self, kind: Kind) {
        *match kind {
            Kind::Zstd => &mut self.zstd_frames,
            Kind::Lz4 => &mut self.lz4_frames,
            Kind::Xz => &mut self.xz_frames,
            Kind::Gzip => &mut self.gzip_members,
            Kind::Skippable => &mut self.skippable_frames,
        } += 1;
    }

    /// Returns the number of frames of all kinds.
    pub fn frames(&self) -> u64 {
        let others = self.lz4_frames + self.xz_frames + self.gzip_members;
        self.zstd_frames + others + self.skippable_frames
    }
}

struct Inline {
    kind: Kind,
    offset: u64,
    decoder: Option<Decoder>,
}

/// The kind of the next frame, for reading it.
enum Next {
    /// All of it is in the window, with this length.
    Whole(Shape, usize),
    /// To be decoded in pieces.
    Pieces(Kind),
    Skippable(u64),
    /// The stream is over.
    End,
}

impl<R: Read> Reader<R> {
    /// Begins to read; nothing is read from the source yet.
    ///
    /// # Errors
    ///
    /// As [`Pool::stage`].
    pub fn new(source: R, pool: &Pool, options: ReaderOptions) -> Result<Reader<R>> {
        Ok(Reader {
            input: Input::new(source),
            frames: Frames::new(pool, options.limits())?,
            options,
            inline: None,
            padding_unit_bytes: 0,
            workspace: Workspace::new(),
            current: Frame::default(),
            at: 0,
            counted: Counted::default(),
            end: None,
        })
    }

    /// Returns the counters so far; frames ahead of the output are counted already.
    pub fn counted(&self) -> Counted {
        Counted {
            stored_bytes: self.input.offset(),
            ..self.counted
        }
    }

    /// Returns the source, from which more may have been read than was handed out.
    pub fn into_source(self) -> R {
        self.input.into_source()
    }

    /// Returns the next decoded bytes, none at the end of the stream. They are the same until
    /// [`Reader::consume`] moves on.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the byte of the stream, `Limit`, `Unsupported`, `OutOfMemory`, `Io` from the source. After the
    /// first error, `Poisoned`.
    pub fn fill(&mut self) -> Result<&[u8]> {
        while self.at == self.current.content.len() {
            let used = std::mem::take(&mut self.current);
            self.frames.give_back(used);
            self.at = 0;
            match self.next_piece()? {
                Some(piece) => self.current = piece,
                None => return Ok(&[]),
            }
        }
        Ok(&self.current.content[self.at..])
    }

    /// Marks `bytes` of the result of [`Reader::fill`] as used.
    ///
    /// # Panics
    ///
    /// If there were not as many.
    pub fn consume(&mut self, bytes: usize) {
        assert!(self.at + bytes <= self.current.content.len());
        self.at += bytes;
    }

    /// Returns a frame with its content, or a piece of one; nothing at the end.
    fn next_piece(&mut self) -> Result<Option<Frame>> {
        loop {
            if self.end.is_none() && self.inline.is_none() && !self.frames.is_full() {
                match self.feed() {
                    Ok(()) => {}
                    // Frames under way give back their buffers.
                    Err(Error::OutOfMemory { .. }) if self.frames.release_spare() => continue,
                    Err(error @ Error::OutOfMemory { .. }) => match self.frames.next() {
                        Some(frame) => return self.handed_out(frame).map(Some),
                        None => self.end = Some(Err(error)),
                    },
                    // The error waits until all bytes before it were handed out.
                    Err(error) => self.end = Some(Err(error)),
                }
                if let Some(frame) = self.frames.ready() {
                    return self.handed_out(frame).map(Some);
                }
                continue;
            }
            if let Some(frame) = self.frames.next() {
                return self.handed_out(frame).map(Some);
            }
            if self.inline.is_some() {
                match self.decode_piece() {
                    Ok(Some(piece)) => return Ok(Some(piece)),
                    Ok(None) => self.inline = None,
                    Err(error) => {
                        self.inline = None;
                        self.end = Some(Err(error));
                    }
                }
                continue;
            }
            return self.outcome();
        }
    }

    fn handed_out(&mut self, frame: Result<Frame>) -> Result<Frame> {
        frame.inspect_err(|error| {
            self.frames.clear();
            self.inline = None;
            self.end = Some(Err(poisoned(error)));
        })
    }

    /// Reports the end of the stream, an error once.
    fn outcome(&mut self) -> Result<Option<Frame>> {
        match &self.end {
            Some(Err(error)) => {
                let later = poisoned(error);
                let now = self.end.replace(Err(later));
                Err(now.and_then(Result::err).expect("an error"))
            }
            _ => Ok(None),
        }
    }

    /// Reads one frame and sends it to the workers, or sets it aside to be decoded in pieces.
    fn feed(&mut self) -> Result<()> {
        let unit_bytes = std::mem::take(&mut self.padding_unit_bytes);
        if unit_bytes > 0 {
            self.skip_padding(unit_bytes)?;
        }
        let offset = self.input.offset();
        match self.look().map_err(|error| placed(error, offset))? {
            Next::End => {
                self.end = Some(Ok(()));
                return Ok(());
            }
            Next::Skippable(bytes) => {
                if !self.input.skip(bytes)? {
                    return Err(self.cut());
                }
                self.counted.count(Kind::Skippable);
                self.padding_unit_bytes = Kind::Skippable.padding_bytes();
            }
            Next::Pieces(kind) => {
                self.counted.count(kind);
                self.padding_unit_bytes = kind.padding_bytes();
                self.inline = Some(Inline {
                    kind,
                    offset,
                    decoder: None,
                });
            }
            Next::Whole(shape, stored_bytes) => {
                let content_bytes = shape.content_bytes.unwrap_or(0);
                let total = self.counted.content_bytes + content_bytes;
                self.options.check(total, offset + stored_bytes as u64)?;
                let mut frame = self.frames.spare();
                frame.offset = offset;
                set_length(&mut frame.stored, stored_bytes)?;
                set_length(&mut frame.content, content_bytes as usize)?;
                (frame.stored).copy_from_slice(&self.input.window()[..stored_bytes]);
                self.input.consume(stored_bytes);
                self.counted.content_bytes = total;
                self.counted.count(shape.kind);
                self.padding_unit_bytes = shape.kind.padding_bytes();
                self.frames.submit(frame);
            }
        }
        Ok(())
    }

    /// Skips the padding behind a frame.
    fn skip_padding(&mut self, unit_bytes: usize) -> Result<()> {
        while self.input.fill_to(unit_bytes)? && is_zero(&self.input.window()[..unit_bytes]) {
            self.input.consume(unit_bytes);
            self.counted.padding_bytes += unit_bytes as u64;
        }
        Ok(())
    }

    /// Finds the kind of the next frame, and reads as much as that needs. Errors count from the start of the frame.
    fn look(&mut self) -> Result<Next> {
        let (mut walk, mut walked) = Walk::begin();
        if !self.input.fill_to(MAGIC_BYTES)? {
            let window = self.input.window();
            let is_first = self.counted.frames() == 0;
            if window.is_empty() && !is_first {
                return Ok(Next::End);
            }
        }
        if Kind::of(self.input.window()).is_none()
            && self.options.ignores_trailing
            && self.counted.frames() > 0
        {
            return Ok(Next::End);
        }
        Kind::expect(self.input.window())?;
        loop {
            if let Some(shape) = walk.shape()
                && shape.kind != Kind::Skippable
                && shape.content_bytes.is_none_or(|it| it > WHOLE_BYTES_MAX)
            {
                return Ok(Next::Pieces(shape.kind));
            }
            match (walked, walk.shape()) {
                (Walked::Read { at, bytes }, shape) => {
                    let end = at + bytes as u64;
                    if let Some(shape) = shape.filter(|_| end > STORED_BYTES_MAX) {
                        return Ok(Next::Pieces(shape.kind));
                    }
                    if !self.input.fill_to(end as usize)? {
                        return Err(self.cut_here());
                    }
                    let window = self.input.window();
                    walked = walk.step(&window[at as usize..end as usize])?;
                }
                (Walked::Whole(bytes), Some(shape)) if shape.kind == Kind::Skippable => {
                    return Ok(Next::Skippable(bytes));
                }
                (Walked::Whole(bytes), Some(shape)) if bytes <= STORED_BYTES_MAX => {
                    return match self.input.fill_to(bytes as usize)? {
                        true => Ok(Next::Whole(shape, bytes as usize)),
                        false => Err(self.cut_here()),
                    };
                }
                (_, Some(shape)) => return Ok(Next::Pieces(shape.kind)),
                (_, None) => unreachable!("a walk that ended before the header"),
            }
        }
    }

    /// Decodes the next piece of the frame that is decoded here; nothing at its end.
    fn decode_piece(&mut self) -> Result<Option<Frame>> {
        let inline = self.inline.as_mut().expect("a frame in pieces");
        let offset = inline.offset;
        let at = |error: Error| placed(error, offset);
        let is_first = inline.decoder.is_none();
        let mut decoder = match inline.decoder.take() {
            Some(decoder) => decoder,
            None => Decoder::begin(inline.kind, self.options.limits(), &mut self.workspace)?,
        };
        let mut piece = self.frames.spare();
        // A frame up to this length is checked to its end before any byte of it is handed out.
        let held_bytes_max = match is_first {
            true => self.options.held_bytes_max.max(PIECE_BYTES),
            false => PIECE_BYTES,
        };
        let (mut written, mut ended) = (0, false);
        set_length(&mut piece.content, PIECE_BYTES)?;
        while written < held_bytes_max && !ended {
            if written == piece.content.len() {
                let longer = (2 * written).min(held_bytes_max);
                match set_length(&mut piece.content, longer) {
                    // Without memory to hold it, it is handed out piece by piece.
                    Err(Error::OutOfMemory { .. }) => break,
                    other => other?,
                }
            }
            let (source, target) = (self.input.window(), &mut piece.content[written..]);
            let step = decoder
                .decode(&mut self.workspace, source, target)
                .map_err(at)?;
            self.input.consume(step.read);
            written += step.written;
            ended = step.ended;
            if step.read == 0 && step.written == 0 && !ended && !self.input.fill_more(1)? {
                return Err(self.cut());
            }
        }
        self.counted.content_bytes += written as u64;
        self.options
            .check(self.counted.content_bytes, self.input.offset())?;
        piece.content.truncate(written);
        if !ended {
            self.inline.as_mut().expect("a frame in pieces").decoder = Some(decoder);
        } else if written == 0 {
            self.frames.give_back(piece);
            return Ok(None);
        } else {
            self.inline = None;
        }
        Ok(Some(piece))
    }

    /// The stream ends within a frame: an error that counts from the start of the stream.
    fn cut(&self) -> Error {
        self.cut_here().moved_by(self.input.offset())
    }

    /// The stream ends within a frame: an error that counts from the window.
    fn cut_here(&self) -> Error {
        let place = self.input.window().len() as u64;
        Error::corrupt(STREAM, place, "the rest of a frame", "the end of the input")
    }
}

fn poisoned(cause: &Error) -> Error {
    match cause {
        Error::Poisoned { what, cause } => Error::Poisoned {
            what: what.clone(),
            cause: cause.clone(),
        },
        cause => Error::Poisoned {
            what: "the stream".to_string(),
            cause: cause.to_string(),
        },
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        let count = copy_front(self.fill().map_err(io::Error::other)?, target);
        self.consume(count);
        Ok(count)
    }
}
