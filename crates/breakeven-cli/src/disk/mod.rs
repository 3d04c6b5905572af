//! `breakeven disk`: compressed, deduplicated, cloneable disks for programs that know nothing of them.
//!
//! A disk is one file; a server shows its volumes to NBD clients. A store is open for writing once. So commands that
//! change the volumes of a served disk ask its server. The other commands work on a disk that nobody serves.

#[cfg(feature = "vault")]
mod backup;
mod control;
#[cfg(test)]
mod fuzz_test;
mod handshake;
mod image;
mod metrics;
#[cfg(test)]
mod proof_test;
mod request;
mod server;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use breakeven::Error;
use breakeven::blocks::BlocksOptions;
use breakeven::disk::{Disk, DiskOptions, Recall, Rest, Room};
use breakeven::quoted::quoted;
use breakeven::storage::{OpenOptions, RealStorage, Storage as _, followed};
use breakeven_cli::text;
use signal_hook::iterator::Signals;

use crate::environment::ending_signals;
use crate::options::{DiskCommand, DiskCopyOptions, DiskCreateOptions, DiskFile, DiskServeOptions};
use crate::standard::complain;
#[cfg(feature = "vault")]
pub use backup::Backup;
use control::{Change, Control};
pub use image::foretold;
use server::{Listener, Server};

/// The time between two looks at the metrics and the host's free space.
const UPKEEP: Duration = Duration::from_secs(10);
/// The time between two questions whether a disk rests.
const REST: Duration = Duration::from_secs(1);
/// The time between two steps of a disk that rests.
const STEP: Duration = Duration::from_millis(1);
/// How long a disk is made dense when its server ends: half the time that container engines wait before they kill.
const LAST: Duration = Duration::from_secs(5);
/// The threads of a connection, and of a long request, however many processors there are.
const THREADS_MAX: usize = 8;

