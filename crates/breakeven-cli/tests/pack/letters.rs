//! The letters and words of zstd: each does the same here, or nothing, or is refused in a sentence that names our
//! option. Also the program under zstd's names. Cases of zstd's own tests of its command line are repeated here.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use super::{folder, message, names, ok};
use crate::noise;

/// The outcome of an option.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    /// Its output decodes to the file.
    Packs,
    /// It is refused, and the message names this instead.
    Names(&'static str),
    /// It prints something and succeeds.
    Prints(&'static str),
}

use Outcome::{Names, Packs, Prints};

/// Every option of `zstd --help` of version 1.5.7, as typed to pack a file.
const OPTIONS: [(&str, Outcome); 80] = [
    ("-o out", Packs),
    ("-S", Packs),
    ("-k", Packs),
    ("--keep", Packs),
    ("--rm", Packs),
    ("-1", Packs),
    ("-19", Packs),
    ("-19T0", Packs),
    ("-3T1", Packs),
    ("-0", Packs),
    ("-d", Names("no ending")),
    ("--decompress", Names("no ending")),
    ("-D dict", Names("breakeven vault")),
    ("-f", Packs),
    ("--force", Packs),
    ("-h", Prints("Usage")),
    ("-H", Prints("Usage")),
    ("--help", Prints("Usage")),
    ("-V", Prints("breakeven ")),
    ("--version", Prints("breakeven ")),
    ("-c", Packs),
    ("--stdout", Packs),
    ("-v", Packs),
    ("--verbose", Packs),
    ("-q", Packs),
    ("-qq", Packs),
    ("--quiet", Packs),
    ("--trace log", Names("--ledger")),
    ("--progress", Packs),
    ("--no-progress", Packs),
    ("-r", Packs),
    ("--filelist list", Packs),
    ("--output-dir-flat flat", Packs),
    ("--output-dir-mirror mirror", Packs),
    ("--asyncio", Packs),
    ("--no-asyncio", Packs),
    ("--check", Packs),
    ("--no-check", Packs),
    ("--ultra", Packs),
    ("--ultra -22", Packs),
    ("--fast", Packs),
    ("--fast=5", Packs),
    ("--adapt", Packs),
    ("--adapt=min=1,max=9", Packs),
    ("--long", Packs),
    ("--long=24", Packs),
    ("--patch-from=old", Names("breakeven vault")),
    ("-T2", Packs),
    ("--single-thread", Packs),
    ("--auto-threads=logical", Packs),
    ("-B1M", Packs),
    ("--rsyncable", Packs),
    ("--exclude-compressed", Packs),
    ("--stream-size=1000", Packs),
    ("--size-hint=1000", Packs),
    ("--target-compressed-block-size=1000", Packs),
    ("--no-dictID", Packs),
    ("--compress-literals", Packs),
    ("--no-compress-literals", Packs),
    ("--row-match-finder", Packs),
    ("--no-row-match-finder", Packs),
    ("--format=zstd", Packs),
    ("--format=gzip", Names("--mixed")),
    ("--format=xz", Names("--mixed")),
    ("--format=lzma", Names("--mixed")),
    ("--format=lz4", Names("--mixed")),
    ("-M128MB", Packs),
    ("--sparse", Packs),
    ("--no-sparse", Packs),
    ("--pass-through", Packs),
    ("--no-pass-through", Packs),
    ("--train", Names("breakeven vault")),
    ("--train-cover=k=1,d=8", Names("breakeven vault")),
    ("--train-fastcover", Names("breakeven vault")),
    ("--train-legacy=s=9", Names("breakeven vault")),
    ("--maxdict=1000", Names("breakeven vault")),
    ("--dictID=1", Names("breakeven vault")),
    ("-b3e5i1S", Names("breakeven advise")),
    ("--priority=rt", Names("nice")),
    ("--mmap-dict", Packs),
];

/// Options of reading, which need a stream.
const READ: [&str; 3] = ["-l", "--test", "-t"];

/// Puts links of zstd's names to the program into a folder of their own.
fn links() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["zstd", "zstdmt", "unzstd", "zstdcat", "zcat", "gzcat"] {
        let program = env!("CARGO_BIN_EXE_breakeven");
        symlink(program, folder.path().join(name)).expect("a link");
    }
    folder
}

