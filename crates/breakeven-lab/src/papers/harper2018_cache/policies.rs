//! The adaptive cache against itself without compression, against every fixed split of a sweep, and
//! against two offline optima.
//!
//! One record serves three claims. A run begins with an empty cache and draws its own accesses; all contenders get the
//! same. The sweep is made once a cell, on the accesses of the first run. Its best split over the second half races in
//! all runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use breakeven::cache::{Arm, MissTime, Policy, ShardOptions};
use breakeven::codec::{Compressor, Decompressor, Method};
use breakeven::meter::{Meter, PowerModel, Scope};
use breakeven::replay::{
    BlockCosts, Contents, Replay, Replayed, Source, least_cost, least_cost_of_fixed_contents,
};
use breakeven::units::Seconds;

use super::cases::{Case, Plan, cases};
use super::{Claim, at_most, bystander, corpus, energy, findings_table, pictures, power};
use crate::clock;
use crate::experiment::{Experiment, no_pictures};
use crate::interleave::order;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables::Shown;

pub const RECORD: &str = "harper2018-cache/policies";

const PARAMETERS: &[(&str, &str)] = &[
    (
        "pages",
        "of real files (--data): records (molecules, XML, logs), databases (PostgreSQL, SQLite), C sources, prose, images and film; each key is bound to one",
    ),
    (
        "accesses",
        "24 for each key, by Zipf, Pareto, evenly, in a loop, with scans between, in phases of 100,000; and the first 400,000 of traces",
    ),
    (
        "memory",
        "16 MiB before two, four or eight times as many bytes of pages; of a trace a quarter of the pages it asks for",
    ),
    (
        "cost",
        "misses at the cell's price, compressing, restoring and learning in processor time as the cache measures it; hits nothing",
    ),
    (
        "sweep",
        "once a cell: 80 % of memory compressed by lz4:1 and zstd:1, of all victims and of pages asked for again; then the best of these at 20 to 95 %",
    ),
    (
        "lost",
        "the loss of a bystander on the other core beside the last sixteenth of the accesses, run again. It looks up numbers in a table of 1 MiB. The loss is a share of its work meanwhile, and microseconds for each access",
    ),
    (
        "runs",
        "10 (quick: 2), each from an empty cache with accesses of its own; `late` is its second half",
    ),
];

pub const RAW_ONLY: Experiment = Experiment {
    key: RECORD,
    claim: "The adaptive cache never costs more than 1 % above the same cache that compresses nothing.",
    source: "this project's own target; Alameldeen and Wood 2004 lose at most 0.4 % in hardware, de Castro 2003 0.39 % in a kernel",
    figure: "mean cost of an access over that of raw-only, from an empty cache on,",
    target: at_most(1.01),
    parameters: PARAMETERS,
    analysis: "A run contains the whole cost of learning whether compression pays. A longer one would spread it over \
        more accesses. Memory of the shadow simulations is part of the budget, so raw-only holds a little more. The \
        cache has no threads of its own, so others lose memory and caches. Misses are not waited for, so it is at work \
        all the time. Joules are processor time times the watts that a busy core adds, by the model the record names.",
    run: |laboratory| Ok(raw_only(&measure(laboratory)?)),
    table: table_of_raw_only,
    pictures: pictures::policies,
};

pub const SPLITS: Experiment = Experiment {
    key: "harper2018-cache/splits",
    claim: "Once it has seen half of the accesses, the adaptive cache costs at most 5 % more than the best fixed split, and less where phases change.",
    source: "this project's own target",
    figure: "mean cost of an access over that of the best fixed split,",
    target: at_most(1.05),
    parameters: PARAMETERS,
    analysis: "The best split is chosen in hindsight and compresses from the first access on; raw-only is one of the splits. `whole` counts \
        from the empty cache on, with all learning, and is no core but where phases change: there a fixed split \
        cannot fit all of them.",
    run: |laboratory| Ok(splits(&measure(laboratory)?)),
    table: |records| table(records, splits),
    pictures: no_pictures,
};

