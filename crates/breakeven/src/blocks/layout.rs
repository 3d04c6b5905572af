//! The bytes of the store's own records and of its superblock, as `docs/format.md` has them.
//!
//! Everything here is layout. Encoded values read back to themselves, and bytes that no encoder made are `None`.

use std::ops::Range;
use std::sync::Arc;

use super::place::{Place, Segment, is_segment};
use super::state::{INDEX_MAX, MAP_HEIGHT_MAX, NOTE_BYTES_MAX, Volume};
use super::table::HEIGHT_MAX;
use crate::storage::superblock::{SLOT_BYTES, StoreKind};

/// The superblock's facts about the store.
pub(super) const KIND: StoreKind = StoreKind {
    known_flags: FLAG_END,
    ..StoreKind::new(*b"BLKS", 1)
};
/// Both slots lead to the same state, and the payload has an end.
pub(super) const FLAG_END: u64 = 1;
/// Where the first segment starts.
pub(super) const SEGMENTS_START: u64 = 2 * SLOT_BYTES as u64;

/// A block that was written.
pub(super) const KIND_FRAME: u8 = 2;
/// A block that the cleaner moved.
pub(super) const KIND_MOVE: u8 = 3;
/// A node of a volume's map.
pub(super) const KIND_NODE: u8 = 4;
/// A chunk of the frame table.
pub(super) const KIND_CHUNK: u8 = 5;
/// Part of a checkpoint's lists.
pub(super) const KIND_LIST: u8 = 6;
pub(super) const KIND_CHECKPOINT: u8 = 7;
/// Operations that stand before the frame behind them.
pub(super) const KIND_OPERATIONS: u8 = 8;
pub(super) const KIND_COMMIT: u8 = 9;
/// The log goes on in the successor.
pub(super) const KIND_END: u8 = 10;
/// A dictionary; there are two of each.
pub(super) const KIND_DICTIONARY: u8 = 11;
/// The commit before it may be seen.
pub(super) const KIND_PUBLICATION: u8 = 12;

pub(super) const FRAME_PREFIX_BYTES: usize = 16;
pub(super) const NODE_PREFIX_BYTES: usize = 8;
/// The commit's fields before the operations.
pub(super) const COMMIT_PREFIX_BYTES: usize = 40;
/// The longest name of a commit's coordinator: twice the longest path of SQLite.
pub(crate) const COORDINATOR_BYTES_MAX: usize = 1024;
/// The mode of a commit that is made durable before it is seen, and has a coordinator.
const COORDINATED: u32 = 2;

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes"))
}

/// Takes fields from the front of stored bytes.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes(2).map(|b| u16::from_le_bytes([b[0], b[1]]))
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(|bytes| u32_at(bytes, 0))
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes(8).map(|bytes| u64_at(bytes, 0))
    }

    fn place(&mut self) -> Option<Place> {
        self.u64().and_then(Place::from_stored)
    }
}

/// The bytes of a place with the segment it lies in.
const PLACE_BYTES: usize = 32;

impl Fields<'_> {
    /// Takes a segment and a place in it.
    fn place_in_segment(&mut self) -> Option<(Segment, Place)> {
        let segment = Segment {
            start: self.u64()?,
            bytes: self.u64()?,
            generation: self.u64()?,
        };
        let place = self.place()?;
        let is_inside = is_segment(segment.start, segment.bytes)
            && place.address() >= segment.start
            && place.address() + place.record_bytes() <= segment.range().end;
        is_inside.then_some((segment, place))
    }
}

fn put_place(segment: &Segment, place: Place, out: &mut Vec<u8>) {
    let words = [
        segment.start,
        segment.bytes,
        segment.generation,
        place.word(),
    ];
    words
        .iter()
        .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// The fields before the encoded bytes of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FramePrefix {
    pub(super) id: u32,
    pub(super) volume: u32,
    pub(super) index: u64,
}

