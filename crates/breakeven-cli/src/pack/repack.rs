//! `breakeven repack`: packs a stream again for the days it will be kept, for example in a colder archive.
//!
//! Each block of a row gets the method that costs least, and one frame gets such a level. The cores' work now is set
//! against the price of the bytes until they are deleted (Hirsch 2017, section 3.4 and the outlook). The new stream must
//! be smaller, and must decode to the same bytes, before it replaces the old one.

use std::fs::File;
use std::io::{self, Seek};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use breakeven::pool::Pool;
use breakeven::stream::{
    Goal, LongWriter, ReaderOptions, Summary, Survey, Writer, WriterOptions, survey,
};
use breakeven_cli::text::days;

use super::choice::Setting;
use super::content::{Content, unreadable};
use super::course::AnyWriter;
use super::form::{self, Aim};
use super::place::{Existing, Source, Target};
use super::{Counted, Job, READ_BYTES, container, say, write_unseen};
use crate::options::{FileOptions, RepackOptions, Strategy, Usage};
use crate::zstd_options::{HabitOptions, TreeOptions};

/// Runs `repack`.
pub fn run(typed: &RepackOptions) -> Result<ExitCode> {
    let standard = Path::new("-");
    if typed.output.is_none() && typed.paths.iter().any(|it| it == standard) {
        let reason = "standard input cannot be replaced; name a file with -o".to_string();
        bail!(Usage(reason));
    }
    let files = FileOptions {
        paths: typed.paths.clone(),
        stdout: false,
        output: typed.output.clone(),
        force: typed.force,
        keep: false,
        remove: false,
        threads: typed.threads,
        quiet: typed.quiet,
        verbose: false,
        tree: TreeOptions::default(),
        habits: HabitOptions::default(),
    };
    let setting = Setting::new(&typed.money, typed.keep, None);
    let repacking = Repacking {
        typed,
        goal: setting.goal(Strategy::Money)?,
        setting: &setting,
    };
    let job = Job::new(&files)?;
    let outcome = job.for_each(|source, pool| repacking.one(source, pool, &job))?;
    setting.keep(typed.quiet);
    Ok(outcome)
}

/// The state that all files of a call of `repack` share.
struct Repacking<'a> {
    typed: &'a RepackOptions,
    setting: &'a Setting<'a>,
    goal: Goal,
}

