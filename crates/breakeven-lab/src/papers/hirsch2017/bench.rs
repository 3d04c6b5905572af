//! The pipeline that everybody runs on: the library's writer, two workers, and a link.
//!
//! A run writes the same row of blocks over the same link once by each contender, in turn. How fast
//! the link is follows from LZ4's speed on this machine, measured at the start of the run, and from
//! the regime (beta), so that a run on a slower machine asks the same question.

use std::io::{self, IoSlice, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use breakeven::codec::Method;
use breakeven::decide::Profile;
use breakeven::frame::{Encoder, frame_bytes_max};
use breakeven::meter::{
    Clock, EnergyMeter, EnergyOptions, Machine, Meter, Roots, Scope, thread_cpu,
};
use breakeven::pool::{Pool, PoolOptions};
use breakeven::stream::{
    Choice, Container, Goal, Priced, Reader, ReaderOptions, Rule, Summary, Writer, WriterOptions,
};
use breakeven::units::BytesPerSecond;

use super::corpus::{Corpus, File, Input};
use super::link::Link;
use super::network::Network;
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row, Unfinished};
use crate::statistics::Interval;
use crate::tables;

/// Threads that compress, one for each processor here.
pub const WORKERS: usize = 2;
/// Frame buffers of the writer with so many workers.
pub const FRAMES: usize = 2 * WORKERS + 4;
/// LZ4's speed by all workers over the link's: the thesis's Gigabit Ethernet, 10 Gigabit Ethernet and
/// InfiniBand FDR with four links.
pub const BETAS: [f64; 3] = [43.0, 4.2, 0.83];
/// What the speed of links is derived from.
const CALIBRATION: &str = "lz4:1";

pub const COLUMNS: &[&str] = &[
    "raw_bytes",
    "stored_bytes",
    "compressed_seconds",
    "drained_seconds",
    "cpu_seconds",
    "active_joules",
    "link_bytes_per_second",
    "lz4_bytes_per_second",
    "block_seconds",
    "late_seconds",
    "bound",
];
pub const RAW_BYTES: usize = 0;
pub const STORED_BYTES: usize = 1;
pub const COMPRESSED_SECONDS: usize = 2;
pub const DRAINED_SECONDS: usize = 3;
pub const CPU_SECONDS: usize = 4;
pub const ACTIVE_JOULES: usize = 5;
pub const LINK: usize = 6;
pub const LZ4: usize = 7;
/// Processor time of the pipeline for a block, beside encoding it.
pub const BLOCK_SECONDS: usize = 8;
pub const LATE_SECONDS: usize = 9;
/// What no schedule can beat, in seconds or bytes, by the costs recorded before.
pub const BOUND: usize = 10;

/// The one task of these cells.
pub const WRITE: &str = "write";

/// Who writes.
pub struct Contender {
    pub name: String,
    pub container: Container,
    pub picks: Picks,
    /// Runs it takes part in; in all where this is none.
    pub runs: Option<usize>,
}

/// Makes somebody else's rule for a run.
type MakeRule = Box<dyn Fn(&Regime) -> Arc<dyn Rule>>;

/// Returns what a contender's row has as its bound, given the blocks written.
pub type BoundOf<'a> = Box<dyn Fn(&Contender, &Regime, usize) -> f64 + 'a>;

/// By what the method of each block is picked.
#[expect(clippy::large_enum_variant, reason = "there are a handful")]
pub enum Picks {
    Fixed(Method),
    /// Our controller, told of the link or not.
    Goal {
        goal: Goal,
        is_told: bool,
    },
    /// Somebody else's rule, made anew for each run.
    Rule(MakeRule),
}

impl Contender {
    pub fn fixed(method: Method) -> Contender {
        Contender {
            name: method.to_string(),
            container: Container::Mixed,
            picks: Picks::Fixed(method),
            runs: None,
        }
    }

    pub fn goal(name: &str, goal: Goal, container: Container) -> Contender {
        let picks = Picks::Goal {
            goal,
            is_told: true,
        };
        Contender {
            name: name.to_string(),
            container,
            picks,
            runs: None,
        }
    }

    /// Returns the same contender under another name, that has to find out the link's speed.
    pub fn untold(mut self, name: &str) -> Contender {
        self.name = name.to_string();
        if let Picks::Goal { is_told, .. } = &mut self.picks {
            *is_told = false;
        }
        self
    }

    /// Returns the same contender in so many runs.
    pub fn in_runs(mut self, runs: usize) -> Contender {
        self.runs = Some(runs);
        self
    }