impl FramePrefix {
    pub(super) fn encode(&self) -> [u8; FRAME_PREFIX_BYTES] {
        let mut bytes = [0; FRAME_PREFIX_BYTES];
        bytes[..4].copy_from_slice(&self.id.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.volume.to_le_bytes());
        bytes[8..].copy_from_slice(&self.index.to_le_bytes());
        bytes
    }

    pub(super) fn decode(body: &[u8]) -> Option<FramePrefix> {
        let mut fields = Fields(body);
        Some(FramePrefix {
            id: fields.u32()?,
            volume: fields.u32()?,
            index: fields.u64()?,
        })
    }
}

/// Every change of a transaction but the writing of blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Trim { volume: u32, range: Range<u64> },
    Resize { volume: u32, size_blocks: u64 },
    Note { key: u32, bytes: Arc<[u8]> },
    Alias { from: (u32, u64), to: (u32, u64) },
    Create { volume: u32, block_bytes: u32 },
    Clone { from: u32, to: u32 },
    Remove { volume: u32 },
}

impl Operation {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut put = |tag: u8, fields: &[&[u8]]| {
            out.push(tag);
            fields.iter().for_each(|field| out.extend_from_slice(field));
        };
        match self {
            Operation::Trim { volume, range } => {
                let count = range.end - range.start;
                let fields = [
                    &volume.to_le_bytes()[..],
                    &range.start.to_le_bytes(),
                    &count.to_le_bytes(),
                ];
                put(1, &fields);
            }
            Operation::Resize {
                volume,
                size_blocks,
            } => {
                put(2, &[&volume.to_le_bytes(), &size_blocks.to_le_bytes()]);
            }
            Operation::Note { key, bytes } => {
                let length = bytes.len() as u16;
                put(3, &[&key.to_le_bytes(), &length.to_le_bytes(), bytes]);
            }
            Operation::Alias { from, to } => {
                let volumes = [from.0.to_le_bytes(), to.0.to_le_bytes()];
                let indexes = [from.1.to_le_bytes(), to.1.to_le_bytes()];
                put(4, &[&volumes[0], &indexes[0], &volumes[1], &indexes[1]]);
            }
            Operation::Create {
                volume,
                block_bytes,
            } => {
                put(5, &[&volume.to_le_bytes(), &block_bytes.to_le_bytes()]);
            }
            Operation::Clone { from, to } => put(6, &[&from.to_le_bytes(), &to.to_le_bytes()]),
            Operation::Remove { volume } => put(7, &[&volume.to_le_bytes()]),
        }
    }

    /// Reads operations until the bytes end.
    pub(super) fn decode_all(bytes: &[u8]) -> Option<Vec<Operation>> {
        let mut fields = Fields(bytes);
        let mut operations = Vec::new();
        while !fields.0.is_empty() {
            operations.push(Operation::decode(&mut fields)?);
        }
        Some(operations)
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Operation> {
        Some(match fields.u8()? {
            1 => {
                let (volume, start, count) = (fields.u32()?, fields.u64()?, fields.u64()?);
                let end = start.checked_add(count)?;
                let range = start..end;
                Operation::Trim { volume, range }
            }
            2 => {
                let (volume, size_blocks) = (fields.u32()?, fields.u64()?);
                Operation::Resize {
                    volume,
                    size_blocks,
                }
            }
            3 => {
                let (key, length) = (fields.u32()?, usize::from(fields.u16()?));
                let bytes = fields.bytes(length).filter(|_| length <= NOTE_BYTES_MAX)?;
                let bytes = Arc::from(bytes);
                Operation::Note { key, bytes }
            }
            4 => Operation::Alias {
                from: (fields.u32()?, fields.u64()?),
                to: (fields.u32()?, fields.u64()?),
            },
            5 => {
                let (volume, block_bytes) = (fields.u32()?, fields.u32()?);
                Operation::Create {
                    volume,
                    block_bytes,
                }
            }
            6 => {
                let (from, to) = (fields.u32()?, fields.u32()?);
                Operation::Clone { from, to }
            }
            7 => {
                let volume = fields.u32()?;
                Operation::Remove { volume }
            }
            _ => return None,
        })
    }
}

