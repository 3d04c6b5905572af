//! `breakeven db`: in and out again, and the refusals.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::page::left_out;
use crate::run;

/// Makes a plain database with some thousand rows, by stock SQLite; false without it.
fn make(path: &Path, then: &str) -> bool {
    let rows = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);\
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)\
        INSERT INTO t SELECT i, 'row ' || i || ' of many that are much alike' FROM n;";
    let made = Command::new("sqlite3")
        .arg(path)
        .arg(format!("{rows}{then}"))
        .output();
    let Ok(made) = made else {
        left_out("sqlite3 is not installed: nothing tried with it");
        return false;
    };
    assert!(made.status.success(), "{made:?}");
    true
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Advice predicts the sizes of an import, and of a commit after it.
fn check_advice(database: &Path) {
    let cache = tempfile::tempdir().unwrap();
    let advised = said(&run(&cache, &[&"advise", &"--time=1", &database]));
    let advised = advised.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in ["would be a file of", "a commit of one row would write"] {
        assert!(advised.contains(line), "{advised}");
    }
}

#[test]
fn a_database_goes_in_is_looked_at_and_comes_out_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    if !make(&path("plain"), "") {
        return;
    }
    let db = |arguments: &[&str]| db(&folder, arguments);
    let before = fs::read(path("plain")).unwrap();
    let imported = db(&["import", "plain", "small"]);
    assert!(imported.status.success(), "{}", said(&imported));
    let (small, plain) = (
        fs::metadata(path("small")).unwrap().len(),
        before.len() as u64,
    );
    println!("{plain} bytes became {small}");
    assert!(small < plain);
    check_advice(&path("plain"));
    let info = db(&["info", "small", "--json"]);
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    assert_eq!(
        (&info["logical_bytes"], &info["file_bytes"]),
        (&plain.into(), &small.into())
    );
    let checked = db(&["fsck", "small"]);
    assert!(checked.status.success() && said(&checked).contains("every page is as it was written"));
    let exported = db(&["export", "small", "back"]);
    assert!(exported.status.success(), "{}", said(&exported));
    assert!(
        fs::read(path("back")).unwrap() == before && fs::read(path("plain")).unwrap() == before
    );
    // Nothing is ever replaced, and nothing is left over.
    for arguments in [["import", "plain", "small"], ["export", "small", "plain"]] {
        let refused = db(&arguments);
        assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    for arguments in [
        &["info", "plain"][..],
        &["fsck", "none"],
        &["export", "plain", "x"],
    ] {
        assert_eq!(db(arguments).status.code(), Some(1), "{arguments:?}");
    }
    assert_eq!(
        db(&["create", "new", "--codec", "zstd:99"]).status.code(),
        Some(2)
    );
    assert!(db(&["create", "new"]).status.success());
    // A flipped bit is found in every place of a page. Other sectors hold bytes that nothing needs any more.
    let whole = fs::read(path("small")).unwrap();
    let (mut tried, mut found) = (0, 0);
    for sector in (0..whole.len()).step_by(4096) {
        let mut bytes = whole.clone();
        let Some(at) = bytes[sector..][..4096].iter().position(|byte| *byte != 0) else {
            continue;
        };
        bytes[sector + at + 2048.min(4095 - at)] ^= 4;
        fs::write(path("small"), bytes).unwrap();
        let broken = db(&["fsck", "small"]);
        found += usize::from(broken.status.code() == Some(1));
        tried += 1;
    }
    println!("{found} of {tried} sectors with a flipped bit found");
    assert!(found >= 6, "{found} of {tried}");
}

