//! Entries beside the shell and Python's own module, as the guide shows them: rusqlite, a wheel, SQLAlchemy; and two
//! SQLite libraries in one process.
//!
//! `unsafe` here: rusqlite has a host say that it trusts what it loads.
#![allow(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Command;

use super::guide;
use super::hosts::{Hosts, PYTHON, left_out};

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The lines of the guide: its test looks for them here.
fn shown(extension: &str, path: &str) -> rusqlite::Result<i64> {
    use rusqlite::{Connection, LoadExtensionGuard, OpenFlags};

    let loader = Connection::open_in_memory()?;
    // SAFETY: the extension is this project's own.
    unsafe {
        let _guard = LoadExtensionGuard::new(&loader)?;
        loader.load_extension(extension, None::<&str>)?;
    }
    let database = Connection::open_with_flags_and_vfs(path, OpenFlags::default(), "breakeven")?;
    database.query_row("SELECT count(*) FROM words", [], |row| row.get(0))
}

#[test]
fn rusqlite_with_its_own_sqlite_reads_and_writes() {
    let Some(hosts) = Hosts::find() else { return };
    let lines: Vec<&str> = include_str!("mod.rs").lines().map(str::trim).collect();
    for line in guide("rust").lines().map(str::trim) {
        assert!(lines.contains(&line), "the guide says: {line}");
    }
    hosts.python(
        "connect('small.db').execute('CREATE TABLE words(id INTEGER PRIMARY KEY, text TEXT)')",
    );
    let path = hosts.path("small.db");
    let path = path.to_str().unwrap();
    assert_eq!(shown(&hosts.library(), path).unwrap(), 0);
    let mut database = rusqlite::Connection::open_with_flags_and_vfs(
        path,
        rusqlite::OpenFlags::default(),
        "breakeven",
    )
    .unwrap();
    let transaction = database.transaction().unwrap();
    for at in 0..1000 {
        let text = format!("row {at}");
        transaction
            .execute("INSERT INTO words(text) VALUES(?1)", [text])
            .unwrap();
    }
    transaction.commit().unwrap();
    let transaction = database.transaction().unwrap();
    transaction.execute("DELETE FROM words", []).unwrap();
    transaction.rollback().unwrap();
    println!("rusqlite has SQLite {}", rusqlite::version());
    let told = hosts.sqlite(&format!(
        "{}SELECT count(*) FROM words; PRAGMA integrity_check;",
        super::OPEN_SMALL
    ));
    assert_eq!(told, "1000\nok\n");
}

/// Makes the wheel and installs it, with no network, into a folder; `None` without Python's installer.
fn installed(hosts: &Hosts) -> Option<std::path::PathBuf> {
    let pip = Command::new(PYTHON)
        .args(["-m", "pip", "--version"])
        .output()
        .unwrap();
    if !pip.status.success() {
        left_out("no pip: the wheel is not tried");
        return None;
    }
    let mut maker = Command::new(root().join("tools/wheel"));
    maker
        .arg(hosts.path("libbreakeven_sqlite.so"))
        .arg(hosts.folder());
    let made = maker.output().unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let wheel = String::from_utf8(made.stdout).unwrap();
    let site = hosts.path("site");
    let mut installer = Command::new(PYTHON);
    installer.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
    ]);
    let done = installer.arg(&site).arg(wheel.trim()).output().unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    Some(site)
}

#[test]
fn a_wheel_and_sqlalchemy_do_what_the_guide_says() {
    let Some(hosts) = Hosts::find() else { return };
    let Some(site) = installed(&hosts) else {
        return;
    };
    let before = format!("import sys\nsys.path.insert(0, {site:?})\n");
    hosts.python("connect('small.db').execute('CREATE TABLE words(text TEXT)')");
    // Nothing but the wheel has the extension.
    fs::remove_file(hosts.path("libbreakeven_sqlite.so")).unwrap();
    let told = hosts.run_python(&(before.clone() + &guide("python wheel")));
    assert_eq!(told, "ok\n");
    let default = "import breakeven_sqlite, sqlite3\n\
        loader = sqlite3.connect(':memory:')\n\
        loader.enable_load_extension(True)\n\
        breakeven_sqlite.load_as_default(loader)\n\
        sqlite3.connect('plain-path.db').execute('CREATE TABLE t(a)')\n\
        print(open('plain-path.db', 'rb').read(6), breakeven_sqlite.__version__)";
    let told = hosts.run_python(&(before.clone() + default));
    assert!(
        !told.contains("SQLite") && told.contains(env!("CARGO_PKG_VERSION")),
        "{told}"
    );
    if !Path::new("/usr/lib/python3/dist-packages/sqlalchemy").exists() {
        return left_out("no SQLAlchemy: nothing tried with it");
    }
    let told = hosts.run_python(&(before + &guide("python sqlalchemy")));
    assert_eq!(told, "[('by SQLAlchemy',)]\n");
}

