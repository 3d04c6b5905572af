//! Packs: frames of chunks in one object, with what they hold behind them.
//!
//! A pack is built in memory, since one put makes it, and named by its content. Promises: what a pack says of
//! itself is under the vault's seal, and every length in it is bounded before memory is taken.

use crate::codec::{Compressor, Decoder, Decompressor, Method};
use crate::error::{Error, Result};

use super::bytes::{Reader, fail, put_number};
use super::chunker::CHUNK_BYTES_LIMIT;
use super::cipher::{Entropy, Id, Keys, TAG_BYTES};
use super::compression::Outcome;
use super::far_end::{FarEnd, not_there};

const MAGIC: &[u8; 4] = b"BEVP";
const END_MAGIC: &[u8; 4] = b"BEVE";
pub(super) const HEAD_BYTES: usize = 24;
const TRAILER_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = 8;
/// The bit of a frame's codec that says that it is padded, and the bytes that say by how much.
const PADDED: u8 = 1 << 7;
const PADDING_COUNT_BYTES: usize = 4;
/// The longest frame that the format allows, and the longest pack.
pub(super) const FRAME_BYTES_LIMIT: usize = 4 << 20;
pub(super) const PACK_BYTES_LIMIT: usize = 512 << 20;
/// Chunks in a frame, which are counted in 16 bits.
pub(super) const FRAME_CHUNKS_MAX: usize = 65_535;
/// What a chunk takes of a footer at the least: identity, kind, length.
pub(super) const CHUNK_ENTRY_BYTES: usize = 18;

/// What a pack is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackKind {
    /// Contents of files; in vaults of before their lists as well.
    Data,
    /// Folders and their stamps, and in frames of their own the lists of contents: what is read to tell what is live.
    Folders,
}

impl PackKind {
    pub(super) fn number(self) -> u8 {
        match self {
            PackKind::Data => 1,
            PackKind::Folders => 2,
        }
    }

    /// Returns how often packs of this kind are put.
    pub(super) fn object_count(self) -> u64 {
        match self {
            PackKind::Data => 1,
            PackKind::Folders => 2,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<PackKind> {
        match number {
            1 => Some(PackKind::Data),
            2 => Some(PackKind::Folders),
            _ => None,
        }
    }
}

/// What a chunk's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkKind {
    /// A content, or a part of one.
    Plain,
    /// The list of a content.
    List,
}

/// A chunk as a footer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkEntry {
    pub id: Id,
    pub kind: ChunkKind,
    pub length_bytes: u32,
}

/// A frame as a footer names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameEntry {
    pub offset: u32,
    pub sealed_bytes: u32,
    pub chunks: Vec<ChunkEntry>,
}

/// What a pack holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub frames: Vec<FrameEntry>,
}

impl Contents {
    pub(super) fn write(&self, bytes: &mut Vec<u8>) {
        put_number(bytes, self.frames.len() as u64);
        for frame in &self.frames {
            put_number(bytes, frame.offset.into());
            put_number(bytes, frame.sealed_bytes.into());
            put_number(bytes, frame.chunks.len() as u64);
            for chunk in &frame.chunks {
                bytes.extend_from_slice(&chunk.id.0);
                bytes.push(match chunk.kind {
                    ChunkKind::Plain => 0,
                    ChunkKind::List => 1,
                });
                put_number(bytes, chunk.length_bytes.into());
            }
        }
    }

    /// Hides the lists that are not to be kept: what an index names [`Id::NONE`] is found by nobody.
    pub(super) fn hide_lists(&mut self, keeps: impl Fn(&Id) -> bool) {
        let chunks = self.frames.iter_mut().flat_map(|frame| &mut frame.chunks);
        for chunk in chunks.filter(|chunk| chunk.kind == ChunkKind::List) {
            if !keeps(&chunk.id) {
                chunk.id = Id::NONE;
            }
        }
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Contents> {
        let count = reader.count(3)?;
        let mut frames = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = reader.number_to(PACK_BYTES_LIMIT as u64)? as u32;
            let sealed_bytes = reader.number_to(PACK_BYTES_LIMIT as u64)? as u32;
            let chunk_count = reader.count(CHUNK_ENTRY_BYTES)?;
            let mut chunks = Vec::with_capacity(chunk_count);
            for _ in 0..chunk_count {
                let id = reader.id()?;
                let kind = match reader.byte()? {
                    0 => ChunkKind::Plain,
                    1 => ChunkKind::List,
                    other => return Err(reader.wrong("kind 0 or 1 of a chunk", other)),
                };
                let length_bytes = reader.number_to(CHUNK_BYTES_LIMIT as u64)? as u32;
                chunks.push(ChunkEntry {
                    id,
                    kind,
                    length_bytes,
                });
            }
            frames.push(FrameEntry {
                offset,
                sealed_bytes,
                chunks,
            });
        }
        Ok(Contents { frames })
    }
}

