//! The handshake of the NBD protocol, newstyle: options until an export is agreed on, or its name alone.
//!
//! Source: the protocol's published specification, "Handshake phase" and "Option types". Nothing a client
//! sends is held beyond 64 KiB, and no client stays here for more than so many options.

use std::io::{self, Read, Write};

use breakeven::disk::{Disk, Volume, VolumeStatus};

use super::request::REQUEST_BYTES_MAX;
use crate::standard::complain;

const MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The server's and the client's flags are the same two bits.
const FIXED_NEWSTYLE: u16 = 1;
const NO_ZEROES: u16 = 2;

const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const INFO: u32 = 6;
const GO: u32 = 7;
const STRUCTURED_REPLY: u32 = 8;
const LIST_META_CONTEXT: u32 = 9;
const SET_META_CONTEXT: u32 = 10;

const ACK: u32 = 1;
const SERVER: u32 = 2;
const INFORMATION: u32 = 3;
const META_CONTEXT: u32 = 4;
const UNSUPPORTED: u32 = (1 << 31) + 1;
const POLICY: u32 = (1 << 31) + 2;
const INVALID: u32 = (1 << 31) + 3;
const UNKNOWN: u32 = (1 << 31) + 6;

const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 2;
/// Flush, FUA, trim, zeroes, reads in one part, several connections, quick zeroes. Several connections are
/// allowed: a flush on any of them covers the completed writes of all, because it covers the whole disk.
const ABILITIES: u16 = 4 | 8 | 32 | 64 | ONE_PART | 256 | 2048;
const ABILITIES_OF_READERS: u16 = 4 | ONE_PART | 256;
const ONE_PART: u16 = 128;

const ALLOCATION: &str = "base:allocation";
/// Stands before the name of a snapshot: the changes since then. The name is QEMU's, as the specification has it.
const CHANGES: &str = "qemu:dirty-bitmap:";
/// The most kinds of status in one agreement: QEMU and libnbd's programs ask for two at most.
const CONTEXTS_MAX: usize = 16;

/// The specification's limit for strings is 4 KiB; a list of queries may have several.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// A client that has not agreed on anything by then never will.
const OPTIONS_MAX: usize = 256;

/// A kind of status that clients can ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatusContext {
    /// Stored parts and holes.
    Allocation,
    /// Parts that may differ from a snapshot.
    Changes { since: String },
}

impl StatusContext {
    fn name(&self) -> String {
        match self {
            StatusContext::Allocation => ALLOCATION.to_string(),
            StatusContext::Changes { since } => format!("{CHANGES}{since}"),
        }
    }

    /// Returns whether a query lists it: by its name, or by the beginning of it up to a colon.
    fn is_listed_by(&self, query: &[u8]) -> bool {
        let name = self.name();
        let namespace = name.split_inclusive(':').next().unwrap_or("");
        [&name, namespace].map(str::as_bytes).contains(&query)
            || (query == CHANGES.as_bytes() && matches!(self, StatusContext::Changes { .. }))
    }
}

/// The kinds of status for which a client asked, of one export.
#[derive(Default)]
struct StatusAgreement {
    export: Vec<u8>,
    contexts: Vec<StatusContext>,
}

/// The result of the negotiation.
pub struct Session {
    /// The disk that has the export as a volume.
    pub disk: Disk,
    /// The export.
    pub volume: Volume,
    /// Whether nobody may write through this server.
    pub is_read_only: bool,
    /// Whether replies to reads have a structure.
    pub is_structured: bool,
    /// The kinds of status that the client may ask for, numbered from 1 on.
    pub contexts: Vec<StatusContext>,
}

/// The server's offer.
pub struct Offer<'o> {
    pub disk: &'o Disk,
    /// The volume for clients that name none.
    pub default: &'o str,
    pub is_read_only: bool,
}

impl Session {
    /// Keeps the disk to its length, behind a reply that nobody waits for any more.
    pub fn tidy(&self) {
        if let Err(error) = self.disk.tidy() {
            complain(format_args!("cleaning failed: {error}"));
        }
    }
}

struct Handshake<'h, R, W> {
    reader: &'h mut R,
    writer: &'h mut W,
    offer: &'h Offer<'h>,
    sends_zeroes: bool,
    is_structured: bool,
    agreed: StatusAgreement,
}

pub fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes(*bytes))
}

