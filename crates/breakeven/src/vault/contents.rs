//! Reading contents back: from an identity to bytes, through lists, frames and the seal.
//!
//! Promises: a content that is handed out in whole was checked. Its identity is computed again at its end, so a caller
//! must drop what it got if an error follows.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::codec::Decompressor;
use crate::error::{Error, Result};

use super::bytes::{Reader, fail, put_number};
use super::cipher::{Id, Keys};
use super::copies::FrameReader;
use super::far_end::FarEnd;
use super::folder::{Entry, Stamp, read_folder, read_stamps};
use super::hashing::{ContentHasher, Identity, IdentityOf};
use super::index::Index;
use super::is_damage;
use super::pack::{ChunkKind, CompressedFrame, HEAD_BYTES, OpenFrame, PREFIX_BYTES_LIMIT};
use super::writer::Source;

/// Decoded frames that stay in memory; folders and files near each other share them.
const FRAMES_KEPT: usize = 24;
/// Levels of lists that the format allows.
pub(super) const DEPTH_MAX: u8 = 4;
/// The longest content that is read into memory: a folder of some million entries.
pub(super) const WHOLE_BYTES_MAX: u64 = 1 << 30;
/// The subject of a limit's error.
pub(super) const FOLDER: &str = "folder";
/// The longest item: a number and an identity.
const ITEM_BYTES_MAX: usize = 26;
/// The mark of an item without a chunk.
pub(super) const ZEROS_BIT: u64 = 1;
/// Added to the depth of a list by the kind of its identity.
const SKIPS_ZEROS: u8 = 128;
const OF_ITEMS: u8 = 64;
/// Added to the depth of a list that lacks a chunk.
pub(super) const HAS_GAPS: u8 = 32;
/// Lost parts of a file that are named one by one.
const NAMED_MOST: usize = 3;

/// A part of a content.
pub(super) enum Piece<'a> {
    Bytes(&'a [u8]),
    Zeros(u64),
}

type Sink<'s> = dyn FnMut(Piece<'_>) -> Result<()> + 's;

/// Reads contents.
pub(super) struct Chunks {
    far: Arc<dyn FarEnd>,
    keys: Arc<Keys>,
    decompressor: Decompressor,
    frames: VecDeque<(u32, Arc<OpenFrame>)>,
    heads: VecDeque<(u32, [u8; HEAD_BYTES])>,
}

impl Chunks {
    pub(super) fn new(far: &Arc<dyn FarEnd>, keys: &Arc<Keys>) -> Chunks {
        Chunks {
            far: Arc::clone(far),
            keys: Arc::clone(keys),
            decompressor: Decompressor::new(),
            frames: VecDeque::new(),
            heads: VecDeque::new(),
        }
    }

    /// Returns another reader of the same vault, which has read nothing yet.
    pub(super) fn another(&self) -> Chunks {
        Chunks::new(&self.far, &self.keys)
    }

    /// Returns a frame by its number in the index.
    pub(super) fn frame(&mut self, index: &Index, number: u32) -> Result<Arc<OpenFrame>> {
        if let Some((_, frame)) = self.frames.iter().find(|(known, _)| *known == number) {
            return Ok(Arc::clone(frame));
        }
        let pack = index.frame(number).pack;
        let known = self.heads.iter().find(|(known, _)| *known == pack);
        let known = known.map(|(_, head)| *head);
        let mut head = known;
        let frame = read_frame(&*self.far, &self.keys, index, number, &mut head)?;
        if let (None, Some(head)) = (known, head) {
            self.heads.truncate(FRAMES_KEPT);
            self.heads.push_front((pack, head));
        }
        let frame = Arc::new(self.decode(index, frame)?);
        self.frames.truncate(FRAMES_KEPT - 1);
        self.frames.push_front((number, Arc::clone(&frame)));
        Ok(frame)
    }

    /// Says whether a frame is at hand, decoded.
    pub(super) fn holds(&self, number: u32) -> bool {
        self.frames.iter().any(|(known, _)| *known == number)
    }

    /// Decodes a frame, with the bases that it needs.
    pub(super) fn decode(&mut self, index: &Index, frame: CompressedFrame) -> Result<OpenFrame> {
        let mut prefix = Vec::new();
        append_bases(index, frame.bases(), &mut prefix, &mut |number| {
            self.frame(index, number)
        })?;
        frame.decode(&prefix, &mut self.decompressor)
    }

