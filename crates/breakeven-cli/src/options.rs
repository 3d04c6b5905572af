//! The command line: the one table of options. The parser and the help are made from it.
//!
//! Texts are parsed here into plain values; the command that uses them resolves their meaning on this machine.

use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use breakeven::advise::sample::{BLOCK_BYTES, is_page_size};
use breakeven::cache::{Arm, Policy, ShardOptions};
use breakeven::codec::Method;
use breakeven::medium::Medium;
use breakeven::medium::presets::parse_rate;
use breakeven::model::offload::PROFILES;
use breakeven::model::{Access, FREE_COMPRESSION, Offload};
use breakeven::replay::TraceFormat;
use breakeven::stream::{Advice, Hint};
use breakeven::units::BytesPerSecond;
use breakeven_cli::text;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::strategy::parse_strategy;
use crate::zstd_options::{FrameOptions, HabitOptions, TreeOptions};

pub use crate::strategy::Strategy;

/// The meaning of the codes that a command ends with.
pub const EXIT_STATUS: &str = "0: done, or answered, whatever the answer. 1: a file, medium or meter is \
     unusable, or data is bad; the message names it. 2: the command line is wrong. 3: done, but a file system \
     refused some file's owner, mode or times; the message names it. `compare` exits 1 when a verdict changed, \
     and 2 when a report is unusable.";

/// Storage compression that pays for itself.
#[derive(Debug, Parser)]
#[command(
    name = "breakeven",
    version,
    max_term_width = 100,
    after_help = EXIT_STATUS
)]
pub struct Options {
    #[command(subcommand)]
    pub command: Command,
}

impl Options {
    /// Reads a command line. A repeated option with one value is refused, for only one would count. Switches may be
    /// repeated; in commands with zstd's letters the last value counts, as in zstd.
    ///
    /// # Errors
    /// The refusal, or the help that was asked for.
    pub fn read(arguments: Vec<OsString>) -> Result<Options, clap::Error> {
        let mut command = with_repeated_switches(Options::command());
        let mut matches = command.try_get_matches_from_mut(arguments)?;
        Options::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

fn with_repeated_switches(command: clap::Command) -> clap::Command {
    let command = command.mut_args(|option| match option.get_action() {
        ArgAction::SetTrue => {
            let name = option.get_id().clone();
            option.overrides_with(name)
        }
        _ => option,
    });
    command.mut_subcommands(with_repeated_switches)
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(
        about = "Say whether, where and with what compressing pays: on this machine, for this data"
    )]
    Advise(Box<AdviseOptions>),
    /// Measure this machine's watts over its load, with a meter of yours, for later advice
    Calibrate(CalibrateOptions),
    /// Make a page from the JSON of `advise` or `replay`
    Report(ReportOptions),
    /// Compare two reports; exits 1 when a verdict changed
    Compare(CompareOptions),
    /// Compress files or a pipe into streams that every zstd reads
    #[command(args_override_self = true)]
    Pack(Box<PackOptions>),
    /// Decompress streams of zstd, lz4 and xz frames
    #[command(args_override_self = true)]
    Unpack(UnpackOptions),
    /// Decompress to standard output
    #[command(args_override_self = true)]
    Cat(UnpackOptions),
    /// List the frames of streams, without decoding them
    Info(InfoOptions),
    /// Show the decision on each block of a file, or the result for each block of a stream
    Explain(ExplainOptions),
    /// Recompress streams for the days they will be kept
    Repack(RepackOptions),
    /// Compare policies of the buffer cache on a trace, over pages of these files
    Replay(Box<ReplayOptions>),
    /// Store trees of files once, compressed and encrypted
    #[cfg(feature = "vault")]
    Vault(Box<crate::vault::VaultOptions>),
    /// Store trees of files once, compressed and encrypted: not in this build
    #[cfg(not(feature = "vault"))]
    #[command(disable_help_flag = true)]
    Vault {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
        arguments: Vec<std::ffi::OsString>,
    },
    /// Make, serve and copy compressed disks for unmodified programs
    #[command(subcommand)]
    Disk(DiskCommand),
    /// Serve a memcached, with its option letters (`serve -h` lists them)
    #[command(disable_help_flag = true)]
    Serve {
        /// memcached's option letters and their values
        #[arg(
            value_name = "OPTION",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        arguments: Vec<String>,
    },
    /// Load a memcached, any memcached, and compare every value that comes back
    Bench(Box<BenchOptions>),
    /// Keep SQLite databases compressed: bring them in and out, look at them
    Db {
        /// The command
        #[command(subcommand)]
        command: DbCommand,
    },
    /// Print the manual page
    Man,
    /// Print the completions of a shell, to be put where that shell looks for them
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// Commands of `breakeven disk`.
#[derive(Debug, Subcommand)]
pub enum DiskCommand {
    /// Make a disk with one empty volume, which takes no room before something is written
    Create(DiskCreateOptions),
    /// Serve a disk's volumes to NBD clients until SIGINT, SIGTERM or SIGHUP
    Serve(DiskServeOptions),
    /// Make a disk of a raw image
    Import(DiskImportOptions),
    /// Write a volume as a raw image
    Export(DiskExportOptions),
    /// Show the volumes of a disk and the room that they take
    Info(DiskFile),
    /// Read every block of a disk; exits 1 if one cannot be read
    Fsck(DiskFsckOptions),
    /// Make a writable copy of a volume as it is now
    Clone(DiskCopyOptions),
    /// Make a read-only copy of a volume as it is now
    Snapshot(DiskCopyOptions),
    /// Remove a volume
    Remove(DiskRemoveOptions),
    /// Make a volume longer, also of a served disk, or shorter
    Resize(DiskResizeOptions),
    /// Rewrite all blocks of an unserved disk more densely, and give back the free room
    Compact(DiskFile),
}

/// The file that is a disk.
#[derive(Debug, Args)]
pub struct DiskFile {
    /// The disk
    #[arg(value_name = "DISK")]
    pub path: PathBuf,
}

/// Options of `breakeven disk create`.
#[derive(Debug, Args)]
pub struct DiskCreateOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// Length of the volume: 10GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: u64,

    /// Name of the volume
    #[arg(long, value_name = "NAME", default_value = "disk")]
    pub volume: String,

    /// Length of a block, 4KiB to 64KiB; longer ones compress better, and short writes read them first
    #[arg(long, value_name = "BYTES", default_value = "4KiB", value_parser = parse_disk_block_size)]
    pub block_size: u64,
}

/// Options of `breakeven disk serve`.
#[derive(Debug, Args)]
pub struct DiskServeOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// The socket to listen on; DISK.socket unless given
    #[arg(long, value_name = "PATH", conflicts_with = "port")]
    pub socket: Option<PathBuf>,

