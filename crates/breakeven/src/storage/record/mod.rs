//! The record: the unit of every log, and the reading of a region.
//!
//! A record's checksum covers its bytes, its place, its log and the generation of its region. So torn, rotten,
//! misdirected and stale records are all the same thing: not there. The format and the rules that a log must keep are
//! in `docs/format.md`. This module lays records out ([`RecordWriter`]), checks one ([`parse`]) and walks a region
//! ([`Scanner`]). It does not encode bodies, does not sync, and knows no log's kinds.
//!
//! No length from the medium leads to an allocation, and a region takes bounded time with any contents.

use std::fmt;
use std::io::IoSlice;
use std::ops::Range;

use crc32c::crc32c_append;

use crate::error::{Error, Result};
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::{AlignedBuffer, StorageFile};

mod scanner;

pub use scanner::{Found, Scanner};

/// The length of a record's header.
pub const HEADER_BYTES: usize = 32;
/// Every record starts at a multiple of this.
pub const ALIGNMENT_BYTES: usize = 16;
/// The kind of a record that only fills space; the scanner skips it.
pub const KIND_PADDING: u8 = 0;
/// The kind of a record whose body begins with the generation of its region.
pub const KIND_HEAD: u8 = 1;

const MAGIC: [u8; 2] = [0xBE, 0x52];
const VERSION: u8 = 1;
/// Sequences are stored in 48 bits.
const SEQUENCE_MAX: u64 = (1 << 48) - 1;

/// A part of a file in one of its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    log_id: [u8; 16],
    generation: u64,
    start: u64,
    end: u64,
    /// The checksum over the log's id and the generation, with which all others begin.
    seed: u32,
}

impl Region {
    /// Names the bytes `range` of a file of the log `log_id` in their use `generation`.
    ///
    /// # Panics
    /// If the range starts at no multiple of [`ALIGNMENT_BYTES`], ends before it starts, or passes
    /// the largest file offset.
    pub fn new(log_id: [u8; 16], generation: u64, range: Range<u64>) -> Region {
        let Range { start, end } = range;
        assert!(start <= end && end <= i64::MAX as u64, "{start}..{end}");
        assert!(start.is_multiple_of(ALIGNMENT_BYTES as u64), "{start}");
        let seed = match is_seeded(SeededBug::GenerationIgnored) {
            true => crc32c_append(0, &log_id),
            false => crc32c_append(crc32c_append(0, &log_id), &generation.to_le_bytes()),
        };
        Region {
            log_id,
            generation,
            start,
            end,
            seed,
        }
    }

    /// Returns the generation of this use of the region.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the offsets in the file.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Returns the checksum of a record at `address`: of the header without its checksum field, and
    /// of the body with the zeros behind it.
    fn checksum(&self, address: u64, header: &[u8], padded_body: &[u8]) -> u32 {
        let address = match is_seeded(SeededBug::ChecksumWithoutAddress) {
            true => 0,
            false => address,
        };
        let checksum = crc32c_append(self.seed, &address.to_le_bytes());
        let checksum = crc32c_append(checksum, &header[..4]);
        let checksum = crc32c_append(checksum, &header[8..HEADER_BYTES]);
        crc32c_append(checksum, padded_body)
    }
}

/// The fields of a record for the log, besides its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The kind of the record, in the log's own table; 0 and 1 are taken.
    pub kind: u8,
    /// The codec of the encoded part of the body, 0 for none.
    pub codec: u8,
    /// The filter of the encoded part of the body, 0 for none.
    pub filter: u8,
    /// The dictionary of the encoded part of the body, 0 for none.
    pub dictionary: u32,
    /// The length that the encoded part of the body decodes to.
    pub raw_bytes: u32,
}

/// A record that was read and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Where the record starts in its file.
    pub address: u64,
    /// Its number in its region.
    pub sequence: u64,
    /// Its checksum, to chain or to compare.
    pub checksum: u32,
    /// The log's label for it.
    pub label: Label,
    /// The log's bytes.
    pub body: &'a [u8],
}

impl Record<'_> {
    /// Returns the offset behind the record, where the next one starts.
    pub fn end(&self) -> u64 {
        self.address + record_bytes(self.body.len() as u64)
    }
}

