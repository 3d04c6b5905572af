//! Looking into snapshots: an entry at a path, all entries below it, the difference of two folders, one content.
//!
//! Promises: nothing is restored and nothing changed. A damaged folder is skipped and named. Folders that two snapshots
//! share are not read to compare them.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::{Error, Result};

use super::cipher::Id;
use super::contents::{Chunks, ContentSource};
use super::folder::{Entry, Node, Time};
use super::index::Index;
use super::patterns::PathPatterns;
use super::record::Snapshot;
use super::repair::is_damage;
use super::restore::path_of;
use super::verify::DEPTH_MAX;
use super::writer::Source;
use super::{Vault, fail};

/// Reads folders and contents of snapshots.
pub struct TreeReader {
    chunks: Chunks,
    index: Arc<Index>,
}

/// A place, and the fault there.
type Problem = (PathBuf, String);

impl Clone for TreeReader {
    /// Returns another reader of the same index.
    fn clone(&self) -> TreeReader {
        TreeReader::of_index(self.chunks.another(), &self.index)
    }
}

/// The entries of two folders under one name: at least one of the two.
#[derive(Clone, Debug)]
pub struct EntryPair {
    /// The entry of the first.
    pub before: Option<Entry>,
    /// The entry of the second.
    pub after: Option<Entry>,
}

/// How an entry differs from one of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryChange {
    /// It is only in the second.
    Added,
    /// It is only in the first.
    Removed,
    /// It is of another kind, or points elsewhere.
    Kind,
    /// It has another content.
    Content,
    /// Its mode, owner, time or attributes are others.
    Metadata,
}

/// The folders that lead to the entries meant by patterns.
pub(super) struct Included {
    /// The folders that are not meant, but contain an entry that is.
    pub folders: BTreeSet<Vec<Vec<u8>>>,
    /// The patterns that mean nothing in the snapshot, by their places.
    pub unmatched: BTreeSet<usize>,
    /// The folders that could not be read.
    pub problems: Vec<Problem>,
}

impl Vault {
    /// Opens the vault's snapshots to be looked into.
    ///
    /// # Errors
    /// [`Error::Limit`] if the index takes more than `index_bytes_max`; those of the storage.
    pub fn tree_reader(&self, index_bytes_max: u64) -> Result<TreeReader> {
        Ok(self.tree_reader_of(&Arc::new(self.index(index_bytes_max)?)))
    }

    pub(super) fn tree_reader_of(&self, index: &Arc<Index>) -> TreeReader {
        TreeReader::of_index(Chunks::new(&self.far, &self.keys), index)
    }
}

impl TreeReader {
    pub(super) fn of_index(chunks: Chunks, index: &Arc<Index>) -> TreeReader {
        TreeReader {
            chunks,
            index: Arc::clone(index),
        }
    }

    /// Returns the entries of a folder, by their names; none of an entry that is no folder.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a damaged folder, those of the storage.
    pub fn entries(&mut self, folder: &Entry) -> Result<Vec<Entry>> {
        self.folder(folder_of(folder))
    }

    /// Returns the entry at a path of a snapshot; its root is a folder without a name.
    ///
    /// # Errors
    /// As [`TreeReader::entries`], of a folder on the way.
    pub fn find(&mut self, snapshot: &Snapshot, path: &[u8]) -> Result<Option<Entry>> {
        let mut at = root_of(snapshot);
        let parts = path.split(|byte| *byte == b'/');
        for part in parts.filter(|part| !part.is_empty() && *part != b".") {
            let entries = self.folder(folder_of(&at))?;
            let Ok(found) = entries.binary_search_by(|entry| entry.name[..].cmp(part)) else {
                return Ok(None);
            };
            at = { entries }.swap_remove(found);
        }
        Ok(Some(at))
    }

    /// Returns the entries of a folder, by their names.
    fn folder(&mut self, content: Id) -> Result<Vec<Entry>> {
        match content {
            Id::NONE => Ok(Vec::new()),
            content => self.chunks.folder(&self.index, content),
        }
    }

