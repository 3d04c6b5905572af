//! The record of one contender on one type of file, beside plain writing and reading.
//!
//! Times and energies are those of the paper's 2 GiB. Measurements on a part are scaled in proportion, and say so.

use breakeven::model::{EnergyDelayEstimate, QuadrupleEstimate, Verdict, verdict};
use breakeven::units::Estimate;

use super::contenders::{CONTENDERS, PLAIN};
use super::files::FileType;
use super::tasks::{
    ACTIVE_JOULES, PAPER_BYTES, PASSIVE_JOULES, RAW_BYTES, READ, STORED_BYTES, SYSTEM_SECONDS,
    USER_SECONDS, WALL_SECONDS, WRITE,
};
use crate::record::CellRecord;
use crate::statistics::Interval;
use crate::tables;

/// The runs a verdict may rest on: the paper's rule (section 4.3).
pub const RUNS_MIN: usize = 5;

/// A contender on a type of file.
#[derive(Clone, Copy)]
pub struct Measured<'a> {
    cell: &'a CellRecord,
    pub name: &'a str,
}

/// A metric of Chapter 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    Time,
    Energy,
    EnergyDelay,
}

impl Metric {
    pub const ALL: [Metric; 3] = [Metric::Time, Metric::Energy, Metric::EnergyDelay];
}

/// Where the time and the energy of a task went, for the paper's file size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parts {
    pub seconds: Interval,
    pub user: f64,
    pub system: f64,
    pub wait: f64,
    pub passive_joules: f64,
    pub active_joules: f64,
}

impl Parts {
    /// Returns mean joules.
    pub fn joules(&self) -> f64 {
        self.passive_joules + self.active_joules
    }

    /// Returns mean watts.
    pub fn watts(&self) -> f64 {
        self.joules() / self.seconds.middle
    }
}

/// Returns the records of a type of file, in the order of the contenders: each where its file was largest, the plain
/// one first.
pub fn of_file(cells: &[CellRecord], file: FileType) -> Vec<Measured<'_>> {
    let names = CONTENDERS.iter().map(|contender| contender.name);
    [PLAIN]
        .into_iter()
        .chain(names)
        .filter_map(|name| find(cells, file, name))
        .collect()
}

/// Returns the record of one contender on a type of file.
pub fn find<'a>(cells: &'a [CellRecord], file: FileType, name: &'a str) -> Option<Measured<'a>> {
    let marked = format!("file={} ", file.name());
    let of_file = cells
        .iter()
        .filter(|cell| cell.parameters.starts_with(&marked));
    let found = of_file.map(|cell| Measured { cell, name });
    found
        .filter(|measured| !measured.column(WRITE, name, RAW_BYTES).is_empty())
        .max_by(|one, other| one.raw_bytes().total_cmp(&other.raw_bytes()))
}

