//! Advice: whether, where and by which method compressing pays, for this data on this machine.
//!
//! [`advise`] draws a sample of the data ([`population`], [`sample`]) and estimates the effect of every method on every
//! class of it ([`measure`], [`estimate`]). Then it asks for their worth at each place ([`verdict`]). The door passes
//! the facts about the machine, the medium and the user as a [`Setting`] and [`AdviseOptions`]; the answer is a
//! [`Report`].
#![deny(unsafe_code)]

pub mod compare;
pub mod database;
pub mod default_data;
pub mod estimate;
mod glance;
mod headline;
pub mod measure;
mod order;
pub mod population;
pub mod report;
pub mod sample;
mod sample_options;
mod setting;
mod small_files;
mod suggestion;
mod time_budget;
pub mod verdict;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::advise::headline::headline;
use crate::advise::measure::Cell;
use crate::advise::population::Population;
use crate::advise::report::{
    ClassReport, EnergyReport, Evidence, MediumReport, MethodReport, Might, Report, SCHEMA,
    SampleReport, VerdictReport, WorkReport,
};
use crate::advise::sample::{CACHE_BLOCK_BYTES, CellEstimate, Group, Sample, SampleOptions};
use crate::advise::small_files::SmallFiles;
use crate::advise::suggestion::suggestions;
use crate::advise::verdict::{Kind, MethodCosts, Metric, Outlook, WORTH_WHILE, Work};
use crate::codec::Method;
use crate::error::{Error, Result};
use crate::model::Access;
use crate::units::{Estimate, Source};

pub use headline::{archive_method, binary_size, class_words, densest, densest_of, percent_range};
pub use setting::Setting;

/// The factor by which a measured speed may be off besides its sampling error: another run on the same quiet machine
/// differs by about this much. On a busy machine the sample shows the factor.
const TIMING_BAND: f64 = 1.05;

/// The aim of the one-sentence answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preference {
    /// Least money over the days kept.
    Money,
    /// Least time over one write and its reads.
    Time,
    /// Least energy over one write and its reads.
    Energy,
    /// Least space.
    Space,
}

impl Preference {
    /// Returns the name in the report.
    pub fn name(self) -> &'static str {
        self.metric().map_or("space", Metric::name)
    }

    /// The metric of the preference; `None` for space.
    fn metric(self) -> Option<Metric> {
        match self {
            Preference::Money => Some(Metric::Money),
            Preference::Time => Some(Metric::Time),
            Preference::Energy => Some(Metric::Energy),
            Preference::Space => None,
        }
    }
}

/// The user's question.
#[derive(Clone, Debug)]
pub struct AdviseOptions {
    /// How the data is sampled.
    pub sample: SampleOptions,
    /// Wall time until the answer; the work after the sample is cut to the rest of it. Default no limit.
    pub time_limit: Option<Duration>,
    /// Reads for each write: the number in question, and its range. Default 3 in 2 to 4 (Kothiyal 2009, section 4.4).
    pub reads_per_write: Estimate,
    /// Days the data is kept. Default 90.
    pub days_kept: f64,
    /// The aim of the one-sentence answer. Default money.
    pub preference: Preference,
    /// Threads that compress and decompress. Default 1.
    pub threads: u32,
    /// Database page size in bytes, a power of two from 4 to 128 KiB. Default 16 KiB.
    pub page_bytes: usize,
    /// Memory of a buffer cache in bytes. Default a quarter of the data.
    pub memory_bytes: Option<u64>,
    /// Data behind a buffer cache in bytes. Default the bytes of the population.
    pub data_bytes: Option<u64>,
    /// How accesses to buffers spread. Default Zipf with exponent 0.9.
    pub access: Access,
    /// Recorded accesses, in place of made-up ones. Default none.
    pub trace: Option<Trace>,
}

/// Recorded accesses to buffers.
#[derive(Clone, Debug)]
pub struct Trace {
    name: String,
    keys: Arc<[u64]>,
    /// Different ones among them.
    buffers: u64,
}

impl Trace {
    /// Takes the accessed buffers, in order, under a name for the report.
    pub fn new(name: String, keys: Vec<u64>) -> Trace {
        let buffers = keys.iter().collect::<HashSet<_>>().len() as u64;
        let keys = keys.into();
        Trace {
            name,
            keys,
            buffers,
        }
    }
}

