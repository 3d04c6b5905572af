//! The contents of the simulated medium, and the changes still on their way there.
//!
//! A [`View`] is names and contents. A [`Medium`] is a durable view and the changes made since that no sync has
//! covered. The same code follows a live disk and replays a recorded run, so a replay cannot differ from the run.

use std::collections::BTreeMap;
use std::sync::Arc;

use fastrand::Rng;

use crate::storage::namespace::{Namespace, split_name};
use crate::storage::simulated::damage::write_back;
use crate::storage::sparse::{BLOCK_BYTES, SparseBytes};

/// Names a file's content, independent of the file's names.
pub(super) type InodeNumber = u64;

/// A change that a crash may lose until a sync has covered it.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Write {
        inode: InodeNumber,
        offset: u64,
        bytes: Arc<[u8]>,
    },
    Truncate {
        inode: InodeNumber,
        size_bytes: u64,
    },
    Punch {
        inode: InodeNumber,
        offset: u64,
        length_bytes: u64,
    },
    Allocate {
        inode: InodeNumber,
        offset: u64,
        length_bytes: u64,
    },
    Create {
        name: String,
        inode: InodeNumber,
        mode: u32,
    },
    Rename {
        from: String,
        to: String,
        inode: InodeNumber,
    },
    Unlink {
        name: String,
    },
    CreateFolder {
        name: String,
    },
    RemoveFolder {
        name: String,
    },
}

/// One step of a recorded run.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Change(Change),
    Sync {
        inode: InodeNumber,
    },
    SyncDirectory {
        folder: String,
    },
    /// A sync that failed: chance decides which changes reached the medium, and the rest is forgotten.
    SyncFailed {
        inode: InodeNumber,
        seed: u64,
    },
    /// A point that the program under test wants to find again: an operation began or was acknowledged.
    Mark(u64),
}

impl Change {
    /// Returns the inode whose content is changed, `None` for a change of names.
    pub(super) fn content_of(&self) -> Option<InodeNumber> {
        match self {
            Change::Write { inode, .. }
            | Change::Truncate { inode, .. }
            | Change::Punch { inode, .. }
            | Change::Allocate { inode, .. } => Some(*inode),
            _ => None,
        }
    }

    /// Returns the names that are changed.
    fn names(&self) -> Vec<&str> {
        match self {
            Change::Create { name, .. }
            | Change::Unlink { name }
            | Change::CreateFolder { name }
            | Change::RemoveFolder { name } => vec![name],
            Change::Rename { from, to, .. } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// Returns the folders whose syncs together make a change of names durable.
    fn folders(&self) -> Vec<String> {
        let names = self.names().into_iter();
        let mut folders: Vec<String> = names.map(|name| split_name(name).0.to_string()).collect();
        folders.dedup();
        folders
    }

    /// Applies a change of content to the content.
    pub(super) fn apply_to(&self, content: &mut SparseBytes) {
        match self {
            Change::Write { offset, bytes, .. } => content.write(*offset, bytes),
            Change::Truncate { size_bytes, .. } => content.truncate(*size_bytes),
            Change::Punch {
                offset,
                length_bytes,
                ..
            } => content.punch(*offset, *length_bytes),
            Change::Allocate {
                offset,
                length_bytes,
                ..
            } => content.allocate(*offset, *length_bytes),
            _ => {}
        }
    }
}

/// Names and contents at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct View {
    pub(super) names: Namespace<InodeNumber>,
    pub(super) files: Vec<(InodeNumber, SparseBytes)>,
    /// The permission bits of files that were created here.
    pub(super) modes: BTreeMap<InodeNumber, u32>,
}

impl View {
    pub(super) fn content(&self, inode: InodeNumber) -> Option<&SparseBytes> {
        let found = self.files.iter().find(|(number, _)| *number == inode);
        found.map(|(_, content)| content)
    }

    /// Returns the content of `inode`, empty if it had none.
    pub(super) fn content_mut(&mut self, inode: InodeNumber) -> &mut SparseBytes {
        let found = self.files.iter().position(|(number, _)| *number == inode);
        let at = found.unwrap_or_else(|| {
            self.files.push((inode, SparseBytes::default()));
            self.files.len() - 1
        });
        &mut self.files[at].1
    }

    /// Applies a change despite any losses before it: a rename of a lost name still makes the new one.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Create { name, inode, mode } => {
                self.content_mut(*inode);
                self.modes.insert(*inode, *mode);
                self.names.link(name, *inode);
            }
            Change::Rename { from, to, inode } => {
                self.content_mut(*inode);
                if from != to {
                    self.names.forget(from);
                }
                self.names.link(to, *inode);
            }
            Change::Unlink { name } => self.names.forget(name),
            Change::CreateFolder { name } => self.names.link_folder(name),
            Change::RemoveFolder { name } => self.names.forget_folder(name),
            Change::Write { inode, .. }
            | Change::Truncate { inode, .. }
            | Change::Punch { inode, .. }
            | Change::Allocate { inode, .. } => change.apply_to(self.content_mut(*inode)),
        }
    }

    /// Forgets names in folders that are gone and contents without a name.
    pub(super) fn remove_orphans(&mut self) {
        self.names.remove_orphans();
        let View {
            names,
            files,
            modes,
        } = self;
        let is_named = |inode: &InodeNumber| names.files().any(|(_, named)| named == inode);
        files.retain(|(inode, _)| is_named(inode));
        modes.retain(|inode, _| is_named(inode));
    }
}

