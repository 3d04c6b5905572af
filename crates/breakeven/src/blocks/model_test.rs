//! The store against a plain map: after every operation on both, both show the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use super::{Blocks, BlocksOptions, Durability, Snapshot, Transaction};
use crate::error::Result;
use crate::storage::MemoryStorage;
use crate::testing::{is_full, seeded};

/// Blocks of tests are as short as they can be.
pub(super) const BLOCK_BYTES: usize = 512;
/// Longer ones come to stores whose first segments are no longer than that.
const LONG_BLOCK_BYTES: usize = 8192;
/// Few addresses, so that most are written several times, and a few far ones for higher maps.
const NEAR: u64 = 40;
const FAR: [u64; 6] = [1023, 1024, 5000, 1 << 20, (1 << 30) + 7, (1 << 40) - 1];

/// The expected content of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ModelVolume {
    pub(super) block_bytes: usize,
    pub(super) size_blocks: u64,
    pub(super) blocks: BTreeMap<u64, Arc<[u8]>>,
}

/// The expected content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Model {
    pub(super) volumes: BTreeMap<u32, ModelVolume>,
    pub(super) notes: BTreeMap<u32, Vec<u8>>,
}

impl Model {
    /// Returns whether there are blocks that are longer than the store was made for.
    pub(super) fn is_mixed(&self) -> bool {
        let mut volumes = self.volumes.values();
        volumes.any(|volume| volume.block_bytes > BLOCK_BYTES)
    }
}

pub(super) fn options(seed: u64) -> BlocksOptions {
    let method = |name: &str| Some(name.parse().expect("a method"));
    // One store in three writes by the chooser, and cleans so; it may be opened by another next time.
    let [written, moved] = match seed % 3 {
        0 => [None, None],
        1 => [method("lz4:1"), method("zstd:1+dict")],
        _ => [method("zstd:1+dict"), method("zstd:1+dict")],
    };
    BlocksOptions {
        block_bytes_max: BLOCK_BYTES as u32,
        // One in four has segments as a small database has them.
        segment_bytes_min: if seed % 4 == 3 { 16_384 } else { 8192 },
        checkpoint_bytes: 20_000,
        map_cache_bytes: 1 << 20,
        clean_method: moved,
        method: written,
        // Test stores are too short for a dictionary to pay.
        seconds_per_gb: 1e6,
        dictionary_share: 1000.0,
        seed: Some(seed),
        ..BlocksOptions::default()
    }
}

/// How many languages there are for dictionaries to know.
pub(super) const LANGUAGES: usize = 3;

/// Makes a block that a dictionary of its language shortens, and nothing else.
pub(super) fn words(random: &mut Rng, language: usize) -> Vec<u8> {
    let mut made = Rng::with_seed(language as u64);
    let known: Vec<[u8; 24]> = (0..40)
        .map(|_| std::array::from_fn(|_| made.u8(..)))
        .collect();
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    while block.len() < BLOCK_BYTES / 2 {
        block.extend_from_slice(&known[random.usize(..known.len())]);
    }
    // Zeros at the end would not be stored, nor taught.
    block.resize(BLOCK_BYTES, 1);
    block
}

/// Makes a block that compresses, or does not.
pub(super) fn random_block(random: &mut Rng) -> Vec<u8> {
    let language = random.usize(..LANGUAGES);
    let mut block = match random.bool() {
        true => words(random, language),
        false => vec![0; BLOCK_BYTES],
    };
    let noise = [0, 8, 40, 200, BLOCK_BYTES][random.usize(..5)];
    random.fill(&mut block[..noise]);
    block[BLOCK_BYTES - 8..].copy_from_slice(&random.u64(..).to_le_bytes());
    block
}

/// As [`random_block`], of a length; half of the long ones compress.
fn random_block_of(random: &mut Rng, block_bytes: usize) -> Vec<u8> {
    let block = random_block(random);
    let mut long = block.repeat(block_bytes / BLOCK_BYTES);
    if block_bytes > BLOCK_BYTES && random.bool() {
        random.fill(&mut long);
    }
    long
}

fn random_index(random: &mut Rng) -> u64 {
    match random.u8(..10) {
        0 => FAR[random.usize(..FAR.len())],
        _ => random.u64(..NEAR),
    }
}

