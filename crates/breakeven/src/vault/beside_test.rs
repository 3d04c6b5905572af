//! Several processes change one vault at the same time.
//!
//! Before any call of a far end, another process may have made a whole change. The test makes such changes at random,
//! nested in each other, and ends processes at random. At the end all committed snapshots are there, and nothing else.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use crate::storage::{MemoryStorage, Storage};

use super::proof_objects_test::SimulatedObjects;
use super::proof_test::{
    PASSWORD, Rng, Subjected, Tree, add, open_seeded, pool, trees_of, writer_options,
};
use super::*;

/// Changes within each other.
const DEPTH_MAX: u32 = 2;
/// One call of so many comes behind a change of another, and as often its process ends.
const CALLS: u32 = 30;

/// Counts of changes by their outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    added: u64,
    added_beside: u64,
    collected: u64,
    forgotten: u64,
    refused: u64,
    killed: u64,
}

struct Past {
    random: Rng,
    live: BTreeMap<u64, Tree>,
    /// Trees that may or may not be there: a process ended while it added or forgot one.
    doubtful: Vec<Tree>,
    seed: u64,
    now: i64,
    counts: Counts,
}

type Far = dyn Fn(u64) -> Arc<dyn FarEnd> + Send + Sync;

struct World {
    far: Box<Far>,
    past: Mutex<Past>,
}

impl World {
    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap()
    }

    fn open(self: &Arc<World>, depth: u32) -> Result<Vault> {
        let seed = {
            let mut past = self.past();
            past.seed += 1;
            past.seed
        };
        let far = Interrupted {
            far: (self.far)(seed),
            world: Arc::clone(self),
            depth,
            is_dead: Mutex::new(false),
        };
        let mut vault = Vault::open(Arc::new(far), PASSWORD, Entropy::seeded(seed))?;
        vault.wait_for_nobody();
        Ok(vault)
    }

    /// Makes one change as a process of its own.
    fn change(self: &Arc<World>, depth: u32) {
        let (choice, tree, seed) = {
            let mut past = self.past();
            let tree = past.plan();
            (past.random.u8(..10), tree, past.seed)
        };
        let is_beside = depth > 0;
        let mut vault = match self.open(depth) {
            Ok(vault) => vault,
            Err(error) => return self.note_failure(&error, None),
        };
        match choice {
            0..5 => match add(&mut vault, &tree, seed) {
                Ok(epoch) => {
                    let mut past = self.past();
                    past.counts.added += 1;
                    past.counts.added_beside += u64::from(is_beside);
                    assert!(past.live.insert(epoch, tree).is_none(), "epoch {epoch}");
                }
                Err(error) => self.note_failure(&error, Some(tree)),
            },
            5..7 => {
                let oldest = self.past().live.keys().next().copied();
                let Some(epoch) = oldest else { return };
                match vault.forget(&[epoch]) {
                    Ok(_) => {
                        let mut past = self.past();
                        past.counts.forgotten += 1;
                        past.live.remove(&epoch);
                    }
                    Err(error) => {
                        let tree = is_killed(&error).then(|| self.past().live.remove(&epoch));
                        self.note_failure(&error, tree.flatten());
                    }
                }
            }
            _ => {
                let now = self.past().tick();
                let collected =
                    vault.collect(&pool(), writer_options(), (now, 0), 0.7, &mut |_| ());
                match collected {
                    Ok(_) => self.past().counts.collected += 1,
                    Err(error) => self.note_failure(&error, None),
                }
            }
        }
    }

    /// Notes a change that failed or did not end.
    fn note_failure(&self, error: &Error, tree: Option<Tree>) {
        let mut past = self.past();
        match is_killed(error) {
            true => {
                past.counts.killed += 1;
                past.doubtful.extend(tree);
            }
            false => {
                assert!(matches!(error, Error::Invalid { .. }), "{error}");
                past.counts.refused += 1;
            }
        }
    }

    /// Checks that all committed snapshots are there, and nothing else.
    fn check(self: &Arc<World>) {
        let far = (self.far)(0);
        let vault = Vault::open(far, PASSWORD, Entropy::seeded(0)).unwrap();
        let mut found = trees_of(&vault).unwrap();
        assert!(vault.damages().is_empty(), "{:?}", vault.damages());
        let mut past = self.past();
        for (epoch, tree) in &past.live {
            assert!(found.remove(epoch).as_ref() == Some(tree), "{epoch}");
        }
        for (epoch, tree) in found {
            let at = past.doubtful.iter().position(|it| *it == tree);
            past.doubtful
                .swap_remove(at.expect("a tree that was added"));
            past.live.insert(epoch, tree);
        }
        past.doubtful.clear();
    }
}

