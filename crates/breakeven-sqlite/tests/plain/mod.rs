//! Plain databases in a process that has the extension. Their locks stay, whichever connections open and close them. No
//! call is made for them that SQLite alone would not make, except one read.

use std::fs;
use std::process::Command;

use super::hosts::{Hosts, left_out};

/// The common start of the programs. It takes the second entry, so that the extension opens every path. It has another
/// process, with stock SQLite alone, and threads that open, read and close a database as a host's pool does.
const BEGIN: &str = "\
import queue, subprocess, threading\n\
loader.execute(\"SELECT load_extension('./libbreakeven_sqlite', 'sqlite3_breakeven_default_init')\")\n\
def other(sql, wait=0):\n\
\x20   program = ('import sqlite3, sys\\n'\n\
\x20       'd = sqlite3.connect(sys.argv[1], timeout=float(sys.argv[3]), isolation_level=None)\\n'\n\
\x20       'try: print([d.execute(it).fetchall() for it in sys.argv[2].split(\";\")][-1])\\n'\n\
\x20       'except sqlite3.Error as error: print(error)')\n\
\x20   done = subprocess.run([sys.executable, '-c', program, 'plain.db', sql, str(wait)], capture_output=True, text=True)\n\
\x20   return (done.stdout + done.stderr).strip()\n\
def opened(**how): return sqlite3.connect('plain.db', isolation_level=None, check_same_thread=False, **how)\n\
def in_pool(work, threads=4, times=8):\n\
\x20   failed = queue.Queue()\n\
\x20   def run():\n\
\x20       try:\n\
\x20           for _ in range(times): work()\n\
\x20       except Exception as error: failed.put(error)\n\
\x20   all = [threading.Thread(target=run) for _ in range(threads)]\n\
\x20   for it in all: it.start()\n\
\x20   for it in all: it.join()\n\
\x20   if not failed.empty(): raise failed.get()\n\
def visit():\n\
\x20   d = opened(timeout=60)\n\
\x20   d.execute('SELECT count(*) FROM t').fetchone()\n\
\x20   d.close()\n";

fn run(hosts: &Hosts, program: &str) -> String {
    hosts.python(&format!("{BEGIN}{program}"))
}

/// By the lock that its last connection leaves, another process would see that nobody has the log, and delete it.
#[test]
fn a_write_ahead_log_in_use_is_not_deleted_by_another_process() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite_alone(
        ".open plain.db\nPRAGMA journal_mode=WAL;\nCREATE TABLE t(x); CREATE INDEX i ON t(x);",
    );
    let told = run(
        &hosts,
        "d = opened()\n\
         d.execute(\"INSERT INTO t VALUES('ours')\")\n\
         in_pool(visit)\n\
         other(\"INSERT INTO t VALUES('theirs')\")\n\
         for n in range(1000): d.execute('INSERT INTO t VALUES(?)', (n,))\n\
         in_pool(visit)\n\
         other('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO t SELECT hex(randomblob(40)) FROM n')\n\
         print(os.path.exists('plain.db-wal'), d.execute('SELECT count(*) FROM t').fetchone()[0])\n\
         d.close()\n\
         print(other('SELECT count(*) FROM t'), other('PRAGMA integrity_check'))",
    );
    assert_eq!(told, "True 4002\n[(4002,)] [('ok',)]\n");
}

#[test]
fn who_is_about_to_write_is_not_overrun() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite_alone(".open plain.db\nCREATE TABLE t(x);");
    let told = run(
        &hosts,
        "d = opened()\n\
         d.execute('BEGIN IMMEDIATE')\n\
         d.execute('INSERT INTO t VALUES(1)')\n\
         in_pool(visit)\n\
         second = opened()\n\
         second.execute('SELECT * FROM t').fetchall()\n\
         third = sqlite3.connect('file:plain.db?vfs=breakeven', uri=True)\n\
         print(other('BEGIN IMMEDIATE; INSERT INTO t VALUES(2); COMMIT'))\n\
         second.close(); third.close()\n\
         print(other('BEGIN IMMEDIATE; INSERT INTO t VALUES(3); COMMIT'))\n\
         d.execute('COMMIT')\n\
         print(other('INSERT INTO t VALUES(4); SELECT group_concat(x) FROM t'), other('PRAGMA integrity_check'))",
    );
    assert_eq!(
        told,
        "database is locked\ndatabase is locked\n[('1,4',)] [('ok',)]\n"
    );
}

