//! File systems whose files several machines may share. Whether their locks keep machines apart is not known here.
//!
//! The number that `statfs` gives becomes a name, after the lists of `statfs(2)` and of coreutils' `stat`. A program in
//! user space (FUSE) may be anything, from a local encryption to a mount by SSH. There one handle takes a lock and
//! another looks for it; a file system that does not know it is refused. Nothing shows whether other machines see the
//! lock.

use std::path::Path;

use crate::error::{Error, Result};
use crate::quoted::quoted;
use crate::storage::{LockKind, OpenOptions, Storage};

/// The byte for the trial lock, past all locks with a meaning.
const TRIED_BYTE: u64 = (1 << 60) + 1;

/// File systems of networks and clusters, and of hosts of virtual machines.
const NETWORKS: [(u32, &str); 17] = [
    (0x0000_6969, "NFS"),
    (0x0000_517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0000_564c, "NCP"),
    (0x00c3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0xaad7_aaea, "PanFS"),
    (0x786f_4256, "VirtualBox's shared folders"),
    (0xbacb_acbc, "VMware's shared folders"),
];
const FUSE: u32 = 0x6573_5546;

/// The file system under a folder, in terms of its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// Nobody else has these files.
    Local,
    /// Other machines may have the files; this is the system's name.
    Network(&'static str),
    /// A program of the user serves the files.
    Fuse,
}

impl FileSystem {
    /// Returns the file system of a number (`f_type` of `statfs`).
    pub fn of_magic(magic: u32) -> FileSystem {
        match NETWORKS.iter().find(|(known, _)| *known == magic) {
            Some((_, name)) => FileSystem::Network(name),
            None if magic == FUSE => FileSystem::Fuse,
            None => FileSystem::Local,
        }
    }

    /// Refuses a network file system.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with a sentence for people.
    pub fn check_network(self, path: &Path) -> Result<()> {
        match self {
            FileSystem::Network(name) => {
                Err(refused(path, &format!("a network file system ({name})")))
            }
            FileSystem::Local | FileSystem::Fuse => Ok(()),
        }
    }

    /// Refuses a file in user space whose locks cannot be seen.
    ///
    /// # Errors
    /// [`Error::Unsupported`], with a sentence for people; errors of opening the file.
    pub fn check_locks(self, storage: &dyn Storage, name: &str) -> Result<()> {
        if self != FileSystem::Fuse {
            return Ok(());
        }
        let one = storage.open(name, OpenOptions::read_only())?;
        let other = match storage.open(name, OpenOptions::default()) {
            Ok(other) => other,
            // A process that cannot write keeps nobody out, and a handle that only reads cannot test.
            Err(Error::Io { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let range = TRIED_BYTE..TRIED_BYTE + 1;
        let is_taken = one.try_lock(range.clone(), LockKind::Shared);
        let seen = other.first_conflict(range, LockKind::Exclusive);
        match is_taken.is_ok_and(|it| it) && seen.is_ok_and(|it| it.is_some()) {
            true => Ok(()),
            false => Err(refused(one.path(), "a file system in user space (FUSE)")),
        }
    }
}

fn refused(path: &Path, what: &str) -> Error {
    Error::Unsupported {
        what: format!(
            "{} on {what}, whose locks do not keep apart all who may use it; copy it to a disk of this machine",
            quoted(&path)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

    use super::*;
    use crate::storage::{MemoryStorage, RealStorage};

    #[test]
    fn numbers_of_the_manual_have_their_names() {
        let check = |magic, expected| assert_eq!(FileSystem::of_magic(magic), expected);
        // statfs(2): NFS_SUPER_MAGIC, SMB2_MAGIC_NUMBER, CIFS_MAGIC_NUMBER, V9FS_MAGIC.
        check(0x6969, FileSystem::Network("NFS"));
        check(0xfe53_4d42, FileSystem::Network("SMB"));
        check(0xff53_4d42, FileSystem::Network("CIFS"));
        check(0x0102_1997, FileSystem::Network("9p"));
        check(0x6573_5546, FileSystem::Fuse);
        // ext4, XFS, btrfs, tmpfs, overlayfs, ZFS.
        for local in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x794c_7630,
            0x2fc1_2fc1,
        ] {
            check(local, FileSystem::Local);
        }
        let mut numbers = NETWORKS.map(|(number, _)| number);
        numbers.sort_unstable();
        assert!(
            numbers.windows(2).all(|pair| pair[0] < pair[1]),
            "{numbers:x?}"
        );
    }

    #[test]
    fn what_is_of_a_network_is_refused_and_locks_that_work_are_taken() {
        let storage = MemoryStorage::new();
        let file = storage.open("app.db", OpenOptions::create_new()).unwrap();
        file.write_at(&[IoSlice::new(b"bytes")], 0).unwrap();
        FileSystem::Local.check_locks(&storage, "missing").unwrap();
        FileSystem::Fuse.check_locks(&storage, "app.db").unwrap();
        let path = Path::new("app.db");
        FileSystem::Fuse.check_network(path).unwrap();
        let refused = FileSystem::Network("NFS").check_network(path);
        let said = refused.unwrap_err().to_string();
        assert!(
            said.contains("app.db on a network file system (NFS)"),
            "{said}"
        );
    }

    #[test]
    fn a_folder_tells_what_it_lies_on() {
        let folder = tempfile::tempdir().unwrap();
        let system = RealStorage::open_folder(folder.path()).unwrap().system();
        println!("{:?}", system.unwrap());
    }
}
