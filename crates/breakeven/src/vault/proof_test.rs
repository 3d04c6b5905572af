//! The vault under the proof harness. Its transactions are snapshots of made-up trees, and forgetting. Collecting is
//! its upkeep.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) use fastrand::Rng;

use crate::codec::Method;
use crate::error::Result;
use crate::pool::{Pool, PoolOptions};
use crate::storage::proof::{self, CrashFloors, Found, digest};
pub(super) use crate::storage::proof::{State, Subject};
use crate::storage::simulated::{Fault, FaultKind};
use crate::storage::{MemoryStorage, SimulatedDisk, Storage};

use super::contents::Chunks;
use super::disk_source_test::MadeUpDisk;
use super::pack::{ChunkEntry, ChunkKind, Contents, PackKind};
use super::repair::unless_damaged;
use super::{
    ChunkLimits, Compression, Entropy, Entry, Error, FarEnd, FolderEnd, Node, PasswordCost,
    Snapshot, Source, Stamp, Time, Vault, VaultOptions, VerifyOptions, Writer, WriterOptions,
};

pub(super) const PASSWORD: &[u8] = b"a password";
/// Live snapshots at once, so that a store stays small.
const SNAPSHOTS_MAX: usize = 3;
/// The name of the file that is the volume of a disk.
const VOLUME: &[u8] = b"e";

fn cost() -> PasswordCost {
    PasswordCost {
        memory_kib: 8,
        passes: 1,
        lanes: 1,
    }
}

fn options() -> VaultOptions {
    VaultOptions {
        chunks: ChunkLimits {
            least_bytes: 64,
            mean_bytes: 128,
            most_bytes: 512,
        },
        frame_bytes: 1024,
        pack_bytes: 2048,
    }
}

pub(super) fn writer_options() -> WriterOptions {
    WriterOptions {
        compression: Compression::Fixed("zstd:1".parse::<Method>().expect("a method")),
        ..WriterOptions::default()
    }
}

pub(super) fn pool() -> Pool {
    Pool::new(PoolOptions { worker_count: 0 }).expect("a pool without threads")
}

pub(super) type Tree = BTreeMap<Vec<u8>, Vec<u8>>;

/// A vault, and the expected contents of its snapshots.
pub(super) struct Subjected {
    pub(super) vault: Vault,
    pub(super) trees: BTreeMap<u64, Tree>,
    commits: u64,
    failed: bool,
    now: i64,
}

#[derive(Clone)]
pub(super) enum Transaction {
    Add(Tree),
    /// The same, by way of another vault.
    Copy(Tree),
    Forget(u64),
}

fn state_of(commits: u64, trees: &BTreeMap<u64, Tree>) -> State {
    // Numbers of snapshots may differ from the plan where an epoch was lost on the way: contents count.
    let parts: Vec<Vec<u8>> = trees
        .values()
        .flat_map(|tree| {
            let files = tree
                .iter()
                .flat_map(|(name, bytes)| [name.clone(), bytes.clone()]);
            std::iter::once(b"tree".to_vec()).chain(files)
        })
        .collect();
    State {
        last: commits,
        digest: digest(parts.iter().map(Vec::as_slice)),
    }
}

/// The tree itself contains the transaction's number, so a read finds it.
fn commits_of(trees: &BTreeMap<u64, Tree>, tags: u64) -> State {
    state_of(tags, trees)
}

pub(super) fn add(vault: &mut Vault, tree: &Tree, number: u64) -> Result<u64> {
    add_begun(vault, tree, number, 0)
}

fn add_begun(vault: &mut Vault, tree: &Tree, number: u64, seconds: i64) -> Result<u64> {
    let writer = Writer::new(vault, &pool(), writer_options())?;
    add_with(writer, tree, number, seconds)
}

