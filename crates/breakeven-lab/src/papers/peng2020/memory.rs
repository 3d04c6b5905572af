//! Resident memory of the processes: idle, with a few items, and full; and the bytes of an index for each key.

use std::path::Path;

use anyhow::Result;

use super::servers::{CONTENDERS, Kind, OURS, PEER, Server, count, missing_rows, peers, row};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020/memory",
    claim: "An idle server takes no more memory than memcached, and a full one no more beside its `-m`.",
    source: "this project's own target",
    figure: "resident bytes over memcached's; bytes of index for a key",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "servers",
            "1024 MiB and four worker threads each; 256 MiB where they are full (quick: 16 MiB)",
        ),
        (
            "items",
            "none; 1,000 of made-up JSON of 200 to 1000 bytes; as many as come to 1.6 times the memory; the index with 100,000 to 400,000 keys (quick: 10,000 to 40,000)",
        ),
    ],
    analysis: "VmRSS of the processes, once each: it hardly changes from run to run. It counts the pages of the \
        program's own file that the process has touched, which all its processes share. The note has the rest alone. \
        For a full server the figure is resident bytes for a byte of `-m`, over memcached's. Bytes of index are those \
        that `stats` of ours reports (`hash_bytes`), in the mean of ten sizes. They are to be 24 in the mean and never \
        above 36.",
    run,
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["resident_bytes", "anonymous_bytes", "index_bytes_a_key"];
const RESIDENT: usize = 0;
const ANONYMOUS: usize = 1;
const INDEX: usize = 2;
const TASK: &str = super::servers::TASK;

const FULL: &str = "full";
const INDEXED: &str = "index";
const INDEX_BYTES_MEAN: f64 = 24.0;
const INDEX_BYTES_MAX: f64 = 36.0;
/// The mean length of a made-up item.
const ITEM_BYTES: usize = 640;
/// Sizes at which the index is looked at.
const SIZES: usize = 10;

/// One cell: the memory of both, and the keys that they are given; several numbers of keys for the index.
struct Case {
    name: &'static str,
    memory_mib: usize,
    keys: Vec<usize>,
}

fn cases(quick: bool) -> Vec<Case> {
    let case = |name, memory_mib, keys| Case {
        name,
        memory_mib,
        keys,
    };
    let (full_mib, few) = if quick { (16, 10_000) } else { (256, 100_000) };
    let steps = (0..SIZES).map(|step| few + few * 3 * step / (SIZES - 1));
    vec![
        case("idle", 1024, vec![0]),
        case("1000 items", 1024, vec![1000]),
        case(FULL, full_mib, vec![(full_mib << 20) * 8 / 5 / ITEM_BYTES]),
        case(INDEXED, 1024, steps.collect()),
    ]
}

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let peers = peers();
    let is_missing = peers.starts_with("missing");
    let quick = laboratory.quick;
    let cells = cases(quick).into_iter().map(|case| Cell {
        name: case.name.to_string(),
        parameters: format!(
            "memory_mib={} keys={} quick={quick} {peers}",
            case.memory_mib, case.keys[0]
        ),
        measure: Box::new(move || match is_missing {
            true => Ok(missing_rows(COLUMNS.len())),
            false => measure(&case),
        }),
    });
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())?;
    Ok(measured.iter().flat_map(judge).collect())
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, EXPERIMENT.key, COLUMNS, |cells| {
        cells.iter().flat_map(judge).collect()
    })
}

fn measure(case: &Case) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (contender, kind) in CONTENDERS
        .into_iter()
        .zip([Kind::Ours(""), Kind::Memcached])
    {
        let server = Server::start(kind, case.memory_mib, 4)?;
        for (run, keys) in case.keys.iter().enumerate() {
            if *keys > 0 {
                let words = format!("--flat-out --seconds=0.1 --keys={keys}");
                let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
                server.bench(&words)?;
            }
            let index_bytes = count(&mut server.connect()?, "hash_bytes")? as f64;
            let values = vec![
                server.resident_bytes()? as f64,
                server.anonymous_bytes()? as f64,
                index_bytes / *keys as f64,
            ];
            // Nothing is divided by no keys.
            let values = values
                .into_iter()
                .map(|it| if it.is_finite() { it } else { 0.0 });
            rows.push(row(contender, run, case.keys.len(), values.collect()));
        }
    }
    Ok(rows)
}