    /// Hands a content to `sink`, part by part, and checks its identity at the end. A part is handed out before it is
    /// hashed, so a caller that stops early does not wait.
    pub(super) fn read(&mut self, index: &Index, id: Id, sink: &mut Sink<'_>) -> Result<u64> {
        let Some(mut list) = self.list(index, id)? else {
            let (frame, ordinal) = self.found(index, id)?;
            let chunk = chunk_of(&frame, ordinal)?;
            if self.keys.id(chunk) != id {
                return Err(wrong_content(id));
            }
            sink(Piece::Bytes(chunk))?;
            return Ok(chunk.len() as u64);
        };
        let mut check = ContentCheck::new(&self.keys, list.identity_of);
        while let Some(item) = list.items.next(self, index, &mut |_| ())? {
            match item {
                Item::Zeros(count) => {
                    sink(Piece::Zeros(count))?;
                    check.zeros(count);
                }
                Item::Chunk { id, length } => {
                    let (frame, ordinal) = self.found_plain(index, id, length)?;
                    let chunk = chunk_of(&frame, ordinal)?;
                    sink(Piece::Bytes(chunk))?;
                    check.chunk(&self.keys, id, chunk)?;
                }
            }
        }
        match check.identity() == list.identity(id) {
            true => Ok(list.raw_bytes),
            false => Err(wrong_content(id)),
        }
    }

    /// Returns the frame of a chunk, and its place there.
    fn found(&mut self, index: &Index, id: Id) -> Result<(Arc<OpenFrame>, u32)> {
        let place = index.find(&id).ok_or_else(|| missing(id))?;
        Ok((self.frame(index, place.frame)?, place.ordinal))
    }

    /// The same of a chunk that a list names.
    fn found_plain(&mut self, index: &Index, id: Id, length: u64) -> Result<(Arc<OpenFrame>, u32)> {
        let place = index.find(&id).ok_or_else(|| missing(id))?;
        let frame = self.frame(index, place.frame)?;
        let found_bytes = chunk_of(&frame, place.ordinal)?.len();
        match place.kind == ChunkKind::Plain && found_bytes as u64 == length {
            true => Ok((frame, place.ordinal)),
            false => Err(wrong_content(id)),
        }
    }

    /// Returns a whole content.
    pub(super) fn whole(&mut self, index: &Index, id: Id) -> Result<Vec<u8>> {
        let mut whole = Vec::new();
        if id == Id::NONE {
            return Ok(whole);
        }
        self.read(index, id, &mut |piece| {
            let length = match &piece {
                Piece::Bytes(bytes) => bytes.len() as u64,
                Piece::Zeros(count) => *count,
            };
            check_whole((whole.len() as u64).saturating_add(length))?;
            match piece {
                Piece::Bytes(bytes) => whole.extend_from_slice(bytes),
                Piece::Zeros(count) => whole.resize(whole.len() + count as usize, 0),
            }
            Ok(())
        })?;
        Ok(whole)
    }

    /// Returns the entries of a folder.
    pub(super) fn folder(&mut self, index: &Index, id: Id) -> Result<Vec<Entry>> {
        read_folder(&self.whole(index, id)?)
    }

    /// Returns the stamps beside a folder's entries.
    pub(super) fn stamps(
        &mut self,
        index: &Index,
        entries: &[Entry],
        id: Id,
    ) -> Result<Vec<Stamp>> {
        read_stamps(entries, &self.whole(index, id)?)
    }

    /// Returns the entries and the stamps of a folder.
    pub(super) fn folder_and_stamps(
        &mut self,
        index: &Index,
        [folder, stamps]: [Id; 2],
    ) -> Result<(Vec<Entry>, Vec<Stamp>)> {
        let entries = self.folder(index, folder)?;
        let stamps = self.stamps(index, &entries, stamps)?;
        Ok((entries, stamps))
    }

    /// Returns a content as a source.
    pub(super) fn source<'c>(&'c mut self, index: &'c Index, id: Id) -> Result<ContentSource<'c>> {
        let list = self.items(index, id)?;
        Ok(ContentSource {
            check: ContentCheck::new(&self.keys, list.identity_of),
            chunks: self,
            index,
            id,
            list,
            part: Part::Zeros(0),
            failure: None,
            gaps: None,
        })
    }

