//! Versions of trees whose chunks are deltas of each other: their stored bytes, and their fate when their bases go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::contents::Chunks;
use super::index::{PackPlace, write_pack};
use super::pack::{
    ChunkEntry, ChunkKind, Contents, DeltaEncoding, EncodedFrame, PackBuilder, PackKind, RawFrame,
    Resemblance,
};
use super::proof_test::{PASSWORD, Rng, Tree, add, pool, trees_of, writer_options};
use super::trees_test::entry;
use super::*;
use crate::codec::Compressor;
use crate::storage::MemoryStorage;

const COST: PasswordCost = PasswordCost {
    memory_kib: 8,
    passes: 1,
    lanes: 1,
};

fn vault() -> Vault {
    let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
    let options = VaultOptions {
        chunks: ChunkLimits {
            least_bytes: 1024,
            mean_bytes: 4096,
            most_bytes: 16384,
        },
        frame_bytes: 32 << 10,
        pack_bytes: 64 << 10,
    };
    Vault::init(far, options, PASSWORD, COST, Entropy::seeded(1)).unwrap()
}

/// Files of incompressible bytes.
fn tree(random: &mut Rng, files: u8) -> Tree {
    let mut content = || {
        (0..random.usize(3000..60_000))
            .map(|_| random.u8(..))
            .collect()
    };
    (0..files).map(|at| (vec![b'a' + at], content())).collect()
}

/// A version of it; one byte in a few thousand differs.
fn edited(tree: &Tree, random: &mut Rng) -> Tree {
    let mut edited = tree.clone();
    for bytes in edited.values_mut() {
        for _ in 0..bytes.len() / 4000 + 1 {
            let at = random.usize(..bytes.len());
            bytes[at] ^= 1 + random.u8(..255);
        }
    }
    edited
}

/// Returns the chunks that are found as deltas. Each has its base, and no base is a delta.
fn deltas(vault: &Vault) -> Vec<ChunkEntry> {
    let index = vault.index(u64::MAX).unwrap();
    let (mut deltas, mut number) = (Vec::new(), 0);
    vault
        .each_pack(|pack, contents| {
            for frame in &contents.frames {
                for chunk in &frame.chunks {
                    let is_named = index.find(&chunk.id).is_some_and(|it| it.frame == number);
                    if let (true, Some(base)) = (is_named, chunk.base()) {
                        assert_eq!(pack.kind, PackKind::Data);
                        assert!(index.find_base(&base).is_some(), "{base:?}");
                        assert!(index.find_base(&chunk.id).is_none());
                        deltas.push(*chunk);
                    }
                }
                number += 1;
            }
            Ok(())
        })
        .unwrap();
    deltas
}

fn check(vault: &Vault, trees: &BTreeMap<u64, Tree>) {
    assert!(trees_of(vault).unwrap() == *trees);
    let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
    assert_eq!(verified.unwrap().damages, []);
}

fn collect(vault: &mut Vault, now: i64, share_min: f64) -> Collected {
    let done = vault.collect(&pool(), writer_options(), (now, 0), share_min, &mut |_| ());
    done.unwrap()
}

/// Adds a tree and versions of it, each of the one before.
fn versions(vault: &mut Vault, count: u64, seed: u64) -> BTreeMap<u64, Tree> {
    let mut random = crate::testing::seeded("versions", seed);
    let mut tree = tree(&mut random, 12);
    let mut trees = BTreeMap::new();
    for number in 0..count {
        trees.insert(add(vault, &tree, number).unwrap(), tree.clone());
        tree = edited(&tree, &mut random);
    }
    trees
}

#[test]
fn versions_take_what_differs() {
    let mut with = vault();
    let trees = versions(&mut with, 3, 1);
    let mut without = vault();
    without.has_deltas = false;
    assert_eq!(versions(&mut without, 3, 1), trees);
    check(&with, &trees);
    check(&without, &trees);
    assert!(deltas(&with).len() >= 50, "{}", deltas(&with).len());
    assert_eq!(deltas(&without).len(), 0);
    let raw_bytes: usize = trees[&1].values().map(Vec::len).sum();
    let [is, was] = [with, without].map(|it| it.stored_bytes().unwrap());
    println!("{raw_bytes} bytes three times take {is}, and {was} without deltas");
    assert!((is as f64) < 1.3 * raw_bytes as f64, "{is} of {raw_bytes}");
    assert!(
        (was as f64) > 1.8 * raw_bytes as f64,
        "{was} of {raw_bytes}"
    );
}