    /// Listen on this port of the loopback interface instead; 0 takes a free one
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// The volume for clients that name none; the first unless given
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,

    /// Let nobody write
    #[arg(long)]
    pub read_only: bool,

    /// Method for blocks; by default the cheapest for each kind of block
    #[arg(long, value_name = "METHOD")]
    pub method: Option<Method>,

    /// Memory of the index of equal blocks; 1 for none
    #[arg(long, value_name = "BYTES", default_value = "16MiB", value_parser = parse_bytes)]
    pub duplicates: u64,

    /// Refuse writes when the file system around the disk has less than this left
    #[arg(long, value_name = "BYTES", default_value = "256MiB", value_parser = parse_bytes)]
    pub reserve: u64,

    /// Clients at the same time
    #[arg(long, value_name = "N", default_value = "32", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub connections: u32,

    /// Write the server's metrics to this file, in Prometheus' text form
    #[arg(long, value_name = "FILE")]
    pub metrics: Option<PathBuf>,
}

/// Options of `breakeven disk import`.
#[derive(Debug, Args)]
pub struct DiskImportOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// The raw image, a file or a device; - is standard input, of any length
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,

    /// Name of the volume
    #[arg(long, value_name = "NAME", default_value = "disk")]
    pub volume: String,

    /// Stop when the file system around the disk has less than this left
    #[arg(long, value_name = "BYTES", default_value = "1", value_parser = parse_bytes)]
    pub reserve: u64,
}

/// Options of `breakeven disk export`.
#[derive(Debug, Args)]
pub struct DiskExportOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// The raw image, which must not exist; - for standard output
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,

    /// The volume; the first unless given
    #[arg(long, value_name = "NAME")]
    pub volume: Option<String>,

    /// Leave zeros for blocks that cannot be read, name them, and exit 1 at the end
    #[arg(long)]
    pub skip_damaged: bool,
}

/// Options of `breakeven disk fsck`.
#[derive(Debug, Args)]
pub struct DiskFsckOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// First go back to the newest usable state, if the disk is unusable
    #[arg(long)]
    pub repair: bool,
}

/// Options of `breakeven disk clone` and `breakeven disk snapshot`.
#[derive(Debug, Args)]
pub struct DiskCopyOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// The volume to copy
    #[arg(value_name = "FROM")]
    pub from: String,

    /// Name of the copy
    #[arg(value_name = "TO")]
    pub to: String,
}

/// Options of `breakeven disk remove`.
#[derive(Debug, Args)]
pub struct DiskRemoveOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// The volume
    #[arg(value_name = "NAME")]
    pub volume: String,
}

/// Options of `breakeven disk resize`.
#[derive(Debug, Args)]
pub struct DiskResizeOptions {
    #[command(flatten)]
    pub file: DiskFile,

    /// The volume
    #[arg(value_name = "NAME")]
    pub volume: String,

    /// New length of the volume: 20GiB
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub size: u64,

    /// Discard the bytes behind the new end
    #[arg(long)]
    pub discard: bool,
}

