//! Hostile or dying clients: the others are served as before, and memory stays bounded.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use breakeven_memcached::client::Client;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::bench::Server;
use crate::noise;
use crate::page::left_out;

/// Keeps a test from hanging if it waits for something that never comes.
const PATIENCE: Duration = Duration::from_secs(60);
/// A pause without load, as a number of answers to one client.
const PAUSE_ANSWERS: usize = 2000;

fn connect(server: &Server) -> UnixStream {
    let stream = UnixStream::connect(&server.socket).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads until these bytes arrive, or the server closes; returns the bytes read.
fn read_until(stream: &mut UnixStream, end: &[u8]) -> Vec<u8> {
    let mut came = Vec::new();
    let mut buffer = [0; 4096];
    while !came.ends_with(end) {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => came.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} behind {}", came.escape_ascii()),
        }
    }
    came
}

/// A well-behaved client: its stored values come back.
struct Good(Client, u32);

impl Good {
    fn new(server: &Server) -> Good {
        Good(Client::connect(server.address()).unwrap(), 0)
    }

    fn is_served(&mut self) {
        self.1 += 1;
        let value = format!("value {} ", self.1).repeat(20);
        self.0.store([("good", &value)].into_iter()).unwrap();
        self.0.send(b"get good\r\n").unwrap();
        let found = self
            .0
            .reply(|reply| reply.value.unwrap_or_default().to_vec())
            .unwrap();
        assert_eq!(found, value.as_bytes());
        assert_eq!(self.0.line().unwrap(), "END");
    }

    /// Returns a count of `stats`.
    fn count(&mut self, name: &str) -> usize {
        self.0.send(b"stats\r\n").unwrap();
        let mut found = None;
        loop {
            let line = self.0.line().unwrap();
            if line == "END" {
                return found.expect("a count");
            }
            let of = line.strip_prefix("STAT ");
            let of = of.and_then(|line| line.strip_prefix(name));
            found = found.or(of.and_then(|count| count.trim().parse().ok()));
        }
    }
}

#[test]
fn those_who_misbehave_harm_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::ours(folder.path(), &["-m", "16", "-c", "2000"]);
    let mut good = Good::new(&server);
    good.is_served();
    let before = server.resident_bytes();
    // Lines that come a byte at a time and never end.
    let mut slow: Vec<UnixStream> = (0..300).map(|_| connect(&server)).collect();
    for byte in b"get k" {
        slow.iter_mut()
            .for_each(|stream| stream.write_all(&[*byte]).unwrap());
        good.is_served();
    }
    // Values that are announced and never come.
    let mut announcing: Vec<UnixStream> = (0..300).map(|_| connect(&server)).collect();
    for stream in &mut announcing {
        stream.write_all(b"set k 0 0 1000000\r\nfew bytes").unwrap();
    }
    good.is_served();
    // Lines without an end, of a fetch and of anything else.
    for (start, most) in [("", 64 << 10), ("get ", 4 << 20)] {
        let mut endless = connect(&server);
        let _ = endless.write_all(start.as_bytes());
        let piece = [b'x'; 1024];
        let is_cut = (0..most / piece.len()).any(|_| endless.write_all(&piece).is_err());
        assert!(is_cut || read_until(&mut endless, b"never").len() < 200);
        good.is_served();
    }
    let mut huge = connect(&server);
    huge.write_all(b"set k 0 0 2147483000\r\n").unwrap();
    let told = read_until(&mut huge, b"\r\n");
    assert_eq!(told, b"SERVER_ERROR object too large for cache\r\n");
    huge.write_all(&[b'x'; 100_000]).unwrap();
    good.is_served();
    let mut wrong = connect(&server);
    wrong
        .write_all(b"set k 0 0 99999999999999999999\r\n")
        .unwrap();
    let told = read_until(&mut wrong, b"\r\n");
    assert!(told.starts_with(b"CLIENT_ERROR"), "{}", told.escape_ascii());
    // Unread replies: 40 clients, each asking for 100 MB.
    let value = "v".repeat(100_000);
    good.0.store([("long", &value)].into_iter()).unwrap();
    let mut deaf: Vec<UnixStream> = (0..40).map(|_| connect(&server)).collect();
    let question = b"get long\r\n".repeat(1000);
    for stream in &mut deaf {
        stream.set_nonblocking(true).unwrap();
        let _ = stream.write(&question).unwrap();
    }
    good.is_served();
    let grown = server.resident_bytes().saturating_sub(before);
    println!("{} MiB more for those who misbehave", grown >> 20);
    // 40 times the waiting bytes of one client, and some KiB for each other.
    assert!(grown < 64 << 20, "{grown} bytes more");
    drop((slow, announcing, deaf));
    good.is_served();
}

