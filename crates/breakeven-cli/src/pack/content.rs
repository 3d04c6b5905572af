//! The content of a stream, through its seek table where it has one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use breakeven::Error;
use breakeven::pool::Pool;
use breakeven::stream::{Reader, ReaderOptions, SeekableReader, read_seek_table};

/// Decodes a stream from its start.
pub struct Content {
    name: String,
    reader: AnyReader,
    read: Arc<AtomicU64>,
}

#[expect(clippy::large_enum_variant, reason = "there is one a stream")]
enum AnyReader {
    Table(SeekableReader<Counted>),
    Row(Reader<Counted>),
}

/// A file with a count of the bytes that were read from it.
struct Counted {
    /// The bytes of it that were read before.
    head: io::Cursor<Vec<u8>>,
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        let count = match self.head.read(target)? {
            0 => self.file.read(target)?,
            count => count,
        };
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Content {
    /// Begins to read a stream: a file that can seek from its start, another from where it stands.
    pub fn open(
        (name, file): (&str, File),
        can_seek: bool,
        pool: &Pool,
        options: &ReaderOptions,
    ) -> Result<Content> {
        Content::open_behind((name, file, Vec::new()), can_seek, pool, options)
    }

    /// The same where the first bytes of a file that cannot seek were already read.
    pub fn open_behind(
        (name, mut file, head): (&str, File, Vec<u8>),
        can_seek: bool,
        pool: &Pool,
        options: &ReaderOptions,
    ) -> Result<Content> {
        let failed = |error| unreadable(name, error);
        let table = match can_seek {
            true => read_seek_table(&mut file).map_err(failed)?,
            false => None,
        };
        let read = Arc::default();
        let file = Counted {
            head: io::Cursor::new(head),
            file,
            read: Arc::clone(&read),
        };
        let reader = match table {
            Some(table) => {
                let reader = SeekableReader::new(file, &table, pool, options);
                AnyReader::Table(reader.map_err(failed)?)
            }
            None => {
                let reader = Reader::new(file, pool, options.clone());
                AnyReader::Row(reader.map_err(failed)?)
            }
        };
        Ok(Content {
            name: name.to_string(),
            reader,
            read,
        })
    }

    /// Returns the decoded bytes of the whole stream, where a table states them.
    pub fn content_bytes(&self) -> Option<u64> {
        match &self.reader {
            AnyReader::Table(reader) => Some(reader.content_bytes()),
            AnyReader::Row(_) => None,
        }
    }

    /// Returns the count of the stream's bytes that are read so far, for a progress display.
    pub fn read_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.read)
    }

    /// Returns the bytes read of the stream, where no table knows the position better.
    pub fn stored_position(&self) -> Option<u64> {
        match &self.reader {
            AnyReader::Table(_) => None,
            AnyReader::Row(reader) => Some(reader.counted().stored_bytes),
        }
    }

    /// Returns the zeros that stood behind frames.
    pub fn padding_bytes(&self) -> u64 {
        match &self.reader {
            AnyReader::Table(_) => 0,
            AnyReader::Row(reader) => reader.counted().padding_bytes,
        }
    }

    /// Returns the next decoded bytes, none at the end.
    pub fn fill(&mut self) -> Result<&[u8]> {
        let name = &self.name;
        let found = match &mut self.reader {
            AnyReader::Table(reader) => reader.fill(),
            AnyReader::Row(reader) => reader.fill(),
        };
        found.map_err(|error| unreadable(name, error))
    }

    /// Marks some of these bytes as used.
    pub fn consume(&mut self, count: usize) {
        match &mut self.reader {
            AnyReader::Table(reader) => reader.consume(count),
            AnyReader::Row(reader) => reader.consume(count),
        }
    }

    /// Fills a buffer as far as there is content and returns the filled length.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let content = self.fill()?;
            if content.is_empty() {
                break;
            }
            let count = content.len().min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&content[..count]);
            self.consume(count);
            filled += count;
        }
        Ok(filled)
    }
}

/// Names the source of an error, and the option that lifts a limit.
pub fn unreadable(name: &str, error: Error) -> anyhow::Error {
    let is_window = matches!(&error, Error::Limit { what, .. } if what.ends_with("window"));
    let error = anyhow::Error::from(error);
    match is_window {
        true => error.context(format!(
            "{name} (--long=31 or -M2GiB allows a larger window)"
        )),
        false => error.context(name.to_string()),
    }
}
