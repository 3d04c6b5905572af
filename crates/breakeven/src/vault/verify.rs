//! Reading everything, and reporting the damage.
//!
//! Promises: with a share of 1, every byte of every object counts: a flipped bit is found. Nothing is changed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::Result;
use crate::pool::Pool;

use super::cipher::{Id, Keys};
use super::contents::Chunks;
use super::copies::{COPIES, copy_name};
use super::far_end::FarEnd;
use super::folder::Node;
use super::index::{Index, PackPlace};
use super::pack::{
    self, ChunkKind, Contents, PACK_BYTES_LIMIT, object_name, open_frame, read_head,
};
use super::record::{Record, Snapshot};
use super::{
    CONFIG, CONFIG_BYTES_MAX, Damage, LOCK, Progress, RECORD, RECORD_BYTES_MAX, Vault, is_damage,
    object,
};

/// Folders within folders that are followed: twice as many as a path of 4,096 bytes can hold.
pub(super) const DEPTH_MAX: usize = 4096;

/// The part of a vault that is read.
#[derive(Clone, Copy, Debug)]
pub struct VerifyOptions {
    /// The share of packs that are read whole, picked at random. Default 1: all.
    pub sample_share: f64,
    /// The seed of their choice. Default 0.
    pub seed: u64,
    /// Memory that the index may take. Default 1 GiB.
    pub index_bytes_max: u64,
}

impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        VerifyOptions {
            sample_share: 1.0,
            seed: 0,
            index_bytes_max: 1 << 30,
        }
    }
}

/// The objects read, and their faults.
#[derive(Clone, Debug, Default)]
pub struct Verified {
    /// Packs that were read whole.
    pub packs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks whose identity was computed again.
    pub chunks: u64,
    /// Snapshots whose folders were followed.
    pub snapshots: u64,
    /// The faults.
    pub damages: Vec<Damage>,
    /// Files and folders that lost something, by the numbers of their snapshots.
    pub lost: Vec<(u64, PathBuf)>,
}