/// Why there is no record at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// Nothing was ever written here.
    Unwritten,
    /// The record belongs to another use of the region; the low half of its generation is `generation`.
    Stale { generation: u32 },
    /// No record starts here.
    Magic,
    /// The record is of a version this library does not know.
    Version { found: u8 },
    /// The record would pass the end of its region or the log's limit.
    Length { body_bytes: u32 },
    /// The record differs from the one that was written here.
    Checksum { expected: u32, found: u32 },
    /// The record is whole, but not the next one.
    Sequence { expected: u64, found: u64 },
    /// The bytes given end before the record does.
    Short { record_bytes: u64 },
    /// Too many bytes were checked in vain; the rest of the region was not read.
    GivenUp,
}

impl Gap {
    /// Returns whether the place may simply never have been written in this use of the region.
    pub fn is_clean_end(&self) -> bool {
        matches!(self, Gap::Unwritten | Gap::Stale { .. })
    }

    /// Makes the error for a place where a record had to be.
    pub fn into_error(self, address: u64) -> Error {
        Error::corrupt("record", address, "the record written here", self)
    }
}

impl fmt::Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gap::Unwritten => write!(f, "zeros"),
            Gap::Stale { generation } => write!(f, "a record of generation ..{generation:08x}"),
            Gap::Magic => write!(f, "no record"),
            Gap::Version { found } => write!(f, "a record of version {found}"),
            Gap::Length { body_bytes } => write!(f, "a body of {body_bytes} bytes"),
            Gap::Checksum { expected, found } => {
                write!(f, "checksum {found:#010x} over bytes of {expected:#010x}")
            }
            Gap::Sequence { expected, found } => {
                write!(f, "record number {found}, not {expected}")
            }
            Gap::Short { record_bytes } => write!(f, "less than its {record_bytes} bytes"),
            Gap::GivenUp => write!(f, "too many headers that lead nowhere"),
        }
    }
}

/// Returns the bytes a record with a body of `body_bytes` takes.
pub const fn record_bytes(body_bytes: u64) -> u64 {
    (HEADER_BYTES as u64 + body_bytes).next_multiple_of(ALIGNMENT_BYTES as u64)
}

/// An unchecked header from the medium.
#[derive(Clone, Copy, Debug)]
struct Header {
    version: u8,
    checksum: u32,
    body_bytes: u32,
    generation: u32,
    sequence: u64,
    label: Label,
}

impl Header {
    fn encode(&self) -> [u8; HEADER_BYTES] {
        let Label {
            kind,
            codec,
            filter,
            dictionary,
            raw_bytes,
        } = self.label;
        assert!(self.sequence <= SEQUENCE_MAX, "{}", self.sequence);
        let last = u64::from(codec) | u64::from(filter) << 8 | self.sequence << 16;
        let mut bytes = [0; HEADER_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..4].copy_from_slice(&[self.version, kind]);
        bytes[4..8].copy_from_slice(&self.checksum.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body_bytes.to_le_bytes());
        bytes[12..16].copy_from_slice(&raw_bytes.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.generation.to_le_bytes());
        bytes[20..24].copy_from_slice(&dictionary.to_le_bytes());
        bytes[24..].copy_from_slice(&last.to_le_bytes());
        bytes
    }

    /// Reads a header, or returns the gap in its place.
    fn decode(bytes: &[u8; HEADER_BYTES]) -> std::result::Result<Header, Gap> {
        if bytes[..2] != MAGIC {
            let is_zero = bytes.iter().all(|byte| *byte == 0);
            return Err(if is_zero { Gap::Unwritten } else { Gap::Magic });
        }
        Ok(Header::fields(bytes))
    }

    /// Interprets any bytes as a header.
    fn fields(bytes: &[u8; HEADER_BYTES]) -> Header {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let last = u64::from(word(24)) | u64::from(word(28)) << 32;
        Header {
            version: bytes[2],
            checksum: word(4),
            body_bytes: word(8),
            generation: word(16),
            sequence: last >> 16,
            label: Label {
                kind: bytes[3],
                codec: last as u8,
                filter: (last >> 8) as u8,
                dictionary: word(20),
                raw_bytes: word(12),
            },
        }
    }

    /// Checks all that can be checked without the body; returns the record's length.
    fn check(
        &self,
        region: &Region,
        address: u64,
        record_bytes_max: u64,
    ) -> std::result::Result<u64, Gap> {
        let is_generation_checked = !is_seeded(SeededBug::GenerationIgnored);
        if self.version != VERSION {
            return Err(Gap::Version {
                found: self.version,
            });
        }
        if self.generation != region.generation as u32 && is_generation_checked {
            return Err(Gap::Stale {
                generation: self.generation,
            });
        }
        let record_bytes = record_bytes(u64::from(self.body_bytes));
        if record_bytes > record_bytes_max.min(region.end - address) {
            return Err(Gap::Length {
                body_bytes: self.body_bytes,
            });
        }
        Ok(record_bytes)
    }

