//! The seek table of the Zstandard seekable format 0.1.0: the place of each frame of a stream.
//!
//! It is written as the last frame of a stream, and read from the end. Its entries are unverified claims;
//! `docs/format.md` states the conditions for their use.

use super::{corrupt, little};
use crate::error::Result;

/// The most entries of a table, by its format.
pub const SEEK_TABLE_ENTRIES_MAX: usize = 1 << 27;
/// Bytes of a table's last field: count, descriptor, magic.
pub const FOOTER_BYTES: usize = 9;
/// Bytes of an entry as we write it.
pub const ENTRY_BYTES: usize = 12;

const HEADER_BYTES: usize = 8;
const SKIPPABLE_MAGIC: [u8; 4] = [0x5E, 0x2A, 0x4D, 0x18];
const MAGIC: [u8; 4] = [0xB1, 0xEA, 0x92, 0x8F];
const HAS_CHECKS: u8 = 1 << 7;

/// One frame of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Bytes of the frame.
    pub stored_bytes: u32,
    /// Bytes it decodes to, 0 for a skippable frame.
    pub content_bytes: u32,
    /// The low 32 bits of the XXH64 of the decoded bytes; 0 where the table has no checks.
    pub check: u32,
}

/// The frames of a stream, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeekTable {
    /// One for each frame before the table.
    pub entries: Vec<Entry>,
    /// Whether the entries have checks.
    pub has_checks: bool,
}

impl SeekTable {
    /// Returns the bytes of the table as a frame.
    pub fn frame_bytes(&self) -> usize {
        HEADER_BYTES + self.entries.len() * ENTRY_BYTES + FOOTER_BYTES
    }

    /// Returns the table as a frame, with checks.
    ///
    /// # Panics
    ///
    /// For more entries than [`SEEK_TABLE_ENTRIES_MAX`].
    pub fn to_frame(&self) -> Vec<u8> {
        assert!(self.entries.len() <= SEEK_TABLE_ENTRIES_MAX);
        let mut frame = Vec::with_capacity(self.frame_bytes());
        let content = self.frame_bytes() - HEADER_BYTES;
        frame.extend(SKIPPABLE_MAGIC);
        frame.extend((content as u32).to_le_bytes());
        for entry in &self.entries {
            frame.extend(entry.stored_bytes.to_le_bytes());
            frame.extend(entry.content_bytes.to_le_bytes());
            frame.extend(entry.check.to_le_bytes());
        }
        frame.extend((self.entries.len() as u32).to_le_bytes());
        frame.push(HAS_CHECKS);
        frame.extend(MAGIC);
        frame
    }

    /// Returns the length of the table's frame if the last [`FOOTER_BYTES`] bytes of a file end one.
    pub fn frame_bytes_by_footer(footer: &[u8; FOOTER_BYTES]) -> Option<u64> {
        let entries = little(&footer[..4]);
        let is_table = footer[5..] == MAGIC && footer[4] & !HAS_CHECKS == 0;
        let fits = is_table && entries <= SEEK_TABLE_ENTRIES_MAX as u64;
        let frame = HEADER_BYTES as u64 + entries * entry_bytes(footer[4]) + FOOTER_BYTES as u64;
        fits.then_some(frame)
    }

    /// Reads a table from its whole frame.
    ///
    /// # Errors
    ///
    /// `Corrupt` if the bytes are not one table.
    pub fn from_frame(frame: &[u8]) -> Result<SeekTable> {
        let footer = frame.last_chunk::<FOOTER_BYTES>();
        let length = footer.and_then(SeekTable::frame_bytes_by_footer);
        let (Some(footer), Some(true)) = (footer, length.map(|it| it == frame.len() as u64)) else {
            let found = format!("{} bytes", frame.len());
            return Err(corrupt(0, "a seek table of the length it states", found));
        };
        let content = (frame.len() - HEADER_BYTES) as u64;
        if frame[..4] != SKIPPABLE_MAGIC || little(&frame[4..8]) != content {
            return Err(corrupt(0, "the header of a seek table", "another"));
        }
        let has_checks = footer[4] & HAS_CHECKS != 0;
        let body = &frame[HEADER_BYTES..frame.len() - FOOTER_BYTES];
        let entries = body
            .chunks_exact(entry_bytes(footer[4]) as usize)
            .map(|entry| Entry {
                stored_bytes: little(&entry[..4]) as u32,
                content_bytes: little(&entry[4..8]) as u32,
                check: little(&entry[8..]) as u32,
            });
        Ok(SeekTable {
            entries: entries.collect(),
            has_checks,
        })
    }

    /// Returns the stored bytes of all frames before the table.
    pub fn stored_bytes(&self) -> u64 {
        (self.entries.iter())
            .map(|it| u64::from(it.stored_bytes))
            .sum()
    }
}

fn entry_bytes(descriptor: u8) -> u64 {
    if descriptor & HAS_CHECKS == 0 { 8 } else { 12 }
}