    /// Returns a content as a source that has zeros in place of lost chunks, and notes where.
    pub(super) fn source_with_gaps<'c>(
        &'c mut self,
        index: &'c Index,
        id: Id,
    ) -> Result<ContentSource<'c>> {
        Ok(ContentSource {
            gaps: Some(Gaps::default()),
            ..self.source(index, id)?
        })
    }

    /// Returns the list of a content, which is one item if it is one chunk.
    fn items(&mut self, index: &Index, id: Id) -> Result<OpenList> {
        if let Some(list) = self.list(index, id)? {
            return Ok(list);
        }
        let (frame, ordinal) = self.found(index, id)?;
        let raw_bytes = chunk_of(&frame, ordinal)?.len() as u64;
        let mut items = Vec::new();
        put_number(&mut items, raw_bytes << 1);
        items.extend_from_slice(&id.0);
        Ok(OpenList {
            raw_bytes,
            identity_of: IdentityOf::Bytes,
            items: Items::new(1, raw_bytes, items),
        })
    }

    /// Returns the list of a content; nothing if it is one chunk.
    fn list(&mut self, index: &Index, id: Id) -> Result<Option<OpenList>> {
        let under = index.lies_under(id);
        let place = index.find(&under).ok_or_else(|| missing(id))?;
        if place.kind == ChunkKind::Plain {
            return Ok(None);
        }
        let frame = self.frame(index, place.frame)?;
        let mut reader = Reader::new("list", chunk_of(&frame, place.ordinal)?);
        let marked = reader.byte()?;
        if (marked & HAS_GAPS != 0) != (under != id) {
            return Err(reader.wrong("gaps as its identity says", marked));
        }
        let head = marked & !HAS_GAPS;
        let depth = head & !(SKIPS_ZEROS | OF_ITEMS);
        let raw_bytes = reader.number()?;
        let identity_of = match head - depth {
            0 => IdentityOf::Bytes,
            SKIPS_ZEROS => IdentityOf::Data,
            OF_ITEMS => IdentityOf::Items,
            marks => return Err(reader.wrong("an identity of one kind", marks)),
        };
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(reader.wrong("a depth from 1 to 4", depth));
        }
        let items = reader.take(reader.left())?.to_vec();
        Ok(Some(OpenList {
            raw_bytes,
            identity_of,
            items: Items::new(depth, raw_bytes, items),
        }))
    }

    /// Says whether a list by its identity in the index is one with gaps.
    pub(super) fn is_with_gaps(&mut self, index: &Index, id: Id) -> Result<bool> {
        let (frame, ordinal) = self.found(index, id)?;
        let head = chunk_of(&frame, ordinal)?.first();
        Ok(head.is_some_and(|head| head & HAS_GAPS != 0))
    }

    /// Returns the parts of a content that is a list, to be looked up.
    pub(super) fn cursor(&mut self, index: &Index, id: Id) -> Result<ListCursor> {
        let items = self.items(index, id)?.items;
        let (range, id) = (0..0, Id::NONE);
        let last = ContentExtent { range, id };
        Ok(ListCursor { items, last })
    }

    /// Hands out the identities of all chunks that a content consists of, its own among them. A missing chunk is an
    /// error.
    pub(super) fn each_chunk(
        &mut self,
        index: &Index,
        id: Id,
        take: &mut dyn FnMut(Id),
    ) -> Result<()> {
        self.each_chunk_there(index, id, &|id| index.has_chunk(id), take)
    }

    /// Hands out the parts of a content that is a list, in order, each with its length. Chunks come by their
    /// identities, also a missing one, and zeros as [`Id::NONE`].
    pub(super) fn each_extent(
        &mut self,
        index: &Index,
        id: Id,
        take: &mut dyn FnMut(Id, u64),
    ) -> Result<()> {
        let mut items = self.items(index, id)?.items;
        while let Some(item) = items.next(self, index, &mut |_| ())? {
            match item {
                Item::Zeros(length) => take(Id::NONE, length),
                Item::Chunk { id, length } => take(id, length),
            }
        }
        Ok(())
    }

    /// The same, where `is_there` says which chunks of bytes are.
    pub(super) fn each_chunk_there(
        &mut self,
        index: &Index,
        id: Id,
        is_there: &dyn Fn(&Id) -> bool,
        take: &mut dyn FnMut(Id),
    ) -> Result<()> {
        let list = self.list(index, id)?;
        take(index.lies_under(id));
        let Some(mut list) = list else {
            return Ok(());
        };
        while let Some(item) = list.items.next(self, index, take)? {
            if let Item::Chunk { id, .. } = item {
                take(id);
                if !is_there(&id) {
                    return Err(missing(id));
                }
            }
        }
        Ok(())
    }
}

