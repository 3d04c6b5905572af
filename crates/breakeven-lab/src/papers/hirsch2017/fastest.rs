//! S1, as fast as can be, against every method for all blocks, and against the bound of all schedules.
//!
//! The recorded costs predict how every method of the container would go alone. Those within a twentieth of the
//! fastest, at most two, race for real. The fastest of them in hindsight judges S1.

use std::path::Path;

use anyhow::Result;
use breakeven::codec::Method;
use breakeven::stream::{Container, Goal};

use super::bench::{self, Bench, Contender, Regime};
use super::corpus::{File, Input};
use super::costs::{self, Costs, Known, Static};
use super::plan::{Behind, Planned};
use super::race::{self, BOUND, BoundOf, COLUMNS, DRAINED_SECONDS, RAW_BYTES, Race};
use super::{judge, pictures, published};
use crate::experiment::{Experiment, no_pictures};
use crate::laboratory::{Finding, Laboratory};
use crate::record::{CellRecord, Record, Row, Unfinished};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const RECORD: &str = "hirsch2017/fastest";
/// Our contender.
pub const S1: &str = "S1";

const PARAMETERS: &[(&str, &str)] = &[
    (
        "data",
        "16 blocks of 1 MiB of each of text, source, matrix, redundant and noise, over and over, and rows in which all \
         five alternate every 1, 16 or 64 MiB. Text and source come from --data where it is given, and the rest is \
         generated",
    ),
    (
        "links",
        "by deadline; so fast that LZ4 by two workers, measured in the same run, is 43, 4.2 and 0.83 times as fast (beta)",
    ),
    (
        "pipeline",
        "the library's writer: two workers, eight frame buffers; the controller starts knowing nothing but the link's speed",
    ),
    (
        "static methods",
        "all of the container by arithmetic on recorded costs; those within a twentieth of the best, at most two, for real",
    ),
    (
        "runs",
        "10 (quick: 3) of about 10 s in core cells (or --core-seconds) and 0.7 s in variations, by the fastest \
         schedule's time; all 10 s with --paper-size",
    ),
];

pub const FASTEST: Experiment = Experiment {
    key: RECORD,
    claim: "The controller is never more than 2 % slower than the best static method in hindsight.",
    source: "Hirsch 2017, section 5.3: from slightly faster to some 37 % slower (file.nc at 10GbE)",
    figure: "time until the last byte is written, over that of the best static method,",
    target: Target {
        low: 0.0,
        high: 1.02,
    },
    parameters: PARAMETERS,
    analysis: "Both containers are tried, each against its own methods. A run begins cold, so it contains all \
        learning. A short run is harder for the controller. It is no harder for the static method, which has the whole \
        measurement's knowledge from the first block.",
    run: |laboratory| Ok(fastest(&measure(laboratory)?)),
    table: |records| race::table(records, RECORD, fastest),
    pictures: pictures::fastest,
};

pub const BALANCE: Experiment = Experiment {
    key: "hirsch2017/balance",
    claim: "On interleaved data, and where the balance falls between two methods, the controller is at least a tenth faster than the \
        best static method.",
    source: "no static method can do it: section 3.2.4 says why, nobody measured it",
    figure: "time until the last byte is written, over that of the best static method,",
    target: Target {
        low: 0.0,
        high: 0.909,
    },
    parameters: PARAMETERS,
    analysis: "Core cells are the rows in which kinds alternate every 16 MiB. A variation is every other cell in which \
        some schedule could be a tenth faster by the recorded costs. Where none could, the note has the speed of the \
        fastest.",
    run: |laboratory| Ok(balance(&measure(laboratory)?)),
    table: |records| tables::table_of(records, RECORD, COLUMNS, balance),
    pictures: no_pictures,
};

