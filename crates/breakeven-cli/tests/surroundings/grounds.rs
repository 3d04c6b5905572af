//! The matrix on other file systems, as another user and in namespaces: as root, and whole with `BREAKEVEN_FULL=1`.

use super::matrix::{Cell, Flaw, Ground, Owes, PLAIN, Stage, Surrounding, cells, try_all};
use Owes::{All, AllOrSentence};

const fn on(prepare: &'static str) -> Ground {
    Ground { prepare, ..PLAIN }
}

const TMPFS: &str =
    r#"mkdir inside; mount -t tmpfs -o size=1g none inside; cp -a "$PLACE/." inside"#;

/// File systems on which everything works as elsewhere.
const FILE_SYSTEMS: [Ground; 5] = [
    on(TMPFS),
    // The present files lie below, where nothing may be changed.
    on(
        r#"mkdir inside layers; mount -t tmpfs none layers; mkdir layers/lower layers/upper layers/work; cp -a "$PLACE/." layers/lower; mount -t overlay -o lowerdir=layers/lower,upperdir=layers/upper,workdir=layers/work none inside; umount -l layers"#,
    ),
    on(
        r#"mkdir inside; truncate -s 320M image; mkfs.xfs -q image; mount -o loop image inside; cp -a "$PLACE/." inside"#,
    ),
    on(
        r#"mkdir inside; truncate -s 320M image; mkfs.btrfs -q image >/dev/null; mount -o loop,compress=zstd image inside; cp -a "$PLACE/." inside"#,
    ),
    on(
        r#"mkdir inside; truncate -s 80M image; mkfs.ext4 -q -b 1024 image; mount -o loop image inside; cp -a "$PLACE/." inside"#,
    ),
];

const fn full(spoil: &'static str) -> Ground {
    Ground {
        prepare: TMPFS,
        spoil,
        mend: "mount -o remount,size=1g,nr_inodes=0 inside",
        flaw: None,
    }
}

/// A file system that refuses one thing.
const fn flawed(flaw: Flaw) -> Ground {
    Ground {
        flaw: Some(flaw),
        ..PLAIN
    }
}

/// No permission, a broken medium, across devices, an unknown call.
const REFUSING: [Ground; 9] = [
    flawed(Flaw::Close),
    flawed(Flaw::Mode),
    flawed(Flaw::Sync),
    flawed(Flaw::Owner),
    flawed(Flaw::Times),
    flawed(Flaw::Name(libc::EPERM)),
    flawed(Flaw::Name(libc::EXDEV)),
    flawed(Flaw::Name(libc::EIO)),
    flawed(Flaw::Name(libc::ENOSYS)),
];

/// Limits a quota to the present use, and some KiB.
macro_rules! limit_to {
    ($more:literal) => {
        concat!(
            "used=$(btrfs qgroup show --raw inside | awk '$1 == \"0/5\" { print $2 }'); ",
            "btrfs qgroup limit $((used + ",
            $more,
            " * 1024)) inside"
        )
    };
}

/// A quota that leaves so much: that of btrfs needs nothing else from the kernel.
const fn quota(spoil: &'static str) -> Ground {
    Ground {
        prepare: r#"mkdir inside; truncate -s 320M image; mkfs.btrfs -q image >/dev/null; mount -o loop image inside; cp -a "$PLACE/." inside; btrfs quota enable inside; sync -f inside"#,
        spoil,
        mend: "btrfs quota disable inside",
        flaw: None,
    }
}

/// File systems that are full, or have little left, and file systems on which nothing, or no name, may be changed.
const SPOILT: [Ground; 19] = [
    Ground {
        prepare: TMPFS,
        spoil: "mount -o remount,ro inside",
        mend: "mount -o remount,rw inside",
        flaw: None,
    },
    full("mount -o remount,size=$(($(df -k --output=used inside | tail -1) + 0))k inside"),
    full("mount -o remount,size=$(($(df -k --output=used inside | tail -1) + 4))k inside"),
    full("mount -o remount,size=$(($(df -k --output=used inside | tail -1) + 16))k inside"),
    full("mount -o remount,size=$(($(df -k --output=used inside | tail -1) + 64))k inside"),
    full("mount -o remount,size=$(($(df -k --output=used inside | tail -1) + 128))k inside"),
    full("mount -o remount,size=$(($(df -k --output=used inside | tail -1) + 256))k inside"),
    full("mount -o remount,size=$(($(df -k --output=used inside | tail -1) + 1024))k inside"),
    full("mount -o remount,nr_inodes=$(($(df --output=iused inside | tail -1) + 0)) inside"),
    full("mount -o remount,nr_inodes=$(($(df --output=iused inside | tail -1) + 1)) inside"),
    full("mount -o remount,nr_inodes=$(($(df --output=iused inside | tail -1) + 2)) inside"),
    full("mount -o remount,nr_inodes=$(($(df --output=iused inside | tail -1) + 4)) inside"),
    Ground {
        prepare: FILE_SYSTEMS[4].prepare,
        spoil: "chattr +a inside",
        mend: "chattr -a inside",
        flaw: None,
    },
    Ground {
        prepare: FILE_SYSTEMS[4].prepare,
        spoil: "chattr +i inside/file inside/packed inside/disk",
        mend: "chattr -f -i inside/file inside/packed inside/disk; :",
        flaw: None,
    },
    // Late allocation, on a full file system.
    Ground {
        prepare: FILE_SYSTEMS[4].prepare,
        spoil: "head -c 1G /dev/zero >inside/filling 2>/dev/null; truncate -s -20K inside/filling",
        mend: "rm inside/filling",
        flaw: None,
    },
    quota(limit_to!("0")),
    quota(limit_to!("64")),
    quota(limit_to!("256")),
    quota(limit_to!("1024")),
];

