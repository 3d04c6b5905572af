//! Reads the results of fio, so that a device measured elsewhere can stand in for a probe.
//!
//! The input is the output of `fio --output-format=json`. Each job of one pattern, one direction and one block size
//! becomes a point: `rw=read`, `randread`, `randread:9` (Harper's mix), and the same for writing. Seconds per operation
//! are the reciprocal of its operations per second.
//!
//! A job of another kind is left out and named, with the reason: reads mixed with writes, several block sizes, jobs
//! that ran at once, jobs that failed. A job that went through the page cache is taken and named. Foreign or broken
//! JSON is an error, never a panic, and the input is bounded. This file does no I/O.

#![deny(unsafe_code)]

use std::collections::BTreeMap;

use serde::Deserialize;

use super::presets::similar;
use super::{Curve, Direction, Figure, Medium, Pattern, Point, Service};
use crate::error::{Error, Result};
use crate::units::{Estimate, Source};

/// The most bytes of JSON that are read: fio writes about 6 KB for a job.
pub const FIO_JSON_BYTES_MAX: usize = 16 << 20;

/// The most jobs that are read, so that no curve grows beyond what a medium may hold.
const JOB_COUNT_MAX: usize = 128;

/// Engines that have one operation in flight whatever `iodepth` says (fio(1), `iodepth`).
const SYNCHRONOUS_ENGINES: [&str; 6] = ["sync", "psync", "vsync", "pvsync", "pvsync2", "mmap"];

/// One direction of one job, as fio measured it.
#[derive(Clone, Debug, PartialEq)]
pub struct FioJob {
    /// Its name in the job file.
    pub name: String,
    /// The direction of the bytes.
    pub direction: Direction,
    /// The order of operations.
    pub pattern: Pattern,
    /// Bytes of one operation.
    pub bytes: u64,
    /// Operations in flight: 1 for a synchronous engine, times the number of merged jobs.
    pub depth: u32,
    /// Operations completed in a second.
    pub operations_per_second: f64,
    /// Completion latency that half of the operations did not exceed, in seconds.
    pub latency_p50_seconds: Option<f64>,
    /// Completion latency that 99 % of the operations did not exceed, in seconds.
    pub latency_p99_seconds: Option<f64>,
}

/// The contents of fio's results.
#[derive(Clone, Debug)]
pub struct FioImport {
    /// The place that was measured, with the power of a device of its kind by default.
    pub medium: Medium,
    /// The jobs it was made of.
    pub jobs: Vec<FioJob>,
    /// The jobs left out or to be doubted, one sentence each.
    pub warnings: Vec<String>,
}

/// Makes a medium of fio's JSON; `name` is the name of the medium.
///
/// Lines before the first that begins with `{` are skipped: fio prints notes there.
///
/// # Errors
/// `Limit` above [`FIO_JSON_BYTES_MAX`]. `Parse` if it is not JSON or not fio's, or if no job of it can be used. The
/// error gives the reason for each job left out.
pub fn from_json(name: &str, json: &[u8]) -> Result<FioImport> {
    if json.len() > FIO_JSON_BYTES_MAX {
        return Err(Error::Limit {
            what: "fio's JSON",
            limit_bytes: FIO_JSON_BYTES_MAX as u64,
            needed_bytes: json.len() as u64,
        });
    }
    let results: Results = serde_json::from_slice(after_notes(json)).map_err(|error| {
        let reason = format!("{error}; expected the output of fio --output-format=json");
        Error::parse("fio's JSON", name, reason)
    })?;
    if results.jobs.len() > JOB_COUNT_MAX {
        let count = results.jobs.len();
        let reason = format!("{count} jobs, expected at most {JOB_COUNT_MAX}");
        return Err(Error::parse("fio's JSON", name, reason));
    }
    let (jobs, mut warnings) = results.usable_jobs();
    if jobs.is_empty() {
        let reasons = match warnings.is_empty() {
            true => "no job in it".to_string(),
            false => warnings.join("; "),
        };
        let reason = format!("no job can be used: {reasons}");
        return Err(Error::parse("fio's JSON", name, reason));
    }
    let medium = medium(name, &results.version, &jobs, &mut warnings);
    Ok(FioImport {
        medium,
        jobs: jobs.into_iter().map(|(job, _)| job).collect(),
        warnings,
    })
}

fn after_notes(json: &[u8]) -> &[u8] {
    let mut rest = json.trim_ascii_start();
    while !rest.is_empty() && !rest.starts_with(b"{") {
        match rest.iter().position(|&byte| byte == b'\n') {
            Some(end) => rest = rest[end + 1..].trim_ascii_start(),
            // Nothing of it begins like an object: let the parser say so of the whole.
            None => return json,
        }
    }
    rest
}

