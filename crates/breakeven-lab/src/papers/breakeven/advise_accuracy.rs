//! Is the advice true? Predicted against found: ratios of every byte, and seconds of doing it.
//!
//! Every file is advised on as for a user, and once more in a fraction of the time, so that a sample is one. Then every
//! byte is compressed. The verdict on time is then carried out in a real folder, beside storing raw. Nothing is left
//! out of a record that was printed as measured.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{IoSlice, IoSliceMut, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use breakeven::advise::population::Population;
use breakeven::advise::report::{MethodReport, Report};
use breakeven::advise::sample::SampleOptions;
use breakeven::advise::{AdviseOptions, Setting, advise};
use breakeven::arena::{Arena, ArenaOptions, Slab};
use breakeven::codec::{Compressor, Decoder, Decompressor, Method};
use breakeven::decide::Profile;
use breakeven::medium::Medium;
use breakeven::medium::probe::{ProbeOptions, probe};
use breakeven::meter::{Machine, PowerModel, Roots};
use breakeven::model::HIRSCH_2017;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::storage::{OpenOptions, RealStorage, Storage, StorageFile};
use breakeven::stream::{Choice, Container, Writer, WriterOptions};
use breakeven::units::{BytesPerSecond, Estimate};

use super::super::hirsch2017::link::Link;

use crate::clock;
use crate::data::{self, Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/advise-accuracy",
    claim: "The output of `advise` is true: ratios, their intervals, seconds and verdicts.",
    source: "this project's own target",
    figure: "share of printed 95 % intervals that hold the ratio of every byte",
    target: COVERAGE,
    parameters: &[
        (
            "data",
            "every file above 1 MB of --data, and all of the folder as one tree; without it, 16 MiB of each of four generated kinds",
        ),
        (
            "ratios",
            "all data, each method and block size printed as measured. `usual` has the 40 s that the library gives itself, for a file as for the tree. `short` has a second for each 64 MiB, so it sees few clusters",
        ),
        (
            "truth",
            "every block of every file, the last one as short as it is, one that does not shrink counted as raw",
        ),
        (
            "seconds",
            "the file verdict on time, 3 reads per write: 10 runs of at least 64 MiB beside storing raw, alternating. The codec comes first, by processor time, then the medium, by wall time, as the verdict adds them",
        ),
        (
            "medium",
            "one file and one buffer for both contenders, direct I/O, four operations of 1 MiB in flight. The stored bytes go out and come back as one stream, as often as it fits into the raw bytes, and count once",
        ),
        (
            "link",
            "the link verdict on time: the data is written by its method on all threads to a link of the predicted break-even, 10 runs. The measured break-even is the speed at which sending it raw takes as long",
        ),
        (
            "interval of seconds",
            "from the printed intervals of the ratio, the core-seconds and the medium's rates",
        ),
    ],
    analysis: "Advice in its usual time is judged by whether its error exceeds 2 %. Advice in a short time only has to \
        state its own error. A verdict is confirmed if following it came out cheaper. It is refuted if following it \
        came out dearer with the whole interval of the paired runs. In between, the result is inconclusive. Seconds \
        are off beyond doubt where the whole interval of measured over predicted is. The medium is probed for 2.5 s \
        before each advice, as for a user. Later load from other programs counts against the advice. A medium that \
        differs by more than 15 % from one second to the next cannot be predicted closer than that. Then the printed \
        interval has to say so.",
    run,
    table,
    pictures: no_pictures,
};

const COVERAGE: Target = Target::at_least(0.95);
const ERROR: Target = Target {
    low: 0.0,
    high: 0.02,
};
const SECONDS: Target = Target {
    low: 0.85,
    high: 1.15,
};
const COLUMNS: &[&str] = &[
    "raw_bytes",
    "predicted",
    "low",
    "high",
    "found",
    "clusters",
    "decided",
];
const PREDICTED: usize = 1;
const LOW: usize = 2;
const HIGH: usize = 3;
const FOUND: usize = 4;
const DECIDED: usize = 6;
const MEBIBYTE: usize = 1 << 20;
/// Operations in flight, as a stream is judged by.
const DEPTH: usize = 4;
const FILE_BYTES_MIN: u64 = 1_000_000;
const READS_PER_WRITE: f64 = 3.0;
const LINK: &str = "link";
const TREE: &str = "all files";
/// The parts of the seconds: the codec, and the medium's write and reads, with their sums.
const PARTS: [&str; 5] = ["codec", "write", "read", "medium", "seconds"];

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let bench = Bench::new(laboratory)?;
    let mut cells = Vec::new();
    for name in bench.names(laboratory) {
        for task in ["seconds", "ratios", "link"] {
            let (bench, name) = (&bench, name.clone());
            cells.push(Cell {
                name: format!("{name}: {task}"),
                parameters: format!("quick={} seed={SEED}", laboratory.quick),
                measure: Box::new(move || match task {
                    "ratios" => bench.ratio_rows(&name),
                    "link" => bench.link_rows(&name),
                    _ => bench.second_rows(&name),
                }),
            });
        }
    }
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells)?;
    Ok(judge(&measured))
}

