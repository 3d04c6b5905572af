//! Programs against programs: packing into a slow pipe beside `zstd --adapt`, unpacking beside `zstd -d`.
//!
//! Both sides are child processes between the same two pipes or files. Ours is this program in the part
//! of `breakeven pack` and `unpack` (`worker.rs`).

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail, ensure};
use breakeven::meter::{EnergySpan, Meter, Scope};
use breakeven::stream::{Container, Reader, ReaderOptions};

use super::bench::{Bench, Contender, Nowhere, Regime};
use super::corpus::{File as Kind, Input};
use super::costs::{self, Known};
use super::judge;
use super::link::Link;
use super::plan::{Behind, Planned};
use super::race::{RAW_BYTES, STORED_BYTES};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Finding, Laboratory};
use crate::peers;
use crate::programs::{self, ZSTD};
use crate::record::{CellRecord, Record, Row, Unfinished};
use crate::statistics::{Interval, Target};
use crate::tables;

const ADAPT_RECORD: &str = "hirsch2017/adapt";
const UNPACK_RECORD: &str = "hirsch2017/unpack";

const COLUMNS: &[&str] = &[
    "raw_bytes",
    "stored_bytes",
    "wall_seconds",
    "cpu_seconds",
    "link_bytes_per_second",
    "active_joules",
];
const WALL_SECONDS: usize = 2;
const CPU_SECONDS: usize = 3;
const LINK: usize = 4;
const ACTIVE_JOULES: usize = 5;

/// The one task of these cells.
const RUN: &str = "run";
const PACK: &str = "pack";
const UNPACK: &str = "unpack";
const ZSTD_D: &str = "zstd -d";

/// Faster than this on rows of all kinds.
const FASTER_ON_MIXED: f64 = 1.3;
/// Faster than this into a file, which the kernel writes for both.
const FASTER_INTO_FILE: f64 = 1.4;

pub const ADAPT: Experiment = Experiment {
    key: ADAPT_RECORD,
    claim: "Into a slow pipe, pack is never slower than zstd --adapt -T2, and at least 1.3 times as fast on interleaved data.",
    source: "facebook/zstd, issues 2200 and 4279; nobody published a comparison",
    figure: "time of the faster zstd over that of pack",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "data",
            "text, and rows in which all five kinds take turns every 16 MiB, through standard input",
        ),
        (
            "the pipe",
            "of 64 KiB, read no faster than a link at beta 43 and 4.2 would",
        ),
        (
            "contenders",
            "pack with the given link's speed (judged), pack that measures it, zstd --adapt -T2, and the same with \
             jobs of 1 MiB, so that it adapts sooner. The faster of the two zstd counts",
        ),
        (
            "runs",
            "10 (quick: 3) of about 1.2 s by the fastest schedule's time, 3.6 s at beta 43; 10 s with --paper-size",
        ),
    ],
    analysis: "Starting a program and its threads is in the time of both. zstd has a window of 8 MiB and so finds more \
        than blocks of 1 MiB do. Where the link is slow and the data one kind of text, no adapting makes up for that \
        advantage.",
    run: |laboratory| Ok(adapts(&measure_adapt(laboratory)?)),
    table: |records| table(records, ADAPT_RECORD, adapts),
    pictures: no_pictures,
};

pub const UNPACKING: Experiment = Experiment {
    key: UNPACK_RECORD,
    claim: "unpack is at least 1.8 times as fast as zstd -d on two cores to a pipe or nowhere, and 1.4 times into a file.",
    source: "zstd -d decodes on one thread; blocks of 1 MiB can be decoded side by side",
    figure: "time of zstd -d over that of unpack",
    target: Target::at_least(1.8),
    parameters: &[
        (
            "stream",
            "1 GiB of text in frames of 1 MiB by zstd:3, with a seek table, 256 MiB of it into a file (quick: 256 KiB)",
        ),
        (
            "ways",
            "standard output to /dev/null, to a pipe that this program empties, and to a file in a scratch folder beside the records",
        ),
        (
            "runs",
            "10, 30 into a file (quick: 2), both programs alternating",
        ),
    ],
    analysis: "The reader of the pipe is a third thread on two cores. In a trial (24 runs) unpack and the reader took \
        1.0 s of both together, so 0.5 s is the least. Waking each other takes the rest. With pipes of 64 KiB, 128 \
        KiB, 256 KiB and 1 MiB, which unpack asks for, the figure was 1.05, 1.44, 1.66 and 1.68. The kernel writes a \
        file in the time of the same two cores, the same for both. A virtual machine whose balloon reports free pages \
        gives them back to its host within some seconds. The next touch of each is a fault in the host. In a trial a \
        plain program wrote a new file of 1 GiB in 0.2 s, or in up to 2.8 s after a pause. Only pieces of 2 MiB and \
        more are given back. So a file has 256 MiB. Another of that size is written in writes of 1 MiB and removed \
        just before either program is timed.",
    run: |laboratory| Ok(unpacks(&measure_unpack(laboratory)?)),
    table: |records| table(records, UNPACK_RECORD, unpacks),
    pictures: no_pictures,
};

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

