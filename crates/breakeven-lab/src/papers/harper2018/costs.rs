//! Table 4: the cost of a page to compress, to decompress, and to fetch from the disk.

use std::path::Path;

use anyhow::{Context, Result};
use breakeven::model::BufferCodec;
use breakeven::units::Seconds;

use super::bench::{self, Pages, Times, Way};
use super::corpus::{self, Source};
use super::faults::{DISK, Fault, FaultFile, PAGE_CACHE};
use super::ratio::PAGE;
use super::{Claim, mean, pictures, published, rates};
use crate::experiment::Experiment;
use crate::interleave::Plan;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018/costs",
    claim: "A compressed page is restored in less time than a page fault takes.",
    source: "Harper 2018, Table 4: page fault 110 us; restoring, which is compressing one page and decompressing another, 3 us by lz4 and 11 us by zstd",
    figure: "time of a page fault over time of restoring a page",
    target: SOONER,
    parameters: &[
        (
            "data",
            "4 MiB (quick: 512 KiB) of the files of `harper2018/ratio`, extents of 64 KiB spread over each in proportion to its size, in pages of 8 KiB",
        ),
        (
            "methods",
            "lz4:1 and zstd:3 both ways, on one thread and in bulk on all threads of the machine",
        ),
        (
            "page faults",
            "reads of 8 KiB by direct I/O from a file of 1 GiB (quick: 16 MiB) of random bytes below the folder of records. One way is anywhere, one at a time. The thesis's is nine to one, four in flight",
        ),
        (
            "runs",
            "30 (quick: 3), each contender about 20 ms (quick: 1 ms), alternating; 64 page faults to one pass of the others; elapsed time judges",
        ),
    ],
    analysis: "`thesis` counts as he does: both codec operations in bulk, a page fault as the disk's time per \
        operation with four in flight. `waiting` is the wait for one page: one read alone, or one page decompressed by \
        one thread. Others compress the page that makes room, in bulk. In bulk his zstd takes 8 us in the place of 39, \
        because eight threads each work on a page of their own. A single page is never restored that fast. A host that \
        holds the file in its memory makes our page faults cheap.",
    run,
    table,
    pictures: pictures::costs,
};

const SOONER: Target = Target::at_least(1.0);
pub const METHODS: [&str; 2] = ["lz4:1", "zstd:3"];
/// Why a record is no evidence about page faults.
const CACHED: &str = "page faults through the page cache";

/// How a cost is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Everything in bulk, page faults four in flight.
    Thesis,
    /// The wait for one page.
    Waiting,
}

impl Count {
    pub const BOTH: [Count; 2] = [Count::Thesis, Count::Waiting];

    pub fn name(self) -> &'static str {
        match self {
            Count::Thesis => "thesis",
            Count::Waiting => "waiting",
        }
    }

    pub fn fault(self) -> Fault {
        match self {
            Count::Thesis => Fault::Thesis,
            Count::Waiting => Fault::Waiting,
        }
    }
}

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    Ok(judge(&Costs::of(measured(laboratory)?)?))
}

/// Measures Table 4, or takes it from the record.
pub fn measured(laboratory: &Laboratory) -> Result<CellRecord> {
    let sources = corpus::counted(corpus::sources(laboratory, 1 << 20)?);
    let cells = vec![cell(laboratory, &sources)];
    let mut measured = laboratory.measure(EXPERIMENT.key, bench::COLUMNS, cells)?;
    measured.pop().context("one cell was measured")
}

fn cell<'a>(laboratory: &'a Laboratory, sources: &'a [Source]) -> Cell<'a> {
    let (bytes, file_bytes, plan) = match laboratory.quick {
        true => (
            512 << 10,
            16 << 20,
            Plan {
                runs: 3,
                batch_seconds: 0.001,
            },
        ),
        false => (
            4 << 20,
            1 << 30,
            Plan {
                runs: 30,
                batch_seconds: 0.02,
            },
        ),
    };
    Cell {
        name: tables::binary_size(PAGE as usize),
        parameters: format!(
            "data={} page_bytes={PAGE} bytes={bytes} methods={} threads=1+{} file_bytes={file_bytes} runs={} batch_seconds={}",
            corpus::label(sources),
            METHODS.join("+"),
            bench::all_threads(),
            plan.runs,
            plan.batch_seconds
        ),
        measure: Box::new(move || {
            let sample = bench::sample(sources, laboratory.data.as_deref(), bytes)?;
            let pages = Pages::new(sample, PAGE as usize);
            let file = FaultFile::create(&laboratory.records, PAGE as usize, file_bytes)?;
            bench::measure(pages, &METHODS, Some(file), plan)
        }),
    }
}

