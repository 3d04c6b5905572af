//! Sources that change while they are packed: truncated, grown, replaced, unlinked. The output decodes to the bytes
//! that were read, or the earlier file is still there. A source that changed is never removed.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use breakeven::testing::seeded;
use tempfile::TempDir;

use super::{message, names, ok};
use crate::{breakeven, noise, run};

/// Bytes of a source: some jobs of a long frame, many blocks of a row.
const SOURCE_BYTES: usize = 24 << 20;
/// How often the test tries to stop a program between two places before the program passes both.
const TRIES: usize = 50;
/// How often the test checks a program's position before it counts as stuck.
const LOOKS: usize = 100_000_000;

/// The change of a source.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Cut,
    Emptied,
    Grown,
    Replaced,
    Unlinked,
}

const CHANGES: [Change; 5] = [
    Change::Cut,
    Change::Emptied,
    Change::Grown,
    Change::Replaced,
    Change::Unlinked,
];

impl Change {
    fn make(self, path: &Path) {
        let opened = || File::options().append(true).open(path).expect("the source");
        match self {
            // Fewer bytes than were read so far: the next read is the end.
            Change::Cut => opened().set_len(1 << 20).expect("it is cut"),
            Change::Emptied => opened().set_len(0).expect("it is cut"),
            Change::Grown => opened().write_all(b"one line more\n").expect("it grows"),
            Change::Replaced => {
                let other = path.with_extension("new");
                fs::write(&other, b"another file").expect("another file");
                fs::rename(other, path).expect("a rename");
            }
            Change::Unlinked => fs::remove_file(path).expect("the source"),
        }
    }
}

/// Returns a number that Linux reports for a process under a name; `None` after its end.
fn process_number(child: &Child, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{}/{file}", child.id())).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().parse().ok()
}

fn signal(child: &Child, name: &str) {
    let mut kill = Command::new("kill");
    kill.args([format!("-{name}"), child.id().to_string()]);
    assert!(kill.status().expect("kill starts").success());
}

/// Waits until a program has read so many bytes, and stops it; returns whether it stopped before it read more.
fn is_stopped_between(child: &Child, bytes: &Range<u64>) -> bool {
    for _ in 0..LOOKS {
        match process_number(child, "io", "rchar:") {
            Some(read) if read >= bytes.start => break,
            Some(_) => {}
            None => return false,
        }
    }
    signal(child, "STOP");
    for _ in 0..LOOKS {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let state = status.lines().find_map(|line| line.strip_prefix("State:"));
        match state.map(str::trim).and_then(|state| state.chars().next()) {
            Some('T') => {
                let read = process_number(child, "io", "rchar:");
                return read.is_some_and(|read| bytes.contains(&read));
            }
            Some('Z') | None => return false,
            _ => {}
        }
    }
    panic!("it does not stop");
}

/// Runs a prepared program until it can be stopped between two places of its input; then makes a change, and lets it
/// end.
pub fn changed_while(
    prepare: impl Fn() -> Command,
    bytes: Range<u64>,
    change: impl Fn(),
) -> Output {
    for _ in 0..TRIES {
        let mut command = prepare();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().expect("it starts");
        let is_stopped = is_stopped_between(&child, &bytes);
        if is_stopped {
            change();
        }
        signal(&child, "CONT");
        let output = child.wait_with_output().expect("it ends");
        if is_stopped {
            return output;
        }
    }
    panic!("it was never stopped in time");
}

/// Packs a source that changes once so many of its bytes were read, over an earlier stream.
fn packed_while(folder: &TempDir, options: &[&str], change: Change, at: usize) -> Output {
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    let prepare = || {
        fs::write(&file, noise(SOURCE_BYTES)).expect("a file");
        fs::write(&packed, b"the earlier one").expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
        command.args(["pack", "-f"]).args(options).arg(&file);
        command.env("BREAKEVEN_CACHE", folder.path());
        command
    };
    // At its start it reads less than a MiB of other files.
    let bytes = at as u64..(SOURCE_BYTES - (1 << 20)) as u64;
    changed_while(prepare, bytes, || change.make(&file))
}

