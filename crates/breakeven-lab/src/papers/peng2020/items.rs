//! Items held: how many of a kind a server keeps in its resident memory.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use breakeven::replay::{Pattern, Workload};
use breakeven_memcached::client::Client;

use super::pictures;
use super::servers::{Kind, OURS, PEER, Server, count, peers, stop_learning};
use super::values::{MADE_UP, Set, Split, Value, sets};
use crate::data::SEED;
use crate::experiment::Experiment;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020/items",
    claim: "A full server that is used holds three times as many JSON values of 200 to 1000 bytes in its resident memory as memcached does.",
    source: "this project's own target; the deck compresses small objects for it and shows no figure of items",
    figure: "items for each byte of resident memory over memcached's",
    target: Target::at_least(3.0),
    parameters: &[
        (
            "values",
            "lines of JSON, rows of CSV as JSON objects, lines of dbtext, random bytes. Keys have a prefix and eight \
                digits, and come to four times the memory with their values",
        ),
        ("servers", "128 MiB and one thread each (quick: 16 MiB)"),
        (
            "client",
            "a program that caches: it asks for keys by Zipf 0.99, 200 at once, compares every value and stores the missing ones",
        ),
        (
            "learning",
            "ours first has 12 s of the same load with values that are not measured and 2 ms of rest after each 200 keys, then `learning off`, and is emptied",
        ),
        (
            "counted",
            "values are stored until the first are dropped. Then the server is used until as many more have gone as it \
                holds and their number stands still, for 60 s at most. The figure is `curr_items` of `stats`, by VmRSS \
                of the process",
        ),
    ],
    analysis: "The figure counts everything: index, dictionaries, buffers of the process, and the raw values, which \
        are the newest and the often fetched ones. memcached's share of a slab that its sizes leave empty is part of \
        its memory. Where a set has few rows, each is stored under many keys. Values are compressed one by one, so \
        this teaches the server nothing. The claim is of the two JSON sets. dbtext is to reach 1.8 and random bytes 1, \
        and the count of core cells has all four.",
    run,
    table,
    pictures: pictures::beside,
};

const COLUMNS: &[&str] = &["items", "resident_bytes", "stored_items", "found", "asked"];
const ITEMS: usize = 0;
const RESIDENT_BYTES: usize = 1;
const FOUND: usize = 3;
const ASKED: usize = 4;
const PLAIN: &str = "breakeven-no-dictionaries";
/// Contenders with the options of ours.
const CONTENDERS: [(&str, Kind); 3] = [
    (PEER, Kind::Memcached),
    (OURS, Kind::Ours("")),
    (PLAIN, Kind::Ours("-o no_dictionaries")),
];
/// A cell with less memory is none to judge by: a process's least memory is a share of it.
pub const JUDGED_MIB: usize = 64;
/// Keys asked for, or values stored, at once.
const BATCH: usize = 200;
/// Values that are stored, and keys that are asked for, between two looks at the server.
const STORED_AT_A_TIME: usize = 10_000;
const ASKED_AT_A_TIME: u64 = 200_000;
const TASK: &str = "fill";
/// Keys and values for each byte of memory.
const TIMES_MEMORY: usize = 4;
/// The bytes of a key beside its prefix.
const KEY_BYTES: usize = 10;
/// Seconds that ours has to learn, and that a server is used at most, for each MiB of its memory.
const LEARNING_SECONDS_A_MIB: f64 = 12.0 / 128.0;
const USED_SECONDS_A_MIB: f64 = 60.0 / 128.0;
/// Between two times that it is asked meanwhile: a thread of the lowest priority learns on the same core.
const TAUGHT_REST: Duration = Duration::from_millis(2);

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

/// Returns the record, judged.
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

/// A program that keeps fetched values in a cache.
struct Program<'a> {
    client: Client,
    values: &'a [Value],
    /// A letter of its keys: no two programs ask for the same.
    mark: char,
    keys: usize,
    /// The hottest key is the first one.
    draws: Workload,
    stored: u64,
    /// Keys that it asked for, and the keys that were there.
    asked: u64,
    found: u64,
}

