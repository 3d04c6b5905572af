//! The committed table of compressed sizes: the sizes by each method of the same bytes.
//!
//! Sizes have no noise, so a row that differs is a change: of a library's version, of its settings,
//! of ours. It changes only with a reason, by `run breakeven/stored-sizes --update`. Rows of
//! generated data are computed by each test run; rows of real files where `--data` names their folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Compressor, Decompressor, Method};

use crate::data::{self, Kind, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Finding, Laboratory};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "breakeven/stored-sizes",
    claim: "Every method makes exactly the committed table's sizes of the same bytes.",
    source: "this project's own table, `records/breakeven/stored-sizes.csv`",
    figure: "rows that differ from the table",
    target: TARGET,
    parameters: &[
        (
            "data",
            "1 MiB of each generated kind, 128 KiB of it in blocks below 1 MiB; with --data, of every file above 64 KiB 2 extents of 1 MiB",
        ),
        (
            "blocks",
            "4, 8, 16 and 64 KiB and 1 MiB, each compressed alone",
        ),
        ("methods", "17, from the fastest to the densest"),
    ],
    analysis: "Sizes are the codec's own. Where one is above the raw size, a place stores the block as it is. Ratios \
        grow with the block because a codec sees only that block. The table shows by how much, before any time is \
        measured.",
    run,
    table,
    pictures: no_pictures,
};

/// Rows that differ from the table.
const TARGET: Target = Target::exactly(0.0);
const SCHEMA: &str = "# breakeven-lab stored sizes 1";
const HEADER: &str = "data,block_bytes,method,raw_bytes,stored_bytes";
const GENERATED: &[Kind] = &[
    Kind::Text,
    Kind::Rows,
    Kind::Numbers,
    Kind::Noise,
    Kind::Zero,
];
const GENERATED_BYTES: usize = 1 << 20;
/// Real files below this have too few blocks to say anything.
const SHARED_BYTES_MIN: u64 = 64 << 10;
/// The part of generated data that goes into blocks below 1 MiB: the dense methods are slow, and
/// this is recomputed by every run of the tests.
const GENERATED_PART_BYTES: usize = 128 << 10;
const BLOCK_BYTES: &[usize] = &[4 << 10, 8 << 10, 16 << 10, 64 << 10, 1 << 20];
const METHODS: &[&str] = &[
    "lz4:1",
    "lz4:a8",
    "lz4hc:9",
    "zstd:-5",
    "zstd:1",
    "zstd:3",
    "zstd:9",
    "zstd:19",
    "deflate:1",
    "deflate:6",
    "deflate:12",
    "xz:6",
    "bzip2:9",
    "shuffle4+lz4:1",
    "shuffle4+zstd:3",
    "shuffle8+zstd:3",
    "delta4+xz:6",
];

/// The compressed data, the method and the size of the pieces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    data: String,
    block_bytes: usize,
    method: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    raw_bytes: u64,
    stored_bytes: u64,
}

type Table = BTreeMap<Key, Sizes>;

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let path = path(&laboratory.records);
    let mut committed = read(&path)?;
    let mut findings = vec![compare(&mut committed, "generated data", &generated())?];
    if let Some(folder) = laboratory.data.as_ref().filter(|_| !laboratory.quick) {
        let files = data::shared_files(folder)?.into_iter();
        for file in files.filter(|file| file.raw_bytes >= SHARED_BYTES_MIN) {
            eprintln!("{} {}", EXPERIMENT.key, file.name);
            let bytes = data::spread(&file.load(folder)?, 2, 1 << 20);
            let set = [(file.name.clone(), bytes)];
            findings.push(compare(&mut committed, &file.name, &set)?);
        }
    }
    if laboratory.update {
        write(&path, &committed)?;
    }
    Ok(findings)
}

/// Computes the rows of some data, puts them in the place of the committed ones, and returns how
/// many were others.
fn compare(committed: &mut Table, question: &str, sets: &[(String, Vec<u8>)]) -> Result<Finding> {
    let computed = compute(sets)?;
    // Generated data are always computed together, so that a removed kind leaves no rows behind.
    let of_these = |key: &Key| {
        let names = |(name, _): &(String, _)| {
            *name == key.data || (is_generated(name) && is_generated(&key.data))
        };
        sets.iter().any(names)
    };
    let mut old = committed.clone();
    old.retain(|key, _| of_these(key));
    committed.retain(|key, _| !of_these(key));
    let differences = differences(&old, &computed);
    for line in differences.iter().take(20) {
        eprintln!("{line}");
    }
    let found = Interval::exact(differences.len() as f64);
    let note = format!("rows that differ, of {}", computed.len());
    committed.extend(computed);
    Ok(Finding {
        question: question.to_string(),
        core: true,
        found,
        verdict: TARGET.judge(found),
        note,
    })
}

