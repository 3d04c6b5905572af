//! How long a store's file gets: cleaning keeps it to its live bytes, and a full one can be cleaned.

use fastrand::Rng;

use super::log::Use;
use super::{Blocks, BlocksOptions, Durability, STATS_FIELDS};
use crate::decide::fields::Row;
use crate::error::Error;
use crate::storage::{MemoryStorage, OpenOptions, Storage};
use crate::testing::seeded;

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 2048;
/// The blocks of one transaction.
const BATCH: usize = 32;

fn options() -> BlocksOptions {
    BlocksOptions {
        block_bytes_max: BLOCK_BYTES as u32,
        checkpoint_bytes: 1 << 20,
        seed: Some(7),
        ..BlocksOptions::default()
    }
}

/// Makes a block of words that zstd shortens better than lz4.
fn random_block(random: &mut Rng) -> Vec<u8> {
    (0..BLOCK_BYTES)
        .map(|_| b"etaoin shrdlu "[random.usize(..14)])
        .collect()
}

/// The live bytes, and the bytes of the segments with anything live.
fn live_and_held(blocks: &Blocks) -> (u64, u64) {
    let mut sums = (0, 0);
    let summed = blocks.with_writer(|_, writer| {
        let log = &writer.log;
        for (index, live_bytes) in log.live.iter().enumerate() {
            if log.uses[index] == Use::Held && *live_bytes > 0 {
                sums = (sums.0 + live_bytes, sums.1 + log.segments.get(index).bytes);
            }
        }
        Ok(())
    });
    summed.unwrap();
    sums
}

fn file_bytes(storage: &MemoryStorage) -> u64 {
    let file = storage.open("store", OpenOptions::read_only());
    file.unwrap().status().unwrap().size_bytes
}

/// Writes every block of a volume over, each time in another order, and calls `between` behind each
/// transaction.
fn overwrite(blocks: &Blocks, volume: u32, random: &mut Rng, mut between: impl FnMut(&Blocks)) {
    let mut order: Vec<u64> = (0..BLOCKS).collect();
    random.shuffle(&mut order);
    for batch in order.chunks(BATCH) {
        let mut transaction = blocks.begin().unwrap();
        for index in batch {
            transaction
                .write(volume, *index, &random_block(random))
                .unwrap();
        }
        transaction.commit(Durability::Lazy).unwrap();
        between(blocks);
    }
}

fn create(storage: &MemoryStorage, options: BlocksOptions) -> (Blocks, u32) {
    let blocks = Blocks::create(storage, "store", options).unwrap();
    let mut transaction = blocks.begin().unwrap();
    let volume = transaction.create_volume(BLOCK_BYTES as u32).unwrap();
    transaction.commit(Durability::Lazy).unwrap();
    (blocks, volume)
}

#[test]
fn a_cleaned_store_keeps_its_length_when_it_is_written_over() {
    let mut random = seeded("blocks space", 31);
    let storage = MemoryStorage::new();
    let (blocks, volume) = create(&storage, options());
    let raw_bytes = BLOCKS * BLOCK_BYTES as u64;
    let mut lengths = Vec::new();
    let (mut read_bytes, mut moved_bytes) = (0, 0);
    let mut longest = 0;
    for _ in 0..6 {
        overwrite(&blocks, volume, &mut random, |blocks| {
            let cleaned = blocks.tidy().unwrap();
            read_bytes += cleaned.read_bytes;
            moved_bytes += cleaned.moved_bytes;
            longest = longest.max(blocks.stats().file_bytes);
        });
        lengths.push(file_bytes(&storage));
    }
    let (live_bytes, held_bytes) = live_and_held(&blocks);
    println!(
        "{raw_bytes} raw bytes, {live_bytes} live in {held_bytes}; file {lengths:?}; \
         {read_bytes} read and {moved_bytes} moved for {} written",
        6 * raw_bytes
    );
    let last = *lengths.last().unwrap();
    let bound = (live_bytes as f64 * options().space_amp) as u64;
    assert!(held_bytes < bound, "{held_bytes} for {live_bytes}");
    assert!(
        last <= bound && longest <= bound * 21 / 20,
        "{last} and {longest} above {bound}"
    );
    assert!(moved_bytes > 0 && live_bytes < raw_bytes);
    let stats = blocks.stats();
    assert_eq!(stats.live_bytes, Some(live_bytes));
    assert_eq!(stats.held_bytes, Some(held_bytes));
    // The segment that comes next may be chosen and not yet there.
    let ahead = stats.file_bytes.checked_sub(last);
    assert!(
        ahead.is_some_and(|bytes| bytes <= 1 << 20),
        "{stats:?} {last}"
    );
    let text = STATS_FIELDS.text(&[Row {
        labels: &[],
        stats: &stats,
    }]);
    assert!(
        text.contains(&format!("live_bytes {live_bytes}\n")),
        "{text}"
    );
    for index in 0..BLOCKS {
        let mut block = vec![0; BLOCK_BYTES];
        blocks.snapshot().read(volume, index, &mut block).unwrap();
        assert!(block.iter().all(|byte| b"etaoin shrdlu ".contains(byte)));
    }
}

