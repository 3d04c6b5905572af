//! The cache before a real file: misses are reads past the page cache, by one thread and by two.
//!
//! The file lies in a folder beside the records and goes with it. Every cache is new, works for a while
//! unmeasured, then by the clock, and last beside a bystander whose loss is measured.

use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use breakeven::Error;
use breakeven::cache::{Cache, CacheOptions, Policy};
use breakeven::meter::{Meter, PowerModel, Scope};
use breakeven::replay::{PageFiles, Pattern, Workload};
use breakeven::storage::{AlignedBuffer, OpenOptions, RealStorage, Storage};

use super::corpus::{self, Set};
use super::policies::{self, ADAPTIVE, RAW};
use super::{Claim, at_most, bystander, energy, findings_table, power};
use crate::data::SEED;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave::order;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::Shown;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018-cache/disk",
    claim: "Before a disk, with data four times the memory, an access costs at most 0.60 of raw-only's if data shrink to a third, and 0.40 if to a quarter.",
    source: "this project's own target, for misses of 73 us",
    figure: "elapsed time of an access over that of raw-only",
    target: at_most(0.6),
    parameters: &[
        (
            "file",
            "64 MiB of pages of 8 KiB of a kind of real data (--data), read by direct I/O beside the records; 16 MiB of memory",
        ),
        (
            "accesses",
            "Zipf 0.9: 60,000 unmeasured from an empty cache on, 100,000 by the clock, 20,000 beside a bystander",
        ),
        (
            "bystander",
            "a thread that looks up numbers in a table of 1 MiB; its loss is measured against itself alone",
        ),
        (
            "runs",
            "10 (quick: 3), each with new caches and accesses of its own",
        ),
    ],
    analysis: "The target goes by the ratio of the pages. Data that shrink to less than a third may cost at most 1 % \
        more than raw-only. The disk of a virtual machine may be its host's memory. The cache has no threads of its \
        own: the caller that needs room compresses. So others lose caches, and a core where there are more threads \
        than cores. Waiting for the disk leaves a core to others, compressing does not. Joules are processor time \
        times watts, by the model that the record names.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &[
    "access_us",
    "cpu_us",
    "active_uj",
    "raw_hits",
    "packed_hits",
    "misses",
    "miss_us",
    "lost_share",
    "lost_us",
    "memory_used",
    "ratio",
    "is_direct",
];
const ACCESS: usize = 0;
const CPU: usize = 1;
const JOULES: usize = 2;
const RAW_HITS: usize = 3;
const PACKED_HITS: usize = 4;
const MISSES: usize = 5;
const MISS_US: usize = 6;
const LOST_SHARE: usize = 7;
const LOST_US: usize = 8;
const MEMORY: usize = 9;
const RATIO: usize = 10;
const IS_DIRECT: usize = 11;

const PAGE_BYTES: usize = 8 << 10;
const RACERS: [&str; 2] = [RAW, ADAPTIVE];
const CACHED: &str = "reads through the page cache";

/// One cell.
#[derive(Clone, Copy, Debug)]
struct Case {
    set: Set,
    threads: usize,
}

const CASES: [Case; 5] = [
    case(Set::Records, 1),
    case(Set::Records, 2),
    case(Set::Database, 1),
    case(Set::Database, 2),
    case(Set::Media, 1),
];

const fn case(set: Set, threads: usize) -> Case {
    Case { set, threads }
}

/// How much is done.
#[derive(Clone, Copy)]
struct Length {
    memory_bytes: u64,
    warm: usize,
    measured: usize,
    beside: usize,
    /// How long the bystander works alone.
    alone: Duration,
    runs: usize,
}

