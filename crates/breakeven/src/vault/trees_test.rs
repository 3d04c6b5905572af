//! Trees of the real file system through a vault in a real folder, and entries that try to leave it.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fastrand::Rng;

use crate::pool::{Pool, PoolOptions};
use crate::storage::{MemoryStorage, RealStorage, Storage};

use super::writer::Group;
use super::*;

pub(super) const PASSWORD: &[u8] = b"correct horse";
pub(super) const COST: PasswordCost = PasswordCost {
    memory_kib: 8,
    passes: 1,
    lanes: 1,
};

pub(super) fn memory_vault() -> (Arc<dyn Storage>, Vault) {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let made = Vault::init(
        FolderEnd::shared(Arc::clone(&storage)),
        VaultOptions::default(),
        PASSWORD,
        COST,
        Entropy::seeded(1),
    );
    (storage, made.unwrap())
}

pub(super) fn pool() -> Pool {
    Pool::new(PoolOptions { worker_count: 2 }).unwrap()
}

/// The time now, and a day later, when no file is young any more.
pub(super) fn options(days: i64) -> AddOptions {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    AddOptions {
        now: Time {
            seconds: now.as_secs() as i64 + days * 86_400,
            nanoseconds: 0,
        },
        ..AddOptions::default()
    }
}

pub(super) fn noise(random: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.u8(..)).collect()
}

/// A tree with some of every kind that needs no root.
fn make_tree(root: &Path) {
    let mut random = Rng::with_seed(crate::testing::seed(11));
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    fs::write(root.join("text"), "one line of text\n".repeat(9000)).unwrap();
    let big = noise(&mut random, 3_000_000);
    fs::write(root.join("deep/big"), &big).unwrap();
    fs::write(root.join("deep/er/clone"), &big).unwrap();
    fs::write(root.join("deep/er/shifted"), [b"x", &big[..]].concat()).unwrap();
    fs::hard_link(root.join("deep/big"), root.join("deep/er/still/same")).unwrap();
    symlink("../nowhere", root.join("deep/link")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"in the middle", 5_000_000).unwrap();
    sparse.set_len(20_000_000).unwrap();
    fs::set_permissions(root.join("text"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o500)).unwrap();
}

/// All visible facts about a tree, by path.
fn seen(root: &Path) -> Vec<String> {
    let mut seen = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let full = root.join(&path);
        let status = fs::symlink_metadata(&full).unwrap();
        let content = if status.is_file() {
            blake3::hash(&fs::read(&full).unwrap()).to_hex().to_string()
        } else if status.is_symlink() {
            fs::read_link(&full).unwrap().display().to_string()
        } else {
            left.extend(
                fs::read_dir(&full)
                    .unwrap()
                    .map(|entry| path.join(entry.unwrap().file_name())),
            );
            String::new()
        };
        let links = if status.is_dir() { 0 } else { status.nlink() };
        seen.push(format!(
            "{} {:o} {} {} {}.{} {links} {content}",
            path.display(),
            status.mode(),
            status.uid(),
            status.gid(),
            status.mtime(),
            status.mtime_nsec()
        ));
    }
    seen.sort();
    seen
}

pub(super) fn restored(vault: &Vault, epoch: u64, source: &Path) -> (tempfile::TempDir, PathBuf) {
    let target = tempfile::tempdir().unwrap();
    let done = vault
        .restore(
            &pool(),
            epoch,
            target.path(),
            &RestoreOptions::default(),
            &mut |_| (),
        )
        .unwrap();
    assert!(done.problems.is_empty(), "{:?}", done.problems);
    let path = target.path().join(source.strip_prefix("/").unwrap());
    (target, path)
}

#[test]
fn a_tree_comes_back_as_it_was() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("tree");
    make_tree(&root);
    let folder = tempfile::tempdir().unwrap();
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::open_folder(folder.path()).unwrap());
    let made = Vault::init(
        FolderEnd::shared(Arc::clone(&storage)),
        VaultOptions::default(),
        PASSWORD,
        COST,
        Entropy::system().unwrap(),
    );
    let mut vault = made.unwrap();
    let added = vault
        .add(
            &pool(),
            std::slice::from_ref(&root),
            &options(1),
            &mut |_| (),
        )
        .unwrap();
    assert!(added.problems.is_empty(), "{:?}", added.problems);
    // The clone costs nothing, the shifted one little, the holes nothing.
    assert!(
        added.snapshot.stored_bytes < 3_400_000,
        "{:?}",
        added.snapshot
    );
    drop(vault);
    let vault = Vault::open(
        FolderEnd::shared(storage),
        PASSWORD,
        Entropy::system().unwrap(),
    )
    .unwrap();
    let (_target, back) = restored(&vault, added.epoch, &root);
    assert_eq!(seen(&back), seen(&root));
    let sparse = fs::metadata(back.join("sparse")).unwrap();
    assert!(
        sparse.blocks() * 512 < 1_000_000,
        "{} blocks",
        sparse.blocks()
    );
    let verified = vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
    assert!(verified.chunks > 40);
}

#[test]
fn an_unchanged_tree_is_added_again_for_next_to_nothing() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("tree");
    make_tree(&root);
    let (_, mut vault) = memory_vault();
    let first = vault
        .add(
            &pool(),
            std::slice::from_ref(&root),
            &options(1),
            &mut |_| (),
        )
        .unwrap();
    let before = vault.stored_bytes().unwrap();
    let second = vault
        .add(
            &pool(),
            std::slice::from_ref(&root),
            &options(2),
            &mut |_| (),
        )
        .unwrap();
    assert_eq!(second.snapshot.parent, first.epoch);
    assert_eq!(second.unchanged_files, second.snapshot.files);
    // The folders above the tree may have other times meanwhile; each is then a new folder.
    let added = vault.stored_bytes().unwrap() - before;
    assert!(added < 2000, "{added} bytes");
    // A file that is read again all the same makes no difference.
    let rereads = AddOptions {
        rereads: true,
        ..options(3)
    };
    let third = vault
        .add(&pool(), std::slice::from_ref(&root), &rereads, &mut |_| ())
        .unwrap();
    assert_eq!(third.unchanged_files, 0);
    let new = third.snapshot.new_raw_bytes;
    assert!(new < 1000, "{new} bytes");
    fs::write(root.join("text"), "another").unwrap();
    let fourth = vault
        .add(
            &pool(),
            std::slice::from_ref(&root),
            &options(4),
            &mut |_| (),
        )
        .unwrap();
    let (_target, back) = restored(&vault, fourth.epoch, &root);
    assert_eq!(fs::read(back.join("text")).unwrap(), b"another");
}

/// The length of an image's chunks.
const IMAGE_BLOCK_BYTES: usize = 8 << 10;

/// The image of a disk of 200 blocks, the last not whole; 20 are zeros.
fn image() -> Vec<u8> {
    let block = IMAGE_BLOCK_BYTES;
    let mut random = Rng::with_seed(crate::testing::seed(12));
    let mut image = noise(&mut random, 200 * block - 512);
    image[510..512].copy_from_slice(b"\x55\xaa");
    image[40 * block..60 * block].fill(0);
    image
}

