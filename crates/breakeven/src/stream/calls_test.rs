//! Calls with a place, synchronous and asynchronous: the stream is the same in both cases, in order, and every buffer
//! comes back, even after failures.

use std::io::{self, Cursor, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::kill_test as kill;
use super::stream_test::{data, pool, read_in_order};
use super::*;
use crate::decide::Profile;
use crate::error::Error;
use crate::frame::frame_bytes_max;
use crate::pool::Pool;
use crate::units::BytesPerSecond;

const BLOCK: usize = 4096;

fn options() -> WriterOptions {
    WriterOptions {
        block_bytes: BLOCK,
        ..WriterOptions::default()
    }
}

/// A buffer that shows whether anybody still has it.
struct Traced {
    bytes: Vec<u8>,
    _held: Arc<()>,
}

impl AsRef<[u8]> for Traced {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Returns a buffer, and a count that shows its release.
fn traced(bytes: Vec<u8>) -> (Traced, Arc<()>) {
    let held = Arc::new(());
    let _held = Arc::clone(&held);
    (Traced { bytes, _held }, held)
}

/// Cuts data into calls of odd lengths, with their places.
fn calls(data: &[u8], seed: u64) -> Vec<(usize, &[u8])> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut at, mut calls) = (0, Vec::new());
    while at < data.len() {
        let length = random.usize(0..4 * BLOCK).min(data.len() - at);
        calls.push((at, &data[at..at + length]));
        at += length;
    }
    calls
}

fn read(stream: &[u8]) -> Vec<u8> {
    let (found, error) = read_in_order(stream, &pool(2), ReaderOptions::default());
    assert!(error.is_none(), "{error:?}");
    found
}

#[test]
fn both_kinds_of_calls_write_the_same_stream() {
    let data = data(60_000);
    let mut tried = 0;
    for seed in 0..4 {
        let calls = calls(&data, seed);
        let mut streams = Vec::new();
        for worker_count in [0, 1, 2, 5] {
            let pool = pool(worker_count);
            let mut writer = Writer::new(Vec::new(), &pool, options()).unwrap();
            for (at, bytes) in &calls {
                writer.write_at(bytes, *at as u64).unwrap();
            }
            streams.push(writer.finish().unwrap().0);
            let mut writer = Writer::new(Vec::new(), &pool, options()).unwrap();
            let pending: Vec<_> = (calls.iter())
                .map(|(at, bytes)| writer.write_async(bytes.to_vec(), *at as u64).unwrap())
                .collect();
            for (pending, (_, bytes)) in pending.into_iter().zip(&calls) {
                assert!(pending.wait().unwrap() == *bytes);
                tried += 1;
            }
            streams.push(writer.finish().unwrap().0);
        }
        assert!(streams.windows(2).all(|pair| pair[0] == pair[1]), "{seed}");
        assert!(read(&streams[0]) == data, "{seed}: other bytes");
    }
    println!("{tried} asynchronous calls");
    assert!(tried >= 300, "only {tried} calls");
}

#[test]
fn kinds_of_writing_may_be_mixed() {
    let data = data(40_000);
    for seed in 10..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut writer = Writer::new(Vec::new(), &pool(2), options()).unwrap();
        let mut pending = Vec::new();
        for (at, bytes) in calls(&data, seed) {
            assert_eq!(writer.position(), at as u64);
            match random.u8(..4) {
                0 => writer.write_at(bytes, at as u64).unwrap(),
                1 => writer.write_all(bytes).unwrap(),
                2 => {
                    writer.write_all(bytes).unwrap();
                    writer.flush().unwrap();
                }
                // One in two is never waited for.
                _ => {
                    let call = writer.write_async(bytes.to_vec(), at as u64).unwrap();
                    pending.extend(random.bool().then_some((call, bytes)));
                }
            }
        }
        let (stream, summary) = writer.finish().unwrap();
        assert_eq!(summary.raw_bytes, data.len() as u64);
        // After the end as well.
        for (call, bytes) in pending {
            assert!(call.wait().unwrap() == bytes);
        }
        assert!(read(&stream) == data, "{seed}: other bytes");
    }
}