/// Runs a line of a shell in a folder, with the program under zstd's names and its own.
pub(super) fn shell(folder: &TempDir, line: &str) -> Output {
    let links = links();
    let program = env!("CARGO_BIN_EXE_breakeven");
    symlink(program, links.path().join("breakeven")).expect("a link");
    let path = std::env::var("PATH").unwrap_or_default();
    Command::new("sh")
        .args(["-c", line])
        .env("PATH", format!("{}:{path}", links.path().display()))
        .env("BREAKEVEN_CACHE", folder.path())
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .expect("sh starts")
}

/// Returns the options in stock zstd's help, without their values; empty without stock zstd.
fn stock_options() -> BTreeSet<String> {
    let Ok(output) = Command::new("zstd").arg("--help").output() else {
        return BTreeSet::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("  -")) {
        for word in line.split_whitespace() {
            let word = word.trim_end_matches(',');
            let end = word.find(['=', '#']).unwrap_or(word.len());
            match word[..end].strip_prefix("--[no-]") {
                Some(name) => found.extend([format!("--{name}"), format!("--no-{name}")]),
                None if word.starts_with('-') => {
                    found.insert(word[..end].trim_end_matches('[').to_string());
                }
                None => break,
            }
        }
    }
    found
}

#[test]
fn every_option_of_zstd_does_it_or_says_what_does() {
    let typed: BTreeSet<String> = (OPTIONS.iter().map(|it| it.0))
        .chain(READ)
        .map(|text| {
            let word = text.split([' ', '=']).next().unwrap_or_default();
            match word.starts_with("--") {
                true => word.to_string(),
                false => word[..2].to_string(),
            }
        })
        .collect();
    let known = |option: &String| {
        let is_level = option == "-" || option == "--";
        let is_bench = ["-e", "-i"].contains(&option.as_str());
        is_level || is_bench || typed.contains(option)
    };
    let missing: Vec<String> = stock_options()
        .into_iter()
        .filter(|it| !known(it))
        .collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    for (option, outcome) in OPTIONS {
        let (folder, data) = folder();
        let path = |name: &str| folder.path().join(name);
        let small = &data[..1000];
        fs::write(path("file"), small).expect("a file");
        fs::write(path("list"), "other\n").expect("a list");
        fs::write(path("other"), "another").expect("a file");
        fs::write(path("dict"), "dictionary").expect("a file");
        let output = shell(&folder, &format!("breakeven pack {option} file"));
        let (text, printed) = (message(&output), String::from_utf8_lossy(&output.stdout));
        match outcome {
            Packs => {
                ok(&output);
                let made = ["file.zst", "out", "flat/file.zst", "mirror/file.zst"];
                let made = made.iter().map(|name| path(name)).find(|it| it.exists());
                if let Some(made) = &made {
                    fs::copy(made, path("made")).expect("the stream");
                } else {
                    fs::write(path("made"), &output.stdout).expect("the stream");
                }
                let back = shell(&folder, "breakeven cat made");
                assert!(back.stdout == small, "{option}: {text}");
                assert_eq!(path("file").exists(), option != "--rm", "{option}");
            }
            Names(instead) => {
                assert_ne!(output.status.code(), Some(0), "{option}: {text}");
                assert!(text.contains(instead), "{option}: {text}");
                assert!(!path("file.zst").exists(), "{option}");
            }
            Prints(word) => {
                ok(&output);
                assert!(printed.contains(word), "{option}: {printed}");
            }
        }
    }
    println!("{} options", OPTIONS.len());
}

/// Runs lines that succeed, and compares the output of the last.
fn check(folder: &TempDir, lines: &str, expected: &[u8]) {
    let output = shell(folder, &format!("set -e\n{lines}"));
    assert_eq!(
        output.status.code(),
        Some(0),
        "{lines}: {}",
        message(&output)
    );
    assert!(
        output.stdout == expected,
        "{lines}: {} bytes",
        output.stdout.len()
    );
}