/// The image of a disk, and the same with some blocks overwritten and one zeroed.
#[test]
fn of_an_image_only_blocks_that_changed_are_stored_again() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("images");
    fs::create_dir(&root).unwrap();
    let (block, mut image) = (IMAGE_BLOCK_BYTES, image());
    let (_, mut vault) = memory_vault();
    let mut add = |image: &[u8], day: i64| {
        fs::write(root.join("image"), image).unwrap();
        let roots = std::slice::from_ref(&root);
        let added = vault.add(&pool(), roots, &options(day), &mut |_| ());
        let added = added.unwrap();
        let (_target, back) = restored(&vault, added.epoch, &root);
        assert!(fs::read(back.join("image")).unwrap() == image, "day {day}");
        added.snapshot.new_raw_bytes
    };
    let first = add(&image, 1);
    assert!(first < 182 * block as u64, "{first} bytes");
    for changed in [70, 90, 199] {
        image[changed * block + 100] ^= 1;
    }
    image[100 * block..101 * block].fill(0);
    let second = add(&image, 2);
    let lists = 8 << 10;
    assert!(second < 3 * block as u64 + lists, "{second} bytes");
}

/// A file of the same size, with its times and inode as before, that changed within the clock's grain.
#[test]
fn a_file_as_young_as_the_snapshot_is_read_again() {
    let source = tempfile::tempdir().unwrap();
    fs::write(source.path().join("young"), b"before").unwrap();
    let (_, mut vault) = memory_vault();
    let paths = [source.path().to_path_buf()];
    vault
        .add(&pool(), &paths, &options(0), &mut |_| ())
        .unwrap();
    let again = vault
        .add(&pool(), &paths, &options(0), &mut |_| ())
        .unwrap();
    assert_eq!(again.unchanged_files, 0);
}

#[test]
fn excludes_caches_and_streams_do_as_they_say() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::create_dir(root.join("cache")).unwrap();
    fs::write(
        root.join("cache/CACHEDIR.TAG"),
        "Signature: 8a477f597d28d172789f06886806bc55\n",
    )
    .unwrap();
    fs::write(root.join("cache/big"), vec![1; 1000]).unwrap();
    fs::write(root.join("a.o"), b"object").unwrap();
    fs::write(root.join("a.c"), b"source").unwrap();
    let (_, mut vault) = memory_vault();
    let options = AddOptions {
        excludes: PathPatterns::new([b"*.o".to_vec()]),
        excludes_caches: true,
        ..options(1)
    };
    let added = vault
        .add(&pool(), &[root.to_path_buf()], &options, &mut |_| ())
        .unwrap();
    let (_target, back) = restored(&vault, added.epoch, root);
    let names: Vec<String> = seen(&back)
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_string())
        .collect();
    assert_eq!(names, ["", "a.c", "cache", "cache/CACHEDIR.TAG"]);
    let mut stream = &b"from a pipe"[..];
    let added = vault
        .add_stream(&pool(), b"stdin", &mut stream, &options)
        .unwrap();
    let (_target, back) = restored(&vault, added.epoch, Path::new("/stdin"));
    assert_eq!(fs::read(back).unwrap(), b"from a pipe");
}

/// Stores entries as a hostile writer with the key would.
pub(super) fn hostile(vault: &mut Vault, entries: &[Entry]) -> u64 {
    let mut writer = Writer::new(vault, &pool(), WriterOptions::default()).unwrap();
    let stamps = vec![Stamp::default(); entries.len()];
    let (folder, stamps) = writer.add_folder(entries, &stamps).unwrap();
    writer
        .commit(Snapshot {
            folder,
            stamps,
            ..Snapshot::default()
        })
        .unwrap()
}

pub(super) fn entry(name: &[u8], node: Node) -> Entry {
    let changed = Time::default();
    Entry {
        name: name.to_vec(),
        node,
        mode: 0o644,
        user: 0,
        group: 0,
        changed,
        link_group: 0,
        attributes: Vec::new(),
    }
}

#[test]
fn a_hostile_vault_writes_nothing_outside_and_fills_nothing() {
    let (_, mut vault) = memory_vault();
    let mut writer = Writer::new(&mut vault, &pool(), WriterOptions::default()).unwrap();
    let (content, size_bytes) = writer.add_content(&mut &b"escaped"[..]).unwrap();
    let file = |size_bytes| Node::File {
        size_bytes,
        is_sparse: false,
        is_torn: false,
        content,
    };
    let inner = [entry(b"victim", file(size_bytes))];
    let (below, _) = writer.add_folder(&inner, &[Stamp::default()]).unwrap();
    writer.commit(Snapshot::default()).unwrap();
    let outside = tempfile::tempdir().unwrap();
    let check = |vault: &mut Vault, entries: &[Entry], options: &RestoreOptions| {
        let epoch = hostile(vault, entries);
        let target = outside.path().join("target");
        fs::create_dir_all(&target).unwrap();
        // A link that lies in the target already leads out of it.
        let _ = symlink(outside.path(), target.join("out"));
        let done = vault.restore(&pool(), epoch, &target, options, &mut |_| ());
        assert!(done.is_err() || done.is_ok_and(|it| !it.problems.is_empty()));
        assert!(!outside.path().join("victim").exists());
        let _ = fs::remove_dir_all(&target);
    };
    let keep = RestoreOptions::default();
    for name in [&b"../victim"[..], b"..", b"/victim", b"a/b"] {
        check(&mut vault, &[entry(name, file(size_bytes))], &keep);
    }
    check(
        &mut vault,
        &[entry(b"out", Node::Folder { content: below })],
        &keep,
    );
    let replaces = RestoreOptions {
        replaces: true,
        ..RestoreOptions::default()
    };
    check(
        &mut vault,
        &[entry(b"out", Node::Folder { content: below })],
        &replaces,
    );
    // A file that states a greater length than its content's, and an entry that is no folder.
    check(&mut vault, &[entry(b"long", file(1 << 60))], &keep);
    check(&mut vault, &[entry(b"long", file(size_bytes + 1))], &keep);
    check(
        &mut vault,
        &[entry(b"folder", Node::Folder { content })],
        &keep,
    );
    let few = RestoreOptions {
        entries_max: 1,
        ..RestoreOptions::default()
    };
    check(
        &mut vault,
        &[entry(b"a", file(size_bytes)), entry(b"b", file(size_bytes))],
        &few,
    );
}

/// Stores a list as a hostile writer would, under an identity that is not the content's.
fn hostile_list(writer: &mut Writer<'_>, id: Id, depth: u8, raw_bytes: u64, items: &[u8]) {
    let mut list = vec![depth];
    bytes::put_number(&mut list, raw_bytes);
    list.extend_from_slice(items);
    let (group, kind) = (Group::Lists, pack::ChunkKind::List);
    writer.put_chunk(group, kind, id, &list).unwrap();
}