/// The parts of fio's results that count; serde skips the rest without keeping it.
#[derive(Deserialize)]
struct Results {
    #[serde(rename = "fio version")]
    version: String,
    #[serde(default, rename = "global options")]
    global_options: BTreeMap<String, String>,
    jobs: Vec<Job>,
}

#[derive(Deserialize)]
struct Job {
    jobname: String,
    #[serde(default)]
    groupid: u64,
    #[serde(default)]
    error: i64,
    #[serde(default, rename = "job options")]
    options: BTreeMap<String, String>,
    read: Side,
    write: Side,
}

/// fio's figures for one direction of a job.
#[derive(Deserialize)]
struct Side {
    io_bytes: u64,
    total_ios: u64,
    iops: f64,
    #[serde(default)]
    iops_mean: f64,
    #[serde(default)]
    iops_stddev: f64,
    #[serde(default)]
    iops_samples: u64,
    #[serde(default)]
    clat_ns: Latency,
}

#[derive(Default, Deserialize)]
struct Latency {
    #[serde(default)]
    percentile: BTreeMap<String, f64>,
}

/// Operations per second with their interval.
type Rated = (FioJob, Estimate);

impl Results {
    fn usable_jobs(&self) -> (Vec<Rated>, Vec<String>) {
        let mut jobs: Vec<Rated> = Vec::new();
        let mut warnings = Vec::new();
        for job in &self.jobs {
            let name = shown(&job.jobname);
            match self.rated(job) {
                Ok((of, rate)) => {
                    let key = |job: &FioJob| (job.direction, job.pattern, job.bytes, job.depth);
                    if jobs.iter().any(|(other, _)| key(other) == key(&of)) {
                        warnings.push(format!("job {name} left out: it repeats another"));
                        continue;
                    }
                    if self.option(job, "direct").unwrap_or("0") == "0" {
                        warnings.push(format!("job {name} went through the page cache"));
                    }
                    jobs.push((of, rate));
                }
                Err(reason) => warnings.push(format!("job {name} left out: {reason}")),
            }
        }
        (jobs, warnings)
    }

    /// Returns an option of a job, its own before the one for all.
    fn option<'a>(&'a self, job: &'a Job, name: &str) -> Option<&'a str> {
        let of = |options: &'a BTreeMap<String, String>| options.get(name).map(String::as_str);
        of(&job.options).or_else(|| of(&self.global_options))
    }

    /// Reads one job, or says why it cannot be used.
    fn rated(&self, job: &Job) -> std::result::Result<Rated, String> {
        if job.error != 0 {
            return Err(format!("it failed with error {}", job.error));
        }
        let at_once = self
            .jobs
            .iter()
            .filter(|other| other.groupid == job.groupid);
        if at_once.count() > 1 {
            return Err("it ran at once with others; add stonewall".to_string());
        }
        let rw = self.option(job, "rw").or(self.option(job, "readwrite"));
        let rw = rw.unwrap_or("read");
        let Some((direction, pattern)) = pattern_of(rw) else {
            return Err(format!(
                "rw={} is not one pattern of one direction",
                shown(rw)
            ));
        };
        if let Some(name) = ["bssplit", "bsrange"]
            .iter()
            .find(|of| self.option(job, of).is_some())
        {
            return Err(format!("{name} gives it several block sizes"));
        }
        let side = match direction {
            Direction::Read => &job.read,
            Direction::Write => &job.write,
        };
        let bytes = side.bytes()?;
        let of = FioJob {
            name: job.jobname.clone(),
            direction,
            pattern,
            bytes,
            depth: self.depth(job)?,
            operations_per_second: side.iops,
            latency_p50_seconds: side.percentile("50.000000"),
            latency_p99_seconds: side.percentile("99.000000"),
        };
        Ok((of, side.rate()))
    }

    fn depth(&self, job: &Job) -> std::result::Result<u32, String> {
        let number = |name: &str| match self.option(job, name) {
            None => Ok(1),
            Some(text) => match text.parse::<u32>() {
                Ok(number) if (1..=65_536).contains(&number) => Ok(number),
                _ => Err(format!("{name}={} is no number of 1 to 65536", shown(text))),
            },
        };
        let engine = self.option(job, "ioengine").unwrap_or("psync");
        let own = match SYNCHRONOUS_ENGINES.contains(&engine) {
            true => 1,
            false => number("iodepth")?,
        };
        // Jobs of one name come as one entry only when they are reported as a group.
        own.checked_mul(number("numjobs")?)
            .ok_or_else(|| "iodepth times numjobs is too large".to_string())
    }
}

