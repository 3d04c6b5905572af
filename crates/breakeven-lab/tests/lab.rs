//! The laboratory as a program: what it lists, runs, records and refuses. No figure is asserted.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Output};

const STORED_SIZES: &str = "breakeven/stored-sizes";

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

/// Returns the record whose cells an experiment measured or read, as its progress names it.
fn record_of(output: &str) -> String {
    let cell = output
        .lines()
        .find(|line| line.contains(": measuring") || line.contains(": recorded "));
    let cell = cell.unwrap_or_else(|| panic!("no cell in {output}"));
    cell.split(' ').next().expect("a word").to_string()
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
    let mut records_seen = BTreeSet::new();
    for key in listed.lines().filter(|line| !line.starts_with(' ')) {
        // The committed table is read where it stands.
        if key == STORED_SIZES {
            continue;
        }
        tried += 1;
        let run = ["run", key, "--quick", "--records", records];
        let all = check(&run, 0, "verdict: ");
        assert!(all.contains(&format!("{key}: ")), "{all}");
        assert!(
            all.contains("verdict: cannot tell"),
            "a quick run judged: {all}"
        );
        let name = record_of(&all);
        if !records_seen.insert(name.clone()) {
            assert!(!all.contains(": measuring"), "{key} measures again: {all}");
            continue;
        }
        let record = folder.path().join(format!("{name}.csv"));
        let before = rows(&record);
        assert!(before > 10, "{before} lines");
        let all = check(&run, 0, ": recorded ");
        assert!(!all.contains(": measuring"), "{all}");
        assert_eq!(rows(&record), before);
        check(&[&run[..], &["--again"]].concat(), 0, ": measuring");
        assert_eq!(rows(&record), 2 * before - 2);
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
