//! The deck's own comparison: the bytes that each way of finding repeats would store of trees and of their clones.
//!
//! The others are models: files are read, cut, hashed and compressed in memory, and of equal units one is counted. Their
//! metadata, sectors and tables are not, which is all in their favour; ours are the bytes of a vault, with everything.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Compressor, Method};

use super::stores::{self, Program, Store};
use super::trees::{self, Tree};
use crate::chart::{self, Quantity, Value, Words};
use crate::data::SEED;
use crate::experiment::{Experiment, Picture};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::programs;
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020-dedup/deck",
    claim: "Of a library, its versions and its clones a vault stores fewer bytes than restic, borg, whole files, or fixed chunks of 4 KiB to 1 MiB, with or without compression.",
    source: "deck, \"Steam data compression\", procedure 2 and 3; its figures are not given as numbers",
    figure: "bytes of a vault over those of the best other of the same trees",
    target: Target {
        low: 0.0,
        high: 1.0,
    },
    parameters: &[
        (
            "trees",
            "48 MiB each of a game's data (Debian's neverball-data); eight versions of a program's sources, this \
                one's; headers; documents; programs in five copies of a folder; two archives; two images; small files \
                (quick: 1 MiB of headers and documents). Each once, and cloned to 5 and 10 copies",
        ),
        (
            "games",
            "the data of four games of different engines, each in two versions of Debian's: freedoom (Doom's engine), \
                extremetuxracer, xmoto, colobot. Each once, and cloned to 5 and 10 copies. `tools/setup games` fetches \
                them",
        ),
        (
            "models",
            "whole files, and fixed chunks of 4 KiB, 128 KiB and 1 MiB from the start of each file, raw, by lz4:1 and \
                by zstd:3. 4 KiB with lz4 stand for VDO, 128 KiB with lz4 for lessfs and ZFS. zstd:3 and 1 MiB stand \
                for ZFS so tuned, raw chunks of 1 MiB for a game shop's downloads",
        ),
        (
            "programs",
            "restic --compression auto and borg -C lz4, as in the race",
        ),
        (
            "ours",
            "`breakeven vault` with its default prices and its best, all files of the vault counted",
        ),
    ],
    analysis: "Debian's packages of games are not installers with their own compression, but their files are: the ratio of a first copy is small. The deck's library is 200 GB from Steam, which nobody can fetch twice, and its winner, BitMarker, is proprietary: neither is reproduced. The models pay for data alone: \
        real ones keep tables, and round up to sectors.",
    run: |laboratory| Ok(judged(&measure(laboratory)?)),
    table,
    pictures,
};

const KEY: &str = EXPERIMENT.key;
const COLUMNS: &[&str] = &["raw_bytes", "stored_bytes"];
const RAW: usize = 0;
const STORED: usize = 1;
const TASK: &str = "tree";
const CLONES: [u64; 3] = [1, 5, 10];
const OURS: [Program; 2] = [Program::Vault("default"), Program::Vault("best")];
const PEERS: [Program; 2] = [Program::Restic("auto"), Program::Borg("lz4")];
const METHODS: [&str; 3] = ["store", "lz4:1", "zstd:3"];
/// Units, by their name: so many bytes, or whole files.
const UNITS: [(&str, usize); 4] = [
    ("files", usize::MAX),
    ("4 KiB", 4 << 10),
    ("128 KiB", 128 << 10),
    ("1 MiB", 1 << 20),
];

fn model(unit: &str, method: &str) -> String {
    format!("{unit} {method}")
}

