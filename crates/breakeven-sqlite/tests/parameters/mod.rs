//! The parameters of the URI. Each has its own effect, and a sentence refuses a value that it does not take.

use std::fs;

use super::FILL;
use super::hosts::{Hosts, left_out};

/// Returns a number that `PRAGMA breakeven_stats` tells.
fn told(hosts: &Hosts, database: &str, name: &str) -> u64 {
    let open = format!(".open file:{database}?vfs=breakeven\n");
    let told = hosts.sqlite(&format!("{open}PRAGMA breakeven_stats;"));
    let (_, rest) = told.split_once(&format!("{name}=")).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_method_that_is_named_writes_the_pages() {
    let Some(hosts) = Hosts::find() else { return };
    let made = ["store", "lz4:1", "zstd:3"].map(|codec| {
        let name = format!("{}.db", codec.replace(':', ""));
        let open = format!(".open file:{name}?vfs=breakeven&codec={codec}\n");
        hosts.sqlite(&format!("{open}{FILL}"));
        let stored = told(&hosts, &name, "stored_bytes");
        (stored, hosts.sum(&format!("{name}?vfs=breakeven")), name)
    });
    let [
        (stored, sum, name),
        (fast, fast_sum, _),
        (dense, dense_sum, _),
    ] = made;
    println!("{stored} bytes stored as they are, {fast} by lz4:1, {dense} by zstd:3");
    assert!(stored >= told(&hosts, &name, "logical_bytes"));
    assert!(fast * 3 < stored * 2 && dense * 5 < fast * 4);
    assert!(sum == fast_sum && sum == dense_sum);
}

#[test]
fn a_file_that_is_written_over_is_as_long_as_is_asked_for() {
    let Some(hosts) = Hosts::find() else { return };
    let lengths = ["1.2", "4"].map(|space_amp| {
        let program = format!(
            "import random\n\
             random.seed(5)\n\
             d = sqlite3.connect('file:{space_amp}.db?vfs=breakeven&space_amp={space_amp}', uri=True)\n\
             d.isolation_level = None\n\
             d.execute('CREATE TABLE t(id INTEGER PRIMARY KEY, text TEXT)')\n\
             words = ['%x' % random.getrandbits(40) for _ in range(300)]\n\
             row = lambda: ' '.join(random.choice(words) for _ in range(60))\n\
             def put(keys):\n\
             \x20   d.execute('BEGIN')\n\
             \x20   d.executemany('INSERT OR REPLACE INTO t VALUES(?, ?)', [(key, row()) for key in keys])\n\
             \x20   d.execute('COMMIT')\n\
             put(range(4000))\n\
             for _ in range(400): put(random.sample(range(4000), 50))\n\
             print(d.execute('SELECT count(*) FROM t').fetchone()[0])"
        );
        assert_eq!(hosts.python(&program), "4000\n");
        let name = format!("{space_amp}.db");
        let file_bytes = fs::metadata(hosts.path(&name)).unwrap().len();
        let stored = told(&hosts, &name, "stored_bytes");
        println!("{space_amp}: a file of {file_bytes} bytes, {stored} of pages");
        // A file this small has some segments of 64 KiB beside.
        let most = space_amp.parse::<f64>().unwrap() * stored as f64 * 1.05;
        assert!(file_bytes as f64 <= most + f64::from(10 * (64 << 10)));
        file_bytes
    });
    assert!(lengths[0] * 3 < lengths[1] * 2, "{lengths:?}");
}

/// The system counts what a process reads of files, by calls.
#[test]
fn a_page_cache_that_holds_all_keeps_the_file_from_being_read() {
    let Some(hosts) = Hosts::find() else { return };
    if fs::read_to_string("/proc/self/io").is_err() {
        return left_out("the system does not count reads: no page cache tried");
    }
    hosts.sqlite(&format!("{}{FILL}", super::OPEN));
    let reads = ["0", "64"].map(|page_cache| -> u64 {
        let program = format!(
            "def reads():\n\
             \x20   with open('/proc/self/io') as lines:\n\
             \x20       return next(int(line.split()[1]) for line in lines if line.startswith('syscr'))\n\
             d = sqlite3.connect('file:app.db?vfs=breakeven&page_cache={page_cache}', uri=True)\n\
             d.execute('PRAGMA cache_size=10')\n\
             scan = lambda: d.execute('SELECT sum(length(text)) FROM words NOT INDEXED').fetchone()\n\
             scan()\n\
             before = reads()\n\
             scan()\n\
             print(reads() - before)"
        );
        hosts.python(&program).trim().parse().unwrap()
    });
    println!(
        "a scan without a page cache reads {} times, with all in it {}",
        reads[0], reads[1]
    );
    assert!(reads[0] > 200 && reads[1] < 20, "{reads:?}");
}

/// The process forbids itself all syncs: a program that syncs gets an error.
#[test]
fn a_lazy_commit_does_not_sync() {
    let Some(hosts) = Hosts::find() else { return };
    let told = hosts.python(
        "import ctypes, platform, struct\n\
         full, lazy = (sqlite3.connect('file:app.db?vfs=breakeven&durability=' + it, uri=True) for it in ('full', 'lazy'))\n\
         full.execute('CREATE TABLE t(a)')\n\
         numbers = {'x86_64': (74, 75), 'aarch64': (82, 83)}.get(platform.machine())\n\
         if numbers is None: print('unknown'); sys.exit()\n\
         # Load the number of the call; fsync and fdatasync fail by EIO, and others are let be.\n\
         steps = [(0x20, 0, 0, 0), (0x15, 1, 0, numbers[0]), (0x15, 0, 1, numbers[1]),\n\
         \x20   (6, 0, 0, 0x50005), (6, 0, 0, 0x7fff0000)]\n\
         code = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *step) for step in steps))\n\
         class Program(ctypes.Structure):\n\
         \x20   _fields_ = [('count', ctypes.c_ushort), ('code', ctypes.c_void_p)]\n\
         program = Program(len(steps), ctypes.addressof(code))\n\
         prctl = ctypes.CDLL(None).prctl\n\
         # No new privileges, and then the filter.\n\
         if prctl(38, 1, 0, 0, 0) or prctl(22, 2, ctypes.byref(program), 0, 0): print('unknown'); sys.exit()\n\
         for number in range(20):\n\
         \x20   lazy.execute('INSERT INTO t VALUES(?)', (number,))\n\
         \x20   lazy.commit()\n\
         print(full.execute('SELECT count(*) FROM t').fetchone()[0])\n\
         full.execute('INSERT INTO t VALUES(20)')\n\
         try: full.commit()\n\
         except sqlite3.OperationalError as error: print(error)",
    );
    match told.as_str() {
        "unknown\n" => left_out("syncs cannot be forbidden here: no lazy commit tried"),
        told => assert_eq!(told, "20\ndisk I/O error\n"),
    }
}

#[test]
fn a_value_that_is_not_taken_is_refused_with_a_sentence() {
    let Some(hosts) = Hosts::find() else { return };
    let cases = [
        ("codec=zstd:99", "zstd level 99 is outside -7..22"),
        ("codec=gone", "'gone' is not understood"),
        ("codec=%FF", "is not understood"),
        ("space_amp=0.5", "space_amp: '0.5': a number from 1 to 100"),
        ("space_amp=NaN", "space_amp: 'NaN': a number from 1 to 100"),
        ("page_cache=-1", "page_cache: '-1': MiB, from 0 to 1048576"),
        ("threads=0", "threads: '0': a number from 1 to 64"),
        ("threads=65", "threads: '65': a number from 1 to 64"),
        ("durability=none", "durability: 'none': full or lazy"),
        ("snapshot=2", "snapshot: '2': 0 or 1"),
    ];
    for (parameter, sentence) in cases {
        let open = format!(".log stderr\n.open file:app.db?vfs=breakeven&{parameter}\n");
        let said = hosts.sqlite_fails(&format!("{open}CREATE TABLE t(a);"));
        assert!(said.contains(sentence), "{parameter}: {said}");
        assert!(said.contains("unable to open"), "{parameter}: {said}");
        // Nothing was made under the name.
        assert!(!hosts.path("app.db").exists(), "{parameter}");
    }
}
