//! `pack`, `unpack`, `cat` and `info` as a user of zstd expects them.

pub mod changing;
mod explain;
mod form;
mod guide;
mod letters;
mod long;
mod repack;
mod scripts;
mod strategy;
mod surroundings;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::page::left_out;
use crate::{breakeven, noise, run, stdout};

/// A folder with a file of some blocks: text, noise and a run.
fn folder() -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut data = b"what is saved must be more than what is spent\n".repeat(40_000);
    data.extend(noise(600_000));
    data.extend(vec![7; 1_200_000]);
    fs::write(folder.path().join("file"), &data).expect("a file");
    (folder, data)
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn ok(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{}", message(output));
}

/// Names of the entries of a folder, sorted, without the program's measurements of the machine.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    // The folder is the program's cache as well.
    names.retain(|name| !name.starts_with("profile-"));
    names.sort();
    names
}

#[test]
fn files_are_packed_and_unpacked_with_mode_and_times() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("a mode");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let opened = File::options().write(true).open(&file).expect("the file");
    opened.set_modified(time).expect("a time");
    for method in ["store", "zstd:1", "lz4:1", "xz:0"] {
        ok(&run(&folder, &[&"pack", &"--mixed", &"-m", &method, &file]));
        let packed = folder.path().join("file.zst");
        let metadata = fs::metadata(&packed).expect("the packed file");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
        assert_eq!(metadata.mtime(), 1_500_000_000);
        fs::rename(&file, folder.path().join("original")).expect("a rename");
        ok(&run(&folder, &[&"unpack", &"--rm", &packed]));
        assert!(fs::read(&file).expect("the file") == data, "{method}");
        assert_eq!(
            fs::metadata(&file).expect("the file").mtime(),
            1_500_000_000
        );
        assert_eq!(names(folder.path()), ["file", "original"]);
    }
}

#[test]
fn what_exists_is_not_overwritten_unless_forced() {
    let (folder, _) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    fs::write(&packed, "precious").expect("a file");
    let output = run(&folder, &[&"pack", &file]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        message(&output).contains("already exists"),
        "{}",
        message(&output)
    );
    assert_eq!(fs::read(&packed).expect("the file"), b"precious");
    ok(&run(&folder, &[&"pack", &"-f", &file]));
    let output = run(&folder, &[&"unpack", &"-t", &packed]);
    ok(&output);
    assert!(message(&output).starts_with(packed.to_str().expect("a name")));
    // A wrong name, a folder, nothing at all; and impossible options.
    let none = folder.path().join("none");
    for (arguments, what) in [
        (&["unpack", "file"][..], "-o"),
        (&["pack", "."], "use tar"),
        (&["pack", "none"], "none: No such file"),
        (&["pack", "file", "-o", "."], ". is a folder"),
        (&["pack", "file", "-o", "none/"], "none/ is a folder"),
        (&["pack", "file", "-o", "none/f"], "create none/f: No such"),
    ] {
        let mut command = breakeven(&folder);
        command.args(arguments).current_dir(folder.path());
        let output = command.output().expect("it starts");
        let text = message(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(what), "{arguments:?}: {text}");
    }
    for arguments in [&["pack", "-m", "lz4:1"][..], &["pack", "-o", "a", "b", "c"]] {
        let mut command = breakeven(&folder);
        let output = command.args(arguments).output().expect("it starts");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{arguments:?}: {}",
            message(&output)
        );
    }
    assert!(!none.exists());
    assert_eq!(names(folder.path()), ["file", "file.zst"]);
}

#[test]
fn bad_data_leaves_no_file_and_says_where() {
    let (folder, _) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    ok(&run(&folder, &[&"pack", &file]));
    fs::remove_file(&file).expect("the file");
    let good = fs::read(&packed).expect("the packed file");
    let mut flipped = good.clone();
    flipped[300_000] ^= 4;
    let cut = good[..good.len() - 50_000].to_vec();
    let long = [&good[..], &[0, 7, 0, 0]].concat();
    for (bad, what) in [
        (flipped, "corrupt"),
        (cut, "end of the input"),
        (long, "at byte"),
    ] {
        fs::write(&packed, &bad).expect("a file");
        for arguments in [&["unpack"][..], &["unpack", "-t"]] {
            let mut command = breakeven(&folder);
            let output = command
                .args(arguments)
                .arg(&packed)
                .output()
                .expect("it starts");
            assert_eq!(output.status.code(), Some(1));
            assert!(message(&output).contains(what), "{}", message(&output));
        }
        assert_eq!(names(folder.path()), ["file.zst"]);
    }
    let mut command = breakeven(&folder);
    ok(&command
        .args(["cat", "--ignore-trailing"])
        .arg(&packed)
        .output()
        .expect("it starts"));
}

