//! Random operations on a storage and on memory, whose results and errors must agree.

use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::storage::{LockKind, MemoryStorage, OpenOptions, Storage, StorageFile, test_seed};

const NAMES: [&str; 8] = ["a", "b", "c", "d", "d/a", "d/b", "a/x", "missing/x"];

/// Runs `steps` random operations on the empty `storage` and on memory and compares everything
/// that can be seen.
pub(super) fn check(storage: &dyn Storage, steps: usize) {
    let mut pair = Pair {
        tested: storage,
        memory: MemoryStorage::new(),
        open: Vec::new(),
        random: fastrand::Rng::with_seed(test_seed()),
        conflicts: 0,
    };
    for step in 0..steps {
        if step % 3 == 0 {
            pair.step_names();
        } else {
            pair.step_file();
        }
    }
    println!(
        "{steps} operations agree, {} conflicts of locks",
        pair.conflicts
    );
    assert!(pair.conflicts >= steps as u64 / 50, "{}", pair.conflicts);
}

/// The two storages under comparison, and the files open in both.
struct Pair<'a> {
    tested: &'a dyn Storage,
    memory: MemoryStorage,
    open: Vec<(Arc<dyn StorageFile>, Arc<dyn StorageFile>)>,
    random: fastrand::Rng,
    /// The number of locks in the way.
    conflicts: u64,
}

/// The result of an operation, in a form that two implementations can be compared by.
fn outcome<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => "done".to_string(),
        Err(Error::Io {
            operation, source, ..
        }) => {
            format!("{operation}: errno {:?}", source.raw_os_error())
        }
        Err(Error::Invalid { what, .. }) => format!("invalid {what}"),
        Err(error) => error.to_string(),
    }
}

