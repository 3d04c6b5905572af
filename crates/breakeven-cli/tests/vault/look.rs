//! Looking into snapshots: `ls`, `find`, `diff`, `dump`, and parts of one restored.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{ends, ok, places, run};

const VAULT: &str = "breakeven vault -r /backup/games -p password.txt";

/// A vault with two snapshots of `srv/games`.
fn two_snapshots() -> tempfile::TempDir {
    let folder = places();
    let path = folder.path();
    symlink("text", path.join("srv/games/link")).expect("a link");
    ok(path, &format!("{VAULT} init"));
    ok(path, &format!("{VAULT} add /srv/games"));
    fs::write(path.join("srv/games/one/new"), "new\n").expect("a file");
    fs::remove_file(path.join("srv/games/link")).expect("it goes");
    ok(path, &format!("{VAULT} add /srv/games"));
    folder
}

/// The path of the games as a snapshot has it.
fn games(folder: &Path) -> String {
    format!("{}/srv/games", folder.display())
}

#[test]
fn a_snapshot_is_listed() {
    let folder = two_snapshots();
    let path = folder.path();
    let games = games(path);
    let said = ok(path, &format!("{VAULT} ls"));
    assert!(said.contains(&format!("\n{games}/one/new\n")), "{said}");
    let said = ok(path, &format!("{VAULT} ls 1:{games}"));
    assert_eq!(said, "/link\n/one\n/one/data\n/text\n");
    let said = ok(path, &format!("{VAULT} ls 2:{games}/text"));
    assert_eq!(said, "/text\n");
    let said = ok(path, &format!("{VAULT} ls -0 2:{games}/one"));
    assert_eq!(said, "/data\0/new\0");
    let said = ok(path, &format!("{VAULT} ls -l 1:{games}"));
    let lines: Vec<_> = said.lines().collect();
    assert!(
        lines[0].starts_with("lrwxrwxrwx ") && lines[0].ends_with(" /link -> text"),
        "{said}"
    );
    assert!(
        lines[2].contains(" 300000 ") && lines[2].ends_with(" /one/data"),
        "{said}"
    );
    let said = ok(path, &format!("{VAULT} ls --json 1:{games}"));
    let first: serde_json::Value =
        serde_json::from_str(said.lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["path"], "/link");
    assert_eq!(
        (&first["type"], &first["target"]),
        (&"symlink".into(), &"text".into())
    );
    let said = ends(path, &format!("{VAULT} ls 1:/none"), 1);
    assert!(said.contains("there is no /none in snapshot 1"), "{said}");
    ends(path, &format!("{VAULT} ls last"), 2);
    ends(path, &format!("{VAULT} ls 7"), 1);
}

#[test]
fn a_file_is_found_in_every_snapshot() {
    let folder = two_snapshots();
    let path = folder.path();
    let games = games(path);
    let said = ok(path, &format!("{VAULT} find text link"));
    assert_eq!(
        said,
        format!("2:{games}/text\n1:{games}/link\n1:{games}/text\n")
    );
    let said = ok(path, &format!("{VAULT} find -s 2:{games}/one ne?"));
    assert_eq!(said, format!("2:{games}/one/new\n"));
    // What was found can be typed.
    let typed = said.trim();
    let said = ok(path, &format!("{VAULT} dump {typed}"));
    assert_eq!(said, "new\n");
    assert_eq!(ok(path, &format!("{VAULT} find none")), "");
}

#[test]
fn two_snapshots_are_compared() {
    let folder = two_snapshots();
    let path = folder.path();
    let games = games(path);
    let said = ok(path, &format!("{VAULT} diff 1:{games} 2:{games}"));
    let expected = "-    /link\n+    /one/new\n1 new, 1 gone, 0 of another content, 0 of another kind, 1 with only other metadata\n";
    assert_eq!(said, expected);
    let said = ok(path, &format!("{VAULT} diff --metadata 1 2"));
    assert!(said.contains(&format!("U    {games}/one/\n")), "{said}");
    ends(path, &format!("{VAULT} diff 1 2:{games}/text"), 1);
}