/// A part of a content, as its list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContentExtent {
    pub(super) range: Range<u64>,
    /// Its chunk, or [`Id::NONE`] for zeros.
    pub(super) id: Id,
}

/// Looks up the parts of a content that has a list, in rising order.
pub(super) struct ListCursor {
    items: Items,
    last: ContentExtent,
}

impl ListCursor {
    /// Returns the part in which an offset lies, which is not before the last one.
    pub(super) fn extent_at(
        &mut self,
        chunks: &mut Chunks,
        index: &Index,
        offset: u64,
    ) -> Result<Option<&ContentExtent>> {
        while self.last.range.end <= offset {
            let (id, length) = match self.items.next(chunks, index, &mut |_| ())? {
                Some(Item::Zeros(length)) => (Id::NONE, length),
                Some(Item::Chunk { id, length }) => (id, length),
                None => return Ok(None),
            };
            let start = self.last.range.end;
            let range = start..start + length;
            self.last = ContentExtent { range, id };
        }
        Ok(Some(&self.last))
    }
}

/// Reads a frame by its number in the index. `head` is its pack's; it is read if it is missing.
pub(super) fn read_frame(
    far: &dyn FarEnd,
    keys: &Keys,
    index: &Index,
    number: u32,
    head: &mut Option<[u8; HEAD_BYTES]>,
) -> Result<CompressedFrame> {
    let place = index.frame(number);
    if place.is_pending() {
        return Err(fail("vault", 0, "a frame in a pack", "one of no pack yet"));
    }
    let reader = FrameReader {
        far,
        keys,
        damages: &index.damages,
    };
    let offset = u64::from(place.offset);
    let place_in_pack = offset..offset + u64::from(place.sealed_bytes());
    let frame = reader.frame(&index.pack(place.pack), place_in_pack, head)?;
    // The reader of a base reads no further frame, whatever a frame says.
    match frame.bases().is_empty() == place.is_delta() {
        true => Err(fail("frame", offset, "deltas as listed", "other chunks")),
        false => Ok(frame),
    }
}

/// Appends the bytes of chunks that others are deltas of. `frame_of` returns a frame by its number in the index.
pub(super) fn append_bases(
    index: &Index,
    bases: &[Id],
    prefix: &mut Vec<u8>,
    frame_of: &mut dyn FnMut(u32) -> Result<Arc<OpenFrame>>,
) -> Result<()> {
    for base in bases {
        let place = index.find_base(base).ok_or_else(|| missing(*base))?;
        let frame = frame_of(place.frame)?;
        append_base(&frame, place.ordinal, prefix)?;
    }
    Ok(())
}

/// Appends the bytes of one of them, by its place in its frame.
pub(super) fn append_base(frame: &OpenFrame, ordinal: u32, prefix: &mut Vec<u8>) -> Result<()> {
    let chunk = chunk_of(frame, ordinal)?;
    if prefix.len() + chunk.len() > PREFIX_BYTES_LIMIT {
        return Err(fail("frame", 0, "bases of 8 MiB at most", "longer ones"));
    }
    prefix.extend_from_slice(chunk);
    Ok(())
}

/// An item of a list.
enum Item {
    Zeros(u64),
    Chunk { id: Id, length: u64 },
}

/// The list of a content.
struct OpenList {
    raw_bytes: u64,
    identity_of: IdentityOf,
    items: Items,
}

impl OpenList {
    fn identity(&self, id: Id) -> Identity {
        let of = self.identity_of;
        Identity { id, of }
    }
}

/// Returns the first byte of a list.
pub(super) fn head_of_list(depth: u8, of: IdentityOf) -> u8 {
    assert!((1..=DEPTH_MAX).contains(&depth), "depth {depth}");
    depth
        | match of {
            IdentityOf::Bytes => 0,
            IdentityOf::Data => SKIPS_ZEROS,
            IdentityOf::Items => OF_ITEMS,
        }
}