/// Commands of `breakeven db`. They need no SQLite. Programs use the databases through the extension
/// `libbreakeven_sqlite`, as `docs/sqlite.md` says.
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// Make an empty compressed database
    Create {
        /// Where; nothing must be there
        #[arg(value_name = "DATABASE")]
        database: PathBuf,

        /// Method for pages; by default the cheapest for each kind of page
        #[arg(long, value_name = "METHOD")]
        codec: Option<String>,
    },
    /// Make a compressed database from a plain one, and compare every page; the plain one is only read
    Import {
        /// The plain database
        #[arg(value_name = "SOURCE")]
        source: PathBuf,

        /// Where the compressed one is to be; nothing must be there
        #[arg(value_name = "DATABASE")]
        database: PathBuf,

        /// Method for pages; by default the cheapest for each kind of page
        #[arg(long, value_name = "METHOD")]
        codec: Option<String>,

        /// Make nothing, and exit 1, if the compressed one would not be smaller
        #[arg(long)]
        if_smaller: bool,
    },
    /// Make a plain database from a compressed one, and compare every page; the compressed one is only read
    Export {
        /// The compressed database
        #[arg(value_name = "DATABASE")]
        database: PathBuf,

        /// Where the plain one is to be; nothing must be there
        #[arg(value_name = "TARGET")]
        target: PathBuf,

        /// Leave zeros for pages that cannot be read, name them, and exit 1 at the end
        #[arg(long)]
        skip_damaged: bool,
    },
    /// Show the size of a compressed database, by kind of page
    Info {
        /// The compressed database
        #[arg(value_name = "DATABASE")]
        database: PathBuf,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Rewrite all pages of a compressed database more densely, and give back the free room
    Compact {
        /// The compressed database, which nobody else may be using
        #[arg(value_name = "DATABASE")]
        database: PathBuf,

        /// Method for pages that never moved before; the densest that is worth its wait by default
        #[arg(long, value_name = "METHOD")]
        codec: Option<String>,
    },
    /// Read every page of a compressed database; exits 1 if one cannot be read
    Fsck {
        /// The compressed database
        #[arg(value_name = "DATABASE")]
        database: PathBuf,

        /// First go back to the newest usable state, if the database is unusable; nobody else may have it open
        #[arg(long)]
        repair: bool,

        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// Shapes of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchShape {
    /// Gets of 20 keys
    Batched,
    /// 50 gets of one key every 50 ms on each connection; the rate sets the number of connections
    Paced,
    /// Gets of one key, several at once
    Single,
    /// Sets of new values, several at once; later gets need a new fill
    Sets,
}

/// Options of `breakeven bench`.
///
/// It stores a value under each key (`bench:00000000` and on), asks for the values, and leaves them there. Without
/// `--rate` and `--flat-out` it seeks the highest rate at which fewer than 1 % of the requests exceed `--limit`.
/// Requests start on schedule, whether earlier ones were answered or not, and latencies count from then. One thread
/// makes the load: pin it and the server to processors of their own (`taskset`).
#[derive(Debug, Args)]
pub struct BenchOptions {
    /// The server: HOST:PORT, or the path of a UNIX socket
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:11211")]
    pub address: String,

    /// The shape of the requests
    #[arg(long, value_name = "SHAPE", value_enum, default_value = "batched")]
    pub shape: BenchShape,

    /// Requests that `single` and `sets` send at once
    #[arg(long, value_name = "N", default_value = "8", value_parser = parse_pipeline)]
    pub pipeline: usize,

    /// Offer so many keys a second
    #[arg(long, value_name = "KEYS", value_parser = parse_positive)]
    pub rate: Option<f64>,

    /// Let each connection ask again as soon as it was answered
    #[arg(long, conflicts_with = "rate")]
    pub flat_out: bool,

    /// Time that a miss costs the client, which then stores the value; by default misses are only counted
    #[arg(long, value_name = "TIME", value_parser = parse_time, requires = "flat_out", conflicts_with = "rate")]
    pub miss: Option<f64>,

    /// Time that a request may take
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_time)]
    pub limit: f64,

    /// Seconds for each rate
    #[arg(long, value_name = "SECONDS", default_value = "15", value_parser = parse_positive)]
    pub seconds: f64,

    /// Rates that are tried
    #[arg(long, value_name = "N", default_value = "6", value_parser = clap::value_parser!(u32).range(1..=20))]
    pub steps: u32,

    /// How many keys there are
    #[arg(long, value_name = "N", default_value = "100000", value_parser = clap::value_parser!(u32).range(1..=99_999_999))]
    pub keys: u32,

    /// Values from the lines of this file; by default JSON records of 200 to 1000 bytes
    #[arg(long, value_name = "FILE")]
    pub values: Option<PathBuf>,

    /// How unevenly keys are asked for: even, pareto (80 % of the requests for 20 % of the keys) or zipf:S
    #[arg(long, value_name = "SKEW", default_value = "even", value_parser = parse_skew)]
    pub skew: Access,

    /// Connections, where the shape does not decide it
    #[arg(long, value_name = "N", default_value = "50", value_parser = parse_connections)]
    pub connections: usize,

    /// Store nothing first
    #[arg(long)]
    pub no_fill: bool,

    /// Seed of values, keys and times
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Draw how long requests took, as SVG
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The cost that counts most in the one-sentence answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preference {
    /// Least money over the days kept: processor, energy and space together
    Money,
    /// Least time for one write and its reads
    Time,
    /// Least energy for one write and its reads
    Energy,
    /// Least space
    Space,
}

/// Options of `breakeven advise`.
///
/// It only reads, but for one scratch file that measures the medium. That file loses its name at once, and 64 MiB are
/// written to it in all. Ctrl-C ends it with an answer from the data so far. A terminal shows progress; a pipe or a
/// file gets the answer alone.
#[derive(Debug, Args)]
pub struct AdviseOptions {
    /// Files and folders to advise on; without any, Kothiyal's four file types (text, binary,
    /// zero, random) gathered from this machine
    #[arg(value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// Advise on the items of a running memcached, HOST:PORT or the path of a UNIX socket; it reads the keys and a
    /// sample of the values
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["paths", "values", "report", "all"])]
    pub memcached: Option<String>,

    /// Advise on values of a cache for small objects: a file with one a line, or a key, a tab and a value
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "report", "all"])]
    pub values: Option<PathBuf>,

    /// With --memcached and --values: the time that a miss costs a client
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = parse_time)]
    pub miss: f64,

    /// How often data is read for each time it is written: a number or a range
    #[arg(long, value_name = "N[..M]", default_value = "2..4", value_parser = parse_range)]
    pub reads: (f64, f64),

    /// The cost that counts most in the one-sentence answer
    #[arg(long, value_name = "WHAT", value_enum, default_value = "money")]
    pub prefer: Preference,

    /// Days the data is kept
    #[arg(long, value_name = "DAYS", default_value = "90", value_parser = parse_positive)]
    pub days: f64,

    /// The link data travels over: a preset (1gbe, 10gbe, fdr) or a rate (117MB/s, 10Gbit/s)
    #[arg(long, value_name = "LINK", default_value = "1gbe")]
    pub link: Medium,

    /// The medium the data lies on, instead of probing it: a preset (hdd, nvme, s3, ...)
    #[arg(long, value_name = "MEDIUM")]
    pub medium: Option<Medium>,

    /// Take the medium from the results of `fio --output-format=json`
    #[arg(long, value_name = "FILE", conflicts_with = "medium")]
    pub fio: Option<PathBuf>,

    /// Memory for a buffer cache; a quarter of the data unless given
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,

    /// Size of the data set a buffer cache serves; the data looked at unless given
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub data: Option<u64>,

    /// How unevenly buffers are asked for: even, pareto (80 % of the requests for 20 % of the
    /// data) or zipf:S
    #[arg(
        long,
        value_name = "SKEW",
        default_value = "zipf:0.9",
        value_parser = parse_skew,
        conflicts_with = "trace"
    )]
    pub skew: Access,

    /// A recorded trace of buffer accesses, in place of skew and data; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub trace: Option<PathBuf>,

    /// The trace's form: oracleGeneral, u32, u64, text (a key a line), csv (time, key, bytes)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TraceFormat,

    /// Compressing threads; the processors of this machine unless given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// Block size of files and links, 4KiB to 1MiB
    #[arg(long, value_name = "BYTES", default_value = "1MiB", value_parser = parse_block_size)]
    pub block_size: usize,

    /// Database page size, 4KiB to 128KiB; by default that of a SQLite database, else 16KiB
    #[arg(long, value_name = "BYTES", value_parser = parse_page_size)]
    pub page_size: Option<usize>,

    /// Methods to measure, instead of the usual ones: lz4:1,zstd:3,xz:6
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub methods: Vec<Method>,

    /// Prices, in place of the program's own dated ones
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,

    /// Let a published device compress or decompress: fpga-lz4, asic-zlib, qat-zstd,
    /// nvcomp-engine; or see the limit of free compression: free
    #[arg(long, value_name = "NAME", value_parser = parse_offload)]
    pub offload: Option<Offload>,

    /// The machine's watts when idle and when all its cores are busy
    #[arg(long, value_name = "IDLE,BUSY", value_parser = parse_watts)]
    pub watts: Option<(f64, f64)>,

    /// Seconds it may take at the most
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_positive)]
    pub time: f64,

    /// Seed of the sample
    #[arg(long, value_name = "N", default_value = "1")]
    pub seed: u64,

    /// Print all tables: every method on every kind of data, and every verdict
    ///
    /// With --json it changes nothing: the JSON has every table.
    #[arg(long)]
    pub all: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,

    /// Write the report as one page with pictures; it needs no network
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// Options of `breakeven calibrate`.
#[derive(Debug, Args)]
pub struct CalibrateOptions {
    /// A command that prints the machine's watts, the first number on its last line: a wall meter,
    /// `ipmitool dcmi power reading`, a Redfish query
    #[arg(long, value_name = "CMD")]
    pub meter: String,