    pub fn rule(name: &str, make: impl Fn(&Regime) -> Arc<dyn Rule> + 'static) -> Contender {
        Contender {
            name: name.to_string(),
            container: Container::Mixed,
            picks: Picks::Rule(Box::new(make)),
            runs: None,
        }
    }

    /// Returns what the writer is told to pick by.
    pub fn choice(&self, regime: &Regime) -> Choice {
        match &self.picks {
            Picks::Fixed(method) => Choice::Fixed(*method),
            Picks::Rule(make) => Choice::Rule(make(regime)),
            Picks::Goal { goal, is_told } => Choice::Priced(Box::new(Priced {
                goal: *goal,
                arms: self.container.arms(),
                link: is_told.then_some(regime.link),
                profile: Profile::default(),
            })),
        }
    }
}

/// A link and what it was derived from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regime {
    pub link: BytesPerSecond,
    /// LZ4 by all workers through the pipeline into nowhere.
    pub lz4: BytesPerSecond,
    /// Processor time of the pipeline for a block beside encoding it: filling, handing on, counting.
    pub block_seconds: f64,
}

impl Regime {
    /// Returns the time that bytes take uncompressed.
    pub fn raw_seconds(&self, raw_bytes: f64) -> f64 {
        raw_bytes / self.link.0
    }
}

/// A sink that keeps nothing.
pub struct Nowhere;

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(slices.iter().map(|slice| slice.len()).sum())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What one run of one contender came to.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    pub summary: Summary,
    pub cpu_seconds: f64,
    pub active_joules: f64,
}

/// The machine and the data.
pub struct Bench {
    pub pool: Pool,
    pub corpus: Corpus,
    pub energy: EnergyMeter,
    pub is_quick: bool,
}

/// A cell as it is planned.
pub struct Planned<P> {
    /// For whoever measures it.
    pub plan: P,
    pub name: String,
    pub input: Input,
    /// What decides what is measured, beside what all cells of its input share.
    pub parameters: String,
}

/// An input behind the link of a regime, written so many times for so many seconds.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    pub input: Input,
    pub beta: f64,
    pub runs: usize,
    pub seconds: f64,
}

impl Behind {
    /// Plans as many and as long runs as [`runs`] says, three times as long behind the slowest link,
    /// where a block takes 50 ms.
    pub fn new(
        laboratory: &Laboratory,
        (input, beta): (Input, f64),
        quick: (usize, f64),
        full: f64,
    ) -> Behind {
        let longer = if beta == BETAS[0] { 3.0 } else { 1.0 };
        let (runs, seconds) = runs(laboratory, quick, longer * full);
        Behind {
            input,
            beta,
            runs,
            seconds,
        }
    }

    /// Says it for the parameters of a record.
    pub fn parameters(&self) -> String {
        let (beta, runs, seconds) = (self.beta, self.runs, self.seconds);
        format!("beta={beta} runs={runs} seconds={seconds}")
    }

    /// Returns the cell of this plan alone, named after its input and link.
    pub fn cell(self) -> Planned<Behind> {
        Planned {
            plan: self,
            name: format!("{} beta {}", self.input, self.beta),
            input: self.input,
            parameters: self.parameters(),
        }
    }
}

impl Bench {
    pub fn new(laboratory: &Laboratory) -> Result<Bench> {
        let machine = Machine::read(&Roots::default());
        Ok(Bench {
            pool: Pool::new(PoolOptions {
                worker_count: WORKERS,
            })?,
            corpus: Corpus::load(laboratory)?,
            energy: EnergyMeter::choose(&EnergyOptions::default(), &machine, Clock::real())?,
            is_quick: laboratory.quick,
        })
    }

    /// Says what all cells of an input share, for the parameters of a record.
    fn words(&self, input: Input, laboratory: &Laboratory) -> String {
        let files = input.files();
        let origins: Vec<String> = files.iter().map(|file| file.origin(laboratory)).collect();
        format!(
            "input={input} origin={} block_bytes={} blocks={} workers={WORKERS} frames={FRAMES} energy={}",
            origins.join("|"),
            self.corpus.shape.block_bytes,
            self.corpus.shape.blocks,
            self.energy.model().source(),
        )
        .replace(',', " ")
    }

