//! Servers to talk to, ours and Debian's, on UNIX sockets in a folder of the test.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use breakeven_memcached::{Listen, Server, Settings, Stopper};

/// Keeps a test from hanging where it waits for something that never comes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Our server, in a thread of the test.
pub struct Ours {
    pub path: PathBuf,
    stopper: Stopper,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Ours {
    pub fn start(folder: &Path, settings: Settings) -> Ours {
        let path = folder.join("ours");
        let listen = Listen::Unix {
            path: path.clone(),
            mode: 0o700,
        };
        let server = Server::open(Settings { listen, ..settings }).unwrap();
        let stopper = server.stopper();
        let thread = std::thread::spawn(move || server.run(None));
        Ours {
            path,
            stopper,
            thread: Some(thread),
        }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stopper.stop();
        let ended = self.thread.take().expect("it is joined once").join();
        if !std::thread::panicking() {
            ended.unwrap().unwrap();
        }
    }
}

/// Debian's server, a process of the test.
pub struct Debian {
    pub path: PathBuf,
    child: Child,
}

impl Debian {
    /// Starts it; `None` if it is not installed, which is an error under CI.
    pub fn start(folder: &Path, more: &[&str]) -> Option<Debian> {
        let path = folder.join("debian");
        let child = Command::new("memcached")
            .args(["-u", "root", "-t", "1", "-s"])
            .arg(&path)
            .args(more)
            .stdin(Stdio::null())
            .spawn();
        match child {
            Ok(child) => Some(Debian { path, child }),
            Err(error) => {
                missing(&format!("memcached: {error}"));
                None
            }
        }
    }
}

impl Drop for Debian {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that something is not installed.
pub fn missing(what: &str) {
    println!("not tested: {what}");
    assert!(std::env::var_os("CI").is_none(), "{what}");
}

/// A client that waits for the expected reply.
pub struct Client {
    pub stream: UnixStream,
    server: String,
    received: Vec<u8>,
}

impl Client {
    /// Connects, as soon as the server listens.
    pub fn connect(path: &Path) -> Client {
        let start = std::time::Instant::now();
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{}: {error}", path.display()),
            }
            std::thread::yield_now();
        };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Client {
            stream,
            server: path.display().to_string(),
            received: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Returns the bytes up to and with `end`.
    pub fn read_to(&mut self, end: &[u8]) -> Vec<u8> {
        let mut searched = 0;
        loop {
            let found = self.received[searched..]
                .windows(end.len())
                .position(|window| window == end);
            if let Some(at) = found {
                return self.received.drain(..searched + at + end.len()).collect();
            }
            searched = self.received.len().saturating_sub(end.len() - 1);
            assert!(
                self.read_some() > 0,
                "{}: closed after {:?}",
                self.server,
                tail(&self.received)
            );
        }
    }

    /// Sends a command and returns its answer of one line.
    pub fn ask(&mut self, command: &str) -> String {
        self.send(command.as_bytes());
        String::from_utf8(self.read_to(b"\r\n")).unwrap()
    }

    fn read_some(&mut self) -> usize {
        let mut buffer = [0; 1 << 16];
        let read = match self.stream.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            Err(error) => panic!("{}: {error} after {:?}", self.server, tail(&self.received)),
        };
        self.received.extend_from_slice(&buffer[..read]);
        read
    }
}

fn tail(bytes: &[u8]) -> String {
    let start = bytes.len().saturating_sub(300);
    bytes[start..].escape_ascii().to_string()
}
