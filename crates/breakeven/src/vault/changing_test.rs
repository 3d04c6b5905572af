//! Files that change while they are added, at every possible moment.
//!
//! A stored file without a mark must equal what the file held at one moment. The changes run in the thread that adds,
//! between its calls, so a seed reproduces them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use fastrand::Rng;

use crate::pool::{Pool, PoolOptions};
use crate::storage::MemoryStorage;

use super::trees_test::{COST, PASSWORD, memory_vault, noise, options};
use super::*;

/// The names that are changed, and all contents that each name has held.
struct Meddler {
    root: PathBuf,
    random: Rng,
    /// A beginning that many files have in common, so that contents are looked for before they are cut.
    known: Vec<u8>,
    held: BTreeMap<String, BTreeSet<Vec<u8>>>,
    /// Names that were changed since the add began.
    touched: BTreeSet<String>,
    /// A change in so many moments.
    rarity: usize,
    changes: [u64; KINDS],
    seconds: i64,
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const KINDS: usize = 7;

impl Meddler {
    fn content(&mut self) -> Vec<u8> {
        let longest = match self.random.usize(..40) {
            0 => 1_300_000,
            _ => 40_000,
        };
        let length = self.random.usize(..longest);
        let own = self.random.usize(..=length.min(8));
        let mut content = noise(&mut self.random, own);
        let common = self.random.usize(..=self.known.len().min(length - own));
        let mut whole = self.known[..common].to_vec();
        whole.append(&mut content);
        whole.resize(length, 7);
        whole
    }

    /// Notes what a name holds now, and gives it a change time of its own: a file system's clock is too coarse.
    fn note(&mut self, name: &str) {
        let path = self.root.join(name);
        self.touched.insert(name.to_string());
        let is_file = fs::symlink_metadata(&path).is_ok_and(|it| it.is_file());
        if !is_file {
            return;
        }
        self.seconds += 1;
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(self.seconds as u64);
        fs::File::open(&path).unwrap().set_modified(time).unwrap();
        let content = fs::read(&path).unwrap();
        self.held
            .entry(name.to_string())
            .or_default()
            .insert(content);
    }

    fn remove(&self, name: &str) {
        let path = self.root.join(name);
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir(&path);
    }

    fn moment(&mut self) {
        if self.random.usize(..self.rarity) == 0 {
            self.change();
        }
    }