    /// Measures cells, or takes them from a record, in order. `measure` does the runs that are not kept
    /// yet.
    pub fn measure<P>(
        &self,
        laboratory: &Laboratory,
        (record, columns): (&str, &'static [&'static str]),
        plans: Vec<Planned<P>>,
        measure: impl Fn(P, Unfinished) -> Result<Vec<Row>>,
    ) -> Result<Vec<CellRecord>> {
        let measure = &measure;
        let cell = |planned: Planned<P>| {
            let Planned { plan, name, .. } = planned;
            let words = self.words(planned.input, laboratory);
            let parameters = format!("{words} {}", planned.parameters);
            let kept = laboratory.unfinished(record, columns, &name, &parameters)?;
            Ok(Cell {
                name,
                parameters,
                measure: Box::new(move || measure(plan, kept)),
            })
        };
        let cells: Result<Vec<Cell<'_>>> = plans.into_iter().map(cell).collect();
        laboratory.measure(record, columns, cells?)
    }

    /// Returns how many blocks each kept run of a cell wrote, so that the others write as many: the raw
    /// bytes are the first column of every record made here.
    pub fn blocks_kept(&self, kept: &Unfinished) -> Option<usize> {
        let row = kept.rows().first()?;
        Some(row.values[RAW_BYTES] as usize / self.corpus.shape.block_bytes)
    }

    /// Returns how many blocks take the seconds of a plan uncompressed: whole periods of its input.
    pub fn blocks_uncompressed(&self, plan: &Behind, regime: &Regime) -> usize {
        let blocks = plan.seconds * regime.link.0 / self.corpus.shape.block_bytes as f64;
        plan.input.whole_periods(blocks)
    }

    /// Measures the link that lets LZ4 by all workers be `beta` times as fast, and what a block takes
    /// beside its encoding.
    pub fn regime(&self, beta: f64) -> Result<Regime> {
        let blocks = if self.is_quick { 8 } else { 160 };
        let lz4 = self.write_nowhere(CALIBRATION.parse()?, blocks)?.summary;
        let lz4 = BytesPerSecond(lz4.raw_bytes as f64 / lz4.drained_after.0);
        let stored = self.write_nowhere(Method::STORE, blocks)?.cpu_seconds;
        let encoding = self.storing_seconds(blocks)?;
        Ok(Regime {
            link: BytesPerSecond(lz4.0 / beta),
            lz4,
            block_seconds: (stored - encoding).max(0.0) / blocks as f64,
        })
    }

    /// Writes text through the whole pipeline by one method, over a link that takes no time.
    fn write_nowhere(&self, method: Method, blocks: usize) -> Result<Used> {
        let regime = Regime {
            link: BytesPerSecond(f64::INFINITY),
            lz4: BytesPerSecond(f64::INFINITY),
            block_seconds: 0.0,
        };
        let (contender, text) = (Contender::fixed(method), Input::Plain(File::Text));
        let written = self.write(&contender, text, blocks, &regime, Nowhere)?;
        Ok(written.1)
    }

    /// Returns the processor time of making so many blocks of text frames that store them.
    fn storing_seconds(&self, blocks: usize) -> Result<f64> {
        let shape = self.corpus.shape;
        let (mut encoder, mut frame) =
            (Encoder::new(), vec![0; frame_bytes_max(shape.block_bytes)]);
        let begun = thread_cpu();
        for index in 0..blocks {
            let place = Input::Plain(File::Text).place(index, shape);
            encoder.encode(Method::STORE, self.corpus.block(place), &mut frame)?;
        }
        Ok((thread_cpu() - begun).0)
    }

    /// Writes a row of blocks into a sink.
    pub fn write<S: Write + Send + 'static>(
        &self,
        contender: &Contender,
        input: Input,
        blocks: usize,
        regime: &Regime,
        sink: S,
    ) -> Result<(S, Used)> {
        let options = WriterOptions {
            container: contender.container,
            choice: contender.choice(regime),
            block_bytes: self.corpus.shape.block_bytes,
            ..WriterOptions::default()
        };
        let mut writer = Writer::new(sink, &self.pool, options)?;
        let span = self.energy.start();
        let meter = Meter::start(Scope::Process);
        for index in 0..blocks {
            let place = input.place(index, self.corpus.shape);
            writer.write_all(self.corpus.block(place))?;
        }
        let (sink, summary) = writer.finish()?;
        let usage = meter.stop(summary.raw_bytes);
        let energy = span.stop(&usage, &[]);
        let used = Used {
            summary,
            cpu_seconds: usage.cpu.total().0,
            active_joules: energy.active().0,
        };
        Ok((sink, used))
    }

    /// Writes some blocks into memory, decodes them and compares every byte.
    pub fn verify(&self, contender: &Contender, input: Input, regime: &Regime) -> Result<()> {
        let blocks = if self.is_quick { 4 } else { 40 };
        let (stream, _) = self.write(contender, input, blocks, regime, Vec::new())?;
        let mut reader = Reader::new(&stream[..], &self.pool, ReaderOptions::default())?;
        let mut expected = (0..blocks).flat_map(|index| {
            let place = input.place(index, self.corpus.shape);
            self.corpus.block(place)
        });
        loop {
            let content = reader.fill()?;
            if content.is_empty() {
                break;
            }
            let same = content.iter().all(|byte| expected.next() == Some(byte));
            ensure!(same, "{} restored other bytes", contender.name);
            let count = content.len();
            reader.consume(count);
        }
        ensure!(
            expected.next().is_none(),
            "{} restored too little",
            contender.name
        );
        Ok(())
    }
}

