//! The vault: trees of files stored once, compressed where that pays, under a seal.
//!
//! A vault is a folder of objects that never change (docs/format.md). Contents are cut at places that their own bytes
//! choose ([`ChunkLimits`]). Chunks are named by a keyed hash and stored once. Neighbouring new ones share frames, and
//! the chooser finds a method for each frame ([`Compression`]). [`Writer`] adds a snapshot, [`Vault::restore`] brings
//! it back, [`Vault::verify`] reads everything, [`Vault::change`] forgets and collects.
//!
//! Promises: a snapshot is there whole and for good when [`Writer::commit`] returns, and not at all before. No byte is
//! returned that was not stored. Nothing that a live snapshot needs is ever deleted. Several processes add at a time,
//! and one commits; a writer that was taken for dead cannot commit any more. Proved on the simulated disk
//! (`proof_test.rs`).
//!
//! Not here: options of the command line, passwords' prompts, far ends beyond a folder.
#![deny(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use zeroize::Zeroizing;

use crate::error::{Error, Result};

#[cfg(test)]
mod attributes_test;
#[cfg(test)]
mod beside_test;
mod bytes;
#[cfg(test)]
mod changing_test;
mod chunker;
mod cipher;
mod clones;
mod collect;
mod compression;
mod contents;
mod copies;
mod copy;
mod damage_log;
mod delta;
#[cfg(test)]
mod delta_test;
#[cfg(test)]
mod density_test;
mod disk_source;
#[cfg(test)]
mod disk_source_test;
mod far_end;
mod folder;
mod folder_end;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod gaps_test;
mod hashing;
mod images;
mod index;
mod lost_found;
mod metadata;
mod objects_end;
mod opening;
mod pack;
mod patterns;
#[cfg(test)]
mod proof_calls_test;
#[cfg(test)]
mod proof_damage_test;
#[cfg(test)]
mod proof_objects_test;
#[cfg(test)]
mod proof_requests_test;
#[cfg(test)]
mod proof_test;
mod random_reader;
#[cfg(test)]
mod random_reader_test;
mod reading;
mod record;
mod repair;
mod restore;
mod restore_files;
mod retention;
mod rollback;
mod session;
mod similar;
#[cfg(test)]
mod sparse_test;
mod stats;
mod tree_reader;
#[cfg(test)]
mod tree_reader_test;
#[cfg(test)]
mod trees_test;
mod verify;
mod walk;
mod writer;

use bytes::fail;
use chunker::Chunker;
use cipher::{Keys, MasterKey};
use copies::{COPIES, copy_name, read_either};
use damage_log::DamageLog;
use index::Index;
use pack::{FRAME_BYTES_LIMIT, PACK_BYTES_LIMIT};
use record::{Record, State};
use repair::is_damaged;
use session::WaitLimits;

pub use chunker::ChunkLimits;
pub use cipher::{Entropy, Id, PasswordCost};
pub use collect::{CollectPlan, Collected};
pub use compression::{Compression, Preset};
pub use copy::Copied;
pub use damage_log::Damage;
pub use disk_source::{DiskRuns, DiskSource, DiskStates};
pub use far_end::{AddMark, FarEnd, Listed, Put, Turn};
pub use folder::{Entry, Node, Stamp, Time, is_safe_name};
pub use folder_end::FolderEnd;
pub use lost_found::LostFound;
pub use objects_end::{ObjectHead, ObjectsEnd, Part, RequestError, Requests};
pub use patterns::PathPatterns;
pub use random_reader::{FileMap, RandomReader};
pub use record::Snapshot;
pub use repair::{Repaired, is_damage};
pub use restore::{RestoreOptions, Restored};
pub use retention::{Kept, Retention, SnapshotFilter, UtcOffset};
pub use rollback::SeenRecord;
pub use stats::VaultStats;
pub use tree_reader::{ContentReader, EntryChange, EntryPair, TreeReader};
pub use verify::{Verified, VerifyOptions};
pub use walk::{AddOptions, Added, ReadFiles};
pub use writer::{Source, Writer, WriterOptions};

