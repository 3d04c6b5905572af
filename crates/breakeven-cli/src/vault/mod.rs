//! `breakeven vault`: opening it, the commands, and their output.

mod dump;
mod lists;
mod local_time;
mod look;
#[cfg(feature = "mount")]
mod mount;
mod options;
mod seen;
mod upkeep;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use breakeven::pool::{Pool, PoolOptions};
use breakeven::quoted::{quoted, quoted_bytes};
use breakeven::storage::RealStorage;
use breakeven::vault::{
    self, Added, Compression, Entropy, FarEnd, FolderEnd, PathPatterns, Preset, Progress,
    ReadFiles, Retention, Snapshot, SnapshotFilter, Source, Time, Vault, WriterOptions,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};

use crate::disk::Backup;
use crate::standard;
use breakeven_cli::text::size;
use local_time::{local, utc_offset};
pub use options::VaultOptions;
use options::{
    AddOptions, CollectOptions, FilterOptions, ForgetOptions, FromOptions, Prices, RestoreOptions,
    SnapshotPath, VaultCommand,
};

/// Lost files that `verify` names, some lines of a screen; `--json` has all.
const LOST_NAMED: usize = 10;
/// The exit code where a snapshot was made or restored except for some files.
const PARTIAL: u8 = 3;
/// How often the bar is redrawn.
const DRAWN_EVERY: Duration = Duration::from_millis(200);

/// The variables for options that are not typed.
const REPOSITORY: &str = "BREAKEVEN_REPOSITORY";
const PASSWORD_FILE: &str = "BREAKEVEN_PASSWORD_FILE";

/// Returns a variable that is not empty.
fn variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Runs a command of the vault.
pub fn run(options: &VaultOptions) -> Result<ExitCode> {
    match run_command(options) {
        Err(error) if error.is::<seen::Older>() => {
            standard::complain(error);
            Ok(ExitCode::from(seen::OLDER))
        }
        code => code,
    }
}

fn run_command(options: &VaultOptions) -> Result<ExitCode> {
    let repo = options.repo.clone().or_else(|| variable(REPOSITORY));
    let repo = repo.ok_or_else(|| {
        crate::options::Usage(format!("which vault? -r names it, or {REPOSITORY}"))
    })?;
    let repo = &repo;
    let (vault, code) = match &options.command {
        VaultCommand::Init { copy_cuts, from } => {
            return init(options, repo, copy_cuts.as_deref(), from);
        }
        VaultCommand::Copy {
            from_repo,
            snapshots,
            prices,
            from,
        } => {
            let source = open_other(options, from_repo, from)?;
            let writing = writer_options(options, *prices);
            let mut vault = open(options, repo)?;
            let code = upkeep::copy(options, &mut vault, &source, snapshots, writing)?;
            let code = upkeep::tell_damages(&source, code);
            let code = seen::end(options, from_repo, &source, code)?;
            let code = upkeep::tell_damages(&vault, code);
            (vault, code)
        }
        VaultCommand::Repair => {
            let mut vault = open_damaged(options, repo)?;
            seen::check(options, repo, &vault)?;
            let code = upkeep::repair(options, &mut vault)?;
            (vault, code)
        }
        VaultCommand::Verify { sample } => {
            let vault = open_damaged(options, repo)?;
            let code = verify(options, &vault, *sample)?;
            (vault, code)
        }
        #[cfg(feature = "mount")]
        VaultCommand::Mount(mount) => {
            let mut vault = open_damaged(options, repo)?;
            let code = mount::mount(options, &mut vault, mount)?;
            let code = upkeep::tell_damages(&vault, code);
            (vault, code)
        }
        #[cfg(not(feature = "mount"))]
        VaultCommand::Mount(_) => bail!(
            "this program is built without the feature `mount`; `make install` builds it with mounts"
        ),
        VaultCommand::List(_)
        | VaultCommand::Ls(_)
        | VaultCommand::Find(_)
        | VaultCommand::Diff(_)
        | VaultCommand::Dump(_)
        | VaultCommand::Restore(_)
        | VaultCommand::Stats => {
            let vault = open_damaged(options, repo)?;
            let code = read(options, &vault)?;
            let code = upkeep::tell_damages(&vault, code);
            (vault, code)
        }
        _ => {
            let mut vault = open(options, repo)?;
            let code = change(options, &mut vault).map_err(hint)?;
            let code = upkeep::tell_damages(&vault, code);
            (vault, code)
        }
    };
    seen::end(options, repo, &vault, code)
}

