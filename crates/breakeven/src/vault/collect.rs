//! Forgetting snapshots, and collecting the packs that no snapshot needs.
//!
//! Collecting marks from the folders of all live snapshots. Live chunks move in the order of the marking: a pack's
//! frames lie in a drawn order, and neighbours compress better together. A pack without a live chunk is doomed. So is a
//! pack whose live share is below the caller's limit, after its live chunks went to new packs. Doomed packs count no
//! more from the commit on. The first collection after a grace time deletes them, so a reader that began before still
//! finds them. Interrupted, it leaves packs that the next writer takes over, the next collection among them. A list of
//! contents that is not live is hidden where its pack stays. The chunks that it names leave, and the list would make
//! the next add believe that they are there. The same goes for a delta. The base of a live delta is live.
//!
//! Promises: nothing is deleted that the committed state needs; no more bytes are rewritten than the plan's most.

use std::collections::BTreeSet;

use crate::codec::{Compressor, Decompressor};
use crate::error::Result;
use crate::pool::Pool;

use super::cipher::{Id, TAG_BYTES};
use super::compression::Picker;
use super::copies::FrameReader;
use super::index::{Index, PackPlace, Place};
use super::pack::{
    CHUNK_ENTRY_BYTES, ChunkEntry, CompressedFrame, Contents, FrameEntry, HEAD_BYTES, OpenFrame,
    RawFrame, object_name,
};
use super::record::{Doomed, Record};
use super::writer::{Group, Writer, WriterOptions};
use super::{Progress, Vault};

/// The most bytes that a chunk takes beside its content, with a frame and a pack of its own.
const CHUNK_OVERHEAD_BYTES: u64 = 200;
/// Padding adds one part in so many at the most: see `padded_bytes`.
const PADDING_SHARE: u64 = 8;
/// The largest share of a vault that is kept aside. It is little beside the vault's content. It is more than the state
/// of a vault takes: folders and index are a hundredth of it.
const ROOM_SHARE: u64 = 64;
/// Bytes of frames that a plan reads and moves in memory to measure a move: some thirty frames from all over. The live
/// part of a frame may be denser or less dense than the rest: by a third in the laboratory's cell
/// `collect every second folder`.
const TRIED_BYTES: u64 = 8 << 20;

/// The expected work of a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectPlan {
    /// Packs that are listed, and their bytes.
    pub packs: u64,
    /// Bytes of all of them.
    pub packs_bytes: u64,
    /// Packs without a live chunk.
    pub dead_packs: u64,
    /// Their bytes.
    pub dead_bytes: u64,
    /// Packs whose live chunks move.
    pub moved_packs: u64,
    /// Bytes that are read of them: their heads, and the frames with a live chunk.
    pub read_bytes: u64,
    /// Bytes that the live chunks in them take there, each by its share of the frame it lies in.
    pub live_stored_bytes: u64,
    /// Bytes of live chunks in them, uncompressed.
    pub live_raw_bytes: u64,
    /// Bytes that writing them is expected to take.
    pub rewritten_bytes: u64,
    /// Bytes that writing them takes at the most: if nothing is compressed, and each chunk is a frame and a pack.
    pub rewritten_bytes_most: u64,
    /// Bytes of packs doomed before, whose grace is over.
    pub deleted_bytes: u64,
}

/// The work that a collection did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// The plan of it.
    pub plan: CollectPlan,
    /// Bytes that were read of packs.
    pub read_bytes: u64,
    /// Bytes of packs that were written.
    pub written_bytes: u64,
    /// Packs that were deleted.
    pub deleted_packs: u64,
    /// Packs without a use that wait, for readers that began before.
    pub waiting_packs: u64,
    /// The second from which on a collection deletes all of them.
    pub waiting_until: i64,
}

/// The fate of a pack.
struct Fate {
    pack: PackPlace,
    contents: Contents,
    /// The number of its first frame in the index.
    first_frame: u32,
    /// Live bytes of each of its frames, uncompressed.
    live_bytes: Vec<u64>,
    moves: bool,
}

