//! Records: measurements, appended to a CSV file for each experiment.
//!
//! A file begins with a schema line and a header. Every row is one measurement run and says where it comes from. The
//! rows of a cell are appended together, runs outermost, when the cell is done. So a cell that was cut off lacks its
//! last rows. It is then not complete and not used. A cell that takes long keeps its runs one by one in a file beside
//! the record until it is done ([`Unfinished`]). Fields hold neither commas, quotes nor line ends, so there is no
//! quoting.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::origin::Origin;
use crate::statistics::Interval;

const SCHEMA: &str = "# breakeven-lab record 1, one row per measurement run";
const COMMON: &str = "date,commit,machine,cell,parameters,task,run,runs,contender";
const COMMON_COUNT: usize = 9;

/// One measurement run.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The task, where a cell does more than one thing.
    pub task: String,
    /// Counted from 1. Rows of one run were measured side by side.
    pub run: usize,
    /// How many runs this contender has in the cell.
    pub runs: usize,
    /// The contender's name.
    pub contender: String,
    /// The experiment's own columns.
    pub values: Vec<f64>,
}

impl Row {
    /// A contender's row in a run, counted from 0, of so many.
    pub fn new(task: &str, contender: &str, (run, runs): (usize, usize), values: Vec<f64>) -> Row {
        Row {
            task: task.to_string(),
            run: run + 1,
            runs,
            contender: contender.to_string(),
            values,
        }
    }

    /// Rows of contenders that could not run, where something is missing for them.
    pub fn unmeasured(task: &str, contenders: &[&str], columns: &[&str]) -> Vec<Row> {
        let values = || vec![f64::NAN; columns.len()];
        let row = |name: &&str| Row::new(task, name, (0, 1), values());
        contenders.iter().map(row).collect()
    }
}

/// All rows of one cell from one origin.
#[derive(Clone, Debug, PartialEq)]
pub struct CellRecord {
    pub date: String,
    pub commit: String,
    pub machine: String,
    pub cell: String,
    pub parameters: String,
    pub rows: Vec<Row>,
}

impl CellRecord {
    /// Makes a cell of an origin that never was, for tests.
    #[cfg(test)]
    pub fn made_up(
        cell: impl Into<String>,
        parameters: impl Into<String>,
        rows: Vec<Row>,
    ) -> CellRecord {
        CellRecord {
            date: "2026-01-01T00:00:00Z".to_string(),
            commit: "abc".to_string(),
            machine: "00000001".to_string(),
            cell: cell.into(),
            parameters: parameters.into(),
            rows,
        }
    }

    /// Returns the values of one column of one contender at one task, by run.
    pub fn column(&self, task: &str, contender: &str, column: usize) -> Vec<f64> {
        self.rows
            .iter()
            .filter(|row| row.task == task && row.contender == contender)
            .map(|row| row.values[column])
            .collect()
    }

    /// Returns the median of a column of a contender that took part in a task.
    pub fn median(&self, task: &str, contender: &str, column: usize) -> f64 {
        Interval::of_pairs(&self.column(task, contender, column)).middle
    }

    /// Returns the value of the parameter `name`: of the word `name=value`.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut words = self
            .parameters
            .split(' ')
            .filter_map(|word| word.split_once('='));
        words
            .find(|(word, _)| *word == name)
            .map(|(_, value)| value)
    }

    fn has(&self, row: &Row) -> bool {
        let is_it = |old: &Row| {
            (old.run, &old.task, &old.contender) == (row.run, &row.task, &row.contender)
        };
        self.rows.iter().any(is_it)
    }

    /// Whether every contender has every run of every task: as many as its rows say.
    fn is_complete(&self) -> bool {
        let mut missing: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for row in &self.rows {
            let left = missing.entry((&row.task, &row.contender));
            let left = left.or_insert(row.runs);
            // More rows than runs are two cells in one, and as wrong as too few.
            *left = left.wrapping_sub(1);
        }
        missing.values().all(|left| *left == 0)
    }
}

/// The record file of one experiment.
pub struct Record {
    path: PathBuf,
    columns: &'static [&'static str],
}

