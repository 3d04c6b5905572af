//! The vault's commands as the guide types them, and what they say when something is wrong.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

#[cfg(feature = "s3")]
#[path = "../../../breakeven-vault/tests/server/mod.rs"]
mod server;

mod disk;
mod lists;
mod look;
mod metadata;
#[cfg(feature = "mount")]
mod mount;
mod seen;

use tempfile::TempDir;

const GUIDE: &str = include_str!("../../../../docs/vault.md");

/// A folder with what the guide takes for granted.
fn places() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    fs::create_dir_all(path.join("srv/games/one")).expect("folders");
    fs::create_dir(path.join("backup")).expect("a folder");
    fs::write(path.join("srv/games/one/data"), crate::noise(300_000)).expect("a file");
    fs::write(path.join("srv/games/text"), "a line\n".repeat(9000)).expect("a file");
    fs::write(path.join("password.txt"), "a password\n").expect("a file");
    fs::write(path.join("second.txt"), "another\n").expect("a file");
    folder
}

/// Runs a line of the guide, whose folders lie in a place of the test's.
fn run(folder: &Path, line: &str) -> Output {
    run_with(folder, line, &[])
}

fn run_with(folder: &Path, line: &str, variables: &[(&str, &str)]) -> Output {
    let mut words = Vec::new();
    for word in line.split_whitespace().skip(1) {
        words.push(match word.split_once('/') {
            Some(("", below)) => folder.join(below),
            Some(("latest:", below)) => {
                PathBuf::from(format!("latest:{}/{below}", folder.display()))
            }
            _ => PathBuf::from(word),
        });
    }
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120", env!("CARGO_BIN_EXE_breakeven")]);
    let output = command
        .args(words)
        .env("XDG_STATE_HOME", folder.join("state"))
        .envs(variables.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output();
    output.expect("the program starts")
}

#[track_caller]
fn ok(folder: &Path, line: &str) -> String {
    let output = run(folder, line);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {message}");
    String::from_utf8(output.stdout).expect("text")
}

fn typed(heading: &str) -> Vec<&'static str> {
    let (_, section) = GUIDE.split_once(heading).expect("the heading");
    let section = section.split("\n## ").next().expect("a section");
    let lines: Vec<_> = (section.lines())
        .filter_map(|line| line.strip_prefix("    "))
        .collect();
    assert!(!lines.is_empty(), "{heading}");
    lines
}

fn check_restored(folder: &Path, back: &str) {
    check_restored_to(folder, &folder.join(back));
}

fn check_restored_to(folder: &Path, target: &Path) {
    let back = target.join(folder.strip_prefix("/").expect("a path"));
    for name in ["srv/games/one/data", "srv/games/text"] {
        let (was, is) = (fs::read(folder.join(name)), fs::read(back.join(name)));
        assert!(was.expect("a file") == is.expect("a file"), "{name}");
    }
}

#[test]
fn what_the_guide_types_works() {
    let folder = places();
    let path = folder.path();
    for line in typed("# Vault: snapshots of trees\n") {
        ok(path, line);
    }
    check_restored(path, "tmp/back");
    for line in typed("## A second vault\n") {
        ok(path, line);
    }
    let second = "breakeven vault -r /backup/second -p second.txt";
    ok(path, &format!("{second} restore latest --target /again"));
    check_restored(path, "again");
    let said = ok(
        path,
        &format!("{second} copy --from-repo /backup/games --from-password-file password.txt"),
    );
    assert!(
        said.starts_with("copied 0 snapshots, 1 were there"),
        "{said}"
    );
    for line in typed("## When something is damaged\n") {
        ok(path, line);
    }
}

#[test]
fn the_nights_of_the_guide_work() {
    let folder = places();
    let path = folder.path();
    fs::write(path.join("excludes.txt"), "*.o\n").expect("a file");
    let first = typed("## The first night\n");
    let (exported, lines) = first.split_first().expect("variables");
    let variables: Vec<_> = (exported.split_whitespace().skip(1))
        .map(|it| it.split_once('=').expect("a variable"))
        .collect();
    let nightly = typed("## Every night\n");
    let found = typed("## One file back\n");
    for line in lines.iter().chain(&nightly).chain(&found) {
        // The rules leave one snapshot, and two are compared.
        let line = line.replace("diff 1 latest", "diff latest latest");
        let output = run_with(path, &line, &variables);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {message}");
    }
    let text = |name: &str| fs::read(path.join(name)).expect("a file");
    assert!(text("tmp/text/text") == text("srv/games/text"));
}

