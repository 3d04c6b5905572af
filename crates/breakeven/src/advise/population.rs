//! The population: the bytes to advise on.
//!
//! Walks the named paths once, in random order and within a time limit. It cuts the files into *clusters* of about one
//! mebibyte: a piece of a large file, or some small files. Small files are dealt out like cards by their kind and size,
//! so that each such cluster resembles all of them. Large files of one kind lie side by side. Sampling draws clusters,
//! so that every byte has nearly the same chance. Links are not followed below a named path. Pipes, sockets and devices
//! are counted and skipped. A sparse file counts only with the bytes that it really holds. The walk reads only names
//! and sizes.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::quoted::quoted;

/// The size of a cluster and of the largest sample block, in bytes.
pub const CLUSTER_BYTES: u64 = 1 << 20;

/// The most files in the population; the rest is reported as uncovered.
const FILES_MAX: usize = 1_000_000;

/// The most data segments of a sparse file that are read.
const SEGMENTS_MAX: usize = 4096;

/// Random descents to weigh the folders that the walk did not reach.
const DESCENTS: usize = 200;

/// The source of an item's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A file.
    File {
        /// Index of its folder.
        folder: u32,
        /// Its name there.
        name: OsString,
    },
    /// Zeros, made when read.
    Zeros,
    /// Random bytes, made when read.
    Random {
        /// The seed of the default data.
        seed: u64,
    },
}

/// One file, or one generated run of bytes.
#[derive(Clone, Debug)]
pub struct Item {
    /// Where its bytes come from.
    pub content: Content,
    /// The bytes it holds, holes excluded.
    pub bytes: u64,
    /// Its length, holes included; equal to `bytes` unless sparse.
    pub length: u64,
    /// The name of its group, for labelled data (the embedded default).
    pub label: Option<&'static str>,
}

impl Item {
    /// Returns whether it shares a cluster with others.
    fn is_small(&self) -> bool {
        self.bytes < CLUSTER_BYTES / 2
    }
}

/// A piece of one item, which is read and compressed as one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index of the item.
    pub item: u32,
    /// Its start in the item.
    pub offset: u64,
    /// Its length.
    pub bytes: u32,
}

/// The skipped entries, with the reasons.
#[derive(Clone, Debug, Default)]
pub struct Skipped {
    /// Symbolic links below the named paths.
    pub links: u64,
    /// Pipes, sockets and devices.
    pub special: u64,
    /// Files and folders that could not be read.
    pub unreadable: u64,
    /// The first of these paths, with their errors.
    pub unreadable_examples: Vec<String>,
    /// Further names of files that were already counted.
    pub hard_links: u64,
    /// Empty files.
    pub empty: u64,
    /// Bytes of holes in sparse files.
    pub hole_bytes: u64,
}

/// The bytes to advise on, cut into clusters.
#[derive(Default)]
pub struct Population {
    folders: Vec<PathBuf>,
    items: Vec<Item>,
    /// First cluster of each span, ascending, one entry a span.
    span_first_cluster: Vec<u64>,
    spans: Vec<Span>,
    cluster_count: u64,
    bytes: u64,
    /// The entries passed over.
    pub skipped: Skipped,
    /// Device and number of files with several names.
    several_names: HashSet<(u64, u64)>,
    /// Device and number of folders that were looked into.
    looked_into: HashSet<(u64, u64)>,
    /// Estimated bytes under folders that the time did not allow.
    pub uncovered_bytes: u64,
}

/// A run of clusters.
#[derive(Clone, Copy, Debug)]
enum Span {
    /// One large item, cut into `CLUSTER_BYTES`.
    Large { item: u32 },
    /// The items from `first` on, whole: every `clusters`-th of them in one cluster.
    Small { first: u32, clusters: u32 },
}

