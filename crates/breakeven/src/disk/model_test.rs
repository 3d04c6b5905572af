//! A disk against plain bytes, and its reports about itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::proof_test::{Content, Request, shown};
use super::small::{BLOCK_BYTES, SIZE_BYTES, options};
use super::{ChangedExtent, Disk, DiskOptions, Extent, Room};
use crate::blocks::{Blocks, BlocksOptions, Durability};
use crate::error::{Error, Result};
use crate::storage::MemoryStorage;
use crate::testing::{is_full, seeded};

/// Checks the extents of a random range: those called holes are zeros.
fn check_extents(random: &mut fastrand::Rng, disk: &Disk, content: &Content) -> usize {
    let (name, bytes) = content.iter().next().expect("a volume");
    let start = random.usize(..bytes.len());
    let end = random.usize(start + 1..=bytes.len());
    let blocks_max = random.u64(1..40);
    let volume = disk.volume(name).unwrap();
    let extents = volume
        .extents(start as u64..end as u64, blocks_max)
        .unwrap();
    let mut at = start;
    for (number, extent) in extents.iter().enumerate() {
        let next = at + extent.length_bytes as usize;
        assert!(next > at && next <= end, "{extents:?} of {start}..{end}");
        assert!(number == 0 || extents[number - 1].is_hole != extent.is_hole);
        assert!(!extent.is_hole || bytes[at..next].iter().all(|byte| *byte == 0));
        for block in bytes.chunks(BLOCK_BYTES).enumerate() {
            let inside = block.0 * BLOCK_BYTES >= at && (block.0 + 1) * BLOCK_BYTES <= next;
            let is_zero = block.1.iter().all(|byte| *byte == 0);
            assert!(!inside || is_zero == extent.is_hole, "block {}", block.0);
        }
        at = next;
    }
    let stored = extents.iter().filter(|extent| !extent.is_hole);
    let stored: u64 = stored.map(|extent| extent.length_bytes).sum();
    let stored_blocks = stored.div_ceil(BLOCK_BYTES as u64);
    assert!(at == end || stored_blocks + 1 >= blocks_max, "{extents:?}");
    assert!(stored_blocks <= blocks_max, "{extents:?}");
    extents.len()
}

/// Checks that a random range read in pieces has the right bytes, each once.
fn check_pieces(random: &mut fastrand::Rng, disk: &Disk, content: &Content) {
    let (name, bytes) = content.iter().next().expect("a volume");
    let start = random.usize(..bytes.len());
    let range = start..random.usize(start..=bytes.len());
    let volume = disk.volume(name).unwrap();
    let shown = Mutex::new((vec![0; bytes.len()], 0));
    let mut scratch = Vec::new();
    let show = |offset: u64, piece: &[u8]| -> Result<()> {
        let mut shown = shown.lock().unwrap();
        shown.0[offset as usize..][..piece.len()].copy_from_slice(piece);
        shown.1 += piece.len();
        Ok(())
    };
    let (offset, length) = (start as u64, range.len() as u64);
    let read = volume.read_in_pieces(offset, length, &mut scratch, show);
    read.unwrap();
    let (shown, count) = shown.into_inner().unwrap();
    assert!(shown[range.clone()] == bytes[range.clone()] && count == range.len());
    let is_hole = volume.is_hole(offset, length).unwrap();
    let extents = volume.extents(offset..offset + length.max(1), u64::MAX >> 1);
    let is_one = extents.is_ok_and(|extents| extents.len() == 1 && extents[0].is_hole);
    assert!(length == 0 || is_hole == is_one, "{range:?}");
    let refuse = |_: u64, _: &[u8]| Err(Error::invalid("piece", "not wanted"));
    let refused = volume.read_in_pieces(offset, length, &mut scratch, refuse);
    assert_eq!(refused.is_err(), length > 0);
}

