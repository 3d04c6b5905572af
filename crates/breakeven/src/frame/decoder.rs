//! Frames decoded: a whole one in memory, or one that comes in pieces.

use flate2::{Decompress, FlushDecompress};
use zstd_safe::zstd_sys::ZSTD_ErrorCode;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::lz4_decoder::Context;
use super::{Kind, Shape, Walk, Walked, corrupt};
use crate::error::{Error, Result};

use liblzma::stream::{Action, Status, Stream};

/// The limits of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderLimits {
    /// The largest window of a frame that is decoded in pieces, in bytes; for `.xz`, window and
    /// tables. For Zstandard it counts as 1 KiB to 2 GiB. Default 128 MiB, as stock `zstd -d` has it.
    pub window_bytes_max: u64,
}

impl Default for DecoderLimits {
    fn default() -> DecoderLimits {
        DecoderLimits {
            window_bytes_max: 128 << 20,
        }
    }
}

/// The working memory of decoding, reused from frame to frame.
#[derive(Default)]
pub struct Workspace {
    zstd: Option<DCtx<'static>>,
    lz4: Option<Context>,
}

impl Workspace {
    /// Makes a workspace that holds no memory yet.
    pub fn new() -> Workspace {
        Workspace::default()
    }

    /// Decodes one whole frame, of any kind but skippable, into a target that it must fill.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the byte of the frame, if the bytes are not exactly one sound frame of the target's length.
    /// `Limit` for an `.xz` window above the limit.
    pub fn decode_whole(
        &mut self,
        limits: DecoderLimits,
        frame: &[u8],
        target: &mut [u8],
    ) -> Result<()> {
        let kind = Kind::expect(frame)?;
        if kind == Kind::Zstd {
            // In one piece the target serves as the window, so no other memory is needed.
            return self.decode_whole_zstd(frame, target);
        }
        let mut decoder = Decoder::begin(kind, limits, self)?;
        let target_bytes = target.len();
        let (mut read, mut written) = (0, 0);
        loop {
            let step = decoder.decode(self, &frame[read..], &mut target[written..])?;
            (read, written) = (read + step.read, written + step.written);
            let stalled = step.read == 0 && step.written == 0;
            if step.ended && read == frame.len() && written == target_bytes {
                return Ok(());
            }
            if step.ended || stalled {
                let found = format!("{written} after {read} of {} bytes", frame.len());
                let expected = format!("{target_bytes} decoded bytes and the end of the frame");
                return Err(corrupt(read as u64, expected, found));
            }
        }
    }

    fn decode_whole_zstd(&mut self, frame: &[u8], target: &mut [u8]) -> Result<()> {
        let expected = format_args!("{} decoded bytes", target.len()).to_string();
        match zstd_safe::find_frame_compressed_size(frame) {
            Ok(size) if size == frame.len() => {}
            Ok(size) => return Err(corrupt(size as u64, "the end of the frame", "more bytes")),
            Err(code) => return Err(corrupt(0, expected, zstd_safe::get_error_name(code))),
        }
        let context = self.zstd()?;
        context.reset(ResetDirective::SessionOnly).map_err(bug)?;
        match context.decompress(target, frame) {
            Ok(size) if size == target.len() => Ok(()),
            Ok(size) => Err(corrupt(0, expected, format!("{size} bytes"))),
            Err(NO_MEMORY) => Err(no_memory("a decoder of zstd")),
            Err(code) => Err(corrupt(0, expected, zstd_safe::get_error_name(code))),
        }
    }

    fn zstd(&mut self) -> Result<&mut DCtx<'static>> {
        match &mut self.zstd {
            Some(context) => Ok(context),
            slot => {
                Ok(slot.insert(DCtx::try_create().ok_or_else(|| no_memory("a decoder of zstd"))?))
            }
        }
    }

    fn lz4(&mut self) -> Result<&mut Context> {
        match &mut self.lz4 {
            Some(context) => Ok(context),
            slot => Ok(slot.insert(Context::new()?)),
        }
    }
}

/// The progress of one call of [`Decoder::decode`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Bytes taken from the source.
    pub read: usize,
    /// Bytes put into the target.
    pub written: usize,
    /// Whether the frame ended with the last byte taken.
    pub ended: bool,
}

