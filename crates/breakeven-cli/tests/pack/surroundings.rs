//! File systems that refuse metadata, systems without memory, files with holes, and inputs that are no streams.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::letters::shell;
use super::{folder, message, names, ok};
use crate::page::left_out;
use crate::{breakeven, noise, run};

/// A library that refuses the calls named in `REFUSED`, like file systems without modes, owners or times.
const REFUSING: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int refused(const char *call) {
    const char *calls = getenv("REFUSED");
    if (!calls || !strstr(calls, call)) return 0;
    errno = EPERM;
    return 1;
}
int fchmod(int fd, mode_t mode) { return refused("fchmod") ? -1 : syscall(SYS_fchmod, fd, mode); }
int fchown(int fd, uid_t user, gid_t group) {
    return refused("fchown") ? -1 : syscall(SYS_fchown, fd, user, group);
}
int futimens(int fd, const struct timespec times[2]) {
    return refused("futimens") ? -1 : syscall(SYS_utimensat, fd, NULL, times, 0);
}
"#;

/// Compiles that library in a folder; `None` without a compiler.
fn refusing(folder: &Path) -> Option<PathBuf> {
    let (source, library) = (folder.join("refusing.c"), folder.join("refusing.so"));
    fs::write(&source, REFUSING).expect("a source");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    match built.is_ok_and(|status| status.success()) {
        true => Some(library),
        false => {
            left_out("there is no compiler for C: no call is refused");
            None
        }
    }
}

/// The time at which the sources were last written.
const WRITTEN: i64 = 1_500_000_000;

/// Runs a command whose calls of some names are refused, and checks its message and the files that stay.
fn check_refused(library: &Path, refused: &str, words: &[&str], line: &str) {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    if !line.starts_with("pack") {
        ok(&run(&folder, &[&"pack", &"--rm", &"-m", &"store", &file]));
    }
    let (source, target) = match line.split(' ').next() {
        Some("pack") => (&file, &packed),
        Some("unpack") => (&packed, &file),
        _ => (&packed, &packed),
    };
    let is_root = may_give_files_away();
    fs::set_permissions(source, fs::Permissions::from_mode(0o640)).expect("a mode");
    if is_root {
        std::os::unix::fs::chown(source, Some(12345), Some(12345)).expect("an owner");
    }
    let opened = File::options().write(true).open(source).expect("it");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(WRITTEN as u64);
    opened.set_modified(time).expect("a time");
    let output = breakeven(&folder)
        .args(line.split(' '))
        .arg(source)
        .env("LD_PRELOAD", library)
        .env("REFUSED", refused)
        .output()
        .expect("it starts");
    let text = message(&output);
    let case = format!("{line} without {refused}: {text}");
    assert_eq!(output.status.code(), Some(3), "{case}");
    for word in words {
        assert!(
            text.contains(&format!("its {word} could not be set")),
            "{case}"
        );
    }
    // The source is kept because its metadata was lost, and the rest is there.
    assert!(source.exists(), "{case}");
    let content = match line.starts_with("unpack") {
        true => fs::read(target).expect("the file"),
        false => run(&folder, &[&"cat", target]).stdout,
    };
    assert!(content == data, "{case}");
    let found = fs::metadata(target).expect("the target");
    // Another group gets the rights of all others.
    let has_mode = !refused.contains("fchmod") && refused != "fchown";
    assert_eq!(
        found.mode() & 0o777,
        if has_mode { 0o640 } else { 0o600 },
        "{case}"
    );
    assert_eq!(
        found.mtime() == WRITTEN,
        !refused.contains("futimens"),
        "{case}"
    );
    assert_eq!(
        found.uid() == 12345,
        is_root && refused != "fchown",
        "{case}"
    );
}

#[test]
fn what_a_file_system_refuses_is_named_and_all_else_is_kept() {
    let libraries = tempfile::tempdir().expect("a folder");
    let Some(library) = refusing(libraries.path()) else {
        return;
    };
    let mut tried = 0;
    for (refused, words) in [
        ("fchmod", &["mode"][..]),
        ("futimens", &["times"]),
        ("fchmod,futimens", &["mode", "times"]),
        ("fchown", &["owner", "group"]),
    ] {
        if refused == "fchown" && !may_give_files_away() {
            left_out("not root: no owner is given");
            continue;
        }
        for line in ["pack", "pack --rm", "unpack --rm", "repack --keep 999"] {
            check_refused(&library, refused, words, line);
            tried += 1;
        }
    }
    println!("{tried} commands whose metadata was refused");
    assert!(tried >= 12);
}