/// The bytes that wait for clients lie within the given memory, as memcached's items do.
#[test]
fn what_waits_to_be_read_is_bounded() {
    const CLIENTS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::ours(folder.path(), &["-m", "32", "-t", "2"]);
    let mut good = Good::new(&server);
    let value = |number: usize| noise(1_000_000 + number);
    let set = |good: &mut Good, number: usize| {
        let value = value(number);
        let mut request = format!("set k{number} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        good.0.send(&request).unwrap();
        assert_eq!(good.0.line().unwrap(), "STORED");
    };
    // One value for all is held once, and every client gets it.
    set(&mut good, 0);
    let before = server.resident_bytes();
    let mut deaf: Vec<UnixStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
    for stream in &mut deaf {
        stream.write_all(b"get k0\r\nmn\r\n").unwrap();
        good.is_served();
    }
    let waiting = good.count("response_obj_bytes");
    assert!((1_000_000..3_000_000).contains(&waiting), "{waiting}");
    for stream in &mut deaf {
        let came = read_until(stream, b"MN\r\n");
        assert!(
            came.starts_with(b"VALUE k0 0 1000000\r\n") && came.ends_with(b"\r\nEND\r\nMN\r\n")
        );
        assert_eq!(
            came.len(),
            b"VALUE k0 0 1000000\r\n\r\nEND\r\nMN\r\n".len() + 1_000_000
        );
    }
    // A worker's count changes once it has sent.
    assert!((0..10_000).any(|_| good.count("response_obj_bytes") == 0));
    assert_eq!(good.count("response_obj_oom"), 0);
    // Of different values, the last ones wait.
    for (number, stream) in deaf.iter_mut().enumerate() {
        set(&mut good, number);
        stream
            .write_all(format!("get k{number}\r\n").as_bytes())
            .unwrap();
        good.is_served();
    }
    let waiting = good.count("response_obj_bytes");
    assert!((16 << 20..32 << 20).contains(&waiting), "{waiting}");
    assert!(good.count("response_obj_oom") > CLIENTS / 2);
    let last = deaf.last_mut().expect("a client");
    let came = read_until(last, b"END\r\n");
    assert!(came.ends_with(b"\r\nEND\r\n") && came.len() > 1_000_000);
    // And clients that never send the end of a value.
    let mut half: Vec<UnixStream> = (0..CLIENTS).map(|_| connect(&server)).collect();
    for stream in &mut half {
        stream.write_all(b"set k 0 0 1000000\r\n").unwrap();
        stream.write_all(&value(0)[1000..]).unwrap();
        good.is_served();
    }
    let waiting = good.count("read_buf_bytes");
    assert!((8 << 20..32 << 20).contains(&waiting), "{waiting}");
    assert!(good.count("read_buf_oom") > CLIENTS / 4);
    let last = half.last_mut().expect("a client");
    last.write_all(&[b'x'; 1000]).unwrap();
    last.write_all(b"\r\n").unwrap();
    assert_eq!(read_until(last, b"\r\n"), b"STORED\r\n");
    let grown = server.resident_bytes().saturating_sub(before);
    println!("{} MiB more for those who wait", grown >> 20);
    assert!(grown < 96 << 20, "{grown} bytes more");
}

#[test]
fn ten_thousand_connections_are_served() {
    const CONNECTIONS: usize = 10_000;
    let wanted = CONNECTIONS as u64 + 500;
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        return left_out(&format!("{limit:?}: too few descriptors, nothing tried"));
    }
    if limit.current.is_some_and(|current| current < wanted) {
        let current = Some(wanted);
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::ours(folder.path(), &["-m", "16", "-c", "10100", "-b", "4096"]);
    let mut good = Good::new(&server);
    let before = server.resident_bytes();
    let mut all: Vec<UnixStream> = (0..CONNECTIONS).map(|_| connect(&server)).collect();
    for stream in &mut all {
        stream.write_all(b"mn\r\n").unwrap();
    }
    for stream in &mut all {
        assert_eq!(read_until(stream, b"\r\n"), b"MN\r\n");
    }
    good.is_served();
    let each = server.resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
    println!("{each} bytes for each of {CONNECTIONS} connections");
    assert!(each < 8 << 10, "{each}");
    let stats = good.0.stats("").unwrap();
    let count: usize = stats["curr_connections"].parse().unwrap();
    assert!(count > CONNECTIONS, "{count}");
    drop(all);
    good.is_served();
}

#[test]
fn without_descriptors_clients_wait_and_nobody_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::limited(folder.path(), "ulimit -n 40", &["-m", "16"]);
    let mut good = Good::new(&server);
    good.is_served();
    let mut all: Vec<UnixStream> = (0..100).map(|_| connect(&server)).collect();
    for stream in &mut all {
        stream.write_all(b"mn\r\n").unwrap();
    }
    good.is_served();
    // A waiting client gets its turn when others leave.
    while !all.is_empty() {
        let mut served = all.drain(..10).collect::<Vec<_>>();
        for stream in &mut served {
            assert_eq!(read_until(stream, b"\r\n"), b"MN\r\n");
        }
    }
    let stats = good.0.stats("").unwrap();
    assert_ne!(stats["listen_disabled_num"], "0");
    good.is_served();
}

