//! A sparse disk of which a hundredth changed, added again each night.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use anyhow::Result;
use breakeven::blocks::Durability;
use breakeven::disk::{Disk, DiskOptions};
use breakeven::storage::RealStorage;
use tempfile::TempDir;

use super::stores::Store;
use super::trees;
use crate::data::{Kind, SEED};
use crate::programs::Used;

/// A night changes one extent of so many bytes in each [`STRIDE_BYTES`].
pub const EXTENT_BYTES: u64 = 1 << 20;
const STRIDE_BYTES: u64 = 100 << 20;
/// Extents of data in each stride, of which one changes.
const DATA_EXTENTS: u64 = 3;

const DISK: &str = "my.disk";
const IMAGE: &str = "image.raw";
const VOLUME: &str = "disk";

/// A disk, and a sparse file with the same bytes for other programs.
pub struct NightlyDisk {
    folder: TempDir,
    extents: u64,
}

impl NightlyDisk {
    /// Makes both, with so many extents that change each night.
    pub fn create(extents: u64) -> Result<NightlyDisk> {
        let folder = trees::scratch()?;
        fs::create_dir(folder.path().join("image"))?;
        let nightly = NightlyDisk { folder, extents };
        let storage = RealStorage::open_folder(nightly.folder.path())?;
        let disk = Disk::create(&storage, DISK, DiskOptions::default())?;
        disk.create_volume(VOLUME, extents * STRIDE_BYTES)?;
        nightly.image()?.set_len(extents * STRIDE_BYTES)?;
        nightly.write(&disk, 0..DATA_EXTENTS, SEED)?;
        Ok(nightly)
    }

    fn image(&self) -> Result<File> {
        let path = self.folder.path().join("image").join(IMAGE);
        let mut options = File::options();
        Ok(options
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?)
    }

    /// Changes the first extent of each stride.
    pub fn change(&self, night: u64) -> Result<()> {
        let storage = RealStorage::open_folder(self.folder.path())?;
        let disk = Disk::open(&storage, DISK, DiskOptions::default())?;
        self.write(&disk, 0..1, SEED ^ ((night + 1) << 32))
    }

    fn write(&self, disk: &Disk, extents: std::ops::Range<u64>, seed: u64) -> Result<()> {
        let (volume, image) = (disk.volume(VOLUME)?, self.image()?);
        for stride in 0..self.extents {
            for extent in extents.clone() {
                let at = stride * STRIDE_BYTES + extent * EXTENT_BYTES;
                let bytes = Kind::Mixed.generate(EXTENT_BYTES as usize, seed.wrapping_add(at));
                volume.write(at, &bytes, Durability::Lazy)?;
                image.write_all_at(&bytes, at)?;
            }
        }
        disk.close()?;
        Ok(())
    }

    /// Adds the disk to a vault.
    pub fn add_disk(&self, store: &Store) -> Result<Used> {
        store.add_disk(&self.folder.path().join(DISK))
    }

    /// Adds the sparse file to any store, under a name that was not used before.
    pub fn add_image(&self, store: &Store, name: &str) -> Result<Used> {
        store.add(&self.folder.path().join("image"), name)
    }
}
