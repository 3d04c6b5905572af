//! The same cost of misses on both: clients that fetch missing values elsewhere, and store them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::items::JUDGED_MIB;
use super::servers::{
    self, COLUMNS, HITS, Kind, OURS, PEER, SPEED, Server, TASK, missing_rows, peers, race,
    stop_learning,
};
use super::values::{MADE_UP, Set, sets, write_lines};
use crate::data::SEED;
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020/misses",
    claim: "With the same memory and the same cost of a miss clients get at least 1.3 times as many answers as from memcached.",
    source: "this project's own target; the deck's reason for compressing is that more is found in memory",
    figure: "requests per second over those with memcached",
    target: Target::at_least(1.3),
    parameters: &[
        (
            "values",
            "lines of JSON, rows of CSV as JSON objects, lines of dbtext, random bytes; keys and values come to four times the memory",
        ),
        (
            "servers",
            "64 MiB and one worker thread each, pinned to one processor and the client to another (quick: 16 MiB)",
        ),
        (
            "client",
            "`breakeven bench --shape single --pipeline 1 --skew zipf:0.99 --flat-out --miss 1ms`, 8 connections, 10 runs of 1 s (quick: 2 of 0.1 s), both servers alternating",
        ),
        (
            "learning",
            "ours first has 6 s of the same load with values that are not measured, then `learning off`, and is emptied",
        ),
    ],
    analysis: "Each connection is a program that waits for its fetches, so a miss takes a millisecond more: the share \
        of hits counts. Before the first run all keys were stored once and a load of 4 s ran. The server learned \
        nothing from these values. Where a set has few, each is stored under many keys, and values are compressed one \
        by one. Random bytes are to lose nothing. Each run draws keys of its own.",
    run,
    table,
    pictures: no_pictures,
};

/// The length of a key: data are keys and values.
const KEY_BYTES: f64 = 14.0;
/// Data for each byte of memory.
const TIMES_MEMORY: f64 = 4.0;

/// How much is done.
#[derive(Clone, Copy)]
struct Length {
    memory_mib: usize,
    seconds: f64,
    runs: usize,
    learning_seconds: f64,
    load_seconds: f64,
}

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let length = match laboratory.quick {
        true => Length {
            memory_mib: 16,
            seconds: 0.1,
            runs: 2,
            learning_seconds: 0.2,
            load_seconds: 0.1,
        },
        false => Length {
            memory_mib: 64,
            seconds: 1.0,
            runs: 10,
            learning_seconds: 6.0,
            load_seconds: 4.0,
        },
    };
    let folder = laboratory.data.as_deref().filter(|_| !laboratory.quick);
    let peers = peers();
    let is_missing = peers.starts_with("missing");
    let cells = sets(folder).map(|set| Cell {
        name: set.name.to_string(),
        parameters: format!(
            "values={} memory_mib={} seconds={} runs={} seed={SEED} {peers}",
            set.name, length.memory_mib, length.seconds, length.runs
        ),
        measure: Box::new(move || match is_missing {
            true => Ok(missing_rows(COLUMNS.len())),
            false => measure(&set, folder, length),
        }),
    });
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())?;
    Ok(measured.iter().map(judge).collect())
}

fn table(records: &Path) -> Result<tables::Shown> {
    let shown = tables::table_of(records, EXPERIMENT.key, COLUMNS, |cells| {
        cells.iter().map(judge).collect()
    });
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut shown = shown?;
    shown.push_str(&servers::medians(&cells));
    Ok(shown)
}

fn measure(set: &Set, folder: Option<&Path>, length: Length) -> Result<Vec<Row>> {
    let split = set.load(folder)?;
    let lines = tempfile::tempdir()?;
    let (taught, held_out) = (lines.path().join("taught"), lines.path().join("held-out"));
    write_lines(&split.taught, &taught)?;
    let value_bytes = write_lines(&split.held_out, &held_out)?;
    let data_bytes = TIMES_MEMORY * (length.memory_mib << 20) as f64;
    let keys = (data_bytes / (value_bytes + KEY_BYTES)) as usize;
    let words = |values: &Path, seconds: f64, seed: usize| -> Vec<String> {
        let words = format!(
            "--shape=single --pipeline=1 --skew=zipf:0.99 --flat-out --miss=1ms --connections=8 --keys={keys} --seconds={seconds} --seed={seed}"
        );
        let words = words.split_whitespace().map(str::to_string);
        words
            .chain([format!("--values={}", values.display())])
            .collect()
    };
    let filled = |kind: Kind| -> Result<Server> {
        let server = Server::start(kind, length.memory_mib, 1)?;
        if kind != Kind::Memcached {
            server.bench(&words(&taught, length.learning_seconds, 1))?;
            let mut control = server.connect()?;
            stop_learning(&mut control)?;
            control.send(b"flush_all\r\n")?;
            ensure!(control.line()? == "OK", "it is not emptied");
            // Items of the same second may go too.
            std::thread::sleep(Duration::from_millis(1100));
        }
        server.bench(&words(&held_out, length.load_seconds, 2))?;
        Ok(server)
    };
    let servers = [filled(Kind::Ours(""))?, filled(Kind::Memcached)?];
    race(&servers, length.runs, None, |run| {
        let mut words = words(&held_out, length.seconds, 3 + run);
        words.push("--no-fill".to_string());
        words
    })
}

fn judge(cell: &CellRecord) -> Finding {
    if let Some(missing) = programs::missing(cell) {
        return missing;
    }
    let values = cell.parameter("values");
    let is_random = values == Some("random");
    let target = match is_random {
        true => Target::at_least(1.0),
        false => EXPERIMENT.target,
    };
    let speed = |contender| cell.column(TASK, contender, SPEED);
    let found = Interval::of_quotients(&speed(OURS), &speed(PEER));
    let memory_mib = cell.parameter("memory_mib").and_then(|it| it.parse().ok());
    let is_judged = memory_mib >= Some(JUDGED_MIB) && values != Some(MADE_UP.name);
    let hits = |contender| 100.0 * cell.median(TASK, contender, HITS);
    Finding {
        question: cell.cell.clone(),
        core: true,
        found,
        verdict: match is_judged {
            true => target.judge(found),
            false => Verdict::CannotTell,
        },
        note: format!(
            "target {target}; found in memory {:.1} %, in memcached's {:.1} %",
            hits(OURS),
            hits(PEER)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::servers::row;
    use super::*;

    #[test]
    fn requests_are_compared_where_there_are_enough() {
        let check = |parameters: &str, times: f64, expected: Verdict| {
            let rows = (0..10).flat_map(|run| {
                let base = 1000.0 + f64::from(run);
                let values = |speed: f64| vec![base * speed, 1.0, 0.5, 0.9, 1.0, 1.0];
                [
                    row(OURS, run as usize, 10, values(times)),
                    row(PEER, run as usize, 10, values(1.0)),
                ]
            });
            let found = judge(&CellRecord::made_up("cell", parameters, rows.collect()));
            assert_eq!(found.verdict, expected, "{found:?}");
        };
        check("values=dbtext memory_mib=64", 1.31, Verdict::Holds);
        check("values=dbtext memory_mib=64", 1.29, Verdict::Differs);
        check("values=random memory_mib=64", 1.01, Verdict::Holds);
        check("values=dbtext memory_mib=16", 1.31, Verdict::CannotTell);
        check("values=made-up memory_mib=64", 9.0, Verdict::CannotTell);
        check("missing=memcached", 9.0, Verdict::CannotTell);
    }
}
