//! The proof that a store survives everything that a medium may do.
//!
//! A store is driven by seeded random transactions on the simulated disk, beside the model. At every moment the oracle
//! knows the states that a crash may leave. They are the last acknowledged one, and those of later transactions that
//! began and were perhaps not acknowledged. Power cuts come at every boundary of every run under every damage, some of
//! them again inside of recovery. Every call fails once and for good. The disk is full at every size. Bits of stores
//! flip and files are cut, behind one session and behind several.

use std::collections::{BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;

use super::layout::SEGMENTS_START;
use super::model_test::{self as model, Model, options, shown};
use super::{Blocks, BlocksOptions, Cleaned, Densified, Density, Durability, Opened};
use crate::error::{Error, Result};
use crate::pool::{Pool, PoolOptions};
use crate::storage::SimulatedDisk;
use crate::storage::seeded::{SeededBug, with_seeded};
use crate::storage::simulated::{Crash, Damage, Fault, FaultKind, Image};
use crate::testing::{is_full, seed};

const NAME: &str = "store";
/// The steps of one run: enough for several checkpoints and for segments that are used again.
const STEPS: usize = 24;
/// Writing everything again is at most so many cleanings.
const CLEANINGS_MAX: u64 = 100;
/// Blocks to train on: as many as samples of the longest dictionary.
const LEARNT: usize = 140;
/// One image in this many is recovered for writing, and the power cut again.
const DOUBLE_EVERY: usize = 400;

/// A description of the fault, for people.
type Failure = String;

/// Number of the last transaction and digest of everything.
type Fingerprint = (u64, u64);

fn digest(model: &Model) -> u64 {
    let mut hasher = DefaultHasher::new();
    model.hash(&mut hasher);
    hasher.finish()
}

/// Options that make segments turn over within a run.
fn small(seed: u64) -> BlocksOptions {
    BlocksOptions {
        checkpoint_bytes: 6000,
        // There is always something to clean.
        space_amp: 1.0,
        ..options(seed)
    }
}

/// Reads the store of a disk without changing anything.
fn read(disk: &SimulatedDisk) -> Result<(Fingerprint, Opened)> {
    let blocks = Blocks::open_read_only(&*disk.start_process(), NAME, small(0))?;
    let snapshot = blocks.snapshot();
    let found = (snapshot.commit(), digest(&shown(&snapshot)?));
    Ok((found, blocks.opened()))
}

/// Drives a store, and knows its permitted states.
struct Driver {
    disk: SimulatedDisk,
    seed: u64,
    blocks: Option<Blocks>,
    random: Rng,
    /// The states that a crash may leave now; the last is the present one.
    candidates: Vec<(Fingerprint, Model)>,
    /// The permitted states behind each mark.
    marks: Vec<BTreeSet<Fingerprint>>,
    history: HashSet<Fingerprint>,
    commits: usize,
    /// Cleanings that moved something.
    cleanings: usize,
    /// Cleanings that made the file shorter.
    cuts: usize,
    /// Dictionaries that came, and that went.
    trained: usize,
    dropped: usize,
}

impl Driver {
    fn new(disk: SimulatedDisk, seed: u64, start: (u64, Model)) -> Driver {
        let fingerprint = (start.0, digest(&start.1));
        let mut driver = Driver {
            disk,
            seed,
            blocks: None,
            random: Rng::with_seed(seed),
            candidates: vec![(fingerprint, start.1)],
            marks: Vec::new(),
            history: HashSet::from([fingerprint]),
            commits: 0,
            cleanings: 0,
            cuts: 0,
            trained: 0,
            dropped: 0,
        };
        driver.mark();
        driver
    }

    /// Makes a store on an empty disk. Until that is done, no mark gives the permitted states.
    fn create(seed: u64) -> Driver {
        let disk = SimulatedDisk::new(seed);
        let made = Blocks::create(&*disk.start_process(), NAME, small(seed));
        let mut driver = Driver::new(disk, seed, (0, Model::default()));
        driver.blocks = Some(made.expect("an empty disk without faults"));
        driver
    }

    fn is_mixed(&self) -> bool {
        self.candidates.last().is_some_and(|it| it.1.is_mixed())
    }

    fn mark(&mut self) {
        self.disk.mark(self.marks.len() as u64);
        self.marks.push(
            self.candidates
                .iter()
                .map(|candidate| candidate.0)
                .collect(),
        );
    }

    /// Takes the present state for the only one: it was made durable.
    fn acknowledge(&mut self) {
        self.candidates.drain(..self.candidates.len() - 1);
        self.mark();
    }

    /// Opens the store that lies on the disk and writes it again, after which it is durable.
    fn reopen(&mut self) -> Result<std::result::Result<(), Failure>> {
        self.blocks = None;
        let seed = self.random.u64(..);
        let blocks = Blocks::open(&*self.disk.start_process(), NAME, small(seed))?;
        model::verify(&blocks);
        let snapshot = blocks.snapshot();
        let found = (snapshot.commit(), digest(&shown(&snapshot)?));
        drop(snapshot);
        let Some(at) = self.candidates.iter().position(|known| known.0 == found) else {
            return Ok(Err(format!(
                "opened as {found:?}, not one of {:?}",
                self.marks.last()
            )));
        };
        // A crash before the checkpoint may still leave another one.
        let present = self.candidates.remove(at);
        self.candidates.push(present);
        match self.random.bool() {
            true => blocks.checkpoint()?,
            // The first write makes one anyway.
            false => drop(blocks.begin()?),
        }
        self.acknowledge();
        self.blocks = Some(blocks);
        Ok(Ok(()))
    }

    fn store(&self) -> &Blocks {
        self.blocks.as_ref().expect("an open store")
    }

    /// Runs one transaction; one that failed may be found or not.
    fn commit(&mut self, durability: Durability) -> Result<()> {
        let (before, model) = self.candidates.last().expect("a present state");
        let (number, mut next) = (before.0 + 1, model.clone());
        let mut transaction = self.store().begin()?;
        for _ in 0..self.random.usize(1..7) {
            model::step(&mut self.random, &mut transaction, &mut next)?;
        }
        if self.random.u8(..10) == 0 {
            return Ok(());
        }
        let note = number.to_le_bytes();
        transaction.note(9, &note)?;
        next.notes.insert(9, note.to_vec());
        let fingerprint = (number, digest(&next));
        self.history.insert(fingerprint);
        self.candidates.push((fingerprint, next));
        self.mark();
        if let Err(error) = transaction.commit(durability) {
            // A crash may leave it. The store shows the state before.
            assert_eq!(self.store().snapshot().commit(), number - 1);
            let last = self.candidates.len() - 1;
            self.candidates.swap(last - 1, last);
            return Err(error);
        }
        self.commits += 1;
        if durability == Durability::Durable {
            self.acknowledge();
        }
        Ok(())
    }

    /// Cleans a few segments, or writes everything again. The store's content stays the same, under a number of its
    /// own. A disk that is full makes it try twice.
    fn clean(&mut self) -> Result<()> {
        let kind = self.random.u8(..4);
        let is_all = kind < 2;
        let (before, model) = self.candidates.last().expect("a present state").clone();
        let known = self.candidates.len();
        let most = if is_all { CLEANINGS_MAX } else { 2 };
        for number in before.0 + 1..=before.0 + most {
            let fingerprint = (number, before.1);
            self.history.insert(fingerprint);
            self.candidates.push((fingerprint, model.clone()));
        }
        self.mark();
        let budget_bytes = self.random.u64(1..40_000);
        let length = self.store().stats().file_bytes;
        let cleaned = match kind {
            0 => self.store().rewrite(),
            1 => self.densify(),
            _ => self.store().clean(budget_bytes),
        };
        self.cuts += usize::from(self.store().stats().file_bytes < length);
        let number = self.store().snapshot().commit();
        if cleaned.is_ok() && number == before.0 {
            self.candidates.truncate(known);
            self.mark();
            return Ok(());
        }
        let mut candidates = self.candidates.iter().skip(known - 1);
        let at = candidates.position(|known| known.0.0 == number);
        let present = self
            .candidates
            .remove(known - 1 + at.expect("a number of these"));
        self.candidates.push(present);
        let cleaned = cleaned?;
        if cleaned.moved_bytes > 0 {
            self.cleanings += 1;
        }
        if is_all || cleaned.freed_segments == 0 {
            // A first try that had no room for its checkpoint leaves its moves, and the second may find nothing to do.
            self.store().sync()?;
        }
        self.acknowledge();
        Ok(())
    }

    /// Makes the store dense, step by step.
    fn densify(&mut self) -> Result<Cleaned> {
        let before = self.store().snapshot().commit();
        let mut known = Density::default();
        for _ in 0..CLEANINGS_MAX {
            if self.store().densify(&mut known, &|| true)? == Densified::All {
                break;
            }
        }
        Ok(Cleaned {
            moved_bytes: self.store().snapshot().commit() - before,
            ..Cleaned::default()
        })
    }

    /// Has the store train on blocks of some language, which may be another than before. Its content stays the same.
    fn learn(&mut self) -> Result<()> {
        let language = self.random.usize(..model::LANGUAGES);
        let blocks = (0..LEARNT).map(|_| model::words(&mut self.random, language));
        let blocks: Vec<Vec<u8>> = blocks.collect();
        let inline = Pool::new(PoolOptions { worker_count: 0 })?;
        let samples = blocks.iter().map(Vec::as_slice);
        let trained = self.store().learn(samples, 0, &inline)?;
        self.trained += trained;
        if trained > 0 {
            self.acknowledge();
        }
        Ok(())
    }

    /// Does one random thing; a process death is survived by opening again.
    fn step(&mut self) -> Result<std::result::Result<(), Failure>> {
        match self.random.u8(..32) {
            0 => {
                if self.random.bool() {
                    self.store().close()?;
                    self.acknowledge();
                }
                self.disk.kill_processes();
                return self.reopen();
            }
            1 => {
                self.store().checkpoint()?;
                self.acknowledge();
            }
            2 => {
                self.store().sync()?;
                self.acknowledge();
            }
            3..=5 => self.clean()?,
            6..=9 => self.learn()?,
            10..=14 => self.commit(Durability::Lazy)?,
            _ => self.commit(Durability::Durable)?,
        }
        Ok(Ok(()))
    }

    fn run(&mut self, steps: usize) -> std::result::Result<(), Failure> {
        for step in 0..steps {
            let before = self.store().stats().dictionaries;
            let done = self
                .step()
                .map_err(|error| format!("step {step}: {error}"))?;
            done.map_err(|failure| format!("step {step}: {failure}"))?;
            self.dropped += usize::from(self.store().stats().dictionaries < before);
        }
        Ok(())
    }
}

fn check(
    found: &Result<(Fingerprint, Opened)>,
    allowed: &BTreeSet<Fingerprint>,
) -> std::result::Result<(), Failure> {
    match found {
        Err(error) => Err(format!("cannot be read: {error}")),
        // A crash loses nothing, and is not reported as a loss.
        Ok((_, opened)) if opened.may_lack => Err(format!("a loss is told: {opened:?}")),
        Ok((found, _)) if allowed.contains(found) => Ok(()),
        Ok((found, _)) => Err(format!("{found:?} is there, not one of {allowed:?}")),
    }
}

#[derive(Debug, Default)]
struct Counts {
    runs: usize,
    images: usize,
    double_images: usize,
    commits: usize,
    cleanings: usize,
    cuts: usize,
    trained: usize,
    dropped: usize,
    struck: usize,
    /// Stores with blocks that are longer than they were made for.
    mixed: usize,
    /// Stores that went on once there was room.
    resumed: usize,
}

/// Checks every image behind the first `steps` steps of a driver's recording.
fn try_images(
    driver: &Driver,
    steps: usize,
    mut also: impl FnMut(&Crash, SimulatedDisk) -> std::result::Result<(), Failure>,
) -> std::result::Result<usize, Failure> {
    let (mut images, mut result) = (0, Ok(()));
    let recording = driver.disk.recording();
    recording.for_each_crash_from(steps, &Damage::ALL, driver.seed, |crash| {
        let (Some(mark), Ok(())) = (crash.mark, &result) else {
            return;
        };
        images += 1;
        let disk = SimulatedDisk::from_image(&crash.image, driver.seed);
        let checked = check(&read(&disk), &driver.marks[mark as usize]);
        result = checked
            .and_then(|()| also(&crash, disk))
            .map_err(|failure| {
                format!(
                    "seed {}, {:?} before step {}: {failure}",
                    driver.seed, crash.damage, crash.step
                )
            });
    });
    result.map(|()| images)
}

/// Recovers for writing, works on, and cuts the power again at every boundary of that.
fn try_double(disk: SimulatedDisk, seed: u64) -> std::result::Result<usize, Failure> {
    let text = |error: Error| format!("second start: {error}");
    let first = Blocks::open_read_only(&*disk.start_process(), NAME, small(0)).map_err(text)?;
    let snapshot = first.snapshot();
    let start = (snapshot.commit(), shown(&snapshot).map_err(text)?);
    drop((snapshot, first));
    let mut again = Driver::new(disk, seed ^ 0x5EED, start);
    again.reopen().map_err(text)??;
    again.run(3)?;
    try_images(&again, 0, |_, _| Ok(()))
}

fn try_run(seed: u64, counts: &mut Counts) -> std::result::Result<(), Failure> {
    let mut driver = Driver::create(seed);
    driver
        .run(STEPS)
        .map_err(|failure| format!("seed {seed}: {failure}"))?;
    counts.runs += 1;
    counts.commits += driver.commits;
    counts.cleanings += driver.cleanings;
    counts.cuts += driver.cuts;
    counts.trained += driver.trained;
    counts.dropped += driver.dropped;
    counts.mixed += usize::from(driver.is_mixed());
    let mut number = counts.images;
    let mut double_images = 0;
    counts.images += try_images(&driver, 0, |_, disk| {
        number += 1;
        if number.is_multiple_of(DOUBLE_EVERY) {
            double_images += try_double(disk, seed)?;
        }
        Ok(())
    })?;
    counts.double_images += double_images;
    Ok(())
}

#[test]
fn no_crash_loses_tears_revives_or_invents_a_transaction() {
    let seed = seed(2014);
    let images_min = if is_full() { 2_000_000 } else { 200_000 };
    let mut counts = Counts::default();
    while counts.images + counts.double_images < images_min {
        try_run(seed.wrapping_add(counts.runs as u64), &mut counts).unwrap();
    }
    println!("{counts:?}");
    assert!(counts.double_images > images_min / 100 && counts.commits > counts.runs * 10);
    assert!(counts.cleanings > counts.runs / 2);
    assert!(counts.trained > counts.runs / 2 && counts.dropped > counts.runs / 50);
    assert!(counts.mixed > counts.runs / 20);
}

#[test]
fn mistakes_with_dictionaries_are_found() {
    let seed = seed(2019);
    for bug in [
        SeededBug::DictionaryNotAwaited,
        SeededBug::DictionaryDropped,
        SeededBug::DictionaryNotHeld,
    ] {
        let mut counts = Counts::default();
        let found = with_seeded(bug, || {
            (0..60).find_map(|at| {
                // Looking at everything panics at a fault.
                let tried = || try_run(seed + at, &mut counts);
                match catch_unwind(AssertUnwindSafe(tried)) {
                    Ok(tried) => tried.err(),
                    Err(_) => Some("panicked".into()),
                }
            })
        });
        println!("{bug:?}: {found:?} behind {counts:?}");
        assert!(found.is_some(), "{bug:?} passes");
    }
}

/// Runs a store that meets a fault; returns whether it did.
fn try_fault(seed: u64, fault: Fault, counts: &mut Counts) -> std::result::Result<bool, Failure> {
    let mut driver = Driver::create(seed);
    // Enough for segments that can be cleaned.
    driver.run(STEPS / 2)?;
    driver.disk.set_fault(Some(fault));
    for step in 0..7 {
        if driver.blocks.is_none() {
            break;
        }
        if step == 0 {
            // The oracle knows of failures here, as in any step.
            let _ = driver.clean();
        } else if let Ok(wrong) = driver.step() {
            wrong?;
        }
    }
    counts.cleanings += driver.cleanings;
    let was_struck = driver.disk.fault_call_count() > fault.first_call;
    driver.disk.set_fault(None);
    let is_refusal = [
        FaultKind::NoSpace,
        FaultKind::NoQuota,
        FaultKind::FileTooBig,
    ]
    .contains(&fault.kind);
    if is_refusal && driver.blocks.is_some() {
        // Once there is room it goes on, without being opened again.
        let went_on = driver.commit(Durability::Durable);
        went_on.map_err(|error| format!("going on with room: {error}"))?;
        counts.resumed += 1;
    }
    counts.runs += 1;
    counts.struck += usize::from(was_struck);
    counts.mixed += usize::from(driver.is_mixed());
    let from = driver.disk.recording().step_count().saturating_sub(6);
    counts.images += try_images(&driver, from, |_, _| Ok(()))?;
    // The process ends, another opens the store and works on; then the power goes at any moment.
    driver.disk.kill_processes();
    driver
        .reopen()
        .map_err(|error| format!("opening again: {error}"))??;
    for _ in 0..2 {
        let done = driver.commit(Durability::Durable);
        done.map_err(|error| format!("working on: {error}"))?;
    }
    let from = driver.disk.recording().step_count().saturating_sub(6);
    counts.images += try_images(&driver, from, |_, _| Ok(()))?;
    Ok(was_struck)
}

#[test]
fn no_failing_call_loses_what_was_acknowledged() {
    let seed = seed(2015);
    let mut counts = Counts::default();
    let seeds = if is_full() { 20 } else { 1 };
    for at in 0..seeds {
        for (run, kind) in (0..).zip(FaultKind::ALL) {
            let seed = seed + 100 * run;
            for is_lasting in [false, true] {
                for first_call in 0.. {
                    let fault = Fault {
                        kind,
                        first_call,
                        is_lasting,
                    };
                    let tried = try_fault(seed + at, fault, &mut counts);
                    if !tried.unwrap_or_else(|failure| panic!("{fault:?}: {failure}")) {
                        break;
                    }
                }
            }
        }
    }
    println!("{counts:?}");
    assert!(counts.struck > 200 * seeds as usize, "{counts:?}");
    assert!(counts.cleanings > 10 * seeds as usize, "{counts:?}");
    assert!(counts.resumed > 20 * seeds as usize, "{counts:?}");
}

/// Disks of every size from too small to large enough. Everything that found room stays.
#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let seed = seed(2016);
    let (mut counts, mut refusals) = (Counts::default(), 0);
    for run in 0..30 {
        let mut driver = Driver::create(seed + run);
        let room = driver.disk.allocated_bytes() + run % 6 * 4096;
        driver.disk.set_capacity_bytes(Some(room));
        for _ in 0..STEPS {
            match driver.step() {
                Ok(right) => right.unwrap(),
                Err(_) => refusals += 1,
            }
            if driver.blocks.is_none() {
                break;
            }
        }
        let from = driver.disk.recording().step_count().saturating_sub(6);
        counts.images += try_images(&driver, from, |_, _| Ok(())).unwrap();
        driver.disk.set_capacity_bytes(None);
        driver.disk.kill_processes();
        driver.reopen().unwrap().unwrap();
        driver.commit(Durability::Durable).unwrap();
    }
    println!("{refusals} refusals, {counts:?}");
    assert!(
        refusals > 20 && counts.images > 300,
        "{refusals}, {counts:?}"
    );
}