pub(super) fn add_with(
    mut writer: Writer<'_>,
    tree: &Tree,
    number: u64,
    seconds: i64,
) -> Result<u64> {
    let mut entries = Vec::new();
    let mut raw_bytes = 0;
    for (name, bytes) in tree {
        let (content, size_bytes) = match name == VOLUME {
            true => add_volume(&mut writer, bytes)?,
            false => writer.add_content(&mut Again { bytes, at: 0 })?,
        };
        raw_bytes += size_bytes;
        entries.push(Entry {
            name: name.clone(),
            node: Node::File {
                size_bytes,
                is_sparse: false,
                is_torn: false,
                content,
            },
            mode: 0o600,
            user: 0,
            group: 0,
            changed: Time::default(),
            link_group: 0,
            attributes: Vec::new(),
        });
    }
    let stamps = vec![Stamp::default(); entries.len()];
    let (inner, inner_stamps) = writer.add_folder(&entries, &stamps)?;
    let top = Entry {
        name: b"top".to_vec(),
        node: Node::Folder { content: inner },
        mode: 0o700,
        ..entries[0].clone()
    };
    let stamp = Stamp {
        folder: inner_stamps,
        ..Stamp::default()
    };
    let (folder, stamps) = writer.add_folder(&[top], &[stamp])?;
    writer.commit(Snapshot {
        folder,
        stamps,
        raw_bytes,
        begun: Time {
            seconds,
            nanoseconds: 0,
        },
        tags: vec![number.to_string()],
        ..Snapshot::default()
    })
}

/// Adds a file as the volume of a disk. Its state before is that of the last snapshot with it.
fn add_volume(writer: &mut Writer<'_>, bytes: &[u8]) -> Result<(super::Id, u64)> {
    let mut disk = MadeUpDisk::new(bytes.to_vec(), 128);
    let mut chunks = Chunks::new(&writer.vault().far, &writer.vault().keys);
    let mut content = None;
    for (_, snapshot) in writer.vault().snapshots()? {
        for top in chunks.folder(&writer.index, snapshot.folder)? {
            let Node::Folder { content: inner } = top.node else {
                panic!("{top:?}")
            };
            let entries = chunks.folder(&writer.index, inner)?.into_iter();
            let mut volumes = entries.filter(|entry| entry.name == VOLUME);
            if let Some(Node::File { content: id, .. }) = volumes.next().map(|it| it.node) {
                content = Some(id);
            }
        }
    }
    if let Some(content) = content {
        disk.before = unless_damaged(chunks.whole(&writer.index, content))?;
    }
    let content = content.filter(|_| disk.before.is_some());
    let (content, _) = writer.add_volume(&mut disk, content, &mut |_| ())?;
    Ok((content, bytes.len() as u64))
}

/// A content that can be read from its start again, like a file.
struct Again<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Source for Again<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let count = Source::read(&mut &self.bytes[self.at..], buffer)?;
        self.at += count;
        Ok(count)
    }

    fn rewind(&mut self) -> Result<bool> {
        self.at = 0;
        Ok(true)
    }
}

/// Makes a vault in memory, with other keys, that holds a tree.
fn other_vault(tree: &Tree) -> Result<Vault> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut entropy = Entropy::seeded(next_process() + (1 << 40));
    let begun = i64::from_le_bytes(entropy.take());
    let far = FolderEnd::shared(storage);
    let mut vault = Vault::init(far, options(), b"another", cost(), entropy)?;
    add_begun(&mut vault, tree, 0, begun >> 8)?;
    Ok(vault)
}

/// Reads all snapshots back, every byte of them.
pub(super) fn trees_of(vault: &Vault) -> Result<BTreeMap<u64, Tree>> {
    let index = vault.index(u64::MAX)?;
    let mut chunks = Chunks::new(&vault.far, &vault.keys);
    let mut trees = BTreeMap::new();
    for (epoch, snapshot) in vault.snapshots()? {
        let mut tree = Tree::new();
        for top in chunks.folder(&index, snapshot.folder)? {
            let Node::Folder { content } = top.node else {
                panic!("{top:?}")
            };
            for entry in chunks.folder(&index, content)? {
                let Node::File { content, .. } = entry.node else {
                    panic!("{entry:?}")
                };
                tree.insert(entry.name, chunks.whole(&index, content)?);
            }
        }
        trees.insert(epoch, tree);
    }
    Ok(trees)
}

pub(super) fn open_seeded(storage: Arc<dyn Storage>, seed: u64) -> Result<Vault> {
    Vault::open(FolderEnd::shared(storage), PASSWORD, Entropy::seeded(seed))
}

thread_local! {
    /// Each process of a test draws other salts, as real ones do, and the same ones each time.
    static PROCESSES: RefCell<u64> = const { RefCell::new(0) };
}

fn next_process() -> u64 {
    PROCESSES.with_borrow_mut(|count| {
        *count += 1;
        *count
    })
}