fn own(words: &[&str]) -> Result<Vec<String>> {
    let program = std::env::current_exe().context("find this program")?;
    let program = program.to_string_lossy().into_owned();
    let own = [&program, "stream"];
    Ok(strings(&[&own[..], words].concat()))
}

/// A contender that compresses standard input to standard output.
struct Packer {
    name: &'static str,
    words: fn(&Regime) -> Result<Vec<String>>,
}

const PACKERS: [Packer; 4] = [
    Packer {
        name: PACK,
        words: |regime| own(&["pack", "--link", &format!("{:.0}", regime.link.0)]),
    },
    Packer {
        name: "pack untold",
        words: |_| own(&["pack"]),
    },
    Packer {
        name: "zstd --adapt",
        words: |_| Ok(strings(&["zstd", "-q", "-c", "--adapt", "-T2"])),
    },
    Packer {
        name: "zstd --adapt -B1MiB",
        words: |_| Ok(strings(&["zstd", "-q", "-c", "--adapt", "-T2", "-B1MiB"])),
    },
];

fn is_peer(name: &str) -> bool {
    name.starts_with("zstd")
}

fn spawn(words: &[String], input: Stdio, output: Stdio) -> Result<Child> {
    let child = peers::command(&words[0])
        .args(&words[1..])
        .stdin(input)
        .stdout(output)
        .spawn();
    child.with_context(|| format!("start '{}'", words.join(" ")))
}

fn finish(words: &[String], mut child: Child) -> Result<()> {
    let status = child.wait()?;
    ensure!(status.success(), "'{}': {status}", words.join(" "));
    Ok(())
}

/// The resources that a program used.
struct Used {
    wall_seconds: f64,
    cpu_seconds: f64,
    active_joules: f64,
    bytes: u64,
}

/// The clocks that run while a child process works.
struct Watch<'a> {
    span: EnergySpan<'a>,
    meter: Meter,
}

impl Watch<'_> {
    fn start(bench: &Bench) -> Watch<'_> {
        Watch {
            span: bench.energy.start(),
            meter: Meter::start(Scope::Children),
        }
    }

    fn stop(self, bytes: u64) -> Used {
        let usage = self.meter.stop(bytes);
        Used {
            wall_seconds: usage.wall.0,
            cpu_seconds: usage.cpu.total().0,
            active_joules: self.span.stop(&usage, &[]).active().0,
            bytes,
        }
    }
}

/// Sends blocks through a program and its output into a sink, flushed at the end.
fn pipe(
    words: &[String],
    bench: &Bench,
    (input, blocks): (Input, usize),
    sink: &mut impl Write,
) -> Result<Used> {
    let watch = Watch::start(bench);
    let mut child = spawn(words, Stdio::piped(), Stdio::piped())?;
    let mut into = child.stdin.take().context("a pipe")?;
    let mut out = child.stdout.take().context("a pipe")?;
    let bytes = std::thread::scope(|scope| -> Result<u64> {
        let feeder = scope.spawn(move || -> std::io::Result<()> {
            for index in 0..blocks {
                let place = input.place(index, bench.corpus.shape);
                into.write_all(bench.corpus.block(place))?;
            }
            Ok(())
        });
        let bytes = pour(&mut out, sink)?;
        match feeder.join() {
            Ok(fed) => fed.context("feed a program")?,
            Err(_) => bail!("the feeding thread panicked"),
        }
        sink.flush()?;
        Ok(bytes)
    })?;
    finish(words, child)?;
    Ok(watch.stop(bytes))
}

