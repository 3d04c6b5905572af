//! Servers as hosts start and limit them: sockets that are handed over, long paths, files of limited length, too many
//! clients, disks of terabytes, and backups while a disk is served.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::client::{Client, FLUSH, TRIM};
use super::faults::run_lines;
use super::{Server, breakeven, check_same, done, image, installed, made, refused};

/// A program in a shell that says something first.
fn behind(words: &str, program: &Command) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{words} exec \"$0\" \"$@\"")])
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(program.get_current_dir().expect("a folder"))
        .stdin(Stdio::null());
    command
}

/// What systemd does: the socket is the fourth descriptor, and meant for this process.
const HAND_OVER: &str = "exec 3<&0 </dev/null; export LISTEN_PID=$$ LISTEN_FDS=1;";

pub fn handed(socket: impl Into<OwnedFd>, program: &Command) -> Command {
    let mut command = behind(HAND_OVER, program);
    command.stdin(Stdio::from(socket.into()));
    command
}

/// The words behind `ExecStart=` of the unit, for a disk.
fn words_of_unit(disk: &str) -> Vec<String> {
    let unit = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/systemd/breakeven-disk@.service"
    );
    let unit = fs::read_to_string(unit).expect("a unit");
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=breakeven disk "));
    let words = start.expect("a command").split(' ');
    words.map(|word| word.replace("%f", disk)).collect()
}

#[test]
fn a_socket_that_is_handed_over_is_served_and_left() {
    let folder = made("1MiB");
    let path = folder.path().join("given");
    let listener = UnixListener::bind(&path).expect("a socket");
    // A client that came before the server.
    let early = std::os::unix::net::UnixStream::connect(&path).expect("a place in the queue");
    let words = words_of_unit("d");
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut serve = breakeven(&words, folder.path());
    serve.arg("--reserve=1MiB");
    let copy = listener.try_clone().expect("a copy");
    let mut server = Server::started(handed(copy, &serve), path.clone());
    assert!(server.address.ends_with("/given"), "{}", server.address);
    drop(early);
    let mut client = server.client();
    assert_eq!(client.write(1, 5, b"given").expect("a reply"), 0);
    server.end();
    assert!(path.exists(), "it is not the server's to remove");
    // The next one takes the same socket.
    let server = Server::started(handed(listener, &serve), path);
    assert_eq!(server.client().read(5, 5).expect("bytes"), b"given");
    drop(server);
    // What other machines reach is refused, and what is no socket.
    let network = std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
    refused(&mut handed(network, &serve), 1, "other machines");
    let file = File::open(folder.path().join("d")).expect("a file");
    refused(&mut handed(file, &serve), 1, "descriptor 3");
    let more = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    serve.arg("--port=0");
    refused(&mut handed(more, &serve), 1, "handed over");
}

/// A path that is longer than the kernel takes, through a descriptor of its folder.
pub fn short(folder: &File, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))
}

#[test]
fn a_disk_deep_in_folders_is_served_and_cloned() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let deep = "d".repeat(150);
    let below = folder.path().join(&deep);
    fs::create_dir(&below).expect("a folder");
    let disk = format!("{deep}/d");
    done(&mut breakeven(
        &["create", &disk, "--size=1MiB"],
        folder.path(),
    ));
    let opened = File::open(&below).expect("a folder");
    for _ in 0..2 {
        let serve = breakeven(&["serve", &disk, "--reserve=1MiB"], folder.path());
        let mut server = Server::started(serve, below.join("d.socket"));
        assert!(server.address.ends_with(&format!("{deep}/d.socket")));
        let mut client = Client::connect(&short(&opened, "d.socket"), "").expect("a client");
        assert_eq!(client.write(1, 0, b"deep").expect("a reply"), 0);
        // A server that is there is not replaced.
        let again = ["serve", &disk, "--read-only", "--reserve=1MiB"];
        refused(&mut breakeven(&again, folder.path()), 1, "end its server");
        done(&mut breakeven(
            &["snapshot", &disk, "disk", "still"],
            folder.path(),
        ));
        done(&mut breakeven(&["remove", &disk, "still"], folder.path()));
        server.end();
        assert!(!below.join("d.socket").exists() && !below.join("d.control").exists());
        // The next one finds the socket of a dead server.
        let socket = UnixListener::bind(short(&opened, "d.socket"));
        drop(socket.expect("a socket"));
    }
    let long = format!("{}/{}", deep, "s".repeat(100));
    let serve = ["serve", &disk, "--reserve=1MiB", "--socket", &long];
    refused(&mut breakeven(&serve, folder.path()), 1, "80 bytes");
}

