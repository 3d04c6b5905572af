//! Figures 10, 12 and 13 of the thesis, measured instead of computed. They show hit ratio and time of an access over
//! the compressed share of memory, and the remainder if codecs cost nothing.
//!
//! His caches of 15 GB before 200 and 500 GB are scaled to the same proportions. Every split has a cache of its own.
//! All are warmed first and then alternate on the same pieces of the accesses, so that each piece is a run.

use std::path::Path;

use anyhow::Result;
use breakeven::cache::{Arm, MissTime, Policy, ShardOptions};
use breakeven::meter::PowerModel;
use breakeven::model::{Access, BufferCache, BufferCodec, Overheads, Placement, Rate, Rates};
use breakeven::replay::{Pattern, Replay, Replayed, Source, Workload};
use breakeven::units::Seconds;

use super::overheads::{self, Left};
use super::policies::made;
use super::{Claim, corpus, energy, energy_of, findings_table, pictures_of_figures, power, shown};
use crate::data::SEED;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave::order;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const RECORD: &str = "harper2018-cache/figures";
pub const METHODS: [&str; 2] = ["lz4:1", "zstd:3"];
/// His page fault, in microseconds.
pub const FAULT_US: f64 = 110.0;
const PAGE_BYTES: usize = 8 << 10;
const MEMORY_BYTES: u64 = 4 << 20;
const QUICK_MEMORY_BYTES: u64 = 512 << 10;

const PARAMETERS: &[(&str, &str)] = &[
    (
        "cache",
        "4 MiB before 53 and 133 MiB, as 15 GB before 200 and 500 GB; pages of 8 KiB of databases; every page as likely, or 80 % of accesses to 20 %",
    ),
    (
        "splits",
        "10 to 95 % of memory for compressed pages, by lz4:1 and by zstd:3, every victim compressed; and the cache that compresses nothing",
    ),
    ("page fault", "110 us, charged and not made: his"),
    (
        "time of an access",
        "page faults, and all processor time of the cache: codecs, searching, hits, moving pages, eviction",
    ),
    (
        "runs",
        "10 (quick: 2) pieces of the accesses after a warm-up, all caches alternating on each",
    ),
];

pub const FIGURES: Experiment = Experiment {
    key: RECORD,
    claim: "In a real cache compressing pays where the thesis computes that it does.",
    source: "Harper 2018, Figures 10, 12 and 13",
    figure: "time of an access of the raw cache over that of the best split one",
    target: PAYS,
    parameters: PARAMETERS,
    analysis: "One thread does everything, so the waiting thread compresses a victim and restores a page, where he \
        counts eight threads in bulk. The codec's time is real and of these pages, the disk's is his. Figure 13 needs \
        no codec that costs nothing: it is the cost of page faults alone. Joules are processor time times watts, by \
        the model that the record names. That zstd never pays before 500 GB with every page as likely is no core, for \
        it depends on his processor.",
    run: |laboratory| Ok(figures(&measure(laboratory)?)),
    table,
    pictures: pictures_of_figures::draw,
};

pub const MODEL: Experiment = Experiment {
    key: "harper2018-cache/model",
    claim: "The thesis's model, with the costs put back that it sets to zero, predicts the time of an access to a tenth.",
    source: "Harper 2018, chapter 3, Assumptions, and chapter 4; the costs are those of `harper2018-cache/overheads`",
    figure: "measured over computed time of an access",
    target: Target {
        low: 0.9,
        high: 1.1,
    },
    parameters: PARAMETERS,
    analysis: "The model gets the codecs' times and ratios on the pages of the same runs, one thread for both \
        directions. From `overheads` it gets the costs of a hit, a search and the branches. Processor time stolen from \
        others is in no access of ours. Only the picture puts it back. Where few pages are hot, its hit ratio is that \
        of a cache that knows them. A real one has to find them out. It spreads hits over both pools alike. The rows \
        `hottest raw` are of the model that keeps the hottest pages raw. It knows neither the memory of entries and \
        ghosts nor pages that pass through the cache without staying. It assumes that every restored page drives \
        another out.",
    run: |laboratory| {
        let left = overheads::measured(laboratory)?;
        Ok(model(&measure(laboratory)?, &left))
    },
    table: table_of_model,
    pictures: no_pictures,
};

