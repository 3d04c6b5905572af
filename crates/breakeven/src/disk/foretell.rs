//! A forecast of an import of an image, by importing a part of it into memory.

use std::ops::Range;

use super::{Disk, DiskOptions};
use crate::blocks::{Durability, spread};
use crate::error::{Error, Result};
use crate::storage::{MemoryStorage, StorageFile};

/// Bytes that an import moves at a time.
pub const IMPORT_BYTES: u64 = 1 << 20;

/// The predicted result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreseen {
    /// The image's data, without its holes.
    pub data_bytes: u64,
    /// Bytes of them that were imported into memory. The following fields are scaled from them to all of them.
    pub sampled_bytes: u64,
    /// Blocks that are all zeros.
    pub zero_bytes: u64,
    /// Blocks that are there already.
    pub duplicate_bytes: u64,
    /// The length of the file.
    pub file_bytes: u64,
}

/// Predicts the result of an import of an image. `runs` are its data, and the rest is holes. Up to `bytes_max` of it, a
/// multiple of 1 MiB, are imported into memory. Equal blocks are found only if both were looked at.
///
/// # Errors
/// [`Error::Invalid`] if there are no data, and those of reading the image.
///
/// # Cost
/// That of importing so much, and memory for the result.
pub fn predict(
    image: &dyn StorageFile,
    runs: &[Range<u64>],
    options: DiskOptions,
    bytes_max: u64,
) -> Result<Foreseen> {
    let chunks: Vec<Range<u64>> = runs.iter().flat_map(chunks).collect();
    let length = |chunk: &Range<u64>| chunk.end - chunk.start;
    let data_bytes = chunks.iter().map(length).sum::<u64>();
    if data_bytes == 0 {
        return Err(Error::invalid("image", "it has no data"));
    }
    let taken = spread(chunks.len() as u64, bytes_max / IMPORT_BYTES);
    let taken: Vec<&Range<u64>> = taken.map(|chunk| &chunks[chunk as usize]).collect();
    let sampled_bytes = taken.iter().map(|chunk| length(chunk)).sum::<u64>();
    let block_bytes = u64::from(options.block_bytes);
    let disk = Disk::create(&MemoryStorage::new(), "foreseen", options)?;
    // One behind the other, so that the map is as full as with all data.
    let room_bytes = taken.len() as u64 * (IMPORT_BYTES + block_bytes);
    disk.create_volume("foreseen", room_bytes.next_multiple_of(block_bytes))?;
    let volume = disk.volume("foreseen")?;
    let mut buffer = vec![0; IMPORT_BYTES as usize];
    let (mut at, mut zero_bytes) = (0, 0);
    for chunk in taken {
        let bytes = &mut buffer[..length(chunk) as usize];
        image.read_exact_at(bytes, chunk.start)?;
        volume.write(at, bytes, Durability::Lazy)?;
        let stored = volume.extents(at..at + length(chunk), u64::MAX)?;
        let holes = stored.iter().filter(|extent| extent.is_hole);
        zero_bytes += holes.map(|extent| extent.length_bytes).sum::<u64>();
        at = (at + length(chunk)).next_multiple_of(block_bytes);
    }
    let found_bytes = disk.duplicate_stats().found * block_bytes;
    disk.checkpoint()?;
    let stats = disk.stats();
    let scaled = |bytes: u64| (bytes as f64 * data_bytes as f64 / sampled_bytes as f64) as u64;
    // The free segments are there once.
    let held_bytes = stats.held_bytes.unwrap_or(0);
    Ok(Foreseen {
        data_bytes,
        sampled_bytes,
        zero_bytes: scaled(zero_bytes),
        duplicate_bytes: scaled(found_bytes),
        file_bytes: stats.file_bytes + scaled(held_bytes) - held_bytes,
    })
}

