//! Figures 8 and 9: how fast codecs work on pages, on one thread and on all.

use std::path::Path;

use anyhow::Result;

use super::bench::{self, Pages, Times, Way};
use super::corpus::{self, Source};
use super::ratio::{PAGE, PAGE_BYTES};
use super::{Claim, mean, pictures, published};
use crate::experiment::Experiment;
use crate::interleave::Plan;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018/rates",
    claim: "zstd works faster than zlib, decoding at least twice as fast as encoding, and all threads together get more done than one.",
    source: "Harper 2018, Figures 8 and 9 and the text below: zstd 2 to 5 times as fast as zlib; decoding 2 to 3 times as \
        fast as encoding; 8 KiB in 39 us by zstd on one thread and 66 us of processor time on eight, in 11 and 17 us by \
        lz4",
    figure: "speed of zstd:3 over speed of deflate:6",
    target: FASTER,
    parameters: &[
        (
            "data",
            "8 MiB (quick: 512 KiB) of the files of `harper2018/ratio`, extents of 64 KiB spread over each in proportion to its size",
        ),
        (
            "methods",
            "lz4:1, deflate:6 and zstd:3, working memory reused from page to page; his program allocates zstd's for each",
        ),
        (
            "blocks",
            "4, 8, 16, 32 and 64 KiB (quick: 8 KiB), each alone; 8 KiB is judged",
        ),
        (
            "threads",
            "one, and as many as the machine has, through the library's pool",
        ),
        (
            "runs",
            "12 (quick: 3), every method, way and number of threads alternating. The passes over the data take lz4 some 20 ms to encode (quick: one pass)",
        ),
    ],
    analysis: "Processor time judges one thread, elapsed time all together. Deflate is libdeflate's, itself two to \
        three times as fast as the zlib of the thesis. So zstd has it harder here. His eight threads share four cores. \
        A gain per thread below 1 is the cost of sharing cores, caches and memory.",
    run,
    table,
    pictures: pictures::rates,
};

const FASTER: Target = Target::at_least(1.0);
const DECODES_FASTER: Target = Target::at_least(2.0);
/// The least gain per thread of the thesis: zstd decodes in 12 us on one thread and in 3 us on
/// eight.
const GAIN: Target = Target::at_least(0.5);

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let sources = corpus::counted(corpus::sources(laboratory, 1 << 20)?);
    let pages = match laboratory.quick {
        true => &[PAGE][..],
        false => &PAGE_BYTES,
    };
    let cells = pages.iter();
    let cells = cells
        .map(|page| cell(laboratory, *page, &sources))
        .collect();
    let measured = laboratory.measure(EXPERIMENT.key, bench::COLUMNS, cells)?;
    Ok(judge_page(&measured))
}

fn cell<'a>(laboratory: &'a Laboratory, page: u64, sources: &'a [Source]) -> Cell<'a> {
    let plan = Plan {
        runs: if laboratory.quick { 3 } else { 12 },
        // Less than a pass takes: one is enough to see that it works.
        batch_seconds: if laboratory.quick { 1e-4 } else { 0.02 },
    };
    let bytes = if laboratory.quick { 512 << 10 } else { 8 << 20 };
    let methods = published::METHODS;
    Cell {
        name: tables::binary_size(page as usize),
        parameters: format!(
            "data={} page_bytes={page} bytes={bytes} methods={} threads=1+{} runs={} batch_seconds={}",
            corpus::label(sources),
            methods.join("+"),
            bench::all_threads(),
            plan.runs,
            plan.batch_seconds
        ),
        measure: Box::new(move || {
            let sample = bench::sample(sources, laboratory.data.as_deref(), bytes)?;
            let pages = Pages::new(sample, page as usize);
            bench::measure(pages, &methods, None, plan)
        }),
    }
}

/// Judges the page that the thesis goes on with; the other sizes are shown beside it.
fn judge_page(cells: &[CellRecord]) -> Vec<Finding> {
    let page = cells.iter().filter(|cell| page_bytes(cell) == PAGE as f64);
    page.flat_map(judge).collect()
}