impl Population {
    /// Walks `paths` for at most `time_limit`, in an order drawn from `seed`.
    ///
    /// # Errors
    /// A named path that is missing, not permitted, or neither file nor folder; an empty result.
    pub fn walk(paths: &[PathBuf], time_limit: Duration, seed: u64) -> Result<Population> {
        let mut population = Population::default();
        let mut random = fastrand::Rng::with_seed(seed);
        let deadline = Instant::now() + time_limit;
        let mut frontier = Vec::new();
        for path in paths {
            // The user named this path, so a link is followed here and nowhere else.
            let metadata = fs::metadata(path).map_err(|error| Error::io("look at", path, error))?;
            if metadata.is_dir() {
                fs::read_dir(path).map_err(|error| Error::io("list", path, error))?;
                frontier.push(path.clone());
            } else if metadata.is_file() {
                fs::File::open(path).map_err(|error| Error::io("open", path, error))?;
                let parent = path.parent().unwrap_or(Path::new("")).to_path_buf();
                let folder = population.add_folder(parent);
                let name = path.file_name().unwrap_or(path.as_os_str()).to_os_string();
                population.add_file(folder, name, &metadata);
            } else if let Some(kind) = special_kind(&metadata) {
                return Err(Error::invalid(
                    "path",
                    format!("{} is a {kind}, not a file or folder", quoted(&path)),
                ));
            }
        }
        while !frontier.is_empty() {
            if Instant::now() > deadline || population.items.len() >= FILES_MAX {
                population.weigh_frontier(&frontier, &mut random, deadline + time_limit / 4);
                break;
            }
            let folder = frontier.swap_remove(random.usize(..frontier.len()));
            let (_, left_bytes) = population.look_into(&folder, &mut frontier);
            population.uncovered_bytes += left_bytes;
        }
        population.finish()
    }

    /// Makes a population of gathered items, with their folders.
    pub fn from_items(folders: Vec<PathBuf>, items: Vec<Item>) -> Result<Population> {
        Population {
            folders,
            items,
            ..Population::default()
        }
        .finish()
    }

    /// Returns the bytes the clusters hold together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns how many clusters there are.
    pub fn cluster_count(&self) -> u64 {
        self.cluster_count
    }

    /// Returns how many files and generated items there are.
    pub fn item_count(&self) -> usize {
        self.items.len()
    }

    /// Returns one item.
    pub fn item(&self, index: u32) -> &Item {
        &self.items[index as usize]
    }

    /// Returns the path of an item that is a file.
    pub fn path(&self, item: &Item) -> Option<PathBuf> {
        match &item.content {
            Content::File { folder, name } => Some(self.folders[*folder as usize].join(name)),
            Content::Zeros | Content::Random { .. } => None,
        }
    }

    /// Returns the pieces of one cluster, into `pieces`.
    ///
    /// # Panics
    /// When `cluster` is not below [`Population::cluster_count`].
    pub fn pieces(&self, cluster: u64, pieces: &mut Vec<Piece>) {
        assert!(
            cluster < self.cluster_count,
            "cluster {cluster} of {}",
            self.cluster_count
        );
        pieces.clear();
        let span = self
            .span_first_cluster
            .partition_point(|first| *first <= cluster)
            - 1;
        match self.spans[span] {
            Span::Large { item } => {
                let offset = (cluster - self.span_first_cluster[span]) * CLUSTER_BYTES;
                let bytes = CLUSTER_BYTES.min(self.item(item).bytes - offset) as u32;
                pieces.push(Piece {
                    item,
                    offset,
                    bytes,
                });
            }
            Span::Small { first, clusters } => {
                let hand = first + (cluster - self.span_first_cluster[span]) as u32;
                for item in (hand..self.items.len() as u32).step_by(clusters as usize) {
                    let bytes = self.item(item).bytes as u32;
                    pieces.push(Piece {
                        item,
                        offset: 0,
                        bytes,
                    });
                }
            }
        }
    }

