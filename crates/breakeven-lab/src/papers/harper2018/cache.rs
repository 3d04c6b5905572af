//! Figures 1, 3, 10, 12 and 13: the cache of the thesis, with its Table 4 and with ours.
//!
//! Nothing is timed here. The library's model gets the costs of `harper2018/costs`, run by run, so that the error of
//! the times becomes the error of the answer.

use std::path::Path;

use anyhow::Result;
use breakeven::model::{Access, BufferCache, BufferCodec, Overheads, Placement, Rates};
use breakeven::units::Seconds;

use super::costs::{self, Costs, Count, METHODS};
use super::ratio::PAGE;
use super::{Claim, mean, pictures, published};
use crate::experiment::Experiment;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018/cache",
    claim: "Compressing part of a buffer cache of 15 GB makes the mean access faster: by lz4 before 200 and 500 GB, by zstd wherever 80 % of accesses go to 20 % of the data.",
    source: "Harper 2018, Figures 10, 12 and 13; the published figures are his formulas with his Table 4",
    figure: "time per access of the raw cache over that of the best split one",
    target: PAYS,
    parameters: &[
        (
            "costs",
            "of each run of `harper2018/costs`: nothing is timed here",
        ),
        (
            "cache",
            "15 GB of memory in pages of 8 KiB before 200 and 500 GB; every page as likely, or 80 % of accesses to 20 % of the data",
        ),
        (
            "thesis",
            "his way: both codec operations in bulk, page faults four in flight; the core",
        ),
        (
            "waiting",
            "a hit is restored by one thread, a page fault is one read alone",
        ),
    ],
    analysis: "He leaves out search, branches, hits and stolen processor time, and spreads hits over both pools alike; so does \
        this. The ratio is that of the pages measured, which is better than his because his hard files are missing: the \
        rows `his ratios` take 2.13 and 2.97 instead. That zstd never pays before 500 GB with every page as likely hangs on his \
        disk and processor, so that row is no core.",
    run,
    table,
    pictures: pictures::cache,
};

const PAYS: Target = Target::at_least(1.0);
/// The truth about zstd in Figure 12b.
const NEVER_PAYS: Target = Target {
    low: 0.0,
    high: 1.0,
};
const COLUMNS: &[&str] = &["raw_us", "best_us", "best_share", "pays_from"];
const RAW_US: usize = 0;
const BEST_US: usize = 1;
const BEST_SHARE: usize = 2;
const PAYS_FROM: usize = 3;
/// Shares of memory that are compared: hundredths.
pub const SHARES: u32 = 100;
/// The name of the task with the published ratios in the place of ours.
const HIS_RATIOS: &str = "his-ratios";

/// A cache of Figure 12.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The letter of the figure.
    pub letter: char,
    pub data_set_gb: f64,
    pub access: Access,
}

pub const SETTINGS: [Setting; 4] = [
    Setting {
        letter: 'a',
        data_set_gb: 200.0,
        access: Access::Even,
    },
    Setting {
        letter: 'b',
        data_set_gb: 500.0,
        access: Access::Even,
    },
    Setting {
        letter: 'c',
        data_set_gb: 200.0,
        access: Access::Pareto,
    },
    Setting {
        letter: 'd',
        data_set_gb: 500.0,
        access: Access::Pareto,
    },
];

impl Setting {
    pub fn name(&self) -> String {
        let access = match self.access {
            Access::Even => "even",
            _ => "80-20",
        };
        format!("{} GB {access}", self.data_set_gb)
    }

    /// Returns the cache with a codec and a page fault of `fault_s`.
    pub fn cache(&self, codec: BufferCodec, fault_s: f64, count: Count) -> BufferCache {
        BufferCache {
            memory_bytes: 15e9,
            data_set_bytes: self.data_set_gb * 1e9,
            buffer_bytes: PAGE as f64,
            access: self.access,
            disk_read: Seconds(fault_s),
            codec,
            rates: match count {
                Count::Thesis => Rates::HARPER,
                Count::Waiting => Rates::default(),
            },
            overheads: Overheads::default(),
            placement: Placement::Blind,
        }
    }

