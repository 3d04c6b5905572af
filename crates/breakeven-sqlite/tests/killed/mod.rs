//! One of two processes is killed while both write: what was acknowledged is there, and nothing is half there.

use std::io::{BufRead, BufReader, Write};
use std::process::Child;

use super::hosts::{Hosts, is_full, kill};

/// How often in every run of the tests, and in a long one.
const KILLS: [u64; 2] = [20, 200];

/// Writes transactions of many rows, as long as somebody reads what it prints: a number when its transaction
/// has been acknowledged.
const WRITER: &str = "d = connect('app.db')\n\
    d.isolation_level = None\n\
    d.execute('PRAGMA cache_size=20')\n\
    who = sys.stdin.readline().strip()\n\
    n = d.execute('SELECT coalesce(max(n), 0) FROM t WHERE who = ?', (who,)).fetchone()[0]\n\
    while True:\n\
    \x20   n += 1\n\
    \x20   d.execute('BEGIN IMMEDIATE')\n\
    \x20   d.executemany('INSERT INTO t VALUES(?, ?, ?)', [(who, n, f'{who} wrote {n} ' * (i % 40)) for i in range(50)])\n\
    \x20   if n > 5:\n\
    \x20       d.execute('DELETE FROM t WHERE who = ? AND n < ?', (who, n - 5))\n\
    \x20   d.execute('COMMIT')\n\
    \x20   print(n, flush=True)";

fn start(hosts: &Hosts, who: &str) -> (Child, impl Iterator<Item = u64> + use<>) {
    let mut child = hosts.start_python(WRITER);
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "{who}").unwrap();
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let numbers = lines.map_while(|line| line.ok()?.parse().ok());
    (child, numbers)
}

#[test]
fn kill_of_one_of_two_writers_loses_nothing_acknowledged() {
    let Some(hosts) = Hosts::find() else { return };
    let mut random = fastrand::Rng::with_seed(20_141_005);
    let kills = KILLS[usize::from(is_full())];
    hosts.python("connect('app.db').execute('CREATE TABLE t(who TEXT, n INTEGER, pad TEXT)')");
    let (mut acknowledged, mut transactions) = ([0; 2], 0);
    for _ in 0..kills {
        let mut running = ["one", "two"].map(|who| start(&hosts, who));
        // The first is killed after some transactions of its own, at any moment of the next. The test waits for the
        // other until it has written after that.
        for _ in 0..random.u64(1..6) {
            acknowledged[0] = running[0].1.next().expect("a transaction");
        }
        kill(&mut running[0].0);
        acknowledged[0] = (running[0].1).by_ref().last().unwrap_or(acknowledged[0]);
        for _ in 0..2 {
            acknowledged[1] = running[1].1.next().expect("a transaction after the kill");
        }
        kill(&mut running[1].0);
        acknowledged[1] = (running[1].1).by_ref().last().unwrap_or(acknowledged[1]);
        check(&hosts, acknowledged);
        transactions = acknowledged.iter().sum();
    }
    println!(
        "{} processes killed within {transactions} transactions",
        2 * kills
    );
    assert!(transactions >= 3 * kills);
}

fn check(hosts: &Hosts, acknowledged: [u64; 2]) {
    let found = hosts.sqlite(
        ".open file:app.db?vfs=breakeven\n\
         PRAGMA integrity_check;\nPRAGMA breakeven_verify;\n\
         SELECT who, max(n), count(*) FROM t GROUP BY who ORDER BY who;\n\
         SELECT count(*) FROM (SELECT 1 FROM t GROUP BY who, n HAVING count(*) <> 50);",
    );
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!((lines[0], lines[1], lines[4]), ("ok", "ok", "0"), "{found}");
    for (line, acknowledged) in lines[2..4].iter().zip(acknowledged) {
        let fields: Vec<&str> = line.split('|').collect();
        let newest: u64 = fields[1].parse().unwrap();
        // The running one may have been committed without an answer.
        assert!(
            (acknowledged..=acknowledged + 1).contains(&newest),
            "{line}, told {acknowledged}"
        );
        let rows: u64 = fields[2].parse().unwrap();
        assert_eq!(rows, 50 * newest.min(6), "{line}");
    }
}