#[test]
fn what_moves_is_written_densely_and_moves_as_it_is_again() {
    let mut random = seeded("blocks density", 32);
    let storage = MemoryStorage::new();
    let thrifty = BlocksOptions {
        space_amp: 1.0,
        ..options()
    };
    let (blocks, volume) = create(&storage, thrifty);
    overwrite(&blocks, volume, &mut random, |_| {});
    blocks.checkpoint().unwrap();
    let (before, _) = live_and_held(&blocks);
    // A third of each segment dies.
    let mut transaction = blocks.begin().unwrap();
    for index in (0..BLOCKS).step_by(3) {
        transaction.trim(volume, index..index + 1).unwrap();
    }
    transaction.commit(Durability::Durable).unwrap();
    let cleaned = blocks.clean(u64::MAX).unwrap();
    let (after, _) = live_and_held(&blocks);
    println!("{before} live bytes, {after} behind {cleaned:?}");
    // lz4 does not shorten these and zstd does to about half; a third of that is gone.
    assert!(after < before * 2 / 5, "{after} of {before}");
    assert!(cleaned.freed_segments > 10, "{cleaned:?}");
    let mut block = vec![0; BLOCK_BYTES];
    let snapshot = blocks.snapshot();
    let moved = snapshot.locate(volume, 1).unwrap().expect("a block");
    snapshot.read(volume, 1, &mut block).unwrap();
    drop(snapshot);
    let mut transaction = blocks.begin().unwrap();
    transaction.trim(volume, 2 * BLOCKS / 3..BLOCKS).unwrap();
    transaction.trim(volume, 2..BLOCKS / 3).unwrap();
    transaction.commit(Durability::Durable).unwrap();
    blocks.clean(u64::MAX).unwrap();
    let mut again = vec![0; BLOCK_BYTES];
    blocks.snapshot().read(volume, 1, &mut again).unwrap();
    assert!(block == again && moved.address > 0);
}

#[test]
fn a_store_at_its_limit_is_written_over_by_cleaning_and_keeps_snapshots() {
    let mut random = seeded("blocks limit", 33);
    let storage = MemoryStorage::new();
    let raw_bytes = BLOCKS * BLOCK_BYTES as u64;
    let limited = BlocksOptions {
        file_bytes_max: 2 * raw_bytes,
        space_amp: 1.1,
        checkpoint_bytes: 256 << 10,
        ..options()
    };
    let (blocks, volume) = create(&storage, limited);
    let (mut refusals, mut stuck) = (0, 0);
    for _ in 0..4 {
        for _ in 0..BLOCKS as usize / BATCH {
            let indexes: Vec<u64> = (0..BATCH).map(|_| random.u64(..BLOCKS)).collect();
            let mut tries = 0;
            loop {
                let mut transaction = blocks.begin().unwrap();
                let mut indexes = indexes.iter();
                let written = indexes.try_for_each(|index| {
                    // Noise, so that the store is as full as it can be.
                    let mut block = vec![0; BLOCK_BYTES];
                    random.fill(&mut block);
                    transaction.write(volume, *index, &block)
                });
                let done = written.and_then(|()| transaction.commit(Durability::Lazy));
                match done {
                    Ok(_) => break,
                    Err(Error::Limit { .. }) => refusals += 1,
                    Err(error) => panic!("{error}"),
                }
                tries += 1;
                stuck = tries.max(stuck);
                assert!(tries < 10, "cleaning makes no room");
                blocks.clean(1 << 20).unwrap();
            }
        }
    }
    println!("{refusals} refusals, at most {stuck} for one transaction");
    assert!(refusals > 10, "{refusals}");
    assert!(file_bytes(&storage) <= 2 * raw_bytes);
}

