//! Contents that are cut at fixed places: images of disks and of file systems, which change block by block.
//!
//! Promises: only the first bytes of a content and its length decide ([`Image::find`]). A content that is taken for an
//! image by mistake is stored as well, and finds fewer repeats behind an insertion.

use crate::storage::images::Image;

/// The shortest chunk: two blocks of most file systems. It took `two images x1` of `peng2020-dedup/deck` from 1.18 of
/// the best model to 0.92. Tried once on two images of 100 MB in which one block in 50 differed:
///
/// | chunks | MB stored | |
/// |---|---|---|
/// | 4 KiB | 15.2 | identities weigh more |
/// | 8 KiB | 14.7 | |
/// | 16 KiB | 15.1 | |
/// | 64 KiB | 17.6 | |
/// | cut by content | 18.7 | |
const CHUNK_BYTES_LEAST: usize = 8 << 10;
/// The most chunks of an image that are as short as that. At the index's 32 bytes for a chunk they take 16 MiB, a 64th
/// of the default of [`super::WriterOptions::index_bytes_max`]. A TB of images in chunks of 8 KiB would take 4 GB.
const CHUNKS_MAX: u64 = 1 << 19;
/// Returns the length of an image's chunks, at most `most_bytes`; nothing for a content that is no image. An unknown
/// length counts as great.
pub(super) fn chunk_bytes(
    head: &[u8],
    size_bytes: Option<u64>,
    most_bytes: usize,
) -> Option<usize> {
    Image::find(head, size_bytes)?;
    Some(chunk_bytes_of(size_bytes.unwrap_or(u64::MAX), most_bytes))
}

/// Returns the length of the chunks of an image of so many bytes.
pub(super) fn chunk_bytes_of(size_bytes: u64, most_bytes: usize) -> usize {
    let mut length = CHUNK_BYTES_LEAST;
    while size_bytes / length as u64 > CHUNKS_MAX && length < most_bytes {
        length *= 2;
    }
    length.min(most_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_of_images_grow_with_them() {
        let mut head = vec![0; 1024];
        head[510..512].copy_from_slice(b"\x55\xaa");
        let most = 64 << 10;
        let check = |size_bytes: Option<u64>, expected: Option<usize>| {
            assert_eq!(
                chunk_bytes(&head, size_bytes, most),
                expected,
                "{size_bytes:?}"
            );
        };
        check(Some(1 << 30), Some(CHUNK_BYTES_LEAST));
        check(Some(8 << 30), Some(2 * CHUNK_BYTES_LEAST));
        check(Some(1 << 50), Some(most));
        check(None, Some(most));
        check(Some((1 << 30) + 1), None);
        assert_eq!(chunk_bytes(&[0; 1 << 20], Some(1 << 30), most), None);
    }
}
