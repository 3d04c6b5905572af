//! Walking a region: the next record, or the gap where it had to be.

use std::io::IoSliceMut;

use super::{
    ALIGNMENT_BYTES, Gap, HEADER_BYTES, Header, KIND_PADDING, MAGIC, Record, Region, record_bytes,
};
use crate::error::Result;
use crate::storage::{AlignedBuffer, StorageFile};

/// A region is given up after this many times its bytes were checked in vain.
const WASTE_FACTOR_MAX: u64 = 4;
/// The least a scanner reads at a time.
const WINDOW_BYTES_MIN: u64 = 256 << 10;

/// One result of a scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// The next record.
    Record(Record<'a>),
    /// No record where the one numbered `sequence` had to be. Going on means looking behind the gap.
    Gap {
        address: u64,
        sequence: u64,
        gap: Gap,
    },
}

/// Walks the records of a region.
///
/// A log that ends at the first gap stops at the first [`Found::Gap`]. A log that wants all that can still be read goes
/// on. The next record is then the first whole one behind the gap with a higher sequence than all before.
///
/// # Cost
/// Every byte of the region is read and checked about once, and at most five times if the contents were made hard on
/// purpose. Memory is twice the longest record, at least 256 KiB or the region.
pub struct Scanner<'a> {
    file: &'a dyn StorageFile,
    region: Region,
    record_bytes_max: u64,
    address: u64,
    sequence: u64,
    is_in_gap: bool,
    wasted_bytes: u64,
    window: AlignedBuffer,
    window_start: u64,
    window_bytes: u64,
}

