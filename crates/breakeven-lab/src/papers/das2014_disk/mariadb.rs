//! A database without compression of its own on a disk of ours, against its own compression of pages on a plain file
//! behind the same protocol.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::mounted::Mounted;
use super::servers::{OURS, Server};
use super::speed::{TASK, row};
use crate::data::{Random, SEED};
use crate::device::{Device, run};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::peers;
use crate::programs::{self, own_program};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, PAIRS_MIN, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "das2014-disk/mariadb",
    claim: "MariaDB without compression on a served disk does 0.95 of the transactions that it does with its page compression on a plain file, and takes no more room.",
    source: "this project's own target; MariaDB's page compression came from the paper",
    figure: "transactions per second over page compression's; stored bytes over its at least 0.95",
    target: Target::at_least(0.95),
    parameters: &[
        (
            "table",
            "200,000 rows as sysbench's: two numbers, 119 and 59 digits in groups; a buffer pool of 24 MiB",
        ),
        (
            "transaction",
            "ten rows read by number, a sum over a hundred, two rows changed, one removed and written again, as in sysbench's read and write mix. Each commit is durable",
        ),
        (
            "clients",
            "two of MariaDB's own, each 500 transactions in a run",
        ),
        (
            "way",
            "nbdfuse, a loop device and ext4 on both sides: a disk of ours, or nbdkit's file; page compression by zlib at its default level",
        ),
        (
            "native ext4",
            "a loop device on a file and nothing between, MariaDB without compression; shown beside them and not judged",
        ),
        ("runs", "10 (quick: none), all alternating"),
        (
            "stored bytes",
            "of the disk's file and of the plain ones, when the databases have ended and blocks of no file were given back; of the disk's file once more after `disk compact`",
        ),
        (
            "blocks",
            "of the disk: 4 KiB, the default, and 16 KiB, as long as a page of the database; ext4 writes parts of those",
        ),
    ],
    analysis: "Page compression makes holes in files, which the file system gives back to the device. Both sides share \
        the same path. It is longer than a kernel's own driver, so less of the time differs. Needs root, and Debian's \
        mariadb-server-core and mariadb-client-core.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table: |records| table(records),
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["transactions", "seconds", "stored_bytes"];
const TRANSACTIONS: usize = 0;
const SECONDS: usize = 1;
const STORED: usize = 2;

const PEER: &str = "page compression";
/// Without a server in between; nothing is judged by it.
const NATIVE: &str = "native ext4";
const CONTENDERS: [&str; 3] = [OURS, PEER, NATIVE];
const STORED_TASK: &str = "stored";
const COMPACTED_TASK: &str = "compacted";
/// Cells, each with the KiB of a disk's block.
const CELLS: [(&str, u64); 2] = [
    ("read and write mix", 4),
    ("read and write mix in blocks of 16 KiB", 16),
];

const DISK_BYTES: u64 = 1 << 30;
const CLIENTS: u64 = 2;
/// A server has to answer by then.
const START: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
struct Length {
    rows: u64,
    transactions: u64,
    runs: usize,
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let length = Length {
        rows: 200_000,
        transactions: 500,
        runs: 10,
    };
    let programs = [
        ("nbdkit", "--version"),
        ("nbdfuse", "--version"),
        ("mariadbd", "--version"),
        ("mariadb", "--version"),
    ];
    let peers = match programs::peers(&programs) {
        // Making two databases alone takes longer than a quick run may.
        _ if laboratory.quick => "missing=time".to_string(),
        peers if peers.starts_with("missing") || Device::is_possible() => peers,
        _ => "missing=a-device".to_string(),
    };
    let are_missing = peers.starts_with("missing");
    let cell = |(name, kib): (&str, u64)| Cell {
        name: name.to_string(),
        parameters: format!(
            "rows={} transactions={} runs={} seed={SEED} {peers}",
            length.rows, length.transactions, length.runs
        ),
        measure: Box::new(move || match are_missing {
            true => Ok(Row::unmeasured(TASK, &CONTENDERS, COLUMNS)),
            false => rows(laboratory, length, kib << 10),
        }),
    };
    laboratory.measure(EXPERIMENT.key, COLUMNS, CELLS.map(cell).into())
}

/// The mounted file system under a database, and its server. The mount goes first.
enum Ground {
    Served { mounted: Mounted, _server: Server },
    Native(Device),
}

impl Ground {
    fn point(&self) -> &Path {
        match self {
            Ground::Served { mounted, .. } => mounted.point(),
            Ground::Native(device) => device.point(),
        }
    }
}

/// A running MariaDB; its ground goes after it.
struct Database {
    child: Child,
    socket: PathBuf,
    /// None once it has ended.
    ground: Option<Ground>,
    /// Whose room is counted.
    stored: PathBuf,
    _folders: [tempfile::TempDir; 2],
}