/// Returns whether this process may give files away.
fn may_give_files_away() -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    std::os::unix::fs::chown(folder.path(), Some(12345), None).is_ok()
}

/// Runs one of our command lines in a folder with a limit on mapped KiB.
fn within(kib: u32, folder: &TempDir, line: &str) -> Output {
    Command::new("sh")
        .args(["-c", &format!("ulimit -v {kib}; exec \"$0\" {line}")])
        .arg(env!("CARGO_BIN_EXE_breakeven"))
        .env("BREAKEVEN_CACHE", folder.path())
        .env_remove("RUST_BACKTRACE")
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("sh starts")
}

/// Packs 24 MiB of words into the folder, and returns them.
fn pack_words(folder: &TempDir) -> Vec<u8> {
    let mut random = ::breakeven::testing::seeded("memory", 46);
    let words: Vec<String> = (0..5000)
        .map(|_| format!("{:x} ", random.u32(..1 << 28)))
        .collect();
    let mut data = Vec::new();
    while data.len() < 24 << 20 {
        data.extend(words[random.usize(..words.len())].bytes());
    }
    fs::write(folder.path().join("file"), &data).expect("a file");
    ok(&run(folder, &[&"pack", &"-q", &folder.path().join("file")]));
    data
}

#[test]
fn thirty_megabytes_more_than_reading_takes_are_enough_to_repack() {
    let (folder, _) = folder();
    let data = pack_words(&folder);
    let mut repacked = 0;
    for kib in (50_000..105_000).step_by(5_000) {
        let reads = within(kib - 30_000, &folder, "unpack -t file.zst");
        if reads.status.success() {
            ok(&within(
                kib,
                &folder,
                "repack -q --keep 9 -fo again.zst file.zst",
            ));
            let again = run(&folder, &[&"cat", &folder.path().join("again.zst")]);
            assert!(again.stdout == data, "{kib} KiB: {}", message(&again));
            repacked += 1;
        }
    }
    assert!(repacked >= 3, "{repacked} times repacked");
}

#[test]
fn without_memory_a_sound_stream_is_not_called_corrupt_and_packing_takes_less() {
    let (folder, _) = folder();
    let data = pack_words(&folder);
    ok(&within(200_000, &folder, "pack -qm zstd:3 file -o row.zst"));
    let mut told = 0;
    // Whether the stream was tested with 10 MB less.
    let mut is_enough = false;
    for kib in (20_000..100_000).step_by(10_000) {
        let unpack = within(kib, &folder, "unpack -t file.zst");
        let cat = within(kib, &folder, "cat file.zst");
        assert!(
            !is_enough || cat.stdout == data,
            "{kib} KiB: {}",
            message(&cat)
        );
        is_enough = unpack.status.success();
        for line in [
            "unpack -t file.zst",
            "unpack -t row.zst",
            "cat file.zst",
            "repack --keep 9 -o - file.zst",
        ] {
            let output = within(kib, &folder, line);
            let text = message(&output);
            assert!(!text.contains("corrupt"), "{line} in {kib} KiB: {text}");
            match output.status.code() {
                Some(0) => assert!(kib >= 30_000 || line.contains("row"), "{line} in {kib} KiB"),
                Some(1) if text.contains("not enough memory") => told += 1,
                // The limit of necessary parts: the program itself, and its first threads.
                code => assert!(kib < 40_000, "{line} in {kib} KiB: {code:?}, {text}"),
            }
        }
    }
    println!("{told} times told that there is not enough memory");
    assert!(told >= 2);
    ok(&within(100_000, &folder, "unpack -t file.zst"));
    let all = ["", "-3", "-T1", "-m zstd:3", "--link 12MB/s"];
    for kib in [100_000, 300_000] {
        for options in all {
            let line = format!("pack -qf {options} file -o less.zst");
            let output = within(kib, &folder, &line);
            assert_eq!(
                output.status.code(),
                Some(0),
                "{line} in {kib} KiB: {}",
                message(&output)
            );
            let output = run(&folder, &[&"cat", &folder.path().join("less.zst")]);
            assert!(output.stdout == data, "{line} in {kib} KiB");
        }
    }
}

