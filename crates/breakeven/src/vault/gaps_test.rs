//! Damaged files: all that is not lost is read, before a repair and behind it.

use std::fs;
use std::ops::Range;
use std::path::Path;

use super::trees_test::{
    PASSWORD, check_whole, collect_at, noise, options, packs_of, pool, small_packs,
};
use super::*;

const FILE_BYTES: usize = 3_000_000;
const INDEX_BYTES: u64 = 1 << 30;
const CACHE_BYTES: u64 = 8 << 20;
const STEP_BYTES: usize = 1000;

struct Damaged {
    source: tempfile::TempDir,
    _folder: tempfile::TempDir,
    far: Arc<dyn FarEnd>,
    epoch: u64,
    bytes: Vec<u8>,
}

impl Damaged {
    /// A vault of two files; one has several frames, of which one has a flipped bit.
    fn new() -> Damaged {
        let source = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let mut random = crate::testing::seeded("gaps", 91);
        let bytes = noise(&mut random, FILE_BYTES);
        fs::write(source.path().join("big"), &bytes).unwrap();
        fs::write(source.path().join("small"), b"a few bytes").unwrap();
        let (far, vault, epoch) = small_packs(source.path(), folder.path());
        drop(vault);
        let packs = packs_of(folder.path(), 1);
        let longest = packs
            .iter()
            .max_by_key(|it| fs::metadata(it).unwrap().len());
        let mut pack = fs::read(longest.unwrap()).unwrap();
        let middle = pack.len() / 2;
        pack[middle] ^= 1;
        fs::write(longest.unwrap(), pack).unwrap();
        Damaged {
            source,
            _folder: folder,
            far,
            epoch,
            bytes,
        }
    }

    fn open(&self) -> Vault {
        Vault::open_damaged(Arc::clone(&self.far), PASSWORD, Entropy::seeded(92)).unwrap()
    }

    fn repair(&self) -> Repaired {
        let writing = WriterOptions::default();
        self.open()
            .repair(&pool(), writing, 0, &mut |_| ())
            .unwrap()
    }

    /// Returns the parts of the file that a random reader cannot read; checks all others.
    fn lost_at_random(&self) -> Vec<Range<usize>> {
        let vault = self.open();
        let reader = vault.random_reader(INDEX_BYTES, CACHE_BYTES).unwrap();
        let path = self.source.path().join("big");
        let snapshot = vault.snapshot(self.epoch).unwrap();
        let path = path.to_str().unwrap().as_bytes();
        let entry = reader.tree_reader().find(&snapshot, path).unwrap().unwrap();
        let map = reader.open(&entry).unwrap();
        let mut lost = Vec::new();
        for (at, part) in (0..).zip(self.bytes.chunks(STEP_BYTES)) {
            let (at, mut found) = (at * STEP_BYTES, vec![0; part.len()]);
            match reader.read_at(&map, at as u64, &mut found) {
                Ok(count) => assert!(count == part.len() && found == part, "at {at}"),
                Err(_) => lost.push(at..at + part.len()),
            }
        }
        lost
    }

    /// Restores, over an existing file or not; returns the file, if it is there, and the faults.
    fn restore(&self, exists: bool, replaces: bool) -> (Option<Vec<u8>>, Vec<String>) {
        let target = tempfile::tempdir().unwrap();
        let options = RestoreOptions {
            replaces,
            path: self.source.path().to_str().unwrap().into(),
            ..RestoreOptions::default()
        };
        if exists {
            fs::write(target.path().join("big"), b"mine").unwrap();
        }
        let (vault, pool) = (self.open(), pool());
        let done = vault.restore(&pool, self.epoch, target.path(), &options, &mut |_| ());
        let problems = done.unwrap().problems.into_iter();
        let small = fs::read(target.path().join("small")).unwrap();
        assert_eq!(small, b"a few bytes");
        let named = problems.map(|(path, reason)| format!("{}: {reason}", path.display()));
        let count = fs::read_dir(target.path()).unwrap().count();
        assert!(count <= 2, "nothing else is left");
        (fs::read(target.path().join("big")).ok(), named.collect())
    }

    /// Checks a restored file and the parts that it names: zeros there, and the bytes of the file elsewhere.
    fn check_restored(&self) {
        for (exists, replaces) in [(false, false), (false, true)] {
            let (file, problems) = self.restore(exists, replaces);
            let file = file.expect("it is there");
            assert_eq!(
                (file.len(), problems.len()),
                (FILE_BYTES, 1),
                "{problems:?}"
            );
            let range = problems[0].rsplit("bytes ").next().unwrap();
            let mut ends = range.split(|it: char| !it.is_ascii_digit());
            let first: usize = ends.next().unwrap().parse().unwrap();
            let last: usize = ends.nth(3).unwrap().parse().unwrap();
            assert!(last - first < 2 << 20, "{problems:?}");
            assert!(file[..first] == self.bytes[..first]);
            assert!(file[first..=last].iter().all(|byte| *byte == 0));
            assert!(file[last + 1..] == self.bytes[last + 1..]);
        }
        for replaces in [false, true] {
            let (file, problems) = self.restore(true, replaces);
            assert_eq!((file.as_deref(), problems.len()), (Some(&b"mine"[..]), 1));
        }
    }
}

#[test]
fn a_repair_does_not_lower_what_can_be_read() {
    let vault = Damaged::new();
    let lost = vault.lost_at_random();
    let lost_bytes = lost.len() * STEP_BYTES;
    assert!((1..2 << 20).contains(&lost_bytes), "{lost_bytes} are lost");
    vault.check_restored();
    for _ in 0..3 {
        let repaired = vault.repair();
        assert_eq!(repaired.lost.len(), 1, "{repaired:?}");
        assert_eq!(vault.lost_at_random(), lost);
        vault.check_restored();
    }
}

#[test]
fn lost_parts_come_back_with_the_next_add_of_them() {
    for is_same in [true, false] {
        let vault = Damaged::new();
        vault.repair();
        let source = tempfile::tempdir().unwrap();
        let file = match is_same {
            true => vault.bytes.clone(),
            // It has another list, of the same chunks and more.
            false => [&vault.bytes[..], b"and more"].concat(),
        };
        fs::write(source.path().join("again"), file).unwrap();
        let mut open = vault.open();
        let add = |open: &mut Vault, path: &Path| {
            let paths = [path.to_path_buf()];
            let added = open.add(&pool(), &paths, &options(1), &mut |_| ());
            added.unwrap().epoch
        };
        let epoch = add(&mut open, source.path());
        for _ in 0..2 {
            check_whole(&open, vault.epoch, vault.source.path());
            check_whole(&open, epoch, source.path());
            assert_eq!(vault.lost_at_random(), []);
            collect_at(&mut open, 100, 1.0);
        }
        // The file as it was is whole in a new snapshot too.
        let epoch = add(&mut open, vault.source.path());
        check_whole(&open, epoch, vault.source.path());
        let repaired = vault.repair();
        assert!(
            repaired.is_whole() && repaired.damages.is_empty(),
            "{repaired:?}"
        );
    }
}