/// What the bytes leave by.
#[derive(Clone, Copy)]
pub enum Way<'a> {
    /// A link by deadline.
    Virtual,
    /// A socket, through the kernel.
    Socket(&'a Network),
}

/// A race over one input and link.
pub struct Race<'a> {
    pub bench: &'a Bench,
    pub way: Way<'a>,
    pub input: Input,
    pub beta: f64,
    pub contenders: Vec<Contender>,
    pub runs: usize,
    /// Returns how many blocks a run writes.
    pub blocks: Box<dyn Fn(&Regime) -> usize + 'a>,
    pub bound: BoundOf<'a>,
}

impl<'a> Race<'a> {
    /// Prepares a plan's race over the virtual link, with no bound to compare anybody with.
    pub fn behind(
        bench: &'a Bench,
        plan: Behind,
        contenders: Vec<Contender>,
        blocks: impl Fn(&Regime) -> usize + 'a,
    ) -> Race<'a> {
        Race {
            bench,
            way: Way::Virtual,
            input: plan.input,
            beta: plan.beta,
            contenders,
            runs: plan.runs,
            blocks: Box::new(blocks),
            bound: Box::new(|_, _, _| 0.0),
        }
    }

    /// Measures the runs that are not kept yet.
    pub fn run(&self, kept: Unfinished) -> Result<Vec<Row>> {
        let mut blocks = self.bench.blocks_kept(&kept);
        kept.complete(self.runs, |run| {
            let regime = self.bench.regime(self.beta)?;
            if let Way::Socket(network) = self.way {
                network.shape(regime.link)?;
            }
            let blocks = *blocks.get_or_insert_with(|| (self.blocks)(&regime));
            if run == 0 {
                for contender in &self.contenders {
                    (self.bench.verify(contender, self.input, &regime))
                        .with_context(|| contender.name.clone())?;
                }
            }
            let rows = interleave::in_turn(run, self.contenders.len(), |index| {
                let contender = &self.contenders[index];
                let runs = contender.runs.unwrap_or(self.runs).min(self.runs);
                let takes_part = run < runs;
                let row = takes_part.then(|| self.turn(contender, &regime, blocks, (run, runs)));
                row.transpose().with_context(|| contender.name.clone())
            })?;
            Ok(rows.into_iter().flatten().collect())
        })
    }

    fn turn(
        &self,
        contender: &Contender,
        regime: &Regime,
        blocks: usize,
        (run, runs): (usize, usize),
    ) -> Result<Row> {
        let (bench, input) = (self.bench, self.input);
        let (late_seconds, used) = match self.way {
            Way::Virtual => {
                let link = Link::new(regime.link);
                let (link, used) = bench.write(contender, input, blocks, regime, link)?;
                (link.late_seconds(), used)
            }
            Way::Socket(network) => {
                let sender = network.sender()?;
                let (_, used) = bench.write(contender, input, blocks, regime, sender)?;
                (0.0, used)
            }
        };
        Ok(Row {
            task: WRITE.to_string(),
            run: run + 1,
            runs,
            contender: contender.name.clone(),
            values: vec![
                used.summary.raw_bytes as f64,
                used.summary.stored_bytes as f64,
                used.summary.compressed_after.0,
                used.summary.drained_after.0,
                used.cpu_seconds,
                used.active_joules,
                regime.link.0,
                regime.lz4.0,
                regime.block_seconds,
                late_seconds,
                (self.bound)(contender, regime, blocks),
            ],
        })
    }
}

