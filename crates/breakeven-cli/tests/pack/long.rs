//! Long frames: levels typed as for `zstd`, files that are kept, and input for one-shot decoders. Also the output of
//! `unpack` for the streams of others.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::{folder, message, ok};
use crate::page::left_out;
use crate::{breakeven, noise, run};

/// Packs the file with some options; returns the stream.
fn packed(folder: &TempDir, options: &[&str]) -> Vec<u8> {
    let file = folder.path().join("file");
    let mut command = breakeven(folder);
    let output = command.args(["pack", "-f"]).args(options).arg(&file);
    ok(&output.output().expect("it starts"));
    fs::read(folder.path().join("file.zst")).expect("the packed file")
}

/// Gives bytes to a command's standard input.
fn fed(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut to = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        // The command may end before it has read all.
        let _ = to.write_all(&input);
    });
    let output = child.wait_with_output().expect("it ends");
    feeder.join().expect("it was fed");
    output
}

/// A file whose second half repeats the first, at more than a block's distance.
fn repeating() -> (TempDir, Vec<u8>) {
    let (folder, _) = folder();
    let mut data = b"what is saved must be more than what is spent\n".repeat(20_000);
    data.extend(noise(1_500_000));
    data.extend_from_within(..);
    fs::write(folder.path().join("file"), &data).expect("a file");
    (folder, data)
}

/// Returns whether a stream begins with a zstd frame that states this content, as one-shot decoders need it.
fn states(stream: &[u8], content_bytes: usize) -> bool {
    // A single segment has no window: the size follows the descriptor.
    let is_single = stream[4] & 0x20 != 0;
    let at = if is_single { 5 } else { 6 };
    let stated = match stream[4] >> 6 {
        0 if is_single => Some(u64::from(stream[at])),
        0 => None,
        1 => Some(u64::from(u16::from_le_bytes([stream[at], stream[at + 1]])) + 256),
        2 => Some(u64::from(u32::from_le_bytes(
            stream[at..at + 4].try_into().expect("4"),
        ))),
        _ => Some(u64::from_le_bytes(
            stream[at..at + 8].try_into().expect("8"),
        )),
    };
    stream.starts_with(&[0x28, 0xB5, 0x2F, 0xFD]) && stated == Some(content_bytes as u64)
}

#[test]
fn what_is_kept_in_a_file_is_one_frame_that_finds_what_is_far() {
    let (folder, data) = repeating();
    let usual = packed(&folder, &[]);
    assert!(states(&usual, data.len()));
    let row = packed(&folder, &["-m", "zstd:3"]);
    assert!(usual.len() <= row.len(), "{} of {}", usual.len(), row.len());
    // The second half lies farther back than the window of level 3.
    let small = packed(&folder, &["--strategy", "smallest"]);
    assert!(
        small.len() * 3 < row.len() * 2,
        "{} of {}",
        small.len(),
        row.len()
    );
    assert!(states(
        &packed(&folder, &["--strategy", "money"]),
        data.len()
    ));
    // A file behind standard output is a file, too.
    let target = folder.path().join("out");
    let mut command = breakeven(&folder);
    command.args(["pack", "-c"]).arg(folder.path().join("file"));
    command.stdout(File::create(&target).expect("a file"));
    assert!(command.status().expect("it starts").success());
    assert!(fs::read(&target).expect("the stream") == usual);
    for stream in [&usual, &row, &small] {
        fs::write(&target, stream).expect("a file");
        let output = run(&folder, &[&"cat", &target]);
        assert!(output.stdout == data, "{}", message(&output));
    }
}