/// A store whose first writer finds no room is no failed one: it is taken once there is room.
#[test]
fn a_store_is_taken_over_once_there_is_room() {
    let mut refusals = 0;
    for run in 0..100 {
        let mut driver = Driver::create(seed(2021) + run);
        driver.run(STEPS).unwrap();
        driver.commit(Durability::Durable).unwrap();
        driver.disk.kill_processes();
        let process = driver.disk.start_process();
        let blocks = Blocks::open(&*process, NAME, small(5)).unwrap();
        let before = shown(&blocks.snapshot()).unwrap();
        let full_bytes = driver.disk.allocated_bytes();
        driver.disk.set_capacity_bytes(Some(full_bytes));
        for _ in 0..3 {
            if let Err(refused) = blocks.begin() {
                assert!(refused.is_out_of_space(), "{refused}");
                refusals += 1;
            }
        }
        driver.disk.set_capacity_bytes(None);
        let mut transaction = blocks.begin().unwrap();
        let volume = transaction.create_volume(512).unwrap();
        transaction.commit(Durability::Durable).unwrap();
        let mut transaction = blocks.begin().unwrap();
        transaction.remove_volume(volume).unwrap();
        transaction.commit(Durability::Durable).unwrap();
        assert_eq!(shown(&blocks.snapshot()).unwrap(), before);
        model::verify(&blocks);
    }
    println!("{refusals} refusals");
    assert!(refusals > 10, "{refusals}");
}