    /// Checks the whole record; `bytes` are all of it.
    fn verify(&self, region: &Region, address: u64, bytes: &[u8]) -> std::result::Result<(), Gap> {
        let (header, body) = bytes.split_at(HEADER_BYTES);
        let expected = region.checksum(address, header, body);
        let found = self.checksum;
        if expected != found && !is_seeded(SeededBug::ChecksumIgnored) {
            return Err(Gap::Checksum { expected, found });
        }
        Ok(())
    }

    fn record<'a>(&self, address: u64, bytes: &'a [u8]) -> Record<'a> {
        Record {
            address,
            sequence: self.sequence,
            checksum: self.checksum,
            label: self.label,
            body: &bytes[HEADER_BYTES..][..self.body_bytes as usize],
        }
    }
}

/// Checks the record at `address` of `region`, where `bytes` begin with it and may be longer.
///
/// # Errors
/// The [`Gap`] that is there instead.
///
/// # Panics
/// If the address is not in the region.
pub fn parse<'a>(
    bytes: &'a [u8],
    region: &Region,
    address: u64,
) -> std::result::Result<Record<'a>, Gap> {
    assert!(region.range().contains(&address), "{address} in {region:?}");
    let short = |record_bytes| Gap::Short { record_bytes };
    let start = bytes.first_chunk().ok_or(short(HEADER_BYTES as u64))?;
    let header = Header::decode(start)?;
    let record_bytes = header.check(region, address, u64::MAX)?;
    let bytes = usize::try_from(record_bytes)
        .ok()
        .and_then(|end| bytes.get(..end));
    let bytes = bytes.ok_or(short(record_bytes))?;
    header.verify(region, address, bytes)?;
    Ok(header.record(address, bytes))
}

/// Returns whether `bytes` begin with the header of a record of this region that has this number. The rest does not
/// matter: a writer may be in the middle of it.
pub fn is_begun(bytes: &[u8; HEADER_BYTES], region: &Region, sequence: u64) -> bool {
    Header::decode(bytes).is_ok_and(|header| {
        let is_of_region = header.generation == region.generation as u32;
        header.version == VERSION && is_of_region && header.sequence == sequence
    })
}

/// Returns whether bytes that are no record were once the header of the record with this number. At least two of three
/// marks must fit: magic and version, generation, and sequence.
pub fn was_begun(bytes: &[u8; HEADER_BYTES], region: &Region, sequence: u64) -> bool {
    let header = Header::fields(bytes);
    let fits = [
        bytes[..2] == MAGIC && header.version == VERSION,
        header.generation == region.generation as u32,
        header.sequence == sequence,
    ];
    fits.iter().filter(|fits| **fits).count() >= 2
}

/// Checks the head of a region at the start of `bytes`, and returns the region and the head's body behind the
/// generation.
///
/// # Errors
/// The [`Gap`] that is there instead; a good record of another kind is [`Gap::Magic`].
pub fn parse_head(
    bytes: &[u8],
    log_id: [u8; 16],
    range: Range<u64>,
) -> std::result::Result<(Region, &[u8]), Gap> {
    let record_bytes = HEADER_BYTES as u64;
    let start = bytes.first_chunk().ok_or(Gap::Short { record_bytes })?;
    let header = Header::decode(start)?;
    let generation = bytes[HEADER_BYTES..]
        .first_chunk()
        .map(|bytes| u64::from_le_bytes(*bytes));
    let Some(generation) = generation.filter(|_| header.label.kind == KIND_HEAD) else {
        return Err(Gap::Magic);
    };
    let region = Region::new(log_id, generation, range.clone());
    let record = parse(bytes, &region, range.start)?;
    let body = record.body.get(size_of::<u64>()..).ok_or(Gap::Magic)?;
    Ok((region, body))
}

