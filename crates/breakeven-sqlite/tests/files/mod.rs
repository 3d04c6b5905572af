//! The file itself: its mode and owner, links to it, media that cannot be written, a file whose writer was killed, and
//! one with flipped bits.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;

use super::OPEN;
use super::hosts::{Hosts, is_full, is_root_test};
use super::mounted::Mounted;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o777
}

/// Each database is made by both VFS, from where the other would be.
#[test]
fn a_file_has_the_mode_and_the_owner_that_sqlite_would_give_it() {
    let Some(hosts) = Hosts::find() else { return };
    fs::write(hosts.path("model"), b"").unwrap();
    fs::set_permissions(hosts.path("model"), Permissions::from_mode(0o660)).unwrap();
    // Without a file before, the mask counts; with one, or one to be like, it does not.
    let cases = [
        (0o022, None, ""),
        (0o077, None, ""),
        (0o022, Some(0o600), ""),
        (0o077, Some(0o666), ""),
        (0o022, None, "&modeof=model"),
        (0o022, Some(0o600), "&modeof=model"),
    ];
    for (number, (mask, before, parameter)) in cases.into_iter().enumerate() {
        let made = ["unix", "breakeven"].map(|vfs| {
            let name = format!("{vfs}{number}.db");
            if let Some(before) = before {
                fs::write(hosts.path(&name), b"").unwrap();
                fs::set_permissions(hosts.path(&name), Permissions::from_mode(before)).unwrap();
            }
            hosts.python(&format!(
                "os.umask({mask})\n\
                 d = sqlite3.connect('file:{name}?vfs={vfs}{parameter}', uri=True)\n\
                 d.execute('CREATE TABLE t(a)')"
            ));
            mode(&hosts.path(&name))
        });
        assert_eq!(made[0], made[1], "mask {mask:o}, {before:?}, '{parameter}'");
    }
    assert_eq!(mode(&hosts.path("breakeven2.db")), 0o600);
    // Root may give a file away, and does not take one.
    let given = hosts.path("given.db");
    fs::write(&given, b"").unwrap();
    if chown(&given, Some(12_345), Some(12_346)).is_ok() {
        hosts.python("connect('given.db').execute('CREATE TABLE t(a)')");
        let found = fs::metadata(&given).unwrap();
        assert_eq!((found.uid(), found.gid()), (12_345, 12_346));
    }
}

#[test]
fn a_link_leads_to_the_database_and_its_journals() {
    let Some(hosts) = Hosts::find() else { return };
    fs::create_dir(hosts.path("real")).unwrap();
    // The target is not there yet.
    symlink("real/app.db", hosts.path("link.db")).unwrap();
    symlink("link.db", hosts.path("again.db")).unwrap();
    let told = hosts.python(
        "d = connect('link.db')\n\
         d.execute('CREATE TABLE t(a)')\n\
         d.execute('INSERT INTO t VALUES(1)')\n\
         d.commit()\n\
         e, f = connect('again.db'), connect('real/app.db')\n\
         e.execute('INSERT INTO t VALUES(2)')\n\
         try: f.execute('PRAGMA busy_timeout=0'); f.execute('INSERT INTO t VALUES(3)')\n\
         except sqlite3.OperationalError as error: print(error)\n\
         e.rollback()\n\
         print(f.execute('SELECT group_concat(a) FROM t').fetchone()[0])",
    );
    assert_eq!(told, "database is locked\n1\n");
    for link in ["link.db", "again.db"] {
        assert!(fs::symlink_metadata(hosts.path(link)).unwrap().is_symlink());
    }
    let files: Vec<_> = fs::read_dir(hosts.path("real")).unwrap().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    fs::write(hosts.path("real/app.db-journal"), b"another's").unwrap();
    let refused = hosts.sqlite_fails(".open file:link.db?vfs=breakeven\nSELECT a FROM t;");
    assert!(refused.contains("unable to open"), "{refused}");
}

/// SQLite hands names on as they are given: of a byte that is no text too.
#[test]
fn a_name_that_is_no_text_is_that_of_the_same_file() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "before = set(os.listdir(b'.'))\n\
         d = connect('%FF.db')\n\
         d.execute('CREATE TABLE t(a)'); d.execute('INSERT INTO t VALUES(1)'); d.commit()\n\
         print(set(os.listdir(b'.')) - before, open(b'\\xff.db', 'rb').read(16) == b'SQLite format 3\\0')\n\
         d.close()\n\
         d = connect('%FF.db')\n\
         print(d.execute('PRAGMA breakeven_verify').fetchone()[0], d.execute('SELECT a FROM t').fetchall())\n\
         d.close()\n\
         open('\\ufffd.db-journal', 'w').write('of another name')\n\
         print(connect('%FF.db').execute('SELECT a FROM t').fetchall())\n\
         open(b'\\xff.db-journal', 'w').write('of this one')\n\
         try: connect('%FF.db').execute('SELECT a FROM t')\n\
         except sqlite3.OperationalError as error: print(error)\n\
         os.unlink(b'\\xff.db-journal')\n\
         # By the second entry and its bytes alone, and a new one.\n\
         loader.execute(\"SELECT load_extension('./libbreakeven_sqlite', 'sqlite3_breakeven_default_init')\")\n\
         d = sqlite3.connect(b'\\xff.db')\n\
         d.execute(\"ATTACH 'file:new%FE.db' AS new\")\n\
         d.execute('CREATE TABLE new.t AS SELECT a + 1 AS a FROM t'); d.commit()\n\
         print(d.execute('SELECT a FROM new.t').fetchall(), open(b'new\\xfe.db', 'rb').read(16) == b'SQLite format 3\\0')",
    );
    let expected =
        "{b'\\xff.db'} False\nok [(1,)]\n[(1,)]\nunable to open database file\n[(2,)] False\n";
    assert_eq!(told, expected);
}