#[test]
fn holes_are_packed_as_the_zeros_that_they_are() {
    let (folder, _) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    let mut content = vec![0; 40 << 20];
    let sparse = File::create(&file).expect("a file");
    sparse.set_len(content.len() as u64).expect("a length");
    // Data first, between long and short holes, at odd places, and none at the end.
    for (at, bytes) in [
        (0, 5000),
        (3 << 20, 1),
        (3 << 20 | 70_000, 300_000),
        (20 << 20, 3 << 20),
    ] {
        let data = noise(bytes);
        sparse.write_all_at(&data, at as u64).expect("room");
        content[at..at + bytes].copy_from_slice(&data);
    }
    for options in [
        &[][..],
        &["-3"],
        &["-m", "zstd:1"],
        &["-T1", "--strategy", "money"],
    ] {
        let mut command = breakeven(&folder);
        ok(&command
            .args(["pack", "-f"])
            .args(options)
            .arg(&file)
            .output()
            .expect("it starts"));
        let output = run(&folder, &[&"cat", &packed]);
        assert!(output.stdout == content, "{options:?}");
    }
    // The bytes from the present position of standard input.
    let output = Command::new("sh")
        .args([
            "-c",
            "{ head -c 4194304 >/dev/null; exec \"$0\" pack -c; } <file >rest.zst",
        ])
        .arg(env!("CARGO_BIN_EXE_breakeven"))
        .env("BREAKEVEN_CACHE", folder.path())
        .current_dir(folder.path())
        .output();
    ok(&output.expect("sh starts"));
    let output = run(&folder, &[&"cat", &folder.path().join("rest.zst")]);
    assert!(output.stdout == content[4 << 20..], "{}", message(&output));
}

#[test]
fn zeros_behind_a_frame_are_passed_over() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    for (options, zeros) in [
        (&[][..], 1),
        (&["-9"], 10_240),
        (&["-m", "zstd:1"], 4),
        (&["--mixed", "-m", "lz4:1"], 517),
        (&["--mixed", "-m", "xz:0"], 4),
    ] {
        let mut command = breakeven(&folder);
        ok(&command
            .args(["pack", "-f"])
            .args(options)
            .arg(&file)
            .output()
            .expect("it starts"));
        let mut stream = fs::read(&packed).expect("the stream");
        let frame_bytes = stream.len();
        stream.resize(frame_bytes + zeros, 0);
        fs::write(&packed, &stream).expect("a file");
        let output = run(&folder, &[&"cat", &"-v", &packed]);
        ok(&output);
        assert!(output.stdout == data, "{options:?}");
        let told = format!("passed over {zeros} zeros behind frames");
        assert!(
            message(&output).contains(&told),
            "{options:?}: {}",
            message(&output)
        );
        let output = run(&folder, &[&"info", &"--json", &packed]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found["files"][0]["padding_bytes"], zeros, "{options:?}");
        // Other bytes behind them are as wrong as before.
        stream.push(b'x');
        fs::write(&packed, &stream).expect("a file");
        let output = run(&folder, &[&"unpack", &"-t", &packed]);
        assert_eq!(output.status.code(), Some(1), "{options:?}");
    }
    fs::write(&packed, [0; 512]).expect("a file");
    let output = run(&folder, &[&"unpack", &"-t", &packed]);
    assert_eq!(output.status.code(), Some(1), "zeros alone are no stream");
}

