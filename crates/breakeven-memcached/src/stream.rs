//! A socket of either kind, TCP or UNIX, as servers and clients have it.

use std::fs::{self, Metadata};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;

/// The port of an address that names none.
const PORT: u16 = 11211;

/// A connected socket.
#[derive(Debug)]
pub enum Stream {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A connection to a UNIX socket.
    Unix(UnixStream),
}

impl Stream {
    /// Connects to an address: `HOST`, `HOST:PORT`, `[HOST]:PORT`, or the path of a UNIX socket, which has a `/` in it
    /// or is there.
    ///
    /// # Errors
    /// If nobody listens there.
    pub fn connect(address: &str) -> io::Result<Stream> {
        let is_socket = |found: Metadata| found.file_type().is_socket();
        if address.contains('/') || fs::metadata(address).is_ok_and(is_socket) {
            return Ok(Stream::Unix(UnixStream::connect(address)?));
        }
        let has_port = address.rsplit_once(':').is_some_and(|(host, port)| {
            port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
        });
        let stream = match has_port {
            true => TcpStream::connect(address)?,
            false => TcpStream::connect((address.trim_matches(['[', ']']), PORT))?,
        };
        stream.set_nodelay(true)?;
        Ok(Stream::Tcp(stream))
    }

    /// Lets reads and writes return at once.
    ///
    /// # Errors
    /// Those of the system.
    pub fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(target),
            Stream::Unix(stream) => stream.read(target),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }
}