pub const BOUND: Experiment = Experiment {
    key: "harper2018-cache/bound",
    claim: "The adaptive cache costs at most 10 % more than the offline optimum, whether that optimum knows how often each page is asked for, or when.",
    source: "this project's own target; the bound is docs/model.md, section 12",
    figure: "mean cost of an access over the offline optimum's",
    target: at_most(1.1),
    parameters: PARAMETERS,
    analysis: "The optimum that knows how often has the best contents that never change, from the first access on, and \
        compresses for nothing. Where accesses are independent of each other, as by Zipf, Pareto and evenly, no cache \
        can be expected to do better in the long run. Where they follow each other it can, and may be below. The \
        optimum that knows when needs its bytes to fit on average only, so nothing reaches it. The notes have raw-only \
        over the like of caches that do not compress: that part the replacement policy alone leaves to the future.",
    run: |laboratory| Ok(bound(&measure(laboratory)?)),
    table: |records| table(records, bound),
    pictures: no_pictures,
};

pub const COLUMNS: &[&str] = &[
    "cost_us",
    "late_us",
    "p99_us",
    "p999_us",
    "raw_hits",
    "packed_hits",
    "misses",
    "core_us",
    "active_uj",
    "overhead_us",
    "wasted",
    "memory_used",
    "share",
    "method",
    "admits_once",
    "ratio",
    "lost_share",
    "lost_us",
];
pub const COST: usize = 0;
pub const LATE: usize = 1;
const P99: usize = 2;
const P999: usize = 3;
const RAW_HITS: usize = 4;
const PACKED_HITS: usize = 5;
const MISSES: usize = 6;
const CORE: usize = 7;
const JOULES: usize = 8;
const OVERHEAD: usize = 9;
const WASTED: usize = 10;
const MEMORY: usize = 11;
pub const SHARE: usize = 12;
pub const METHOD: usize = 13;
const ADMITS: usize = 14;
const RATIO: usize = 15;
const LOST_SHARE: usize = 16;
const LOST_US: usize = 17;

pub const RAW: &str = "raw-only";
pub const ADAPTIVE: &str = "adaptive";
pub const BEST: &str = "best-split";
pub const LEAST: &str = "bound";
const LEAST_RAW: &str = "bound-raw";
const FIXED: &str = "fixed contents";
const RACERS: [&str; 3] = [RAW, ADAPTIVE, BEST];
/// The task: a race of all runs, or the sweep before it.
pub const RACE: &str = "race";
const SWEEP: &str = "sweep";
/// Shares of the sweep, at the method and admission that were best at the first of them.
const SHARES: [f64; 7] = [0.8, 0.2, 0.35, 0.5, 0.65, 0.9, 0.95];

/// The mean result of a method on a page.
pub struct Made {
    pub packed_bytes: f64,
    decode_seconds: f64,
}

/// Returns the least costs of accesses for each kind of knowledge beforehand.
type Optimum = fn(&[u64], &BlockCosts, f64) -> f64;

/// One cell while it is measured.
struct Bench<'a> {
    case: &'a Case,
    contents: Contents,
    made: Vec<Made>,
    power: PowerModel,
}

fn methods() -> Vec<Method> {
    ShardOptions::default().methods
}

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let cases = cases(laboratory.quick);
    let runs = if laboratory.quick { 2 } else { 10 };
    let power = &power()?;
    let cells = cases.iter().map(|case| Cell {
        name: case.name(),
        parameters: format!(
            "{} methods={} runs={runs} {}",
            corpus::label(laboratory),
            methods()
                .iter()
                .map(Method::to_string)
                .collect::<Vec<_>>()
                .join("+"),
            energy(power),
        ),
        measure: Box::new(move || {
            let contents = case.set.contents(laboratory, case.page_bytes)?;
            let bench = Bench {
                case,
                made: made(&contents, &methods())?,
                contents,
                power: power.clone(),
            };
            bench.race(laboratory, runs)
        }),
    });
    laboratory.measure(RECORD, COLUMNS, cells.collect())
}

