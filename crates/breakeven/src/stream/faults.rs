//! Sinks and sources that fail, at each call: what was handed on before is right, the error is told,
//! and nobody waits for ever.

use std::io::{self, Cursor, ErrorKind, Read, Seek, SeekFrom, Write};
use std::sync::mpsc;

use super::tests::{data, pack, pool, read_in_order, short_stream};
use super::*;
use crate::error::Error;

/// What happens at the call that fails.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// An error, that time only.
    Once,
    /// An error, from then on.
    ForEver,
    /// A call that a signal cut short, which is to be repeated.
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
        // A seek is not repeated after a signal, which no system sends it.
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
            assert!(error.is_some(), "byte {place}: not noticed");
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
        // Whoever flushes does not repeat that after a signal, as files and pipes need none.
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

/// A sink that says when it was called and then takes nothing until its gate is opened.
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
    // Without workers the stuck thread itself would compress, and the caller would wait for it.
    for worker_count in [1, 2] {
        // From nothing on its way to all but one of the buffers in use.
        for blocks in 0..2 * worker_count + 4 {
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
            // That both return is the test.
            drop(writer);
            drop(pool);
            drop(open);
        }
    }
}