fn judge(cell: &CellRecord) -> Vec<Finding> {
    let all = threads(cell);
    let mut findings = Vec::new();
    for way in Way::BOTH {
        let (zlib, zstd) = (one(cell, way, "deflate:6"), one(cell, way, "zstd:3"));
        let note = "published 2 to 5 over zlib itself";
        let question = format!("zstd over deflate, {}", way.name());
        findings.extend(ratio(cell, question, &zlib, &zstd, FASTER, note));
    }
    for (method, note) in [
        ("lz4:1", "published 2 to 3"),
        ("zstd:3", "published 39 / 12 = 3.25"),
    ] {
        let encode = one(cell, Way::Compress, method);
        let decode = one(cell, Way::Decompress, method);
        let question = format!("{method} decoding over encoding");
        findings.extend(ratio(
            cell,
            question,
            &encode,
            &decode,
            DECODES_FASTER,
            note,
        ));
    }
    for (method, way, note) in [
        ("lz4:1", Way::Compress, "published 11 / 17 = 0.65"),
        ("zstd:3", Way::Compress, "published 39 / 66 = 0.59"),
        ("zstd:3", Way::Decompress, "published 12 / 3 / 8 = 0.50"),
    ] {
        if all == 1 {
            continue;
        }
        let wall = |threads| Times::of(cell, &bench::task(way, threads), method).map(|of| of.wall);
        let scaled = wall(all).map(|wall| wall.iter().map(|x| x * all as f64).collect());
        let question = format!("{method} {}, gain per thread of {all}", way.name());
        findings.extend(ratio(cell, question, &wall(1), &scaled, GAIN, note));
    }
    findings
}

/// Returns the processor seconds of a page on one thread, by run.
fn one(cell: &CellRecord, way: Way, method: &str) -> Option<Vec<f64>> {
    Times::of(cell, &bench::task(way, 1), method).map(|times| times.cpu)
}

/// Judges how many times as long `slow` takes as `fast`.
fn ratio(
    cell: &CellRecord,
    question: String,
    slow: &Option<Vec<f64>>,
    fast: &Option<Vec<f64>>,
    target: Target,
    note: &str,
) -> Option<Finding> {
    let pairs = slow.as_ref()?.iter().zip(fast.as_ref()?);
    let ratios: Vec<f64> = pairs.map(|(slow, fast)| slow / fast).collect();
    let claim = Claim {
        question,
        core: true,
        target,
        note,
    };
    Some(claim.judge(Interval::of_pairs(&ratios), corpus::doubt(cell)))
}

/// Returns the threads of the bulk work of a cell.
pub fn threads(cell: &CellRecord) -> usize {
    let count = cell.parameter("threads");
    let count = count.and_then(|count| count.strip_prefix("1+")?.parse().ok());
    count.unwrap_or(1)
}

/// Reads the last record, by size of the page.
pub fn recorded(records: &Path) -> Result<(String, Vec<CellRecord>)> {
    let latest = Record::new(records, EXPERIMENT.key, bench::COLUMNS).latest()?;
    Ok((tables::origin(records, &latest), latest))
}

fn table(records: &Path) -> Result<tables::Shown> {
    let (origin, cells) = recorded(records)?;
    let Some(first) = cells.first() else {
        return Ok(tables::Shown::unjudged(origin));
    };
    let findings = judge_page(&cells);
    let mut text = tables::judged(origin, findings);
    text.push_str("\n");
    text.push_str(&format!(
        "MB/s by size of the page{}; for 8 KiB also elapsed and processor microseconds of a page, and the published \
         ones (all threads: eight on four cores):\n\n",
        corpus::doubt(first).map_or(String::new(), |doubt| format!(" ({doubt})"))
    ));
    text.push_str("| method | way | threads |");
    for cell in &cells {
        text.push_str(&format!(" {} |", cell.cell));
    }
    text.push_str(" 8 KiB elapsed | published | processor | published |\n|---|---|---:|");
    text.push_str(&"---:|".repeat(cells.len() + 4));
    text.push_str("\n");
    let counts: &[usize] = match threads(first) {
        1 => &[1],
        all => &[1, all],
    };
    for codec in &published::CODECS {
        for way in Way::BOTH {
            for count in counts {
                text.push_str(&line(&cells, codec, way, *count));
            }
        }
    }
    Ok(text)
}

