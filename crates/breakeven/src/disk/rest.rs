//! Work while nobody writes: the disk is made dense in small steps.
//!
//! Writers want speed, and blocks that are soon overwritten are not worth more. Blocks that stay are worth as much as
//! in compacting. No clock is read here: the server passes the time.

use std::time::Duration;

use super::Disk;
use crate::blocks::{Densified, Density};
use crate::error::{Error, Result};

/// A disk rests when nobody wrote for this long. It is twice the time that a file system waits before it writes changes
/// (`/proc/sys/vm/dirty_writeback_centisecs` is 500).
const IDLE: Duration = Duration::from_secs(10);

/// More than a step moves, with its writes beside.
const STEP_BYTES: u64 = 4 << 20;

/// The rest of a disk, in steps.
pub struct Rest {
    disk: Disk,
    density: Density,
    /// The count of writes, and the time of the last look at it.
    writes: u64,
    since: Duration,
    is_done: bool,
}

impl Disk {
    /// Returns a [`Rest`], which makes the disk dense while it rests. A disk has one, and [`Rest::step`] is called
    /// every second or so.
    pub fn rest(&self) -> Rest {
        Rest {
            disk: self.clone(),
            density: Density::default(),
            writes: self.inner.written.count(),
            since: Duration::ZERO,
            is_done: false,
        }
    }
}

impl Rest {
    /// Does a step if nobody wrote for ten seconds; returns whether to call it again at once. `now` is the time since
    /// any moment, always the same one. A writer that begins meanwhile waits for the rest of a transaction that moves
    /// some 2 MiB.
    ///
    /// # Errors
    /// Those of reading and writing, after which the disk may refuse all changes until it is opened again. Where the
    /// host has no room nothing happens.
    ///
    /// # Cost
    /// A look at a counter, or that of [`crate::blocks::Blocks::densify`].
    pub fn step(&mut self, now: Duration) -> Result<bool> {
        let writes = self.disk.inner.written.count();
        if writes != self.writes {
            self.note_written(writes);
            self.since = now;
        }
        if self.is_done || now.saturating_sub(self.since) < IDLE {
            return Ok(false);
        }
        let disk = self.disk.clone();
        let densified = self.densify(&|| disk.inner.written.count() == writes)?;
        Ok(densified == Densified::Some)
    }

    /// Does all the remaining work, whoever wrote last, for as long as `goes_on` says.
    ///
    /// # Errors
    /// As [`Rest::step`].
    pub fn finish(&mut self, goes_on: &dyn Fn() -> bool) -> Result<()> {
        self.note_written(self.disk.inner.written.count());
        while goes_on() && self.densify(goes_on)? == Densified::Some {}
        Ok(())
    }

    fn note_written(&mut self, writes: u64) {
        self.writes = writes;
        self.is_done = false;
        self.density.note_written();
    }

