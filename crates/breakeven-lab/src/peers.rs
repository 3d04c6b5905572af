//! The one place that starts peers: programs of others, of today, out of a root of their own, which `tools/setup peers` makes in
//! the cache folder. Without that root they are the machine's own.
//!
//! A peer is entered by chroot in a mount namespace of its own. The machine's folders are mounted in the root there,
//! under their own names, but for those that hold programs and settings. So paths mean the same inside and outside, and
//! a peer or a laboratory that is killed leaves nothing mounted. That is done by the forked child itself, before it
//! becomes the peer: the process is the peer's from the moment that it can be seen. A user who is not root enters by a
//! user namespace. Where there are none, a few peers run by the root's own loader, and the others are the machine's.
//!
//! Programs that mount something for others (nbdfuse) are none of the peers: nobody else would see the mount.
//!
//! `unsafe` here: the child's steps between fork and exec, for which the standard library has no safe call. Also
//! leaving the namespaces of the parent, which is safe for a process of one thread.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, ensure};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::UnshareFlags;

/// A program that is started out of the root where that has it, and the option that prints its version.
pub struct PeerProgram {
    pub name: &'static str,
    pub version_word: &'static str,
}

const fn peer(name: &'static str, version_word: &'static str) -> PeerProgram {
    PeerProgram { name, version_word }
}

/// All peers. Programs that the laboratory only works with (tar, git, mkfs) are the machine's.
pub const PEERS: &[PeerProgram] = &[
    peer("restic", "version"),
    peer("borg", "--version"),
    peer("borg2", "--version"),
    peer("rustic", "--version"),
    peer("memcached", "-V"),
    peer("valkey-server", "--version"),
    peer("zstd", "--version"),
    peer("sqlite3", "--version"),
    peer("python3", "--version"),
    peer("nbdkit", "--version"),
    peer("nbdcopy", "--version"),
    peer("qemu-img", "--version"),
    peer("qemu-nbd", "--version"),
    peer("mariadbd", "--version"),
    peer("mariadb", "--version"),
    peer("fio", "--version"),
];

/// A script that comes with a peer and makes its data folder.
const MARIADB_INSTALL_DB: &str = "mariadb-install-db";
/// Peers that open no files of their own by absolute paths.
const LOADABLE: [&str; 4] = ["zstd", "memcached", "qemu-img", "sqlite3"];
/// Folders of the machine that the root does not show, since it has its own.
const OF_THE_ROOT: [&str; 8] = [
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc",
];
/// The machine's settings that peers want: the user `nobody`, and the addresses of names.
const SETTINGS: [&str; 4] = ["passwd", "group", "hosts", "resolv.conf"];
/// The longest path that Linux takes, its end included: `PATH_MAX`.
const PATH_BYTES: usize = 4096;

/// Returns the command that starts a program: a peer out of the root, if there is one; anything else is the machine's own.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let program = program.as_ref();
    of_root(program).unwrap_or_else(|| Command::new(program))
}

/// Returns the command that starts a peer out of the root, if there is one that has it.
pub fn of_root(program: impl AsRef<OsStr>) -> Option<Command> {
    let program = program.as_ref();
    let mut names = PEERS.iter().map(|peer| peer.name);
    let is_peer = program == MARIADB_INSTALL_DB || names.any(|name| program == name);
    here().filter(|_| is_peer)?.command(program)
}

/// Returns the words by which another program, which stays outside, starts one: `taskset` does.
pub fn words(program: &str) -> Result<Vec<OsString>> {
    if of_root(program).is_none() {
        return Ok(vec![program.into()]);
    }
    let laboratory = std::env::current_exe().context("find this program")?;
    Ok(vec![laboratory.into(), "peer".into(), program.into()])
}

/// Whether a program can be started by [`command`].
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    of_root(program).is_some()
        || std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Returns a program's version, in one line; nothing where it is not there.
pub fn version(program: &str, word: &str) -> Option<String> {
    let output = command(program)
        .arg(word)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().unwrap_or_default();
    let words: Vec<&str> = line.split_whitespace().collect();
    output.status.success().then(|| words.join(" "))
}

