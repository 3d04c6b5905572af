//! `breakeven vault mount`: snapshots as a read-only file system, by FUSE.
//!
//! Nothing of a snapshot changes, so the kernel may keep all answers: names, attributes, pages. Files of equal content
//! and metadata share one inode number, in all folders and snapshots, so their pages lie in memory once. Numbers follow
//! from content and path: they are the same at the next mount.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use breakeven::Error;
use breakeven::vault::{Entry, FileMap, Id, Node, RandomReader, Snapshot, Time, TreeReader, Vault};
use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyXattr, Request,
    SessionACL,
};
use rustix::io::Errno as SystemError;
use rustix::mount::{UnmountFlags, unmount};
use signal_hook::iterator::Signals;

use super::local_time::local;
use super::options::MountOptions;
use super::{PARTIAL, VaultOptions, filtered, look, resolve};
use crate::environment::ending_signals;
use crate::standard;

/// How long the kernel may keep an answer: as long as it likes.
const KEPT: Duration = Duration::from_secs(86_400 * 365);
/// Entries of folders that are kept decoded.
const ENTRIES_KEPT: usize = 200_000;
/// How far ahead of a sequential reader frames are decoded: three of the longest by default.
const AHEAD_BYTES: [u64; 3] = [1 << 20, 2 << 20, 3 << 20];
/// Reads of a stream between two looks ahead, in bytes.
const AHEAD_STEP: u64 = 256 << 10;
/// Threads that decode ahead, and offsets that may wait for them.
const AHEAD_THREADS: usize = 3;
const AHEAD_WAITING: usize = 64;
/// The block size that programs see, and by which they copy.
const BLOCK_BYTES: u32 = 128 << 10;
/// How often a mount checks whether it was ended from outside, or must read the vault again.
const LOOK: Duration = Duration::from_millis(50);
/// How long an end may take before the reason is printed.
const PATIENCE: Duration = Duration::from_secs(1);
const TIMES: &str = "times";
const LATEST: &str = "latest";

/// Mounts snapshots and serves them until they are unmounted, or a signal asks for it.
///
/// A vault that others change is read again when an object is not at its place.
pub fn mount(options: &VaultOptions, vault: &mut Vault, mount: &MountOptions) -> Result<ExitCode> {
    let shown = look::shown(mount.target.as_os_str().as_bytes());
    let target = fs::metadata(&mount.target).with_context(|| format!("mount at {shown}"))?;
    ensure!(target.is_dir(), "{shown} is no folder");
    let memory = mount.cache_memory << 20;
    let reader = Arc::new(vault.random_reader(options.index_memory << 20, memory)?);
    let mut tree = reader.tree_reader();
    let selected = match &mount.snapshot {
        Some(typed) => vec![resolve(vault, typed, &mount.filter)?],
        None => filtered(vault, &mount.filter)?,
    };
    ensure!(!selected.is_empty(), "there is no such snapshot");
    let root = match &mount.snapshot {
        Some(typed) => {
            let (epoch, snapshot) = &selected[0];
            Item::of(
                look::found(&mut tree, *epoch, snapshot, &typed.path)?,
                *epoch,
            )
        }
        None => all_snapshots(&selected, &mut tree)?,
    };
    ensure!(root.is_folder(), "only a folder can be mounted");
    // Caught before anything is mounted, so that no signal leaves a mount behind.
    let mut signals = Signals::new(ending_signals()).context("wait for signals")?;
    let (ahead, waiting) = sync_channel(AHEAD_WAITING);
    let (renewals, asked) = channel();
    let has_failed = Arc::new(AtomicBool::new(false));
    let served = SnapshotFiles {
        inodes: Mutex::new(Inodes::new(root)),
        folders: Mutex::default(),
        tree: Mutex::new(tree),
        files: Mutex::default(),
        next_handle: AtomicU64::new(1),
        ahead,
        reader: Arc::clone(&reader),
        has_failed: Arc::clone(&has_failed),
        renewals: Mutex::new(renewals),
        told: Mutex::default(),
        links: Mutex::default(),
        snapshots: selected.into_iter().collect(),
    };
    read_ahead(&reader, waiting)?;
    let session = fuser::spawn_mount(served, &mount.target, &config(options, mount))
        .with_context(|| format!("mount at {shown}"))?;
    standard::greet(&format!("mounted at {shown}; Ctrl-C or umount ends it\n"));
    let mut renew = || renewed(vault, &reader, options.index_memory << 20);
    let mut serve = || {
        for answer in asked.try_iter() {
            let _: std::result::Result<(), _> = SyncSender::send(&answer, renew());
        }
    };
    end_of(session, &mount.target, &mut signals, &mut serve)
        .with_context(|| format!("unmount {shown}"))?;
    Ok(match has_failed.load(Ordering::Relaxed) {
        false => ExitCode::SUCCESS,
        true => ExitCode::from(PARTIAL),
    })
}