/// Greets a client and answers its options. Returns the agreed session, `None` if the client left.
pub fn negotiate<R: Read, W: Write>(
    reader: &mut R,
    writer: &mut W,
    offer: &Offer<'_>,
) -> io::Result<Option<Session>> {
    let mut hello = Vec::new();
    hello.extend_from_slice(&MAGIC.to_be_bytes());
    hello.extend_from_slice(&OPTION_MAGIC.to_be_bytes());
    hello.extend_from_slice(&(FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
    writer.write_all(&hello)?;
    let mut flags = [0; 4];
    reader.read_exact(&mut flags)?;
    let flags = u32::from_be_bytes(flags);
    if flags >> 2 != 0 {
        return Err(broken("a client of another handshake"));
    }
    let is_fixed = flags & u32::from(FIXED_NEWSTYLE) != 0;
    let mut handshake = Handshake {
        reader,
        writer,
        offer,
        sends_zeroes: flags & u32::from(NO_ZEROES) == 0,
        is_structured: false,
        agreed: StatusAgreement::default(),
    };
    for _ in 0..OPTIONS_MAX {
        let (option, data) = handshake.read_option()?;
        match option {
            EXPORT_NAME => return handshake.export_name(&data).map(Some),
            // A client of the handshake before this one understands no answer to an option.
            _ if !is_fixed => return Err(broken("an option of a client that knows none")),
            ABORT => {
                handshake.reply(option, ACK, b"")?;
                return Ok(None);
            }
            GO | INFO => {
                let session = handshake.inform(option, &data)?;
                if option == GO && session.is_some() {
                    return Ok(session);
                }
            }
            _ => handshake.answer(option, &data)?,
        }
    }
    Err(broken("a client that only negotiates"))
}

impl<R: Read, W: Write> Handshake<'_, R, W> {
    fn read_option(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut head = [0; 16];
        self.reader.read_exact(&mut head)?;
        let length = u32_at(&head, 12).expect("four bytes");
        if head[..8] != OPTION_MAGIC.to_be_bytes() || length > OPTION_BYTES_MAX {
            return Err(broken("an option that is none, or too long"));
        }
        let mut data = vec![0; length as usize];
        self.reader.read_exact(&mut data)?;
        Ok((u32_at(&head, 8).expect("four bytes"), data))
    }

    fn reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut reply = Vec::with_capacity(20 + data.len());
        reply.extend_from_slice(&REPLY_MAGIC.to_be_bytes());
        for word in [option, kind, data.len() as u32] {
            reply.extend_from_slice(&word.to_be_bytes());
        }
        reply.extend_from_slice(data);
        self.writer.write_all(&reply)
    }

    /// Answers an option after which the handshake goes on.
    fn answer(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        match option {
            LIST if !data.is_empty() => self.reply(option, INVALID, b"a list takes nothing"),
            LIST => {
                let volumes = self.offer.disk.volumes().map_err(io::Error::other)?;
                for volume in volumes {
                    let mut entry = (volume.name.len() as u32).to_be_bytes().to_vec();
                    entry.extend_from_slice(volume.name.as_bytes());
                    self.reply(option, SERVER, &entry)?;
                }
                self.reply(option, ACK, b"")
            }
            STARTTLS => {
                let sentence = b"no TLS here: the socket's permissions keep others away";
                self.reply(option, POLICY, sentence)
            }
            STRUCTURED_REPLY if !data.is_empty() => {
                self.reply(option, INVALID, b"it takes nothing")
            }
            STRUCTURED_REPLY => {
                self.is_structured = true;
                self.reply(option, ACK, b"")
            }
            LIST_META_CONTEXT | SET_META_CONTEXT => self.meta_context(option, data),
            _ => self.reply(option, UNSUPPORTED, b"this option is unknown here"),
        }
    }

    fn volume(&self, name: &[u8]) -> Option<Volume> {
        let name = std::str::from_utf8(name).ok()?;
        let name = if name.is_empty() {
            self.offer.default
        } else {
            name
        };
        self.offer.disk.volume(name).ok()
    }

    fn session(&self, name: &[u8], volume: Volume) -> Session {
        let has_status = self.is_structured && self.agreed.export == name;
        Session {
            disk: self.offer.disk.clone(),
            is_read_only: self.offer.is_read_only || volume.status().is_read_only,
            volume,
            is_structured: self.is_structured,
            contexts: match has_status {
                true => self.agreed.contexts.clone(),
                false => Vec::new(),
            },
        }
    }

    fn export_name(&mut self, name: &[u8]) -> io::Result<Session> {
        let volume = self.volume(name).ok_or_else(|| broken("no such export"))?;
        let session = self.session(name, volume);
        let mut reply = session.volume.status().size_bytes.to_be_bytes().to_vec();
        reply.extend_from_slice(&abilities(&session).to_be_bytes());
        if self.sends_zeroes {
            reply.resize(reply.len() + 124, 0);
        }
        self.writer.write_all(&reply)?;
        Ok(session)
    }

    /// Answers GO and INFO, which name an export and the facts they ask for.
    fn inform(&mut self, option: u32, data: &[u8]) -> io::Result<Option<Session>> {
        let parsed = take_text(data);
        let parsed = parsed.and_then(|(name, rest)| Some((name, rest.split_first_chunk::<2>()?)));
        let Some((name, (count, asked))) = parsed else {
            self.reply(option, INVALID, b"a name and a list are wanted")?;
            return Ok(None);
        };
        if asked.len() != 2 * usize::from(u16::from_be_bytes(*count)) {
            self.reply(option, INVALID, b"the list is of another length")?;
            return Ok(None);
        }
        let Some(volume) = self.volume(name) else {
            self.reply(option, UNKNOWN, b"no such export")?;
            return Ok(None);
        };
        let session = self.session(name, volume);
        let status = session.volume.status();
        let mut export = vec![0, 0];
        export.extend_from_slice(&status.size_bytes.to_be_bytes());
        export.extend_from_slice(&abilities(&session).to_be_bytes());
        self.reply(option, INFORMATION, &export)?;
        // Any byte can be asked for; whole blocks are quickest.
        let mut sizes = vec![0, 3];
        for size in [1, status.block_bytes, REQUEST_BYTES_MAX] {
            sizes.extend_from_slice(&size.to_be_bytes());
        }
        self.reply(option, INFORMATION, &sizes)?;
        self.reply(option, ACK, b"")?;
        Ok(Some(session))
    }

    /// Lists the kinds of status, or agrees on some.
    fn meta_context(&mut self, option: u32, data: &[u8]) -> io::Result<()> {
        let is_setting = option == SET_META_CONTEXT;
        if is_setting {
            self.agreed = StatusAgreement::default();
        }
        let Some((name, queries)) = parse_queries(data) else {
            return self.reply(option, INVALID, b"a name and queries are wanted");
        };
        if is_setting && !self.is_structured {
            return self.reply(option, INVALID, b"structured replies come first");
        }
        let Some(volume) = self.volume(name) else {
            return self.reply(option, UNKNOWN, b"no such export");
        };
        let mut contexts = self.contexts(volume.status()).map_err(io::Error::other)?;
        if is_setting {
            contexts.retain(|context| queries.contains(&context.name().as_bytes()));
            contexts.truncate(CONTEXTS_MAX);
        } else if !queries.is_empty() {
            contexts.retain(|context| queries.iter().any(|query| context.is_listed_by(query)));
        }
        for (at, context) in contexts.iter().enumerate() {
            let number = if is_setting { at as u32 + 1 } else { 0 };
            let told = [&number.to_be_bytes(), context.name().as_bytes()].concat();
            self.reply(option, META_CONTEXT, &told)?;
        }
        if is_setting {
            let export = name.to_vec();
            self.agreed = StatusAgreement { export, contexts };
        }
        self.reply(option, ACK, b"")
    }

    /// Returns the kinds of status of an export: its allocation, and its changes since each snapshot that it can be
    /// compared with.
    fn contexts(&self, export: &VolumeStatus) -> breakeven::Result<Vec<StatusContext>> {
        let is_comparable = |volume: &VolumeStatus| {
            volume.is_read_only
                && volume.block_bytes == export.block_bytes
                && volume.number != export.number
        };
        let snapshots = self.offer.disk.volumes()?.into_iter();
        let changes = snapshots
            .filter(is_comparable)
            .map(|volume| StatusContext::Changes { since: volume.name });
        Ok([StatusContext::Allocation]
            .into_iter()
            .chain(changes)
            .collect())
    }
}

/// Takes a text with its length before it off the front.
fn take_text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = u32_at(bytes, 0)? as usize;
    bytes[4..].split_at_checked(length)
}

fn parse_queries(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (name, rest) = take_text(data)?;
    let count = u32_at(rest, 0)?;
    let mut rest = &rest[4..];
    let mut queries = Vec::new();
    // A query has at least its length, so that the count is bounded by the data.
    for _ in 0..count {
        let (query, after) = take_text(rest)?;
        queries.push(query);
        rest = after;
    }
    rest.is_empty().then_some((name, queries))
}

fn abilities(session: &Session) -> u16 {
    let abilities = match session.is_read_only {
        true => HAS_FLAGS | READ_ONLY | ABILITIES_OF_READERS,
        false => HAS_FLAGS | ABILITIES,
    };
    // Reads have parts in structured replies alone.
    match session.is_structured {
        true => abilities,
        false => abilities & !ONE_PART,
    }
}