/// Says where peers come from.
pub fn origin() -> String {
    match here() {
        Some(root) => {
            let told = |name| fs::read_to_string(root.folder.with_file_name(name));
            let suite = told("contents").unwrap_or_default();
            let suite = suite.split(':').next().unwrap_or_default().to_string();
            let date = told("date").unwrap_or_default();
            let folder = root.folder.display();
            format!(
                "peers: {suite} of {}, in {folder}, {}",
                date.trim(),
                root.isolation.name()
            )
        }
        None => "peers: this machine's own; tools/setup peers gets those of today".to_string(),
    }
}

/// Lists all peers with their versions.
pub fn list() {
    println!("{}", origin());
    for PeerProgram { name, version_word } in PEERS {
        let version = version(name, version_word);
        let version = version.unwrap_or_else(|| "not there".to_string());
        println!("{name}: {version}");
    }
}

/// Becomes a program of the root, whichever that is, or one of the machine's.
///
/// # Errors
/// If it cannot be started.
pub fn become_peer(words: &[OsString]) -> Result<()> {
    let program = &words[0];
    let started = here().and_then(|root| root.command(program));
    let mut command = started.unwrap_or_else(|| {
        eprintln!("breakeven-lab: {} is this machine's own", program.display());
        Command::new(program)
    });
    let error = command.args(&words[1..]).exec();
    Err(error).with_context(|| format!("start {}", program.display()))
}

/// A folder with the programs of another system.
pub struct Root {
    folder: PathBuf,
    isolation: Isolation,
}

/// How a program of a root is started.
enum Isolation {
    Chroot(Arc<Chroot>),
    Loader(PathBuf),
}

impl Isolation {
    fn name(&self) -> &'static str {
        match self {
            Isolation::Chroot(chroot) if chroot.identity.is_empty() => "by chroot",
            Isolation::Chroot(_) => "by chroot in a user namespace",
            Isolation::Loader(_) => "by its loader",
        }
    }
}

/// Returns the root of this machine, and says once why one that is there is not used.
fn here() -> Option<&'static Root> {
    static ROOT: OnceLock<Option<Root>> = OnceLock::new();
    let find = || {
        let folder = cache_folder()?.join("peers/root");
        if !folder.is_dir() {
            return None;
        }
        let opened = Root::open(&folder);
        opened
            .inspect_err(|error| eprintln!("breakeven-lab: {error:#}"))
            .ok()
    };
    ROOT.get_or_init(find).as_ref()
}

/// Returns the folder of this project's cached files.
pub fn cache_folder() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = of("XDG_CACHE_HOME").map(PathBuf::from);
    let folder = folder.or_else(|| Some(PathBuf::from(of("HOME")?).join(".cache")))?;
    Some(folder.join("breakeven"))
}

impl Root {
    /// Opens a root that can be entered, or else one whose loader runs.
    ///
    /// # Errors
    /// If neither can be done.
    pub fn open(folder: &Path) -> Result<Root> {
        let folder = folder.canonicalize()?;
        let tried = Chroot::of(&folder).and_then(|chroot| {
            let root = Root {
                folder: folder.clone(),
                isolation: Isolation::Chroot(Arc::new(chroot)),
            };
            let mut tried = root.command("zstd".as_ref()).context("it has no zstd")?;
            let status = tried.arg("-V").stdout(Stdio::null()).status()?;
            ensure!(status.success(), "its zstd: {status}");
            Ok(root)
        });
        let refused = match tried {
            Ok(root) => return Ok(root),
            Err(error) => error,
        };
        let root = Root::loaded(&folder);
        let told = || format!("{} cannot be entered: {refused:#}", folder.display());
        if root.is_ok() {
            eprintln!(
                "breakeven-lab: {}; {} run by its loader",
                told(),
                LOADABLE.join(" ")
            );
        }
        root.with_context(told)
    }

