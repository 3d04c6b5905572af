//! One transaction over plain and compressed databases. Killed before every call by which SQLite's own VFS changes a file, it
//! leaves each database as it was or as it is to be, by itself. What of it failed leaves no part, and nobody sees one before
//! all are durable.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;

use super::hosts::{Hosts, is_full, left_out};

/// The databases of a case: the main one first, each with its VFS.
type Case = [(&'static str, &'static str); 3];

/// The super-journal lies beside the main one.
const CASES: [Case; 3] = [
    [("a", "breakeven"), ("b", "unix"), ("c", "breakeven")],
    [("a", "unix"), ("b", "breakeven"), ("c", "unix")],
    [("a", "breakeven"), ("b", "unix"), ("c", "unix")],
];

/// Fewer calls than that, and there was no super-journal.
const CALLS_MIN: u64 = 10;

fn compile(hosts: &Hosts) -> bool {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/attach/die.c");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-o"]);
    let done = compiler
        .arg(hosts.path("die.so"))
        .arg(source)
        .args(["-ldl"])
        .status();
    match done {
        Ok(status) => {
            assert!(status.success());
            true
        }
        Err(_) => {
            left_out("no C compiler: no transaction over several files is killed");
            false
        }
    }
}

/// Opens the databases of a case.
fn opened(case: &Case) -> String {
    let [(main, vfs), rest @ ..] = case;
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

/// What of each database is said: that it is whole, and its value.
const ASK: &str = "schemas = [row[1] for row in d.execute('PRAGMA database_list')]\n\
    for it in schemas:\n\
    \x20   assert d.execute(f'PRAGMA {it}.integrity_check').fetchall() == [('ok',)]\n\
    \x20   print(d.execute(f'SELECT min(n), max(n), count(*) FROM {it}.t').fetchone())";

fn kill_at(hosts: &Hosts, case: &Case, number: u64) -> (bool, Vec<String>) {
    for (name, _) in case {
        fs::copy(
            hosts.path(&format!("{name}.made")),
            hosts.path(&format!("{name}.db")),
        )
        .unwrap();
    }
    fs::write(hosts.path("start"), b"").unwrap();
    let change = "schemas = [row[1] for row in d.execute('PRAGMA database_list')]\n\
        d.execute('BEGIN')\n\
        for it in schemas: d.execute(f'UPDATE {it}.t SET n = n + 1')\n\
        os.unlink('start')\n\
        d.execute('COMMIT')\n\
        os._exit(7)";
    let preloaded = [
        ("LD_PRELOAD", "./die.so".to_owned()),
        ("DIE_AT", number.to_string()),
    ];
    let status = hosts.python_with(&(opened(case) + change), &preloaded);
    let said = hosts.python(&(opened(case) + ASK));
    (status == Some(7), said.lines().map(str::to_owned).collect())
}

#[test]
fn a_transaction_over_several_files_that_is_killed_leaves_each_old_or_new() {
    let Some(hosts) = Hosts::find() else { return };
    if !compile(&hosts) {
        return;
    }
    let (mut kills, mut mixed) = (0, 0);
    // The first has what is special: two that are compressed, and the super-journal beside one.
    let cases = if is_full() { &CASES[..] } else { &CASES[..1] };
    for case in cases {
        let fill = "for it in [row[1] for row in d.execute('PRAGMA database_list')]:\n\
            \x20   d.execute(f'CREATE TABLE {it}.t(n INTEGER, pad TEXT)')\n\
            \x20   d.executemany(f'INSERT INTO {it}.t VALUES(1, ?)', [('x' * 500,)] * 100)\n\
            d.close()";
        hosts.python(&(opened(case) + fill));
        for (name, _) in case {
            fs::rename(
                hosts.path(&format!("{name}.db")),
                hosts.path(&format!("{name}.made")),
            )
            .unwrap();
        }
        let mut number = 0;
        loop {
            number += 1;
            let (is_done, said) = kill_at(&hosts, case, number);
            let is_new: Vec<bool> = said.iter().map(|line| line == "(2, 2, 100)").collect();
            let is_whole = said
                .iter()
                .all(|line| ["(1, 1, 100)", "(2, 2, 100)"].contains(&line.as_str()));
            assert!(
                is_whole && said.len() == case.len(),
                "{case:?}, call {number}: {said:?}"
            );
            let of = |vfs| {
                case.iter()
                    .zip(&is_new)
                    .filter(move |((_, it), _)| *it == vfs)
            };
            let (mut plain, mut ours) = (of("unix").map(|it| it.1), of("breakeven").map(|it| it.1));
            // Plain ones are together by the super-journal, and follow when ours are final.
            let first = plain.next().unwrap();
            assert!(
                plain.all(|it| it == first),
                "{case:?}, call {number}: {said:?}"
            );
            assert!(
                !first || ours.all(|it| *it),
                "{case:?}, call {number}: {said:?}"
            );
            mixed += u64::from(is_new.contains(&true) && is_new.contains(&false));
            if is_done {
                assert!(is_new.iter().all(|it| *it), "{said:?}");
                break;
            }
        }
        assert!(number > CALLS_MIN, "{number}");
        kills += number - 1;
        for (name, _) in case {
            fs::remove_file(hosts.path(&format!("{name}.db"))).unwrap();
        }
    }
    println!("{kills} kills, {mixed} with some databases old and others new");
}

/// Tries to commit over two databases, the second of which is plain, until that is done.
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
    let preloaded = [("LD_PRELOAD", "./die.so"), ("HOLD", "/b.db")];
    let mut child = hosts.start_python_with(&program, &preloaded);
    let mut input = child.stdin.take().expect("a pipe");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let (mut said, mut syncs) = (Vec::new(), 0);
    for line in output.lines().map_while(Result::ok) {
        if line == "sync" {
            // What is first in the transaction is durable by now.
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
