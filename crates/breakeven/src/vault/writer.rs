//! Adding a snapshot: contents in, new chunks into frames, frames into packs, and the commit.
//!
//! Frames are compressed by the pool while the next are filled. Memory: the index, a frame for each place of the ring,
//! a pack of each kind, 24 frames of lists. Packs that an earlier writer left without a commit are taken over.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use crate::codec::Compressor;
use crate::error::{Error, Result};
use crate::pool::{Pool, Stage};
use crate::storage::is_zero;

use super::Vault;
use super::bytes::{fail, put_number};
use super::chunker::CHUNK_BYTES_LIMIT;
use super::cipher::Id;
use super::compression::{Compression, Outcome, Pick, Picker};
use super::contents::{Chunks, DEPTH_MAX, check_whole, head_of_list, put_item, put_zeros};
use super::copies::copy_name;
use super::delta::Deltas;
use super::far_end::{AddMark, Listed};
use super::folder::{Entry, Stamp, write_folder, write_stamps};
use super::hashing::{ContentHasher, FileHasher, Identity, IdentityOf};
use super::images;
use super::index::{FramePlace, Index, PackPlace, Place, read_packs, write_pack};
use super::pack::{
    self, ChunkEntry, ChunkKind, Contents, DeltaEncoding, EncodedFrame, FrameEntry, PackBuilder,
    PackKind, RawFrame, Resemblance,
};
use super::record::{Record, Snapshot};
use super::repair::{is_damaged, unless_damaged};
use super::session::Session;

/// At so many indexes an add merges all of them into its own.
const INDEXES_MAX: usize = 16;
/// A list longer than this is cut, and listed itself.
const LIST_BYTES_MAX: usize = 128 << 10;
/// Lists that are known to be whole: some 20 bytes each.
const WHOLE_MAX: usize = 1 << 20;

/// Where contents come from.
pub trait Source {
    /// Reads some bytes, as `read` does; 0 at the end.
    ///
    /// # Errors
    /// Those of the medium.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize>;

    /// Goes back to the start, if that is possible.
    ///
    /// # Errors
    /// Those of the medium.
    fn rewind(&mut self) -> Result<bool>;

    /// Returns the file that is read from its start, if it is one: all workers may read it.
    fn file(&self) -> Option<&Arc<File>> {
        None
    }

    /// Says whether the vault is unlikely to have the content: the search for the whole would read it once more.
    fn is_hardly_known(&self) -> bool {
        false
    }

    /// Returns how many zeros come next, as far as known without a read.
    ///
    /// # Errors
    /// Those of the medium.
    fn zeros_ahead(&mut self) -> Result<u64> {
        Ok(0)
    }

    /// Skips some of the zeros that [`Source::zeros_ahead`] announced.
    ///
    /// # Errors
    /// Those of the medium.
    fn skip_zeros(&mut self, count: u64) -> Result<()> {
        debug_assert_eq!(count, 0, "none were told of");
        Ok(())
    }

    /// Returns the bytes of the whole content, if known before it is read.
    fn size_bytes(&self) -> Option<u64> {
        None
    }
}

impl Source for &[u8] {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = self.len().min(buffer.len());
        let (head, tail) = self.split_at(count);
        buffer[..count].copy_from_slice(head);
        *self = tail;
        Ok(count)
    }

    fn rewind(&mut self) -> Result<bool> {
        Ok(false)
    }
}

/// How a snapshot is added.
#[derive(Clone, Copy, Debug)]
pub struct WriterOptions {
    /// How methods of frames are found. Default by the chooser, at the prices of [`super::Preset::Default`].
    pub compression: Compression,
    /// Memory that the index may take. Default 1 GiB: some 35 million chunks.
    pub index_bytes_max: u64,
}

impl Default for WriterOptions {
    fn default() -> WriterOptions {
        WriterOptions {
            compression: Compression::Chosen(super::Preset::Default),
            index_bytes_max: 1 << 30,
        }
    }
}

/// A frame that is to be compressed.
pub(super) struct Job {
    pub(super) kind: PackKind,
    pub(super) number: u32,
    pub(super) pick: Pick,
    pub(super) frame: RawFrame,
    /// Set if its chunks are deltas.
    pub(super) delta: Option<DeltaEncoding>,
}

struct Done {
    kind: PackKind,
    number: u32,
    pick: Pick,
    raw_bytes: usize,
    /// Bytes that a frame of deltas was expected to take otherwise.
    plain_bytes: Option<usize>,
    outcomes: Vec<Outcome>,
    frame: EncodedFrame,
}

/// Chunks that are read together, and so share frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// Contents of files.
    Contents,
    /// Lists of contents; they show which chunks are live without a read of the contents.
    Lists,
    /// Folders and their stamps.
    Folders,
}

impl Group {
    pub(super) const ALL: [Group; 3] = [Group::Contents, Group::Lists, Group::Folders];

    /// Returns the group of a chunk that lies in such a pack.
    pub(super) fn of(pack: PackKind, chunk: ChunkKind) -> Group {
        match (pack, chunk) {
            (_, ChunkKind::List) => Group::Lists,
            (PackKind::Folders, ChunkKind::Plain) => Group::Folders,
            (PackKind::Data, ChunkKind::Plain) => Group::Contents,
        }
    }

