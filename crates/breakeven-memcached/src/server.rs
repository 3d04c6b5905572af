//! The server as a whole: its sockets, the thread that accepts, the workers, and their end.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use breakeven::meter::thread_cpu;
use breakeven::objects::{Objects, ObjectsOptions};
use breakeven::quoted::quoted;
use breakeven::storage::beside;

use crate::process;
use crate::settings::{Listen, Settings};
use crate::shared::{Needed, Peer, Shared, Stop, lock, tell};
use crate::sockets::{self, Inherited};
use crate::stats;
use crate::stream::Stream;
use crate::worker::{Arrival, Inbox, Worker};

/// How long no connection is accepted when there are no descriptors left, in milliseconds; memcached's 10.
const DESCRIPTORS_PAUSE_MS: i64 = 10;
/// How often the store's due work is done, in milliseconds.
const MAINTAIN_EVERY_MS: i64 = 200;
/// Items looked at in each shard at a time.
const MAINTAIN_ITEMS: usize = 64;
/// How often a class of values is looked at, and for how many times as long as that took nothing is.
const LEARN_EVERY: Duration = Duration::from_millis(100);
const LEARN_EVERY_MOST: Duration = Duration::from_secs(10);
const LEARN_PAUSE: u32 = 9;
/// Seconds between two metrics files.
const METRICS_EVERY_SECONDS: u32 = 10;
/// Shards a worker thread has at least, so that two rarely meet at one lock.
const SHARDS_PER_WORKER: usize = 4;
const SHARDS_MIN: usize = 16;

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
}

/// A socket's file as it was when it was bound.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Nothing for a socket that was handed over: its maker removes it.
    identity: Option<SocketIdentity>,
}

/// The identity of the file, wherever its path leads later.
#[derive(Debug, PartialEq, Eq)]
struct SocketIdentity {
    device: u64,
    inode: u64,
}

impl SocketIdentity {
    fn of(found: &fs::Metadata) -> SocketIdentity {
        SocketIdentity {
            device: found.dev(),
            inode: found.ino(),
        }
    }
}

impl SocketFile {
    fn bound_at(path: &Path) -> io::Result<SocketFile> {
        let found = fs::symlink_metadata(path)?;
        Ok(SocketFile {
            path: path.to_path_buf(),
            identity: Some(SocketIdentity::of(&found)),
        })
    }

    fn of_others(listener: &UnixListener) -> SocketFile {
        let address = listener.local_addr().ok();
        let path = address.and_then(|address| Some(address.as_pathname()?.to_path_buf()));
        SocketFile {
            path: path.unwrap_or_default(),
            identity: None,
        }
    }

    /// Removes it, unless another server took its place meanwhile.
    fn remove(&self) {
        let is_own = |found: fs::Metadata| self.identity == Some(SocketIdentity::of(&found));
        if fs::symlink_metadata(&self.path).is_ok_and(is_own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// A server whose sockets are open.
pub struct Server {
    shared: Arc<Shared>,
    listeners: Vec<Listener>,
    addresses: Vec<String>,
}

/// Stops a server from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Asks the server to stop. Received requests are answered; others are closed.
    pub fn stop(&self) {
        self.0.ask_stop(Stop::Graceful);
    }
}

/// Whether values may be encoded by dictionaries learned from others. Never where values may belong to another user,
/// who could learn of them from the sizes of his own.
fn has_dictionaries(settings: &Settings, logins: Option<&[Vec<u8>]>) -> bool {
    settings.has_dictionaries && logins.is_none_or(|logins| logins.len() == 1)
}

/// A number that no process before has reached, unless it changed 2^20 items a second all its life. It is below 2^53,
/// up to which every client's numbers are exact.
fn cas_of_now() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_secs() << 20
}

impl Server {
    /// Makes the store and opens the sockets.
    ///
    /// # Errors
    /// If a setting is out of range, or a socket or file cannot be opened.
    pub fn open(settings: Settings) -> io::Result<Server> {
        let logins = settings.login_path.as_deref().map(logins).transpose()?;
        let shards = (settings.threads * SHARDS_PER_WORKER).max(SHARDS_MIN);
        let objects = Objects::new(ObjectsOptions {
            memory_bytes: settings.memory_bytes,
            item_bytes_max: settings.item_bytes_max,
            shards_log2: shards.next_power_of_two().ilog2() as u8,
            evict: settings.evict,
            seed: fastrand::u64(..),
            cas_after: cas_of_now(),
            encode: settings.encodes,
            dictionary_bytes_max: (!has_dictionaries(&settings, logins.as_deref())).then_some(0),
            miss_microseconds: settings.miss_microseconds,
        });
        let objects =
            objects.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let listeners = listen(&settings)?;
        let addresses: Vec<String> = listeners.iter().map(address).collect();
        let shared = Shared::new(settings, objects, logins)?;
        for (number, address) in addresses.iter().enumerate() {
            let peer = peer(address.clone(), String::new(), true, 0);
            // Connections count from 1; listeners from the other end.
            lock(&shared.peers).insert(u64::MAX - number as u64, Arc::new(peer));
        }
        Ok(Server {
            shared: Arc::new(shared),
            listeners,
            addresses,
        })
    }

