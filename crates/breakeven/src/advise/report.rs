//! The report: all findings of `advise`, as plain data.
//!
//! The JSON form is stable and documented in docs/advise-reference.md: fields are only added under the same `schema`.
//! The door renders text and pictures from the same facts.

use serde::{Deserialize, Serialize};

use crate::meter::Machine;
use crate::units::{Estimate, or_above_all};

/// The name and version of the JSON form.
pub const SCHEMA: &str = "breakeven.advise/1";

/// Everything `advise` found out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`] of the program that wrote it.
    pub schema: String,
    /// The advice and its saving, in one sentence.
    pub headline: String,
    /// The measured machine.
    pub machine: Machine,
    /// The place of the data, and its costs.
    pub medium: MediumReport,
    /// The sample behind the numbers.
    pub sample: SampleReport,
    /// The user's question, and its prices.
    pub terms: TermsReport,
    /// The classes of data found, largest first; then `all`.
    pub classes: Vec<ClassReport>,
    /// An answer for each place, metric and class.
    pub verdicts: Vec<VerdictReport>,
    /// The effect on a buffer cache of this memory; absent where all data fits into it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheReport>,
    /// Settings for the user's tools; absent from reports made before there were any.
    #[serde(default)]
    pub suggestions: Vec<SuggestionReport>,
    /// The effect of an archive on the small files; absent where there are few or none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub small_files: Option<SmallFilesReport>,
    /// Notes for the reader: skipped entries, assumptions, and shortened limits.
    pub notes: Vec<String>,
}

/// The medium the data lies on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MediumReport {
    /// The given name, or the recognised preset.
    pub name: String,
    /// The source of its numbers: a probe, a preset, fio's results.
    pub source: String,
    /// Sequential rates in MB/s (10^6 bytes).
    pub read_mb_s: Estimate,
    /// The same of writing.
    pub write_mb_s: Estimate,
    /// One random read of 8 KiB, in microseconds.
    pub random_read_us: Estimate,
    /// A file takes a multiple of this.
    pub allocation_unit_bytes: u64,
}

/// The user's question, and the cost of seconds, joules and bytes there. With `medium` and the methods of a class, it
/// is all the input of the verdict on a file at rest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TermsReport {
    /// Reads for each write, with the requested range.
    pub reads_per_write: Estimate,
    /// Days that it is kept.
    pub days_kept: f64,
    /// The aim of the headline: `money`, `time`, `energy` or `space`.
    pub prefer: String,
    /// Threads that compress and decompress.
    pub threads: u32,
    /// Bytes of a database's page.
    pub page_bytes: u64,
    /// Memory of the buffer cache, and the data behind it.
    pub memory_bytes: u64,
    /// The data behind that memory.
    pub data_bytes: u64,
    /// The distribution of buffer accesses: `even`, `pareto` or `zipf:S`.
    pub access: String,
    /// The link's name, or its rate as given.
    pub link_name: String,
    /// Its rate in MB/s (10^6 bytes).
    pub link_mb_s: f64,
    /// The machine's power when idle.
    pub idle_watts: f64,
    /// The further watts of one busy core.
    pub core_watts: f64,
    /// The further watts of the medium while it works.
    pub medium_watts: f64,
    /// Prices of energy, cores and bytes.
    pub prices: PricesReport,
}

/// Prices, reduced to those that the verdicts use.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PricesReport {
    /// When they were looked up.
    pub date: String,
    /// Price of energy.
    pub eur_per_kwh: f64,
    /// Power for cooling as a share of the machine's.
    pub cooling_share: f64,
    /// Rent of one hardware thread, without its energy.
    pub core_eur_per_hour: f64,
    /// Holding a TB (10^12 bytes), without its energy.
    pub storage_eur_per_tb_year: f64,
    /// Power for holding a TB, cooling included.
    pub storage_watts_per_tb: f64,
    /// Data held for fewer days is billed for this many.
    pub billable_days_min: f64,
    /// Charges for moving a GB to and from the medium.
    pub write_eur_per_gb: f64,
    /// The same of reading.
    pub read_eur_per_gb: f64,
}

/// The sample behind the numbers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SampleReport {
    /// Raw bytes read and measured.
    pub bytes: u64,
    /// Bytes there are to advise on.
    pub population_bytes: u64,
    /// Files there are.
    pub files: u64,
    /// Estimated bytes that the time did not allow.
    pub uncovered_bytes: u64,
    /// Bytes of a measured block.
    pub block_bytes: u64,
    /// The seed of the draws; the same seed draws the same blocks.
    pub seed: u64,
    /// The widest 95 % half-width among the printed ratios of `all`, as a share of the ratio.
    #[serde(deserialize_with = "or_above_all")]
    pub bound: f64,
    /// Seconds that sampling took.
    pub seconds: f64,
    /// The reason why the sampling ended: `complete`, `precise`, `time`, `interrupted`.
    pub ended: String,
}

