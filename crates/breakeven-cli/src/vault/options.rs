//! The commands, options and arguments of `breakeven vault`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand, ValueEnum};

use super::local_time::parse_duration;

/// Options of `breakeven vault`.
///
/// A vault is a folder, or a part of a store of objects, that holds trees of files once, compressed and encrypted. It
/// exits 3 when a snapshot was made or restored but for some files, which are named, and 4 when the vault is in an
/// older state than this machine has seen.
#[derive(Debug, Args)]
pub struct VaultOptions {
    #[command(subcommand)]
    pub command: VaultCommand,

    /// The vault: a folder, or s3://BUCKET/PREFIX with the credentials and region of the AWS_* variables;
    /// BREAKEVEN_REPOSITORY names it as well
    #[arg(short = 'r', long, value_name = "VAULT", global = true)]
    pub repo: Option<PathBuf>,

    /// The server of s3:// vaults unless it is Amazon's: http://HOST:9000
    #[arg(long, value_name = "URL", value_parser = parse_endpoint, global = true)]
    pub endpoint: Option<Endpoint>,

    /// Read the password from the first line of this file, or of the one that BREAKEVEN_PASSWORD_FILE names; it is
    /// asked for unless given
    #[arg(short = 'p', long, value_name = "FILE", global = true)]
    pub password_file: Option<PathBuf>,

    /// Read the password from the first line that this shell command prints
    #[arg(
        long,
        value_name = "COMMAND",
        global = true,
        conflicts_with = "password_file"
    )]
    pub password_command: Option<String>,

    /// Memory that the index may take, in MiB: 32 bytes for each chunk
    #[arg(long, value_name = "MIB", default_value_t = 1024, global = true)]
    pub index_memory: u64,

    /// Take the vault as it is, though this machine has seen a newer state of it
    #[arg(long, global = true)]
    pub accept_older: bool,

    /// Wait so long for a writer to end, where another writes: 30s, 10m, 2h
    #[arg(long, value_name = "TIME", value_parser = parse_wait, default_value = "0s", global = true)]
    pub wait: Duration,

    /// Print JSON
    #[arg(long, global = true)]
    pub json: bool,
}

impl VaultCommand {
    /// Says whether it serves files, and prints a greeting at most.
    pub fn is_mount(&self) -> bool {
        matches!(self, VaultCommand::Mount(_))
    }
}

/// What to do with a vault.
#[derive(Debug, Subcommand)]
pub enum VaultCommand {
    /// Make a vault in a folder
    Init {
        /// Cut contents where this vault does, so that what is copied from there lies in the same chunks
        #[arg(long, value_name = "VAULT")]
        copy_cuts: Option<PathBuf>,
        #[command(flatten)]
        from: FromOptions,
    },
    /// Add a snapshot of files and folders
    Add(AddOptions),
    /// List the snapshots, oldest first
    List(FilterOptions),
    /// List what is in a snapshot
    Ls(LsOptions),
    /// Find files in all snapshots, newest first
    Find(FindOptions),
    /// Say how two snapshots differ: + new, - gone, M another content, T another kind, U other metadata
    Diff(DiffOptions),
    /// Write a file of a snapshot to standard output, or a folder as an archive
    Dump(DumpOptions),
    /// Restore a snapshot into a folder
    Restore(RestoreOptions),
    /// Mount snapshots as a read-only file system, until Ctrl-C or umount
    Mount(MountOptions),
    /// Read the vault and say what is damaged
    Verify {
        /// Read only this share of the packs, picked at random: 5%
        #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "100%")]
        sample: f64,
    },
    /// Forget snapshots; what only they needed is given back by gc
    Forget(ForgetOptions),
    /// Give back what no snapshot needs
    Gc(CollectOptions),
    /// Copy snapshots from another vault
    Copy {
        /// The vault to copy from
        #[arg(long, value_name = "VAULT")]
        from_repo: PathBuf,
        /// Numbers of snapshots there; all unless given
        #[arg(value_name = "SNAPSHOT")]
        snapshots: Vec<u64>,
        /// What trades time for space
        #[arg(long, value_name = "LIST", value_enum, default_value = "default")]
        prices: Prices,
        #[command(flatten)]
        from: FromOptions,
    },
    /// Drop what is damaged, save what is whole in it, and say what is lost
    Repair,
    /// Take the turn to write from a writer that is dead
    Unlock,
    /// Say what the vault holds and takes
    Stats,
    /// List, add or remove passwords
    Key {
        /// Add the password that this file's first line holds
        #[arg(long, value_name = "FILE", conflicts_with = "remove")]
        add: Option<PathBuf>,
        /// Remove a password by the name of its key
        #[arg(long, value_name = "KEY")]
        remove: Option<String>,
    },
}