const PAYS: Target = Target::at_least(1.0);
/// The truth about zstd in Figure 12b.
const NEVER_PAYS: Target = Target {
    low: 0.0,
    high: 1.0,
};

pub const COLUMNS: &[&str] = &[
    "all_us",
    "charged_us",
    "free_us",
    "hits",
    "packed_hits",
    "encode_us",
    "decode_us",
    "ratio",
    "held",
    "core_us",
    "active_uj",
];
/// Page faults and all processor time.
pub const ALL: usize = 0;
/// Page faults and codecs.
const CHARGED: usize = 1;
/// Page faults alone.
pub const FREE: usize = 2;
pub const HITS: usize = 3;
const PACKED_HITS: usize = 4;
const ENCODE: usize = 5;
const DECODE: usize = 6;
const RATIO: usize = 7;
const HELD: usize = 8;
const CPU: usize = 9;
const JOULES: usize = 10;

/// The contender that compresses nothing; it has the task of each method.
pub const RAW: &str = "0 %";

/// A cache of Figure 12.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Setting {
    /// The letter of the figure.
    pub letter: char,
    pub data_set_gb: f64,
    pub access: Access,
}

const fn setting(letter: char, data_set_gb: f64, access: Access) -> Setting {
    Setting {
        letter,
        data_set_gb,
        access,
    }
}

pub const SETTINGS: [Setting; 4] = [
    setting('a', 200.0, Access::Even),
    setting('b', 500.0, Access::Even),
    setting('c', 200.0, Access::Pareto),
    setting('d', 500.0, Access::Pareto),
];

impl Setting {
    pub fn name(&self) -> String {
        let access = match self.access {
            Access::Even => "even",
            _ => "80-20",
        };
        format!(
            "12{} as 15 of {} GB {access}",
            self.letter, self.data_set_gb
        )
    }

    fn pattern(&self) -> Pattern {
        match self.access {
            Access::Even => Pattern::Even,
            _ => Pattern::Pareto,
        }
    }

    fn data_set_bytes(&self, memory_bytes: u64) -> f64 {
        memory_bytes as f64 * self.data_set_gb / 15.0
    }

    /// Returns the setting of a recorded cell.
    pub fn of(cell: &CellRecord) -> Option<Setting> {
        SETTINGS
            .into_iter()
            .find(|setting| setting.name() == cell.cell)
    }

    /// Returns the model of this cache with the measurements of a method, the median of its splits.
    pub fn model(
        &self,
        cell: &CellRecord,
        method: &str,
        left: Overheads,
        placement: Placement,
    ) -> BufferCache {
        let (encode, decode) = (typical(cell, method, ENCODE), typical(cell, method, DECODE));
        let (encode, decode) = (Seconds(1e-6 * encode), Seconds(1e-6 * decode));
        BufferCache {
            memory_bytes: MEMORY_BYTES as f64,
            data_set_bytes: self.data_set_bytes(MEMORY_BYTES),
            buffer_bytes: PAGE_BYTES as f64,
            access: self.access,
            disk_read: Seconds(1e-6 * FAULT_US),
            codec: BufferCodec {
                ratio: typical(cell, method, RATIO),
                compress_bulk: encode,
                decompress_bulk: decode,
                compress_latency: encode,
                decompress_latency: decode,
            },
            rates: Rates {
                victims: Rate::Latency,
                restores: Rate::Latency,
            },
            overheads: left,
            placement,
        }
    }
}

fn shares(is_quick: bool) -> &'static [u32] {
    match is_quick {
        true => &[50, 95],
        false => &[10, 20, 30, 40, 50, 60, 70, 80, 90, 95],
    }
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let runs = if laboratory.quick { 2 } else { 10 };
    let settings = match laboratory.quick {
        true => &SETTINGS[1..3],
        false => &SETTINGS[..],
    };
    let power = &power()?;
    let cells = settings.iter().map(|setting| Cell {
        name: setting.name(),
        parameters: format!(
            "{} page_bytes={PAGE_BYTES} fault_us={FAULT_US} runs={runs} {}",
            corpus::label(laboratory),
            energy(power)
        ),
        measure: Box::new(move || measure_setting(laboratory, setting, runs, power)),
    });
    laboratory.measure(RECORD, COLUMNS, cells.collect())
}

