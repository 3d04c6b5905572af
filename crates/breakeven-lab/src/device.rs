//! A file system of its own on a loop device, so that the device gets the writes of one program only. It can be as slow
//! as a test wants.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

const BYTES: u64 = 1 << 30;
/// The unit of `/sys/block/*/stat`.
const SECTOR_BYTES: u64 = 512;

/// Where the system holds devices to a pace, of reads and of writes.
const PACES: [&str; 2] = [
    "/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device",
    "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device",
];
/// Where it counts its reads.
const REQUEST_PACES: [&str; 1] = ["/sys/fs/cgroup/blkio/blkio.throttle.read_iops_device"];

/// Empties the system's cache of files, as far as it is written, which needs root.
///
/// # Errors
/// Those of asking for it.
pub fn drop_caches() -> std::io::Result<()> {
    std::fs::write("/proc/sys/vm/drop_caches", "1")
}

/// A mounted file system; dropping it unmounts it.
pub struct Device {
    point: PathBuf,
    /// The system's counters of the device's writes.
    counts: PathBuf,
    /// The number by which it is held to a pace, if it is.
    paced: Option<String>,
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
        Device::mount_as(folder, "ext4")
    }

    /// Makes a file system of a kind in a file of `folder` and mounts it there.
    ///
    /// # Errors
    /// As [`Device::mount`].
    pub fn mount_as(folder: &Path, kind: &str) -> Result<Device> {
        Device::mount_with(folder, kind, "loop")
    }

    /// As [`Device::mount_as`], by options of the mount, one of them that for a loop device.
    ///
    /// # Errors
    /// As [`Device::mount`].
    pub fn mount_with(folder: &Path, kind: &str, options: &str) -> Result<Device> {
        let (image, point) = (folder.join("image"), folder.join("mounted"));
        std::fs::File::create(&image)?.set_len(BYTES)?;
        std::fs::create_dir(&point)?;
        let force = if kind == "ext4" { "-F" } else { "-f" };
        run(Command::new(format!("mkfs.{kind}"))
            .args(["-q", force])
            .arg(&image))?;
        run(Command::new("mount")
            .args(["-o", options])
            .args([&image, &point]))?;
        let mut device = Device {
            point,
            counts: PathBuf::new(),
            paced: None,
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

    /// Returns whether [`Device::pace`] has its needs.
    pub fn is_pace_possible() -> bool {
        Device::is_possible() && PACES.iter().all(|path| Path::new(path).exists())
    }

    /// Holds its reads to so many bytes a second, and its writes.
    ///
    /// # Errors
    /// If the system does not do that.
    pub fn pace(&mut self, bytes_per_second: u64) -> Result<()> {
        self.set_pace(&PACES, bytes_per_second)
    }

    /// Holds it to so many reads a second.
    ///
    /// # Errors
    /// If the system does not do that.
    pub fn pace_requests(&mut self, per_second: u64) -> Result<()> {
        self.set_pace(&REQUEST_PACES, per_second)
    }

    fn set_pace(&mut self, paces: &[&str], pace: u64) -> Result<()> {
        let number = std::fs::read_to_string(self.counts.with_file_name("dev"))?;
        let number = number.trim().to_string();
        set_pace(&number, paces, pace)?;
        self.paced = Some(number);
        Ok(())
    }

    /// Returns the folder that it is mounted at.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// Returns the bytes of it that are in use, the file system's own among them.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn used_bytes(&self) -> Result<f64> {
        let told = rustix::fs::statvfs(&self.point)?;
        let used = told.f_blocks - told.f_bfree;
        Ok((used * told.f_frsize) as f64)
    }

    /// Has all waiting data written, and returns the bytes given to the device until then.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn settled_bytes(&self) -> Result<u64> {
        run(Command::new("sync").arg("-f").arg(&self.point))?;
        self.written_bytes()
    }

    /// Returns the bytes that the device was given so far.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn written_bytes(&self) -> Result<u64> {
        self.counted_bytes(6)
    }

    /// Returns the bytes that were read from the device so far.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn read_bytes(&self) -> Result<u64> {
        self.counted_bytes(2)
    }

    fn counted_bytes(&self, field: usize) -> Result<u64> {
        let text = std::fs::read_to_string(&self.counts)?;
        let sectors = text.split_whitespace().nth(field);
        let sectors: Option<u64> = sectors.and_then(|sectors| sectors.parse().ok());
        let sectors = sectors.with_context(|| format!("the device tells {text}"))?;
        Ok(sectors * SECTOR_BYTES)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // The pace would stay for the next holder of this number.
        if let Some(number) = &self.paced {
            let _ = set_pace(number, &PACES, 0);
            let _ = set_pace(number, &REQUEST_PACES, 0);
        }
        // The loop device goes with it.
        let _ = run(Command::new("umount").arg(&self.point));
    }
}

/// Holds a device to a pace, 0 to none.
fn set_pace(number: &str, paces: &[&str], pace: u64) -> Result<()> {
    let line = format!("{number} {pace}");
    paces.iter().try_for_each(|path| {
        std::fs::write(path, &line).with_context(|| format!("write '{line}' to {path}"))
    })
}

/// Runs a program to its end, which must be a good one; returns its output.
///
/// # Errors
/// If it does not start, or fails.
pub fn run(command: &mut Command) -> Result<String> {
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
            paced: None,
        };
        assert_eq!(device.read_bytes().unwrap(), 88 * 512);
        assert_eq!(device.written_bytes().unwrap(), 4821 * 512);
        std::fs::write(&device.counts, "1 2 3").unwrap();
        assert!(device.written_bytes().is_err());
    }
}