impl Repacking<'_> {
    fn one(&self, source: &mut Source, pool: &Pool, job: &Job) -> Result<()> {
        let name = source.name.clone();
        let Some(metadata) = source.metadata.clone() else {
            bail!("{name} is no regular file, and repack reads it twice");
        };
        let counted = survey(&mut source.file, &self.reading());
        let counted = counted.map_err(|error| unreadable(&name, error))?;
        if self.typed.output.is_none() {
            self.check_format(source, &counted)?;
        }
        let target = match &self.typed.output {
            Some(path) if path == Path::new("-") => {
                Target::standard_output(false, "name a file with -o, or lead it into a pipe")?
            }
            Some(path) => {
                let existing = Existing::of(self.typed.force, !self.typed.quiet);
                Target::create(path, source, existing)?
            }
            None => Target::in_place_of(&source.path)?,
        };
        // A source that cannot be read again is replaced by a stream that was checked before.
        let draft = match target.is_renamed() {
            true => None,
            false => Some(Target::nameless(&source.path)?),
        };
        let packed = draft.as_ref().unwrap_or(&target);
        let summary = write_unseen(source, packed, |source, is_thrifty| {
            self.write(source, packed, (pool, job), (&counted, is_thrifty))
        })?;
        let is_smaller = summary.stored_bytes < metadata.len();
        let days = days(&self.setting.days.to_string());
        if is_smaller {
            check_alike(source, packed, pool, &self.reading()).context("check what was packed")?;
            if draft.is_some() {
                copy(packed.reread()?, &target).with_context(|| target.name.clone())?;
            }
        } else if self.typed.output.is_some() {
            let old = source.duplicate()?;
            copy(old, &target).with_context(|| target.name.clone())?;
        } else {
            if job.tells(Some(&target)) {
                say(&format!(
                    "{name}: left as it is; nothing smaller pays for {days}"
                ));
            }
            return Ok(());
        }
        let in_place = self.typed.output.is_none();
        source.check_as_opened()?;
        if in_place {
            source.check_unchanged(&source.path)?;
        }
        let is_told = job.tells(Some(&target));
        job.complete(target, source, in_place)?;
        if is_told {
            say(&match is_smaller {
                true => format!(
                    "{name}: {} to {} bytes of {}, for {days}",
                    metadata.len(),
                    summary.stored_bytes,
                    summary.raw_bytes
                ),
                false => format!("{name}: copied; nothing smaller pays for {days}"),
            });
        }
        Ok(())
    }

    /// How the streams are read.
    fn reading(&self) -> ReaderOptions {
        ReaderOptions {
            window_bytes_max: self.typed.window_max,
            ..ReaderOptions::default()
        }
    }

    /// Refuses to put frames of zstd under the name of another format.
    fn check_format(&self, source: &Source, survey: &Survey) -> Result<()> {
        let (name, counted) = (&source.name, &survey.counted);
        let ending = source.path.extension().and_then(|it| it.to_str());
        // `pack --mixed` may have put frames of lz4 and xz there.
        let is_ours = self.typed.mixed || matches!(ending, Some("zst" | "zstd" | "tzst"));
        let format = match counted.zstd_frames {
            _ if counted.gzip_members > 0 => "gzip",
            0 if !is_ours && counted.lz4_frames > 0 => "lz4",
            0 if !is_ours && counted.xz_frames > 0 => "xz",
            _ => return Ok(()),
        };
        bail!("{name} is a file of {format}, and would hold zstd frames; name another file with -o")
    }

    /// Returns the writer of a stream in the form of the earlier one: a row, or one long frame.
    fn writer(
        &self,
        sink: Counted,
        pool: &Pool,
        (survey, head): (&Survey, &[u8]),
        is_thrifty: bool,
    ) -> Result<AnyWriter> {
        let counted = &survey.counted;
        let others = counted.lz4_frames + counted.xz_frames;
        if counted.zstd_frames == 1 && others + counted.gzip_members == 0 && !self.typed.mixed {
            let workers = pool.worker_count().max(1) as u32;
            let content_bytes = survey.states_content.then_some(counted.content_bytes);
            let known = (head, content_bytes);
            let options = match is_thrifty {
                true => form::thrifty_options(Aim::Money, content_bytes),
                false => form::long_options(Aim::Money, self.setting, workers, known)?,
            };
            return Ok(AnyWriter::Long(LongWriter::new(sink, options)?));
        }
        let container = container(others > 0 || self.typed.mixed);
        let options = WriterOptions {
            container,
            choice: (self.setting).choice(self.goal, container.arms(), None),
            ..WriterOptions::default()
        };
        Ok(AnyWriter::Row(Writer::new(sink, pool, options)?))
    }

    /// Decodes the stream and packs it into the target.
    fn write(
        &self,
        source: &mut Source,
        target: &Target,
        (pool, job): (&Pool, &Job),
        (survey, is_thrifty): (&Survey, bool),
    ) -> Result<Summary> {
        let file = source.duplicate()?;
        let mut content = Content::open((&source.name, file), true, pool, &self.reading())?;
        let written = Arc::default();
        let bar = job.progress(source, [content.read_bytes(), Arc::clone(&written)])?;
        if let Some(bytes) = content.content_bytes() {
            bar.set_length(bytes);
        }
        let sink = Counted {
            sink: Box::new(target.file()),
            written,
        };
        let mut writer = self.writer(sink, pool, (survey, content.fill()?), is_thrifty)?;
        let books = writer.books();
        let mut done = 0;
        loop {
            let piece = content.fill()?;
            if piece.is_empty() {
                break;
            }
            writer
                .write_all(piece)
                .with_context(|| target.name.clone())?;
            let count = piece.len();
            content.consume(count);
            done += count as u64;
            bar.set_position(content.stored_position().unwrap_or(done));
        }
        let summary = writer.finish().with_context(|| target.name.clone())?;
        bar.finish_and_clear();
        if let Some(books) = &books {
            self.setting.learn(books);
        }
        Ok(summary)
    }
}

/// Decodes both streams and compares them.
fn check_alike(
    source: &mut Source,
    target: &Target,
    pool: &Pool,
    options: &ReaderOptions,
) -> Result<()> {
    let open = |name: &str, mut file: std::fs::File| {
        file.rewind()?;
        Content::open((name, file), true, pool, options)
    };
    let mut old = open(&source.name, source.duplicate()?)?;
    let mut new = open(&target.name, target.reread()?)?;
    let (mut expected, mut found) = (vec![0; READ_BYTES], vec![0; READ_BYTES]);
    let mut at = 0;
    loop {
        let count = old.read(&mut expected)?;
        let same = new.read(&mut found)?;
        ensure!(
            expected[..count] == found[..same],
            "{} differs from {} within a MiB of byte {at}; nothing was replaced",
            target.name,
            source.name
        );
        if count == 0 {
            return Ok(());
        }
        at += count as u64;
    }
}

/// Makes the target a copy of a stream.
fn copy(mut stream: File, target: &Target) -> Result<()> {
    let file = target.file();
    let mut file = file.as_ref();
    if target.is_renamed() {
        file.set_len(0)?;
        file.rewind()?;
    }
    stream.rewind()?;
    io::copy(&mut stream, &mut file)?;
    Ok(())
}
