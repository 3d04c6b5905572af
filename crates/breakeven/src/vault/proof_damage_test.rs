//! Every object of a vault is damaged in each way, and every command runs: whole files come back, lost ones are named.
//!
//! A data pack costs files. An object that lies twice costs nothing unless its copy is damaged too. Then the record of
//! a snapshot costs that snapshot, a folder pack costs files, and config or the only key costs all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::disk_source_test::MadeUpDisk;
use super::far_end::{Listed, not_there};
use super::folder_end::check_range;
use super::proof_test::{PASSWORD, Rng, pool, writer_options};
use super::*;

/// Objects in memory.
#[derive(Default)]
struct Shelf {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl Shelf {
    fn of(objects: &BTreeMap<String, Vec<u8>>) -> Arc<Shelf> {
        let objects = Mutex::new(objects.clone());
        Arc::new(Shelf { objects })
    }

    fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.objects.lock().unwrap().clone()
    }
}

struct Alone;

impl AddMark for Alone {
    fn has_others(&self) -> Result<bool> {
        Ok(false)
    }
}

impl FarEnd for Shelf {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        let mut objects = self.objects.lock().unwrap();
        if objects.contains_key(name) {
            return Ok(Put::Exists);
        }
        objects.insert(name.to_string(), bytes.to_vec());
        Ok(Put::Created)
    }

    fn read(&self, name: &str, _: u64) -> Result<Vec<u8>> {
        let objects = self.objects.lock().unwrap();
        objects.get(name).cloned().ok_or_else(|| not_there(name))
    }

    fn read_range(&self, name: &str, offset: u64, length_bytes: usize) -> Result<Vec<u8>> {
        let bytes = self.read(name, u64::MAX)?;
        check_range(name, offset, length_bytes, bytes.len() as u64)?;
        Ok(bytes[offset as usize..][..length_bytes].to_vec())
    }

    fn size_bytes(&self, name: &str) -> Result<Option<u64>> {
        let objects = self.objects.lock().unwrap();
        Ok(objects.get(name).map(|bytes| bytes.len() as u64))
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        let objects = self.objects.lock().unwrap();
        let below = |name: &String| {
            let name = name.strip_prefix(folder)?.strip_prefix('/')?.to_string();
            Some(Listed {
                name,
                size_bytes: None,
            })
        };
        Ok(objects.keys().filter_map(below).collect())
    }

    fn delete(&self, folder: &str, names: &[String]) -> Result<()> {
        let mut objects = self.objects.lock().unwrap();
        for name in names {
            objects.remove(format!("{folder}/{name}").trim_start_matches('/'));
        }
        Ok(())
    }

    fn take_turn(&self) -> Result<Turn> {
        Ok(Turn::new(()))
    }

    fn share(&self) -> Result<Box<dyn AddMark>> {
        Ok(Box::new(Alone))
    }

    fn exclude(&self) -> Result<Turn> {
        Ok(Turn::new(()))
    }

    fn break_turn(&self) -> Result<()> {
        Ok(())
    }
}

const COST: PasswordCost = PasswordCost {
    memory_kib: 8,
    passes: 1,
    lanes: 1,
};

/// Files of a snapshot by their paths below its root.
type Files = BTreeMap<PathBuf, Vec<u8>>;

