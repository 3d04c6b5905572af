//! The metadata of an inode beside its content: read for a snapshot, and given back.
//!
//! Promises: an inode is held by a descriptor, so nothing is read from or given to another inode that takes its name
//! meanwhile. The order is: owner, the user's attributes, mode, access control lists, other attributes, times. A new
//! owner removes capabilities and bits of the mode. A mode without the right to write keeps the user's attributes out.
//! A refusal by the file system is a problem, and keeps nothing else back.

use crate::quoted::quoted_bytes;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::{Errno, Result};

use super::folder::{Entry, Node};

/// The longest extended attribute, and list of their names: `XATTR_SIZE_MAX` and `XATTR_LIST_MAX` of linux/limits.h.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;
/// Reported once, where the attributes of an inode that is not open cannot be read.
pub(super) const LACKS_PROC: &str =
    "/proc is not there: attributes of links, pipes, sockets and devices are not kept";
/// Room for the lists and values of most files, on the stack.
const ATTRIBUTE_BYTES_USUAL: usize = 512;
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";
const CAPABILITY: &[u8] = b"security.capability";
/// XFS shows access control lists to root a second time under this name.
const LIST_OF_XFS: &[u8] = b"trusted.SGI_ACL_";
/// Bits of the mode that lend a program its owner and its group.
const LENDS_USER: u32 = 0o4000;
const LENDS_GROUP: u32 = 0o2000;

/// Attributes: names and values.
pub(super) type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// An inode that stays the same through all changes of its names.
#[derive(Clone, Copy)]
pub(super) enum HeldInode<'f> {
    /// A file or a folder that is open.
    Open(BorrowedFd<'f>),
    /// A link, pipe, socket or device that is not, by a descriptor of `O_PATH`.
    Named(BorrowedFd<'f>),
}

/// The metadata that a restored inode gets, beside mode and times.
#[derive(Clone, Copy)]
pub(super) struct MetadataOptions {
    /// Whether owners are.
    pub owners: bool,
    /// Whether the snapshot knows attributes.
    pub attributes: bool,
}

impl HeldInode<'_> {
    fn status(self) -> Result<Stat> {
        let (HeldInode::Open(file) | HeldInode::Named(file)) = self;
        rustix::fs::fstat(file)
    }

    fn list(self, names: &mut [u8]) -> Result<usize> {
        match self {
            HeldInode::Open(file) => rustix::fs::flistxattr(file, names),
            HeldInode::Named(file) => rustix::fs::listxattr(shown(file), names),
        }
    }

    fn value(self, name: &[u8], value: &mut [u8]) -> Result<usize> {
        match self {
            HeldInode::Open(file) => rustix::fs::fgetxattr(file, name, value),
            HeldInode::Named(file) => rustix::fs::getxattr(shown(file), name, value),
        }
    }

    fn set_value(self, name: &[u8], value: &[u8]) -> Result<()> {
        let flags = XattrFlags::empty();
        match self {
            HeldInode::Open(file) => rustix::fs::fsetxattr(file, name, value, flags),
            HeldInode::Named(file) => rustix::fs::setxattr(shown(file), name, value, flags),
        }
    }

    fn remove(self, name: &[u8]) -> Result<()> {
        match self {
            HeldInode::Open(file) => rustix::fs::fremovexattr(file, name),
            HeldInode::Named(file) => rustix::fs::removexattr(shown(file), name),
        }
    }

    fn set_owner(self, user: Option<Uid>, group: Option<Gid>) -> Result<()> {
        match self {
            HeldInode::Open(file) => rustix::fs::fchown(file, user, group),
            HeldInode::Named(file) => {
                rustix::fs::chownat(file, c"", user, group, AtFlags::EMPTY_PATH)
            }
        }
    }

    fn set_mode(self, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode);
        match self {
            HeldInode::Open(file) => rustix::fs::fchmod(file, mode),
            HeldInode::Named(file) => rustix::fs::chmod(shown(file), mode),
        }
    }

    fn set_times(self, times: &Timestamps) -> Result<()> {
        let file = match self {
            HeldInode::Open(file) => return rustix::fs::futimens(file, times),
            HeldInode::Named(file) => file,
        };
        match rustix::fs::utimensat(file, c"", times, AtFlags::EMPTY_PATH) {
            // Linux before 5.8.
            Err(Errno::INVAL) => rustix::fs::utimensat(CWD, shown(file), times, AtFlags::empty()),
            set => set,
        }
    }

    fn names(self) -> Result<Vec<Vec<u8>>> {
        let listed = match whole(|names| self.list(names)) {
            // The file system knows none.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Vec::new(),
            listed => listed?,
        };
        let names = listed.split(|byte| *byte == 0);
        let names = names.filter(|name| !name.is_empty() && !name.starts_with(LIST_OF_XFS));
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    /// Reads the extended attributes, with access control lists and capabilities.
    pub(super) fn attributes(self, problem: &mut dyn FnMut(String)) -> Attributes {
        let mut attributes = Attributes::new();
        let names = self.names().unwrap_or_else(|error| {
            problem(match (self, error) {
                (HeldInode::Named(_), Errno::NOENT) => LACKS_PROC.to_string(),
                _ => format!("its attributes cannot be listed: {error}"),
            });
            Vec::new()
        });
        for name in names {
            match whole(|value| self.value(&name, value)) {
                Ok(value) => attributes.push((name, value)),
                // It was removed since.
                Err(Errno::NODATA) => {}
                Err(error) => problem(format!("{} cannot be read: {error}", shown_name(&name))),
            }
        }
        attributes.sort();
        attributes
    }

    /// Gives an inode the metadata of its entry.
    pub(super) fn give(
        self,
        entry: &Entry,
        options: MetadataOptions,
        problem: &mut dyn FnMut(String),
    ) {
        if options.owners {
            let (user, group) = owners(entry);
            if let Err(error) = self.set_owner(user, group) {
                let (user, group) = (entry.user, entry.group);
                problem(format!("the owner {user}:{group} cannot be set: {error}"));
            }
        }
        if options.attributes {
            self.remove_others(entry, problem);
            self.give_attributes(entry, |name| name.starts_with(b"user."), problem);
        }
        if !matches!(entry.node, Node::Link { .. })
            && let Err(error) = self.set_mode(self.mode(entry))
        {
            let reason = match (self, error) {
                (HeldInode::Named(_), Errno::NOENT) => "/proc is not there".to_string(),
                _ => error.to_string(),
            };
            problem(format!("the mode {:o} cannot be set: {reason}", entry.mode));
        }
        if options.attributes {
            let is_list = |name: &[u8]| name == ACCESS_LIST || name == DEFAULT_LIST;
            self.give_attributes(entry, is_list, problem);
            let is_other = |name: &[u8]| !name.starts_with(b"user.") && !is_list(name);
            self.give_attributes(entry, is_other, problem);
        }
        if let Err(error) = self.set_times(&times(entry)) {
            problem(format!("the times cannot be set: {error}"));
        }
    }

    /// Removes attributes of the inode that the entry lacks. They came from its folder, or from the inode that lay
    /// there before.
    fn remove_others(self, entry: &Entry, problem: &mut dyn FnMut(String)) {
        let is_ours = |name: &[u8]| {
            name.starts_with(b"user.") || matches!(name, ACCESS_LIST | DEFAULT_LIST | CAPABILITY)
        };
        // A caller that cannot list them has set none.
        for name in self.names().unwrap_or_default() {
            let is_wanted = entry.attributes.iter().any(|(wanted, _)| *wanted == name);
            if is_wanted || !is_ours(&name) {
                continue;
            }
            match self.remove(&name) {
                Ok(()) | Err(Errno::NODATA) => {}
                Err(error) => problem(format!("{} cannot be removed: {error}", shown_name(&name))),
            }
        }
    }

    fn give_attributes(
        self,
        entry: &Entry,
        is_wanted: impl Fn(&[u8]) -> bool,
        problem: &mut dyn FnMut(String),
    ) {
        for (name, value) in entry.attributes.iter().filter(|(name, _)| is_wanted(name)) {
            let Err(error) = self.set_value(name, value) else {
                continue;
            };
            // The system sets some labels by itself; a change is often refused, and the label often right.
            if !whole(|found| self.value(name, found)).is_ok_and(|found| found == *value) {
                problem(format!("{} cannot be set: {error}", shown_name(name)));
            }
        }
    }

    /// Returns the mode that an inode gets: a program gets no set-user or set-group bit for another's owner or group.
    fn mode(self, entry: &Entry) -> u32 {
        let lent = entry.mode & (LENDS_USER | LENDS_GROUP);
        if lent == 0 || matches!(entry.node, Node::Folder { .. }) {
            return entry.mode;
        }
        let status = self.status();
        let is = |owns: &dyn Fn(&Stat) -> bool| status.as_ref().is_ok_and(owns);
        let mut mode = entry.mode;
        if !is(&|status| status.st_uid == entry.user) {
            mode &= !LENDS_USER;
        }
        if !is(&|status| status.st_gid == entry.group) {
            mode &= !LENDS_GROUP;
        }
        mode
    }
}