    /// Seconds for which each load is measured
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_positive)]
    pub phase: f64,

    /// Seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = parse_positive)]
    pub interval: f64,

    /// Seconds a new load has to settle
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_positive)]
    pub settle: f64,
}

/// Options of `breakeven report`.
#[derive(Debug, Args)]
pub struct ReportOptions {
    /// The report, as `advise --json` or `replay --json` wrote it
    #[arg(value_name = "REPORT.json")]
    pub json: PathBuf,

    /// Where the page goes
    #[arg(
        short,
        long,
        value_name = "FILE.html",
        default_value = "breakeven.html"
    )]
    pub output: PathBuf,

    /// Write each picture as an SVG file into this folder as well
    #[arg(long, value_name = "DIR")]
    pub pictures: Option<PathBuf>,
}

/// Options of `breakeven compare`.
///
/// A verdict changed when its advice differs (another method, storing raw, undecided) and the bands of the two costs
/// do not meet. Exits 0 when none changed, 1 when one did, 2 when a report is unusable.
#[derive(Debug, Args)]
pub struct CompareOptions {
    /// The earlier report, as `advise --json` wrote it
    #[arg(value_name = "BEFORE.json")]
    pub before: PathBuf,

    /// The later report
    #[arg(value_name = "AFTER.json")]
    pub after: PathBuf,

    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options that `pack`, `unpack` and `cat` share with `zstd`.
#[derive(Clone, Debug, Args)]
pub struct FileOptions {
    /// Files; standard input for - or without any
    #[arg(value_name = "FILE")]
    pub paths: Vec<PathBuf>,

    /// Write to standard output
    #[arg(short = 'c', long)]
    pub stdout: bool,

    /// Write to this file
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Overwrite files that exist
    #[arg(short, long)]
    pub force: bool,

    /// Keep the source, as is the default
    #[arg(short, long, overrides_with = "remove")]
    pub keep: bool,

    /// Remove the source when its copy is complete and synced
    #[arg(long = "rm", overrides_with = "keep")]
    pub remove: bool,

    /// Threads beside the one that reads or writes; 0 for one on each processor, the default
    #[arg(short = 'T', long, value_name = "N", value_parser = clap::value_parser!(u32))]
    pub threads: Option<u32>,

    /// Print no summary and no progress
    #[arg(short, long, overrides_with = "verbose")]
    pub quiet: bool,

    /// Say more, as on a terminal, and sum up streams to standard output as well
    #[arg(short, long, overrides_with = "quiet")]
    pub verbose: bool,

    #[command(flatten)]
    pub tree: TreeOptions,

    #[command(flatten)]
    pub habits: HabitOptions,
}

/// Inputs for costs in money.
#[derive(Clone, Debug, Args)]
pub struct MoneyOptions {
    /// How often the stream is read
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_amount)]
    pub reads: f64,

    /// Prices, in place of the program's own dated ones
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,
}

/// Options of `breakeven pack`.
#[derive(Debug, Args)]
pub struct PackOptions {
    #[command(flatten)]
    pub files: FileOptions,

    /// Compress all blocks alike: store, zstd:-7..22, with --mixed also lz4:1, lz4:a1..a65537,
    /// lz4hc:2..12, xz:0..9, delta1..256+xz
    #[arg(short, long, value_name = "METHOD", conflicts_with = "strategy")]
    pub method: Option<Method>,

