//! Frames decoded in order by the workers of a pool, for both readers.

use std::collections::VecDeque;

use crate::error::{Error, Result};
use crate::frame::{DecoderLimits, Kind, STREAM, Walk, Walked, Workspace};
use crate::pool::{Pool, Stage};

/// The limits of a reader.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// The most decoded bytes of the whole stream. Default none.
    pub output_bytes_max: Option<u64>,
    /// The most decoded bytes for each stored byte of the stream so far, beyond the first MiB. At 1,000 a bomb ends
    /// early; long runs are stored at 23,000. Default none.
    pub ratio_max: Option<f64>,
    /// The largest window of a frame that is decoded in pieces. Default 128 MiB.
    pub window_bytes_max: u64,
    /// The bytes of a frame decoded in pieces that are held back until its check is verified. For a longer frame, or
    /// without memory for it, wrong bytes may come before the error. Default 0.
    pub held_bytes_max: usize,
    /// Whether bytes behind the last frame that are no frame are ignored, instead of being an error. Default false.
    pub ignores_trailing: bool,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        ReaderOptions {
            output_bytes_max: None,
            ratio_max: None,
            window_bytes_max: DecoderLimits::default().window_bytes_max,
            held_bytes_max: 0,
            ignores_trailing: false,
        }
    }
}

/// Copies the front of the content to the target and returns the number of bytes copied.
pub(super) fn copy_front(content: &[u8], target: &mut [u8]) -> usize {
    let count = content.len().min(target.len());
    target[..count].copy_from_slice(&content[..count]);
    count
}

/// Decoded bytes below which the limit of the ratio does not apply.
const RATIO_FREE_BYTES: u64 = 1 << 20;

impl ReaderOptions {
    pub(super) fn limits(&self) -> DecoderLimits {
        DecoderLimits {
            window_bytes_max: self.window_bytes_max,
        }
    }

    /// Checks the decoded bytes of a stream after `stored_bytes` of it.
    pub(super) fn check(&self, content_bytes: u64, stored_bytes: u64) -> Result<()> {
        let limit = |what, limit_bytes| {
            Err(Error::Limit {
                what,
                limit_bytes,
                needed_bytes: content_bytes,
            })
        };
        if let Some(most) = self.output_bytes_max
            && content_bytes > most
        {
            return limit("decoded stream", most);
        }
        if let Some(ratio) = self.ratio_max {
            let most = (stored_bytes as f64 * ratio) as u64;
            if content_bytes > most.max(RATIO_FREE_BYTES) {
                return limit("decoded stream by its ratio", most);
            }
        }
        Ok(())
    }
}

/// One frame with its decoded bytes.
#[derive(Default)]
pub struct Frame {
    /// Where it begins in the stream.
    pub offset: u64,
    pub stored: Vec<u8>,
    pub content: Vec<u8>,
}

impl Frame {
    fn decode(&mut self, workspace: &mut Workspace, limits: DecoderLimits) -> Result<()> {
        let outcome = match Kind::of(&self.stored) {
            Some(Kind::Skippable) => check_skippable(&self.stored, &self.content),
            _ => workspace.decode_whole(limits, &self.stored, &mut self.content),
        };
        outcome.map_err(|error| placed(error, self.offset))
    }
}

/// Makes an error count from the start of the stream, from the place of its frame.
pub(super) fn placed(error: Error, offset: u64) -> Error {
    match error {
        Error::Unsupported { what } => Error::Unsupported {
            what: format!("{what}, at byte {offset}"),
        },
        other => other.moved_by(offset),
    }
}

/// Checks a frame whose header says that it is one skippable frame.
fn check_skippable(stored: &[u8], content: &[u8]) -> Result<()> {
    let (mut walk, mut walked) = Walk::begin();
    while let Walked::Read { at, bytes } = walked {
        let Some(piece) = stored.get(at as usize..at as usize + bytes) else {
            break;
        };
        walked = walk.step(piece)?;
    }
    if walked == Walked::Whole(stored.len() as u64) && content.is_empty() {
        return Ok(());
    }
    let found = format!("another in {} bytes", stored.len());
    let expected = format!("a frame of {} decoded bytes", content.len());
    Err(Error::corrupt(STREAM, 0, expected, found))
}

/// Frames in the workers' queue.
pub struct Frames {
    stage: Stage<Frame, Frame, Workspace>,
    spare: VecDeque<Frame>,
}

impl Frames {
    /// Makes room for two frames for each worker, and two more.
    pub fn new(pool: &Pool, limits: DecoderLimits) -> Result<Frames> {
        let capacity = 2 * pool.worker_count().max(1) + 2;
        let work = move |workspace: &mut Workspace, mut frame: Frame| {
            frame.decode(workspace, limits)?;
            Ok(frame)
        };
        Ok(Frames {
            stage: pool.stage(capacity, Workspace::new, work)?,
            spare: VecDeque::new(),
        })
    }

    pub fn is_full(&self) -> bool {
        self.stage.is_full()
    }

    /// Returns a frame whose buffers may have been used before.
    pub fn spare(&mut self) -> Frame {
        self.spare.pop_front().unwrap_or_default()
    }

    /// Releases the unused buffers; returns whether there were any.
    pub fn release_spare(&mut self) -> bool {
        let had_spare = !self.spare.is_empty();
        self.spare = VecDeque::new();
        had_spare
    }

    pub fn give_back(&mut self, frame: Frame) {
        if self.spare.len() < self.stage.capacity() {
            self.spare.push_back(frame);
        }
    }

    /// Sends a frame to be decoded into its content, whose length must be that of the frame.
    pub fn submit(&mut self, frame: Frame) {
        let refused = self.stage.submit(frame);
        refused.expect("room for one frame in a stage of our own");
    }

    /// Returns the next frame if it is decoded.
    pub fn ready(&mut self) -> Option<Result<Frame>> {
        self.stage.ready_result()
    }

    /// Waits for the next frame, if there is one.
    pub fn next(&mut self) -> Option<Result<Frame>> {
        self.stage.next_result()
    }

    /// Forgets the frames on their way.
    pub fn clear(&mut self) {
        while let Some(result) = self.stage.next_result() {
            if let Ok(frame) = result {
                self.give_back(frame);
            }
        }
    }
}

/// Gives a vector the length, without clearing its old bytes.
pub fn set_length(bytes: &mut Vec<u8>, length: usize) -> Result<()> {
    bytes.truncate(length);
    let taken = bytes.try_reserve_exact(length - bytes.len());
    taken.map_err(|_| Error::OutOfMemory {
        what: "a frame and its content",
    })?;
    bytes.resize(length, 0);
    Ok(())
}
