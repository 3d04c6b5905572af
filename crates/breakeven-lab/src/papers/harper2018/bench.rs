//! Codecs on pages, and page faults, taking turns.
//!
//! A codec works on one thread or, as a cache that evicts many buffers at a time would, on all of them through the
//! library's pool. Targets are overwritten before each turn; the output is verified after it. Page faults are those of
//! [`super::faults`].

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Compressor, Decompressor, Method};
use breakeven::pool::{Pool, PoolOptions, Stage};

use super::corpus::Source;
use super::faults::{Fault, FaultFile, Faulting};
use crate::clock;
use crate::data;
use crate::interleave::{self, Batch, Plan, Race};
use crate::record::Row;

/// The measurements of one contender in a run.
pub const COLUMNS: &[&str] = &[
    "pages",
    "raw_bytes",
    "stored_bytes",
    "wall_seconds",
    "cpu_seconds",
];
const PAGES: usize = 0;
const RAW_BYTES: usize = 1;
const STORED_BYTES: usize = 2;
const WALL_SECONDS: usize = 3;
const CPU_SECONDS: usize = 4;

/// The content of a target before a contender's turn.
const UNWRITTEN: u8 = 0xA5;
/// Parts that the pages are cut into for each thread, so that none waits long for another.
const SHARES_PER_THREAD: usize = 2;
/// The extents taken from a file, one or more of the largest pages.
const EXTENT_BYTES: usize = 64 << 10;
/// The direction of a codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Compress,
    Decompress,
}

impl Way {
    pub const BOTH: [Way; 2] = [Way::Compress, Way::Decompress];

    pub fn name(self) -> &'static str {
        match self {
            Way::Compress => "compress",
            Way::Decompress => "decompress",
        }
    }
}

/// Returns the task of a codec at one way on some threads.
pub fn task(way: Way, threads: usize) -> String {
    format!("{} threads {threads}", way.name())
}

/// Returns the threads of bulk work: all of the machine.
pub fn all_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Pages that lie one after another.
pub struct Pages {
    bytes: Vec<u8>,
    page_bytes: usize,
}

impl Pages {
    pub fn new(bytes: Vec<u8>, page_bytes: usize) -> Pages {
        assert!(bytes.len() >= page_bytes && page_bytes > 0, "no page");
        Pages { bytes, page_bytes }
    }

    fn count(&self) -> usize {
        self.bytes.len() / self.page_bytes
    }

    fn page(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.page_bytes..(index + 1) * self.page_bytes]
    }
}

/// Returns about `bytes` of the sources, spread over each in proportion to its size.
pub fn sample(sources: &[Source], folder: Option<&Path>, bytes: usize) -> Result<Vec<u8>> {
    let all: u64 = sources.iter().map(|source| source.bytes).sum();
    let mut sample = Vec::with_capacity(bytes + sources.len() * EXTENT_BYTES);
    for source in sources {
        let share = bytes as f64 * source.bytes as f64 / all as f64;
        let extents = (share / EXTENT_BYTES as f64).round().max(1.0) as usize;
        let whole = source.load(folder)?;
        ensure!(whole.len() >= EXTENT_BYTES, "{} is too small", source.name);
        sample.extend(data::spread(&whole, extents, EXTENT_BYTES));
    }
    // A file that is taken whole may end within an extent.
    sample.truncate(sample.len() / EXTENT_BYTES * EXTENT_BYTES);
    Ok(sample)
}

/// Pages with a method's output for each.
struct Stored {
    method: Method,
    pages: Arc<Pages>,
    stored: Vec<Vec<u8>>,
}

impl Stored {
    fn new(method: Method, pages: &Arc<Pages>) -> Result<Stored> {
        let mut compressor = Compressor::new();
        let mut target = vec![0; method.bound(pages.page_bytes)];
        let mut stored = Vec::with_capacity(pages.count());
        for index in 0..pages.count() {
            let size = compressor.compress(method, pages.page(index), &mut target)?;
            stored.push(target[..size.context("a page is larger than its bound")?].to_vec());
        }
        Ok(Stored {
            method,
            pages: Arc::clone(pages),
            stored,
        })
    }

    fn stored_bytes(&self) -> usize {
        self.stored.iter().map(Vec::len).sum()
    }
}

