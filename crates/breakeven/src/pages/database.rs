//! Facts about a SQLite database without SQLite: its header, kinds of pages, and the list of free pages. Everything
//! read here may be bytes of any origin. Values that make no sense are left alone.

use std::collections::HashSet;

use crate::blocks::Kind;
use crate::codec::Glance;
use crate::decide::Class;
use crate::error::Result;

/// The bytes that a plain database begins with.
pub const PLAIN_MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The length of a database's header.
pub const HEADER_BYTES: usize = 100;
/// The header's bytes for the versions that write and read it: 1 is a rollback journal, 2 is WAL.
pub(super) const VERSIONS_AT: usize = 18;
const FREELIST_AT: usize = 32;
/// The offsets of three counts in the header: changes, pages, and the count of changes at which the count of pages was
/// true.
const COUNTS_AT: [usize; 3] = [24, 28, 92];

/// The needed fields of a database's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The length of a page.
    pub page_bytes: u32,
    /// Whether the last writer used a write-ahead log.
    pub is_wal: bool,
    /// The first trunk page of the freelist, 0 for none.
    pub freelist_page: u32,
    /// The number of free pages.
    pub freelist_count: u32,
    /// The database's length by its header, if the header has one.
    pub size_bytes: Option<u64>,
}

impl Header {
    /// Reads a header; `None` if these are not the first bytes of a plain database.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(PLAIN_MAGIC) {
            return None;
        }
        let page_bytes = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65_536,
            bytes => u32::from(bytes),
        };
        let [changes, pages, counted] = COUNTS_AT.map(|at| u32_at(bytes, at));
        let is_counted = changes == counted && pages > 0;
        (page_bytes.is_power_of_two() && page_bytes >= 512).then(|| Header {
            page_bytes,
            is_wal: bytes[VERSIONS_AT..VERSIONS_AT + 2].contains(&2),
            freelist_page: u32_at(bytes, FREELIST_AT),
            freelist_count: u32_at(bytes, FREELIST_AT + 4),
            size_bytes: is_counted.then(|| u64::from(pages) * u64::from(page_bytes)),
        })
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(*bytes[at..].first_chunk().expect("four bytes"))
}

/// The kind of a page, by its first bytes: a class to choose methods by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PageKind {
    /// The first page, with the header and the schema's root.
    First,
    /// An inner page of a table or an index: read on every way down.
    Interior,
    /// A leaf of a table.
    TableLeaf,
    /// A leaf of an index.
    IndexLeaf,
    /// Overflow, the freelist, the pointer map, or nothing of SQLite's.
    Other,
}

impl PageKind {
    /// Looks at the page's first byte.
    pub fn of(number: u64, page: &[u8]) -> PageKind {
        match page.first() {
            _ if number == 1 => PageKind::First,
            Some(0x02 | 0x05) => PageKind::Interior,
            Some(0x0a) => PageKind::IndexLeaf,
            Some(0x0d) => PageKind::TableLeaf,
            _ => PageKind::Other,
        }
    }
}

/// An inner page stands above a hundred leaves or more. SQLite's own cache keeps most of them. The rest are read for
/// all pages below them.
const INTERIOR_READS: f64 = 32.0;

/// Returns the kind of a page for the choice of its method. Pages of noise, such as pictures or compressed data, are of
/// one class, of any kind to SQLite.
pub(super) fn kind_of(page: &[u8]) -> Kind {
    let class = Class::glance(&Glance::of(page));
    if class == Class::INCOMPRESSIBLE {
        return Kind::of(class);
    }
    let number = u64::from(page.starts_with(PLAIN_MAGIC));
    let kind = PageKind::of(number, page);
    let reads_per_write = match kind {
        PageKind::Interior => INTERIOR_READS,
        _ => Kind::of(class).reads_per_write,
    };
    Kind {
        class: Class::place(kind as u16),
        reads_per_write,
    }
}

/// Walks the freelist and calls `leaves` with the leaf pages of each trunk, until it returns false or the
/// list ends. `read` fills a page.
pub(super) fn walk_freelist(
    header: Header,
    page_count: u64,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<()>,
    mut leaves: impl FnMut(&mut Vec<u64>) -> Result<bool>,
) -> Result<()> {
    let mut page = vec![0; header.page_bytes as usize];
    let (mut numbers, mut trunks) = (Vec::new(), HashSet::new());
    let mut trunk = u64::from(header.freelist_page);
    let mut left = i64::from(header.freelist_count);
    // A circle ends where it began.
    while trunk > 1 && trunk <= page_count && left > 0 && trunks.insert(trunk) {
        read(trunk, &mut page)?;
        let count = u32_at(&page, 4) as usize;
        let listed = page[8..].chunks_exact(4).take(count);
        numbers.clear();
        numbers.extend(listed.map(|number| u64::from(u32_at(number, 0))));
        numbers.retain(|number| (2..=page_count).contains(number));
        left -= 1 + numbers.len() as i64;
        trunk = u32_at(&page, 0).into();
        if !leaves(&mut numbers)? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freelist_that_goes_in_a_circle_ends() {
        let header = Header {
            page_bytes: 512,
            is_wal: false,
            freelist_page: 2,
            freelist_count: u32::MAX,
            size_bytes: None,
        };
        let mut reads = 0;
        let mut seen = Vec::new();
        let read = |number: u64, page: &mut [u8]| {
            reads += 1;
            page[..4].copy_from_slice(&(5 - number as u32).to_be_bytes());
            page[4..8].copy_from_slice(&u32::MAX.to_be_bytes());
            page[8..12].copy_from_slice(&7u32.to_be_bytes());
            Ok(())
        };
        walk_freelist(header, 9, read, |numbers| {
            seen.extend_from_slice(numbers);
            Ok(true)
        })
        .unwrap();
        assert_eq!((reads, seen), (2, vec![7; 2]));
    }

    #[test]
    fn a_header_is_read_or_refused() {
        let mut bytes = [0; 100];
        bytes[..16].copy_from_slice(PLAIN_MAGIC);
        bytes[16..20].copy_from_slice(&[0, 1, 2, 2]);
        let header = Header::parse(&bytes).unwrap();
        assert_eq!((header.page_bytes, header.is_wal), (65_536, true));
        bytes[16..18].copy_from_slice(&[3, 0]);
        assert_eq!(Header::parse(&bytes), None);
    }
}