/// Lists that state lengths beyond any time, or beyond any memory.
#[test]
fn a_list_takes_no_more_time_and_memory_than_the_file_says() {
    let (_, mut vault) = memory_vault();
    let pool = pool();
    let mut writer = Writer::new(&mut vault, &pool, WriterOptions::default()).unwrap();
    let id = |number: u8| Id([number; 16]);
    let mut zeros = Vec::new();
    bytes::put_number(&mut zeros, (1 << 63) | 1);
    hostile_list(&mut writer, id(1), 1, 1 << 62, &zeros);
    hostile_list(&mut writer, id(2), 1, 10, &zeros);
    // Each level names the one below 5,000 times: the items take 2 TB, and the content states a greater length.
    let mut below = vec![7u8; 1000];
    for _ in 0..3 {
        let below_id = writer.vault().keys.id(&below);
        let (group, kind) = (Group::Lists, pack::ChunkKind::Plain);
        writer.put_chunk(group, kind, below_id, &below).unwrap();
        let mut item = Vec::new();
        bytes::put_number(&mut item, (below.len() as u64) << 1);
        item.extend_from_slice(&below_id.0);
        below = item.repeat(5000);
    }
    hostile_list(&mut writer, id(3), 3, 1 << 62, &below);
    // Items of no bytes; a file of any length has room for all.
    hostile_list(&mut writer, id(4), 1, 10, &[1; 100_000]);
    writer.commit(Snapshot::default()).unwrap();
    let index = vault.index(u64::MAX).unwrap();
    let mut chunks = contents::Chunks::new(&vault.far, &vault.keys);
    for number in 1..5 {
        let (mut taken, id) = (0, id(number));
        let read = chunks.read(&index, id, &mut |piece| {
            taken += match piece {
                contents::Piece::Bytes(bytes) => bytes.len() as u64,
                contents::Piece::Zeros(count) => count,
            };
            match taken <= 10_000_000 {
                true => Ok(()),
                false => Err(Error::invalid("file", "no longer than it says")),
            }
        });
        assert!(read.is_err(), "list {number}");
        if number % 2 == 0 {
            let mut source = chunks.source(&index, id).unwrap();
            let read = writer::Source::read(&mut source, &mut [0; 100]);
            assert!(read.is_err(), "list {number} as a source");
            assert!(chunks.each_chunk(&index, id, &mut |_| ()).is_err());
        }
        let node = Node::File {
            size_bytes: 10,
            is_sparse: false,
            is_torn: false,
            content: id,
        };
        let epoch = hostile(&mut vault, &[entry(b"file", node)]);
        let target = tempfile::tempdir().unwrap();
        let keep = RestoreOptions::default();
        let done = vault.restore(&pool, epoch, target.path(), &keep, &mut |_| ());
        assert_eq!(done.unwrap().problems.len(), 1, "list {number}");
    }
}

/// A folder that lies in itself. A holder of the key can list it under a name that is not its hash.
#[test]
fn a_folder_within_itself_is_refused() {
    let (_, mut vault) = memory_vault();
    let mut writer = Writer::new(&mut vault, &pool(), WriterOptions::default()).unwrap();
    let itself = Id([7; 16]);
    let inner = [entry(b"below", Node::Folder { content: itself })];
    let folder = super::folder::write_folder(&inner);
    let stamp = Stamp {
        folder: itself,
        ..Stamp::default()
    };
    let (_, stamps) = writer.add_folder(&inner, &[stamp]).unwrap();
    let (group, chunk) = (Group::Folders, pack::ChunkKind::Plain);
    writer.put_chunk(group, chunk, itself, &folder).unwrap();
    let snapshot = Snapshot {
        folder: itself,
        stamps,
        ..Snapshot::default()
    };
    let epoch = writer.commit(snapshot).unwrap();
    let target = tempfile::tempdir().unwrap();
    let keep = RestoreOptions::default();
    let done = vault.restore(&pool(), epoch, target.path(), &keep, &mut |_| ());
    assert!(done.is_err() || done.is_ok_and(|it| !it.problems.is_empty()));
    assert!(!target.path().join("below/below").exists());
    let verified = vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(!verified.damages.is_empty());
}

#[test]
fn passwords_come_and_go() {
    let (storage, mut vault) = memory_vault();
    let open = |password: &[u8]| {
        Vault::open(
            FolderEnd::shared(Arc::clone(&storage)),
            password,
            Entropy::seeded(4),
        )
        .is_ok()
    };
    let other = vault.add_password(b"another", COST).unwrap();
    assert!(open(PASSWORD) && open(b"another") && !open(b"wrong"));
    let first = vault
        .passwords(PASSWORD)
        .unwrap()
        .into_iter()
        .find(|(_, opens)| *opens)
        .unwrap()
        .0;
    vault.remove_password(&first).unwrap();
    assert!(!open(PASSWORD) && open(b"another"));
    assert!(vault.remove_password(&other).is_err(), "the last one");
}

/// A writer stalls before it puts its lock, until two others have used its epoch and the next.
#[test]
fn a_writer_that_stalls_as_it_begins_gives_up() {
    let (storage, mut vault) = memory_vault();
    let add = |vault: &mut Vault| {
        let pool = pool();
        let writer = Writer::new(vault, &pool, WriterOptions::default()).unwrap();
        writer.commit(Snapshot::default()).unwrap()
    };
    assert_eq!(add(&mut vault), 1);
    let far = FolderEnd::shared(Arc::clone(&storage));
    let has_stalled = std::sync::atomic::AtomicBool::new(false);
    let others = Arc::clone(&storage);
    let hear = move |what: &str, name: &str| {
        let is_lock = what == "put" && name.starts_with("locks/");
        if is_lock && !has_stalled.swap(true, std::sync::atomic::Ordering::Relaxed) {
            others.unlink("locks/turn").unwrap();
            let open = |seed| {
                let far = FolderEnd::shared(Arc::clone(&others));
                Vault::open(far, PASSWORD, Entropy::seeded(seed)).unwrap()
            };
            assert_eq!(open(61).forget(&[]).unwrap(), 2);
            assert_eq!(add(&mut open(62)), 3);
        }
        Ok(())
    };
    let slow = Arc::new(Overheard { far, hear });
    let mut slow = Vault::open(slow, PASSWORD, Entropy::seeded(63)).unwrap();
    let refused = slow.forget(&[1]).unwrap_err().to_string();
    assert!(refused.contains("others have written"), "{refused}");
    drop(slow);
    let far = FolderEnd::shared(storage);
    let mut vault = Vault::open(far, PASSWORD, Entropy::seeded(64)).unwrap();
    assert_eq!(add(&mut vault), 4);
    let snapshots = vault.snapshots().unwrap();
    let epochs: Vec<u64> = snapshots.iter().map(|(epoch, _)| *epoch).collect();
    assert_eq!(epochs, [1, 3, 4]);
}

/// Three keys: one that an interrupted `init` left, a damaged one, and one whose owner writes meanwhile.
#[test]
fn the_last_password_that_opens_the_vault_is_kept() {
    let (storage, mut vault) = memory_vault();
    let first = vault.passwords(PASSWORD).unwrap().remove(0).0;
    let far = FolderEnd::shared(Arc::clone(&storage));
    let mut entropy = Entropy::seeded(51);
    let other = MasterKey::random(&mut entropy);
    let orphan = other.wrap(b"its config", PASSWORD, COST, &mut entropy);
    put_key(&*far, &orphan.unwrap()).unwrap();
    let master = &vault.keys.master;
    let damaged = master.wrap(&vault.config, b"another", COST, &mut entropy);
    let mut damaged = damaged.unwrap();
    damaged[70] ^= 1;
    put_key(&*far, &damaged).unwrap();
    let refused = vault.remove_password(&first).unwrap_err().to_string();
    assert!(refused.contains("the last one that opens"), "{refused}");
    let second = vault.add_password(b"another", COST).unwrap();
    let turn = far.take_turn().unwrap();
    let refused = vault.remove_password(&first).unwrap_err().to_string();
    assert!(refused.contains("another process writes"), "{refused}");
    drop(turn);
    vault.remove_password(&first).unwrap();
    assert!(vault.remove_password(&second).is_err());
    Vault::open(far, b"another", Entropy::seeded(52)).unwrap();
}

