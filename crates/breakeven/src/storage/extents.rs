//! The place of a file's bytes on its medium, if it shares them with other files.
//!
//! Two files with the same shared extents hold the same bytes, so that one of them need not be read. A range that a
//! file system cannot describe exactly counts as not shared: compressed or inline data, and data not yet written.
//!
//! `unsafe` here: the call `FS_IOC_FIEMAP`, which has no safe name in the crates this library stands on.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A range of a file, and its place on the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    pub logical: u64,
    pub physical: u64,
    pub length_bytes: u64,
}

/// `struct fiemap_extent` of Linux.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    reserved_too: [u32; 3],
}

const EXTENTS: usize = 128;

/// `struct fiemap` of Linux with room for some extents.
#[repr(C)]
struct Map {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; EXTENTS],
}

const FS_IOC_FIEMAP: libc::Ioctl = 0xC020_660B_u32 as libc::Ioctl;
/// Written data gets its place first.
const FLAG_SYNC: u32 = 1;
const EXTENT_LAST: u32 = 1;
const EXTENT_SHARED: u32 = 0x2000;
/// Neither unknown, delayed, encoded, encrypted, inline, in a tail nor unwritten.
const EXTENT_INEXACT: u32 = 0x2 | 0x4 | 0x8 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800;

/// Returns the extents of a file if it shares all of them with others; neighbours are joined.
///
/// # Errors
/// Errors of the system; `EOPNOTSUPP` or `ENOTTY` where the file system does not report extents.
pub fn shared_extents(file: BorrowedFd<'_>) -> io::Result<Option<Vec<Extent>>> {
    let mut extents: Vec<Extent> = Vec::new();
    let mut map = Box::new(Map {
        start: 0,
        length: 0,
        flags: 0,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
        extents: [RawExtent::default(); EXTENTS],
    });
    loop {
        map.length = u64::MAX - map.start;
        map.flags = FLAG_SYNC;
        (map.mapped_extents, map.extent_count) = (0, EXTENTS as u32);
        // SAFETY: `map` has the layout of the call, lives until it returns, and states its room for extents.
        let result = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP, &raw mut *map) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let found = map.extents.iter().take(map.mapped_extents as usize);
        let mut is_last = map.mapped_extents == 0;
        for raw in found {
            if raw.flags & EXTENT_SHARED == 0 || raw.flags & EXTENT_INEXACT != 0 || raw.length == 0
            {
                return Ok(None);
            }
            is_last |= raw.flags & EXTENT_LAST != 0;
            map.start = raw.logical.saturating_add(raw.length);
            let next = Extent {
                logical: raw.logical,
                physical: raw.physical,
                length_bytes: raw.length,
            };
            match extents.last_mut() {
                Some(last)
                    if last.logical + last.length_bytes == next.logical
                        && last.physical + last.length_bytes == next.physical =>
                {
                    last.length_bytes += next.length_bytes;
                }
                _ => extents.push(next),
            }
        }
        if is_last {
            return Ok((!extents.is_empty()).then_some(extents));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Root tests file systems that share, with the vault; here the file is not shared.
    #[test]
    fn a_file_of_its_own_shares_nothing() {
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, &[1; 100_000]).unwrap();
        match shared_extents(file.as_fd()) {
            Ok(shared) => assert_eq!(shared, None),
            Err(error) => println!("no extents here: {error}"),
        }
    }
}