/// This machine with a medium, a link of 1 Gbit/s and a paper's prices; nothing learned before.
pub(super) fn setting(medium: Medium) -> Result<Setting> {
    let machine = Machine::read(&Roots::default());
    Ok(Setting {
        power: PowerModel::default_for(&machine),
        power_notes: Vec::new(),
        machine,
        medium,
        link: "1Gbit/s".parse()?,
        profile: Profile::default(),
        prices: HIRSCH_2017,
        prices_date: "2017".to_string(),
        priced_machine_threads: 24.0,
        offload: None,
    })
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, EXPERIMENT.key, COLUMNS, judge)
}

/// Sums of one method at one block size.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    raw_bytes: u64,
    stored_bytes: u64,
}

/// Method and block size.
type Way = (String, u64);

/// The files on the medium, their surroundings, and the true sizes of all their bytes.
struct Bench {
    folder: tempfile::TempDir,
    files: BTreeMap<String, u64>,
    quick: bool,
    truths: RefCell<BTreeMap<(String, Way), Sizes>>,
    reports: RefCell<BTreeMap<String, Report>>,
}

impl Bench {
    fn new(laboratory: &Laboratory) -> Result<Bench> {
        // Beside the records, because the folder of temporary files is often memory.
        let folder = laboratory.scratch()?;
        let mut files = BTreeMap::new();
        let mut keep = |name: &str, bytes: &[u8]| -> Result<()> {
            let path = folder.path().join("data").join(name);
            fs::create_dir_all(path.parent().context("a file below a folder")?)?;
            fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
            files.insert(name.to_string(), bytes.len() as u64);
            Ok(())
        };
        match laboratory.data.as_ref().filter(|_| !laboratory.quick) {
            Some(data) => {
                for file in data::shared_files(data)? {
                    keep(&file.name, &file.load(data)?)?;
                }
            }
            None => {
                let bytes = if laboratory.quick { 3 << 19 } else { 16 << 20 };
                for kind in [Kind::Text, Kind::Rows, Kind::Numbers, Kind::Mixed] {
                    keep(&kind.to_string(), &kind.generate(bytes, SEED))?;
                }
            }
        }
        Ok(Bench {
            folder,
            files,
            quick: laboratory.quick,
            truths: RefCell::default(),
            reports: RefCell::default(),
        })
    }

    /// The cells: the larger files, and all of them as a tree.
    fn names(&self, laboratory: &Laboratory) -> Vec<String> {
        let large = |(name, bytes): (&String, &u64)| {
            (*bytes >= FILE_BYTES_MIN && !laboratory.quick).then(|| name.clone())
        };
        let files = self.files.iter().filter_map(large);
        files.chain([TREE.to_string()]).collect()
    }

    fn path(&self, name: &str) -> PathBuf {
        let data = self.folder.path().join("data");
        if name == TREE { data } else { data.join(name) }
    }

    fn bytes(&self, name: &str) -> u64 {
        match self.files.get(name) {
            Some(bytes) => *bytes,
            None => self.files.values().sum(),
        }
    }

    /// The advice as a user would have it.
    fn usual_report(&self, name: &str) -> Result<Report> {
        if let Some(known) = self.reports.borrow().get(name) {
            return Ok(known.clone());
        }
        let limit = SampleOptions::default().time_limit;
        let report = self.advise(name, limit, self.medium()?, 1)?;
        let kept = report.clone();
        self.reports.borrow_mut().insert(name.to_string(), kept);
        Ok(report)
    }

    /// The medium as a user has it measured.
    fn medium(&self) -> Result<Medium> {
        if self.quick {
            return Ok("nvme".parse()?);
        }
        let stop = AtomicBool::new(false);
        let options = ProbeOptions::default();
        Ok(probe(self.folder.path(), &options, &stop, &mut |_| {})?.medium())
    }

    fn advise(
        &self,
        name: &str,
        time_limit: Duration,
        medium: Medium,
        threads: usize,
    ) -> Result<Report> {
        let mut sample = SampleOptions {
            time_limit,
            ..SampleOptions::default()
        };
        if self.quick {
            sample.slow = vec!["zstd:9".parse()?];
        }
        let options = AdviseOptions {
            sample,
            threads: threads as u32,
            ..AdviseOptions::default()
        };
        let mut setting = setting(medium)?;
        let population = Population::walk(&[self.path(name)], Duration::from_secs(10), SEED)?;
        let stop = AtomicBool::new(false);
        Ok(advise(
            &population,
            &options,
            &mut setting,
            &stop,
            &mut |_| {},
        )?)
    }

    fn ratio_rows(&self, name: &str) -> Result<Vec<Row>> {
        let bytes = self.bytes(name) as f64;
        let short = Duration::from_secs_f64(bytes / (64 * MEBIBYTE) as f64);
        let mut rows = self.printed_rows(name, "usual", &self.usual_report(name)?)?;
        let report = self.advise(name, short, "nvme".parse()?, 1)?;
        rows.extend(self.printed_rows(name, "short", &report)?);
        Ok(rows)
    }

