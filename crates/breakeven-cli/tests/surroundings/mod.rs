//! Commands in hostile surroundings: killed at any call, on file systems that refuse, with streams that are closed,
//! full or unread.

#[cfg(feature = "mount")]
mod flawed;
mod grounds;
mod matrix;
mod names;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use breakeven::testing::{is_full, seed};
use tempfile::TempDir;

use crate::noise;
use crate::page::left_out;

/// SIGKILL, as a shell reports it.
const KILLED: i32 = 128 + 9;
/// The code of the meddling program where the system does not allow it.
const NO_MEDDLING: i32 = 125;
const DEADLINE_SECONDS: &str = "300";
const EDQUOT: &str = "122";
const EIO: &str = "5";
const EINVAL: &str = "22";

/// Builds `meddle.c` once; `None` where the system does not allow meddling with calls.
fn meddle() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("meddle");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/surroundings/meddle.c");
        // Another run of the tests may be using the present one.
        let made = program.with_extension(std::process::id().to_string());
        let built = Command::new("cc")
            .args(["-Wall", "-Werror", "-O1", "-o"])
            .args([&made, &source])
            .status();
        assert!(built.expect("cc starts").success(), "meddle.c");
        fs::rename(&made, &program).expect("a program");
        let tried = Command::new(&program).args(["/", "--", "true"]).output();
        let code = tried.expect("it starts").status.code();
        if code == Some(NO_MEDDLING) {
            left_out("the system hands over no calls: no command was killed or refused");
            return None;
        }
        assert_eq!(code, Some(0));
        Some(program)
    };
    BUILT.get_or_init(build).as_deref()
}

/// A folder with something of each kind, and the means to make it again.
struct Place(TempDir);

impl Place {
    fn new() -> Place {
        let place = Place(tempfile::tempdir().expect("a temporary folder"));
        let mut data = b"what is saved must be more than what is spent\n".repeat(9_000);
        data.extend(noise(200_000));
        fs::write(place.at("file"), &data).expect("a file");
        // An image of whole blocks.
        data.resize(data.len().next_multiple_of(4096), 0);
        fs::write(place.at("image"), data).expect("a file");
        fs::create_dir(place.at("cache")).expect("a folder");
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/example.json");
        fs::copy(example, place.at("report.json")).expect("a report");
        for line in ["pack -q file -o packed", "disk import disk image"] {
            let output = place.run(line);
            assert_eq!(output.status.code(), Some(0), "{line}: {}", said(&output));
        }
        place
    }

    /// Adds a plain database and one of ours; false without stock SQLite.
    fn add_databases(&self) -> bool {
        let rows = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT);\
            WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900)\
            INSERT INTO t SELECT i, 'row ' || i || ' of many that are much alike' FROM n;";
        let made = Command::new("sqlite3")
            .arg(self.at("plain"))
            .arg(rows)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            left_out("sqlite3 is not installed: no database was made");
            return false;
        }
        let output = self.run("db import plain database");
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        true
    }

    /// Adds a vault of a tree.
    fn add_vault(&self) {
        fs::write(self.at("password"), "a password\n").expect("a file");
        fs::create_dir(self.at("tree")).expect("a folder");
        fs::write(self.at("tree/noise"), noise(100_000)).expect("a file");
        for line in ["init", "add tree"] {
            let output = self.run(&format!("vault -r store -p password {line}"));
            assert_eq!(output.status.code(), Some(0), "{line}: {}", said(&output));
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A program with the words of a line, in this folder.
    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--signal=KILL", DEADLINE_SECONDS])
            .arg(program)
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .env("BREAKEVEN_CACHE", self.at("cache"))
            .env("XDG_STATE_HOME", self.at("state"))
            .stdin(Stdio::null());
        command
    }

    fn breakeven(&self, line: &str) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_breakeven")), line)
    }

    fn run(&self, line: &str) -> Output {
        self.breakeven(line).output().expect("the program starts")
    }

    /// The same, meddled with by rules.
    fn meddled(&self, meddle: &Path, rules: &str, line: &str) -> Command {
        let (folder, program) = (self.0.path().display(), env!("CARGO_BIN_EXE_breakeven"));
        self.command(meddle, &format!("{folder} {rules} -- {program} {line}"))
    }

    /// The names in the folder, sorted.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).expect("a folder");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A command that makes a file, and the test of whether the file is whole.
struct Making {
    line: &'static str,
    /// The file that it makes, or makes again.
    made: &'static str,
    /// A line that makes `back` from it, which equals this file, byte by byte.
    proof: Option<(&'static str, &'static str)>,
}

