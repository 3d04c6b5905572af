//! `breakeven pack`, `unpack` and `cat`: files in and out of streams, with the habits of `zstd`.

mod choice;
mod content;
mod course;
mod earned;
mod explain;
mod explain_long;
mod form;
mod hint;
mod info;
mod place;
mod repack;
mod sink;
mod tree;

use std::cell::Cell;
use std::fmt;
use std::io::{self, IoSlice, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use breakeven::frame::{Kind, unserved};
use breakeven::pool::{Pool, PoolOptions};
use breakeven::quoted::quoted;
use breakeven::stream::{Choice, Container, Frozen, Goal, ReaderOptions, Summary, WriterOptions};
use breakeven_cli::text::figures;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::memory;
use crate::options::{FileOptions, InfoOptions, PackOptions, Strategy, UnpackOptions, Usage};
use crate::standard::{self, ReaderGone};
use choice::Setting;
use content::Content;
use course::{Course, Written};
use earned::{Booked, Earned};
use hint::{Hint, Packed};
use place::{Existing, Magic, Refusal, Source, Target};
use sink::Sink;

pub use explain::run as explain;
pub use info::run as info;
pub use repack::run as repack;

/// The ending of packed files.
const ENDING: &str = "zst";
/// Endings that are left out when unpacking, and their replacements.
const ENDINGS: [(&str, &str); 10] = [
    ("zst", ""),
    ("zstd", ""),
    ("lz4", ""),
    ("xz", ""),
    ("gz", ""),
    ("tgz", "tar"),
    ("tzst", "tar"),
    ("tzs", "tar"),
    ("tlz4", "tar"),
    ("txz", "tar"),
];
/// Bytes of the smallest buffers of blocks. A growing file is cut into blocks of this length.
const BLOCK_BYTES_MIN: u64 = 64 << 10;
/// Bytes of the blocks that `smallest` has where xz may be picked.
const BLOCK_BYTES_DENSE: u64 = 16 << 20;
/// Bytes of a frame that `unpack` checks before it writes any of them.
const HELD_BYTES_MAX: usize = 16 << 20;
/// The exit code where a file is complete but its file system refused its mode, owner or times.
const REFUSED: u8 = 3;
/// Bytes read from a file at a time.
const READ_BYTES: usize = 1 << 20;

/// Runs `pack`.
pub fn pack(typed: &PackOptions) -> Result<ExitCode> {
    if typed.files.habits.silent {
        standard::silence();
    }
    if typed.files.habits.list {
        return list(&typed.files, typed.frame.window_max);
    }
    if typed.decompress || typed.test {
        let long = typed.frame.long.map_or(0, |log| 1 << log);
        let typed = UnpackOptions {
            files: typed.files.clone(),
            decompress: true,
            test: typed.test,
            window_max: typed.frame.window_max.max(long),
            output_max: None,
            ratio_max: None,
            ignore_trailing: false,
        };
        return unpack(&typed);
    }
    let container = container(typed.mixed);
    let setting = Setting::new(&typed.money, typed.days, typed.link.0);
    let goal = setting.goal(typed.strategy.unwrap_or(Strategy::Fastest))?;
    let packing = Packing {
        typed,
        setting: &setting,
        goal,
        container,
    };
    // Without a typed method there is nothing to check, and the profile need not be read yet.
    if typed.method.is_some() || typed.deterministic {
        let checked = packing.options(None)?.check();
        checked.map_err(|error| Usage(error.to_string()))?;
    }
    let mut job = Job::new(&typed.files)?;
    if typed.frame.exclude_compressed {
        job.paths.retain(|path| !is_compressed(path));
    }
    let outcome = match job.joins() {
        true => job.join(|source, target| packing.append(source, target, &job))?,
        false => job.for_each(|source, _| {
            let target = job.target(source, |path| Some(append_ending(path)), false)?;
            packing.one(source, target, &job)
        })?,
    };
    setting.keep(typed.files.quiet);
    Ok(outcome)
}

/// Bytes of a block of a row, by the length of the content where it is known.
///
/// A small file needs small buffers: to fault the usual ones in takes longer than to pack the file. The smallest stream
/// with xz needs blocks of twice its window, since frames see nothing of each other.
fn block_bytes(goal: Goal, is_mixed: bool, content_bytes: Option<u64>) -> usize {
    let usual = match goal == Goal::Smallest && is_mixed {
        true => BLOCK_BYTES_DENSE,
        false => WriterOptions::default().block_bytes as u64,
    };
    let wanted = content_bytes.unwrap_or(u64::MAX);
    wanted.clamp(BLOCK_BYTES_MIN, usual).next_power_of_two() as usize
}

fn container(is_mixed: bool) -> Container {
    match is_mixed {
        true => Container::Mixed,
        false => Container::Portable,
    }
}

/// Does the work of `info`.
fn list(typed: &FileOptions, window_max: u64) -> Result<ExitCode> {
    let options = InfoOptions {
        paths: tree::paths(typed)?,
        window_max,
        json: false,
    };
    info::list(&options, typed.verbose)
}

/// Runs `unpack`.
pub fn unpack(typed: &UnpackOptions) -> Result<ExitCode> {
    unpack_all(typed, !typed.files.habits.as_zstd)
}

/// Unpacks all sources. Empty ones are passed on if `takes_empty` holds, and other data is.
fn unpack_all(typed: &UnpackOptions, takes_empty: bool) -> Result<ExitCode> {
    if typed.files.habits.silent {
        standard::silence();
    }
    if typed.files.habits.list {
        return list(&typed.files, typed.window_max);
    }
    let options = ReaderOptions {
        output_bytes_max: typed.output_max,
        ratio_max: typed.ratio_max,
        window_bytes_max: typed.window_max,
        held_bytes_max: 0,
        ignores_trailing: typed.ignore_trailing,
    };
    if typed.test && typed.files.remove {
        bail!(Usage("--rm does not go with -t".to_string()));
    }
    let job = Job::new(&typed.files)?;
    if job.joins() && !typed.test {
        return job.join(|source, target| {
            // A sink with holes writes from the file's start, and this content may begin in its middle.
            let sink = Sink::new(Some(target), false)?;
            let passing = Passing {
                data: typed.files.habits.pass_through,
                empty: takes_empty,
            };
            say_all(unpack_one(
                source,
                (Some(target), sink),
                &options,
                (&job, passing),
            )?);
            Ok(())
        });
    }
    job.for_each(|source, _| {
        let target = match typed.test {
            true => None,
            false => Some(job.target(source, strip_ending, true)?),
        };
        // As in zstd and gzip, for users who read logs, packed or not.
        let habits = &typed.files.habits;
        let data = match &target {
            None => false,
            Some(_) if habits.no_pass_through => false,
            Some(target) => habits.pass_through || typed.files.force && !target.is_renamed(),
        };
        let sink = Sink::new(target.as_ref(), !typed.files.habits.no_sparse)?;
        let with = (target.as_ref(), sink);
        let passing = Passing {
            data,
            empty: takes_empty,
        };
        let told = unpack_one(source, with, &options, (&job, passing))?;
        if let Some(target) = target {
            job.complete(target, source, job.typed.remove)?;
        }
        say_all(told);
        Ok(())
    })
}

/// Runs `cat`: `unpack` to standard output.
pub fn cat(typed: &UnpackOptions) -> Result<ExitCode> {
    let mut typed = typed.clone();
    typed.files.stdout = true;
    // gzip's `zcat -f` takes an empty log. Without -f an empty file is a lost one, as for zstd's.
    let takes_empty = typed.files.force || !typed.files.habits.as_zstd;
    typed.files.force |= typed.files.habits.as_zstd;
    unpack_all(&typed, takes_empty)
}

/// The data that is passed on although it is no stream.
#[derive(Clone, Copy)]
struct Passing {
    /// Any, but for empty data.
    data: bool,
    /// Empty data, where other data is.
    empty: bool,
}

/// The state that all files of a call share.
struct Job<'a> {
    typed: &'a FileOptions,
    pool: Pool,
    paths: Vec<PathBuf>,
    /// The number of refusals by file systems, for files that are otherwise complete.
    refusals: Cell<usize>,
}

