//! Import and export. A plain database becomes a compressed one and back, page by page. The result is read again and
//! compared before it gets its name.
//!
//! A pool's workers encode, decode and compare pages, a MiB at a time each. The method of each page is chosen in the
//! pages' order, so the same database becomes the same file.

use std::collections::BTreeMap;
use std::io::{IoSlice, IoSliceMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::{Connection, Seen, serve_versions};
use super::database::{HEADER_BYTES, Header, PageKind};
use super::locks::{LockLevel, Locks};
use super::store::{PageOptions, PageStore, Space};
use crate::blocks::{Blocks, ChosenEncoding, EncodedBlock, Opened, spread};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::quoted::quoted;
use crate::storage::new_file::{Unfinished, check_free};
use crate::storage::{MemoryStorage, OpenOptions, Storage, StorageFile};

/// Bytes moved at a time, a multiple of every page.
const CHUNK_BYTES: usize = 1 << 20;

/// Pages that are looked at before all are written.
const SAMPLED_PAGES: u64 = 1024;
/// The rough ratio of databases. It bounds the dictionaries for one.
const USUAL_RATIO: u64 = 4;

/// The result of an import or an export.
#[derive(Clone, Copy, Debug)]
pub struct Transferred {
    /// The database's length.
    pub logical_bytes: u64,
    /// Space of the compressed file.
    pub space: Space,
    /// Whether the source's header asked for a write-ahead log, which the compressed one does not.
    pub was_wal: bool,
}

/// The offset of the last byte of the first page's count of changes.
const CHANGES_AT: usize = 27;
/// Bytes of a block in the map and in the table of frames: 4 and 12, and the parts between.
const MAP_BYTES: u64 = 17;

/// The predicted result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// The database's length, in whole pages.
    pub logical_bytes: u64,
    /// Bytes of it that were imported into memory. The following fields are scaled from them to all of it.
    pub sampled_bytes: u64,
    /// Predicted bytes of its pages in the file, each with its record's header.
    pub stored_bytes: u64,
    /// The length of the file.
    pub file_bytes: u64,
    /// Bytes that a commit of one changed row would write, by one write and one sync: a mean over some commits.
    pub commit_bytes: u64,
}

/// The commits that are tried to predict one.
const COMMITS: u64 = 32;

/// The findings of a check of a compressed database.
#[derive(Clone, Debug, Default)]
pub struct Checked {
    /// Pages by kind: their number, and their bytes in the file.
    pub kinds: Vec<(PageKind, u64, u64)>,
    /// Its space in all.
    pub space: Space,
    /// The length of a page.
    pub page_bytes: u32,
    /// Pages that could not be read: the number and why; the first hundred.
    pub broken: Vec<(u64, String)>,
    /// Findings from the opening of the file.
    pub opened: Opened,
}

impl Checked {
    fn count(&mut self, kind: PageKind, pages: u64, stored_bytes: u64) {
        match self.kinds.iter_mut().find(|(known, ..)| *known == kind) {
            Some((_, count, bytes)) => (*count, *bytes) = (*count + pages, *bytes + stored_bytes),
            None => self.kinds.push((kind, pages, stored_bytes)),
        }
    }
}

