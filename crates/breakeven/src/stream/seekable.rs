//! The reader of a file with a seek table: it starts at any byte, and decodes frames of any kind in parallel.
//!
//! The table is an unverified claim (`docs/format.md`). It is used only if it accounts for every byte of the file. Each
//! frame must decode to the length and check of its entry. Skipped frames are not checked.

use std::io::{self, Read, Seek, SeekFrom};

use crate::error::{Error, Result};
use crate::frame::{FOOTER_BYTES, STREAM, SeekTable};
use crate::pool::Pool;

use super::decoding::{Frame, Frames, ReaderOptions, copy_front, set_length};

/// The longest frame and the longest content that a table may state to be used.
const FRAME_BYTES_MAX: u32 = 64 << 20;

/// Reads a stream from any place, by its seek table.
///
/// # Cost
///
/// Memory, with N workers (at least 1): 2 N + 2 frames with their contents, as long as the longest of the stream (64
/// MiB at most). Each entry of the table takes 28 bytes.
pub struct SeekableReader<R: Read + Seek> {
    source: R,
    frames: Frames,
    /// The start of each frame, stored and decoded, and the ends of the last.
    starts: Vec<(u64, u64)>,
    /// The next frame to be sent to the workers.
    next_frame: usize,
    /// Where the source stands.
    source_at: u64,
    current: Frame,
    at: usize,
    /// The next decoded byte to be handed out.
    position: u64,
    /// Bytes to leave out of the next frame, after a seek.
    leave_out: u64,
    is_broken: bool,
}

/// Reads the seek table at the end of a file, if there is a usable one. The source stands at its start afterwards.
///
/// # Errors
///
/// `Io` from the source. An unusable table counts as none.
pub fn read_seek_table(source: &mut (impl Read + Seek)) -> Result<Option<SeekTable>> {
    let table = find_table(source).map_err(|error| Error::io("read", "the seek table", error))?;
    let start = source.seek(SeekFrom::Start(0));
    start.map_err(|error| Error::io("seek in", "the stream", error))?;
    Ok(table)
}

fn find_table(source: &mut (impl Read + Seek)) -> io::Result<Option<SeekTable>> {
    let file_bytes = source.seek(SeekFrom::End(0))?;
    let Some(footer_at) = file_bytes.checked_sub(FOOTER_BYTES as u64) else {
        return Ok(None);
    };
    source.seek(SeekFrom::Start(footer_at))?;
    let mut footer = [0; FOOTER_BYTES];
    source.read_exact(&mut footer)?;
    let table_bytes = SeekTable::frame_bytes_by_footer(&footer);
    // A table cannot be longer than its file, so this bounds the memory for it.
    let Some(table_at) = table_bytes.and_then(|bytes| file_bytes.checked_sub(bytes)) else {
        return Ok(None);
    };
    source.seek(SeekFrom::Start(table_at))?;
    let mut frame = vec![0; (file_bytes - table_at) as usize];
    source.read_exact(&mut frame)?;
    let table = SeekTable::from_frame(&frame).ok();
    Ok(table.filter(|table| {
        let fits = |bytes: u32| bytes <= FRAME_BYTES_MAX;
        let mut entries = table.entries.iter();
        table.stored_bytes() == table_at
            && entries.all(|it| fits(it.stored_bytes) && fits(it.content_bytes))
    }))
}

impl<R: Read + Seek> SeekableReader<R> {
    /// Begins to read a source by its table from [`read_seek_table`].
    ///
    /// # Errors
    ///
    /// `Limit` if the table states more bytes than the options allow; as [`Pool::stage`].
    pub fn new(
        source: R,
        table: &SeekTable,
        pool: &Pool,
        options: &ReaderOptions,
    ) -> Result<SeekableReader<R>> {
        let mut starts = Vec::with_capacity(table.entries.len() + 1);
        let mut start = (0, 0);
        for entry in &table.entries {
            starts.push(start);
            start.0 += u64::from(entry.stored_bytes);
            start.1 += u64::from(entry.content_bytes);
        }
        starts.push(start);
        options.check(start.1, start.0)?;
        Ok(SeekableReader {
            source,
            frames: Frames::new(pool, options.limits())?,
            starts,
            next_frame: 0,
            // The first frame is sought from any position.
            source_at: u64::MAX,
            current: Frame::default(),
            at: 0,
            position: 0,
            leave_out: 0,
            is_broken: false,
        })
    }

