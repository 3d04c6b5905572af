//! The commands of the guide and the README, run: over a link, into an object store, and with output for stock
//! programs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::{folder, message, ok};
use crate::page::left_out;

/// Programs that stand in for those of a network: they do their work in a folder of this machine.
const FAR: [(&str, &str); 3] = [
    // As in sshd, the words behind the host go to a shell.
    ("ssh", "shift; cd \"$FAR\" && exec sh -c \"$*\""),
    ("rclone", "[ \"$1\" = rcat ] && cat > \"$FAR/${2##*/}\""),
    (
        "aws",
        "[ \"$1 $2 $3\" = 's3 cp -' ] && cat > \"$FAR/${4##*/}\"",
    ),
];

/// A near and a far folder, each with the same files, and a folder of programs.
struct Places {
    folder: TempDir,
    data: Vec<u8>,
}

impl Places {
    fn new() -> Places {
        let (folder, data) = folder();
        let path = folder.path();
        for name in ["near", "near/FOLDER", "far", "programs"] {
            fs::create_dir(path.join(name)).expect("a folder");
        }
        for name in ["near/FILE", "near/FOLDER/file", "far/FILE"] {
            fs::copy(path.join("file"), path.join(name)).expect("a copy");
        }
        for (name, text) in FAR {
            let program = path.join("programs").join(name);
            fs::write(&program, format!("#!/bin/sh\n{text}\n")).expect("a program");
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(&program, mode).expect("a mode");
        }
        let ours = path.join("programs/breakeven");
        symlink(env!("CARGO_BIN_EXE_breakeven"), ours).expect("a link");
        Places { folder, data }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Runs a line in the near folder by a shell; the code is that of the first program that failed.
    fn run(&self, line: &str) -> Output {
        let path = std::env::var("PATH").unwrap_or_default();
        let programs = self.path("programs");
        Command::new("timeout")
            .args(["--signal=KILL", "120", "bash", "-o", "pipefail", "-c", line])
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("FAR", self.path("far"))
            .env("BREAKEVEN_CACHE", self.folder.path())
            .current_dir(self.path("near"))
            .stdin(Stdio::null())
            .output()
            .expect("a shell")
    }

    /// Checks that a file holds a stream of this content, with stock zstd where it is installed.
    #[track_caller]
    fn check_stream(&self, stream: &Path, content: &[u8]) {
        let stock = Command::new("zstd").arg("-dc").arg(stream).output();
        let output = stock.unwrap_or_else(|_| {
            println!("zstd is not installed: {} is read by us", stream.display());
            self.run(&format!("breakeven cat {}", stream.display()))
        });
        ok(&output);
        assert!(
            output.stdout == content,
            "{}: other bytes",
            stream.display()
        );
    }
}

/// Returns the lines of a page that a user types, from a heading to the next.
fn typed<'p>(page: &'p str, heading: &str) -> Vec<&'p str> {
    let (_, section) = page.split_once(heading).expect("the heading");
    let section = section.split("\n## ").next().expect("a section");
    let lines = section.lines();
    lines.filter_map(|line| line.strip_prefix("    ")).collect()
}

#[test]
fn what_the_guide_says_of_links_and_object_stores_holds() {
    let page = include_str!("../../../../docs/streams.md");
    let lines = typed(page, "## Over a link, and into an object store\n");
    let readme = include_str!("../../../../README.md");
    let (_, rest) = readme
        .split_once("`tar -c FOLDER |")
        .expect("the README's line");
    let (of_readme, _) = rest.split_once('`').expect("its end");
    let of_readme = format!("tar -c FOLDER |{of_readme}");
    assert!(lines.len() >= 4 && lines.iter().any(|line| line.contains("s3 cp")));
    for line in lines.iter().copied().chain([&*of_readme]) {
        let places = Places::new();
        ok(&places.run(line));
        if line.starts_with("ssh") {
            let back = fs::read(places.path("near/FILE")).expect("the file");
            assert!(back == places.data, "{line}");
            continue;
        }
        let archive = places.run("tar -c FOLDER");
        ok(&archive);
        places.check_stream(&places.path("far/FOLDER.tar.zst"), &archive.stdout);
    }
}