    fn change(&mut self) {
        let name = NAMES[self.random.usize(..NAMES.len())];
        let path = self.root.join(name);
        let kind = self.random.usize(..KINDS);
        let status = fs::symlink_metadata(&path);
        let length = status.as_ref().map_or(0, |it| it.len());
        let file = match status {
            Ok(status) if status.is_file() => fs::File::options().write(true).open(&path).ok(),
            _ => None,
        };
        match (kind, file) {
            (0, Some(file)) => {
                let more = self.content();
                file.write_all_at(&more, length).unwrap();
            }
            (1, Some(file)) => file.set_len(self.random.u64(..=length)).unwrap(),
            (2, Some(file)) => {
                let at = self.random.u64(..=length);
                file.write_all_at(&[self.random.u8(..)], at).unwrap();
            }
            (3, _) => self.remove(name),
            (4, _) => {
                self.remove(name);
                match self.random.usize(..3) {
                    0 => fs::create_dir(&path).unwrap(),
                    1 => symlink("b", &path).unwrap(),
                    _ => symlink("nowhere", &path).unwrap(),
                }
            }
            _ => {
                let (new, content) = (self.root.join("~new"), self.content());
                fs::write(&new, content).unwrap();
                if path.is_dir() {
                    self.remove(name);
                }
                fs::rename(&new, &path).unwrap();
            }
        }
        self.changes[kind] += 1;
        self.note(name);
    }
}

/// A vault of short chunks, so that short files have many.
fn short_chunks() -> Vault {
    let chunks = ChunkLimits {
        least_bytes: 64,
        mean_bytes: 512,
        most_bytes: 2048,
    };
    let options = VaultOptions {
        chunks,
        ..VaultOptions::default()
    };
    let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
    Vault::init(far, options, PASSWORD, COST, Entropy::seeded(1)).unwrap()
}

/// Returns the entries of the folder at a path in a snapshot.
fn entries_of(vault: &Vault, epoch: u64, path: &Path) -> (Vec<Entry>, Index, contents::Chunks) {
    let index = vault.index(u64::MAX).unwrap();
    let mut chunks = contents::Chunks::new(&vault.far, &vault.keys);
    let mut at = vault.snapshot(epoch).unwrap().folder;
    for part in path.strip_prefix("/").unwrap() {
        use std::os::unix::ffi::OsStrExt;
        let entries = chunks.folder(&index, at).unwrap();
        let found = entries.iter().find(|it| it.name == part.as_bytes());
        let Node::Folder { content } = found.expect("a part of the path").node else {
            panic!("{part:?} is no folder");
        };
        at = content;
    }
    let entries = match at {
        Id::NONE => Vec::new(),
        at => chunks.folder(&index, at).unwrap(),
    };
    (entries, index, chunks)
}

/// Compares a snapshot with the files' contents; returns how many were marked.
fn check(vault: &Vault, added: &Added, meddler: &Meddler) -> u64 {
    let (entries, index, mut chunks) = entries_of(vault, added.epoch, &meddler.root);
    let mut torn = 0;
    for name in NAMES {
        let path = meddler.root.join(name);
        let entry = entries.iter().find(|it| it.name == name.as_bytes());
        let is_said = added.problems.iter().any(|(said, _)| *said == path);
        let is_touched = meddler.touched.contains(name);
        let Some(entry) = entry else {
            assert!(is_touched || !path.exists(), "{name} is left out");
            continue;
        };
        let Node::File {
            size_bytes,
            is_torn,
            content,
            ..
        } = entry.node
        else {
            continue;
        };
        let stored = match content {
            Id::NONE => Vec::new(),
            content => chunks.whole(&index, content).unwrap(),
        };
        assert_eq!(stored.len() as u64, size_bytes, "{name}");
        assert!(!is_torn || is_touched && is_said, "{name} is marked");
        torn += u64::from(is_torn);
        let is_of_a_moment = meddler.held[name].contains(&stored);
        assert!(
            is_torn || is_of_a_moment,
            "{name} of {size_bytes} bytes was never so"
        );
    }
    torn
}

#[test]
fn files_that_change_at_any_moment_are_added_as_they_were_or_marked() {
    let rounds = if crate::testing::is_full() {
        10_000
    } else {
        400
    };
    let mut random = crate::testing::seeded("changing", 71);
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_path_buf();
    let known = noise(&mut random, 1 << 20);
    let meddler = Rc::new(RefCell::new(Meddler {
        root: root.clone(),
        random: random.fork(),
        known,
        held: BTreeMap::new(),
        touched: BTreeSet::new(),
        rarity: 1,
        changes: [0; KINDS],
        seconds: 1,
    }));
    let mut pool = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
    let mut vault = short_chunks();
    let (mut torn, mut snapshots, mut problems) = (0, 0, 0);
    for round in 0..rounds {
        if round % 25 == 0 {
            vault = short_chunks();
            pool = Pool::new(PoolOptions {
                worker_count: random.usize(..2),
            })
            .unwrap();
        }
        {
            let mut meddler = meddler.borrow_mut();
            meddler.rarity = [4, 12, 40][round % 3];
            meddler.held.clear();
            for name in NAMES {
                meddler.note(name);
            }
            meddler.change();
            meddler.touched.clear();
        }
        let other = Rc::clone(&meddler);
        reading::moments::set(Some(Box::new(move || other.borrow_mut().moment())));
        let added = vault.add(&pool, std::slice::from_ref(&root), &options(1), &mut |_| ());
        reading::moments::set(None);
        let added = added.unwrap_or_else(|error| panic!("round {round}: {error}"));
        torn += check(&vault, &added, &meddler.borrow());
        snapshots += u64::from(added.epoch > 0);
        problems += added.problems.len();
    }
    let changes = meddler.borrow().changes;
    println!(
        "{snapshots} snapshots, {torn} files marked, {problems} problems, {changes:?} changes"
    );
    assert_eq!(snapshots, rounds as u64);
    assert!(torn > rounds as u64 / 40, "{torn} files were marked");
    assert!(
        changes.iter().all(|count| *count > rounds as u64 / 4),
        "{changes:?}"
    );
}

/// A file that changes at each look is stored all the same, and read again the next time.
#[test]
fn a_file_that_never_settles_is_stored_as_it_was_read_last() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, "a line\n").unwrap();
    let (_, mut vault) = memory_vault();
    let pool = trees_test::pool();
    let grown = path.clone();
    let mut seconds = 1;
    reading::moments::set(Some(Box::new(move || {
        let file = fs::File::options().append(true).open(&grown).unwrap();
        std::io::Write::write_all(&mut &file, b"a line\n").unwrap();
        seconds += 1;
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        file.set_modified(time).unwrap();
    })));
    let paths = [folder.path().to_path_buf()];
    let added = vault.add(&pool, &paths, &options(1), &mut |_| ()).unwrap();
    reading::moments::set(None);
    assert_eq!(
        (added.torn_files, added.problems.len()),
        (1, 1),
        "{added:?}"
    );
    let target = tempfile::tempdir().unwrap();
    let keep = RestoreOptions::default();
    let done = vault.restore(&pool, added.epoch, target.path(), &keep, &mut |_| ());
    assert_eq!(done.unwrap().torn_files, 1);
    let back = target.path().join(path.strip_prefix("/").unwrap());
    let (stored, is) = (fs::read(back).unwrap(), fs::read(&path).unwrap());
    assert!(!stored.is_empty() && is.starts_with(&stored));
    // Even where nothing else shows that it changed since.
    let again = vault.add(&pool, &paths, &options(2), &mut |_| ()).unwrap();
    assert_eq!(again.problems.len(), 0, "{again:?}");
    assert_eq!(again.snapshot.files, 1);
    assert_eq!(again.unchanged_files, 0);
}