#[test]
fn levels_are_typed_as_to_zstd() {
    let (folder, data) = repeating();
    let nine = packed(&folder, &["-9"]);
    assert!(states(&nine, data.len()));
    for same in [
        &["--level", "9"][..],
        &["-9f"],
        &["-f9"],
        &["-9", "-T3"],
        &["-1", "-9"],
    ] {
        assert!(packed(&folder, same) == nine, "{same:?}");
    }
    let one = packed(&folder, &["-1"]);
    let dense = packed(&folder, &["-19q"]);
    assert!(dense.len() < one.len(), "{} of {}", dense.len(), one.len());
    let file = folder.path().join("file");
    for wrong in [
        &["-23"][..],
        &["-9", "-m", "zstd:1"],
        &["-9", "--strategy", "money"],
    ] {
        let mut command = breakeven(&folder);
        command.args(["pack", "-f"]).args(wrong).arg(&file);
        let output = command.output().expect("it starts");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{wrong:?}: {}",
            message(&output)
        );
    }
    // A file name may look like a level.
    fs::write(folder.path().join("-9"), b"nine").expect("a file");
    let mut command = breakeven(&folder);
    command
        .current_dir(folder.path())
        .args(["pack", "-f", "--", "-9"]);
    ok(&command.output().expect("it starts"));
    let output = run(&folder, &[&"cat", &folder.path().join("-9.zst")]);
    assert_eq!(output.stdout, b"nine");
}

#[test]
fn what_fits_a_frame_is_one_frame_with_nothing_before_it() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    for bytes in [1, 300, 70_000, 900_000] {
        fs::write(&file, &data[..bytes]).expect("a file");
        for options in [&[][..], &["-m", "zstd:3"], &["--link", "30MB/s"], &["-9"]] {
            assert!(
                states(&packed(&folder, options), bytes),
                "{options:?}, {bytes} bytes"
            );
            let mut command = breakeven(&folder);
            command.args(["pack", "-c"]).args(options);
            let output = fed(command, &data[..bytes]);
            ok(&output);
            assert!(
                states(&output.stdout, bytes),
                "{options:?}, {bytes} bytes of a pipe"
            );
        }
    }
}

#[test]
fn a_slow_pipe_is_written_whole_and_a_told_link_gets_one_frame() {
    let (folder, _) = folder();
    let mut data = Vec::new();
    (0..600_000_u64)
        .for_each(|i| data.extend(format!("{} costs {}\n", i % 7919, i * i % 104_729).bytes()));
    let file = folder.path().join("file");
    fs::write(&file, &data).expect("a file");
    // A reader that takes some MB a second, since it has its own work.
    let script = "\"$0\" pack -c file | \"$0\" pack -c -19 -T1 > twice && \"$0\" cat twice > out";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(env!("CARGO_BIN_EXE_breakeven"))
        .env("BREAKEVEN_CACHE", folder.path())
        .current_dir(folder.path())
        .output()
        .expect("sh starts");
    ok(&output);
    let output = run(&folder, &[&"cat", &folder.path().join("out")]);
    assert!(output.stdout == data, "{}", message(&output));
    // With a given link it is one frame from the start. Its length depends on the machine.
    let frames = |options: &[&str]| {
        packed(&folder, options);
        let output = run(
            &folder,
            &[&"info", &"--json", &folder.path().join("file.zst")],
        );
        let said: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        said["files"][0]["frames"]["zstd"]
            .as_u64()
            .expect("a number")
    };
    assert!(frames(&["--link", "4MB/s", "--hint", "keep=1"]) > 1);
    assert_eq!(frames(&["--link", "4MB/s"]), 1);
    let stream = fs::read(folder.path().join("file.zst")).expect("the packed file");
    assert!(states(&stream, data.len()));
    let output = run(&folder, &[&"cat", &folder.path().join("file.zst")]);
    assert!(output.stdout == data);
}

/// Decodes a stream by each function of Python's zstandard that decodes one frame.
const DECODES: &str = "\
import sys, zstandard
stream, content = (open(name, 'rb').read() for name in sys.argv[1:3])
assert zstandard.decompress(stream) == content
assert zstandard.ZstdDecompressor().decompress(stream) == content
";

