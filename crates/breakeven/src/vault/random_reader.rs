//! Files of snapshots, read at any offset by many threads.
//!
//! Promises: every byte handed out is of a chunk whose identity was checked when it was decoded. A chunk lies in the
//! cache once, for all files, snapshots and readers. Two readers of one frame decode it once. Memory: the cache's
//! budget, [`RECENT_FRAMES`] decoded frames, and 24 bytes for each chunk of an open file. Not here: folders, which
//! [`TreeReader`] reads.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::cache::{Cache, CacheOptions};
use crate::codec::Decompressor;
use crate::error::{Error, Result};

use super::cipher::{Id, Keys};
use super::contents::{Chunks, append_bases, chunk_of, missing, read_frame, wrong_content};
use super::far_end::FarEnd;
use super::folder::{Entry, Node};
use super::index::{Index, Place};
use super::pack::{ChunkKind, HEAD_BYTES, OpenFrame};
use super::tree_reader::TreeReader;
use super::{Vault, fail};

/// Decoded frames that are kept beside the cache. They are 1 MiB each by default; this is enough for ten streams with
/// their read-ahead.
const RECENT_FRAMES: usize = 32;
/// Locks for the decoding of frames: more than there are reading threads.
const DECODING_LOCKS: usize = 64;
/// The length of most chunks, by which the cache shapes its memory.
const CHUNK_BYTES: usize = 64 << 10;

/// Reads files of a vault's snapshots at any offset. Threads share one.
pub struct RandomReader {
    far: Arc<dyn FarEnd>,
    keys: Arc<Keys>,
    /// Chunks by their identities, which no other index changes.
    cache: Cache<Id>,
    frames: RwLock<Arc<Frames>>,
    decompressors: Mutex<Vec<Decompressor>>,
}

/// The frames of an index, by their numbers there.
struct Frames {
    index: Arc<Index>,
    /// The newest first.
    recent: Mutex<VecDeque<(u32, Arc<OpenFrame>)>>,
    /// Locks of frames that are no deltas, and of deltas.
    decoding: [[Mutex<()>; DECODING_LOCKS]; 2],
    /// Heads of packs by their numbers in the index.
    heads: Mutex<HashMap<u32, [u8; HEAD_BYTES]>>,
    /// Reads the lists of contents.
    lists: Mutex<Chunks>,
}

/// Where a file's bytes lie.
pub struct FileMap {
    extents: Vec<FileExtent>,
}

/// A chunk of a file, or zeros of any length.
struct FileExtent {
    /// The offset behind it.
    end: u64,
    /// [`Id::NONE`] for zeros.
    content: Id,
}

impl Vault {
    /// Opens the vault's snapshots to be read at any offset, with decoded chunks in a cache of `cache_bytes`.
    ///
    /// # Errors
    /// [`Error::Limit`] if the index takes more than `index_bytes_max`, [`Error::Invalid`] for a budget too small for a
    /// cache; those of the storage.
    pub fn random_reader(&self, index_bytes_max: u64, cache_bytes: u64) -> Result<RandomReader> {
        let options = CacheOptions {
            budget_bytes: cache_bytes,
            block_bytes: CHUNK_BYTES,
            ..CacheOptions::default()
        };
        Ok(RandomReader {
            far: Arc::clone(&self.far),
            keys: Arc::clone(&self.keys),
            cache: Cache::new(options)?,
            frames: RwLock::new(Arc::new(self.frames(index_bytes_max)?)),
            decompressors: Mutex::default(),
        })
    }

    fn frames(&self, index_bytes_max: u64) -> Result<Frames> {
        Ok(Frames {
            index: Arc::new(self.index(index_bytes_max)?),
            recent: Mutex::default(),
            decoding: std::array::from_fn(|_| std::array::from_fn(|_| Mutex::default())),
            heads: Mutex::default(),
            lists: Mutex::new(Chunks::new(&self.far, &self.keys)),
        })
    }
}

