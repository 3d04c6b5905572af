//! A slow block split into parts, each with a frame of its own, which several workers encode.
//!
//! Frames leave in order. So a slow block holds back all later ones, until no frame buffer is left and the other
//! workers stand still. The worker of such a block opens it to the others. A worker that comes for its own block first
//! encodes parts of the open blocks, which lie earlier in the stream. So only the worker that took a block waits for
//! it: for the last of its parts.
//!
//! Parts are equal but for the last, and their frames lie one behind the other in the block's frame buffer. Each is an
//! ordinary frame: readers and seek tables know nothing of blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Instant;

use crate::codec::Method;
use crate::error::{Error, Result};
use crate::frame::{Encoded, Encoder, Entry, frame_bytes_max};
use crate::meter::thread_cpu;
use crate::units::Seconds;

use super::feed::Raw;
#[cfg(test)]
use super::kill_test as kill;

/// The numbers of parts of a block.
pub const PARTS: [usize; 4] = [1, 2, 4, 8];
/// The most parts of a block.
pub const PARTS_MAX: usize = PARTS[PARTS.len() - 1];
/// The shortest part: below, frames and short windows cost more than splitting gains.
pub const PART_BYTES_MIN: usize = 64 << 10;

/// Returns the bytes of the longest frames that a block may have, whole or in parts.
pub fn frames_bytes_max(block_bytes: usize) -> usize {
    let bytes = |parts: usize| parts * frame_bytes_max(block_bytes.div_ceil(parts));
    PARTS.map(bytes).into_iter().max().expect("one part")
}

/// Returns the memory of one worker for parts.
pub fn part_frame_bytes_max(block_bytes: usize) -> usize {
    frame_bytes_max(block_bytes.div_ceil(2))
}

/// A worker's memory.
#[derive(Default)]
pub struct Workspace {
    pub encoder: Encoder,
    /// The frame of a part; none before the first.
    part: Vec<u8>,
}

/// The frames of a block, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Frames {
    entries: [Entry; PARTS_MAX],
    count: usize,
    /// Whether no frame's method made anything smaller.
    pub is_plain: bool,
    /// Whether the one frame is raw and is written around the block in place.
    pub is_left: bool,
}

const NO_ENTRY: Entry = Entry {
    stored_bytes: 0,
    content_bytes: 0,
    check: 0,
};

impl Frames {
    fn of_one(encoded: &Encoded, content_bytes: usize) -> Frames {
        let mut frames = Frames::none();
        frames.push(encoded, content_bytes);
        frames
    }

    /// Makes the frame of a whole block; or leaves a block in the writer's own buffer, if it is to be stored.
    ///
    /// # Errors
    ///
    /// Errors of the encoder.
    pub fn of_block(
        encoder: &mut Encoder,
        method: Method,
        raw: &Raw,
        frame: &mut [u8],
    ) -> Result<Frames> {
        let content_bytes = raw.bytes().len();
        Ok(match raw {
            Raw::Own(block) => {
                let (encoded, is_left) = encoder.encode_or_leave(method, block, frame)?;
                Frames {
                    is_left,
                    ..Frames::of_one(&encoded, content_bytes)
                }
            }
            // The caller wants its buffer back.
            Raw::Lent(_) => {
                let encoded = encoder.encode(method, raw.bytes(), frame)?;
                Frames::of_one(&encoded, content_bytes)
            }
        })
    }

    fn none() -> Frames {
        Frames {
            entries: [NO_ENTRY; PARTS_MAX],
            count: 0,
            is_plain: true,
            is_left: false,
        }
    }

    fn push(&mut self, encoded: &Encoded, content_bytes: usize) {
        self.entries[self.count] = Entry {
            stored_bytes: encoded.frame_bytes as u32,
            content_bytes: content_bytes as u32,
            check: encoded.check,
        };
        self.count += 1;
        self.is_plain &= !encoded.used_method;
    }

