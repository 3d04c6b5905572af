//! Files with holes, and contents of zeros.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

use crate::storage::{MemoryStorage, is_zero};

use super::trees_test::{COST, memory_vault, noise, options, pool, restored};
use super::*;

const MIB: u64 = 1 << 20;

/// Reading, hashing, verifying, restoring and finding a file again cost in proportion to its data.
#[test]
fn a_terabyte_of_holes_costs_its_data() {
    const LENGTH: u64 = (1 << 40) + 4321;
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("disks");
    fs::create_dir(&root).unwrap();
    let mut random = crate::testing::seeded("terabyte", 7);
    let data = noise(&mut random, MIB as usize);
    let places = [0, (3 << 30) + 777, 700 << 30, LENGTH - 2 * MIB];
    let disk = File::create(root.join("disk")).unwrap();
    disk.set_len(LENGTH).unwrap();
    for place in places {
        disk.write_all_at(&data, place).unwrap();
    }
    File::create(root.join("nothing"))
        .unwrap()
        .set_len(LENGTH)
        .unwrap();
    let (_, mut vault) = memory_vault();
    let paths = [root.clone()];
    let mut add = |days| {
        vault
            .add(&pool(), &paths, &options(days), &mut |_| ())
            .unwrap()
    };
    let first = add(1).snapshot.new_raw_bytes;
    assert!((MIB..6 * MIB).contains(&first), "{first} bytes");
    // It has new times and a known content.
    let touched = SystemTime::now() + Duration::from_secs(60);
    disk.set_modified(touched).unwrap();
    let again = add(2);
    assert!(again.snapshot.new_raw_bytes < 2000, "{:?}", again.snapshot);
    let verified = vault.verify(&pool(), VerifyOptions::default(), &mut |_| ());
    let damages = verified.unwrap().damages;
    assert!(damages.is_empty(), "{damages:?}");
    let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
    let mut copy = Vault::init(
        far,
        VaultOptions::default(),
        b"other",
        COST,
        Entropy::seeded(2),
    )
    .unwrap();
    let writing = WriterOptions::default();
    copy.copy_from(&vault, &[], &pool(), writing, &mut |_| ())
        .unwrap();
    for vault in [&vault, &copy] {
        let (_target, back) = restored(vault, 2, &root);
        for name in ["disk", "nothing"] {
            let back = File::open(back.join(name)).unwrap();
            let status = back.metadata().unwrap();
            assert_eq!(status.len(), LENGTH, "{name}");
            assert!(
                status.blocks() * 512 < 16 * MIB,
                "{name}: {}",
                status.blocks()
            );
            let mut found = vec![1; data.len()];
            for place in places {
                back.read_exact_at(&mut found, place).unwrap();
                assert!(
                    found == data || name == "nothing" && is_zero(&found),
                    "{name} at {place}"
                );
            }
            back.read_exact_at(&mut found, 5 << 30).unwrap();
            assert!(is_zero(&found), "{name}");
        }
    }
}

/// Zeros that are read and holes that are not are the same bytes, and are cut at the same places.
#[test]
fn holes_and_zeros_are_one_content() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("files");
    fs::create_dir(&root).unwrap();
    let mut random = crate::testing::seeded("holes_and_zeros", 12);
    let (_, mut vault) = memory_vault();
    for round in 0..12 {
        let length = random.usize(1..12 << 20);
        let mut bytes = vec![0; length];
        if round % 2 == 0 && length > 1 << 20 {
            // A content that begins like a file system is cut at fixed places.
            bytes[0x438..0x43a].copy_from_slice(b"\x53\xef");
        }
        for _ in 0..random.usize(0..4) {
            let from = random.usize(..length);
            let to = (from + random.usize(1..2 << 20)).min(length);
            random.fill(&mut bytes[from..to]);
        }
        let holed = File::create(root.join("holed")).unwrap();
        holed.set_len(length as u64).unwrap();
        for (at, block) in bytes.chunks(4096).enumerate() {
            if !is_zero(block) {
                holed.write_all_at(block, at as u64 * 4096).unwrap();
            }
        }
        let days = 2 * i64::from(round) + 1;
        let mut add = |days| {
            let paths = std::slice::from_ref(&root);
            vault
                .add(&pool(), paths, &options(days), &mut |_| ())
                .unwrap()
        };
        add(days);
        fs::write(root.join("written"), &bytes).unwrap();
        let new = add(days + 1);
        assert!(
            new.snapshot.new_raw_bytes < 2000,
            "{length}: {:?}",
            new.snapshot
        );
        let (_target, back) = restored(&vault, new.epoch, &root);
        for name in ["holed", "written"] {
            assert!(
                fs::read(back.join(name)).unwrap() == bytes,
                "{name} of {length}"
            );
            fs::remove_file(root.join(name)).unwrap();
        }
    }
}

/// In lists of earlier vaults zeros count in the identity. Such a list is read by its own rule, at no cost for its
/// zeros.
#[test]
fn a_list_of_before_is_read() {
    let (_, mut vault) = memory_vault();
    let pool = pool();
    let mut writer = Writer::new(&mut vault, &pool, WriterOptions::default()).unwrap();
    let keys = Arc::clone(&writer.vault().keys);
    let zeros = vec![0; 5 << 20];
    let mut skipping = hashing::ContentHasher::new(&keys, true);
    skipping.update(&zeros);
    let (plain, skipping) = (keys.id(&zeros), skipping.identity().id);
    let mut put = |id, head: u8, raw_bytes: u64| {
        let mut list = vec![head];
        bytes::put_number(&mut list, raw_bytes);
        bytes::put_number(&mut list, raw_bytes << 1 | contents::ZEROS_BIT);
        let (group, kind) = (writer::Group::Lists, pack::ChunkKind::List);
        writer.put_chunk(group, kind, id, &list).unwrap();
    };
    put(plain, 1, 5 << 20);
    put(skipping, 1, 5 << 20);
    let endless = Id([8; 16]);
    let head = contents::head_of_list(1, hashing::IdentityOf::Data);
    put(endless, head, 1 << 62);
    writer.commit(Snapshot::default()).unwrap();
    let index = vault.index(u64::MAX).unwrap();
    let mut chunks = contents::Chunks::new(&vault.far, &vault.keys);
    assert!(chunks.whole(&index, plain).unwrap() == zeros);
    for id in [skipping, endless] {
        let read = chunks.read(&index, id, &mut |_| Ok(()));
        assert!(read.is_err(), "{}", id.hex());
    }
}