impl Fate {
    /// Returns the bytes that the live part of a frame takes, if it shrinks as the whole does.
    fn share_bytes(&self, frame: usize) -> f64 {
        let entry = &self.contents.frames[frame];
        let raw_bytes: u64 = (entry.chunks.iter())
            .map(|chunk| u64::from(chunk.length_bytes))
            .sum();
        f64::from(entry.sealed_bytes) * self.live_bytes[frame] as f64 / raw_bytes as f64
    }
}

impl Vault {
    /// Forgets snapshots by their numbers, all at once. Chunks that only they needed stay until they are collected.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] for a number that does not live or while another writes; those of the storage.
    pub fn forget(&mut self, epochs: &[u64]) -> Result<u64> {
        self.far.use_kept_room();
        let session = self.begin()?;
        for epoch in epochs {
            if !self.state.snapshots.contains(epoch) {
                let reason = format!("there is no snapshot {epoch}");
                return Err(crate::Error::invalid("snapshot", reason));
            }
        }
        let mut state = self.state.clone();
        state.snapshots.retain(|epoch| !epochs.contains(epoch));
        self.commit(session, Record::Change(state))
    }

    /// Returns which chunks of a merged index are live, and in which order the marking met them.
    fn mark<'i>(&self, index: &'i Index, progress: &mut dyn FnMut(&Progress)) -> Result<Live<'i>> {
        let mut live = Live {
            marks: Marks::new(index),
            ranks: vec![u32::MAX; index.frame_count()],
        };
        let mut next = 0u32;
        let mut mark = |id: Id| {
            live.marks.mark(&id);
            if let Some(place) = index.find(&id) {
                let rank = &mut live.ranks[place.frame as usize];
                if *rank == u32::MAX {
                    (*rank, next) = (next, next + 1);
                }
            }
        };
        let phase = "marking what is live";
        self.follow_all(index, phase, progress, &mut mark, &mut |_, ended| ended)?;
        self.mark_bases(&mut live.marks)?;
        Ok(live)
    }

    /// Plans a collection that moves the live chunks of packs whose live share is below `share_min`.
    ///
    /// # Errors
    /// Damage in a folder of a live snapshot, since no chunk can then be taken for dead; errors of the storage.
    pub fn plan_collection(
        &self,
        options: &WriterOptions,
        share_min: f64,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<CollectPlan> {
        let index = self.index(options.index_bytes_max)?;
        let live = self.mark(&index, progress)?;
        let mut plan = CollectPlan::default();
        let mut moving = Vec::new();
        self.fates(&live, share_min, &mut plan, &mut |fate| {
            moving.extend(fate.moves.then_some(fate));
            Ok(())
        })?;
        if plan.moved_packs > 0 {
            let written = self.try_moving(options, &moving, &plan, &live)?;
            plan.rewritten_bytes = written.min(plan.rewritten_bytes_most);
        }
        Ok(plan)
    }

    /// Moves some frames in memory, and returns how many bytes a move of all is expected to write. A delta is taken to
    /// stay as it is.
    fn try_moving(
        &self,
        options: &WriterOptions,
        moving: &[Fate],
        plan: &CollectPlan,
        live: &Live<'_>,
    ) -> Result<u64> {
        let mut trial = Trial::new(self, options);
        let step = plan.read_bytes.div_ceil(TRIED_BYTES).max(1) as usize;
        let mut share_bytes = 0.0;
        let mut heads = vec![None; moving.len()];
        let frames = in_order(moving, live).into_iter();
        let frames = frames.filter(|(at, frame)| !moving[*at].contents.frames[*frame].is_delta());
        for (at, frame) in frames.step_by(step) {
            let fate = &moving[at];
            share_bytes += fate.share_bytes(frame);
            let entry = &fate.contents.frames[frame];
            let read = self.read_frame_of(fate, entry, &mut heads[at])?;
            let open = read.decode(&[], &mut trial.decompressor)?;
            let chunks = entry.chunks.iter().enumerate();
            for (ordinal, chunk) in chunks.filter(|(_, chunk)| live.has(&chunk.id)) {
                let group = Group::of(fate.pack.kind, chunk.kind);
                trial.put(group, *chunk, live_chunk(&open, entry, ordinal)?)?;
            }
        }
        let written = trial.end()? as f64;
        let stored_bytes = plan.live_stored_bytes as f64;
        Ok(match share_bytes > 0.0 {
            true => (stored_bytes * written / share_bytes) as u64,
            false => plan.live_stored_bytes,
        })
    }

    /// Reads a frame of a pack; the first one brings the pack's head along.
    fn read_frame_of(
        &self,
        fate: &Fate,
        frame: &FrameEntry,
        head: &mut Option<[u8; HEAD_BYTES]>,
    ) -> Result<CompressedFrame> {
        let reader = FrameReader {
            far: &*self.far,
            keys: &self.keys,
            damages: &self.damages,
        };
        let offset = u64::from(frame.offset);
        let place = offset..offset + u64::from(frame.sealed_bytes);
        reader.frame(&fate.pack, place, head)
    }

    /// Hands out the packs that are dead or move.
    fn fates(
        &self,
        live: &Live<'_>,
        share_min: f64,
        plan: &mut CollectPlan,
        take: &mut dyn FnMut(Fate) -> Result<()>,
    ) -> Result<()> {
        let mut number = 0u32;
        self.each_pack(|pack, contents| {
            plan.packs += 1;
            plan.packs_bytes += pack.size_bytes;
            // A chunk that lies in two packs is live in the pack that the index names.
            let live_of = |number: u32, frame: &FrameEntry| -> (u64, u64) {
                let chunks = frame.chunks.iter();
                let chunks = chunks.filter(|chunk| live.marks.has_in(&chunk.id, number));
                chunks.fold((0, 0), |(bytes, count), chunk| {
                    (bytes + u64::from(chunk.length_bytes), count + 1)
                })
            };
            let (mut raw, mut live_raw, mut read, mut count) = (0u64, 0u64, 0u64, 0);
            let first_frame = number;
            let mut live_bytes = Vec::with_capacity(contents.frames.len());
            for frame in &contents.frames {
                let lengths = frame.chunks.iter().map(|it| u64::from(it.length_bytes));
                let (frame_live, frame_count) = live_of(number, frame);
                count += frame_count;
                number += 1;
                raw += lengths.sum::<u64>();
                live_raw += frame_live;
                live_bytes.push(frame_live);
                if frame_live > 0 {
                    read += u64::from(frame.sealed_bytes);
                }
            }
            let moves = live_raw > 0 && (live_raw as f64) < share_min * raw as f64;
            let fate = Fate {
                pack,
                contents,
                first_frame,
                live_bytes,
                moves,
            };
            if live_raw == 0 {
                plan.dead_packs += 1;
                plan.dead_bytes += pack.size_bytes;
            } else if moves {
                plan.moved_packs += 1;
                plan.read_bytes += HEAD_BYTES as u64 + read;
                plan.live_raw_bytes += live_raw;
                let shares = (0..fate.live_bytes.len()).map(|frame| fate.share_bytes(frame));
                plan.live_stored_bytes += shares.sum::<f64>() as u64;
                plan.rewritten_bytes = plan.live_stored_bytes;
                let objects = fate.pack.kind.object_count();
                let most = live_raw + count * CHUNK_OVERHEAD_BYTES;
                plan.rewritten_bytes_most += objects * (most + most / PADDING_SHARE);
            } else {
                return Ok(());
            }
            take(fate)
        })
    }

    /// Collects: see the head of this file. `now` and `grace` are in seconds; `share_min` as in
    /// [`Vault::plan_collection`].
    ///
    /// # Errors
    /// As [`Vault::plan_collection`], and [`crate::Error::Invalid`] while another writes.
    pub fn collect(
        &mut self,
        pool: &Pool,
        options: WriterOptions,
        (now, grace): (i64, i64),
        share_min: f64,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Collected> {
        self.far.use_kept_room();
        let _alone = self.exclude()?;
        let mut writer = Writer::begin(self, pool, options)?;
        let unlisted = writer.unlisted()?;
        // Moving takes room before it gives any back.
        let share_min = match writer.vault().far.is_short() {
            true => 0.0,
            false => share_min,
        };
        let index = writer.take_index();
        let live = writer.vault().mark(&index, progress)?;
        let mut collected = Collected::default();
        let mut fates = Vec::new();
        writer
            .vault()
            .fates(&live, share_min, &mut collected.plan, &mut |fate| {
                fates.push(fate);
                Ok(())
            })?;
        let mut leaving: BTreeSet<Id> = fates.iter().map(|fate| fate.pack.name).collect();
        let total = collected.plan.read_bytes;
        writer.leave(&leaving, options.index_bytes_max, &|pack, id| {
            index.pack_of(id) == Some(pack.name) && live.has(id)
        })?;
        // Chunks that an interrupted collection has moved are not moved again.
        let is_needed = |known: &Index, contents: &Contents| {
            let mut chunks = contents.frames.iter().flat_map(|frame| &frame.chunks);
            chunks.any(|it| live.has(&it.id) && known.find(&it.id).is_none())
        };
        let will_stay = |id: &Id| index.has_chunk(id) && live.has(id);
        leaving.extend(writer.take_over(unlisted, is_needed, &will_stay)?);
        writer.move_live(&fates, &live, &mut |read_bytes| {
            collected.read_bytes += read_bytes;
            let (phase, done) = ("moving what is live", collected.read_bytes);
            progress(&Progress { phase, done, total });
        })?;
        collected.written_bytes = writer.commit_collection(leaving, now)?;
        let most = collected.plan.rewritten_bytes_most;
        assert!(collected.written_bytes <= most, "{collected:?}");
        self.delete_doomed(now, grace, &mut collected)?;
        self.delete_stray_copies()?;
        self.far.keep_room(self.room_bytes(&index));
        Ok(collected)
    }

    /// Returns how many bytes are kept aside: a 64th of all packs or twice the index, the larger of both, and at most
    /// two packs.
    pub(super) fn room_bytes(&self, index: &Index) -> u64 {
        let packs_bytes: u64 = index.packs().iter().map(|pack| pack.size_bytes).sum();
        let index_bytes = 2 * CHUNK_ENTRY_BYTES as u64 * index.chunk_count() as u64;
        let most = 2 * self.options.pack_bytes as u64;
        (packs_bytes / ROOM_SHARE).max(index_bytes).min(most)
    }

    /// Deletes the packs that were doomed before the grace time, and commits that.
    fn delete_doomed(&mut self, now: i64, grace: i64, collected: &mut Collected) -> Result<()> {
        let is_over = |doomed: &Doomed| doomed.until(now, grace) <= now;
        let over: Vec<Id> = (self.state.doomed.iter())
            .filter(|doomed| is_over(doomed))
            .map(|doomed| doomed.pack)
            .collect();
        for pack in &over {
            let object = object_name(*pack);
            collected.plan.deleted_bytes += self.far.size_bytes(&object)?.unwrap_or(0);
            let (folder, name) = object.rsplit_once('/').expect("packs/xx/name");
            self.far.delete(folder, &[name.to_string()])?;
        }
        collected.deleted_packs = over.len() as u64;
        let waiting = self.state.doomed.iter().filter(|it| !is_over(it));
        collected.waiting_packs = waiting.clone().count() as u64;
        collected.waiting_until = waiting.map(|it| it.until(now, grace)).max().unwrap_or(now);
        if over.is_empty() {
            return Ok(());
        }
        let session = self.begin()?;
        let mut state = self.state.clone();
        state.doomed.retain(|doomed| !over.contains(&doomed.pack));
        self.commit(session, Record::Change(state)).map(drop)
    }
}

/// The live chunks, in the order in which they were met.
struct Live<'i> {
    marks: Marks<'i>,
    /// Of each frame, when the first live chunk of it was met.
    ranks: Vec<u32>,
}