impl Measured<'_> {
    fn column(&self, task: &str, name: &str, column: usize) -> Vec<f64> {
        self.cell.column(task, name, column)
    }

    pub fn raw_bytes(&self) -> f64 {
        self.column(WRITE, self.name, RAW_BYTES)[0]
    }

    /// Returns raw over stored bytes.
    pub fn ratio(&self) -> f64 {
        self.raw_bytes() / self.column(WRITE, self.name, STORED_BYTES)[0]
    }

    /// Returns by how much more the paper's file is.
    fn scale(&self) -> f64 {
        PAPER_BYTES as f64 / self.raw_bytes()
    }

    /// Returns the size that was measured, where it is not the paper's.
    pub fn scaled_from(&self) -> Option<String> {
        let bytes = self.raw_bytes() as usize;
        (bytes != PAPER_BYTES).then(|| tables::binary_size(bytes))
    }

    /// Whether the file was generated, and not made of real files.
    pub fn is_generated(&self) -> bool {
        let source = self.cell.parameter("source");
        source.is_some_and(|source| source.starts_with("generated"))
    }

    /// Returns where watts come from.
    pub fn energy_source(&self) -> &str {
        self.cell.parameter("energy").unwrap_or("default")
    }

    /// Returns the cost of a task of this contender.
    pub fn parts(&self, task: &str) -> Parts {
        let mean = |column: usize| {
            let values = self.column(task, self.name, column);
            self.scale() * values.iter().sum::<f64>() / values.len() as f64
        };
        let seconds = self.interval(task, self.name, Metric::Time);
        let (user, system) = (mean(USER_SECONDS), mean(SYSTEM_SECONDS));
        Parts {
            seconds,
            user,
            system,
            // A contender that keeps two processors busy waits for neither.
            wait: (seconds.middle - user - system).max(0.0),
            passive_joules: mean(PASSIVE_JOULES),
            active_joules: mean(ACTIVE_JOULES),
        }
    }

    /// Returns the time or the energy of each run of a task, for the paper's size.
    fn runs(&self, task: &str, name: &str, metric: Metric) -> Vec<f64> {
        let scaled = |column| {
            let values = self.column(task, name, column).into_iter();
            values
                .map(|value| self.scale() * value)
                .collect::<Vec<f64>>()
        };
        let energy = || {
            let active = scaled(ACTIVE_JOULES).into_iter();
            let both = scaled(PASSIVE_JOULES).into_iter().zip(active);
            both.map(|(passive, active)| passive + active)
                .collect::<Vec<f64>>()
        };
        match metric {
            Metric::Time => scaled(WALL_SECONDS),
            Metric::Energy => energy(),
            Metric::EnergyDelay => {
                let seconds = scaled(WALL_SECONDS).into_iter();
                energy()
                    .into_iter()
                    .zip(seconds)
                    .map(|(joules, seconds)| joules * seconds)
                    .collect()
            }
        }
    }

    fn interval(&self, task: &str, name: &str, metric: Metric) -> Interval {
        Interval::of_values(&self.runs(task, name, metric))
    }

    /// Returns this contender's cost of a task over plain's, from the runs both took part in.
    pub fn over_plain(&self, task: &str, metric: Metric) -> Interval {
        let own = self.runs(task, self.name, metric);
        let pairs = own.into_iter().zip(self.runs(task, PLAIN, metric));
        Interval::of_ratios(&pairs.map(|(own, plain)| own / plain).collect::<Vec<f64>>())
    }

    /// Returns the fewest runs of this contender's figures.
    pub fn runs_min(&self) -> usize {
        let runs = [WRITE, READ].map(|task| self.column(task, self.name, WALL_SECONDS).len());
        runs[0].min(runs[1])
    }

    /// Returns this contender's mean power at a task over plain's.
    pub fn power_over_plain(&self, task: &str) -> Interval {
        let watts = |name: &str| {
            let seconds = self.runs(task, name, Metric::Time).into_iter();
            let joules = self.runs(task, name, Metric::Energy).into_iter();
            joules
                .zip(seconds)
                .map(|(joules, seconds)| joules / seconds)
                .collect::<Vec<f64>>()
        };
        let pairs = watts(self.name).into_iter().zip(watts(PLAIN));
        Interval::of_ratios(&pairs.map(|(own, plain)| own / plain).collect::<Vec<f64>>())
    }

    /// Returns the four costs of the read-write model with their intervals. Watts that are wrong by
    /// a common factor are not in them: it cancels in a break-even.
    pub fn costs(&self, metric: Metric) -> QuadrupleEstimate {
        if metric == Metric::EnergyDelay {
            let energy = self.costs(Metric::Energy);
            let time = self.costs(Metric::Time);
            return EnergyDelayEstimate { energy, time }.of_tasks();
        }
        let estimate = |task: &str, name: &str| {
            let found = self.interval(task, name, metric);
            Estimate {
                mean: found.middle,
                low: found.low.max(0.0),
                high: if found.high.is_finite() {
                    found.high
                } else {
                    2.0 * found.middle
                },
            }
        };
        QuadrupleEstimate {
            write: estimate(WRITE, PLAIN),
            compress: estimate(WRITE, self.name),
            read: estimate(READ, PLAIN),
            decompress: estimate(READ, self.name),
        }
    }

    /// Returns from how many reads per write this contender pays.
    pub fn verdict(&self, metric: Metric) -> Verdict {
        verdict(&self.costs(metric))
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::tasks::COLUMNS;
    use super::*;
    use crate::record::Row;
    use breakeven::model::Answer;

    /// A cell of five runs on a text file of `raw_bytes`. Plain writes take 2 s and reads 1 s, and each contender takes
    /// the seconds given. Half of them are user time, at 3 W, of them 1 W idle.
    pub fn cell(raw_bytes: usize, contenders: &[(&str, f64, f64)]) -> CellRecord {
        let plain = [(PLAIN, 2.0, 1.0)];
        let mut rows = Vec::new();
        for run in 1..=5 {
            let waver = 1.0 + 0.001 * run as f64;
            for (name, write, read) in plain.iter().chain(contenders) {
                for (task, seconds) in [(WRITE, write * waver), (READ, read * waver)] {
                    let stored = raw_bytes as f64 / if *name == PLAIN { 1.0 } else { 4.0 };
                    let joules = [seconds, 2.0 * seconds];
                    let values = [
                        raw_bytes as f64,
                        stored,
                        raw_bytes as f64,
                        seconds,
                        0.5 * seconds,
                        0.25 * seconds,
                        joules[0],
                        joules[1],
                    ];
                    assert_eq!(values.len(), COLUMNS.len());
                    rows.push(Row {
                        task: task.to_string(),
                        run,
                        runs: 5,
                        contender: name.to_string(),
                        values: values.into(),
                    });
                }
            }
        }
        CellRecord::made_up(
            format!("text {raw_bytes}"),
            "file=text source=generated-text energy=default",
            rows,
        )
    }

    #[test]
    fn parts_are_scaled_and_break_evens_are_not() {
        let part = cell(PAPER_BYTES / 8, &[("gzip -1", 4.0, 0.5)]);
        let cells = [part];
        let gzip = find(&cells, FileType::Text, "gzip -1").unwrap();
        let parts = gzip.parts(WRITE);
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found}");
        close(parts.seconds.middle, 8.0 * 4.0 * 1.003);
        close(parts.user, 8.0 * 2.0 * 1.003);
        close(parts.wait, 8.0 * 1.0 * 1.003);
        close(parts.watts(), 3.0);
        close(gzip.ratio(), 4.0);
        close(gzip.over_plain(READ, Metric::Energy).middle, 0.5);
        close(gzip.power_over_plain(WRITE).middle, 1.0);
        assert_eq!(gzip.scaled_from().as_deref(), Some("256 MiB"));
        // (4 - 2) / (1 - 0.5) in time and in energy; (16 - 4) / (1 - 0.25) in energy-delay.
        for (metric, expected) in Metric::ALL.into_iter().zip([4.0, 4.0, 16.0]) {
            let verdict = gzip.verdict(metric);
            assert_eq!(verdict.answer, Answer::PaysAbove);
            assert!(
                (verdict.break_even.unwrap() - expected).abs() < 1e-9,
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn the_largest_file_of_a_contender_counts() {
        let cells = [
            cell(PAPER_BYTES, &[("lzop -1", 1.0, 0.5)]),
            cell(
                PAPER_BYTES / 8,
                &[("lzop -1", 9.0, 9.0), ("gzip -1", 9.0, 9.0)],
            ),
        ];
        let all = of_file(&cells, FileType::Text);
        let names: Vec<&str> = all.iter().map(|measured| measured.name).collect();
        assert_eq!(names, [PLAIN, "gzip -1", "lzop -1"]);
        assert_eq!(all[2].scaled_from(), None);
        assert!(find(&cells, FileType::Binary, "lzop -1").is_none());
    }
}