impl RandomReader {
    /// Returns a reader of folders over the same index.
    pub fn tree_reader(&self) -> TreeReader {
        TreeReader::of_index(Chunks::new(&self.far, &self.keys), &self.frames().index)
    }

    /// Takes the index of a vault that was read again: chunks that were collected or repaired meanwhile lie elsewhere.
    ///
    /// # Errors
    /// As [`Vault::random_reader`]; the index stays then.
    pub fn renew(&self, vault: &Vault, index_bytes_max: u64) -> Result<()> {
        let frames = Arc::new(vault.frames(index_bytes_max)?);
        *self.frames.write().unwrap_or_else(PoisonError::into_inner) = frames;
        Ok(())
    }

    fn frames(&self) -> Arc<Frames> {
        let frames = self.frames.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&frames)
    }

    /// Finds out where the bytes of a file lie.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an entry that is no file, [`Error::Corrupt`] for a damaged list of its chunks or a file
    /// that is one missing chunk; those of the storage.
    pub fn open(&self, file: &Entry) -> Result<FileMap> {
        let Node::File {
            size_bytes,
            content,
            ..
        } = file.node
        else {
            return Err(Error::invalid("entry", "it is no file"));
        };
        let mut extents = Vec::new();
        if size_bytes == 0 {
            return Ok(FileMap { extents });
        }
        let frames = self.frames();
        let place = frames.place_of(frames.index.lies_under(content))?;
        if place.kind == ChunkKind::Plain {
            extents.push(FileExtent {
                end: size_bytes,
                content,
            });
            return Ok(FileMap { extents });
        }
        let mut end = 0;
        let mut push = |content: Id, length: u64| {
            end += length;
            extents.push(FileExtent { end, content });
        };
        lock(&frames.lists).each_extent(&frames.index, content, &mut push)?;
        match end == size_bytes {
            true => Ok(FileMap { extents }),
            false => {
                let found = format!("{end} bytes");
                Err(fail("file", 0, format!("{size_bytes} bytes"), found))
            }
        }
    }

    /// Fills `buffer` from an offset of a file on. Returns how many bytes there were: fewer than asked for at the
    /// file's end alone.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged or missing chunk; those of the storage.
    pub fn read_at(&self, file: &FileMap, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let first = file.extent_at(offset);
        let mut done = 0;
        for (at, extent) in file.extents.iter().enumerate().skip(first) {
            if done == buffer.len() {
                break;
            }
            let here = offset + done as u64;
            let count = (extent.end - here).min((buffer.len() - done) as u64) as usize;
            let wanted = &mut buffer[done..done + count];
            if extent.content == Id::NONE {
                wanted.fill(0);
            } else {
                let start = file.start(at);
                let length = (extent.end - start) as usize;
                self.read_chunk(extent.content, length, (here - start) as usize, wanted)?;
            }
            done += count;
        }
        Ok(done)
    }

    /// Decodes the frame in which an offset of a file lies, so that a read there need not wait. That read reports a
    /// fault of the frame.
    pub fn prepare(&self, file: &FileMap, offset: u64) {
        let Some(extent) = file.extents.get(file.extent_at(offset)) else {
            return;
        };
        let frames = self.frames();
        if let Some(place) = frames.index.find(&extent.content) {
            let _ = self.frame(&frames, place.frame);
        }
    }

    /// Copies a part of a chunk.
    fn read_chunk(&self, id: Id, length: usize, from: usize, wanted: &mut [u8]) -> Result<()> {
        let load = |bytes: &mut [u8]| {
            let frames = self.frames();
            let place = frames.place_of(id)?;
            let frame = self.frame(&frames, place.frame)?;
            let chunk = chunk_of(&frame, place.ordinal)?;
            if chunk.len() != bytes.len() || self.keys.id(chunk) != id {
                return Err(wrong_content(id));
            }
            bytes.copy_from_slice(chunk);
            Ok(())
        };
        let part = from..from + wanted.len();
        match self.cache.get_or_load(id, length, load) {
            Ok(block) => {
                let part = block.get(part).ok_or_else(|| wrong_content(id))?;
                wanted.copy_from_slice(part);
                Ok(())
            }
            // Many readers of chunks too long for the cache.
            Err(Error::Limit { .. }) => {
                let mut own = vec![0; length];
                load(&mut own)?;
                wanted.copy_from_slice(&own[part]);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Returns a frame by its number in the index; one thread decodes it, the others wait.
    fn frame(&self, frames: &Frames, number: u32) -> Result<Arc<OpenFrame>> {
        if let Some(frame) = frames.recent(number) {
            return Ok(frame);
        }
        // The decoder of a delta waits for its bases, and the decoder of a base never waits for a delta.
        let is_delta = frames.index.frame(number).is_delta();
        let decoding = &frames.decoding[usize::from(is_delta)];
        let _decoding = lock(&decoding[number as usize % DECODING_LOCKS]);
        if let Some(frame) = frames.recent(number) {
            return Ok(frame);
        }
        let pack = frames.index.frame(number).pack;
        let mut head = lock(&frames.heads).get(&pack).copied();
        let read = read_frame(&*self.far, &self.keys, &frames.index, number, &mut head)?;
        if let Some(head) = head {
            lock(&frames.heads).insert(pack, head);
        }
        let mut prefix = Vec::new();
        append_bases(&frames.index, read.bases(), &mut prefix, &mut |number| {
            self.frame(frames, number)
        })?;
        let mut decompressor = lock(&self.decompressors).pop().unwrap_or_default();
        let decoded = read.decode(&prefix, &mut decompressor);
        lock(&self.decompressors).push(decompressor);
        let frame = Arc::new(decoded?);
        let mut recent = lock(&frames.recent);
        recent.truncate(RECENT_FRAMES - 1);
        recent.push_front((number, Arc::clone(&frame)));
        Ok(frame)
    }
}

impl Frames {
    fn place_of(&self, id: Id) -> Result<Place> {
        self.index.find(&id).ok_or_else(|| missing(id))
    }

    /// Returns a frame that was decoded lately, and makes it the newest.
    fn recent(&self, number: u32) -> Option<Arc<OpenFrame>> {
        let mut recent = lock(&self.recent);
        let at = recent.iter().position(|(known, _)| *known == number)?;
        let found = recent.remove(at)?;
        let frame = Arc::clone(&found.1);
        recent.push_front(found);
        Some(frame)
    }
}

impl FileMap {
    /// Returns the number of the extent in which an offset lies.
    fn extent_at(&self, offset: u64) -> usize {
        self.extents.partition_point(|extent| extent.end <= offset)
    }

    fn start(&self, at: usize) -> u64 {
        at.checked_sub(1)
            .map_or(0, |before| self.extents[before].end)
    }

    /// Returns how many bytes are stored: all but unstored zeros.
    pub fn data_bytes(&self) -> u64 {
        let data = (self.extents.iter().enumerate()).filter(|(_, it)| it.content != Id::NONE);
        data.map(|(at, extent)| extent.end - self.start(at)).sum()
    }

    /// Returns the start of stored bytes, at an offset or behind it; nothing if only zeros follow.
    pub fn next_data(&self, offset: u64) -> Option<u64> {
        self.next(offset, |content| content != Id::NONE)
    }

    /// Returns the start of unstored zeros, at an offset or behind it; nothing if none follow.
    pub fn next_hole(&self, offset: u64) -> Option<u64> {
        self.next(offset, |content| content == Id::NONE)
    }

    fn next(&self, offset: u64, is_meant: impl Fn(Id) -> bool) -> Option<u64> {
        let first = self.extent_at(offset);
        let behind = self.extents.get(first..)?;
        let ahead = behind.iter().position(|extent| is_meant(extent.content))?;
        Some(self.start(first + ahead).max(offset))
    }
}

/// Locks a value that a panic elsewhere leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