#[test]
fn a_far_end_that_fails_is_told_by_the_pipe() {
    let page = include_str!("../../../../docs/streams.md");
    assert!(page.contains("`set -o pipefail`"));
    for line in typed(page, "## Over a link, and into an object store\n") {
        let places = Places::new();
        fs::remove_dir_all(places.path("far")).expect("the folder");
        let output = places.run(line);
        assert_ne!(output.status.code(), Some(0), "{line}");
        assert_ne!(output.status.code(), None, "{line}: it hangs");
        let text = message(&output);
        assert!(!text.contains("panicked"), "{line}: {text}");
    }
}

#[test]
fn every_strategys_stream_goes_through_a_pipe_into_stock_zstd() {
    let places = Places::new();
    if places.run("zstd --version").status.code() == Some(127) {
        return println!("zstd is not installed: nothing tried with it");
    }
    let near = |name: &str| places.path(&format!("near/{name}"));
    let interleaved: Vec<u8> = (places.data.chunks(300_000).rev().flatten().copied()).collect();
    let numbers: Vec<u8> = (0..400_000_u32)
        .flat_map(|i| f64::from(i).sqrt().to_le_bytes())
        .collect();
    for (name, content) in [
        ("empty", Vec::new()),
        ("letter", b"x".to_vec()),
        ("block", places.data[..1 << 20].to_vec()),
        ("zeros", vec![0; 5 << 20]),
        ("noise", crate::noise(3 << 20)),
        ("numbers", numbers),
        ("interleaved", interleaved),
    ] {
        fs::write(near(name), content).expect("a file");
    }
    let mut tried = 0;
    for name in [
        "empty",
        "letter",
        "block",
        "zeros",
        "noise",
        "numbers",
        "interleaved",
    ] {
        for strategy in [
            "",
            "--link 1MB/s",
            "--link 100GB/s",
            "--strategy free --link 50MB/s",
            "--strategy within:1.5 --link 50MB/s",
            "--strategy smallest -T3",
            "--strategy money",
            "--strategy energy",
            "--deterministic",
            "--hint none",
            "--hint 0+100kB:none --hint 1MiB+1MiB:keep=900",
        ] {
            let line =
                format!("breakeven pack --mixed {strategy} < {name} | zstd -d | cmp - {name}");
            ok(&places.run(&line));
            let line = format!(
                "breakeven pack {strategy} -c {name} > p.zst && zstd -d < p.zst | cmp - {name} && zstd -lq p.zst"
            );
            ok(&places.run(&line));
            tried += 2;
        }
    }
    println!("{tried} streams");
    assert_eq!(tried, 154);
}

#[test]
fn other_programs_pack_by_us_and_we_read_theirs() {
    let places = Places::new();
    let mut tried = 0;
    for line in [
        "tar -I 'breakeven pack' -cf t.tar.zst FOLDER && tar -I 'breakeven pack' -xOf t.tar.zst | cmp - FILE",
        "tar -I 'breakeven pack' -cf t.tar.zst FOLDER && tar --zstd -xOf t.tar.zst | cmp - FILE",
        "tar --zstd -cf t.tar.zst FOLDER && tar -I 'breakeven pack' -xOf t.tar.zst | cmp - FILE",
        "zstd -qc FILE | breakeven cat | cmp - FILE",
        "lz4 -qc FILE | breakeven cat | cmp - FILE",
        "xz -1c FILE | breakeven cat | cmp - FILE",
    ] {
        let output = places.run(line);
        let text = message(&output);
        if text.contains("command not found") || text.contains("Cannot exec") {
            left_out(&format!("not tried: {line}"));
            continue;
        }
        ok(&output);
        tried += 1;
    }
    println!("{tried} lines");
    assert!(tried >= 1);
}
