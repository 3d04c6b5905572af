//! The files of Debian's source packages that `tools/setup test` fetched: in the folder that `BREAKEVEN_SOURCES` names,
//! or in the user's cache.

use std::path::PathBuf;

/// Returns the folder with the kept parts of a source package, if it is there.
pub fn folder(package: &str) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let folder = variable("BREAKEVEN_SOURCES")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("breakeven/sources")))
        .or_else(|| Some(variable("HOME")?.join(".cache/breakeven/sources")))?
        .join(package);
    folder.is_dir().then_some(folder)
}
