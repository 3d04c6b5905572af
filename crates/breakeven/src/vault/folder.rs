//! Folders as they are stored: entries, and the stamps by which an unchanged file is recognised.
//!
//! Promises: a name that could leave its folder is refused when it is read, also from a hostile writer.

use crate::error::Result;
use crate::quoted::quoted_bytes;

use super::bytes::{Reader, put_bytes, put_number, put_signed};
use super::cipher::Id;

/// The longest name, as on all Linux file systems.
pub(super) const NAME_BYTES_MAX: usize = 255;
/// The longest target of a symbolic link that the system accepts.
const TARGET_BYTES_MAX: usize = 4096;
/// The least bytes of a stamp.
const STAMP_BYTES: usize = 3;
/// Added to the kind of an entry that is neither file nor folder where a group of hard links stands before it.
const GROUPED: u8 = 8;
const SPARSE: u8 = 1;
const TORN: u8 = 2;

/// The kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A regular file.
    File {
        /// Its length.
        size_bytes: u64,
        /// Whether it had holes.
        is_sparse: bool,
        /// Whether it changed while it was read: the stored bytes may be of several moments.
        is_torn: bool,
        /// Its content, [`Id::NONE`] where it is empty.
        content: Id,
    },
    /// A folder, whose entries are another content.
    Folder {
        /// That content, [`Id::NONE`] for an empty one.
        content: Id,
    },
    /// A symbolic link.
    Link {
        /// Where it points.
        target: Vec<u8>,
    },
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice {
        /// Its number.
        device: u64,
    },
    /// A block device.
    BlockDevice {
        /// Its number.
        device: u64,
    },
}

/// A time since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds.
    pub seconds: i64,
    /// Below a second.
    pub nanoseconds: u32,
}

/// One name in a folder, with all its stored metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name, bytes of any kind but `/` and NUL.
    pub name: Vec<u8>,
    /// Its kind.
    pub node: Node,
    /// The permission bits.
    pub mode: u32,
    /// The owner.
    pub user: u32,
    /// The owner's group.
    pub group: u32,
    /// When the content last changed.
    pub changed: Time,
    /// The number that all names of one inode in the snapshot share; 0 for an inode with one name. Folders have none.
    pub link_group: u64,
    /// Extended attributes, name and value.
    pub attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The facts by which an unchanged file is recognised, beside its entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// When the inode last changed.
    pub inode_changed: Time,
    /// The inode.
    pub inode: u64,
    /// A folder's own stamps.
    pub folder: Id,
    /// The state of a disk that a file is of; [`Id::NONE`] for any other.
    pub disk: Id,
}

/// Says whether a name stays within its folder.
pub fn is_safe_name(name: &[u8]) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name != b"."
        && name != b".."
        && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

/// Says whether a symbolic link may point there.
pub(super) fn is_target(target: &[u8]) -> bool {
    (1..=TARGET_BYTES_MAX).contains(&target.len()) && !target.contains(&0)
}

/// Returns the content of a folder with these entries, which are sorted by name.
pub(super) fn write_folder(entries: &[Entry]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(entries.len() * 64);
    for entry in entries {
        put_bytes(&mut bytes, &entry.name);
        bytes.push(kind_of(entry));
        put_number(&mut bytes, entry.mode.into());
        put_number(&mut bytes, entry.user.into());
        put_number(&mut bytes, entry.group.into());
        put_signed(&mut bytes, entry.changed.seconds);
        put_number(&mut bytes, entry.changed.nanoseconds.into());
        put_number(&mut bytes, entry.attributes.len() as u64);
        for (name, value) in &entry.attributes {
            put_bytes(&mut bytes, name);
            put_bytes(&mut bytes, value);
        }
        write_node(&mut bytes, entry);
    }
    bytes
}

fn is_special(node: &Node) -> bool {
    !matches!(node, Node::File { .. } | Node::Folder { .. })
}

fn kind_of(entry: &Entry) -> u8 {
    let grouped = match is_special(&entry.node) && entry.link_group != 0 {
        true => GROUPED,
        false => 0,
    };
    grouped
        + match entry.node {
            Node::File { .. } => 0,
            Node::Folder { .. } => 1,
            Node::Link { .. } => 2,
            Node::Pipe => 3,
            Node::Socket => 4,
            Node::CharacterDevice { .. } => 5,
            Node::BlockDevice { .. } => 6,
        }
}

fn write_node(bytes: &mut Vec<u8>, entry: &Entry) {
    if is_special(&entry.node) && entry.link_group != 0 {
        put_number(bytes, entry.link_group);
    }
    match &entry.node {
        Node::File {
            size_bytes,
            is_sparse,
            is_torn,
            content,
        } => {
            put_number(bytes, *size_bytes);
            put_number(bytes, entry.link_group);
            bytes.push(u8::from(*is_sparse) * SPARSE + u8::from(*is_torn) * TORN);
            if *size_bytes > 0 {
                bytes.extend_from_slice(&content.0);
            }
        }
        Node::Folder { content } => bytes.extend_from_slice(&content.0),
        Node::Link { target } => put_bytes(bytes, target),
        Node::Pipe | Node::Socket => {}
        Node::CharacterDevice { device } | Node::BlockDevice { device } => {
            put_number(bytes, *device)
        }
    }
}

