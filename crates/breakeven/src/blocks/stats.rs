//! The statistics of a store, which cost little to ask for.

use super::log::Use;
use super::{Blocks, Turn};
use crate::decide::fields::{Field, FieldTable, Unit, Value};

/// The statistics of a store. Values that only its writer knows are missing while a transaction runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of the last transaction.
    pub commit: u64,
    /// Volumes.
    pub volumes: u64,
    /// The length of the file.
    pub file_bytes: u64,
    /// Segments of the file.
    pub segments: u64,
    /// Snapshots that are held.
    pub snapshots: u64,
    /// Dictionaries that frames are encoded with, or were.
    pub dictionaries: u64,
    /// Bytes of frames, map nodes, chunks of the table and dictionaries with a reference.
    pub live_bytes: Option<u64>,
    /// The length of the segments with anything live.
    pub held_bytes: Option<u64>,
    /// The length of the segments that are free, those included that a snapshot still needs.
    pub free_bytes: Option<u64>,
    /// Bytes of the log that an opening would read.
    pub log_bytes: Option<u64>,
}

fn known(value: Option<u64>) -> Value {
    value.map_or(Value::Unknown, Value::Count)
}

/// The fields of a store's statistics.
pub const STATS_FIELDS: FieldTable<Stats> = FieldTable::new(
    "breakeven_blocks",
    &[
        Field::gauge(
            "commit",
            Unit::None,
            "Number of the last transaction",
            |it| Value::Count(it.commit),
        ),
        Field::gauge("volumes", Unit::None, "Volumes", |it| {
            Value::Count(it.volumes)
        }),
        Field::gauge("file", Unit::Bytes, "Length of the file", |it| {
            Value::Count(it.file_bytes)
        }),
        Field::gauge("segments", Unit::None, "Segments of the file", |it| {
            Value::Count(it.segments)
        }),
        Field::gauge("snapshots", Unit::None, "Snapshots that are held", |it| {
            Value::Count(it.snapshots)
        }),
        Field::gauge("dictionaries", Unit::None, "Dictionaries", |it| {
            Value::Count(it.dictionaries)
        }),
        Field::gauge("live", Unit::Bytes, "Bytes that are referred to", |it| {
            known(it.live_bytes)
        }),
        Field::gauge(
            "held",
            Unit::Bytes,
            "Length of the segments with anything live",
            |it| known(it.held_bytes),
        ),
        Field::gauge(
            "free",
            Unit::Bytes,
            "Length of the segments that are free",
            |it| known(it.free_bytes),
        ),
        Field::gauge("log", Unit::Bytes, "Log that opening would read", |it| {
            known(it.log_bytes)
        }),
    ],
);

impl Blocks {
    /// Returns the store's statistics.
    pub fn stats(&self) -> Stats {
        let turn = self.inner.lock_turn();
        let state = self.inner.shared.state();
        let (live, uses, log_bytes) = match &*turn {
            Turn::Idle(writer) => {
                let log = &writer.log;
                (&log.live[..], &log.uses[..], Some(log.appended_bytes))
            }
            Turn::Untouched(recovery, _) => {
                let ranges = recovery.replayed.iter();
                let read = ranges.map(|range| range.end - range.start).sum();
                (&recovery.live[..], &recovery.uses[..], Some(read))
            }
            Turn::Taken | Turn::Behind | Turn::Refused => (&[][..], &[][..], None),
        };
        let (mut live_bytes, mut held_bytes, mut free_bytes) = (0, 0, 0);
        for ((segment, live), used) in state.segments.iter().zip(live).zip(uses) {
            live_bytes += live;
            match used {
                Use::Free { .. } => free_bytes += segment.bytes,
                Use::Held if *live > 0 => held_bytes += segment.bytes,
                Use::Held => {}
            }
        }
        let is_known = log_bytes.is_some();
        Stats {
            commit: state.commit,
            volumes: state.volumes.len() as u64,
            file_bytes: state.segments.end(0),
            segments: state.segments.len() as u64,
            snapshots: self.inner.shared.held_count(),
            dictionaries: state.dictionaries.len() as u64,
            live_bytes: is_known.then_some(live_bytes),
            held_bytes: is_known.then_some(held_bytes),
            free_bytes: is_known.then_some(free_bytes),
            log_bytes,
        }
    }
}
