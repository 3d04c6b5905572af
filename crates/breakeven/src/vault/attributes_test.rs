//! Attributes, modes and links through a vault, and attempts to turn a restore against other files.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::fs::{FileType, Mode, XattrFlags};

use super::trees_test::{memory_vault, options, over_what_exists, pool, restored};
use super::*;

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

fn value(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 64 << 10];
    let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

fn add(vault: &mut Vault, root: &Path, options: &AddOptions) -> Added {
    let added = vault.add(&pool(), &[root.to_path_buf()], options, &mut |_| ());
    added.unwrap()
}

/// An access control list that lets user 1234 read and write, as the system stores it.
fn access_list() -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let all = u32::MAX;
    for (tag, rights, id) in [
        (1u16, 6u16, all),
        (2, 6, 1234),
        (4, 4, all),
        (16, 6, all),
        (32, 4, all),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&rights.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    list
}

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";

/// A file and a folder carry attributes of many lengths; the file may not be written. All come back, also over entries
/// that have other attributes.
#[test]
fn attributes_come_back_as_they_were() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::create_dir(root.join("folder")).unwrap();
    for name in ["folder/file", "plain", "shut"] {
        fs::write(root.join(name), "content").unwrap();
    }
    let long = vec![7; 2000];
    for (name, attribute, value) in [
        ("folder", "user.folder", &b"f"[..]),
        ("folder/file", "user.empty", b""),
        ("folder/file", "user.long", &long[..]),
        ("shut", "user.k", b"v"),
        ("shut", ACCESS_LIST, &access_list()),
        ("folder", DEFAULT_LIST, &access_list()),
    ] {
        set(&root.join(name), attribute, value);
    }
    fs::set_permissions(root.join("shut"), fs::Permissions::from_mode(0o464)).unwrap();
    let list = value(&root.join("shut"), ACCESS_LIST).expect("a list");
    let (_, mut vault) = memory_vault();
    let added = add(&mut vault, root, &options(1));
    assert!(added.problems.is_empty(), "{:?}", added.problems);
    let (target, back) = restored(&vault, added.epoch, root);
    let check = || {
        assert_eq!(value(&back.join("folder"), "user.folder").unwrap(), b"f");
        assert_eq!(
            value(&back.join("folder"), DEFAULT_LIST).unwrap(),
            access_list()
        );
        assert_eq!(value(&back.join("folder/file"), "user.empty").unwrap(), b"");
        assert_eq!(value(&back.join("folder/file"), "user.long").unwrap(), long);
        assert_eq!(value(&back.join("folder/file"), ACCESS_LIST), None);
        assert_eq!(value(&back.join("shut"), "user.k").unwrap(), b"v");
        assert_eq!(value(&back.join("shut"), ACCESS_LIST).as_ref(), Some(&list));
        assert_eq!(value(&back.join("plain"), "user.other"), None);
        let mode = fs::metadata(back.join("shut")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o464);
    };
    check();
    for name in ["plain", "folder"] {
        set(&back.join(name), "user.other", b"more");
    }
    let over = over_what_exists();
    let done = vault.restore(&pool(), added.epoch, target.path(), &over, &mut |_| ());
    assert!(done.as_ref().unwrap().problems.is_empty(), "{done:?}");
    assert_eq!(value(&back.join("folder"), "user.other"), None);
    check();
}

/// A default list that the target's folder hands down to new files was not stored, so it goes.
#[test]
fn a_default_list_of_the_target_does_not_stay() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::write(root.join("file"), "content").unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    let (_, mut vault) = memory_vault();
    let epoch = add(&mut vault, root, &options(1)).epoch;
    let target = tempfile::tempdir().unwrap();
    set(target.path(), DEFAULT_LIST, &access_list());
    let keep = RestoreOptions::default();
    let done = vault.restore(&pool(), epoch, target.path(), &keep, &mut |_| ());
    assert!(done.as_ref().unwrap().problems.is_empty(), "{done:?}");
    let back = target.path().join(root.strip_prefix("/").unwrap());
    for name in ["", "file", "pipe"] {
        let path = back.join(name);
        assert_eq!(value(&path, ACCESS_LIST), None, "{name}");
        let mode = |path: &Path| fs::symlink_metadata(path).unwrap().mode();
        assert_eq!(mode(&path), mode(&root.join(name)), "{name}");
    }
}

