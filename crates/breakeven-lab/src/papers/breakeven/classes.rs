//! The survey behind the cuts of classes and the beliefs about them: every class against every method, on files of many
//! kinds.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::Hash;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Compressor, Decompressor, Features, Method};
use breakeven::decide::{Class, Profile};

use crate::clock;
use crate::data::{self, Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/classes",
    claim: "The class of a block tells nearly as much of its ratio as knowing its file would.",
    source: "this project's own target; cuts and means are in `crates/breakeven/src/decide/class.rs` and `prior.rs` beside it",
    figure: "share of the variance of ln(stored/raw) that the class explains, over the share that the file explains",
    target: TARGET,
    parameters: &[
        (
            "data",
            "every file of --data that is long enough: 8 blocks of 4 KiB, 4 of 64 KiB and 1 of 1 MiB, spread over it. \
             Without --data, or with --quick, five generated kinds",
        ),
        (
            "methods",
            "lz4:1, lz4hc:9, zstd:-5, zstd:1, zstd:3, zstd:9, deflate:6, xz:1, each block alone, with core time both ways",
        ),
    ],
    analysis: "The table below the findings compares each class's measured costs with the beliefs before any \
        measurement here, as logarithms. A mean far from 0 is a belief to mend. A spread is the part that the class \
        leaves open. Speeds include the machine's, which one scale test takes out of them. `classify` is the core time \
        of finding a class, with the probe where it is needed.",
    run,
    table,
    pictures: no_pictures,
};

const TARGET: Target = Target::at_least(0.95);
const METHODS: [&str; 8] = [
    "lz4:1",
    "lz4hc:9",
    "zstd:-5",
    "zstd:1",
    "zstd:3",
    "zstd:9",
    "deflate:6",
    "xz:1",
];
/// Bytes of a block, and how many of them.
const SHAPES: [(usize, usize); 3] = [(4 << 10, 8), (64 << 10, 4), (1 << 20, 1)];
const GENERATED: [Kind; 5] = [
    Kind::Text,
    Kind::Rows,
    Kind::Numbers,
    Kind::Mixed,
    Kind::Noise,
];
const COLUMNS: &[&str] = &[
    "block_bytes",
    "stored_bytes",
    "encode_seconds",
    "decode_seconds",
    "class",
    "class_unprobed",
    "classify_seconds",
];
const BLOCK: &str = "block";

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells(laboratory)?)?;
    eprint!("{}", classes(&measured));
    Ok(judge(&measured))
}

fn table(records: &Path) -> Result<tables::Shown> {
    let mut shown = tables::table_of(records, EXPERIMENT.key, COLUMNS, judge)?;
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    if !cells.is_empty() {
        shown.push_str(&classes(&cells));
    }
    Ok(shown)
}

fn cells(laboratory: &Laboratory) -> Result<Vec<Cell<'_>>> {
    let folder = laboratory.data.as_ref().filter(|_| !laboratory.quick);
    let Some(folder) = folder else {
        let cell = |kind: Kind| Cell {
            name: kind.to_string(),
            parameters: format!("data={kind} seed={SEED}"),
            measure: Box::new(move || measure(&kind.generate(2 << 20, SEED))),
        };
        return Ok(GENERATED.into_iter().map(cell).collect());
    };
    let files = data::shared_files(folder)?.into_iter();
    let long = files.filter(|it| it.raw_bytes >= SHAPES[0].0 as u64);
    let cell = |file: data::SharedFile| Cell {
        name: file.name.clone(),
        parameters: format!("data={}", file.name.replace(' ', "_")),
        measure: Box::new(move || measure(&file.load(folder)?)),
    };
    Ok(long.map(cell).collect())
}