/// Finds each method's mean length of a page, and the time of restoring one, on some of the pages.
pub fn made(contents: &Contents, methods: &[Method]) -> Result<Vec<Made>> {
    const PAGES: u64 = 256;
    let (mut compressor, mut decompressor) = (Compressor::new(), Decompressor::new());
    let page_bytes = contents.page_bytes();
    let one = |method: &Method| {
        let method = *method;
        let mut stored = Vec::new();
        for key in 0..PAGES {
            let page = contents.page(key);
            let mut packed = vec![0; page_bytes];
            let size = compressor.compress(method, page, &mut packed)?;
            packed.truncate(size.unwrap_or(page_bytes));
            stored.push(packed);
        }
        let mut restored = vec![0; page_bytes];
        let shrunk = stored.iter().filter(|packed| packed.len() < page_bytes);
        let (duration, outcome) = clock::time(|| {
            shrunk.clone().try_for_each(|packed| {
                decompressor.decompress(method.decoder(), packed, &mut restored)
            })
        });
        outcome?;
        let bytes: usize = stored.iter().map(Vec::len).sum();
        Ok(Made {
            packed_bytes: bytes as f64 / PAGES as f64,
            decode_seconds: duration.cpu_seconds / shrunk.count().max(1) as f64,
        })
    };
    methods.iter().map(one).collect()
}