impl Subjected {
    pub(super) fn of(mut vault: Vault) -> Result<Subjected> {
        vault.wait_for_nobody();
        let trees = trees_of(&vault)?;
        let commits = vault.epoch;
        Ok(Subjected {
            vault,
            trees,
            commits,
            failed: false,
            now: 0,
        })
    }

    /// Makes a vault at a far end.
    pub(super) fn made(far: Arc<dyn FarEnd>) -> Result<Subjected> {
        let entropy = Entropy::seeded(next_process());
        Subjected::of(Vault::init(far, options(), PASSWORD, cost(), entropy)?)
    }

    /// Returns another snapshot to add.
    pub(super) fn plan_add(&self, random: &mut Rng) -> Transaction {
        loop {
            if let Transaction::Add(tree) = self.plan(random) {
                return Transaction::Add(tree);
            }
        }
    }

    fn guard<T>(&mut self, work: impl FnOnce(&mut Subjected) -> Result<T>) -> Result<T> {
        let result = work(self);
        self.failed |= result.is_err();
        result
    }
}

impl Subject for Subjected {
    type Mode = ();
    type Transaction = Transaction;

    fn mode(_: &mut Rng) {}

    fn create(storage: Arc<dyn Storage>, (): ()) -> Result<Subjected> {
        Subjected::made(FolderEnd::shared(storage))
    }

    fn open(storage: Arc<dyn Storage>, (): ()) -> Result<Subjected> {
        let mut vault = open_seeded(storage, next_process())?;
        // A writer makes durable all that it saw.
        drop(vault.begin()?);
        vault.reload()?;
        Subjected::of(vault)
    }

    fn read(storage: Arc<dyn Storage>) -> Result<Found> {
        let vault = open_seeded(storage, 0)?;
        let trees = trees_of(&vault)?;
        Ok(Found {
            state: commits_of(&trees, 0),
            is_damaged: false,
        })
    }

    fn state(&self) -> State {
        commits_of(&self.trees, 0)
    }

    fn plan(&self, random: &mut Rng) -> Transaction {
        if self.trees.len() >= SNAPSHOTS_MAX || (!self.trees.is_empty() && random.u8(..5) == 0) {
            let at = random.usize(..self.trees.len());
            return Transaction::Forget(*self.trees.keys().nth(at).expect("one of them"));
        }
        // Some files are of the snapshot before, whole or changed: there is something to deduplicate.
        let mut tree = self.trees.values().last().cloned().unwrap_or_default();
        for _ in 0..random.usize(1..4) {
            let name = vec![b'a' + random.u8(..6)];
            // Some are of a few that come, are forgotten, and come again, with the same beginning.
            let (comes_again, seed) = (random.bool(), random.u64(..));
            let mut made = Rng::with_seed(if comes_again { seed % 4 } else { seed });
            let length = made.usize(1..3000);
            let mut bytes: Vec<u8> = (0..length).map(|_| made.u8(..)).collect();
            if comes_again {
                bytes.splice(0..0, (0..600).map(|at| at as u8));
            } else if random.bool() {
                bytes.splice(0..0, vec![0; 2000]);
            }
            tree.insert(name, bytes);
        }
        // One in three trees has a version of a file: with more, a run comes to five times the images.
        let is_versioned = random.u8(..3) == 0;
        if let Some(bytes) = random
            .choice(tree.values())
            .cloned()
            .filter(|_| is_versioned)
        {
            let mut version = bytes;
            for _ in 0..=version.len() / 500 {
                let at = random.usize(..version.len());
                version[at] ^= 1 << random.u8(..8);
            }
            tree.insert(vec![b'a' + random.u8(..6)], version);
        }
        tree.insert(b"number".to_vec(), random.u64(..).to_le_bytes().to_vec());
        match random.u8(..3) {
            0 => Transaction::Copy(tree),
            _ => Transaction::Add(tree),
        }
    }

    fn after(&self, transaction: &Transaction) -> State {
        let mut trees = self.trees.clone();
        match transaction {
            Transaction::Add(tree) | Transaction::Copy(tree) => {
                trees.insert(u64::MAX, tree.clone());
            }
            Transaction::Forget(epoch) => drop(trees.remove(epoch)),
        }
        commits_of(&trees, 0)
    }

