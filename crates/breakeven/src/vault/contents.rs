//! Reading contents back: from an identity to bytes, through lists, frames and the seal.
//!
//! Promises: what is handed out in whole was checked: the identity of the content is computed again at its end, so
//! a caller that keeps what it was handed must drop it on an error.

use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use crate::codec::Decompressor;
use crate::error::{Error, Result};

use super::bytes::{Reader, fail};
use super::cipher::{Id, Keys};
use super::far_end::FarEnd;
use super::folder::{Entry, Stamp, read_folder, read_stamps};
use super::index::Index;
use super::pack::{ChunkKind, HEAD_BYTES, OpenFrame, object_name, open_frame, read_head};

/// Frames kept decoded, which folders and files near each other share.
const FRAMES_KEPT: usize = 24;
/// Levels of lists that the format allows.
pub(super) const DEPTH_MAX: u8 = 4;
/// The longest content that is read into memory: a folder of some million entries.
const WHOLE_BYTES_MAX: u64 = 1 << 30;
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
    far: Arc<FarEnd>,
    keys: Arc<Keys>,
    decompressor: Decompressor,
    frames: VecDeque<(u32, Rc<OpenFrame>)>,
    heads: VecDeque<(u32, [u8; HEAD_BYTES])>,
}

impl Chunks {
    pub(super) fn new(far: &Arc<FarEnd>, keys: &Arc<Keys>) -> Chunks {
        Chunks {
            far: Arc::clone(far),
            keys: Arc::clone(keys),
            decompressor: Decompressor::new(),
            frames: VecDeque::new(),
            heads: VecDeque::new(),
        }
    }

    /// Returns a frame by its number in the index.
    fn frame(&mut self, index: &Index, number: u32) -> Result<Rc<OpenFrame>> {
        if let Some((_, frame)) = self.frames.iter().find(|(known, _)| *known == number) {
            return Ok(Rc::clone(frame));
        }
        let place = index.frame(number);
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
        let frame = Rc::new(frame);
        self.frames.truncate(FRAMES_KEPT - 1);
        self.frames.push_front((number, Rc::clone(&frame)));
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
            let needed_bytes = (whole.len() as u64).saturating_add(length);
            if needed_bytes > WHOLE_BYTES_MAX {
                return Err(Error::Limit {
                    what: "folder",
                    limit_bytes: WHOLE_BYTES_MAX,
                    needed_bytes,
                });
            }
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

    /// Hands out the identities of all chunks that a content consists of, its own among them.
    pub(super) fn each_chunk(
        &mut self,
        index: &Index,
        id: Id,
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
                let place = index.find(&id).ok_or_else(|| missing(id))?;
                if depth > 1 {
                    let frame = self.frame(index, place.frame)?;
                    below.extend_from_slice(chunk_of(&frame, place.ordinal)?);
                }
            }
            if depth == 1 {
                return Ok(());
            }
            (items, depth) = (below, depth - 1);
        }
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