/// Appends an item of zeros.
pub(super) fn put_zeros(items: &mut Vec<u8>, count: u64) {
    put_number(items, count << 1 | ZEROS_BIT);
}

/// Appends an item of a chunk.
pub(super) fn put_item(items: &mut Vec<u8>, length_bytes: u64, id: Id) {
    put_number(items, length_bytes << 1);
    items.extend_from_slice(&id.0);
}

/// Computes the identity of a content again from the items of its list.
#[derive(Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one a content")]
enum ContentCheck {
    Bytes(ContentHasher),
    Items {
        hasher: blake3::Hasher,
        raw_bytes: u64,
    },
}

impl ContentCheck {
    fn new(keys: &Arc<Keys>, of: IdentityOf) -> ContentCheck {
        match of {
            IdentityOf::Bytes => ContentCheck::Bytes(ContentHasher::new(keys, false)),
            IdentityOf::Data => ContentCheck::Bytes(ContentHasher::new(keys, true)),
            IdentityOf::Items => ContentCheck::Items {
                hasher: keys.items_hasher(),
                raw_bytes: 0,
            },
        }
    }

    /// Takes the bytes of a chunk.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for another chunk, where the identity of the content shows only the names of its chunks.
    fn chunk(&mut self, keys: &Keys, id: Id, chunk: &[u8]) -> Result<()> {
        match self {
            ContentCheck::Bytes(hasher) => hasher.update(chunk),
            ContentCheck::Items { hasher, raw_bytes } => {
                if keys.id(chunk) != id {
                    return Err(wrong_content(id));
                }
                let mut item = Vec::with_capacity(ITEM_BYTES_MAX);
                put_item(&mut item, chunk.len() as u64, id);
                hasher.update(&item);
                *raw_bytes += chunk.len() as u64;
            }
        }
        Ok(())
    }

    fn zeros(&mut self, count: u64) {
        match self {
            ContentCheck::Bytes(hasher) => hasher.update_zeros(count),
            ContentCheck::Items { hasher, raw_bytes } => {
                let mut item = Vec::with_capacity(ITEM_BYTES_MAX);
                put_zeros(&mut item, count);
                hasher.update(&item);
                *raw_bytes += count;
            }
        }
    }

    fn identity(self) -> Identity {
        match self {
            ContentCheck::Bytes(hasher) => hasher.identity(),
            ContentCheck::Items { hasher, raw_bytes } => identity_of_items(hasher, raw_bytes),
        }
    }
}

/// Returns the identity of a content whose items were hashed.
pub(super) fn identity_of_items(mut hasher: blake3::Hasher, raw_bytes: u64) -> Identity {
    hasher.update(&raw_bytes.to_le_bytes());
    Identity {
        id: Keys::id_of(&hasher),
        of: IdentityOf::Items,
    }
}

/// The items of a list, read on demand: each level holds one chunk at the most.
struct Items {
    /// Bytes of the content that are not yet handed out.
    left: u64,
    /// From the list itself down to the items of the content.
    levels: Vec<Level>,
}

#[derive(Default)]
struct Level {
    bytes: Vec<u8>,
    /// How many of them were taken.
    at: usize,
}

impl Items {
    fn new(depth: u8, raw_bytes: u64, items: Vec<u8>) -> Items {
        let mut levels = vec![Level {
            bytes: items,
            at: 0,
        }];
        levels.resize_with(depth.into(), Level::default);
        Items {
            left: raw_bytes,
            levels,
        }
    }

    /// Returns the next item of the content; hands out the chunks of the list that were read for it.
    fn next(
        &mut self,
        chunks: &mut Chunks,
        index: &Index,
        take: &mut dyn FnMut(Id),
    ) -> Result<Option<Item>> {
        let item = self.next_of(self.levels.len() - 1, chunks, index, take)?;
        let length = match &item {
            Some(Item::Zeros(length) | Item::Chunk { length, .. }) => *length,
            None if self.left > 0 => return Err(fail("list", 0, "all bytes", "fewer")),
            None => 0,
        };
        let left = self.left.checked_sub(length);
        self.left = left.ok_or_else(|| fail("list", 0, "as many bytes as it says", "more"))?;
        Ok(item)
    }