const fn making(
    line: &'static str,
    made: &'static str,
    proof: Option<(&'static str, &'static str)>,
) -> Making {
    Making { line, made, proof }
}

/// Without a proof, the result is compared with that of the undisturbed command.
const MAKINGS: [Making; 9] = [
    making(
        "pack -q file -o new",
        "new",
        Some(("unpack -q new -o back", "file")),
    ),
    making(
        "pack -q -f file -o packed",
        "packed",
        Some(("unpack -q packed -o back", "file")),
    ),
    making("unpack -q packed -o new", "new", None),
    making(
        "repack -q --keep 9 packed",
        "packed",
        Some(("unpack -q packed -o back", "file")),
    ),
    making(
        "disk create new --size 4MiB",
        "new",
        Some(("disk export new back", "zeros")),
    ),
    making(
        "disk import new image",
        "new",
        Some(("disk export new back", "image")),
    ),
    making("disk export disk new", "new", None),
    making(
        "disk compact disk",
        "disk",
        Some(("disk export disk back", "image")),
    ),
    making("report report.json -o new", "new", None),
];

/// The same for databases.
const DATABASES: [Making; 4] = [
    making("db create new", "new", Some(("db fsck new", ""))),
    making(
        "db import plain new",
        "new",
        Some(("db export new back", "plain")),
    ),
    making("db export database new", "new", None),
    making(
        "db compact database",
        "database",
        Some(("db export database back", "plain")),
    ),
];

/// Proves the remains of a killed command: nothing, or all of it.
fn check_whole(place: &Place, making: &Making, whole: &[u8], how: &str) {
    let made = place.at(making.made);
    match making.proof {
        _ if !made.exists() => {}
        None => assert!(
            fs::read(&made).expect("a file") == whole,
            "{how}: {} is not whole",
            making.made
        ),
        Some((line, alike)) => {
            let output = place.run(line);
            assert_eq!(output.status.code(), Some(0), "{how}: {}", said(&output));
            let Ok(back) = fs::read(place.at("back")) else {
                assert_eq!(alike, "", "{how}");
                return;
            };
            let expected = match alike {
                "zeros" => vec![0; 4 << 20],
                name => fs::read(place.at(name)).expect("a file"),
            };
            assert!(back == expected, "{how}: {} has other bytes", making.made);
            fs::remove_file(place.at("back")).expect("a file");
        }
    }
    for entry in fs::read_dir(place.at("cache")).expect("a folder") {
        let path = entry.expect("an entry").path();
        let is_profile = path.extension().is_some_and(|ending| ending == "json");
        let text = fs::read(&path).expect("a file");
        let is_whole = serde_json::from_slice::<serde_json::Value>(&text).is_ok();
        assert!(!is_profile || is_whole, "{how}: {}", path.display());
    }
}

/// Kills a command at some of its calls, and lets the next one clean up; returns how often it was killed.
fn kill_at_calls(place: &Place, meddle: &Path, making: &Making, random: &mut fastrand::Rng) -> u32 {
    let made = place.at(making.made);
    // A file that is made again is there before, and stays; a new file is removed for the next time.
    let old = fs::read(&made).ok();
    let restore = || match &old {
        Some(old) => fs::write(&made, old).expect("room"),
        None => drop(fs::remove_file(&made)),
    };
    let before = place.names();
    let output = place.meddled(meddle, "", making.line).output();
    let output = output.expect("it starts");
    let told = said(&output);
    assert_eq!(output.status.code(), Some(0), "{}: {told}", making.line);
    let calls = told.lines().find_map(|line| {
        let count = line.strip_prefix("meddle: ")?.strip_suffix(" calls")?;
        count.parse::<u32>().ok()
    });
    let calls = calls.expect("a count");
    let whole = fs::read(&made).expect("what is made");
    restore();
    let (points, mut killed) = (if is_full() { calls } else { 8 }, 0);
    for point in 0..points {
        let call = match is_full() {
            true => point + 1,
            // The last calls give the file its name.
            false if point < 3 => calls.saturating_sub(point).max(1),
            false => random.u32(1..=calls),
        };
        let how = format!("{} killed at call {call} of {calls}", making.line);
        let output = place
            .meddled(meddle, &format!("kill={call}"), making.line)
            .output()
            .expect("it starts");
        // Threads may make fewer calls this time.
        let code = output.status.code();
        assert!(matches!(code, Some(0 | KILLED)), "{how}: {}", said(&output));
        killed += u32::from(code == Some(KILLED));
        check_whole(place, making, &whole, &how);
        restore();
        let output = place.run(making.line);
        assert_eq!(output.status.code(), Some(0), "{how}: {}", said(&output));
        check_whole(place, making, &whole, &how);
        restore();
        assert_eq!(place.names(), before, "{how}: something is left");
    }
    killed
}