#[cfg(feature = "s3")]
#[test]
fn what_the_guide_types_works_on_a_store_of_objects() {
    let Some(server) = server::Server::start() else {
        return;
    };
    let folder = places();
    let path = folder.path();
    let lines = typed("## In S3\n");
    let (exported, lines) = lines.split_first().expect("variables");
    let variables: Vec<_> = (exported.split_whitespace().skip(1))
        .map(|it| it.split_once('=').expect("a variable"))
        .collect();
    let here = format!("http://{}:{}", std::net::Ipv4Addr::LOCALHOST, server.port);
    let run_in = |path: &Path, line: &str| {
        let line = line.replace("http://HOST:9000", &here);
        let output = run_with(path, &line, &variables);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code(), said)
    };
    let run_here = |line: &str| run_in(path, line);
    let (last, lines) = lines.split_last().expect("a restore");
    for line in lines {
        let (code, said) = run_here(line);
        assert_eq!(code, Some(0), "{line}: {said}");
    }
    // Elsewhere there is nothing but the password.
    let elsewhere = tempfile::tempdir().expect("a folder");
    fs::copy(
        path.join("password.txt"),
        elsewhere.path().join("password.txt"),
    )
    .expect("a file");
    let (code, said) = run_in(elsewhere.path(), last);
    assert_eq!(code, Some(0), "{last}: {said}");
    check_restored_to(path, &elsewhere.path().join("tmp/back"));
    let vault = format!("breakeven vault -r s3://bucket/games --endpoint {here} -p password.txt");
    for command in ["init", "add /srv/none"] {
        let (code, said) = run_here(&format!("{vault} {command}"));
        assert!(
            code != Some(0) && !said.contains("panicked"),
            "{command}: {said}"
        );
    }
    let (code, said) = run_here(&format!(
        "breakeven vault -r s3://none/games --endpoint {here} -p password.txt list"
    ));
    assert!(code == Some(1) && said.contains("there is none"), "{said}");
    for command in ["verify", "forget 1", "gc --grace 0", "stats", "list"] {
        let (code, said) = run_here(&format!("{vault} {command}"));
        assert_eq!(code, Some(0), "{command}: {said}");
    }
}

#[test]
fn a_repair_says_what_is_lost_and_the_next_add_brings_it_back() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    ok(path, &format!("{vault} add /srv/games"));
    // The larger pack holds the files, the smaller one their folders.
    let packs = fs::read_dir(path.join("backup/games/packs")).expect("packs");
    let packs =
        packs.flat_map(|below| fs::read_dir(below.expect("a folder").path()).expect("a pack"));
    let largest = packs
        .map(|pack| pack.expect("a pack").path())
        .max_by_key(|pack| fs::metadata(pack).expect("its size").len());
    fs::remove_file(largest.expect("a pack")).expect("it goes");
    assert_eq!(run(path, &format!("{vault} verify")).status.code(), Some(1));
    let repaired = run(path, &format!("{vault} repair"));
    let message = String::from_utf8_lossy(&repaired.stderr);
    assert_eq!(repaired.status.code(), Some(1), "{message}");
    assert!(message.contains("snapshot 1 has lost"), "{message}");
    assert!(message.contains("/srv/games/text"), "{message}");
    ok(path, &format!("{vault} add /srv/games"));
    ok(path, &format!("{vault} verify"));
    ok(path, &format!("{vault} restore 1 --target /back"));
    check_restored(path, "back");
}

#[track_caller]
fn ends(folder: &Path, line: &str, code: i32) -> String {
    let output = run(folder, line);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    said
}

/// What lies in a folder of the vault, by name.
fn objects(folder: &Path, below: &str) -> Vec<PathBuf> {
    let listed = fs::read_dir(folder.join("backup/games").join(below)).expect("a folder");
    let mut paths: Vec<PathBuf> = listed.map(|it| it.expect("an object").path()).collect();
    paths.sort();
    paths
}

