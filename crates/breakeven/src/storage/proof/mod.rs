//! The proof that records and superblocks survive what a medium may do.
//!
//! A reference log ([`log`]) is driven by seeded random transactions on the simulated disk. The
//! oracle knows, at every moment, which states of the log a crash may leave: the last acknowledged
//! one, or one that a later transaction, begun and perhaps not acknowledged, would make. Anything
//! else is a lost, a torn, a revived or an invented transaction. [`crash`] cuts the power, [`faults`]
//! lets calls fail, [`rot`] lets the medium lie, [`turns`] has two processes write in turn and die; the
//! last part switches safety steps off one by one
//! and demands that each is missed.

mod crash;
mod faults;
mod log;
mod rot;
mod turns;

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;

use crate::error::{Error, Result};
use crate::storage::{MemoryStorage, RealStorage, SimulatedDisk, Storage, test_seed};
use crate::testing::is_full;
use log::{Log, Mode, Operation, Recovered, State};

/// What a check found wrong, for people.
type Failure = String;

fn digest(state: &State) -> u64 {
    let mut hash = xxhash_rust::xxh64::Xxh64::new(0);
    for (key, value) in state {
        hash.update(&key.to_le_bytes());
        hash.update(&(value.len() as u32).to_le_bytes());
        hash.update(value);
    }
    hash.digest()
}

/// A state the log may be found in: the number of its last transaction, and its content.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    last: u64,
    digest: u64,
}

impl Candidate {
    fn new(last: u64, state: &State) -> Candidate {
        let digest = digest(state);
        Candidate { last, digest }
    }
}

/// The states that may be found, by last transaction and digest.
type Allowed = BTreeSet<(u64, u64)>;

/// Drives a log, and knows what may be found of it after a crash at any mark.
struct Driver {
    disk: SimulatedDisk,
    mode: Mode,
    log: Option<Log>,
    random: Rng,
    /// The state as the log should show it now, and those a crash may fall back to.
    candidates: Vec<Candidate>,
    /// What may be found behind each mark.
    marks: Vec<Allowed>,
    /// Every state there ever was.
    history: Allowed,
    /// What was done.
    commits: u64,
}

impl Driver {
    /// Makes a driver on a disk whose log may be found as one of `candidates`.
    fn new(disk: SimulatedDisk, mode: Mode, seed: u64, candidates: Vec<Candidate>) -> Driver {
        let history = candidates.iter().map(|c| (c.last, c.digest)).collect();
        let mut driver = Driver {
            disk,
            mode,
            log: None,
            random: Rng::with_seed(seed),
            candidates,
            marks: Vec::new(),
            history,
            commits: 0,
        };
        driver.mark();
        driver
    }

    /// Makes a log on an empty disk. Until that is acknowledged, no mark tells what may be found.
    fn create(seed: u64) -> Driver {
        let disk = SimulatedDisk::new(seed);
        let mut random = Rng::with_seed(seed);
        let mode = Mode {
            is_direct: random.u8(..4) == 0,
            keeps_stale: random.bool(),
            is_preallocated: random.bool(),
        };
        let log = Log::create(disk.start_process(), mode).expect("an empty disk without faults");
        let mut driver = Driver::new(disk, mode, seed, vec![Candidate::new(0, &State::new())]);
        driver.log = Some(log);
        driver
    }

    fn mark(&mut self) {
        self.disk.mark(self.marks.len() as u64);
        let allowed = self.candidates.iter().map(|c| (c.last, c.digest));
        self.marks.push(allowed.collect());
    }

    /// Takes the newest candidate for the only one: it was acknowledged.
    fn acknowledge(&mut self) {
        self.candidates.drain(..self.candidates.len() - 1);
        self.mark();
    }

    /// Opens the log that lies on the disk; what it shows then is acknowledged.
    fn reopen(&mut self) -> Result<std::result::Result<(), Failure>> {
        self.log = None;
        let log = Log::open(self.disk.start_process(), self.mode)?;
        let found = (log.last(), digest(log.state()));
        let known = self
            .candidates
            .iter()
            .position(|c| (c.last, c.digest) == found);
        let Some(at) = known else {
            let allowed = self.marks.last();
            return Ok(Err(format!("opened as {found:?}, not one of {allowed:?}")));
        };
        let candidate = self.candidates.swap_remove(at);
        self.candidates = vec![candidate];
        self.mark();
        self.log = Some(log);
        Ok(Ok(()))
    }

