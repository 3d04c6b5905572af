//! The superblock: a store's first fixed point, in two slots that say the same.
//!
//! A crash can tear only the slot that is being written. So the newest valid slot always holds a complete state. If one
//! slot rots, the other leads to the same state. The format is in `docs/format.md`. The payload is the store's own.
//! This module promises that a payload is durable after [`Superblocks::rewrite`] and [`Superblocks::write`]. Both slots
//! have it after [`Superblocks::write`] and the next sync of the file. The store has two duties. Before a write it
//! syncs everything that the payload points to. It keeps the targets of the older slot until the newer one is written.
//!
//! Several processes may write, one after the other. The process that holds a lock of the store's calls
//! [`Superblocks::reload`] and then writes. It first writes again the superblock that it read, since the process before
//! it may have died between a write and its sync. Opening and reloading write nothing, so they need no lock.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::seeded::{SeededBug, is_seeded};
use crate::storage::{AlignedBuffer, StorageFile};

/// The length of one slot.
pub const SLOT_BYTES: usize = 4096;
/// The most bytes a store can put into a superblock.
pub const PAYLOAD_BYTES_MAX: usize = SLOT_BYTES - PAYLOAD_AT;

/// The first bytes of every slot.
pub const MAGIC: [u8; 8] = *b"\x89BKVN\r\n\x1A";
const PAYLOAD_AT: usize = 64;
/// The first bytes of a file while a store is made in it: a slot without a checksum.
const BEGUN: [u8; 16] = *b"\x89BKVN\r\n\x1A\0\0\0\0MAKE";

/// The identity of a store, checked when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreKind {
    /// The kind of the store, four ASCII letters.
    pub name: [u8; 4],
    /// The version of the store's format that this library writes, the only one it reads.
    pub version: u32,
    /// The flags this library knows and writes; any other makes it refuse the store.
    pub known_flags: u64,
    /// The offsets of the two slots in the file, multiples of 4,096.
    pub slots: [u64; 2],
}

impl StoreKind {
    /// Returns a kind without flags whose slots begin the file.
    pub const fn new(name: [u8; 4], version: u32) -> StoreKind {
        StoreKind {
            name,
            version,
            known_flags: 0,
            slots: [0, SLOT_BYTES as u64],
        }
    }
}

/// One superblock, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Its number, from 1; number n lies in slot n mod 2.
    pub sequence: u64,
    /// The random id of the log, which its records are bound to.
    pub log_id: [u8; 16],
    /// The features that a reader must know before it reads anything.
    pub flags: u64,
    /// The store's own bytes.
    pub payload: Vec<u8>,
}

/// The fault of a slot.
#[derive(Debug)]
pub enum SlotFault {
    /// It was never written.
    Unwritten,
    /// It is torn, rotten or misdirected; the text gives the expected and the found value.
    Damaged {
        expected: &'static str,
        found: String,
    },
    /// It is valid, but not for this library: the whole store must be refused.
    Refused { why: String },
}

