//! Fuzz targets of streams: any bytes read three ways, and any bytes written and read back.

use std::io::Cursor;

use super::{
    Choice, Container, Reader, ReaderOptions, SeekableReader, Writer, WriterOptions,
    read_seek_table, survey,
};
use crate::error::{Error, Result};
use crate::pool::{Pool, PoolOptions};

/// Decoded bytes after which a reader is told to stop.
const OUTPUT_BYTES_MAX: u64 = 2 << 20;

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

/// Reads any bytes as a stream, in order and by the table; what both read must be the same, and a
/// stream that decodes must pass the survey.
pub(crate) fn fuzz_stream(data: &[u8]) {
    let pool = pool();
    let in_order = read_in_order(data, &pool);
    if let Err(Error::Corrupt { offset, .. }) = &in_order {
        assert!(*offset <= data.len() as u64, "a place behind the end");
    }
    let surveyed = survey(&mut Cursor::new(data));
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

/// Writes any bytes as a stream and reads them back. The first byte picks the method, the second
/// the piece in which they are written.
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
    let options = WriterOptions {
        container: Container::Mixed,
        choice: Choice::Fixed(
            METHODS[usize::from(choice) % METHODS.len()]
                .parse()
                .expect("a method of the list"),
        ),
        block_bytes: 4096,
        stop: None,
    };
    let mut writer = Writer::new(Vec::new(), &pool, options).expect("a stream");
    for piece in content.chunks(usize::from(piece) + 1) {
        writer.write_all(piece).expect("a vector takes all");
        if piece[0] == 0xF1 {
            writer.flush().expect("a vector takes all");
        }
    }
    let (stream, summary) = writer.finish().expect("a vector takes all");
    assert_eq!(summary.stored_bytes, stream.len() as u64);
    let back = read_in_order(&stream, &pool).expect("what was written is read");
    assert!(back == content, "other bytes come back");
    let by_table = read_by_table(&stream, &pool).expect("a table");
    assert!(
        by_table.expect("the same") == content,
        "other bytes by the table"
    );
}