    /// Returns the files that share clusters in the order of an archiver: folder by folder, name by name.
    pub fn small_files(&self) -> Vec<u32> {
        let mut folders: Vec<usize> = (0..self.folders.len()).collect();
        folders.sort_by_key(|&folder| &self.folders[folder]);
        let mut places = vec![0; folders.len()];
        for (place, folder) in folders.into_iter().enumerate() {
            places[folder] = place;
        }
        let place = |index: u32| match &self.item(index).content {
            Content::File { folder, name } => Some((places[*folder as usize], name)),
            Content::Zeros | Content::Random { .. } => None,
        };
        let is_small_file = |index: &u32| self.item(*index).is_small() && place(*index).is_some();
        let items = 0..self.items.len() as u32;
        let mut files: Vec<u32> = items.filter(is_small_file).collect();
        files.sort_by_key(|&index| place(index));
        files
    }

    /// Reads a piece; returns the bytes read, fewer if the file shrank, vanished or is not
    /// readable.
    pub fn read(&self, piece: &Piece, target: &mut [u8]) -> usize {
        let item = self.item(piece.item);
        match &item.content {
            Content::Zeros => {
                target.fill(0);
                target.len()
            }
            Content::Random { seed } => {
                fastrand::Rng::with_seed(seed.wrapping_add(piece.offset)).fill(target);
                target.len()
            }
            Content::File { .. } => {
                let path = self.path(item).expect("a file has a path");
                let Ok(file) = open_regular(&path) else {
                    return 0;
                };
                if item.length > item.bytes {
                    read_data(&file, target, piece.offset)
                } else {
                    read_up_to(&file, target, piece.offset)
                }
            }
        }
    }

    fn add_folder(&mut self, path: PathBuf) -> u32 {
        self.folders.push(path);
        u32::try_from(self.folders.len() - 1).expect("fewer than 2^32 folders")
    }

    fn add_file(&mut self, folder: u32, name: OsString, metadata: &Metadata) {
        let file = (metadata.dev(), metadata.ino());
        if metadata.nlink() > 1 && !self.several_names.insert(file) {
            self.skipped.hard_links += 1;
            return;
        }
        let length = metadata.len();
        let allocated = metadata.blocks().saturating_mul(512);
        // Small files may live in the inode with no block at all: those are not holes.
        let bytes = if length > allocated && length > CLUSTER_BYTES {
            // Blocks reach past the end of the file, and some hold nothing yet.
            let file = open_regular(&self.folders[folder as usize].join(&name));
            file.map_or(allocated, |file| data_bytes(&file).min(length))
        } else {
            length
        };
        self.skipped.hole_bytes += length - bytes;
        if bytes == 0 {
            self.skipped.empty += u64::from(length == 0);
            return;
        }
        let content = Content::File { folder, name };
        self.items.push(Item {
            content,
            bytes,
            length,
            label: None,
        });
    }

    /// Adds the entries of a folder, once, however often it is named. Returns the bytes of the added files, and of
    /// files without a place.
    fn look_into(&mut self, path: &Path, frontier: &mut Vec<PathBuf>) -> (u64, u64) {
        let first = self.items.len();
        let left_bytes = self
            .look_at_entries(path, frontier)
            .unwrap_or_else(|error| {
                self.unreadable(path, &error);
                0
            });
        let added = self.items[first..].iter().map(|item| item.bytes);
        (added.sum(), left_bytes)
    }