#[test]
fn a_buffer_comes_back_itself() {
    let mut writer = Writer::new(Vec::new(), &pool(2), options()).unwrap();
    let buffer = vec![3; 100_000];
    let place = buffer.as_ptr();
    let pending = writer.write_async(buffer, 0).unwrap();
    let buffer = pending.wait().unwrap();
    assert_eq!(buffer.as_ptr(), place);
    // One of no bytes as well.
    let pending = writer.write_async(Vec::new(), 100_000).unwrap();
    assert!(pending.wait().unwrap().is_empty());
    assert_eq!(writer.finish().unwrap().1.raw_bytes, 100_000);
}

#[test]
fn gaps_are_zeros_and_what_is_written_stays() {
    let mut writer = Writer::new(Vec::new(), &pool(1), options()).unwrap();
    writer.write_at(b"first", 3).unwrap();
    for wrong in [0, 7] {
        let error = writer.write_at(b"x", wrong).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        let error = writer.write_async(vec![1], wrong).unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
    }
    let error = writer.write_at(b"xx", u64::MAX).unwrap_err();
    assert!(matches!(error, Error::Invalid { .. }), "{error}");
    // None of these damaged the stream.
    let pending = writer.write_async(b"second".to_vec(), 9_000).unwrap();
    pending.wait().unwrap();
    writer.write_all(b"third").unwrap();
    let (stream, summary) = writer.finish().unwrap();
    let found = read(&stream);
    assert_eq!((found.len() as u64, summary.raw_bytes), (9_011, 9_011));
    assert!(found[..3] == [0; 3] && &found[3..8] == b"first");
    assert!(found[8..9_000] == [0; 8_992] && &found[9_000..] == b"secondthird");
}

#[test]
fn times_are_told_of_the_last_call() {
    let mut writer = Writer::new(Vec::new(), &pool(2), options()).unwrap();
    assert!(writer.call_times().is_none());
    let buffer = vec![1; 50_000];
    writer.write_at(&buffer, 0).unwrap();
    let times = writer.call_times().unwrap();
    assert!(times.compressed_after.is_some(), "{times:?}");
    writer.write_async(buffer, 50_000).unwrap().wait().unwrap();
    writer.flush().unwrap();
    let times = writer.call_times().unwrap();
    let (compressed, drained) = (
        times.compressed_after.unwrap(),
        times.drained_after.unwrap(),
    );
    assert!(compressed.0 > 0.0 && compressed <= drained, "{times:?}");
}

/// A sink that takes nothing until its gate is opened, and may then fail on demand.
struct Gate {
    closed: mpsc::Receiver<()>,
    fails: bool,
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Ends when the sender is gone.
        let _ = self.closed.recv();
        match self.fails {
            true => Err(io::Error::from(io::ErrorKind::StorageFull)),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a writer whose sink takes nothing until the returned gate is dropped.
fn gated(pool: &Pool, options: WriterOptions, fails: bool) -> (Writer<Gate>, mpsc::Sender<()>) {
    let (open, closed) = mpsc::channel();
    let writer = Writer::new(Gate { closed, fails }, pool, options);
    (writer.unwrap(), open)
}

#[test]
fn an_asynchronous_call_does_not_wait_for_the_sink() {
    for worker_count in [0, 2] {
        let pool = pool(worker_count);
        let (mut writer, open) = gated(&pool, options(), false);
        // Many times the size of the buffers, in several calls: the test is that they return.
        let pending: Vec<_> = (0..5)
            .map(|call| {
                let at = writer.position();
                writer.write_async(vec![call; 40 * BLOCK], at).unwrap()
            })
            .collect();
        drop(open);
        for (call, pending) in pending.into_iter().enumerate() {
            assert!(pending.wait().unwrap() == vec![call as u8; 40 * BLOCK]);
        }
        assert_eq!(writer.finish().unwrap().1.blocks, 200);
    }
}

#[test]
fn buffers_come_back_from_a_stream_that_failed() {
    let mut tried = 0;
    for worker_count in [0, 1, 3] {
        for blocks in [1, 3, 8, 60] {
            let pool = pool(worker_count);
            let (mut writer, open) = gated(&pool, options(), true);
            let (first, first_held) = traced(vec![1; blocks * BLOCK]);
            let (second, second_held) = traced(data(blocks * BLOCK));
            let first = writer.write_async(first, 0).unwrap();
            let second = writer.write_async(second, writer.position()).unwrap();
            drop(open);
            let mut errors = Vec::new();
            errors.extend(first.wait().err());
            assert_eq!(Arc::strong_count(&first_held), 1, "held after the wait");
            errors.extend(second.wait().err());
            assert_eq!(Arc::strong_count(&second_held), 1, "held after the wait");
            let at = writer.position();
            let (late, late_held) = traced(vec![0; 10]);
            errors.extend(writer.write_async(late, at).and_then(Pending::wait).err());
            assert_eq!(Arc::strong_count(&late_held), 1, "held after the wait");
            errors.extend(writer.write_at(b"late", at + 10).err());
            errors.extend(writer.finish().err());
            // The contents of the buffers may be compressed before the sink fails.
            let least = if blocks == 60 { 5 } else { 1 };
            assert!(errors.len() >= least, "{errors:?}");
            assert!(matches!(errors[0], Error::Io { .. }), "{}", errors[0]);
            let told = |error: &Error| matches!(error, Error::Poisoned { .. });
            assert!(errors[1..].iter().all(told), "{errors:?}");
            tried += 1;
        }
    }
    assert_eq!(tried, 12);
}

#[test]
fn buffers_come_back_from_a_writer_that_was_dropped() {
    // Without workers, the stuck thread would have to compress its own blocks.
    for worker_count in [1, 3] {
        let pool = pool(worker_count);
        let (mut writer, open) = gated(&pool, options(), false);
        let (buffer, held) = traced(vec![1; 100 * BLOCK]);
        let pending = writer.write_async(buffer, 0).unwrap();
        drop(writer);
        let error = pending.wait().map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Poisoned { .. }), "{error}");
        assert_eq!(Arc::strong_count(&held), 1, "held after the wait");
        drop(open);
    }
}