/// Every thread that waits for the turn gets the failure.
#[test]
fn nobody_waits_for_a_store_that_failed() {
    const WAITING: usize = 4;
    let mut driver = Driver::create(seed(2022));
    driver.run(STEPS).unwrap();
    let blocks = driver.store().clone();
    let mut transaction = blocks.begin().unwrap();
    transaction.create_volume(512).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    for _ in 0..WAITING {
        let (blocks, tell) = (blocks.clone(), tell.clone());
        std::thread::spawn(move || {
            tell.send(None).unwrap();
            // The receiver is gone if the test has failed.
            let _ = tell.send(Some(blocks.begin().is_err()));
        });
    }
    // That they wait cannot be seen from outside; they get the chance to.
    (0..WAITING).for_each(|_| assert_eq!(told.recv(), Ok(None)));
    (0..1000).for_each(|_| std::thread::yield_now());
    driver.disk.set_fault(Some(Fault {
        kind: FaultKind::SyncErrorPagesKept,
        first_call: 0,
        is_lasting: true,
    }));
    transaction.commit(Durability::Durable).unwrap_err();
    for waiting in 0..WAITING {
        let answer = told.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(answer, Ok(Some(true)), "{waiting} were told");
    }
}

fn open_image(image: &Image) -> Blocks {
    let disk = SimulatedDisk::from_image(image, 0);
    Blocks::open_read_only(&*disk.start_process(), NAME, small(0)).unwrap()
}

