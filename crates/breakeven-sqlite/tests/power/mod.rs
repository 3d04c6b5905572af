//! Power cuts on real file systems, with a writer and readers at work. Acknowledged transactions are there, and nothing
//! is half there. Needs root.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Child;

use super::hosts::{Hosts, is_full, is_root_test, kill};
use super::mounted::{Mounted, run};

/// Power cuts of a file system in every run of the tests, and in a long one.
const CUTS: [u64; 2] = [8, 100];

/// Numbers its transactions, tells of each that was acknowledged, and ends when the file fails.
const WRITER: &str = "d = connect(sys.stdin.readline().strip())\n\
    d.isolation_level = None\n\
    d.execute('PRAGMA cache_size=20')\n\
    d.execute('CREATE TABLE IF NOT EXISTS t(n INTEGER, pad TEXT)')\n\
    n = d.execute('SELECT coalesce(max(n), 0) FROM t').fetchone()[0]\n\
    try:\n\
    \x20   while True:\n\
    \x20       n += 1\n\
    \x20       d.execute('BEGIN IMMEDIATE')\n\
    \x20       d.executemany('INSERT INTO t VALUES(?, ?)', [(n, f'row {n} ' * (i % 60)) for i in range(50)])\n\
    \x20       d.execute('DELETE FROM t WHERE n <= ?', (n - 6,))\n\
    \x20       d.execute('COMMIT')\n\
    \x20       print(n, flush=True)\n\
    except sqlite3.Error: pass";

/// Reads as long as it can; prints how often, and the reads that were not whole.
const READER: &str = "d = connect(sys.stdin.readline().strip())\n\
    d.isolation_level = None\n\
    count = 0\n\
    try:\n\
    \x20   while True:\n\
    \x20       found = d.execute('SELECT n, count(*), sum(length(pad)) FROM t GROUP BY n ORDER BY n').fetchall()\n\
    \x20       numbers = [n for n, _, _ in found]\n\
    \x20       if len(found) > 6 or any(rows != 50 for _, rows, _ in found) or numbers != list(range(numbers[0], numbers[0] + len(numbers))):\n\
    \x20           print('wrong', found, flush=True)\n\
    \x20       count += 1\n\
    \x20       print('.', end='', flush=True)\n\
    except sqlite3.Error: pass";

fn start(hosts: &Hosts, program: &str, database: &Path) -> Child {
    let mut child = hosts.start_python(program);
    let mut input = child.stdin.take().expect("a pipe");
    writeln!(input, "{}", database.display()).unwrap();
    child
}

/// Lets them work until some transactions were acknowledged and the readers read, and cuts the power; returns the last
/// transaction that was.
fn cut_while_at_work(hosts: &Hosts, mounted: &Mounted, database: &Path, transactions: u64) -> u64 {
    let mut writer = start(hosts, WRITER, database);
    let lines = BufReader::new(writer.stdout.take().expect("a pipe")).lines();
    let mut numbers = lines.map_while(|line| line.ok()?.parse().ok());
    let mut acknowledged = numbers.next().expect("a transaction");
    let mut readers = [(); 2].map(|()| start(hosts, READER, database));
    for reader in &mut readers {
        let output = reader.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut [0; 2]).expect("two reads");
    }
    for _ in 0..transactions {
        acknowledged = numbers.next().expect("a transaction");
    }
    mounted.stop();
    kill(&mut writer);
    acknowledged = numbers.last().unwrap_or(acknowledged);
    for mut reader in readers {
        kill(&mut reader);
        let mut said = String::new();
        let output = reader.stdout.as_mut().expect("a pipe");
        output.read_to_string(&mut said).unwrap();
        assert!(!said.contains("wrong"), "{said}");
    }
    mounted.restart();
    acknowledged
}

fn check(hosts: &Hosts, database: &Path, acknowledged: u64) {
    let found = hosts.sqlite(&format!(
        ".open file:{}?vfs=breakeven\n\
         PRAGMA integrity_check;\nPRAGMA breakeven_verify;\n\
         SELECT max(n), count(*), count(DISTINCT n) FROM t;",
        database.display()
    ));
    let newest = [acknowledged, acknowledged + 1];
    let expected = newest.map(|n| format!("ok\nok\n{n}|{}|{}\n", 50 * n.min(6), n.min(6)));
    assert!(expected.contains(&found), "{found} after {acknowledged}");
}

#[test]
fn root_no_power_cut_on_ext4_or_xfs_loses_an_acknowledged_transaction() {
    let Some(hosts) = Hosts::find().filter(|_| is_root_test()) else {
        return;
    };
    let cuts = CUTS[usize::from(is_full())];
    let mut random = fastrand::Rng::with_seed(20_141_006);
    // The journal must not be committed by the clock, or nothing might be lost on a slow machine.
    let systems = [
        ("ext4", 64 << 20, "loop,commit=300"),
        ("xfs", 320 << 20, "loop"),
    ];
    for (system, bytes, options) in systems {
        let image = hosts.path(system);
        File::create(&image).unwrap().set_len(bytes).unwrap();
        run(&format!("mkfs.{system}"), &[Path::new("-q"), &image]);
        let mounted = Mounted::new(&["-o", options, image.to_str().unwrap()]);
        let database = mounted.path().join("app.db");
        let mut acknowledged = 0;
        for _ in 0..cuts {
            let transactions = random.u64(1..30);
            acknowledged = cut_while_at_work(&hosts, &mounted, &database, transactions);
            check(&hosts, &database, acknowledged);
        }
        println!("{system}: {cuts} power cuts within {acknowledged} transactions");
        assert!(acknowledged > cuts);
    }
}