/// Reads the vault again if others changed it; says whether it was.
fn renewed(vault: &mut Vault, reader: &RandomReader, index_bytes_max: u64) -> bool {
    let mut renew = || {
        let has_moved_on = vault.has_moved_on()?;
        if has_moved_on {
            vault.reload()?;
            reader.renew(vault, index_bytes_max)?;
        }
        Ok::<bool, Error>(has_moved_on)
    };
    renew().unwrap_or_else(|error| {
        standard::complain(error);
        false
    })
}

/// Waits until the file system is unmounted, or unmounts it for a signal; meanwhile calls `serve` repeatedly. Files
/// open then are served until they are closed, or another signal comes.
fn end_of(
    session: BackgroundSession,
    target: &Path,
    signals: &mut Signals,
    serve: &mut impl FnMut(),
) -> Result<()> {
    let mut is_ending = false;
    let mut passed = Duration::ZERO;
    while !session.guard.is_finished() {
        let is_asked = signals.pending().next().is_some();
        if is_asked && is_ending {
            // A program with a file open loses it when this one ends.
            std::mem::forget(session);
            return Ok(());
        }
        if is_asked {
            detach(target)?;
            is_ending = true;
        }
        serve();
        thread::sleep(LOOK);
        passed += if is_ending { LOOK } else { Duration::ZERO };
        if passed == PATIENCE {
            standard::tell("files are still open; another Ctrl-C ends it all the same");
        }
    }
    match session.join() {
        // The kernel reports the end of a connection as this error, as well as ENODEV, if it comes within a read of the
        // device.
        Err(error) if error.kind() == ErrorKind::ConnectionAborted => Ok(()),
        ended => Ok(ended?),
    }
}

/// Takes the file system out of the tree of folders, in use or not.
fn detach(target: &Path) -> Result<()> {
    if unmount(target, UnmountFlags::DETACH).is_ok() {
        return Ok(());
    }
    // Users other than root ask the program that mounted it.
    let ended = Command::new("fusermount3")
        .args(["-u", "-z", "--"])
        .arg(target)
        .status();
    let ended = ended.context("fusermount3")?;
    ensure!(ended.success(), "fusermount3: {ended}");
    Ok(())
}

fn config(options: &VaultOptions, mount: &MountOptions) -> Config {
    let name = match &options.repo {
        Some(repo) => repo.to_string_lossy().into_owned(),
        None => "vault".to_string(),
    };
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::RO,
        MountOption::NoDev,
        MountOption::NoSuid,
        // A comma would end the name.
        MountOption::FSName(name.replace(',', "_")),
        MountOption::Subtype("breakeven".to_string()),
    ];
    if mount.allow_other {
        config.acl = SessionACL::All;
        config.mount_options.push(MountOption::DefaultPermissions);
    }
    config.n_threads = Some(thread::available_parallelism().map_or(4, |it| it.get().clamp(4, 16)));
    config
}

/// Decodes ahead of streams, on threads that end with the file system.
fn read_ahead(reader: &Arc<RandomReader>, waiting: Receiver<(Arc<FileMap>, u64)>) -> Result<()> {
    let waiting = Arc::new(Mutex::new(waiting));
    for _ in 0..AHEAD_THREADS {
        let (reader, waiting) = (Arc::clone(reader), Arc::clone(&waiting));
        let work = move || {
            loop {
                let next = lock(&waiting).recv();
                let Ok((file, offset)) = next else { return };
                reader.prepare(&file, offset);
            }
        };
        thread::Builder::new().spawn(work).context("read ahead")?;
    }
    Ok(())
}