impl Job<'_> {
    fn new(typed: &FileOptions) -> Result<Job<'_>> {
        let paths = tree::paths(typed)?;
        let has_several = paths.len() > 1;
        if typed.tree.output_dir_flat.is_some()
            && let Some([one, other]) = tree::of_one_name(&paths)
        {
            let reason = format!("{} and {} would be one file", quoted(&one), quoted(&other));
            match typed.remove {
                true => bail!("{reason}, and --rm would lose one of them"),
                false if typed.quiet => {}
                false => standard::complain(format!("{reason}: the last one stays")),
            }
        }
        if typed.output.is_some() && (typed.stdout || has_several && !typed.habits.as_zstd) {
            bail!(Usage("-o names one file, for one file".to_string()));
        }
        if typed.output.is_some() && has_several && !typed.force {
            let reason = "-o names one file, and several would lose their names; -f writes them one behind the other";
            bail!(Usage(reason.to_string()));
        }
        place::clean_up_at_signals()?;
        let mut options = PoolOptions::default();
        if memory::is_scarce() {
            options.worker_count = 0;
        }
        if let Some(count) = typed.threads.filter(|&count| count > 0) {
            options.worker_count = (count as usize).min(WORKERS_MAX);
        }
        Ok(Job {
            typed,
            pool: Pool::new(options)?,
            paths,
            refusals: Cell::new(0),
        })
    }

    /// Returns whether several files become one, as they do with zstd's `-o`.
    fn joins(&self) -> bool {
        self.typed.output.is_some() && self.paths.len() > 1
    }

    /// Writes the results of all files into one, one behind the other. The target gets its name when all of them are in
    /// it.
    fn join(&self, work: impl Fn(&mut Source, &Target) -> Result<()>) -> Result<ExitCode> {
        let output = self.typed.output.as_deref().expect("it is named");
        let mut target = None;
        for path in &self.paths {
            let mut source = Source::open(path)?;
            source.ensure_not_at(output)?;
            if target.is_none() {
                target = Some(Target::create(output, &source, Existing::Overwrite)?);
            }
            work(&mut source, target.as_ref().expect("it was made"))?;
        }
        if self.typed.remove && !self.typed.quiet {
            self.warn("several files in one lose their names: they are kept");
        }
        let refused = target.map(|it| it.complete(None, false)).transpose()?;
        for Refusal { what, error } in refused.unwrap_or_default() {
            self.warn(&format!(
                "{}: its {what} could not be set: {error}",
                quoted(&output)
            ));
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Works on each file. One failure is reported and does not stop the work on the others.
    fn for_each(&self, work: impl Fn(&mut Source, &Pool) -> Result<()>) -> Result<ExitCode> {
        let mut has_failed = false;
        for path in &self.paths {
            let done = self.one(path, &work);
            match done {
                Ok(()) => {}
                // The typed options are just as wrong for the files that follow.
                Err(error) if self.paths.len() == 1 || error.is::<Usage>() => {
                    return Err(error);
                }
                // Nobody will read the rest either; an earlier report of failure stands.
                Err(error) if error.is::<ReaderGone>() && has_failed => break,
                Err(error) if error.is::<ReaderGone>() => return Err(error),
                Err(error) => {
                    standard::complain(crate::describe(&error));
                    has_failed = true;
                }
            }
        }
        Ok(match (has_failed, self.refusals.get()) {
            (true, _) => ExitCode::from(1),
            (false, 0) => ExitCode::SUCCESS,
            // As zstd has it.
            (false, _) if self.typed.habits.as_zstd => ExitCode::SUCCESS,
            (false, _) => ExitCode::from(REFUSED),
        })
    }

    fn one(&self, path: &Path, work: impl Fn(&mut Source, &Pool) -> Result<()>) -> Result<()> {
        if self.typed.remove && !self.typed.force && path.is_symlink() {
            let name = quoted(&path);
            bail!("{name} is a symbolic link: --rm would remove the link alone; -f does that");
        }
        let mut source = Source::open(path)?;
        let before = self.refusals.get();
        let done = work(&mut source, &self.pool);
        match done {
            Err(error) if self.is_to_stdout(&source) && is_broken_pipe(&error) => {
                return Err(error.context(ReaderGone));
            }
            done => done?,
        }
        if self.typed.remove && source.metadata.is_some() && path != Path::new("-") {
            if self.refusals.get() > before {
                self.warn(&format!("{}: it is kept", source.name));
            } else {
                source.remove(path)?;
            }
        }
        Ok(())
    }

    /// Gives a target its name and the metadata of its source, and names the parts that the file system refused.
    fn complete(&self, target: Target, source: &Source, syncs: bool) -> Result<()> {
        let name = target.name.clone();
        for Refusal { what, error } in target.complete(source.given_metadata(), syncs)? {
            self.warn(&format!("{name}: its {what} could not be set: {error}"));
            self.refusals.set(self.refusals.get() + 1);
        }
        Ok(())
    }

    fn warn(&self, text: &str) {
        standard::complain(text);
    }

    /// Returns whether the result of a source goes to standard output.
    fn is_to_stdout(&self, source: &Source) -> bool {
        match &self.typed.output {
            Some(path) => path == Path::new("-"),
            None => self.typed.stdout || source.name == standard::INPUT,
        }
    }

    fn target(
        &self,
        source: &Source,
        name: impl Fn(&Path) -> Option<PathBuf>,
        is_text: bool,
    ) -> Result<Target> {
        let is_stdin = source.name == standard::INPUT;
        let existing = Existing::of(self.typed.force, !self.typed.quiet && !is_stdin);
        let target = if self.is_to_stdout(source) {
            let instead = "name a file with -o, or force it with -c";
            Target::standard_output(is_text || self.typed.stdout, instead)?
        } else if let Some(path) = &self.typed.output {
            Target::create(path, source, existing)?
        } else if source.is_device()? {
            bail!("{} is a device; name the file with -o", source.name);
        } else if let Some(path) = name(&source.path) {
            let path = tree::placed(&self.typed.tree, path)?;
            Target::create(&path, source, existing)?
        } else {
            bail!(
                "{}: the name has no ending such as .zst to leave out; name the file with -o",
                source.name
            );
        };
        if self.typed.remove && !is_stdin && !target.is_renamed() {
            let reason = format!("--rm wants a copy that stays, not {}", target.name);
            bail!(Usage(reason));
        }
        Ok(target)
    }

    /// Shows the position in a source, and the speeds of reading it and of writing its copy.
    fn progress(
        &self,
        source: &Source,
        [read, written]: [Arc<AtomicU64>; 2],
    ) -> Result<ProgressBar> {
        if self.typed.quiet || self.typed.habits.no_progress {
            return Ok(ProgressBar::hidden());
        }
        // The bar hides itself where standard error is no terminal.
        let length = source.metadata.as_ref().map(std::fs::Metadata::len);
        let (bar, template) = match length {
            Some(length) => (
                ProgressBar::new(length),
                "{msg} {bar:20} {percent}%, {eta} left, {in} MB/s in and {out} MB/s out",
            ),
            None => (
                ProgressBar::no_length(),
                "{msg} {decimal_bytes}, {in} MB/s in and {out} MB/s out",
            ),
        };
        let style = ProgressStyle::with_template(template)?
            .with_key("in", speed_of(read))
            .with_key("out", speed_of(written));
        bar.set_style(style);
        bar.set_message(source.name.clone());
        Ok(bar)
    }

    /// Returns whether the outcome for a source is reported. For a copy to standard output or a device that happens
    /// only on request.
    fn tells(&self, target: Option<&Target>) -> bool {
        let is_told = self.typed.verbose || target.is_none_or(Target::is_renamed);
        is_told && !self.typed.quiet
    }
}

/// The most threads: as many as a frame of zstd may have.
const WORKERS_MAX: usize = 256;

/// Returns whether the system refused memory.
fn lacks_memory(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<breakeven::Error>();
    matches!(cause, Some(breakeven::Error::OutOfMemory { .. }))
}

/// Writes a target that nobody sees before it is complete. If the system refuses memory, the target is written again,
/// thriftily, from a source that can be read again.
fn write_unseen<T>(
    source: &mut Source,
    target: &Target,
    write: impl Fn(&mut Source, bool) -> Result<T>,
) -> Result<T> {
    let place = source.place();
    let written = write(source, memory::is_scarce());
    match (written, place) {
        (Err(lack), Some(place)) if lacks_memory(&lack) => {
            source.go_back(place)?;
            target.empty()?;
            // Without memory for its stack no thread starts, which has an error of its own.
            write(source, true).map_err(|error| match is_refused_for_now(&error) {
                true => lack,
                false => error,
            })
        }
        (written, _) => written,
    }
}

/// Returns whether a write failed because nobody reads any more.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    is_caused_by(error, io::ErrorKind::BrokenPipe)
}

