//! Sockets that are passed in, and sockets with a longer path than the kernel takes.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::disk::hosts::{handed, program, short};

/// Asks a server for its version.
fn version(socket: &Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("a connection");
    // A deadline, not a measurement.
    let patience = Some(Duration::from_secs(60));
    stream.set_read_timeout(patience).expect("a deadline");
    stream.write_all(b"version\r\nquit\r\n").expect("a reader");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

fn signal(server: &Child, signal: &str) {
    let process = server.id().to_string();
    let killed = Command::new("kill").args([signal, &process]).status();
    assert!(killed.expect("kill").success());
}

fn end(mut server: Child) {
    signal(&server, "-TERM");
    assert!(server.wait().expect("an ended server").success());
}

#[test]
fn a_socket_that_is_handed_over_is_served_and_left() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("given");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let serve = program(&["serve", "-m", "16"], folder.path());
    let server = handed(listener, &serve).spawn().expect("a server");
    assert!(version(&socket).starts_with("VERSION "));
    // Its terminal is closed.
    signal(&server, "-HUP");
    assert!(version(&socket).starts_with("VERSION "));
    end(server);
    assert!(socket.exists(), "it is not the server's to remove");
}

#[test]
fn a_socket_deep_in_folders_is_served_and_removed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let deep = folder.path().join("d".repeat(150));
    fs::create_dir(&deep).expect("a folder");
    let path = deep.join("cache").display().to_string();
    let mut serve = program(&["serve", "-m", "16", "-s", &path], folder.path());
    let mut server = serve.stderr(Stdio::piped()).spawn().expect("a server");
    let mut said = BufReader::new(server.stderr.take().expect("a pipe"));
    let mut line = String::new();
    said.read_line(&mut line).expect("a line");
    assert!(line.contains(&path), "{line}");
    let opened = File::open(&deep).expect("a folder");
    assert!(version(&short(&opened, "cache")).starts_with("VERSION "));
    end(server);
    assert!(!Path::new(&path).exists(), "the socket is left");
}