/// Some pages to be worked on by one thread, with their targets.
struct Share {
    stored: Arc<Stored>,
    way: Way,
    pages: Range<usize>,
    targets: Vec<Vec<u8>>,
    sizes: Vec<usize>,
    /// Processor time of the last pass.
    cpu_seconds: f64,
}

impl Share {
    fn new(stored: &Arc<Stored>, way: Way, pages: Range<usize>) -> Share {
        let page_bytes = stored.pages.page_bytes;
        let target_bytes = match way {
            Way::Compress => stored.method.bound(page_bytes),
            Way::Decompress => page_bytes,
        };
        Share {
            stored: Arc::clone(stored),
            way,
            targets: vec![vec![UNWRITTEN; target_bytes]; pages.len()],
            sizes: vec![0; pages.len()],
            pages,
            cpu_seconds: 0.0,
        }
    }

    fn verify(&self, decompressor: &mut Decompressor) -> Result<()> {
        let method = self.stored.method;
        let mut decoded = vec![UNWRITTEN; self.stored.pages.page_bytes];
        for (at, index) in self.pages.clone().enumerate() {
            let (page, target) = (self.stored.pages.page(index), &self.targets[at]);
            let found = match self.way {
                Way::Decompress => target,
                Way::Compress => {
                    decoded.fill(UNWRITTEN);
                    let stored = &target[..self.sizes[at]];
                    decompressor.decompress(method.decoder(), stored, &mut decoded)?;
                    &decoded
                }
            };
            ensure!(found == page, "{method}: another page came back");
        }
        Ok(())
    }
}

/// A thread's working memory.
#[derive(Default)]
struct Workspace {
    compressor: Compressor,
    decompressor: Decompressor,
}

/// Does a share once.
fn work(workspace: &mut Workspace, mut share: Share) -> breakeven::Result<Share> {
    let stored = Arc::clone(&share.stored);
    let indices = share.pages.clone();
    let targets = share.targets.iter_mut().zip(&mut share.sizes);
    let (duration, outcome) = clock::time(|| -> breakeven::Result<()> {
        for (index, (target, size)) in indices.zip(targets) {
            match share.way {
                Way::Compress => {
                    let page = stored.pages.page(index);
                    let found = workspace.compressor.compress(stored.method, page, target)?;
                    // A target of the bound's size always suffices; 0 bytes decode to no page.
                    *size = found.unwrap_or(0);
                }
                Way::Decompress => {
                    let (decoder, bytes) = (stored.method.decoder(), &stored.stored[index]);
                    workspace.decompressor.decompress(decoder, bytes, target)?;
                }
            }
        }
        Ok(())
    });
    outcome?;
    share.cpu_seconds = duration.cpu_seconds;
    Ok(share)
}

/// The threads that do the shares of a turn.
enum Crew {
    Nobody,
    /// The thread that keeps the time.
    Alone(Box<Workspace>),
    Many(Box<Workers>),
}

/// Threads that share the work.
struct Workers {
    stage: Stage<Share, Share, Workspace>,
    // Its threads end when it is dropped.
    _pool: Pool,
}

/// A codec at one way on some threads.
struct Coding {
    stored: Arc<Stored>,
    way: Way,
    threads: usize,
    crew: Crew,
    shares: Vec<Share>,
    /// Processor time of each pass since the turn began.
    cpu_seconds: Vec<f64>,
}

impl Coding {
    fn new(stored: &Arc<Stored>, way: Way, threads: usize) -> Coding {
        Coding {
            stored: Arc::clone(stored),
            way,
            threads,
            crew: Crew::Nobody,
            shares: Vec::new(),
            cpu_seconds: Vec::new(),
        }
    }

    fn prepare(&mut self) -> Result<()> {
        self.cpu_seconds.clear();
        let count = self.stored.pages.count();
        let parts = match self.threads {
            1 => 1,
            threads => (threads * SHARES_PER_THREAD).min(count),
        };
        let share = |part: usize| {
            let pages = part * count / parts..(part + 1) * count / parts;
            Share::new(&self.stored, self.way, pages)
        };
        self.shares = (0..parts).map(share).collect();
        self.crew = match self.threads {
            1 => Crew::Alone(Box::default()),
            worker_count => {
                let pool = Pool::new(PoolOptions { worker_count })?;
                let stage = pool.stage(parts, Workspace::default, work)?;
                Crew::Many(Box::new(Workers { stage, _pool: pool }))
            }
        };
        Ok(())
    }

