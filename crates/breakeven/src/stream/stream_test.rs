//! Streams written and read: every method, every cut, every flipped bit, limits and seeks.

use std::io::{Cursor, Read, Seek, SeekFrom};

use super::*;
use crate::codec::Method;
use crate::decide::Profile;
use crate::error::{Error, Result};
use crate::frame::{Walk, Walked};
use crate::pool::{Pool, PoolOptions};
use crate::units::BytesPerSecond;

const METHODS: [&str; 7] = [
    "store",
    "zstd:-5",
    "zstd:3",
    "lz4:1",
    "lz4hc:3",
    "xz:0",
    "delta8+xz:1",
];

pub(super) fn pool(worker_count: usize) -> Pool {
    Pool::new(PoolOptions { worker_count }).unwrap()
}

pub(super) fn pack(pool: &Pool, method: &str, block_bytes: usize, data: &[u8]) -> Vec<u8> {
    let options = WriterOptions {
        container: Container::Mixed,
        choice: Choice::Fixed(method.parse().unwrap()),
        block_bytes,
        ..WriterOptions::default()
    };
    let mut writer = Writer::new(Vec::new(), pool, options).unwrap();
    writer.write_all(data).unwrap();
    writer.finish().unwrap().0
}

/// Text, noise, a run and numbers, each at least `part` bytes.
pub(super) fn data(part: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(17);
    let mut data = Vec::new();
    while data.len() < part {
        data.extend(format!("{:x} costs {} ", random.u16(..200), random.u8(..)).bytes());
    }
    data.extend((0..part).map(|_| random.u8(..)));
    data.extend(vec![9; part + 1]);
    data.extend((0..part as u32 / 8).flat_map(|i| f64::from(i).sqrt().to_le_bytes()));
    data
}

/// Reads until the end or an error, and returns both the bytes and the error.
fn drain(mut fill: impl FnMut(&mut Vec<u8>) -> Result<usize>) -> (Vec<u8>, Option<Error>) {
    let mut found = Vec::new();
    loop {
        match fill(&mut found) {
            Ok(0) => return (found, None),
            Ok(_) => {}
            Err(error) => return (found, Some(error)),
        }
    }
}

pub(super) fn read_in_order(
    source: impl Read,
    pool: &Pool,
    options: ReaderOptions,
) -> (Vec<u8>, Option<Error>) {
    let mut reader = Reader::new(source, pool, options).unwrap();
    drain(|found| {
        let content = reader.fill()?;
        let count = content.len();
        found.extend_from_slice(content);
        reader.consume(count);
        Ok(count)
    })
}

/// Reads by the seek table; `None` without a usable one.
pub(super) fn read_by_table(stream: &[u8], pool: &Pool) -> Option<(Vec<u8>, Option<Error>)> {
    let mut source = Cursor::new(stream);
    let table = read_seek_table(&mut source).unwrap()?;
    let options = ReaderOptions::default();
    let mut reader = SeekableReader::new(source, &table, pool, &options).ok()?;
    Some(drain(|found| {
        let content = reader.fill()?;
        let count = content.len();
        found.extend_from_slice(content);
        reader.consume(count);
        Ok(count)
    }))
}