impl Default for AdviseOptions {
    fn default() -> AdviseOptions {
        AdviseOptions {
            sample: SampleOptions::default(),
            time_limit: None,
            reads_per_write: Estimate {
                mean: 3.0,
                low: 2.0,
                high: 4.0,
            },
            days_kept: 90.0,
            preference: Preference::Money,
            threads: 1,
            page_bytes: 16 << 10,
            memory_bytes: None,
            data_bytes: None,
            access: Access::Zipf(0.9),
            trace: None,
        }
    }
}

impl AdviseOptions {
    fn check(&self) -> Result<()> {
        let Estimate { mean, low, high } = self.reads_per_write;
        if !(0.0 <= low && low <= mean && mean <= high && high.is_finite()) {
            return Err(Error::invalid(
                "reads per write",
                format!("{low} to {high}"),
            ));
        }
        if !sample::is_page_size(self.page_bytes) {
            let reason = format!(
                "{} bytes, expected a power of two from 4 KiB to 128 KiB",
                self.page_bytes
            );
            return Err(Error::invalid("page size", reason));
        }
        if self
            .trace
            .as_ref()
            .is_some_and(|trace| trace.keys.is_empty())
        {
            return Err(Error::invalid("trace", "no access"));
        }
        if !sample::BLOCK_BYTES.contains(&self.sample.block_bytes) {
            let reason = format!("{} bytes, expected 4 KiB to 1 MiB", self.sample.block_bytes);
            return Err(Error::invalid("block size", reason));
        }
        Ok(())
    }
}

/// Advises on a population. `stop` ends the sampling early with the results so far; `progress` is called after every
/// cluster with the sample so far. The measurements go into the setting's profile. The profile predicts slow methods
/// that the time did not allow.
///
/// # Errors
/// Options outside their range; errors of a codec; no readable byte in the population.
pub fn advise(
    population: &Population,
    options: &AdviseOptions,
    setting: &mut Setting,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Report> {
    let begun = Instant::now();
    options.check()?;
    measure::scale_test(&mut setting.profile)?;
    let drawn = |sample: &Sample| {
        progress(&Progress {
            population,
            options,
            setting,
            sample,
        });
    };
    let mut sampled = options.sample.clone();
    sampled.small_block_bytes.push(options.page_bytes);
    let small_files = SmallFiles::measure(population, &sampled, stop)?;
    sampled.time_limit = sampled.time_limit.saturating_sub(begun.elapsed());
    let sample = Sample::draw(population, &sampled, stop, &mut { drawn })?;
    if sample.raw_bytes() == 0 {
        return Err(Error::invalid(
            "data",
            "nothing could be read: see the files' permissions",
        ));
    }
    sample.teach(&mut setting.profile);
    let time = options
        .time_limit
        .map(|limit| limit.saturating_sub(begun.elapsed()));
    let mut report = answer(population, options, setting, &sample, time);
    report.small_files = small_files.and_then(|found| found.report(setting));
    report.headline = headline(&report, options);
    Ok(report)
}

/// An unfinished advice: the sample so far, and its answer.
pub struct Progress<'a> {
    population: &'a Population,
    options: &'a AdviseOptions,
    setting: &'a Setting,
    /// The sample so far.
    pub sample: &'a Sample,
}

impl Progress<'_> {
    /// Returns the one-sentence answer at present.
    ///
    /// # Cost
    /// Some milliseconds: it is for display to people, not for every call.
    pub fn headline(&self) -> String {
        let wanted = |place: &str, metric: Metric| {
            place == "file" && Some(metric) == self.options.preference.metric()
        };
        draw_up(
            self.population,
            self.options,
            self.setting,
            self.sample,
            None,
            &wanted,
        )
        .headline
    }
}

/// Draws up the report from a sample of any size, in the available time.
fn answer(
    population: &Population,
    options: &AdviseOptions,
    setting: &Setting,
    sample: &Sample,
    time: Option<Duration>,
) -> Report {
    let mut report = draw_up(population, options, setting, sample, time, &|_, _| true);
    report.suggestions = suggestions(sample, options, setting);
    report
}