/// The address of a server of S3: a type of its own, so that a mistyped one is no free text.
#[derive(Clone, Debug)]
pub struct Endpoint(pub String);

fn parse_endpoint(text: &str) -> Result<Endpoint, String> {
    let host = (text.strip_prefix("https://")).or_else(|| text.strip_prefix("http://"));
    match host.is_some_and(|host| !host.is_empty() && !host.contains(char::is_whitespace)) {
        true => Ok(Endpoint(text.to_string())),
        false => Err("expected http://HOST:PORT or https://HOST".to_string()),
    }
}

fn parse_wait(text: &str) -> Result<Duration, String> {
    let wrong = || "a time is a number with s, m or h".to_string();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

/// How another vault is opened.
#[derive(Debug, Args)]
pub struct FromOptions {
    /// Read that vault's password from the first line of this file; it is taken for the same unless given
    #[arg(long, value_name = "FILE")]
    pub from_password_file: Option<PathBuf>,
}

/// Which snapshots are meant.
#[derive(Debug, Default, Args)]
pub struct FilterOptions {
    /// Only snapshots of this machine; may be repeated
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Only snapshots of this path; of all, if repeated
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,
    /// Only snapshots with this tag; may be repeated
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
}

/// What trades time for space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Prices {
    /// Bytes count little
    Fast,
    /// Bytes are worth some time
    Default,
    /// Bytes count for years
    Best,
}

/// What is left out.
#[derive(Debug, Args)]
pub struct ExcludeOptions {
    /// Leave out what matches: * ? [a-z] and ** for any folders; may be repeated
    #[arg(short = 'e', long, value_name = "PATTERN")]
    pub exclude: Vec<OsString>,
    /// Leave out what the lines of this file match, but for empty ones and those with # in front; may be repeated
    #[arg(long, value_name = "FILE")]
    pub exclude_file: Vec<PathBuf>,
}

