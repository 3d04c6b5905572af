//! SQLite's own tests, with the extension as the default VFS, in the test programs of SQLite's authors.
//!
//! The programs are compiled once, out of the sources that `tools/setup test` fetches, into a folder beside these.
//! Every file of tests runs in a process and an empty folder of its own. A failing test must be in `exclusions.txt`,
//! where every failure has its reason, or must fail with SQLite's own VFS as well: then it is the machine's.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};

use super::hosts::{is_full, left_out};

#[path = "../../../breakeven/tests/outside/sources.rs"]
mod sources;

/// Seconds after which a file of tests counts as hanging: a deadline, not a measurement.
const DEADLINE_SECONDS: &str = "150";
/// The test files that run at the same time.
const WORKERS: usize = 2;
/// The least number of test files in one of SQLite's suites.
const FILES_MIN: usize = 1_000;
const TESTS_MIN: usize = 230_000;
/// The least number of its tests of several processes.
const PROCESS_TESTS_MIN: usize = 94;

/// The test programs, and their files of tests.
struct Programs {
    built: PathBuf,
    sources: PathBuf,
    extension: PathBuf,
}

fn here(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("suite").join(name)
}

/// Compiles the programs, unless that is done; `None` if something is missing for it.
fn programs() -> Option<&'static Programs> {
    static PROGRAMS: OnceLock<Option<Programs>> = OnceLock::new();
    let compiled = PROGRAMS.get_or_init(|| {
        let has_tcl = Path::new("/usr/lib/tcl8.6/tclConfig.sh").exists();
        let Some(folder) = sources::folder("sqlite3").filter(|_| has_tcl) else {
            left_out("no sources of SQLite or no tcl-dev: its own tests are not run");
            return None;
        };
        let recipe = ["shim.c", "testfixture.mk"].map(|name| std::fs::read(here(name)).unwrap());
        let mut hasher = DefaultHasher::new();
        recipe.hash(&mut hasher);
        let built = folder.with_file_name(format!("sqlite3-built-{:x}", hasher.finish()));
        std::fs::create_dir_all(&built).unwrap();
        let steps = "exec 9>lock && flock 9 \
            && { [ -e Makefile ] || \"$1/configure\" --quiet >configure.log 2>&1; } \
            && make -s -j2 -f \"$2/testfixture.mk\" SHIM=\"$2\" CFLAGS='-O1 -DSQLITE_OS_UNIX=1' >make.log 2>&1 \
                fixture/testfixture fixture/mptest";
        let done = Command::new("sh")
            .args(["-c", steps, "sh"])
            .args([&folder, &here("")])
            .current_dir(&built)
            .status()
            .unwrap();
        assert!(done.success(), "not compiled: {}/make.log", built.display());
        let test = std::env::current_exe().unwrap();
        Some(Programs {
            built: built.join("fixture"),
            sources: folder,
            extension: test.parent().unwrap().join("libbreakeven_sqlite.so"),
        })
    });
    compiled.as_ref()
}

/// How databases are opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// By SQLite's own VFS.
    Plain,
    /// By ours, who reads keeps writers out: as its own tests expect.
    Locking,
    /// By ours, as it is.
    Snapshots,
}

impl Programs {
    /// Makes a folder, in memory if it can: the tests sync as if nothing were dearer.
    fn folder() -> tempfile::TempDir {
        let in_memory = tempfile::tempdir_in("/dev/shm");
        in_memory.or_else(|_| tempfile::tempdir()).unwrap()
    }

    /// Runs a program in a folder, and whatever it starts; returns what it printed.
    fn run(&self, program: &str, arguments: &[&Path], folder: &Path, mode: Mode) -> String {
        let said = folder.join("said");
        let output = std::fs::File::create(&said).unwrap();
        let mut command = Command::new("timeout");
        command
            .arg(DEADLINE_SECONDS)
            .arg(self.built.join(program))
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stderr(output.try_clone().unwrap())
            .stdout(output);
        if mode != Mode::Plain {
            command.env("BREAKEVEN_SUITE_EXTENSION", &self.extension);
        }
        if mode == Mode::Locking {
            command.env("BREAKEVEN_SUITE_PARAMETER", "snapshot=0");
        }
        command.status().unwrap();
        String::from_utf8_lossy(&std::fs::read(said).unwrap()).into_owned()
    }

