//! One transaction over plain and compressed databases. It is killed before every call by which SQLite's own VFS or
//! ours changes a file. It leaves all databases as they were or all as they are to be, in any order of opening. A
//! failed one leaves no part, and nobody sees one before all are durable.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;

use super::hosts::{Hosts, is_full, left_out};

/// The databases of a case: the main one first, each with its VFS.
type Case = [(&'static str, &'static str)];

/// The super-journal lies beside the main one.
const CASES: [&Case; 4] = [
    &[("a", "breakeven"), ("b", "unix"), ("c", "breakeven")],
    &[("a", "breakeven"), ("b", "breakeven")],
    &[("a", "unix"), ("b", "breakeven"), ("c", "unix")],
    &[("a", "breakeven"), ("b", "unix"), ("c", "unix")],
];

/// The calls by which a file is changed, or its name.
const CALLS: &str = "?pwrite64,?pwritev,?pwritev2,?write,?fdatasync,?fsync,?ftruncate,?fallocate,?openat,?unlink,?unlinkat";
/// Fewer calls than that, and there was no super-journal.
const CALLS_MIN: usize = 20;

fn compile(hosts: &Hosts) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attach/hold.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
    let done = compiler
        .arg(hosts.path("hold.so"))
        .arg(source)
        .args(["-ldl"])
        .status();
    match done {
        Ok(status) => {
            assert!(status.success());
            true
        }
        Err(_) => {
            left_out("no C compiler: no sync of a transaction over several files is held");
            false
        }
    }
}

/// Opens the databases of a case.
fn opened(case: &Case) -> String {
    let [(main, vfs), rest @ ..] = case else {
        panic!("a case has databases")
    };
    let mut program = format!(
        "d = sqlite3.connect('file:{main}.db?vfs={vfs}', uri=True)\n\
         d.isolation_level = None\n"
    );
    for (name, vfs) in rest {
        program.push_str(&format!(
            "d.execute(\"ATTACH 'file:{name}.db?vfs={vfs}' AS {name}\")\n"
        ));
    }
    program
}

/// The report on each database: that it is whole, and its value.
const ASK: &str = "schemas = [row[1] for row in d.execute('PRAGMA database_list')]\n\
    for it in schemas:\n\
    \x20   assert d.execute(f'PRAGMA {it}.integrity_check').fetchall() == [('ok',)]\n\
    \x20   print(d.execute(f'SELECT min(n), max(n), count(*) FROM {it}.t').fetchone())";

/// One of the calls of a commit: which one of its kind of the process.
struct CommitCall {
    kind: String,
    number: usize,
}

/// Changes all databases in one transaction, with `start` removed before its end.
const CHANGE: &str = "schemas = [row[1] for row in d.execute('PRAGMA database_list')]\n\
    d.execute('BEGIN')\n\
    for it in schemas: d.execute(f'UPDATE {it}.t SET n = n + 1')\n\
    os.unlink('start')\n\
    d.execute('COMMIT')\n\
    os._exit(7)";

/// Puts the databases of a case back as they were made.
fn put_back(hosts: &Hosts, case: &Case) {
    for (name, _) in case {
        let made = hosts.path(&format!("{name}.made"));
        fs::copy(made, hosts.path(&format!("{name}.db"))).unwrap();
    }
    fs::write(hosts.path("start"), b"").unwrap();
}

/// Returns the calls of a whole commit.
fn calls_of(hosts: &Hosts, case: &Case) -> Vec<CommitCall> {
    put_back(hosts, case);
    let trace = format!("trace={CALLS}");
    let around = ["strace", "-o", "calls", "-e", &trace];
    let status = hosts.python_under(&around, &(opened(case) + CHANGE));
    assert_eq!(status, Some(7));
    let lines = fs::read_to_string(hosts.path("calls")).unwrap();
    let (mut numbers, mut calls, mut is_begun) = (HashMap::new(), Vec::new(), false);
    for line in lines.lines().filter(|line| line.contains('(')) {
        let kind = line.split('(').next().unwrap().to_owned();
        let number = numbers.entry(kind.clone()).or_insert(0);
        *number += 1;
        let changes = kind != "openat" || line.contains("O_CREAT");
        if is_begun && changes {
            let number = *number;
            calls.push(CommitCall { kind, number });
        }
        is_begun |= line.contains("\"start\"");
    }
    calls
}

