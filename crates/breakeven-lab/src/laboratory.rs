//! The runner: cells measured one by one, each kept as soon as it is done.
//!
//! A cell whose complete record exists for this code, this machine and these parameters is taken from the record
//! instead of being measured again. The experiments in `papers` hold the measurements and their meaning.

use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::origin::Origin;
use crate::record::{self, CellRecord, Record, Row, Unfinished};
use crate::statistics::{Interval, Verdict};

/// The options of a run of the laboratory.
pub struct Laboratory {
    /// A handful of cells and few runs: enough to see that everything works.
    pub quick: bool,
    /// Measure recorded cells, too.
    pub again: bool,
    /// Measure only cells whose name has this word; take others from records of older code.
    pub only: Option<String>,
    /// Give every contender of a paper the paper's full size.
    pub paper_size: bool,
    /// Seconds of each run of a core cell, where an experiment writes for so long.
    pub core_seconds: f64,
    /// Replace the committed table of sizes.
    pub update: bool,
    /// The folder of real data.
    pub data: Option<PathBuf>,
    /// The folder of records.
    pub records: PathBuf,
    /// Whether new rows are kept there.
    pub keep: bool,
    /// Cells measured by this run, with their experiments: several experiments may share a record.
    pub done: RefCell<Vec<(String, CellRecord)>>,
    pub origin: Origin,
}

/// A named combination of parameters.
pub struct Cell<'a> {
    pub name: String,
    /// All parameters of the measurement, as `key=value` words.
    pub parameters: String,
    /// Measures all runs of the cell.
    pub measure: Box<dyn FnOnce() -> Result<Vec<Row>> + 'a>,
}

/// The answer of a run to one question.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub question: String,
    /// Whether the claim is judged by it; the others show where it bends.
    pub core: bool,
    pub found: Interval,
    pub verdict: Verdict,
    /// Other facts for a reader.
    pub note: String,
}

impl Laboratory {
    /// Makes a folder that removes itself, beside the records: the folder of temporary files is often memory.
    ///
    /// # Errors
    /// Those of making it.
    pub fn scratch(&self) -> Result<TempDir> {
        let records = self.records.display();
        std::fs::create_dir_all(&self.records).with_context(|| format!("create {records}"))?;
        let folder = tempfile::Builder::new()
            .prefix(".scratch")
            .tempdir_in(&self.records);
        folder.with_context(|| format!("make a folder in {records}"))
    }

