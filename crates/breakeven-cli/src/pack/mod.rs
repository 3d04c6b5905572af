//! `breakeven pack`, `unpack` and `cat`: files in and out of streams, with the habits of `zstd`.

mod info;
mod place;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{
    Container, Reader, ReaderOptions, SeekableReader, Summary, Writer, WriterOptions,
    read_seek_table,
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::options::{FileOptions, PackOptions, UnpackOptions};
use place::{Source, Target};

pub use info::run as info;

/// The ending of what is packed.
const ENDING: &str = "zst";
/// Endings that are left out when unpacking, and what is put in their place.
const ENDINGS: [(&str, &str); 4] = [("zst", ""), ("zstd", ""), ("tzst", "tar"), ("tzs", "tar")];
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
        method: typed.method,
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

/// Runs `unpack`.
pub fn unpack(typed: &UnpackOptions) -> Result<ExitCode> {
    let options = ReaderOptions {
        output_bytes_max: typed.output_max,
        window_bytes_max: typed.window_max,
        ignores_trailing: typed.ignore_trailing,
        ..ReaderOptions::default()
    };
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
                    let _ = writeln!(std::io::stderr(), "breakeven: {error:#}");
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
            fs::remove_file(path).with_context(|| format!("remove {}", path.display()))?;
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
        if let Some(path) = &self.typed.output
            && path != Path::new("-")
        {
            return Target::create(path, self.typed.force);
        }
        if self.typed.stdout || is_stdin || self.typed.output.is_some() {
            if self.typed.remove && self.typed.stdout {
                bail!(Usage(
                    "--rm goes with files that stay, not with -c".to_string()
                ));
            }
            return Target::standard_output(is_text || self.typed.stdout);
        }
        let Some(path) = name(Path::new(&source.name)) else {
            bail!(
                "{}: the name does not end in .zst; name the file with -o",
                source.name
            );
        };
        Target::create(&path, self.typed.force)
    }

    fn progress(&self, source: &Source) -> Result<ProgressBar> {
        if self.typed.quiet {
            return Ok(ProgressBar::hidden());
        }
        // Hidden by itself where standard error is no terminal.
        let length = source.metadata.as_ref().map(std::fs::Metadata::len);
        let (bar, template) = match length {
            Some(length) => (
                ProgressBar::new(length),
                "{msg} {bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            ),
            None => (ProgressBar::no_length(), "{msg} {bytes}, {bytes_per_sec}"),
        };
        bar.set_style(ProgressStyle::with_template(template)?);
        bar.set_message(source.name.clone());
        Ok(bar)
    }

    fn tell(&self, target: &Target, text: impl FnOnce() -> String) {
        if !self.typed.quiet && target.is_renamed() {
            let _ = writeln!(std::io::stderr(), "{}", text());
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
    let bar = job.progress(source)?;
    let mut writer = Writer::new(target.file()?, pool, options.clone())?;
    let mut piece = vec![0; READ_BYTES];
    loop {
        let count = match source.file.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context(format!("read {}", source.name)),
        };
        writer.write_all(&piece[..count])?;
        bar.inc(count as u64);
    }
    let (_, summary) = writer.finish()?;
    bar.finish_and_clear();
    job.tell(&target, || packed(&source.name, &summary));
    target.complete(source.metadata.as_ref(), job.typed.remove)
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
    let bar = job.progress(source)?;
    let mut sink: Box<dyn Write> = match &target {
        Some(target) => Box::new(target.file()?),
        None => Box::new(std::io::sink()),
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
                let content = reader.fill().with_context(|| name.clone())?;
                if content.is_empty() {
                    break reader.content_bytes();
                }
                sink.write_all(content).context("write")?;
                let count = content.len();
                reader.consume(count);
                bar.inc(count as u64);
            }
        }
        None => {
            let mut reader = Reader::new(file, pool, options.clone())?;
            loop {
                let content = reader.fill().with_context(|| name.clone())?;
                if content.is_empty() {
                    break reader.counted().content_bytes;
                }
                sink.write_all(content).context("write")?;
                let count = content.len();
                reader.consume(count);
                bar.set_position(reader.counted().stored_bytes);
            }
        }
    };
    drop(sink);
    bar.finish_and_clear();
    let Some(target) = target else {
        return Ok(());
    };
    job.tell(&target, || {
        let speed = content_bytes as f64 / 1e6 / begun.elapsed().as_secs_f64().max(1e-9);
        format!("{name}: {content_bytes} bytes, {speed:.0} MB/s")
    });
    target.complete(source.metadata.as_ref(), job.typed.remove)
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