impl Verified {
    /// Notes damage of an object.
    ///
    /// # Errors
    /// Those of a far end that does not answer: the object may be whole.
    fn note<T>(&mut self, name: &str, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_damage(&error) => {
                let (name, reason) = (name.to_string(), error.to_string());
                self.damages.push(Damage { name, reason });
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Vault {
    /// Reads the vault and reports its damage.
    ///
    /// # Errors
    /// Those of a far end that does not answer, and [`crate::Error::Limit`] for an index that does not fit. Damage is
    /// no error here.
    pub fn verify(
        &self,
        pool: &Pool,
        options: VerifyOptions,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<Verified> {
        let mut verified = Verified::default();
        self.verify_small(&mut verified)?;
        let mut index = Index::new(options.index_bytes_max);
        index.damages = Arc::clone(&self.damages);
        let mut packs: Vec<(PackPlace, Contents)> = Vec::new();
        self.each_readable_pack(|pack, contents| {
            index.add_contents(pack, &contents)?;
            packs.push((pack, contents));
            Ok(())
        })?;
        index.merge()?;
        let index = Arc::new(index);
        self.verify_unlisted(&packs, &mut verified)?;
        let mut random = fastrand::Rng::with_seed(options.seed);
        let packs = sampled(packs, options.sample_share, &mut random);
        verified.bytes = self.verify_packs(pool, &index, packs, &mut verified, progress)?;
        let phase = "following snapshots";
        self.follow_all(&index, phase, progress, &mut |_| (), &mut |epoch, ended| {
            verified.note(&object("snapshots", epoch), ended)?;
            verified.snapshots += 1;
            Ok(())
        })?;
        self.list_lost_of(&index, &mut verified)?;
        // Damage that was got around on the way, damaged indexes among it.
        for damage in self.damages() {
            if !verified.damages.iter().any(|it| it.name == damage.name) {
                verified.damages.push(damage);
            }
        }
        Ok(verified)
    }

    /// Names the entries that lost something, if anything is damaged.
    fn list_lost_of(&self, index: &Index, verified: &mut Verified) -> Result<()> {
        if verified.damages.is_empty() {
            return Ok(());
        }
        let damaged = verified.damages.iter().map(|it| &it.name[..]);
        let damaged: BTreeSet<&str> = damaged.collect();
        let mut chunks = Chunks::new(&self.far, &self.keys);
        let mut unreadable = BTreeSet::new();
        for number in (0..).take(index.frame_count()) {
            let pack = index.pack(index.frame(number).pack);
            let is_damaged = damaged.contains(&object_name(pack.name)[..]);
            if is_damaged && chunks.frame(index, number).is_err() {
                unreadable.insert(number);
            }
        }
        let is_there = |id: &Id| {
            index.has_chunk(id)
                && (index.find(id)).is_some_and(|place| !unreadable.contains(&place.frame))
        };
        verified.lost = self.list_lost(index, &is_there)?;
        Ok(())
    }

    /// Reads packs, several at once; returns the bytes of them.
    fn verify_packs(
        &self,
        pool: &Pool,
        index: &Arc<Index>,
        packs: Vec<(PackPlace, Contents)>,
        verified: &mut Verified,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<u64> {
        let total = packs.iter().map(|(pack, _)| pack.size_bytes).sum();
        let (far, keys) = (Arc::clone(&self.far), Arc::clone(&self.keys));
        let index = Arc::clone(index);
        let work = move |verifier: &mut PackVerifier, (pack, contents): (PackPlace, Contents)| {
            let read = verifier.verify(&index, &pack, &contents);
            let copy = match pack.has_copy {
                true => verify_name(
                    &*verifier.far,
                    &copy_name(&object_name(pack.name)),
                    pack.name,
                ),
                false => Ok(()),
            };
            Ok((pack, read, copy))
        };
        let capacity = pool.worker_count() + 1;
        let create = move || PackVerifier::new(&far, &keys);
        let mut stage = pool.stage(capacity, create, work)?;
        let mut done = 0;
        stage.run(packs, |read| {
            let (pack, read, copy) = read?;
            verified.note(&copy_name(&object_name(pack.name)), copy)?;
            if let Some(chunks) = verified.note(&object_name(pack.name), read)? {
                verified.chunks += chunks;
            }
            verified.packs += 1;
            done += pack.size_bytes;
            let phase = "reading packs";
            progress(&Progress { phase, done, total });
            Ok(())
        })?;
        Ok(done)
    }

    /// Checks config, keys, locks, records and their copies.
    fn verify_small(&self, verified: &mut Verified) -> Result<()> {
        let config = self.far.read(CONFIG, CONFIG_BYTES_MAX);
        let config = config.and_then(|it| right(it == self.config));
        verified.note(CONFIG, config)?;
        for copy in self.far.list(COPIES)? {
            // Those of packs are read with the packs.
            if Id::from_hex(&copy.name).is_none() {
                let name = format!("{COPIES}/{}", copy.name);
                let bytes = self.far.read(&name, RECORD_BYTES_MAX);
                let checked = bytes.and_then(|it| right(self.is_right_copy(&copy.name, &it)));
                verified.note(&name, checked)?;
            }
        }
        for key in self.far.list("keys")? {
            let name = format!("keys/{}", key.name);
            let record = self.far.read(&name, CONFIG_BYTES_MAX);
            verified.note(
                &name,
                record.and_then(|record| self.keys.master.check_record(&record)),
            )?;
        }
        for epoch in self.epochs("locks")? {
            let name = object("locks", epoch);
            let lock = self.far.read(&name, CONFIG_BYTES_MAX);
            verified.note(
                &name,
                lock.and_then(|lock| self.keys.open(LOCK, &name, &lock)),
            )?;
        }
        for epoch in self.epochs("snapshots")? {
            let name = object("snapshots", epoch);
            let record = self.far.read(&name, RECORD_BYTES_MAX);
            let record = record.and_then(|it| self.keys.open(RECORD, &name, &it));
            verified.note(&name, record.and_then(|it| Record::read(&it)))?;
        }
        Ok(())
    }

    /// Checks the names of packs that no index lists and nothing has doomed: no more can be checked of them.
    fn verify_unlisted(
        &self,
        listed: &[(PackPlace, Contents)],
        verified: &mut Verified,
    ) -> Result<()> {
        let listed = listed.iter().map(|(pack, _)| pack.name);
        let doomed = self.state.doomed.iter().map(|doomed| doomed.pack);
        let listed: BTreeSet<Id> = listed.chain(doomed).collect();
        for pack in self.far.list("packs")? {
            let Some(name) = pack::name_from(&pack.name).filter(|name| !listed.contains(name))
            else {
                continue;
            };
            let object = object_name(name);
            verified.note(&object, verify_name(&*self.far, &object, name))?;
        }
        Ok(())
    }

    /// Follows the folders of all snapshots; the index must list every chunk that they need. Hands out each such chunk,
    /// and how each snapshot ended. Progress counts the bytes of their files; files seen before are counted with their
    /// snapshot's end.
    pub(super) fn follow_all(
        &self,
        index: &Index,
        phase: &'static str,
        progress: &mut dyn FnMut(&Progress),
        take: &mut dyn FnMut(Id),
        ended: &mut dyn FnMut(u64, Result<()>) -> Result<()>,
    ) -> Result<()> {
        let epochs = self.state.snapshots.iter();
        let snapshots: Vec<_> = epochs.map(|it| (*it, self.snapshot(*it))).collect();
        let bytes_of = |it: &Result<Snapshot>| it.as_ref().map_or(0, |it| it.raw_bytes);
        let bytes = snapshots.iter().map(|(_, it)| bytes_of(it));
        let total = bytes.fold(0, u64::saturating_add);
        let mut chunks = Chunks::new(&self.far, &self.keys);
        let (mut seen, mut before) = (BTreeSet::new(), 0u64);
        for (epoch, snapshot) in snapshots {
            let (raw_bytes, mut within) = (bytes_of(&snapshot), 0u64);
            let mut followed = |bytes| {
                within = within.saturating_add(bytes).min(raw_bytes);
                let done = before.saturating_add(within);
                progress(&Progress { phase, done, total });
            };
            let result = snapshot.and_then(|snapshot| {
                let roots = [snapshot.folder, snapshot.stamps];
                follow(&mut chunks, index, roots, &mut seen, take, &mut followed)
            });
            followed(raw_bytes);
            before = before.saturating_add(raw_bytes);
            ended(epoch, result)?;
        }
        Ok(())
    }
}

/// Picks a share of the packs at random: at least one, unless the share is 0.
fn sampled<T>(packs: Vec<T>, share: f64, random: &mut fastrand::Rng) -> Vec<T> {
    if packs.is_empty() || share <= 0.0 {
        return Vec::new();
    }
    let one = random.usize(..packs.len());
    let packs = packs.into_iter().enumerate();
    let picked = packs.filter(|(at, _)| *at == one || random.f64() < share);
    picked.map(|(_, pack)| pack).collect()
}

/// The state with which packs are verified.
pub(super) struct PackVerifier {
    far: Arc<dyn FarEnd>,
    keys: Arc<Keys>,
    /// Reads bases of deltas from other packs.
    chunks: Chunks,
}

impl PackVerifier {
    pub(super) fn new(far: &Arc<dyn FarEnd>, keys: &Arc<Keys>) -> PackVerifier {
        PackVerifier {
            far: Arc::clone(far),
            keys: Arc::clone(keys),
            chunks: Chunks::new(far, keys),
        }
    }

    /// Reads a pack whole; returns how many chunks were checked.
    pub(super) fn verify(
        &mut self,
        index: &Index,
        pack: &PackPlace,
        contents: &Contents,
    ) -> Result<u64> {
        let bytes = (self.far).read(&object_name(pack.name), 2 * PACK_BYTES_LIMIT as u64)?;
        check_name(&bytes, pack.name)?;
        let (head, _) = read_head(&bytes)?;
        let mut count = 0;
        for frame in &contents.frames {
            // The bases of hidden deltas may be gone.
            if frame.is_delta() && frame.is_hidden() {
                continue;
            }
            let (offset, length) = (frame.offset as usize, frame.sealed_bytes as usize);
            let sealed = bytes.get(offset..offset.saturating_add(length));
            let sealed =
                sealed.ok_or_else(|| super::fail("pack", offset as u64, "a frame", "the end"))?;
            let open = open_frame(&self.keys, &head, offset as u64, sealed.to_vec())?;
            frame.check_bases(&open)?;
            let open = self.chunks.decode(index, open)?;
            for (ordinal, chunk) in frame.chunks.iter().enumerate() {
                let is_right = open.chunk(ordinal).is_some_and(|bytes| {
                    let is_named = chunk.kind == ChunkKind::Plain && chunk.id != Id::NONE;
                    bytes.len() == chunk.length_bytes as usize
                        && (!is_named || self.keys.id(bytes) == chunk.id)
                });
                if !is_right {
                    let id = chunk.id.hex();
                    return Err(super::fail("pack", offset as u64, id, "another chunk"));
                }
                count += 1;
            }
        }
        Ok(count)
    }
}

fn right(is_right: bool) -> Result<()> {
    match is_right {
        true => Ok(()),
        false => Err(super::fail(
            "object",
            0,
            "the bytes that it was put with",
            "others",
        )),
    }
}

/// Checks that an object's bytes match the pack's name.
fn verify_name(far: &dyn FarEnd, object: &str, pack: Id) -> Result<()> {
    let bytes = far.read(object, 2 * PACK_BYTES_LIMIT as u64)?;
    check_name(&bytes, pack)
}

fn check_name(bytes: &[u8], name: Id) -> Result<()> {
    match pack::name_of(bytes) == name {
        true => Ok(()),
        false => Err(super::fail("pack", 0, "the bytes of its name", "others")),
    }
}

/// Hands out every chunk that a folder needs with all below it, its stamps, and the bytes of each file once that was
/// followed. Folders that were seen are left out.
fn follow(
    chunks: &mut Chunks,
    index: &Index,
    roots: [Id; 2],
    seen: &mut BTreeSet<[Id; 2]>,
    take: &mut dyn FnMut(Id),
    followed: &mut dyn FnMut(u64),
) -> Result<()> {
    let mut left = vec![(roots, 0)];
    while let Some(([folder, stamps], depth)) = left.pop() {
        if folder == Id::NONE || !seen.insert([folder, stamps]) {
            continue;
        }
        if depth > DEPTH_MAX {
            return Err(super::fail(
                "folder",
                0,
                format!("at most {DEPTH_MAX} within each other"),
                "more",
            ));
        }
        chunks.each_chunk(index, folder, take)?;
        chunks.each_chunk(index, stamps, take)?;
        let entries = chunks.folder(index, folder)?;
        let stamps = chunks.stamps(index, &entries, stamps)?;
        let last = left.len();
        for (entry, stamp) in entries.iter().zip(&stamps) {
            match entry.node {
                Node::File {
                    content,
                    size_bytes,
                    ..
                } if content != Id::NONE => {
                    chunks.each_chunk(index, content, take)?;
                    followed(size_bytes);
                }
                Node::Folder { content } => left.push(([content, stamp.folder], depth + 1)),
                _ => {}
            }
        }
        // The first is followed next, as it was added.
        left[last..].reverse();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_holds_one_pack_at_least() {
        let mut random = crate::testing::seeded("sampled", 7);
        let mut check = |count: usize, share: f64, least: usize, most: usize| {
            for _ in 0..100 {
                let picked = sampled((0..count).collect(), share, &mut random);
                assert!(picked.is_sorted_by(|one, next| one < next), "{picked:?}");
                assert!((least..=most).contains(&picked.len()), "{picked:?}");
            }
        };
        check(0, 1.0, 0, 0);
        check(5, 0.0, 0, 0);
        check(5, 1e-9, 1, 1);
        check(5, 0.5, 1, 5);
        check(5, 1.0, 5, 5);
    }
}
