//! Reading contents back: from an identity to bytes, through lists, frames and the seal.
//!
//! Promises: what is handed out in whole was checked: the identity of the content is computed again at its end, so
//! a caller that keeps what it was handed must drop it on an error.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::codec::Decompressor;
use crate::error::{Error, Result};

use super::bytes::{Reader, fail, put_number};
use super::cipher::{Id, Keys};
use super::far_end::FarEnd;
use super::folder::{Entry, Stamp, read_folder, read_stamps};
use super::index::{FramePlace, Index};
use super::pack::{ChunkKind, HEAD_BYTES, OpenFrame, object_name, open_frame, read_head};
use super::writer::Source;

/// Frames kept decoded, which folders and files near each other share.
const FRAMES_KEPT: usize = 24;
/// Levels of lists that the format allows.
pub(super) const DEPTH_MAX: u8 = 4;
/// The longest content that is read into memory: a folder of some million entries.
pub(super) const WHOLE_BYTES_MAX: u64 = 1 << 30;
/// What a limit is said to be of.
pub(super) const FOLDER: &str = "folder";
/// The item of a list that no chunk stands behind.
pub(super) const ZEROS_BIT: u64 = 1;

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

    /// Returns a frame by its number in the index.
    fn frame(&mut self, index: &Index, number: u32) -> Result<Arc<OpenFrame>> {
        if let Some((_, frame)) = self.frames.iter().find(|(known, _)| *known == number) {
            return Ok(Arc::clone(frame));
        }
        let place = index.frame(number);
        if place.pack == FramePlace::PENDING {
            return Err(fail("vault", 0, "a frame in a pack", "one of no pack yet"));
        }
        let pack = index.pack(place.pack);
        let object = object_name(pack.name);
        let head = match self.heads.iter().find(|(known, _)| *known == place.pack) {
            Some((_, head)) => *head,
            None => {
                let (head, _) = read_head(&self.far.read_range(&object, 0, HEAD_BYTES)?)?;
                self.heads.truncate(FRAMES_KEPT);
                self.heads.push_front((place.pack, head));
                head
            }
        };
        let (offset, length) = (u64::from(place.offset), place.sealed_bytes as usize);
        let sealed = self.far.read_range(&object, offset, length)?;
        let frame = open_frame(&self.keys, &head, offset, sealed, &mut self.decompressor)?;
        let frame = Arc::new(frame);
        self.frames.truncate(FRAMES_KEPT - 1);
        self.frames.push_front((number, Arc::clone(&frame)));
        Ok(frame)
    }

    /// Hands a content to `sink`, part by part, and checks its identity at the end.
    pub(super) fn read(&mut self, index: &Index, id: Id, sink: &mut Sink<'_>) -> Result<u64> {
        let place = index.find(&id).ok_or_else(|| missing(id))?;
        let frame = self.frame(index, place.frame)?;
        let chunk = chunk_of(&frame, place.ordinal)?;
        if place.kind == ChunkKind::Plain {
            if self.keys.id(chunk) != id {
                return Err(wrong_content(id));
            }
            sink(Piece::Bytes(chunk))?;
            return Ok(chunk.len() as u64);
        }
        let mut reader = Reader::new("list", chunk);
        let depth = reader.byte()?;
        let raw_bytes = reader.number()?;
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(reader.wrong("a depth from 1 to 4", depth));
        }
        let items = reader.take(reader.left())?;
        let mut hasher = self.keys.hasher();
        let mut left = raw_bytes;
        self.read_items(index, depth, items, &mut |piece| {
            let length = match &piece {
                Piece::Bytes(bytes) => bytes.len() as u64,
                Piece::Zeros(count) => *count,
            };
            left = left.checked_sub(length).ok_or_else(|| wrong_content(id))?;
            match &piece {
                Piece::Bytes(bytes) => drop(hasher.update(bytes)),
                Piece::Zeros(count) => hash_zeros(&mut hasher, *count),
            }
            sink(piece)
        })?;
        if left > 0 || Keys::id_of(&hasher) != id {
            return Err(wrong_content(id));
        }
        Ok(raw_bytes)
    }

    fn read_items(
        &mut self,
        index: &Index,
        depth: u8,
        items: &[u8],
        sink: &mut Sink<'_>,
    ) -> Result<()> {
        let mut reader = Reader::new("list", items);
        let mut below = Vec::new();
        while !reader.is_empty() {
            let head = reader.number()?;
            let length = head >> 1;
            if head & ZEROS_BIT != 0 {
                if depth > 1 {
                    return Err(reader.wrong("a chunk of a list", "zeros"));
                }
                sink(Piece::Zeros(length))?;
                continue;
            }
            let id = reader.id()?;
            let place = index.find(&id).ok_or_else(|| missing(id))?;
            let frame = self.frame(index, place.frame)?;
            let chunk = chunk_of(&frame, place.ordinal)?;
            if place.kind != ChunkKind::Plain || chunk.len() as u64 != length {
                return Err(wrong_content(id));
            }
            match depth {
                1 => sink(Piece::Bytes(chunk))?,
                // Items may be cut anywhere: the whole level is put together.
                _ => below.extend_from_slice(chunk),
            }
        }
        match depth {
            1 => Ok(()),
            _ => self.read_items(index, depth - 1, &below, sink),
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
        let (mut depth, raw_bytes, mut items) = match self.list(index, id)? {
            Some(list) => list,
            None => {
                let place = index.find(&id).ok_or_else(|| missing(id))?;
                let frame = self.frame(index, place.frame)?;
                let raw_bytes = chunk_of(&frame, place.ordinal)?.len() as u64;
                let mut items = Vec::new();
                put_number(&mut items, raw_bytes << 1);
                items.extend_from_slice(&id.0);
                (1, raw_bytes, items)
            }
        };
        while depth > 1 {
            let mut below = Vec::new();
            self.read_items(index, 1, &items, &mut |piece| match piece {
                Piece::Bytes(bytes) => {
                    below.extend_from_slice(bytes);
                    Ok(())
                }
                Piece::Zeros(_) => Err(fail("list", 0, "a chunk of a list", "zeros")),
            })?;
            (items, depth) = (below, depth - 1);
        }
        Ok(ContentSource {
            hasher: self.keys.hasher(),
            chunks: self,
            index,
            id,
            items,
            at: 0,
            part: Part::Zeros(0),
            raw_bytes,
            failure: None,
        })
    }

    /// Returns depth, length and items of a list; nothing if the content is one chunk.
    fn list(&mut self, index: &Index, id: Id) -> Result<Option<(u8, u64, Vec<u8>)>> {
        let place = index.find(&id).ok_or_else(|| missing(id))?;
        if place.kind == ChunkKind::Plain {
            return Ok(None);
        }
        let frame = self.frame(index, place.frame)?;
        let mut reader = Reader::new("list", chunk_of(&frame, place.ordinal)?);
        let depth = reader.byte()?;
        let raw_bytes = reader.number()?;
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(reader.wrong("a depth from 1 to 4", depth));
        }
        let items = reader.take(reader.left())?.to_vec();
        Ok(Some((depth, raw_bytes, items)))
    }

    /// Hands out the identities of all chunks that a content consists of, its own among them. One that is not there is an error.
    pub(super) fn each_chunk(
        &mut self,
        index: &Index,
        id: Id,
        take: &mut dyn FnMut(Id),
    ) -> Result<()> {
        self.each_chunk_there(index, id, &|id| index.has_chunk(id), take)
    }

    /// The same, where `is_there` says which chunks of bytes are.
    pub(super) fn each_chunk_there(
        &mut self,
        index: &Index,
        id: Id,
        is_there: &dyn Fn(&Id) -> bool,
        take: &mut dyn FnMut(Id),
    ) -> Result<()> {
        let place = index.find(&id).ok_or_else(|| missing(id))?;
        take(id);
        if place.kind == ChunkKind::Plain {
            return Ok(());
        }
        let frame = self.frame(index, place.frame)?;
        let mut reader = Reader::new("list", chunk_of(&frame, place.ordinal)?);
        let mut depth = reader.byte()?;
        reader.number()?;
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(reader.wrong("a depth from 1 to 4", depth));
        }
        let mut items = reader.take(reader.left())?.to_vec();
        loop {
            let mut below = Vec::new();
            let mut reader = Reader::new("list", &items);
            while !reader.is_empty() {
                if reader.number()? & ZEROS_BIT != 0 {
                    continue;
                }
                let id = reader.id()?;
                take(id);
                if depth > 1 {
                    let place = index.find(&id).ok_or_else(|| missing(id))?;
                    let frame = self.frame(index, place.frame)?;
                    below.extend_from_slice(chunk_of(&frame, place.ordinal)?);
                } else if !is_there(&id) {
                    return Err(missing(id));
                }
            }
            if depth == 1 {
                return Ok(());
            }
            (items, depth) = (below, depth - 1);
        }
    }
}