/// Opens a database by itself.
fn open_alone((name, vfs): &(&str, &str)) -> String {
    format!(
        "d = sqlite3.connect('file:{name}.db?vfs={vfs}', uri=True)\n\
         assert d.execute('PRAGMA integrity_check').fetchall() == [('ok',)]\n\
         d.close()\n"
    )
}

/// Kills a commit before one of its calls; returns what of each database is said then.
fn kill_before(hosts: &Hosts, case: &Case, call: &CommitCall, order: usize) -> Vec<String> {
    put_back(hosts, case);
    let inject = format!("inject={}:signal=KILL:when={}", call.kind, call.number);
    let around = ["strace", "-o", "/dev/null", "-e", &inject];
    let status = hosts.python_under(&around, &(opened(case) + CHANGE));
    assert_eq!(status, None, "{} {}", call.kind, call.number);
    let before: String = match order % 3 {
        0 => String::new(),
        1 => case.iter().map(open_alone).collect(),
        _ => case.iter().rev().map(open_alone).collect(),
    };
    let said = hosts.python(&(before + &opened(case) + ASK));
    // SQLite itself may leave an empty one.
    for (name, _) in case.iter().filter(|(_, vfs)| *vfs == "breakeven") {
        let journal = hosts.path(&format!("{name}.db-journal"));
        assert!(!journal.exists(), "{case:?}, {}: {name}", call.kind);
    }
    said.lines().map(str::to_owned).collect()
}

#[test]
fn a_transaction_over_several_files_that_is_killed_leaves_all_old_or_all_new() {
    let Some(hosts) = Hosts::find() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return left_out("no strace: no transaction over several files is killed");
    }
    let (mut kills, mut new) = (0, 0);
    // The first two have what is special: two that are compressed, with a plain one and without.
    let cases = if is_full() { &CASES[..] } else { &CASES[..2] };
    for case in cases {
        let fill = "for it in [row[1] for row in d.execute('PRAGMA database_list')]:\n\
            \x20   d.execute(f'CREATE TABLE {it}.t(n INTEGER, pad TEXT)')\n\
            \x20   d.executemany(f'INSERT INTO {it}.t VALUES(1, ?)', [('x' * 500,)] * 100)\n\
            d.close()";
        hosts.python(&(opened(case) + fill));
        for (name, _) in *case {
            let made = hosts.path(&format!("{name}.made"));
            fs::rename(hosts.path(&format!("{name}.db")), made).unwrap();
        }
        let calls = calls_of(&hosts, case);
        assert!(calls.len() > CALLS_MIN, "{}", calls.len());
        for (order, call) in calls.iter().enumerate() {
            let said = kill_before(&hosts, case, call, order);
            let states = ["(1, 1, 100)", "(2, 2, 100)"];
            let state = states.iter().position(|state| said[0] == *state);
            let is_together = said.iter().all(|it| *it == said[0]) && said.len() == case.len();
            assert!(
                state.is_some() && is_together,
                "{case:?}, before {} {}, opened in order {order}: {said:?}",
                call.kind,
                call.number
            );
            new += state.unwrap();
        }
        kills += calls.len();
        for (name, _) in *case {
            fs::remove_file(hosts.path(&format!("{name}.db"))).unwrap();
        }
    }
    println!("{kills} kills, {new} behind the commit");
    assert!(new > 0 && new < kills, "{new} of {kills}");
}

/// Makes a plain and a compressed database of a transaction that was killed just before its commit, or just behind it.
fn leave_undecided(hosts: &Hosts, case: &Case, is_committed: bool) {
    leave_undecided_beside(hosts, case, is_committed, || {});
}

