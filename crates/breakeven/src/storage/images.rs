//! Images of disks and of file systems: their marks in the first bytes, and the places of data in a sparse file.
//!
//! Promises: only the first bytes and the length decide. A wrong guess costs the caller time, and never makes anything
//! wrong.
//!
//! An optical disc does not count: its files move when one before them grows, as in an archive.

use std::fmt;
use std::fs::File;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

/// The bytes of a file that must be looked at.
pub const HEAD_BYTES: usize = 66 << 10;

/// The sector that ends in the boot signature of a PC's disk (UEFI specification, section 5.2.1); a disk has whole
/// ones.
const SECTOR_BYTES: u64 = 512;
const BOOT: (usize, &[u8]) = (510, b"\x55\xaa");

/// The signatures of images and their places.
const SIGNATURES: [(usize, &[u8], Image); 9] = [
    // It stands behind two bytes that show little.
    (0x438, b"\x53\xef", Image::Ext),
    (0, b"XFSB", Image::Xfs),
    (0x10040, b"_BHRfS_M", Image::Btrfs),
    (0x200, b"EFI PART", Image::Gpt),
    (0x200, b"LABELONE", Image::Lvm),
    (0, b"QFI\xfb", Image::Qcow2),
    (0, b"vhdxfile", Image::Vhdx),
    (0x40, b"\x7f\x10\xda\xbe", Image::VirtualBox),
    (0, b"LUKS\xba\xbe", Image::Luks),
];

/// The signature of an optical disc (ECMA-119, section 8); many of them have a boot sector as well.
const DISC: (usize, &[u8]) = (0x8001, b"CD001");

/// The kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Image {
    /// A file system: ext2 to ext4.
    Ext,
    /// A file system.
    Xfs,
    /// A file system.
    Btrfs,
    /// A disk with a table of partitions.
    Gpt,
    /// A disk with a boot sector, or a file system with one.
    Boot,
    /// A volume of a volume group.
    Lvm,
    /// A volume that is encrypted.
    Luks,
    /// A file in which blocks are where QEMU put them.
    Qcow2,
    /// The same of Hyper-V.
    Vhdx,
    /// The same of VirtualBox.
    VirtualBox,
}

impl Image {
    /// Returns the kind of image, from the first [`HEAD_BYTES`] of a content, or all of it. An unknown length is
    /// assumed to be one of whole sectors.
    pub fn find(head: &[u8], size_bytes: Option<u64>) -> Option<Image> {
        let has = |at: usize, signature: &[u8]| {
            head.get(at..).is_some_and(|it| it.starts_with(signature))
        };
        if has(DISC.0, DISC.1) {
            return None;
        }
        let signed = SIGNATURES
            .iter()
            .find(|(at, signature, _)| has(*at, signature));
        let is_sectors = size_bytes.is_none_or(|size| size.is_multiple_of(SECTOR_BYTES));
        let boot = (is_sectors && has(BOOT.0, BOOT.1)).then_some(Image::Boot);
        signed.map(|(.., image)| *image).or(boot)
    }

    /// Returns whether the file's bytes are the disk's, at the same places.
    pub fn is_raw(self) -> bool {
        !matches!(self, Image::Qcow2 | Image::Vhdx | Image::VirtualBox)
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Image::Ext => "an ext file system",
            Image::Xfs => "an XFS file system",
            Image::Btrfs => "a btrfs file system",
            Image::Gpt => "a disk with partitions",
            Image::Boot => "a disk with a boot sector",
            Image::Lvm => "a volume of LVM",
            Image::Luks => "an encrypted volume",
            Image::Qcow2 => "a qcow2 image",
            Image::Vhdx => "a VHDX image",
            Image::VirtualBox => "a VirtualBox image",
        })
    }
}

/// Returns the place of the next data of a sparse file, from an offset on. It is the file's length if only a hole is
/// left, and the offset itself where the file system does not know. The file's position stays.
pub fn next_data(file: &File, offset: u64) -> u64 {
    let Ok(here) = seek(file, SeekFrom::Current(0)) else {
        return offset;
    };
    let found = match seek(file, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => file.metadata().map_or(offset, |it| it.len().max(offset)),
        found => found.unwrap_or(offset),
    };
    match seek(file, SeekFrom::Start(here)) {
        Ok(_) => found,
        Err(_) => offset,
    }
}

/// Returns the runs of data in a sparse file, start and end of each; nothing where the file system does not know them.
pub fn data_runs(file: &File) -> impl Iterator<Item = (u64, u64)> + '_ {
    let mut at = 0;
    let next = move || {
        let start = seek(file, SeekFrom::Data(at)).ok()?;
        at = seek(file, SeekFrom::Hole(start)).ok()?;
        Some((start, at))
    };
    std::iter::from_fn(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_told_from_other_contents() {
        let head = |at: usize, signature: &[u8]| {
            let mut bytes = vec![0; HEAD_BYTES];
            bytes[at..at + signature.len()].copy_from_slice(signature);
            bytes
        };
        for (at, signature, image) in SIGNATURES {
            let found = Image::find(&head(at, signature), Some((1 << 30) + 1));
            assert_eq!(found, Some(image), "{signature:?}");
            println!("{image} is {}raw", if image.is_raw() { "" } else { "not " });
        }
        let boot = head(BOOT.0, BOOT.1);
        assert_eq!(Image::find(&boot, Some(8 << 30)), Some(Image::Boot));
        assert_eq!(Image::find(&boot, None), Some(Image::Boot));
        assert_eq!(Image::find(&boot, Some((1 << 30) + 1)), None);
        let mut gpt = boot.clone();
        gpt[0x200..0x208].copy_from_slice(b"EFI PART");
        assert_eq!(Image::find(&gpt, None), Some(Image::Gpt));
        let mut disc = boot;
        disc[DISC.0..][..DISC.1.len()].copy_from_slice(DISC.1);
        assert_eq!(Image::find(&disc, Some(1 << 30)), None);
        assert_eq!(Image::find(&[0; 1 << 20], Some(1 << 30)), None);
        assert_eq!(Image::find(b"EFI PART", Some(1 << 30)), None);
    }
}
