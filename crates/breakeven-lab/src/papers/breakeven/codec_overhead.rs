//! The cost of the block interface: `codec` against direct calls of the same C libraries.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};
use breakeven::codec::Method;

use super::block_race::{BEST, CONTENDERS, Compressing, Decompressing, INTERFACE, USUAL};
use super::direct;
use crate::data::{self, Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave::{self, Batch, Plan};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/codec-overhead",
    claim: "The block interface keeps at least 0.97 of the speed of direct calls of the same C library, both ways.",
    source: "this project's own target",
    figure: "speed of the block interface over speed of direct calls",
    target: TARGET,
    parameters: &[
        (
            "methods",
            "lz4:1, zstd:1, zstd:3, deflate:6 by the library, and by liblz4, libzstd and libdeflate called directly in the same process",
        ),
        (
            "blocks",
            "128 of 8 KiB or 4 of 1 MiB, generated (mixed unless named), or spread over a file of --data",
        ),
        (
            "runs",
            "100 (quick: 4), each contender about 10 ms (quick: 2 ms), alternating; ratio of processor times of one run",
        ),
        (
            "direct calls",
            "the usual and the best way; the faster counts, or the mean of both where they are the same call",
        ),
    ],
    analysis: "For each block the interface adds a range check of the method and two matches, and for zstd a check \
        that the block is one frame. That is 0.1 to 0.5 % of the instructions of an 8 KiB block that shrinks. It shows \
        where decoding is no more than a copy (noise): there the check adds some 25 ns to a sixth of a microsecond. \
        Processor time judges, because nothing here waits. Wall time is recorded beside it. Where both are the same \
        code (deflate, and all decoding), the distance of `best over usual` from 1 is chance.",
    run,
    table,
    pictures: no_pictures,
};

const TARGET: Target = Target::at_least(0.97);
const METHODS: &[&str] = &["lz4:1", "zstd:1", "zstd:3", "deflate:6"];
/// The fastest and the most usual method, on which the data are varied.
const VARIED_METHODS: &[&str] = &["lz4:1", "zstd:1"];
const SMALL_BYTES: usize = 8 << 10;
const LARGE_BYTES: usize = 1 << 20;
/// Files of the folder of real data that make good variations, where they are there.
const SHARED_NAMES: &[&str] = &[
    "silesia/dickens",
    "elf-tar/coreutils-9.1-amd64.tar",
    "postgres/pg_btree_text_leg.idx",
    "video/bigbuckbunny.mp4",
];

const COLUMNS: &[&str] = &[
    "passes",
    "raw_bytes",
    "stored_bytes",
    "wall_seconds",
    "cpu_seconds",
];
const PASSES: usize = 0;
const RAW_BYTES: usize = 1;
const WALL_SECONDS: usize = 3;
const CPU_SECONDS: usize = 4;
const TASKS: [&str; 2] = ["compress", "decompress"];

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let cells = cells(laboratory)?;
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells)?;
    Ok(measured.iter().flat_map(judge).collect())
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, EXPERIMENT.key, COLUMNS, |cells| {
        cells.iter().flat_map(judge).collect()
    })
}

/// Where a cell's bytes come from.
#[derive(Clone)]
enum Source {
    Generated(Kind),
    Shared(data::SharedFile),
}

impl Source {
    fn load(&self, folder: Option<&Path>, bytes: usize, extent_bytes: usize) -> Result<Vec<u8>> {
        match self {
            Source::Generated(kind) => Ok(kind.generate(bytes, SEED)),
            Source::Shared(file) => {
                let whole = file.load(folder.context("no folder of data")?)?;
                Ok(data::spread(&whole, bytes / extent_bytes, extent_bytes))
            }
        }
    }

    fn name(&self) -> String {
        match self {
            Source::Generated(kind) => kind.to_string(),
            Source::Shared(file) => file.name.clone(),
        }
    }
}

/// Returns the core cells, and the variations of their data.
fn cells(laboratory: &Laboratory) -> Result<Vec<Cell<'_>>> {
    let mixed = Source::Generated(Kind::Mixed);
    let mut combinations: Vec<(&str, usize, Source)> = Vec::new();
    if laboratory.quick {
        combinations.extend(
            METHODS
                .iter()
                .map(|name| (*name, SMALL_BYTES, mixed.clone())),
        );
    } else {
        for block_bytes in [SMALL_BYTES, LARGE_BYTES] {
            combinations.extend(
                METHODS
                    .iter()
                    .map(|name| (*name, block_bytes, mixed.clone())),
            );
        }
        for source in varied_sources(laboratory)? {
            let varied = VARIED_METHODS.iter();
            combinations.extend(varied.map(|name| (*name, SMALL_BYTES, source.clone())));
        }
    }
    combinations
        .into_iter()
        .map(|(method, block_bytes, source)| cell(laboratory, method, block_bytes, source))
        .collect()
}

