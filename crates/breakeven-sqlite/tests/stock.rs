//! The extension in stock hosts: Debian's `sqlite3` and Python, in processes of their own.

mod attach;
mod files;
mod hosts;
mod killed;
#[path = "../../breakeven/tests/outside/mounted.rs"]
mod mounted;
mod moved;
mod parameters;
mod plain;
mod power;
mod random;
mod sentences;
mod suite;
mod surroundings;
mod turns;
mod ways;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;

use breakeven::pages::{Connection, LockLevel, PageOptions, PageStore};
use breakeven::storage::RealStorage;
use hosts::{Hosts, sh};

const OPEN: &str = ".open file:app.db?vfs=breakeven\n";
const OPEN_SMALL: &str = ".open file:small.db?vfs=breakeven\n";

/// Returns a block of the guide, by the word behind its first three ticks.
fn guide(language: &str) -> String {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sqlite.md");
    let guide = fs::read_to_string(guide).unwrap();
    let (_, rest) = guide.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

#[test]
fn two_hosts_write_and_read_one_compressed_file() {
    let Some(hosts) = Hosts::find() else { return };
    let made = "CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT); INSERT INTO t(b) VALUES('shell');";
    hosts.sqlite(&format!("{OPEN}{made}"));
    let found = hosts.python(
        "d = connect('app.db')\n\
         d.execute(\"INSERT INTO t(b) VALUES('python')\")\n\
         d.commit()\n\
         print(d.execute('SELECT group_concat(b) FROM t').fetchone()[0])",
    );
    assert_eq!(found, "shell,python\n");
    let checks = "PRAGMA integrity_check; PRAGMA breakeven_verify; SELECT count(*) FROM t;";
    assert_eq!(hosts.sqlite(&format!("{OPEN}{checks}")), "ok\nok\n2\n");
    let bytes = fs::read(hosts.path("app.db")).unwrap();
    assert!(!bytes.starts_with(b"SQLite format 3"));
    let refused = hosts.sqlite_fails(".open app.db\nSELECT * FROM t;");
    assert!(refused.contains("not a database"), "{refused}");
}

#[test]
fn two_processes_write_at_the_same_time() {
    let Some(hosts) = Hosts::find() else { return };
    let program = "d = connect('app.db')\n\
        d.isolation_level = None\n\
        d.execute('CREATE TABLE IF NOT EXISTS t(n INTEGER, pad TEXT)')\n\
        for i in range(150):\n\
        \x20   d.execute('BEGIN IMMEDIATE')\n\
        \x20   n = d.execute('SELECT count(*) FROM t').fetchone()[0]\n\
        \x20   d.execute('INSERT INTO t VALUES(?, ?)', (n, 'x' * 100))\n\
        \x20   d.execute('COMMIT')";
    let running = [(); 2].map(|()| hosts.start_python(program));
    for child in running {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let count = "SELECT count(*), count(DISTINCT n), max(n) FROM t; PRAGMA integrity_check;";
    assert_eq!(hosts.sqlite(&format!("{OPEN}{count}")), "300|300|299\nok\n");
}

/// Neither waits for the other, and cleaning goes on meanwhile.
#[test]
fn one_process_reads_what_it_began_with_while_another_writes() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.python(
        "import random\n\
         words = ['%x' % random.getrandbits(40) for _ in range(200)]\n\
         d = connect('app.db')\n\
         d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, text TEXT)')\n\
         for i in range(2000): d.execute('INSERT INTO t VALUES(?, 0, ?)', (i, ' '.join(random.choice(words) for _ in range(60))))\n\
         d.commit()",
    );
    let writer = "import random\n\
        d = connect('app.db')\n\
        d.isolation_level = None\n\
        d.execute('PRAGMA busy_timeout=0')\n\
        for i in range(1, 101):\n\
        \x20   d.execute('BEGIN IMMEDIATE')\n\
        \x20   for _ in range(40): d.execute('UPDATE t SET n = ?, text = text || ? WHERE id = ?', (i, 'x', random.randrange(2000)))\n\
        \x20   d.execute('UPDATE t SET n = ? WHERE id = 0', (i,))\n\
        \x20   d.execute('COMMIT')\n\
        print(d.execute('SELECT n FROM t WHERE id = 0').fetchone()[0])";
    let reader = "d = connect('app.db')\n\
        d.isolation_level = None\n\
        d.execute('PRAGMA busy_timeout=0')\n\
        whole = lambda: d.execute('SELECT count(*), sum(n), sum(length(text)) FROM t').fetchone()\n\
        d.execute('BEGIN')\n\
        before = whole()\n\
        print('reading', flush=True)\n\
        input()\n\
        assert whole() == before and before[1] == 0, (before, whole())\n\
        try:\n\
        \x20   d.execute('UPDATE t SET n = 7 WHERE id = 1')\n\
        except sqlite3.OperationalError as error:\n\
        \x20   print(error, getattr(error, 'sqlite_errorcode', 517))\n\
        assert whole() == before, whole()\n\
        d.execute('COMMIT')\n\
        print(d.execute('SELECT n FROM t WHERE id = 0').fetchone()[0])\n\
        d.execute('UPDATE t SET n = 7 WHERE id = 1')";
    let size = || fs::metadata(hosts.path("app.db")).unwrap().len();
    let before = size();
    let mut reading = hosts.start_python(reader);
    let mut output = BufReader::new(reading.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "reading\n");
    for _ in 0..2 {
        assert_eq!(hosts.python(writer), "100\n");
    }
    let held = size();
    reading.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut told = String::new();
    output.read_to_string(&mut told).unwrap();
    let ended = reading.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{told}{said}");
    assert_eq!(told, "database is locked 517\n100\n");
    hosts.python(writer);
    hosts.sqlite(&format!("{OPEN}PRAGMA breakeven_gc;"));
    let after = size();
    println!("{before} bytes, {held} while a reader stayed, {after} behind it");
    assert!(held > before && after < held);
    let checks = "PRAGMA integrity_check; PRAGMA breakeven_verify;";
    assert_eq!(hosts.sqlite(&format!("{OPEN}{checks}")), "ok\nok\n");
}

/// A table that compresses about as databases do.
const FILL: &str = "CREATE TABLE words(id INTEGER PRIMARY KEY, text TEXT);\n\
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)\n\
    INSERT INTO words SELECT i, printf('row %d of many, hash %x', i, i * 2654435761 % 4294967296) || hex(i * i) FROM n;\n\
    CREATE INDEX by_text ON words(text);\n";

#[test]
fn the_four_lines_of_the_guide_do_what_it_says() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite(&format!(".open app.db\n{FILL}"));
    let told = sh(hosts.folder(), &guide("sh"));
    let number = |name: &str| -> u64 {
        let (_, rest) = told.split_once(&format!("{name}=")).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let file_bytes = fs::metadata(hosts.path("small.db")).unwrap().len();
    assert_eq!(number("file_bytes"), file_bytes);
    println!("{} bytes became {file_bytes}", number("logical_bytes"));
    assert!(file_bytes * 2 < number("logical_bytes"), "{told}");
    assert_eq!(hosts.run_python(&guide("python")), "ok\n");
    assert_eq!(
        hosts.sum("app.db?vfs=unix"),
        hosts.sum("small.db?vfs=breakeven")
    );
}

/// One line of maintenance makes a file nearly as short as compacting does.
#[test]
fn one_line_of_maintenance_makes_a_file_dense() {
    let Some(hosts) = Hosts::find() else { return };
    let program = "import os, random\n\
        random.seed(6)\n\
        d = connect('app.db')\n\
        d.isolation_level = None\n\
        d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, name TEXT, mail TEXT, text TEXT)')\n\
        words = ['%x' % random.getrandbits(30) for _ in range(2000)]\n\
        text = lambda count: ' '.join(random.choice(words) for _ in range(count))\n\
        d.execute('BEGIN')\n\
        for i in range(60000):\n\
        \x20   d.execute('INSERT INTO t VALUES(?, ?, ?, ?)', (i, text(2), '%x@example.org' % (i * 7919), text(15)))\n\
        d.execute('COMMIT')\n\
        for _ in range(600): d.execute('UPDATE t SET text = ? WHERE id = ?', (text(15), random.randrange(60000)))\n\
        print(os.path.getsize('app.db'))\n\
        print(d.execute('PRAGMA breakeven_gc').fetchone()[0])\n\
        print(os.path.getsize('app.db'))\n\
        print(d.execute('PRAGMA breakeven_gc').fetchone()[0])\n\
        print(d.execute('PRAGMA integrity_check').fetchone()[0])";
    let told = hosts.python(program);
    let lines: Vec<&str> = told.lines().collect();
    let (before, after): (u64, u64) = (lines[0].parse().unwrap(), lines[2].parse().unwrap());
    assert!(lines[3].contains("moved_bytes=0 "), "{told}");
    assert_eq!(lines[4], "ok");
    let storage = Arc::new(RealStorage::open_folder(hosts.folder()).unwrap());
    let store = PageStore::new(storage, "app.db", PageOptions::compacting());
    let mut connection = Connection::open(Arc::new(store)).unwrap();
    assert!(connection.lock(LockLevel::Exclusive).unwrap());
    connection.rewrite(&mut |_, _| true).unwrap();
    let compacted = connection.status().unwrap().size_bytes;
    println!("{told}{before} became {after}, {compacted} by compacting");
    // Compacting trains dictionaries as well.
    assert!(after as f64 <= 1.6 * compacted as f64 && before > after * 5 / 4);
}

/// Rows are written over in random order, five times all of them; then most of them go.
#[test]
fn a_file_that_is_written_over_keeps_its_length_and_gives_back_what_is_deleted() {
    let Some(hosts) = Hosts::find() else { return };
    let program = "import os, random\n\
        random.seed(5)\n\
        d = connect('app.db')\n\
        d.isolation_level = None\n\
        d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, text TEXT)')\n\
        words = ['%x' % random.getrandbits(40) for _ in range(300)]\n\
        row = lambda: ' '.join(random.choice(words) for _ in range(60))\n\
        d.execute('BEGIN')\n\
        for i in range(20000): d.execute('INSERT INTO t VALUES(?, ?)', (i, row()))\n\
        d.execute('COMMIT')\n\
        longest = 0\n\
        for _ in range(2000):\n\
        \x20   d.execute('BEGIN')\n\
        \x20   for _ in range(50): d.execute('UPDATE t SET text = ? WHERE id = ?', (row(), random.randrange(20000)))\n\
        \x20   d.execute('COMMIT')\n\
        \x20   longest = max(longest, os.path.getsize('app.db'))\n\
        print(longest)\n\
        print(d.execute('PRAGMA breakeven_stats').fetchone()[0])\n\
        d.execute('DELETE FROM t WHERE id % 8 > 0')\n\
        print(os.path.getsize('app.db'))\n\
        print(d.execute('PRAGMA breakeven_gc').fetchone()[0])\n\
        print(d.execute('PRAGMA breakeven_stats').fetchone()[0])\n\
        print(d.execute('PRAGMA integrity_check').fetchone()[0])";
    let told = hosts.python(program);
    let lines: Vec<&str> = told.lines().collect();
    let number = |line: usize, name: &str| -> u64 {
        let (_, rest) = lines[line].split_once(&format!("{name}=")).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let longest: u64 = lines[0].parse().unwrap();
    let (stored, blocks) = (number(1, "stored_bytes"), number(1, "stored_blocks"));
    // 1.5 for the share of dead, 1.05 for the bytes beside the frames; a record ends at a multiple of 16.
    let bound = (stored - 15 * blocks) * 1575 / 1000;
    println!("{told}{longest} of {bound}");
    assert!(longest <= bound, "{longest} above {bound}");
    let (before, after) = (lines[2].parse::<u64>().unwrap(), number(4, "file_bytes"));
    assert!(before < longest / 2 && after <= before, "{told}");
    assert_eq!(lines[5], "ok");
}

/// `PRAGMA page_size` and VACUUM bring blocks of the new length, for any writes of SQLite's. A reader meanwhile sees
/// the old state.
#[test]
fn vacuum_to_another_page_size_brings_blocks_of_that_length() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import itertools\n\
         rows = lambda c: c.execute('SELECT count(*), sum(id), sum(length(text)), min(text) FROM t').fetchone()\n\
         for old, new in itertools.permutations([65536, 512, 1024, 4096], 2):\n\
         \x20   name = '%d-%d.db' % (old, new)\n\
         \x20   d, r = connect(name), connect(name)\n\
         \x20   d.isolation_level = r.isolation_level = None\n\
         \x20   d.execute('PRAGMA page_size=%d' % old)\n\
         \x20   d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, text TEXT)')\n\
         \x20   d.execute('BEGIN')\n\
         \x20   for i in range(3000): d.execute('INSERT INTO t(text) VALUES(?)', (str(i) * (i % 60),))\n\
         \x20   d.execute('COMMIT')\n\
         \x20   before = rows(d)\n\
         \x20   r.execute('BEGIN')\n\
         \x20   assert rows(r) == before\n\
         \x20   d.execute('PRAGMA page_size=%d' % new)\n\
         \x20   d.execute('VACUUM')\n\
         \x20   d.execute('UPDATE t SET text = 1 WHERE id = 7')\n\
         \x20   assert rows(r) == before\n\
         \x20   r.execute('COMMIT')\n\
         \x20   assert rows(r) == rows(d) != before\n\
         \x20   assert r.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
         \x20   assert r.execute('PRAGMA page_size').fetchone()[0] == new\n\
         \x20   print(d.execute('PRAGMA breakeven_stats').fetchone()[0].split()[-1], min(new, 16384))",
    );
    assert_eq!(told.lines().count(), 12, "{told}");
    for line in told.lines() {
        let (blocks, wanted) = line.split_once(' ').unwrap();
        assert_eq!(blocks, format!("block_bytes={wanted}"), "{told}");
    }
}

