//! One frame as long as its content, made by libzstd's own workers.
//!
//! The content is cut into jobs, and each job sees the end of the one before it. On text with repeats over megabytes,
//! such a frame is half as long as frames of 1 MiB, which see nothing of each other. The output is one standard frame
//! with its checksum. Its bytes do not depend on the number of workers.
//!
//! Zeros need no compressing. If a frame passes zeros, a run of them becomes blocks of one byte and a length, between
//! jobs that see nothing of each other. The check over both is then computed here.
//!
//! Not here: files, the choice of the level, and the choice of zeros that are worth the end of a job.
#![deny(unsafe_code)]

use xxhash_rust::xxh64::Xxh64;
use zstd_safe::zstd_sys::{ZSTD_EndDirective, ZSTD_ErrorCode};
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

use super::Step;
use crate::codec::{Codec, Method};
use crate::error::{Error, Result};

/// The purpose of memory in errors.
const LONG_FRAME: &str = "a long frame";

/// The form of a long frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongOptions {
    /// The level of zstd, -7 to 22. Default 3, as in stock `zstd`.
    pub level: i8,
    /// Threads of libzstd beside the caller's. Default 1. The bytes without any worker differ from those with one or
    /// more.
    pub workers: u32,
    /// The logarithm of the window, 10 to 31: any reader takes up to 27 by default. Default that of the level.
    pub window_log: Option<u32>,
    /// Whether the whole window is searched for matches, beside the level's own search. Default no.
    pub matches_far: bool,
    /// Bytes of a job, at least 512 KiB. Default four windows.
    pub job_bytes: Option<u32>,
    /// The part of the job before that a job sees: 9 for a whole window, and half as much for each step down. Default
    /// that of the level.
    pub overlap_log: Option<u32>,
    /// The length of the content, which the frame then states; content of another length is an error. Default unknown.
    pub content_bytes: Option<u64>,
    /// Whether the frame ends with a check of its content. Default yes.
    pub has_check: bool,
    /// Whether a small change of the content changes little of the frame, as suits rsync: zstd's own way, with workers.
    /// Default no.
    pub is_rsyncable: bool,
    /// Whether runs of zeros may bypass the workers ([`LongEncoder::zeros`]). Jobs then see nothing of each other.
    /// Default no.
    pub passes_zeros: bool,
}

impl Default for LongOptions {
    fn default() -> LongOptions {
        LongOptions {
            level: 3,
            workers: 1,
            window_log: None,
            matches_far: false,
            job_bytes: None,
            overlap_log: None,
            content_bytes: None,
            has_check: true,
            is_rsyncable: false,
            passes_zeros: false,
        }
    }
}

/// The overlap of a job that sees nothing of the one before.
const OVERLAP_NONE: u32 = 1;
/// The largest window that stock readers take by default.
pub const WINDOW_LOG_MAX: u32 = 27;
/// The largest window that a frame may have.
const WINDOW_LOG_LIMIT: u32 = 31;
/// The greatest stated content of a frame that libzstd compresses without workers.
const WORKERLESS_BYTES_MAX: u64 = 512 << 10;
/// Bytes of the longest block, in any window of at least this length (RFC 8878, section 3.1.1.2.4).
pub const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The smallest window with blocks of this length, as a logarithm.
const WINDOW_LOG_OF_BLOCKS: u32 = 17;
/// The mark of a run in a block's header: the run's length stands behind it, and then the byte (RFC 8878, section
/// 3.1.1.2).
const RUN_BLOCK: u32 = 1 << 1;
const RUN_BLOCK_BYTES: usize = 4;
/// The place in a frame's header that says whether a check ends it (RFC 8878, section 3.1.1.1.1).
const DESCRIPTOR_AT: u64 = 4;
const DESCRIPTOR_CHECK: u8 = 1 << 2;
const CHECK_BYTES: usize = 4;

/// The number of places where a far match is sought, as a logarithm. Only one worker at a time searches. With libzstd's
/// usual 16 places headers took 13 % more core time for 0.4 % fewer bytes. An archive of documents and sources took 4 %
/// for 0.1 %.
const FAR_BUCKET_LOG: u32 = 1;

