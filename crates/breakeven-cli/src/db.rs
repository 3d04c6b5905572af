//! `breakeven db`: compressed databases without SQLite. The source is only ever locked and read. The output gets its
//! name when it has been proved, and never replaces anything.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use breakeven::codec::Method;
use breakeven::pages::{
    Checked, Connection, FileKind, Foreseen, LockLevel, PageKind, PageOptions, PageStore, Space,
    Transferred, Unreadable, check, export, export_readable, file_kind, import, predict, repair,
};
use breakeven::pool::{Pool, PoolOptions};
use breakeven::quoted::quoted;
use breakeven::storage::{OpenOptions, RealStorage, Storage};
use breakeven_cli::text;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::options::{DbCommand, Usage};
use crate::{environment, standard};

/// Runs a command on databases.
pub fn run(command: &DbCommand) -> Result<ExitCode> {
    match command {
        DbCommand::Create { database, codec } => create(database, codec.as_deref()),
        DbCommand::Import {
            source,
            database,
            codec,
            if_smaller,
        } => bring_in(source, database, codec.as_deref(), *if_smaller),
        DbCommand::Export {
            database,
            target,
            skip_damaged,
        } => bring_out(database, target, *skip_damaged),
        DbCommand::Info { database, json } => look(database, *json, false),
        DbCommand::Compact { database, codec } => compact(database, codec.as_deref()),
        DbCommand::Fsck {
            database,
            repair,
            json,
        } => {
            let is_whole = !*repair || mend(database)?;
            let judged = look(database, *json, true)?;
            Ok(if is_whole { judged } else { ExitCode::FAILURE })
        }
    }
}

/// A file as the library names it: its folder, and its name in that folder.
struct Named {
    storage: Arc<dyn Storage>,
    name: String,
}

impl Named {
    fn new(path: &Path) -> Result<Named> {
        let (storage, name) = RealStorage::of_file(path)?;
        Ok(Named {
            storage: Arc::new(storage),
            name,
        })
    }

    /// Returns the permission bits of the file.
    fn mode(&self) -> Result<u32> {
        let file = self.storage.open(&self.name, OpenOptions::read_only())?;
        Ok(file.status()?.mode & 0o777)
    }

    /// Opens it as a compressed database that is only read.
    fn store(&self, mode: u32) -> Result<Arc<PageStore>> {
        self.store_with(PageOptions {
            is_read_only: true,
            mode,
            ..PageOptions::default()
        })
    }

    fn store_with(&self, options: PageOptions) -> Result<Arc<PageStore>> {
        let file = self.storage.open(&self.name, OpenOptions::read_only())?;
        let kind = file_kind(&*file)?;
        if kind != FileKind::Compressed {
            let found = match kind {
                FileKind::Plain => "a plain SQLite database",
                FileKind::Empty => "empty",
                _ => {
                    "something else. If its beginning was written over, copy it, and \
                     'breakeven db fsck --repair' looks for the rest"
                }
            };
            bail!(
                "{} is no compressed database: it is {found}",
                quoted(&file.path())
            );
        }
        Ok(Arc::new(PageStore::new(
            Arc::clone(&self.storage),
            &self.name,
            options,
        )))
    }
}

fn method_of(codec: Option<&str>) -> Result<Option<Method>> {
    let parse = |text: &str| -> breakeven::Result<Method> {
        let method: Method = text.parse()?;
        let options = PageOptions {
            method: Some(method),
            ..PageOptions::default()
        };
        options.check().map(|()| method)
    };
    let method = codec.map(parse).transpose();
    Ok(method.map_err(|error| Usage(error.to_string()))?)
}

fn options(codec: Option<&str>) -> Result<PageOptions> {
    Ok(PageOptions {
        method: method_of(codec)?,
        ..PageOptions::default()
    })
}

/// The progress of long work on a terminal, and the flag by which signals end it.
struct Shown {
    bar: ProgressBar,
    is_stopped: Arc<AtomicBool>,
}

impl Shown {
    fn new() -> Result<Shown> {
        Ok(Shown {
            is_stopped: environment::stop_at_signals()?,
            ..Shown::of_what_may_be_killed()
        })
    }

    /// Leaves Ctrl-C its usual effect, the end of the process.
    fn of_what_may_be_killed() -> Shown {
        let target = match io::stderr().is_terminal() {
            true => ProgressDrawTarget::stderr_with_hz(4),
            false => ProgressDrawTarget::hidden(),
        };
        let style = ProgressStyle::with_template("{bar:40} {percent} % {elapsed}, {eta} left");
        let bar = ProgressBar::with_draw_target(None, target);
        Shown {
            bar: bar.with_style(style.expect("a sound template")),
            is_stopped: Arc::default(),
        }
    }

    fn tell(&self, done: u64, total: u64) -> bool {
        self.bar.set_length(total);
        self.bar.set_position(done);
        !self.is_stopped.load(Ordering::Relaxed)
    }
}

