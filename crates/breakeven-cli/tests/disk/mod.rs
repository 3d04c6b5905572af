//! Disks as their users meet them: stock NBD clients, killed servers, clients that mean harm.

mod client;
mod equal;
mod faults;
pub mod hosts;
mod volumes;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use breakeven::testing::is_full;
use tempfile::TempDir;

use crate::pack::changing::changed_while;
use client::{Client, DISCONNECT, FLUSH, FUA, READ, TRIM, WRITE, WRITE_ZEROES};

const BLOCK_BYTES: usize = 4096;

fn breakeven(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_breakeven"));
    command
        .arg("disk")
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null());
    command
}

fn done(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {message}");
    String::from_utf8(output.stdout).expect("text")
}

fn refused(command: &mut Command, status: i32, word: &str) {
    let output = command.output().expect("the program starts");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{command:?}: {message}");
    assert!(message.contains(word), "'{word}' is missing in: {message}");
}

/// Says whether a program is here, which is an error where everything has to be.
fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("{program} is not installed: nothing tried with it");
        assert!(std::env::var_os("CI").is_none(), "{program}");
    }
    found
}

/// A server that is killed when it is forgotten.
struct Server {
    child: Child,
    address: String,
    socket: PathBuf,
}

impl Server {
    /// Starts a server of the disk `d` in a folder, and waits until it listens.
    fn start(folder: &Path, more: &[&str]) -> Server {
        Server::start_at(folder, folder, more)
    }

    /// The same with its socket in another folder.
    fn start_at(folder: &Path, sockets: &Path, more: &[&str]) -> Server {
        let socket = sockets.join("socket");
        let mut command = breakeven(&["serve", "d"], folder);
        let has_reserve = more.iter().any(|word| word.starts_with("--reserve"));
        if !has_reserve {
            command.arg("--reserve=1MiB");
        }
        let has_port = more.iter().any(|word| word.starts_with("--port"));
        if !has_port {
            command.arg("--socket").arg(&socket);
        }
        command.args(more);
        Server::started(command, socket)
    }

