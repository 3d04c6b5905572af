//! Loads that keep a pace, and many keys: the same load on both servers, alternating, each with a processor of its own.

use std::path::Path;

use anyhow::Result;

use super::servers::{
    self, COLUMNS, Kind, OURS, P99, P999, PEER, SPEED, Server, TASK, missing_rows, peers, race,
};
use super::values::{MADE_UP, write_lines};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const PACED: Experiment = Experiment {
    key: "peng2020/paced",
    claim: "Under the paced load 99 of 100 requests take no longer than memcached's.",
    source: "this project's own target; the load is the deck's",
    figure: "99th percentile of requests over memcached's",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "values",
            "made-up JSON of 200 to 1000 bytes under 100,000 keys, all compared",
        ),
        SERVERS,
        (
            "client",
            "`breakeven bench --shape paced`: 50 gets at once every 50 ms on each connection, 50,000 and 100,000 keys a second; 10 runs of 2 s (quick: 2 of 0.2 s), both servers alternating",
        ),
        (
            "as it pays",
            "keys by Zipf 0.99. Ours has three quarters of the values' bytes as memory, so it compresses cold ones; memcached has room for all",
        ),
    ],
    analysis: "Latencies count from the time when a request was due. The client has a processor of its own, which is busy as the note says; a delay of the client delays both.",
    run: |laboratory| run(laboratory, &PACED, PACED_CASES),
    table: |records| table(records, &PACED),
    pictures: no_pictures,
};

pub const KEYS: Experiment = Experiment {
    key: "peng2020/keys",
    claim: "From 100,000 to 10,000,000 keys gets of 20 keys stay as fast as memcached's, and lose no more of their speed.",
    source: "this project's own target",
    figure: "keys per second over memcached's",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "values",
            "the first 120 bytes of made-up JSON, stored raw (`-o no_compression`), all compared",
        ),
        SERVERS,
        (
            "client",
            "`breakeven bench --shape batched --flat-out`, 50 connections, 10 runs of 0.5 s (quick: 2 of 0.1 s), both servers alternating. Each run draws up to a million keys of its own, all alike",
        ),
    ],
    analysis: "With more keys, less of index and values is in the processor's caches, with either server. The last row \
        divides the share of its speed that ours kept by memcached's share, run by run, between the fewest and the \
        most keys.",
    run: |laboratory| run(laboratory, &KEYS, KEYS_CASES),
    table: |records| table(records, &KEYS),
    pictures: no_pictures,
};

const SERVERS: (&str, &str) = (
    "servers",
    "one worker thread, 4096 MiB, pinned to one processor and the client to another",
);
const MEMORY_MIB: usize = 4096;
/// The bytes of a short value.
const SHORT_BYTES: usize = 120;
/// Fewer runs show that everything works, and no more.
const JUDGED_RUNS: usize = 6;

/// One cell.
struct Case {
    name: &'static str,
    keys: usize,
    words: &'static str,
    ours: &'static str,
    /// Our server's memory, where it differs from the others'.
    memory_mib: usize,
    is_short: bool,
    seconds: f64,
}

const PACED_CASE: Case = Case {
    name: "",
    keys: 100_000,
    words: "",
    ours: "-o no_compression",
    memory_mib: MEMORY_MIB,
    is_short: false,
    seconds: 2.0,
};

const PACED_CASES: &[Case] = &[
    Case {
        name: "50000 a second raw",
        words: "--shape=paced --rate=50000",
        ..PACED_CASE
    },
    Case {
        name: "100000 a second raw",
        words: "--shape=paced --rate=100000",
        ..PACED_CASE
    },
    Case {
        name: "50000 a second as it pays",
        words: "--shape=paced --rate=50000 --skew=zipf:0.99",
        ours: "",
        // Of some 64 MB.
        memory_mib: 46,
        ..PACED_CASE
    },
];

