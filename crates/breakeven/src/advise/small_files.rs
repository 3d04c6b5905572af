//! Small files: the size of an archive of them, compressed as one, beside the size of each compressed alone.
//!
//! Files that lie side by side are laid out as `tar` does and compressed together. The same files are compressed one by
//! one, each into whole units of the file system. Runs of about a cluster are drawn, as clusters are.
//!
//! An archive is one stream: a file in it repeats files that lie far before it. So the archive is compressed whole,
//! with far matches, if the time allows. Otherwise each drawn run is compressed behind the files before it, as many as
//! the window holds. No run shows farther repetitions: the archive saves at least as much.
//!
//! Source: Kothiyal 2009, chapter 7 (future work: archive, then compress).

use std::fs;
use std::io::Write;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::advise::Setting;
use crate::advise::estimate::{CLUSTERS_PROVED, Count, effective_count, ratio_estimate};
use crate::advise::glance::{GLANCE_TIME, GLANCES};
use crate::advise::measure::{Bench, FilePart, Sums};
use crate::advise::order::Order;
use crate::advise::population::{CLUSTER_BYTES, Piece, Population};
use crate::advise::report::SmallFilesReport;
use crate::advise::sample::SampleOptions;
use crate::advise::verdict::WORTH_WHILE;
use crate::codec::{Codec, Filter, Method};
use crate::error::Result;
use crate::frame::{LongEncoder, LongOptions, WINDOW_LOG_MAX};
use crate::units::Estimate;

/// Bytes of an archive's records (POSIX, `pax`, ustar interchange format): a header is one record, and contents are
/// filled up to whole ones.
const RECORD_BYTES: usize = 512;
/// The places of a header's parts, by the same page.
const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..107;
const LENGTH: Range<usize> = 124..135;
const TIME: Range<usize> = 136..147;
const CHECKSUM: Range<usize> = 148..156;
const MAGIC: Range<usize> = 257..265;
/// The bytes before a run that its compression sees: the window of zstd's levels 3 to 8 (zstd, lib/compress/clevels.h).
const WINDOW_BYTES: u64 = 2 << 20;
/// The smallest window of an archive with far matches, as a logarithm: that of the same levels.
const WINDOW_LOG_MIN: u32 = 21;
/// Compressed bytes that are taken at once. They are only counted.
const TARGET_BYTES: usize = 128 << 10;
/// All of the archive may take at most this part of the time, one in so many: a busy machine needs three times as long.
const WHOLE_TIME: u32 = 5;
/// A smaller share of the data is not worth a row of its own.
const SHARE_MIN: f64 = 0.01;

/// The measurements on runs of small files.
pub struct SmallFiles {
    method: Method,
    files: u64,
    bytes: u64,
    run_count: u64,
    /// For each run: bytes allocated to its files, each compressed alone, and bytes of its part of the archive.
    runs: Vec<Count>,
    /// For each run: its raw bytes, and bytes allocated to its files, each compressed alone.
    runs_alone: Vec<Count>,
    alone: Sums,
    /// Seconds to decode the runs' archives, in pieces.
    decode_seconds: f64,
    /// All of the archive, if there was time for it.
    whole: Option<WholeArchive>,
}

/// Bytes of the files of a run.
struct RunBytes {
    /// Allocated to them, each compressed alone.
    alone_bytes: u64,
    /// Of their archive, compressed in pieces that see nothing of each other.
    pieces_bytes: u64,
}

/// An archive of all files, compressed with far matches.
struct WholeArchive {
    /// Bytes of the files in it.
    file_bytes: u64,
    stored_bytes: u64,
}

impl WholeArchive {
    /// Returns the bytes that it would have with files of so many bytes: some could not be read.
    fn bytes(&self, file_bytes: u64) -> f64 {
        self.stored_bytes as f64 * file_bytes as f64 / self.file_bytes as f64
    }
}