/// Its cache holds a few pages, so that it reads the file while others would write.
#[test]
fn who_reads_sees_one_state() {
    let Some(hosts) = Hosts::find() else { return };
    let told = run(
        &hosts,
        "d = sqlite3.connect('file:plain.db?vfs=unix', uri=True, isolation_level=None)\n\
         d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, amount INTEGER, pad BLOB)')\n\
         d.execute('BEGIN')\n\
         for id in range(2000): d.execute('INSERT INTO t VALUES(?, 100, randomblob(400))', (id,))\n\
         d.execute('COMMIT')\n\
         d.close()\n\
         d = opened()\n\
         d.execute('PRAGMA cache_size=5')\n\
         rows = d.execute('SELECT amount FROM t ORDER BY id')\n\
         sum = sum(rows.fetchone()[0] for _ in range(1000))\n\
         in_pool(visit)\n\
         print(other('BEGIN; UPDATE t SET amount = amount - 50 WHERE id < 1000; UPDATE t SET amount = amount + 50 WHERE id >= 1000; COMMIT'))\n\
         for amount, in rows: sum += amount\n\
         print(sum)\n\
         rows.close()\n\
         d.close()\n\
         print(other('PRAGMA integrity_check'))",
    );
    assert_eq!(told, "database is locked\n200000\n[('ok',)]\n");
}

/// Nothing of it is in the file before it commits.
#[test]
fn an_empty_file_stays_a_plain_database_that_another_connection_has_begun() {
    let Some(hosts) = Hosts::find() else { return };
    let told = run(
        &hosts,
        "def tried(d, sql):\n\
         \x20   try: return d.execute(sql).fetchall()\n\
         \x20   except sqlite3.OperationalError as error: return str(error)\n\
         for wal in False, True:\n\
         \x20   d = sqlite3.connect('file:plain.db?vfs=unix', uri=True, isolation_level=None)\n\
         \x20   d.execute('BEGIN IMMEDIATE')\n\
         \x20   e = opened(timeout=0)\n\
         \x20   print(tried(e, 'PRAGMA journal_mode'), tried(e, 'SELECT count(*) FROM sqlite_schema'), tried(e, 'CREATE TABLE t(x)'))\n\
         \x20   print(other('CREATE TABLE u(x)'), os.path.getsize('plain.db'))\n\
         \x20   d.execute('CREATE TABLE t(x)')\n\
         \x20   d.execute('COMMIT')\n\
         \x20   if wal: print(tried(d, 'PRAGMA journal_mode=wal'))\n\
         \x20   print(tried(e, 'INSERT INTO t VALUES(7)'), tried(d, 'SELECT x FROM t'), tried(e, 'PRAGMA journal_mode'))\n\
         \x20   in_pool(visit)\n\
         \x20   e.execute('BEGIN IMMEDIATE')\n\
         \x20   print(tried(d, 'BEGIN IMMEDIATE'), other('BEGIN IMMEDIATE'))\n\
         \x20   e.execute('COMMIT')\n\
         \x20   d.close(); e.close()\n\
         \x20   print(open('plain.db', 'rb').read(15), other('PRAGMA integrity_check'))\n\
         \x20   os.unlink('plain.db')",
    );
    let lines = |mode: &str, turned: &str| {
        format!(
            "[('delete',)] [(0,)] database is locked\ndatabase is locked 0\n{turned}\
             [] [(7,)] [('{mode}',)]\ndatabase is locked database is locked\n\
             b'SQLite format 3' [('ok',)]\n"
        )
    };
    assert_eq!(told, lines("delete", "") + &lines("wal", "[('wal',)]\n"));
}