/// Progress of long work: the amount done and the amount in all, in bytes unless stated otherwise. Returns whether to
/// go on.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Makes a compressed database at `target` of the plain one at `source`, which is locked for reading
/// meanwhile and not changed. Nothing is there under `target` until all of it is written, durable and
/// proved.
///
/// If `is_kept` refuses the written and proved file, nothing is left of it. Its result is returned all the same.
///
/// # Errors
/// [`Error::Invalid`] if the source is no database, is being written, or has a journal that was not played back.
/// [`Error::Io`] if the target exists. [`Error::Interrupted`] if `progress` says so. Those of both files.
pub fn import(
    storage: &Arc<dyn Storage>,
    (source, target): (&str, &str),
    to: (&Arc<dyn Storage>, PageOptions),
    is_kept: &dyn Fn(&Transferred) -> bool,
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<Transferred> {
    let (target_storage, options) = to;
    let file = storage.open(source, OpenOptions::read_only())?;
    let mut locks = Locks::new(Arc::clone(&file));
    let header = settled_header(&**storage, source, &file, &mut locks)?;
    let size_bytes = file.status()?.size_bytes;
    if !size_bytes.is_multiple_of(header.page_bytes.into()) {
        let reason = format!(
            "{size_bytes} bytes, not whole pages of {}",
            header.page_bytes
        );
        return Err(Error::invalid("database", reason));
    }
    check_free(&**target_storage, target)?;
    let unfinished = Unfinished::begin(&**target_storage, target, options.mode)?;
    let mut moved = || {
        let made = options.importing(header.page_bytes, size_bytes);
        drop(Blocks::create_in(Arc::clone(unfinished.file()), made)?);
        let store = PageStore::new(Arc::clone(target_storage), unfinished.name(), options);
        let mut connection = Connection::open(Arc::new(store))?;
        connection.read_past_cache();
        lock(&mut connection, LockLevel::Exclusive)?;
        learn_pages(&*file, &mut connection, (&header, size_bytes), pool)?;
        let all = (0..size_bytes).step_by(CHUNK_BYTES);
        let of = (&header, size_bytes);
        write_pages(&*file, &mut connection, of, all, pool, progress)?;
        let all = (0..size_bytes).step_by(CHUNK_BYTES).map(Ok);
        let reader = Reader::of(connection.seen()?);
        prove(&file, reader, (all, size_bytes), pool, progress)?;
        let now_bytes = file.status()?.size_bytes;
        if now_bytes != size_bytes {
            // By a program that asks for no locks.
            let reason = format!("it had {size_bytes} bytes and has {now_bytes} now");
            return Err(Error::invalid("database", reason));
        }
        let space = connection.space()?;
        connection.unlock(LockLevel::None)?;
        Ok(Transferred {
            logical_bytes: size_bytes,
            space,
            was_wal: header.is_wal,
        })
    };
    settle(moved(), unfinished, target, is_kept)
}

/// Predicts the result of an [`import`] of a plain database. Up to `bytes_max` of it, a multiple of 1 MiB, are imported
/// into memory. The source is not locked: where somebody writes, some pages may be older than others.
///
/// # Errors
/// [`Error::Invalid`] if the source is no database, [`Error::Interrupted`] if `progress` says so, and those of reading
/// it.
pub fn predict(
    source: &dyn StorageFile,
    options: PageOptions,
    bytes_max: u64,
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<Foreseen> {
    let mut bytes = [0; HEADER_BYTES];
    let read = source.read_at(&mut [IoSliceMut::new(&mut bytes)], 0)?;
    let header = Header::parse(&bytes[..read]);
    let header = header.ok_or_else(|| {
        Error::invalid(
            "database",
            format!("{} is no plain one", quoted(&source.path())),
        )
    })?;
    let page_bytes = u64::from(header.page_bytes);
    let logical_bytes = source.status()?.size_bytes / page_bytes * page_bytes;
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let made = options.importing(header.page_bytes, logical_bytes);
    drop(Blocks::create(&*memory, "foreseen", made)?);
    let store = PageStore::new(memory, "foreseen", options);
    let mut connection = Connection::open(Arc::new(store))?;
    lock(&mut connection, LockLevel::Exclusive)?;
    let of = (&header, logical_bytes);
    learn_pages(source, &mut connection, of, pool)?;
    let chunks = logical_bytes.div_ceil(CHUNK_BYTES as u64);
    let taken = spread(chunks, bytes_max / CHUNK_BYTES as u64);
    let taken: Vec<u64> = taken.map(|index| index * CHUNK_BYTES as u64).collect();
    let ends = taken
        .iter()
        .map(|at| logical_bytes.min(at + CHUNK_BYTES as u64) - at);
    let sampled_bytes = ends.sum::<u64>();
    let all = taken.iter().copied();
    write_pages(source, &mut connection, of, all, pool, progress)?;
    let space = connection.space()?;
    let commit_bytes = commit_bytes(&mut connection, &taken, page_bytes)?;
    let share = logical_bytes as f64 / sampled_bytes.max(1) as f64;
    let stored_bytes = (space.stored_bytes as f64 * share) as u64;
    // The segments that are begun or kept are there once; in the map each block has its part.
    let more_bytes = stored_bytes.saturating_sub(space.stored_bytes);
    let more_blocks = (logical_bytes - sampled_bytes) / u64::from(space.block_bytes.max(1));
    Ok(Foreseen {
        logical_bytes,
        sampled_bytes,
        stored_bytes,
        file_bytes: space.file_bytes + more_bytes + more_blocks * MAP_BYTES,
        commit_bytes,
    })
}

/// Changes pages of the imported chunks as a change of a row does. Each is a transaction with the first page, which
/// counts them. Returns the mean bytes that one wrote.
fn commit_bytes(connection: &mut Connection, chunks: &[u64], page_bytes: u64) -> Result<u64> {
    let (mut page, mut first) = (vec![0; page_bytes as usize], vec![0; page_bytes as usize]);
    let pages_a_chunk = CHUNK_BYTES as u64 / page_bytes;
    let before = connection.log_bytes()?;
    // A file may be shorter than the page length in its header.
    let commits = if chunks.is_empty() { 0 } else { COMMITS };
    for number in 0..commits {
        let chunk = chunks[(number as usize * chunks.len()) / COMMITS as usize];
        let at = chunk + number * 7 % pages_a_chunk * page_bytes;
        connection.read(0, &mut first)?;
        first[CHANGES_AT] ^= number as u8 + 1;
        if at > 0 && connection.read(at, &mut page)? == page.len() {
            // A number in the middle of it, and the length of a row.
            page[page_bytes as usize / 2] ^= 0x15;
            page[page_bytes as usize * 3 / 4] ^= 0x02;
            connection.write(at, &page)?;
        }
        connection.write(0, &first)?;
        connection.commit()?;
    }
    Ok((connection.log_bytes()? - before) / COMMITS)
}

/// Makes a plain database at `target` of the compressed one of `store`, which is locked for reading
/// meanwhile and not changed. Where nothing is stored the plain one has a hole.
///
/// # Errors
/// As [`import`].
pub fn export(
    store: Arc<PageStore>,
    to: (&Arc<dyn Storage>, &str),
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<Transferred> {
    bring_out(store, to, None, pool, progress)
}

/// As [`export`], of a database with some pages that cannot be read: they become zeros, and are returned. Nobody takes
/// the copy for whole.
///
/// # Errors
/// As [`export`], but for damage to pages.
pub fn export_readable(
    store: Arc<PageStore>,
    to: (&Arc<dyn Storage>, &str),
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<(Transferred, Unreadable)> {
    let unreadable = Arc::new(Mutex::new(Unreadable::default()));
    let moved = bring_out(store, to, Some(&unreadable), pool, progress)?;
    let unreadable = std::mem::take(&mut *lock_unreadable(&unreadable));
    Ok((moved, unreadable))
}

fn bring_out(
    store: Arc<PageStore>,
    (storage, target): (&Arc<dyn Storage>, &str),
    unreadable: Option<&Arc<Mutex<Unreadable>>>,
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<Transferred> {
    let mode = store.options().mode;
    let mut connection = Connection::open(store)?;
    connection.read_past_cache();
    lock(&mut connection, LockLevel::Shared)?;
    let size_bytes = connection.size_bytes()?;
    // The space of a damaged map is unknown.
    let space = match (connection.space(), unreadable) {
        (Err(error), Some(_)) if is_damage(&error) => Space::default(),
        (space, _) => space?,
    };
    check_free(&**storage, target)?;
    let unfinished = Unfinished::begin(&**storage, target, mode)?;
    let file = unfinished.file();
    let mut moved = || {
        let seen = connection.seen()?;
        let reader = |notes: bool| Reader {
            seen: seen.clone(),
            unreadable: unreadable.cloned(),
            notes,
        };
        file.truncate(size_bytes)?;
        copy_out(reader(true), file, size_bytes, pool, progress)?;
        file.sync()?;
        let stored = (reader(false).stored_chunks(), size_bytes);
        prove(file, reader(false), stored, pool, progress)?;
        Ok(Transferred {
            logical_bytes: size_bytes,
            space,
            was_wal: false,
        })
    };
    settle(moved(), unfinished, target, &|_| true)
}

/// The parts of a database that cannot be read.
#[derive(Clone, Debug, Default)]
pub struct Unreadable {
    /// Their places, in bytes of the database, and the reasons: the first hundred blocks, in order.
    pub blocks: BTreeMap<u64, String>,
    /// The number of such blocks in all.
    pub count: u64,
    /// The length of a block.
    pub block_bytes: u64,
}

/// The most unreadable blocks that are listed one by one.
const UNREADABLE_MAX: usize = 100;

impl Unreadable {
    fn add(&mut self, offset: u64, block_bytes: usize, error: &Error) {
        (self.count, self.block_bytes) = (self.count + 1, block_bytes as u64);
        self.blocks.insert(offset, error.to_string());
        // Workers find them in any order.
        if self.blocks.len() > UNREADABLE_MAX {
            self.blocks.pop_last();
        }
    }
}

/// Returns whether an error comes from the bytes in the file, or from the medium below it.
fn is_damage(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt { .. } | Error::Io { .. } | Error::Unsupported { .. }
    )
}

fn lock_unreadable(unreadable: &Mutex<Unreadable>) -> MutexGuard<'_, Unreadable> {
    unreadable.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a database to copy or compare it.
#[derive(Clone)]
struct Reader {
    seen: Seen,
    /// Unreadable parts are noted here and become zeros. Without it they are an error.
    unreadable: Option<Arc<Mutex<Unreadable>>>,
    /// Whether it is noted there.
    notes: bool,
}

impl Reader {
    fn of(seen: Seen) -> Reader {
        Reader {
            seen,
            unreadable: None,
            notes: false,
        }
    }

    fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let read = self.seen.read(offset, target);
        let unreadable = match (&read, &self.unreadable) {
            (Err(error), Some(unreadable)) if is_damage(error) => unreadable,
            _ => return read,
        };
        let block_bytes = self.seen.block_bytes();
        for (at, block) in (offset..)
            .step_by(block_bytes)
            .zip(target.chunks_mut(block_bytes))
        {
            match self.seen.read(at, block) {
                Err(error) if is_damage(&error) => {
                    block.fill(0);
                    if self.notes {
                        lock_unreadable(unreadable).add(at, block_bytes, &error);
                    }
                }
                read => read?,
            }
        }
        Ok(())
    }

    /// Returns the places of chunks in which anything is stored, or may be.
    fn stored_chunks(self) -> impl Iterator<Item = Result<u64>> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let stored = match self.seen.first_stored(from) {
                // An unreadable part of the map is read block by block.
                Err(error) if is_damage(&error) && self.unreadable.is_some() => {
                    Ok(self.seen.is_inside(from).then_some(from))
                }
                stored => stored,
            };
            let chunk = stored.transpose()?.map(|at| at - at % CHUNK_BYTES as u64);
            from = chunk.as_ref().map_or(from, |at| at + CHUNK_BYTES as u64);
            Some(chunk)
        })
    }
}

