//! Stores that earlier versions of the format made, which must open for ever.

use std::io::IoSlice;

use super::{Blocks, BlocksOptions, Durability, model_test as model, repair};
use crate::codec::{Decoder, Decompressor};
use crate::storage::superblock::SLOT_BYTES;
use crate::storage::{MemoryStorage, OpenOptions, Storage};

const NAME: &str = "store";
const BLOCK_BYTES: usize = 512;

/// Without flags: each superblock was written to one slot alone. There are two sessions, neither closed. First come a
/// volume of 30 blocks, with one of them shown at 50 too, its clone and a note. A checkpoint follows, and blocks 10 to
/// 19 again. Then blocks 20 to 24 again and a trim of the first two; then block 25 again.
const WITHOUT_FLAGS: &[u8] = include_bytes!("../../tests/golden/blocks-1.zst");
const WITHOUT_FLAGS_BYTES: usize = 32_768;

fn options() -> BlocksOptions {
    BlocksOptions {
        block_bytes_max: BLOCK_BYTES as u32,
        segment_bytes_min: 8192,
        seed: Some(1),
        ..BlocksOptions::default()
    }
}

fn golden() -> MemoryStorage {
    let mut bytes = vec![0; WITHOUT_FLAGS_BYTES];
    let decoder = Decoder {
        codec: Decoder::CODEC_ZSTD,
        ..Decoder::STORE
    };
    let decoded = Decompressor::default().decompress(decoder, WITHOUT_FLAGS, &mut bytes);
    decoded.unwrap();
    let storage = MemoryStorage::new();
    let file = storage.open(NAME, OpenOptions::create_new()).unwrap();
    file.write_at(&[IoSlice::new(&bytes)], 0).unwrap();
    storage
}

fn block(index: u64, round: u8) -> Vec<u8> {
    let text = format!("block {index} of round {round}, ");
    text.bytes().cycle().take(BLOCK_BYTES).collect()
}

/// Checks the content of both volumes with the sessions up to this one.
fn check(blocks: &Blocks, session: u8) {
    let snapshot = blocks.snapshot();
    assert_eq!(snapshot.note(7).as_deref(), Some(&b"golden"[..]));
    for index in 0..52 {
        let first = match index {
            0..30 => block(index, 1),
            50 => block(3, 1),
            _ => vec![0; BLOCK_BYTES],
        };
        let newest = match (index, session) {
            (0..2, 2) => vec![0; BLOCK_BYTES],
            (10..20, _) => block(index, 2),
            (20..25, 2) => block(index, 3),
            (25, 2) => block(25, 4),
            _ => first.clone(),
        };
        for (volume, expected) in [(0, newest), (1, first)] {
            let mut found = vec![0xEE; BLOCK_BYTES];
            snapshot.read(volume, index, &mut found).unwrap();
            assert!(found == expected, "block {index} of volume {volume}");
        }
    }
}

/// It reads as it did, and the first write brings it to the present format.
#[test]
fn a_store_without_flags_is_read_and_becomes_one_of_today() {
    let storage = golden();
    let blocks = Blocks::open(&storage, NAME, options()).unwrap();
    assert!(blocks.opened().is_whole());
    assert_eq!(blocks.opened().replayed_commits, 2);
    check(&blocks, 2);
    model::verify(&blocks);
    let mut transaction = blocks.begin().unwrap();
    transaction.note(8, b"today").unwrap();
    transaction.commit(Durability::Durable).unwrap();
    drop(blocks);
    // Now either slot leads to it.
    let file = storage.open(NAME, OpenOptions::default()).unwrap();
    for offset in [0, SLOT_BYTES as u64] {
        let mut slot = [0; SLOT_BYTES];
        file.read_exact_at(&mut slot, offset).unwrap();
        file.write_at(&[IoSlice::new(&[0xA5; 9])], offset).unwrap();
        let blocks = Blocks::open(&storage, NAME, options()).unwrap();
        assert_eq!(blocks.snapshot().note(8).as_deref(), Some(&b"today"[..]));
        assert!(blocks.opened().lacks_superblock && !blocks.opened().may_lack);
        check(&blocks, 2);
        drop(blocks);
        file.write_at(&[IoSlice::new(&slot)], offset).unwrap();
    }
}

/// Transactions that one slot alone led to may be missing: that is reported, and a repair finds them.
#[test]
fn a_lost_session_of_a_store_without_flags_is_told_and_found() {
    let mut sessions = Vec::new();
    for offset in [0, SLOT_BYTES as u64] {
        let storage = golden();
        let file = storage.open(NAME, OpenOptions::default()).unwrap();
        file.write_at(&[IoSlice::new(&[0xA5; 9])], offset).unwrap();
        let blocks = Blocks::open_read_only(&storage, NAME, options()).unwrap();
        assert!(blocks.opened().lacks_superblock && blocks.opened().may_lack);
        let mut newest = vec![0; BLOCK_BYTES];
        blocks.snapshot().read(0, 25, &mut newest).unwrap();
        let session = if newest == block(25, 4) { 2 } else { 1 };
        check(&blocks, session);
        sessions.push(session);
        drop(blocks);
        let repaired = repair(&file, &mut |_, _| true).unwrap();
        assert!(repaired.fault.is_some(), "{repaired:?}");
        let blocks = Blocks::open(&storage, NAME, options()).unwrap();
        assert!(blocks.opened().is_whole(), "{:?}", blocks.opened());
        check(&blocks, 2);
        model::verify(&blocks);
    }
    sessions.sort_unstable();
    assert_eq!(sessions, [1, 2]);
}
