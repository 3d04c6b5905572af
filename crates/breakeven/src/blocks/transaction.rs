//! A transaction: changes that become visible together, or not at all.
//!
//! A commit that is to be durable is written, synced, and then shown. This process sees it at once. Others see it by a
//! publication in the log, which needs no sync. Until then it can be taken back: padding takes its place.

use std::ops::Range;
use std::sync::Arc;

use super::checkpoint::{Leaves, Writer, apply_live, place_of};
use super::coding::{Chosen, Hidden, Moment, Subject, without_tail};
use super::file::{Workspace, check_block_bytes, decode_frame};
use super::layout::{
    COORDINATOR_BYTES_MAX, Commit, FramePrefix, KIND_COMMIT, KIND_FRAME, KIND_OPERATIONS, Operation,
};
use super::log::PUBLICATION_ROOM_BYTES;
use super::place::Place;
use super::recovery::chain;
use super::snapshot::find;
use super::state::{INDEX_MAX, LiveChanges, NOTE_BYTES_MAX, State, Work};
use super::{Inner, Reserve, is_for_room};
use crate::codec::Decoder;
use crate::error::{Error, Result};
use crate::storage::record::{ALIGNMENT_BYTES, Label, Placed, parse, record_bytes};

/// Above this many bytes operations are written as a record of their own, so that a commit stays short.
const OPERATIONS_BYTES: usize = 2 << 10;
/// A checkpoint is due as well once the changes in memory reach so many times the log that makes one due. A record that
/// frees many blocks is short.
const CHANGED_PER_LOG: u64 = 4;

/// The time from which on a transaction survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the commit has returned.
    Durable,
    /// When a later durable one, or a sync, has returned. Until then a crash leaves all transactions up to some moment,
    /// and none behind it.
    Lazy,
}

/// A block as it will be stored, encoded before its transaction begins. Several threads may encode blocks side by side,
/// without the turn to write.
#[derive(Debug, Default)]
pub struct EncodedBlock {
    /// Its bytes before the zeros at its end.
    used_bytes: usize,
    /// `None` if it is to be stored as it is.
    stored: Option<(Decoder, Vec<u8>)>,
}

/// The chosen encoding of a block, before its transaction begins or beside it. Choosing is quick, and is done for one
/// block behind the other, so that the same blocks are stored in the same way. Any thread may do the work.
#[derive(Debug, Default)]
pub struct ChosenEncoding(Chosen);

impl ChosenEncoding {
    pub(super) fn new(inner: &Inner, block: &[u8], address: (u32, u64)) -> Result<ChosenEncoding> {
        let state = inner.shared.state();
        let subject = subject_of(block, address, &state);
        let coding = &inner.coding;
        // A sync hides little of so many blocks.
        let choose = |workspace: &mut Workspace| {
            coding.choose(&subject, &mut Hidden::NONE.clone(), workspace)
        };
        inner.file.with_workspace(choose).map(ChosenEncoding)
    }
}

impl EncodedBlock {
    pub(super) fn new(
        inner: &Inner,
        block: &[u8],
        chosen: &ChosenEncoding,
    ) -> Result<EncodedBlock> {
        let block = without_tail(block);
        inner.file.with_workspace(|workspace| {
            let encoded = chosen.0.encode(workspace, block, limit_of(block))?;
            let copy = |(decoder, length): (_, usize)| {
                // Many of them wait together.
                let mut bytes = Vec::new();
                let taken = bytes.try_reserve_exact(length);
                taken.map_err(|_| Error::OutOfMemory { what: "a frame" })?;
                bytes.extend_from_slice(&workspace.bytes[..length]);
                Ok((decoder, bytes))
            };
            Ok(EncodedBlock {
                used_bytes: block.len(),
                stored: encoded.map(copy).transpose()?,
            })
        })
    }

    fn dictionary(&self) -> u32 {
        let stored = self.stored.as_ref();
        stored.map_or(0, |(decoder, _)| decoder.dictionary)
    }
}

fn subject_of<'a>(block: &'a [u8], (volume, index): (u32, u64), state: &'a State) -> Subject<'a> {
    let block = without_tail(block);
    let commit = state.commit;
    Subject {
        block,
        moment: Moment::Written,
        dictionaries: &state.dictionaries,
        hash: index ^ u64::from(volume) << 40 ^ commit.rotate_left(24),
        limit: limit_of(block),
    }
}