/// Runs one of the commands.
pub fn run(command: &DiskCommand) -> Result<ExitCode> {
    match command {
        DiskCommand::Create(options) => create(options)?,
        DiskCommand::Serve(options) => serve(options)?,
        DiskCommand::Import(options) => image::import(options)?,
        DiskCommand::Export(options) => return image::export(options),
        DiskCommand::Info(file) => info(file)?,
        DiskCommand::Fsck(options) => return image::check(options),
        DiskCommand::Clone(names) => copy(names, false)?,
        DiskCommand::Snapshot(names) => copy(names, true)?,
        DiskCommand::Remove(options) => {
            let volume = &options.volume;
            change(&options.file, &Change::Remove { volume })?;
        }
        DiskCommand::Resize(options) => {
            let resize = Change::Resize {
                volume: &options.volume,
                size_bytes: options.size,
                is_discarded: options.discard,
            };
            change(&options.file, &resize)?;
        }
        DiskCommand::Compact(file) => compact(file)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A disk with the folder it lies in.
struct Opened {
    disk: Disk,
    folder: PathBuf,
    storage: RealStorage,
    name: String,
}

impl Opened {
    fn place(path: &Path) -> Result<(RealStorage, PathBuf, String)> {
        let path = &followed(path);
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let (storage, name) = RealStorage::of_file(path)?;
        Ok((storage, folder.to_path_buf(), name))
    }

    /// Makes a disk and fills it. A failed filling leaves no disk behind.
    fn make(
        path: &Path,
        options: DiskOptions,
        fill: impl FnOnce(&Disk, &Path) -> Result<()>,
    ) -> Result<()> {
        let (storage, folder, name) = Opened::place(path)?;
        let made = Disk::make(&storage, &name, options, |disk| fill(disk, &folder));
        made.with_context(|| format!("make {}", quoted(&path)))
    }

    fn open_with(path: &Path, options: DiskOptions, is_read_only: bool) -> Result<Opened> {
        let (storage, folder, name) = Opened::place(path)?;
        let disk = match is_read_only {
            true => Disk::open_read_only(&storage, &name, options),
            false => Disk::open(&storage, &name, options),
        };
        let disk = disk.map_err(|error| match error {
            Error::Invalid { .. } => anyhow::Error::new(error)
                .context("a disk is open once; end its server or the command that has it"),
            error => error.into(),
        })?;
        Ok(Opened {
            disk,
            folder,
            storage,
            name,
        })
    }

    fn open(file: &DiskFile) -> Result<Opened> {
        Opened::open_with(&file.path, DiskOptions::default(), false)
    }

    fn open_read_only(file: &DiskFile) -> Result<Opened> {
        Opened::open_with(&file.path, DiskOptions::default(), true)
    }

    fn stored_bytes(&self) -> Result<u64> {
        let file = self.storage.open(&self.name, OpenOptions::read_only())?;
        Ok(file.status()?.allocated_bytes)
    }
}

/// Lets writes of a disk be refused while the host still has `reserve_bytes`.
fn reserve(disk: &Disk, folder: &Path, reserve_bytes: u64) {
    let folder = folder.to_path_buf();
    disk.set_room(Room {
        reserve_bytes,
        left_bytes: Box::new(move || host_left_bytes(&folder)),
    });
}

/// Returns the free bytes of the file system around a disk, for the disk's owner.
fn host_left_bytes(folder: &Path) -> breakeven::Result<u64> {
    let status = rustix::fs::statvfs(folder)
        .map_err(|error| breakeven::Error::io("statvfs", folder, error.into()))?;
    Ok(status.f_bavail.saturating_mul(status.f_frsize))
}

fn create(options: &DiskCreateOptions) -> Result<()> {
    let disk_options = DiskOptions {
        block_bytes: options.block_size as u32,
        blocks: BlocksOptions {
            block_bytes_max: options.block_size as u32,
            ..BlocksOptions::default()
        },
        ..DiskOptions::default()
    };
    Opened::make(&options.file.path, disk_options, |disk, _| {
        Ok(disk.create_volume(&options.volume, options.size)?)
    })
}

/// Changes the volumes of a disk, or has its server change them.
fn change(file: &DiskFile, change: &Change<'_>) -> Result<()> {
    if !change.ask(&file.path)? {
        let disk = Opened::open(file)?.disk;
        change.make(&disk)?;
        disk.close()?;
    }
    Ok(())
}

fn copy(names: &DiskCopyOptions, is_read_only: bool) -> Result<()> {
    let (from, to) = (&names.from, &names.to);
    let copy = Change::Copy {
        from,
        to,
        is_read_only,
    };
    change(&names.file, &copy)
}

/// Writes all blocks again, densely. New blocks stand beside the old ones meanwhile, so a crash loses nothing.
fn compact(file: &DiskFile) -> Result<()> {
    let opened = Opened::open_with(&file.path, DiskOptions::compacting(), false)?;
    let before = opened.stored_bytes()?;
    opened.disk.compact()?;
    opened.disk.close()?;
    let after = opened.stored_bytes()?;
    let text = format!(
        "stored: {} ({before} bytes) became {} ({after} bytes)\n",
        text::memory_size(before),
        text::memory_size(after),
    );
    crate::standard::print(&text);
    Ok(())
}

fn info(file: &DiskFile) -> Result<()> {
    let opened = Opened::open_read_only(file)?;
    let mut out = String::new();
    for volume in opened.disk.volumes()? {
        let size_bytes = volume.size_bytes;
        let mapped_bytes = image::mapped_bytes(&opened.disk.volume(&volume.name)?)?;
        let kind = if volume.is_read_only {
            "snapshot"
        } else {
            "volume"
        };
        out.push_str(&format!(
            "{kind} {}: {} ({size_bytes} bytes) in blocks of {}, {} in use\n",
            volume.name,
            text::memory_size(size_bytes),
            text::memory_size(volume.block_bytes.into()),
            text::memory_size(mapped_bytes),
        ));
    }
    let stored_bytes = opened.stored_bytes()?;
    let left_bytes = host_left_bytes(&opened.folder)?;
    out.push_str(&format!(
        "stored: {} ({stored_bytes} bytes), host has left: {}\n",
        text::memory_size(stored_bytes),
        text::memory_size(left_bytes),
    ));
    add_remarks(&opened.disk, &mut out);
    crate::standard::print(&out);
    Ok(())
}

/// Reports the findings from the opening of a disk, unless it had a clean end.
fn add_remarks(disk: &Disk, out: &mut String) {
    for remark in disk.opened().remarks() {
        out.push_str(remark);
        out.push('\n');
    }
}

/// Listens at the given places, or on the sockets that were handed over in their place.
fn listen(options: &DiskServeOptions) -> Result<Vec<Listener>> {
    let inherited = Listener::inherited()?;
    if !inherited.is_empty() {
        ensure!(
            options.port.is_none() && options.socket.is_none(),
            "sockets were handed over: --socket and --port are whoever starts this to say"
        );
        return Ok(inherited);
    }
    Ok(vec![match (options.port, &options.socket) {
        (Some(port), _) => Listener::tcp(port)?,
        (None, Some(socket)) => Listener::unix(socket)?,
        (None, None) => Listener::unix(&beside(&options.file.path, ".socket"))?,
    }])
}

/// Returns the path of a file beside another one, whose name has an ending more.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(ending);
    beside.into()
}

/// Listens for commands, if the disk may be changed. Without that it is served all the same.
fn control(options: &DiskServeOptions) -> Option<Control> {
    if options.read_only {
        return None;
    }
    let control = Control::listen(&options.file.path);
    let refuse = |error| {
        complain(format_args!(
            "no clones while the disk is served: {error:#}"
        ))
    };
    control.map_err(refuse).ok()
}

/// The options of a served disk.
fn served(options: &DiskServeOptions, threads: usize) -> DiskOptions {
    DiskOptions {
        duplicates_bytes: options.duplicates as usize,
        threads,
        blocks: BlocksOptions {
            method: options.method,
            clean_method: options.method,
            ..DiskOptions::default().blocks
        },
        ..DiskOptions::default()
    }
}

fn serve(options: &DiskServeOptions) -> Result<()> {
    let path = &options.file.path;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.clamp(2, THREADS_MAX);
    let disk_options = served(options, threads);
    let opened = Opened::open_with(path, disk_options, options.read_only)?;
    for remark in opened.disk.opened().remarks() {
        complain(format_args!("{}: {remark}", quoted(&path)));
    }
    let volumes = opened.disk.volumes()?;
    let first = volumes.first().context("the disk has no volume")?;
    let default = options.volume.clone().unwrap_or_else(|| first.name.clone());
    ensure!(
        volumes.iter().any(|volume| volume.name == default),
        "no volume is called '{default}'"
    );
    if !options.read_only {
        reserve(&opened.disk, &opened.folder, options.reserve);
    }
    let recall = (!options.read_only).then(|| opened.disk.recall());
    let rest = (!options.read_only).then(|| opened.disk.rest());
    let listeners = listen(options)?;
    let control = control(options);
    let mut signals = Signals::new(ending_signals()).context("wait for signals")?;
    let connections = options.connections as usize;
    let disk = opened.disk.clone();
    let server = Server::new(disk, default, options.read_only, connections, threads);
    let server = Arc::new(server);
    let mut sockets = Sockets::default();
    for listener in &listeners {
        sockets.0.extend(listener.own_file().map(Path::to_path_buf));
    }
    if let Some(control) = control {
        sockets.0.push(control.path().to_path_buf());
        let disk = server.disk.clone();
        start("control", move || control.serve(&disk))?;
    }
    let watched = Arc::clone(&server);
    let (metrics, reserve) = (options.metrics.clone(), options.reserve);
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let mut was_short = false;
    let upkeep = start("upkeep", move || {
        keep_up_until(&stopped, || {
            keep_up(
                &opened,
                &watched,
                metrics.as_deref(),
                reserve,
                &mut was_short,
            )
        });
    })?;
    // The disk is served without these.
    if let Some(recall) = recall {
        start("recall", move || recall_all(recall)).map_or_else(refused, drop);
    }
    let resting = rest.and_then(|rest| Resting::start(rest).map_err(refused).ok());
    for listener in listeners {
        let address = listener.address()?;
        let listening = Arc::clone(&server);
        start("listener", move || listening.listen(&listener))?;
        crate::standard::greet(&format!("{address}\n"));
    }
    signals.forever().next();
    let ended = server.end(|| resting.map_or(Ok(()), Resting::finish));
    drop(stop);
    let _ = upkeep.join();
    drop(sockets);
    ended
}

/// Starts a thread of the server.
fn start<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    let started = std::thread::Builder::new().name(name.into()).spawn(work);
    started.with_context(|| format!("start the thread '{name}'"))
}