#[test]
fn collecting_gives_back_what_nobody_needs() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    let mut random = Rng::with_seed(crate::testing::seed(12));
    // The contents that stay shrink much better than those that go, and share frames with them.
    for at in 0..20 {
        let mut content = noise(&mut random, 200_000);
        if at % 2 == 1 {
            let hex = content
                .iter()
                .map(|byte| b"0123456789abcdef"[usize::from(byte % 16)]);
            content = hex.collect();
        }
        fs::write(root.join(format!("{at}")), content).unwrap();
    }
    let (storage, mut vault) = memory_vault();
    let pool = pool();
    let first = vault
        .add(&pool, &[root.to_path_buf()], &options(1), &mut |_| ())
        .unwrap();
    for at in 0..10 {
        fs::remove_file(root.join(format!("{}", 2 * at))).unwrap();
    }
    let second = vault
        .add(&pool, &[root.to_path_buf()], &options(2), &mut |_| ())
        .unwrap();
    let before = vault.stored_bytes().unwrap();
    vault.forget(&[first.epoch]).unwrap();
    let plan = vault
        .plan_collection(&WriterOptions::default(), 0.9, &mut |_| ())
        .unwrap();
    let collected = vault
        .collect(&pool, WriterOptions::default(), (100, 0), 0.9, &mut |_| ())
        .unwrap();
    println!("{collected:?}");
    let close = |is: u64, said: u64| is.abs_diff(said) * 10 <= said;
    assert!(
        close(collected.written_bytes, plan.rewritten_bytes),
        "{collected:?} {plan:?}"
    );
    assert!(
        close(collected.read_bytes, plan.read_bytes),
        "{collected:?} {plan:?}"
    );
    let after = vault.stored_bytes().unwrap();
    assert!(after < before * 6 / 10, "{before} to {after}");
    let vault = Vault::open(FolderEnd::shared(storage), PASSWORD, Entropy::seeded(3)).unwrap();
    let (_target, back) = restored(&vault, second.epoch, root);
    assert_eq!(seen(&back), seen(root));
    let verified = vault
        .verify(&pool, VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}

#[test]
fn an_interrupted_collection_goes_on_where_it_stopped() {
    let source = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    noise_tree(source.path(), 22, 8);
    let (far, mut vault, first) = small_packs(source.path(), folder.path());
    for at in [1, 3, 5] {
        fs::remove_file(source.path().join(format!("below/{at}"))).unwrap();
    }
    let paths = [source.path().to_path_buf()];
    let second = vault.add(&pool(), &paths, &options(2), &mut |_| ());
    let second = second.unwrap().epoch;
    vault.forget(&[first]).unwrap();
    let mut other = Vault::open(far, PASSWORD, Entropy::seeded(8)).unwrap();
    let writing = WriterOptions::default();
    // Another process takes the turn away when all is moved and nothing is committed.
    let plan = vault.plan_collection(&writing, 1.0, &mut |_| ()).unwrap();
    assert!(plan.read_bytes > 0, "{plan:?}");
    let stopped = vault.collect(&pool(), writing, (100, 50), 1.0, &mut |progress| {
        if progress.phase.starts_with("moving") && progress.done == progress.total {
            other.unlock().unwrap();
        }
    });
    let stopped = stopped.unwrap_err().to_string();
    assert!(stopped.contains("another writer took over"), "{stopped}");
    let mut vault = other;
    let went_on = vault
        .collect(&pool(), writing, (100, 50), 1.0, &mut |_| ())
        .unwrap();
    assert_eq!(
        (went_on.read_bytes, went_on.written_bytes),
        (0, 0),
        "{went_on:?}"
    );
    let last = vault
        .collect(&pool(), writing, (200, 50), 1.0, &mut |_| ())
        .unwrap();
    let gone = plan.dead_packs + plan.moved_packs;
    assert!(last.deleted_packs >= gone, "{last:?} after {plan:?}");
    let (_target, back) = restored(&vault, second, source.path());
    assert_eq!(seen(&back), seen(source.path()));
    let verified = vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}

#[test]
fn following_snapshots_says_how_many_of_their_bytes_are_done() {
    let source = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    noise_tree(source.path(), 24, 8);
    let (_far, mut vault, _) = small_packs(source.path(), folder.path());
    let paths = [source.path().to_path_buf()];
    vault
        .add(&pool(), &paths, &options(2), &mut |_| ())
        .unwrap();
    let snapshots = vault.snapshots().unwrap();
    let raw_bytes: u64 = snapshots.iter().map(|(_, it)| it.raw_bytes).sum();
    let check = |phase: &str, told: &[Progress]| {
        let told = told.iter().filter(|it| it.phase == phase);
        let done: Vec<u64> = told
            .inspect(|it| assert_eq!(it.total, raw_bytes))
            .map(|it| it.done)
            .collect();
        assert!(
            done.is_sorted() && done.last() == Some(&raw_bytes),
            "{done:?}"
        );
        // All but the last of nine files; the second snapshot has no others.
        let within = done.iter().filter(|it| **it < raw_bytes / 2).count();
        assert_eq!(within, 8, "{phase}: {done:?}");
    };
    let mut told = Vec::new();
    let writing = WriterOptions::default();
    vault
        .plan_collection(&writing, 1.0, &mut |progress| told.push(*progress))
        .unwrap();
    check("marking what is live", &told);
    vault
        .verify(&pool(), VerifyOptions::default(), &mut |progress| {
            told.push(*progress)
        })
        .unwrap();
    check("following snapshots", &told);
}

/// A file that grows while it is read.
#[test]
fn a_file_that_grows_while_it_is_read_is_whole_or_named() {
    use std::io::Write;
    use std::sync::atomic::{AtomicBool, Ordering};
    let (_, mut vault) = memory_vault();
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("log");
    fs::write(&path, vec![7; 4 << 20]).unwrap();
    let is_over = AtomicBool::new(false);
    let added = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(&path).unwrap();
            let limit = 64 << 20;
            while !is_over.load(Ordering::Relaxed) && file.metadata().unwrap().len() < limit {
                file.write_all(&[7; 4096]).unwrap();
            }
        });
        let added = vault.add(
            &pool(),
            &[source.path().to_path_buf()],
            &options(1),
            &mut |_| (),
        );
        is_over.store(true, Ordering::Relaxed);
        added.unwrap()
    });
    let (_target, back) = restored(&vault, added.epoch, source.path());
    let stored = fs::read(back.join("log")).unwrap();
    assert_eq!(stored.len() as u64, added.snapshot.raw_bytes);
    assert!(stored.iter().all(|byte| *byte == 7));
    assert_eq!(added.torn_files, added.problems.len() as u64);
}

