//! Records: each is the state of the vault after a change, and the newest counts.

use crate::error::Result;

use super::bytes::{Reader, put_bytes, put_number, put_signed};
use super::cipher::Id;
use super::folder::Time;

/// Written by earlier versions, without attributes and flags.
const SNAPSHOT_BEFORE: u8 = 1;
const FENCE: u8 = 2;
const CHANGE: u8 = 3;
const SNAPSHOT: u8 = 4;
/// Flags of a snapshot.
const HAS_ATTRIBUTES: u64 = 1;

/// A snapshot of a vault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// When it was begun.
    pub begun: Time,
    /// The machine it was made on.
    pub host: String,
    /// The user who made it.
    pub user: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// The paths that were added.
    pub paths: Vec<Vec<u8>>,
    /// The folder of everything in it.
    pub folder: Id,
    /// That folder's stamps.
    pub stamps: Id,
    /// The epoch of its parent, the snapshot with which it was compared; 0 for none.
    pub parent: u64,
    /// Files in it.
    pub files: u64,
    /// Folders in it.
    pub folders: u64,
    /// Bytes of its files.
    pub raw_bytes: u64,
    /// Bytes of chunks that were new.
    pub new_raw_bytes: u64,
    /// Bytes of packs that it added.
    pub stored_bytes: u64,
    /// Whether extended attributes were read for it; if not, it knows none.
    pub has_attributes: bool,
}

/// A pack without a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doomed {
    pub pack: Id,
    /// Since when, in seconds.
    pub since: i64,
}

impl Doomed {
    /// Returns when the pack may be deleted. A time from a clock that ran ahead counts as now.
    pub fn until(&self, now: i64, grace: i64) -> i64 {
        self.since.min(now).saturating_add(grace)
    }
}

/// The state of a vault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The snapshots that live, by epoch.
    pub snapshots: Vec<u64>,
    /// The indexes that count, by epoch.
    pub indexes: Vec<u64>,
    pub doomed: Vec<Doomed>,
}

/// The object under the name of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A snapshot, and the state with it.
    Snapshot(State, Box<Snapshot>),
    /// Nothing, so that nothing else can be put there.
    Fence,
    /// The state after another change.
    Change(State),
}

impl Record {
    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Record::Snapshot(state, snapshot) => {
                bytes.push(SNAPSHOT);
                state.write(&mut bytes);
                snapshot.write(&mut bytes);
            }
            Record::Fence => bytes.push(FENCE),
            Record::Change(state) => {
                bytes.push(CHANGE);
                state.write(&mut bytes);
            }
        }
        bytes
    }

    pub(super) fn read(content: &[u8]) -> Result<Record> {
        let mut reader = Reader::new("record", content);
        let record = match reader.byte()? {
            kind @ (SNAPSHOT | SNAPSHOT_BEFORE) => {
                let state = State::read(&mut reader)?;
                let mut snapshot = Snapshot::read(&mut reader)?;
                if kind == SNAPSHOT {
                    let flags = reader.number_to(HAS_ATTRIBUTES)?;
                    snapshot.has_attributes = flags & HAS_ATTRIBUTES != 0;
                }
                Record::Snapshot(state, Box::new(snapshot))
            }
            FENCE => Record::Fence,
            CHANGE => Record::Change(State::read(&mut reader)?),
            other => return Err(reader.wrong("a kind of records", other)),
        };
        reader.end()?;
        Ok(record)
    }
}

