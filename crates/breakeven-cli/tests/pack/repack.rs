//! `repack`: streams made smaller for the days they are kept, or left alone.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::{folder, message, names, ok};
use crate::run;

/// A folder with a stream that is stored raw where possible.
fn stream() -> (TempDir, PathBuf, Vec<u8>) {
    let (folder, data) = folder();
    let file = folder.path().join("file");
    ok(&run(&folder, &[&"pack", &"--rm", &"-m", &"store", &file]));
    let packed = folder.path().join("file.zst");
    (folder, packed, data)
}

#[track_caller]
fn check_decodes(folder: &TempDir, packed: &Path, data: &[u8]) {
    let output = run(folder, &[&"cat", &packed]);
    ok(&output);
    assert!(output.stdout == data);
}

#[test]
fn a_stream_is_replaced_by_a_smaller_one_and_then_left_alone() {
    let (folder, packed, data) = stream();
    fs::set_permissions(&packed, fs::Permissions::from_mode(0o640)).expect("a mode");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000);
    let opened = File::options().write(true).open(&packed).expect("the file");
    opened.set_modified(time).expect("a time");
    let before = fs::metadata(&packed).expect("the stream").len();
    ok(&run(&folder, &[&"repack", &"--keep", &"3650", &packed]));
    let metadata = fs::metadata(&packed).expect("the stream");
    assert!(
        metadata.len() < before / 2,
        "{} of {before}",
        metadata.len()
    );
    assert_eq!(metadata.permissions().mode() & 0o777, 0o640);
    assert_eq!(metadata.mtime(), 1_500_000_000);
    check_decodes(&folder, &packed, &data);
    // A day is one.
    let output = run(&folder, &[&"repack", &"--keep", &"1", &packed]);
    ok(&output);
    assert!(
        message(&output).contains("for 1 day\n"),
        "{}",
        message(&output)
    );
    // If data is kept only for a moment, nothing is worthwhile.
    let stream = fs::read(&packed).expect("the stream");
    let output = run(&folder, &[&"repack", &"--keep", &"0.0001", &packed]);
    ok(&output);
    assert!(
        message(&output).contains("left as it is"),
        "{}",
        message(&output)
    );
    assert!(fs::read(&packed).expect("the stream") == stream);
    assert_eq!(names(folder.path()), ["file.zst"]);
}

#[test]
fn another_file_takes_the_smaller_of_both() {
    let (folder, packed, data) = stream();
    let other = folder.path().join("other.zst");
    let before = fs::read(&packed).expect("the stream");
    ok(&run(
        &folder,
        &[&"repack", &"--keep", &"3650", &packed, &"-o", &other],
    ));
    assert!(fs::read(&packed).expect("the stream") == before);
    let dense = fs::read(&other).expect("the other");
    assert!(dense.len() < before.len() / 2);
    check_decodes(&folder, &other, &data);
    let output = run(
        &folder,
        &[&"repack", &"--keep", &"3650", &packed, &"-o", &other],
    );
    assert_eq!(output.status.code(), Some(1), "it exists");
    // A dense file is copied.
    let copy = folder.path().join("copy.zst");
    ok(&run(
        &folder,
        &[&"repack", &"--keep", &"0.0001", &other, &"-o", &copy],
    ));
    assert!(fs::read(&copy).expect("the copy") == dense);
    assert_eq!(names(folder.path()), ["copy.zst", "file.zst", "other.zst"]);
}

#[test]
fn containers_stay_what_they_are() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    for (more, mixed_may) in [
        (&["--mixed", "-m", "lz4:1"][..], true),
        (&["-m", "zstd:1"], false),
    ] {
        let mut command = crate::breakeven(&folder);
        ok(&command
            .args(["pack", "-f"])
            .args(more)
            .arg(&file)
            .output()
            .expect("it starts"));
        ok(&run(&folder, &[&"repack", &"--keep", &"36500", &packed]));
        check_decodes(&folder, &packed, &data);
        let output = run(&folder, &[&"info", &"--json", &packed]);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let frames = &found["files"][0]["frames"];
        let foreign = frames["xz"].as_u64().unwrap_or(0) + frames["lz4"].as_u64().unwrap_or(0);
        assert!(mixed_may || foreign == 0, "{frames}");
    }
}