fn pour(from: &mut impl Read, into: &mut impl Write) -> Result<u64> {
    let mut piece = vec![0; 64 << 10];
    let mut bytes = 0;
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(count) => {
                into.write_all(&piece[..count])?;
                bytes += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Checks that a packer's output for some blocks decodes to them.
fn verify(words: &[String], bench: &Bench, input: Input) -> Result<()> {
    const BLOCKS: usize = 8;
    let mut stream = Vec::new();
    pipe(words, bench, (input, BLOCKS), &mut stream)?;
    let mut back = Vec::new();
    let mut reader = Reader::new(&stream[..], &bench.pool, ReaderOptions::default())?;
    reader.read_to_end(&mut back)?;
    let blocks = (0..BLOCKS).map(|index| input.place(index, bench.corpus.shape));
    let raw: Vec<u8> = blocks
        .flat_map(|place| bench.corpus.block(place).iter().copied())
        .collect();
    ensure!(back == raw, "'{}' restored other bytes", words.join(" "));
    Ok(())
}

fn adapt_plans(laboratory: &Laboratory) -> Vec<(Input, f64)> {
    if laboratory.quick {
        return vec![(Input::Mixed(1), 4.2)];
    }
    vec![
        (Input::Mixed(16), 43.0),
        (Input::Mixed(16), 4.2),
        (Input::Plain(Kind::Text), 43.0),
        (Input::Plain(Kind::Text), 4.2),
    ]
}

fn measure_adapt(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let costs = costs::measure(laboratory, &bench)?;
    let zstd = programs::peers(&[ZSTD]);
    let cell = |place| {
        let mut cell = Behind::new(laboratory, place, (3, 0.01), 1.2).cell();
        cell.parameters = format!("{} {zstd}", cell.parameters);
        cell
    };
    let plans = adapt_plans(laboratory).into_iter().map(cell).collect();
    bench.measure(laboratory, (ADAPT_RECORD, COLUMNS), plans, |plan, kept| {
        let known = costs.known(plan.input, bench.corpus.shape, Container::Portable.arms());
        race_packers(&bench, &known, plan, kept)
    })
}

fn race_packers(
    bench: &Bench,
    known: &Known<'_>,
    plan: Behind,
    kept: Unfinished,
) -> Result<Vec<Row>> {
    let mut blocks = bench.blocks_kept(&kept);
    kept.complete(plan.runs, |run| {
        let regime = bench.regime(plan.beta)?;
        let blocks = *blocks.get_or_insert_with(|| known.blocks_in(plan.seconds, &regime));
        interleave::in_turn(run, PACKERS.len(), |index| {
            let packer = &PACKERS[index];
            let words = (packer.words)(&regime)?;
            if run == 0 {
                verify(&words, bench, plan.input)?;
            }
            let mut link = Link::new(regime.link);
            let used = pipe(&words, bench, (plan.input, blocks), &mut link)?;
            let sent = (known.raw_bytes(blocks), regime.link.0);
            Ok(row(packer.name, (run, plan.runs), sent, &used))
        })
    })
}

/// Makes a row; `used.bytes` are the stored bytes.
fn row(
    contender: &str,
    (run, runs): (usize, usize),
    (raw_bytes, link): (f64, f64),
    used: &Used,
) -> Row {
    Row {
        task: RUN.to_string(),
        run: run + 1,
        runs,
        contender: contender.to_string(),
        values: vec![
            raw_bytes,
            used.bytes as f64,
            used.wall_seconds,
            used.cpu_seconds,
            link,
            used.active_joules,
        ],
    }
}

/// Returns the times of one program over those of another, run by run.
fn over(cell: &CellRecord, one: &str, other: &str) -> Interval {
    let seconds = |contender: &str| cell.column(RUN, contender, WALL_SECONDS);
    Interval::of_quotients(&seconds(one), &seconds(other))
}

fn adapts(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let seconds = |name: &str| cell.median(RUN, name, WALL_SECONDS);
        let peers = PACKERS
            .iter()
            .map(|it| it.name)
            .filter(|name| is_peer(name));
        let best = peers.min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        let best = best.expect("zstd races");
        for packer in PACKERS.iter().filter(|it| !is_peer(it.name)) {
            let found = over(cell, best, packer.name);
            let ratio = |name: &str| {
                cell.median(RUN, name, RAW_BYTES) / cell.median(RUN, name, STORED_BYTES)
            };
            let target = match cell.cell.starts_with("mix") {
                true => Target::at_least(FASTER_ON_MIXED),
                false => ADAPT.target,
            };
            let note = format!(
                "target {target}; ratio {:.2}, {best} {:.2}",
                ratio(packer.name),
                ratio(best)
            );
            let question = format!("{} {}", cell.cell, packer.name);
            let mut finding = judge(&ADAPT, question, packer.name == PACK, found, note);
            finding.verdict = target.judge(found);
            findings.push(finding);
        }
    }
    findings
}

/// Where the unpacked bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Nowhere,
    Pipe,
    File,
}