/// Draws up a report with the requested verdicts, by place and metric.
fn draw_up(
    population: &Population,
    options: &AdviseOptions,
    setting: &Setting,
    sample: &Sample,
    time: Option<Duration>,
    wanted: &dyn Fn(&str, Metric) -> bool,
) -> Report {
    let mut groups: Vec<usize> = (0..sample.groups().len()).collect();
    let bytes = |group: &usize| sample.group_bytes(Some(*group)).mean;
    groups.sort_by(|a, b| bytes(b).total_cmp(&bytes(a)));
    let mut classes: Vec<ClassReport> = groups
        .iter()
        .map(|group| {
            class_report(
                sample,
                Some(*group),
                sample.groups()[*group].name(),
                setting,
            )
        })
        .collect();
    classes.push(class_report(sample, None, "all".to_string(), setting));
    let wants_cache = Metric::ALL.iter().any(|metric| wanted("cache", *metric));
    let outlook = if wants_cache {
        outlook(sample, options, setting, time)
    } else {
        None
    };
    let mut verdicts = Vec::new();
    for (position, class) in classes.iter().enumerate() {
        let group = groups.get(position).copied();
        let seen = Seen {
            sample,
            group,
            class: &class.name,
        };
        // One cache serves all data.
        let outlook = outlook.as_ref().filter(|_| group.is_none());
        verdicts.extend(class_verdicts(&seen, options, setting, outlook, wanted));
    }
    let mut notes = notes(population, sample, setting);
    if outlook.as_ref().is_some_and(|outlook| outlook.is_cut) {
        notes.push("no time to simulate the cache with all keys: its bands are wider".to_string());
    }
    let mut report = Report {
        schema: SCHEMA.to_string(),
        headline: String::new(),
        machine: setting.machine.clone(),
        medium: medium_report(setting),
        sample: sample_report(population, sample, options),
        terms: setting.terms(options, data_bytes(sample, options)),
        classes,
        verdicts,
        cache: outlook.map(|outlook| outlook.report(&setting::access_text(options))),
        suggestions: Vec::new(),
        small_files: None,
        notes,
    };
    report.headline = headline(&report, options);
    report
}

fn class_report(
    sample: &Sample,
    group: Option<usize>,
    name: String,
    setting: &Setting,
) -> ClassReport {
    let methods = (0..sample.cells().len())
        .filter_map(|cell| Some((cell, known(sample, group, cell, setting)?)))
        .map(|(cell, known)| method_report(sample, group, cell, &known, setting))
        .collect();
    ClassReport {
        name,
        bytes: sample.group_bytes(group),
        allocated_bytes: Some(sample.file_allocated_bytes(group)),
        methods,
    }
}

/// An estimate with its source.
struct Known {
    estimate: CellEstimate,
    source: Source,
    evidence: Evidence,
}

/// The estimate of a cell on a class: measured, or predicted from earlier work on this machine.
fn known(sample: &Sample, group: Option<usize>, cell: usize, setting: &Setting) -> Option<Known> {
    if let Some(estimate) = sample.estimate(group, cell) {
        return Some(Known {
            estimate,
            source: Source::Measured,
            evidence: evidence(sample, group, cell, &estimate),
        });
    }
    let Group::Class(class) = sample.groups()[group?] else {
        return None;
    };
    let Cell {
        method,
        block_bytes,
        ..
    } = sample.cells()[cell];
    // A block that a short file only partly fills compresses as a short block does.
    let length = sample.mean_block_bytes(group?, block_bytes);
    let length = length.unwrap_or(block_bytes as u64);
    let predicted = setting.profile.estimate(class, method, length);
    let estimate = CellEstimate {
        stored_per_raw: predicted.stored_per_raw.value,
        allocated_share: predicted.stored_per_raw.value,
        file_allocated_share: predicted.stored_per_raw.value,
        encode_seconds_per_byte: predicted.encode_seconds_per_byte.value,
        decode_seconds_per_byte: predicted.decode_seconds_per_byte.value,
        clusters: 0,
    };
    // The least trusted of the three speaks for all.
    let factors = [
        predicted.stored_per_raw.basis,
        predicted.encode_seconds_per_byte.basis,
        predicted.decode_seconds_per_byte.basis,
    ];
    let source = factors.into_iter().max().map(|basis| basis.source())?;
    Some(Known {
        estimate,
        source,
        evidence: Evidence::Predicted,
    })
}