/// Returns a column of one contender over that of another, run by run.
pub fn over(cell: &CellRecord, one: &str, other: &str, column: usize) -> Interval {
    let of = |contender: &str| cell.column(WRITE, contender, column);
    Interval::of_quotients(&of(one), &of(other))
}

/// Returns the median of a column of a contender who took part.
pub fn median(cell: &CellRecord, contender: &str, column: usize) -> f64 {
    cell.median(WRITE, contender, column)
}

/// Returns the ratio that a contender reached.
pub fn ratio(cell: &CellRecord, contender: &str) -> f64 {
    median(cell, contender, RAW_BYTES) / median(cell, contender, STORED_BYTES)
}

/// Returns the method for all blocks that was fastest in a cell.
pub fn best_static(cell: &CellRecord) -> Option<&str> {
    let statics = contenders(cell).into_iter();
    let statics = statics.filter(|name| name.parse::<Method>().is_ok());
    let seconds = |name: &str| median(cell, name, DRAINED_SECONDS);
    statics.min_by(|a, b| seconds(a).total_cmp(&seconds(b)))
}

/// Returns the contenders of a cell in their order.
pub fn contenders(cell: &CellRecord) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in &cell.rows {
        if !names.contains(&row.contender.as_str()) {
            names.push(&row.contender);
        }
    }
    names
}

/// Returns what a contender made of a cell: a line of a table.
fn line(cell: &CellRecord, contender: &str) -> String {
    let of = |column: usize| median(cell, contender, column);
    let raw = of(RAW_BYTES);
    let gigabytes = raw / 1e9;
    format!(
        "| {} | {contender} | {:.3} | {:.3} | {:.0} | {:.3} | {:.2} | {:.1} |\n",
        cell.cell,
        of(DRAINED_SECONDS),
        of(COMPRESSED_SECONDS),
        raw / of(DRAINED_SECONDS) / 1e6,
        ratio(cell, contender),
        of(CPU_SECONDS) / gigabytes,
        of(ACTIVE_JOULES) / gigabytes,
    )
}

/// The head of a table of such lines.
const LINES: &str = "| cell | by | drained after, s | compressed after, s | MB/s | ratio | core s per GB | J per GB |\n\
     |---|---|---:|---:|---:|---:|---:|---:|\n";

/// Returns how the cells were measured and a line for each contender of each; nothing of no cells.
fn lines(cells: &[CellRecord]) -> String {
    if cells.is_empty() {
        return String::new();
    }
    let mut text = format!("\n{}\n{LINES}", about(cells));
    for cell in cells {
        for contender in contenders(cell) {
            text.push_str(&line(cell, contender));
        }
    }
    text
}

/// Makes Markdown of what is found in a record of races, with their lines.
pub fn table(
    records: &Path,
    record: &str,
    findings: fn(&[CellRecord]) -> Vec<Finding>,
) -> Result<tables::Shown> {
    let mut shown = tables::table_of(records, record, COLUMNS, findings)?;
    shown.push_str(&lines(&Record::new(records, record, COLUMNS).latest()?));
    Ok(shown)
}

/// Returns how many runs a cell has, and about how many seconds each writes: `full` unless the run is
/// quick or of the thesis's size.
pub fn runs(laboratory: &Laboratory, quick: (usize, f64), full: f64) -> (usize, f64) {
    match (laboratory.quick, laboratory.paper_size) {
        (true, _) => quick,
        (_, true) => (10, 10.0),
        _ => (10, full),
    }
}

/// Says where the joules of some cells come from, and how fast links and LZ4 were.
fn about(cells: &[CellRecord]) -> String {
    let Some(cell) = cells.last() else {
        return String::new();
    };
    let energy = cell.parameter("energy").unwrap_or_default();
    let rows = cells.iter().flat_map(|cell| &cell.rows);
    let speeds: Vec<f64> = rows.clone().map(|row| row.values[LZ4] / 1e6).collect();
    let (low, high) = (
        speeds.iter().copied().fold(f64::INFINITY, f64::min),
        speeds.iter().copied().fold(0.0, f64::max),
    );
    let late = rows.map(|row| row.values[LATE_SECONDS] / row.values[DRAINED_SECONDS]);
    format!(
        "LZ4 by {WORKERS} workers, from which the links are derived: {low:.0} to {high:.0} MB/s. Joules are {energy}. \
         The link lost at most {:.2} % of a run to late wakings.\n",
        100.0 * late.fold(0.0, f64::max)
    )
}