/// Returns an id of a log under which the record at `address` is the whole head of a region; `None` if these bytes are
/// no head. A checksum begins with that of the id, so any id with the same checksum serves. Among ids that begin with
/// twelve zeros, one fits every four bytes that look like a checksum.
pub fn id_of_head(bytes: &[u8], address: u64) -> Option<[u8; 16]> {
    let header = Header::decode(bytes.first_chunk()?).ok()?;
    let is_head = header.version == VERSION && header.label.kind == KIND_HEAD;
    let record_bytes = record_bytes(u64::from(header.body_bytes)) as usize;
    let (start, body) = bytes.get(..record_bytes)?.split_at(HEADER_BYTES);
    let generation = u64::from_le_bytes(*body.first_chunk().filter(|_| is_head)?);
    if header.generation != generation as u32 {
        return None;
    }
    let id_of = |tail: u32| {
        let mut id = [0; 16];
        id[12..].copy_from_slice(&tail.to_le_bytes());
        id
    };
    let checksum = |tail: u32| {
        let region = Region::new(
            id_of(tail),
            generation,
            address..address + record_bytes as u64,
        );
        region.checksum(address, start, body)
    };
    solve(checksum, header.checksum).map(id_of)
}

/// Returns the number for which `sum` is `wanted`, if each of its bits always changes the same bits of the sum.
fn solve(sum: impl Fn(u32) -> u32, wanted: u32) -> Option<u32> {
    let base = sum(0);
    // Sums with one highest bit each, and the numbers that make them.
    let mut basis = [(0u32, 0u32); 32];
    for bit in 0..32 {
        let mut row = (sum(1 << bit) ^ base, 1 << bit);
        while row.0 != 0 {
            let known = &mut basis[row.0.ilog2() as usize];
            if known.0 == 0 {
                *known = row;
                break;
            }
            row = (row.0 ^ known.0, row.1 ^ known.1);
        }
    }
    let (mut left, mut number) = (wanted ^ base, 0);
    while left != 0 {
        let (sum, made_by) = basis[left.ilog2() as usize];
        if sum == 0 {
            return None;
        }
        (left, number) = (left ^ sum, number ^ made_by);
    }
    Some(number)
}

/// Gives the bytes at `address` their correct checksum, if only that keeps them from being a record. Random bytes would
/// never get past the checksum.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn seal(bytes: &mut [u8], region: &Region, address: u64) {
    let Some(header) = bytes
        .first_chunk()
        .and_then(|start| Header::decode(start).ok())
    else {
        return;
    };
    let Ok(record_bytes) = header.check(region, address, bytes.len() as u64) else {
        return;
    };
    let (start, body) = bytes[..record_bytes as usize].split_at(HEADER_BYTES);
    let checksum = region.checksum(address, start, body);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Where a record was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Where the record starts in its file.
    pub address: u64,
    /// Its number in its region.
    pub sequence: u64,
    /// Its checksum.
    pub checksum: u32,
    /// Its length with header and padding.
    pub record_bytes: u64,
}

/// The outcome of appending a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// It lies in the buffer.
    At(Placed),
    /// The buffer has no room until it is written.
    BufferFull,
    /// The region has no room.
    RegionFull,
}

/// Lays out records one behind another in a buffer that is then written to the region.
#[derive(Debug)]
pub struct RecordWriter {
    region: Region,
    buffer: AlignedBuffer,
    used_bytes: usize,
    /// Where the buffer begins in the file.
    address: u64,
    sequence: u64,
}

impl RecordWriter {
    /// Makes a writer that continues `region` at `address` with record number `sequence`, and holds
    /// `buffer_bytes` between two writes.
    ///
    /// # Panics
    /// If the address is no multiple of [`ALIGNMENT_BYTES`] in the region.
    pub fn new(region: Region, address: u64, sequence: u64, buffer_bytes: usize) -> RecordWriter {
        let is_inside = (region.start..=region.end).contains(&address);
        let is_aligned = address.is_multiple_of(ALIGNMENT_BYTES as u64);
        assert!(is_inside && is_aligned, "{address} in {region:?}");
        RecordWriter {
            region,
            buffer: AlignedBuffer::zeroed(buffer_bytes),
            used_bytes: 0,
            address,
            sequence,
        }
    }

    /// Returns the region that is written.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns where the next record will lie.
    pub fn next_address(&self) -> u64 {
        self.address + self.used_bytes as u64
    }

    /// Returns the number of the next record.
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the bytes that are not yet written, and where they belong.
    pub fn unwritten(&self) -> (u64, &[u8]) {
        (self.address, &self.buffer[..self.used_bytes])
    }

