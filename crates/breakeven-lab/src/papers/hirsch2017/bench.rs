//! The pipeline that everybody runs on: the library's writer, two workers, and a link.
//!
//! The link's speed follows from LZ4's speed on this machine, measured at the start of a run, and from the regime
//! (beta). So a run on a slower machine asks the same question.

use std::io::{self, IoSlice, Write};
use std::sync::Arc;

use anyhow::{Result, ensure};
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
use crate::laboratory::Laboratory;

/// Threads that compress, one for each processor here.
pub const WORKERS: usize = 2;
/// Frame buffers of the writer with so many workers.
pub const FRAMES: usize = 2 * WORKERS + 4;
/// LZ4's speed by all workers over the link's: the thesis's Gigabit Ethernet, 10 Gigabit Ethernet and
/// InfiniBand FDR with four links.
pub const BETAS: [f64; 3] = [43.0, 4.2, 0.83];
/// The method that sets the speed of links.
const CALIBRATION: &str = "lz4:1";

/// A contender that writes.
pub struct Contender {
    pub name: String,
    pub container: Container,
    pub picks: Picks,
    /// Runs it takes part in; in all where this is none.
    pub runs: Option<usize>,
}

/// Makes somebody else's rule for a run.
type MakeRule = Box<dyn Fn(&Regime) -> Arc<dyn Rule>>;

/// The picker of each block's method.
pub enum Picks {
    Fixed(Method),
    /// Our controller, with a given link or not.
    Goal {
        goal: Goal,
        is_told: bool,
    },
    /// Somebody else's rule, made for each run.
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

    /// Returns the choice given to the writer.
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

/// A link and the base of its speed.
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

/// The result of one run of one contender.
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

    /// Measures the link that lets LZ4 by all workers be `beta` times as fast, and a block's cost beside its encoding.
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
            // As `breakeven pack FILE` gives it.
            pledged_source_bytes: Some((blocks * self.corpus.shape.block_bytes) as u64),
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
