//! Deltas: new chunks that are compressed after a similar one that the vault has.
//!
//! A chunk whose sketch is like another's waits with chunks whose bases lie in the same frame. The wait ends with a
//! full frame, or when a few other frames have come up. Then the frame of the bases is decoded, if the expected saving
//! pays for that at the prices of the place. Otherwise the chunks are stored like all others. A base is no delta itself
//! (docs/format.md), so that reading a chunk takes two frames.
//!
//! Promises: before a chunk becomes a delta, its base was read, opened under its seal, and its identity checked. A
//! chunk that cannot be read is no base.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::codec::Decompressor;
use crate::error::Result;

use super::Vault;
use super::cipher::Id;
use super::collect::Marks;
use super::compression::{DeltaPick, Pick};
use super::contents::{Chunks, append_base, missing};
use super::index::{FramePlace, Place};
use super::pack::{
    ChunkEntry, ChunkKind, CompressedFrame, DeltaEncoding, OpenFrame, PackKind, RawFrame,
    Resemblance,
};
use super::repair::unless_damaged;
use super::similar::{BasePlace, Sketcher};
use super::writer::{Group, Job, Writer};

/// Frames of deltas that are filled at a time. A version of a tree is met in the order of the one before, so few of
/// that one's frames are needed at a time. With a single one, a file that moved would end the frame of its neighbours.
const FILLINGS_MAX: usize = 4;

/// The state with which a writer makes deltas.
pub(super) struct Deltas {
    sketcher: Sketcher,
    /// Whether new chunks become deltas; moved chunks stay as they are.
    seeks: bool,
    /// Reads frames of bases.
    reader: Chunks,
    /// A frame of bases that is in no pack yet.
    held: Option<(u32, Arc<OpenFrame>)>,
    decompressor: Decompressor,
    fillings: VecDeque<DeltaFilling>,
}

/// A frame of deltas that is being filled.
struct DeltaFilling {
    base_frame: u32,
    number: u32,
    frame: RawFrame,
    /// Of each chunk, the place of its base in the frame.
    bases: Vec<u16>,
    /// Whether they are deltas already, and move.
    moves: bool,
}

impl Deltas {
    pub(super) fn new(vault: &Vault) -> Deltas {
        Deltas {
            sketcher: Sketcher::of(vault.options.chunks),
            seeks: false,
            reader: Chunks::new(&vault.far, &vault.keys),
            held: None,
            decompressor: Decompressor::new(),
            fillings: VecDeque::new(),
        }
    }

    /// Has new chunks become deltas of others.
    pub(super) fn seek(&mut self) {
        self.seeks = true;
    }

    /// Forgets frames whose numbers count no more.
    pub(super) fn forget_frames(&mut self) {
        self.reader = self.reader.another();
        self.held = None;
    }

    fn holds(&self, frame: u32) -> bool {
        let is_held = |(number, _): &(u32, Arc<OpenFrame>)| *number == frame;
        self.held.as_ref().is_some_and(is_held) || self.reader.holds(frame)
    }

    /// Returns the sketch of a new chunk of a file.
    pub(super) fn resemblance(&self, bytes: &[u8]) -> Resemblance {
        let sketch = match self.seeks {
            true => self.sketcher.sketch(bytes),
            false => None,
        };
        sketch.map_or(Resemblance::Unknown, Resemblance::Sketch)
    }
}

