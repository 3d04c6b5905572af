//! A medium that lies: writes lost, torn and sent elsewhere, bits flipped at once or at rest.
//!
//! Nothing can restore the data that such a medium lost. The proof shows that a store reports it, or falls back to an
//! earlier real state, and never invents one.

use fastrand::Rng;

use super::{Failure, Run, State, Subject};
use crate::storage::SimulatedDisk;
use crate::storage::simulated::{Image, Lie, Recording};

/// The steps of one run.
const STEPS: usize = 30;
/// The lies in one run.
const LIES_OF_A_RUN: usize = 200;

/// How stores took the lies.
#[derive(Debug, Default)]
pub struct LieCounts {
    /// The number of lies.
    pub told: usize,
    /// Stores that refused to be read.
    pub refused: usize,
    /// Stores that were read in an earlier state and reported damage.
    pub reported: usize,
    /// Lies that changed no readable byte.
    pub harmless: usize,
    /// The end vanished without a trace, as if it had never been written.
    pub tails_lost: usize,
}

/// Lets one write of a run be lost, torn, misdirected or flipped, with everything synced after it, until there were
/// `lies` of them. Prints the outcomes.
///
/// # Errors
/// An invented state, or a silent fall back.
///
/// # Panics
/// If the lies were hardly noticed: fewer than 1 in 20 refused and 1 in 100 reported.
pub fn tell_lies<S: Subject>(seed: u64, lies: usize) -> std::result::Result<LieCounts, Failure> {
    let counts = try_lies::<S>(seed, lies)?;
    println!("lies: {counts:?}");
    assert!(
        counts.refused > lies / 20 && counts.reported > lies / 100,
        "{counts:?}"
    );
    Ok(counts)
}

pub(super) fn try_lies<S: Subject>(
    seed: u64,
    lies: usize,
) -> std::result::Result<LieCounts, Failure> {
    let mut random = Rng::with_seed(seed);
    let mut counts = LieCounts::default();
    let mut number = 0;
    while counts.told < lies {
        number += 1;
        let (run, end, recording) = finished::<S>(seed.wrapping_add(number))?;
        for _ in 0..LIES_OF_A_RUN.min(lies) {
            let which = random.usize(..recording.write_count());
            let lie = Lie::ALL[random.usize(..Lie::ALL.len())];
            let image = recording.with_lie(which, lie, random.u64(..)).end();
            let is_tail = which + 1 == recording.write_count();
            let lost_max = if is_tail { u64::MAX } else { 0 };
            judge(&run, end, &image, lost_max, &mut counts)
                .map_err(|failure| format!("{lie:?} of write {which}: {failure}"))?;
        }
    }
    Ok(counts)
}

/// Flips one random bit of a file of a store at rest, until `bits` were flipped. Prints the outcomes. Only a flip in
/// the last transaction may look as if it had never been written.
///
/// # Errors
/// An invented state, or a silent fall back by more than one transaction.
pub fn flip_bits<S: Subject>(seed: u64, bits: usize) -> std::result::Result<LieCounts, Failure> {
    let mut random = Rng::with_seed(seed);
    let mut counts = LieCounts::default();
    let mut number = 0;
    while counts.told < bits {
        number += 1;
        let (run, end, recording) = finished::<S>(seed.wrapping_add(number))?;
        let whole = recording.end();
        let names = whole.names();
        for _ in 0..LIES_OF_A_RUN.min(bits) {
            let name = &names[random.usize(..names.len())];
            let size_bytes = whole.size_bytes(name);
            if size_bytes == 0 {
                continue;
            }
            let bit = random.u64(..size_bytes * 8);
            let mut image = whole.clone();
            image.flip_bit(name, bit);
            judge(&run, end, &image, 1, &mut counts)
                .map_err(|failure| format!("bit {bit} of {name}: {failure}"))?;
        }
    }
    println!("bits flipped: {counts:?}");
    assert!(counts.refused + counts.reported > 0, "{counts:?}");
    Ok(counts)
}

/// Drives a store to a durable end, so that only the lie is wrong.
fn finished<S: Subject>(seed: u64) -> std::result::Result<(Run<S>, State, Recording), Failure> {
    let mut run = Run::<S>::create(seed);
    run.run(STEPS)?;
    run.commit(true).map_err(|error| error.to_string())?;
    let (end, recording) = (run.candidates[0], run.disk.recording());
    Ok((run, end, recording))
}

/// Counts how a store that should be in the state `end` is read from an image. It may lose `lost_max` transactions
/// without a word.
fn judge<S: Subject>(
    run: &Run<S>,
    end: State,
    image: &Image,
    lost_max: u64,
    counts: &mut LieCounts,
) -> std::result::Result<(), Failure> {
    counts.told += 1;
    let disk = SimulatedDisk::from_image(image, 0);
    let Ok(found) = S::read(disk.start_process()) else {
        counts.refused += 1;
        return Ok(());
    };
    if !run.history.contains(&found.state) {
        return Err(format!("an invented state {:?}", found.state));
    }
    if found.state == end {
        counts.harmless += 1;
    } else if found.is_damaged {
        counts.reported += 1;
    } else if end.last - found.state.last <= lost_max {
        counts.tails_lost += 1;
    } else {
        return Err(format!("silently back to {:?}", found.state));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::log_test::Log;
    use super::*;
    use crate::storage::test_seed;
    use crate::testing::is_full;

    #[test]
    fn no_lie_of_the_medium_invents_a_state() {
        let lies = if is_full() { 200_000 } else { 10_000 };
        tell_lies::<Log>(test_seed(), lies).unwrap();
    }

    #[test]
    fn no_flipped_bit_invents_a_state() {
        let bits = if is_full() { 200_000 } else { 10_000 };
        flip_bits::<Log>(test_seed(), bits).unwrap();
    }
}
