//! The options' effects on the process itself: its user, its pages, its place in the background, its signals.

use std::fs;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use breakeven::storage::beside::{self, SmallFileOptions};
use rustix::process::{Gid, Resource, Rlimit, Uid};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

use crate::options::{Asked, read};
use crate::server::Server;
use crate::settings::Settings;
use crate::shared::tell;

/// Marks a process as the one in the background.
const IN_BACKGROUND: &str = "BREAKEVEN_SERVE_IN_BACKGROUND";

/// How the files about a running process are written. Nobody asks for them after a power cut, and nobody here waits for
/// their reader.
pub(crate) const PASSING: SmallFileOptions = SmallFileOptions {
    mode: beside::AS_NEW,
    is_synced: false,
    waits_for_reader: false,
};

/// Runs the server as a command: reads the options, serves until a signal. The arguments are those behind the
/// command's name; `prefix` are those before, with which the process would start itself again.
pub fn run(prefix: &[String], arguments: &[String]) -> ExitCode {
    let asked = match read(arguments) {
        Ok(asked) => asked,
        Err(reason) => {
            tell(format_args!("breakeven serve: {reason}"));
            return ExitCode::from(2);
        }
    };
    let (settings, warnings) = match asked {
        Asked::Serve { settings, warnings } => (*settings, warnings),
        Asked::Print(text) => {
            let mut output = io::stdout();
            let printed = output
                .write_all(text.as_bytes())
                .and_then(|()| output.flush());
            return match printed {
                Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                    tell(format_args!("breakeven serve: standard output: {error}"));
                    ExitCode::FAILURE
                }
                _ => ExitCode::SUCCESS,
            };
        }
    };
    for warning in warnings {
        tell(format_args!("breakeven serve: {warning}"));
    }
    let served = match settings.is_daemon && std::env::var_os(IN_BACKGROUND).is_none() {
        true => go_to_background(prefix, arguments),
        false => serve(settings),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tell(format_args!("breakeven serve: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Lets the calling thread run where no other thread wants the processor. It runs all the same if it may not.
pub(crate) fn lower_priority() {
    // On Linux a thread has a priority of its own, and no process means the thread that calls.
    let _ = rustix::process::setpriority_process(None, 19);
}

fn serve(settings: Settings) -> io::Result<()> {
    breakeven::arena::keep_heap_small();
    // Signals become bytes before there is anything that a signal could leave half done.
    let (signals, sender) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    // As memcached, it outlives the terminal that started it.
    signal_hook::flag::register(SIGHUP, std::sync::Arc::default())?;
    if std::env::var_os(IN_BACKGROUND).is_some() {
        rustix::process::setsid()?;
    }
    allow_descriptors(settings.connections_max);
    if settings.dumps_core {
        let limit = rustix::process::getrlimit(Resource::Core);
        rustix::process::setrlimit(
            Resource::Core,
            Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            },
        )?;
    }
    let (user, pid_path, locks_memory) = (
        settings.user.clone(),
        settings.pid_path.clone(),
        settings.locks_memory,
    );
    let server = Server::open(settings)?;
    if let Some(user) = user.filter(|_| rustix::process::geteuid().is_root()) {
        become_user(&user)?;
    }
    if locks_memory {
        rustix::mm::mlockall(
            rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE,
        )?;
    }
    let own = format!("{}\n", std::process::id());
    if let Some(path) = &pid_path {
        // As memcached, it serves all the same.
        if let Err(error) = beside::write(path, own.as_bytes(), PASSING) {
            tell(format_args!("breakeven serve: {error}"));
        }
    }
    for address in server.addresses() {
        tell(format_args!("breakeven serve: listening on {address}"));
    }
    // Of 8 MiB that an idle server has, most is code that only starting takes.
    breakeven::arena::give_back_program();
    let served = server.run(Some(&signals));
    if let Some(path) = pid_path.filter(|it| is_own(it, &own)) {
        let _ = fs::remove_file(path);
    }
    served
}

/// Returns whether a file is the one that has this process's number, and no device or file of another.
fn is_own(path: &Path, own: &str) -> bool {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    is_file && fs::read_to_string(path).is_ok_and(|found| found == own)
}

/// Starts this program again, apart from the terminal.
fn go_to_background(prefix: &[String], arguments: &[String]) -> io::Result<()> {
    Command::new(std::env::current_exe()?)
        .args(prefix)
        .args(arguments)
        .env(IN_BACKGROUND, "1")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    Ok(())
}

/// Lets the process have a descriptor for each connection, as far as it may.
fn allow_descriptors(connections: usize) {
    // Sockets that listen, epolls, wakers, standard streams and files in passing.
    let wanted = connections as u64 + 64;
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < wanted) {
        let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
        let limit = Rlimit {
            current: Some(current),
            maximum: limit.maximum,
        };
        if rustix::process::setrlimit(Resource::Nofile, limit).is_err() || current < wanted {
            tell(format_args!(
                "breakeven serve: only {current} descriptors are allowed, for {connections} connections"
            ));
        }
    }
}

/// Becomes a user by name, before there are other threads.
fn become_user(name: &str) -> io::Result<()> {
    let users = fs::read_to_string("/etc/passwd")?;
    let user = users
        .lines()
        .map(|line| line.split(':').collect::<Vec<_>>())
        .find(|user| user[0] == name);
    let number = |at: usize| {
        user.as_ref()
            .and_then(|user| user.get(at)?.parse::<u32>().ok())
    };
    let (Some(uid), Some(gid)) = (number(2), number(3)) else {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            format!("-u {name}: there is no such user"),
        ));
    };
    if uid == 0 {
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    rustix::thread::set_thread_groups(&[gid])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}