fn create(database: &Path, codec: Option<&str>) -> Result<ExitCode> {
    let named = Named::new(database)?;
    match PageStore::create(&*named.storage, &named.name, options(codec)?) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => bail!("{} exists", quoted(&database)),
        Err(error) => Err(error).with_context(|| quoted(&database).to_string()),
    }
}

/// Meanwhile new data lies beside the old, so a crash or Ctrl-C loses nothing.
fn compact(database: &Path, codec: Option<&str>) -> Result<ExitCode> {
    let store = Named::new(database)?.store_with(PageOptions {
        clean_method: method_of(codec)?,
        ..PageOptions::compacting()
    })?;
    let mut connection = Connection::open(store)?;
    if !connection.lock(LockLevel::Exclusive)? {
        bail!("{} is in use", quoted(&database));
    }
    let before = connection.space()?;
    connection.trim()?;
    // Moving takes long, and a user in a hurry need not wait for it.
    let shown = Shown::of_what_may_be_killed();
    let rewritten = connection.rewrite(&mut |done, total| shown.tell(done, total));
    shown.bar.finish_and_clear();
    rewritten.with_context(|| quoted(&database).to_string())?;
    let after = connection.space()?;
    connection.unlock(LockLevel::None)?;
    say(&format!(
        "{}: {} of pages became {}, a file of {} one of {}",
        quoted(&database),
        size(before.stored_bytes),
        size(after.stored_bytes),
        size(before.file_bytes),
        size(after.file_bytes)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Predicts the result of importing a database from some of its bytes, unless it is stopped. Nothing is written.
pub fn foresee(source: &Path, bytes_max: u64, stop: &AtomicBool) -> Result<Foreseen> {
    let from = Named::new(source)?;
    let file = from.storage.open(&from.name, OpenOptions::read_only())?;
    let pool = Pool::new(PoolOptions::default())?;
    let go_on = &mut |_, _| !stop.load(Ordering::Relaxed);
    let options = PageOptions::default();
    Ok(predict(&*file, options, bytes_max, &pool, go_on)?)
}

fn bring_in(
    source: &Path,
    database: &Path,
    codec: Option<&str>,
    if_smaller: bool,
) -> Result<ExitCode> {
    let (from, to) = (Named::new(source)?, Named::new(database)?);
    let shown = Shown::new()?;
    let names = (from.name.as_str(), to.name.as_str());
    // A user who may not read the source may not read a copy of it.
    let target = PageOptions {
        mode: from.mode()?,
        ..options(codec)?
    };
    let target = (&to.storage, target);
    let pool = Pool::new(PoolOptions::default())?;
    let is_smaller = |moved: &Transferred| moved.space.file_bytes < moved.logical_bytes;
    let is_kept = |moved: &Transferred| !if_smaller || is_smaller(moved);
    let progress = &mut |done, total| shown.tell(done, total);
    let moved = import(&from.storage, names, target, &is_kept, &pool, progress);
    shown.bar.finish_and_clear();
    let moved = moved.with_context(|| quoted(&source).to_string())?;
    if !is_kept(&moved) {
        say(&format!(
            "{}: its {} would become {}; it is left as it is, and {} is not made",
            quoted(&source),
            size(moved.logical_bytes),
            size(moved.space.file_bytes),
            quoted(&database),
        ));
        return Ok(ExitCode::FAILURE);
    }
    say(&format!(
        "{}: {} became {}, {} of pages at {}; every page read again and compared",
        quoted(&database),
        size(moved.logical_bytes),
        size(moved.space.file_bytes),
        size(moved.space.stored_bytes),
        share(&moved.space),
    ));
    if !is_smaller(&moved) {
        say(&format!(
            "this does not pay: it takes {} more than before; --if-smaller leaves such a database as it is",
            size(moved.space.file_bytes - moved.logical_bytes)
        ));
    }
    if moved.was_wal {
        say("its header asked for a write-ahead log, and a compressed database has none");
    }
    Ok(ExitCode::SUCCESS)
}

fn bring_out(database: &Path, target: &Path, skips_damaged: bool) -> Result<ExitCode> {
    let (from, to) = (Named::new(database)?, Named::new(target)?);
    let shown = Shown::new()?;
    let store = from.store(from.mode()?)?;
    let name = (&to.storage, to.name.as_str());
    let pool = Pool::new(PoolOptions::default())?;
    let progress = &mut |done, total| shown.tell(done, total);
    let moved = match skips_damaged {
        true => export_readable(store, name, &pool, progress),
        false => export(store, name, &pool, progress).map(|it| (it, Unreadable::default())),
    };
    shown.bar.finish_and_clear();
    let (moved, unreadable) = moved.with_context(|| quoted(&database).to_string())?;
    let logical = size(moved.logical_bytes);
    if unreadable.count > 0 {
        tell_unreadable(database, &unreadable);
        say(&format!("{}: {logical}, not all of it", quoted(&target)));
        return Ok(ExitCode::FAILURE);
    }
    say(&format!(
        "{}: {logical}; every page read again and compared",
        quoted(&target)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Names the parts of a copy that are zeros.
fn tell_unreadable(database: &Path, unreadable: &Unreadable) {
    let database = quoted(&database);
    for (start, why) in &unreadable.blocks {
        let end = start + unreadable.block_bytes;
        standard::complain(format_args!(
            "{database}: bytes {start} to {end} cannot be read: {why}; the copy has zeros there"
        ));
    }
    let others = unreadable.count - unreadable.blocks.len() as u64;
    if others > 0 {
        standard::complain(format_args!("{database}: and {others} blocks more"));
    }
}

/// Repairs a database or a disk that cannot be used, and prints the outcome on the standard error. Returns whether no
/// transaction is known to be lost.
pub fn mend(database: &Path) -> Result<bool> {
    let named = Named::new(database)?;
    let file = named.storage.open(&named.name, OpenOptions::read_only())?;
    if matches!(file_kind(&*file)?, FileKind::Plain | FileKind::Empty) {
        bail!("{} is not compressed", quoted(&database));
    }
    drop(file);
    let shown = Shown::new()?;
    let repaired = repair(&*named.storage, &named.name, &mut |done, total| {
        shown.tell(done, total)
    });
    shown.bar.finish_and_clear();
    let repaired = repaired.with_context(|| format!("{} cannot be repaired", quoted(&database)))?;
    let is_whole = repaired.fault.is_none() || !repaired.is_cut;
    match repaired.fault {
        None => standard::tell("nothing to repair"),
        Some(fault) => standard::tell(&format!(
            "{fault}\nrepaired: of {} states that were found it has the newest that can be read, of transaction {}; {}",
            repaired.states,
            repaired.commit,
            match repaired.is_cut {
                true => "transactions behind it are lost",
                false => "if there were others behind it, they are lost",
            }
        )),
    }
    Ok(is_whole)
}

fn look(database: &Path, is_json: bool, is_check: bool) -> Result<ExitCode> {
    let store = Named::new(database)?.store(0o644)?;
    let shown = Shown::new()?;
    let checked = check(store, &mut |done, total| shown.tell(done, total));
    shown.bar.finish_and_clear();
    let checked = checked.with_context(|| quoted(&database).to_string())?;
    match is_json {
        true => say(&serde_json::to_string_pretty(&json(&checked))?),
        false => say(&table(database, &checked, is_check)),
    }
    let is_bad = !checked.broken.is_empty() || checked.opened.may_lack;
    Ok(ExitCode::from(u8::from(is_bad)))
}

fn table(database: &Path, checked: &Checked, is_check: bool) -> String {
    let space = &checked.space;
    let mut lines = vec![
        format!(
            "{}: {} of database in {}",
            quoted(&database),
            size(space.logical_bytes),
            size(space.file_bytes)
        ),
        format!(
            "pages of {} bytes, compressed {} at {}",
            checked.page_bytes,
            size(space.stored_bytes),
            share(space)
        ),
    ];
    for (kind, count, bytes) in &checked.kinds {
        let raw = count * u64::from(checked.page_bytes);
        let per = raw as f64 / (*bytes).max(1) as f64;
        lines.push(format!(
            "  {:<14} {count:>9} pages  {:>9}  {per:.2}",
            name_of(*kind),
            size(*bytes)
        ));
    }
    for (page, why) in &checked.broken {
        lines.push(format!("page {page} cannot be read: {why}"));
    }
    if is_check && checked.broken.is_empty() {
        lines.push("every page is as it was written".into());
    }
    lines.extend(checked.opened.remarks().map(String::from));
    lines.join("\n")
}

fn json(checked: &Checked) -> serde_json::Value {
    let space = &checked.space;
    let kinds = checked.kinds.iter().map(|(kind, count, bytes)| {
        serde_json::json!({"kind": name_of(*kind), "pages": count, "stored_bytes": bytes})
    });
    let broken = checked
        .broken
        .iter()
        .map(|(page, why)| serde_json::json!({"page": page, "why": why}));
    serde_json::json!({
        "logical_bytes": space.logical_bytes,
        "stored_bytes": space.stored_bytes,
        "file_bytes": space.file_bytes,
        "allocated_bytes": space.allocated_bytes,
        "page_bytes": checked.page_bytes,
        "block_bytes": space.block_bytes,
        "kinds": kinds.collect::<Vec<_>>(),
        "broken": broken.collect::<Vec<_>>(),
        "remarks": checked.opened.remarks().collect::<Vec<_>>(),
    })
}

fn name_of(kind: PageKind) -> &'static str {
    match kind {
        PageKind::First => "first",
        PageKind::Interior => "interior",
        PageKind::TableLeaf => "table leaves",
        PageKind::IndexLeaf => "index leaves",
        PageKind::Other => "other",
    }
}

fn size(bytes: u64) -> String {
    text::size(bytes as f64)
}

/// Returns the ratio as text.
fn share(space: &Space) -> String {
    let ratio = space.logical_bytes as f64 / space.stored_bytes.max(1) as f64;
    format!("ratio {ratio:.2}")
}

fn say(line: &str) {
    standard::print(format!("{line}\n"));
}
