//! Files on real file systems that lose power or run full; needs root.
//!
//! The durability that the storage seam promises is tested against a kernel, not only against the simulated disk.

use std::fs;
use std::io::IoSlice;
use std::path::Path;
use std::sync::Arc;

use breakeven::Error;
use breakeven::storage::{OpenOptions, RealStorage, Storage, StorageFile};

use super::mounted::{Mounted, run};

fn variable_is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| value == "1")
}

/// The known state of a file.
#[derive(Default)]
struct Known {
    written: Vec<u8>,
    synced_bytes: usize,
    /// The name at the last sync of the folder, and the later ones, the present one last.
    durable_name: Option<String>,
    names_since: Vec<String>,
}

/// Does a few dozen random operations on new files of an empty folder.
fn work(storage: &RealStorage, random: &mut fastrand::Rng) -> Vec<Known> {
    let mut known: Vec<Known> = Vec::new();
    let mut files: Vec<Arc<dyn StorageFile>> = Vec::new();
    for step in 0..60 {
        let chosen = random.usize(..known.len().max(1));
        match (random.u32(..10), known.get_mut(chosen)) {
            (0..2, _) | (_, None) => {
                let name = format!("made-{step}");
                files.push(storage.open(&name, OpenOptions::create_new()).unwrap());
                known.push(Known {
                    names_since: vec![name],
                    ..Known::default()
                });
            }
            (2..6, Some(known)) => {
                let bytes = vec![random.u8(1..); random.usize(1..20_000)];
                let offset = known.written.len() as u64;
                files[chosen]
                    .write_at(&[IoSlice::new(&bytes)], offset)
                    .unwrap();
                known.written.extend(bytes);
            }
            (6..8, Some(known)) => {
                files[chosen].sync().unwrap();
                known.synced_bytes = known.written.len();
            }
            (8, Some(known)) => {
                let name = format!("renamed-{step}");
                storage
                    .rename(known.names_since.last().unwrap(), &name)
                    .unwrap();
                known.names_since.push(name);
            }
            _ => {
                storage.sync_directory("").unwrap();
                for known in &mut known {
                    let present = known.names_since.pop().unwrap();
                    known.durable_name = Some(present.clone());
                    known.names_since = vec![present];
                }
            }
        }
    }
    known
}

/// Checks the remains of a file, and returns whether anything of it was lost.
fn check_left(folder: &Path, known: &Known) -> bool {
    let names = known.durable_name.iter().chain(&known.names_since);
    let left = names
        .clone()
        .find_map(|name| fs::read(folder.join(name)).ok());
    let Some(left) = left else {
        let durable = &known.durable_name;
        assert!(
            durable.is_none(),
            "{durable:?} is gone, though its folder was synced"
        );
        return true;
    };
    let (synced, written) = (known.synced_bytes, &known.written);
    let name = names.last().unwrap();
    assert!(
        left.len() >= synced,
        "{name}: {} of {synced} synced bytes",
        left.len()
    );
    assert!(
        left[..synced] == written[..synced],
        "{name}: synced bytes differ"
    );
    assert!(
        left.len() <= written.len(),
        "{name}: more bytes than written"
    );
    let rest = left.iter().zip(written).skip(synced);
    assert!(
        rest.clone()
            .all(|(left, written)| left == written || *left == 0),
        "{name}: bytes that were never written"
    );
    left != *written
}

#[test]
fn root_ext4_keeps_what_was_synced() {
    if !variable_is_set("BREAKEVEN_ROOT_TESTS") {
        return;
    }
    let seed = std::env::var("BREAKEVEN_SEED").map_or(1, |seed| seed.parse().unwrap());
    let rounds = if variable_is_set("BREAKEVEN_FULL") {
        2000
    } else {
        100
    };
    println!("BREAKEVEN_SEED={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let images = tempfile::tempdir().unwrap();
    let image = images.path().join("ext4");
    fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    run("mkfs.ext4", &[Path::new("-q"), &image]);
    // The journal must not be committed by the clock, or nothing might be lost on a slow machine.
    let mounted = Mounted::new(&["-o", "loop,commit=300", image.to_str().unwrap()]);
    let (mut files, mut lost) = (0, 0);
    for round in 0..rounds {
        let folder = mounted.path().join(format!("round-{round}"));
        fs::create_dir(&folder).unwrap();
        fs::File::open(mounted.path()).unwrap().sync_all().unwrap();
        let storage = RealStorage::open_folder(&folder).unwrap();
        let known = work(&storage, &mut random);
        drop(storage);
        mounted.cut_power();
        files += known.len();
        lost += known
            .iter()
            .filter(|known| check_left(&folder, known))
            .count();
        fs::remove_dir_all(&folder).unwrap();
    }
    println!("{rounds} power cuts, {files} files, {lost} lost something unsynced");
    assert!(files >= 5 * rounds, "only {files} files");
    assert!(
        lost >= rounds,
        "only {lost} files lost anything: was the power cut?"
    );
}

#[test]
fn root_full_disk_is_named_and_latched() {
    if !variable_is_set("BREAKEVEN_ROOT_TESTS") {
        return;
    }
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"]);
    let storage = RealStorage::open_folder(mounted.path()).unwrap();
    let file = storage.open("scratch", OpenOptions::create_new()).unwrap();
    let chunk = [7; 65536];
    let mut written = 0;
    let error = loop {
        match file.write_at(&[IoSlice::new(&chunk)], written) {
            Ok(()) => written += chunk.len() as u64,
            Err(error) => break error,
        }
        assert!(written <= 1 << 20, "more bytes than the disk has");
    };
    assert!(written > 0);
    let Error::Io { path, source, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(path.ends_with("scratch"), "{error}");
    assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);

    let again = file.write_at(&[IoSlice::new(&chunk)], 0);
    assert!(matches!(again, Err(Error::Poisoned { .. })), "{again:?}");
    let mut back = vec![0; written as usize];
    file.read_exact_at(&mut back, 0).unwrap();
    assert!(back.iter().all(|byte| *byte == 7));
}
