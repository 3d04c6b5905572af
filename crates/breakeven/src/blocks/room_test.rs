//! Full hosts: room freed there can be used again, and unused room goes back.
//!
//! A store is filled on the simulated disk until the host refuses, some of it is trimmed, and as much is written again.
//! The model knows the content of every block, and the power is cut now and then.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::{Blocks, BlocksOptions, Durability, is_for_room, model_test};
use crate::error::Result;
use crate::storage::SimulatedDisk;
use crate::storage::simulated::Damage;
use crate::testing::{is_full, seed};

const NAME: &str = "store";
const BLOCK_BYTES: usize = 512;
/// Freed blocks that may find no room: six segments, for scattered live ones.
const KEPT_BLOCKS: u64 = 6 * 14;
const VOLUME: u32 = 0;

fn options(seed: u64) -> BlocksOptions {
    BlocksOptions {
        block_bytes_max: BLOCK_BYTES as u32,
        segment_bytes_min: 8192,
        seed: Some(seed),
        ..BlocksOptions::default()
    }
}

/// A store on a host with a given room, and its expected content.
struct FullHost {
    disk: SimulatedDisk,
    blocks: Option<Blocks>,
    random: Rng,
    model: BTreeMap<u64, [u8; BLOCK_BYTES]>,
    /// As the last sync left it: a power cut may lose nothing of this.
    synced: BTreeMap<u64, [u8; BLOCK_BYTES]>,
}

impl FullHost {
    fn create(seed: u64, capacity_bytes: u64) -> FullHost {
        let disk = SimulatedDisk::new(seed);
        disk.set_capacity_bytes(Some(capacity_bytes));
        let blocks = Blocks::create(&*disk.start_process(), NAME, options(seed)).unwrap();
        let mut transaction = blocks.begin().unwrap();
        let volume = transaction.create_volume(BLOCK_BYTES as u32).unwrap();
        assert_eq!(volume, VOLUME);
        transaction.commit(Durability::Durable).unwrap();
        FullHost {
            disk,
            blocks: Some(blocks),
            random: Rng::with_seed(seed),
            model: BTreeMap::new(),
            synced: BTreeMap::new(),
        }
    }

    fn blocks(&self) -> &Blocks {
        self.blocks.as_ref().expect("an open store")
    }

    /// Writes noise to some blocks, all of them or none; where that is refused, room is made.
    fn write(&mut self, indexes: &[u64]) -> Result<()> {
        match self.try_write(indexes) {
            Err(error) if is_for_room(&error) => {
                self.blocks()
                    .make_room((indexes.len() * 2 * BLOCK_BYTES) as u64)?;
                self.try_write(indexes)
            }
            written => written,
        }
    }

    fn try_write(&mut self, indexes: &[u64]) -> Result<()> {
        let bytes = (indexes.len() * 2 * BLOCK_BYTES) as u64;
        let mut transaction = self.blocks().begin_with(bytes)?;
        let mut written = Vec::new();
        for index in indexes {
            let mut block = [0; BLOCK_BYTES];
            self.random.fill(&mut block);
            block[0] |= 1;
            transaction.write(VOLUME, *index, &block)?;
            written.push((*index, block));
        }
        transaction.commit(Durability::Lazy)?;
        self.model.extend(written);
        Ok(())
    }

    /// Writes to new addresses until there is no room; returns how many blocks found some.
    fn fill(&mut self, from: u64, blocks_max: u64) -> u64 {
        let mut count = 0;
        while count < blocks_max {
            let batch = self.random.u64(1..6).min(blocks_max - count);
            let indexes: Vec<u64> = (from + count..from + count + batch).collect();
            match self.write(&indexes) {
                Ok(()) => count += batch,
                Err(error) => {
                    assert!(is_for_room(&error), "{error}");
                    break;
                }
            }
        }
        count
    }

    /// Trims some of the blocks, each by itself or runs of them; a full host must not refuse.
    fn trim(&mut self, indexes: &[u64]) {
        let run = |from: &[u64]| {
            let follows = from.iter().zip(from[0]..).take_while(|(a, b)| *a == b);
            follows.count()
        };
        let mut left = indexes;
        while !left.is_empty() {
            let mut transaction = self.blocks().begin().expect("a trim is refused");
            for _ in 0..self.random.usize(1..9) {
                if left.is_empty() {
                    break;
                }
                let count = run(left);
                let range = left[0]..left[0] + count as u64;
                transaction.trim(VOLUME, range).expect("a trim is refused");
                for index in &left[..count] {
                    self.model.remove(index);
                }
                left = &left[count..];
            }
            transaction
                .commit(Durability::Lazy)
                .expect("a trim is refused");
        }
    }

