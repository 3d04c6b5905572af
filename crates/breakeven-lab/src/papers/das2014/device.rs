//! A file system of its own on a loop device, so that what the device is given is what one program wrote.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const BYTES: u64 = 1 << 30;
/// What `/sys/block/*/stat` counts in.
const SECTOR_BYTES: u64 = 512;

/// A mounted file system; dropping it unmounts it.
pub struct Device {
    point: PathBuf,
    /// Where the system counts what the device is given.
    counts: PathBuf,
}

impl Device {
    /// Returns whether this process may mount.
    pub fn is_possible() -> bool {
        let told = Command::new("id").arg("-u").output();
        let is_root = told.is_ok_and(|told| told.stdout == b"0\n");
        is_root && Path::new("/dev/loop-control").exists()
    }

    /// Makes an ext4 in a file of `folder` and mounts it there.
    ///
    /// # Errors
    /// If a program is missing or fails.
    pub fn mount(folder: &Path) -> Result<Device> {
        let (image, point) = (folder.join("image"), folder.join("mounted"));
        std::fs::File::create(&image)?.set_len(BYTES)?;
        std::fs::create_dir(&point)?;
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .args([&image, &point]))?;
        let mut device = Device {
            point,
            counts: PathBuf::new(),
        };
        let told = run(Command::new("findmnt")
            .args(["-n", "-o", "SOURCE"])
            .arg(&device.point))?;
        let name = told.trim().strip_prefix("/dev/");
        let name = name.with_context(|| format!("mounted on {told}"))?;
        device.counts = Path::new("/sys/block").join(name).join("stat");
        device.written_bytes()?;
        Ok(device)
    }

    /// Returns the folder that it is mounted at.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Has everything written that waits, and returns what the device was given until then.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn settled_bytes(&self) -> Result<u64> {
        run(Command::new("sync").arg("-f").arg(&self.point))?;
        self.written_bytes()
    }

    /// Returns the bytes that the device was given so far.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn written_bytes(&self) -> Result<u64> {
        let text = std::fs::read_to_string(&self.counts)?;
        let sectors = text.split_whitespace().nth(6);
        let sectors: Option<u64> = sectors.and_then(|sectors| sectors.parse().ok());
        let sectors = sectors.with_context(|| format!("the device tells {text}"))?;
        Ok(sectors * SECTOR_BYTES)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The loop device goes with it.
        let _ = run(Command::new("umount").arg(&self.point));
    }
}

fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("starting {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_counts_is_read_as_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let counts = folder.path().join("stat");
        let text = "  11  0  88  0  642  15  4821  7  0  9  9\n";
        std::fs::write(&counts, text).unwrap();
        let device = Device {
            point: folder.path().join("nowhere"),
            counts,
        };
        assert_eq!(device.written_bytes().unwrap(), 4821 * 512);
        std::fs::write(&device.counts, "1 2 3").unwrap();
        assert!(device.written_bytes().is_err());
    }
}