    fn densify(&mut self, goes_on: &dyn Fn() -> bool) -> Result<Densified> {
        let inner = &self.disk.inner;
        let densified = match inner.blocks.has_written() && inner.has_room(STEP_BYTES)? {
            true => inner.blocks.densify(&mut self.density, goes_on),
            false => Ok(Densified::All),
        };
        let densified = match densified {
            Err(Error::Limit { .. }) => Densified::All,
            Err(error) if error.is_out_of_space() => Densified::All,
            densified => densified?,
        };
        self.is_done = densified == Densified::All;
        Ok(densified)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::blocks::Durability;
    use crate::disk::DiskOptions;
    use crate::storage::{MemoryStorage, OpenOptions, SimulatedDisk, Storage};
    use crate::testing::seeded;

    const BLOCK_BYTES: usize = 4096;
    const BLOCKS: u64 = 2048;
    /// More steps than there are segments.
    const STEPS_MAX: usize = 10_000;

    /// Returns a block of words, of noise, or of numbers that count.
    fn block(random: &mut fastrand::Rng) -> Vec<u8> {
        let words = [
            "volume ", "segment ", "of ", "the ", "log ", "is ", "written ", "again ",
        ];
        let mut block = Vec::with_capacity(BLOCK_BYTES + 8);
        let kind = random.u8(..4);
        let mut number = random.u32(..);
        while block.len() < BLOCK_BYTES {
            match kind {
                0 => block.push(random.u8(..)),
                1 => {
                    number = number.wrapping_add(random.u32(..100));
                    block.extend(number.to_le_bytes());
                }
                _ => block.extend(words[random.usize(..words.len())].as_bytes()),
            }
        }
        block.truncate(BLOCK_BYTES);
        block
    }

    /// A written disk, with a third of it written twice, and its content.
    fn written(storage: &dyn Storage, seed: u64) -> (Disk, Vec<u8>) {
        written_of(storage, seed, BLOCKS)
    }

    fn written_of(storage: &dyn Storage, seed: u64, blocks: u64) -> (Disk, Vec<u8>) {
        let mut random = fastrand::Rng::with_seed(seed);
        let disk = Disk::create(storage, "disk", DiskOptions::default()).unwrap();
        let size_bytes = blocks * BLOCK_BYTES as u64;
        disk.create_volume("disk", size_bytes).unwrap();
        let volume = disk.volume("disk").unwrap();
        let mut expected = vec![0; size_bytes as usize];
        for number in 0..blocks + blocks / 3 {
            let index = match number < blocks {
                true => number,
                false => random.u64(..blocks),
            };
            let at = index as usize * BLOCK_BYTES;
            let block = block(&mut random);
            expected[at..at + BLOCK_BYTES].copy_from_slice(&block);
            volume.write(at as u64, &block, Durability::Lazy).unwrap();
            disk.tidy().unwrap();
        }
        (disk, expected)
    }

    fn check(disk: &Disk, expected: &[u8]) {
        let mut shown = vec![0; expected.len()];
        disk.volume("disk").unwrap().read(0, &mut shown).unwrap();
        assert!(shown == expected, "other bytes than were written");
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Rests until nothing is left; returns the steps.
    fn rest_out(rest: &mut Rest, now: Duration) -> usize {
        let mut steps = 1;
        while rest.step(now).unwrap() {
            steps += 1;
            assert!(steps < STEPS_MAX);
        }
        steps
    }

    #[test]
    fn a_disk_that_rests_becomes_as_dense_as_compacting_makes_it() {
        let seed = 4203;
        let storage = MemoryStorage::new();
        let (disk, expected) = written(&storage, seed);
        let mut rest = disk.rest();
        let length = || disk.stats().file_bytes;
        let before = length();
        for second in 1..10 {
            assert!(!rest.step(seconds(second)).unwrap());
        }
        assert_eq!(length(), before);
        let steps = rest_out(&mut rest, seconds(15));
        let rested = length();
        check(&disk, &expected);
        assert!(!rest.step(seconds(1000)).unwrap());
        // At stop the same is done.
        let storage = MemoryStorage::new();
        let (stopped, _) = written(&storage, seed);
        stopped.rest().finish(&|| true).unwrap();
        let at_stop = stopped.stats().file_bytes;
        check(&stopped, &expected);
        stopped.close().unwrap();
        drop(stopped);
        let disk = Disk::open(&storage, "disk", DiskOptions::compacting()).unwrap();
        disk.compact().unwrap();
        let compacted = disk.stats().file_bytes;
        println!(
            "{before} bytes became {rested} in {steps} steps, {at_stop} at stop, {compacted} by compacting"
        );
        assert!(steps > 3);
        assert!(
            rested as f64 <= 1.15 * compacted as f64 && at_stop as f64 <= 1.15 * compacted as f64
        );
        assert!(before as f64 > 1.3 * compacted as f64);
    }

    /// The room that is kept for trims is little of it, too.
    #[test]
    fn a_small_disk_that_rests_becomes_as_dense_as_compacting_makes_it() {
        for blocks in [100, 200, 400, 600, 1000] {
            let storage = MemoryStorage::new();
            let (disk, expected) = written_of(&storage, 4205 + blocks, blocks);
            disk.rest().finish(&|| true).unwrap();
            let rested = disk.stats().file_bytes;
            check(&disk, &expected);
            disk.close().unwrap();
            drop(disk);
            let disk = Disk::open(&storage, "disk", DiskOptions::compacting()).unwrap();
            disk.compact().unwrap();
            let compacted = disk.stats().file_bytes;
            println!("{blocks} blocks: {rested} bytes at rest, {compacted} by compacting");
            // The room of a small disk that rests is two segments more.
            let most = (1.15 * compacted as f64) as u64 + 2 * (64 << 10);
            assert!(rested <= most, "{rested} bytes, at most {most}");
        }
    }

    #[test]
    fn who_writes_is_given_way_to() {
        let storage = MemoryStorage::new();
        let (disk, mut expected) = written(&storage, 4204);
        let mut random = seeded("disk rest", 4204);
        let volume = disk.volume("disk").unwrap();
        let mut rest = disk.rest();
        let mut now = seconds(1);
        assert!(!rest.step(now).unwrap());
        for round in 0..20 {
            now += seconds(11);
            for _ in 0..round % 4 {
                rest.step(now).unwrap();
            }
            let index = random.usize(..BLOCKS as usize);
            let block = block(&mut random);
            let at = index * BLOCK_BYTES;
            expected[at..at + BLOCK_BYTES].copy_from_slice(&block);
            volume.write(at as u64, &block, Durability::Lazy).unwrap();
            let commit = disk.stats().commit;
            assert!(!rest.step(now + seconds(1)).unwrap());
            assert_eq!(disk.stats().commit, commit);
        }
        // In the middle of a step, too: the blocks that it would have moved stay.
        let commit = disk.stats().commit;
        let mut density = Density::default();
        let written = Cell::new(0);
        let write = || {
            let byte = written.get() as u8;
            let write = volume.write(0, &[byte; BLOCK_BYTES], Durability::Durable);
            write.unwrap();
            written.set(written.get() + 1);
            false
        };
        for _ in 0..4 {
            let densified = disk.inner.blocks.densify(&mut density, &write).unwrap();
            assert_ne!(densified, Densified::All);
        }
        assert!(written.get() > 2);
        assert_eq!(disk.stats().commit, commit + written.get());
        expected[..BLOCK_BYTES].fill(written.get() as u8 - 1);
        rest_out(&mut rest, now + seconds(100));
        check(&disk, &expected);
        disk.close().unwrap();
        drop((volume, rest));
        drop(disk);
        let disk = Disk::open(&storage, "disk", DiskOptions::default()).unwrap();
        check(&disk, &expected);
    }

    #[test]
    fn a_disk_that_rested_is_trimmed_on_a_full_host() {
        let mut random = seeded("disk rest on a full host", 4206);
        for way in ["idle", "stop"] {
            let host = SimulatedDisk::new(4206);
            let storage = host.start_process();
            let (mut disk, mut expected) = written(&*storage, 4206);
            disk.flush().unwrap();
            disk.rest().finish(&|| true).unwrap();
            if way == "stop" {
                disk.close().unwrap();
                drop(disk);
                disk = Disk::open(&*storage, "disk", DiskOptions::default()).unwrap();
            }
            let allocated_bytes = || {
                let file = storage.open("disk", OpenOptions::read_only()).unwrap();
                file.status().unwrap().allocated_bytes
            };
            host.set_capacity_bytes(Some(allocated_bytes()));
            let volume = disk.volume("disk").unwrap();
            for _ in 0..300 {
                let from = random.usize(..BLOCKS as usize) * BLOCK_BYTES;
                let end = (from + random.usize(1..40) * BLOCK_BYTES).min(expected.len());
                expected[from..end].fill(0);
                let trimmed = volume.trim(from as u64, (end - from) as u64, Durability::Lazy);
                trimmed.unwrap();
                if random.u8(..4) == 0 {
                    disk.flush().unwrap();
                }
            }
            disk.flush().unwrap();
            check(&disk, &expected);
            println!("{way}: {} bytes are left", allocated_bytes());
        }
    }

    #[test]
    fn what_is_dense_is_left_alone() {
        let storage = MemoryStorage::new();
        let (disk, mut expected) = written(&storage, 4205);
        disk.rest().finish(&|| true).unwrap();
        disk.close().unwrap();
        drop(disk);
        let disk = Disk::open(&storage, "disk", DiskOptions::default()).unwrap();
        let mut rest = disk.rest();
        assert!(!rest.step(seconds(100)).unwrap(), "nobody wrote");
        let volume = disk.volume("disk").unwrap();
        expected[..BLOCK_BYTES].fill(7);
        volume
            .write(0, &expected[..BLOCK_BYTES], Durability::Lazy)
            .unwrap();
        assert!(!rest.step(seconds(101)).unwrap());
        let commit = disk.stats().commit;
        rest_out(&mut rest, seconds(200));
        let moves = disk.stats().commit - commit;
        println!("{moves} transactions moved anything");
        assert!(moves <= 4, "{moves}");
        check(&disk, &expected);
    }
}
