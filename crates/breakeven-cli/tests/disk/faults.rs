//! What befalls a served disk: its server is killed under stock programs, the host loses power, or has no room left.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use breakeven::testing::is_full;
use fastrand::Rng;
use tempfile::TempDir;

use super::client::{Client, FLUSH, FUA};
use super::{
    Allowed, BLOCK_BYTES, Mounted, Server, breakeven, check_blocks, done, image, installed, made,
    stamped,
};

const SEED: u64 = 2014;
/// Debian's.
const PYTHON: &str = "/usr/bin/python3";
const ENOSPC: u32 = 28;

fn is_root_test() -> bool {
    std::env::var_os("BREAKEVEN_ROOT_TESTS").is_some()
}

/// Returns the bytes that a process has written until now; none once it has ended.
fn written_bytes(process: u32) -> Option<u64> {
    let counts = fs::read_to_string(format!("/proc/{process}/io")).ok()?;
    let line = counts.lines().find_map(|line| line.strip_prefix("wchar: "));
    line?.trim().parse().ok()
}

fn verifying_fio(server: &Server, more: &[&str], folder: &Path) -> Command {
    let mut command = Command::new("fio");
    command
        .args(["--name=verify", "--ioengine=nbd", "--bs=4k", "--size=4m"])
        .args([
            "--verify=crc32c",
            "--iodepth=16",
            &format!("--uri={}", server.address),
        ])
        .args(more)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Every block has what fio wrote at some time, before the kill or just then: its own sum is in it.
#[test]
fn a_server_that_is_killed_under_fio_leaves_blocks_that_fio_verifies() {
    if !installed("fio") {
        return;
    }
    let folder = made("4MiB");
    let mut random = Rng::with_seed(SEED);
    let mut server = Server::start(folder.path(), &[]);
    let filled = verifying_fio(&server, &["--rw=write", "--do_verify=0"], folder.path()).status();
    assert!(filled.expect("fio starts").success());
    let kills = if is_full() { 200 } else { 20 };
    let mut cut_short = 0;
    for kill in 0..kills {
        let before = written_bytes(server.child.id()).expect("a running server");
        let words = ["--rw=randwrite", "--do_verify=0", "--fsync=32"];
        let endless = [
            "--time_based",
            "--runtime=60",
            &format!("--randseed={kill}"),
        ];
        let mut fio = verifying_fio(&server, &[&words[..], &endless].concat(), folder.path())
            .spawn()
            .expect("fio starts");
        // Somewhere in the next few hundred blocks.
        let until = before + random.u64(4096..1 << 20);
        while written_bytes(server.child.id()).is_some_and(|written| written < until) {
            assert!(fio.try_wait().expect("a child").is_none(), "fio ended");
            std::thread::yield_now();
        }
        server.kill();
        cut_short += usize::from(!fio.wait().expect("fio ends").success());
        server = Server::start(folder.path(), &[]);
        let verified = verifying_fio(&server, &["--rw=read"], folder.path()).status();
        assert!(verified.expect("fio starts").success(), "kill {kill}");
    }
    let torn = server.client().write(0, 7 * 4096 + 100, &[9; 100]);
    assert_eq!(torn.expect("a reply"), 0);
    let verified = verifying_fio(&server, &["--rw=read"], folder.path()).status();
    assert!(
        !verified.expect("fio starts").success(),
        "fio finds nothing"
    );
    println!("{kills} kills, {cut_short} times fio was told");
    assert_eq!(cut_short, kills);
}

/// A file system on a loop device that is stopped dead, without a write more, and mounted again.
struct Host {
    folder: TempDir,
}

impl Host {
    fn mounted(kind: &str) -> Host {
        let host = Host {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        let image = host.folder.path().join("image");
        let file = File::create(&image).expect("an image");
        file.set_len(400 << 20).expect("an image");
        done(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&image));
        fs::create_dir(host.point()).expect("a place");
        host.mount();
        host
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("host")
    }

    fn mount(&self) {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]);
        done(
            mount
                .arg(self.folder.path().join("image"))
                .arg(self.point()),
        );
    }

    /// Leaves on the device what was synced, and of the rest what it has by chance.
    fn cut_power(&self) {
        // The kernel's call is the same for both kinds.
        let mut stop = Command::new("xfs_io");
        done(stop.args(["-x", "-c", "shutdown"]).arg(self.point()));
    }

    fn come_back(&self) {
        done(Command::new("umount").arg(self.point()));
        self.mount();
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.point()).output();
    }
}

