//! The cache against other people's at equal resident memory: RocksDB's block cache with its compressed
//! secondary cache.
//!
//! Each cache is a process of its own on the same trace and pages. Its addition to resident memory is measured once.
//! Its capacity is then set so that it adds as much as ours may. RocksDB is Debian's, in a small program that is
//! compiled where g++ and the headers are. All its splits of a sweep are tried, and for each cost of a miss the best of
//! them races.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use breakeven::cache::ShardOptions;
use breakeven::meter::PowerModel;
use breakeven::replay::{Pattern, Workload};
use breakeven::units::Seconds;

use super::corpus::{self, Set};
use super::pictures::{ADAPTIVE_COLOUR, SPLIT_COLOUR};
use super::policies::{self, ADAPTIVE, RAW};
use super::rival_worker::Counted;
use super::{Claim, energy, energy_of, findings_table, power, shown};
use crate::chart::{self, GREY, Look, Panel, Quantity, Series, Words};
use crate::data::{Random, SEED};
use crate::experiment::{Experiment, Picture};
use crate::interleave::order;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::Shown;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018-cache/rivals",
    claim: "If data shrink to a third and misses take 73 us or 1 ms, the cache serves at least 1.5 times the accesses \
        of RocksDB's block cache with its compressed secondary cache, at equal memory. It never serves fewer.",
    source: "this project's own target; RocksDB is Debian's librocksdb 7.8",
    figure: "accesses per second over those of RocksDB's best split",
    target: FASTER,
    parameters: &[
        (
            "trace",
            "120,000 accesses from an empty cache on, then 120,000 that count, by Zipf 0.9 and evenly, over four and two times as many pages of 8 KiB as 32 MiB hold",
        ),
        (
            "accesses per second",
            "of one thread: processor time of the process, and for each miss the row's price; misses are not made, pages are copied",
        ),
        (
            "memory",
            "growth of resident memory; a rival's capacity is scaled once so that it grows by the budget",
        ),
        (
            "RocksDB",
            "LRUCache with CompressedSecondaryCache (LZ4), 0, 50, 80 and 95 % of its capacity compressed, with the shards of its own choice and with one. The best counts for each cost of a miss",
        ),
        (
            "runs",
            "10 (quick: 2), all alternating, each with accesses of its own",
        ),
    ],
    analysis: "Ours is the shard, which takes no lock. RocksDB's cache takes one for each access, some 20 ns of \
        microseconds. RocksDB admits a page to its secondary cache at its second eviction and promotes it at its \
        second hit. Ours was given the cost of a miss, as it would find out by itself. RocksDB's cache knows nothing \
        of misses. Rows of 2 and 25 us, and of data that do not shrink, show that nothing is lost where compressing \
        does not pay. No cache here has threads of its own: the caller that needs room compresses, and its time is in \
        the figure. Joules are processor time times watts, by the model that the record names.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: draw,
};

const FASTER: Target = Target::at_least(1.5);
const NOT_SLOWER: Target = Target::at_least(1.0);
const COLUMNS: &[&str] = &[
    "rate",
    "misses",
    "cpu_us",
    "growth",
    "compressed_share",
    "shard_bits",
    "ratio",
    "active_uj",
];
const RATE: usize = 0;
const MISSES: usize = 1;
const CPU: usize = 2;
const GROWTH: usize = 3;
const SHARE: usize = 4;
const SHARD_BITS: usize = 5;
const RATIO: usize = 6;
const JOULES: usize = 7;
const ROCKSDB: &str = "rocksdb";
/// Ours with a fixed split like RocksDB's densest: 95 % by LZ4, of blocks asked for again.
const FIXED: &str = "fixed";
const MISS_US: [f64; 4] = [2.0, 25.0, 73.0, 1000.0];
const PAGE_BYTES: usize = 8 << 10;

/// One cell.
#[derive(Clone, Copy)]
struct Case {
    set: Set,
    is_even: bool,
}

const fn case(set: Set, is_even: bool) -> Case {
    Case { set, is_even }
}

const CASES: [Case; 5] = [
    case(Set::Records, false),
    case(Set::Database, false),
    case(Set::Prose, false),
    case(Set::Media, false),
    case(Set::Database, true),
];

/// How much is done.
#[derive(Clone, Copy)]
struct Length {
    memory_bytes: u64,
    accesses: usize,
    runs: usize,
    /// RocksDB's compressed shares of a sweep.
    shares: &'static [f64],
}

/// How RocksDB is set.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    share: f64,
    shard_bits: i32,
}