/// A trim's changes in memory are written in time, though its record is short.
#[test]
fn what_is_trimmed_is_not_kept_in_memory() {
    const TRIMMED: u64 = 1 << 16;
    const RUN: u64 = 1 << 10;
    let storage = MemoryStorage::new();
    let few = BlocksOptions {
        checkpoint_bytes: 64 << 10,
        ..options()
    };
    let (blocks, volume) = create(&storage, few);
    let (mut held_bytes, mut transaction_bytes) = (0, 0);
    for start in (0..TRIMMED).step_by(RUN as usize) {
        let mut transaction = blocks.begin().unwrap();
        let block = [start as u8; BLOCK_BYTES];
        for index in start..start + RUN {
            transaction.write(volume, index, &block).unwrap();
        }
        transaction.commit(Durability::Lazy).unwrap();
    }
    blocks.checkpoint().unwrap();
    for start in (0..TRIMMED).step_by(RUN as usize) {
        let before = blocks.inner.shared.state().changed_bytes();
        let mut transaction = blocks.begin().unwrap();
        transaction.trim(volume, start..start + RUN).unwrap();
        transaction.commit(Durability::Lazy).unwrap();
        let after = blocks.inner.shared.state().changed_bytes();
        held_bytes = held_bytes.max(after);
        transaction_bytes = transaction_bytes.max(after.saturating_sub(before));
    }
    println!("{held_bytes} bytes, at most {transaction_bytes} by one");
    let most_bytes = 4 * few.checkpoint_bytes;
    assert!(held_bytes < most_bytes, "{held_bytes}");
    assert!(TRIMMED / RUN * transaction_bytes > 4 * most_bytes);
}

/// Stores at their limit: one that is mostly empty is written over for ever, and one that refuses takes more behind a
/// trim.
#[test]
fn a_store_at_its_limit_is_written_over_and_takes_more_behind_a_trim() {
    let mut random = seeded("blocks room", 34);
    let (mut written, mut refused) = (0, 0);
    for segments in (30..90).step_by(6) {
        for share in [4, 8, 12] {
            let storage = MemoryStorage::new();
            let limited = BlocksOptions {
                block_bytes_max: 512,
                segment_bytes_min: 8192,
                file_bytes_max: 8192 * (segments + 1),
                checkpoint_bytes: 64 << 20,
                seed: Some(segments),
                ..BlocksOptions::default()
            };
            let blocks = Blocks::create(&storage, "store", limited).unwrap();
            let mut transaction = blocks.begin().unwrap();
            let volume = transaction.create_volume(512).unwrap();
            transaction.commit(Durability::Lazy).unwrap();
            let addresses = 14 * segments * share / 10;
            let mut try_write = |blocks: &Blocks| {
                let mut transaction = blocks.begin().unwrap();
                let mut block = [0; 512];
                random.fill(&mut block);
                transaction.write(volume, random.u64(..addresses), &block)?;
                transaction.commit(Durability::Lazy)
            };
            let mut write = |blocks: &Blocks| {
                try_write(blocks).or_else(|_| {
                    blocks.make_room(1024).unwrap();
                    try_write(blocks)
                })
            };
            let wrote = (0..2 * addresses).try_for_each(|_| write(&blocks).map(drop));
            let Err(full) = wrote else {
                written += 1;
                continue;
            };
            assert!(share > 4, "{share} tenths of {segments} segments: {full}");
            assert!(matches!(full, Error::Limit { .. }), "{full}");
            refused += 1;
            let mut transaction = blocks.begin().unwrap();
            transaction.trim(volume, 0..addresses / 2).unwrap();
            transaction.commit(Durability::Durable).unwrap();
            let wrote = write(&blocks);
            assert!(wrote.is_ok(), "{wrote:?} behind a trim of one half");
        }
    }
    println!("{written} written over, {refused} refused something");
    assert!(written >= 10 && refused >= 10, "{written}, {refused}");
}