    fn next_of(
        &mut self,
        level: usize,
        chunks: &mut Chunks,
        index: &Index,
        take: &mut dyn FnMut(Id),
    ) -> Result<Option<Item>> {
        loop {
            if let Some(item) = self.levels[level].next()? {
                return Ok(Some(item));
            }
            let above = match level {
                0 => None,
                _ => self.next_of(level - 1, chunks, index, take)?,
            };
            let (id, length) = match above {
                Some(Item::Chunk { id, length }) => (id, length),
                Some(Item::Zeros(_)) => {
                    return Err(fail("list", 0, "a chunk of a list", "zeros"));
                }
                None => return self.levels[level].end().map(|()| None),
            };
            take(id);
            let (frame, ordinal) = chunks.found_plain(index, id, length)?;
            self.levels[level].append(chunk_of(&frame, ordinal)?);
        }
    }
}

impl Level {
    /// Takes the next item, if all of it is here: a level is cut into chunks at any byte.
    fn next(&mut self) -> Result<Option<Item>> {
        let mut reader = Reader::new("list", &self.bytes[self.at..]);
        let left = reader.left();
        let item = match read_item(&mut reader) {
            Err(_) if left < ITEM_BYTES_MAX => return Ok(None),
            item => item?,
        };
        // An item of no bytes could be repeated without end.
        if let Item::Zeros(0) | Item::Chunk { length: 0, .. } = item {
            return Err(reader.wrong("some bytes", "an item of none"));
        }
        self.at += left - reader.left();
        Ok(Some(item))
    }

    fn append(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Checks that nothing is left.
    fn end(&self) -> Result<()> {
        Reader::new("list", &self.bytes[self.at..]).end()
    }
}

fn read_item(reader: &mut Reader<'_>) -> Result<Item> {
    let head = reader.number()?;
    let length = head >> 1;
    Ok(match head & ZEROS_BIT {
        0 => Item::Chunk {
            id: reader.id()?,
            length,
        },
        _ => Item::Zeros(length),
    })
}

/// A content that is read like a file: from its start, and again on demand.
pub(super) struct ContentSource<'c> {
    chunks: &'c mut Chunks,
    index: &'c Index,
    id: Id,
    list: OpenList,
    part: Part,
    check: ContentCheck,
    /// The fault of the content, if it has one.
    pub(super) failure: Option<String>,
    /// The lost parts, if the reader goes on behind them.
    gaps: Option<Gaps>,
}

/// The lost parts of a content, in rising order.
#[derive(Default)]
struct Gaps {
    ranges: Vec<Range<u64>>,
    /// The fault of the first.
    fault: String,
}

impl Gaps {
    fn push(&mut self, range: Range<u64>, error: &Error) {
        match self.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(_) => self.ranges.push(range),
            None => {
                self.fault = error.to_string();
                self.ranges.push(range);
            }
        }
    }

    fn lost_bytes(&self) -> u64 {
        self.ranges.iter().map(|it| it.end - it.start).sum()
    }

    /// Names the first parts and counts the others.
    fn describe(&self) -> String {
        let named = self.ranges.iter().take(NAMED_MOST);
        let named: Vec<String> = named
            .map(|it| format!("{} to {}", it.start, it.end - 1))
            .collect();
        let more = match self.ranges.len().saturating_sub(NAMED_MOST) {
            0 => String::new(),
            more => format!(" and {more} more parts"),
        };
        format!(
            "{} bytes are lost, which read as zeros: bytes {}{more}: {}",
            self.lost_bytes(),
            named.join(", "),
            self.fault
        )
    }
}

/// The rest of an item.
enum Part {
    Zeros(u64),
    /// A chunk of a frame from a byte on.
    Chunk(Arc<OpenFrame>, u32, usize),
}