fn files_below(root: &Path) -> Files {
    let (mut files, mut left) = (Files::new(), vec![root.to_path_buf()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(root).unwrap().to_path_buf();
                    files.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    files
}

/// The result of a restore: its files, and its report on the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Back {
    files: Files,
    named: Vec<PathBuf>,
}

fn restore(vault: &Vault, epoch: u64) -> Result<Back> {
    let target = tempfile::tempdir().unwrap();
    let options = RestoreOptions::default();
    let restored = vault.restore(&pool(), epoch, target.path(), &options, &mut |_| ())?;
    let below = |path: &PathBuf| path.strip_prefix(target.path()).unwrap().to_path_buf();
    Ok(Back {
        files: files_below(target.path()),
        named: restored
            .problems
            .iter()
            .map(|(path, _)| below(path))
            .collect(),
    })
}

/// Says whether a file has the bytes of another, or zeros.
fn has_parts_of(part: &[u8], whole: &[u8]) -> bool {
    let mut both = part.iter().zip(whole);
    part.len() == whole.len() && both.all(|(part, whole)| part == whole || *part == 0)
}

/// Checks that a snapshot equals the original except for the named losses; returns whether it is complete.
fn check(back: &Back, was: &Files, case: &Case) -> bool {
    let is_named = |path: &PathBuf| back.named.iter().any(|named| path.starts_with(named));
    for (path, bytes) in &back.files {
        let whole = was
            .get(path)
            .unwrap_or_else(|| panic!("{case:?}: {}", path.display()));
        let is_right = whole == bytes || is_named(path) && has_parts_of(bytes, whole);
        assert!(is_right, "{case:?}: {}", path.display());
    }
    for path in was.keys().filter(|path| !back.files.contains_key(*path)) {
        assert!(is_named(path), "{case:?}: {} is missing", path.display());
    }
    back.files.len() == was.len() && back.named.is_empty()
}

/// A vault at rest, and the contents of its snapshots.
struct Rest {
    objects: BTreeMap<String, Vec<u8>>,
    snapshots: BTreeMap<u64, Files>,
    source: tempfile::TempDir,
}

fn add_options(seconds: i64) -> AddOptions {
    AddOptions {
        host: "host".to_string(),
        now: Time {
            seconds,
            nanoseconds: 0,
        },
        writer: writer_options(),
        ..AddOptions::default()
    }
}

impl Rest {
    fn new() -> Rest {
        let mut random = Rng::with_seed(crate::testing::seed(61));
        let mut noise = |length: usize| (0..length).map(|_| random.u8(..)).collect::<Vec<u8>>();
        let source = tempfile::tempdir().unwrap();
        let root = source.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("c")).unwrap();
        for (name, length) in [("a/long", 30_000), ("a/b/short", 400), ("c/other", 9_000)] {
            fs::write(root.join(name), noise(length)).unwrap();
        }
        let shelf = Arc::new(Shelf::default());
        let options = VaultOptions {
            chunks: ChunkLimits {
                least_bytes: 256,
                mean_bytes: 1024,
                most_bytes: 4096,
            },
            frame_bytes: 4096,
            pack_bytes: 8192,
        };
        let entropy = Entropy::seeded(1);
        let made = Vault::init(shelf.clone(), options, PASSWORD, COST, entropy);
        let mut vault = made.unwrap();
        let mut snapshots = BTreeMap::new();
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("a.disk"), "its file").unwrap();
        let mut disk = MadeUpDisk::new(noise(20_000), 512);
        for at in 0..4 {
            fs::write(root.join("a/b/new"), noise(700 + at)).unwrap();
            // A version of an existing file.
            let mut version = fs::read(root.join("c/other")).unwrap();
            version[at * 2000] ^= 1;
            fs::write(root.join("c/other"), version).unwrap();
            let paths = [root.to_path_buf()];
            let options = add_options(at as i64);
            let added = vault.add(&pool(), &paths, &options, &mut |_| ());
            let epoch = added.unwrap().epoch;
            let below = root.strip_prefix("/").unwrap();
            let files = files_below(root).into_iter();
            let files = files.map(|(path, bytes)| (below.join(path), bytes));
            snapshots.insert(epoch, files.collect());
            if at > 1 {
                continue;
            }
            // A volume of a disk, whose second state has another chunk.
            disk.bytes[..900].copy_from_slice(&noise(900));
            let file = other.path().join("a.disk");
            let added = vault.add_disk(&pool(), &file, "root", &mut disk, &options, &mut |_| ());
            let added = added.unwrap();
            assert_eq!(added.disk_read_bytes, [20_000, 1024][at]);
            let below = file
                .strip_prefix("/")
                .unwrap()
                .with_file_name("a.disk:root");
            let files = Files::from([(below, disk.bytes.clone())]);
            snapshots.insert(added.epoch, files);
        }
        vault.forget(&[1]).unwrap();
        snapshots.remove(&1);
        Rest {
            objects: shelf.objects(),
            snapshots,
            source,
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Harm {
    Flip,
    Cut,
    Gone,
    Another,
}

const HARMS: [Harm; 4] = [Harm::Flip, Harm::Cut, Harm::Gone, Harm::Another];

fn harm(objects: &mut BTreeMap<String, Vec<u8>>, name: &str, harm: Harm, random: &mut Rng) {
    let length = objects[name].len();
    match harm {
        Harm::Flip => objects.get_mut(name).unwrap()[random.usize(..length)] ^= 1 << random.u8(..8),
        Harm::Cut => objects
            .get_mut(name)
            .unwrap()
            .truncate(random.usize(..length)),
        Harm::Gone => drop(objects.remove(name)),
        Harm::Another => drop(objects.insert(name.to_string(), vec![7; length])),
    }
}

/// The cost of a lost object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All of the vault: nothing opens.
    Vault,
    /// Files of any snapshot.
    Files,
    /// This snapshot.
    Snapshot(u64),
    /// The state after the newest change, and no snapshot.
    Newest,
    Nothing,
}

/// The damaged object, and the harm.
#[derive(Clone, Debug)]
struct Case {
    names: Vec<String>,
    harm: Harm,
    loss: Loss,
}

impl Case {
    /// The newest record and its copy leave a vault as it was before them. Without copies it looks like an earlier
    /// vault. Locks are leftovers.
    fn is_unseen(&self, name: &str) -> bool {
        let is_small = name.starts_with("copies/") && name.contains(['-', 'f']) && name.len() < 39;
        let is_newest = self.loss == Loss::Newest;
        matches!(self.harm, Harm::Gone) && (is_small || is_newest || name.starts_with("locks/"))
    }
}

impl Rest {
    /// Returns the cases of one object, and of one with its copy.
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for name in self.objects.keys() {
            let copy = match name.split_once('/') {
                Some(("locks" | "index" | "copies", _)) => None,
                _ => Some(copies::copy_name(name)).filter(|it| self.objects.contains_key(it)),
            };
            for harm in HARMS {
                cases.push(Case {
                    names: vec![name.clone()],
                    harm,
                    loss: match copy.is_none() && name.starts_with("packs") {
                        true => Loss::Files,
                        false => Loss::Nothing,
                    },
                });
                cases.extend(copy.as_ref().map(|copy| Case {
                    names: vec![name.clone(), copy.clone()],
                    harm,
                    loss: self.loss_with_copy(name),
                }));
            }
        }
        cases
    }

    fn loss_with_copy(&self, name: &str) -> Loss {
        let (folder, last) = name.split_once('/').unwrap_or(("", name));
        match folder {
            "packs" => Loss::Files,
            "snapshots" => match epoch_of(last) {
                Some(epoch) if self.snapshots.contains_key(&epoch) => Loss::Snapshot(epoch),
                _ => Loss::Newest,
            },
            _ => Loss::Vault,
        }
    }

    fn open_to_read(objects: &BTreeMap<String, Vec<u8>>) -> Result<Vault> {
        Vault::open_damaged(Shelf::of(objects), PASSWORD, Entropy::seeded(3))
    }

    /// Restores every snapshot that should be there.
    fn check_restores(&self, vault: &Vault, case: &Case) -> BTreeMap<u64, Back> {
        let listed = vault.snapshots().unwrap();
        let listed: BTreeSet<u64> = listed.into_iter().map(|(epoch, _)| epoch).collect();
        let mut backs = BTreeMap::new();
        for (epoch, files) in &self.snapshots {
            let is_lost = case.loss == Loss::Snapshot(*epoch);
            assert!(
                listed.contains(epoch) || is_lost,
                "{case:?}: {epoch} is not listed"
            );
            if is_lost && !listed.contains(epoch) {
                continue;
            }
            let back = restore(vault, *epoch).unwrap();
            let is_whole = check(&back, files, case);
            assert!(
                is_whole || case.loss == Loss::Files,
                "{case:?}: {epoch} has lost {:?}",
                back.named
            );
            backs.insert(*epoch, back);
        }
        backs
    }
}

