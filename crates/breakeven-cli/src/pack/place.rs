//! Where bytes come from and where they go: files, pipes, and files that appear whole or not at all.
//!
//! A file is written under another name in its folder and moved to its own when it is complete; a
//! signal or an error removes it. What is no regular file (a device, a pipe) is written to directly.

use std::ffi::OsString;
use std::fs::{self, File, FileTimes, Metadata, OpenOptions};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// The file under its other name, while there is one.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Lets a signal that ends the program remove the unfinished file first.
///
/// A thread waits for it, so that it ends the program wherever it stands: in a read from a pipe, in
/// a write to a full one.
pub fn clean_up_at_signals() -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("catch signals")?;
    std::thread::Builder::new()
        .name("signals".to_string())
        .spawn(move || {
            for signal in signals.forever() {
                // Held until the end: no file is begun or completed any more.
                let unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(path) = &*unfinished {
                    let _ = fs::remove_file(path);
                }
                let _ = emulate_default_handler(signal);
            }
        })
        .context("start a thread for signals")?;
    Ok(())
}

/// What is read.
pub struct Source {
    pub file: File,
    /// The name for messages.
    pub name: String,
    /// Its metadata, where it is a regular file.
    pub metadata: Option<Metadata>,
}

impl Source {
    /// Opens a path, or standard input for `-`.
    pub fn open(path: &Path) -> Result<Source> {
        let (file, name) = if path == Path::new("-") {
            if io::stdin().is_terminal() {
                bail!("standard input is a terminal");
            }
            let descriptor = io::stdin().as_fd().try_clone_to_owned();
            (File::from(descriptor?), "standard input".to_string())
        } else {
            let name = path.display().to_string();
            (File::open(path).with_context(|| name.clone())?, name)
        };
        let metadata = file.metadata().with_context(|| name.clone())?;
        if metadata.is_dir() {
            bail!("{name} is a folder; use tar");
        }
        let metadata = Some(metadata).filter(Metadata::is_file);
        Ok(Source {
            file,
            name,
            metadata,
        })
    }
}

/// What is written.
pub struct Target {
    file: File,
    /// The path it will have, and the one it has until then; none where it is written directly.
    renamed: Option<(PathBuf, PathBuf)>,
    overwrites: bool,
}

impl Target {
    /// Takes standard output; a terminal only if the text is for people.
    pub fn standard_output(allows_terminal: bool) -> Result<Target> {
        if !allows_terminal && io::stdout().is_terminal() {
            bail!("standard output is a terminal; name a file with -o, or force it with -c");
        }
        let descriptor = io::stdout().as_fd().try_clone_to_owned();
        Ok(Target {
            file: File::from(descriptor?),
            renamed: None,
            overwrites: true,
        })
    }

    /// Begins a file that will stand under `path` once it is complete.
    pub fn create(path: &Path, overwrites: bool) -> Result<Target> {
        match fs::metadata(path) {
            Ok(metadata) if !metadata.is_file() => {
                let file = OpenOptions::new().write(true).open(path);
                return Ok(Target {
                    file: file.with_context(|| path.display().to_string())?,
                    renamed: None,
                    overwrites,
                });
            }
            Ok(_) if !overwrites => {
                bail!("{} already exists; overwrite it with -f", path.display());
            }
            _ => {}
        }
        // Through a symbolic link the file it points to is replaced, not the link.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let mut name = OsString::from(".");
        name.push(path.file_name().context("a file's name")?);
        name.push(format!(".breakeven-{}", std::process::id()));
        let other = path.with_file_name(name);
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&other)
            .with_context(|| format!("create {}", other.display()))?;
        *unfinished = Some(other.clone());
        Ok(Target {
            file,
            renamed: Some((path, other)),
            overwrites,
        })
    }

    /// Returns the file to write to.
    pub fn file(&self) -> Result<File> {
        self.file.try_clone().context("duplicate a descriptor")
    }

    /// Returns whether it is a file that appears when it is complete.
    pub fn is_renamed(&self) -> bool {
        self.renamed.is_some()
    }

    /// Gives the complete file the mode and times of its source and its own name; synced before, if
    /// the source is to be removed.
    pub fn complete(mut self, source: Option<&Metadata>, syncs: bool) -> Result<()> {
        let Some((path, other)) = self.renamed.take() else {
            return Ok(());
        };
        let outcome = self.settle(&path, &other, source, syncs);
        if outcome.is_err() {
            self.renamed = Some((path, other));
        }
        outcome
    }

    fn settle(
        &self,
        path: &Path,
        other: &Path,
        source: Option<&Metadata>,
        syncs: bool,
    ) -> Result<()> {
        let failed = || format!("complete {}", path.display());
        match source {
            Some(source) => {
                self.file
                    .set_permissions(source.permissions())
                    .with_context(failed)?;
                let mut times = FileTimes::new();
                if let Ok(time) = source.accessed() {
                    times = times.set_accessed(time);
                }
                if let Ok(time) = source.modified() {
                    times = times.set_modified(time);
                }
                self.file.set_times(times).with_context(failed)?;
            }
            None => give_default_mode(&self.file).with_context(failed)?,
        }
        if syncs {
            self.file.sync_all().with_context(failed)?;
        }
        let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        if self.overwrites {
            fs::rename(other, path).with_context(failed)?;
        } else {
            rename_if_free(other, path).with_context(failed)?;
        }
        *unfinished = None;
        drop(unfinished);
        if syncs {
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            let folder = File::open(folder.unwrap_or(Path::new("."))).with_context(failed)?;
            folder.sync_all().with_context(failed)?;
        }
        Ok(())
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if let Some((_, other)) = self.renamed.take() {
            let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = fs::remove_file(other);
            *unfinished = None;
        }
    }
}

/// Renames a file unless one of the new name came up meanwhile. Where there are no hard links, one
/// that comes up at the very moment is replaced.
fn rename_if_free(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(_) => fs::rename(from, to),
    }
}

/// Gives a file that was made for its owner alone the mode that a new file would have.
fn give_default_mode(file: &File) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    // Linux tells the mask; changing it to read it would be seen by other threads.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = (status.lines())
        .find_map(|line| line.strip_prefix("Umask:"))
        .and_then(|text| u32::from_str_radix(text.trim(), 8).ok())
        .unwrap_or(0o077);
    file.set_permissions(fs::Permissions::from_mode(0o666 & !mask))
}