#[test]
fn without_memory_clients_are_told_and_the_server_lives() {
    let folder = tempfile::tempdir().unwrap();
    for evicts in [true, false] {
        let more = ["-m", "2048", "-M"];
        let more = if evicts { &more[..2] } else { &more };
        // Address space for the program, its threads and some of the values.
        let server = Server::limited(folder.path(), "ulimit -v 700000", more);
        let mut good = Good::new(&server);
        let mut client = Client::connect(server.address()).unwrap();
        let value = "v".repeat(50_000);
        let (mut stored, mut refused) = (0, 0);
        for number in 0..20_000 {
            let mut request = format!("set k{number} 0 0 {}\r\n", value.len()).into_bytes();
            request.extend_from_slice(value.as_bytes());
            request.extend_from_slice(b"\r\n");
            client.send(&request).unwrap();
            match client.line().unwrap().as_str() {
                "STORED" => stored += 1,
                "SERVER_ERROR out of memory storing object" => refused += 1,
                other => panic!("{other}"),
            }
            if refused > 100 {
                break;
            }
        }
        println!("{stored} stored, {refused} refused");
        assert!(stored > 1000, "{stored}");
        assert!(evicts || refused > 0);
        client.send(b"mn\r\n").unwrap();
        assert_eq!(client.line().unwrap(), "MN");
        if evicts {
            good.is_served();
        }
    }
}

/// Starts a load that goes on until it is killed.
fn endless_load(server: &Server, words: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
    command
        .args(["bench", server.address(), "--flat-out", "--seconds=600"])
        .args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("a load")
}

/// Waits until a counter has grown by so much.
fn wait_for_more(control: &mut Client, (of, name): (&str, &str), more: u64) {
    let mut count = || -> u64 { control.stats(of).unwrap()[name].parse().unwrap() };
    let until = count() + more;
    let begun = std::time::Instant::now();
    while count() < until {
        assert!(begun.elapsed() < PATIENCE, "{name} stands still");
        std::thread::yield_now();
    }
}

#[test]
fn clients_that_are_killed_leave_no_wrong_value() {
    let folder = tempfile::tempdir().unwrap();
    // Three times as many values as fit in memory, so that they leave, and are encoded before that. They are worth
    // encoding even if the learner has not yet trained a dictionary.
    let options = ["-m", "16", "-t", "2", "-o", "miss_microseconds=100000"];
    let server = Server::ours(folder.path(), &options);
    let mut control = Client::connect(server.address()).unwrap();
    let lines = folder.path().join("lines");
    let line = |number: u32| {
        let words = ["red", "green", "blue", "black", "white"];
        let word = |by: u32| words[(number / by % 5) as usize];
        let text = format!("{} {} {};", word(1), word(5), word(25)).repeat(12);
        format!("<row number=\"{number}\">{text}</row>\n")
    };
    std::fs::write(&lines, (0..20_000).map(line).collect::<String>()).unwrap();
    let others = format!("--values={}", lines.display());
    let keys = ["--keys=80000", "--skew=zipf:0.9", "--connections=4"];
    // The learner has the lowest priority: on a busy machine it runs between two loads.
    let encoded = |control: &mut Client| -> u64 {
        let learned = control.stats("breakeven").unwrap();
        learned["items_encoded_total"].parse().unwrap()
    };
    let mut killed = 0;
    while encoded(&mut control) < 1000 {
        assert!(killed < 100, "nothing is encoded");
        let mut load = endless_load(&server, &keys);
        // By then all keys were stored once.
        wait_for_more(&mut control, ("", "cmd_get"), 5_000);
        load.kill().unwrap();
        load.wait().unwrap();
        killed += 1;
        (0..PAUSE_ANSWERS).for_each(|_| drop(control.stats("").unwrap()));
    }
    // Values of another kind under the same keys: the earlier learning no longer fits.
    for values in [None, Some(&*others), None] {
        let words: Vec<&str> = keys.into_iter().chain(values).collect();
        for shape in ["--shape=batched", "--shape=single", "--shape=paced"] {
            let mut load = endless_load(&server, &[&words[..], &[shape]].concat());
            wait_for_more(&mut control, ("", "cmd_set"), 5_000);
            load.kill().unwrap();
            load.wait().unwrap();
            killed += 1;
        }
        let mut beside = endless_load(&server, &words);
        wait_for_more(&mut control, ("", "cmd_get"), 5_000);
        // It fills, compares every value, and ends with 1 at the first wrong one.
        let verified = Command::new(env!("CARGO_BIN_EXE_breakeven"))
            .args(["bench", server.address(), "--flat-out", "--seconds=0.5"])
            .args(&words)
            .output()
            .unwrap();
        beside.kill().unwrap();
        beside.wait().unwrap();
        killed += 1;
        let said = String::from_utf8_lossy(&verified.stderr);
        assert!(verified.status.success(), "{said}");
    }
    let stats = control.stats("").unwrap();
    let encoded = encoded(&mut control);
    println!(
        "{killed} killed, {encoded} values encoded, {} evicted",
        stats["evictions"]
    );
    assert!(encoded > 1000 && stats["evictions"] != "0", "{encoded}");
}
