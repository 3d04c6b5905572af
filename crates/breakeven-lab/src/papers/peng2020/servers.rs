//! The servers that are compared, Debian's memcached and ours, as child processes, and `breakeven bench` in front of
//! either.

use std::ffi::OsString;
use std::fs;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use breakeven::units::Seconds;
use breakeven_memcached::client::Client;
use serde_json::Value;

use crate::interleave;
use crate::papers::harper2018_cache::{energy, energy_of, power};
use crate::peers;
use crate::programs::{self, own_program};
use crate::record::{CellRecord, Row};

/// The name of this project's server in records.
pub const OURS: &str = "breakeven";
/// The name of the peer.
pub const PEER: &str = "memcached";

/// A server has to listen by then.
const START: Duration = Duration::from_secs(20);
/// The processors of server and client, where each has one.
const SERVER_PROCESSOR: &str = "0";
const CLIENT_PROCESSOR: &str = "1";

/// The server, with its own options beside those of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Memcached,
    Ours(&'static str),
}

/// Returns which programs take part, as words of a cell's parameters; missing ones are named.
pub fn peers() -> String {
    let peers = programs::peers(&[(PEER, "-V")]);
    match (peers.starts_with("missing"), power()) {
        (true, _) => peers,
        (false, Err(_)) => format!("{peers} pinned={}", can_pin()),
        (false, Ok(power)) => {
            let watts = power.core_energy(Seconds(1.0)).0;
            format!(
                "{peers} pinned={} {} core_watts={watts:.2}",
                can_pin(),
                energy(&power)
            )
        }
    }
}

/// Returns the joules of a million keys by their core seconds, nothing where the cell names no watts.
pub fn joules(cell: &CellRecord, core_seconds: f64) -> String {
    let watts: Option<f64> = cell.parameter("core_watts").and_then(|it| it.parse().ok());
    watts.map_or(String::new(), |watts| {
        format!("{:.1}", watts * core_seconds)
    })
}

/// Says where joules come from.
pub fn joules_note(cells: &[CellRecord]) -> String {
    let cell = cells.iter().find(|it| it.parameter("core_watts").is_some());
    match cell {
        Some(cell) => format!(" Joules are core seconds times watts, {}.", energy_of(cell)),
        None => String::new(),
    }
}

/// Whether server and client can have a processor each.
fn can_pin() -> bool {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    processors > 1 && Command::new("taskset").arg("--version").output().is_ok()
}

/// Returns the command that starts a program, given as words, on one processor, where that can be.
fn pinned(words: &[OsString], processor: Option<&str>) -> Command {
    let mut command = match processor.filter(|_| can_pin()) {
        None => Command::new(&words[0]),
        Some(processor) => {
            let mut command = Command::new("taskset");
            command.args(["-c", processor]).arg(&words[0]);
            command
        }
    };
    command.args(&words[1..]);
    command
}

/// A server; it ends when it is forgotten.
pub struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts a server with so much memory and so many threads; one thread has one processor.
    pub fn start(kind: Kind, memory_mib: usize, threads: usize) -> Result<Server> {
        // It is free again until the server takes it; nobody else looks for one.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let processor = Some(SERVER_PROCESSOR).filter(|_| threads == 1);
        let mut command = match kind {
            Kind::Memcached => pinned(&peers::words(PEER)?, processor),
            Kind::Ours(_) => pinned(&[own_program()?.into()], processor),
        };
        match kind {
            Kind::Ours(more) => command.arg("serve").args(more.split_whitespace()),
            Kind::Memcached => command.args(["-U", "0"]),
        };
        if kind == Kind::Memcached && rustix::process::getuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        command.args(["-l", "127.0.0.1", "-c", "2048"]);
        command.args(["-p", &port.to_string(), "-m", &memory_mib.to_string()]);
        command.args(["-t", &threads.to_string()]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("start {kind:?}"))?;
        let address = format!("127.0.0.1:{port}");
        let server = Server { child, address };
        let begun = Instant::now();
        while server.connect().is_err() {
            ensure!(begun.elapsed() < START, "{kind:?} does not listen");
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    pub fn connect(&self) -> Result<Client> {
        Ok(Client::connect(&self.address)?)
    }

    /// Returns the bytes of the process that are resident.
    pub fn resident_bytes(&self) -> Result<u64> {
        self.status_bytes("VmRSS:")
    }

    /// Returns those of them that are no pages of files.
    pub fn anonymous_bytes(&self) -> Result<u64> {
        self.status_bytes("RssAnon:")
    }

    fn status_bytes(&self, name: &str) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        Ok(kib.with_context(|| format!("no {name}"))? << 10)
    }

    /// Runs `breakeven bench` against it with these words, and returns its only step.
    pub fn bench(&self, words: &[String]) -> Result<Step> {
        let output = pinned(&[own_program()?.into()], Some(CLIENT_PROCESSOR))
            .args(["bench", &self.address, "--json"])
            .args(words)
            .stdin(Stdio::null())
            .output()
            .context("start the bench")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "bench {words:?}: {errors}");
        step(&serde_json::from_slice(&output.stdout)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that is dead already needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a number of `stats`.
pub fn count(control: &mut Client, name: &str) -> Result<u64> {
    let stats = control.stats("")?;
    let value = stats
        .get(name)
        .with_context(|| format!("no {name} in stats"))?;
    value.parse().with_context(|| format!("{name} {value}"))
}

/// Lets our server learn no more.
pub fn stop_learning(control: &mut Client) -> Result<()> {
    control.send(b"learning off\r\n")?;
    match control.line()?.as_str() {
        "OK" => Ok(()),
        other => bail!("learning goes on: {other}"),
    }
}

/// A bench's report on a load.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    pub keys_per_second: f64,
    pub server_us_a_key: f64,
    pub client_busy: f64,
    pub hit_share: f64,
    pub p99_us: f64,
    pub p999_us: f64,
}

/// The columns of a step in records.
pub const COLUMNS: &[&str] = &[
    "keys_per_second",
    "server_us_a_key",
    "client_busy",
    "hit_share",
    "p99_us",
    "p999_us",
];
pub const SPEED: usize = 0;
pub const CPU: usize = 1;
pub const BUSY: usize = 2;
pub const HITS: usize = 3;
pub const P99: usize = 4;
pub const P999: usize = 5;
/// The task of every row.
pub const TASK: &str = "load";
/// Both servers, in the order of their rows.
pub const CONTENDERS: [&str; 2] = [OURS, PEER];

impl Step {
    /// Returns its columns.
    pub fn values(&self) -> Vec<f64> {
        vec![
            self.keys_per_second,
            self.server_us_a_key,
            self.client_busy,
            self.hit_share,
            self.p99_us,
            self.p999_us,
        ]
    }
}

/// Returns a row of one server in one run.
pub fn row(contender: &str, run: usize, runs: usize, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (run, runs), values)
}

