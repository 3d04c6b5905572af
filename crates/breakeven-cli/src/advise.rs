//! `breakeven advise`: gathers the setting, runs the library, prints the report.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use breakeven::advise::database::sqlite_page_bytes;
use breakeven::advise::population::{Population, special_kind};
use breakeven::advise::sample::{PAGE_BYTES, SampleOptions};
use breakeven::advise::{
    AdviseOptions, Preference, Progress, Setting, Trace, advise, default_data,
};
use breakeven::codec::Method;
use breakeven::medium::fio::{FIO_JSON_BYTES_MAX, FioJob, from_json};
use breakeven::medium::probe::{ProbeEvent, ProbeOptions, probe};
use breakeven::medium::{Direction, Medium, Pattern};
use breakeven::meter::{Clock, DeclaredWatts, EnergyMeter, EnergyOptions, Machine, MachineProfile};
use breakeven::model::Offload;
use breakeven::quoted::quoted;
use breakeven::units::{Estimate, Watts};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::environment;
use crate::learned;
use crate::options::{AdviseOptions as Typed, Preference as Typed_Preference};
use crate::page;
use crate::prices::PriceFile;
use crate::replay::read_trace;
use crate::standard;
use crate::terms::MEDIUM_ASSUMED;
use crate::{screen, small_objects, text};

/// A method that takes longer than this for a mebibyte is measured on a subsample.
const SLOW: [&str; 7] = [
    "lz4hc", "deflate", "zstd:9", "zstd:19", "bzip2", "xz", "delta",
];

/// Measured where an accelerator takes its format.
const DEFLATE: &str = "deflate:6";

/// Runs the command.
pub fn run(typed: &Typed) -> Result<ExitCode> {
    if typed.memcached.is_some() || typed.values.is_some() {
        return small_objects::run(typed);
    }
    let begun = Instant::now();
    let stop = environment::stop_at_interrupt()?;
    let time = Duration::from_secs_f64(typed.time.min(86_400.0));
    typed.report.as_deref().map(page::check).transpose()?;
    let bar = progress_bar();
    let trace = typed.trace.as_deref().map(|path| {
        let (name, keys) = read_trace(path, typed.format)?;
        ensure!(!keys.is_empty(), "trace {name}: no access");
        Ok(Trace::new(name, keys))
    });
    let trace = trace.transpose()?;
    let prices = PriceFile::load(typed.prices.as_deref())?;
    check_paths(&typed.paths)?;
    bar.set_message("looking at the files");
    // Where there is nothing to advise on, nothing is written to measure the medium.
    let population = match typed.paths.as_slice() {
        [] => default_data::gather()?,
        paths => Population::walk(paths, time / 6, typed.seed)?,
    };
    let (medium, of_medium) =
        choose_medium(typed, (probe_time(time), population.bytes()), &stop, &bar)?;
    let mut setting = gather_setting(typed, prices, medium)?;
    let of_paths = of_paths(typed, time / 6, &stop, &bar);
    let time_left = time.saturating_sub(begun.elapsed());
    let options = AdviseOptions {
        trace,
        ..resolve(typed, &setting, time_left)
    };
    let mut shown = Shown {
        bar: bar.clone(),
        headline: String::new(),
        next: Instant::now() + Duration::from_secs(1),
    };
    let mut report = advise(
        &population,
        &options,
        &mut setting,
        &stop,
        &mut |progress| shown.show(progress),
    )?;
    report
        .notes
        .splice(..0, of_medium.into_iter().chain(of_paths));
    bar.finish_and_clear();
    learned::keep(&setting.profile, &setting.machine, false);
    let text = if typed.json {
        serde_json::to_string_pretty(&report).context("write the report")? + "\n"
    } else if typed.all {
        text::render(&report)
    } else {
        screen::render(&report)
    };
    // The page comes first: a user who has read enough of the text still wants it.
    if let Some(path) = &typed.report {
        page::write_report(path, &report)?;
    }
    crate::standard::print(&text);
    Ok(ExitCode::SUCCESS)
}

/// Reports missing or wrong files before anything is measured.
fn check_paths(paths: &[PathBuf]) -> Result<()> {
    for path in paths {
        // A missing path or a device is reported before the probe of another folder makes the user wait.
        let context = || format!("look at {}", quoted(&path));
        let metadata = path.metadata().with_context(context)?;
        if let Some(kind) = special_kind(&metadata) {
            bail!("{} is a {kind}, not a file or folder", quoted(&path));
        }
    }
    Ok(())
}

