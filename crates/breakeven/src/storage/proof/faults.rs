//! Calls that fail: every kind of fault at every call, once and for good, and process death.

use super::log::read;
use super::{Driver, Failure, check_recovered, is_full};
use crate::storage::simulated::{Damage, Fault, FaultKind};
use crate::storage::{SimulatedDisk, test_seed};

const STEPS: usize = 24;

/// The damages under which the end of a faulty run is recovered.
const DAMAGES: [Damage; 5] = [
    Damage::LoseAll,
    Damage::KeepAll,
    Damage::SomeSectors512,
    Damage::SomeSectors4096,
    Damage::SomeChanges,
];

#[derive(Debug, Default)]
struct Counts {
    runs: usize,
    struck: usize,
    images: usize,
}

/// Sweeps `seeds` logs until something is wrong.
pub(super) fn hunt(seed: u64, seeds: u64) -> Result<(), Failure> {
    let mut counts = Counts::default();
    (0..seeds).try_for_each(|at| sweep(seed.wrapping_add(at), &mut counts))
}

/// Lets every call that can fail, fail.
fn sweep(seed: u64, counts: &mut Counts) -> Result<(), Failure> {
    for kind in FaultKind::ALL {
        for is_lasting in [false, true] {
            for first_call in 0.. {
                let fault = Fault {
                    kind,
                    first_call,
                    is_lasting,
                };
                let named = |failure| format!("seed {seed}, {fault:?}: {failure}");
                if !try_fault(seed, fault, counts).map_err(named)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// Runs a log that meets the fault; returns whether it did.
fn try_fault(seed: u64, fault: Fault, counts: &mut Counts) -> Result<bool, Failure> {
    let mut driver = Driver::create(seed);
    driver.disk.set_fault(Some(fault));
    for _ in 0..STEPS {
        if driver.log.is_none() {
            break;
        }
        // A failed step may be tried again, as a careless program would: what then counts is that
        // nothing is acknowledged that is lost later.
        if let Ok(wrong) = driver.step() {
            wrong?;
        }
    }
    let was_struck = driver.disk.fault_call_count() > fault.first_call;
    driver.disk.set_fault(None);
    counts.runs += 1;
    counts.struck += usize::from(was_struck);
    check_after_crash(&driver, counts)?;
    // The process ends, another opens the log and works on; then the power goes at any moment.
    driver.disk.kill_processes();
    let opened = driver
        .reopen()
        .map_err(|error| format!("opening again: {error}"))?;
    opened?;
    for _ in 0..2 {
        driver
            .commit(true)
            .map_err(|error| format!("working on: {error}"))?;
    }
    check_after_crash(&driver, counts)?;
    Ok(was_struck)
}

fn check_after_crash(driver: &Driver, counts: &mut Counts) -> Result<(), Failure> {
    let mut result = Ok(());
    let recording = driver.disk.recording();
    let from = recording.step_count().saturating_sub(12);
    recording.for_each_crash_from(from, &DAMAGES, counts.runs as u64, |crash| {
        let Some(mark) = crash.mark else {
            return;
        };
        counts.images += 1;
        let disk = SimulatedDisk::from_image(&crash.image, 0);
        let recovered = read(&*disk.start_process());
        if result.is_ok() {
            let checked = check_recovered(&recovered, &driver.marks[mark as usize]);
            result = checked.map_err(|failure| {
                format!("{:?} before step {}: {failure}", crash.damage, crash.step)
            });
        }
    });
    result
}

#[test]
fn no_failing_call_loses_what_was_acknowledged() {
    let seed = test_seed();
    let mut counts = Counts::default();
    let seeds = if is_full() { 40 } else { 2 };
    for at in 0..seeds {
        sweep(seed.wrapping_add(at), &mut counts).unwrap();
    }
    println!("{counts:?}");
    assert!(counts.struck > 500 * seeds as usize, "{counts:?}");
}

/// Disks of every size from too small to large enough: whatever found room stays.
#[test]
fn a_full_disk_loses_nothing_that_was_acknowledged() {
    let mut counts = Counts::default();
    let mut refusals = 0;
    for run in 0..60 {
        let mut driver = Driver::create(test_seed().wrapping_add(run));
        driver.disk.set_capacity_bytes(Some((5 + run % 10) * 4096));
        for _ in 0..STEPS {
            match driver.step() {
                Ok(right) => right.unwrap(),
                Err(_) => refusals += 1,
            }
            if driver.log.is_none() {
                break;
            }
        }
        check_after_crash(&driver, &mut counts).unwrap();
        driver.disk.set_capacity_bytes(None);
        driver.disk.kill_processes();
        driver.reopen().unwrap().unwrap();
        driver.commit(true).unwrap();
        check_after_crash(&driver, &mut counts).unwrap();
    }
    println!("{refusals} refusals, {counts:?}");
    assert!(
        refusals > 20 && counts.images > 500,
        "{refusals}, {counts:?}"
    );
}
