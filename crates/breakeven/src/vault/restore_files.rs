//! Making the files of a restore, batch by batch, in threads of the pool.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::storage::{closing, is_zero};

use super::cipher::Id;
use super::contents::{Chunks, Piece};
use super::folder::{Entry, Node};
use super::index::Index;
use super::metadata::{HeldInode, MetadataOptions};
use super::repair::is_damage;
use super::restore::{FOLDER_FLAGS, io, make_named, path_of};
use super::writer::Source;

/// Decoding a shorter content again is faster than opening another file.
const CLONE_BYTES_LEAST: u64 = 64 << 10;
/// As much as most frames hold.
const GAPS_BUFFER_BYTES: usize = 1 << 20;
/// Contents whose first file is remembered: some 150 bytes each.
const CLONES_MAX: usize = 1 << 16;

const FILE_FLAGS: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
pub(super) const FIRST_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

/// A folder that is restored, and where it lies below the target.
pub(super) struct Place {
    pub folder: Arc<OwnedFd>,
    pub path: Vec<Vec<u8>>,
}

/// A file that is to be made.
pub(super) struct FileJob {
    pub place: Arc<Place>,
    pub entry: Entry,
}

/// Some files that are made one after another.
#[derive(Default)]
pub(super) struct Batch {
    pub files: Vec<FileJob>,
    pub size_bytes: u64,
}

/// The outcome of a batch; paths are below the target.
#[derive(Default)]
pub(super) struct Made {
    pub files: u64,
    pub bytes: u64,
    pub torn_files: u64,
    pub problems: Vec<(PathBuf, String)>,
    /// The groups of hard links whose first name was made, and which file that is.
    pub linked: Vec<(u64, Inode)>,
}

/// Device and inode.
pub(super) type Inode = (u64, u64);

pub(super) fn inode_of(status: &Stat) -> Inode {
    (status.st_dev, status.st_ino)
}

/// Why a file was not made.
enum Failure {
    /// The fault of this one.
    File(Error),
    /// The far end does not answer, and would not for the next one.
    FarEnd(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::File(error)
    }
}

/// The first file made of a content, and the facts that show that nobody has changed it since.
#[derive(Clone)]
struct First {
    path: Vec<Vec<u8>>,
    state: FileState,
}

pub(super) type FileState = (u64, u64, i64, i64, u64);

pub(super) fn state_of(status: &Stat) -> FileState {
    let changed = (status.st_ctime, status.st_ctime_nsec as i64);
    (
        status.st_dev,
        status.st_ino,
        changed.0,
        changed.1,
        status.st_size as u64,
    )
}

/// The state that all threads which make files share.
pub(super) struct Files {
    index: Arc<Index>,
    root: Arc<OwnedFd>,
    replaces: bool,
    metadata: MetadataOptions,
    firsts: Mutex<BTreeMap<Id, First>>,
}

impl Files {
    pub(super) fn new(
        index: Arc<Index>,
        root: Arc<OwnedFd>,
        replaces: bool,
        metadata: MetadataOptions,
    ) -> Files {
        Files {
            index,
            root,
            replaces,
            metadata,
            firsts: Mutex::new(BTreeMap::new()),
        }
    }

    /// Makes the files of a batch.
    ///
    /// # Errors
    /// Those of a far end that does not answer.
    pub(super) fn make(&self, chunks: &mut Chunks, batch: Batch) -> Result<Made> {
        let mut made = Made::default();
        for FileJob { place, entry } in &batch.files {
            let mut path = place.path.clone();
            path.push(entry.name.clone());
            match self.file(chunks, place, entry, &path, &mut made) {
                Ok(size_bytes) => {
                    made.files += 1;
                    made.bytes += size_bytes;
                }
                Err(Failure::File(error)) => {
                    made.problems.push((path_of(&path), error.to_string()));
                }
                Err(Failure::FarEnd(error)) => return Err(error),
            }
        }
        Ok(made)
    }