impl Way {
    const ALL: [Way; 3] = [Way::Nowhere, Way::Pipe, Way::File];

    fn name(self) -> &'static str {
        match self {
            Way::Nowhere => "nowhere",
            Way::Pipe => "pipe",
            Way::File => "file",
        }
    }
}

fn measure_unpack(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let runs_and_blocks = |way| match way {
        _ if laboratory.quick => (2, 8),
        Way::Nowhere | Way::Pipe => (10, 1024),
        Way::File => (30, 256),
    };
    let zstd = programs::peers(&[ZSTD]);
    let plans = Way::ALL.map(|way| {
        let (runs, blocks) = runs_and_blocks(way);
        Planned {
            plan: way,
            name: way.name().to_string(),
            input: Input::Plain(Kind::Text),
            parameters: format!("runs={runs} stream_blocks={blocks} method=zstd:3 {zstd}"),
        }
    });
    bench.measure(
        laboratory,
        (UNPACK_RECORD, COLUMNS),
        plans.into(),
        |way, kept| race_unpackers(laboratory, &bench, way, runs_and_blocks(way), kept),
    )
}

fn race_unpackers(
    laboratory: &Laboratory,
    bench: &Bench,
    way: Way,
    (runs, blocks): (usize, usize),
    kept: Unfinished,
) -> Result<Vec<Row>> {
    let scratch = laboratory.scratch()?;
    let stream = scratch.path().join("stream.zst");
    let raw_bytes = write_stream(bench, blocks, &stream)?;
    let stream_name = stream.to_string_lossy().into_owned();
    let contenders = [
        (UNPACK, own(&["unpack", &stream_name])?),
        (ZSTD_D, strings(&["zstd", "-q", "-d", "-c", &stream_name])),
    ];
    kept.complete(runs, |run| {
        interleave::in_turn(run, contenders.len(), |index| {
            let (name, words) = &contenders[index];
            if run == 0 {
                compare(words, bench, blocks)?;
            }
            let target = scratch.path().join("unpacked");
            if way == Way::File {
                touch_free_memory(&target, raw_bytes)?;
            }
            let mut used = unpack(bench, words, way, &target)?;
            if way != Way::Nowhere {
                ensure!(
                    used.bytes == raw_bytes,
                    "{name} restored {} bytes",
                    used.bytes
                );
            }
            used.bytes = fs::metadata(&stream)?.len();
            Ok(row(name, (run, runs), (raw_bytes as f64, 0.0), &used))
        })
    })
}

/// Writes the stream that is unpacked and returns its raw bytes.
fn write_stream(bench: &Bench, blocks: usize, path: &Path) -> Result<u64> {
    let contender = Contender::fixed("zstd:3".parse()?);
    let regime = bench.regime(1.0)?;
    let file = File::create(path)?;
    let text = Input::Plain(Kind::Text);
    let (file, used) = bench.write(&contender, text, blocks, &regime, file)?;
    file.sync_all()?;
    Ok(used.summary.raw_bytes)
}

/// Writes a file of this size and removes it, so that a host that had taken the free memory back has given it again
/// before the clock runs. In writes like those of an unpacker: memory of one large write is not the memory that they
/// get, and every third run was slow.
fn touch_free_memory(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let piece = vec![0; 1 << 20];
    for _ in 0..bytes.div_ceil(1 << 20) {
        file.write_all(&piece)?;
    }
    Ok(fs::remove_file(path)?)
}

/// Runs an unpacker and compares every byte.
fn compare(words: &[String], bench: &Bench, blocks: usize) -> Result<()> {
    let mut child = spawn(words, Stdio::null(), Stdio::piped())?;
    let mut out = child.stdout.take().context("a pipe")?;
    let mut block = vec![0; bench.corpus.shape.block_bytes];
    for index in 0..blocks {
        out.read_exact(&mut block)?;
        let place = Input::Plain(Kind::Text).place(index, bench.corpus.shape);
        let same = block == bench.corpus.block(place);
        ensure!(same, "'{}' restored other bytes", words.join(" "));
    }
    ensure!(out.read(&mut block)? == 0, "'{}' goes on", words.join(" "));
    finish(words, child)
}