/// Writes, trims or resizes.
fn change_blocks(
    random: &mut Rng,
    transaction: &mut Transaction,
    volume: u32,
    target: &mut ModelVolume,
) -> Result<()> {
    match random.u8(..30) {
        0..=24 => {
            let index = random_index(random);
            let block = random_block_of(random, target.block_bytes);
            transaction.write(volume, index, &block)?;
            target.blocks.insert(index, Arc::from(block));
            target.size_blocks = target.size_blocks.max(index + 1);
        }
        25..=27 => {
            let start = random_index(random);
            let end = start.saturating_add(random.u64(..30)).min(1 << 40);
            transaction.trim(volume, start..end)?;
            target
                .blocks
                .retain(|index, _| !(start..end).contains(index));
        }
        _ => {
            let size_blocks = random_index(random);
            transaction.resize(volume, size_blocks)?;
            target.blocks.retain(|index, _| *index < size_blocks);
            target.size_blocks = size_blocks;
        }
    }
    Ok(())
}

fn create_volume(
    block_bytes: usize,
    transaction: &mut Transaction,
    model: &mut Model,
) -> Result<()> {
    let made = transaction.create_volume(block_bytes as u32)?;
    let volume = ModelVolume {
        block_bytes,
        ..ModelVolume::default()
    };
    model.volumes.insert(made, volume);
    Ok(())
}

/// Does one random thing to both.
pub(super) fn step(
    random: &mut Rng,
    transaction: &mut Transaction,
    model: &mut Model,
) -> Result<()> {
    let volumes: Vec<u32> = model.volumes.keys().copied().collect();
    let Some(volume) = random.choice(volumes.iter().copied()) else {
        return create_volume(BLOCK_BYTES, transaction, model);
    };
    let target = model.volumes.get_mut(&volume).expect("a volume");
    match random.u8(..41) {
        0..=29 => change_blocks(random, transaction, volume, target)?,
        30..=32 => {
            let (key, length) = (random.u32(..4), random.usize(..40));
            let bytes: Vec<u8> = (0..length).map(|_| random.u8(..)).collect();
            transaction.note(key, &bytes)?;
            match length {
                0 => model.notes.remove(&key),
                _ => model.notes.insert(key, bytes),
            };
        }
        33..=36 => {
            let block_bytes = target.block_bytes;
            let alike = (model.volumes.iter()).filter(|(_, it)| it.block_bytes == block_bytes);
            let alike: Vec<u32> = alike.map(|(to, _)| *to).collect();
            let to = random.choice(alike).expect("itself");
            let target = model.volumes.get_mut(&volume).expect("a volume");
            let (from, at) = (random_index(random), random_index(random));
            transaction.alias((volume, from), (to, at))?;
            let block = target.blocks.get(&from).cloned();
            let target = model.volumes.get_mut(&to).expect("a volume");
            match block {
                None => target.blocks.remove(&at),
                Some(block) => target.blocks.insert(at, block),
            };
            target.size_blocks = target.size_blocks.max(at + 1);
        }
        37 if volumes.len() < 4 => {
            let clone = target.clone();
            let made = transaction.clone_volume(volume)?;
            model.volumes.insert(made, clone);
        }
        38 if volumes.len() > 1 => {
            transaction.remove_volume(volume)?;
            model.volumes.remove(&volume);
        }
        // Rarely: they are long.
        40 if volumes.len() < 4 && random.u8(..4) == 0 => {
            create_volume(LONG_BLOCK_BYTES, transaction, model)?;
        }
        _ => {
            let index = random_index(random);
            let mut block = vec![0xEE; target.block_bytes];
            transaction.read(volume, index, &mut block)?;
            let zeros = vec![0; target.block_bytes];
            let expected = target.blocks.get(&index).map_or(&zeros[..], |it| it);
            assert!(block == *expected, "block {index} of volume {volume}");
        }
    }
    Ok(())
}

/// Reads all that a snapshot shows.
pub(super) fn shown(snapshot: &Snapshot) -> Result<Model> {
    let mut model = Model::default();
    for volume in snapshot.volumes() {
        let block_bytes = snapshot.block_bytes(volume)? as usize;
        let mut found = ModelVolume {
            block_bytes,
            size_blocks: snapshot.size_blocks(volume)?,
            ..ModelVolume::default()
        };
        let mut from = 0;
        while let Some(range) = snapshot.next_mapped(volume, from)? {
            from = range.end;
            // The first one alone, and all of them with the hole behind them at once.
            let mut block = vec![0; block_bytes];
            snapshot.read(volume, range.start, &mut block)?;
            let count = (range.end - range.start) as usize;
            let mut run = vec![1; (count + 1) * block_bytes];
            snapshot.read_run(volume, range.start, &mut run)?;
            let (blocks, behind) = run.split_at(count * block_bytes);
            assert!(blocks.starts_with(&block) && behind.iter().all(|byte| *byte == 0));
            for (index, block) in range.zip(blocks.chunks_exact(block_bytes)) {
                found.blocks.insert(index, Arc::from(block));
            }
        }
        model.volumes.insert(volume, found);
    }
    for key in 0..10 {
        if let Some(bytes) = snapshot.note(key) {
            model.notes.insert(key, bytes.to_vec());
        }
    }
    Ok(model)
}