/// A content that one add meets twice, in two versions: the base is in no pack yet.
#[test]
fn a_version_in_the_same_snapshot_is_a_delta() {
    let mut random = crate::testing::seeded("same snapshot", 2);
    let one = tree(&mut random, 6);
    let other = edited(&one, &mut random);
    let mut both = one.clone();
    both.extend(
        other
            .into_iter()
            .map(|(name, bytes)| ([b"z", &name[..]].concat(), bytes)),
    );
    let mut vault = vault();
    let epoch = add(&mut vault, &both, 0).unwrap();
    check(&vault, &BTreeMap::from([(epoch, both)]));
    assert!(deltas(&vault).len() >= 20, "{}", deltas(&vault).len());
}

#[test]
fn a_collection_keeps_what_deltas_are_of() {
    let mut vault = vault();
    let mut trees = versions(&mut vault, 4, 3);
    let bytes = vault.stored_bytes().unwrap();
    let before = deltas(&vault).len();
    // The first has all bases.
    for gone in [1, 3] {
        vault.forget(&[gone]).unwrap();
        trees.remove(&gone);
        // All packs move, then the rest is deleted.
        for now in [10, 20] {
            collect(&mut vault, now + 100 * gone as i64, 2.0);
            check(&vault, &trees);
        }
    }
    let after = deltas(&vault).len();
    assert!(after >= before / 2, "{after} of {before}");
    assert!(vault.stored_bytes().unwrap() <= bytes);
    let live: BTreeSet<Id> = deltas(&vault).iter().map(|chunk| chunk.id).collect();
    assert_eq!(live.len(), after);
    // With the last version go its bases.
    for epoch in trees.keys() {
        vault.forget(&[*epoch]).unwrap();
    }
    for now in [1000, 2000] {
        collect(&mut vault, now, 0.5);
    }
    assert_eq!(vault.index(u64::MAX).unwrap().chunk_count(), 0);
}

/// Each of two processes stores as a delta a content that the other stores plain.
#[test]
fn two_who_add_at_once_may_have_each_others_bases() {
    let mut random = crate::testing::seeded("at once", 4);
    let one = tree(&mut random, 8);
    let other = edited(&one, &mut random);
    let both = |one: &Tree, other: &Tree| -> Tree {
        let behind = other
            .iter()
            .map(|(name, bytes)| ([b"z", &name[..]].concat(), bytes.clone()));
        one.clone().into_iter().chain(behind).collect()
    };
    let (there, back) = (both(&one, &other), both(&other, &one));
    let mut vault = vault();
    // The second has begun before the first commits.
    let mut trees = BTreeMap::new();
    let far = Arc::clone(&vault.far);
    let mut beside = Vault::open(far, PASSWORD, Entropy::seeded(2)).unwrap();
    let pool = pool();
    let writer = Writer::new(&mut beside, &pool, writer_options()).unwrap();
    trees.insert(add(&mut vault, &there, 0).unwrap(), there);
    let epoch = super::proof_test::add_with(writer, &back, 1, 0).unwrap();
    trees.insert(epoch, back);
    vault.reload().unwrap();
    check(&vault, &trees);
    deltas(&vault);
    for step in 0..4 {
        collect(
            &mut vault,
            10 + 10 * step,
            if step == 1 { 2.0 } else { 0.7 },
        );
        check(&vault, &trees);
        let known = deltas(&vault).len();
        println!("{known} deltas");
        if step == 1 {
            let oldest = *trees.keys().next().unwrap();
            vault.forget(&[oldest]).unwrap();
            trees.remove(&oldest);
        }
    }
}