fn path(records: &Path) -> PathBuf {
    records.join(format!("{}.csv", EXPERIMENT.key))
}

fn generated() -> Vec<(String, Vec<u8>)> {
    let set = |kind: &Kind| {
        let bytes = kind.generate(GENERATED_BYTES, SEED);
        (format!("generated/{kind}"), bytes)
    };
    GENERATED.iter().map(set).collect()
}

/// Compresses every set by every method in every block size, and decodes it again.
fn compute(sets: &[(String, Vec<u8>)]) -> Result<Table> {
    let mut scratch = Scratch::default();
    let mut table = Table::new();
    for (name, bytes) in sets {
        for method in METHODS {
            for block_bytes in BLOCK_BYTES {
                let part = if is_generated(name) && *block_bytes < GENERATED_BYTES {
                    &bytes[..bytes.len().min(GENERATED_PART_BYTES)]
                } else {
                    bytes
                };
                let stored_bytes = scratch
                    .stored_bytes(method.parse()?, part, *block_bytes)
                    .with_context(|| format!("{name} by {method}"))?;
                let key = Key {
                    data: name.clone(),
                    block_bytes: *block_bytes,
                    method: method.to_string(),
                };
                let sizes = Sizes {
                    raw_bytes: part.len() as u64,
                    stored_bytes,
                };
                table.insert(key, sizes);
            }
        }
    }
    Ok(table)
}

fn is_generated(data: &str) -> bool {
    data.starts_with("generated/")
}

/// Working memory for compressing and decoding again.
#[derive(Default)]
struct Scratch {
    compressor: Compressor,
    decompressor: Decompressor,
    target: Vec<u8>,
    decoded: Vec<u8>,
}

impl Scratch {
    /// Returns the bytes that all blocks of `bytes` take, after decoding and comparing each.
    fn stored_bytes(&mut self, method: Method, bytes: &[u8], block_bytes: usize) -> Result<u64> {
        let mut sum = 0;
        for block in bytes.chunks(block_bytes) {
            self.target.resize(method.bound(block.len()), 0);
            let size = self.compressor.compress(method, block, &mut self.target)?;
            let size = size.context("a block is larger than its bound")?;
            self.decoded.clear();
            self.decoded.resize(block.len(), 0);
            let stored = &self.target[..size];
            self.decompressor
                .decompress(method.decoder(), stored, &mut self.decoded)?;
            ensure!(self.decoded == block, "another block came back");
            sum += size as u64;
        }
        Ok(sum)
    }
}

/// Returns a line for each row that is not in both tables, or not the same.
fn differences(committed: &Table, computed: &Table) -> Vec<String> {
    let keys: BTreeSet<&Key> = committed.keys().chain(computed.keys()).collect();
    let text = |sizes: Option<&Sizes>| match sizes {
        Some(sizes) => format!("{} of {} bytes", sizes.stored_bytes, sizes.raw_bytes),
        None => "no row".to_string(),
    };
    let differing = keys
        .into_iter()
        .filter(|key| committed.get(key) != computed.get(key));
    differing
        .map(|key| {
            format!(
                "{}: {} in {} by {}: expected {}, found {}",
                EXPERIMENT.key,
                key.data,
                tables::binary_size(key.block_bytes),
                key.method,
                text(committed.get(key)),
                text(computed.get(key))
            )
        })
        .collect()
}

fn read(path: &Path) -> Result<Table> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Table::new()),
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    };
    let mut lines = text.lines();
    ensure!(
        (lines.next(), lines.next()) == (Some(SCHEMA), Some(HEADER)),
        "{}: not a table of stored sizes",
        path.display()
    );
    let rows = lines.enumerate().map(|(index, line)| {
        parse(line).with_context(|| format!("{}:{}: '{line}'", path.display(), index + 3))
    });
    rows.collect()
}