/// One split with its cache.
struct Split<'a> {
    method: &'static str,
    share: u32,
    /// The method's ratio on the pages.
    ratio: f64,
    replay: Replay<'a>,
}

fn measure_setting(
    laboratory: &Laboratory,
    setting: &Setting,
    runs: usize,
    power: &PowerModel,
) -> Result<Vec<Row>> {
    let contents = corpus::Set::Database.contents(laboratory, PAGE_BYTES)?;
    let (memory_bytes, warm, piece) = match laboratory.quick {
        true => (QUICK_MEMORY_BYTES, 800, 400),
        false => (MEMORY_BYTES, 30_000, 6000),
    };
    let miss = MissTime {
        core: Seconds(0.0),
        waiting: Seconds(1e-6 * FAULT_US),
    };
    let source = Source::Charged(&contents, miss);
    let mut splits = Vec::new();
    let mut add = |method: &'static str, ratio: f64, share: u32| -> Result<()> {
        let options = ShardOptions {
            methods: vec![method.parse()?],
            policy: match share {
                0 => Policy::RawOnly,
                _ => Policy::Static(Arm {
                    compressed_share: f64::from(share) / 100.0,
                    method: 0,
                    admits_once: true,
                }),
            },
            ..ShardOptions::sized(memory_bytes, PAGE_BYTES)
        };
        splits.push(Split {
            method,
            share,
            ratio,
            replay: Replay::new(source, options)?,
        });
        Ok(())
    };
    for method in METHODS {
        let made = &made(&contents, &[method.parse()?])?[0];
        let ratio = PAGE_BYTES as f64 / made.packed_bytes;
        add(method, ratio, 0)?;
        shares(laboratory.quick)
            .iter()
            .try_for_each(|share| add(method, ratio, *share))?;
    }
    let pages = setting.data_set_bytes(memory_bytes) as u64 / PAGE_BYTES as u64;
    let mut keys = Workload::new(setting.pattern(), pages, SEED);
    let warming: Vec<u64> = keys.by_ref().take(warm).collect();
    for split in &mut splits {
        split.replay.run(warming.iter().copied())?;
    }
    let mut rows = Vec::new();
    for run in 0..runs {
        let keys: Vec<u64> = keys.by_ref().take(piece).collect();
        for index in order(run, splits.len()) {
            let split = &mut splits[index];
            let before = split.replay.so_far();
            split.replay.run(keys.iter().copied())?;
            rows.push(Row {
                task: split.method.to_string(),
                run: run + 1,
                runs,
                contender: format!("{} %", split.share),
                values: values(&before, &split.replay.so_far(), split.ratio, power),
            });
        }
    }
    Ok(rows)
}

fn values(before: &Replayed, after: &Replayed, ratio: f64, power: &PowerModel) -> Vec<f64> {
    let (old, new) = (&before.stats, &after.stats);
    let count = (new.accesses() - old.accesses()) as f64;
    let packed_hits = (new.packed_hits - old.packed_hits) as f64;
    let misses = (new.misses - old.misses) as f64;
    let compressed = (new.compressed - old.compressed) as f64;
    let faults = new.miss_cost - old.miss_cost;
    let (encode, decode) = (
        new.encode_cost - old.encode_cost,
        new.decode_cost - old.decode_cost,
    );
    let core = (after.core - before.core).0;
    let joules = power.core_energy(Seconds(core)).0;
    let memory = &after.memory;
    vec![
        1e6 * (faults + core) / count,
        1e6 * (new.cost() - old.cost()) / count,
        1e6 * faults / count,
        1.0 - misses / count,
        packed_hits / count,
        1e6 * encode / compressed.max(1.0),
        1e6 * decode / packed_hits.max(1.0),
        ratio,
        memory.held_bytes as f64 / memory.budget_bytes as f64,
        1e6 * core / count,
        1e6 * joules / count,
    ]
}

/// Returns the median of a column over the runs.
pub fn middle(cell: &CellRecord, method: &str, contender: &str, column: usize) -> f64 {
    super::middle(&cell.column(method, contender, column))
}