/// A damaged pack costs its own files, and the files with deltas of its chunks. All are named, and come back with the
/// next add.
#[test]
fn a_damaged_base_costs_its_deltas_and_no_more() {
    for seed in 0..8 {
        let mut vault = vault();
        let trees = versions(&mut vault, 3, seed);
        let mut packs = Vec::new();
        let mut bases = BTreeSet::new();
        vault
            .each_pack(|pack, contents| {
                bases.extend(contents.frames.iter().flat_map(|frame| frame.bases()));
                packs.push((pack, contents));
                Ok(())
            })
            .unwrap();
        let has_base = |contents: &pack::Contents| {
            let mut chunks = contents.frames.iter().flat_map(|frame| &frame.chunks);
            chunks.any(|chunk| bases.contains(&chunk.id))
        };
        let (hit, _) = packs
            .iter()
            .find(|(_, contents)| has_base(contents))
            .unwrap();
        let needs = |contents: &pack::Contents| {
            let index = vault.index(u64::MAX).unwrap();
            let mut frames = contents.frames.iter().flat_map(|frame| frame.bases());
            frames.any(|base| index.pack_of(&base) == Some(hit.name))
        };
        let named: BTreeSet<String> = (packs.iter())
            .filter(|(pack, contents)| pack.name == hit.name || needs(contents))
            .map(|(pack, _)| pack::object_name(pack.name))
            .collect();
        assert!(named.len() > 1);
        let object = pack::object_name(hit.name);
        let bytes = vault.far.read(&object, u64::MAX).unwrap();
        let (folder, name) = object.rsplit_once('/').unwrap();
        vault.far.delete(folder, &[name.to_string()]).unwrap();
        let half = &bytes[..bytes.len() / 2];
        vault.far.put(&object, half).unwrap();
        let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
        let found: BTreeSet<String> = (verified.unwrap().damages.into_iter())
            .map(|damage| damage.name)
            .collect();
        assert!(found.contains(&object));
        assert!(found.is_subset(&named), "{found:?}, {named:?}");
        let repaired = vault
            .repair(&pool(), writer_options(), 10, &mut |_| ())
            .unwrap();
        assert!(!repaired.lost.is_empty() && repaired.left.is_empty());
        let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
        assert!(
            verified
                .unwrap()
                .damages
                .iter()
                .all(|it| it.name.starts_with("snapshots"))
        );
        deltas(&vault);
        for (number, tree) in trees.values().enumerate() {
            add(&mut vault, tree, 10 + number as u64).unwrap();
        }
        let back = trees_of(&vault).unwrap();
        assert!(trees.iter().all(|(epoch, tree)| back[epoch] == *tree));
    }
}

/// A frame of one chunk as a hostile writer with the key would make it.
struct HostileFrame {
    chunk: Vec<u8>,
    /// The bases that the frame names; with none it is no frame of deltas.
    bases: Vec<Id>,
    prefix: Vec<u8>,
    listed: Resemblance,
}

impl HostileFrame {
    fn encode(&self, id: Id) -> EncodedFrame {
        let frame = RawFrame {
            bytes: self.chunk.clone(),
            chunks: vec![ChunkEntry {
                id,
                kind: ChunkKind::Plain,
                length_bytes: self.chunk.len() as u32,
                resemblance: self.listed,
            }],
        };
        let mut compressor = Compressor::new();
        if self.bases.is_empty() {
            let methods = std::iter::once("zstd:3".parse().unwrap());
            return frame.encode(methods, &mut compressor).unwrap().0;
        }
        let delta = DeltaEncoding {
            method: "zstd:3".parse().unwrap(),
            bases: self.bases.clone(),
            prefix: self.prefix.clone(),
            most_bytes: self.chunk.len(),
        };
        let encoded = frame.encode_delta(&delta, &mut compressor).unwrap();
        encoded.unwrap()
    }

    /// Puts it as a pack of its own, and returns the name of that and the chunk's.
    fn put(&self, writer: &mut Writer<'_>) -> (String, Id) {
        let keys = &writer.vault().keys;
        let id = keys.id(&self.chunk);
        let mut pack = PackBuilder::new(PackKind::Data, [7; 16]);
        pack.push(0, self.encode(id));
        let (bytes, placed) = pack.finish(keys, &mut Entropy::seeded(9));
        let name = pack::name_of(&bytes);
        let object = pack::object_name(name);
        writer.vault().far.put(&object, &bytes).unwrap();
        let place = PackPlace {
            name,
            kind: PackKind::Data,
            size_bytes: bytes.len() as u64,
            has_copy: false,
        };
        let frames = placed.into_iter().map(|(_, frame)| frame).collect();
        write_pack(&mut writer.listed, &place, &Contents { frames });
        (object, id)
    }
}