    pub(super) fn pack_kind(self) -> PackKind {
        match self {
            Group::Contents => PackKind::Data,
            Group::Lists | Group::Folders => PackKind::Folders,
        }
    }
}

/// A frame that is being filled.
#[derive(Default)]
struct Filling {
    frame: RawFrame,
    number: u32,
}

/// The frames and the pack that are being filled for one kind of packs.
struct Packer {
    kind: PackKind,
    pack: Option<PackBuilder>,
}

impl Packer {
    fn new(kind: PackKind) -> Packer {
        Packer { kind, pack: None }
    }
}

/// A writer's claim on its vault.
enum Hold {
    /// The turn, from its beginning.
    Turn(Session),
    /// A mark, until it commits.
    Mark { _presence: Box<dyn AddMark> },
}

/// Adds a snapshot to a vault.
pub struct Writer<'v> {
    vault: &'v mut Vault,
    hold: Hold,
    pub(super) index: Index,
    /// Frames from this one on are this writer's, and the lists in them are whole.
    first_frame: usize,
    /// Reads lists of others and remembers those that are whole.
    lists: Chunks,
    whole: BTreeSet<Id>,
    /// Whether a chunk took the place of a list in the index.
    has_replaced: bool,
    /// One of each group.
    fillings: [Filling; 3],
    packers: [Packer; 2],
    stage: Stage<Job, Done, Compressor>,
    picker: Picker,
    hasher: FileHasher,
    pub(super) deltas: Deltas,
    /// The contents of this epoch's packs, as its index will list them.
    pub(super) listed: Vec<u8>,
    buffer: Vec<u8>,
    /// Packs are made and thrown away.
    pub(super) is_trial: bool,
    new_raw_bytes: u64,
    stored_bytes: u64,
}

fn encode(compressor: &mut Compressor, mut job: Job) -> Result<Done> {
    let raw_bytes = job.frame.bytes.len();
    let mut encoded = None;
    if let Some(delta) = &job.delta {
        encoded = job.frame.encode_delta(delta, compressor)?;
    }
    let (frame, outcomes) = match encoded {
        Some(frame) => (frame, Vec::new()),
        None => {
            job.frame.forget_bases();
            job.frame.encode(job.pick.methods(), compressor)?
        }
    };
    Ok(Done {
        kind: job.kind,
        number: job.number,
        pick: job.pick,
        raw_bytes,
        plain_bytes: job.delta.map(|delta| delta.most_bytes),
        outcomes,
        frame,
    })
}

impl<'v> Writer<'v> {
    /// Begins a snapshot, beside others that add.
    ///
    /// # Errors
    /// [`Error::Invalid`] while another collects or repairs, [`Error::Limit`] if the index does not fit, those of the
    /// storage.
    pub fn new(vault: &'v mut Vault, pool: &Pool, options: WriterOptions) -> Result<Writer<'v>> {
        let presence = vault.share()?;
        let listed = vault.far.list("packs")?;
        // A process that came after that is seen, or had committed its packs of that listing before the state is read.
        let is_alone = !presence.has_others()?;
        let index = vault.newest_index(options.index_bytes_max)?;
        if vault.has_damaged_index() {
            drop(presence);
            let session = vault.begin_alone()?;
            return Writer::healing(vault, session, pool, options);
        }
        let hold = Hold::Mark {
            _presence: presence,
        };
        let mut writer = Writer::with_index(vault, hold, index, pool, options)?;
        if writer.vault.has_deltas {
            writer.deltas.seek();
        }
        if is_alone {
            let unlisted = writer.unlisted_of(&listed)?;
            writer.take_over(unlisted, |_, _| true, &|_| false)?;
        }
        writer.first_frame = writer.index.frame_count();
        Ok(writer)
    }

    /// Begins a snapshot while no other process adds; a damaged index does not count any more.
    pub(super) fn healing(
        vault: &'v mut Vault,
        mut session: Session,
        pool: &Pool,
        options: WriterOptions,
    ) -> Result<Writer<'v>> {
        let mut index = vault.index(options.index_bytes_max)?;
        let has_left = vault.leave_damaged_indexes(&mut session);
        if has_left {
            index = vault.whole_index(options.index_bytes_max)?;
        }
        let mut writer = Writer::with_index(vault, Hold::Turn(session), index, pool, options)?;
        let unlisted = writer.unlisted()?;
        let others = writer.take_over(unlisted, |_, _| true, &|_| false)?;
        if let Some(pack) = others.first().filter(|_| has_left) {
            let expected = "a footer that stands in for a damaged index";
            return Err(fail("pack", 0, expected, pack.hex()));
        }
        writer.first_frame = writer.index.frame_count();
        Ok(writer)
    }

