//! A file system on a served export: the export as a file by nbdfuse, a loop device over it, an ext4 on that. This kernel
//! may have no driver for network block devices, and both servers are met by the same way.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::servers::Server;
use crate::device::run;

/// The export has to be a file by then.
const START: Duration = Duration::from_secs(20);

/// A mounted file system; dropping it unmounts it.
pub struct Mounted {
    fuse: Child,
    file: PathBuf,
    /// Empty until there is one.
    device: String,
    point: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    /// Makes an ext4 on an export and mounts it in a folder.
    ///
    /// # Errors
    /// If a program is missing or fails.
    pub fn make(folder: &Path, server: &Server) -> Result<Mounted> {
        let (file, ready) = (folder.join("export"), folder.join("export.ready"));
        fs::File::create(&file)?;
        let fuse = Command::new("nbdfuse")
            // Written when the file is there.
            .arg("--pidfile")
            .args([&ready, &file])
            .arg(&server.address)
            .stdin(Stdio::null())
            .spawn()
            .context("start nbdfuse")?;
        let mut mounted = Mounted {
            fuse,
            file,
            device: String::new(),
            point: folder.join("mounted"),
            is_mounted: false,
        };
        let begun = Instant::now();
        while fs::metadata(&ready).map_or(0, |found| found.len()) == 0 {
            ensure!(begun.elapsed() < START, "nbdfuse shows nothing");
            std::thread::sleep(Duration::from_millis(10));
        }
        let device = run(Command::new("losetup")
            .args(["--find", "--show"])
            .arg(&mounted.file))?;
        mounted.device = device.trim().to_string();
        run(Command::new("mkfs.ext4").args(["-q", &mounted.device]))?;
        fs::create_dir(&mounted.point)?;
        run(Command::new("mount")
            .args(["-o", "discard", &mounted.device])
            .arg(&mounted.point))?;
        mounted.is_mounted = true;
        Ok(mounted)
    }

    /// Returns the folder that it is mounted at.
    pub fn point(&self) -> &Path {
        &self.point
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An absent file system needs no unmount.
        if self.is_mounted {
            let _ = run(Command::new("umount").arg(&self.point));
        }
        if !self.device.is_empty() {
            let _ = run(Command::new("losetup").args(["--detach", &self.device]));
        }
        let _ = run(Command::new("fusermount3").arg("-u").arg(&self.file));
        let _ = self.fuse.wait();
    }
}