/// Returns the shares that a cell has, in percent and rising.
pub fn recorded_shares(cell: &CellRecord) -> Vec<u32> {
    let shares = cell
        .rows
        .iter()
        .filter_map(|row| row.contender.strip_suffix(" %")?.parse().ok());
    let shares: std::collections::BTreeSet<u32> = shares.collect();
    shares.into_iter().filter(|share| *share > 0).collect()
}

/// Returns the median of a column over a method's splits.
fn typical(cell: &CellRecord, method: &str, column: usize) -> f64 {
    let of = |share: &u32| middle(cell, method, &format!("{share} %"), column);
    let values: Vec<f64> = recorded_shares(cell).iter().map(of).collect();
    match values.is_empty() {
        true => f64::NAN,
        false => Interval::of_pairs(&values).middle,
    }
}

/// Returns the share at which an access takes least.
fn best_share(cell: &CellRecord, method: &str) -> u32 {
    let of = |share: &u32| middle(cell, method, &format!("{share} %"), ALL);
    let shares = recorded_shares(cell);
    let best = shares
        .iter()
        .min_by(|one, other| of(one).total_cmp(&of(other)));
    best.copied().unwrap_or(0)
}

fn figures(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let Some(setting) = Setting::of(cell) else {
            continue;
        };
        for method in METHODS {
            let share = best_share(cell, method);
            let best = cell.column(method, &format!("{share} %"), ALL);
            let raw = cell.column(method, RAW, ALL);
            let ratios: Vec<f64> = raw.iter().zip(best).map(|(raw, best)| raw / best).collect();
            // All but zstd before 500 GB with every page as likely.
            let pays = setting.letter != 'b' || method == METHODS[0];
            let note = format!(
                "at {share} %, ratio {:.2}; {:.1} of {:.1} us; the thesis: {}",
                typical(cell, method, RATIO),
                middle(cell, method, &format!("{share} %"), ALL),
                middle(cell, method, RAW, ALL),
                if pays { "pays" } else { "never pays" }
            );
            let claim = Claim {
                question: format!("{}, {method}", cell.cell),
                core: pays,
                target: if pays { PAYS } else { NEVER_PAYS },
                note: &note,
            };
            findings.push(claim.judge(Interval::of_pairs(&ratios), corpus::doubt(cell)));
        }
    }
    findings
}

fn model(cells: &[CellRecord], left: &Left) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let Some(setting) = Setting::of(cell) else {
            continue;
        };
        for method in METHODS {
            for share in recorded_shares(cell)
                .into_iter()
                .filter(|share| [50, 95].contains(share))
            {
                for placement in [Placement::Blind, Placement::HottestRaw] {
                    findings.push(foretold(cell, &setting, method, share, placement, left));
                }
            }
        }
    }
    findings
}

fn foretold(
    cell: &CellRecord,
    setting: &Setting,
    method: &str,
    share: u32,
    placement: Placement,
    left: &Left,
) -> Finding {
    let cache = setting.model(cell, method, left.own(), placement);
    let computed = 1e6 * cache.cost(f64::from(share) / 100.0).0;
    let bare = setting.model(cell, method, Overheads::default(), placement);
    let bare = 1e6 * bare.cost(f64::from(share) / 100.0).0;
    let found = cell.column(method, &format!("{share} %"), ALL);
    let ratios: Vec<f64> = found.iter().map(|found| found / computed).collect();
    let is_his = placement == Placement::Blind;
    let note = format!("computed {computed:.1} us, {bare:.1} without the costs put back");
    let claim = Claim {
        question: format!(
            "{}, {method} {share} %{}",
            cell.cell,
            if is_his { "" } else { ", hottest raw" }
        ),
        core: is_his,
        target: MODEL.target,
        note: &note,
    };
    claim.judge(Interval::of_pairs(&ratios), corpus::doubt(cell))
}

/// Returns the recorded cells.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    Record::new(records, RECORD, COLUMNS).latest()
}

