//! Any bytes for a client: made by the protocol's rules and then spoilt, or not. The server answers each request in the
//! protocol's form, shows the bytes that a plain array would, and does not panic.
//!
//! The numbers are those of the protocol's published specification, written down once more.

use breakeven::disk::{Disk, DiskOptions};
use breakeven::storage::MemoryStorage;
use breakeven::testing::{is_full, seed};
use fastrand::Rng;

use super::handshake::{Offer, Session, StatusContext, negotiate};
use super::metrics::Metrics;
use super::request::transmit;

const NAME: &str = "disk";
/// A snapshot of it when it was empty.
const STILL: &str = "still";
const BLOCK_BYTES: usize = 4096;
const SIZE_BYTES: usize = 16 * BLOCK_BYTES;
const REQUEST_BYTES_MAX: u32 = 32 << 20;

const OPTION_MAGIC: [u8; 8] = *b"IHAVEOPT";
const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const EXPORT_NAME: u32 = 1;
const GO: u32 = 7;

const REQUEST_MAGIC: u32 = 0x2560_9513;
const SIMPLE_MAGIC: u32 = 0x6744_6698;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;
const BLOCK_STATUS: u16 = 7;

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text].concat()
}

fn option(random: &mut Rng, number: u32) -> Vec<u8> {
    let name = text([&b""[..], NAME.as_bytes(), b"none"][random.usize(..3)]);
    let data = match number {
        EXPORT_NAME => name[4..].to_vec(),
        6 | GO => {
            let count = random.u16(..4);
            let list = vec![0; usize::from(count) * 2];
            [&name[..], &count.to_be_bytes(), &list].concat()
        }
        9 | 10 => {
            let count = random.usize(..3);
            let query = |random: &mut Rng| {
                let queries = [
                    &b"base:allocation"[..],
                    b"base:",
                    b"other:x",
                    b"qemu:dirty-bitmap:still",
                    b"qemu:",
                ];
                text(queries[random.usize(..queries.len())])
            };
            let queries: Vec<Vec<u8>> = (0..count).map(|_| query(random)).collect();
            let count = (count as u32).to_be_bytes();
            [name, count.to_vec(), queries.concat()].concat()
        }
        _ => Vec::new(),
    };
    let head = [number.to_be_bytes(), (data.len() as u32).to_be_bytes()].concat();
    [&OPTION_MAGIC[..], &head, &data].concat()
}

fn request(random: &mut Rng) -> Vec<u8> {
    let kind = random.u16(..9);
    let flags = match random.u8(..4) {
        0 => 1u16 << random.u16(..6),
        _ => 0,
    };
    let size = SIZE_BYTES as u64;
    let offset = match random.u8(..8) {
        0 => [0, size - 1, size, u64::MAX][random.usize(..4)],
        1..4 => random.u64(..16) * BLOCK_BYTES as u64,
        _ => random.u64(..size),
    };
    let length = match random.u8(..16) {
        0 => [0, REQUEST_BYTES_MAX + 1, u32::MAX][random.usize(..3)],
        1..6 => random.u32(..8) * BLOCK_BYTES as u32,
        _ => random.u32(..20_000),
    };
    let mut bytes = REQUEST_MAGIC.to_be_bytes().to_vec();
    bytes.extend([flags.to_be_bytes(), kind.to_be_bytes()].concat());
    bytes.extend(random.u64(..).to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    if kind == WRITE && length <= REQUEST_BYTES_MAX {
        let from = bytes.len();
        bytes.resize(from + length as usize, random.u8(..3));
        if random.bool() {
            random.fill(&mut bytes[from..]);
        }
    }
    bytes
}

/// A client's bytes from its first to its last.
fn client(random: &mut Rng) -> Vec<u8> {
    let mut bytes = match random.u8(..8) {
        0 => random.u32(..).to_be_bytes().to_vec(),
        // Those of the handshake before this one name an export, and get no other option answered.
        1 => [vec![0; 4], option(random, EXPORT_NAME)].concat(),
        flags => u32::from(flags % 2 * 2 + 1).to_be_bytes().to_vec(),
    };
    for _ in 0..random.usize(..5) {
        let number = [2, 3, 5, 6, 8, 8, 9, 10, 10, 77][random.usize(..10)];
        bytes.extend(option(random, number));
    }
    let last = if random.u8(..4) == 0 { EXPORT_NAME } else { GO };
    bytes.extend(option(random, last));
    for _ in 0..random.usize(..12) {
        bytes.extend(request(random));
    }
    for _ in 0..random.usize(..3) {
        let at = random.usize(..bytes.len());
        match random.u8(..8) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes.insert(at, random.u8(..)),
            // Most are where the handshake is.
            2..5 => bytes[at.min(100)] ^= 1 << random.u8(..8),
            _ => {}
        }
    }
    bytes
}