#[test]
fn vacuum_backup_and_attach_go_both_ways() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite(&format!(".open plain.db\nPRAGMA journal_mode=WAL;\n{FILL}"));
    hosts.sqlite(
        ".open file:app.db?vfs=breakeven\n\
         ATTACH 'file:plain.db?vfs=unix' AS plain;\n\
         CREATE TABLE words(id INTEGER PRIMARY KEY, text TEXT);\n\
         INSERT INTO words SELECT * FROM plain.words;\n\
         CREATE INDEX by_text ON words(text);\n\
         DETACH plain;\n\
         PRAGMA page_size=8192;\nVACUUM;\nPRAGMA page_size=1024;\nVACUUM;\n\
         VACUUM INTO 'file:into.db?vfs=unix';\n\
         .backup unix.db",
    );
    hosts.python(
        "a, b, c = connect('plain.db'), connect('copy.db'), sqlite3.connect('back.db')\n\
         a.backup(b)\n\
         b.backup(c)",
    );
    let sums = [
        "plain.db?vfs=unix",
        "app.db?vfs=breakeven",
        "into.db?vfs=unix",
    ]
    .map(|it| hosts.sum(it));
    assert!(sums[0] == sums[1] && sums[1] == sums[2], "{sums:?}");
    let sums = ["copy.db?vfs=breakeven", "back.db?vfs=unix"].map(|it| hosts.sum(it));
    assert!(
        hosts.sum("plain.db?vfs=unix") == sums[0] && sums[0] == sums[1],
        "{sums:?}"
    );
    let kinds = ["app.db", "copy.db", "into.db", "back.db", "plain.db"].map(|name| {
        fs::read(hosts.path(name))
            .unwrap()
            .starts_with(b"SQLite format 3")
    });
    assert_eq!(kinds, [false, false, true, true, true]);
}