/// Returns the models and the programs that a vault is compared with.
fn others() -> Vec<String> {
    let of = |(unit, _): &(&str, usize)| METHODS.map(|method| model(unit, method));
    let models = UNITS.iter().flat_map(of);
    models.chain(PEERS.map(|it| it.name())).collect()
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bytes = if laboratory.quick { 1 << 20 } else { 48 << 20 };
    let clones = if laboratory.quick {
        &CLONES[..2]
    } else {
        &CLONES
    };
    let peers = stores::peers();
    let versions = trees::game_versions().filter(|_| !laboratory.quick);
    let games = versions.iter().flat_map(|versions| {
        let of_game = format!("seed={SEED} games={versions} {peers}");
        trees::GAMES.iter().map(move |game| (game, of_game.clone()))
    });
    let of_tree = format!("bytes={bytes} seed={SEED} {peers}");
    let trees = trees::all(laboratory.quick).iter();
    let trees = trees.map(|tree| (tree, of_tree.clone())).chain(games);
    let are_missing = peers.starts_with("missing");
    let cells = trees.flat_map(|(tree, parameters)| {
        clones.iter().map(move |clones| Cell {
            name: format!("{} x{clones}", tree.name),
            parameters: format!("clones={clones} {parameters}"),
            measure: Box::new(move || match are_missing {
                true => Ok(Vec::new()),
                false => rows(tree, bytes, *clones),
            }),
        })
    });
    laboratory.measure(KEY, COLUMNS, cells.collect())
}

fn rows(tree: &Tree, bytes: u64, clones: u64) -> Result<Vec<Row>> {
    let scratch = trees::scratch()?;
    let folder = scratch.path().join("tree");
    fs::create_dir_all(folder.join("1"))?;
    (tree.make)(&folder.join("1"), bytes)?;
    for clone in 2..=clones {
        copy(&folder.join("1"), &folder.join(clone.to_string()))?;
    }
    let (raw_bytes, _) = trees::measure(&folder)?;
    let row = |contender: String, stored_bytes: u64| Row {
        task: TASK.to_string(),
        run: 1,
        runs: 1,
        contender,
        values: vec![raw_bytes as f64, stored_bytes as f64],
    };
    let mut rows = Vec::new();
    for (unit, unit_bytes) in UNITS {
        let counts = count(&folder, unit_bytes)?;
        let of = |(method, bytes): (&&str, u64)| row(model(unit, method), bytes);
        rows.extend(METHODS.iter().zip(counts).map(of));
    }
    for program in OURS.into_iter().chain(PEERS) {
        let store = Store::create(program, scratch.path().join("store"))?;
        store.add(&folder, "one")?;
        rows.push(row(program.name(), store.stored_bytes()?));
    }
    Ok(rows)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("cp");
    command.arg("-a").arg(from).arg(to).stdin(Stdio::null());
    let status = command.status().context("start cp")?;
    ensure!(status.success(), "cp: {status}");
    Ok(())
}

/// Returns the bytes of unlike units of the files below a folder, by method. Zeros take none.
fn count(folder: &Path, unit_bytes: usize) -> Result<[u64; METHODS.len()]> {
    let methods: Vec<Method> = METHODS.map(|it| it.parse().expect("a method")).into();
    let (mut seen, mut compressor) = (HashSet::new(), Compressor::new());
    let (mut counts, mut room) = ([0; METHODS.len()], Vec::new());
    for file in trees::files(folder)? {
        let content = fs::read(&file)?;
        for unit in content.chunks(unit_bytes.min(content.len().max(1))) {
            let mut hasher = DefaultHasher::new();
            unit.hash(&mut hasher);
            if unit.iter().all(|byte| *byte == 0) || !seen.insert((unit.len(), hasher.finish())) {
                continue;
            }
            room.resize(unit.len(), 0);
            for (count, method) in counts.iter_mut().zip(&methods) {
                let compressed = compressor.compress(*method, unit, &mut room)?;
                *count += compressed.unwrap_or(unit.len()) as u64;
            }
        }
    }
    Ok(counts)
}

/// Returns the bytes that a contender stored, infinite where it was not measured.
fn stored(cell: &CellRecord, contender: &str) -> f64 {
    match cell.column(TASK, contender, STORED).is_empty() {
        true => f64::INFINITY,
        false => cell.median(TASK, contender, STORED),
    }
}

/// A cell of games has all of them.
fn is_game(cell: &CellRecord) -> bool {
    cell.parameter("games").is_some()
}