pub const BOUND_EXPERIMENT: Experiment = Experiment {
    key: "hirsch2017/bound",
    claim: "The controller is at most 5 % slower than the fluid lower bound.",
    source: "the dual of the fluid problem, docs/model.md; the thesis has no bound",
    figure: "time until the last byte is written, over the bound,",
    target: Target {
        low: 0.0,
        high: 1.05,
    },
    parameters: PARAMETERS,
    analysis: "The bound knows all costs beforehand, has buffers without end, mixes methods within a block, and \
        decides for nothing. It includes the pipeline's own share of the two processors for a block (filling, handing \
        on, counting). That is the processor time of a run that stores every block, less that of making its frames, \
        measured at the start of each run.",
    run: |laboratory| Ok(bound(&measure(laboratory)?)),
    table: |records| tables::table_of(records, RECORD, COLUMNS, bound),
    pictures: no_pictures,
};

/// A cell as it is planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    pub input: Input,
    pub beta: f64,
    pub container: Container,
    pub is_core: bool,
}

impl Plan {
    pub fn name(&self) -> String {
        let container = match self.container {
            Container::Portable => "portable",
            Container::Mixed => "mixed",
        };
        format!("{} beta {} {container}", self.input, self.beta)
    }

    fn seconds(&self, laboratory: &Laboratory) -> f64 {
        match (laboratory.quick, laboratory.paper_size, self.is_core) {
            (true, _, _) => 0.02,
            (_, true, _) => 10.0,
            (_, _, true) => laboratory.core_seconds,
            _ => 0.7,
        }
    }
}

/// Returns the cells of a full run.
pub fn plans() -> Vec<Plan> {
    let plan = |input, beta, container, is_core| Plan {
        input,
        beta,
        container,
        is_core,
    };
    let mut plans = Vec::new();
    let core = [
        Input::Plain(File::Text),
        Input::Plain(File::Matrix),
        Input::Plain(File::Redundant),
        Input::Mixed(16),
    ];
    for input in core {
        for beta in bench::BETAS {
            plans.push(plan(input, beta, Container::Portable, true));
        }
    }
    for input in [Input::Plain(File::Source), Input::Plain(File::Noise)] {
        for beta in bench::BETAS {
            plans.push(plan(input, beta, Container::Portable, false));
        }
    }
    for input in [Input::Mixed(1), Input::Mixed(64)] {
        plans.push(plan(input, 4.2, Container::Portable, false));
    }
    for input in core {
        for beta in [4.2, 0.83] {
            plans.push(plan(input, beta, Container::Mixed, false));
        }
    }
    plans.push(plan(Input::Mixed(16), 43.0, Container::Mixed, false));
    plans
}

fn plan_of(cell: &CellRecord) -> Option<Plan> {
    plans().into_iter().find(|plan| plan.name() == cell.cell)
}

fn planned(laboratory: &Laboratory) -> Vec<Plan> {
    let quick = |plan: &Plan| {
        let tried = [
            (Input::Plain(File::Text), 4.2),
            (Input::Mixed(16), 4.2),
            (Input::Plain(File::Matrix), 43.0),
        ];
        plan.is_core && tried.contains(&(plan.input, plan.beta))
    };
    let mut plans = plans();
    plans.retain(|plan| !laboratory.quick || quick(plan));
    plans
}

/// Measures the cells, or takes them from the record.
pub fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let bench = Bench::new(laboratory)?;
    let costs = costs::measure(laboratory, &bench)?;
    let runs = if laboratory.quick { 3 } else { 10 };
    let plans = planned(laboratory).into_iter();
    let plans = plans.map(|plan| {
        let behind = Behind {
            input: plan.input,
            beta: plan.beta,
            runs,
            seconds: plan.seconds(laboratory),
        };
        Planned {
            plan: (behind, plan.container),
            name: plan.name(),
            input: plan.input,
            parameters: behind.parameters(),
        }
    });
    let record = (RECORD, COLUMNS);
    bench.measure(laboratory, record, plans.collect(), |plan, kept| {
        race(&bench, &costs, plan, kept)
    })
}

/// Reads the latest record of each cell.
pub fn recorded(records: &Path) -> Result<Vec<CellRecord>> {
    Record::new(records, RECORD, COLUMNS).latest()
}