/// Options of `breakeven vault add`.
#[derive(Debug, Args)]
pub struct AddOptions {
    /// Files and folders; - adds standard input as one file
    #[arg(value_name = "PATH", required_unless_present_any = ["files_from", "files_from0", "disk"])]
    pub paths: Vec<PathBuf>,
    /// Add a volume of this disk of `breakeven disk`, the first unless named, and read only the blocks that changed
    /// since the last time
    #[arg(long, value_name = "DISK[:VOLUME]", conflicts_with_all = ["paths", "files_from", "files_from0"])]
    pub disk: Option<PathBuf>,
    /// Add also what the lines of this file name, - for standard input; may be repeated
    #[arg(long, value_name = "FILE")]
    pub files_from: Vec<PathBuf>,
    /// The same where NUL stands behind each name, as find -print0 has it
    #[arg(long, value_name = "FILE")]
    pub files_from0: Vec<PathBuf>,
    /// Tag the snapshot
    #[arg(long, value_name = "TAG")]
    pub tag: Vec<String>,
    #[command(flatten)]
    pub excludes: ExcludeOptions,
    /// Leave out folders with a CACHEDIR.TAG, but for the tag
    #[arg(long)]
    pub exclude_caches: bool,
    /// Leave out other file systems
    #[arg(short = 'x', long)]
    pub one_file_system: bool,
    /// Read every file, unchanged or not
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Do not read a file for another ctime alone, as a chmod of everything or hard links to it leave
    #[arg(long)]
    pub ignore_ctime: bool,
    /// Do not read a file for another inode and ctime, as a copy of the tree or a snapshot of a file system has
    #[arg(long)]
    pub ignore_inode: bool,
    /// Name this machine so
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// The name of the file that standard input becomes
    #[arg(long, value_name = "NAME", default_value = "stdin")]
    pub stdin_filename: String,
    /// What trades time for space
    #[arg(long, value_name = "LIST", value_enum, default_value = "default")]
    pub prices: Prices,
    /// Only say what would be stored
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// Options of `breakeven vault restore`.
#[derive(Debug, Args)]
pub struct RestoreOptions {
    /// The snapshot's number, or latest: the youngest of those that --host, --path and --tag leave; with :PATH what
    /// lies in that folder, or that file
    #[arg(value_name = "SNAPSHOT[:PATH]", value_parser = snapshot_path())]
    pub snapshot: SnapshotPath,
    /// The folder to restore into
    #[arg(short = 't', long, value_name = "FOLDER")]
    pub target: PathBuf,
    /// Replace files that exist; they are kept unless this is given
    #[arg(long)]
    pub overwrite: bool,
    /// Restore only what matches, and the folders it lies in; may be repeated
    #[arg(short = 'i', long, value_name = "PATTERN")]
    pub include: Vec<OsString>,
    #[command(flatten)]
    pub excludes: ExcludeOptions,
    #[command(flatten)]
    pub filter: FilterOptions,
}

/// Options of `breakeven vault mount`.
#[derive(Debug, Args)]
pub struct MountOptions {
    /// The folder to mount at
    #[arg(value_name = "FOLDER")]
    pub target: PathBuf,
    /// Mount this snapshot, or this folder of it; unless given all snapshots, by number and by time
    #[arg(value_name = "SNAPSHOT[:PATH]", value_parser = snapshot_path())]
    pub snapshot: Option<SnapshotPath>,
    /// Let other users in as well, as far as the modes of the files let them
    #[arg(long)]
    pub allow_other: bool,
    /// Memory for decoded files, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    pub cache_memory: u64,
    #[command(flatten)]
    pub filter: FilterOptions,
}

/// A snapshot as it is typed, and what of it is meant.
#[derive(Clone, Debug)]
pub struct SnapshotPath {
    /// Its number; the latest unless given.
    pub number: Option<u64>,
    /// A path in it, `/` unless given.
    pub path: Vec<u8>,
}

fn snapshot_path() -> impl TypedValueParser<Value = SnapshotPath> {
    OsStringValueParser::new().try_map(|typed| parse_snapshot_path(typed.as_bytes()))
}

fn forgotten(typed: &str) -> Result<SnapshotPath, String> {
    let snapshot = parse_snapshot_path(typed.as_bytes())?;
    match typed.contains(':') {
        true => Err("a snapshot is forgotten as a whole".to_string()),
        false => Ok(snapshot),
    }
}

fn parse_snapshot_path(typed: &[u8]) -> Result<SnapshotPath, String> {
    let colon = typed.iter().position(|byte| *byte == b':');
    let (name, path) = match colon {
        Some(at) => (&typed[..at], &typed[at + 1..]),
        None => (typed, &b"/"[..]),
    };
    let number = match name {
        b"latest" => None,
        name => {
            let number = std::str::from_utf8(name)
                .ok()
                .and_then(|it| it.parse().ok());
            Some(number.ok_or("a snapshot is a number, or latest")?)
        }
    };
    Ok(SnapshotPath {
        number,
        path: path.to_vec(),
    })
}

/// How entries of snapshots are printed.
#[derive(Debug, Args)]
pub struct ListingOptions {
    /// Print kind and mode, owner, group, bytes and time of change as well
    #[arg(short = 'l', long)]
    pub long: bool,
    /// Print names as they are, each followed by NUL
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"])]
    pub null: bool,
}

/// Options of `breakeven vault ls`.
#[derive(Debug, Args)]
pub struct LsOptions {
    /// The snapshot's number, or latest; with :PATH only what lies in that folder, with paths from there
    #[arg(value_name = "SNAPSHOT[:PATH]", value_parser = snapshot_path(), default_value = "latest")]
    pub snapshot: SnapshotPath,
    #[command(flatten)]
    pub listing: ListingOptions,
    #[command(flatten)]
    pub filter: FilterOptions,
}

/// Options of `breakeven vault find`.
#[derive(Debug, Args)]
pub struct FindOptions {
    /// What to find: a name, or a path from the end or, with a / in front, from the root; * ? [a-z] and ** as in
    /// excludes
    #[arg(value_name = "PATTERN", required = true)]
    pub patterns: Vec<OsString>,
    /// Look only into this snapshot, or what lies in this folder of it; may be repeated
    #[arg(short = 's', long, value_name = "SNAPSHOT[:PATH]", value_parser = snapshot_path())]
    pub snapshot: Vec<SnapshotPath>,
    #[command(flatten)]
    pub listing: ListingOptions,
    #[command(flatten)]
    pub filter: FilterOptions,
}

/// Options of `breakeven vault diff`.
#[derive(Debug, Args)]
pub struct DiffOptions {
    /// The snapshot before, or a folder of it
    #[arg(value_name = "SNAPSHOT[:PATH]", value_parser = snapshot_path())]
    pub before: SnapshotPath,
    /// The snapshot after, or a folder of it
    #[arg(value_name = "SNAPSHOT[:PATH]", value_parser = snapshot_path())]
    pub after: SnapshotPath,
    /// Name also what has only another mode, owner, time or attribute
    #[arg(long)]
    pub metadata: bool,
}

/// Options of `breakeven vault dump`.
#[derive(Debug, Args)]
pub struct DumpOptions {
    /// The snapshot's number, or latest; with :PATH that folder or file of it
    #[arg(value_name = "SNAPSHOT[:PATH]", value_parser = snapshot_path())]
    pub snapshot: SnapshotPath,
    /// A file, or a folder that becomes an archive
    #[arg(value_name = "PATH", default_value = "/")]
    pub path: PathBuf,
    /// What a folder becomes
    #[arg(
        short = 'a',
        long,
        value_name = "KIND",
        value_enum,
        default_value = "tar"
    )]
    pub archive: Archive,
    #[command(flatten)]
    pub filter: FilterOptions,
}

