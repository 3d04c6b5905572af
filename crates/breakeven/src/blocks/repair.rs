//! Repair. A store that cannot be used gets a superblock that leads to its newest readable state.
//!
//! States are looked for in two places: in the superblocks, and in the records of checkpoints, which the heads of
//! segments lead to. Each is read back with the log behind it, as far as that is whole, and the newest is verified.
//! Nothing is written if the store can be used as it is, or nothing better is found. Otherwise a superblock is written,
//! and a checkpoint where the log went on behind a broken part.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::sync::Arc;

use super::file::StoreFile;
use super::layout::{
    Checkpoint, KIND, KIND_CHECKPOINT, KIND_LIST, Listed, Payload, Position, SEGMENTS_START,
    decode_head,
};
use super::log::BUFFER_BYTES_MAX;
use super::place::{Place, Segment, is_segment};
use super::recovery::{Recovery, Unpublished, read_in, recover, recover_to_gap};
use super::shared::{Shared, is_read_elsewhere};
use super::verify::verify_state;
use super::{
    Blocks, BlocksOptions, LOCK_BYTE, Opened, SEGMENT_BYTES_MAX, Turn, decode_payload, lock,
    segment_bytes_least,
};
use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::record::{Found, HEADER_BYTES, Region, Scanner, id_of_head, parse, parse_head};
use crate::storage::superblock::{self, SLOT_BYTES, Superblock, Superblocks};
use crate::storage::{LockKind, StorageFile};

/// Segments begin at multiples of this, since their least length is one.
const STEP_BYTES: u64 = 4096;
/// A head has this many bytes: its header, its generation and its successor.
const HEAD_BYTES: usize = 2 * HEADER_BYTES;

/// Hears how many bytes of how many were looked through, and says whether to go on.
pub type Watch<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// The result of a repair.
#[derive(Debug)]
pub struct Repaired {
    /// The reason why the store could not be used; `None` if it could, and nothing was done.
    pub fault: Option<Error>,
    /// The number of states that were found and looked at, with the superblock's own.
    pub states: usize,
    /// The last transaction of the store's present state.
    pub commit: u64,
    /// Blocks of that state that cannot be read.
    pub broken_blocks: u64,
    /// Whether durable transactions are known to be lost. Then the log goes on behind a broken part, or a superblock
    /// mentions records that are not there.
    pub is_cut: bool,
}

/// A segment that was begun, by its head.
struct Head {
    start: u64,
    generation: u64,
    sequence: u64,
    successor: (u64, u64),
    /// The start of its records.
    address: u64,
}

/// Repairs the store in a file that nobody else has open.
///
/// # Errors
/// [`Error::Invalid`] if a process has it open for writing or reads it. [`Error::Corrupt`] if no readable state is
/// found; nothing was written then. [`Error::Unsupported`] for a store that another version wrote.
/// [`Error::Interrupted`] if it was stopped. Those of reading and writing.
///
/// # Cost
/// The first bytes of every 4 KiB of the file are read, and all segments that were begun. For each state looked at, all
/// its blocks are read too.
pub fn repair(file: &Arc<dyn StorageFile>, watch: Watch<'_>) -> Result<Repaired> {
    lock(&**file, LockKind::Exclusive, &BlocksOptions::default())?;
    let repaired = match is_read_elsewhere(&**file) {
        true => Err(Error::invalid(
            "block store",
            format!("{} is read elsewhere", quoted(&file.path())),
        )),
        false => repair_alone(file, watch),
    };
    // A lock that stays ends with the handle.
    let _ = file.unlock(LOCK_BYTE..LOCK_BYTE + 1);
    repaired
}