impl Past {
    /// Plans a tree that shares much with another one, so that adds find known chunks.
    fn plan(&mut self) -> Tree {
        let known = self.random.usize(..self.live.len().max(1));
        let mut tree = self.live.values().nth(known).cloned().unwrap_or_default();
        for _ in 0..self.random.usize(1..4) {
            let (name, seed) = (self.random.u8(b'a'..b'g'), self.random.u64(..12));
            let mut made = Rng::with_seed(seed);
            let length = made.usize(1..6000);
            tree.insert(vec![name], (0..length).map(|_| made.u8(..)).collect());
        }
        tree
    }

    fn tick(&mut self) -> i64 {
        self.now += 1;
        self.now
    }
}

fn is_killed(error: &Error) -> bool {
    error.to_string().contains("it was killed")
}

/// A far end that others use between its calls.
struct Interrupted {
    far: Arc<dyn FarEnd>,
    world: Arc<World>,
    depth: u32,
    is_dead: Mutex<bool>,
}

impl Interrupted {
    fn pass(&self) -> Result<()> {
        let mut is_dead = self.is_dead.lock().unwrap();
        let (comes, ends) = {
            let random = &mut self.world.past().random;
            (random.u32(..CALLS) == 0, random.u32(..4 * CALLS) == 0)
        };
        if comes && !*is_dead && self.depth < DEPTH_MAX {
            self.world.change(self.depth + 1);
        }
        *is_dead |= ends;
        match *is_dead {
            true => Err(Error::io(
                "ask",
                "it",
                std::io::Error::other("it was killed"),
            )),
            false => Ok(()),
        }
    }
}

impl FarEnd for Interrupted {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        self.pass()?;
        self.far.put(name, bytes)
    }

    fn read(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>> {
        self.pass()?;
        self.far.read(name, most_bytes)
    }

    fn read_range(&self, name: &str, offset: u64, length_bytes: usize) -> Result<Vec<u8>> {
        self.pass()?;
        self.far.read_range(name, offset, length_bytes)
    }

    fn size_bytes(&self, name: &str) -> Result<Option<u64>> {
        self.pass()?;
        self.far.size_bytes(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.pass()?;
        self.far.list(folder)
    }

    fn delete(&self, folder: &str, names: &[String]) -> Result<()> {
        self.pass()?;
        self.far.delete(folder, names)
    }

    fn take_turn(&self) -> Result<Turn> {
        self.pass()?;
        self.far.take_turn()
    }

    fn share(&self) -> Result<Box<dyn AddMark>> {
        self.pass()?;
        self.far.share()
    }

    fn exclude(&self) -> Result<Turn> {
        self.pass()?;
        self.far.exclude()
    }

    fn break_turn(&self) -> Result<()> {
        self.pass()?;
        self.far.break_turn()
    }

    fn settle(&self, folder: &str) -> Result<()> {
        self.pass()?;
        self.far.settle(folder)
    }

    fn clear(&self, folder: &str) -> Result<()> {
        self.pass()?;
        self.far.clear(folder)
    }
}

/// Makes changes within each other at a far end that each process opens for itself.
fn change_beside_others(name: &str, seeds: u64, far: impl Fn() -> Box<Far>) {
    let mut total = Counts::default();
    for seed in 0..seeds {
        let far = far();
        drop(Subjected::made(far(1 << 40)).unwrap());
        let random = Rng::with_seed(crate::testing::seed(seed + 900));
        let world = Arc::new(World {
            far,
            past: Mutex::new(Past {
                random,
                live: BTreeMap::new(),
                doubtful: Vec::new(),
                seed: 1,
                now: 0,
                counts: Counts::default(),
            }),
        });
        for _ in 0..12 {
            world.change(0);
            world.check();
        }
        let counts = world.past().counts;
        total.added += counts.added;
        total.added_beside += counts.added_beside;
        total.collected += counts.collected;
        total.forgotten += counts.forgotten;
        total.refused += counts.refused;
        total.killed += counts.killed;
    }
    println!("{name}: {total:?}");
    let all = [
        total.added,
        total.added_beside,
        total.collected,
        total.forgotten,
        total.refused,
        total.killed,
    ];
    assert!(all.iter().all(|count| *count > seeds / 4), "{total:?}");
}

#[test]
fn changes_of_a_folder_beside_others_lose_nothing() {
    change_beside_others("folder", 40, || {
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        Box::new(move |_| FolderEnd::shared(Arc::clone(&storage)))
    });
}

#[test]
fn changes_of_a_store_of_objects_beside_others_lose_nothing() {
    change_beside_others("objects", 40, || {
        let store = SimulatedObjects::of(BTreeMap::new(), 1_000_000);
        Box::new(move |seed| store.far(seed))
    });
}

/// Returns a folder with a vault in it.
fn made() -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    drop(Subjected::made(FolderEnd::shared(Arc::clone(&storage))).unwrap());
    storage
}

