//! Page faults: reads of a page from a file of random bytes, by direct I/O where it is offered.
//!
//! Every page begins with its own offset, so that a read can be checked. The file lies in a folder
//! of its own and goes with it.

use std::fs;
use std::io::{IoSlice, IoSliceMut};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use breakeven::Error;
use breakeven::pool::{Pool, PoolOptions, Stage};
use breakeven::storage::{AlignedBuffer, OpenOptions, RealStorage, Storage, StorageFile};

use crate::data::{Random, SEED};

/// Page faults of one pass.
const FAULTS: usize = 64;
/// The most faults in flight.
const DEPTH: usize = 4;

/// How page faults come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Anywhere, one after another: the waits of one reader.
    Waiting,
    /// Nine in sequence and one anywhere, four in flight: the thesis's.
    Thesis,
}

impl Fault {
    pub const BOTH: [Fault; 2] = [Fault::Waiting, Fault::Thesis];

    pub fn task(self) -> &'static str {
        match self {
            Fault::Waiting => "fault random depth 1",
            Fault::Thesis => "fault nine-to-one depth 4",
        }
    }

    fn depth(self) -> usize {
        match self {
            Fault::Waiting => 1,
            Fault::Thesis => DEPTH,
        }
    }
}

/// The source of a fault: the disk itself, or the system's memory before it.
pub const DISK: &str = "disk";
pub const PAGE_CACHE: &str = "page-cache";

/// A file of random bytes to fault on, each page beginning with its own offset.
pub struct FaultFile {
    file: Arc<dyn StorageFile>,
    page_bytes: usize,
    page_count: u64,
    is_direct: bool,
    // Removed with everything in it when this is dropped.
    _folder: tempfile::TempDir,
}

impl FaultFile {
    /// Writes the file in a folder of its own below `parent`.
    pub fn create(parent: &Path, page_bytes: usize, file_bytes: usize) -> Result<FaultFile> {
        const CHUNK_BYTES: usize = 1 << 20;
        const NAME: &str = "pages";
        fs::create_dir_all(parent)?;
        let folder = tempfile::Builder::new()
            .prefix(".page-faults")
            .tempdir_in(parent)?;
        let storage = RealStorage::open_folder(folder.path())?;
        let plain = storage.open(NAME, OpenOptions::create_new())?;
        let direct = storage.open(
            NAME,
            OpenOptions {
                direct: true,
                ..OpenOptions::default()
            },
        );
        let (file, is_direct) = match direct {
            Ok(file) => (file, true),
            Err(Error::Unsupported { .. }) => (plain, false),
            Err(error) => return Err(error.into()),
        };
        let mut random = Random::new(SEED);
        let mut chunk = AlignedBuffer::zeroed(CHUNK_BYTES);
        for start in (0..file_bytes as u64).step_by(CHUNK_BYTES) {
            for word in chunk.chunks_exact_mut(8) {
                word.copy_from_slice(&random.next().to_le_bytes());
            }
            for (page, at) in chunk.chunks_exact_mut(page_bytes).zip(0..) {
                let offset: u64 = start + at * page_bytes as u64;
                page[..8].copy_from_slice(&offset.to_le_bytes());
            }
            file.write_at(&[IoSlice::new(&chunk)], start)?;
        }
        file.sync()?;
        Ok(FaultFile {
            file,
            page_bytes,
            page_count: (file_bytes / page_bytes) as u64,
            is_direct,
            _folder: folder,
        })
    }
}

/// Reads of one worker: the places, and the buffers.
struct Reads {
    file: Arc<dyn StorageFile>,
    offsets: Vec<u64>,
    buffer: AlignedBuffer,
}

fn read(_: &mut (), mut reads: Reads) -> breakeven::Result<Reads> {
    for offset in &reads.offsets {
        let mut buffers = [IoSliceMut::new(&mut reads.buffer)];
        let count = reads.file.read_at(&mut buffers, *offset)?;
        if count < reads.buffer.len() {
            let expected = format!("{} bytes", reads.buffer.len());
            return Err(Error::corrupt("page fault", *offset, expected, count));
        }
    }
    Ok(reads)
}

/// Page faults of one kind.
pub struct Faulting {
    source: Arc<FaultFile>,
    fault: Fault,
    crew: Option<(Pool, Stage<Reads, Reads, ()>)>,
    idle: Vec<Reads>,
    random: Random,
}

