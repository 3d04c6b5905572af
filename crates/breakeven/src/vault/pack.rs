//! Packs: frames of chunks in one object, with the list of them behind.
//!
//! A pack is built in memory, since one put makes it, and named by its content. Promises: a pack's description of
//! itself is under the vault's seal, and every length in it is bounded before memory is taken.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::codec::{Compressor, Decoder, Decompressor, Method};
use crate::error::{Error, Result};

use super::bytes::{Reader, fail, put_number};
use super::chunker::CHUNK_BYTES_LIMIT;
use super::cipher::{Entropy, Id, Keys, TAG_BYTES};
use super::compression::Outcome;
use super::far_end::{FarEnd, not_there};
use super::similar::Sketch;

const MAGIC: &[u8; 4] = b"BEVP";
const END_MAGIC: &[u8; 4] = b"BEVE";
pub(super) const HEAD_BYTES: usize = 24;
const TRAILER_BYTES: usize = 16;
const FRAME_HEAD_BYTES: usize = 8;
/// The bit of a frame's codec for padding, and the bytes of the padding's length.
const PADDED: u8 = 1 << 7;
/// The bit of a frame's codec for deltas.
const DELTA: u8 = 1 << 6;
/// The kinds by which contents name a delta, and a chunk with a sketch.
const DELTA_KIND: u8 = 2;
const SKETCHED_KIND: u8 = 3;
const PADDING_COUNT_BYTES: usize = 4;
/// The longest frame that the format allows, and the longest pack.
pub(super) const FRAME_BYTES_LIMIT: usize = 4 << 20;
/// The most bytes of a frame's bases together: they may all be of one frame.
pub(super) const PREFIX_BYTES_LIMIT: usize = FRAME_BYTES_LIMIT + CHUNK_BYTES_LIMIT;
pub(super) const PACK_BYTES_LIMIT: usize = 512 << 20;
/// Chunks in a frame, which are counted in 16 bits.
pub(super) const FRAME_CHUNKS_MAX: usize = 65_535;
/// The least bytes of a chunk's entry in a footer: identity, kind, length.
pub(super) const CHUNK_ENTRY_BYTES: usize = 18;

/// The use of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PackKind {
    /// Contents of files; in earlier vaults their lists as well.
    Data,
    /// Folders and their stamps, and in frames of their own the lists of contents: a collection reads these to find the
    /// live chunks.
    Folders,
}

impl PackKind {
    pub(super) fn number(self) -> u8 {
        match self {
            PackKind::Data => 1,
            PackKind::Folders => 2,
        }
    }

    /// Returns how many objects a pack of this kind has.
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

/// The kind of a chunk's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChunkKind {
    /// A content, or a part of one.
    Plain,
    /// The list of a content.
    List,
}

/// A chunk's likeness to others, as its entry states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resemblance {
    Unknown,
    /// The sketch by which new chunks find it as a base.
    Sketch(Sketch),
    /// It is a delta of this chunk.
    Base(Id),
}

/// A chunk as a footer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkEntry {
    pub id: Id,
    pub kind: ChunkKind,
    pub length_bytes: u32,
    /// Known of bytes alone: a list has no likeness.
    pub resemblance: Resemblance,
}

impl ChunkEntry {
    /// Returns the base of a delta, nothing for another chunk.
    pub(super) fn base(&self) -> Option<Id> {
        match self.resemblance {
            Resemblance::Base(base) => Some(base),
            _ => None,
        }
    }

    /// Returns the same chunk as one that is no delta.
    pub(super) fn without_base(self) -> ChunkEntry {
        match self.resemblance {
            Resemblance::Base(_) => ChunkEntry {
                resemblance: Resemblance::Unknown,
                ..self
            },
            _ => self,
        }
    }

    /// Says whether its content needs other chunks.
    pub(super) fn needs_others(&self) -> bool {
        self.kind == ChunkKind::List || self.base().is_some()
    }

