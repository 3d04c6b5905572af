//! One connection to a compressed database, in SQLite's terms: lock, read, write, commit, unlock.
//!
//! Under SHARED a connection reads a snapshot, and others may write meanwhile. RESERVED is refused if the snapshot is
//! not the newest then. The first write begins a transaction of the store, which SQLite allows under EXCLUSIVE alone.
//! SQLite's commit has three steps: the transaction is prepared, synced and published. An unlock before the last step
//! takes it back, and nobody saw any of it.

use std::ops::Range;
use std::sync::Arc;

use super::ahead::Held;
use super::database::{HEADER_BYTES, Header, VERSIONS_AT, walk_freelist};
use super::locks::{LockLevel, Locks};
use super::queue::WriterQueue;
use super::store::{Extent, FileKind, Opened, PageCache, PageStore, Space, file_kind, replaced};
use super::super_journal::AttachedPart;
use super::transfer::Progress;
use crate::blocks::{
    BLOCK_BYTES_MIN, Blocks, Cleaned, Durability, EncodedBlock, Location, Snapshot, Transaction,
};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::storage::{FileStatus, StorageFile};

/// A walk ends after this many trunks of the freelist in a row with nothing to trim. Leaves behind them were trimmed
/// when they were freed.
const IDLE_TRUNKS: usize = 2;

/// After this many steps in a row without a shorter file, it is taken to get no shorter.
const IDLE_STEPS: usize = 4;

/// The header's offset of the count of changes.
const CHANGES_AT: u64 = 24;

/// The content that a connection sees.
enum View {
    /// It holds no lock.
    None,
    Read(Arc<Snapshot>),
    Write(Box<Transaction>),
}

impl View {
    /// Reads a block; zeros where there is nothing.
    fn read(&self, volume: u32, index: u64, block: &mut [u8]) -> Result<()> {
        match self {
            View::None => block.fill(0),
            View::Read(snapshot) => snapshot.read(volume, index, block)?,
            View::Write(transaction) => drop(transaction.read(volume, index, block)?),
        }
        Ok(())
    }

    /// Returns the bytes of a block's record, 0 for a hole.
    fn stored_bytes(&self, volume: u32, index: u64) -> Result<u64> {
        match self {
            View::None => Ok(0),
            View::Read(snapshot) => {
                let location = snapshot.locate(volume, index)?;
                Ok(location.map_or(0, |location| location.stored_bytes().into()))
            }
            View::Write(transaction) => transaction.stored_bytes(volume, index),
        }
    }
}

/// The last block that was decoded for a read of a part of it. SQLite reads 16 bytes of the first page whenever it
/// begins to read.
#[derive(Default)]
struct LastBlock {
    location: Option<Location>,
    index: u64,
    bytes: Vec<u8>,
}

/// Space that trimming gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// The number of blocks that became holes.
    pub blocks: u64,
}

/// One connection to a compressed database.
pub struct Connection {
    /// It stands first: a transaction that ends with the connection is taken back under its locks.
    view: View,
    store: Arc<PageStore>,
    file: Arc<dyn StorageFile>,
    locks: Locks,
    queue: WriterQueue,
    /// Present from the first lock on.
    opened: Option<Opened>,
    /// Whether reads bypass the cache: nothing is looked for in it or kept there.
    is_past_cache: bool,
    extent: Extent,
    /// The database's place before this transaction wrote another page length.
    before: Option<Extent>,
    /// The prepared part of a transaction over several databases.
    part: Option<AttachedPart>,
    /// The length of the database after the prepared changes are published. Nothing that a commit writes is cut off.
    cut: Option<u64>,
    last: LastBlock,
    /// Blocks that the transaction still gets, encoded by several threads together.
    held: Held,
    /// The freelist at the last trim: its first page and its count.
    trimmed: (u32, u32),
    /// Whether the first page was written with other bytes than the caller's own cache has.
    is_first_page_other: bool,
    /// The transaction that the caller saw last.
    seen: Option<u64>,
    is_stale: bool,
}

impl Connection {
    /// Opens a connection; nothing is read yet.
    ///
    /// # Errors
    /// Those of opening the file.
    pub fn open(store: Arc<PageStore>) -> Result<Connection> {
        let file = store.open_handle()?;
        store.keep_handle(&*file)?;
        Ok(Connection {
            view: View::None,
            locks: Locks::of_snapshots(Arc::clone(&file)),
            queue: WriterQueue::new(Arc::clone(&file)),
            file,
            store,
            opened: None,
            is_past_cache: false,
            extent: Extent::default(),
            before: None,
            part: None,
            cut: None,
            last: LastBlock::default(),
            held: Held::default(),
            trimmed: (0, 0),
            is_first_page_other: false,
            seen: None,
            is_stale: false,
        })
    }

    /// Shares the store that other connections of the process have open on the same file, under any name. Call it
    /// before the first lock.
    pub fn share(mut self, store: Arc<PageStore>) -> Connection {
        assert!(self.opened.is_none(), "before the first lock");
        self.store = store;
        self
    }

    /// Locks as SQLite does without a write-ahead log, from the next lock on. Readers keep writers out, and writers
    /// keep this connection out.
    pub fn keep_writers_out(&mut self) {
        assert_eq!(self.level(), LockLevel::None, "between two locks");
        self.locks = Locks::new(Arc::clone(&self.file));
    }

    /// Reads from the file from now on, past the cache, and leaves the cache to others. For callers that read
    /// everything once.
    pub fn read_past_cache(&mut self) {
        self.is_past_cache = true;
    }

    /// Returns size, allocation, mode and identity of the compressed file.
    ///
    /// # Errors
    /// Those of asking for it.
    pub fn status(&self) -> Result<FileStatus> {
        self.file.status()
    }

    /// Returns the kind of the file by its first bytes, under any name.
    ///
    /// # Errors
    /// Those of reading.
    pub fn kind(&self) -> Result<FileKind> {
        file_kind(&*self.file)
    }

    /// Returns the file, which other connections of this process share.
    pub fn store(&self) -> &Arc<PageStore> {
        &self.store
    }

    /// Returns the lock level of the connection.
    pub fn level(&self) -> LockLevel {
        self.locks.level()
    }