#[test]
fn a_file_is_the_same_whatever_the_links_that_write_it() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    fs::write(&file, data.repeat(5)).expect("a file");
    let mut streams = Vec::new();
    for links in ["1", "2", "7"] {
        ok(&run(
            &folder,
            &[&"pack", &"-f", &"-mzstd:1", &"--links", &links, &file],
        ));
        streams.push(fs::read(&packed).expect("the packed file"));
    }
    assert!(streams.windows(2).all(|pair| pair[0] == pair[1]));
    ok(&run(&folder, &[&"pack", &"-f", &"--links", &"3", &file]));
    let output = run(&folder, &[&"cat", &packed]);
    assert!(output.stdout == data.repeat(5), "{}", message(&output));
    // Several threads cannot write to a target without places.
    for more in [&["-c"][..], &["-o", "/dev/null"]] {
        let mut command = breakeven(&folder);
        command.args(["pack", "--links", "2"]).args(more).arg(&file);
        let output = command.output().expect("it starts");
        assert_eq!(output.status.code(), Some(2), "{more:?}");
        assert!(message(&output).contains("--links"), "{}", message(&output));
    }
    // Their failures are not missed either, and nothing is left behind.
    fs::remove_file(&packed).expect("the packed file");
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -f 2000; exec \"$0\" pack -m store --links 3 file",
        ])
        .arg(env!("CARGO_BIN_EXE_breakeven"))
        .env("BREAKEVEN_CACHE", folder.path())
        .current_dir(folder.path())
        .output()
        .expect("sh starts");
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert!(
        message(&output).contains("file.zst: "),
        "{}",
        message(&output)
    );
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn what_decodes_to_too_much_is_ended_by_the_limit_that_was_set() {
    let (folder, _) = folder();
    let (zeros, packed) = (folder.path().join("zeros"), folder.path().join("zeros.zst"));
    fs::write(&zeros, vec![0; 20 << 20]).expect("a file");
    ok(&run(&folder, &[&"pack", &"-mzstd:3", &zeros]));
    // Five letters, behind a header with a window of 256 MiB.
    let window = folder.path().join("window.zst");
    let frame = [0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x90, 0x2B, 0, 0, b'x'];
    fs::write(&window, frame).expect("a file");
    for (path, options, limit) in [
        (&packed, &["--output-max", "20971519"][..], "20971519"),
        (&packed, &["--output-max", "20MiB"], ""),
        (&packed, &["--ratio-max", "100"], "ratio"),
        (&packed, &["--ratio-max", "30000"], ""),
        (&window, &[], "--long=31 or -M2GiB allows a larger window"),
        (
            &window,
            &[],
            "needs 268435456 bytes, the limit is 134217728 bytes",
        ),
        (&window, &["-M255MiB"], "the limit is 267386880 bytes"),
        (&window, &["-M256MiB"], ""),
    ] {
        // A pipe has no table with the length beforehand.
        for through_pipe in [false, true] {
            let mut command = breakeven(&folder);
            command.arg("cat").args(options);
            match through_pipe {
                true => command.stdin(File::open(path).expect("it")),
                false => command.arg(path),
            };
            let output = command.output().expect("it starts");
            let text = message(&output);
            let code = Some(i32::from(!limit.is_empty()));
            assert_eq!(output.status.code(), code, "{options:?}: {text}");
            assert!(text.contains(limit), "{options:?}: {text}");
            let name = match through_pipe {
                true => "standard input",
                false => path.to_str().expect("a name"),
            };
            assert!(limit.is_empty() || text.contains(name), "{text}");
            assert!(output.stdout.len() <= 20 << 20);
        }
    }
}

