//! Trouble at each request to a store of objects. While adding, forgetting, collecting and restoring, every request
//! meets every trouble once.
//!
//! After each, the next process finds all finished snapshots, bit for bit. It goes on, collects the rest of an
//! interrupted collection, and finds no damage.

use std::fs;
use std::path::Path;

use super::proof_objects_test::{Objects, SimulatedObjects, Trouble};
use super::proof_test::{PASSWORD, Subject, Subjected, Transaction, Tree, pool, writer_options};
use super::*;
use crate::storage::proof::State as Holds;

/// The kind of work.
enum Work {
    Change(Transaction),
    Collect,
    /// A snapshot.
    Restore(u64),
}

impl Work {
    fn name(&self) -> &'static str {
        match self {
            Work::Change(Transaction::Forget(_)) => "forget",
            Work::Change(_) => "add",
            Work::Collect => "gc",
            Work::Restore(_) => "restore",
        }
    }
}

/// A vault at rest, and the work to try with it.
struct Scene {
    objects: Objects,
    now: i64,
    before: Holds,
    /// The contents when the work is done.
    after: Holds,
    work: Work,
}

fn open(store: &Arc<SimulatedObjects>, seed: u64) -> Result<Subjected> {
    Subjected::of(Vault::open(
        store.far(seed),
        PASSWORD,
        Entropy::seeded(seed),
    )?)
}

/// Collects all dead chunks at once.
pub(super) fn collect(subject: &mut Subjected, now: i64) -> Result<Collected> {
    let vault = &mut subject.vault;
    vault.collect(&pool(), writer_options(), (now, 0), 1.0, &mut |_| ())
}

/// Returns the plan of such a collection now.
pub(super) fn plan_all(subject: &Subjected) -> CollectPlan {
    let vault = &subject.vault;
    let plan = vault.plan_collection(&writer_options(), 1.0, &mut |_| ());
    plan.unwrap()
}

/// Restores a snapshot over existing files; an error names the missing ones.
pub(super) fn restore(subject: &Subjected, epoch: u64, target: &Path) -> Result<()> {
    let options = RestoreOptions {
        replaces: true,
        owners: false,
        ..RestoreOptions::default()
    };
    let restored = subject
        .vault
        .restore(&pool(), epoch, target, &options, &mut |_| ())?;
    match restored.problems.first() {
        None => Ok(()),
        Some((path, reason)) => Err(Error::invalid(
            "restore",
            format!("{}: {reason}", path.display()),
        )),
    }
}

pub(super) fn check_restored(tree: &Tree, target: &Path, what: &str) {
    let back = target.join("top");
    assert_eq!(fs::read_dir(&back).unwrap().count(), tree.len(), "{what}");
    for (name, bytes) in tree {
        let name = std::str::from_utf8(name).expect("a plain name");
        assert!(
            fs::read(back.join(name)).unwrap() == *bytes,
            "{what}: {name}"
        );
    }
}

/// Lives for a while, and returns scenes of each kind of work.
fn scenes(random: &mut fastrand::Rng) -> Vec<Scene> {
    let store = SimulatedObjects::of(Objects::new(), 0);
    let mut subject = Subjected::made(store.far(random.u64(..))).unwrap();
    let mut scenes = Vec::new();
    let mut scene = |subject: &Subjected, work: Work| {
        let state = store.0.lock().unwrap();
        let (objects, now) = (state.objects.clone(), state.now);
        let before = subject.state();
        let after = match &work {
            Work::Change(transaction) => subject.after(transaction),
            _ => before,
        };
        scenes.push(Scene {
            objects,
            now,
            before,
            after,
            work,
        });
    };
    for _ in 0..2 {
        let transaction = subject.plan_add(random);
        subject.commit(&transaction, true).unwrap();
    }
    let transaction = subject.plan_add(random);
    scene(&subject, Work::Change(transaction.clone()));
    subject.commit(&transaction, true).unwrap();
    let (newest, _) = subject.trees.last_key_value().expect("a snapshot");
    scene(&subject, Work::Restore(*newest));
    let (first, _) = subject.trees.first_key_value().expect("a snapshot");
    let forget = Transaction::Forget(*first);
    scene(&subject, Work::Change(forget.clone()));
    subject.commit(&forget, true).unwrap();
    scene(&subject, Work::Collect);
    scenes
}

