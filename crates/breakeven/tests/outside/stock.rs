//! Blocks that stock zstd, xz, bzip2, lz4 and gzip read, and theirs that we read.
//!
//! The table of decoders promises standard frames and streams; these programs are the judges.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};

use breakeven::codec::{Compressor, Decoder, Decompressor, Method};

/// Each program with the methods whose stored form it must read, the decoder of its own output, and the efforts at
/// which it runs.
const PROGRAMS: &[(&str, &[&str], u8, &[&str])] = &[
    (
        "zstd",
        &["zstd:-7", "zstd:1", "zstd:3", "zstd:19", "zstd:22"],
        Decoder::CODEC_ZSTD,
        &["-1", "-19", "--no-check"],
    ),
    (
        "xz",
        &["xz:0", "xz:6", "delta8+xz:6"],
        Decoder::CODEC_XZ,
        &["-0", "-6", "-Csha256"],
    ),
    (
        "bzip2",
        &["bzip2:1", "bzip2:9"],
        Decoder::CODEC_BZIP2,
        &["-1", "-9"],
    ),
];

/// Reports a missing program whose tests are skipped, which is an error where everything must be installed.
pub fn left_out(what: &str) {
    println!("{what}");
    assert!(std::env::var_os("CI").is_none(), "{what}");
}

pub fn installed(program: &str) -> bool {
    let version = Command::new(program)
        .arg("--help")
        .stdin(Stdio::null())
        .output();
    if version.is_err() {
        left_out(&format!(
            "{program} is not installed: nothing tried with it"
        ));
    }
    version.is_ok()
}

/// Runs a program as a filter and returns its output.
fn filter(program: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    // A file, because a pipe would need a second thread to read while it is written.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    File::create(&path).unwrap().write_all(input).unwrap();
    let output = Command::new(program)
        .args(arguments)
        .stdin(File::open(&path).unwrap())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {message}"
    );
    output.stdout
}

fn blocks() -> Vec<Vec<u8>> {
    let mut random = fastrand::Rng::with_seed(1);
    let words: Vec<String> = (0..500).map(|_| format!("{:x} ", random.u16(..))).collect();
    let text: String = (0..60_000).map(|_| &*words[random.usize(..500)]).collect();
    let noise: Vec<u8> = (0..5000).map(|_| random.u8(..)).collect();
    vec![
        Vec::new(),
        b"x".to_vec(),
        vec![0; 1 << 20],
        text.into_bytes(),
        noise,
    ]
}

#[test]
fn stock_programs_and_we_read_each_other() {
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for (program, methods, codec, efforts) in PROGRAMS {
        if !installed(program) {
            continue;
        }
        let mut tried = 0;
        for block in blocks() {
            for method in *methods {
                let method: Method = method.parse().unwrap();
                let mut stored = vec![0; method.bound(block.len())];
                let size = compressor.compress(method, &block, &mut stored).unwrap();
                let stored = &stored[..size.expect("within its bound")];
                let back = filter(program, &["-d", "-c"], stored);
                assert!(back == block, "{program} reads {method} otherwise");
                tried += 1;
            }
            for effort in *efforts {
                let stored = filter(program, &["-c", effort], &block);
                let decoder = Decoder {
                    codec: *codec,
                    ..Decoder::STORE
                };
                let mut back = vec![0xA5; block.len()];
                let outcome = decompressor.decompress(decoder, &stored, &mut back);
                assert!(outcome.is_ok(), "{program} {effort}: {outcome:?}");
                assert!(back == block, "{program} {effort} is read otherwise");
                tried += 1;
            }
        }
        println!("{program}: {tried} blocks read across");
        assert!(tried >= 20, "only {tried} blocks tried with {program}");
    }
}

/// The bytes around a bare block in a stock program's file.
struct Frame {
    program: &'static str,
    codec: u8,
    methods: &'static [&'static str],
    /// Arguments that make the program write such a file.
    efforts: &'static [&'static [&'static str]],
    wrap: fn(stored: &[u8], block: &[u8]) -> Vec<u8>,
    unwrap: fn(file: &[u8]) -> &[u8],
}

const FRAMES: &[Frame] = &[
    Frame {
        program: "lz4",
        codec: Decoder::CODEC_LZ4,
        methods: &["lz4:1", "lz4:a64", "lz4hc:2", "lz4hc:9", "lz4hc:12"],
        efforts: &[&["-l", "-c", "-1"], &["-l", "-c", "-9"]],
        // LZ4's legacy file: a magic number, then length and block, of 8 MiB at most.
        wrap: |stored, _| {
            let length = u32::try_from(stored.len()).unwrap();
            let magic: u32 = 0x184C_2102;
            [&magic.to_le_bytes(), &length.to_le_bytes(), stored].concat()
        },
        unwrap: |file| &file[8..],
    },
    Frame {
        program: "gzip",
        codec: Decoder::CODEC_DEFLATE,
        methods: &["deflate:1", "deflate:6", "deflate:12"],
        efforts: &[&["-n", "-c", "-1"], &["-n", "-c", "-9"]],
        // A gzip file: ten bytes of header, then the stream, CRC32 and length.
        wrap: |stored, block| {
            let header = [0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255];
            let length = u32::try_from(block.len()).unwrap();
            let check = libdeflater::crc32(block);
            let trailer = [check.to_le_bytes(), length.to_le_bytes()].concat();
            [&header, stored, &trailer].concat()
        },
        unwrap: |file| &file[10..file.len() - 8],
    },
];

#[test]
fn stock_programs_and_we_read_each_others_bare_blocks() {
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    for frame in FRAMES {
        let program = frame.program;
        if !installed(program) {
            continue;
        }
        let mut tried = 0;
        for block in blocks().iter().filter(|block| !block.is_empty()) {
            for method in frame.methods {
                let method: Method = method.parse().unwrap();
                let mut stored = vec![0; method.bound(block.len())];
                let size = compressor.compress(method, block, &mut stored).unwrap();
                let file = (frame.wrap)(&stored[..size.expect("within its bound")], block);
                let back = filter(program, &["-d", "-c"], &file);
                assert!(back == *block, "{program} reads {method} otherwise");
                tried += 1;
            }
            for effort in frame.efforts {
                let file = filter(program, effort, block);
                let decoder = Decoder {
                    codec: frame.codec,
                    ..Decoder::STORE
                };
                let mut back = vec![0xA5; block.len()];
                let outcome = decompressor.decompress(decoder, (frame.unwrap)(&file), &mut back);
                assert!(outcome.is_ok(), "{program} {effort:?}: {outcome:?}");
                assert!(back == *block, "{program} {effort:?} is read otherwise");
                tried += 1;
            }
        }
        println!("{program}: {tried} bare blocks read across");
        assert!(tried >= 20, "only {tried} blocks tried with {program}");
    }
}
