//! An S3 server of a test's own, which `tools/setup` installs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A server with an empty bucket named `bucket`, on a free port of the loopback interface.
pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts it, unless it is not installed. That is an error where everything must be installed.
    pub fn start() -> Option<Server> {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
        let program = cache
            .unwrap_or_else(home)
            .join("breakeven/moto/bin/moto_server");
        let started = Command::new(&program)
            .args(["-H", "127.0.0.1", "-p", "0"])
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut child) = started else {
            println!("{} is not installed: nothing tried", program.display());
            assert!(std::env::var_os("CI").is_none(), "no S3 server");
            return None;
        };
        let mut lines = BufReader::new(child.stderr.take().expect("its words"));
        let port = loop {
            let mut line = String::new();
            assert!(lines.read_line(&mut line).expect("a line") > 0, "it ended");
            if let Some((_, rest)) = line.split_once("127.0.0.1:") {
                let digits = rest.split(|it: char| !it.is_ascii_digit()).next();
                break digits.expect("digits").parse().expect("a port");
            }
        };
        // Its log of requests is thrown away, but must be read.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let server = Server { child, port };
        let mut asked = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let request = "PUT /bucket HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        asked.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        asked.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