/// The user did not name the target of a link: the target always stays, and the link is replaced.
#[test]
fn an_output_is_never_written_through_a_link_to_a_file() {
    let (folder, data) = folder();
    for (lines, expected) in [
        (
            "echo precious >t; ln -s t file.zst; zstd -qf file; cat t",
            &b"precious\n"[..],
        ),
        ("test ! -L file.zst; zstdcat file.zst", &data),
        (
            "rm file; ln -s t file; zstd -qdf file.zst; cat t",
            b"precious\n",
        ),
        ("test ! -L file; cat file", &data),
        (
            "ln -s t out; zstd -qf file -o out; cat t; test ! -L out",
            b"precious\n",
        ),
        (
            "ln -s t out2; breakeven pack -qf file -o out2; cat t; test ! -L out2",
            b"precious\n",
        ),
        // A link that leads to nothing yet is followed, and so is a link to a device.
        (
            "ln -s new out3; zstd -qf file -o out3; test -L out3; zstdcat new",
            &data,
        ),
        (
            "ln -s /dev/null out4; zstd -qf file -o out4; test -L out4",
            b"",
        ),
    ] {
        check(&folder, lines, expected);
    }
}

/// From its tests playTests.sh: file removal, and standard output beside a named one.
#[test]
fn the_last_output_counts_and_a_source_goes_only_for_a_copy() {
    let (folder, data) = folder();
    for lines in [
        "zstd -q file -c >a -o b; test ! -s a; zstd -dc b",
        "zstd -q file -o c -c >d; test ! -e c; zstd -dc d",
        "zstd -q file -o e -o f; test ! -e e; zstd -dc f",
        "cp file g; zstd -q --rm g -c >a -o h; test ! -s a -a ! -e g; zstd -dc h",
        "cp file g; zstd -q --rm g -o i -c >j; test -e g -a ! -e i; zstd -dc j",
        "cp file -- --stdout; zstd -q --rm -- --stdout; test ! -e ./--stdout; zstd -dc ./--stdout.zst",
        "zstd -qf file; zstd -tq --rm file.zst; zstd -t --rm file.zst file.zst; zstd -dc file.zst",
    ] {
        check(&folder, lines, &data);
    }
}

/// From its tests decompression/pass-through: text and streams side by side, of any length, and by every name.
#[test]
fn text_is_passed_through_beside_streams() {
    let (folder, _) = folder();
    let setup = "echo >1; echo 2 >2; echo 23 >3; echo 234 >4; echo some data >f; zstd -q f";
    let some = |count: usize| "some data\n".repeat(count).into_bytes();
    check(&folder, setup, b"");
    let short = "zstd -dc --pass-through 1 2 3 4";
    check(&folder, short, b"\n2\n23\n234\n");
    check(&folder, "gzip -kf f; zcat f.gz | cmp - f", b"");
    for (line, count) in [
        ("zstdcat f f.zst", 2),
        ("zcat f.zst f", 2),
        ("gzcat f", 1),
        ("zstd -dcf f f.zst", 2),
        ("zstd -df <f", 1),
        ("zstd -dcf <f f.zst -", 2),
        ("zstd -dcf <f.zst f -", 2),
    ] {
        check(&folder, line, &some(count));
    }
    for line in [
        "zstdcat --no-pass-through f",
        "zcat --no-pass-through f",
        "zstd -d f -o g",
        "zstd -d <f",
        "zstd --no-pass-through -dcf f",
        "zstd --no-pass-through -df <f",
    ] {
        let output = shell(&folder, line);
        let text = message(&output);
        assert_eq!(output.status.code(), Some(1), "{line}: {text}");
        assert!(output.stdout.is_empty(), "{line}");
    }
    // From playTests.sh: senseless bounds.
    for bounds in ["min=1,maxx=2", "min=10,max=9", "min="] {
        let output = shell(&folder, &format!("zstd -f --adapt={bounds} f"));
        assert_eq!(output.status.code(), Some(1), "{bounds}");
    }
}