/// Python's library, and a copy of its file under another name, which is another library. They harm each other's locks
/// in the same way without the extension.
#[test]
fn two_libraries_lose_no_more_locks_than_without_the_extension() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite_alone(".open plain.db\nCREATE TABLE t(x);");
    let program = |entry: &str| {
        format!(
            "import ctypes, shutil\n\
             path = next(line.split()[-1] for line in open('/proc/self/maps') if 'libsqlite3' in line)\n\
             shutil.copy(path, 'another.so')\n\
             library = ctypes.CDLL('./another.so')\n\
             text = lambda it: it.encode() + b'\\0'\n\
             def second(name):\n\
             \x20   handle = ctypes.c_void_p()\n\
             \x20   assert library.sqlite3_open_v2(text(name), ctypes.byref(handle), 0x46, None) == 0\n\
             \x20   return handle\n\
             {entry}\
             said = []\n\
             d = opened()\n\
             d.execute('BEGIN IMMEDIATE')\n\
             one = second('plain.db')\n\
             said.append(other('BEGIN IMMEDIATE'))\n\
             two = second('plain.db')\n\
             said.append(other('BEGIN IMMEDIATE'))\n\
             said.append(library.sqlite3_exec(one, text('SELECT count(*) FROM t'), None, None, None))\n\
             said.append(other('BEGIN IMMEDIATE'))\n\
             library.sqlite3_close(two)\n\
             said.append(other('BEGIN IMMEDIATE'))\n\
             print(said)"
        )
    };
    let loaded = "second_loader = second(':memory:')\n\
        assert library.sqlite3_enable_load_extension(second_loader, 1) == 0\n\
        assert library.sqlite3_load_extension(second_loader, text('./libbreakeven_sqlite'), text('sqlite3_breakeven_default_init'), None) == 0\n";
    let stock = hosts.run_python(
        &(format!("import sqlite3, sys, os\n{BEGIN}{}", program(""))
            .replace("loader.execute", "len")),
    );
    let ours = run(&hosts, &program(loaded));
    println!("{stock}{ours}");
    assert_eq!(ours, stock);
    assert!(stock.starts_with("['database is locked', 'database is locked'"));
}

/// Counts what the system is asked for with a plain database, by SQLite alone and through the extension.
#[test]
fn the_calls_for_a_plain_database_are_those_of_sqlite_and_one_read() {
    let Some(hosts) = Hosts::find() else { return };
    if Command::new("strace").arg("-V").output().is_err() {
        return left_out("no strace: the calls for a plain database are not counted");
    }
    let calls = |vfs: &str, mode: &str| {
        fs::write(
            hosts.path("script"),
            format!(
                ".load ./libbreakeven_sqlite\n\
                 .open file:{vfs}-{mode}.db?vfs={vfs}\n\
                 PRAGMA journal_mode={mode}; CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES(1); SELECT count(*) FROM t;\n\
                 BEGIN; INSERT INTO t VALUES(2); ROLLBACK; PRAGMA integrity_check;\n"
            ),
        )
        .unwrap();
        hosts.sqlite_alone(&format!(
            ".open {vfs}-{mode}.db\nPRAGMA journal_mode={mode}; CREATE TABLE first(x);"
        ));
        super::hosts::sh(
            hosts.folder(),
            "strace -f -y -o calls sqlite3 -batch :memory: < script > /dev/null",
        );
        let calls = fs::read_to_string(hosts.path("calls")).unwrap();
        let name = format!("{vfs}-{mode}.db");
        let of_it = calls.lines().filter(|line| line.contains(&name));
        // Without the process, and without the parts that differ by the name and by the other open files.
        let plain = of_it.map(|line| {
            let (_, call) = line.split_once(' ').unwrap();
            let call = call.trim_start().replace(&name, "NAME");
            let pieces = call
                .split('<')
                .map(|piece| piece.trim_end_matches(char::is_numeric));
            pieces.collect::<Vec<_>>().join("<")
        });
        plain
            .filter(|call| !call.contains("libbreakeven"))
            .collect::<Vec<String>>()
    };
    let kind = |call: &String| call.split('(').next().unwrap().to_owned();
    for mode in ["delete", "wal"] {
        let (stock, mut ours) = (calls("unix", mode), calls("breakeven", mode));
        let head = ours
            .iter()
            .position(|call| call.starts_with("pread64") && call.contains(", 17, 0)"));
        let head = ours.remove(head.expect("the head is read"));
        println!(
            "{mode}: {} calls of SQLite's own VFS, and {head}",
            stock.len()
        );
        let [stock, ours] = [&stock, &ours].map(|calls| calls.iter().map(kind).collect::<Vec<_>>());
        assert_eq!(ours, stock);
        assert!(stock.len() > 40);
    }
}