/// Finds out about the machine.
fn gather_setting(typed: &Typed, prices: PriceFile, medium: Medium) -> Result<Setting> {
    let mut machine = Machine::of_this_process();
    let power = choose_power(typed.watts, &machine)?;
    machine.idle_power = Some(power.idle_power());
    Ok(Setting {
        profile: learned::load(&machine),
        machine,
        power: power.model().clone(),
        power_notes: power.notes().to_vec(),
        medium,
        link: typed.link.clone(),
        prices: prices.prices,
        prices_date: prices.date,
        priced_machine_threads: prices.machine_threads,
        offload: typed.offload,
    })
}

/// Resolves the typed options to values for this machine.
fn resolve(typed: &Typed, setting: &Setting, time_left: Duration) -> AdviseOptions {
    let (low, high) = typed.reads;
    let mut sample = SampleOptions {
        seed: typed.seed,
        // The last measurement may overrun, and the verdicts want a moment.
        time_limit: time_left.mul_f64(0.8),
        block_bytes: typed.block_size,
        allocation_unit_bytes: setting.medium.allocation_unit_bytes,
        ..SampleOptions::default()
    };
    let takes_deflate = |device: &Offload| device.formats.contains(&"deflate");
    if typed.offload.as_ref().is_some_and(takes_deflate) {
        sample.slow.push(DEFLATE.parse().expect("a method's text"));
    }
    if !typed.methods.is_empty() {
        let slow = |method: &&Method| {
            let text = method.to_string();
            SLOW.iter().any(|slow| text.starts_with(slow))
        };
        let methods = typed.methods.iter();
        sample.slow = methods.clone().filter(slow).copied().collect();
        sample.cheap = methods.filter(|method| !slow(method)).copied().collect();
    }
    AdviseOptions {
        sample,
        time_limit: Some(time_left),
        reads_per_write: Estimate {
            mean: (low + high) / 2.0,
            low,
            high,
        },
        days_kept: typed.days,
        preference: match typed.prefer {
            Typed_Preference::Money => Preference::Money,
            Typed_Preference::Time => Preference::Time,
            Typed_Preference::Energy => Preference::Energy,
            Typed_Preference::Space => Preference::Space,
        },
        threads: typed.threads.unwrap_or(setting.machine.threads.max(1)),
        page_bytes: page_bytes(typed).0,
        memory_bytes: typed.memory,
        data_bytes: typed.data,
        access: typed.skew,
        trace: None,
    }
}

/// The first SQLite database that was named, and the bytes of its pages.
fn database(typed: &Typed) -> Option<(&Path, usize)> {
    let paths = typed.paths.iter();
    paths
        .map(PathBuf::as_path)
        .find_map(|path| Some((path, sqlite_page_bytes(path)?)))
}

/// The notes on the named databases and images, found out in the time that there is.
fn of_paths(typed: &Typed, time: Duration, stop: &AtomicBool, bar: &ProgressBar) -> Vec<String> {
    let until = Instant::now() + time;
    let mut notes: Vec<String> = page_bytes(typed).1.into_iter().collect();
    let left = || until.saturating_duration_since(Instant::now());
    for (at, path) in typed.paths.iter().enumerate() {
        bar.set_message(format!("looking at {}", quoted(&path)));
        // Each path has its part of the rest.
        let paths_left = (typed.paths.len() - at) as u32;
        let is_database = database(typed).is_some_and(|(named, _)| named == path);
        if is_database {
            notes.extend(foreseen(path, left() / (paths_left + 1), stop));
        }
        let foretold = as_much_as_fits(path, left() / paths_left, |bytes_max| {
            crate::disk::foretold(path, bytes_max)
        });
        notes.extend(foretold);
    }
    notes
}

/// Bytes of a database or an image that are looked at first, to see how long the rest would take.
const FORESEEN_BYTES_MIN: u64 = 4 << 20;
/// The most bytes of it that are looked at: more of them tell little more.
const FORESEEN_BYTES_MAX: u64 = 64 << 20;

/// Looks at as many bytes of a file as fit into the time, and always at some.
fn as_much_as_fits<T>(path: &Path, time: Duration, look: impl Fn(u64) -> Option<T>) -> Option<T> {
    let file_bytes = path.metadata().ok()?.len();
    let begun = Instant::now();
    let first = look(FORESEEN_BYTES_MIN)?;
    let took = begun.elapsed();
    let times = time.saturating_sub(took).as_secs_f64() / took.as_secs_f64().max(1e-9);
    let bytes = (times.min(1e6) * FORESEEN_BYTES_MIN as f64) as u64;
    let bytes = bytes.min(FORESEEN_BYTES_MAX) >> 20 << 20;
    match bytes.min(file_bytes) > FORESEEN_BYTES_MIN {
        true => look(bytes),
        false => Some(first),
    }
}

