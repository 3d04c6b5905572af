//! Contents that are cut at fixed places: images of disks and of file systems, which change block by block.
//!
//! Promises: only what a content begins with, and its length, decide. What is taken for an image and is none is stored as
//! well, and finds fewer repeats where something was inserted.
//!
//! Images of optical discs are cut as other contents: their files move when one before them grows, as in an archive.

/// The shortest chunk: two blocks of most file systems. It took `two images x1` of `peng2020-dedup/deck` from 1.18 of the best
/// model to 0.92. Of two images of 100 MB of which one block in 50 differed, tried once, it made 14.7 MB; 4 KiB made
/// 15.2, since identities weigh more, 16 KiB 15.1, 64 KiB 17.6, and cuts by content 18.7.
const CHUNK_BYTES_LEAST: usize = 8 << 10;
/// Chunks of an image up to which they are as short as that. At the 32 bytes that the index may take for a chunk they are
/// 16 MiB, a 64th of what [`super::WriterOptions::index_bytes_max`] is unless told: a TB of images of 8 KiB would take 4 GB.
const CHUNKS_MAX: u64 = 1 << 19;
/// The sector that ends in the boot signature of a PC's disk (UEFI specification, section 5.2.1); a disk has whole ones.
const SECTOR_BYTES: u64 = 512;

/// What an image has at a place.
const SIGNATURES: [(usize, &[u8]); 9] = [
    (0x438, b"\x53\xef"), // ext2 to ext4, behind two bytes that tell little
    (0, b"XFSB"),
    (0x10040, b"_BHRfS_M"),
    (0x200, b"EFI PART"),
    (0x200, b"LABELONE"),
    (0, b"QFI\xfb"),
    (0, b"vhdxfile"),
    (0x40, b"\x7f\x10\xda\xbe"), // VirtualBox
    (0, b"LUKS\xba\xbe"),
];

/// What an optical disc has (ECMA-119, section 8), many of which have a boot sector as well.
const DISC: (usize, &[u8]) = (0x8001, b"CD001");

/// Returns the length of an image's chunks, at most `most_bytes`; nothing for a content that is none. A length that is
/// not known is held to be great.
pub(super) fn chunk_bytes(
    head: &[u8],
    size_bytes: Option<u64>,
    most_bytes: usize,
) -> Option<usize> {
    let has = |&(at, signature): &(usize, &[u8])| {
        head.get(at..).is_some_and(|it| it.starts_with(signature))
    };
    let is_sectors = size_bytes.is_none_or(|size| size.is_multiple_of(SECTOR_BYTES));
    let is_bootable = is_sectors && has(&(510, b"\x55\xaa"));
    let is_disc = has(&DISC);
    if is_disc || !(is_bootable || SIGNATURES.iter().any(has)) {
        return None;
    }
    let size_bytes = size_bytes.unwrap_or(u64::MAX);
    let mut length = CHUNK_BYTES_LEAST;
    while size_bytes / length as u64 > CHUNKS_MAX && length < most_bytes {
        length *= 2;
    }
    Some(length.min(most_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_other_contents() {
        let head = |at: usize, signature: &[u8]| {
            let mut bytes = vec![0; 128 << 10];
            bytes[at..at + signature.len()].copy_from_slice(signature);
            bytes
        };
        let most = 64 << 10;
        for (at, signature) in SIGNATURES {
            let found = chunk_bytes(&head(at, signature), Some(1 << 30), most);
            assert_eq!(found, Some(CHUNK_BYTES_LEAST), "{signature:?}");
        }
        let boot = head(510, b"\x55\xaa");
        assert_eq!(
            chunk_bytes(&boot, Some(8 << 30), most),
            Some(2 * CHUNK_BYTES_LEAST)
        );
        assert_eq!(chunk_bytes(&boot, Some(1 << 50), most), Some(most));
        assert_eq!(chunk_bytes(&boot, None, most), Some(most));
        assert_eq!(chunk_bytes(&boot, Some((1 << 30) + 1), most), None);
        let mut disc = boot;
        disc[DISC.0..][..DISC.1.len()].copy_from_slice(DISC.1);
        assert_eq!(chunk_bytes(&disc, Some(1 << 30), most), None);
        assert_eq!(chunk_bytes(&[0; 1 << 20], Some(1 << 30), most), None);
        assert_eq!(chunk_bytes(b"EFI PART", Some(1 << 30), most), None);
    }
}