impl Pair<'_> {
    fn check<T>(&self, what: &str, tested: &Result<T>, memory: &Result<T>) {
        assert_eq!(outcome(tested), outcome(memory), "{what}");
    }

    fn step_names(&mut self) {
        let name = NAMES[self.random.usize(..NAMES.len())];
        let other = NAMES[self.random.usize(..NAMES.len())];
        let storages: [&dyn Storage; 2] = [self.tested, &self.memory];
        match self.random.u8(..10) {
            0 => {
                let [tested, memory] = storages.map(|storage| storage.rename(name, other));
                self.check(&format!("rename {name} {other}"), &tested, &memory);
            }
            8 => {
                let [tested, memory] = storages.map(|storage| storage.publish(name, other));
                self.check(&format!("publish {name} {other}"), &tested, &memory);
            }
            9 => {
                let [tested, memory] = storages.map(|storage| storage.remove_folder(name));
                self.check(&format!("remove folder {name}"), &tested, &memory);
            }
            1 => {
                let [tested, memory] = storages.map(|storage| storage.unlink(name));
                self.check(&format!("unlink {name}"), &tested, &memory);
            }
            2 => {
                // If every name became a folder, no file would be left.
                let is_any = self.random.u8(..100) == 0;
                let folder = if is_any { name } else { "d" };
                let [tested, memory] = storages.map(|storage| storage.create_folder(folder));
                self.check(&format!("create folder {folder}"), &tested, &memory);
            }
            3 => {
                let [tested, memory] = storages.map(|storage| storage.sync_directory(name));
                self.check(&format!("sync {name}"), &tested, &memory);
            }
            4 => {
                let folder = if self.random.bool() { "" } else { name };
                let [tested, memory] = storages.map(|storage| storage.list(folder));
                self.check(&format!("list {folder}"), &tested, &memory);
                assert_eq!(tested.ok(), memory.ok());
            }
            _ => {
                let options = OpenOptions {
                    write: self.random.u8(..8) > 0,
                    create: self.random.bool(),
                    exclusive: self.random.u8(..4) == 0,
                    mode: if self.random.bool() { 0o600 } else { 0o700 },
                    ..OpenOptions::default()
                };
                let [tested, memory] = storages.map(|storage| storage.open(name, options));
                self.check(&format!("open {name} {options:?}"), &tested, &memory);
                if let (Ok(tested), Ok(memory)) = (tested, memory) {
                    self.open.push((tested, memory));
                }
            }
        }
    }

    fn step_file(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.random.usize(..self.open.len());
        if self.open.len() > 6 || self.random.u8(..20) == 0 {
            self.open.swap_remove(at);
            return;
        }
        let (tested, memory) = self.open[at].clone();
        let files = [&tested, &memory];
        if self.random.u8(..4) == 0 {
            return self.step_locks(at);
        }
        let offset = self.random.u64(..40_000);
        let length = self.random.usize(..20_000);
        let what = format!("{} {offset}+{length}", tested.path().display());
        match self.random.u8(..8) {
            0..=2 => {
                let bytes: Vec<u8> = (0..length).map(|_| self.random.u8(..)).collect();
                let cut = self.random.usize(..=length);
                let buffers = [IoSlice::new(&bytes[..cut]), IoSlice::new(&bytes[cut..])];
                let [tested, memory] = files.map(|file| file.write_at(&buffers, offset));
                self.check(&format!("write {what}"), &tested, &memory);
            }
            3 => {
                let [tested, memory] = files.map(|file| file.truncate(offset));
                self.check(&format!("truncate {what}"), &tested, &memory);
            }
            // A call that a file system lacks is left out on both sides.
            4 => match tested.punch(offset, length as u64) {
                Err(Error::Unsupported { .. }) => {}
                punched => self.check(&what, &punched, &memory.punch(offset, length as u64)),
            },
            5 => match tested.allocate(offset, length as u64) {
                Err(Error::Unsupported { .. }) => {}
                allocated => self.check(&what, &allocated, &memory.allocate(offset, length as u64)),
            },
            6 => {
                let [tested, memory] = files.map(|file| file.sync());
                self.check(&format!("sync {what}"), &tested, &memory);
            }
            _ => check_content(files.map(|file| &**file), offset, length),
        }
        check_content(files.map(|file| &**file), 0, 70_000);
    }

    /// Locks, unlocks and asks through all handles of one file.
    fn step_locks(&mut self, at: usize) {
        let (tested, memory) = self.open[at].clone();
        // Another handle of the file with this name, which is mostly the same file.
        let name = NAMES.iter().find(|name| memory.path().ends_with(name));
        let name = name.expect("a known name");
        let storages: [&dyn Storage; 2] = [self.tested, &self.memory];
        let again = storages.map(|storage| storage.open(name, OpenOptions::default()));
        if let [Ok(tested), Ok(memory)] = again {
            self.open.push((tested, memory));
        }
        let is_same = |[a, b]: [&Arc<dyn StorageFile>; 2]| {
            a.status().unwrap().identity == b.status().unwrap().identity
        };
        let mut handles = Vec::new();
        for (other, other_memory) in &self.open {
            let is_handle = is_same([other_memory, &memory]);
            assert_eq!(is_same([other, &tested]), is_handle);
            if is_handle {
                handles.push((Arc::clone(other), Arc::clone(other_memory)));
            }
        }
        for _ in 0..8 {
            let (tested, memory) = &handles[self.random.usize(..handles.len())];
            self.step_lock([&**tested, &**memory]);
        }
    }

    fn step_lock(&mut self, files: [&dyn StorageFile; 2]) {
        // Small numbers, so that locks meet, touch and split; and the places of readers' commits.
        let base = if self.random.u8(..4) > 0 { 0 } else { 1 << 62 };
        let start = base + self.random.u64(..12);
        let length = self.random.u64(..8);
        let range = || start..start + length;
        let kind = match self.random.bool() {
            true => LockKind::Shared,
            false => LockKind::Exclusive,
        };
        let what = format!("{kind:?} {:?} of {}", range(), files[0].path().display());
        match self.random.u8(..8) {
            0..=3 => {
                let [tested, memory] = files.map(|file| file.try_lock(range(), kind));
                self.check(&format!("lock {what}"), &tested, &memory);
                assert_eq!(tested.ok(), memory.ok(), "lock {what}");
            }
            4 => {
                let [tested, memory] = files.map(|file| file.unlock(range()));
                self.check(&format!("unlock {what}"), &tested, &memory);
            }
            _ => {
                let [tested, memory] = files.map(|file| file.first_conflict(range(), kind));
                self.check(&format!("conflict {what}"), &tested, &memory);
                let [tested, memory] = [tested.ok(), memory.ok()];
                assert_eq!(tested, memory, "conflict {what}");
                self.conflicts += u64::from(matches!(memory, Some(Some(_))));
            }
        }
    }
}

/// Checks that the status of two files is the same, except for their identities.
fn check_status(files: [&dyn StorageFile; 2]) {
    let [tested, memory] = files.map(|file| file.status().unwrap());
    assert_eq!(tested.size_bytes, memory.size_bytes);
    assert_eq!(tested.mode, memory.mode, "{}", files[0].path().display());
}

fn check_content(files: [&dyn StorageFile; 2], offset: u64, length: usize) {
    check_status(files);
    let contents = files.map(|file| {
        let (mut left, mut right) = (vec![0; length / 3], vec![0; length - length / 3]);
        let buffers = &mut [IoSliceMut::new(&mut left), IoSliceMut::new(&mut right)];
        let count = file.read_at(buffers, offset).unwrap();
        left.append(&mut right);
        left.truncate(count);
        left
    });
    assert!(contents[0] == contents[1], "contents differ");
}