fn lose_power(kind: &str, cuts: u64) {
    let host = Host::mounted(kind);
    done(&mut breakeven(
        &["create", "d", "--size=1MiB"],
        &host.point(),
    ));
    done(Command::new("sync").arg("-f").arg(host.point()));
    let sockets = tempfile::tempdir().expect("a temporary folder");
    let mut random = Rng::with_seed(SEED);
    let blocks = (1 << 20) / BLOCK_BYTES;
    let mut allowed = vec![Allowed { first: 0, last: 0 }; blocks];
    let (mut number, mut flushes) = (0, 0);
    for cut in 0..cuts {
        let server = Server::start_at(&host.point(), sockets.path(), &[]);
        let mut client = server.client();
        check_blocks(cut, &mut client, &mut allowed);
        for _ in 0..random.u64(50..300) {
            number += 1;
            let index = random.usize(..blocks);
            let flags = if random.u8(..50) == 0 { FUA } else { 0 };
            allowed[index].last = number;
            let error = client.write(flags, (index * BLOCK_BYTES) as u64, &stamped(number));
            assert_eq!(error.expect("a reply"), 0);
            if flags == FUA || random.u8(..40) == 0 {
                assert_eq!(client.request(FLUSH, 0, 0).expect("a reply"), 0);
                let all = allowed.iter_mut();
                all.for_each(|allowed| allowed.first = allowed.last);
                flushes += 1;
            }
        }
        host.cut_power();
        server.kill();
        host.come_back();
    }
    println!("{kind}: {cuts} power cuts, {number} writes, {flushes} flushes");
    assert!(number > cuts * 50 && flushes > cuts);
}

#[test]
fn root_a_host_without_power_loses_nothing_that_was_flushed() {
    if !is_root_test() || !installed("xfs_io") {
        return;
    }
    let cuts = if is_full() { 200 } else { 20 };
    lose_power("ext4", cuts);
    lose_power("xfs", cuts);
}

/// Writes noise until the disk refuses it; returns how many blocks there are then.
fn fill(client: &mut Client, random: &mut Rng, written: &mut Vec<Vec<u8>>) {
    loop {
        let mut piece = vec![0; 64 << 10];
        random.fill(&mut piece);
        let at = written.len() * piece.len();
        match client.write(0, at as u64, &piece).expect("a reply") {
            0 => written.push(piece),
            error => return assert_eq!(error, ENOSPC),
        }
    }
}

/// The disk refuses writes while the host has its reserve, and what it flushed stays when others take that too.
#[test]
fn root_a_full_host_takes_nothing_that_was_flushed() {
    if !is_root_test() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let host = folder.path().join("host");
    fs::create_dir(&host).expect("a place");
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]);
    done(mount.arg(&host));
    let _unmount = Unmount(host.clone());
    done(&mut breakeven(&["create", "d", "--size=1GiB"], &host));
    let server = Server::start_at(&host, folder.path(), &["--reserve=4MiB"]);
    let mut client = server.client();
    let (mut random, mut written) = (Rng::with_seed(SEED), Vec::new());
    fill(&mut client, &mut random, &mut written);
    assert!(written.len() > 300, "{}", written.len());
    assert_eq!(client.request(FLUSH, 0, 0).expect("a reply"), 0);
    // Somebody else takes the rest, and what was promised before is there all the same.
    let left = fs::write(host.join("other"), vec![7; 64 << 20]);
    assert!(left.is_err(), "the host had room");
    assert_eq!(client.write(0, 0, &[9; 4096]).expect("a reply"), ENOSPC);
    let check = |client: &mut Client| {
        for (number, piece) in written.iter().enumerate() {
            let found = client.read((number * piece.len()) as u64, piece.len());
            assert!(found.expect("bytes") == *piece, "piece {number}");
        }
    };
    check(&mut client);
    server.kill();
    let again = Server::start_at(&host, folder.path(), &["--read-only"]);
    check(&mut again.client());
    drop(again);
    fs::remove_file(host.join("other")).expect("a file");
    let again = Server::start_at(&host, folder.path(), &["--reserve=1MiB"]);
    let mut client = again.client();
    check(&mut client);
    assert_eq!(client.write(FUA, 0, &written[0]).expect("a reply"), 0);
    drop(client);
    again.stop();
}