    fn random_operations(&mut self, number: u64) -> Vec<Operation> {
        const LENGTHS: [usize; 8] = [24, 24, 100, 100, 100, 480, 480, 1500];
        let count = self.random.usize(1..5);
        (0..count)
            .map(|at| {
                let key = self.random.u16(..12);
                let length = LENGTHS[self.random.usize(..LENGTHS.len())];
                let mut value = vec![0; length];
                self.random.fill(&mut value);
                // No two values ever written are equal.
                value[..8].copy_from_slice(&number.to_le_bytes());
                value[8] = at as u8;
                let is_put = self.random.u8(..6) > 0;
                (key, is_put.then(|| Arc::from(value)))
            })
            .collect()
    }

    /// Runs one transaction. A failed one may be found or not.
    fn commit(&mut self, is_durable: bool) -> Result<()> {
        let number = self.random.u64(..);
        let operations = self.random_operations(number);
        let log = self.log.as_mut().expect("an open log");
        let mut state = log.state().clone();
        for (key, value) in &operations {
            match value {
                Some(value) => state.insert(*key, Arc::clone(value)),
                None => state.remove(key),
            };
        }
        let candidate = Candidate::new(log.last() + 1, &state);
        self.history.insert((candidate.last, candidate.digest));
        self.candidates.push(candidate);
        self.mark();
        let log = self.log.as_mut().expect("an open log");
        log.commit(&operations, is_durable)?;
        self.commits += 1;
        if is_durable {
            self.acknowledge();
        }
        Ok(())
    }

    /// Does one random thing; a process death is survived by opening again.
    fn step(&mut self) -> Result<std::result::Result<(), Failure>> {
        match self.random.u8(..32) {
            0 => {
                self.disk.kill_processes();
                return self.reopen();
            }
            1 | 2 => {
                self.log.as_mut().expect("an open log").checkpoint()?;
                self.acknowledge_present();
            }
            3 => {
                self.log.as_mut().expect("an open log").sync()?;
                self.acknowledge_present();
            }
            4..=14 => self.commit(false)?,
            _ => self.commit(true)?,
        }
        Ok(Ok(()))
    }

    /// Acknowledges the state the log shows: everything up to it was made durable.
    fn acknowledge_present(&mut self) {
        let last = self.log.as_ref().expect("an open log").last();
        let present = self.candidates.iter().rposition(|c| c.last == last);
        let present = self
            .candidates
            .swap_remove(present.expect("the present state"));
        self.candidates = vec![present];
        self.mark();
    }

    /// Runs a log for `steps` on a disk without faults.
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

/// Checks what was recovered against what may be found.
fn check_recovered(
    recovered: &Result<Recovered>,
    allowed: &Allowed,
) -> std::result::Result<(), Failure> {
    let recovered = recovered
        .as_ref()
        .map_err(|error| format!("cannot be read: {error}"))?;
    let found = (recovered.last, digest(&recovered.state));
    if allowed.contains(&found) {
        return Ok(());
    }
    let numbers: Vec<u64> = allowed.iter().map(|(last, _)| *last).collect();
    Err(match numbers.contains(&found.0) {
        true => format!("transaction {} is there with other content", found.0),
        false => format!("transaction {} is there, not one of {numbers:?}", found.0),
    })
}

/// The same transactions on real files and in memory give the same log.
#[test]
fn the_log_is_the_same_on_real_files() {
    for is_direct in [false, true] {
        let mode = Mode {
            is_direct,
            keeps_stale: false,
            is_preallocated: false,
        };
        let folder = tempfile::tempdir().unwrap();
        let real = Arc::new(RealStorage::open_folder(folder.path()).unwrap());
        let memory = Arc::new(MemoryStorage::new());
        let storages: [Arc<dyn Storage>; 2] = [real, memory];
        let mut driver = Driver::create(test_seed());
        let mut run = |storage: &Arc<dyn Storage>| -> Result<State> {
            let mut log = Log::create(Arc::clone(storage), mode)?;
            driver.random = Rng::with_seed(7);
            for number in 0..60 {
                log.commit(&driver.random_operations(number), number % 3 > 0)?;
                if number % 20 == 19 {
                    drop(log);
                    log = Log::open(Arc::clone(storage), mode)?;
                }
            }
            log.sync()?;
            Ok(log::read(&**storage)?.state)
        };
        match run(&storages[0]) {
            Err(error @ Error::Unsupported { .. }) => println!("skipped: {error}"),
            state => assert_eq!(state.unwrap(), run(&storages[1]).unwrap()),
        }
    }
}

mod seeded {
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
        let crash: fn(u64) -> _ = |seed| crash::hunt(seed, 20);
        let rot: fn(u64) -> _ = |seed| rot::hunt(seed, 400);
        let faults: fn(u64) -> _ = |seed| faults::hunt(seed, 3);
        let turns: fn(u64) -> _ = |seed| turns::hunt(seed, 20);
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