#[test]
fn what_is_no_stream_is_passed_through_where_that_is_asked_for() {
    let (folder, data) = folder();
    let (file, plain) = (folder.path().join("file"), folder.path().join("plain"));
    ok(&run(&folder, &[&"pack", &file]));
    let packed = folder.path().join("file.zst");
    let of = |arguments: &[&str], path: &Path, through_pipe: bool| {
        let mut command = breakeven(&folder);
        command.args(arguments);
        match through_pipe {
            true => {
                command.stdin(Stdio::piped());
            }
            false => {
                command.arg(path);
            }
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        if let Some(mut input) = child.stdin.take() {
            let bytes = fs::read(path).expect("it");
            // The command may end before it has read all.
            let feeder = std::thread::spawn(move || input.write_all(&bytes).is_ok());
            let output = child.wait_with_output().expect("it ends");
            feeder.join().expect("it was fed");
            return output;
        }
        child.wait_with_output().expect("it ends")
    };
    let long = noise(3_000_000);
    for content in [
        &b""[..],
        b"1",
        b"12",
        b"123",
        b"hello there",
        b"BZh91AY",
        &long,
    ] {
        fs::write(&plain, content).expect("a file");
        for arguments in [&["unpack", "-f", "-c"][..], &["cat", "-f"]] {
            for through_pipe in [false, true] {
                let output = of(arguments, &plain, through_pipe);
                ok(&output);
                assert!(output.stdout == content, "{arguments:?}");
                let output = of(arguments, &packed, through_pipe);
                ok(&output);
                assert!(output.stdout == data, "{arguments:?} of a stream");
            }
        }
        for arguments in [&["cat"][..], &["unpack", "-c"], &["unpack", "-ft"]] {
            let output = of(arguments, &plain, false);
            assert_eq!(output.status.code(), Some(1), "{arguments:?}");
            assert!(output.stdout.is_empty(), "{arguments:?}");
        }
    }
    // A file is not unpacked into itself or its like.
    let output = run(
        &folder,
        &[&"unpack", &"-f", &plain, &"-o", &folder.path().join("new")],
    );
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert_eq!(names(folder.path()), ["file", "file.zst", "plain"]);
}

/// A search for zeros takes as long as the file is. Into a file of mostly zeros it searches no farther than `zstd`, and
/// past long runs of them not at all.
#[test]
fn what_is_mostly_zeros_is_packed_without_looking_for_them() {
    const MIB: usize = 1 << 20;
    let (folder, _) = folder();
    let path = |name: &str| folder.path().join(name);
    for (zeros, passes) in [(24, true), (18, true), (6, false)] {
        let mut content = vec![0; 24 * MIB];
        content[zeros * MIB..].copy_from_slice(&noise((24 - zeros) * MIB));
        fs::write(path("file"), &content).expect("room");
        let line = "breakeven pack -q -f -T2 file -o ours; breakeven pack -q -f -T2 -3 file -o usual; zstd -dc ours";
        let output = shell(&folder, line);
        ok(&output);
        assert!(output.stdout == content, "{zeros} MiB of zeros");
        let made = ["ours", "usual"].map(|name| fs::read(path(name)).expect("a stream"));
        let [ours, usual] = [&made[0], &made[1]].map(Vec::len);
        assert!(ours <= usual + 1000, "{ours} bytes over {usual}");
        let told = shell(&folder, "breakeven explain -T 2 file");
        ok(&told);
        let told = String::from_utf8_lossy(&told.stdout);
        assert_eq!(told.contains("mostly zeros"), passes, "{told}");
    }
}

#[test]
fn root_a_mount_point_is_written_to_and_an_append_only_folder_keeps_nothing_else() {
    let (folder, data) = folder();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("behind"), "old").unwrap();
    fs::write(at("target"), "").unwrap();
    fs::create_dir(at("only")).unwrap();
    let script = r#"
        mount --bind behind target && trap 'umount target; chattr -a only' EXIT && chattr +a only || exit 77
        "$0" pack -q -f file -o target && "$0" pack -q file -o only/packed || exit 1
        "$0" repack --keep 10 target 2>&1 && exit 1
        "$0" pack -q file -o only/packed 2>&1 && exit 1
        exit 0"#;
    let mut shell = Command::new("bash");
    let output = shell
        .args(["-c", script, env!("CARGO_BIN_EXE_breakeven")])
        .current_dir(folder.path())
        .output()
        .unwrap();
    if output.status.code() == Some(77) {
        left_out("nothing can be mounted or marked here: no mount point was written to");
        return;
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &message(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("target is a mount point"), "{said}");
    assert!(said.contains("only/packed already exists"), "{said}");
    for packed in ["behind", "only/packed"] {
        let output = run(&folder, &[&"unpack", &"-f", &"-c", &at(packed)]);
        ok(&output);
        assert!(output.stdout == data, "{packed}");
    }
    assert_eq!(names(&at("only")), ["packed"]);
    assert_eq!(names(folder.path()), ["behind", "file", "only", "target"]);
}

/// Opening a FIFO waits for a writer.
#[test]
fn a_fifo_is_refused_where_a_file_is_read_at_any_place() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.unwrap().success());
    for words in [&["info"][..], &["explain"], &["unpack", "-l"]] {
        let mut tried = breakeven(&folder);
        let output = tried.args(words).arg(&fifo).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}");
        let said = message(&output);
        assert!(said.contains("fifo is no regular file"), "{said}");
    }
}