/// Data that zstd's own program decodes is never passed through as if it were text.
#[test]
fn what_is_compressed_in_another_way_is_refused_and_not_passed_through() {
    let (folder, _) = folder();
    for (bytes, word) in [
        (r"\047\265\057\375 and more", "before version 0.8"),
        (r"\002\041\114\030 and more", "LZ4 legacy"),
        (r"\135\000\000\200\000\377 and more", ".lzma"),
        (r"\037\235\220 and more", "`gzip -d` and `uncompress`"),
    ] {
        for line in [
            "zstdcat odd",
            "zcat odd",
            "zstd -dcf odd",
            "breakeven cat -f odd",
        ] {
            let output = shell(&folder, &format!("printf '{bytes}' >odd; {line}"));
            assert_eq!(
                output.status.code(),
                Some(1),
                "{line}: {}",
                message(&output)
            );
            assert!(output.stdout.is_empty(), "{line}");
            assert!(
                message(&output).contains(word),
                "{line}: {}",
                message(&output)
            );
        }
    }
}

/// zstd -qq leaves the exit code to speak, and a reader finds the format out, whatever it is told.
#[test]
fn two_q_silence_errors_and_a_reader_takes_any_format() {
    let (folder, data) = folder();
    for (line, says) in [
        ("zstd -q -t file", true),
        ("zstd -qq -t file", false),
        ("zstd -q --quiet nothing", false),
        ("unzstd -qq file.zst", false),
        ("zcat -qq nothing nowhere", false),
    ] {
        let output = shell(&folder, line);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert_eq!(
            !output.stderr.is_empty(),
            says,
            "{line}: {}",
            message(&output)
        );
    }
    for line in [
        "gzip -k file; zstd -dc --format=gzip file.gz",
        "zstd -q file; unzstd -c --format=gzip file.zst",
        "zstd -qqfP50 file; zstdcat file.zst",
    ] {
        check(&folder, line, &data);
    }
    let output = shell(&folder, "zstd -c --format=gzip file");
    assert_eq!(output.status.code(), Some(1));
    assert!(message(&output).contains("--mixed"));
}

/// A number of threads above the possible one means the possible one. A redirected file gives its copy neither mode nor
/// times.
#[test]
fn many_threads_and_redirected_files_are_taken_as_by_zstd() {
    let (folder, data) = folder();
    for (lines, expected) in [
        ("zstd -q -T300 -c file | zstd -dc", &data[..]),
        ("ZSTD_NBTHREADS=5000 zstd -q -c file | zstd -dc", &data),
        (
            "chmod 751 file; touch -d @1000000000 file; zstd -q <file -o out; stat -c %a out",
            b"644\n",
        ),
        ("test out -nt file; zstdcat out", &data),
    ] {
        check(&folder, &format!("umask 022; {lines}"), expected);
    }
}

#[test]
fn by_zstds_names_it_takes_its_place() {
    let (folder, data) = folder();
    let path = |name: &str| folder.path().join(name);
    for (lines, expected) in [
        // From its tests zstd-symlinks/zstdcat, compression/basic, multi-threaded, levels, format.
        ("zstd -q file; zstdcat file.zst", &data[..]),
        ("zstdcat file", &data),
        ("zstd -qf file; zstd -dc file.zst", &data),
        ("zstd -c file | unzstd", &data),
        ("cat file | zstd -T0 -19 | zstd -dc", &data),
        ("zstd -q <file >out; zstd -d <out", &data),
        (
            "zstd -q --rm -f file; test ! -e file; unzstd -q --rm file.zst; cat file",
            &data,
        ),
        ("zstd -q -f --rm -c file >out; cat file", &data),
        (
            "zstdmt -qf --fast=3 --format=zstd file -o out; zstd -t out 2>/dev/null; unzstd -c out",
            &data,
        ),
        (
            "ZSTD_CLEVEL=1 zstd -qf --long=31 -B2MB --rsyncable file; zstd -dc --memory=2GiB file.zst",
            &data,
        ),
        (
            "zstd -qf --no-check --ultra -20 file; zstd -dc file.zst",
            &data,
        ),
        ("zstd -qf --adapt file; zstd -dcf file.zst", &data),
        ("zstd -cdf file", &data),
    ] {
        check(&folder, lines, expected);
    }
    // One frame that states its length where that is known, for readers that stop after the first.
    let frames = |line: &str| {
        let output = shell(&folder, line);
        ok(&output);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        found["files"][0].clone()
    };
    for line in [
        "zstd -qf file",
        "zstd -c file >file.zst",
        "cat file | zstd --stream-size=3640000 >file.zst",
    ] {
        let bytes = data.len().to_string();
        let line = line.replace("3640000", &bytes);
        let found = frames(&format!("{line}; breakeven info --json file.zst"));
        assert_eq!(found["frames"]["zstd"], 1, "{line}");
        assert_eq!(found["raw_bytes"], data.len(), "{line}");
    }
    let found = frames("cat file | zstd >out; breakeven info --json out");
    assert_eq!(found["frames"]["zstd"], 1);
    // A failure is 1, as scripts of zstd expect.
    for line in [
        "zstd --no-such file",
        "zstd -D dict file",
        "zstd missing",
        "zstd -d file -o out2",
    ] {
        let output = shell(&folder, line);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{line}: {}",
            message(&output)
        );
    }
    assert!(!path("out2").exists());
}

