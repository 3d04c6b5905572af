//! Records on a medium that lies: bits flipped, sectors stale, misplaced or zero.
//!
//! Nothing can restore the data that such a medium lost. The proof shows that no read ever returns other bytes than
//! were written at that place.

use std::io::IoSlice;
use std::sync::Arc;

use fastrand::Rng;

use super::log_test::Log;
use super::{Failure, lies};
use crate::storage::record::{Appended, Found, Label, RecordWriter, Region, Scanner, parse};
use crate::storage::{MemoryStorage, OpenOptions, Storage, StorageFile, test_seed};
use crate::testing::is_full;

const ID: [u8; 16] = *b"a log under test";
const REGION_BYTES: u64 = 64 << 10;
const SECTOR_BYTES: usize = 512;

/// A region full of records in one generation, and the content of each.
struct Written {
    region: Region,
    bytes: Vec<u8>,
    /// Address, end and body of each.
    records: Vec<(u64, u64, Vec<u8>)>,
    /// Where the padding behind the last record starts, which ends the region.
    padding: u64,
}

/// Fills a region with records whose bodies have one of `lengths`, each once at random.
fn fill(generation: u64, lengths: &[usize], random: &mut Rng) -> Written {
    let region = Region::new(ID, generation, 0..REGION_BYTES);
    let mut writer = RecordWriter::new(region, 0, 0, REGION_BYTES as usize);
    let mut records = Vec::new();
    loop {
        let mut body = vec![0; lengths[random.usize(..lengths.len())]];
        random.fill(&mut body);
        let label = Label {
            kind: 2 + random.u8(..3),
            codec: random.u8(..3),
            filter: random.u8(..2),
            dictionary: random.u32(..3),
            raw_bytes: random.u32(..100_000),
        };
        match writer.append(label, &[&body]).unwrap() {
            Appended::At(placed) => {
                records.push((placed.address, placed.address + placed.record_bytes, body));
            }
            _ => break,
        }
    }
    let padding = writer.next_address();
    writer.pad_to(REGION_BYTES).unwrap();
    Written {
        region,
        bytes: writer.unwritten().1.to_vec(),
        records,
        padding,
    }
}

fn memory_file(bytes: &[u8]) -> Arc<dyn StorageFile> {
    let file = MemoryStorage::new()
        .open("a", OpenOptions::create_new())
        .unwrap();
    file.write_at(&[IoSlice::new(bytes)], 0).unwrap();
    file
}

/// Checks every record of the damaged `bytes` that can still be read, by its place or by a scan, against the record
/// written there. Returns how many could be read.
fn check_reads(written: &Written, bytes: &[u8]) -> Result<usize, Failure> {
    let mut count = 0;
    for (address, _, body) in &written.records {
        if let Ok(record) = parse(&bytes[*address as usize..], &written.region, *address) {
            count += 1;
            if record.body != body {
                return Err(format!("another record is read at {address}"));
            }
        }
    }
    let file = memory_file(bytes);
    let mut scanner = Scanner::new(&*file, written.region, 0, 0, REGION_BYTES);
    let mut scanned = 0;
    while let Some(found) = scanner.next().map_err(|error| error.to_string())? {
        let Found::Record(record) = found else {
            continue;
        };
        let at = written
            .records
            .binary_search_by_key(&record.address, |known| known.0);
        let known = at.map_err(|_| format!("a record was invented at {}", record.address))?;
        if written.records[known].2 != record.body {
            return Err(format!("another record is scanned at {}", record.address));
        }
        scanned += 1;
    }
    if scanned < count {
        return Err(format!(
            "{scanned} records scanned of {count} that are whole"
        ));
    }
    Ok(count)
}

/// Tries `rounds` damaged sectors on records and on logs.
pub(super) fn hunt(seed: u64, rounds: usize) -> Result<(), Failure> {
    try_sectors(seed, rounds)?;
    lies::try_lies::<Log>(seed, rounds).map(drop)
}

/// Replaces sectors by stale, misplaced, zero and random ones.
fn try_sectors(seed: u64, rounds: usize) -> Result<(), Failure> {
    let mut random = Rng::with_seed(seed);
    // Records of exactly one sector make every misplaced sector a whole record elsewhere.
    let shapes: [&[usize]; 3] = [&[480], &[480, 480, 480, 992], &[0, 5, 24, 100, 480, 1500]];
    for round in 0..rounds {
        let lengths = shapes[round % shapes.len()];
        let old = fill(6, lengths, &mut random);
        let new = fill(7, lengths, &mut random);
        let mut bytes = new.bytes.clone();
        let sectors = bytes.len() / SECTOR_BYTES;
        let mut spoiled = Vec::new();
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..sectors) * SECTOR_BYTES;
            let from = random.usize(..sectors) * SECTOR_BYTES;
            let mut sector = [0; SECTOR_BYTES];
            match random.u8(..5) {
                0 => sector.copy_from_slice(&old.bytes[at..][..SECTOR_BYTES]),
                1 => sector.copy_from_slice(&old.bytes[from..][..SECTOR_BYTES]),
                2 => sector.copy_from_slice(&new.bytes[from..][..SECTOR_BYTES]),
                3 => random.fill(&mut sector),
                _ => {}
            }
            bytes[at..at + SECTOR_BYTES].copy_from_slice(&sector);
            spoiled.push(at as u64..(at + SECTOR_BYTES) as u64);
        }
        let is_spoiled = |start: u64, end: u64| {
            spoiled
                .iter()
                .any(|spoiled| spoiled.start < end && start < spoiled.end)
        };
        let untouched = new
            .records
            .iter()
            .filter(|(start, end, _)| !is_spoiled(*start, *end));
        let (untouched, count) = (untouched.count(), check_reads(&new, &bytes)?);
        if count < untouched {
            return Err(format!("{count} of {untouched} untouched records left"));
        }
    }
    Ok(())
}

#[test]
fn no_bit_of_a_region_flips_unnoticed() {
    let mut random = Rng::with_seed(test_seed());
    let mut written = fill(1 << 40 | 7, &[0, 5, 24, 100, 480, 1500], &mut random);
    let mut places: Vec<(u64, u64)> = written.records.iter().map(|r| (r.0, r.1)).collect();
    places.push((written.padding, REGION_BYTES));
    let mut tried = 0;
    for (number, (address, end)) in places.iter().enumerate() {
        for bit in address * 8..end * 8 {
            written.bytes[bit as usize / 8] ^= 1 << (bit % 8);
            let found = parse(
                &written.bytes[*address as usize..],
                &written.region,
                *address,
            );
            assert!(found.is_err(), "bit {bit} of record {number}");
            if tried % 512 == 0 {
                let count = check_reads(&written, &written.bytes).unwrap();
                let spoiled = usize::from(*address < written.padding);
                assert_eq!(count, written.records.len() - spoiled);
            }
            written.bytes[bit as usize / 8] ^= 1 << (bit % 8);
            tried += 1;
        }
    }
    println!("{tried} bits flipped");
    assert_eq!(tried, REGION_BYTES * 8);
}

#[test]
fn no_misplaced_stale_or_zeroed_sector_is_taken_for_a_record() {
    let rounds = if is_full() { 200_000 } else { 10_000 };
    try_sectors(test_seed(), rounds).unwrap();
    println!("{rounds} regions with misplaced, stale, zeroed or random sectors");
}