    /// Returns where clients come in, each `tcp:ADDRESS:PORT` or `unix:PATH`.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Returns the handle that stops the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Serves until it is asked to stop. A byte in `signals` asks too.
    ///
    /// # Errors
    /// If a thread cannot be started, or the system refuses to wait for events.
    pub fn run(self, signals: Option<&UnixStream>) -> io::Result<()> {
        let mut inboxes = Vec::new();
        let mut threads = Vec::new();
        for number in 0..self.shared.settings.threads {
            let inbox = Arc::new(Inbox::new()?);
            let worker = Worker::new(Arc::clone(&self.shared), number, Arc::clone(&inbox))?;
            inboxes.push(inbox);
            let name = format!("worker {number}");
            threads.push(start(name, &self.shared, move |_| worker.run())?);
        }
        let maintainer = start("maintenance".into(), &self.shared, maintain)?;
        let learner = start("learning".into(), &self.shared, learn)?;
        let accepted = self.accept_all(signals, &inboxes);
        self.shared.ask_stop(Stop::Graceful);
        inboxes.iter().for_each(|inbox| inbox.wake());
        maintainer.thread().unpark();
        learner.thread().unpark();
        let threads = threads.into_iter().chain([maintainer, learner]);
        let ended: Vec<_> = threads.map(JoinHandle::join).collect();
        for listener in &self.listeners {
            if let Listener::Unix(_, file) = listener {
                file.remove();
            }
        }
        // One that panicked has said why.
        let panicked = |_| Err(io::Error::other("a thread panicked"));
        let ended = ended
            .into_iter()
            .try_for_each(|it| it.unwrap_or_else(panicked));
        accepted.and(ended)
    }

    fn accept_all(&self, signals: Option<&UnixStream>, inboxes: &[Arc<Inbox>]) -> io::Result<()> {
        let mut number = 0;
        let mut is_out_of_descriptors = false;
        while self.shared.stop() == Stop::No {
            let mut waits = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
            waits.extend(signals.map(|signals| PollFd::new(signals, PollFlags::IN)));
            let first = waits.len();
            if !is_out_of_descriptors {
                waits.extend(
                    self.listeners
                        .iter()
                        .map(|listener| PollFd::new(listener, PollFlags::IN)),
                );
            }
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: DESCRIPTORS_PAUSE_MS * 1_000_000,
            };
            match poll(&mut waits, is_out_of_descriptors.then_some(&pause)) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if waits[..first].iter().any(|wait| !wait.revents().is_empty()) {
                return Ok(());
            }
            let has_come: Vec<bool> = waits[first..]
                .iter()
                .map(|wait| !wait.revents().is_empty())
                .collect();
            is_out_of_descriptors = false;
            for (listener, _) in self
                .listeners
                .iter()
                .zip(has_come)
                .filter(|(_, has_come)| *has_come)
            {
                is_out_of_descriptors |= !self.accept(listener, &mut number, inboxes)?;
            }
        }
        Ok(())
    }