#[test]
fn a_worker_that_panics_gives_its_buffer_back() {
    let priced = || Priced {
        goal: Goal::Fastest,
        arms: ["store", "zstd:1"].map(|it| it.parse().unwrap()).to_vec(),
        link: Some(BytesPerSecond(1e6)),
        profile: Profile::default(),
    };
    let mut tried = 0;
    for worker_count in [0, 2] {
        for block in [0, 1, 9, 29] {
            for step in kill::STEPS {
                let mut bytes = vec![1; 30 * BLOCK];
                kill::doom(&mut bytes[block * BLOCK..], step);
                let pool = pool(worker_count);
                let options = WriterOptions {
                    choice: Choice::Priced(Box::new(priced())),
                    ..options()
                };
                let mut writer = Writer::new(Vec::new(), &pool, options).unwrap();
                let (buffer, held) = traced(bytes);
                let case = format!("{worker_count} workers, block {block}, {step:?}");
                tried += 1;
                let outcome = match writer.write_async(buffer, 0) {
                    Ok(pending) => pending.wait().map(drop),
                    // A fast worker lets the call itself report the error; the buffer is freed with the writer.
                    Err(error) => {
                        assert!(matches!(error, Error::Panicked { .. }), "{case}: {error}");
                        drop((writer, pool));
                        assert_eq!(Arc::strong_count(&held), 1, "{case}: held for ever");
                        continue;
                    }
                };
                assert_eq!(Arc::strong_count(&held), 1, "{case}: held after the wait");
                // The bytes of a returned buffer are compressed, so only the end can report the error.
                let error = match outcome {
                    Err(error) => error,
                    Ok(()) if step == kill::Step::GivenBack => {
                        writer.finish().map(drop).expect_err(&case)
                    }
                    Ok(()) => panic!("{case}: nothing is told"),
                };
                assert!(matches!(error, Error::Panicked { .. }), "{case}: {error}");
            }
        }
    }
    println!("{tried} workers killed");
    assert_eq!(tried, 48);
}

#[test]
fn who_wants_no_more_is_not_held_and_the_stream_is_over() {
    let stop = Arc::new(AtomicBool::new(false));
    let options = WriterOptions {
        stop: Some(Arc::clone(&stop)),
        ..options()
    };
    let pool = pool(1);
    let (mut writer, open) = gated(&pool, options, false);
    let pending = writer.write_async(vec![1; 100 * BLOCK], 0).unwrap();
    stop.store(true, Ordering::Relaxed);
    let error = pending.wait().map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    // Bytes under way in the interrupted call may be lost, so nothing is written behind it.
    stop.store(false, Ordering::Relaxed);
    let error = writer.write_all(b"more").unwrap_err();
    assert!(matches!(error, Error::Poisoned { .. }), "{error}");
    drop(open);
}

