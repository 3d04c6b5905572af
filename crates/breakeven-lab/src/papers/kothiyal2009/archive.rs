//! The paper's future work (Chapter 7): many small files, each compressed alone or all in an archive.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::task::{self, Used};
use super::tasks::Place;
use crate::data::{self, Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::peers;
use crate::programs::{self, ZSTD};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "kothiyal2009/archive",
    claim: "Small files take less space archived and then compressed than each compressed alone, and reading one of them takes \
        longer.",
    source: "Chapter 7, future work",
    figure: "bytes alone over bytes archived, and seconds to read one file archived over alone,",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "files",
            "the headers of Linux of --data, unpacked (else, and quick, generated text of 1 to 16 KiB); the one read lies in the middle",
        ),
        (
            "programs",
            "gzip -6, bzip2 -9, lzop -3 and zstd -3, one process for all files alone, one called by tar for the archive",
        ),
        (
            "tasks",
            "write all and sync the file system; read all; read one, tar ending when it has it",
        ),
        (
            "runs",
            "10 (quick: 2), alternating alone and archived; nothing in the page cache before a task",
        ),
    ],
    analysis: "Bytes are those of the files' contents: a file system rounds each small file up to its unit, which speaks for the \
        archive once more. An archive has the names and 512 bytes for each file to compress besides. Writing and reading all are \
        variations: the archive is one stream, files alone are many opens and closes.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &[
    "files",
    "raw_bytes",
    "stored_bytes",
    "wall_seconds",
    "user_seconds",
    "system_seconds",
];
const RAW_BYTES: usize = 1;
const STORED_BYTES: usize = 2;
const WALL_SECONDS: usize = 3;

const WRITE: &str = "write-all";
const READ: &str = "read-all";
const READ_ONE: &str = "read-one";
const ALONE: &str = "alone";
const ARCHIVED: &str = "archived";

/// The archive of real data whose members are the small files.
const HEADERS: &str = "source-tar/linux-headers-6.1-include.tar";
const GENERATED_FILES: usize = 64;

/// A program that keeps its compressed files beside the plain ones, under a name with a suffix.
struct Program {
    name: &'static str,
    words: [&'static str; 2],
    suffix: &'static str,
}

const fn program(name: &'static str, words: [&'static str; 2], suffix: &'static str) -> Program {
    Program {
        name,
        words,
        suffix,
    }
}

const PROGRAMS: &[Program] = &[
    program("gzip -6", ["gzip", "-6"], "gz"),
    program("bzip2 -9", ["bzip2", "-9"], "bz2"),
    program("lzop -3", ["lzop", "-3"], "lzo"),
    program("zstd -3", ["zstd", "-3"], "zst"),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let place = Place::new(laboratory, EXPERIMENT.key)?;
    let runs = if laboratory.quick { 2 } else { 10 };
    let source = match headers(laboratory)? {
        Some(_) => HEADERS.to_string(),
        None => format!("generated-{} seed={SEED}", Kind::Text),
    };
    let here = PROGRAMS
        .iter()
        .filter(|program| peers::is_installed(program.words[0]));
    let cell = |program: &'static Program| {
        let place = &place;
        Cell {
            name: program.name.to_string(),
            parameters: format!(
                "source={source} runs={runs} cold={} medium={}{}",
                place.cold.name(),
                place.medium,
                versions(program)
            ),
            measure: Box::new(move || race(laboratory, place, program, runs)),
        }
    };
    laboratory.measure(EXPERIMENT.key, COLUMNS, here.map(cell).collect())
}

/// Returns the version of a program that may be a peer out of another root, as one more word.
fn versions(program: &Program) -> String {
    match program.words[0] == ZSTD.0 {
        true => format!(" {}", programs::peers(&[ZSTD])),
        false => String::new(),
    }
}

/// Returns the real archive, where a full run has it.
fn headers(laboratory: &Laboratory) -> Result<Option<data::SharedFile>> {
    let Some(folder) = laboratory.data.as_ref().filter(|_| !laboratory.quick) else {
        return Ok(None);
    };
    let files = data::shared_files(folder)?;
    let found = files.into_iter().find(|file| file.name == HEADERS);
    found
        .map(Some)
        .with_context(|| format!("{}: no {HEADERS}", folder.display()))
}

/// Small files in one folder, and all of them in one file in the order of their names.
struct Corpus {
    folder: PathBuf,
    files: Vec<PathBuf>,
    joined: PathBuf,
    raw_bytes: u64,
}