/// An encoding that does not save a record's unit is not worth its decoding.
fn limit_of(block: &[u8]) -> usize {
    block.len().saturating_sub(ALIGNMENT_BYTES)
}

/// A commit in the log that nobody sees.
struct Written {
    number: u64,
    placed: Placed,
    /// Whether it must be synced before it is shown.
    is_durable: bool,
    is_synced: bool,
    /// The name of its coordinator, empty without one.
    coordinator: Box<[u8]>,
}

/// A transaction that runs; dropping it aborts.
pub struct Transaction {
    pub(super) inner: Arc<Inner>,
    /// Taken when the transaction ends.
    writer: Option<Box<Writer>>,
    pub(super) state: State,
    live: LiveChanges,
    /// The room that it leaves to others.
    pub(super) leaves: Leaves,
    has_blocks: bool,
    /// Bytes that will die behind it.
    dying_bytes: u64,
    /// The part of the reserve for transactions that free which it leaves, beside the room of [`Leaves::Cleaning`].
    left_bytes: u64,
    /// The checksums of the records so far.
    checksums: Vec<u32>,
    /// Operations that no record holds yet.
    operations: Vec<u8>,
    is_changed: bool,
    written: Option<Written>,
    failure: Option<Error>,
    /// The rest of the blocks' encoding time that the commit's sync still hides.
    hidden: Hidden,
}

impl Transaction {
    pub(super) fn new(inner: Arc<Inner>, mut writer: Box<Writer>) -> Transaction {
        let mut state = State::clone(&inner.shared.state());
        state.segments = writer.log.segments.clone();
        writer.log.lacks_room = false;
        Transaction {
            inner,
            writer: Some(writer),
            state,
            live: LiveChanges::new(),
            leaves: Leaves::All,
            has_blocks: false,
            dying_bytes: 0,
            left_bytes: 0,
            checksums: Vec::new(),
            operations: Vec::new(),
            is_changed: false,
            written: None,
            failure: None,
            hidden: Hidden::default(),
        }
    }

    /// Returns how much room to make before this transaction. There is less than it leaves to others, in the file and
    /// on the host, and more may be made. `bytes` are those that it will write; a little is for callers that do not
    /// know.
    pub(super) fn wanted_room(&mut self, bytes: u64) -> Option<u64> {
        let least_bytes = self.writer().log.next_segment_bytes();
        let refused_bytes = std::mem::take(&mut self.writer().log.refused_bytes);
        let wanted_bytes = bytes.max(refused_bytes) + least_bytes / 4;
        if self.keep_room(wanted_bytes, 0).is_ok() {
            return None;
        }
        (!self.is_futile()).then_some(wanted_bytes)
    }

    /// See [`Writer::is_futile`].
    pub(super) fn is_futile(&mut self) -> bool {
        let writer = self.writer.as_ref().expect("a running transaction");
        writer.is_futile(&self.state)
    }

    /// Returns the bytes that can be written without asking the host for room.
    pub(super) fn room_inside(&mut self) -> u64 {
        let writer = self.writer.as_mut().expect("a running transaction");
        writer.log.recount();
        let kept_bytes = writer.kept_bytes(&self.state, self.leaves);
        writer.log.room_inside().saturating_sub(kept_bytes)
    }

    /// Returns whether the transaction can only be committed within the reserve for transactions that free. It must
    /// then free more than it writes, by itself or as [`Transaction::will_free`] promises.
    pub fn must_free(&mut self) -> bool {
        let commit_bytes = 2 * OPERATIONS_BYTES as u64;
        self.leaves != Leaves::All || self.keep_room(commit_bytes, 0).is_err()
    }

    /// Promises that so many bytes die with the transactions that follow at once.
    pub fn will_free(&mut self, bytes: u64) {
        self.dying_bytes = bytes;
    }

    /// Returns the bytes of a block's record, 0 for a hole.
    ///
    /// # Errors
    /// As [`Transaction::size_blocks`], and those of reading the map.
    pub fn stored_bytes(&self, volume: u32, index: u64) -> Result<u64> {
        let block_bytes = self.state.volume(volume)?.block_bytes as usize;
        let found = find(&self.inner, &self.state, volume, index, block_bytes)?;
        Ok(found.map_or(0, |(_, place)| place.record_bytes()))
    }