    /// Returns the cache with the published costs.
    pub fn published(&self, method: &str) -> BufferCache {
        let codec = published::codec(method).buffer_codec();
        self.cache(codec, published::FAULT_US * 1e-6, Count::Thesis)
    }
}

/// Returns the least time per access, with the share of memory it takes.
fn best(cache: &BufferCache) -> (f64, f64) {
    let shares = (1..=SHARES).map(|step| f64::from(step) / f64::from(SHARES));
    let costs = shares.map(|share| (cache.cost(share).0, share));
    costs
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .expect("there are shares")
}

fn run(laboratory: &Laboratory) -> Result<Vec<Finding>> {
    let costs = Costs::of(costs::measured(laboratory)?)?;
    let cells = SETTINGS.iter().map(|setting| cell(setting, &costs));
    let cells = cells.collect();
    let measured = laboratory.measure(EXPERIMENT.key, COLUMNS, cells)?;
    Ok(judge_all(&measured, costs.doubt()))
}

fn cell<'a>(setting: &'a Setting, costs: &'a Costs) -> Cell<'a> {
    Cell {
        name: setting.name(),
        parameters: format!(
            "memory_gb=15 data_set_gb={} page_bytes={PAGE} costs={} runs={}",
            setting.data_set_gb,
            costs.cell.date,
            costs.runs()
        ),
        measure: Box::new(move || Ok(rows(setting, costs))),
    }
}

/// Computes every way of counting by every method for each run of the costs.
fn rows(setting: &Setting, costs: &Costs) -> Vec<Row> {
    let mut rows = Vec::new();
    for run in 0..costs.runs() {
        for method in METHODS {
            let codec = costs.codec(method, Some(run));
            let his_ratio = published::codec(method).page_ratio.unwrap_or(codec.ratio);
            let with_his_ratio = BufferCodec {
                ratio: his_ratio,
                ..codec
            };
            for (task, count, codec) in [
                (Count::Thesis.name(), Count::Thesis, codec),
                (Count::Waiting.name(), Count::Waiting, codec),
                (HIS_RATIOS, Count::Thesis, with_his_ratio),
            ] {
                let cache = setting.cache(codec, costs.faults(count)[run], count);
                let (best_s, best_share) = best(&cache);
                let pays_from = cache.break_even().map_or(f64::NAN, |shares| shares.from);
                rows.push(Row {
                    task: task.to_string(),
                    run: run + 1,
                    runs: costs.runs(),
                    contender: method.to_string(),
                    values: vec![
                        1e6 * cache.raw_cost().0,
                        1e6 * best_s,
                        best_share,
                        pays_from,
                    ],
                });
            }
        }
    }
    rows
}

fn judge_all(cells: &[CellRecord], doubt: Option<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (cell, setting) in cells.iter().zip(&SETTINGS) {
        for task in [Count::Thesis.name(), HIS_RATIOS, Count::Waiting.name()] {
            for method in METHODS {
                findings.push(judge(cell, setting, task, method, doubt));
            }
        }
    }
    findings
}

fn judge(
    cell: &CellRecord,
    setting: &Setting,
    task: &str,
    method: &str,
    doubt: Option<&str>,
) -> Finding {
    let published = setting.published(method);
    let his = published.raw_cost().0 / best(&published).0;
    let raw = cell.column(task, method, RAW_US);
    let best_us = cell.column(task, method, BEST_US).into_iter();
    let ratios: Vec<f64> = raw
        .iter()
        .zip(best_us)
        .map(|(raw, best)| raw / best)
        .collect();
    let from = mean_if_all(&cell.column(task, method, PAYS_FROM));
    let his_from = published.break_even().map(|shares| shares.from);
    let share = |share: Option<f64>| {
        share.map_or("never".into(), |share| {
            format!("from {:.0} % of memory", 100.0 * share)
        })
    };
    let note = format!(
        "pays {}; published {his:.3}, pays {}",
        share(from),
        share(his_from)
    );
    let pays = his >= 1.0;
    let claim = Claim {
        question: format!("{}, {method}, {task}", cell.cell),
        core: pays && task == Count::Thesis.name(),
        target: if pays { PAYS } else { NEVER_PAYS },
        note: &note,
    };
    claim.judge(Interval::of_pairs(&ratios), doubt)
}

