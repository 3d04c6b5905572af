//! Hosts and file systems in odd states: closed standard streams, no descriptors, no room, leases, folders that may not
//! be listed, files with other names, children.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::OPEN;
use super::hosts::{Hosts, is_root_test};
use super::mounted::Mounted;

#[test]
fn what_is_printed_to_a_closed_stream_is_not_written_into_a_database() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.python(
        "d = connect('app.db')\n\
         d.isolation_level = None\n\
         d.execute('CREATE TABLE t(v)')\n\
         d.executemany('INSERT INTO t VALUES(?)', [(os.urandom(300).hex(),) for _ in range(200)])\n\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   for number in 0, 1, 2: os.close(number)\n\
         \x20   for name in 'app.db', 'new.db':\n\
         \x20       own = connect(name)\n\
         \x20       own.isolation_level = None\n\
         \x20       own.execute('CREATE TABLE IF NOT EXISTS t(v)')\n\
         \x20       own.execute('PRAGMA cache_size=5')\n\
         \x20       own.execute('BEGIN')\n\
         \x20       own.execute('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300) INSERT INTO t SELECT hex(randomblob(300)) FROM n')\n\
         \x20       for number in 0, 1, 2:\n\
         \x20           try: os.write(number, b'a warning' * 1000)\n\
         \x20           except OSError: pass\n\
         \x20       own.execute('COMMIT')\n\
         \x20   os._exit(0)\n\
         assert os.waitpid(pid, 0)[1] == 0",
    );
    let checks = "PRAGMA integrity_check; PRAGMA breakeven_verify; SELECT count(*) FROM t;";
    assert_eq!(hosts.sqlite(&format!("{OPEN}{checks}")), "ok\nok\n500\n");
    let new = OPEN.replace("app.db", "new.db");
    assert_eq!(hosts.sqlite(&format!("{new}{checks}")), "ok\nok\n300\n");
}

/// A file that is opened by one name and read by another, by a descriptor that was there before, and with attributes.
#[test]
fn an_empty_file_becomes_a_database_where_it_is() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import tempfile\n\
         held = tempfile.NamedTemporaryFile(dir='.')\n\
         os.link(held.name, 'other.db')\n\
         os.symlink(os.path.basename(held.name), 'link.db')\n\
         try: os.setxattr(held.name, 'user.note', b'mine')\n\
         except OSError: pass\n\
         before = os.listxattr(held.name)\n\
         d = connect('link.db')\n\
         print(d.execute('SELECT count(*) FROM sqlite_schema').fetchone()[0], os.path.getsize('other.db'))\n\
         d.execute('CREATE TABLE t(v)')\n\
         d.execute('INSERT INTO t VALUES(7)')\n\
         d.commit()\n\
         d.close()\n\
         print(held.read(4)[1:], os.listxattr('other.db') == before, os.path.samefile(held.name, 'other.db'))\n\
         print(connect('other.db').execute('SELECT v FROM t').fetchall())",
    );
    assert_eq!(told, "0 0\nb'BKV' True True\n[(7,)]\n");
}