/// Makes a volume of 40 random blocks, behind a checkpoint.
fn fill_volume(driver: &mut Driver) -> u32 {
    let mut transaction = driver.store().begin().unwrap();
    let volume = transaction
        .create_volume(model::BLOCK_BYTES as u32)
        .unwrap();
    for index in 0..40 {
        let block = model::random_block(&mut driver.random);
        transaction.write(volume, index, &block).unwrap();
    }
    transaction.commit(Durability::Durable).unwrap();
    driver.store().checkpoint().unwrap();
    volume
}

/// Flips a bit in every block of a store at rest: looking at everything names each, and no others.
#[test]
fn verifying_finds_every_flipped_block() {
    let seed = seed(2018);
    let mut driver = Driver::create(seed);
    driver.run(STEPS).unwrap();
    fill_volume(&mut driver);
    let image = driver.disk.recording().end();
    let whole = open_image(&image);
    let snapshot = whole.snapshot();
    let mut places = BTreeSet::new();
    for volume in snapshot.volumes() {
        let mut from = 0;
        while let Some(range) = snapshot.next_mapped(volume, from).unwrap() {
            from = range.end;
            for index in range {
                places.extend(snapshot.locate(volume, index).unwrap());
            }
        }
    }
    let verified = whole.verify(|_, _| true).unwrap();
    assert_eq!(
        (verified.fault_count, verified.frames),
        (0, places.len() as u64)
    );
    assert!(places.len() >= 40, "{}", places.len());
    for place in &places {
        let mut image = image.clone();
        image.flip_bit(NAME, place.address * 8 + 300);
        let verified = open_image(&image).verify(|_, _| true).unwrap();
        assert_eq!(
            (verified.fault_count, verified.frames),
            (1, places.len() as u64 - 1)
        );
    }
}