/// The predicted size of a SQLite database as a compressed one; `None` where it is unknown or the prediction was
/// stopped.
fn foreseen(path: &Path, time: Duration, stop: &AtomicBool) -> Option<String> {
    let found = as_much_as_fits(path, time, |bytes_max| {
        crate::db::foresee(path, bytes_max, stop).ok()
    })?;
    let part = match found.sampled_bytes < found.logical_bytes {
        true => format!(
            ", as far as {} of it tell",
            text::size(found.sampled_bytes as f64)
        ),
        false => String::new(),
    };
    Some(format!(
        "{} would be a file of {} in place of {} as a compressed database{part}, and a commit of one row would write {} by one \
         sync: `breakeven db import`",
        quoted(&path),
        text::size(found.file_bytes as f64),
        text::size(found.logical_bytes as f64),
        text::size(found.commit_bytes as f64),
    ))
}

/// The database page size in question, and the note on it.
fn page_bytes(typed: &Typed) -> (usize, Option<String>) {
    let default = AdviseOptions::default().page_bytes;
    match (typed.page_size, database(typed)) {
        (Some(told), _) => (told, None),
        (None, None) => (default, None),
        (None, Some((path, bytes))) => {
            let taken = bytes.max(*PAGE_BYTES.start());
            let mut note = format!(
                "{} is a SQLite database with pages of {}",
                quoted(&path),
                text::binary_size(bytes as u64)
            );
            if taken != bytes {
                note.push_str(&format!(
                    ", looked at in {}",
                    text::binary_size(taken as u64)
                ));
            }
            (taken, Some(note))
        }
    }
}

/// The best source of watts: declared idle and busy ones, else a source of this machine.
pub fn choose_power(watts: Option<(f64, f64)>, machine: &Machine) -> Result<EnergyMeter> {
    let declared = watts.map(|(idle, busy)| DeclaredWatts {
        idle: Watts(idle),
        busy: Watts(busy),
    });
    let profile_path = environment::cache_folder().map(|folder| MachineProfile::path_in(&folder));
    let options = EnergyOptions {
        declared,
        profile_path,
        ..EnergyOptions::default()
    };
    Ok(EnergyMeter::choose(&options, machine, Clock::real())?)
}

/// The least time of a probe, if that is a quarter of the run at most. In less, a busy machine moves no stream several
/// times.
const PROBE_TIME_MIN: Duration = Duration::from_millis(500);

/// Returns the time of a probe in a run of some time.
fn probe_time(time: Duration) -> Duration {
    (time / 4).min(PROBE_TIME_MIN).max(time / 12)
}

/// Streams of a probe that differ by a larger factor are worth a note: then they decide on verdicts, too.
const SPREAD_NOTED: f64 = 2.0;

/// The medium of the data: named, imported, or probed where the first path is. Also a note on it.
fn choose_medium(
    typed: &Typed,
    (time_max, data_bytes): (Duration, u64),
    stop: &Arc<AtomicBool>,
    bar: &ProgressBar,
) -> Result<(Medium, Option<String>)> {
    if let Some(medium) = &typed.medium {
        return Ok((medium.clone(), None));
    }
    if let Some(path) = &typed.fio {
        return Ok((import_fio(path)?, None));
    }
    let folder = scratch_folder(&typed.paths)?;
    bar.set_message(format!("probing {}", quoted(&folder)));
    let written_bytes_max = data_bytes.clamp(PROBE_BYTES_MIN, PROBE_BYTES_MAX);
    let options = ProbeOptions {
        time_max: time_max.min(ProbeOptions::default().time_max),
        seed: typed.seed,
        written_bytes_max,
        ..ProbeOptions::default()
    };
    let probed = probe(&folder, &options, stop, &mut |event| {
        if let ProbeEvent::Scratch { path, bytes } = event {
            let size = text::size(bytes as f64);
            let path = text::printable(&quoted(&path).to_string());
            let most = text::size(written_bytes_max as f64);
            let line =
                format!("scratch file {path} of {size}, removed at once; {most} written in all");
            bar.suspend(|| standard::tell(&line));
        }
    });
    match probed {
        Ok(probed) => {
            let spread = probed.stream_spread();
            let note = (spread > SPREAD_NOTED).then(|| {
                format!(
                    "bursts on the medium differed by a factor of {spread:.1}: other programs use it, or it pauses; \
                     the fastest is its speed, the others widen the intervals (--medium NAME goes without)"
                )
            });
            Ok((probed.medium(), note))
        }
        Err(breakeven::Error::Interrupted) => {
            let line = format!(
                "interrupted before the medium was measured: taking it for {ASSUMED_MEDIUM}"
            );
            bar.suspend(|| standard::tell(&line));
            Ok((assumed_medium()?, None))
        }
        Err(error) if not_ours_to_write(&error) => {
            let line = format!("{error}: taking the medium for {ASSUMED_MEDIUM}, see --medium");
            bar.suspend(|| standard::tell(&line));
            Ok((assumed_medium()?, None))
        }
        Err(error) => {
            Err(error).context("probe the medium (--medium NAME goes without a scratch file)")
        }
    }
}