    /// Returns the files of one of SQLite's suites.
    fn files(&self, suite: &str) -> Vec<PathBuf> {
        let folder = Programs::folder();
        let tests = self.sources.join("test");
        let arguments = [&here("list.tcl"), &tests, Path::new(suite)];
        let listed = self.run("testfixture", &arguments, folder.path(), Mode::Plain);
        let files = listed.lines().filter(|line| line.ends_with(".test"));
        files.map(|file| tests.join(file)).collect()
    }

    fn outcome(&self, file: &Path, mode: Mode) -> Outcome {
        let folder = Programs::folder();
        Outcome::of(self.run("testfixture", &[file], folder.path(), mode))
    }
}

/// The result of a file of tests.
struct Outcome {
    /// How many tests ran; none if it did not come to its end.
    tests: Option<usize>,
    failed: BTreeSet<String>,
    said: String,
}

impl Outcome {
    fn of(said: String) -> Outcome {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        let end = said.lines().find(|line| line.contains(" errors out of "));
        let tests = end.and_then(|line| line.split_whitespace().nth(4)?.parse().ok());
        let failures = said
            .lines()
            .find_map(|line| line.strip_prefix("!Failures on these tests:"));
        let failed: BTreeSet<String> = failures.map(words).unwrap_or_default();
        // An end that tells of errors without their names is none to rely on.
        let is_told = !failed.is_empty() || end.is_some_and(|line| line.starts_with("0 "));
        Outcome {
            tests: tests.filter(|_| is_told),
            failed,
            said,
        }
    }
}

/// Names that are left out, and which of them were met.
struct Exclusions(Vec<(String, AtomicUsize)>);

impl Exclusions {
    fn read(names: &[&str]) -> Exclusions {
        let texts = names
            .iter()
            .map(|name| std::fs::read_to_string(here(name)).unwrap());
        let lines: Vec<String> = texts
            .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let told = lines.iter().filter(|line| !line.starts_with('#'));
        let patterns = told.flat_map(|line| line.split_whitespace());
        Exclusions(
            patterns
                .map(|pattern| (pattern.to_owned(), AtomicUsize::new(0)))
                .collect(),
        )
    }

    fn has(&self, name: &str) -> bool {
        let mut is_in = false;
        for (pattern, met) in &self.0 {
            if fits(pattern.as_bytes(), name.as_bytes()) {
                met.fetch_add(1, Ordering::Relaxed);
                is_in = true;
            }
        }
        is_in
    }

    fn unmet(&self) -> Vec<&str> {
        let unmet = self
            .0
            .iter()
            .filter(|(_, met)| met.load(Ordering::Relaxed) == 0);
        unmet.map(|(pattern, _)| pattern.as_str()).collect()
    }
}

/// Returns whether a name fits a pattern of letters, `?` for any one, and `*` for any number.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => fits(rest, name),
        (Some((b'*', rest)), Some((_, behind))) => fits(rest, name) || fits(pattern, behind),
        (Some((letter, rest)), Some((found, behind))) => {
            (letter == found || *letter == b'?') && fits(rest, behind)
        }
        _ => false,
    }
}

/// The totals of a suite.
#[derive(Debug, Default)]
struct Count {
    files: usize,
    tests: usize,
    /// Failures that are excluded.
    excluded: usize,
    /// Failures of SQLite's own VFS on this machine.
    of_machine: usize,
    files_left_out: usize,
    unexpected: Vec<String>,
}