/// Runs a command that only reads; a damaged record does not stop it.
fn read(options: &VaultOptions, vault: &Vault) -> Result<ExitCode> {
    match &options.command {
        VaultCommand::Restore(restore) => run_restore(options, vault, restore),
        VaultCommand::List(filter) => list(options, vault, filter),
        VaultCommand::Ls(ls) => look::ls(options, vault, ls),
        VaultCommand::Find(find) => look::find(options, vault, find),
        VaultCommand::Diff(diff) => look::diff(options, vault, diff),
        VaultCommand::Dump(dump) => dump::dump(options, vault, dump),
        _ => stats(options, vault),
    }
}

/// Runs a command that changes the vault.
fn change(options: &VaultOptions, vault: &mut Vault) -> Result<ExitCode> {
    match &options.command {
        VaultCommand::Add(add) => run_add(options, vault, add),
        VaultCommand::Forget(forget) => run_forget(options, vault, forget),
        VaultCommand::Gc(collect) => run_collect(options, vault, collect),
        VaultCommand::Key { add, remove } => key(options, vault, add.as_deref(), remove.as_deref()),
        _ => upkeep::unlock(options, vault),
    }
}

/// Returns where a vault's objects lie.
fn far_end(options: &VaultOptions, repo: &Path) -> Result<Arc<dyn FarEnd>> {
    if let Some(address) = store_address(repo) {
        return store_of_objects(options, address);
    }
    let storage = RealStorage::open_folder(repo)?;
    Ok(FolderEnd::shared(Arc::new(storage)))
}

/// Returns the address of a vault that is not in a folder.
fn store_address(repo: &Path) -> Option<&str> {
    repo.to_str().filter(|it| it.starts_with("s3://"))
}

#[cfg(feature = "s3")]
fn store_of_objects(options: &VaultOptions, address: &str) -> Result<Arc<dyn FarEnd>> {
    let s3 = breakeven_vault::S3Options {
        endpoint: options.endpoint.as_ref().map(|it| it.0.clone()),
        ..breakeven_vault::S3Options::default()
    };
    Ok(breakeven_vault::open(address, &s3)?)
}

#[cfg(not(feature = "s3"))]
fn store_of_objects(_options: &VaultOptions, address: &str) -> Result<Arc<dyn FarEnd>> {
    bail!(
        "{address}: this program is built without stores of objects; `make install` builds it with them"
    )
}

fn init(
    options: &VaultOptions,
    repo: &Path,
    copy_cuts: Option<&Path>,
    from: &FromOptions,
) -> Result<ExitCode> {
    let other = copy_cuts
        .map(|other| open_other(options, other, from))
        .transpose()?;
    if store_address(repo).is_none() {
        // The folder is its owner's alone. Its objects belong to the group as far as the folder does.
        let mut own = DirBuilder::new();
        own.recursive(true).mode(0o700);
        let above = repo.parent().map_or(Ok(()), std::fs::create_dir_all);
        above
            .and_then(|()| own.create(repo))
            .with_context(|| format!("make {}", quoted(&repo)))?;
    }
    let far = far_end(options, repo)?;
    let password = password(options, true)?;
    let cost = vault::PasswordCost::default();
    let entropy = Entropy::system()?;
    match &other {
        Some(other) => Vault::init_like(far, other, &password, cost, entropy)?,
        None => Vault::init(
            far,
            vault::VaultOptions::default(),
            &password,
            cost,
            entropy,
        )?,
    };
    tell(
        options,
        &json!({ "made": repo.to_string_lossy() }),
        &format!("a vault is made in {}", quoted(&repo)),
    );
    Ok(ExitCode::SUCCESS)
}