#[test]
fn a_file_or_an_archive_goes_to_standard_output() {
    let folder = two_snapshots();
    let path = folder.path();
    let games = games(path);
    let output = run(path, &format!("{VAULT} dump 1:{games} one/data"));
    assert!(output.stdout == fs::read(path.join("srv/games/one/data")).expect("a file"));
    ends(path, &format!("{VAULT} dump 1:{games}/link"), 1);
    ends(path, &format!("{VAULT} dump 1:{games} none"), 1);
    let output = run(path, &format!("{VAULT} dump 1:{games} --archive tar"));
    assert!(output.status.success());
    let target = path.join("unpacked");
    untar(&output.stdout, &target);
    let same = |name: &str| {
        let [was, is] = [path.join("srv/games"), target.clone()].map(|it| it.join(name));
        assert!(
            fs::read(&was).expect("a file") == fs::read(&is).expect("a file"),
            "{name}"
        );
        let modified = [was, is].map(|it| {
            fs::metadata(it)
                .expect("it is there")
                .modified()
                .expect("a time")
        });
        assert_eq!(modified[0], modified[1], "{name}");
    };
    same("one/data");
    same("text");
    assert_eq!(
        fs::read_link(target.join("link")).expect("a link"),
        Path::new("text")
    );
}

#[test]
fn an_archive_goes_on_behind_a_damaged_file() {
    let folder = two_snapshots();
    let path = folder.path();
    let mut packs = Vec::new();
    for shard in fs::read_dir(path.join("backup/games/packs")).expect("packs") {
        for pack in fs::read_dir(shard.expect("an entry").path()).expect("a folder") {
            let pack = pack.expect("an entry");
            packs.push((pack.metadata().expect("a file").len(), pack.path()));
        }
    }
    let (_, largest) = packs.into_iter().max().expect("a pack");
    fs::remove_file(largest).expect("it goes");
    let output = run(path, &format!("{VAULT} dump 2:{}", games(path)));
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message
            .contains("one/data: 300000 bytes are lost, which read as zeros: bytes 0 to 299999: "),
        "{message}"
    );
    let target = path.join("unpacked");
    untar(&output.stdout, &target);
    assert_eq!(fs::read(target.join("one/new")).expect("a file"), b"new\n");
    assert_eq!(
        fs::read(target.join("one/data")).expect("a file"),
        [0; 300_000]
    );
}

#[test]
fn of_a_damaged_file_the_rest_is_given_before_a_repair_and_behind_it() {
    let folder = places();
    let path = folder.path();
    let data = crate::noise(6_000_000);
    fs::write(path.join("srv/games/one/data"), &data).expect("a file");
    ok(path, &format!("{VAULT} init"));
    ok(path, &format!("{VAULT} add /srv/games"));
    let packs = super::objects(path, "packs").into_iter();
    let packs = packs.flat_map(|it| fs::read_dir(it).expect("a folder"));
    let packs = packs.map(|it| it.expect("an entry").path());
    let largest = packs.max_by_key(|it| fs::metadata(it).expect("a file").len());
    let largest = largest.expect("a pack");
    let mut bytes = fs::read(&largest).expect("a pack");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::remove_file(&largest).expect("it goes");
    fs::write(&largest, bytes).expect("a pack");
    for at in 0..2 {
        let said = ends(path, &format!("{VAULT} verify"), 1);
        let data_path = path.join("srv/games/one/data");
        let named = format!("snapshot 1 has lost parts of {}", data_path.display());
        assert_eq!(said.matches("has lost parts of").count(), 1, "{said}");
        assert!(said.contains(&named), "{said}");
        let target = format!("/back{at}");
        let back = path.join(&target[1..]);
        let said = ends(
            path,
            &format!("{VAULT} restore latest:/srv/games --target {target}"),
            3,
        );
        let archive = run(path, &format!("{VAULT} dump latest:/srv/games"));
        assert_eq!(archive.status.code(), Some(3));
        let unpacked = path.join(format!("unpacked{at}"));
        untar(&archive.stdout, &unpacked);
        assert!(said.contains("one/data: "), "{said}");
        assert!(
            said.contains(" bytes are lost, which read as zeros"),
            "{said}"
        );
        for file in [back.join("one/data"), unpacked.join("one/data")] {
            let found = fs::read(file).expect("a file");
            assert_eq!(found.len(), data.len());
            let lost = found.iter().zip(&data).filter(|(one, other)| one != other);
            let zeros = lost.clone().filter(|(one, _)| **one == 0).count();
            assert!((1..2 << 20).contains(&zeros), "{zeros}");
            assert_eq!(lost.count(), zeros);
        }
        ends(path, &format!("{VAULT} repair"), 1);
    }
}