/// Table 4 as recorded, run by run.
pub struct Costs {
    pub cell: CellRecord,
    /// Seconds of a page fault, by run, in the order of [`Count::BOTH`].
    faults: [Vec<f64>; 2],
    is_direct: bool,
}

impl Costs {
    /// Reads the costs of a cell.
    ///
    /// # Errors
    ///
    /// If it has no page faults.
    pub fn of(cell: CellRecord) -> Result<Costs> {
        let is_direct = cell.rows.iter().any(|row| row.contender == DISK);
        let contender = if is_direct { DISK } else { PAGE_CACHE };
        let wall = |count: Count| Times::of(&cell, count.fault().task(), contender);
        let faults = Count::BOTH.map(|count| wall(count).map(|times| times.wall));
        let [Some(thesis), Some(waiting)] = faults else {
            anyhow::bail!("the record has no page faults");
        };
        Ok(Costs {
            cell,
            faults: [thesis, waiting],
            is_direct,
        })
    }

    /// Why the costs are no evidence about the thesis's.
    pub fn doubt(&self) -> Option<&'static str> {
        match self.is_direct {
            true => corpus::doubt(&self.cell),
            false => Some(CACHED),
        }
    }

    pub fn runs(&self) -> usize {
        self.faults[0].len()
    }

    /// Returns the page faults of each run.
    pub fn faults(&self, count: Count) -> &[f64] {
        &self.faults[count as usize]
    }

    /// Returns the elapsed seconds of a page by a method at one way, by run.
    pub fn pages(&self, method: &str, way: Way, threads: usize) -> Vec<f64> {
        let times = Times::of(&self.cell, &bench::task(way, threads), method);
        times.map_or(Vec::new(), |times| times.wall)
    }

    pub fn threads(&self) -> usize {
        rates::threads(&self.cell)
    }

    /// Returns the ratio of a method on the pages measured.
    pub fn ratio(&self, method: &str) -> f64 {
        let times = Times::of(&self.cell, &bench::task(Way::Compress, 1), method);
        times.map_or(f64::NAN, |times| times.ratio)
    }

    /// Returns a method as a codec of the model, with the times of one run or (`None`) their means.
    pub fn codec(&self, method: &str, run: Option<usize>) -> BufferCodec {
        let seconds = |way, threads| {
            let pages = self.pages(method, way, threads);
            Seconds(run.map_or_else(|| mean(&pages), |run| pages[run]))
        };
        let all = self.threads();
        BufferCodec {
            ratio: self.ratio(method),
            compress_bulk: seconds(Way::Compress, all),
            decompress_bulk: seconds(Way::Decompress, all),
            compress_latency: seconds(Way::Compress, 1),
            decompress_latency: seconds(Way::Decompress, 1),
        }
    }
}

fn judge(costs: &Costs) -> Vec<Finding> {
    let mut findings = Vec::new();
    for count in Count::BOTH {
        for method in METHODS {
            let codec = |run| costs.codec(method, Some(run));
            let restoring = |run| match count {
                Count::Thesis => codec(run).compress_bulk.0 + codec(run).decompress_bulk.0,
                Count::Waiting => codec(run).compress_bulk.0 + codec(run).decompress_latency.0,
            };
            let faults = costs.faults(count).iter().enumerate();
            let ratios: Vec<f64> = faults.map(|(run, fault)| fault / restoring(run)).collect();
            let his = published::codec(method).restoring(count);
            let note = his.map_or("not published".to_string(), |restoring_us| {
                format!("published {:.1}", published::FAULT_US / restoring_us)
            });
            let claim = Claim {
                question: format!("{method}, {}", count.name()),
                core: true,
                target: SOONER,
                note: &note,
            };
            findings.push(claim.judge(Interval::of_pairs(&ratios), costs.doubt()));
        }
    }
    findings
}

/// Reads the costs that are recorded last.
pub fn recorded(records: &Path) -> Result<(String, Option<Costs>)> {
    let mut latest = Record::new(records, EXPERIMENT.key, bench::COLUMNS).latest()?;
    let origin = tables::origin(records, &latest);
    Ok((origin, latest.pop().map(Costs::of).transpose()?))
}