/// A contender of a run, and the costs of a miss for which it counts.
enum Racer {
    /// Ours, with a given cost of a miss.
    Adaptive(f64),
    /// Ours, for which misses are all the same.
    Blind(&'static str),
    RocksDb(Setting, f64, Vec<f64>),
}

impl Racer {
    fn name(&self) -> &'static str {
        match self {
            Racer::Adaptive(_) => ADAPTIVE,
            Racer::Blind(name) => name,
            Racer::RocksDb(..) => ROCKSDB,
        }
    }

    fn misses(&self) -> Vec<f64> {
        match self {
            Racer::Adaptive(miss_us) => vec![*miss_us],
            Racer::Blind(_) => MISS_US.into(),
            Racer::RocksDb(_, _, misses) => misses.clone(),
        }
    }

    fn setting(&self) -> Setting {
        match self {
            Racer::RocksDb(setting, ..) => *setting,
            _ => Setting {
                share: 0.0,
                shard_bits: 0,
            },
        }
    }
}

impl Case {
    fn name(&self) -> String {
        format!(
            "{} {}",
            self.set.name(),
            if self.is_even {
                "even 1/2"
            } else {
                "zipf 0.9 1/4"
            }
        )
    }

    fn keys(&self, memory_bytes: u64, count: usize, run: usize) -> Vec<u64> {
        let held = memory_bytes / PAGE_BYTES as u64;
        let (pattern, blocks) = match self.is_even {
            true => (Pattern::Even, 2 * held),
            false => (Pattern::Zipf(0.9), 4 * held),
        };
        Workload::new(pattern, blocks, SEED + run as u64)
            .take(count)
            .collect()
    }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (cases, length) = match laboratory.quick {
        true => (
            &CASES[..1],
            Length {
                memory_bytes: 2 << 20,
                accesses: 3000,
                runs: 2,
                shares: &[0.8],
            },
        ),
        false => (
            &CASES[..],
            Length {
                memory_bytes: 32 << 20,
                accesses: 240_000,
                runs: 10,
                shares: &[0.0, 0.5, 0.8, 0.95],
            },
        ),
    };
    let rocksdb = OnceCell::new();
    let power = &power()?;
    let cells = cases.iter().map(|case| Cell {
        name: case.name(),
        parameters: format!(
            "{} memory_bytes={} accesses={} runs={} {}",
            corpus::label(laboratory),
            length.memory_bytes,
            length.accesses,
            length.runs,
            energy(power)
        ),
        measure: Box::new(|| {
            let folder = tempfile::tempdir()?;
            let rocksdb: &Option<RocksDb> = rocksdb.get_or_init(RocksDb::compile);
            Field::new(laboratory, case, length, folder.path(), power)?.race(rocksdb.as_ref())
        }),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

/// RocksDB's program.
struct RocksDb {
    program: PathBuf,
    // Removed with everything in it when this is dropped.
    _folder: tempfile::TempDir,
}

impl RocksDb {
    /// Compiles it, or says why it is not there.
    fn compile() -> Option<RocksDb> {
        let compile = || -> Result<RocksDb> {
            let folder = tempfile::tempdir()?;
            let source = folder.path().join("rocksdb_cache.cpp");
            fs::write(&source, include_str!("rocksdb_cache.cpp"))?;
            let program = folder.path().join("rocksdb_cache");
            let mut compiler = Command::new("g++");
            compiler
                .args(["-std=c++17", "-O3", "-o"])
                .arg(&program)
                .arg(&source);
            let output = compiler.arg("-lrocksdb").output().context("start g++")?;
            ensure!(
                output.status.success(),
                "g++: {}",
                String::from_utf8_lossy(&output.stderr)
                    .lines()
                    .next()
                    .unwrap_or_default()
            );
            Ok(RocksDb {
                program,
                _folder: folder,
            })
        };
        match compile() {
            Ok(rocksdb) => Some(rocksdb),
            Err(error) => {
                eprintln!(
                    "{}: RocksDB is not raced (Debian's librocksdb-dev and g++): {error:#}",
                    EXPERIMENT.key
                );
                None
            }
        }
    }
}

/// The files of a cell, and its contenders.
struct Field<'a> {
    case: &'a Case,
    length: Length,
    folder: &'a Path,
    page_count: u64,
    ratio: f64,
    power: &'a PowerModel,
}

impl<'a> Field<'a> {
    fn new(
        laboratory: &Laboratory,
        case: &'a Case,
        length: Length,
        folder: &'a Path,
        power: &'a PowerModel,
    ) -> Result<Field<'a>> {
        let contents = case.set.contents(laboratory, PAGE_BYTES)?;
        let bytes = case.set.load(laboratory)?;
        fs::write(folder.join("pages"), bytes)?;
        let made = policies::made(&contents, &ShardOptions::default().methods)?;
        let packed = made
            .iter()
            .map(|made| made.packed_bytes)
            .fold(f64::INFINITY, f64::min);
        Ok(Field {
            case,
            length,
            folder,
            page_count: contents.page_count(),
            ratio: PAGE_BYTES as f64 / packed,
            power,
        })
    }

    /// Writes the trace of a run: each key with its page, which has nothing to do with how hot it is.
    fn draw(&self, run: usize) -> Result<()> {
        let mut bytes = Vec::with_capacity(16 * self.length.accesses);
        for key in self
            .case
            .keys(self.length.memory_bytes, self.length.accesses, run)
        {
            let page = Random::new(key).below(self.page_count);
            bytes.extend(key.to_le_bytes());
            bytes.extend(page.to_le_bytes());
        }
        Ok(fs::write(self.folder.join("trace"), bytes)?)
    }

    /// Runs a child with the arguments that all of them get.
    fn run(&self, program: &Path, before: &[&str], after: &[String]) -> Result<Counted> {
        let mut child = Command::new(program);
        child
            .args(before)
            .arg(self.folder.join("pages"))
            .arg(PAGE_BYTES.to_string());
        child
            .arg(self.folder.join("trace"))
            .arg((self.length.accesses / 2).to_string());
        let output = child
            .args(after)
            .output()
            .with_context(|| format!("start {}", program.display()))?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {error}", program.display());
        Counted::parse(&String::from_utf8(output.stdout)?)
    }

    fn ours(&self, name: &str, miss_us: f64) -> Result<Counted> {
        let program = std::env::current_exe()?;
        let after = [self.length.memory_bytes.to_string(), miss_us.to_string()];
        self.run(&program, &["rival", "trace", name], &after)
    }

    fn rocksdb(&self, rocksdb: &RocksDb, setting: Setting, scale: f64) -> Result<Counted> {
        let capacity = self.length.memory_bytes as f64 * scale;
        let compressed = capacity * setting.share;
        let after = [capacity - compressed, compressed].map(|bytes| (bytes as u64).to_string());
        let after = [&after[..], &[setting.shard_bits.to_string()]].concat();
        self.run(&rocksdb.program, &[], &after)
    }

    fn race(&self, rocksdb: Option<&RocksDb>) -> Result<Vec<Row>> {
        self.draw(0)?;
        let settings = rocksdb.map_or(Ok(Vec::new()), |rocksdb| self.sweep(rocksdb))?;
        let mut racers = vec![Racer::Blind(RAW), Racer::Blind(FIXED)];
        racers.extend(MISS_US.map(Racer::Adaptive));
        racers.extend(settings);
        let mut rows = Vec::new();
        for run in 0..self.length.runs {
            self.draw(run)?;
            for index in order(run, racers.len()) {
                let racer = &racers[index];
                let counted = self.go(racer, rocksdb)?;
                for miss_us in racer.misses() {
                    rows.push(Row {
                        task: task(miss_us),
                        run: run + 1,
                        runs: self.length.runs,
                        contender: racer.name().to_string(),
                        values: self.values(&counted, miss_us, racer.setting()),
                    });
                }
            }
        }
        Ok(rows)
    }

    fn go(&self, racer: &Racer, rocksdb: Option<&RocksDb>) -> Result<Counted> {
        match racer {
            Racer::Adaptive(miss_us) => self.ours(ADAPTIVE, *miss_us),
            Racer::Blind(name) => self.ours(name, 0.0),
            Racer::RocksDb(setting, scale, _) => {
                let rocksdb = rocksdb.context("it was swept")?;
                self.rocksdb(rocksdb, *setting, *scale)
            }
        }
    }

    /// Tries RocksDB's settings, each with the capacity that grows by the budget, and returns those that
    /// are best for some cost of a miss.
    fn sweep(&self, rocksdb: &RocksDb) -> Result<Vec<Racer>> {
        let mut tried = Vec::new();
        for &share in self.length.shares {
            for shard_bits in [-1, 0] {
                let setting = Setting { share, shard_bits };
                let plain = self.rocksdb(rocksdb, setting, 1.0)?;
                let growth = plain.growth_bytes().max(1) as f64;
                let scale = (self.length.memory_bytes as f64 / growth).clamp(0.5, 1.5);
                tried.push((setting, scale, self.rocksdb(rocksdb, setting, scale)?));
            }
        }
        let mut best: Vec<Racer> = Vec::new();
        for miss_us in MISS_US {
            let rate = |tried: &(Setting, f64, Counted)| tried.2.rate(miss_us);
            let found = tried
                .iter()
                .max_by(|one, other| rate(one).total_cmp(&rate(other)));
            let (setting, scale, _) = found.expect("settings were tried");
            let known = best.iter_mut().find_map(|racer| match racer {
                Racer::RocksDb(known, _, misses) if known == setting => Some(misses),
                _ => None,
            });
            match known {
                Some(misses) => misses.push(miss_us),
                None => best.push(Racer::RocksDb(*setting, *scale, vec![miss_us])),
            }
        }
        Ok(best)
    }

    fn values(&self, counted: &Counted, miss_us: f64, setting: Setting) -> Vec<f64> {
        let core_seconds = counted.cpu_seconds / counted.accesses as f64;
        vec![
            counted.rate(miss_us),
            counted.misses as f64 / counted.accesses as f64,
            1e6 * core_seconds,
            counted.growth_bytes() as f64 / self.length.memory_bytes as f64,
            setting.share,
            f64::from(setting.shard_bits),
            self.ratio,
            1e6 * self.power.core_energy(Seconds(core_seconds)).0,
        ]
    }
}

fn task(miss_us: f64) -> String {
    format!("{miss_us} us")
}

fn middle(cell: &CellRecord, task: &str, contender: &str, column: usize) -> f64 {
    super::middle(&cell.column(task, contender, column))
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        for miss_us in MISS_US {
            findings.push(finding(cell, miss_us));
        }
    }
    findings
}