impl LongOptions {
    /// Checks that the values are in range.
    ///
    /// # Errors
    ///
    /// `Invalid`, with the accepted values.
    pub fn check(&self) -> Result<()> {
        let invalid = |what, found: u32, accepted| {
            Err(Error::invalid(what, format!("{found} is not {accepted}")))
        };
        if !(-7..=22).contains(&self.level) || self.level == 0 {
            let reason = format!("{} is none of -7 to -1 and 1 to 22", self.level);
            return Err(Error::invalid("level of a long frame", reason));
        }
        if self.workers > 256 {
            return invalid("workers of a long frame", self.workers, "0 to 256");
        }
        match self.window_log {
            Some(log) if !(10..=WINDOW_LOG_LIMIT).contains(&log) => {
                invalid("window of a long frame, as a logarithm,", log, "10 to 31")
            }
            _ => Ok(()),
        }
    }
}

/// The smallest window that is tried when memory is short, as a logarithm: a context of level 3 then takes less than a
/// MiB.
const WINDOW_LOG_MIN: u32 = 17;

impl LongOptions {
    /// Returns options that take less memory, if there are any. It first drops threads, which each have jobs and
    /// tables, then far matches, and then makes the window ever smaller.
    fn thriftier(&self) -> Option<LongOptions> {
        if self.workers > 0 {
            return Some(LongOptions {
                workers: 0,
                is_rsyncable: false,
                job_bytes: None,
                overlap_log: None,
                passes_zeros: false,
                ..*self
            });
        }
        let window_log = match self.window_log {
            _ if self.matches_far => None,
            Some(log) if log <= WINDOW_LOG_MIN => return None,
            log => Some(log.unwrap_or(WINDOW_LOG_MAX) - 1),
        };
        Some(LongOptions {
            matches_far: false,
            window_log,
            ..*self
        })
    }
}

/// The progress of a long frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes that workers have compressed.
    pub consumed: u64,
    /// Compressed bytes of these.
    pub produced: u64,
    /// Bytes of these that were handed out.
    pub flushed: u64,
    /// Jobs that were begun.
    pub jobs: u32,
}

/// Makes one frame.
///
/// # Cost
///
/// With W bytes of window, J of a job (4 W by default) and N workers, it has N + 2 jobs with their overlap, N + 2
/// compressed jobs, and N times the level's tables. Level 9 with 2 workers takes 110 MB, the same as stock
/// `zstd -9 -T2`.
pub struct LongEncoder {
    context: CCtx<'static>,
    options: LongOptions,
    /// Whether the memory was taken, but for that of the jobs.
    is_prepared: bool,
    /// Bytes of content taken so far. libzstd's workers check the lengths of jobs, but nothing checks the whole.
    taken_bytes: u64,
    has_ended: bool,
    /// Present where zeros bypass the workers.
    passing: Option<Passing>,
}

/// The part of a frame with passed zeros that libzstd does not do.
struct Passing {
    check: Option<Xxh64>,
    /// Bytes that were handed out.
    written_bytes: u64,
    /// The end of the frame that is not yet handed out, once it is known.
    tail: Option<Vec<u8>>,
}

impl Passing {
    fn take(&mut self, content: &[u8]) {
        if let Some(check) = &mut self.check {
            check.update(content);
        }
    }

    /// Sets the header's flag that a check ends the frame, which libzstd does not know.
    fn hand_out(&mut self, bytes: &mut [u8]) {
        let descriptor = DESCRIPTOR_AT.checked_sub(self.written_bytes);
        let descriptor = descriptor.and_then(|at| bytes.get_mut(at as usize));
        if let (Some(descriptor), true) = (descriptor, self.check.is_some()) {
            *descriptor |= DESCRIPTOR_CHECK;
        }
        self.written_bytes += bytes.len() as u64;
    }