impl Live<'_> {
    fn has(&self, id: &Id) -> bool {
        self.marks.has(id)
    }
}

/// A bit for each chunk of an index that is merged.
pub(super) struct Marks<'i> {
    index: &'i Index,
    bits: Vec<u64>,
}

impl<'i> Marks<'i> {
    /// Says whether a chunk is marked and lies in this frame of the index.
    pub(super) fn has_in(&self, id: &Id, frame: u32) -> bool {
        let is_there = |place: Place| place.frame == frame;
        self.index.find(id).is_some_and(is_there) && self.has(id)
    }

    pub(super) fn new(index: &'i Index) -> Marks<'i> {
        Marks {
            index,
            bits: vec![0; index.chunk_count().div_ceil(64)],
        }
    }

    /// Marks a chunk; an unknown one needs no mark.
    pub(super) fn mark(&mut self, id: &Id) {
        if let Some(number) = self.index.number_of(id) {
            self.bits[number / 64] |= 1 << (number % 64);
        }
    }

    pub(super) fn has(&self, id: &Id) -> bool {
        let number = self.index.number_of(id);
        number.is_some_and(|number| self.bits[number / 64] >> (number % 64) & 1 == 1)
    }
}

impl Writer<'_> {
    /// Forgets where chunks of these packs lie, so that they are new when they are put again. Forgets the lists and
    /// deltas in other packs that are not live: the chunks that they need may leave.
    fn leave(
        &mut self,
        leaving: &BTreeSet<Id>,
        index_bytes_max: u64,
        is_live: &dyn Fn(&PackPlace, &Id) -> bool,
    ) -> Result<()> {
        let mut index = Index::new(index_bytes_max);
        self.vault().each_pack(|pack, mut contents| {
            if leaving.contains(&pack.name) {
                return Ok(());
            }
            contents.hide_dependents(|id| is_live(&pack, id));
            index.add_contents(pack, &contents)
        })?;
        self.replace_index(index);
        Ok(())
    }

