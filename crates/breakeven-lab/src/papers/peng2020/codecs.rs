//! Whether LZW is best on small text and zstd at 19 on large binaries, once zstd has a dictionary.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Codec, Compressor, Decoder, Decompressor, Dictionary, Method, Symbols};

use super::lzw;
use super::values::{MADE_UP, Set, Split, Value, sets};
use crate::clock;
use crate::data;
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target, Verdict};
use crate::tables::{self, Shown};

pub const EXPERIMENT: Experiment = Experiment {
    key: "peng2020/codecs",
    claim: "With a dictionary zstd stores small text in fewer bytes than LZW, and zstd at 19 large binaries in fewer than LZW.",
    source: "the deck: \"Small, text objects compress best under LZW encoding; large binary files do better with zstd level 19\"",
    figure: "bytes of LZW over those of the other method",
    target: Target::at_least(1.0),
    parameters: &[
        (
            "values",
            "those of the items, one by one; programs in pieces of 4 KiB and 128 KiB (`elf-tar`) for the binaries",
        ),
        (
            "methods",
            "LZW of 9 to 16 bits; FSST with a table of symbols; zstd at 3 and 19 and lz4, each without and with a dictionary of at most 16 KiB. FSST and zstd's bare frames are as in the server, binaries in whole frames",
        ),
        (
            "dictionary",
            "trained on values that are not measured: one in ten, or half of them where they are few. dbtext has one for each of its files, as the server has one for each prefix of keys. So do tables of symbols",
        ),
    ],
    analysis: "Bytes are sums over all values, the lesser of stored and raw for each value. Times are processor time \
        of one pass over them and comparable within a cell only. LZW's are those of a plain program and say nothing of \
        its best. The deck names neither its LZW nor its data nor whether zstd had a dictionary. So the table also has \
        zstd without one.",
    run,
    table,
    pictures: no_pictures,
};

const COLUMNS: &[&str] = &["raw_bytes", "stored_bytes", "encode_us", "decode_us"];
const RAW: usize = 0;
const STORED: usize = 1;
const ENCODE: usize = 2;
const DECODE: usize = 3;
const TASK: &str = "values";
const LZW: &str = "lzw";
const FSST: &str = "fsst";
/// Methods beside LZW; those with `+dict` have the dictionary.
const METHODS: [&str; 6] = [
    "lz4:1",
    "zstd:3",
    "zstd:19",
    "lz4:1+dict",
    "zstd:3+dict",
    "zstd:19+dict",
];
/// The densest that the server chooses from.
const DENSEST: &str = "zstd:3+dict";
const DICTIONARY_BYTES: usize = 16 << 10;
/// More samples do not make the dictionary better (zdict.h: a hundred times its size).
const SAMPLE_BYTES: usize = 100 * DICTIONARY_BYTES;
/// Values of a set that are measured at most, by their bytes.
const MEASURED_BYTES: usize = 4 << 20;
/// A cell with less in it is none to judge by.
const JUDGED_BYTES: f64 = 100e3;
const BINARIES: &str = "elf-tar/";
/// The lengths of pieces of binaries.
const PIECES: [usize; 2] = [4 << 10, 128 << 10];

/// The data of a cell.
#[derive(Clone, Copy)]
enum Source {
    Set(Set),
    Pieces(usize),
}

impl Source {
    fn name(self) -> String {
        match self {
            Source::Set(set) => set.name.to_string(),
            Source::Pieces(bytes) => format!("binaries of {}", tables::binary_size(bytes)),
        }
    }

    fn load(self, folder: Option<&Path>, quick: bool) -> Result<Split> {
        let mut split = match self {
            Source::Set(set) => set.load(folder)?,
            Source::Pieces(bytes) => pieces(folder.context("no folder of data")?, bytes)?,
        };
        let most = if quick { 50_000 } else { MEASURED_BYTES };
        let mut left = most;
        split.held_out.retain(|value| {
            let fits = value.bytes.len() <= left;
            left = if fits { left - value.bytes.len() } else { 0 };
            fits
        });
        Ok(split)
    }
}