/// A source that gives a few bytes at a time.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, target: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(target.len()).min(self.0.len());
        target[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

#[test]
fn what_was_written_is_read() {
    let data = data(150_000);
    for worker_count in [0, 1, 3] {
        let pool = pool(worker_count);
        for method in METHODS {
            let stream = pack(&pool, method, 64 << 10, &data);
            for piece in [1000, usize::MAX] {
                let source = Trickle(&stream, piece);
                let (found, error) = read_in_order(source, &pool, ReaderOptions::default());
                assert!(error.is_none(), "{method}: {error:?}");
                assert!(found == data, "{method}: other bytes");
            }
            let (found, error) = read_by_table(&stream, &pool).expect("a table");
            assert!(error.is_none() && found == data, "{method}: {error:?}");
        }
    }
}

/// A short stream of every method, with its data.
pub(super) fn short_stream(pool: &Pool) -> (Vec<u8>, Vec<u8>) {
    let piece = &data(300)[..];
    let streams = METHODS.map(|method| pack(pool, method, 4096, piece));
    (streams.concat(), piece.repeat(METHODS.len()))
}

/// Returns the starts of frames other than .xz, found without decoding, up to the first .xz.
fn boundaries(stream: &[u8]) -> Vec<usize> {
    let (mut at, mut found) = (0, vec![]);
    while at < stream.len() {
        found.push(at);
        let (mut walk, mut walked) = Walk::begin();
        while let Walked::Read { at: place, bytes } = walked {
            walked = walk.step(&stream[at + place as usize..][..bytes]).unwrap();
        }
        match walked {
            Walked::Whole(bytes) => at += bytes as usize,
            _ => break,
        }
    }
    found
}

#[test]
fn a_stream_cut_anywhere_gives_a_prefix_and_an_error() {
    let pool = pool(0);
    let (stream, data) = short_stream(&pool);
    let boundaries = boundaries(&stream);
    let last = *boundaries.last().unwrap();
    let (mut tried, mut whole) = (0, 0);
    for cut in 0..stream.len() {
        let options = ReaderOptions::default();
        let (found, error) = read_in_order(&stream[..cut], &pool, options);
        assert!(data.starts_with(&found), "cut at {cut}: other bytes");
        if cut <= last {
            let is_boundary = cut > 0 && boundaries.contains(&cut);
            assert_eq!(error.is_none(), is_boundary, "cut at {cut}: {error:?}");
            whole += usize::from(is_boundary);
        }
        if let Some(Error::Corrupt { offset, .. }) = error {
            assert!(offset <= cut as u64, "cut at {cut}: place {offset}");
        } else {
            assert!(error.is_none(), "cut at {cut}: {error:?}");
        }
        tried += 1;
    }
    println!("{tried} cuts, {whole} of them between frames");
    assert!(tried > 4_000 && whole >= 13, "only {tried} cuts, {whole}");
}

#[test]
fn a_flipped_bit_never_gives_other_bytes() {
    let pool = pool(0);
    let (mut stream, data) = short_stream(&pool);
    let (mut tried, mut harmless) = (0, 0);
    for bit in 0..8 * stream.len() {
        stream[bit / 8] ^= 1 << (bit % 8);
        let (found, error) = read_in_order(&stream[..], &pool, ReaderOptions::default());
        assert!(data.starts_with(&found), "bit {bit}: other bytes");
        if error.is_none() {
            assert!(found == data, "bit {bit}: bytes are missing");
            harmless += 1;
        }
        stream[bit / 8] ^= 1 << (bit % 8);
        tried += 1;
    }
    println!("{tried} bits flipped, {harmless} of them in what no reader needs");
    assert!(tried > 30_000, "only {tried} bits flipped");
    // A good part of the bits lies in the seek tables, which are skipped.
    assert!(
        harmless * 2 < tried,
        "{harmless} of {tried} flips not found"
    );
}

#[test]
fn a_flipped_bit_is_found_by_the_table_as_well() {
    let pool = pool(0);
    let data = data(700);
    for method in ["store", "zstd:3", "lz4:1"] {
        let mut stream = pack(&pool, method, 4096, &data);
        let mut unused = 0;
        for bit in 0..8 * stream.len() {
            stream[bit / 8] ^= 1 << (bit % 8);
            match read_by_table(&stream, &pool) {
                Some((found, error)) => {
                    assert!(data.starts_with(&found), "{method}, bit {bit}: other bytes");
                    assert!(error.is_some() || found == data, "{method}, bit {bit}");
                }
                None => unused += 1,
            }
            stream[bit / 8] ^= 1 << (bit % 8);
        }
        assert!(unused > 100, "{method}: a broken table was used");
    }
}

#[test]
fn what_is_no_frame_is_refused_with_its_place() {
    let pool = pool(1);
    let stream = pack(&pool, "zstd:3", 4096, &data(700));
    // Zeros are padding, from any tape or program.
    for zeros in [1, 4, 10_240] {
        let padded = [&stream[..], &vec![0; zeros]].concat();
        let (found, error) = read_in_order(&padded[..], &pool, ReaderOptions::default());
        assert!(found == data(700) && error.is_none(), "{error:?}");
        let (_, error) = read_in_order(&vec![0; zeros][..], &pool, ReaderOptions::default());
        assert!(error.is_some(), "zeros alone");
    }
    for garbage in [
        &[1_u8; 4][..],
        b"x",
        b"garbage",
        // An unknown method of a gzip member.
        &[0x1F, 0x8B, 7, 0],
        &[0x28, 0xB5],
    ] {
        let long = [&stream[..], garbage].concat();
        let (found, error) = read_in_order(&long[..], &pool, ReaderOptions::default());
        assert!(found == data(700), "what comes before is handed out");
        match error {
            Some(Error::Corrupt { offset, .. }) => assert_eq!(offset, stream.len() as u64),
            other => panic!("{other:?}"),
        }
        let options = ReaderOptions {
            ignores_trailing: true,
            ..ReaderOptions::default()
        };
        let (found, error) = read_in_order(&long[..], &pool, options.clone());
        assert!(found == data(700) && error.is_none(), "{error:?}");
        // Without any frame, no bytes are trailing.
        let (_, error) = read_in_order(garbage, &pool, options);
        assert!(error.is_some());
    }
    let (_, error) = read_in_order(&[][..], &pool, ReaderOptions::default());
    assert!(matches!(error, Some(Error::Corrupt { offset: 0, .. })));
    // Bytes that begin like a gzip member are decoded as one; the error's place is where they were cut.
    let cut = [&stream[..], &[0x1F, 0x8B, 8, 0]].concat();
    let (found, error) = read_in_order(&cut[..], &pool, ReaderOptions::default());
    assert!(found == data(700), "what comes before is handed out");
    let place = cut.len() as u64;
    assert!(matches!(error, Some(Error::Corrupt { offset, .. }) if offset == place));
}

/// A Zstandard frame of `blocks` runs of 128 KiB, without a content size, with this window.
fn bomb(window: u8, blocks: usize) -> Vec<u8> {
    let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, window];
    for block in 0..blocks {
        let header = (128_u32 << 10) << 3 | 1 << 1 | u32::from(block + 1 == blocks);
        frame.extend(&header.to_le_bytes()[..3]);
        frame.push(0);
    }
    frame
}