fn is_small(cell: &CellRecord) -> bool {
    !is_game(cell) && super::race::is_small(cell)
}

fn clones_of(cell: &CellRecord) -> &str {
    cell.parameter("clones").unwrap_or("1")
}

/// Returns the other of least bytes over some cells, and its bytes.
fn least(cells: &[&CellRecord]) -> (String, f64) {
    let sums = others().into_iter().map(|other| {
        let sum = cells.iter().map(|cell| stored(cell, &other)).sum::<f64>();
        (other, sum)
    });
    let least = sums.min_by(|one, other| one.1.total_cmp(&other.1));
    least.expect("there are others")
}

fn judged(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |question: String, core: bool, cells: &[&CellRecord]| {
        let ours = OURS[0].name();
        let ours: f64 = cells.iter().map(|cell| stored(cell, &ours)).sum();
        let (model, theirs) = least(cells);
        let found = Interval::exact(ours / theirs);
        Finding {
            question,
            core,
            found,
            verdict: match cells.iter().any(|cell| is_small(cell)) {
                true => Verdict::CannotTell,
                false => EXPERIMENT.target.judge(found),
            },
            note: format!("{:.2} MB; {model} {:.2} MB", ours / 1e6, theirs / 1e6),
        }
    };
    let missing: Vec<Finding> = cells.iter().filter_map(programs::missing).collect();
    if !missing.is_empty() || cells.is_empty() {
        return missing;
    }
    let kinds = ["sum", "games"];
    let sums = kinds
        .iter()
        .flat_map(|kind| CLONES.map(|clones| (kind, clones)));
    let sums = sums.filter_map(|(kind, clones)| {
        let is_same = |cell: &&CellRecord| {
            clones_of(cell) == clones.to_string() && is_game(cell) == (*kind == "games")
        };
        let same: Vec<_> = cells.iter().filter(is_same).collect();
        (!same.is_empty()).then(|| finding(format!("{kind} x{clones}"), true, &same))
    });
    let single = cells
        .iter()
        .map(|cell| finding(cell.cell.clone(), false, &[cell]));
    sums.chain(single).collect()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, KEY, COLUMNS).latest()?;
    let mut shown = tables::judged(tables::origin(records, &cells), judged(&cells));
    let cells: Vec<_> = cells
        .iter()
        .filter(|it| it.parameter("missing").is_none())
        .collect();
    if cells.is_empty() {
        return Ok(shown);
    }
    let names: Vec<String> = others()
        .into_iter()
        .chain(OURS.map(|it| it.name()))
        .collect();
    shown.push_str("\nMB stored; `store` compresses nothing.\n\n| tree | MB |");
    shown.push_str(&names.join(" | "));
    shown.push_str(" |\n|---|---:|");
    shown.push_str(&"---:|".repeat(names.len()));
    for cell in cells {
        let raw = cell.median(TASK, &names[0], RAW) / 1e6;
        shown.push_str(&format!("\n| {} | {raw:.1} |", cell.cell));
        for name in &names {
            shown.push_str(&match stored(cell, name) {
                bytes if bytes.is_finite() => format!(" {:.2} |", bytes / 1e6),
                _ => " - |".to_string(),
            });
        }
    }
    shown.push_str("\n");
    Ok(shown)
}

/// The models that are drawn, each with a class of the palette.
const DRAWN: [(&str, &str, &str); 5] = [
    ("files store", "store-1", "whole files"),
    ("4 KiB lz4:1", "lz4-1", "4 KiB, lz4 (VDO)"),
    ("4 KiB zstd:3", "lz4-4", "4 KiB, zstd"),
    ("128 KiB zstd:3", "zstd-4", "128 KiB, zstd (ZFS)"),
    ("1 MiB zstd:3", "xz-1", "1 MiB, zstd (ZFS)"),
];