fn finding(cell: &CellRecord, miss_us: f64) -> Finding {
    let task = &task(miss_us);
    let of = |contender| cell.column(task, contender, RATE);
    let ratios: Vec<f64> = of(ADAPTIVE)
        .iter()
        .zip(of(ROCKSDB))
        .map(|(ours, its)| ours / its)
        .collect();
    let ratio = middle(cell, task, ADAPTIVE, RATIO);
    let target = match ratio >= 3.0 && miss_us >= 73.0 {
        true => FASTER,
        false => NOT_SLOWER,
    };
    let note = match ratios.is_empty() {
        true => "RocksDB is not on this machine".to_string(),
        false => format!(
            "ratio {ratio:.2}; misses {:.1} % against {:.1} %, RocksDB with {:.0} % compressed; raw-only {:.2} of RocksDB, fixed {:.2}",
            100.0 * middle(cell, task, ADAPTIVE, MISSES),
            100.0 * middle(cell, task, ROCKSDB, MISSES),
            100.0 * middle(cell, task, ROCKSDB, SHARE),
            middle(cell, task, RAW, RATE) / middle(cell, task, ROCKSDB, RATE),
            middle(cell, task, FIXED, RATE) / middle(cell, task, ROCKSDB, RATE),
        ),
    };
    let claim = Claim {
        question: format!("{} {task}", cell.cell),
        core: true,
        target,
        note: &note,
    };
    let found = match ratios.is_empty() {
        // Nothing holds of no number, and nothing differs.
        true => Interval::exact(f64::NAN),
        false => Interval::of_pairs(&ratios),
    };
    claim.judge(found, corpus::doubt(cell))
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut text = findings_table(records, &cells, findings(&cells));
    let Some(first) = cells.first() else {
        return Ok(text);
    };
    text.push_str(&format!(
        "\nMedians of the runs; of an access, processor time of the process and joules ({}); `growth` is of resident memory, over the budget.\n\n\
         | cell | a miss | cache | thousand accesses/s | misses | core us | uJ | growth | compressed | shards |\n\
         |---|---:|---|---:|---:|---:|---:|---:|---:|---|\n",
        energy_of(first)
    ));
    for cell in &cells {
        for miss_us in MISS_US {
            for contender in [ADAPTIVE, FIXED, RAW, ROCKSDB] {
                text.push_str(&line(cell, &task(miss_us), contender));
            }
        }
    }
    Ok(text)
}