impl ContentSource<'_> {
    pub(super) fn raw_bytes(&self) -> u64 {
        self.list.raw_bytes
    }

    /// Returns how many of the bytes read so far are lost.
    pub(super) fn lost_bytes(&self) -> u64 {
        self.gaps.as_ref().map_or(0, Gaps::lost_bytes)
    }

    /// Names the lost parts of the bytes read so far, if there are any.
    pub(super) fn loss(&self) -> Option<String> {
        let gaps = self.gaps.as_ref()?;
        (!gaps.ranges.is_empty()).then(|| gaps.describe())
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        loop {
            let count = match &mut self.part {
                Part::Zeros(left) => {
                    let count = (buffer.len() as u64).min(*left) as usize;
                    buffer[..count].fill(0);
                    *left -= count as u64;
                    count
                }
                Part::Chunk(frame, ordinal, from) => {
                    let left = &chunk_of(frame, *ordinal)?[*from..];
                    let count = buffer.len().min(left.len());
                    buffer[..count].copy_from_slice(&left[..count]);
                    *from += count;
                    count
                }
            };
            if count > 0 {
                return Ok(count);
            }
            if !self.next_part()? {
                let is_right = self.lost_bytes() > 0
                    || self.check.clone().identity() == self.list.identity(self.id);
                return match is_right {
                    true => Ok(0),
                    false => Err(wrong_content(self.id)),
                };
            }
        }
    }

    /// Goes on to the next item; says whether there is one.
    fn next_part(&mut self) -> Result<bool> {
        self.part = match self.list.items.next(self.chunks, self.index, &mut |_| ())? {
            Some(Item::Zeros(count)) => {
                self.check.zeros(count);
                Part::Zeros(count)
            }
            Some(Item::Chunk { id, length }) => match (self.chunk(id, length), &mut self.gaps) {
                (Err(error), Some(gaps)) if is_damage(&error) => {
                    let end = self.list.raw_bytes - self.list.items.left;
                    gaps.push(end - length..end, &error);
                    Part::Zeros(length)
                }
                (part, _) => part?,
            },
            None => return Ok(false),
        };
        Ok(true)
    }

    fn chunk(&mut self, id: Id, length: u64) -> Result<Part> {
        let (frame, ordinal) = self.chunks.found_plain(self.index, id, length)?;
        let chunk = chunk_of(&frame, ordinal)?;
        // The identity of the whole proves nothing about a part.
        if self.gaps.is_some() && self.chunks.keys.id(chunk) != id {
            return Err(wrong_content(id));
        }
        self.check.chunk(&self.chunks.keys, id, chunk)?;
        Ok(Part::Chunk(frame, ordinal, 0))
    }
}

impl Source for ContentSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let read = self.try_read(buffer);
        if let Err(error) = &read {
            self.failure = Some(error.to_string());
        }
        read
    }

    fn rewind(&mut self) -> Result<bool> {
        self.list = self.chunks.items(self.index, self.id)?;
        self.part = Part::Zeros(0);
        self.check = ContentCheck::new(&self.chunks.keys, self.list.identity_of);
        self.gaps = self.gaps.take().map(|_| Gaps::default());
        Ok(true)
    }

    fn zeros_ahead(&mut self) -> Result<u64> {
        Ok(match self.part {
            Part::Zeros(left) => left,
            Part::Chunk(..) => 0,
        })
    }

    fn skip_zeros(&mut self, count: u64) -> Result<()> {
        if let Part::Zeros(left) = &mut self.part {
            *left -= count;
        }
        Ok(())
    }

    fn size_bytes(&self) -> Option<u64> {
        Some(self.raw_bytes())
    }
}

/// Refuses a folder longer than a reader accepts.
///
/// # Errors
/// [`Error::Limit`] of a [`FOLDER`].
pub(super) fn check_whole(needed_bytes: u64) -> Result<()> {
    match needed_bytes <= WHOLE_BYTES_MAX {
        true => Ok(()),
        false => Err(Error::Limit {
            what: FOLDER,
            limit_bytes: WHOLE_BYTES_MAX,
            needed_bytes,
        }),
    }
}

pub(super) fn chunk_of(frame: &OpenFrame, ordinal: u32) -> Result<&[u8]> {
    let chunk = frame.chunk(ordinal as usize);
    chunk.ok_or_else(|| fail("frame", 0, format!("chunk {ordinal}"), frame.count()))
}

pub(super) fn missing(id: Id) -> Error {
    fail(
        "vault",
        0,
        format!("a chunk {}", id.hex()),
        "none in any index",
    )
}

pub(super) fn wrong_content(id: Id) -> Error {
    fail("content", 0, format!("the content {}", id.hex()), "another")
}