fn judge(cell: &CellRecord) -> Vec<Finding> {
    if let Some(missing) = programs::missing(cell) {
        return vec![missing];
    }
    if cell.cell == INDEXED {
        return index_findings(cell);
    }
    let mib = |contender, column| cell.median(TASK, contender, column) / f64::from(1 << 20);
    let found = Interval::exact(mib(OURS, RESIDENT) / mib(PEER, RESIDENT));
    let memory_mib: f64 = cell
        .parameter("memory_mib")
        .and_then(|it| it.parse().ok())
        .unwrap_or(0.0);
    vec![Finding {
        question: cell.cell.clone(),
        core: true,
        found,
        verdict: match is_quick(cell) {
            true => Verdict::CannotTell,
            false => EXPERIMENT.target.judge(found),
        },
        note: format!(
            "target {}; {:.1} MiB of {memory_mib}, memcached {:.1}; without pages of files {:.1} and {:.1}",
            EXPERIMENT.target,
            mib(OURS, RESIDENT),
            mib(PEER, RESIDENT),
            mib(OURS, ANONYMOUS),
            mib(PEER, ANONYMOUS)
        ),
    }]
}

/// Whether it shows that everything works, and no more.
fn is_quick(cell: &CellRecord) -> bool {
    cell.parameter("quick") == Some("true")
}

fn index_findings(cell: &CellRecord) -> Vec<Finding> {
    let values = cell.column(TASK, OURS, INDEX);
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let most = values.iter().copied().fold(0.0, f64::max);
    let finding = |what: &str, found: f64, most: f64| {
        let target = Target {
            low: 0.0,
            high: most,
        };
        let found = Interval::exact(found);
        Finding {
            question: format!("bytes of index for a key {what}"),
            core: true,
            found,
            verdict: match is_quick(cell) {
                true => Verdict::CannotTell,
                false => target.judge(found),
            },
            note: format!("target {target}"),
        }
    };
    vec![
        finding("in the mean", mean, INDEX_BYTES_MEAN),
        finding("at most", most, INDEX_BYTES_MAX),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{CannotTell, Differs, Holds};

    #[test]
    fn resident_bytes_are_to_be_no_more() {
        let check = |name: &str, parameters: &str, ours: f64, expected: Verdict| {
            let rows = [(OURS, ours), (PEER, 100.0)];
            let rows = rows.map(|(contender, bytes)| row(contender, 0, 1, vec![bytes, bytes, 0.0]));
            let found = judge(&CellRecord::made_up(name, parameters, rows.into()));
            assert_eq!((found.len(), found[0].verdict), (1, expected), "{found:?}");
        };
        check("idle", "memory_mib=1024", 100.0, Holds);
        check("idle", "memory_mib=1024", 101.0, Differs);
        check(FULL, "memory_mib=256", 99.0, Holds);
        check(FULL, "memory_mib=16 quick=true", 99.0, CannotTell);
        check("idle", "missing=memcached", 1.0, CannotTell);
    }

    #[test]
    fn an_index_has_a_mean_and_a_most() {
        let rows = [14.0, 20.0, 40.0].into_iter().enumerate();
        let rows = rows.map(|(run, bytes)| row(OURS, run, 3, vec![1.0, 1.0, bytes]));
        let found = judge(&CellRecord::made_up(
            INDEXED,
            "memory_mib=1024",
            rows.collect(),
        ));
        let found: Vec<(f64, Verdict)> = found
            .iter()
            .map(|it| (it.found.middle.round(), it.verdict))
            .collect();
        assert_eq!(found, [(25.0, Differs), (40.0, Differs)]);
    }
}
