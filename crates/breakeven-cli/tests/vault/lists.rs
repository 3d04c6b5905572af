//! Lists of what is added and left out, and the variables that stand in for options.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::{ends, ok, places, run_with};

const VAULT: &str = "breakeven vault -r /backup/games -p password.txt";

#[test]
fn what_lists_name_is_added_whatever_its_name() {
    let folder = places();
    let path = folder.path();
    let games = path.join("srv/games");
    for name in [&b"st\xFFrange"[..], b"two\nlines", b"-", b" blank "] {
        fs::write(games.join(OsStr::from_bytes(name)), name).expect("a file");
    }
    symlink("one", games.join("link")).expect("a link");
    ok(path, &format!("{VAULT} init"));
    let list = b"srv/games/st\xFFrange\0srv/games/two\nlines\0srv/games/-\0srv/games/./link\0\0srv/games/missing\0";
    fs::write(path.join("list0"), list).expect("a list");
    let said = ends(path, &format!("{VAULT} add --files-from0 list0"), 3);
    assert!(said.contains("srv/games/missing: No such file"), "{said}");
    let top = "latest:/srv/games";
    let said = super::run(path, &format!("{VAULT} ls -0 {top}"));
    assert_eq!(said.stdout, b"/-\0/link\0/st\xFFrange\0/two\nlines\0");
    // By lines, with what is typed beside it, and from standard input.
    fs::write(
        path.join("list"),
        b"srv/games/st\xFFrange\n\nsrv/games/ blank \n",
    )
    .expect("a list");
    ok(
        path,
        &format!("{VAULT} add --files-from list /srv/games/one"),
    );
    let said = super::run(path, &format!("{VAULT} ls -0 {top}"));
    assert_eq!(said.stdout, b"/ blank \0/one\0/one/data\0/st\xFFrange\0");
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
    let words = VAULT
        .split(' ')
        .skip(1)
        .map(|word| word.trim_start_matches('/'));
    let command = command.args(words).args(["add", "--files-from0", "-"]);
    let command = command
        .current_dir(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::null());
    let mut adding = command.spawn().expect("the program starts");
    adding
        .stdin
        .take()
        .expect("a pipe")
        .write_all(b"srv/games/text")
        .expect("it reads");
    assert!(adding.wait().expect("it ends").success());
    assert_eq!(ok(path, &format!("{VAULT} ls {top}")), "/text\n");
    // What names nothing makes no snapshot.
    for list in ["srv/none\n", ""] {
        fs::write(path.join("list"), list).expect("a list");
        let said = ends(path, &format!("{VAULT} add --files-from list"), 1);
        assert!(said.contains("no snapshot is made"), "{said}");
    }
    ends(path, &format!("{VAULT} add --files-from nowhere"), 1);
    // What is typed and not there is named as well.
    let said = ends(path, &format!("{VAULT} add /srv/none /srv/games/text"), 3);
    assert!(said.contains("srv/none: No such file"), "{said}");
    assert_eq!(ok(path, &format!("{VAULT} ls {top}")), "/text\n");
    let said = ends(path, &format!("{VAULT} add /srv/none"), 1);
    assert!(said.contains("srv/none: No such file"), "{said}");
    ends(path, &format!("{VAULT} add --files-from list -"), 1);
    ends(path, &format!("{VAULT} add"), 2);
}

#[test]
fn what_a_file_of_patterns_matches_is_left_out() {
    let folder = places();
    let path = folder.path();
    ok(path, &format!("{VAULT} init"));
    fs::write(
        path.join("patterns"),
        b"# a remark\n\n  da*  \r\nst\xFFrange\n",
    )
    .expect("patterns");
    fs::write(
        path.join("srv/games")
            .join(OsStr::from_bytes(b"st\xFFrange")),
        "x",
    )
    .expect("a file");
    ok(
        path,
        &format!("{VAULT} add --exclude-file patterns /srv/games"),
    );
    let top = "latest:/srv/games";
    assert_eq!(ok(path, &format!("{VAULT} ls {top}")), "/one\n/text\n");
    fs::write(path.join("patterns"), "text").expect("patterns");
    ok(
        path,
        &format!("{VAULT} restore {top} --target /back --exclude-file patterns"),
    );
    assert!(path.join("back/one").is_dir() && !path.join("back/text").exists());
    fs::write(path.join("patterns"), "*\n!text\n").expect("patterns");
    let said = ends(
        path,
        &format!("{VAULT} add --exclude-file patterns /srv/games"),
        1,
    );
    assert!(said.contains("takes nothing back"), "{said}");
}

#[test]
fn variables_stand_in_for_options() {
    let folder = places();
    let path = folder.path();
    let check = |line: &str, variables: &[(&str, &str)], code: i32| {
        let output = run_with(path, line, variables);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {said}");
    };
    let both = [
        ("BREAKEVEN_REPOSITORY", "backup/games"),
        ("BREAKEVEN_PASSWORD_FILE", "password.txt"),
    ];
    check("breakeven vault init", &both, 0);
    check("breakeven vault list", &both, 0);
    // What is typed counts more.
    check("breakeven vault -r /none list", &both, 1);
    check("breakeven vault -p second.txt list", &both, 1);
    let other = "breakeven vault --password-command=head<second.txt list";
    check(other, &both, 1);
    // A parent that ignores the signal hands that down, and the system forgets the child that prints the password.
    let script = r#"exec "$0" vault -r backup/games --password-command 'cat password.txt' list"#;
    let mut ignoring = Command::new("env");
    ignoring.args(["--ignore-signal=CHLD", "bash", "-c", script]);
    let ignoring = ignoring.arg(env!("CARGO_BIN_EXE_breakeven"));
    let listed = ignoring.current_dir(path).output().expect("bash starts");
    assert!(listed.status.success(), "{listed:?}");
    check("breakeven vault list", &both[1..], 2);
    check(
        "breakeven vault list",
        &[("BREAKEVEN_REPOSITORY", ""), both[1]],
        2,
    );
}