#[test]
fn clients_that_are_too_many_are_counted_and_not_each_told() {
    let folder = made("1MiB");
    let mut serve = breakeven(&["serve", "d", "--reserve=1MiB"], folder.path());
    serve.args(["--connections=1", "--metrics=metrics"]);
    serve.stderr(File::create(folder.path().join("log")).expect("a file"));
    let mut server = Server::started(serve, folder.path().join("d.socket"));
    let client = server.client();
    for _ in 0..50 {
        assert!(Client::greet(&server.socket).is_err(), "one too many");
    }
    drop(client);
    server.end();
    let metrics = fs::read_to_string(folder.path().join("metrics")).expect("metrics");
    assert!(
        metrics.contains("breakeven_disk_clients_refused_total 50\n"),
        "{metrics}"
    );
    let log = fs::read_to_string(folder.path().join("log")).expect("a log");
    let told = log.matches("--connections").count();
    // Once in ten seconds, and once at the end.
    assert!(
        log.contains("not let in") && (1..10).contains(&told),
        "{log}"
    );
}

#[test]
fn holes_of_terabytes_are_told_in_few_answers() {
    if !installed("nbdinfo") {
        return;
    }
    let folder = made("10TiB");
    let mut server = Server::start(folder.path(), &["--metrics=metrics"]);
    let mut client = server.client();
    assert_eq!(client.write(1, 5 << 40, b"!").expect("a reply"), 0);
    let map = done(Command::new("nbdinfo").args(["--map", &server.address]));
    let lines: Vec<&str> = map.lines().collect();
    assert_eq!(lines.len(), 3, "{map}");
    assert!(lines[0].contains("5497558138880") && lines[0].contains("hole,zero"));
    assert!(lines[1].contains("4096") && lines[1].contains("data"));
    server.end();
    let metrics = fs::read_to_string(folder.path().join("metrics")).expect("metrics");
    let asked = metrics.lines().find_map(|line| {
        line.strip_prefix("breakeven_disk_requests_total{request=\"block_status\"} ")
    });
    let asked: u64 = asked.expect("a count").parse().expect("a number");
    // An answer of 32 bits goes over 4 GiB.
    assert!((1..=2600).contains(&asked), "{asked}");
}

#[test]
fn a_server_that_ends_leaves_a_denser_disk() {
    let folder = made("64MiB");
    let length = || fs::metadata(folder.path().join("d")).expect("a disk").len();
    let mut server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    // Quick methods find nothing in it, and others a half.
    let noise = crate::noise(4 << 20);
    let digits = noise.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    let text: Vec<u8> = digits
        .map(|digit| b"0123456789abcdef"[usize::from(digit)])
        .collect();
    for (number, piece) in text.chunks(64 << 10).enumerate() {
        let error = client.write(0, (number * piece.len()) as u64, piece);
        assert_eq!(error.expect("a reply"), 0);
    }
    assert_eq!(client.request(FLUSH, 0, 0).expect("a reply"), 0);
    let written = length();
    server.end();
    // On a busy machine an end makes less of it dense, and the next one goes on.
    for _ in 0..20 {
        if length() < text.len() as u64 {
            break;
        }
        Server::start(folder.path(), &[]).end();
    }
    let rested = length();
    let server = Server::start(folder.path(), &[]);
    assert!(server.client().read(0, text.len()).expect("bytes") == text);
    server.stop();
    done(&mut breakeven(&["compact", "d"], folder.path()));
    println!(
        "{written} bytes became {rested} at the end, {} by compacting",
        length()
    );
    assert!(rested < text.len() as u64, "{rested}");
}

/// 8 MiB, in blocks of 512 bytes.
const LIMITED: &str = "ulimit -f 16384;";