impl Corpus {
    fn make(laboratory: &Laboratory, scratch: &Path) -> Result<Corpus> {
        let folder = scratch.join("raw");
        fs::create_dir(&folder)?;
        let contents = match (headers(laboratory)?, &laboratory.data) {
            (Some(file), Some(shared)) => unpacked(&file.load(shared)?, scratch)?,
            _ => generated(),
        };
        let mut files = Vec::with_capacity(contents.len());
        for (index, content) in contents.iter().enumerate() {
            let path = folder.join(format!("f{index:05}"));
            fs::write(&path, content)?;
            files.push(path);
        }
        let joined = scratch.join("joined");
        fs::write(&joined, contents.concat())?;
        sync(scratch)?;
        Ok(Corpus {
            folder,
            files,
            joined,
            raw_bytes: contents.iter().map(|content| content.len() as u64).sum(),
        })
    }

    /// Returns each file's compressed form as a program names it.
    fn stored(&self, program: &Program) -> Vec<PathBuf> {
        let stored = |path: &PathBuf| path.with_extension(program.suffix);
        self.files.iter().map(stored).collect()
    }
}

fn generated() -> Vec<Vec<u8>> {
    let mut random = data::Random::new(SEED);
    let text = Kind::Text.generate(GENERATED_FILES * (16 << 10), SEED);
    let file = |index: usize| {
        let length = (1 << 10) + random.below(15 << 10) as usize;
        text[index * (16 << 10)..][..length].to_vec()
    };
    (0..GENERATED_FILES).map(file).collect()
}

/// Returns the contents of an archive's files in the order of their paths.
fn unpacked(archive: &[u8], scratch: &Path) -> Result<Vec<Vec<u8>>> {
    let (packed, folder) = (scratch.join("packed.tar"), scratch.join("unpacked"));
    fs::write(&packed, archive)?;
    fs::create_dir(&folder)?;
    run(&strings(&[
        "tar",
        "-xf",
        &text(&packed),
        "-C",
        &text(&folder),
    ]))?;
    let mut contents = BTreeMap::new();
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                contents.insert(entry.path(), fs::read(entry.path())?);
            }
        }
    }
    fs::remove_dir_all(folder)?;
    fs::remove_file(packed)?;
    ensure!(!contents.is_empty(), "{HEADERS} has no files");
    Ok(contents.into_values().collect())
}

fn race(
    laboratory: &Laboratory,
    place: &Place,
    program: &Program,
    runs: usize,
) -> Result<Vec<Row>> {
    let scratch = laboratory.scratch()?;
    let corpus = Corpus::make(laboratory, scratch.path())?;
    let archive = scratch.path().join("archive.tar");
    let ways = [
        Way::alone(program, &corpus),
        Way::archived(program, &corpus, &archive),
    ];
    let mut rows = Vec::new();
    for run in 0..runs {
        let turns = interleave::in_turn(run, ways.len(), |index| {
            let turn = ways[index].take_turn(place, &corpus, scratch.path(), run == 0);
            turn.with_context(|| ways[index].name.to_string())
        })?;
        for (way, (stored_bytes, tasks)) in ways.iter().zip(turns) {
            for (task, used) in tasks {
                rows.push(Row {
                    task: task.to_string(),
                    run: run + 1,
                    runs,
                    contender: way.name.to_string(),
                    values: vec![
                        corpus.files.len() as f64,
                        corpus.raw_bytes as f64,
                        stored_bytes as f64,
                        used.wall_seconds,
                        used.user_seconds,
                        used.system_seconds,
                    ],
                });
            }
        }
    }
    Ok(rows)
}

/// The commands of one way to keep the files.
struct Way {
    name: &'static str,
    write: Vec<String>,
    read: Vec<String>,
    read_one: Vec<String>,
    /// The files that writing makes.
    stored: Vec<PathBuf>,
    /// The input of reading one file.
    one: PathBuf,
}

impl Way {
    fn alone(program: &Program, corpus: &Corpus) -> Way {
        let stored = corpus.stored(program);
        let one = stored[stored.len() / 2].clone();
        let [name, level] = program.words;
        let with = |first: &[&str], paths: &[PathBuf]| {
            let paths = paths.iter().map(|path| text(path));
            strings(first)
                .into_iter()
                .chain(paths)
                .collect::<Vec<String>>()
        };
        Way {
            name: ALONE,
            write: with(&[name, level, "-q", "-k"], &corpus.files),
            read: with(&[name, "-q", "-dc"], &stored),
            read_one: with(&[name, "-q", "-dc"], std::slice::from_ref(&one)),
            stored,
            one,
        }
    }