#[test]
fn damage_is_named_and_what_is_whole_is_given() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    let only = path.join("srv/games/only in the second");
    for at in 1..=3 {
        match at {
            2 => fs::write(&only, "nothing else leads here").expect("it is written"),
            3 => fs::remove_file(&only).expect("it goes"),
            _ => {}
        }
        ok(path, &format!("{vault} add /srv/games"));
    }
    // An index, and an old record with its copy.
    fs::write(&objects(path, "index")[0], b"no index").expect("it is written");
    fs::write(&objects(path, "snapshots")[1], b"no record").expect("it is written");
    for copy in objects(path, "copies") {
        if copy.ends_with("record-0000000000000002") {
            fs::remove_file(copy).expect("it goes");
        }
    }
    let said = ends(path, &format!("{vault} list"), 3);
    assert!(said.contains("snapshots/0000000000000002"), "{said}");
    assert!(said.contains("vault repair"), "{said}");
    assert_eq!(said.matches("/srv/games").count(), 2, "{said}");
    for (at, snapshot) in ["1", "latest"].into_iter().enumerate() {
        let line = format!("{vault} restore {snapshot} --target /back{at}");
        let said = ends(path, &line, 3);
        assert!(said.contains("index/0000000000000001"), "{said}");
        check_restored(path, &format!("back{at}"));
    }
    ends(path, &format!("{vault} add /srv/games"), 3);
    ends(path, &format!("{vault} verify"), 1);
    let said = ends(path, &format!("{vault} repair"), 1);
    assert!(said.contains("snapshot 2 is lost"), "{said}");
    ok(path, &format!("{vault} verify"));
    ok(path, &format!("{vault} restore 1 --target /again"));
    check_restored(path, "again");
    let (_, found) = said.split_once("vault restore ").expect("what was found");
    let (found, _) = found.split_once('`').expect("a number");
    ok(path, &format!("{vault} restore {found} --target /found"));
    let below = path.strip_prefix("/").expect("a path");
    let folders = path.join("found/lost+found");
    let folders = fs::read_dir(folders).expect("one of a second").next();
    let folders = folders.expect("one").expect("one").path().join("folders");
    let name = below.join("srv/games/only in the second");
    let found = fs::read_dir(folders).expect("folders");
    let mut found = found.filter_map(|it| fs::read(it.expect("one").path().join(&name)).ok());
    assert_eq!(found.next().expect("the file"), b"nothing else leads here");
}

#[test]
fn what_an_init_that_failed_left_is_no_damage() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, "breakeven vault -r /other -p password.txt init");
    let other = fs::read_dir(path.join("other/keys")).expect("keys").next();
    let other = other.expect("a key").expect("a key").path();
    let name = other.file_name().expect("a name").to_owned();
    fs::create_dir_all(path.join("backup/games/keys")).expect("a folder");
    let left = path.join("backup/games/keys").join(&name);
    fs::copy(&other, &left).expect("a copy");
    ok(path, &format!("{vault} init"));
    assert!(!left.exists());
    ok(path, &format!("{vault} add /srv/games"));
    ok(path, &format!("{vault} verify"));
    // A vault that one of before made beside such a key.
    fs::copy(&other, &left).expect("a copy");
    ends(path, &format!("{vault} verify"), 1);
    let said = ends(path, &format!("{vault} repair"), 1);
    let help = format!("key --remove {}", name.display());
    assert!(said.contains(&help), "{said}");
    ok(path, &format!("{vault} {help}"));
    ok(path, &format!("{vault} repair"));
    ok(path, &format!("{vault} verify"));
    // Who lost config and makes a vault anew keeps what is there.
    fs::remove_file(path.join("backup/games/config")).expect("it goes");
    let said = ends(path, &format!("{vault} init"), 1);
    assert!(said.contains("its config is gone"), "{said}");
    ends(path, &format!("{vault} repair"), 0);
    ok(path, &format!("{vault} verify"));
}

#[test]
fn a_rule_that_would_keep_nothing_is_refused() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    for (host, tag) in [("one", "a"), ("one", "keep"), ("two", "a")] {
        ok(
            path,
            &format!("{vault} add --host {host} --tag {tag} /srv/games"),
        );
    }
    let said = ends(path, &format!("{vault} forget --keep-tag kept"), 1);
    assert!(said.contains("nothing was forgotten"), "{said}");
    // Nothing of the other host is kept, either.
    ends(path, &format!("{vault} forget --keep-tag keep"), 1);
    let said = ok(path, &format!("{vault} list"));
    assert_eq!(said.lines().count(), 3, "{said}");
    ok(path, &format!("{vault} forget --host one --keep-tag keep"));
    let said = ok(path, &format!("{vault} list --host one"));
    assert!(
        said.starts_with("2 ") && said.lines().count() == 1,
        "{said}"
    );
    let said = ok(path, &format!("{vault} list --tag a --path /srv/games"));
    assert!(
        said.starts_with("3 ") && said.lines().count() == 1,
        "{said}"
    );
    ok(
        path,
        &format!("{vault} restore latest --host one --target /back"),
    );
    check_restored(path, "back");
    ends(
        path,
        &format!("{vault} restore latest --host none --target /back"),
        1,
    );
    ok(
        path,
        &format!("{vault} forget --keep-tag none --unsafe-allow-remove-all"),
    );
    let said = ok(path, &format!("{vault} list"));
    assert_eq!(said.trim(), "");
}

