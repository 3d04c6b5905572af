//! Volumes of a made-up disk through a vault, with counts of the bytes that are read.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use tempfile::TempDir;

use crate::storage::{MemoryStorage, is_zero};

use super::trees_test::{COST, memory_vault, noise, options, pool, restored};
use super::*;

const BLOCK_BYTES: usize = 4096;
/// The length of chunks of short images.
const CHUNK_BYTES: usize = 8192;

/// A disk in memory, which keeps states as snapshots.
pub(super) struct MadeUpDisk {
    pub(super) bytes: Vec<u8>,
    block_bytes: usize,
    pub(super) states: BTreeMap<String, Vec<u8>>,
    pub(super) before: Option<Vec<u8>>,
}

impl MadeUpDisk {
    pub(super) fn new(bytes: Vec<u8>, block_bytes: usize) -> MadeUpDisk {
        MadeUpDisk {
            bytes,
            block_bytes,
            states: BTreeMap::new(),
            before: None,
        }
    }

    /// Returns a few runs of the blocks for which `is_in` holds.
    fn runs(&self, from: u64, is_in: impl Fn(usize) -> bool) -> DiskRuns {
        let mut found = DiskRuns {
            runs: Vec::new(),
            until: self.bytes.len() as u64,
        };
        for at in from as usize / self.block_bytes..self.bytes.len().div_ceil(self.block_bytes) {
            let start = ((at * self.block_bytes) as u64).max(from);
            let end = (((at + 1) * self.block_bytes) as u64).min(self.bytes.len() as u64);
            match found.runs.last_mut() {
                _ if !is_in(at) => {}
                Some(run) if run.end == start => run.end = end,
                _ => found.runs.push(start..end),
            }
            if found.runs.len() == 3 {
                found.until = end;
                break;
            }
        }
        found
    }

    fn block<'b>(&self, bytes: &'b [u8], at: usize) -> &'b [u8] {
        let start = (at * self.block_bytes).min(bytes.len());
        &bytes[start..(start + self.block_bytes).min(bytes.len())]
    }
}

impl DiskSource for MadeUpDisk {
    fn begin(&mut self, states: &DiskStates) -> Result<Option<u64>> {
        let before = states.before.as_ref();
        self.before = before.and_then(|name| self.states.get(name).cloned());
        self.states
            .retain(|name, _| !name.starts_with(&states.prefix) || Some(name) == before);
        self.states.insert(states.now.clone(), self.bytes.clone());
        Ok(self.before.as_ref().map(|it| it.len() as u64))
    }

    fn size_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<()> {
        target.copy_from_slice(&self.bytes[offset as usize..][..target.len()]);
        Ok(())
    }

    fn stored(&mut self, from: u64) -> Result<DiskRuns> {
        Ok(self.runs(from, |at| !is_zero(self.block(&self.bytes, at))))
    }

    fn changed(&mut self, from: u64) -> Result<DiskRuns> {
        let before = self.before.as_ref().expect("a state before");
        Ok(self.runs(from, |at| {
            let (was, is) = (self.block(before, at), self.block(&self.bytes, at));
            // Behind the end of the shorter one all is zeros.
            was.len() != is.len() && !(is_zero(was) && is_zero(is))
                || was.len() == is.len() && was != is
        }))
    }
}

/// A vault, and the file of a disk.
struct Places {
    vault: Vault,
    folder: TempDir,
}

impl Places {
    fn new() -> Places {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("disks")).unwrap();
        fs::write(folder.path().join("disks/a.disk"), "its file").unwrap();
        let (_, vault) = memory_vault();
        Places { vault, folder }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("disks/a.disk")
    }

    fn add_with(&mut self, disk: &mut MadeUpDisk, options: &AddOptions) -> Added {
        let file = self.file();
        let added = (self.vault).add_disk(&pool(), &file, "root", disk, options, &mut |_| ());
        let added = added.unwrap();
        assert!(added.problems.is_empty(), "{:?}", added.problems);
        added
    }

    fn add(&mut self, disk: &mut MadeUpDisk) -> Added {
        self.add_with(disk, &options(0))
    }

    /// Restores a snapshot, and checks the volume and its holes.
    fn check(&self, epoch: u64, expected: &[u8]) {
        check_restored(&self.vault, epoch, self.folder.path(), expected);
    }
}

