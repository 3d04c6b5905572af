//! The proof that a store survives the faults of its medium: one harness for every store.
//!
//! A store under proof implements [`Subject`]. It is driven by seeded random transactions on the simulated disk. The
//! oracle knows, at every moment, the states that a crash may leave. One is the last acknowledged state; the others are
//! those of a later transaction, begun and perhaps not acknowledged. Anything else is a lost, a torn, a revived or an
//! invented transaction. [`cut_power`] cuts the power at every boundary and again inside of recovery. [`fail_calls`]
//! lets every call fail, and [`fill_disk`] lets the disk be too small. [`tell_lies`] and [`flip_bits`] let the medium
//! lie and rot. Each returns the number of its tries, panics below its floor, and returns a fault as an error.
//!
//! The reference log is its first subject. The last part switches safety steps off one by one and demands
//! that each is missed.

mod crash;
mod faults;
mod lies;
#[cfg(test)]
mod log_test;
#[cfg(test)]
mod rot_test;
#[cfg(test)]
mod turns_test;

pub use crash::{CrashCounts, CrashFloors, cut_power};
pub use faults::{FaultCounts, fail_calls, fill_disk};
pub use lies::{LieCounts, flip_bits, tell_lies};

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;

use crate::error::Result;
use crate::storage::{SimulatedDisk, Storage};

/// The fault that a check found, for people.
pub type Failure = String;

/// A state of a store: how many transactions made it, and a digest of all that can be read of it.
///
/// No two states of a run may be equal: a transaction writes values that were never written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct State {
    /// The number of its last transaction.
    pub last: u64,
    /// A hash of its content, as [`digest`] makes it.
    pub digest: u64,
}

/// The result of reading a store.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// The state it is in.
    pub state: State,
    /// Whether anything but a clean end was found: a torn tail, or rot.
    pub is_damaged: bool,
}

/// A store under proof.
pub trait Subject: Sized {
    /// Its way of using files; a store can be opened in any mode.
    type Mode: Copy;
    /// The plan of a transaction.
    type Transaction;

    /// Picks a mode for a run.
    fn mode(random: &mut Rng) -> Self::Mode;

    /// Makes an empty store, durable with all its names when this returns.
    fn create(storage: Arc<dyn Storage>, mode: Self::Mode) -> Result<Self>;

    /// Opens the store for writing. The state that it then shows counts as durable.
    fn open(storage: Arc<dyn Storage>, mode: Self::Mode) -> Result<Self>;

    /// Reads the store without changing anything.
    fn read(storage: Arc<dyn Storage>) -> Result<Found>;

    /// Returns the state it shows now.
    fn state(&self) -> State;

    /// Plans a random transaction, whose values were never written before.
    fn plan(&self, random: &mut Rng) -> Self::Transaction;

    /// Returns the state that the transaction would make of the present one.
    fn after(&self, transaction: &Self::Transaction) -> State;

    /// Runs a transaction; it is acknowledged when this returns, if `is_durable`.
    fn commit(&mut self, transaction: &Self::Transaction, is_durable: bool) -> Result<()>;

    /// Makes all transactions durable.
    fn sync(&mut self) -> Result<()>;

    /// Does some upkeep (a checkpoint, a step of cleaning) that changes nothing that can be read, and
    /// makes all transactions durable.
    fn maintain(&mut self, random: &mut Rng) -> Result<()>;
}

/// Returns the digest of a content, given as separate parts.
pub fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = xxhash_rust::xxh64::Xxh64::new(0);
    for part in parts {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.digest()
}

/// The states that may be found.
type Allowed = BTreeSet<State>;

/// Drives a store, and knows the states that a crash at any mark may leave.
struct Run<S: Subject> {
    disk: SimulatedDisk,
    mode: S::Mode,
    store: Option<S>,
    random: Rng,
    /// The states that a crash may fall back to; the last is the present one.
    candidates: Vec<State>,
    /// The allowed states behind each mark.
    marks: Vec<Allowed>,
    /// Every state there ever was.
    history: Allowed,
    /// The numbers of transactions and their kinds.
    commits: u64,
}

impl<S: Subject> Run<S> {
    /// Makes a run on a disk whose store may be found as one of `candidates`.
    fn new(disk: SimulatedDisk, mode: S::Mode, seed: u64, candidates: Vec<State>) -> Run<S> {
        let history = candidates.iter().copied().collect();
        let mut run = Run {
            disk,
            mode,
            store: None,
            random: Rng::with_seed(seed),
            candidates,
            marks: Vec::new(),
            history,
            commits: 0,
        };
        run.mark();
        run
    }

    /// Makes a store on an empty disk. Until that is acknowledged, no mark knows the allowed states.
    fn create(seed: u64) -> Run<S> {
        let disk = SimulatedDisk::new(seed);
        let mode = S::mode(&mut Rng::with_seed(seed));
        let store = S::create(disk.start_process(), mode).expect("an empty disk without faults");
        let mut run = Run::new(disk, mode, seed, vec![store.state()]);
        run.store = Some(store);
        run
    }

    fn store(&mut self) -> &mut S {
        self.store.as_mut().expect("an open store")
    }

    fn mark(&mut self) {
        self.disk.mark(self.marks.len() as u64);
        self.marks.push(self.candidates.iter().copied().collect());
    }