#[test]
fn latest_is_the_youngest_and_not_the_last_that_was_copied() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    ok(path, &format!("{vault} add /srv/games"));
    fs::write(path.join("srv/games/text"), "another\n").expect("a file");
    ok(path, &format!("{vault} add /srv/games"));
    let second = "breakeven vault -r /backup/second -p password.txt";
    ok(path, &format!("{second} init"));
    for snapshot in ["2", "1"] {
        ok(
            path,
            &format!("{second} copy --from-repo /backup/games {snapshot}"),
        );
    }
    ok(path, &format!("{second} restore latest --target /back"));
    check_restored(path, "back");
}

/// A file system with shared extents, on a loop device.
struct Shared {
    folder: TempDir,
}

impl Shared {
    fn mounted() -> Option<Shared> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let file = fs::File::create(&image).expect("a file");
        file.set_len(400 << 20).expect("its length");
        let run = |command: &mut Command| command.status().is_ok_and(|status| status.success());
        let made = run(Command::new("mkfs.xfs").arg("-q").arg(&image));
        assert!(
            made || std::env::var_os("CI").is_none(),
            "no mkfs.xfs for shared extents"
        );
        fs::create_dir(folder.path().join("mounted")).expect("a folder");
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image);
        let is_mounted = made && run(mount.arg(folder.path().join("mounted")));
        if !is_mounted {
            println!("no xfs here: nothing tried");
        }
        is_mounted.then_some(Shared { folder })
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    fn free_bytes(&self) -> u64 {
        done(Command::new("sync").arg("-f").arg(self.path()));
        let mut command = Command::new("df");
        command.args(["-B1", "--output=avail"]).arg(self.path());
        let said = done(&mut command);
        let number = said.lines().last().expect("a number");
        number.trim().parse().expect("a number")
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}

fn done(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {message}");
    String::from_utf8(output.stdout).expect("text")
}

/// Clones of which nothing was written over are not read, and come back as clones.
#[test]
fn root_shared_extents_are_read_once_and_restored_once() {
    if std::env::var("BREAKEVEN_ROOT_TESTS").is_err() {
        return;
    }
    let Some(shared) = Shared::mounted() else {
        return;
    };
    let path = shared.path();
    fs::create_dir_all(path.join("srv/one")).expect("folders");
    fs::write(path.join("password.txt"), "a password\n").expect("a file");
    for at in 0..4 {
        let content = crate::noise(4_000_000 + at);
        fs::write(path.join(format!("srv/one/{at}")), content).expect("a file");
    }
    let clone = |to: &str| {
        let mut command = Command::new("cp");
        command.args(["-a", "--reflink=always"]);
        done(command.arg(path.join("srv/one")).arg(path.join(to)));
    };
    clone("srv/two");
    clone("srv/three");
    // A clone that is no longer one, by bytes that are not yet on the disk.
    let changed = fs::File::options().write(true).open(path.join("srv/two/1"));
    std::os::unix::fs::FileExt::write_all_at(&changed.expect("a file"), b"other", 2_000_000)
        .expect("it writes");
    let vault = "breakeven vault -r /vault -p password.txt";
    ok(&path, &format!("{vault} init"));
    let said = ok(&path, &format!("{vault} --json add /srv"));
    println!("{said}");
    assert!(said.contains("\"shared_files\":7"), "{said}");
    let before = shared.free_bytes();
    ok(&path, &format!("{vault} restore latest --target /back"));
    let taken = before - shared.free_bytes();
    // Five files are no clones of another: 20 MB of 48.
    assert!(taken < 24_000_000, "{taken} bytes for the restored files");
    let back = path
        .join("back")
        .join(path.strip_prefix("/").expect("a path"));
    let mut same = Command::new("diff");
    done(same.arg("-r").arg(path.join("srv")).arg(back.join("srv")));
}

