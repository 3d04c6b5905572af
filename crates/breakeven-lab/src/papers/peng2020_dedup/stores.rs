//! The programs that store trees, each step a process of its own, with everything they keep in one folder.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde_json::Value;

use super::trees;
use crate::peers;
use crate::programs::{self, Used, own_program};

/// The program that hashes files.
pub const B3SUM: &str = "b3sum";
const PASSWORD: &str = "a password";

const PEERS: [(&str, &str); 2] = [("restic", "version"), ("borg", "--version")];

/// Returns which programs race, as one word of a cell's parameters.
pub fn peers() -> String {
    programs::peers(&PEERS)
}

/// Returns the same with b3sum among them.
pub fn peers_and_b3sum() -> String {
    programs::peers(&[PEERS[0], PEERS[1], (B3SUM, "--version")])
}

/// A program with its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// This project's, with one of its lists of prices.
    Vault(&'static str),
    /// With its compression.
    Restic(&'static str),
    Borg(&'static str),
}

impl Program {
    /// Returns its name in records.
    pub fn name(&self) -> String {
        match self {
            Program::Vault(prices) => format!("breakeven {prices}"),
            Program::Restic(compression) => format!("restic {compression}"),
            Program::Borg(compression) => format!("borg {}", compression.replace(',', ":")),
        }
    }
}

/// One store of one program.
pub struct Store {
    program: Program,
    folder: PathBuf,
}

impl Store {
    /// Makes a new one in a folder of its own, which must not be there.
    pub fn create(program: Program, folder: PathBuf) -> Result<Store> {
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("password"), PASSWORD)?;
        let store = Store { program, folder };
        programs::run(&mut match program {
            Program::Vault(_) => store.command(&["init"])?,
            Program::Restic(_) => store.command(&["init"])?,
            Program::Borg(_) => {
                let mut command = store.command(&["init", "-e", "repokey-blake2"])?;
                command.arg(store.kept());
                command
            }
        })?;
        Ok(store)
    }

    fn kept(&self) -> PathBuf {
        self.folder.join("kept")
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = match self.program {
            Program::Vault(_) => {
                let mut command = Command::new(own_program()?);
                command.arg("vault").arg("-r").arg(self.kept());
                command.arg("-p").arg(self.folder.join("password"));
                command.env("XDG_STATE_HOME", &self.folder);
                command
            }
            Program::Restic(compression) => {
                let mut command = peers::command("restic");
                command.arg("-q").arg("-r").arg(self.kept());
                command.args(["--compression", compression, "--cache-dir"]);
                command.arg(self.folder.join("cache"));
                command.env("RESTIC_PASSWORD", PASSWORD);
                command
            }
            Program::Borg(_) => {
                let mut command = peers::command("borg");
                command.env("BORG_PASSPHRASE", PASSWORD);
                command.env("BORG_BASE_DIR", &self.folder);
                command
            }
        };
        command.args(words).stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(command)
    }

    /// Adds a tree under a name that was not used before.
    pub fn add(&self, tree: &Path, name: &str) -> Result<Used> {
        let mut command = match self.program {
            Program::Vault(prices) => self.command(&["add", "--prices", prices])?,
            Program::Restic(_) => self.command(&["backup"])?,
            Program::Borg(compression) => {
                let mut command = self.command(&["create", "-C", compression])?;
                command.arg(self.archive(name));
                command
            }
        };
        programs::run(command.arg(tree))
    }

    /// Has a vault add a tree as another host's, for which it reads all of it.
    pub fn add_as(&self, tree: &Path, host: &str) -> Result<Used> {
        programs::run(self.command(&["add", "--host", host])?.arg(tree))
    }

    /// Has a vault add the first volume of a disk.
    pub fn add_disk(&self, disk: &Path) -> Result<Used> {
        programs::run(self.command(&["add", "--disk"])?.arg(disk))
    }

    /// Returns the command that mounts the newest snapshot of a vault at a folder.
    pub fn mount(&self, point: &Path) -> Result<Command> {
        let mut command = self.command(&["mount"])?;
        command.arg(point).arg("latest");
        Ok(command)
    }

    /// Reads all that is stored and checks it.
    pub fn verify(&self) -> Result<Used> {
        programs::run(&mut match self.program {
            Program::Vault(_) => self.command(&["verify"])?,
            Program::Restic(_) => self.command(&["check", "--read-data"])?,
            Program::Borg(_) => {
                let mut command = self.command(&["check", "--verify-data"])?;
                command.arg(self.kept());
                command
            }
        })
    }

    /// Has a vault forget snapshots by their numbers.
    pub fn forget(&self, numbers: &[String]) -> Result<Used> {
        programs::run(self.command(&["forget"])?.args(numbers))
    }

    /// Has a vault collect, and returns its report.
    pub fn collect(&self) -> Result<(Used, Value)> {
        let told = self.folder.join("told");
        let mut command = self.command(&["gc", "--grace", "0", "--json"])?;
        let used = programs::run(command.stdout(File::create(&told)?))?;
        Ok((used, serde_json::from_str(&std::fs::read_to_string(told)?)?))
    }

    fn archive(&self, name: &str) -> OsString {
        let mut archive = self.kept().into_os_string();
        archive.push("::");
        archive.push(name);
        archive
    }

    /// Restores the tree added under a name, and checks that it is the same.
    pub fn restore(&self, tree: &Path, name: &str) -> Result<Used> {
        let target = self.folder.join("restored");
        std::fs::create_dir(&target)?;
        let mut command = match self.program {
            Program::Vault(_) | Program::Restic(_) => {
                let mut command = self.command(&["restore", "latest", "--target"])?;
                command.arg(&target);
                command
            }
            Program::Borg(_) => {
                let mut command = self.command(&["extract"])?;
                command.arg(self.archive(name)).current_dir(&target);
                command
            }
        };
        let used = programs::run(&mut command)?;
        let mut same = Command::new("diff");
        same.args(["-r", "-q", "--no-dereference"]).arg(tree);
        same.arg(target.join(tree.strip_prefix("/")?));
        let status = same.status()?;
        ensure!(status.success(), "{:?} restored other files", self.program);
        std::fs::remove_dir_all(&target)?;
        Ok(used)
    }

    /// Returns the store's bytes, without the files that the program keeps beside it to be faster.
    pub fn stored_bytes(&self) -> Result<u64> {
        Ok(trees::measure(&self.kept())?.0)
    }
}

/// Has b3sum read and hash the files of a tree, by all processors.
pub fn b3sum(tree: &Path) -> Result<Used> {
    let mut command = Command::new(B3SUM);
    command.args(trees::files(tree)?).stdin(Stdio::null());
    programs::run(command.stdout(Stdio::null()))
}

impl Drop for Store {
    fn drop(&mut self) {
        // Leftovers lie in a folder that is removed at the end.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