#[test]
fn pipes_go_in_and_out() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    let through = |arguments: &[&str], input: &Path| {
        let mut command = breakeven(&folder);
        command
            .args(arguments)
            .stdin(File::open(input).expect("the input"));
        command.output().expect("it starts")
    };
    for arguments in [
        &["pack"][..],
        &["pack", "-c", "-T1"],
        &["pack", "-", "-o", "-"],
    ] {
        let packed = through(arguments, &file);
        ok(&packed);
        assert!(packed.stderr.is_empty(), "{}", message(&packed));
        let path = folder.path().join("packed");
        fs::write(&path, &packed.stdout).expect("a file");
        for arguments in [&["unpack"][..], &["cat"], &["pack", "-d", "-c"]] {
            let unpacked = through(arguments, &path);
            ok(&unpacked);
            assert!(unpacked.stdout == data, "{arguments:?}");
        }
    }
    let told = through(&["pack", "-v"], &file);
    ok(&told);
    let raw = format!("standard input: {} to ", data.len());
    assert!(message(&told).starts_with(&raw), "{}", message(&told));
    let told = through(&["pack", "-dv"], &folder.path().join("packed"));
    ok(&told);
    let raw = format!("standard input: {} bytes", data.len());
    assert!(message(&told).starts_with(&raw), "{}", message(&told));
    // A reader that leaves ends it, as it ends every program in a pipe.
    for options in [&["-m", "store"][..], &["--link", "100GB/s"]] {
        let mut child = breakeven(&folder)
            .args(["pack", "-c"])
            .args(options)
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut first = [0; 4];
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut first).expect("the first bytes");
        drop(out);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.signal(), Some(13), "{}", message(&output));
        assert!(output.stderr.is_empty(), "{}", message(&output));
    }
}

#[test]
fn a_signal_leaves_no_partial_file() {
    let (folder, data) = folder();
    let target = folder.path().join("out.zst");
    for signal in ["INT", "TERM"] {
        // Without `timeout`, which would catch the signal itself.
        let mut child = Command::new(env!("CARGO_BIN_EXE_breakeven"))
            .args(["pack", "-o"])
            .arg(&target)
            .env("BREAKEVEN_CACHE", folder.path())
            .stdin(Stdio::piped())
            .spawn()
            .expect("it starts");
        // These are more bytes than a pipe holds: it has read some, so the file under its other name exists.
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(&data).expect("it reads");
        assert_eq!(names(folder.path()).len(), 2, "{:?}", names(folder.path()));
        let kill = Command::new("kill")
            .args([format!("-{signal}"), child.id().to_string()])
            .status();
        assert!(kill.expect("kill starts").success());
        // Its input stays open: only the signal ends it.
        let status = child.wait().expect("it ends");
        drop(input);
        assert!(!status.success(), "{signal}: {status}");
        assert_eq!(names(folder.path()), ["file"], "{signal}");
    }
}

#[test]
fn what_killed_runs_left_is_removed_by_the_next() {
    let (folder, data) = folder();
    // The longest possible name, with its ending.
    let long = "n".repeat(251);
    fs::write(folder.path().join(&long), &data).expect("a file");
    for number in [0, 1, 5] {
        let left = folder.path().join(format!(".breakeven-{number}.partial"));
        fs::write(left, b"left").expect("a file");
    }
    ok(&run(&folder, &[&"pack", &folder.path().join(&long)]));
    let names = names(folder.path());
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        !names.iter().any(|name| name.ends_with(".partial")),
        "{names:?}"
    );
    let packed = folder.path().join(format!("{long}.zst"));
    let output = run(&folder, &[&"cat", &packed]);
    assert!(output.stdout == data, "{}", message(&output));
}