/// Reads the slot at `offset`.
///
/// # Errors
/// The fault of the slot.
pub fn parse(
    slot: &[u8; SLOT_BYTES],
    kind: &StoreKind,
    offset: u64,
) -> std::result::Result<Superblock, SlotFault> {
    let damaged = |expected, found: String| Err(SlotFault::Damaged { expected, found });
    let refused = |why: String| Err(SlotFault::Refused { why });
    if slot[..8] != MAGIC {
        if slot.iter().all(|byte| *byte == 0) {
            return Err(SlotFault::Unwritten);
        }
        return damaged("a superblock", format!("bytes {:02x?}", &slot[..8]));
    }
    let (stored, computed) = (u32_at(slot, 8), checksum(slot, offset));
    if stored != computed {
        let found = format!("checksum {stored:#010x} over bytes of {computed:#010x}");
        return damaged("an unchanged superblock", found);
    }
    let name = &slot[12..16];
    if name != kind.name {
        let (found, wanted) = (name.escape_ascii(), kind.name.escape_ascii());
        return refused(format!("a store '{found}', where '{wanted}' was expected"));
    }
    let version = u32_at(slot, 16);
    if version != kind.version {
        let (store, known) = (kind.name.escape_ascii(), kind.version);
        return refused(format!("store '{store}' of version {version}, not {known}"));
    }
    let flags = u64_at(slot, 24);
    if flags & !kind.known_flags != 0 {
        let unknown = flags & !kind.known_flags;
        return refused(format!("a store with unknown flags {unknown:#x}"));
    }
    let payload_bytes = u32_at(slot, 20) as usize;
    let Some(payload) = slot[PAYLOAD_AT..].get(..payload_bytes) else {
        return refused(format!(
            "a superblock with {payload_bytes} bytes of payload"
        ));
    };
    let rest = &slot[PAYLOAD_AT + payload_bytes..];
    if slot[56..PAYLOAD_AT]
        .iter()
        .chain(rest)
        .any(|byte| *byte != 0)
    {
        return refused("a superblock with unknown fields".to_string());
    }
    let sequence = u64_at(slot, 32);
    // Tests must catch a store that writes one slot alone; the reader need not.
    let is_number = sequence > 0 && sequence < u64::MAX;
    let is_own_slot = is_number && kind.slots[sequence as usize % 2] == offset;
    if !is_own_slot && !is_seeded(SeededBug::SuperblockInPlace) {
        let found = format!("number {sequence} at byte {offset}");
        return damaged("a superblock of this slot", found);
    }
    Ok(Superblock {
        sequence,
        log_id: *slot[40..].first_chunk().expect("sixteen bytes"),
        flags,
        payload: payload.to_vec(),
    })
}

/// Lays out the slot of a superblock at `offset`.
///
/// # Panics
/// If the payload is longer than [`PAYLOAD_BYTES_MAX`].
pub fn encode(superblock: &Superblock, kind: &StoreKind, offset: u64, slot: &mut [u8; SLOT_BYTES]) {
    let payload_bytes = superblock.payload.len();
    assert!(payload_bytes <= PAYLOAD_BYTES_MAX, "{payload_bytes} bytes");
    slot.fill(0);
    slot[..8].copy_from_slice(&MAGIC);
    slot[12..16].copy_from_slice(&kind.name);
    slot[16..20].copy_from_slice(&kind.version.to_le_bytes());
    slot[20..24].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    slot[24..32].copy_from_slice(&superblock.flags.to_le_bytes());
    slot[32..40].copy_from_slice(&superblock.sequence.to_le_bytes());
    slot[40..56].copy_from_slice(&superblock.log_id);
    slot[PAYLOAD_AT..PAYLOAD_AT + payload_bytes].copy_from_slice(&superblock.payload);
    let checksum = checksum(slot, offset);
    slot[8..12].copy_from_slice(&checksum.to_le_bytes());
}

/// Returns the bytes that a slot has for the store's own, whole or not.
#[cfg(any(feature = "pages", feature = "disk"))]
pub(crate) fn payload_of(slot: &[u8; SLOT_BYTES]) -> &[u8] {
    let payload_bytes = u32_at(slot, 20) as usize;
    slot[PAYLOAD_AT..].get(..payload_bytes).unwrap_or_default()
}

fn checksum(slot: &[u8; SLOT_BYTES], offset: u64) -> u32 {
    let checksum = crc32c_append(crc32c(&offset.to_le_bytes()), &slot[..8]);
    crc32c_append(checksum, &slot[12..])
}

/// Gives a slot its correct checksum: random bytes would never have it.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) fn seal(slot: &mut [u8; SLOT_BYTES], offset: u64) {
    slot[..8].copy_from_slice(&MAGIC);
    let checksum = checksum(slot, offset);
    slot[8..12].copy_from_slice(&checksum.to_le_bytes());
}