/// Returns whether the system refused a resource, such as a thread.
fn is_refused_for_now(error: &anyhow::Error) -> bool {
    is_caused_by(error, io::ErrorKind::WouldBlock)
}

fn is_caused_by(error: &anyhow::Error, kind: io::ErrorKind) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == kind)
}

/// Writes a line for the user at the terminal.
fn say(text: &str) {
    standard::tell(text);
}

fn say_all(lines: Vec<String>) {
    lines.iter().for_each(|line| say(line));
}

/// The state that all files of a call of `pack` share.
struct Packing<'a> {
    typed: &'a PackOptions,
    setting: &'a Setting<'a>,
    goal: Goal,
    container: Container,
}

impl Packing<'_> {
    /// The options for writing the next file: from the measurements on the files before it, and from its length if that
    /// is known.
    fn options(&self, pledged_source_bytes: Option<u64>) -> Result<WriterOptions> {
        let link = self.typed.link.0;
        let choice = match self.typed.method {
            None if self.typed.deterministic => {
                let frozen = Frozen::for_goal(self.goal, self.container.arms(), link);
                let frozen = frozen.map_err(|error| Usage(error.to_string()))?;
                Choice::Frozen(Box::new(frozen))
            }
            // The books of a single method are kept by picking it for every block.
            Some(method) if self.typed.ledger => self.setting.choice(self.goal, vec![method], link),
            Some(method) => Choice::Fixed(method),
            None => {
                let arms = self.container.arms();
                self.setting.choice(self.goal, arms, link)
            }
        };
        let is_mixed = self.container == Container::Mixed;
        let usual = WriterOptions::default();
        Ok(WriterOptions {
            container: self.container,
            choice,
            pledged_source_bytes,
            block_bytes: block_bytes(self.goal, is_mixed, pledged_source_bytes),
            ..usual
        })
    }

    /// Appends a stream to the bytes that its target already has.
    fn append(&self, source: &mut Source, target: &Target, job: &Job) -> Result<()> {
        let written = self.write(source, target, job, memory::is_scarce())?;
        if job.tells(Some(target)) {
            say(&packed(&source.name, &written.summary));
        }
        Ok(())
    }

    fn one(&self, source: &mut Source, target: Target, job: &Job) -> Result<()> {
        let written = match target.is_renamed() {
            true => write_unseen(source, &target, |source, is_thrifty| {
                self.write(source, &target, job, is_thrifty)
            })?,
            false => self.write(source, &target, job, memory::is_scarce())?,
        };
        let summary = written.summary;
        let is_stdout = target.is_standard_output();
        let is_kept = target.is_file()?;
        let is_told = job.tells(Some(&target));
        let name = source.name.clone();
        job.complete(target, source, job.typed.remove)?;
        if is_told {
            say(&packed(&name, &summary));
        }
        let Some(booked) = written.booked else {
            return Ok(());
        };
        // Over a given or seen link, that link decided.
        let packed = match written.level {
            Some(level) if is_kept && self.typed.link.0.is_none() => Some(Packed::Level(level)),
            None if is_kept => {
                let stored = summary.stored_bytes as f64 / summary.raw_bytes.max(1) as f64;
                Some(Packed::Row(stored))
            }
            _ => None,
        };
        let hint = || hint::hint(source, packed?, summary.drained_after);
        let name = source.data_name();
        self.say_earned((&name, &summary), (written.goal, &booked), is_stdout, hint)
    }

    /// Writes a stream of the source.
    fn write(
        &self,
        source: &mut Source,
        target: &Target,
        job: &Job,
        is_thrifty: bool,
    ) -> Result<Written> {
        let (read, written) = (Arc::new(AtomicU64::new(0)), Arc::default());
        let bar = job.progress(source, [&read, &written].map(Arc::clone))?;
        let sink: Box<dyn Write + Send> = match self.typed.links {
            1 => Box::new(target.file()),
            links => Box::new(target.spread(links.into())?),
        };
        let sink = Counted { sink, written };
        let sink = (sink, target.is_file()?);
        let announced = source.bytes_ahead();
        let mut left = announced;
        let with = (&job.pool, is_thrifty);
        let (mut course, mut piece, mut count) = Course::begin(self, source, sink, with)?;
        let ahead = source.ahead()?;
        while count > 0 {
            (course.write_all(&piece[..count])).with_context(|| target.name.clone())?;
            read.fetch_add(count as u64, Ordering::Relaxed);
            bar.inc(count as u64);
            left = left.map(|left| left.saturating_sub(count as u64));
            (piece, count) = ahead.next(piece)?;
            (course.follow(left)).with_context(|| target.name.clone())?;
            course.see(&piece[..count])?;
        }
        source.check_read(announced, read.load(Ordering::Relaxed))?;
        let written = course.finish().with_context(|| target.name.clone())?;
        bar.finish_and_clear();
        Ok(written)
    }

    /// Prints the ledger on request, and the further gain of denser strategies where a user can read it.
    fn say_earned(
        &self,
        named: (&str, &Summary),
        booked: (Goal, &Booked),
        is_stdout: bool,
        hint: impl FnOnce() -> Option<Hint>,
    ) -> Result<()> {
        let files = &self.typed.files;
        let says_more = files.verbose || (!files.quiet && io::stderr().is_terminal());
        let says_prospects = says_more && self.typed.method.is_none();
        if !self.typed.ledger && !says_prospects {
            return Ok(());
        }
        let terms = (self.setting.terms()?, self.setting.kept());
        let earned = Earned::of(named, booked, terms, &self.setting.profile());
        if says_prospects {
            let mut text = earned.prospects();
            if let Some(hint) = hint() {
                text += &earned.hint(&hint);
            }
            standard::tell(text.trim_end());
        }
        if self.typed.ledger {
            let text = match self.typed.json {
                true => earned.json().to_string() + "\n",
                false => earned.text(),
            };
            // Standard output is the stream's, if it goes there.
            match is_stdout {
                true => standard::tell(text.trim_end()),
                false => standard::print(&text),
            }
        }
        Ok(())
    }
}