#[test]
fn a_source_is_removed_only_where_its_copy_stays() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    let same = folder.path().join("same");
    std::os::unix::fs::symlink(&file, &same).expect("a link");
    ok(&run(&folder, &[&"pack", &file]));
    let stored = fs::read(&packed).expect("the packed file");
    for (arguments, code) in [
        (&["pack", "--rm", "-c", "file"][..], 2),
        (&["pack", "--rm", "file", "-o", "-"], 2),
        (&["pack", "--rm", "file", "-o", "/dev/null"], 2),
        (&["unpack", "--rm", "-t", "file.zst"], 2),
        (&["pack", "--rm", "-f", "file", "-o", "file"], 1),
        (&["pack", "--rm", "-f", "file", "-o", "same"], 1),
    ] {
        let mut command = breakeven(&folder);
        command.args(arguments).current_dir(folder.path());
        let output = command.output().expect("it starts");
        let text = message(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert_eq!(names(folder.path()), ["file", "file.zst", "same"]);
        assert!(fs::read(&file).expect("the file") == data, "{arguments:?}");
        assert!(fs::read(&packed).expect("the packed file") == stored);
    }
}

#[test]
fn a_link_is_followed_and_not_removed_by_mistake() {
    let (folder, data) = folder();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    std::os::unix::fs::symlink("file", &link).expect("a link");
    ok(&run(&folder, &[&"pack", &link]));
    let packed = folder.path().join("link.zst");
    let output = run(&folder, &[&"cat", &packed]);
    assert!(output.stdout == data, "the link was followed");
    let output = run(&folder, &[&"pack", &"--rm", &link, &"-o", &"/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(message(&output).contains("link"), "{}", message(&output));
    assert_eq!(names(folder.path()), ["file", "link", "link.zst"]);
    ok(&run(&folder, &[&"pack", &"--rm", &"-f", &link]));
    assert_eq!(names(folder.path()), ["file", "link.zst"]);
    assert!(fs::read(&file).expect("the file") == data);
}

/// Runs one of our command lines on a terminal of its own, where these letters are typed. `None` without the program
/// for it. It is in the essential package that also brings `fallocate`.
fn at_a_terminal(folder: &Path, line: &str, typed: &str) -> Option<Output> {
    let has_script = Command::new("script").arg("--version").output();
    if !has_script.is_ok_and(|output| output.status.success()) {
        left_out("script is not installed: nothing tried at a terminal");
        return None;
    }
    let line = format!("'{}' {line}", env!("CARGO_BIN_EXE_breakeven"));
    let mut child = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .current_dir(folder)
        .env("BREAKEVEN_CACHE", folder)
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut terminal = child.stdin.take().expect("a pipe");
    terminal.write_all(typed.as_bytes()).expect("it reads");
    drop(terminal);
    Some(child.wait_with_output().expect("it ends"))
}

#[test]
fn whoever_sits_at_the_terminal_is_asked_before_a_file_is_overwritten() {
    let (folder, _) = folder();
    let packed = folder.path().join("file.zst");
    for (answer, options, overwrites) in [
        ("n\n", "", false),
        ("\n", "", false),
        ("y\n", "-q", false),
        ("y\n", "", true),
    ] {
        fs::write(&packed, "precious").expect("a file");
        let line = format!("pack {options} file");
        let Some(output) = at_a_terminal(folder.path(), &line, answer) else {
            return;
        };
        let text = stdout(&output);
        let is_kept = fs::read(&packed).expect("the file") == b"precious";
        assert_eq!(is_kept, !overwrites, "{answer:?} {options}: {text}");
        assert_eq!(text.contains("(y/n)"), options.is_empty(), "{text}");
        assert_eq!(output.status.success(), overwrites, "{text}");
        assert_eq!(names(folder.path()), ["file", "file.zst"]);
    }
}

#[test]
fn a_terminal_is_neither_read_nor_written_to_and_sees_how_it_goes() {
    let (folder, _) = folder();
    for (line, expected, succeeds) in [
        ("pack", "standard input is a terminal", false),
        ("pack < file", "standard output is a terminal", false),
        ("pack -d", "standard input is a terminal", false),
        ("pack -f file", "MB/s out", true),
        (
            "pack -f -T1 --link 300MB/s file",
            "--strategy free would ",
            true,
        ),
        ("unpack -t file.zst", "MB/s in and ", true),
        ("unpack -f file.zst", "MB/s out", true),
    ] {
        let Some(output) = at_a_terminal(folder.path(), line, "") else {
            return;
        };
        let text = stdout(&output);
        assert!(text.contains(expected), "{line}: {text}");
        assert_eq!(output.status.success(), succeeds, "{line}: {text}");
    }
    let output = at_a_terminal(folder.path(), "cat file.zst > copy", "").expect("as before");
    assert!(output.status.success() && output.stdout.is_empty());
    for line in ["pack -q -f file", "unpack -q -f file.zst"] {
        let output = at_a_terminal(folder.path(), line, "").expect("as before");
        assert!(
            output.status.success() && output.stdout.is_empty(),
            "{line}"
        );
    }
}

#[test]
fn a_terminal_gets_no_stream_of_repack_and_is_told_what_repack_takes() {
    let (folder, _) = folder();
    ok(&run(&folder, &[&"pack", &folder.path().join("file")]));
    let line = "repack --keep 1 -o - file.zst";
    let Some(output) = at_a_terminal(folder.path(), line, "") else {
        return;
    };
    let text = stdout(&output);
    assert!(!output.status.success(), "{text}");
    assert!(
        text.contains("is a terminal; name a file with -o"),
        "{text}"
    );
    assert!(!text.contains("-c"), "{text}");
}

/// Lines with the binary as `$0`, which succeed or fail with this error.
const CLOSED: [(&str, Option<&str>); 9] = [
    ("pack -c <&-", Some("standard input: Bad file")),
    ("pack -o made <&-", Some("standard input: Bad file")),
    ("cat <&-", Some("standard input: ")),
    ("pack -c file >&-", Some("standard output: ")),
    ("cat file.zst >&-", Some("Bad file")),
    ("info file.zst >&-", Some("Bad file")),
    ("man >&-", Some("Bad file")),
    ("unpack -t file.zst <&- >&-", None),
    ("pack -f file <&- >&- 2>&-", None),
];

#[test]
fn what_is_closed_is_no_empty_input_and_swallows_no_output() {
    let (folder, _) = folder();
    ok(&run(&folder, &[&"pack", &folder.path().join("file")]));
    for (line, expected) in CLOSED {
        let output = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {line}")])
            .arg(env!("CARGO_BIN_EXE_breakeven"))
            .current_dir(folder.path())
            .env("BREAKEVEN_CACHE", folder.path())
            .output();
        let output = output.expect("it starts");
        let text = message(&output);
        let code = i32::from(expected.is_some());
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        assert!(text.contains(expected.unwrap_or("")), "{line}: {text}");
        assert_eq!(names(folder.path()), ["file", "file.zst"], "{line}");
    }
    // A standard stream that the user sent nowhere (`/dev/null`) is no error.
    let output = run(&folder, &[&"pack", &"-c"]);
    ok(&output);
    assert!(!output.stdout.is_empty());
}

#[test]
fn unpack_takes_the_option_that_tar_gives_it() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    ok(&run(&folder, &[&"pack", &file]));
    let packed = File::open(folder.path().join("file.zst")).expect("the stream");
    let output = breakeven(&folder)
        .args(["unpack", "-d"])
        .stdin(packed)
        .output();
    let output = output.expect("it starts");
    ok(&output);
    assert!(output.stdout == data);
}

#[test]
fn a_slow_speed_is_not_told_as_none() {
    let (folder, _) = folder();
    let file = folder.path().join("file");
    // A thousand to one: in whole MB/s the written bytes would show as none.
    fs::write(&file, vec![7; 3_000_000]).expect("a file");
    let output = run(&folder, &[&"pack", &"-m", &"zstd:19", &file]);
    ok(&output);
    let text = message(&output);
    assert!(text.contains(" MB/s in and "), "{text}");
    assert!(!text.contains(" 0 MB/s out"), "{text}");
}

#[test]
fn a_full_device_is_an_error_that_says_so() {
    let (folder, _) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    ok(&run(&folder, &[&"pack", &"-k", &file]));
    for (arguments, path) in [(["pack", "-c"], &file), (["cat", "-q"], &packed)] {
        let full = File::options().write(true).open("/dev/full").expect("it");
        let mut command = breakeven(&folder);
        command.args(arguments).arg(path).stdout(full);
        let output = command.output().expect("it starts");
        let text = message(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains("No space left"), "{arguments:?}: {text}");
    }
    assert_eq!(names(folder.path()), ["file", "file.zst"]);
}

#[test]
fn a_signal_ends_a_program_whose_reader_stands_still() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    // These are more bytes than all buffers and a pipe hold, so in the end it waits for its reader.
    fs::write(&file, data.repeat(20)).expect("a file");
    ok(&run(&folder, &[&"pack", &"-m", &"store", &file]));
    for (arguments, path) in [(["pack", "-cmstore"], &file), (["cat", "-q"], &packed)] {
        for signal in ["INT", "TERM"] {
            let mut child = Command::new(env!("CARGO_BIN_EXE_breakeven"))
                .args(arguments)
                .arg(path)
                .stdout(Stdio::piped())
                .spawn()
                .expect("it starts");
            let mut first = [0; 4];
            let mut out = child.stdout.take().expect("a pipe");
            out.read_exact(&mut first).expect("the first bytes");
            let kill = Command::new("kill")
                .args([format!("-{signal}"), child.id().to_string()])
                .status();
            assert!(kill.expect("kill starts").success());
            // Its output stays open and unread: only the signal ends it.
            let status = child.wait().expect("it ends");
            drop(out);
            assert!(!status.success(), "{arguments:?}, {signal}: {status}");
        }
    }
    assert_eq!(names(folder.path()), ["file", "file.zst"]);
}