    /// Hands out as much of the check as there is room for; returns how much, and whether it was all.
    fn end(&mut self, target: &mut [u8]) -> (usize, bool) {
        let check = self.check.as_ref().map(Xxh64::digest);
        let check = check.map(|it| it.to_le_bytes()[..CHECK_BYTES].to_vec());
        let tail = self.tail.get_or_insert_with(|| check.unwrap_or_default());
        let count = tail.len().min(target.len());
        target[..count].copy_from_slice(&tail[..count]);
        tail.drain(..count);
        (count, tail.is_empty())
    }
}

impl LongEncoder {
    /// Begins a frame. Memory is taken by the first step.
    ///
    /// # Errors
    ///
    /// `Invalid` for an option out of range, `OutOfMemory` if the system gives no memory.
    pub fn begin(options: &LongOptions) -> Result<LongEncoder> {
        options.check()?;
        Ok(LongEncoder {
            context: context_for(options)?,
            options: *options,
            is_prepared: false,
            taken_bytes: 0,
            has_ended: false,
            passing: None,
        })
    }

    /// Takes the memory for the frame, which the first step does otherwise. If the system gives none, or would have
    /// none left for the jobs, it takes less: a frame without threads, with a smaller window.
    ///
    /// # Errors
    ///
    /// `OutOfMemory` if the system gives no memory at all.
    pub fn prepare(&mut self) -> Result<()> {
        while !self.is_prepared {
            let (mut nothing, mut nowhere) = (InBuffer::around(&[]), [0; 0]);
            let mut nowhere = OutBuffer::around(&mut nowhere[..]);
            let goes_on = ZSTD_EndDirective::ZSTD_e_continue;
            let step = (self.context).compress_stream2(&mut nowhere, &mut nothing, goes_on);
            let step = step.map_err(failed).and_then(|_| self.try_jobs());
            match (step, self.options.thriftier()) {
                (Ok(_), _) => self.is_prepared = true,
                (Err(Error::OutOfMemory { .. }), Some(thriftier)) => {
                    self.context = context_for(&thriftier)?;
                    self.options = thriftier;
                }
                (Err(error), _) => return Err(error),
            }
        }
        if self.passes_zeros() && self.passing.is_none() {
            self.passing = Some(Passing {
                check: self.options.has_check.then(|| Xxh64::new(0)),
                written_bytes: 0,
                tail: None,
            });
        }
        Ok(())
    }

    /// Returns whether zeros may bypass the workers. This is known once the frame is prepared.
    pub fn passes_zeros(&self) -> bool {
        passes_zeros(&self.options)
    }

    /// Hands out the workers' output for the content so far, and ends their jobs. Call it until that has ended.
    ///
    /// # Errors
    ///
    /// As [`LongEncoder::encode`].
    pub fn drain(&mut self, target: &mut [u8]) -> Result<Step> {
        self.step(&[], target, ZSTD_EndDirective::ZSTD_e_flush)
    }

    /// Takes zeros, at most [`BLOCK_BYTES_MAX`], as a block of their own, once all jobs are drained. Without room for
    /// the block it takes none. They never begin a frame, for readers before zstd 1.4.4 stop at such a first block.
    ///
    /// # Errors
    ///
    /// As [`LongEncoder::encode`].
    ///
    /// # Panics
    ///
    /// Where zeros do not pass, or nothing was encoded before.
    pub fn zeros(&mut self, zeros: &[u8], target: &mut [u8]) -> Result<Step> {
        assert!(zeros.len() <= BLOCK_BYTES_MAX);
        self.ensure_states(zeros.len(), false)?;
        let passing = self.passing.as_mut().expect("a frame that passes zeros");
        assert!(
            passing.written_bytes > DESCRIPTOR_AT,
            "a frame begins with a job"
        );
        let Some(room) = target
            .get_mut(..RUN_BLOCK_BYTES)
            .filter(|_| !zeros.is_empty())
        else {
            return Ok(Step::default());
        };
        let header = RUN_BLOCK | (zeros.len() as u32) << 3;
        // The repeated byte stands behind the three bytes of the header.
        room.copy_from_slice(&header.to_le_bytes());
        passing.take(zeros);
        passing.written_bytes += RUN_BLOCK_BYTES as u64;
        self.taken_bytes += zeros.len() as u64;
        Ok(Step {
            read: zeros.len(),
            written: RUN_BLOCK_BYTES,
            ended: false,
        })
    }