fn table(records: &Path) -> Result<tables::Shown> {
    let cells = recorded(records)?;
    let mut text = findings_table(records, &cells, figures(&cells));
    let Some(first) = cells.first() else {
        return Ok(text);
    };
    text.push_str(&format!(
        "\nMedians over the runs: microseconds of an access with everything (`all`), of page faults and codecs, and of page faults \
         alone (Figure 13); hits (Figure 10), those of compressed pages, microseconds of a page to compress and to restore, the ratio of \
         the pages, bytes held over bytes of memory, and of an access processor time and joules ({}).\n\n\
         | cell | method | share | all us | charged us | faults us | hits | compressed hits | compress us | restore us | ratio | held | core us | uJ |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
        energy_of(first)
    ));
    for cell in &cells {
        for method in METHODS {
            let mut shares = vec![0];
            shares.extend(recorded_shares(cell));
            for share in shares {
                text.push_str(&line(cell, method, share));
            }
        }
    }
    Ok(text)
}

fn line(cell: &CellRecord, method: &str, share: u32) -> String {
    let of = |column| middle(cell, method, &format!("{share} %"), column);
    format!(
        "| {} | {method} | {share} % | {:.2} | {:.2} | {:.2} | {:.1} % | {:.1} % | {:.1} | {:.1} | {:.2} | {:.2} | {} | {} |\n",
        cell.cell,
        of(ALL),
        of(CHARGED),
        of(FREE),
        100.0 * of(HITS),
        100.0 * of(PACKED_HITS),
        of(ENCODE),
        of(DECODE),
        of(RATIO),
        of(HELD),
        shown(of(CPU), 2),
        shown(of(JOULES), 1),
    )
}

fn table_of_model(records: &Path) -> Result<tables::Shown> {
    let cells = recorded(records)?;
    let Some(left) = overheads::recorded(records)? else {
        return Ok(tables::judged(tables::origin(records, &[]), Vec::new()));
    };
    Ok(findings_table(records, &cells, model(&cells, &left)))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::statistics::Verdict;

    /// A cell in which every split takes the model's time, times `factor`.
    pub fn cell(setting: &Setting, factor: f64) -> CellRecord {
        let mut rows = Vec::new();
        let made = |share: u32| {
            let mut values = vec![1.0; COLUMNS.len()];
            (values[ENCODE], values[DECODE], values[RATIO]) = (8.0, 3.0, 2.97);
            (values[HITS], values[ALL]) = (0.2 + f64::from(share) / 500.0, 1.0);
            values
        };
        let row = |method: &str, share: u32, run: usize, values: Vec<f64>| Row {
            task: method.to_string(),
            run,
            runs: 10,
            contender: format!("{share} %"),
            values,
        };
        for method in METHODS {
            rows.extend([0, 50, 95].map(|share| row(method, share, 1, made(share))));
        }
        let draft = CellRecord::made_up(setting.name(), "data=real", rows);
        let mut rows = Vec::new();
        for method in METHODS {
            let model = setting.model(&draft, method, Overheads::default(), Placement::Blind);
            for run in 1..=10 {
                for share in [0, 50, 95] {
                    let mut values = made(share);
                    let cost = match share {
                        0 => model.raw_cost(),
                        _ => model.cost(f64::from(share) / 100.0),
                    };
                    values[ALL] = 1e6 * cost.0 * factor * (1.0 + 0.001 * run as f64);
                    rows.push(row(method, share, run, values));
                }
            }
        }
        CellRecord::made_up(setting.name(), "data=real", rows)
    }

    #[test]
    fn what_the_model_says_agrees_with_the_thesis_and_with_itself() {
        let cells = SETTINGS.map(|setting| cell(&setting, 1.0));
        let found = figures(&cells);
        assert_eq!(found.len(), 8);
        // With zstd's costs for both, the row of Figure 12b that is no core and lz4's beside it differ at most.
        let core = found
            .iter()
            .filter(|finding| finding.core && !finding.question.starts_with("12b"));
        assert!(
            core.clone().count() == 6 && core.into_iter().all(|it| it.verdict == Verdict::Holds),
            "{found:?}"
        );
        let found = model(&cells, &Left::default());
        let blind: Vec<&Finding> = found.iter().filter(|finding| finding.core).collect();
        assert_eq!(blind.len(), 16);
        assert!(
            blind.iter().all(|it| it.verdict == Verdict::Holds),
            "{blind:?}"
        );
        let slow = model(&[cell(&SETTINGS[0], 1.3)], &Left::default());
        assert!(
            slow.iter()
                .filter(|it| it.core)
                .all(|it| it.verdict == Verdict::Differs)
        );
    }
}