/// Gives a complete file its name if it is wanted, and removes another.
fn settle(
    moved: Result<Transferred>,
    unfinished: Unfinished<'_>,
    target: &str,
    is_kept: &dyn Fn(&Transferred) -> bool,
) -> Result<Transferred> {
    match moved {
        Ok(moved) if is_kept(&moved) => unfinished.publish(target).map(|()| moved),
        other => {
            let other = other.map_err(|error| unfinished.error(error, target));
            unfinished.give_up();
            other
        }
    }
}

/// Reads every page of a compressed database, each checked by its record's checksum. Pages that are not stored are
/// zeros, and are counted with the others without a look at each.
///
/// # Errors
/// [`Error::Invalid`] if somebody writes, and those of opening; broken pages are in the result.
pub fn check(store: Arc<PageStore>, progress: Progress<'_>) -> Result<Checked> {
    let mut connection = Connection::open(store)?;
    connection.read_past_cache();
    lock(&mut connection, LockLevel::Shared)?;
    let mut bytes = [0; HEADER_BYTES];
    connection.read(0, &mut bytes)?;
    let size_bytes = connection.size_bytes()?;
    let page_bytes = Header::parse(&bytes).map_or(4096, |header| header.page_bytes);
    let mut checked = Checked {
        page_bytes,
        space: connection.space()?,
        opened: connection.store().opened()?.blocks.opened(),
        ..Checked::default()
    };
    let seen = connection.seen()?;
    let mut page = vec![0; page_bytes as usize];
    let page_bytes = u64::from(page_bytes);
    let block_bytes = u64::from(checked.space.block_bytes.max(1));
    let (mut end, mut holes) = (0, 0);
    while let Some(stored) = seen.first_stored(end)? {
        let before = stored / page_bytes;
        let at = before * page_bytes;
        holes += before - end / page_bytes;
        end = at + page_bytes;
        report(progress, at, size_bytes)?;
        if let Err(error) = connection.read(at, &mut page) {
            if checked.broken.len() < 100 {
                checked.broken.push((before + 1, error.to_string()));
            }
            continue;
        }
        // A page may be several blocks, or a part of one. Such a part counts with the block's first page.
        let blocks = at.next_multiple_of(block_bytes)..end;
        let mut stored_bytes = 0_u64;
        for offset in blocks.step_by(block_bytes as usize) {
            let location = connection.locate(offset)?;
            stored_bytes += location.map_or(0, |it| u64::from(it.stored_bytes()));
        }
        checked.count(PageKind::of(before + 1, &page), 1, stored_bytes);
    }
    holes += size_bytes.saturating_sub(end).div_ceil(page_bytes);
    if holes > 0 {
        checked.count(PageKind::Other, holes, 0);
    }
    checked.kinds.sort_unstable();
    Ok(checked)
}