fn u32_at(slot: &[u8; SLOT_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(*slot[at..].first_chunk().expect("four bytes"))
}

fn u64_at(slot: &[u8; SLOT_BYTES], at: usize) -> u64 {
    u64::from_le_bytes(*slot[at..].first_chunk().expect("eight bytes"))
}

/// The first bytes of a slot, with its number and its checksum: every superblock has others.
type Head = [u8; PAYLOAD_AT];

/// Marks durably that a store is being made, in an empty file or one that [`is_begun`].
///
/// # Errors
/// Errors of writing and syncing.
pub fn begin(file: &dyn StorageFile) -> Result<()> {
    file.truncate(0)?;
    file.write_at(&[IoSlice::new(&BEGUN)], 0)?;
    file.sync()
}

/// Returns whether all bytes of a file may be a crash's remains of [`begin`]. They may be none: its length alone may
/// have reached the medium.
pub fn is_hardly_begun(bytes: &[u8]) -> bool {
    let mut pairs = bytes.iter().zip(&BEGUN);
    bytes.len() <= BEGUN.len() && pairs.all(|(byte, begun)| *byte == 0 || byte == begun)
}

/// Returns whether a file's first bytes, and those of its second slot, belong to a store that was begun and never
/// existed. Its making ended before its first superblock, which lies in the second slot.
pub fn is_begun(first: &[u8], second: &[u8; SLOT_BYTES], kind: &StoreKind) -> bool {
    let has_none = matches!(
        parse(second, kind, kind.slots[1]),
        Err(SlotFault::Unwritten | SlotFault::Damaged { .. })
    );
    first.starts_with(&BEGUN) && has_none
}

/// The pair of slots of an open store.
pub struct Superblocks {
    file: Arc<dyn StorageFile>,
    kind: StoreKind,
    current: Superblock,
    is_only_one: bool,
    /// The first bytes of the slot for the next superblock, unless it was torn: then the next one may be the torn one.
    other_head: Option<Head>,
    /// Whether this handle has written or rewritten the current superblock, and the file was synced since.
    is_durable: bool,
}

impl Superblocks {
    /// Writes the first two superblocks of a new store, with the same payload, and syncs them. The file's name becomes
    /// durable when the store syncs its folder.
    ///
    /// # Errors
    /// [`Error::Limit`] if the payload is too long; errors of writing.
    pub fn create(
        file: Arc<dyn StorageFile>,
        kind: StoreKind,
        log_id: [u8; 16],
        payload: &[u8],
    ) -> Result<Superblocks> {
        kind.check()?;
        let current = Superblock {
            sequence: 0,
            log_id,
            flags: kind.known_flags,
            payload: Vec::new(),
        };
        let mut superblocks = Superblocks {
            file,
            kind,
            current,
            is_only_one: true,
            other_head: None,
            is_durable: true,
        };
        superblocks.write(payload)?;
        superblocks.rewrite()?;
        Ok(superblocks)
    }

    /// Opens the superblocks of a store: reads both slots and takes the newest valid one. Nothing is written.
    /// [`Superblocks::rewrite`] must come before any change other than [`Superblocks::write`] that gives back the
    /// targets of the older slot.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a store of another kind or version, or with an unknown flag, in either slot.
    /// [`Error::Corrupt`] if no slot is valid or the two are of different logs. Errors of reading, too.
    pub fn open(file: Arc<dyn StorageFile>, kind: StoreKind) -> Result<Superblocks> {
        kind.check()?;
        let found = read_newest_beside_writers(&*file, &kind)?;
        Ok(Superblocks {
            file,
            kind,
            current: found.newest,
            is_only_one: found.is_only_one,
            other_head: found.other_head,
            is_durable: false,
        })
    }

    /// Reads both slots again and takes the newer state that another process wrote; returns whether there was one. That
    /// state need not be durable yet.
    ///
    /// # Errors
    /// As [`Superblocks::open`], and [`Error::Corrupt`] if the newest is of another log or older than
    /// the one known: the file was replaced, or has rotted.
    pub fn reload(&mut self) -> Result<bool> {
        if is_seeded(SeededBug::NotReloaded) {
            return Ok(false);
        }
        let Found {
            newest,
            is_only_one,
            other_head,
        } = read_newest_beside_writers(&*self.file, &self.kind)?;
        let known = &self.current;
        if newest.log_id != known.log_id || newest.sequence < known.sequence {
            let [expected, found] = [known, &newest]
                .map(|it| format!("superblock {} of log {:02x?}", it.sequence, it.log_id));
            return Err(Error::corrupt("superblock", 0, expected, found));
        }
        let is_newer = newest.sequence > known.sequence;
        self.is_durable &= newest == self.current;
        self.current = newest;
        self.is_only_one = is_only_one;
        self.other_head = other_head;
        Ok(is_newer)
    }

    /// Returns whether no superblock was written since this one was read or written. Where a writer died in the
    /// middle of one, the answer may be no.
    ///
    /// # Errors
    /// Errors of reading.
    ///
    /// # Cost
    /// One read of 64 bytes: the next superblock changes the head of the other slot. Where that is torn, a
    /// reading of both.
    pub fn is_newest(&self) -> Result<bool> {
        let Some(other_head) = self.other_head else {
            let found = read_newest_beside_writers(&*self.file, &self.kind)?;
            return Ok(found.newest == self.current);
        };
        let mut head = [0; PAYLOAD_AT];
        let offset = self.kind.slots[(self.current.sequence + 1) as usize % 2];
        self.file
            .read_at(&mut [IoSliceMut::new(&mut head)], offset)?;
        Ok(head == other_head)
    }

    /// Writes the newest superblock again, unchanged, and syncs it. The state that was read is then durable, and may be
    /// built on. Does nothing if this handle made it durable before. The store must ensure that nobody else writes at
    /// the same time.
    ///
    /// A sync alone would not do. If an earlier process's sync failed, the system shows that process's pages and counts
    /// them as clean, so a sync writes nothing and succeeds. Writing the same bytes cannot tear a slot that the medium
    /// already holds. A slot that it does not hold is not needed yet.
    ///
    /// # Errors
    /// Errors of writing and syncing.
    pub fn rewrite(&mut self) -> Result<()> {
        if self.is_durable || is_seeded(SeededBug::RewriteWithoutSync) {
            return Ok(());
        }
        if !is_seeded(SeededBug::RewriteWithoutWrite) {
            self.put(&self.current)?;
        }
        self.file.sync()?;
        self.is_durable = true;
        Ok(())
    }

    /// Writes the newest superblock again, unchanged, unless one that leads to the same state is durable. The sync is
    /// left to the store, which may need it: the store has seen something that its writer wrote only after that.
    ///
    /// # Errors
    /// Errors of writing.
    pub fn refresh(&self) -> Result<()> {
        match self.is_durable {
            true => Ok(()),
            false => self.put(&self.current),
        }
    }

    /// Marks the newest superblock as durable: this handle wrote it, or wrote it again, and the file was synced since.
    pub fn trust(&mut self) {
        self.is_durable = true;
    }

    /// Returns the newest superblock.
    pub fn current(&self) -> &Superblock {
        &self.current
    }

    /// Returns whether the other slot is not valid: a crash tore it, or it rotted and the newest
    /// state is lost. Records of a later time than the current superblock's tell the two apart.
    pub fn is_only_one(&self) -> bool {
        self.is_only_one
    }

    /// Writes the next superblock to the other slot and syncs it, after [`Superblocks::rewrite`]. Then it writes the
    /// one behind it, with the same payload; the next sync of the file covers that.
    ///
    /// # Errors
    /// [`Error::Limit`] if the payload is too long. Errors of writing and syncing too; after these either superblock
    /// may be found when the store is opened again.
    pub fn write(&mut self, payload: &[u8]) -> Result<()> {
        self.write_unsynced(payload)?;
        if !is_seeded(SeededBug::SuperblockNotSynced) {
            self.file.sync()?;
        }
        self.is_durable = true;
        if is_seeded(SeededBug::SuperblockOnce) {
            return Ok(());
        }
        self.write_unsynced(payload)
    }

    /// Writes the next superblock to the other slot, after [`Superblocks::rewrite`]. The next sync of the file covers
    /// it: this is for a state that a crash may lose.
    ///
    /// # Errors
    /// As [`Superblocks::write`].
    pub fn write_unsynced(&mut self, payload: &[u8]) -> Result<()> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Error::Limit {
                what: "superblock",
                limit_bytes: PAYLOAD_BYTES_MAX as u64,
                needed_bytes: payload.len() as u64,
            });
        }
        self.rewrite()?;
        let next = Superblock {
            sequence: self.current.sequence + 1,
            log_id: self.current.log_id,
            flags: self.kind.known_flags,
            payload: payload.to_vec(),
        };
        self.is_durable = false;
        self.put(&next)?;
        self.is_only_one = self.current.sequence == 0;
        let before = std::mem::replace(&mut self.current, next);
        let offset = self.kind.slots[before.sequence as usize % 2];
        let slot = self.encoded(&before, offset);
        let is_there = before.sequence > 0;
        self.other_head = is_there.then(|| *slot.first_chunk().expect("a slot's head"));
        Ok(())
    }

    /// Writes a superblock to the slot of its number.
    fn put(&self, superblock: &Superblock) -> Result<()> {
        let slot_number = match is_seeded(SeededBug::SuperblockInPlace) {
            true => 0,
            false => superblock.sequence as usize % 2,
        };
        let offset = self.kind.slots[slot_number];
        let buffer = self.encoded(superblock, offset);
        self.file.write_at(&[IoSlice::new(&buffer)], offset)
    }

    /// Returns a slot's bytes, which are too many for the stack of some hosts' threads.
    fn encoded(&self, superblock: &Superblock, offset: u64) -> AlignedBuffer {
        let mut buffer = AlignedBuffer::zeroed(SLOT_BYTES);
        let slot = buffer.first_chunk_mut().expect("a slot's bytes");
        encode(superblock, &self.kind, offset, slot);
        buffer
    }
}

