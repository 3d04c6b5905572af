//! The use of memory. Small blocks and streams that decode to very many bytes take hardly any. A writer takes no more
//! than its formula allows.
//!
//! One test alone in its process, because it looks at the peak of the process's memory. Streams are measured in
//! processes of their own, so that none uses memory that another gave back to the allocator.

use std::fs;
use std::io::{self, Write};
use std::process::Command;
use std::sync::mpsc;

use breakeven::codec::{Compressor, Decoder, Decompressor, Method};
use breakeven::decide::Profile;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{
    Choice, Container, Goal, Priced, Reader, ReaderOptions, Writer, WriterOptions,
};
use breakeven::units::BytesPerSecond;
use liblzma::stream::{Action, Check, Filters, LzmaOptions, Stream};

const TARGET_BYTES: usize = 1 << 20;
/// The most that decoding all bombs may add to the memory of the process: the targets, each decoder's tables, and the
/// allocator's slack.
const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// The most that reading them as streams may add: six frames with contents of up to 1 MiB, a window on the stream, and
/// the same.
const READER_BYTES_MAX: u64 = 16 << 20;
/// The memory of a process beside a writer's buffers and workspaces: stacks, the pool, the allocator's slack.
const BESIDE_BYTES_MAX: u64 = 4 << 20;

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

/// Limits the memory that `work` adds to the process, and returns it.
fn hold(what: &str, most: u64, work: impl FnOnce()) -> u64 {
    let before = memory_bytes("VmRSS:");
    // Linux starts a new peak when this is written.
    let fresh_peak = fs::write("/proc/self/clear_refs", "5").is_ok();
    work();
    let Some((before, peak)) = before.zip(memory_bytes("VmHWM:")).filter(|_| fresh_peak) else {
        println!("this system does not tell a process's peak: memory not checked");
        return most;
    };
    let growth = peak.saturating_sub(before);
    println!("{what}: the peak rose by {growth} bytes, of {most} allowed");
    assert!(growth <= most, "{what}: {growth} bytes, {most} allowed");
    growth
}

/// Gives a process of this test its task: `read NUMBER FILE` or `write NUMBER`.
const TASK: &str = "BREAKEVEN_MEMORY_TASK";

#[test]
fn memory_is_bounded() {
    if let Ok(task) = std::env::var(TASK) {
        let words: Vec<&str> = task.splitn(3, ' ').collect();
        let number = words[1].parse().unwrap();
        return match words[2..] {
            [file] => read_stream(&stream_bombs()[number], file),
            _ => write_stream(number),
        };
    }
    let blocks = block_bombs();
    hold("blocks that are bombs", GROWTH_BYTES_MAX, || {
        blocks.iter().for_each(refuse_block);
    });
    let folder = tempfile::tempdir().unwrap();
    for (number, bomb) in stream_bombs().iter().enumerate() {
        let file = folder.path().join("stream");
        fs::write(&file, (bomb.1)()).unwrap();
        do_apart(&format!("read {number} {}", file.display()));
    }
    (0..writings().len()).for_each(|number| do_apart(&format!("write {number}")));
}

/// Runs a task in a process of its own.
fn do_apart(task: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "memory_is_bounded", "--nocapture"]);
    let output = command.env(TASK, task).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{task}: {text}{errors}");
    let told = text.lines().filter(|line| line.contains(" bytes"));
    told.for_each(|line| println!("{line}"));
}

/// Name, codec and bytes.
type BlockBomb = (&'static str, u8, Vec<u8>);

fn block_bombs() -> Vec<BlockBomb> {
    vec![
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
    ]
}

fn refuse_block((name, codec, stored): &BlockBomb) {
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

/// A Zstandard frame that states 2^60 bytes and has none.
fn stated_bomb() -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0xC0, 0x38];
    frame.extend((1_u64 << 60).to_le_bytes());
    frame.extend([1, 0, 0]);
    frame
}

/// Zeros as a stream of ours.
fn own_stream(method: &str, bytes: usize) -> Vec<u8> {
    let options = WriterOptions {
        container: Container::Mixed,
        choice: Choice::Fixed(method.parse().unwrap()),
        ..WriterOptions::default()
    };
    let pool = Pool::new(PoolOptions { worker_count: 0 }).unwrap();
    let mut writer = Writer::new(Vec::new(), &pool, options).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..bytes >> 20).for_each(|_| writer.write_all(&zeros).unwrap());
    writer.finish().unwrap().0
}