/// Returns frames that no honest writer makes. They are deltas of themselves, of each other, of deltas, of a list, of a
/// missing chunk, and of more than a reader accepts. Others are listed as another kind than they are. `plain` is an
/// existing chunk.
fn hostile_frames(writer: &Writer<'_>, plain: &[u8], list: Id) -> Vec<HostileFrame> {
    let mut random = crate::testing::seeded("hostile deltas", 6);
    let id_of = |bytes: &[u8]| writer.vault().keys.id(bytes);
    let mut other = || {
        let mut bytes = plain.to_vec();
        let at = random.usize(..bytes.len());
        bytes[at] ^= 1 + random.u8(..255);
        bytes
    };
    let frame = |chunk: &[u8], bases: &[Id], listed: Resemblance| HostileFrame {
        chunk: chunk.to_vec(),
        bases: bases.to_vec(),
        prefix: plain.to_vec(),
        listed,
    };
    let delta = |chunk: &[u8], base: Id| frame(chunk, &[base], Resemblance::Base(base));
    let plain_id = id_of(plain);
    let [own, one, two, second, lacks] = std::array::from_fn(|_| other());
    let [of_list, unlisted, listed, long] = std::array::from_fn(|_| other());
    let missing = Id([9; 16]);
    vec![
        delta(&own, id_of(&own)),
        delta(&one, id_of(&two)),
        delta(&two, id_of(&one)),
        delta(&second, id_of(&one)),
        delta(&lacks, missing),
        delta(&of_list, list),
        frame(&unlisted, &[plain_id], Resemblance::Unknown),
        frame(&listed, &[], Resemblance::Base(plain_id)),
        frame(&long, &[plain_id; 5000], Resemblance::Base(plain_id)),
    ]
}

/// Damage is found and repaired; no reader waits, falls or takes memory for it.
#[test]
fn hostile_deltas_are_damage_and_no_more() {
    let mut vault = vault();
    let mut random = crate::testing::seeded("hostile deltas", 5);
    let good = tree(&mut random, 6);
    let mut trees = BTreeMap::from([(add(&mut vault, &good, 0).unwrap(), good)]);
    let pool = pool();
    let mut writer = Writer::new(&mut vault, &pool, writer_options()).unwrap();
    let plain: Vec<u8> = (0..4000).map(|_| random.u8(..)).collect();
    let long: Vec<u8> = (0..40_000).map(|_| random.u8(..)).collect();
    writer.add_content(&mut &plain[..]).unwrap();
    let (list, _) = writer.add_content(&mut &long[..]).unwrap();
    let frames = hostile_frames(&writer, &plain, list);
    let mut put = BTreeMap::new();
    for frame in &frames {
        let (object, id) = frame.put(&mut writer);
        put.insert(object, id);
    }
    assert_eq!(put.len(), frames.len());
    let files = put.values().zip(b'a'..);
    let entries: Vec<Entry> = files
        .map(|(id, name)| entry(&[name], file_of(*id)))
        .collect();
    let stamps = vec![Stamp::default(); entries.len()];
    let (folder, stamps) = writer.add_folder(&entries, &stamps).unwrap();
    let snapshot = Snapshot {
        folder,
        stamps,
        ..Snapshot::default()
    };
    let wrong = writer.commit(snapshot).unwrap();
    let index = vault.index(u64::MAX).unwrap();
    let mut chunks = Chunks::new(&vault.far, &vault.keys);
    let reader = vault.random_reader(u64::MAX, 64 << 20).unwrap();
    for (id, file) in put.values().zip(&entries) {
        assert!(chunks.whole(&index, *id).is_err());
        let map = reader.open(file).unwrap();
        assert!(reader.read_at(&map, 0, &mut [0; 4000]).is_err());
    }
    let verified = vault.verify(&pool, VerifyOptions::default(), &mut |_| ());
    let damages = verified.unwrap().damages.into_iter();
    let damages: BTreeSet<String> = damages.map(|it| it.name).collect();
    assert!(damages.iter().eq(put.keys()), "{damages:?}, {put:?}");
    let moved = vault.collect(&pool, writer_options(), (10, 0), 2.0, &mut |_| ());
    assert!(moved.is_err());
    let repaired = vault.repair(&pool, writer_options(), 30, &mut |_| ());
    assert!(repaired.unwrap().left.is_empty());
    vault.forget(&[wrong]).unwrap();
    let later = edited(trees.values().next().unwrap(), &mut random);
    trees.insert(add(&mut vault, &later, 1).unwrap(), later);
    collect(&mut vault, 40, 2.0);
    let back = trees_of(&vault).unwrap();
    assert!(trees.iter().all(|(epoch, tree)| back[epoch] == *tree));
    let verified = vault.verify(&pool, VerifyOptions::default(), &mut |_| ());
    assert_eq!(verified.unwrap().damages, []);
}

fn file_of(content: Id) -> Node {
    Node::File {
        size_bytes: 4000,
        is_sparse: false,
        is_torn: false,
        content,
    }
}