/// One frame that is decoded in pieces.
pub struct Decoder {
    state: State,
    window_bytes_max: u64,
    /// Bytes of the frame taken, and decoded bytes, so far.
    read: u64,
    written: u64,
}

enum State {
    /// With the first bytes of the frame, for the sizes they state.
    Zstd(Header),
    Lz4,
    Xz(Box<Stream>),
    Gzip(Box<Decompress>),
}

impl Decoder {
    /// Begins a frame of any kind but skippable.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the system gives no memory.
    ///
    /// # Panics
    ///
    /// For a skippable frame, which has no content.
    pub fn begin(kind: Kind, limits: DecoderLimits, workspace: &mut Workspace) -> Result<Decoder> {
        let mut window_bytes_max = limits.window_bytes_max.max(1 << 10);
        let state = match kind {
            Kind::Zstd => {
                let context = workspace.zstd()?;
                context.reset(ResetDirective::SessionOnly).map_err(bug)?;
                window_bytes_max = window_bytes_max.min(1 << 31);
                // The library knows powers of two; the header's own figure refuses windows in between.
                let log = window_bytes_max.next_power_of_two().ilog2();
                let parameter = DParameter::WindowLogMax(log);
                context.set_parameter(parameter).map_err(bug)?;
                State::Zstd(Header::default())
            }
            Kind::Lz4 => {
                workspace.lz4()?.reset();
                State::Lz4
            }
            Kind::Xz => State::Xz(Box::new(
                Stream::new_stream_decoder(window_bytes_max, 0)
                    .map_err(|_| no_memory("a decoder of xz"))?,
            )),
            // The window of deflate, with the member's header and checks.
            Kind::Gzip => State::Gzip(Box::new(Decompress::new_gzip(15))),
            Kind::Skippable => panic!("a skippable frame has no content"),
        };
        Ok(Decoder {
            state,
            window_bytes_max,
            read: 0,
            written: 0,
        })
    }

    /// Decodes as much as source and target allow. A step that neither reads nor writes needs more source; if there is
    /// none, the frame is truncated.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the byte of the frame, `Limit` for a window above the limit.
    pub fn decode(
        &mut self,
        workspace: &mut Workspace,
        source: &[u8],
        target: &mut [u8],
    ) -> Result<Step> {
        let step = match &mut self.state {
            State::Zstd(header) => {
                let context = workspace.zstd()?;
                header.check_window(source, self.window_bytes_max)?;
                let step = step_zstd(context, source, target);
                step.and_then(|step| {
                    header.take(&source[..step.read]);
                    if step.ended {
                        header.check(self.written + step.written as u64, step.read as u64)?;
                    }
                    Ok(step)
                })
            }
            State::Lz4 => {
                let (read, written, ended) = workspace
                    .lz4()?
                    .decode(source, target)
                    .map_err(|error| error.moved_by(self.read))?;
                Ok(Step {
                    read,
                    written,
                    ended,
                })
            }
            State::Xz(stream) => step_xz(stream, self.window_bytes_max, source, target),
            State::Gzip(stream) => step_gzip(stream, source, target),
        };
        let step = step.map_err(|error| match self.state {
            State::Zstd(_) => error.moved_by(self.read),
            _ => error,
        })?;
        self.read += step.read as u64;
        self.written += step.written as u64;
        Ok(step)
    }
}

/// The longest header of a Zstandard frame.
const HEADER_BYTES_MAX: usize = 18;

/// The first bytes of a Zstandard frame.
///
/// For frames in pieces that end with an empty block, the library does not check the stated content size. So this does.
#[derive(Clone, Default)]
struct Header {
    bytes: [u8; HEADER_BYTES_MAX],
    length: usize,
}

impl Header {
    fn take(&mut self, bytes: &[u8]) {
        let count = bytes.len().min(HEADER_BYTES_MAX - self.length);
        self.bytes[self.length..][..count].copy_from_slice(&bytes[..count]);
        self.length += count;
    }

