//! Files that need no read because another one was read: both share all extents.
//!
//! Promises: a file counts as a clone only if the other one still lies there unchanged and both lie in the same shared
//! extents. A file system never changes those in place. The walk checks a clone for changes meanwhile, as it does every
//! file.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, Stat};

use crate::storage::extents::shared_extents;

use super::cipher::Id;
use super::restore_files::{FIRST_FLAGS, FileState, open_below, state_of};

/// Reading a shorter file is faster than asking for its extents.
const BYTES_LEAST: u64 = 64 << 10;
/// Files that are remembered: some 200 bytes each.
const KNOWN_MAX: usize = 1 << 17;

/// The hash of a file's extents.
pub(super) type Extents = [u8; 32];

struct Known {
    path: Vec<Vec<u8>>,
    state: FileState,
    content: Id,
}

/// Files with shared extents that were read.
#[derive(Default)]
pub(super) struct Clones {
    known: BTreeMap<Extents, Known>,
    /// Devices whose file systems do not report extents.
    mute: BTreeSet<u64>,
}

impl Clones {
    /// Returns the extents of an open file, if it shares all of them.
    pub(super) fn extents(&mut self, file: &OwnedFd, status: &Stat) -> Option<Extents> {
        if (status.st_size as u64) < BYTES_LEAST || self.mute.contains(&status.st_dev) {
            return None;
        }
        match shared_extents(file.as_fd()) {
            Ok(extents) => {
                let mut hasher = blake3::Hasher::new();
                hasher.update(&status.st_dev.to_le_bytes());
                hasher.update(&status.st_size.to_le_bytes());
                for extent in extents? {
                    for number in [extent.logical, extent.physical, extent.length_bytes] {
                        hasher.update(&number.to_le_bytes());
                    }
                }
                Some(*hasher.finalize().as_bytes())
            }
            Err(_) => {
                self.mute.insert(status.st_dev);
                None
            }
        }
    }

    /// Returns the content of a file that was read below `root` and shares these extents.
    pub(super) fn find(&mut self, root: &OwnedFd, extents: &Extents) -> Option<Id> {
        let known = self.known.get(extents)?;
        let (name, folders) = known.path.split_last()?;
        let (state, content) = (known.state, known.content);
        let folder = open_below(root, folders).ok()?;
        let file = rustix::fs::openat(&folder, &name[..], FIRST_FLAGS, Mode::empty()).ok()?;
        let status = rustix::fs::fstat(&file).ok()?;
        let is_there = self.extents(&file, &status).as_ref() == Some(extents);
        let after = rustix::fs::fstat(&file).ok()?;
        let is_same = state_of(&status) == state && state_of(&after) == state;
        (is_there && is_same).then_some(content)
    }

    /// Notes a file that was read.
    pub(super) fn remember(
        &mut self,
        extents: Extents,
        path: &[Vec<u8>],
        status: &Stat,
        content: Id,
    ) {
        if self.known.len() < KNOWN_MAX {
            self.known.entry(extents).or_insert_with(|| Known {
                path: path.to_vec(),
                state: state_of(status),
                content,
            });
        }
    }
}