fn open(options: &VaultOptions, repo: &Path) -> Result<Vault> {
    let far = far_end(options, repo)?;
    let password = password(options, false)?;
    let opened = Vault::open(far, &password, Entropy::system()?);
    let mut vault = opened.map_err(|error| hint(error.into()))?;
    seen::check(options, repo, &vault)?;
    vault.wait_for_turns(options.wait);
    Ok(vault)
}

/// Adds a hint to an error of damage.
fn hint(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref().is_some_and(vault::is_damage) {
        true => error.context(
            "the vault is damaged; `breakeven vault repair` says what is lost, and mends the rest",
        ),
        false => error,
    }
}

/// Opens a vault to read or repair it, as far as it can be read.
fn open_damaged(options: &VaultOptions, repo: &Path) -> Result<Vault> {
    let far = far_end(options, repo)?;
    let password = password(options, false)?;
    let mut vault = Vault::open_damaged(far, &password, Entropy::system()?)?;
    vault.wait_for_turns(options.wait);
    Ok(vault)
}

/// Opens a vault that is only read.
fn open_other(options: &VaultOptions, repo: &Path, from: &FromOptions) -> Result<Vault> {
    let password = match &from.from_password_file {
        Some(file) => first_line_of(file)?,
        None => password(options, false)?,
    };
    let vault = Vault::open(far_end(options, repo)?, &password, Entropy::system()?)?;
    seen::check(options, repo, &vault)?;
    Ok(vault)
}

fn password(options: &VaultOptions, is_new: bool) -> Result<Vec<u8>> {
    let named = options.password_file.clone();
    let named = named.or_else(|| match &options.password_command {
        Some(_) => None,
        None => variable(PASSWORD_FILE),
    });
    let output = match (named, &options.password_command) {
        (Some(file), _) => return first_line_of(&file),
        (None, Some(command)) => {
            let output = Command::new("sh")
                .args(["-c", command])
                .output()
                .context("run the password command")?;
            if !output.status.success() {
                bail!("the password command failed: {}", output.status);
            }
            output.stdout
        }
        (None, None) => {
            let terminal = console::Term::stderr();
            terminal.write_str("password of the vault: ")?;
            let password = terminal.read_secure_line()?;
            if is_new {
                terminal.write_str("once more: ")?;
                if terminal.read_secure_line()? != password {
                    bail!("the two passwords differ");
                }
            }
            password.into_bytes()
        }
    };
    first_line(output)
}

fn first_line_of(file: &Path) -> Result<Vec<u8>> {
    first_line(std::fs::read(file).with_context(|| format!("read {}", quoted(&file)))?)
}

fn first_line(mut bytes: Vec<u8>) -> Result<Vec<u8>> {
    let end = bytes
        .iter()
        .position(|byte| matches!(byte, b'\n' | b'\r'))
        .unwrap_or(bytes.len());
    bytes.truncate(end);
    match bytes.is_empty() {
        true => bail!("the password is empty"),
        false => Ok(bytes),
    }
}

/// Prints the facts as JSON, or for people.
fn tell(options: &VaultOptions, facts: &Value, text: &str) {
    let line = match options.json {
        true => facts.to_string(),
        false => text.to_string(),
    };
    standard::print(format!("{line}\n"));
}

/// Returns the time. A clock before 1970 is read to the second.
fn now() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(now) => Time {
            seconds: now.as_secs() as i64,
            nanoseconds: now.subsec_nanos(),
        },
        Err(before) => Time {
            seconds: -(before.duration().as_secs() as i64),
            nanoseconds: 0,
        },
    }
}

fn pool() -> Result<Pool> {
    Ok(Pool::new(PoolOptions::default())?)
}

fn writer_options(options: &VaultOptions, prices: Prices) -> WriterOptions {
    let preset = match prices {
        Prices::Fast => Preset::Fast,
        Prices::Default => Preset::Default,
        Prices::Best => Preset::Best,
    };
    WriterOptions {
        compression: Compression::Chosen(preset),
        index_bytes_max: options.index_memory << 20,
    }
}

/// A bar on a terminal, with bytes and time left where the whole is known.
struct Bar(ProgressBar);