/// The most bytes written to measure the medium, with the first filling of the scratch file: as many as there is data,
/// within these bounds. Half of the smaller bound is the file, slices of 16 KiB take 8 MiB, and the rest is for a
/// stream.
const PROBE_BYTES_MIN: u64 = 32 << 20;
const PROBE_BYTES_MAX: u64 = 64 << 20;

/// The assumed medium where none could be measured: the usual one today.
const ASSUMED_MEDIUM: &str = MEDIUM_ASSUMED;

/// The assumed medium, named as such wherever it is shown.
fn assumed_medium() -> Result<Medium> {
    let mut medium: Medium = ASSUMED_MEDIUM.parse()?;
    medium.name.push_str(", assumed");
    Ok(medium)
}

/// Returns whether this user may not write to a folder, or it has no room; any other error needs attention.
fn not_ours_to_write(error: &breakeven::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    match error {
        breakeven::Error::Io { source, .. } => matches!(
            source.kind(),
            PermissionDenied | QuotaExceeded | ReadOnlyFilesystem | StorageFull
        ),
        // Of the options, only the room can be wrong here.
        breakeven::Error::Invalid { what, .. } => *what == "probe",
        _ => false,
    }
}

/// Reads fio's results. Stderr names figures that are missing or given twice.
fn import_fio(path: &Path) -> Result<Medium> {
    let context = || format!("fio results {}", quoted(&path));
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(context)?;
    // One byte more than the importer takes, so that the importer refuses a larger file.
    file.take(FIO_JSON_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .with_context(context)?;
    let import = from_json(&quoted(&path).to_string(), &bytes).with_context(context)?;
    for warning in &import.warnings {
        standard::tell(&format!("fio results {}: {warning}", quoted(&path)));
    }
    let is_random_read =
        |job: &FioJob| job.direction == Direction::Read && job.pattern == Pattern::Random;
    ensure!(
        import.jobs.iter().any(is_random_read),
        "fio results {}: no job measured random reads, and pages and caches need them: \
         add one with rw=randread and bs=8k",
        quoted(&path)
    );
    Ok(import.medium)
}

/// The folder of the first path, or the present one.
fn scratch_folder(paths: &[PathBuf]) -> Result<PathBuf> {
    match paths.first() {
        None => Ok(std::env::temp_dir()),
        Some(path) if path.is_dir() => Ok(path.clone()),
        Some(path) => {
            let parent = path
                .parent()
                .filter(|parent| !parent.as_os_str().is_empty());
            Ok(parent.unwrap_or(Path::new(".")).to_path_buf())
        }
    }
}

fn progress_bar() -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(4);
    let bar = ProgressBar::with_draw_target(None, target);
    let style =
        ProgressStyle::with_template("{spinner} {elapsed} {msg}").expect("a sound template");
    let bar = bar.with_style(style);
    // However long one method takes on a busy machine, the seconds go on.
    standard::keep_drawing(&bar, Duration::from_secs(1));
    bar
}

/// The messages on the terminal while measuring goes on.
struct Shown {
    bar: ProgressBar,
    headline: String,
    next: Instant,
}

impl Shown {
    fn show(&mut self, progress: &Progress<'_>) {
        // The first answer comes within five seconds and is then refined on the screen.
        if !self.bar.is_hidden() && Instant::now() >= self.next {
            self.headline = progress.headline();
            self.next = Instant::now() + Duration::from_secs(2);
        }
        let (drawn, of) = progress.sample.clusters();
        self.bar
            .set_message(format!("{drawn} of {of} MiB looked at. {}", self.headline));
        self.bar.tick();
    }
}