impl Bench<'_> {
    fn race(&self, laboratory: &Laboratory, runs: usize) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let mut best = Arm::RAW_ONLY;
        for run in 0..runs {
            let plan = self.case.plan(laboratory, run)?;
            if run == 0 {
                best = self.sweep(&plan, &mut rows)?;
            }
            let mut row = |contender: &str, values| {
                rows.push(Row {
                    task: RACE.to_string(),
                    run: run + 1,
                    runs,
                    contender: contender.to_string(),
                    values,
                });
            };
            for index in order(run, RACERS.len()) {
                let policy = match RACERS[index] {
                    RAW => Policy::RawOnly,
                    ADAPTIVE => Policy::Adaptive,
                    _ => static_policy(best),
                };
                row(RACERS[index], self.replay(&plan, policy)?);
            }
            row(LEAST, self.least(&plan, true, least_cost));
            row(LEAST_RAW, self.least(&plan, false, least_cost));
            row(FIXED, self.least(&plan, true, least_cost_of_fixed_contents));
        }
        Ok(rows)
    }

    /// Tries the splits and returns the best of them.
    fn sweep(&self, plan: &Plan, rows: &mut Vec<Row>) -> Result<Arm> {
        let mut tried: Vec<(Arm, f64)> = Vec::new();
        let mut try_arm = |arm: Arm, tried: &mut Vec<(Arm, f64)>| -> Result<()> {
            let values = self.replay(plan, static_policy(arm))?;
            tried.push((arm, values[LATE]));
            rows.push(Row {
                task: SWEEP.to_string(),
                run: 1,
                runs: 1,
                contender: describe(&arm),
                values,
            });
            Ok(())
        };
        for method in 0..methods().len() as u8 {
            for admits_once in [true, false] {
                let arm = Arm {
                    compressed_share: SHARES[0],
                    method,
                    admits_once,
                };
                try_arm(arm, &mut tried)?;
            }
        }
        let family = least_of(&tried);
        for compressed_share in &SHARES[1..] {
            let arm = Arm {
                compressed_share: *compressed_share,
                ..family
            };
            try_arm(arm, &mut tried)?;
        }
        try_arm(Arm::RAW_ONLY, &mut tried)?;
        Ok(least_of(&tried))
    }

    /// Runs one policy over all accesses and returns its row of values.
    fn replay(&self, plan: &Plan, policy: Policy) -> Result<Vec<f64>> {
        let miss = MissTime {
            core: Seconds(0.0),
            waiting: Seconds(self.case.miss_us * 1e-6),
        };
        let options = ShardOptions {
            policy,
            ..ShardOptions::sized(plan.memory_bytes, self.case.page_bytes)
        };
        let mut replay = Replay::new(Source::Charged(&self.contents, miss), options)?;
        let (early, late) = plan.keys.split_at(plan.keys.len() / 2);
        replay.run(early.iter().copied())?;
        let before = replay.so_far();
        replay.run(late.iter().copied())?;
        let mut values = self.values(&before, &replay.so_far());
        let tail = &late[late.len() - (plan.keys.len() / 16).max(1)..];
        values.extend(lost(&mut replay, tail)?);
        Ok(values)
    }

    fn values(&self, early: &Replayed, all: &Replayed) -> Vec<f64> {
        let stats = &all.stats;
        let count = stats.accesses() as f64;
        let late_count = count - early.stats.accesses() as f64;
        let core_seconds = all.core.0 / count;
        let arm = all.arm;
        vec![
            1e6 * stats.cost() / count,
            1e6 * (stats.cost() - early.stats.cost()) / late_count,
            1e6 * all.distribution.quantile(0.99),
            1e6 * all.distribution.quantile(0.999),
            stats.raw_hits as f64 / count,
            stats.packed_hits as f64 / count,
            stats.misses as f64 / count,
            1e6 * core_seconds,
            1e6 * self.power.core_energy(Seconds(core_seconds)).0,
            1e6 * stats.overhead_cost / count,
            stats.wasted as f64 / stats.compressed.max(1) as f64,
            all.memory.in_use_bytes() as f64 / all.memory.budget_bytes as f64,
            arm.compressed_share,
            f64::from(arm.method),
            f64::from(u8::from(arm.admits_once)),
            self.ratio(),
        ]
    }

    /// Returns the ratio of the pages by the method that makes most of them.
    fn ratio(&self) -> f64 {
        let packed = self.made.iter().map(|made| made.packed_bytes);
        self.case.page_bytes as f64 / packed.fold(f64::INFINITY, f64::min)
    }

    /// Returns the row of an offline optimum.
    fn least(&self, plan: &Plan, can_pack: bool, optimum: Optimum) -> Vec<f64> {
        let raw_bytes = self.case.page_bytes as f64;
        let miss = self.case.miss_us * 1e-6;
        let none = Made {
            packed_bytes: raw_bytes,
            decode_seconds: miss,
        };
        let made = if can_pack { &self.made[..] } else { &[none] };
        let costs = made.iter().map(|made| BlockCosts {
            raw_bytes,
            packed_bytes: made.packed_bytes,
            miss,
            decode: made.decode_seconds,
        });
        let memory = plan.memory_bytes as f64;
        let least = costs.map(|costs| optimum(&plan.keys, &costs, memory));
        let mut values = vec![f64::NAN; COLUMNS.len()];
        values[COST] = 1e6 * least.fold(f64::INFINITY, f64::min) / plan.keys.len() as f64;
        values[RATIO] = self.ratio();
        values
    }
}

/// Makes accesses beside a bystander; returns which share of its work it lost, and its microseconds for each
/// access.
fn lost(replay: &mut Replay<'_>, keys: &[u64]) -> Result<[f64; 2]> {
    let alone = bystander::alone(Duration::from_millis(20))?;
    let meter = Meter::start(Scope::Process);
    let ((), rate) = bystander::beside(|| Ok(replay.run(keys.iter().copied())?))?;
    let share = 1.0 - rate / alone;
    let seconds = meter.stop(0).wall.0;
    Ok([share, 1e6 * share * seconds / keys.len() as f64])
}

fn static_policy(arm: Arm) -> Policy {
    match arm.compressed_share {
        0.0 => Policy::RawOnly,
        _ => Policy::Static(arm),
    }
}

fn least_of(tried: &[(Arm, f64)]) -> Arm {
    let best = tried.iter().min_by(|one, other| one.1.total_cmp(&other.1));
    best.expect("arms were tried").0
}

