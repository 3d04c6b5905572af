//! Volumes of any length: to the byte in and out, from a pipe, longer and shorter.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::client::Client;
use super::{Server, breakeven, check_same, done, image, installed, made, refused};

/// Lengths that are no multiple of a block, of a sector, and shorter than a block.
const ODD: [u64; 3] = [(8 << 20) + 512, (7 << 20) + 1, 777];

/// Starts an import from a pipe.
fn import_of_stream(folder: &Path, disk: &str) -> Child {
    let mut import = breakeven(&["import", disk, "-", "--reserve=1MiB"], folder);
    let started = import.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
    started.expect("the program starts")
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.flatten().map(name).collect();
    names.sort();
    names
}

#[test]
fn images_of_any_length_come_back_to_the_byte() {
    let has_copy = installed("nbdcopy");
    for size_bytes in ODD {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        image(&path("whole"), 8 << 20);
        let mut bytes = fs::read(path("whole")).expect("an image");
        bytes.resize(size_bytes as usize, 7);
        fs::write(path("image"), &bytes).expect("an image");
        done(&mut breakeven(
            &["import", "d", "image", "--reserve=1MiB"],
            folder.path(),
        ));
        let piped = File::open(path("image")).expect("an image");
        let mut import = breakeven(&["import", "e", "-", "--reserve=1MiB"], folder.path());
        done(import.stdin(piped));
        done(&mut breakeven(&["export", "e", "piped"], folder.path()));
        check_same(&path("image"), &path("piped"));
        let server = Server::start(folder.path(), &[]);
        if has_copy {
            let mut copy = Command::new("nbdcopy");
            done(copy.arg(&server.address).arg(path("served")));
            check_same(&path("image"), &path("served"));
        }
        let mut client = server.client();
        let last = client.write(1, size_bytes - 1, b"!").expect("a reply");
        let behind = client.write(0, size_bytes - 1, b"!!").expect("a reply");
        assert_eq!((last, behind), (0, 28), "the last byte, and one more");
        server.stop();
        done(&mut breakeven(&["export", "d", "out"], folder.path()));
        let mut image = fs::read(path("image")).expect("an image");
        *image.last_mut().expect("bytes") = b'!';
        assert!(fs::read(path("out")).expect("an image") == image);
        let info = done(&mut breakeven(&["info", "d"], folder.path()));
        assert!(info.contains(&format!("({size_bytes} bytes)")), "{info}");
    }
}

#[test]
fn zeros_from_a_pipe_take_nothing_and_none_are_no_image() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut import = import_of_stream(folder.path(), "d");
    let mut pipe = import.stdin.take().expect("a pipe");
    let zeros = vec![0; 1 << 20];
    for _ in 0..64 {
        pipe.write_all(&zeros).expect("a reader");
    }
    // A reader that gets little at a time.
    pipe.write_all(b"the end").expect("a reader");
    drop(pipe);
    assert!(import.wait().expect("the program ends").success());
    let info = done(&mut breakeven(&["info", "d"], folder.path()));
    assert!(info.contains("(67108871 bytes)"), "{info}");
    let stored_bytes = fs::metadata(folder.path().join("d")).expect("a disk").len();
    assert!(stored_bytes < 1 << 20, "{stored_bytes}");
    for (content, word) in [(&b""[..], "it is empty"), (b"QFI\xfb and more", "qemu-img")] {
        fs::write(folder.path().join("content"), content).expect("a file");
        let content = File::open(folder.path().join("content")).expect("a file");
        let mut import = breakeven(&["import", "e", "-", "--reserve=1MiB"], folder.path());
        refused(import.stdin(content), 1, word);
    }
    assert_eq!(names_in(folder.path()), ["content", "d"]);
}

#[test]
fn an_import_that_is_interrupted_at_a_pipe_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for signal in ["-INT", "-QUIT", "-XCPU", "-ALRM", "-USR1"] {
        let mut import = import_of_stream(folder.path(), "d");
        let mut pipe = import.stdin.take().expect("a pipe");
        // More than a pipe holds: by then it reads, and waits for more.
        pipe.write_all(&crate::noise(4 << 20)).expect("a reader");
        let process = import.id().to_string();
        done(Command::new("kill").args([signal, &process]));
        let output = import.wait_with_output().expect("the program ends");
        assert!(!output.status.success());
        drop(pipe);
        let left = names_in(folder.path());
        assert!(left.is_empty(), "{signal}: {left:?}");
    }
}

