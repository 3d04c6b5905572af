//! Gets and sets as fast as they go: the same load on both servers, alternating, each with a processor of its own.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::codecs;
use super::servers::{
    CONTENDERS, CPU, HITS, Kind, OURS, P99, PEER, SPEED, Server, TASK, busy, joules, joules_note,
    missing_rows, peers, race,
};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const GETS: Experiment = Experiment {
    key: "peng2020/gets",
    claim: "Gets of 20 keys are at least 1.1 times as fast as memcached's where values are raw. They are as fast where values are compressed if that pays, and single gets are as fast.",
    source: "this project's own target; the deck's batched load",
    figure: "keys per second over memcached's",
    target: Target::at_least(1.0),
    parameters: &[
        VALUES,
        SERVERS,
        CLIENT,
        (
            "as it pays",
            "ours has three quarters of the values' bytes as memory, so it compresses cold ones; memcached has room for all",
        ),
        (
            "all compressed",
            "the same, with a given cost of a miss of 100 ms, so that hardly any value is stored raw again. It is to \
                reach 0.9 t / (t + d). t is our processor time for a raw key and d that of decoding a value. d is of \
                such values by zstd:3 with a dictionary, in the laboratory's own process before the first run, with \
                the allocation of each value in it",
        ),
    ],
    analysis: "The claim is of a server that has all of its processor. Where the client is busy more than the server, \
        the ratio of keys says little and that of processor time is the better one. All keys are there, but for those \
        in the note. Processor time is that of all threads of the server's process, as both report it themselves.",
    run: |laboratory| run(laboratory, &GETS, GET_CASES),
    table: |records| table(records, &GETS, GET_CASES),
    pictures: no_pictures,
};

pub const SETS: Experiment = Experiment {
    key: "peng2020/sets",
    claim: "Sets take at most 1/1.2 of memcached's processor time, at no fewer in a second.",
    source: "this project's own target",
    figure: "memcached's processor time over ours; keys per second over memcached's",
    target: Target::at_least(1.0),
    parameters: &[VALUES, SERVERS, CLIENT],
    analysis: "Keys are overwritten with other values, mostly of another length. Where memory is full both servers \
        drop the oldest. Where nobody fetches any of these values, ours compresses them for the first turns of its \
        items alone. In the other cells all are stored and then fetched, 20 keys at once by Zipf 0.99, before each run \
        and as long. Ours then compresses new values, and the processor time of a set includes that.",
    run: |laboratory| run(laboratory, &SETS, SET_CASES),
    table: |records| table(records, &SETS, SET_CASES),
    pictures: no_pictures,
};

const VALUES: (&str, &str) = (
    "values",
    "made-up JSON of 200 to 1000 bytes under 200,000 keys (quick: 5,000), all compared",
);
const SERVERS: (&str, &str) = (
    "servers",
    "one worker thread, 1024 MiB, pinned to one processor and the client to another",
);
const CLIENT: (&str, &str) = (
    "client",
    "`breakeven bench --flat-out`, 50 connections, 10 runs of 0.5 s (quick: 2 of 0.1 s), both servers alternating",
);

/// Records of before the 99.9th percentile have no column of it.
const COLUMNS: &[&str] = super::servers::COLUMNS.split_at(P99 + 1).0;
/// The memory of all servers unless a cell says otherwise.
const MEMORY_MIB: usize = 1024;
/// The cell whose processor time for a key is the one of raw values, and the one whose values are decoded.
const RAW: &str = "20 keys raw";
const COMPRESSED: &str = "20 keys all compressed";
/// The share to be kept of the speed that decoding leaves.
const KEPT: f64 = 0.9;
/// The row with the cost of decoding a value.
const DECODE: &str = "decode";
/// The mean length of the made-up values with key and header, by which memory is made scarce.
const ITEM_BYTES: usize = 640;

/// How much memory our server has.
#[derive(Clone, Copy, PartialEq)]
enum Memory {
    Plenty,
    /// Memory of so many percent of the values' bytes; memcached has plenty.
    Scarce(usize),
    /// Both have so many percent of the values' bytes.
    Short(usize),
}

