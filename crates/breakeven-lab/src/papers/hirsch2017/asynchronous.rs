//! Calls that compress while a solver has every processor, as partdiff does in the thesis.
//!
//! The solver does a fixed work: so many sweeps as take it a share (the asynchronism) of the time that
//! the call takes uncompressed, when it is alone. The application then waits for the call. What counts
//! is how long it takes until both are done.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use breakeven::codec::Method;
use breakeven::meter::{Meter, Scope};
use breakeven::stream::{Advice, Container, Goal, Hint, Writer, WriterOptions};

use super::bench::{Bench, Contender, Regime, WORKERS, contenders};
use super::corpus::{File, Input};
use super::fastest::S1;
use super::judge;
use super::link::Link;
use crate::clock;
use crate::interleave;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::papers::{Experiment, no_pictures};
use crate::record::{CellRecord, Record, Row, Unfinished};
use crate::statistics::{Interval, Target};
use crate::tables;

const RECORD: &str = "hirsch2017/asynchronous";
const COLUMNS: &[&str] = &[
    "raw_bytes",
    "stored_bytes",
    "application_seconds",
    "drained_seconds",
    "cpu_seconds",
    "link_bytes_per_second",
];
const RAW_BYTES: usize = 0;
const STORED_BYTES: usize = 1;
const APPLICATION_SECONDS: usize = 2;
const DRAINED_SECONDS: usize = 3;
const CPU_SECONDS: usize = 4;

const STORE: &str = "store";
const S1_UNTOLD: &str = "S1 without the hint";
/// The thesis's shares: file.nc, silesia.tar and matrix.bin at Gigabit Ethernet, and those its section 3.1
/// and Figure 3.3 discuss.
const SHARES: [f64; 5] = [0.12, 0.2, 0.33, 0.5, 0.8];
/// Up to here the application must not notice (section 3.1.2).
const SHARE_HIDDEN: f64 = 0.5;

pub const EXPERIMENT: Experiment = Experiment {
    key: RECORD,
    claim: "Beside a solver on every processor, an application that writes with S1 never takes longer than uncompressed, up to an \
        asynchronism of 50 %.",
    source: "Hirsch 2017, sections 3.1.2 and 5.3, Figures 3.2 and 3.3",
    figure: "time of the application over that without compression",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "data",
            "text and matrix, one call in the background from one buffer",
        ),
        (
            "links",
            "as in hirsch2017/fastest, portable container, beta 43, and 4.2 for text",
        ),
        (
            "the solver",
            "sweeps of Gauss and Seidel over a grid for each of two threads, as many as take it 12, 20, 33, 50 and 80 % of the call's \
             uncompressed time when it is alone, measured at the start of each run",
        ),
        (
            "contenders",
            "store for every block (uncompressed), S1 with the asynchronism as a hint, S1 without",
        ),
        (
            "runs",
            "10 (quick: 2) of 0.6 s uncompressed; 10 s with --paper-size",
        ),
    ],
    analysis: "The application is done when it has computed and everything is compressed; the tail drains behind it, which the second time \
        in the table includes. At 80 % the processors that compressing takes are missing to the solver, and no rule can give them \
        back: the controller has to compress less. What it does there is a variation.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

/// A grid that one thread of the solver works on.
struct Grid {
    values: Vec<f64>,
}

impl Grid {
    const SIDE: usize = 256;

    fn new() -> Grid {
        let value = |index: usize| (index % 17) as f64;
        Grid {
            values: (0..Grid::SIDE * Grid::SIDE).map(value).collect(),
        }
    }

    /// Makes every inner value the mean of its neighbours, one after the other.
    fn sweep(&mut self) {
        for row in 1..Grid::SIDE - 1 {
            for column in 1..Grid::SIDE - 1 {
                let at = row * Grid::SIDE + column;
                let sides = self.values[at - 1] + self.values[at + 1];
                let others = self.values[at - Grid::SIDE] + self.values[at + Grid::SIDE];
                self.values[at] = 0.25 * (sides + others);
            }
        }
    }
}