    /// Starts a server by a command, and waits until it listens.
    fn started(mut command: Command, socket: PathBuf) -> Server {
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("the server starts");
        let mut address = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut address).expect("an address");
        assert!(address.starts_with("nbd"), "no address: {address}");
        let address = address.trim().to_string();
        Server {
            child,
            address,
            socket,
        }
    }

    fn client(&self) -> Client {
        Client::connect(&self.socket, "").expect("a client")
    }

    fn kill(mut self) {
        self.child.kill().expect("a running server");
        self.child.wait().expect("a dead server");
    }

    /// Ends the server as its operator does.
    fn end(&mut self) {
        let process = self.child.id().to_string();
        done(Command::new("kill").args(["-TERM", &process]));
        assert!(self.child.wait().expect("an ended server").success());
    }

    /// The same, and its socket is gone.
    fn stop(mut self) {
        self.end();
        assert!(!self.socket.exists(), "the socket is left");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn made(size: &str) -> TempDir {
    made_in("disk", size)
}

/// Makes a disk in a new folder whose name begins so.
fn made_in(prefix: &str, size: &str) -> TempDir {
    let folder = tempfile::Builder::new().prefix(prefix).tempdir();
    let folder = folder.expect("a temporary folder");
    done(&mut breakeven(
        &["create", "d", "--size", size],
        folder.path(),
    ));
    folder
}

/// Makes a sparse image with text, noise and blocks that are alike.
fn image(path: &Path, size_bytes: u64) {
    let file = File::create(path).expect("an image");
    file.set_len(size_bytes).expect("an image");
    let mut text = Vec::new();
    for line in 0..30_000 {
        text.extend_from_slice(format!("{line} the quick brown fox {}\n", line % 97).as_bytes());
    }
    file.write_all_at(&text, 70_000).expect("an image");
    file.write_all_at(&crate::noise(500_000), 3 << 20)
        .expect("an image");
    file.write_all_at(&vec![7; 1 << 20], 5 << 20)
        .expect("an image");
}

fn check_same(one: &Path, other: &Path) {
    let (one, other) = (
        fs::read(one).expect("a file"),
        fs::read(other).expect("a file"),
    );
    assert!(
        one == other,
        "{} and {} bytes differ",
        one.len(),
        other.len()
    );
}

#[test]
fn stock_clients_copy_images_in_and_out() {
    if !installed("nbdcopy") || !installed("nbdinfo") || !installed("qemu-img") {
        return;
    }
    // A name that an address has to spell otherwise.
    let folder = made_in("a disk & more", "16MiB");
    let path = |name: &str| folder.path().join(name);
    image(&path("image"), 16 << 20);
    let server = Server::start(folder.path(), &["--metrics", "metrics"]);
    let address = &server.address;
    let info = done(Command::new("nbdinfo").arg(address));
    for word in [
        "export-size: 16777216",
        "can_multi_conn: true",
        "base:allocation",
    ] {
        assert!(info.contains(word), "{info}");
    }
    done(
        Command::new("nbdcopy")
            .arg("--flush")
            .arg(path("image"))
            .arg(address),
    );
    done(Command::new("nbdcopy").arg(address).arg(path("back")));
    check_same(&path("image"), &path("back"));
    let map = done(Command::new("nbdinfo").args(["--map", address]));
    assert!(map.contains("hole,zero") && map.contains("data"), "{map}");
    // The line of docs/disk.md.
    done(
        Command::new("qemu-img")
            .args(["convert", "-f", "raw", "-O", "qcow2"])
            .arg(path("image"))
            .arg(path("qcow2")),
    );
    done(
        Command::new("qemu-img")
            .args(["convert", "-n", "-O", "raw"])
            .arg(path("qcow2"))
            .arg(address),
    );
    done(
        Command::new("qemu-img")
            .args(["compare", "-f", "raw", "-F", "raw", address])
            .arg(path("image")),
    );
    server.stop();
    let metrics = fs::read_to_string(path("metrics")).expect("metrics");
    assert!(
        metrics.contains("breakeven_disk_requests_total{request=\"write\"}"),
        "{metrics}"
    );
    done(&mut breakeven(&["export", "d", "out"], folder.path()));
    check_same(&path("image"), &path("out"));
    let fsck = done(&mut breakeven(&["fsck", "d"], folder.path()));
    assert!(
        fsck.contains("disk: 2.") && fsck.contains("all good"),
        "{fsck}"
    );
}

/// What is asked of a server is there for the next client, and what it cannot do is told.
fn check_changes_while_served(server: &Server, folder: &Path) {
    let run = |arguments: &[&str]| done(&mut breakeven(arguments, folder));
    run(&["clone", "d", "test", "more"]);
    run(&["remove", "d", "disk"]);
    let mut more = Client::connect(&server.socket, "more").expect("a client");
    assert_eq!(more.read(1, 7).expect("bytes"), b"changed");
    run(&["clone", "d", "before", "disk"]);
    let refusals = [
        (&["clone", "d", "none", "x"][..], "none"),
        (&["snapshot", "d", "disk", "more"], "already"),
        (&["remove", "d", "none"], "none"),
        (&["compact", "d"], "end its server"),
        (&["fsck", "d"], "end its server"),
    ];
    for (words, word) in refusals {
        refused(&mut breakeven(words, folder), 1, word);
    }
    run(&["clone", "d", "disk", "waste"]);
    let mut waste = Client::connect(&server.socket, "waste").expect("a client");
    assert_eq!(
        waste.write(0, 0, &crate::noise(8 << 20)).expect("a reply"),
        0
    );
    run(&["remove", "d", "waste"]);
}

/// On TCP it is this machine's alone, and stock clients come in as on a socket.
#[test]
fn a_port_is_served_on_loopback() {
    if !installed("nbdcopy") {
        return;
    }
    let folder = made("16MiB");
    let path = |name: &str| folder.path().join(name);
    image(&path("image"), 16 << 20);
    let server = Server::start(folder.path(), &["--port=0"]);
    let port = server.address.rsplit(':').next().expect("a port");
    let listening = fs::read_to_string("/proc/net/tcp").expect("a list");
    let port = port.trim_end_matches('/').parse::<u16>().expect("a number");
    // The kernel writes addresses backwards.
    let own = format!("0100007F:{port:04X} 00000000:0000 0A");
    assert!(listening.contains(&own), "{own} is not in {listening}");
    let address = &server.address;
    let mut copy = Command::new("nbdcopy");
    done(copy.arg("--flush").arg(path("image")).arg(address));
    done(Command::new("nbdcopy").arg(address).arg(path("back")));
    check_same(&path("image"), &path("back"));
    server.stop();
}

/// What advice says of an image is what its import takes, about.
#[test]
fn an_image_is_foretold_by_advice() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    image(&path("image"), 16 << 20);
    let disk = File::options().write(true).open(path("image"));
    // The end of a boot sector makes it an image.
    disk.and_then(|disk| disk.write_all_at(b"\x55\xaa", 510))
        .expect("an image");
    let cache = tempfile::tempdir().expect("a temporary folder");
    let advise = |name: &str| {
        let words: [&dyn AsRef<std::ffi::OsStr>; 4] =
            [&"advise", &"--time=1", &"--medium=hdd", &path(name)];
        let output = crate::run(&cache, &words);
        String::from_utf8_lossy(&output.stdout).replace('\n', " ")
    };
    let told = advise("image");
    assert!(told.contains("would be a file of"), "{told}");
    assert!(told.contains("breakeven disk import"), "{told}");
    let (_, rest) = told.split_once("would be a file of ").expect("a size");
    let words: Vec<&str> = rest.split_whitespace().take(2).collect();
    let number: f64 = words[0].parse().expect("a number");
    let unit = match words[1] {
        "MB" => 1e6,
        "kB" => 1e3,
        unit => panic!("{unit}: {told}"),
    };
    let mut import = breakeven(&["import", "d", "image", "--reserve=1MiB"], folder.path());
    done(&mut import);
    let stored = fs::metadata(path("d")).expect("a file").len() as f64;
    let foretold = number * unit;
    assert!(
        (0.8..1.25).contains(&(foretold / stored)),
        "{foretold} {stored}"
    );
    // Of one that is not raw the way in is told.
    fs::write(path("qcow2"), [&b"QFI\xfb"[..], &[0; 70_000]].concat()).expect("a file");
    assert!(advise("qcow2").contains("qemu-img convert"));
}