/// Unpacks an archive into a new folder.
fn untar(archive: &[u8], folder: &Path) {
    fs::create_dir(folder).expect("a folder");
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "-C"])
        .arg(folder)
        .stdin(Stdio::piped());
    let mut tar = tar.spawn().expect("tar");
    let mut input = tar.stdin.take().expect("a pipe");
    input.write_all(archive).expect("tar reads");
    drop(input);
    assert!(tar.wait().expect("tar ends").success());
}

#[test]
fn an_archive_has_hard_links_long_names_and_what_is_not_utf_8() {
    let folder = places();
    let path = folder.path();
    let games = path.join("srv/games");
    let long = "x".repeat(200);
    let strange = OsStr::from_bytes(b"st\xFFrange");
    fs::write(games.join(strange), "strange").expect("a file");
    fs::create_dir(games.join(&long)).expect("a folder");
    fs::hard_link(games.join("text"), games.join(&long).join(&long)).expect("a link");
    let _socket = std::os::unix::net::UnixListener::bind(games.join("socket")).expect("a socket");
    ok(path, &format!("{VAULT} init"));
    ok(path, &format!("{VAULT} add /srv/games"));
    let output = run(path, &format!("{VAULT} dump latest /"));
    let message = String::from_utf8_lossy(&output.stderr);
    // All but the socket, which is named.
    assert_eq!(output.status.code(), Some(3), "{message}");
    assert!(
        message.contains("srv/games/socket: an archive has no sockets"),
        "{message}"
    );
    let target = path.join("unpacked");
    untar(&output.stdout, &target);
    let back = target.join(games.strip_prefix("/").expect("a path"));
    assert_eq!(fs::read(back.join(strange)).expect("a file"), b"strange");
    let inode = |path: &Path| {
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).expect("it is there"))
    };
    assert_eq!(
        inode(&back.join("text")),
        inode(&back.join(&long).join(&long))
    );
}

#[test]
fn a_reader_that_left_ends_a_dump_in_silence() {
    let folder = two_snapshots();
    let path = folder.path();
    for what in ["one/data", ""] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = Command::new(env!("CARGO_BIN_EXE_breakeven"))
            .args(["vault", "-r", "backup/games", "-p", "password.txt", "dump"])
            .arg(format!("1:{}/{what}", games(path)))
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(writer)
            .stderr(Stdio::piped())
            .output()
            .expect("the program starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(
            (output.status.signal(), &*message),
            (Some(13), ""),
            "{what}"
        );
    }
    let full = fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("it is there");
    let status = Command::new(env!("CARGO_BIN_EXE_breakeven"))
        .args(["vault", "-r", "backup/games", "-p", "password.txt", "dump"])
        .arg(format!("1:{}/one/data", games(path)))
        .current_dir(path)
        .stdin(Stdio::null())
        .stdout(full)
        .stderr(Stdio::null())
        .status();
    assert_eq!(status.expect("the program starts").code(), Some(1));
}

#[test]
fn a_part_is_restored() {
    let folder = two_snapshots();
    let path = folder.path();
    let games = games(path);
    ok(
        path,
        &format!("{VAULT} restore 1:{games} --target /part --include data"),
    );
    assert_eq!(ok(path, &format!("{VAULT} ls 1:{games}/one")), "/data\n");
    let names = |folder: &str| {
        let listed = fs::read_dir(path.join(folder)).expect("a folder");
        let mut names: Vec<_> = listed.map(|it| it.expect("a name").file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names("part"), ["one"]);
    assert_eq!(names("part/one"), ["data"]);
    ok(
        path,
        &format!("{VAULT} restore 2:{games}/text --target /file"),
    );
    assert_eq!(names("file"), ["text"]);
    let said = ends(
        path,
        &format!("{VAULT} restore 1:{games} --target /none --include date"),
        3,
    );
    assert!(
        said.contains("nothing in the snapshot is named so"),
        "{said}"
    );
}