    /// One frame by a level of zstd, 1 to 22, or -1 to -7 for the fast ones; also typed -1 to -22 and --fast=1 to 7
    #[arg(long, value_name = "N", conflicts_with_all = ["method", "strategy", "deterministic", "hint"],
        allow_negative_numbers = true, value_parser = parse_level)]
    pub level: Option<i8>,

    /// What to save: money (cheapest over the days kept), energy (fewest joules), smallest, fastest (earliest end),
    /// free (smallest in the time of storing raw), within:F (smallest in F times that). By default a file takes the
    /// cheapest form in the time of zstd's default level; a pipe, or a given link, takes fastest
    #[arg(long, value_name = "STRATEGY", value_parser = parse_strategy)]
    pub strategy: Option<Strategy>,

    /// The speed of the link (117MB/s, 10Gbit/s), or auto: measured as it is written to
    #[arg(long, value_name = "RATE", default_value = "auto", value_parser = parse_link)]
    pub link: Link,

    /// Parallel writer threads, for a file on several servers or disks, as on Lustre; the file is the same
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub links: u16,

    /// Write the same bytes every time, whatever the threads and the link: by built-in speeds, fixed prices, and the
    /// given link or 117MB/s
    #[arg(long, conflicts_with_all = ["method", "ledger"])]
    pub deterministic: bool,

    /// What you know of the bytes, or of LENGTH of them from OFFSET on: none (compressing is in vain), once (written
    /// once, then kept), hot or hot=READS (read often, 100 times by default), keep=DAYS, async=SHARE (of the time in
    /// which others want the processors). Give one or more
    #[arg(long, value_name = "[OFFSET+LENGTH:]HINT", value_parser = parse_hint)]
    pub hint: Vec<Hint>,

    /// Days the stream is kept, for its cost in money
    #[arg(long, value_name = "DAYS", default_value = "90", value_parser = parse_positive)]
    pub days: f64,

    #[command(flatten)]
    pub money: MoneyOptions,

    /// Print the earnings of packing against storing raw: seconds, core seconds, bytes, joules, money
    #[arg(long)]
    pub ledger: bool,

    /// Print the ledger as JSON
    #[arg(long, requires = "ledger")]
    pub json: bool,

    #[command(flatten)]
    pub frame: FrameOptions,

    /// zstd frames only, for libzstd and every zstd; the default
    #[arg(long, conflicts_with = "mixed")]
    pub portable: bool,

    /// lz4 and xz frames as well, for a zstd that is linked with both, as Debian's is
    #[arg(long)]
    pub mixed: bool,

    /// Decompress instead
    #[arg(short, long)]
    pub decompress: bool,

    /// Decompress and write nothing, to see whether the streams are whole
    #[arg(short, long)]
    pub test: bool,
}

/// Options of `breakeven unpack` and `breakeven cat`.
#[derive(Clone, Debug, Args)]
pub struct UnpackOptions {
    #[command(flatten)]
    pub files: FileOptions,

    /// Decompress, the default; `tar -I` passes this
    #[arg(short, long)]
    pub decompress: bool,

    /// Write nothing, to see whether the streams are whole
    #[arg(short, long)]
    pub test: bool,

    /// The largest window of a frame that is decoded in pieces
    #[arg(short = 'M', long, value_name = "BYTES", default_value = "128MiB", value_parser = parse_bytes)]
    pub window_max: u64,

    /// Stop with an error when a stream decodes to more than this
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub output_max: Option<u64>,

    /// Stop with an error when a stream decodes to more than N times its bytes, beyond the first MiB
    #[arg(long, value_name = "N", value_parser = parse_positive)]
    pub ratio_max: Option<f64>,

    /// Ignore bytes behind the last frame
    #[arg(long)]
    pub ignore_trailing: bool,
}

/// Options of `breakeven info`.
#[derive(Debug, Args)]
pub struct InfoOptions {
    /// Files
    #[arg(value_name = "FILE", required = true)]
    pub paths: Vec<PathBuf>,

    /// The largest window of an .xz stream, whose end only decoding finds
    #[arg(short = 'M', long, value_name = "BYTES", default_value = "128MiB", value_parser = parse_bytes)]
    pub window_max: u64,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `breakeven explain`.
///
/// For a file it shows the decisions of `pack`: it encodes blocks one by one, and simulates workers and link. It
/// decodes a stream, classifies its blocks again, and encodes some of each class by every method. It writes nothing.
#[derive(Debug, Args)]
pub struct ExplainOptions {
    /// A file to be packed, or a stream
    #[arg(value_name = "FILE")]
    pub path: PathBuf,

    /// For a file: the strategy, as for pack; without this and --link, that of pack into a file
    #[arg(long, value_name = "STRATEGY", value_parser = parse_strategy)]
    pub strategy: Option<Strategy>,

    /// For a file: the speed of the link (117MB/s, 10Gbit/s); by default 117MB/s where a strategy wants one
    #[arg(long, value_name = "RATE", value_parser = parse_link)]
    pub link: Option<Link>,

    /// For a file: workers; by default the processors of this machine
    #[arg(short = 'T', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Option<u32>,

    /// Days it is kept, for its cost in money
    #[arg(long, value_name = "DAYS", default_value = "90", value_parser = parse_positive)]
    pub days: f64,

    #[command(flatten)]
    pub money: MoneyOptions,

    /// Let lz4 and xz be picked and tried as well
    #[arg(long)]
    pub mixed: bool,

    /// For a stream: the largest window of a frame that is decoded in pieces
    #[arg(short = 'M', long, value_name = "BYTES", default_value = "128MiB", value_parser = parse_bytes)]
    pub window_max: u64,

    /// For a stream: seconds that trying all methods may take
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = parse_positive)]
    pub time: f64,

    /// Show all blocks, and not only the first of them
    #[arg(long)]
    pub all: bool,

    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of `breakeven repack`.
///
/// It decodes a stream and packs it again, at the least cost of storage and cores over the days. It compares both
/// byte by byte before the new one takes the place of the old. If it is not smaller, the old stream stays.
#[derive(Debug, Args)]
pub struct RepackOptions {
    /// Streams
    #[arg(value_name = "STREAM", required = true)]
    pub paths: Vec<PathBuf>,

    /// Days it will be kept
    #[arg(long, value_name = "DAYS", value_parser = parse_positive)]
    pub keep: f64,

