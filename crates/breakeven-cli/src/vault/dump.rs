//! `breakeven vault dump`: a file to standard output, or a folder as an archive.
//!
//! An archive has the entries that a restore makes, without holes and sockets. Left-out sockets are named. Attributes,
//! ACLs among them, and times below a second stand in pax headers, as GNU tar and restic write them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use breakeven::quoted::quoted_bytes;
use breakeven::vault::{ContentReader, Entry, Node, TreeReader, Vault};
use tar::{Builder, EntryType, Header};

use super::options::{Archive, DumpOptions};
use super::{VaultOptions, look, partial, resolve};
use crate::standard::{self, ReaderGone};

/// Bytes that are gathered before they are written.
const WRITTEN_BYTES: usize = 64 << 10;
/// Where the names of attributes stand in a pax header.
const ATTRIBUTE: &str = "SCHILY.xattr.";

pub fn dump(options: &VaultOptions, vault: &Vault, dump: &DumpOptions) -> Result<ExitCode> {
    let (epoch, snapshot) = resolve(vault, &dump.snapshot, &dump.filter)?;
    let mut tree = look::reader(options, vault)?;
    let typed = dump.path.as_os_str().as_bytes();
    let path = [&dump.snapshot.path[..], b"/", typed].concat();
    let top = look::found(&mut tree, epoch, &snapshot, &path)?;
    let output = standard::output();
    let mut problems = Vec::new();
    let written = match (&top.node, dump.archive) {
        (Node::File { .. }, _) => write_file(&mut tree, &top, output.as_ref()),
        (Node::Folder { .. }, Archive::Tar) => {
            let mut archive = TarArchive {
                builder: Builder::new(BufWriter::with_capacity(WRITTEN_BYTES, output.as_ref())),
                contents: tree.clone(),
                links: BTreeMap::new(),
                problems: &mut problems,
            };
            archive.tree(&mut tree, &top, typed)
        }
        _ => bail!("{} is neither a file nor a folder", look::shown(&path)),
    };
    let code = partial(&problems);
    match written {
        // The reader has enough; a fault before that still counts.
        Err(error) if is_reader_gone(&error) && code == ExitCode::SUCCESS => {
            Err(error.context(ReaderGone))
        }
        Err(error) if is_reader_gone(&error) => Ok(code),
        Err(error) if error.is::<io::Error>() => Err(error.context(standard::OUTPUT)),
        written => written.map(|()| code),
    }
}

/// Says whether standard output has no reader any more: an error of the vault's lies deeper.
fn is_reader_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn write_file(tree: &mut TreeReader, file: &Entry, mut output: impl Write) -> Result<()> {
    let mut content = tree.open(file)?;
    io::copy(&mut content, &mut output)?;
    Ok(())
}

/// A file whose length stands in the archive already. Zeros replace unreadable bytes, as GNU tar writes them for a file
/// that shrank.
struct Padded<'r> {
    content: Option<ContentReader<'r>>,
    left: u64,
    damage: Option<anyhow::Error>,
}

impl Read for Padded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let buffer = &mut buffer[..length];
        if let Some(content) = &mut self.content {
            match content.read(buffer) {
                Err(error) if error.kind() == ErrorKind::Other => {
                    self.damage = Some(error.into());
                    self.content = None;
                }
                read => {
                    let count = read?;
                    self.left -= count as u64;
                    return Ok(count);
                }
            }
        }
        buffer.fill(0);
        self.left -= length as u64;
        Ok(length)
    }
}

/// An archive that is being written.
struct TarArchive<'d, W: Write> {
    builder: Builder<W>,
    /// Reads files while folders are being read.
    contents: TreeReader,
    /// The first names of files with several names.
    links: BTreeMap<u64, PathBuf>,
    problems: &'d mut Vec<(PathBuf, String)>,
}

