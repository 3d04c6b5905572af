//! A memcached under load and under advice: ours, Debian's, and one that answers wrong values.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use breakeven_memcached::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Keeps a test from hanging if it waits for something that never comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// A server on a UNIX socket, killed when it is dropped.
pub struct Server {
    child: Child,
    pub socket: PathBuf,
}

impl Server {
    pub fn ours(folder: &Path, more: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
        command.arg("serve");
        Server::start(command, folder, more).expect("the program starts")
    }

    /// Starts ours in a shell that sets limits first.
    pub fn limited(folder: &Path, limits: &str, more: &[&str]) -> Server {
        let mut command = Command::new("sh");
        let line = format!("{limits}; exec \"$0\" \"$@\"");
        command.args(["-c", &line, env!("CARGO_BIN_EXE_breakeven"), "serve"]);
        Server::start(command, folder, more).expect("the program starts")
    }

    /// Starts Debian's; `None` if it is not installed, which is an error where everything must be.
    pub fn debian(folder: &Path) -> Option<Server> {
        let mut command = Command::new("memcached");
        command.args(["-u", "root"]);
        let server = Server::start(command, folder, &[]);
        if server.is_none() {
            println!("memcached is not installed: nothing tried with it");
            assert!(std::env::var_os("CI").is_none(), "memcached");
        }
        server
    }

    fn start(mut command: Command, folder: &Path, more: &[&str]) -> Option<Server> {
        let socket = folder.join("socket");
        command.args(["-t", "1", "-s"]).arg(&socket).args(more);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let server = Server { child, socket };
        let start = Instant::now();
        while Client::connect(server.address()).is_err() {
            assert!(start.elapsed() < PATIENCE, "the server does not listen");
            std::thread::yield_now();
        }
        Some(server)
    }

    /// Returns the resident bytes of the process.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("a process");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .and_then(|line| line.split_whitespace().next());
        line.expect("a number").parse::<u64>().expect("KiB") << 10
    }

    /// Asks the server to stop and waits until it has.
    pub fn stop(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a process");
        let status = self.child.wait().expect("a child");
        assert!(status.success(), "{status}");
    }

    pub fn address(&self) -> &str {
        self.socket.to_str().expect("a plain path")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn bench(server: &Server, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
    command.args(["bench", server.address(), "--keys=2000", "--connections=5"]);
    command.args(arguments).stdin(Stdio::null());
    command.output().expect("the program starts")
}

fn report(server: &Server, arguments: &[&str]) -> Value {
    let output = bench(server, &[arguments, &["--json"]].concat());
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {message}");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn every_shape_is_answered(server: &Server) {
    let mut keys = 0;
    for shape in ["batched", "paced", "single", "sets"] {
        for pace in ["--flat-out", "--rate=20000"] {
            let found = report(
                server,
                &["--shape", shape, pace, "--seconds=0.2", "--skew=zipf:0.99"],
            );
            let step = &found["steps"][0];
            assert_eq!(step["hit_share"], 1.0, "{found}");
            assert_eq!(step["unanswered"], 0, "{found}");
            keys += step["keys"].as_u64().expect("a number");
        }
    }
    println!("bench: {keys} keys verified");
    assert!(keys > 8 * 1000, "{keys}");
}

#[test]
fn every_shape_is_answered_by_our_server() {
    let folder = tempfile::tempdir().unwrap();
    every_shape_is_answered(&Server::ours(folder.path(), &[]));
}

#[test]
fn every_shape_is_answered_by_debians_server() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(server) = Server::debian(folder.path()) {
        every_shape_is_answered(&server);
    }
}

#[test]
fn the_rate_that_is_found_is_one_that_was_tried() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::ours(folder.path(), &[]);
    // Any answer is in time, so that no machine is too slow.
    let found = report(
        &server,
        &["--seconds=0.1", "--steps=2", "--limit=30s", "--rate=100"],
    );
    assert!(found["sustained_keys_per_second"].is_null(), "{found}");
    let found = report(&server, &["--seconds=0.1", "--steps=2", "--limit=30s"]);
    assert_eq!(found["steps"].as_array().map(Vec::len), Some(3), "{found}");
    let output = bench(&server, &["--seconds=0.1", "--steps=1", "--limit=0us"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("no rate that was tried"), "{text}");
    assert!(text.contains("s/M keys"), "{text}");
}

/// Missing values are fetched elsewhere and stored.
fn misses_are_stored(server: &Server) {
    let load = ["--no-fill", "--flat-out", "--seconds=0.3", "--shape=single"];
    let slow = report(server, &[&load[..], &["--miss=20ms"]].concat());
    assert_eq!(slow["miss_seconds"], 0.02, "{slow}");
    // The store is empty at first, and no request with a miss was faster than the cost of a miss.
    let longest = slow["steps"][0]["max_us"].as_f64().unwrap();
    assert!(longest >= 20_000.0, "{slow}");
    let fast = report(server, &[&load[..], &["--miss=0us"]].concat());
    let share = fast["steps"][0]["hit_share"].as_f64().unwrap();
    assert!((0.01..=1.0).contains(&share), "{fast}");
    let stats = Client::connect(server.address())
        .unwrap()
        .stats("")
        .unwrap();
    assert_ne!(stats["cmd_set"], "0");
    assert_eq!(stats["cmd_set"], stats["get_misses"]);
}

#[test]
fn misses_are_stored_in_our_server() {
    let folder = tempfile::tempdir().unwrap();
    misses_are_stored(&Server::ours(folder.path(), &[]));
}