    /// Makes a root of one of the machine's own programs and its libraries by `ldd`. Returns the machine's path of it,
    /// too.
    ///
    /// # Errors
    /// If the machine lacks either program, or a copy cannot be made or opened.
    pub fn of_machine(folder: &Path, program: &str) -> Result<(Root, PathBuf)> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
        let own = places.find(|place| place.is_file());
        let own = own.with_context(|| format!("this machine has no {program}"))?;
        let output = Command::new("ldd").arg(&own).output()?;
        ensure!(output.status.success(), "ldd {}", own.display());
        let told = String::from_utf8(output.stdout)?;
        let words = told.split_whitespace();
        for library in words.filter(|word| word.starts_with('/')) {
            let place = folder.join(library.trim_start_matches('/'));
            fs::create_dir_all(place.parent().context("a folder")?)?;
            fs::copy(library, place)?;
        }
        for name in ["usr/bin", "etc"] {
            fs::create_dir_all(folder.join(name))?;
        }
        fs::copy(&own, folder.join("usr/bin").join(program))?;
        Ok((Root::open(folder)?, own))
    }

    /// Opens a root whose loader is used.
    fn loaded(folder: &Path) -> Result<Root> {
        let name = format!("{}-linux-gnu", std::env::consts::ARCH);
        let libraries = folder.join("usr/lib").join(name);
        let entries = fs::read_dir(&libraries)?.filter_map(|entry| entry.ok());
        let is_loader = |name: &OsString| name.as_bytes().starts_with(b"ld-linux");
        let mut names = entries.map(|entry| entry.file_name());
        let loader = names.find(is_loader).context("it has no loader")?;
        Ok(Root {
            folder: folder.to_path_buf(),
            isolation: Isolation::Loader(libraries.join(loader)),
        })
    }

    /// Returns the command that starts a program of the root; nothing where it has none, or none that can run.
    pub fn command(&self, program: &OsStr) -> Option<Command> {
        if program == "rustic" {
            let built = self.folder.ancestors().nth(2)?.join("rustic/bin/rustic");
            return built.is_file().then(|| Command::new(built));
        }
        let places = ["usr/bin", "usr/sbin"].map(|folder| Path::new(folder).join(program));
        let place = places
            .into_iter()
            .find(|place| self.folder.join(place).is_file())?;
        match &self.isolation {
            Isolation::Chroot(chroot) => {
                let mut command = Command::new(Path::new("/").join(place));
                let chroot = Arc::clone(chroot);
                // SAFETY: `enter` makes system calls alone: it takes no lock and no memory.
                unsafe { command.pre_exec(move || chroot.enter()) };
                Some(command)
            }
            Isolation::Loader(loader) => {
                let is_loadable = LOADABLE.iter().any(|name| program == *name);
                let mut command = Command::new(loader);
                command.arg("--argv0").arg(program).arg("--library-path");
                command.arg(loader.parent()?).arg(self.folder.join(place));
                is_loadable.then_some(command)
            }
        }
    }
}

/// All that a forked child needs to enter a root.
struct Chroot {
    root: CString,
    /// Folders and files of the machine, and their places in the root.
    mounts: Vec<(CString, CString)>,
    /// Files to write, and their text, to be root in a user namespace; nothing for root itself.
    identity: Vec<(CString, String)>,
}

impl Chroot {
    /// Makes the places in the root where the machine's folders will be mounted: they stay, and stay empty.
    fn of(root: &Path) -> Result<Chroot> {
        let mut folders = Vec::new();
        for entry in fs::read_dir("/")? {
            let name = entry?.file_name();
            let from = Path::new("/").join(&name);
            if from.is_dir() && !OF_THE_ROOT.iter().any(|own| name == *own) {
                folders.push((from, root.join(name)));
            }
        }
        // The one that holds the root comes first, while nothing is mounted in it.
        folders.sort_by_key(|(from, _)| !root.starts_with(from));
        let mut mounts = Vec::new();
        for (from, to) in &folders {
            fs::create_dir_all(to).with_context(|| format!("make {}", to.display()))?;
            mounts.push((path_text(from)?, path_text(to)?));
        }
        for name in SETTINGS {
            let (from, to) = (Path::new("/etc").join(name), root.join("etc").join(name));
            if from.is_file() {
                if !to.exists() {
                    fs::write(&to, "").with_context(|| format!("make {}", to.display()))?;
                }
                mounts.push((path_text(&from)?, path_text(&to)?));
            }
        }
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        let identity = match user.is_root() {
            true => Vec::new(),
            false => vec![
                (c"/proc/self/setgroups".into(), "deny".to_string()),
                (c"/proc/self/uid_map".into(), format!("0 {user} 1")),
                (c"/proc/self/gid_map".into(), format!("0 {group} 1")),
            ],
        };
        Ok(Chroot {
            root: path_text(root)?,
            mounts,
            identity,
        })
    }

