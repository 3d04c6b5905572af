//! One change of a vault by one writer: its turn, its epoch, and the commit.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};

use super::copies::{COPIES, copy_name};
use super::far_end::{Put, Turn};
use super::pack::name_of;
use super::record::{Record, State};
use super::{INDEX, LOCK, RECORD, Vault, object};

/// How often one that waits asks for the turn: it waits for minutes, and on a store of objects each time is four requests.
const TURN_ASKED_EVERY: Duration = Duration::from_secs(1);

/// The right to make one change.
pub(super) struct Session {
    pub(super) epoch: u64,
    /// Indexes that could not be read and do not count any more; those of their packs that are whole are taken over.
    left_indexes: Vec<u64>,
    _turn: Turn,
}

impl Vault {
    /// Begins a change: takes the turn, fences those who died, and reads the newest state.
    pub(super) fn begin(&mut self) -> Result<Session> {
        let turn = self.take_turn()?;
        // What a dead writer left may be seen and not yet be durable.
        for folder in ["locks", "index", "snapshots"] {
            self.far.clear(folder)?;
            self.far.settle(folder)?;
        }
        let locks = self.epochs("locks")?;
        let records = self.epochs("snapshots")?;
        for epoch in &locks {
            if !records.contains(epoch) {
                self.put_record(*epoch, &Record::Fence)?;
            }
        }
        let newest = self.reload_newest()?;
        let last = locks.last().max(records.last()).copied().unwrap_or(0);
        if newest < last {
            // By now each of those epochs has a record: whoever began with an older one would lose what came since.
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
        })
    }

    /// Takes the turn, when another gives it back in time.
    fn take_turn(&self) -> Result<Turn> {
        let begun = Instant::now();
        loop {
            match self.far.take_turn() {
                Err(Error::Invalid { .. }) if begun.elapsed() < self.turn_wait => {
                    std::thread::sleep(TURN_ASKED_EVERY);
                }
                turn => return turn,
            }
        }
    }

    /// Checks that no epoch was used since the listing that an epoch was found by. Who stalled may have put the lock of one
    /// that others have closed and swept meanwhile: its record would go through as well, and never be the newest.
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
        // It is committed: that it lies once is no reason to call it failed.
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

    /// Takes the indexes out of the state that could not be read; says whether there were any.
    pub(super) fn leave_damaged_indexes(&mut self, session: &mut Session) -> bool {
        let is_damaged = |epoch: &u64| self.damages.has(&object("index", *epoch));
        let indexes = std::mem::take(&mut self.state.indexes);
        let (damaged, whole) = indexes.into_iter().partition(is_damaged);
        self.state.indexes = whole;
        session.left_indexes = damaged;
        !session.left_indexes.is_empty()
    }

    /// Makes a record the newest, and deletes what its state does not list.
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

    /// Deletes the records and indexes of the state before that this one does not list.
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

fn fenced(epoch: u64) -> Error {
    Error::invalid(
        "vault",
        format!("another writer took over and closed epoch {epoch}; nothing was changed"),
    )
}