/// A content that is read as a file is: from its start, and again if asked.
pub(super) struct ContentSource<'c> {
    chunks: &'c mut Chunks,
    index: &'c Index,
    id: Id,
    /// The items of depth 1, and how many bytes of them were read.
    items: Vec<u8>,
    at: usize,
    part: Part,
    hasher: blake3::Hasher,
    pub(super) raw_bytes: u64,
    /// What is wrong with the content, if anything.
    pub(super) failure: Option<String>,
}

/// What is left of an item.
enum Part {
    Zeros(u64),
    /// A chunk of a frame from a byte on.
    Chunk(Arc<OpenFrame>, u32, usize),
}

impl ContentSource<'_> {
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
                self.hasher.update(&buffer[..count]);
                return Ok(count);
            }
            if self.at == self.items.len() {
                return match Keys::id_of(&self.hasher) == self.id {
                    true => Ok(0),
                    false => Err(wrong_content(self.id)),
                };
            }
            self.next_part()?;
        }
    }

    fn next_part(&mut self) -> Result<()> {
        let mut reader = Reader::new("list", &self.items[self.at..]);
        let head = reader.number()?;
        if head & ZEROS_BIT != 0 {
            self.part = Part::Zeros(head >> 1);
        } else {
            let id = reader.id()?;
            let place = self.index.find(&id).ok_or_else(|| missing(id))?;
            let frame = self.chunks.frame(self.index, place.frame)?;
            if chunk_of(&frame, place.ordinal)?.len() as u64 != head >> 1 {
                return Err(wrong_content(id));
            }
            self.part = Part::Chunk(frame, place.ordinal, 0);
        }
        self.at = self.items.len() - reader.left();
        Ok(())
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
        (self.at, self.part) = (0, Part::Zeros(0));
        self.hasher = self.chunks.keys.hasher();
        Ok(true)
    }

    fn size_bytes(&self) -> Option<u64> {
        Some(self.raw_bytes)
    }
}

/// Refuses a folder that is longer than a reader takes.
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

fn chunk_of(frame: &OpenFrame, ordinal: u32) -> Result<&[u8]> {
    let chunk = frame.chunk(ordinal as usize);
    chunk.ok_or_else(|| fail("frame", 0, format!("chunk {ordinal}"), frame.count()))
}

fn missing(id: Id) -> Error {
    fail(
        "vault",
        0,
        format!("a chunk {}", id.hex()),
        "none in any index",
    )
}

fn wrong_content(id: Id) -> Error {
    fail("content", 0, format!("the content {}", id.hex()), "another")
}

pub(super) fn hash_zeros(hasher: &mut blake3::Hasher, mut count: u64) {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    while count > 0 {
        let step = count.min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..step as usize]);
        count -= step;
    }
}