/// As [`leave_undecided`], behind what `before` does with the databases as they were.
fn leave_undecided_beside<T>(
    hosts: &Hosts,
    case: &Case,
    is_committed: bool,
    before: impl FnOnce() -> T,
) -> T {
    let calls = calls_of(hosts, case);
    let removed = calls
        .iter()
        .position(|call| call.kind.starts_with("unlink"));
    let at = removed.expect("a super-journal") + usize::from(is_committed);
    kill_beside(hosts, case, &calls[at], before)
}

/// Kills a commit before one of its calls, behind what `before` does with the databases as they were.
fn kill_beside<T>(
    hosts: &Hosts,
    case: &Case,
    CommitCall { kind, number }: &CommitCall,
    before: impl FnOnce() -> T,
) -> T {
    put_back(hosts, case);
    let begun = before();
    let inject = format!("inject={kind}:signal=KILL:when={number}");
    let around = ["strace", "-o", "/dev/null", "-e", &inject];
    let status = hosts.python_under(&around, &(opened(case) + CHANGE));
    assert_eq!(status, None);
    begun
}

fn names_of(folder: &Path, part: &str) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(part)).collect()
}

/// A compressed database, and a plain one that is a part of the same transaction.
const TWO: [(&str, &str); 2] = [("a", "breakeven"), ("b", "unix")];

/// Makes these two.
fn make_two(hosts: &Hosts) {
    make(hosts, &TWO);
}

/// Makes two databases of a case.
fn make(hosts: &Hosts, case: &Case) {
    hosts.python(
        &(opened(case)
            + "for it in ['main', 'b']:\n\
            \x20   d.execute(f'CREATE TABLE {it}.t(n INTEGER)')\n\
            \x20   d.execute(f'INSERT INTO {it}.t VALUES(1)')\n\
            d.close()"),
    );
    for (name, _) in case {
        let made = hosts.path(&format!("{name}.made"));
        fs::rename(hosts.path(&format!("{name}.db")), made).unwrap();
    }
}

#[test]
fn a_database_whose_transaction_is_undecided_is_read_moved_and_opened_by_several() {
    let Some(hosts) = Hosts::find() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return left_out("no strace: no transaction over several files is killed");
    }
    make_two(&hosts);
    let ours = |uri: &str| hosts.sqlite(&format!(".open file:{uri}\nSELECT n FROM t;"));
    let plain = || hosts.sqlite_alone(".open b.db\nSELECT n FROM t;");
    for (is_committed, expected) in [(false, "1\n"), (true, "2\n")] {
        let left = || usize::from(!is_committed);
        // A connection that may only read sees the state to come, and changes nothing.
        leave_undecided(&hosts, &TWO, is_committed);
        assert_eq!(names_of(hosts.folder(), "-mj").len(), left());
        let before = fs::read(hosts.path("a.db")).unwrap();
        assert_eq!(ours("a.db?vfs=breakeven&mode=ro"), expected);
        assert_eq!(fs::read(hosts.path("a.db")).unwrap(), before);
        assert_eq!(names_of(hosts.folder(), "a.db-journal").len(), 1);
        // Two at once, and then the plain one by a SQLite that knows nothing of this.
        let ask = "d = connect('a.db')\nprint(d.execute('SELECT n FROM t').fetchone()[0])";
        let both = [(); 2].map(|()| hosts.start_python(ask));
        for child in both {
            let output = child.wait_with_output().unwrap();
            // While one of them ends the transaction the other one sees what was before.
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(said == "1\n" || said == expected, "{said}");
        }
        assert_eq!(ours("a.db?vfs=breakeven"), expected);
        assert!(names_of(hosts.folder(), "a.db-journal").is_empty());
        assert_eq!(names_of(hosts.folder(), "-mj").len(), left());
        assert_eq!(
            (plain().as_str(), names_of(hosts.folder(), "-mj").len()),
            (expected, 0)
        );
        // The plain one first: it leaves the super-journal to the other.
        leave_undecided(&hosts, &TWO, is_committed);
        assert_eq!(plain(), expected);
        assert_eq!(names_of(hosts.folder(), "-mj").len(), left());
        // In another folder it knows the super-journal still, and has no journal to remove.
        fs::create_dir_all(hosts.path("moved")).unwrap();
        fs::rename(hosts.path("a.db"), hosts.path("moved/a.db")).unwrap();
        assert_eq!(ours("moved/a.db?vfs=breakeven"), expected);
        for name in names_of(hosts.folder(), "-mj") {
            fs::remove_file(hosts.path(&name)).unwrap();
        }
        assert_eq!(ours("moved/a.db?vfs=breakeven"), expected);
        let _ = fs::remove_file(hosts.path("a.db-journal"));
    }
}