/// Locks a plain source and returns its header.
fn settled_header(
    storage: &dyn Storage,
    name: &str,
    file: &Arc<dyn StorageFile>,
    locks: &mut Locks,
) -> Result<Header> {
    if !locks.raise(LockLevel::Shared)? {
        return Err(Error::invalid(
            "database",
            format!("{} is being written", quoted(file.path())),
        ));
    }
    let mut bytes = [0; HEADER_BYTES];
    let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0)?;
    let header = Header::parse(&bytes[..read]);
    let header = header.ok_or_else(|| {
        let reason = format!("{} is no plain SQLite database", quoted(&file.path()));
        Error::invalid("database", reason)
    })?;
    for (suffix, what) in [("-wal", "write-ahead log"), ("-journal", "journal")] {
        if is_there(storage, &format!("{name}{suffix}"))? {
            let reason = format!(
                "{} has a {what} beside it: open it once with sqlite3 and run \
                 \"PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode=DELETE;\"",
                quoted(&file.path())
            );
            return Err(Error::invalid("database", reason));
        }
    }
    Ok(header)
}

/// Returns whether a file is there with any content. A finished journal begins with zeros.
fn is_there(storage: &dyn Storage, name: &str) -> Result<bool> {
    let file = match storage.open(name, OpenOptions::read_only()) {
        Ok(file) => file,
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let mut first = [0];
    file.read_at(&mut [IoSliceMut::new(&mut first)], 0)?;
    Ok(first != [0])
}

pub(super) fn lock(connection: &mut Connection, level: LockLevel) -> Result<()> {
    match connection.lock(level)? {
        true => Ok(()),
        false => Err(Error::invalid("database", "somebody is writing to it")),
    }
}

/// Shows the store pages from all over the source, so that it knows methods for the others.
fn learn_pages(
    source: &dyn StorageFile,
    connection: &mut Connection,
    (header, size_bytes): (&Header, u64),
    pool: &Pool,
) -> Result<()> {
    let page_bytes = u64::from(header.page_bytes);
    let step = (size_bytes / page_bytes).div_ceil(SAMPLED_PAGES).max(1) * page_bytes;
    let mut pages = Vec::new();
    for at in (0..size_bytes).step_by(step as usize) {
        let mut page = vec![0; page_bytes as usize];
        source.read_exact_at(&mut page, at)?;
        pages.push(page);
    }
    connection.learn(&pages, size_bytes / USUAL_RATIO, pool)
}

/// Pages to be encoded, as blocks.
struct Chunk {
    first: u64,
    bytes: Vec<u8>,
    chosen: Vec<ChosenEncoding>,
}

/// Returns how many jobs wait for workers or for the collector of their results.
fn ring(pool: &Pool) -> usize {
    2 * pool.worker_count().max(1)
}

/// Writes the chunks that begin at the given places, and makes a checkpoint.
fn write_pages(
    source: &dyn StorageFile,
    connection: &mut Connection,
    (header, size_bytes): (&Header, u64),
    chunks: impl Iterator<Item = u64>,
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<()> {
    let (blocks, extent) = connection.begin_encoded(header.page_bytes as usize)?;
    let block_bytes = extent.block_bytes as usize;
    let draw = |at: u64| -> Result<Chunk> {
        let mut bytes = vec![0; (size_bytes - at).min(CHUNK_BYTES as u64) as usize];
        source.read_exact_at(&mut bytes, at)?;
        serve_versions(at, &mut bytes);
        let first = at / block_bytes as u64;
        let numbered = (first..).zip(bytes.chunks_exact(block_bytes));
        let chosen = numbered.map(|(index, block)| blocks.choose((extent.volume, index), block));
        let chosen = chosen.collect::<Result<_>>()?;
        Ok(Chunk {
            first,
            bytes,
            chosen,
        })
    };
    let encoder = blocks.clone();
    let encode = move |_: &mut (), chunk: Result<Chunk>| encode(&encoder, chunk?, block_bytes);
    let mut stage = pool.stage(ring(pool), || (), encode)?;
    stage.run(chunks.map(draw), |done| {
        let (chunk, encoded) = done?;
        let numbered = (chunk.first..).zip(chunk.bytes.chunks_exact(block_bytes));
        for ((index, block), encoded) in numbered.zip(&encoded) {
            connection.write_encoded(index, block, encoded)?;
        }
        let end = chunk.first * block_bytes as u64 + chunk.bytes.len() as u64;
        report(progress, end, 2 * size_bytes)
    })?;
    connection.commit()?;
    connection.sync()?;
    connection.checkpoint()
}

fn encode(blocks: &Blocks, chunk: Chunk, block_bytes: usize) -> Result<(Chunk, Vec<EncodedBlock>)> {
    let chosen = chunk.chosen.iter();
    let pairs = chosen.zip(chunk.bytes.chunks_exact(block_bytes));
    let encoded = pairs.map(|(chosen, block)| blocks.encode_as(chosen, block));
    let encoded = encoded.collect::<Result<_>>()?;
    Ok((chunk, encoded))
}

/// Has workers process chunks of a database, each with room for two of them. `before` is the progress before, out of
/// twice the database's length.
fn each_chunk(
    chunks: impl Iterator<Item = Result<u64>>,
    (before, size_bytes): (u64, u64),
    pool: &Pool,
    progress: Progress<'_>,
    work: impl Fn(u64, &mut [u8], &mut [u8]) -> Result<()> + Send + Sync + 'static,
) -> Result<()> {
    let room = || [vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]];
    let work = move |[one, two]: &mut [Vec<u8>; 2], at: Result<u64>| {
        let at = at?;
        let count = (size_bytes - at).min(CHUNK_BYTES as u64) as usize;
        work(at, &mut one[..count], &mut two[..count])?;
        Ok(at + count as u64)
    };
    let mut stage = pool.stage(ring(pool), room, work)?;
    stage.run(chunks, |end| {
        report(progress, before + end?, 2 * size_bytes)
    })
}

/// Writes all stored blocks of a database to a plain file of the final length.
fn copy_out(
    reader: Reader,
    file: &Arc<dyn StorageFile>,
    size_bytes: u64,
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<()> {
    let file = Arc::clone(file);
    let chunks = reader.clone().stored_chunks();
    let sizes = (0, size_bytes);
    each_chunk(chunks, sizes, pool, progress, move |at, bytes, _| {
        reader.read(at, bytes)?;
        file.write_at(&[IoSlice::new(bytes)], at)
    })
}

/// Compares chunks of a plain file with a compressed database byte by byte, except bytes that a compressed one serves
/// otherwise.
fn prove(
    plain: &Arc<dyn StorageFile>,
    reader: Reader,
    (chunks, size_bytes): (impl Iterator<Item = Result<u64>>, u64),
    pool: &Pool,
    progress: Progress<'_>,
) -> Result<()> {
    let plain = Arc::clone(plain);
    let sizes = (size_bytes, size_bytes);
    each_chunk(chunks, sizes, pool, progress, move |at, found, expected| {
        plain.read_exact_at(expected, at)?;
        serve_versions(at, expected);
        reader.read(at, found)?;
        match found == expected {
            true => Ok(()),
            false => {
                let expected = "the bytes that were copied";
                Err(Error::corrupt("database", at, expected, "others"))
            }
        }
    })
}

fn report(progress: Progress<'_>, done: u64, total: u64) -> Result<()> {
    match progress(done, total) {
        true => Ok(()),
        false => Err(Error::Interrupted),
    }
}