/// One cell.
struct Case {
    name: &'static str,
    words: &'static [&'static str],
    /// Requests before each run that are not measured; all values are stored first.
    before: Option<&'static [&'static str]>,
    ours: &'static str,
    memory: Memory,
    threads: usize,
    /// The targets of speed, and of processor time.
    speed: Option<f64>,
    cpu: Option<f64>,
}

const CASE: Case = Case {
    name: "",
    words: &[],
    before: None,
    ours: "",
    memory: Memory::Plenty,
    threads: 1,
    speed: None,
    cpu: None,
};

const GET_CASES: &[Case] = &[
    Case {
        name: RAW,
        words: &["--shape=batched"],
        ours: "-o no_compression",
        speed: Some(1.1),
        ..CASE
    },
    Case {
        name: "20 keys zipf as it pays",
        words: &["--shape=batched", "--skew=zipf:0.99"],
        memory: Memory::Scarce(75),
        speed: Some(1.0),
        ..CASE
    },
    Case {
        name: "1 key 8 at once",
        words: &["--shape=single"],
        ours: "-o no_compression",
        speed: Some(1.0),
        ..CASE
    },
    Case {
        name: COMPRESSED,
        words: &["--shape=batched"],
        ours: "-o miss_microseconds=100000",
        memory: Memory::Scarce(75),
        ..CASE
    },
    Case {
        name: "20 keys raw two threads",
        words: &["--shape=batched"],
        ours: "-o no_compression",
        threads: 2,
        ..CASE
    },
    Case {
        name: "20 keys raw 1000 connections",
        words: &["--shape=batched", "--connections=1000"],
        ours: "-o no_compression",
        ..CASE
    },
    Case {
        name: "20 keys raw 1 connection",
        words: &["--shape=batched", "--connections=1"],
        ours: "-o no_compression",
        ..CASE
    },
];

const SET_CASES: &[Case] = &[
    Case {
        name: "8 at once",
        words: &["--shape=sets"],
        speed: Some(1.0),
        cpu: Some(1.2),
        ..CASE
    },
    Case {
        name: "1 at once",
        words: &["--shape=sets", "--pipeline=1"],
        ..CASE
    },
    Case {
        name: "8 at once memory full",
        words: &["--shape=sets"],
        memory: Memory::Short(40),
        ..CASE
    },
    Case {
        name: "8 at once memory full and fetched",
        words: &["--shape=sets"],
        before: Some(&["--shape=batched", "--skew=zipf:0.99"]),
        memory: Memory::Short(40),
        ..CASE
    },
];

/// How much is done.
#[derive(Clone, Copy)]
struct Length {
    keys: usize,
    seconds: f64,
    runs: usize,
    /// How long a load is before anything is measured, and how often our server has so many seconds to learn from it.
    load_seconds: f64,
    learnings: usize,
    learning_seconds: f64,
}

impl Length {
    fn words(&self, words: &[&str], seconds: f64) -> Vec<String> {
        let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
        words.extend([
            "--flat-out".to_string(),
            format!("--keys={}", self.keys),
            format!("--seconds={seconds}"),
        ]);
        words
    }

    fn memory_mib(&self, percent: usize) -> usize {
        ((self.keys * ITEM_BYTES * percent / 100) >> 20).max(16)
    }
}

fn run(
    laboratory: &Laboratory,
    experiment: &Experiment,
    cases: &'static [Case],
) -> Result<Vec<Finding>> {
    let length = match laboratory.quick {
        true => Length {
            keys: 5000,
            seconds: 0.1,
            runs: 2,
            load_seconds: 0.1,
            learnings: 2,
            learning_seconds: 0.3,
        },
        false => Length {
            keys: 200_000,
            seconds: 0.5,
            runs: 10,
            load_seconds: 1.0,
            learnings: 4,
            learning_seconds: 1.0,
        },
    };
    let peers = peers();
    let is_missing = peers.starts_with("missing");
    // A quick run shows that everything works by the first cells alone.
    let shown = if laboratory.quick { 2 } else { cases.len() };
    let cells = cases[..shown].iter().map(|case| Cell {
        name: case.name.to_string(),
        parameters: format!(
            "keys={} seconds={} runs={} {peers}",
            length.keys, length.seconds, length.runs
        ),
        measure: Box::new(move || match is_missing {
            true => Ok(missing_rows(COLUMNS.len())),
            false => measure(case, length),
        }),
    });
    let cells = laboratory.measure(experiment.key, COLUMNS, cells.collect())?;
    Ok(findings(&cells, cases))
}