    fn file(
        &self,
        chunks: &mut Chunks,
        place: &Place,
        entry: &Entry,
        path: &[Vec<u8>],
        made: &mut Made,
    ) -> std::result::Result<u64, Failure> {
        let Node::File {
            size_bytes,
            is_sparse,
            is_torn,
            content,
        } = entry.node
        else {
            unreachable!("a file");
        };
        let folder = &*place.folder;
        let mut is_whole = true;
        let file = make_named(folder, &entry.name, self.replaces, |name| {
            let opened = rustix::fs::openat(folder, name, FILE_FLAGS, Mode::from_raw_mode(0o600));
            let file = File::from(opened.map_err(|error| io("make the file", error))?);
            let first = match size_bytes >= CLONE_BYTES_LEAST {
                true => self.first(&content),
                false => None,
            };
            let mut problem = |reason| made.problems.push((path_of(path), reason));
            if !first.is_some_and(|first| self.clone_first(&first, &file, is_sparse)) {
                let written = self.write(chunks, &file, (size_bytes, is_sparse), content);
                let written = written.or_else(|failure| {
                    // A file that lies there may be whole.
                    if self.replaces
                        && rustix::fs::statat(folder, &entry.name[..], AtFlags::SYMLINK_NOFOLLOW)
                            .is_ok()
                    {
                        return Err(failure);
                    }
                    let loss = self.write_with_gaps(chunks, &file, size_bytes, content, failure)?;
                    is_whole = false;
                    problem(loss);
                    Ok(())
                });
                if let Err(failure) = written {
                    let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
                    return Err(failure);
                }
            }
            // A file with its content stays, also if the file system refuses its metadata.
            HeldInode::Open(file.as_fd()).give(entry, self.metadata, &mut problem);
            // Some file systems report only now that they could not write.
            if let Err(error) = closing::ask(&file) {
                let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
                return Err(Error::io("close", "the file", error).into());
            }
            Ok::<_, Failure>(file)
        })?;
        if entry.link_group != 0
            && let Ok(status) = rustix::fs::fstat(&file)
        {
            made.linked.push((entry.link_group, inode_of(&status)));
        }
        made.torn_files += u64::from(is_torn);
        if size_bytes >= CLONE_BYTES_LEAST && is_whole {
            self.remember(content, &file, path);
        }
        Ok(size_bytes)
    }

    fn first(&self, content: &Id) -> Option<First> {
        let firsts = self.firsts.lock().unwrap_or_else(PoisonError::into_inner);
        firsts.get(content).cloned()
    }

    fn remember(&self, content: Id, file: &File, path: &[Vec<u8>]) {
        let mut firsts = self.firsts.lock().unwrap_or_else(PoisonError::into_inner);
        if firsts.len() < CLONES_MAX
            && let Ok(status) = rustix::fs::fstat(file)
        {
            firsts.entry(content).or_insert_with(|| First {
                path: path.to_vec(),
                state: state_of(&status),
            });
        }
    }

    /// Makes a file from another one of the same content; says whether that was done. Extents are shared where the file
    /// system can; where there are holes to keep, in no other way.
    fn clone_first(&self, first: &First, file: &File, is_sparse: bool) -> bool {
        let is_same = |from: &OwnedFd| {
            rustix::fs::fstat(from).is_ok_and(|status| state_of(&status) == first.state)
        };
        let Some((last, folders)) = first.path.split_last() else {
            return false;
        };
        let opened = open_below(&self.root, folders)
            .and_then(|at| rustix::fs::openat(&at, &last[..], FIRST_FLAGS, Mode::empty()));
        let Ok(from) = opened else {
            return false;
        };
        if !is_same(&from) {
            return false;
        }
        let is_cloned = rustix::fs::ioctl_ficlone(file, &from).is_ok();
        let is_made = is_cloned || !is_sparse && copy(&from, file, first.state.4).is_ok();
        if is_made && is_same(&from) {
            return true;
        }
        let _ = file.set_len(0);
        false
    }