impl Record {
    /// Names the file of `experiment` (as `paper/name`) below `folder`; nothing is opened.
    pub fn new(folder: &Path, experiment: &str, columns: &'static [&'static str]) -> Record {
        Record {
            path: folder.join(format!("{experiment}.csv")),
            columns,
        }
    }

    /// Reads the complete cells, oldest first; none if there is no file.
    ///
    /// # Errors
    ///
    /// If a line that has an end is not a row of this experiment.
    pub fn read(&self) -> Result<Vec<CellRecord>> {
        let mut cells = self.read_all()?;
        cells.retain(CellRecord::is_complete);
        Ok(cells)
    }

    /// Reads the last complete record of each cell on the machine that was used last, in the order in
    /// which the cells were first measured.
    ///
    /// # Errors
    ///
    /// As [`Record::read`].
    pub fn latest(&self) -> Result<Vec<CellRecord>> {
        let cells = self.read()?;
        let Some(machine) = cells.last().map(|cell| cell.machine.clone()) else {
            return Ok(Vec::new());
        };
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut latest: Vec<CellRecord> = Vec::new();
        for cell in cells.into_iter().filter(|cell| cell.machine == machine) {
            match places.get(&cell.cell) {
                Some(place) => latest[*place] = cell,
                None => {
                    places.insert(cell.cell.clone(), latest.len());
                    latest.push(cell);
                }
            }
        }
        Ok(latest)
    }

    fn read_all(&self) -> Result<Vec<CellRecord>> {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => bail!("read {}: {error}", self.path.display()),
        };
        let mut lines = whole_lines(&text).lines();
        let (schema, header) = (lines.next(), lines.next());
        ensure!(
            schema.is_none_or(|line| line == SCHEMA)
                && header.is_none_or(|line| line == self.header()),
            "{}: not a record with the columns {}",
            self.path.display(),
            self.header()
        );
        let mut cells: Vec<CellRecord> = Vec::new();
        for (index, line) in lines.enumerate() {
            let cell = self
                .parse(line)
                .with_context(|| format!("{}:{}: '{line}'", self.path.display(), index + 3))?;
            match cells.last_mut() {
                // A row that is there already begins the cell again: a date has whole seconds, and quick cells take
                // less.
                Some(last) if same_cell(last, &cell) && !last.has(&cell.rows[0]) => {
                    last.rows.extend(cell.rows)
                }
                _ => cells.push(cell),
            }
        }
        Ok(cells)
    }

    /// Appends one cell. A line that an earlier run left unfinished is cut off first.
    pub fn append(&self, cell: &CellRecord) -> Result<()> {
        let mut text = String::new();
        let old = fs::read_to_string(&self.path).unwrap_or_default();
        let mut whole = whole_lines(&old);
        if whole.lines().count() < 2 {
            whole = "";
            text.push_str(&format!("{SCHEMA}\n{}\n", self.header()));
        }
        for row in &cell.rows {
            text.push_str(&self.format(cell, row));
        }
        let folder = self.path.parent().expect("a file below a folder");
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(folder)?;
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?;
            if whole.len() < old.len() {
                file.set_len(whole.len() as u64)?;
            }
            file.write_all(text.as_bytes())
        };
        write().with_context(|| format!("write {}", self.path.display()))
    }

    fn header(&self) -> String {
        format!("{COMMON},{}", self.columns.join(","))
    }

    fn format(&self, cell: &CellRecord, row: &Row) -> String {
        assert_eq!(row.values.len(), self.columns.len(), "values for columns");
        let (run, runs) = (row.run.to_string(), row.runs.to_string());
        let fields = [
            &cell.date,
            &cell.commit,
            &cell.machine,
            &cell.cell,
            &cell.parameters,
            &row.task,
            &run,
            &runs,
            &row.contender,
        ];
        assert_eq!(fields.len(), COMMON_COUNT);
        let plain = |field: &&&String| !field.contains([',', '"', '\n', '\r']);
        assert!(fields.iter().all(|field| plain(&field)), "{fields:?}");
        let fields = fields.map(String::as_str).join(",");
        let values: String = row.values.iter().map(|value| format!(",{value}")).collect();
        format!("{fields}{values}\n")
    }

    fn parse(&self, line: &str) -> Result<CellRecord> {
        let fields: Vec<&str> = line.split(',').collect();
        let expected = COMMON_COUNT + self.columns.len();
        ensure!(
            fields.len() == expected,
            "{} fields, expected {expected}",
            fields.len()
        );
        let text = |index: usize| fields[index].to_string();
        let values: Result<Vec<f64>, _> = fields[COMMON_COUNT..]
            .iter()
            .map(|field| field.parse())
            .collect();
        let row = Row {
            task: text(5),
            run: fields[6].parse()?,
            runs: fields[7].parse()?,
            contender: text(8),
            values: values?,
        };
        Ok(CellRecord {
            date: text(0),
            commit: text(1),
            machine: text(2),
            cell: text(3),
            parameters: text(4),
            rows: vec![row],
        })
    }
}

/// The runs of a long cell that is not done, kept one by one so that a stop loses one of them only.
pub struct Unfinished {
    record: Record,
    /// The rows of all runs that are done, under the origin of this program.
    cell: CellRecord,
    keep: bool,
}