/// Commits the newest snapshot once more, as an earlier version wrote it: without attributes.
fn as_of_before(vault: &mut Vault) -> u64 {
    let (_, snapshot) = vault.snapshots().unwrap().pop().expect("a snapshot");
    let pool = pool();
    let index = vault.index(u64::MAX).unwrap();
    let mut chunks = contents::Chunks::new(&vault.far, &vault.keys);
    let mut writer = Writer::new(vault, &pool, WriterOptions::default()).unwrap();
    let ids = [snapshot.folder, snapshot.stamps];
    let [folder, stamps] = without_attributes(&mut chunks, &index, &mut writer, ids);
    let before = Snapshot {
        folder,
        stamps,
        has_attributes: false,
        ..snapshot
    };
    writer.commit(before).unwrap()
}

fn without_attributes(
    chunks: &mut contents::Chunks,
    index: &index::Index,
    writer: &mut Writer<'_>,
    ids: [Id; 2],
) -> [Id; 2] {
    if ids[0] == Id::NONE {
        return ids;
    }
    let (mut entries, mut stamps) = chunks.folder_and_stamps(index, ids).unwrap();
    for (entry, stamp) in entries.iter_mut().zip(&mut stamps) {
        entry.attributes.clear();
        if let Node::Folder { content } = &mut entry.node {
            let ids = [*content, stamp.folder];
            [*content, stamp.folder] = without_attributes(chunks, index, writer, ids);
        }
    }
    writer.add_folder(&entries, &stamps).unwrap().into()
}

#[test]
fn attributes_that_a_snapshot_of_before_lacks_are_read_once_and_its_files_are_not() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::write(root.join("file"), "content").unwrap();
    symlink("nowhere", root.join("link")).unwrap();
    set(&root.join("file"), "user.k", b"v");
    let (_, mut vault) = memory_vault();
    add(&mut vault, root, &options(1));
    let before = as_of_before(&mut vault);
    let target = tempfile::tempdir().unwrap();
    let keep = RestoreOptions::default();
    let done = vault.restore(&pool(), before, target.path(), &keep, &mut |_| ());
    assert!(!done.unwrap().has_attributes);
    for day in [2, 3] {
        let added = add(&mut vault, root, &options(day));
        assert_eq!(added.unchanged_files, 1, "{added:?}");
        assert_eq!(added.read, ReadFiles::default());
        assert!(added.snapshot.has_attributes);
        let (_target, back) = restored(&vault, added.epoch, root);
        assert_eq!(value(&back.join("file"), "user.k").unwrap(), b"v");
    }
}

#[test]
fn a_folder_that_exists_keeps_its_mode_unless_it_is_replaced() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::create_dir(root.join("folder")).unwrap();
    fs::write(root.join("folder/file"), "content").unwrap();
    fs::set_permissions(root.join("folder"), fs::Permissions::from_mode(0o777)).unwrap();
    let (_, mut vault) = memory_vault();
    let epoch = add(&mut vault, root, &options(1)).epoch;
    let target = tempfile::tempdir().unwrap();
    let back = target.path().join(root.strip_prefix("/").unwrap());
    fs::create_dir_all(back.join("folder")).unwrap();
    fs::set_permissions(back.join("folder"), fs::Permissions::from_mode(0o710)).unwrap();
    for (restoring, mode) in [
        (RestoreOptions::default(), 0o710),
        (over_what_exists(), 0o777),
    ] {
        let done = vault.restore(&pool(), epoch, target.path(), &restoring, &mut |_| ());
        assert!(done.as_ref().unwrap().problems.is_empty(), "{done:?}");
        let found = fs::metadata(back.join("folder")).unwrap().mode() & 0o7777;
        assert_eq!(found, mode, "{found:o}");
    }
}