impl Case {
    fn name(&self) -> String {
        let threads = if self.threads == 1 {
            "one thread"
        } else {
            "two threads"
        };
        format!("{} {threads}", self.set.name())
    }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let (cases, length) = match laboratory.quick {
        true => (
            &CASES[..2],
            Length {
                memory_bytes: 1 << 20,
                warm: 400,
                measured: 600,
                beside: 200,
                alone: Duration::from_millis(10),
                runs: 3,
            },
        ),
        false => (
            &CASES[..],
            Length {
                memory_bytes: 16 << 20,
                warm: 60_000,
                measured: 100_000,
                beside: 20_000,
                alone: Duration::from_millis(200),
                runs: 10,
            },
        ),
    };
    let power = &power()?;
    let cells = cases.iter().map(|case| Cell {
        name: case.name(),
        parameters: format!(
            "{} memory_bytes={} accesses={}+{}+{} runs={} {}",
            corpus::label(laboratory),
            length.memory_bytes,
            length.warm,
            length.measured,
            length.beside,
            length.runs,
            energy(power)
        ),
        measure: Box::new(move || rows(laboratory, *case, length, power)),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())
}

/// A file of pages, and the first bytes read of each key.
struct Disk {
    pages: PageFiles,
    is_direct: bool,
    /// The number of the page of each key and one, 0 before it was read.
    numbers: Vec<AtomicU64>,
    ratio: f64,
    // Removed with everything in it when this is dropped.
    _folder: tempfile::TempDir,
}

impl Disk {
    /// Writes `count` pages in a folder of their own below `parent`, each beginning with its number.
    fn create(laboratory: &Laboratory, set: Set, count: usize) -> Result<Disk> {
        const NAME: &str = "pages";
        let contents = set.contents(laboratory, PAGE_BYTES)?;
        let folder = laboratory.scratch()?;
        let storage = RealStorage::open_folder(folder.path())?;
        let file = storage.open(NAME, OpenOptions::create_new())?;
        for number in 0..count as u64 {
            let mut page = contents.page(number).to_vec();
            page[..8].copy_from_slice(&(number + 1).to_le_bytes());
            file.write_at(&[IoSlice::new(&page)], number * PAGE_BYTES as u64)?;
        }
        file.sync()?;
        let direct = PageFiles::open(&[folder.path().join(NAME)], PAGE_BYTES);
        let (pages, is_direct) = match direct {
            Ok(pages) => (pages, true),
            Err(Error::Unsupported { .. }) => (PageFiles::new(vec![file], PAGE_BYTES)?, false),
            Err(error) => return Err(error.into()),
        };
        let methods = CacheOptions::default().methods;
        let made = policies::made(&contents, &methods)?;
        let packed = made
            .iter()
            .map(|made| made.packed_bytes)
            .fold(f64::INFINITY, f64::min);
        Ok(Disk {
            pages,
            is_direct,
            numbers: (0..count).map(|_| AtomicU64::new(0)).collect(),
            ratio: PAGE_BYTES as f64 / packed,
            _folder: folder,
        })
    }

    /// Checks that a key's page is the one that was read of it first.
    fn check(&self, key: u64, page: &[u8]) -> Result<()> {
        let found = u64::from_le_bytes(page[..8].try_into()?);
        let known = &self.numbers[usize::try_from(key)?];
        let before = known.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed);
        let expected = before.map_or_else(|expected| expected, |_| found);
        ensure!(
            found == expected && found > 0,
            "key {key}: page {found}, expected {expected}"
        );
        Ok(())
    }

    /// Asks for all keys of each thread at once.
    fn drive(&self, cache: &Cache<u64>, keys: &[Vec<u64>]) -> Result<()> {
        let one = |keys: &Vec<u64>| -> Result<()> {
            let mut buffer = AlignedBuffer::zeroed(PAGE_BYTES);
            for key in keys {
                let page = cache.get_or_load(*key, PAGE_BYTES, |frame| {
                    self.pages.read(*key, &mut buffer)?;
                    frame.copy_from_slice(&buffer);
                    Ok(())
                })?;
                self.check(*key, &page)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = keys.iter().map(|keys| scope.spawn(|| one(keys))).collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .map_err(|_| anyhow::anyhow!("a thread panicked"))?
            })
        })
    }
}

fn rows(
    laboratory: &Laboratory,
    case: Case,
    length: Length,
    power: &PowerModel,
) -> Result<Vec<Row>> {
    let pages = 4 * length.memory_bytes as usize / PAGE_BYTES;
    let disk = Disk::create(laboratory, case.set, pages)?;
    let mut rows = Vec::new();
    for run in 0..length.runs {
        let mut sources: Vec<Workload> = (0..case.threads)
            .map(|thread| {
                Workload::new(
                    Pattern::Zipf(0.9),
                    pages as u64,
                    SEED + (run * 8 + thread) as u64,
                )
            })
            .collect();
        let mut draw = |count: usize| -> Vec<Vec<u64>> {
            let each = count / case.threads;
            sources
                .iter_mut()
                .map(|source| source.by_ref().take(each).collect())
                .collect()
        };
        let keys = [
            draw(length.warm),
            draw(length.measured),
            draw(length.beside),
        ];
        for index in order(run, RACERS.len()) {
            let policy = match RACERS[index] {
                RAW => Policy::RawOnly,
                _ => Policy::Adaptive,
            };
            rows.push(Row {
                task: "access".to_string(),
                run: run + 1,
                runs: length.runs,
                contender: RACERS[index].to_string(),
                values: values(&disk, &keys, policy, length, power)?,
            });
        }
    }
    Ok(rows)
}