/// The plain one is looked at first, in a process that has the other one open from before, by the same VFS.
#[test]
fn an_open_database_whose_transaction_is_undecided_is_not_forgotten() {
    let Some(hosts) = Hosts::find() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return left_out("no strace: no transaction over several files is killed");
    }
    make_two(&hosts);
    for (is_committed, expected) in [(false, "1"), (true, "2")] {
        let (mut child, mut lines) = leave_undecided_beside(&hosts, &TWO, is_committed, || {
            let mut child = hosts.start_python(
                "a, b = connect('a.db'), connect('b.db')\n\
                 ask = lambda d: print(d.execute('SELECT n FROM t').fetchone()[0], flush=True)\n\
                 ask(a); ask(b); sys.stdin.readline(); ask(b); ask(a)",
            );
            let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            let said = [
                lines.next().unwrap().unwrap(),
                lines.next().unwrap().unwrap(),
            ];
            assert_eq!(said, ["1"; 2]);
            (child, lines)
        });
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"\n").unwrap();
        let said = [
            lines.next().unwrap().unwrap(),
            lines.next().unwrap().unwrap(),
        ];
        assert_eq!(said, [expected; 2]);
        assert!(child.wait().unwrap().success());
    }
}

/// A connection from before the kill looks after the journal as SQLite does: when it reads next.
#[test]
fn a_process_that_had_the_databases_open_removes_what_a_killed_one_left() {
    let Some(hosts) = Hosts::find() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return left_out("no strace: no transaction over several files is killed");
    }
    let case: [(&str, &str); 2] = [("a", "breakeven"), ("b", "breakeven")];
    make(&hosts, &case);
    let (mut left, mut kills) = (0, 0);
    let journals = || names_of(hosts.folder(), ".db-journal").len();
    for call in calls_of(&hosts, &case) {
        let (mut child, mut lines) = kill_beside(&hosts, &case, &call, || {
            let mut child = hosts.start_python(
                "both = [connect(it) for it in ('a.db', 'b.db')]\n\
                 def ask(): print(*[d.execute('SELECT n FROM t').fetchone()[0] for d in both], flush=True)\n\
                 ask(); sys.stdin.readline(); ask()\n\
                 sys.stdin.readline()",
            );
            let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "1 1");
            (child, lines)
        });
        left += journals();
        kills += 1;
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(b"\n").unwrap();
        let said = lines.next().unwrap().unwrap();
        let is_together = ["1 1", "2 2"].contains(&said.as_str());
        assert!(is_together, "before {} {}: {said}", call.kind, call.number);
        assert_eq!(journals(), 0, "before {} {}", call.kind, call.number);
        drop(input);
        assert!(child.wait().unwrap().success());
        for name in names_of(hosts.folder(), "-mj") {
            fs::remove_file(hosts.path(&name)).unwrap();
        }
    }
    println!("{kills} kills, which left {left} journals");
    assert!(left > 0);
}