fn check_restored(vault: &Vault, epoch: u64, folder: &Path, expected: &[u8]) {
    let (_target, back) = restored(vault, epoch, folder);
    let file = back.join("disks/a.disk:root");
    assert!(fs::read(&file).unwrap() == expected, "snapshot {epoch}");
}

fn content_of(vault: &Vault, epoch: u64, folder: &Path) -> Id {
    let snapshot = vault.snapshot(epoch).unwrap();
    let path = folder.join("disks/a.disk:root");
    let mut reader = vault.tree_reader(u64::MAX).unwrap();
    let entry = reader.find(&snapshot, path.to_str().unwrap().as_bytes());
    match entry.unwrap().unwrap().node {
        Node::File { content, .. } => content,
        node => panic!("{node:?}"),
    }
}

/// Writes, trims and resizes, and returns how many bytes of chunks that touched.
fn change(random: &mut Rng, bytes: &mut Vec<u8>) -> usize {
    if random.u8(..4) == 0 {
        let length = random.usize(1..3 << 20);
        let touched = length.abs_diff(bytes.len());
        bytes.resize(length, 0);
        return touched + 2 * CHUNK_BYTES;
    }
    let mut touched = 0;
    for _ in 0..random.usize(0..6) {
        let from = random.usize(..bytes.len());
        let to = (from + random.usize(1..100_000)).min(bytes.len());
        match random.u8(..3) {
            0 => bytes[from..to].fill(0),
            _ => random.fill(&mut bytes[from..to]),
        }
        touched += to - from + 2 * CHUNK_BYTES;
    }
    touched
}

/// Each state comes back, is cut as without a state before, and costs what changed.
#[test]
fn only_changed_chunks_are_read() {
    let mut random = crate::testing::seeded("changed_chunks", 41);
    let mut places = Places::new();
    let mut bytes = noise(&mut random, 2_000_000);
    bytes[300_000..1_200_000].fill(0);
    let mut disk = MadeUpDisk::new(bytes, BLOCK_BYTES);
    let first = places.add(&mut disk);
    assert!((1_100_000..1_200_000).contains(&first.disk_read_bytes));
    let mut saved = 0;
    for round in 0..40 {
        let touched = change(&mut random, &mut disk.bytes) as u64;
        let is_lost = random.u8(..8) == 0;
        if is_lost {
            disk.states.clear();
        }
        let added = places.add(&mut disk);
        places.check(added.epoch, &disk.bytes);
        assert_eq!(disk.states.len(), if is_lost { 1 } else { 2 });
        if !is_lost {
            let read = added.disk_read_bytes;
            assert!(read <= touched, "{round}: {read} of {touched}");
            saved += disk.bytes.len() as u64 - read;
        }
        let content = content_of(&places.vault, added.epoch, places.folder.path());
        let whole = AddOptions {
            rereads: true,
            ..options(0)
        };
        let again = places.add_with(&mut disk, &whole);
        assert_eq!(
            content_of(&places.vault, again.epoch, places.folder.path()),
            content
        );
        assert!(again.snapshot.new_raw_bytes < 2000, "{:?}", again.snapshot);
    }
    println!("{saved} bytes were not read");
    assert!(saved > 20_000_000, "{saved}");
    let verified = places
        .vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ());
    assert!(verified.unwrap().damages.is_empty());
}

/// A change writes its chunk, a part of the list and the list above it.
#[test]
fn an_unchanged_part_of_the_list_is_not_written_again() {
    let mut random = crate::testing::seeded("parts", 42);
    let mut places = Places::new();
    let mut disk = MadeUpDisk::new(noise(&mut random, 8 << 20), BLOCK_BYTES);
    places.add(&mut disk);
    let unchanged = places.add(&mut disk).snapshot.new_raw_bytes;
    assert!(unchanged < 1500, "{unchanged}");
    // The chunk becomes zeros in the list, and later parts stay where they are.
    for at in [CHUNK_BYTES * 17, CHUNK_BYTES * 320, CHUNK_BYTES * 1023] {
        disk.bytes[at..at + CHUNK_BYTES].fill(0);
        let added = places.add(&mut disk);
        let written = added.snapshot.new_raw_bytes - unchanged;
        // 16 items of a part, and 64 of the list above.
        assert!(written < 19 * (16 + 64) + 500, "{written}");
        assert_eq!(added.disk_read_bytes, 0);
    }
}