    /// Returns the number of the transaction before this one.
    pub fn base_commit(&self) -> u64 {
        self.state.commit
    }

    /// Reads a block as the transaction sees it. Returns the bytes of its record, 0 for a hole.
    ///
    /// # Errors
    /// As [`super::Snapshot::read`].
    pub fn read(&self, volume: u32, index: u64, target: &mut [u8]) -> Result<u64> {
        let Some((id, place)) = find(&self.inner, &self.state, volume, index, target.len())? else {
            target.fill(0);
            return Ok(0);
        };
        let writer = self.writer.as_ref().expect("a running transaction");
        let Some((region, bytes)) = writer.log.unwritten(place) else {
            let known = (&self.state.segments, &self.state.dictionaries);
            self.inner.file.read_frame(place, id, known, target)?;
            return Ok(place.record_bytes());
        };
        let record = parse(bytes, &region, place.address());
        let record = record.map_err(|gap| gap.into_error(place.address()))?;
        (self.inner.file).with_workspace(|workspace| {
            let with = (&self.state.dictionaries, &mut workspace.decompressor);
            decode_frame(&record, id, with, target)
        })?;
        Ok(place.record_bytes())
    }

    /// Returns whether a block is no hole.
    ///
    /// # Errors
    /// As [`Transaction::size_blocks`], and those of reading the map.
    pub fn is_mapped(&self, volume: u32, index: u64) -> Result<bool> {
        let volume = self.state.volume(volume)?;
        Ok(self.state.frame(&volume, index, &self.inner.file)? != 0)
    }

    /// Returns the number of blocks of a volume.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such volume, as all that take one.
    pub fn size_blocks(&self, volume: u32) -> Result<u64> {
        Ok(self.state.volume(volume)?.size_blocks)
    }

    /// Returns the bytes noted under `key`.
    pub fn note_of(&self, key: u32) -> Option<Arc<[u8]>> {
        self.state.notes.get(key).cloned()
    }

    /// Writes a block; the volume grows if it lies behind its end.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `block` is not one block or the index is 2^40 or more. [`Error::Limit`] if there is no
    /// room for it. Those of writing the parts that do not fit in memory. After an error other than the first the
    /// transaction can only be dropped.
    pub fn write(&mut self, volume: u32, index: u64, block: &[u8]) -> Result<()> {
        self.check_block(volume, index, block)?;
        let inner = Arc::clone(&self.inner);
        let block = without_tail(block);
        let is_tight = self.is_tight_for(block.len());
        let written = inner.file.with_workspace(|workspace| {
            let subject = subject_of(block, (volume, index), &self.state);
            let encoded = match is_tight {
                true => inner.coding.encode_densely(&subject, workspace),
                false => inner.coding.encode(&subject, &mut self.hidden, workspace),
            }?;
            let encoded = encoded.map(|(decoder, length)| (decoder, &workspace.bytes[..length]));
            self.write_frame((volume, index), block, encoded)
        });
        self.watch(written)
    }

    /// Writes a block that was encoded before, as [`Transaction::write`] does; `encoded` must be of these bytes.
    ///
    /// # Errors
    /// As [`Transaction::write`].
    pub fn write_encoded(
        &mut self,
        (volume, index): (u32, u64),
        block: &[u8],
        encoded: &EncodedBlock,
    ) -> Result<()> {
        // Its dictionary went meanwhile, or room is short.
        if !self.state.dictionaries.has(encoded.dictionary()) || self.is_tight_for(block.len()) {
            return self.write(volume, index, block);
        }
        self.check_block(volume, index, block)?;
        let used = &block[..encoded.used_bytes];
        let stored = encoded.stored.as_ref();
        let stored = stored.map(|(decoder, bytes)| (*decoder, &bytes[..]));
        let written = self.write_frame((volume, index), used, stored);
        self.watch(written)
    }

    /// Returns whether a transaction of a database finds no room for a block of this length. What it writes then
    /// replaces records that may be dense, and must not be longer.
    fn is_tight_for(&mut self, block_bytes: usize) -> bool {
        if self.writer().log.geometry.reserve != Reserve::Share {
            return false;
        }
        let needed_bytes = record_bytes(block_bytes as u64) + PUBLICATION_ROOM_BYTES;
        self.leaves != Leaves::All || self.keep_room(needed_bytes, 0).is_err()
    }