    /// Takes one candidate for the only one: it was made durable.
    fn acknowledge(&mut self, state: State) {
        self.candidates = vec![state];
        self.mark();
    }

    /// Opens the store on the disk; its state then counts as acknowledged.
    fn reopen(&mut self) -> Result<std::result::Result<(), Failure>> {
        self.store = None;
        let store = S::open(self.disk.start_process(), self.mode)?;
        let found = store.state();
        if !self.candidates.contains(&found) {
            let allowed = self.marks.last();
            return Ok(Err(format!("opened as {found:?}, not one of {allowed:?}")));
        }
        self.acknowledge(found);
        self.store = Some(store);
        Ok(Ok(()))
    }

    /// Runs one transaction. A failed one may be found or missing.
    fn commit(&mut self, is_durable: bool) -> Result<()> {
        let store = self.store.as_mut().expect("an open store");
        let transaction = store.plan(&mut self.random);
        let candidate = store.after(&transaction);
        self.history.insert(candidate);
        self.candidates.push(candidate);
        self.mark();
        self.store().commit(&transaction, is_durable)?;
        self.commits += 1;
        if is_durable {
            self.acknowledge(candidate);
        }
        Ok(())
    }

    /// Does one random step; after a process death, opens the store again.
    fn step(&mut self) -> Result<std::result::Result<(), Failure>> {
        match self.random.u8(..32) {
            0 => {
                self.disk.kill_processes();
                return self.reopen();
            }
            1 | 2 => {
                let store = self.store.as_mut().expect("an open store");
                store.maintain(&mut self.random)?;
                self.acknowledge_present();
            }
            3 => {
                self.store().sync()?;
                self.acknowledge_present();
            }
            4..=14 => self.commit(false)?,
            _ => self.commit(true)?,
        }
        Ok(Ok(()))
    }

    /// Acknowledges the state the store shows: everything up to it was made durable.
    fn acknowledge_present(&mut self) {
        let present = self.store().state();
        assert!(self.candidates.contains(&present), "an unknown {present:?}");
        self.acknowledge(present);
    }

    /// Drives the store for `steps` on a disk without faults.
    fn run(&mut self, steps: usize) -> std::result::Result<(), Failure> {
        for step in 0..steps {
            let done = self
                .step()
                .map_err(|error| format!("step {step}: {error}"))?;
            done.map_err(|failure| format!("step {step}: {failure}"))?;
        }
        Ok(())
    }
}

/// Checks the found state against the allowed ones.
fn check_found(found: &Result<Found>, allowed: &Allowed) -> std::result::Result<(), Failure> {
    let found = found
        .as_ref()
        .map_err(|error| format!("cannot be read: {error}"))?;
    let State { last, .. } = found.state;
    if allowed.contains(&found.state) {
        return Ok(());
    }
    let numbers: Vec<u64> = allowed.iter().map(|state| state.last).collect();
    Err(match numbers.contains(&last) {
        true => format!("transaction {last} is there with other content"),
        false => format!("transaction {last} is there, not one of {numbers:?}"),
    })
}

#[cfg(test)]
mod seeded {
    use super::log_test::Log;
    use super::*;
    use crate::storage::seeded::{SeededBug, with_seeded};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Switches one safety step off and demands that `hunt` notices.
    fn check(bug: SeededBug, hunt: fn(u64) -> std::result::Result<(), Failure>) {
        // A log that acts on wrong bytes may well panic; that is noticed too.
        let noticed = with_seeded(bug, || catch_unwind(AssertUnwindSafe(|| hunt(1))));
        match noticed {
            Ok(Ok(())) => panic!("nothing notices {bug:?}"),
            Ok(Err(failure)) => println!("{bug:?}: {failure}"),
            Err(_) => println!("{bug:?}: panic"),
        }
    }

    #[test]
    fn every_safety_step_is_missed_when_it_is_left_out() {
        let crash: fn(u64) -> _ = |seed| crash::hunt::<Log>(seed, 20);
        let rot: fn(u64) -> _ = |seed| rot_test::hunt(seed, 400);
        let faults: fn(u64) -> _ = |seed| faults::hunt::<Log>(seed, 3);
        let turns: fn(u64) -> _ = |seed| turns_test::hunt(seed, 20);
        let hunts = [crash, rot, faults, turns];
        for hunt in hunts {
            hunt(1).expect("without a bug nothing is found");
        }
        check(SeededBug::ChecksumWithoutAddress, rot);
        check(SeededBug::GenerationIgnored, crash);
        check(SeededBug::GenerationIgnored, rot);
        check(SeededBug::ChecksumIgnored, crash);
        check(SeededBug::ChecksumIgnored, rot);
        check(SeededBug::SuperblockInPlace, crash);
        check(SeededBug::SuperblockNotSynced, crash);
        check(SeededBug::RewriteWithoutSync, faults);
        check(SeededBug::RewriteWithoutWrite, faults);
        check(SeededBug::CommitNotSynced, crash);
        check(SeededBug::FolderNotSynced, crash);
        check(SeededBug::FreedTooEarly, crash);
        check(SeededBug::GenerationKept, crash);
        check(SeededBug::CommitNotAwaited, crash);
        check(SeededBug::HoleSkipped, crash);
        check(SeededBug::FailureIgnored, faults);
        check(SeededBug::NotReloaded, turns);
    }
}