/// Returns the path at which the system shows a descriptor. It leads to the inode, and for a link not to its target.
pub(super) fn shown(file: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Says whether a descriptor holds the node that an entry describes, without another name. The node has just been made,
/// and any process that may write in its folder can have replaced it.
pub(super) fn is_new_node(status: &Stat, entry: &Entry) -> bool {
    let (kind, device) = match &entry.node {
        Node::Link { .. } => (FileType::Symlink, None),
        Node::Pipe => (FileType::Fifo, None),
        Node::Socket => (FileType::Socket, None),
        Node::CharacterDevice { device } => (FileType::CharacterDevice, Some(*device)),
        Node::BlockDevice { device } => (FileType::BlockDevice, Some(*device)),
        Node::File { .. } | Node::Folder { .. } => return false,
    };
    FileType::from_raw_mode(status.st_mode) == kind
        && status.st_nlink == 1
        && device.is_none_or(|device| device == status.st_rdev)
}

/// Reads a value that can get longer between two calls: into a small buffer, which usually suffices, then into the
/// largest.
fn whole(read: impl Fn(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut usual = [0; ATTRIBUTE_BYTES_USUAL];
    match read(&mut usual) {
        Err(Errno::RANGE) => {
            let mut most = vec![0; ATTRIBUTE_BYTES_MAX];
            let length = read(&mut most)?;
            most.truncate(length);
            Ok(most)
        }
        read => Ok(usual[..read?].to_vec()),
    }
}

fn shown_name(name: &[u8]) -> String {
    format!("the attribute {}", quoted_bytes(name))
}

fn owners(entry: &Entry) -> (Option<Uid>, Option<Gid>) {
    // The highest number means "unchanged" to the system.
    let number = |number: u32| (number != u32::MAX).then_some(number);
    (
        number(entry.user).map(Uid::from_raw),
        number(entry.group).map(Gid::from_raw),
    )
}

fn times(entry: &Entry) -> Timestamps {
    let changed = Timespec {
        tv_sec: entry.changed.seconds,
        tv_nsec: entry.changed.nanoseconds.into(),
    };
    Timestamps {
        last_access: changed,
        last_modification: changed,
    }
}