/// Checks that nothing which was there before is missing now.
fn check_as_good(before: &BTreeMap<u64, Back>, after: &BTreeMap<u64, Back>, case: &Case) {
    for (epoch, back) in before {
        let Some(now) = after.get(epoch) else {
            panic!("{case:?}: snapshot {epoch} is gone");
        };
        check_files(back, now, case);
    }
}

#[test]
fn what_is_whole_is_given_and_what_is_lost_is_named() {
    let rest = Rest::new();
    let mut random = Rng::with_seed(crate::testing::seed(62));
    let cases = rest.cases();
    let mut found = 0;
    for case in &cases {
        let mut objects = rest.objects.clone();
        for name in &case.names {
            harm(&mut objects, name, case.harm, &mut random);
        }
        let opened = Rest::open_to_read(&objects);
        if case.loss == Loss::Vault {
            let error = opened.err().map(|error| error.to_string());
            assert!(
                error.is_some_and(|it| it.contains("config") || it.contains("key")),
                "{case:?}"
            );
            continue;
        }
        let before = check_reading(&rest, &opened.unwrap(), case);
        // A cut object is as good as gone; an object of other bytes is as good as one with a flipped bit.
        if matches!(case.harm, Harm::Flip | Harm::Gone) {
            check_writing(&rest, &objects, &before, case);
        }
        found += usize::from(check_repair(&rest, &objects, &before, case));
    }
    println!(
        "{} damages of {} objects, {found} with lost and found",
        cases.len(),
        rest.objects.len()
    );
    assert!(
        cases.len() >= 150 && found >= 12,
        "{}, {found}",
        cases.len()
    );
}