/// Returns the mean of the shares; none if one of the runs has none.
fn mean_if_all(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let mean = sum / shares.len() as f64;
    mean.is_finite().then_some(mean)
}

fn table(records: &Path) -> Result<tables::Shown> {
    let latest = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let origin = tables::origin(records, &latest);
    let (_, costs) = costs::recorded(records)?;
    let Some(costs) = costs.filter(|_| latest.len() == SETTINGS.len()) else {
        return Ok(tables::Shown::unjudged(origin));
    };
    let findings = judge_all(&latest, costs.doubt());
    let mut text = tables::judged(origin, findings);
    text.push_str("\n");
    text.push_str(
        "Microseconds per access, raw and at the best share of compressed memory, and the share from which it pays \
         (thesis's way of counting), ours beside the published:\n\n\
         | Figure 12 | method | raw | best | at share | pays from | published raw | best | at share | pays from |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for (cell, setting) in latest.iter().zip(&SETTINGS) {
        for method in METHODS {
            text.push_str(&line(cell, setting, method));
        }
    }
    Ok(text)
}

fn line(cell: &CellRecord, setting: &Setting, method: &str) -> String {
    let column = |column| cell.column(Count::Thesis.name(), method, column);
    let percent = |share: Option<f64>| {
        share.map_or("never".into(), |share| format!("{:.0} %", 100.0 * share))
    };
    let published = setting.published(method);
    let (best_s, best_share) = best(&published);
    format!(
        "| 12{}: {} | {method} | {:.1} | {:.1} | {} | {} | {:.1} | {:.1} | {} | {} |\n",
        setting.letter,
        cell.cell,
        mean(&column(RAW_US)),
        mean(&column(BEST_US)),
        percent(mean_if_all(&column(BEST_SHARE))),
        percent(mean_if_all(&column(PAYS_FROM))),
        1e6 * published.raw_cost().0,
        1e6 * best_s,
        percent(Some(best_share)),
        percent(published.break_even().map(|shares| shares.from)),
    )
}

#[cfg(test)]
mod tests {
    use super::super::faults::DISK;
    use super::*;
    use crate::statistics::Verdict;

    fn cells(costs: &Costs) -> Vec<CellRecord> {
        let cell =
            |setting: &Setting| CellRecord::made_up(setting.name(), "", rows(setting, costs));
        SETTINGS.iter().map(cell).collect()
    }

    fn costs(fault_us: f64) -> Costs {
        Costs::of(costs::tests::record("real", DISK, fault_us)).unwrap()
    }

    /// With the costs of the thesis its own answers come out, Figures 12a to 12d.
    #[test]
    fn the_costs_of_the_thesis_give_its_answers() {
        let costs = costs(published::FAULT_US);
        let cells = cells(&costs);
        let findings = judge_all(&cells, None);
        assert_eq!(findings.len(), 4 * 3 * 2);
        assert!(
            findings
                .iter()
                .all(|finding| finding.verdict == Verdict::Holds),
            "{findings:?}"
        );
        assert_eq!(findings.iter().filter(|finding| finding.core).count(), 7);
        assert!(
            findings[0]
                .note
                .contains("pays from 21 % of memory; published 1.0")
        );
        assert!(
            findings[7].note.contains("pays never; published 0.98"),
            "{findings:?}"
        );
        let line = line(&cells[2], &SETTINGS[2], "zstd:3");
        let expected = "| 12c: 200 GB 80-20 | zstd:3 | 77.0 | 31.8 | 100 % | 9 % | 77.0 | 31.8 | 100 % | 9 % |\n";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_fast_disk_makes_compressing_lose() {
        let costs = costs(4.0);
        let findings = judge_all(&cells(&costs), None);
        let verdict = tables::verdict(&findings);
        assert_eq!(verdict, Some(Verdict::Differs), "{findings:?}");
        let findings = judge_all(&cells(&costs), Some("generated data"));
        assert_eq!(tables::verdict(&findings), Some(Verdict::CannotTell));
    }
}