    /// One row for each ratio printed as measured.
    fn printed_rows(&self, name: &str, task: &str, report: &Report) -> Result<Vec<Row>> {
        let ways: Vec<Way> = printed(report)
            .map(|method| (method.method.clone(), method.block_bytes))
            .collect();
        self.find_truths(name, &ways)?;
        let mut rows = Vec::new();
        for (method, way) in printed(report).zip(ways) {
            let sizes = self.truth(name, &way);
            let found = sizes.raw_bytes as f64 / sizes.stored_bytes as f64;
            let ratio = method.ratio;
            rows.push(Row {
                task: format!("ratio {task}"),
                run: 1,
                runs: 1,
                contender: format!("{} {}", method.method, method.block_bytes),
                values: vec![
                    sizes.raw_bytes as f64,
                    ratio.mean,
                    ratio.low,
                    ratio.high,
                    found,
                    method.clusters as f64,
                    0.0,
                ],
            });
        }
        Ok(rows)
    }

    /// The files that a cell is about.
    fn members<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a String> {
        let is_member = move |file: &&String| name == TREE || *file == name;
        self.files.keys().filter(is_member)
    }

    /// A method's sizes for every byte of a file, or of all files, once measured.
    fn truth(&self, name: &str, way: &Way) -> Sizes {
        let truths = self.truths.borrow();
        let mut all = Sizes::default();
        for file in self.members(name) {
            let sizes = truths[&(file.clone(), way.clone())];
            all.raw_bytes += sizes.raw_bytes;
            all.stored_bytes += sizes.stored_bytes;
        }
        all
    }

    /// Compresses every byte in every way that was not tried yet, on all cores: only sizes count.
    fn find_truths(&self, name: &str, ways: &[Way]) -> Result<()> {
        let mut missing = Vec::new();
        for file in self.members(name) {
            for way in ways {
                let key = (file.clone(), way.clone());
                if !self.truths.borrow().contains_key(&key) {
                    missing.push((self.path(file), key));
                }
            }
        }
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<((String, Way), Sizes)>> {
            let mut found = Vec::new();
            while let Some((path, key)) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                found.push((key.clone(), sizes(path, &key.1)?));
            }
            Ok(found)
        };
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let found: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            let done = workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker returns"));
            done.collect::<Result<_>>()
        })?;
        self.truths.borrow_mut().extend(found.into_iter().flatten());
        Ok(())
    }

    /// Sends the data compressed over a link of the speed at which it is said to make no difference.
    fn link_rows(&self, name: &str) -> Result<Vec<Row>> {
        let pool = Pool::new(PoolOptions::default())?;
        // For as many threads as send, as the command asks by itself.
        let limit = SampleOptions::default().time_limit;
        let report = self.advise(name, limit, "nvme".parse()?, pool.worker_count())?;
        let verdict = report.verdicts.iter().find(|verdict| {
            (&*verdict.place, &*verdict.metric, &*verdict.class) == ("link", "time", "all")
        });
        let verdict = verdict.context("no verdict on a link")?;
        let (Some(mean), Some(low), Some(high)) = (verdict.break_even, verdict.low, verdict.high)
        else {
            return Ok(Vec::new());
        };
        let runs = if self.quick { 2 } else { 10 };
        let bytes = self.bytes(name) as f64;
        let mut piece = vec![0; MEBIBYTE];
        let sent = |run| {
            let options = WriterOptions {
                container: Container::Mixed,
                choice: Choice::Fixed(verdict.candidate.parse()?),
                ..WriterOptions::default()
            };
            let (spent, done) = clock::time(|| {
                let link = Link::new(BytesPerSecond(1e6 * mean));
                let mut writer = Writer::new(link, &pool, options)?;
                for file in self.members(name) {
                    let mut file = fs::File::open(self.path(file))?;
                    loop {
                        match file.read(&mut piece)? {
                            0 => break,
                            count => writer.write_all(&piece[..count])?,
                        }
                    }
                }
                anyhow::Ok(writer.finish()?)
            });
            done?;
            let found = bytes / spent.wall_seconds / 1e6;
            Ok(Row {
                task: LINK.to_string(),
                run,
                runs,
                contender: verdict.candidate.clone(),
                values: vec![bytes, mean, low, high, found, 0.0, 0.0],
            })
        };
        (1..=runs).map(sent).collect()
    }

    /// Carries out the verdict on time, beside storing raw.
    fn second_rows(&self, name: &str) -> Result<Vec<Row>> {
        let report = &self.usual_report(name)?;
        let verdict = report
            .verdicts
            .iter()
            .find(|verdict| {
                (&*verdict.place, &*verdict.metric, &*verdict.class) == ("file", "time", "all")
            })
            .context("no verdict on time")?;
        let block_bytes = MEBIBYTE as u64;
        let candidate = printed(report)
            .find(|method| method.method == verdict.candidate && method.block_bytes == block_bytes)
            .context("the candidate was not measured")?;
        let asked = verdict.cost_ratio;
        let decided = match (verdict.answer.as_str(), asked.low < 1.0, asked.high < 1.0) {
            ("undecided", _, _) | (_, true, false) => 0.0,
            (_, true, true) => 1.0,
            (_, false, _) => -1.0,
        };
        let mut raw = Vec::new();
        for file in self.members(name) {
            raw.extend(fs::read(self.path(file))?);
        }
        let least = if self.quick { 1 } else { 64 * MEBIBYTE };
        let (runs, once) = (if self.quick { 2 } else { 10 }, raw.len());
        while raw.len() < least {
            raw.extend_from_within(..once);
        }
        let mut place = self.place(raw.len())?;
        let predicted = [None, Some(candidate)].map(|method| predicted(report, method, raw.len()));
        let methods = [Method::STORE, candidate.method.parse()?];
        let contenders = ["raw", "compressed"];
        let mut rows = Vec::new();
        for run in 1..=runs {
            // Alternating, so that neither always finds the other's leavings.
            for index in [usize::from(run % 2 == 0), usize::from(run % 2 == 1)] {
                let found = place.store(methods[index], &raw)?;
                let parts = PARTS.iter().zip(predicted[index].into_iter().zip(found));
                // Storing raw has no codec.
                rows.extend(parts.skip(usize::from(index == 0)).map(
                    |(part, (predicted, found))| Row {
                        task: (*part).to_string(),
                        run,
                        runs,
                        contender: contenders[index].to_string(),
                        values: vec![
                            raw.len() as f64,
                            predicted.mean,
                            predicted.low,
                            predicted.high,
                            found,
                            candidate.clusters as f64,
                            decided,
                        ],
                    },
                ));
            }
        }
        Ok(rows)
    }

    /// A place for as many bytes, past the page cache where the file system lets it.
    fn place(&self, bytes: usize) -> Result<Place> {
        let storage = RealStorage::open_folder(self.folder.path())?;
        let direct = OpenOptions {
            direct: true,
            ..OpenOptions::create_new()
        };
        let file = match storage.open("image", direct) {
            Ok(file) => file,
            Err(_) if self.quick => storage.open("image", OpenOptions::create_new())?,
            Err(error) => return Err(error.into()),
        };
        storage.unlink("image")?;
        // As the probe's memory: in huge pages where there are any.
        let image_bytes = bytes.next_power_of_two().max(MEBIBYTE);
        let options = ArenaOptions {
            slab_bytes: image_bytes,
            budget_bytes: image_bytes as u64,
            ..ArenaOptions::default()
        };
        let mut place = Place {
            file,
            image: Arena::new(options)?.allocate()?,
        };
        // A place that is written again and again has its space, as the probe's has.
        place.write(bytes)?;
        Ok(place)
    }
}

