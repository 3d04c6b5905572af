//! memcached's own tests, from the sources that `tools/setup test` fetches, on our server.
//!
//! Each file of tests is a program in Perl that starts servers of its own. A failing test must be in `exclusions.txt`
//! with its reason, and a test there must fail, so that the list stays true. Tests marked as doing either are exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use crate::page::left_out;

mod abuse;
mod sockets;
#[path = "../../../breakeven/tests/outside/sources.rs"]
mod sources;
mod tools;

/// Seconds after which a file counts as hanging: a deadline, not a measurement.
const DEADLINE_SECONDS: &str = "300";
/// The test files that run at the same time: most of them wait for seconds to pass.
const WORKERS: usize = 4;
/// The least number of test files in the suite.
const FILES_MIN: usize = 45;
const TESTS_MIN: usize = 57_000;

/// Replaces the tests' `memcached-debug`. They ask for UDP on every TCP port, which is refused here.
const PROGRAM: &str = r#"#!/bin/sh
left=$#
while [ $left -gt 0 ]; do
    argument=$1; shift; left=$((left - 1))
    if [ "$argument" = -U ]; then shift; left=$((left - 1)); else set -- "$@" "$argument"; fi
done
exec "$BREAKEVEN" serve "$@"
"#;
const TIMED_RUN: &str = "#!/bin/sh\nshift\nexec \"$@\"\n";
/// In a build for debugging, memcached moves its clock on demand. Here the seconds pass, and one more, since the
/// server's seconds begin at its start. A test that sleeps a second to see one pass sleeps a third longer, so that a
/// busy machine may start it late.
const REAL_CLOCK: &str = "package RealClock;\nuse MemcachedTest ();\nno warnings;\n\
    *CORE::GLOBAL::sleep = sub { select(undef, undef, undef, $_[0] + 0.33); $_[0] };\n\
    *MemcachedTest::mem_move_time = sub { MemcachedTest::sleep($_[1] + 1.1) };\n1;\n";

/// The tests of each file that fail, or none where the file is not run at all; one written `21?` may pass or fail.
type Exclusions = BTreeMap<String, Excluded>;

#[derive(Default)]
struct Excluded {
    failing: BTreeSet<u32>,
    either: BTreeSet<u32>,
}

impl Excluded {
    fn is_whole_file(&self) -> bool {
        self.failing.is_empty() && self.either.is_empty()
    }
}

fn exclusions() -> Exclusions {
    let lines = include_str!("exclusions.txt").lines();
    let told = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    told.map(|line| {
        let (what, reason) = line.split_once(" | ").expect("a reason");
        assert!(!reason.is_empty());
        let mut words = what.split_whitespace();
        let file = words.next().expect("a file").to_string();
        let mut excluded = Excluded::default();
        for word in words {
            match word.strip_suffix('?') {
                Some(number) => excluded.either.insert(number.parse().unwrap()),
                None => excluded.failing.insert(word.parse().unwrap()),
            };
        }
        (file, excluded)
    })
    .collect()
}

/// Lays out the tests as they expect it.
fn lay_out(tests: &Path, folder: &Path) {
    symlink(tests, folder.join("t")).unwrap();
    fs::write(folder.join("RealClock.pm"), REAL_CLOCK).unwrap();
    for (name, text) in [("memcached-debug", PROGRAM), ("timedrun", TIMED_RUN)] {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Runs one file, and returns how many tests passed. An error names the tests that should not have failed, or should
/// have.
fn run(folder: &Path, file: &str, excluded: &Excluded) -> Result<usize, String> {
    let output = Command::new("timeout")
        .args([DEADLINE_SECONDS, "perl", "-I.", "-It/lib", "-MRealClock"])
        .arg(format!("t/{file}"))
        .env("BREAKEVEN", env!("CARGO_BIN_EXE_breakeven"))
        .current_dir(folder)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let numbers = |prefix: &str| -> BTreeSet<u32> {
        let rest = text.lines().filter_map(|line| line.strip_prefix(prefix));
        let number = |rest: &str| rest.split(' ').next()?.parse().ok();
        rest.filter_map(number).collect()
    };
    let (passed, failed) = (numbers("ok "), numbers("not ok "));
    let judged: BTreeSet<u32> = failed.difference(&excluded.either).copied().collect();
    let is_as_told = output.status.success() == failed.is_empty();
    if judged != excluded.failing || passed.is_empty() || !is_as_told {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: String = said
            .lines()
            .flat_map(|line| [&line[..line.len().min(200)], "\n"])
            .collect();
        return Err(format!(
            "{file}: failed {failed:?}, {}\n{said}",
            output.status
        ));
    }
    Ok(passed.len())
}

#[test]
fn memcacheds_own_tests_pass() {
    let Some(tests) = sources::folder("memcached") else {
        return left_out("no sources of memcached: its own tests are not run");
    };
    let folder = tempfile::tempdir().unwrap();
    lay_out(&tests, folder.path());
    let excluded = exclusions();
    let names = fs::read_dir(&tests)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    let files: BTreeSet<String> = names.filter(|name| name.ends_with(".t")).collect();
    let unknown: Vec<&String> = excluded
        .keys()
        .filter(|name| !files.contains(*name))
        .collect();
    assert!(unknown.is_empty(), "no such files: {unknown:?}");
    let is_run = |name: &String| excluded.get(name).is_none_or(|it| !it.is_whole_file());
    let queue = Mutex::new(files.into_iter().filter(is_run).collect::<Vec<_>>());
    let ended = Mutex::new(Vec::new());
    let none = Excluded::default();
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(file) = queue.lock().unwrap().pop() else {
                        return;
                    };
                    let wanted = excluded.get(&file).unwrap_or(&none);
                    let result = run(folder.path(), &file, wanted);
                    ended.lock().unwrap().push(result);
                }
            });
        }
    });
    let ended = ended.into_inner().unwrap();
    let wrong: Vec<&String> = ended
        .iter()
        .filter_map(|result| result.as_ref().err())
        .collect();
    let passed: usize = ended.iter().filter_map(|result| result.as_ref().ok()).sum();
    println!(
        "memcached's own tests: {} files, {passed} tests passed",
        ended.len()
    );
    for wrong in &wrong {
        println!("{wrong}");
    }
    assert!(wrong.is_empty(), "{} files", wrong.len());
    assert!(ended.len() >= FILES_MIN && passed >= TESTS_MIN);
}