    fn check_block(&self, volume: u32, index: u64, block: &[u8]) -> Result<()> {
        self.check()?;
        let block_bytes = self.state.volume(volume)?.block_bytes;
        if block.len() != block_bytes as usize || index >= INDEX_MAX {
            let reason = format!("{} bytes for block {index} of {block_bytes}", block.len());
            return Err(Error::invalid("block", reason));
        }
        Ok(())
    }

    /// Writes a block that comes without its tail.
    fn write_frame(
        &mut self,
        (volume, index): (u32, u64),
        block: &[u8],
        encoded: Option<(Decoder, &[u8])>,
    ) -> Result<()> {
        assert!(self.written.is_none(), "a block behind the commit");
        self.inner.file.work.note_encoded(block.len());
        self.flush_operations()?;
        self.has_blocks = true;
        if self.leaves == Leaves::Frees {
            self.leaves = Leaves::Cleaning;
        }
        let id = self.work().claim(volume, index)?;
        let prefix = FramePrefix { id, volume, index };
        let (decoder, stored) = encoded.unwrap_or((Decoder::STORE, block));
        let label = Label {
            kind: KIND_FRAME,
            codec: decoder.codec,
            filter: decoder.filter,
            dictionary: decoder.dictionary,
            raw_bytes: block.len() as u32,
        };
        let place = self.append(label, &[&prefix.encode(), stored])?;
        self.work().set_place(id, place)
    }

    /// Makes the block `to` show the present content of `from`. Writing either does not change the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the blocks differ in length.
    pub fn alias(&mut self, from: (u32, u64), to: (u32, u64)) -> Result<()> {
        let lengths = [self.state.volume(from.0)?, self.state.volume(to.0)?];
        if lengths[0].block_bytes != lengths[1].block_bytes || from.1.max(to.1) >= INDEX_MAX {
            let reason = format!("{from:?} cannot be shown at {to:?}");
            return Err(Error::invalid("alias", reason));
        }
        self.operate(Operation::Alias { from, to })
    }

    /// Makes holes of a range of blocks.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such volume.
    pub fn trim(&mut self, volume: u32, range: Range<u64>) -> Result<()> {
        self.state.volume(volume)?;
        let range = range.start.min(range.end)..range.end;
        self.operate(Operation::Trim { volume, range })
    }

    /// Makes a volume longer by a hole, or shorter.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such volume or it would be longer than 2^40 blocks.
    pub fn resize(&mut self, volume: u32, size_blocks: u64) -> Result<()> {
        self.state.volume(volume)?;
        if size_blocks > INDEX_MAX {
            return Err(Error::invalid(
                "volume size",
                format!("{size_blocks} blocks"),
            ));
        }
        self.operate(Operation::Resize {
            volume,
            size_blocks,
        })
    }