/// The place of both contenders: the same bytes of the same file from the same memory. Both decide how fast a stream
/// is, and the two contenders differ in neither.
struct Place {
    file: Arc<dyn StorageFile>,
    image: Slab,
}

impl Place {
    /// Returns the seconds of one write and its reads, in the order of [`PARTS`].
    fn store(&mut self, method: Method, raw: &[u8]) -> Result<[f64; PARTS.len()]> {
        let is_raw = method == Method::STORE;
        let (encode, stored) = match is_raw {
            true => (0.0, Vec::new()),
            false => compress(method, MEBIBYTE, raw)?,
        };
        let parts: Vec<&[u8]> = match is_raw {
            true => vec![raw],
            false => stored.iter().map(|block| &*block.bytes).collect(),
        };
        let stored_bytes: usize = parts.iter().map(|part| part.len()).sum();
        // A mebibyte is no stream: the stored bytes go out as often as they fit.
        let copies = raw.len() / stored_bytes;
        let mut at = 0;
        for part in (0..copies).flat_map(|_| &parts) {
            self.image[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        // The last operation is a part of one; its bytes beyond the data are taken off.
        let share = stored_bytes as f64 / at.next_multiple_of(MEBIBYTE) as f64;
        let (write, done) = clock::time(|| self.write(at));
        done?;
        let (read, done) = clock::time(|| self.read(at));
        done?;
        let decode = match is_raw {
            true => 0.0,
            false => decompress(&stored, raw)?,
        };
        let codec = encode + READS_PER_WRITE * decode;
        let write = share * write.wall_seconds;
        let reads = share * READS_PER_WRITE * read.wall_seconds;
        Ok([codec, write, reads, write + reads, codec + write + reads])
    }

    fn write(&mut self, bytes: usize) -> Result<()> {
        self.in_flight(bytes, |file, part, at| {
            file.write_at(&[IoSlice::new(part)], at)
        })?;
        Ok(self.file.sync()?)
    }

    fn read(&mut self, bytes: usize) -> Result<()> {
        self.in_flight(bytes, |file, part, at| {
            file.read_at(&mut [IoSliceMut::new(part)], at).map(drop)
        })
    }

    /// Works on the first bytes of the image in operations of 1 MiB, some of them in flight. The first free thread
    /// takes the next one.
    fn in_flight(
        &mut self,
        bytes: usize,
        work: impl Fn(&dyn StorageFile, &mut [u8], u64) -> breakeven::error::Result<()> + Sync,
    ) -> Result<()> {
        let image = &mut self.image[..bytes.next_multiple_of(MEBIBYTE)];
        let operations = Mutex::new(image.chunks_mut(MEBIBYTE).enumerate());
        let next = || operations.lock().expect("nobody panics").next();
        let file = &*self.file;
        let turn = || {
            std::iter::from_fn(next)
                .try_for_each(|(index, part)| work(file, part, (index * MEBIBYTE) as u64))
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..DEPTH).map(|_| scope.spawn(turn)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker returns"))
        })?;
        Ok(())
    }
}

/// Returns a method's sizes for every byte of a file.
fn sizes(path: &Path, (method, block_bytes): &Way) -> Result<Sizes> {
    let bytes = fs::read(path)?;
    let block_bytes = usize::try_from(*block_bytes)?;
    let (_, stored) = compress(method.parse()?, block_bytes, &bytes)?;
    Ok(Sizes {
        raw_bytes: bytes.len() as u64,
        stored_bytes: stored.iter().map(|block| block.bytes.len() as u64).sum(),
    })
}

/// A block as it is stored.
struct Block {
    bytes: Vec<u8>,
    decoder: Decoder,
    raw_bytes: usize,
}

/// Compresses every block; one that does not shrink stays raw. The seconds are
/// processor time of the calls.
fn compress(method: Method, block_bytes: usize, raw: &[u8]) -> Result<(f64, Vec<Block>)> {
    let mut compressor = Compressor::new();
    let mut target = vec![0; block_bytes];
    let (mut stored, mut sum) = (Vec::new(), 0.0);
    for block in raw.chunks(block_bytes) {
        let limit = &mut target[..block.len() - 1];
        let (spent, size) = clock::time(|| compressor.compress(method, block, limit));
        sum += spent.cpu_seconds;
        let (bytes, decoder) = match size? {
            Some(size) => (target[..size].to_vec(), method.decoder()),
            None => (block.to_vec(), Decoder::STORE),
        };
        stored.push(Block {
            bytes,
            decoder,
            raw_bytes: block.len(),
        });
    }
    Ok((sum, stored))
}

/// Restores every block, compares it, and returns the processor time of the calls.
fn decompress(stored: &[Block], raw: &[u8]) -> Result<f64> {
    let mut decompressor = Decompressor::new();
    let mut target = vec![0; MEBIBYTE];
    let (mut sum, mut at) = (0.0, 0);
    for block in stored {
        let target = &mut target[..block.raw_bytes];
        let (spent, done) =
            clock::time(|| decompressor.decompress(block.decoder, &block.bytes, target));
        done?;
        sum += spent.cpu_seconds;
        let end = at + block.raw_bytes;
        ensure!(*target == raw[at..end], "another block came back");
        at = end;
    }
    Ok(sum)
}

/// The ratios of all data that were measured and not predicted.
fn printed(report: &Report) -> impl Iterator<Item = &MethodReport> {
    let all = report.classes.last().map(|class| class.methods.as_slice());
    let methods = all.unwrap_or_default().iter();
    methods.filter(|method| method.clusters > 0 && method.source == "measured")
}

/// Seconds of one write and its reads, from the printed figures alone, in the order of [`PARTS`].
fn predicted(
    report: &Report,
    method: Option<&MethodReport>,
    raw_bytes: usize,
) -> [Estimate; PARTS.len()] {
    let raw_bytes = raw_bytes as f64;
    let core = |work: fn(&MethodReport) -> Estimate| {
        let per_gigabyte = method.map_or(Estimate::exact(0.0), work);
        per_gigabyte.map(|seconds| raw_bytes * seconds / 1e9)
    };
    let sum = |a: Estimate, times: f64, b: Estimate| Estimate {
        mean: a.mean + times * b.mean,
        low: a.low + times * b.low,
        high: a.high + times * b.high,
    };
    let moved = match method {
        Some(method) => method.ratio.map(|ratio| raw_bytes / ratio),
        None => Estimate::exact(raw_bytes),
    };
    let transfer = |mb_s: Estimate| Estimate {
        mean: moved.mean / (mb_s.mean * 1e6),
        low: moved.low / (mb_s.high * 1e6),
        high: moved.high / (mb_s.low * 1e6),
    };
    let codec = sum(
        core(|method| method.compress_work.core_s_per_gb),
        READS_PER_WRITE,
        core(|method| method.decompress_work.core_s_per_gb),
    );
    let nothing = Estimate::exact(0.0);
    let write = transfer(report.medium.write_mb_s);
    let reads = sum(nothing, READS_PER_WRITE, transfer(report.medium.read_mb_s));
    let medium = sum(write, 1.0, reads);
    [codec, write, reads, medium, sum(codec, 1.0, medium)]
}

fn judge(cells: &[CellRecord]) -> Vec<Finding> {
    let quick = cells
        .iter()
        .all(|cell| cell.parameters.starts_with("quick=true"));
    let count = |figure: f64| Interval {
        runs: usize::from(quick),
        ..Interval::exact(figure)
    };
    let mut findings = Vec::new();
    for (task, what) in [("ratio usual", "usual time"), ("ratio short", "cut short")] {
        let rows = || rows_of(cells, task);
        let tried = rows().count();
        let held = rows().filter(|(_, row)| holds(row)).count();
        let error = |row: &Row| (row.values[PREDICTED] / row.values[FOUND] - 1.0).abs();
        let worst = rows().max_by(|a, b| error(a.1).total_cmp(&error(b.1)));
        let (Some((cell, row)), true) = (worst, tried > 0) else {
            continue;
        };
        let share = count(held as f64 / tried as f64);
        let open = || rows().filter(|(_, row)| row.values[LOW] < row.values[HIGH]);
        let open_held = open().filter(|(_, row)| holds(row)).count();
        findings.push(Finding {
            question: format!("{what}: intervals that hold the ratio"),
            core: true,
            found: share,
            verdict: COVERAGE.judge(share),
            note: format!(
                "{held} of {tried}; of those that are no census {open_held} of {}",
                open().count()
            ),
        });
        let far = || rows().filter(|(_, row)| error(row) > ERROR.high);
        let untold = far().filter(|(_, row)| !holds(row)).count();
        let far = format!(
            "{} of {tried} above 2 %, {untold} of these outside their interval",
            far().count()
        );
        let worst = count(error(row));
        findings.push(Finding {
            question: format!("{what}: largest error of a ratio"),
            core: task == "ratio usual",
            found: worst,
            verdict: ERROR.judge(worst),
            note: format!("{} bytes in {}; {far}", row.contender, cell.cell),
        });
    }
    let done = |cell: &&CellRecord| cell.rows.iter().any(|row| row.task == "seconds");
    let done: Vec<&CellRecord> = cells.iter().filter(done).collect();
    findings.push(judge_verdicts(&done, count));
    findings.extend(judge_seconds(&done, count));
    findings.extend(judge_links(cells));
    findings
}

/// Judges break-evens of links: whether the printed band holds the mean of the measured ones, and how far it is off.
fn judge_links(cells: &[CellRecord]) -> Vec<Finding> {
    let of_link = |cell: &&CellRecord| cell.rows.iter().any(|row| row.task == LINK);
    let of_link = cells.iter().filter(of_link);
    let found = of_link.map(|cell| {
        let row = &cell.rows[0];
        let [mean, low, high] = [PREDICTED, LOW, HIGH].map(|column| row.values[column]);
        let values = cell.column(LINK, &row.contender, FOUND);
        let ratios: Vec<f64> = values.iter().map(|found| found / mean).collect();
        let found = Interval::of_ratios(&ratios);
        let band = Target {
            low: low / mean,
            high: high / mean,
        };
        Finding {
            question: format!("{} break-even, found over predicted", cell.cell),
            core: false,
            found,
            verdict: band.judge(found),
            note: format!(
                "{} of {mean:.0} ({low:.0} to {high:.0}) MB/s",
                row.contender
            ),
        }
    });
    found.collect()
}

/// Whether the interval holds the measured value, but for the last digit of a division.
fn holds(row: &Row) -> bool {
    let found = row.values[FOUND];
    row.values[LOW] <= found * (1.0 + 1e-9) && found <= row.values[HIGH] * (1.0 + 1e-9)
}

fn rows_of<'a>(
    cells: &'a [CellRecord],
    task: &'a str,
) -> impl Iterator<Item = (&'a CellRecord, &'a Row)> {
    cells.iter().flat_map(move |cell| {
        let rows = cell.rows.iter().filter(move |row| row.task == task);
        rows.map(move |row| (cell, row))
    })
}