    fn pass(&mut self) -> Result<()> {
        let shares = std::mem::take(&mut self.shares);
        let mut done = Vec::with_capacity(shares.len());
        match &mut self.crew {
            Crew::Nobody => unreachable!("a pass without a turn"),
            Crew::Alone(workspace) => {
                for share in shares {
                    done.push(work(workspace, share)?);
                }
            }
            Crew::Many(workers) => workers.stage.run(shares, |share| {
                done.push(share?);
                Ok(())
            })?,
        }
        let cpu_seconds = done.iter().map(|share| share.cpu_seconds).sum();
        self.cpu_seconds.push(cpu_seconds);
        self.shares = done;
        Ok(())
    }

    /// Checks the last pass and ends the turn; returns the processor time of its timed passes.
    fn finish(&mut self) -> Result<f64> {
        let mut decompressor = Decompressor::new();
        for share in &self.shares {
            share.verify(&mut decompressor)?;
        }
        self.crew = Crew::Nobody;
        self.shares.clear();
        // The first pass warmed the working memory.
        Ok(self.cpu_seconds.iter().skip(1).sum())
    }
}

enum Contender {
    Coding(Coding),
    Faulting(Faulting),
}

/// All contenders with the processor times of their turns.
struct Turns {
    contenders: Vec<Contender>,
    cpu_seconds: Vec<Vec<f64>>,
}

impl Race for Turns {
    fn prepare(&mut self, contender: usize) -> Result<()> {
        match &mut self.contenders[contender] {
            Contender::Coding(coding) => coding.prepare(),
            Contender::Faulting(faulting) => faulting.prepare(),
        }
    }

    fn pass(&mut self, contender: usize) -> Result<()> {
        match &mut self.contenders[contender] {
            Contender::Coding(coding) => coding.pass(),
            Contender::Faulting(faulting) => faulting.pass(),
        }
    }

    fn verify(&mut self, contender: usize) -> Result<()> {
        let cpu_seconds = match &mut self.contenders[contender] {
            Contender::Coding(coding) => coding.finish()?,
            // Threads that wait for a disk use next to none.
            Contender::Faulting(faulting) => faulting.finish().map(|()| 0.0)?,
        };
        self.cpu_seconds[contender].push(cpu_seconds);
        Ok(())
    }
}

/// Measures methods both ways on one and on all threads, and page faults where a file is given.
pub fn measure(
    pages: Pages,
    methods: &[&str],
    faults: Option<FaultFile>,
    plan: Plan,
) -> Result<Vec<Row>> {
    let pages = Arc::new(pages);
    let mut contenders = Vec::new();
    for method in methods {
        let stored = Arc::new(Stored::new(method.parse()?, &pages)?);
        for way in Way::BOTH {
            let coding = |threads| Contender::Coding(Coding::new(&stored, way, threads));
            contenders.push(coding(1));
            contenders.extend((all_threads() > 1).then(|| coding(all_threads())));
        }
    }
    if let Some(file) = faults.map(Arc::new) {
        let faulting = |fault| Contender::Faulting(Faulting::new(&file, fault));
        contenders.extend(Fault::BOTH.map(faulting));
    }
    let mut turns = Turns {
        cpu_seconds: vec![Vec::new(); contenders.len()],
        contenders,
    };
    let count = turns.contenders.len();
    let runs = interleave::interleave(&mut turns, count, plan)?;
    let mut rows = Vec::new();
    for (run, batches) in runs.iter().enumerate() {
        for (index, batch) in batches.iter().enumerate() {
            let cpu_seconds = turns.cpu_seconds[index][run];
            let (task, contender, values) = turns.contenders[index].row(batch, cpu_seconds);
            rows.push(Row {
                task,
                run: run + 1,
                runs: plan.runs,
                contender,
                values,
            });
        }
    }
    Ok(rows)
}

impl Contender {
    /// Returns task, name and values of one batch.
    fn row(&self, batch: &Batch, cpu_seconds: f64) -> (String, String, Vec<f64>) {
        let wall = batch.duration.wall_seconds;
        let passes = batch.passes as f64;
        match self {
            Contender::Coding(coding) => {
                let pages = &coding.stored.pages;
                let values = vec![
                    passes * pages.count() as f64,
                    pages.bytes.len() as f64,
                    coding.stored.stored_bytes() as f64,
                    wall,
                    cpu_seconds,
                ];
                let method = coding.stored.method.to_string();
                (task(coding.way, coding.threads), method, values)
            }
            Contender::Faulting(faulting) => {
                // Faults in flight are waited for by threads that use next to no processor.
                let cpu_seconds = match faulting.depth() {
                    1 => batch.duration.cpu_seconds,
                    _ => cpu_seconds,
                };
                let (pages, bytes) = faulting.amount();
                let pages = passes * pages as f64;
                let values = vec![pages, bytes as f64, bytes as f64, wall, cpu_seconds];
                (faulting.task(), faulting.contender(), values)
            }
        }
    }
}