#[test]
fn a_transaction_that_spills_is_rolled_back_or_kept() {
    let Some(hosts) = Hosts::find() else { return };
    let half = "UPDATE words SET text = text || '!' || id; DELETE FROM words WHERE id % 3 = 0;";
    hosts.sqlite(&format!("{OPEN}{FILL}"));
    hosts.sqlite(&format!(".open twin.db\n{FILL}"));
    let before = hosts.sum("app.db?vfs=breakeven");
    let spill = "PRAGMA cache_size=10; PRAGMA cache_spill=1;";
    let rolled = format!(
        "{OPEN}{spill}BEGIN; {half} SAVEPOINT s; DELETE FROM words; ROLLBACK TO s; SELECT count(*) FROM words; ROLLBACK;\n\
         PRAGMA integrity_check;"
    );
    assert_eq!(hosts.sqlite(&rolled), "13334\nok\n");
    assert_eq!(hosts.sum("app.db?vfs=breakeven"), before);
    hosts.sqlite(&format!("{OPEN}{spill}BEGIN; {half} COMMIT;"));
    hosts.sqlite(&format!(".open twin.db\n{half}"));
    assert_eq!(
        hosts.sum("app.db?vfs=breakeven"),
        hosts.sum("twin.db?vfs=unix")
    );
}