/// Chunks that will be a frame.
#[derive(Clone, Debug, Default)]
pub(super) struct RawFrame {
    pub bytes: Vec<u8>,
    pub chunks: Vec<ChunkEntry>,
}

/// A frame in the form it is stored in, before its seal.
pub(super) struct EncodedFrame {
    pub bytes: Vec<u8>,
    pub chunks: Vec<ChunkEntry>,
}

impl RawFrame {
    /// Says whether so many bytes more belong into the next frame, of at most `frame_bytes` each.
    pub(super) fn is_full_for(&self, more_bytes: usize, frame_bytes: usize) -> bool {
        self.bytes.len() + more_bytes > frame_bytes || self.chunks.len() == FRAME_CHUNKS_MAX
    }

    /// Compresses the frame by the method that leaves least, or leaves it as it is where that is no longer; returns what
    /// came of each.
    pub(super) fn encode(
        self,
        methods: impl Iterator<Item = Method>,
        compressor: &mut Compressor,
    ) -> Result<(EncodedFrame, Vec<Outcome>)> {
        let raw_bytes = self.bytes.len();
        let head_bytes = FRAME_HEAD_BYTES + 4 * self.chunks.len();
        let room = || Vec::with_capacity(head_bytes + raw_bytes + TAG_BYTES);
        let mut least: Option<(Decoder, Vec<u8>)> = None;
        let mut outcomes = Vec::new();
        for method in methods {
            let mut bytes = room();
            bytes.resize(head_bytes + raw_bytes, 0);
            // A target one byte short of raw: what is not smaller is stored.
            let target = &mut bytes[head_bytes..][..raw_bytes.saturating_sub(1)];
            let size = compressor.compress(method, &self.bytes, target)?;
            if let Some(size) = size {
                bytes.truncate(head_bytes + size);
                let is_least = |(_, least): &(_, Vec<u8>)| bytes.len() < least.len();
                if least.as_ref().is_none_or(is_least) {
                    least = Some((method.decoder(), bytes));
                }
            }
            outcomes.push(Outcome {
                method,
                stored_bytes: size.unwrap_or(raw_bytes),
            });
        }
        let (decoder, mut bytes) = least.unwrap_or_else(|| {
            let mut bytes = room();
            bytes.resize(head_bytes, 0);
            bytes.extend_from_slice(&self.bytes);
            (Method::STORE.decoder(), bytes)
        });
        assert!(decoder.codec < PADDED, "codec {}", decoder.codec);
        bytes[0] = decoder.codec | PADDED;
        bytes[1] = decoder.filter;
        bytes[2..4].copy_from_slice(&(self.chunks.len() as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&(raw_bytes as u32).to_le_bytes());
        for (at, chunk) in self.chunks.iter().enumerate() {
            bytes[FRAME_HEAD_BYTES + 4 * at..][..4]
                .copy_from_slice(&chunk.length_bytes.to_le_bytes());
        }
        pad(&mut bytes);
        let frame = EncodedFrame {
            bytes,
            chunks: self.chunks,
        };
        Ok((frame, outcomes))
    }
}

/// Pads a frame to a sealed length that tells little of its own.
fn pad(bytes: &mut Vec<u8>) {
    let least = bytes.len() + PADDING_COUNT_BYTES + TAG_BYTES;
    let zeros = padded_bytes(least) - least;
    // With the seal's tag, which is put behind.
    bytes.reserve_exact(zeros + PADDING_COUNT_BYTES + TAG_BYTES);
    bytes.resize(bytes.len() + zeros, 0);
    bytes.extend_from_slice(&(zeros as u32).to_le_bytes());
}

/// Returns the least length of Padme's that is no shorter. At most an eighth is added, and to a megabyte 1.6 % on average (Nikitin and
/// others, "Reducing Metadata Leakage from Encrypted Files and Communication with PURBs", PETS 2019, algorithm 1).
pub(super) fn padded_bytes(length: usize) -> usize {
    let exponent = length.ilog2();
    let kept_bits = exponent.max(1).ilog2() + 1;
    let mask = (1usize << exponent.saturating_sub(kept_bits)) - 1;
    (length + mask) & !mask
}

/// Returns what stands before the padding of a frame.
fn unpadded<'f>(reader: &Reader<'_>, content: &'f [u8]) -> Result<&'f [u8]> {
    let wrong = || reader.wrong("a frame with its padding", "a shorter one");
    let (content, zeros) = content.split_last_chunk().ok_or_else(wrong)?;
    let zeros = u32::from_le_bytes(*zeros) as usize;
    let length = content.len().checked_sub(zeros).ok_or_else(wrong)?;
    Ok(&content[..length])
}

/// A frame that was read: its chunks one behind another.
pub(super) struct OpenFrame {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl OpenFrame {
    /// Decodes a frame that was under its seal.
    pub(super) fn decode(plain: &[u8], decompressor: &mut Decompressor) -> Result<OpenFrame> {
        let mut reader = Reader::new("frame", plain);
        let (codec, filter) = (reader.byte()?, reader.byte()?);
        let count = u16::from_le_bytes(reader.array()?);
        let raw_bytes = reader.u32()?;
        if raw_bytes as usize > FRAME_BYTES_LIMIT + CHUNK_BYTES_LIMIT {
            return Err(reader.wrong("a frame within the limit", raw_bytes));
        }
        let mut end = 0u32;
        let mut ends = Vec::with_capacity(count.into());
        for _ in 0..count {
            let length_bytes = reader.u32()?;
            end = end.saturating_add(length_bytes);
            ends.push(end);
        }
        if end != raw_bytes {
            return Err(reader.wrong(format_args!("chunks of {raw_bytes} bytes"), end));
        }
        let decoder = Decoder {
            codec: codec & !PADDED,
            filter,
            dictionary: 0,
        };
        let mut content = reader.take(reader.left())?;
        if codec & PADDED != 0 {
            content = unpadded(&reader, content)?;
        }
        let mut bytes = vec![0; raw_bytes as usize];
        decompressor.decompress(decoder, content, &mut bytes)?;
        Ok(OpenFrame { bytes, ends })
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    /// Returns a chunk by its place in the frame.
    pub(super) fn chunk(&self, ordinal: usize) -> Option<&[u8]> {
        let end = *self.ends.get(ordinal)? as usize;
        let start = ordinal
            .checked_sub(1)
            .map_or(0, |before| self.ends[before] as usize);
        Some(&self.bytes[start..end])
    }
}

/// A pack that grows. Its frames are put in an order that is drawn: that of the file would tell an observer which
/// lengths follow each other.
pub(super) struct PackBuilder {
    head: [u8; HEAD_BYTES],
    size_bytes: usize,
    /// With the numbers that the caller knows them by.
    frames: Vec<(u32, EncodedFrame)>,
}

impl PackBuilder {
    pub(super) fn new(kind: PackKind, salt: [u8; 16]) -> PackBuilder {
        let mut head = [0; HEAD_BYTES];
        head[..4].copy_from_slice(MAGIC);
        head[4] = kind.number();
        head[8..].copy_from_slice(&salt);
        PackBuilder {
            head,
            size_bytes: HEAD_BYTES,
            frames: Vec::new(),
        }
    }