    /// Raises the lock; returns whether it could, at once.
    ///
    /// # Errors
    /// Those of locking, and of reading the store.
    pub fn lock(&mut self, to: LockLevel) -> Result<bool> {
        let before = self.locks.level();
        self.is_stale = false;
        if before == LockLevel::None && to > LockLevel::None {
            if !self.locks.raise(LockLevel::Shared)? {
                return Ok(false);
            }
            if let Err(error) = self.look() {
                self.locks.lower(LockLevel::None)?;
                return Err(error);
            }
        }
        if before < LockLevel::Reserved && to >= LockLevel::Reserved {
            if !self.locks.raise(LockLevel::Reserved)? {
                self.queue.refused();
                return Ok(false);
            }
            let looked = self.look_again(before);
            if !matches!(looked, Ok(true)) {
                self.unlock_unseen(before)?;
                self.is_stale = looked.is_ok();
                return looked;
            }
            self.queue.admitted();
        }
        self.locks.raise(to)
    }

    /// Returns whether the last lock was refused because another connection committed since this one began to read.
    /// This connection gets no such lock until it reads again.
    pub fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Lowers the lock to SHARED or to none. Changes that were not committed are taken back. A connection that has
    /// written for a while lets others in that wait for that, and waits a moment for them.
    ///
    /// # Errors
    /// Those of unlocking.
    pub fn unlock(&mut self, to: LockLevel) -> Result<()> {
        let has_written = self.level() == LockLevel::Exclusive;
        let seen = self.unlock_unseen(to)?;
        self.seen = seen.or(self.seen);
        if has_written {
            self.queue.ended(|| self.locks.is_reserved())?;
        }
        Ok(())
    }

    /// As [`Connection::unlock`], for a lock under which the caller read nothing that it keeps. Returns the last
    /// transaction that could be seen under it, if it is given up.
    ///
    /// # Errors
    /// As [`Connection::unlock`].
    pub fn unlock_unseen(&mut self, to: LockLevel) -> Result<Option<u64>> {
        let seen = match &self.view {
            View::None => None,
            View::Read(snapshot) => Some(snapshot.commit()),
            View::Write(transaction) => Some(transaction.base_commit()),
        };
        let taken_back = self.take_back();
        if to == LockLevel::None {
            self.view = View::None;
        }
        let viewed = match to {
            LockLevel::None => Ok(()),
            _ => taken_back,
        };
        self.locks.lower(to)?;
        viewed.map(|()| seen.filter(|_| to == LockLevel::None))
    }

    /// Does the last work of a process. If this is the process's last connection and no lock is in the way, it cuts the
    /// end of a file that is too long. It also records in the file where it ends. Nothing is lost without it. The
    /// record is the only way to see later that a file was cut short.
    ///
    /// # Errors
    /// Those of locking, reading and writing.
    ///
    /// # Cost
    /// The cleaning is nothing where this process wrote nothing and the file has no more than its due length. Else it
    /// is as much as [`Blocks::cleaning_allowance`] says, under a lock for each
    /// [`PageOptions::checkpoint_bytes`](super::PageOptions) of it. A process that wrote nothing cleans under one such
    /// lock, since nobody expects to wait for a reader.
    pub fn close(&mut self) -> Result<Cleaned> {
        let opened = self.opened.as_ref();
        let Some(blocks) = opened.map(|opened| opened.blocks.clone()) else {
            return Ok(Cleaned::default());
        };
        let is_last = Arc::strong_count(&self.store) == 1;
        if !is_last || self.level() > LockLevel::None || self.store.options().is_read_only {
            return Ok(Cleaned::default());
        }
        // Writers expect to wait for other writers, and hardly for a reader.
        let steps_max = if blocks.has_written() { usize::MAX } else { 1 };
        let shortened = self.give_back_all(&blocks, steps_max);
        let told = match blocks.has_written() {
            true => self.tell_end(&blocks),
            false => Ok(()),
        };
        told.and(shortened)
    }

    /// Gives the end of a file that is too long back, unless others read or write meanwhile.
    fn give_back_all(&mut self, blocks: &Blocks, steps_max: usize) -> Result<Cleaned> {
        let (mut idle, mut before) = (0, self.file.status()?.size_bytes);
        let (most_bytes, mut sum) = (blocks.cleaning_allowance(), Cleaned::default());
        for _ in 0..steps_max {
            // Others may have written since. Where nothing is to be done they are not kept from it.
            drop(blocks.newest()?);
            if !blocks.can_shrink() {
                break;
            }
            let left_bytes = most_bytes.saturating_sub(sum.read_bytes);
            if left_bytes == 0 {
                break;
            }
            let step = |blocks: &Blocks| blocks.shrink_by_a_step(left_bytes);
            let stepped = match self.lock(LockLevel::Exclusive) {
                Ok(true) => self.clean_with(step).map(Some),
                refused => refused.map(|_| None),
            };
            self.unlock(LockLevel::None)?;
            let Some(cleaned) = stepped? else {
                break;
            };
            sum.add(&cleaned);
            let after = self.file.status()?.size_bytes;
            idle = if after < before { 0 } else { idle + 1 };
            before = after;
            if idle == IDLE_STEPS {
                break;
            }
        }
        Ok(sum)
    }

    fn tell_end(&mut self, blocks: &Blocks) -> Result<()> {
        // Nobody else writes under this lock, and it does not stop readers. Others may have written since.
        let told = match self.lock(LockLevel::Reserved) {
            Ok(true) => blocks.tell_end(),
            locked => locked.map(drop),
        };
        self.unlock(LockLevel::None)?;
        told
    }

    /// Returns whether somebody is about to write.
    ///
    /// # Errors
    /// Those of asking for the lock.
    pub fn is_reserved(&self) -> Result<bool> {
        self.locks.is_reserved()
    }

    /// Moves to the newest content, under SHARED.
    fn look(&mut self) -> Result<()> {
        let opened = self.store.opened()?;
        // The file may have been replaced since: locks of one keep nobody from the other.
        let is_first = self.opened.is_none();
        if is_first && opened.blocks.identity()? != self.file.status()?.identity {
            return Err(replaced(&*self.file));
        }
        self.opened = Some(opened);
        let mut snapshot = self.newest()?;
        if is_first && !self.store.options().is_read_only && self.store.part_journal().is_there()? {
            snapshot = self.clear_part(snapshot)?;
        }
        self.see(snapshot)
    }