fn noise_tree(root: &Path, seed: u64, files: usize) {
    let mut random = Rng::with_seed(crate::testing::seed(seed));
    fs::create_dir_all(root.join("below")).unwrap();
    for at in 0..files {
        let length = 100_000 + 40_000 * at;
        fs::write(root.join(format!("below/{at}")), noise(&mut random, length)).unwrap();
    }
    fs::write(root.join("text"), "a text\n".repeat(20_000)).unwrap();
}

/// A vault of small packs in a folder, with one snapshot of a tree.
pub(super) fn small_packs(root: &Path, folder: &Path) -> (Arc<dyn FarEnd>, Vault, u64) {
    let storage = Arc::new(RealStorage::open_folder(folder).unwrap());
    let far = FolderEnd::shared(storage);
    let packs = VaultOptions {
        frame_bytes: 200_000,
        pack_bytes: 300_000,
        ..VaultOptions::default()
    };
    let made = Vault::init(Arc::clone(&far), packs, PASSWORD, COST, Entropy::seeded(5));
    let mut vault = made.unwrap();
    let added = vault.add(&pool(), &[root.to_path_buf()], &options(1), &mut |_| ());
    let epoch = added.unwrap().epoch;
    (far, vault, epoch)
}

/// Returns the packs of data, or those of folders.
pub(super) fn packs_of(folder: &Path, kind: u8) -> Vec<PathBuf> {
    let mut packs: Vec<PathBuf> = (fs::read_dir(folder.join("packs")).unwrap())
        .flat_map(|below| fs::read_dir(below.unwrap().path()).unwrap())
        .map(|pack| pack.unwrap().path())
        .filter(|pack| fs::read(pack).unwrap()[4] == kind)
        .collect();
    packs.sort();
    packs
}

/// Repairs a vault after `damage`, and compares its report with the result of a restore.
fn check_repair(heals: bool, damage: &dyn Fn(&Path)) -> Repaired {
    let source = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = source.path();
    noise_tree(root, 21, 6);
    let (far, vault, epoch) = small_packs(root, folder.path());
    drop(vault);
    damage(folder.path());
    let entropy = Entropy::seeded(6);
    let mut vault = Vault::open_damaged(Arc::clone(&far), PASSWORD, entropy).unwrap();
    let repaired = vault
        .repair(&pool(), WriterOptions::default(), 0, &mut |_| ())
        .unwrap();
    let mut vault = Vault::open(far, PASSWORD, Entropy::seeded(7)).unwrap();
    if vault
        .snapshots()
        .unwrap()
        .iter()
        .any(|(it, _)| *it == epoch)
    {
        let target = tempfile::tempdir().unwrap();
        let keep = RestoreOptions::default();
        let done = vault
            .restore(&pool(), epoch, target.path(), &keep, &mut |_| ())
            .unwrap();
        let mut missing: Vec<PathBuf> = (done.problems.iter())
            .map(|(path, _)| Path::new("/").join(path.strip_prefix(target.path()).unwrap()))
            .collect();
        missing.sort();
        let lost: Vec<PathBuf> = repaired.lost.iter().map(|(_, path)| path.clone()).collect();
        assert_eq!(missing, lost);
    }
    // The next add stores lost contents again: it takes nothing for known that is not whole.
    let added = vault.add(&pool(), &[root.to_path_buf()], &options(2), &mut |_| ());
    let again = added.unwrap().epoch;
    let mut snapshots = vault.snapshots().unwrap();
    let found = repaired.found.map(|found| found.epoch);
    snapshots.retain(|(epoch, _)| heals && Some(*epoch) != found || *epoch == again);
    for (epoch, _) in snapshots {
        let (_target, back) = restored(&vault, epoch, root);
        assert_eq!(seen(&back), seen(root), "snapshot {epoch} of {again}");
    }
    let verified = vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(
        !heals || verified.damages.is_empty(),
        "{:?}",
        verified.damages
    );
    repaired
}

#[test]
fn a_repair_names_what_is_lost_and_the_next_add_heals_it() {
    let missing = check_repair(true, &|folder| {
        fs::remove_file(&packs_of(folder, 1)[0]).unwrap()
    });
    assert!(
        missing.lost_chunks > 0 && missing.saved_chunks == 0,
        "{missing:?}"
    );
    let flipped = check_repair(true, &|folder| {
        // One bit flips in the first frame of each pack: the frames behind it are saved.
        for pack in packs_of(folder, 1) {
            let mut bytes = fs::read(&pack).unwrap();
            bytes[100] ^= 1;
            fs::write(&pack, bytes).unwrap();
        }
    });
    assert!(
        flipped.lost_chunks > 0 && flipped.saved_chunks > 0,
        "{flipped:?}"
    );
    let mended = check_repair(true, &|folder| {
        (packs_of(folder, 2).iter()).for_each(|pack| fs::remove_file(pack).unwrap());
    });
    assert!(mended.is_whole() && mended.mended_objects > 0, "{mended:?}");
    // A folder whose times have changed since cannot be made again by an add.
    let folders = check_repair(false, &|folder| {
        (packs_of(folder, 2).iter()).for_each(|pack| fs::remove_file(pack).unwrap());
        for copy in fs::read_dir(folder.join("copies")).unwrap() {
            fs::remove_file(copy.unwrap().path()).unwrap();
        }
    });
    assert_eq!(folders.lost, [(1, PathBuf::from("/"))]);
    let index = check_repair(true, &|folder| {
        let index = fs::read_dir(folder.join("index")).unwrap().next();
        fs::write(index.unwrap().unwrap().path(), b"not an index").unwrap();
    });
    assert!(index.is_whole() && index.lost_chunks == 0, "{index:?}");
    let record = check_repair(true, &|folder| {
        for record in [
            "snapshots/0000000000000001",
            "copies/record-0000000000000001",
        ] {
            fs::write(folder.join(record), b"not a record").unwrap();
        }
    });
    assert_eq!(record.lost_snapshots, [1]);
    assert_eq!(record.found.map(|it| it.folders), Some(1));
    let nothing = check_repair(true, &|_| ());
    assert!(nothing.is_whole() && nothing.damages.is_empty());
}

#[test]
fn a_copy_is_what_its_source_is_and_costs_what_is_new() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("tree");
    make_tree(&root);
    let (_, mut from) = memory_vault();
    let paths = [root.clone()];
    let first = from.add(&pool(), &paths, &options(1), &mut |_| ()).unwrap();
    let second = |entropy| {
        let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
        Vault::init_like(far, &from, b"another", COST, Entropy::seeded(entropy)).unwrap()
    };
    let mut to = second(8);
    let writing = WriterOptions::default();
    let copied = to
        .copy_from(&from, &[], &pool(), writing, &mut |_| ())
        .unwrap();
    assert_eq!(copied.snapshots, [(first.epoch, 1)]);
    let (_target, back) = restored(&to, 1, &root);
    assert_eq!(seen(&back), seen(&root));
    // Cut alike, it takes the same bytes as its source.
    let (was, is) = (from.stored_bytes().unwrap(), to.stored_bytes().unwrap());
    assert!(is.abs_diff(was) < 2000, "{was} to {is}");
    // Copied contents are not copied again, and a second snapshot costs its changes.
    let again = to
        .copy_from(&from, &[], &pool(), writing, &mut |_| ())
        .unwrap();
    assert_eq!((again.present.len(), again.read_bytes), (1, 0));
    fs::write(root.join("text"), "another").unwrap();
    let changed = from.add(&pool(), &paths, &options(2), &mut |_| ()).unwrap();
    let copied = to
        .copy_from(&from, &[], &pool(), writing, &mut |_| ())
        .unwrap();
    assert_eq!((copied.snapshots.len(), copied.read_bytes), (1, 7));
    let (_target, back) = restored(&to, copied.snapshots[0].1, &root);
    assert_eq!(seen(&back), seen(&root));
    // An add knows the copied contents, chunk by chunk.
    let before = to.stored_bytes().unwrap();
    to.add(&pool(), &paths, &options(3), &mut |_| ()).unwrap();
    let added = to.stored_bytes().unwrap() - before;
    assert!(
        added < 2000,
        "{added} bytes of {}",
        changed.snapshot.raw_bytes
    );
}