    /// Returns the bytes so far.
    pub(super) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Adds a frame under a number.
    pub(super) fn push(&mut self, number: u32, frame: EncodedFrame) {
        self.size_bytes += frame.bytes.len() + TAG_BYTES;
        self.frames.push((number, frame));
    }

    /// Returns the pack's bytes, and its frames in the order they lie in, with their numbers.
    pub(super) fn finish(
        mut self,
        keys: &Keys,
        entropy: &mut Entropy,
    ) -> (Vec<u8>, Vec<(u32, FrameEntry)>) {
        // By Fisher and Yates.
        for at in (1..self.frames.len()).rev() {
            let drawn = u64::from_le_bytes(entropy.take()) % (at as u64 + 1);
            self.frames.swap(at, drawn as usize);
        }
        let mut bytes = Vec::with_capacity(self.size_bytes);
        bytes.extend_from_slice(&self.head);
        let (mut numbers, mut contents) = (Vec::new(), Contents { frames: Vec::new() });
        for (number, mut frame) in self.frames {
            let offset = bytes.len();
            keys.seal_part(&self.head, offset as u64, &mut frame.bytes);
            bytes.extend_from_slice(&frame.bytes);
            numbers.push(number);
            contents.frames.push(FrameEntry {
                offset: offset as u32,
                sealed_bytes: frame.bytes.len() as u32,
                chunks: frame.chunks,
            });
        }
        let offset = bytes.len() as u64;
        let mut footer = Vec::new();
        contents.write(&mut footer);
        keys.seal_part(&self.head, offset, &mut footer);
        bytes.extend_from_slice(&footer);
        bytes.extend_from_slice(&offset.to_le_bytes());
        bytes.extend_from_slice(&(footer.len() as u32).to_le_bytes());
        bytes.extend_from_slice(END_MAGIC);
        (bytes, numbers.into_iter().zip(contents.frames).collect())
    }
}

/// Returns the name of a pack with these bytes.
pub(super) fn name_of(pack: &[u8]) -> Id {
    Id::of_hash(&blake3::hash(pack))
}

/// Returns the name of a pack's object.
pub(super) fn object_name(pack: Id) -> String {
    let hex = pack.hex();
    format!("packs/{}/{hex}", &hex[..2])
}

/// Reads the name of a pack from that of its object below `packs`.
pub(super) fn name_from(listed: &str) -> Option<Id> {
    let (folder, hex) = listed.split_once('/')?;
    hex.starts_with(folder).then(|| Id::from_hex(hex)).flatten()
}

/// Reads the head of a pack.
pub(super) fn read_head(bytes: &[u8]) -> Result<([u8; HEAD_BYTES], PackKind)> {
    let head: Option<[u8; HEAD_BYTES]> = bytes
        .get(..HEAD_BYTES)
        .and_then(|head| head.try_into().ok());
    let head = head.filter(|head| head[..4] == *MAGIC && head[5..8] == [0; 3]);
    let head = head.ok_or_else(|| {
        fail(
            "pack",
            0,
            "BEVP and 24 bytes",
            format!("{} bytes", bytes.len()),
        )
    })?;
    let kind = PackKind::from_number(head[4]);
    let kind = kind.ok_or_else(|| Error::Unsupported {
        what: format!("a pack of kind {}", head[4]),
    })?;
    Ok((head, kind))
}

/// Reads what a pack holds from the pack itself.
pub(super) fn read_contents(
    far: &dyn FarEnd,
    object: &str,
    keys: &Keys,
) -> Result<(PackKind, u64, Contents)> {
    let size_bytes = far.size_bytes(object)?;
    let size_bytes = size_bytes.ok_or_else(|| not_there(object))?;
    let least = (HEAD_BYTES + TRAILER_BYTES) as u64;
    if size_bytes < least || size_bytes > PACK_BYTES_LIMIT as u64 * 2 {
        return Err(fail("pack", 0, "a pack's length", size_bytes));
    }
    let (head, kind) = read_head(&far.read_range(object, 0, HEAD_BYTES)?)?;
    let trailer_at = size_bytes - TRAILER_BYTES as u64;
    let trailer = far.read_range(object, trailer_at, TRAILER_BYTES)?;
    let footer_at = u64::from_le_bytes(trailer[..8].try_into().expect("8 bytes"));
    let footer_bytes = u32::from_le_bytes(trailer[8..12].try_into().expect("4 bytes"));
    let is_whole = footer_at.checked_add(footer_bytes.into()) == Some(trailer_at);
    if !is_whole || trailer[12..] != *END_MAGIC {
        return Err(fail(
            "pack",
            trailer_at,
            "the trailer of a whole pack",
            "another",
        ));
    }
    let mut footer = far.read_range(object, footer_at, footer_bytes as usize)?;
    keys.open_part(&head, footer_at, &mut footer)?;
    let mut reader = Reader::new("footer", &footer);
    let contents = Contents::read(&mut reader)?;
    reader.end()?;
    Ok((kind, size_bytes, contents))
}

/// Opens a frame whose sealed bytes were read.
pub(super) fn open_frame(
    keys: &Keys,
    head: &[u8; HEAD_BYTES],
    offset: u64,
    mut sealed: Vec<u8>,
    decompressor: &mut Decompressor,
) -> Result<OpenFrame> {
    keys.open_part(head, offset, &mut sealed)?;
    OpenFrame::decode(&sealed, decompressor).map_err(|error| error.moved_by(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with a head that says this of what is behind it.
    fn frame(raw_bytes: u32, lengths: &[u32], content: &[u8]) -> Vec<u8> {
        let decoder = "zstd:1".parse::<Method>().unwrap().decoder();
        let mut bytes = vec![decoder.codec, decoder.filter];
        bytes.extend((lengths.len() as u16).to_le_bytes());
        bytes.extend(raw_bytes.to_le_bytes());
        bytes.extend(lengths.iter().flat_map(|length| length.to_le_bytes()));
        bytes.extend(content);
        bytes
    }

    #[test]
    fn lengths_are_padded_as_the_paper_says() {
        // By the algorithm as it is printed, in floating point.
        let printed = |length: usize| {
            let exponent = (length as f64).log2().floor();
            let kept_bits = exponent.log2().floor() + 1.0;
            let mask = (1usize << (exponent - kept_bits) as u32) - 1;
            (length + mask) & !mask
        };
        for length in (4..70_000).chain((0..4000).map(|at| 70_000 + at * 1021)) {
            let padded = padded_bytes(length);
            assert_eq!(padded, printed(length), "{length}");
            assert!(padded - length <= length / 8, "{length} to {padded}");
            assert_eq!(padded_bytes(padded), padded);
        }
        // Sizes of frames of 1 MiB that were compressed.
        let lengths = (300_000..1 << 20).step_by(1009);
        let sums = lengths.fold((0, 0), |(raw, padded), length| {
            (raw + length, padded + padded_bytes(length))
        });
        let added = sums.1 as f64 / sums.0 as f64 - 1.0;
        assert!(added < 0.02, "{added}");
    }

    #[test]
    fn a_frame_comes_back_without_its_padding() {
        let mut random = crate::testing::seeded("padding", 200);
        for _ in 0..200 {
            let length = random.usize(1..20_000);
            let raw: Vec<u8> = (0..length).map(|_| random.u8(..8)).collect();
            let frame = RawFrame {
                bytes: raw.clone(),
                chunks: vec![ChunkEntry {
                    id: Id::NONE,
                    kind: ChunkKind::Plain,
                    length_bytes: length as u32,
                }],
            };
            let method = *random.choice(["store", "lz4:1", "zstd:1"].iter()).unwrap();
            let methods = std::iter::once(method.parse().unwrap());
            let (frame, _) = frame.encode(methods, &mut Compressor::new()).unwrap();
            let sealed_bytes = frame.bytes.len() + TAG_BYTES;
            assert_eq!(padded_bytes(sealed_bytes), sealed_bytes);
            let open = OpenFrame::decode(&frame.bytes, &mut Decompressor::new());
            assert_eq!(open.unwrap().chunk(0), Some(&raw[..]));
            // A count of more than there is.
            let mut wrong = frame.bytes;
            let at = wrong.len() - 4;
            wrong[at..].copy_from_slice(&u32::MAX.to_le_bytes());
            assert!(OpenFrame::decode(&wrong, &mut Decompressor::new()).is_err());
        }
    }

    #[test]
    fn frames_that_say_too_much_or_hold_too_much_are_refused() {
        let raw = vec![7; 1 << 20];
        let mut room = vec![0; raw.len()];
        let method = "zstd:1".parse().unwrap();
        let size = Compressor::new().compress(method, &raw, &mut room).unwrap();
        let content = &room[..size.unwrap()];
        let check = |raw_bytes: u32, lengths: &[u32], is_good: bool| {
            let frame = frame(raw_bytes, lengths, content);
            let open = OpenFrame::decode(&frame, &mut Decompressor::new());
            assert_eq!(open.is_ok(), is_good, "{raw_bytes} in {lengths:?}");
        };
        check(1 << 20, &[1 << 20], true);
        check(1 << 20, &[1 << 19, 1 << 19], true);
        // A bomb: it decodes to more than it says; and heads that say more than there is, or than is allowed.
        check(1000, &[1000], false);
        check(1 << 21, &[1 << 21], false);
        check(u32::MAX, &[u32::MAX], false);
        check(1 << 20, &[1 << 20, 1], false);
        check(1 << 20, &[u32::MAX, u32::MAX], false);
    }
}