#[test]
fn what_is_deleted_gives_its_room_back_without_vacuum() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite(&format!("{OPEN}{FILL}"));
    let stored = || -> u64 {
        let told = hosts.sqlite(&format!("{OPEN}PRAGMA breakeven_stats;"));
        let (_, rest) = told.split_once("stored_bytes=").unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let before = stored();
    hosts.sqlite(&format!("{OPEN}DELETE FROM words WHERE id > 1000;"));
    let after = stored();
    println!("{before} bytes stored, {after} after 95 % were deleted");
    assert!(after * 5 < before, "{before} and then {after}");
    let checks = "PRAGMA integrity_check; SELECT count(*) FROM words;";
    assert_eq!(hosts.sqlite(&format!("{OPEN}{checks}")), "ok\n1000\n");
    // The free pages are used again.
    let again = "INSERT INTO words SELECT id + 30000, text FROM words; PRAGMA integrity_check;";
    assert_eq!(hosts.sqlite(&format!("{OPEN}{again}")), "ok\n");
}

#[test]
fn a_stale_journal_a_reader_and_a_plain_file_get_what_is_right() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite(&format!(
        "{OPEN}CREATE TABLE t(a); INSERT INTO t VALUES(7);"
    ));
    let read_only = "file:app.db?vfs=breakeven&mode=ro";
    assert_eq!(
        hosts.sqlite(&format!(".open {read_only}\nSELECT a FROM t;")),
        "7\n"
    );
    let refused = hosts.sqlite_fails(&format!(".open {read_only}\nINSERT INTO t VALUES(8);"));
    assert!(refused.contains("readonly"), "{refused}");
    assert_eq!(
        hosts.sqlite(&format!("{OPEN}PRAGMA journal_mode=WAL; SELECT a FROM t;")),
        "delete\n7\n"
    );
    let exclusive = "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; UPDATE t SET a = 9; SELECT a FROM t;";
    assert_eq!(
        hosts.sqlite(&format!("{OPEN}{exclusive}")),
        "exclusive\ndelete\n9\n"
    );
    for mode in ["TRUNCATE", "PERSIST", "MEMORY", "OFF"] {
        let script = format!(
            "{OPEN}PRAGMA journal_mode={mode}; UPDATE t SET a = a + 1; BEGIN; DELETE FROM t; ROLLBACK; SELECT count(*) FROM t;"
        );
        assert!(hosts.sqlite(&script).ends_with("\n1\n"), "{mode}");
    }
    for journal in ["app.db-journal", "app.db-wal"] {
        fs::write(hosts.path(journal), b"another database's").unwrap();
        let refused = hosts.sqlite_fails(&format!(".log stderr\n{OPEN}SELECT a FROM t;"));
        let sentence = format!("{journal} is there, of another database");
        assert!(refused.contains(&sentence), "{refused}");
        assert!(refused.contains("unable to open"), "{refused}");
        fs::remove_file(hosts.path(journal)).unwrap();
    }
    let plain = ".open file:plain.db?vfs=unix\nCREATE TABLE t(a); INSERT INTO t VALUES(5);\n\
                 .open file:plain.db?vfs=breakeven\nPRAGMA journal_mode=WAL; SELECT a FROM t;";
    assert_eq!(hosts.sqlite(plain), "wal\n5\n");
    // A journal by this name would be taken for the compressed one's, which has none.
    let replaced = hosts.sqlite_fails(&format!(
        "{OPEN}SELECT a FROM t;\n.shell mv plain.db app.db\n.connection 1\n.log stderr\n\
         .open file:app.db?vfs=breakeven\nSELECT a FROM t;"
    ));
    assert!(
        replaced.contains("took the place of a compressed one"),
        "{replaced}"
    );
}