fn varied_sources(laboratory: &Laboratory) -> Result<Vec<Source>> {
    let generated = [Kind::Text, Kind::Rows, Kind::Numbers, Kind::Noise];
    let mut sources: Vec<Source> = generated.map(Source::Generated).into();
    if let Some(folder) = &laboratory.data {
        let files = data::shared_files(folder)?.into_iter();
        let wanted = files.filter(|file| SHARED_NAMES.contains(&file.name.as_str()));
        sources.extend(wanted.map(Source::Shared));
    }
    Ok(sources)
}

fn cell<'a>(
    laboratory: &'a Laboratory,
    method: &str,
    block_bytes: usize,
    source: Source,
) -> Result<Cell<'a>> {
    let method: Method = method.parse()?;
    let blocks = if block_bytes == SMALL_BYTES { 128 } else { 4 };
    let plan = if laboratory.quick {
        Plan {
            runs: 4,
            batch_seconds: 0.002,
        }
    } else {
        Plan {
            runs: 100,
            batch_seconds: 0.01,
        }
    };
    let size = tables::binary_size(block_bytes);
    let name = match &source {
        Source::Generated(Kind::Mixed) => format!("{method} {size}"),
        _ => format!("{method} {size} {}", source.name()),
    };
    let parameters = format!(
        "method={method} block_bytes={block_bytes} blocks={blocks} data={} seed={SEED} runs={} batch_seconds={}",
        source.name(),
        plan.runs,
        plan.batch_seconds
    );
    let measure = move || {
        let folder = laboratory.data.as_deref();
        let bytes = source.load(folder, blocks * block_bytes, block_bytes)?;
        measure(method, &bytes, block_bytes, plan)
    };
    Ok(Cell {
        name,
        parameters,
        measure: Box::new(measure),
    })
}

fn measure(method: Method, bytes: &[u8], block_bytes: usize, plan: Plan) -> Result<Vec<Row>> {
    let blocks: Vec<&[u8]> = bytes.chunks(block_bytes).collect();
    let mut compressing = Compressing::new(method, &blocks)?;
    let compressed = interleave::interleave(&mut compressing, CONTENDERS.len(), plan)?;
    let stored = compressing.into_stored();
    let stored_bytes = stored.iter().map(Vec::len).sum::<usize>();
    let mut decompressing = Decompressing::new(method, &blocks, &stored)?;
    let decompressed = interleave::interleave(&mut decompressing, CONTENDERS.len(), plan)?;
    let row = |task: &str, run: usize, contender: usize, batch: &Batch| Row {
        task: task.to_string(),
        run: run + 1,
        runs: plan.runs,
        contender: CONTENDERS[contender].to_string(),
        values: vec![
            batch.passes as f64,
            bytes.len() as f64,
            stored_bytes as f64,
            batch.duration.wall_seconds,
            batch.duration.cpu_seconds,
        ],
    };
    let mut rows = Vec::new();
    for run in 0..plan.runs {
        for (task, batches) in TASKS.iter().zip([&compressed, &decompressed]) {
            let batches = batches[run].iter().enumerate();
            rows.extend(batches.map(|(contender, batch)| row(task, run, contender, batch)));
        }
    }
    Ok(rows)
}

/// Returns a cell's findings in each direction.
fn judge(cell: &CellRecord) -> Vec<Finding> {
    TASKS.iter().map(|task| judge_task(cell, task)).collect()
}

fn judge_task(cell: &CellRecord, task: &str) -> Finding {
    let peer = Peer::of(cell, task);
    let own = |clock: usize| cell.column(task, INTERFACE, clock);
    let ratio =
        |clock: usize| Interval::of_quotients(&peer.seconds(cell, task, clock), &own(clock));
    let bytes: f64 = own(PASSES).iter().sum::<f64>() * own(RAW_BYTES)[0];
    let own_speed = bytes / own(CPU_SECONDS).iter().sum::<f64>() / 1e6;
    let found = ratio(CPU_SECONDS);
    let seconds = |peer: &str| cell.column(task, peer, CPU_SECONDS);
    Finding {
        question: format!("{} {task}", cell.cell),
        core: cell.parameters.contains(" data=mixed "),
        found,
        verdict: TARGET.judge(found),
        note: format!(
            "{own_speed:.0} MB/s; by wall time {:.3}; peer {peer}, best over usual {:.3}",
            ratio(WALL_SECONDS).middle,
            Interval::of_quotients(&seconds(USUAL), &seconds(BEST)).middle,
        ),
    }
}