    /// Accepts all that wait at a socket. Returns false if there are no descriptors left.
    fn accept(
        &self,
        listener: &Listener,
        number: &mut u64,
        inboxes: &[Arc<Inbox>],
    ) -> io::Result<bool> {
        loop {
            let accepted = match listener {
                Listener::Tcp(listener) => accept_tcp(listener),
                Listener::Unix(listener, file) => accept_unix(listener, &file.path),
            };
            let (stream, from, to) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => match rustix::io::Errno::from_io_error(&error) {
                    Some(rustix::io::Errno::AGAIN) => return Ok(true),
                    Some(
                        rustix::io::Errno::MFILE
                        | rustix::io::Errno::NFILE
                        | rustix::io::Errno::NOMEM,
                    ) => {
                        self.shared.accepts_disabled.fetch_add(1, Relaxed);
                        let pause = (DESCRIPTORS_PAUSE_MS * 1000) as u64;
                        self.shared
                            .accepts_disabled_microseconds
                            .fetch_add(pause, Relaxed);
                        return Ok(false);
                    }
                    Some(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => continue,
                    // A fault of one connection is no matter of the others, but may come again at once.
                    _ => return Ok(false),
                },
            };
            self.shared.connections_total.fetch_add(1, Relaxed);
            if self.shared.connections.load(Relaxed) >= self.shared.settings.connections_max {
                self.shared.connections_rejected.fetch_add(1, Relaxed);
                let refusal = b"ERROR Too many open connections\r\n";
                let _ = rustix::io::write(&stream, refusal);
                continue;
            }
            self.shared.connections.fetch_add(1, Relaxed);
            *number += 1;
            let peer = Arc::new(peer(from, to, false, self.shared.now().seconds));
            lock(&self.shared.peers).insert(*number, Arc::clone(&peer));
            inboxes[*number as usize % inboxes.len()].send(Arrival {
                number: *number,
                stream,
                peer,
            });
        }
    }
}

/// Starts a thread that the server cannot do without.
fn start<T: Send + 'static>(
    name: String,
    shared: &Arc<Shared>,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let needed = Needed(Arc::clone(shared));
    let thread = std::thread::Builder::new().name(name);
    thread.spawn(move || work(&needed.0))
}

fn peer(address: String, listen_address: String, is_listener: bool, now: u32) -> Peer {
    Peer {
        address,
        listen_address,
        last_command: AtomicU32::new(now),
        is_sending_value: AtomicBool::new(false),
        is_listener,
    }
}

fn accept_tcp(listener: &TcpListener) -> io::Result<(Stream, String, String)> {
    let (stream, from) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    let to = stream.local_addr()?;
    Ok((
        Stream::Tcp(stream),
        format!("tcp:{from}"),
        format!("tcp:{to}"),
    ))
}

fn accept_unix(listener: &UnixListener, path: &Path) -> io::Result<(Stream, String, String)> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok((
        Stream::Unix(stream),
        "unix:".into(),
        format!("unix:{}", quoted(&path)),
    ))
}

fn address(listener: &Listener) -> String {
    match listener {
        Listener::Tcp(listener) => match listener.local_addr() {
            Ok(address) => format!("tcp:{address}"),
            Err(_) => "tcp".into(),
        },
        Listener::Unix(_, file) => format!("unix:{}", quoted(&file.path)),
    }
}

fn listen(settings: &Settings) -> io::Result<Vec<Listener>> {
    let named =
        |what: &str, error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"));
    let inherited = sockets::inherited()?;
    if !inherited.is_empty() {
        return inherited.into_iter().map(taken_over).collect();
    }
    match &settings.listen {
        Listen::Unix { path, mode } => {
            let listener = listen_unix(path, *mode, settings.backlog);
            let listener = listener.map_err(|error| named(&quoted(&path).to_string(), error))?;
            Ok(vec![Listener::Unix(listener, SocketFile::bound_at(path)?)])
        }
        Listen::Tcp { addresses, port } => {
            let one = |address: &String| {
                let listener = listen_tcp(address, *port, settings.backlog);
                listener
                    .map(Listener::Tcp)
                    .map_err(|error| named(address, error))
            };
            addresses.iter().map(one).collect()
        }
    }
}

/// Makes a listener of a socket that was handed over, as its maker set it up.
fn taken_over(socket: Inherited) -> io::Result<Listener> {
    Ok(match socket {
        Inherited::Unix(listener) => {
            listener.set_nonblocking(true)?;
            let file = SocketFile::of_others(&listener);
            Listener::Unix(listener, file)
        }
        Inherited::Tcp(listener) => {
            listener.set_nonblocking(true)?;
            Listener::Tcp(listener)
        }
    })
}