impl Bar {
    fn new() -> Result<Bar> {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        bar.set_style(ProgressStyle::with_template(
            "{msg} {bytes}/{total_bytes} {wide_bar} {eta}",
        )?);
        standard::keep_drawing(&bar, DRAWN_EVERY);
        Ok(Bar(bar))
    }

    fn show(&self, progress: &Progress) {
        if progress.phase == vault::INDEX_PHASE {
            let (takes, may) = (progress.done >> 20, progress.total >> 20);
            let line = format!("the index takes {takes} MiB of memory now, and {may} at the most");
            return self.0.println(line);
        }
        self.0.set_message(progress.phase);
        self.0.set_length(progress.total.max(progress.done));
        self.0.set_position(progress.done);
    }
}

fn run_add(options: &VaultOptions, vault: &mut Vault, add: &AddOptions) -> Result<ExitCode> {
    let bar = Bar::new()?;
    let settings = vault::AddOptions {
        tags: add.tag.clone(),
        host: add.host.clone().unwrap_or_else(host),
        user: std::env::var("USER").unwrap_or_default(),
        excludes: lists::excludes(&add.excludes)?,
        excludes_caches: add.exclude_caches,
        one_file_system: add.one_file_system,
        rereads: add.force,
        ignores_ctime: add.ignore_ctime,
        ignores_inode: add.ignore_inode,
        is_trial: add.dry_run,
        now: now(),
        writer: writer_options(options, add.prices),
    };
    let added = match &add.disk {
        Some(disk) => add_disk(options, vault, disk, &settings, &bar)?,
        None => add_paths(vault, add, &settings, &bar)?,
    };
    bar.0.finish_and_clear();
    tell_added(options, add, &added);
    Ok(partial(&added.problems))
}

fn add_paths(
    vault: &mut Vault,
    add: &AddOptions,
    settings: &vault::AddOptions,
    bar: &Bar,
) -> Result<Added> {
    if !add.paths.iter().any(|path| path == Path::new("-")) {
        let named = lists::named(add)?;
        let show = &mut |progress: &Progress| bar.show(progress);
        let mut added = vault.add(&pool()?, &named.paths, settings, show)?;
        added.problems.extend(named.problems);
        return Ok(added);
    }
    let is_alone = add.paths.len() == 1 && add.files_from.is_empty() && add.files_from0.is_empty();
    if !is_alone {
        bail!("standard input is added by itself");
    }
    let name = add.stdin_filename.as_bytes();
    let added = vault.add_stream(&pool()?, name, &mut Stdin(standard::input()?), settings)?;
    Ok(added)
}

/// Adds a volume of a disk. The disk keeps the snapshot that the vault has then.
fn add_disk(
    options: &VaultOptions,
    vault: &mut Vault,
    disk: &Path,
    settings: &vault::AddOptions,
    bar: &Bar,
) -> Result<Added> {
    let pool = pool()?;
    // A damaged disk is no damaged vault.
    let opened = Backup::open(disk, settings.is_trial, options.wait);
    let mut backup = opened.map_err(|error| anyhow!("{}: {error:#}", quoted(&disk)))?;
    if let Some(reason) = backup.unwritable() {
        standard::complain(format_args!(
            "{}: {reason}; all of it is read, and the disk keeps no snapshot for the next add",
            quoted(&disk)
        ));
    }
    let (path, name) = (backup.path().to_path_buf(), backup.name().to_string());
    let show = &mut |progress: &Progress| bar.show(progress);
    let added = vault.add_disk(&pool, &path, &name, &mut backup, settings, show);
    let ended = backup.end(added.is_ok());
    if let Some(failure) = backup.failure() {
        bail!("{}: {failure}", quoted(&disk));
    }
    let mut added = added?;
    if let Err(error) = ended {
        let reason = format!("a snapshot of the last backup stays in the disk: {error}");
        added.problems.push((path, reason));
    }
    Ok(added)
}