    #[command(flatten)]
    pub money: MoneyOptions,

    /// Write to this file, - for standard output; in place unless given
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Overwrite the output if it exists
    #[arg(short, long)]
    pub force: bool,

    /// Use lz4 and xz as well, for a zstd that is linked with both; a stream that has such frames may use them anyway
    #[arg(long)]
    pub mixed: bool,

    /// The largest window of a frame that is decoded in pieces
    #[arg(short = 'M', long, value_name = "BYTES", default_value = "128MiB", value_parser = parse_bytes)]
    pub window_max: u64,

    /// Threads; 0 for one on each processor, the default
    #[arg(short = 'T', long, value_name = "N", value_parser = clap::value_parser!(u32))]
    pub threads: Option<u32>,

    /// Print no summary and no progress
    #[arg(short, long)]
    pub quiet: bool,
}

/// Options of `breakeven replay`.
///
/// Each key of the trace stands for a page of the data. Codecs run and are timed. A miss is charged, and really made
/// only with `--device`. The time of an access is that of misses, compressing, restoring and finding out; a raw hit
/// counts nothing.
#[derive(Debug, Args)]
pub struct ReplayOptions {
    /// Files whose pages are cached
    #[arg(value_name = "FILE", required = true)]
    pub data: Vec<PathBuf>,

    /// The trace, standard input for -; made-up accesses unless given
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,

    /// The trace's form: oracleGeneral, u32, u64, text (a key a line), csv (time, key, bytes)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TraceFormat,

    /// How unevenly made-up accesses fall: even, pareto or zipf:S
    #[arg(
        long,
        value_name = "SKEW",
        default_value = "zipf:0.9",
        value_parser = parse_skew,
        conflicts_with = "trace"
    )]
    pub skew: Access,

    /// Accesses to replay: the first N of a trace, by default all; of made-up ones by default 500000
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub accesses: Option<u64>,

    /// Seed of made-up accesses; the same one makes the same accesses
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "trace")]
    pub seed: u64,

    /// Size of a page
    #[arg(long, value_name = "BYTES", default_value = "8KiB", value_parser = parse_bytes)]
    pub page: u64,

    /// Memory of the cache; by default a quarter of the different pages asked for
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub memory: Option<u64>,

    /// Time of a miss: 73us, 1ms
    #[arg(long, value_name = "TIME", default_value = "73us", value_parser = parse_time)]
    pub miss: f64,

    /// Make the misses: read each page from its file, past the page cache, and count that time
    #[arg(long, conflicts_with = "miss")]
    pub device: bool,

    /// Cost of an access that the adaptive policy and the answer go by: time, energy or money
    #[arg(long, value_name = "WHAT", default_value = "time", value_parser = parse_metric)]
    pub prefer: breakeven::advise::Preference,

    /// For energy and money: the medium of a miss, for its watts: a preset (hdd, nvme, ...)
    #[arg(long, value_name = "MEDIUM", default_value = "nvme")]
    pub medium: Medium,

    /// For money: prices, in place of the program's own dated ones
    #[arg(long, value_name = "FILE")]
    pub prices: Option<PathBuf>,

    /// For energy and money: the machine's watts when idle and when all its cores are busy
    #[arg(long, value_name = "IDLE,BUSY", value_parser = parse_watts)]
    pub watts: Option<(f64, f64)>,

    /// Policies side by side: adaptive, raw-only, split:PERCENT[:METHOD][:again] (that share of memory compressed, by
    /// default by lz4:1; again: a full share takes only pages that were asked for again), expansion:FACTOR (enough
    /// compressed to hold FACTOR times the memory)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "raw-only,adaptive",
          value_parser = parse_policy)]
    pub policy: Vec<NamedPolicy>,

    /// Print JSON
    #[arg(long)]
    pub json: bool,

    /// Write the replay as one page with pictures, for which it also replays sixteen fixed splits; the page needs no
    /// network
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

/// A policy of the cache with its typed name.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedPolicy {
    /// The typed text.
    pub name: String,
    /// Its meaning.
    pub policy: Policy,
    /// The one method of a split, where the cache lacks it by default.
    pub method: Option<Method>,
}

/// An argument without a meaning: exit code 2, as for arguments that the table itself refuses.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

fn parse_level(text: &str) -> Result<i8, String> {
    let level = text.parse::<i8>().ok();
    let level = level.filter(|level| (-7..=22).contains(level) && *level != 0);
    level.ok_or_else(|| "expected 1 to 22, or -1 to -7".to_string())
}

/// A link's speed, if it was given.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link(pub Option<BytesPerSecond>);

fn parse_link(text: &str) -> Result<Link, String> {
    if text == "auto" {
        return Ok(Link(None));
    }
    let rate = parse_rate(text).map_err(|error| format!("{error}, or auto"))?;
    Ok(Link(Some(BytesPerSecond(rate))))
}

/// Reads for each write of a hint `hot` without a number.
const HOT_READS: f64 = 100.0;

fn parse_hint(text: &str) -> Result<Hint, String> {
    let (range, advice) = match text.split_once(':') {
        Some((range, advice)) => (parse_place(range)?, advice),
        None => (0..u64::MAX, text),
    };
    let (name, value) = match advice.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (advice, None),
    };
    let number = |text: &str| {
        let number = text.trim_end_matches('d').parse::<f64>();
        number.map_err(|_| format!("{text} is no number, as in {name}=30"))
    };
    let advice = match (name, value) {
        ("none", None) => Advice::NoCompression,
        ("once", None) => Advice::WriteOnce,
        ("hot", None) => Advice::Hot {
            reads_per_write: HOT_READS,
        },
        ("hot", Some(reads)) => Advice::Hot {
            reads_per_write: number(reads)?,
        },
        ("keep", Some(days)) => Advice::Keep {
            days: number(days)?,
        },
        ("async", Some(share)) => Advice::Asynchronism {
            share: number(share)?,
        },
        _ => {
            return Err(
                "expected none, once, hot, hot=READS, keep=DAYS or async=SHARE".to_string(),
            );
        }
    };
    let hint = Hint::new(range, advice);
    match hint.advice() {
        Ok(_) => Ok(hint),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses an offset and a length, as in `0+1MiB`.
fn parse_place(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("{text}: expected an offset and a length, as in 1GiB+64MiB");
    let (offset, length) = text.split_once('+').ok_or_else(wrong)?;
    let offset = match offset {
        "0" => 0,
        offset => parse_bytes(offset)?,
    };
    let end = offset.checked_add(parse_bytes(length)?).ok_or_else(wrong)?;
    Ok(offset..end)
}

fn parse_amount(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("expected a number from 0 up".to_string()),
    }
}