impl<'a> Program<'a> {
    fn new(
        server: &Server,
        values: &'a [Value],
        mark: char,
        memory_mib: usize,
    ) -> Result<Program<'a>> {
        let bytes = values
            .iter()
            .map(|it| it.prefix.len() + KEY_BYTES + it.bytes.len());
        let keys = TIMES_MEMORY * (memory_mib << 20) * values.len() / bytes.sum::<usize>();
        Ok(Program {
            client: server.connect()?,
            values,
            mark,
            keys,
            draws: Workload::new(Pattern::Zipf(0.99), keys as u64, SEED),
            stored: 0,
            asked: 0,
            found: 0,
        })
    }

    /// Returns a key with its value.
    fn item(&self, number: usize) -> (String, &'a [u8]) {
        let value = &self.values[number % self.values.len()];
        let key = format!("{}:{}{number:08}", value.prefix, self.mark);
        (key, &value.bytes)
    }

    fn store(&mut self, numbers: &[usize]) -> Result<()> {
        for some in numbers.chunks(BATCH) {
            let items: Vec<_> = some.iter().map(|number| self.item(*number)).collect();
            self.stored += self.client.store(items.into_iter())? as u64;
        }
        Ok(())
    }

    /// Stores values until the first are dropped.
    fn fill(&mut self) -> Result<()> {
        let before = count(&mut self.client, "evictions")?;
        for first in (0..self.keys).step_by(STORED_AT_A_TIME) {
            let numbers = first..(first + STORED_AT_A_TIME).min(self.keys);
            self.store(&numbers.collect::<Vec<usize>>())?;
            if count(&mut self.client, "evictions")? > before {
                return Ok(());
            }
        }
        bail!("{} values do not fill it", self.keys)
    }

    /// Asks for keys, compares the values that are there and stores the missing ones.
    fn ask(&mut self) -> Result<()> {
        let numbers = self
            .draws
            .by_ref()
            .take(BATCH)
            .map(|number| number as usize);
        let numbers: Vec<usize> = numbers.collect();
        let items: Vec<_> = numbers.iter().map(|number| self.item(*number)).collect();
        let requests = items.iter().map(|(key, _)| format!("get {key}\r\n"));
        self.client.send(requests.collect::<String>().as_bytes())?;
        let mut missed = Vec::new();
        for (number, (key, value)) in numbers.into_iter().zip(items) {
            let is_right = self.client.reply(|reply| match reply.value {
                Some(found) => Some(found == value && reply.word(1) == key.as_bytes()),
                None => (reply.line != b"END").then_some(false),
            })?;
            match is_right {
                Some(true) => ensure!(self.client.line()? == "END", "{key}: two values"),
                Some(false) => bail!("{key}: a wrong value, or none of a get's answers"),
                None => missed.push(number),
            }
        }
        self.asked += BATCH as u64;
        self.found += (BATCH - missed.len()) as u64;
        self.store(&missed)
    }
}

/// Has a server filled and used, ours first with its training values, and counts its items.
fn fill(kind: Kind, split: &Split, memory_mib: usize) -> Result<Vec<f64>> {
    let server = Server::start(kind, memory_mib, 1)?;
    let is_within = |begun: Instant, seconds_a_mib: f64| {
        begun.elapsed().as_secs_f64() < seconds_a_mib * memory_mib as f64
    };
    if kind != Kind::Memcached {
        let mut program = Program::new(&server, &split.taught, 't', memory_mib)?;
        program.fill()?;
        let begun = Instant::now();
        while is_within(begun, LEARNING_SECONDS_A_MIB) {
            program.ask()?;
            std::thread::sleep(TAUGHT_REST);
        }
        stop_learning(&mut program.client)?;
        program.client.send(b"flush_all\r\n")?;
        ensure!(program.client.line()? == "OK", "it is not emptied");
    }
    let mut program = Program::new(&server, &split.held_out, 'h', memory_mib)?;
    program.fill()?;
    let (begun, before) = (Instant::now(), count(&mut program.client, "evictions")?);
    let mut items = 0;
    loop {
        (program.asked, program.found) = (0, 0);
        while program.asked < ASKED_AT_A_TIME {
            program.ask()?;
        }
        let last = std::mem::replace(&mut items, count(&mut program.client, "curr_items")?);
        let have_gone = count(&mut program.client, "evictions")? - before;
        let is_steady = have_gone > items && items.abs_diff(last) * 200 < items;
        if is_steady || !is_within(begun, USED_SECONDS_A_MIB) {
            break;
        }
    }
    let resident_bytes = server.resident_bytes()?;
    let Program {
        stored,
        found,
        asked,
        ..
    } = program;
    let counts = [items, resident_bytes, stored, found, asked];
    Ok(counts.map(|count| count as f64).into())
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
    let found_share = |contender: &str| {
        100.0 * cell.median(TASK, contender, FOUND) / cell.median(TASK, contender, ASKED)
    };
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
            "target {target}; {:.2} million items a GiB, memcached {:.2}; without dictionaries {plain:.2}; found {:.1} %, in memcached's {:.1} %",
            per_gib(OURS),
            per_gib(PEER),
            found_share(OURS),
            found_share(PEER)
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