/// A folder is there as it was copied, but a repair has lost some of its contents.
#[test]
fn a_copy_brings_back_what_a_repair_lost() {
    let source = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = source.path();
    noise_tree(root, 71, 3);
    let (_, mut from) = memory_vault();
    let paths = [root.to_path_buf()];
    from.add(&pool(), &paths, &options(1), &mut |_| ()).unwrap();
    let storage = Arc::new(RealStorage::open_folder(folder.path()).unwrap());
    let far = FolderEnd::shared(storage);
    let mut to = Vault::init_like(far, &from, b"another", COST, Entropy::seeded(72)).unwrap();
    let writing = WriterOptions::default();
    let copy = |to: &mut Vault, from: &Vault| {
        let copied = to.copy_from(from, &[], &pool(), writing, &mut |_| ());
        copied.unwrap().snapshots[0].1
    };
    copy(&mut to, &from);
    for pack in packs_of(folder.path(), 1) {
        fs::remove_file(pack).unwrap();
    }
    let repaired = to.repair(&pool(), writing, 0, &mut |_| ()).unwrap();
    assert_eq!(repaired.lost.len(), 4, "{:?}", repaired.lost);
    fs::write(root.join("text"), "another").unwrap();
    from.add(&pool(), &paths, &options(2), &mut |_| ()).unwrap();
    let second = copy(&mut to, &from);
    let (_target, back) = restored(&to, second, root);
    assert_eq!(seen(&back), seen(root));
}

#[test]
fn a_copied_image_is_cut_as_an_added_one() {
    let source = tempfile::tempdir().unwrap();
    let path = source.path().join("image");
    let mut image = image();
    fs::write(&path, &image).unwrap();
    let (_, mut from) = memory_vault();
    let paths = [path.clone()];
    from.add(&pool(), &paths, &options(1), &mut |_| ()).unwrap();
    let far = FolderEnd::shared(Arc::new(MemoryStorage::new()));
    let mut to = Vault::init_like(far, &from, b"another", COST, Entropy::seeded(9)).unwrap();
    to.copy_from(&from, &[], &pool(), WriterOptions::default(), &mut |_| ())
        .unwrap();
    image[70 * IMAGE_BLOCK_BYTES] ^= 1;
    fs::write(&path, &image).unwrap();
    let added = to.add(&pool(), &paths, &options(2), &mut |_| ()).unwrap();
    let (new, lists) = (added.snapshot.new_raw_bytes, 8 << 10);
    assert!(new < IMAGE_BLOCK_BYTES as u64 + lists, "{new} bytes");
}

/// Collects with a clock at `now`, without grace.
pub(super) fn collect_at(vault: &mut Vault, now: i64, share_min: f64) -> Collected {
    let writing = WriterOptions::default();
    let collected = vault.collect(&pool(), writing, (now, 0), share_min, &mut |_| ());
    collected.unwrap()
}

#[test]
fn a_pack_that_was_doomed_by_a_clock_that_ran_ahead_is_deleted_in_time() {
    let source = tempfile::tempdir().unwrap();
    noise_tree(source.path(), 31, 2);
    let (_, mut vault) = memory_vault();
    let paths = [source.path().to_path_buf()];
    let first = vault
        .add(&pool(), &paths, &options(1), &mut |_| ())
        .unwrap();
    vault.forget(&[first.epoch]).unwrap();
    let (now, ahead, grace) = (1_000_000, 9_000_000, 1000);
    let mut collect = |now| {
        let writing = WriterOptions::default();
        let collected = vault.collect(&pool(), writing, (now, grace), 0.5, &mut |_| ());
        collected.unwrap()
    };
    let marked = collect(ahead);
    let (count, until) = (marked.waiting_packs, marked.waiting_until);
    assert!(count > 0 && until == ahead + grace, "{marked:?}");
    let waiting = collect(now);
    let is_said = waiting.waiting_packs == count && waiting.waiting_until == now + grace;
    assert!(is_said && waiting.deleted_packs == 0, "{waiting:?}");
    let done = collect(now + grace);
    assert!(
        done.deleted_packs == count && done.waiting_packs == 0,
        "{done:?}"
    );
}

pub(super) fn check_whole(vault: &Vault, epoch: u64, root: &Path) {
    let (_target, back) = restored(vault, epoch, root);
    assert_eq!(seen(&back), seen(root));
    let verified = vault
        .verify(&pool(), VerifyOptions::default(), &mut |_| ())
        .unwrap();
    assert!(verified.damages.is_empty(), "{:?}", verified.damages);
}

/// The middle of a file changes and changes back. In between the old middle is forgotten and collected. The file's list
/// lies beside many that stay.
#[test]
fn a_content_that_was_forgotten_and_collected_is_stored_again() {
    let source = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = source.path();
    noise_tree(root, 31, 24);
    let mut random = Rng::with_seed(crate::testing::seed(32));
    let before = noise(&mut random, 4_000_000);
    let mut changed = before.clone();
    changed[1_000_000..3_000_000].copy_from_slice(&noise(&mut random, 2_000_000));
    fs::write(root.join("changing"), &before).unwrap();
    let (_far, mut vault, first) = small_packs(root, folder.path());
    let paths = [root.to_path_buf()];
    let add = |vault: &mut Vault, content: &[u8], day: i64| {
        fs::write(root.join("changing"), content).unwrap();
        let added = vault.add(&pool(), &paths, &options(day), &mut |_| ());
        added.unwrap()
    };
    add(&mut vault, &changed, 2);
    vault.forget(&[first]).unwrap();
    let folders = packs_of(folder.path(), 2);
    let collected = collect_at(&mut vault, 100, 0.5);
    assert!(collected.plan.dead_packs > 2, "{collected:?}");
    let stays = |pack: &&PathBuf| packs_of(folder.path(), 2).contains(pack);
    assert!(folders.iter().any(|pack| stays(&pack)), "the list is gone");
    let third = add(&mut vault, &before, 3);
    let new = third.snapshot.new_raw_bytes;
    assert!(new > 1_500_000, "{new} bytes");
    check_whole(&vault, third.epoch, root);
    collect_at(&mut vault, 200, 1.0);
    check_whole(&vault, third.epoch, root);
}

