//! Small files: the size of an archive of them, compressed as one, beside the size of each compressed alone.
//!
//! Files that lie side by side are laid out as `tar` does and compressed together. The same files are compressed one by
//! one, each into whole units of the file system. Runs of about a cluster are drawn, as clusters are.
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
use crate::codec::Method;
use crate::error::Result;
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
/// A smaller share of the data is not worth a row of its own.
const SHARE_MIN: f64 = 0.01;

/// The measurements on runs of small files.
pub struct SmallFiles {
    method: Method,
    files: u64,
    bytes: u64,
    run_count: u64,
    /// For each run: bytes allocated to its files, each compressed alone, and bytes of its archive.
    runs: Vec<Count>,
    alone: Sums,
    together: Sums,
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
        let limit = options.time_limit / (2 * GLANCE_TIME);
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
            alone: Sums::default(),
            together: Sums::default(),
        };
        let mut bench = Bench::new(options.allocation_unit_bytes);
        for run in Order::new(found.run_count, options.seed).take(GLANCES) {
            found.measure_run(&files[runs[run as usize].clone()], population, &mut bench)?;
            if begun.elapsed() >= limit || stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(Some(found))
    }

    fn measure_run(
        &mut self,
        files: &[u32],
        population: &Population,
        bench: &mut Bench,
    ) -> Result<()> {
        let (mut contents, mut archive) = (Vec::with_capacity(files.len()), Vec::new());
        for &file in files {
            let item = population.item(file);
            let piece = Piece {
                item: file,
                offset: 0,
                bytes: item.bytes as u32,
            };
            let mut content = vec![0; item.bytes as usize];
            if population.read(&piece, &mut content) < content.len() {
                continue;
            }
            let path = population.path(item).expect("a small file has a path");
            archive.extend(header(&path, content.len()));
            archive.extend(&content);
            archive.resize(archive.len().next_multiple_of(RECORD_BYTES), 0);
            contents.push(content);
        }
        if contents.is_empty() {
            return Ok(());
        }
        let blocks: Vec<&[u8]> = contents.iter().map(Vec::as_slice).collect();
        let mut alone = bench.measure(self.method, &blocks)?;
        let whole = FilePart {
            blocks: 1,
            ends_file: true,
        };
        bench.count_files(&mut alone, &blocks, &vec![whole; blocks.len()]);
        let pieces: Vec<&[u8]> = archive.chunks(CLUSTER_BYTES as usize).collect();
        let together = bench.measure(self.method, &pieces)?;
        self.runs.push(Count {
            raw: alone.file_bytes as f64,
            value: together.stored_bytes as f64,
        });
        self.alone.add(&alone);
        self.together.add(&together);
        Ok(())
    }

    /// Returns the saving of an archive, as a share, and whether it is certain; `None` if no file could be read.
    fn saved(&self) -> Option<(Estimate, &'static str)> {
        let left = ratio_estimate(&self.runs, self.run_count)?;
        let saved = left.map(|left| 1.0 - left);
        let is_census = self.runs.len() as u64 == self.run_count;
        let is_enough =
            is_census || effective_count(self.runs.iter().map(|run| run.raw)) >= CLUSTERS_PROVED;
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
        let scale = self.bytes as f64 / self.alone.raw_bytes as f64;
        let archive_bytes = scale * self.together.stored_bytes as f64;
        let alone_bytes = self.alone.stored_bytes as f64 / self.alone.blocks as f64;
        let read_alone = setting.random_read_seconds(alone_bytes as u64)
            + self.alone.decode_seconds / self.alone.blocks as f64;
        // Up to the middle: an archive that is one stream is read from its beginning.
        let read_archived = 0.5
            * (archive_bytes / setting.read_bytes_per_second().mean
                + scale * self.together.decode_seconds);
        Some(SmallFilesReport {
            files: self.files,
            bytes: self.bytes,
            method: self.method.to_string(),
            answer: answer.to_string(),
            alone_bytes: scale * self.alone.file_bytes as f64,
            archive_bytes,
            saved_share,
            read_alone_us: 1e6 * read_alone,
            read_archived_us: 1e6 * read_archived,
            runs: self.runs.len() as u64,
        })
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
        let paths = [folder.to_path_buf()];
        let population = Population::walk(&paths, Duration::from_secs(30), 1).expect("a walk");
        let options = SampleOptions {
            time_limit: Duration::from_secs(100_000),
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
                (200, found.runs.len() as u64)
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
