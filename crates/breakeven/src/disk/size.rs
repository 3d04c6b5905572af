//! Lengths of volumes, to the byte, and their changes.
//!
//! A volume has whole blocks in the store. Where its length is no multiple of a block, its title has the count of bytes
//! in the last block that are not its own. They are zeros, so that a volume that grows shows zeros there.

use std::ops::Range;

use super::names::Title;
use super::{Disk, VolumeStatus, number_of, status};
use crate::blocks::{Durability, INDEX_MAX, Snapshot};
use crate::error::{Error, Result};
use crate::storage::is_zero;

/// A length in blocks. The last block may have unused bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VolumeLength {
    pub(super) size_blocks: u64,
    /// The bytes of the last block behind the end.
    pub(super) unused_bytes: u32,
}

impl VolumeLength {
    /// Returns the length of so many bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for none, and for more than a volume may have.
    pub(super) fn of(size_bytes: u64, block_bytes: u32) -> Result<VolumeLength> {
        let block = u64::from(block_bytes);
        let size_blocks = size_bytes.div_ceil(block);
        if size_bytes == 0 || size_blocks > INDEX_MAX {
            let most = INDEX_MAX * block;
            let reason = format!("{size_bytes} bytes: expected 1 to {most}");
            return Err(Error::invalid("size of a volume", reason));
        }
        Ok(VolumeLength {
            size_blocks,
            unused_bytes: (size_blocks * block - size_bytes) as u32,
        })
    }
}

/// Returns the last range of blocks in use that ends behind `from`.
fn last_mapped(snapshot: &Snapshot, number: u32, from: u64) -> Result<Option<Range<u64>>> {
    let mut last = None;
    let mut at = from;
    while let Some(run) = snapshot.next_mapped(number, at)? {
        at = run.end;
        last = Some(run);
    }
    Ok(last)
}

impl Disk {
    /// Makes a volume longer or shorter, and makes that durable. Added bytes read as zeros. Clones keep their own
    /// length.
    ///
    /// Open handles of the volume keep the length that they know. A caller that makes it shorter must see that nobody
    /// writes through such a handle any more.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no volume of this name, it is a snapshot, or the size is out of range. It also
    /// comes if something lies behind the new end and `is_discarded` is false. Those of reading and writing.
    ///
    /// # Cost
    /// That of one commit, and a walk over the blocks behind the new end.
    pub fn resize_volume(&self, name: &str, size_bytes: u64, is_discarded: bool) -> Result<()> {
        let mut transaction = self.inner.blocks.begin()?;
        let snapshot = self.inner.blocks.snapshot();
        let number = number_of(&snapshot, name)?;
        let volume = status(&snapshot, number)?;
        if volume.is_read_only {
            let reason = format!("'{name}' is a snapshot, which nobody can change");
            return Err(Error::invalid("volume", reason));
        }
        let length = VolumeLength::of(size_bytes, volume.block_bytes)?;
        let mut cut = Vec::new();
        if size_bytes < volume.size_bytes {
            cut = cut_block(&snapshot, &volume, length)?;
            let used_bytes = used_behind(&snapshot, &volume, length, &cut)?;
            if let Some(used_bytes) = used_bytes.filter(|_| !is_discarded) {
                let reason = format!(
                    "{size_bytes} bytes: '{name}' is in use up to {used_bytes}; trim what lies behind the new end, or \
                     say that it is to be discarded"
                );
                return Err(Error::invalid("size of a volume", reason));
            }
        }
        let kept = cut.len().saturating_sub(length.unused_bytes as usize);
        if !is_zero(&cut[kept..]) {
            cut[kept..].fill(0);
            let last = length.size_blocks - 1;
            match is_zero(&cut) {
                true => transaction.trim(number, last..length.size_blocks)?,
                false => transaction.write(number, last, &cut)?,
            }
        }
        transaction.resize(number, length.size_blocks)?;
        let mut title = Title::new(name, false)?;
        title.unused_bytes = length.unused_bytes;
        transaction.note(number, &title.encode())?;
        transaction.commit(Durability::Durable)?;
        Ok(())
    }
}

/// Returns the block through which the new end goes, nothing if it lies between two.
fn cut_block(snapshot: &Snapshot, volume: &VolumeStatus, length: VolumeLength) -> Result<Vec<u8>> {
    let mut block = Vec::new();
    if length.unused_bytes > 0 {
        block.resize(volume.block_bytes as usize, 0);
        snapshot.read(volume.number, length.size_blocks - 1, &mut block)?;
    }
    Ok(block)
}