fn tell_added(options: &VaultOptions, add: &AddOptions, added: &Added) {
    let snapshot = &added.snapshot;
    let facts = json!({
        "snapshot": added.epoch, "files": snapshot.files, "folders": snapshot.folders, "raw_bytes": snapshot.raw_bytes,
        "new_raw_bytes": snapshot.new_raw_bytes, "stored_bytes": snapshot.stored_bytes, "unchanged_files": added.unchanged_files,
        "shared_files": added.shared_files, "read_files": read_files(&added.read), "torn_files": added.torn_files, "disk_read_bytes": added.disk_read_bytes, "dry_run": add.dry_run, "index_bytes": added.index_bytes, "problems": problems(&added.problems),
    });
    let what = match add.dry_run {
        true => "would add".to_string(),
        false => format!("snapshot {}", added.epoch),
    };
    let found = match &add.disk {
        Some(_) => format!(
            "a volume of {} bytes, {} read",
            snapshot.raw_bytes, added.disk_read_bytes
        ),
        None => format!(
            "{} files ({} unchanged) in {} folders, {} bytes",
            snapshot.files, added.unchanged_files, snapshot.folders, snapshot.raw_bytes
        ),
    };
    let mut text = format!(
        "{what}: {found}, {} new, stored in {}",
        snapshot.new_raw_bytes, snapshot.stored_bytes
    );
    if let Some(line) = read_line(&added.read) {
        text.push('\n');
        text.push_str(&line);
    }
    tell(options, &facts, &text);
}

fn read_files(read: &ReadFiles) -> Value {
    json!({
        "new": read.new, "changed": read.changed, "ctime": read.ctime, "inode": read.inode, "young": read.young,
        "torn": read.torn, "lost": read.lost, "asked": read.asked,
    })
}

/// Explains why known files were read, if any were.
fn read_line(read: &ReadFiles) -> Option<String> {
    let reasons = [
        (read.changed, "of another size or time"),
        (read.ctime, "only for their ctime (--ignore-ctime)"),
        (read.inode, "only for their inode (--ignore-inode)"),
        (read.young, "changed within 2 s before that snapshot"),
        (read.torn, "changed while that one was made"),
        (read.lost, "whose content the vault lacks"),
    ];
    let reasons = reasons.iter().filter(|(count, _)| *count > 0);
    let reasons: Vec<_> = reasons
        .map(|(count, why)| format!("{count} {why}"))
        .collect();
    let known = "read again of the last snapshot's files";
    (!reasons.is_empty()).then(|| format!("{known}: {}", reasons.join(", ")))
}

fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

struct Stdin(File);

impl Source for Stdin {
    fn read(&mut self, buffer: &mut [u8]) -> breakeven::Result<usize> {
        let read = self.0.read(buffer);
        read.map_err(|error| breakeven::Error::io("read", standard::INPUT, error))
    }

    fn rewind(&mut self) -> breakeven::Result<bool> {
        Ok(false)
    }
}

fn problems(problems: &[(PathBuf, String)]) -> Value {
    let named = |(path, reason): &(PathBuf, String)| json!({ "path": path.to_string_lossy(), "reason": reason });
    problems.iter().map(named).collect()
}

fn partial(problems: &[(PathBuf, String)]) -> ExitCode {
    for (path, reason) in problems {
        standard::complain(format_args!("{}: {reason}", quoted(&path)));
    }
    match problems.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(PARTIAL),
    }
}

fn facts_of(epoch: u64, snapshot: &Snapshot) -> Value {
    let paths: Vec<_> = snapshot
        .paths
        .iter()
        .map(|path| String::from_utf8_lossy(path))
        .collect();
    json!({
        "snapshot": epoch, "seconds": snapshot.begun.seconds, "host": snapshot.host, "user": snapshot.user,
        "tags": snapshot.tags, "paths": paths, "files": snapshot.files, "raw_bytes": snapshot.raw_bytes,
        "new_raw_bytes": snapshot.new_raw_bytes, "stored_bytes": snapshot.stored_bytes, "has_attributes": snapshot.has_attributes,
    })
}

/// Returns the snapshots that are meant, oldest first.
fn filtered(vault: &Vault, options: &FilterOptions) -> Result<Vec<(u64, Snapshot)>> {
    let absolute = |path: &PathBuf| {
        let path = std::path::absolute(path).with_context(|| format!("find {}", quoted(&path)))?;
        Ok(path.into_os_string().into_vec())
    };
    let filter = SnapshotFilter {
        hosts: options.host.clone(),
        paths: options.path.iter().map(absolute).collect::<Result<_>>()?,
        tags: options.tag.clone(),
    };
    let mut snapshots = vault.snapshots()?;
    snapshots.retain(|(_, snapshot)| filter.matches(snapshot));
    Ok(snapshots)
}