#[test]
fn a_signal_that_was_ignored_stays_ignored() {
    let (folder, data) = folder();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP INT QUIT TERM; exec \"$0\" pack -c"]);
    command.arg(env!("CARGO_BIN_EXE_breakeven"));
    command.env("BREAKEVEN_CACHE", folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    // These are more bytes than a pipe holds, so it is reading by now.
    input.write_all(&data).expect("it reads");
    for signal in ["HUP", "INT", "QUIT", "TERM"] {
        let kill = Command::new("kill")
            .args([format!("-{signal}"), child.id().to_string()])
            .status();
        assert!(kill.expect("kill starts").success());
    }
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{}", output.status);
    let packed = folder.path().join("packed.zst");
    fs::write(&packed, output.stdout).expect("a file");
    let output = run(&folder, &[&"cat", &packed]);
    assert!(output.stdout == data);
}

#[test]
fn a_signal_leaves_no_part_of_what_is_unpacked() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    fs::write(&file, data.repeat(3)).expect("a file");
    ok(&run(&folder, &[&"pack", &"-m", &"store", &file]));
    let stream = fs::read(&packed).expect("the packed file");
    let mut child = Command::new(env!("CARGO_BIN_EXE_breakeven"))
        .args(["unpack", "-o"])
        .arg(folder.path().join("out"))
        .stdin(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut input = child.stdin.take().expect("a pipe");
    input
        .write_all(&stream[..stream.len() / 2])
        .expect("it reads");
    assert_eq!(names(folder.path()).len(), 3, "{:?}", names(folder.path()));
    let kill = Command::new("kill")
        .args(["-TERM".to_string(), child.id().to_string()])
        .status();
    assert!(kill.expect("kill starts").success());
    let status = child.wait().expect("it ends");
    drop(input);
    assert!(!status.success(), "{status}");
    assert_eq!(names(folder.path()), ["file", "file.zst"]);
}