/// The contents of both slots.
struct Found {
    newest: Superblock,
    /// Whether the other slot is not valid.
    is_only_one: bool,
    other_head: Option<Head>,
}

/// Returns the newest valid superblock.
///
/// A writer in another process may be in the middle of a slot, and later, while the other slot is read, in the middle
/// of that one. There is a sync between the two, so that a second reading finds the first slot whole.
fn read_newest_beside_writers(file: &dyn StorageFile, kind: &StoreKind) -> Result<Found> {
    match read_newest(file, kind) {
        Err(Error::Corrupt { .. }) => read_newest(file, kind),
        read => read,
    }
}

fn read_newest(file: &dyn StorageFile, kind: &StoreKind) -> Result<Found> {
    let mut valid: Vec<Superblock> = Vec::new();
    let mut faults = Vec::new();
    let mut heads = [None; 2];
    for (offset, head) in kind.slots.into_iter().zip(&mut heads) {
        let mut buffer = AlignedBuffer::zeroed(SLOT_BYTES);
        file.read_at(&mut [IoSliceMut::new(&mut buffer)], offset)?;
        let slot = buffer.first_chunk().expect("a slot's bytes");
        match parse(slot, kind, offset) {
            Ok(superblock) => {
                *head = slot.first_chunk().copied();
                valid.push(superblock);
            }
            Err(fault) => faults.push((offset, fault)),
        }
    }
    if let Some((_, SlotFault::Refused { why })) = faults
        .iter()
        .find(|(_, fault)| matches!(fault, SlotFault::Refused { .. }))
    {
        let what = format!("{}: {why}", quoted(&file.path()));
        return Err(Error::Unsupported { what });
    }
    if valid.iter().any(|other| other.log_id != valid[0].log_id) {
        let [expected, found] = [0, 1].map(|at| format!("{:02x?}", valid[at].log_id));
        return Err(Error::corrupt("superblock", kind.slots[1], expected, found));
    }
    let is_only_one = valid.len() == 1;
    let newest = valid
        .into_iter()
        .max_by_key(|superblock| superblock.sequence);
    let Some(newest) = newest else {
        let (offset, fault) = faults.swap_remove(0);
        return Err(fault.into_error(offset));
    };
    let other_head = heads[(newest.sequence + 1) as usize % 2];
    Ok(Found {
        newest,
        is_only_one,
        other_head,
    })
}