#[test]
fn limits_end_a_bomb() {
    let pool = pool(1);
    let check = |frame: &[u8], options: ReaderOptions, most: usize| {
        let (found, error) = read_in_order(frame, &pool, options);
        assert!(matches!(error, Some(Error::Limit { .. })), "{error:?}");
        assert!(found.len() <= most, "{} bytes", found.len());
    };
    let bytes = ReaderOptions {
        output_bytes_max: Some(1 << 20),
        ..ReaderOptions::default()
    };
    let ratio = ReaderOptions {
        ratio_max: Some(100.0),
        ..ReaderOptions::default()
    };
    let runs = pack(&pool, "store", 1 << 20, &vec![0; 9 << 20]);
    for frame in [bomb(0x38, 4096), runs] {
        check(&frame, bytes.clone(), 1 << 20);
        check(&frame, ratio.clone(), 4 << 20);
    }
    // Windows of 256 MiB and 3.75 TiB.
    check(&bomb(0x90, 10), ReaderOptions::default(), 0);
    check(&bomb(0xFF, 10), ReaderOptions::default(), 0);
    let (found, error) = read_in_order(&bomb(0x38, 100)[..], &pool, ReaderOptions::default());
    assert!(error.is_none() && found.len() == 100 << 17, "{error:?}");
}

#[test]
fn an_error_is_told_once() {
    let pool = pool(2);
    let mut stream = pack(&pool, "store", 4096, &data(5000));
    stream[9 + 3000] ^= 1;
    let mut reader = Reader::new(&stream[..], &pool, ReaderOptions::default()).unwrap();
    let mut errors = Vec::new();
    while errors.len() < 3 {
        match reader.fill().map(<[u8]>::len) {
            Ok(count) => reader.consume(count),
            Err(error) => errors.push(error),
        }
    }
    assert!(matches!(errors[0], Error::Corrupt { .. }), "{}", errors[0]);
    let told = |error: &Error| matches!(error, Error::Poisoned { .. });
    assert!(errors[1..].iter().all(told), "{errors:?}");
}