/// One class of data.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClassReport {
    /// The class, or `all`.
    pub name: String,
    /// Raw bytes of the class among the data.
    pub bytes: Estimate,
    /// Bytes that the file system allocates to its files, each in whole blocks; absent from reports made before this
    /// field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_bytes: Option<f64>,
    /// Every method at every size of block.
    pub methods: Vec<MethodReport>,
}

/// One method on one class at one block size.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MethodReport {
    /// The method's text form, `zstd:3`.
    pub method: String,
    /// Raw bytes of a block.
    pub block_bytes: u64,
    /// Raw bytes over stored bytes.
    pub ratio: Estimate,
    /// Bytes allocated to files raw over those allocated to them compressed, each in whole blocks of the file system.
    /// Absent where it was not measured, and for smaller blocks than files'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated_ratio: Option<Estimate>,
    /// MB/s (10^6 raw bytes) of one core.
    #[serde(deserialize_with = "or_above_all")]
    pub compress_mb_s: f64,
    /// The same of decompressing.
    #[serde(deserialize_with = "or_above_all")]
    pub decompress_mb_s: f64,
    /// The work that the verdicts count, an offload device included.
    pub compress_work: WorkReport,
    /// The same of decompressing.
    pub decompress_work: WorkReport,
    /// Joules of a core at work.
    pub energy: EnergyReport,
    /// Clusters of the measurement; 0 for a prediction.
    pub clusters: u64,
    /// `measured`, or the basis of the prediction.
    pub source: String,
    /// The quality of the evidence: only `measured` figures may win a verdict.
    #[serde(default)]
    pub evidence: Evidence,
}

impl MethodReport {
    /// Returns the ratio of the allocated space, where it is known, else that of the bytes.
    pub fn space_ratio(&self) -> Estimate {
        self.allocated_ratio.unwrap_or(self.ratio)
    }
}

/// The evidence behind the numbers of a method on a class. Reports made before this field have only measured ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// Measured on enough clusters.
    #[default]
    Measured,
    /// Measured on fewer clusters than intervals are proved for. Or the ratio is off by more than a tenth, and by more
    /// than that of any method measured on all clusters.
    HardlyMeasured,
    /// Inferred from other methods and other data.
    Predicted,
}

/// The work of compressing or decompressing a GB (10^9 raw bytes).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkReport {
    /// Core-seconds, with the band of sampling and timing.
    pub core_s_per_gb: Estimate,
    /// Seconds and joules of a device beside the processor.
    pub device_s_per_gb: f64,
    /// Joules of that device.
    pub device_j_per_gb: f64,
}

/// Active energy of one core working, per GB (10^9 raw bytes).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EnergyReport {
    /// Of compressing.
    pub compress_j_per_gb: Estimate,
    /// Of decompressing.
    pub decompress_j_per_gb: Estimate,
    /// The source of the joules: a counter, or a model of the machine.
    pub source: String,
}

/// The answer at one place, in one metric, for one class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerdictReport {
    /// `file`, `link`, `cache` or `pages`.
    pub place: String,
    /// `time`, `energy`, `energy-delay` or `money`.
    pub metric: String,
    /// The class, or `all`.
    pub class: String,
    /// The best method; `store` where storing raw is best.
    pub method: String,
    /// The best method that compresses; the break-even belongs to it.
    pub candidate: String,
    /// `pays`, `pays_above`, `pays_below`, `never`, or `undecided` where the band of `cost_ratio` has
    /// [`WORTH_WHILE`](crate::advise::verdict::WORTH_WHILE) inside it.
    pub answer: String,
    /// The unit of the break-even: `reads_per_write`, `link_mb_s` or `compressed_share`.
    pub unit: String,
    /// The value at which the candidate pays; absent where there is none.
    pub break_even: Option<f64>,
    /// The lower end of its band.
    pub low: Option<f64>,
    /// The upper end of its band.
    pub high: Option<f64>,
    /// Other turning points of the verdict: the quantity and its value.
    pub flips_at: Vec<Flip>,
    /// `serial` where stage times add, `overlapped` where the slowest stage decides.
    pub stages: String,
    /// Cost of the candidate over the cost of storing raw: at the means, with the band of all errors over the requested
    /// reads per write.
    pub cost_ratio: Estimate,
    /// Other methods that compress whose bands begin before that of the candidate ends: any of them may be the best.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<Rival>,
    /// A method that seems to cost less, but is not known well enough to be the best.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub might: Option<Might>,
}