fn race(
    bench: &Bench,
    costs: &Costs,
    (plan, container): (Behind, Container),
    kept: Unfinished,
) -> Result<Vec<Row>> {
    const ENOUGH_BLOCKS: usize = 320;
    let known = costs.known(plan.input, bench.corpus.shape, container.arms());
    let choose = || {
        let mut statics = known.statics(ENOUGH_BLOCKS, &bench.regime(plan.beta)?);
        let least = statics[0].seconds;
        // A quick run always has two.
        statics.retain(|one| bench.is_quick || one.seconds <= 1.05 * least);
        Ok(statics)
    };
    let ours = vec![Contender::goal(S1, Goal::Fastest, container)];
    let contenders = against_statics(ours, 2, &kept, choose)?;
    let blocks = |regime: &Regime| known.blocks_in(plan.seconds, regime);
    let race = Race {
        bound: fluid_bound(&known),
        ..Race::behind(bench, plan.place_and_runs(), contenders, blocks)
    };
    race.run(kept)
}

/// Returns our contenders and the methods that race them. These are those of the kept runs, else the first of the ones
/// that are chosen now, at most so many.
pub fn against_statics(
    mut ours: Vec<Contender>,
    most: usize,
    kept: &Unfinished,
    choose: impl FnOnce() -> Result<Vec<Static>>,
) -> Result<Vec<Contender>> {
    let before: Vec<Method> = (kept.rows().iter())
        .filter(|row| row.run == 1)
        .filter_map(|row| row.contender.parse().ok())
        .collect();
    let methods = match before.is_empty() {
        false => before,
        true => choose()?.iter().take(most).map(|it| it.method).collect(),
    };
    ours.extend(methods.into_iter().map(Contender::fixed));
    Ok(ours)
}

/// Returns a function that bounds the time of our contender, and nobody else's.
pub fn fluid_bound<'a>(known: &'a Known<'_>) -> BoundOf<'a> {
    Box::new(move |contender, regime, blocks| {
        if contender.name != S1 {
            return 0.0;
        }
        known.least_seconds(blocks, regime)
    })
}

/// A cell with the static method that was fastest in it.
pub struct Judged<'a> {
    pub cell: &'a CellRecord,
    pub plan: Plan,
    pub best: &'a str,
    /// Times of S1 over that method's.
    pub over_best: Interval,
    /// Times of S1 over the bound.
    pub over_bound: Interval,
}

/// Looks at the cells that are planned today.
pub fn judged(cells: &[CellRecord]) -> Vec<Judged<'_>> {
    let of = |cell| {
        let plan = plan_of(cell)?;
        let best = race::best_static(cell)?;
        let ours = |column| cell.column(race::WRITE, S1, column);
        Some(Judged {
            cell,
            plan,
            best,
            over_best: race::over(cell, S1, best, DRAINED_SECONDS),
            over_bound: Interval::of_quotients(&ours(DRAINED_SECONDS), &ours(BOUND)),
        })
    };
    cells.iter().filter_map(of).collect()
}

impl Judged<'_> {
    fn speed(&self, contender: &str) -> f64 {
        let of = |column| race::median(self.cell, contender, column);
        of(RAW_BYTES) / of(DRAINED_SECONDS) / 1e6
    }

    /// Returns how the fastest schedule would compare with the best static method.
    fn possible(&self) -> f64 {
        self.over_best.middle / self.over_bound.middle
    }
}

fn fastest(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |it: &Judged<'_>| {
        let published = published::of_s1(it.plan.input, it.plan.beta);
        let published = published.map_or(String::new(), |text| format!("; the thesis: {text}"));
        let note = format!(
            "best {} with {:.0} MB/s, S1 {:.0}{published}",
            it.best,
            it.speed(it.best),
            it.speed(S1),
        );
        let name = it.cell.cell.clone();
        judge(&FASTEST, name, it.plan.is_core, it.over_best, note)
    };
    judged(cells).iter().map(finding).collect()
}