fn refused(error: anyhow::Error) {
    complain(format_args!("{error:#}"));
}

/// The socket files of a server, removed at its end.
#[derive(Default)]
struct Sockets(Vec<PathBuf>);

impl Drop for Sockets {
    fn drop(&mut self) {
        for socket in &self.0 {
            let _ = std::fs::remove_file(socket);
        }
    }
}

/// Notes some stored blocks, so that copies of them are found.
fn recall_all(mut recall: Recall) {
    let failed = loop {
        match recall.step() {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => break error,
        }
    };
    complain(format_args!(
        "blocks that are equal to stored ones may be stored again: {failed}"
    ));
}

/// Makes a disk dense while nobody writes, until the other end of `stopped` is gone.
fn rest_until(stopped: &Receiver<()>, mut rest: Rest) -> Rest {
    let started = Instant::now();
    let mut pause = REST;
    while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
        pause = match rest.step(started.elapsed()) {
            Ok(true) => STEP,
            Ok(false) => REST,
            Err(error) => {
                complain(format_args!("the disk is not made dense: {error}"));
                break;
            }
        };
    }
    rest
}

/// A thread that makes a disk dense while nobody writes.
struct Resting {
    wake: Sender<()>,
    thread: JoinHandle<Rest>,
}

impl Resting {
    fn start(rest: Rest) -> Result<Resting> {
        let (wake, woken) = std::sync::mpsc::channel();
        let thread = start("rest", move || rest_until(&woken, rest))?;
        Ok(Resting { wake, thread })
    }