    /// Enters the root, in the same working folder as before.
    fn enter(&self) -> io::Result<()> {
        let mut flags = UnshareFlags::NEWNS;
        flags.set(UnshareFlags::NEWUSER, !self.identity.is_empty());
        // SAFETY: these flags leave the descriptors alone, and the child of a fork has one thread.
        unsafe { rustix::thread::unshare_unsafe(flags) }?;
        for (path, text) in &self.identity {
            let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(file, text.as_bytes())?;
        }
        // A mount made here is seen nowhere else; a mount made elsewhere comes here.
        mount(None, c"/", libc::MS_SLAVE | libc::MS_REC)?;
        for (from, to) in &self.mounts {
            mount(Some(from), to, libc::MS_BIND | libc::MS_REC)?;
        }
        let mut folder = [0; PATH_BYTES];
        rustix::fs::readlinkat_raw(CWD, c"/proc/self/cwd", &mut folder)?;
        let folder = CStr::from_bytes_until_nul(&folder);
        let folder = folder.map_err(|_| rustix::io::Errno::NAMETOOLONG)?;
        rustix::process::chroot(&self.root)?;
        Ok(rustix::process::chdir(folder)?)
    }
}

/// Mounts a folder or file elsewhere, or changes how mounts spread.
fn mount(from: Option<&CStr>, to: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    let from = from.map_or(std::ptr::null(), CStr::as_ptr);
    let (kind, data) = (std::ptr::null(), std::ptr::null());
    // SAFETY: both paths end and live; these flags want neither kind nor data.
    match unsafe { libc::mount(from, to.as_ptr(), kind, flags, data) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn path_text(path: &Path) -> Result<CString> {
    Ok(CString::new(path.as_os_str().to_os_string().into_vec())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether something is mounted below a folder.
    fn is_mounted(folder: &Path) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.contains(&format!(" {}/", folder.display()))
    }

    #[test]
    fn a_killed_peer_leaves_nothing_mounted() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().canonicalize().unwrap().join("root");
        let Ok((root, _)) = Root::of_machine(&folder, "zstd") else {
            eprintln!("skipped: this wants zstd and ldd; tools/setup test");
            return;
        };
        let mut command = root.command("zstd".as_ref()).unwrap();
        command
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let is_entered = matches!(root.isolation, Isolation::Chroot(_));
        let of_child = fs::read_link(format!("/proc/{}/root", child.id())).unwrap();
        assert_eq!(of_child == folder, is_entered);
        assert!(!is_mounted(&folder));
        // Its mounts are not below the folder that is removed meanwhile.
        let kept = scratch.path().join("kept");
        fs::write(&kept, "kept").unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"kept");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_mounted(&folder));
    }

    #[test]
    fn paths_mean_the_same_to_a_peer() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("root");
        let Ok((root, _)) = Root::of_machine(&folder, "zstd") else {
            eprintln!("skipped: this wants zstd and ldd; tools/setup test");
            return;
        };
        let work = scratch.path().join("work");
        fs::create_dir(&work).unwrap();
        fs::write(work.join("raw"), "raw").unwrap();
        let loaded = Root::loaded(&folder.canonicalize().unwrap());
        for root in [Some(root), loaded.ok()].into_iter().flatten() {
            // A name in the working folder, and a whole one.
            let mut command = root.command("zstd".as_ref()).unwrap();
            command
                .args(["-q", "-f", "raw", "-o"])
                .arg(work.join("made"));
            let status = command.current_dir(&work).status().unwrap();
            assert!(status.success(), "{}", root.isolation.name());
            fs::remove_file(work.join("made")).unwrap();
        }
    }

    #[test]
    fn what_is_no_peer_is_the_machines_own() {
        for program in ["tar", "/usr/bin/zstd", "mkfs.ext4"] {
            assert_eq!(command(program).get_program(), program);
            assert_eq!(words(program).unwrap(), [program]);
        }
        assert!(!is_installed("no such program"));
        assert_eq!(version("no such program", "--version"), None);
    }
}