/// Readers of a file's format find that format under its name.
#[test]
fn no_other_format_gets_frames_of_zstd() {
    let (folder, data) = folder();
    for (tool, name) in [
        ("gzip -1", "file.gz"),
        ("xz -0", "file.xz"),
        ("lz4 -1", "file.lz4"),
    ] {
        let other = folder.path().join(name);
        let made = Command::new("sh")
            .args([
                "-c",
                &format!("{tool} -qc file >{name} && cp {name} {name}.1"),
            ])
            .current_dir(folder.path())
            .status();
        assert!(made.expect("it starts").success(), "{tool}");
        let before = fs::read(&other).expect("a file");
        for path in [other.clone(), folder.path().join(format!("{name}.1"))] {
            let output = run(&folder, &[&"repack", &"--keep", &"36500", &path]);
            assert_eq!(output.status.code(), Some(1), "{}", message(&output));
            assert!(message(&output).contains("-o"), "{}", message(&output));
            assert!(fs::read(&path).expect("a file") == before, "{tool}");
        }
        let packed = folder.path().join("other.zst");
        let line: [&dyn AsRef<OsStr>; 6] = [&"repack", &"--keep", &"36500", &other, &"-o", &packed];
        ok(&run(&folder, &line));
        check_decodes(&folder, &packed, &data);
        fs::remove_file(&packed).expect("a file");
    }
}

/// Programs that read one frame alone would lose the rest.
#[test]
fn one_frame_stays_one() {
    let (folder, data) = folder();
    let (file, packed) = (folder.path().join("file"), folder.path().join("file.zst"));
    ok(&run(&folder, &[&"pack", &"-1", &file]));
    ok(&run(&folder, &[&"repack", &"--keep", &"36500", &packed]));
    check_decodes(&folder, &packed, &data);
    let output = run(&folder, &[&"info", &"--json", &packed]);
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(found["files"][0]["frames"]["zstd"], 1, "{found}");
}

#[test]
fn what_cannot_be_read_is_not_touched() {
    let (folder, packed, _) = stream();
    let mut bad = fs::read(&packed).expect("the stream");
    let middle = bad.len() / 2;
    bad[middle] ^= 1;
    fs::write(&packed, &bad).expect("a file");
    let output = run(&folder, &[&"repack", &"--keep", &"3650", &packed]);
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert!(fs::read(&packed).expect("the stream") == bad);
    assert_eq!(names(folder.path()), ["file.zst"]);
    let output = run(&folder, &[&"repack", &packed]);
    assert_eq!(output.status.code(), Some(2), "--keep is wanted");
}

#[test]
fn standard_output_gets_a_stream_that_was_checked() {
    let (folder, packed, data) = stream();
    let before = fs::read(&packed).expect("the stream");
    for (days, is_smaller) in [("3650", true), ("0.0001", false)] {
        let output = run(
            &folder,
            &[&"repack", &"--keep", &days, &"-o", &"-", &packed],
        );
        ok(&output);
        assert_eq!(output.stdout.len() < before.len(), is_smaller, "{days}");
        let out = folder.path().join("out.zst");
        fs::write(&out, &output.stdout).expect("a file");
        check_decodes(&folder, &out, &data);
        fs::remove_file(&out).expect("the file");
    }
    assert!(fs::read(&packed).expect("the stream") == before);
    // Standard input has no place for another stream.
    let output = run(&folder, &[&"repack", &"--keep", &"9", &"-"]);
    assert_eq!(output.status.code(), Some(2), "{}", message(&output));
    assert!(message(&output).contains("-o"), "{}", message(&output));
    assert_eq!(names(folder.path()), ["file.zst"]);
}

#[test]
fn a_signal_leaves_the_stream_as_it_was_or_as_it_will_be() {
    let (folder, packed, data) = stream();
    let mut child = Command::new(env!("CARGO_BIN_EXE_breakeven"))
        .args(["repack", "-q", "--keep", "3650"])
        .arg(&packed)
        .env("BREAKEVEN_CACHE", folder.path())
        .spawn()
        .expect("it starts");
    // Until there is a file under another name, or the command has ended.
    while names(folder.path()).len() < 2 && child.try_wait().expect("a child").is_none() {
        std::thread::yield_now();
    }
    let kill = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status();
    kill.expect("kill starts");
    child.wait().expect("it ends");
    assert_eq!(names(folder.path()), ["file.zst"]);
    check_decodes(&folder, &packed, &data);
}
