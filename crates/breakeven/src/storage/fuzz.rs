//! Fuzz targets of records and superblocks; [`crate::fuzz`] lists them.
//!
//! Random bytes never get past a checksum. So a bit of the input asks for corrected checksums, to test the code behind
//! them as well.

use std::io::IoSlice;
use std::sync::Arc;

use crate::storage::record::{
    ALIGNMENT_BYTES, Appended, Found, KIND_PADDING, RecordWriter, Region, Scanner, parse,
    parse_head, seal,
};
use crate::storage::superblock::{self, SLOT_BYTES, StoreKind, Superblocks};
use crate::storage::{MemoryStorage, OpenOptions, Storage, StorageFile};

/// The id of the log that the kept inputs were written in.
const LOG_ID: [u8; 16] = *b"the fuzzed log..";
/// Its generation.
const GENERATION: u64 = 0x0000_0BEE_0000_0007;
/// The store whose superblocks the kept inputs are.
const KIND: StoreKind = StoreKind::new(*b"FUZZ", 1);
const REGION_BYTES_MAX: usize = 64 << 10;

/// Reads any bytes as a part of a store. A part that was read is written again and must read the same.
pub fn read_again<T: PartialEq + std::fmt::Debug>(
    bytes: &[u8],
    decode: impl Fn(&[u8]) -> Option<T>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    if let Some(found) = decode(bytes) {
        assert_eq!(decode(&encode(&found)).as_ref(), Some(&found));
    }
}

fn file_of(bytes: &[u8]) -> Arc<dyn StorageFile> {
    let storage = MemoryStorage::new();
    let file = storage
        .open("a", OpenOptions::create_new())
        .expect("a new file in memory");
    file.write_at(&[IoSlice::new(bytes)], 0)
        .expect("memory takes it");
    file
}

/// Scans any bytes as a region: bit 0 of the first byte puts checksums right, bits 1 to 7 limit the records. The
/// records found stand in order, are found by their place as well, and can be written in no other way.
pub fn fuzz_record(data: &[u8]) {
    let Some((&control, bytes)) = data.split_first() else {
        return;
    };
    let mut bytes = bytes[..bytes.len().min(REGION_BYTES_MAX)].to_vec();
    let region = Region::new(LOG_ID, GENERATION, 0..bytes.len() as u64);
    if control & 1 == 1 {
        for address in (0..bytes.len()).step_by(ALIGNMENT_BYTES) {
            seal(&mut bytes[address..], &region, address as u64);
        }
    }
    if let Ok((found, _)) = parse_head(&bytes, LOG_ID, region.range()) {
        assert_eq!(found.range(), region.range());
    }
    let file = file_of(&bytes);
    let record_bytes_max = 64 + u64::from(control >> 1) * 1024;
    let mut scanner = Scanner::new(&*file, region, 0, 0, record_bytes_max);
    let (mut address, mut sequence) = (0, 0);
    let mut steps = 0;
    while let Some(found) = scanner.next().expect("memory can be read") {
        steps += 1;
        assert!(
            steps <= 2 * bytes.len() / ALIGNMENT_BYTES,
            "no end in sight"
        );
        let Found::Record(record) = found else {
            continue;
        };
        assert!(record.address >= address && record.sequence >= sequence);
        (address, sequence) = (record.end(), record.sequence + 1);
        assert!(record.label.kind != KIND_PADDING && address <= bytes.len() as u64);
        let own = &bytes[record.address as usize..address as usize];
        assert_eq!(parse(own, &region, record.address), Ok(record));
        // The buffer has room for padding, which a writer keeps.
        let buffer_bytes = own.len() + 64;
        let wide = Region::new(LOG_ID, GENERATION, 0..bytes.len() as u64 + 64);
        let mut writer = RecordWriter::new(wide, record.address, record.sequence, buffer_bytes);
        let appended = writer.append(record.label, &[record.body]);
        assert!(matches!(appended, Ok(Appended::At(_))), "{appended:?}");
        // Zeros behind the body are a writer's promise, which a made-up checksum can break.
        let is_padded = own[32 + record.body.len()..].iter().all(|byte| *byte == 0);
        assert_eq!(writer.unwritten().1 == own, is_padded);
    }
}

/// Reads any bytes as the slots of a pair: bit 0 of the first byte puts checksums right. A superblock that was read can
/// be written in no other way, and the newest slot wins.
pub fn fuzz_superblock(data: &[u8]) {
    let Some((&control, bytes)) = data.split_first() else {
        return;
    };
    let mut slots = [[0; SLOT_BYTES]; 2];
    let (first, second) = bytes.split_at(bytes.len().min(SLOT_BYTES));
    slots[0][..first.len()].copy_from_slice(first);
    let second = &second[..second.len().min(SLOT_BYTES)];
    slots[1][..second.len()].copy_from_slice(second);
    let mut newest = None;
    for (slot, offset) in slots.iter_mut().zip(KIND.slots) {
        if control & 1 == 1 {
            superblock::seal(slot, offset);
        }
        let Ok(found) = superblock::parse(slot, &KIND, offset) else {
            continue;
        };
        let mut again = [0; SLOT_BYTES];
        superblock::encode(&found, &KIND, offset, &mut again);
        assert!(again == *slot, "another slot would be written");
        newest = newest.max(Some(found.sequence));
    }
    let file = file_of(&slots.concat());
    if let Ok(mut found) = Superblocks::open(Arc::clone(&file), KIND) {
        assert_eq!(Some(found.current().sequence), newest);
        found.rewrite().expect("memory takes it");
        assert!(!found.reload().expect("it was written"));
        found.write(b"next").expect("memory takes it");
        let reopened = Superblocks::open(file, KIND).expect("it was written");
        assert_eq!(reopened.current().payload, b"next");
    }
}