fn check_reading(rest: &Rest, vault: &Vault, case: &Case) -> BTreeMap<u64, Back> {
    let backs = rest.check_restores(vault, case);
    let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
    let (damages, met) = (verified.unwrap().damages, vault.damages());
    for name in &case.names {
        let is_named = |damages: &[Damage]| damages.iter().any(|damage| damage.name == *name);
        let is_unseen = case.is_unseen(name);
        assert!(
            is_named(&damages) || is_unseen,
            "{case:?}: verify found {damages:?}"
        );
        let is_needed = ["config", "keys/", "index/", "snapshots/"];
        let is_needed = is_needed.iter().any(|needed| name.starts_with(needed));
        assert!(
            is_named(&met) || is_unseen || !is_needed,
            "{case:?}: said {met:?}"
        );
    }
    backs
}

fn check_writing(
    rest: &Rest,
    objects: &BTreeMap<String, Vec<u8>>,
    before: &BTreeMap<u64, Back>,
    case: &Case,
) {
    let opened = Vault::open(Shelf::of(objects), PASSWORD, Entropy::seeded(2));
    let Ok(mut vault) = opened else {
        assert_eq!(case.loss, Loss::Newest, "{case:?}: not opened");
        return;
    };
    let paths = [rest.source.path().to_path_buf()];
    let added = vault.add(&pool(), &paths, &add_options(9), &mut |_| ());
    let epoch = added
        .unwrap_or_else(|error| panic!("{case:?}: add: {error}"))
        .epoch;
    let files = rest.snapshots.values().last().unwrap();
    let back = restore(&vault, epoch).unwrap();
    let is_whole = check(&back, files, case);
    assert!(
        is_whole || case.loss == Loss::Files,
        "{case:?}: an add lacks {:?}",
        back.named
    );
    check_as_good(before, &rest.check_restores(&vault, case), case);
    let forgotten = *before.keys().next().unwrap();
    let forgot = vault.forget(&[forgotten]);
    forgot.unwrap_or_else(|error| panic!("{case:?}: forget: {error}"));
    for _ in 0..2 {
        // A collection that cannot read a live folder refuses.
        let collected = vault.collect(&pool(), writer_options(), (0, 0), 0.9, &mut |_| ());
        assert!(
            collected.is_ok() || case.loss != Loss::Nothing,
            "{case:?}: {collected:?}"
        );
        for (epoch, was) in before.iter().skip(1) {
            let now = restore(&vault, *epoch).unwrap();
            check_files(was, &now, case);
        }
    }
}

fn check_files(was: &Back, now: &Back, case: &Case) {
    let is_less = |(path, was): &(&PathBuf, &Vec<u8>)| {
        let now = now.files.get(*path);
        !now.is_some_and(|now| has_parts_of(was, now))
    };
    let lost: Vec<_> = was.files.iter().filter(is_less).map(|it| it.0).collect();
    assert!(lost.is_empty(), "{case:?}: {lost:?} are gone");
}