/// Returns a folder of all snapshots: by their numbers, by their times, and the latest.
fn all_snapshots(selected: &[(u64, Snapshot)], tree: &mut TreeReader) -> Result<Item> {
    let (mut tops, mut times) = (Vec::new(), Vec::new());
    let mut latest: Option<(Time, u64)> = None;
    for (epoch, snapshot) in selected {
        let epoch = *epoch;
        let mut top = look::found(tree, epoch, snapshot, b"/")?;
        top.name = epoch.to_string().into_bytes();
        top.changed = snapshot.begun;
        latest = latest.max(Some((snapshot.begun, epoch)));
        // A name without blanks, and different from another of the same second.
        let time = local(snapshot.begun).replace(' ', "_");
        times.push(link(
            &format!("{time}_{epoch}"),
            &format!("../{epoch}"),
            snapshot.begun,
        ));
        tops.push(Item::of(top, epoch));
    }
    let changed = latest.map_or(Time::default(), |(time, _)| time);
    if let Some((time, epoch)) = latest {
        tops.push(link(LATEST, &epoch.to_string(), time));
    }
    tops.push(folder(TIMES, times, changed));
    Ok(folder("", tops, changed))
}

fn made(name: &str, node: Node, changed: Time) -> Entry {
    Entry {
        name: name.as_bytes().to_vec(),
        mode: if matches!(node, Node::Link { .. }) {
            0o777
        } else {
            0o555
        },
        node,
        user: rustix::process::geteuid().as_raw(),
        group: rustix::process::getegid().as_raw(),
        changed,
        link_group: 0,
        attributes: Vec::new(),
    }
}

fn link(name: &str, target: &str, changed: Time) -> Item {
    let target = target.as_bytes().to_vec();
    Item::of(made(name, Node::Link { target }, changed), 0)
}

fn folder(name: &str, mut items: Vec<Item>, changed: Time) -> Item {
    items.sort_by(|one, other| one.entry.name.cmp(&other.entry.name));
    Item {
        inside: Some(Arc::new(items)),
        ..Item::of(made(name, Node::Folder { content: Id::NONE }, changed), 0)
    }
}

/// Something with a name.
#[derive(Clone)]
struct Item {
    entry: Arc<Entry>,
    /// The number of the snapshot that it is of.
    epoch: u64,
    /// The entries of a folder that belongs to no snapshot.
    inside: Option<Arc<Vec<Item>>>,
}

impl Item {
    fn of(entry: Entry, epoch: u64) -> Item {
        Item {
            entry: Arc::new(entry),
            epoch,
            inside: None,
        }
    }

    fn is_folder(&self) -> bool {
        matches!(self.entry.node, Node::Folder { .. })
    }

    /// Returns the key of its inode: for a file all that is known but its names, for other entries their place.
    fn key(&self, parent: u64) -> InodeKey {
        let Entry {
            node,
            mode,
            user,
            group,
            changed,
            link_group,
            attributes,
            name,
        } = &*self.entry;
        let Node::File {
            size_bytes,
            content,
            ..
        } = node
        else {
            return match link_group {
                0 => InodeKey::Named(parent, name.clone()),
                group => InodeKey::Linked(self.epoch, *group),
            };
        };
        InodeKey::File(Box::new(FileKey {
            content: *content,
            size_bytes: *size_bytes,
            owner: [*mode, *user, *group],
            changed: (changed.seconds, changed.nanoseconds),
            attributes: attributes.clone(),
            // Only names of one group are links of each other.
            links: (*link_group > 0).then_some((self.epoch, *link_group)),
        }))
    }

