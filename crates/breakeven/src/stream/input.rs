//! The incoming bytes of a stream: a window on the source that grows up to a bound, and the window's place in the
//! stream.

use std::io::{ErrorKind, Read};

use crate::error::{Error, Result};

use super::decoding::set_length;

/// Bytes asked of the source at a time, at least.
const READ_BYTES_MIN: usize = 128 << 10;

pub struct Input<R> {
    source: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// The window's start in the stream.
    offset: u64,
    has_ended: bool,
}

impl<R: Read> Input<R> {
    pub fn new(source: R) -> Input<R> {
        Input {
            source,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            offset: 0,
            has_ended: false,
        }
    }

    pub fn into_source(self) -> R {
        self.source
    }

    /// Returns the bytes that were read and not yet consumed.
    pub fn window(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the place of the window's first byte in the stream.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Moves on by `bytes` of the window.
    pub fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "consumed what is not there");
        self.start += bytes;
        self.offset += bytes as u64;
    }

    /// Reads until the window has `bytes` bytes, or the source ends; returns whether it has them.
    pub fn fill_to(&mut self, bytes: usize) -> Result<bool> {
        while self.end - self.start < bytes {
            if !self.fill_more(bytes)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads once, with room for a window of `bytes`; returns whether anything came.
    pub fn fill_more(&mut self, bytes: usize) -> Result<bool> {
        if self.has_ended {
            return Ok(false);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let wanted = bytes.max(self.end - self.start + 1);
        if self.start + wanted > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            if wanted > self.buffer.len() {
                let room = wanted.next_multiple_of(READ_BYTES_MIN);
                set_length(&mut self.buffer, room + READ_BYTES_MIN)?;
            }
        }
        loop {
            match self.source.read(&mut self.buffer[self.end..]) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(false);
                }
                Ok(count) => {
                    self.end += count;
                    return Ok(true);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io("read", "the stream", error)),
            }
        }
    }

    /// Moves on by `bytes`, at any distance; returns whether the source had as many.
    pub fn skip(&mut self, bytes: u64) -> Result<bool> {
        let mut left = bytes;
        loop {
            let here = left.min((self.end - self.start) as u64);
            self.consume(here as usize);
            left -= here;
            if left == 0 {
                return Ok(true);
            }
            if !self.fill_more(0)? {
                return Ok(false);
            }
        }
    }
}
