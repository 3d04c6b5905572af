//! Calls that compress while a solver has every processor, as partdiff does in the thesis.
//!
//! The solver does a fixed work: so many sweeps as take it a share (the asynchronism) of the time that the call takes
//! uncompressed, when it is alone. The application then waits for the call. The figure is the time until both are done.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use breakeven::codec::Method;
use breakeven::meter::{Meter, Scope};
use breakeven::stream::{Advice, Container, Goal, Hint, Writer, WriterOptions};

use super::bench::{Bench, Contender, Regime, WORKERS};
use super::corpus::{File, Input};
use super::fastest::S1;
use super::link::Link;
use super::plan::{Behind, Planned};
use super::race::{DRAINED_SECONDS, RAW_BYTES, STORED_BYTES, contenders};
use super::{judge, published};
use crate::clock;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave;
use crate::laboratory::{Finding, Laboratory};
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
    "active_joules",
    "link_bytes_per_second",
];
const APPLICATION_SECONDS: usize = 2;
const CPU_SECONDS: usize = 4;
const ACTIVE_JOULES: usize = 5;

const STORE: &str = "store";
const S1_UNTOLD: &str = "S1 without the hint";
const S2: &str = "S2";
const S3: &str = "S3";
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
            "text, matrix and redundant, one call in the background from one buffer",
        ),
        (
            "links",
            "as in hirsch2017/fastest, portable container, beta 43 and 4.2",
        ),
        (
            "the solver",
            "sweeps of Gauss and Seidel over a grid for each of two threads. Alone they take 12, 20, 33, 50 and 80 % \
             of the call's uncompressed time, measured at the start of each run",
        ),
        (
            "contenders",
            "store for every block (uncompressed), S1 with the asynchronism as a hint, S1 without. At the share \
             nearest to the thesis's for this file and link also S2 and S3 with the hint. Redundant at 43, and matrix \
             and redundant at 4.2, only at that share, as variations",
        ),
        (
            "runs",
            "10 (quick: 2) of 0.6 s uncompressed, 1.8 s at beta 43; 10 s with --paper-size",
        ),
    ],
    analysis: "The application is done when it has computed and everything is compressed. The tail drains behind it, \
        and the second time in the table includes that. At 80 % the solver lacks the processors that compressing \
        takes, and no rule can give them back: the controller has to compress less. Its behaviour there is a \
        variation. These are the asynchronous halves of Figures 5.10 to 5.15 without their static methods, which had \
        no hint of the solver.",
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

/// Calls of one file over one link.
#[derive(Clone, Copy)]
struct Plan {
    file: File,
    beta: f64,
    /// Whether all shares are tried, or only the one nearest to the thesis's.
    is_core: bool,
}

const PLANS: [Plan; 6] = {
    const fn plan(file: File, beta: f64, is_core: bool) -> Plan {
        Plan {
            file,
            beta,
            is_core,
        }
    }
    [
        plan(File::Text, 43.0, true),
        plan(File::Matrix, 43.0, true),
        plan(File::Text, 4.2, true),
        plan(File::Redundant, 43.0, false),
        plan(File::Matrix, 4.2, false),
        plan(File::Redundant, 4.2, false),
    ]
};

impl Plan {
    fn name(&self) -> String {
        format!("{} beta {}", self.file.name(), self.beta)
    }

    fn shares(&self) -> Vec<f64> {
        match self.is_core {
            true => SHARES.to_vec(),
            false => nearest_share(self.file, self.beta).into_iter().collect(),
        }
    }
}

/// Returns the share that is nearest to the thesis's for a file and a link.
pub fn nearest_share(file: File, beta: f64) -> Option<f64> {
    let published = published::asynchronism(file, beta)?;
    let distance = |share: &f64| (share - published).abs();
    SHARES
        .into_iter()
        .min_by(|a, b| distance(a).total_cmp(&distance(b)))
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let is_tried = |plan: &&Plan| !laboratory.quick || (plan.file, plan.beta) == (File::Text, 4.2);
    let plans = PLANS.iter().filter(is_tried).map(|plan| {
        let place = (Input::Plain(plan.file), plan.beta);
        let behind = Behind::new(laboratory, place, (2, 0.01), 0.6);
        let shares: Vec<String> = plan.shares().iter().map(f64::to_string).collect();
        Planned {
            plan: (*plan, behind),
            name: plan.name(),
            input: behind.input,
            parameters: format!("{} shares={}", behind.parameters(), shares.join("|")),
        }
    });
    let record = (RECORD, COLUMNS);
    bench.measure(laboratory, record, plans.collect(), |plan, kept| {
        race(&bench, plan, kept)
    })
}

/// A contender that writes.
struct Racer {
    contender: Contender,
    /// Whether it has the asynchronism as a hint.
    is_told: bool,
    /// Whether it writes at every share, or only at the one nearest to the thesis's.
    is_everywhere: bool,
}

fn racing() -> [Racer; 5] {
    let goal = |name, goal, is_told| Racer {
        contender: Contender::goal(name, goal, Container::Portable),
        is_told,
        is_everywhere: matches!(goal, Goal::Fastest),
    };
    let store = Racer {
        contender: Contender::fixed(Method::STORE),
        is_told: false,
        is_everywhere: true,
    };
    [
        store,
        goal(S1, Goal::Fastest, true),
        goal(S1_UNTOLD, Goal::Fastest, false),
        goal(S2, Goal::Within(1.0), true),
        goal(S3, Goal::Within(1.5), true),
    ]
}

