//! Looking into snapshots, and restoring a part of one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::trees_test::{memory_vault, options, pool};
use super::*;

/// A tree, and the same one after some changes, as two snapshots below `/`.
fn two_snapshots() -> (tempfile::TempDir, Vault) {
    let source = tempfile::tempdir().unwrap();
    let root = source.path();
    fs::create_dir_all(root.join("a/same/deep")).unwrap();
    fs::create_dir(root.join("b")).unwrap();
    for name in ["a/same/deep/f", "a/kept", "a/gone", "b/kind", "b/mode"] {
        fs::write(root.join(name), name).unwrap();
    }
    let (_, mut vault) = memory_vault();
    let paths = [root.to_path_buf()];
    vault
        .add(&pool(), &paths, &options(0), &mut |_| ())
        .unwrap();
    fs::write(root.join("a/kept"), "longer than it was").unwrap();
    fs::remove_file(root.join("a/gone")).unwrap();
    fs::create_dir(root.join("a/new")).unwrap();
    fs::write(root.join("a/new/f"), "f").unwrap();
    fs::remove_file(root.join("b/kind")).unwrap();
    symlink("mode", root.join("b/kind")).unwrap();
    fs::set_permissions(root.join("b/mode"), fs::Permissions::from_mode(0o600)).unwrap();
    vault
        .add(&pool(), &paths, &options(1), &mut |_| ())
        .unwrap();
    (source, vault)
}

fn text(path: &[Vec<u8>]) -> String {
    let parts = path.iter().map(|part| String::from_utf8_lossy(part));
    parts.collect::<Vec<_>>().join("/")
}

fn top(tree: &mut TreeReader, vault: &Vault, epoch: u64, path: &Path) -> Entry {
    let snapshot = vault.snapshot(epoch).unwrap();
    let path = path.to_str().unwrap().as_bytes();
    tree.find(&snapshot, path).unwrap().expect("it is there")
}

#[test]
fn a_walk_meets_everything_and_goes_where_it_is_told() {
    let (source, vault) = two_snapshots();
    let mut tree = vault.tree_reader(1 << 30).unwrap();
    let folder = top(&mut tree, &vault, 1, source.path());
    let mut walked = |skips: &str| {
        let mut seen = Vec::new();
        let problems = tree.walk::<Error>(&folder, &mut |path, _| {
            seen.push(text(path));
            Ok(text(path) != skips)
        });
        assert!(problems.unwrap().is_empty());
        seen.join(" ")
    };
    assert_eq!(
        walked(""),
        "a a/gone a/kept a/same a/same/deep a/same/deep/f b b/kind b/mode"
    );
    assert_eq!(walked("a"), "a b b/kind b/mode");
    let snapshot = vault.snapshot(1).unwrap();
    let path = source.path().join("a/kept/none");
    let path = path.to_str().unwrap().as_bytes();
    assert!(tree.find(&snapshot, path).unwrap().is_none());
    let mut content = String::new();
    let file = top(&mut tree, &vault, 1, &source.path().join("a/kept"));
    let mut reader = tree.open(&file).unwrap();
    std::io::Read::read_to_string(&mut reader, &mut content).unwrap();
    assert_eq!(content, "a/kept");
    assert!(tree.open(&folder).is_err());
}

#[test]
fn a_comparison_names_what_differs_and_nothing_else() {
    let (source, vault) = two_snapshots();
    let mut tree = vault.tree_reader(1 << 30).unwrap();
    let [before, after] = [1, 2].map(|epoch| top(&mut tree, &vault, epoch, source.path()));
    let mut compared = |tops: [&Entry; 2]| {
        let mut changes = Vec::new();
        let problems = tree.compare(tops, &mut |path, _, change| {
            changes.push(format!("{change:?} {}", text(path)));
        });
        assert!(problems.unwrap().is_empty());
        changes
    };
    let expected = [
        "Metadata a",
        "Removed a/gone",
        "Content a/kept",
        "Added a/new",
        "Added a/new/f",
        "Metadata b",
        "Kind b/kind",
        "Metadata b/mode",
    ];
    assert_eq!(compared([&before, &after]), expected);
    assert!(compared([&after, &after]).is_empty());
}

fn part(path: &str, includes: &[&str], excludes: &[&str]) -> RestoreOptions {
    let patterns =
        |typed: &[&str]| PathPatterns::new(typed.iter().map(|it| it.as_bytes().to_vec()));
    RestoreOptions {
        path: path.as_bytes().to_vec(),
        includes: patterns(includes),
        excludes: patterns(excludes),
        ..RestoreOptions::default()
    }
}

/// Restores a part of the first snapshot, and returns its files and its problems.
fn came_back(vault: &Vault, options: &RestoreOptions) -> (String, Vec<String>) {
    let target = tempfile::tempdir().unwrap();
    let done = vault.restore(&pool(), 1, target.path(), options, &mut |_| ());
    let problems = done.unwrap().problems.into_iter();
    let problems = problems.map(|(path, reason)| format!("{}: {reason}", path.display()));
    let (mut seen, mut left) = (Vec::new(), vec![target.path().to_path_buf()]);
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let below = path.strip_prefix(target.path()).unwrap();
            seen.push(below.display().to_string());
            if path.is_dir() {
                left.push(path);
            }
        }
    }
    seen.sort();
    (seen.join(" "), problems.collect())
}

#[test]
fn a_part_of_a_snapshot_comes_back() {
    let (source, vault) = two_snapshots();
    let root = source.path().to_str().unwrap();
    let check = |options: &RestoreOptions, expected: &str| {
        let (seen, problems) = came_back(&vault, options);
        assert!(problems.is_empty(), "{problems:?}");
        assert_eq!(seen, expected);
    };
    check(&part(&format!("{root}/b"), &[], &[]), "kind mode");
    check(&part(&format!("{root}/b/kind"), &[], &[]), "kind");
    let at_root = |includes: &[&str], excludes: &[&str]| part(root, includes, excludes);
    check(
        &at_root(&["/a/same"], &[]),
        "a a/same a/same/deep a/same/deep/f",
    );
    check(
        &at_root(&["f", "/b/m*"], &[]),
        "a a/same a/same/deep a/same/deep/f b b/mode",
    );
    check(
        &at_root(&["deep", "f"], &[]),
        "a a/same a/same/deep a/same/deep/f",
    );
    check(&at_root(&["kind"], &["a"]), "b b/kind");
    let (seen, problems) = came_back(&vault, &at_root(&["/b/kind", "/a/knid"], &[]));
    assert_eq!(seen, "b b/kind");
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("/a/knid"), "{problems:?}");
    let target = tempfile::tempdir().unwrap();
    let none = part("/none", &[], &[]);
    let refused = vault.restore(&pool(), 1, target.path(), &none, &mut |_| ());
    assert!(refused.unwrap_err().to_string().contains("/none"));
}