/// A broken block stays where it is, and the rewriting of all others ends.
#[test]
fn a_rewrite_ends_where_a_block_is_broken() {
    let mut driver = Driver::create(seed(2020));
    driver.run(STEPS).unwrap();
    let volume = fill_volume(&mut driver);
    let snapshot = driver.store().snapshot();
    let broken = snapshot.locate(volume, 20).unwrap().expect("a block");
    drop(snapshot);
    let mut image = driver.disk.recording().end();
    image.flip_bit(NAME, broken.address * 8 + 300);
    let disk = SimulatedDisk::from_image(&image, 0);
    let blocks = Blocks::open(&*disk.start_process(), NAME, small(5)).unwrap();
    let cleaned = blocks.rewrite().unwrap();
    assert!(cleaned.moved_bytes > 0, "{cleaned:?}");
    let verified = blocks.verify(|_, _| true).unwrap();
    assert_eq!(verified.fault_count, 1, "{:?}", verified.faults);
}

/// A segment whose head is broken stays where it is, and the others are cleaned.
#[test]
fn a_segment_without_a_head_ends_no_cleaning() {
    let mut driver = Driver::create(seed(2023));
    driver.run(STEPS).unwrap();
    let volume = fill_volume(&mut driver);
    let snapshot = driver.store().snapshot();
    let within = snapshot.locate(volume, 20).unwrap().expect("a block");
    let mut start = 0;
    let looked = driver.store().with_writer(|_, writer| {
        let index = writer.log.segments.find(within.address).expect("a segment");
        start = writer.log.segments.get(index).start;
        Ok(())
    });
    looked.unwrap();
    drop(snapshot);
    let mut image = driver.disk.recording().end();
    image.flip_bit(NAME, start * 8 + 300);
    let disk = SimulatedDisk::from_image(&image, 0);
    let blocks = Blocks::open(&*disk.start_process(), NAME, small(5)).unwrap();
    let before = shown(&blocks.snapshot()).unwrap();
    let cleaned = blocks.rewrite().unwrap();
    assert!(cleaned.moved_bytes > 0, "{cleaned:?}");
    assert_eq!(shown(&blocks.snapshot()).unwrap(), before);
    model::verify(&blocks);
}

