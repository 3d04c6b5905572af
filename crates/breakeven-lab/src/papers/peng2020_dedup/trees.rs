//! The trees that are stored: parts of this machine's own files, and what repeats on purpose.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::data::{Kind, Random, SEED};

/// A kind of tree.
#[derive(Clone, Copy)]
pub struct Tree {
    pub name: &'static str,
    /// Makes one of about so many bytes in a folder that is there.
    pub make: fn(&Path, u64) -> Result<()>,
}

pub const TREES: [Tree; 6] = [
    Tree {
        name: "headers",
        make: |folder, bytes| copy_some(Path::new("/usr/include"), folder, bytes),
    },
    Tree {
        name: "documents",
        make: |folder, bytes| copy_some(Path::new("/usr/share/doc"), folder, bytes),
    },
    Tree {
        name: "programs cloned five times",
        make: clones,
    },
    Tree {
        name: "two archives",
        make: archives,
    },
    Tree {
        name: "two images",
        make: images,
    },
    Tree {
        name: "small files",
        make: small_files,
    },
];

const CLONES: u64 = 5;
const SMALL_BYTES: usize = 2048;
const SMALL_FOLDER: u64 = 200;
const BLOCK_BYTES: u64 = 4096;

/// Copies regular files in the order of their paths until that is enough.
fn copy_some(from: &Path, to: &Path, bytes: u64) -> Result<()> {
    let copied = copy_below(from, to, bytes)?;
    ensure!(copied > bytes / 4, "{} has {copied} bytes", from.display());
    Ok(())
}

fn copy_below(from: &Path, to: &Path, bytes: u64) -> Result<u64> {
    let mut entries = fs::read_dir(from)?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut copied = 0;
    for entry in entries {
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if copied >= bytes {
            break;
        }
        if kind.is_dir() {
            fs::create_dir_all(&target)?;
            copied += copy_below(&entry.path(), &target, bytes - copied)?;
        } else if kind.is_file() {
            // One that nobody but its owner may read is left out.
            copied += fs::copy(entry.path(), &target).unwrap_or(0);
        }
    }
    Ok(copied)
}

/// Programs in a folder, and copies of the folder.
fn clones(folder: &Path, bytes: u64) -> Result<()> {
    for clone in 0..CLONES {
        let folder = folder.join(format!("clone-{clone}"));
        fs::create_dir(&folder)?;
        copy_some(Path::new("/usr/bin"), &folder, bytes / CLONES)?;
    }
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("start {command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

/// An archive of headers, and one in which a file comes before all others.
fn archives(folder: &Path, bytes: u64) -> Result<()> {
    let work = tempfile::tempdir()?;
    fs::create_dir(work.path().join("headers"))?;
    copy_some(
        Path::new("/usr/include"),
        &work.path().join("headers"),
        bytes / 2,
    )?;
    fs::write(work.path().join("new"), Kind::Text.generate(100_001, SEED))?;
    let archive = |name: &str, words: &[&str]| {
        let mut command = Command::new("tar");
        command
            .arg("-C")
            .arg(work.path())
            .arg("--sort=name")
            .arg("-cf");
        run(command.arg(folder.join(name)).args(words))
    };
    archive("one.tar", &["headers"])?;
    archive("two.tar", &["new", "headers"])
}

/// The image of a file system, and the same after some of its blocks were written over.
fn images(folder: &Path, bytes: u64) -> Result<()> {
    let work = tempfile::tempdir()?;
    copy_some(Path::new("/usr/bin"), work.path(), bytes / 3)?;
    let (one, two) = (folder.join("one.img"), folder.join("two.img"));
    // A shorter one has no room for the first program.
    let blocks = (bytes / 2).max(16 << 20) / BLOCK_BYTES;
    let mut command = Command::new("mke2fs");
    command
        .args(["-q", "-t", "ext4", "-b", "4096", "-d"])
        .arg(work.path());
    run(command.arg(&one).arg(blocks.to_string()))?;
    let mut bytes = fs::read(&one)?;
    let mut random = Random::new(SEED);
    for changed in 0..blocks / 50 {
        let at = (random.below(blocks) * BLOCK_BYTES) as usize;
        let block = Kind::Rows.generate(BLOCK_BYTES as usize, SEED + changed);
        bytes[at..at + block.len()].copy_from_slice(&block);
    }
    fs::write(two, bytes)?;
    Ok(())
}

/// Files of 2 KiB, as letters are kept.
fn small_files(folder: &Path, bytes: u64) -> Result<()> {
    for file in 0..bytes / SMALL_BYTES as u64 {
        let folder = folder.join((file / SMALL_FOLDER).to_string());
        fs::create_dir_all(&folder)?;
        let content = Kind::Text.generate(SMALL_BYTES, SEED + file);
        fs::write(folder.join(format!("{file}.txt")), content)?;
    }
    Ok(())
}

/// Returns the bytes of all regular files below a folder, and how many there are.
pub fn measure(folder: &Path) -> Result<(u64, u64)> {
    let (mut bytes, mut files) = (0, 0);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let below = measure(&entry.path())?;
            (bytes, files) = (bytes + below.0, files + below.1);
        } else if kind.is_file() {
            (bytes, files) = (bytes + entry.metadata()?.len(), files + 1);
        }
    }
    Ok((bytes, files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tree_has_files_of_about_the_bytes_asked_for() {
        let asked = 2 << 20;
        for tree in TREES {
            let folder = tempfile::tempdir().unwrap();
            // A machine without documents or mke2fs says so.
            if let Err(error) = (tree.make)(folder.path(), asked) {
                println!("{}: {error:#}", tree.name);
                continue;
            }
            let (bytes, files) = measure(folder.path()).unwrap();
            println!("{}: {bytes} bytes in {files} files", tree.name);
            assert!(bytes > asked / 4 && files >= 2, "{}", tree.name);
        }
    }
}
