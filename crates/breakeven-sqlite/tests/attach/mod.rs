//! One transaction over plain and compressed databases, killed before every call by which SQLite's own VFS changes a file:
//! each database is as it was or as it is to be, by itself.

use std::fs;
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