#[test]
fn several_files_become_one_and_zstds_variables_count() {
    let (folder, data) = folder();
    let path = |name: &str| folder.path().join(name);
    let (twice, thrice) = (data.repeat(2), data.repeat(3));
    for (lines, expected) in [
        ("zstd -qf file file -o out; zstd -dc out", &twice),
        (
            "cp file g; zstd -qf file g; zstd -dqf file.zst g.zst file.zst -o out; cat out",
            &thrice,
        ),
        ("zstd -qf file - <file -o out; zstdcat out", &twice),
        (
            "zstd -qf --rm file file -o out; test -e file; zstd -dc out",
            &twice,
        ),
        (
            "ZSTD_CLEVEL=19 zstd -qf file; zstd -qf -19 file -o out; cmp file.zst out; zstd -dc out",
            &data,
        ),
        (
            "ZSTD_CLEVEL=nine ZSTD_NBTHREADS=-1 zstd -qf file 2>said; grep -q ZSTD_NBTHREADS said; zstd -dc file.zst",
            &data,
        ),
        ("ZSTD_NBTHREADS=1 zstd -qf file; zstd -dc file.zst", &data),
    ] {
        check(&folder, lines, expected);
    }
    for (line, said) in [
        ("zstd file file -o none", "-f writes them"),
        ("zstd -qf file missing -o none", "missing"),
        ("zstd -qf file none -o none", "none"),
        ("cp file g; zstd -qf file g -o g", "is the input"),
        ("zstd -qf file; zstd -dqf file.zst file -o none", "file"),
    ] {
        let output = shell(&folder, line);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{line}: {}",
            message(&output)
        );
        assert!(
            message(&output).contains(said),
            "{line}: {}",
            message(&output)
        );
        assert!(!path("none").exists(), "{line}");
    }
    assert_eq!(fs::read(path("g")).expect("it stays"), data);
}

#[test]
fn folders_and_lists_are_taken_as_zstd_takes_them() {
    let (folder, _) = folder();
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str| {
        fs::create_dir_all(path(name).parent().expect("a folder")).expect("a folder");
        fs::write(path(name), noise(300)).expect("a file");
    };
    // From its tests basic/output_dir, file-handling/directory-mirror, compression/multiple-files.
    for name in ["d/a", "d/e/b", "d/e/f/c", "d/photo.jpg", "x"] {
        write(name);
    }
    let made = |below: &str| -> Vec<String> {
        let output = shell(
            &folder,
            &format!("find {below} -name '*.zst' | sort; rm -rf out"),
        );
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_string)
            .collect()
    };
    check(&folder, "zstd -q -r d --output-dir-flat out", b"");
    assert_eq!(
        made("out"),
        ["out/a.zst", "out/b.zst", "out/c.zst", "out/photo.jpg.zst"]
    );
    check(
        &folder,
        "zstd -q -r --exclude-compressed d x --output-dir-mirror out",
        b"",
    );
    assert_eq!(
        made("out"),
        [
            "out/d/a.zst",
            "out/d/e/b.zst",
            "out/d/e/f/c.zst",
            "out/x.zst"
        ]
    );
    check(
        &folder,
        "printf 'd/a\\nx\\n' >list; zstd -q --filelist=list --output-dir-flat=out",
        b"",
    );
    assert_eq!(made("out"), ["out/a.zst", "out/x.zst"]);
    check(
        &folder,
        "zstd -q -r --rm d; zstd -q -d -r --rm d; ls d/e/f",
        b"c\n",
    );
    let output = shell(&folder, "zstd -q d");
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    let output = shell(
        &folder,
        "cd d && breakeven pack -q ../x --output-dir-mirror out",
    );
    assert_eq!(output.status.code(), Some(2), "{}", message(&output));
}