/// Name, generator, and decoded bytes; `None` where it must be refused.
type StreamBomb = (&'static str, fn() -> Vec<u8>, Option<usize>);

fn stream_bombs() -> [StreamBomb; 7] {
    [
        ("zstd", || zstd_bomb(0x38), Some(1 << 30)),
        ("zstd, window 2 GiB", || zstd_bomb(0xA8), None),
        ("zstd, window 3.75 TiB", || zstd_bomb(0xFF), None),
        ("zstd, 2^60 bytes stated", stated_bomb, None),
        ("xz", xz_bomb, Some(256 << 20)),
        ("runs", || own_stream("store", 256 << 20), Some(256 << 20)),
        ("lz4", || own_stream("lz4:1", 64 << 20), Some(64 << 20)),
    ]
}

/// Reads a stream to its end, and drops the bytes.
fn read_stream((name, _, content_bytes): &StreamBomb, file: &str) {
    let stream = fs::read(file).unwrap();
    hold(name, READER_BYTES_MAX, || {
        let pool = Pool::new(PoolOptions { worker_count: 2 }).unwrap();
        let mut reader = Reader::new(&stream[..], &pool, ReaderOptions::default()).unwrap();
        let mut found_bytes = 0;
        let outcome = loop {
            match reader.fill().map(<[u8]>::len) {
                Ok(0) => break Ok(()),
                Ok(count) => {
                    found_bytes += count;
                    reader.consume(count);
                }
                Err(error) => break Err(error),
            }
        };
        assert_eq!(
            outcome.is_ok(),
            content_bytes.is_some(),
            "{name}: {outcome:?}"
        );
        assert_eq!(found_bytes, content_bytes.unwrap_or(0), "{name}");
    });
}

/// A sink that takes nothing until its gate is opened, so that every buffer is used.
struct Gated(mpsc::Receiver<()>);

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Ends when the sender is gone.
        let _ = self.0.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The writings whose memory is measured, each with a number of workers.
fn writings() -> Vec<(Choice, usize)> {
    let fixed = |method: &str| Choice::Fixed(method.parse().unwrap());
    let priced = |container: Container| {
        Choice::Priced(Box::new(Priced {
            goal: Goal::Fastest,
            arms: container.arms(),
            link: Some(BytesPerSecond(1e7)),
            profile: Profile::default(),
        }))
    };
    vec![
        (fixed("store"), 1),
        (fixed("store"), 4),
        (fixed("lz4:1"), 2),
        (fixed("zstd:1"), 1),
        (fixed("zstd:3"), 4),
        (fixed("zstd:9"), 2),
        (fixed("zstd:19"), 1),
        (fixed("xz:1"), 2),
        (fixed("xz:6"), 1),
        (priced(Container::Portable), 2),
        (priced(Container::Mixed), 2),
    ]
}

/// Text of a block that shrinks little, so that frames fill their buffers.
fn block() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(31);
    (0..1 << 20).map(|_| random.u8(..) & 0x7F).collect()
}

/// Writes a stream and holds it to its formula.
fn write_stream(number: usize) {
    let (choice, workers) = writings().swap_remove(number);
    let options = WriterOptions {
        container: Container::Mixed,
        choice,
        ..WriterOptions::default()
    };
    let block = block();
    let formula_bytes = options.memory_bytes(workers) as u64;
    let names: Vec<_> = options
        .choice
        .methods()
        .iter()
        .map(Method::to_string)
        .collect();
    let what = format!("{workers} workers, {}", names.join(" "));
    let growth = hold(&what, formula_bytes + BESIDE_BYTES_MAX, || {
        let pool = Pool::new(PoolOptions {
            worker_count: workers,
        });
        // It lives until the end of the stream: without workers the I/O thread compresses.
        let pool = pool.unwrap();
        let (open, gate) = mpsc::channel::<()>();
        let mut writer = Writer::new(Gated(gate), &pool, options).unwrap();
        // As many as are taken before the sink takes the first.
        (0..2 * workers + 3).for_each(|_| writer.write_all(&block).unwrap());
        drop(open);
        (0..workers + 2).for_each(|_| writer.write_all(&block).unwrap());
        writer.finish().unwrap();
    });
    // A formula far above the use would be worthless.
    assert!(
        growth >= formula_bytes / 4,
        "{what}: {growth} bytes of {formula_bytes}"
    );
}
