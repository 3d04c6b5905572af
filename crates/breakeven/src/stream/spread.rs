//! A sink with several links: several threads write to one file at once, each in its place.
//!
//! A file on several servers or disks takes more from several writers than from one. Each byte goes to the place where
//! a single writer would have put it. So the file is the same for any number of links, and its readers need not know of
//! them.
//!
//! ```text
//! I/O thread --copy--> queue of places --> link 1..L --write_at--> file
//! ```
//!
//! Promises: no byte is counted as written at a flush before its write returned. The first error ends every wait and is
//! reported once. The links are not in step: after an error, the content of the file is no prefix of the stream. A
//! stream that was not finished has no seek table. A caller that wants only whole files writes under another name
//! first.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::storage::StorageFile;

/// The most bytes of a write: an incompressible frame of 1 MiB fits.
const PIECE_BYTES_MAX: usize = (1 << 20) + (1 << 10);
/// The most links of a file.
const LINKS_MAX: usize = 1024;

/// A file as the sink of a [`super::Writer`], written to by several threads at once.
///
/// Dropping it starts no more writes, and does not wait for those under way.
///
/// # Cost
///
/// L threads and L + 1 buffers of 1 MiB, with L links; one copy of each byte.
///
/// # Example
///
/// ```
/// use breakeven::pool::{Pool, PoolOptions};
/// use breakeven::storage::{OpenOptions, RealStorage, Storage};
/// use breakeven::stream::{SpreadFile, Writer, WriterOptions};
///
/// let folder = tempfile::tempdir().unwrap();
/// let storage = RealStorage::open_folder(folder.path())?;
/// let file = storage.open("stream.zst", OpenOptions::create_new())?;
/// let pool = Pool::new(PoolOptions { worker_count: 2 })?;
/// let sink = SpreadFile::new(file, 4)?;
/// let mut writer = Writer::new(sink, &pool, WriterOptions::default())?;
/// writer.write_all(&vec![7; 3_000_000])?;
/// writer.finish()?;
/// # Ok::<(), breakeven::Error>(())
/// ```
pub struct SpreadFile {
    shared: Arc<Shared>,
    /// Where the next bytes belong.
    position: u64,
}

/// The state that the sink and its links share.
struct Shared {
    file: Arc<dyn StorageFile>,
    state: Mutex<State>,
    /// A link waits here for a piece, or the end.
    queued: Condvar,
    /// The sink waits here for a free buffer, for the end of all writes, or a failure.
    done: Condvar,
}

#[derive(Default)]
struct State {
    free: Vec<Vec<u8>>,
    queue: VecDeque<(u64, Vec<u8>)>,
    /// Pieces taken from the queue whose write has not returned.
    running: usize,
    failure: Failure,
    is_closed: bool,
}

#[derive(Default)]
enum Failure {
    #[default]
    None,
    New(Error),
    Told,
}

impl SpreadFile {
    /// Makes a sink that writes from the start of an empty file.
    ///
    /// # Errors
    ///
    /// `Invalid` for no links or more than 1,024, or a file for direct I/O; `Io` if the system starts
    /// no more threads.
    pub fn new(file: Arc<dyn StorageFile>, links: usize) -> Result<SpreadFile> {
        if !(1..=LINKS_MAX).contains(&links) {
            let reason = format!("{links} are outside 1 to {LINKS_MAX}");
            return Err(Error::invalid("links of a sink", reason));
        }
        if file.alignment_bytes() > 1 {
            let reason = "frames have any length, direct I/O has not".to_string();
            return Err(Error::invalid("file of a sink", reason));
        }
        let shared = Arc::new(Shared {
            file,
            state: Mutex::new(State {
                free: (0..=links).map(|_| Vec::new()).collect(),
                queue: VecDeque::with_capacity(links + 1),
                ..State::default()
            }),
            queued: Condvar::new(),
            done: Condvar::new(),
        });
        // From here on the threads end with it, even if the system starts no more of them.
        let sink = SpreadFile {
            shared: Arc::clone(&shared),
            position: 0,
        };
        for link in 0..links {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("breakeven-link-{link}"))
                .spawn(move || shared.serve())
                .map_err(|error| Error::io("start", "a link's thread", error))?;
        }
        Ok(sink)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics under this lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loop of a link until the sink is dropped or a write failed.
    fn serve(&self) {
        while let Some((place, bytes)) = self.next_piece() {
            let unwinding = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.file.write_at(&[IoSlice::new(&bytes)], place)
            }));
            let outcome = unwinding.unwrap_or_else(|panic| {
                Err(Error::Panicked {
                    what: "the sink's file",
                    message: crate::pool::message_of(panic.as_ref()),
                })
            });
            let mut state = self.lock();
            state.running -= 1;
            state.free.push(bytes);
            if let (Err(error), Failure::None) = (outcome, &state.failure) {
                state.failure = Failure::New(error);
            }
            drop(state);
            self.done.notify_one();
        }
    }

    /// Waits for a piece; `None` at the end.
    fn next_piece(&self) -> Option<(u64, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if state.is_closed || !matches!(state.failure, Failure::None) {
                return None;
            }
            if let Some(piece) = state.queue.pop_front() {
                state.running += 1;
                return Some(piece);
            }
            state = (self.queued.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until `take` returns a value, or a write failed.
    fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> io::Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(error) = state.failure() {
                // Sleeping links have nothing more to wait for.
                self.queued.notify_all();
                return Err(error);
            }
            if let Some(found) = take(&mut state) {
                return Ok(found);
            }
            state = (self.done.wait(state)).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl State {
    /// Returns the failure: the error itself the first time, then the fact that there was one.
    fn failure(&mut self) -> Option<io::Error> {
        match std::mem::replace(&mut self.failure, Failure::Told) {
            Failure::None => {
                self.failure = Failure::None;
                None
            }
            Failure::New(Error::Io { source, .. }) => Some(source),
            Failure::New(error) => Some(io::Error::other(error)),
            Failure::Told => Some(io::Error::other("an earlier write failed")),
        }
    }
}

impl Write for SpreadFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        if slices.iter().all(|slice| slice.is_empty()) {
            return Ok(0);
        }
        let mut buffer = self.shared.wait(|state| state.free.pop())?;
        buffer.clear();
        for slice in slices {
            let room = PIECE_BYTES_MAX - buffer.len();
            buffer.extend_from_slice(&slice[..slice.len().min(room)]);
        }
        let count = buffer.len();
        self.shared.lock().queue.push_back((self.position, buffer));
        self.shared.queued.notify_one();
        self.position += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        let is_idle = |state: &mut State| state.queue.is_empty() && state.running == 0;
        self.shared.wait(|state| is_idle(state).then_some(()))
    }
}