/// Kinds of archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Archive {
    /// With extended attributes, hard links and times below a second, as GNU tar reads them
    Tar,
}

/// Options of `breakeven vault forget`.
#[derive(Debug, Args)]
pub struct ForgetOptions {
    /// Numbers of snapshots to forget, or latest
    #[arg(value_name = "SNAPSHOT", value_parser = forgotten)]
    pub snapshots: Vec<SnapshotPath>,
    /// Keep the newest so many of each host and paths
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep_last: usize,
    /// Keep the newest of each of so many hours, in local time as all that follow
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep_hourly: usize,
    /// Keep the newest of each of so many days
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep_daily: usize,
    /// Keep the newest of each of so many weeks
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep_weekly: usize,
    /// Keep the newest of each of so many months
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep_monthly: usize,
    /// Keep the newest of each of so many years
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub keep_yearly: usize,
    /// Keep all that are at most so much older than the newest of each host and paths: 1y5m7d2h
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub keep_within: Option<i64>,
    /// Keep all with this tag
    #[arg(long, value_name = "TAG")]
    pub keep_tag: Vec<String>,
    #[command(flatten)]
    pub filter: FilterOptions,
    /// Forget all snapshots of a host and paths where the rules keep none of them
    #[arg(long)]
    pub unsafe_allow_remove_all: bool,
    /// Only say what would be forgotten
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

/// Options of `breakeven vault gc`.
#[derive(Debug, Args)]
pub struct CollectOptions {
    /// Move what is live out of packs of which less than this share is
    #[arg(long, value_name = "SHARE", value_parser = parse_share, default_value = "60%")]
    pub live_below: f64,
    /// Hours for which packs stay that nothing needs any more, for readers that began before
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub grace: u32,
    /// What trades time for space in what moves
    #[arg(long, value_name = "LIST", value_enum, default_value = "default")]
    pub prices: Prices,
    /// Only say what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,
}

fn parse_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let percent: f64 = number
        .parse()
        .map_err(|_| "a share is a number with %".to_string())?;
    match (0.0..=100.0).contains(&percent) {
        true => Ok(percent / 100.0),
        false => Err("a share lies from 0% to 100%".to_string()),
    }
}