fn race(bench: &Bench, (plan, behind): (Plan, Behind), kept: Unfinished) -> Result<Vec<Row>> {
    let Behind { input, runs, .. } = behind;
    let nearest = nearest_share(plan.file, plan.beta);
    let racing = racing();
    let mut blocks = bench.blocks_kept(&kept);
    kept.complete(runs, |run| {
        let regime = bench.regime(plan.beta)?;
        let speed = sweeps_per_second(bench.is_quick)?;
        let blocks = blocks.get_or_insert_with(|| bench.blocks_uncompressed(&behind, &regime));
        let buffer = buffer_of(bench, input, *blocks);
        if run == 0 {
            for Racer { contender, .. } in &racing {
                (bench.verify(contender, input, &regime)).context(contender.name.clone())?;
            }
        }
        let mut rows = Vec::new();
        for share in plan.shares() {
            let call = Call {
                share,
                sweeps: (share * regime.raw_seconds(buffer.len() as f64) * speed) as usize,
                regime,
            };
            let turns = interleave::in_turn(run, racing.len(), |index| {
                let racer = &racing[index];
                if !racer.is_everywhere && Some(share) != nearest {
                    return Ok(None);
                }
                let name = &racer.contender.name;
                let values = call.run(bench, racer, Arc::clone(&buffer));
                Ok(Some(Row {
                    task: percent(share),
                    run: run + 1,
                    runs,
                    contender: name.clone(),
                    values: values.with_context(|| name.clone())?,
                }))
            })?;
            rows.extend(turns.into_iter().flatten());
        }
        Ok(rows)
    })
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
    fn run(&self, bench: &Bench, racer: &Racer, buffer: Arc<[u8]>) -> Result<Vec<f64>> {
        let contender = &racer.contender;
        let options = WriterOptions {
            container: contender.container,
            choice: contender.choice(&self.regime),
            block_bytes: bench.corpus.shape.block_bytes,
            ..WriterOptions::default()
        };
        let mut writer = Writer::new(Link::new(self.regime.link), &bench.pool, options)?;
        if racer.is_told {
            let advice = Advice::Asynchronism { share: self.share };
            writer.advise(&Hint::new(0..buffer.len() as u64, advice))?;
        }
        let span = bench.energy.start();
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
            span.stop(&usage, &[]).active().0,
            self.regime.link.0,
        ])
    }
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let plan = PLANS.iter().find(|plan| plan.name() == cell.cell);
        for share in plan.map_or(Vec::new(), Plan::shares) {
            let task = percent(share);
            let seconds = |name: &str| cell.column(&task, name, APPLICATION_SECONDS);
            for name in [S1, S1_UNTOLD] {
                let is_core =
                    plan.is_some_and(|it| it.is_core) && name == S1 && share <= SHARE_HIDDEN;
                let ratio = ratio(cell, &task, name);
                findings.push(judge(
                    &EXPERIMENT,
                    format!("{}, {task}, {name}", cell.cell),
                    is_core,
                    Interval::of_quotients(&seconds(name), &seconds(STORE)),
                    format!("ratio {ratio:.2}"),
                ));
            }
        }
    }
    findings
}

fn ratio(cell: &CellRecord, task: &str, contender: &str) -> f64 {
    cell.median(task, contender, RAW_BYTES) / cell.median(task, contender, STORED_BYTES)
}

/// Reads the latest record of each cell.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    Record::new(records, RECORD, COLUMNS).latest()
}

/// Returns the ratios that S1, S2 and S3 reached with a file over a link, at the asynchronism nearest to
/// the thesis's.
pub fn ratios(cells: &[CellRecord], file: File, beta: f64) -> [Option<f64>; 3] {
    [S1, S2, S3].map(|name| {
        let cell = cells
            .iter()
            .find(|it| it.cell == format!("{} beta {beta}", file.name()))?;
        let task = percent(nearest_share(file, beta)?);
        Some(ratio(cell, &task, name)).filter(|ratio| ratio.is_finite())
    })
}

fn table(records: &Path) -> Result<tables::Shown> {
    let cells = recorded(records)?;
    let mut text = tables::judged(tables::origin(records, &cells), findings(&cells));
    if cells.is_empty() {
        return Ok(text);
    }
    text.push_str(
        "\nProcessor seconds and joules (modelled where the record's parameters say so) include the solver's.\n\n\
         | cell | asynchronism | by | application, s | drained after, s | ratio | core s per GB | J per GB |\n\
         |---|---:|---|---:|---:|---:|---:|---:|\n",
    );
    for cell in &cells {
        for share in SHARES {
            let task = percent(share);
            let is_there = |name: &&str| !cell.column(&task, name, RAW_BYTES).is_empty();
            for name in contenders(cell).into_iter().filter(is_there) {
                let of = |column| cell.median(&task, name, column);
                text.push_str(&format!(
                    "| {} | {task} | {name} | {:.3} | {:.3} | {:.3} | {:.2} | {:.1} |\n",
                    cell.cell,
                    of(APPLICATION_SECONDS),
                    of(DRAINED_SECONDS),
                    ratio(cell, &task, name),
                    of(CPU_SECONDS) / of(RAW_BYTES) * 1e9,
                    of(ACTIVE_JOULES) / of(RAW_BYTES) * 1e9,
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
    fn shares_are_the_thesis_s_as_near_as_can_be() {
        let check = |file, beta, expected| assert_eq!(nearest_share(file, beta), expected);
        check(File::Text, 43.0, Some(0.2));
        check(File::Redundant, 43.0, Some(0.12));
        check(File::Matrix, 4.2, Some(0.33));
        check(File::Text, 0.83, None);
        check(File::Noise, 43.0, None);
        for plan in PLANS {
            assert!(!plan.shares().is_empty(), "{}", plan.name());
        }
    }

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