    fn look_at_entries(
        &mut self,
        path: &Path,
        frontier: &mut Vec<PathBuf>,
    ) -> std::io::Result<u64> {
        let mut left_bytes = 0;
        let metadata = fs::metadata(path)?;
        if !self.looked_into.insert((metadata.dev(), metadata.ino())) {
            return Ok(0);
        }
        let entries = fs::read_dir(path)?;
        let folder = self.add_folder(path.to_path_buf());
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.unreadable(path, &error);
                    break;
                }
            };
            match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => frontier.push(entry.path()),
                Ok(metadata) if metadata.is_file() => {
                    if self.items.len() < FILES_MAX {
                        self.add_file(folder, entry.file_name(), &metadata);
                    } else {
                        left_bytes += metadata.len();
                    }
                }
                Ok(metadata) if metadata.is_symlink() => self.skipped.links += 1,
                Ok(_) => self.skipped.special += 1,
                // A file that vanished after the listing does not count.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => self.unreadable(&entry.path(), &error),
            }
        }
        Ok(left_bytes)
    }

    fn unreadable(&mut self, path: &Path, error: &std::io::Error) {
        self.skipped.unreadable += 1;
        if self.skipped.unreadable_examples.len() < 5 {
            self.skipped
                .unreadable_examples
                .push(format!("{}: {error}", quoted(&path)));
        }
    }

    /// Estimates the bytes below the remaining folders, and adds the files found on the way to the population. It uses
    /// random descents with the product of the branchings passed as their weight (Knuth 1975, "Estimating the
    /// efficiency of backtrack programs").
    fn weigh_frontier(
        &mut self,
        frontier: &[PathBuf],
        random: &mut fastrand::Rng,
        deadline: Instant,
    ) {
        let mut descents = 0u64;
        let (mut weighted_bytes, mut added_bytes) = (0.0, 0);
        // The files in a folder, and the folders below it, for further descents through it.
        let mut known: HashMap<PathBuf, (u64, Vec<PathBuf>)> = HashMap::new();
        while descents < DESCENTS as u64 && Instant::now() < deadline {
            descents += 1;
            let mut weight = frontier.len() as f64;
            let mut folder = frontier[random.usize(..frontier.len())].clone();
            loop {
                let (found, children) = known.entry(folder).or_insert_with_key(|folder| {
                    let mut children = Vec::new();
                    let (added, left) = self.look_into(folder, &mut children);
                    added_bytes += added;
                    (added + left, children)
                });
                weighted_bytes += weight * *found as f64;
                if children.is_empty() {
                    break;
                }
                weight *= children.len() as f64;
                folder = children[random.usize(..children.len())].clone();
            }
        }
        let below_bytes = (weighted_bytes / descents.max(1) as f64) as u64;
        self.uncovered_bytes += below_bytes.saturating_sub(added_bytes);
    }

    /// Cuts the items into clusters: large items first, then runs of small ones.
    fn finish(mut self) -> Result<Population> {
        self.items.retain(|item| item.bytes > 0);
        if self.items.is_empty() {
            return Err(Error::invalid("data", self.why_empty()));
        }
        // Items of at least half a cluster are cut alone; the others share clusters. Names show likeness.
        self.items.sort_by_cached_key(|item| {
            let extension = match &item.content {
                Content::File { name, .. } => Path::new(name).extension().map(OsStr::to_os_string),
                Content::Zeros | Content::Random { .. } => None,
            };
            (item.is_small(), item.label, extension, item.bytes)
        });
        self.bytes = self.items.iter().map(|item| item.bytes).sum();
        let large = self.items.partition_point(|item| !item.is_small());
        for index in 0..large {
            let clusters = self.items[index].bytes.div_ceil(CLUSTER_BYTES);
            self.push_span(Span::Large { item: index as u32 }, clusters);
        }
        let small_bytes: u64 = self.items[large..].iter().map(|item| item.bytes).sum();
        let clusters = small_bytes.div_ceil(CLUSTER_BYTES);
        if clusters > 0 {
            let first = large as u32;
            let hands = u32::try_from(clusters).expect("no more than there are items");
            self.push_span(
                Span::Small {
                    first,
                    clusters: hands,
                },
                clusters,
            );
        }
        Ok(self)
    }

    /// Returns the reason why there is nothing to advise on.
    fn why_empty(&self) -> String {
        let Skipped {
            hole_bytes,
            unreadable,
            empty,
            ..
        } = self.skipped;
        let why = match (unreadable, hole_bytes, empty) {
            (0, 0, 0) => "no file was found".to_string(),
            (0, 0, empty) => format!("{empty} files, all empty"),
            (0, hole_bytes, _) => {
                format!("{hole_bytes} bytes, all of them holes, which take no space already")
            }
            (unreadable, ..) => format!("{unreadable} files or folders could not be read"),
        };
        format!("no bytes to advise on: {why}")
    }

    fn push_span(&mut self, span: Span, clusters: u64) {
        self.span_first_cluster.push(self.cluster_count);
        self.spans.push(span);
        self.cluster_count += clusters;
    }
}

