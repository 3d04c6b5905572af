//! Items held: how many of a kind a server keeps in its resident memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use breakeven_memcached::client::Client;

use super::pictures;
use super::servers::{Kind, OURS, PEER, Server, count, peers, stop_learning};
use super::values::{MADE_UP, Set, Split, Value, sets};
use crate::data::{Random, SEED};
use crate::experiment::Experiment;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020/items",
    claim: "A full server holds three times as many JSON values of 200 to 1000 bytes in its resident memory as memcached does.",
    source: "this project's own target; the deck compresses small objects for it and shows no figure of items",
    figure: "items for each byte of resident memory over memcached's",
    target: Target::at_least(3.0),
    parameters: &[
        (
            "values",
            "lines of JSON, rows of CSV as JSON objects, lines of dbtext, random bytes; keys of a prefix and eight digits",
        ),
        ("servers", "128 MiB and one thread each (quick: 16 MiB)"),
        (
            "learning",
            "the server first stores values that are not measured, each asked for in vain before, for 12 s and till they come to twice its memory with keys and 50 bytes beside each; then it is told `learning off`",
        ),
        (
            "counted",
            "once all of those have gone and the number of items stands still: `curr_items` of `stats`, by VmRSS of the process; a sample of keys is fetched and compared",
        ),
    ],
    analysis: "Everything is counted: index, dictionaries, buffers of the process, the newest values, which are raw. memcached's share of a slab that \
        its sizes leave empty is part of its memory. Where a set has few rows, each is stored under many keys; values are compressed one by one, so \
        that this teaches the server nothing. The claim is of the two JSON sets; dbtext is to reach 1.8 and random bytes 1, and the count of core cells has all four.",
    run,
    table,
    pictures: pictures::beside,
};

const COLUMNS: &[&str] = &["items", "resident_bytes", "stored_items", "found", "asked"];
const ITEMS: usize = 0;
const RESIDENT_BYTES: usize = 1;
const PLAIN: &str = "breakeven-no-dictionaries";
/// Contenders with the options of ours.
const CONTENDERS: [(&str, Kind); 3] = [
    (PEER, Kind::Memcached),
    (OURS, Kind::Ours("")),
    (PLAIN, Kind::Ours("-o no_dictionaries")),
];
/// A cell with less memory is none to judge by: what a process takes at least is a share of it.
pub const JUDGED_MIB: usize = 64;
/// Items stored with one request.
const BATCH: usize = 200;
/// Items stored between two pauses, and between two looks at the server.
const TAUGHT_AT_A_TIME: usize = 1000;
const COUNTED_AT_A_TIME: usize = 50_000;
const TASK: &str = "fill";
/// What an item takes beside its value at least, in memcached: of small values it fills the memory.
const BYTES_BESIDE: usize = 70;
/// Seconds that a server has to learn, for each MiB of its memory.
const LEARNING_SECONDS_A_MIB: f64 = 12.0 / 128.0;
/// One key in so many is fetched at the end.
const ASKED_ONE_IN: usize = 50;

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let memory_mib = if laboratory.quick { 16 } else { 128 };
    let folder = laboratory.data.as_deref().filter(|_| !laboratory.quick);
    let peers = peers();
    let is_missing = peers.starts_with("missing");
    let cells = sets(folder).map(|set| Cell {
        name: set.name.to_string(),
        parameters: format!(
            "values={} memory_mib={memory_mib} seed={SEED} {peers}",
            set.name
        ),
        measure: Box::new(move || match is_missing {
            true => Ok(CONTENDERS
                .map(|(name, _)| row(name, vec![f64::NAN; COLUMNS.len()]))
                .into()),
            false => measure(&set, folder, memory_mib),
        }),
    });
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())?;
    Ok(measured.iter().map(judge).collect())
}

fn table(records: &Path) -> Result<tables::Shown> {
    tables::table_of(records, EXPERIMENT.key, COLUMNS, |cells| {
        cells.iter().map(judge).collect()
    })
}

/// Returns what is recorded, judged.
pub fn recorded(records: &Path) -> Result<Vec<Finding>> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    Ok(cells.iter().map(judge).collect())
}

fn row(contender: &str, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (0, 1), values)
}

fn measure(set: &Set, folder: Option<&Path>, memory_mib: usize) -> Result<Vec<Row>> {
    let split = set.load(folder)?;
    let rows = CONTENDERS
        .iter()
        .map(|(name, kind)| Ok(row(name, fill(*kind, &split, memory_mib)?)));
    rows.collect()
}

fn key(value: &Value, mark: char, number: usize) -> String {
    format!("{}:{mark}{number:08}", value.prefix)
}

/// Stores values under so many keys from a number on, and returns their bytes.
fn store(
    client: &mut Client,
    values: &[Value],
    mark: char,
    from: usize,
    count: usize,
) -> Result<usize> {
    let mut bytes = 0;
    for start in (from..from + count).step_by(BATCH) {
        let items = (start..(start + BATCH).min(from + count)).map(|number| {
            let value = &values[number % values.len()];
            bytes += value.bytes.len();
            (key(value, mark, number), &value.bytes[..])
        });
        client.store(items)?;
    }
    Ok(bytes)
}