/// A mount that goes when it is forgotten.
struct Unmount(PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

/// Starts what `fsx` does on a file: it says how many operations it did.
fn start_fsx(file: &Path, seed: u64, operations: u64) -> Child {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/disk/fsx.py");
    Command::new(PYTHON)
        .arg(script)
        .arg(file)
        .args([seed.to_string(), operations.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("Python starts")
}

/// Lets the file system mend itself, as after every crash, and demands that nothing is wrong then.
fn mend(kind: &str, mounted: &Mounted) {
    let device = &mounted.device;
    match kind {
        "ext4" => {
            // The first replays the journal, the second finds nothing wrong.
            let _ = Command::new("e2fsck").args(["-fp", device]).output();
            done(Command::new("e2fsck").args(["-fn", device]));
        }
        _ => {
            // A mount replays the journal.
            mounted.mount();
            done(Command::new("umount").arg(mounted.folder.join("mounted")));
            done(Command::new("xfs_repair").args(["-n", device]));
        }
    }
}

fn live_through_kills(kind: &str, kills: u64) {
    let folder = made("400MiB");
    let mut random = Rng::with_seed(SEED);
    let server = Server::start(folder.path(), &[]);
    let mounted = Mounted::attach(folder.path(), &server);
    done(Command::new(format!("mkfs.{kind}")).args(["-q", &mounted.device]));
    let point = mounted.mount();
    let done_whole = start_fsx(
        &point.join("whole"),
        1,
        if is_full() { 20_000 } else { 2_000 },
    );
    let output = done_whole.wait_with_output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{kind}: {said}");
    let whole = fs::read(point.join("whole")).expect("a file");
    done(Command::new("sync").arg("-f").arg(&point));
    drop(mounted);
    server.stop();
    for kill in 0..kills {
        let server = Server::start(folder.path(), &[]);
        let mounted = Mounted::attach(folder.path(), &server);
        mend(kind, &mounted);
        let point = mounted.mount();
        assert!(fs::read(point.join("whole")).expect("a file") == whole);
        let mut fsx = start_fsx(&point.join(format!("part-{kill}")), kill, u64::MAX);
        let lines = BufReader::new(fsx.stdout.take().expect("a pipe")).lines();
        let wanted = random.usize(1..10);
        assert_eq!(lines.take(wanted).count(), wanted, "{kind}: fsx ended");
        server.kill();
        // What it cannot write any more ends it, or it is ended.
        let _ = fsx.kill();
        let output = fsx.wait_with_output().expect("an end");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!said.contains("other bytes"), "{kind}: {said}");
    }
    let server = Server::start(folder.path(), &[]);
    let mounted = Mounted::attach(folder.path(), &server);
    mend(kind, &mounted);
    assert!(fs::read(mounted.mount().join("whole")).expect("a file") == whole);
    drop(mounted);
    server.stop();
}

#[test]
fn root_file_systems_are_whole_after_every_kill_under_fsx() {
    if !is_root_test() || !installed("nbdfuse") || !installed(PYTHON) {
        return;
    }
    let kills = if is_full() { 40 } else { 4 };
    live_through_kills("ext4", kills);
    live_through_kills("xfs", kills);
}

/// What waits in the lines of the guide for a moment waits here for what it is meant to wait for.
const WAIT: &str = r#"
set -u
waits=0
sleep() {
    waits=$((waits + 1))
    case $waits in
        1) until nbdinfo 'nbd+unix:///?socket=my.disk.socket' >/dev/null 2>&1; do command sleep 0.02; done ;;
        2) until [ -s image ] || [ -s vm1.raw ]; do command sleep 0.02; done ;;
        5) until breakeven bench "$PWD/cache" --keys 1 --flat-out --seconds 0.1 >/dev/null 2>&1; do command sleep 0.05; done ;;
        *) until mariadb --socket="$PWD/sql" -e 'SELECT 1' >/dev/null 2>&1; do command sleep 0.05; done ;;
    esac
}
"#;

