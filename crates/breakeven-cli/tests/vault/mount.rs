//! Snapshots as a file system, as programs see it.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use super::{ok, places, typed};

/// A mount that is ended when it goes, with what it says.
struct Mount {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Mount {
    /// Mounts a vault's snapshots; nothing where this user may not.
    fn start(folder: &Path, words: &[&str]) -> Option<Mount> {
        if let Err(error) = OpenOptions::new().read(true).write(true).open("/dev/fuse") {
            eprintln!("/dev/fuse: {error}: not tried");
            return None;
        }
        fs::create_dir_all(folder.join("at")).expect("a folder");
        // A signal that a shell has its background jobs ignore is one that ends a mount.
        let mut command = Command::new("env");
        command.args([
            "--default-signal=HUP,INT,TERM",
            "timeout",
            "--signal=KILL",
            "120",
        ]);
        command.arg(env!("CARGO_BIN_EXE_breakeven"));
        let line = typed("## Snapshots as folders\n")[0].replace("/mnt/home", "at");
        command.args(line.split_whitespace().skip(1));
        let mut child = (command.args(words))
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("BREAKEVEN_REPOSITORY", "backup/games")
            .env("BREAKEVEN_PASSWORD_FILE", "password.txt")
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let output = BufReader::new(child.stdout.take().expect("an output"));
        let mut mount = Mount { child, output };
        let mut line = String::new();
        mount.output.read_line(&mut line).expect("a line");
        if line.starts_with("mounted at at") {
            return Some(mount);
        }
        let said = mount.complaints();
        // A container may have the device and not the right to mount.
        let is_refused =
            said.contains("Operation not permitted") || said.contains("ermission denied");
        assert!(is_refused, "{line}{said}");
        eprintln!("{said}: not tried");
        let _ = mount.child.wait();
        None
    }

    /// Ends it by a command, and expects that it ends well; returns what it complained of.
    fn end(mut self, command: &[&str]) -> String {
        let (program, arguments) = command.split_first().expect("a command");
        let ended = Command::new(program).args(arguments).status();
        assert!(ended.expect("it starts").success(), "{command:?}");
        let complaints = self.complaints();
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {complaints}");
        complaints
    }

    /// Signals the program under the deadline.
    fn signal(self, name: &str) -> String {
        let number = self.child.id().to_string();
        self.end(&["kill", "-s", name, &number])
    }

    /// Reads what it said on standard error, to its end.
    fn complaints(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut text).expect("text");
        }
        text
    }
}

/// A vault of two snapshots of a tree with all kinds of files, the second of which has one more.
fn added() -> tempfile::TempDir {
    let folder = places();
    let path = folder.path();
    let games = path.join("srv/games");
    let hole = File::create(games.join("hole")).expect("a file");
    hole.write_all_at(b"end", 50_000_000).expect("a write");
    symlink("text", games.join("link")).expect("a link");
    fs::hard_link(games.join("text"), games.join("again")).expect("a link");
    fs::set_permissions(games.join("one/data"), fs::Permissions::from_mode(0o640)).expect("a mode");
    let pipe = rustix::fs::mknodat(
        rustix::fs::CWD,
        games.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    );
    pipe.expect("a pipe");
    for name in ["pipe two", "pipe three"] {
        fs::hard_link(games.join("pipe"), games.join(name)).expect("a link");
    }
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} init"));
    ok(path, &format!("{vault} add /srv/games"));
    fs::write(games.join("new"), "new\n").expect("a file");
    ok(path, &format!("{vault} add /srv/games"));
    folder
}