impl SmallFiles {
    /// Measures for a part of the available time. `None` for too few small files, or no method.
    ///
    /// # Errors
    /// Errors of a codec; files that cannot be read are passed over.
    pub fn measure(
        population: &Population,
        options: &SampleOptions,
        stop: &AtomicBool,
    ) -> Result<Option<SmallFiles>> {
        let begun = Instant::now();
        let files = population.small_files();
        let bytes: u64 = files.iter().map(|&file| population.item(file).bytes).sum();
        let is_worth_asking = bytes as f64 >= SHARE_MIN * population.bytes() as f64;
        let Some(&method) = options
            .cheap
            .last()
            .filter(|_| files.len() > 1 && is_worth_asking)
        else {
            return Ok(None);
        };
        let runs = runs(&files, population);
        let mut found = SmallFiles {
            method,
            files: files.len() as u64,
            bytes,
            run_count: runs.len() as u64,
            runs: Vec::new(),
            runs_alone: Vec::new(),
            alone: Sums::default(),
            decode_seconds: 0.0,
            whole: None,
        };
        let laid_out = LaidOut {
            population,
            files: &files,
            level: match (method.filter, method.codec) {
                (Filter::None, Codec::Zstd { level }) => Some(level),
                _ => None,
            },
        };
        let mut bench = Bench::new(options.allocation_unit_bytes);
        let mut limit = options.time_limit / (2 * GLANCE_TIME);
        for run in Order::new(found.run_count, options.seed).take(GLANCES) {
            let (run, run_begun) = (&runs[run as usize], Instant::now());
            let is_first = found.runs_alone.is_empty();
            let measured = found.measure_alone(&laid_out, run, &mut bench)?;
            // The run was compressed twice, alone and in pieces: the archive is compressed once.
            let of_all = bytes as f64 / (2 * found.alone.raw_bytes.max(1)) as f64;
            let longest = options.time_limit / WHOLE_TIME;
            let foreseen = of_all * run_begun.elapsed().as_secs_f64();
            if is_first && measured.is_some() && foreseen < longest.as_secs_f64() {
                let whole_begun = Instant::now();
                let is_over = || whole_begun.elapsed() >= longest || stop.load(Ordering::Relaxed);
                found.whole = laid_out.whole(bytes, &is_over)?;
                limit += whole_begun.elapsed();
            }
            if let Some(measured) = measured.filter(|_| found.whole.is_none()) {
                let part = laid_out.part(run)?;
                found.runs.push(Count {
                    raw: measured.alone_bytes as f64,
                    value: part.unwrap_or(measured.pieces_bytes) as f64,
                });
            }
            if begun.elapsed() >= limit || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(Some(found))
    }

    /// Measures the files of a run, each alone, and their archive in pieces. `None` if none can be read.
    fn measure_alone(
        &mut self,
        laid_out: &LaidOut<'_>,
        run: &Range<usize>,
        bench: &mut Bench,
    ) -> Result<Option<RunBytes>> {
        let (mut contents, mut archive) = (Vec::with_capacity(run.len()), Vec::new());
        for at in run.clone() {
            contents.extend(laid_out.append(at, &mut archive));
        }
        if contents.is_empty() {
            return Ok(None);
        }
        let blocks: Vec<&[u8]> = contents.iter().map(|it| &archive[it.clone()]).collect();
        let mut alone = bench.measure(self.method, &blocks)?;
        let whole = FilePart {
            blocks: 1,
            ends_file: true,
        };
        bench.count_files(&mut alone, &blocks, &vec![whole; blocks.len()]);
        let pieces: Vec<&[u8]> = archive.chunks(CLUSTER_BYTES as usize).collect();
        let pieces = bench.measure(self.method, &pieces)?;
        self.decode_seconds += pieces.decode_seconds;
        self.alone.add(&alone);
        self.runs_alone.push(Count {
            raw: alone.raw_bytes as f64,
            value: alone.file_bytes as f64,
        });
        Ok(Some(RunBytes {
            alone_bytes: alone.file_bytes,
            pieces_bytes: pieces.stored_bytes,
        }))
    }

    /// Returns the bytes allocated to all files, each compressed alone.
    fn alone_bytes(&self) -> Option<Estimate> {
        let share = ratio_estimate(&self.runs_alone, self.run_count)?;
        Some(share.map(|share| share * self.bytes as f64))
    }

    /// Returns the bytes of the archive over those of the files alone.
    fn left(&self) -> Option<Estimate> {
        match &self.whole {
            Some(whole) => {
                let bytes = whole.bytes(self.bytes);
                Some(self.alone_bytes()?.map(|alone| bytes / alone.max(1.0)))
            }
            None => ratio_estimate(&self.runs, self.run_count),
        }
    }

    /// Returns the saving of an archive, as a share, and whether it is certain; `None` if no file could be read.
    fn saved(&self) -> Option<(Estimate, &'static str)> {
        let saved = self.left()?.map(|left| 1.0 - left);
        let is_census = self.runs_alone.len() as u64 == self.run_count;
        let is_enough = is_census
            || effective_count(self.runs_alone.iter().map(|run| run.raw)) >= CLUSTERS_PROVED;
        let worth_while = 1.0 - WORTH_WHILE;
        let answer = match is_enough {
            true if saved.low > worth_while => "saves",
            true if saved.high <= worth_while => "saves_nothing",
            _ => "undecided",
        };
        Some((saved, answer))
    }

    /// Draws up their part of the report; `None` if no file could be read.
    pub fn report(&self, setting: &Setting) -> Option<SmallFilesReport> {
        let (saved_share, answer) = self.saved()?;
        let alone_bytes = self.alone_bytes()?.mean;
        let archive_bytes = match &self.whole {
            Some(whole) => whole.bytes(self.bytes),
            None => self.left()?.mean * alone_bytes,
        };
        let scale = self.bytes as f64 / self.alone.raw_bytes as f64;
        let stored_bytes = self.alone.stored_bytes as f64 / self.alone.blocks as f64;
        let read_alone = setting.random_read_seconds(stored_bytes as u64)
            + self.alone.decode_seconds / self.alone.blocks as f64;
        // Up to the middle: an archive that is one stream is read from its beginning.
        let read_archived = 0.5
            * (archive_bytes / setting.read_bytes_per_second().mean + scale * self.decode_seconds);
        Some(SmallFilesReport {
            files: self.files,
            bytes: self.bytes,
            method: self.method.to_string(),
            matches_far: self.whole.is_some(),
            answer: answer.to_string(),
            alone_bytes,
            archive_bytes,
            saved_share,
            read_alone_us: 1e6 * read_alone,
            read_archived_us: 1e6 * read_archived,
            runs: self.runs_alone.len() as u64,
        })
    }
}

/// The small files in the order of an archive, with zstd's level for it.
struct LaidOut<'a> {
    population: &'a Population,
    files: &'a [u32],
    level: Option<i8>,
}