/// A program's set-user and set-group bits stay off where its owner or group is not restored.
#[test]
fn a_program_is_lent_no_other_owner() {
    let (_, mut vault) = memory_vault();
    let own = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let mut entries = Vec::new();
    for (name, user, group) in [
        (&b"both"[..], own.0 + 1, own.1 + 1),
        (b"group", own.0, own.1 + 1),
        (b"own", own.0, own.1),
    ] {
        entries.push(Entry {
            mode: 0o6755,
            user,
            group,
            ..trees_test::entry(name, Node::Pipe)
        });
    }
    let epoch = trees_test::hostile(&mut vault, &entries);
    let target = tempfile::tempdir().unwrap();
    let restoring = RestoreOptions {
        owners: false,
        ..RestoreOptions::default()
    };
    let done = vault.restore(&pool(), epoch, target.path(), &restoring, &mut |_| ());
    assert!(done.as_ref().unwrap().problems.is_empty(), "{done:?}");
    for (name, mode) in [("both", 0o755), ("group", 0o4755), ("own", 0o6755)] {
        let found = fs::symlink_metadata(target.path().join(name))
            .unwrap()
            .mode();
        assert_eq!(found & 0o7777, mode, "{name}: {found:o}");
    }
}

/// Links, pipes and files of several names, over nothing and over themselves; a link that lies there already stays.
#[test]
fn names_of_one_inode_stay_together_and_equal_links_stay() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    symlink("nowhere", root.join("link")).unwrap();
    fs::write(root.join("file"), "content").unwrap();
    set(&root.join("file"), "user.k", b"v");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        FileType::Fifo,
        Mode::RUSR,
        0,
    )
    .unwrap();
    fs::create_dir(root.join("z")).unwrap();
    for name in ["link", "file", "pipe"] {
        fs::hard_link(root.join(name), root.join("z").join(name)).unwrap();
    }
    let (_, mut vault) = memory_vault();
    for day in [1, 2] {
        let epoch = add(&mut vault, root, &options(day)).epoch;
        let (target, back) = restored(&vault, epoch, root);
        let inode = |path: PathBuf| fs::symlink_metadata(path).unwrap().ino();
        let check = || {
            for name in ["link", "file", "pipe"] {
                let inodes = [back.join(name), back.join("z").join(name)].map(inode);
                assert_eq!(inodes[0], inodes[1], "{name}, day {day}");
            }
        };
        check();
        let done = vault.restore(
            &pool(),
            epoch,
            target.path(),
            &over_what_exists(),
            &mut |_| (),
        );
        assert!(done.as_ref().unwrap().problems.is_empty(), "{done:?}");
        check();
        let link = inode(back.join("link"));
        for name in ["file", "pipe"] {
            fs::remove_file(back.join(name)).unwrap();
            fs::remove_file(back.join("z").join(name)).unwrap();
        }
        let keep = RestoreOptions::default();
        let done = vault.restore(&pool(), epoch, target.path(), &keep, &mut |_| ());
        assert!(done.as_ref().unwrap().problems.is_empty(), "{done:?}");
        assert_eq!(inode(back.join("link")), link);
        check();
        fs::remove_file(back.join("link")).unwrap();
        symlink("elsewhere", back.join("link")).unwrap();
        let done = vault.restore(&pool(), epoch, target.path(), &keep, &mut |_| ());
        let problems = done.unwrap().problems;
        assert!(
            problems.iter().any(|(path, _)| *path == back.join("link")),
            "{problems:?}"
        );
    }
}

/// Puts links to others' files in place of one node after another, as soon as each is made.
fn swap_each(
    folder: &Path,
    hidden: &Path,
    others: &[PathBuf; 2],
    count: usize,
    is_over: &AtomicBool,
    swaps: &AtomicUsize,
) {
    let mut at = 0;
    while !is_over.load(Ordering::Relaxed) {
        let path = folder.join(format!("p{at}"));
        if fs::symlink_metadata(&path).is_err() {
            std::hint::spin_loop();
            continue;
        }
        let _ = match at % 3 {
            0 => fs::hard_link(&others[1], hidden),
            kind => symlink(&others[kind - 1], hidden),
        };
        swaps.fetch_add(
            usize::from(fs::rename(hidden, &path).is_ok()),
            Ordering::Relaxed,
        );
        at = (at + 1).min(count - 1);
    }
}