#[test]
fn a_killed_command_leaves_nothing_or_all_of_what_it_makes() {
    let Some(meddle) = meddle() else {
        return;
    };
    let place = Place::new();
    let has_databases = place.add_databases();
    let seed = seed(2014);
    let mut random = fastrand::Rng::with_seed(seed);
    let databases = DATABASES.iter().filter(|_| has_databases);
    let mut killed = 0;
    for making in MAKINGS.iter().chain(databases) {
        killed += kill_at_calls(&place, meddle, making, &mut random);
    }
    println!("{killed} commands were killed");
    assert!(killed >= 50, "only {killed}");
}

/// File systems of networks and of processes may sync no folder.
#[test]
fn a_folder_that_cannot_be_synced_is_no_failure() {
    let Some(meddle) = meddle() else {
        return;
    };
    let place = Place::new();
    let has_databases = place.add_databases();
    place.add_vault();
    let rule = format!("sync-folder={EINVAL}");
    let made = |line: &str| {
        let output = place.meddled(meddle, &rule, line).output();
        let output = output.expect("it starts");
        assert_eq!(output.status.code(), Some(0), "{line}: {}", said(&output));
    };
    let databases = DATABASES.iter().filter(|_| has_databases);
    for making in MAKINGS.iter().chain(databases) {
        let old = fs::read(place.at(making.made)).ok();
        let output = place.run(making.line);
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let whole = fs::read(place.at(making.made)).expect("what is made");
        let restore = || match &old {
            Some(old) => fs::write(place.at(making.made), old).expect("room"),
            None => fs::remove_file(place.at(making.made)).expect("a file"),
        };
        restore();
        made(making.line);
        check_whole(&place, making, &whole, making.line);
        restore();
    }
    for line in ["init", "add tree", "add tree", "forget --keep-last 1", "gc"] {
        made(&format!("vault -r other -p password {line}"));
    }
}

/// Each line writes to a file: standard output unless the line names another.
const WRITING: [(&str, &str); 11] = [
    ("pack -q file -o new", "new"),
    ("unpack -q packed -o new", "new"),
    ("repack -q --keep 9 packed -o new", "new"),
    ("disk export disk new", "new"),
    ("report report.json -o new", "new"),
    ("pack -q -c file", "standard output"),
    ("cat packed", "standard output"),
    ("repack -q --keep 9 packed -o -", "standard output"),
    ("info --json packed", "standard output"),
    ("disk info disk", "standard output"),
    ("man", "standard output"),
];

/// Network file systems report only at a close or a sync that they could not write.
#[test]
fn what_a_file_system_says_at_the_end_is_heard() {
    let Some(meddle) = meddle() else {
        return;
    };
    let place = Place::new();
    for (line, named) in WRITING {
        let before = place.names();
        let check = |rule: &str, word: &str| {
            let mut command = place.meddled(meddle, rule, line);
            let output = File::create(place.at("output")).expect("a file");
            let output = command.stdout(output).output().expect("it starts");
            let text = said(&output);
            assert_eq!(output.status.code(), Some(1), "{line} with {rule}: {text}");
            assert!(text.contains(word), "{line} with {rule}: {text}");
            assert!(text.contains(named), "{line} with {rule}: {text}");
            fs::remove_file(place.at("output")).expect("a file");
            assert_eq!(place.names(), before, "{line} with {rule}");
        };
        check(&format!("close={EDQUOT}"), "quota exceeded");
        if ["disk export disk new", "report report.json -o new"].contains(&line) {
            check(&format!("sync={EIO}"), "Input/output error");
        }
        if named == "new" {
            // A free name can be had without a rename.
            let rules = format!("rename={EIO} link={EIO}");
            let made = place.meddled(meddle, &rules, line).output();
            let made = made.expect("it starts");
            assert_eq!(made.status.code(), Some(0), "{line}: {}", said(&made));
            fs::remove_file(place.at(named)).expect("a file");
            assert_eq!(place.names(), before, "{line} where nothing is renamed");
        }
    }
}