    /// Returns the decoded bytes of the whole stream.
    pub fn content_bytes(&self) -> u64 {
        self.end().1
    }

    fn end(&self) -> (u64, u64) {
        *self.starts.last().expect("an end")
    }

    /// Returns the next decoded bytes, none at the end of the stream. They are the same until
    /// [`SeekableReader::consume`] moves on.
    ///
    /// # Errors
    ///
    /// `Corrupt` with the byte of the stream, `Io` from the source; then `Poisoned` until a seek.
    pub fn fill(&mut self) -> Result<&[u8]> {
        if self.is_broken {
            return Err(Error::Poisoned {
                what: "the stream".to_string(),
                cause: "an error before".to_string(),
            });
        }
        while self.at == self.current.content.len() {
            let used = std::mem::take(&mut self.current);
            self.frames.give_back(used);
            self.at = 0;
            let next = self.next_content();
            self.is_broken = next.is_err();
            match next? {
                Some(frame) => {
                    self.at = self.leave_out as usize;
                    self.leave_out = 0;
                    self.current = frame;
                }
                None => return Ok(&[]),
            }
        }
        Ok(&self.current.content[self.at..])
    }

    /// Marks `bytes` of the result of [`SeekableReader::fill`] as used.
    ///
    /// # Panics
    ///
    /// If there were not as many.
    pub fn consume(&mut self, bytes: usize) {
        assert!(self.at + bytes <= self.current.content.len());
        self.at += bytes;
        self.position += bytes as u64;
    }

    /// Returns the next frame that has a content.
    fn next_content(&mut self) -> Result<Option<Frame>> {
        loop {
            let mut lacks_memory = None;
            while !self.frames.is_full() && self.next_frame + 1 < self.starts.len() {
                match self.feed() {
                    Ok(()) => {}
                    // Frames under way give back their buffers.
                    Err(Error::OutOfMemory { .. }) if self.frames.release_spare() => {}
                    Err(error @ Error::OutOfMemory { .. }) => {
                        lacks_memory = Some(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            match self.frames.next() {
                None => return lacks_memory.map_or(Ok(None), Err),
                Some(Ok(frame)) if frame.content.is_empty() => self.frames.give_back(frame),
                Some(frame) => return frame.map(Some),
            }
        }
    }

    fn feed(&mut self) -> Result<()> {
        let (start, end) = (
            self.starts[self.next_frame],
            self.starts[self.next_frame + 1],
        );
        let failed = |error| Error::io("read", "the stream", error);
        if self.source_at != start.0 {
            self.source.seek(SeekFrom::Start(start.0)).map_err(failed)?;
        }
        let mut frame = self.frames.spare();
        frame.offset = start.0;
        set_length(&mut frame.stored, (end.0 - start.0) as usize)?;
        set_length(&mut frame.content, (end.1 - start.1) as usize)?;
        self.source_at = u64::MAX;
        match self.source.read_exact(&mut frame.stored) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let found = "the end of the input";
                return Err(Error::corrupt(STREAM, start.0, "a whole frame", found));
            }
            Err(error) => return Err(failed(error)),
        }
        self.source_at = end.0;
        self.next_frame += 1;
        self.frames.submit(frame);
        Ok(())
    }

    /// Goes to the decoded byte `position`; behind the end there is nothing to read.
    fn go_to(&mut self, position: u64) {
        self.frames.clear();
        self.frames.give_back(std::mem::take(&mut self.current));
        self.at = 0;
        self.is_broken = false;
        self.position = position;
        // The last frame that begins at or before the position; it has content if there is any at the position.
        let frames = &self.starts[..self.starts.len() - 1];
        let before = frames.partition_point(|start| start.1 <= position);
        self.next_frame = match position < self.end().1 {
            true => before - 1,
            false => frames.len(),
        };
        self.leave_out = match position < self.end().1 {
            true => position - self.starts[self.next_frame].1,
            false => 0,
        };
    }
}

impl<R: Read + Seek> Read for SeekableReader<R> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        let count = copy_front(self.fill().map_err(io::Error::other)?, target);
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read + Seek> Seek for SeekableReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::End(distance) => self.end().1.checked_add_signed(distance),
            SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        let position = target.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a seek to before the start")
        })?;
        if position != self.position || self.is_broken {
            self.go_to(position);
        }
        Ok(position)
    }
}
