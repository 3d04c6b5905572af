//! Whole streams that stock zstd and tar decode, with any kinds of frames.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use breakeven::codec::Method;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{Choice, Container, Writer, WriterOptions};

use zstd_safe::{DCtx, InBuffer, OutBuffer};

use crate::stock::installed;

const METHODS: &[(&str, Container)] = &[
    ("store", Container::Portable),
    ("zstd:-7", Container::Portable),
    ("zstd:1", Container::Portable),
    ("zstd:9", Container::Portable),
    ("zstd:19", Container::Portable),
    ("lz4:1", Container::Mixed),
    ("lz4:a32", Container::Mixed),
    ("lz4hc:9", Container::Mixed),
    ("xz:1", Container::Mixed),
    ("delta8+xz:1", Container::Mixed),
];

/// Noise, text, a run and numbers, several blocks in all, with an odd end.
fn data() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(9);
    let mut data: Vec<u8> = (0..300_000).map(|_| random.u8(..)).collect();
    let words: Vec<String> = (0..400).map(|_| format!("{:x} ", random.u16(..))).collect();
    for _ in 0..120_000 {
        data.extend(words[random.usize(..400)].bytes());
    }
    data.extend(vec![0; 400_001]);
    data.extend((0..60_000_u32).flat_map(|i| f64::from(i).sqrt().to_le_bytes()));
    data
}

fn pack(data: &[u8], method: &str, container: Container, block_bytes: usize) -> Vec<u8> {
    let options = WriterOptions {
        container,
        choice: Choice::Fixed(method.parse::<Method>().unwrap()),
        block_bytes,
        ..WriterOptions::default()
    };
    let pool = Pool::new(PoolOptions { worker_count: 2 }).unwrap();
    let mut writer = Writer::new(Vec::new(), &pool, options).unwrap();
    writer.write_all(data).unwrap();
    writer.finish().unwrap().0
}

fn run(program: &str, arguments: &[&str], path: &Path) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).arg(path).output().unwrap()
}

fn check(program: &str, arguments: &[&str], path: &Path, expected: &[u8]) {
    let output = run(program, arguments, path);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {message}"
    );
    assert!(
        output.stdout == expected,
        "{program} {arguments:?}: other bytes"
    );
}

#[test]
fn stock_zstd_decodes_every_stream() {
    if !installed("zstd") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stream.zst");
    let data = data();
    let mut tried = 0;
    for (method, container) in METHODS {
        for (raw, block_bytes) in [(&data[..], 1 << 20), (&data, 64 << 10), (&[], 1 << 20)] {
            let stream = pack(raw, method, *container, block_bytes);
            fs::write(&path, &stream).unwrap();
            check("zstd", &["-d", "-c"], &path, raw);
            check("zstdcat", &[], &path, raw);
            check("zstd", &["-t"], &path, &[]);
            if *container == Container::Portable {
                let listed = run("zstd", &["-l", "-v"], &path);
                let text = String::from_utf8(listed.stdout).unwrap();
                assert!(listed.status.success(), "{method}: {text}");
                assert!(text.contains("Skippable Frames: 1"), "{method}: {text}");
            }
            tried += 1;
        }
    }
    // Streams of all methods one behind another are one stream.
    let parts: Vec<Vec<u8>> = (METHODS.iter())
        .map(|(method, container)| pack(&data, method, *container, 1 << 20))
        .collect();
    fs::write(&path, parts.concat()).unwrap();
    check("zstd", &["-d", "-c"], &path, &data.repeat(parts.len()));
    println!("{tried} streams decoded by zstd");
    assert!(tried >= 30, "only {tried} streams tried");
}

/// Decodes frames one behind another like programs with libzstd's streaming interface, which other languages' libraries
/// use.
fn decode_streaming(stream: &[u8], piece_bytes: usize) -> Vec<u8> {
    let mut context = DCtx::create();
    let (mut found, mut target) = (Vec::new(), vec![0; 50_000]);
    let mut wanted = 0;
    for piece in stream.chunks(piece_bytes) {
        let mut input = InBuffer::around(piece);
        loop {
            let mut output = OutBuffer::around(&mut target[..]);
            let step = context.decompress_stream(&mut output, &mut input);
            wanted = step.expect("a frame of zstd");
            let written = output.pos();
            found.extend_from_slice(&target[..written]);
            if input.pos == piece.len() && written < target.len() {
                break;
            }
        }
    }
    assert_eq!(wanted, 0, "it ends within a frame");
    found
}

#[test]
fn libzstds_streaming_interface_decodes_portable_streams() {
    let data = data();
    let mut tried = 0;
    let portable = |it: &&(&str, Container)| it.1 == Container::Portable;
    for (method, container) in METHODS.iter().filter(portable) {
        for block_bytes in [1 << 20, 64 << 10] {
            // Fewer bytes where they come one at a time, which takes long.
            for (raw, piece_bytes) in [(&data[..300_000], 1), (&data, 1000), (&data, 1 << 20)] {
                let stream = pack(raw, method, *container, block_bytes);
                let found = decode_streaming(&stream, piece_bytes);
                assert!(found == raw, "{method}, {piece_bytes} bytes: other bytes");
                tried += 1;
            }
        }
    }
    println!("{tried} streams decoded by libzstd's streaming interface");
    assert!(tried >= 30, "only {tried} streams tried");
}

#[test]
fn stock_tar_unpacks_a_stream() {
    if !installed("zstd") || !installed("tar") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = data();
    fs::write(folder.path().join("file"), &data).unwrap();
    let archive = folder.path().join("archive");
    let base = folder.path().to_str().unwrap();
    let made = run("tar", &["-C", base, "-c", "file", "-f"], &archive);
    assert!(made.status.success());
    let archive_bytes = fs::read(&archive).unwrap();
    for (method, container) in [("zstd:1", Container::Portable), ("lz4:1", Container::Mixed)] {
        let stream = pack(&archive_bytes, method, container, 1 << 20);
        fs::write(&archive, stream).unwrap();
        check("tar", &["-x", "-O", "-f"], &archive, &data);
        check("tar", &["--zstd", "-x", "-O", "-f"], &archive, &data);
    }
}