#[test]
fn misses_are_stored_in_debians_server() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(server) = Server::debian(folder.path()) {
        misses_are_stored(&server);
    }
}

#[test]
fn requests_are_drawn_and_a_miss_wants_a_client_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::ours(folder.path(), &[]);
    let picture = folder.path().join("a.svg");
    let plot = format!("--plot={}", picture.display());
    report(
        &server,
        &["--seconds=0.1", "--steps=2", "--limit=30s", &plot],
    );
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert_eq!(svg.matches("class=\"line ").count(), 3, "{svg}");
    let nowhere = bench(
        &server,
        &["--seconds=0.1", "--flat-out", "--plot=/nowhere/a.svg"],
    );
    assert_eq!(nowhere.status.code(), Some(1));
    let open = bench(&server, &["--miss=1ms", "--rate=1000"]);
    assert_eq!(open.status.code(), Some(2));
}

#[test]
fn wrong_values_and_missing_ones_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::ours(folder.path(), &[]);
    let lines = folder.path().join("lines");
    std::fs::write(&lines, "one\n\ntwo and more\nthree\n").unwrap();
    let values = format!("--values={}", lines.display());
    let all = ["--flat-out", "--seconds=0.2", &values];
    assert_eq!(report(&server, &all)["steps"][0]["hit_share"], 1.0);
    let mut client = Client::connect(server.address()).unwrap();
    client.send(b"delete bench:00000007\r\n").unwrap();
    assert_eq!(client.line().unwrap(), "DELETED");
    let kept = [&all[..], &["--no-fill"]].concat();
    let share = report(&server, &kept)["steps"][0]["hit_share"]
        .as_f64()
        .unwrap();
    assert!((0.99..1.0).contains(&share), "{share}");
    client
        .store([("bench:00000007", "another")].into_iter())
        .unwrap();
    let output = bench(&server, &kept);
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(
        message.contains("a wrong value: VALUE bench:00000007 0 7"),
        "{message}"
    );
}

/// Fills a server with records of JSON and with noise, and advises on it.
fn advise_on(server: &Server) {
    let mut client = Client::connect(server.address()).unwrap();
    let mut random = 7_u32;
    let mut draw = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random >> 8
    };
    for number in 0..3000 {
        let record = format!(
            "{{\"id\":{},\"name\":\"user {}\",\"mail\":\"user{}@example.org\",\"active\":true,\"score\":{}}}",
            draw(),
            draw() % 10_000,
            draw() % 10_000,
            draw() % 100
        );
        let noise: String = (0..60)
            .map(|_| format!("{:06x}", draw() & 0xff_ffff))
            .collect();
        let items = [
            (format!("user:{number}"), record),
            (format!("token:{number}"), noise),
        ];
        client.store(items.into_iter()).unwrap();
    }
    let before = client.stats("").unwrap();
    let advise = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
        command
            .args(["advise", "--memcached", server.address()])
            .args(more);
        let output = command.output().expect("the program starts");
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{message}");
        String::from_utf8(output.stdout).expect("text")
    };
    // On any machine memory is worth more than its work.
    let text = advise(&["--miss=1s"]);
    assert!(
        text.starts_with("Compress: the same memory would hold"),
        "{text}"
    );
    assert!(
        text.contains("user/256") && text.contains("+dict"),
        "{text}"
    );
    assert!(text.lines().all(|line| line.len() <= 110), "{text}");
    let report: Value = serde_json::from_str(&advise(&["--json"])).unwrap();
    assert_eq!(
        (&report["items"], &report["sampled"]),
        (&6000.into(), &6000.into()),
        "{report}"
    );
    // Nothing was dropped: more items would give no more hits.
    assert!(
        report["hit_share_modelled"].is_null() && !text.contains("hits  "),
        "{report}"
    );
    assert!(report["core_seconds_per_million"].is_number(), "{report}");
    let cheap = advise(&["--miss=1ns"]);
    assert!(
        cheap.contains("leave raw") && !cheap.contains("Compress:"),
        "{cheap}"
    );
    let after = client.stats("").unwrap();
    assert_eq!(before["curr_items"], after["curr_items"]);
    assert_eq!(before["cmd_set"], after["cmd_set"]);
}

#[test]
fn advice_on_our_server() {
    let folder = tempfile::tempdir().unwrap();
    advise_on(&Server::ours(folder.path(), &[]));
}

#[test]
fn advice_on_debians_server() {
    let folder = tempfile::tempdir().unwrap();
    if let Some(server) = Server::debian(folder.path()) {
        advise_on(&server);
    }
}

#[test]
fn advice_on_a_file_of_values() {
    let folder = tempfile::tempdir().unwrap();
    let lines = folder.path().join("lines");
    let line = |number: u32| {
        format!(
            "key:{number}\t{{\"number\":{number},\"square\":{}}}\n",
            number * number
        )
    };
    std::fs::write(&lines, (0..5000).map(line).collect::<String>()).unwrap();
    let advise = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
        command
            .arg("advise")
            .args(words)
            .output()
            .expect("the program starts")
    };
    let path = lines.to_str().unwrap();
    let output = advise(&["--values", path]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("key/64"), "{text}");
    assert_eq!(advise(&["--values", path, path]).status.code(), Some(2));
    std::fs::write(&lines, "\n").unwrap();
    assert_eq!(advise(&["--values", path]).status.code(), Some(1));
}

#[test]
fn nobody_there_is_told() {
    let output = Command::new(env!("CARGO_BIN_EXE_breakeven"))
        .args(["bench", "/nowhere/socket"])
        .output();
    let output = output.expect("the program starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("connect to /nowhere/socket"));
}