#[test]
fn what_cannot_be_made_is_refused_and_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    done(&mut breakeven(
        &["create", "d", "--size=1MiB"],
        folder.path(),
    ));
    refused(
        &mut breakeven(&["clone", "d", "none", "more"], folder.path()),
        1,
        "none",
    );
    refused(
        &mut breakeven(&["create", "d", "--size=1MiB"], folder.path()),
        1,
        "d",
    );
    refused(
        &mut breakeven(&["create", "e", "--size=5000000000000000"], folder.path()),
        1,
        "expected 1 to",
    );
    assert!(!path("e").exists(), "a disk that was refused is left");
    refused(
        &mut breakeven(
            &["create", "e", "--size=1MiB", "--block-size=3KiB"],
            folder.path(),
        ),
        2,
        "power",
    );
    fs::write(path("qcow2"), b"QFI\xfb and more").expect("a file");
    refused(
        &mut breakeven(&["import", "f", "qcow2"], folder.path()),
        1,
        "qemu-img convert",
    );
}

#[test]
fn a_file_where_the_socket_goes_is_left_alone() {
    let folder = made("1MiB");
    fs::write(folder.path().join("notes"), b"mine").expect("a file");
    for socket in ["notes", "d"] {
        let before = fs::read(folder.path().join(socket)).expect("a file");
        let mut serve = breakeven(&["serve", "d", "--socket", socket], folder.path());
        refused(&mut serve, 1, "in use");
        let after = fs::read(folder.path().join(socket)).expect("a file");
        assert!(before == after, "{socket} was changed");
    }
}

#[test]
fn an_image_that_changes_while_it_is_imported_makes_no_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let bytes = 24 << 20;
    let import = || {
        let _ = fs::remove_file(path("d"));
        fs::write(path("image"), crate::noise(bytes)).expect("an image");
        breakeven(&["import", "d", "image", "--reserve=1MiB"], folder.path())
    };
    let open = || File::options().append(true).open(path("image"));
    let cut = || {
        open()
            .and_then(|it| it.set_len(1 << 20))
            .expect("it is cut")
    };
    let grow = || {
        open()
            .and_then(|mut it| it.write_all(b"more"))
            .expect("it grows")
    };
    let within = (2 << 20)..bytes as u64 - (1 << 20);
    for change in [&cut as &dyn Fn(), &grow] {
        let output = changed_while(import, within.clone(), change);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("while it was read"), "{message}");
        assert!(!path("d").exists());
    }
}