/// The seconds of one prediction: measured over predicted, and whether the printed interval holds the measured mean.
struct Timed {
    question: String,
    found: Interval,
    held: bool,
    /// The measured mean less the predicted seconds.
    excess: f64,
}

impl Timed {
    /// Returns nothing where a record does not have this part.
    fn new(cell: &CellRecord, part: &str, contender: &str) -> Option<Timed> {
        let column = |column: usize| cell.column(part, contender, column);
        let seconds = column(FOUND);
        let predicted = column(PREDICTED);
        let pairs = seconds.iter().zip(&predicted);
        let ratios: Vec<f64> = pairs.map(|(found, predicted)| found / predicted).collect();
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        Some(Timed {
            question: format!("{} {part} {contender}", cell.cell.replace(": seconds", ":")),
            held: (*column(LOW).first()?..=*column(HIGH).first()?).contains(&mean),
            excess: mean - predicted.first()?,
            found: Interval::of_ratios(&ratios),
        })
    }

    fn is_near(&self) -> bool {
        (SECONDS.low..=SECONDS.high).contains(&self.found.middle)
    }

    /// Whether its whole interval is off.
    fn is_far_beyond_doubt(&self) -> bool {
        self.found.high < SECONDS.low || SECONDS.high < self.found.low
    }
}