const CONFIG: &str = "config";
const VERSION: u32 = 2;
/// The last version without deltas; its readers know none.
const VERSION_WITHOUT_DELTAS: u32 = 1;
/// The longest `config`, key record, record and index that a reader accepts.
const CONFIG_BYTES_MAX: u64 = 64 << 10;
const RECORD_BYTES_MAX: u64 = 64 << 20;
const INDEX_BYTES_MAX: u64 = 8 << 30;
const RECORD: u8 = 1;
const INDEX: u8 = 2;
const LOCK: u8 = 3;
const CUTS: u8 = 4;
/// How often a listing is made again: it may be older than a deletion by a writer since.
const TRIES: usize = 4;

/// The phase that reports in advance how much memory the index takes, and its cap.
pub const INDEX_PHASE: &str = "memory of the index";

/// How far a phase of long work is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The work under way.
    pub phase: &'static str,
    /// How many bytes of it are done.
    pub done: u64,
    /// How many there are; 0 if that is unknown.
    pub total: u64,
}

/// The settings that a new vault gets for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VaultOptions {
    /// How long chunks are.
    pub chunks: ChunkLimits,
    /// How many bytes of neighbouring chunks are compressed together. Default 1 MiB: a larger frame gains 1 or 2 %. A
    /// reader of one file then pays as much more.
    pub frame_bytes: usize,
    /// The approximate length of packs; each is one put. Default 16 MiB.
    pub pack_bytes: usize,
}

impl Default for VaultOptions {
    fn default() -> VaultOptions {
        VaultOptions {
            chunks: ChunkLimits::default(),
            frame_bytes: 1 << 20,
            pack_bytes: 16 << 20,
        }
    }
}

impl VaultOptions {
    fn check(&self) -> Result<()> {
        self.chunks.check()?;
        let is_right = self.frame_bytes <= FRAME_BYTES_LIMIT && self.pack_bytes <= PACK_BYTES_LIMIT;
        match is_right && self.frame_bytes > 0 && self.frame_bytes <= self.pack_bytes {
            true => Ok(()),
            false => Err(Error::invalid(
                "vault",
                format!(
                    "{self:?}: frames up to 4 MiB, packs up to 512 MiB and no less than a frame"
                ),
            )),
        }
    }
}

/// `config` as JSON.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    format: String,
    version: u32,
    id: String,
    chunk_bytes_least: usize,
    chunk_bytes_mean: usize,
    chunk_bytes_most: usize,
    frame_bytes: usize,
    pack_bytes: usize,
    /// The key of the cut table under the seal, where it is another vault's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cuts: Option<String>,
}

type CutKey = Zeroizing<[u8; 32]>;

/// An open vault.
pub struct Vault {
    far: Arc<dyn FarEnd>,
    keys: Arc<Keys>,
    options: VaultOptions,
    config: Vec<u8>,
    /// Whether it is of a version that has deltas.
    has_deltas: bool,
    chunker: Chunker,
    cut_key: CutKey,
    entropy: Entropy,
    /// The epoch of the newest record, 0 before the first.
    epoch: u64,
    /// The hash of that record.
    digest: Id,
    /// The highest epoch that had a record when the state was read; a fence or a damaged record may be newer.
    newest: u64,
    state: State,
    waits: WaitLimits,
    /// Whether a newest record that cannot be read is skipped.
    is_lenient: bool,
    damages: Arc<DamageLog>,
}

impl Vault {
    /// Makes a vault at an empty far end.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is a vault, or an option is out of range; those of the far end.
    pub fn init(
        far: Arc<dyn FarEnd>,
        options: VaultOptions,
        password: &[u8],
        cost: PasswordCost,
        entropy: Entropy,
    ) -> Result<Vault> {
        Vault::make(far, options, password, cost, entropy, None)
    }

    /// Makes a vault that cuts contents where another one does, with that one's lengths of chunks. Contents copied from
    /// there lie here in the same chunks as contents added to either.
    ///
    /// # Errors
    /// As [`Vault::init`].
    pub fn init_like(
        far: Arc<dyn FarEnd>,
        other: &Vault,
        password: &[u8],
        cost: PasswordCost,
        entropy: Entropy,
    ) -> Result<Vault> {
        let cuts = Some(other.cut_key.clone());
        Vault::make(far, other.options, password, cost, entropy, cuts)
    }