    /// Measures cells, or takes them from the record, in order.
    ///
    /// Cells that are not to be measured are left out where nothing is recorded of them.
    pub fn measure(
        &self,
        experiment: &str,
        columns: &'static [&'static str],
        cells: Vec<Cell<'_>>,
    ) -> Result<Vec<CellRecord>> {
        self.measure_or_need(experiment, columns, cells, false)
    }

    /// Measures cells that others stand on: those not asked for are measured too, where nothing is
    /// recorded of them.
    pub fn need(
        &self,
        experiment: &str,
        columns: &'static [&'static str],
        cells: Vec<Cell<'_>>,
    ) -> Result<Vec<CellRecord>> {
        self.measure_or_need(experiment, columns, cells, true)
    }

    fn measure_or_need(
        &self,
        experiment: &str,
        columns: &'static [&'static str],
        cells: Vec<Cell<'_>>,
        are_needed: bool,
    ) -> Result<Vec<CellRecord>> {
        let record = Record::new(&self.records, experiment, columns);
        let recorded = if self.again {
            Vec::new()
        } else {
            record.read()?
        };
        let done: Vec<CellRecord> = self.done_of(experiment);
        let count = cells.len();
        let mut measured = Vec::with_capacity(count);
        for (index, cell) in cells.into_iter().enumerate() {
            let is_wanted = self
                .only
                .as_ref()
                .is_none_or(|word| cell.name.contains(word));
            let known = done
                .iter()
                .chain(recorded.iter().rev())
                .find(|old| self.is_same(old, &cell, is_wanted))
                .cloned();
            let source = match &known {
                Some(old) => format!("recorded {} by {}", old.date, old.commit),
                None if is_wanted || are_needed => "measuring".to_string(),
                None => "left out".to_string(),
            };
            eprintln!("{experiment} {}/{count} {}: {source}", index + 1, cell.name);
            if let Some(known) = known {
                measured.push(known);
            } else if is_wanted || are_needed {
                let new = self.measure_cell(&record, cell)?;
                let done = (experiment.to_string(), new.clone());
                self.done.borrow_mut().push(done);
                measured.push(new);
            }
        }
        Ok(measured)
    }

    /// Opens a cell that is to keep its runs one by one, with the runs that an earlier program kept.
    pub fn unfinished(
        &self,
        experiment: &str,
        columns: &'static [&'static str],
        cell: &str,
        parameters: &str,
    ) -> Result<Unfinished> {
        let cell = self.new_cell(cell.to_string(), parameters.to_string(), Vec::new());
        Unfinished::take(
            &self.records,
            experiment,
            columns,
            cell,
            self.again,
            self.keep,
        )
    }

    fn new_cell(&self, cell: String, parameters: String, rows: Vec<Row>) -> CellRecord {
        CellRecord {
            date: self.origin.date.clone(),
            commit: self.origin.commit.clone(),
            machine: self.origin.machine.clone(),
            cell,
            parameters,
            rows,
        }
    }

    fn done_of(&self, experiment: &str) -> Vec<CellRecord> {
        let done = self.done.borrow();
        let own = done.iter().filter(|(name, _)| name == experiment);
        own.map(|(_, cell)| cell.clone()).collect()
    }

    fn is_same(&self, old: &CellRecord, cell: &Cell<'_>, by_this_code: bool) -> bool {
        (old.commit == self.origin.commit || !by_this_code)
            && old.machine == self.origin.machine
            && old.cell == cell.name
            && old.parameters == cell.parameters
    }

    fn measure_cell(&self, record: &Record, cell: Cell<'_>) -> Result<CellRecord> {
        let rows = (cell.measure)().with_context(|| format!("cell {}", cell.name))?;
        let done = self.new_cell(cell.name, cell.parameters, rows);
        if self.keep {
            record.append(&done)?;
            record::note_machine(&self.records, &self.origin)?;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn laboratory(folder: &Path, commit: &str) -> Laboratory {
        Laboratory {
            quick: true,
            again: false,
            only: None,
            update: false,
            data: None,
            records: folder.to_path_buf(),
            keep: true,
            paper_size: false,
            core_seconds: 10.0,
            done: RefCell::default(),
            origin: Origin {
                commit: commit.to_string(),
                machine: "00000001".to_string(),
                machine_description: "fast".to_string(),
                date: "2026-01-01".to_string(),
            },
        }
    }

    /// Measures two cells and returns the names of those not taken from the record.
    fn measured(laboratory: &Laboratory, parameters: &str, fails: &str) -> Vec<String> {
        let names = RefCell::new(Vec::new());
        let cells = ["one", "two"].map(|name| {
            let names = &names;
            Cell {
                name: name.to_string(),
                parameters: parameters.to_string(),
                measure: Box::new(move || {
                    anyhow::ensure!(name != fails, "{name} failed");
                    names.borrow_mut().push(name.to_string());
                    Ok(vec![Row {
                        task: "work".to_string(),
                        run: 1,
                        runs: 1,
                        contender: "a".to_string(),
                        values: vec![1.0],
                    }])
                }),
            }
        });
        let outcome = laboratory.measure("paper/name", &["seconds"], cells.into());
        assert_eq!(outcome.is_err(), !fails.is_empty());
        if let (Ok(cells), None) = (outcome, &laboratory.only) {
            let found: Vec<&str> = cells.iter().map(|cell| cell.cell.as_str()).collect();
            assert_eq!(found, ["one", "two"]);
        }
        names.into_inner()
    }

    #[test]
    fn a_run_goes_on_where_the_last_one_stopped() {
        let folder = tempfile::tempdir().unwrap();
        let mut laboratory = laboratory(folder.path(), "abc");
        assert_eq!(measured(&laboratory, "seed=1", "two"), ["one"]);
        assert_eq!(measured(&laboratory, "seed=1", ""), ["two"]);
        assert_eq!(measured(&laboratory, "seed=1", ""), [""; 0]);
        assert_eq!(measured(&laboratory, "seed=2", ""), ["one", "two"]);
        laboratory.again = true;
        assert_eq!(
            measured(&laboratory, "seed=2", ""),
            [""; 0],
            "done by this run"
        );
        laboratory.done.borrow_mut().clear();
        assert_eq!(measured(&laboratory, "seed=2", ""), ["one", "two"]);
        laboratory.again = false;
        laboratory.origin.commit = "def".to_string();
        assert_eq!(measured(&laboratory, "seed=2", ""), ["one", "two"]);
        laboratory.origin.machine = "00000002".to_string();
        assert_eq!(measured(&laboratory, "seed=2", ""), ["one", "two"]);
    }

    #[test]
    fn cells_not_asked_for_are_taken_from_older_code_or_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let mut laboratory = laboratory(folder.path(), "abc");
        assert_eq!(measured(&laboratory, "seed=1", "two"), ["one"]);
        laboratory.origin.commit = "def".to_string();
        laboratory.only = Some("tw".to_string());
        assert_eq!(measured(&laboratory, "seed=1", ""), ["two"]);
        laboratory.origin.commit = "fed".to_string();
        laboratory.only = Some("three".to_string());
        assert_eq!(measured(&laboratory, "seed=1", ""), [""; 0]);
        let left_out = Cell {
            name: "one".to_string(),
            parameters: "seed=2".to_string(),
            measure: Box::new(|| anyhow::bail!("was not asked for")),
        };
        let found = laboratory.measure("paper/name", &["seconds"], vec![left_out]);
        assert_eq!(found.unwrap(), []);
        let needed = Cell {
            name: "one".to_string(),
            parameters: "seed=2".to_string(),
            measure: Box::new(|| Ok(Vec::new())),
        };
        let found = laboratory.need("paper/name", &["seconds"], vec![needed]);
        assert_eq!(found.unwrap().len(), 1);
    }

    #[test]
    fn nothing_is_kept_unless_it_is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let mut laboratory = laboratory(folder.path(), "abc");
        laboratory.keep = false;
        assert_eq!(measured(&laboratory, "seed=1", ""), ["one", "two"]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