/// Starts a server with all values in it.
fn filled(case: &Case, length: Length, kind: Kind) -> Result<Server> {
    let memory_mib = match (case.memory, kind) {
        (Memory::Short(percent), _) | (Memory::Scarce(percent), Kind::Ours(_)) => {
            length.memory_mib(percent)
        }
        _ => MEMORY_MIB,
    };
    let server = Server::start(kind, memory_mib, case.threads)?;
    let words = length.words(case.before.unwrap_or(case.words), length.load_seconds);
    server.bench(&words)?;
    if case.memory != Memory::Plenty && matches!(kind, Kind::Ours(_)) {
        // Values from before it had learned were dropped instead of compressed.
        for _ in 0..length.learnings {
            std::thread::sleep(Duration::from_secs_f64(length.learning_seconds));
            server.bench(&words)?;
        }
    }
    Ok(server)
}

fn measure(case: &Case, length: Length) -> Result<Vec<Row>> {
    let servers = [
        filled(case, length, Kind::Ours(case.ours))?,
        filled(case, length, Kind::Memcached)?,
    ];
    let before = case.before.map(|it| length.words(it, length.seconds));
    let mut words = length.words(case.words, length.seconds);
    words.push("--no-fill".to_string());
    let decode_us = (case.name == COMPRESSED)
        .then(codecs::decode_us)
        .transpose()?;
    let mut rows = race(&servers, length.runs, before.as_deref(), |_| words.clone())?;
    rows.iter_mut()
        .for_each(|row| row.values.truncate(COLUMNS.len()));
    if let Some(decode_us) = decode_us {
        let mut values = vec![0.0; COLUMNS.len()];
        values[CPU] = decode_us;
        rows.push(Row::new(DECODE, OURS, (0, 1), values));
    }
    Ok(rows)
}

/// Returns the records of gets and of sets, judged, each with its word.
pub fn recorded(records: &Path) -> Result<Vec<(&'static str, Finding)>> {
    let of = |word, experiment: &Experiment, cases| -> Result<Vec<_>> {
        let cells = Record::new(records, experiment.key, COLUMNS).latest()?;
        Ok(findings(&cells, cases)
            .into_iter()
            .map(|it| (word, it))
            .collect())
    };
    Ok([of("gets", &GETS, GET_CASES)?, of("sets", &SETS, SET_CASES)?].concat())
}

fn findings(cells: &[CellRecord], cases: &[Case]) -> Vec<Finding> {
    let raw = cells.iter().find(|cell| cell.cell == RAW);
    cells
        .iter()
        .flat_map(|cell| findings_of(cell, raw, cases))
        .collect()
}

/// Returns the target where every value is decoded, if the cost of that is known.
fn compressed_aim(cell: &CellRecord, raw: Option<&CellRecord>) -> Option<f64> {
    let decode = *cell.column(DECODE, OURS, CPU).first()?;
    let key = raw?.median(TASK, OURS, CPU);
    Some(KEPT * key / (key + decode)).filter(|aim| aim.is_finite())
}

fn findings_of(cell: &CellRecord, raw: Option<&CellRecord>, cases: &[Case]) -> Vec<Finding> {
    let case = cases
        .iter()
        .find(|case| case.name == cell.cell)
        .unwrap_or(&CASE);
    let speed = case.speed.or_else(|| compressed_aim(cell, raw));
    let missing = cell.parameter("missing");
    let finding = |what: &str, aim: Option<f64>, column: usize, [over, under]: [&str; 2]| {
        let target = Target::at_least(aim.unwrap_or(1.0));
        let values = |contender| cell.column(TASK, contender, column);
        let found = match missing {
            Some(_) => Interval::exact(f64::NAN),
            None => Interval::of_quotients(&values(over), &values(under)),
        };
        Finding {
            question: format!("{} {what}", cell.cell),
            core: aim.is_some(),
            found,
            verdict: match missing {
                Some(_) => Verdict::CannotTell,
                None => target.judge(found),
            },
            note: match missing {
                Some(missing) => format!("not measured without {}", missing.replace('+', " and ")),
                None => format!("target {target}; {}", busy(cell)),
            },
        }
    };
    vec![
        finding("keys", speed, SPEED, [OURS, PEER]),
        finding("processor time", case.cpu, CPU, [PEER, OURS]),
    ]
}

