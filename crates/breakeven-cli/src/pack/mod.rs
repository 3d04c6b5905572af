//! `breakeven pack`, `unpack` and `cat`: files in and out of streams, with the habits of `zstd`.

mod info;
mod place;
mod sink;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use breakeven::Error;
use breakeven::decide::Profile;
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{
    Choice, Container, Priced, Reader, ReaderOptions, SeekableReader, Summary, Writer,
    WriterOptions, read_seek_table,
};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::options::{FileOptions, PackOptions, UnpackOptions};
use place::{Source, Target};
use sink::Sink;

pub use info::run as info;

/// The ending of what is packed.
const ENDING: &str = "zst";
/// Endings that are left out when unpacking, and what is put in their place.
const ENDINGS: [(&str, &str); 8] = [
    ("zst", ""),
    ("zstd", ""),
    ("lz4", ""),
    ("xz", ""),
    ("tzst", "tar"),
    ("tzs", "tar"),
    ("tlz4", "tar"),
    ("txz", "tar"),
];
/// Bytes read from a file at a time.
const READ_BYTES: usize = 1 << 20;

/// Runs `pack`.
pub fn pack(typed: &PackOptions) -> Result<ExitCode> {
    if typed.decompress || typed.test {
        let typed = UnpackOptions {
            files: typed.files.clone(),
            test: typed.test,
            window_max: ReaderOptions::default().window_bytes_max,
            output_max: None,
            ignore_trailing: false,
        };
        return unpack(&typed);
    }
    let options = WriterOptions {
        container: match typed.mixed {
            true => Container::Mixed,
            false => Container::Portable,
        },
        choice: choice(typed),
        ..WriterOptions::default()
    };
    if let Err(error) = options.check() {
        bail!(Usage(error.to_string()));
    }
    let job = Job::new(&typed.files)?;
    job.for_each(|source, pool| {
        let target = job.target(source, |path| Some(append_ending(path)), false)?;
        pack_one(source, target, pool, &options, &job)
    })
}

/// Methods that a strategy picks from, in every container.
const PORTABLE_ARMS: [&str; 11] = [
    "store", "zstd:-7", "zstd:-3", "zstd:-1", "zstd:1", "zstd:3", "zstd:5", "zstd:9", "zstd:12",
    "zstd:15", "zstd:19",
];
/// Those that a mixed stream has besides.
const MIXED_ARMS: [&str; 6] = ["lz4:a32", "lz4:a8", "lz4:1", "xz:1", "xz:6", "delta8+xz:1"];

fn choice(typed: &PackOptions) -> Choice {
    let Some(goal) = typed.strategy else {
        return Choice::Fixed(typed.method);
    };
    let mixed = MIXED_ARMS.iter().filter(|_| typed.mixed);
    let arms = PORTABLE_ARMS.iter().chain(mixed);
    Choice::Priced(Box::new(Priced {
        goal,
        arms: arms
            .map(|name| name.parse().expect("a method of the list"))
            .collect(),
        link: typed.link.0,
        profile: Profile::default(),
    }))
}

/// Runs `unpack`.
pub fn unpack(typed: &UnpackOptions) -> Result<ExitCode> {
    let options = ReaderOptions {
        output_bytes_max: typed.output_max,
        window_bytes_max: typed.window_max,
        ignores_trailing: typed.ignore_trailing,
        ..ReaderOptions::default()
    };
    if typed.test && typed.files.remove {
        bail!(Usage("--rm does not go with -t".to_string()));
    }
    let job = Job::new(&typed.files)?;
    job.for_each(|source, pool| {
        let target = match typed.test {
            true => None,
            false => Some(job.target(source, strip_ending, true)?),
        };
        unpack_one(source, target, pool, &options, &job)
    })
}

/// Runs `cat`: `unpack` to standard output.
pub fn cat(typed: &UnpackOptions) -> Result<ExitCode> {
    let mut typed = typed.clone();
    typed.files.stdout = true;
    unpack(&typed)
}

/// What was typed cannot be meant: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What all files of a call share.
struct Job<'a> {
    typed: &'a FileOptions,
    pool: Pool,
    paths: Vec<PathBuf>,
}

