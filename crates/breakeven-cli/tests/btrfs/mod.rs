//! The advice on btrfs, against the bytes that a btrfs of this kernel really stores under the printed setting.
//!
//! Needs root, loop devices and btrfs-progs; reports where they are missing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use breakeven::advise::report::{Report, SuggestionReport};
use tempfile::TempDir;

use super::{breakeven, noise};

/// Bytes of each file: 24 extents of 128 KiB.
const BYTES: usize = 3 << 20;
/// The most by which the size of a file may differ from the advice: the kernel's codec is another version.
const TOLERANCE: f64 = 0.05;

/// Twelve kinds of files, with those that the kernel's guess judges wrongly.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let random = noise(BYTES);
    let lines = |line: &dyn Fn(usize) -> String| -> Vec<u8> {
        let lines = (0..).flat_map(|number| line(number).into_bytes());
        lines.take(BYTES).collect()
    };
    let at = |number: usize| usize::from(random[number % BYTES]);
    let words = [
        "storage", "pays", "for", "itself", "where", "the", "core", "waits",
    ];
    let text = lines(&|number| format!("{} {} ", words[at(number) % 8], words[at(3 * number) % 8]));
    let half = |first: &[u8], second: &[u8]| [&first[..BYTES / 2], &second[..BYTES / 2]].concat();
    let extents = |even: &[u8], odd: &[u8]| -> Vec<u8> {
        let chunks = even.chunks(128 << 10).zip(odd.chunks(128 << 10));
        let chosen = chunks
            .enumerate()
            .map(|(number, (even, odd))| match number % 2 {
                0 => even,
                _ => odd,
            });
        chosen.flatten().copied().collect()
    };
    vec![
        ("text", text.clone()),
        (
            "log",
            lines(&|number| format!("{number:08} GET /item/{} 200\n", at(number))),
        ),
        (
            "json",
            lines(&|number| format!("{{\"id\":{number},\"value\":{}}}\n", at(number))),
        ),
        (
            "hexadecimal",
            lines(&|number| format!("{:02x}", at(number))),
        ),
        (
            "numbers",
            (0..BYTES as u32 / 4)
                .flat_map(|n| (n * 7).to_le_bytes())
                .collect(),
        ),
        ("noise", random.clone()),
        (
            "noise of six bits",
            random.iter().map(|byte| byte & 63).collect(),
        ),
        ("noise before text", half(&random, &text)),
        ("text before noise", half(&text, &random)),
        ("noise and text by turns", extents(&random, &text)),
        ("one byte", vec![b'x'; BYTES]),
        (
            "noise written twice",
            random
                .chunks(16 << 10)
                .flat_map(|chunk| [chunk, chunk].concat())
                .take(BYTES)
                .collect(),
        ),
    ]
}

/// A btrfs of its own, mounted with options.
struct Btrfs(TempDir);

impl Btrfs {
    fn new(options: &str) -> Option<Btrfs> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let file = fs::File::create(&image).expect("a file");
        file.set_len(256 << 20).expect("its length");
        let point = folder.path().join("mounted");
        fs::create_dir(&point).expect("a folder");
        let works = |command: &mut Command| command.status().is_ok_and(|of| of.success());
        let is_mounted = works(Command::new("mkfs.btrfs").arg("-q").arg(&image))
            && works(
                Command::new("mount")
                    .args(["-o", options])
                    .arg(&image)
                    .arg(&point),
            );
        is_mounted.then_some(Btrfs(folder))
    }

    fn point(&self) -> PathBuf {
        self.0.path().join("mounted")
    }

    /// Writes a file; returns the bytes of data that the file system allocated for it.
    fn stores(&self, bytes: &[u8]) -> u64 {
        let before = self.used("Data");
        fs::write(self.point().join("file"), bytes).expect("a file");
        let after = self.used("Data");
        fs::remove_file(self.point().join("file")).expect("removed");
        after - before
    }

    /// Writes files; returns the bytes of data and metadata allocated for them, beyond those of empty ones.
    fn stores_all(&self, files: &[Vec<u8>]) -> u64 {
        let used = || self.used("Data") + self.used("Metadata");
        let of_empty = {
            let before = used();
            self.write_all(files.iter().map(|_| [].as_slice()), "empty");
            used() - before
        };
        let before = used();
        self.write_all(files.iter().map(Vec::as_slice), "files");
        used() - before - of_empty
    }

    fn write_all<'b>(&self, files: impl Iterator<Item = &'b [u8]>, name: &str) {
        let folder = self.point().join(name);
        fs::create_dir(&folder).expect("a folder");
        for (number, bytes) in files.enumerate() {
            fs::write(folder.join(format!("{number}.txt")), bytes).expect("a file");
        }
    }

    /// Returns the bytes in use of data or of metadata, each counted once.
    fn used(&self, kind: &str) -> u64 {
        let call = |words: &[&str]| {
            let output = Command::new("btrfs").args(words).arg(self.point()).output();
            String::from_utf8(output.expect("btrfs starts").stdout).expect("text")
        };
        call(&["filesystem", "sync"]);
        let text = call(&["filesystem", "df", "-b"]);
        let line = text.lines().find(|line| line.starts_with(kind));
        let used = line.and_then(|line| line.split("used=").nth(1));
        used.and_then(|used| used.parse().ok())
            .expect("bytes in use")
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point()).status();
    }
}