/// A core finding that there should be none of something. Some are beyond doubt and the others may be noise.
fn none_of(question: &str, all: Interval, beyond_doubt: usize, note: String) -> Finding {
    let verdict = match Target::exactly(0.0).judge(all) {
        Verdict::Differs if beyond_doubt == 0 => Verdict::CannotTell,
        verdict => verdict,
    };
    Finding {
        question: question.to_string(),
        core: true,
        found: all,
        verdict,
        note,
    }
}

fn judge_seconds(cells: &[&CellRecord], count: impl Fn(f64) -> Interval) -> Vec<Finding> {
    let all = |part: &'static str, contender: &'static str| {
        let timed = move |cell: &&CellRecord| Timed::new(cell, part, contender);
        cells.iter().filter_map(timed)
    };
    let seconds: Vec<Timed> = all("seconds", "raw")
        .chain(all("seconds", "compressed"))
        .collect();
    let count_of = |is: &dyn Fn(&Timed) -> bool| seconds.iter().filter(|timed| is(timed)).count();
    let far = |timed: &Timed| !timed.is_near();
    let untold = |timed: &Timed| far(timed) && !timed.held;
    let beyond_doubt = |is: &dyn Fn(&Timed) -> bool| {
        count_of(&|timed: &Timed| is(timed) && timed.is_far_beyond_doubt())
    };
    let mut findings = vec![
        none_of(
            "predicted seconds more than 15 % off",
            count(count_of(&far) as f64),
            beyond_doubt(&far),
            format!(
                "of {}, {} of them beyond doubt; {}",
                seconds.len(),
                beyond_doubt(&far),
                blame(cells)
            ),
        ),
        none_of(
            "of these outside the printed interval",
            count(count_of(&untold) as f64),
            beyond_doubt(&untold),
            format!(
                "{} of them beyond doubt; of all {} the interval holds the mean of {}",
                beyond_doubt(&untold),
                seconds.len(),
                count_of(&|timed| timed.held)
            ),
        ),
    ];
    let parts = [
        ("codec", "compressed"),
        ("write", "raw"),
        ("read", "raw"),
        ("medium", "raw"),
        ("medium", "compressed"),
    ];
    let over_all = parts.into_iter().filter_map(|(part, contender)| {
        let ratios: Vec<f64> = all(part, contender)
            .map(|timed| timed.found.middle)
            .collect();
        let question = format!("{part} {contender}: found over predicted, over all cells");
        variation(question, &ratios)
    });
    findings.extend(over_all);
    findings.extend(unsteadiness(cells));
    findings.extend(seconds.into_iter().map(|timed| Finding {
        question: timed.question,
        core: false,
        found: timed.found,
        verdict: SECONDS.judge(timed.found),
        note: match timed.held {
            true => "found over predicted; inside the printed interval".to_string(),
            false => "found over predicted; outside the printed interval".to_string(),
        },
    }));
    findings
}