/// Runs an unpacker; the counted bytes are its output, where that can be seen.
fn unpack(bench: &Bench, words: &[String], way: Way, target: &Path) -> Result<Used> {
    let watch = Watch::start(bench);
    let output = match way {
        Way::Nowhere => Stdio::null(),
        Way::Pipe => Stdio::piped(),
        Way::File => Stdio::from(File::create(target)?),
    };
    let mut child = spawn(words, Stdio::null(), output)?;
    let bytes = match child.stdout.take() {
        Some(mut out) => pour(&mut out, &mut Nowhere)?,
        None => 0,
    };
    finish(words, child)?;
    let mut used = watch.stop(bytes);
    if way == Way::File {
        used.bytes = fs::metadata(target)?.len();
        fs::remove_file(target)?;
    }
    Ok(used)
}

fn unpacks(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        let found = over(cell, ZSTD_D, UNPACK);
        let speed = |name: &str| {
            cell.median(RUN, name, RAW_BYTES) / cell.median(RUN, name, WALL_SECONDS) / 1e6
        };
        let is_file = cell.cell == Way::File.name();
        let target = match is_file {
            true => Target::at_least(FASTER_INTO_FILE),
            false => UNPACKING.target,
        };
        let note = format!(
            "target {target}; {:.0} MB/s, zstd -d {:.0}",
            speed(UNPACK),
            speed(ZSTD_D)
        );
        let mut finding = judge(&UNPACKING, cell.cell.clone(), true, found, note);
        finding.verdict = target.judge(found);
        finding
    };
    cells.iter().map(finding).collect()
}

fn table(
    records: &Path,
    record: &str,
    findings: impl Fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<tables::Shown> {
    let cells = Record::new(records, record, COLUMNS).latest()?;
    let mut text = tables::judged(tables::origin(records, &cells), findings(&cells));
    if cells.is_empty() {
        return Ok(text);
    }
    text.push_str(
        "\n| cell | by | s | MB/s | ratio | core s per GB | J per GB (modelled) | link, MB/s |\n\
         |---|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for cell in &cells {
        for name in super::race::contenders(cell) {
            let of = |column| cell.median(RUN, name, column);
            let link = match of(LINK) {
                link if link > 0.0 => format!("{:.1}", link / 1e6),
                _ => "-".to_string(),
            };
            text.push_str(&format!(
                "| {} | {name} | {:.3} | {:.0} | {:.3} | {:.2} | {:.1} | {link} |\n",
                cell.cell,
                of(WALL_SECONDS),
                of(RAW_BYTES) / of(WALL_SECONDS) / 1e6,
                of(RAW_BYTES) / of(STORED_BYTES),
                of(CPU_SECONDS) / of(RAW_BYTES) * 1e9,
                of(ACTIVE_JOULES) / of(RAW_BYTES) * 1e9,
            ));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    fn cell(name: &str, seconds: &[(&str, f64)]) -> CellRecord {
        let mut rows = Vec::new();
        for run in 0..10 {
            for (contender, seconds) in seconds {
                let used = Used {
                    wall_seconds: seconds * (1.0 + 1e-3 * f64::from(run % 3)),
                    cpu_seconds: 1.0,
                    active_joules: 1.0,
                    bytes: 1000,
                };
                rows.push(row(contender, (run as usize, 10), (2000.0, 1e6), &used));
            }
        }
        CellRecord::made_up(name, "", rows)
    }

    #[test]
    fn the_better_peer_and_the_harder_target_count() {
        let check = |name: &str, peers: [f64; 2], expected: Verdict| {
            let seconds = [
                (PACK, 1.0),
                ("pack untold", 1.1),
                ("zstd --adapt", peers[0]),
                ("zstd --adapt -B1MiB", peers[1]),
            ];
            let findings = adapts(&[cell(name, &seconds)]);
            assert_eq!(findings[0].verdict, expected, "{name} {peers:?}");
        };
        check("text beta 43", [1.1, 1.5], Verdict::Holds);
        check("text beta 43", [1.5, 0.9], Verdict::Differs);
        check("mix-16 beta 43", [1.5, 1.4], Verdict::Holds);
        check("mix-16 beta 43", [1.2, 1.4], Verdict::Differs);
        let check = |name: &str, seconds: f64, expected: Verdict| {
            let cells = [cell(name, &[(UNPACK, 1.0), (ZSTD_D, seconds)])];
            assert_eq!(unpacks(&cells)[0].verdict, expected, "{name} {seconds}");
        };
        check("pipe", 1.9, Verdict::Holds);
        check("pipe", 1.5, Verdict::Differs);
        check("file", 1.5, Verdict::Holds);
        check("file", 1.3, Verdict::Differs);
    }
}
