//! `breakeven pack` as a user meets it, beside `zstd` and `xz`, on untuned data: an archive of this machine's own
//! documents and headers, and real files.
//!
//! Both are the programs themselves, started again each time. The archive is made by `tar` when it is first wanted, so
//! it differs from machine to machine; its length stands beside the figures.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use breakeven::meter::{Meter, Scope};
use breakeven::units::BytesPerSecond;

use super::super::hirsch2017::link::Link;
use super::super::hirsch2017::network::{self, Network};
use crate::data;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::peers;
use crate::programs::{self, ZSTD, own_program, resident};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

/// The archived folders, documents first: they hold packed files, which repeat; headers are text, which does.
pub(super) const FOLDERS: [&str; 2] = ["usr/share/doc", "usr/include"];
pub(super) const PACK: &str = "pack";
pub(super) const RUNS: usize = 10;
pub(super) const TASK: &str = "pack";
pub(super) const COLUMNS: &[&str] = &[
    "raw_bytes",
    "stored_bytes",
    "wall_seconds",
    "cpu_seconds",
    "resident_bytes",
];
pub(super) const STORED: usize = 1;
pub(super) const WALL: usize = 2;
pub(super) const CPU: usize = 3;
pub(super) const RESIDENT: usize = 4;

pub const FILE: Experiment = Experiment {
    key: "breakeven/pack-file",
    claim: "`pack FILE` is never larger than `zstd FILE` by more than 5 %, and takes at most its time.",
    source: "this project's own target",
    figure: "bytes, and time, of pack FILE over those of zstd FILE",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "data",
            "an archive of this machine's documents and headers, each of the two alone, and all files of --data in one",
        ),
        (
            "contenders",
            "breakeven pack FILE and zstd FILE, both as installed and without options, into a file beside the records",
        ),
        (
            "runs",
            "10 (quick: 5 of 8 MiB of headers), both alternating",
        ),
    ],
    analysis: "The file is in the page cache for both, and the copy is not synced, as neither program does. zstd \
        compresses on one thread and reads and writes on others. pack works up to a third more, on twice the threads. \
        So it takes longer where other programs keep both processors busy. The sizes have a target of their own, 1.05.",
    run: |laboratory| Ok(files_judged(&measure_files(laboratory)?)),
    table: |records| table(records, FILE.key, files_judged),
    pictures: no_pictures,
};

pub const LINK: Experiment = Experiment {
    key: "breakeven/pack-link",
    claim: "Over a slow link `pack` takes at most 1.02 of the time of the best static zstd on two threads, and 0.97 of --adapt's.",
    source: "this project's own target",
    figure: "time until a link of this speed has the last byte, over that of the best static zstd, and of --adapt,",
    target: Target {
        low: 0.0,
        high: 1.02,
    },
    parameters: &[
        (
            "data",
            "48 MiB of the archive of this machine's documents and headers, half of it each, and 64 MiB of headers alone; `archive`, and over the network, 210 MiB of it, headers first; `data`: all files of --data in one",
        ),
        (
            "the link",
            "a pipe that is read no faster than 12 or 117 MB/s; and, as root, TCP into another network namespace through a token bucket of 96 Mbit/s",
        ),
        (
            "contenders",
            "pack with a given link (judged), pack that measures the link, zstd -1, -3, -6 and -9 with -T2, and --adapt -T2",
        ),
        ("runs", "10 (quick: 2 of 2 MiB), all alternating"),
    ],
    analysis: "The best static level is known only afterwards: it has the least median. Data with one half that \
        shrinks and one that does not wants two levels. A static level is wrong for one half. Core seconds and \
        resident memory stand beside the times. The memory is to be at most that of zstd -9 -T2. Where the time is \
        within 2 % of the best static level's, the core seconds are to be at most its.",
    run: |laboratory| Ok(links_judged(&measure_links(laboratory)?)),
    table: |records| table(records, LINK.key, links_judged),
    pictures: no_pictures,
};

