//! The share of equal blocks that are found: behind many different ones, beyond the index's memory, after a restart, by
//! an import and by compacting.

use super::{Disk, DiskOptions};
use crate::blocks::{BlocksOptions, Durability};
use crate::error::Result;
use crate::storage::MemoryStorage;
use crate::testing::{is_full, seeded};

/// Bytes written at a time.
const WRITE_BYTES: usize = 64 << 10;

/// Images of blocks that differ in all, and shrink to a sixteenth where they are long.
struct Images {
    block_bytes: usize,
    blocks: u64,
}

impl Images {
    fn bytes(&self) -> u64 {
        self.blocks * self.block_bytes as u64
    }

    /// Returns some blocks of the image of a seed.
    fn part(&self, seed: u64, first: u64, count: u64) -> Vec<u8> {
        let mut part = Vec::new();
        for number in first..first + count {
            let mut random = fastrand::Rng::with_seed(seed << 40 | number);
            let mut words = [0; 256];
            random.fill(&mut words);
            part.extend(words.iter().cycle().take(self.block_bytes));
        }
        part
    }

    /// Writes the image of a seed at an offset.
    fn write(&self, disk: &Disk, seed: u64, offset: u64) -> Result<()> {
        let volume = disk.volume("disk")?;
        let step = (WRITE_BYTES / self.block_bytes) as u64;
        for first in (0..self.blocks).step_by(step as usize) {
            let part = self.part(seed, first, step.min(self.blocks - first));
            let at = offset + first * self.block_bytes as u64;
            volume.write(at, &part, Durability::Lazy)?;
        }
        Ok(())
    }

    fn check(&self, disk: &Disk, seed: u64, offset: u64) {
        let volume = disk.volume("disk").unwrap();
        let step = (WRITE_BYTES / self.block_bytes) as u64;
        for first in (0..self.blocks).step_by(step as usize) {
            let part = self.part(seed, first, step.min(self.blocks - first));
            let mut stored = vec![0; part.len()];
            let at = offset + first * self.block_bytes as u64;
            volume.read(at, &mut stored).unwrap();
            assert!(stored == part, "the block {first} of {seed}");
        }
    }

    fn options(&self, duplicates_bytes: usize) -> DiskOptions {
        DiskOptions {
            block_bytes: self.block_bytes as u32,
            duplicates_bytes,
            ..DiskOptions::default()
        }
    }
}

/// Writes an image, another one, and the first one again. Returns the found share of the latter's blocks, and its
/// growth of the file over the image's length in the file.
fn found_again(images: &Images, duplicates_bytes: usize) -> (f64, f64) {
    let storage = MemoryStorage::new();
    let options = images.options(duplicates_bytes);
    let disk = Disk::create(&storage, "disk", options).unwrap();
    disk.create_volume("disk", 3 * images.bytes()).unwrap();
    let live = || disk.stats().live_bytes.unwrap() as f64;
    let empty = live();
    images.write(&disk, 1, 0).unwrap();
    let one = live() - empty;
    // Nothing of it is equal to anything.
    images.write(&disk, 2, images.bytes()).unwrap();
    assert_eq!(disk.duplicate_stats().found, 0);
    let two = live();
    images.write(&disk, 1, 2 * images.bytes()).unwrap();
    let found = disk.duplicate_stats().found as f64 / images.blocks as f64;
    images.check(&disk, 1, 0);
    images.check(&disk, 1, 2 * images.bytes());
    (found, (live() - two) / one)
}

#[test]
fn a_second_image_is_found_behind_much_that_was_not() {
    let images = Images {
        block_bytes: 4096,
        blocks: (50 << 20) / 4096,
    };
    let (found, stored) = found_again(&images, 16 << 20);
    println!("50 MiB: {found:.4} found, {stored:.4} stored again");
    assert!(found >= 0.95 && stored <= 0.05);
}

#[test]
fn a_second_image_is_found_beyond_what_the_index_knows() {
    // The index of 16 MiB beside images of 1 and 8 GiB in blocks of 4 KiB, or all of that smaller by one factor.
    let (shrunk, block_bytes) = if is_full() { (1, 4096) } else { (256, 512) };
    for gib in [1, 8] {
        let images = Images {
            block_bytes,
            blocks: (gib << 18) / shrunk,
        };
        let (found, stored) = found_again(&images, (16 << 20) / shrunk as usize);
        println!("{gib} GiB: {found:.4} found, {stored:.4} stored again");
        assert!(found >= 0.95 && stored <= 0.1, "{gib} GiB");
    }
}