/// Lines that print a report, and their codes for any reader.
const PRINTING: [(&str, i32); 8] = [
    ("info --json packed", 0),
    ("info packed report.json", 1),
    ("explain packed", 0),
    ("disk info disk", 0),
    ("disk fsck disk", 0),
    ("compare report.json report.json", 0),
    ("man", 0),
    ("--help", 0),
];

/// A stream that takes nothing.
fn full() -> File {
    let device = OpenOptions::new().write(true).open("/dev/full");
    device.expect("a device")
}

/// Event loops leave the streams of their children non-blocking; gzip and xz wait for them, too.
#[test]
fn a_stream_that_would_not_wait_is_waited_for() {
    let place = Place::new();
    fs::write(place.at("noise"), noise(3_000_000)).expect("room");
    let script = r#"cat noise | python3 -c 'import os, sys; os.set_blocking(0, False); os.set_blocking(1, False); os.execv(sys.argv[1], sys.argv[1:])' "$0" pack -q -c | dd bs=97 status=none | "$0" unpack -q -c -"#;
    let mut command = place.command(Path::new("bash"), "-o pipefail -c");
    command.arg(script).arg(env!("CARGO_BIN_EXE_breakeven"));
    let output = command.output().expect("a shell");
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(output.stdout == noise(3_000_000));
}

#[test]
fn an_answer_does_not_depend_on_who_reads_it() {
    let place = Place::new();
    let gone = || {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        writer
    };
    let check = |line: &str, streams: &str, command: &mut Command, code: i32, word: &str| {
        let output = command.output().expect("it starts");
        let text = said(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{line}, {streams}: {text}"
        );
        assert!(text.contains(word), "{line}, {streams}: {text}");
    };
    for (line, code) in PRINTING {
        let breakeven = || place.breakeven(line);
        check(line, "read", &mut breakeven(), code, "");
        check(line, "read by nobody", breakeven().stdout(gone()), code, "");
        // Lost output is reported, and turns only a success into a failure.
        let is_compared = line.starts_with("compare");
        let lost = if is_compared { 2 } else { 1 };
        let named = "standard output: No space left";
        check(line, "full", breakeven().stdout(full()), lost, named);
        let told_nothing = &mut breakeven();
        told_nothing.stdout(Stdio::null()).stderr(full());
        check(line, "with a full standard error", told_nothing, code, "");
        let told_nobody = &mut breakeven();
        told_nobody.stdout(Stdio::null()).stderr(gone());
        check(
            line,
            "with a standard error that is gone",
            told_nobody,
            code,
            "",
        );
    }
    // Data is different: without a reader there is no reason to go on.
    for line in ["pack -q -c file", "cat packed packed", "unpack -c packed"] {
        let output = place.breakeven(line).stdout(gone()).output();
        let output = output.expect("it starts");
        let ended = (output.status.signal(), said(&output));
        assert_eq!(ended, (Some(13), String::new()), "{line}");
        check(
            line,
            "full",
            place.breakeven(line).stdout(full()),
            1,
            "standard output",
        );
    }
    // A failure before stays one.
    let line = "cat none packed";
    check(
        line,
        "read by nobody",
        place.breakeven(line).stdout(gone()),
        1,
        "none",
    );
}

/// Commands that read a stream or print a report, with it closed.
const CLOSED: [(&str, &str); 7] = [
    ("replay --trace - file <&-", "standard input: Bad file"),
    ("pack -c <&-", "standard input: Bad file"),
    ("disk info disk >&-", "standard output: Bad file"),
    ("disk compact disk >&-", "standard output: Bad file"),
    ("explain packed >&-", "standard output: Bad file"),
    ("db info disk >&-", "standard output: Bad file"),
    ("completions bash >&-", "standard output: Bad file"),
];

#[test]
fn closed_streams_are_known_before_the_work() {
    let place = Place::new();
    let run = |line: &str| {
        let program = env!("CARGO_BIN_EXE_breakeven");
        let mut shell = place.command(Path::new("sh"), "-c");
        shell.arg(format!("exec {program} {line}"));
        shell.output().expect("a shell")
    };
    for (line, word) in CLOSED {
        let output = run(line);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(1), "{line}: {text}");
        assert!(text.contains(word), "{line}: {text}");
    }
    // A command that prints nothing needs no reader.
    for line in [
        "disk clone disk disk copy <&- >&- 2>&-",
        "pack -q file -o new <&- >&- 2>&-",
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(0), "{line}");
    }
}

