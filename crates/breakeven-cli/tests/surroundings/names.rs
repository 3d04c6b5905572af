//! Names with line feeds, a terminal's commands and bytes that are not UTF-8: each printed line is one of ours.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::Place;
use super::matrix::{JOBS, READS_PRINTED, VAULT_JOBS};

/// The start of a line that a name has forged.
const FORGED: &str = "breakeven: forged";

/// Jobs beside those of the matrix. Words with a `@` before them are names as well.
const MORE: [&str; 26] = [
    "info --json packed file",
    "explain --json packed",
    "unpack -t packed file @none",
    "pack -v --ledger -f file",
    "pack -v --ledger --json -f file",
    "pack -r -q tree --output-dir-flat @flat",
    "pack --filelist file",
    "repack -f file",
    "replay --accesses 100 file",
    "replay --json --trace file file",
    "replay --device --accesses 100 file",
    "advise --time 0.1 --json tree",
    "advise --time 0.1 --fio file file",
    "advise --time 0.1 --prices file file",
    "advise --time 0.1 --report @none/page file",
    "disk remove disk @volume",
    "disk resize disk @volume 8MiB",
    "disk serve disk --reserve 1 --socket @none/socket",
    "disk serve file --volume @volume",
    "db export --json database new",
    "db info --json database",
    "serve -s @none/socket",
    "serve @-x",
    "bench --values file @address",
    "pack @--option",
    "pack --days @days file",
];

const VAULT_MORE: [&str; 18] = [
    "vault -r store -p password add --json tree @none @pipe",
    "vault -r store -p password add --tag @tag --host @host tree",
    "vault -r store -p password add --exclude-file file tree",
    "vault -r store -p password list --json",
    "vault -r store -p password ls latest",
    "vault -r store -p password ls -l latest",
    "vault -r store -p password ls --json latest",
    "vault -r store -p password find @x",
    "vault -r store -p password diff 1 2",
    "vault -r store -p password diff --json 1 2",
    "vault -r store -p password dump 1 @none",
    "vault -r store -p password restore --json 1 -t tree",
    "vault -r store -p password restore latest:@none -t back",
    "vault -r store -p password forget --keep-tag @tag",
    "vault -r store -p password key --add @none",
    "vault -r store -p password key --remove @none",
    "vault -r new -p password copy --from store",
    "vault -r @none -p @none list",
];

/// The states of a job's files.
const STATES: [&str; 4] = ["there", "gone", "folders", "garbage"];

/// Returns the odd name for a word of a job.
fn odd(word: &str) -> OsString {
    let mut name = word.as_bytes().to_vec();
    name.extend_from_slice(b"\n");
    name.extend_from_slice(FORGED.as_bytes());
    name.extend_from_slice(b"\x1b[31m\r\xff");
    OsString::from_vec(name)
}

/// A folder with something of each kind, all with odd names.
fn odd_place() -> (Place, Vec<String>) {
    let place = Place::new();
    place.add_databases();
    let mut names = place.names();
    names.retain(|name| !matches!(&**name, "cache" | "state"));
    for name in &names {
        fs::rename(place.at(name), place.0.path().join(odd(name))).expect("a name");
    }
    for more in ["new", "back"] {
        names.push(more.to_string());
    }
    (place, names)
}

/// Adds a vault of two snapshots of a tree that has only names.
fn add_odd_vault(place: &Place, names: &mut Vec<String>) {
    names.extend(["tree", "store", "password"].map(String::from));
    let tree = place.0.path().join(odd("tree"));
    fs::write(place.0.path().join(odd("password")), "a password\n").expect("a file");
    fs::create_dir(&tree).expect("a folder");
    for (number, line) in ["init", "add tree", "add tree"].into_iter().enumerate() {
        let file = tree.join(odd(&format!("file{number}")));
        fs::write(file, super::noise(1000 * number)).expect("a file");
        symlink(odd("target"), tree.join(odd(&format!("link{number}")))).expect("a link");
        let line = format!("vault -r store -p password {line}");
        let output = run(place.0.path(), &line, names, place);
        assert_eq!(output.status.code(), Some(0), "{}", super::said(&output));
    }
}