/// A commit: it makes a transaction of the records before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Commit {
    pub(super) number: u64,
    /// Every record with a lower number was synced when this one was written.
    pub(super) synced_sequence: u64,
    /// The number of records before this one in the transaction.
    pub(super) record_count: u32,
    /// crc32c over the chain of the commit before, and the checksums of those records.
    pub(super) chain: u32,
    /// Whether it is made durable before it is seen. Where several processes write, a publication shows it.
    pub(super) is_durable: bool,
    /// The ids that the transaction leaves, so that a replay that differs is noticed.
    pub(super) next_frame: u32,
    pub(super) free_head: u32,
    /// The length of its coordinator's name, 0 without one.
    pub(super) coordinator_bytes: u32,
}

impl Commit {
    pub(super) fn encode(&self) -> [u8; COMMIT_PREFIX_BYTES] {
        let mut bytes = [0; COMMIT_PREFIX_BYTES];
        bytes[..8].copy_from_slice(&self.number.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.synced_sequence.to_le_bytes());
        let words = [
            self.record_count,
            self.chain,
            match self.coordinator_bytes {
                0 => self.is_durable.into(),
                _ => COORDINATED,
            },
            self.next_frame,
            self.free_head,
            self.coordinator_bytes,
        ];
        for (word, bytes) in words.iter().zip(bytes[16..].chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Reads the fields. Returns the rest, which holds the operations and the coordinator's name.
    pub(super) fn decode(body: &[u8]) -> Option<(Commit, &[u8])> {
        let mut fields = Fields(body);
        let (number, synced_sequence) = (fields.u64()?, fields.u64()?);
        let (record_count, chain, durability) = (fields.u32()?, fields.u32()?, fields.u32()?);
        let commit = Commit {
            number,
            synced_sequence,
            record_count,
            chain,
            is_durable: durability != 0,
            next_frame: fields.u32()?,
            free_head: fields.u32()?,
            coordinator_bytes: fields.u32()?,
        };
        let longest = fields.0.len().min(COORDINATOR_BYTES_MAX);
        let is_valid = match durability {
            0 | 1 => commit.coordinator_bytes == 0,
            COORDINATED => (1..=longest).contains(&(commit.coordinator_bytes as usize)),
            _ => false,
        };
        is_valid.then_some((commit, fields.0))
    }

    /// Splits the rest behind the fields into operations and the coordinator's name.
    pub(super) fn split<'a>(&self, rest: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        rest.split_at(rest.len() - self.coordinator_bytes as usize)
    }
}

/// The start of a log, or its continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) segment: Segment,
    /// Start and length of the segment behind it.
    pub(super) successor: (u64, u64),
    pub(super) address: u64,
    /// The number of the next record.
    pub(super) sequence: u64,
}

impl Position {
    fn encode(&self, out: &mut Vec<u8>) {
        let Segment {
            start,
            bytes,
            generation,
        } = self.segment;
        let (next_start, next_bytes) = self.successor;
        for word in [
            start,
            bytes,
            generation,
            next_start,
            next_bytes,
            self.address,
            self.sequence,
        ] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Position> {
        let mut words = [0; 7];
        for word in &mut words {
            *word = fields.u64()?;
        }
        let [
            start,
            bytes,
            generation,
            next_start,
            next_bytes,
            address,
            sequence,
        ] = words;
        let is_sound = is_segment(start, bytes)
            && is_segment(next_start, next_bytes)
            && (start..=start + bytes).contains(&address)
            && address.is_multiple_of(16)
            && generation < u64::MAX >> 1
            && sequence < 1 << 48;
        is_sound.then_some(Position {
            segment: Segment {
                start,
                bytes,
                generation,
            },
            successor: (next_start, next_bytes),
            address,
            sequence,
        })
    }
}

/// The payload of a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payload {
    pub(super) block_bytes_max: u32,
    /// Segments are multiples of this.
    pub(super) segment_bytes_min: u32,
    /// The checkpoint's last record and the segment it lies in; none before the first checkpoint.
    pub(super) checkpoint: Option<(Segment, Place)>,
    /// The start of the log behind it.
    pub(super) log: Position,
    /// The number behind the last durable record of the log, where it does not go on.
    pub(super) end: Option<u64>,
}

