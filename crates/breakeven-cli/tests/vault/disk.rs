//! Volumes of disks in a vault, by the commands: the bytes that are read, and the snapshots that disks keep.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use breakeven::blocks::Durability;
use breakeven::disk::{Disk, DiskOptions, Volume};
use breakeven::storage::RealStorage;
use tempfile::TempDir;

use super::{ok, run, typed};

const VAULT: &str = "breakeven vault -r /backup/v -p password.txt";

/// A folder with a vault and the disk `my.disk`.
fn places() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    fs::create_dir(path.join("backup")).expect("a folder");
    fs::write(path.join("password.txt"), "a password\n").expect("a file");
    let mut image = crate::noise(3 << 20);
    image[1 << 20..(2 << 20) + 5000].fill(0);
    image.truncate((3 << 20) - 1234);
    fs::write(path.join("image.raw"), image).expect("a file");
    ok(path, "breakeven disk import my.disk image.raw");
    ok(path, &format!("{VAULT} init"));
    folder
}

/// Changes a volume of a disk that nobody serves.
fn change(folder: &Path, volume: &str, work: impl FnOnce(&Volume)) {
    let (storage, name) = RealStorage::of_file(folder.join("my.disk")).expect("a folder");
    let disk = Disk::open(&storage, &name, DiskOptions::default()).expect("a disk");
    work(&disk.volume(volume).expect("a volume"));
    disk.close().expect("a clean end");
}

fn write(folder: &Path, volume: &str, offset: u64, length: usize) {
    let bytes = crate::noise(length + offset as usize % 97);
    change(folder, volume, |volume| {
        let written = volume.write(offset, &bytes[..length], Durability::Durable);
        written.expect("a write");
    });
}

/// Adds a volume; returns how many bytes were read.
fn add(folder: &Path, vault: &str, disk: &str) -> u64 {
    let line = format!("{} --json add --disk {disk}", vault);
    let facts: serde_json::Value = serde_json::from_str(&ok(folder, &line)).expect("JSON");
    facts["disk_read_bytes"].as_u64().expect("a number")
}

/// Checks that the newest snapshot of a volume holds the bytes of an export.
#[track_caller]
fn check(folder: &Path, vault: &str, volume: &str) {
    for left in ["export.raw", "back"] {
        let path = folder.join(left);
        let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
    }
    let export = format!("breakeven disk export my.disk export.raw --volume {volume}");
    ok(folder, &export);
    ok(folder, &format!("{vault} restore latest --target back"));
    let name = format!("my.disk:{volume}");
    let below = folder.strip_prefix("/").expect("a path").join(name);
    let back = fs::read(folder.join("back").join(below)).expect("a file");
    let export = fs::read(folder.join("export.raw")).expect("a file");
    assert!(back == export, "{volume} is another");
}

