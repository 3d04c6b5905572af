//! Database pages over compressed blocks: a file with reads and writes at any offset, with SQLite's locks and
//! transactions. It takes the space of the compressed pages.
//!
//! | file | what it is |
//! |---|---|
//! | `store` | the compressed file of one process, which its connections share |
//! | `connection` | one connection: locks, reads, writes, commit, abort, trim |
//! | `ahead` | what a long transaction has several threads encode |
//! | `locks` | SQLite's locks at SQLite's bytes |
//! | `queue` | who waits to write |
//! | `super_journal` | the journal of its part of a transaction over several databases |
//! | `database` | a database's header, its kinds of pages, its list of free pages |
//! | `transfer` | import, export and their proof |
//!
//! A database is one volume of a block store ([`crate::blocks`]), whose length in bytes is a note. It keeps the store's
//! promises. A transaction is there whole or not at all. Synced changes are there after a crash. No read returns other
//! bytes than were written. Between processes SQLite's own locks allow one writer at a time. Readers have snapshots,
//! which need no lock. The module knows nothing of SQLite's programs, and calls none.

#![deny(unsafe_code)]

mod ahead;
#[cfg(test)]
mod attached_test;
mod connection;
#[cfg(test)]
mod creation_test;
mod database;
mod locks;
#[cfg(test)]
mod page_size_test;
#[cfg(test)]
mod pages_test;
#[cfg(test)]
mod proof_test;
mod queue;
#[cfg(test)]
mod readers_test;
#[cfg(test)]
mod room_test;
#[cfg(test)]
mod space_test;
mod store;
mod super_journal;
mod transfer;
#[cfg(test)]
mod writes_test;

pub use connection::{Connection, Trimmed};
pub use database::{HEADER_BYTES, Header, PLAIN_MAGIC, PageKind};
pub use locks::LockLevel;
pub use store::{FileKind, PageOptions, PageStore, Space, file_kind, file_kind_by, repair};
pub use super_journal::is_part_journal;
pub use transfer::{
    Checked, Foreseen, Transferred, Unreadable, check, export, export_readable, import, predict,
};