/// Files that the system makes up state a length of 0, or of a page.
#[test]
fn files_without_a_length_are_read_to_their_end() {
    let (_, mut vault) = memory_vault();
    let pool = trees_test::pool();
    let mut tried = 0;
    for path in [
        "/proc/version",
        "/proc/filesystems",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let path = Path::new(path);
        let Ok(content) = fs::read(path) else {
            continue;
        };
        tried += 1;
        let added = vault.add(&pool, &[path.to_path_buf()], &options(1), &mut |_| ());
        let added = added.unwrap();
        assert!(added.problems.is_empty(), "{:?}", added.problems);
        let (_target, back) = trees_test::restored(&vault, added.epoch, path);
        assert_eq!(fs::read(back).unwrap(), content, "{}", path.display());
    }
    assert!(tried > 0, "no file without a length");
}

/// Copies and rotations of a tree have other inodes, with other change times.
#[test]
fn a_tree_of_other_inodes_is_not_read_if_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("tree");
    fs::create_dir(&root).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    let write = |name: &str| {
        let file = fs::File::create(root.join(name)).unwrap();
        file.write_all_at(name.as_bytes(), 0).unwrap();
        file.set_modified(time).unwrap();
    };
    for name in NAMES {
        write(name);
    }
    let (_, mut vault) = memory_vault();
    let pool = trees_test::pool();
    let mut add = |day: i64, ignores_ctime: bool, ignores_inode: bool| {
        let options = AddOptions {
            ignores_ctime,
            ignores_inode,
            ..options(day)
        };
        let added = vault.add(&pool, std::slice::from_ref(&root), &options, &mut |_| ());
        let added = added.unwrap();
        assert!(added.problems.is_empty(), "{:?}", added.problems);
        let (_target, back) = trees_test::restored(&vault, added.epoch, &root);
        for name in NAMES {
            assert_eq!(fs::read(back.join(name)).unwrap(), name.as_bytes());
        }
        (added.unchanged_files, added.read)
    };
    let count = NAMES.len() as u64;
    let first = add(1, false, false);
    assert_eq!((first.0, first.1.new), (0, count));
    let touch = || {
        for name in NAMES {
            let other = folder.path().join("other");
            fs::hard_link(root.join(name), &other).unwrap();
            fs::remove_file(other).unwrap();
        }
    };
    let renew = || {
        for name in NAMES {
            let old = folder.path().join("old");
            fs::rename(root.join(name), &old).unwrap();
            write(name);
            fs::remove_file(old).unwrap();
        }
    };
    touch();
    assert_eq!(add(2, true, false).0, count);
    touch();
    let read = add(3, false, false);
    assert_eq!((read.0, read.1.ctime), (0, count));
    renew();
    assert_eq!(add(4, false, true).0, count);
    renew();
    let read = add(5, true, false);
    assert_eq!((read.0, read.1.inode), (0, count));
    assert_eq!(add(6, false, false).0, count);
}

/// Returns the bytes that this thread has read from files.
fn read_bytes() -> u64 {
    let counted = fs::read_to_string("/proc/thread-self/io").unwrap();
    let line = counted
        .lines()
        .find_map(|line| line.strip_prefix("rchar: "));
    line.unwrap().parse().unwrap()
}

/// A file with a small change is read once. So is a clone of it, though the vault did not know it before.
#[test]
fn a_file_that_changed_is_read_once() {
    const BYTES: usize = 6 << 20;
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("big");
    let mut content = noise(&mut Rng::with_seed(crate::testing::seed(72)), BYTES);
    fs::write(&path, &content).unwrap();
    let (_, mut vault) = memory_vault();
    // All in this thread, whose bytes are counted.
    let pool = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
    let mut add = |days: i64| {
        let before = read_bytes();
        let paths = [source.path().to_path_buf()];
        let added = vault.add(&pool, &paths, &options(days), &mut |_| ());
        (added.unwrap().snapshot, read_bytes() - before)
    };
    let most = (BYTES + BYTES / 50) as u64;
    let (_, read) = add(1);
    assert!((BYTES as u64..most).contains(&read), "{read} at first");
    for at in 0..4 {
        let from = at * BYTES / 4;
        content[from..from + BYTES / 400].reverse();
        fs::write(&path, &content).unwrap();
        let (snapshot, read) = add(2 + at as i64);
        assert!(
            (BYTES as u64..most).contains(&read),
            "{read} of change {at}"
        );
        assert!(snapshot.new_raw_bytes < BYTES as u64 / 10, "{snapshot:?}");
    }
    fs::copy(&path, source.path().join("clone")).unwrap();
    let (snapshot, read) = add(9);
    // Its first chunks are read before it is looked for, and once more with the whole.
    assert!(
        (BYTES as u64..most + (2 << 20)).contains(&read),
        "{read} of a clone"
    );
    assert!(snapshot.new_raw_bytes < 4000, "{snapshot:?}");
}
