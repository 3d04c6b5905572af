//! What is read from the environment, in one place.

use std::path::PathBuf;

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