/// Returns the end of the bytes in use, if that is behind a new end. `cut` is the block that the new end goes through.
fn used_behind(
    snapshot: &Snapshot,
    volume: &VolumeStatus,
    length: VolumeLength,
    cut: &[u8],
) -> Result<Option<u64>> {
    let block_bytes = u64::from(volume.block_bytes);
    if let Some(run) = last_mapped(snapshot, volume.number, length.size_blocks)? {
        return Ok(Some((run.end * block_bytes).min(volume.size_bytes)));
    }
    let used = cut
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at + 1);
    let is_behind = used > cut.len() - length.unused_bytes as usize;
    let start = length.size_blocks.saturating_sub(1) * block_bytes;
    Ok(is_behind.then_some(start + used as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::small::options;
    use crate::storage::MemoryStorage;
    use crate::testing::{is_full, seeded};

    const SIZE_MAX: usize = 90_000;

    /// One volume and its clone against plain bytes, while their lengths change to any number of bytes.
    struct LengthModel {
        disk: Disk,
        bytes: Vec<u8>,
    }

    impl LengthModel {
        fn change(&mut self, random: &mut fastrand::Rng) {
            let volume = self.disk.volume("one").unwrap();
            let size = self.bytes.len();
            assert_eq!(volume.status().size_bytes, size as u64);
            let start = random.usize(..size);
            let end = match random.u8(..3) {
                0 => size,
                _ => random.usize(start..=size).min(start + 9000),
            };
            let (at, length) = (start as u64, (end - start) as u64);
            let part = &mut self.bytes[start..end];
            match random.u8(..4) {
                0 => {
                    volume.zero(at, length, Durability::Lazy).unwrap();
                    part.fill(0);
                }
                1 => {
                    volume.trim(at, length, Durability::Lazy).unwrap();
                    volume.read(at, part).unwrap();
                }
                _ => {
                    part.fill(random.u8(..));
                    volume.write(at, part, Durability::Lazy).unwrap();
                }
            }
            let behind = volume.write(size as u64 - 1, &[1, 1], Durability::Lazy);
            assert!(behind.is_err(), "a write behind the end");
        }

        fn resize(&mut self, random: &mut fastrand::Rng) -> bool {
            let size = random.usize(1..SIZE_MAX);
            let used = self.bytes.iter().rposition(|byte| *byte != 0);
            let is_lossy = used.is_some_and(|used| used >= size);
            let is_discarded = random.bool();
            let resized = self.disk.resize_volume("one", size as u64, is_discarded);
            match resized {
                Ok(()) => {
                    assert!(!is_lossy || is_discarded, "bytes were lost in silence");
                    self.bytes.resize(size, 0);
                }
                Err(Error::Invalid { .. }) => assert!(is_lossy && !is_discarded),
                Err(error) => panic!("{error}"),
            }
            is_lossy
        }

        fn check(&self, name: &str, expected: &[u8]) {
            let volume = self.disk.volume(name).unwrap();
            assert_eq!(volume.status().size_bytes, expected.len() as u64);
            let mut shown = vec![1; expected.len()];
            volume.read(0, &mut shown).unwrap();
            assert!(shown == expected, "other bytes");
            let all = 0..expected.len() as u64;
            let extents = volume.extents(all, u64::MAX >> 1).unwrap();
            let covered: u64 = extents.iter().map(|extent| extent.length_bytes).sum();
            assert_eq!(covered, expected.len() as u64);
        }
    }

    #[test]
    fn lengths_are_exact_and_what_is_added_is_zeros() {
        let mut random = seeded("disk size", 2520);
        let (runs, rounds) = if is_full() { (200, 200) } else { (20, 100) };
        let (mut resized, mut lossy) = (0, 0);
        for _ in 0..runs {
            let storage = MemoryStorage::new();
            let disk = Disk::create(&storage, "disk", options()).unwrap();
            let size = random.usize(1..SIZE_MAX);
            disk.create_volume("one", size as u64).unwrap();
            let mut model = LengthModel {
                disk,
                bytes: vec![0; size],
            };
            for _ in 0..rounds {
                match random.u8(..8) {
                    0 => {
                        let before = model.bytes.clone();
                        model.disk.clone_volume("one", "two", true).unwrap();
                        lossy += usize::from(model.resize(&mut random));
                        resized += 1;
                        model.check("two", &before);
                        model.disk.remove_volume("two").unwrap();
                    }
                    1 => {
                        let LengthModel { disk, bytes } = model;
                        disk.close().unwrap();
                        drop(disk);
                        let disk = Disk::open(&storage, "disk", options()).unwrap();
                        model = LengthModel { disk, bytes };
                    }
                    _ => model.change(&mut random),
                }
                model.check("one", &model.bytes);
            }
        }
        println!("{resized} new lengths, {lossy} of which cut something off");
        assert!(resized > runs * 5 && lossy > runs, "{resized} {lossy}");
    }

    #[test]
    fn what_all_trims_give_back_is_all() {
        let storage = MemoryStorage::new();
        let disk = Disk::create(&storage, "disk", options()).unwrap();
        disk.create_volume("one", 10_001).unwrap();
        let volume = disk.volume("one").unwrap();
        volume.write(0, &[7; 10_001], Durability::Lazy).unwrap();
        volume.trim(0, 10_001, Durability::Lazy).unwrap();
        assert!(volume.is_hole(0, 10_001).unwrap());
        disk.clone_volume("one", "still", true).unwrap();
        assert!(disk.resize_volume("still", 5, true).is_err());
        assert!(disk.resize_volume("none", 5, true).is_err());
        assert!(disk.resize_volume("one", 0, true).is_err());
        assert!(disk.resize_volume("one", u64::MAX, true).is_err());
    }
}
