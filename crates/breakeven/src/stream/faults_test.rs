//! Sinks and sources that fail, at each call. Earlier bytes are right, the error is reported, and no thread waits for
//! ever.

use std::io::{self, Cursor, ErrorKind, IoSlice, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};

use super::kill_test::{self as kill, STEPS, Step};
use super::stream_test::{data, pack, pool, read_in_order, short_stream};
use super::*;
use crate::decide::Profile;
use crate::error::Error;
use crate::pool::Pool;

/// The effect of the failing call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// An error, that time only.
    Once,
    /// An error, from then on.
    ForEver,
    /// A call that a signal cut short, which must be repeated.
    Interrupted,
}

const FAULTS: [Fault; 3] = [Fault::Once, Fault::ForEver, Fault::Interrupted];

/// Counts calls down to the one that fails.
struct Countdown {
    calls_left: usize,
    fault: Fault,
}

impl Countdown {
    fn call(&mut self) -> io::Result<()> {
        if self.calls_left > 0 {
            self.calls_left -= 1;
            return Ok(());
        }
        if self.fault != Fault::ForEver {
            self.calls_left = usize::MAX;
        }
        Err(io::Error::from(match self.fault {
            Fault::Interrupted => ErrorKind::Interrupted,
            Fault::Once | Fault::ForEver => ErrorKind::TimedOut,
        }))
    }
}

/// A source of some bytes at a time that fails at a call.
struct FaultySource<'a> {
    bytes: Cursor<&'a [u8]>,
    countdown: Countdown,
}

impl Read for FaultySource<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        self.countdown.call()?;
        let count = target.len().min(700);
        self.bytes.read(&mut target[..count])
    }
}

impl Seek for FaultySource<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        // A seek is not repeated after a signal, because no system interrupts it.
        if self.countdown.fault != Fault::Interrupted {
            self.countdown.call()?;
        }
        self.bytes.seek(to)
    }
}

fn faulty(stream: &[u8], calls_left: usize, fault: Fault) -> FaultySource<'_> {
    FaultySource {
        bytes: Cursor::new(stream),
        countdown: Countdown { calls_left, fault },
    }
}

fn is_fault(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == ErrorKind::TimedOut)
}

/// Reads until the end or an error, and returns both the bytes and the error.
fn read_all(reader: &mut impl Read) -> (Vec<u8>, Option<Error>) {
    let (mut found, mut piece) = (Vec::new(), [0; 3000]);
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return (found, None),
            Ok(count) => found.extend_from_slice(&piece[..count]),
            Err(error) => return (found, Some(error.downcast().expect("an error of ours"))),
        }
    }
}

#[test]
fn a_failing_source_gives_a_prefix_and_its_error() {
    let pool = pool(2);
    let (stream, data) = short_stream(&pool);
    let mut tried = 0;
    for fault in FAULTS {
        for calls_left in 0..stream.len().div_ceil(700) + 1 {
            let source = faulty(&stream, calls_left, fault);
            let mut reader = Reader::new(source, &pool, ReaderOptions::default()).unwrap();
            let (found, error) = read_all(&mut reader);
            let case = format!("{fault:?} at call {calls_left}: {error:?}");
            match (fault, error) {
                (Fault::Interrupted, None) => assert!(found == data, "{case}"),
                (Fault::Once | Fault::ForEver, Some(error)) => {
                    assert!(is_fault(&error), "{case}");
                    assert!(data.starts_with(&found), "{case}: other bytes");
                    let later = reader.fill();
                    assert!(matches!(later, Err(Error::Poisoned { .. })), "{case}");
                }
                _ => panic!("{case}"),
            }
            tried += 1;
        }
    }
    println!("{tried} faults of a source");
    assert!(tried >= 20, "only {tried} faults tried");
}