/// Compresses the blocks of some bytes by every method and back.
fn measure(bytes: &[u8]) -> Result<Vec<Row>> {
    let shapes =
        SHAPES.map(|(block_bytes, most)| (block_bytes, most.min(bytes.len() / block_bytes)));
    let blocks = shapes.map(|(block_bytes, count)| data::spread(bytes, count, block_bytes));
    let whole = |(blocks, &(block_bytes, count)): (&'_ Vec<u8>, &(usize, usize))| {
        let whole = blocks.chunks_exact(block_bytes).take(count);
        whole.map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let blocks: Vec<Vec<u8>> = blocks.iter().zip(&shapes).flat_map(whole).collect();
    let mut compressor = Compressor::new();
    let mut rows = Vec::new();
    for (place, block) in blocks.iter().enumerate() {
        let (classified, features) =
            clock::time(|| Features::as_needed(block, &mut compressor, Class::needs_probe));
        let class = Class::content(&features?);
        let unprobed = Class::content(&Features::of(block));
        for name in METHODS {
            let taken = both_ways(&mut compressor, name.parse()?, block)?;
            let (stored_bytes, encode, decode) =
                taken.with_context(|| format!("{name} on {} bytes", block.len()))?;
            rows.push(Row {
                task: name.to_string(),
                run: place + 1,
                runs: blocks.len(),
                contender: BLOCK.to_string(),
                values: vec![
                    block.len() as f64,
                    stored_bytes as f64,
                    encode,
                    decode,
                    f64::from(class.number()),
                    f64::from(unprobed.number()),
                    classified.cpu_seconds,
                ],
            });
        }
    }
    Ok(rows)
}

/// Returns the bytes that a method makes of a block, and core seconds of encoding and decoding, the second time.
fn both_ways(
    compressor: &mut Compressor,
    method: Method,
    block: &[u8],
) -> Result<Option<(usize, f64, f64)>> {
    let mut target = vec![0; method.bound(block.len())];
    let mut found = None;
    for _ in 0..2 {
        let (encoded, size) = clock::time(|| compressor.compress(method, block, &mut target));
        let Some(size) = size? else { return Ok(None) };
        let mut back = vec![0; block.len()];
        let mut decompressor = Decompressor::new();
        let (decoded, done) =
            clock::time(|| decompressor.decompress(method.decoder(), &target[..size], &mut back));
        done?;
        ensure!(back == block, "{method} gave back other bytes");
        found = Some((size, encoded.cpu_seconds, decoded.cpu_seconds));
    }
    Ok(found)
}

/// One block by one method.
struct Seen<'c> {
    file: &'c str,
    method: &'c str,
    values: &'c [f64],
}

impl Seen<'_> {
    fn class(&self, column: usize) -> Option<Class> {
        Class::from_content_number(self.values[column] as u16)
    }

    /// A block that does not shrink is stored raw.
    fn ln_stored(&self) -> f64 {
        (self.values[1] / self.values[0]).min(1.0).ln()
    }
}

fn seen(cells: &[CellRecord]) -> Vec<Seen<'_>> {
    let mut found = Vec::new();
    for cell in cells {
        found.extend(cell.rows.iter().map(|row| Seen {
            file: &cell.cell,
            method: &row.task,
            values: &row.values,
        }));
    }
    found
}

/// Returns the share of the variance of some values that knowing their group explains.
fn explained<K: Hash + Ord>(values: impl Iterator<Item = (K, f64)>) -> f64 {
    let mut groups: BTreeMap<K, Vec<f64>> = BTreeMap::new();
    for (key, value) in values {
        groups.entry(key).or_default().push(value);
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let about = |of: &[f64], middle: f64| of.iter().map(|it| (it - middle).powi(2)).sum::<f64>();
    let within: f64 = groups.values().map(|it| about(it, mean(it))).sum();
    let all: Vec<f64> = groups.into_values().flatten().collect();
    1.0 - within / about(&all, mean(&all)).max(f64::MIN_POSITIVE)
}

/// Fewer files are no evidence about files: each of the generated kinds is a class of its own.
const FILES_MIN: usize = 10;

fn judge(cells: &[CellRecord]) -> Vec<Finding> {
    let seen = seen(cells);
    let of_method = |method: &'static str, is_core: bool| {
        let rows = || seen.iter().filter(move |it| it.method == method);
        let by_file = explained(rows().map(|it| (it.file, it.ln_stored())));
        let [by_class, unprobed] =
            [4, 5].map(|column| explained(rows().map(|it| (it.class(column), it.ln_stored()))));
        let found = Interval::exact(by_class / by_file);
        Finding {
            question: method.to_string(),
            core: is_core,
            found,
            verdict: match cells.len() < FILES_MIN {
                true => Verdict::CannotTell,
                false => TARGET.judge(found),
            },
            note: format!(
                "class explains {:.0} %, without the probe {:.0} %, file {:.0} %, of {} blocks of {} files",
                100.0 * by_class,
                100.0 * unprobed,
                100.0 * by_file,
                rows().count(),
                cells.len()
            ),
        }
    };
    let mut findings = vec![of_method("zstd:3", true), of_method("lz4:1", true)];
    findings.extend(["zstd:9", "deflate:6", "xz:1"].map(|it| of_method(it, false)));
    findings
}