/// A host that promises SQLite that nobody else is there (`nolock`), or that nobody writes (`immutable`), makes it lock
/// nothing.
#[test]
fn a_host_that_does_not_lock_reads_and_writes() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.python(
        "d = sqlite3.connect('file:app.db?vfs=breakeven&nolock=1', uri=True)\n\
         d.execute('CREATE TABLE t(a)')\n\
         for i in range(50):\n\
         \x20   d.execute('INSERT INTO t VALUES(?)', (i,))\n\
         \x20   if i % 5 == 4: d.rollback()\n\
         \x20   if i % 5 == 3: d.commit()\n\
         other = connect('app.db')\n\
         assert other.execute('SELECT count(*) FROM t').fetchone()[0] == 40\n\
         other.execute('DELETE FROM t WHERE a < 10')\n\
         other.commit()\n\
         assert d.execute('SELECT count(*), min(a) FROM t').fetchone() == (32, 10)\n\
         d.execute('INSERT INTO t VALUES(1)')\n\
         d.commit()\n\
         still = sqlite3.connect('file:app.db?vfs=breakeven&immutable=1', uri=True)\n\
         assert still.execute('SELECT count(*), min(a) FROM t').fetchone() == (33, 1)",
    );
    assert_eq!(
        hosts.sqlite(&format!(
            "{OPEN}PRAGMA integrity_check; SELECT count(*) FROM t;"
        )),
        "ok\n33\n"
    );
}