impl<'a> Scanner<'a> {
    /// Makes a scanner that starts at `address` of `region` with record number `sequence`. It accepts no record longer
    /// than `record_bytes_max`.
    ///
    /// # Panics
    /// If the address is no multiple of [`ALIGNMENT_BYTES`] in the region.
    pub fn new(
        file: &'a dyn StorageFile,
        region: Region,
        address: u64,
        sequence: u64,
        record_bytes_max: u64,
    ) -> Scanner<'a> {
        let is_inside = (region.start..=region.end).contains(&address);
        let is_aligned = address.is_multiple_of(ALIGNMENT_BYTES as u64);
        assert!(is_inside && is_aligned, "{address} in {region:?}");
        let page = AlignedBuffer::ALIGNMENT_BYTES as u64;
        let length_bytes = region.end - address;
        let wanted = record_bytes_max.saturating_mul(2).max(WINDOW_BYTES_MIN);
        // Direct I/O starts a page early and ends a page late.
        let window_bytes = wanted.min(length_bytes).next_multiple_of(page) + 2 * page;
        Scanner {
            file,
            region,
            record_bytes_max,
            address,
            sequence,
            is_in_gap: false,
            wasted_bytes: 0,
            window: AlignedBuffer::zeroed(window_bytes as usize),
            window_start: 0,
            window_bytes: 0,
        }
    }

    /// Returns where the scanner stands: behind the last record, or in the gap it reported.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the sequence the next record must have, or exceed behind a gap.
    pub fn next_sequence(&self) -> u64 {
        self.sequence
    }

    /// Returns the next record or gap, `None` at the end of the region.
    ///
    /// # Errors
    /// Errors of reading; gaps are no errors here.
    #[expect(
        clippy::should_implement_trait,
        reason = "what is found borrows the window"
    )]
    pub fn next(&mut self) -> Result<Option<Found<'_>>> {
        loop {
            if self.is_in_gap {
                self.skip_to_magic()?;
            }
            let address = self.address;
            if self.region.end - address < HEADER_BYTES as u64 {
                return Ok(None);
            }
            let found = match self.check_here()? {
                Err(gap) if self.is_in_gap && gap != Gap::GivenUp => continue,
                Err(gap) => {
                    self.is_in_gap = true;
                    if gap == Gap::GivenUp {
                        self.address = self.region.end;
                    }
                    let sequence = self.sequence;
                    return Ok(Some(Found::Gap {
                        address,
                        sequence,
                        gap,
                    }));
                }
                Ok(header) => header,
            };
            let record_bytes = record_bytes(u64::from(found.body_bytes));
            self.address += record_bytes;
            self.sequence = found.sequence + 1;
            self.is_in_gap = false;
            if found.label.kind != KIND_PADDING {
                let bytes = self.bytes_at(address, record_bytes)?;
                return Ok(Some(Found::Record(found.record(address, bytes))));
            }
        }
    }

    /// Checks the record at the present address.
    fn check_here(&mut self) -> Result<std::result::Result<Header, Gap>> {
        let (region, address) = (self.region, self.address);
        let start = self.bytes_at(address, HEADER_BYTES as u64)?;
        let start = start.first_chunk().expect("a header's bytes");
        let checked = Header::decode(start).and_then(|header| {
            let record_bytes = header.check(&region, address, self.record_bytes_max)?;
            Ok((header, record_bytes))
        });
        let (header, record_bytes) = match checked {
            Ok(checked) => checked,
            Err(gap) => return Ok(Err(gap)),
        };
        if self.wasted_bytes > WASTE_FACTOR_MAX * (region.end - region.start) {
            return Ok(Err(Gap::GivenUp));
        }
        let bytes = self.bytes_at(address, record_bytes)?;
        let verified = header.verify(&region, address, bytes).and_then(|()| {
            let (expected, found) = (self.sequence, header.sequence);
            if found == expected || (self.is_in_gap && found > expected) {
                Ok(header)
            } else {
                Err(Gap::Sequence { expected, found })
            }
        });
        if verified.is_err() {
            self.wasted_bytes += record_bytes;
        }
        Ok(verified)
    }

    /// Moves to the next place that could be a header, or to the end of the region.
    fn skip_to_magic(&mut self) -> Result<()> {
        let step = ALIGNMENT_BYTES as u64;
        self.address = (self.address + step).min(self.region.end);
        while self.region.end - self.address >= HEADER_BYTES as u64 {
            let address = self.address;
            self.bytes_at(address, HEADER_BYTES as u64)?;
            let loaded = (self.window_start + self.window_bytes).min(self.region.end);
            let bytes = &self.window[(address - self.window_start) as usize..];
            let bytes = &bytes[..(loaded - address) as usize];
            let mut places = bytes.chunks(ALIGNMENT_BYTES);
            let place = places.position(|place| place.starts_with(&MAGIC));
            let skipped = place.map_or(bytes.len() as u64 / step * step, |at| at as u64 * step);
            self.address += skipped;
            if place.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Returns `length_bytes` at `address`, zeros behind the end of the file.
    fn bytes_at(&mut self, address: u64, length_bytes: u64) -> Result<&[u8]> {
        let end = address + length_bytes;
        if address < self.window_start || end > self.window_start + self.window_bytes {
            let page = AlignedBuffer::ALIGNMENT_BYTES as u64;
            self.window_bytes = 0;
            self.window_start = address - address % page;
            let window = &mut [IoSliceMut::new(&mut self.window)];
            let read = self.file.read_at(window, self.window_start)?;
            self.window[read..].fill(0);
            self.window_bytes = self.window.len() as u64;
        }
        let start = (address - self.window_start) as usize;
        Ok(&self.window[start..start + length_bytes as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::record::tests::{file, label, region, write};
    use crate::storage::record::{Appended, RecordWriter, VERSION, parse};
    use crate::storage::test_seed;

    /// Scans and writes down the findings: bodies, and gaps in angle brackets.
    fn scan(file: &dyn StorageFile, region: Region) -> Vec<String> {
        let mut scanner = Scanner::new(file, region, region.start, 0, 4096);
        let mut found = Vec::new();
        while let Some(next) = scanner.next().unwrap() {
            found.push(match next {
                Found::Record(record) => String::from_utf8_lossy(record.body).into_owned(),
                Found::Gap { address, gap, .. } => format!("<{gap} at {}>", address - region.start),
            });
        }
        found
    }

    #[test]
    fn what_is_written_is_scanned_through_any_buffer() {
        let mut random = fastrand::Rng::with_seed(test_seed());
        let mut scanned = 0;
        for _ in 0..300 {
            let region = region(random.u64(..), random.u64(1..40) * 512);
            let buffer_bytes = random.usize(1..9) * 512;
            let mut writer = RecordWriter::new(region, region.start, 0, buffer_bytes);
            let file = file(0, b"");
            let mut bodies = Vec::new();
            let is_direct = random.bool();
            loop {
                let body: Vec<u8> = (0..random.usize(..400)).map(|_| random.u8(..)).collect();
                let cut = random.usize(..=body.len());
                match writer
                    .append(label(2), &[&body[..cut], &body[cut..]])
                    .unwrap()
                {
                    Appended::At(placed) => {
                        assert_eq!(placed.record_bytes, record_bytes(body.len() as u64));
                        bodies.push(body);
                    }
                    Appended::RegionFull => break,
                    Appended::BufferFull => {
                        if is_direct {
                            let padded = writer.pad_to(512).unwrap();
                            assert!(!matches!(padded, Some(Appended::BufferFull)));
                            assert!(writer.next_address().is_multiple_of(512));
                        }
                        writer.write_to(&*file).unwrap();
                    }
                }
            }
            writer.pad_to(512).unwrap();
            writer.write_to(&*file).unwrap();
            let mut scanner = Scanner::new(&*file, region, region.start, 0, 4096);
            for body in &bodies {
                let found = scanner.next().unwrap();
                let Some(Found::Record(record)) = found else {
                    panic!("{found:?} instead of {} bytes", body.len());
                };
                assert_eq!(record.body, body);
                scanned += 1;
            }
            assert!(!matches!(scanner.next().unwrap(), Some(Found::Record(_))));
        }
        println!("{scanned} records");
        assert!(scanned > 5000);
    }

    #[test]
    fn a_gap_says_why_and_can_be_passed() {
        let region = region(7, 4096);
        let bodies: [&[u8]; 4] = [b"first", b"second", b"third", b"fourth"];
        let written = write(region, &bodies).unwritten().1.to_vec();
        let check = |at: usize, bytes: &[u8], expected: &[&str]| {
            let mut spoiled = written.clone();
            spoiled[at..at + bytes.len()].copy_from_slice(bytes);
            assert_eq!(scan(&*file(4096, &spoiled), region), expected);
        };
        let end = "<zeros at 192>";
        check(0, &[], &["first", "second", "third", "fourth", end]);
        let around = |gap| ["first", gap, "third", "fourth", end];
        check(48, &[0; 32], &around("<zeros at 48>"));
        check(48, b"x", &around("<no record at 48>"));
        check(50, &[2], &around("<a record of version 2 at 48>"));
        let stale = "<a record of generation ..00000008 at 48>";
        check(64, &[8], &around(stale));
        check(57, &[0xFF], &around("<a body of 65286 bytes at 48>"));
        let mut spoiled = written.clone();
        spoiled[80] ^= 1;
        let found = scan(&*file(4096, &spoiled), region);
        assert!(found[1].starts_with("<checksum 0x"), "{found:?}");
        assert_eq!((found.len(), &found[2][..]), (5, "third"));
        // A whole record that is not the next one.
        let other = RecordWriter::new(region, 4096 + 48, 5, 4096);
        let late = write_one(other, b"late");
        check(48, &late, &around("<record number 5, not 1 at 48>"));
    }

    fn write_one(mut writer: RecordWriter, body: &[u8]) -> Vec<u8> {
        writer.append(label(2), &[body]).unwrap();
        writer.unwritten().1.to_vec()
    }

    #[test]
    fn a_hostile_region_is_given_up_in_time() {
        let region = region(7, 1 << 20);
        // A header at every place, each claiming a body of half the limit.
        let header = Header {
            version: VERSION,
            checksum: 0,
            body_bytes: (256 << 10) - HEADER_BYTES as u32,
            generation: 7,
            sequence: 0,
            label: label(2),
        };
        let bytes: Vec<u8> = header.encode().repeat((1 << 20) / HEADER_BYTES);
        let file = file(4096, &bytes);
        let mut scanner = Scanner::new(&*file, region, region.start, 0, 512 << 10);
        let mut gaps = Vec::new();
        while let Some(found) = scanner.next().unwrap() {
            gaps.push(format!("{found:?}"));
        }
        assert_eq!(gaps.len(), 2, "{gaps:?}");
        assert!(gaps[1].contains("GivenUp"), "{gaps:?}");
        assert!(scanner.wasted_bytes <= 5 << 20, "{}", scanner.wasted_bytes);
        // The greatest possible length leads nowhere either.
        let mut longest = bytes[..64].to_vec();
        longest[8..12].fill(0xFF);
        assert!(matches!(
            parse(&longest, &region, region.start),
            Err(Gap::Length { .. })
        ));
    }
}