/// A slow method whose ratio may be off by more than this share is hardly measured.
const HARDLY_MEASURED: f64 = 0.1;

/// Returns the worth of a measured estimate. If the methods measured on every cluster are even less certain, the data
/// varies, and they set the standard.
fn evidence(
    sample: &Sample,
    group: Option<usize>,
    cell: usize,
    estimate: &CellEstimate,
) -> Evidence {
    let cells = sample.cells();
    if !sample.is_enough(group) {
        return Evidence::HardlyMeasured;
    }
    if !cells[cell].slow {
        return Evidence::Measured;
    }
    let off = |estimate: &CellEstimate| {
        let Estimate { mean, low, high } = estimate.stored_per_raw;
        (high - mean).max(mean - low) / mean
    };
    let on_all_clusters = (0..cells.len())
        .filter(|&of| !cells[of].slow && cells[of].block_bytes == cells[cell].block_bytes)
        .filter_map(|of| sample.estimate(group, of))
        .map(|estimate| off(&estimate))
        .reduce(f64::max);
    let bound = on_all_clusters.map_or(f64::INFINITY, |widest| widest.max(HARDLY_MEASURED));
    if off(estimate) <= bound {
        Evidence::Measured
    } else {
        Evidence::HardlyMeasured
    }
}

fn method_report(
    sample: &Sample,
    group: Option<usize>,
    cell: usize,
    known: &Known,
    setting: &Setting,
) -> MethodReport {
    let file_block_bytes = sample.cells()[0].block_bytes;
    let (cell, estimate) = (sample.cells()[cell], &known.estimate);
    let is_file = cell.block_bytes == file_block_bytes && known.source == Source::Measured;
    let ratio = |share: Estimate| share.map(|share| 1.0 / share);
    let rate = |seconds: Estimate| 1e-6 / seconds.mean;
    let watts = setting.power.marginal_watts_per_core().0;
    let band = setting.power.source().band();
    let joules = |seconds: Estimate| Estimate::within_factor(1e9 * seconds.mean * watts, band);
    MethodReport {
        method: cell.method.to_string(),
        block_bytes: cell.block_bytes as u64,
        ratio: ratio(estimate.stored_per_raw),
        allocated_ratio: is_file.then(|| ratio(estimate.file_allocated_share)),
        compress_mb_s: rate(estimate.encode_seconds_per_byte),
        decompress_mb_s: rate(estimate.decode_seconds_per_byte),
        compress_work: work_report(setting.encode_work(
            cell.method,
            cell.block_bytes as u64,
            timed(sample, group, estimate.encode_seconds_per_byte),
        )),
        decompress_work: work_report(setting.decode_work(
            cell.method,
            cell.block_bytes as u64,
            timed(sample, group, estimate.decode_seconds_per_byte),
        )),
        energy: EnergyReport {
            compress_j_per_gb: joules(estimate.encode_seconds_per_byte),
            decompress_j_per_gb: joules(estimate.decode_seconds_per_byte),
            source: setting.power.source().to_string(),
        },
        clusters: estimate.clusters as u64,
        source: known.source.to_string(),
        evidence: known.evidence,
    }
}

fn work_report(work: Work) -> WorkReport {
    WorkReport {
        core_s_per_gb: work.core_seconds.map(|seconds| 1e9 * seconds),
        device_s_per_gb: 1e9 * work.device_seconds,
        device_j_per_gb: 1e9 * work.device_joules,
    }
}

/// A class as the sample saw it; `None` is the group of all data.
struct Seen<'a> {
    sample: &'a Sample,
    group: Option<usize>,
    class: &'a str,
}