impl LaidOut<'_> {
    /// Appends a file to an archive, and returns the place of its content there; `None` if it cannot be read.
    fn append(&self, at: usize, archive: &mut Vec<u8>) -> Option<Range<usize>> {
        let item = self.population.item(self.files[at]);
        let piece = Piece {
            item: self.files[at],
            offset: 0,
            bytes: item.bytes as u32,
        };
        let begin = archive.len();
        let content = begin + RECORD_BYTES..begin + RECORD_BYTES + item.bytes as usize;
        archive.resize(content.end.next_multiple_of(RECORD_BYTES), 0);
        if self.population.read(&piece, &mut archive[content.clone()]) < content.len() {
            archive.truncate(begin);
            return None;
        }
        let path = self.population.path(item).expect("a small file has a path");
        archive[begin..content.start].copy_from_slice(&header(&path, content.len()));
        Some(content)
    }

    /// Returns the bytes of a run in its archive: behind the files before it, as many as the window holds. `None` for
    /// other methods than zstd.
    fn part(&self, run: &Range<usize>) -> Result<Option<u64>> {
        let Some(level) = self.level else {
            return Ok(None);
        };
        let (mut first, mut before) = (run.start, 0);
        while first > 0 && before < WINDOW_BYTES {
            first -= 1;
            before += self.population.item(self.files[first]).bytes;
        }
        let mut archive = Vec::new();
        for at in first..run.start {
            self.append(at, &mut archive);
        }
        let begin = archive.len();
        for at in run.clone() {
            self.append(at, &mut archive);
        }
        let mut stream = Counter::new(&LongOptions {
            level,
            workers: 0,
            ..LongOptions::default()
        })?;
        stream.take(&archive[..begin])?;
        let before = stream.drain()?;
        stream.take(&archive[begin..])?;
        Ok(Some(stream.drain()? - before))
    }

    /// Compresses all files, of so many bytes, with far matches. `None` if that is over before.
    fn whole(&self, bytes: u64, is_over: &dyn Fn() -> bool) -> Result<Option<WholeArchive>> {
        let Some(level) = self.level else {
            return Ok(None);
        };
        let window_log = bytes.next_power_of_two().ilog2();
        let mut stream = Counter::new(&LongOptions {
            level,
            workers: 0,
            window_log: Some(window_log.clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX)),
            matches_far: true,
            ..LongOptions::default()
        })?;
        let (mut archive, mut file_bytes) = (Vec::new(), 0);
        for at in 0..self.files.len() {
            archive.clear();
            let content = self.append(at, &mut archive);
            file_bytes += content.map_or(0, |content| content.len() as u64);
            stream.take(&archive)?;
            if is_over() {
                return Ok(None);
            }
        }
        let stored_bytes = stream.drain()?;
        Ok((file_bytes > 0).then_some(WholeArchive {
            file_bytes,
            stored_bytes,
        }))
    }
}