/// A pack of lists was put before the pack of the chunks that they name, which was never put.
#[test]
fn a_list_that_is_taken_over_without_its_chunks_counts_for_nothing() {
    let source = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root = source.path();
    noise_tree(root, 33, 2);
    let (far, mut vault, _) = small_packs(root, folder.path());
    let before = packs_of(folder.path(), 1);
    let mut random = Rng::with_seed(crate::testing::seed(34));
    let content = noise(&mut random, 3_000_000);
    let pool = pool();
    let mut writer = Writer::new(&mut vault, &pool, WriterOptions::default()).unwrap();
    writer.add_content(&mut &content[..]).unwrap();
    writer.flush().unwrap();
    drop(writer);
    let first = vault.keys.id(&content[..vault.chunker.cut(&content)]);
    let mut gone = 0;
    for path in packs_of(folder.path(), 1) {
        let name = pack::name_of(&fs::read(&path).unwrap());
        let (_, _, held) =
            pack::read_contents(&*far, &pack::object_name(name), &vault.keys).unwrap();
        let mut chunks = held.frames.iter().flat_map(|frame| &frame.chunks);
        if !before.contains(&path) && !chunks.any(|chunk| chunk.id == first) {
            fs::remove_file(path).unwrap();
            gone += 1;
        }
    }
    assert!(gone > 5, "{gone} packs");
    drop(vault);
    fs::write(root.join("again"), &content).unwrap();
    for day in [2, 3] {
        let entropy = Entropy::seeded(35 + day as u64);
        let mut vault = Vault::open(Arc::clone(&far), PASSWORD, entropy).unwrap();
        let rereads = AddOptions {
            rereads: true,
            ..options(day)
        };
        let added = vault.add(&pool, &[root.to_path_buf()], &rereads, &mut |_| ());
        check_whole(&vault, added.unwrap().epoch, root);
    }
}

/// Commits a snapshot of a file whose list names a missing chunk, as earlier vaults may have it. Returns its number.
fn add_broken(vault: &mut Vault, content: &[u8], is_needed: bool) -> u64 {
    let id = vault.keys.id(content);
    let pool = pool();
    let mut writer = Writer::new(vault, &pool, WriterOptions::default()).unwrap();
    let mut list = vec![1];
    bytes::put_number(&mut list, content.len() as u64);
    bytes::put_number(&mut list, (content.len() as u64) << 1);
    list.extend_from_slice(&[9; 16]);
    let (group, kind) = (Group::Lists, pack::ChunkKind::List);
    writer.put_chunk(group, kind, id, &list).unwrap();
    // The chunk that it begins with is known.
    let first = writer.vault().chunker.cut(content);
    writer.add_content(&mut &content[..first]).unwrap();
    let file = Node::File {
        size_bytes: content.len() as u64,
        is_sparse: false,
        is_torn: false,
        content: id,
    };
    let entries = if is_needed {
        vec![entry(b"file", file)]
    } else {
        Vec::new()
    };
    let stamps = vec![Stamp::default(); entries.len()];
    let (folder, stamps) = writer.add_folder(&entries, &stamps).unwrap();
    let snapshot = Snapshot {
        folder,
        stamps,
        ..Snapshot::default()
    };
    writer.commit(snapshot).unwrap()
}

#[test]
fn a_list_that_lacks_a_chunk_is_found_by_a_repair_and_passed_over_by_an_add() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    let mut random = Rng::with_seed(crate::testing::seed(36));
    let content = noise(&mut random, 3_000_000);
    fs::write(root.join("file"), &content).unwrap();
    for (repairs, is_needed) in [(true, true), (true, false), (false, true), (false, false)] {
        let (storage, mut vault) = memory_vault();
        let epoch = add_broken(&mut vault, &content, is_needed);
        if repairs {
            let writing = WriterOptions::default();
            let repaired = vault.repair(&pool(), writing, 0, &mut |_| ()).unwrap();
            let lost = [(epoch, PathBuf::from("/file"))];
            assert_eq!(repaired.lost, if is_needed { &lost[..] } else { &[] });
            assert_eq!(repaired.damages.len(), 1, "{:?}", repaired.damages);
            let again = vault.repair(&pool(), writing, 0, &mut |_| ()).unwrap();
            assert_eq!(again.damages.is_empty(), !is_needed, "{again:?}");
        }
        let paths = [root.to_path_buf()];
        let added = vault.add(&pool(), &paths, &options(1), &mut |_| ());
        let added = added.unwrap().epoch;
        let far = FolderEnd::shared(storage);
        let mut vault = Vault::open(far, PASSWORD, Entropy::seeded(37)).unwrap();
        check_whole(&vault, added, root);
        collect_at(&mut vault, 100, 1.0);
        check_whole(&vault, added, root);
    }
}

/// Blocks of an image that were files before; some of those were cut into chunks of their own.
#[test]
fn a_block_of_an_image_that_is_a_list_elsewhere_is_stored_as_a_chunk() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let chunks = ChunkLimits {
        least_bytes: 64,
        mean_bytes: 512,
        most_bytes: 2048,
    };
    let options = VaultOptions {
        chunks,
        ..VaultOptions::default()
    };
    let far = FolderEnd::shared(Arc::clone(&storage));
    let mut vault = Vault::init(far, options, PASSWORD, COST, Entropy::seeded(1)).unwrap();
    let mut image = image();
    image.truncate(400 * 512);
    let pool = pool();
    let mut writer = Writer::new(&mut vault, &pool, WriterOptions::default()).unwrap();
    for block in image.chunks(512) {
        writer.add_content(&mut &block[..]).unwrap();
    }
    writer.commit(Snapshot::default()).unwrap();
    let lists = vault.index(u64::MAX).unwrap().lists();
    assert!(lists.len() > 5, "{} blocks are lists", lists.len());
    let mut writer = Writer::new(&mut vault, &pool, WriterOptions::default()).unwrap();
    let (id, _) = writer.add_content(&mut &image[..]).unwrap();
    writer.commit(Snapshot::default()).unwrap();
    let index = vault.index(u64::MAX).unwrap();
    let mut chunks = contents::Chunks::new(&vault.far, &vault.keys);
    assert!(chunks.whole(&index, id).unwrap() == image);
    for block in image.chunks(512) {
        let id = vault.keys.id(block);
        assert!(chunks.whole(&index, id).unwrap() == block);
    }
}

/// A far end that reports each call before it is made.
struct Overheard<F> {
    far: Arc<dyn FarEnd>,
    hear: F,
}

impl<F: Fn(&str, &str) -> Result<()> + Send + Sync> FarEnd for Overheard<F> {
    fn put(&self, name: &str, bytes: &[u8]) -> Result<Put> {
        (self.hear)("put", name)?;
        self.far.put(name, bytes)
    }

    fn read(&self, name: &str, most_bytes: u64) -> Result<Vec<u8>> {
        (self.hear)("read", name)?;
        self.far.read(name, most_bytes)
    }

    fn read_range(&self, name: &str, offset: u64, length_bytes: usize) -> Result<Vec<u8>> {
        (self.hear)("read_range", name)?;
        self.far.read_range(name, offset, length_bytes)
    }