fn line(cell: &CellRecord, task: &str, contender: &str) -> String {
    let of = |column| middle(cell, task, contender, column);
    if of(RATE).is_nan() {
        return String::new();
    }
    let (share, shards) = match contender {
        ROCKSDB if of(SHARD_BITS) < 0.0 => (format!("{:.0} %", 100.0 * of(SHARE)), "its own"),
        ROCKSDB => (format!("{:.0} %", 100.0 * of(SHARE)), "one"),
        _ => (String::new(), ""),
    };
    format!(
        "| {} | {task} | {contender} | {:.1} | {:.1} % | {:.2} | {} | {:.3} | {share} | {shards} |\n",
        cell.cell,
        of(RATE) / 1e3,
        100.0 * of(MISSES),
        of(CPU),
        shown(of(JOULES), 1),
        of(GROWTH),
    )
}

/// Draws accesses per second over the cost of a miss.
fn draw(records: &Path) -> Result<Vec<Picture>> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    if cells.is_empty() {
        return Ok(Vec::new());
    }
    let panels: Vec<Panel> = cells.iter().map(panel).collect();
    let words = Words {
        id: "rivals",
        title: "Accesses per second by the cost of a miss",
        description: "A panel for each cell with falling lines for the adaptive cache, the same without compression and with a fixed split, and RocksDB's best split.",
    };
    Ok(vec![Picture {
        name: "rates".to_string(),
        caption: "Accesses per second of one thread over the cost of a miss, at equal resident memory: the adaptive \
            cache, the same without compression and with a fixed split, and RocksDB's block cache with the best split \
            for that miss."
            .to_string(),
        svg: chart::panels(&words, &panels, 2, 460.0),
    }])
}