    fn write(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(&self.id.0);
        bytes.push(match (self.kind, self.resemblance) {
            (ChunkKind::List, _) => 1,
            (ChunkKind::Plain, Resemblance::Unknown) => 0,
            (ChunkKind::Plain, Resemblance::Base(_)) => DELTA_KIND,
            (ChunkKind::Plain, Resemblance::Sketch(_)) => SKETCHED_KIND,
        });
        put_number(bytes, self.length_bytes.into());
        match self.resemblance {
            Resemblance::Unknown => {}
            Resemblance::Sketch(sketch) => bytes.extend_from_slice(&sketch.to_bytes()),
            Resemblance::Base(base) => bytes.extend_from_slice(&base.0),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<ChunkEntry> {
        let id = reader.id()?;
        let number = reader.byte()?;
        let kind = match number {
            0 | DELTA_KIND | SKETCHED_KIND => ChunkKind::Plain,
            1 => ChunkKind::List,
            other => return Err(reader.wrong("kind 0 to 3 of a chunk", other)),
        };
        Ok(ChunkEntry {
            id,
            kind,
            length_bytes: reader.number_to(CHUNK_BYTES_LIMIT as u64)? as u32,
            resemblance: match number {
                DELTA_KIND => Resemblance::Base(reader.id()?),
                SKETCHED_KIND => Resemblance::Sketch(Sketch::from_bytes(reader.array()?)),
                _ => Resemblance::Unknown,
            },
        })
    }
}

/// A frame as a footer names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FrameEntry {
    pub offset: u32,
    pub sealed_bytes: u32,
    pub chunks: Vec<ChunkEntry>,
}

impl FrameEntry {
    pub(super) fn is_delta(&self) -> bool {
        self.bases().next().is_some()
    }

    /// Returns the base of each delta, also of a hidden one.
    pub(super) fn bases(&self) -> impl Iterator<Item = Id> + '_ {
        self.chunks.iter().filter_map(ChunkEntry::base)
    }

    /// Checks that a frame's bases are those of its entries: readers go by the frame, and collections by the entries.
    pub(super) fn check_bases(&self, frame: &CompressedFrame) -> Result<()> {
        let listed: BTreeSet<Id> = self.bases().collect();
        let has_listed = frame.bases.iter().all(|base| listed.contains(base));
        match has_listed && frame.bases.is_empty() == listed.is_empty() {
            true => Ok(()),
            false => {
                let offset = u64::from(self.offset);
                Err(fail("pack", offset, "the bases that are listed", "others"))
            }
        }
    }

    /// Says whether all its chunks are hidden: the bases that they need may be gone.
    pub(super) fn is_hidden(&self) -> bool {
        self.chunks.iter().all(|chunk| chunk.id == Id::NONE)
    }
}