impl Unfinished {
    /// Takes the runs that an earlier program of this code and machine kept of a `cell`, unless they
    /// shall be measured `again`. Nothing is written unless rows are to be kept.
    ///
    /// # Errors
    ///
    /// If a line that was kept is not a row of this experiment.
    pub fn take(
        folder: &Path,
        experiment: &str,
        columns: &'static [&'static str],
        mut cell: CellRecord,
        again: bool,
        keep: bool,
    ) -> Result<Unfinished> {
        let record = Record::new(folder, &format!("{experiment}.unfinished"), columns);
        if !again {
            let mut kept = record.read_all()?;
            kept.retain(|old| {
                let dated = CellRecord {
                    date: cell.date.clone(),
                    rows: Vec::new(),
                    ..old.clone()
                };
                dated == cell
            });
            cell.rows = kept.into_iter().flat_map(|old| old.rows).collect();
        }
        Ok(Unfinished { record, cell, keep })
    }

    /// Returns the rows of the runs that are done.
    pub fn rows(&self) -> &[Row] {
        &self.cell.rows
    }

    /// Returns the run that comes next, counted from 0.
    pub fn next_run(&self) -> usize {
        self.rows().iter().map(|row| row.run).max().unwrap_or(0)
    }

    /// Measures the runs that are not done yet, keeps each, and ends the cell. `measure` is given the
    /// run, counted from 0.
    pub fn complete(
        mut self,
        runs: usize,
        mut measure: impl FnMut(usize) -> Result<Vec<Row>>,
    ) -> Result<Vec<Row>> {
        for run in self.next_run()..runs {
            let rows = measure(run)?;
            self.add(rows)?;
        }
        self.finish()
    }

    /// Keeps the rows of one more run.
    pub fn add(&mut self, rows: Vec<Row>) -> Result<()> {
        if self.keep {
            self.record.append(&CellRecord {
                rows: rows.clone(),
                ..self.cell.clone()
            })?;
        }
        self.cell.rows.extend(rows);
        Ok(())
    }

    /// Ends the cell: its kept rows go, since the record has them next.
    pub fn finish(self) -> Result<Vec<Row>> {
        match fs::remove_file(&self.record.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                bail!("remove {}: {error}", self.record.path.display())
            }
            _ => Ok(self.cell.rows),
        }
    }
}

fn same_cell(one: &CellRecord, other: &CellRecord) -> bool {
    let key = |cell: &CellRecord| {
        [
            cell.date.clone(),
            cell.commit.clone(),
            cell.machine.clone(),
            cell.cell.clone(),
            cell.parameters.clone(),
        ]
    };
    key(one) == key(other)
}

fn whole_lines(text: &str) -> &str {
    &text[..text.rfind('\n').map_or(0, |end| end + 1)]
}

/// Adds the origin's machine to `machines.csv` in `folder` unless it stands there.
pub fn note_machine(folder: &Path, origin: &Origin) -> Result<()> {
    const HEADER: &str = "machine,description\n";
    let path = folder.join("machines.csv");
    let mut text = fs::read_to_string(&path).unwrap_or_else(|_| HEADER.to_string());
    let line = format!("{},{}\n", origin.machine, origin.machine_description);
    if text.contains(&line) {
        return Ok(());
    }
    text.push_str(&line);
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(&path, text))
        .with_context(|| format!("write {}", path.display()))
}