/// From its tests file-handling/recursive-symlink-cycle, and its warnings.
#[test]
fn links_in_folders_are_followed_when_forced_and_told_otherwise() {
    let (folder, _) = folder();
    let setup = "rm -rf top real; mkdir -p top/inner real; echo 1 >top/inner/a; echo 2 >real/b; ln -s . top/self; ln -s ../real top/link; \
        ln -s inner/a top/l; ln -s nothing top/broken; mkfifo top/pipe";
    let check_tree = |line: &str, expected: &str, said: &[&str]| {
        let output = shell(
            &folder,
            &format!("{setup}; {line} && find top real -name '*.zst' | sort | tr '\\n' ' '"),
        );
        ok(&output);
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), expected);
        let text = message(&output);
        let passed_over = text.lines().filter(|it| it.contains("passed over"));
        let mut passed_over: Vec<&str> = passed_over
            .map(|it| it.trim_start_matches("breakeven: "))
            .collect();
        passed_over.sort_unstable();
        assert_eq!(passed_over, said, "{line}: {text}");
    };
    check_tree(
        "zstd -r top",
        "top/inner/a.zst",
        &[
            "top/broken is a symbolic link, passed over",
            "top/l is a symbolic link, passed over",
            "top/link is a symbolic link, passed over",
            "top/pipe is no file, passed over",
            "top/self is a symbolic link, passed over",
        ],
    );
    check_tree(
        "zstd -r -f top",
        "real/b.zst top/inner/a.zst top/l.zst",
        &[
            "top/broken is a link to nothing, passed over",
            "top/pipe is no file, passed over",
            "top/self is a folder that was gathered already, passed over",
        ],
    );
    check_tree("zstd -q -r top", "top/inner/a.zst", &[]);
}

/// From its tests compression/levels, determinism/multithread and determinism/reuse.
#[test]
fn levels_and_bytes_are_ordered_as_zstd_has_them() {
    let (folder, data) = folder();
    for lines in [
        "zstd -qf -99 file -o out; zstd -qf -19 file; cmp out file.zst",
        "zstd -qf -300 file -o out; zstd -qf -19 file; cmp out file.zst",
        "ZSTD_CLEVEL=10 zstd -qf --fast=1 file -o out; zstd -qf --fast file; cmp out file.zst",
        "for level in 1 3 7; do zstd -qf -T2 -$level file -o out; zstd -qf -T4 -$level file; cmp out file.zst; done",
        "head -c 1000 file >short; : >none; zstd -qf -5 short none file; for it in file none short; do zstd -qf -5 $it -o out; \
            cmp out $it.zst; done",
        "awk 'BEGIN { srand(3); for (i = 0; i < 60000; i++) printf \"%d \", exp(9 * rand()) }' >words; \
            set -- $(for it in --fast=5 --fast=1 -1 -19; do zstd -qc $it words | wc -c; done); test $1 -gt $2 -a $2 -gt $3 -a $3 -gt $4",
    ] {
        check(
            &folder,
            &format!("set -e; {lines}; zstd -dc file.zst"),
            &data,
        );
    }
    for line in [
        "zstd -qf -5000000000 file",
        "zstd -qf --fast=5000000000 file",
    ] {
        let output = shell(&folder, line);
        assert_eq!(
            output.status.code(),
            Some(1),
            "{line}: {}",
            message(&output)
        );
    }
}

#[test]
fn what_it_lists_of_a_stream_is_what_info_says() {
    let (folder, data) = folder();
    fs::write(folder.path().join("x"), noise(300)).expect("a file");
    let output = shell(
        &folder,
        "zstd -qf x; zstd -l x.zst; breakeven pack -l x.zst; rm x.zst",
    );
    ok(&output);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout)
            .matches("x.zst")
            .count(),
        2
    );
    assert!(!names(folder.path()).contains(&"x.zst".to_string()));
    // Scripts read the length between brackets.
    let output = shell(
        &folder,
        "zstd -qf file; cat file.zst file.zst >two; zstd -lv two",
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "two",
        "# Zstandard Frames: 2",
        &format!("({} B)", 2 * data.len()),
    ] {
        assert!(text.lines().any(|it| it.ends_with(line)), "{line}: {text}");
    }
}

