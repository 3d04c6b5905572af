//! Power cuts: every boundary of a run under every damage, and again inside of recovery.

use std::collections::BTreeSet;

use fastrand::Rng;

use super::log::{Log, read};
use super::{Allowed, Candidate, Driver, Failure, check_recovered, is_full};
use crate::storage::SimulatedDisk;
use crate::storage::simulated::{Crash, Damage, Image};
use crate::storage::test_seed;

/// The steps of one run.
const STEPS: usize = 40;
/// One image in this many is recovered for writing, and the power cut again.
const DOUBLE_EVERY: usize = 150;

/// What was tried.
#[derive(Debug, Default)]
struct Counts {
    runs: usize,
    images: usize,
    distinct: BTreeSet<u64>,
    double_images: usize,
    commits: u64,
    by_damage: [usize; Damage::ALL.len()],
}

/// Runs logs until `runs` were tried or something is wrong.
pub(super) fn hunt(seed: u64, runs: usize) -> Result<(), Failure> {
    let mut counts = Counts::default();
    (0..runs).try_for_each(|run| try_run(seed.wrapping_add(run as u64), &mut counts))
}

fn try_run(seed: u64, counts: &mut Counts) -> Result<(), Failure> {
    let mut driver = Driver::create(seed);
    let named = |failure| format!("seed {seed}: {failure}");
    driver.run(STEPS).map_err(named)?;
    counts.runs += 1;
    counts.commits += driver.commits;
    let mut result = Ok(());
    driver
        .disk
        .recording()
        .for_each_crash(&Damage::ALL, seed, |crash| {
            if result.is_ok() {
                result = try_crash(&driver, &crash, seed, counts);
            }
        });
    result.map_err(named)
}

fn try_crash(
    driver: &Driver,
    crash: &Crash,
    seed: u64,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let named = |failure| format!("{:?} before step {}: {failure}", crash.damage, crash.step);
    counts.images += 1;
    counts.distinct.insert(fingerprint(&crash.image));
    let damage = Damage::ALL
        .iter()
        .position(|damage| *damage == crash.damage);
    counts.by_damage[damage.expect("a listed damage")] += 1;
    let disk = SimulatedDisk::from_image(&crash.image, seed);
    let recovered = read(&*disk.start_process());
    let Some(mark) = crash.mark else {
        // The log was not yet there; whatever is, opening it must not panic.
        return Ok(());
    };
    let allowed = &driver.marks[mark as usize];
    check_recovered(&recovered, allowed).map_err(named)?;
    if counts.images.is_multiple_of(DOUBLE_EVERY) {
        try_double(driver, disk, allowed, seed, counts).map_err(named)?;
    }
    Ok(())
}

/// Returns a number for all names and bytes of an image.
fn fingerprint(image: &Image) -> u64 {
    let mut hash = xxhash_rust::xxh64::Xxh64::new(0);
    for name in image.names() {
        let mut bytes = vec![0; image.size_bytes(&name) as usize];
        image.read(&name, 0, &mut bytes);
        hash.update(name.as_bytes());
        hash.update(&(bytes.len() as u64).to_le_bytes());
        hash.update(&bytes);
    }
    hash.digest()
}

/// Recovers for writing, works on, and cuts the power again at every boundary of that.
fn try_double(
    driver: &Driver,
    disk: SimulatedDisk,
    allowed: &Allowed,
    seed: u64,
    counts: &mut Counts,
) -> Result<(), Failure> {
    let first = read(&*disk.start_process()).expect("it was read before");
    let left = Candidate::new(first.last, &first.state);
    assert!(allowed.contains(&(left.last, left.digest)));
    let mut again = Driver::new(disk, driver.mode, seed ^ 0x5EED, vec![left]);
    let opened = again.reopen().map_err(|error| error.to_string())?;
    opened.map_err(|failure| format!("second start: {failure}"))?;
    again
        .run(3)
        .map_err(|failure| format!("second run: {failure}"))?;
    let mut result = Ok(());
    let recording = again.disk.recording();
    recording.for_each_crash(&Damage::ALL, seed, |crash| {
        counts.double_images += 1;
        let disk = SimulatedDisk::from_image(&crash.image, seed);
        let recovered = read(&*disk.start_process());
        let mark = crash.mark.expect("a mark before the second start");
        if result.is_ok() {
            result = check_recovered(&recovered, &again.marks[mark as usize]).map_err(|failure| {
                format!(
                    "second {:?} before step {}: {failure}",
                    crash.damage, crash.step
                )
            });
        }
    });
    result
}

#[test]
fn no_crash_loses_tears_revives_or_invents_a_transaction() {
    let (distinct_min, double_min) = match is_full() {
        true => (1_000_000, 500_000),
        false => (50_000, 20_000),
    };
    let seed = test_seed();
    let mut counts = Counts::default();
    while counts.distinct.len() < distinct_min || counts.double_images < double_min {
        try_run(seed.wrapping_add(counts.runs as u64), &mut counts).unwrap();
    }
    let distinct = std::mem::take(&mut counts.distinct).len();
    println!("{distinct} distinct images: {counts:?}");
    assert!(
        distinct >= distinct_min && counts.images > distinct,
        "{counts:?}"
    );
    let rarest = counts.by_damage.iter().min().expect("damages");
    assert!(
        *rarest * 200 > counts.images,
        "a damage is hardly tried: {counts:?}"
    );
}

/// A log that is opened and left alone over and over stays what it is.
#[test]
fn recovery_is_repeatable() {
    let mut driver = Driver::create(test_seed());
    driver.run(STEPS).unwrap();
    let mut random = Rng::with_seed(test_seed());
    for _ in 0..50 {
        let present = driver.log.as_ref().unwrap().state().clone();
        driver.log.as_mut().unwrap().sync().unwrap();
        let damage = random.choice(Damage::ALL).unwrap();
        driver.disk.cut_power(damage);
        let log = Log::open(driver.disk.start_process(), driver.mode).unwrap();
        assert_eq!(log.state(), &present);
        driver.log = Some(log);
    }
}