/// Says of the predictions that are off which part most of the seconds are missing in.
fn blame(cells: &[&CellRecord]) -> String {
    let (mut medium, mut codec) = (0, 0);
    for (cell, contender) in cells
        .iter()
        .flat_map(|cell| [(cell, "raw"), (cell, "compressed")])
    {
        let part = |part: &str| Timed::new(cell, part, contender);
        if part("seconds").is_none_or(|timed| timed.is_near()) {
            continue;
        }
        let excess = |name: &str| part(name).map_or(0.0, |timed| timed.excess.abs());
        let count = match excess("medium") >= excess("codec") {
            true => &mut medium,
            false => &mut codec,
        };
        *count += 1;
    }
    format!("{medium} by the medium, {codec} by the codec")
}

/// By how much the medium differs from itself: a raw run beside the one before it.
fn unsteadiness(cells: &[&CellRecord]) -> Option<Finding> {
    let mut factors = Vec::new();
    for cell in cells {
        let seconds = cell.column("medium", "raw", FOUND);
        let pairs = seconds.windows(2).map(|pair| pair[1] / pair[0]);
        factors.extend(pairs.map(|factor| factor.max(1.0 / factor)));
    }
    let question = "medium raw: the longer of two runs in a row over the shorter";
    variation(question.to_string(), &factors)
}

fn variation(question: String, ratios: &[f64]) -> Option<Finding> {
    let found = (!ratios.is_empty()).then(|| Interval::of_ratios(ratios))?;
    Some(Finding {
        question,
        core: false,
        found,
        verdict: SECONDS.judge(found),
        note: String::new(),
    })
}