/// Of those that begin at once one makes it.
#[test]
fn processes_that_make_a_database_at_once_share_it() {
    let Some(hosts) = Hosts::find() else { return };
    let program = "d = connect('app.db')\n\
        d.isolation_level = None\n\
        d.execute('PRAGMA journal_mode=WAL')\n\
        d.execute('CREATE TABLE IF NOT EXISTS t(n)')\n\
        for n in range(20): d.execute('INSERT INTO t VALUES(?)', (n,))";
    for _ in 0..3 {
        let running = [(); 6].map(|()| hosts.start_python(program));
        for child in running {
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
        let count = format!("{OPEN}PRAGMA integrity_check; SELECT count(*), sum(n) FROM t;");
        assert_eq!(hosts.sqlite(&count), "ok\n120|1140\n");
        fs::remove_file(hosts.path("app.db")).unwrap();
    }
}

#[test]
fn a_lease_is_waited_for() {
    let Some(hosts) = Hosts::find() else { return };
    hosts.sqlite(&format!(
        "{OPEN}CREATE TABLE t(v); INSERT INTO t VALUES(1);"
    ));
    fs::write(hosts.path("empty.db"), b"").unwrap();
    let told = hosts.python(
        "import fcntl, signal, subprocess\n\
         holder = '''\n\
import fcntl, os, signal, sys\n\
file = os.open(sys.argv[1], os.O_RDWR)\n\
signal.signal(signal.SIGIO, lambda *_: (os.close(file), os._exit(0)))\n\
try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK); print('held', flush=True)\n\
except OSError: print('none', flush=True)\n\
while True: signal.pause()\n\
'''\n\
         for name in 'app.db', 'empty.db':\n\
         \x20   child = subprocess.Popen([sys.executable, '-c', holder, name], stdout=subprocess.PIPE)\n\
         \x20   held = child.stdout.readline()\n\
         \x20   d = connect(name)\n\
         \x20   d.execute('CREATE TABLE IF NOT EXISTS t(v)')\n\
         \x20   print(d.execute('SELECT count(*) FROM t').fetchone()[0], open(name, 'rb').read(4)[1:])\n\
         \x20   child.kill(); child.wait()",
    );
    assert_eq!(told, "1 b'BKV'\n0 b'BKV'\n");
}

/// The parent is killed within a transaction, and its child, which never used the database, lives.
#[test]
fn a_child_gives_up_locks_without_descriptors_too() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import resource, signal\n\
         connect('app.db').execute('CREATE TABLE t(v)')\n\
         end, forked = os.pipe(), os.pipe()\n\
         pid = os.fork()\n\
         if pid == 0:\n\
         \x20   d = connect('app.db')\n\
         \x20   d.isolation_level = None\n\
         \x20   d.execute('BEGIN IMMEDIATE')\n\
         \x20   resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n\
         \x20   try:\n\
         \x20       while True: os.open('/dev/null', 0)\n\
         \x20   except OSError: pass\n\
         \x20   if os.fork() == 0:\n\
         \x20       os.close(end[1])\n\
         \x20       os.write(forked[1], b'x')\n\
         \x20       os.read(end[0], 1)\n\
         \x20       os._exit(0)\n\
         \x20   os.read(forked[0], 1)\n\
         \x20   os.kill(os.getpid(), signal.SIGKILL)\n\
         os.waitpid(pid, 0)\n\
         d = connect('app.db')\n\
         d.execute('PRAGMA busy_timeout=0')\n\
         d.execute('INSERT INTO t VALUES(1)')\n\
         d.commit()\n\
         print(d.execute('SELECT count(*) FROM t').fetchone()[0])",
    );
    assert_eq!(told, "1\n");
}

/// The journal is longer than the part kept in memory: parent and child have its file in common.
#[test]
fn a_child_changes_nothing_of_a_transaction_that_its_parent_takes_back() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "d = connect('app.db')\n\
         d.isolation_level = None\n\
         d.execute('PRAGMA cache_size=100')\n\
         d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)')\n\
         d.execute('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000) INSERT INTO t SELECT i, zeroblob(3800) FROM n')\n\
         d.execute('BEGIN')\n\
         d.execute(\"UPDATE t SET v = zeroblob(3799) || 'x' WHERE id < 20000\")\n\
         print([os.readlink(f'/proc/self/fd/{it}').startswith(os.getcwd()) for it in os.listdir('/proc/self/fd') if '(deleted)' in (os.readlink(f'/proc/self/fd/{it}') if os.path.islink(f'/proc/self/fd/{it}') else '')])\n\
         said = os.pipe()\n\
         if os.fork() == 0:\n\
         \x20   for sql in \"UPDATE t SET v = randomblob(3800) WHERE id > 20000\", 'COMMIT', 'ROLLBACK':\n\
         \x20       try: d.execute(sql); os.write(said[1], b'done ')\n\
         \x20       except sqlite3.Error: os.write(said[1], b'refused ')\n\
         \x20   own = connect('app.db')\n\
         \x20   os.write(said[1], str(own.execute('SELECT count(*) FROM t').fetchone()[0]).encode())\n\
         \x20   os._exit(0)\n\
         os.wait()\n\
         print(os.read(said[0], 100).decode())\n\
         d.execute('UPDATE t SET v = 7 WHERE id >= 20000')\n\
         d.execute('ROLLBACK')\n\
         print(d.execute('SELECT count(*), sum(v = zeroblob(3800)) FROM t').fetchone(), d.execute('PRAGMA integrity_check').fetchone()[0])",
    );
    assert_eq!(
        told,
        "[True]\nrefused refused refused 25000\n(25000, 25000) ok\n"
    );
}