/// Compares two trees, names, kinds, bytes and metadata; returns how many names there are.
fn compare(one: &Path, other: &Path) -> usize {
    let names = |path: &Path| {
        let entries = fs::read_dir(path).expect("a folder");
        let mut names: Vec<_> = entries
            .map(|it| it.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(other), "{}", one.display());
    let mut count = 0;
    for name in names(one) {
        count += 1;
        let (one, other) = (one.join(&name), other.join(&name));
        let facts = |path: &Path| {
            let it = path.symlink_metadata().expect("metadata");
            (it.mode(), it.uid(), it.gid(), it.mtime(), it.mtime_nsec())
        };
        assert_eq!(facts(&one), facts(&other), "{}", one.display());
        let kind = one.symlink_metadata().expect("metadata").file_type();
        if kind.is_dir() {
            count += compare(&one, &other);
        } else if kind.is_symlink() {
            let target = |path| fs::read_link(path).expect("a link");
            assert_eq!(target(&one), target(&other));
        } else if kind.is_file() {
            let bytes = |path| fs::read(path).expect("a file");
            assert!(bytes(&one) == bytes(&other), "{}", one.display());
        }
    }
    count
}

#[test]
fn a_mount_shows_each_snapshot_as_it_was() {
    let folder = added();
    let path = folder.path();
    let Some(mount) = Mount::start(path, &[]) else {
        return;
    };
    let at = path.join("at");
    let below = |snapshot: &str| {
        at.join(snapshot)
            .join(path.strip_prefix("/").expect("a path"))
    };
    let games = path.join("srv/games");
    let compared = compare(&games, &below("latest").join("srv/games"));
    assert!(compared >= 10, "{compared} names");
    let first = below("1").join("srv/games");
    assert!(!first.join("new").exists() && first.join("text").exists());
    // One inode, and so one copy in memory, for what both snapshots have.
    let inode = |path: &Path| path.metadata().expect("metadata").ino();
    let second = below("2").join("srv/games");
    assert_eq!(
        inode(&first.join("one/data")),
        inode(&second.join("one/data"))
    );
    assert_eq!(inode(&second.join("text")), inode(&second.join("again")));
    let pipes = ["pipe", "pipe three"].map(|name| inode(&second.join(name)));
    assert_eq!(pipes[0], pipes[1]);
    assert_eq!(
        second.join("again").metadata().expect("metadata").nlink(),
        2
    );
    let times = fs::read_dir(at.join("times")).expect("a folder").count();
    assert_eq!(times, 2);
    let hole = File::open(second.join("hole")).expect("a file");
    let data = seek(&hole, SeekFrom::Data(0)).expect("some data");
    assert!((40_000_000..=50_000_000).contains(&data), "{data}");
    assert_eq!(seek(&hole, SeekFrom::Hole(0)), Ok(0));
    let blocks = hole.metadata().expect("metadata").blocks();
    assert!(blocks * 512 < 10_000_000, "{blocks} blocks");
    let links = |name: &str| {
        second
            .join(name)
            .symlink_metadata()
            .expect("metadata")
            .nlink()
    };
    assert_eq!([links("pipe"), links("text"), links("new")], [3, 2, 1]);
    // Nobody changes it.
    let refused = fs::write(second.join("text"), "other").expect_err("read-only");
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    drop(hole);
    assert_eq!(mount.signal("INT"), "");
    assert_eq!(fs::read_dir(&at).expect("a folder").count(), 0);
}

#[test]
fn a_folder_of_a_snapshot_is_mounted_and_unmounted_from_outside() {
    let folder = added();
    let path = folder.path();
    let source = format!("1:{}/srv", path.display());
    let Some(mount) = Mount::start(path, &[&source]) else {
        return;
    };
    let at = path.join("at");
    assert_eq!(
        fs::read_to_string(at.join("games/text")).expect("a file"),
        "a line\n".repeat(9000)
    );
    // Ten readers at once.
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                let read = fs::read(at.join("games/one/data")).expect("a file");
                assert!(read == fs::read(path.join("srv/games/one/data")).expect("a file"));
            });
        }
    });
    let shown = at.display().to_string();
    assert_eq!(mount.end(&["fusermount3", "-u", &shown]), "");
    assert_eq!(fs::read_dir(&at).expect("a folder").count(), 0);
}