#[test]
fn a_file_of_limited_length_is_a_full_host() {
    let folder = made("64MiB");
    let serve = breakeven(&["serve", "d", "--reserve=1MiB"], folder.path());
    let mut server = Server::started(behind(LIMITED, &serve), folder.path().join("d.socket"));
    let mut client = server.client();
    let noise = crate::noise(32 << 20);
    let mut written = 0;
    for (number, piece) in noise.chunks(256 << 10).enumerate() {
        let error = client.write(0, (number * piece.len()) as u64, piece);
        match error.expect("a reply") {
            0 => written += piece.len(),
            error => {
                assert_eq!(error, 28, "no space left");
                break;
            }
        }
    }
    assert!((4 << 20..8 << 20).contains(&written), "{written}");
    assert_eq!(client.request(FLUSH, 0, 0).expect("a reply"), 0);
    assert!(client.read(0, written).expect("bytes") == noise[..written]);
    let trimmed = client.request(TRIM, 0, (written / 2) as u32);
    assert_eq!(trimmed.expect("a reply"), 0);
    assert_eq!(client.request(FLUSH, 0, 0).expect("a reply"), 0);
    server.end();
    let server = Server::start(folder.path(), &[]);
    let shown = server.client().read(0, written).expect("bytes");
    assert!(shown[written / 2..] == noise[written / 2..written]);
    assert!(shown[..written / 2].iter().all(|byte| *byte == 0));
}

/// Any command of the program.
pub fn program(words: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
    command.args(words).current_dir(folder).stdin(Stdio::null());
    command
}

/// Every store meets the limit as an error that it names: a signal would end it wherever it stands. What `pack` does is tested
/// beside it.
#[test]
fn commands_outlive_a_limit_of_their_files_and_leave_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let limited = |blocks: u64, program: &Command| {
        let limit = format!("ulimit -f {blocks};");
        let output = behind(&limit, program).output().expect("a shell");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{program:?}: {message}");
        assert!(message.contains("File too large"), "{program:?}: {message}");
    };
    let run = |words: &[&str]| program(words, folder.path());
    fs::write(folder.path().join("image"), crate::noise(16 << 20)).expect("an image");
    let import = ["disk", "import", "d", "image", "--reserve=1MiB"];
    limited(16384, &run(&import));
    done(&mut run(&import));
    limited(16384, &run(&["disk", "export", "d", "out"]));
    limited(8, &run(&["db", "create", "database"]));
    let mut names = vec!["d", "image"];
    if cfg!(feature = "vault") {
        fs::write(folder.path().join("password"), "a password\n").expect("a file");
        let vault =
            |words: &[&str]| run(&[&["vault", "-r", "v", "-p", "password"], words].concat());
        done(&mut vault(&["init"]));
        limited(64, &vault(&["add", "image"]));
        done(&mut vault(&["add", "image"]));
        done(&mut vault(&["verify"]));
        names.extend(["password", "v"]);
    }
    let entries = fs::read_dir(folder.path()).expect("a folder").flatten();
    let mut found: Vec<_> = entries.map(|entry| entry.file_name()).collect();
    found.sort();
    assert_eq!(found, names);
}

/// Returns the lines of code of the guide's part about backups.
fn lines_about_backups() -> Vec<String> {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/disk.md");
    let guide = fs::read_to_string(guide).expect("the guide");
    let (_, part) = guide.split_once("## Backups").expect("a heading");
    let (part, _) = part.split_once("\n## ").expect("another heading");
    let code = part.lines().filter_map(|line| line.strip_prefix("    "));
    code.map(str::to_string).collect()
}