#[test]
fn a_reader_that_goes_away_ends_a_command_in_silence() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    fs::write(&file, data.repeat(3)).expect("a file");
    ok(&run(&folder, &[&"pack", &"-m", &"store", &file]));
    for (arguments, path) in [(["pack", "-cmstore"], &file), (["cat", "-q"], &packed)] {
        let mut child = breakeven(&folder)
            .args(arguments)
            .arg(path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut first = [0; 4];
        let mut out = child.stdout.take().expect("a pipe");
        out.read_exact(&mut first).expect("the first bytes");
        drop(out);
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.signal(), Some(13), "{}", message(&output));
        assert!(output.stderr.is_empty(), "{}", message(&output));
    }
}

#[test]
fn files_are_packed_whoever_stops_reading_what_is_told() {
    let (folder, data) = folder();
    let paths = ["a", "missing", "b"].map(|name| folder.path().join(name));
    for path in [&paths[0], &paths[2]] {
        fs::write(path, &data).expect("a file");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = breakeven(&folder)
        .args(["pack", "--ledger"])
        .args(paths)
        .stdout(writer)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert_eq!(names(folder.path()), ["a", "a.zst", "b", "b.zst", "file"]);
}

#[test]
fn a_copy_lends_no_rights() {
    let (folder, _) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o6755)).expect("a mode");
    ok(&run(&folder, &[&"pack", &file]));
    let (source, copy) = (fs::metadata(&file), fs::metadata(&packed));
    let (source, copy) = (source.expect("the file"), copy.expect("the packed file"));
    assert_eq!(source.mode() & 0o7777, 0o6755);
    assert_eq!(copy.mode() & 0o7777, 0o755);
    assert_eq!((copy.uid(), copy.gid()), (source.uid(), source.gid()));
}