#[test]
fn a_disk_shows_what_plain_bytes_would() {
    let mut random = seeded("disk model", 25);
    let (runs, rounds) = if is_full() { (300, 300) } else { (20, 200) };
    let (mut requests, mut extents, mut found) = (0, 0, 0);
    for _ in 0..runs {
        let storage = MemoryStorage::new();
        let threaded = || DiskOptions {
            threads: 3,
            ..options()
        };
        let mut disk = Disk::create(&storage, "disk", threaded()).unwrap();
        disk.create_volume("one", SIZE_BYTES as u64).unwrap();
        let mut content = shown(&disk).unwrap();
        for round in 0..rounds {
            let request = Request::random(&mut random, &content);
            request.run(&disk, Durability::Lazy).unwrap();
            request.apply(&mut content);
            requests += 1;
            check_pieces(&mut random, &disk, &content);
            extents += check_extents(&mut random, &disk, &content);
            if round % 50 == 49 {
                found += disk.duplicate_stats().found;
                drop(disk);
                disk = Disk::open(&storage, "disk", threaded()).unwrap();
            }
            if round % 5 == 0 {
                assert!(shown(&disk).unwrap() == content, "{request:?}");
            }
        }
        assert!(shown(&disk).unwrap() == content);
    }
    println!("{requests} requests, {extents} extents, {found} duplicates");
    assert!(requests >= 4000 && extents > 6000 && found > 300);
}

#[test]
fn equal_blocks_are_stored_once_and_rewriting_them_changes_nothing() {
    let storage = MemoryStorage::new();
    let disk = Disk::create(&storage, "disk", DiskOptions::default()).unwrap();
    disk.create_volume("one", 1 << 20).unwrap();
    let volume = disk.volume("one").unwrap();
    let mut block = vec![0; 4096];
    fastrand::Rng::with_seed(1).fill(&mut block);
    volume.write(0, &block, Durability::Lazy).unwrap();
    let commit = disk.inner.blocks.snapshot().commit();
    volume.write(0, &block, Durability::Lazy).unwrap();
    assert_eq!(disk.inner.blocks.snapshot().commit(), commit);
    volume.write(8192, &block, Durability::Lazy).unwrap();
    assert_eq!(disk.duplicate_stats().found, 2);
    // Writing one of the two leaves the other.
    volume.write(100, &[1, 2, 3], Durability::Lazy).unwrap();
    let mut other = vec![0; 4096];
    volume.read(8192, &mut other).unwrap();
    assert!(other == block);
    let status = |length_bytes, is_hole| Extent {
        length_bytes,
        is_hole,
    };
    let expected = [status(4096, false), status(4096, true), status(4096, false)];
    assert_eq!(volume.extents(0..12288, 1024).unwrap(), expected);
}

