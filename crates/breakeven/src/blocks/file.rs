//! Reading the store's file: frames, map nodes and chunks of the table, each checked by its record.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use super::dictionary::{DICTIONARIES_MAX, KeptDictionaries};
use super::layout::{
    FRAME_PREFIX_BYTES, FramePrefix, KIND_CHUNK, KIND_DICTIONARY, KIND_FRAME, KIND_MOVE, KIND_NODE,
    NODE_PREFIX_BYTES, u32_at,
};
use super::overlay::NodeCache;
use super::place::{Place, Segment, Segments};
use super::state::{NODE_SLOTS, Node};
use super::table::Chunk;
use crate::codec::{Compressor, Decoder, Decompressor};
use crate::dictionaries::Generation;
use crate::error::{Error, Result};
use crate::storage::StorageFile;
use crate::storage::record::{Record, Region, parse};

/// The least block: a sector.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// The longest block.
pub const BLOCK_BYTES_MAX: u32 = 65_536;

/// Checks that a volume may have blocks of this length.
///
/// # Errors
/// [`Error::Invalid`] if not.
pub(super) fn check_block_bytes(block_bytes: u32) -> Result<()> {
    let range = BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX;
    if !block_bytes.is_power_of_two() || !range.contains(&block_bytes) {
        let reason = format!("{block_bytes} bytes, not a power of two in {range:?}");
        return Err(Error::invalid("block size", reason));
    }
    Ok(())
}

/// The most bytes read at once. They stay in the processor's cache until they are decoded.
const READ_BYTES_MAX: u64 = 256 << 10;
/// Bytes read for nothing between two frames: this costs less than a second read.
const READ_GAP_BYTES: u64 = 4 << 10;

/// Cleaning may read one byte of segments for so many that were encoded or decoded: half of a tenth of the work. A byte
/// of a segment took 1 ns where the last close cut 435 MB to 55 MB, encoding some 8 and decoding 1.5 (an EPYC).
const ENCODED_PART: u64 = 2;
const DECODED_PART: u64 = 10;

/// Working memory of one thread at a time.
#[derive(Default)]
pub(super) struct Workspace {
    pub(super) compressor: Compressor,
    pub(super) decompressor: Decompressor,
    /// A record as read, or a block as encoded.
    pub(super) bytes: Vec<u8>,
    /// A block that is encoded again.
    pub(super) block: Vec<u8>,
}

/// This process's work with blocks, in bytes. Cleaning without a request is bounded by it.
#[derive(Debug, Default)]
pub(super) struct BlockWork {
    encoded_bytes: AtomicU64,
    decoded_bytes: AtomicU64,
    spent_bytes: AtomicU64,
}

