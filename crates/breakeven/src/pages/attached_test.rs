//! Power cuts within transactions over several databases: two compressed ones, and a plain one that behaves as SQLite
//! does. Afterwards the databases are opened in any order. All have their old content, or all have the new one.

use std::collections::BTreeSet;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use fastrand::Rng;

use super::super_journal::Paths;
use super::{Connection, LockLevel, PLAIN_MAGIC, PageOptions, PageStore};
use crate::error::Result;
use crate::storage::seeded::{SeededBug, with_seeded};
use crate::storage::simulated::{Crash, Damage};
use crate::storage::{OpenOptions, SimulatedDisk, Storage};
use crate::testing::{is_full, seed};

const PAGE_BYTES: usize = 512;
const PAGES: usize = 8;
const NUMBER_AT: usize = 24;
const COMPRESSED: [&str; 2] = ["a", "c"];
const PLAIN: &str = "b";
/// The first bytes of a plain database's journal.
const HOT: &[u8; 8] = b"\xD9\xD5\x05\xF9\x20\xA1\x63\xD7";
/// Transactions of a run.
const TRANSACTIONS: u64 = 12;
/// One image in this many is recovered from again after a cut within its recovery.
const SECOND_EVERY: u64 = 60;

fn paths(storage: &Arc<dyn Storage>) -> Arc<Paths> {
    let storage = Arc::clone(storage);
    Arc::new(move |path: &Path| {
        let name = path.to_str().expect("a name of the test");
        Ok((Arc::clone(&storage), name.trim_start_matches('/').into()))
    })
}

fn connect(storage: &Arc<dyn Storage>, name: &str, seed: u64, is_read_only: bool) -> Connection {
    let options = PageOptions {
        is_read_only,
        ..options(seed)
    };
    let store = PageStore::new(Arc::clone(storage), name, options).with_paths(paths(storage));
    Connection::open(Arc::new(store)).unwrap()
}

fn options(seed: u64) -> PageOptions {
    PageOptions {
        block_bytes_max: PAGE_BYTES as u32,
        segment_bytes_min: 8192,
        checkpoint_bytes: 12_000,
        seed: Some(seed),
        ..PageOptions::default()
    }
}

/// Reads the number of a compressed database's state.
fn number_of(connection: &mut Connection) -> Result<u64> {
    assert!(connection.lock(LockLevel::Shared)?);
    let mut content = vec![0; PAGES * PAGE_BYTES];
    connection.read(0, &mut content)?;
    connection.unlock(LockLevel::None)?;
    let number = u64::from_le_bytes(*content[NUMBER_AT..].first_chunk().expect("eight bytes"));
    let is_whole = content.chunks(PAGE_BYTES).skip(1).all(|page| {
        let own = u64::from_le_bytes(*page.first_chunk().expect("eight bytes"));
        own == number
    });
    assert!(is_whole, "half of a transaction");
    Ok(number)
}

/// Writes a state of a compressed database, up to before its commit.
fn write(connection: &mut Connection, number: u64, random: &mut Rng) -> Result<()> {
    assert!(connection.lock(LockLevel::Exclusive)?);
    for index in 0..PAGES {
        let mut page = vec![7; PAGE_BYTES];
        random.fill(&mut page[40..200]);
        let at = if index == 0 { NUMBER_AT } else { 0 };
        page[at..at + 8].copy_from_slice(&number.to_le_bytes());
        if index == 0 {
            page[..16].copy_from_slice(PLAIN_MAGIC);
            page[16..20].copy_from_slice(&[2, 0, 1, 1]);
        }
        connection.write((index * PAGE_BYTES) as u64, &page)?;
    }
    Ok(())
}

fn read_file(storage: &dyn Storage, name: &str) -> Option<Vec<u8>> {
    let file = storage.open(name, OpenOptions::read_only()).ok()?;
    let mut bytes = vec![0; file.status().unwrap().size_bytes as usize];
    file.read_at(&mut [IoSliceMut::new(&mut bytes)], 0).unwrap();
    Some(bytes)
}

/// Returns the super-journal that a journal names, as SQLite reads it.
fn named_in(journal: &[u8]) -> Option<String> {
    let (rest, tail) = journal.split_at_checked(journal.len().checked_sub(16)?)?;
    let word = |at: usize| u32::from_be_bytes(*tail[at..].first_chunk().expect("four bytes"));
    let name = rest.get(rest.len().checked_sub(word(0) as usize)?..)?;
    let sum: u32 = name.iter().map(|byte| u32::from(*byte)).sum();
    let is_named = tail[8..] == HOT[..] && sum == word(4) && !name.is_empty();
    is_named.then(|| String::from_utf8(name.to_vec()).unwrap())
}

/// SQLite's steps with a plain database of one number.
struct Plain<'a>(&'a dyn Storage);