    /// Makes the rest dense, as far as possible, when a server ends.
    fn finish(self) -> breakeven::Result<()> {
        drop(self.wake);
        let started = Instant::now();
        match self.thread.join() {
            Ok(mut rest) => rest.finish(&|| started.elapsed() < LAST),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

/// Does some work now and then, and once more when the other end of `stopped` is gone.
fn keep_up_until(stopped: &Receiver<()>, mut work: impl FnMut() -> Result<()>) {
    let mut is_over = false;
    while !is_over {
        let waited = stopped.recv_timeout(UPKEEP);
        is_over = !matches!(waited, Err(RecvTimeoutError::Timeout));
        if let Err(error) = work() {
            complain(format_args!("{error:#}"));
        }
    }
}

/// Gives back unneeded blocks, writes the metrics, and warns before writes are refused.
fn keep_up(
    opened: &Opened,
    server: &Server,
    metrics: Option<&Path>,
    reserve_bytes: u64,
    was_short: &mut bool,
) -> Result<()> {
    if !server.is_read_only {
        server.disk.free()?;
    }
    let left_bytes = host_left_bytes(&opened.folder)?;
    // The warning comes while twice the reserve is left.
    let is_short = !server.is_read_only && left_bytes < reserve_bytes.saturating_mul(2);
    if is_short && !*was_short {
        complain(format_args!(
            "the host has {} left; writes are refused below {}",
            text::memory_size(left_bytes),
            text::memory_size(reserve_bytes)
        ));
    }
    *was_short = is_short;
    if let Some(sentence) = server.metrics.tell_rejections() {
        complain(sentence);
    }
    if let Some(path) = metrics {
        let stored = (opened.stored_bytes()?, left_bytes);
        server.metrics.write(path, &server.disk, stored)?;
    }
    Ok(())
}