#[test]
fn a_damaged_file_is_an_error_and_named() {
    let folder = added();
    let path = folder.path();
    let mut damaged = 0;
    for folder in fs::read_dir(path.join("backup/games/packs")).expect("a folder") {
        for pack in fs::read_dir(folder.expect("an entry").path()).expect("a folder") {
            let pack = pack.expect("an entry").path();
            let mut bytes = fs::read(&pack).expect("a pack");
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::set_permissions(&pack, fs::Permissions::from_mode(0o600)).expect("a mode");
            fs::write(&pack, bytes).expect("a write");
            damaged += 1;
        }
    }
    assert!(damaged > 0);
    let Some(mount) = Mount::start(path, &[]) else {
        return;
    };
    let games = path
        .join("at/latest")
        .join(path.strip_prefix("/").expect("a path"));
    let read = fs::read(games.join("srv/games/one/data"));
    let error = read.expect_err("it is damaged");
    assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    let mut mount = mount;
    let ended = Command::new("kill")
        .arg(mount.child.id().to_string())
        .status();
    assert!(ended.expect("it starts").success());
    let said = mount.complaints();
    assert!(said.contains("srv/games/one/data: corrupt"), "{said}");
    // As every command does that met damage.
    assert_eq!(
        mount.child.wait().expect("it ends").code(),
        Some(3),
        "{said}"
    );
}

/// What is open at the end is read on until it is closed.
#[test]
fn an_open_file_outlives_the_signal() {
    let folder = added();
    let path = folder.path();
    let Some(mount) = Mount::start(path, &[]) else {
        return;
    };
    let games = path
        .join("at/latest")
        .join(path.strip_prefix("/").expect("a path"));
    let open = File::open(games.join("srv/games/one/data")).expect("a file");
    let mut mount = mount;
    let ended = Command::new("kill")
        .args(["-s", "INT"])
        .arg(mount.child.id().to_string())
        .status();
    assert!(ended.expect("it starts").success());
    // A deadline, not a measurement.
    let gone = "until [ -z \"$(ls at)\" ]; do sleep 0.02; done";
    let mut wait = Command::new("timeout");
    wait.args(["60", "sh", "-c", gone]).current_dir(path);
    assert!(wait.status().expect("it starts").success(), "it stays");
    assert!(
        mount.child.try_wait().expect("a state").is_none(),
        "{}",
        mount.complaints()
    );
    let mut read = vec![0; 300_000];
    open.read_exact_at(&mut read, 0).expect("a read");
    assert!(read == fs::read(path.join("srv/games/one/data")).expect("a file"));
    drop(open);
    let said = mount.complaints();
    let ended = mount.child.wait().expect("it ends");
    assert!(ended.success(), "{ended}: {said}");
}

/// A mount goes on where a collection moved what it shows.
#[test]
fn a_collection_beside_a_mount_takes_nothing_from_it() {
    let folder = added();
    let path = folder.path();
    for number in 0..60 {
        let bytes = crate::noise(30_000 + number);
        let one_of_two = if number % 2 == 0 {
            "srv/games/even"
        } else {
            "srv/games/odd"
        };
        fs::create_dir_all(path.join(one_of_two)).expect("a folder");
        fs::write(path.join(one_of_two).join(number.to_string()), bytes).expect("a file");
    }
    let vault = "breakeven vault -r /backup/games -p password.txt";
    ok(path, &format!("{vault} add /srv/games"));
    fs::remove_dir_all(path.join("srv/games/odd")).expect("a folder");
    ok(path, &format!("{vault} add /srv/games"));
    let Some(mount) = Mount::start(path, &[]) else {
        return;
    };
    ok(path, &format!("{vault} forget --keep-last 1"));
    for _ in 0..2 {
        ok(path, &format!("{vault} gc --grace 0 --live-below 100%"));
    }
    let shown = path
        .join("at/latest")
        .join(path.strip_prefix("/").expect("a path"));
    let compared = compare(&path.join("srv/games"), &shown.join("srv/games"));
    assert!(compared >= 40, "{compared}");
    assert_eq!(mount.signal("TERM"), "");
}

#[test]
fn what_cannot_be_mounted_is_said() {
    let folder = added();
    let path = folder.path();
    let vault = "breakeven vault -r /backup/games -p password.txt";
    fs::write(path.join("file"), "a file\n").expect("a file");
    fs::create_dir(path.join("at")).expect("a folder");
    let text = format!("1:{}/srv/games/text", path.display());
    for (words, said) in [
        ("/nowhere", "nowhere: No such file"),
        ("/file", "is no folder"),
        (&*format!("/at {text}"), "only a folder can be mounted"),
        ("/at --host nobody", "there is no such snapshot"),
    ] {
        let output = super::run(path, &format!("{vault} mount {words}"));
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {message}");
        assert!(message.contains(said), "{words}: {message}");
    }
}