fn repair_alone(file: &Arc<dyn StorageFile>, watch: Watch<'_>) -> Result<Repaired> {
    let superblocks = match Superblocks::open(Arc::clone(file), KIND) {
        Ok(superblocks) => Ok(superblocks),
        Err(error @ Error::Corrupt { .. }) => Err(error),
        Err(error) => return Err(error),
    };
    let (fault, known) = match &superblocks {
        Err(error) => (error.duplicate(), None),
        Ok(superblocks) => match look(file, superblocks.current(), watch)? {
            Ok(state) if !superblocks.is_only_one() => return Ok(state.told(None, 1)),
            Ok(state) => {
                let fault = Error::corrupt("superblock", 0, "two that are whole", "one");
                (fault, Some(state))
            }
            Err(error) => (error, None),
        },
    };
    let id = match &superblocks {
        Ok(superblocks) => Some(superblocks.current().log_id),
        Err(_) => id_of_heads(&**file)?,
    };
    let nothing = || {
        Error::corrupt(
            "block store",
            0,
            "a checkpoint that can be read back",
            "none",
        )
    };
    let id = id.ok_or_else(nothing)?;
    let told_records = superblocks.as_ref().map_or(0, told_records);
    let candidates = candidates(file, id, watch)?;
    let found = best(file, id, &candidates, watch)?;
    // The state of the remaining superblock may be all there is.
    let found = found.filter(|(_, found)| {
        known
            .as_ref()
            .is_none_or(|known| found.commit > known.commit)
    });
    let (payload, state) = match (found, known, &superblocks) {
        (Some((payload, state)), _, _) => (
            Payload {
                end: None,
                ..*payload
            },
            state,
        ),
        (None, Some(state), Ok(left)) => (decode_payload(&left.current().payload)?, state),
        (None, _, _) => return Err(nothing()),
    };
    let bytes = payload.encode();
    match superblocks {
        Ok(mut superblocks) => {
            superblocks.write(&bytes)?;
            superblocks.rewrite()?;
        }
        Err(_) => drop(Superblocks::create(Arc::clone(file), KIND, id, &bytes)?),
    }
    if state.is_cut {
        leave_log(file, id, &payload)?;
    }
    let mut told = state.told(Some(fault), candidates.len() + 1);
    told.is_cut |= state.next_record < told_records;
    Ok(told)
}

/// Returns the number behind the last durable record that a superblock mentions.
fn told_records(superblocks: &Superblocks) -> u64 {
    let told = Payload::decode(&superblocks.current().payload);
    told.map_or(0, |told| told.log.sequence.max(told.end.unwrap_or(0)))
}

/// The findings about a state that was read back.
struct State {
    commit: u64,
    /// The number of the first record that is not there.
    next_record: u64,
    broken_blocks: u64,
    is_cut: bool,
}

impl State {
    fn told(&self, fault: Option<Error>, states: usize) -> Repaired {
        Repaired {
            fault,
            states,
            commit: self.commit,
            broken_blocks: self.broken_blocks,
            is_cut: self.is_cut,
        }
    }
}

/// Writes a checkpoint of a state whose log goes on behind a broken part, so that nobody reads that log again.
fn leave_log(file: &Arc<dyn StorageFile>, id: [u8; 16], payload: &Payload) -> Result<()> {
    let store = store_of(file, id);
    let recovery = recover_to_gap(&store, payload)?;
    let mut file_bytes = file.status()?.size_bytes;
    if recovery.is_short {
        // Zeros replace the missing part.
        file_bytes = recovery.state.segments.end(SEGMENTS_START);
        file.truncate(file_bytes)?;
    }
    let live_bytes = recovery.live.iter().sum::<u64>();
    let superblocks = Superblocks::open(Arc::clone(file), KIND)?;
    let shared = Arc::new(Shared::new(recovery.state.clone(), None));
    let opened = Opened {
        replayed_commits: recovery.commits,
        is_torn: true,
        ..Opened::default()
    };
    let turn = Turn::Untouched(Box::new(recovery), Box::new(superblocks));
    let options = BlocksOptions {
        // Twice the present length, so that nothing of the file is cut off that a person may still want to look at.
        space_amp: 2.0 * file_bytes as f64 / live_bytes.max(1) as f64,
        ..BlocksOptions::default()
    };
    // The first write begins with a checkpoint.
    Blocks::new(store, options, *payload, opened, shared, turn, true).checkpoint()
}