impl State {
    fn write(&self, bytes: &mut Vec<u8>) {
        for epochs in [&self.snapshots, &self.indexes] {
            put_number(bytes, epochs.len() as u64);
            for epoch in epochs {
                put_number(bytes, *epoch);
            }
        }
        put_number(bytes, self.doomed.len() as u64);
        for doomed in &self.doomed {
            bytes.extend_from_slice(&doomed.pack.0);
            put_signed(bytes, doomed.since);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<State> {
        let mut epochs = || -> Result<Vec<u64>> {
            let count = reader.count(1)?;
            (0..count).map(|_| reader.number()).collect()
        };
        let (snapshots, indexes) = (epochs()?, epochs()?);
        let count = reader.count(17)?;
        let mut doomed = Vec::with_capacity(count);
        for _ in 0..count {
            doomed.push(Doomed {
                pack: reader.id()?,
                since: reader.signed()?,
            });
        }
        Ok(State {
            snapshots,
            indexes,
            doomed,
        })
    }
}

impl Snapshot {
    fn write(&self, bytes: &mut Vec<u8>) {
        put_signed(bytes, self.begun.seconds);
        put_number(bytes, self.begun.nanoseconds.into());
        put_bytes(bytes, self.host.as_bytes());
        put_bytes(bytes, self.user.as_bytes());
        put_number(bytes, self.tags.len() as u64);
        for tag in &self.tags {
            put_bytes(bytes, tag.as_bytes());
        }
        put_number(bytes, self.paths.len() as u64);
        for path in &self.paths {
            put_bytes(bytes, path);
        }
        bytes.extend_from_slice(&self.folder.0);
        bytes.extend_from_slice(&self.stamps.0);
        let numbers = [
            self.parent,
            self.files,
            self.folders,
            self.raw_bytes,
            self.new_raw_bytes,
            self.stored_bytes,
        ];
        for number in numbers {
            put_number(bytes, number);
        }
        put_number(bytes, u64::from(self.has_attributes) * HAS_ATTRIBUTES);
    }

    /// Reads all of a snapshot but its flags.
    fn read(reader: &mut Reader<'_>) -> Result<Snapshot> {
        let seconds = reader.signed()?;
        let nanoseconds = reader.number_to(999_999_999)? as u32;
        let (host, user) = (reader.text()?, reader.text()?);
        let count = reader.count(1)?;
        let tags = (0..count).map(|_| reader.text()).collect::<Result<_>>()?;
        let count = reader.count(1)?;
        let paths = (0..count)
            .map(|_| Ok(reader.bytes()?.to_vec()))
            .collect::<Result<_>>()?;
        Ok(Snapshot {
            begun: Time {
                seconds,
                nanoseconds,
            },
            host,
            user,
            tags,
            paths,
            folder: reader.id()?,
            stamps: reader.id()?,
            parent: reader.number()?,
            files: reader.number()?,
            folders: reader.number()?,
            raw_bytes: reader.number()?,
            new_raw_bytes: reader.number()?,
            stored_bytes: reader.number()?,
            has_attributes: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let state = State {
            snapshots: vec![1, 300],
            indexes: vec![7],
            doomed: vec![Doomed {
                pack: Id([1; 16]),
                since: -3,
            }],
        };
        let snapshot = Snapshot {
            begun: Time {
                seconds: 9,
                nanoseconds: 999_999_999,
            },
            host: "host".to_string(),
            tags: vec!["a".to_string(), String::new()],
            paths: vec![vec![0xFF, 1]],
            raw_bytes: u64::MAX,
            has_attributes: true,
            ..Snapshot::default()
        };
        let records = [
            Record::Snapshot(state.clone(), Box::new(snapshot)),
            Record::Fence,
            Record::Change(state),
        ];
        for record in records {
            let bytes = record.write();
            assert_eq!(Record::read(&bytes).unwrap(), record);
            for cut in 0..bytes.len() {
                assert!(Record::read(&bytes[..cut]).is_err(), "{cut} of {record:?}");
            }
        }
    }

    #[test]
    fn a_snapshot_of_before_knows_no_attributes() {
        let snapshot = Snapshot {
            files: 7,
            has_attributes: true,
            ..Snapshot::default()
        };
        let mut bytes = Record::Snapshot(State::default(), Box::new(snapshot.clone())).write();
        bytes[0] = SNAPSHOT_BEFORE;
        bytes.pop();
        let before = Snapshot {
            has_attributes: false,
            ..snapshot
        };
        let read = Record::read(&bytes).unwrap();
        assert_eq!(read, Record::Snapshot(State::default(), Box::new(before)));
    }
}