/// What the vaults in `golden` hold, below a folder: a text, and what begins as an image does.
fn golden_tree() -> Vec<(&'static str, Vec<u8>)> {
    let draws = |seed: u64| {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005);
            state = state.wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        }
    };
    let mut draw = draws(1);
    let mut text = Vec::new();
    while text.len() < 400_000 {
        let line = draw() % 60;
        let square = line * line;
        let line = format!("line {line} of a text that says little, {square} times\n");
        text.extend_from_slice(line.as_bytes());
    }
    let mut draw = draws(2);
    let mut image: Vec<u8> = (0..50).flat_map(|_| [draw() as u8; 4096]).collect();
    image[1080..1082].copy_from_slice(&[0x53, 0xEF]);
    vec![
        ("text", text),
        ("below/image", image),
        ("below/small", b"a few bytes\n".to_vec()),
    ]
}

/// Damages the pack of folders of a vault, restores by its copy, and mends it.
fn check_copy_of_folders(path: &Path) {
    let packs = fs::read_dir(path.join("v/packs")).expect("packs");
    let packs = packs.flat_map(|it| fs::read_dir(it.expect("a folder").path()).expect("a pack"));
    let mut packs = packs.map(|it| it.expect("a pack").path());
    let is_of_folders = |pack: &PathBuf| fs::read(pack).expect("its bytes")[4] == 2;
    let pack = packs.find(is_of_folders).expect("a pack of folders");
    let mut bytes = fs::read(&pack).expect("its bytes");
    bytes[30] ^= 1;
    fs::write(&pack, bytes).expect("it is written");
    ends(
        path,
        "breakeven vault -r v -p p restore 1 --target by-copy",
        3,
    );
    for (name, content) in golden_tree() {
        let back = path.join("by-copy/srv/golden").join(name);
        assert!(fs::read(&back).expect("a file") == content, "{name}");
    }
    ends(path, "breakeven vault -r v -p p repair", 0);
}

/// Vaults of version 1, kept as they were written: `before` has lists beside the contents, `now` apart from them, `attributes`
/// extended attributes too, a link of two names and a file that changed while it was read; `padded` has folders twice and frames
/// with padding. Each is
/// whole and restored, and what it holds is cut where it was, so that it is not stored again.
#[test]
fn a_vault_that_was_written_once_is_read_and_its_cuts_stay() {
    for name in ["before", "now", "attributes", "padded"] {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path();
        let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vault/golden");
        done(
            Command::new("cp")
                .arg("-r")
                .arg(kept.join(name))
                .arg(path.join("v")),
        );
        fs::write(path.join("p"), "a password\n").expect("a file");
        let said = ok(path, "breakeven vault -r v -p p verify");
        assert!(said.contains(" 0 damages"), "{said}");
        let said = ok(path, "breakeven vault -r v -p p restore 1 --target back");
        let golden = path.join("back/srv/golden");
        match name {
            "attributes" => {
                assert!(said.contains("1 of them changed"), "{said}");
                let mut value = [0; 10];
                let length = rustix::fs::getxattr(golden.join("text"), "user.k", &mut value);
                assert_eq!(&value[..length.expect("an attribute")], b"val");
                let link = |name: &str| fs::symlink_metadata(golden.join(name)).expect("a link");
                assert_eq!(link("link").ino(), link("below/link").ino());
            }
            "padded" => {
                assert!(!said.contains("has no attributes"), "{said}");
                check_copy_of_folders(path);
            }
            _ => assert!(said.contains("has no attributes"), "{said}"),
        }
        let said = ok(path, "breakeven vault -r v -p p repair");
        let gave = said.contains("nothing is damaged; gave ");
        assert_eq!(gave, name != "padded", "{said}");
        let said = ok(path, "breakeven vault -r v -p p repair");
        assert_eq!(said.trim(), "nothing is damaged");
        let said = ok(path, "breakeven vault -r v -p p verify");
        assert!(said.contains(" 0 damages"), "{said}");
        for (name, content) in golden_tree() {
            let back = golden.join(name);
            assert!(fs::read(&back).expect("a file") == content, "{name}");
        }
        let said = ok(path, "breakeven vault -r v -p p add --json back");
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let new = said["new_raw_bytes"].as_u64().expect("a number");
        assert!(new < 2000, "{name}: {said}");
    }
}