/// Counts the bytes of a compressed stream.
struct Counter {
    encoder: LongEncoder,
    target: Vec<u8>,
    stored_bytes: u64,
}

impl Counter {
    fn new(options: &LongOptions) -> Result<Counter> {
        Ok(Counter {
            encoder: LongEncoder::begin(options)?,
            target: vec![0; TARGET_BYTES],
            stored_bytes: 0,
        })
    }

    fn take(&mut self, mut source: &[u8]) -> Result<()> {
        while !source.is_empty() {
            let step = self.encoder.encode(source, &mut self.target)?;
            self.stored_bytes += step.written as u64;
            source = &source[step.read..];
        }
        Ok(())
    }

    /// Returns the bytes of everything taken so far.
    fn drain(&mut self) -> Result<u64> {
        loop {
            let step = self.encoder.drain(&mut self.target)?;
            self.stored_bytes += step.written as u64;
            if step.ended {
                return Ok(self.stored_bytes);
            }
        }
    }
}

/// Cuts files into runs of about a cluster.
fn runs(files: &[u32], population: &Population) -> Vec<Range<usize>> {
    let mut runs = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (at, &file) in files.iter().enumerate() {
        bytes += population.item(file).bytes;
        if bytes >= CLUSTER_BYTES || at + 1 == files.len() {
            runs.push(begin..at + 1);
            (begin, bytes) = (at + 1, 0);
        }
    }
    runs
}