/// Runs one file and adds it up.
fn try_file(
    programs: &Programs,
    file: &Path,
    mode: Mode,
    exclusions: &Exclusions,
    count: &Mutex<Count>,
) {
    let name = file.file_name().unwrap().to_string_lossy().into_owned();
    if exclusions.has(&name) {
        count.lock().unwrap().files_left_out += 1;
        return;
    }
    let outcome = programs.outcome(file, mode);
    let is_excluded = |test: &&String| exclusions.has(test);
    let (excluded, mut others): (Vec<&String>, Vec<&String>) =
        outcome.failed.iter().partition(is_excluded);
    let mut is_broken = outcome.tests.is_none();
    let mut of_machine = 0;
    if !others.is_empty() || is_broken {
        let plain = programs.outcome(file, Mode::Plain);
        let before = others.len();
        others.retain(|test| !plain.failed.contains(*test));
        of_machine = before - others.len() + usize::from(is_broken && plain.tests.is_none());
        is_broken &= plain.tests.is_some();
    }
    let mut count = count.lock().unwrap();
    count.files += 1;
    count.tests += outcome.tests.unwrap_or(0);
    count.excluded += excluded.len();
    count.of_machine += of_machine;
    if is_broken || !others.is_empty() {
        let said: Vec<&str> = outcome
            .said
            .lines()
            .filter(|line| !line.ends_with("... Ok"))
            .collect();
        let said = said[said.len().saturating_sub(40)..].join("\n");
        count.unexpected.push(format!("{name} {others:?}\n{said}"));
    }
}

/// Runs one of SQLite's suites.
fn try_suite(suite: &str, mode: Mode, exclusions: &Exclusions) -> Option<Count> {
    let programs = programs()?;
    let files = programs.files(suite);
    let (next, count) = (AtomicUsize::new(0), Mutex::new(Count::default()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    try_file(programs, file, mode, exclusions, &count);
                }
            });
        }
    });
    let count = count.into_inner().unwrap();
    println!(
        "{suite}: {} tests in {} files, {} files left out; {} failures excluded, {} of this machine",
        count.tests, count.files, count.files_left_out, count.excluded, count.of_machine
    );
    assert!(
        count.unexpected.is_empty(),
        "{}",
        count.unexpected.join("\n\n")
    );
    assert!(
        count.files >= FILES_MIN && count.tests >= TESTS_MIN,
        "{count:?}"
    );
    Some(count)
}

#[test]
fn its_own_tests_find_nothing_wrong() {
    let exclusions = Exclusions::read(&["exclusions.txt"]);
    if try_suite("veryquick", Mode::Locking, &exclusions).is_some() {
        assert!(
            exclusions.unmet().is_empty(),
            "{:?} fail no more",
            exclusions.unmet()
        );
    }
}

/// A reader keeps nobody out: tests that this changes are excluded too.
#[test]
fn its_own_tests_find_nothing_wrong_with_snapshots() {
    let exclusions = Exclusions::read(&["exclusions.txt", "exclusions-snapshots.txt"]);
    if is_full() {
        try_suite("veryquick", Mode::Snapshots, &exclusions);
    }
}

#[test]
fn its_own_tests_of_several_processes_find_nothing_wrong() {
    let Some(programs) = programs() else { return };
    let scripts: &[&str] = match is_full() {
        true => &["crash01", "multiwrite01", "config02"],
        false => &["crash01", "multiwrite01"],
    };
    let mut tests = 0;
    for mode in [Mode::Locking, Mode::Snapshots] {
        for script in scripts {
            let folder = Programs::folder();
            let script = programs.sources.join(format!("mptest/{script}.test"));
            let arguments = [Path::new("mp.db"), script.as_path()];
            let said = programs.run("mptest", &arguments, folder.path(), mode);
            let summary = said
                .lines()
                .find(|line| line.starts_with("Summary: 0 errors out of "));
            let count =
                summary.and_then(|line| line.split_whitespace().nth(5)?.parse::<usize>().ok());
            tests += count.unwrap_or_else(|| panic!("{said}"));
            let made = std::fs::read(folder.path().join("mp.db")).unwrap();
            assert!(!made.starts_with(b"SQLite format 3"), "not compressed");
        }
    }
    println!("{tests} tests of several processes");
    assert!(tests >= 2 * PROCESS_TESTS_MIN, "{tests}");
}