    fn attributes(&self, number: u64, usage: InodeUsage) -> FileAttr {
        let entry = &*self.entry;
        let (size, device) = match &entry.node {
            Node::File { size_bytes, .. } => (*size_bytes, 0),
            Node::Link { target } => (target.len() as u64, 0),
            Node::CharacterDevice { device } | Node::BlockDevice { device } => (0, *device),
            Node::Folder { .. } | Node::Pipe | Node::Socket => (0, 0),
        };
        let changed = system_time(entry.changed);
        FileAttr {
            ino: INodeNo(number),
            size,
            blocks: usage.data_bytes.div_ceil(512),
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: changed,
            kind: kind_of(entry),
            perm: (entry.mode & 0o7777) as u16,
            nlink: usage.link_count,
            uid: entry.user,
            gid: entry.group,
            rdev: device as u32,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }
}

fn kind_of(entry: &Entry) -> FileType {
    match entry.node {
        Node::File { .. } => FileType::RegularFile,
        Node::Folder { .. } => FileType::Directory,
        Node::Link { .. } => FileType::Symlink,
        Node::Pipe => FileType::NamedPipe,
        Node::Socket => FileType::Socket,
        Node::CharacterDevice { .. } => FileType::CharDevice,
        Node::BlockDevice { .. } => FileType::BlockDevice,
    }
}

fn system_time(time: Time) -> SystemTime {
    let below = Duration::from_nanos(time.nanoseconds.into());
    let whole = Duration::from_secs(time.seconds.unsigned_abs());
    let time = match time.seconds {
        0.. => UNIX_EPOCH.checked_add(whole),
        _ => UNIX_EPOCH.checked_sub(whole),
    };
    time.and_then(|it| it.checked_add(below))
        .unwrap_or(UNIX_EPOCH)
}

/// The key that tells one inode from all others.
#[derive(Clone, PartialEq, Eq, Hash)]
enum InodeKey {
    Root,
    File(Box<FileKey>),
    /// A name in the folder of this number.
    Named(u64, Vec<u8>),
    /// An entry with several names that is no file: the snapshot and the group of its hard links.
    Linked(u64, u64),
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct FileKey {
    content: Id,
    size_bytes: u64,
    /// Mode, user, group.
    owner: [u32; 3],
    changed: (i64, u32),
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The snapshot and the group of hard links in it.
    links: Option<(u64, u64)>,
}

impl InodeKey {
    /// Returns the number of an inode, unless another inode has it.
    fn number(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish().max(2)
    }
}

/// The facts about an inode that its entry lacks.
#[derive(Clone, Copy)]
struct InodeUsage {
    /// Names in its snapshot, 2 of a folder.
    link_count: u32,
    /// Bytes of a file that are no holes.
    data_bytes: u64,
}

/// An inode that the kernel knows.
struct Inode {
    item: Item,
    usage: InodeUsage,
    key: InodeKey,
    parent: u64,
    /// Times that the kernel was given it.
    lookups: u64,
    map: Weak<FileMap>,
}

/// The inodes that the kernel knows, by their numbers.
struct Inodes(HashMap<u64, Inode>);

impl Inodes {
    fn new(root: Item) -> Inodes {
        let root = Inode {
            item: root,
            usage: InodeUsage {
                link_count: 2,
                data_bytes: 0,
            },
            key: InodeKey::Root,
            parent: 1,
            lookups: 1,
            map: Weak::new(),
        };
        Inodes(HashMap::from([(1, root)]))
    }

    fn item(&self, number: u64) -> Option<Item> {
        Some(self.0.get(&number)?.item.clone())
    }

