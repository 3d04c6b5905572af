//! Files read at any offset, beside their bytes, and damage on the way.

use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::trees_test::{PASSWORD, memory_vault, options, pool};
use super::*;
use crate::storage::{OpenOptions, Storage};
use crate::testing::seeded;

const INDEX_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 8 << 20;

/// Files of several shapes by their names, with their bytes.
fn shapes() -> Vec<(&'static str, Vec<u8>)> {
    let mut random = seeded("random reader", 7);
    let mut noise = |length: usize| -> Vec<u8> { (0..length).map(|_| random.u8(..)).collect() };
    let text = |length: usize| -> Vec<u8> { b"a line of some text\n".repeat(length / 20) };
    let holed = [
        noise(300_000),
        vec![0; 40 << 20],
        noise(5000),
        vec![0; 9 << 20],
    ]
    .concat();
    vec![
        ("empty", Vec::new()),
        ("one byte", vec![7]),
        ("small", text(5000)),
        ("noise", noise(3_000_001)),
        ("text", text(6_000_000)),
        ("holed", holed),
        ("zeros", vec![0; 30 << 20]),
    ]
}

/// A vault with one snapshot of the shapes.
fn added(shapes: &[(&str, Vec<u8>)]) -> (Arc<dyn Storage>, Vault, tempfile::TempDir) {
    let source = tempfile::tempdir().unwrap();
    for (name, bytes) in shapes {
        let file = File::create(source.path().join(name)).unwrap();
        // Long runs of zeros stay holes.
        for (at, part) in bytes.chunks(100_000).enumerate() {
            if part.iter().any(|byte| *byte != 0) {
                file.write_all_at(part, at as u64 * 100_000).unwrap();
            }
        }
        file.set_len(bytes.len() as u64).unwrap();
    }
    let (storage, mut vault) = memory_vault();
    let paths = [source.path().to_path_buf()];
    let added = vault.add(&pool(), &paths, &options(0), &mut |_| ());
    added.unwrap();
    (storage, vault, source)
}

fn entry(reader: &RandomReader, vault: &Vault, source: &tempfile::TempDir, name: &str) -> Entry {
    let path = source.path().join(name);
    let snapshot = vault.snapshot(1).unwrap();
    let found = (reader.tree_reader()).find(&snapshot, path.to_str().unwrap().as_bytes());
    found.unwrap().expect("it is there")
}

#[test]
fn any_part_of_a_file_is_what_its_bytes_are() {
    let shapes = shapes();
    let (_, vault, source) = added(&shapes);
    let reader = vault.random_reader(INDEX_BYTES, CACHE_BYTES).unwrap();
    let mut reads = 0;
    for (name, bytes) in &shapes {
        let file = reader.open(&entry(&reader, &vault, &source, name)).unwrap();
        // Several threads at once, each with offsets of its own.
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let (reader, file) = (&reader, &file);
                    scope.spawn(move || {
                        let mut random = seeded("offsets", thread);
                        for round in 0..60 {
                            let offset = random.usize(0..=bytes.len() + 10);
                            let length = random.usize(0..[1, 5000, 400_000][round % 3]);
                            let expected = bytes.get(offset..).unwrap_or_default();
                            let expected = &expected[..length.min(expected.len())];
                            let mut buffer = vec![1; length];
                            reader.prepare(file, offset as u64);
                            let read = reader.read_at(file, offset as u64, &mut buffer);
                            let count = read.unwrap();
                            assert!(buffer[..count] == *expected, "{name} at {offset}");
                        }
                        60
                    })
                })
                .collect();
            reads += threads
                .into_iter()
                .map(|it| it.join().unwrap())
                .sum::<u32>();
        });
    }
    println!("{reads} reads of {} files", shapes.len());
    assert!(reads >= 1600);
}

#[test]
fn holes_are_where_nothing_is_stored() {
    let shapes = shapes();
    let (_, vault, source) = added(&shapes);
    let reader = vault.random_reader(INDEX_BYTES, CACHE_BYTES).unwrap();
    let open = |name: &str| reader.open(&entry(&reader, &vault, &source, name)).unwrap();
    let holed = open("holed");
    assert_eq!(holed.next_data(0), Some(0));
    let hole = holed.next_hole(0).expect("a hole");
    assert!((300_000..1_500_000).contains(&hole), "{hole}");
    let data = holed.next_data(hole).expect("some data");
    assert!((30 << 20..300_000 + (40 << 20)).contains(&data), "{data}");
    assert_eq!(open("zeros").next_data(0), None);
    assert_eq!(open("text").next_hole(0), None);
    assert_eq!(open("empty").next_data(0), None);
}

