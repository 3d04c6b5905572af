//! Pages of files, read one by one past the page cache, so that misses are real.
#![deny(unsafe_code)]

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::{AlignedBuffer, OpenOptions, RealStorage, Storage, StorageFile};

/// Files that are read one page at a time. They may be shared between threads.
pub struct PageFiles {
    /// Each with the number of the page after its last.
    files: Vec<(Arc<dyn StorageFile>, u64)>,
    page_bytes: usize,
}

impl PageFiles {
    /// Opens files for reading by direct I/O; a rest after the last page of each is not used.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] without direct I/O; [`Error::Invalid`] for a page that it cannot read, or if there is no
    /// page. Errors of opening a file, too.
    pub fn open(paths: &[impl AsRef<Path>], page_bytes: usize) -> Result<PageFiles> {
        let options = OpenOptions {
            direct: true,
            ..OpenOptions::read_only()
        };
        let open = |path: &Path| {
            // The storage below a folder follows no links, but a user who names a link means its target.
            let real = path.canonicalize();
            let real = real.map_err(|error| Error::io("open", path, error))?;
            let (storage, name) = RealStorage::of_file(real)?;
            storage.open(&name, options)
        };
        let files: Result<Vec<_>> = paths.iter().map(|path| open(path.as_ref())).collect();
        PageFiles::new(files?, page_bytes)
    }

    /// Takes open files.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a page that they cannot read, or if there is no page; errors of their status.
    pub fn new(files: Vec<Arc<dyn StorageFile>>, page_bytes: usize) -> Result<PageFiles> {
        let mut placed = Vec::with_capacity(files.len());
        let mut end = 0;
        for file in files {
            let alignment = file.alignment_bytes();
            if page_bytes == 0 || !page_bytes.is_multiple_of(alignment) {
                let path = quoted(file.path());
                let reason =
                    format!("{page_bytes} bytes, {path} is read by multiples of {alignment}");
                return Err(Error::invalid("page size", reason));
            }
            end += file.status()?.size_bytes / page_bytes as u64;
            placed.push((file, end));
        }
        if end == 0 {
            let reason = format!("the files have no page of {page_bytes} bytes");
            return Err(Error::invalid("file of pages", reason));
        }
        Ok(PageFiles {
            files: placed,
            page_bytes,
        })
    }

    /// Returns how many pages there are.
    pub fn page_count(&self) -> u64 {
        self.files.last().map_or(0, |(_, end)| *end)
    }

    /// Returns the bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    /// Reads the page of a key, always the same, into a buffer of its length.
    ///
    /// # Errors
    ///
    /// Errors of reading; [`Error::Corrupt`] if the file became shorter.
    ///
    /// # Panics
    ///
    /// If the buffer has another length.
    pub fn read(&self, key: u64, buffer: &mut AlignedBuffer) -> Result<()> {
        assert_eq!(buffer.len(), self.page_bytes, "a buffer of one page");
        let page = page_of(key, self.page_count());
        let at = self.files.partition_point(|(_, end)| *end <= page);
        let first = at.checked_sub(1).map_or(0, |before| self.files[before].1);
        let offset = (page - first) * self.page_bytes as u64;
        self.files[at].0.read_exact_at(buffer, offset)
    }
}

/// Returns the page of a key, independent of the key's popularity.
pub(super) fn page_of(key: u64, page_count: u64) -> u64 {
    let mixed = key.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((u128::from(mixed) * u128::from(page_count)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::storage::MemoryStorage;

    /// Files of given numbers of 16-byte pages and a rest, with its number in each page.
    fn files(counts: &[u64]) -> Vec<Arc<dyn StorageFile>> {
        let storage = MemoryStorage::new();
        let mut number = 0u64;
        let file = |(index, count): (usize, &u64)| {
            let file = storage
                .open(&format!("file-{index}"), OpenOptions::create_new())
                .expect("a file");
            for page in 0..*count {
                let bytes = [number.to_le_bytes(); 2].concat();
                file.write_at(&[IoSlice::new(&bytes)], page * 16)
                    .expect("written");
                number += 1;
            }
            let rest = IoSlice::new(b"rest");
            file.write_at(&[rest], count * 16).expect("written");
            file
        };
        counts.iter().enumerate().map(file).collect()
    }

    #[test]
    fn every_page_of_every_file_is_read() {
        let pages = PageFiles::new(files(&[3, 0, 5, 1]), 16).expect("pages");
        assert_eq!((pages.page_count(), pages.page_bytes()), (9, 16));
        let mut buffer = AlignedBuffer::zeroed(16);
        let mut seen = std::collections::BTreeSet::new();
        for key in 0..1000 {
            pages.read(key, &mut buffer).expect("read");
            let page = u64::from_le_bytes(buffer[8..].try_into().expect("8 bytes"));
            assert_eq!(page, page_of(key, 9), "key {key}");
            seen.insert(page);
        }
        assert_eq!(seen.len(), 9);
    }

    #[test]
    fn what_has_no_page_is_refused() {
        for (counts, page_bytes) in [(&[0][..], 16), (&[], 16), (&[2], 64), (&[2], 0)] {
            let found = PageFiles::new(files(counts), page_bytes);
            assert!(matches!(found, Err(Error::Invalid { .. })), "{counts:?}");
        }
        let gone = PageFiles::open(&["/no/such/file"], 4096);
        assert!(matches!(gone, Err(Error::Io { .. })));
    }
}