/// The contents of a pack.
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
            frame.chunks.iter().for_each(|chunk| chunk.write(bytes));
        }
    }

    /// Returns the contents as a footer has them.
    fn without_sketches(mut self) -> Contents {
        for chunk in self.frames.iter_mut().flat_map(|frame| &mut frame.chunks) {
            if let Resemblance::Sketch(_) = chunk.resemblance {
                chunk.resemblance = Resemblance::Unknown;
            }
        }
        self
    }

    /// Hides the lists and deltas that are not to be kept: a chunk that an index names [`Id::NONE`] is never found.
    pub(super) fn hide_dependents(&mut self, keeps: impl Fn(&Id) -> bool) {
        let chunks = self.frames.iter_mut().flat_map(|frame| &mut frame.chunks);
        for chunk in chunks.filter(|chunk| chunk.needs_others()) {
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
                chunks.push(ChunkEntry::read(reader)?);
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

/// A frame in its stored form, before its seal.
pub(super) struct EncodedFrame {
    pub bytes: Vec<u8>,
    pub chunks: Vec<ChunkEntry>,
}

impl RawFrame {
    /// Says whether so many bytes more belong into the next frame, of at most `frame_bytes` each.
    pub(super) fn is_full_for(&self, more_bytes: usize, frame_bytes: usize) -> bool {
        self.bytes.len() + more_bytes > frame_bytes || self.chunks.len() == FRAME_CHUNKS_MAX
    }

    /// Compresses the frame by the method that leaves least, or leaves it as it is where no method makes it shorter.
    /// Returns the outcome of each.
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
            // A target one byte short of raw: a frame that does not get smaller is stored.
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
        self.write_head(decoder, PADDED, &mut bytes);
        pad(&mut bytes);
        let frame = EncodedFrame {
            bytes,
            chunks: self.chunks,
        };
        Ok((frame, outcomes))
    }

    fn write_head(&self, decoder: Decoder, flags: u8, bytes: &mut [u8]) {
        assert!(decoder.codec < DELTA, "codec {}", decoder.codec);
        bytes[0] = decoder.codec | flags;
        bytes[1] = decoder.filter;
        bytes[2..4].copy_from_slice(&(self.chunks.len() as u16).to_le_bytes());
        bytes[4..8].copy_from_slice(&(self.bytes.len() as u32).to_le_bytes());
        for (at, chunk) in self.chunks.iter().enumerate() {
            bytes[FRAME_HEAD_BYTES + 4 * at..][..4]
                .copy_from_slice(&chunk.length_bytes.to_le_bytes());
        }
    }

    /// Makes its chunks plain ones.
    pub(super) fn forget_bases(&mut self) {
        for chunk in &mut self.chunks {
            *chunk = chunk.without_base();
        }
    }

    /// Compresses a frame of deltas. Returns nothing if that takes more than `most_bytes`, or if the bases are longer
    /// than a reader accepts.
    pub(super) fn encode_delta(
        &self,
        delta: &DeltaEncoding,
        compressor: &mut Compressor,
    ) -> Result<Option<EncodedFrame>> {
        let DeltaEncoding {
            method,
            bases,
            prefix,
            most_bytes,
        } = delta;
        if prefix.len() > PREFIX_BYTES_LIMIT || bases.len() > FRAME_CHUNKS_MAX {
            return Ok(None);
        }
        let raw_bytes = self.bytes.len();
        let bases_at = FRAME_HEAD_BYTES + 4 * self.chunks.len();
        let content_at = bases_at + 2 + size_of::<Id>() * bases.len();
        let most_bytes = (*most_bytes).min(raw_bytes.saturating_sub(1));
        let mut bytes = vec![0; content_at + most_bytes];
        let target = &mut bytes[content_at..];
        let Some(size) = compressor.compress_after(*method, prefix, &self.bytes, target)? else {
            return Ok(None);
        };
        bytes.truncate(content_at + size);
        self.write_head(method.decoder(), PADDED | DELTA, &mut bytes);
        bytes[bases_at..bases_at + 2].copy_from_slice(&(bases.len() as u16).to_le_bytes());
        for (at, base) in bases.iter().enumerate() {
            bytes[bases_at + 2 + size_of::<Id>() * at..][..size_of::<Id>()]
                .copy_from_slice(&base.0);
        }
        pad(&mut bytes);
        let chunks = self.chunks.clone();
        Ok(Some(EncodedFrame { bytes, chunks }))
    }
}

/// How a frame of deltas is encoded.
pub(super) struct DeltaEncoding {
    pub method: Method,
    /// The bases of its chunks, each once.
    pub bases: Vec<Id>,
    /// Their bytes, one behind another.
    pub prefix: Vec<u8>,
    /// Bytes that it would take as any other frame.
    pub most_bytes: usize,
}

/// Pads a frame to a sealed length that shows little of its own.
fn pad(bytes: &mut Vec<u8>) {
    let least = bytes.len() + PADDING_COUNT_BYTES + TAG_BYTES;
    let zeros = padded_bytes(least) - least;
    // With the seal's tag, which is put behind.
    bytes.reserve_exact(zeros + PADDING_COUNT_BYTES + TAG_BYTES);
    bytes.resize(bytes.len() + zeros, 0);
    bytes.extend_from_slice(&(zeros as u32).to_le_bytes());
}

/// Returns the least length of Padme's that is no shorter. At most an eighth is added, and to a megabyte 1.6 % on
/// average. Source: Nikitin and others, "Reducing Metadata Leakage from Encrypted Files and Communication with PURBs",
/// PETS 2019, algorithm 1.
pub(super) fn padded_bytes(length: usize) -> usize {
    let exponent = length.ilog2();
    let kept_bits = exponent.max(1).ilog2() + 1;
    let mask = (1usize << exponent.saturating_sub(kept_bits)) - 1;
    (length + mask) & !mask
}

/// Returns the bytes before the padding of a frame.
fn unpadded<'f>(reader: &Reader<'_>, content: &'f [u8]) -> Result<&'f [u8]> {
    let wrong = || reader.wrong("a frame with its padding", "a shorter one");
    let (content, zeros) = content.split_last_chunk().ok_or_else(wrong)?;
    let zeros = u32::from_le_bytes(*zeros) as usize;
    let length = content.len().checked_sub(zeros).ok_or_else(wrong)?;
    Ok(&content[..length])
}

/// A frame that was opened and not yet decoded.
pub(super) struct CompressedFrame {
    plain: Vec<u8>,
    /// Where its content lies in that.
    content: Range<usize>,
    decoder: Decoder,
    raw_bytes: u32,
    ends: Vec<u32>,
    bases: Vec<Id>,
}

impl CompressedFrame {
    /// Reads the head of a frame.
    pub(super) fn read(plain: Vec<u8>) -> Result<CompressedFrame> {
        let mut reader = Reader::new("frame", &plain);
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
        let mut bases = Vec::new();
        if codec & DELTA != 0 {
            let count = u16::from_le_bytes(reader.array()?);
            for _ in 0..count {
                bases.push(reader.id()?);
            }
            if bases.is_empty() {
                return Err(reader.wrong("a base of deltas", "none"));
            }
        }
        let from = plain.len() - reader.left();
        let mut content = reader.take(reader.left())?;
        if codec & PADDED != 0 {
            content = unpadded(&reader, content)?;
        }
        let content = from..from + content.len();
        Ok(CompressedFrame {
            content,
            decoder: Decoder {
                codec: codec & !(PADDED | DELTA),
                filter,
                dictionary: 0,
            },
            raw_bytes,
            ends,
            bases,
            plain,
        })
    }

    /// Returns the bases of its chunks; none if they are no deltas.
    pub(super) fn bases(&self) -> &[Id] {
        &self.bases
    }

    /// Decodes the frame. `prefix` is the bytes of its bases, one behind another.
    pub(super) fn decode(
        self,
        prefix: &[u8],
        decompressor: &mut Decompressor,
    ) -> Result<OpenFrame> {
        let content = &self.plain[self.content];
        let mut bytes = vec![0; self.raw_bytes as usize];
        match self.bases.is_empty() {
            true => decompressor.decompress(self.decoder, content, &mut bytes)?,
            false => decompressor.decompress_after(self.decoder, prefix, content, &mut bytes)?,
        }
        let ends = self.ends;
        Ok(OpenFrame { bytes, ends })
    }
}

/// A frame that was read: its chunks one behind another.
pub(super) struct OpenFrame {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl OpenFrame {
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

/// A pack that grows. Its frames are put in a drawn order: the order of the file would show an observer the sequence of
/// lengths.
pub(super) struct PackBuilder {
    head: [u8; HEAD_BYTES],
    size_bytes: usize,
    /// With the caller's numbers for them.
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

    /// Returns a frame that was added under a number.
    pub(super) fn frame(&self, number: u32) -> Option<&EncodedFrame> {
        let mut frames = self.frames.iter().rev();
        let found = frames.find(|(known, _)| *known == number);
        found.map(|(_, frame)| frame)
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

    /// Returns the pack's bytes, and its frames in their order there, with their numbers.
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
        contents.clone().without_sketches().write(&mut footer);
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

/// Reads the name of a pack from its object's name below `packs`.
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

/// Reads the contents of a pack from the pack itself.
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
) -> Result<CompressedFrame> {
    keys.open_part(head, offset, &mut sealed)?;
    CompressedFrame::read(sealed).map_err(|error| error.moved_by(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(plain: &[u8], prefix: &[u8]) -> Result<OpenFrame> {
        let frame = CompressedFrame::read(plain.to_vec())?;
        frame.decode(prefix, &mut Decompressor::new())
    }

    /// A frame whose head has these values before the content.
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
        // The algorithm as printed, in floating point.
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
                    resemblance: Resemblance::Unknown,
                }],
            };
            let method = *random.choice(["store", "lz4:1", "zstd:1"].iter()).unwrap();
            let methods = std::iter::once(method.parse().unwrap());
            let (frame, _) = frame.encode(methods, &mut Compressor::new()).unwrap();
            let sealed_bytes = frame.bytes.len() + TAG_BYTES;
            assert_eq!(padded_bytes(sealed_bytes), sealed_bytes);
            let open = decode(&frame.bytes, &[]);
            assert_eq!(open.unwrap().chunk(0), Some(&raw[..]));
            // A count larger than the frame.
            let mut wrong = frame.bytes;
            let at = wrong.len() - 4;
            wrong[at..].copy_from_slice(&u32::MAX.to_le_bytes());
            assert!(decode(&wrong, &[]).is_err());
        }
    }

    #[test]
    fn a_delta_comes_back_with_its_base_alone() {
        let mut random = crate::testing::seeded("delta", 5);
        let base: Vec<u8> = (0..50_000).map(|_| random.u8(..)).collect();
        let mut raw = base[100..].to_vec();
        raw[20_000] ^= 1;
        let (id, base_id) = (Id([1; 16]), Id([2; 16]));
        let frame = RawFrame {
            bytes: raw.clone(),
            chunks: vec![ChunkEntry {
                id,
                kind: ChunkKind::Plain,
                length_bytes: raw.len() as u32,
                resemblance: Resemblance::Base(base_id),
            }],
        };
        let mut delta = DeltaEncoding {
            method: "zstd:3".parse().unwrap(),
            bases: vec![base_id],
            prefix: base.clone(),
            most_bytes: 1000,
        };
        let mut compressor = Compressor::new();
        let encoded = frame
            .encode_delta(&delta, &mut compressor)
            .unwrap()
            .unwrap();
        assert!(encoded.bytes.len() < 500, "{}", encoded.bytes.len());
        let read = CompressedFrame::read(encoded.bytes.clone()).unwrap();
        assert_eq!(read.bases(), [base_id]);
        let open = decode(&encoded.bytes, &base).unwrap();
        assert_eq!(open.chunk(0), Some(&raw[..]));
        // Without its base, and cut anywhere in its head.
        assert!(decode(&encoded.bytes, &[]).is_err());
        for length in 0..30 {
            assert!(decode(&encoded.bytes[..length], &base).is_err());
        }
        let entry = FrameEntry {
            offset: 24,
            sealed_bytes: 500,
            chunks: encoded.chunks,
        };
        assert!(entry.is_delta());
        let contents = Contents {
            frames: vec![entry],
        };
        let mut written = Vec::new();
        contents.write(&mut written);
        let again = Contents::read(&mut Reader::new("index", &written)).unwrap();
        assert_eq!(again, contents);
        // Without the bases it takes less.
        delta.most_bytes = 20;
        assert!(
            frame
                .encode_delta(&delta, &mut compressor)
                .unwrap()
                .is_none()
        );
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
            let open = decode(&frame, &[]);
            assert_eq!(open.is_ok(), is_good, "{raw_bytes} in {lengths:?}");
        };
        check(1 << 20, &[1 << 20], true);
        check(1 << 20, &[1 << 19, 1 << 19], true);
        // A bomb that decodes to more than it states, and heads that state more than there is or is allowed.
        check(1000, &[1000], false);
        check(1 << 21, &[1 << 21], false);
        check(u32::MAX, &[u32::MAX], false);
        check(1 << 20, &[1 << 20, 1], false);
        check(1 << 20, &[u32::MAX, u32::MAX], false);
    }
}