    /// Begins a change without a look at the remains of others.
    pub(super) fn begin(
        vault: &'v mut Vault,
        pool: &Pool,
        options: WriterOptions,
    ) -> Result<Writer<'v>> {
        let session = vault.begin()?;
        Writer::with_session(vault, session, pool, options)
    }

    /// Goes on with a change that was begun.
    pub(super) fn with_session(
        vault: &'v mut Vault,
        session: Session,
        pool: &Pool,
        options: WriterOptions,
    ) -> Result<Writer<'v>> {
        let index = vault.whole_index(options.index_bytes_max)?;
        Writer::with_index(vault, Hold::Turn(session), index, pool, options)
    }

    fn with_index(
        vault: &'v mut Vault,
        hold: Hold,
        index: Index,
        pool: &Pool,
        options: WriterOptions,
    ) -> Result<Writer<'v>> {
        Ok(Writer {
            hold,
            index,
            first_frame: usize::MAX,
            lists: Chunks::new(&vault.far, &vault.keys),
            whole: BTreeSet::new(),
            has_replaced: false,
            fillings: Default::default(),
            packers: [Packer::new(PackKind::Data), Packer::new(PackKind::Folders)],
            stage: pool.stage(2 * pool.worker_count().max(1), Compressor::new, encode)?,
            picker: Picker::of(vault, options.compression),
            hasher: FileHasher::new(pool, &vault.keys)?,
            deltas: Deltas::new(vault),
            listed: Vec::new(),
            buffer: Vec::new(),
            is_trial: false,
            new_raw_bytes: 0,
            stored_bytes: 0,
            vault,
        })
    }

    /// Returns vault, session, and the bytes of the new packs.
    pub(super) fn into_parts(self) -> Result<(&'v mut Vault, Session, u64)> {
        match self.hold {
            Hold::Turn(session) => Ok((self.vault, session, self.stored_bytes)),
            Hold::Mark { .. } => Err(Error::invalid("vault", "one that adds has no turn")),
        }
    }

    /// Takes another index.
    pub(super) fn replace_index(&mut self, index: Index) {
        self.index = index;
        self.deltas.forget_frames();
    }

    /// Returns the index, and leaves an empty one.
    pub(super) fn take_index(&mut self) -> Index {
        std::mem::replace(&mut self.index, Index::new(0))
    }

    /// Returns the content of an index of all packs except those that leave. It keeps only lists that are found here:
    /// another one may lack a chunk.
    pub(super) fn merged(&self, leaving: &BTreeSet<Id>) -> Result<Vec<u8>> {
        let mut merged = Vec::new();
        let copied = self.vault.copied_packs()?;
        self.vault.each_pack(|mut pack, mut contents| {
            // Packs of earlier vaults had no copy then. A lost copy stays named.
            pack.has_copy |= copied.contains(&pack.name);
            if !leaving.contains(&pack.name) {
                self.index.hide_dependents(&pack, &mut contents);
                write_pack(&mut merged, &pack, &contents);
            }
            Ok(())
        })?;
        merged.extend(&self.listed);
        Ok(merged)
    }

    /// Returns the packs that neither an index lists nor the state dooms, and makes their names durable.
    pub(super) fn unlisted(&self) -> Result<Vec<Id>> {
        self.vault.far.clear("packs")?;
        let listed = self.vault.far.list("packs")?;
        self.unlisted_of(&listed)
    }

    /// The same of packs that were listed.
    fn unlisted_of(&self, listed: &[Listed]) -> Result<Vec<Id>> {
        let known: BTreeSet<Id> = (self.index.packs().iter().map(|pack| pack.name))
            .chain(self.vault.state.doomed.iter().map(|doomed| doomed.pack))
            .collect();
        let names = listed.iter().filter_map(|it| pack::name_from(&it.name));
        let unlisted: Vec<Id> = names.filter(|name| !known.contains(name)).collect();
        let mut settled = BTreeSet::new();
        for name in &unlisted {
            let object = pack::object_name(*name);
            let (folder, _) = object.rsplit_once('/').expect("packs/xx/name");
            if settled.insert(folder.to_string()) {
                self.vault.far.settle(folder)?;
            }
        }
        Ok(unlisted)
    }

    /// Takes some snapshots out of the state before it is committed.
    pub(super) fn let_go(&mut self, snapshots: &[u64]) {
        let state = &mut self.vault.state;
        state.snapshots.retain(|epoch| !snapshots.contains(epoch));
    }

    /// Returns the vault that is written to.
    pub(super) fn vault(&self) -> &Vault {
        self.vault
    }

    /// Returns the memory that the index takes now.
    pub fn index_bytes(&self) -> u64 {
        self.index.memory_bytes()
    }

    /// Takes over packs that an interrupted change left without an index, if they are useful; returns the others.
    /// `will_stay` says which chunks will be there in the end though they are not in the index now.
    pub(super) fn take_over(
        &mut self,
        unlisted: Vec<Id>,
        is_useful: impl Fn(&Index, &Contents) -> bool,
        will_stay: &dyn Fn(&Id) -> bool,
    ) -> Result<Vec<Id>> {
        let (mut taken, mut others) = (Vec::new(), Vec::new());
        for name in unlisted {
            // A pack that cannot be read is as good as none; the collector removes it.
            let read =
                pack::read_contents(&*self.vault.far, &pack::object_name(name), &self.vault.keys);
            let read = read.ok().filter(|(_, _, it)| is_useful(&self.index, it));
            let Some((kind, size_bytes, contents)) = read else {
                others.push(name);
                continue;
            };
            let pack = PackPlace {
                name,
                kind,
                size_bytes,
                has_copy: self.vault.copy_pack(name, kind)?,
            };
            self.index.add_contents(pack, &contents)?;
            taken.push((pack, contents));
        }
        self.forget_broken(&taken, will_stay)?;
        for (pack, mut contents) in taken {
            self.index.hide_dependents(&pack, &mut contents);
            write_pack(&mut self.listed, &pack, &contents);
        }
        Ok(others)
    }

    /// Forgets lists in packs that were taken over if a chunk is missing, which was to follow in another pack. Forgets
    /// deltas whose base was collected meanwhile.
    fn forget_broken(
        &mut self,
        taken: &[(PackPlace, Contents)],
        will_stay: &dyn Fn(&Id) -> bool,
    ) -> Result<()> {
        let mut broken = BTreeSet::new();
        for (pack, contents) in taken {
            for frame in &contents.frames {
                let lacks = |base: Id| self.index.find_base(&base).is_none() && !will_stay(&base);
                if frame.bases().any(lacks) {
                    let here = frame.chunks.iter().filter(|it| self.is_in(pack, it));
                    broken.extend(here.map(|chunk| chunk.id));
                }
            }
        }
        let mut chunks = Chunks::new(&self.vault.far, &self.vault.keys);
        for (pack, contents) in taken {
            let entries = contents.frames.iter().flat_map(|frame| &frame.chunks);
            let lists = entries.filter(|chunk| chunk.kind == ChunkKind::List);
            for list in lists.filter(|chunk| self.is_in(pack, chunk)) {
                if unless_damaged(chunks.is_with_gaps(&self.index, list.id))? == Some(true) {
                    continue;
                }
                let is_whole = |id: &Id| self.index.has_chunk(id) && !broken.contains(id);
                let is_there = |id: &Id| is_whole(id) || will_stay(id);
                let each = chunks.each_chunk_there(&self.index, list.id, &is_there, &mut |_| ());
                if is_damaged(each)? {
                    broken.insert(list.id);
                }
            }
        }
        self.index.forget(&broken);
        Ok(())
    }

    fn is_in(&self, pack: &PackPlace, chunk: &ChunkEntry) -> bool {
        self.index.pack_of(&chunk.id) == Some(pack.name)
    }

    /// Says whether a content is known and whole. A list of another writer is read: in earlier vaults a collection may
    /// have taken some of its chunks.
    fn is_whole(&mut self, id: &Id) -> Result<bool> {
        let Some(place) = self.index.find(id) else {
            return Ok(false);
        };
        let is_own = place.frame as usize >= self.first_frame;
        if place.kind == ChunkKind::Plain || is_own || self.whole.contains(id) {
            return Ok(true);
        }
        let each = self.lists.each_chunk(&self.index, *id, &mut |_| ());
        let is_whole = !is_damaged(each)?;
        if is_whole && self.whole.len() < WHOLE_MAX {
            self.whole.insert(*id);
        }
        Ok(is_whole)
    }

    /// Stores a content of a file; returns its identity and length. An empty one is [`Id::NONE`].
    ///
    /// # Errors
    /// Those of source and storage; after one of the storage nothing more can be added.
    pub fn add_content(&mut self, source: &mut dyn Source) -> Result<(Id, u64)> {
        self.add(Group::Contents, source)
    }

    /// Stores a folder, whose entries are sorted by name, and its stamps.
    ///
    /// # Errors
    /// As [`Writer::add_content`], and [`Error::Limit`] for entries of more than 1 GiB.
    pub fn add_folder(&mut self, entries: &[Entry], stamps: &[Stamp]) -> Result<(Id, Id)> {
        let (folder, stamps) = (write_folder(entries), write_stamps(entries, stamps));
        check_whole(folder.len().max(stamps.len()) as u64)?;
        let (folder, _) = self.add(Group::Folders, &mut &folder[..])?;
        let (stamps, _) = self.add(Group::Folders, &mut &stamps[..])?;
        Ok((folder, stamps))
    }

    /// Stores a content of either kind.
    fn add(&mut self, group: Group, source: &mut dyn Source) -> Result<(Id, u64)> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.add_buffered(group, source, &mut buffer);
        self.buffer = buffer;
        result
    }

    fn add_buffered(
        &mut self,
        group: Group,
        source: &mut dyn Source,
        buffer: &mut Vec<u8>,
    ) -> Result<(Id, u64)> {
        let mut window = Window::new(buffer, self.vault.chunker.most_bytes());
        window.fill(source)?;
        let cuts = self.cuts(&window, source);
        let first = self.cut(cuts, &window);
        if window.has_ended && first == window.bytes().len() {
            return self.add_single(group, window.bytes());
        }
        if let Some(known) = self.find_clone(source, &mut window, first)? {
            return Ok(known);
        }
        let zeros_bytes = cuts.unwrap_or(self.vault.chunker.most_bytes());
        let mut hasher = ContentHasher::new(&self.vault.keys, true);
        let mut list = List::default();
        while !window.bytes().is_empty() {
            let length = self.cut(cuts, &window);
            let chunk = &window.bytes()[..length];
            if length == zeros_bytes && is_zero(chunk) {
                window.consume(length);
                let zeros = length as u64 + window.skip_zeros(source, length as u64)?;
                hasher.update_zeros(zeros);
                list.raw_bytes += zeros;
                list.zeros += zeros;
            } else {
                hasher.update(chunk);
                list.raw_bytes += length as u64;
                let id = self.vault.keys.id(chunk);
                self.put_chunk(group, ChunkKind::Plain, id, chunk)?;
                list.push(length, id);
                self.cut_list(&mut list, 0)?;
                window.consume(length);
            }
            window.fill(source)?;
        }
        let identity = hasher.identity();
        self.put_list(identity, &mut list)?;
        Ok((identity.id, list.raw_bytes))
    }

    /// Stores the list of a content, unless it is known and whole.
    pub(super) fn put_list(&mut self, identity: Identity, list: &mut List) -> Result<()> {
        let list_bytes = self.finish_list(identity.of, list)?;
        if self.is_whole(&identity.id)? {
            return Ok(());
        }
        let list = ChunkEntry {
            id: identity.id,
            kind: ChunkKind::List,
            length_bytes: list_bytes.len() as u32,
            resemblance: Resemblance::Unknown,
        };
        self.place_chunk(Group::Lists, &list, &list_bytes)
    }

    /// Returns the length of all chunks of a content, if it is an image. An image that ends within the longest chunk is
    /// cut as any other content.
    fn cuts(&self, window: &Window<'_>, source: &dyn Source) -> Option<usize> {
        if window.has_ended {
            return None;
        }
        let most_bytes = self.vault.options.chunks.mean_bytes;
        images::chunk_bytes(window.bytes(), source.size_bytes(), most_bytes)
    }

    fn cut(&self, cuts: Option<usize>, window: &Window<'_>) -> usize {
        let bytes = window.bytes();
        match cuts {
            Some(length) => length.min(bytes.len()),
            None => self.vault.chunker.cut(bytes),
        }
    }

    fn add_single(&mut self, group: Group, content: &[u8]) -> Result<(Id, u64)> {
        if content.is_empty() {
            return Ok((Id::NONE, 0));
        }
        let id = self.vault.keys.id(content);
        self.put_chunk(group, ChunkKind::Plain, id, content)?;
        Ok((id, content.len() as u64))
    }

    /// Where the first chunk is known, the whole may be. The content is hashed before it is cut, which costs a clone
    /// one hash and another content one reading more.
    fn find_clone(
        &mut self,
        source: &mut dyn Source,
        window: &mut Window<'_>,
        first: usize,
    ) -> Result<Option<(Id, u64)>> {
        let first = self.vault.keys.id(&window.bytes()[..first]);
        if source.is_hardly_known() || self.index.find(&first).is_none() {
            return Ok(None);
        }
        let mut hasher = ContentHasher::new(&self.vault.keys, true);
        if window.has_ended {
            hasher.update(window.bytes());
            let id = hasher.identity().id;
            let known = self.is_whole(&id)?;
            return Ok(known.then(|| (id, window.bytes().len() as u64)));
        }
        if let Some(file) = source.file() {
            // If it cannot be read, the read in order reports why.
            let size_bytes = source.size_bytes().unwrap_or(0);
            if size_bytes <= window.bytes().len() as u64 {
                return Ok(None);
            }
            return Ok(match self.hasher.identity(file, size_bytes)? {
                Some(id) if self.is_whole(&id)? => Some((id, size_bytes)),
                _ => None,
            });
        }
        if !source.rewind()? {
            return Ok(None);
        }
        window.restart();
        let mut raw_bytes = 0;
        loop {
            window.fill(source)?;
            if window.bytes().is_empty() {
                break;
            }
            hasher.update(window.bytes());
            raw_bytes += window.bytes().len() as u64;
            window.consume(window.bytes().len());
            let zeros = source.zeros_ahead()?;
            source.skip_zeros(zeros)?;
            hasher.update_zeros(zeros);
            raw_bytes += zeros;
        }
        let id = hasher.identity().id;
        if self.is_whole(&id)? {
            return Ok(Some((id, raw_bytes)));
        }
        if !source.rewind()? {
            return Err(Error::invalid("source", "it went back once and not twice"));
        }
        window.restart();
        window.fill(source)?;
        Ok(None)
    }

    /// Makes chunks of the levels of a list, from one on, that are longer than [`LIST_BYTES_MAX`].
    pub(super) fn cut_list(&mut self, list: &mut List, mut level: usize) -> Result<()> {
        while level < list.levels.len() && list.levels[level].len() > LIST_BYTES_MAX {
            self.cut_level(list, level)?;
            level += 1;
        }
        if list.levels.len() > usize::from(DEPTH_MAX) {
            return Err(Error::invalid("content", "longer than a list can say"));
        }
        Ok(())
    }

    /// Makes a chunk of a level of a list, if there is anything in it.
    pub(super) fn cut_level(&mut self, list: &mut List, level: usize) -> Result<()> {
        let items = std::mem::take(&mut list.levels[level]);
        if !items.is_empty() {
            let id = self.vault.keys.id(&items);
            self.put_chunk(Group::Lists, ChunkKind::Plain, id, &items)?;
            put_item(list.level(level + 1), items.len() as u64, id);
        }
        Ok(())
    }

    /// Returns the list of a content, whose lower levels become chunks.
    fn finish_list(&mut self, of: IdentityOf, list: &mut List) -> Result<Vec<u8>> {
        list.flush_zeros();
        let mut level = 0;
        while level + 1 < list.levels.len() {
            self.cut_level(list, level)?;
            level += 1;
        }
        let depth = list.levels.len().max(1);
        let mut bytes = vec![head_of_list(depth as u8, of)];
        put_number(&mut bytes, list.raw_bytes);
        bytes.extend(list.levels.pop().unwrap_or_default());
        Ok(bytes)
    }

    /// Says whether no chunk of this identity is known as this kind.
    pub(super) fn is_new(&self, kind: ChunkKind, id: &Id) -> bool {
        match self.index.find(id).map(|place| place.kind) {
            // A single chunk here may be cut as a file of its own elsewhere, and a list cannot name a list.
            Some(ChunkKind::List) => kind == ChunkKind::Plain,
            Some(ChunkKind::Plain) => false,
            None => true,
        }
    }

    /// Puts a chunk into the frame that is being filled, unless it is known.
    pub(super) fn put_chunk(
        &mut self,
        group: Group,
        kind: ChunkKind,
        id: Id,
        bytes: &[u8],
    ) -> Result<()> {
        if !self.is_new(kind, &id) {
            return Ok(());
        }
        let mut chunk = ChunkEntry {
            id,
            kind,
            length_bytes: bytes.len() as u32,
            resemblance: Resemblance::Unknown,
        };
        if (group, kind) == (Group::Contents, ChunkKind::Plain) {
            chunk.resemblance = self.deltas.resemblance(bytes);
        }
        match self.similar(chunk.resemblance) {
            Some(base) if self.index.find(&id).is_none() => self.place_delta(chunk, bytes, base),
            _ => self.place_chunk(group, &chunk, bytes),
        }
    }

    /// Puts a chunk into the frame that is being filled, in place of the known one with its identity.
    pub(super) fn place_chunk(
        &mut self,
        group: Group,
        chunk: &ChunkEntry,
        bytes: &[u8],
    ) -> Result<()> {
        self.has_replaced |= self.fill(group, chunk, bytes)?;
        self.new_raw_bytes += bytes.len() as u64;
        Ok(())
    }

    /// The same; says whether the chunk was known, and counts nothing.
    pub(super) fn fill(&mut self, group: Group, chunk: &ChunkEntry, bytes: &[u8]) -> Result<bool> {
        assert!(
            bytes.len() <= CHUNK_BYTES_LIMIT,
            "a chunk of {}",
            bytes.len()
        );
        let frame_bytes = self.vault.options.frame_bytes;
        let filling = &self.fillings[group as usize];
        if filling.frame.is_full_for(bytes.len(), frame_bytes) {
            self.end_frame(group)?;
        }
        let filling = &mut self.fillings[group as usize];
        if filling.frame.chunks.is_empty() {
            filling.number = self.index.add_frame(FramePlace::pending(false))?;
        }
        let place = Place {
            frame: filling.number,
            ordinal: filling.frame.chunks.len() as u32,
            kind: chunk.kind,
        };
        let has_replaced = self.index.replace(chunk.id, place)?;
        if let Resemblance::Sketch(sketch) = chunk.resemblance {
            self.index.note_sketch(sketch, place);
        }
        filling.frame.bytes.extend_from_slice(bytes);
        filling.frame.chunks.push(*chunk);
        Ok(has_replaced)
    }

    /// Notes where a chunk lies that was put beside those of [`Group`].
    pub(super) fn note_placed(&mut self, id: Id, place: Place, length_bytes: usize) -> Result<()> {
        self.has_replaced |= self.index.replace(id, place)?;
        self.new_raw_bytes += length_bytes as u64;
        Ok(())
    }

    /// Says whether a frame of contents is the one that is being filled.
    pub(super) fn is_filling(&self, number: u32) -> bool {
        let filling = &self.fillings[Group::Contents as usize];
        filling.number == number && !filling.frame.chunks.is_empty()
    }

    /// Returns a frame of contents that is compressed and lies in no pack yet.
    pub(super) fn packed_frame(&self, number: u32) -> Option<Vec<u8>> {
        let pack = self.packers[0].pack.as_ref()?;
        pack.frame(number).map(|frame| frame.bytes.clone())
    }

    pub(super) fn picker(&self) -> &Picker {
        &self.picker
    }

    /// Picks the method of a frame.
    pub(super) fn pick(&mut self, frame: &[u8]) -> Result<Pick> {
        self.picker.pick(frame)
    }

    /// Has the frame compressed.
    pub(super) fn end_frame(&mut self, group: Group) -> Result<()> {
        let Filling { frame, number } = std::mem::take(&mut self.fillings[group as usize]);
        if frame.chunks.is_empty() {
            return Ok(());
        }
        let pick = self.picker.pick(&frame.bytes)?;
        self.submit(Job {
            kind: group.pack_kind(),
            number,
            pick,
            frame,
            delta: None,
        })
    }

    pub(super) fn submit(&mut self, job: Job) -> Result<()> {
        while self.stage.is_full() {
            self.take_done()?;
        }
        match self.stage.submit(job) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::invalid("pool", "it takes no jobs")),
        }
    }

    /// Takes the oldest frame that is compressed into its pack; says whether there was one.
    pub(super) fn take_done(&mut self) -> Result<bool> {
        let Some(done) = self.stage.next_result() else {
            return Ok(false);
        };
        let done = done?;
        let is_plain = !done.outcomes.is_empty();
        if let Some(plain_bytes) = done.plain_bytes {
            let stored_bytes = if is_plain {
                plain_bytes
            } else {
                done.frame.bytes.len()
            };
            self.picker.learn_delta(plain_bytes, stored_bytes);
        }
        if is_plain {
            (self.picker).learn(&done.pick, done.raw_bytes, &done.outcomes);
        }
        let at = usize::from(done.kind == PackKind::Folders);
        let packer = &mut self.packers[at];
        let pack = match &mut packer.pack {
            Some(pack) => pack,
            none => none.insert(PackBuilder::new(done.kind, self.vault.entropy.take())),
        };
        pack.push(done.number, done.frame);
        if pack.size_bytes() >= self.vault.options.pack_bytes {
            self.end_pack(at)?;
        }
        Ok(true)
    }

    /// Puts a pack.
    fn end_pack(&mut self, at: usize) -> Result<()> {
        let packer = &mut self.packers[at];
        let Some(builder) = packer.pack.take() else {
            return Ok(());
        };
        let kind = packer.kind;
        let (bytes, placed) = builder.finish(&self.vault.keys, &mut self.vault.entropy);
        let name = pack::name_of(&bytes);
        let (object, has_copy) = (pack::object_name(name), kind.object_count() > 1);
        if !self.is_trial {
            if has_copy {
                self.vault.far.put(&copy_name(&object), &bytes)?;
            }
            self.vault.far.put(&object, &bytes)?;
        }
        self.stored_bytes += bytes.len() as u64 * kind.object_count();
        self.note(
            PackPlace {
                name,
                kind,
                size_bytes: bytes.len() as u64,
                has_copy,
            },
            placed,
        );
        Ok(())
    }

    fn note(&mut self, pack: PackPlace, placed: Vec<(u32, FrameEntry)>) {
        let number = self.index.add_pack(pack);
        for (frame, entry) in &placed {
            self.index
                .place_frame(*frame, FramePlace::of(number, entry));
        }
        let frames = placed.into_iter().map(|(_, entry)| entry).collect();
        write_pack(&mut self.listed, &pack, &Contents { frames });
    }

    /// Makes all chunks so far durable, without a snapshot of them.
    pub(super) fn flush(&mut self) -> Result<()> {
        // Some of their chunks may become plain.
        self.end_deltas()?;
        for group in Group::ALL {
            self.end_frame(group)?;
        }
        while self.take_done()? {}
        for at in 0..self.packers.len() {
            self.end_pack(at)?;
        }
        Ok(())
    }

    /// Takes the turn to commit, and takes in the commits of others since this change began.
    fn enter(&mut self) -> Result<Session> {
        let (newest, before) = (self.vault.newest, self.vault.state.indexes.clone());
        let session = self.vault.begin_commit()?;
        if session.epoch != newest + 1 {
            self.catch_up(&before)?;
        }
        Ok(session)
    }

    /// Adds the indexes that were not there `before` to its own. Checks that every chunk that this writer relies on is
    /// still there.
    fn catch_up(&mut self, before: &[u64]) -> Result<()> {
        let (vault, index) = (&*self.vault, &mut self.index);
        let listed = vault.far.list("packs")?;
        let there = listed.iter().filter_map(|it| pack::name_from(&it.name));
        let there: BTreeSet<Id> = there.collect();
        let known: BTreeSet<Id> = index.packs().iter().map(|pack| pack.name).collect();
        let now = &vault.state.indexes;
        let is_merged = before.iter().any(|epoch| !now.contains(epoch));
        let is_new = |epoch: &&u64| is_merged || !before.contains(epoch);
        let new: Vec<u64> = now.iter().filter(is_new).copied().collect();
        let mut own = BTreeSet::new();
        read_packs(&self.listed, |pack, _| {
            own.insert(pack.name);
            Ok(())
        })?;
        let mut named = BTreeSet::new();
        vault.each_pack_of(&new, |pack, contents| {
            named.insert(pack.name);
            match known.contains(&pack.name) {
                true => Ok(()),
                false => index.add_contents(pack, &contents),
            }
        })?;
        let is_kept = |pack: &Id| match own.contains(pack) {
            true => there.contains(pack) && !named.contains(pack),
            false => !is_merged || named.contains(pack),
        };
        match known.iter().all(is_kept) {
            true => Ok(()),
            false => Err(Error::invalid(
                "vault",
                "another process removed what this snapshot relies on; nothing was changed, add it again",
            )),
        }
    }

    /// Commits the snapshot and returns its number. A trial fills in the bytes that the snapshot would have taken, and
    /// commits nothing.
    pub(super) fn end(mut self, snapshot: &mut Snapshot) -> Result<Option<u64>> {
        if !self.is_trial {
            return self.commit(snapshot.clone()).map(Some);
        }
        self.flush()?;
        snapshot.new_raw_bytes = self.new_raw_bytes;
        snapshot.stored_bytes = self.stored_bytes;
        Ok(None)
    }

    /// Commits the snapshot and returns its number. The caller fills in its folder, stamps and description; this fills
    /// in the bytes that it took.
    ///
    /// # Errors
    /// Those of the storage; [`Error::Invalid`] if another writer has closed this epoch. After an error of the storage,
    /// the next opening of the vault shows whether the snapshot is there.
    pub fn commit(mut self, mut snapshot: Snapshot) -> Result<u64> {
        self.flush()?;
        if let Hold::Mark { .. } = self.hold {
            self.hold = Hold::Turn(self.enter()?);
        }
        let mut state = self.vault.state.clone();
        // A replaced chunk is found first as long as an index names it.
        let merges = self.has_replaced || state.indexes.len() >= INDEXES_MAX;
        let content = match merges && !self.listed.is_empty() {
            true => {
                state.indexes.clear();
                self.merged(&BTreeSet::new())?
            }
            false => std::mem::take(&mut self.listed),
        };
        let room_bytes = self.vault.room_bytes(&self.index);
        let new_raw_bytes = self.new_raw_bytes;
        let (vault, session, stored_bytes) = self.into_parts()?;
        if !content.is_empty() {
            vault.put_index(&session, &content)?;
            state.indexes.push(session.epoch);
        }
        state.snapshots.push(session.epoch);
        snapshot.new_raw_bytes = new_raw_bytes;
        snapshot.stored_bytes = stored_bytes;
        let epoch = vault.commit(session, Record::Snapshot(state, Box::new(snapshot)))?;
        vault.far.keep_room(room_bytes);
        Ok(epoch)
    }
}