impl Payload {
    /// Returns the payload for a store that has blocks of such a length as well. Segments begun from then on have room
    /// for several.
    pub(super) fn with_blocks_of(self, block_bytes: u32) -> Payload {
        if block_bytes <= self.block_bytes_max {
            return self;
        }
        let segment_bytes = super::segment_bytes_usual(block_bytes);
        Payload {
            block_bytes_max: block_bytes,
            segment_bytes_min: self.segment_bytes_min.max(segment_bytes),
            ..self
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.block_bytes_max.to_le_bytes());
        out.extend_from_slice(&self.segment_bytes_min.to_le_bytes());
        let none = Segment {
            start: 0,
            bytes: 0,
            generation: 0,
        };
        let (segment, place) = self.checkpoint.unwrap_or((none, Place::NONE));
        put_place(&segment, place, &mut out);
        self.log.encode(&mut out);
        out.extend_from_slice(&self.end.unwrap_or(0).to_le_bytes());
        out
    }

    pub(super) fn decode(payload: &[u8]) -> Option<Payload> {
        let mut fields = Fields(payload);
        let (block_bytes_max, segment_bytes_min) = (fields.u32()?, fields.u32()?);
        let checkpoint = match fields.0.get(..PLACE_BYTES)?.iter().all(|byte| *byte == 0) {
            true => fields.bytes(PLACE_BYTES).map(|_| None)?,
            false => Some(fields.place_in_segment()?),
        };
        let log = Position::decode(&mut fields)?;
        // Before the flag existed, there was no end.
        let end = match fields.0 {
            [] => 0,
            _ => fields.u64()?,
        };
        let geometry = (super::file::BLOCK_BYTES_MIN..=super::file::BLOCK_BYTES_MAX)
            .contains(&block_bytes_max)
            && block_bytes_max.is_power_of_two()
            && segment_bytes_min.is_multiple_of(4096)
            && segment_bytes_min >= super::segment_bytes_least(block_bytes_max)
            && segment_bytes_min <= super::SEGMENT_BYTES_MAX as u32;
        (geometry && fields.0.is_empty()).then_some(Payload {
            block_bytes_max,
            segment_bytes_min,
            checkpoint,
            log,
            end: (end > 0).then_some(end),
        })
    }
}

/// An entry of a checkpoint's lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Segment {
        segment: Segment,
        live_bytes: u64,
    },
    Volume {
        number: u32,
        volume: Volume,
    },
    Note {
        key: u32,
        bytes: Arc<[u8]>,
    },
    Dictionary {
        id: u32,
        last_use: u64,
        places: [Place; 2],
    },
}