impl Database {
    /// Makes a database on a new disk or file, and a table in it.
    fn make(
        laboratory: &Laboratory,
        (contender, block_bytes): (&str, u64),
        rows: u64,
    ) -> Result<Database> {
        let folder = laboratory.scratch()?;
        // The way to a socket is short, wherever the records are.
        let sockets = tempfile::tempdir()?;
        let (path, to) = (folder.path(), sockets.path());
        let served = |server: Server| {
            let mounted = Mounted::make(path, &server)?;
            anyhow::Ok(Ground::Served {
                mounted,
                _server: server,
            })
        };
        let (ground, stored) = match contender {
            OURS => (
                served(Server::ours_of_blocks(path, to, DISK_BYTES, block_bytes)?)?,
                "disk",
            ),
            PEER => (served(Server::peer(path, to, DISK_BYTES)?)?, "image"),
            _ => (
                Ground::Native(Device::mount_with(path, "ext4", "loop,discard")?),
                "image",
            ),
        };
        let stored = folder.path().join(stored);
        let data = format!("--datadir={}", ground.point().join("data").display());
        run(peers::command("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--skip-test-db"])
            .args(["--auth-root-authentication-method=normal", &data]))?;
        let socket = sockets.path().join("mariadb");
        let child = peers::command("mariadbd")
            .args(["--no-defaults", "--user=root", "--skip-networking", &data])
            .args([
                "--innodb-buffer-pool-size=24M",
                "--innodb-log-file-size=16M",
            ])
            .arg(format!("--socket={}", socket.display()))
            .arg(format!(
                "--pid-file={}",
                sockets.path().join("pid").display()
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(sockets.path().join("log"))?)
            .spawn()
            .context("start MariaDB")?;
        let database = Database {
            child,
            socket,
            ground: Some(ground),
            stored,
            _folders: [folder, sockets],
        };
        let begun = Instant::now();
        while database.ask("SELECT 1").is_err() {
            ensure!(begun.elapsed() < START, "MariaDB does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        database.ask(&table_of(contender, rows))?;
        Ok(database)
    }

    fn client(&self) -> Command {
        let mut command = peers::command("mariadb");
        command
            .args(["--no-defaults", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket.display()));
        command
    }

    fn ask(&self, statements: &str) -> Result<String> {
        run(self.client().args(["--execute", statements]))
    }

    /// Does the transactions of all clients side by side; returns the seconds.
    fn work(&self, texts: &[String]) -> Result<f64> {
        let begun = Instant::now();
        let mut clients = Vec::new();
        for text in texts {
            let client = self
                .client()
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn();
            let mut client = client.context("start a client")?;
            let mut to = client.stdin.take().context("a pipe")?;
            let text = text.clone();
            clients.push((
                client,
                std::thread::spawn(move || to.write_all(text.as_bytes())),
            ));
        }
        for (mut client, told) in clients {
            told.join().expect("a thread that tells")?;
            ensure!(client.wait()?.success(), "a client failed");
        }
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Ends it, and returns its file's bytes, and a disk's bytes after compacting.
    fn end(mut self, contender: &str, rows: u64) -> Result<(f64, Option<f64>)> {
        let count = self.ask("SELECT COUNT(*) FROM mix.numbers")?;
        ensure!(count.trim() == rows.to_string(), "{count} rows, not {rows}");
        self.ask("SHUTDOWN")?;
        ensure!(self.child.wait()?.success(), "MariaDB ended badly");
        let ground = self.ground.take().context("a mount")?;
        run(Command::new("fstrim").arg(ground.point()))?;
        run(Command::new("sync").arg("-f").arg(ground.point()))?;
        let stored = self.stored_bytes()?;
        drop(ground);
        let compacted = match contender {
            OURS => {
                let mut compact = Command::new(own_program()?);
                run(compact.args(["disk", "compact"]).arg(&self.stored))?;
                Some(self.stored_bytes()?)
            }
            _ => None,
        };
        Ok((stored, compacted))
    }

    fn stored_bytes(&self) -> Result<f64> {
        let stored = fs::File::open(&self.stored)?;
        stored.sync_all()?;
        Ok(stored.metadata()?.blocks() as f64 * 512.0)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // One that ended already needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Digits in groups of eleven, as sysbench fills its columns; the same for each number and place.
fn digits(groups: u32, place: u32) -> String {
    let group = |group: u32| {
        let seed = format!("seq * 16 + {}", place + group);
        format!("LPAD(FLOOR(RAND({seed}) * 99999999999), 11, '0')")
    };
    let groups: Vec<String> = (0..groups).map(group).collect();
    format!("CONCAT_WS('-', {})", groups.join(", "))
}

fn table_of(contender: &str, rows: u64) -> String {
    let compressed = if contender == PEER {
        "PAGE_COMPRESSED=1"
    } else {
        ""
    };
    format!(
        "CREATE DATABASE mix; USE mix; CREATE TABLE numbers (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, \
         pad CHAR(60) NOT NULL, KEY (k)) CHARSET=latin1 {compressed}; \
         INSERT INTO numbers SELECT seq, FLOOR(RAND(seq) * {rows}), {}, {} FROM seq_1_to_{rows}",
        digits(10, 0),
        digits(5, 10),
    )
}

/// Returns a client's requests in a run. No two clients change the same rows.
fn transactions(length: Length, run: usize, client: u64) -> String {
    let mut random = Random::new(SEED ^ (run as u64 * CLIENTS + client));
    let mut text = "USE mix;\n".to_string();
    for _ in 0..length.transactions {
        let mut any = || 1 + random.below(length.rows);
        text.push_str("START TRANSACTION;\n");
        for _ in 0..10 {
            text.push_str(&format!("SELECT c FROM numbers WHERE id={};\n", any()));
        }
        let from = any();
        let to = from + 99;
        text.push_str(&format!(
            "SELECT SUM(k) FROM numbers WHERE id BETWEEN {from} AND {to};\n"
        ));
        let mut own = || 1 + random.below(length.rows / CLIENTS) * CLIENTS + client;
        let groups = |random: &mut Random, count: usize| {
            let group = |random: &mut Random| {
                let digits = random.next() % 100_000_000_000;
                format!("{digits:011}")
            };
            let groups: Vec<String> = (0..count).map(|_| group(random)).collect();
            groups.join("-")
        };
        let [one, two, three] = [own(), own(), own()];
        text.push_str(&format!("UPDATE numbers SET k=k+1 WHERE id={one};\n"));
        let c = groups(&mut random, 10);
        text.push_str(&format!("UPDATE numbers SET c='{c}' WHERE id={two};\n"));
        let (c, pad) = (groups(&mut random, 10), groups(&mut random, 5));
        let k = random.below(length.rows);
        text.push_str(&format!(
            "DELETE FROM numbers WHERE id={three};\nINSERT INTO numbers VALUES ({three}, {k}, '{c}', '{pad}');\nCOMMIT;\n"
        ));
    }
    text
}

fn rows(laboratory: &Laboratory, length: Length, block_bytes: u64) -> Result<Vec<Row>> {
    let make = |contender| Database::make(laboratory, (contender, block_bytes), length.rows);
    let databases = CONTENDERS.into_iter().map(make);
    let databases = databases.collect::<Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    for run in 0..length.runs {
        let texts: Vec<String> = (0..CLIENTS)
            .map(|client| transactions(length, run, client))
            .collect();
        rows.extend(interleave::in_turn(run, CONTENDERS.len(), |index| {
            let seconds = databases[index].work(&texts)?;
            let transactions = (CLIENTS * length.transactions) as f64;
            let values = vec![transactions, seconds, f64::NAN];
            Ok(row(CONTENDERS[index], run, length.runs, values))
        })?);
    }
    for (database, contender) in databases.into_iter().zip(CONTENDERS) {
        let (stored, compacted) = database.end(contender, length.rows)?;
        for (task, bytes) in [(STORED_TASK, Some(stored)), (COMPACTED_TASK, compacted)] {
            rows.extend(bytes.map(|bytes| Row {
                task: task.to_string(),
                ..row(contender, 0, 1, vec![f64::NAN, f64::NAN, bytes])
            }));
        }
    }
    Ok(rows)
}

fn speeds(cell: &CellRecord, contender: &str) -> Vec<f64> {
    let transactions = cell.column(TASK, contender, TRANSACTIONS);
    let seconds = cell.column(TASK, contender, SECONDS);
    let both = transactions.iter().zip(seconds);
    both.map(|(transactions, seconds)| transactions / seconds)
        .collect()
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    cells.iter().flat_map(findings_of).collect()
}

fn findings_of(cell: &CellRecord) -> Vec<Finding> {
    if let Some(missing) = programs::missing(cell) {
        return vec![missing];
    }
    let found = Interval::of_quotients(&speeds(cell, OURS), &speeds(cell, PEER));
    let per_second = |name| Interval::of_pairs(&speeds(cell, name)).middle;
    let speed = Finding {
        question: cell.cell.clone(),
        core: true,
        found,
        verdict: EXPERIMENT.target.judge(found),
        note: format!(
            "target {}; {:.0} transactions per second against {:.0}",
            EXPERIMENT.target,
            per_second(OURS),
            per_second(PEER)
        ),
    };
    let mut findings = vec![speed, room_of(cell, STORED_TASK, "stored bytes")];
    if !cell.column(COMPACTED_TASK, OURS, STORED).is_empty() {
        let compacted = room_of(cell, COMPACTED_TASK, "stored bytes after disk compact");
        findings.push(Finding {
            core: false,
            ..compacted
        });
    }
    findings
}

/// Judges the room of a disk's file against the plain one's.
fn room_of(cell: &CellRecord, task: &str, what: &str) -> Finding {
    let target = Target {
        low: 0.0,
        high: 1.0,
    };
    let ours = cell.median(task, OURS, STORED);
    let plain = cell.median(STORED_TASK, PEER, STORED);
    let found = Interval::exact(ours / plain);
    let mib = f64::from(1 << 20);
    Finding {
        question: format!("{} {what}", cell.cell),
        core: true,
        found,
        verdict: match cell.column(TASK, OURS, SECONDS).len() < PAIRS_MIN {
            true => Verdict::CannotTell,
            false => target.judge(found),
        },
        note: format!(
            "target {target}; {:.1} MiB against {:.1}",
            ours / mib,
            plain / mib
        ),
    }
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let origin = tables::origin(records, &cells);
    let mut shown = tables::judged(origin, findings(&cells));
    shown.push_str(&beside(&cells));
    Ok(shown)
}

/// Shows all contenders side by side, also those by which nothing is judged.
fn beside(cells: &[CellRecord]) -> String {
    let mut text = String::new();
    for cell in cells.iter().filter(|it| it.parameter("missing").is_none()) {
        for contender in CONTENDERS {
            let speeds = speeds(cell, contender);
            if speeds.is_empty() {
                continue;
            }
            let stored = cell.median(STORED_TASK, contender, STORED) / f64::from(1 << 20);
            let speed = Interval::of_pairs(&speeds).middle;
            text.push_str(&format!(
                "| {} | {contender} | {speed:.0} | {stored:.1} |\n",
                cell.cell
            ));
        }
    }
    match text.is_empty() {
        true => text,
        false => format!(
            "\nMedians of the runs: transactions per second, and MiB stored.\n\n\
             | cell | MariaDB | per second | MiB |\n|---|---|---:|---:|\n{text}"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_room_are_judged_apart() {
        let check = |parameters: &str, runs: usize, factors: (f64, f64), expected: &[Verdict]| {
            let at = |name, run, values| row(name, run, runs, values);
            let rows = (0..runs).flat_map(|run| {
                let seconds = 1.0 + run as f64 / 100.0;
                let ours = vec![factors.0, seconds, f64::NAN];
                [
                    at(OURS, run, ours),
                    at(PEER, run, vec![1.0, seconds, f64::NAN]),
                    // Far better than both, and nothing is judged by it.
                    at(NATIVE, run, vec![8.0, seconds, f64::NAN]),
                ]
            });
            let stored = [
                (STORED_TASK, OURS, factors.1),
                (STORED_TASK, PEER, 1.0),
                (STORED_TASK, NATIVE, 3.0 * f64::from(1 << 20)),
                (COMPACTED_TASK, OURS, 0.5),
            ];
            let stored = stored.map(|(task, name, bytes)| Row {
                task: task.to_string(),
                ..at(name, 0, vec![f64::NAN, f64::NAN, bytes])
            });
            let rows = rows.chain(stored).collect();
            let cells = [CellRecord::made_up(CELLS[0].0, parameters, rows)];
            let found = findings(&cells);
            let verdicts: Vec<Verdict> = found.iter().map(|it| it.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
            let is_measured = !parameters.starts_with("missing");
            let shown = beside(&cells);
            let has_native = shown.contains("| native ext4 | 8 | 3.0 |");
            assert_eq!(has_native, is_measured, "{shown}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("peers=all", 10, (0.96, 0.9), &[Holds, Holds, Holds]);
        check("peers=all", 10, (0.9, 1.1), &[Differs, Differs, Holds]);
        check("peers=all", 2, (1.0, 0.5), &[CannotTell; 3]);
        check("missing=mariadbd", 10, (1.0, 1.0), &[CannotTell]);
    }

    #[test]
    fn clients_change_rows_of_their_own() {
        let length = Length {
            rows: 100,
            transactions: 50,
            runs: 1,
        };
        for client in 0..CLIENTS {
            let text = transactions(length, 0, client);
            let changed = text
                .lines()
                .filter_map(|line| line.strip_prefix("DELETE FROM numbers WHERE id="));
            let changed: Vec<u64> = changed
                .map(|id| id.trim_end_matches(';').parse().unwrap())
                .collect();
            assert_eq!(changed.len(), 50);
            let is_own = |id: &u64| (1..=length.rows).contains(id) && (id - 1) % CLIENTS == client;
            assert!(changed.iter().all(is_own), "{changed:?}");
        }
    }
}