/// Text that any method makes smaller.
fn text(bytes: usize) -> Vec<u8> {
    let line = b"what is saved must be more than what is spent; ";
    line.iter().copied().cycle().take(bytes).collect()
}

/// Returns the content bytes of each block and whether it is stored raw.
fn blocks(stream: &[u8]) -> Vec<(u32, bool)> {
    let table = read_seek_table(&mut Cursor::new(stream)).unwrap();
    let blocks = table.expect("a table").entries.into_iter();
    blocks
        .map(|it| {
            let raw = frame_bytes_max(it.content_bytes as usize);
            (it.content_bytes, it.stored_bytes as usize == raw)
        })
        .collect()
}

#[test]
fn blocks_end_where_hints_do() {
    let data = text(20_000);
    let expected = [
        (4096, false),
        (904, false),
        (4000, true),
        (4096, false),
        (4096, false),
        (2808, false),
    ];
    for is_asynchronous in [false, true] {
        let mut writer = Writer::new(Vec::new(), &pool(2), options()).unwrap();
        let hint = Hint::new(5_000..9_000, Advice::NoCompression);
        writer.advise(&hint).unwrap();
        // An unknown hint, or one about no bytes, changes nothing.
        let unknown = Hint {
            range: 0..20_000,
            number: 999,
            payload: [7; PAYLOAD_BYTES],
        };
        writer.advise(&unknown).unwrap();
        let empty = Hint::new(6_000..6_000, Advice::NoCompression);
        writer.advise(&empty).unwrap();
        let wrong = Hint::new(0..9, Advice::Keep { days: -1.0 });
        assert!(matches!(writer.advise(&wrong), Err(Error::Invalid { .. })));
        match is_asynchronous {
            true => drop(writer.write_async(data.clone(), 0).unwrap().wait()),
            false => writer.write_all(&data).unwrap(),
        }
        // Too late.
        writer.advise(&hint).unwrap();
        let stream = writer.finish().unwrap().0;
        assert_eq!(blocks(&stream), expected);
        assert!(read(&stream) == data, "other bytes");
    }
}

#[test]
fn a_hint_ends_the_block_that_is_being_filled() {
    let mut writer = Writer::new(Vec::new(), &pool(1), options()).unwrap();
    writer.write_all(&text(1_000)).unwrap();
    // For a later block: this one goes on.
    let later = Hint::new(50_000..60_000, Advice::NoCompression);
    writer.advise(&later).unwrap();
    writer.write_all(&text(1_000)).unwrap();
    let here = Hint::new(0..3_000, Advice::NoCompression);
    writer.advise(&here).unwrap();
    writer.write_all(&text(3_000)).unwrap();
    let stream = writer.finish().unwrap().0;
    let expected = [(2_000, false), (1_000, true), (2_000, false)];
    assert_eq!(blocks(&stream), expected);
}

#[test]
fn a_goal_heeds_hints_as_well() {
    let arms = ["store", "zstd:1", "zstd:9"].map(|it| it.parse().unwrap());
    for is_priced in [false, true] {
        let options = WriterOptions {
            choice: match is_priced {
                false => options().choice,
                true => Choice::Priced(Box::new(Priced {
                    goal: Goal::Smallest,
                    arms: arms.to_vec(),
                    link: Some(BytesPerSecond(1e6)),
                    profile: Profile::default(),
                })),
            },
            ..options()
        };
        let mut writer = Writer::new(Vec::new(), &pool(2), options).unwrap();
        let stored = Hint::new(40 * 4096..60 * 4096, Advice::NoCompression);
        writer.advise(&stored).unwrap();
        for advice in [
            Advice::Hot {
                reads_per_write: 9.0,
            },
            Advice::Keep { days: 9.0 },
            Advice::WriteOnce,
            Advice::Asynchronism { share: 0.9 },
        ] {
            writer.advise(&Hint::new(0..100 * 4096, advice)).unwrap();
        }
        let data = text(100 * 4096);
        writer.write_at(&data, 0).unwrap();
        let stream = writer.finish().unwrap().0;
        let stored: Vec<bool> = blocks(&stream).iter().map(|it| it.1).collect();
        assert_eq!(stored.len(), 100);
        assert!(stored[40..60].iter().all(|it| *it), "{stored:?}");
        assert!(!stored[30..40].contains(&true), "{stored:?}");
        assert!(read(&stream) == data, "other bytes");
    }
}