/// A child made by `fork` is refused its parent's open files, and opens others as it likes. A database that a dead
/// parent was reading is used again although its child lives.
#[test]
fn a_child_that_lives_on_keeps_none_of_its_parents_locks() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import os, random\n\
         d = connect('app.db')\n\
         d.isolation_level = None\n\
         d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, text TEXT)')\n\
         def fill():\n\
         \x20   for i in range(400):\n\
         \x20       d.execute('BEGIN')\n\
         \x20       for _ in range(20): d.execute('INSERT OR REPLACE INTO t VALUES(?, ?)', (random.randrange(1000), random.randbytes(300).hex()))\n\
         \x20       d.execute('COMMIT')\n\
         def try_all(reader):\n\
         \x20   for it, what in (reader, 'SELECT max(text) FROM t'), (d, 'DELETE FROM t'):\n\
         \x20       try: it.execute(what).fetchone(); os.write(tell[1], b'?')\n\
         \x20       except sqlite3.OperationalError: os.write(tell[1], b'refused ')\n\
         \x20   own = connect('app.db')\n\
         \x20   own.execute('INSERT OR REPLACE INTO t VALUES(5, ?)', ('the child',))\n\
         \x20   own.commit()\n\
         \x20   reader.close(); d.close()\n\
         \x20   os.write(tell[1], own.execute('SELECT text FROM t WHERE id = 5').fetchone()[0].encode())\n\
         fill(); fill()\n\
         ask, tell = os.pipe(), os.pipe()\n\
         if os.fork() == 0:\n\
         \x20   reader = connect('app.db')\n\
         \x20   reader.isolation_level = None\n\
         \x20   reader.execute('PRAGMA cache_size=5')\n\
         \x20   reader.execute('BEGIN')\n\
         \x20   reader.execute('SELECT sum(length(text)) FROM t').fetchone()\n\
         \x20   if os.fork() == 0:\n\
         \x20       os.close(ask[1])\n\
         \x20       try_all(reader)\n\
         \x20       os.close(tell[1])\n\
         \x20       os.read(ask[0], 1)\n\
         \x20   os._exit(0)\n\
         os.wait()\n\
         os.close(tell[1])\n\
         said = b''\n\
         while piece := os.read(tell[0], 100): said += piece\n\
         print(said.decode())\n\
         print(d.execute('SELECT text FROM t WHERE id = 5').fetchone()[0])\n\
         before = os.path.getsize('app.db')\n\
         for _ in range(4): fill()\n\
         print(d.execute('PRAGMA integrity_check').fetchone()[0])\n\
         print(before, os.path.getsize('app.db'))\n\
         os.write(ask[1], b'.')",
    );
    let lines: Vec<&str> = told.lines().collect();
    let expected = ["refused refused the child", "the child", "ok"];
    assert_eq!(lines[..3], expected, "{told}");
    let (before, after) = lines[3].split_once(' ').unwrap();
    let [before, after] = [before, after].map(|bytes| bytes.parse::<u64>().unwrap());
    println!("{before} bytes became {after} while the child lived");
    assert!(after < 2 * before, "{told}");
}