    /// Lays out one record whose body is `parts`, one behind another.
    ///
    /// # Errors
    /// [`Error::Limit`] if the record is longer than the whole buffer, [`Error::Invalid`] if the
    /// sequence has come to its end.
    pub fn append(&mut self, label: Label, parts: &[&[u8]]) -> Result<Appended> {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let record_bytes = record_bytes(body_bytes as u64);
        let too_long = || Error::Limit {
            what: "record",
            limit_bytes: self.buffer.len() as u64,
            needed_bytes: record_bytes,
        };
        let stored_bytes = u32::try_from(body_bytes).map_err(|_| too_long())?;
        if self.sequence > SEQUENCE_MAX {
            let reason = format!("{} has no successor", self.sequence - 1);
            return Err(Error::invalid("record sequence", reason));
        }
        if !fits(record_bytes, self.buffer.len() as u64) {
            return Err(too_long());
        }
        let address = self.next_address();
        if !fits(record_bytes, self.region.end - address) {
            return Ok(Appended::RegionFull);
        }
        let start = self.used_bytes;
        let end = start + record_bytes as usize;
        if !fits(record_bytes, (self.buffer.len() - start) as u64) {
            return Ok(Appended::BufferFull);
        }
        let mut header = Header {
            version: VERSION,
            checksum: 0,
            body_bytes: stored_bytes,
            generation: self.region.generation as u32,
            sequence: self.sequence,
            label,
        };
        let mut at = start + HEADER_BYTES;
        for part in parts {
            self.buffer[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.buffer[at..end].fill(0);
        let body = &self.buffer[start + HEADER_BYTES..end];
        header.checksum = self.region.checksum(address, &header.encode(), body);
        self.buffer[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
        self.used_bytes = end;
        self.sequence += 1;
        Ok(Appended::At(Placed {
            address,
            sequence: header.sequence,
            checksum: header.checksum,
            record_bytes,
        }))
    }

    /// Lays out the head of the region, with `body` behind its generation.
    ///
    /// # Errors
    /// As [`RecordWriter::append`].
    ///
    /// # Panics
    /// If it would not be the first record of the region.
    pub fn append_head(&mut self, body: &[u8]) -> Result<Appended> {
        assert_eq!(self.next_address(), self.region.start, "a head comes first");
        let label = Label {
            kind: KIND_HEAD,
            ..Label::default()
        };
        let generation = self.region.generation.to_le_bytes();
        self.append(label, &[&generation, body])
    }

    /// Lays out padding up to the next multiple of `alignment_bytes`, if there is none already. It
    /// always finds room if the buffer, and the region, start and end at such a multiple.
    ///
    /// # Errors
    /// As [`RecordWriter::append`].
    pub fn pad_to(&mut self, alignment_bytes: u64) -> Result<Option<Appended>> {
        assert!(alignment_bytes.is_power_of_two(), "{alignment_bytes}");
        let address = self.next_address();
        let mut missing = address.next_multiple_of(alignment_bytes) - address;
        if missing == 0 {
            return Ok(None);
        }
        while missing < HEADER_BYTES as u64 {
            missing += alignment_bytes;
        }
        let zeros = vec![0; missing as usize - HEADER_BYTES];
        let label = Label {
            kind: KIND_PADDING,
            ..Label::default()
        };
        self.append(label, &[&zeros]).map(Some)
    }

    /// Writes the buffered records to `file`; they are durable only after a sync.
    ///
    /// # Errors
    /// Errors of the write; the buffered records stay.
    pub fn write_to(&mut self, file: &dyn StorageFile) -> Result<()> {
        if self.used_bytes > 0 {
            let bytes = &self.buffer[..self.used_bytes];
            file.write_at(&[IoSlice::new(bytes)], self.address)?;
            self.address += self.used_bytes as u64;
            self.used_bytes = 0;
        }
        Ok(())
    }
}

/// Returns whether a record fits into `left_bytes`: the rest must be zero, or room for padding.
fn fits(record_bytes: u64, left_bytes: u64) -> bool {
    record_bytes == left_bytes || record_bytes + HEADER_BYTES as u64 <= left_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, OpenOptions, Storage};
    use std::sync::Arc;

    const ID: [u8; 16] = *b"a log under test";

    pub(super) fn region(generation: u64, length_bytes: u64) -> Region {
        Region::new(ID, generation, 4096..4096 + length_bytes)
    }

    pub(super) fn label(kind: u8) -> Label {
        Label {
            kind,
            ..Label::default()
        }
    }

    pub(super) fn file(at: u64, bytes: &[u8]) -> Arc<dyn StorageFile> {
        let file = MemoryStorage::new()
            .open("a", OpenOptions::create_new())
            .unwrap();
        file.write_at(&[IoSlice::new(bytes)], at).unwrap();
        file
    }

    /// Lays out records with these bodies; returns the writer.
    pub(super) fn write(region: Region, bodies: &[&[u8]]) -> RecordWriter {
        let start = region.range().start;
        let mut writer = RecordWriter::new(region, start, 0, 64 << 10);
        for body in bodies {
            let appended = writer.append(label(2), &[body]).unwrap();
            assert!(matches!(appended, Appended::At(_)), "{appended:?}");
        }
        writer
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let region = Region::new(ID, 0x0102_0304_0506_0708, 0..1 << 20);
        let mut writer = RecordWriter::new(region, 4096, 0x0A0B_0C0D_0E0F, 4096);
        let label = Label {
            kind: 0x21,
            codec: 2,
            filter: 3,
            dictionary: 0x1122_3344,
            raw_bytes: 0x5566_7788,
        };
        writer.append(label, &[b"break", b"-even"]).unwrap();
        let expected = [
            0xBE, 0x52, 1, 0x21, 0x8D, 0x9B, 0x88, 0xEF, // magic, version, kind, checksum
            10, 0, 0, 0, 0x88, 0x77, 0x66, 0x55, // body bytes, raw bytes
            0x08, 0x07, 0x06, 0x05, 0x44, 0x33, 0x22, 0x11, // generation, dictionary
            2, 3, 0x0F, 0x0E, 0x0D, 0x0C, 0x0B, 0x0A, // codec, filter, sequence
            b'b', b'r', b'e', b'a', b'k', b'-', b'e', b'v', // body
            b'e', b'n', 0, 0, 0, 0, 0, 0, // and zeros
        ];
        assert_eq!(writer.unwritten(), (4096, &expected[..]));
        let checked = [
            &ID[..],
            &0x0102_0304_0506_0708u64.to_le_bytes(),
            &4096u64.to_le_bytes(),
            &expected[..4],
            &expected[8..],
        ];
        let checksum = crc32c::crc32c(&checked.concat()).to_le_bytes();
        assert_eq!(expected[4..8], checksum);
        let record = parse(&expected, &region, 4096).unwrap();
        assert_eq!((record.label, record.body), (label, &b"break-even"[..]));
        assert_eq!(
            (record.sequence, record.end()),
            (0x0A0B_0C0D_0E0F, 4096 + 48)
        );
    }

    #[test]
    fn a_head_tells_its_own_generation() {
        let region = region(0xABCD_0000_0001, 4096);
        let mut writer = RecordWriter::new(region, region.start, 0, 4096);
        writer.append_head(b"segment 5").unwrap();
        let bytes = writer.unwritten().1.to_vec();
        let (found, body) = parse_head(&bytes, ID, region.range()).unwrap();
        assert_eq!((found, body), (region, &b"segment 5"[..]));
        assert!(parse_head(&bytes, *b"another log's id", region.range()).is_err());
        assert!(parse_head(&bytes, ID, 8192..1 << 20).is_err());
        assert!(
            parse_head(
                write(region, &[b"no head"]).unwritten().1,
                ID,
                region.range()
            )
            .is_err()
        );
        for length in 0..bytes.len() {
            assert!(parse_head(&bytes[..length], ID, region.range()).is_err());
        }
    }

    #[test]
    fn a_record_that_cannot_fit_is_refused() {
        let region = region(7, 1024);
        let mut writer = RecordWriter::new(region, region.start, 0, 512);
        let check = |writer: &mut RecordWriter, length: usize, expected: &str| {
            let body = vec![1; length];
            let found = format!("{:?}", writer.append(label(2), &[&body]));
            assert!(found.contains(expected), "{length}: {found}");
        };
        // A record that would leave no room for padding does not fit either.
        for (length, expected) in [
            (481, "Limit"),
            (464, "Limit"),
            (448, "At"),
            (1, "BufferFull"),
        ] {
            check(&mut writer, length, expected);
        }
        writer.write_to(&*file(0, b"")).unwrap();
        check(&mut writer, 480, "At");
        writer.write_to(&*file(0, b"")).unwrap();
        check(&mut writer, 0, "At");
        check(&mut writer, 0, "RegionFull");
    }
}
