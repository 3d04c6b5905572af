//! Calls that fail: every kind of fault at every call, once and for good, and process death.

use super::{Failure, Run, Subject, check_found};
use crate::storage::SimulatedDisk;
use crate::storage::simulated::{Damage, Fault, FaultKind};

const STEPS: usize = 24;

/// The damages under which the end of a faulty run is recovered.
const DAMAGES: [Damage; 5] = [
    Damage::LoseAll,
    Damage::KeepAll,
    Damage::SomeSectors512,
    Damage::SomeSectors4096,
    Damage::SomeChanges,
];

/// The numbers of tries.
#[derive(Debug, Default)]
pub struct FaultCounts {
    /// Stores that were driven.
    pub runs: usize,
    /// The number of runs that met their fault.
    pub struck: usize,
    /// Steps that were refused on disks that were too small.
    pub refusals: usize,
    /// Crash images that were read afterwards.
    pub images: usize,
}

/// Drives `seeds` stores again and again, until every call has failed in every way, once and for good. Prints the
/// number of tries.
///
/// # Errors
/// An acknowledged transaction that is lost, or a store that cannot be opened, with the seed and the fault.
///
/// # Panics
/// If fewer than 500 faults struck for each seed.
pub fn fail_calls<S: Subject>(seed: u64, seeds: u64) -> std::result::Result<FaultCounts, Failure> {
    let mut counts = FaultCounts::default();
    for at in 0..seeds {
        sweep::<S>(seed.wrapping_add(at), &mut counts)?;
    }
    println!("failing calls: {counts:?}");
    assert!(counts.struck > 500 * seeds as usize, "{counts:?}");
    Ok(counts)
}

/// Drives `runs` stores on disks of as many sizes within `capacity_bytes`. The sizes should reach from too small for
/// most steps to large enough. Prints the number of tries.
///
/// # Errors
/// An acknowledged transaction that is lost, or a store that cannot be opened once there is room.
///
/// # Panics
/// If the disks refused fewer than one step in three runs.
pub fn fill_disk<S: Subject>(
    seed: u64,
    runs: u64,
    capacity_bytes: std::ops::Range<u64>,
) -> std::result::Result<FaultCounts, Failure> {
    let mut counts = FaultCounts::default();
    let sizes = capacity_bytes.end - capacity_bytes.start;
    for run in 0..runs {
        let capacity_bytes = capacity_bytes.start + sizes * run / runs;
        let seed = seed.wrapping_add(run);
        try_capacity::<S>(seed, capacity_bytes, &mut counts)
            .map_err(|failure| format!("seed {seed}, {capacity_bytes} bytes: {failure}"))?;
    }
    println!("full disks: {counts:?}");
    assert!(counts.refusals as u64 * 3 > runs, "{counts:?}");
    Ok(counts)
}

fn try_capacity<S: Subject>(
    seed: u64,
    capacity_bytes: u64,
    counts: &mut FaultCounts,
) -> std::result::Result<(), Failure> {
    let mut driver = Run::<S>::create(seed);
    driver.disk.set_capacity_bytes(Some(capacity_bytes));
    counts.runs += 1;
    for _ in 0..STEPS {
        match driver.step() {
            Ok(right) => right?,
            Err(_) => counts.refusals += 1,
        }
        if driver.store.is_none() {
            break;
        }
    }
    check_after_crash(&driver, counts)?;
    driver.disk.set_capacity_bytes(None);
    driver.disk.kill_processes();
    work_on(&mut driver, 1)?;
    check_after_crash(&driver, counts)
}

/// Has another process open the store and run some transactions.
fn work_on<S: Subject>(
    driver: &mut Run<S>,
    transactions: usize,
) -> std::result::Result<(), Failure> {
    let opened = driver
        .reopen()
        .map_err(|error| format!("opening again: {error}"))?;
    opened?;
    for _ in 0..transactions {
        driver
            .commit(true)
            .map_err(|error| format!("working on: {error}"))?;
    }
    Ok(())
}

/// Sweeps `seeds` stores until something is wrong.
#[cfg(test)]
pub(super) fn hunt<S: Subject>(seed: u64, seeds: u64) -> std::result::Result<(), Failure> {
    let mut counts = FaultCounts::default();
    (0..seeds).try_for_each(|at| sweep::<S>(seed.wrapping_add(at), &mut counts))
}

/// Lets every call that can fail, fail.
fn sweep<S: Subject>(seed: u64, counts: &mut FaultCounts) -> std::result::Result<(), Failure> {
    for kind in FaultKind::ALL {
        for is_lasting in [false, true] {
            for first_call in 0.. {
                let fault = Fault {
                    kind,
                    first_call,
                    is_lasting,
                };
                let named = |failure| format!("seed {seed}, {fault:?}: {failure}");
                if !try_fault::<S>(seed, fault, counts).map_err(named)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Runs a store that meets the fault; returns whether it did.
fn try_fault<S: Subject>(
    seed: u64,
    fault: Fault,
    counts: &mut FaultCounts,
) -> std::result::Result<bool, Failure> {
    let mut driver = Run::<S>::create(seed);
    driver.disk.set_fault(Some(fault));
    for _ in 0..STEPS {
        if driver.store.is_none() {
            break;
        }
        // A failed step may be tried again, as a careless program would. Nothing may be acknowledged then that is lost
        // later.
        if let Ok(wrong) = driver.step() {
            wrong?;
        }
    }
    let was_struck = driver.disk.fault_call_count() > fault.first_call;
    driver.disk.set_fault(None);
    counts.runs += 1;
    counts.struck += usize::from(was_struck);
    check_after_crash(&driver, counts)?;
    // The process ends, and another opens the store and works on. Then the power goes at any moment.
    driver.disk.kill_processes();
    work_on(&mut driver, 2)?;
    check_after_crash(&driver, counts)?;
    Ok(was_struck)
}

fn check_after_crash<S: Subject>(
    driver: &Run<S>,
    counts: &mut FaultCounts,
) -> std::result::Result<(), Failure> {
    let mut result = Ok(());
    let recording = driver.disk.recording();
    let from = recording.step_count().saturating_sub(12);
    recording.for_each_crash_from(from, &DAMAGES, counts.runs as u64, |crash| {
        let Some(mark) = crash.mark else {
            return;
        };
        counts.images += 1;
        let disk = SimulatedDisk::from_image(&crash.image, 0);
        let recovered = S::read(disk.start_process());
        if result.is_ok() {
            let checked = check_found(&recovered, &driver.marks[mark as usize]);
            result = checked.map_err(|failure| {
                format!("{:?} before step {}: {failure}", crash.damage, crash.step)
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

    #[test]
    fn no_failing_call_loses_what_was_acknowledged() {
        let seeds = if is_full() { 40 } else { 2 };
        fail_calls::<Log>(test_seed(), seeds).unwrap();
    }

    #[test]
    fn a_full_disk_loses_nothing_that_was_acknowledged() {
        let counts = fill_disk::<Log>(test_seed(), 60, 5 * 4096..15 * 4096).unwrap();
        assert!(counts.images > 500, "{counts:?}");
    }
}