    fn make(
        far: Arc<dyn FarEnd>,
        options: VaultOptions,
        password: &[u8],
        cost: PasswordCost,
        mut entropy: Entropy,
        cuts: Option<CutKey>,
    ) -> Result<Vault> {
        options.check()?;
        let _turn = far.take_turn()?;
        if far.size_bytes(CONFIG)?.is_some() {
            return Err(Error::invalid("vault", "there is one already"));
        }
        let id = Id(entropy.take());
        let master = MasterKey::random(&mut entropy);
        let cuts = cuts.map(|cuts| {
            let keys = Keys::new(master.clone(), id.0);
            let sealed = keys.seal(CUTS, CONFIG, &*cuts, &mut entropy);
            hex(&sealed)
        });
        let config = Config {
            format: "breakeven-vault".to_string(),
            version: VERSION,
            id: id.hex(),
            chunk_bytes_least: options.chunks.least_bytes,
            chunk_bytes_mean: options.chunks.mean_bytes,
            chunk_bytes_most: options.chunks.most_bytes,
            frame_bytes: options.frame_bytes,
            pack_bytes: options.pack_bytes,
            cuts,
        };
        let config = serde_json::to_vec_pretty(&config).expect("numbers and texts");
        let record = master.wrap(&config, password, cost, &mut entropy)?;
        clear_leftovers(&*far)?;
        put_key(&*far, &record)?;
        far.put(&copy_name(CONFIG), &config)?;
        if far.put(CONFIG, &config)? == Put::Exists {
            return Err(Error::invalid("vault", "somebody else has just made one"));
        }
        Vault::with_key(far, config, master, entropy, DamageLog::default())
    }

    /// Opens a vault.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the password opens none of its keys, [`Error::Corrupt`] for damage.
    pub fn open(far: Arc<dyn FarEnd>, password: &[u8], entropy: Entropy) -> Result<Vault> {
        Vault::open_as(far, password, entropy, false)
    }

    /// Opens a vault to read it, even if the newest record cannot be read. Then an older one counts, with all snapshots
    /// whose records are whole. Changes must not go on from there, except [`Vault::repair`].
    ///
    /// # Errors
    /// As [`Vault::open`].
    pub fn open_damaged(far: Arc<dyn FarEnd>, password: &[u8], entropy: Entropy) -> Result<Vault> {
        Vault::open_as(far, password, entropy, true)
    }

    fn open_as(
        far: Arc<dyn FarEnd>,
        password: &[u8],
        entropy: Entropy,
        is_lenient: bool,
    ) -> Result<Vault> {
        let damages = DamageLog::default();
        let (config, master) = opening::open(&*far, password, &damages)?;
        let mut vault = Vault::with_key(far, config, master, entropy, damages)?;
        vault.is_lenient = is_lenient;
        vault.reload()?;
        Ok(vault)
    }

    fn with_key(
        far: Arc<dyn FarEnd>,
        config: Vec<u8>,
        master: MasterKey,
        entropy: Entropy,
        damages: DamageLog,
    ) -> Result<Vault> {
        let wrong = |reason: &dyn std::fmt::Display| fail(CONFIG, 0, "a vault's config", reason);
        let parsed: Config = serde_json::from_slice(&config).map_err(|error| wrong(&error))?;
        if !(VERSION_WITHOUT_DELTAS..=VERSION).contains(&parsed.version) {
            return Err(Error::Unsupported {
                what: format!("a vault of version {}", parsed.version),
            });
        }
        let id = Id::from_hex(&parsed.id).ok_or_else(|| wrong(&parsed.id))?;
        let options = VaultOptions {
            chunks: ChunkLimits {
                least_bytes: parsed.chunk_bytes_least,
                mean_bytes: parsed.chunk_bytes_mean,
                most_bytes: parsed.chunk_bytes_most,
            },
            frame_bytes: parsed.frame_bytes,
            pack_bytes: parsed.pack_bytes,
        };
        options.check()?;
        let keys = Keys::new(master, id.0);
        let cut_key = match &parsed.cuts {
            None => keys.cut_key(),
            Some(sealed) => {
                let sealed = from_hex(sealed).ok_or_else(|| wrong(sealed))?;
                let key = Zeroizing::new(keys.open(CUTS, CONFIG, &sealed)?);
                let key: [u8; 32] = key[..].try_into().map_err(|_| wrong(&key.len()))?;
                Zeroizing::new(key)
            }
        };
        Ok(Vault {
            chunker: Chunker::new(&cut_key, options.chunks),
            cut_key,
            far,
            keys: Arc::new(keys),
            options,
            config,
            has_deltas: parsed.version > VERSION_WITHOUT_DELTAS,
            entropy,
            epoch: 0,
            digest: Id::NONE,
            newest: 0,
            state: State::default(),
            waits: WaitLimits::default(),
            is_lenient: false,
            damages: Arc::new(damages),
        })
    }