    fn size_bytes(&self, name: &str) -> Result<Option<u64>> {
        self.far.size_bytes(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<Listed>> {
        self.far.list(folder)
    }

    fn delete(&self, folder: &str, names: &[String]) -> Result<()> {
        self.far.delete(folder, names)
    }

    fn take_turn(&self) -> Result<Turn> {
        self.far.take_turn()
    }

    fn share(&self) -> Result<Box<dyn AddMark>> {
        self.far.share()
    }

    fn exclude(&self) -> Result<Turn> {
        self.far.exclude()
    }

    fn break_turn(&self) -> Result<()> {
        self.far.break_turn()
    }
}

/// A vault with a tree, and a target whose user has overwritten each file of it.
fn overwritten() -> (
    tempfile::TempDir,
    tempfile::TempDir,
    PathBuf,
    Arc<dyn FarEnd>,
) {
    let folder = tempfile::tempdir().unwrap();
    let source = tempfile::tempdir().unwrap();
    noise_tree(source.path(), 41, 6);
    let (far, vault, epoch) = small_packs(source.path(), folder.path());
    let (target, back) = restored(&vault, epoch, source.path());
    for path in files_below(&back) {
        fs::write(path, "a user's own").unwrap();
    }
    (folder, target, back, far)
}

fn files_below(root: &Path) -> Vec<PathBuf> {
    let lines = seen(root);
    let paths = lines
        .iter()
        .map(|line| root.join(line.split(' ').next().unwrap()));
    paths.filter(|path| path.is_file()).collect()
}

pub(super) fn over_what_exists() -> RestoreOptions {
    RestoreOptions {
        replaces: true,
        ..RestoreOptions::default()
    }
}

#[test]
fn a_file_whose_content_is_damaged_leaves_what_lies_in_its_place() {
    let (folder, target, back, far) = overwritten();
    for path in packs_of(folder.path(), 1).iter().step_by(2) {
        let mut bytes = fs::read(path).unwrap();
        bytes[100] ^= 1;
        fs::write(path, bytes).unwrap();
    }
    let vault = Vault::open(far, PASSWORD, Entropy::seeded(42)).unwrap();
    let done = vault
        .restore(&pool(), 1, target.path(), &over_what_exists(), &mut |_| ())
        .unwrap();
    let files = files_below(&back);
    let damaged: Vec<&PathBuf> = done.problems.iter().map(|(path, _)| path).collect();
    assert!(
        !damaged.is_empty() && damaged.len() < files.len(),
        "{damaged:?}"
    );
    assert_eq!(files.len(), 7);
    for path in &files {
        let is_own = fs::read(path).unwrap() == b"a user's own";
        assert_eq!(is_own, damaged.contains(&path), "{}", path.display());
    }
}

#[test]
fn a_far_end_that_does_not_answer_ends_a_restore_and_costs_no_file() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    for answers in [0, 2, 4, 6, 10] {
        let (_folder, target, back, far) = overwritten();
        let asked = Arc::new(AtomicUsize::new(0));
        let heard = Arc::clone(&asked);
        let hear = move |what: &str, name: &str| {
            if what != "read_range" || heard.fetch_add(1, Ordering::Relaxed) < answers {
                return Ok(());
            }
            Err(Error::io(
                "ask for",
                name,
                std::io::Error::other("no answer"),
            ))
        };
        let far = Arc::new(Overheard { far, hear });
        let vault = Vault::open(far, PASSWORD, Entropy::seeded(43)).unwrap();
        let pool = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
        let over = over_what_exists();
        let done = vault.restore(&pool, 1, target.path(), &over, &mut |_| ());
        let reason = done.unwrap_err().to_string();
        assert!(reason.contains("no answer"), "{reason}");
        assert_eq!(asked.load(Ordering::Relaxed), answers + 1);
        let files = files_below(&back);
        assert_eq!(files.len(), 7);
        let is_own = |path: &&PathBuf| fs::read(path).unwrap() == b"a user's own";
        assert!(
            files.iter().filter(is_own).count() > 1,
            "after {answers} answers"
        );
    }
}

/// Entries that are no files, and names that are one file before and after.
#[test]
fn whatever_exists_is_replaced() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path().join("tree");
    make_tree(&root);
    let (_, mut vault) = memory_vault();
    let paths = [root.clone()];
    let added = vault.add(&pool(), &paths, &options(1), &mut |_| ());
    let epoch = added.unwrap().epoch;
    let (target, back) = restored(&vault, epoch, &root);
    for is_changed in [false, true] {
        if is_changed {
            fs::remove_file(back.join("deep/link")).unwrap();
            fs::write(back.join("deep/link"), "a file").unwrap();
            fs::remove_file(back.join("text")).unwrap();
            symlink("nowhere", back.join("text")).unwrap();
        }
        let over = over_what_exists();
        let done = vault.restore(&pool(), epoch, target.path(), &over, &mut |_| ());
        assert!(done.as_ref().unwrap().problems.is_empty(), "{done:?}");
        assert_eq!(seen(&back), seen(&root));
    }
}

#[test]
fn pipes_and_sockets_have_their_modes_again() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    let folder = fs::File::open(root).unwrap();
    let modes = [("pipe", 0o666), ("shared", 0o1777), ("socket", 0o4602)];
    for (name, mode) in modes {
        let kind = match name {
            "socket" => rustix::fs::FileType::Socket,
            _ => rustix::fs::FileType::Fifo,
        };
        let least = rustix::fs::Mode::empty();
        rustix::fs::mknodat(&folder, name, kind, least, 0).unwrap();
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    let (_, mut vault) = memory_vault();
    let added = vault.add(&pool(), &[root.to_path_buf()], &options(1), &mut |_| ());
    let (_target, back) = restored(&vault, added.unwrap().epoch, root);
    for (name, mode) in modes {
        let found = fs::symlink_metadata(back.join(name)).unwrap().mode();
        assert_eq!(found & 0o7777, mode, "{name}: {found:o}");
    }
}

/// The first name of two is taken by another file. That file stays, and the second name does not become a link to it.
#[test]
fn a_hard_link_is_never_another_file_than_was_stored() {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::write(root.join("a"), "as stored").unwrap();
    for other in ["b", "c"] {
        fs::hard_link(root.join("a"), root.join(other)).unwrap();
    }
    let (_, mut vault) = memory_vault();
    let added = vault.add(&pool(), &[root.to_path_buf()], &options(1), &mut |_| ());
    let epoch = added.unwrap().epoch;
    let target = tempfile::tempdir().unwrap();
    let back = target.path().join(root.strip_prefix("/").unwrap());
    fs::create_dir_all(&back).unwrap();
    fs::write(back.join("a"), "a user's own").unwrap();
    let keep = RestoreOptions::default();
    let done = vault.restore(&pool(), epoch, target.path(), &keep, &mut |_| ());
    let done = done.unwrap();
    assert_eq!(done.problems.len(), 1, "{:?}", done.problems);
    assert_eq!(done.problems[0].0, back.join("a"));
    assert_eq!(done.files, 2);
    let read = |name: &str| fs::read_to_string(back.join(name)).unwrap();
    assert_eq!(read("a"), "a user's own");
    assert_eq!([read("b"), read("c")], ["as stored", "as stored"]);
    let inode = |name: &str| fs::metadata(back.join(name)).unwrap().ino();
    assert!(inode("b") == inode("c") && inode("b") != inode("a"));
}
