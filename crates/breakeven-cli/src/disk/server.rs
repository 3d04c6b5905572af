//! The server: a socket, a thread for each connection, a signal that ends it.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use breakeven::disk::Disk;
use breakeven::quoted::quoted;
use breakeven_memcached::sockets::{self, Inherited, with_short_path};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;

use super::handshake::{Offer, negotiate};
use super::metrics::Metrics;
use super::request::transmit;
use crate::standard::complain;

/// A client that has not agreed on an export by then holds a place that others may want.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// A connection of either kind.
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(timeout),
            Stream::Tcp(stream) => stream.set_read_timeout(timeout),
        }
    }

    fn shut_down(&self) {
        // One that is closed already needs nothing.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).read(target),
            Stream::Tcp(stream) => (&mut &*stream).read(target),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).write(bytes),
            Stream::Tcp(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&mut &*stream).write_vectored(parts),
            Stream::Tcp(stream) => (&mut &*stream).write_vectored(parts),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Where clients come in.
pub enum Listener {
    /// With the socket's file, if this process made it.
    Unix(UnixListener, Option<PathBuf>),
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a socket that the owner alone may use. One that nobody listens on any more is replaced.
    ///
    /// It is called before any thread is started: the process's mask is changed for a moment.
    pub fn unix(path: &Path) -> Result<Listener> {
        let context = || format!("listen on {}", quoted(&path));
        // Connecting to a file of any other kind is refused as well, and that file is somebody's.
        let is_socket =
            std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        let is_dead = || {
            with_short_path(path, |path| UnixStream::connect(path))
                .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        };
        if is_socket && is_dead() {
            std::fs::remove_file(path).with_context(context)?;
        }
        let before = rustix::process::umask(Mode::from_raw_mode(0o177));
        let listener = with_short_path(path, |path| UnixListener::bind(path));
        rustix::process::umask(before);
        Ok(Listener::Unix(
            listener.with_context(context)?,
            Some(path.to_path_buf()),
        ))
    }

    /// Returns the file that goes when nobody listens any more.
    pub fn own_file(&self) -> Option<&Path> {
        match self {
            Listener::Unix(_, path) => path.as_deref(),
            Listener::Tcp(_) => None,
        }
    }

    /// Listens on a port that this machine alone reaches.
    pub fn tcp(port: u16) -> Result<Listener> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
        Ok(Listener::Tcp(
            listener.with_context(|| format!("listen on port {port}"))?,
        ))
    }

    /// Returns the sockets that were handed over, on which somebody else began to listen.
    pub fn inherited() -> Result<Vec<Listener>> {
        let sockets = sockets::inherited().context("listen on what was handed over")?;
        sockets.into_iter().map(Listener::taken_over).collect()
    }

    fn taken_over(socket: Inherited) -> Result<Listener> {
        Ok(match socket {
            Inherited::Unix(listener) => {
                listener.set_nonblocking(false)?;
                Listener::Unix(listener, None)
            }
            Inherited::Tcp(listener) => {
                listener.set_nonblocking(false)?;
                let address = listener.local_addr()?;
                ensure!(
                    address.ip().is_loopback(),
                    "{address} was handed over, which other machines reach: a disk has no password, and is served on \
                     loopback and on Unix sockets"
                );
                Listener::Tcp(listener)
            }
        })
    }

    /// Returns the address for a client's command line.
    pub fn address(&self) -> Result<String> {
        Ok(match self {
            Listener::Unix(listener, path) => {
                let bound = listener.local_addr()?;
                let path = path.as_deref().or(bound.as_pathname());
                let path = path.context("the socket that was handed over has no path")?;
                let path = std::path::absolute(path).context("find the socket's folder")?;
                format!("nbd+unix:///?socket={}", escaped(&path))
            }
            Listener::Tcp(listener) => format!("nbd://{}", listener.local_addr()?),
        })
    }

    /// Waits for a client and lets it in. Without a descriptor for it, the system says so before a client comes.
    fn accept(&self) -> io::Result<Stream> {
        let socket = match self {
            Listener::Unix(listener, _) => listener.as_fd(),
            Listener::Tcp(listener) => listener.as_fd(),
        };
        poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], None)?;
        Ok(match self {
            Listener::Unix(listener, _) => Stream::Unix(listener.accept()?.0),
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Stream::Tcp(stream)
            }
        })
    }
}