    /// Removes the journal of a transaction over several databases that a dead process left beside this one, if nobody
    /// reads through this connection or writes. Opening the database does the same.
    ///
    /// # Errors
    /// Those of locking, reading and removing.
    pub fn clear_left_part(&mut self) -> Result<()> {
        let is_free = self.level() == LockLevel::None && !self.store.options().is_read_only;
        if !is_free || !self.store.part_journal().is_there()? || !self.lock(LockLevel::Shared)? {
            return Ok(());
        }
        let seen = match std::mem::replace(&mut self.view, View::None) {
            View::Read(snapshot) => Arc::into_inner(snapshot),
            _ => None,
        };
        let cleared = seen.map(|seen| self.clear_part(seen)).transpose();
        self.unlock_unseen(LockLevel::None)?;
        cleared.map(drop)
    }

    /// Removes the journal of a dead process's part in a transaction over several databases, if nobody writes.
    fn clear_part(&mut self, seen: Snapshot) -> Result<Snapshot> {
        let before = self.level();
        if !self.locks.raise(LockLevel::Reserved)? {
            return Ok(seen);
        }
        drop(seen);
        // No commit waits for its super-journal behind that.
        let newest = self.newest();
        if newest.is_ok() {
            // Nothing depends on it.
            let _ = self.store.part_journal().clear_stale();
        }
        self.locks.lower(before)?;
        newest
    }

    /// Returns the newest content. If a writer died before it published a commit, the first connection that can ends it
    /// here.
    fn newest(&mut self) -> Result<Snapshot> {
        let blocks = self.blocks()?.clone();
        let before = self.level();
        let mut snapshot = blocks.newest()?;
        let is_reader = before < LockLevel::Reserved;
        if !blocks.is_unpublished() || (is_reader && self.locks.is_reserved()?) {
            return Ok(snapshot);
        }
        // The writer has ended since, perhaps with the publication.
        snapshot = blocks.newest()?;
        let is_writable = !self.store.options().is_read_only;
        if !blocks.is_unpublished() || (is_writable && !self.locks.raise(LockLevel::Reserved)?) {
            return Ok(snapshot);
        }
        drop(snapshot);
        let journal = self.store.part_journal();
        let mut super_journal = None;
        let ended = blocks.end_unpublished(|name| {
            super_journal = Some(name.to_vec());
            journal.is_committed(name)
        });
        if let (Ok(()), Some(name), true) = (&ended, super_journal, is_writable) {
            // Nothing depends on it.
            let _ = journal.clear(&name);
        }
        let ended = ended.and_then(|()| blocks.newest());
        self.locks.lower(before)?;
        ended
    }

    /// Moves to the newest content, under RESERVED: from there on nobody else writes. Returns whether that is the
    /// content seen before, if a lock of the caller's covered it.
    fn look_again(&mut self, before: LockLevel) -> Result<bool> {
        let snapshot = self.newest()?;
        let is_seen = match &self.view {
            View::Read(seen) => seen.commit() == snapshot.commit(),
            _ => false,
        };
        if before > LockLevel::None && !is_seen {
            return Ok(false);
        }
        self.see(snapshot)?;
        Ok(true)
    }

    /// Moves to the newest content that this process knows, under RESERVED at least.
    fn take_snapshot(&mut self) -> Result<()> {
        let snapshot = self.blocks()?.try_snapshot()?;
        self.see(snapshot)
    }

    /// Takes the changes back, prepared or not, and returns to the content before.
    ///
    /// # Errors
    /// As [`Connection::lock`].
    pub fn take_back(&mut self) -> Result<()> {
        let transaction = match std::mem::replace(&mut self.view, View::None) {
            View::Write(transaction) => transaction,
            other => {
                self.view = other;
                return Ok(());
            }
        };
        self.held = Held::default();
        let (taken, part) = (transaction.abort(), self.part.take());
        // A part that may come back after a crash keeps its journal.
        if let (Ok(()), Some(part)) = (&taken, part) {
            part.end();
        }
        taken.and_then(|()| self.take_snapshot())
    }

    /// Ends the prepared changes where the caller rolls back. They are taken back, unless they are part of a
    /// transaction over several databases that is committed already.
    ///
    /// # Errors
    /// As [`Connection::take_back`] and [`Connection::publish`].
    pub fn roll_back(&mut self) -> Result<()> {
        match &self.part {
            Some(part) if part.is_committed()? => self.publish(),
            _ => self.take_back(),
        }
    }

    fn see(&mut self, snapshot: Snapshot) -> Result<()> {
        (self.cut, self.before) = (None, None);
        self.extent = Extent::in_snapshot(&snapshot)?;
        self.view = View::Read(Arc::new(snapshot));
        Ok(())
    }

    fn blocks(&self) -> Result<&Blocks> {
        let unlocked = || Error::invalid("database", "read or written without a lock");
        let opened = self.opened.as_ref();
        Ok(&opened.ok_or_else(unlocked)?.blocks)
    }