#[test]
fn one_shot_decoders_of_python_read_long_frames() {
    let python = "/usr/bin/python3";
    let mut asked = Command::new(python);
    if !asked
        .args(["-c", "import zstandard"])
        .status()
        .is_ok_and(|it| it.success())
    {
        return left_out("no zstandard of Python: nothing is decoded by it");
    }
    let (folder, data) = repeating();
    let forms: [&[&str]; 6] = [
        &[],
        &["-1"],
        &["-19"],
        &["--strategy", "money"],
        &["--strategy", "smallest"],
        &["--link", "12MB/s"],
    ];
    for options in forms {
        assert!(states(&packed(&folder, options), data.len()), "{options:?}");
        let decoded = Command::new(python)
            .args(["-c", DECODES, "file.zst", "file"])
            .current_dir(folder.path())
            .output()
            .expect("it starts");
        assert!(
            decoded.status.success(),
            "{options:?}: {}",
            message(&decoded)
        );
    }
}

#[test]
fn no_wrong_byte_of_a_frame_that_is_checked_is_written() {
    let (folder, data) = folder();
    // From a pipe, so that the frame states no length.
    let mut command = breakeven(&folder);
    command.args(["pack", "-c", "-3"]);
    let stream = fed(command, &data).stdout;
    assert!(!states(&stream, data.len()));
    let mut random = 29_u64;
    let mut below = |limit: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % limit
    };
    let mut tried = 0;
    for _ in 0..60 {
        let mut flipped = stream.clone();
        flipped[6 + below(stream.len() - 6)] ^= 1 << below(8);
        let mut command = breakeven(&folder);
        command.arg("cat");
        let output = fed(command, &flipped);
        if output.status.code() == Some(0) {
            // A bit that means nothing.
            assert!(output.stdout == data);
            continue;
        }
        assert!(
            output.stdout.is_empty(),
            "{} bytes were written",
            output.stdout.len()
        );
        tried += 1;
    }
    println!("{tried} damaged streams");
    assert!(tried >= 50);
}

#[test]
fn gzip_is_unpacked_with_all_its_members_and_checks() {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    let gzip = Command::new("gzip").arg("-kf").arg(&file).status();
    if gzip.is_err() {
        return println!("gzip is not installed: nothing tried with it");
    }
    let name = folder.path().join("file.gz");
    let member = fs::read(&name).expect("the member");
    fs::remove_file(&file).expect("the file");
    ok(&run(&folder, &[&"unpack", &name]));
    assert!(fs::read(&file).expect("the file") == data);
    for members in [1, 3] {
        let mut command = breakeven(&folder);
        command.arg("cat");
        let output = fed(command, &member.repeat(members));
        assert!(
            output.stdout == data.repeat(members),
            "{}",
            message(&output)
        );
    }
    // Zeros may stand behind it, as in gzip files, for any reader.
    for zeros in [1, 4096] {
        let padded = [member.clone(), vec![0; zeros]].concat();
        let mut command = breakeven(&folder);
        command.arg("cat");
        let output = fed(command, &padded);
        assert!(output.stdout == data, "{}", message(&output));
        fs::write(&name, padded).expect("a file");
        ok(&run(&folder, &[&"info", &name]));
        ok(&run(&folder, &[&"unpack", &"-f", &name]));
    }
    // The check and the length stand at the end of a member.
    for (place, what) in [
        (8, "corrupt"),
        (4, "corrupt"),
        (member.len() / 2, "corrupt"),
    ] {
        let mut flipped = member.clone();
        let at = flipped.len() - place;
        flipped[at] ^= 1;
        let mut command = breakeven(&folder);
        command.arg("cat");
        let output = fed(command, &flipped);
        assert_eq!(output.status.code(), Some(1), "{}", message(&output));
        assert!(message(&output).contains(what), "{}", message(&output));
        assert!(output.stdout.is_empty());
    }
    let mut command = breakeven(&folder);
    command.arg("cat");
    let output = fed(command, &member[..member.len() - 3]);
    assert!(
        message(&output).contains("end of the input"),
        "{}",
        message(&output)
    );
}
