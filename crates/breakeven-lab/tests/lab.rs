//! The laboratory as a program: what it lists, runs, records and refuses. No figure is asserted.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

const STORED_SIZES: &str = "breakeven/stored-sizes";
/// One experiment in so many is run, and all are with the long floors.
const SHARE: usize = 5;
/// One in so many of these is measured again, and all are with the long floors.
const AGAIN: usize = 3;

fn laboratory(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_breakeven-lab"))
        .args(arguments)
        .output()
        .expect("the laboratory runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the laboratory and checks exit code and a word of its output.
fn check(arguments: &[&str], code: i32, expected: &str) -> String {
    let output = laboratory(arguments);
    let all = text(&output.stdout) + &text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {all}");
    assert!(all.contains(expected), "{arguments:?}: {all}");
    all
}

/// Returns the records whose cells an experiment measured or read, as its progress names them.
fn records_of(output: &str, done: &str) -> BTreeSet<String> {
    let lines = output.lines().filter(|line| line.contains(done));
    let name = |line: &str| line.split(' ').next().unwrap_or_default().to_string();
    lines.map(name).collect()
}

fn rows(record: &Path) -> usize {
    std::fs::read_to_string(record)
        .expect("a record")
        .lines()
        .count()
}

#[test]
fn every_listed_experiment_runs_quickly_and_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let records = folder.path().to_str().expect("a name");
    let listed = text(&laboratory(&["list"]).stdout);
    let mut tried = 0;
    let mut seen = BTreeSet::new();
    let is_full = std::env::var("BREAKEVEN_FULL").is_ok_and(|value| value == "1");
    let keys = listed.lines().filter(|line| !line.starts_with(' '));
    // The committed table is read where it stands.
    let keys = keys.filter(|key| *key != STORED_SIZES);
    for key in keys.step_by(if is_full { 1 } else { SHARE }) {
        tried += 1;
        let run = ["run", key, "--quick", "--records", records];
        let all = check(&run, 0, "verdict: ");
        assert!(all.contains(&format!("{key}: ")), "{all}");
        assert!(
            all.contains("verdict: cannot tell"),
            "a quick run judged: {all}"
        );
        let measured = records_of(&all, ": measuring");
        let mut named = records_of(&all, ": recorded ");
        named.extend(measured.iter().cloned());
        assert!(!named.is_empty(), "no cell in {all}");
        let again = measured.intersection(&seen).next();
        assert!(again.is_none(), "{key} measures {again:?} again: {all}");
        let new: Vec<String> = named.difference(&seen).cloned().collect();
        seen.extend(named);
        if new.is_empty() {
            continue;
        }
        let rows_of = || {
            new.iter()
                .map(|name| rows(&folder.path().join(format!("{name}.csv"))))
        };
        let before: Vec<usize> = rows_of().collect();
        // Where a run is a whole program's, a quick one is a row behind two lines of head.
        assert!(
            before.iter().all(|rows| *rows > 2),
            "{new:?}: {before:?} lines"
        );
        let all = check(&run, 0, ": recorded ");
        assert!(!all.contains(": measuring"), "{all}");
        assert!(rows_of().eq(before.iter().copied()));
        if is_full || tried % AGAIN == 1 {
            check(&[&run[..], &["--again"]].concat(), 0, ": measuring");
            assert!(rows_of().eq(before.iter().map(|rows| 2 * rows - 2)));
        }
    }
    assert!(tried >= 1, "{listed}");
    assert!(folder.path().join("machines.csv").exists());
}

/// Sizes are exact, so this one verdict is asserted: whoever changes a size says why and runs
/// `breakeven-lab run breakeven/stored-sizes --update`.
#[test]
fn the_committed_table_of_sizes_is_true() {
    check(
        &["run", STORED_SIZES, "--quick"],
        0,
        "| 0 | exact | holds |",
    );
}

#[test]
fn bad_usage_is_refused() {
    check(
        &["run", "nowhere/nothing"],
        2,
        "no experiment 'nowhere/nothing'",
    );
    check(&["run"], 2, "Usage");
    check(&["measure"], 2, "measure");
    let overhead = "breakeven/codec-overhead";
    check(
        &["run", overhead, "--data", "/no/such/folder"],
        1,
        "/no/such/folder",
    );
}

#[test]
fn peers_are_listed_wherever_they_come_from() {
    let all = check(&["peers"], 0, "peers: ");
    let has_root = all.contains("/peers/root");
    if !has_root {
        eprintln!("skipped: peers of today; tools/setup peers gets them");
    }
    for name in ["restic", "borg2", "memcached", "zstd", "mariadbd", "fio"] {
        let line = all
            .lines()
            .find(|line| line.starts_with(&format!("{name}: ")));
        let line = line.expect("a line for each peer");
        assert!(!has_root || !line.ends_with("not there"), "{line}");
    }
    let empty = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_breakeven-lab"))
        .arg("peers")
        .env("XDG_CACHE_HOME", empty.path())
        .output()
        .expect("the laboratory runs");
    let told = text(&output.stdout);
    assert!(
        told.contains("this machine's own; tools/setup peers"),
        "{told}"
    );
}