/// Returns a table of the classes: blocks, and the distance of measurement from belief.
fn classes(cells: &[CellRecord]) -> String {
    let profile = Profile::default();
    let mut errors: BTreeMap<Class, (Vec<[f64; 3]>, Vec<f64>)> = BTreeMap::new();
    for it in seen(cells) {
        let (Some(class), Ok(method)) = (it.class(4), it.method.parse::<Method>()) else {
            continue;
        };
        let bytes = it.values[0];
        let believed = profile.estimate(class, method, bytes as u64);
        let ln = |measured: f64, believed: f64| (measured / believed).max(1e-9).ln();
        let (found, classifying) = errors.entry(class).or_default();
        found.push([
            ln(
                it.values[2] / bytes,
                believed.encode_seconds_per_byte.value.mean,
            ),
            ln(
                it.values[3] / bytes,
                believed.decode_seconds_per_byte.value.mean,
            ),
            it.ln_stored() - believed.stored_per_raw.value.mean.ln(),
        ]);
        if bytes as usize == 1 << 20 {
            classifying.push(it.values[6]);
        }
    }
    let mut text =
        "\n| class | blocks | ln encode | ln decode | ln stored | classify 1 MiB, \u{b5}s |\n\
        |---|---:|---:|---:|---:|---:|\n"
            .to_string();
    for (class, (found, classifying)) in &errors {
        let count = found.len() as f64;
        let [encode, decode, stored] = [0, 1, 2].map(|factor| {
            let mean = found.iter().map(|it| it[factor]).sum::<f64>() / count;
            let squares = found
                .iter()
                .map(|it| (it[factor] - mean).powi(2))
                .sum::<f64>();
            format!("{mean:+.2} \u{b1} {:.2}", (squares / count).sqrt())
        });
        let classify = match classifying.is_empty() {
            true => "-".to_string(),
            false => format!("{:.0}", 1e6 * Interval::of_pairs(classifying).middle),
        };
        let blocks = found.len() / METHODS.len();
        let _ = writeln!(
            text,
            "| {class} | {blocks} | {encode} | {decode} | {stored} | {classify} |"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_groups_explain() {
        let check = |values: &[(u8, f64)], expected: f64| {
            let found = explained(values.iter().copied());
            assert!((found - expected).abs() < 1e-12, "{found}");
        };
        check(&[(0, 1.0), (0, 1.0), (1, 3.0), (1, 3.0)], 1.0);
        check(&[(0, 1.0), (0, 3.0), (1, 1.0), (1, 3.0)], 0.0);
        check(&[(0, 0.0), (0, 2.0), (1, 4.0), (1, 6.0)], 0.8);
    }

    #[test]
    fn generated_kinds_are_surveyed() {
        let cell = |kind: Kind| {
            let rows = measure(&kind.generate(70 << 10, SEED)).unwrap();
            assert_eq!(rows.len(), (8 + 1) * METHODS.len());
            CellRecord::made_up(kind.to_string(), "data=made", rows)
        };
        let cells: Vec<CellRecord> = [Kind::Text, Kind::Noise].map(cell).into();
        let findings = judge(&cells);
        assert_eq!(findings[0].verdict, Verdict::CannotTell, "{findings:?}");
        let files: Vec<CellRecord> = cells.iter().cycle().take(FILES_MIN).cloned().collect();
        let findings = judge(&files);
        assert_eq!(findings[0].verdict, Verdict::Holds, "{findings:?}");
        let table = classes(&cells);
        assert!(table.contains("| incompressible | 9 |"), "{table}");
    }
}