fn parse_positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 => Ok(number),
        _ => Err("expected a number above 0".to_string()),
    }
}

/// Reads the metric of an access; space is no cost of one.
fn parse_metric(text: &str) -> Result<breakeven::advise::Preference, String> {
    use breakeven::advise::Preference::{Energy, Money, Time};
    let found = [Time, Energy, Money]
        .into_iter()
        .find(|of| of.name() == text);
    found.ok_or_else(|| "expected time, energy or money".to_string())
}

fn parse_skew(text: &str) -> Result<Access, String> {
    let expected = "expected even, pareto or zipf:S with S from 0 to 100";
    text::access(text).ok_or_else(|| expected.to_string())
}

fn parse_pipeline(text: &str) -> Result<usize, String> {
    let count = text
        .parse::<usize>()
        .ok()
        .filter(|count| (1..=1000).contains(count));
    count.ok_or_else(|| "expected a number from 1 to 1000".to_string())
}

fn parse_connections(text: &str) -> Result<usize, String> {
    let count = text
        .parse::<usize>()
        .ok()
        .filter(|count| (1..=10_000).contains(count));
    count.ok_or_else(|| "expected a number from 1 to 10000".to_string())
}

fn parse_offload(text: &str) -> Result<Offload, String> {
    let devices = || PROFILES.iter().chain([&FREE_COMPRESSION]);
    let device = devices().find(|device| device.name == text);
    device.copied().ok_or_else(|| {
        let names: Vec<&str> = devices().map(|device| device.name).collect();
        format!("expected {}", names.join(", "))
    })
}

/// Reads a time in seconds.
fn parse_time(text: &str) -> Result<f64, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let found = units.iter().find_map(|(unit, seconds)| {
        Some((
            text.strip_suffix(unit)?.trim().parse::<f64>().ok()?,
            seconds,
        ))
    });
    match found {
        Some((number, seconds)) if number.is_finite() && number >= 0.0 => Ok(number * seconds),
        _ => Err("expected a number with ns, us, ms or s, such as 73us".to_string()),
    }
}

/// Reads a policy of the cache.
pub fn parse_policy(text: &str) -> Result<NamedPolicy, String> {
    let expected = "expected adaptive, raw-only, split:PERCENT[:METHOD][:again], 0 to 95 percent, or expansion:FACTOR";
    let (kind, rest) = match text.split_once(':') {
        Some((kind, rest)) => (kind, Some(rest)),
        None => (text, None),
    };
    let mut method = None;
    let policy = match (kind, rest) {
        ("adaptive", None) => Policy::Adaptive,
        ("raw-only", None) => Policy::RawOnly,
        ("expansion", Some(factor)) => {
            Policy::Expansion(parse_positive(factor).map_err(|_| expected)?)
        }
        ("split", Some(rest)) => {
            let (rest, admits_once) = match rest.strip_suffix(":again") {
                Some(rest) => (rest, false),
                None => (rest, true),
            };
            let (percent, named) = rest.split_once(':').unwrap_or((rest, "lz4"));
            let percent = percent.parse::<f64>().ok();
            let percent = percent.filter(|it| (0.0..=95.0).contains(it));
            let compressed_share = percent.ok_or(expected)? / 100.0;
            let number;
            (number, method) = parse_split_method(named)?;
            Policy::Static(Arm {
                compressed_share,
                method: number,
                admits_once,
            })
        }
        _ => return Err(expected.to_string()),
    };
    let name = text.to_string();
    Ok(NamedPolicy {
        name,
        policy,
        method,
    })
}

/// Reads the method of a split: one that the cache has anyway, which needs no level, or another one.
fn parse_split_method(text: &str) -> Result<(u8, Option<Method>), String> {
    let own = ShardOptions::default().methods;
    let short = |of: &Method| of.to_string().split(':').next() == Some(text);
    let found = match own.iter().find(|of| short(of)) {
        Some(found) => *found,
        None => text.parse().map_err(|error| format!("{error}"))?,
    };
    if found == Method::STORE {
        return Err("store compresses nothing, as raw-only does".to_string());
    }
    match own.iter().position(|of| *of == found) {
        Some(number) => Ok((number as u8, None)),
        None => Ok((0, Some(found))),
    }
}

fn parse_range(text: &str) -> Result<(f64, f64), String> {
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok(number),
        _ => Err("expected a number from 0 up, or two with '..' between".to_string()),
    };
    let (low, high) = match text.split_once("..") {
        Some((low, high)) => (number(low)?, number(high)?),
        None => (number(text)?, number(text)?),
    };
    if low > high {
        return Err(format!("the range {text} runs backwards"));
    }
    Ok((low, high))
}

fn parse_watts(text: &str) -> Result<(f64, f64), String> {
    let parts: Vec<_> = text
        .split(',')
        .map(|part| part.trim().parse::<f64>())
        .collect();
    match parts[..] {
        [Ok(idle), Ok(busy)] if idle >= 0.0 && busy >= idle && busy.is_finite() => Ok((idle, busy)),
        _ => Err("expected two numbers such as 40,95, the second not below the first".to_string()),
    }
}

