//! Figures 6 and 7: the share of a codec's ratio that is left when data are cut into pages.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use breakeven::codec::{Compressor, Decompressor, Method};

use super::corpus::{self, Set, Source};
use super::{Claim, pictures, published};
use crate::experiment::Experiment;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018/ratio",
    claim: "Cut into pages of 8 KiB, data keep 85 % of their ratio by lz4 and 77 % by zstd, and each doubling of the page wins some of it back.",
    source: "Harper 2018, Figures 6 and 7: whole files 2.50, 3.76 and 3.87 by lz4, zlib and zstd; pages of 8 KiB 2.13 and 2.97 by lz4 and zstd",
    figure: "share of the whole-file ratio that is kept, over the published share,",
    target: KEPT,
    parameters: &[
        (
            "data",
            "every byte of the files of --data that are his or stand in for his: 4 of the 12 files of Silesia, and PostgreSQL B-trees in the place of three of the Mouse Genome Database. Without --data, 1 MiB of each of three generated kinds",
        ),
        (
            "methods",
            "lz4:1, deflate:6 and zstd:3, which are the levels of his program; deflate by libdeflate in the place of zlib",
        ),
        (
            "blocks",
            "whole files and 4, 8, 16, 32 and 64 KiB, each compressed alone. A ratio of a set is the sum of raw over the sum of stored bytes",
        ),
    ],
    analysis: "No ratio of his can be compared with ours directly, because most of his files are missing here. The \
        part of Silesia at hand has none of the hard ones (x-ray, sao, mr), so our ratios are higher. Only the share \
        of the ratio that pages keep carries over. His shares are 2.13 / 2.50 and 2.97 / 3.87. A tenth to either side \
        is the tolerance. Two things go against the rule. The integer B-tree shrinks less in its own 8 KiB pages than \
        in halves of them. lz4 makes less of the whole deduplicated B-tree than of its 64 KiB pieces: up to 64 KiB it \
        finds matches by a hash of 4 bytes, beyond by one of 5. Sizes have no noise.",
    run,
    table,
    pictures: pictures::ratio,
};

const KEPT: Target = Target {
    low: 0.9,
    high: 1.1,
};
pub const COLUMNS: &[&str] = &["raw_bytes", "stored_bytes"];
/// Pages, from small to large.
pub const PAGE_BYTES: [u64; 5] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// The page that the thesis goes on with.
pub const PAGE: u64 = 8 << 10;
/// The task's name for a whole file, beside the bytes of a page.
const WHOLE: &str = "whole";
const GENERATED_BYTES: u64 = 1 << 20;

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let sources = corpus::sources(laboratory, GENERATED_BYTES)?.into_iter();
    let cells = sources.map(|source| cell(laboratory, source)).collect();
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells)?;
    Ok(judge(&Ratios::of(&measured)))
}

fn cell(laboratory: &Laboratory, source: Source) -> Cell<'_> {
    let methods = published::METHODS.join("+");
    let pages = PAGE_BYTES.map(|bytes| bytes.to_string()).join("+");
    Cell {
        name: source.name.clone(),
        parameters: format!(
            "data={} bytes={} methods={methods} blocks={WHOLE}+{pages}",
            source.name, source.bytes
        ),
        measure: Box::new(move || measure(&source.load(laboratory.data.as_deref())?)),
    }
}

fn measure(bytes: &[u8]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let pages = PAGE_BYTES.map(|page| (page.to_string(), page as usize));
    for (task, block_bytes) in [(WHOLE.to_string(), bytes.len())].into_iter().chain(pages) {
        for codec in &published::CODECS {
            let stored_bytes = stored_bytes(codec.method.parse()?, bytes, block_bytes)
                .with_context(|| format!("{} in {task}", codec.method))?;
            rows.push(Row {
                task: task.clone(),
                run: 1,
                runs: 1,
                contender: codec.method.to_string(),
                values: vec![bytes.len() as f64, stored_bytes as f64],
            });
        }
    }
    Ok(rows)
}

/// Returns the bytes that all blocks take, after decoding and comparing each.
fn stored_bytes(method: Method, bytes: &[u8], block_bytes: usize) -> Result<u64> {
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    let mut target = vec![0; method.bound(block_bytes)];
    let mut decoded = vec![0; block_bytes];
    let mut sum = 0;
    for block in bytes.chunks(block_bytes) {
        let size = compressor.compress(method, block, &mut target)?;
        let size = size.context("a block is larger than its bound")?;
        let decoded = &mut decoded[..block.len()];
        decoded.fill(0);
        decompressor.decompress(method.decoder(), &target[..size], decoded)?;
        ensure!(decoded == block, "another block came back");
        sum += size as u64;
    }
    Ok(sum)
}