fn open(storage: &Arc<dyn Storage>, seed: u64) -> Vault {
    open_seeded(Arc::clone(storage), seed).unwrap()
}

/// Two processes add at the same time; both began before either commits. A collection waits.
#[test]
fn two_add_at_the_same_time() {
    let storage = made();
    let open = |seed| {
        let mut vault = open(&storage, seed);
        vault.wait_for_nobody();
        vault
    };
    let (mut first, mut second, mut third) = (open(1), open(2), open(3));
    let pool = pool();
    let mut one = Writer::new(&mut first, &pool, writer_options()).unwrap();
    let mut two = Writer::new(&mut second, &pool, writer_options()).unwrap();
    let (a, _) = one.add_content(&mut &b"the first"[..]).unwrap();
    let (b, _) = two.add_content(&mut &b"the second"[..]).unwrap();
    let collect = |vault: &mut Vault| {
        let collected = vault.collect(&pool, writer_options(), (1, 0), 0.5, &mut |_| ());
        collected.map_err(|error| error.to_string())
    };
    let refused = collect(&mut third).unwrap_err();
    assert!(refused.contains("another process writes"), "{refused}");
    assert_eq!(one.commit(Snapshot::default()).unwrap(), 1);
    let refused = collect(&mut third).unwrap_err();
    assert!(refused.contains("another process writes"), "{refused}");
    assert_eq!(two.commit(Snapshot::default()).unwrap(), 2);
    let vault = open(4);
    assert_eq!(vault.snapshots().unwrap().len(), 2);
    let index = vault.index(u64::MAX).unwrap();
    assert!([a, b].iter().all(|id| index.find(id).is_some()));
}

/// As on a file system without locks: the turn is given away, or taken by force, while its first holder still has it.
#[test]
fn one_commits_at_a_time_and_a_late_one_is_fenced() {
    let storage = made();
    let open = |seed| open(&storage, seed);
    let (mut first, mut second) = (open(1), open(2));
    for (epoch, unlocks) in [(1, false), (3, true)] {
        let session = first.begin().unwrap();
        let refused = second.forget(&[]).unwrap_err().to_string();
        assert!(refused.contains("another process writes"), "{refused}");
        match unlocks {
            true => assert_eq!(second.unlock().unwrap(), 1),
            false => storage.unlink("locks/turn").unwrap(),
        }
        second.forget(&[]).unwrap();
        let change = Record::Change(first.state.clone());
        let late = first.commit(session, change).unwrap_err().to_string();
        assert!(late.contains(&format!("closed epoch {epoch}")), "{late}");
        first = open(5 + epoch);
    }
    assert_eq!(second.unlock().unwrap(), 0);
}

/// A writer's packs stay good through an unlock, as long as nothing is collected.
#[test]
fn whoever_adds_commits_after_an_unlock() {
    let storage = made();
    let open = |seed| open(&storage, seed);
    let (mut first, mut second) = (open(1), open(2));
    let pool = pool();
    let slow = Writer::new(&mut first, &pool, writer_options()).unwrap();
    assert_eq!(second.unlock().unwrap(), 0);
    assert_eq!(slow.commit(Snapshot::default()).unwrap(), 2);
}

/// As on a file system without locks: the marks are given away while one process still adds, and its packs are
/// collected.
#[test]
fn whoever_lost_its_packs_commits_nothing() {
    let storage = made();
    let open = |seed| open(&storage, seed);
    let (mut first, mut second) = (open(1), open(2));
    let pool = pool();
    let mut slow = Writer::new(&mut first, &pool, writer_options()).unwrap();
    slow.add_content(&mut &[7; 100_000][..]).unwrap();
    slow.flush().unwrap();
    second.unlock().unwrap();
    for now in [1, 2] {
        let collected = second.collect(&pool, writer_options(), (now, 0), 0.5, &mut |_| ());
        collected.unwrap();
    }
    let late = slow.commit(Snapshot::default()).unwrap_err().to_string();
    assert!(
        late.contains("removed what this snapshot relies on"),
        "{late}"
    );
    assert_eq!(open(3).snapshots().unwrap().len(), 0);
}
