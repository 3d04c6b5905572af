//! `breakeven vault ls`, `find` and `diff`: looking into snapshots without restoring them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use breakeven::Error;
use breakeven::vault::{Entry, EntryChange, EntryPair, Id, Node, Snapshot, TreeReader, Vault};
use serde_json::{Value, json};

use super::local_time::local;
use super::options::{
    DiffOptions, FilterOptions, FindOptions, ListingOptions, LsOptions, SnapshotPath,
};
use super::{VaultOptions, filtered, partial, patterns, resolve};
use crate::standard;
use breakeven::quoted::quoted_bytes;

/// Bytes that are gathered before they are printed.
const PRINTED_BYTES: usize = 64 << 10;

/// Lines of a report of any length, written as they come.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn line(&mut self, text: &str) {
        self.put(&[text.as_bytes(), b"\n"].concat());
    }

    fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        if self.0.len() >= PRINTED_BYTES {
            standard::print(std::mem::take(&mut self.0));
        }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        standard::print(std::mem::take(&mut self.0));
    }
}

pub fn ls(options: &VaultOptions, vault: &Vault, ls: &LsOptions) -> Result<ExitCode> {
    let (epoch, snapshot) = resolve(vault, &ls.snapshot, &ls.filter)?;
    let mut tree = reader(options, vault)?;
    let top = found(&mut tree, epoch, &snapshot, &ls.snapshot.path)?;
    let mut lines = Lines::default();
    let mut print = |path: &[Vec<u8>], entry: &Entry| {
        print_entry(
            &mut lines,
            options,
            &ls.listing,
            &Located {
                epoch,
                prefix: b"",
                path,
                entry,
            },
        );
    };
    let problems = match &top.node {
        Node::Folder { .. } => tree.walk::<Error>(&top, &mut |path, entry| {
            print(path, entry);
            Ok(true)
        })?,
        _ => {
            print(std::slice::from_ref(&top.name), &top);
            Vec::new()
        }
    };
    drop(lines);
    Ok(partial(&problems))
}

pub fn find(options: &VaultOptions, vault: &Vault, find: &FindOptions) -> Result<ExitCode> {
    let wanted = patterns(&find.patterns);
    let mut barren = BTreeSet::new();
    let (mut lines, mut problems) = (Lines::default(), Vec::new());
    let mut tree = reader(options, vault)?;
    for (epoch, snapshot, path) in looked_into(vault, find)? {
        let top = found(&mut tree, epoch, &snapshot, &path)?;
        let mut prefix = path.strip_suffix(b"/").unwrap_or(&path).to_vec();
        if !prefix.is_empty() && !prefix.starts_with(b"/") {
            prefix.insert(0, b'/');
        }
        let mut open: Vec<OpenFolder> = Vec::new();
        let visited = tree.walk::<Error>(&top, &mut |path, entry| {
            close(&mut open, path.len(), &mut barren);
            let located = Located {
                epoch,
                prefix: &prefix,
                path,
                entry,
            };
            if wanted.matches(path) {
                open.iter_mut().for_each(|folder| folder.has_any = true);
                print_entry(&mut lines, options, &find.listing, &located);
            }
            let Node::Folder { content } = entry.node else {
                return Ok(false);
            };
            let key = (content, hash_of(path));
            let goes_down = wanted.may_match_below(path) && !barren.contains(&key);
            if goes_down {
                open.push(OpenFolder {
                    depth: path.len(),
                    key,
                    has_any: false,
                });
            }
            Ok(goes_down)
        })?;
        // A folder that could not be read may hold a match.
        if visited.is_empty() {
            close(&mut open, 0, &mut barren);
        }
        problems.extend(visited);
    }
    drop(lines);
    Ok(partial(&problems))
}

/// A folder by its content and its path, in any snapshot.
type FolderKey = (Id, u64);

/// A folder that is looked into.
struct OpenFolder {
    depth: usize,
    key: FolderKey,
    has_any: bool,
}

/// Remembers closed folders without a match.
fn close(open: &mut Vec<OpenFolder>, depth: usize, barren: &mut BTreeSet<FolderKey>) {
    while let Some(folder) = open.pop_if(|folder| folder.depth >= depth) {
        if !folder.has_any {
            barren.insert(folder.key);
        }
    }
}

fn hash_of(path: &[Vec<u8>]) -> u64 {
    let mut hasher = DefaultHasher::new();
    path.hash(&mut hasher);
    hasher.finish()
}

/// Returns the snapshots to look into, newest first, each with the path in it.
fn looked_into(vault: &Vault, find: &FindOptions) -> Result<Vec<(u64, Snapshot, Vec<u8>)>> {
    if find.snapshot.is_empty() {
        let snapshots = filtered(vault, &find.filter)?.into_iter().rev();
        return Ok(snapshots
            .map(|(epoch, snapshot)| (epoch, snapshot, b"/".to_vec()))
            .collect());
    }
    let resolved = find.snapshot.iter().map(|typed| {
        let (epoch, snapshot) = resolve(vault, typed, &find.filter)?;
        Ok((epoch, snapshot, typed.path.clone()))
    });
    resolved.collect()
}