pub(super) fn check(snapshot: &Snapshot, model: &Model) {
    let shown = shown(snapshot).unwrap();
    assert!(shown == *model, "transaction {} differs", snapshot.commit());
}

/// Looks at everything; nothing may be wrong.
pub(super) fn verify(blocks: &Blocks) {
    let verified = blocks.verify(|seen, total| seen <= total).unwrap();
    assert!(verified.fault_count == 0, "{:?}", verified.faults);
    assert!(verified.has_compared_live);
}

#[test]
fn the_store_shows_what_a_map_would() {
    let mut random = seeded("blocks model", 22);
    let (runs, rounds) = if is_full() { (400, 200) } else { (20, 120) };
    let (mut commits, mut aborts, mut reopened, mut snapshots) = (0, 0, 0, 0);
    let mut cleanings = 0;
    for run in 0..runs {
        let storage = MemoryStorage::new();
        let seed = random.u64(..);
        let mut blocks = Blocks::create(&storage, "store", options(seed)).unwrap();
        let mut model = Model::default();
        let mut held: Vec<(Snapshot, Model)> = Vec::new();
        for round in 0..rounds {
            let mut transaction = blocks.begin().unwrap();
            let mut next = model.clone();
            for _ in 0..random.usize(..12) {
                step(&mut random, &mut transaction, &mut next).unwrap();
            }
            if random.u8(..8) == 0 {
                drop(transaction);
                aborts += 1;
            } else {
                let durability = [Durability::Durable, Durability::Lazy][random.usize(..2)];
                transaction.commit(durability).unwrap();
                (model, commits) = (next, commits + 1);
            }
            match random.u8(..20) {
                0..=3 => held.push((blocks.snapshot(), model.clone())),
                4..=6 if !held.is_empty() => {
                    let (snapshot, model) = held.swap_remove(random.usize(..held.len()));
                    check(&snapshot, &model);
                    snapshots += 1;
                }
                7 => blocks.checkpoint().unwrap(),
                8 => {
                    held.drain(..)
                        .for_each(|(snapshot, model)| check(&snapshot, &model));
                    let is_closed = random.bool();
                    if is_closed {
                        blocks.close().unwrap();
                    }
                    drop(blocks);
                    blocks = Blocks::open(&storage, "store", options(seed + round)).unwrap();
                    assert!(!is_closed || blocks.opened().replayed_commits == 0);
                    verify(&blocks);
                    assert!(!is_closed || blocks.opened().is_whole(), "run {run}");
                    reopened += 1;
                }
                9..=11 => {
                    let cleaned = blocks.clean(random.u64(..40_000)).unwrap();
                    cleanings += u64::from(cleaned.moved_bytes > 0);
                }
                _ => {}
            }
            if round % 10 == 0 {
                check(&blocks.snapshot(), &model);
                verify(&blocks);
            }
        }
        check(&blocks.snapshot(), &model);
    }
    println!(
        "{commits} commits, {aborts} aborts, {reopened} reopened, {snapshots} old snapshots, \
         {cleanings} cleanings that moved something"
    );
    assert!(cleanings > runs, "{cleanings}");
    assert!(
        commits > runs * 80 && aborts > runs * 8 && reopened > runs * 2 && snapshots > runs * 8
    );
}

#[test]
fn what_is_removed_leaves_nothing() {
    let mut random = seeded("blocks leak", 23);
    let storage = MemoryStorage::new();
    let blocks = Blocks::create(&storage, "store", options(1)).unwrap();
    let mut model = Model::default();
    for _ in 0..200 {
        let mut transaction = blocks.begin().unwrap();
        for _ in 0..random.usize(..12) {
            step(&mut random, &mut transaction, &mut model).unwrap();
        }
        transaction.commit(Durability::Lazy).unwrap();
    }
    let mut transaction = blocks.begin().unwrap();
    for volume in model.volumes.keys() {
        transaction.remove_volume(*volume).unwrap();
    }
    transaction.commit(Durability::Durable).unwrap();
    let state = blocks.inner.shared.state();
    let used = (1..state.table.next_frame)
        .filter(|id| state.entry(*id, &blocks.inner.file).unwrap().references > 0);
    assert_eq!(used.count(), 0);
    assert_eq!(state.nodes.len(), 0);
}