/// Returns the names of a disk's snapshots.
fn snapshots(folder: &Path) -> Vec<String> {
    let info = ok(folder, "breakeven disk info my.disk");
    let names = info
        .lines()
        .filter_map(|line| line.strip_prefix("snapshot "));
    names
        .filter_map(|line| Some(line.rsplit_once(": ")?.0.split(": ").next()?.to_string()))
        .collect()
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn only_changed_blocks_of_a_disk_are_read() {
    let folder = places();
    let path = folder.path();
    let chunk = 8192;
    let first = add(path, VAULT, "my.disk");
    let data = (2 << 20) - 5000 - 1234;
    assert!((data..data + 3 * chunk).contains(&first), "{first}");
    check(path, VAULT, "disk");
    assert_eq!(add(path, VAULT, "my.disk:disk"), 0);
    write(path, "disk", 100, 10);
    write(path, "disk", (2 << 20) - 50, 100);
    let read = add(path, VAULT, "my.disk");
    assert!(read <= 3 * chunk, "{read}");
    check(path, VAULT, "disk");
    change(path, "disk", |volume| {
        let trimmed = volume.trim(0, 1 << 19, Durability::Durable);
        trimmed.expect("a trim");
    });
    assert_eq!(add(path, VAULT, "my.disk"), 0);
    check(path, VAULT, "disk");
    let [kept] = &snapshots(path)[..] else {
        panic!("{:?}", snapshots(path));
    };
    assert!(kept.starts_with("vault-"), "{kept}");
    for (size, most) in [
        ("4194304", 2 * chunk),
        ("2500001", 2 * chunk),
        ("9000000", 2 * chunk),
    ] {
        ok(
            path,
            &format!("breakeven disk resize my.disk disk --size {size} --discard"),
        );
        let read = add(path, VAULT, "my.disk");
        assert!(read <= most, "{read} for {size}");
        check(path, VAULT, "disk");
    }
    // Without its snapshot all is read.
    let gone = snapshots(path).remove(0);
    ok(path, &format!("breakeven disk remove my.disk {gone}"));
    assert!(add(path, VAULT, "my.disk") > 800_000);
    check(path, VAULT, "disk");
    assert_eq!(add(path, VAULT, "my.disk"), 0);
    for line in [
        "ls -l latest",
        "verify",
        "stats",
        "gc --grace 0",
        "gc --grace 0",
    ] {
        ok(path, &format!("{VAULT} {line}"));
    }
    check(path, VAULT, "disk");
}

/// The snapshots for one vault and volume are nobody else's.
#[test]
fn two_vaults_and_two_volumes_keep_their_own_snapshots() {
    let folder = places();
    let path = folder.path();
    let second = "breakeven vault -r /backup/second -p password.txt";
    ok(path, &format!("{second} init"));
    ok(path, "breakeven disk clone my.disk disk other");
    write(path, "other", 1 << 19, 5000);
    for (vault, volume) in [(VAULT, "disk"), (VAULT, "other"), (second, "disk")] {
        let read = add(path, vault, &format!("my.disk:{volume}"));
        assert!(read > 1_000_000, "{read}");
        check(path, vault, volume);
    }
    assert_eq!(snapshots(path).len(), 3);
    write(path, "disk", 1 << 20, 5000);
    for (vault, volume, most) in [
        (second, "disk", 20_000),
        (VAULT, "other", 0),
        (VAULT, "disk", 20_000),
    ] {
        let read = add(path, vault, &format!("my.disk:{volume}"));
        assert!(read <= most, "{read} of {volume}");
        check(path, vault, volume);
    }
    assert_eq!(snapshots(path).len(), 3);
    // A backup that was killed left one; the next one removes it, and no other.
    let newest = snapshots(path).pop().expect("three");
    let left = format!("{}{}", &newest[..newest.len() - 4], "0000");
    ok(
        path,
        &format!("breakeven disk snapshot my.disk disk {left}"),
    );
    ok(path, "breakeven disk snapshot my.disk disk vault-of-mine");
    for (vault, volume) in [(VAULT, "disk"), (VAULT, "other"), (second, "disk")] {
        assert_eq!(add(path, vault, &format!("my.disk:{volume}")), 0);
    }
    let now = snapshots(path);
    assert!(now.len() == 4 && !now.contains(&left), "{now:?}");
    assert!(now.contains(&"vault-of-mine".to_string()), "{now:?}");
    // A failed and a tried one leave none.
    let tried = ok(path, &format!("{VAULT} add --dry-run --disk my.disk"));
    assert!(tried.starts_with("would add"), "{tried}");
    let locked = run(
        path,
        &format!("{VAULT} --index-memory 0 add --disk my.disk"),
    );
    assert!(!locked.status.success());
    assert_eq!(snapshots(path), now);
}

#[test]
fn what_is_no_volume_is_refused() {
    let folder = places();
    let path = folder.path();
    fs::write(path.join("text:disk"), "no disk").expect("a file");
    for (arguments, code, word) in [
        ("--disk my.disk:none", 1, "no volume is called 'none'"),
        ("--disk missing.disk", 1, "missing.disk"),
        ("--disk text:disk", 1, "text:disk"),
        ("--disk image.raw", 1, "image.raw"),
        ("--disk my.disk password.txt", 2, "cannot be used with"),
        ("", 2, "PATH"),
    ] {
        let output = run(path, &format!("{VAULT} add {arguments}"));
        let message = message(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {message}");
        assert!(message.contains(word), "{arguments}: {message}");
    }
    assert_eq!(ok(path, &format!("{VAULT} list")), "\n");
    assert!(snapshots(path).is_empty());
}

/// The disk is named, and not the vault: a repair of the vault would be the wrong thing to do.
#[test]
fn a_damaged_disk_is_no_damaged_vault() {
    let folder = places();
    let path = folder.path();
    let mut bytes = fs::read(path.join("my.disk")).expect("a disk");
    let middle = bytes.len() / 2;
    for byte in &mut bytes[middle..middle + 100_000] {
        *byte ^= 1;
    }
    fs::write(path.join("my.disk"), bytes).expect("a disk");
    let output = run(path, &format!("{VAULT} add --disk my.disk"));
    let message = message(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("my.disk: "), "{message}");
    assert!(!message.contains("vault is damaged"), "{message}");
    assert_eq!(ok(path, &format!("{VAULT} list")), "\n");
    assert!(snapshots(path).is_empty());
}

#[test]
fn a_disk_that_another_process_has_is_refused() {
    let folder = places();
    let path = folder.path();
    let (storage, name) = RealStorage::of_file(path.join("my.disk")).expect("a folder");
    let held = Disk::open(&storage, &name, DiskOptions::default()).expect("a disk");
    let output = run(path, &format!("{VAULT} add --disk my.disk"));
    let message = message(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("docs/disk.md"), "{message}");
    drop(held);
    assert!(add(path, VAULT, "my.disk") > 0);
}

#[test]
fn a_disk_is_backed_up_as_the_guide_types_it() {
    let folder = places();
    let path = folder.path();
    fs::create_dir(path.join("srv")).expect("a folder");
    fs::rename(path.join("my.disk"), path.join("srv/my.disk")).expect("a name");
    ok(
        path,
        "breakeven vault -r /backup/games -p password.txt init",
    );
    for line in typed("## Back up a disk\n") {
        ok(path, line);
    }
}

#[test]
fn a_second_value_is_refused_and_a_repeated_switch_is_not() {
    let folder = places();
    let path = folder.path();
    for arguments in [
        "add --disk my.disk --disk my.disk",
        "add image.raw --host one --host two",
        "add image.raw --prices best --prices default",
    ] {
        let output = run(path, &format!("{VAULT} {arguments}"));
        let message = message(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {message}");
        assert!(message.contains("multiple times"), "{arguments}: {message}");
    }
    ok(
        path,
        &format!("{VAULT} --json --json add --tag one --tag two --force --force image.raw"),
    );
    let listed = ok(path, &format!("{VAULT} list"));
    assert!(listed.contains("one,two"), "{listed}");
    ok(path, &format!("{VAULT} forget latest"));
    assert_eq!(ok(path, &format!("{VAULT} list")), "\n");
    let output = run(path, &format!("{VAULT} forget latest:/image.raw"));
    assert_eq!(output.status.code(), Some(2), "{}", message(&output));
}

/// The disk is let go once the command has found it taken and waits.
#[test]
fn an_add_waits_for_a_disk_that_another_process_has() {
    let folder = places();
    let path = folder.path();
    let (storage, name) = RealStorage::of_file(path.join("my.disk")).expect("a folder");
    let disk = Disk::open(&storage, &name, DiskOptions::default()).expect("a disk");
    let output = run(path, &format!("{VAULT} add --disk my.disk"));
    assert_eq!(output.status.code(), Some(1), "{}", message(&output));
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
    command.args([
        "vault",
        "-r",
        "backup/v",
        "-p",
        "password.txt",
        "--wait",
        "2m",
    ]);
    command.args(["add", "--disk", "my.disk"]).current_dir(path);
    command.env("XDG_STATE_HOME", path.join("state"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let call = format!("/proc/{}/syscall", child.id());
    let sleeps = format!("{} ", libc::SYS_clock_nanosleep);
    while child.try_wait().expect("a child").is_none() {
        match fs::read_to_string(&call) {
            Ok(call) if !call.starts_with(&sleeps) => std::thread::yield_now(),
            _ => break,
        }
    }
    disk.close().expect("a clean end");
    drop(disk);
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_disk_on_a_read_only_file_system_is_read_and_keeps_nothing() {
    let folder = places();
    let path = folder.path();
    fs::create_dir(path.join("disks")).expect("a folder");
    fs::rename(path.join("my.disk"), path.join("disks/my.disk")).expect("it moves");
    let script = "mount --bind disks disks && mount -o remount,bind,ro disks && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c", script, "sh"]);
    command.args([env!("CARGO_BIN_EXE_breakeven"), "vault", "-r", "backup/v"]);
    command.args(["-p", "password.txt", "add", "--disk", "disks/my.disk"]);
    command.env("XDG_STATE_HOME", path.join("state"));
    let output = command.current_dir(path).stdin(Stdio::null()).output();
    let output = output.expect("it starts");
    let message = message(&output);
    assert!(output.status.success(), "{message}");
    let refusal = "Read-only file system (os error 30)";
    assert_eq!(message.matches(refusal).count(), 1, "{message}");
    assert!(message.contains("keeps no snapshot"), "{message}");
    let listed = ok(path, "breakeven disk info disks/my.disk");
    assert!(!listed.contains("vault-"), "{listed}");
}