/// A process that may write in the folder replaces new entries by links to a file of others, as fast as it can.
#[test]
fn no_file_outside_is_changed_by_whoever_swaps_what_is_restored() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    let count = if crate::testing::is_full() {
        20_000
    } else {
        1000
    };
    let folder = fs::File::open(root).unwrap();
    for at in 0..count {
        let kind = if at % 2 == 0 {
            FileType::Fifo
        } else {
            FileType::Socket
        };
        rustix::fs::mknodat(
            &folder,
            format!("p{at}"),
            kind,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        fs::set_permissions(
            root.join(format!("p{at}")),
            fs::Permissions::from_mode(0o666),
        )
        .unwrap();
    }
    let (_, mut vault) = memory_vault();
    let epoch = add(&mut vault, root, &options(1)).epoch;
    let target = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let files = ["file", "pipe"].map(|name| outside.path().join(name));
    fs::write(&files[0], "secret").unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, &files[1], FileType::Fifo, Mode::RUSR, 0).unwrap();
    fs::set_permissions(&files[0], fs::Permissions::from_mode(0o600)).unwrap();
    let before = files.each_ref().map(|it| fs::symlink_metadata(it).unwrap());
    let back = target.path().join(root.strip_prefix("/").unwrap());
    fs::create_dir_all(&back).unwrap();
    let (is_over, swaps) = (AtomicBool::new(false), AtomicUsize::new(0));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            let hidden = target.path().join("hidden");
            swap_each(&back, &hidden, &files, count, &is_over, &swaps);
        });
        let keep = RestoreOptions::default();
        let done = vault.restore(&pool(), epoch, target.path(), &keep, &mut |_| ());
        is_over.store(true, Ordering::Relaxed);
        done
    });
    let caught = done.unwrap().problems.len();
    println!("{} swaps, {caught} of which were met", swaps.into_inner());
    for (path, before) in files.iter().zip(&before) {
        let after = fs::symlink_metadata(path).unwrap();
        assert_eq!(after.mode(), before.mode(), "{}", path.display());
        assert_eq!(
            after.mtime_nsec(),
            before.mtime_nsec(),
            "{}",
            path.display()
        );
    }
}

/// Each thing that can lie in place of a node that was made.
#[test]
fn what_takes_the_place_of_a_node_is_told() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    let make = |name: &str, kind| {
        let path = root.join(name);
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, Mode::RUSR, 0).unwrap();
    };
    make("pipe", FileType::Fifo);
    make("twice", FileType::Fifo);
    make("socket", FileType::Socket);
    fs::hard_link(root.join("twice"), root.join("other")).unwrap();
    fs::write(root.join("file"), "content").unwrap();
    symlink("pipe", root.join("link")).unwrap();
    let wanted = trees_test::entry(b"node", Node::Pipe);
    for (name, is_it) in [
        ("pipe", true),
        ("twice", false),
        ("socket", false),
        ("file", false),
        ("link", false),
    ] {
        let held = rustix::fs::open(root.join(name), walk::NODE_FLAGS, Mode::empty()).unwrap();
        let status = rustix::fs::fstat(held.as_fd()).unwrap();
        assert_eq!(metadata::is_new_node(&status, &wanted), is_it, "{name}");
    }
}

#[test]
fn a_folder_that_takes_the_place_of_a_new_one_is_told() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::create_dir_all(root.join("full/.hidden")).unwrap();
    for (name, is_empty) in [("full", false), ("full/.hidden", true)] {
        let held = rustix::fs::open(root.join(name), restore::FOLDER_FLAGS, Mode::empty());
        assert_eq!(
            restore::is_empty(&held.unwrap()).unwrap(),
            is_empty,
            "{name}"
        );
    }
}