#[test]
fn a_list_has_local_times_and_units() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    ok(
        path,
        &format!("{vault} add --host here --tag one /srv/games"),
    );
    let facts: serde_json::Value =
        serde_json::from_str(&ok(path, &format!("{vault} list --json"))).expect("JSON");
    let seconds = facts[0]["seconds"].as_i64().expect("a number");
    for zone in ["UTC", "CET-1CEST,M3.5.0,M10.5.0/3", "XXX+9:30"] {
        let date = Command::new("date")
            .args(["+%F %T", &format!("--date=@{seconds}")])
            .env("TZ", zone)
            .output()
            .expect("date");
        let date = String::from_utf8(date.stdout).expect("text");
        let output = run_with(path, &format!("{vault} list"), &[("TZ", zone)]);
        let line = String::from_utf8(output.stdout).expect("text");
        let games = path.join("srv/games");
        let expected = format!(
            "1     {}  here    363 kB  {}  one\n",
            date.trim(),
            games.display()
        );
        assert_eq!(line, expected, "{zone}");
    }
}

#[test]
fn what_is_young_and_each_hour_are_kept() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    for _ in 0..2 {
        ok(path, &format!("{vault} add /srv/games"));
    }
    let said = ok(path, &format!("{vault} forget -n --keep-within 2h"));
    assert!(said.starts_with("would forget 0 of 2"), "{said}");
    ends(path, &format!("{vault} forget --keep-within 2"), 2);
    // A snapshot that is named and that the rules let go counts once.
    let said = ok(path, &format!("{vault} forget -n --keep-last 1 1 1"));
    assert!(
        said.starts_with("would forget 1 of 2 snapshots: [1]"),
        "{said}"
    );
    ok(path, &format!("{vault} forget --keep-hourly 1"));
    let said = ok(path, &format!("{vault} list"));
    assert!(
        said.starts_with("2 ") && said.lines().count() == 1,
        "{said}"
    );
}

/// Runs the program in a shell that has set a limit before.
fn run_limited(folder: &Path, limit: &str, line: &str) -> (Option<i32>, String) {
    let line = line.replacen("breakeven", env!("CARGO_BIN_EXE_breakeven"), 1);
    let script = format!("{limit} && exec {line}");
    let output = Command::new("sh")
        .args(["-c", &script])
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .expect("a shell");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn few_open_files_are_enough() {
    let folder = places();
    let path = folder.path();
    for at in 0..600 {
        let below = path.join(format!("srv/games/many/{}/{at}", at % 7));
        fs::create_dir_all(&below).expect("folders");
        fs::write(below.join("file"), format!("{at}")).expect("a file");
    }
    let deep = Path::new("srv/games").join(["d"; 600].join("/"));
    fs::create_dir_all(path.join(&deep)).expect("folders");
    fs::write(path.join(&deep).join("file"), "deep").expect("a file");
    for above in deep.ancestors().take(600) {
        // Beside what lies below, before it and behind it.
        for name in ["a", "e"] {
            fs::write(path.join(above).join(name), name).expect("a file");
        }
    }
    let vault = "breakeven vault -r backup/games -p password.txt";
    // Into nothing, and over what is there.
    let restore = "restore latest --target back";
    let lines = [
        "init",
        "add srv/games",
        "verify",
        restore,
        &format!("{restore} --overwrite"),
        "stats",
        "gc --grace 0",
    ];
    for line in lines {
        let (code, said) = run_limited(path, "ulimit -n 256", &format!("{vault} {line}"));
        assert_eq!(code, Some(0), "{line}: {said}");
    }
    // What is there is kept, and each file of it is named.
    let (code, said) = run_limited(path, "ulimit -n 256", &format!("{vault} {restore}"));
    assert_eq!(code, Some(3), "{said}");
    assert!(!said.contains("Too many open files"), "{said}");
    check_restored(path, "back");
    let back = path
        .join("back")
        .join(path.strip_prefix("/").expect("a path"));
    for above in deep.ancestors().take(600) {
        for name in ["a", "e"] {
            let content = fs::read(back.join(above).join(name)).expect("a file");
            assert_eq!(content, name.as_bytes(), "{}", above.display());
        }
    }
    assert_eq!(
        fs::read(back.join(&deep).join("file")).expect("a file"),
        b"deep"
    );
    // The library that removes the rest holds each folder open on its way down.
    for folder in [path.join("srv"), path.join("back")] {
        let removed = Command::new("rm").arg("-rf").arg(folder).status();
        assert!(removed.expect("rm").success());
    }
}

/// Every file and folder of the vault with its mode.
fn modes_below(folder: &Path) -> Vec<(PathBuf, u32)> {
    let mut modes = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let (path, metadata) = entry
            .and_then(|it| Ok((it.path(), it.metadata()?)))
            .expect("an entry");
        if metadata.is_dir() {
            modes.extend(modes_below(&path));
        }
        modes.push((path, metadata.mode() & 0o777));
    }
    modes
}