/// Names an arm.
pub fn describe(arm: &Arm) -> String {
    if arm.compressed_share == 0.0 {
        return "raw only".to_string();
    }
    let again = if arm.admits_once { "" } else { " again" };
    let method = methods()[usize::from(arm.method)];
    format!("{:.0} % {method}{again}", 100.0 * arm.compressed_share)
}

/// Names the arm in force at the end of a contender's last run.
fn arm_of(cell: &CellRecord, contender: &str) -> String {
    let last = |column| {
        cell.column(RACE, contender, column)
            .last()
            .copied()
            .unwrap_or(0.0)
    };
    describe(&Arm {
        compressed_share: last(SHARE),
        method: last(METHOD) as u8,
        admits_once: last(ADMITS) > 0.0,
    })
}

fn case_of(cell: &CellRecord) -> Option<Case> {
    let all = [false, true].into_iter().flat_map(cases);
    all.into_iter().find(|case| case.name() == cell.cell)
}

/// Whether claims are judged by a cell.
pub fn is_core(cell: &CellRecord) -> bool {
    case_of(cell).is_some_and(|case| case.is_core)
}

/// Returns the rows of a sweep by rising share, of the method and admission that were best.
pub fn family(cell: &CellRecord) -> Vec<&Row> {
    let swept = cell.rows.iter().filter(|row| row.task == SWEEP);
    let packed: Vec<&Row> = swept.filter(|row| row.values[SHARE] > 0.0).collect();
    let kind = |row: &Row| (row.values[METHOD], row.values[ADMITS]);
    // Only that one was tried at the last share.
    let Some(last) = packed.last().map(|row| kind(row)) else {
        return Vec::new();
    };
    let mut family: Vec<&Row> = packed.into_iter().filter(|row| kind(row) == last).collect();
    family.sort_by(|one, other| one.values[SHARE].total_cmp(&other.values[SHARE]));
    family
}

/// Returns one contender over another, run by run, of cells that have both.
fn over(cell: &CellRecord, one: &str, other: &str, column: usize) -> Interval {
    let of = |contender: &str| cell.column(RACE, contender, column);
    Interval::of_quotients(&of(one), &of(other))
}

fn claim(
    cell: &CellRecord,
    what: &str,
    core: bool,
    target: Target,
    note: &str,
    found: Interval,
) -> Finding {
    let claim = Claim {
        question: format!("{}{what}", cell.cell),
        core,
        target,
        note,
    };
    claim.judge(found, corpus::doubt(cell))
}

fn raw_only(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |cell: &CellRecord| {
        let case = case_of(cell)?;
        let late = over(cell, ADAPTIVE, RAW, LATE);
        let note = format!(
            "ratio {:.2}; late {:.3}; at the end {}",
            middle(cell, ADAPTIVE, RATIO),
            late.middle,
            arm_of(cell, ADAPTIVE)
        );
        let found = over(cell, ADAPTIVE, RAW, COST);
        Some(claim(cell, "", case.is_core, RAW_ONLY.target, &note, found))
    };
    cells.iter().filter_map(finding).collect()
}

fn splits(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let Some(case) = case_of(cell) else { continue };
        let note = format!(
            "best {}, {:.3} of raw-only",
            arm_of(cell, BEST),
            over(cell, BEST, RAW, LATE).middle
        );
        let late = over(cell, ADAPTIVE, BEST, LATE);
        findings.push(claim(
            cell,
            ", late",
            case.is_core,
            SPLITS.target,
            &note,
            late,
        ));
        let whole = over(cell, ADAPTIVE, BEST, COST);
        let (core, target) = match case.has_phases() {
            true => (case.is_core, at_most(1.0)),
            false => (false, SPLITS.target),
        };
        findings.push(claim(cell, ", whole", core, target, &note, whole));
    }
    findings
}