/// Returns the typed snapshot; `latest` is the newest that the filter leaves.
fn resolve(vault: &Vault, typed: &SnapshotPath, filter: &FilterOptions) -> Result<(u64, Snapshot)> {
    match typed.number {
        Some(number) => Ok((number, vault.snapshot(number)?)),
        None => {
            let latest = filtered(vault, filter)?.pop();
            latest.context("there is no such snapshot")
        }
    }
}

fn patterns(typed: &[OsString]) -> PathPatterns {
    PathPatterns::new(typed.iter().map(|pattern| pattern.as_bytes().to_vec()))
}

fn list(options: &VaultOptions, vault: &Vault, filter: &FilterOptions) -> Result<ExitCode> {
    let snapshots = filtered(vault, filter)?;
    let facts: Value = snapshots
        .iter()
        .map(|(epoch, snapshot)| facts_of(*epoch, snapshot))
        .collect();
    let line = |(epoch, snapshot): &(u64, Snapshot)| {
        let paths = snapshot.paths.iter();
        let paths: Vec<_> = paths.map(|path| quoted_bytes(path).to_string()).collect();
        let line = format!(
            "{epoch:<4}  {}  {}  {:>8}  {}  {}",
            local(snapshot.begun),
            quoted(&snapshot.host),
            size(snapshot.raw_bytes as f64),
            paths.join(" "),
            quoted(&snapshot.tags.join(","))
        );
        line.trim_end().to_string()
    };
    let lines: Vec<String> = snapshots.iter().map(line).collect();
    tell(options, &facts, &lines.join("\n"));
    Ok(ExitCode::SUCCESS)
}

fn run_restore(
    options: &VaultOptions,
    vault: &Vault,
    restore: &RestoreOptions,
) -> Result<ExitCode> {
    let (epoch, _) = resolve(vault, &restore.snapshot, &restore.filter)?;
    let bar = Bar::new()?;
    let settings = vault::RestoreOptions {
        replaces: restore.overwrite,
        path: restore.snapshot.path.clone(),
        includes: patterns(&restore.include),
        excludes: lists::excludes(&restore.excludes)?,
        index_bytes_max: options.index_memory << 20,
        ..vault::RestoreOptions::default()
    };
    let restored = vault.restore(
        &pool()?,
        epoch,
        &restore.target,
        &settings,
        &mut |progress| bar.show(progress),
    )?;
    bar.0.finish_and_clear();
    let facts = json!({
        "snapshot": epoch, "files": restored.files, "folders": restored.folders, "bytes": restored.bytes,
        "torn_files": restored.torn_files, "has_attributes": restored.has_attributes, "problems": problems(&restored.problems),
    });
    let mut text = format!(
        "restored {} files of {} bytes",
        restored.files, restored.bytes
    );
    if restored.torn_files > 0 {
        text += &format!(
            "\n{} of them changed while they were added, and may be of several moments",
            restored.torn_files
        );
    }
    if !restored.has_attributes {
        text += "\nthe snapshot has no attributes, access control lists and capabilities: they were not kept when it was made";
    }
    tell(options, &facts, &text);
    Ok(partial(&restored.problems))
}