/// A change no sync has covered yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) change: Change,
    /// The folders that must still be synced, for a change of names.
    waits_for: Vec<String>,
}

/// The durable state and the changes on their way to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    pub(super) durable: View,
    pub(super) pending: Vec<Pending>,
    /// The former contents of files that were punched, cut or removed, oldest first: space that is used again may show
    /// it.
    pub(super) ghosts: Vec<SparseBytes>,
}

/// How many former contents are remembered.
const GHOSTS_MAX: usize = 8;

impl Medium {
    /// Makes a medium on which everything is durable.
    pub(super) fn new(durable: View) -> Medium {
        Medium {
            durable,
            ..Medium::default()
        }
    }

    /// Follows one step of a run.
    pub(super) fn follow(&mut self, event: &Event) {
        match event {
            Event::Change(change) => self.pending.push(Pending {
                change: change.clone(),
                waits_for: change.folders(),
            }),
            Event::Sync { inode } => {
                self.settle(|pending| pending.change.content_of() == Some(*inode));
            }
            Event::SyncDirectory { folder } => {
                self.sync_names(folder);
                self.forget_unnamed();
            }
            Event::SyncFailed { inode, seed } => self.fail_sync(*inode, *seed),
            Event::Mark(_) => {}
        }
    }

    /// Makes the pending changes that `is_durable` picks durable, in their order.
    fn settle(&mut self, mut is_durable: impl FnMut(&mut Pending) -> bool) {
        let Medium {
            durable,
            pending,
            ghosts,
        } = self;
        pending.retain_mut(|pending| {
            let settles = is_durable(pending);
            if settles {
                if let Change::Punch { inode, .. } | Change::Truncate { inode, .. } =
                    &pending.change
                {
                    remember(ghosts, durable.content(*inode));
                }
                durable.apply(&pending.change);
            }
            !settles
        });
    }

    /// Makes the changes of names durable that waited for `folder` alone, and with them the earlier ones of the same
    /// names. Later changes of a name never overtake earlier ones.
    fn sync_names(&mut self, folder: &str) {
        let mut names: Vec<String> = Vec::new();
        let mut settles = vec![false; self.pending.len()];
        for (at, pending) in self.pending.iter_mut().enumerate().rev() {
            if pending.waits_for.is_empty() {
                continue;
            }
            pending.waits_for.retain(|waiting| waiting != folder);
            let concerned = pending.change.names();
            let shares = concerned.iter().any(|name| names.iter().any(|n| n == name));
            settles[at] = pending.waits_for.is_empty() || shares;
            if settles[at] {
                names.extend(concerned.into_iter().map(String::from));
            }
        }
        let mut settles = settles.into_iter();
        self.settle(|_| settles.next().expect("one answer each"));
    }

    fn fail_sync(&mut self, inode: InodeNumber, seed: u64) {
        let mut random = Rng::with_seed(seed);
        let is_of = |pending: &Pending| pending.change.content_of() == Some(inode);
        let changes = self.pending.iter().filter(|pending| is_of(pending));
        let changes: Vec<&Change> = changes.map(|pending| &pending.change).collect();
        let content = self.durable.content_mut(inode);
        write_back(content, &changes, BLOCK_BYTES as u64, |_, _| random.bool());
        self.pending.retain(|pending| !is_of(pending));
    }

    /// Forgets contents that no durable name and no pending change leads to.
    fn forget_unnamed(&mut self) {
        let Medium {
            durable,
            pending,
            ghosts,
        } = self;
        let names = &durable.names;
        let is_reachable = |inode: InodeNumber| {
            let is_pending = |pending: &Pending| match &pending.change {
                Change::Create { inode: named, .. } | Change::Rename { inode: named, .. } => {
                    *named == inode
                }
                _ => false,
            };
            names.files().any(|(_, named)| *named == inode) || pending.iter().any(is_pending)
        };
        durable.files.retain(|(inode, content)| {
            let is_kept = is_reachable(*inode);
            if !is_kept {
                remember(ghosts, Some(content));
            }
            is_kept
        });
        let kept: Vec<bool> = pending
            .iter()
            .map(|pending| pending.change.content_of().is_none_or(is_reachable))
            .collect();
        let mut kept = kept.iter();
        pending.retain(|_| *kept.next().expect("one answer each"));
    }
}

fn remember(ghosts: &mut Vec<SparseBytes>, content: Option<&SparseBytes>) {
    if let Some(content) = content.filter(|content| content.allocated_bytes() > 0) {
        if ghosts.len() == GHOSTS_MAX {
            ghosts.remove(0);
        }
        ghosts.push(content.clone());
    }
}