/// Returns for how many bytes these continue as some part of the whole contents.
fn found_bytes(left: &[u8], whole: &[&[u8]]) -> usize {
    // Noise has no 8 bytes twice.
    let least = left.len().min(8);
    let same = |part: &[u8]| {
        part.iter()
            .zip(left)
            .take_while(|(one, other)| one == other)
            .count()
    };
    let parts = whole
        .iter()
        .flat_map(|bytes| bytes.windows(least).zip(0..).map(move |it| (bytes, it)));
    let found = parts.filter(|(_, (window, _))| *window == &left[..least]);
    found
        .map(|(bytes, (_, at))| same(&bytes[at..]))
        .max()
        .unwrap_or(0)
}

/// Checks that a snapshot of its own holds the contents to which lost folders or records led, and that there is no
/// other such snapshot. Returns whether there is one.
fn check_found(rest: &Rest, vault: &Vault, repaired: &Repaired, case: &Case) -> bool {
    let has_lost_folder = repaired.lost.iter().any(|(epoch, path)| {
        let path = path.strip_prefix("/").unwrap();
        !(rest.snapshots.get(epoch)).is_some_and(|files| files.contains_key(path))
    });
    let found = match &repaired.found {
        Some(found) => restore(vault, found.epoch).unwrap(),
        None => Back {
            files: Files::new(),
            named: Vec::new(),
        },
    };
    let is_expected = has_lost_folder || !repaired.lost_snapshots.is_empty();
    assert!(is_expected || found.files.is_empty(), "{case:?}: {found:?}");
    assert!(found.named.is_empty(), "{case:?}: {found:?}");
    let mut whole: Vec<&[u8]> = found.files.values().map(|bytes| &bytes[..]).collect();
    let backs: Vec<Back> = rest.check_restores(vault, case).into_values().collect();
    whole.extend(
        backs
            .iter()
            .flat_map(|back| back.files.values().map(|bytes| &bytes[..])),
    );
    for files in rest.snapshots.values() {
        for (path, bytes) in files {
            // Lists are lost with the folders beside them. The contents that they named are found in parts, or as a
            // part of another version.
            let mut left = &bytes[..];
            let is_lost = |(epoch, lost): &(u64, PathBuf)| {
                rest.snapshots[epoch].contains_key(path)
                    && lost.strip_prefix("/").is_ok_and(|lost| lost == path)
            };
            while !left.is_empty() {
                let found = whole
                    .iter()
                    .find(|it| !it.is_empty() && left.starts_with(it));
                match found.map_or_else(|| found_bytes(left, &whole), |it| it.len()) {
                    0 => break,
                    count => left = &left[count..],
                }
            }
            let is_named = repaired.lost.iter().any(is_lost);
            assert!(
                left.is_empty() || is_named,
                "{case:?}: {} is not found",
                path.display()
            );
        }
    }
    if let (Loss::Snapshot(epoch), Some(_)) = (case.loss, &repaired.found) {
        for (path, bytes) in &rest.snapshots[&epoch] {
            let mut found = found.files.iter();
            assert!(
                found.any(|(at, it)| at.ends_with(path) && it == bytes),
                "{case:?}: {} is not found by its name",
                path.display()
            );
        }
    }
    repaired.found.is_some()
}

/// A vault after a repair is as good as before, and whole except for the named losses. Returns whether the repair found
/// contents to which nothing led.
fn check_repair(
    rest: &Rest,
    objects: &BTreeMap<String, Vec<u8>>,
    before: &BTreeMap<u64, Back>,
    case: &Case,
) -> bool {
    let shelf = Shelf::of(objects);
    let opened = Vault::open_damaged(shelf.clone(), PASSWORD, Entropy::seeded(4));
    let mut vault = opened.unwrap();
    let repaired = vault
        .repair(&pool(), writer_options(), 0, &mut |_| ())
        .unwrap();
    let vault = Vault::open(shelf, PASSWORD, Entropy::seeded(5)).unwrap();
    let has_found = check_found(rest, &vault, &repaired, case);
    check_as_good(before, &rest.check_restores(&vault, case), case);
    let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
    let damages = verified.unwrap().damages;
    let is_whole = repaired.is_whole();
    let is_lost = matches!(case.loss, Loss::Snapshot(_) | Loss::Newest);
    assert!(
        is_whole == damages.is_empty() || is_lost,
        "{case:?}: {repaired:?} {damages:?}"
    );
    assert!(
        is_whole || case.loss != Loss::Nothing,
        "{case:?}: {repaired:?}"
    );
    has_found
}