/// Sweeps on every processor, and returns something of the result so that it is computed.
fn solve(sweeps: usize) -> Result<f64> {
    std::thread::scope(|scope| {
        let solver = || {
            let mut grid = Grid::new();
            (0..sweeps).for_each(|_| grid.sweep());
            std::hint::black_box(grid.values[Grid::SIDE + 1])
        };
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(solver)).collect();
        let mut sum = 0.0;
        for thread in threads {
            match thread.join() {
                Ok(value) => sum += value,
                Err(_) => bail!("a thread of the solver panicked"),
            }
        }
        Ok(sum)
    })
}

/// Returns how many sweeps the solver does in a second when it is alone.
fn sweeps_per_second(is_quick: bool) -> Result<f64> {
    let sweeps = if is_quick { 20 } else { 600 };
    let (duration, outcome) = clock::time(|| solve(sweeps));
    outcome?;
    Ok(sweeps as f64 / duration.wall_seconds)
}

fn plans(laboratory: &Laboratory) -> Vec<(Input, f64)> {
    let text = Input::Plain(File::Text);
    if laboratory.quick {
        return vec![(text, 4.2)];
    }
    vec![
        (text, 43.0),
        (Input::Plain(File::Matrix), 43.0),
        (text, 4.2),
    ]
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let (runs, seconds) = super::bench::runs(laboratory, (2, 0.01), 0.6);
    let mut cells = Vec::new();
    for (input, beta) in plans(laboratory) {
        let words = bench.words(input, laboratory);
        let parameters = format!("{words} beta={beta} runs={runs} seconds={seconds}");
        let name = format!("{input} beta {beta}");
        let kept = laboratory.unfinished(RECORD, COLUMNS, &name, &parameters)?;
        let bench = &bench;
        cells.push(Cell {
            name,
            parameters,
            measure: Box::new(move || race(bench, (input, beta), (seconds, runs), kept)),
        });
    }
    laboratory.measure(RECORD, COLUMNS, cells)
}

/// Who writes, and whether it is told of the asynchronism.
fn racing() -> [(Contender, bool); 3] {
    let mut store = Contender::fixed(Method::STORE);
    store.name = STORE.to_string();
    let goal = |name| Contender::goal(name, Goal::Fastest, Container::Portable);
    [(store, false), (goal(S1), true), (goal(S1_UNTOLD), false)]
}

fn race(
    bench: &Bench,
    (input, beta): (Input, f64),
    (seconds, runs): (f64, usize),
    mut kept: Unfinished,
) -> Result<Vec<Row>> {
    let block_bytes = bench.corpus.shape.block_bytes;
    let racing = racing();
    let first = kept.rows().iter().map(|row| row.run).max().unwrap_or(0);
    let before = kept.rows().first();
    let mut blocks = before.map(|row| row.values[RAW_BYTES] as usize / block_bytes);
    for run in first..runs {
        let regime = bench.regime(beta)?;
        let speed = sweeps_per_second(bench.is_quick)?;
        let enough = (seconds * regime.link.0 / block_bytes as f64).ceil() as usize;
        let blocks = *blocks.get_or_insert(enough.max(8));
        let buffer = buffer_of(bench, input, blocks);
        if run == 0 {
            for (contender, _) in &racing {
                (bench.verify(contender, input, &regime)).context(contender.name.clone())?;
            }
        }
        let mut rows = Vec::new();
        for share in SHARES {
            let call = Call {
                share,
                sweeps: (share * regime.raw_seconds(buffer.len() as f64) * speed) as usize,
                regime,
            };
            for index in interleave::order(run, racing.len()) {
                let (contender, is_told) = &racing[index];
                let values = call.run(bench, contender, *is_told, Arc::clone(&buffer));
                let row = Row {
                    task: percent(share),
                    run: run + 1,
                    runs,
                    contender: contender.name.clone(),
                    values: values.with_context(|| contender.name.clone())?,
                };
                rows.push(((share * 100.0) as usize, index, row));
            }
        }
        rows.sort_by_key(|(share, index, _)| (*share, *index));
        kept.add(rows.into_iter().map(|(_, _, row)| row).collect())?;
    }
    kept.finish()
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn buffer_of(bench: &Bench, input: Input, blocks: usize) -> Arc<[u8]> {
    let places = (0..blocks).map(|index| input.place(index, bench.corpus.shape));
    let bytes: Vec<u8> = places
        .flat_map(|place| bench.corpus.block(place).iter().copied())
        .collect();
    bytes.into()
}

/// One call beside the solver.
struct Call {
    share: f64,
    sweeps: usize,
    regime: Regime,
}

impl Call {
    /// Returns the values of a row.
    fn run(
        &self,
        bench: &Bench,
        contender: &Contender,
        is_told: bool,
        buffer: Arc<[u8]>,
    ) -> Result<Vec<f64>> {
        let options = WriterOptions {
            container: contender.container,
            choice: contender.choice(&self.regime),
            block_bytes: bench.corpus.shape.block_bytes,
            ..WriterOptions::default()
        };
        let mut writer = Writer::new(Link::new(self.regime.link), &bench.pool, options)?;
        if is_told {
            let advice = Advice::Asynchronism { share: self.share };
            writer.advise(&Hint::new(0..buffer.len() as u64, advice))?;
        }
        let meter = Meter::start(Scope::Process);
        let (application, outcome) = clock::time(|| -> Result<()> {
            let pending = writer.write_async(buffer, 0)?;
            solve(self.sweeps)?;
            pending.wait()?;
            Ok(())
        });
        outcome?;
        let (_, summary) = writer.finish()?;
        let usage = meter.stop(summary.raw_bytes);
        Ok(vec![
            summary.raw_bytes as f64,
            summary.stored_bytes as f64,
            application.wall_seconds,
            usage.wall.0,
            usage.cpu.total().0,
            self.regime.link.0,
        ])
    }
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        for share in SHARES {
            let task = percent(share);
            let seconds = |name: &str| cell.column(&task, name, APPLICATION_SECONDS);
            for name in [S1, S1_UNTOLD] {
                let (ours, plain) = (seconds(name), seconds(STORE));
                let ratios: Vec<f64> = ours.iter().zip(&plain).map(|(a, b)| a / b).collect();
                let is_core = name == S1 && share <= SHARE_HIDDEN;
                let ratio =
                    median(cell, &task, name, RAW_BYTES) / median(cell, &task, name, STORED_BYTES);
                findings.push(judge(
                    &EXPERIMENT,
                    format!("{}, {task}, {name}", cell.cell),
                    is_core,
                    Interval::of_pairs(&ratios),
                    format!("ratio {ratio:.2}"),
                ));
            }
        }
    }
    findings
}