/// Returns the rows of a cell that is not measured, because a program is not there.
pub fn missing_rows(columns: usize) -> Vec<Row> {
    CONTENDERS
        .map(|name| row(name, 0, 1, vec![f64::NAN; columns]))
        .into()
}

/// Loads both servers, alternating, with the words of each run. Before it each has a load that does not count, if there
/// is one.
pub fn race(
    servers: &[Server; 2],
    runs: usize,
    before: Option<&[String]>,
    words: impl Fn(usize) -> Vec<String>,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for run in 0..runs {
        let words = words(run);
        rows.extend(interleave::in_turn(run, servers.len(), |index| {
            before.map(|it| servers[index].bench(it)).transpose()?;
            let values = servers[index].bench(&words)?.values();
            Ok(row(CONTENDERS[index], run, runs, values))
        })?);
    }
    Ok(rows)
}

fn step(report: &Value) -> Result<Step> {
    let steps = report["steps"].as_array().context("no steps")?;
    let [step] = steps.as_slice() else {
        bail!("{} steps", steps.len());
    };
    let number = |name: &str| {
        step[name]
            .as_f64()
            .with_context(|| format!("no {name} in {step}"))
    };
    Ok(Step {
        keys_per_second: number("keys_per_second")?,
        server_us_a_key: 1e6 * number("server_cpu_seconds")? / number("keys")?,
        client_busy: number("client_cpu_seconds")? / number("seconds")?,
        hit_share: number("hit_share")?,
        p99_us: number("p99_us")?,
        p999_us: number("p999_us")?,
    })
}

/// Returns how busy servers and clients were in a cell, and the found keys.
pub fn busy(cell: &CellRecord) -> String {
    let of = |contender, column| cell.median(TASK, contender, column);
    let busy = |contender| 100.0 * of(contender, SPEED) * of(contender, CPU) / 1e6;
    format!(
        "servers busy {:.0} % and {:.0} %, clients {:.0} % and {:.0} %; hits {:.1} % and {:.1} %",
        busy(OURS),
        busy(PEER),
        100.0 * of(OURS, BUSY),
        100.0 * of(PEER, BUSY),
        100.0 * of(OURS, HITS),
        100.0 * of(PEER, HITS)
    )
}

/// Returns a table of the medians of cells, as far as they were measured.
pub fn medians(cells: &[CellRecord]) -> String {
    let whole = cells
        .iter()
        .filter(|cell| cell.parameter("missing").is_none());
    let mut rows = String::new();
    for cell in whole {
        for contender in CONTENDERS {
            let of = |column| cell.median(TASK, contender, column);
            rows.push_str(&format!(
                "| {} | {contender} | {:.0} | {:.2} | {} | {:.0} | {:.0} | {:.1} % |\n",
                cell.cell,
                of(SPEED),
                of(CPU),
                joules(cell, of(CPU)),
                of(P99),
                of(P999),
                100.0 * of(HITS),
            ));
        }
    }
    match rows.is_empty() {
        true => rows,
        false => format!(
            "\nMedians of the runs: keys per second, the server's processor time and joules for a million keys, percentiles of requests, and \
             keys that were there.{}\n\n\
             | cell | server | keys/s | core s/M keys | J/M keys | p99 us | p99.9 us | hits |\n\
             |---|---|---:|---:|---:|---:|---:|---:|\n{rows}",
            joules_note(cells)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_a_bench_is_read() {
        let text = r#"{"steps": [{"keys_per_second": 2e5, "server_cpu_seconds": 0.5, "keys": 250000, "seconds": 2.0,
            "client_cpu_seconds": 1.0, "hit_share": 1.0, "p99_us": 900.5, "p999_us": 950.0}]}"#;
        let found = step(&serde_json::from_str(text).unwrap()).unwrap();
        let expected = Step {
            keys_per_second: 2e5,
            server_us_a_key: 2.0,
            client_busy: 0.5,
            hit_share: 1.0,
            p99_us: 900.5,
            p999_us: 950.0,
        };
        assert_eq!(found, expected);
        assert!(step(&serde_json::from_str(r#"{"steps": []}"#).unwrap()).is_err());
        assert!(step(&serde_json::from_str(r#"{"steps": [{}]}"#).unwrap()).is_err());
    }
}
