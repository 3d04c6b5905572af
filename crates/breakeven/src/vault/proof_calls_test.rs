//! Failing calls of the storage under a vault. In a short life of adding, forgetting, collecting and restoring, every
//! call fails in every way, once and from then on.
//!
//! After each failure, and wherever the power goes, the next process finds all finished snapshots, bit for bit, and
//! goes on.

use std::path::Path;

use super::proof_requests_test::{check_restored, collect, go_on, plan_all, restore};
use super::proof_test::{Rng, State, Subject, Subjected, Transaction, open_seeded};
use super::*;
use crate::storage::SimulatedDisk;
use crate::storage::simulated::{Damage, Fault, FaultKind, Image};

fn open(disk: &SimulatedDisk, seed: u64) -> Result<Subjected> {
    Subjected::of(open_seeded(disk.start_process(), seed)?)
}

/// A vault at rest, and the work that follows.
struct Life {
    image: Image,
    before: State,
    add: Transaction,
    forget: Transaction,
}

impl Life {
    fn new(random: &mut Rng) -> Life {
        let disk = SimulatedDisk::new(random.u64(..));
        let mut subject = Subjected::create(disk.start_process(), ()).unwrap();
        for _ in 0..2 {
            let add = subject.plan_add(random);
            subject.commit(&add, true).unwrap();
        }
        let (oldest, _) = subject.trees.first_key_value().expect("a snapshot");
        Life {
            image: disk.recording().end(),
            before: subject.state(),
            add: subject.plan_add(random),
            forget: Transaction::Forget(*oldest),
        }
    }

    /// Lives with a fault. A step that fails is skipped, as a careless program would do. A step that fails is passed
    /// over, as a careless program would do. Returns the snapshots that may be found then, and how many steps went
    /// well.
    fn live(&self, disk: &SimulatedDisk, target: &Path) -> (Vec<State>, usize) {
        let mut allowed = vec![self.before];
        let Ok(mut subject) = open(disk, 7) else {
            return (allowed, 0);
        };
        let mut went_well = 0;
        for transaction in [&self.add, &self.forget] {
            allowed.push(subject.after(transaction));
            if subject.commit(transaction, true).is_ok() {
                allowed.drain(..allowed.len() - 1);
                went_well += 1;
            }
        }
        went_well += usize::from(collect(&mut subject, 100).is_ok());
        let (newest, tree) = subject.trees.last_key_value().expect("a snapshot");
        if restore(&subject, *newest, target).is_ok() {
            check_restored(tree, target, "a call failed");
            went_well += 1;
        }
        (allowed, went_well)
    }

    /// Tries a fault, then a crash, then another process. Returns whether the fault struck, and how many steps went
    /// well.
    fn try_fault(&self, fault: Fault, random: &mut Rng) -> (bool, usize) {
        let disk = SimulatedDisk::from_image(&self.image, random.u64(..));
        let target = tempfile::tempdir().unwrap();
        disk.set_fault(Some(fault));
        let (allowed, went_well) = self.live(&disk, target.path());
        let was_struck = disk.fault_call_count() > fault.first_call;
        disk.set_fault(None);
        match random.u8(..3) {
            0 => disk.kill_processes(),
            _ => disk.cut_power(*random.choice(Damage::ALL.iter()).expect("damages")),
        }
        let what = format!("{fault:?}");
        let found = open(&disk, 1).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(allowed.contains(&found.state()), "{what}");
        drop(found);
        if random.u8(..3) == 0 {
            go_on(&|seed| open(&disk, seed), random, &what);
            // Packs of failed collections may share chunks. One more collection sorts that out.
            let mut subject = open(&disk, 5).unwrap();
            collect(&mut subject, 300).unwrap();
            let left = plan_all(&subject);
            assert_eq!((left.dead_packs, left.moved_packs), (0, 0), "{what}");
        }
        (was_struck, went_well)
    }
}

#[test]
fn no_failing_call_loses_a_snapshot() {
    let mut random = crate::testing::seeded("failing calls", 24);
    let lives = if crate::testing::is_full() { 20 } else { 1 };
    let (mut struck, mut went_well) = (0, 0);
    for _ in 0..lives {
        let life = Life::new(&mut random);
        for kind in FaultKind::ALL {
            for is_lasting in [false, true] {
                let faults = (0..).map(|first_call| Fault {
                    kind,
                    first_call,
                    is_lasting,
                });
                let tried = faults.map(|fault| life.try_fault(fault, &mut random));
                for (_, steps) in tried.take_while(|(was_struck, _)| *was_struck) {
                    struck += 1;
                    went_well += steps;
                }
            }
        }
    }
    println!(
        "{struck} calls failed in {lives} lives, {went_well} of their steps went well all the same"
    );
    assert!(struck > 1000 * lives, "{struck}");
}