    fn sync(&mut self) {
        self.blocks().sync().expect("a flush is refused");
        self.synced = self.model.clone();
    }

    /// Ends the process, in one of the ways in which it may end, and opens the store again.
    fn restart(&mut self) {
        match self.random.u8(..3) {
            0 => self.blocks().close().expect("closing is refused"),
            1 => self.disk.kill_processes(),
            _ => {
                self.disk.kill_processes();
                self.disk.cut_power(Damage::LoseAll);
            }
        }
        self.blocks = None;
        self.disk.kill_processes();
        let process = self.disk.start_process();
        let seed = self.random.u64(..);
        self.blocks = Some(Blocks::open(&*process, NAME, options(seed)).unwrap());
        self.verify();
    }

    /// Compares every block with the written one.
    fn verify(&self) {
        model_test::verify(self.blocks());
        let snapshot = self.blocks().snapshot();
        let end = self
            .model
            .keys()
            .chain(self.synced.keys())
            .max()
            .map_or(1, |last| last + 2);
        for index in 0..end {
            let mut block = [0; BLOCK_BYTES];
            snapshot.read(VOLUME, index, &mut block).unwrap();
            let expected = self.model.get(&index).copied().unwrap_or([0; BLOCK_BYTES]);
            assert!(block == expected, "block {index} is another");
        }
    }
}

/// The blocks to trim: everything but a run, or scattered ones.
fn choose_trimmed(random: &mut Rng, blocks: u64, percent: u64) -> Vec<u64> {
    let count = blocks * percent / 100;
    if random.bool() {
        let from = random.u64(..=blocks - count);
        return (from..from + count).collect();
    }
    let mut all: Vec<u64> = (0..blocks).collect();
    random.shuffle(&mut all);
    let mut chosen = all[..count as usize].to_vec();
    chosen.sort_unstable();
    chosen
}

/// Hosts of every size, filled until they refuse. Behind trims and a flush the trimmed blocks find room, at once and
/// behind a restart.
#[test]
fn a_full_host_takes_as_much_as_was_trimmed_there() {
    let seed = seed(2701);
    let (mut refused, mut rewritten, mut restarts) = (0, 0, 0);
    for run in 0..if is_full() { 2000 } else { 60 } {
        let mut random = Rng::with_seed(seed + run);
        let capacity_bytes = 8192 * random.u64(16..200);
        let mut host = FullHost::create(seed + run, capacity_bytes);
        let blocks = host.fill(0, u64::MAX);
        host.sync();
        refused += 1;
        for round in 0..3 {
            let percent = *[50, 70, 90, 100]
                .get(random.usize(..4))
                .expect("one of four");
            let trimmed = choose_trimmed(&mut random, blocks, percent);
            let freed = trimmed
                .iter()
                .filter(|it| host.model.contains_key(it))
                .count() as u64;
            host.trim(&trimmed);
            host.sync();
            host.verify();
            let left = host.model.len();
            if random.bool() {
                restarts += 1;
                host.restart();
            }
            let wanted = (freed * 3 / 4).saturating_sub(KEPT_BLOCKS);
            let taken = host.fill(blocks + round * blocks, wanted);
            assert!(
                taken == wanted,
                "seed {}, {capacity_bytes} bytes, round {round}: {taken} of {wanted} blocks, {freed} of {blocks} trimmed, {left} left",
                seed + run
            );
            rewritten += taken;
            host.sync();
            host.verify();
            // Back to the first addresses, so that the next round trims as much.
            let moved: Vec<u64> = host
                .model
                .keys()
                .copied()
                .filter(|index| *index >= blocks)
                .collect();
            host.trim(&moved);
            host.sync();
            let again: Vec<u64> = trimmed.iter().copied().take(wanted as usize).collect();
            for index in again {
                host.write(&[index]).expect("less than there was");
            }
            host.sync();
        }
        host.restart();
    }
    println!("{refused} full hosts, {rewritten} blocks written again, {restarts} restarts");
    assert!(
        rewritten > 10_000 && restarts > 60,
        "{rewritten}, {restarts}"
    );
}