/// Times of one contender at one task, by run, from its record.
pub struct Times {
    /// Elapsed seconds of a page.
    pub wall: Vec<f64>,
    /// Processor seconds of a page, of all threads together.
    pub cpu: Vec<f64>,
    /// Raw over stored bytes.
    pub ratio: f64,
}

impl Times {
    /// Returns the times, `None` if there are none.
    pub fn of(cell: &crate::record::CellRecord, task: &str, contender: &str) -> Option<Times> {
        let column = |column| cell.column(task, contender, column);
        let pages = column(PAGES);
        let per_page = |seconds: usize| -> Vec<f64> {
            let seconds = column(seconds).into_iter().zip(&pages);
            seconds.map(|(seconds, pages)| seconds / pages).collect()
        };
        let (raw, stored) = (column(RAW_BYTES), column(STORED_BYTES));
        Some(Times {
            wall: per_page(WALL_SECONDS),
            cpu: per_page(CPU_SECONDS),
            ratio: raw.first()? / stored.first()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Kind, SEED};

    fn pages() -> Pages {
        Pages::new(Kind::Mixed.generate(64 << 10, SEED), 8 << 10)
    }

    #[test]
    fn wrong_pages_are_found() {
        let pages = Arc::new(pages());
        for method in ["lz4:1", "zstd:3"] {
            let stored = Arc::new(Stored::new(method.parse().unwrap(), &pages).unwrap());
            for way in Way::BOTH {
                for threads in [1, 3] {
                    let mut coding = Coding::new(&stored, way, threads);
                    coding.prepare().unwrap();
                    assert!(coding.finish().is_err(), "nothing was done");
                    coding.prepare().unwrap();
                    coding.pass().unwrap();
                    coding.pass().unwrap();
                    let pages: usize = coding.shares.iter().map(|share| share.pages.len()).sum();
                    assert_eq!(pages, 8);
                    assert!(coding.finish().unwrap() > 0.0);
                    coding.prepare().unwrap();
                    coding.pass().unwrap();
                    let last = coding.shares.last_mut().unwrap();
                    match way {
                        Way::Compress => last.sizes[0] -= 1,
                        Way::Decompress => last.targets[0][20] ^= 1,
                    }
                    assert!(coding.finish().is_err(), "{method} {way:?}: it is wrong");
                }
            }
        }
    }

    #[test]
    fn every_contender_has_its_rows() {
        let folder = tempfile::tempdir().unwrap();
        let faults = FaultFile::create(folder.path(), 8 << 10, 1 << 20).unwrap();
        let plan = Plan {
            runs: 2,
            batch_seconds: 1e-4,
        };
        let rows = measure(pages(), &["lz4:1", "zstd:3"], Some(faults), plan).unwrap();
        let codecs = 2 * 2 * all_threads().min(2);
        assert_eq!(rows.len(), 2 * (codecs + 2));
        assert!(rows.iter().all(|row| row.values[WALL_SECONDS] > 0.0));
        let coded = rows.iter().filter(|row| row.contender == "zstd:3");
        for row in coded {
            assert!(row.values[CPU_SECONDS] > 0.0, "{row:?}");
            assert!(row.values[STORED_BYTES] < row.values[RAW_BYTES]);
        }
    }

    #[test]
    fn a_sample_takes_of_every_source() {
        let kinds = [Kind::Text, Kind::Rows, Kind::Numbers];
        let sources: Vec<Source> = kinds
            .iter()
            .map(|kind| Source::generated(*kind, 256 << 10))
            .collect();
        let bytes = sample(&sources, None, 384 << 10).unwrap();
        assert_eq!(bytes.len(), 384 << 10);
        let text = Kind::Text.generate(256 << 10, SEED);
        assert_eq!(bytes[..128 << 10], data::spread(&text, 2, EXTENT_BYTES));
    }
}