/// Shows the growth of a count of bytes, in MB a second since the bar's start.
fn speed_of(bytes: Arc<AtomicU64>) -> impl Fn(&ProgressState, &mut dyn fmt::Write) + Clone {
    move |state, text| {
        let megabytes = bytes.load(Ordering::Relaxed) as f64 / 1e6;
        let seconds = state.elapsed().as_secs_f64().max(1e-9);
        let _ = write!(text, "{}", figures(megabytes / seconds));
    }
}

/// A sink with a count of the bytes that were written to it.
struct Counted {
    sink: Box<dyn Write + Send>,
    written: Arc<AtomicU64>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let count = self.sink.write_vectored(slices)?;
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

fn packed(name: &str, summary: &Summary) -> String {
    let seconds = summary.drained_after.0.max(1e-9);
    let speed = |bytes: u64| figures(bytes as f64 / 1e6 / seconds);
    format!(
        "{name}: {} to {} bytes, ratio {:.3}, {} MB/s in and {} MB/s out",
        summary.raw_bytes,
        summary.stored_bytes,
        summary.ratio(),
        speed(summary.raw_bytes),
        speed(summary.stored_bytes)
    )
}

/// Decodes a source into a sink, and returns the message for when that is complete.
fn unpack_one(
    source: &mut Source,
    (target, sink): (Option<&Target>, Sink),
    options: &ReaderOptions,
    (job, passing): (&Job, Passing),
) -> Result<Vec<String>> {
    let begun = Instant::now();
    let target_name = || name_of(target);
    let name = source.name.clone();
    let head = match passing.data {
        true => source.magic_ahead()?,
        false => Magic::default(),
    };
    let passes_through = passing.data && (passing.empty || !head.bytes.is_empty());
    if passes_through && unserved(&head.bytes).is_some() {
        Kind::expect(&head.bytes).with_context(|| name.clone())?;
    }
    if passes_through && Kind::of(&head.bytes).is_none() {
        pass_through(source, &head.bytes, sink).with_context(target_name)?;
        return Ok(Vec::new());
    }
    let file = source.duplicate()?;
    let can_seek = source.metadata.is_some();
    let options = ReaderOptions {
        // A file is seen only when all of it is checked.
        held_bytes_max: match target.is_some_and(|it| !it.is_renamed()) {
            true => HELD_BYTES_MAX,
            false => 0,
        },
        ..options.clone()
    };
    let mut content =
        Content::open_behind((&name, file, head.unread), can_seek, &job.pool, &options)?;
    let written = Arc::new(AtomicU64::new(0));
    // The bar would be drawn into the text, or into the pager that shows it.
    let is_read_now = target.is_some_and(Target::is_standard_output);
    let bar = match is_read_now && !job.typed.verbose {
        true => ProgressBar::hidden(),
        false => job.progress(source, [content.read_bytes(), Arc::clone(&written)])?,
    };
    if let Some(bytes) = content.content_bytes() {
        bar.set_length(bytes);
    }
    let mut content_bytes = 0;
    decode(&mut content, target, sink, |bytes, position| {
        content_bytes = bytes;
        written.store(bytes, Ordering::Relaxed);
        bar.set_position(position);
    })?;
    bar.finish_and_clear();
    if let Some(stored_bytes) = content.stored_position() {
        let announced = source.metadata.as_ref().map(std::fs::Metadata::len);
        source.check_read(announced, stored_bytes)?;
    }
    let speed = content_bytes as f64 / 1e6 / begun.elapsed().as_secs_f64().max(1e-9);
    let mut told = Vec::new();
    if job.tells(target) {
        let speed = figures(speed);
        told.push(format!("{name}: {content_bytes} bytes, {speed} MB/s"));
    }
    let zeros = content.padding_bytes();
    if job.typed.verbose && zeros > 0 {
        told.push(format!("{name}: passed over {zeros} zeros behind frames"));
    }
    Ok(told)
}

fn name_of(target: Option<&Target>) -> String {
    target.map(|it| it.name.clone()).unwrap_or_default()
}

/// Decodes all of a stream; reports after each piece its length, and the position in the stream.
fn decode(
    content: &mut Content,
    target: Option<&Target>,
    mut sink: Sink,
    mut tell: impl FnMut(u64, u64),
) -> Result<()> {
    let mut content_bytes = 0;
    loop {
        let piece = content.fill()?;
        if piece.is_empty() {
            break;
        }
        sink.write_all(piece).with_context(|| name_of(target))?;
        let count = piece.len();
        content.consume(count);
        content_bytes += count as u64;
        tell(
            content_bytes,
            content.stored_position().unwrap_or(content_bytes),
        );
    }
    sink.finish().with_context(|| name_of(target))
}

/// Copies data that is no stream unchanged, behind its first bytes.
fn pass_through(source: &mut Source, head: &[u8], mut sink: Sink) -> Result<()> {
    sink.write_all(head)?;
    let mut piece = vec![0; READ_BYTES];
    loop {
        match source.read(&mut piece)? {
            0 => break,
            count => sink.write_all(&piece[..count])?,
        }
    }
    Ok(sink.finish()?)
}

fn append_ending(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ENDING);
    PathBuf::from(name)
}

/// Endings of compressed files, beside those of streams.
const COMPRESSED: [&str; 22] = [
    "7z", "aac", "avi", "br", "bz2", "flac", "gif", "jar", "jpeg", "jpg", "lzma", "m4a", "mkv",
    "mov", "mp3", "mp4", "ogg", "png", "rar", "tbz2", "webm", "zip",
];

/// Returns whether a file's name ends as that of a compressed file.
fn is_compressed(path: &Path) -> bool {
    let ending = path.extension().and_then(|it| it.to_str());
    ending.is_some_and(|ending| {
        let ending = ending.to_ascii_lowercase();
        COMPRESSED.contains(&ending.as_str()) || ENDINGS.iter().any(|it| it.0 == ending)
    })
}

fn strip_ending(path: &Path) -> Option<PathBuf> {
    let ending = path.extension()?.to_str()?;
    let (_, instead) = ENDINGS.iter().find(|(known, _)| *known == ending)?;
    Some(path.with_extension(instead))
}