/// Cuts a run at the same places as an import.
fn chunks(run: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
    let (mut at, end) = (run.start, run.end);
    std::iter::from_fn(move || {
        let next = (at / IMPORT_BYTES + 1)
            .saturating_mul(IMPORT_BYTES)
            .min(end);
        let chunk = at..next;
        at = next;
        (!chunk.is_empty()).then_some(chunk)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{OpenOptions, Storage};
    use crate::testing::seeded;
    use std::io::IoSlice;
    use std::sync::Arc;

    const BLOCK_BYTES: usize = 4096;

    /// An image with noise, blocks of half noise, some duplicates, some zeros, and a hole.
    fn image() -> (Arc<dyn StorageFile>, [Range<u64>; 2], u64) {
        let mut random = seeded("disk foretell", 41);
        let mut bytes = vec![0; 12 << 20];
        for (number, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
            match number % 8 {
                0 => {}
                1 => block.fill(number as u8 % 3 + 1),
                2..=4 => random.fill(&mut block[..BLOCK_BYTES / 2]),
                _ => random.fill(block),
            }
        }
        let storage = MemoryStorage::new();
        let file = storage.open("image", OpenOptions::create_new()).unwrap();
        let (first, second) = (0..5u64 << 20, 9u64 << 20..16 << 20);
        for run in [&first, &second] {
            let from = (run.start as usize).min(5 << 20);
            let part = &bytes[from..from + (run.end - run.start) as usize];
            file.write_at(&[IoSlice::new(part)], run.start).unwrap();
        }
        (file, [first, second], 16 << 20)
    }

    #[test]
    fn an_import_is_foretold_by_all_of_an_image_or_by_part_of_it() {
        let (file, runs, size_bytes) = image();
        let storage = MemoryStorage::new();
        let disk = Disk::create(&storage, "disk", DiskOptions::default()).unwrap();
        disk.create_volume("one", size_bytes).unwrap();
        let volume = disk.volume("one").unwrap();
        let mut buffer = vec![0; IMPORT_BYTES as usize];
        for at in (0..size_bytes).step_by(IMPORT_BYTES as usize) {
            file.read_exact_at(&mut buffer, at).unwrap();
            volume.write(at, &buffer, Durability::Lazy).unwrap();
        }
        disk.checkpoint().unwrap();
        let file_bytes = disk.stats().file_bytes;
        let foretold = |bytes_max| predict(&*file, &runs, DiskOptions::default(), bytes_max);
        let whole = foretold(u64::MAX).unwrap();
        let part = foretold(6 << 20).unwrap();
        println!("foretold {whole:?} and {part:?} of {file_bytes}");
        assert_eq!(
            (whole.data_bytes, whole.sampled_bytes),
            (12 << 20, 12 << 20)
        );
        assert_eq!((part.data_bytes, part.sampled_bytes), (12 << 20, 6 << 20));
        let found_bytes = disk.duplicate_stats().found * BLOCK_BYTES as u64;
        assert_eq!(whole.duplicate_bytes, found_bytes);
        for found in [whole, part] {
            assert_eq!(found.zero_bytes, (12 << 20) / 8);
            let off = found.file_bytes as f64 / file_bytes as f64;
            assert!((0.95..1.05).contains(&off), "{off}");
        }
        assert!(predict(&*file, &[], DiskOptions::default(), 1 << 20).is_err());
    }

    #[test]
    fn runs_are_cut_where_an_import_cuts() {
        let cut = |start: u64, end: u64| {
            let chunks = chunks(&(start..end)).map(|chunk| (chunk.start, chunk.end));
            chunks.collect::<Vec<_>>()
        };
        assert_eq!(cut(5, 5), []);
        assert_eq!(cut(4096, 8192), [(4096, 8192)]);
        let mebibyte = IMPORT_BYTES;
        let expected = [
            (4096, mebibyte),
            (mebibyte, 2 * mebibyte),
            (2 * mebibyte, 2 * mebibyte + 1),
        ];
        assert_eq!(cut(4096, 2 * mebibyte + 1), expected);
    }
}