    /// Returns the length of the database.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub fn size_bytes(&mut self) -> Result<u64> {
        let is_borrowed = self.borrow_lock()?;
        if matches!(self.view, View::None) && self.level() > LockLevel::None {
            return Err(unseen());
        }
        let size_bytes = self.cut.unwrap_or(self.extent.size_bytes);
        self.give_lock(is_borrowed)?;
        Ok(size_bytes)
    }

    /// Reads at `offset`; returns how many bytes the database has there. The others become zeros.
    ///
    /// Without a lock it takes one for the moment. If somebody keeps it out just then, there are no bytes:
    /// SQLite looks at the header before it locks, and looks again.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the stored bytes differ from the written ones, and those of reading.
    pub fn read(&mut self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let is_borrowed = self.borrow_lock()?;
        let read = match self.view {
            View::None if self.level() == LockLevel::None => {
                target.fill(0);
                Ok(0)
            }
            View::None => Err(unseen()),
            _ => self.read_seen(offset, target),
        };
        self.give_lock(is_borrowed)?;
        read
    }

    fn borrow_lock(&mut self) -> Result<bool> {
        Ok(self.locks.level() == LockLevel::None && self.lock(LockLevel::Shared)?)
    }

    fn give_lock(&mut self, is_borrowed: bool) -> Result<()> {
        if is_borrowed {
            self.unlock_unseen(LockLevel::None)?;
        }
        Ok(())
    }

    fn read_seen(&mut self, offset: u64, target: &mut [u8]) -> Result<usize> {
        let there = self.extent.size_bytes.saturating_sub(offset);
        let count = there.min(target.len() as u64) as usize;
        let (target, behind) = target.split_at_mut(count);
        behind.fill(0);
        for part in parts(offset, count, self.extent.block_bytes) {
            let bytes = &mut target[part.of_buffer.clone()];
            if part.is_whole {
                self.read_block(part.index, bytes)?;
            } else {
                self.load_last(part.index)?;
                bytes.copy_from_slice(&self.last.bytes[part.of_block]);
            }
        }
        serve_versions(offset, target);
        // SQLite asks for these bytes alone to learn whether its cache is still true. A connection that has the
        // database for itself counts its first transaction only.
        if (offset, count) == (CHANGES_AT, 16) {
            let is_other = match &self.view {
                View::Read(snapshot) => self.seen.is_some_and(|seen| seen != snapshot.commit()),
                _ => false,
            };
            if std::mem::take(&mut self.is_first_page_other) || is_other {
                target[0] ^= 0x80;
            }
        }
        Ok(count)
    }

    fn read_block(&self, index: u64, target: &mut [u8]) -> Result<()> {
        match &self.view {
            View::Read(snapshot) => match self.cache() {
                Some(cache) => read_cached(cache, snapshot, (self.extent.volume, index), target),
                None => snapshot.read(self.extent.volume, index, target),
            },
            View::Write(transaction) => match self.held.block(index) {
                Some(held) => {
                    target.copy_from_slice(held);
                    Ok(())
                }
                None => match transaction.read(self.extent.volume, index, target)? {
                    0 => self.read_before(transaction, index, target),
                    _ => Ok(()),
                },
            },
            View::None => Err(unseen()),
        }
    }

    /// Reads a block as it was before, where it was not written in pages of the new length; zeros if it did not exist.
    fn read_before(&self, transaction: &Transaction, index: u64, target: &mut [u8]) -> Result<()> {
        target.fill(0);
        let Some(before) = &self.before else {
            return Ok(());
        };
        let offset = index * target.len() as u64;
        let there = before.size_bytes.saturating_sub(offset);
        let count = there.min(target.len() as u64) as usize;
        let mut block = vec![0; before.block_bytes as usize];
        for part in parts(offset, count, before.block_bytes) {
            transaction.read(before.volume, part.index, &mut block)?;
            target[part.of_buffer].copy_from_slice(&block[part.of_block]);
        }
        Ok(())
    }

    fn cache(&self) -> Option<&PageCache> {
        let opened = self.opened.as_ref().filter(|_| !self.is_past_cache);
        opened?.cache.as_deref()
    }

    /// Brings a block into `last`, if it is not there already.
    fn load_last(&mut self, index: u64) -> Result<()> {
        let location = match &self.view {
            View::Read(snapshot) => snapshot.locate(self.extent.volume, index)?,
            _ => None,
        };
        let block_bytes = self.extent.block_bytes as usize;
        if location.is_none()
            || location != self.last.location
            || self.last.bytes.len() != block_bytes
        {
            let mut bytes = std::mem::take(&mut self.last.bytes);
            self.last.location = None;
            bytes.resize(block_bytes, 0);
            self.read_block(index, &mut bytes)?;
            self.last = LastBlock {
                location,
                index,
                bytes,
            };
        }
        Ok(())
    }

    /// Writes at `offset`, which EXCLUSIVE allows.
    ///
    /// # Errors
    /// [`Error::Invalid`] without the lock, and those of the store.
    pub fn write(&mut self, offset: u64, source: &[u8]) -> Result<()> {
        self.begin()?;
        if self.extent.block_bytes == 0 {
            self.create_volume(source.len())?;
        } else if let Some(page_bytes) = self.changed_page_bytes(offset, source)? {
            self.begin_anew(page_bytes)?;
        }
        let block_bytes = self.extent.block_bytes;
        let is_header = offset == 0 && source.len() >= HEADER_BYTES;
        for part in parts(offset, source.len(), block_bytes) {
            let bytes = &source[part.of_buffer.clone()];
            if part.is_whole && !(is_header && part.index == 0) {
                self.write_block(part.index, bytes)?;
                continue;
            }
            let mut block = vec![0; block_bytes as usize];
            if !part.is_whole {
                self.read_block(part.index, &mut block)?;
            }
            block[part.of_block].copy_from_slice(bytes);
            if part.index == 0 {
                self.is_first_page_other |= serve_versions(0, &mut block);
            }
            self.write_block(part.index, &block)?;
        }
        self.extent.size_bytes = self.extent.size_bytes.max(offset + source.len() as u64);
        Ok(())
    }

    /// Begins to write blocks that others encode, with pages of `page_bytes`. Returns the encoder, the volume and the
    /// length of its blocks.
    ///
    /// # Errors
    /// As [`Connection::write`].
    pub(super) fn begin_encoded(&mut self, page_bytes: usize) -> Result<(Blocks, Extent)> {
        self.begin()?;
        if self.extent.block_bytes == 0 {
            self.create_volume(page_bytes)?;
        }
        Ok((self.blocks()?.clone(), self.extent))
    }

    /// Writes a block that was encoded since [`Connection::begin_encoded`], the first one as it is served.
    ///
    /// # Errors
    /// As [`Connection::write`].
    pub(super) fn write_encoded(
        &mut self,
        index: u64,
        block: &[u8],
        encoded: &EncodedBlock,
    ) -> Result<()> {
        let end = (index + 1) * u64::from(self.extent.block_bytes);
        let address = (self.extent.volume, index);
        self.transaction()?.write_encoded(address, block, encoded)?;
        self.extent.size_bytes = self.extent.size_bytes.max(end);
        Ok(())
    }

    /// Returns the connection's view, for several threads to read; under a lock, without changes.
    ///
    /// # Errors
    /// [`Error::Invalid`] otherwise.
    pub(super) fn seen(&self) -> Result<Seen> {
        match &self.view {
            View::Read(snapshot) => Ok(Seen {
                snapshot: Arc::clone(snapshot),
                extent: self.extent,
            }),
            _ => Err(unseen()),
        }
    }

    /// Returns the length of the log behind the last checkpoint, without changes.
    ///
    /// # Errors
    /// [`Error::Invalid`] otherwise.
    pub(super) fn log_bytes(&self) -> Result<u64> {
        self.blocks()?.stats().log_bytes.ok_or_else(unseen)
    }

    fn write_block(&mut self, index: u64, block: &[u8]) -> Result<()> {
        let volume = self.extent.volume;
        match self.held.takes(index, block, self.store.options().threads) {
            true if self.held.is_full() => self.give_held()?,
            true => {}
            false => self.transaction()?.write(volume, index, block)?,
        }
        if index == 0 || index == self.last.index {
            // The first one will be asked for again, behind the transaction.
            self.last = LastBlock {
                location: None,
                index,
                bytes: block.to_vec(),
            };
        }
        Ok(())
    }

    /// Gives the held blocks to the transaction.
    fn give_held(&mut self) -> Result<()> {
        let held = self.held.take();
        if held.is_empty() {
            return Ok(());
        }
        let (volume, threads) = (self.extent.volume, self.store.options().threads);
        let encoded = super::ahead::encode(self.blocks()?, volume, &held, threads)?;
        let transaction = self.transaction()?;
        let mut both = held.iter().zip(&encoded);
        both.try_for_each(|((index, block), encoded)| {
            transaction.write_encoded((volume, *index), block, encoded)
        })
    }

    /// Returns the length of pages that a write of the header changes, if pages of that length have other blocks.
    /// `VACUUM` behind `PRAGMA page_size` and a backup write pages in pieces of the old length. Only the header has the
    /// new one.
    fn changed_page_bytes(&mut self, offset: u64, source: &[u8]) -> Result<Option<usize>> {
        if offset > 0 || self.before.is_some() {
            return Ok(None);
        }
        let Some(next) = Header::parse(source) else {
            return Ok(None);
        };
        let page_bytes = next.page_bytes as usize;
        if self.block_bytes_for(page_bytes) == self.extent.block_bytes {
            return Ok(None);
        }
        let header = self.header()?;
        let is_changed = header.is_some_and(|it| it.page_bytes != next.page_bytes);
        Ok(is_changed.then_some(page_bytes))
    }

    /// Goes on in a volume of its own, of blocks for pages of this length.
    fn begin_anew(&mut self, page_bytes: usize) -> Result<()> {
        self.give_held()?;
        self.before = Some(self.extent);
        self.last = LastBlock::default();
        self.create_volume(page_bytes)
    }

    /// Copies the blocks that were not rewritten into the new volume, up to the database's end, and gives up the old
    /// volume.
    fn leave_before(&mut self) -> Result<()> {
        let Some(before) = self.before else {
            return Ok(());
        };
        let block_bytes = u64::from(self.extent.block_bytes);
        // Pages behind the header's count are about to be cut off.
        let meant = self.header()?.and_then(|header| header.size_bytes);
        let end = meant.unwrap_or(u64::MAX).min(before.size_bytes);
        let mut block = vec![0; block_bytes as usize];
        for index in 0..end.div_ceil(block_bytes) {
            let volume = self.extent.volume;
            if !self.transaction()?.is_mapped(volume, index)? {
                self.read_block(index, &mut block)?;
                self.transaction()?.write(volume, index, &block)?;
            }
        }
        self.before = None;
        self.transaction()?.remove_volume(before.volume)
    }

    /// Returns the block length for pages of this length.
    fn block_bytes_for(&self, page_bytes: usize) -> u32 {
        let wanted = page_bytes.next_power_of_two() as u64;
        let most = self.store.options().block_bytes_max;
        wanted.clamp(BLOCK_BYTES_MIN.into(), most.into()) as u32
    }

    /// Makes the volume, of blocks as long as the first write: SQLite writes whole pages.
    fn create_volume(&mut self, write_bytes: usize) -> Result<()> {
        let block_bytes = self.block_bytes_for(write_bytes);
        // It may have been made longer already.
        let blocks = self.extent.size_bytes.div_ceil(block_bytes.into());
        let transaction = self.transaction()?;
        let volume = transaction.create_volume(block_bytes)?;
        if blocks > 0 {
            transaction.resize(volume, blocks)?;
        }
        (self.extent.volume, self.extent.block_bytes) = (volume, block_bytes);
        Ok(())
    }

    fn begin(&mut self) -> Result<()> {
        if self.is_prepared() {
            // A write of SQLite behind a sync means that it rolls back the synced changes.
            self.take_back()?;
        }
        if matches!(self.view, View::Write(_)) {
            return Ok(());
        }
        if self.locks.level() != LockLevel::Exclusive {
            return Err(Error::invalid("database", "written without EXCLUSIVE"));
        }
        if matches!(self.view, View::None) {
            self.take_snapshot()?;
        }
        let transaction = self.blocks()?.begin()?;
        self.view = View::Write(Box::new(transaction));
        self.last = LastBlock::default();
        self.held = Held::default();
        Ok(())
    }

    fn transaction(&mut self) -> Result<&mut Transaction> {
        match &mut self.view {
            View::Write(transaction) => Ok(transaction),
            _ => Err(Error::invalid("database", "no transaction")),
        }
    }

    /// Cuts the database, or makes it longer by zeros. Prepared changes are cut when they are published.
    ///
    /// # Errors
    /// As [`Connection::write`].
    pub fn truncate(&mut self, size_bytes: u64) -> Result<()> {
        if self.is_prepared() {
            self.cut = Some(size_bytes);
            return Ok(());
        }
        if size_bytes == self.extent.size_bytes {
            return Ok(());
        }
        self.begin()?;
        self.give_held()?;
        let Extent {
            block_bytes,
            volume,
            ..
        } = self.extent;
        if block_bytes > 0 {
            let blocks = size_bytes.div_ceil(block_bytes.into());
            self.transaction()?.resize(volume, blocks)?;
            let kept = (size_bytes % u64::from(block_bytes)) as usize;
            if size_bytes < self.extent.size_bytes && kept > 0 {
                let mut block = vec![0; block_bytes as usize];
                self.read_block(blocks - 1, &mut block)?;
                block[kept..].fill(0);
                self.write_block(blocks - 1, &block)?;
            }
        }
        self.extent.size_bytes = size_bytes;
        if let Some(before) = &mut self.before {
            before.size_bytes = before.size_bytes.min(size_bytes);
        }
        Ok(())
    }

    /// Lets the next commit record another length than the database has.
    #[cfg(test)]
    pub(super) fn note_length(&mut self, size_bytes: u64) {
        self.extent.size_bytes = size_bytes;
    }

    /// Makes the changes visible, all at once; durable they are after [`Connection::sync`]. Does nothing
    /// without changes.
    ///
    /// # Errors
    /// As [`Connection::prepare`].
    pub fn commit(&mut self) -> Result<()> {
        if self.is_prepared() {
            return self.publish();
        }
        self.end_changes()?;
        self.end(|transaction| transaction.commit(Durability::Lazy))
    }

    /// Writes the changes, which nobody else sees before they are published.
    ///
    /// # Errors
    /// Those of the store. The changes are then taken back, and nobody sees them. Where that fails too, the next
    /// opening may find them.
    pub fn prepare(&mut self) -> Result<()> {
        self.end_changes()?;
        let part = self.part.as_ref();
        let super_journal = part.map_or(&[][..], AttachedPart::super_journal);
        let prepared = match &mut self.view {
            View::Write(transaction) => transaction.prepare_with(super_journal),
            _ => Ok(()),
        };
        if prepared.is_err() {
            // Reads are refused without a snapshot.
            let _ = self.take_back();
        }
        prepared
    }

    /// As [`Connection::prepare`], for one part of a transaction over several databases. SQLite commits such a
    /// transaction by the removal of its super-journal. If this process dies before it publishes, the changes count if
    /// the super-journal is gone, and do not count if it is there. Until then a journal beside the database says so to
    /// others.
    ///
    /// # Errors
    /// As [`Connection::prepare`], and those of making the journal.
    pub fn prepare_part(&mut self, super_journal: &[u8]) -> Result<()> {
        if matches!(self.view, View::Write(_)) {
            let begun = self.file.status().and_then(|status| {
                let journal = self.store.part_journal();
                journal.begin(super_journal, status.mode)
            });
            match begun {
                Ok(part) => self.part = Some(part),
                Err(error) => {
                    let _ = self.take_back();
                    return Err(error);
                }
            }
        }
        self.prepare()
    }

    /// Returns whether changes are prepared.
    pub fn is_prepared(&self) -> bool {
        matches!(&self.view, View::Write(transaction) if transaction.is_prepared())
    }

    /// Gives all changed blocks to the transaction.
    fn end_changes(&mut self) -> Result<()> {
        let given = self.give_held().and_then(|()| self.leave_before());
        let given = given.and_then(|()| self.promise());
        let extent = self.extent;
        let noted = given.and_then(|()| match &mut self.view {
            View::Write(transaction) if extent.block_bytes > 0 => extent.note_in(transaction),
            _ => Ok(()),
        });
        if noted.is_err() {
            let _ = self.take_back();
        }
        noted
    }

    /// If a transaction finds little room, reports to it how much trimming will free behind it.
    fn promise(&mut self) -> Result<()> {
        let must_free = match &mut self.view {
            View::Write(transaction) => transaction.must_free(),
            _ => false,
        };
        if must_free {
            let dying_bytes = self.trimmable_bytes()?;
            self.transaction()?.will_free(dying_bytes);
        }
        Ok(())
    }

    /// Makes prepared changes visible, all at once. Without a sync before they are only as durable as a commit.
    ///
    /// # Errors
    /// Those of [`Connection::prepare`] and [`Connection::sync`], if either failed.
    pub fn publish(&mut self) -> Result<()> {
        if !self.is_prepared() {
            return Ok(());
        }
        let (cut, part) = (self.cut, self.part.take());
        self.end(Transaction::publish)?;
        self.cut = cut;
        if let Some(part) = part {
            part.end();
        }
        Ok(())
    }

    /// Ends the transaction, and moves to the content that results.
    fn end(&mut self, end: impl FnOnce(Transaction) -> Result<u64>) -> Result<()> {
        let transaction = match std::mem::replace(&mut self.view, View::None) {
            View::Write(transaction) => transaction,
            other => {
                self.view = other;
                return Ok(());
            }
        };
        let (extent, is_durable) = (self.extent, transaction.is_durable());
        let committed = end(*transaction);
        if committed.is_ok() && !is_durable {
            self.store.note_commit();
        }
        // The transaction is there, or is not, with or without a view of it now. Without a snapshot reads are refused.
        let _ = self.take_snapshot();
        if let (Ok(_), View::Read(snapshot)) = (&committed, &self.view) {
            let located = snapshot.locate(extent.volume, self.last.index);
            self.last.location = located.ok().flatten();
        }
        committed.map(drop)
    }

    /// Makes committed or prepared changes durable.
    ///
    /// # Errors
    /// Those of syncing, after which the store refuses changes. Prepared changes are then taken back, as by
    /// [`Connection::prepare`].
    pub fn sync(&mut self) -> Result<()> {
        match (&mut self.view, &self.opened) {
            (View::Write(transaction), _) => self.store.sync_with(|| transaction.sync()),
            (_, Some(opened)) => self.store.sync(&opened.blocks),
            (_, None) => Ok(()),
        }
    }

    /// Carries out the cuts behind the published changes, and punches holes for the freelist's leaves, whose contents
    /// mean nothing. Losing this in a crash is harmless. It must not come before the transaction that freed them is
    /// final: SQLite keeps no journal of them.
    ///
    /// # Errors
    /// As [`Connection::write`].
    pub fn trim(&mut self) -> Result<Trimmed> {
        if let Some(size_bytes) = self.cut.take() {
            self.truncate(size_bytes)?;
            self.commit()?;
        }
        let Some(header) = self.header()? else {
            return Ok(Trimmed::default());
        };
        let freelist = (header.freelist_page, header.freelist_count);
        if freelist == self.trimmed || header.freelist_count == 0 {
            self.trimmed = freelist;
            return Ok(Trimmed::default());
        }
        let ranges = self.trimmable(header)?;
        let mut trimmed = Trimmed::default();
        if !ranges.is_empty() {
            self.begin()?;
            let volume = self.extent.volume;
            for range in ranges {
                trimmed.blocks += range.end - range.start;
                self.transaction()?.trim(volume, range)?;
            }
            self.commit()?;
        }
        self.trimmed = freelist;
        Ok(trimmed)
    }

    /// Cleans the compressed file if that is due, so that it keeps its length. Cuts its end if it is too long and
    /// nobody reads. Call it under EXCLUSIVE, without changes. Losing this in a crash is harmless.
    ///
    /// # Errors
    /// Those of the store. Committed changes remain.
    pub fn tidy(&mut self) -> Result<Cleaned> {
        let blocks = self.blocks()?;
        if !blocks.is_cleaning_due() && !blocks.is_giving_back_due() {
            return Ok(Cleaned::default());
        }
        self.clean_with(|blocks| {
            let most_bytes = blocks.cleaning_allowance();
            let mut cleaned = blocks.give_back(most_bytes)?;
            let left_bytes = most_bytes.saturating_sub(cleaned.read_bytes);
            if left_bytes > 0 {
                cleaned.add(&blocks.tidy_within(left_bytes)?);
            }
            blocks.note_unasked(&cleaned);
            Ok(cleaned)
        })
    }

    /// Trims, and makes the compressed file as dense as [`Blocks::make_dense`] does, if that makes it shorter. Call it
    /// under EXCLUSIVE, without changes.
    ///
    /// # Errors
    /// As [`Connection::trim`] and [`Connection::tidy`].
    pub fn shrink(&mut self) -> Result<(Trimmed, Cleaned)> {
        let dying_bytes = self.trimmable_bytes()?;
        // The old view no longer keeps segments from being freed.
        self.view = View::None;
        let is_sparse = self.blocks()?.is_sparse(dying_bytes);
        self.take_snapshot()?;
        if !is_sparse? {
            return Ok(Default::default());
        }
        let trimmed = self.trim()?;
        self.sync()?;
        let cleaned = self.clean_with(Blocks::make_dense)?;
        Ok((trimmed, cleaned))
    }

    /// Writes all pages again, as dense as [`PageOptions`](super::PageOptions) say, and makes the file as short as its
    /// options ask for. Call it under EXCLUSIVE, without changes. Losing this in a crash is harmless. `progress` hears
    /// how many of how many segments of the file are done.
    ///
    /// # Errors
    /// As [`Connection::tidy`], and [`Error::Interrupted`] if it is not to go on. The file may be longer then than
    /// before.
    pub fn rewrite(&mut self, progress: Progress<'_>) -> Result<Cleaned> {
        self.clean_with(|blocks| blocks.rewrite_with(progress))
    }

    fn clean_with(&mut self, clean: impl FnOnce(&Blocks) -> Result<Cleaned>) -> Result<Cleaned> {
        if matches!(self.view, View::Write(_)) || self.level() != LockLevel::Exclusive {
            return Err(Error::invalid("database", "cleaned while it is in use"));
        }
        // The snapshot would keep the freed blocks.
        self.view = View::None;
        let cleaned = clean(self.blocks()?);
        self.take_snapshot()?;
        cleaned
    }

    /// Learns from pages like those about to be written, under EXCLUSIVE, without changes; see [`Blocks::learn`].
    ///
    /// # Errors
    /// As [`Connection::tidy`].
    pub(super) fn learn(
        &mut self,
        pages: &[Vec<u8>],
        stored_bytes: u64,
        pool: &Pool,
    ) -> Result<()> {
        let longest = self.store.options().block_bytes_max as usize;
        let blocks = pages.iter().flat_map(|page| page.chunks(longest));
        self.blocks()?.learn(blocks, stored_bytes, pool)?;
        self.take_snapshot()
    }

    /// Returns the database's header, if it has one.
    fn header(&mut self) -> Result<Option<Header>> {
        let mut bytes = [0; HEADER_BYTES];
        let read = self.read(0, &mut bytes)?;
        Ok(Header::parse(&bytes[..read]))
    }

    /// Returns the bytes of the blocks that trimming would free.
    fn trimmable_bytes(&mut self) -> Result<u64> {
        let Some(header) = self.header()? else {
            return Ok(0);
        };
        let mut sum = 0;
        for index in self.trimmable(header)?.into_iter().flatten() {
            sum += self.view.stored_bytes(self.extent.volume, index)?;
        }
        Ok(sum)
    }

    /// Returns the blocks of free pages that hold anything.
    fn trimmable(&mut self, header: Header) -> Result<Vec<Range<u64>>> {
        let (page_bytes, block_bytes) = (header.page_bytes, self.extent.block_bytes);
        // A page that shares its block with others cannot be given back.
        let blocks_a_page = u64::from(page_bytes / block_bytes.max(1));
        if !page_bytes.is_multiple_of(block_bytes.max(1)) || blocks_a_page == 0 {
            return Ok(Vec::new());
        }
        let (view, volume) = (&self.view, self.extent.volume);
        let page_count = self.extent.size_bytes / u64::from(page_bytes);
        let blocks_of = |number: u64| (number - 1) * blocks_a_page..number * blocks_a_page;
        let read = |number: u64, page: &mut [u8]| {
            let blocks = page.chunks_exact_mut(block_bytes as usize);
            let mut numbered = blocks_of(number).zip(blocks);
            numbered.try_for_each(|(index, block)| view.read(volume, index, block))
        };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut idle = 0;
        walk_freelist(header, page_count, read, |numbers| {
            numbers.sort_unstable();
            let before = ranges.len();
            for number in numbers {
                let blocks = blocks_of(*number);
                if view.stored_bytes(volume, blocks.start)? == 0 {
                    continue;
                }
                match ranges.last_mut() {
                    Some(last) if last.end == blocks.start => last.end = blocks.end,
                    _ => ranges.push(blocks),
                }
            }
            idle = if ranges.len() == before { idle + 1 } else { 0 };
            Ok(idle < IDLE_TRUNKS)
        })?;
        Ok(ranges)
    }

    /// Returns a block's place, `None` for zeros; under a lock.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub fn locate(&self, offset: u64) -> Result<Option<Location>> {
        match (&self.view, self.extent.block_bytes) {
            (_, 0) => Ok(None),
            (View::Read(snapshot), bytes) => {
                snapshot.locate(self.extent.volume, offset / u64::from(bytes))
            }
            _ => Ok(None),
        }
    }

    /// Returns a page's position in the file and the bytes it takes; under a lock.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub fn page_place(&mut self, number: u64) -> Result<(u64, u64)> {
        let Some(header) = self.header()? else {
            return Ok((0, 0));
        };
        let start = number.saturating_sub(1) * u64::from(header.page_bytes);
        let end = start + u64::from(header.page_bytes);
        let (mut address, mut bytes) = (0, 0);
        for offset in (start..end).step_by(self.extent.block_bytes.max(512) as usize) {
            if let Some(location) = self.locate(offset)? {
                address = if bytes == 0 {
                    location.address
                } else {
                    address
                };
                bytes += u64::from(location.stored_bytes());
            }
        }
        Ok((address, bytes))
    }

    /// Adds up the pages' space; under a lock, without changes.
    ///
    /// # Errors
    /// As [`Connection::read`], and [`Error::Corrupt`] if that is more than the file has.
    ///
    /// # Cost
    /// A walk over the map.
    pub fn space(&self) -> Result<Space> {
        let status = self.file.status()?;
        let mut space = Space {
            logical_bytes: self.extent.size_bytes,
            file_bytes: status.size_bytes,
            allocated_bytes: status.allocated_bytes,
            block_bytes: self.extent.block_bytes,
            ..Space::default()
        };
        let (View::Read(snapshot), volume) = (&self.view, self.extent.volume) else {
            return Ok(space);
        };
        if self.extent.block_bytes == 0 {
            return Ok(space);
        }
        let mut from = 0;
        while let Some(index) = snapshot.first_mapped(volume, from)? {
            from = index + 1;
            let location = snapshot.locate(volume, index)?;
            space.stored_bytes += location.map_or(0, |it| u64::from(it.stored_bytes()));
            space.stored_blocks += u64::from(location.is_some());
            // Each page is stored for itself. A map with more would be walked for ever.
            if space.stored_bytes > space.file_bytes {
                let expected = format!("at most {}", space.file_bytes);
                let what = "what the pages take in the file";
                return Err(Error::corrupt(what, 0, expected, space.stored_bytes));
            }
        }
        Ok(space)
    }

    /// Writes a checkpoint, so that a later opening need not read the log, under EXCLUSIVE.
    ///
    /// # Errors
    /// Those of writing.
    pub fn checkpoint(&mut self) -> Result<()> {
        self.blocks()?.checkpoint()?;
        self.take_snapshot()
    }
}