fn panel(cell: &CellRecord) -> Panel {
    let line = |contender: &str, colour: &str, look| {
        let point = |miss_us: f64| (miss_us, middle(cell, &task(miss_us), contender, RATE));
        let points = MISS_US
            .map(point)
            .into_iter()
            .filter(|point| point.1.is_finite());
        Series {
            name: contender.to_string(),
            colour: colour.to_string(),
            look,
            points: points.collect(),
            has_dots: true,
        }
    };
    let series = vec![
        line(RAW, GREY, Look::Dashed),
        line(FIXED, ADAPTIVE_COLOUR, Look::Dashed),
        line(ROCKSDB, SPLIT_COLOUR, Look::Solid),
        line(ADAPTIVE, ADAPTIVE_COLOUR, Look::Solid),
    ];
    let rates = series
        .iter()
        .flat_map(|series| &series.points)
        .map(|point| point.1);
    let (low, high) = rates.fold((f64::INFINITY, 0.0_f64), |(low, high), rate| {
        (low.min(rate), high.max(rate))
    });
    Panel {
        title: cell.cell.clone(),
        x: Quantity::log(
            "microseconds of a miss",
            MISS_US[0],
            MISS_US[MISS_US.len() - 1],
        ),
        y: Quantity::log("accesses per second", 0.8 * low, 1.25 * high),
        series,
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    fn cell(ratio: f64, rocksdb: Option<f64>) -> CellRecord {
        let mut rows = Vec::new();
        for run in 1..=10 {
            for miss_us in MISS_US {
                let mut row = |contender: &str, rate: f64| {
                    let mut values = vec![0.5; COLUMNS.len()];
                    (values[RATE], values[RATIO]) = (rate * (1.0 + 0.01 * run as f64), ratio);
                    rows.push(Row {
                        task: task(miss_us),
                        run,
                        runs: 10,
                        contender: contender.to_string(),
                        values,
                    });
                };
                row(ADAPTIVE, 100.0);
                row(RAW, 60.0);
                row(FIXED, 90.0);
                rocksdb.into_iter().for_each(|rate| row(ROCKSDB, rate));
            }
        }
        CellRecord::made_up("a cell", "data=real", rows)
    }

    #[test]
    fn a_missing_rival_is_not_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::new(folder.path(), EXPERIMENT.key, COLUMNS);
        record.append(&cell(4.0, None)).unwrap();
        let svg = &draw(folder.path()).unwrap()[0].svg;
        assert_eq!(svg.matches("<circle").count(), 3 * MISS_US.len());
        assert!(!svg.contains(">rocksdb<") && !svg.contains("NaN"), "{svg}");
    }

    #[test]
    fn targets_follow_ratio_and_miss() {
        let verdicts = |cell: CellRecord| {
            let found = findings(&[cell]);
            found.iter().map(|it| it.verdict).collect::<Vec<_>>()
        };
        use Verdict::{CannotTell, Differs, Holds};
        assert_eq!(
            verdicts(cell(4.0, Some(80.0))),
            [Holds, Holds, Differs, Differs]
        );
        assert_eq!(verdicts(cell(2.0, Some(80.0))), [Holds; 4]);
        assert_eq!(verdicts(cell(4.0, Some(60.0))), [Holds; 4]);
        assert_eq!(verdicts(cell(4.0, None)), [CannotTell; 4]);
        assert!(line(&cell(4.0, None), &task(2.0), ROCKSDB).is_empty());
    }
}