/// Recorded sizes, by data, task and method.
pub struct Ratios {
    sizes: BTreeMap<(String, String, String), (f64, f64)>,
    /// In the order of the record.
    pub names: Vec<String>,
}

impl Ratios {
    pub fn of(cells: &[CellRecord]) -> Ratios {
        let mut sizes = BTreeMap::new();
        for cell in cells {
            for row in &cell.rows {
                let key = (cell.cell.clone(), row.task.clone(), row.contender.clone());
                sizes.insert(key, (row.values[0], row.values[1]));
            }
        }
        let names = cells.iter().map(|cell| cell.cell.clone()).collect();
        Ratios { sizes, names }
    }

    /// Returns the ratio of the `chosen` files, in pages or (`None`) whole.
    pub fn ratio(
        &self,
        chosen: impl Fn(&str) -> bool,
        page: Option<u64>,
        method: &str,
    ) -> Option<f64> {
        let task = page.map_or(WHOLE.to_string(), |page| page.to_string());
        let same = self
            .sizes
            .iter()
            .filter(|((name, of, by), _)| chosen(name) && *of == task && by == method);
        let (raw, stored) = same.fold((0.0, 0.0), |(raw, stored), (_, sizes)| {
            (raw + sizes.0, stored + sizes.1)
        });
        (stored > 0.0).then(|| raw / stored)
    }

    /// Why the record is no evidence about the thesis's data.
    pub fn doubt(&self) -> Option<&'static str> {
        let generated = self
            .names
            .iter()
            .any(|name| Set::of(name) == Set::Generated);
        generated.then_some(corpus::GENERATED_DATA)
    }

    /// Returns the sets that are recorded.
    fn sets(&self) -> Vec<Set> {
        let all = [Set::Silesia, Set::Trees, Set::Deduplicated];
        let has = |set: &Set| self.names.iter().any(|name| Set::of(name) == *set);
        all.into_iter().filter(has).collect()
    }
}

/// Whether a file is among the data that stand for the thesis's.
pub fn is_counted(name: &str) -> bool {
    Set::of(name).is_counted()
}

fn judge(ratios: &Ratios) -> Vec<Finding> {
    let mut findings = Vec::new();
    for codec in &published::CODECS {
        findings.extend(kept(ratios, codec, "together", true, is_counted));
        findings.extend(growth(ratios, codec));
    }
    for set in ratios.sets() {
        for codec in &published::CODECS {
            let of = |name: &str| Set::of(name) == set;
            findings.extend(kept(ratios, codec, set.name(), false, of));
        }
    }
    findings
}

/// Judges the share of a codec's whole-file ratio that 8 KiB pages keep.
fn kept(
    ratios: &Ratios,
    codec: &published::PublishedCodec,
    set: &str,
    core: bool,
    chosen: impl Fn(&str) -> bool,
) -> Option<Finding> {
    let published = codec.page_ratio? / codec.whole_ratio;
    let page = ratios.ratio(&chosen, Some(PAGE), codec.method)?;
    let whole = ratios.ratio(&chosen, None, codec.method)?;
    let note = format!("{page:.2} of {whole:.2} kept; his share {published:.3}");
    let claim = Claim {
        question: format!("{} kept at 8 KiB, {set}", codec.method),
        core,
        target: KEPT,
        note: &note,
    };
    let figure = (page / whole / published * 1e3).round() / 1e3;
    Some(claim.judge(Interval::exact(figure), ratios.doubt()))
}

/// Judges the least that a doubling of the page gains.
fn growth(ratios: &Ratios, codec: &published::PublishedCodec) -> Option<Finding> {
    let ratio = |page: u64| ratios.ratio(is_counted, Some(page), codec.method);
    let mut gains = Vec::new();
    for pair in PAGE_BYTES.windows(2) {
        gains.push((ratio(pair[1])? / ratio(pair[0])?, pair[1]));
    }
    let least = gains.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    let note = format!("the least, at {}", tables::binary_size(least.1 as usize));
    let claim = Claim {
        question: format!("{} gain of a doubling", codec.method),
        core: true,
        target: Target::at_least(1.0),
        note: &note,
    };
    let figure = (least.0 * 1e3).round() / 1e3;
    Some(claim.judge(Interval::exact(figure), ratios.doubt()))
}

/// Reads the ratios that are recorded last.
pub fn recorded(records: &Path) -> Result<(String, Ratios)> {
    let latest = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    Ok((tables::origin(records, &latest), Ratios::of(&latest)))
}