/// One damage in each sector: readable pages are unchanged, unreadable ones are zeros and named, and the exit code
/// reports it.
#[test]
fn what_can_be_read_of_a_damaged_database_comes_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    if !make(&path("plain"), "") {
        return;
    }
    let db = |arguments: &[&str]| db(&folder, arguments);
    let before = fs::read(path("plain")).unwrap();
    assert!(db(&["import", "plain", "small"]).status.success());
    let skip = ["export", "small", "out", "--skip-damaged"];
    let all = db(&skip);
    assert!(all.status.success() && said(&all).contains("every page read again"));
    assert!(fs::read(path("out")).unwrap() == before);
    let whole = fs::read(path("small")).unwrap();
    let (mut parts, mut refused) = (0, 0);
    for sector in (0..whole.len()).step_by(4096) {
        fs::remove_file(path("out")).unwrap();
        let mut bytes = whole.clone();
        let Some(at) = bytes[sector..][..4096].iter().position(|byte| *byte != 0) else {
            fs::write(path("out"), b"").unwrap();
            continue;
        };
        bytes[sector + at + 2048.min(4095 - at)] ^= 4;
        fs::write(path("small"), bytes).unwrap();
        let strict = db(&["export", "small", "out"]).status.code();
        let _ = fs::remove_file(path("out"));
        let output = db(&skip);
        let said = said(&output);
        if output.status.success() {
            assert_eq!(strict, Some(0));
            assert!(fs::read(path("out")).unwrap() == before);
        } else if path("out").exists() {
            let copy = fs::read(path("out")).unwrap();
            assert_eq!((copy.len(), strict), (before.len(), Some(1)));
            let mut lost = 0;
            for (number, page) in copy.chunks(4096).enumerate() {
                let is_lost = page != &before[number * 4096..][..4096];
                assert!(!is_lost || page.iter().all(|byte| *byte == 0));
                let place = format!("bytes {} to", number * 4096);
                assert!(
                    !is_lost || said.contains(&place) || said.contains("blocks more"),
                    "{said}"
                );
                lost += usize::from(is_lost);
            }
            assert!(lost > 0 && said.contains("not all of it"), "{said}");
            parts += 1;
        } else {
            // The path to the pages is lost, which calls for a repair.
            fs::write(path("out"), b"").unwrap();
            refused += 1;
        }
    }
    println!("{parts} damaged databases came out in part, {refused} not at all");
    assert!(parts >= 6 && refused <= 3, "{parts} {refused}");
}

#[test]
fn a_codec_that_the_extension_does_not_read_is_refused_by_all_that_write() {
    let folder = tempfile::tempdir().unwrap();
    if !make(&folder.path().join("plain"), "") {
        return;
    }
    assert!(db(&folder, &["import", "plain", "small"]).status.success());
    for (arguments, codec) in [
        (&["create", "new"][..], "xz:6"),
        (&["import", "plain", "new"], "deflate:6"),
        (&["import", "plain", "new"], "shuffle4+bzip2:9"),
        (&["compact", "small"], "xz:6"),
    ] {
        let refused = db(&folder, &[arguments, &["--codec", codec]].concat());
        assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
        let sentence = "the SQLite extension reads databases of store, lz4, lz4hc and zstd";
        assert!(said(&refused).contains(sentence), "{}", said(&refused));
        assert!(!folder.path().join("new").exists());
    }
}

#[test]
fn who_may_not_read_a_database_may_not_read_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    if !make(&path("plain"), "") {
        return;
    }
    fs::set_permissions(path("plain"), fs::Permissions::from_mode(0o600)).unwrap();
    for arguments in [["import", "plain", "small"], ["export", "small", "back"]] {
        let made = db(&folder, &arguments);
        assert!(made.status.success(), "{}", said(&made));
        let mode = fs::metadata(path(arguments[2]))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{arguments:?}");
    }
}

