//! A plan of measurements: an input behind a link, in so many runs of about so many seconds, under the name and
//! parameters that identify its record.

use anyhow::Result;

use super::bench::{BETAS, Bench, FRAMES, Regime, WORKERS};
use super::corpus::Input;
use super::race::RAW_BYTES;
use crate::laboratory::{Cell, Laboratory};
use crate::record::{CellRecord, Row, Unfinished};

/// A cell as it is planned.
pub struct Planned<P> {
    /// For the function that measures it.
    pub plan: P,
    pub name: String,
    pub input: Input,
    /// The parameters of this measurement, beside those that all cells of its input share.
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
    /// Plans as many and as long runs as [`runs`] says, three times as long over the slowest link, where a block takes
    /// 50 ms.
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

    /// Returns the parameters of a race over it.
    pub fn place_and_runs(&self) -> (Input, f64, usize) {
        (self.input, self.beta, self.runs)
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

/// Returns how many runs a cell has, and about how many seconds each writes: `full` unless the run is
/// quick or of the thesis's size.
pub fn runs(laboratory: &Laboratory, quick: (usize, f64), full: f64) -> (usize, f64) {
    match (laboratory.quick, laboratory.paper_size) {
        (true, _) => quick,
        (_, true) => (10, 10.0),
        _ => (10, full),
    }
}

impl Bench {
    /// Returns the words that all cells of an input share, for the parameters of a record.
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

    /// Returns how many blocks each kept run of a cell wrote, so that the others write as many. The raw bytes are the
    /// first column of every record made here.
    pub fn blocks_kept(&self, kept: &Unfinished) -> Option<usize> {
        let row = kept.rows().first()?;
        Some(row.values[RAW_BYTES] as usize / self.corpus.shape.block_bytes)
    }

    /// Returns how many blocks take the seconds of a plan uncompressed: whole periods of its input.
    pub fn blocks_uncompressed(&self, plan: &Behind, regime: &Regime) -> usize {
        let blocks = plan.seconds * regime.link.0 / self.corpus.shape.block_bytes as f64;
        plan.input.whole_periods(blocks)
    }
}
