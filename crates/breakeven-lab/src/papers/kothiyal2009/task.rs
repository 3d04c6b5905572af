//! The four tasks of section 4.3, done by a child process and measured from outside.
//!
//! A writing task reads the raw file, compresses it or not, writes the result and syncs it. A reading task reads the
//! result and restores the raw bytes into nowhere. Nothing of either file is in the page cache when a task begins.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Stdio};

use anyhow::{Context, Result, bail, ensure};
use breakeven::meter::{EnergyMeter, Meter, Scope};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::contenders::Contender;
use crate::device::drop_caches;
use crate::peers;

/// The resources that one task used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Used {
    pub wall_seconds: f64,
    pub user_seconds: f64,
    pub system_seconds: f64,
    /// The idle machine's joules in that time, and the task's addition.
    pub passive_joules: f64,
    pub active_joules: f64,
}

/// How files are put out of the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cold {
    /// The kernel drops the whole page cache: only root may ask for it.
    DropCaches,
    /// The kernel gets the advice that these files are not needed.
    Advice,
}

impl Cold {
    /// Returns the surer way that is open.
    pub fn choose(quick: bool) -> Cold {
        // A quick run is a test beside others, whose caches are none of its business.
        match !quick && rustix::process::geteuid().is_root() && drop_caches().is_ok() {
            true => Cold::DropCaches,
            false => Cold::Advice,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Cold::DropCaches => "drop-caches",
            Cold::Advice => "fadvise",
        }
    }

    /// Puts synced files out of the page cache.
    pub fn chill<'a>(self, paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
        if self == Cold::DropCaches {
            drop_caches().context("drop the page cache")?;
        }
        for path in paths {
            let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
            fadvise(&file, 0, None, Advice::DontNeed).context("advise that a file is cold")?;
        }
        Ok(())
    }
}

/// Where the tasks of one race are done.
pub struct Bench<'a> {
    /// The raw file, written and synced.
    pub raw: PathBuf,
    /// The contenders' output.
    pub stored: PathBuf,
    pub cold: Cold,
    pub energy: &'a EnergyMeter,
}

impl Bench<'_> {
    /// Does the writing task and returns its usage, and the size of its output.
    pub fn write(&self, contender: &Contender) -> Result<(Used, u64)> {
        match fs::remove_file(&self.stored) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                bail!("remove {}: {error}", self.stored.display())
            }
            _ => {}
        }
        self.cold.chill([&self.raw])?;
        let words = contender.compress(&self.stored);
        warm(contender, &words);
        let (used, ()) = measure(self.energy, || {
            let output = match contender.names_its_target() {
                true => Stdio::null(),
                false => Stdio::from(File::create(&self.stored)?),
            };
            let input = File::open(&self.raw)?;
            finish(&words, spawn(&words, Stdio::from(input), output)?)?;
            File::open(&self.stored)?.sync_all()?;
            Ok(())
        })?;
        Ok((used, fs::metadata(&self.stored)?.len()))
    }

    /// Does the reading task and returns its usage. The bytes it restored are counted where the kernel reports them.
    pub fn read(&self, contender: &Contender) -> Result<(Used, Option<u64>)> {
        self.cold.chill([&self.stored])?;
        let words = contender.decompress(&self.stored);
        warm(contender, &words);
        measure(self.energy, || {
            let input = self.stored_input(contender)?;
            finish(&words, spawn(&words, input, Stdio::null())?)
        })
    }

    /// Restores the raw bytes once more, outside any clock, and compares every one of them.
    pub fn verify(&self, contender: &Contender) -> Result<()> {
        let words = contender.decompress(&self.stored);
        let mut child = spawn(&words, self.stored_input(contender)?, Stdio::piped())?;
        expect_bytes(&words, &mut child, &self.raw)?;
        finish(&words, child)?;
        Ok(())
    }

    fn stored_input(&self, contender: &Contender) -> Result<Stdio> {
        Ok(match contender.names_its_target() {
            true => Stdio::null(),
            false => Stdio::from(File::open(&self.stored)?),
        })
    }
}

/// Brings a program, which the page cache lost with all else, back into memory, by letting it work on nothing. The
/// thesis keeps its files on a dedicated disk (sections 4.1 and 4.3). A program of 30 MB takes longer to read than a
/// small file. It may complain. One that names its target would read that.
fn warm(contender: &Contender, words: &[String]) {
    if !contender.names_its_target()
        && let Ok(child) = spawn(words, Stdio::null(), Stdio::null())
    {
        let _ = finish(words, child);
    }
}

/// Measures this process and its children: the sync at the end is ours.
pub fn measure<T>(energy: &EnergyMeter, work: impl FnOnce() -> Result<T>) -> Result<(Used, T)> {
    let span = energy.start();
    let (own, children) = (Meter::start(Scope::Process), Meter::start(Scope::Children));
    let outcome = work()?;
    let (mut usage, own) = (children.stop(0), own.stop(0));
    usage.cpu = usage.cpu + own.cpu;
    let energy = span.stop(&usage, &[]);
    let used = Used {
        wall_seconds: usage.wall.0,
        user_seconds: usage.cpu.user.0,
        system_seconds: usage.cpu.system.0,
        passive_joules: energy.passive.0,
        active_joules: energy.active().0,
    };
    Ok((used, outcome))
}

/// Starts a program.
pub fn spawn(words: &[String], input: Stdio, output: Stdio) -> Result<Child> {
    peers::command(&words[0])
        .args(&words[1..])
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start '{}'", words.join(" ")))
}

/// Waits for a child and returns the bytes it wrote, where the kernel reports them.
pub fn finish(words: &[String], mut child: Child) -> Result<Option<u64>> {
    // A program that complains does so in a few lines; it is read to its end before the wait.
    let mut complaint = String::new();
    if let Some(mut pipe) = child.stderr.take() {
        let _ = pipe.read_to_string(&mut complaint);
    }
    // The bytes written by a process can be read as long as nobody has reaped it.
    let written = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .filter(|pid| {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(*pid), options).is_ok()
        })
        .and_then(|_| written_by(child.id()));
    let status = child.wait()?;
    let complaint = complaint.trim();
    ensure!(
        status.success(),
        "'{}': {status} {complaint}",
        words.join(" ")
    );
    Ok(written)
}

fn written_by(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("wchar: "))?;
    line.parse().ok()
}

/// Reads all that a child writes and compares it with a file.
pub fn expect_bytes(words: &[String], child: &mut Child, raw: &Path) -> Result<()> {
    let restored = child.stdout.take().context("a pipe")?;
    let same = same_bytes(restored, File::open(raw)?)?;
    ensure!(same, "'{}' restored other bytes", words.join(" "));
    Ok(())
}

fn same_bytes(mut one: ChildStdout, mut other: File) -> Result<bool> {
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let length = one.read(&mut left)?;
        if length == 0 {
            return Ok(other.read(&mut right)? == 0);
        }
        let expected = &mut right[..length];
        if other.read_exact(expected).is_err() || *expected != left[..length] {
            return Ok(false);
        }
    }
}