const KEYS_CASE: Case = Case {
    words: "--shape=batched --flat-out",
    is_short: true,
    seconds: 0.5,
    ..PACED_CASE
};
const FEWEST: &str = "100000 keys";
const MOST: &str = "10000000 keys";

const KEYS_CASES: &[Case] = &[
    Case {
        name: FEWEST,
        keys: 100_000,
        ..KEYS_CASE
    },
    Case {
        name: "1000000 keys",
        keys: 1_000_000,
        ..KEYS_CASE
    },
    Case {
        name: MOST,
        keys: 10_000_000,
        ..KEYS_CASE
    },
];

fn run(
    laboratory: &Laboratory,
    experiment: &Experiment,
    cases: &'static [Case],
) -> Result<Vec<Finding>> {
    let quick = laboratory.quick;
    let runs = if quick { 2 } else { 10 };
    let peers = peers();
    let is_missing = peers.starts_with("missing");
    // A quick run shows that everything works by the first cell alone.
    let shown = if quick { 1 } else { cases.len() };
    let cells = cases[..shown].iter().map(|case| Cell {
        name: case.name.to_string(),
        parameters: format!(
            "keys={} seconds={} runs={runs} {peers}",
            case.keys, case.seconds
        ),
        measure: Box::new(move || match is_missing {
            true => Ok(missing_rows(COLUMNS.len())),
            false => measure(case, runs, if quick { 0.1 } else { 1.0 }),
        }),
    });
    let cells = laboratory.measure(experiment.key, COLUMNS, cells.collect())?;
    Ok(findings(&cells, experiment))
}

fn measure(case: &Case, runs: usize, share: f64) -> Result<Vec<Row>> {
    let lines = tempfile::tempdir()?;
    let path = lines.path().join("values");
    let mut values = MADE_UP.load(None)?.held_out;
    if case.is_short {
        values
            .iter_mut()
            .for_each(|it| it.bytes.truncate(SHORT_BYTES));
    }
    write_lines(&values, &path)?;
    let words = |seconds: f64, run: usize| -> Vec<String> {
        let words = format!(
            "{} --keys={} --seconds={seconds} --seed={run} --values={}",
            case.words,
            case.keys,
            path.display()
        );
        words.split_whitespace().map(str::to_string).collect()
    };
    let filled = |kind: Kind| -> Result<Server> {
        let memory_mib = match kind {
            Kind::Memcached => MEMORY_MIB,
            Kind::Ours(_) => case.memory_mib,
        };
        let server = Server::start(kind, memory_mib, 1)?;
        let seconds = share * case.seconds;
        server.bench(&words(seconds, 1))?;
        if case.memory_mib != MEMORY_MIB && kind != Kind::Memcached {
            // Values from before it had learned were dropped instead of compressed.
            for run in 2..6 {
                server.bench(&words(seconds, run))?;
            }
        }
        Ok(server)
    };
    let servers = [filled(Kind::Ours(case.ours))?, filled(Kind::Memcached)?];
    race(&servers, runs, None, |run| {
        let mut words = words(share * case.seconds, 10 + run);
        words.push("--no-fill".to_string());
        words
    })
}

fn findings(cells: &[CellRecord], experiment: &Experiment) -> Vec<Finding> {
    let is_paced = experiment.key == PACED.key;
    let column = if is_paced { P99 } else { SPEED };
    let mut found: Vec<Finding> = cells
        .iter()
        .map(|cell| finding(cell, experiment, column))
        .collect();
    let of = |name: &str| {
        let whole = |cell: &&CellRecord| cell.cell == name && programs::missing(cell).is_none();
        cells.iter().find(whole)
    };
    if let (false, Some(fewest), Some(most)) = (is_paced, of(FEWEST), of(MOST)) {
        let kept = |contender: &str| -> Vec<f64> {
            let (fewest, most) = (
                fewest.column(TASK, contender, column),
                most.column(TASK, contender, column),
            );
            most.iter()
                .zip(&fewest)
                .map(|(most, fewest)| most / fewest)
                .collect()
        };
        let (ours, peers) = (kept(OURS), kept(PEER));
        let interval = Interval::of_quotients(&ours, &peers);
        let middle = |kept: &[f64]| 100.0 * Interval::of_values(kept).middle;
        found.push(Finding {
            question: "kept from the fewest keys to the most".to_string(),
            core: true,
            found: interval,
            verdict: experiment.target.judge(interval),
            note: format!(
                "target {}; ours keeps {:.0} %, memcached {:.0} %",
                experiment.target,
                middle(&ours),
                middle(&peers)
            ),
        });
    }
    found
}