fn bound(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        let Some(case) = case_of(cell) else { continue };
        let mut judge = |what: &str, note: String, optimum: &str| {
            let found = over(cell, ADAPTIVE, optimum, COST);
            findings.push(claim(cell, what, case.is_core, BOUND.target, &note, found));
        };
        let best = |optimum: &str| over(cell, BEST, optimum, COST).middle;
        let note = format!("best split {:.2} of it", best(FIXED));
        judge(", told how often", note, FIXED);
        let note = format!(
            "best split {:.2} of it, raw-only {:.2} of its own",
            best(LEAST),
            over(cell, RAW, LEAST_RAW, COST).middle
        );
        judge(", told when", note, LEAST);
    }
    findings
}

/// Returns the median over the runs.
pub fn middle(cell: &CellRecord, contender: &str, column: usize) -> f64 {
    match cell.column(RACE, contender, column) {
        values if values.is_empty() || values.iter().any(|value| !value.is_finite()) => f64::NAN,
        values => Interval::of_pairs(&values).middle,
    }
}

/// Returns the recorded cells.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    Record::new(records, RECORD, COLUMNS).latest()
}

fn table(records: &Path, judge: fn(&[CellRecord]) -> Vec<Finding>) -> Result<Shown> {
    let cells = recorded(records)?;
    Ok(findings_table(records, &cells, judge(&cells)))
}

fn table_of_raw_only(records: &Path) -> Result<Shown> {
    let mut text = table(records, raw_only)?;
    let cells = recorded(records)?;
    let Some(first) = cells.first() else {
        return Ok(text);
    };
    let energy = first.parameter("energy");
    let energy = energy.context("the record names no source of joules")?;
    text.push_str(&format!(
        "\nMedians of the runs: microseconds of an access (mean, 99 and 99.9 %), raw and compressed hits and misses, \
         its processor time with everything it does, its joules ({energy}), the time of learning, compressed forms \
         that were never used, memory in use, and a bystander's loss, of its work and for each access.\n\n\
         | cell | policy | us | late | p99 | p99.9 | raw | packed | miss | core us | uJ | overhead us | wasted | memory | lost | lost us |\n\
         |---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n"
    ));
    for cell in &cells {
        for contender in [RAW, ADAPTIVE, BEST, FIXED, LEAST] {
            text.push_str(&line(cell, contender));
        }
    }
    Ok(text)
}

