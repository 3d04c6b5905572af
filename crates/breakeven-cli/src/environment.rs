//! The surroundings of the process, in one place: variables and signals.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ,
};
use signal_hook::flag;

/// Names a cache folder of one's own, for tests and for machines that share a home.
const CACHE_VARIABLE: &str = "BREAKEVEN_CACHE";

fn absolute(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(name)?);
    path.is_absolute().then_some(path)
}

/// The folder for data that must not be thrown away as a cache may be; `None` where there is no home.
#[cfg(feature = "vault")]
pub fn state_folder() -> Option<PathBuf> {
    let folder =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(folder?.join("breakeven"))
}

/// The folder for measurements of this machine; `None` where there is no home.
pub fn cache_folder() -> Option<PathBuf> {
    absolute(CACHE_VARIABLE)
        .or_else(|| Some(absolute("XDG_CACHE_HOME")?.join("breakeven")))
        .or_else(|| Some(absolute("HOME")?.join(".cache/breakeven")))
}

/// Returns the signals that end a program and leave it time to clean up.
///
/// A signal that was ignored from the start stays ignored. Such are a hang-up under `nohup`, and a terminal's signal to
/// a script that goes on in the background.
pub fn ending_signals() -> Vec<i32> {
    let mut signals = vec![
        SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2, SIGXCPU,
    ];
    signals.retain(|&signal| !is_ignored(signal));
    signals
}

/// Returns a flag that the ending signals raise; a second such signal ends the program.
pub fn stop_at_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in ending_signals() {
        flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| flag::register(signal, Arc::clone(&stop)))
            .context("catch signals")?;
    }
    Ok(stop)
}

/// Lets a write beyond the limit of a file's length (`ulimit -f`) fail, as one to a full disk does. Without this the
/// signal would end the program. The signal is caught and not ignored, because programs that are started from here
/// would inherit the latter.
pub fn outlive_file_limit() -> Result<()> {
    if !is_ignored(SIGXFSZ) {
        flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false))).context("catch a signal")?;
    }
    Ok(())
}

/// Lets the ends of programs that are started from here be waited for. The system forgets them where the signal is
/// ignored.
pub fn hear_children() -> Result<()> {
    if is_ignored(SIGCHLD) {
        flag::register(SIGCHLD, Arc::new(AtomicBool::new(false))).context("catch a signal")?;
    }
    Ok(())
}

/// Returns whether a signal was ignored when the program began.
pub fn is_ignored(signal: i32) -> bool {
    static MASK: OnceLock<Option<u64>> = OnceLock::new();
    let read = || u64::from_str_radix(&process_status("SigIgn:")?, 16).ok();
    let mask = MASK.get_or_init(read);
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Returns the value that Linux reports for this process under a name.
pub fn process_status(name: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().to_string())
}

/// Returns a flag that Ctrl-C raises.
pub fn stop_at_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    flag::register(SIGINT, Arc::clone(&stop)).context("catch Ctrl-C")?;
    Ok(stop)
}