/// A worker opens the database for itself and sees what its parent, and others, write later.
#[test]
fn a_child_with_a_connection_of_its_own_follows_the_file() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "d = connect('app.db')\n\
         d.isolation_level = None\n\
         d.execute('CREATE TABLE t(v)')\n\
         d.execute('INSERT INTO t VALUES(0)')\n\
         ask, tell = os.pipe(), os.pipe()\n\
         if os.fork() == 0:\n\
         \x20   own = connect('app.db')\n\
         \x20   while os.read(ask[0], 1) == b'?':\n\
         \x20       os.write(tell[1], bytes([own.execute('SELECT count(*) FROM t').fetchone()[0]]))\n\
         \x20   os._exit(0)\n\
         counts = []\n\
         for n in range(5):\n\
         \x20   os.write(ask[1], b'?')\n\
         \x20   counts.append(os.read(tell[0], 1)[0])\n\
         \x20   d.execute('INSERT INTO t VALUES(?)', (n,))\n\
         os.write(ask[1], b'.')\n\
         os.wait()\n\
         print(counts)",
    );
    assert_eq!(told, "[1, 2, 3, 4, 5]\n");
}

#[test]
fn root_a_folder_that_may_not_be_listed_has_compressed_databases_too() {
    let Some(hosts) = Hosts::find().filter(|_| is_root_test()) else {
        return;
    };
    hosts.sqlite(&format!(
        "{OPEN}CREATE TABLE t(v); INSERT INTO t VALUES(1);"
    ));
    fs::create_dir(hosts.path("write")).unwrap();
    for (name, mode) in [("app.db", 0o666), ("write", 0o333), (".", 0o711)] {
        fs::set_permissions(hosts.path(name), Permissions::from_mode(mode)).unwrap();
    }
    // The extension lies elsewhere, and is loaded before.
    let told = hosts.python(
        "os.setgid(65534); os.setuid(65534)\n\
         for name in 'app.db', 'write/new.db':\n\
         \x20   d = connect(name)\n\
         \x20   d.execute('CREATE TABLE IF NOT EXISTS t(v)')\n\
         \x20   d.execute('INSERT INTO t VALUES(2)')\n\
         \x20   d.commit()\n\
         \x20   print(d.execute('SELECT count(*) FROM t').fetchone()[0], open(name, 'rb').read(4)[1:])",
    );
    assert_eq!(told, "2 b'BKV'\n1 b'BKV'\n");
}

