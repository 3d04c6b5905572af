//! The system's own description of the place where a folder lies, without measuring it.
//!
//! File system, allocation unit and free space come from `statfs`. The device and its rotational flag come from sysfs,
//! where the file system lies on one block device. Nothing is written.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Error, Result};

/// Where the kernel lists block devices by number.
const BLOCK_DEVICES: &str = "/sys/dev/block";

/// Facts about the place where a folder lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Folder {
    /// The folder as it was named.
    pub path: PathBuf,
    /// The type of its file system, such as `ext4`, or its number in hexadecimal.
    pub file_system: String,
    /// Files take space in multiples of this.
    pub allocation_unit_bytes: u64,
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// The block device below, such as `nvme0n1`, where there is exactly one.
    pub device: Option<String>,
    /// Whether the kernel takes the device for a turning disk. Virtual disks often claim it falsely.
    pub is_rotational: Option<bool>,
}

impl Folder {
    /// Looks a folder up.
    ///
    /// # Errors
    /// `Io` if it is missing, may not be searched, is a loop of links or not a folder.
    pub fn look_up(path: &Path) -> Result<Folder> {
        Folder::look_up_in(path, Path::new(BLOCK_DEVICES))
    }

    fn look_up_in(path: &Path, block_devices: &Path) -> Result<Folder> {
        let failed = |error| Error::io("look up folder", path, error);
        let metadata = fs::metadata(path).map_err(failed)?;
        if !metadata.is_dir() {
            return Err(failed(std::io::ErrorKind::NotADirectory.into()));
        }
        let space = rustix::fs::statvfs(path).map_err(|error| failed(error.into()))?;
        let kind = rustix::fs::statfs(path).map_err(|error| failed(error.into()))?;
        let device = metadata.dev();
        let number = format!(
            "{}:{}",
            rustix::fs::major(device),
            rustix::fs::minor(device)
        );
        let entry = block_devices.join(number);
        Ok(Folder {
            path: path.to_path_buf(),
            // The field is signed on some systems and the numbers are of 32 bits.
            file_system: file_system_name(kind.f_type as u32),
            allocation_unit_bytes: space.f_frsize.max(1),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize.max(1)),
            device: device_name(&entry),
            is_rotational: is_rotational(&entry),
        })
    }
}

fn device_name(entry: &Path) -> Option<String> {
    let target = fs::canonicalize(entry).ok()?;
    Some(target.file_name()?.to_str()?.to_string())
}

/// Reads the flag of a whole device, or of the device that a partition belongs to.
fn is_rotational(entry: &Path) -> Option<bool> {
    let entry = fs::canonicalize(entry).ok()?;
    let flag = [entry.as_path(), entry.parent()?]
        .iter()
        .find_map(|device| fs::read_to_string(device.join("queue/rotational")).ok())?;
    match flag.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// Names a file system by its magic number (statfs(2), linux/magic.h).
fn file_system_name(magic: u32) -> String {
    let name = match magic {
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0xf2f5_2010 => "f2fs",
        0x2fc1_2fc1 => "zfs",
        0xca45_1a4e => "bcachefs",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x794c_7630 => "overlay",
        0x6573_5546 => "fuse",
        0x6969 => "nfs",
        0xff53_4d42 | 0xfe53_4d42 => "smb",
        0x0102_1997 => "9p",
        0x0bd0_0bd0 => "lustre",
        0x4d44 => "vfat",
        0x2011_bab0 => "exfat",
        0x7366_746e => "ntfs",
        0x5346_544e => "ntfs",
        0x7371_7368 => "squashfs",
        0x6265_6572 => "sysfs",
        0x9fa0 => "proc",
        _ => return format!("{magic:#x}"),
    };
    name.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folder_is_described() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = Folder::look_up(folder.path()).expect("it is there");
        assert!(found.allocation_unit_bytes.is_power_of_two(), "{found:?}");
        assert!(!found.file_system.is_empty(), "{found:?}");
        assert_eq!(file_system_name(0xef53), "ext4");
        assert_eq!(file_system_name(0x1234), "0x1234");
    }

    #[test]
    fn what_is_no_folder_is_refused_by_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let check = |name: &str, expected: &str| {
            let path = folder.path().join(name);
            let error = Folder::look_up(&path).expect_err(name).to_string();
            assert!(error.contains(expected) && error.contains(name), "{error}");
        };
        fs::write(folder.path().join("file"), "x").expect("a file");
        symlink("loop", folder.path().join("loop")).expect("a loop");
        symlink("nowhere", folder.path().join("dangling")).expect("a link");
        check("missing", "No such file");
        check("file", "not a directory");
        check("loop", "symbolic links");
        check("dangling", "No such file");
    }

    #[test]
    fn the_flag_of_disk_and_partition_is_found() {
        let tree = tempfile::tempdir().expect("a folder");
        let at = |name: &str| tree.path().join(name);
        let make = |disk: &str, flag: &str| {
            fs::create_dir_all(at(disk).join("queue")).expect("a disk");
            fs::write(at(disk).join("queue/rotational"), flag).expect("a flag");
        };
        make("devices/sda", "1\n");
        make("devices/nvme0n1", "0\n");
        make("devices/odd", "maybe\n");
        fs::create_dir_all(at("devices/sda/sda1")).expect("a partition");
        fs::create_dir_all(at("devices/bare")).expect("a device without a queue");
        let check = |target: &str, expected: Option<bool>, name: &str| {
            let entry = at("entry");
            symlink(at("devices").join(target), &entry).expect("a link");
            assert_eq!(is_rotational(&entry), expected, "{target}");
            assert_eq!(device_name(&entry).as_deref(), Some(name));
            fs::remove_file(entry).expect("the link goes");
        };
        check("sda", Some(true), "sda");
        check("sda/sda1", Some(true), "sda1");
        check("nvme0n1", Some(false), "nvme0n1");
        check("odd", None, "odd");
        check("bare", None, "bare");
        assert_eq!(is_rotational(&at("missing")), None);
        assert_eq!(device_name(&at("missing")), None);
    }
}
