//! Which files a command line means, and where what comes of them stands: folders, lists, and folders of output, as
//! `zstd` has them.

use breakeven::quoted::quoted;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::options::{FileOptions, Usage};
use crate::zstd_options::TreeOptions;

/// Returns the files that were named, those of lists, and where it was asked for those in folders; standard input where
/// nothing was named.
pub fn paths(typed: &FileOptions) -> Result<Vec<PathBuf>> {
    let mut named = typed.paths.clone();
    for list in &typed.tree.filelist {
        let context = || quoted(&list).to_string();
        let text = fs::read_to_string(list).with_context(context)?;
        named.extend(
            text.lines()
                .filter(|line| !line.is_empty())
                .map(PathBuf::from),
        );
    }
    if named.is_empty() && typed.tree.filelist.is_empty() {
        return Ok(vec![PathBuf::from("-")]);
    }
    if !typed.tree.recursive {
        return Ok(named);
    }
    let mut found = Vec::new();
    for path in named {
        gather(path, &mut found)?;
    }
    Ok(found)
}

/// Adds a file, or the files of a folder in the order of their names. Links in it are not followed.
fn gather(path: PathBuf, found: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        found.push(path);
        return Ok(());
    }
    let mut folders = vec![path];
    while let Some(folder) = folders.pop() {
        let context = || quoted(&folder).to_string();
        let entries = fs::read_dir(&folder).with_context(context)?;
        let mut paths = Vec::new();
        for entry in entries {
            let entry = entry.with_context(context)?;
            paths.push((entry.path(), entry.file_type().with_context(context)?));
        }
        paths.sort_by(|one, other| one.0.cmp(&other.0));
        let (inner, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|it| it.1.is_dir());
        found.extend(files.into_iter().filter(|it| it.1.is_file()).map(|it| it.0));
        // The last that is put there is the first that is taken.
        folders.extend(inner.into_iter().rev().map(|it| it.0));
    }
    Ok(())
}

/// Returns where the output of such a name stands: in the folder that all goes to, which is made.
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