/// Python's library, and a copy of its file under another name, which is another library with state of its own.
#[test]
fn two_libraries_of_one_process_share_a_file() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import ctypes, shutil\n\
         path = next(line.split()[-1] for line in open('/proc/self/maps') if 'libsqlite3' in line)\n\
         shutil.copy(path, 'another.so')\n\
         other = ctypes.CDLL('./another.so')\n\
         text = lambda it: it.encode() + b'\\0'\n\
         def opened(name):\n\
         \x20   handle = ctypes.c_void_p()\n\
         \x20   return other.sqlite3_open_v2(text(name), ctypes.byref(handle), 0x46, None), handle\n\
         Row = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p), ctypes.c_void_p)\n\
         def run(handle, sql):\n\
         \x20   rows = []\n\
         \x20   note = Row(lambda _, count, values, __: rows.append([values[i] for i in range(count)]) or 0)\n\
         \x20   return other.sqlite3_exec(handle, text(sql), note, None, None), rows\n\
         name = 'file:app.db?vfs=breakeven'\n\
         one = connect('app.db')\n\
         one.isolation_level = None\n\
         one.execute('CREATE TABLE t(who TEXT, n INTEGER)')\n\
         assert opened(name)[0] == 1, 'the VFS is known to one library alone'\n\
         code, second_loader = opened(':memory:')\n\
         assert other.sqlite3_enable_load_extension(second_loader, 1) == 0\n\
         assert other.sqlite3_load_extension(second_loader, text('./libbreakeven_sqlite'), None, None) == 0\n\
         other.sqlite3_close(second_loader)\n\
         code, two = opened(name)\n\
         assert code == 0\n\
         for n in range(50):\n\
         \x20   one.execute('INSERT INTO t VALUES(?, ?)', ('one', n))\n\
         \x20   assert run(two, f\"INSERT INTO t VALUES('two', {n})\")[0] == 0\n\
         one.execute('BEGIN IMMEDIATE')\n\
         assert run(two, 'BEGIN IMMEDIATE')[0] == 5\n\
         one.execute('DELETE FROM t')\n\
         assert run(two, 'SELECT count(*) FROM t') == (0, [[b'100']])\n\
         one.execute('ROLLBACK')\n\
         assert run(two, \"BEGIN; DELETE FROM t WHERE who = 'one'\")[0] == 0\n\
         one.close()\n\
         assert run(two, 'ROLLBACK')[0] == 0\n\
         assert run(two, \"DELETE FROM t WHERE who = 'two' AND n % 2\")[0] == 0\n\
         one = connect('app.db')\n\
         assert other.sqlite3_close(two) == 0\n\
         print(one.execute('SELECT who, count(*) FROM t GROUP BY who').fetchall(), one.execute('PRAGMA integrity_check').fetchall())",
    );
    assert_eq!(told, "[('one', 50), ('two', 25)] [('ok',)]\n");
}

#[test]
fn dbstat_tells_what_tables_take_compressed() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.sqlite(
        ".open file:app.db?vfs=breakeven\n\
         CREATE TABLE noise(b BLOB); CREATE TABLE alike(b TEXT);\n\
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)\n\
         INSERT INTO noise SELECT randomblob(1000) FROM n;\n\
         INSERT INTO alike SELECT printf('%.1000c', 'x') FROM noise;\n\
         SELECT name, count(*), sum(pgsize) FROM dbstat GROUP BY name ORDER BY name;\n\
         PRAGMA breakeven_stats;",
    );
    let lines: Vec<&str> = told.lines().collect();
    let tables = lines[..3].iter().map(|line| {
        let fields: Vec<&str> = line.split('|').collect();
        let number = |at: usize| fields[at].parse::<u64>().unwrap();
        (fields[0], number(1), number(2))
    });
    let [(alike, pages, small), (noise, _, large), (_, _, first)] =
        <[_; 3]>::try_from(tables.collect::<Vec<_>>()).unwrap();
    assert_eq!((alike, noise), ("alike", "noise"), "{told}");
    assert!(small * 10 < pages * 4096 && large > 500_000, "{told}");
    let stored = format!(" stored_bytes={} ", small + large + first);
    assert!(lines[3].contains(&stored), "{told}");
}