#[test]
fn an_empty_file_keeps_its_mode_and_becomes_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    for mode in [0o600, 0o664] {
        fs::write(&path, b"").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let made = db(&folder, &["create", "app.db"]);
        assert!(made.status.success(), "{}", said(&made));
        let found = fs::metadata(&path).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, mode);
        assert!(found.len() > 0);
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_database_without_its_beginning_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    if !make(&path("plain"), "") {
        return;
    }
    let db = |arguments: &[&str]| db(&folder, arguments);
    assert!(db(&["import", "plain", "small"]).status.success());
    let mut bytes = fs::read(path("small")).unwrap();
    let whole = db(&["fsck", "--repair", "small"]);
    assert!(whole.status.success() && fs::read(path("small")).unwrap() == bytes);
    // One superblock is enough, and its loss is reported until it is repaired.
    for at in [100, 4096 + 100] {
        bytes[at] ^= 1;
        fs::write(path("small"), &bytes).unwrap();
        let checked = db(&["fsck", "small"]);
        assert!(checked.status.success() && said(&checked).contains("one of the two superblocks"));
        assert!(db(&["fsck", "--repair", "small"]).status.success());
        assert!(!said(&db(&["fsck", "small"])).contains("one of the two superblocks"));
        bytes = fs::read(path("small")).unwrap();
    }
    // A truncated file is reported.
    fs::write(path("small"), &bytes[..bytes.len() - 700]).unwrap();
    let cut = db(&["fsck", "small"]);
    assert!(
        cut.status.code() == Some(1) || said(&cut).contains("it was cut"),
        "{}",
        said(&cut)
    );
    // Without its end, no state of a file is called whole.
    for part in 2..9 {
        fs::write(path("small"), &bytes[..bytes.len() / part]).unwrap();
        let repaired = db(&["fsck", "--repair", "small"]);
        assert_eq!(repaired.status.code(), Some(1), "{}", said(&repaired));
        let is_told =
            said(&repaired).contains("lost") || said(&repaired).contains("cannot be repaired");
        assert!(is_told, "{}", said(&repaired));
    }
    bytes[..8192].fill(0);
    fs::write(path("small"), &bytes).unwrap();
    assert_eq!(db(&["fsck", "small"]).status.code(), Some(1));
    let repaired = db(&["fsck", "--repair", "small"]);
    assert!(repaired.status.success(), "{}", said(&repaired));
    assert!(db(&["export", "small", "back"]).status.success());
    assert!(fs::read(path("back")).unwrap() == fs::read(path("plain")).unwrap());
    // Noise cannot be saved, and a plain database is not its task.
    fs::write(path("small"), vec![0x5A; bytes.len()]).unwrap();
    for name in ["small", "plain"] {
        let before = fs::read(path(name)).unwrap();
        assert_eq!(db(&["fsck", "--repair", name]).status.code(), Some(1));
        assert!(fs::read(path(name)).unwrap() == before);
    }
}

#[test]
fn a_compacted_database_is_shorter_and_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    if !make(&path("plain"), "") {
        return;
    }
    let db = |arguments: &[&str]| db(&folder, arguments);
    let imported = db(&["import", "plain", "small", "--codec", "lz4:1"]);
    assert!(imported.status.success(), "{}", said(&imported));
    let before = fs::metadata(path("small")).unwrap().len();
    let compacted = db(&["compact", "small"]);
    assert!(compacted.status.success(), "{}", said(&compacted));
    let after = fs::metadata(path("small")).unwrap().len();
    println!("{before} bytes became {after}: {}", said(&compacted));
    let stored = |told: &Output| {
        let info: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        info["stored_bytes"].as_u64().unwrap()
    };
    assert!(after <= before);
    let dense = stored(&db(&["info", "small", "--json"]));
    assert!(
        db(&["import", "plain", "quick", "--codec", "lz4:1"])
            .status
            .success()
    );
    assert!(
        dense * 10 < stored(&db(&["info", "quick", "--json"])) * 9,
        "{dense}"
    );
    assert!(db(&["fsck", "small"]).status.success());
    assert!(db(&["export", "small", "back"]).status.success());
    assert!(fs::read(path("back")).unwrap() == fs::read(path("plain")).unwrap());
    assert_eq!(db(&["compact", "plain"]).status.code(), Some(1));
}