fn verify(options: &VaultOptions, vault: &Vault, sample: f64) -> Result<ExitCode> {
    let bar = Bar::new()?;
    let settings = vault::VerifyOptions {
        sample_share: sample,
        seed: now().nanoseconds.into(),
        index_bytes_max: options.index_memory << 20,
    };
    let verified = vault.verify(&pool()?, settings, &mut |progress| bar.show(progress))?;
    bar.0.finish_and_clear();
    let damages = verified.damages.iter();
    let damages: Value = damages
        .map(|it| json!({ "object": it.name, "reason": it.reason }))
        .collect();
    let facts = json!({
        "packs": verified.packs, "bytes": verified.bytes, "chunks": verified.chunks, "snapshots": verified.snapshots,
        "damages": damages, "lost": upkeep::lost(&verified.lost),
    });
    let text = format!(
        "read {} packs of {} bytes, {} chunks, followed {} snapshots: {} damages",
        verified.packs,
        verified.bytes,
        verified.chunks,
        verified.snapshots,
        verified.damages.len()
    );
    tell(options, &facts, &text);
    for damage in &verified.damages {
        standard::complain(format_args!("{}: {}", damage.name, damage.reason));
    }
    for (epoch, path) in verified.lost.iter().take(LOST_NAMED) {
        standard::complain(format_args!(
            "snapshot {epoch} has lost parts of {}",
            quoted(&path)
        ));
    }
    if let more @ 1.. = verified.lost.len().saturating_sub(LOST_NAMED) {
        standard::complain(format_args!(
            "{more} more files and folders have lost parts"
        ));
    }
    Ok(ExitCode::from(u8::from(!verified.damages.is_empty())))
}

fn run_forget(
    options: &VaultOptions,
    vault: &mut Vault,
    forget: &ForgetOptions,
) -> Result<ExitCode> {
    let rule = Retention {
        last: forget.keep_last,
        hourly: forget.keep_hourly,
        daily: forget.keep_daily,
        weekly: forget.keep_weekly,
        monthly: forget.keep_monthly,
        yearly: forget.keep_yearly,
        within_seconds: forget.keep_within.unwrap_or(0),
        tags: forget.keep_tag.clone(),
    };
    let snapshots = filtered(vault, &forget.filter)?;
    if !forget.unsafe_allow_remove_all
        && let Some(group) = rule.emptied(&snapshots, &utc_offset).first()
    {
        let host = quoted(&group.host);
        let paths = group.paths.iter();
        let paths: Vec<_> = paths.map(|path| quoted_bytes(path).to_string()).collect();
        let paths = paths.join(" ");
        bail!(
            "the rules keep no snapshot of {paths} on {host}, nothing was forgotten; `--dry-run --unsafe-allow-remove-all` shows what they would forget"
        );
    }
    let kept = rule.apply(&snapshots, &utc_offset);
    let gone = kept
        .iter()
        .filter(|it| it.reasons.is_empty())
        .map(|it| it.epoch);
    // A typed number may be one that the rules forget as well.
    let mut gone: BTreeSet<u64> = gone.collect();
    for typed in &forget.snapshots {
        gone.insert(resolve(vault, typed, &forget.filter)?.0);
    }
    let gone = Vec::from_iter(gone);
    if !gone.is_empty() && !forget.dry_run {
        vault.forget(&gone)?;
    }
    let facts = json!({ "forgotten": gone, "dry_run": forget.dry_run });
    let word = if forget.dry_run {
        "would forget"
    } else {
        "forgot"
    };
    tell(
        options,
        &facts,
        &format!(
            "{word} {} of {} snapshots: {gone:?}",
            gone.len(),
            kept.len()
        ),
    );
    Ok(ExitCode::SUCCESS)
}