/// Cuts programs to pieces; every other one may be learned from.
fn pieces(folder: &Path, bytes: usize) -> Result<Split> {
    let files = data::shared_files(folder)?;
    let file = files.iter().find(|file| file.name.starts_with(BINARIES));
    let file = file.context("no programs in the folder of data")?;
    let whole = file.load(folder)?;
    let value = |piece: &[u8]| Value {
        prefix: "piece".to_string(),
        bytes: piece.to_vec(),
    };
    let of = |rest: usize| {
        whole
            .chunks_exact(bytes)
            .skip(rest)
            .step_by(2)
            .map(value)
            .collect()
    };
    Ok(Split {
        taught: of(0),
        held_out: of(1),
    })
}

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let quick = laboratory.quick;
    let folder = laboratory.data.as_deref().filter(|_| !quick);
    let pieces = PIECES.map(Source::Pieces);
    let pieces = pieces.into_iter().filter(|_| folder.is_some());
    let cells = sets(folder)
        .map(Source::Set)
        .chain(pieces)
        .map(|source| Cell {
            name: source.name(),
            parameters: format!("values={} quick={quick}", source.name().replace(' ', "-")),
            measure: Box::new(move || measure(source, folder, quick)),
        });
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells.collect())?;
    Ok(measured.iter().flat_map(judge).collect())
}

fn measure(source: Source, folder: Option<&Path>, quick: bool) -> Result<Vec<Row>> {
    let split = source.load(folder, quick)?;
    let mut prefixes: Vec<&str> = split.held_out.iter().map(|it| &*it.prefix).collect();
    prefixes.sort_unstable();
    prefixes.dedup();
    // A bare frame is one block, and zstd at 19 splits a piece of 128 KiB into several.
    let is_bare = matches!(source, Source::Set(_));
    let mut sums: Vec<(&str, Vec<f64>)> = Vec::new();
    let all = split.held_out.len() as f64;
    for prefix in prefixes {
        let of = |values: &[Value]| -> Vec<Value> {
            let values = values.iter().filter(|it| it.prefix == prefix);
            values.cloned().collect()
        };
        let (taught, held_out) = (of(&split.taught), of(&split.held_out));
        let share = held_out.len() as f64 / all;
        let measured = measure_prefix(&taught, &held_out, is_bare)?;
        for (at, (name, mut values)) in measured.into_iter().enumerate() {
            values[ENCODE] *= share;
            values[DECODE] *= share;
            match sums.get_mut(at) {
                None => sums.push((name, values)),
                Some((_, sum)) => sum.iter_mut().zip(values).for_each(|(sum, it)| *sum += it),
            }
        }
    }
    let rows = sums.into_iter().map(|(name, values)| row(name, values));
    Ok(rows.collect())
}

/// Measures all methods on the values under one prefix.
fn measure_prefix(
    taught: &[Value],
    held_out: &[Value],
    is_bare: bool,
) -> Result<Vec<(&'static str, Vec<f64>)>> {
    let mut left = SAMPLE_BYTES;
    let samples = taught.iter().map(|value| &value.bytes[..]);
    let samples = samples.take_while(|it| {
        let had = left;
        left = left.saturating_sub(it.len());
        had > 0
    });
    let samples: Vec<&[u8]> = samples.collect();
    let dictionary = Dictionary::train(&samples, DICTIONARY_BYTES)?;
    let symbols = Symbols::train(&samples);
    let mut rows = vec![
        (LZW, race(held_out, lzw_encode, lzw_decode)?),
        (FSST, race_symbols(held_out, symbols.as_ref())?),
    ];
    for name in METHODS {
        let (method, with) = match name.strip_suffix("+dict") {
            Some(plain) => (plain, Some(&dictionary)),
            None => (name, None),
        };
        let coder = Coder {
            method: method.parse()?,
            dictionary: with,
            is_bare,
        };
        let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
        let values = race(
            held_out,
            |raw| coder.encode(&mut compressor, raw),
            |stored, raw_bytes| coder.decode(&mut decompressor, stored, raw_bytes),
        )?;
        rows.push((name, values));
    }
    Ok(rows)
}

/// Measures a table of symbols. A value that has none, or does not shrink by it, stays raw.
fn race_symbols(held_out: &[Value], symbols: Option<&Symbols>) -> Result<Vec<f64>> {
    let encode = |raw: &[u8]| {
        let mut stored = vec![0; raw.len()];
        let bytes = symbols.and_then(|it| it.encode(raw, &mut stored));
        stored.truncate(bytes.unwrap_or(raw.len()));
        Ok(stored)
    };
    let decode = |stored: &[u8], raw_bytes: usize| {
        let mut raw = vec![0; raw_bytes];
        let symbols = symbols.context("no symbols")?;
        symbols.decode(stored, &mut raw)?;
        Ok(raw)
    };
    race(held_out, encode, decode)
}