/// The content that a connection sees at one moment.
#[derive(Clone)]
pub(super) struct Seen {
    snapshot: Arc<Snapshot>,
    extent: Extent,
}

impl Seen {
    /// Returns the first place at or behind `offset` where anything is stored. Everything before it is zeros.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub(super) fn first_stored(&self, offset: u64) -> Result<Option<u64>> {
        let (volume, block_bytes) = (self.extent.volume, u64::from(self.extent.block_bytes));
        if block_bytes == 0 {
            return Ok(None);
        }
        let index = self.snapshot.first_mapped(volume, offset / block_bytes)?;
        let start = index.map(|index| offset.max(index * block_bytes));
        Ok(start.filter(|start| *start < self.extent.size_bytes))
    }

    /// Returns whether a place lies before the database's end.
    pub(super) fn is_inside(&self, offset: u64) -> bool {
        offset < self.extent.size_bytes
    }

    /// Returns the length of an existing database's blocks.
    pub(super) fn block_bytes(&self) -> usize {
        self.extent.block_bytes.max(BLOCK_BYTES_MIN) as usize
    }

    /// Reads the database at `offset`, where a block begins, past the cache. All of the target must be there.
    ///
    /// # Errors
    /// As [`Connection::read`].
    pub(super) fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let (volume, block_bytes) = (self.extent.volume, self.extent.block_bytes as usize);
        let first = offset / block_bytes as u64;
        let (whole, rest) = target.split_at_mut(target.len() / block_bytes * block_bytes);
        self.snapshot.read_run(volume, first, whole)?;
        if !rest.is_empty() {
            let mut block = vec![0; block_bytes];
            let index = first + (whole.len() / block_bytes) as u64;
            self.snapshot.read(volume, index, &mut block)?;
            rest.copy_from_slice(&block[..rest.len()]);
        }
        serve_versions(offset, target);
        Ok(())
    }
}