/// The effect on a buffer cache of this memory, by its own simulation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CacheReport {
    /// Memory of the cache.
    pub memory_bytes: u64,
    /// The data behind it.
    pub data_bytes: u64,
    /// Bytes of a buffer.
    pub buffer_bytes: u64,
    /// The distribution of accesses, or the name of their trace.
    pub access: String,
    /// Accesses that were simulated and counted.
    pub accesses: u64,
    /// The time of a miss, in microseconds.
    pub miss_us: Estimate,
    /// The hit ratio without compression.
    pub raw_hit_ratio: f64,
    /// Microseconds of an access there.
    pub raw_us_per_access: f64,
    /// The best split in each metric.
    pub best: Vec<BestSplitReport>,
    /// Every split that was simulated, in time.
    pub splits: Vec<SplitReport>,
}

/// The best split in one metric.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BestSplitReport {
    /// As the verdict's.
    pub metric: String,
    /// As the verdict's.
    pub answer: String,
    /// The method of compressed buffers.
    pub method: String,
    /// The share of memory for compressed buffers.
    pub compressed_share: f64,
    /// Whether, once the share is full, only blocks that were asked for again are compressed.
    pub again: bool,
    /// Shares of the accesses.
    pub hit_ratio: f64,
    /// Accesses that decompressed a buffer.
    pub restored: f64,
    /// Cost over that of the same memory without compression.
    pub cost_ratio: Estimate,
}

/// One split of the memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SplitReport {
    /// The method of compressed buffers.
    pub method: String,
    /// The share of memory for compressed buffers.
    pub compressed_share: f64,
    /// As [`BestSplitReport::again`].
    pub again: bool,
    /// The share of accesses that found their buffer, restored ones included.
    pub hit_ratio: f64,
    /// Restorations and compressions for each access.
    pub restored: f64,
    /// Compressions for each access.
    pub compressed: f64,
    /// Microseconds of an access.
    pub us_per_access: f64,
    /// In time, over compressing nothing.
    pub cost_ratio: Estimate,
}

/// A method that may be the best as well.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rival {
    /// The method's text form.
    pub method: String,
    /// As the verdict's.
    pub cost_ratio: Estimate,
}

/// A method that was not or hardly measured, beside a verdict.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Might {
    /// The method's text form.
    pub method: String,
    /// How well it is known.
    pub evidence: Evidence,
    /// Expected cost over the cost of storing raw.
    pub cost_ratio: Estimate,
}

impl Evidence {
    /// Returns the words for people.
    pub fn words(self) -> &'static str {
        match self {
            Evidence::Measured => "measured",
            Evidence::HardlyMeasured => "hardly measured",
            Evidence::Predicted => "not measured",
        }
    }
}

/// A setting for a tool: the verdict over its methods, in its own words.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuggestionReport {
    /// The tool's name.
    pub tool: String,
    /// The part of the tool's data that is meant.
    pub subject: String,
    /// The version from which the tool understands the settings.
    pub since: String,
    /// `time`, `energy`, `money` or `space`.
    pub metric: String,
    /// `compress`, `leave_off` or `undecided`.
    pub answer: String,
    /// The tool's best method that compresses.
    pub method: String,
    /// Raw over stored bytes of that method in the tool's blocks, or the nearest measured.
    pub ratio: Estimate,
    /// Its cost over that of storing raw.
    pub cost_ratio: Estimate,
    /// Lines to type or to write into a configuration; empty where there is nothing to change.
    pub settings: Vec<String>,
    /// Further notes.
    pub note: String,
}

/// The size of an archive of the small files, compressed as one, beside each of them compressed alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SmallFilesReport {
    /// The number of files, each below half a mebibyte.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The method that compresses them in both cases.
    pub method: String,
    /// Whether all of the archive was compressed, with far matches. Otherwise parts of it were, and it may be smaller.
    #[serde(default)]
    pub matches_far: bool,
    /// `saves`, `saves_nothing`, or `undecided` where the band of `saved_share` holds both, or too few runs were
    /// measured.
    pub answer: String,
    /// Bytes allocated to them, each compressed alone.
    pub alone_bytes: f64,
    /// Bytes of the archive.
    pub archive_bytes: f64,
    /// The saving of the archive against these bytes, as a share.
    pub saved_share: Estimate,
    /// To read one of them and decompress it, in microseconds.
    pub read_alone_us: f64,
    /// The same for the archive up to its middle, which a reader of one file has to pass on average.
    pub read_archived_us: f64,
    /// Runs of files that were measured, of about a mebibyte each.
    pub runs: u64,
}

/// A quantity at whose value the verdict changes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Flip {
    /// The quantity that the verdict depends on.
    pub quantity: String,
    /// Its value at the flip.
    pub value: f64,
    /// The best method beyond.
    pub then: String,
}
