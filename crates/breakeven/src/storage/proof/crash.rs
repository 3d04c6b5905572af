//! Power cuts: every boundary of a run under every damage, and again inside of recovery.

use std::collections::BTreeSet;

use super::{Allowed, Failure, Run, Subject, check_found};
use crate::storage::SimulatedDisk;
use crate::storage::simulated::{Crash, Damage, Image};

/// The steps of one run.
const STEPS: usize = 40;
/// One image in this many is recovered for writing, and the power cut again.
const DOUBLE_EVERY: usize = 150;

/// The least numbers of tries.
#[derive(Clone, Copy, Debug)]
pub struct CrashFloors {
    /// Images that differ from each other.
    pub distinct_images: usize,
    /// Images of a second power cut, inside of recovery or soon after it.
    pub double_images: usize,
}

/// The numbers of tries.
#[derive(Debug, Default)]
pub struct CrashCounts {
    /// Stores that were driven.
    pub runs: usize,
    /// Transactions they ran.
    pub commits: u64,
    /// Images that were read.
    pub images: usize,
    /// How many of them differ.
    pub distinct_images: usize,
    /// Images of a second power cut.
    pub double_images: usize,
    /// Images by damage, in the order of [`Damage::ALL`].
    pub by_damage: [usize; Damage::ALL.len()],
    fingerprints: BTreeSet<u64>,
}

/// Drives stores and cuts the power at every boundary, until both floors are reached; prints the number of tries.
///
/// # Errors
/// A loss, a tear, a revival or an invention by a crash, with the seed of its run.
///
/// # Panics
/// If a damage was hardly tried.
pub fn cut_power<S: Subject>(
    seed: u64,
    floors: CrashFloors,
) -> std::result::Result<CrashCounts, Failure> {
    let mut counts = CrashCounts::default();
    while counts.distinct_images < floors.distinct_images
        || counts.double_images < floors.double_images
    {
        try_run::<S>(seed.wrapping_add(counts.runs as u64), &mut counts)?;
    }
    counts.fingerprints = BTreeSet::new();
    println!("power cuts: {counts:?}");
    // Names may change only while a store is made.
    let (names, data): (Vec<_>, Vec<_>) = (Damage::ALL.iter().zip(counts.by_damage))
        .partition(|(damage, _)| matches!(damage, Damage::NamesLost | Damage::OnlyNames));
    assert!(
        data.iter().all(|(_, images)| images * 200 > counts.images)
            && names.iter().all(|(_, images)| *images > counts.runs),
        "a damage is hardly tried: {counts:?}"
    );
    Ok(counts)
}

/// Drives `runs` stores, until something is wrong.
#[cfg(test)]
pub(super) fn hunt<S: Subject>(seed: u64, runs: usize) -> std::result::Result<(), Failure> {
    let mut counts = CrashCounts::default();
    (0..runs).try_for_each(|run| try_run::<S>(seed.wrapping_add(run as u64), &mut counts))
}

fn try_run<S: Subject>(seed: u64, counts: &mut CrashCounts) -> std::result::Result<(), Failure> {
    let mut driver = Run::<S>::create(seed);
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

fn try_crash<S: Subject>(
    driver: &Run<S>,
    crash: &Crash,
    seed: u64,
    counts: &mut CrashCounts,
) -> std::result::Result<(), Failure> {
    let named = |failure| format!("{:?} before step {}: {failure}", crash.damage, crash.step);
    counts.images += 1;
    let is_new = counts.fingerprints.insert(fingerprint(&crash.image));
    counts.distinct_images += usize::from(is_new);
    let damage = Damage::ALL
        .iter()
        .position(|damage| *damage == crash.damage);
    counts.by_damage[damage.expect("a listed damage")] += 1;
    let disk = SimulatedDisk::from_image(&crash.image, seed);
    let recovered = S::read(disk.start_process());
    let Some(mark) = crash.mark else {
        // The store did not exist yet; opening any remains must not panic.
        return Ok(());
    };
    let allowed = &driver.marks[mark as usize];
    check_found(&recovered, allowed).map_err(named)?;
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
fn try_double<S: Subject>(
    driver: &Run<S>,
    disk: SimulatedDisk,
    allowed: &Allowed,
    seed: u64,
    counts: &mut CrashCounts,
) -> std::result::Result<(), Failure> {
    let first = S::read(disk.start_process()).expect("it was read before");
    assert!(allowed.contains(&first.state));
    let mut again = Run::<S>::new(disk, driver.mode, seed ^ 0x5EED, vec![first.state]);
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
        let recovered = S::read(disk.start_process());
        let mark = crash.mark.expect("a mark before the second start");
        if result.is_ok() {
            result = check_found(&recovered, &again.marks[mark as usize]).map_err(|failure| {
                format!(
                    "second {:?} before step {}: {failure}",
                    crash.damage, crash.step
                )
            });
        }
    });
    result
}

#[cfg(test)]
mod tests {
    use super::super::log_test::Log;
    use super::*;
    use crate::storage::test_seed;
    use crate::testing::is_full;
    use fastrand::Rng;

    #[test]
    fn no_crash_loses_tears_revives_or_invents_a_transaction() {
        let (distinct_images, double_images) = match is_full() {
            true => (1_000_000, 500_000),
            false => (50_000, 20_000),
        };
        let floors = CrashFloors {
            distinct_images,
            double_images,
        };
        cut_power::<Log>(test_seed(), floors).unwrap();
    }

    /// A log that is repeatedly opened and left alone does not change.
    #[test]
    fn recovery_is_repeatable() {
        let mut driver = Run::<Log>::create(test_seed());
        driver.run(STEPS).unwrap();
        let mut random = Rng::with_seed(test_seed());
        for _ in 0..50 {
            let present = driver.store().state();
            driver.store().sync().unwrap();
            let damage = random.choice(Damage::ALL).unwrap();
            driver.disk.cut_power(damage);
            let log = Log::open(driver.disk.start_process(), driver.mode).unwrap();
            assert_eq!(log.state(), present);
            driver.store = Some(log);
        }
    }
}
