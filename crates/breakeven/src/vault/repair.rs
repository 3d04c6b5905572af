//! Repairing: damaged packs leave, their whole chunks move, and losses are named.
//!
//! A frame that still opens under its seal is saved. A list is dropped with the first chunk that it lacks. The next add
//! of that content then finds nothing known and stores it again, which makes older snapshots whole as well. Contents to
//! which no folder leads any more are put into a snapshot (`lost_found.rs`). An index that cannot be read is made again
//! from the footers of its packs. A snapshot whose record cannot be read is lost. Packs that leave are doomed like
//! those of a collection, and deleted by one after its grace.
//!
//! Promises: nothing that can be read is lost by repairing; a far end that does not answer is an error, not damage.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::pool::Pool;

use super::cipher::Id;
use super::contents::{Chunks, HAS_GAPS};
use super::copies::{COPIES, copy_name};
use super::far_end::FarEnd;
use super::folder::Node;
use super::folder_end::is_errno;
use super::index::{Index, PackPlace, read_packs, write_pack};
use super::lost_found::LostFound;
use super::pack::{
    ChunkEntry, ChunkKind, Contents, FrameEntry, OpenFrame, PACK_BYTES_LIMIT, object_name,
    open_frame, read_head,
};
use super::record::Record;
use super::verify::{DEPTH_MAX, PackVerifier};
use super::writer::{Group, Writer, WriterOptions};
use super::{
    CONFIG_BYTES_MAX, Damage, INDEX, INDEX_BYTES_MAX, Progress, Vault, VerifyOptions, object,
};

/// The outcome of a repair.
#[derive(Clone, Debug, Default)]
pub struct Repaired {
    /// The damage before, by the names of objects.
    pub damages: Vec<Damage>,
    /// Objects that were put again from their copies.
    pub mended_objects: u64,
    /// Objects of an earlier vault that were given a copy.
    pub copied_objects: u64,
    /// The damage left, by the names of objects.
    pub left: Vec<Damage>,
    /// Packs that left.
    pub dropped_packs: u64,
    /// Chunks of them that were saved.
    pub saved_chunks: u64,
    /// Chunks that are lost.
    pub lost_chunks: u64,
    /// Snapshots whose records were lost.
    pub lost_snapshots: Vec<u64>,
    /// Files and folders that cannot be restored any more, by the numbers of their snapshots.
    pub lost: Vec<(u64, PathBuf)>,
    /// Contents to which no folder leads any more, in a snapshot of its own.
    pub found: Option<LostFound>,
}

impl Repaired {
    /// Says whether all contents can still be restored, and nothing is damaged any more.
    pub fn is_whole(&self) -> bool {
        self.lost.is_empty() && self.lost_snapshots.is_empty() && self.left.is_empty()
    }
}