#[test]
fn writes_are_refused_before_the_host_is_full_and_flushes_are_not() {
    let storage = MemoryStorage::new();
    let disk = Disk::create(&storage, "disk", DiskOptions::default()).unwrap();
    disk.create_volume("one", 1 << 20).unwrap();
    let left = Arc::new(AtomicU64::new(1 << 30));
    let host = Arc::clone(&left);
    disk.set_room(Room {
        reserve_bytes: 64 << 20,
        left_bytes: Box::new(move || Ok(host.load(Ordering::Relaxed))),
    });
    let volume = disk.volume("one").unwrap();
    volume.write(0, &[1; 4096], Durability::Lazy).unwrap();
    left.store(68 << 20, Ordering::Relaxed);
    // Bytes that the host gave the file before are used, and no more.
    let mut random = seeded("disk room", 2512);
    let refused = (2..256).find_map(|index| {
        let mut block = [0; 4096];
        random.fill(&mut block);
        volume.write(index * 4096, &block, Durability::Lazy).err()
    });
    assert!(matches!(refused, Some(Error::Limit { .. })), "{refused:?}");
    disk.flush().unwrap();
    volume.trim(4096, 4096, Durability::Durable).unwrap();
    let mut byte = [0];
    volume.read(0, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    left.store(1 << 30, Ordering::Relaxed);
    volume.write(0, &[2; 4096], Durability::Lazy).unwrap();
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let storage = MemoryStorage::new();
    let disk = Disk::create(&storage, "disk", DiskOptions::default()).unwrap();
    disk.create_volume("one", 8192).unwrap();
    disk.clone_volume("one", "before", true).unwrap();
    let one = disk.volume("one").unwrap();
    let before = disk.volume("before").unwrap();
    let mut byte = [0];
    let refused = [
        disk.create_volume("one", 8192),
        disk.create_volume("two", 0),
        disk.create_volume("two", u64::MAX),
        disk.create_volume("t w o", 8192),
        disk.clone_volume("none", "two", false),
        disk.clone_volume("one", "before", false),
        disk.remove_volume("none"),
        one.read(8192, &mut byte),
        one.read(u64::MAX, &mut byte),
        one.write(8190, &[0; 3], Durability::Lazy),
        one.zero(1, u64::MAX, Durability::Lazy),
        one.trim(0, 8193, Durability::Lazy),
        one.extents(4..4, 1).map(drop),
        before.write(0, &[1], Durability::Lazy),
        before.zero(0, 1, Durability::Lazy),
        before.trim(0, 8192, Durability::Lazy),
    ];
    for (number, result) in refused.into_iter().enumerate() {
        assert!(
            matches!(result, Err(Error::Invalid { .. })),
            "{number}: {result:?}"
        );
    }
    let names: Vec<String> = disk
        .volumes()
        .unwrap()
        .into_iter()
        .map(|v| v.name)
        .collect();
    assert_eq!(names, ["one", "before"]);
    assert_eq!(one.extents(0..8192, 9).unwrap().len(), 1);
}

#[test]
fn a_store_that_is_no_disk_is_refused() {
    let storage = MemoryStorage::new();
    drop(Blocks::create(&storage, "store", BlocksOptions::default()).unwrap());
    let opened = Disk::open(&storage, "store", DiskOptions::default());
    assert!(matches!(opened, Err(Error::Unsupported { .. })));
}

/// A clone of each sandbox of a large host, under the longest possible name. All are there when the disk is opened
/// again, and the others stay when some go.
#[test]
fn thousands_of_clones_with_long_names_are_kept() {
    let storage = MemoryStorage::new();
    let clones = if is_full() { 15_000 } else { 5_000 };
    let disk = Disk::create(&storage, "disk", DiskOptions::default()).unwrap();
    disk.create_volume("base", 8 << 20).unwrap();
    let base = disk.volume("base").unwrap();
    base.write(0, &[7; 9000], Durability::Lazy).unwrap();
    let name = |clone: usize| format!("{:0>width$}", clone, width = super::NAME_BYTES_MAX);
    for clone in 0..clones {
        disk.clone_volume("base", &name(clone), clone % 2 == 1)
            .unwrap();
        if clone % 1000 == 2 {
            let volume = disk.volume(&name(clone)).unwrap();
            let mark = (clone as u32).to_le_bytes();
            volume.write(4096, &mark, Durability::Lazy).unwrap();
        }
    }
    assert!(disk.clone_volume("base", &name(clones / 2), false).is_err());
    disk.checkpoint().unwrap();
    disk.clone_volume("base", "last", false).unwrap();
    disk.close().unwrap();
    drop((base, disk));
    let disk = Disk::open(&storage, "disk", DiskOptions::default()).unwrap();
    let check = |disk: &Disk, from: usize| {
        let volumes = disk.volumes().unwrap();
        assert_eq!(volumes.len(), clones - from + 2);
        for (clone, volume) in (from..clones).zip(&volumes[1..]) {
            assert_eq!(volume.name, name(clone));
            assert_eq!(volume.is_read_only, clone % 2 == 1);
        }
        for clone in (from..clones).filter(|clone| clone % 1000 == 2) {
            let volume = disk.volume(&name(clone)).unwrap();
            let mut shown = [0; 5];
            volume.read(4096, &mut shown).unwrap();
            assert_eq!(shown[..4], (clone as u32).to_le_bytes());
            assert_eq!(shown[4], 7);
        }
    };
    check(&disk, 0);
    for clone in 0..1000 {
        disk.remove_volume(&name(clone)).unwrap();
    }
    check(&disk, 1000);
    disk.close().unwrap();
    drop(disk);
    let disk = Disk::open_read_only(&storage, "disk", DiskOptions::default()).unwrap();
    check(&disk, 1000);
}

/// Extents called unchanged are the same to the byte, and untouched ones are called so.
#[test]
fn what_changed_since_a_snapshot_is_told() {
    let mut random = seeded("disk changes", 2530);
    let (runs, rounds) = if is_full() { (100, 200) } else { (10, 60) };
    let size_max = 3000 * BLOCK_BYTES;
    let mut unchanged_bytes = 0;
    for _ in 0..runs {
        let storage = MemoryStorage::new();
        let disk = Disk::create(&storage, "disk", options()).unwrap();
        let mut bytes = vec![0; random.usize(1..size_max)];
        disk.create_volume("one", bytes.len() as u64).unwrap();
        let mut before = bytes.clone();
        disk.clone_volume("one", "still", true).unwrap();
        for _ in 0..rounds {
            let volume = disk.volume("one").unwrap();
            let start = random.usize(..bytes.len());
            let end = random
                .usize(start..=bytes.len())
                .min(start + 4 * BLOCK_BYTES);
            match random.u8(..8) {
                0 => {
                    disk.remove_volume("still").unwrap();
                    disk.clone_volume("one", "still", true).unwrap();
                    before.clone_from(&bytes);
                }
                1 => {
                    let size = random.usize(1..size_max);
                    disk.resize_volume("one", size as u64, true).unwrap();
                    bytes.resize(size, 0);
                }
                2 => {
                    let length = (end - start) as u64;
                    volume.zero(start as u64, length, Durability::Lazy).unwrap();
                    bytes[start..end].fill(0);
                }
                _ => {
                    bytes[start..end].fill(random.u8(..));
                    let part = &bytes[start..end];
                    volume.write(start as u64, part, Durability::Lazy).unwrap();
                }
            }
            let volume = disk.volume("one").unwrap();
            let mut at = 0;
            while at < bytes.len() {
                let range = at as u64..bytes.len() as u64;
                for extent in volume.changes("still", range, 50).unwrap() {
                    let until = at + extent.length_bytes as usize;
                    if !extent.is_changed {
                        let old = before.iter().copied().chain(std::iter::repeat(0));
                        assert!(
                            bytes[at..until]
                                .iter()
                                .copied()
                                .eq(old.skip(at).take(until - at))
                        );
                        unchanged_bytes += until - at;
                    }
                    at = until;
                }
            }
        }
        check_one_change(&disk);
    }
    println!("{unchanged_bytes} bytes were told to be as they were");
    assert!(unchanged_bytes > runs * rounds * BLOCK_BYTES);
}

/// Changes one block behind a snapshot. Only that one is reported.
fn check_one_change(disk: &Disk) {
    disk.resize_volume("one", 2000 * BLOCK_BYTES as u64, true)
        .unwrap();
    let volume = disk.volume("one").unwrap();
    disk.remove_volume("still").unwrap();
    disk.clone_volume("one", "still", true).unwrap();
    let size_bytes = volume.status().size_bytes;
    let changes = || volume.changes("still", 0..size_bytes, 50).unwrap();
    let told = |length: usize, is_changed| ChangedExtent {
        length_bytes: (length * BLOCK_BYTES) as u64,
        is_changed,
    };
    assert_eq!(changes(), [told(2000, false)]);
    let at = 1500 * BLOCK_BYTES as u64 + 1;
    volume.write(at, b"new", Durability::Lazy).unwrap();
    assert_eq!(
        changes(),
        [told(1500, false), told(1, true), told(499, false)]
    );
    assert!(
        volume.changes("one", 0..1, 50).is_err(),
        "it is no snapshot"
    );
    assert!(volume.changes("none", 0..1, 50).is_err());
}