/// Reads a block of a snapshot, from the cache if it is there.
fn read_cached(
    cache: &PageCache,
    snapshot: &Snapshot,
    (volume, index): (u32, u64),
    target: &mut [u8],
) -> Result<()> {
    let Some(location) = snapshot.locate(volume, index)? else {
        target.fill(0);
        return Ok(());
    };
    let load = |frame: &mut [u8]| snapshot.read_located(&location, frame);
    match cache.get_or_load(location, target.len(), load) {
        Ok(block) if block.len() == target.len() => {
            target.copy_from_slice(&block);
            Ok(())
        }
        // So many read at once that the cache cannot lend its pages.
        Ok(_) | Err(Error::Limit { .. }) => snapshot.read_located(&location, target),
        Err(error) => Err(error),
    }
}

fn unseen() -> Error {
    Error::invalid("database", "read without a snapshot")
}

/// Makes the header say that a rollback journal writes and reads the database. A compressed database has no write-ahead
/// log, even where the database that was copied had one. Returns whether that changed anything.
pub(super) fn serve_versions(offset: u64, bytes: &mut [u8]) -> bool {
    let mut is_changed = false;
    for at in VERSIONS_AT..VERSIONS_AT + 2 {
        let at = (at as u64).checked_sub(offset);
        let byte = at.and_then(|at| bytes.get_mut(at as usize));
        if let Some(byte) = byte.filter(|byte| **byte == 2) {
            *byte = 1;
            is_changed = true;
        }
    }
    is_changed
}

/// A part of a range that lies in one block.
struct Part {
    index: u64,
    of_block: Range<usize>,
    of_buffer: Range<usize>,
    is_whole: bool,
}

fn parts(offset: u64, count: usize, block_bytes: u32) -> impl Iterator<Item = Part> {
    let block_bytes = u64::from(block_bytes.max(1));
    let end = offset + count as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (index, start) = (at / block_bytes, at % block_bytes);
        let bytes = (block_bytes - start).min(end - at);
        let buffer_start = (at - offset) as usize;
        at += bytes;
        Some(Part {
            index,
            of_block: start as usize..(start + bytes) as usize,
            of_buffer: buffer_start..buffer_start + bytes as usize,
            is_whole: bytes == block_bytes,
        })
    })
}