impl Drop for SpreadFile {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.queued.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSliceMut;
    use std::ops::Range;
    use std::path::Path;

    use super::super::stream_test::{data, pool, read_in_order};
    use super::super::{ReaderOptions, Writer, WriterOptions};
    use super::*;
    use crate::storage::simulated::{Fault, FaultKind};
    use crate::storage::{FileStatus, HeldLock, LockKind, MemoryStorage, OpenOptions};
    use crate::storage::{SimulatedDisk, Storage};

    const BLOCK: usize = 4096;

    fn options() -> WriterOptions {
        WriterOptions {
            block_bytes: BLOCK,
            ..WriterOptions::default()
        }
    }

    fn contents(file: &Arc<dyn StorageFile>) -> Vec<u8> {
        let mut bytes = vec![0; file.status().unwrap().size_bytes as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    /// Writes data by a number of links and finishes.
    fn pack(file: &Arc<dyn StorageFile>, links: usize, data: &[u8]) -> Result<()> {
        let sink = SpreadFile::new(Arc::clone(file), links)?;
        let mut writer = Writer::new(sink, &pool(2), options())?;
        writer.write_all(data)?;
        Writer::flush(&mut writer)?;
        writer.finish().map(drop)
    }

    #[test]
    fn the_file_is_the_same_whatever_the_number_of_links() {
        let data = data(30_000);
        let mut files = Vec::new();
        for links in [1, 2, 7] {
            let storage = MemoryStorage::new();
            let file = storage.open("stream", OpenOptions::create_new()).unwrap();
            pack(&file, links, &data).unwrap();
            let stream = contents(&file);
            let (found, error) = read_in_order(&stream[..], &pool(1), ReaderOptions::default());
            assert!(error.is_none() && found == data, "{links} links: {error:?}");
            files.push(stream);
        }
        assert!(files.windows(2).all(|pair| pair[0] == pair[1]));
        let storage = MemoryStorage::new();
        let file = storage.open("stream", OpenOptions::create_new()).unwrap();
        for links in [0, LINKS_MAX + 1] {
            let wrong = SpreadFile::new(Arc::clone(&file), links).err();
            assert!(matches!(wrong, Some(Error::Invalid { .. })), "{links}");
        }
    }

    /// A file whose first writes wait until as many of them have begun as there are links.
    struct Gathering {
        file: Arc<dyn StorageFile>,
        links: usize,
        begun: Mutex<usize>,
        all_have_begun: Condvar,
    }

    impl StorageFile for Gathering {
        fn path(&self) -> &Path {
            self.file.path()
        }

        fn read_at(&self, buffers: &mut [IoSliceMut<'_>], offset: u64) -> Result<usize> {
            self.file.read_at(buffers, offset)
        }

        fn write_at(&self, buffers: &[IoSlice<'_>], offset: u64) -> Result<()> {
            let mut begun = self.begun.lock().unwrap();
            *begun += 1;
            self.all_have_begun.notify_all();
            while *begun < self.links {
                begun = self.all_have_begun.wait(begun).unwrap();
            }
            drop(begun);
            self.file.write_at(buffers, offset)
        }

        fn sync(&self) -> Result<()> {
            self.file.sync()
        }

        fn truncate(&self, size_bytes: u64) -> Result<()> {
            self.file.truncate(size_bytes)
        }

        fn allocate(&self, offset: u64, length_bytes: u64) -> Result<()> {
            self.file.allocate(offset, length_bytes)
        }

        fn punch(&self, offset: u64, length_bytes: u64) -> Result<()> {
            self.file.punch(offset, length_bytes)
        }

        fn try_lock(&self, range: Range<u64>, kind: LockKind) -> Result<bool> {
            self.file.try_lock(range, kind)
        }

        fn unlock(&self, range: Range<u64>) -> Result<()> {
            self.file.unlock(range)
        }

        fn first_conflict(&self, range: Range<u64>, kind: LockKind) -> Result<Option<HeldLock>> {
            self.file.first_conflict(range, kind)
        }

        fn status(&self) -> Result<FileStatus> {
            self.file.status()
        }

        fn alignment_bytes(&self) -> usize {
            1
        }
    }

    #[test]
    fn as_many_writes_run_at_once_as_there_are_links() {
        for links in [2, 5] {
            let storage = MemoryStorage::new();
            let file = storage.open("stream", OpenOptions::create_new()).unwrap();
            let gathering: Arc<dyn StorageFile> = Arc::new(Gathering {
                file: Arc::clone(&file),
                links,
                begun: Mutex::new(0),
                all_have_begun: Condvar::new(),
            });
            let data = data(10_000);
            // The test is that this ends: each of the first writes waits for the others.
            pack(&gathering, links, &data).unwrap();
            let (found, error) =
                read_in_order(&contents(&file)[..], &pool(1), ReaderOptions::default());
            assert!(error.is_none() && found == data, "{error:?}");
        }
    }

    #[test]
    fn a_write_that_fails_on_any_link_ends_the_stream() {
        let data = data(6_000);
        let (mut tried, mut whole) = (0, 0);
        for kind in [
            FaultKind::WriteError,
            FaultKind::NoSpace,
            FaultKind::ShortWrite,
            FaultKind::Interrupted,
        ] {
            for is_lasting in [false, true] {
                for first_call in 0..16 {
                    let disk = SimulatedDisk::new(first_call);
                    let storage = disk.start_process();
                    let file = storage.open("stream", OpenOptions::create_new()).unwrap();
                    disk.set_fault(Some(Fault {
                        kind,
                        first_call,
                        is_lasting,
                    }));
                    let outcome = pack(&file, 3, &data);
                    disk.set_fault(None);
                    let case = format!("{kind:?} at call {first_call}, for ever: {is_lasting}");
                    let is_repeated =
                        matches!(kind, FaultKind::ShortWrite | FaultKind::Interrupted);
                    match outcome {
                        Ok(()) => {
                            let stream = contents(&file);
                            let options = ReaderOptions::default();
                            let (found, error) = read_in_order(&stream[..], &pool(0), options);
                            assert!(error.is_none() && found == data, "{case}: {error:?}");
                            whole += 1;
                        }
                        Err(Error::Io { .. }) => assert!(!is_repeated, "{case}"),
                        Err(other) => panic!("{case}: {other}"),
                    }
                    tried += 1;
                }
            }
        }
        println!("{tried} faults, {whole} streams whole");
        assert!(tried >= 128 && (32..110).contains(&whole), "{whole}");
    }

    #[test]
    fn a_failure_is_told_once_and_a_stuck_file_holds_nobody_that_drops() {
        let disk = SimulatedDisk::new(1);
        let storage = disk.start_process();
        let file = storage.open("stream", OpenOptions::create_new()).unwrap();
        disk.set_fault(Some(Fault {
            kind: FaultKind::NoSpace,
            first_call: 0,
            is_lasting: true,
        }));
        let mut sink = SpreadFile::new(file, 2).unwrap();
        sink.write_all(b"some bytes").unwrap();
        let first = sink.flush().expect_err("there is no space");
        assert_eq!(first.kind(), io::ErrorKind::StorageFull);
        for _ in 0..9 {
            let later = sink.write(b"more").expect_err("it failed before");
            assert_eq!(later.to_string(), "an earlier write failed");
        }
        // No other write joins the only one, so it never returns; the drop does.
        let storage = MemoryStorage::new();
        let gathering = Gathering {
            file: storage.open("stream", OpenOptions::create_new()).unwrap(),
            links: usize::MAX,
            begun: Mutex::new(0),
            all_have_begun: Condvar::new(),
        };
        let mut sink = SpreadFile::new(Arc::new(gathering), 1).unwrap();
        sink.write_all(b"some bytes").unwrap();
        drop(sink);
    }
}