#[test]
fn chunks_longer_than_the_cache_can_lend_are_read_all_the_same() {
    let shapes = shapes();
    let (_, vault, source) = added(&shapes);
    let reader = vault.random_reader(INDEX_BYTES, 1 << 20).unwrap();
    let (name, bytes) = &shapes[3];
    let file = reader.open(&entry(&reader, &vault, &source, name)).unwrap();
    let mut buffer = vec![0; bytes.len()];
    assert_eq!(reader.read_at(&file, 0, &mut buffer).unwrap(), bytes.len());
    assert!(buffer == *bytes);
}

#[test]
fn a_damaged_pack_is_an_error_and_never_other_bytes() {
    let shapes = shapes();
    let (storage, vault, source) = added(&shapes);
    let packs: Vec<_> = (vault.far.list("packs").unwrap().into_iter())
        .map(|pack| format!("packs/{}", pack.name))
        .map(|name| (vault.far.size_bytes(&name).unwrap().unwrap(), name))
        .collect();
    drop(vault);
    let mut random = seeded("damage", 3);
    for (size_bytes, name) in packs {
        let file = storage.open(&name, OpenOptions::default()).unwrap();
        let at = size_bytes / 2 + random.u64(0..100);
        let mut byte = [0];
        file.read_at(&mut [IoSliceMut::new(&mut byte)], at).unwrap();
        file.write_at(&[IoSlice::new(&[byte[0] ^ 1])], at).unwrap();
    }
    let far = FolderEnd::shared(Arc::clone(&storage));
    let vault = Vault::open_damaged(far, PASSWORD, Entropy::seeded(2)).unwrap();
    let reader = vault.random_reader(INDEX_BYTES, CACHE_BYTES).unwrap();
    let (mut right, mut refused) = (0, 0);
    for (name, bytes) in &shapes {
        let file = reader.open(&entry(&reader, &vault, &source, name)).unwrap();
        for start in (0..bytes.len()).step_by(50_000) {
            let expected = &bytes[start..bytes.len().min(start + 50_000)];
            let mut buffer = vec![0; expected.len()];
            match reader.read_at(&file, start as u64, &mut buffer) {
                Ok(_) => {
                    assert!(buffer == expected, "{name} at {start}");
                    right += 1;
                }
                Err(error) => {
                    assert!(is_damage(&error), "{error}");
                    refused += 1;
                }
            }
        }
    }
    println!("{right} right, {refused} refused");
    assert!(right > 100 && refused > 0, "{right} {refused}");
}

#[test]
fn what_was_collected_meanwhile_is_read_where_it_lies_now() {
    let shapes = shapes();
    let (_, mut vault, source) = added(&shapes);
    let reader = vault.random_reader(INDEX_BYTES, CACHE_BYTES).unwrap();
    let kept = entry(&reader, &vault, &source, "noise");
    let file = reader.open(&kept).unwrap();
    // The second snapshot has less. The first goes, and the contents that it alone had are collected.
    for name in ["text", "holed"] {
        std::fs::remove_file(source.path().join(name)).unwrap();
    }
    let paths = [source.path().to_path_buf()];
    let mut writer = Vault::open(Arc::clone(&vault.far), PASSWORD, Entropy::seeded(5)).unwrap();
    writer
        .add(&pool(), &paths, &options(1), &mut |_| ())
        .unwrap();
    writer.forget(&[1]).unwrap();
    for now in [100, 200] {
        let collected = writer.collect(
            &pool(),
            WriterOptions::default(),
            (now, 0),
            1.0,
            &mut |_| (),
        );
        collected.unwrap();
    }
    let bytes = &shapes[3].1;
    let mut buffer = vec![0; bytes.len()];
    let stale = reader.read_at(&file, 0, &mut buffer);
    assert!(vault.has_moved_on().unwrap());
    vault.reload().unwrap();
    reader.renew(&vault, INDEX_BYTES).unwrap();
    assert_eq!(reader.read_at(&file, 0, &mut buffer).unwrap(), bytes.len());
    assert!(buffer == *bytes);
    assert!(stale.is_err(), "nothing was moved");
}