    /// Returns the header's facts, once its bytes are there.
    fn shape(&self) -> Result<Option<Shape>> {
        let (mut walk, mut walked) = Walk::begin();
        while let (None, Walked::Read { at, bytes }) = (walk.shape(), walked) {
            let there = self.bytes[..self.length].get(at as usize..at as usize + bytes);
            let Some(wanted) = there else {
                return Ok(None);
            };
            walked = walk.step(wanted)?;
        }
        Ok(walk.shape())
    }

    /// Checks the window of a frame that continues with a source, before the decoder makes room for it.
    fn check_window(&self, source: &[u8], limit_bytes: u64) -> Result<()> {
        let mut header = self.clone();
        header.take(source);
        match header.shape()? {
            Some(shape) if shape.window_bytes > limit_bytes => Err(Error::Limit {
                what: "zstd window",
                limit_bytes,
                needed_bytes: shape.window_bytes,
            }),
            _ => Ok(()),
        }
    }

    /// Checks that a frame which ended, after `place` bytes of the last piece, decoded to its stated size.
    fn check(&self, content_bytes: u64, place: u64) -> Result<()> {
        match self.shape()?.and_then(|it| it.content_bytes) {
            Some(stated) if stated != content_bytes => {
                let expected = format!("{stated} decoded bytes");
                Err(corrupt(place, expected, format!("{content_bytes} bytes")))
            }
            _ => Ok(()),
        }
    }
}

fn step_zstd(context: &mut DCtx<'static>, source: &[u8], target: &mut [u8]) -> Result<Step> {
    let mut input = InBuffer::around(source);
    let mut output = OutBuffer::around(target);
    let outcome = context.decompress_stream(&mut output, &mut input);
    let written = output.pos();
    match outcome {
        Ok(hint) => Ok(Step {
            read: input.pos,
            written,
            ended: hint == 0,
        }),
        Err(NO_MEMORY) => Err(no_memory("a window of zstd")),
        Err(code) => {
            let name = zstd_safe::get_error_name(code);
            Err(corrupt(input.pos as u64, "a sound zstd frame", name))
        }
    }
}

fn step_xz(
    stream: &mut Stream,
    window_bytes_max: u64,
    source: &[u8],
    target: &mut [u8],
) -> Result<Step> {
    let (read, written) = (stream.total_in(), stream.total_out());
    let outcome = stream.process(source, target, Action::Run);
    let step = |ended| Step {
        read: (stream.total_in() - read) as usize,
        written: (stream.total_out() - written) as usize,
        ended,
    };
    match outcome {
        Ok(Status::StreamEnd) => Ok(step(true)),
        // Nothing to do without more source or room: the caller sees that nothing moved.
        Ok(_) => Ok(step(false)),
        Err(liblzma::stream::Error::MemLimit) => Err(Error::Limit {
            what: "xz window",
            limit_bytes: window_bytes_max,
            needed_bytes: stream.memlimit().max(window_bytes_max + 1),
        }),
        Err(liblzma::stream::Error::Mem) => Err(no_memory("a decoder of xz")),
        // Well formed, as far as it could be read: a filter or a flag of a later version.
        Err(liblzma::stream::Error::Options) => Err(Error::Unsupported {
            what: "an .xz stream with a filter or a flag unknown here".to_string(),
        }),
        Err(error) => Err(corrupt(stream.total_in(), "a sound xz stream", error)),
    }
}

fn step_gzip(stream: &mut Decompress, source: &[u8], target: &mut [u8]) -> Result<Step> {
    let (read, written) = (stream.total_in(), stream.total_out());
    let outcome = stream.decompress(source, target, FlushDecompress::None);
    match outcome {
        Ok(status) => Ok(Step {
            read: (stream.total_in() - read) as usize,
            written: (stream.total_out() - written) as usize,
            ended: status == flate2::Status::StreamEnd,
        }),
        Err(error) => Err(corrupt(stream.total_in(), "a sound gzip member", error)),
    }
}

/// libzstd's error code without memory, which is no fault of the frame.
const NO_MEMORY: usize = (ZSTD_ErrorCode::ZSTD_error_memory_allocation as usize).wrapping_neg();

fn no_memory(what: &'static str) -> Error {
    Error::OutOfMemory { what }
}

/// libzstd refused input that it documents to accept.
fn bug(code: usize) -> Error {
    Error::Unsupported {
        what: format!("zstd: {}", zstd_safe::get_error_name(code)),
    }
}