    fn archived(program: &Program, corpus: &Corpus, archive: &Path) -> Way {
        let [name, level] = program.words;
        let (archive, folder) = (archive.to_path_buf(), text(&corpus.folder));
        let (compress, packed) = (format!("{name} {level}"), text(&archive));
        let middle = &corpus.files[corpus.files.len() / 2];
        let member = middle
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let member = format!("./{}", member.unwrap_or_default());
        let read = ["tar", "-I", name, "-xOf", &packed];
        Way {
            name: ARCHIVED,
            write: strings(&[
                "tar",
                "--sort=name",
                "-I",
                &compress,
                "-cf",
                &packed,
                "-C",
                &folder,
                ".",
            ]),
            read: strings(&read),
            read_one: strings(&[&read[..], &["--occurrence=1", &member]].concat()),
            stored: vec![archive.clone()],
            one: archive,
        }
    }

    /// Does the three tasks; returns the bytes stored, and the usage of each task.
    fn take_turn(
        &self,
        place: &Place,
        corpus: &Corpus,
        scratch: &Path,
        verified: bool,
    ) -> Result<(u64, Vec<(&'static str, Used)>)> {
        place.cold.chill(&corpus.files)?;
        let (write, ()) = task::measure(&place.energy, || {
            run(&self.write)?;
            sync(scratch)
        })?;
        let mut stored_bytes = 0;
        for path in &self.stored {
            stored_bytes += fs::metadata(path)?.len();
        }
        place.cold.chill(&self.stored)?;
        let (read, ()) = task::measure(&place.energy, || run(&self.read))?;
        place.cold.chill([&self.one])?;
        let (read_one, ()) = task::measure(&place.energy, || run(&self.read_one))?;
        if verified {
            let mut child = task::spawn(&self.read, Stdio::null(), Stdio::piped())?;
            task::expect_bytes(&self.read, &mut child, &corpus.joined)?;
            task::finish(&self.read, child)?;
        }
        for path in &self.stored {
            fs::remove_file(path)?;
        }
        Ok((
            stored_bytes,
            vec![(WRITE, write), (READ, read), (READ_ONE, read_one)],
        ))
    }
}

fn run(words: &[String]) -> Result<()> {
    task::finish(words, task::spawn(words, Stdio::null(), Stdio::null())?)?;
    Ok(())
}

/// Writes out all that the file system of a folder still holds in memory.
fn sync(folder: &Path) -> Result<()> {
    rustix::fs::syncfs(File::open(folder)?).with_context(|| format!("sync {}", folder.display()))
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let all = cells.iter().flat_map(|cell| {
        let first = |way: &str, column: usize| cell.column(WRITE, way, column)[0];
        let bytes = first(ALONE, STORED_BYTES) / first(ARCHIVED, STORED_BYTES);
        let ratio = |way: &str| first(way, RAW_BYTES) / first(way, STORED_BYTES);
        let note = format!(
            "ratio {:.2} alone, {:.2} archived; {} files of {:.0} bytes",
            ratio(ALONE),
            ratio(ARCHIVED),
            first(ALONE, 0),
            first(ALONE, RAW_BYTES) / first(ALONE, 0)
        );
        let bytes = Interval::exact((1e3 * bytes).round() / 1e3);
        [
            finding(cell, "bytes", bytes, true, note),
            of_times(cell, READ_ONE, ARCHIVED, ALONE, true),
            of_times(cell, WRITE, ALONE, ARCHIVED, false),
            of_times(cell, READ, ALONE, ARCHIVED, false),
        ]
    });
    all.collect()
}

fn finding(cell: &CellRecord, what: &str, found: Interval, core: bool, note: String) -> Finding {
    Finding {
        question: format!("{} {what}", cell.cell),
        core,
        found,
        verdict: EXPERIMENT.target.judge(found),
        note,
    }
}

/// Returns the finding on the time of `over` divided by that of `under`.
fn of_times(cell: &CellRecord, task: &str, over: &str, under: &str, core: bool) -> Finding {
    let seconds = |way: &str| cell.column(task, way, WALL_SECONDS);
    let (over_seconds, under_seconds) = (seconds(over), seconds(under));
    let found = Interval::of_quotients(&over_seconds, &under_seconds);
    let mean = |values: &[f64]| 1e3 * values.iter().sum::<f64>() / values.len() as f64;
    let note = format!(
        "{over} over {under}: {:.3} over {:.3} ms",
        mean(&over_seconds),
        mean(&under_seconds)
    );
    finding(cell, task, found, core, note)
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, EXPERIMENT.key, COLUMNS, findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_files_are_small_and_differ() {
        let files = generated();
        assert_eq!(files.len(), GENERATED_FILES);
        assert!(
            files
                .iter()
                .all(|file| (1 << 10..16 << 10).contains(&file.len()))
        );
        assert_ne!(files[0][..1000], files[1][..1000]);
    }
}