impl Faulting {
    /// Prepares nothing yet.
    pub fn new(source: &Arc<FaultFile>, fault: Fault) -> Faulting {
        Faulting {
            source: Arc::clone(source),
            fault,
            crew: None,
            idle: Vec::new(),
            random: Random::new(SEED),
        }
    }

    /// Makes the buffers and the threads of a turn.
    pub fn prepare(&mut self) -> Result<()> {
        let depth = self.fault.depth();
        let reads = |_| Reads {
            file: Arc::clone(&self.source.file),
            offsets: Vec::with_capacity(FAULTS),
            buffer: AlignedBuffer::zeroed(self.source.page_bytes),
        };
        self.idle = (0..depth).map(reads).collect();
        self.crew = match depth {
            1 => None,
            worker_count => {
                let pool = Pool::new(PoolOptions { worker_count })?;
                let stage = pool.stage(depth, || (), read)?;
                Some((pool, stage))
            }
        };
        Ok(())
    }

    /// Draws where the pages of a pass lie, dealt out to those in flight.
    fn draw(&mut self) {
        let depth = self.fault.depth();
        self.idle.iter_mut().for_each(|reads| reads.offsets.clear());
        let mut page = 0;
        for index in 0..FAULTS {
            page = match self.fault {
                Fault::Thesis if index % 10 > 0 => (page + 1) % self.source.page_count,
                _ => self.random.below(self.source.page_count),
            };
            let offset = page * self.source.page_bytes as u64;
            self.idle[index % depth].offsets.push(offset);
        }
    }

    /// Faults once for each page of a pass.
    pub fn pass(&mut self) -> Result<()> {
        self.draw();
        let jobs = std::mem::take(&mut self.idle);
        let mut done = Vec::with_capacity(jobs.len());
        match &mut self.crew {
            None => {
                for job in jobs {
                    done.push(read(&mut (), job)?);
                }
            }
            Some((_, stage)) => stage.run(jobs, |reads| {
                done.push(reads?);
                Ok(())
            })?,
        }
        self.idle = done;
        Ok(())
    }

    /// Checks that the last pages read are those asked for, and ends the turn.
    pub fn finish(&mut self) -> Result<()> {
        for reads in &self.idle {
            let wanted = reads.offsets.last().context("nothing was read")?;
            let found: [u8; 8] = reads.buffer[..8].try_into()?;
            ensure!(found == wanted.to_le_bytes(), "another page came back");
        }
        self.crew = None;
        Ok(())
    }

    pub fn task(&self) -> String {
        self.fault.task().to_string()
    }

    /// Returns the source of faults: the disk itself, or the system's memory before it.
    pub fn contender(&self) -> String {
        let name = if self.source.is_direct {
            DISK
        } else {
            PAGE_CACHE
        };
        name.to_string()
    }

    /// Returns how many are in flight.
    pub fn depth(&self) -> usize {
        self.fault.depth()
    }

    /// Returns the pages and bytes of one pass.
    pub fn amount(&self) -> (usize, usize) {
        (FAULTS, FAULTS * self.source.page_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_the_pages_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let source = Arc::new(FaultFile::create(folder.path(), 8 << 10, 1 << 20).unwrap());
        for fault in Fault::BOTH {
            let mut faulting = Faulting::new(&source, fault);
            faulting.prepare().unwrap();
            assert!(faulting.finish().is_err(), "nothing was read");
            faulting.prepare().unwrap();
            faulting.pass().unwrap();
            faulting.finish().unwrap();
            faulting.idle[0].buffer[3] ^= 1;
            assert!(faulting.finish().is_err(), "another page");
        }
        drop(source);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn nine_of_ten_faults_of_the_thesis_are_in_sequence() {
        let folder = tempfile::tempdir().unwrap();
        let source = Arc::new(FaultFile::create(folder.path(), 8 << 10, 4 << 20).unwrap());
        let mut faulting = Faulting::new(&source, Fault::Thesis);
        faulting.prepare().unwrap();
        faulting.draw();
        let at = |index: usize| faulting.idle[index % DEPTH].offsets[index / DEPTH];
        for index in (1..FAULTS).filter(|index| index % 10 > 0) {
            assert_eq!(at(index), (at(index - 1) + 8192) % (4 << 20));
        }
    }
}