fn values(
    disk: &Disk,
    keys: &[Vec<Vec<u64>>; 3],
    policy: Policy,
    length: Length,
    power: &PowerModel,
) -> Result<Vec<f64>> {
    let cache: Cache<u64> = Cache::new(CacheOptions {
        budget_bytes: length.memory_bytes,
        block_bytes: PAGE_BYTES,
        policy,
        ..CacheOptions::default()
    })?;
    let count = |keys: &[Vec<u64>]| keys.iter().map(Vec::len).sum::<usize>() as f64;
    let [warm, measured, beside] = keys;
    disk.drive(&cache, warm)?;
    let before = cache.stats().shards;
    let meter = Meter::start(Scope::Process);
    disk.drive(&cache, measured)?;
    let usage = meter.stop(0);
    let stats = cache.stats();
    let after = stats.shards;
    let alone = bystander::alone(length.alone)?;
    let meter = Meter::start(Scope::Process);
    let ((), rate) = bystander::beside(|| disk.drive(&cache, beside))?;
    let lost_share = 1.0 - rate / alone;
    let lost_seconds = lost_share * meter.stop(0).wall.0;
    let accesses = count(measured);
    let share = |counted: u64| counted as f64 / accesses;
    let misses = after.misses - before.misses;
    let cpu = usage.cpu.total();
    Ok(vec![
        // The wait of one thread for one access.
        1e6 * usage.wall.0 * measured.len() as f64 / accesses,
        1e6 * cpu.0 / accesses,
        1e6 * power.core_energy(cpu).0 / accesses,
        share(after.raw_hits - before.raw_hits),
        share(after.packed_hits - before.packed_hits),
        share(misses),
        1e6 * (after.miss_cost - before.miss_cost) / misses.max(1) as f64,
        lost_share,
        1e6 * lost_seconds / count(beside),
        stats.memory.in_use_bytes() as f64 / length.memory_bytes as f64,
        disk.ratio,
        f64::from(u8::from(disk.is_direct)),
    ])
}

fn middle(cell: &CellRecord, contender: &str, column: usize) -> f64 {
    match cell.column("access", contender, column) {
        values if values.is_empty() => f64::NAN,
        values => Interval::of_pairs(&values).middle,
    }
}

/// Returns the target for pages of a ratio.
fn target(ratio: f64) -> Target {
    match ratio {
        ratio if ratio >= 4.0 => at_most(0.4),
        ratio if ratio >= 3.0 => at_most(0.6),
        _ => at_most(1.01),
    }
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        let of = |contender| cell.column("access", contender, ACCESS);
        let ratios: Vec<f64> = of(ADAPTIVE)
            .iter()
            .zip(of(RAW))
            .map(|(one, other)| one / other)
            .collect();
        let is_direct = middle(cell, RAW, IS_DIRECT) > 0.0;
        let doubt = corpus::doubt(cell).or((!is_direct).then_some(CACHED));
        let note = format!(
            "ratio {:.2}; a miss took {:.0} us; the bystander lost {:.1} %, beside raw-only {:.1} %",
            middle(cell, RAW, RATIO),
            middle(cell, RAW, MISS_US),
            100.0 * middle(cell, ADAPTIVE, LOST_SHARE),
            100.0 * middle(cell, RAW, LOST_SHARE),
        );
        let claim = Claim {
            question: cell.cell.clone(),
            core: true,
            target: target(middle(cell, RAW, RATIO)),
            note: &note,
        };
        claim.judge(Interval::of_pairs(&ratios), doubt)
    };
    cells.iter().map(finding).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut text = findings_table(records, &cells, findings(&cells));
    let Some(first) = cells.first() else {
        return Ok(text);
    };
    let energy = first.parameter("energy");
    let energy = energy.context("the record names no source of joules")?;
    text.push_str(&format!(
        "\nMedians of the runs: microseconds that a thread waits for an access, processor time of all threads, joules \
         ({energy}), raw and compressed hits, misses and their time, and the bystander's loss, of its work and for \
         each access.\n\n\
         | cell | policy | us | core us | uJ | raw | compressed | miss | miss us | lost | lost us | memory |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    ));
    for cell in &cells {
        for contender in RACERS {
            let of = |column| middle(cell, contender, column);
            text.push_str(&format!(
                "| {} | {contender} | {:.2} | {:.2} | {:.1} | {:.1} % | {:.1} % | {:.1} % | {:.1} | {:.1} % | {:.2} | {:.1} % |\n",
                cell.cell,
                of(ACCESS),
                of(CPU),
                of(JOULES),
                100.0 * of(RAW_HITS),
                100.0 * of(PACKED_HITS),
                100.0 * of(MISSES),
                of(MISS_US),
                100.0 * of(LOST_SHARE),
                of(LOST_US),
                100.0 * of(MEMORY),
            ));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn the_ratio_sets_the_target() {
        let cell = |ratio: f64, factor: f64| {
            let row = |run: usize, contender: &str, access: f64| {
                let mut values = vec![1.0; COLUMNS.len()];
                (values[ACCESS], values[RATIO]) = (access * (1.0 + 0.01 * run as f64), ratio);
                Row {
                    task: "access".to_string(),
                    run,
                    runs: 10,
                    contender: contender.to_string(),
                    values,
                }
            };
            let rows =
                (1..=10).flat_map(|run| [row(run, RAW, 20.0), row(run, ADAPTIVE, 20.0 * factor)]);
            CellRecord::made_up("a cell", "data=real", rows.collect())
        };
        let check = |ratio: f64, factor: f64, expected: Verdict| {
            let found = findings(&[cell(ratio, factor)]);
            assert_eq!(found[0].verdict, expected, "{found:?}");
        };
        check(4.2, 0.39, Verdict::Holds);
        check(4.2, 0.5, Verdict::Differs);
        check(3.2, 0.5, Verdict::Holds);
        check(1.0, 1.005, Verdict::Holds);
        check(1.0, 1.02, Verdict::Differs);
    }
}
