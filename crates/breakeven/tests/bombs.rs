//! Small blocks that decode to very much: each must fail, and take no memory to speak of.
//!
//! One test alone in its process, because it looks at the peak of the process's memory.

use std::fs;

use breakeven::codec::{Compressor, Decoder, Decompressor, Method};
use liblzma::stream::{Action, Check, Filters, LzmaOptions, Stream};

const TARGET_BYTES: usize = 1 << 20;
/// What decoding all bombs may add to the memory of the process: the targets, each decoder's
/// tables, and the allocator's slack.
const GROWTH_BYTES_MAX: u64 = 16 << 20;

/// 8,192 blocks of 128 KiB of zeros in 32 KiB: 1 GiB, with the window size in `window`.
fn zstd_bomb(window: u8) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, window];
    let header = |last: u32| ((128 << 10) << 3 | 1 << 1 | last).to_le_bytes();
    for _ in 1..8192 {
        frame.extend(&header(0)[..3]);
        frame.push(0);
    }
    frame.extend(&header(1)[..3]);
    frame.push(0);
    frame
}

/// One literal and a match of 255 MiB with itself, in 1 MiB.
fn lz4_bomb() -> Vec<u8> {
    let mut block = vec![0x1F, 0, 1, 0];
    block.resize(block.len() + (1 << 20), 255);
    block.extend([0, 0x50, 0, 0, 0, 0, 0]);
    block
}

/// 256 MiB of zeros in an .xz stream, written a MiB at a time.
fn xz_bomb() -> Vec<u8> {
    let options = LzmaOptions::new_preset(0).unwrap();
    let mut filters = Filters::new();
    filters.lzma2(&options);
    let mut stream = Stream::new_stream_encoder(&filters, Check::None).unwrap();
    let (zeros, mut stored) = (vec![0; 1 << 20], Vec::with_capacity(1 << 20));
    for _ in 0..256 {
        stream
            .process_vec(&zeros, &mut stored, Action::Run)
            .unwrap();
    }
    stream
        .process_vec(&[], &mut stored, Action::Finish)
        .unwrap();
    stored
}

/// 64 MiB of zeros in a .bz2 stream, written a MiB at a time.
fn bzip2_bomb() -> Vec<u8> {
    let mut stream = bzip2::Compress::new(bzip2::Compression::best(), 0);
    let (zeros, mut stored) = (vec![0; 1 << 20], Vec::with_capacity(1 << 20));
    for _ in 0..64 {
        let status = stream.compress_vec(&zeros, &mut stored, bzip2::Action::Run);
        status.unwrap();
    }
    let status = stream.compress_vec(&[], &mut stored, bzip2::Action::Finish);
    assert_eq!(status.unwrap(), bzip2::Status::StreamEnd);
    stored
}

/// 16 MiB of zeros, by one of our own methods.
fn own_bomb(method: &str) -> Vec<u8> {
    let method: Method = method.parse().unwrap();
    let mut stored = vec![0; 1 << 20];
    let size = Compressor::new().compress(method, &vec![0; 16 << 20], &mut stored);
    stored.truncate(size.unwrap().unwrap());
    stored
}

/// Returns a field of the process's status in bytes, or `None` where there is no such file.
fn memory_bytes(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

#[test]
fn bombs_fail_and_take_no_memory() {
    let bombs = [
        ("zstd", Decoder::CODEC_ZSTD, zstd_bomb(0x38)),
        ("zstd, window 2 GiB", Decoder::CODEC_ZSTD, zstd_bomb(0xA8)),
        (
            "zstd, window 3.75 TiB",
            Decoder::CODEC_ZSTD,
            zstd_bomb(0xFF),
        ),
        ("lz4", Decoder::CODEC_LZ4, lz4_bomb()),
        ("xz", Decoder::CODEC_XZ, xz_bomb()),
        ("bzip2", Decoder::CODEC_BZIP2, bzip2_bomb()),
        ("deflate", Decoder::CODEC_DEFLATE, own_bomb("deflate:6")),
        ("zstd:19", Decoder::CODEC_ZSTD, own_bomb("zstd:19")),
    ];
    // Linux starts a new peak when this is written.
    let fresh_peak = fs::write("/proc/self/clear_refs", "5").is_ok();
    let before = memory_bytes("VmRSS:");
    for (name, codec, stored) in &bombs {
        for filter in [Decoder::FILTER_NONE, Decoder::FILTER_SHUFFLE_4] {
            let decoder = Decoder {
                codec: *codec,
                filter,
                dictionary: 0,
            };
            for bytes in [0, 1, TARGET_BYTES] {
                let mut target = vec![0; bytes];
                let outcome = Decompressor::new().decompress(decoder, stored, &mut target);
                assert!(outcome.is_err(), "{name}: {bytes} bytes were filled");
            }
        }
        println!("{name}: {} stored bytes refused", stored.len());
    }
    match (before, memory_bytes("VmHWM:")) {
        (Some(before), Some(peak)) if fresh_peak => {
            let growth = peak.saturating_sub(before);
            println!("the peak rose by {growth} bytes");
            assert!(
                growth <= GROWTH_BYTES_MAX,
                "the peak rose by {growth} bytes"
            );
        }
        _ => println!("this system does not tell a process's peak: memory not checked"),
    }
}