/// Returns the lines of code of the guide's parts: the eight, what comes then, those of memcached, and those of sandboxes.
fn lines_of_the_guide() -> [Vec<String>; 4] {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/disk.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let (_, part) = guide.split_once("## Eight lines").expect("a heading");
    let (eight, then) = part.split_once("And then:").expect("two words");
    let (then, rest) = then.split_once("memcached's extstore").expect("a sentence");
    let (memcached, rest) = rest.split_once("Every volume").expect("a sentence");
    let (_, sandboxes) = rest.split_once("## Sandboxes").expect("a heading");
    let (sandboxes, _) = sandboxes.split_once("QEMU takes").expect("a sentence");
    [eight, then, memcached, sandboxes].map(|part| {
        let code = part.lines().filter_map(|line| line.strip_prefix("    "));
        code.map(str::to_string).collect()
    })
}

pub fn run_lines(folder: &Path, lines: &[String]) -> String {
    let binary = Path::new(env!("CARGO_BIN_EXE_breakeven"));
    let programs = binary.parent().expect("its folder").display().to_string();
    let path = std::env::var("PATH").expect("a path");
    let script = format!("{WAIT}{}\n", lines.join("\n"));
    // A deadline, not a measurement.
    let mut command = Command::new("timeout");
    command
        .args(["--signal=KILL", "300", "bash", "-c", &script])
        .env("PATH", format!("{programs}:{path}:/usr/sbin:/sbin"))
        .env("HOME", folder)
        .current_dir(folder)
        .stdin(Stdio::null());
    done(&mut command)
}

/// What the last line serves, and whether the database is in it: it was cloned while it ran. memcached's lines come then.
const MOUNT_THE_CLONE: &str = r#"
cat info; nbdinfo --list 'nbd+unix:///?socket=my.disk.socket'
touch clone && nbdfuse clone 'nbd+unix:///test?socket=my.disk.socket' & until [ -s clone ]; do command sleep 0.02; done
device=$(losetup --find --show clone) && mount $device m
mariadbd --user=root --datadir=$PWD/m/db --socket=$PWD/sql --skip-networking & sleep 5
mariadb --socket=$PWD/sql -e "SELECT CONCAT(COUNT(*), ' rows to ', MAX(seq)) FROM a.b"
"#;
/// Values are in memcached's file when blocks of more than 4 MiB are.
const UNMOUNT_THE_CLONE: &str = r#"
until [ $(stat --format=%b m/values) -gt 8192 ]; do command sleep 0.05; done
kill %4; wait %4
mariadb --socket=$PWD/sql -e SHUTDOWN; wait %3
umount m; losetup --detach $device; fusermount3 -u clone; kill %1; wait
"#;

#[test]
fn root_the_lines_of_the_guide_do_what_it_says() {
    let programs = ["nbdfuse", "nbdinfo", "mariadbd", "memcached"];
    if !is_root_test() || !programs.iter().all(|program| installed(program)) {
        return;
    }
    let [eight, mut then, memcached, mut sandboxes] = lines_of_the_guide();
    assert_eq!(eight.len(), 8, "{eight:?}");
    // The last line serves until it is ended.
    let last = then.pop().expect("a line");
    let (last, _) = last.split_once('#').expect("what it says of itself");
    then.push(format!(
        "{last} & until nbdinfo 'nbd+unix:///?socket=my.disk.socket' >info 2>&1; do command sleep 0.02; done"
    ));
    then.push(MOUNT_THE_CLONE.to_string());
    then.extend(memcached);
    then.push(UNMOUNT_THE_CLONE.to_string());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let told = run_lines(folder.path(), &[eight, then].concat());
    for word in [
        "export-size: 10737418240",
        "export=\"test\"",
        "export=\"disk\"",
        "export=\"before\"",
        "5000 rows to 5000",
    ] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    image(&folder.path().join("base.raw"), 16 << 20);
    sandboxes.push("cmp vm1.raw base.raw; fusermount3 -u vm1.raw; kill %1; wait".to_string());
    let told = run_lines(folder.path(), &sandboxes);
    // The address alone: the clone is its image.
    assert!(
        told.starts_with("nbd+unix") && told.lines().count() == 1,
        "{told}"
    );
}