fn balance(cells: &[CellRecord]) -> Vec<Finding> {
    const ENOUGH: f64 = 0.9;
    let finding = |it: &Judged<'_>| {
        let is_core = it.plan.is_core && it.plan.input.is_mixed();
        let note = format!(
            "best {}; the fastest schedule would take {:.3}",
            it.best,
            it.possible()
        );
        (is_core || it.plan.input.is_mixed() || it.possible() < ENOUGH)
            .then(|| judge(&BALANCE, it.cell.cell.clone(), is_core, it.over_best, note))
    };
    judged(cells).iter().filter_map(finding).collect()
}

fn bound(cells: &[CellRecord]) -> Vec<Finding> {
    let finding = |it: &Judged<'_>| {
        let note = format!(
            "the best static method, {}, takes {:.3} of the bound",
            it.best,
            it.over_bound.middle / it.over_best.middle
        );
        let name = it.cell.cell.clone();
        judge(
            &BOUND_EXPERIMENT,
            name,
            it.plan.is_core,
            it.over_bound,
            note,
        )
    };
    judged(cells).iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    /// A cell in which S1 takes 10 s, the methods given take theirs, and the bound is 9.
    pub fn cell(name: &str, statics: &[(&str, f64)]) -> CellRecord {
        let mut rows = Vec::new();
        for run in 1..=10 {
            let all = [(S1, 10.0)];
            for (contender, seconds) in all.iter().chain(statics) {
                let mut values = vec![1e9; COLUMNS.len()];
                values[DRAINED_SECONDS] = seconds * (1.0 + 1e-3 * (run % 3) as f64);
                values[BOUND] = 9.0;
                rows.push(Row {
                    task: race::WRITE.to_string(),
                    run,
                    runs: 10,
                    contender: contender.to_string(),
                    values,
                });
            }
        }
        CellRecord::made_up(name, "energy=none", rows)
    }

    #[test]
    fn the_best_static_method_judges() {
        let check = |statics: &[(&str, f64)], expected: [Verdict; 3]| {
            let cells = [cell("mix-16 beta 4.2 portable", statics)];
            let found = [fastest(&cells), balance(&cells), bound(&cells)];
            let found = found.map(|findings| findings[0].verdict);
            assert_eq!(found, expected, "{statics:?}");
        };
        use Verdict::{Differs, Holds};
        check(
            &[("zstd:1", 12.0), ("zstd:3", 11.5)],
            [Holds, Holds, Differs],
        );
        check(
            &[("zstd:1", 12.0), ("zstd:3", 10.5)],
            [Holds, Differs, Differs],
        );
        check(&[("zstd:1", 9.5)], [Differs, Differs, Differs]);
    }

    #[test]
    fn a_cell_taken_up_again_keeps_its_static_methods() {
        let new = CellRecord::made_up("text beta 4.2 portable", "", Vec::new());
        let kept = Unfinished::take(Path::new(""), RECORD, COLUMNS, new, true, false);
        let mut kept = kept.unwrap();
        let check = |kept: &Unfinished, expected: &[&str]| {
            let chosen = ["lz4:1", "zstd:3", "zstd:5"].map(|name| Static {
                method: name.parse().unwrap(),
                seconds: 1.0,
                stored_bytes: 1.0,
            });
            let ours = vec![Contender::goal(S1, Goal::Fastest, Container::Portable)];
            let found = against_statics(ours, 2, kept, || Ok(chosen.into())).unwrap();
            let found: Vec<String> = found.into_iter().map(|it| it.name).collect();
            assert_eq!(found, expected);
        };
        check(&kept, &[S1, "lz4:1", "zstd:3"]);
        kept.add(cell("", &[("zstd:1", 11.0)]).rows).unwrap();
        check(&kept, &[S1, "zstd:1"]);
    }

    #[test]
    fn plans_have_names_of_their_own_and_twelve_are_core() {
        let plans = plans();
        let mut names: Vec<String> = plans.iter().map(Plan::name).collect();
        assert_eq!(plans.iter().filter(|plan| plan.is_core).count(), 12);
        names.sort();
        names.dedup();
        assert_eq!(names.len(), plans.len());
    }
}
