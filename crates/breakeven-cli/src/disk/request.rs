//! The transmission phase of the NBD protocol: requests and their replies, until the client leaves.
//!
//! Source: the protocol's published specification, "Transmission phase". A few threads serve a connection. One of them
//! waits for the next request, and the others do theirs, so replies come in the order in which they are ready. Each
//! holds one request of at most 32 MiB.

use std::io::{self, IoSlice, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use breakeven::Error;
use breakeven::blocks::Durability;
use breakeven::disk::{ChangedExtent, Extent, Volume};

use super::handshake::{Session, StatusContext, broken};
use super::metrics::Metrics;

/// The longest read or write, which every client may rely on.
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;
/// From this length on a read is answered in pieces, if the client takes that.
const PIECES_BYTES: u32 = 256 << 10;
/// The most stored or changed blocks in one answer about status. The client asks on from there.
const STATUS_BLOCKS_MAX: u64 = 1 << 15;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const DONT_FRAGMENT: u16 = 4;
const ONE_EXTENT: u16 = 8;
const FAST_ZERO: u16 = 16;

const CHUNK_DONE: u16 = 1;
const CHUNK_MORE: u16 = 0;
const CHUNK_NONE: u16 = 0;
const CHUNK_DATA: u16 = 1;
const CHUNK_HOLE: u16 = 2;
const CHUNK_STATUS: u16 = 5;
const CHUNK_ERROR: u16 = (1 << 15) + 1;

const STATE_HOLE_ZERO: u32 = 3;
const STATE_DIRTY: u32 = 1;

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;

/// A client's request.
#[derive(Clone, Copy)]
struct Request {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

/// The reason of a refusal: the protocol's number, and a sentence.
struct Refusal {
    number: u32,
    sentence: String,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let number = match &error {
            Error::Limit { .. } => ENOSPC,
            error if error.is_out_of_space() => ENOSPC,
            Error::Invalid { .. } => EINVAL,
            _ => EIO,
        };
        let sentence = error.to_string();
        Refusal { number, sentence }
    }
}

fn refuse<T>(number: u32, sentence: &str) -> Result<T, Refusal> {
    let sentence = sentence.to_string();
    Err(Refusal { number, sentence })
}

/// The answer to a request.
enum Answer {
    Done,
    /// The buffer holds the bytes that were read.
    Data,
    /// The requested bytes are still to be read, and sent as they are.
    Pieces,
    /// All requested bytes are zeros.
    Hole,
    Status(Vec<StatusReply>),
}

/// The reply for one kind of status.
struct StatusReply {
    /// The number that was agreed on for it.
    number: u32,
    runs: Vec<StatusRun>,
}

struct StatusRun {
    length_bytes: u64,
    state: u32,
}

impl StatusReply {
    /// Returns a chunk's bytes.
    fn encode(&self) -> Vec<u8> {
        let mut body = self.number.to_be_bytes().to_vec();
        for run in &self.runs {
            // A run is part of the requested range, whose length has 32 bits.
            body.extend_from_slice(&(run.length_bytes as u32).to_be_bytes());
            body.extend_from_slice(&run.state.to_be_bytes());
        }
        body
    }
}

impl Request {
    fn read<R: Read>(reader: &mut R) -> io::Result<Request> {
        let mut bytes = [0; 28];
        reader.read_exact(&mut bytes)?;
        let (magic, rest) = bytes.split_first_chunk().expect("28 bytes");
        let (flags, rest) = rest.split_first_chunk().expect("24 bytes");
        let (kind, rest) = rest.split_first_chunk().expect("22 bytes");
        let (cookie, rest) = rest.split_first_chunk().expect("20 bytes");
        let (offset, rest) = rest.split_first_chunk().expect("12 bytes");
        let length = rest.first_chunk().expect("4 bytes");
        if u32::from_be_bytes(*magic) != REQUEST_MAGIC {
            return Err(broken("a request that is none"));
        }
        Ok(Request {
            flags: u16::from_be_bytes(*flags),
            kind: u16::from_be_bytes(*kind),
            cookie: u64::from_be_bytes(*cookie),
            offset: u64::from_be_bytes(*offset),
            length: u32::from_be_bytes(*length),
        })
    }

    fn durability(&self) -> Durability {
        match self.flags & FUA {
            0 => Durability::Lazy,
            _ => Durability::Durable,
        }
    }

    fn check_flags(&self) -> Result<(), Refusal> {
        let known = match self.kind {
            READ => FUA | DONT_FRAGMENT,
            WRITE_ZEROES => FUA | NO_HOLE | FAST_ZERO,
            BLOCK_STATUS => FUA | ONE_EXTENT,
            _ => FUA,
        };
        match self.flags & !known {
            0 => Ok(()),
            _ => refuse(EINVAL, "a flag that this request does not have"),
        }
    }

    /// Checks the range; past the end there is no space to write to.
    fn check_range(&self, size_bytes: u64) -> Result<(), Refusal> {
        let end = self.offset.checked_add(self.length.into());
        match end.is_some_and(|end| end <= size_bytes) {
            true => Ok(()),
            false if matches!(self.kind, WRITE | WRITE_ZEROES) => refuse(ENOSPC, "past the end"),
            false => refuse(EINVAL, "past the end"),
        }
    }

    /// Carries out the request. `buffer` holds the bytes to write, and gets the bytes read.
    fn run(&self, session: &Session, buffer: &mut Vec<u8>) -> Result<Answer, Refusal> {
        let volume = &session.volume;
        self.check_flags()?;
        if session.is_read_only && matches!(self.kind, WRITE | TRIM | WRITE_ZEROES) {
            return refuse(EPERM, "this export is read-only");
        }
        let length = u64::from(self.length);
        if self.kind != FLUSH {
            self.check_range(volume.status().size_bytes)?;
        }
        match self.kind {
            READ if self.length > REQUEST_BYTES_MAX => {
                return refuse(EOVERFLOW, "more than 32 MiB at once");
            }
            READ => return self.read_bytes(session, buffer),
            BLOCK_STATUS => return self.status(session),
            WRITE => self.write(session, buffer)?,
            TRIM => volume.trim(self.offset, length, self.durability())?,
            WRITE_ZEROES => volume.zero(self.offset, length, self.durability())?,
            FLUSH if session.is_read_only => {}
            FLUSH => volume.flush()?,
            _ => return refuse(EINVAL, "an unknown request"),
        }
        Ok(Answer::Done)
    }

    /// Writes the buffer's bytes. Where there is no room, some is made first.
    fn write(&self, session: &Session, buffer: &mut Vec<u8>) -> Result<(), Refusal> {
        let write = |buffer: &mut Vec<u8>| {
            let written = session
                .volume
                .write_lent(self.offset, buffer, self.durability());
            written.map_err(Refusal::from)
        };
        match write(buffer) {
            Err(refusal) if refusal.number == ENOSPC => {
                session.disk.make_room(u64::from(self.length))?;
                write(buffer)
            }
            written => written,
        }
    }

    fn read_bytes(&self, session: &Session, buffer: &mut Vec<u8>) -> Result<Answer, Refusal> {
        let volume = &session.volume;
        if session.is_structured
            && self.length > 0
            && volume.is_hole(self.offset, self.length.into())?
        {
            return Ok(Answer::Hole);
        }
        if self.comes_in_pieces(session) {
            return Ok(Answer::Pieces);
        }
        buffer.resize(self.length as usize, 0);
        volume.read(self.offset, buffer)?;
        Ok(Answer::Data)
    }

    /// Says whether it is a long read by a client that puts pieces together.
    fn comes_in_pieces(&self, session: &Session) -> bool {
        let is_whole = self.flags & DONT_FRAGMENT != 0;
        session.is_structured && self.length >= PIECES_BYTES && !is_whole
    }

    fn status(&self, session: &Session) -> Result<Answer, Refusal> {
        if session.contexts.is_empty() || self.length == 0 {
            return refuse(EINVAL, "no status was agreed on, or of nothing");
        }
        let mut all = Vec::new();
        for (at, context) in session.contexts.iter().enumerate() {
            let mut runs = self.runs(&session.volume, context)?;
            if self.flags & ONE_EXTENT != 0 {
                runs.truncate(1);
            }
            let number = at as u32 + 1;
            all.push(StatusReply { number, runs });
        }
        Ok(Answer::Status(all))
    }

    fn runs(&self, volume: &Volume, context: &StatusContext) -> Result<Vec<StatusRun>, Refusal> {
        let range = self.offset..self.offset + u64::from(self.length);
        Ok(match context {
            StatusContext::Allocation => {
                let extents = volume.extents(range, STATUS_BLOCKS_MAX)?.into_iter();
                let run = |extent: Extent| StatusRun {
                    length_bytes: extent.length_bytes,
                    state: if extent.is_hole { STATE_HOLE_ZERO } else { 0 },
                };
                extents.map(run).collect()
            }
            StatusContext::Changes { since } => {
                let extents = volume.changes(since, range, STATUS_BLOCKS_MAX)?.into_iter();
                let run = |extent: ChangedExtent| StatusRun {
                    length_bytes: extent.length_bytes,
                    state: if extent.is_changed { STATE_DIRTY } else { 0 },
                };
                extents.map(run).collect()
            }
        })
    }
}

/// Writes parts one behind the other, in one call if the other side has room for them.
fn write_parts<W: Write>(writer: &mut W, parts: &[&[u8]]) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    // Those without bytes are passed over.
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match writer.write_vectored(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => IoSlice::advance_slices(&mut left, count),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn chunk<W: Write>(
    writer: &mut W,
    cookie: u64,
    (flags, kind): (u16, u16),
    body: &[&[u8]],
) -> io::Result<()> {
    let length: usize = body.iter().map(|part| part.len()).sum();
    let mut head = STRUCTURED_MAGIC.to_be_bytes().to_vec();
    head.extend_from_slice(&flags.to_be_bytes());
    head.extend_from_slice(&kind.to_be_bytes());
    head.extend_from_slice(&cookie.to_be_bytes());
    head.extend_from_slice(&(length as u32).to_be_bytes());
    let mut parts = vec![&head[..]];
    parts.extend_from_slice(body);
    write_parts(writer, &parts)
}

fn simple<W: Write>(writer: &mut W, cookie: u64, error: u32, data: &[u8]) -> io::Result<()> {
    let mut head = SIMPLE_MAGIC.to_be_bytes().to_vec();
    head.extend_from_slice(&error.to_be_bytes());
    head.extend_from_slice(&cookie.to_be_bytes());
    write_parts(writer, &[&head, data])
}

fn reply<W: Write>(
    writer: &mut W,
    session: &Session,
    request: &Request,
    result: Result<Answer, Refusal>,
    buffer: &[u8],
) -> io::Result<()> {
    let cookie = request.cookie;
    let offset = request.offset.to_be_bytes();
    let mut last = |kind, body: &[&[u8]]| chunk(writer, cookie, (CHUNK_DONE, kind), body);
    match result {
        // A data chunk of no bytes is forbidden, and libnbd gives up a connection for one.
        Ok(Answer::Data) if session.is_structured && buffer.is_empty() => last(CHUNK_NONE, &[]),
        Ok(Answer::Data) if session.is_structured => last(CHUNK_DATA, &[&offset, buffer]),
        Ok(Answer::Data) => simple(writer, cookie, 0, buffer),
        Ok(Answer::Hole) => last(CHUNK_HOLE, &[&offset, &request.length.to_be_bytes()]),
        Ok(Answer::Status(all)) => {
            let count = all.len();
            for (at, status) in all.iter().enumerate() {
                let flags = if at + 1 == count {
                    CHUNK_DONE
                } else {
                    CHUNK_MORE
                };
                chunk(writer, cookie, (flags, CHUNK_STATUS), &[&status.encode()])?;
            }
            Ok(())
        }
        Ok(Answer::Pieces) => Ok(()),
        Ok(Answer::Done) => simple(writer, cookie, 0, &[]),
        Err(refusal) if session.is_structured => {
            let sentence = &refusal.sentence.as_bytes()[..refusal.sentence.len().min(1000)];
            let length = (sentence.len() as u16).to_be_bytes();
            last(
                CHUNK_ERROR,
                &[&refusal.number.to_be_bytes(), &length, sentence],
            )
        }
        Err(refusal) => simple(writer, cookie, refusal.number, &[]),
    }
}

/// The end of the pieces: the disk refuses, or the client is gone.
enum Broken {
    Refused(Refusal),
    Gone(io::Error),
}

impl From<Error> for Broken {
    fn from(error: Error) -> Broken {
        Broken::Refused(error.into())
    }
}

/// One connection. Requests are read one after the other, done side by side, and answered as they are done.
struct Conversation<'c, R, W> {
    /// Nothing once the client has left.
    reader: Mutex<Option<&'c mut R>>,
    writer: Mutex<&'c mut W>,
    session: &'c Session,
    metrics: &'c Metrics,
}

impl<'c, R: Read + Send, W: Write + Send> Conversation<'c, R, W> {
    /// Returns the next request, with the bytes to write in `buffer`; `None` if the client has left. Behind an error
    /// nobody reads any more.
    fn next(&self, buffer: &mut Vec<u8>) -> io::Result<Option<Request>> {
        let mut turn = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // Where this returns early, the stream is at no request's start.
        let Some(reader) = turn.take() else {
            return Ok(None);
        };
        let request = Request::read(reader)?;
        if request.kind == DISCONNECT {
            return Ok(None);
        }
        if request.kind == WRITE {
            // The bytes behind it would have to be read to find the next request.
            if request.length > REQUEST_BYTES_MAX {
                return Err(broken("a write of more than 32 MiB"));
            }
            buffer.resize(request.length as usize, 0);
            reader.read_exact(buffer)?;
        }
        *turn = Some(reader);
        Ok(Some(request))
    }

    fn lock_writer(&self) -> MutexGuard<'_, &'c mut W> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends the bytes piece by piece, so that the client has some of them while the rest is decoded.
    fn send_pieces(
        &self,
        request: &Request,
        scratch: &mut Vec<u8>,
    ) -> io::Result<Result<Answer, Refusal>> {
        let left_bytes = AtomicU64::new(request.length.into());
        let send = |offset: u64, piece: &[u8]| {
            let mut writer = self.lock_writer();
            let bytes = piece.len() as u64;
            let flags = match left_bytes.fetch_sub(bytes, Ordering::Relaxed) == bytes {
                true => CHUNK_DONE,
                false => CHUNK_MORE,
            };
            let body = [&offset.to_be_bytes()[..], piece];
            let sent = chunk(&mut **writer, request.cookie, (flags, CHUNK_DATA), &body);
            sent.map_err(Broken::Gone)
        };
        let volume = &self.session.volume;
        let length = u64::from(request.length);
        match volume.read_in_pieces(request.offset, length, scratch, send) {
            Ok(()) => Ok(Ok(Answer::Pieces)),
            Err(Broken::Refused(refusal)) => Ok(Err(refusal)),
            Err(Broken::Gone(error)) => Err(error),
        }
    }

    /// Serves requests until there are no more.
    fn serve(&self) -> io::Result<()> {
        let mut buffer = Vec::new();
        while let Some(request) = self.next(&mut buffer)? {
            let mut result = request.run(self.session, &mut buffer);
            if let Ok(Answer::Pieces) = result {
                result = self.send_pieces(&request, &mut buffer)?;
            }
            let (kind, length) = (request.kind, request.length);
            self.metrics.count(kind, length, result.is_err());
            reply(
                &mut **self.lock_writer(),
                self.session,
                &request,
                result,
                &buffer,
            )?;
            if matches!(kind, WRITE | WRITE_ZEROES | TRIM) {
                self.session.tidy();
            }
            // A long request's memory is not kept for short ones.
            if buffer.capacity() > 1 << 20 {
                buffer = Vec::new();
            }
        }
        Ok(())
    }
}

/// Serves requests until the client leaves, at most `threads` at a time.
pub fn transmit<R: Read + Send, W: Write + Send>(
    reader: &mut R,
    writer: &mut W,
    session: &Session,
    metrics: &Metrics,
    threads: usize,
) -> io::Result<()> {
    let conversation = Conversation {
        reader: Mutex::new(Some(reader)),
        writer: Mutex::new(writer),
        session,
        metrics,
    };
    std::thread::scope(|scope| {
        let serve = || conversation.serve();
        // One that the system refuses is missing from speed alone.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(scope, serve).ok();
        let others: Vec<_> = (1..threads).filter_map(spawn).collect();
        let mut result = serve();
        for other in others {
            let other = other.join();
            result = result.and(other.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        result
    })
}
