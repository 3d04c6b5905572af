//! A vault that was collected against one that holds the same and nothing else was ever added to.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// Writes text into a folder in words that only this folder has, so that what is near is alike.
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

fn vault() -> Vault {
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
    // What deltas are of stays with them: that is no question of order.
    vault.has_deltas = false;
    vault
}

/// Returns the bytes of what is stored, beside records and what is kept aside.
fn bytes_of(vault: &Vault) -> u64 {
    let folders = ["packs", copies::COPIES, "index"];
    let objects = folders.into_iter().flat_map(|folder| {
        let listed = vault.far.list(folder).unwrap().into_iter();
        listed.map(move |it| format!("{folder}/{}", it.name))
    });
    let sizes = objects.map(|it| vault.far.size_bytes(&it).unwrap().unwrap());
    sizes.sum()
}

/// Frames lie in a pack in an order that is drawn: who moves them in that order puts strangers beside each other.
#[test]
fn what_was_collected_is_as_dense_as_what_was_added() {
    let source = tempfile::tempdir().unwrap();
    let mut random = Rng::with_seed(crate::testing::seed(71));
    for at in 0..FOLDERS {
        write_folder_of_text(&source.path().join(format!("{at:02}")), &mut random);
    }
    let mut collected = vault();
    let whole = add(&mut collected, source.path());
    // Of some folders much goes, of others little.
    for at in 0..FOLDERS {
        for file in 0..FILES {
            if random.usize(..FOLDERS) >= at {
                fs::remove_file(source.path().join(format!("{at:02}/{file:02}"))).unwrap();
            }
        }
    }
    add(&mut collected, source.path());
    collected.forget(&[whole]).unwrap();
    for _ in 0..2 {
        let done = collected.collect(&pool(), writer_options(), (9, 0), 2.0, &mut |_| ());
        println!("{:?}", done.unwrap());
    }
    let mut fresh = vault();
    add(&mut fresh, source.path());
    let (is, least) = (bytes_of(&collected), bytes_of(&fresh));
    println!("{is} bytes after a collection, {least} fresh");
    // Frames begin elsewhere.
    assert!((is as f64) < least as f64 * 1.02, "{is} to {least}");
}
