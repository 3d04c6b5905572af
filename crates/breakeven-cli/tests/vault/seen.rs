//! An older state of a vault that was put back: told to whoever has seen a newer one, and to nobody else.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{done, places, run_with};

const VAULT: &str = "breakeven vault -p password.txt -r";

/// Runs a command on a machine with such a state folder; returns exit code and what was said.
fn on(machine: &str, folder: &Path, line: &str) -> (i32, String) {
    let state = folder.join(machine);
    let state = state.to_str().expect("a path of text");
    let variables = [("XDG_STATE_HOME", state), ("HOME", "")];
    let output = run_with(folder, line, &variables);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.code().expect("an exit"), said)
}

#[track_caller]
fn check(machine: &str, folder: &Path, line: &str, code: i32) -> String {
    let (found, said) = on(machine, folder, line);
    assert_eq!(found, code, "{line}: {said}");
    let tells = said.contains("--accept-older");
    assert_eq!(tells, code == 4, "{line}: {said}");
    said
}

fn copy(folder: &Path, from: &str, to: &str) {
    let (from, to) = (folder.join(from), folder.join(to));
    let _ = fs::remove_dir_all(&to);
    done(Command::new("cp").arg("-a").arg(from).arg(to));
}

/// Makes a vault of two snapshots, and a copy of it as it was after the first.
fn two_snapshots(folder: &Path) {
    for line in ["init", "add /srv/games"] {
        check("one", folder, &format!("{VAULT} /v {line}"), 0);
    }
    copy(folder, "v", "older");
    check("one", folder, &format!("{VAULT} /v add /srv/games"), 0);
}

/// Checks that an older state is told until it is accepted, and that nothing is changed meanwhile.
fn check_told(folder: &Path) {
    let names = || {
        let listed = fs::read_dir(folder.join("v/snapshots")).expect("records");
        listed.count()
    };
    let before = names();
    for line in [
        "list",
        "restore latest --target /back",
        "stats",
        "verify",
        "list",
    ] {
        check("one", folder, &format!("{VAULT} /v {line}"), 4);
    }
    super::check_restored(folder, "back");
    for line in ["add /srv/games", "forget 1", "gc", "repair", "unlock"] {
        check("one", folder, &format!("{VAULT} /v {line}"), 4);
    }
    let copied = "init --copy-cuts /v --from-password-file password.txt";
    check("one", folder, &format!("{VAULT} /w {copied}"), 4);
    assert_eq!(names(), before);
    check("one", folder, &format!("{VAULT} /v list --accept-older"), 0);
    for line in ["list", "add /srv/games", "list"] {
        check("one", folder, &format!("{VAULT} /v {line}"), 0);
    }
}

#[test]
fn the_newest_record_that_was_deleted_is_missed() {
    let folder = places();
    let path = folder.path();
    two_snapshots(path);
    for record in ["snapshots/", "copies/record-"] {
        fs::remove_file(path.join(format!("v/{record}0000000000000002"))).expect("it goes");
    }
    check_told(path);
}

#[test]
fn an_older_copy_that_was_put_back_is_told() {
    let folder = places();
    let path = folder.path();
    two_snapshots(path);
    copy(path, "older", "v");
    check_told(path);
}

#[test]
fn another_change_of_the_same_number_is_told() {
    let folder = places();
    let path = folder.path();
    two_snapshots(path);
    copy(path, "older", "v");
    // Another machine knows of nothing, and adds what has the number that was seen.
    check("two", path, &format!("{VAULT} /v add /srv/games"), 0);
    check_told(path);
}

#[test]
fn nobody_is_alarmed_without_a_reason() {
    let folder = places();
    let path = folder.path();
    two_snapshots(path);
    // Machines that take turns, one of which was away.
    for machine in ["two", "two", "one", "three"] {
        check(machine, path, &format!("{VAULT} /v add /srv/games"), 0);
        check("one", path, &format!("{VAULT} /v list"), 0);
    }
    // A copy of before at another place is a copy of before: said, and no more.
    let said = check("one", path, &format!("{VAULT} /older list"), 0);
    assert!(said.contains("older state of the vault"), "{said}");
    let said = check("one", path, &format!("{VAULT} /older add /srv/games"), 0);
    assert!(!said.contains("older state"), "{said}");
    // A vault that was moved is what it was.
    fs::rename(path.join("v"), path.join("moved")).expect("it moves");
    for line in ["list", "forget 1", "gc --grace 0", "verify"] {
        let said = check("one", path, &format!("{VAULT} /moved {line}"), 0);
        assert!(!said.contains("older state"), "{said}");
    }
    // A state that cannot be kept, or is no text, stops nobody.
    fs::write(path.join("four"), "a file").expect("a file");
    let said = check("four", path, &format!("{VAULT} /moved list"), 0);
    assert!(said.contains("cannot be remembered"), "{said}");
    let kept = fs::read_dir(path.join("one/breakeven/vaults")).expect("a folder");
    for file in kept {
        fs::write(file.expect("a file").path(), [0xFF, b'\n', b'7', b' ']).expect("it is written");
    }
    check("one", path, &format!("{VAULT} /moved list"), 0);
    let nowhere = [("XDG_STATE_HOME", ""), ("HOME", "")];
    let output = run_with(path, &format!("{VAULT} /moved list"), &nowhere);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
}