pub fn diff(options: &VaultOptions, vault: &Vault, diff: &DiffOptions) -> Result<ExitCode> {
    let mut tree = reader(options, vault)?;
    let mut top = |typed: &SnapshotPath| {
        let (epoch, snapshot) = resolve(vault, typed, &FilterOptions::default())?;
        let top = found(&mut tree, epoch, &snapshot, &typed.path)?;
        match &top.node {
            Node::Folder { .. } => Ok(top),
            _ => bail!("{} is no folder", shown(&typed.path)),
        }
    };
    let tops = [top(&diff.before)?, top(&diff.after)?];
    let mut lines = Lines::default();
    let mut counts: BTreeMap<char, u64> = BTreeMap::new();
    let problems = tree.compare([&tops[0], &tops[1]], &mut |path, pair, change| {
        let letter = letter_of(change);
        *counts.entry(letter).or_default() += 1;
        if change != EntryChange::Metadata || diff.metadata {
            let line = change_line(options, path, pair, letter);
            lines.line(&line);
        }
    })?;
    if !options.json {
        let count = |letter| counts.get(&letter).copied().unwrap_or(0);
        lines.line(&format!(
            "{} new, {} gone, {} of another content, {} of another kind, {} with only other metadata",
            count('+'),
            count('-'),
            count('M'),
            count('T'),
            count('U')
        ));
    }
    drop(lines);
    Ok(partial(&problems))
}

fn letter_of(change: EntryChange) -> char {
    match change {
        EntryChange::Added => '+',
        EntryChange::Removed => '-',
        EntryChange::Content => 'M',
        EntryChange::Kind => 'T',
        EntryChange::Metadata => 'U',
    }
}

fn change_line(options: &VaultOptions, path: &[Vec<u8>], pair: &EntryPair, letter: char) -> String {
    let path = joined(b"", path);
    if options.json {
        let sides = [&pair.before, &pair.after].map(|it| it.as_ref().map(entry_facts));
        return json!({ "path": String::from_utf8_lossy(&path), "change": letter.to_string(), "before": sides[0], "after": sides[1] })
            .to_string();
    }
    let entry = pair.after.as_ref().or(pair.before.as_ref());
    let is_folder = entry.is_some_and(|it| matches!(it.node, Node::Folder { .. }));
    format!(
        "{letter}    {}{}",
        shown(&path),
        if is_folder { "/" } else { "" }
    )
}

/// An entry and where it was found.
struct Located<'e> {
    epoch: u64,
    /// The folder of the snapshot from which the path leads.
    prefix: &'e [u8],
    path: &'e [Vec<u8>],
    entry: &'e Entry,
}

/// Prints an entry of `ls`, or of `find`, which says the snapshot as well.
fn print_entry(lines: &mut Lines, options: &VaultOptions, listing: &ListingOptions, it: &Located) {
    let path = joined(it.prefix, it.path);
    let is_find = matches!(options.command, super::VaultCommand::Find(_));
    if options.json {
        let mut facts = entry_facts(it.entry);
        facts["path"] = String::from_utf8_lossy(&path).into();
        facts["snapshot"] = it.epoch.into();
        return lines.line(&facts.to_string());
    }
    let path = match is_find {
        true => [format!("{}:", it.epoch).as_bytes(), &path].concat(),
        false => path,
    };
    if listing.null {
        return lines.put(&[&path[..], b"\0"].concat());
    }
    let mut line = match listing.long {
        true => long(it.entry),
        false => String::new(),
    };
    line += &shown(&path);
    if let (Node::Link { target }, true) = (&it.entry.node, listing.long) {
        line += &format!(" -> {}", shown(target));
    }
    lines.line(&line);
}

fn long(entry: &Entry) -> String {
    format!(
        "{} {:>5} {:>5} {:>12} {} ",
        mode_text(entry),
        entry.user,
        entry.group,
        size_of(entry),
        local(entry.changed)
    )
}

/// Returns kind and mode as `ls -l` has them.
fn mode_text(entry: &Entry) -> String {
    let mut text = String::from(match entry.node {
        Node::File { .. } => '-',
        Node::Folder { .. } => 'd',
        Node::Link { .. } => 'l',
        Node::Pipe => 'p',
        Node::Socket => 's',
        Node::CharacterDevice { .. } => 'c',
        Node::BlockDevice { .. } => 'b',
    });
    for (shift, special, letters) in [(6, 0o4000, "sS"), (3, 0o2000, "sS"), (0, 0o1000, "tT")] {
        let bits = entry.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (entry.mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, runs) => letters.as_bytes()[usize::from(!runs)].into(),
        });
    }
    text
}

fn size_of(entry: &Entry) -> u64 {
    match &entry.node {
        Node::File { size_bytes, .. } => *size_bytes,
        _ => 0,
    }
}

fn entry_facts(entry: &Entry) -> Value {
    let kind = match &entry.node {
        Node::File { .. } => "file",
        Node::Folder { .. } => "dir",
        Node::Link { .. } => "symlink",
        Node::Pipe => "fifo",
        Node::Socket => "socket",
        Node::CharacterDevice { .. } => "chardev",
        Node::BlockDevice { .. } => "dev",
    };
    let mut facts = json!({
        "type": kind, "mode": entry.mode, "uid": entry.user, "gid": entry.group, "bytes": size_of(entry),
        "seconds": entry.changed.seconds, "nanoseconds": entry.changed.nanoseconds,
    });
    if let Node::Link { target } = &entry.node {
        facts["target"] = String::from_utf8_lossy(target).into();
    }
    facts
}

pub(super) fn reader(options: &VaultOptions, vault: &Vault) -> Result<TreeReader> {
    Ok(vault.tree_reader(options.index_memory << 20)?)
}

pub(super) fn found(
    tree: &mut TreeReader,
    epoch: u64,
    snapshot: &Snapshot,
    path: &[u8],
) -> Result<Entry> {
    let found = tree.find(snapshot, path)?;
    found.with_context(|| format!("there is no {} in snapshot {epoch}", shown(path)))
}

/// Returns names as the path that they make.
fn joined(prefix: &[u8], names: &[Vec<u8>]) -> Vec<u8> {
    let mut path = prefix.to_vec();
    for name in names {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

pub(super) fn shown(path: &[u8]) -> String {
    quoted_bytes(path).to_string()
}