fn table(records: &Path, experiment: &Experiment, cases: &[Case]) -> Result<Shown> {
    let cells = Record::new(records, experiment.key, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), findings(&cells, cases));
    let whole: Vec<&CellRecord> = cells
        .iter()
        .filter(|cell| cell.parameter("missing").is_none())
        .collect();
    if whole.is_empty() {
        return Ok(shown);
    }
    shown.push_str(
        "\nMedians of the runs: keys per second, the server's processor time and joules for a million keys, the 99th \
         percentile of requests, and keys that were there.",
    );
    shown.push_str(&joules_note(&cells));
    shown.push_str(
        "\n\n| cell | server | keys/s | core s/M keys | J/M keys | p99 us | hits |\n|---|---|---:|---:|---:|---:|---:|\n",
    );
    for cell in whole {
        for contender in CONTENDERS {
            let of = |column| cell.median(TASK, contender, column);
            shown.push_str(&format!(
                "| {} | {contender} | {:.0} | {:.2} | {} | {:.0} | {:.1} % |\n",
                cell.cell,
                of(SPEED),
                of(CPU),
                joules(cell, of(CPU)),
                of(P99),
                100.0 * of(HITS),
            ));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::super::servers::row;
    use super::*;

    #[test]
    fn speed_and_processor_time_have_targets_of_their_own() {
        let check = |case: &str, parameters: &str, speed: f64, cpu: f64, expected: [Verdict; 2]| {
            let rows = (0..10).flat_map(|run| {
                let base = 100.0 + f64::from(run);
                let values = |speed: f64, cpu: f64| vec![base * speed, base * cpu, 0.5, 1.0, 1.0];
                [
                    row(OURS, run as usize, 10, values(speed, cpu)),
                    row(PEER, run as usize, 10, values(1.0, 1.0)),
                ]
            });
            let cell = CellRecord::made_up(case, parameters, rows.collect());
            let cases = if case.contains("keys") {
                GET_CASES
            } else {
                SET_CASES
            };
            let found = findings_of(&cell, None, cases);
            assert_eq!([found[0].verdict, found[1].verdict], expected, "{found:?}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("20 keys raw", "peer=x", 1.15, 1.5, [Holds, Differs]);
        check("20 keys raw", "peer=x", 1.05, 0.5, [Differs, Holds]);
        check("8 at once", "peer=x", 1.0, 0.8, [Holds, Holds]);
        check("8 at once", "peer=x", 0.9, 0.9, [Differs, Differs]);
        check(
            "8 at once",
            "missing=memcached",
            9.0,
            0.1,
            [CannotTell, CannotTell],
        );
        // Decoding takes as long as a raw key: less than half of the speed is enough.
        let of = |name: &str, speed: f64, more: Option<Row>| {
            let rows = (0..10).flat_map(|run| {
                let base = 100.0 + f64::from(run);
                let values = |speed: f64| vec![base * speed, 2.0, 0.5, 1.0, 1.0];
                [(OURS, speed), (PEER, 1.0)]
                    .map(|(who, speed)| row(who, run as usize, 10, values(speed)))
            });
            CellRecord::made_up(name, "peer=x", rows.chain(more).collect())
        };
        let decode = || Row::new(DECODE, OURS, (0, 1), vec![0.0, 2.0, 0.0, 0.0, 0.0]);
        for (speed, expected) in [(0.46, Holds), (0.44, Differs)] {
            let cells = [of(RAW, 1.2, None), of(COMPRESSED, speed, Some(decode()))];
            let found = &findings(&cells, GET_CASES)[2];
            assert_eq!((found.core, found.verdict), (true, expected), "{found:?}");
        }
        assert!(
            GET_CASES
                .iter()
                .chain(SET_CASES)
                .all(|case| !case.name.contains(','))
        );
    }
}
