//! The trees that are stored: parts of this machine's own files, and repeats on purpose.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::data::{Kind, Random, SEED};
use crate::peers;

/// A kind of tree.
#[derive(Clone, Copy)]
pub struct Tree {
    pub name: &'static str,
    /// Makes one of about so many bytes in a folder that is there.
    pub make: fn(&Path, u64) -> Result<()>,
}

const ALL: [Tree; 8] = [
    Tree {
        name: "game data",
        make: |folder, bytes| copy_some(Path::new("/usr/share/games"), folder, bytes).map(drop),
    },
    Tree {
        name: "versions of sources",
        make: versions,
    },
    Tree {
        name: "headers",
        make: |folder, bytes| copy_some(Path::new("/usr/include"), folder, bytes).map(drop),
    },
    Tree {
        name: "documents",
        make: |folder, bytes| copy_some(Path::new("/usr/share/doc"), folder, bytes).map(drop),
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

/// Games of different engines, each in two versions, as `tools/setup games` unpacks them.
pub const GAMES: [Tree; 4] = [
    Tree {
        name: "freedoom",
        make: |folder, _| game("freedoom", folder),
    },
    Tree {
        name: "extremetuxracer",
        make: |folder, _| game("extremetuxracer-data", folder),
    },
    Tree {
        name: "xmoto",
        make: |folder, _| game("xmoto-data", folder),
    },
    Tree {
        name: "colobot",
        make: |folder, _| game("colobot-common", folder),
    },
];

const SUITES: [&str; 2] = ["bookworm", "forky"];

/// Returns the folder of a version of all games.
fn games_of(suite: &str) -> Option<PathBuf> {
    Some(peers::cache_folder()?.join("games").join(suite))
}

/// Returns the versions of the games, as one word; `None` unless all are there.
pub fn game_versions() -> Option<String> {
    let mut versions = Vec::new();
    for suite in SUITES {
        for entry in fs::read_dir(games_of(suite)?).ok()? {
            let path = entry.ok()?.path();
            if path.extension().is_some_and(|it| it == "archive") {
                versions.push(fs::read_to_string(path).ok()?.trim().to_string());
            }
        }
    }
    versions.sort();
    (versions.len() == SUITES.len() * GAMES.len()).then(|| versions.join("+"))
}

fn game(package: &str, folder: &Path) -> Result<()> {
    for suite in SUITES {
        let mut command = Command::new("cp");
        let from = games_of(suite).context("no cache folder")?.join(package);
        run(command.arg("-a").arg(from).arg(folder.join(suite)))?;
    }
    Ok(())
}

/// Returns the trees of the deck's comparison and of the programs' race. A quick run has files of every machine.
pub fn all(is_quick: bool) -> &'static [Tree] {
    match is_quick {
        true => &ALL[2..4],
        false => &ALL,
    }
}

const CLONES: u64 = 5;
const VERSIONS: u64 = 8;
const SMALL_BYTES: usize = 2048;
const SMALL_FOLDER: u64 = 200;
const BLOCK_BYTES: u64 = 4096;

/// Copies regular files in the order of their paths until that is enough.
pub fn copy_some(from: &Path, to: &Path, bytes: u64) -> Result<u64> {
    let copied = copy_below(from, to, bytes)?;
    ensure!(copied > bytes / 4, "{} has {copied} bytes", from.display());
    Ok(copied)
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

/// Versions of this project's own sources, as many changes apart as make about the bytes asked for.
fn versions(folder: &Path, bytes: u64) -> Result<()> {
    const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let history = Command::new("git")
        .args(["-C", SOURCES, "rev-list", "--first-parent", "HEAD"])
        .output()?;
    let history = String::from_utf8(history.stdout)?;
    let commits: Vec<&str> = history.lines().collect();
    ensure!(!commits.is_empty(), "sources without a history");
    let step = (commits.len() / VERSIONS as usize).max(1);
    let work = tempfile::tempdir()?;
    let archive = work.path().join("sources.tar");
    for (version, commit) in commits
        .iter()
        .step_by(step)
        .take(VERSIONS as usize)
        .enumerate()
    {
        let mut command = Command::new("git");
        command.args(["-C", SOURCES, "archive", "-o"]);
        run(command.arg(&archive).args([commit, "."]))?;
        let whole = work.path().join(commit);
        fs::create_dir(&whole)?;
        let mut command = Command::new("tar");
        run(command.arg("-C").arg(&whole).arg("-xf").arg(&archive))?;
        let target = folder.join(version.to_string());
        fs::create_dir(&target)?;
        copy_below(&whole, &target, bytes / VERSIONS)?;
    }
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
    let copied = copy_some(Path::new("/usr/bin"), work.path(), bytes / 3)?;
    let (one, two) = (folder.join("one.img"), folder.join("two.img"));
    // Beside the files lie a journal of 4 MiB, inodes, and the slack of rounding to blocks. A shorter one than the
    // other limit has no room for a large program.
    let room = (copied + copied / 4 + (8 << 20)).max(16 << 20);
    let blocks = (bytes / 2).max(room) / BLOCK_BYTES;
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

/// A folder in memory, where there is one.
pub fn scratch() -> Result<TempDir> {
    let memory = Path::new("/dev/shm");
    let mut builder = tempfile::Builder::new();
    builder.prefix("breakeven-trees");
    Ok(match memory.is_dir() {
        true => builder.tempdir_in(memory)?,
        false => builder.tempdir()?,
    })
}

/// Returns all regular files below a folder.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            files.extend(self::files(&entry.path())?);
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// Returns the bytes of all regular files below a folder, and how many there are.
pub fn measure(folder: &Path) -> Result<(u64, u64)> {
    let files = files(folder)?;
    let mut bytes = 0;
    for file in &files {
        bytes += fs::metadata(file)?.len();
    }
    Ok((bytes, files.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tree_has_files_of_about_the_bytes_asked_for() {
        let asked = 2 << 20;
        for tree in ALL {
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