impl StoreKind {
    fn check(&self) -> Result<()> {
        let [first, second] = self.slots;
        let is_aligned = self
            .slots
            .iter()
            .all(|slot| slot.is_multiple_of(SLOT_BYTES as u64));
        if first == second || !is_aligned {
            let reason = format!("slots at {first} and {second}");
            return Err(Error::invalid("superblock", reason));
        }
        Ok(())
    }
}

impl SlotFault {
    fn into_error(self, offset: u64) -> Error {
        match self {
            SlotFault::Unwritten => Error::corrupt("superblock", offset, "a superblock", "zeros"),
            SlotFault::Damaged { expected, found } => {
                Error::corrupt("superblock", offset, expected, found)
            }
            SlotFault::Refused { why } => Error::Unsupported { what: why },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{MemoryStorage, OpenOptions, Storage};

    const KIND: StoreKind = StoreKind::new(*b"TEST", 3);
    const ID: [u8; 16] = *b"a log under test";

    fn new_file() -> Arc<dyn StorageFile> {
        let storage = MemoryStorage::new();
        storage.open("a", OpenOptions::create_new()).unwrap()
    }

    fn slot_of(superblock: &Superblock, kind: &StoreKind, offset: u64) -> [u8; SLOT_BYTES] {
        let mut slot = [0; SLOT_BYTES];
        encode(superblock, kind, offset, &mut slot);
        slot
    }

    fn superblock(sequence: u64, payload: &[u8]) -> Superblock {
        Superblock {
            sequence,
            log_id: ID,
            flags: 0,
            payload: payload.to_vec(),
        }
    }

    /// Opens a file with these two slots, and returns the payload or the error's text.
    fn open(slots: [&[u8; SLOT_BYTES]; 2]) -> std::result::Result<Vec<u8>, String> {
        let file = new_file();
        file.write_at(&[IoSlice::new(slots[0]), IoSlice::new(slots[1])], 0)
            .unwrap();
        let opened = Superblocks::open(file, KIND);
        opened
            .map(|found| found.current().payload.clone())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let superblock = Superblock {
            flags: 0x0807_0605_0403_0201,
            ..superblock(0x0102_0304_0506_0709, b"pay")
        };
        let slot = slot_of(&superblock, &KIND, 4096);
        let mut expected = [0; SLOT_BYTES];
        expected[..8].copy_from_slice(&[0x89, 0x42, 0x4B, 0x56, 0x4E, 0x0D, 0x0A, 0x1A]);
        expected[12..24].copy_from_slice(b"TEST\x03\0\0\0\x03\0\0\0");
        expected[24..32].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        expected[32..40].copy_from_slice(&[9, 7, 6, 5, 4, 3, 2, 1]);
        expected[40..56].copy_from_slice(&ID);
        expected[64..67].copy_from_slice(b"pay");
        let checked = [&4096u64.to_le_bytes(), &expected[..8], &expected[12..]].concat();
        expected[8..12].copy_from_slice(&crc32c(&checked).to_le_bytes());
        assert_eq!(expected[8..12], [0xCE, 0x21, 0xEC, 0xB8]);
        assert!(slot == expected);
    }

    #[test]
    fn the_newest_is_found_and_written_in_turn() {
        let file = new_file();
        let mut written = Superblocks::create(Arc::clone(&file), KIND, ID, b"payload 2").unwrap();
        for number in (4..20u64).step_by(2) {
            let payload = format!("payload {number}");
            written.write(payload.as_bytes()).unwrap();
            let found = Superblocks::open(Arc::clone(&file), KIND).unwrap();
            assert_eq!(*found.current(), superblock(number, payload.as_bytes()));
            assert!(!found.is_only_one());
            // Either slot tells it.
            for offset in KIND.slots {
                let mut slot = [0; SLOT_BYTES];
                file.read_exact_at(&mut slot, offset).unwrap();
                file.write_at(&[IoSlice::new(&[0xA5; 9])], offset).unwrap();
                let left = Superblocks::open(Arc::clone(&file), KIND).unwrap();
                assert_eq!(left.current().payload, payload.as_bytes());
                assert!(left.is_only_one());
                file.write_at(&[IoSlice::new(&slot)], offset).unwrap();
            }
        }
        assert_eq!(file.status().unwrap().size_bytes, 2 * SLOT_BYTES as u64);
    }

    /// Any part of the next slot was already there at the opening.
    #[test]
    fn a_look_finds_what_was_written_since() {
        let file = new_file();
        let write = |slot: &[u8], offset| file.write_at(&[IoSlice::new(slot)], offset).unwrap();
        let open = || Superblocks::open(Arc::clone(&file), KIND).unwrap();
        let old = slot_of(&superblock(8, &[1; 3000]), &KIND, 0);
        let next = slot_of(&superblock(10, &[3; 3000]), &KIND, 0);
        for before in [&old, &[0; SLOT_BYTES]] {
            write(&slot_of(&superblock(9, b"nine"), &KIND, 4096), 4096);
            for kept in (0..SLOT_BYTES).step_by(8) {
                write(before, 0);
                write(&next[..kept], 0);
                let opened = open();
                assert!(opened.is_newest().unwrap() || kept < PAYLOAD_AT);
                write(&next, 0);
                let is_old = opened.current().sequence == 9;
                assert_eq!(opened.is_newest().unwrap(), !is_old, "{kept} bytes");
            }
            let (mut writer, other) = (open(), open());
            for _ in 0..3 {
                writer.write(b"more").unwrap();
                assert!(writer.is_newest().unwrap() && !other.is_newest().unwrap());
            }
        }
    }

    #[test]
    fn a_torn_slot_leaves_the_other() {
        let old = slot_of(&superblock(8, &[1; 3000]), &KIND, 0);
        let other = slot_of(&superblock(9, &[2; 3000]), &KIND, 4096);
        let new = slot_of(&superblock(10, &[3; 3000]), &KIND, 0);
        // Every set of 512-byte sectors of the new slot.
        for kept in 0..256u32 {
            let mut torn = old;
            for sector in (0..8).filter(|sector| kept >> sector & 1 == 1) {
                let range = sector * 512..(sector + 1) * 512;
                torn[range.clone()].copy_from_slice(&new[range]);
            }
            // The last two sectors hold zeros in both.
            let expected = if kept & 0x3F == 0x3F { 3 } else { 2 };
            assert_eq!(open([&torn, &other]).unwrap()[0], expected, "{kept:08b}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let slot = slot_of(&superblock(8, &[1; 3000]), &KIND, 0);
        for bit in 0..SLOT_BYTES * 8 {
            let mut flipped = slot;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(
                matches!(parse(&flipped, &KIND, 0), Err(SlotFault::Damaged { .. })),
                "{bit}"
            );
        }
    }

    #[test]
    fn what_is_not_ours_to_read_is_refused() {
        let good = slot_of(&superblock(8, b"good"), &KIND, 0);
        let empty = [0; SLOT_BYTES];
        assert_eq!(open([&good, &empty]).unwrap(), b"good");
        let refuse = |kind: StoreKind, other: Superblock, expected: &str| {
            let slot = slot_of(&other, &kind, 4096);
            let error = open([&good, &slot]).unwrap_err();
            assert!(error.contains(expected), "{error}");
        };
        let next = superblock(9, b"next");
        refuse(
            StoreKind::new(*b"TEST", 4),
            next.clone(),
            "store 'TEST' of version 4, not 3",
        );
        // An older number does not make a newer version readable.
        refuse(
            StoreKind::new(*b"TEST", 4),
            superblock(7, b""),
            "of version 4, not 3",
        );
        refuse(StoreKind::new(*b"VALT", 3), next.clone(), "a store 'VALT'");
        let flagged = Superblock {
            flags: 4,
            ..next.clone()
        };
        refuse(KIND, flagged, "unknown flags 0x4");
        let foreign = Superblock {
            log_id: *b"another log's id",
            ..next.clone()
        };
        refuse(KIND, foreign, "corrupt superblock at byte 4096");
        let mut unknown = slot_of(&next, &KIND, 4096);
        unknown[60] = 1;
        seal(&mut unknown, 4096);
        assert!(
            open([&good, &unknown])
                .unwrap_err()
                .contains("unknown fields")
        );
        // A slot of the other place or parity is damage, and the good one is left.
        assert_eq!(open([&good, &slot_of(&next, &KIND, 0)]).unwrap(), b"good");
        assert_eq!(
            open([&good, &slot_of(&superblock(10, b"x"), &KIND, 4096)]).unwrap(),
            b"good"
        );
        assert!(open([&empty, &empty]).unwrap_err().contains("found zeros"));
    }

    #[test]
    fn a_payload_that_is_too_long_changes_nothing() {
        let file = new_file();
        let longest = vec![5; PAYLOAD_BYTES_MAX];
        let mut written = Superblocks::create(Arc::clone(&file), KIND, ID, &longest).unwrap();
        let error = written.write(&vec![6; PAYLOAD_BYTES_MAX + 1]).unwrap_err();
        assert!(matches!(error, Error::Limit { .. }), "{error}");
        let found = Superblocks::open(file, KIND).unwrap();
        assert_eq!(found.current().payload, longest);
    }
}