    /// Returns the frames in order, as a seek table lists them.
    pub fn entries(&self) -> &[Entry] {
        &self.entries[..self.count]
    }

    /// Returns their total bytes.
    pub fn stored_bytes(&self) -> usize {
        let bytes = self.entries().iter().map(|it| it.stored_bytes as usize);
        bytes.sum()
    }
}

/// The workers' time together for encoding a block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spent {
    pub core: Seconds,
    pub wall: Seconds,
}

/// The blocks of a stream that are open to helpers.
///
/// Locks are taken in one order: the list, a block's raw bytes, its progress.
#[derive(Default)]
pub struct Splits {
    open: Mutex<Vec<Arc<Split>>>,
}

/// One of them.
struct Split {
    /// Parts are read under this lock, so that a thread that writes has the bytes alone.
    raw: RwLock<Raw>,
    method: Method,
    part_bytes: usize,
    count: usize,
    progress: Mutex<Progress>,
    finished: Condvar,
}

struct Progress {
    /// The first part that no worker took.
    next: usize,
    finished: usize,
    encoded: [Option<Encoded>; PARTS_MAX],
    /// The block's frame buffer, with a place for the longest frame of each part.
    target: Vec<u8>,
    spent: Spent,
    failure: Option<Error>,
}

impl Splits {
    /// Encodes parts of open blocks until nobody needs help.
    pub fn help(&self, workspace: &mut Workspace) {
        while let Some((split, part)) = self.claim() {
            split.encode(part, workspace);
        }
    }

    /// Takes the next part of the first block that has one left.
    fn claim(&self) -> Option<(Arc<Split>, usize)> {
        let open = self.lock();
        let claimed = |split: &Arc<Split>| Some((Arc::clone(split), split.claim()?));
        open.iter().find_map(claimed)
    }