#[test]
fn other_commands_take_a_volume_for_a_file() {
    let mut random = crate::testing::seeded("other_commands", 43);
    let mut places = Places::new();
    let mut bytes = noise(&mut random, 1 << 20);
    bytes[100_000..900_000].fill(0);
    let mut disk = MadeUpDisk::new(bytes, BLOCK_BYTES);
    let first = places.add(&mut disk);
    let before = disk.bytes.clone();
    random.fill(&mut disk.bytes[..50_000]);
    let second = places.add(&mut disk);
    let folder = places.folder.path().to_path_buf();
    // Another vault cuts and names the content anew, and has no state of the disk.
    let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
    let seeded = Entropy::seeded(2);
    let mut other = Vault::init(far, VaultOptions::default(), b"other", COST, seeded).unwrap();
    let writing = WriterOptions::default();
    let copied = other.copy_from(&places.vault, &[], &pool(), writing, &mut |_| ());
    for (at, expected) in copied.unwrap().snapshots.iter().zip([&before, &disk.bytes]) {
        check_restored(&other, at.1, &folder, expected);
    }
    let file = places.file();
    let read = other.add_disk(&pool(), &file, "root", &mut disk, &options(0), &mut |_| ());
    assert!(read.unwrap().disk_read_bytes > 200_000);
    // Any part of it can be read, at any place.
    let reader = places.vault.random_reader(u64::MAX, 8 << 20).unwrap();
    let path = folder.join("disks/a.disk:root");
    let entry = reader.tree_reader().find(
        &places.vault.snapshot(second.epoch).unwrap(),
        path.to_str().unwrap().as_bytes(),
    );
    let map = reader.open(&entry.unwrap().unwrap()).unwrap();
    for _ in 0..50 {
        let from = random.usize(..disk.bytes.len());
        let mut found = vec![1; random.usize(..100_000)];
        let count = reader.read_at(&map, from as u64, &mut found).unwrap();
        assert!(found[..count] == disk.bytes[from..from + count]);
    }
    places.vault.forget(&[first.epoch]).unwrap();
    let collected = places
        .vault
        .collect(&pool(), writing, (0, 0), 1.0, &mut |_| ());
    collected.unwrap();
    places.check(second.epoch, &disk.bytes);
    let repaired = places
        .vault
        .repair(&pool(), writing, 0, &mut |_| ())
        .unwrap();
    assert!(repaired.is_whole(), "{repaired:?}");
    random.fill(&mut disk.bytes[60_000..70_000]);
    // The other vault's state does not count here.
    let third = places.add(&mut disk);
    assert!(third.disk_read_bytes <= 3 * CHUNK_BYTES as u64);
    places.check(third.epoch, &disk.bytes);
}

/// A repair drops a list that lacks a chunk. The next add reads all of the volume, and makes older snapshots whole.
#[test]
fn a_volume_that_lost_a_chunk_is_read_again() {
    let mut random = crate::testing::seeded("lost_chunk", 44);
    let folder = tempfile::tempdir().unwrap();
    let storage = Arc::new(crate::storage::RealStorage::open_folder(folder.path()).unwrap());
    let far = FolderEnd::shared(storage);
    let seeded = Entropy::seeded(1);
    let vault = Vault::init(far, VaultOptions::default(), b"a", COST, seeded).unwrap();
    let mut places = Places {
        vault,
        ..Places::new()
    };
    let mut disk = MadeUpDisk::new(noise(&mut random, 1 << 20), BLOCK_BYTES);
    let first = places.add(&mut disk);
    let packs = walk_files(&folder.path().join("packs"));
    let pack = packs
        .iter()
        .max_by_key(|it| fs::metadata(it).unwrap().len());
    fs::remove_file(pack.unwrap()).unwrap();
    let writing = WriterOptions::default();
    let repaired = (places.vault).repair(&pool(), writing, 0, &mut |_| ());
    assert!(!repaired.unwrap().is_whole());
    let second = places.add(&mut disk);
    assert_eq!(second.disk_read_bytes, 1 << 20);
    places.check(first.epoch, &disk.bytes);
    places.check(second.epoch, &disk.bytes);
}