fn line(cell: &CellRecord, contender: &str) -> String {
    let of = |column| middle(cell, contender, column);
    let number = |column: usize, digits: usize| match of(column) {
        value if value.is_finite() => format!("{value:.digits$}"),
        _ => String::new(),
    };
    let percent = |column: usize| match of(column) {
        value if value.is_finite() => format!("{:.1} %", 100.0 * value),
        _ => String::new(),
    };
    let name = match contender {
        BEST => format!("best split: {}", arm_of(cell, BEST)),
        _ => contender.to_string(),
    };
    format!(
        "| {} | {name} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
        cell.cell,
        number(COST, 2),
        number(LATE, 2),
        number(P99, 1),
        number(P999, 1),
        percent(RAW_HITS),
        percent(PACKED_HITS),
        percent(MISSES),
        number(CORE, 2),
        number(JOULES, 1),
        number(OVERHEAD, 3),
        percent(WASTED),
        percent(MEMORY),
        percent(LOST_SHARE),
        number(LOST_US, 2),
    )
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::statistics::Verdict;

    /// A cell of ten runs in which costs are those of the contenders in order, and the sweep's.
    pub fn cell(name: &str, parameters: &str, costs: [f64; 6]) -> CellRecord {
        let mut rows = Vec::new();
        let values = |cost: f64, share: f64| {
            let mut values = vec![cost; COLUMNS.len()];
            (values[SHARE], values[METHOD], values[ADMITS]) = (share, 1.0, 0.0);
            values
        };
        for run in 1..=10 {
            let contenders = [RAW, ADAPTIVE, BEST, LEAST, LEAST_RAW, FIXED];
            for (contender, cost) in contenders.iter().zip(costs) {
                // Runs differ, and contenders alike.
                let cost = cost * (1.0 + 0.01 * run as f64);
                rows.push(Row {
                    task: RACE.to_string(),
                    run,
                    runs: 10,
                    contender: contender.to_string(),
                    values: values(cost, if *contender == RAW { 0.0 } else { 0.8 }),
                });
            }
        }
        for share in SHARES {
            let arm = Arm {
                compressed_share: share,
                method: 1,
                admits_once: false,
            };
            rows.push(Row {
                task: SWEEP.to_string(),
                run: 1,
                runs: 1,
                contender: describe(&arm),
                values: values(costs[2] + (share - 0.8).abs(), share),
            });
        }
        CellRecord::made_up(name, parameters, rows)
    }

    const REAL: &str = "data=real energy=none";

    #[test]
    fn policies_are_judged_by_pairs() {
        let name = cases(false)[0].name();
        let check = |costs: [f64; 6], expected: [Verdict; 5]| {
            let cells = [cell(&name, REAL, costs)];
            let mut found = raw_only(&cells);
            found.extend(splits(&cells));
            found.extend(bound(&cells));
            let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
            assert_eq!(verdicts, expected, "{found:?}");
        };
        use Verdict::{Differs, Holds};
        check(
            [20.0, 10.0, 9.8, 9.5, 19.0, 9.6],
            [Holds, Holds, Holds, Holds, Holds],
        );
        check(
            [20.0, 20.1, 20.0, 9.5, 19.0, 20.0],
            [Holds, Holds, Holds, Holds, Differs],
        );
        check(
            [20.0, 21.0, 9.8, 9.5, 19.0, 9.6],
            [Differs, Differs, Differs, Differs, Differs],
        );
        let generated = [cell(
            &name,
            "data=generated",
            [20.0, 10.0, 9.8, 9.5, 19.0, 9.6],
        )];
        assert_eq!(raw_only(&generated)[0].verdict, Verdict::CannotTell);
        let found = &raw_only(&[cell(&name, REAL, [20.0, 10.0, 9.8, 9.5, 19.0, 9.6])])[0];
        assert!(
            found.core && found.note.contains("at the end 80 % zstd:1 again"),
            "{found:?}"
        );
    }

    #[test]
    fn phases_must_be_better_than_any_split() {
        let name = cases(false)
            .iter()
            .find(|case| case.has_phases())
            .unwrap()
            .name();
        let found = splits(&[cell(&name, REAL, [20.0, 10.2, 10.0, 9.5, 19.0, 9.6])]);
        let verdicts: Vec<Verdict> = found.iter().map(|finding| finding.verdict).collect();
        assert_eq!(verdicts, [Verdict::Holds, Verdict::Differs]);
    }

    #[test]
    fn bounds_are_below_what_a_cache_comes_to() {
        let case = &cases(true)[0];
        let text = crate::data::Kind::Text.generate(1 << 20, 1);
        let contents = Contents::new(text, case.page_bytes).unwrap();
        let bench = Bench {
            case,
            made: made(&contents, &methods()).unwrap(),
            contents,
            power: power().unwrap(),
        };
        let plan = Plan {
            keys: (0..4000).map(|at| at * 7 % 200 + at % 3).collect(),
            memory_bytes: 512 << 10,
        };
        let least = [true, false].map(|can_pack| bench.least(&plan, can_pack, least_cost)[COST]);
        let fixed = bench.least(&plan, true, least_cost_of_fixed_contents)[COST];
        let raw = bench.replay(&plan, Policy::RawOnly).unwrap();
        assert!(
            least[0] <= least[1] && least[1] <= raw[COST],
            "{least:?} {raw:?}"
        );
        assert!(least[0] <= fixed && fixed <= raw[COST], "{least:?} {fixed}");
        assert!(raw[MEMORY] <= 1.0 && raw[RATIO] > 1.5);
        assert_eq!(raw.len(), COLUMNS.len());
        assert!(raw[LOST_SHARE] < 1.0 && raw[LOST_US].is_finite());
        let shares = raw[RAW_HITS] + raw[PACKED_HITS] + raw[MISSES];
        assert!((shares - 1.0).abs() < 1e-9);
    }
}