#[test]
fn a_failing_source_that_seeks_goes_on_after_a_seek() {
    let pool = pool(2);
    let data = data(3000);
    let stream = pack(&pool, "lz4:1", 4096, &data);
    let table = read_seek_table(&mut Cursor::new(&stream[..]));
    let table = table.unwrap().expect("a table");
    let (mut tried, mut whole) = (0, 0);
    for fault in FAULTS {
        for calls_left in 0..30 {
            let source = faulty(&stream, calls_left, fault);
            let options = ReaderOptions::default();
            let mut reader = SeekableReader::new(source, &table, &pool, &options).unwrap();
            let (mut found, error) = read_all(&mut reader);
            let case = format!("{fault:?} at call {calls_left}: {error:?}");
            assert!(data.starts_with(&found), "{case}: other bytes");
            let Some(error) = error else {
                assert!(found == data, "{case}");
                whole += 1;
                continue;
            };
            assert!(is_fault(&error), "{case}");
            assert!(matches!(reader.fill(), Err(Error::Poisoned { .. })));
            tried += 1;
            if fault == Fault::Once {
                reader.seek(SeekFrom::Start(found.len() as u64)).unwrap();
                let (rest, error) = read_all(&mut reader);
                found.extend(rest);
                assert!(error.is_none() && found == data, "{case}: then {error:?}");
            }
        }
    }
    println!("{tried} faults of a source that seeks, {whole} reads whole");
    assert!(tried >= 20 && whole >= 30, "{tried} faults, {whole} whole");
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_an_error() {
    let pool = pool(1);
    let data = data(500);
    let stream = pack(&pool, "zstd:1", 4096, &data);
    let table = read_seek_table(&mut Cursor::new(&stream[..]));
    let table = table.unwrap().expect("a table");
    for cut in 0..table.stored_bytes() {
        let source = Cursor::new(&stream[..cut as usize]);
        let options = ReaderOptions::default();
        let mut reader = SeekableReader::new(source, &table, &pool, &options).unwrap();
        let (found, error) = read_all(&mut reader);
        assert!(data.starts_with(&found), "cut at {cut}: other bytes");
        match error {
            Some(Error::Corrupt { offset, .. }) => assert!(offset <= cut, "{offset} > {cut}"),
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

#[test]
fn a_byte_lost_or_doubled_never_gives_other_bytes() {
    let pool = pool(0);
    let (stream, data) = short_stream(&pool);
    for place in 0..stream.len() {
        let (before, after) = stream.split_at(place);
        for changed in [
            [before, &after[1..]].concat(),
            [before, &after[..1], after].concat(),
        ] {
            let (found, error) = read_in_order(&changed[..], &pool, ReaderOptions::default());
            assert!(data.starts_with(&found), "byte {place}: other bytes");
            // A doubled zero at the end of a frame is padding.
            let is_padding = after[0] == 0 && found == data;
            assert!(error.is_some() || is_padding, "byte {place}: not noticed");
        }
    }
}

/// A sink whose calls, flushes included, fail; or that takes nothing any more.
struct FaultySink {
    taken: Vec<u8>,
    countdown: Countdown,
    takes_nothing: bool,
}

impl Write for FaultySink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.countdown.call() {
            Err(_) if self.takes_nothing => return Ok(0),
            outcome => outcome?,
        }
        let count = bytes.len().min(700);
        self.taken.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        // A flush is not repeated after a signal, as files and pipes need none.
        match self.countdown.fault {
            Fault::Interrupted => Ok(()),
            Fault::Once | Fault::ForEver => self.countdown.call(),
        }
    }
}

#[test]
fn a_sink_fails_at_any_write_or_flush() {
    let pool = pool(2);
    let data = data(3000);
    let (mut tried, mut whole) = (0, 0);
    for fault in FAULTS {
        for takes_nothing in [false, true] {
            for calls_left in 0..40 {
                let sink = FaultySink {
                    taken: Vec::new(),
                    countdown: Countdown { calls_left, fault },
                    takes_nothing,
                };
                let options = WriterOptions {
                    block_bytes: 4096,
                    ..WriterOptions::default()
                };
                let mut writer = Writer::new(sink, &pool, options).unwrap();
                let outcome = writer
                    .write_all(&data)
                    .and_then(|()| Writer::flush(&mut writer))
                    .and_then(|()| writer.finish());
                let case = format!("{fault:?} at call {calls_left}");
                match outcome {
                    Ok((sink, _)) => {
                        let options = ReaderOptions::default();
                        let (found, error) = read_in_order(&sink.taken[..], &pool, options);
                        assert!(error.is_none() && found == data, "{case}: {error:?}");
                        whole += 1;
                    }
                    Err(Error::Io { source, .. }) => {
                        let kinds = [ErrorKind::TimedOut, ErrorKind::WriteZero];
                        assert!(kinds.contains(&source.kind()), "{case}: {source}");
                        tried += 1;
                    }
                    Err(other) => panic!("{case}: {other}"),
                }
            }
        }
    }
    println!("{tried} faults of a sink, {whole} streams whole");
    assert!(tried >= 60 && whole >= 40, "{tried} faults, {whole} whole");
}

/// A sink that reports its first call and then takes nothing until its gate is opened.
struct Stuck {
    called: mpsc::Sender<()>,
    gate: mpsc::Receiver<()>,
}

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.called.send(());
        // Ends when the sender is gone.
        let _ = self.gate.recv();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_stuck_sink_holds_neither_a_dropped_writer_nor_its_pool() {
    for worker_count in [0, 1, 2] {
        // The cases go from no blocks to all but one of the buffers. Without workers the stuck thread is the one that
        // compresses, so raw buffers run out before frames do.
        let blocks_most = if worker_count == 0 {
            3
        } else {
            2 * worker_count + 3
        };
        for blocks in 0..=blocks_most {
            let pool = pool(worker_count);
            let (called, calls) = mpsc::channel();
            let (open, gate) = mpsc::channel::<()>();
            let options = WriterOptions {
                block_bytes: 4096,
                ..WriterOptions::default()
            };
            let mut writer = Writer::new(Stuck { called, gate }, &pool, options).unwrap();
            writer.write_all(&vec![5; 4096 * blocks]).unwrap();
            if blocks > 0 {
                calls.recv().expect("the sink is called");
            }
            // The test is that both return.
            drop(writer);
            drop(pool);
            drop(open);
        }
    }
}

/// A sink whose bytes stay after the writer.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

const BLOCK: usize = 4096;

/// One method for all blocks, or a goal among two.
fn choices() -> [Choice; 2] {
    let priced = Priced {
        goal: Goal::Fastest,
        arms: ["store", "zstd:1"].map(|arm| arm.parse().unwrap()).to_vec(),
        link: None,
        profile: Profile::default(),
    };
    let fixed = Choice::Fixed("zstd:1".parse().unwrap());
    [fixed, Choice::Priced(Box::new(priced))]
}

/// Writes data with one block that kills its worker; returns the sink's bytes, and the errors.
fn write_doomed(pool: &Pool, choice: Choice, data: &[u8]) -> (Vec<u8>, Vec<Error>) {
    let sink = Kept::default();
    let options = WriterOptions {
        choice,
        block_bytes: BLOCK,
        ..WriterOptions::default()
    };
    let mut writer = Writer::new(sink.clone(), pool, options).unwrap();
    let mut errors = Vec::new();
    for piece in data.chunks(5000) {
        errors.extend(writer.write_all(piece).err());
    }
    errors.extend(Writer::flush(&mut writer).err());
    errors.extend(writer.finish().err());
    let taken = sink.0.lock().unwrap().clone();
    (taken, errors)
}

#[test]
fn a_worker_killed_at_any_step_ends_the_stream_in_order() {
    let data = data(12_000);
    let blocks = data.len() / BLOCK;
    let mut tried = 0;
    for worker_count in [0, 1, 3] {
        let pool = pool(worker_count);
        for step in STEPS {
            for killed in [0, 1, 5, blocks - 1] {
                for choice in choices() {
                    let is_step_of_a_fixed_method = matches!(step, Step::Taken | Step::GivenBack);
                    if matches!(choice, Choice::Fixed(_)) && !is_step_of_a_fixed_method {
                        continue;
                    }
                    let mut data = data.clone();
                    kill::doom(&mut data[killed * BLOCK..], step);
                    let (taken, errors) = write_doomed(&pool, choice, &data);
                    let case = format!("{worker_count} workers, {step:?}, block {killed}");
                    let first = &errors[0];
                    assert!(matches!(first, Error::Panicked { .. }), "{case}: {first}");
                    let told = |error: &Error| matches!(error, Error::Poisoned { .. });
                    assert!(errors[1..].iter().all(told), "{case}: {errors:?}");
                    let (found, error) = read_in_order(&taken[..], &pool, ReaderOptions::default());
                    // Without any frame it is not a stream.
                    assert!(error.is_none() || killed == 0, "{case}: {error:?}");
                    assert_eq!(
                        found.len(),
                        killed * BLOCK,
                        "{case}: what came before is whole"
                    );
                    assert!(data.starts_with(&found), "{case}: other bytes");
                    tried += 1;
                }
            }
        }
    }
    println!("{tried} workers killed");
    assert!(tried >= 90, "only {tried} workers killed");
}

#[test]
fn a_pool_serves_other_streams_after_a_worker_was_killed() {
    let pool = pool(2);
    let good = data(3000);
    for step in STEPS {
        let mut doomed = good.clone();
        kill::doom(&mut doomed, step);
        let [_, choice] = choices();
        let (_, errors) = write_doomed(&pool, choice, &doomed);
        assert!(matches!(errors[0], Error::Panicked { .. }), "{}", errors[0]);
        let stream = pack(&pool, "zstd:1", BLOCK, &good);
        let (found, error) = read_in_order(&stream[..], &pool, ReaderOptions::default());
        assert!(error.is_none() && found == good, "{step:?}: {error:?}");
    }
}

/// Blocks that the writer took and frames that the sink got; each side sees the other's count.
#[derive(Default)]
struct Progress {
    counts: Mutex<(usize, usize)>,
    changed: Condvar,
}

/// A sink that takes a frame only when the writer is as far ahead as possible.
struct Slow {
    progress: Arc<Progress>,
    blocks: usize,
    ahead_max: usize,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    /// Takes a frame, which may lie in pieces.
    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let bytes = pieces.iter().map(|piece| piece.len()).sum();
        let mut counts = self.progress.counts.lock().unwrap();
        let furthest = self.blocks.min(counts.1 + self.ahead_max);
        while counts.0 < furthest {
            counts = self.progress.changed.wait(counts).unwrap();
        }
        assert!(counts.0 <= furthest, "{} of {furthest} blocks", counts.0);
        counts.1 += 1;
        Ok(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_slow_sink_is_as_many_blocks_behind_as_there_are_buffers_and_no_more() {
    for workers in [1, 2, 5] {
        let blocks = 60;
        let progress = Arc::new(Progress::default());
        let sink = Slow {
            progress: Arc::clone(&progress),
            blocks,
            ahead_max: 2 * workers + 4,
        };
        let options = WriterOptions {
            block_bytes: BLOCK,
            choice: Choice::Fixed("store".parse().unwrap()),
            ..WriterOptions::default()
        };
        let pool = pool(workers);
        let mut writer = Writer::new(sink, &pool, options).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..blocks {
            let block: Vec<u8> = (0..BLOCK).map(|_| random.u8(..)).collect();
            writer.write_all(&block).unwrap();
            progress.counts.lock().unwrap().0 += 1;
            progress.changed.notify_one();
        }
        let (_, summary) = writer.finish().unwrap();
        assert_eq!(summary.blocks, blocks as u64, "{workers} workers");
    }
}

#[test]
fn a_stopped_writer_takes_nothing_more_and_never_waits_again() {
    for worker_count in [0, 2] {
        let pool = pool(worker_count);
        let (called, calls) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let stop = Arc::new(AtomicBool::new(false));
        let options = WriterOptions {
            block_bytes: BLOCK,
            stop: Some(Arc::clone(&stop)),
            ..WriterOptions::default()
        };
        let mut writer = Writer::new(Stuck { called, gate }, &pool, options).unwrap();
        writer.write_all(&data(2000)).unwrap();
        calls.recv().expect("the sink is called");
        stop.store(true, Ordering::Relaxed);
        let first = Writer::flush(&mut writer).expect_err("the sink is stuck");
        assert!(matches!(first, Error::Interrupted), "{first}");
        // The test is that all these return, with the flag in either state.
        stop.store(false, Ordering::Relaxed);
        for _ in 0..20 {
            let later = Writer::flush(&mut writer).expect_err("it was stopped");
            assert!(matches!(later, Error::Poisoned { .. }), "{later}");
            let later = writer.write_all(b"more").expect_err("it was stopped");
            assert!(matches!(later, Error::Poisoned { .. }), "{later}");
        }
        let later = writer.finish().map(|_| ()).expect_err("it was stopped");
        assert!(matches!(later, Error::Poisoned { .. }), "{later}");
        drop(open);
    }
}