/// Returns the processor time of decoding one of the made-up values, by the server's densest method.
pub fn decode_us() -> Result<f64> {
    let rows = measure(Source::Set(MADE_UP), None, false)?;
    let row = rows.iter().find(|row| row.contender == DENSEST);
    Ok(row.context("no row of it")?.values[DECODE])
}

fn row(contender: &str, values: Vec<f64>) -> Row {
    Row::new(TASK, contender, (0, 1), values)
}

fn lzw_encode(raw: &[u8]) -> Result<Vec<u8>> {
    Ok(lzw::encode(raw))
}

fn lzw_decode(stored: &[u8], raw_bytes: usize) -> Result<Vec<u8>> {
    lzw::decode(stored, raw_bytes).context("codes of LZW")
}

/// A method with a dictionary, or with none.
struct Coder<'a> {
    method: Method,
    dictionary: Option<&'a Dictionary>,
    /// Whether zstd's frames are bare.
    is_bare: bool,
}

impl Coder<'_> {
    fn encode(&self, compressor: &mut Compressor, raw: &[u8]) -> Result<Vec<u8>> {
        let mut stored = vec![0; self.method.bound(raw.len())];
        let target = &mut stored[..];
        let bytes = match (self.method.codec, self.dictionary) {
            (Codec::Zstd { .. }, with) if self.is_bare => {
                // A frame that is not one compressed block is no shorter than the value.
                compressor.compress_bare(self.method, with, raw, target)?
            }
            (_, Some(with)) => compressor.compress_with(self.method, with, raw, target)?,
            (_, None) => compressor.compress(self.method, raw, target)?,
        };
        stored.truncate(bytes.unwrap_or(0));
        Ok(match bytes {
            Some(_) => stored,
            None => raw.to_vec(),
        })
    }

    fn decode(
        &self,
        decompressor: &mut Decompressor,
        stored: &[u8],
        raw_bytes: usize,
    ) -> Result<Vec<u8>> {
        let mut decoder = self.method.decoder();
        decoder.dictionary = u32::from(self.dictionary.is_some());
        if self.is_bare && matches!(self.method.codec, Codec::Zstd { .. }) {
            decoder.codec = Decoder::CODEC_ZSTD_BARE;
        }
        let mut raw = vec![0; raw_bytes];
        match self.dictionary {
            Some(with) => decompressor.decompress_with(decoder, with, stored, &mut raw)?,
            None => decompressor.decompress(decoder, stored, &mut raw)?,
        }
        Ok(raw)
    }
}

/// Encodes and decodes all values, compares them, and returns the columns.
fn race(
    values: &[Value],
    mut encode: impl FnMut(&[u8]) -> Result<Vec<u8>>,
    mut decode: impl FnMut(&[u8], usize) -> Result<Vec<u8>>,
) -> Result<Vec<f64>> {
    let (encoding, stored) = clock::time(|| {
        let stored = values.iter().map(|value| encode(&value.bytes));
        stored.collect::<Result<Vec<Vec<u8>>>>()
    });
    let stored = stored?;
    // A value that gets no shorter is kept raw, and not decoded.
    let shorter = || {
        values
            .iter()
            .zip(&stored)
            .filter(|(raw, stored)| stored.len() < raw.bytes.len())
    };
    let (decoding, raw) = clock::time(|| {
        let raw = shorter().map(|(raw, stored)| decode(stored, raw.bytes.len()));
        raw.collect::<Result<Vec<Vec<u8>>>>()
    });
    for ((value, _), raw) in shorter().zip(raw?) {
        ensure!(raw == value.bytes, "another value comes back");
    }
    let raw_bytes: usize = values.iter().map(|it| it.bytes.len()).sum();
    let least = |(raw, stored): (&Value, &Vec<u8>)| raw.bytes.len().min(stored.len());
    let stored_bytes: usize = values.iter().zip(&stored).map(least).sum();
    let us = |seconds: f64| 1e6 * seconds / values.len() as f64;
    Ok(vec![
        raw_bytes as f64,
        stored_bytes as f64,
        us(encoding.cpu_seconds),
        us(decoding.cpu_seconds),
    ])
}

