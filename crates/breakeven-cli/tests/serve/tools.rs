//! Other programs beside the server: exporters that read its counts, and stunnel for TLS.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};

use breakeven_memcached::client::Client;

use crate::bench::Server;
use crate::page::left_out;

const GUIDE: &str = include_str!("../../../../docs/serve.md");

/// The fields of `stats` that Prometheus's memcached_exporter reads, each a number.
const EXPORTED: &str = "get_hits get_misses delete_hits delete_misses incr_hits incr_misses decr_hits decr_misses cas_hits \
    cas_misses cas_badval touch_hits touch_misses uptime time cmd_flush cmd_set rusage_user rusage_system bytes limit_maxbytes \
    curr_items total_items bytes_read bytes_written curr_connections total_connections rejected_connections conn_yields \
    listen_disabled_num evictions reclaimed store_too_large store_no_memory accepting_conns";

#[test]
fn exporters_find_what_they_read() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::ours(folder.path(), &[]);
    let mut client = Client::connect(server.address()).unwrap();
    let items: Vec<(String, String)> = (0..100)
        .map(|at| (format!("k{at}"), "v".repeat(at)))
        .collect();
    client.store(items.into_iter()).unwrap();
    let check = |counts: &std::collections::BTreeMap<String, String>, names: &str| {
        for name in names.split_whitespace() {
            let count = counts.get(name).unwrap_or_else(|| panic!("no {name}"));
            assert!(count.parse::<f64>().is_ok(), "{name} {count}");
        }
    };
    let stats = client.stats("").unwrap();
    check(&stats, EXPORTED);
    // Seconds and six digits of a second.
    let (_, micros) = stats["rusage_user"].split_once('.').expect("a point");
    assert_eq!(micros.len(), 6, "{stats:?}");
    assert!(!stats["version"].is_empty());
    // For the exporter, a failure in these means that the server is down.
    let settings = client.stats("settings").unwrap();
    check(&settings, "maxconns");
    if settings.get("lru_crawler").is_some_and(|it| it == "yes") {
        check(&settings, "lru_crawler_sleep hot_lru_pct hot_max_factor");
    }
    check(
        &client.stats("items").unwrap(),
        "items:1:number items:1:evicted",
    );
    check(
        &client.stats("slabs").unwrap(),
        "1:chunk_size 1:total_pages 1:used_chunks 1:get_hits 1:cmd_set 1:cas_hits 1:cas_badval",
    );
}

#[test]
fn the_metrics_file_is_what_prometheus_reads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cache.prom");
    let mut server = Server::ours(folder.path(), &["--metrics", path.to_str().unwrap()]);
    let mut client = Client::connect(server.address()).unwrap();
    let items = (0..37).map(|at| (format!("k{at}"), "v".repeat(at)));
    client.store(items).unwrap();
    drop(client);
    // It is written at the server's start, now and then, and at its stop.
    server.stop();
    let text = fs::read_to_string(&path).unwrap();
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
            && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    let mut known = std::collections::BTreeSet::new();
    let mut samples = 0;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let words: Vec<&str> = comment.splitn(3, ' ').collect();
            assert!(["HELP", "TYPE"].contains(&words[0]), "{line}");
            assert!(words.len() == 3 && is_name(words[1]), "{line}");
            if words[0] == "TYPE" {
                assert!(known.insert(words[1]), "twice: {line}");
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect(line);
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        assert!(known.contains(name) && labels.ends_with('}'), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        samples += 1;
    }
    assert!(samples > 40, "{text}");
    for (name, value) in [("curr_items", 37), ("cmd_set", 37)] {
        let line = format!("\nbreakeven_memcached_{name} {value}\n");
        assert!(text.contains(&line), "no {line} in {text}");
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The guide's lines for stunnel, with this test's own addresses and certificate.
fn stunnels_lines(port: u16, server: &Server, certificate: &str) -> String {
    let (_, section) = GUIDE.split_once("\n## TLS\n").expect("the section");
    let section = section.split("\n## ").next().expect("a section");
    let lines = section.lines().filter_map(|line| line.strip_prefix("    "));
    let lines: Vec<String> = lines
        .filter(|line| line.starts_with('[') || line.contains(" = "))
        .map(|line| match line.split_once(" = ") {
            Some(("accept", _)) => format!("accept = 127.0.0.1:{port}"),
            Some(("connect", _)) => format!("connect = {}", server.address()),
            Some(("cert", _)) => format!("cert = {certificate}"),
            _ => line.to_string(),
        })
        .collect();
    assert!(lines.len() >= 4, "{lines:?}");
    // In the foreground, without a PID file.
    format!("foreground = yes\npid =\n{}\n", lines.join("\n"))
}

#[test]
fn stunnel_as_the_guide_shows_it_brings_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=cache",
        ])
        .args(["-keyout", &path("cache.pem"), "-out", &path("certificate")])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        return left_out("no openssl: TLS is not tried");
    }
    let certificate = fs::read(path("certificate")).unwrap();
    let mut both = fs::File::options().append(true).open(path("cache.pem"));
    both.as_mut().unwrap().write_all(&certificate).unwrap();
    let server = Server::ours(folder.path(), &[]);
    // It is free again until stunnel takes it; nobody else asks for one.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    fs::write(
        path("stunnel.conf"),
        stunnels_lines(port, &server, &path("cache.pem")),
    )
    .unwrap();
    let stunnel = Command::new("stunnel")
        .arg(path("stunnel.conf"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(stunnel) = stunnel else {
        return left_out("no stunnel: TLS is not tried");
    };
    let _stunnel = Killed(stunnel);
    let begun = std::time::Instant::now();
    let expected = b"STORED\r\nVALUE k 0 5\r\nvalue\r\nEND\r\n";
    // It may not listen yet.
    let patience = std::time::Duration::from_secs(60);
    while asked_by_tls(port, &path("certificate")) != expected {
        assert!(begun.elapsed() < patience, "no answer by TLS");
    }
}

/// Stores a value and fetches it through a TLS port; returns the answers.
fn asked_by_tls(port: u16, certificate: &str) -> Vec<u8> {
    let mut client = Command::new("timeout");
    client.args(["20", "openssl", "s_client", "-quiet", "-connect"]);
    client.arg(format!("127.0.0.1:{port}"));
    client.args(["-CAfile", certificate, "-verify_return_error"]);
    let client = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut client = client.unwrap();
    let mut input = client.stdin.take().unwrap();
    let _ = input.write_all(b"set k 0 0 5\r\nvalue\r\nget k\r\nquit\r\n");
    let output = client.wait_with_output().unwrap();
    drop(input);
    output.stdout
}