    /// Commits an index without the packs that leave, and dooms them; returns the bytes of packs written.
    pub(super) fn commit_collection(mut self, leaving: BTreeSet<Id>, now: i64) -> Result<u64> {
        self.flush()?;
        let merged = self.merged(&leaving)?;
        let (vault, session, written) = self.into_parts()?;
        vault.put_index(&session, &merged)?;
        let mut state = vault.state.clone();
        state.indexes = vec![session.epoch];
        let leaving = leaving.into_iter();
        for doomed in &mut state.doomed {
            doomed.since = doomed.since.min(now);
        }
        (state.doomed).extend(leaving.map(|pack| Doomed { pack, since: now }));
        vault.commit(session, Record::Change(state))?;
        Ok(written)
    }

    /// Puts the live chunks of the packs that move into new frames, frame by frame in the order of the marking. Returns
    /// how many bytes it read.
    fn move_live(
        &mut self,
        fates: &[Fate],
        live: &Live<'_>,
        read: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let mut heads = vec![None; fates.len()];
        let mut frames = in_order(fates, live);
        // Bases come before their deltas. Within each group the order stays.
        frames.sort_by_key(|(at, frame)| fates[*at].contents.frames[*frame].is_delta());
        for (at, frame) in frames {
            let (fate, head) = (&fates[at], &mut heads[at]);
            let frame = &fate.contents.frames[frame];
            let is_live = |id: &Id| live.has(id) && self.index.find(id).is_none();
            if !frame.chunks.iter().any(|chunk| is_live(&chunk.id)) {
                continue;
            }
            let head_bytes = head.map_or(HEAD_BYTES as u64, |_: [u8; HEAD_BYTES]| 0);
            let compressed = self.vault().read_frame_of(fate, frame, head)?;
            let open = self.open_moved(compressed)?;
            read(head_bytes + u64::from(frame.sealed_bytes));
            for (ordinal, chunk) in frame.chunks.iter().enumerate() {
                if live.has(&chunk.id) && self.index.find(&chunk.id).is_none() {
                    let group = Group::of(fate.pack.kind, chunk.kind);
                    let bytes = live_chunk(&open, frame, ordinal)?;
                    self.put_moved(group, chunk, bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the frames that move and have a live chunk, each by its pack and its place there, in the order of the
/// marking.
fn in_order(fates: &[Fate], live: &Live<'_>) -> Vec<(usize, usize)> {
    let fates = fates.iter().enumerate().filter(|(_, fate)| fate.moves);
    let frames = fates.flat_map(|(at, fate)| {
        let numbers = 0..fate.contents.frames.len();
        let numbers = numbers.filter(|frame| fate.live_bytes[*frame] > 0);
        numbers.map(move |frame| (live.ranks[fate.first_frame as usize + frame], at, frame))
    });
    let mut frames: Vec<(u32, usize, usize)> = frames.collect();
    frames.sort_unstable();
    frames
        .into_iter()
        .map(|(_, at, frame)| (at, frame))
        .collect()
}

/// Returns a chunk of an open frame, which is as long as the index says.
fn live_chunk<'f>(open: &'f OpenFrame, frame: &FrameEntry, ordinal: usize) -> Result<&'f [u8]> {
    let bytes = open.chunk(ordinal);
    let bytes = bytes.filter(|it| it.len() == frame.chunks[ordinal].length_bytes as usize);
    let offset = u64::from(frame.offset);
    bytes.ok_or_else(|| super::fail("pack", offset, "the chunk as listed", "another"))
}

/// Frames that are made as a collection makes them, and thrown away.
struct Trial {
    frame_bytes: usize,
    picker: Picker,
    compressor: Compressor,
    decompressor: Decompressor,
    /// One of each group.
    fillings: [RawFrame; 3],
    sealed_bytes: u64,
    contents: Contents,
}

impl Trial {
    fn new(vault: &Vault, options: &WriterOptions) -> Trial {
        Trial {
            frame_bytes: vault.options.frame_bytes,
            picker: Picker::of(vault, options.compression),
            compressor: Compressor::new(),
            decompressor: Decompressor::new(),
            fillings: Default::default(),
            sealed_bytes: 0,
            contents: Contents { frames: Vec::new() },
        }
    }

    fn put(&mut self, group: Group, chunk: ChunkEntry, bytes: &[u8]) -> Result<()> {
        let filling = &self.fillings[group as usize];
        if filling.is_full_for(bytes.len(), self.frame_bytes) {
            self.end_frame(group)?;
        }
        let filling = &mut self.fillings[group as usize];
        filling.bytes.extend_from_slice(bytes);
        filling.chunks.push(chunk);
        Ok(())
    }

    fn end_frame(&mut self, group: Group) -> Result<()> {
        let frame = std::mem::take(&mut self.fillings[group as usize]);
        if frame.chunks.is_empty() {
            return Ok(());
        }
        let pick = self.picker.pick(&frame.bytes)?;
        let raw_bytes = frame.bytes.len();
        let (encoded, outcomes) = frame.encode(pick.methods(), &mut self.compressor)?;
        let stored_bytes = encoded.bytes.len();
        self.picker.learn(&pick, raw_bytes, &outcomes);
        let entry = FrameEntry {
            offset: 0,
            sealed_bytes: stored_bytes as u32,
            chunks: encoded.chunks,
        };
        for _ in 0..group.pack_kind().object_count() {
            self.sealed_bytes += (stored_bytes + TAG_BYTES) as u64;
            self.contents.frames.push(entry.clone());
        }
        Ok(())
    }

    /// Returns the bytes of all frames and of their lists of chunks.
    fn end(mut self) -> Result<u64> {
        for group in Group::ALL {
            self.end_frame(group)?;
        }
        let mut listed = Vec::new();
        self.contents.write(&mut listed);
        Ok(self.sealed_bytes + listed.len() as u64)
    }
}
