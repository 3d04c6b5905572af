//! A file system on a loop device or in memory, which loses power or becomes read-only. It needs root, and `unsafe` for
//! one ioctl.
//!
//! ext4 and XFS know an ioctl that stops them without writing anything more. Unsynced data is gone after the next
//! mount, as after a power cut.
#![allow(unsafe_code)]

use std::fs;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `EXT4_IOC_SHUTDOWN` and `XFS_IOC_GOINGDOWN`, `_IOR('X', 125, __u32)`.
const SHUTDOWN: libc::c_ulong = 0x8004_587d;
/// Stop at once, without flushing the journal.
const SHUTDOWN_NO_LOG_FLUSH: u32 = 2;

/// Runs a program, which must succeed.
pub fn run(program: &str, arguments: &[&Path]) {
    let output = Command::new(program).args(arguments).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {message}");
}

/// A mounted file system that is unmounted at every end of the test.
pub struct Mounted {
    options: Vec<PathBuf>,
    folder: tempfile::TempDir,
}

impl Mounted {
    /// Mounts by the options of `mount`.
    pub fn new(options: &[&str]) -> Mounted {
        let options = options.iter().map(PathBuf::from).collect();
        let folder = tempfile::tempdir().unwrap();
        let mounted = Mounted { options, folder };
        mounted.mount();
        mounted
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn mount(&self) {
        let options = self.options.iter().map(PathBuf::as_path);
        run("mount", &options.chain([self.path()]).collect::<Vec<_>>());
    }

    /// Mounts it otherwise, say `ro`.
    #[allow(dead_code)]
    pub fn remount(&self, how: &str) {
        let options = format!("remount,{how}");
        run(
            "mount",
            &[Path::new("-o"), Path::new(&options), self.path()],
        );
    }

    /// Stops the file system dead, then mounts the contents of its device. Nobody may have a file of it open.
    #[allow(dead_code)]
    pub fn cut_power(&self) {
        self.stop();
        self.restart();
    }

    /// Stops the file system dead: a program with an open file gets errors.
    pub fn stop(&self) {
        let root = fs::File::open(self.path()).unwrap();
        let flags = SHUTDOWN_NO_LOG_FLUSH;
        // SAFETY: the descriptor is open, and the kernel only reads the u32, which outlives the call.
        let outcome = unsafe { libc::ioctl(root.as_raw_fd(), SHUTDOWN, &raw const flags) };
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    }

    /// Mounts the device of a stopped file system.
    pub fn restart(&self) {
        run("umount", &[self.path()]);
        self.mount();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let outcome = Command::new("umount").arg(self.path()).status();
        if !outcome.is_ok_and(|status| status.success()) && !std::thread::panicking() {
            panic!("{} stays mounted", self.path().display());
        }
    }
}