/// Reads the entries of a folder.
pub(super) fn read_folder(content: &[u8]) -> Result<Vec<Entry>> {
    let mut reader = Reader::new("folder", content);
    let mut entries: Vec<Entry> = Vec::with_capacity(content.len() / 64);
    while !reader.is_empty() {
        let entry = read_entry(&mut reader)?;
        if entries.last().is_some_and(|last| last.name >= entry.name) {
            return Err(reader.wrong("names in rising order", "another order"));
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn read_entry(reader: &mut Reader<'_>) -> Result<Entry> {
    let name = reader.bytes()?.to_vec();
    if !is_safe_name(&name) {
        let found = quoted_bytes(&name).to_string();
        return Err(reader.wrong("a name within its folder", format!("'{found}'")));
    }
    let kind = reader.byte()?;
    let mode = reader.number_to(0o7777)? as u32;
    let user = reader.number_to(u32::MAX.into())? as u32;
    let group = reader.number_to(u32::MAX.into())? as u32;
    let seconds = reader.signed()?;
    let nanoseconds = reader.number_to(999_999_999)? as u32;
    let mut attributes = Vec::new();
    for _ in 0..reader.count(2)? {
        attributes.push((reader.bytes()?.to_vec(), reader.bytes()?.to_vec()));
    }
    let (node, link_group) = read_node(reader, kind)?;
    Ok(Entry {
        name,
        node,
        mode,
        user,
        group,
        changed: Time {
            seconds,
            nanoseconds,
        },
        link_group,
        attributes,
    })
}

/// Reads an entry's node by its kind, and its group of hard links.
fn read_node(reader: &mut Reader<'_>, kind: u8) -> Result<(Node, u64)> {
    let mut link_group = 0;
    let kind = match kind {
        kind @ 10..=14 => {
            link_group = reader.number()?;
            if link_group == 0 {
                return Err(reader.wrong("a group of hard links", link_group));
            }
            kind - GROUPED
        }
        kind => kind,
    };
    let node = match kind {
        0 => {
            let size_bytes = reader.number()?;
            link_group = reader.number()?;
            let flags = reader.byte()?;
            if flags > SPARSE + TORN {
                return Err(reader.wrong("flags of a file", flags));
            }
            let content = if size_bytes > 0 {
                reader.id()?
            } else {
                Id::NONE
            };
            Node::File {
                size_bytes,
                is_sparse: flags & SPARSE != 0,
                is_torn: flags & TORN != 0,
                content,
            }
        }
        1 => Node::Folder {
            content: reader.id()?,
        },
        2 => {
            let target = reader.bytes()?.to_vec();
            if !is_target(&target) {
                return Err(reader.wrong("the target of a link", format!("{} bytes", target.len())));
            }
            Node::Link { target }
        }
        3 => Node::Pipe,
        4 => Node::Socket,
        5 => Node::CharacterDevice {
            device: reader.number()?,
        },
        6 => Node::BlockDevice {
            device: reader.number()?,
        },
        other => return Err(reader.wrong("a kind of entries", other)),
    };
    Ok((node, link_group))
}

/// Returns the content of the stamps of a folder's entries.
pub(super) fn write_stamps(entries: &[Entry], stamps: &[Stamp]) -> Vec<u8> {
    assert_eq!(entries.len(), stamps.len());
    let mut bytes = Vec::with_capacity(entries.len() * 16);
    for (entry, stamp) in entries.iter().zip(stamps) {
        let seconds = stamp
            .inode_changed
            .seconds
            .wrapping_sub(entry.changed.seconds);
        put_signed(&mut bytes, seconds);
        put_number(&mut bytes, stamp.inode_changed.nanoseconds.into());
        put_number(&mut bytes, stamp.inode);
        if matches!(entry.node, Node::Folder { .. }) {
            bytes.extend_from_slice(&stamp.folder.0);
        }
    }
    for (at, stamp) in stamps.iter().enumerate() {
        if stamp.disk != Id::NONE {
            put_number(&mut bytes, at as u64);
            bytes.extend_from_slice(&stamp.disk.0);
        }
    }
    bytes
}

/// Reads the stamps of a folder's entries.
pub(super) fn read_stamps(entries: &[Entry], content: &[u8]) -> Result<Vec<Stamp>> {
    let mut reader = Reader::new("stamps", content);
    if content.len() / STAMP_BYTES < entries.len() {
        return Err(reader.wrong(format_args!("{} stamps", entries.len()), content.len()));
    }
    let mut stamps = Vec::with_capacity(entries.len());
    for entry in entries {
        let seconds = reader.signed()?.wrapping_add(entry.changed.seconds);
        let nanoseconds = reader.number_to(999_999_999)? as u32;
        let inode = reader.number()?;
        let folder = match entry.node {
            Node::Folder { .. } => reader.id()?,
            _ => Id::NONE,
        };
        stamps.push(Stamp {
            inode_changed: Time {
                seconds,
                nanoseconds,
            },
            inode,
            folder,
            disk: Id::NONE,
        });
    }
    read_disks(&mut reader, entries, &mut stamps)?;
    Ok(stamps)
}

/// Reads the states of disks that stand behind all stamps.
fn read_disks(reader: &mut Reader<'_>, entries: &[Entry], stamps: &mut [Stamp]) -> Result<()> {
    let mut next = 0;
    while !reader.is_empty() {
        let at = reader.number()?;
        let place = usize::try_from(at).unwrap_or(usize::MAX);
        let is_file =
            (entries.get(place)).is_some_and(|entry| matches!(entry.node, Node::File { .. }));
        let disk = reader.id()?;
        if place < next || !is_file || disk == Id::NONE {
            return Err(reader.wrong("the state of a file that follows", at));
        }
        stamps[place].disk = disk;
        next = place + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &[u8], node: Node) -> Entry {
        let changed = Time {
            seconds: -5,
            nanoseconds: 7,
        };
        let attributes = vec![(b"user.a".to_vec(), vec![0, 1])];
        Entry {
            name: name.to_vec(),
            node,
            mode: 0o644,
            user: 1000,
            group: 0,
            changed,
            link_group: 0,
            attributes,
        }
    }

    #[test]
    fn entries_and_stamps_come_back() {
        let content = Id([3; 16]);
        let file = Node::File {
            size_bytes: 9,
            is_sparse: true,
            is_torn: true,
            content,
        };
        let empty = Node::File {
            size_bytes: 0,
            is_sparse: false,
            is_torn: false,
            content: Id::NONE,
        };
        let nodes = [
            file,
            empty,
            Node::Folder { content },
            Node::Link {
                target: b"../x".to_vec(),
            },
            Node::Pipe,
            Node::Socket,
            Node::CharacterDevice { device: 5 },
            Node::BlockDevice { device: u64::MAX },
        ];
        let entries: Vec<Entry> = (nodes.into_iter().enumerate())
            .map(|(at, node)| entry(&[b'a' + at as u8], node))
            .collect();
        let grouped = |entry: &Entry| Entry {
            link_group: u64::from(!matches!(entry.node, Node::Folder { .. })) << 40,
            ..entry.clone()
        };
        for entries in [entries.clone(), entries.iter().map(grouped).collect()] {
            let bytes = write_folder(&entries);
            assert_eq!(read_folder(&bytes).unwrap(), entries);
        }
        let stamp = |at: usize| Stamp {
            inode_changed: Time {
                seconds: at as i64 - 9,
                nanoseconds: 1,
            },
            inode: 1 << 60,
            folder: if at == 2 { content } else { Id::NONE },
            disk: Id::NONE,
        };
        let stamps: Vec<Stamp> = (0..entries.len()).map(stamp).collect();
        let bytes = write_stamps(&entries, &stamps);
        assert_eq!(read_stamps(&entries, &bytes).unwrap(), stamps);
        assert!(read_stamps(&entries, &bytes[1..]).is_err());
    }

    #[test]
    fn states_of_disks_come_back() {
        let file = Node::File {
            size_bytes: 9,
            is_sparse: true,
            is_torn: false,
            content: Id([3; 16]),
        };
        let entries = [
            entry(b"a", file.clone()),
            entry(b"b", file),
            entry(b"c", Node::Pipe),
        ];
        let mut stamps = vec![Stamp::default(); 3];
        let plain = write_stamps(&entries, &stamps);
        for at in 0..2 {
            stamps[at].disk = Id([1 + at as u8; 16]);
            let bytes = write_stamps(&entries, &stamps);
            assert_eq!(read_stamps(&entries, &bytes).unwrap(), stamps);
            assert!(read_stamps(&entries, &bytes[..bytes.len() - 1]).is_err());
        }
        // Twice, in falling order, of a folder, of nobody, and of no state.
        for disks in [
            &[(0, 1), (0, 1)][..],
            &[(1, 1), (0, 1)],
            &[(2, 1)],
            &[(40, 1)],
            &[(0, 0)],
        ] {
            let mut bytes = plain.clone();
            for (at, id) in disks {
                put_number(&mut bytes, *at);
                bytes.extend_from_slice(&[*id; 16]);
            }
            assert!(read_stamps(&entries, &bytes).is_err(), "{disks:?}");
        }
    }

    #[test]
    fn hostile_names_are_refused() {
        for name in [&b".."[..], b".", b"", b"a/b", b"/etc", b"a\0", &[b'x'; 256]] {
            let bytes = write_folder(&[entry(name, Node::Pipe)]);
            assert!(read_folder(&bytes).is_err(), "{name:?}");
        }
        for length in [0, 1, 4096, 4097] {
            let target = vec![b'x'; length];
            let is_kept = is_target(&target);
            let bytes = write_folder(&[entry(b"a", Node::Link { target })]);
            assert_eq!(read_folder(&bytes).is_ok(), is_kept, "{length}");
        }
        let twice = [entry(b"a", Node::Pipe), entry(b"a", Node::Pipe)];
        assert!(read_folder(&write_folder(&twice)).is_err());
    }
}