#[test]
fn images_are_imported_copied_and_removed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    let run = |arguments: &[&str]| done(&mut breakeven(arguments, folder.path()));
    image(&path("image"), 16 << 20);
    run(&["import", "d", "image", "--reserve=1MiB"]);
    run(&["clone", "d", "disk", "test"]);
    run(&["snapshot", "d", "disk", "before"]);
    let server = Server::start(folder.path(), &[]);
    let mut test = Client::connect(&server.socket, "test").expect("a client");
    assert_eq!(test.write(FUA, 1, b"changed").expect("a reply"), 0);
    let mut before = Client::connect(&server.socket, "before").expect("a client");
    assert_eq!(before.write(0, 1, b"changed").expect("a reply"), 1);
    check_changes_while_served(&server, folder.path());
    server.stop();
    assert!(!path("d.control").exists(), "the socket is left");
    let stored = |name: &str| fs::metadata(path(name)).expect("a file").len();
    let before = stored("d");
    assert!(run(&["compact", "d"]).contains("became"));
    println!("{before} bytes became {}", stored("d"));
    assert!(stored("d") < before);
    let exported = [
        ("disk", "one"),
        ("before", "two"),
        ("test", "three"),
        ("more", "four"),
    ];
    for (volume, file) in exported {
        run(&["export", "d", file, "--volume", volume]);
    }
    check_same(&path("image"), &path("one"));
    check_same(&path("image"), &path("two"));
    check_same(&path("three"), &path("four"));
    let three = fs::read(path("three")).expect("a file");
    assert_eq!(&three[..9], b"\0changed\0");
    let info = run(&["info", "d"]);
    assert!(
        info.contains("snapshot before: 16.0 MiB") && info.contains("volume test"),
        "{info}"
    );
    run(&["remove", "d", "before"]);
    assert!(!run(&["info", "d"]).contains("before"));
}

/// What a block may hold: the numbers of the writes since the last that is durable.
#[derive(Clone)]
struct Allowed {
    first: u64,
    last: u64,
}

/// Makes the block of a write; every eighth part of it says which.
fn stamped(number: u64) -> Vec<u8> {
    let mut block = number.to_le_bytes().repeat(BLOCK_BYTES / 8);
    if number == 0 {
        block.fill(0);
    }
    block
}

/// Checks that every block is whole and one of those it may be, and knows it from then on.
fn check_blocks(kill: u64, client: &mut Client, allowed: &mut [Allowed]) {
    for (index, allowed) in allowed.iter_mut().enumerate() {
        let block = client
            .read((index * BLOCK_BYTES) as u64, BLOCK_BYTES)
            .expect("a block");
        let found = u64::from_le_bytes(*block.first_chunk().expect("eight bytes"));
        assert!(
            block == stamped(found),
            "kill {kill}: block {index} is torn"
        );
        let Allowed { first, last } = *allowed;
        let is_allowed = found >= first && found <= last;
        assert!(
            is_allowed,
            "kill {kill}: block {index} is {found}, not {first} to {last}"
        );
        *allowed = Allowed {
            first: found,
            last: found,
        };
    }
}

#[test]
fn requests_in_flight_are_each_answered_whatever_the_order() {
    const COUNT: u64 = 48;
    let folder = made("64MiB");
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    // Short ones, and some that several threads encode and read together.
    let length = |number: u64| BLOCK_BYTES << (number % 8);
    let offset = |number: u64| number << 20;
    let content = |number: u64| {
        let blocks = (0..length(number) / BLOCK_BYTES).map(|at| stamped(number + 1 + at as u64));
        blocks.collect::<Vec<_>>().concat()
    };
    let mut sending = client.stream.try_clone().map(|stream| Client { stream });
    let sending = sending.as_mut().expect("the same stream");
    let replies = std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COUNT {
                let bytes = content(number);
                let sent = sending.send_as(number, (0, WRITE), offset(number), bytes.len() as u32);
                sent.and_then(|()| sending.stream.write_all(&bytes))
                    .expect("a request");
            }
        });
        (0..COUNT)
            .map(|_| client.reply().expect("a reply"))
            .collect()
    });
    let mut replies: Vec<(u64, u32)> = replies;
    replies.sort_unstable();
    assert!(replies.into_iter().eq((0..COUNT).map(|number| (number, 0))));
    for number in 0..COUNT {
        let bytes = length(number) as u32;
        let sent = client.send_as(number, (0, READ), offset(number), bytes);
        sent.expect("a request");
    }
    client.send(0, DISCONNECT, 0, 0).expect("the last request");
    let mut seen = 0;
    for _ in 0..COUNT {
        let (number, error) = client.reply().expect("a reply");
        assert_eq!(error, 0);
        let mut bytes = vec![0; length(number)];
        client.stream.read_exact(&mut bytes).expect("its bytes");
        assert!(bytes == content(number), "request {number}");
        seen |= 1u64 << number;
    }
    assert_eq!(seen, (1 << COUNT) - 1);
    assert!(client.reply().is_err(), "more than was asked for");
}