/// The requested verdicts for one class, with those of a cache if there is an outlook.
fn class_verdicts(
    seen: &Seen<'_>,
    options: &AdviseOptions,
    setting: &Setting,
    outlook: Option<&Outlook<'_>>,
    wanted: &dyn Fn(&str, Metric) -> bool,
) -> Vec<VerdictReport> {
    let Seen {
        sample,
        group,
        class,
    } = *seen;
    let block_bytes = options.sample.block_bytes;
    let whole_bytes = |estimate: &CellEstimate| estimate.stored_per_raw;
    let in_units = |estimate: &CellEstimate| estimate.allocated_share;
    let in_files = |estimate: &CellEstimate| estimate.file_allocated_share;
    let files = method_costs(sample, group, setting, block_bytes, in_files);
    let sent = method_costs(sample, group, setting, block_bytes, whole_bytes);
    let pages = method_costs(sample, group, setting, options.page_bytes, in_units);
    let mut verdicts = Vec::new();
    for metric in Metric::ALL {
        if wanted("file", metric) {
            let place = setting.file(options);
            verdicts.extend(files.verdict(|of| place.verdict(metric, class, of)));
        }
        if wanted("link", metric) {
            let place = setting.link(options, data_bytes(sample, options));
            verdicts.extend(sent.verdict(|of| place.verdict(metric, class, of)));
        }
        if wanted("pages", metric) {
            let place = setting.pages(options, options.page_bytes);
            verdicts.extend(pages.verdict(|of| place.verdict(metric, class, of)));
        }
        if wanted("cache", metric) {
            verdicts.extend(outlook.and_then(|of| of.verdict(metric, class)));
        }
    }
    verdicts
}

/// The data behind a buffer cache.
fn data_bytes(sample: &Sample, options: &AdviseOptions) -> u64 {
    if let Some(trace) = &options.trace {
        return trace.buffers * CACHE_BLOCK_BYTES as u64;
    }
    let sampled = sample.group_bytes(None).mean as u64;
    options.data_bytes.unwrap_or(sampled).max(1)
}

/// Simulates a buffer cache before all data; `None` if it would miss nothing.
fn outlook<'o>(
    sample: &Sample,
    options: &'o AdviseOptions,
    setting: &Setting,
    time: Option<Duration>,
) -> Option<Outlook<'o>> {
    let costs = |group: Option<usize>| {
        let whole_bytes = |estimate: &CellEstimate| estimate.stored_per_raw;
        method_costs(sample, group, setting, CACHE_BLOCK_BYTES, whole_bytes).measured
    };
    let methods = costs(None);
    let kind = |group: usize| {
        let found = costs(Some(group));
        // A method that was not measured on a kind of data is assumed to have its overall ratio there.
        let stored = methods.iter().map(|of| {
            let same = found.iter().find(|it| it.method == of.method);
            same.unwrap_or(of).stored
        });
        Kind {
            share: sample.group_bytes(Some(group)).mean,
            stored: stored.collect(),
        }
    };
    let kinds: Vec<Kind> = (0..sample.groups().len()).map(kind).collect();
    let cache = setting.cache(options, data_bytes(sample, options));
    cache
        .outlook(&methods, &kinds, time)
        .expect("options were checked")
}

/// Widens sampled times by the difference of another run.
fn timed(sample: &Sample, group: Option<usize>, estimate: Estimate) -> Estimate {
    let band = sample.repeat_factor(group).max(TIMING_BAND);
    Estimate {
        mean: estimate.mean,
        low: estimate.low / band,
        high: estimate.high * band,
    }
}

/// The costs of the methods at one block size on a class: those that may win a verdict, and those with too little
/// evidence.
struct Candidates {
    measured: Vec<MethodCosts>,
    doubtful: Vec<(Evidence, MethodCosts)>,
}

impl Candidates {
    /// Returns the verdict over the measured methods, and with it the best of the others if that seems to cost less.
    fn verdict(
        &self,
        over: impl Fn(&[MethodCosts]) -> Option<VerdictReport>,
    ) -> Option<VerdictReport> {
        let mut verdict = over(&self.measured)?;
        let doubtful: Vec<MethodCosts> = self.doubtful.iter().map(|(_, costs)| *costs).collect();
        let least = verdict.cost_ratio.mean.min(1.0);
        verdict.might = over(&doubtful)
            .filter(|other| other.cost_ratio.mean < WORTH_WHILE * least)
            .and_then(|other| {
                let named = |(_, costs): &&(Evidence, MethodCosts)| {
                    costs.method.to_string() == other.candidate
                };
                Some(Might {
                    evidence: self.doubtful.iter().find(named)?.0,
                    method: other.candidate,
                    cost_ratio: other.cost_ratio,
                })
            });
        Some(verdict)
    }
}