/// Returns the kind of an entry that is neither a file nor a folder.
pub fn special_kind(metadata: &Metadata) -> Option<&'static str> {
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_dir() {
        None
    } else if kind.is_fifo() {
        Some("named pipe")
    } else if kind.is_socket() {
        Some("socket")
    } else if kind.is_block_device() {
        Some("block device")
    } else if kind.is_char_device() {
        Some("character device")
    } else {
        Some("special file")
    }
}

/// Opens a path that is still a regular file, and never blocks on a pipe in its place.
fn open_regular(path: &std::path::Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let file = File::options()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(std::io::Error::from(std::io::ErrorKind::InvalidInput))
    }
}

fn read_up_to(file: &File, target: &mut [u8], offset: u64) -> usize {
    let mut read = 0;
    while read < target.len() {
        match file.read_at(&mut target[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    read
}

/// The runs of data in a sparse file: start and end of each.
fn data_runs(file: &File) -> impl Iterator<Item = (u64, u64)> + '_ {
    crate::storage::images::data_runs(file).take(SEGMENTS_MAX)
}

/// Bytes of data in a sparse file, without its holes.
fn data_bytes(file: &File) -> u64 {
    data_runs(file).map(|(start, end)| end - start).sum()
}

/// Reads a sparse file from its `position`-th byte of data on, skipping the holes.
fn read_data(file: &File, target: &mut [u8], position: u64) -> usize {
    let (mut passed, mut read) = (0, 0);
    for (start, end) in data_runs(file) {
        let skipped = (position + read as u64 - passed).min(end - start);
        passed += end - start;
        let left = (end - start - skipped).min((target.len() - read) as u64) as usize;
        let found = read_up_to(file, &mut target[read..read + left], start + skipped);
        read += found;
        if found < left || read == target.len() {
            break;
        }
    }
    read
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    const LIMIT: Duration = Duration::from_secs(30);

    fn folder_with(files: &[(&str, usize)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (name, bytes) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a subfolder");
            fs::write(path, vec![7u8; *bytes]).expect("a file");
        }
        folder
    }

    #[test]
    fn every_byte_is_in_exactly_one_piece() {
        let mib = CLUSTER_BYTES as usize;
        let folder = folder_with(&[
            ("large", 3 * mib + 5),
            ("half", mib / 2),
            ("a/small1", 1000),
            ("a/small2", 400_000),
            ("b/small3", 500_000),
            ("b/small4", 200_000),
            ("empty", 0),
        ]);
        let population = Population::walk(&[folder.path().into()], LIMIT, 1).expect("a walk");
        assert_eq!(
            population.bytes() as usize,
            3 * mib + 5 + mib / 2 + 1_101_000
        );
        assert_eq!(population.skipped.empty, 1);
        let mut covered = vec![0u64; population.item_count()];
        let mut pieces = Vec::new();
        for cluster in 0..population.cluster_count() {
            population.pieces(cluster, &mut pieces);
            let bytes: u64 = pieces.iter().map(|piece| u64::from(piece.bytes)).sum();
            assert!((1..=CLUSTER_BYTES).contains(&bytes));
            for piece in &pieces {
                assert_eq!(piece.offset, covered[piece.item as usize]);
                covered[piece.item as usize] += u64::from(piece.bytes);
            }
        }
        for (index, bytes) in covered.iter().enumerate() {
            assert_eq!(*bytes, population.item(index as u32).bytes);
        }
    }

    #[test]
    fn links_pipes_and_holes_are_counted_not_followed() {
        let folder = folder_with(&[("a/file", 10)]);
        symlink(folder.path(), folder.path().join("a/loop")).expect("a link");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("a pipe");
        let sparse = fs::File::create(folder.path().join("sparse")).expect("a file");
        sparse.set_len(1 << 42).expect("a hole of 4 TiB");
        let population = Population::walk(&[folder.path().into()], LIMIT, 1).expect("a walk");
        assert_eq!(
            (population.skipped.links, population.skipped.special),
            (1, 1)
        );
        assert_eq!(population.bytes(), 10);
        assert_eq!(population.skipped.hole_bytes, 1 << 42);
        let error = Population::walk(&[pipe], LIMIT, 1)
            .err()
            .expect("a pipe is refused");
        assert!(error.to_string().contains("named pipe"), "{error}");
    }

    #[test]
    fn a_file_of_several_names_counts_once() {
        let folder = folder_with(&[("a/file", 1000), ("other", 10)]);
        for name in ["second", "a/third"] {
            let name = folder.path().join(name);
            fs::hard_link(folder.path().join("a/file"), name).expect("a hard link");
        }
        let population = Population::walk(&[folder.path().into()], LIMIT, 1).expect("a walk");
        assert_eq!((population.bytes(), population.item_count()), (1010, 2));
        assert_eq!(population.skipped.hard_links, 2);
    }

    #[test]
    fn a_missing_or_empty_path_is_named() {
        let error = Population::walk(&["/no/such/path".into()], LIMIT, 1)
            .err()
            .expect("missing");
        assert!(error.to_string().contains("/no/such/path"), "{error}");
        let folder = folder_with(&[("empty", 0)]);
        assert!(Population::walk(&[folder.path().into()], LIMIT, 1).is_err());
    }

    #[test]
    fn a_tree_without_time_is_weighed_by_descents() {
        let names: Vec<String> = (0..64).map(|n| format!("f{}/g{}/file", n / 8, n)).collect();
        let files: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 1000)).collect();
        let folder = folder_with(&files);
        let mut population = Population::default();
        let mut random = fastrand::Rng::with_seed(3);
        let frontier = vec![folder.path().to_path_buf()];
        population.weigh_frontier(&frontier, &mut random, Instant::now() + LIMIT);
        // The tree is regular, so every descent sees the same weight.
        let added_bytes: u64 = population.items.iter().map(|item| item.bytes).sum();
        assert_eq!(population.uncovered_bytes + added_bytes, 64_000);
        // No file occurs twice, even if descents repeat a folder.
        let mut paths: Vec<_> = population
            .items
            .iter()
            .map(|item| population.path(item))
            .collect();
        let count = paths.len();
        paths.sort();
        paths.dedup();
        assert!(paths.len() == count && count > 0, "{count}");
    }

    #[test]
    fn data_between_holes_is_read_and_nothing_past_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("sparse");
        let file = fs::File::create(&path).expect("a file");
        let end = 3 * CLUSTER_BYTES;
        file.write_all_at(&[b'a'; 8192], 0).expect("data");
        // The last block is not full.
        file.write_all_at(&[b'b'; 100], end).expect("data");
        let population = Population::walk(std::slice::from_ref(&path), LIMIT, 1).expect("a walk");
        let mut pieces = Vec::new();
        population.pieces(0, &mut pieces);
        let mut found = vec![0; pieces[0].bytes as usize];
        assert_eq!(population.read(&pieces[0], &mut found), found.len());
        if population.bytes() == 8292 {
            // This file system has holes.
            assert!(found[..8192].iter().all(|byte| *byte == b'a'));
            assert_eq!(found[8192..], [b'b'; 100]);
        }
        assert_eq!(
            population.bytes() + population.skipped.hole_bytes,
            end + 100
        );
    }

    #[test]
    fn holes_are_passed_over() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("sparse");
        let file = File::create(&path).expect("a file");
        let data = vec![0x5a; 2 << 20];
        file.write_all_at(&data, 1 << 40)
            .expect("data after a hole of a TiB");
        let population = Population::walk(std::slice::from_ref(&path), LIMIT, 1).expect("a walk");
        assert!(population.bytes() < 3 << 20, "{}", population.bytes());
        let mut pieces = Vec::new();
        population.pieces(1, &mut pieces);
        let mut target = vec![0; pieces[0].bytes as usize];
        assert_eq!(population.read(&pieces[0], &mut target), target.len());
        assert!(target.iter().all(|byte| *byte == 0x5a));
    }
}
