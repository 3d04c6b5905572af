//! The servers that are measured, as child processes on sockets of their own, and fio's NBD engine
//! in front of either.

use std::cell::Cell;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::device::run;
use crate::peers;
use crate::programs::{self, own_program};

/// The name of this project's server in records.
pub const OURS: &str = "breakeven";
/// The name of the peer.
pub const PEER: &str = "nbdkit file";

/// A server has to listen by then.
const START: Duration = Duration::from_secs(20);

/// Returns which programs race, as one word of a cell's parameters; missing ones are named.
pub fn peers() -> String {
    programs::peers(&[("fio", "--version"), ("nbdkit", "--version")])
}

/// A server; it ends when it is forgotten.
pub struct Server {
    child: Child,
    pub address: String,
    /// How many jobs it was given: each has other random numbers.
    jobs: Cell<u64>,
}

impl Server {
    /// Makes a disk of a size and serves it.
    pub fn ours(folder: &Path, sockets: &Path, size_bytes: u64) -> Result<Server> {
        Server::ours_of_blocks(folder, sockets, size_bytes, 4096)
    }

    /// Makes a disk of a size, of blocks of a length, and serves it.
    pub fn ours_of_blocks(
        folder: &Path,
        sockets: &Path,
        size_bytes: u64,
        block_bytes: u64,
    ) -> Result<Server> {
        let program = own_program()?;
        let disk = folder.join("disk");
        let made = Command::new(&program)
            .args(["disk", "create"])
            .arg(&disk)
            .args(["--size", &size_bytes.to_string()])
            .args(["--block-size", &block_bytes.to_string()])
            .status();
        ensure!(made.context("make a disk")?.success(), "make a disk");
        let mut child = Command::new(&program)
            .args(["disk", "serve"])
            .arg(&disk)
            .arg("--socket")
            .arg(sockets.join("breakeven"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start the server")?;
        let out = child.stdout.take().context("a pipe")?;
        let mut server = Server {
            child,
            address: String::new(),
            jobs: Cell::new(0),
        };
        BufReader::new(out).read_line(&mut server.address)?;
        server.address.truncate(server.address.trim_end().len());
        ensure!(!server.address.is_empty(), "the server did not start");
        Ok(server)
    }

    /// Makes a sparse file of a size and serves it by nbdkit.
    pub fn peer(folder: &Path, sockets: &Path, size_bytes: u64) -> Result<Server> {
        let (image, socket) = (folder.join("image"), sockets.join("nbdkit"));
        let ready = sockets.join("ready");
        fs::File::create(&image)?.set_len(size_bytes)?;
        let child = peers::command("nbdkit")
            .arg("--foreground")
            .arg("--unix")
            .arg(&socket)
            // Written when it listens.
            .arg("--pidfile")
            .arg(&ready)
            .arg("file")
            .arg(&image)
            .stdin(Stdio::null())
            .spawn()
            .context("start nbdkit")?;
        let server = Server {
            child,
            address: format!("nbd+unix:///?socket={}", socket.display()),
            jobs: Cell::new(0),
        };
        wait_for(&ready, "nbdkit")?;
        Ok(server)
    }

    /// Makes a qcow2 image of a size and serves it by QEMU's own server.
    pub fn qcow2(folder: &Path, sockets: &Path, size_bytes: u64) -> Result<Server> {
        let (image, socket) = (folder.join("qcow2"), sockets.join("qemu"));
        let ready = sockets.join("ready");
        run(peers::command("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .arg(&image)
            .arg(size_bytes.to_string()))?;
        let child = peers::command("qemu-nbd")
            .args(["--persistent", "--discard=unmap", "--cache=writeback"])
            .arg(format!("--socket={}", socket.display()))
            // Written when it listens.
            .arg(format!("--pid-file={}", ready.display()))
            .arg("--format=qcow2")
            .arg(&image)
            .stdin(Stdio::null())
            .spawn()
            .context("start qemu-nbd")?;
        let server = Server {
            child,
            address: format!("nbd+unix:///?socket={}", socket.display()),
            jobs: Cell::new(0),
        };
        wait_for(&ready, "qemu-nbd")?;
        Ok(server)
    }

    /// Returns the most memory that the server had resident until now.
    pub fn resident_bytes(&self) -> f64 {
        programs::resident(&self.child)
    }

    /// Returns the processor time that the server took until now.
    pub fn cpu_seconds(&self) -> Result<f64> {
        programs::cpu_seconds(&self.child)
    }

    /// Returns the bytes that the server gave to the system until now, replies included.
    pub fn given_bytes(&self) -> Result<f64> {
        let counts = fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let given = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
        Ok(given.context("a count of bytes")?.parse()?)
    }
}

/// Waits for the file that a server writes when it listens.
fn wait_for(ready: &Path, name: &str) -> Result<()> {
    let begun = Instant::now();
    while !ready.exists() {
        ensure!(begun.elapsed() < START, "{name} does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that is dead already needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// fio's report on a job.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    pub bytes: f64,
    pub seconds: f64,
    pub p99_us: f64,
}

/// Runs a job of fio against a server. Each has other data than the one before, the same for every server: known data
/// would be found and not written.
pub fn fio(server: &Server, job: &[String]) -> Result<Told> {
    let output = command(server, job).output().context("start fio")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "fio {job:?}: {errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rfind(|line| line.starts_with("3;"));
    told(line.with_context(|| format!("fio {job:?} told nothing: {text}{errors}"))?)
}

/// A job of fio that goes on beside others until it is forgotten.
pub struct Beside(Child);

impl Beside {
    /// Starts a job against a server.
    pub fn start(server: &Server, job: &[String]) -> Result<Beside> {
        let child = command(server, job).stdout(Stdio::null()).spawn();
        Ok(Beside(child.context("start fio")?))
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // As a person at a terminal ends it, so that it ends its own children.
        let process = self.0.id().to_string();
        let _ = Command::new("kill").args(["-INT", &process]).status();
        let _ = self.0.wait();
    }
}

fn command(server: &Server, job: &[String]) -> Command {
    server.jobs.set(server.jobs.get() + 1);
    let mut command = peers::command("fio");
    command
        .args(["--name=job", "--ioengine=nbd", "--output-format=terse"])
        .args(["--terse-version=3", "--refill_buffers"])
        .arg(format!("--randseed={}", server.jobs.get()))
        .args([
            "--buffer_compress_percentage=67",
            "--buffer_compress_chunk=4k",
        ])
        .arg(format!("--uri={}", server.address))
        .args(job)
        .stdin(Stdio::null());
    command
}

/// Reads a line of fio's terse output, version 3: reads first, the same of writes 41 fields later.
fn told(line: &str) -> Result<Told> {
    let fields: Vec<&str> = line.split(';').collect();
    let field = |index: usize| fields.get(index).copied().context("a field of fio's line");
    ensure!(field(4)? == "0", "fio failed: {line}");
    let mut sum = Told::default();
    for first in [5, 46] {
        let p99 = field(first + 24)?;
        let (name, p99) = p99.split_once('=').context("a percentile")?;
        ensure!(name.starts_with("99.0"), "'{name}' is no 99th percentile");
        let bytes = field(first)?.parse::<f64>()? * 1024.0;
        if bytes > 0.0 {
            sum.bytes += bytes;
            sum.seconds += field(first + 3)?.parse::<f64>()? / 1000.0;
            sum.p99_us = p99.parse()?;
        }
    }
    ensure!(sum.seconds > 0.0, "fio took no time: {line}");
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    #[test]
    fn the_line_of_fio_is_read() {
        let mut fields = vec!["0".to_string(); 130];
        fields[0] = "3".to_string();
        for first in [5, 46] {
            fields[first + 24] = "99.000000%=84".to_string();
        }
        (fields[46], fields[49]) = ("956".to_string(), "2000".to_string());
        let check = |fields: &[String], expected: Option<Told>| {
            assert_eq!(told(&fields.join(";")).ok(), expected);
        };
        let expected = Told {
            bytes: 956.0 * 1024.0,
            seconds: 2.0,
            p99_us: 84.0,
        };
        check(&fields, Some(expected));
        check(&fields[..50], None);
        fields[4] = "5".to_string();
        check(&fields, None);
        fields[4] = "0".to_string();
        fields[70] = "99.500000%=84".to_string();
        check(&fields, None);
    }

    #[test]
    fn a_server_is_gone_when_it_is_forgotten() {
        let sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let process = PathBuf::from(format!("/proc/{}", sleeper.id()));
        let server = Server {
            child: sleeper,
            address: String::new(),
            jobs: Cell::new(0),
        };
        assert!(process.exists() && server.cpu_seconds().unwrap() < 1.0);
        drop(server);
        assert!(!process.exists());
    }
}