#[test]
fn any_byte_can_be_sought() {
    let data = data(40_000);
    let mut random = fastrand::Rng::with_seed(23);
    for worker_count in [0, 2] {
        let pool = pool(worker_count);
        for method in ["zstd:1", "lz4:1", "xz:0"] {
            let stream = pack(&pool, method, 16 << 10, &data);
            let mut source = Cursor::new(&stream[..]);
            let table = read_seek_table(&mut source).unwrap().expect("a table");
            let options = ReaderOptions::default();
            let mut reader = SeekableReader::new(source, &table, &pool, &options).unwrap();
            assert_eq!(reader.content_bytes(), data.len() as u64);
            for _ in 0..60 {
                let from = random.usize(..data.len() + 100);
                let length = random.usize(..40_000);
                let position = reader.seek(SeekFrom::Start(from as u64)).unwrap();
                assert_eq!(position, from as u64);
                let mut found = Vec::new();
                (&mut reader)
                    .take(length as u64)
                    .read_to_end(&mut found)
                    .unwrap();
                let from = from.min(data.len());
                let expected = &data[from..(from + length).min(data.len())];
                assert!(found == expected, "{method}: {from}, {length} bytes");
            }
            assert_eq!(
                reader.seek(SeekFrom::End(-1)).unwrap(),
                data.len() as u64 - 1
            );
            assert!(reader.seek(SeekFrom::End(-(1 << 40))).is_err());
        }
    }
}

#[test]
fn a_goal_writes_a_stream_like_any_other() {
    let data = data(300_000);
    let goals = [
        Goal::Fastest,
        Goal::Within(1.0),
        Goal::Within(1.5),
        Goal::Smallest,
    ];
    for worker_count in [0, 2] {
        let pool = pool(worker_count);
        for goal in goals {
            for link in [None, Some(BytesPerSecond(1e6))] {
                let arms = ["store", "lz4:1", "zstd:1", "zstd:9", "xz:0"];
                let priced = Priced {
                    goal,
                    arms: arms.map(|arm| arm.parse().unwrap()).to_vec(),
                    link,
                    profile: Profile::default(),
                };
                let options = WriterOptions {
                    container: Container::Mixed,
                    choice: Choice::Priced(Box::new(priced)),
                    block_bytes: 32 << 10,
                    ..WriterOptions::default()
                };
                let mut writer = Writer::new(Vec::new(), &pool, options).unwrap();
                writer.write_all(&data).unwrap();
                let (stream, summary) = writer.finish().unwrap();
                let options = ReaderOptions::default();
                let (found, error) = read_in_order(&stream[..], &pool, options);
                assert!(error.is_none() && found == data, "{goal:?}: {error:?}");
                if goal == Goal::Smallest {
                    assert!(summary.ratio() > 1.8, "{}", summary.ratio());
                }
            }
        }
    }
}

#[test]
fn a_pledge_that_is_not_kept_is_no_error() {
    let data = data(100_000);
    let length = data.len() as u64;
    let pool = pool(2);
    let write = |choice: &Choice, pledged_source_bytes: Option<u64>| {
        let options = WriterOptions {
            container: Container::Mixed,
            choice: choice.clone(),
            block_bytes: 32 << 10,
            pledged_source_bytes,
            ..WriterOptions::default()
        };
        let mut writer = Writer::new(Vec::new(), &pool, options).unwrap();
        let half = data.len() / 2;
        writer.write_all(&data[..half]).unwrap();
        let pending = writer
            .write_async(data[half..].to_vec(), half as u64)
            .unwrap();
        pending.wait().unwrap();
        writer.finish().unwrap().0
    };
    let arms = ["store", "lz4:1", "zstd:1", "zstd:9", "xz:0"];
    let arms: Vec<Method> = arms.map(|arm| arm.parse().unwrap()).into();
    let link = BytesPerSecond(1e6);
    let fixed = Choice::Fixed(arms[2]);
    let frozen = Frozen::balanced(arms.clone(), Profile::default(), 2, link);
    let frozen = Choice::Frozen(Box::new(frozen));
    let untold = [&fixed, &frozen].map(|choice| write(choice, None));
    for pledged in [0, 1, length / 2, length, length + 1, 2 * length, u64::MAX] {
        for goal in [Goal::Within(1.0), Goal::Within(1.5), Goal::Fastest] {
            let priced = Priced {
                goal,
                arms: arms.clone(),
                link: Some(link),
                profile: Profile::default(),
            };
            let stream = write(&Choice::Priced(Box::new(priced)), Some(pledged));
            let options = ReaderOptions::default();
            let (found, error) = read_in_order(&stream[..], &pool, options);
            assert!(error.is_none() && found == data, "{pledged}: {error:?}");
        }
        // A choice without a clock ignores a pledge too.
        let told = [&fixed, &frozen].map(|choice| write(choice, Some(pledged)));
        assert!(told == untold, "{pledged}");
    }
}