fn walk_files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap().map(|it| it.unwrap().path());
    let below = |path: PathBuf| match path.is_dir() {
        true => walk_files(&path),
        false => vec![path],
    };
    entries.flat_map(below).collect()
}

#[test]
fn a_trial_stores_nothing_and_an_empty_volume_is_a_file() {
    let mut places = Places::new();
    let mut disk = MadeUpDisk::new(vec![7; 100_000], BLOCK_BYTES);
    let trial = AddOptions {
        is_trial: true,
        ..options(0)
    };
    let tried = places.add_with(&mut disk, &trial);
    assert_eq!((tried.epoch, tried.disk_read_bytes), (0, 100_000));
    assert!(places.vault.snapshots().unwrap().is_empty());
    for length in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 0] {
        disk.bytes.resize(length, 3);
        let added = places.add(&mut disk);
        places.check(added.epoch, &disk.bytes);
    }
}

#[test]
fn a_path_that_names_no_file_is_refused() {
    let mut places = Places::new();
    let mut disk = MadeUpDisk::new(vec![7; 1000], BLOCK_BYTES);
    let folder = places.folder.path().to_path_buf();
    let long = "v".repeat(250);
    for (path, volume) in [
        (PathBuf::from("relative"), "root"),
        (folder.join("missing"), "root"),
        (folder.join("disks"), "root"),
        (folder.join("disks/a.disk/below"), "root"),
        (folder.join("disks/../disks/a.disk"), "root"),
        (places.file(), "a/b"),
        (places.file(), &long),
    ] {
        let added =
            places
                .vault
                .add_disk(&pool(), &path, volume, &mut disk, &options(0), &mut |_| ());
        assert!(added.is_err(), "{path:?}:{volume}");
    }
    assert!(places.vault.snapshots().unwrap().is_empty());
    // Earlier versions read a vault of version 1.
    places.vault.has_deltas = false;
    let file = places.file();
    let added =
        (places.vault).add_disk(&pool(), &file, "root", &mut disk, &options(0), &mut |_| ());
    assert!(matches!(added, Err(Error::Unsupported { .. })));
}

/// A content whose list names another chunk of the same length is not handed out.
#[test]
fn a_chunk_in_anothers_place_is_found() {
    let mut random = crate::testing::seeded("other_place", 45);
    let mut places = Places::new();
    let mut disk = MadeUpDisk::new(noise(&mut random, 40_000), BLOCK_BYTES);
    let added = places.add(&mut disk);
    let content = content_of(&places.vault, added.epoch, places.folder.path());
    let index = places.vault.index(u64::MAX).unwrap();
    let mut chunks = contents::Chunks::new(&places.vault.far, &places.vault.keys);
    let mut ids = Vec::new();
    let mut take = |id, length| ids.push((id, length));
    chunks.each_extent(&index, content, &mut take).unwrap();
    ids.swap(0, 1);
    let pool = pool();
    let mut writer = Writer::new(&mut places.vault, &pool, WriterOptions::default()).unwrap();
    let mut list = vec![contents::head_of_list(1, hashing::IdentityOf::Items)];
    bytes::put_number(&mut list, 40_000);
    for (id, length) in ids {
        contents::put_item(&mut list, length, id);
    }
    let wrong = Id([9; 16]);
    let (group, kind) = (writer::Group::Lists, pack::ChunkKind::List);
    writer.put_chunk(group, kind, wrong, &list).unwrap();
    writer.commit(Snapshot::default()).unwrap();
    let index = places.vault.index(u64::MAX).unwrap();
    assert!(chunks.whole(&index, content).unwrap() == disk.bytes);
    assert!(chunks.whole(&index, wrong).is_err());
    let mut source = chunks.source(&index, wrong).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let read = std::iter::repeat_with(|| source.read(&mut buffer));
    let failed = read.take(20).find(|read| !matches!(read, Ok(1..)));
    assert!(failed.unwrap().is_err());
}