/// Makes a header as `tar` does; a long name is cut to its end.
fn header(path: &Path, bytes: usize) -> [u8; RECORD_BYTES] {
    let mut header = [0; RECORD_BYTES];
    let name = path.as_os_str().as_bytes();
    let name = &name[name.len().saturating_sub(NAME.len())..];
    header[..name.len()].copy_from_slice(name);
    let (mode, time) = fs::symlink_metadata(path).map_or((0, 0), |found| {
        (found.mode() & 0o7777, found.mtime().max(0))
    });
    let mut put = |place: Range<usize>, number: u64| {
        let mut field = &mut header[place.clone()];
        let width = place.len();
        write!(field, "{number:0width$o}").is_ok()
    };
    put(MODE, mode.into());
    put(LENGTH, bytes as u64);
    put(TIME, time as u64);
    header[CHECKSUM].fill(b' ');
    header[MAGIC].copy_from_slice(b"ustar\x0000");
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    header[CHECKSUM.start..CHECKSUM.end - 1].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use super::*;

    fn measured(folder: &Path) -> Option<SmallFiles> {
        measured_in(folder, Duration::from_secs(100_000), 1)
    }

    fn measured_in(folder: &Path, time_limit: Duration, seed: u64) -> Option<SmallFiles> {
        let paths = [folder.to_path_buf()];
        let population = Population::walk(&paths, Duration::from_secs(30), 1).expect("a walk");
        let options = SampleOptions {
            time_limit,
            seed,
            ..SampleOptions::default()
        };
        SmallFiles::measure(&population, &options, &AtomicBool::new(false)).expect("measured")
    }

    #[test]
    fn files_that_are_alike_are_better_archived_and_others_are_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut random = fastrand::Rng::with_seed(7);
        let mut check = |fill: &mut dyn FnMut(&mut fastrand::Rng, usize) -> Vec<u8>,
                         expected: &str| {
            let below = folder.path().join(expected);
            fs::create_dir(&below).expect("a folder");
            for number in 0..200 {
                let bytes = fill(&mut random, number);
                fs::write(below.join(format!("file {number}")), bytes).expect("a file");
            }
            let found = measured(&below).expect("small files");
            assert_eq!(
                (found.files, found.run_count),
                (200, found.runs_alone.len() as u64)
            );
            let (saved, answer) = found.saved().expect("readable files");
            assert_eq!(answer, expected, "{saved:?}");
            assert!(saved.low == saved.high, "all was measured: {saved:?}");
            // Each file alone takes a whole unit of 4 KiB or more.
            assert!(found.alone.file_bytes >= 200 * 4096);
            saved.mean
        };
        let saved = check(
            &mut |random, number| {
                format!("name = file {number}, size = {}\n", random.u16(..))
                    .repeat(20)
                    .into_bytes()
            },
            "saves",
        );
        assert!(saved > 0.95, "{saved}");
        // Units full of noise, to which each header and record adds.
        let saved = check(
            &mut |random, _| (0..8192).map(|_| random.u8(..)).collect(),
            "saves_nothing",
        );
        assert!((-0.1..0.0).contains(&saved), "{saved}");
        assert!(
            measured(&folder.path().join("saves").join("file 1")).is_none(),
            "one file"
        );
    }

    /// Ten files of hexadecimal noise, again and again: no file repeats one of its own run, or of its piece.
    #[test]
    fn files_that_repeat_those_of_another_run_are_seen() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut random = fastrand::Rng::with_seed(7);
        let kinds: Vec<Vec<u8>> = (0..11)
            .map(|_| {
                (0..100_000)
                    .map(|_| b"0123456789abcdef"[random.usize(..16)])
                    .collect()
            })
            .collect();
        for number in 0..66 {
            let path = folder.path().join(format!("file {number:02}"));
            fs::write(path, &kinds[number % 11]).expect("a file");
        }
        let found = measured(folder.path()).expect("small files");
        let stored_bytes = found.whole.expect("all of it").stored_bytes;
        // Half a byte of each digit, once.
        assert!((550_000..600_000).contains(&stored_bytes), "{stored_bytes}");
        // Without time one run is drawn, which is not the first one here.
        let count = found.run_count;
        let seed = (1..).find(|&seed| Order::new(count, seed).next() != Some(0));
        let found = measured_in(folder.path(), Duration::ZERO, seed.expect("a seed"));
        let found = found.expect("small files");
        assert!(found.whole.is_none() && found.runs.len() == 1);
        let run = found.runs[0];
        assert!(run.value < 0.1 * run.raw, "{run:?}");
    }

    #[test]
    fn an_archive_is_one_that_tar_reads() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a file");
        let content = b"what is in it";
        fs::write(&path, content).expect("a file");
        let mut archive = header(&path, content.len()).to_vec();
        archive.extend(content);
        archive.resize(4 * RECORD_BYTES, 0);
        let packed = folder.path().join("archive");
        fs::write(&packed, archive).expect("an archive");
        let listed = Command::new("tar").arg("-tvf").arg(&packed).output();
        let Ok(listed) = listed else {
            return println!("no tar here: nothing tried");
        };
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        println!("{text}");
        assert!(
            listed.status.success() && text.contains(" 13 ") && text.contains("a file"),
            "{listed:?}"
        );
    }
}