/// The data that all connections share.
pub struct Server {
    pub disk: Disk,
    pub default: String,
    pub is_read_only: bool,
    pub connections_max: usize,
    /// How many requests of a connection are done at a time.
    pub threads: usize,
    pub metrics: Metrics,
    /// The connections that are open, and whether there may be more.
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    streams: Vec<(u64, Stream)>,
    threads: Vec<std::thread::JoinHandle<()>>,
    next: u64,
    is_ending: bool,
}

/// A connection that is counted for as long as this lives.
struct Connection {
    server: Arc<Server>,
    number: u64,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.server
            .metrics
            .connections
            .fetch_sub(1, Ordering::Relaxed);
        let mut open = self.server.lock();
        open.streams.retain(|(number, _)| *number != self.number);
    }
}

impl Server {
    pub fn new(
        disk: Disk,
        default: String,
        is_read_only: bool,
        connections_max: usize,
        threads: usize,
    ) -> Server {
        Server {
            disk,
            default,
            is_read_only,
            connections_max,
            threads,
            metrics: Metrics::default(),
            open: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets clients in until the server ends; a thread of its own.
    pub fn listen(self: &Arc<Server>, listener: &Listener) -> Result<()> {
        let mut was_refused = false;
        loop {
            let stream = match listener.accept() {
                Ok(stream) => stream,
                // The client left meanwhile, or there are no descriptors: those that are open go on.
                Err(error) => {
                    // One that waits is refused again and again.
                    if !was_refused {
                        self.metrics.reject(error.to_string());
                    }
                    was_refused = true;
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
            };
            was_refused = false;
            let mut open = self.lock();
            if open.is_ending {
                return Ok(());
            }
            if open.streams.len() >= self.connections_max {
                let most = self.connections_max;
                self.metrics
                    .reject(format!("more than {most} at once (--connections)"));
                continue;
            }
            let Ok(shared) = stream.try_clone() else {
                continue;
            };
            let number = open.next;
            open.next += 1;
            open.streams.push((number, shared));
            open.threads.retain(|thread| !thread.is_finished());
            self.metrics.connections.fetch_add(1, Ordering::Relaxed);
            let server = Arc::clone(self);
            let thread = std::thread::Builder::new().spawn(move || {
                let connection = Connection { server, number };
                if let Err(error) = connection.server.converse(&stream) {
                    report(&error);
                }
            });
            match thread {
                Ok(thread) => open.threads.push(thread),
                Err(error) => {
                    self.metrics.reject(error.to_string());
                    open.streams.pop();
                    self.metrics.connections.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn converse(&self, stream: &Stream) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(64 << 10, stream);
        let mut writer = stream;
        stream.set_timeout(Some(HANDSHAKE))?;
        let offer = Offer {
            disk: &self.disk,
            default: &self.default,
            is_read_only: self.is_read_only,
        };
        let Some(session) = negotiate(&mut reader, &mut writer, &offer)? else {
            return Ok(());
        };
        stream.set_timeout(None)?;
        let metrics = &self.metrics;
        transmit(&mut reader, &mut writer, &session, metrics, self.threads)
    }

    /// Lets nobody in any more, and ends all connections behind the requests that run. Makes everything durable, before
    /// and behind some last work.
    pub fn end(&self, work: impl FnOnce() -> breakeven::Result<()>) -> Result<()> {
        let threads = {
            let mut open = self.lock();
            open.is_ending = true;
            open.streams
                .iter()
                .for_each(|(_, stream)| stream.shut_down());
            std::mem::take(&mut open.threads)
        };
        let panicked = threads.into_iter().filter_map(|thread| thread.join().err());
        let panicked = panicked.count();
        if !self.is_read_only {
            self.disk.flush().context("make the disk durable")?;
            if let Err(error) = work() {
                complain(format_args!("the disk is not made dense: {error}"));
            }
            self.disk.close().context("make the disk durable")?;
        }
        if panicked > 0 {
            bail!("{panicked} connections ended in a panic");
        }
        Ok(())
    }
}

/// Returns a path as a part of an address: from any folder, with any bytes.
fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            byte if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) => {
                text.push(char::from(*byte));
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// Says why a connection ended, unless the client just left.
fn report(error: &io::Error) {
    let is_leaving = matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::NotConnected
    );
    if !is_leaving {
        complain(format_args!("a connection ended: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_part_of_an_address() {
        let check = |path: &str, expected: &str| assert_eq!(escaped(Path::new(path)), expected);
        check("/disks/my.disk.socket", "/disks/my.disk.socket");
        check("/a b/50%?c&d=e#f", "/a%20b/50%25%3Fc%26d%3De%23f");
        check("/\u{e4}", "/%C3%A4");
    }
}