impl Writer<'_> {
    /// Returns the place of a chunk that can be the base of a new one. A chunk in the frame that is being filled is no
    /// candidate: both are compressed together anyway.
    pub(super) fn similar(&self, resemblance: Resemblance) -> Option<BasePlace> {
        let Resemblance::Sketch(sketch) = resemblance else {
            return None;
        };
        let found = self.index.similar(sketch);
        found.filter(|it| !self.is_filling(it.frame) && !self.index.frame(it.frame).is_delta())
    }

    /// Puts again a chunk that leaves its place, as a delta or plain as it was.
    pub(super) fn put_moved(
        &mut self,
        group: Group,
        chunk: &ChunkEntry,
        bytes: &[u8],
    ) -> Result<()> {
        if !self.is_new(chunk.kind, &chunk.id) {
            return Ok(());
        }
        let base = chunk.base().and_then(|base| self.index.find_base(&base));
        let ordinal = base.and_then(|it| u16::try_from(it.ordinal).ok());
        match (base, ordinal) {
            (Some(base), Some(ordinal)) => {
                let frame = base.frame;
                self.place_delta(*chunk, bytes, BasePlace { frame, ordinal })
            }
            _ => self.place_chunk(group, &chunk.without_base(), bytes),
        }
    }

    /// Puts a chunk beside others whose bases lie in the same frame.
    pub(super) fn place_delta(
        &mut self,
        chunk: ChunkEntry,
        bytes: &[u8],
        base: BasePlace,
    ) -> Result<()> {
        let frame_bytes = self.vault().options.frame_bytes;
        let moves = chunk.base().is_some();
        let fillings = &self.deltas.fillings;
        let known = fillings.iter().position(|it| it.base_frame == base.frame);
        let is_full = |at: usize| {
            fillings[at].frame.is_full_for(bytes.len(), frame_bytes) || fillings[at].moves != moves
        };
        let ends = match known {
            Some(at) if is_full(at) => Some(at),
            None if fillings.len() == FILLINGS_MAX => Some(0),
            _ => None,
        };
        if let Some(at) = ends {
            self.end_delta(at)?;
        }
        let fillings = &self.deltas.fillings;
        let known = fillings.iter().position(|it| it.base_frame == base.frame);
        let at = match known {
            Some(at) => at,
            None => {
                let number = self.index.add_frame(FramePlace::pending(true))?;
                self.deltas.fillings.push_back(DeltaFilling {
                    base_frame: base.frame,
                    number,
                    frame: RawFrame::default(),
                    bases: Vec::new(),
                    moves,
                });
                self.deltas.fillings.len() - 1
            }
        };
        let filling = &mut self.deltas.fillings[at];
        let place = Place {
            frame: filling.number,
            ordinal: filling.frame.chunks.len() as u32,
            kind: ChunkKind::Plain,
        };
        filling.frame.bytes.extend_from_slice(bytes);
        filling.frame.chunks.push(chunk);
        filling.bases.push(base.ordinal);
        self.note_placed(chunk.id, place, bytes.len())
    }

    /// Has all frames of deltas compressed.
    pub(super) fn end_deltas(&mut self) -> Result<()> {
        while !self.deltas.fillings.is_empty() {
            self.end_delta(0)?;
        }
        Ok(())
    }

    fn end_delta(&mut self, at: usize) -> Result<()> {
        let Some(filling) = self.deltas.fillings.remove(at) else {
            return Ok(());
        };
        let pick = self.pick(&filling.frame.bytes)?;
        let Some((delta, bases)) = self.encoding_of(&filling, &pick)? else {
            return self.put_plain(&filling);
        };
        let mut frame = filling.frame;
        for (chunk, base) in frame.chunks.iter_mut().zip(bases) {
            chunk.resemblance = Resemblance::Base(base);
        }
        self.submit(Job {
            kind: PackKind::Data,
            number: filling.number,
            pick,
            frame,
            delta: Some(delta),
        })
    }

    /// Puts chunks that are no deltas after all among the others.
    fn put_plain(&mut self, filling: &DeltaFilling) -> Result<()> {
        let mut from = 0;
        for chunk in &filling.frame.chunks {
            let to = from + chunk.length_bytes as usize;
            let bytes = &filling.frame.bytes[from..to];
            self.fill(Group::Contents, &chunk.without_base(), bytes)?;
            from = to;
        }
        Ok(())
    }

    /// Returns how a frame of deltas is encoded, and the base of each chunk. Returns nothing if that does not pay, or
    /// the bases cannot be read.
    fn encoding_of(
        &mut self,
        filling: &DeltaFilling,
        pick: &Pick,
    ) -> Result<Option<(DeltaEncoding, Vec<Id>)>> {
        let raw_bytes = filling.frame.bytes.len();
        let read_bytes = match self.deltas.holds(filling.base_frame) {
            true => 0,
            false => self.vault().options.frame_bytes,
        };
        let picked = match filling.moves {
            true => Some(self.picker().move_delta(pick, raw_bytes)),
            false => self.picker().pick_delta(pick, raw_bytes, read_bytes),
        };
        let Some(DeltaPick { method, most_bytes }) = picked else {
            return Ok(None);
        };
        let Some(frame) = self.open_base(filling.base_frame)? else {
            return Ok(None);
        };
        let (mut named, mut each) = (Vec::new(), Vec::new());
        let mut delta = DeltaEncoding {
            method,
            bases: Vec::new(),
            prefix: Vec::new(),
            most_bytes,
        };
        for ordinal in &filling.bases {
            if let Some(at) = named.iter().position(|it| it == ordinal) {
                each.push(delta.bases[at]);
                continue;
            }
            let Some(chunk) = frame.chunk((*ordinal).into()) else {
                return Ok(None);
            };
            let id = self.vault().keys.id(chunk);
            if self.index.find_base(&id).is_none() {
                return Ok(None);
            }
            named.push(*ordinal);
            each.push(id);
            delta.bases.push(id);
            delta.prefix.extend_from_slice(chunk);
        }
        Ok(Some((delta, each)))
    }

    /// Returns a frame by its number in the index, wherever it lies now; nothing if it cannot be read.
    fn open_base(&mut self, number: u32) -> Result<Option<Arc<OpenFrame>>> {
        if let Some((known, frame)) = &self.deltas.held
            && *known == number
        {
            return Ok(Some(Arc::clone(frame)));
        }
        if self.is_filling(number) {
            self.end_frame(Group::Contents)?;
        }
        while self.index.frame(number).is_pending() {
            if let Some(bytes) = self.packed_frame(number) {
                let read = CompressedFrame::read(bytes)?;
                let frame = Arc::new(read.decode(&[], &mut self.deltas.decompressor)?);
                self.deltas.held = Some((number, Arc::clone(&frame)));
                return Ok(Some(frame));
            }
            if !self.take_done()? {
                return Ok(None);
            }
        }
        unless_damaged(self.deltas.reader.frame(&self.index, number))
    }

    /// Decodes a frame whose chunks move, also where its bases have moved.
    pub(super) fn open_moved(&mut self, frame: CompressedFrame) -> Result<OpenFrame> {
        let mut prefix = Vec::new();
        for base in frame.bases() {
            let place = self.index.find_base(base).ok_or_else(|| missing(*base))?;
            let open = self.open_base(place.frame)?.ok_or_else(|| missing(*base))?;
            append_base(&open, place.ordinal, &mut prefix)?;
        }
        frame.decode(&prefix, &mut self.deltas.decompressor)
    }
}

impl Vault {
    /// Marks the bases of marked chunks. A frame is decoded as a whole, so that one of them needs all its bases.
    pub(super) fn mark_bases(&self, marks: &mut Marks<'_>) -> Result<()> {
        let mut number = 0u32;
        self.each_readable_pack(|_, contents| {
            for frame in &contents.frames {
                let mut chunks = frame.chunks.iter();
                if frame.is_delta() && chunks.any(|chunk| marks.has_in(&chunk.id, number)) {
                    frame.bases().for_each(|base| marks.mark(&base));
                }
                number += 1;
            }
            Ok(())
        })
    }
}