    /// Returns the path of an inode from the root on, as it was first found.
    fn path(&self, number: u64) -> Vec<u8> {
        let (mut names, mut at) = (Vec::new(), number);
        while at != 1
            && let Some(inode) = self.0.get(&at)
        {
            names.push(&inode.item.entry.name[..]);
            at = inode.parent;
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Returns the number of an item for the kernel.
    fn enter(&mut self, parent: u64, item: Item, usage: InodeUsage) -> u64 {
        let key = item.key(parent);
        let mut number = key.number();
        while let Some(known) = self.0.get_mut(&number) {
            if known.key == key {
                known.lookups += 1;
                return number;
            }
            number = number.wrapping_add(1).max(2);
        }
        let inode = Inode {
            item,
            usage,
            key,
            parent,
            lookups: 1,
            map: Weak::new(),
        };
        self.0.insert(number, inode);
        number
    }

    fn forget(&mut self, number: u64, lookups: u64) {
        if let Some(known) = self.0.get_mut(&number) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 && number != 1 {
                self.0.remove(&number);
            }
        }
    }
}

/// Folders that were decoded lately, by their contents.
#[derive(Default)]
struct Folders {
    known: HashMap<(Id, u64), Arc<Vec<Item>>>,
    entries: usize,
}

/// A file that a program has open.
struct OpenFile {
    map: Arc<FileMap>,
    /// Where a stream would go on.
    next: AtomicU64,
}

/// The file system.
struct SnapshotFiles {
    reader: Arc<RandomReader>,
    tree: Mutex<TreeReader>,
    inodes: Mutex<Inodes>,
    folders: Mutex<Folders>,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    next_handle: AtomicU64,
    ahead: SyncSender<(Arc<FileMap>, u64)>,
    /// Whether something could not be read.
    has_failed: Arc<AtomicBool>,
    /// Asks for the vault to be read again, and hears whether it was.
    renewals: Mutex<Sender<SyncSender<bool>>>,
    /// The inodes already reported as unreadable.
    told: Mutex<HashSet<u64>>,
    /// Names of each group of hard links, by snapshots.
    links: Mutex<HashMap<u64, Arc<HashMap<u64, u32>>>>,
    snapshots: HashMap<u64, Snapshot>,
}

impl SnapshotFiles {
    fn item(&self, number: INodeNo) -> std::result::Result<Item, Errno> {
        lock(&self.inodes).item(number.0).ok_or(Errno::ENOENT)
    }

