//! The files of a command line, and the places of their results: folders, lists, and folders of output, as `zstd` has
//! them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use anyhow::{Context, Result, bail};
use breakeven::quoted::quoted;

use crate::options::{FileOptions, Usage};
use crate::standard;
use crate::zstd_options::TreeOptions;

/// Returns the named files, those of lists, and on request those in folders. Standard input where nothing was named.
pub fn paths(typed: &FileOptions) -> Result<Vec<PathBuf>> {
    let mut named = typed.paths.clone();
    for list in &typed.tree.filelist {
        let context = || quoted(&list).to_string();
        let text = fs::read(list).with_context(context)?;
        // A carriage return at the end belongs to the name, as for zstd.
        let lines = text.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        named.extend(lines.map(|line| PathBuf::from(OsStr::from_bytes(line))));
    }
    if named.is_empty() && typed.tree.filelist.is_empty() {
        return Ok(vec![PathBuf::from("-")]);
    }
    if !typed.tree.recursive {
        return Ok(named);
    }
    let mut found = Vec::new();
    for path in named {
        gather(path, typed, &mut found)?;
    }
    Ok(found)
}

/// Adds a file, or the files of a folder in the order of their names. Links in it are followed with `-f` alone, as by
/// zstd. A folder that several links lead to is entered once.
fn gather(path: PathBuf, typed: &FileOptions, found: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        found.push(path);
        return Ok(());
    }
    let pass_over = |path: &Path, kind: &str| {
        if !typed.quiet {
            standard::tell(&format!("{} is {kind}, passed over", quoted(&path)));
        }
    };
    let (mut folders, mut entered) = (vec![path], HashSet::new());
    while let Some(folder) = folders.pop() {
        let context = || quoted(&folder).to_string();
        let own = folder.metadata().with_context(context)?;
        if !entered.insert((own.dev(), own.ino())) {
            pass_over(&folder, "a folder that was gathered already");
            continue;
        }
        let entries = fs::read_dir(&folder).with_context(context)?;
        let paths: io::Result<Vec<PathBuf>> = entries.map(|it| Ok(it?.path())).collect();
        let mut paths = paths.with_context(context)?;
        paths.sort();
        let mut inner = Vec::new();
        for path in paths {
            match path.metadata() {
                _ if path.is_symlink() && !typed.force => pass_over(&path, "a symbolic link"),
                Ok(it) if it.is_dir() => inner.push(path),
                Ok(it) if it.is_file() => found.push(path),
                Ok(_) => pass_over(&path, "no file"),
                Err(_) if path.is_symlink() => pass_over(&path, "a link to nothing"),
                Err(error) => return Err(error).with_context(|| quoted(&path).to_string()),
            }
        }
        // The last that is put there is the first that is taken.
        folders.extend(inner.into_iter().rev());
    }
    Ok(())
}

/// Returns two paths with one last name, if there are any.
pub fn of_one_name(paths: &[PathBuf]) -> Option<[&PathBuf; 2]> {
    let mut seen = HashMap::new();
    paths.iter().find_map(|path| {
        let before = seen.insert(path.file_name()?, path);
        Some([before?, path])
    })
}

/// Returns the place of the output for a name: in the one folder of output, which is created.
pub fn placed(typed: &TreeOptions, path: PathBuf) -> Result<PathBuf> {
    let placed = if let Some(folder) = &typed.output_dir_flat {
        folder.join(path.file_name().unwrap_or_default())
    } else if let Some(folder) = &typed.output_dir_mirror {
        if path.components().any(|it| it == Component::ParentDir) {
            let name = quoted(&path);
            bail!(Usage(format!(
                "--output-dir-mirror: {name} leads out of the folder by '..'"
            )));
        }
        let below = path
            .components()
            .filter(|it| matches!(it, Component::Normal(_)));
        folder.join(below.collect::<PathBuf>())
    } else {
        return Ok(path);
    };
    let folder = placed.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| quoted(&folder).to_string())?;
    Ok(placed)
}