#[test]
fn a_file_that_may_not_grow_is_an_error_that_names_it() {
    let (folder, _) = folder();
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 100; exec \"$0\" pack -m store file"])
        .arg(env!("CARGO_BIN_EXE_breakeven"))
        .env("BREAKEVEN_CACHE", folder.path())
        .current_dir(folder.path())
        .output()
        .expect("sh starts");
    let text = message(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("file.zst: "), "{text}");
    let times = text.matches("os error").count();
    assert_eq!(times, 1, "the cause is told once: {text}");
    assert_eq!(names(folder.path()), ["file"]);
}

#[test]
fn zeros_are_unpacked_as_holes_and_endings_of_others_are_known() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    let sparse = [&data[..], &vec![0; 16 << 20]].concat();
    fs::write(&file, &sparse).expect("a file");
    for (ending, name) in [("zst", "file"), ("xz", "file"), ("txz", "file.tar")] {
        let packed = folder.path().join(format!("file.{ending}"));
        ok(&run(&folder, &[&"pack", &file, &"-o", &packed]));
        ok(&run(&folder, &[&"unpack", &"-f", &"--rm", &packed]));
        let unpacked = folder.path().join(name);
        assert!(fs::read(&unpacked).expect("the file") == sparse, "{ending}");
        let stored_bytes = 512 * fs::metadata(&unpacked).expect("the file").blocks();
        assert!(stored_bytes < 8 << 20, "{ending}: {stored_bytes} bytes");
    }
}

#[test]
fn info_says_what_a_stream_consists_of() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    ok(&run(
        &folder,
        &[&"pack", &"--mixed", &"-m", &"lz4:1", &file],
    ));
    let output = run(&folder, &[&"info", &"--json", &packed]);
    ok(&output);
    let found: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let blocks = data.len().div_ceil(1 << 20) as u64;
    form::check(&found, "breakeven.info/1");
    let file_found = &found["files"][0];
    assert_eq!(file_found["raw_bytes"], data.len());
    assert_eq!(file_found["seek_table"], true);
    let frames = &file_found["frames"];
    assert_eq!(frames["skippable"], 1);
    let sum = frames["lz4"].as_u64().unwrap_or(0) + frames["zstd"].as_u64().unwrap_or(0);
    assert_eq!(sum, blocks + 1, "{frames}");
    let dense = folder.path().join("dense");
    let dense_as = ["pack", "--mixed", "-m", "xz:1", "-o"];
    let mut command = breakeven(&folder);
    command.args(dense_as).args([&dense, &file]);
    ok(&command.output().expect("it starts"));
    for (window, is_enough) in [("-M64KiB", false), ("-M8MiB", true)] {
        let output = run(&folder, &[&"info", &window, &dense]);
        let text = message(&output);
        assert_eq!(output.status.success(), is_enough, "{window}: {text}");
        assert_eq!(
            text.contains("-M2GiB allows"),
            !is_enough,
            "{window}: {text}"
        );
    }
    let output = run(&folder, &[&"info", &packed, &file]);
    assert_eq!(output.status.code(), Some(1), "a file that is no stream");
    assert!(
        stdout(&output).contains("zstd+lz4+skip"),
        "{}",
        stdout(&output)
    );
    let mut command = breakeven(&folder);
    let mut child = command.args(["info", "-"]).stdin(Stdio::piped());
    child = child.stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = child
        .spawn()
        .and_then(std::process::Child::wait_with_output);
    let output = output.expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    let text = message(&output);
    assert!(text.contains("standard input is not seekable"), "{text}");
    assert!(output.stdout.is_empty(), "{}", stdout(&output));
}