/// The items of a list that is being made, level by level.
#[derive(Default)]
pub(super) struct List {
    pub(super) levels: Vec<Vec<u8>>,
    pub(super) raw_bytes: u64,
    /// Zeros that are not yet noted.
    pub(super) zeros: u64,
}

impl List {
    pub(super) fn push(&mut self, length: usize, id: Id) {
        self.flush_zeros();
        put_item(self.level(0), length as u64, id);
    }

    pub(super) fn flush_zeros(&mut self) {
        let zeros = std::mem::take(&mut self.zeros);
        if zeros > 0 {
            put_zeros(self.level(0), zeros);
        }
    }

    pub(super) fn level(&mut self, level: usize) -> &mut Vec<u8> {
        if self.levels.len() <= level {
            self.levels.resize(level + 1, Vec::new());
        }
        &mut self.levels[level]
    }
}

/// The bytes that were read ahead of a source: at least the longest chunk, or all that is left.
struct Window<'b> {
    buffer: &'b mut Vec<u8>,
    from: usize,
    to: usize,
    least: usize,
    has_ended: bool,
}

impl<'b> Window<'b> {
    fn new(buffer: &'b mut Vec<u8>, least: usize) -> Window<'b> {
        // Room for four chunks, so that the rest is moved to the front once in three.
        buffer.resize(4 * least, 0);
        Window {
            buffer,
            from: 0,
            to: 0,
            least,
            has_ended: false,
        }
    }

    fn bytes(&self) -> &[u8] {
        &self.buffer[self.from..self.to]
    }

    fn consume(&mut self, count: usize) {
        self.from += count;
    }

    /// Skips zeros in front, here and ahead in the source, while they fill chunks of `chunk_bytes`; returns how many.
    fn skip_zeros(&mut self, source: &mut dyn Source, chunk_bytes: u64) -> Result<u64> {
        if self.has_ended || !is_zero(self.bytes()) {
            return Ok(0);
        }
        let here = self.bytes().len() as u64;
        let zeros = here + source.zeros_ahead()?;
        let skipped = zeros - zeros % chunk_bytes;
        if skipped <= here {
            return Ok(0);
        }
        source.skip_zeros(skipped - here)?;
        self.consume(self.bytes().len());
        Ok(skipped)
    }

    fn restart(&mut self) {
        (self.from, self.to, self.has_ended) = (0, 0, false);
    }

    fn fill(&mut self, source: &mut dyn Source) -> Result<()> {
        while !self.has_ended && self.to - self.from < self.least + 1 {
            if self.to == self.buffer.len() {
                self.buffer.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
            }
            let count = source.read(&mut self.buffer[self.to..])?;
            self.to += count;
            self.has_ended = count == 0;
        }
        Ok(())
    }
}