fn run_collect(
    options: &VaultOptions,
    vault: &mut Vault,
    collect: &CollectOptions,
) -> Result<ExitCode> {
    let bar = Bar::new()?;
    let settings = writer_options(options, collect.prices);
    let plan = vault.plan_collection(&settings, collect.live_below, &mut |progress| {
        bar.show(progress)
    })?;
    let text = format!(
        "{} of {} packs are dead ({} bytes); of {} the live part moves: {} bytes to read, about {} to write and never more than {}",
        plan.dead_packs,
        plan.packs,
        plan.dead_bytes,
        plan.moved_packs,
        plan.read_bytes,
        plan.rewritten_bytes,
        plan.rewritten_bytes_most
    );
    let mut facts = json!({
        "packs": plan.packs, "dead_packs": plan.dead_packs, "dead_bytes": plan.dead_bytes, "moved_packs": plan.moved_packs,
        "bytes_to_read": plan.read_bytes, "bytes_live": plan.live_stored_bytes, "bytes_to_write": plan.rewritten_bytes, "bytes_to_write_at_most": plan.rewritten_bytes_most, "dry_run": collect.dry_run,
    });
    if collect.dry_run {
        bar.0.finish_and_clear();
        tell(options, &facts, &text);
        return Ok(ExitCode::SUCCESS);
    }
    bar.0.println(&text);
    let times @ (begun, _) = (now().seconds, i64::from(collect.grace) * 3600);
    let done = vault.collect(
        &pool()?,
        settings,
        times,
        collect.live_below,
        &mut |progress| bar.show(progress),
    )?;
    bar.0.finish_and_clear();
    facts["read_bytes"] = done.read_bytes.into();
    facts["written_bytes"] = done.written_bytes.into();
    facts["deleted_packs"] = done.deleted_packs.into();
    facts["waiting_packs"] = done.waiting_packs.into();
    facts["waiting_until"] = done.waiting_until.into();
    let mut text = format!(
        "{text}\nread {} bytes, wrote {}, deleted {} packs",
        done.read_bytes, done.written_bytes, done.deleted_packs
    );
    if done.waiting_packs > 0 {
        let hours = (done.waiting_until - begun) as f64 / 3600.0;
        text += &format!(
            "; {} wait for readers that began before: a gc in {hours:.1} hours deletes them",
            done.waiting_packs
        );
    }
    tell(options, &facts, &text);
    Ok(ExitCode::SUCCESS)
}

fn stats(options: &VaultOptions, vault: &Vault) -> Result<ExitCode> {
    let snapshots = vault.snapshots()?;
    let raw_bytes: u64 = snapshots.iter().map(|(_, it)| it.raw_bytes).sum();
    let bar = Bar::new()?;
    let stats = vault.stats(options.index_memory << 20, &mut |progress| {
        bar.show(progress)
    })?;
    bar.0.finish_and_clear();
    let stored_bytes = vault.stored_bytes()?;
    let saved = raw_bytes.saturating_sub(stats.needed_raw_bytes);
    let compressed = (stats.needed_raw_bytes).saturating_sub(stats.needed_stored_bytes);
    let facts = json!({
        "snapshots": snapshots.len(), "raw_bytes": raw_bytes, "needed_raw_bytes": stats.needed_raw_bytes,
        "needed_stored_bytes": stats.needed_stored_bytes, "unneeded_bytes": stats.unneeded_bytes, "waiting_packs": stats.waiting_packs,
        "stored_bytes": stored_bytes, "saved_by_deduplication": saved, "saved_by_compression": compressed, "chunks": stats.chunks, "index_bytes": stats.index_bytes,
    });
    let text = format!(
        "{} snapshots of {raw_bytes} bytes, {} without what repeats, which take {} compressed; the vault takes {stored_bytes}, metadata counted\n\
         deduplication saves {saved} bytes, compression {compressed}; {} bytes and {} packs that wait are needed by no snapshot, gc gives them back\n\
         the index of {} chunks takes {} bytes of memory",
        snapshots.len(),
        stats.needed_raw_bytes,
        stats.needed_stored_bytes,
        stats.unneeded_bytes,
        stats.waiting_packs,
        stats.chunks,
        stats.index_bytes
    );
    tell(options, &facts, &text);
    Ok(ExitCode::SUCCESS)
}

fn key(
    options: &VaultOptions,
    vault: &mut Vault,
    add: Option<&Path>,
    remove: Option<&str>,
) -> Result<ExitCode> {
    if let Some(file) = add {
        vault.add_password(&first_line_of(file)?, vault::PasswordCost::default())?;
    }
    if let Some(name) = remove {
        vault.remove_password(name)?;
    }
    let keys = vault.passwords(&password(options, false)?)?;
    let facts: Value = keys
        .iter()
        .map(|(name, opens)| json!({ "key": name, "is_this": opens }))
        .collect();
    let line = |(name, opens): &(String, bool)| {
        format!("{name}{}", if *opens { "  this password's" } else { "" })
    };
    let lines: Vec<String> = keys.iter().map(line).collect();
    tell(options, &facts, &lines.join("\n"));
    Ok(ExitCode::SUCCESS)
}