impl Vault {
    /// Repairs: see the head of this file. `now` is in seconds.
    ///
    /// # Errors
    /// [`Error::Invalid`] while another writes; those of the far end.
    pub fn repair(
        &mut self,
        pool: &Pool,
        options: WriterOptions,
        now: i64,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Repaired> {
        self.far.use_kept_room();
        let _alone = self.exclude()?;
        let mut repaired = self.repair_damages(pool, options, now, progress)?;
        repaired.copied_objects = self.copy_what_lies_once(pool, options, now)?;
        Ok(repaired)
    }

    /// Gives objects of an earlier vault that lie once their copy; returns how many objects that were.
    fn copy_what_lies_once(
        &mut self,
        pool: &Pool,
        options: WriterOptions,
        now: i64,
    ) -> Result<u64> {
        if self.lying_once()?.is_empty() {
            return Ok(0);
        }
        let writer = Writer::begin(self, pool, options)?;
        let mut copied = 0;
        for object in writer.vault().lying_once()? {
            copied += u64::from(writer.vault().copy_object(&object)?);
        }
        // The index says which packs have one.
        writer.commit_collection(BTreeSet::new(), now)?;
        Ok(copied)
    }

    fn repair_damages(
        &mut self,
        pool: &Pool,
        options: WriterOptions,
        now: i64,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Repaired> {
        let reading = VerifyOptions {
            index_bytes_max: options.index_bytes_max,
            ..VerifyOptions::default()
        };
        let mut damages = self.verify(pool, reading, progress)?.damages;
        if damages.is_empty() {
            // The next add would believe that a broken list without a snapshot is whole.
            let broken = self.broken_lists(&self.index(options.index_bytes_max)?)?;
            if broken.is_empty() {
                return Ok(Repaired::default());
            }
            damages.push(Damage {
                name: "index".to_string(),
                reason: format!("{} lists of contents that are not whole", broken.len()),
            });
        }
        let mut repaired = Repaired {
            damages,
            ..Repaired::default()
        };
        let session = self.begin()?;
        repaired.mended_objects = self.mend(&repaired.damages)?;
        let (records, indexes) = self.leave_unreadable(&mut repaired)?;
        let mut writer = Writer::with_session(self, session, pool, options)?;
        let unlisted = writer.unlisted()?;
        let leaving = writer.take_over(unlisted, |_, _| true, &|_| false)?;
        let leaving = leaving.into_iter().collect();
        let damaged = writer.damaged_packs(progress)?;
        writer.repair(
            damaged,
            leaving,
            options.index_bytes_max,
            now,
            &mut repaired,
        )?;
        repaired.found = self.find_lost(pool, options, &records, now)?;
        let copies = records.iter().map(|epoch| object("snapshots", *epoch));
        let copies = copies.map(|it| copy_name(&it)[COPIES.len() + 1..].to_string());
        self.far.delete(COPIES, &copies.collect::<Vec<_>>())?;
        for (folder, epochs) in [("snapshots", &records), ("index", &indexes)] {
            let names = epochs.iter().map(|it| format!("{it:016x}"));
            self.far.delete(folder, &names.collect::<Vec<_>>())?;
        }
        // Only with a newer state may these records be missing for a moment.
        let mut records = repaired.damages.clone();
        records.retain(|it| it.name.starts_with("snapshots/"));
        repaired.mended_objects += self.mend(&records)?;
        for key in self.far.list("keys")? {
            let name = format!("keys/{}", key.name);
            let record = self.far.read(&name, CONFIG_BYTES_MAX);
            if let Err(error) = record.and_then(|it| self.keys.master.check_record(&it)) {
                let reason = error.to_string();
                repaired.left.push(Damage { name, reason });
            }
        }
        let index = self.index(options.index_bytes_max)?;
        repaired.lost = self.list_lost(&index, &|id| index.has_chunk(id))?;
        Ok(repaired)
    }

    /// Returns the records and the indexes that cannot be read, and takes the latter out of the state. Records stay in
    /// it until the contents that only they led to are found.
    fn leave_unreadable(&mut self, repaired: &mut Repaired) -> Result<(Vec<u64>, Vec<u64>)> {
        let (mut records, mut indexes) = (Vec::new(), Vec::new());
        let mut epochs: BTreeSet<u64> = self.epochs("snapshots")?.into_iter().collect();
        epochs.extend(&self.state.snapshots);
        for epoch in epochs {
            if is_damaged(self.read_record(epoch))? {
                records.push(epoch);
            }
        }
        for epoch in self.state.indexes.clone() {
            let name = object("index", epoch);
            let read = self.far.read(&name, INDEX_BYTES_MAX);
            let read = read.and_then(|sealed| {
                read_packs(&self.keys.open(INDEX, &name, &sealed)?, |_, _| Ok(()))
            });
            if is_damaged(read)? {
                indexes.push(epoch);
            }
        }
        let (snapshots, newest) = (&self.state.snapshots, self.epoch);
        // A record newer than the state may have been a snapshot, and counts as one.
        let is_lost = |epoch: &&u64| snapshots.contains(epoch) || **epoch > newest;
        repaired.lost_snapshots = records.iter().filter(is_lost).copied().collect();
        self.state.indexes.retain(|epoch| !indexes.contains(epoch));
        Ok((records, indexes))
    }

    /// Returns the lists of contents that lack a chunk and do not say so.
    fn broken_lists(&self, index: &Index) -> Result<BTreeSet<Id>> {
        let mut chunks = Chunks::new(&self.far, &self.keys);
        let mut broken = BTreeSet::new();
        for id in index.lists() {
            if unless_damaged(chunks.is_with_gaps(index, id))? == Some(true) {
                continue;
            }
            if is_damaged(chunks.each_chunk(index, id, &mut |_| ()))? {
                broken.insert(id);
            }
        }
        Ok(broken)
    }

    /// Names the entries of all snapshots that lost something. `is_there` says which chunks of bytes can be read.
    pub(super) fn list_lost(
        &self,
        index: &Index,
        is_there: &dyn Fn(&Id) -> bool,
    ) -> Result<Vec<(u64, PathBuf)>> {
        let mut lost = Vec::new();
        for epoch in &self.state.snapshots {
            if let Some(snapshot) = unless_damaged(self.snapshot(*epoch))? {
                let below = self.list_lost_below(index, is_there, snapshot.folder);
                lost.extend(below.into_iter().map(|path| (*epoch, path)));
            }
        }
        Ok(lost)
    }

    /// The same of one snapshot, below its root.
    fn list_lost_below(
        &self,
        index: &Index,
        is_there: &dyn Fn(&Id) -> bool,
        root: Id,
    ) -> Vec<PathBuf> {
        let mut lost = Vec::new();
        let mut chunks = Chunks::new(&self.far, &self.keys);
        let mut left = vec![(PathBuf::from("/"), root, 0)];
        while let Some((path, folder, depth)) = left.pop() {
            if folder == Id::NONE {
                continue;
            }
            let entries = match chunks.folder(index, folder) {
                Ok(entries) if depth <= DEPTH_MAX => entries,
                _ => {
                    lost.push(path);
                    continue;
                }
            };
            for entry in entries {
                let below = path.join(OsStr::from_bytes(&entry.name));
                match entry.node {
                    Node::File { content, .. } if content != Id::NONE => {
                        let each = chunks.each_chunk_there(index, content, is_there, &mut |_| ());
                        let is_one = index.has_chunk(&content);
                        if each.is_err() || is_one && !is_there(&content) {
                            lost.push(below);
                        }
                    }
                    Node::Folder { content } => left.push((below, content, depth + 1)),
                    _ => {}
                }
            }
        }
        lost.sort();
        lost
    }

    /// Moves packs at random, as a repair moves damaged ones, for the proof.
    #[cfg(test)]
    pub(super) fn move_packs(
        &mut self,
        pool: &Pool,
        options: WriterOptions,
        now: i64,
        mut leaves: impl FnMut() -> bool,
    ) -> Result<()> {
        let session = self.begin_alone()?;
        let writer = Writer::healing(self, session, pool, options)?;
        let mut packs = writer.packs()?;
        packs.retain(|_| leaves());
        let cap = options.index_bytes_max;
        let unreadable = BTreeSet::new();
        writer.repair(packs, unreadable, cap, now, &mut Repaired::default())
    }
}

/// Tells damage from a far end that does not answer, and from a call that is not allowed.
pub fn is_damage(error: &Error) -> bool {
    let is_wrong = matches!(
        error,
        Error::Corrupt { .. } | Error::Limit { .. } | Error::Unsupported { .. }
    );
    is_wrong || is_errno(error, libc::ENOENT) || is_errno(error, libc::EIO)
}

/// Says whether something was damaged.
///
/// # Errors
/// Those of a far end that does not answer.
pub(super) fn is_damaged<T>(result: Result<T>) -> Result<bool> {
    unless_damaged(result).map(|value| value.is_none())
}

/// Returns the value that was read, and nothing if it was damaged.
///
/// # Errors
/// Those of a far end that does not answer.
pub(super) fn unless_damaged<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_damage(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

type Packs = Vec<(PackPlace, Contents)>;

impl Writer<'_> {
    /// Returns all packs that count, also those that were taken over.
    fn packs(&self) -> Result<Packs> {
        let mut packs = Vec::new();
        let mut take = |pack, contents| {
            packs.push((pack, contents));
            Ok(())
        };
        self.vault().each_pack(&mut take)?;
        read_packs(&self.listed, take)?;
        Ok(packs)
    }

    fn damaged_packs(&self, progress: &mut dyn FnMut(&Progress)) -> Result<Packs> {
        let packs = self.packs()?;
        let total = packs.iter().map(|(pack, _)| pack.size_bytes).sum();
        let (mut damaged, mut done) = (Vec::new(), 0);
        let vault = self.vault();
        let mut verifier = PackVerifier::new(&vault.far, &vault.keys);
        for (pack, contents) in packs {
            let read = verifier.verify(&self.index, &pack, &contents);
            done += pack.size_bytes;
            if is_damaged(read)? {
                damaged.push((pack, contents));
            }
            let phase = "looking for damaged packs";
            progress(&Progress { phase, done, total });
        }
        Ok(damaged)
    }

    /// Moves whole chunks out of damaged packs, marks lists that lack a chunk, and commits.
    fn repair(
        mut self,
        damaged: Packs,
        mut leaving: BTreeSet<Id>,
        index_bytes_max: u64,
        now: i64,
        repaired: &mut Repaired,
    ) -> Result<()> {
        leaving.extend(damaged.iter().map(|(pack, _)| pack.name));
        let none = BTreeSet::new();
        let mut lost = self.move_whole(&damaged, &leaving, &none, index_bytes_max, repaired)?;
        lost.retain(|id| self.index.find(id).is_none());
        let broken = self.vault().broken_lists(&self.index)?;
        if !broken.is_empty() {
            let mut packs = self.packs()?;
            packs.retain(|(_, contents)| {
                let mut chunks = contents.frames.iter().flat_map(|frame| &frame.chunks);
                chunks.any(|chunk| chunk.kind == ChunkKind::List && broken.contains(&chunk.id))
            });
            leaving.extend(packs.iter().map(|(pack, _)| pack.name));
            let mut moved = Repaired::default();
            self.move_whole(&packs, &leaving, &broken, index_bytes_max, &mut moved)?;
        }
        repaired.dropped_packs = damaged.len() as u64;
        repaired.lost_chunks = lost.len() as u64;
        self.commit_collection(leaving, now).map(drop)
    }

    /// Puts chunks of some leaving packs again, except damaged ones. Lists that lack a chunk are marked. Returns the
    /// damaged ones.
    fn move_whole(
        &mut self,
        packs: &Packs,
        leaving: &BTreeSet<Id>,
        broken: &BTreeSet<Id>,
        index_bytes_max: u64,
        repaired: &mut Repaired,
    ) -> Result<BTreeSet<Id>> {
        // Before the next one grows, which may take as much.
        drop(self.take_index());
        let mut index = Index::new(index_bytes_max);
        let listed = std::mem::take(&mut self.listed);
        self.vault()
            .each_pack(|pack, contents| match leaving.contains(&pack.name) {
                true => Ok(()),
                false => index.add_contents(pack, &contents),
            })?;
        read_packs(&listed, |pack, contents| {
            if !leaving.contains(&pack.name) {
                write_pack(&mut self.listed, &pack, &contents);
                index.add_contents(pack, &contents)?;
            }
            Ok(())
        })?;
        self.replace_index(index);
        let mut lost = BTreeSet::new();
        // Bases come before their deltas.
        for moves_deltas in [false, true] {
            for (pack, contents) in packs {
                let frames = contents.frames.iter();
                let mut frames = frames.filter(|it| it.is_delta() == moves_deltas).peekable();
                if frames.peek().is_none() {
                    continue;
                }
                let bytes = readable(&*self.vault().far, pack)?;
                for frame in frames {
                    let open = self.open_whole(&bytes, frame)?;
                    self.put_whole(
                        pack,
                        frame,
                        open.as_ref(),
                        broken,
                        &mut |chunk, is_saved| match is_saved {
                            true => repaired.saved_chunks += 1,
                            false => drop(lost.insert(chunk)),
                        },
                    )?;
                }
            }
        }
        self.flush()?;
        Ok(lost)
    }

    /// Opens a frame, from the first of these packs in which it is whole.
    fn open_whole(&mut self, packs: &[Vec<u8>], frame: &FrameEntry) -> Result<Option<OpenFrame>> {
        if frame.is_hidden() {
            return Ok(None);
        }
        for bytes in packs {
            let at = frame.offset as usize;
            let sealed = bytes
                .get(at..)
                .and_then(|it| it.get(..frame.sealed_bytes as usize));
            let (Some(sealed), Ok((head, _))) = (sealed, read_head(bytes)) else {
                continue;
            };
            let read = open_frame(&self.vault().keys, &head, at as u64, sealed.to_vec());
            let open = match read {
                Ok(read) => unless_damaged(self.open_moved(read))?,
                Err(_) => None,
            };
            if open.is_some() {
                return Ok(open);
            }
        }
        Ok(None)
    }

    /// Puts the chunks of a frame again, and marks lists that lack a chunk. Says of each other chunk whether it was saved.
    fn put_whole(
        &mut self,
        pack: &PackPlace,
        frame: &FrameEntry,
        open: Option<&OpenFrame>,
        broken: &BTreeSet<Id>,
        saved: &mut dyn FnMut(Id, bool),
    ) -> Result<()> {
        for (ordinal, chunk) in frame.chunks.iter().enumerate() {
            let is_list = chunk.kind == ChunkKind::List;
            if chunk.id == Id::NONE {
                continue;
            }
            let keys = &self.vault().keys;
            let bytes = open.and_then(|open| open.chunk(ordinal));
            let bytes = bytes.filter(|bytes| is_list || keys.id(bytes) == chunk.id);
            if is_list && broken.contains(&chunk.id) {
                if let Some([head, items @ ..]) = bytes {
                    let marked = [&[head | HAS_GAPS], items].concat();
                    let chunk = ChunkEntry {
                        id: chunk.id.with_gaps(),
                        ..*chunk
                    };
                    self.put_moved(Group::of(pack.kind, chunk.kind), &chunk, &marked)?;
                }
                continue;
            }
            if let Some(bytes) = bytes {
                self.put_moved(Group::of(pack.kind, chunk.kind), chunk, bytes)?;
            }
            saved(chunk.id, bytes.is_some());
        }
        Ok(())
    }
}

/// Returns the bytes of a damaged pack and of its copy, as far as there are any.
fn readable(far: &dyn FarEnd, pack: &PackPlace) -> Result<Vec<Vec<u8>>> {
    let mut readable = Vec::new();
    let object = object_name(pack.name);
    let copy = pack.has_copy.then(|| copy_name(&object));
    for object in std::iter::once(object.clone()).chain(copy) {
        match far.read(&object, 2 * PACK_BYTES_LIMIT as u64) {
            Ok(bytes) => readable.push(bytes),
            Err(error) => is_damaged::<()>(Err(error)).map(drop)?,
        }
    }
    Ok(readable)
}

impl Vault {
    /// Breaks the turn of a dead writer, and fences the epochs that it left open; returns how many. A living holder
    /// cannot commit with that turn. A process that adds can commit if nothing that it relies on was removed.
    ///
    /// # Errors
    /// Those of the far end.
    pub fn unlock(&mut self) -> Result<u64> {
        self.far.use_kept_room();
        self.far.break_turn()?;
        let records = self.epochs("snapshots")?;
        let open = self.epochs("locks")?;
        let open = open.iter().filter(|epoch| !records.contains(epoch)).count() as u64;
        let session = self.begin()?;
        let state = self.state.clone();
        self.commit(session, Record::Change(state))?;
        Ok(open)
    }
}
