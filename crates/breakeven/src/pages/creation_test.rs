//! A database is made in an empty file, and a crash or fault ends that. Afterwards the same file is still empty, or it
//! is a database.

use std::io::IoSlice;
use std::sync::Arc;

use super::*;
use crate::error::{Error, Result};
use crate::storage::simulated::{Damage, Fault, FaultKind};
use crate::storage::{FileIdentity, LockKind, OpenOptions, SimulatedDisk, Storage};

const NAME: &str = "db";

fn options() -> PageOptions {
    PageOptions {
        seed: Some(1),
        ..PageOptions::default()
    }
}

/// A disk with an empty file, whose name is durable.
fn disk_with_empty_file(seed: u64) -> (SimulatedDisk, Arc<dyn Storage>) {
    let disk = SimulatedDisk::new(seed);
    let storage: Arc<dyn Storage> = disk.start_process();
    drop(storage.open(NAME, OpenOptions::create_new()).unwrap());
    storage.sync_directory("").unwrap();
    (disk, storage)
}

fn kind(storage: &dyn Storage) -> Result<FileKind> {
    file_kind(&*storage.open(NAME, OpenOptions::read_only())?)
}

fn identity(storage: &dyn Storage) -> FileIdentity {
    let file = storage.open(NAME, OpenOptions::read_only()).unwrap();
    file.status().unwrap().identity
}

/// Writes a page and reads it by another opening.
fn use_it(storage: &Arc<dyn Storage>) {
    let connect = || {
        let store = PageStore::new(Arc::clone(storage), NAME, options());
        Connection::open(Arc::new(store)).unwrap()
    };
    let page: Vec<u8> = b"a page of text, ".repeat(256);
    let mut connection = connect();
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    assert_eq!(connection.size_bytes().unwrap(), 0);
    connection.write(0, &page).unwrap();
    connection.commit().unwrap();
    connection.sync().unwrap();
    connection.unlock(LockLevel::None).unwrap();
    let mut found = vec![0; page.len()];
    assert_eq!(connect().read(0, &mut found).unwrap(), page.len());
    assert!(found == page);
}

#[test]
fn a_crash_leaves_an_empty_file_or_a_database() {
    let (mut emptied, mut made) = (0, 0);
    for seed in 0..8 {
        let (disk, storage) = disk_with_empty_file(seed);
        let before = disk.recording().step_count();
        let file = identity(&*storage);
        assert!(PageStore::create(&*storage, NAME, options()).unwrap());
        assert_eq!(identity(&*storage), file);
        let recording = disk.recording();
        recording.for_each_crash_from(before, &Damage::ALL, seed, |crash| {
            let disk = SimulatedDisk::from_image(&crash.image, seed);
            let storage: Arc<dyn Storage> = disk.start_process();
            let is_empty = match kind(&*storage).unwrap() {
                FileKind::Empty => true,
                FileKind::Compressed => false,
                // Before the first sync. The content may belong to another program. It is refused, as SQLite would
                // refuse it.
                FileKind::Other if crash.damage == Damage::GarbageTail => {
                    let file = storage.open(NAME, OpenOptions::read_only()).unwrap();
                    return assert!(file.status().unwrap().size_bytes <= 16);
                }
                other => panic!("{other:?} after {} by {:?}", crash.step, crash.damage),
            };
            (emptied, made) = match is_empty {
                true => (emptied + 1, made),
                false => (emptied, made + 1),
            };
            let again = PageStore::create(&*storage, NAME, options()).unwrap();
            assert_eq!(again, is_empty);
            use_it(&storage);
        });
    }
    println!("{emptied} crashes left nothing, {made} a database");
    assert!(emptied > 100 && made > 50);
}

#[test]
fn a_fault_leaves_the_file_as_it_was() {
    let (mut failed, mut tried) = (0, 0);
    for fault in FaultKind::ALL {
        for call in 0.. {
            let (disk, storage) = disk_with_empty_file(7);
            let file = identity(&*storage);
            disk.set_fault(Some(Fault {
                kind: fault,
                first_call: call,
                is_lasting: false,
            }));
            let made = PageStore::create(&*storage, NAME, options());
            let calls = disk.fault_call_count();
            disk.set_fault(None);
            tried += 1;
            let storage: Arc<dyn Storage> = disk.start_process();
            match made {
                Ok(made) => assert!(made, "{fault:?} at {call}"),
                Err(_) => {
                    failed += 1;
                    let is_empty = kind(&*storage).unwrap() == FileKind::Empty;
                    // A process that dies behind its last write has made it.
                    let may_be_made = fault == FaultKind::ProcessDeath;
                    assert!(is_empty || may_be_made, "{fault:?} at {call}");
                    let again = PageStore::create(&*storage, NAME, options()).unwrap();
                    assert_eq!(again, is_empty);
                }
            }
            assert_eq!(identity(&*storage), file);
            use_it(&storage);
            let names = storage.list("").unwrap();
            assert_eq!(names.len(), 1, "{fault:?} at {call}: {names:?}");
            if call >= calls {
                break;
            }
        }
    }
    println!("{failed} of {tried} faults kept it from being made");
    assert!(failed > 20 && tried > 60);
}

/// Where there is no file, one appears whole or not at all.
#[test]
fn without_room_nothing_is_left() {
    let mut refused = 0;
    for capacity_bytes in (0..80 << 10).step_by(4096) {
        let disk = SimulatedDisk::new(3);
        let storage: Arc<dyn Storage> = disk.start_process();
        disk.set_capacity_bytes(Some(capacity_bytes));
        match PageStore::create(&*storage, NAME, options()) {
            Ok(made) => assert!(made),
            Err(error) => {
                assert!(error.is_out_of_space(), "{error}");
                assert_eq!(storage.list("").unwrap(), []);
                refused += 1;
            }
        }
    }
    println!("{refused} disks are too small");
    assert!(refused > 2);
}

#[test]
fn an_empty_file_that_somebody_uses_is_left_to_them() {
    let (_disk, storage) = disk_with_empty_file(5);
    let other = storage.open(NAME, OpenOptions::default()).unwrap();
    // SQLite's RESERVED: somebody is about to write a plain database.
    let reserved = 0x4000_0001..0x4000_0002;
    assert!(other.try_lock(reserved, LockKind::Exclusive).unwrap());
    let refused = PageStore::create(&*storage, NAME, options());
    assert!(matches!(refused, Err(Error::Busy { .. })), "{refused:?}");
    other.write_at(&[IoSlice::new(PLAIN_MAGIC)], 0).unwrap();
    assert!(!PageStore::create(&*storage, NAME, options()).unwrap());
    assert_eq!(kind(&*storage).unwrap(), FileKind::Plain);
}
