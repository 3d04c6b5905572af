//! Files that list paths to add and patterns to leave out. Names are bytes of any encoding.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use breakeven::quoted::{quoted, quoted_bytes};
use breakeven::vault::PathPatterns;

use super::options::{AddOptions, ExcludeOptions};
use super::partial;
use crate::standard;

/// The paths that are added.
#[derive(Default)]
pub struct NamedPaths {
    pub paths: Vec<PathBuf>,
    /// The paths that do not exist, and why.
    pub problems: Vec<(PathBuf, String)>,
}

impl NamedPaths {
    fn take(&mut self, path: &Path, found: std::io::Result<PathBuf>) {
        match found {
            Ok(found) => self.paths.push(found),
            Err(error) => self.problems.push((path.to_path_buf(), error.to_string())),
        }
    }
}

/// Returns the paths from the command line, with their links resolved, and those from lists.
pub fn named(add: &AddOptions) -> Result<NamedPaths> {
    let mut named = NamedPaths::default();
    for path in &add.paths {
        named.take(path, fs::canonicalize(path));
    }
    for (files, end) in [(&add.files_from, b'\n'), (&add.files_from0, b'\0')] {
        for file in files {
            let names = read(file)?;
            let names = names.split(|byte| *byte == end);
            for name in names.filter(|name| !name.is_empty()) {
                let path = Path::new(OsStr::from_bytes(name));
                named.take(path, located(path));
            }
        }
    }
    if named.paths.is_empty() {
        partial(&named.problems);
        bail!("nothing that was named is there: no snapshot is made");
    }
    Ok(named)
}

/// Returns the path from the root of a name in a list. A named link stands for itself.
fn located(path: &Path) -> std::io::Result<PathBuf> {
    fs::symlink_metadata(path)?;
    let (Some(name), Some(folder)) = (path.file_name(), path.parent()) else {
        return fs::canonicalize(path);
    };
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    Ok(fs::canonicalize(folder)?.join(name))
}

/// Returns the patterns of the entries that are left out.
pub fn excludes(options: &ExcludeOptions) -> Result<PathPatterns> {
    let typed = options.exclude.iter();
    let mut patterns: Vec<Vec<u8>> = typed.map(|it| it.as_bytes().to_vec()).collect();
    for file in &options.exclude_file {
        for line in read(file)?.split(|byte| *byte == b'\n') {
            let line = line.trim_ascii();
            match line.first() {
                None | Some(b'#') => {}
                // Other tools take back an exclusion with it. As a pattern it would match nothing.
                Some(b'!') => bail!(
                    "{}: {}: a pattern takes nothing back here",
                    quoted(&file),
                    quoted_bytes(line)
                ),
                Some(_) => patterns.push(line.to_vec()),
            }
        }
    }
    Ok(PathPatterns::new(patterns))
}

fn read(file: &Path) -> Result<Vec<u8>> {
    if file != Path::new("-") {
        return fs::read(file).with_context(|| format!("read {}", quoted(&file)));
    }
    let mut bytes = Vec::new();
    let read = standard::input()?.read_to_end(&mut bytes);
    read.context(standard::INPUT)?;
    Ok(bytes)
}