/// A server that is ended when it is forgotten.
struct Server(std::process::Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ends a server by SIGTERM, at which it writes its metrics once more.
fn end(mut server: Server) {
    let process = server.0.id().to_string();
    let kill = Command::new("kill").args(["-TERM", &process]).status();
    assert!(kill.expect("kill starts").success());
    assert!(server.0.wait().expect("it ends").success());
}

#[test]
fn metrics_replace_files_alone() {
    let place = Place::new();
    let mut fifo = Command::new("mkfifo");
    assert!(
        fifo.arg(place.at("fifo"))
            .status()
            .expect("mkfifo")
            .success()
    );
    fs::write(place.at("kept"), "kept").expect("a file");
    symlink("kept", place.at("link")).expect("a link");
    symlink("/dev/null", place.at("null")).expect("a link");
    for (number, name) in ["fifo", "link", "null", "new"].into_iter().enumerate() {
        let disk = format!("disk-{number}");
        fs::copy(place.at("disk"), place.at(&disk)).expect("a disk");
        let serving = format!("serve -s socket-{number} -P pid-{name} --metrics {name}");
        let disks = format!("disk serve {disk} --reserve 1 --metrics {name}");
        for line in [disks, serving] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
            let server = command
                .args(line.split_whitespace())
                .current_dir(place.0.path())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn();
            let mut server = Server(server.expect("the server starts"));
            // It reports its address once a signal can end it.
            let mut first = [0; 1];
            match line.starts_with("disk") {
                true => read_one(server.0.stdout.as_mut(), &mut first),
                false => read_one(server.0.stderr.as_mut(), &mut first),
            }
            end(server);
        }
    }
    let kind = |name: &str| {
        fs::symlink_metadata(place.at(name))
            .expect("it")
            .file_type()
    };
    assert!(kind("fifo").is_fifo() && kind("link").is_symlink() && kind("null").is_symlink());
    let device = fs::metadata("/dev/null").expect("it").file_type();
    assert!(device.is_char_device());
    for name in ["kept", "new"] {
        let text = fs::read_to_string(place.at(name)).expect("a file");
        assert!(
            text.starts_with("# ") && text.ends_with('\n'),
            "{name}: {text}"
        );
    }
    let names = place.names();
    let is_left = |name: &String| name.starts_with(".breakeven") || name.starts_with("pid");
    assert!(!names.iter().any(is_left), "{names:?}");
}

fn read_one(stream: Option<&mut impl std::io::Read>, first: &mut [u8]) {
    let stream = stream.expect("a pipe");
    stream.read_exact(first).expect("a line");
}

/// A fault in a vault is found, with any reader of the output.
#[cfg(feature = "vault")]
#[test]
fn a_vault_answers_the_same_whoever_reads() {
    let place = Place::new();
    place.add_vault();
    let vault = |line: &str| format!("vault -r store -p password {line}");
    let added = place.breakeven(&vault("add -")).stdin(full()).output();
    let added = added.expect("it starts");
    assert_eq!(added.status.code(), Some(1), "{}", said(&added));
    assert!(
        said(&added).contains("standard input: "),
        "{}",
        said(&added)
    );
    damage(&place.at("store/packs"));
    for (line, code) in [
        ("verify", 1),
        ("verify --json", 1),
        ("restore 1 -t back", 3),
        ("list", 0),
    ] {
        let line = vault(line);
        for streams in ["null", "gone", "full error"] {
            let _ = fs::remove_dir_all(place.at("back"));
            let mut command = place.breakeven(&line);
            match streams {
                "null" => drop(command.stdout(Stdio::null())),
                "gone" => drop(command.stdout(std::io::pipe().expect("a pipe").1)),
                _ => drop(command.stdout(Stdio::null()).stderr(full())),
            }
            let output = command.output().expect("it starts");
            let text = said(&output);
            assert_eq!(
                output.status.code(),
                Some(code),
                "{line}, {streams}: {text}"
            );
            assert!(
                code == 0 || streams == "full error" || !text.is_empty(),
                "{line}"
            );
        }
    }
}

/// Changes bytes in the middle of the largest file below a folder.
#[cfg(feature = "vault")]
fn damage(folder: &Path) {
    use std::os::unix::fs::FileExt;
    let mut folders = vec![folder.to_path_buf()];
    let mut largest = (0, PathBuf::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match fs::metadata(&path).expect("an entry") {
                found if found.is_dir() => folders.push(path),
                found if found.len() > largest.0 => largest = (found.len(), path),
                _ => {}
            }
        }
    }
    let file = OpenOptions::new().write(true).open(&largest.1);
    let file = file.expect("a pack");
    file.write_all_at(b"zzzz", largest.0 / 2).expect("room");
}