/// Looks at the state of a superblock. It can be used if its maps and its table can be read.
fn look(
    file: &Arc<dyn StorageFile>,
    superblock: &Superblock,
    watch: Watch<'_>,
) -> Result<Result<State>> {
    let Some(payload) = Payload::decode(&superblock.payload) else {
        let found = format!("{} other bytes", superblock.payload.len());
        let expected = "the payload of a block store";
        return Ok(Err(Error::corrupt("superblock", 0, expected, found)));
    };
    let store = store_of(file, superblock.log_id);
    match recover(&store, &payload, Unpublished::Taken) {
        Ok(recovery) => verified(&store, &recovery, watch),
        Err(error @ Error::Corrupt { .. }) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

fn store_of(file: &Arc<dyn StorageFile>, id: [u8; 16]) -> StoreFile {
    let map_cache_bytes = BlocksOptions::default().map_cache_bytes;
    StoreFile::new(Arc::clone(file), id, map_cache_bytes)
}

/// Verifies a state that was read back. Returns the findings, or its fault beyond single blocks.
fn verified(store: &StoreFile, recovery: &Recovery, watch: Watch<'_>) -> Result<Result<State>> {
    let live = Some(recovery.live.clone());
    let verified = verify_state(store, &recovery.state, live, watch)?;
    if verified.fault_count > verified.broken_blocks {
        let first = verified.faults.first().map(Error::to_string);
        let found = format!(
            "{} faults, {}",
            verified.fault_count,
            first.unwrap_or_default()
        );
        let expected = "maps and a frame table that fit";
        return Ok(Err(Error::corrupt("block store", 0, expected, found)));
    }
    Ok(Ok(State {
        commit: verified.commit,
        next_record: recovery.sequence,
        broken_blocks: verified.broken_blocks,
        is_cut: recovery.is_cut,
    }))
}

/// Returns the newest state whose maps can be read. If several ways lead to it, takes the one that lacks the fewest
/// blocks.
///
/// A newer state that lacks single blocks goes before an older one that is whole. The lost blocks of the newer one can
/// be named. With the older one, everything newer would be lost in silence.
fn best<'a>(
    file: &Arc<dyn StorageFile>,
    id: [u8; 16],
    candidates: &'a [Payload],
    watch: Watch<'_>,
) -> Result<Option<(&'a Payload, State)>> {
    let mut best: Option<(&Payload, State)> = None;
    for candidate in candidates {
        let store = store_of(file, id);
        let recovery = match recover_to_gap(&store, candidate) {
            Ok(recovery) => recovery,
            Err(Error::Corrupt { .. }) => continue,
            Err(error) => return Err(error),
        };
        // A state that cannot be better than the best is not verified: that reads all of it.
        let commit = recovery.state.commit;
        let is_older = |(_, known): &(_, State)| {
            commit < known.commit || (commit == known.commit && known.broken_blocks == 0)
        };
        if best.as_ref().is_some_and(is_older) {
            continue;
        }
        let Ok(state) = verified(&store, &recovery, watch)? else {
            continue;
        };
        let is_better = |(_, known): &(_, State)| {
            state.commit > known.commit || state.broken_blocks < known.broken_blocks
        };
        if best.as_ref().is_none_or(is_better) {
            best = Some((candidate, state));
        }
    }
    Ok(best)
}

/// Returns an id of the log by which most heads are whole. They need only its checksum.
fn id_of_heads(file: &dyn StorageFile) -> Result<Option<[u8; 16]>> {
    let mut counts = BTreeMap::new();
    each_step(file, &mut |_, _| true, |address, bytes| {
        if let Some(id) = id_of_head(bytes, address) {
            *counts.entry(id).or_insert(0u64) += 1;
        }
    })?;
    let most = counts.into_iter().max_by_key(|(_, count)| *count);
    Ok(most.map(|(id, _)| id))
}

/// Shows `take` the bytes of a head at every place where a segment may begin.
fn each_step(
    file: &dyn StorageFile,
    watch: Watch<'_>,
    mut take: impl FnMut(u64, &[u8; HEAD_BYTES]),
) -> Result<()> {
    let size_bytes = file.status()?.size_bytes;
    let mut bytes = [0; HEAD_BYTES];
    for address in (SEGMENTS_START..size_bytes).step_by(STEP_BYTES as usize) {
        let read = file.read_at(&mut [IoSliceMut::new(&mut bytes)], address)?;
        if read == HEAD_BYTES {
            take(address, &bytes);
        }
        if !watch(address, size_bytes) {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// Returns the states of superblocks and checkpoints, the newest first.
fn candidates(file: &Arc<dyn StorageFile>, id: [u8; 16], watch: Watch<'_>) -> Result<Vec<Payload>> {
    let size_bytes = file.status()?.size_bytes;
    let mut heads = Vec::new();
    each_step(&**file, watch, |start, bytes| {
        let Ok((region, body)) = parse_head(bytes, id, start..size_bytes) else {
            return;
        };
        let record = parse(bytes, &region, start).expect("parsed as a head");
        if let Some(successor) = decode_head(body) {
            heads.push(Head {
                start,
                generation: region.generation(),
                sequence: record.sequence,
                successor,
                address: record.end(),
            });
        }
    })?;
    let (mut found, sizes) = told(&**file)?;
    let store = store_of(file, id);
    for (index, head) in heads.iter().enumerate() {
        let next = heads.get(index + 1).map_or(size_bytes, |next| next.start);
        let end = next.min(head.start + SEGMENT_BYTES_MAX) / STEP_BYTES * STEP_BYTES;
        found.extend(checkpoints(&store, head, end, sizes)?);
    }
    let first = heads.iter().find(|head| head.sequence == 0);
    found.extend(first.and_then(|head| beginning(head, sizes)));
    found.sort_by_key(|payload| std::cmp::Reverse(payload.log.sequence));
    found.dedup();
    Ok(found)
}

/// The sizes that a store was made for, which checkpoints do not have.
#[derive(Clone, Copy)]
struct Sizes {
    block_bytes_max: u32,
    segment_bytes_min: u32,
}

/// Returns the payloads of whole superblocks, and the sizes that the store was made for, as far as even a broken one
/// has them.
fn told(file: &dyn StorageFile) -> Result<(Vec<Payload>, Sizes)> {
    let options = BlocksOptions::default();
    let mut sizes = Sizes {
        block_bytes_max: options.block_bytes_max,
        segment_bytes_min: options.segment_bytes()?,
    };
    let mut found = Vec::new();
    for offset in KIND.slots {
        let mut slot = [0; SLOT_BYTES];
        file.read_at(&mut [IoSliceMut::new(&mut slot)], offset)?;
        let is_whole = superblock::parse(&slot, &KIND, offset).is_ok();
        if let Some(payload) = Payload::decode(superblock::payload_of(&slot)) {
            sizes.block_bytes_max = payload.block_bytes_max;
            sizes.segment_bytes_min = payload.segment_bytes_min;
            found.extend(is_whole.then_some(payload));
        }
    }
    Ok((found, sizes))
}

/// Returns the checkpoints whose records lie in a segment that ends at `end` or before.
fn checkpoints(store: &StoreFile, head: &Head, end: u64, sizes: Sizes) -> Result<Vec<Payload>> {
    let region = Region::new(store.log_id, head.generation, head.start..end);
    let (file, sequence) = (&*store.file, head.sequence);
    let mut scanner = Scanner::new(file, region, head.start, sequence, BUFFER_BYTES_MAX);
    let mut found = Vec::new();
    while let Some(next) = scanner.next()? {
        let Found::Record(record) = next else {
            continue;
        };
        let checkpoint = Checkpoint::decode(record.body);
        let Some(checkpoint) = checkpoint.filter(|_| record.label.kind == KIND_CHECKPOINT) else {
            continue;
        };
        let Some((bytes, sizes)) = listed(store, &checkpoint, head.start, sizes)? else {
            continue;
        };
        let segment = Segment {
            start: head.start,
            bytes,
            generation: head.generation,
        };
        let place = Place::new(record.address, record.end() - record.address);
        found.push(payload_at(
            (segment, head.successor),
            Some((segment, place)),
            (record.end(), record.sequence + 1),
            sizes,
        ));
    }
    Ok(found)
}

fn payload_at(
    (segment, successor): (Segment, (u64, u64)),
    checkpoint: Option<(Segment, Place)>,
    (address, sequence): (u64, u64),
    sizes: Sizes,
) -> Payload {
    Payload {
        block_bytes_max: sizes.block_bytes_max,
        segment_bytes_min: sizes.segment_bytes_min,
        checkpoint,
        log: Position {
            segment,
            successor,
            address,
            sequence,
        },
        end: None,
    }
}

/// Returns the length of the segment at `start`, as a checkpoint lists it, and the needs of its volumes; `None` if a
/// list cannot be read.
fn listed(
    store: &StoreFile,
    checkpoint: &Checkpoint,
    start: u64,
    mut sizes: Sizes,
) -> Result<Option<(u64, Sizes)>> {
    let mut own_bytes = None;
    for list in &checkpoint.lists {
        let listed = match read_in(store, *list, KIND_LIST, Listed::decode_all) {
            Ok(listed) => listed,
            Err(Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        for listed in listed {
            match listed {
                Listed::Segment { segment, .. } if segment.start == start => {
                    own_bytes = Some(segment.bytes);
                }
                Listed::Volume { volume, .. } => {
                    sizes.block_bytes_max = sizes.block_bytes_max.max(volume.block_bytes);
                    let least = segment_bytes_least(sizes.block_bytes_max);
                    sizes.segment_bytes_min = sizes.segment_bytes_min.max(least);
                }
                _ => {}
            }
        }
    }
    Ok(own_bytes.map(|bytes| (bytes, sizes)))
}

/// Returns the state before the first checkpoint, if this is the log's first segment and the one behind it follows.
fn beginning(head: &Head, sizes: Sizes) -> Option<Payload> {
    let bytes = head.successor.0.checked_sub(head.start)?;
    let segment = Segment {
        start: head.start,
        bytes,
        generation: head.generation,
    };
    let log = (head.address, head.sequence + 1);
    let payload = payload_at((segment, head.successor), None, log, sizes);
    is_segment(head.start, bytes).then_some(payload)
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::blocks::{Durability, model_test as model};
    use crate::storage::{MemoryStorage, OpenOptions, Storage};
    use crate::testing::seeded;

    const NAME: &str = "store";
    const BLOCK_BYTES: usize = 512;
    const BLOCKS: u64 = 60;

    /// A store with a history of commits and checkpoints, and its content behind each commit.
    struct Past {
        storage: MemoryStorage,
        file: Arc<dyn StorageFile>,
        states: Vec<Vec<Vec<u8>>>,
        checkpoints: Vec<Place>,
    }

    fn options() -> BlocksOptions {
        BlocksOptions {
            block_bytes_max: BLOCK_BYTES as u32,
            segment_bytes_min: 8192,
            checkpoint_bytes: 1 << 30,
            seed: Some(5),
            ..BlocksOptions::default()
        }
    }

    /// Makes a store of 40 commits with a checkpoint behind every `checkpoint_every` of them.
    fn past(seed: u64, checkpoint_every: usize) -> Past {
        let mut random = seeded("blocks repair", seed);
        let storage = MemoryStorage::new();
        let blocks = Blocks::create(&storage, NAME, options()).unwrap();
        let mut transaction = blocks.begin().unwrap();
        transaction.create_volume(BLOCK_BYTES as u32).unwrap();
        transaction.commit(Durability::Durable).unwrap();
        let mut shown = vec![vec![0; BLOCK_BYTES]; BLOCKS as usize];
        let mut states = vec![shown.clone(), shown.clone()];
        let mut checkpoints = Vec::new();
        for number in 0..40 {
            let mut transaction = blocks.begin().unwrap();
            for _ in 0..random.usize(1..12) {
                let index = random.usize(..BLOCKS as usize);
                let language = random.usize(..model::LANGUAGES);
                shown[index] = model::words(&mut random, language);
                shown[index].resize(BLOCK_BYTES, 0);
                transaction.write(0, index as u64, &shown[index]).unwrap();
            }
            transaction.commit(Durability::Durable).unwrap();
            states.push(shown.clone());
            if number % checkpoint_every == checkpoint_every - 1 {
                blocks.checkpoint().unwrap();
                let told = Superblocks::open(file_of(&storage), KIND).unwrap();
                let payload = Payload::decode(&told.current().payload).unwrap();
                checkpoints.push(payload.checkpoint.unwrap().1);
            }
        }
        drop(blocks);
        let file = file_of(&storage);
        Past {
            storage,
            file,
            states,
            checkpoints,
        }
    }

    fn file_of(storage: &MemoryStorage) -> Arc<dyn StorageFile> {
        storage.open(NAME, OpenOptions::default()).unwrap()
    }

    impl Past {
        fn damage(&self, at: u64, bytes: &[u8]) {
            self.file.write_at(&[IoSlice::new(bytes)], at).unwrap();
        }

        /// Repairs. The store then shows its content behind the reported commit.
        fn check(&self, what: &str) -> u64 {
            let repaired = repair(&self.file, &mut |_, _| true).unwrap();
            println!("{what}: {repaired:?}");
            assert!(repaired.fault.is_some() && repaired.broken_blocks == 0);
            let blocks = Blocks::open(&self.storage, NAME, options()).unwrap();
            let snapshot = blocks.snapshot();
            assert_eq!(snapshot.commit(), repaired.commit, "{what}");
            let state = &self.states[repaired.commit as usize];
            for (index, expected) in state.iter().enumerate() {
                let mut found = vec![1; BLOCK_BYTES];
                snapshot.read(0, index as u64, &mut found).unwrap();
                assert!(found == *expected, "{what}: block {index}");
            }
            drop(snapshot);
            // It is a store like any other.
            let mut transaction = blocks.begin().unwrap();
            transaction.write(0, 0, &[7; BLOCK_BYTES]).unwrap();
            transaction.commit(Durability::Durable).unwrap();
            let verified = blocks.verify(|_, _| true).unwrap();
            assert_eq!(verified.fault_count, 0, "{what}: {:?}", verified.faults);
            repaired.commit
        }
    }

    fn bytes_of(file: &dyn StorageFile) -> Vec<u8> {
        let mut bytes = vec![0; file.status().unwrap().size_bytes as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn lost_superblocks_cost_nothing() {
        for every in [9, 1000] {
            for (what, bytes) in [("zeros", vec![0; 8192]), ("noise", vec![0xA5; 8192])] {
                let past = past(11, every);
                past.damage(0, &bytes);
                let last = past.states.len() as u64 - 1;
                assert_eq!(past.check(what), last, "{what}");
            }
            // With an id left, and the sizes.
            let past = past(12, every);
            past.damage(8, b"rot!");
            past.damage(4096 + 8, b"rot!");
            assert_eq!(past.check("checksums"), past.states.len() as u64 - 1);
        }
    }

    #[test]
    fn a_lost_checkpoint_is_made_up_for_by_the_one_before_and_the_log() {
        for loses_superblocks in [false, true] {
            // The last commit is in the checkpoint.
            let past = past(13, 10);
            past.damage(past.checkpoints.last().unwrap().address() + 8, b"rot!");
            if loses_superblocks {
                past.damage(0, &[0; 8192]);
            }
            let commit = past.check("the newest checkpoint");
            assert_eq!(commit, past.states.len() as u64 - 1);
        }
    }

    #[test]
    fn a_newer_state_that_lacks_blocks_goes_before_an_older_one_that_is_whole() {
        let past = past(16, 10);
        let last = past.states.len() - 1;
        let [.., before, newest] = &past.checkpoints[..] else {
            panic!("two checkpoints");
        };
        past.damage(0, &[0; 8192]);
        let bytes = bytes_of(&*past.file);
        let (mut tried, mut lacking) = (0, 0);
        // Frames of the ten commits before the newest checkpoint, which knows them without that log.
        for address in (before.address()..newest.address()).step_by(512) {
            past.damage(0, &bytes);
            past.damage(address, &[0x77; 16]);
            let repaired = repair(&past.file, &mut |_, _| true).unwrap();
            tried += 1;
            if repaired.broken_blocks == 0 {
                continue;
            }
            lacking += 1;
            assert_eq!(repaired.commit, last as u64, "{address}");
            let blocks = Blocks::open(&past.storage, NAME, options()).unwrap();
            let snapshot = blocks.snapshot();
            let mut lost = 0;
            for (index, expected) in past.states[last].iter().enumerate() {
                let mut found = vec![1; BLOCK_BYTES];
                match snapshot.read(0, index as u64, &mut found) {
                    Ok(_) => assert!(found == *expected, "{address}: block {index}"),
                    Err(_) => lost += 1,
                }
            }
            assert_eq!(lost, repaired.broken_blocks, "{address}");
        }
        println!("{tried} places damaged, {lacking} of them in blocks of the newest state");
        assert!(lacking >= 5, "{lacking}");
    }

    #[test]
    fn a_log_that_goes_on_behind_something_broken_is_left_there() {
        let past = past(15, 1000);
        // In the middle of the log, which has no checkpoint.
        let middle = past.file.status().unwrap().size_bytes / 2 + 1000;
        past.damage(middle, &[0x77; 600]);
        assert!(Blocks::open(&past.storage, NAME, options()).is_err());
        let commit = past.check("the middle of the log");
        assert!(
            (2..past.states.len() as u64 - 1).contains(&commit),
            "{commit}"
        );
    }

    #[test]
    fn what_is_whole_is_left_alone_and_what_cannot_be_saved_too() {
        let past = past(14, 9);
        let before = bytes_of(&*past.file);
        let repaired = repair(&past.file, &mut |_, _| true).unwrap();
        assert!(repaired.fault.is_none() && repaired.commit == past.states.len() as u64 - 1);
        assert!(before == bytes_of(&*past.file));
        // No head is left.
        past.damage(0, &vec![0x11; before.len()]);
        let before = bytes_of(&*past.file);
        let refused = repair(&past.file, &mut |_, _| true);
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert!(before == bytes_of(&*past.file));
    }
}