#[test]
fn root_without_room_a_new_database_is_refused_and_nothing_is_left() {
    let Some(hosts) = Hosts::find().filter(|_| is_root_test()) else {
        return;
    };
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=256k", "tmpfs"]);
    let fill = mounted.path().join("fill");
    fs::write(&fill, vec![1; 240 << 10]).unwrap();
    let place = mounted.path().display().to_string();
    let open = format!(".open file:{place}/new.db?vfs=breakeven\n");
    for _ in 0..3 {
        let refused = hosts.sqlite_fails(&format!("{open}CREATE TABLE t(v);"));
        assert!(refused.contains("database or disk is full"), "{refused}");
    }
    fs::remove_file(fill).unwrap();
    let left: Vec<_> = fs::read_dir(mounted.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(
        fs::metadata(mounted.path().join("new.db")).unwrap().len(),
        0
    );
    let made = format!("{open}CREATE TABLE t(v); INSERT INTO t VALUES(1); SELECT v FROM t;");
    assert_eq!(hosts.sqlite(&made), "1\n");
}

/// A file on which another is mounted cannot be renamed over.
#[test]
fn root_a_file_that_is_a_mount_becomes_a_database() {
    let Some(hosts) = Hosts::find().filter(|_| is_root_test()) else {
        return;
    };
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=8m", "tmpfs"]);
    let (outside, inside) = (
        mounted.path().join("outside.db"),
        mounted.path().join("app.db"),
    );
    fs::write(&outside, b"").unwrap();
    fs::write(&inside, b"").unwrap();
    super::mounted::run("mount", &["--bind".as_ref(), &outside, &inside]);
    let place = inside.display();
    let told = hosts.sqlite(&format!(
        ".open file:{place}?vfs=breakeven\nCREATE TABLE t(v); INSERT INTO t VALUES(1); SELECT v FROM t;"
    ));
    super::mounted::run("umount", &[&inside]);
    assert_eq!(told, "1\n");
    assert!(fs::metadata(outside).unwrap().size() > 0);
}

/// A small file system for temporary files, where an update of everything does not find room.
#[test]
fn root_a_long_journal_lies_beside_its_database() {
    let Some(hosts) = Hosts::find().filter(|_| is_root_test()) else {
        return;
    };
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=4m", "tmpfs"]);
    let small = mounted.path().display().to_string();
    let program = "d = connect('app.db')\n\
        d.isolation_level = None\n\
        d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, v BLOB)')\n\
        d.execute('WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000) INSERT INTO t SELECT i, zeroblob(3800) FROM n')\n\
        d.execute('BEGIN')\n\
        d.execute(\"UPDATE t SET v = zeroblob(3799) || 'x'\")\n\
        d.execute('ROLLBACK')\n\
        assert d.execute('SELECT sum(v = zeroblob(3800)) FROM t').fetchone()[0] == 25000";
    let environment = [("TMPDIR", small)];
    assert_eq!(hosts.python_with(program, &environment), Some(0));
}

/// With little address space to get a call fails as it does in SQLite, whose process lives, and nothing is lost.
#[test]
fn a_host_without_memory_lives() {
    let Some(hosts) = Hosts::find() else { return };
    let program = "import resource\n\
         name = os.environ['FREE_KIB']\n\
         connect(name).execute('CREATE TABLE t(i INTEGER PRIMARY KEY, v)')\n\
         there = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n\
         limit = there + int(name) * 1024\n\
         resource.setrlimit(resource.RLIMIT_AS, (limit, -1))\n\
         said = 'done'\n\
         d = connect(name)\n\
         d.isolation_level = None\n\
         try:\n\
         \x20   for _ in range(2):\n\
         \x20       for sql in 'PRAGMA cache_size=50', 'BEGIN', 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) INSERT INTO t(v) SELECT hex(randomblob(500)) FROM n', 'COMMIT', 'PRAGMA integrity_check', 'PRAGMA breakeven_verify', 'SELECT sum(length(v)) FROM t': d.execute(sql).fetchall()\n\
         except MemoryError: said = 'refused'\n\
         resource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n\
         if said == 'refused':\n\
         \x20   if d.in_transaction: d.execute('ROLLBACK')\n\
         assert d.execute('PRAGMA integrity_check').fetchone()[0] == 'ok'\n\
         assert d.execute('SELECT count(*) FROM t').fetchone()[0] % 1000 == 0\n\
         open('told', 'a').write(said + ' ')";
    for free_kib in (200..12_200).step_by(1200) {
        let free = [("FREE_KIB", free_kib.to_string())];
        assert_eq!(hosts.python_with(program, &free), Some(0), "{free_kib} KiB");
    }
    let told = fs::read_to_string(hosts.path("told")).unwrap();
    for word in ["refused", "done"] {
        assert!(told.contains(word), "{told}");
    }
}

/// A thread of a stack that is enough for stock SQLite makes, fills, cleans, copies and reads databases.
#[test]
fn a_thread_of_32_kib_of_stack_is_enough() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import threading\n\
         connect('app.db').close()\n\
         rows = 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400) INSERT INTO t(v) SELECT hex(randomblob(100)) || i FROM n'\n\
         done = []\n\
         def work():\n\
         \x20   for page in 512, 4096, 65536:\n\
         \x20       for more in '', '&codec=zstd:19', '&codec=zstd:3%2Bdict', '&codec=shuffle8%2Blz4:1&page_cache=0':\n\
         \x20           name = f'{page}.db'\n\
         \x20           def own(name): return sqlite3.connect(f'file:{name}?vfs=breakeven' + more, uri=True, isolation_level=None)\n\
         \x20           d = own(name)\n\
         \x20           for sql in f'PRAGMA page_size={page}', 'CREATE TABLE IF NOT EXISTS t(i INTEGER PRIMARY KEY, v)': d.execute(sql)\n\
         \x20           for _ in range(3):\n\
         \x20               for sql in 'BEGIN', rows, 'SAVEPOINT a', 'UPDATE t SET v = v || 1 WHERE i % 3 = 0', 'ROLLBACK TO a', 'DELETE FROM t WHERE i % 7 = 3', 'COMMIT': d.execute(sql)\n\
         \x20           for sql in 'integrity_check', 'breakeven_verify', 'journal_mode=wal', 'wal_checkpoint', 'journal_mode=delete': d.execute('PRAGMA ' + sql).fetchall()\n\
         \x20           copy = own('copy.db')\n\
         \x20           d.backup(copy)\n\
         \x20           same = [it.execute('SELECT count(*), sum(length(v)) FROM t').fetchone() for it in (copy, d)]\n\
         \x20           d.execute('VACUUM')\n\
         \x20           for it in d, copy: it.close()\n\
         \x20           os.remove('copy.db')\n\
         \x20           done.append(same[0] == same[1])\n\
         threading.stack_size(32768)\n\
         thread = threading.Thread(target=work)\n\
         thread.start()\n\
         thread.join()\n\
         print(len(done), all(done))",
    );
    assert_eq!(told, "12 True\n");
}