/// Takes bytes off the front.
fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
    let (first, rest) = bytes.split_first_chunk().expect("a reply that is whole");
    *bytes = rest;
    *first
}

fn take_u32(bytes: &mut &[u8]) -> u32 {
    u32::from_be_bytes(take(bytes))
}

/// Checks a server's replies up to an agreement, or without one.
fn check_handshake(mut said: &[u8], is_agreed: bool) {
    assert_eq!(take(&mut said), *b"NBDMAGICIHAVEOPT\0\x03");
    while said.starts_with(&OPTION_REPLY_MAGIC.to_be_bytes()) {
        let _: [u8; 16] = take(&mut said);
        let length = take_u32(&mut said) as usize;
        said = said.get(length..).expect("a reply that is whole");
    }
    let is_export = is_agreed && [10, 134].contains(&said.len());
    assert!(said.is_empty() || is_export, "{} bytes", said.len());
}

/// A request that was sent.
struct Asked {
    kind: u16,
    cookie: [u8; 8],
    offset: u64,
    length: u32,
    /// The bytes to write.
    bytes: Vec<u8>,
}

/// Returns the requests that must be answered.
fn asked(mut bytes: &[u8]) -> Vec<Asked> {
    let mut all = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<28>() {
        let mut head = &head[..];
        let magic = take_u32(&mut head);
        let _flags: [u8; 2] = take(&mut head);
        let kind = u16::from_be_bytes(take(&mut head));
        let cookie = take(&mut head);
        let (offset, length) = (u64::from_be_bytes(take(&mut head)), take_u32(&mut head));
        let written = if kind == WRITE { length as usize } else { 0 };
        let is_too_long = kind == WRITE && length > REQUEST_BYTES_MAX;
        if magic != REQUEST_MAGIC || kind == DISCONNECT || is_too_long || rest.len() < written {
            break;
        }
        let (written, rest) = rest.split_at(written);
        bytes = rest;
        all.push(Asked {
            kind,
            cookie,
            offset,
            length,
            bytes: written.to_vec(),
        });
    }
    all
}

impl Asked {
    fn range(&self) -> std::ops::Range<usize> {
        let end = self.offset.checked_add(self.length.into());
        let end = end.expect("an answer past the end") as usize;
        assert!(end <= SIZE_BYTES, "an answer past the end");
        self.offset as usize..end
    }

    /// Checks one reply, and applies the request to `content`.
    fn check(&self, said: &mut &[u8], session: &Session, content: &mut [u8]) {
        let mut shown = Vec::new();
        loop {
            let magic = take_u32(said);
            if magic == SIMPLE_MAGIC {
                let error = take_u32(said);
                assert_eq!(take(said), self.cookie);
                if error != 0 {
                    return;
                }
                if self.kind == READ {
                    assert!(!session.is_structured, "a read without its form");
                    let (bytes, rest) = said.split_at(self.length as usize);
                    *said = rest;
                    assert!(bytes == &content[self.range()], "other bytes");
                }
                break;
            }
            assert_eq!(magic, STRUCTURED_MAGIC);
            assert!(session.is_structured, "a form that was not agreed on");
            let [_, flags, high, low] = take(said);
            assert_eq!(take(said), self.cookie);
            let length = take_u32(said) as usize;
            let (mut body, rest) = said.split_at(length);
            *said = rest;
            match u16::from_be_bytes([high, low]) {
                0 => assert!(length == 0 && self.length == 0, "nothing, of something"),
                1 | 2 => {
                    assert!(length > 8, "a chunk of no bytes");
                    let is_hole = low == 2;
                    let at = u64::from_be_bytes(take(&mut body)) as usize;
                    let bytes = match is_hole {
                        true => vec![0; take_u32(&mut body) as usize],
                        false => body.to_vec(),
                    };
                    assert!(bytes == content[at..at + bytes.len()], "other bytes");
                    shown.push(at..at + bytes.len());
                }
                5 => self.check_status(body, session, content),
                kind => {
                    assert_eq!(kind, 0x8001, "an unknown chunk");
                    let error = take_u32(&mut body);
                    assert!([1, 5, 22, 28, 75].contains(&error), "{error}");
                    assert_eq!(flags, 1, "something behind an error");
                    return;
                }
            }
            if flags == 1 {
                break;
            }
        }
        if self.kind == READ && session.is_structured {
            shown.sort_by_key(|range| range.start);
            let ends = shown.iter().map(|range| range.end);
            let starts = shown.iter().map(|range| range.start);
            assert!(ends.zip(starts.skip(1)).all(|(end, start)| end == start));
            let start = shown
                .first()
                .map_or(self.range().start, |range| range.start);
            let end = shown.last().map_or(start, |range| range.end);
            assert_eq!(start..end, self.range());
        }
        self.apply(session, content);
    }

