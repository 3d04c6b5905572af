//! The contents of a stream, by its frames' headers. Nothing is decoded but `.xz` streams, because only decoding finds
//! their end. The seek table is not trusted.

use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;

use crate::error::{Error, Result};
use crate::frame::{Decoder, Kind, MAGIC_BYTES, STREAM, Shape, Walk, Walked, Workspace};
use crate::storage::is_zero;

use super::decoding::ReaderOptions;
use super::reader::Counted;
use super::seekable::read_seek_table;

/// The results of [`survey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Frames by kind, and bytes; the decoded bytes are as the frames state them.
    pub counted: Counted,
    /// Whether every frame states its content, so that the decoded bytes are meaningful.
    pub states_content: bool,
    /// The largest window of its frames; 0 where none states any.
    pub window_bytes: u64,
    /// Whether it ends with a usable seek table.
    pub has_table: bool,
}

/// A frame of a stream, by its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundFrame {
    /// Where it begins in the stream.
    pub at: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its bytes.
    pub stored_bytes: u64,
    /// The bytes it decodes to, where it states them.
    pub content_bytes: Option<u64>,
    /// The memory of decoded bytes for decoding it in pieces; 0 where it is not stated.
    pub window_bytes: u64,
}

/// Looks through a stream from its start. The only option in use is the largest window, for `.xz` streams.
///
/// # Errors
///
/// `Corrupt` with the byte of the stream where no frame is; `Limit` for a window; `Io` from the source. A stream may
/// pass and still not decode.
///
/// # Cost
///
/// Two small reads for each block of a frame (128 KiB in Zstandard).
pub fn survey(source: &mut (impl Read + Seek), options: &ReaderOptions) -> Result<Survey> {
    let has_table = read_seek_table(source)?.is_some();
    let mut survey = Survey {
        counted: Counted::default(),
        states_content: true,
        window_bytes: 0,
        has_table,
    };
    let mut frames_bytes = 0;
    survey.counted.stored_bytes = visit(source, options, &mut |frame| {
        frames_bytes += frame.stored_bytes;
        survey.counted.count(frame.kind);
        let content_bytes = frame.content_bytes.unwrap_or(0);
        survey.counted.content_bytes = survey.counted.content_bytes.saturating_add(content_bytes);
        survey.window_bytes = survey.window_bytes.max(frame.window_bytes);
        survey.states_content &= frame.content_bytes.is_some();
    })?;
    survey.counted.padding_bytes = survey.counted.stored_bytes - frames_bytes;
    Ok(survey)
}

/// Visits each frame of a stream, from its start on, and returns the bytes of all.
///
/// # Errors
///
/// # Cost
///
/// As [`survey`].
pub fn visit(
    source: &mut (impl Read + Seek),
    options: &ReaderOptions,
    tell: &mut dyn FnMut(FoundFrame),
) -> Result<u64> {
    let end = source.seek(SeekFrom::End(0)).map_err(failed)?;
    let mut at = 0;
    while at < end || at == 0 {
        let (shape, stored_bytes) = look(source, options, at..end).map_err(|it| it.moved_by(at))?;
        if stored_bytes > end - at {
            return Err(cut(end));
        }
        tell(FoundFrame {
            at,
            kind: shape.kind,
            stored_bytes,
            content_bytes: shape.content_bytes,
            window_bytes: shape.window_bytes,
        });
        at += stored_bytes;
        at += padding(source, at, shape.kind.padding_bytes())?;
    }
    Ok(at)
}

/// Returns the shape and the bytes of the frame at a place.
fn look(
    source: &mut (impl Read + Seek),
    options: &ReaderOptions,
    Range { start, end }: Range<u64>,
) -> Result<(Shape, u64)> {
    let (mut walk, mut walked) = Walk::begin();
    // The longest header has 18 bytes.
    let mut bytes = [0; 32];
    loop {
        match (walked, walk.shape()) {
            (Walked::Read { at, bytes: wanted }, _) => {
                let there = wanted.min(end.saturating_sub(start + at) as usize);
                let piece = &mut bytes[..there];
                source.seek(SeekFrom::Start(start + at)).map_err(failed)?;
                source.read_exact(piece).map_err(failed)?;
                if wanted == MAGIC_BYTES && at == 0 {
                    Kind::expect(piece)?;
                }
                if there < wanted {
                    return Err(cut(at + there as u64));
                }
                walked = walk.step(piece)?;
            }
            (Walked::Whole(bytes), Some(shape)) => return Ok((shape, bytes)),
            (_, Some(shape)) => {
                let (stored, content) = decode(source, options, start, shape.kind)?;
                let content_bytes = Some(content);
                return Ok((
                    Shape {
                        content_bytes,
                        ..shape
                    },
                    stored,
                ));
            }
            (_, None) => unreachable!("a walk that ended before the header"),
        }
    }
}

/// Decodes a frame to find its end: returns its stored and decoded bytes.
fn decode(
    source: &mut (impl Read + Seek),
    options: &ReaderOptions,
    start: u64,
    kind: Kind,
) -> Result<(u64, u64)> {
    source.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut workspace = Workspace::new();
    let mut decoder = Decoder::begin(kind, options.limits(), &mut workspace)?;
    let (mut window, mut content) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    let (mut from, mut to) = (0, 0);
    let (mut stored_bytes, mut content_bytes) = (0, 0);
    loop {
        let step = decoder.decode(&mut workspace, &window[from..to], &mut content)?;
        from += step.read;
        stored_bytes += step.read as u64;
        content_bytes += step.written as u64;
        if step.ended {
            return Ok((stored_bytes, content_bytes));
        }
        if step.read == 0 && step.written == 0 {
            // The rest is kept, so that a decoder that needs more gets more.
            window.copy_within(from..to, 0);
            (from, to) = (0, to - from);
            match source.read(&mut window[to..]) {
                Ok(0) => return Err(cut(stored_bytes)),
                Ok(count) => to += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
}

/// Returns the bytes of padding at a place behind a frame.
fn padding(source: &mut (impl Read + Seek), at: u64, unit_bytes: usize) -> Result<u64> {
    source.seek(SeekFrom::Start(at)).map_err(failed)?;
    let (mut bytes, mut unit) = (0, vec![0; unit_bytes]);
    let mut source = std::io::BufReader::new(source);
    loop {
        match source.read_exact(&mut unit) {
            Ok(()) if is_zero(&unit) => bytes += unit_bytes as u64,
            Ok(()) => return Ok(bytes),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(bytes),
            Err(error) => return Err(failed(error)),
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::io("read", "the stream", error)
}

fn cut(at: u64) -> Error {
    Error::corrupt(STREAM, at, "the rest of a frame", "the end of the input")
}