impl Listed {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Listed::Segment {
                segment,
                live_bytes,
            } => {
                out.push(1);
                for word in [
                    segment.start,
                    segment.bytes,
                    segment.generation,
                    *live_bytes,
                ] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
            }
            Listed::Volume { number, volume } => {
                out.push(2);
                out.extend_from_slice(&number.to_le_bytes());
                out.extend_from_slice(&volume.block_bytes.to_le_bytes());
                out.extend_from_slice(&volume.size_blocks.to_le_bytes());
                out.extend_from_slice(&volume.root.to_le_bytes());
                out.extend_from_slice(&volume.height.to_le_bytes());
            }
            Listed::Note { key, bytes } => {
                out.push(3);
                out.extend_from_slice(&key.to_le_bytes());
                out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Listed::Dictionary {
                id,
                last_use,
                places,
            } => {
                out.push(4);
                out.extend_from_slice(&id.to_le_bytes());
                for word in [*last_use, places[0].word(), places[1].word()] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
            }
        }
    }

    pub(super) fn decode_all(bytes: &[u8]) -> Option<Vec<Listed>> {
        let mut fields = Fields(bytes);
        let mut listed = Vec::new();
        while !fields.0.is_empty() {
            listed.push(Listed::decode(&mut fields)?);
        }
        Some(listed)
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Listed> {
        Some(match fields.u8()? {
            1 => Listed::Segment {
                segment: Segment {
                    start: fields.u64()?,
                    bytes: fields.u64()?,
                    generation: fields.u64()?,
                },
                live_bytes: fields.u64()?,
            },
            2 => {
                let number = fields.u32()?;
                let volume = Volume {
                    block_bytes: fields.u32()?,
                    size_blocks: fields.u64()?,
                    root: fields.u32()?,
                    height: fields.u32()?,
                };
                let is_sound = volume.block_bytes.is_power_of_two()
                    && (super::file::BLOCK_BYTES_MIN..=super::file::BLOCK_BYTES_MAX)
                        .contains(&volume.block_bytes)
                    && volume.height <= MAP_HEIGHT_MAX
                    && volume.size_blocks <= INDEX_MAX
                    && (volume.root == 0) == (volume.height == 0);
                is_sound.then_some(Listed::Volume { number, volume })?
            }
            3 => {
                let (key, length) = (fields.u32()?, usize::from(fields.u16()?));
                let bytes = fields.bytes(length).filter(|_| length <= NOTE_BYTES_MAX)?;
                let bytes = Arc::from(bytes);
                Listed::Note { key, bytes }
            }
            4 => {
                let (id, last_use) = (fields.u32()?, fields.u64()?);
                let places = [fields.place()?, fields.place()?];
                let is_sound = id > 0 && places.iter().all(|place| !place.is_none());
                is_sound.then_some(Listed::Dictionary {
                    id,
                    last_use,
                    places,
                })?
            }
            _ => return None,
        })
    }
}

/// The record that ends a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    pub(super) commit: u64,
    pub(super) chain: u32,
    pub(super) next_volume: u32,
    pub(super) table_root: Place,
    pub(super) table_height: u32,
    pub(super) next_frame: u32,
    pub(super) free_head: u32,
    /// The places of the lists, each with its segment, which no list need know.
    pub(super) lists: Vec<(Segment, Place)>,
}

impl Checkpoint {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.commit.to_le_bytes());
        out.extend_from_slice(&self.table_root.word().to_le_bytes());
        let words = [
            self.chain,
            self.next_volume,
            self.table_height,
            self.next_frame,
            self.free_head,
            0,
        ];
        words
            .iter()
            .for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        for (segment, place) in &self.lists {
            put_place(segment, *place, &mut out);
        }
        out
    }

    pub(super) fn decode(body: &[u8]) -> Option<Checkpoint> {
        let mut fields = Fields(body);
        let (commit, table_root) = (fields.u64()?, fields.place()?);
        let mut words = [0; 6];
        for word in &mut words {
            *word = fields.u32()?;
        }
        let [
            chain,
            next_volume,
            table_height,
            next_frame,
            free_head,
            zero,
        ] = words;
        let mut lists = Vec::new();
        while !fields.0.is_empty() {
            lists.push(fields.place_in_segment()?);
        }
        let is_sound = table_height <= HEIGHT_MAX
            && table_root.is_none() == (table_height == 0)
            && free_head <= next_frame
            && zero == 0;
        is_sound.then_some(Checkpoint {
            commit,
            chain,
            next_volume,
            table_root,
            table_height,
            next_frame,
            free_head,
            lists,
        })
    }
}

/// The fields of a segment's head behind its generation: start and length of the successor.
pub(super) fn encode_head(successor: (u64, u64)) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&successor.0.to_le_bytes());
    bytes[8..].copy_from_slice(&successor.1.to_le_bytes());
    bytes
}

pub(super) fn decode_head(body: &[u8]) -> Option<(u64, u64)> {
    let mut fields = Fields(body);
    let successor = (fields.u64()?, fields.u64()?);
    fields.0.is_empty().then_some(successor)
}