fn run(folder: &Path, line: &str, names: &[String], place: &Place) -> Output {
    let words = line
        .split_whitespace()
        .map(|word| match word.split_once('@') {
            Some((before, name)) => {
                OsString::from_vec([before.as_bytes(), odd(name).as_bytes()].concat())
            }
            None if names.iter().any(|name| name == word) => odd(word),
            None => OsString::from(word),
        });
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", "10", env!("CARGO_BIN_EXE_breakeven")])
        .args(words)
        .current_dir(folder)
        .env("BREAKEVEN_CACHE", place.at("cache"))
        .env("XDG_STATE_HOME", place.at("state"))
        .stdin(Stdio::null());
    command.output().expect("it starts")
}

/// Checks that a text consists of lines of ours.
fn check_lines(how: &str, bytes: &[u8]) {
    let text = String::from_utf8(bytes.to_vec());
    let text = text.unwrap_or_else(|_| panic!("{how}: {}", bytes.escape_ascii()));
    for line in text.lines() {
        let is_ours = !line.contains(char::is_control) && !line.starts_with(FORGED);
        assert!(is_ours, "{how}: {}", bytes.escape_ascii());
    }
}

fn check_output(how: &str, line: &str, is_data: bool, output: &Output) {
    assert!(!super::said(output).contains("panicked"), "{how}");
    check_lines(how, &output.stderr);
    if line.contains("--json") {
        let is_one = serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok();
        let text = String::from_utf8_lossy(&output.stdout);
        let mut lines = text.lines();
        let are_many = lines.all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok());
        assert!(
            is_one || are_many,
            "{how}: {}",
            output.stdout.escape_ascii()
        );
    } else if !is_data {
        check_lines(how, &output.stdout);
    }
}

#[test]
fn no_name_forges_a_line() {
    let (place, mut names) = odd_place();
    let mut jobs: Vec<(&str, bool)> = JOBS
        .iter()
        .map(|(line, proof)| (*line, *proof == READS_PRINTED || line.starts_with("cat")))
        .chain(MORE.map(|line| (line, false)))
        .collect();
    if cfg!(feature = "vault") {
        add_odd_vault(&place, &mut names);
        jobs.extend(VAULT_JOBS.map(|(line, _)| (line, false)));
        jobs.extend(VAULT_MORE.map(|line| (line, false)));
    }
    let [mut lines, mut said] = [0; 2];
    for (line, is_data) in &jobs {
        let changed = |name: &&str| names.iter().any(|it| it == name) && !is_kept(name);
        let changed: Vec<&str> = line.split_whitespace().filter(changed).collect();
        // Without a changing file they are alike.
        let states = if changed.is_empty() { 1 } else { STATES.len() };
        for state in &STATES[..states] {
            let copy = tempfile::tempdir().expect("a folder");
            let inside = copy.path().join("inside");
            let mut copying = Command::new("cp");
            let copied = copying.arg("-a").arg(place.0.path()).arg(&inside).status();
            assert!(copied.expect("cp starts").success());
            for name in &changed {
                change(&inside.join(odd(name)), state);
            }
            let how = format!("{line}, {state}");
            let output = run(&inside, line, &names, &place);
            check_output(&how, line, *is_data, &output);
            lines += 1;
            said += usize::from(super::said(&output).contains(FORGED));
        }
    }
    println!("{lines} command lines, {said} messages with names");
    assert!(said >= jobs.len(), "only {said}");
}

/// A password and a vault stay unchanged: without them nothing else is checked.
fn is_kept(name: &str) -> bool {
    ["password", "store"].contains(&name)
}

/// Turns a file into something that a job does not expect.
fn change(path: &Path, state: &str) {
    if state == "there" {
        return;
    }
    let gone = if path.is_dir() {
        fs::remove_dir_all(path)
    } else {
        fs::remove_file(path)
    };
    match state {
        "folders" => fs::create_dir(path).expect("a folder"),
        "garbage" => {
            fs::write(path, b"no file of\x1b[31m\nbreakeven: forged\n ours\xff\n").expect("room")
        }
        // The file to be made is not there.
        _ => drop(gone),
    }
}