/// The super-journal is gone, but its folder cannot be synced: SQLite tells of a COMMIT that failed, and keeps it.
#[test]
fn a_commit_whose_super_journal_is_gone_is_kept_by_all() {
    let Some(hosts) = Hosts::find() else { return };
    if !compile(&hosts) {
        return;
    }
    let made = "CREATE TABLE t(n); INSERT INTO t VALUES(1);";
    hosts.sqlite(&format!(".open file:a.db?vfs=breakeven\n{made}"));
    hosts.sqlite_alone(&format!(".open b.db\n{made}"));
    let program = "d = connect('a.db')\n\
        d.isolation_level = None\n\
        d.execute(\"ATTACH 'file:b.db?vfs=unix' AS b\")\n\
        try:\n\
        \x20   d.execute('BEGIN')\n\
        \x20   for it in ['main', 'b']: d.execute(f'UPDATE {it}.t SET n = n + 1')\n\
        \x20   d.execute('COMMIT')\n\
        \x20   print('done', flush=True)\n\
        except sqlite3.Error:\n\
        \x20   if d.in_transaction: d.execute('ROLLBACK')\n\
        \x20   print('failed', flush=True)\n\
        for it in ['main', 'b']: print(d.execute(f'SELECT n FROM {it}.t').fetchone()[0], flush=True)";
    let folder = hosts.folder().canonicalize().unwrap();
    let hold = folder.to_str().unwrap();
    let preloaded = [("LD_PRELOAD", "./hold.so"), ("HOLD", hold)];
    let mut child = hosts.start_python_with(program, &preloaded);
    let mut input = child.stdin.take().expect("a pipe");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut said = Vec::new();
    for line in output.lines().map_while(Result::ok) {
        if line == "sync" {
            // The one behind the removal.
            let is_gone = names_of(&folder, "-mj").is_empty();
            input.write_all(if is_gone { b"f" } else { b"o" }).unwrap();
        } else {
            said.push(line);
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(said, ["failed", "2", "2"]);
    assert_eq!(
        hosts.sqlite(".open file:a.db?vfs=breakeven\nSELECT n FROM t;"),
        "2\n"
    );
}

/// Tries to commit over two databases, a compressed and a plain one, until that is done.
const TRY: &str = "for _ in range(2):\n\
    \x20   try:\n\
    \x20       d.execute('BEGIN')\n\
    \x20       for it in ['main', 'b']: d.execute(f'UPDATE {it}.t SET n = n + 1')\n\
    \x20       d.execute('COMMIT')\n\
    \x20       print('done', flush=True)\n\
    \x20   except sqlite3.Error:\n\
    \x20       if d.in_transaction: d.execute('ROLLBACK')\n\
    \x20       print('failed', flush=True)\n\
    print(d.execute('SELECT max(n) FROM main.t').fetchone()[0], flush=True)";

#[test]
fn no_part_of_a_transaction_over_several_files_is_seen_before_all_are_durable() {
    let Some(hosts) = Hosts::find() else { return };
    if !compile(&hosts) {
        return;
    }
    let made = "CREATE TABLE t(n); INSERT INTO t VALUES(1);";
    hosts.sqlite(&format!(".open file:a.db?vfs=breakeven\n{made}"));
    hosts.sqlite_alone(&format!(".open b.db\n{made}"));
    let seen = || hosts.sqlite(".open file:a.db?vfs=breakeven\nSELECT n FROM t;");
    let program = "d = connect('a.db')\n\
        d.isolation_level = None\n\
        d.execute(\"ATTACH 'file:b.db?vfs=unix' AS b\")\n"
        .to_owned()
        + TRY;
    let preloaded = [("LD_PRELOAD", "./hold.so"), ("HOLD", "/b.db")];
    let mut child = hosts.start_python_with(&program, &preloaded);
    let mut input = child.stdin.take().expect("a pipe");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut said, mut syncs) = (Vec::new(), 0);
    for line in output.lines().map_while(Result::ok) {
        if line == "sync" {
            // The first file of the transaction is durable by now.
            assert_eq!(seen(), "1\n", "within the sync {syncs}");
            let answer = if syncs == 0 { b"f" } else { b"o" };
            syncs += 1;
            input.write_all(answer).unwrap();
        } else {
            let expected = if line == "failed" { "1\n" } else { "2\n" };
            assert_eq!(seen(), expected, "{line}");
            said.push(line);
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(said, ["failed", "done", "2"]);
    assert!(syncs > 1, "{syncs}");
}
