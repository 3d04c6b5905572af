//! Options for callers who type as for `zstd`, beside those it shares with our own: a part of the table of options.

use std::path::PathBuf;

use breakeven::frame::LongOptions;
use clap::Args;

use crate::options::parse_bytes;

/// The choice of files, beside the named ones, and of the folders of output: as `zstd` has them.
#[derive(Clone, Debug, Default, Args)]
pub struct TreeOptions {
    /// All files of the named folders, and of folders in them
    #[arg(short, long)]
    pub recursive: bool,

    /// Files named in this file, one a line
    #[arg(long, value_name = "FILE")]
    pub filelist: Vec<PathBuf>,

    /// Write all into this folder, by their last names
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "stdout"])]
    pub output_dir_flat: Option<PathBuf>,

    /// Write all into this folder, as far below it as they are named
    #[arg(long, value_name = "DIR", conflicts_with_all = ["output", "stdout", "output_dir_flat"])]
    pub output_dir_mirror: Option<PathBuf>,
}

/// Further habits of `zstd` that it changes on request.
#[derive(Clone, Debug, Default, Args)]
pub struct HabitOptions {
    /// List the frames of streams, as `info` does
    #[arg(short, long)]
    pub list: bool,

    /// Show no progress
    #[arg(long)]
    pub no_progress: bool,

    /// Unpack zeros as zeros, and leave no holes
    #[arg(long)]
    pub no_sparse: bool,

    /// Pass through data that is no stream, as -f does to standard output
    #[arg(long, overrides_with = "no_pass_through")]
    pub pass_through: bool,

    /// Refuse data that is no stream, whatever -f says
    #[arg(long, overrides_with = "pass_through")]
    pub no_pass_through: bool,

    /// Say nothing of errors either: the exit code tells them
    #[arg(long, hide = true)]
    pub silent: bool,

    /// Be called as `zstd`
    #[arg(long, hide = true)]
    pub as_zstd: bool,
}

/// The form of a long frame beside its level: as `zstd` has it.
#[derive(Clone, Debug, Args)]
pub struct FrameOptions {
    /// Look for far matches in a window of 2^N bytes, 10 to 31, by default 27; above 27 a reader needs --long, too
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "27",
        value_parser = clap::value_parser!(u32).range(10..=31))]
    pub long: Option<u32>,

    /// Leave out the check of the content
    #[arg(long, conflicts_with_all = ["method", "deterministic"])]
    pub no_check: bool,

    /// Bytes of content that one thread compresses at a time
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = parse_bytes)]
    pub job_size: Option<u64>,

    /// Let a small change of the content change little of the frame
    #[arg(long)]
    pub rsyncable: bool,

    /// Length of standard input in bytes; the frame states it
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    pub stream_size: Option<u64>,

    /// Leave out files with the endings of compressed files
    #[arg(long)]
    pub exclude_compressed: bool,

    /// With -d: the largest window of a frame that is decoded in pieces
    #[arg(short = 'M', long, value_name = "BYTES", default_value = "128MiB", value_parser = parse_bytes)]
    pub window_max: u64,
}

impl FrameOptions {
    /// Changes how a frame is made as far as that was typed.
    pub fn apply(&self, options: LongOptions) -> LongOptions {
        LongOptions {
            window_log: self.long.or(options.window_log),
            matches_far: self.long.is_some() || options.matches_far,
            has_check: !self.no_check,
            // libzstd takes the nearest of its possible values.
            job_bytes: (self.job_size).map_or(options.job_bytes, |bytes| {
                Some(bytes.clamp(512 << 10, 1 << 30) as u32)
            }),
            is_rsyncable: self.rsyncable,
            content_bytes: options.content_bytes.or(self.stream_size),
            ..options
        }
    }

    /// The same, but without a typed window, for which there may be no memory.
    pub fn apply_thriftily(&self, options: LongOptions) -> LongOptions {
        LongOptions {
            window_log: options.window_log,
            matches_far: options.matches_far,
            ..self.apply(options)
        }
    }
}