/// How a session with a store ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Its process dies.
    Killed,
    Closed,
}

/// The outcomes for stores that were damaged at rest.
#[derive(Debug, Default)]
struct Judged {
    refused: usize,
    /// Right, with or without a word.
    right: usize,
    /// Right, and the file's fault was reported.
    remarked: usize,
    /// Back in an earlier state, and that was reported.
    told: usize,
}

/// Drives a store through sessions. The later ones have a few commits alone, so that all their writes stand behind the
/// opening. Returns the expected content, and the medium.
fn sessions(seed: u64, endings: &[Ending]) -> (Driver, Fingerprint, Image) {
    let mut driver = Driver::create(seed);
    driver.run(STEPS).unwrap();
    for (number, ending) in endings.iter().enumerate() {
        if number > 0 {
            // No superblocks but those of the first write, and of the end.
            let options = BlocksOptions {
                checkpoint_bytes: 1 << 30,
                ..small(driver.random.u64(..))
            };
            let process = driver.disk.start_process();
            driver.blocks = Some(Blocks::open(&*process, NAME, options).unwrap());
        }
        let before = driver.commits;
        while driver.commits < before + 4 {
            driver.commit(Durability::Durable).unwrap();
        }
        let blocks = driver.blocks.take().expect("an open store");
        if *ending == Ending::Closed {
            blocks.close().unwrap();
        }
        driver.disk.kill_processes();
    }
    let end = driver.candidates.last().expect("a present state").0;
    let image = driver.disk.recording().end();
    (driver, end, image)
}