#[test]
fn a_database_with_a_log_beside_it_is_not_brought_in() {
    let folder = tempfile::tempdir().unwrap();
    if !make(&folder.path().join("plain"), "") {
        return;
    }
    fs::write(folder.path().join("plain-wal"), b"7\x7f\x06\x82").unwrap();
    let refused = db(&folder, &["import", "plain", "small"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        said(&refused).contains("wal_checkpoint"),
        "{}",
        said(&refused)
    );
    assert!(!folder.path().join("small").exists());
}

/// Runs the command with names as files of a folder.
fn db(folder: &TempDir, arguments: &[&str]) -> Output {
    let is_name =
        |at: usize, word: &str| at > 0 && !word.starts_with('-') && arguments[at - 1] != "--codec";
    let words: Vec<_> = (arguments.iter().enumerate())
        .map(|(at, word)| match is_name(at, word) {
            true => folder.path().join(word),
            false => word.into(),
        })
        .collect();
    let mut all: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&"db"];
    all.extend(words.iter().map(|word| word as &dyn AsRef<std::ffi::OsStr>));
    run(folder, &all)
}

/// Names are bytes. A name that is not text is the same file in every command, and so are the files beside it.
#[test]
fn names_that_are_no_text_are_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
    let (plain, small, back) = (path(b"\xffplain"), path(b"\xffsmall"), path(b"back\xff"));
    if !make(&plain, "") {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let check = |command: [&str; 2], paths: [&Path; 2], succeeds: bool| {
        let [one, two] = paths;
        let output = match two == Path::new("") {
            true => run(&cache, &[&command[0], &command[1], &one]),
            false => run(&cache, &[&command[0], &command[1], &one, &two]),
        };
        let said = said(&output);
        assert_eq!(output.status.success(), succeeds, "{command:?} {said}");
        said
    };
    let nothing = Path::new("");
    check(["db", "import"], [&plain, &small], true);
    check(["db", "fsck"], [&small, nothing], true);
    check(["db", "compact"], [&small, nothing], true);
    check(["db", "export"], [&small, &back], true);
    assert!(fs::read(&plain).unwrap() == fs::read(&back).unwrap());
    let there = check(["db", "export"], [&small, &back], false);
    assert!(there.contains("exists") && !there.contains('\0'), "{there}");
    // The files beside it are found.
    fs::write(path(b"\xffplain-wal"), b"rows").unwrap();
    let refused = check(["db", "import"], [&plain, &path(b"other")], false);
    assert!(refused.contains("write-ahead log beside it"), "{refused}");
    let (image, disk) = (path(b"image\xff"), path(b"disk\xff"));
    fs::write(&image, vec![7; 1 << 20]).unwrap();
    check(["disk", "import"], [&disk, &image], true);
    check(["disk", "export"], [&disk, &path(b"out\xff")], true);
    assert!(fs::read(&image).unwrap() == fs::read(path(b"out\xff")).unwrap());
    let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    left.retain(|it| {
        it.as_ref()
            .is_ok_and(|it| it.file_name().to_str().is_some())
    });
    assert!(left.is_empty(), "{left:?}");
}

/// A database that would grow is copied with a note, or left unchanged.
#[test]
fn what_does_not_pay_is_said_or_left() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    if !make(&path("large"), "") {
        return;
    }
    let page = 4096;
    let made = Command::new("sqlite3")
        .arg(path("small"))
        .arg("CREATE TABLE t(a); INSERT INTO t VALUES(1)")
        .output();
    assert!(made.unwrap().status.success());
    let before = fs::read(path("small")).unwrap();
    assert_eq!(before.len(), 2 * page);
    let db = |arguments: &[&str]| db(&folder, arguments);
    let left = db(&["import", "small", "left", "--if-smaller"]);
    println!("{}", said(&left));
    assert_eq!(left.status.code(), Some(1));
    assert!(
        said(&left).contains("its 8.19 kB would become"),
        "{}",
        said(&left)
    );
    let names = fs::read_dir(&folder)
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["large", "small"]);
    let copied = db(&["import", "small", "copied"]);
    println!("{}", said(&copied));
    let length = fs::metadata(path("copied")).unwrap().len();
    assert!(copied.status.success() && length > before.len() as u64);
    assert!(
        said(&copied).contains("this does not pay: it takes"),
        "{}",
        said(&copied)
    );
    let smaller = db(&["import", "large", "smaller", "--if-smaller"]);
    println!("{}", said(&smaller));
    assert!(smaller.status.success() && !said(&smaller).contains("not pay"));
    assert!(path("smaller").exists() && fs::read(path("small")).unwrap() == before);
}