    /// Encodes a block in `count` parts, together with any helpers. Raw bytes and frame buffer are back when it
    /// returns.
    ///
    /// # Errors
    ///
    /// Errors of the encoder; `Panicked` if any worker did.
    pub fn encode(
        &self,
        workspace: &mut Workspace,
        (raw, frame): (&mut Raw, &mut Vec<u8>),
        method: Method,
        count: usize,
    ) -> Result<(Frames, Spent)> {
        let content_bytes = raw.bytes().len();
        let split = Arc::new(Split {
            raw: RwLock::new(std::mem::replace(raw, Raw::Own(Vec::new()))),
            method,
            part_bytes: content_bytes.div_ceil(count).max(1),
            count,
            progress: Mutex::new(Progress {
                next: 0,
                finished: 0,
                encoded: [None; PARTS_MAX],
                target: std::mem::take(frame),
                spent: Spent::default(),
                failure: None,
            }),
            finished: Condvar::new(),
        });
        self.lock().push(Arc::clone(&split));
        while let Some(part) = split.claim() {
            split.encode(part, workspace);
        }
        split.wait();
        self.lock().retain(|other| !Arc::ptr_eq(other, &split));
        let mut bytes = split.raw.write().unwrap_or_else(PoisonError::into_inner);
        *raw = std::mem::replace(&mut *bytes, Raw::Own(Vec::new()));
        drop(bytes);
        let mut progress = split.lock();
        *frame = std::mem::take(&mut progress.target);
        if let Some(error) = progress.failure.take() {
            return Err(error);
        }
        Ok((
            split.gathered(&progress, frame, content_bytes),
            progress.spent,
        ))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Split>>> {
        // Nothing panics under this lock.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Split {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // Nothing panics under this lock.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next part, if one is left and nothing failed.
    fn claim(&self) -> Option<usize> {
        let mut progress = self.lock();
        let part = progress.next;
        if part == self.count || progress.failure.is_some() {
            return None;
        }
        progress.next += 1;
        Some(part)
    }

    /// Encodes a claimed part, and puts its frame in its place. A panic fails this block, and not the helper's own.
    fn encode(&self, part: usize, workspace: &mut Workspace) {
        let work = AssertUnwindSafe(|| self.encoded(part, workspace));
        let outcome = catch_unwind(work).unwrap_or_else(|panic| {
            // The unfinished state is dropped.
            *workspace = Workspace::default();
            Err(Error::Panicked {
                what: "job",
                message: crate::pool::message_of(panic.as_ref()),
            })
        });
        let mut progress = self.lock();
        match outcome {
            Ok(encoded) => progress.encoded[part] = Some(encoded),
            Err(error) => {
                progress.failure.get_or_insert(error);
            }
        }
        progress.finished += 1;
        drop(progress);
        self.finished.notify_all();
    }

    fn encoded(&self, part: usize, workspace: &mut Workspace) -> Result<Encoded> {
        let raw = self.raw.read().unwrap_or_else(PoisonError::into_inner);
        let start = (part * self.part_bytes).min(raw.bytes().len());
        let end = (start + self.part_bytes).min(raw.bytes().len());
        let bytes = &raw.bytes()[start..end];
        #[cfg(test)]
        kill::in_part(bytes);
        let place_bytes = frame_bytes_max(self.part_bytes);
        if workspace.part.len() < place_bytes {
            workspace.part.resize(place_bytes, 0);
        }
        let (begun, begun_wall) = (thread_cpu(), Instant::now());
        let encoder = &mut workspace.encoder;
        let encoded = encoder.encode(self.method, bytes, &mut workspace.part)?;
        let core = thread_cpu() - begun;
        let wall = Seconds(begun_wall.elapsed().as_secs_f64());
        let frame = &workspace.part[..encoded.frame_bytes];
        let mut progress = self.lock();
        progress.target[part * place_bytes..][..frame.len()].copy_from_slice(frame);
        progress.spent.core += core;
        progress.spent.wall += wall;
        Ok(encoded)
    }

    /// Waits until all claimed parts are done. None is claimed after that: none is left, or one failed.
    fn wait(&self) {
        let progress = self.lock();
        let is_busy = |progress: &mut Progress| progress.finished < progress.next;
        // Nobody may look for open blocks while this one is locked, since claiming takes the locks in the other order.
        drop(self.finished.wait_while(progress, is_busy));
    }

    /// Moves the frames together.
    fn gathered(&self, progress: &Progress, frame: &mut [u8], content_bytes: usize) -> Frames {
        let place_bytes = frame_bytes_max(self.part_bytes);
        let mut frames = Frames::none();
        let (mut at, mut left) = (0, content_bytes);
        for (part, encoded) in progress.encoded[..self.count].iter().enumerate() {
            let encoded = encoded.expect("no part failed");
            let place = part * place_bytes;
            frame.copy_within(place..place + encoded.frame_bytes, at);
            at += encoded.frame_bytes;
            let length = left.min(self.part_bytes);
            left -= length;
            frames.push(&encoded, length);
        }
        frames
    }
}

#[cfg(test)]
mod tests {
    use super::super::kill_test::{self as kill, Step};
    use super::super::stream_test::{data, pool, read_by_table, read_in_order};
    use super::super::{Choice, Container, Goal, Priced, ReaderOptions, Writer, WriterOptions};
    use super::*;
    use crate::decide::Profile;

    /// Text, numbers and noise, so that parts are of several lengths.
    fn block(length: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(length as u64);
        let mut block = b"each part is a frame of its own; ".repeat(length / 90);
        block.extend((0..length as u64 / 30).flat_map(|it| it.to_le_bytes()));
        block.resize_with(length, || random.u8(..));
        block
    }

    fn decoded(frames: &[u8], length: usize) -> Vec<u8> {
        let mut content = vec![0; length];
        let bytes = zstd_safe::decompress(&mut content[..], frames).expect("frames of zstd");
        content.truncate(bytes);
        content
    }

    #[test]
    fn the_frames_are_the_same_whoever_helps() {
        let method: Method = "zstd:3".parse().expect("a method");
        let mut tried = 0;
        for length in [1, 7, 4096, 300_000, 1 << 20, (1 << 20) + 5] {
            let block = block(length);
            let mut found: Vec<Vec<u8>> = Vec::new();
            for helpers in [0, 1, 3] {
                for count in PARTS {
                    let splits = Splits::default();
                    let mut raw = Raw::Own(block.clone());
                    let mut frame = vec![0; frames_bytes_max(length)];
                    let encoded = std::thread::scope(|scope| {
                        for _ in 0..helpers {
                            scope.spawn(|| {
                                let mut workspace = Workspace::default();
                                (0..50).for_each(|_| splits.help(&mut workspace));
                            });
                        }
                        let mut workspace = Workspace::default();
                        let buffers = (&mut raw, &mut frame);
                        splits.encode(&mut workspace, buffers, method, count)
                    });
                    let (frames, spent) = encoded.expect("no error");
                    let case = format!("{length} bytes, {count} parts, {helpers} helpers");
                    assert_eq!(frames.entries().len(), count, "{case}");
                    assert_eq!(raw.bytes(), block, "{case}");
                    assert_eq!(frame.len(), frames_bytes_max(length), "{case}");
                    assert!(spent.core.0 >= 0.0 && spent.wall.0 > 0.0, "{case}");
                    let stored = frame[..frames.stored_bytes()].to_vec();
                    assert!(decoded(&stored, length) == block, "{case}: other bytes");
                    let content = frames.entries().iter().map(|it| it.content_bytes as usize);
                    assert_eq!(content.sum::<usize>(), length, "{case}");
                    match helpers {
                        0 => found.push(stored),
                        _ => assert!(found.contains(&stored), "{case}: other frames"),
                    }
                    tried += 1;
                }
            }
        }
        assert_eq!(tried, 6 * 3 * 4);
    }

    #[test]
    fn what_cannot_be_encoded_gives_the_buffers_back() {
        let splits = Splits::default();
        let block = block(100_000);
        let mut raw = Raw::Own(block.clone());
        let mut frame = vec![0; frames_bytes_max(block.len())];
        let method: Method = "deflate:6".parse().expect("a method without a frame");
        let buffers = (&mut raw, &mut frame);
        let failed = splits.encode(&mut Workspace::default(), buffers, method, 4);
        assert!(matches!(failed, Err(Error::Unsupported { .. })));
        assert!(raw.bytes() == block && frame.len() == frames_bytes_max(block.len()));
        assert!(splits.lock().is_empty());
    }

    const BLOCK: usize = 16 << 10;

    fn options(arms: &[&str]) -> WriterOptions {
        let priced = Priced {
            goal: Goal::Fastest,
            arms: arms.iter().map(|name| name.parse().unwrap()).collect(),
            link: None,
            profile: Profile::default(),
        };
        WriterOptions {
            container: Container::Mixed,
            choice: Choice::Priced(Box::new(priced)),
            block_bytes: BLOCK,
            ..WriterOptions::default()
        }
    }

    /// Data in which two blocks in three should be split, with a different number of parts each.
    fn splitting(length: usize) -> Vec<u8> {
        let mut data = data(length);
        for (index, block) in data.chunks_mut(BLOCK).enumerate() {
            if index % 3 < 2 && block.len() == BLOCK {
                kill::split(block, PARTS[1 + index % 3]);
            }
        }
        data
    }

    #[test]
    fn streams_with_split_blocks_are_read_in_order_and_by_their_table() {
        let data = splitting(90_000);
        let blocks = data.len().div_ceil(BLOCK);
        let split = |index: usize| match index % 3 {
            2 => 1,
            way => PARTS[1 + way],
        };
        let frames: usize = (0..blocks - 1).map(split).sum::<usize>() + 1;
        for worker_count in [0, 1, 2, 5] {
            for arms in [&["zstd:3"][..], &["xz:1", "lz4:1", "zstd:1"], &["store"]] {
                for is_asynchronous in [false, true] {
                    let pool = pool(worker_count);
                    let mut writer = Writer::new(Vec::new(), &pool, options(arms)).unwrap();
                    match is_asynchronous {
                        true => {
                            let pending = writer.write_async(data.clone(), 0).unwrap();
                            assert!(pending.wait().unwrap() == data);
                        }
                        false => writer.write_all(&data).unwrap(),
                    }
                    let (stream, summary) = writer.finish().unwrap();
                    let case = format!("{worker_count} workers, {arms:?}, {is_asynchronous}");
                    assert_eq!(summary.blocks, blocks as u64, "{case}");
                    let options = ReaderOptions::default();
                    let (found, error) = read_in_order(&stream[..], &pool, options);
                    assert!(error.is_none() && found == data, "{case}: {error:?}");
                    let (found, error) = read_by_table(&stream, &pool).expect("a table");
                    assert!(error.is_none() && found == data, "{case}: {error:?}");
                    let mut source = std::io::Cursor::new(&stream);
                    let table = super::super::read_seek_table(&mut source).unwrap().unwrap();
                    // One more where the first frame is not one of zstd.
                    let empty = usize::from(stream.starts_with(&crate::frame::EMPTY_FRAME));
                    assert_eq!(table.entries.len(), frames + empty, "{case}");
                    if arms == ["zstd:3"] {
                        assert!(decoded(&stream, data.len()) == data, "{case}: by libzstd");
                    }
                }
            }
        }
    }

    #[test]
    fn blocks_that_are_done_and_helpers_who_look_for_more_never_wait_for_each_other() {
        const ROUNDS: usize = 2000;
        let splits = Arc::new(Splits::default());
        let (done, all_done) = std::sync::mpsc::channel();
        for _ in 0..4 {
            let (splits, done) = (Arc::clone(&splits), done.clone());
            std::thread::spawn(move || {
                let mut workspace = Workspace::default();
                for _ in 0..ROUNDS {
                    let mut raw = Raw::Own(vec![7; 64]);
                    let mut frame = vec![0; frames_bytes_max(64)];
                    splits.help(&mut workspace);
                    let block = (&mut raw, &mut frame);
                    (splits.encode(&mut workspace, block, Method::STORE, PARTS_MAX)).unwrap();
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..4 {
            let minute = std::time::Duration::from_secs(60);
            all_done
                .recv_timeout(minute)
                .expect("nobody waits for ever");
        }
    }

    #[test]
    fn a_worker_killed_in_a_part_ends_the_stream_before_its_block() {
        let mut tried = 0;
        for worker_count in [0, 1, 3] {
            let pool = pool(worker_count);
            for killed in [1, 4, 6] {
                for part in [1, 2, 3] {
                    let mut data = data(30_000);
                    let block = &mut data[killed * BLOCK..][..BLOCK];
                    kill::split(block, 4);
                    kill::doom(&mut block[part * BLOCK / 4..], Step::InPart);
                    let arms = ["store", "zstd:1"];
                    let mut writer = Writer::new(Vec::new(), &pool, options(&arms)).unwrap();
                    let mut errors = Vec::new();
                    for piece in data.chunks(5000) {
                        errors.extend(writer.write_all(piece).err());
                    }
                    errors.extend(writer.finish().err());
                    let case = format!("{worker_count} workers, part {part} of block {killed}");
                    let first = &errors[0];
                    assert!(matches!(first, Error::Panicked { .. }), "{case}: {first}");
                    let told = |error: &Error| matches!(error, Error::Poisoned { .. });
                    assert!(errors[1..].iter().all(told), "{case}: {errors:?}");
                    tried += 1;
                }
            }
        }
        println!("{tried} workers killed in a part");
        assert_eq!(tried, 27);
    }
}