impl Side {
    fn bytes(&self) -> std::result::Result<u64, String> {
        if self.total_ios == 0 {
            return Err("it did nothing".to_string());
        }
        // The bounds keep every reciprocal finite; no device lies outside them.
        if !(1e-6..=1e12).contains(&self.iops) {
            return Err(format!("{} operations per second", self.iops));
        }
        let bytes = self.io_bytes / self.total_ios;
        if !self.io_bytes.is_multiple_of(self.total_ios) || !(1..=1 << 40).contains(&bytes) {
            let (bytes, count) = (self.io_bytes, self.total_ios);
            return Err(format!(
                "{bytes} bytes in {count} operations is not one block size"
            ));
        }
        Ok(bytes)
    }

    /// Returns the rate with the band of a declared number, or with the 95 % interval of fio's own
    /// samples where that is wider.
    fn rate(&self) -> Estimate {
        let count = self.iops_samples as f64;
        let spread = 1.96 * self.iops_stddev / (self.iops_mean * count.sqrt());
        let sampled = if count > 1.0 && spread.is_finite() {
            1.0 + spread.abs()
        } else {
            1.0
        };
        let factor = sampled.clamp(Source::Declared.band(), Source::Default.band());
        Estimate::within_factor(self.iops, factor)
    }

    fn percentile(&self, name: &str) -> Option<f64> {
        let nanoseconds = self.clat_ns.percentile.get(name)?;
        Some(nanoseconds / 1e9)
    }
}

/// Reads `rw`: `:9` is a new position every ninth operation, Harper's nine to one.
fn pattern_of(rw: &str) -> Option<(Direction, Pattern)> {
    Some(match rw {
        "read" => (Direction::Read, Pattern::Sequential),
        "write" => (Direction::Write, Pattern::Sequential),
        "randread" | "randread:1" => (Direction::Read, Pattern::Random),
        "randwrite" | "randwrite:1" => (Direction::Write, Pattern::Random),
        "randread:9" | "randread:10" => (Direction::Read, Pattern::Mix9to1),
        "randwrite:9" | "randwrite:10" => (Direction::Write, Pattern::Mix9to1),
        _ => return None,
    })
}

/// Makes a foreign text harmless to a terminal and short.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    format!("{short:?}")
}

fn medium(name: &str, version: &str, jobs: &[Rated], warnings: &mut Vec<String>) -> Medium {
    let mut read = curves(jobs, Direction::Read);
    let mut write = curves(jobs, Direction::Write);
    if read.is_empty() {
        warnings.push("no job measured reads; they are taken to cost what writes do".to_string());
        read = write.iter().map(doubted).collect();
    }
    if write.is_empty() {
        warnings.push("no job measured writes; they are taken to cost what reads do".to_string());
        write = read.iter().map(doubted).collect();
    }
    let reads = || {
        jobs.iter()
            .map(|(job, _)| job)
            .filter(|job| job.direction == Direction::Read)
    };
    let slowest_random_read_s = reads()
        .filter(|job| job.pattern == Pattern::Random && job.depth == 1)
        .map(|job| 1.0 / job.operations_per_second)
        .fold(0.0, f64::max);
    let fastest_read = reads()
        .map(|job| job.operations_per_second * job.bytes as f64)
        .fold(0.0, f64::max);
    let like = similar(slowest_random_read_s, fastest_read, None);
    Medium {
        name: name.to_string(),
        description: format!("{} jobs of {}", jobs.len(), shown(version)),
        source: Source::Declared,
        read: Service::new(read, like.read.watts_above_idle),
        write: Service::new(write, like.write.watts_above_idle),
        price_eur_per_gib_month: None,
        ..like
    }
}

fn curves(jobs: &[Rated], direction: Direction) -> Vec<Curve> {
    let mut groups: BTreeMap<(u32, u8), (Pattern, Vec<Point>)> = BTreeMap::new();
    for (job, rate) in jobs.iter().filter(|(job, _)| job.direction == direction) {
        let group = groups.entry((job.depth, job.pattern as u8));
        let (_, points) = group.or_insert_with(|| (job.pattern, Vec::new()));
        points.push(Point {
            bytes: job.bytes,
            seconds: Figure {
                estimate: rate.map(|rate| 1.0 / rate),
                source: Source::Declared,
            },
        });
    }
    groups
        .into_iter()
        .map(|((depth, _), (pattern, points))| Curve::new(Some(pattern), depth, points))
        .collect()
}