#[test]
fn a_source_that_changes_while_it_is_packed_replaces_nothing_by_less_and_is_kept() {
    let mut random = seeded("changing sources", 38);
    let forms: [&[&str]; 5] = [
        &[],
        &["-3"],
        &["-m", "zstd:1"],
        &["--link", "90MB/s"],
        &["-m", "store", "--links", "2"],
    ];
    let content = noise(SOURCE_BYTES);
    let mut tried = 0;
    for (index, change) in CHANGES.into_iter().cycle().take(20).enumerate() {
        // Each form with each change, with one job and with many, and with a source that will be removed.
        let form = forms[(index + index / 5) % 5];
        let threads = ["-T1", "-T3"][random.usize(..2)];
        let removes = random.bool();
        let mut options = [form, &[threads, "-q"]].concat();
        if removes {
            options.push("--rm");
        }
        let (folder, _) = super::folder();
        let at = random.usize(3 << 20..10 << 20);
        let output = packed_while(&folder, &options, change, at);
        let case = format!("{options:?} {change:?} at {at}: {}", message(&output));
        let packed = folder.path().join("file.zst");
        let stream = fs::read(&packed).expect("a stream");
        let decoded = run(&folder, &[&"cat", &packed]).stdout;
        let mut left = vec!["file", "file.zst"];
        match change {
            Change::Cut | Change::Emptied => {
                assert_eq!(output.status.code(), Some(1), "{case}");
                assert!(message(&output).contains("while it was read"), "{case}");
                assert_eq!(stream, b"the earlier one", "{case}");
            }
            Change::Grown => {
                let grown = [&content[..], b"one line more\n"].concat();
                assert!(decoded == grown, "{case}");
                assert_eq!(output.status.code(), Some(i32::from(removes)), "{case}");
            }
            // The opened file is read to its end.
            Change::Replaced | Change::Unlinked => {
                assert!(decoded == content, "{case}");
                assert_eq!(output.status.code(), Some(i32::from(removes)), "{case}");
            }
        }
        if change == Change::Unlinked {
            left.remove(0);
        }
        assert_eq!(names(folder.path()), left, "{case}");
        tried += 1;
    }
    println!("{tried} sources that changed");
    assert!(tried >= 20);
}

#[test]
fn a_source_of_which_the_inode_alone_tells_that_it_changed_is_kept() {
    let (folder, data) = super::folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    let data = data.repeat(8);
    let prepare = || {
        fs::write(&file, &data).expect("a file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
        command.args(["pack", "-qf", "--rm", "-9"]).arg(&file);
        command.env("BREAKEVEN_CACHE", folder.path());
        command
    };
    let output = changed_while(prepare, 2 << 20..data.len() as u64, || {
        // The same length, the same time of writing, other bytes.
        let modified = fs::metadata(&file).and_then(|it| it.modified());
        let mut opened = File::options().write(true).open(&file).expect("the source");
        opened.write_all(b"others").expect("it is written to");
        opened
            .set_modified(modified.expect("a time"))
            .expect("a time");
    });
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert!(
        message(&output).contains("it is kept"),
        "{}",
        message(&output)
    );
    assert!(file.exists() && packed.exists());
}

#[test]
fn a_stream_that_is_cut_between_its_frames_while_it_is_read_is_no_shorter_one() {
    let (folder, _) = super::folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    // Frames of the length of one read, so that a cut falls between two.
    let frame_bytes = 128 << 10;
    let mut frame = vec![0; 0];
    for content_bytes in (frame_bytes - 64..frame_bytes).rev() {
        fs::write(&file, noise(content_bytes)).expect("a file");
        ok(&run(&folder, &[&"pack", &"-qf", &"-mstore", &file]));
        frame = fs::read(&packed).expect("the frame");
        if frame.len() <= frame_bytes {
            break;
        }
    }
    assert_eq!(frame.len(), frame_bytes);
    let frames = frame.repeat(SOURCE_BYTES / frame_bytes);
    for command in ["unpack", "repack"] {
        let prepare = || {
            fs::write(&packed, &frames).expect("a file");
            fs::write(&file, b"the earlier one").expect("a file");
            let mut it = Command::new(env!("CARGO_BIN_EXE_breakeven"));
            it.arg(command)
                .args(["-qf", "-T1", "-o"])
                .arg(&file)
                .arg(&packed);
            if command == "repack" {
                it.args(["--keep", "9"]);
            }
            it.env("BREAKEVEN_CACHE", folder.path());
            it
        };
        let bytes = 4 << 20..(SOURCE_BYTES - (1 << 20)) as u64;
        let output = changed_while(prepare, bytes, || {
            let opened = File::options()
                .write(true)
                .open(&packed)
                .expect("the stream");
            opened.set_len(1 << 20).expect("it is cut");
        });
        let case = format!("{command}: {}", message(&output));
        assert_eq!(output.status.code(), Some(1), "{case}");
        assert_eq!(fs::read(&file).expect("it"), b"the earlier one", "{case}");
        assert_eq!(names(folder.path()), ["file", "file.zst"], "{case}");
    }
}

#[test]
fn files_that_say_another_length_than_they_have_are_packed_as_they_read() {
    let (folder, _) = super::folder();
    let packed = folder.path().join("packed.zst");
    // The first reports 0 bytes, the second 4096.
    for source in [
        "/proc/version",
        "/sys/kernel/mm/transparent_hugepage/enabled",
    ] {
        let Ok(content) = fs::read(source) else {
            println!("no {source}: not tried");
            continue;
        };
        let forms: [&[&str]; 6] = [
            &[],
            &["-T3"],
            &["-9"],
            &["-m", "zstd:1"],
            &["--link", "12MB/s"],
            &["--strategy", "smallest"],
        ];
        for options in forms {
            let mut command = breakeven(&folder);
            command
                .args(["pack", "-f", "-o"])
                .arg(&packed)
                .args(options)
                .arg(source);
            ok(&command.output().expect("it starts"));
            let output = run(&folder, &[&"cat", &packed]);
            assert_eq!(output.stdout, content, "{source} {options:?}");
        }
        ok(&run(&folder, &[&"explain", &source]));
    }
}