    /// Checks that the content is not longer than the frame states, and at its end not shorter.
    fn ensure_states(&self, more_bytes: usize, is_end: bool) -> Result<()> {
        let all = self.taken_bytes + more_bytes as u64;
        match self.options.content_bytes {
            Some(stated) if all > stated || is_end && all < stated => {
                let reason = format!("it states a content of {stated} bytes, {all} were given");
                Err(Error::invalid("a long frame", reason))
            }
            _ => Ok(()),
        }
    }

    /// Tests whether the system would give the memory that workers take later, when there is no way back. It is the
    /// jobs' content again for their output, and tables for each.
    fn try_jobs(&self) -> Result<()> {
        let codec = Codec::Zstd {
            level: self.options.level,
        };
        let tables = Method::of(codec).compressor_bytes(0);
        let bytes = match self.options.workers {
            0 => 0,
            workers => self.context.sizeof() + workers as usize * tables,
        };
        Error::try_memory(bytes, LONG_FRAME)
    }

    /// Sets the level of the jobs that begin from now on.
    ///
    /// # Errors
    ///
    /// `Invalid` for an unknown level.
    pub fn set_level(&mut self, level: i8) -> Result<()> {
        if level != self.options.level {
            let parameter = CParameter::CompressionLevel(level.into());
            self.context.set_parameter(parameter).map_err(failed)?;
            self.options.level = level;
        }
        Ok(())
    }

    /// Takes content and hands out compressed bytes, as far as there is room for either. It waits only where it can do
    /// neither.
    ///
    /// # Errors
    ///
    /// `Invalid` for more content than was stated, `OutOfMemory` if the system gives none.
    pub fn encode(&mut self, source: &[u8], target: &mut [u8]) -> Result<Step> {
        self.step(source, target, ZSTD_EndDirective::ZSTD_e_continue)
    }

    /// As [`LongEncoder::encode`], and ends a job with the source, if all of the source is taken and a worker is free.
    ///
    /// # Errors
    ///
    /// As [`LongEncoder::encode`].
    pub fn end_job(&mut self, source: &[u8], target: &mut [u8]) -> Result<Step> {
        self.step(source, target, ZSTD_EndDirective::ZSTD_e_flush)
    }

    /// Takes the rest of the content and hands out the rest of the frame. Call it until the frame has ended.
    ///
    /// # Errors
    ///
    /// As [`LongEncoder::encode`], and `Invalid` for less content than was stated.
    pub fn end(&mut self, source: &[u8], target: &mut [u8]) -> Result<Step> {
        self.step(source, target, ZSTD_EndDirective::ZSTD_e_end)
    }

    fn step(
        &mut self,
        source: &[u8],
        target: &mut [u8],
        directive: ZSTD_EndDirective,
    ) -> Result<Step> {
        assert!(!self.has_ended, "a frame that has ended takes no more");
        let is_end = directive == ZSTD_EndDirective::ZSTD_e_end;
        self.ensure_states(source.len(), is_end)?;
        self.prepare()?;
        if let Some(passing) = self.passing.as_mut().filter(|it| it.tail.is_some()) {
            let (written, ended) = passing.end(target);
            self.has_ended = ended;
            return Ok(Step {
                read: 0,
                written,
                ended,
            });
        }
        let mut input = InBuffer::around(source);
        let mut output = OutBuffer::around(target);
        let left = self
            .context
            .compress_stream2(&mut output, &mut input, directive)
            .map_err(failed)?;
        let (read, mut written) = (input.pos, output.pos());
        self.taken_bytes += read as u64;
        let mut ended = left == 0 && read == source.len();
        if let Some(passing) = &mut self.passing {
            passing.take(&source[..read]);
            passing.hand_out(&mut target[..written]);
            if is_end && ended {
                let (count, is_all) = passing.end(&mut target[written..]);
                (written, ended) = (written + count, is_all);
            }
        }
        self.has_ended = is_end && ended;
        let is_told = is_end || directive == ZSTD_EndDirective::ZSTD_e_flush;
        Ok(Step {
            read,
            written,
            ended: ended && is_told,
        })
    }