/// The other side of a comparison with the interface.
enum Peer {
    /// The one of two ways that was faster over all runs.
    Faster(&'static str),
    /// Both contenders, where they are the same calls: choosing the faster would choose luck.
    Both,
}

impl Peer {
    fn of(cell: &CellRecord, task: &str) -> Peer {
        let method = cell.parameter("method");
        let method: Option<Method> = method.and_then(|method| method.parse().ok());
        if task != TASKS[0] || !method.is_some_and(direct::has_two_ways) {
            return Peer::Both;
        }
        let total = |way: &str| cell.column(task, way, CPU_SECONDS).iter().sum::<f64>();
        Peer::Faster(if total(USUAL) < total(BEST) {
            USUAL
        } else {
            BEST
        })
    }

    /// Returns the peer's seconds of each run.
    fn seconds(&self, cell: &CellRecord, task: &str, clock: usize) -> Vec<f64> {
        match self {
            Peer::Faster(way) => cell.column(task, way, clock),
            Peer::Both => {
                let best = cell.column(task, BEST, clock).into_iter();
                let both = cell.column(task, USUAL, clock).into_iter().zip(best);
                both.map(|(usual, best)| (usual * best).sqrt()).collect()
            }
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Peer::Faster(way) => way,
            Peer::Both => "direct",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    /// A cell of 10 runs in which the interface takes 1.00 to 1.02 seconds. The direct contenders take the given
    /// multiples of that, and the first one wavers by `waver`.
    fn cell(parameters: &str, usual: f64, best: f64, waver: f64) -> CellRecord {
        let runs = 10;
        let mut rows = Vec::new();
        for run in 1..=runs {
            let own = 1.0 + 0.02 * (run % 2) as f64;
            let wavering = usual
                * if run % 2 == 0 {
                    1.0 + waver
                } else {
                    1.0 / (1.0 + waver)
                };
            for task in TASKS {
                for (contender, factor) in CONTENDERS.iter().zip([1.0, wavering, best]) {
                    rows.push(Row {
                        task: task.to_string(),
                        run,
                        runs,
                        contender: contender.to_string(),
                        values: vec![1000.0, 1e6, 4e5, 2.0 * own * factor, own * factor],
                    });
                }
            }
        }
        CellRecord::made_up("cell", parameters, rows)
    }

    fn check(cell: &CellRecord, task: usize, figure: f64, verdict: Verdict, note: &str) {
        let found = &judge(cell)[task];
        assert!((found.found.middle - figure).abs() < 1e-9, "{found:?}");
        assert_eq!(found.verdict, verdict, "{found:?}");
        assert!(found.note.contains(note), "{found:?}");
    }

    #[test]
    fn the_faster_way_counts_and_equal_ways_are_averaged() {
        let zstd = cell("method=zstd:1 data=mixed seed=1", 0.99, 0.96, 0.0);
        check(&zstd, 0, 0.96, Verdict::Differs, "peer direct-best");
        let mean = (0.99_f64 * 0.96).sqrt();
        check(&zstd, 1, mean, Verdict::Holds, "peer direct,");
        check(&zstd, 1, mean, Verdict::Holds, "best over usual 1.031");
        let deflate = cell("method=deflate:6 data=mixed seed=1", 0.99, 0.96, 0.0);
        check(
            &deflate,
            0,
            mean,
            Verdict::Holds,
            "990 MB/s; by wall time 0.975; peer direct,",
        );
        let wide = cell("method=zstd:1 data=mixed seed=1", 0.98, 1.20, 0.05);
        check(
            &wide,
            0,
            0.981_166_666_7,
            Verdict::CannotTell,
            "peer direct-usual",
        );
    }

    #[test]
    fn mixed_data_are_the_core() {
        assert!(judge(&cell("method=zstd:1 data=mixed seed=1", 1.0, 1.0, 0.0))[0].core);
        assert!(!judge(&cell("method=zstd:1 data=text seed=1", 1.0, 1.0, 0.0))[0].core);
    }

    #[test]
    fn there_are_at_most_twelve_core_cells() {
        let folder = tempfile::tempdir().unwrap();
        let mut laboratory = Laboratory {
            quick: false,
            again: false,
            update: false,
            data: None,
            records: folder.path().to_path_buf(),
            keep: false,
            only: None,
            paper_size: false,
            core_seconds: 10.0,
            done: std::cell::RefCell::default(),
            origin: crate::origin::Origin::read(),
        };
        let core = |cells: &[Cell<'_>]| {
            let core = cells
                .iter()
                .filter(|cell| cell.parameters.contains(" data=mixed "));
            core.count()
        };
        let full = cells(&laboratory).unwrap();
        assert_eq!((core(&full), full.len()), (8, 16));
        drop(full);
        laboratory.quick = true;
        assert_eq!(cells(&laboratory).unwrap().len(), 4);
    }
}