/// The advice on btrfs for a file.
fn suggestion(file: &Path) -> SuggestionReport {
    let cache = tempfile::tempdir().expect("a folder");
    let mut command = breakeven(&cache);
    command.args([
        "advise",
        "--json",
        "--medium=nvme",
        "--prefer=space",
        "--time=60",
    ]);
    let output = command.arg("--methods=zstd:1,zstd:3").arg(file).output();
    let output = output.expect("the binary starts");
    assert!(output.status.success(), "{output:?}");
    let report: Report = serde_json::from_slice(&output.stdout).expect("a report");
    let mut found = report.suggestions.into_iter();
    found
        .find(|of| of.tool == "btrfs")
        .expect("a line for btrfs")
}

#[test]
fn btrfs_stores_what_its_line_says() {
    if std::env::var_os("BREAKEVEN_ROOT_TESTS").is_none() {
        println!("not asked for: nothing tried");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut tried = 0;
    for (kind, bytes) in kinds() {
        let file = folder.path().join(kind);
        fs::write(&file, &bytes).expect("a file");
        let said = suggestion(&file);
        let options = match said.answer.as_str() {
            "leave_off" => "loop,compress=no".to_string(),
            _ => {
                let line = &said.settings[0];
                let option = line
                    .split(',')
                    .nth(1)
                    .and_then(|rest| rest.split(' ').next());
                format!("loop,{}", option.expect("an option of mount"))
            }
        };
        let Some(btrfs) = Btrfs::new(&options) else {
            assert!(std::env::var_os("CI").is_none(), "no btrfs to try");
            println!("no btrfs here: nothing tried");
            return;
        };
        let found = bytes.len() as f64 / btrfs.stores(&bytes) as f64;
        let expected = match said.answer.as_str() {
            "leave_off" => 1.0,
            _ => said.ratio.mean,
        };
        println!("{kind}: {options} stores {found:.3}, said {expected:.3}");
        assert!(
            (found / expected - 1.0).abs() < TOLERANCE,
            "{kind}: {options} stores {found}, said {expected}"
        );
        tried += 1;
    }
    assert_eq!(tried, 12);
}

/// The most by which small files may differ from the advice: a leaf of metadata is seldom full.
const TOLERANCE_SMALL: f64 = 0.1;

/// Small files of all lengths around that of the longest one in the metadata, some of them named without an ending.
#[test]
fn btrfs_stores_small_files_as_its_line_says() {
    if std::env::var_os("BREAKEVEN_ROOT_TESTS").is_none() {
        println!("not asked for: nothing tried");
        return;
    }
    let (kinds, random) = (kinds(), noise(4096));
    let (text, json) = (&kinds[0].1, &kinds[2].1);
    let file = |number: usize| -> Vec<u8> {
        let bytes = 100 + 7919 * number % 6000;
        match number % 4 {
            0 => random[..bytes.min(random.len())].to_vec(),
            1 => text[number..number + bytes].to_vec(),
            _ => json[number..number + bytes].to_vec(),
        }
    };
    let files: Vec<Vec<u8>> = (0..3000).map(file).collect();
    let folder = tempfile::tempdir().expect("a folder");
    for (number, bytes) in files.iter().enumerate() {
        let ending = if number % 4 == 0 { "" } else { ".txt" };
        fs::write(folder.path().join(format!("{number}{ending}")), bytes).expect("a file");
    }
    let said = suggestion(folder.path());
    assert_eq!(said.answer, "compress", "{said:?}");
    let options = format!("loop,compress-force={}", said.method);
    let mounted = ["loop,compress=no", &options].map(Btrfs::new);
    let [Some(raw), Some(packed)] = mounted else {
        assert!(std::env::var_os("CI").is_none(), "no btrfs to try");
        println!("no btrfs here: nothing tried");
        return;
    };
    let [raw, packed] = [raw, packed].map(|it| it.stores_all(&files) as f64);
    let (found, expected) = (raw / packed, said.ratio.mean);
    println!("small files: {options} stores {found:.3}, said {expected:.3}");
    assert!(
        (found / expected - 1.0).abs() < TOLERANCE_SMALL,
        "{options} stores {found}, said {expected}"
    );
}