    /// Returns whether there are jobs: a short content of stated length is compressed as it is taken, at the first
    /// level.
    pub fn has_workers(&self) -> bool {
        has_workers(&self.options)
    }

    /// Returns the progress of the workers.
    pub fn progress(&self) -> Progress {
        let it = self.context.get_frame_progression();
        Progress {
            consumed: it.consumed,
            produced: it.produced,
            flushed: it.flushed,
            jobs: it.currentJobID,
        }
    }
}

fn has_workers(options: &LongOptions) -> bool {
    let stated = options.content_bytes;
    options.workers > 0 && stated.is_none_or(|bytes| bytes > WORKERLESS_BYTES_MAX)
}

/// Where jobs end to suit rsync, or blocks are shorter than a window, zeros are ordinary content.
fn passes_zeros(options: &LongOptions) -> bool {
    let has_long_blocks = options
        .window_log
        .is_none_or(|log| log >= WINDOW_LOG_OF_BLOCKS);
    let is_plain = !options.is_rsyncable && !options.matches_far;
    options.passes_zeros && has_workers(options) && has_long_blocks && is_plain
}

fn context_for(options: &LongOptions) -> Result<CCtx<'static>> {
    let mut context = CCtx::try_create().ok_or_else(no_memory)?;
    let mut set = |parameter| context.set_parameter(parameter).map_err(failed);
    set(CParameter::CompressionLevel(options.level.into()))?;
    let passes_zeros = passes_zeros(options);
    set(CParameter::ChecksumFlag(options.has_check && !passes_zeros))?;
    set(CParameter::NbWorkers(options.workers))?;
    if let Some(log) = options.window_log {
        set(CParameter::WindowLog(log))?;
    }
    if options.matches_far {
        set(CParameter::EnableLongDistanceMatching(true))?;
        set(CParameter::LdmBucketSizeLog(FAR_BUCKET_LOG))?;
    }
    if let Some(bytes) = options.job_bytes {
        set(CParameter::JobSize(bytes))?;
    }
    let overlap_log = match passes_zeros {
        true => Some(OVERLAP_NONE),
        false => options.overlap_log,
    };
    if let Some(log) = overlap_log {
        set(CParameter::OverlapSizeLog(log))?;
    }
    if options.is_rsyncable {
        set(CParameter::RSyncable(true))?;
    }
    let pledged = context.set_pledged_src_size(options.content_bytes);
    pledged.map_err(failed)?;
    Ok(context)
}

fn no_memory() -> Error {
    Error::OutOfMemory { what: LONG_FRAME }
}

