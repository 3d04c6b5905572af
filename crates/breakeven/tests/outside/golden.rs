//! The files by which the authors of zstd, lz4 and xz test their own readers: decoded or refused as the authors state.
//!
//! `tools/setup test` takes them from Debian's source packages and keeps them in a folder, which `BREAKEVEN_SOURCES`
//! may name. Without them, the test reports that and tries nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use breakeven::Error;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{Choice, Container, ReaderOptions, Writer, WriterOptions, survey};

use crate::stock::{installed, left_out};
use crate::verdicts::{read, stock_verdict};

/// Returns the folder of the files of a source package, if it is there.
fn folder(package: &str) -> Option<PathBuf> {
    let folder = crate::sources::folder(package);
    if folder.is_none() {
        left_out(&format!(
            "the sources of {package} are not installed: nothing tried with them"
        ));
    }
    folder
}

/// Returns the files of a folder whose names pass, sorted, with their bytes; empty without such a folder.
fn files(folder: &Path, passes: impl Fn(&str) -> bool) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<(String, Vec<u8>)> = entries
        .map(|entry| entry.unwrap().path())
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.to_string();
            passes(&name).then(|| (name, fs::read(&path).unwrap()))
        })
        .collect();
    files.sort();
    files
}

/// Checks that a file decodes to the same bytes as by its own program.
fn check_good(program: &str, name: &str, bytes: &[u8]) {
    let content = match read(bytes) {
        Ok(content) => content,
        Err(error) => panic!("{name} is refused: {error}"),
    };
    let surveyed = survey(&mut std::io::Cursor::new(bytes), &ReaderOptions::default()).unwrap();
    assert_eq!(surveyed.counted.stored_bytes, bytes.len() as u64, "{name}");
    if surveyed.states_content {
        let stated = surveyed.counted.content_bytes;
        assert_eq!(stated, content.len() as u64, "{name}");
    }
    if installed(program) {
        let stock = stock_verdict(program, bytes);
        assert!(stock.as_ref() == Some(&content), "{name}: other bytes");
    }
}

fn check_bad(name: &str, bytes: &[u8]) {
    match read(bytes) {
        Ok(content) => panic!("{name} decodes to {} bytes", content.len()),
        Err(Error::Corrupt { offset, .. }) => {
            assert!(offset <= bytes.len() as u64, "{name}: at byte {offset}");
        }
        Err(Error::Unsupported { .. } | Error::Limit { .. }) => {}
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
fn what_zstds_authors_keep_is_judged_as_they_say() {
    let Some(folder) = folder("zstd") else { return };
    let is_frame = |name: &str| name.ends_with(".zst");
    let good = files(&folder.join("golden-decompression"), is_frame);
    let bad = files(&folder.join("golden-decompression-errors"), is_frame);
    good.iter().for_each(|it| check_good("zstd", &it.0, &it.1));
    bad.iter().for_each(|it| check_bad(&it.0, &it.1));
    let raw = files(&folder.join("golden-compression"), |_| true);
    for (name, content) in &raw {
        for method in [
            "store", "zstd:-5", "zstd:1", "zstd:19", "lz4:1", "lz4hc:12", "xz:6",
        ] {
            for block_bytes in [4 << 10, 1 << 20] {
                check_round_trip(name, content, method, block_bytes);
            }
        }
    }
    let dictionaries = check_dictionaries(&folder.join("golden-dictionaries"));
    println!(
        "zstd: {} good and {} bad frames, {} contents, {dictionaries} dictionaries",
        good.len(),
        bad.len(),
        raw.len()
    );
    assert!(good.len() >= 2 && raw.len() >= 3 && dictionaries >= 1);
}

/// Packs a content, and reads it back ourselves and by zstd.
fn check_round_trip(name: &str, content: &[u8], method: &str, block_bytes: usize) {
    let pool = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
    let options = WriterOptions {
        container: Container::Mixed,
        choice: Choice::Fixed(method.parse().unwrap()),
        block_bytes,
        ..WriterOptions::default()
    };
    let mut writer = Writer::new(Vec::new(), &pool, options).unwrap();
    writer.write_all(content).unwrap();
    let (stream, _) = writer.finish().unwrap();
    assert!(read(&stream).unwrap() == content, "{name} by {method}");
    if installed("zstd") {
        let stock = stock_verdict("zstd", &stream);
        assert!(stock.as_deref() == Some(content), "{name} by {method}");
    }
}

/// Checks that a frame made with a dictionary is refused by its number, and never read wrong; returns the number of
/// tries.
fn check_dictionaries(folder: &Path) -> usize {
    let dictionaries = files(folder, |_| true);
    if dictionaries.is_empty() || !installed("zstd") {
        return dictionaries.len();
    }
    let made = tempfile::tempdir().unwrap();
    let path = made.path().join("content");
    fs::write(&path, b"Host: example\r\nAccept: text/html\r\n".repeat(20)).unwrap();
    for (name, bytes) in &dictionaries {
        let id = u32::from_le_bytes(bytes[4..8].try_into().unwrap());
        let mut command = Command::new("zstd");
        command
            .arg("-D")
            .arg(folder.join(name))
            .arg("-c")
            .arg(&path);
        let output = command.output().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {message}");
        match read(&output.stdout) {
            Err(Error::Unsupported { what }) => {
                assert!(what.contains(&id.to_string()), "{name}: {what}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    dictionaries.len()
}

#[test]
fn what_lz4s_authors_keep_is_judged_as_they_say() {
    let Some(folder) = folder("lz4") else { return };
    let good = files(&folder.join("goldenSamples"), |_| true);
    for (name, bytes) in &good {
        // Skippable frames have no content.
        assert!(read(bytes).unwrap().is_empty(), "{name}");
        check_good("lz4", name, bytes);
    }
    println!("lz4: {} good files", good.len());
    assert!(!good.is_empty());
}

#[test]
fn what_xzs_authors_keep_is_judged_as_they_say() {
    let Some(folder) = folder("xz-utils") else {
        return;
    };
    let folder = folder.join("files");
    let is_xz =
        |kind: &'static str| move |name: &str| name.starts_with(kind) && name.ends_with(".xz");
    let good = files(&folder, is_xz("good-"));
    let bad = files(&folder, is_xz("bad-"));
    let unsupported = files(&folder, is_xz("unsupported-"));
    let foreign = files(&folder, |name| {
        name.ends_with(".lzma") || name.ends_with(".lz")
    });
    good.iter().for_each(|it| check_good("xz", &it.0, &it.1));
    bad.iter().for_each(|it| check_bad(&it.0, &it.1));
    for (name, bytes) in &unsupported {
        // A file with an unknown check may be decoded, as xz does with a warning.
        match &**name {
            "unsupported-check.xz" => check_good("xz", name, bytes),
            _ => check_bad(name, bytes),
        }
    }
    // Formats that no stream holds, whether good or bad.
    foreign.iter().for_each(|it| check_bad(&it.0, &it.1));
    println!(
        "xz: {} good, {} bad and {} unsupported streams, {} of other formats",
        good.len(),
        bad.len(),
        unsupported.len(),
        foreign.len()
    );
    assert!(good.len() >= 24 && bad.len() >= 42 && unsupported.len() >= 5);
}