#[test]
fn windows_holes_and_errors_are_as_zstd_has_them() {
    let (folder, data) = folder();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    // From its tests basic/memlimit, compression/long-distance-matcher, decompression/detectErrors, pass-through.
    let zeros = File::create(path("zeros")).expect("a file");
    zeros.set_len(300 << 20).expect("a length");
    check(&folder, "zstd -q --long=29 zeros; rm zeros", b"");
    for (line, code) in [
        ("zstd -t zeros.zst", 1),
        ("zstd -t -M512MB zeros.zst", 0),
        ("zstd -t --memory=512MiB zeros.zst", 0),
        ("zstd -t --long=29 zeros.zst", 0),
        ("breakeven pack -t --long=29 zeros.zst", 0),
        ("breakeven unpack -t --memlimit=100K zeros.zst", 1),
    ] {
        let output = shell(&folder, line);
        let text = message(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {text}");
        assert_eq!(
            text.contains("--long=31 or -M2GiB"),
            code == 1,
            "{line}: {text}"
        );
    }
    let blocks = |path: &Path| {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(path).expect("the file").blocks()
    };
    check(
        &folder,
        "head -c 4194304 /dev/zero >z; zstd -q --rm z; zstd -qd --no-sparse z.zst",
        b"",
    );
    assert!(blocks(&path("z")) >= 8192);
    check(&folder, "zstd -qdf --sparse z.zst", b"");
    assert!(blocks(&path("z")) < 8192);
    check(&folder, "zstd -d --pass-through -c file", &data);
    check(
        &folder,
        "zstd -qd --pass-through file -o copy; cat copy",
        &data,
    );
    let output = shell(&folder, "zstd -dcf --no-pass-through file");
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    check(&folder, "zstd -qf file", b"");
    let stream = fs::read(path("file.zst")).expect("the stream");
    for cut in [1, 10, stream.len() - 1] {
        fs::write(path("cut.zst"), &stream[..cut]).expect("a file");
        let output = shell(&folder, "zstd -t cut.zst");
        assert_eq!(output.status.code(), Some(1), "{cut}: {}", message(&output));
    }
}

/// A transfer that brought nothing is no success.
#[test]
fn empty_sources_are_errors_where_zstd_has_them_so() {
    let (folder, _) = folder();
    for (line, code) in [
        ("zstdcat </dev/null", 1),
        (": >e; zstdcat e", 1),
        ("zcat e", 1),
        ("zstd -dc e", 1),
        // gzip's zcat takes an empty log among others.
        ("zcat -f e", 0),
        ("breakeven cat -f e", 0),
    ] {
        let output = shell(&folder, &format!(": >e; {line}"));
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}: {}",
            message(&output)
        );
    }
}

#[test]
fn names_are_what_was_typed() {
    let (folder, _) = folder();
    // A carriage return belongs to the name.
    let lists = "printf 1 >a; printf 22 >\"$(printf 'a\\r')\"; printf 'a\\r\\n' >list; \
         zstd -q --rm --filelist list && cat a && zstdcat \"$(printf 'a\\r').zst\"";
    check(&folder, lists, b"122");
    // Of two files of one name one would be lost.
    let flat = "mkdir o x y; echo one >x/s; echo two >y/s; \
         breakeven pack -f --rm --output-dir-flat o x/s y/s || echo $?; cat x/s y/s; ls o";
    check(&folder, flat, b"1\none\ntwo\n");
    let output = shell(&folder, "zstd -f --output-dir-flat o x/s y/s");
    ok(&output);
    assert!(
        message(&output).contains("would be one file"),
        "{}",
        message(&output)
    );
    // A device gives its name to no file.
    let output = shell(&folder, "ln -s /dev/null null; zstd -q null");
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    assert!(message(&output).contains("device"), "{}", message(&output));
    check(&folder, "zstd -qc null | zstdcat; ls null*", b"null\n");
}
