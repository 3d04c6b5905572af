//! One change of a vault by one writer: its turn, its epoch, and the commit.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

use super::copies::{COPIES, copy_name};
use super::far_end::{AddMark, Put, Turn};
use super::pack::name_of;
use super::record::{Record, State};
use super::{INDEX, LOCK, RECORD, Vault, object};

/// How often a waiting process asks for the turn. It waits for minutes, and on a store of objects each time costs four
/// requests.
const TURN_ASKED_EVERY: Duration = Duration::from_secs(1);

const ASKED_FIRST: Duration = Duration::from_millis(5);

/// How long a change waits for others.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// For another's change, as the user chose.
    pub(super) turn: Duration,
    /// For the turn to commit an add. Others have it for their commits, which take milliseconds, or seconds on a slow
    /// store.
    pub(super) commit: Duration,
    /// For a process that removes the remains of dead ones before it adds.
    pub(super) share: Duration,
}

impl Default for WaitLimits {
    fn default() -> WaitLimits {
        WaitLimits {
            turn: Duration::ZERO,
            commit: Duration::from_secs(60),
            share: Duration::from_secs(1),
        }
    }
}

/// The right to make one change.
pub(super) struct Session {
    pub(super) epoch: u64,
    /// Indexes that could not be read and do not count any more; their whole packs are taken over.
    left_indexes: Vec<u64>,
    _turn: Turn,
    /// Keeps out all adds, where this change needs that.
    _alone: Option<Turn>,
}

impl Vault {
    /// Marks a process that adds.
    pub(super) fn share(&self) -> Result<Box<dyn AddMark>> {
        waiting(self.waits.turn.max(self.waits.share), || self.far.share())
    }

    /// Keeps out processes that add.
    pub(super) fn exclude(&self) -> Result<Turn> {
        waiting(self.waits.turn, || self.far.exclude())
    }

    /// Begins a change: takes the turn, fences dead writers, and reads the newest state.
    pub(super) fn begin(&mut self) -> Result<Session> {
        let turn = waiting(self.waits.turn, || self.far.take_turn())?;
        self.begin_with(turn, None)
    }

    /// The same for a process that has added and commits.
    pub(super) fn begin_commit(&mut self) -> Result<Session> {
        let wait = self.waits.turn.max(self.waits.commit);
        let turn = waiting(wait, || self.far.take_turn())?;
        self.begin_with(turn, None)
    }

    /// The same while no process adds.
    pub(super) fn begin_alone(&mut self) -> Result<Session> {
        let alone = self.exclude()?;
        let turn = waiting(self.waits.turn, || self.far.take_turn())?;
        self.begin_with(turn, Some(alone))
    }

    fn begin_with(&mut self, turn: Turn, alone: Option<Turn>) -> Result<Session> {
        // Remains of a dead writer may be seen and not yet be durable.
        for folder in ["locks", "index", "snapshots"] {
            self.far.clear(folder)?;
            self.far.settle(folder)?;
        }
        let locks = self.epochs("locks")?;
        let mut records = self.epochs("snapshots")?;
        if locks.iter().any(|epoch| !records.contains(epoch)) {
            // Do not fence an epoch that committed and whose record was lost.
            self.put_back_records(&mut records)?;
        }
        for epoch in &locks {
            if !records.contains(epoch) {
                self.put_record(*epoch, &Record::Fence)?;
            }
        }
        let newest = self.reload_newest()?;
        let last = locks.last().max(records.last()).copied().unwrap_or(0);
        if newest < last {
            // By now each of those epochs has a record: a change that began with an older state would lose the newer
            // commits.
            let reason =
                format!("a listing of its records ends at {newest}, before {last}; try again");
            return Err(Error::invalid("vault", reason));
        }
        let epoch = last
            .checked_add(1)
            .ok_or_else(|| Error::invalid("vault", "no epoch is left"))?;
        let name = object("locks", epoch);
        let lock = self.keys.seal(
            LOCK,
            &name,
            &std::process::id().to_le_bytes(),
            &mut self.entropy,
        );
        if self.far.put(&name, &lock)? == Put::Exists {
            return Err(Error::invalid("vault", "another writer has just begun"));
        }
        self.check_newest(epoch)?;
        let old: Vec<String> = locks.iter().map(|epoch| format!("{epoch:016x}")).collect();
        self.far.delete("locks", &old)?;
        Ok(Session {
            epoch,
            left_indexes: Vec::new(),
            _turn: turn,
            _alone: alone,
        })
    }