    /// Checks the reported status of a range. A range unchanged since the snapshot of the empty disk is zeros, as a
    /// hole is.
    fn check_status(&self, mut body: &[u8], session: &Session, content: &[u8]) {
        let number = take_u32(&mut body) as usize;
        assert_eq!(self.kind, BLOCK_STATUS);
        let zeros = match &session.contexts[number - 1] {
            StatusContext::Allocation => 3,
            StatusContext::Changes { since } => {
                assert_eq!(since, STILL);
                0
            }
        };
        let mut at = self.range().start;
        while !body.is_empty() {
            let (length, state) = (take_u32(&mut body) as usize, take_u32(&mut body));
            let is_known = state == 0 || state == zeros || (zeros == 0 && state == 1);
            assert!(length > 0 && is_known, "{length} {state}");
            let part = &content[at..at + length];
            assert!(state != zeros || part.iter().all(|byte| *byte == 0));
            at += length;
        }
        assert!(at <= self.range().end);
    }

    fn apply(&self, session: &Session, content: &mut [u8]) {
        let is_change = matches!(self.kind, WRITE | TRIM | WRITE_ZEROES);
        assert!(
            !(is_change && session.is_read_only),
            "a change of a snapshot"
        );
        match self.kind {
            WRITE => content[self.range()].copy_from_slice(&self.bytes),
            WRITE_ZEROES => content[self.range()].fill(0),
            TRIM => {
                let range = self.range();
                let start = range.start.next_multiple_of(BLOCK_BYTES);
                let end = range.end / BLOCK_BYTES * BLOCK_BYTES;
                content[start..end.max(start)].fill(0);
            }
            _ => {}
        }
    }
}

/// Serves a client that sends these bytes; returns whether anything was agreed on, and how many requests were answered.
fn serve(bytes: &[u8], is_read_only: bool) -> (bool, usize) {
    let storage = MemoryStorage::new();
    let disk = Disk::create(&storage, NAME, DiskOptions::default()).expect("a disk");
    disk.create_volume(NAME, SIZE_BYTES as u64)
        .expect("a volume");
    disk.clone_volume(NAME, STILL, true).expect("a snapshot");
    let offer = Offer {
        disk: &disk,
        default: NAME,
        is_read_only,
    };
    let (mut reader, mut said) = (bytes, Vec::new());
    let agreed = negotiate(&mut reader, &mut said, &offer).ok().flatten();
    check_handshake(&said, agreed.is_some());
    let Some(session) = agreed else {
        return (false, 0);
    };
    let all = asked(reader);
    let mut said = Vec::new();
    // How it ends is as good as the client was.
    let _ = transmit(&mut reader, &mut said, &session, &Metrics::default(), 1);
    let (mut said, mut content) = (&said[..], vec![0; SIZE_BYTES]);
    for asked in &all {
        asked.check(&mut said, &session, &mut content);
    }
    assert!(
        said.is_empty(),
        "{} bytes that nobody asked for",
        said.len()
    );
    (true, all.len())
}

/// Bytes that are shown if the server breaks its promise for them.
struct Shown<'a>(&'a [u8]);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
            println!("a promise was broken for: {hex}");
        }
    }
}

#[test]
fn whatever_a_client_sends_is_answered_as_the_protocol_says_or_not_at_all() {
    let rounds = if is_full() { 100_000 } else { 3_000 };
    let mut random = Rng::with_seed(seed(2561));
    let (mut agreed, mut answered) = (0, 0);
    for _ in 0..rounds {
        let bytes = client(&mut random);
        let _shown = Shown(&bytes);
        let (is_agreed, requests) = serve(&bytes, random.u8(..8) == 0);
        agreed += usize::from(is_agreed);
        answered += requests;
    }
    println!("{rounds} clients, {agreed} agreed, {answered} requests answered");
    let is_enough = agreed > rounds / 5 && answered > rounds / 2;
    assert!(is_enough, "{agreed} {answered}");
}