/// Fills a server, first with what it may learn from and then with what is counted.
fn fill(kind: Kind, split: &Split, memory_mib: usize) -> Result<Vec<f64>> {
    let server = Server::start(kind, memory_mib, 1)?;
    let mut client = server.connect()?;
    teach(&mut client, kind, split, memory_mib)?;
    let (first, before) = (
        count(&mut client, "curr_items")?,
        count(&mut client, "evictions")?,
    );
    let (mut stored, mut last) = (0, 0);
    loop {
        store(&mut client, &split.held_out, 'h', stored, COUNTED_AT_A_TIME)?;
        stored += COUNTED_AT_A_TIME;
        let items = count(&mut client, "curr_items")?;
        let have_gone = count(&mut client, "evictions")? - before;
        let is_steady = items.abs_diff(last) * 200 < items;
        last = items;
        if have_gone > first && is_steady && stored as u64 > 2 * items {
            break;
        }
    }
    let (found, asked) = ask(&mut client, split, stored)?;
    let items = count(&mut client, "curr_items")?;
    let resident_bytes = server.resident_bytes()?;
    let counts = [items, resident_bytes, stored as u64, found, asked];
    Ok(counts.map(|count| count as f64).into())
}

/// Stores what may be learned from, as a program does that asks first, and lets the server learn.
fn teach(client: &mut Client, kind: Kind, split: &Split, memory_mib: usize) -> Result<()> {
    let (mut taught, mut bytes) = (0, 0);
    let begun = Instant::now();
    let is_ours = matches!(kind, Kind::Ours(_));
    let seconds = LEARNING_SECONDS_A_MIB * memory_mib as f64;
    let is_learning = || is_ours && begun.elapsed().as_secs_f64() < seconds;
    while bytes < 2 * (memory_mib << 20) || is_learning() {
        let mut asked = Vec::new();
        for number in taught..taught + TAUGHT_AT_A_TIME {
            let value = &split.taught[number % split.taught.len()];
            asked.extend(format!("get {}\r\n", key(value, 't', number)).into_bytes());
        }
        client.send(&asked)?;
        for _ in 0..TAUGHT_AT_A_TIME {
            ensure!(
                client.line()? == "END",
                "a key is there that was not stored"
            );
        }
        bytes += store(client, &split.taught, 't', taught, TAUGHT_AT_A_TIME)?;
        bytes += TAUGHT_AT_A_TIME * BYTES_BESIDE;
        taught += TAUGHT_AT_A_TIME;
        if is_ours {
            // A thread of low priority trains meanwhile.
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    match is_ours {
        true => stop_learning(client),
        false => Ok(()),
    }
}

/// Fetches a sample of the keys and compares what is there. Returns how many were, and how many were asked for.
fn ask(client: &mut Client, split: &Split, stored: usize) -> Result<(u64, u64)> {
    let (mut found, mut asked) = (0, 0);
    let mut random = Random::new(SEED);
    for number in (0..stored).step_by(ASKED_ONE_IN) {
        let number = number + random.below(ASKED_ONE_IN as u64) as usize;
        let value = &split.held_out[number % split.held_out.len()];
        let key = key(value, 'h', number);
        client.send(format!("get {key}\r\n").as_bytes())?;
        asked += 1;
        let is_there = client.reply(|reply| reply.value.map(|found| found == value.bytes))?;
        if let Some(is_right) = is_there {
            ensure!(is_right, "{key}: a wrong value");
            found += 1;
            ensure!(client.line()? == "END", "{key}: more than one value");
        }
    }
    ensure!(found > 0, "none of {asked} keys is there");
    Ok((found, asked))
}

fn judge(cell: &CellRecord) -> Finding {
    let density = |contender: &str| {
        let items = cell.median(TASK, contender, ITEMS);
        items / cell.median(TASK, contender, RESIDENT_BYTES)
    };
    let target = match cell.parameter("values") {
        Some("dbtext") => Target::at_least(1.8),
        Some("random") => Target::at_least(1.0),
        _ => EXPERIMENT.target,
    };
    if let Some(missing) = programs::missing(cell) {
        return missing;
    }
    let found = Interval::exact(density(OURS) / density(PEER));
    let memory_mib = cell.parameter("memory_mib").and_then(|it| it.parse().ok());
    let is_judged =
        memory_mib >= Some(JUDGED_MIB) && cell.parameter("values") != Some(MADE_UP.name);
    let plain = density(PLAIN) / density(PEER);
    let per_gib = |contender: &str| density(contender) * f64::from(1 << 30) / 1e6;
    Finding {
        question: cell.cell.clone(),
        core: true,
        found,
        verdict: match is_judged {
            true => target.judge(found),
            false => Verdict::CannotTell,
        },
        note: format!(
            "target {target}; {:.2} million items a GiB, memcached {:.2}; without dictionaries {plain:.2}",
            per_gib(OURS),
            per_gib(PEER)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_for_each_byte_are_compared_where_there_are_enough() {
        let check = |parameters: &str, ours: f64, expected: Verdict| {
            let rows = [(PEER, 100.0), (OURS, ours), (PLAIN, 150.0)];
            let rows =
                rows.map(|(contender, items)| row(contender, vec![items, 1000.0, 1.0, 1.0, 1.0]));
            let found = judge(&CellRecord::made_up("cell", parameters, rows.into()));
            assert_eq!(found.verdict, expected, "{found:?}");
            assert!(
                parameters.starts_with("missing")
                    || (found.found.middle - ours / 100.0).abs() < 1e-9
            );
        };
        check("values=json-flights memory_mib=128", 310.0, Verdict::Holds);
        check(
            "values=json-flights memory_mib=128",
            290.0,
            Verdict::Differs,
        );
        check("values=dbtext memory_mib=128", 190.0, Verdict::Holds);
        check("values=random memory_mib=128", 99.0, Verdict::Differs);
        check(
            "values=json-flights memory_mib=16",
            310.0,
            Verdict::CannotTell,
        );
        check("values=made-up memory_mib=128", 310.0, Verdict::CannotTell);
        check("missing=memcached", 310.0, Verdict::CannotTell);
    }
}