    /// Adds a password; returns the name of its key record.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn add_password(&mut self, password: &[u8], cost: PasswordCost) -> Result<String> {
        let record = self
            .keys
            .master
            .wrap(&self.config, password, cost, &mut self.entropy)?;
        put_key(&*self.far, &record)
    }

    /// Returns the names of the key records, and which of them a password opens.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn passwords(&self, password: &[u8]) -> Result<Vec<(String, bool)>> {
        let mut found = Vec::new();
        for Listed { name, .. } in self.far.list("keys")? {
            let record = self.far.read(&format!("keys/{name}"), CONFIG_BYTES_MAX)?;
            let opens = MasterKey::unwrap(&self.config, &record, password)?.is_some();
            found.push((name, opens));
        }
        Ok(found)
    }

    /// Removes a key record, unless it is the last that opens this vault.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the last or an unknown one and while another writes; those of the storage.
    pub fn remove_password(&mut self, name: &str) -> Result<()> {
        // Without the turn, two processes could remove each other's: both would see two.
        let _turn = self.far.take_turn()?;
        let (mut is_there, mut is_last) = (false, true);
        for known in self.far.list("keys")? {
            if known.name == name {
                is_there = true;
                continue;
            }
            // An interrupted `init` leaves a record that opens nothing, and a record may be damaged.
            let record = self
                .far
                .read(&format!("keys/{}", known.name), CONFIG_BYTES_MAX);
            let opens = record.and_then(|record| self.keys.master.check_record(&record));
            is_last &= is_damaged(opens)?;
        }
        if !is_there || is_last {
            let reason = "it is the last one that opens the vault, or there is none of that name";
            return Err(Error::invalid("key", reason));
        }
        // The copy first: it opens the vault as well.
        let copy = copy_name(&format!("keys/{name}"));
        let (_, copy) = copy.split_once('/').expect("copies/key-name");
        self.far.delete(COPIES, &[copy.to_string()])?;
        self.far.delete("keys", &[name.to_string()])
    }

    /// Reads the newest state.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the newest record is not whole; those of the storage.
    pub fn reload(&mut self) -> Result<()> {
        self.reload_newest().map(drop)
    }

    /// Reads the newest state, and returns the newest epoch that has a record.
    fn reload_newest(&mut self) -> Result<u64> {
        for _ in 1..TRIES {
            if let Ok(newest) = self.try_reload() {
                return Ok(newest);
            }
        }
        self.try_reload()
    }

    fn try_reload(&mut self) -> Result<u64> {
        let mut epochs = self.epochs("snapshots")?;
        let newest = epochs.last().copied().unwrap_or(0);
        if self.newest == 0 || newest < self.newest {
            self.add_lost_records(&mut epochs)?;
        }
        epochs.reverse();
        let newest = epochs.first().copied().unwrap_or(0);
        self.newest = newest;
        let mut passed_over = false;
        for epoch in &epochs {
            match self.read_sealed_record(*epoch) {
                Ok((Record::Fence, _)) => {}
                Ok((Record::Snapshot(state, _) | Record::Change(state), digest)) => {
                    (self.epoch, self.digest, self.state) = (*epoch, digest, state);
                    if passed_over {
                        self.state.snapshots = self.whole_snapshots(&epochs);
                    }
                    return Ok(newest);
                }
                Err(error) if self.is_lenient && is_damage(&error) => {
                    self.damages.note(&object("snapshots", *epoch), &error);
                    passed_over = true;
                }
                Err(error) => return Err(error),
            }
        }
        (self.epoch, self.state) = (0, State::default());
        Ok(newest)
    }

    /// Says whether another process has written since the state was read; it may have deleted objects that the state
    /// lists.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn has_moved_on(&self) -> Result<bool> {
        let epochs = self.epochs("snapshots")?;
        Ok(epochs.last().is_some_and(|newest| *newest > self.newest))
    }

    /// Returns the epochs of snapshots whose records can be read, in rising order.
    fn whole_snapshots(&self, epochs: &[u64]) -> Vec<u64> {
        let is_whole = |epoch: &&u64| matches!(self.read_record(**epoch), Ok(Record::Snapshot(..)));
        epochs.iter().rev().filter(is_whole).copied().collect()
    }

    /// Lists the epochs of objects in a folder, in rising order.
    fn epochs(&self, folder: &str) -> Result<Vec<u64>> {
        let names = self.far.list(folder)?;
        Ok(names.iter().filter_map(|it| epoch_of(&it.name)).collect())
    }

    /// Adds the epochs above all others that have only the copy of a record. A copy is deleted before its record, so
    /// the record was lost.
    fn add_lost_records(&self, epochs: &mut Vec<u64>) -> Result<()> {
        let newest = epochs.last().copied().unwrap_or(0);
        let mut copies = self.copied_records()?;
        copies.retain(|epoch| *epoch > newest);
        if copies.is_empty() {
            return Ok(());
        }
        // Another may have added one between the two lists.
        *epochs = self.epochs("snapshots")?;
        let newest = epochs.last().copied().unwrap_or(0);
        epochs.extend(copies.into_iter().filter(|epoch| *epoch > newest));
        Ok(())
    }

    /// Puts the newest records back if only their copies are left.
    fn put_back_records(&self, records: &mut Vec<u64>) -> Result<()> {
        let newest = records.last().copied().unwrap_or(0);
        let mut all = records.clone();
        self.add_lost_records(&mut all)?;
        for epoch in all.into_iter().filter(|epoch| *epoch > newest) {
            if self.put_back(&object("snapshots", epoch))? {
                records.push(epoch);
            }
        }
        Ok(())
    }

    fn read_record(&self, epoch: u64) -> Result<Record> {
        self.read_sealed_record(epoch).map(|(record, _)| record)
    }

    /// Returns a record, and the hash of its bytes.
    fn read_sealed_record(&self, epoch: u64) -> Result<(Record, Id)> {
        let name = object("snapshots", epoch);
        read_either(&name, &self.damages, |object| {
            let sealed = self.far.read(object, RECORD_BYTES_MAX)?;
            let record = Record::read(&self.keys.open(RECORD, &name, &sealed)?)?;
            Ok((record, pack::name_of(&sealed)))
        })
    }

    /// Returns the last snapshot of a host and paths. Records are read until it is found: one, if one host adds.
    fn newest_of(&self, host: &str, paths: &[Vec<u8>]) -> Result<Option<(u64, Snapshot)>> {
        for epoch in self.state.snapshots.iter().rev() {
            let snapshot = self.listed_snapshot(*epoch)?;
            if let Some(snapshot) = snapshot.filter(|it| it.host == host && it.paths == paths) {
                return Ok(Some((*epoch, snapshot)));
            }
        }
        Ok(None)
    }

    /// Returns a snapshot that the state lists. Returns nothing if it was forgotten meanwhile, or is damaged; damage is
    /// noted.
    fn listed_snapshot(&self, epoch: u64) -> Result<Option<Snapshot>> {
        match self.snapshot(epoch) {
            Ok(snapshot) => Ok(Some(snapshot)),
            // The process that forgot it meanwhile has deleted it.
            Err(error) if is_damage(&error) && self.has_moved_on()? => Ok(None),
            Err(error) if is_damage(&error) => {
                self.damages.note(&object("snapshots", epoch), &error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the live snapshots, oldest first by the time when they began. A snapshot with a damaged record is left
    /// out, and named by [`Vault::damages`].
    ///
    /// # Errors
    /// Those of the storage.
    pub fn snapshots(&self) -> Result<Vec<(u64, Snapshot)>> {
        let mut snapshots = Vec::with_capacity(self.state.snapshots.len());
        for epoch in &self.state.snapshots {
            let snapshot = self.listed_snapshot(*epoch)?;
            snapshots.extend(snapshot.map(|snapshot| (*epoch, snapshot)));
        }
        // A copied snapshot has a higher number than younger ones.
        snapshots.sort_by_key(|(epoch, snapshot)| (snapshot.begun, *epoch));
        Ok(snapshots)
    }

    /// Returns the damage that was met and got around since the vault was opened. A copy was read, footers of packs
    /// replaced an index, or a snapshot was left out.
    pub fn damages(&self) -> Vec<Damage> {
        self.damages.damages()
    }

    /// Returns one snapshot by its number.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it does not live; [`Error::Corrupt`] if it is not whole.
    pub fn snapshot(&self, epoch: u64) -> Result<Snapshot> {
        if !self.state.snapshots.contains(&epoch) {
            return Err(Error::invalid(
                "snapshot",
                format!("there is no snapshot {epoch}"),
            ));
        }
        match self.read_record(epoch)? {
            Record::Snapshot(_, snapshot) => Ok(*snapshot),
            other => Err(fail("record", 0, "a snapshot", format!("{other:?}"))),
        }
    }

    /// Reads all readable indexes into memory, at most `cap_bytes`.
    fn index(&self, cap_bytes: u64) -> Result<Index> {
        self.filled(Index::new(cap_bytes))
    }

    fn filled(&self, mut index: Index) -> Result<Index> {
        index.damages = Arc::clone(&self.damages);
        self.each_readable_pack(|pack, contents| index.add_contents(pack, &contents))?;
        index.merge()?;
        Ok(index)
    }

    /// Reads the whole index into memory, as a change needs it.
    fn whole_index(&self, cap_bytes: u64) -> Result<Index> {
        let mut index = Index::new(cap_bytes);
        index.damages = Arc::clone(&self.damages);
        self.each_pack(|pack, contents| index.add_contents(pack, &contents))?;
        index.merge()?;
        Ok(index)
    }

    /// Hands out all packs that count, as the indexes name them.
    fn each_pack(
        &self,
        take: impl FnMut(index::PackPlace, pack::Contents) -> Result<()>,
    ) -> Result<()> {
        self.each_pack_of(&self.state.indexes, take)
    }

    /// The same of some indexes.
    fn each_pack_of(
        &self,
        epochs: &[u64],
        mut take: impl FnMut(index::PackPlace, pack::Contents) -> Result<()>,
    ) -> Result<()> {
        for epoch in epochs {
            let name = object("index", *epoch);
            let object = self.far.read(&name, INDEX_BYTES_MAX)?;
            index::read_packs(&self.keys.open(INDEX, &name, &object)?, &mut take)?;
        }
        Ok(())
    }

    /// Reads the newest state and its index, in which an add finds similar chunks.
    fn newest_index(&mut self, cap_bytes: u64) -> Result<Index> {
        for _ in 1..TRIES {
            self.reload()?;
            let index = self.index_with_sketches(cap_bytes)?;
            if !self.has_moved_on()? {
                return Ok(index);
            }
        }
        self.reload()?;
        self.index_with_sketches(cap_bytes)
    }

    fn index_with_sketches(&self, cap_bytes: u64) -> Result<Index> {
        match self.has_deltas {
            true => self.filled(Index::with_sketches(cap_bytes)),
            false => self.index(cap_bytes),
        }
    }

    /// The same for readers: where an index is damaged, the footers of packs that no other names replace it.
    fn each_readable_pack(
        &self,
        mut take: impl FnMut(index::PackPlace, pack::Contents) -> Result<()>,
    ) -> Result<()> {
        let (mut named, mut is_damaged) = (BTreeSet::new(), false);
        for epoch in &self.state.indexes {
            let name = object("index", *epoch);
            let object = self.far.read(&name, INDEX_BYTES_MAX);
            match object.and_then(|object| self.keys.open(INDEX, &name, &object)) {
                Ok(content) => index::read_packs(&content, |pack, contents| {
                    named.insert(pack.name);
                    take(pack, contents)
                })?,
                Err(error) if is_damage(&error) => {
                    if !self.has_moved_on()? {
                        self.damages.note(&name, &error);
                    }
                    is_damaged = true;
                }
                Err(error) => return Err(error),
            }
        }
        match is_damaged {
            true => self.each_unnamed_pack(named, take),
            false => Ok(()),
        }
    }

    /// Hands out the packs that are neither named nor doomed, from their footers. A pack without a footer counts as
    /// missing.
    fn each_unnamed_pack(
        &self,
        mut named: BTreeSet<Id>,
        mut take: impl FnMut(index::PackPlace, pack::Contents) -> Result<()>,
    ) -> Result<()> {
        named.extend(self.state.doomed.iter().map(|doomed| doomed.pack));
        let copied = self.copied_packs()?;
        let listed = self.far.list("packs")?;
        let listed = listed.iter().filter_map(|it| pack::name_from(&it.name));
        for name in listed.chain(copied.iter().copied()) {
            if !named.insert(name) {
                continue;
            }
            let read = read_either(&pack::object_name(name), &self.damages, |object| {
                pack::read_contents(&*self.far, object, &self.keys)
            });
            match read {
                Ok((kind, size_bytes, contents)) => {
                    let pack = index::PackPlace {
                        name,
                        kind,
                        size_bytes,
                        has_copy: copied.contains(&name),
                    };
                    take(pack, contents)?;
                }
                Err(error) if is_damage(&error) => {
                    self.damages.note(&pack::object_name(name), &error);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Lets changes wait for their turn while another process writes, for so long at the most. The default is no wait.
    pub fn wait_for_turns(&mut self, wait: Duration) {
        self.waits.turn = wait;
    }

    /// Returns the choices made when the vault was made.
    pub fn options(&self) -> VaultOptions {
        self.options
    }

    /// Returns the bytes of all objects of the vault.
    ///
    /// # Errors
    /// Those of the storage.
    pub fn stored_bytes(&self) -> Result<u64> {
        let mut bytes = self.far.size_bytes(CONFIG)?.unwrap_or(0);
        for folder in ["keys", "packs", COPIES, "index", "snapshots", "locks"] {
            for Listed { name, size_bytes } in self.far.list(folder)? {
                bytes += match size_bytes {
                    Some(size_bytes) => size_bytes,
                    None => (self.far.size_bytes(&format!("{folder}/{name}"))?).unwrap_or(0),
                };
            }
        }
        Ok(bytes)
    }
}

fn put_key(far: &dyn FarEnd, record: &[u8]) -> Result<String> {
    let hash = pack::name_of(record).hex();
    let name = hash[..16].to_string();
    let object = format!("keys/{name}");
    match far.put(&object, record)? {
        Put::Created => {
            far.put(&copy_name(&object), record)?;
            Ok(name)
        }
        Put::Exists => Err(Error::invalid("key", format!("there is a {name} already"))),
    }
}

/// Removes the remains of an `init` that ended before there was a vault.
fn clear_leftovers(far: &dyn FarEnd) -> Result<()> {
    for folder in ["packs", "index", "snapshots"] {
        if !far.list(folder)?.is_empty() {
            let reason = format!(
                "its config is gone, and its {folder} are not: put a copy of config and keys back"
            );
            return Err(Error::invalid("vault", reason));
        }
    }
    for folder in ["keys", COPIES] {
        far.clear(folder)?;
        let left: Vec<String> = far.list(folder)?.into_iter().map(|it| it.name).collect();
        far.delete(folder, &left)?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    pairs.map(byte).collect()
}

/// Returns the name of an epoch's object.
fn object(folder: &str, epoch: u64) -> String {
    format!("{folder}/{epoch:016x}")
}

fn epoch_of(name: &str) -> Option<u64> {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_epoch = name.len() == 16 && name.bytes().all(is_hex);
    is_epoch
        .then(|| u64::from_str_radix(name, 16).ok())
        .flatten()
}