impl Plain<'_> {
    fn write_file(&self, name: &str, offset: u64, bytes: &[u8]) {
        let options = OpenOptions {
            create: true,
            ..OpenOptions::default()
        };
        let file = self.0.open(name, options).unwrap();
        file.write_at(&[IoSlice::new(bytes)], offset).unwrap();
        file.sync().unwrap();
    }

    fn number(&self) -> u64 {
        let bytes = read_file(self.0, PLAIN).expect("it is there");
        u64::from_le_bytes(*bytes.first_chunk().expect("eight bytes"))
    }

    /// The first phase of a commit.
    fn prepare(&self, number: u64, super_journal: &str) {
        let mut journal = HOT.to_vec();
        journal.extend_from_slice(&self.number().to_le_bytes());
        journal.extend_from_slice(super_journal.as_bytes());
        journal.extend_from_slice(&(super_journal.len() as u32).to_be_bytes());
        let sum: u32 = super_journal.bytes().map(u32::from).sum();
        journal.extend_from_slice(&sum.to_be_bytes());
        journal.extend_from_slice(HOT);
        self.write_file("b-journal", 0, &journal);
        self.0.sync_directory("").unwrap();
        self.write_file(PLAIN, 0, &number.to_le_bytes());
    }

    /// The last phase, or the treatment of a left journal by an opening.
    fn recover(&self) {
        let Some(journal) = read_file(self.0, "b-journal") else {
            return;
        };
        let super_journal = named_in(&journal);
        let is_there =
            |name: &String| read_file(self.0, &name[1..]).is_some_and(|it| !it.is_empty());
        let is_hot = journal.starts_with(HOT) && super_journal.as_ref().is_none_or(is_there);
        if is_hot && journal.len() >= 16 {
            self.write_file(PLAIN, 0, &journal[8..16]);
        }
        self.0.unlink("b-journal").unwrap();
        if let Some(name) = super_journal.filter(is_there) {
            self.remove_super_journal(&name);
        }
    }

    /// `pager_delsuper` of SQLite.
    fn remove_super_journal(&self, name: &str) {
        let listed = read_file(self.0, &name[1..]).expect("it is there");
        let mut journals = listed.split(|byte| *byte == 0).filter(|it| !it.is_empty());
        let names_it = |journal: &[u8]| {
            let journal = std::str::from_utf8(journal).unwrap();
            let content = read_file(self.0, &journal[1..]).filter(|it| !it.is_empty());
            content.and_then(|content| named_in(&content)).as_deref() == Some(name)
        };
        if !journals.any(names_it) {
            self.0.unlink(&name[1..]).unwrap();
        }
    }
}

/// One process with all three.
struct Process {
    storage: Arc<dyn Storage>,
    connections: [Connection; 2],
    random: Rng,
}

impl Process {
    fn create(storage: Arc<dyn Storage>, seed: u64) -> Process {
        for name in COMPRESSED {
            assert!(PageStore::create(&*storage, name, options(seed)).unwrap());
        }
        let connections =
            [0, 1].map(|at| connect(&storage, COMPRESSED[at], seed + 1 + at as u64, false));
        let mut process = Process {
            storage,
            connections,
            random: Rng::with_seed(seed),
        };
        for connection in &mut process.connections {
            write(connection, 1, &mut process.random).unwrap();
            connection.prepare().unwrap();
            connection.sync().unwrap();
            connection.publish().unwrap();
            connection.unlock(LockLevel::None).unwrap();
        }
        Plain(&*process.storage).write_file(PLAIN, 0, &1u64.to_le_bytes());
        process.storage.sync_directory("").unwrap();
        process
    }

    /// Commits a state over all three, or gives it up before the commit.
    fn commit(&mut self, number: u64, is_given_up: bool) {
        let plain = Plain(&*self.storage);
        let name = format!("/a-mj{number}");
        plain.write_file(&name[1..], 0, b"/a-journal\0/b-journal\0/c-journal\0");
        self.storage.sync_directory("").unwrap();
        for (at, connection) in self.connections.iter_mut().enumerate() {
            write(connection, number, &mut self.random).unwrap();
            connection.prepare_part(name.as_bytes()).unwrap();
            connection.sync().unwrap();
            if at == 0 {
                plain.prepare(number, &name);
            }
        }
        if !is_given_up {
            self.storage.unlink(&name[1..]).unwrap();
            self.storage.sync_directory("").unwrap();
        }
        for (at, connection) in self.connections.iter_mut().enumerate() {
            match is_given_up {
                true => connection.roll_back().unwrap(),
                false => connection.publish().unwrap(),
            }
            connection.trim().unwrap();
            connection.tidy().unwrap();
            connection.unlock(LockLevel::None).unwrap();
            if at == 0 {
                plain.recover();
            }
        }
        if is_given_up {
            plain.remove_super_journal(&name);
            assert!(read_file(&*self.storage, &name[1..]).is_none());
        }
    }
}