/// A served disk is backed up by the lines of the guide while it is written to: all of it first, then what changed.
#[test]
fn a_served_disk_is_backed_up_by_what_changed() {
    let programs = ["nbdcopy", "nbdinfo", "qemu-img", "qemu-io"];
    if !programs.iter().all(|program| installed(program)) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    image(&path("image"), 16 << 20);
    let import = ["import", "my.disk", "image", "--reserve=1MiB"];
    done(&mut breakeven(&import, folder.path()));
    let serve = breakeven(&["serve", "my.disk", "--reserve=1MiB"], folder.path());
    let mut server = Server::started(serve, path("my.disk.socket"));
    let lines = lines_about_backups();
    let later = lines.iter().position(|line| line.contains("tuesday"));
    let (full, later) = lines.split_at(later.expect("a second day"));
    run_lines(folder.path(), full);
    check_same(&path("image"), &path("monday.raw"));
    let mut client = server.client();
    let changes = crate::noise(300_000);
    assert_eq!(client.write(1, 8_000_123, &changes).expect("a reply"), 0);
    let trimmed = client.request(TRIM, 5 << 20, 1 << 20);
    assert_eq!(trimmed.expect("a reply"), 0);
    done(&mut breakeven(
        &["snapshot", "my.disk", "disk", "between"],
        folder.path(),
    ));
    check_tools_see(&server);
    let told = run_lines(folder.path(), later);
    assert!(told.contains("identical"), "{told}");
    done(
        Command::new("qemu-img")
            .args(["convert", "-O", "raw", "tuesday.qcow2", "restored"])
            .current_dir(folder.path()),
    );
    let mut expected = fs::read(path("image")).expect("an image");
    expected[8_000_123..8_300_123].copy_from_slice(&changes);
    expected[5 << 20..6 << 20].fill(0);
    assert!(fs::read(path("restored")).expect("an image") == expected);
    // It is what changed, and no more than a few of QEMU's clusters beside it.
    let stored_bytes = fs::metadata(path("tuesday.qcow2")).expect("a file").len();
    assert!(stored_bytes < 2_200_000, "{stored_bytes}");
    server.end();
}

/// QEMU and libnbd show what changed since `monday`.
fn check_tools_see(server: &Server) {
    let between = server.address.replacen(":///", ":///between", 1);
    let map = Command::new("nbdinfo")
        .args(["--map=qemu:dirty-bitmap:monday", &between])
        .output()
        .expect("a map");
    let map = String::from_utf8_lossy(&map.stdout).into_owned();
    let dirty: u64 = map
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|words| words[2] == "1")
        .map(|words| words[1].parse::<u64>().expect("a length"))
        .sum();
    assert_eq!(dirty, (8_302_592 - 7_999_488) + (1 << 20), "{map}");
    let options = format!(
        "driver=nbd,export=between,server.type=unix,server.path={},x-dirty-bitmap=qemu:dirty-bitmap:monday",
        server.socket.display()
    );
    let map =
        done(Command::new("qemu-img").args(["map", "--output=json", "--image-opts", &options]));
    // It shows what is dirty as what is not there.
    assert!(
        map.contains("\"start\": 5242880, \"length\": 1048576"),
        "{map}"
    );
    let list = done(Command::new("nbdinfo").args([
        "--map=qemu:dirty-bitmap:monday",
        "--totals",
        &between,
    ]));
    assert!(list.contains("dirty"), "{list}");
}

/// A link in another folder leads every command to the disk, and to its server.
#[test]
fn a_disk_is_reached_through_a_symbolic_link() {
    let folder = made("1MiB");
    let links = tempfile::tempdir().expect("a folder");
    symlink(folder.path().join("d"), links.path().join("link")).expect("a link");
    let through_link = |words: &[&str]| done(&mut breakeven(words, links.path()));
    through_link(&["info", "link"]);
    through_link(&["snapshot", "link", "disk", "before"]);
    through_link(&["compact", "link"]);
    through_link(&["fsck", "link"]);
    let server = Server::start(folder.path(), &[]);
    through_link(&["clone", "link", "before", "copy"]);
    through_link(&["remove", "link", "copy"]);
    server.stop();
    let again = &mut breakeven(&["clone", "link", "before", "disk"], links.path());
    refused(again, 1, "disk");
    assert!(links.path().join("link").is_symlink());
}

#[test]
fn the_last_volume_stays() {
    let folder = made("1MiB");
    let run = |words: &[&str]| done(&mut breakeven(words, folder.path()));
    let remove_last = |name: &str| {
        refused(
            &mut breakeven(&["remove", "d", name], folder.path()),
            1,
            "last",
        )
    };
    remove_last("disk");
    run(&["snapshot", "d", "disk", "kept"]);
    run(&["remove", "d", "disk"]);
    remove_last("kept");
    run(&["clone", "d", "kept", "disk"]);
    run(&["remove", "d", "kept"]);
}
