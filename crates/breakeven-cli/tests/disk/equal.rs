//! Equal blocks as clients write them: a tree that is copied on a file system, and a second image after a restart.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Mounted, Server, done, installed, made};

/// What a disk is written first: more than it looks at while it learns whether looking pays.
const BEFORE_BYTES: usize = 40 << 20;
const BLOCK_BYTES: usize = 4096;

/// Returns a value of the metrics that a server left.
fn metric(folder: &Path, name: &str) -> u64 {
    let text = fs::read_to_string(folder.join("metrics")).expect("metrics");
    let line = text
        .lines()
        .find(|line| line.contains(name) && !line.starts_with('#'));
    let value = line.and_then(|line| line.split_whitespace().last());
    value.and_then(|value| value.parse().ok()).expect(name)
}

#[test]
fn root_a_tree_that_is_copied_is_stored_once() {
    if std::env::var("BREAKEVEN_ROOT_TESTS").is_err() || !installed("nbdfuse") {
        return;
    }
    let folder = made("256MiB");
    let server = Server::start(folder.path(), &["--metrics", "metrics"]);
    let mounted = Mounted::attach(folder.path(), &server);
    let make = ["-q", "-b", "4096", "-O", "^has_journal", &mounted.device];
    done(Command::new("mkfs.ext4").args(make));
    let point = mounted.mount();
    let sync = || done(Command::new("sync").arg("--file-system").arg(&point));
    let noise = crate::noise(BEFORE_BYTES + (24 << 20));
    let (before, mut left) = noise.split_at(BEFORE_BYTES);
    fs::write(point.join("before"), before).expect("a file");
    let tree = point.join("tree");
    let mut blocks = 0;
    for number in 0..600 {
        let length = [700, 4096, 9000, 30_000, 120_000][number % 5] + 13 * number;
        let (file, rest) = left.split_at(length);
        let place = tree.join(format!("{}/{}", number % 7, number % 11));
        fs::create_dir_all(&place).expect("a folder");
        fs::write(place.join(format!("file-{number}")), file).expect("a file");
        blocks += length.div_ceil(BLOCK_BYTES) as u64;
        left = rest;
    }
    sync();
    done(
        Command::new("cp")
            .arg("-a")
            .arg(&tree)
            .arg(point.join("copy")),
    );
    sync();
    drop(mounted);
    server.stop();
    let found = metric(folder.path(), "blocks_found_total");
    let stored = metric(folder.path(), "stored_bytes");
    println!("{found} of {blocks} blocks found; {stored} bytes stored");
    assert!(found * 100 >= blocks * 95, "{found} of {blocks} blocks");
    let once = (BEFORE_BYTES as u64 + blocks * BLOCK_BYTES as u64) * 106 / 100;
    assert!(stored <= once + (4 << 20), "{stored} bytes, {once} once");
}