pub const SMALLEST: Experiment = Experiment {
    key: "breakeven/pack-smallest",
    claim: "`pack --strategy smallest` stores at most 1.01 of `zstd -19`'s bytes of any file and fewer in sum; `money` and `--mixed` stand \
        beside it.",
    source: "this project's own target",
    figure: "bytes over those of zstd -19, or xz -6 for --mixed,",
    target: Target {
        low: 0.0,
        high: 1.01,
    },
    parameters: &[
        (
            "data",
            "1 and 4 MiB of this machine's headers, and the files of --data up to 8 MiB",
        ),
        (
            "contenders",
            "pack --strategy smallest, the same with --mixed, and --strategy money; zstd -19, xz -6",
        ),
    ],
    analysis: "Sizes have no noise, so one run is enough. A mixed stream is a row of frames of 16 MiB, each by zstd or \
        xz. So xz finds repeats over more than 16 MiB in a whole file and not there.",
    run: |laboratory| Ok(sizes_judged(&measure_sizes(laboratory)?)),
    table: |records| table(records, SMALLEST.key, sizes_judged),
    pictures: no_pictures,
};

pub(super) fn table(
    records: &Path,
    key: &str,
    judge: fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<tables::Shown> {
    tables::table_of(records, key, COLUMNS, judge)
}

/// Archives folders of this machine; the archive ends after so many bytes, if there are more.
pub(super) fn archive(folders: &[&str], bytes_max: u64, target: &Path) -> Result<()> {
    let mut child = Command::new("tar")
        .args(["-C", "/", "-cf", "-"])
        .args(folders.iter().filter(|it| Path::new("/").join(it).exists()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("start tar")?;
    let out = child.stdout.take().context("a pipe")?;
    let count = io::copy(&mut out.take(bytes_max), &mut File::create(target)?)?;
    // It is cut off where that is enough, and files may go away while it reads them.
    let _ = child.wait()?;
    ensure!(
        count > 256 << 10,
        "{folders:?} have only {count} bytes here"
    );
    Ok(())
}

/// The resources that a program used.
pub(super) struct Used {
    stored_bytes: u64,
    wall_seconds: f64,
    cpu_seconds: f64,
    resident_bytes: f64,
}

impl Used {
    pub(super) fn row(&self, contender: &str, (run, runs): (usize, usize), raw_bytes: u64) -> Row {
        Row {
            task: TASK.to_string(),
            run: run + 1,
            runs,
            contender: contender.to_string(),
            values: vec![
                raw_bytes as f64,
                self.stored_bytes as f64,
                self.wall_seconds,
                self.cpu_seconds,
                self.resident_bytes,
            ],
        }
    }
}

/// Runs a program on a file given as standard input, whose output goes into a sink.
fn run(words: &[String], input: &Path, sink: &mut impl Write) -> Result<Used> {
    let (begun, meter) = (Instant::now(), Meter::start(Scope::Children));
    let mut child = peers::command(&words[0])
        .args(&words[1..])
        .stdin(File::open(input)?)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start '{}'", words.join(" ")))?;
    let mut out = child.stdout.take().context("a pipe")?;
    let (mut piece, mut stored_bytes, mut resident_bytes) = (vec![0; 64 << 10], 0, 0.0_f64);
    loop {
        let count = out.read(&mut piece)?;
        if count == 0 {
            break;
        }
        sink.write_all(&piece[..count])?;
        stored_bytes += count as u64;
        resident_bytes = resident_bytes.max(resident(&child));
    }
    sink.flush()?;
    let wall_seconds = begun.elapsed().as_secs_f64();
    finish(words, child)?;
    Ok(Used {
        stored_bytes,
        wall_seconds,
        cpu_seconds: meter.stop(stored_bytes).cpu.total().0,
        resident_bytes,
    })
}

fn finish(words: &[String], mut child: Child) -> Result<()> {
    let status = child.wait()?;
    ensure!(status.success(), "'{}': {status}", words.join(" "));
    Ok(())
}

/// Runs a program that writes a file of its own, and returns its usage.
pub(super) fn run_to_file(words: &[String], made: &Path) -> Result<Used> {
    let _ = fs::remove_file(made);
    let used = programs::run(peers::command(&words[0]).args(&words[1..]))?;
    Ok(Used {
        stored_bytes: fs::metadata(made)?.len(),
        wall_seconds: used.wall_seconds,
        cpu_seconds: used.cpu_seconds,
        resident_bytes: used.resident_bytes,
    })
}

/// Checks by stock zstd that a stream is a file.
pub(super) fn verify(stream: &Path, raw: &Path) -> Result<()> {
    let words = ["zstd", "-dqc", "--long=27"].map(str::to_string);
    let words = [&words[..], &[text(stream)]].concat();
    let mut same = Same {
        file: File::open(raw)?,
        expected: Vec::new(),
    };
    let used = run(&words, Path::new("/dev/null"), &mut same)?;
    ensure!(
        used.stored_bytes == fs::metadata(raw)?.len(),
        "{}: {} bytes came back",
        stream.display(),
        used.stored_bytes
    );
    Ok(())
}

/// A sink that takes only the bytes of a file.
struct Same {
    file: File,
    expected: Vec<u8>,
}

impl Write for Same {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.expected.resize(bytes.len(), 0);
        self.file.read_exact(&mut self.expected)?;
        match self.expected == bytes {
            true => Ok(bytes.len()),
            false => Err(io::Error::other("other bytes came back")),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(super) fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// A packed input: its name, and its maker.
type Made = (&'static str, Box<dyn Fn(&Path) -> Result<()>>);

fn inputs(laboratory: &Laboratory) -> Vec<Made> {
    const ALL: u64 = 400 << 20;
    if laboratory.quick {
        return vec![(
            "headers",
            Box::new(|it| archive(&FOLDERS[1..], 8 << 20, it)),
        )];
    }
    let mut inputs: Vec<Made> = vec![
        ("machine", Box::new(|it| archive(&FOLDERS, ALL, it))),
        ("documents", Box::new(|it| archive(&FOLDERS[..1], ALL, it))),
        ("headers", Box::new(|it| archive(&FOLDERS[1..], ALL, it))),
    ];
    if let Some(folder) = laboratory.data.clone() {
        inputs.push(("data", Box::new(move |it| all_data(&folder, it))));
    }
    inputs
}

/// Writes all real files one after the other.
pub(super) fn all_data(folder: &Path, target: &Path) -> Result<()> {
    let mut file = File::create(target)?;
    for shared in data::shared_files(folder)? {
        file.write_all(&shared.load(folder)?)?;
    }
    Ok(())
}

fn measure_files(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (program, folder) = (own_program()?, laboratory.scratch()?);
    let runs = if laboratory.quick { 5 } else { RUNS };
    let zstd = programs::peers(&[ZSTD]);
    let cells = inputs(laboratory).into_iter().map(|(name, make)| {
        let (program, folder) = (text(&program), folder.path().to_path_buf());
        Cell {
            name: name.to_string(),
            parameters: format!("runs={runs} {zstd}"),
            measure: Box::new(move || {
                let raw = folder.join(name);
                make(&raw)?;
                let outcome = race_files(&program, &raw, runs);
                fs::remove_file(&raw)?;
                outcome
            }),
        }
    });
    laboratory.measure(FILE.key, COLUMNS, cells.collect())
}

pub(super) fn race_files(program: &str, raw: &Path, runs: usize) -> Result<Vec<Row>> {
    let name = text(raw);
    let made = [raw.with_extension("ours"), raw.with_extension("theirs")];
    let [ours, theirs] = [0, 1].map(|index: usize| text(&made[index]));
    let contenders = [
        (PACK, words(&[program, "pack", "-q", "-o", &ours, &name])),
        ("zstd", words(&["zstd", "-q", "-o", &theirs, &name])),
    ];
    let raw_bytes = fs::metadata(raw)?.len();
    let mut rows = Vec::new();
    for run in 0..runs {
        rows.extend(interleave::in_turn(run, contenders.len(), |index| {
            let (name, words) = &contenders[index];
            let used = run_to_file(words, &made[index])?;
            if run == 0 {
                verify(&made[index], raw)?;
            }
            fs::remove_file(&made[index])?;
            Ok(used.row(name, (run, runs), raw_bytes))
        })?);
    }
    Ok(rows)
}

pub(super) fn median(cell: &CellRecord, contender: &str, column: usize) -> f64 {
    cell.median(TASK, contender, column)
}

/// Returns a contender's usage beside its time.
pub(super) fn beside(cell: &CellRecord, contender: &str) -> String {
    format!(
        "{contender} {:.3} s, {:.2} core s, {:.1} MB, {:.0} MB resident",
        median(cell, contender, WALL),
        median(cell, contender, CPU),
        median(cell, contender, STORED) / 1e6,
        median(cell, contender, RESIDENT) / 1e6
    )
}

pub(super) fn over(cell: &CellRecord, contender: &str, other: &str, column: usize) -> Interval {
    let values = |name: &str| cell.column(TASK, name, column);
    Interval::of_quotients(&values(contender), &values(other))
}

pub(super) fn is_quick(cell: &CellRecord) -> bool {
    cell.rows.iter().all(|row| row.runs < RUNS)
}

fn files_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let size_target = Target {
        low: 0.0,
        high: 1.05,
    };
    let of_cell = |cell: &CellRecord| {
        let size = Interval {
            runs: usize::from(is_quick(cell)),
            ..Interval::exact(median(cell, PACK, STORED) / median(cell, "zstd", STORED))
        };
        let time = over(cell, PACK, "zstd", WALL);
        let raw = cell.column(TASK, PACK, 0)[0];
        [
            Finding {
                question: format!("{} bytes", cell.cell),
                core: true,
                found: size,
                verdict: size_target.judge(size),
                note: format!("target {size_target}; of {:.0} MB", raw / 1e6),
            },
            Finding {
                question: format!("{} time", cell.cell),
                core: true,
                found: time,
                verdict: FILE.target.judge(time),
                note: format!("{}; {}", beside(cell, PACK), beside(cell, "zstd")),
            },
        ]
    };
    cells.iter().flat_map(of_cell).collect()
}

/// Static levels that race.
const STATICS: [&str; 4] = ["-1", "-3", "-6", "-9"];
const UNTOLD: &str = "pack untold";
const ADAPT: &str = "zstd --adapt";
const NETWORK: &str = "network";
pub(super) const ARCHIVE: &str = "archive";
pub(super) const DATA: &str = "data";

fn contenders(program: &str, megabytes: f64) -> Vec<(String, Vec<String>)> {
    let link = format!("{megabytes}MB/s");
    let mut all = vec![
        (
            PACK.to_string(),
            words(&[program, "pack", "-c", "--link", &link]),
        ),
        (UNTOLD.to_string(), words(&[program, "pack", "-c"])),
        (
            ADAPT.to_string(),
            words(&["zstd", "-q", "-c", "--adapt", "-T2"]),
        ),
    ];
    for level in STATICS {
        let words = words(&["zstd", "-q", "-c", level, "-T2"]);
        all.push((format!("zstd {level}"), words));
    }
    all
}

fn measure_links(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (program, folder) = (own_program()?, laboratory.scratch()?);
    let quick = laboratory.quick;
    let (runs, part) = if quick {
        (2, 1 << 20)
    } else {
        (RUNS, 24 << 20)
    };
    let plans: &[(&str, f64)] = match quick {
        true => &[("headers", 117.0)],
        false => &[
            ("machine", 12.0),
            ("machine", 117.0),
            ("headers", 12.0),
            ("headers", 117.0),
            (ARCHIVE, 12.0),
            (ARCHIVE, 117.0),
            (DATA, 12.0),
            (DATA, 117.0),
        ],
    };
    let has_data = laboratory.data.is_some();
    let plans = plans.iter().filter(|it| it.0 != DATA || has_data);
    let (own, zstd) = (text(&program), programs::peers(&[ZSTD]));
    let cell = |input: &'static str, megabytes: f64, runs: usize| {
        let (program, folder) = (own.clone(), folder.path().to_path_buf());
        let data = laboratory.data.clone();
        Cell {
            name: format!("{input} {megabytes} MB/s"),
            parameters: format!("runs={runs} part={part} {zstd}"),
            measure: Box::new(move || {
                let raw = folder.join("input");
                match (input, &data) {
                    (NETWORK | ARCHIVE, _) => whole_archive(&raw)?,
                    ("machine", _) => halves(part, &raw)?,
                    (DATA, Some(data)) => all_data(data, &raw)?,
                    _ => archive(&FOLDERS[1..], 8 * part / 3, &raw)?,
                }
                let speed = BytesPerSecond(1e6 * megabytes);
                let contenders = contenders(&program, megabytes);
                let outcome = match input {
                    NETWORK => {
                        let network = Network::slowed()?;
                        network.shape(speed)?;
                        let send = || Ok(Box::new(network.sender()?) as Box<dyn Write>);
                        race_links(&contenders, &raw, runs, &send)
                    }
                    _ => {
                        let send = || Ok(Box::new(Link::new(speed)) as Box<dyn Write>);
                        race_links(&contenders, &raw, runs, &send)
                    }
                };
                fs::remove_file(&raw)?;
                outcome
            }),
        }
    };
    let mut cells: Vec<Cell> = plans.map(|&it| cell(it.0, it.1, runs)).collect();
    match network::obstacle().filter(|_| !quick) {
        Some(obstacle) => eprintln!("{}: no network: {obstacle}", LINK.key),
        None if quick => {}
        None => cells.push(cell(NETWORK, 12.0, runs)),
    }
    laboratory.measure(LINK.key, COLUMNS, cells)
}

/// Archives both folders, headers first: 220 MB, with repeats.
pub(super) fn whole_archive(target: &Path) -> Result<()> {
    archive(&[FOLDERS[1], FOLDERS[0]], 210 << 20, target)
}

/// Writes so much of an archive of either folder one after the other.
pub(super) fn halves(part: u64, target: &Path) -> Result<()> {
    let half = target.with_extension("half");
    archive(&FOLDERS[..1], part, target)?;
    archive(&FOLDERS[1..], part, &half)?;
    let mut file = File::options().append(true).open(target)?;
    io::copy(&mut File::open(&half)?, &mut file)?;
    Ok(fs::remove_file(&half)?)
}

/// All contenders send a file, alternating, each over a link of its own.
pub(super) fn race_links(
    contenders: &[(String, Vec<String>)],
    raw: &Path,
    runs: usize,
    send: &dyn Fn() -> Result<Box<dyn Write>>,
) -> Result<Vec<Row>> {
    let raw_bytes = fs::metadata(raw)?.len();
    let mut rows = Vec::new();
    for run_index in 0..runs {
        rows.extend(interleave::in_turn(run_index, contenders.len(), |index| {
            let (name, words) = &contenders[index];
            // The output of cat is no stream.
            if run_index == 0 && words[0] != "cat" {
                let made = raw.with_extension("made");
                run(words, raw, &mut File::create(&made)?)?;
                verify(&made, raw)?;
                fs::remove_file(&made)?;
            }
            let used = run(words, raw, &mut send()?)?;
            Ok(used.row(name, (run_index, runs), raw_bytes))
        })?);
    }
    Ok(rows)
}

fn links_judged(cells: &[CellRecord]) -> Vec<Finding> {
    let adapt_target = Target {
        low: 0.0,
        high: 0.97,
    };
    let mut findings = Vec::new();
    for cell in cells {
        let statics = STATICS.map(|level| format!("zstd {level}"));
        let seconds = |name: &String| median(cell, name, WALL);
        let best = statics
            .iter()
            .min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        let best = best.expect("there are levels");
        for name in [PACK, UNTOLD] {
            for (other, target) in [(best.as_str(), LINK.target), (ADAPT, adapt_target)] {
                let found = over(cell, name, other, WALL);
                findings.push(Finding {
                    question: format!("{} {name} over {other}", cell.cell),
                    core: name == PACK,
                    found,
                    verdict: target.judge(found),
                    note: format!(
                        "target {target}; {}; {}",
                        beside(cell, name),
                        beside(cell, other)
                    ),
                });
            }
        }
        findings.extend(taken(cell, best, "core seconds", CPU));
        // A program that is gone before it is looked at has shown no memory.
        let is_seen = |name: &str| cell.column(TASK, name, RESIDENT).iter().all(|it| *it > 0.0);
        if is_seen(PACK) && is_seen("zstd -9") {
            findings.extend(taken(cell, "zstd -9", "resident bytes", RESIDENT));
        }
    }
    findings
}

/// Time within which two are held to be the same.
const SAME_TIME: f64 = 0.98;

/// Finds pack's usage of something beside its time. A contender that is faster by more than the margin of equality may
/// take more core seconds. Then there is no finding: they stand beside its time.
fn taken(cell: &CellRecord, other: &str, what: &str, column: usize) -> Option<Finding> {
    let is_sooner = over(cell, PACK, other, WALL).middle < SAME_TIME;
    let target = Target {
        low: 0.0,
        high: 1.0,
    };
    let found = over(cell, PACK, other, column);
    (column != CPU || !is_sooner).then(|| Finding {
        question: format!("{} {what} of {PACK} over {other}", cell.cell),
        core: false,
        found,
        verdict: target.judge(found),
        note: format!("target {target}"),
    })
}

const MIXED: &str = "mixed smallest";
const SMALLEST_NAME: &str = "smallest";
const MONEY: &str = "money";
/// Longer files take minutes by xz and the densest levels, and say the same.
const SIZED_BYTES_MAX: u64 = 8 << 20;

fn measure_sizes(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (program, folder) = (text(&own_program()?), laboratory.scratch()?);
    let headers = match laboratory.quick {
        true => [1 << 19, 1 << 20],
        false => [1 << 20, 4 << 20],
    };
    let mut made: Vec<(String, PathBuf)> = Vec::new();
    for bytes in headers {
        let path = folder.path().join(made.len().to_string());
        archive(&FOLDERS[1..], bytes, &path)?;
        made.push((
            format!("headers {}", tables::binary_size(bytes as usize)),
            path,
        ));
    }
    if let Some(data) = laboratory.data.as_ref().filter(|_| !laboratory.quick) {
        for shared in data::shared_files(data)? {
            if (1..=SIZED_BYTES_MAX).contains(&shared.raw_bytes) {
                let path = folder.path().join(made.len().to_string());
                fs::write(&path, shared.load(data)?)?;
                made.push((shared.name, path));
            }
        }
    }
    let quick = laboratory.quick;
    let versions = programs::peers(&[ZSTD, ("xz", "--version")]);
    let cells = made.into_iter().map(|(name, raw)| {
        let program = program.clone();
        Cell {
            name,
            parameters: format!("quick={quick} {versions}"),
            measure: Box::new(move || sizes(&program, &raw)),
        }
    });
    laboratory.measure(SMALLEST.key, COLUMNS, cells.collect())
}

fn sizes(program: &str, raw: &Path) -> Result<Vec<Row>> {
    let name = text(raw);
    let made = raw.with_extension("zst");
    let stream = text(&made);
    let pack = |options: &[&str]| {
        let own = [program, "pack", "-q", "-o", &stream];
        words(&[&own[..], options, &[&name]].concat())
    };
    let smallest = ["--strategy", "smallest"];
    let ours = [
        (SMALLEST_NAME, pack(&smallest)),
        (MIXED, pack(&["--mixed", smallest[0], smallest[1]])),
        (MONEY, pack(&["--strategy", "money"])),
    ];
    let raw_bytes = fs::metadata(raw)?.len();
    let mut rows = Vec::new();
    for (contender, words) in &ours {
        let used = run_to_file(words, &made)?;
        verify(&made, raw)?;
        fs::remove_file(&made)?;
        rows.push(used.row(contender, (0, 1), raw_bytes));
    }
    for words in [words(&["zstd", "-19", "-qc"]), words(&["xz", "-6", "-c"])] {
        let used = run(&words, raw, &mut io::sink())?;
        rows.push(used.row(&format!("{} {}", words[0], words[1]), (0, 1), raw_bytes));
    }
    Ok(rows)
}

fn sizes_judged(cells: &[CellRecord]) -> Vec<Finding> {
    // No size of a quick run is judged.
    let is_quick = |cell: &CellRecord| cell.parameter("quick") == Some("true");
    let quick = cells.iter().any(is_quick);
    let stored = |cells: &[&CellRecord], name: &str| -> f64 {
        cells.iter().map(|it| median(it, name, STORED)).sum()
    };
    let finding =
        |question: String, cells: &[&CellRecord], names: [&str; 2], high: f64, core: bool| {
            let target = Target { low: 0.0, high };
            let found = Interval {
                runs: usize::from(quick),
                ..Interval::exact(stored(cells, names[0]) / stored(cells, names[1]))
            };
            Finding {
                question: format!("{question} {} over {}", names[0], names[1]),
                core,
                found,
                verdict: target.judge(found),
                note: format!("target {target}"),
            }
        };
    let (all, zstd) = (cells.iter().collect::<Vec<_>>(), "zstd -19");
    let mut findings = vec![
        finding("sum".to_string(), &all, [SMALLEST_NAME, zstd], 1.0, true),
        finding("sum".to_string(), &all, [MIXED, "xz -6"], 1.0, true),
        finding("sum".to_string(), &all, [MONEY, zstd], 1.32, false),
    ];
    for cell in &all {
        let name = || cell.cell.clone();
        findings.push(finding(name(), &[*cell], [SMALLEST_NAME, zstd], 1.01, true));
        findings.push(finding(name(), &[*cell], [MIXED, "xz -6"], 1.0, false));
    }
    findings
}