impl Job<'_> {
    fn new(typed: &FileOptions) -> Result<Job<'_>> {
        let paths = match typed.paths.as_slice() {
            [] => vec![PathBuf::from("-")],
            paths => paths.to_vec(),
        };
        if typed.output.is_some() && (paths.len() > 1 || typed.stdout) {
            bail!(Usage("-o names one file, for one file".to_string()));
        }
        place::clean_up_at_signals()?;
        let mut options = PoolOptions::default();
        if let Some(count) = typed.threads.filter(|&count| count > 0) {
            options.worker_count = count as usize;
        }
        Ok(Job {
            typed,
            pool: Pool::new(options)?,
            paths,
        })
    }

    /// Does each file; what goes wrong with one is told and does not keep the others from being
    /// done.
    fn for_each(&self, work: impl Fn(&mut Source, &Pool) -> Result<()>) -> Result<ExitCode> {
        let mut outcome = ExitCode::SUCCESS;
        for path in &self.paths {
            let done = self.one(path, &work);
            match done {
                Ok(()) => {}
                Err(error) if self.paths.len() == 1 || crate::is_broken_pipe(&error) => {
                    return Err(error);
                }
                Err(error) => {
                    let _ = writeln!(io::stderr(), "breakeven: {}", crate::describe(&error));
                    outcome = ExitCode::from(1);
                }
            }
        }
        Ok(outcome)
    }

    fn one(&self, path: &Path, work: impl Fn(&mut Source, &Pool) -> Result<()>) -> Result<()> {
        let mut source = Source::open(path)?;
        work(&mut source, &self.pool)?;
        if self.typed.remove && source.metadata.is_some() && path != Path::new("-") {
            source.remove(path)?;
        }
        Ok(())
    }

    fn target(
        &self,
        source: &Source,
        name: impl Fn(&Path) -> Option<PathBuf>,
        is_text: bool,
    ) -> Result<Target> {
        let is_stdin = source.name == "standard input";
        let is_stdout = match &self.typed.output {
            Some(path) => path == Path::new("-"),
            None => self.typed.stdout || is_stdin,
        };
        let target = if is_stdout {
            Target::standard_output(is_text || self.typed.stdout)?
        } else if let Some(path) = &self.typed.output {
            Target::create(path, source, self.typed.force)?
        } else if let Some(path) = name(Path::new(&source.name)) {
            Target::create(&path, source, self.typed.force)?
        } else {
            bail!(
                "{}: the name has no ending that can be left out, as .zst; name the file with -o",
                source.name
            );
        };
        if self.typed.remove && !is_stdin && !target.is_renamed() {
            let reason = format!("--rm wants a copy that stays, not {}", target.name);
            bail!(Usage(reason));
        }
        Ok(target)
    }

    /// Shows how far a source is and, where `written` counts what goes out, both speeds.
    fn progress(&self, source: &Source, written: Option<Arc<AtomicU64>>) -> Result<ProgressBar> {
        if self.typed.quiet {
            return Ok(ProgressBar::hidden());
        }
        // Hidden by itself where standard error is no terminal.
        let length = source.metadata.as_ref().map(std::fs::Metadata::len);
        let (bar, mut template) = match length {
            Some(length) => (
                ProgressBar::new(length),
                "{msg} {bar:20} {percent}%, {eta} left, {decimal_bytes_per_sec}".to_string(),
            ),
            None => (
                ProgressBar::no_length(),
                "{msg} {decimal_bytes}, {decimal_bytes_per_sec}".to_string(),
            ),
        };
        if written.is_some() {
            template += " in and {out} MB/s out";
        }
        let style = ProgressStyle::with_template(&template)?.with_key(
            "out",
            move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
                let bytes = written.as_ref().map_or(0, |it| it.load(Ordering::Relaxed));
                let speed = bytes as f64 / 1e6 / state.elapsed().as_secs_f64().max(1e-9);
                let _ = write!(text, "{speed:.2}");
            },
        );
        bar.set_style(style);
        bar.set_message(source.name.clone());
        Ok(bar)
    }

    /// Sums up what became of a source, unless its copy went to standard output or a device.
    fn tell(&self, target: Option<&Target>, text: impl FnOnce() -> String) {
        if !self.typed.quiet && target.is_none_or(Target::is_renamed) {
            let _ = writeln!(io::stderr(), "{}", text());
        }
    }
}