#[test]
fn a_second_image_is_found_after_a_restart() {
    let images = Images {
        block_bytes: 4096,
        blocks: 4096,
    };
    let options = images.options(16 << 20);
    let storage = MemoryStorage::new();
    let disk = Disk::create(&storage, "disk", options).unwrap();
    disk.create_volume("disk", 2 * images.bytes()).unwrap();
    images.write(&disk, 1, 0).unwrap();
    disk.close().unwrap();
    drop(disk);
    let disk = Disk::open(&storage, "disk", options).unwrap();
    let mut recall = disk.recall();
    let mut steps = 1;
    while recall.step().unwrap() {
        steps += 1;
    }
    assert!(steps > 1);
    images.write(&disk, 1, images.bytes()).unwrap();
    let found = disk.duplicate_stats().found as f64 / images.blocks as f64;
    println!("{found:.4} found after {steps} steps");
    assert!(found >= 0.95);
    images.check(&disk, 1, images.bytes());
}

#[test]
fn an_import_compares_all_that_may_be_equal() {
    let images = Images {
        block_bytes: 4096,
        blocks: 1024,
    };
    // Nothing pays where bytes are worth nothing.
    let options = DiskOptions {
        blocks: BlocksOptions {
            seconds_per_gb: 0.0,
            ..BlocksOptions::default()
        },
        ..images.options(16 << 20)
    };
    let storage = MemoryStorage::new();
    let fill = |disk: &Disk| {
        disk.create_volume("disk", 4 * images.bytes())?;
        for copy in 0..4 {
            images.write(disk, 1, copy * images.bytes())?;
        }
        assert_eq!(disk.duplicate_stats().found, 3 * images.blocks);
        Ok::<(), crate::Error>(())
    };
    Disk::make(&storage, "disk", options, fill).unwrap();
}

#[test]
fn compacting_makes_one_of_blocks_that_were_stored_apart() {
    let mut random = seeded("disk merge", 4202);
    let images = Images {
        block_bytes: 4096,
        blocks: 2048,
    };
    let storage = MemoryStorage::new();
    let disk = Disk::create(&storage, "disk", images.options(0)).unwrap();
    disk.create_volume("disk", 2 * images.bytes()).unwrap();
    images.write(&disk, 1, 0).unwrap();
    let one = disk.stats().live_bytes.unwrap();
    disk.clone_volume("disk", "before", true).unwrap();
    images.write(&disk, 1, images.bytes()).unwrap();
    disk.clone_volume("disk", "clone", false).unwrap();
    // The clone has a block of its own, which the others have elsewhere.
    let clone = disk.volume("clone").unwrap();
    let (from, to) = (random.u64(..images.blocks), random.u64(..images.blocks));
    let moved = images.part(1, from, 1);
    clone.write(to * 4096, &moved, Durability::Lazy).unwrap();
    drop(clone);
    disk.close().unwrap();
    let apart = disk.stats().file_bytes;
    drop(disk);
    let disk = Disk::open(&storage, "disk", DiskOptions::compacting()).unwrap();
    disk.compact().unwrap();
    disk.close().unwrap();
    let found = disk.duplicate_stats().found;
    let together = disk.stats().file_bytes;
    println!("{one} live of one image; {apart} bytes became {together}, {found} found");
    // The clone's second half is that of the original, and becomes the first one too.
    assert!((2 * images.blocks..=2 * images.blocks + 1).contains(&found));
    assert!(together < apart * 6 / 10);
    images.check(&disk, 1, 0);
    images.check(&disk, 1, images.bytes());
    let mut block = vec![0; 4096];
    clone_of(&disk, "clone", to, &mut block);
    assert!(block == moved);
    clone_of(&disk, "before", to, &mut block);
    assert!(block == images.part(1, to, 1));
}

fn clone_of(disk: &Disk, name: &str, index: u64, block: &mut [u8]) {
    let volume = disk.volume(name).unwrap();
    volume.read(index * 4096, block).unwrap();
}
