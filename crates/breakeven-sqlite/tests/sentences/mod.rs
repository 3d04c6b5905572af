//! A refusal has a sentence: in SQLite's log, and for `SELECT breakeven_why()`.

use super::hosts::Hosts;

/// Has `refused`, which runs what must fail and returns what SQLite says and why it was.
const REFUSED: &str = "import resource\n\
    def why(): return loader.execute('SELECT breakeven_why()').fetchone()[0]\n\
    def refused(work):\n\
    \x20   try: work()\n\
    \x20   except sqlite3.Error as error: return f'{error} because {why()}'\n\
    \x20   return 'nothing was refused'\n\
    def opened(name, parameters=''):\n\
    \x20   return sqlite3.connect(f'file:{name}?vfs=breakeven{parameters}', uri=True, timeout=0, isolation_level=None)\n";

/// Says what a program prints, which is to end with each line's words.
fn check(program: &str, expected: &[&str]) {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(&format!("{REFUSED}{program}"));
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), expected.len(), "{told}");
    for (line, expected) in lines.iter().zip(expected) {
        let (said, why) = expected.split_once(": ").unwrap();
        let is_told = line.starts_with(said) && line.contains(why);
        assert!(is_told, "{line}\nis not: {expected}");
    }
}

#[test]
fn what_is_not_opened_is_told() {
    check(
        "assert why() is None\n\
         print(refused(lambda: opened('x.db', '&codec=xz:6').execute('CREATE TABLE t(a)')))\n\
         assert not os.path.exists('x.db')\n\
         print(refused(lambda: opened('a.db', '&codec=%FFlz4')))\n\
         print(refused(lambda: opened('a.db', '&durability=none')))\n\
         assert not os.path.exists('a.db')\n\
         print(refused(lambda: opened('gone/a.db')))\n\
         opened('a.db').execute('CREATE TABLE t(a)')\n\
         open('a.db-journal', 'w').write('x')\n\
         print(refused(lambda: opened('a.db').execute('SELECT * FROM t')))",
        &[
            "unable to open database file: codec of a database: 'xz:6': the SQLite extension reads databases of store, lz4, lz4hc and zstd",
            "unable to open database file: is not understood",
            "unable to open database file: durability: 'none': full or lazy",
            "unable to open database file: gone/a.db: cannot be opened: No such file or directory",
            "unable to open database file: a.db-journal is there, of another database",
        ],
    );
}

#[test]
fn who_is_in_the_way_is_told() {
    check(
        "one, two = opened('a.db'), opened('a.db')\n\
         print(refused(lambda: (one.execute('BEGIN IMMEDIATE'), two.execute('CREATE TABLE t(a)'))))\n\
         one.execute('CREATE TABLE t(a)'); one.execute('COMMIT')\n\
         one.execute('BEGIN IMMEDIATE')\n\
         print(refused(lambda: two.execute('INSERT INTO t VALUES(1)')))\n\
         one.execute('COMMIT')\n\
         two.execute('BEGIN'); two.execute('SELECT * FROM t').fetchall()\n\
         one.execute('INSERT INTO t VALUES(1)')\n\
         print(refused(lambda: two.execute('INSERT INTO t VALUES(2)')))",
        &[
            "database is locked: a.db: another connection writes",
            "database is locked: a.db: another connection writes",
            "database is locked: a.db: another connection has written since",
        ],
    );
}

#[test]
fn what_cannot_be_written_or_read_is_told() {
    check(
        "d = opened('a.db')\n\
         d.execute('CREATE TABLE t(a)')\n\
         for n in range(40): d.execute('INSERT INTO t VALUES(randomblob(3000))')\n\
         resource.setrlimit(resource.RLIMIT_FSIZE, (os.stat('a.db').st_size, resource.RLIM_INFINITY))\n\
         print(refused(lambda: d.execute('INSERT INTO t VALUES(randomblob(3000000))')))\n\
         d.close()\n\
         with open('a.db', 'r+b') as file:\n\
         \x20   bytes = bytearray(file.read())\n\
         \x20   for at in range(16384, len(bytes), 64): bytes[at] ^= 1\n\
         \x20   file.seek(0); file.write(bytes)\n\
         print(refused(lambda: opened('a.db').execute('SELECT sum(length(a)) FROM t').fetchone()))",
        &[
            "database or disk is full: File too large",
            "database disk image is malformed: `breakeven db fsck` says what can be read",
        ],
    );
}

/// Nobody but older SQLites and other VFSes asks this way.
#[test]
fn the_vfs_tells_as_much_as_it_is_asked_for() {
    check(
        "from ctypes import CDLL, CFUNCTYPE, c_char_p, c_int, c_void_p, create_string_buffer\n\
         find = CDLL('libsqlite3.so.0').sqlite3_vfs_find\n\
         find.restype = c_void_p\n\
         vfs = find(b'breakeven')\n\
         # Three numbers and fourteen pointers lie before it.\n\
         ask = CFUNCTYPE(c_int, c_void_p, c_int, c_char_p)(c_void_p.from_address(vfs + 16 + 14 * 8).value)\n\
         told = refused(lambda: opened('a.db', '&snapshot=2'))\n\
         buffer = create_string_buffer(b'#' * 400)\n\
         ask(vfs, 0, None); ask(vfs, 0, buffer); ask(vfs, 1, buffer)\n\
         assert buffer.raw[:400] == b'#' * 400\n\
         ask(vfs, 300, buffer)\n\
         assert told.endswith(buffer.value.decode()) and len(buffer.value) > 20\n\
         ask(vfs, 5, buffer)\n\
         print(len(buffer.value), why())",
        &["4: snapshot: '2': 0 or 1"],
    );
}