#[test]
fn what_is_added_to_a_vault_of_a_group_is_the_groups_too() {
    let folder = places();
    let path = folder.path();
    let repository = path.join("backup/games");
    let vault = "breakeven vault -r backup/games -p password.txt";
    let run = |line: &str| {
        let (code, said) = run_limited(path, "umask 002", &format!("{vault} {line}"));
        assert_eq!(code, Some(0), "{line}: {said}");
    };
    let check = |group: u32| {
        for (path, mode) in modes_below(&repository) {
            let wanted = if path.is_dir() { group } else { group & 0o060 };
            assert_eq!(mode & 0o070, wanted, "{}: {mode:o}", path.display());
            assert_eq!(mode & 0o007, 0, "{}: {mode:o}", path.display());
        }
    };
    run("init");
    run("add srv/games");
    check(0);
    let mut give = Command::new("chmod");
    let given = give.args(["-R", "g+rwX"]).arg(&repository).status();
    assert!(given.expect("chmod").success());
    for at in 0..8 {
        let name = format!("srv/games/new {at}");
        fs::write(path.join(name), crate::noise(70_000 + at)).expect("a file");
        run("add srv/games");
    }
    run("forget --keep-last 1");
    run("gc --grace 0");
    check(0o070);
}

#[test]
fn stats_say_what_is_held_after_a_forget() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    ok(path, &format!("{vault} add /srv/games"));
    fs::write(path.join("srv/games/one/data"), crate::noise(1000)).expect("a file");
    ok(path, &format!("{vault} add /srv/games"));
    let stats = || -> serde_json::Value {
        serde_json::from_str(&ok(path, &format!("{vault} stats --json"))).expect("JSON")
    };
    let number = |facts: &serde_json::Value, name: &str| facts[name].as_u64().expect("a number");
    let before = stats();
    assert_eq!(number(&before, "needed_raw_bytes"), 300_000 + 63_000 + 1000);
    // Of the snapshot that brought nearly everything, only what the other needs is left.
    ok(path, &format!("{vault} forget 1"));
    let after = stats();
    assert_eq!(number(&after, "needed_raw_bytes"), 63_000 + 1000);
    assert!(number(&after, "unneeded_bytes") > 200_000, "{after}");
    assert!(number(&after, "needed_stored_bytes") < 64_000, "{after}");
    ok(path, &format!("{vault} gc --grace 0"));
    ok(path, &format!("{vault} gc --grace 0"));
    let collected = stats();
    assert_eq!(number(&collected, "needed_raw_bytes"), 63_000 + 1000);
    assert!(
        number(&collected, "unneeded_bytes") < 100_000,
        "{collected}"
    );
}

#[test]
fn several_add_and_one_who_waits_collects_alone() {
    let folder = places();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    let start = |words: &[&str], stdin: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
        let command = command.args(["vault", "-r", "backup/games", "-p", "password.txt"]);
        let command = command.args(words).current_dir(path).stdin(stdin);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts")
    };
    let mut first = start(&["add", "-"], Stdio::piped());
    let begun = std::time::Instant::now();
    let collect = || start(&["gc"], Stdio::null()).wait().expect("it ends");
    while collect().success() {
        assert!(begun.elapsed().as_secs() < 100, "it does not begin");
    }
    ok(path, &format!("{vault} add /srv/games"));
    let refused = ends(path, &format!("{vault} gc"), 1);
    assert!(refused.contains("another process writes"), "{refused}");
    let mut second = start(&["gc", "--wait", "10m"], Stdio::null());
    drop(first.stdin.take());
    assert!(first.wait().expect("it ends").success());
    assert!(second.wait().expect("it ends").success());
    let said = ok(path, &format!("{vault} list"));
    assert!(
        said.contains("stdin") && said.contains("/srv/games"),
        "{said}"
    );
    ends(path, &format!("{vault} --wait 10 list"), 2);
}