/// Does the work of a scene; one request meets trouble. Returns the outcome and the number of requests.
fn act(
    scene: &Scene,
    planned: Option<(u64, Trouble)>,
    target: &Path,
) -> (Result<()>, Arc<SimulatedObjects>) {
    let store = SimulatedObjects::of(scene.objects.clone(), scene.now + 3600);
    store.0.lock().unwrap().planned = planned;
    let acted = open(&store, 7).and_then(|mut subject| match &scene.work {
        Work::Change(transaction) => subject.commit(transaction, true),
        Work::Collect => collect(&mut subject, 100).map(drop),
        Work::Restore(epoch) => restore(&subject, *epoch, target),
    });
    (acted, store)
}

/// The next process adds, collects, and finds nothing wrong. Returns the plan of another collection.
pub(super) fn go_on(
    open: &dyn Fn(u64) -> Result<Subjected>,
    random: &mut fastrand::Rng,
    what: &str,
) -> CollectPlan {
    let mut subject = open(random.u64(..)).unwrap();
    let transaction = subject.plan(random);
    subject
        .commit(&transaction, true)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    collect(&mut subject, 200).unwrap();
    let expected = subject.state();
    let left = plan_all(&subject);
    drop(subject);
    let subject = open(3).unwrap();
    assert_eq!(subject.state(), expected, "{what}");
    let verified = subject
        .vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(
        verified.damages.is_empty(),
        "{what}: {:?}",
        verified.damages
    );
    left
}

/// Tries every trouble at every request of a scene. Returns the number of images, and how often the work succeeded all
/// the same.
fn try_scene(scene: &Scene, random: &mut fastrand::Rng) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let (acted, store) = act(scene, None, &folder.path().join("0"));
    acted.unwrap();
    let requests = store.0.lock().unwrap().requests;
    assert!(requests > 5, "{requests} requests");
    let (mut images, mut went_well) = (0, 0);
    for at in 0..requests {
        for trouble in Trouble::ALL {
            let what = format!("{} with {trouble:?} at {at}", scene.work.name());
            let target = folder.path().join(format!("{at}-{trouble:?}"));
            let (acted, store) = act(scene, Some((at, trouble)), &target);
            let next = store.next_process();
            let subject = open(&next, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
            let found = subject.state();
            let is_right = found == scene.after || acted.is_err() && found == scene.before;
            assert!(is_right, "{what}: {acted:?}");
            if let Work::Restore(epoch) = scene.work {
                // Interrupted work is done again, over its own remains.
                if acted.is_err() {
                    restore(&subject, epoch, &target).unwrap();
                }
                check_restored(&subject.trees[&epoch], &target, &what);
                fs::remove_dir_all(&target).unwrap();
            }
            drop(subject);
            if images % 3 == 0 {
                let left = go_on(&|seed| open(&next, seed), random, &what);
                assert_eq!((left.dead_packs, left.moved_packs), (0, 0), "{what}");
            }
            images += 1;
            went_well += u64::from(acted.is_ok());
        }
    }
    (images, went_well)
}

#[test]
fn no_trouble_at_any_request_loses_a_snapshot() {
    let mut random = crate::testing::seeded("requests", 24);
    let lives = if crate::testing::is_full() { 40 } else { 1 };
    let mut tried = std::collections::BTreeMap::<&str, (u64, u64)>::new();
    for _ in 0..lives {
        for scene in scenes(&mut random) {
            let (images, went_well) = try_scene(&scene, &mut random);
            let sums = tried.entry(scene.work.name()).or_default();
            *sums = (sums.0 + images, sums.1 + went_well);
        }
    }
    println!("images of each work, and how often it went well: {tried:?}");
    let all: u64 = tried.values().map(|(images, _)| images).sum();
    assert!(tried.len() == 4 && all >= 500, "{tried:?}");
}