/// Judges a damaged store: it is refused, it is right, or it reports a possible loss and has an earlier state.
fn judge(
    driver: &Driver,
    (end, image): (Fingerprint, &Image),
    judged: &mut Judged,
) -> std::result::Result<(), Failure> {
    match read(&SimulatedDisk::from_image(image, 0)) {
        Err(Error::Corrupt { .. } | Error::Unsupported { .. }) => judged.refused += 1,
        Err(error) => return Err(error.to_string()),
        Ok((found, opened)) if found == end => {
            judged.right += 1;
            judged.remarked += usize::from(!opened.is_whole());
        }
        Ok((found, opened)) => {
            if opened.is_whole() || !driver.history.contains(&found) {
                return Err(format!("silently {found:?}, not {end:?}"));
            }
            judged.told += 1;
        }
    }
    Ok(())
}

const SESSIONS: [&[Ending]; 5] = [
    &[Ending::Killed],
    &[Ending::Killed, Ending::Killed],
    &[Ending::Closed, Ending::Killed],
    &[Ending::Killed, Ending::Closed],
    &[Ending::Closed, Ending::Killed, Ending::Killed],
];

/// One bit in either superblock takes nothing away, whoever wrote before, and however that ended.
#[test]
fn no_flipped_bit_of_a_superblock_brings_back_an_earlier_session() {
    for (number, endings) in SESSIONS.into_iter().enumerate() {
        let (_, end, image) = sessions(seed(2031) + number as u64, endings);
        // Each bit once, of stores that were opened again.
        let every = if number == 1 || is_full() { 1 } else { 37 };
        for bit in (0..SEGMENTS_START * 8).step_by(every) {
            let mut image = image.clone();
            image.flip_bit(NAME, bit);
            let process = SimulatedDisk::from_image(&image, 0).start_process();
            let blocks = Blocks::open_read_only(&*process, NAME, small(0)).unwrap();
            let found = blocks.snapshot().commit();
            assert_eq!(found, end.0, "bit {bit} behind {endings:?}");
            assert!(!blocks.opened().is_whole(), "bit {bit} is not told");
        }
    }
}