/// Returns the description of a machine, or its number where `machines.csv` has none.
pub fn machine_description(folder: &Path, machine: &str) -> String {
    let text = fs::read_to_string(folder.join("machines.csv")).unwrap_or_default();
    let found = text.lines().find_map(|line| {
        let (id, description) = line.split_once(',')?;
        (id == machine).then(|| description.to_string())
    });
    found.unwrap_or_else(|| machine.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: &[&str] = &["raw_bytes", "wall_seconds"];

    fn cell(date: &str, runs: usize) -> CellRecord {
        let row = |run: usize, contender: &str| Row {
            task: "compress".to_string(),
            run,
            runs,
            contender: contender.to_string(),
            values: vec![8192.0, 1.25e-7 * run as f64],
        };
        CellRecord {
            date: date.to_string(),
            commit: "abc".to_string(),
            machine: "00000001".to_string(),
            cell: "lz4:1 8 KiB".to_string(),
            parameters: "seed=1 runs=2".to_string(),
            rows: (1..=runs)
                .flat_map(|run| [row(run, "a"), row(run, "b")])
                .collect(),
        }
    }

    #[test]
    fn cells_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path(), "paper/name", COLUMNS);
        assert_eq!(record.read().unwrap(), []);
        let (one, two) = (cell("2026-01-01", 2), cell("2026-01-02", 3));
        record.append(&one).unwrap();
        record.append(&two).unwrap();
        let found = record.read().unwrap();
        assert_eq!(found, [one, two]);
        assert_eq!(found[0].column("compress", "b", 1), [1.25e-7, 2.5e-7]);
        let other = Record::new(folder.path(), "paper/name", &["raw_bytes"]);
        assert!(other.read().is_err());
    }

    #[test]
    fn the_latest_record_of_each_cell_counts() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path(), "paper/name", COLUMNS);
        assert_eq!(record.latest().unwrap(), []);
        let of = |name: &str, machine: &str, date: &str| CellRecord {
            cell: name.to_string(),
            machine: machine.to_string(),
            ..cell(date, 2)
        };
        let cells = [
            of("a", "1", "1"),
            of("a", "2", "2"),
            of("b", "2", "3"),
            of("a", "2", "4"),
        ];
        cells.iter().for_each(|cell| record.append(cell).unwrap());
        let found = record.latest().unwrap();
        assert_eq!(found, [cells[3].clone(), cells[2].clone()]);
    }

    #[test]
    fn a_cell_cut_off_anywhere_is_not_used_and_not_in_the_way() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path(), "paper/name", COLUMNS);
        let one = cell("2026-01-01", 2);
        record.append(&one).unwrap();
        let first = fs::read(&record.path).unwrap();
        let two = cell("2026-01-02", 2);
        record.append(&two).unwrap();
        let whole = fs::read(&record.path).unwrap();
        for length in 0..whole.len() {
            let record = Record::new(folder.path(), &format!("paper/{length}"), COLUMNS);
            fs::write(&record.path, &whole[..length]).unwrap();
            let found = record.read().unwrap();
            assert_eq!(found.len(), usize::from(length >= first.len()), "{length}");
            let three = cell("2026-01-03", 2);
            record.append(&three).unwrap();
            assert!(record.read().unwrap().contains(&three), "{length}");
        }
    }

    #[test]
    fn a_cell_measured_twice_in_a_second_is_two() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path(), "paper/name", COLUMNS);
        let one = cell("2026-01-01", 2);
        record.append(&one).unwrap();
        record.append(&one).unwrap();
        assert_eq!(record.read().unwrap(), [one.clone(), one]);
    }

    #[test]
    fn a_long_cell_goes_on_with_the_run_after_the_last() {
        let folder = tempfile::tempdir().unwrap();
        let take = |date: &str, parameters: &str, again: bool| {
            let mut new = cell(date, 0);
            new.parameters = parameters.to_string();
            Unfinished::take(folder.path(), "paper/name", COLUMNS, new, again, true).unwrap()
        };
        let rows = cell("", 3).rows;
        let mut first = take("2026-01-01", "seed=1", false);
        first.add(rows[..2].to_vec()).unwrap();
        let mut second = take("2026-01-02", "seed=1", false);
        assert_eq!(second.rows(), &rows[..2]);
        second.add(rows[2..4].to_vec()).unwrap();
        assert_eq!(take("2026-01-03", "seed=1", true).rows(), []);
        assert_eq!(take("2026-01-03", "seed=2", false).rows(), []);
        let third = take("2026-01-03", "seed=1", false);
        let all = third.complete(3, |run| Ok(rows[2 * run..][..2].to_vec()));
        assert_eq!(all.unwrap(), rows);
        assert_eq!(take("2026-01-04", "seed=1", false).rows(), []);
    }

    #[test]
    fn foreign_lines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path(), "name", COLUMNS);
        record.append(&cell("2026-01-01", 1)).unwrap();
        let good = fs::read_to_string(&record.path).unwrap();
        for bad in ["a,b\n", "\n", "d,c,m,n,p,t,1,1,a,8192,fast\n"] {
            fs::write(&record.path, format!("{good}{bad}")).unwrap();
            let message = format!("{:#}", record.read().unwrap_err());
            assert!(message.contains("name.csv:5"), "{message}");
        }
    }

    #[test]
    fn machines_are_described_once() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Origin {
            commit: "abc".to_string(),
            machine: "00000001".to_string(),
            machine_description: "fast; 2 threads".to_string(),
            date: "2026-01-01".to_string(),
        };
        note_machine(folder.path(), &origin).unwrap();
        note_machine(folder.path(), &origin).unwrap();
        let text = fs::read_to_string(folder.path().join("machines.csv")).unwrap();
        assert_eq!(text.lines().count(), 2);
        assert_eq!(
            machine_description(folder.path(), "00000001"),
            "fast; 2 threads"
        );
        assert_eq!(machine_description(folder.path(), "00000002"), "00000002");
    }
}