fn table(records: &Path) -> Result<tables::Shown> {
    let (origin, ratios) = recorded(records)?;
    if ratios.names.is_empty() {
        return Ok(tables::Shown::unjudged(origin));
    }
    let findings = judge(&ratios);
    let mut text = tables::judged(origin, findings);
    text.push_str("\n");
    text.push_str(
        "Ratios of whole files and pages, the published ones of all his data beside ours of the part at hand (4 of the \
         12 files of Silesia, no index of the Mouse Genome Database):\n\n",
    );
    text.push_str("| data | method | 4 KiB | 8 KiB | 16 KiB | 32 KiB | 64 KiB | whole |\n");
    text.push_str("|---|---|---:|---:|---:|---:|---:|---:|\n");
    for codec in &published::CODECS {
        let page = codec
            .page_ratio
            .map_or(String::new(), |ratio| format!("{ratio:.2}"));
        text.push_str(&format!(
            "| *published, all his data* | {} | | {page} | | | | {:.2} |\n",
            codec.name, codec.whole_ratio
        ));
    }
    text.push_str(&lines(&ratios, "together", is_counted));
    for set in ratios.sets() {
        text.push_str(&lines(&ratios, set.name(), |name| Set::of(name) == set));
    }
    for name in &ratios.names {
        text.push_str(&lines(&ratios, name, |other| other == name));
    }
    Ok(text)
}

fn lines(ratios: &Ratios, title: &str, chosen: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for codec in &published::CODECS {
        text.push_str(&format!("| {title} | {} |", codec.method));
        for page in PAGE_BYTES.map(Some).into_iter().chain([None]) {
            let ratio = ratios.ratio(&chosen, page, codec.method);
            let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
            text.push_str(&format!(" {ratio} |"));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::data::{Kind, SEED};
    use crate::statistics::Verdict;

    /// Cells of real names. Pages of 8 KiB keep `kept` of the published share, and pages of 16 KiB are `gain` times as
    /// good as those of 8 KiB.
    pub fn cells(names: &[&str], kept: f64, gain: f64) -> Vec<CellRecord> {
        let cell = |name: &&str| {
            let mut rows = Vec::new();
            for codec in &published::CODECS {
                let share = codec.page_ratio.unwrap_or(3.0) / codec.whole_ratio;
                let page = 4.0 * share * kept;
                let ratios = [page / 1.1, page, page * gain, page * gain, page * gain];
                let tasks = PAGE_BYTES.map(|page| page.to_string());
                let pages = tasks.into_iter().zip(ratios);
                for (task, ratio) in [(WHOLE.to_string(), 4.0)].into_iter().chain(pages) {
                    rows.push(Row {
                        task,
                        run: 1,
                        runs: 1,
                        contender: codec.method.to_string(),
                        values: vec![1e6, 1e6 / ratio],
                    });
                }
            }
            CellRecord::made_up(*name, "", rows)
        };
        names.iter().map(cell).collect()
    }

    #[test]
    fn kept_shares_and_gains_are_judged() {
        let real = ["silesia/xml", "postgres/pg_btree_text_leg.idx"];
        let check = |names: &[&str], kept: f64, gain: f64, expected: Verdict| {
            let findings = judge(&Ratios::of(&cells(names, kept, gain)));
            assert_eq!(tables::verdict(&findings), Some(expected), "{findings:?}");
            findings
        };
        let found = check(&real, 1.0, 1.05, Verdict::Holds);
        // Two codecs have a published share of each of three sets; each codec gains.
        assert_eq!(found.len(), 3 * 2 + 3, "{found:?}");
        assert_eq!(found[0].found.middle, 1.0);
        check(&real, 1.2, 1.05, Verdict::Differs);
        check(&real, 0.85, 1.05, Verdict::Differs);
        check(&real, 1.0, 0.98, Verdict::Differs);
        check(&["text", "rows"], 1.0, 1.05, Verdict::CannotTell);
    }

    #[test]
    fn deduplicated_trees_are_not_counted_together() {
        let mut all = cells(&["silesia/xml"], 1.0, 1.0);
        all.extend(cells(
            &["postgres/pg_btree_int8_flight_dedup.idx"],
            0.5,
            1.0,
        ));
        let ratios = Ratios::of(&all);
        let counted = ratios.ratio(is_counted, Some(PAGE), "zstd:3");
        let alone = ratios.ratio(|name| name == "silesia/xml", Some(PAGE), "zstd:3");
        assert_eq!(counted, alone);
        assert_eq!(ratios.ratio(|_| false, Some(PAGE), "zstd:3"), None);
    }

    #[test]
    fn larger_pages_shrink_more() {
        let bytes = Kind::Text.generate(128 << 10, SEED);
        let of = |block_bytes| stored_bytes("zstd:3".parse().unwrap(), &bytes, block_bytes);
        assert!(of(64 << 10).unwrap() < of(4 << 10).unwrap());
        assert!(of(bytes.len()).unwrap() < of(64 << 10).unwrap());
    }
}
