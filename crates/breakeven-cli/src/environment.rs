//! What comes from around the process, in one place: variables and signals.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};

/// Names a cache folder of one's own, for tests and for machines that share a home.
const CACHE_VARIABLE: &str = "BREAKEVEN_CACHE";

/// The folder for what is learned about this machine; `None` where there is no home.
pub fn cache_folder() -> Option<PathBuf> {
    let absolute = |name: &str| {
        let path = PathBuf::from(std::env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    absolute(CACHE_VARIABLE)
        .or_else(|| Some(absolute("XDG_CACHE_HOME")?.join("breakeven")))
        .or_else(|| Some(absolute("HOME")?.join(".cache/breakeven")))
}

/// Returns a flag that Ctrl-C raises.
pub fn stop_at_interrupt() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGINT, Arc::clone(&stop))
        .context("catch Ctrl-C")?;
    Ok(stop)
}
