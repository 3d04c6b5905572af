//! A volume of a disk as a vault takes it: a snapshot of it, and the blocks that changed since the last one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use breakeven::Error;
use breakeven::disk::{ChangedExtent, Disk, DiskOptions, Extent, Volume};
use breakeven::vault::{DiskRuns, DiskSource, DiskStates};

use rustix::io::Errno;

use super::image::STATUS_BLOCKS;
use super::{Opened, THREADS_MAX};

/// The way for a disk that another process has.
const SERVED: &str =
    "a served disk is backed up by `breakeven disk snapshot` and an NBD client (docs/disk.md)";

/// The time between two attempts to open a disk that another process has: short beside the backup of one.
const PAUSE: Duration = Duration::from_millis(100);

/// A volume that is backed up.
pub struct Backup {
    disk: Disk,
    path: PathBuf,
    name: String,
    /// The volume itself, and then its new snapshot.
    volume: Volume,
    states: Option<DiskStates>,
    /// Whether nothing is kept in the disk.
    is_trial: bool,
    unwritable: Option<String>,
    /// The disk's error, if there was one. The vault's are others.
    failure: Option<String>,
}

/// Says whether another process has the disk.
fn is_of_another(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Error::Invalid { .. }))
}

/// Says whether the disk cannot be opened to be written: its file system is read-only, or its mode does not allow it.
fn is_unwritable(error: &anyhow::Error) -> bool {
    let Some(Error::Io { source, .. }) = error.downcast_ref() else {
        return false;
    };
    let refusals = [Errno::ROFS, Errno::ACCESS, Errno::PERM].map(Errno::raw_os_error);
    source
        .raw_os_error()
        .is_some_and(|it| refusals.contains(&it))
}

/// Splits a volume's name from the path of its disk. Both may have colons.
fn split(typed: &Path) -> (&Path, Option<&str>) {
    let bytes = typed.as_os_str().as_bytes();
    let colons = (0..bytes.len()).rev().filter(|at| bytes[*at] == b':');
    let parts = colons.map(|at| (&bytes[..at], std::str::from_utf8(&bytes[at + 1..])));
    let parts = parts.map(|(path, name)| (Path::new(OsStr::from_bytes(path)), name.ok()));
    let mut files = parts.filter(|(path, name)| path.is_file() && name.is_some());
    match typed.exists() {
        true => (typed, None),
        false => files.next().unwrap_or((typed, None)),
    }
}