fn finding(cell: &CellRecord, experiment: &Experiment, column: usize) -> Finding {
    if let Some(missing) = programs::missing(cell) {
        return missing;
    }
    let values = |contender, column| cell.column(TASK, contender, column);
    let found = Interval::of_quotients(&values(OURS, column), &values(PEER, column));
    let tail = Interval::of_quotients(&values(OURS, P999), &values(PEER, P999));
    Finding {
        question: cell.cell.clone(),
        core: true,
        found,
        verdict: match found.runs < JUDGED_RUNS {
            true => Verdict::CannotTell,
            false => experiment.target.judge(found),
        },
        note: format!(
            "target {}; 99.9th percentile {:.3} ({:.3} to {:.3}) of memcached's; {}",
            experiment.target,
            tail.middle,
            tail.low,
            tail.high,
            servers::busy(cell)
        ),
    }
}

fn table(records: &Path, experiment: &Experiment) -> Result<Shown> {
    let cells = Record::new(records, experiment.key, COLUMNS).latest()?;
    let found = findings(&cells, experiment);
    let mut shown = tables::judged(tables::origin(records, &cells), found);
    shown.push_str(&servers::medians(&cells));
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::super::servers::row;
    use super::*;

    fn cell(name: &str, parameters: &str, runs: usize, speed: [f64; 2], p99: f64) -> CellRecord {
        let rows = (0..runs).flat_map(|run| {
            let base = 100.0 + run as f64;
            let values = |speed: f64, p99: f64| vec![base * speed, 1.0, 0.5, 1.0, base * p99, 1.0];
            [
                row(OURS, run, runs, values(speed[0], p99)),
                row(PEER, run, runs, values(speed[1], 1.0)),
            ]
        });
        CellRecord::made_up(name, parameters, rows.collect())
    }

    #[test]
    fn latencies_are_to_be_no_longer() {
        use Verdict::{CannotTell, Differs, Holds};
        let check = |parameters: &str, runs: usize, p99: f64, expected: Verdict| {
            let cell = cell("a", parameters, runs, [1.0; 2], p99);
            let found = findings(&[cell], &PACED);
            assert_eq!((found.len(), found[0].verdict), (1, expected), "{found:?}");
        };
        check("keys=1", 10, 0.99, Holds);
        check("keys=1", 10, 1.01, Differs);
        check("keys=1", 2, 0.5, CannotTell);
        check("missing=memcached", 10, 0.5, CannotTell);
    }

    #[test]
    fn speed_is_to_be_kept_over_more_keys() {
        let check = |most: [f64; 2], expected: [Verdict; 3]| {
            let cells = [(FEWEST, [2.0, 1.5]), (MOST, most)];
            let cells = cells.map(|(name, speed)| cell(name, "keys=1", 10, speed, 1.0));
            let found: Vec<Verdict> = findings(&cells, &KEYS)
                .iter()
                .map(|it| it.verdict)
                .collect();
            assert_eq!(found, expected, "{most:?}");
        };
        use Verdict::{Differs, Holds};
        check([1.0, 0.7], [Holds, Holds, Holds]);
        check([1.0, 0.8], [Holds, Holds, Differs]);
        check([0.6, 0.7], [Holds, Differs, Differs]);
        let names = PACED_CASES.iter().chain(KEYS_CASES).map(|case| case.name);
        assert!(names.into_iter().all(|name| !name.contains(',')));
    }
}