fn listen_tcp(address: &str, port: u16, backlog: i32) -> io::Result<TcpListener> {
    let host = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(address);
    let names_port = address.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    let listener = match names_port {
        true => TcpListener::bind(address)?,
        false => TcpListener::bind((host, port))?,
    };
    listener.set_nonblocking(true)?;
    // Asking again sets how many may wait, which the standard library does not.
    rustix::net::listen(&listener, backlog)?;
    Ok(listener)
}

fn listen_unix(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixListener> {
    // The socket of a server that is gone; a file of any other kind is somebody's.
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let socket: OwnedFd = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    // It gets its mode with its name, as memcached's does: some file systems refuse to change one.
    let umask = rustix::process::umask(Mode::from_raw_mode(!mode & 0o777));
    let bound = sockets::with_short_path(path, |path| {
        Ok(rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?)
    });
    rustix::process::umask(umask);
    bound?;
    // The folder may hand down an access list in place of that. Nobody can connect before it listens.
    if fs::symlink_metadata(path)?.permissions().mode() & 0o777 != mode & 0o777 {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    }
    rustix::net::listen(&socket, backlog)?;
    Ok(UnixListener::from(socket))
}

/// Reads the `user:password` lines of a file, as `user password`.
fn logins(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", quoted(&path)));
    let text = fs::read(path).map_err(named)?;
    let lines = text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    let login = |line: &[u8]| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some([&line[..colon], &line[colon + 1..]].join(&b' '))
    };
    let logins: Option<Vec<Vec<u8>>> = lines.map(login).collect();
    logins.filter(|logins| !logins.is_empty()).ok_or_else(|| {
        let reason = format!(
            "{}: lines of USER:PASSWORD are wanted, at least one",
            quoted(&path)
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

/// Does the store's due work and writes the metrics file, until the server stops.
fn maintain(shared: &Shared) -> io::Result<()> {
    let mut metrics_written = None;
    while shared.stop() == Stop::No {
        let now = shared.now();
        let is_more = shared.objects.maintain(MAINTAIN_ITEMS, now);
        let is_due =
            metrics_written.is_none_or(|second| now.seconds >= second + METRICS_EVERY_SECONDS);
        if is_due {
            metrics_written = Some(now.seconds);
            write_metrics(shared);
        }
        let pause = if is_more { 1 } else { MAINTAIN_EVERY_MS as u64 };
        std::thread::park_timeout(std::time::Duration::from_millis(pause));
    }
    // The counts since the last time are written as well.
    write_metrics(shared);
    Ok(())
}

/// Learns how values are best encoded, where nobody else wants the processor, and no more than a share of the time.
fn learn(shared: &Shared) -> io::Result<()> {
    process::lower_priority();
    while shared.stop() == Stop::No {
        let start = thread_cpu();
        if let Err(error) = shared.objects.tune(shared.now()) {
            tell(format_args!("breakeven serve: dictionaries: {error}"));
        }
        // The time that it took, and not the time that it waited: where others want the processor a training lasts for
        // seconds.
        let taken = Duration::from_secs_f64((thread_cpu().0 - start.0).max(0.0));
        let pause = taken * LEARN_PAUSE;
        std::thread::park_timeout(pause.clamp(LEARN_EVERY, LEARN_EVERY_MOST));
    }
    Ok(())
}

/// Writes the metrics file, if there is to be one.
fn write_metrics(shared: &Shared) {
    let Some(path) = &shared.settings.metrics_path else {
        return;
    };
    let text = stats::prometheus(shared, shared.now().seconds);
    if let Err(error) = beside::write(path, text.as_bytes(), process::PASSING) {
        tell(format_args!("breakeven serve: {error}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dictionaries_are_shared_by_no_two_logins() {
        let login = || b"user password".to_vec();
        let check = |wanted: bool, logins: Option<&[Vec<u8>]>, expected: bool| {
            let settings = Settings {
                has_dictionaries: wanted,
                ..Settings::default()
            };
            assert_eq!(has_dictionaries(&settings, logins), expected);
        };
        check(true, None, true);
        check(true, Some(&[login()]), true);
        check(true, Some(&[login(), login()]), false);
        check(false, None, false);
        check(false, Some(&[login()]), false);
    }
}