    /// Reads, and once more if it fails and others have changed the vault since.
    fn read_again<T>(
        &self,
        number: u64,
        mut read: impl FnMut() -> std::result::Result<T, Error>,
    ) -> std::result::Result<T, Errno> {
        let first = match read() {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        let (answer, answered) = sync_channel(1);
        let is_asked = lock(&self.renewals).send(answer).is_ok();
        let again = match is_asked && answered.recv().unwrap_or(false) {
            true => {
                *lock(&self.tree) = self.reader.tree_reader();
                read()
            }
            false => Err(first),
        };
        again.map_err(|error| self.told(number, &error))
    }

    /// Reports the fault of a file once: the kernel only learns that there is one.
    fn told(&self, number: u64, error: &Error) -> Errno {
        self.has_failed.store(true, Ordering::Relaxed);
        if lock(&self.told).insert(number) {
            let path = lock(&self.inodes).path(number);
            standard::complain(format_args!("{}: {error}", look::shown(&path)));
        }
        Errno::EIO
    }

    /// Returns the entries of a folder, by names.
    fn inside(&self, number: u64, folder: &Item) -> std::result::Result<Arc<Vec<Item>>, Errno> {
        if let Some(inside) = &folder.inside {
            return Ok(Arc::clone(inside));
        }
        let Node::Folder { content } = folder.entry.node else {
            return Err(Errno::ENOTDIR);
        };
        let key = (content, folder.epoch);
        if let Some(known) = lock(&self.folders).known.get(&key) {
            return Ok(Arc::clone(known));
        }
        let entries = self.read_again(number, || lock(&self.tree).entries(&folder.entry))?;
        let items: Vec<_> = (entries.into_iter())
            .map(|entry| Item::of(entry, folder.epoch))
            .collect();
        let items = Arc::new(items);
        let mut folders = lock(&self.folders);
        if folders.entries > ENTRIES_KEPT {
            *folders = Folders::default();
        }
        folders.entries += items.len();
        folders.known.insert(key, Arc::clone(&items));
        Ok(items)
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> std::result::Result<FileAttr, Errno> {
        let inside = self.inside(parent.0, &self.item(parent)?)?;
        let found = inside.binary_search_by(|item| item.entry.name[..].cmp(name.as_bytes()));
        let item = inside[found.map_err(|_| Errno::ENOENT)?].clone();
        let usage = self.usage(parent.0, &item)?;
        let number = lock(&self.inodes).enter(parent.0, item.clone(), usage);
        Ok(item.attributes(number, usage))
    }

    /// Finds the facts that an entry lacks: where its holes are, and how many names it has.
    fn usage(&self, parent: u64, item: &Item) -> std::result::Result<InodeUsage, Errno> {
        let data_bytes = match item.entry.node {
            Node::File {
                is_sparse: true, ..
            } => self
                .read_again(parent, || self.reader.open(&item.entry))?
                .data_bytes(),
            Node::File { size_bytes, .. } => size_bytes,
            _ => 0,
        };
        let link_count = match (item.is_folder(), item.entry.link_group) {
            (true, _) => 2,
            (false, 0) => 1,
            (false, group) => {
                let links = self.links_of(parent, item.epoch)?;
                links.get(&group).copied().unwrap_or(1)
            }
        };
        Ok(InodeUsage {
            link_count,
            data_bytes,
        })
    }

    /// Counts the names of each group of hard links in a snapshot, when the first is looked at.
    fn links_of(
        &self,
        parent: u64,
        epoch: u64,
    ) -> std::result::Result<Arc<HashMap<u64, u32>>, Errno> {
        let mut links = lock(&self.links);
        if let Some(known) = links.get(&epoch) {
            return Ok(Arc::clone(known));
        }
        let snapshot = self.snapshots.get(&epoch).ok_or(Errno::EIO)?;
        let counted = self.read_again(parent, || {
            let mut counts = HashMap::new();
            let mut tree = self.reader.tree_reader();
            if let Some(root) = tree.find(snapshot, b"/")? {
                tree.walk::<Error>(&root, &mut |_, entry| {
                    if entry.link_group > 0 {
                        *counts.entry(entry.link_group).or_default() += 1;
                    }
                    Ok(true)
                })?;
            }
            Ok(counts)
        })?;
        let counted = Arc::new(counted);
        links.insert(epoch, Arc::clone(&counted));
        Ok(counted)
    }

    /// Opens a file; readers of one inode share the map of its bytes.
    fn open_file(&self, number: INodeNo) -> std::result::Result<u64, Errno> {
        let (item, known) = {
            let inodes = lock(&self.inodes);
            let inode = inodes.0.get(&number.0).ok_or(Errno::ENOENT)?;
            (inode.item.clone(), inode.map.upgrade())
        };
        let map = match known {
            Some(map) => map,
            None => {
                let opened = self.read_again(number.0, || self.reader.open(&item.entry))?;
                let map = Arc::new(opened);
                if let Some(inode) = lock(&self.inodes).0.get_mut(&number.0) {
                    inode.map = Arc::downgrade(&map);
                }
                map
            }
        };
        let handle = self.next_handle.fetch_add(1, Ordering::Relaxed);
        let file = OpenFile {
            map,
            next: AtomicU64::new(0),
        };
        lock(&self.files).insert(handle, Arc::new(file));
        Ok(handle)
    }

    fn file(&self, handle: FileHandle) -> std::result::Result<Arc<OpenFile>, Errno> {
        lock(&self.files)
            .get(&handle.0)
            .cloned()
            .ok_or(Errno::EBADF)
    }

    fn read_file(
        &self,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<usize, Errno> {
        let file = self.file(handle)?;
        let end = offset + buffer.len() as u64;
        // The kernel asks for the parts of a stream side by side.
        let next = file.next.fetch_max(end, Ordering::Relaxed);
        if offset.abs_diff(next) <= AHEAD_STEP && offset / AHEAD_STEP != end / AHEAD_STEP {
            for ahead in AHEAD_BYTES {
                // If all are busy, the stream does not wait for them.
                let _ = self.ahead.try_send((Arc::clone(&file.map), end + ahead));
            }
        } else if offset.abs_diff(next) > AHEAD_STEP {
            file.next.store(end, Ordering::Relaxed);
        }
        self.read_again(number.0, || self.reader.read_at(&file.map, offset, buffer))
    }

    fn names(&self, number: INodeNo) -> std::result::Result<(Arc<Vec<Item>>, u64), Errno> {
        let (item, parent) = {
            let inodes = lock(&self.inodes);
            let inode = inodes.0.get(&number.0).ok_or(Errno::ENOENT)?;
            (inode.item.clone(), inode.parent)
        };
        Ok((self.inside(number.0, &item)?, parent))
    }

    fn attribute(&self, number: INodeNo, name: &OsStr) -> std::result::Result<Vec<u8>, Errno> {
        let item = self.item(number)?;
        let found = (item.entry.attributes.iter()).find(|(known, _)| known == name.as_bytes());
        found.map(|(_, value)| value.clone()).ok_or(Errno::ENODATA)
    }
}

fn send_attribute(reply: ReplyXattr, value: &[u8], size: u32) {
    match size {
        0 => reply.size(value.len() as u32),
        _ if value.len() <= size as usize => reply.data(value),
        _ => reply.error(Errno::ERANGE),
    }
}

impl Filesystem for SnapshotFiles {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel without one of these does without it.
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_background(64);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.find(parent, name) {
            Ok(attributes) => reply.entry(&KEPT, &attributes, Generation(0)),
            Err(error) => reply.error(error),
        }
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        lock(&self.inodes).forget(number.0, lookups);
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match lock(&self.inodes).0.get(&number.0) {
            Some(inode) => {
                let attributes = inode.item.attributes(number.0, inode.usage);
                reply.attr(&KEPT, &attributes);
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        match self.item(number).map(|item| item.entry.node.clone()) {
            Ok(Node::Link { target }) => reply.data(&target),
            Ok(_) => reply.error(Errno::EINVAL),
            Err(error) => reply.error(error),
        }
    }

    fn open(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.open_file(number) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_KEEP_CACHE),
            Err(error) => reply.error(error),
        }
    }

    fn read(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let mut buffer = vec![0; size as usize];
        match self.read_file(number, handle, offset, &mut buffer) {
            Ok(count) => reply.data(&buffer[..count]),
            Err(error) => reply.error(error),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.files).remove(&handle.0);
        reply.ok();
    }

    fn lseek(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let size = match self.item(number).map(|it| it.entry.node.clone()) {
            Ok(Node::File { size_bytes, .. }) => size_bytes,
            Ok(_) => return reply.error(Errno::EINVAL),
            Err(error) => return reply.error(error),
        };
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(error),
        };
        let from = offset as u64;
        let found = match whence {
            _ if offset < 0 || from >= size => None,
            libc::SEEK_DATA => file.map.next_data(from),
            libc::SEEK_HOLE => Some(file.map.next_hole(from).unwrap_or(size)),
            _ => return reply.error(Errno::EINVAL),
        };
        match found {
            Some(found) => reply.offset(found as i64),
            None => reply.error(Errno::from_i32(SystemError::NXIO.raw_os_error())),
        }
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let keep = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR;
        reply.opened(FileHandle(0), keep);
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let (inside, parent) = match self.names(number) {
            Ok(found) => found,
            Err(error) => return reply.error(error),
        };
        let dots = [(number.0, "."), (parent, "..")];
        for (at, (number, name)) in dots.into_iter().enumerate().skip(offset as usize) {
            if reply.add(INodeNo(number), at as u64 + 1, FileType::Directory, name) {
                return reply.ok();
            }
        }
        let first = (offset as usize).saturating_sub(dots.len());
        for (at, item) in inside.iter().enumerate().skip(first) {
            let name = OsStr::from_bytes(&item.entry.name);
            let number = INodeNo(item.key(number.0).number());
            if reply.add(
                number,
                (at + dots.len() + 1) as u64,
                kind_of(&item.entry),
                name,
            ) {
                break;
            }
        }
        reply.ok();
    }

    fn getxattr(&self, _: &Request, number: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        match self.attribute(number, name) {
            Ok(value) => send_attribute(reply, &value, size),
            Err(error) => reply.error(error),
        }
    }

    fn listxattr(&self, _: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        match self.item(number) {
            Ok(item) => {
                let names = item.entry.attributes.iter();
                let names: Vec<u8> = names
                    .flat_map(|(name, _)| name.iter().copied().chain([0]))
                    .collect();
                send_attribute(reply, &names, size);
            }
            Err(error) => reply.error(error),
        }
    }
}

/// Locks a value that a panic elsewhere leaves valid.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