impl BlockWork {
    pub(super) fn note_encoded(&self, bytes: usize) {
        self.encoded_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn note_decoded(&self, bytes: usize) {
        self.decoded_bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn spend(&self, bytes: u64) {
        self.spent_bytes.fetch_add(bytes, Relaxed);
    }

    /// Returns the bytes of cleaned segments that may be read, for a tenth of the work.
    pub(super) fn earned_bytes(&self) -> u64 {
        let encoded_bytes = self.encoded_bytes.load(Relaxed);
        let decoded_bytes = self.decoded_bytes.load(Relaxed);
        let earned_bytes = encoded_bytes / ENCODED_PART + decoded_bytes / DECODED_PART;
        earned_bytes.saturating_sub(self.spent_bytes.load(Relaxed))
    }
}

/// The key of a node in the file. A place alone is used again.
type NodeKey = (u64, u64);

/// The file of a store, for reading.
pub(super) struct StoreFile {
    pub(super) file: Arc<dyn StorageFile>,
    pub(super) log_id: [u8; 16],
    nodes: NodeCache<NodeKey, Node>,
    chunks: NodeCache<NodeKey, Chunk>,
    /// The dictionaries read so far, so that a new look at the store reads none of them again.
    dictionaries: Mutex<HashMap<NodeKey, Arc<Generation>>>,
    workspaces: Mutex<Vec<Workspace>>,
    pub(super) work: BlockWork,
}

impl StoreFile {
    pub(super) fn new(
        file: Arc<dyn StorageFile>,
        log_id: [u8; 16],
        map_cache_bytes: usize,
    ) -> StoreFile {
        // Half for the maps' nodes of 4 KiB, half for the table's chunks of 4 KiB in memory.
        let count_max = map_cache_bytes / 2 / 4096;
        StoreFile {
            file,
            log_id,
            nodes: NodeCache::new(count_max),
            chunks: NodeCache::new(count_max),
            dictionaries: Mutex::default(),
            workspaces: Mutex::default(),
            work: BlockWork::default(),
        }
    }

    /// Lends working memory to `work`.
    pub(super) fn with_workspace<R>(&self, work: impl FnOnce(&mut Workspace) -> R) -> R {
        let idle = || {
            self.workspaces
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let workspace = idle().pop();
        let mut workspace = workspace.unwrap_or_default();
        let result = work(&mut workspace);
        idle().push(workspace);
        result
    }

    /// Reads the blocks of a run of frames into `target`, zeros for those without a place. Frames close together in the
    /// file are read at once.
    pub(super) fn read_frames(
        &self,
        ids: &[u32],
        places: &[Place],
        (segments, dictionaries): (&Segments, &KeptDictionaries),
        target: &mut [u8],
    ) -> Result<()> {
        self.work.note_decoded(target.len());
        let block_bytes = target.len() / ids.len().max(1);
        let mut blocks = target.chunks_exact_mut(block_bytes.max(1));
        let mut from = 0;
        while from < ids.len() {
            if ids[from] == 0 {
                blocks.next().expect("a block for each frame").fill(0);
                from += 1;
                continue;
            }
            let segment = self.segment_of(places[from], segments)?;
            let count = close_together(&places[from..], segment.range().end);
            let (start, last) = (places[from].address(), places[from + count - 1]);
            let region = Region::new(self.log_id, segment.generation, segment.range());
            self.with_workspace(|workspace| {
                let bytes = &mut workspace.bytes;
                bytes.resize((last.address() + last.record_bytes() - start) as usize, 0);
                self.file.read_exact_at(bytes, start)?;
                for (id, place) in ids[from..].iter().zip(&places[from..]).take(count) {
                    let address = place.address();
                    let record =
                        &bytes[(address - start) as usize..][..place.record_bytes() as usize];
                    let record =
                        parse(record, &region, address).map_err(|gap| gap.into_error(address))?;
                    let block = blocks.next().expect("a block for each frame");
                    let with = (dictionaries, &mut workspace.decompressor);
                    decode_frame(&record, *id, with, block)?;
                }
                Ok(())
            })?;
            from += count;
        }
        Ok(())
    }

    /// Returns the segment that holds all of a record.
    fn segment_of(&self, place: Place, segments: &Segments) -> Result<Segment> {
        let (address, bytes) = (place.address(), place.record_bytes());
        let segment = segments.find(address).map(|segment| segments.get(segment));
        let inside = segment.filter(|it| address + bytes <= it.range().end && !place.is_none());
        inside.ok_or_else(|| {
            Error::corrupt("block store", address, "a place", format!("{bytes} bytes"))
        })
    }

    /// Reads the record at `place` and hands it to `take`.
    pub(super) fn with_record<R>(
        &self,
        place: Place,
        segments: &Segments,
        take: impl FnOnce(&Record<'_>, &mut Decompressor) -> Result<R>,
    ) -> Result<R> {
        let (address, bytes) = (place.address(), place.record_bytes());
        let segment = self.segment_of(place, segments)?;
        self.with_workspace(|workspace| {
            workspace.bytes.resize(bytes as usize, 0);
            self.file.read_exact_at(&mut workspace.bytes, address)?;
            let region = Region::new(self.log_id, segment.generation, segment.range());
            let record = parse(&workspace.bytes, &region, address);
            let record = record.map_err(|gap| gap.into_error(address))?;
            take(&record, &mut workspace.decompressor)
        })
    }

    fn node_key(place: Place, segments: &Segments) -> NodeKey {
        let segment = segments.find(place.address());
        let generation = segment.map_or(0, |segment| segments.get(segment).generation);
        (place.word(), generation)
    }

    /// Reads a map node.
    pub(super) fn node(&self, place: Place, id: u32, segments: &Segments) -> Result<Arc<Node>> {
        let (key, shard) = (Self::node_key(place, segments), u64::from(id));
        if let Some(node) = self.nodes.get(key, shard) {
            return Ok(node);
        }
        let node = self.with_record(place, segments, |record, _| {
            let is_node = record.label.kind == KIND_NODE && record.body.len() >= NODE_PREFIX_BYTES;
            let is_own = is_node && u32_at(record.body, 0) == id;
            let slots = record.body.get(NODE_PREFIX_BYTES..).unwrap_or_default();
            if !is_own || !slots.len().is_multiple_of(4) || slots.len() / 4 > NODE_SLOTS {
                let expected = format!("the map node of frame {id}");
                return Err(Error::corrupt(
                    "block store",
                    place.address(),
                    expected,
                    "another",
                ));
            }
            Ok(Node {
                level: u32_at(record.body, 4),
                slots: slots.chunks_exact(4).map(|slot| u32_at(slot, 0)).collect(),
            })
        })?;
        let node = Arc::new(node);
        self.nodes.insert(key, shard, Arc::clone(&node));
        Ok(node)
    }

    /// Keeps a node that was just written.
    pub(super) fn keep_node(&self, place: Place, id: u32, segments: &Segments, node: &Arc<Node>) {
        let key = Self::node_key(place, segments);
        self.nodes.insert(key, u64::from(id), Arc::clone(node));
    }

    /// Reads a chunk of the frame table.
    pub(super) fn chunk(
        &self,
        place: Place,
        level: u32,
        number: u32,
        segments: &Segments,
    ) -> Result<Arc<Chunk>> {
        let (key, shard) = (Self::node_key(place, segments), u64::from(number));
        if let Some(chunk) = self.chunks.get(key, shard) {
            return Ok(chunk);
        }
        let chunk = self.with_record(place, segments, |record, _| {
            let is_chunk =
                record.label.kind == KIND_CHUNK && record.body.len() >= NODE_PREFIX_BYTES;
            let is_own =
                is_chunk && (u32_at(record.body, 0), u32_at(record.body, 4)) == (level, number);
            let chunk = is_own.then(|| Chunk::decode(level, &record.body[NODE_PREFIX_BYTES..]));
            chunk.flatten().ok_or_else(|| {
                let expected = format!("chunk {number} of level {level}");
                Error::corrupt("frame table", place.address(), expected, "another")
            })
        })?;
        let chunk = Arc::new(chunk);
        self.chunks.insert(key, shard, Arc::clone(&chunk));
        Ok(chunk)
    }

    /// Keeps a chunk that was just written.
    pub(super) fn keep_chunk(
        &self,
        place: Place,
        number: u32,
        segments: &Segments,
        chunk: &Arc<Chunk>,
    ) {
        let key = Self::node_key(place, segments);
        self.chunks
            .insert(key, u64::from(number), Arc::clone(chunk));
    }

    /// Reads a dictionary from its first whole copy, and says whether that is the first at all; `None` if neither is
    /// whole.
    ///
    /// # Errors
    /// Those of reading, if they are the cause.
    pub(super) fn dictionary(
        &self,
        places: [Place; 2],
        id: u32,
        segments: &Segments,
    ) -> Result<Option<(Arc<Generation>, bool)>> {
        let known = || (self.dictionaries.lock()).unwrap_or_else(PoisonError::into_inner);
        let key = Self::node_key(places[0], segments);
        if let Some(generation) = known().get(&key) {
            return Ok(Some((Arc::clone(generation), true)));
        }
        let read = |place: Place| self.check_dictionary(place, id, segments).map(Arc::new);
        let generation = match (read(places[0]), places[1]) {
            (Ok(generation), _) => generation,
            (Err(fault), second) => {
                return match (read(second), fault) {
                    (Ok(generation), _) => Ok(Some((generation, false))),
                    (Err(error @ Error::Io { .. }), _) | (_, error @ Error::Io { .. }) => {
                        Err(error)
                    }
                    _ => Ok(None),
                };
            }
        };
        let mut known = known();
        if known.len() >= 2 * DICTIONARIES_MAX {
            known.clear();
        }
        known.insert(key, Arc::clone(&generation));
        Ok(Some((generation, true)))
    }

    /// Reads one copy of a dictionary from the file and checks it against its name.
    pub(super) fn check_dictionary(
        &self,
        place: Place,
        id: u32,
        segments: &Segments,
    ) -> Result<Generation> {
        self.with_record(place, segments, |record, _| {
            let is_one = record.label.kind == KIND_DICTIONARY;
            let found = is_one
                .then(|| Generation::from_body(record.body))
                .transpose()?;
            found
                .filter(|generation| generation.id == id)
                .ok_or_else(|| {
                    let expected = format!("dictionary {id}");
                    Error::corrupt("block store", place.address(), expected, "another")
                })
        })
    }

    /// Reads the block of frame `id` into `target`. Returns the number of its dictionary, 0 for none.
    pub(super) fn read_frame(
        &self,
        place: Place,
        id: u32,
        (segments, dictionaries): (&Segments, &KeptDictionaries),
        target: &mut [u8],
    ) -> Result<u32> {
        self.work.note_decoded(target.len());
        self.with_record(place, segments, |record, decompressor| {
            decode_frame(record, id, (dictionaries, decompressor), target)?;
            Ok(record.label.dictionary)
        })
    }
}

/// Returns how many of the first places one read can cover, since they follow each other closely.
fn close_together(places: &[Place], end_max: u64) -> usize {
    let start = places[0].address();
    let mut end = start + places[0].record_bytes();
    let mut count = 1;
    for place in &places[1..] {
        let (address, bytes) = (place.address(), place.record_bytes());
        let is_close = !place.is_none()
            && (end..=end + READ_GAP_BYTES).contains(&address)
            && address + bytes <= end_max.min(start + READ_BYTES_MAX);
        if !is_close {
            break;
        }
        end = address + bytes;
        count += 1;
    }
    count
}

/// Decodes the block in a record that must be that of frame `id`. If the record has fewer raw bytes than the target,
/// zeros follow.
pub(super) fn decode_frame(
    record: &Record<'_>,
    id: u32,
    (dictionaries, decompressor): (&KeptDictionaries, &mut Decompressor),
    target: &mut [u8],
) -> Result<()> {
    let prefix = frame_prefix(record)?;
    let raw_bytes = record.label.raw_bytes as usize;
    if prefix.id != id || raw_bytes > target.len() {
        let expected = format!("frame {id} of {} bytes", target.len());
        let found = format!("frame {} of {raw_bytes} bytes", prefix.id);
        return Err(Error::corrupt(
            "block store",
            record.address,
            expected,
            found,
        ));
    }
    let decoder = Decoder {
        codec: record.label.codec,
        filter: record.label.filter,
        dictionary: record.label.dictionary,
    };
    let stored = &record.body[FRAME_PREFIX_BYTES..];
    let (target, tail) = target.split_at_mut(raw_bytes);
    tail.fill(0);
    let decoded = match decoder.dictionary {
        0 => decompressor.decompress(decoder, stored, target),
        number => {
            let dictionary = &dictionaries.generation(number)?.dictionary;
            decompressor.decompress_with(decoder, dictionary, stored, target)
        }
    };
    decoded.map_err(|error| error.moved_by(record.address))
}

/// Reads the frame prefix of a record.
pub(super) fn frame_prefix(record: &Record<'_>) -> Result<FramePrefix> {
    let is_frame = matches!(record.label.kind, KIND_FRAME | KIND_MOVE);
    let prefix = FramePrefix::decode(record.body).filter(|_| is_frame);
    prefix.ok_or_else(|| {
        let found = format!("a record of kind {}", record.label.kind);
        Error::corrupt("block store", record.address, "a frame", found)
    })
}
