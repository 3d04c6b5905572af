//! Fuzz targets of streams: any bytes read three ways, and any bytes written and read back.

use std::io::Cursor;

use super::{
    Advice, Choice, Container, Frozen, Hint, Reader, ReaderOptions, SeekableReader, Writer,
    WriterOptions, read_seek_table, survey,
};
use crate::codec::Method;
use crate::decide::Profile;
use crate::error::{Error, Result};
use crate::pool::{Pool, PoolOptions};
use crate::units::BytesPerSecond;

/// Decoded bytes after which a reader must stop.
const OUTPUT_BYTES_MAX: u64 = 2 << 20;
/// Bytes of a stream behind which calls leave no more gaps.
const GAPS_BYTES_MAX: usize = 256 << 10;

fn pool() -> Pool {
    // Without workers everything happens in this thread, and always in the same order.
    Pool::new(PoolOptions { worker_count: 0 }).expect("a pool without threads")
}

fn options() -> ReaderOptions {
    ReaderOptions {
        output_bytes_max: Some(OUTPUT_BYTES_MAX),
        window_bytes_max: 1 << 20,
        ..ReaderOptions::default()
    }
}

fn read_in_order(stream: &[u8], pool: &Pool) -> Result<Vec<u8>> {
    let mut reader = Reader::new(stream, pool, options())?;
    let mut found = Vec::new();
    loop {
        let content = reader.fill()?;
        if content.is_empty() {
            let counted = reader.counted();
            assert_eq!(counted.content_bytes, found.len() as u64);
            assert_eq!(counted.stored_bytes, stream.len() as u64);
            return Ok(found);
        }
        found.extend_from_slice(content);
        let count = content.len();
        reader.consume(count);
        assert!(found.len() as u64 <= OUTPUT_BYTES_MAX, "more than allowed");
    }
}

/// Reads by the table, if the bytes end with one that may be used.
fn read_by_table(stream: &[u8], pool: &Pool) -> Option<Result<Vec<u8>>> {
    let mut source = Cursor::new(stream);
    let table = read_seek_table(&mut source).expect("a slice can be read")?;
    let mut reader = match SeekableReader::new(source, &table, pool, &options()) {
        Ok(reader) => reader,
        Err(error) => return Some(Err(error)),
    };
    let mut found = Vec::new();
    loop {
        match reader.fill() {
            Ok([]) => return Some(Ok(found)),
            Ok(content) => {
                found.extend_from_slice(content);
                let count = content.len();
                reader.consume(count);
            }
            Err(error) => return Some(Err(error)),
        }
    }
}

/// Reads any bytes as a stream, in order and by the table. Both must read the same, and a stream that decodes must pass
/// the survey.
pub(crate) fn fuzz_stream(data: &[u8]) {
    let pool = pool();
    let in_order = read_in_order(data, &pool);
    if let Err(Error::Corrupt { offset, .. }) = &in_order {
        assert!(*offset <= data.len() as u64, "a place behind the end");
    }
    let surveyed = survey(&mut Cursor::new(data), &options());
    if let Ok(content) = &in_order {
        let survey = surveyed.expect("a stream that decodes");
        if survey.states_content {
            assert_eq!(survey.counted.content_bytes, content.len() as u64);
        }
    }
    if let (Ok(by_table), Ok(content)) = (read_by_table(data, &pool).transpose(), &in_order)
        && let Some(by_table) = by_table
    {
        assert!(by_table == *content, "the table shows other bytes");
    }
}

/// Writes any bytes as a stream and reads them back. The first byte picks the method or that it is picked (bit 3), the
/// kind of call (bits 4 and 5) and whether there are hints (bit 6). The second gives the piece in which they are
/// written.
pub(crate) fn fuzz_stream_round_trip(data: &[u8]) {
    const METHODS: [&str; 8] = [
        "store",
        "zstd:-3",
        "zstd:1",
        "zstd:7",
        "lz4:1",
        "lz4:a20",
        "lz4hc:4",
        "delta3+xz:0",
    ];
    let Some((&[choice, piece], content)) = data.split_first_chunk() else {
        return;
    };
    let pool = pool();
    let methods = METHODS.map(|it| it.parse::<Method>().expect("a method of the list"));
    let fixed = methods[usize::from(choice) % METHODS.len()];
    let options = WriterOptions {
        container: Container::Mixed,
        choice: match choice >> 3 & 1 {
            0 => Choice::Fixed(fixed),
            _ => Choice::Frozen(Box::new(Frozen::balanced(
                methods.to_vec(),
                Profile::default(),
                1,
                BytesPerSecond(1e6),
            ))),
        },
        block_bytes: 4096,
        ..WriterOptions::default()
    };
    let mut writer = Writer::new(Vec::new(), &pool, options).expect("a stream");
    let mut expected = Vec::with_capacity(content.len());
    for piece in content.chunks(usize::from(piece) + 1) {
        if choice >> 6 & 1 == 1 && piece[0] % 3 == 0 {
            let ahead = writer.position() + u64::from(piece[0]);
            let hint = Hint::new(ahead..ahead + 5000, Advice::NoCompression);
            writer.advise(&hint).expect("a hint");
        }
        let kind = choice >> 4 & 3;
        let is_gap = kind == 3 && expected.len() < GAPS_BYTES_MAX;
        let gap = if is_gap {
            usize::from(piece[0]) * 40
        } else {
            0
        };
        expected.resize(expected.len() + gap, 0);
        expected.extend_from_slice(piece);
        let place = writer.position() + gap as u64;
        match kind {
            0 => writer.write_all(piece).expect("a vector takes all"),
            // Nobody waits for it before the end.
            1 => drop(writer.write_async(piece.to_vec(), place).expect("a place")),
            _ => writer.write_at(piece, place).expect("a place"),
        }
        if piece[0] == 0xF1 {
            writer.flush().expect("a vector takes all");
        }
    }
    let (stream, summary) = writer.finish().expect("a vector takes all");
    assert_eq!(summary.stored_bytes, stream.len() as u64);
    assert_eq!(summary.raw_bytes, expected.len() as u64);
    let in_order = read_in_order(&stream, &pool).expect("what was written is read");
    assert!(in_order == expected, "other bytes come back");
    let by_table = read_by_table(&stream, &pool).expect("a table");
    assert!(
        by_table.expect("the same") == expected,
        "other bytes by the table"
    );
}