/// The cost on a class of every method known at one block size.
fn method_costs(
    sample: &Sample,
    group: Option<usize>,
    setting: &Setting,
    block_bytes: usize,
    stored: fn(&CellEstimate) -> Estimate,
) -> Candidates {
    let method = |cell: usize| sample.cells()[cell].method;
    let costs = |cell: usize, estimate: &CellEstimate| MethodCosts {
        method: method(cell),
        stored: stored(estimate),
        encode: setting.encode_work(
            method(cell),
            block_bytes as u64,
            timed(sample, group, estimate.encode_seconds_per_byte),
        ),
        decode: setting.decode_work(
            method(cell),
            block_bytes as u64,
            timed(sample, group, estimate.decode_seconds_per_byte),
        ),
    };
    let mut candidates = Candidates {
        measured: Vec::new(),
        doubtful: Vec::new(),
    };
    let cells = 0..sample.cells().len();
    for cell in cells.filter(|cell| sample.cells()[*cell].block_bytes == block_bytes) {
        let Some(known) = known(sample, group, cell, setting) else {
            continue;
        };
        let costs = costs(cell, &known.estimate);
        match known.evidence {
            Evidence::Measured => candidates.measured.push(costs),
            doubtful => candidates.doubtful.push((doubtful, costs)),
        }
    }
    candidates
}

fn medium_report(setting: &Setting) -> MediumReport {
    MediumReport {
        name: setting.medium.name.clone(),
        source: setting.medium.source.to_string(),
        read_mb_s: setting.read_bytes_per_second().map(|rate| rate / 1e6),
        write_mb_s: setting.write_bytes_per_second().map(|rate| rate / 1e6),
        random_read_us: setting.miss().map(|seconds| seconds * 1e6),
        allocation_unit_bytes: setting.medium.allocation_unit_bytes,
    }
}

fn sample_report(
    population: &Population,
    sample: &Sample,
    options: &AdviseOptions,
) -> SampleReport {
    let bound = (0..sample.cells().len())
        .filter(|cell| sample.cells()[*cell].block_bytes == options.sample.block_bytes)
        .filter_map(|cell| sample.estimate(None, cell))
        .map(|estimate| (estimate.stored_per_raw.high / estimate.stored_per_raw.mean) - 1.0)
        .fold(0.0, f64::max);
    SampleReport {
        bytes: sample.read_bytes(),
        population_bytes: population.bytes(),
        files: population.item_count() as u64,
        uncovered_bytes: population.uncovered_bytes,
        block_bytes: options.sample.block_bytes as u64,
        seed: options.sample.seed,
        bound,
        seconds: sample.elapsed.as_secs_f64(),
        ended: sample.ended.to_string(),
    }
}

/// Notes on skipped files, assumptions, and shortened limits.
fn notes(population: &Population, sample: &Sample, setting: &Setting) -> Vec<String> {
    let mut notes = passed_over(population, sample);
    notes.extend(setting.power_notes.iter().cloned());
    let band = setting.power.source().band();
    notes.push(format!(
        "joules are watts of one busy core ({:.1} W, {}, to a factor of {band}) times its seconds",
        setting.power.marginal_watts_per_core().0,
        setting.power.source(),
    ));
    if let Some(offload) = &setting.offload {
        notes.push(format!(
            "verdicts with the device {}: {}",
            offload.name, offload.source
        ));
    }
    notes.push(format!("prices of {}", setting.prices_date));
    notes.push("blocks that do not shrink are counted as stored raw".to_string());
    notes
}

/// Files that were skipped or could not be read. Notes that make the answer less certain come first: a screen has room
/// for only some notes.
fn passed_over(population: &Population, sample: &Sample) -> Vec<String> {
    let skipped = &population.skipped;
    let mut notes = Vec::new();
    if population.uncovered_bytes > 0 {
        let all = (population.bytes() + population.uncovered_bytes) as f64;
        notes.push(format!(
            "no time to look into all folders: about {:.0} % of the bytes are not covered",
            100.0 * population.uncovered_bytes as f64 / all
        ));
    }
    let mut unreadable = Vec::new();
    count(
        &mut unreadable,
        skipped.unreadable,
        "file or folder could not be read:",
        "files or folders could not be read:",
    );
    if let Some(mut line) = unreadable.pop() {
        line.extend(
            skipped
                .unreadable_examples
                .iter()
                .map(|it| format!(" {it};")),
        );
        notes.push(line.trim_end_matches(';').to_string());
    }
    for (number, one, many) in [
        (
            sample.vanished_pieces,
            "piece of a file could not be read, or changed or vanished meanwhile",
            "pieces of files could not be read, or changed or vanished meanwhile",
        ),
        (
            skipped.links,
            "symbolic link not followed",
            "symbolic links not followed",
        ),
        (
            skipped.special,
            "pipe, socket or device passed over",
            "pipes, sockets or devices passed over",
        ),
        (
            skipped.hard_links,
            "further name of a file, which was counted once",
            "further names of files, which were counted once",
        ),
        (skipped.empty, "empty file", "empty files"),
        (
            skipped.hole_bytes,
            "byte of holes in sparse files, which takes no space",
            "bytes of holes in sparse files, which take no space",
        ),
    ] {
        count(&mut notes, number, one, many);
    }
    notes
}

