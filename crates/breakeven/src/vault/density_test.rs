//! A collected vault against one to which only the same live contents were ever added.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::pack::ChunkEntry;
use super::proof_test::{PASSWORD, Rng, pool};
use super::*;
use crate::storage::MemoryStorage;

const COST: PasswordCost = PasswordCost {
    memory_kib: 8,
    passes: 1,
    lanes: 1,
};
const FOLDERS: usize = 40;
const FILES: usize = 24;

/// Writes text into a folder in words that only this folder has, so that near files are alike.
fn write_folder_of_text(folder: &Path, random: &mut Rng) {
    fs::create_dir_all(folder).unwrap();
    let mut word = || -> String { (0..7).map(|_| random.char('a'..='z')).collect() };
    let words: Vec<String> = (0..150).map(|_| word()).collect();
    for at in 0..FILES {
        let length = random.usize(500..12_000);
        let mut text = String::new();
        while text.len() < length {
            text.push_str(random.choice(&words).unwrap());
            text.push(' ');
        }
        fs::write(folder.join(format!("{at:02}")), text).unwrap();
    }
}

fn writer_options() -> WriterOptions {
    WriterOptions {
        compression: Compression::Fixed("zstd:3".parse().unwrap()),
        ..WriterOptions::default()
    }
}

fn add(vault: &mut Vault, root: &Path) -> u64 {
    let options = AddOptions {
        host: "host".to_string(),
        writer: writer_options(),
        ..AddOptions::default()
    };
    let paths: [PathBuf; 1] = [root.to_path_buf()];
    let added = vault.add(&pool(), &paths, &options, &mut |_| ());
    added.unwrap().epoch
}

fn vault(has_deltas: bool) -> Vault {
    let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
    let options = VaultOptions {
        chunks: ChunkLimits {
            least_bytes: 256,
            mean_bytes: 1024,
            most_bytes: 4096,
        },
        frame_bytes: 64 << 10,
        pack_bytes: 1 << 20,
    };
    let mut vault = Vault::init(far, options, PASSWORD, COST, Entropy::seeded(1)).unwrap();
    vault.has_deltas = has_deltas;
    vault
}

/// Returns the stored bytes, beside records and the room kept aside.
fn bytes_of(vault: &Vault) -> u64 {
    let folders = ["packs", copies::COPIES, "index"];
    let objects = folders.into_iter().flat_map(|folder| {
        let listed = vault.far.list(folder).unwrap().into_iter();
        listed.map(move |it| format!("{folder}/{}", it.name))
    });
    let sizes = objects.map(|it| vault.far.size_bytes(&it).unwrap().unwrap());
    sizes.sum()
}

/// Returns the stored bytes of live chunks that no snapshot has: deltas have them as bases.
fn bytes_of_bases(vault: &Vault) -> f64 {
    let index = vault.index(u64::MAX).unwrap();
    let mut named = BTreeSet::new();
    let mut take = |id| {
        named.insert(id);
    };
    vault
        .follow_all(&index, "", &mut |_| (), &mut take, &mut |_, ended| ended)
        .unwrap();
    let mut bases = BTreeSet::new();
    let mut shares = BTreeMap::new();
    vault
        .each_pack(|_, contents| {
            for frame in &contents.frames {
                let is_named = |chunk: &ChunkEntry| named.contains(&chunk.id);
                if frame.chunks.iter().any(is_named) {
                    bases.extend(frame.bases());
                }
                let raw_bytes = |chunk: &ChunkEntry| f64::from(chunk.length_bytes);
                let share =
                    f64::from(frame.sealed_bytes) / frame.chunks.iter().map(raw_bytes).sum::<f64>();
                let chunks = frame.chunks.iter().filter(|chunk| chunk.base().is_none());
                shares.extend(chunks.map(|chunk| (chunk.id, share * raw_bytes(chunk))));
            }
            Ok(())
        })
        .unwrap();
    bases.difference(&named).map(|id| shares[id]).sum()
}

/// Adds folders; many go, and the rest is edited if there are deltas. Then adds that rest alone to another vault.
/// Returns both.
fn collected_and_fresh(has_deltas: bool) -> [Vault; 2] {
    let source = tempfile::tempdir().unwrap();
    let mut random = Rng::with_seed(crate::testing::seed(71));
    for at in 0..FOLDERS {
        write_folder_of_text(&source.path().join(format!("{at:02}")), &mut random);
    }
    let mut collected = vault(has_deltas);
    let whole = add(&mut collected, source.path());
    // Much of some folders goes, and little of others.
    for at in 0..FOLDERS {
        for file in 0..FILES {
            let path = source.path().join(format!("{at:02}/{file:02}"));
            if random.usize(..FOLDERS) >= at {
                fs::remove_file(path).unwrap();
            } else if has_deltas {
                let mut text = fs::read(&path).unwrap();
                let middle = text.len() / 2;
                text.splice(middle..middle, *b"another ");
                fs::write(path, text).unwrap();
            }
        }
    }
    add(&mut collected, source.path());
    collected.forget(&[whole]).unwrap();
    for _ in 0..2 {
        let done = collected.collect(&pool(), writer_options(), (9, 0), 2.0, &mut |_| ());
        println!("{:?}", done.unwrap());
    }
    let mut fresh = vault(has_deltas);
    add(&mut fresh, source.path());
    [collected, fresh]
}

/// Frames lie in a pack in a drawn order: a move in that order puts strangers beside each other.
#[test]
fn what_was_collected_is_as_dense_as_what_was_added() {
    let [is, least] = collected_and_fresh(false).map(|it| bytes_of(&it));
    println!("{is} bytes after a collection, {least} fresh");
    // Frames begin elsewhere.
    assert!((is as f64) < least as f64 * 1.02, "{is} to {least}");
}

/// A delta is not encoded again when no snapshot has its base any more: the base stays.
#[test]
fn bases_of_what_was_collected_stay_and_no_more() {
    let [collected, fresh] = collected_and_fresh(true);
    let [is, least] = [&collected, &fresh].map(bytes_of);
    let bases = bytes_of_bases(&collected);
    println!("{is} bytes after a collection, {bases:.0} of them for bases, {least} fresh");
    assert!(bases > least as f64 / 10.0);
    assert!(is as f64 - bases < least as f64 * 1.02, "{is} to {least}");
    // A base is about as long as its delta.
    assert!((is as f64) < least as f64 * 1.5, "{is} to {least}");
}