/// Takes a curve for the direction that nobody measured, with the widest band.
fn doubted(curve: &Curve) -> Curve {
    let mut curve = curve.clone();
    for point in &mut curve.points {
        point.seconds = Figure::assumed(point.seconds.estimate.mean);
    }
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::Operation;
    use crate::testing;

    /// Written by fio 3.33 on a virtual disk; histograms and most percentiles cut out.
    const REAL: &str = include_str!("testdata/fio-3.33.json");

    #[test]
    fn real_results_are_read() {
        let import = from_json("a disk", REAL.as_bytes()).expect("fio wrote it");
        let medium = &import.medium;
        medium.check().expect("a sound medium");
        assert_eq!(
            (medium.name.as_str(), &medium.source),
            ("a disk", &Source::Declared)
        );
        assert!(
            medium.description.contains("fio-3.33"),
            "{}",
            medium.description
        );
        let check = |direction, pattern, bytes, depth, iops: f64| {
            let operation = Operation {
                bytes,
                pattern,
                direction,
                depth,
            };
            let seconds = medium.seconds_for(operation).mean;
            assert!(
                (seconds * iops - 1.0).abs() < 1e-9,
                "{operation:?}: {seconds}"
            );
        };
        use Direction::{Read, Write};
        check(Read, Pattern::Sequential, 4096, 1, 18522.477522);
        check(Read, Pattern::Random, 4096, 1, 17018.981019);
        check(Read, Pattern::Random, 131_072, 4, 7796.203796);
        check(Read, Pattern::Mix9to1, 8192, 4, 34142.857143);
        check(Write, Pattern::Sequential, 131_072, 4, 15989.010989);
        // psync has one in flight, although the job asks for four.
        check(Write, Pattern::Random, 4096, 1, 21845.154845);
        assert_eq!(import.jobs.len(), 6);
        let first = &import.jobs[0];
        assert_eq!(first.latency_p50_seconds, Some(31_616e-9));
        assert_eq!(first.latency_p99_seconds, Some(69_120e-9));
        let [warning] = &import.warnings[..] else {
            panic!("{:?}", import.warnings);
        };
        assert!(
            warning.contains("randrw-16k") && warning.contains("one direction"),
            "{warning}"
        );
    }

    #[test]
    fn notes_before_the_results_are_skipped() {
        let noted = format!("note: both iodepth >= 1 and synchronous I/O engine\n{REAL}");
        assert!(from_json("noted", noted.as_bytes()).is_ok());
    }

    /// A result of one job, with these options and this side of its `rw`.
    fn one(options: &str, read: &str) -> String {
        let idle = r#"{"io_bytes": 0, "total_ios": 0, "iops": 0}"#;
        let job = format!(
            r#"{{"jobname": "j", "job options": {{{options}}}, "read": {read}, "write": {idle}}}"#
        );
        format!(r#"{{"fio version": "fio-3.33", "jobs": [{job}]}}"#)
    }

    const READS: &str = r#"{"io_bytes": 8192, "total_ios": 2, "iops": 100, "iops_mean": 100,
        "iops_stddev": 50, "iops_samples": 4}"#;

    #[test]
    fn depth_spread_and_the_missing_direction_follow_the_job() {
        let options = r#""rw": "randread", "ioengine": "io_uring", "iodepth": "8", "direct": "1",
            "numjobs": "2", "group_reporting": "1""#;
        let import = from_json("j", one(options, READS).as_bytes()).expect("one good job");
        let job = &import.jobs[0];
        assert_eq!((job.depth, job.bytes), (16, 4096));
        let spread = 1.0 + 1.96 * 50.0 / (100.0 * 2.0);
        let point = &import.medium.read.curves[0].points[0].seconds;
        assert!(
            (point.estimate.high - 0.01 * spread).abs() < 1e-12,
            "{point:?}"
        );
        let write = &import.medium.write.curves[0].points[0].seconds;
        assert_eq!(write.source, Source::Default);
        assert_eq!(
            import.warnings,
            ["no job measured writes; they are taken to cost what reads do"]
        );
    }

    #[test]
    fn what_went_through_the_page_cache_is_named() {
        let import = from_json("j", one(r#""rw": "read""#, READS).as_bytes()).expect("one job");
        assert!(
            import.warnings[0].contains("page cache"),
            "{:?}",
            import.warnings
        );
    }

    fn refused(json: &str, expected: &str) {
        let error = from_json("given.json", json.as_bytes()).expect_err(expected);
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.contains("given.json"),
            "{text}"
        );
    }

    #[test]
    fn what_fio_did_not_write_is_refused() {
        let check = refused;
        check("", "fio --output-format=json");
        check("hello", "fio --output-format=json");
        check("[1, 2]", "fio --output-format=json");
        check("{}", "missing field `fio version`");
        check(r#"{"fio version": "fio-3.33"}"#, "missing field `jobs`");
        check(r#"{"fio version": 3, "jobs": []}"#, "expected a string");
        check(r#"{"fio version": "fio-3.33", "jobs": []}"#, "no job in it");
        check(&REAL[..REAL.len() / 2], "EOF");
        check(&"[".repeat(100_000), "fio --output-format=json");
        let many = format!(
            r#"{{"fio version": "x", "jobs": [{}]}}"#,
            vec![
                r#"{"jobname": "j", "read": {"io_bytes": 1, "total_ios": 1, "iops": 1},
                "write": {"io_bytes": 1, "total_ios": 1, "iops": 1}}"#;
                200
            ]
            .join(",")
        );
        check(&many, "200 jobs, expected at most 128");
    }

    #[test]
    fn jobs_that_cannot_be_used_are_refused_with_the_reason() {
        let bad =
            |options: &str, side: &str, expected: &str| refused(&one(options, side), expected);
        bad(r#""rw": "rw""#, READS, "not one pattern");
        bad(r#""rw": "randread:3""#, READS, "not one pattern");
        bad(r#""rw": "write""#, READS, "it did nothing");
        bad(r#""bssplit": "4k/50:8k/50""#, READS, "several block sizes");
        bad(
            r#""ioengine": "libaio", "iodepth": "0""#,
            READS,
            "iodepth=\"0\"",
        );
        bad(r#""numjobs": "4294967295""#, READS, "numjobs");
        bad(
            "",
            r#"{"io_bytes": 8193, "total_ios": 2, "iops": 9}"#,
            "not one block size",
        );
        bad(
            "",
            r#"{"io_bytes": 1, "total_ios": 2, "iops": 9}"#,
            "not one block size",
        );
        bad(
            "",
            r#"{"io_bytes": 2, "total_ios": 2, "iops": 0}"#,
            "0 operations per second",
        );
        bad(
            "",
            r#"{"io_bytes": 2, "total_ios": 2, "iops": -5}"#,
            "-5 operations",
        );
        bad(
            "",
            r#"{"io_bytes": 2, "total_ios": 2, "iops": 1e300}"#,
            "operations per second",
        );
        bad(
            "",
            r#"{"io_bytes": 2, "total_ios": 2, "iops": 1e999}"#,
            "out of range",
        );
        bad(
            "",
            r#"{"io_bytes": -2, "total_ios": 2, "iops": 9}"#,
            "invalid value",
        );
    }

    #[test]
    fn jobs_that_ran_at_once_failed_or_repeat_are_left_out() {
        let check = |from: &str, to: &str, expected: &str, left: usize| {
            let spoiled = REAL.replacen(from, to, 1);
            assert!(REAL.contains(from), "{from}");
            let import = from_json("spoiled", spoiled.as_bytes()).expect("others are good");
            let text = import.warnings.join("; ");
            assert!(text.contains(expected), "{text}");
            assert_eq!(import.jobs.len(), left, "{text}");
        };
        check(r#""groupid": 1"#, r#""groupid": 0"#, "add stonewall", 4);
        check(r#""error": 0"#, r#""error": 5"#, "failed with error 5", 5);
        check(
            r#""rw": "randread""#,
            r#""rw": "read""#,
            "repeats another",
            5,
        );
        let escape = r#""jobname": "\u001b[2Jrandrw""#;
        check(r#""jobname": "randrw-16k""#, escape, r"\u{1b}", 6);
    }

    #[test]
    fn input_is_bounded() {
        let large = vec![b' '; FIO_JSON_BYTES_MAX + 1];
        let error = from_json("large", &large)
            .expect_err("too large")
            .to_string();
        assert!(error.contains("16777216"), "{error}");
    }

    #[test]
    fn no_bytes_panic() {
        let seed = testing::seed(11);
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut tried, mut read) = (0, 0);
        for _ in 0..3000 {
            let mut bytes = REAL.as_bytes().to_vec();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                match random.u8(..4) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] = b"0123456789e-"[random.usize(..12)],
                    2 => bytes.truncate(at + 1),
                    _ => drop(bytes.drain(at..(at + 8).min(bytes.len()))),
                }
            }
            if let Ok(import) = from_json("mutated", &bytes) {
                import
                    .medium
                    .check()
                    .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                read += 1;
            }
            tried += 1;
        }
        println!("seed {seed}: tried {tried} inputs, {read} of them still readable");
        assert!(tried >= 3000 && read >= 100);
    }
}