fn median(cell: &CellRecord, task: &str, contender: &str, column: usize) -> f64 {
    Interval::of_pairs(&cell.column(task, contender, column)).middle
}

/// Reads the latest record of each cell.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    let cells = Record::new(records, RECORD, COLUMNS).read()?;
    Ok(tables::latest(cells))
}

/// Returns the ratio that S1 reached in a cell at an asynchronism.
pub fn ratio(cells: &[CellRecord], cell: &str, share: f64) -> Option<f64> {
    let cell = cells.iter().find(|it| it.cell == cell)?;
    let of = |column| median(cell, &percent(share), S1, column);
    Some(of(RAW_BYTES) / of(STORED_BYTES)).filter(|ratio| ratio.is_finite())
}

fn table(records: &Path) -> Result<String> {
    let cells = recorded(records)?;
    let mut text = super::findings_table(records, &cells, &findings(&cells));
    if cells.is_empty() {
        return Ok(text);
    }
    text.push_str(
        "\n| cell | asynchronism | by | application, s | drained after, s | ratio | core s per GB, solver included |\n\
         |---|---:|---|---:|---:|---:|---:|\n",
    );
    for cell in &cells {
        for share in SHARES {
            let task = percent(share);
            for name in contenders(cell) {
                let of = |column| median(cell, &task, name, column);
                text.push_str(&format!(
                    "| {} | {task} | {name} | {:.3} | {:.3} | {:.3} | {:.2} |\n",
                    cell.cell,
                    of(APPLICATION_SECONDS),
                    of(DRAINED_SECONDS),
                    of(RAW_BYTES) / of(STORED_BYTES),
                    of(CPU_SECONDS) / of(RAW_BYTES) * 1e9,
                ));
            }
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_smooth() {
        let mut grid = Grid::new();
        let rough = |grid: &Grid| -> f64 {
            let pairs = grid.values.windows(2).map(|pair| (pair[1] - pair[0]).abs());
            pairs.sum()
        };
        let before = rough(&grid);
        (0..10).for_each(|_| grid.sweep());
        let after = rough(&grid);
        assert!(after < before / 2.0, "{before}, {after}");
        assert!(solve(1).unwrap().is_finite());
    }
}