    /// Hands out all entries below a folder, folders before their entries, each with its path from there. The result of
    /// `visit` says whether to go into a folder. Returns the folders that could not be read, and why.
    ///
    /// # Errors
    /// Those of `visit`, and of a storage that does not answer.
    pub fn walk<E: From<Error>>(
        &mut self,
        folder: &Entry,
        visit: &mut impl FnMut(&[Vec<u8>], &Entry) -> std::result::Result<bool, E>,
    ) -> std::result::Result<Vec<Problem>, E> {
        self.each_pair([Id::NONE, folder_of(folder)], &mut |path, pair| {
            visit(path, pair.after.as_ref().expect("the only one"))
        })
    }

    /// Hands out the differences below two folders, each with its path from there. Returns the folders that could not
    /// be read, and why.
    ///
    /// # Errors
    /// As [`TreeReader::walk`].
    pub fn compare(
        &mut self,
        [before, after]: [&Entry; 2],
        take: &mut impl FnMut(&[Vec<u8>], &EntryPair, EntryChange),
    ) -> Result<Vec<Problem>> {
        self.each_pair([folder_of(before), folder_of(after)], &mut |path, pair| {
            if let Some(change) = pair.change() {
                take(path, pair, change);
            }
            Ok(true)
        })
    }

    /// Hands out the entries below two folders name by name, without folders that are equal in both.
    fn each_pair<E: From<Error>>(
        &mut self,
        folders: [Id; 2],
        visit: &mut impl FnMut(&[Vec<u8>], &EntryPair) -> std::result::Result<bool, E>,
    ) -> std::result::Result<Vec<Problem>, E> {
        let (mut path, mut problems): (Vec<Vec<u8>>, Vec<_>) = Default::default();
        let mut open = vec![self.pairs(folders, &path, &mut problems)?.into_iter()];
        while let Some(pairs) = open.last_mut() {
            let Some(pair) = pairs.next() else {
                open.pop();
                path.pop();
                continue;
            };
            path.push(pair.name().to_vec());
            let below =
                [&pair.before, &pair.after].map(|it| it.as_ref().map_or(Id::NONE, folder_of));
            match visit(&path, &pair)? && below[0] != below[1] {
                true => open.push(self.pairs(below, &path, &mut problems)?.into_iter()),
                false => drop(path.pop()),
            }
        }
        Ok(problems)
    }

    /// Returns the entries of two folders, name by name; nothing if one of them is damaged.
    fn pairs(
        &mut self,
        [before, after]: [Id; 2],
        path: &[Vec<u8>],
        problems: &mut Vec<Problem>,
    ) -> Result<Vec<EntryPair>> {
        let mut problem = |reason| problems.push((path_of(path), reason));
        if path.len() > DEPTH_MAX {
            problem(format!("more than {DEPTH_MAX} folders within each other"));
            return Ok(Vec::new());
        }
        let read = self.folder(before);
        match read.and_then(|before| Ok((before, self.folder(after)?))) {
            Ok((before, after)) => Ok(paired(before, after)),
            Err(error) if is_damage(&error) => {
                problem(error.to_string());
                Ok(Vec::new())
            }
            Err(error) => Err(error),
        }
    }

    /// Finds the entries meant by patterns below a folder.
    pub(super) fn included(
        &mut self,
        folder: Id,
        includes: &PathPatterns,
        excludes: &PathPatterns,
    ) -> Result<Included> {
        let mut folders = BTreeSet::new();
        let mut unmatched: BTreeSet<usize> = (0..includes.count()).collect();
        let problems = self.each_pair::<Error>([Id::NONE, folder], &mut |path, _| {
            if excludes.matches(path) {
                return Ok(false);
            }
            let mut is_meant = false;
            for pattern in includes.matching(path) {
                unmatched.remove(&pattern);
                is_meant = true;
            }
            if is_meant {
                // From the nearest one up to the first known one.
                for length in (1..path.len()).rev() {
                    if !folders.insert(path[..length].to_vec()) {
                        break;
                    }
                }
            }
            // Below an entry that is meant, the other patterns may mean more.
            Ok(includes.may_match_below(path) && !(is_meant && unmatched.is_empty()))
        })?;
        Ok(Included {
            folders,
            unmatched,
            problems,
        })
    }