/// Adds a note on a count, unless it is zero.
fn count(notes: &mut Vec<String>, count: u64, one: &str, many: &str) {
    match count {
        0 => {}
        1 => notes.push(format!("1 {one}")),
        count => notes.push(format!("{count} {many}")),
    }
}

/// Returns the method that a report's verdict names, for a place, metric and class.
fn find<'r>(
    report: &'r Report,
    place: &str,
    metric: Metric,
    class: &str,
) -> Option<&'r VerdictReport> {
    report.verdicts.iter().find(|verdict| {
        (verdict.place.as_str(), verdict.metric.as_str()) == (place, metric.name())
            && verdict.class == class
    })
}

/// The text of the method that changes nothing.
fn store_text() -> String {
    Method::STORE.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::verdict::{Metrics, Place, PlaceTimes, Weights};

    /// The time on a place that moves 100 MB/s, for methods without time of their own.
    fn verdict(methods: &[(Evidence, &str, f64)]) -> Option<VerdictReport> {
        let costs = |method: &str, stored: f64| MethodCosts {
            method: method.parse().expect("a method"),
            stored: Estimate::exact(stored),
            encode: Work::of_cores(Estimate::exact(0.0)),
            decode: Work::of_cores(Estimate::exact(0.0)),
        };
        let weights = Weights {
            medium_second: 1.0,
            core_second: 1.0,
            ..Weights::default()
        };
        let place = Place {
            name: "file",
            times: PlaceTimes {
                write_fixed: Estimate::exact(0.0),
                write_byte: Estimate::exact(1e-8),
                read_fixed: Estimate::exact(0.0),
                read_byte: Estimate::exact(1e-8),
            },
            metrics: Metrics {
                time: weights,
                energy: weights,
                money: weights,
            },
            reads_per_write: Estimate::exact(3.0),
        };
        let mut candidates = Candidates {
            measured: Vec::new(),
            doubtful: Vec::new(),
        };
        for (evidence, method, stored) in methods {
            match evidence {
                Evidence::Measured => candidates.measured.push(costs(method, *stored)),
                doubtful => candidates
                    .doubtful
                    .push((*doubtful, costs(method, *stored))),
            }
        }
        candidates.verdict(|of| place.verdict(Metric::Time, "all", of))
    }

    #[test]
    fn what_is_hardly_known_does_not_win_and_is_told() {
        use Evidence::{HardlyMeasured, Measured, Predicted};
        let check = |methods: &[(Evidence, &str, f64)], best: &str, might: Option<&str>| {
            let found = verdict(methods).expect("a measured method");
            assert_eq!(found.method, best);
            let found = found.might.map(|might| might.method);
            assert_eq!(found.as_deref(), might);
        };
        check(
            &[
                (Measured, "zstd:3", 0.5),
                (Predicted, "xz:6", 0.3),
                (HardlyMeasured, "zstd:19", 0.4),
            ],
            "zstd:3",
            Some("xz:6"),
        );
        // No better than the best measured one, or than storing raw.
        check(
            &[(Measured, "zstd:3", 0.5), (Predicted, "xz:6", 0.5)],
            "zstd:3",
            None,
        );
        check(
            &[(Measured, "zstd:3", 1.0), (Predicted, "xz:6", 0.995)],
            "store",
            None,
        );
        check(
            &[(Measured, "zstd:3", 1.0), (HardlyMeasured, "xz:6", 0.8)],
            "store",
            Some("xz:6"),
        );
        assert!(verdict(&[(Predicted, "xz:6", 0.3)]).is_none());
    }
}