fn judge_verdicts(cells: &[&CellRecord], count: impl Fn(f64) -> Interval) -> Finding {
    let (mut decided, mut refuted, mut open) = (0, Vec::new(), Vec::new());
    for cell in cells {
        let side = cell.column("seconds", "raw", DECIDED)[0];
        if side == 0.0 {
            continue;
        }
        decided += 1;
        let column = |contender: &str| cell.column("seconds", contender, FOUND);
        let (compressed, raw) = (column("compressed"), column("raw"));
        let pairs = compressed.iter().zip(&raw);
        let cost_ratios: Vec<f64> = pairs.map(|(compressed, raw)| compressed / raw).collect();
        let found = Interval::of_ratios(&cost_ratios);
        let confirms = |cost_ratio: f64| (cost_ratio < 1.0) == (side > 0.0);
        if !confirms(found.middle) {
            let is_noise = confirms(found.low) || confirms(found.high);
            let unconfirmed = if is_noise { &mut open } else { &mut refuted };
            unconfirmed.push(cell.cell.replace(": seconds", ""));
        }
    }
    let named = |names: &[String]| match names {
        [] => "none".to_string(),
        names => names.join(", "),
    };
    none_of(
        "verdicts that doing it does not confirm",
        count((refuted.len() + open.len()) as f64),
        refuted.len(),
        format!(
            "of {decided} decided, {} asked; refuted: {}; dearer within the noise: {}",
            cells.len(),
            named(&refuted),
            named(&open)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(task: &str, contender: &str, run: usize, values: [f64; 7]) -> Row {
        Row {
            task: task.to_string(),
            run,
            runs: if task.starts_with("ratio") { 1 } else { 10 },
            contender: contender.to_string(),
            values: values.to_vec(),
        }
    }

    fn cell(rows: Vec<Row>) -> CellRecord {
        CellRecord {
            date: "2026-01-01".to_string(),
            commit: "abc".to_string(),
            machine: "00000001".to_string(),
            cell: "file".to_string(),
            parameters: "quick=false seed=1".to_string(),
            rows,
        }
    }

    /// Verdicts on the core questions, of a file with one ratio and ten runs, each compressed one
    /// `spread` times as long or as short as `compressed_seconds` by turns.
    fn check(
        found_ratio: f64,
        band: f64,
        compressed_seconds: f64,
        spread: f64,
        expected: [Verdict; 5],
    ) {
        let ratio = [1.0, 2.0, 1.99, 2.01, found_ratio, 4.0, 0.0];
        let mut rows = vec![row("ratio usual", "a 1", 1, ratio)];
        for run in 1..=10 {
            let spread = [spread, 1.0 / spread][run % 2];
            for (contender, seconds) in [("raw", 1.0), ("compressed", compressed_seconds * spread)]
            {
                let predicted = if contender == "raw" { 1.0 } else { 0.5 };
                let (low, high) = (predicted / band, predicted * band);
                for part in PARTS {
                    let values = [1.0, predicted, low, high, seconds, 4.0, 1.0];
                    rows.push(row(part, contender, run, values));
                }
            }
        }
        let findings = judge(&[cell(rows)]);
        let verdicts = [0, 1, 2, 3, 4].map(|index| findings[index].verdict);
        assert_eq!(verdicts, expected, "{findings:?}");
    }

    #[test]
    fn wrong_intervals_errors_seconds_and_verdicts_are_found() {
        use Verdict::{Differs, Holds};
        check(2.005, 1.1, 0.5, 1.01, [Holds; 5]);
        check(2.02, 1.1, 0.5, 1.01, [Differs, Holds, Holds, Holds, Holds]);
        let off = [Holds, Holds, Holds, Differs, Differs];
        check(2.005, 1.1, 0.7, 1.01, off);
        let told = [Holds, Holds, Holds, Differs, Holds];
        check(2.005, 2.0, 0.7, 1.01, told);
        check(2.2, 1.1, 1.5, 1.01, [Differs; 5]);
    }

    #[test]
    fn what_may_be_noise_is_told_from_what_is_not() {
        use Verdict::{CannotTell, Differs, Holds};
        // Twenty percent off and dearer than raw, by runs that differ by half.
        let off = [Holds, Holds, Holds, CannotTell, CannotTell];
        check(2.005, 1.1, 0.6, 1.5, off);
        let dearer = [Holds, Holds, CannotTell, Differs, Differs];
        check(2.005, 1.1, 1.05, 1.5, dearer);
    }

    #[test]
    fn a_record_without_the_parts_of_the_medium_is_read() {
        let values = [1.0, 1.0, 0.9, 1.1, 1.0, 4.0, 0.0];
        let tasks = ["codec", "medium", "seconds"];
        let rows = tasks.into_iter().flat_map(|task| {
            ["raw", "compressed"].map(|contender| row(task, contender, 1, values))
        });
        let findings = judge(&[cell(rows.collect())]);
        let asked = |text: &str| findings.iter().any(|of| of.question.starts_with(text));
        assert!(asked("medium raw") && !asked("write raw"), "{findings:?}");
    }
}
