//! Sockets to listen on: handed over by the parent process, or bound to a path of any length.
//!
//! Sources: sd_listen_fds(3), which is how systemd hands sockets over, and unix(7), by which the path of a socket is
//! shorter than 108 bytes.
//!
//! `unsafe` here: a number from the environment becomes a descriptor, and only a duplicate of it is kept.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpListener;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketType, getsockname, sockopt};

/// The first descriptor that is handed over.
const FIRST: i32 = 3;
/// The bytes of a path that the kernel takes, with the zero at its end.
const PATH_BYTES: usize = 108;

/// A socket on which somebody else began to listen.
#[derive(Debug)]
pub enum Inherited {
    /// At a path, or at no address at all.
    Unix(UnixListener),
    /// On a port.
    Tcp(TcpListener),
}

/// Returns the sockets that were handed over to this process, in their order; none where it was started otherwise.
///
/// # Errors
/// If one of them is not there, or nobody can connect to it.
pub fn inherited() -> io::Result<Vec<Inherited>> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Ok(Vec::new());
    }
    let count = number("LISTEN_FDS").unwrap_or(0);
    let count = i32::try_from(count).unwrap_or(i32::MAX - FIRST);
    (FIRST..FIRST + count).map(take).collect()
}

fn take(number: i32) -> io::Result<Inherited> {
    let named = |error: io::Error| {
        let sentence = format!("descriptor {number}, which was handed over: {error}");
        io::Error::new(error.kind(), sentence)
    };
    // SAFETY: it is used for one call, which fails where the descriptor is not open. The call returns another one.
    let owned = unsafe { BorrowedFd::borrow_raw(number) }.try_clone_to_owned();
    owned.and_then(listener).map_err(named)
}

fn listener(socket: OwnedFd) -> io::Result<Inherited> {
    let is_stream = sockopt::socket_type(&socket)? == SocketType::STREAM;
    if !is_stream || !sockopt::socket_acceptconn(&socket)? {
        let sentence = "nobody can connect to it";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, sentence));
    }
    match getsockname(&socket)?.address_family() {
        AddressFamily::UNIX => Ok(Inherited::Unix(socket.into())),
        AddressFamily::INET | AddressFamily::INET6 => Ok(Inherited::Tcp(socket.into())),
        _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
    }
}

/// Calls with a path that leads to a socket and is short enough for the kernel. It is the path itself, or one through a
/// descriptor of its folder.
///
/// # Errors
/// Those of the call; if the folder cannot be opened, or the file's name alone is too long.
pub fn with_short_path<T>(path: &Path, call: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    if path.as_os_str().len() < PATH_BYTES {
        return call(path);
    }
    let too_long = || {
        let sentence = "the name of a socket's file is at most some 80 bytes long";
        io::Error::new(io::ErrorKind::InvalidInput, sentence)
    };
    let (folder, name) = path.parent().zip(path.file_name()).ok_or_else(too_long)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
    let short = Path::new("/proc/self/fd")
        .join(number.to_string())
        .join(name);
    match short.as_os_str().len() < PATH_BYTES {
        true => call(&short),
        false => Err(too_long()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_socket_lies_at_a_path_of_any_length_but_not_of_any_name() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let folder = root.path().join("f".repeat(150));
        std::fs::create_dir(&folder).expect("a folder");
        let path = folder.join("socket");
        let bound = with_short_path(&path, |path| UnixListener::bind(path));
        let bound = bound.expect("a socket");
        assert!(path.exists(), "it lies elsewhere");
        with_short_path(&path, |path| UnixStream::connect(path)).expect("a connection");
        bound.accept().expect("a client");
        let refused = with_short_path(&folder.join("n".repeat(100)), |_| Ok(()));
        let refused = refused.expect_err("a name that is too long").to_string();
        assert!(refused.contains("80 bytes"), "{refused}");
    }
}