/// Users and namespaces, in folders of their own.
const USERS: [Surrounding; 4] = [
    Surrounding(
        r#"setpriv --reuid 12345 --regid 12345 --clear-groups "$@""#,
        All,
        true,
    ),
    Surrounding(
        r#"setpriv --reuid 12345 --regid 12345 --clear-groups unshare --map-root-user "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"setpriv --reuid 12345 --regid 12345 --clear-groups unshare --user "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"unshare --mount bash -c 'mount -o remount,hidepid=2 /proc; exec setpriv --reuid 12345 --regid 12345 --clear-groups "$@"' bash "$@""#,
        All,
        false,
    ),
];

/// The same without other parts of a system: no further process or thread, and an unreadable folder.
const POOR: [Surrounding; 2] = [
    Surrounding(
        r#"setpriv --reuid 12345 --regid 12345 --clear-groups bash -c 'ulimit -u 1; exec "$@"' bash "$@""#,
        AllOrSentence,
        true,
    ),
    Surrounding(
        r#"setpriv --reuid 12345 --regid 12345 --clear-groups bash -c 'umask 777; exec "$@"' bash "$@""#,
        AllOrSentence,
        false,
    ),
];

const OWNED: Ground = Ground {
    spoil: "chmod 755 .; chown -R 12345:12345 .",
    ..PLAIN
};

/// Users who may read the files and change none.
const STRANGERS: [Surrounding; 2] = [
    Surrounding(
        r#"setpriv --reuid 12345 --regid 12345 --clear-groups "$@""#,
        AllOrSentence,
        false,
    ),
    Surrounding(
        r#"setpriv --reuid 12345 --regid 12345 --clear-groups unshare --map-root-user "$@""#,
        AllOrSentence,
        false,
    ),
];

const SHOWN: Ground = Ground {
    spoil: "chmod -R a+rX .",
    ..PLAIN
};

/// Namespaces of root's own: of processes, of users, without a network; without capabilities, devices, or visible
/// processes.
const NAMESPACES: [Surrounding; 6] = [
    Surrounding(r#"unshare --map-root-user "$@""#, All, false),
    Surrounding(r#"unshare --pid --fork --mount-proc "$@""#, All, false),
    Surrounding(r#"unshare --net --ipc --uts "$@""#, All, false),
    Surrounding(
        r#"setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@""#,
        All,
        false,
    ),
    Surrounding(
        r#"unshare --mount bash -c 'mount -t tmpfs none /dev; exec "$@"' bash "$@""#,
        AllOrSentence,
        false,
    ),
    Surrounding(
        r#"unshare --mount bash -c 'mount -t tmpfs none /proc; exec "$@"' bash "$@""#,
        AllOrSentence,
        true,
    ),
];

/// Small control groups: all have 64 MiB for the key of a vault.
const LIMITED: [Surrounding; 6] = [
    Surrounding(r#"bash "$LIMIT" memory 100000000 "$@""#, All, false),
    Surrounding(r#"bash "$LIMIT" memory 134217728 "$@""#, All, true),
    Surrounding(r#"bash "$LIMIT" cpu 200 "$@""#, All, false),
    Surrounding(r#"bash "$LIMIT" pids 1 "$@""#, AllOrSentence, false),
    Surrounding(r#"bash "$LIMIT" pids 2 "$@""#, AllOrSentence, false),
    Surrounding(r#"bash "$LIMIT" pids 4 "$@""#, AllOrSentence, false),
];

#[test]
fn root_every_command_is_right_on_every_file_system() {
    if std::env::var_os("BREAKEVEN_ROOT_TESTS").is_none() {
        return;
    }
    let is_full = breakeven::testing::is_full();
    let (stage, jobs) = Stage::new();
    let usual = [Surrounding(r#""$@""#, All, true)];
    let spoilt = [Surrounding(r#""$@""#, AllOrSentence, true)];
    let some = |grounds: &[Ground], every: usize| -> Vec<Ground> {
        let step = if is_full { 1 } else { every };
        grounds.iter().copied().step_by(step).collect()
    };
    let mut all: Vec<Cell<'_>> = Vec::new();
    for ground in some(&FILE_SYSTEMS, 2) {
        all.extend(cells(&usual, ground));
    }
    for ground in some(&SPOILT, 5) {
        all.extend(cells(&spoilt, ground));
    }
    if cfg!(feature = "mount") && may_mount() {
        for ground in some(&REFUSING, 3) {
            all.extend(cells(&spoilt, ground));
        }
        if is_full {
            all.extend(cells(&usual, flawed(Flaw::Late)));
        }
    }
    all.extend(cells(&USERS, OWNED));
    all.extend(cells(&POOR, OWNED));
    all.extend(cells(&STRANGERS, SHOWN));
    all.extend(cells(&NAMESPACES, PLAIN));
    all.extend(cells(&LIMITED, PLAIN));
    try_all(&stage, &jobs, &all);
}

/// Whether this system has FUSE, which a container may not.
fn may_mount() -> bool {
    let opened = std::fs::File::open("/dev/fuse");
    if let Err(error) = &opened {
        println!("/dev/fuse: {error}: no file system refused anything");
    }
    opened.is_ok()
}