fn line(
    cells: &[CellRecord],
    codec: &published::PublishedCodec,
    way: Way,
    threads: usize,
) -> String {
    let mut text = format!("| {} | {} | {threads} |", codec.method, way.name());
    let times = |cell| Times::of(cell, &bench::task(way, threads), codec.method);
    for cell in cells {
        let rate = times(cell).map(|times| page_bytes(cell) / mean(&times.wall) / 1e6);
        text.push_str(&rate.map_or(" |".to_string(), |rate| format!(" {rate:.0} |")));
    }
    let page = cells.iter().find(|cell| page_bytes(cell) == PAGE as f64);
    let microseconds = |seconds: &[f64]| format!("{:.1}", 1e6 * mean(seconds));
    let shown = page.and_then(times).map_or(Default::default(), |times| {
        (microseconds(&times.wall), microseconds(&times.cpu))
    });
    let his = codec.page_times(way, threads > 1);
    let text_of = |us: Option<f64>| us.map_or(String::new(), |us| us.to_string());
    text + &format!(
        " {} | {} | {} | {} |\n",
        shown.0,
        text_of(his.0),
        shown.1,
        text_of(his.1)
    )
}

/// Returns the bytes of a cell's pages.
pub fn page_bytes(cell: &CellRecord) -> f64 {
    let bytes = cell.parameter("page_bytes");
    bytes
        .and_then(|bytes| bytes.parse().ok())
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::record::Row;
    use crate::statistics::Verdict;

    /// A cell of 10 runs in which deflate encodes in 100 us. Decoding is `decodes` times as fast, zstd `zstd` times as
    /// fast as deflate, and two threads `gain` times as fast as one.
    pub fn cell(data: &str, decodes: f64, zstd: f64, gain: f64) -> CellRecord {
        let mut rows = Vec::new();
        for run in 1..=10 {
            for (method, speed) in [("deflate:6", 1.0), ("zstd:3", zstd), ("lz4:1", 5.0)] {
                for (way, speed) in [(Way::Compress, speed), (Way::Decompress, speed * decodes)] {
                    for (threads, speed) in [(1, speed), (2, speed * gain)] {
                        let wavers = 1.0 + 1e-3 * (run % 2) as f64;
                        let seconds = 100.0 * 100e-6 / speed * wavers;
                        rows.push(Row {
                            task: bench::task(way, threads),
                            run,
                            runs: 10,
                            contender: method.to_string(),
                            values: vec![100.0, 819_200.0, 409_600.0, seconds, seconds],
                        });
                    }
                }
            }
        }
        CellRecord::made_up(
            "8 KiB",
            format!("data={data} page_bytes=8192 threads=1+2 runs=10"),
            rows,
        )
    }

    #[test]
    fn speeds_are_compared() {
        let check = |cell: CellRecord, expected: [Verdict; 7]| {
            let findings = judge(&cell);
            let verdicts: Vec<Verdict> = findings.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, expected, "{findings:?}");
            assert!(findings.iter().all(|finding| finding.core));
            findings
        };
        use Verdict::{CannotTell, Differs, Holds};
        let found = check(cell("real", 3.0, 2.5, 1.8), [Holds; 7]);
        assert!((found[0].found.middle - 2.5).abs() < 1e-9);
        assert!((found[2].found.middle - 3.0).abs() < 1e-9);
        assert!((found[4].found.middle - 0.9).abs() < 1e-9);
        check(cell("real", 1.5, 0.9, 0.8), [Differs; 7]);
        check(cell("generated", 3.0, 2.5, 1.8), [CannotTell; 7]);
    }

    #[test]
    fn a_line_shows_rates_and_the_page() {
        let cells = [cell("real", 4.0, 2.5, 2.0)];
        let zstd = &published::CODECS[2];
        let found = line(&cells, zstd, Way::Compress, 1);
        assert_eq!(
            found,
            "| zstd:3 | compress | 1 | 205 | 40.0 | 39 | 40.0 | 39 |\n"
        );
        let found = line(&cells, zstd, Way::Decompress, 2);
        assert_eq!(
            found,
            "| zstd:3 | decompress | 2 | 1638 | 5.0 | 3 | 5.0 |  |\n"
        );
    }
}