    /// Opens the content of a file.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an entry that is no file, [`Error::Corrupt`] for a damaged one; those of the storage.
    pub fn open<'r>(&'r mut self, file: &Entry) -> Result<ContentReader<'r>> {
        self.open_content(file, false)
    }

    /// Opens the content of a file of which parts may be lost: they read as zeros, and [`ContentReader::loss`] names
    /// them.
    ///
    /// # Errors
    /// As [`TreeReader::open`], where nothing of it can be read.
    pub fn open_with_gaps<'r>(&'r mut self, file: &Entry) -> Result<ContentReader<'r>> {
        self.open_content(file, true)
    }

    fn open_content<'r>(&'r mut self, file: &Entry, has_gaps: bool) -> Result<ContentReader<'r>> {
        let Node::File {
            size_bytes,
            content,
            ..
        } = file.node
        else {
            return Err(Error::invalid("entry", "it is no file"));
        };
        if size_bytes == 0 {
            return Ok(ContentReader(None));
        }
        let source = match has_gaps {
            true => self.chunks.source_with_gaps(&self.index, content)?,
            false => self.chunks.source(&self.index, content)?,
        };
        match source.raw_bytes() == size_bytes {
            true => Ok(ContentReader(Some(source))),
            false => {
                let found = format!("{} bytes", source.raw_bytes());
                Err(fail("file", 0, format!("{size_bytes} bytes"), found))
            }
        }
    }
}

/// A file of a snapshot, read from its start. The bytes read are that file's when the end was reached without an error.
pub struct ContentReader<'r>(Option<ContentSource<'r>>);

impl ContentReader<'_> {
    /// Names the lost parts of the bytes read so far, if there are any.
    #[must_use]
    pub fn loss(&self) -> Option<String> {
        self.0.as_ref()?.loss()
    }
}

impl Read for ContentReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Some(source) if !buffer.is_empty() => source.read(buffer).map_err(io::Error::other),
            _ => Ok(0),
        }
    }
}

impl EntryPair {
    /// The name.
    pub fn name(&self) -> &[u8] {
        let entry = self.after.as_ref().or(self.before.as_ref());
        &entry.expect("one of the two").name
    }

    /// How they differ, if they do. The entries of a folder are no part of it.
    pub fn change(&self) -> Option<EntryChange> {
        let (before, after) = match (&self.before, &self.after) {
            (Some(before), Some(after)) => (before, after),
            (None, _) => return Some(EntryChange::Added),
            (_, None) => return Some(EntryChange::Removed),
        };
        match (&before.node, &after.node) {
            (Node::Folder { .. }, Node::Folder { .. }) => {}
            (Node::File { content: was, .. }, Node::File { content: is, .. }) if was == is => {}
            (Node::File { .. }, Node::File { .. }) => return Some(EntryChange::Content),
            (was, is) if was == is => {}
            _ => return Some(EntryChange::Kind),
        }
        let metadata = |it: &Entry| (it.mode, it.user, it.group, it.changed);
        let is_same = metadata(before) == metadata(after) && before.attributes == after.attributes;
        (!is_same).then_some(EntryChange::Metadata)
    }
}

/// Returns the content of a folder, none for an entry that is no folder.
fn folder_of(entry: &Entry) -> Id {
    match entry.node {
        Node::Folder { content } => content,
        _ => Id::NONE,
    }
}

fn root_of(snapshot: &Snapshot) -> Entry {
    Entry {
        name: Vec::new(),
        node: Node::Folder {
            content: snapshot.folder,
        },
        mode: 0o755,
        user: 0,
        group: 0,
        changed: Time::default(),
        link_group: 0,
        attributes: Vec::new(),
    }
}

/// Merges the entries of two folders.
fn paired(before: Vec<Entry>, after: Vec<Entry>) -> Vec<EntryPair> {
    let (mut before, mut after) = (before.into_iter().peekable(), after.into_iter().peekable());
    let mut pairs = Vec::with_capacity(after.len());
    while before.peek().is_some() || after.peek().is_some() {
        let first = |it: &Entry| it.name.clone();
        let name = match (before.peek().map(first), after.peek().map(first)) {
            (Some(was), Some(is)) => was.min(is),
            (was, is) => was.or(is).expect("one of the two"),
        };
        pairs.push(EntryPair {
            before: before.next_if(|entry| entry.name == name),
            after: after.next_if(|entry| entry.name == name),
        });
    }
    pairs
}