fn table(records: &Path) -> Result<tables::Shown> {
    let (origin, costs) = recorded(records)?;
    let Some(costs) = costs else {
        return Ok(tables::Shown::unjudged(origin));
    };
    let findings = judge(&costs);
    let mut text = tables::judged(origin, findings);
    text.push_str("\n");
    let threads = costs.threads();
    text.push_str(&format!(
        "Table 4, microseconds of a page of 8 KiB{}; the thesis's bulk is eight threads on four cores, ours {threads}:\n\n\
         | cost | lz4:1 | published | zstd:3 | published |\n|---|---:|---:|---:|---:|\n",
        costs.doubt().map_or(String::new(), |doubt| format!(" ({doubt})"))
    ));
    let ratios = METHODS.map(|method| {
        let his = published::codec(method).page_ratio.unwrap_or(f64::NAN);
        format!("{:.2} | {his:.2}", costs.ratio(method))
    });
    text.push_str(&format!("| ratio | {} |\n", ratios.join(" | ")));
    for way in Way::BOTH {
        for count in [1, threads] {
            let title = match count {
                1 => "one thread".to_string(),
                _ => "in bulk".to_string(),
            };
            let cells = METHODS.map(|method| {
                let his = published::codec(method).page_times(way, count > 1).0;
                let his = his.map_or(String::new(), |us| us.to_string());
                let ours = 1e6 * mean(&costs.pages(method, way, count));
                format!("{ours:.2} | {his}")
            });
            text.push_str(&format!(
                "| {} {title} | {} |\n",
                way.name(),
                cells.join(" | ")
            ));
            if threads == 1 {
                break;
            }
        }
    }
    text.push_str("\n| page fault | ours | published |\n|---|---:|---:|\n");
    for count in Count::BOTH {
        let his = match count {
            Count::Thesis => format!("{}", published::FAULT_US),
            Count::Waiting => String::new(),
        };
        let (title, ours) = (count.fault().task(), 1e6 * mean(costs.faults(count)));
        text.push_str(&format!("| {title} | {ours:.1} | {his} |\n"));
    }
    Ok(text)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::record::Row;
    use crate::statistics::Verdict;

    /// Ten runs with the thesis's own Table 4 in bulk, one thread from his text (lz4's decoding:
    /// 2 us), and page faults of `fault_us` both ways.
    pub fn record(data: &str, disk: &str, fault_us: f64) -> CellRecord {
        let mut rows = Vec::new();
        let mut push = |run: usize, task: String, contender: &str, us: f64, stored: f64| {
            let wavers = 1.0 + 1e-4 * (run % 2) as f64;
            let seconds = 1000.0 * us * 1e-6 * wavers;
            rows.push(Row {
                task,
                run,
                runs: 10,
                contender: contender.to_string(),
                values: vec![1000.0, 8_192_000.0, stored, seconds, seconds],
            });
        };
        for run in 1..=10 {
            for (method, ratio, times) in [
                ("lz4:1", 2.13, [11.0, 2.0, 2.0, 1.0]),
                ("zstd:3", 2.97, [39.0, 8.0, 12.0, 3.0]),
            ] {
                let tasks = Way::BOTH.map(|way| [bench::task(way, 1), bench::task(way, 8)]);
                for (task, us) in tasks.into_iter().flatten().zip(times) {
                    push(run, task, method, us, 8_192_000.0 / ratio);
                }
            }
            for fault in Fault::BOTH {
                push(run, fault.task().to_string(), disk, fault_us, 8_192_000.0);
            }
        }
        CellRecord::made_up(
            "8 KiB",
            format!("data={data} page_bytes=8192 threads=1+8 runs=10"),
            rows,
        )
    }

    #[test]
    fn restoring_is_compared_with_page_faults() {
        use Verdict::{CannotTell, Differs, Holds};
        let check = |data: &str, disk: &str, fault_us: f64, expected: [Verdict; 4]| {
            let findings = judge(&Costs::of(record(data, disk, fault_us)).unwrap());
            let verdicts: Vec<Verdict> = findings.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, expected, "{findings:?}");
            findings
        };
        let found = check("real", DISK, 110.0, [Holds; 4]);
        // 110 over 3, 11, 4 and 20 microseconds.
        for (finding, expected) in found.iter().zip([36.667, 10.0, 27.5, 5.5]) {
            assert!(
                (finding.found.middle - expected).abs() < 1e-3,
                "{finding:?}"
            );
        }
        assert!(found[1].note.contains("published 10.0"), "{found:?}");
        check("real", DISK, 3.5, [Holds, Differs, Differs, Differs]);
        check("real", PAGE_CACHE, 110.0, [CannotTell; 4]);
        check("generated", DISK, 110.0, [CannotTell; 4]);
    }

    #[test]
    fn a_record_becomes_a_codec_of_the_model() {
        let costs = Costs::of(record("real", DISK, 110.0)).unwrap();
        let codec = costs.codec("zstd:3", None);
        let close = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 1e-3, "{found} {expected}");
        };
        close(codec.ratio, 2.97);
        close(codec.compress_bulk.0, 8e-6);
        close(codec.decompress_latency.0, 12e-6);
        assert_eq!((costs.runs(), costs.threads()), (10, 8));
        let mut none = record("real", DISK, 110.0);
        none.rows.retain(|row| row.contender != DISK);
        assert!(Costs::of(none).is_err());
    }
}