    /// Checks that no epoch was used since the listing from which an epoch was chosen. A writer that stalled may put
    /// the lock of an epoch that others have closed and swept meanwhile. Its record would be accepted as well, and
    /// never be the newest.
    fn check_newest(&self, epoch: u64) -> Result<()> {
        let (locks, records) = (self.epochs("locks")?, self.epochs("snapshots")?);
        let is_newest =
            locks.iter().all(|other| *other <= epoch) && records.iter().all(|other| *other < epoch);
        match is_newest {
            true => Ok(()),
            false => Err(Error::invalid(
                "vault",
                "others have written since this one began; nothing was changed",
            )),
        }
    }

    fn put_record(&mut self, epoch: u64, record: &Record) -> Result<Put> {
        let name = object("snapshots", epoch);
        let sealed = self
            .keys
            .seal(RECORD, &name, &record.write(), &mut self.entropy);
        let put = self.far.put(&name, &sealed)?;
        // It is committed: a missing copy is no reason to call it failed.
        let copy = copy_name(&name);
        if (put, record != &Record::Fence) == (Put::Created, true) {
            self.digest = name_of(&sealed);
            if let Err(error) = self.far.put(&copy, &sealed) {
                self.damages.note(&copy, &error);
            }
        }
        Ok(put)
    }

    /// Puts an index of this epoch.
    pub(super) fn put_index(&mut self, session: &Session, content: &[u8]) -> Result<()> {
        let name = object("index", session.epoch);
        let sealed = self.keys.seal(INDEX, &name, content, &mut self.entropy);
        match self.far.put(&name, &sealed)? {
            Put::Created => Ok(()),
            Put::Exists => Err(fenced(session.epoch)),
        }
    }

    /// Says whether an index could not be read.
    pub(super) fn has_damaged_index(&self) -> bool {
        let mut indexes = self.state.indexes.iter();
        indexes.any(|epoch| self.damages.has(&object("index", *epoch)))
    }

    /// Takes unreadable indexes out of the state; says whether there were any.
    pub(super) fn leave_damaged_indexes(&mut self, session: &mut Session) -> bool {
        let is_damaged = |epoch: &u64| self.damages.has(&object("index", *epoch));
        let indexes = std::mem::take(&mut self.state.indexes);
        let (damaged, whole) = indexes.into_iter().partition(is_damaged);
        self.state.indexes = whole;
        session.left_indexes = damaged;
        !session.left_indexes.is_empty()
    }

    /// Makes a record the newest, and deletes the objects that its state does not list.
    pub(super) fn commit(&mut self, session: Session, record: Record) -> Result<u64> {
        let epoch = session.epoch;
        let (Record::Snapshot(state, _) | Record::Change(state)) = &record else {
            unreachable!("a fence is no change");
        };
        let state = state.clone();
        if self.put_record(epoch, &record)? == Put::Exists {
            return Err(fenced(epoch));
        }
        let mut before = std::mem::replace(&mut self.state, state);
        before.indexes.extend(session.left_indexes);
        let before_epoch = std::mem::replace(&mut self.epoch, epoch);
        self.sweep(&before, before_epoch)?;
        Ok(epoch)
    }

    /// Deletes the records and indexes of the previous state that this one does not list.
    fn sweep(&mut self, before: &State, before_epoch: u64) -> Result<()> {
        let gone = |old: &[u64], new: &[u64]| -> Vec<String> {
            let gone = old.iter().filter(|epoch| !new.contains(epoch));
            gone.map(|epoch| format!("{epoch:016x}")).collect()
        };
        let mut records = before.snapshots.clone();
        if before_epoch > 0 && !records.contains(&before_epoch) {
            records.push(before_epoch);
        }
        let (records, indexes) = (
            gone(&records, &self.state.snapshots),
            gone(&before.indexes, &self.state.indexes),
        );
        let copies = records.iter().map(|name| format!("record-{name}"));
        let copies: Vec<String> = copies.collect();
        self.far.delete(COPIES, &copies)?;
        self.far.delete("snapshots", &records)?;
        self.far.delete("index", &indexes)
    }
}

/// Asks again while another process holds the lock or turn, for `wait` at the most.
fn waiting<T>(wait: Duration, mut ask: impl FnMut() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let mut pause = ASKED_FIRST;
    loop {
        match ask() {
            Err(Error::Invalid { .. }) if begun.elapsed() < wait => {
                std::thread::sleep(pause);
                pause = (2 * pause).min(TURN_ASKED_EVERY);
            }
            answer => return answer,
        }
    }
}

fn fenced(epoch: u64) -> Error {
    Error::invalid(
        "vault",
        format!("another writer took over and closed epoch {epoch}; nothing was changed"),
    )
}

#[cfg(test)]
impl Vault {
    /// Never waits: where one process plays all, the others stand still while this one waits.
    pub(super) fn wait_for_nobody(&mut self) {
        (self.waits.commit, self.waits.share) = (Duration::ZERO, Duration::ZERO);
    }
}