#[test]
fn as_the_default_a_plain_path_is_compressed() {
    let Some(hosts) = Hosts::find() else { return };
    let entry = "SELECT load_extension('LIBRARY', 'sqlite3_breakeven_default_init');";
    let entry = entry.replace("LIBRARY", &hosts.library());
    let script = format!(
        "{entry}\n.open app.db\nCREATE TABLE t(a); INSERT INTO t VALUES(5);\n\
         VACUUM INTO 'into.db';\nVACUUM INTO 'file:unix.db?vfs=unix';\n\
         .backup backup.db\nATTACH 'attached.db' AS other;\n\
         CREATE TABLE other.u AS SELECT a + 1 AS a FROM t;\n\
         ATTACH 'file:plain.db?vfs=unix' AS plain;\nCREATE TABLE plain.u AS SELECT a + 2 AS a FROM t;\n\
         SELECT t.a, other.u.a, plain.u.a FROM t, other.u, plain.u;"
    );
    assert_eq!(hosts.sqlite_alone(&script).trim(), "5|6|7");
    let is_plain = |name: &str| {
        let bytes = fs::read(hosts.path(name)).unwrap();
        bytes.starts_with(b"SQLite format 3")
    };
    let ours = ["app.db", "into.db", "backup.db", "attached.db"].map(is_plain);
    assert_eq!(ours, [false; 4]);
    assert_eq!(["unix.db", "plain.db"].map(is_plain), [true; 2]);
    for name in ["app.db", "into.db", "backup.db"] {
        let script = format!("{OPEN}SELECT a FROM t;").replace("app.db", name);
        assert_eq!(hosts.sqlite(&script), "5\n", "{name}");
    }
}