fn parse_block_size(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(parse_bytes(text)?).ok();
    let bytes = bytes.filter(|bytes| BLOCK_BYTES.contains(bytes));
    bytes.ok_or_else(|| "expected 4KiB to 1MiB".to_string())
}

fn parse_page_size(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(parse_bytes(text)?).ok();
    let bytes = bytes.filter(|bytes| is_page_size(*bytes));
    bytes.ok_or_else(|| "expected a power of two from 4KiB to 128KiB".to_string())
}

/// Parses a size such as `4096`, `8KiB`, `1MB`, `16G` (the bare letter is binary).
fn parse_disk_block_size(text: &str) -> Result<u64, String> {
    let bytes = parse_bytes(text)?;
    match bytes.is_power_of_two() && (4096..=65536).contains(&bytes) {
        true => Ok(bytes),
        false => Err("expected a power of two from 4KiB to 64KiB".to_string()),
    }
}

pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        "t" | "tib" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        _ => {
            return Err(format!(
                "unit '{unit}': expected B, KiB, MiB, GiB, TiB, kB, MB, GB or TB"
            ));
        }
    };
    match number.parse::<f64>() {
        Ok(number) if (1.0..9e18).contains(&(number * factor)) => Ok((number * factor) as u64),
        _ => Err("expected a size of at least a byte, such as 16GiB".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use clap::builder::ValueParser;

    #[test]
    fn the_option_table_is_sound() {
        Options::command().debug_assert();
    }

    #[test]
    fn a_mistyped_value_is_refused_by_the_table() {
        let (of_text, of_path) = (ValueParser::string(), ValueParser::path_buf());
        let (mut refused, mut texts) = (0, Vec::new());
        for command in Options::command().get_subcommands() {
            let name = command.get_name();
            let options = command.get_opts().filter_map(|option| {
                let takes_value = option.get_action().takes_values();
                Some((option.get_long().filter(|_| takes_value)?, option))
            });
            for (long, option) in options {
                let kind = option.get_value_parser().type_id();
                if kind == of_text.type_id() {
                    texts.push(format!("{name} --{long}"));
                } else if kind != of_path.type_id() {
                    let typed = ["breakeven", name, &format!("--{long}=no such")];
                    let error = Options::try_parse_from(typed).expect_err(long);
                    let named = error.to_string().contains(&format!("'--{long}"));
                    let usage = error.use_stderr() && error.exit_code() == 2;
                    assert!(named && usage, "{name} --{long}: {error}");
                    refused += 1;
                }
            }
        }
        assert!(refused >= 45, "{refused} options");
        // Free text cannot be mistyped.
        let mut free = vec!["advise --memcached", "calibrate --meter"];
        if cfg!(feature = "vault") {
            free.push("vault --password-command");
        }
        assert_eq!(texts, free);
    }

    #[test]
    fn a_split_may_have_any_method() {
        let check = |text: &str, share: f64, number: u8, once: bool, method: Option<&str>| {
            let found = parse_policy(text).expect(text);
            let arm = Arm {
                compressed_share: share,
                method: number,
                admits_once: once,
            };
            assert_eq!(found.policy, Policy::Static(arm), "{text}");
            let method = method.map(|name| name.parse().expect("a method"));
            assert_eq!(found.method, method, "{text}");
        };
        check("split:50", 0.5, 0, true, None);
        check("split:50:again", 0.5, 0, false, None);
        check("split:80:zstd", 0.8, 1, true, None);
        check("split:80:zstd:1:again", 0.8, 1, false, None);
        check("split:80:lz4:1", 0.8, 0, true, None);
        check("split:12.5:zstd:3:again", 0.125, 0, false, Some("zstd:3"));
        check("split:50:lz4hc", 0.5, 0, true, Some("lz4hc:9"));
        for wrong in [
            "split",
            "split:",
            "split:96",
            "split:50:store",
            "split:50:lru",
            "split:50:zstd:99",
            "raw-only:1",
            "expansion",
            "expansion:0",
            "expansion:1:2",
        ] {
            assert!(parse_policy(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_and_ranges_are_parsed_or_refused() {
        for (text, expected) in [
            ("4096", Some(4096)),
            ("8KiB", Some(8192)),
            ("1.5MB", Some(1_500_000)),
            ("2g", Some(2 << 30)),
        ] {
            assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        }
        for text in ["", "x", "-1", "0", "0.5", "1 parsec", "1e30TiB", "1..2"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
        assert_eq!(parse_range("2..4"), Ok((2.0, 4.0)));
        assert_eq!(parse_range("5.6"), Ok((5.6, 5.6)));
        for text in ["4..2", "a", "-1", "1..inf", ""] {
            assert!(parse_range(text).is_err(), "{text}");
        }
        assert_eq!(parse_watts("40,95"), Ok((40.0, 95.0)));
        let keep = Hint::new(1 << 20..3 << 20, Advice::Keep { days: 30.0 });
        for text in ["1MiB+2MiB:keep=30d", "1048576+2097152:keep=30"] {
            assert_eq!(parse_hint(text), Ok(keep.clone()));
        }
        let all = Hint::new(0..u64::MAX, Advice::NoCompression);
        assert_eq!(parse_hint("none"), Ok(all));
        for text in [
            "",
            "cold",
            "keep",
            "keep=",
            "keep=-1",
            "keep=nan",
            "hot=",
            "none=1",
            "async=2",
            "0-5:none",
            "5:none",
            "0+0:none",
            "1+9e99:once",
        ] {
            assert!(parse_hint(text).is_err(), "{text}");
        }
        assert_eq!(parse_link("auto"), Ok(Link(None)));
        assert_eq!(parse_link("117MB/s"), Ok(Link(Some(BytesPerSecond(117e6)))));
        assert!(parse_link("fast").is_err());
        assert!(parse_watts("95,40").is_err() && parse_watts("1").is_err());
    }
}