fn failed(code: usize) -> Error {
    const NO_MEMORY: usize = (ZSTD_ErrorCode::ZSTD_error_memory_allocation as usize).wrapping_neg();
    match code {
        NO_MEMORY => no_memory(),
        code => Error::invalid("long frame of zstd", zstd_safe::get_error_name(code)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encode(content: &[u8], piece_bytes: usize, options: &LongOptions) -> Result<Vec<u8>> {
        let mut encoder = LongEncoder::begin(options)?;
        let (mut frame, mut room) = (Vec::new(), vec![0; 10_000]);
        for piece in content.chunks(piece_bytes) {
            let mut at = 0;
            while at < piece.len() {
                let step = encoder.encode(&piece[at..], &mut room)?;
                at += step.read;
                frame.extend_from_slice(&room[..step.written]);
            }
        }
        loop {
            let step = encoder.end(&[], &mut room)?;
            frame.extend_from_slice(&room[..step.written]);
            if step.ended {
                return Ok(frame);
            }
        }
    }

    /// Text that repeats itself over some MiB.
    fn text(bytes: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(5);
        let words: Vec<String> = (0..2000)
            .map(|_| format!("{:x}", random.u32(..1 << 20)))
            .collect();
        let mut text = Vec::new();
        while text.len() < bytes / 2 {
            text.extend(random.choice(&words).expect("words").bytes());
            text.push(b' ');
        }
        text.extend_from_within(..bytes - text.len());
        text
    }

    #[test]
    fn a_long_frame_is_one_frame_whatever_the_workers_and_the_pieces() {
        let content = text(5_000_000);
        let options = LongOptions {
            window_log: Some(23),
            matches_far: true,
            job_bytes: Some(1 << 20),
            ..LongOptions::default()
        };
        let mut frames = Vec::new();
        for (workers, piece_bytes, content_bytes) in [
            (1, 1 << 20, None),
            (2, 1 << 20, None),
            (3, 70_000, None),
            (2, 1 << 20, Some(5_000_000)),
        ] {
            let options = LongOptions {
                workers,
                content_bytes,
                ..options
            };
            let frame = encode(&content, piece_bytes, &options).unwrap();
            let size = zstd_safe::find_frame_compressed_size(&frame).unwrap();
            assert_eq!(size, frame.len());
            let stated = zstd_safe::get_frame_content_size(&frame).unwrap();
            assert_eq!(stated, content_bytes);
            let mut back = vec![0; content.len()];
            let decoded = zstd_safe::decompress(&mut back[..], &frame).unwrap();
            assert!(decoded == content.len() && back == content);
            frames.push(frame);
        }
        assert!(frames[0] == frames[1] && frames[0] == frames[2]);
        let apart: usize = content
            .chunks(1 << 20)
            .map(|it| zstd_safe::compress(&mut vec![0; 2 << 20][..], it, 3).unwrap())
            .sum();
        let (long, apart) = (frames[0].len() as f64, apart as f64);
        println!("{long} bytes in one frame, {apart} in frames of 1 MiB");
        assert!(long < 0.6 * apart);
    }

    #[test]
    fn the_level_changes_between_jobs() {
        let content = text(6_000_000);
        let options = LongOptions {
            job_bytes: Some(1 << 20),
            window_log: Some(21),
            ..LongOptions::default()
        };
        let of_level = |level| {
            let options = LongOptions { level, ..options };
            encode(&content, 1 << 20, &options).unwrap().len()
        };
        let mut encoder = LongEncoder::begin(&LongOptions {
            level: 1,
            ..options
        })
        .unwrap();
        let mut frame = vec![0; 7_000_000];
        let mut written = 0;
        for (index, piece) in content.chunks(1 << 20).enumerate() {
            encoder.set_level(if index < 3 { 1 } else { 12 }).unwrap();
            let mut at = 0;
            while at < piece.len() {
                let step = encoder.encode(&piece[at..], &mut frame[written..]).unwrap();
                (at, written) = (at + step.read, written + step.written);
            }
        }
        while !{
            let step = encoder.end(&[], &mut frame[written..]).unwrap();
            written += step.written;
            step.ended
        } {}
        let mut back = vec![0; content.len()];
        zstd_safe::decompress(&mut back[..], &frame[..written]).unwrap();
        assert!(back == content);
        let (light, dense) = (of_level(1), of_level(12));
        println!("{light} bytes at level 1, {dense} at 12, {written} at first one, then the other");
        assert!(dense < written && written < light);
    }

    #[test]
    fn another_length_than_stated_is_an_error() {
        // Contents are shorter and longer, within the first job and behind it, by one worker and by several.
        for (stated, workers) in [1_000_000, 2_999_999, 3_000_001, 9_000_000]
            .into_iter()
            .flat_map(|stated| [(stated, 1), (stated, 3)])
        {
            let options = LongOptions {
                workers,
                content_bytes: Some(stated),
                job_bytes: Some(1 << 20),
                ..LongOptions::default()
            };
            let outcome = encode(&text(3_000_000), 1 << 16, &options);
            let is_refused = matches!(outcome, Err(Error::Invalid { .. }));
            assert!(is_refused, "{stated} with {workers} workers");
        }
        let level = LongOptions {
            level: 23,
            ..LongOptions::default()
        };
        assert!(LongEncoder::begin(&level).is_err());
    }
}