#[test]
fn a_killed_server_loses_nothing_that_was_flushed_and_tears_no_block() {
    let folder = made("1MiB");
    let kills = if is_full() { 200 } else { 20 };
    let mut state = 2014u64;
    let mut random = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let blocks = (1 << 20) / BLOCK_BYTES;
    let mut allowed = vec![Allowed { first: 0, last: 0 }; blocks];
    let (mut number, mut flushes) = (0, 0);
    for kill in 0..kills {
        let server = Server::start(folder.path(), &[]);
        let mut client = server.client();
        check_blocks(kill, &mut client, &mut allowed);
        // A second client, in whose middle of a write the server dies.
        let mut other = server.client();
        other
            .send(0, WRITE, 0, BLOCK_BYTES as u32)
            .expect("a request");
        for _ in 0..100 + random(400) {
            number += 1;
            let index = 1 + random(blocks as u64 - 1);
            let flags = if random(50) == 0 { FUA } else { 0 };
            allowed[index as usize].last = number;
            let error = client.write(flags, index * BLOCK_BYTES as u64, &stamped(number));
            assert_eq!(error.expect("a reply"), 0);
            if flags == FUA || random(40) == 0 {
                assert_eq!(client.request(FLUSH, 0, 0).expect("a reply"), 0);
                allowed
                    .iter_mut()
                    .for_each(|allowed| allowed.first = allowed.last);
                flushes += 1;
            }
        }
        // Requests that nobody waits for are running when the server dies.
        for _ in 0..random(20) {
            number += 1;
            let index = 1 + random(blocks as u64 - 1);
            allowed[index as usize].last = number;
            client
                .send(0, WRITE, index * BLOCK_BYTES as u64, BLOCK_BYTES as u32)
                .expect("a request");
            client
                .stream
                .write_all(&stamped(number))
                .expect("a request");
        }
        server.kill();
    }
    println!("{kills} kills, {number} writes, {flushes} flushes");
    assert!(number > kills * 100 && flushes > kills * 2);
}

fn shake_hands_badly(server: &Server) {
    // Another protocol, another magic, an option of 4 GiB, options without end.
    let mut bad = Client::greet(&server.socket).expect("a greeting");
    bad.stream
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("bytes");
    assert!(bad.option_reply().is_err());
    let mut bad = Client::greet(&server.socket).expect("a greeting");
    bad.stream
        .write_all(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff")
        .expect("bytes");
    assert!(bad.option_reply().is_err());
    let mut bad = Client::greet(&server.socket).expect("a greeting");
    for data in [
        &b""[..],
        b"\xff\xff\xff\xff",
        b"\0\0\0\x04disk\0\x09",
        b"\0\0\0\x01x\0\0",
    ] {
        bad.option(7, data).expect("an option");
        assert!(bad.option_reply().expect("a refusal") > 1 << 31);
    }
    for data in [
        &b""[..],
        b"\0\0\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\0\0\x01\0\0\0\xff",
    ] {
        bad.option(9, data).expect("an option");
        assert!(bad.option_reply().expect("a refusal") > 1 << 31);
    }
    // TLS is refused with a sentence, and an unknown option too.
    for option in [5, 77] {
        bad.option(option, b"").expect("an option");
        assert!(bad.option_reply().expect("a refusal") > 1 << 31);
    }
}

#[test]
fn bad_clients_hurt_nobody() {
    let folder = made("1MiB");
    let server = Server::start(folder.path(), &["--connections=24"]);
    let mut good = server.client();
    assert_eq!(good.write(0, 0, &[5; BLOCK_BYTES]).expect("a reply"), 0);
    shake_hands_badly(&server);
    // Requests that cannot be; the connection goes on.
    let mut bad = server.client();
    for (kind, offset, length) in [
        (READ, 1 << 20, 1),
        (READ, u64::MAX, 4096),
        (READ, 0, u32::MAX),
        (TRIM, 1, u32::MAX),
        (WRITE_ZEROES, u64::MAX, u32::MAX),
        (7, 0, 4096),
        (99, 0, 0),
    ] {
        assert_ne!(
            bad.request(kind, offset, length).expect("a refusal"),
            0,
            "{kind}"
        );
    }
    bad.send(0xFF00, TRIM, 0, 4096).expect("a request");
    assert_eq!(bad.error().expect("a refusal"), 22);
    assert_eq!(bad.write(0, (1 << 20) - 1, b"ab").expect("a refusal"), 28);
    // A write of 4 GiB ends the connection.
    bad.send(0, WRITE, 0, u32::MAX).expect("a request");
    assert!(bad.error().is_err());
    // Some vanish in a request, some stop reading.
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut bad = server.client();
        bad.send(0, WRITE, 0, 1 << 20).expect("a request");
        bad.stream.write_all(&[1; 1000]).expect("a part");
        drop(bad);
        let mut bad = server.client();
        for _ in 0..4 {
            bad.send(0, READ, 0, 1 << 20).expect("a request");
        }
        idle.push(bad);
    }
    assert_eq!(
        good.read(0, BLOCK_BYTES).expect("a block"),
        [5; BLOCK_BYTES]
    );
    assert_eq!(good.request(FLUSH, 0, 0).expect("a reply"), 0);
    let status =
        fs::read_to_string(format!("/proc/{}/status", server.child.id())).expect("a status");
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .expect("a peak");
    let peak_kib: u64 = peak
        .trim()
        .trim_end_matches(" kB")
        .parse()
        .expect("a number");
    assert!(peak_kib < 256 << 10, "{peak_kib} KiB");
    server.stop();
}