    /// Notes a few bytes under a key of the caller's. An empty slice removes the key.
    ///
    /// # Errors
    /// [`Error::Limit`] above 1 KiB, or above 2 MiB of all notes.
    pub fn note(&mut self, key: u32, bytes: &[u8]) -> Result<()> {
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(Error::Limit {
                what: "note",
                limit_bytes: NOTE_BYTES_MAX as u64,
                needed_bytes: bytes.len() as u64,
            });
        }
        let bytes = Arc::from(bytes);
        self.operate(Operation::Note { key, bytes })
    }

    /// Makes an empty volume; returns its number, which is never given again.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the block size is not a power of two from 512 to 65,536.
    pub fn create_volume(&mut self, block_bytes: u32) -> Result<u32> {
        check_block_bytes(block_bytes)?;
        self.writer().make_for(block_bytes);
        let volume = self.state.next_volume;
        self.operate(Operation::Create {
            volume,
            block_bytes,
        })?;
        Ok(volume)
    }

    /// Makes a volume that shows the present content of `volume`. Returns its number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such volume.
    ///
    /// # Cost
    /// One entry of the volume list, at any size. A later change of either volume copies the changed part, a node of
    /// the map at a time.
    pub fn clone_volume(&mut self, volume: u32) -> Result<u32> {
        self.state.volume(volume)?;
        let to = self.state.next_volume;
        self.operate(Operation::Clone { from: volume, to })?;
        Ok(to)
    }

    /// Removes a volume.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such volume.
    ///
    /// # Cost
    /// A walk over the part of its map that no other volume shares.
    pub fn remove_volume(&mut self, volume: u32) -> Result<()> {
        self.state.volume(volume)?;
        self.operate(Operation::Remove { volume })
    }

    /// Ends the transaction; returns its number, or that of the one before if nothing was changed.
    ///
    /// # Errors
    /// [`Error::Limit`] if there is no room; nothing has happened then. Those of writing and syncing, after which this
    /// handle refuses all changes. The transaction is then taken back, and nobody sees it. Where that fails too, the
    /// next opening may find it.
    pub fn commit(mut self, durability: Durability) -> Result<u64> {
        match durability {
            Durability::Durable => {
                self.prepare()?;
                self.sync()?;
            }
            Durability::Lazy => {
                self.check()?;
                if self.is_changed {
                    self.write_commit(false, &[])?;
                }
            }
        }
        self.publish()
    }

    /// Writes the commit, which nobody sees before [`Transaction::publish`]; until then dropping the transaction takes
    /// it back. Nothing can be changed any more.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn prepare(&mut self) -> Result<()> {
        self.prepare_with(&[])
    }

    /// As [`Transaction::prepare`], for one part of a transaction over several files. `coordinator` names a file. If
    /// this process dies before it publishes, the commit counts for later openings when that file is gone, and not
    /// before ([`Blocks::end_unpublished`](super::Blocks::end_unpublished)). No name is no such file.
    ///
    /// # Errors
    /// As [`Transaction::commit`], and [`Error::Invalid`] for a name of more than 1 KiB.
    pub fn prepare_with(&mut self, coordinator: &[u8]) -> Result<()> {
        self.check()?;
        if coordinator.len() > COORDINATOR_BYTES_MAX {
            let reason = format!("a name of {} bytes", coordinator.len());
            return Err(Error::invalid("coordinator", reason));
        }
        match self.is_changed {
            true => self.write_commit(true, coordinator),
            false => Ok(()),
        }
    }

    /// Returns the name of the prepared commit's coordinator, if it has one.
    pub fn coordinator(&self) -> Option<&[u8]> {
        let written = self.written.as_ref()?;
        (!written.coordinator.is_empty()).then_some(&written.coordinator)
    }

    /// Takes the prepared commit back, as dropping the transaction does, and reports whether that is durable.
    ///
    /// # Errors
    /// Those of writing and syncing, after which the next opening may find the commit.
    pub fn abort(mut self) -> Result<()> {
        self.take_back()
    }

    /// Returns whether the commit is written.
    pub fn is_prepared(&self) -> bool {
        self.written.is_some()
    }

    /// Makes the prepared commit durable, and all before it.
    ///
    /// # Errors
    /// Those of the sync, as for [`Transaction::commit`].
    pub fn sync(&mut self) -> Result<()> {
        let synced = self.writer().log.sync_transactions();
        match (&synced, &mut self.written) {
            (Ok(()), Some(written)) => written.is_synced = true,
            (Ok(()), None) => {}
            (Err(error), _) => {
                self.failure = Some(error.duplicate());
                // The failure itself matters more.
                let _ = self.take_back();
            }
        }
        self.inner.watch(synced)
    }

    /// Returns whether the prepared commit was made durable.
    pub fn is_durable(&self) -> bool {
        self.written.as_ref().is_some_and(|it| it.is_synced)
    }

    /// Shows the prepared commit. Returns its number, or that of the transaction before if nothing was changed. Whether
    /// it was synced is the caller's to see to.
    ///
    /// # Errors
    /// As [`Transaction::prepare`], before which it failed.
    pub fn publish(mut self) -> Result<u64> {
        self.check()?;
        let Some(written) = &self.written else {
            assert!(!self.is_changed, "published before it was prepared");
            return Ok(self.state.commit);
        };
        if written.is_durable && self.inner.options.is_guarded {
            // The transaction is there, and others find it when this process has ended.
            let published = self.writer().log.publish();
            let _ = self.inner.watch(published);
        }
        let number = self.show()?;
        let inner = Arc::clone(&self.inner);
        let writer = self.writer();
        let due_bytes = inner.options.checkpoint_bytes;
        let state = inner.shared.state();
        let is_due = writer.log.appended_bytes >= due_bytes
            || state.changed_bytes() >= CHANGED_PER_LOG.saturating_mul(due_bytes)
            || writer.is_short_of_room(&state);
        if is_due && inner.check().is_ok() {
            // The transaction is there. The next transaction gets the error.
            let _ = inner.checkpoint(writer);
        }
        Ok(number)
    }

    /// Writes the commit.
    pub(super) fn write_commit(&mut self, is_durable: bool, coordinator: &[u8]) -> Result<()> {
        let number = self.state.commit + 1;
        let mut rest = std::mem::take(&mut self.operations);
        rest.extend_from_slice(coordinator);
        let chain = chain(self.state.chain, self.checksums.iter().copied(), &rest);
        let commit = Commit {
            number,
            synced_sequence: self.writer().log.synced_sequence,
            record_count: self.checksums.len() as u32,
            chain,
            is_durable,
            next_frame: self.state.table.next_frame,
            free_head: self.state.table.free_head,
            coordinator_bytes: coordinator.len() as u32,
        };
        let label = Label {
            kind: KIND_COMMIT,
            ..Label::default()
        };
        let parts: [&[u8]; 2] = [&commit.encode(), &rest];
        self.make_sure(&parts)?;
        self.check_freed()?;
        let placed = self.writer().log.append_commit(label, &parts)?;
        self.state.segments = self.writer().log.segments.clone();
        self.written = Some(Written {
            number,
            placed,
            is_durable,
            is_synced: false,
            coordinator: coordinator.into(),
        });
        (self.state.chain, self.state.version) = (chain, placed.sequence);
        let flushed = self.writer().log.flush_transaction();
        if let Err(error) = &flushed {
            self.failure = Some(error.duplicate());
            // As above.
            let _ = self.take_back();
        }
        self.inner.watch(flushed)
    }

    /// Shows this process the content of the written commit. Returns its number.
    pub(super) fn show(&mut self) -> Result<u64> {
        let written = self.written.take().expect("a commit that was written");
        let inner = Arc::clone(&self.inner);
        let writer = self.writer.as_mut().expect("a running transaction");
        let mut state = std::mem::take(&mut self.state);
        state.commit = written.number;
        state.segments = writer.log.segments.clone();
        let change: i64 = self.live.values().sum();
        writer.log.freed_bytes += (-change).max(0) as u64;
        let died_bytes: i64 = self.live.values().map(|change| change.min(&0)).sum();
        writer.log.died_bytes += died_bytes.unsigned_abs();
        let counted = apply_live(&mut writer.log.live, &self.live);
        inner.shared.publish(state);
        inner.watch(counted).map(|()| written.number)
    }

    /// Takes back the written commit, if any.
    fn take_back(&mut self) -> Result<()> {
        let Some(written) = &self.written else {
            return Ok(());
        };
        let placed = written.placed;
        let taken = self.writer().log.take_back(&placed);
        self.inner.watch(taken)?;
        self.written = None;
        Ok(())
    }

    pub(super) fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().expect("a running transaction")
    }

    pub(super) fn work(&mut self) -> Work<'_> {
        Work {
            file: &self.inner.file,
            state: &mut self.state,
            live: &mut self.live,
        }
    }

    fn check(&self) -> Result<()> {
        match &self.failure {
            Some(error) => Err(error.duplicate()),
            None => self.inner.check(),
        }
    }

    /// Passes a result on. After a failure half of a change may have been made.
    fn watch(&mut self, result: Result<()>) -> Result<()> {
        self.is_changed = true;
        if let Err(error) = &result {
            self.failure = Some(error.duplicate());
        }
        result
    }

    fn operate(&mut self, operation: Operation) -> Result<()> {
        self.check()?;
        assert!(self.written.is_none(), "{operation:?} behind the commit");
        let applied = self.work().apply(&operation);
        self.watch(applied)?;
        operation.encode(&mut self.operations);
        if self.operations.len() >= OPERATIONS_BYTES {
            let flushed = self.flush_operations();
            self.watch(flushed)?;
        }
        Ok(())
    }

    /// Writes the operations that come before the next block.
    fn flush_operations(&mut self) -> Result<()> {
        let operations = std::mem::take(&mut self.operations);
        if operations.is_empty() {
            return Ok(());
        }
        let label = Label {
            kind: KIND_OPERATIONS,
            ..Label::default()
        };
        self.append(label, &[&operations]).map(drop)
    }

    pub(super) fn append(&mut self, label: Label, parts: &[&[u8]]) -> Result<Place> {
        if self.checksums.len() >= u32::MAX as usize {
            return Err(Error::invalid("transaction", "more than 2^32 - 1 records"));
        }
        self.make_sure(parts)?;
        let placed = self.writer().log.append(label, parts)?;
        self.checksums.push(placed.checksum);
        self.state.segments = self.writer().log.segments.clone();
        if label.dictionary != 0 {
            let generation = self.writer().log.current().generation;
            let dictionaries = &mut self.state.dictionaries;
            dictionaries.note_use(label.dictionary, generation);
        }
        Ok(place_of(&placed))
    }

    /// Ensures room for a record, beside the room that the transaction leaves to others. It leaves less where the host
    /// has no more, in the hope that the transaction frees more than it writes.
    fn make_sure(&mut self, parts: &[&[u8]]) -> Result<()> {
        let body_bytes: usize = parts.iter().map(|part| part.len()).sum();
        let needed_bytes = record_bytes(body_bytes as u64) + PUBLICATION_ROOM_BYTES;
        let made = self.keep_room(needed_bytes, 0);
        let leaves_less = match self.leaves {
            Leaves::All => Some(Leaves::Cleaning),
            Leaves::Cleaning if !self.has_blocks => Some(Leaves::Frees),
            _ => None,
        };
        match (&made, leaves_less) {
            (Err(error), Some(leaves)) if is_for_room(error) => {
                self.leaves = leaves;
                self.left_bytes = self.left_of_share();
                self.make_sure(parts)
            }
            _ => made,
        }
        .inspect_err(|_| self.note_refusal(needed_bytes))
    }

    /// Returns the part of the reserve for transactions that free which a transaction leaves to the next one. It is a
    /// quarter of a share, or a refused one would leave none.
    fn left_of_share(&mut self) -> u64 {
        let (leaves, state) = (self.leaves, self.state.clone());
        let writer = self.writer();
        match (leaves, writer.log.geometry.reserve) {
            (Leaves::Cleaning, Reserve::Share) => {
                let kept_bytes = writer.kept_bytes(&state, leaves);
                writer.log.room_inside().saturating_sub(kept_bytes) / 4
            }
            _ => 0,
        }
    }

    /// Notes the bytes of a transaction that finds no room.
    fn note_refusal(&mut self, needed_bytes: u64) {
        let added_bytes: i64 = self.live.values().map(|change| change.max(&0)).sum();
        self.writer().log.refused_bytes = added_bytes.unsigned_abs() + needed_bytes;
    }

    /// Ensures room for a record, for others behind it, and for the room that the transaction leaves.
    pub(super) fn keep_room(&mut self, record_bytes: u64, others_bytes: u64) -> Result<()> {
        let writer = self.writer.as_mut().expect("a running transaction");
        writer.log.kept_bytes =
            writer.kept_bytes(&self.state, self.leaves) + self.left_bytes + others_bytes;
        writer.log.make_sure(record_bytes)
    }

    /// Refuses a transaction that used the reserve for transactions that free, and does not free more than it writes.
    fn check_freed(&mut self) -> Result<()> {
        let change: i64 = self.live.values().sum();
        let added_bytes = change.saturating_sub_unsigned(self.dying_bytes);
        let is_freeing = matches!(self.leaves, Leaves::Cleaning | Leaves::Frees);
        if !is_freeing || added_bytes <= 0 {
            return Ok(());
        }
        let log = &self.writer().log;
        let file_bytes = log.file_bytes();
        // With the host's own words, where it refused.
        let refused = log.refusal.as_ref().map(Error::duplicate);
        let refused = refused.unwrap_or(Error::Limit {
            what: "block store",
            limit_bytes: file_bytes,
            needed_bytes: file_bytes + added_bytes as u64,
        });
        self.failure = Some(refused.duplicate());
        self.note_refusal(added_bytes as u64);
        Err(refused)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // A call that panicked may panic again. The open transaction is as if the process had died.
        if !std::thread::panicking() {
            // A caller that wants to know calls `abort`.
            let _ = self.take_back();
        }
        if let Some(mut writer) = self.writer.take() {
            writer.log.rewind();
            self.inner.give_turn(writer);
        }
    }
}