impl Backup {
    /// Opens the disk `FILE` or `FILE:VOLUME`; the first volume counts unless one is named.
    /// One that another process has is waited for.
    pub fn open(typed: &Path, is_trial: bool, wait: Duration) -> Result<Backup> {
        let (path, name) = split(typed);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let options = DiskOptions {
            threads: threads.min(THREADS_MAX),
            ..DiskOptions::default()
        };
        let mut unwritable = None;
        let end = Instant::now() + wait;
        let disk = loop {
            let is_read_only = is_trial || unwritable.is_some();
            match Opened::open_with(path, options, is_read_only) {
                Ok(opened) => break opened.disk,
                Err(error) if !is_read_only && is_unwritable(&error) => {
                    unwritable = Some(error.to_string());
                }
                Err(error) if !is_of_another(&error) => return Err(error),
                Err(error) if Instant::now() >= end => return Err(error.context(SERVED)),
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        let name = match name {
            Some(name) => name.to_string(),
            None => {
                let first = disk.volumes()?.into_iter().next();
                first.context("the disk has no volume")?.name
            }
        };
        Ok(Backup {
            path: std::fs::canonicalize(path)?,
            volume: disk.volume(&name)?,
            disk,
            name,
            states: None,
            is_trial: is_trial || unwritable.is_some(),
            unwritable,
            failure: None,
        })
    }

    /// Returns the path of the disk, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the disk's error, if there was one.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Returns why the disk can be read and not written, if it is so.
    pub fn unwritable(&self) -> Option<&str> {
        self.unwritable.as_deref()
    }

    /// Returns the volume's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Keeps the snapshot that the next backup is compared with, and no other of this vault. Where the vault has none,
    /// the new one goes.
    pub fn end(&self, is_stored: bool) -> breakeven::Result<()> {
        let Some(states) = self.states.as_ref().filter(|_| !self.is_trial) else {
            return Ok(());
        };
        match is_stored {
            true => self.keep(states, Some(&states.now))?,
            false => self.disk.remove_volume(&states.now)?,
        }
        self.disk.close()
    }

    /// Removes all snapshots for this vault but one.
    fn keep(&self, states: &DiskStates, kept: Option<&String>) -> breakeven::Result<()> {
        for volume in self.disk.volumes()? {
            let is_ours = volume.is_read_only && volume.name.starts_with(&states.prefix);
            if is_ours && Some(&volume.name) != kept && volume.name != self.name {
                self.disk.remove_volume(&volume.name)?;
            }
        }
        Ok(())
    }
}

/// Returns the runs that were found, from extents that follow each other.
fn runs(from: u64, extents: impl Iterator<Item = (u64, bool)>) -> DiskRuns {
    let mut found = DiskRuns {
        runs: Vec::new(),
        until: from,
    };
    for (length_bytes, is_found) in extents {
        let start = found.until;
        found.until += length_bytes;
        if is_found {
            found.runs.push(start..found.until);
        }
    }
    found
}

impl Backup {
    fn noted<T>(&mut self, result: breakeven::Result<T>) -> breakeven::Result<T> {
        if let Err(error) = &result {
            self.failure = Some(error.to_string());
        }
        result
    }

    fn freeze(&mut self, states: &DiskStates) -> breakeven::Result<Option<u64>> {
        let block_bytes = self.volume.status().block_bytes;
        let mut volumes = self.disk.volumes()?.into_iter();
        let before = volumes.find(|volume| {
            Some(&volume.name) == states.before.as_ref()
                && volume.is_read_only
                && volume.block_bytes == block_bytes
        });
        if !self.is_trial {
            // A backup that was killed left others.
            self.keep(states, states.before.as_ref())?;
            self.disk.clone_volume(&self.name, &states.now, true)?;
            self.volume = self.disk.volume(&states.now)?;
        }
        self.states = Some(states.clone());
        Ok(before.map(|volume| volume.size_bytes))
    }

    fn changes(&self, from: u64) -> breakeven::Result<DiskRuns> {
        let states = self.states.as_ref();
        let before = states.and_then(|it| it.before.as_deref()).unwrap_or("");
        let range = from..self.size_bytes();
        let extents = self.volume.changes(before, range, STATUS_BLOCKS)?;
        let extent = |it: &ChangedExtent| (it.length_bytes, it.is_changed);
        Ok(runs(from, extents.iter().map(extent)))
    }
}

impl DiskSource for Backup {
    fn begin(&mut self, states: &DiskStates) -> breakeven::Result<Option<u64>> {
        let frozen = self.freeze(states);
        self.noted(frozen)
    }

    fn size_bytes(&self) -> u64 {
        self.volume.status().size_bytes
    }

    fn read(&mut self, offset: u64, target: &mut [u8]) -> breakeven::Result<()> {
        let read = self.volume.read(offset, target);
        self.noted(read)
    }

    fn stored(&mut self, from: u64) -> breakeven::Result<DiskRuns> {
        let range = from..self.size_bytes();
        let extents = self.volume.extents(range, STATUS_BLOCKS);
        let extent = |it: &Extent| (it.length_bytes, !it.is_hole);
        self.noted(extents.map(|extents| runs(from, extents.iter().map(extent))))
    }

    fn changed(&mut self, from: u64) -> breakeven::Result<DiskRuns> {
        let changes = self.changes(from);
        self.noted(changes)
    }
}