#[test]
fn fio_verifies_what_it_wrote() {
    if !installed("fio") {
        return;
    }
    let folder = made("64MiB");
    let server = Server::start(folder.path(), &[]);
    let uri = format!("--uri={}", server.address);
    let fio = |more: &[&str]| {
        let mut command = Command::new("fio");
        command.args([
            "--name=verify",
            "--ioengine=nbd",
            &uri,
            "--verify=crc32c",
            "--iodepth=16",
        ]);
        done(command.args(more).current_dir(folder.path()))
    };
    fio(&["--rw=randwrite", "--bs=4k", "--size=8m", "--fsync=32"]);
    fio(&[
        "--rw=randwrite",
        "--bsrange=512-64k",
        "--bs_unaligned",
        "--size=16m",
    ]);
    fio(&["--rw=write", "--bs=1m", "--size=32m"]);
    server.stop();
}

/// A loop device over an export that is shown as a file.
struct Mounted {
    folder: PathBuf,
    fuse: Child,
    device: String,
}

impl Mounted {
    fn attach(folder: &Path, server: &Server) -> Mounted {
        let file = folder.join("exported");
        File::create(&file).expect("a place");
        let mut fuse = Command::new("nbdfuse");
        fuse.arg("--pidfile")
            .arg(folder.join("fuse.pid"))
            .arg(&file)
            .arg(&server.address);
        let fuse = fuse.spawn().expect("nbdfuse starts");
        // It writes its number when the file is there.
        while fs::metadata(folder.join("fuse.pid")).map_or(0, |found| found.len()) == 0 {
            std::thread::yield_now();
        }
        let device = done(
            Command::new("losetup")
                .args(["--find", "--show"])
                .arg(&file),
        );
        let (folder, device) = (folder.to_path_buf(), device.trim().to_string());
        Mounted {
            folder,
            fuse,
            device,
        }
    }

    fn mount(&self) -> PathBuf {
        let point = self.folder.join("mounted");
        fs::create_dir_all(&point).expect("a place");
        done(Command::new("mount").arg(&self.device).arg(&point));
        point
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg(self.folder.join("mounted"))
            .output();
        let _ = Command::new("losetup")
            .args(["--detach", &self.device])
            .output();
        let _ = Command::new("fusermount3")
            .arg("-u")
            .arg(self.folder.join("exported"))
            .output();
        let _ = self.fuse.wait();
        let _ = fs::remove_file(self.folder.join("fuse.pid"));
    }
}

#[test]
fn root_ext4_lives_on_a_disk_whose_server_is_killed() {
    if std::env::var("BREAKEVEN_ROOT_TESTS").is_err() || !installed("nbdfuse") {
        return;
    }
    let folder = made("64MiB");
    let server = Server::start(folder.path(), &[]);
    let mounted = Mounted::attach(folder.path(), &server);
    done(Command::new("mkfs.ext4").args(["-q", &mounted.device]));
    let point = mounted.mount();
    let synced: Vec<Vec<u8>> = (0..20)
        .map(|number| crate::noise(20_000 + number * 777))
        .collect();
    for (number, bytes) in synced.iter().enumerate() {
        fs::write(point.join(format!("file-{number}")), bytes).expect("a file");
    }
    done(Command::new("sync").arg("--file-system").arg(&point));
    for number in 0..20 {
        fs::write(point.join(format!("later-{number}")), crate::noise(30_000)).expect("a file");
    }
    server.kill();
    drop(mounted);
    let server = Server::start(folder.path(), &[]);
    let mounted = Mounted::attach(folder.path(), &server);
    // The first replays the journal, the second finds nothing wrong.
    let _ = Command::new("e2fsck")
        .args(["-fp", &mounted.device])
        .output();
    done(Command::new("e2fsck").args(["-fn", &mounted.device]));
    let point = mounted.mount();
    for (number, bytes) in synced.iter().enumerate() {
        let found = fs::read(point.join(format!("file-{number}"))).expect("a file");
        assert!(found == *bytes, "file {number}");
    }
    drop(mounted);
    server.stop();
}

/// A MariaDB whose files lie on a mounted disk.
struct Database {
    child: Child,
    socket: PathBuf,
}