/// A FIFO is a stream under a name.
#[test]
fn a_fifo_is_imported_and_a_signal_ends_the_wait_for_its_writer() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    image(&folder.path().join("image"), 9 << 20);
    done(Command::new("mkfifo").arg(folder.path().join("fifo")));
    let import = ["import", "d", "fifo", "--reserve=1MiB"];
    let mut waiting = breakeven(&import, folder.path())
        .spawn()
        .expect("it starts");
    // It has read the names in its folder once it has made a file there.
    while names_in(folder.path()).len() < 3 {
        std::thread::yield_now();
    }
    done(Command::new("kill").args(["-TERM", &waiting.id().to_string()]));
    assert!(!waiting.wait().expect("it ends").success());
    assert_eq!(names_in(folder.path()), ["fifo", "image"]);
    let mut feeder = Command::new("sh");
    let feeder = feeder
        .args(["-c", "cat image >fifo"])
        .current_dir(folder.path());
    let mut feeder = feeder.spawn().expect("sh starts");
    done(&mut breakeven(&import, folder.path()));
    assert!(feeder.wait().expect("it ends").success());
    let export = breakeven(&["export", "d", "-"], folder.path()).output();
    let export = export.expect("it starts");
    assert!(export.status.success(), "{export:?}");
    let expected = fs::read(folder.path().join("image")).expect("a file");
    assert!(export.stdout == expected, "{} bytes", export.stdout.len());
}

/// A terminal that is closed hangs up.
#[test]
fn a_server_that_hears_a_hang_up_ends_in_order() {
    let folder = made("1MiB");
    let mut server = Server::start(folder.path(), &[]);
    let process = server.child.id().to_string();
    done(Command::new("kill").args(["-HUP", &process]));
    assert!(server.child.wait().expect("an ended server").success());
    assert!(!server.socket.exists(), "the socket is left");
}

#[test]
fn volumes_become_longer_and_shorter_and_lose_nothing_in_silence() {
    let folder = made("1MiB");
    let run = |arguments: &[&str]| done(&mut breakeven(arguments, folder.path()));
    let server = Server::start(folder.path(), &[]);
    let mut old = server.client();
    assert_eq!(old.write(1, 600_000, b"kept").expect("a reply"), 0);
    run(&["clone", "d", "disk", "test"]);
    run(&["resize", "d", "disk", "--size=2000001"]);
    // Who was there before sees the length that there was, who comes sees the new one.
    assert_ne!(old.write(0, 1 << 20, b"more").expect("a reply"), 0);
    let mut new = server.client();
    assert_eq!(new.write(1, 2_000_000, b"!").expect("a reply"), 0);
    assert_eq!(old.read(600_000, 4).expect("bytes"), b"kept");
    assert_eq!(new.read(600_000, 4).expect("bytes"), b"kept");
    assert_eq!(
        new.read(1_999_990, 11).expect("bytes"),
        b"\0\0\0\0\0\0\0\0\0\0!"
    );
    let shorter = ["resize", "d", "disk", "--size=1MiB"];
    refused(&mut breakeven(&shorter, folder.path()), 1, "longer");
    server.stop();
    refused(&mut breakeven(&shorter, folder.path()), 1, "2000001");
    let info = run(&["info", "d"]);
    assert!(
        info.contains("volume test: 1.00 MiB (1048576 bytes)"),
        "{info}"
    );
    run(&["resize", "d", "test", "--size=600004"]);
    refused(
        &mut breakeven(&["resize", "d", "test", "--size=600003"], folder.path()),
        1,
        "600004",
    );
    run(&["resize", "d", "test", "--size=600002", "--discard"]);
    run(&["resize", "d", "test", "--size=1MiB"]);
    run(&["resize", "d", "disk", "--size=700000", "--discard"]);
    run(&["snapshot", "d", "disk", "still"]);
    let still = ["resize", "d", "still", "--size=2MiB"];
    refused(&mut breakeven(&still, folder.path()), 1, "snapshot");
    let server = Server::start(folder.path(), &[]);
    let mut test = Client::connect(&server.socket, "test").expect("a client");
    assert_eq!(test.read(600_000, 6).expect("bytes"), b"ke\0\0\0\0");
    let mut disk = server.client();
    assert_eq!(disk.read(600_000, 4).expect("bytes"), b"kept");
    assert_ne!(disk.write(0, 699_999, b"!!").expect("a reply"), 0);
    server.stop();
    assert!(run(&["fsck", "d"]).contains("all good"));
}