    fn commit(&mut self, transaction: &Transaction, _: bool) -> Result<()> {
        let transaction = transaction.clone();
        self.guard(|it| {
            match transaction {
                Transaction::Add(tree) => {
                    let number = it.commits;
                    let epoch = add(&mut it.vault, &tree, number)?;
                    it.trees.insert(epoch, tree);
                }
                Transaction::Copy(tree) => {
                    let other = other_vault(&tree)?;
                    let copied =
                        it.vault
                            .copy_from(&other, &[], &pool(), writer_options(), &mut |_| ())?;
                    assert!(copied.problems.is_empty(), "{:?}", copied.problems);
                    it.trees.insert(copied.snapshots[0].1, tree);
                }
                Transaction::Forget(epoch) => {
                    it.vault.forget(&[epoch])?;
                    it.trees.remove(&epoch);
                }
            }
            Ok(())
        })
    }

    fn sync(&mut self) -> Result<()> {
        match self.failed {
            false => Ok(()),
            true => Err(Error::invalid("vault", "it failed before")),
        }
    }

    fn maintain(&mut self, random: &mut Rng) -> Result<()> {
        self.sync()?;
        self.now += 10;
        if random.u8(..3) == 0 {
            let now = self.now;
            let mut draws = random.fork();
            return self.guard(|it| {
                it.vault
                    .move_packs(&pool(), writer_options(), now, || draws.bool())
            });
        }
        let (now, grace, share) = (self.now, random.i64(0..20), random.f64());
        self.guard(|it| {
            it.vault
                .collect(&pool(), writer_options(), (now, grace), share, &mut |_| ())
                .map(drop)
        })
    }
}

/// Contents come, are forgotten and collected, and come again.
#[test]
fn what_was_forgotten_is_there_when_it_is_added_again() {
    let mut random = crate::testing::seeded("added again", 24);
    let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
    let mut subject = Subjected::made(far).unwrap();
    let mut deltas = 0;
    for step in 0..400 {
        let transaction = subject.plan(&mut random);
        subject.commit(&transaction, true).unwrap();
        if random.bool() {
            subject.maintain(&mut random).unwrap();
        }
        let trees = trees_of(&subject.vault).unwrap_or_else(|error| panic!("{step}: {error}"));
        assert!(trees == subject.trees, "{step}");
        let count = |_, contents: Contents| {
            deltas += contents.frames.iter().filter(|it| it.is_delta()).count();
            Ok(())
        };
        subject.vault.each_pack(count).unwrap();
    }
    println!("{deltas} frames of deltas were met");
    assert!(deltas >= 400, "{deltas}");
}

/// A run of 40 steps makes some 4,600 images of its own and 11,000 of a second power cut, in 17 s of a core. Every step
/// ends with a sync, so few images differ.
#[test]
fn no_crash_loses_a_snapshot() {
    let (distinct_images, double_images) = match crate::testing::is_full() {
        true => (50_000, 500_000),
        false => (2_000, 20_000),
    };
    let floors = CrashFloors {
        distinct_images,
        double_images,
    };
    let counts = proof::cut_power::<Subjected>(crate::testing::seed(24), floors).unwrap();
    let images = counts.images + counts.double_images;
    assert!(images >= 25_000, "{images} images");
}

#[test]
fn a_full_disk_leaves_the_vault_as_it_was() {
    proof::fill_disk::<Subjected>(crate::testing::seed(24), 20, 20 * 4096..120 * 4096).unwrap();
}

/// Others have filled the disk, and the commands that give room back need some themselves.
#[test]
fn a_full_disk_is_emptied_by_forgetting_and_collecting() {
    let disk = SimulatedDisk::new(1);
    let far = FolderEnd::shared(disk.start_process());
    let seeded = Entropy::seeded(1);
    let made = Vault::init(far, VaultOptions::default(), PASSWORD, cost(), seeded);
    let mut vault = made.unwrap();
    let mut random = Rng::with_seed(crate::testing::seed(51));
    let mut trees = BTreeMap::new();
    for number in 0..4 {
        let content = (0..1_500_000).map(|_| random.u8(..)).collect();
        let tree = Tree::from([(b"a".to_vec(), content)]);
        let epoch = add(&mut vault, &tree, number).unwrap();
        trees.insert(epoch, tree);
    }
    let full_bytes = disk.allocated_bytes();
    disk.set_capacity_bytes(Some(full_bytes));
    let (newest, last) = trees.pop_last().unwrap();
    let gone: Vec<u64> = trees.into_keys().collect();
    vault.forget(&gone).unwrap();
    // Another process, which finds the room used.
    let mut vault = open_seeded(disk.start_process(), 2).unwrap();
    vault
        .collect(&pool(), writer_options(), (0, 0), 0.9, &mut |_| ())
        .unwrap();
    let left_bytes = disk.allocated_bytes();
    assert!(left_bytes < full_bytes / 2, "{left_bytes} of {full_bytes}");
    assert!(trees_of(&vault).unwrap() == BTreeMap::from([(newest, last)]));
}