impl Database {
    fn start(folder: &Path, point: &Path) -> Database {
        let socket = folder.join("mariadb");
        let mut command = Command::new("mariadbd");
        command
            .args(["--no-defaults", "--user=root", "--skip-networking"])
            .arg(format!("--datadir={}", point.join("db").display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", folder.join("pid").display()))
            .stderr(Stdio::null());
        let child = command.spawn().expect("MariaDB starts");
        let mut database = Database { child, socket };
        let ask = |database: &Database| database.client("SELECT 1").output().expect("a client");
        while !ask(&database).status.success() {
            assert!(database.child.try_wait().expect("a child").is_none());
            std::thread::yield_now();
        }
        database
    }

    fn client(&self, statements: &str) -> Command {
        let mut command = Command::new("mariadb");
        command
            .args(["--no-defaults", "--batch", "--skip-column-names"])
            .arg(format!("--socket={}", self.socket.display()))
            .args(["--execute", statements]);
        command
    }

    fn ask(&self, statements: &str) -> String {
        done(&mut self.client(statements)).trim().to_string()
    }

    fn stop(mut self) {
        self.ask("SHUTDOWN");
        assert!(self.child.wait().expect("an ended MariaDB").success());
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `docs/disk.md` shows.
#[test]
fn root_mariadb_lives_on_a_disk_and_in_its_clone() {
    let is_root_test = std::env::var("BREAKEVEN_ROOT_TESTS").is_ok();
    if !is_root_test || !installed("nbdfuse") || !installed("mariadbd") {
        return;
    }
    let folder = made("1GiB");
    let server = Server::start(folder.path(), &[]);
    let mounted = Mounted::attach(folder.path(), &server);
    done(Command::new("mkfs.ext4").args(["-q", &mounted.device]));
    let point = mounted.mount();
    done(
        Command::new("mariadb-install-db")
            .args(["--no-defaults", "--user=root", "--skip-test-db"])
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", point.join("db").display())),
    );
    let database = Database::start(folder.path(), &point);
    database.ask("CREATE DATABASE a; USE a; CREATE TABLE b SELECT seq AS c FROM seq_1_to_5000");
    database.stop();
    drop(mounted);
    let stored_bytes = || fs::metadata(folder.path().join("d")).expect("a file").len();
    let before = stored_bytes();
    done(&mut breakeven(
        &["clone", "d", "disk", "test"],
        folder.path(),
    ));
    println!("{before} bytes, with a clone {}", stored_bytes());
    server.stop();
    // The clone is changed, and the original is as it was.
    for (volume, expected) in [("test", "5000"), ("test", "4000"), ("disk", "5000")] {
        let server = Server::start(folder.path(), &["--volume", volume]);
        let mounted = Mounted::attach(folder.path(), &server);
        let database = Database::start(folder.path(), &mounted.mount());
        assert_eq!(
            database.ask("SELECT COUNT(*) FROM a.b"),
            expected,
            "{volume}"
        );
        if volume == "test" {
            database.ask("DELETE FROM a.b WHERE c > 4000");
        }
        database.stop();
        drop(mounted);
        server.stop();
    }
}

/// What a server, `fsck` and `info` say of a disk.
fn said_of(folder: &Path) -> (i32, String) {
    let fsck = breakeven(&["fsck", "d"], folder).output().expect("starts");
    let info = breakeven(&["info", "d"], folder).output().expect("starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let status = fsck.status.code().expect("a status");
    let said = text(&fsck.stdout) + &text(&fsck.stderr);
    let found = text(&info.stdout) + &text(&info.stderr);
    let remarks = |said: &str| -> Vec<String> {
        let lines = said.lines().filter(|line| !line.starts_with("disk:"));
        let lines =
            lines.filter(|line| !line.starts_with("volume ") && !line.starts_with("stored:"));
        lines.map(String::from).collect()
    };
    assert_eq!(remarks(&said), remarks(&found), "both say the same");
    (status, said)
}

/// Two sessions, of which one ends in each way; then one bit in either superblock, and files that were cut.
#[test]
fn a_broken_superblock_loses_no_session_and_what_is_wrong_is_told() {
    for is_killed in [false, true] {
        let folder = made("8MiB");
        let path = folder.path().join("d");
        for session in 1..=2 {
            let server = Server::start(folder.path(), &[]);
            let mut client = server.client();
            for block in 0..200 {
                let bytes = [session; BLOCK_BYTES];
                let at = block * BLOCK_BYTES as u64;
                assert_eq!(client.write(0, at, &bytes).expect("a reply"), 0);
            }
            assert_eq!(client.request(FLUSH, 0, 0).expect("a reply"), 0);
            if session == 2 && is_killed {
                server.kill();
            } else {
                drop(client);
                server.stop();
            }
        }
        let whole = fs::read(&path).expect("a disk");
        let (status, said) = said_of(folder.path());
        assert!(status == 0 && !said.contains("superblock"), "{said}");
        for at in [100, 4096 + 100] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, &bytes).expect("written");
            let (status, said) = said_of(folder.path());
            assert!(status == 0, "{said}");
            assert!(said.contains("one of the two superblocks"), "{said}");
            let mut command = breakeven(&["serve", "d", "--read-only"], folder.path());
            command.stderr(Stdio::piped()).stdout(Stdio::piped());
            command.arg("--socket").arg(folder.path().join("socket"));
            let mut child = command.spawn().expect("the server starts");
            let mut line = String::new();
            let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
            out.read_line(&mut line).expect("an address");
            let mut client = Client::connect(&folder.path().join("socket"), "").expect("a client");
            assert_eq!(
                client.read(199 * BLOCK_BYTES as u64, 3).expect("bytes"),
                [2; 3]
            );
            child.kill().expect("a running server");
            child.wait().expect("a dead server");
            let _ = fs::remove_file(folder.path().join("socket"));
            let mut told = String::new();
            let mut stderr = child.stderr.take().expect("a pipe");
            stderr.read_to_string(&mut told).expect("text");
            assert!(told.contains("one of the two superblocks"), "{told}");
        }
        // Whatever is cut is told, but for room that was never used; it is a loss where one may be.
        let used = whole.iter().rposition(|byte| *byte != 0).expect("a disk") as u64 + 1;
        for kept in (8192..whole.len() as u64).step_by(60_000) {
            fs::write(&path, &whole).expect("written");
            let file = File::options().write(true).open(&path).expect("a disk");
            file.set_len(kept).expect("cut");
            let fsck = breakeven(&["fsck", "d"], folder.path())
                .output()
                .expect("starts");
            let said =
                String::from_utf8_lossy(&fsck.stdout) + String::from_utf8_lossy(&fsck.stderr);
            let is_said =
                fsck.status.code() == Some(1) || said.contains("not whole") || said.contains("cut");
            assert!(is_said || kept >= used, "{kept} of {}: {said}", whole.len());
        }
    }
}

/// Two blocks that rot are named, all others are read, and can be had.
#[test]
fn what_cannot_be_read_is_named_and_the_rest_is_exported() {
    let folder = made("8MiB");
    let path = |name: &str| folder.path().join(name);
    let mut content = crate::noise(64 * BLOCK_BYTES);
    let server = Server::start(folder.path(), &[]);
    let mut client = server.client();
    assert_eq!(client.write(FUA, 0, &content).expect("a reply"), 0);
    drop(client);
    server.stop();
    let whole = fs::read(path("d")).expect("a disk");
    let mut bytes = whole.clone();
    for block in [5, 60] {
        let stored = &content[block * BLOCK_BYTES..][..64];
        let at = bytes.windows(64).position(|found| found == stored);
        bytes[at.expect("noise is stored as it is") + 10] ^= 1;
    }
    fs::write(path("d"), bytes).expect("written");
    let (status, said) = said_of(folder.path());
    assert_eq!(status, 1, "{said}");
    for place in [
        "bytes 20480 to 24576",
        "bytes 245760 to 249856",
        "(8192 bytes)",
    ] {
        assert!(said.contains(place), "{said}");
    }
    refused(
        &mut breakeven(&["export", "d", "out"], folder.path()),
        1,
        "corrupt",
    );
    let _ = fs::remove_file(path("out"));
    let skip = ["export", "d", "out", "--skip-damaged"];
    refused(
        &mut breakeven(&skip, folder.path()),
        1,
        "bytes 20480 to 24576",
    );
    for block in [5, 60] {
        content[block * BLOCK_BYTES..][..BLOCK_BYTES].fill(0);
    }
    assert!(fs::read(path("out")).expect("an image")[..content.len()] == content);
    // What cannot be used at all is repaired as a database is.
    let mut bytes = whole;
    bytes[..8192].fill(0);
    fs::write(path("d"), bytes).expect("written");
    refused(
        &mut breakeven(&["fsck", "d"], folder.path()),
        1,
        "superblock",
    );
    let repaired = done(&mut breakeven(&["fsck", "--repair", "d"], folder.path()));
    assert!(repaired.contains("256 KiB read, all good"), "{repaired}");
    let (status, said) = said_of(folder.path());
    assert!(status == 0 && said.lines().count() == 1, "{said}");
}