fn pictures(records: &Path) -> Result<Vec<Picture>> {
    let cells = Record::new(records, KEY, COLUMNS).latest()?;
    let ours = OURS[0].name();
    let drawn = cells
        .iter()
        .filter(|cell| cell.parameter("missing").is_none());
    let rows: Vec<chart::Row> = drawn
        .map(|cell| {
            let own = stored(cell, &ours);
            let dot = |model: &str, class: &str, name: &str| Value {
                value: stored(cell, model) / own,
                colour: class.to_string(),
                is_hollow: model != ours,
                title: format!("{name}: {:.2} MB", stored(cell, model) / 1e6),
            };
            let models = DRAWN.map(|(model, class, name)| dot(model, class, name));
            chart::Row {
                name: cell.cell.clone(),
                values: models
                    .into_iter()
                    .chain([dot(&ours, "other-2", "a vault")])
                    .collect(),
            }
        })
        .collect();
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let words = Words {
        id: "deck",
        title: "Stored bytes of trees and their clones",
        description: "One row for each tree and number of copies: bytes that a model of another way stores, over those of a vault.",
    };
    let x = Quantity::ratios("times the bytes of a vault", &rows);
    let legend: Vec<(&str, &str)> = DRAWN
        .iter()
        .map(|(_, class, name)| (*class, *name))
        .chain([("other-2", "a vault")])
        .collect();
    let svg = chart::rows(&words, &x, &rows, (&legend, "model"));
    Ok(vec![Picture {
        name: "deck".to_string(),
        caption: "Bytes that models of other ways store, over those of a vault with everything counted; left of 1 the model stores less.".to_string(),
        svg,
    }])
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn equal_units_are_counted_once_and_zeros_never() {
        let folder = tempfile::tempdir().unwrap();
        let check = |unit_bytes: usize, expected: u64| {
            assert_eq!(count(folder.path(), unit_bytes).unwrap()[0], expected);
        };
        let noise = crate::data::Kind::Noise.generate(8 << 10, SEED);
        fs::write(folder.path().join("one"), &noise).unwrap();
        fs::write(folder.path().join("same"), &noise).unwrap();
        fs::write(folder.path().join("holes"), vec![0; 100_000]).unwrap();
        symlink("one", folder.path().join("link")).unwrap();
        check(usize::MAX, 8192);
        check(4096, 8192);
        fs::write(folder.path().join("twice"), [&noise[..], &noise].concat()).unwrap();
        check(usize::MAX, 3 * 8192);
        check(4096, 8192);
        fs::write(folder.path().join("shifted"), [b"x", &noise[..]].concat()).unwrap();
        check(4096, 2 * 8192 + 1);
        let text = folder.path().join("text");
        fs::write(text, "a line of text\n".repeat(1000)).unwrap();
        let [raw, lz4, zstd] = count(folder.path(), 1 << 20).unwrap();
        assert!(raw > lz4 && lz4 > zstd, "{raw} {lz4} {zstd}");
    }

    #[test]
    fn the_sum_is_judged_beside_the_least_of_one_model() {
        let rows = |ours: f64| {
            let of = |(at, name): (usize, String)| (name, 10.0 + at as f64);
            let models = others().into_iter().enumerate().map(of);
            let ours = OURS.map(|it| (it.name(), ours));
            let row = |(contender, bytes)| Row {
                task: TASK.to_string(),
                run: 1,
                runs: 1,
                contender,
                values: vec![100.0, bytes],
            };
            models.chain(ours).map(row).collect()
        };
        let cell = |name: &str, ours| {
            CellRecord::made_up(name, format!("bytes={} clones=1", 48 << 20), rows(ours))
        };
        let found = judged(&[cell("a", 15.0), cell("b", 4.0)]);
        let verdicts: Vec<_> = found.iter().map(|it| it.verdict).collect();
        use Verdict::{CannotTell, Differs, Holds};
        assert_eq!(verdicts, [Holds, Differs, Holds]);
        assert!(found[0].core && !found[1].core);
        let small = CellRecord::made_up("a", "bytes=1048576 clones=1".to_string(), rows(4.0));
        let mut found = judged(&[small]).into_iter();
        assert!(found.all(|it| it.verdict == CannotTell));
    }
}