/// Leaves a database whose writer was killed, with a transaction half written.
const KILLED: &str = "import signal\n\
    d = connect('app.db')\n\
    d.isolation_level = None\n\
    d.execute('CREATE TABLE t(n INTEGER, pad BLOB)')\n\
    for n in range(40): d.execute('INSERT INTO t VALUES(?, randomblob(3000))', (n,))\n\
    d.execute('PRAGMA cache_size=5')\n\
    d.execute('BEGIN')\n\
    for n in range(400): d.execute('INSERT INTO t VALUES(?, randomblob(3000))', (1000 + n,))\n\
    os._exit(0) if os.fork() else None\n\
    os.kill(os.getpid(), signal.SIGKILL)";
const ASK: &str =
    "SELECT count(*), max(n) FROM t; PRAGMA integrity_check; PRAGMA breakeven_verify;";
const ANSWER: &str = "40|39\nok\nok\n";

#[test]
fn an_unclean_file_is_read_without_a_byte_of_it_changed() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.python(KILLED);
    let before = fs::read(hosts.path("app.db")).unwrap();
    for parameter in ["mode=ro", "mode=ro&nolock=1", "immutable=1"] {
        let open = format!(".open file:app.db?vfs=breakeven&{parameter}\n");
        assert_eq!(hosts.sqlite(&format!("{open}{ASK}")), ANSWER, "{parameter}");
        let refused = hosts.sqlite_fails(&format!("{open}DELETE FROM t;"));
        assert!(refused.contains("readonly"), "{refused}");
        assert!(
            fs::read(hosts.path("app.db")).unwrap() == before,
            "{parameter}"
        );
    }
    assert_eq!(hosts.sqlite(&format!("{OPEN}{ASK}DELETE FROM t;")), ANSWER);
}

#[test]
fn root_a_medium_that_cannot_be_written_is_read() {
    let Some(hosts) = Hosts::find().filter(|_| is_root_test()) else {
        return;
    };
    hosts.python(KILLED);
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"]);
    fs::copy(hosts.path("app.db"), mounted.path().join("app.db")).unwrap();
    mounted.remount("ro");
    let place = mounted.path().display().to_string();
    for parameter in ["mode=ro", "mode=rw", "immutable=1"] {
        let open = format!(".open file:{place}/app.db?vfs=breakeven&{parameter}\n");
        assert_eq!(hosts.sqlite(&format!("{open}{ASK}")), ANSWER, "{parameter}");
        let refused = hosts.sqlite_fails(&format!("{open}DELETE FROM t;"));
        assert!(refused.contains("readonly"), "{refused}");
    }
    let open = format!(".open file:{place}/new.db?vfs=breakeven\n");
    let refused = hosts.sqlite_fails(&format!("{open}CREATE TABLE t(a);"));
    assert!(refused.contains("unable to open"), "{refused}");
}

/// An error, or the rows that were written: nothing else, whatever bit of the file is another one.
#[test]
fn no_flipped_bit_gives_other_rows() {
    let Some(hosts) = Hosts::find() else { return };
    // A prime that meets every bit of a byte in time.
    let step: u64 = if is_full() { 64 } else { 64 * 19 };
    let told = hosts.python(&format!(
        "d = connect('app.db')\n\
         d.isolation_level = None\n\
         d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, text TEXT)')\n\
         d.execute('CREATE INDEX i ON t(text)')\n\
         for i in range(30):\n\
         \x20   d.execute('BEGIN')\n\
         \x20   d.executemany('INSERT OR REPLACE INTO t VALUES(?, ?)', [((i * 37 + k) % 500, f'row {{i}} {{k}} ' * 12) for k in range(40)])\n\
         \x20   d.execute('COMMIT')\n\
         d.close()\n\
         def ask():\n\
         \x20   d = connect('app.db')\n\
         \x20   try: return d.execute('SELECT * FROM t').fetchall(), d.execute('SELECT text FROM t ORDER BY text').fetchall()\n\
         \x20   except sqlite3.Error: return None\n\
         \x20   finally: d.close()\n\
         right = ask()\n\
         assert len(right[0]) == 500\n\
         refused = tried = 0\n\
         file = os.open('app.db', os.O_RDWR)\n\
         for bit in range(0, os.fstat(file).st_size * 8, {step}):\n\
         \x20   bit += bit // {step} % 8\n\
         \x20   byte = os.pread(file, 1, bit // 8)\n\
         \x20   os.pwrite(file, bytes([byte[0] ^ 1 << bit % 8]), bit // 8)\n\
         \x20   found = ask()\n\
         \x20   os.pwrite(file, byte, bit // 8)\n\
         \x20   tried += 1\n\
         \x20   refused += found is None\n\
         \x20   assert found in (None, right), bit\n\
         assert ask() == right\n\
         print(tried, refused)"
    ));
    let mut numbers = told.split_whitespace().map(|it| it.parse::<u64>().unwrap());
    let (tried, refused) = (numbers.next().unwrap(), numbers.next().unwrap());
    println!("{tried} bits flipped, {refused} times refused");
    // The superblock's two places and three segments of 16 KiB.
    assert!(tried > 350 && refused > 0, "{told}");
}