    fn write(
        &self,
        chunks: &mut Chunks,
        file: &File,
        (size_bytes, is_sparse): (u64, bool),
        content: Id,
    ) -> std::result::Result<(), Failure> {
        if size_bytes == 0 {
            return Ok(());
        }
        let (mut at, mut written_to) = (0, 0);
        let mut is_of_file = false;
        let wrong = |length: u64| super::fail("file", 0, format!("{size_bytes} bytes"), length);
        let write = |error| Error::io("write", "the file", error);
        let mut take = |piece: Piece<'_>| {
            let length = match &piece {
                Piece::Bytes(bytes) => bytes.len() as u64,
                Piece::Zeros(count) => *count,
            };
            let end = at + length;
            if end > size_bytes {
                return Err(wrong(end));
            }
            match piece {
                Piece::Bytes(bytes) if is_sparse && is_zero(bytes) => {}
                Piece::Bytes(bytes) => {
                    file.write_all_at(bytes, at).map_err(write)?;
                    written_to = end;
                }
                // A new file reads as zeros where nothing was written.
                Piece::Zeros(_) => {}
            }
            at = end;
            Ok(())
        };
        let read = chunks.read(&self.index, content, &mut |piece| {
            let taken = take(piece);
            is_of_file = taken.is_err();
            taken
        });
        read.map_err(|error| match is_of_file || is_damage(&error) {
            true => Failure::File(error),
            false => Failure::FarEnd(error),
        })?;
        if at != size_bytes {
            return Err(wrong(at).into());
        }
        if written_to < size_bytes {
            file.set_len(size_bytes).map_err(write)?;
        }
        Ok(())
    }
}

impl Files {
    /// Writes what can be read of a damaged content, with holes for the rest; names the lost parts. Returns the failure
    /// of the whole content if that was another one or nothing can be read.
    fn write_with_gaps(
        &self,
        chunks: &mut Chunks,
        file: &File,
        size_bytes: u64,
        content: Id,
        failure: Failure,
    ) -> std::result::Result<String, Failure> {
        let Failure::File(error) = &failure else {
            return Err(failure);
        };
        if !is_damage(error) {
            return Err(failure);
        }
        let Ok(mut source) = chunks.source_with_gaps(&self.index, content) else {
            return Err(failure);
        };
        if source.raw_bytes() != size_bytes {
            return Err(failure);
        }
        let write = |error| Error::io("write", "the file", error);
        file.set_len(0).map_err(write)?;
        let (mut at, mut buffer) = (0, vec![0; GAPS_BUFFER_BYTES]);
        loop {
            let zeros = source.zeros_ahead()?;
            source.skip_zeros(zeros)?;
            at += zeros;
            let count = match source.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if is_damage(&error) => return Err(failure),
                Err(error) => return Err(Failure::FarEnd(error)),
            };
            if count == 0 {
                break;
            }
            if !is_zero(&buffer[..count]) {
                file.write_all_at(&buffer[..count], at).map_err(write)?;
            }
            at += count as u64;
        }
        file.set_len(size_bytes).map_err(write)?;
        match source.loss() {
            Some(loss) if source.lost_bytes() < size_bytes => Ok(loss),
            _ => Err(failure),
        }
    }
}

fn copy(from: &OwnedFd, to: &File, size_bytes: u64) -> rustix::io::Result<()> {
    let (mut read_at, mut write_at) = (0, 0);
    while write_at < size_bytes {
        let left = (size_bytes - write_at).min(1 << 30) as usize;
        let copied =
            rustix::fs::copy_file_range(from, Some(&mut read_at), to, Some(&mut write_at), left)?;
        if copied == 0 {
            return Err(Errno::IO);
        }
    }
    Ok(())
}

/// Opens a folder below another one, no part of its path by a link.
pub(super) fn open_below(root: &OwnedFd, folders: &[Vec<u8>]) -> rustix::io::Result<OwnedFd> {
    let mut at = rustix::fs::openat(root, c".", FOLDER_FLAGS, Mode::empty())?;
    for part in folders {
        at = rustix::fs::openat(&at, &part[..], FOLDER_FLAGS, Mode::empty())?;
    }
    Ok(at)
}