impl<W: Write> TarArchive<'_, W> {
    /// Writes a folder and its entries to the end of the archive.
    fn tree(&mut self, tree: &mut TreeReader, top: &Entry, at: &[u8]) -> Result<()> {
        let parts = at.split(|byte| *byte == b'/');
        let parts = parts.filter(|part| !part.is_empty() && *part != b".");
        let at: PathBuf = parts.map(OsStr::from_bytes).collect();
        if !top.name.is_empty() {
            let at = match at.as_os_str().is_empty() {
                true => Path::new("."),
                false => &at,
            };
            self.entry(at, top)?;
        }
        let visited = tree.walk(top, &mut |path, entry| {
            let mut below = at.clone();
            below.extend(path.iter().map(|part| OsStr::from_bytes(part)));
            self.entry(&below, entry)?;
            Ok::<_, anyhow::Error>(true)
        })?;
        self.problems.extend(visited);
        self.builder.finish()?;
        self.builder.get_mut().flush()?;
        Ok(())
    }

    fn entry(&mut self, path: &Path, entry: &Entry) -> Result<()> {
        let mut header = header_of(entry);
        if let Some(first) = self.links.get(&entry.link_group) {
            header.set_entry_type(EntryType::Link);
            self.builder.append_link(&mut header, path, first)?;
            return Ok(());
        }
        let Some(kind) = kind_of(&entry.node) else {
            let reason = "an archive has no sockets".to_string();
            self.problems.push((path.to_path_buf(), reason));
            return Ok(());
        };
        header.set_entry_type(kind);
        self.extensions(path, entry)?;
        match &entry.node {
            Node::File { size_bytes, .. } => {
                header.set_size(*size_bytes);
                let (content, damage) = match self.contents.open_with_gaps(entry) {
                    Ok(content) => (Some(content), None),
                    Err(error) => (None, Some(error.into())),
                };
                let mut content = Padded {
                    content,
                    left: *size_bytes,
                    damage,
                };
                self.builder.append_data(&mut header, path, &mut content)?;
                let loss = content.content.as_ref().and_then(ContentReader::loss);
                if let Some(loss) = loss {
                    self.problems.push((path.to_path_buf(), loss));
                }
                if let Some(damage) = content.damage {
                    let reason = format!("zeros from its damage on: {damage}");
                    self.problems.push((path.to_path_buf(), reason));
                }
            }
            Node::Link { target } => {
                let target = Path::new(OsStr::from_bytes(target));
                self.builder.append_link(&mut header, path, target)?;
            }
            Node::CharacterDevice { device } | Node::BlockDevice { device } => {
                header.set_device_major(rustix::fs::major(*device))?;
                header.set_device_minor(rustix::fs::minor(*device))?;
                self.builder.append_data(&mut header, path, io::empty())?;
            }
            _ => self.builder.append_data(&mut header, path, io::empty())?,
        }
        if entry.link_group != 0 {
            self.links.insert(entry.link_group, path.to_path_buf());
        }
        Ok(())
    }

    /// Writes the metadata for which a plain header has no room.
    fn extensions(&mut self, path: &Path, entry: &Entry) -> Result<()> {
        let mut extensions: Vec<(String, &[u8])> = Vec::new();
        let time = entry.changed;
        let mtime = (time.seconds < 0 || time.nanoseconds > 0).then(|| pax_time(time));
        if let Some(mtime) = &mtime {
            extensions.push(("mtime".to_string(), mtime.as_bytes()));
        }
        for (name, value) in &entry.attributes {
            match std::str::from_utf8(name) {
                Ok(name) if !name.contains('=') => {
                    extensions.push((format!("{ATTRIBUTE}{name}"), value));
                }
                _ => {
                    let name = quoted_bytes(name);
                    let reason = format!("an archive cannot name its attribute {name}");
                    self.problems.push((path.to_path_buf(), reason));
                }
            }
        }
        if !extensions.is_empty() {
            let extensions = extensions.iter().map(|(key, value)| (&key[..], *value));
            self.builder.append_pax_extensions(extensions)?;
        }
        Ok(())
    }
}

/// Returns a time as pax has it: a decimal number, below 0 before 1970.
fn pax_time(time: breakeven::vault::Time) -> String {
    let nanoseconds = i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds);
    let sign = if nanoseconds < 0 { "-" } else { "" };
    let (seconds, below) = (
        nanoseconds.unsigned_abs() / 1_000_000_000,
        nanoseconds.unsigned_abs() % 1_000_000_000,
    );
    format!("{sign}{seconds}.{below:09}")
}

fn kind_of(node: &Node) -> Option<EntryType> {
    Some(match node {
        Node::File { .. } => EntryType::Regular,
        Node::Folder { .. } => EntryType::Directory,
        Node::Link { .. } => EntryType::Symlink,
        Node::Pipe => EntryType::Fifo,
        Node::CharacterDevice { .. } => EntryType::Char,
        Node::BlockDevice { .. } => EntryType::Block,
        Node::Socket => return None,
    })
}

fn header_of(entry: &Entry) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(entry.user.into());
    header.set_gid(entry.group.into());
    header.set_mtime(entry.changed.seconds.try_into().unwrap_or(0));
    header.set_size(0);
    header
}