fn pack_one(
    source: &mut Source,
    target: Target,
    pool: &Pool,
    options: &WriterOptions,
    job: &Job,
) -> Result<()> {
    let written = Arc::new(AtomicU64::new(0));
    let bar = job.progress(source, Some(Arc::clone(&written)))?;
    let file = target.file()?;
    let mut writer = Writer::new(Counted { file, written }, pool, options.clone())?;
    let mut piece = vec![0; READ_BYTES];
    loop {
        let count = match source.file.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context(format!("read {}", source.name)),
        };
        (writer.write_all(&piece[..count])).with_context(|| target.name.clone())?;
        bar.inc(count as u64);
    }
    let (_, summary) = writer.finish().with_context(|| target.name.clone())?;
    bar.finish_and_clear();
    job.tell(Some(&target), || packed(&source.name, &summary));
    target.complete(source.metadata.as_ref(), job.typed.remove)
}

/// A file with a count of the bytes that were written to it.
struct Counted {
    file: File,
    written: Arc<AtomicU64>,
}

impl Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.written.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn packed(name: &str, summary: &Summary) -> String {
    let speed = |bytes: u64| bytes as f64 / 1e6 / summary.drained_after.0.max(1e-9);
    format!(
        "{name}: {} to {} bytes, ratio {:.3}, {:.0} MB/s in and {:.0} MB/s out",
        summary.raw_bytes,
        summary.stored_bytes,
        summary.ratio(),
        speed(summary.raw_bytes),
        speed(summary.stored_bytes)
    )
}

fn unpack_one(
    source: &mut Source,
    target: Option<Target>,
    pool: &Pool,
    options: &ReaderOptions,
    job: &Job,
) -> Result<()> {
    let begun = Instant::now();
    let bar = job.progress(source, None)?;
    let mut sink = Sink::new(target.as_ref())?;
    let target_name = || {
        target
            .as_ref()
            .map(|it| it.name.clone())
            .unwrap_or_default()
    };
    let table = match source.metadata {
        Some(_) => read_seek_table(&mut source.file)?,
        None => None,
    };
    let name = source.name.clone();
    let file = source.file.try_clone()?;
    let content_bytes = match table {
        Some(table) => {
            let mut reader = SeekableReader::new(file, &table, pool, options)?;
            bar.set_length(reader.content_bytes());
            loop {
                let content = reader.fill().map_err(|error| unreadable(&name, error))?;
                if content.is_empty() {
                    break reader.content_bytes();
                }
                sink.write_all(content).with_context(target_name)?;
                let count = content.len();
                reader.consume(count);
                bar.inc(count as u64);
            }
        }
        None => {
            let mut reader = Reader::new(file, pool, options.clone())?;
            loop {
                let content = reader.fill().map_err(|error| unreadable(&name, error))?;
                if content.is_empty() {
                    break reader.counted().content_bytes;
                }
                sink.write_all(content).with_context(target_name)?;
                let count = content.len();
                reader.consume(count);
                bar.set_position(reader.counted().stored_bytes);
            }
        }
    };
    sink.finish().with_context(target_name)?;
    bar.finish_and_clear();
    job.tell(target.as_ref(), || {
        let speed = content_bytes as f64 / 1e6 / begun.elapsed().as_secs_f64().max(1e-9);
        format!("{name}: {content_bytes} bytes, {speed:.0} MB/s")
    });
    match target {
        Some(target) => target.complete(source.metadata.as_ref(), job.typed.remove),
        None => Ok(()),
    }
}

/// Names the source of an error, and the option that lifts a limit.
fn unreadable(name: &str, error: Error) -> anyhow::Error {
    let is_window = matches!(&error, Error::Limit { what, .. } if what.ends_with("window"));
    let error = anyhow::Error::from(error);
    match is_window {
        true => error.context(format!("{name} (-M allows a larger window)")),
        false => error.context(name.to_string()),
    }
}

fn append_ending(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ENDING);
    PathBuf::from(name)
}

fn strip_ending(path: &Path) -> Option<PathBuf> {
    let ending = path.extension()?.to_str()?;
    let (_, instead) = ENDINGS.iter().find(|(known, _)| *known == ending)?;
    Some(path.with_extension(instead))
}