fn parse(line: &str) -> Result<(Key, Sizes)> {
    let fields: Vec<&str> = line.split(',').collect();
    let [data, block_bytes, method, raw_bytes, stored_bytes] = fields[..] else {
        anyhow::bail!("{} fields, expected 5", fields.len());
    };
    let key = Key {
        data: data.to_string(),
        block_bytes: block_bytes.parse()?,
        method: method.to_string(),
    };
    let sizes = Sizes {
        raw_bytes: raw_bytes.parse()?,
        stored_bytes: stored_bytes.parse()?,
    };
    Ok((key, sizes))
}

fn write(path: &Path, table: &Table) -> Result<()> {
    let mut text = format!("{SCHEMA}\n{HEADER}\n");
    for (key, sizes) in table {
        text.push_str(&format!(
            "{},{},{},{},{}\n",
            key.data, key.block_bytes, key.method, sizes.raw_bytes, sizes.stored_bytes
        ));
    }
    fs::create_dir_all(path.parent().expect("a file below a folder"))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// Returns the ratios of methods by block size, over all generated and over all real data.
fn table(records: &Path) -> Result<tables::Shown> {
    let sizes = read(&path(records))?;
    let mut text = String::new();
    for (title, generated) in [("Generated data", true), ("Real data", false)] {
        let chosen = |key: &Key| is_generated(&key.data) == generated;
        if !sizes.keys().any(chosen) {
            continue;
        }
        text.push_str(&format!("{title}: ratio by block size.\n\n| method |"));
        for block_bytes in BLOCK_BYTES {
            text.push_str(&format!(" {} |", tables::binary_size(*block_bytes)));
        }
        text.push_str(&format!("\n|---|{}\n", "---:|".repeat(BLOCK_BYTES.len())));
        for method in METHODS {
            text.push_str(&format!("| {method} |"));
            for block_bytes in BLOCK_BYTES {
                let rows = sizes.iter().filter(|(key, _)| {
                    chosen(key) && key.method == *method && key.block_bytes == *block_bytes
                });
                let (raw, stored) = rows.fold((0, 0), |(raw, stored), (_, sizes)| {
                    (raw + sizes.raw_bytes, stored + sizes.stored_bytes)
                });
                text.push_str(&format!(" {:.3} |", raw as f64 / stored as f64));
            }
            text.push('\n');
        }
        text.push('\n');
    }
    Ok(tables::Shown::unjudged(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn a_changed_size_is_found() {
        let sets = vec![("a".to_string(), Kind::Text.generate(4096, SEED))];
        let computed = compute(&sets).unwrap();
        let mut committed = computed.clone();
        assert_eq!(differences(&committed, &computed), [""; 0]);
        committed.first_entry().unwrap().get_mut().stored_bytes += 1;
        committed.pop_last();
        let mut unknown = computed.keys().next().unwrap().clone();
        unknown.method = "zstd:4".to_string();
        let sizes = Sizes {
            raw_bytes: 1,
            stored_bytes: 1,
        };
        committed.insert(unknown, sizes);
        let found = differences(&committed, &computed).join("\n");
        assert_eq!(found.lines().count(), 3, "{found}");
        assert!(
            found.contains("a in 4 KiB by bzip2:9: expected "),
            "{found}"
        );
        assert!(found.contains("expected no row, found "), "{found}");
        assert!(found.contains("1 of 1 bytes, found no row"), "{found}");
        let finding = compare(&mut committed, "a", &sets).unwrap();
        assert_eq!(
            (finding.found.middle, finding.verdict),
            (3.0, Verdict::Differs)
        );
        assert_eq!(committed, computed);
    }

    #[test]
    fn a_table_reads_back_and_bad_lines_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = path(folder.path());
        assert!(read(&path).unwrap().is_empty());
        let sets = vec![("a".to_string(), Kind::Rows.generate(4096, SEED))];
        let computed = compute(&sets).unwrap();
        write(&path, &computed).unwrap();
        assert_eq!(read(&path).unwrap(), computed);
        for line in ["a,4096,lz4:1,4096", "a,4 KiB,lz4:1,1,1", "a,4096,lz4:1,x,1"] {
            fs::write(&path, format!("{SCHEMA}\n{HEADER}\n{line}\n")).unwrap();
            let message = format!("{:#}", read(&path).unwrap_err());
            assert!(message.contains("stored-sizes.csv:3"), "{message}");
        }
        fs::write(&path, "data\n").unwrap();
        assert!(read(&path).is_err());
    }
}