/// A program that catches or ignores SIGXFSZ, as Python does, meets `ulimit -f` as a full disk. The extension changes
/// nothing in how signals are met: a program that does not is ended by it, with stock SQLite as well.
#[test]
fn a_limit_of_the_length_of_files_is_a_full_disk() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import resource\n\
         def signals(): return [l for l in open('/proc/self/status') if l[:6] in ('SigBlk', 'SigIgn', 'SigCgt')]\n\
         before = signals()\n\
         d = connect('app.db')\n\
         d.isolation_level = None\n\
         d.execute('CREATE TABLE t(v)')\n\
         hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]\n\
         resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, hard))\n\
         count = 0\n\
         try:\n\
         \x20   while count < 2000:\n\
         \x20       d.execute('INSERT INTO t VALUES(randomblob(4000))')\n\
         \x20       count += 1\n\
         except Exception as error: print(error)\n\
         assert 500 < count < 1200, count\n\
         assert d.execute('SELECT count(*) FROM t').fetchone()[0] == count\n\
         gone = count // 2\n\
         for row in range(20, gone, 20): d.execute('DELETE FROM t WHERE rowid <= ?', (row,))\n\
         d.execute('DELETE FROM t WHERE rowid <= ?', (gone,))\n\
         for _ in range(gone // 2): d.execute('INSERT INTO t VALUES(randomblob(4000))')\n\
         count += gone // 2 - gone\n\
         resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n\
         d.execute('INSERT INTO t VALUES(randomblob(4000))')\n\
         assert d.execute('SELECT count(*) FROM t').fetchone()[0] == count + 1\n\
         print(d.execute('PRAGMA integrity_check').fetchone()[0], signals() == before)",
    );
    assert_eq!(told, "database or disk is full\nok True\n");
}

/// Deletes in steps work on a file system without a byte left, where plain SQLite has no room for its journal, and give
/// room back.
#[test]
fn root_a_full_file_system_takes_deletes_and_gets_room_back() {
    let Some(hosts) = Hosts::find().filter(|_| is_root_test()) else {
        return;
    };
    let mounted = Mounted::new(&["-t", "tmpfs", "-o", "size=16m", "tmpfs"]);
    let place = mounted.path().display();
    let told = hosts.python(&format!(
        "d = connect('{place}/app.db')\n\
         d.isolation_level = None\n\
         d.execute('CREATE TABLE t(v)')\n\
         def insert(most):\n\
         \x20   for count in range(most):\n\
         \x20       try: d.execute('INSERT INTO t VALUES(randomblob(4000))')\n\
         \x20       except sqlite3.OperationalError as error: return count\n\
         \x20   return most\n\
         count = insert(10000)\n\
         assert 2000 < count < 5000, count\n\
         ballast = open('{place}/ballast', 'wb', 0)\n\
         try:\n\
         \x20   while ballast.write(bytes(4096)): pass\n\
         except OSError: pass\n\
         def left(): return os.statvfs('{place}').f_bavail\n\
         assert left() == 0\n\
         for step in range(1, 17): d.execute('DELETE FROM t WHERE rowid <= ?', (step * count // 20,))\n\
         kept = count - 16 * count // 20\n\
         assert d.execute('SELECT count(*) FROM t').fetchone()[0] == kept\n\
         assert left() > 1500, left()\n\
         assert insert(count // 2) == count // 2\n\
         print(d.execute('PRAGMA integrity_check').fetchone()[0])",
    ));
    assert_eq!(told, "ok\n");
}