/// A vault with two snapshots at rest.
fn small_vault() -> (SimulatedDisk, BTreeMap<u64, Tree>) {
    let disk = SimulatedDisk::new(1);
    let mut subject = Subjected::create(disk.start_process(), ()).unwrap();
    let mut random = Rng::with_seed(crate::testing::seed(5));
    for _ in 0..2 {
        let mut tree = Tree::new();
        for name in [b"a", b"b"] {
            let length = random.usize(100..900);
            tree.insert(name.to_vec(), (0..length).map(|_| random.u8(..4)).collect());
        }
        subject.commit(&Transaction::Add(tree), true).unwrap();
    }
    (disk, subject.trees)
}

/// Packs of folders alone show which chunks are live, so a collector need not read the contents.
#[test]
fn lists_of_contents_lie_apart_from_them() {
    let (disk, _) = small_vault();
    let vault = open_seeded(disk.start_process(), 0).unwrap();
    let mut lists = BTreeMap::from([(PackKind::Data, 0), (PackKind::Folders, 0)]);
    vault
        .each_pack(|pack, contents| {
            for frame in &contents.frames {
                let of_lists = |it: &&ChunkEntry| it.kind == ChunkKind::List;
                let count = frame.chunks.iter().filter(of_lists).count();
                *lists.get_mut(&pack.kind).unwrap() += count;
            }
            Ok(())
        })
        .unwrap();
    assert_eq!(lists[&PackKind::Data], 0);
    assert!(lists[&PackKind::Folders] >= 4, "{lists:?}");
}

#[test]
fn every_flipped_bit_is_found_by_verify_and_never_returned() {
    let (disk, expected) = small_vault();
    let mut tried = 0;
    proof_flips(&disk, &mut |process, name| {
        tried += 1;
        let Ok(vault) = open_seeded(process, 0) else {
            return;
        };
        let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
        let is_found = verified.is_err() || verified.is_ok_and(|it| !it.damages.is_empty());
        assert!(is_found, "a bit of {name} is not missed");
        if let Ok(trees) = trees_of(&vault) {
            assert!(trees == expected, "a bit of {name} was returned");
        }
    });
    println!("flipped {tried} bits");
    assert!(tried > 20_000, "{tried}");
}

/// A process that can open no more files has not read the objects, and calls none of them damaged.
#[test]
fn what_cannot_be_read_is_not_called_damaged() {
    let (disk, _) = small_vault();
    let mut struck = 0;
    loop {
        let vault = open_seeded(disk.start_process(), 0).unwrap();
        disk.set_fault(Some(Fault {
            kind: FaultKind::TooManyFiles,
            first_call: struck,
            is_lasting: true,
        }));
        let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
        if disk.fault_call_count() <= struck {
            let damages = verified.unwrap().damages;
            assert!(damages.is_empty(), "{damages:?}");
            break;
        }
        verified.unwrap_err();
        disk.set_fault(None);
        struck += 1;
    }
    println!("{struck} calls found no descriptor");
    assert!(struck > 10, "{struck}");
}

fn proof_flips(disk: &SimulatedDisk, check: &mut dyn FnMut(Arc<dyn Storage>, &str)) {
    let image = disk.recording().end();
    // The bytes of the room kept aside mean nothing.
    let names = image.names().into_iter();
    for name in names.filter(|name| name != "locks/room") {
        for bit in 0..image.size_bytes(&name) * 8 {
            let mut flipped = image.clone();
            flipped.flip_bit(&name, bit);
            check(
                SimulatedDisk::from_image(&flipped, 0).start_process(),
                &name,
            );
        }
    }
}