/// The fault that these tests are for: a superblock in one slot alone.
#[test]
fn a_superblock_in_one_slot_alone_is_found() {
    let lost = with_seeded(SeededBug::SuperblockOnce, || {
        let (_, end, image) = sessions(seed(2031), &[Ending::Killed, Ending::Killed]);
        let flipped = [800, 4096 * 8 + 800].map(|bit| {
            let mut image = image.clone();
            image.flip_bit(NAME, bit);
            read(&SimulatedDisk::from_image(&image, 0)).unwrap().0
        });
        flipped.into_iter().filter(|found| *found != end).count()
    });
    assert_eq!(lost, 1);
}

/// Flips bits of stores at rest.
#[test]
fn no_flipped_bit_shows_other_bytes_or_an_earlier_state_in_silence() {
    let (mut judged, mut mixed) = (Judged::default(), 0);
    let every = if is_full() { 1 } else { 97 };
    for (number, endings) in SESSIONS.into_iter().enumerate() {
        let mut runs = (0..).map(|run| sessions(seed(2017) + number as u64 + 100 * run, endings));
        // One in two has longer blocks.
        let wanted = number % 2 == 1;
        let run = runs.find(|(driver, ..)| driver.is_mixed() == wanted);
        let (driver, end, image) = run.expect("endless runs");
        mixed += usize::from(wanted);
        for bit in (0..image.size_bytes(NAME) * 8).step_by(every) {
            let mut image = image.clone();
            image.flip_bit(NAME, bit);
            let result = judge(&driver, (end, &image), &mut judged);
            result.unwrap_or_else(|failure| panic!("bit {bit} behind {endings:?}: {failure}"));
        }
    }
    println!("{judged:?}, {mixed} stores with longer blocks");
    assert!(
        judged.refused > 2000 && judged.right > 2000 && judged.told > 20,
        "{judged:?}"
    );
}

/// Writes to a store that lacks room which was never used, and finds that behind a kill.
fn goes_on(image: &Image, failure: &str) {
    let disk = SimulatedDisk::from_image(image, 0);
    let blocks = Blocks::open(&*disk.start_process(), NAME, small(7)).unwrap();
    let mut transaction = blocks.begin().unwrap();
    let volume = transaction.create_volume(512).unwrap();
    let mut random = Rng::with_seed(image.size_bytes(NAME));
    for index in 0..40 {
        let mut block = [0; 512];
        random.fill(&mut block);
        transaction.write(volume, index, &block).unwrap();
    }
    transaction.commit(Durability::Durable).unwrap();
    let snapshot = blocks.snapshot();
    let wanted = (snapshot.commit(), digest(&shown(&snapshot).unwrap()));
    drop((snapshot, blocks));
    disk.kill_processes();
    assert_eq!(read(&disk).unwrap().0, wanted, "{failure}");
}

/// Cuts files, of every length in steps of less than a sector.
#[test]
fn no_file_that_was_cut_shows_an_earlier_state_in_silence() {
    let mut judged = Judged::default();
    let every = if is_full() { 16 } else { 240 };
    let (mut unused_cuts, mut mixed) = (0, 0);
    for seed in seed(2032)..seed(2032) + 4 {
        for endings in SESSIONS {
            let (driver, end, image) = sessions(seed, endings);
            mixed += usize::from(driver.is_mixed());
            let used_bytes = image.used_bytes(NAME);
            for size_bytes in (0..image.size_bytes(NAME)).step_by(every) {
                let mut image = image.clone();
                image.cut(NAME, size_bytes);
                let silent = judged.right - judged.remarked;
                let result = judge(&driver, (end, &image), &mut judged);
                result.unwrap_or_else(|failure| {
                    panic!("{size_bytes} bytes are left behind {endings:?}: {failure}")
                });
                // A right store is reported as short, unless it lacks only unused room.
                if judged.right - judged.remarked == silent {
                    continue;
                }
                unused_cuts += 1;
                assert!(
                    size_bytes >= used_bytes,
                    "{size_bytes} of {used_bytes} bytes behind {endings:?}"
                );
                let failure = format!("{size_bytes} bytes are left behind {endings:?}");
                goes_on(&image, &failure);
            }
        }
    }
    println!(
        "{judged:?}, {unused_cuts} of room that was never used, {mixed} stores with longer blocks"
    );
    assert!(judged.refused > 1000 && judged.remarked > 100, "{judged:?}");
    assert!(unused_cuts > 0, "nothing was cut of it");
}