/// Opens all, in an order, and returns their state, which they must have in common.
fn recover(storage: &Arc<dyn Storage>, random: &mut Rng) -> std::result::Result<u64, String> {
    let mut order = ["a", "b", "c"];
    random.shuffle(&mut order);
    let seed = random.u64(..);
    let read = |name: &str, is_read_only| {
        let mut connection = connect(storage, name, seed, is_read_only);
        number_of(&mut connection).map_err(|error| format!("{name}: {error}"))
    };
    // A connection that only reads sees the content that is to come, and changes nothing.
    let foreseen = match random.bool() {
        true => Some((read("a", true)?, read("c", true)?)),
        false => None,
    };
    let mut found = BTreeSet::new();
    for name in order {
        found.insert(match name {
            PLAIN => {
                let plain = Plain(&**storage);
                plain.recover();
                plain.number()
            }
            name => read(name, false)?,
        });
    }
    let number = *found.first().expect("three");
    if found.len() > 1 || foreseen.is_some_and(|it| it != (number, number)) {
        return Err(format!(
            "{found:?} in order {order:?}, foreseen {foreseen:?}"
        ));
    }
    let entries = storage.list("").unwrap();
    let left = entries.iter().find(|entry| {
        COMPRESSED
            .iter()
            .any(|name| entry.name == format!("{name}-journal"))
    });
    match left {
        Some(left) => Err(format!("{} is left", left.name)),
        None => Ok(number),
    }
}

/// Counts of the cases tried.
#[derive(Debug, Default)]
struct Tried {
    images: u64,
    /// Images of a second cut, within the recovery from the first.
    second_images: u64,
    /// How many were as before the transaction, and how many as behind it.
    outcomes: [u64; 2],
}

/// Cuts the power at every boundary of a run.
fn cut_run(seed: u64, tried: &mut Tried) -> std::result::Result<(), String> {
    let disk = SimulatedDisk::new(seed);
    let mut process = Process::create(disk.start_process(), seed);
    // A mark has the newest state that was acknowledged.
    disk.mark(1);
    let mut number = 1;
    let mut random = Rng::with_seed(seed);
    for _ in 0..TRANSACTIONS {
        let is_given_up = random.u8(..4) == 0;
        process.commit(number + 1, is_given_up);
        number += u64::from(!is_given_up);
        disk.mark(number);
    }
    drop(process);
    let mut result = Ok(());
    disk.recording()
        .for_each_crash(&Damage::ALL, seed, |crash| {
            if result.is_ok() {
                let cut = try_image(&crash, seed, tried);
                result = cut.map_err(|why| {
                    let (damage, step) = (crash.damage, crash.step);
                    format!("seed {seed}, {damage:?} before step {step}: {why}")
                });
            }
        });
    result
}

fn try_image(crash: &Crash, seed: u64, tried: &mut Tried) -> std::result::Result<(), String> {
    let Some(mark) = crash.mark else {
        return Ok(());
    };
    tried.images += 1;
    let disk = SimulatedDisk::from_image(&crash.image, seed);
    let mut random = Rng::with_seed(seed ^ tried.images);
    let mut look = |disk: &SimulatedDisk| {
        let storage: Arc<dyn Storage> = disk.start_process();
        let found = recover(&storage, &mut random)?;
        match found.checked_sub(mark) {
            Some(behind @ 0..=1) => Ok(behind),
            _ => Err(format!("state {found} where {mark} was acknowledged")),
        }
    };
    tried.outcomes[look(&disk)? as usize] += 1;
    let mut result = Ok(());
    if tried.images.is_multiple_of(SECOND_EVERY) {
        disk.recording()
            .for_each_crash(&Damage::ALL, seed, |second| {
                tried.second_images += 1;
                if result.is_ok() {
                    let disk = SimulatedDisk::from_image(&second.image, seed);
                    result = look(&disk).map(drop);
                }
            });
    }
    result
}

#[test]
fn no_power_cut_tears_a_transaction_over_several_databases() {
    let runs = if is_full() { 20 } else { 1 };
    let mut tried = Tried::default();
    for run in 0..runs {
        cut_run(seed(4201) + run, &mut tried).unwrap();
    }
    println!("{tried:?}");
    let Tried {
        images,
        second_images,
        outcomes,
    } = tried;
    assert!(images > 2000 && second_images > 500 && outcomes[1] > 200);
}

/// The proof finds the fault it is there for.
#[test]
fn a_part_that_does_not_wait_for_the_others_is_noticed() {
    for bug in [SeededBug::CoordinatorIgnored, SeededBug::PartUntold] {
        let hunt = || (0..4).try_for_each(|run| cut_run(seed(4202) + run, &mut Tried::default()));
        let hunted = with_seeded(bug, || std::panic::catch_unwind(hunt));
        println!("{bug:?}: {hunted:?}");
        assert!(!matches!(hunted, Ok(Ok(()))), "{bug:?} is not noticed");
    }
}