fn judge(cell: &CellRecord) -> Vec<Finding> {
    let of = |contender, column| cell.median(TASK, contender, column);
    let is_binary = cell.cell.starts_with("binaries");
    let is_text = !is_binary && cell.cell != "random";
    let is_small = of(LZW, RAW) < JUDGED_BYTES || cell.cell == MADE_UP.name;
    let finding = |method: &'static str, core: bool| {
        let found = Interval::exact(of(LZW, STORED) / of(method, STORED));
        Finding {
            question: format!("{} {method}", cell.cell),
            core,
            found,
            verdict: match is_small {
                true => Verdict::CannotTell,
                false => EXPERIMENT.target.judge(found),
            },
            note: format!(
                "target {}; ratio {:.2}, LZW {:.2}",
                EXPERIMENT.target,
                of(method, RAW) / of(method, STORED),
                of(LZW, RAW) / of(LZW, STORED)
            ),
        }
    };
    let mut found = vec![
        finding("zstd:3+dict", is_text),
        finding("zstd:19+dict", false),
        finding("zstd:3", false),
        finding("zstd:19", is_binary),
    ];
    if has(cell, FSST) {
        found.push(finding(FSST, false));
    }
    found
}

/// Whether a method was measured: older records know nothing of FSST.
fn has(cell: &CellRecord, contender: &str) -> bool {
    !cell.column(TASK, contender, RAW).is_empty()
}

fn table(records: &Path) -> Result<Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let found = cells.iter().flat_map(judge).collect();
    let mut shown = tables::judged(tables::origin(records, &cells), found);
    if cells.is_empty() {
        return Ok(shown);
    }
    shown.push_str(
        "\nRatios of raw bytes to stored ones, and microseconds of processor time to encode and to decode a value.\n\n\
         | cell | method | ratio | encode us | decode us |\n|---|---|---:|---:|---:|\n",
    );
    for cell in &cells {
        for contender in [LZW, FSST]
            .into_iter()
            .chain(METHODS)
            .filter(|it| has(cell, it))
        {
            let of = |column| cell.median(TASK, contender, column);
            shown.push_str(&format!(
                "| {} | {contender} | {:.2} | {:.2} | {:.2} |\n",
                cell.cell,
                of(RAW) / of(STORED),
                of(ENCODE),
                of(DECODE)
            ));
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_brings_values_back_and_a_dictionary_helps() {
        let rows = measure(Source::Set(MADE_UP), None, true).unwrap();
        let stored = |name: &str| {
            let row = rows.iter().find(|row| row.contender == name).unwrap();
            (row.values[STORED] / row.values[RAW] * 1000.0) as u64
        };
        assert_eq!(rows.len(), 2 + METHODS.len());
        assert!(stored(FSST) < 1000, "{rows:?}");
        assert!(stored("zstd:3+dict") < stored("zstd:3"), "{rows:?}");
        assert!(stored(LZW) < 1000, "{rows:?}");
    }

    #[test]
    fn text_is_judged_with_a_dictionary_and_binaries_at_19() {
        let check = |name: &str, raw: f64, stored: f64, expected: [(bool, Verdict); 2]| {
            let methods = METHODS
                .iter()
                .map(|name| row(name, vec![raw, stored, 1.0, 1.0]));
            let rows = methods.chain([row(LZW, vec![raw, 400.0, 1.0, 1.0])]);
            let found = judge(&CellRecord::made_up(name, "", rows.collect()));
            let found = [&found[0], &found[3]].map(|it| (it.core, it.verdict));
            assert_eq!(found, expected, "{name}");
        };
        use Verdict::{CannotTell, Differs, Holds};
        check("dbtext", 1e6, 300.0, [(true, Holds), (false, Holds)]);
        check("dbtext", 1e6, 500.0, [(true, Differs), (false, Differs)]);
        check(
            "binaries of 4 KiB",
            1e6,
            300.0,
            [(false, Holds), (true, Holds)],
        );
        check(
            "dbtext",
            1e3,
            300.0,
            [(true, CannotTell), (false, CannotTell)],
        );
        check(
            "made-up",
            1e6,
            300.0,
            [(true, CannotTell), (false, CannotTell)],
        );
    }
}
