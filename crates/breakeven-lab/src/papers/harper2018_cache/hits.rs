//! The raw-hit path against other people's: every block is held as it is, and nothing is asked for but
//! blocks that are held.
//!
//! The others need the feature `peers`. Each hands out a handle that keeps a page alive without copying it: ours a
//! guard, quick_cache and moka an `Arc`, foyer an entry.

use std::hint::black_box;
use std::ops::Deref;
use std::path::Path;
use std::sync::Barrier;

use anyhow::{Result, ensure};
use breakeven::cache::{BlockGuard, Cache, CacheOptions};
use breakeven::meter::PowerModel;
use breakeven::replay::{Pattern, Workload};
use breakeven::units::Seconds;

use super::{Claim, energy, energy_of, findings_table, middle, power, shown};
use crate::clock;
use crate::data::{Random, SEED};
use crate::experiment::{Experiment, no_pictures};
use crate::interleave::order;
use crate::laboratory::{Cell, Finding, Laboratory};
use crate::record::{CellRecord, Record, Row};
use crate::statistics::{Interval, Target};
use crate::tables;

pub const EXPERIMENT: Experiment = Experiment {
    key: "harper2018-cache/hits",
    claim: "A hit of a block that is held as it is comes at 0.9 of quick_cache's speed at least, and faster than moka's and foyer's.",
    source: "this project's own target",
    figure: "speed of a hit over the other cache's",
    target: QUICK,
    parameters: &[
        (
            "pages",
            "10,240 of 4 KiB, put in by loading, in 64 MiB of ours. The others have room for twice as many, and ours its usual settings",
        ),
        (
            "accesses",
            "made beforehand, Zipf 0.9, 262,144 by each of one and two threads, the same to all caches; all are hits",
        ),
        (
            "kinds",
            "of a page is read nothing, its first byte, a byte anywhere, or a byte of every line of 64",
        ),
        (
            "others",
            "quick_cache 0.7 and moka 0.12 with pages of `Arc<[u8]>`, foyer-memory 0.22 with `Box<[u8]>`, as they come: hashers, shards and policies are theirs",
        ),
        (
            "runs",
            "20 (quick: 2), all caches alternating, each made and filled again, and gone through once before the clock",
        ),
    ],
    analysis: "Time is one thread's processor time, and of two the clock's for the slower one. Ours lends a page where \
        it lies, and pages lie aligned, so their first lines would all fall into few sets of the processor's caches. \
        The others' pages lie wherever the allocator put them. A laboratory that was built without the feature `peers` \
        has no other caches and does not run the race. Nothing is compressed, so nobody loses work to that. Joules are \
        processor time of all threads times watts, by the model that the record names.",
    run: |laboratory| Ok(findings(&measure(laboratory)?)),
    table,
    pictures: no_pictures,
};

const QUICK: Target = Target::at_least(0.9);
const FASTER: Target = Target::at_least(1.0);
const COLUMNS: &[&str] = &["ns", "cpu_ns", "active_nj"];
const NS: usize = 0;
const CPU: usize = 1;
const JOULES: usize = 2;
const OURS: &str = "ours";
/// The others, with the targets of ours against them.
const OTHERS: [(&str, Target); 3] = [("quick_cache", QUICK), ("moka", FASTER), ("foyer", FASTER)];
const PAGE_BYTES: usize = 4 << 10;
const LINE_BYTES: usize = 64;
const THREADS: [(&str, usize); 2] = [("one thread", 1), ("two threads", 2)];

/// The part of a page that is read.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Touch {
    Nothing,
    First,
    Any,
    EveryLine,
}

const TOUCHES: [(&str, Touch); 4] = [
    ("nothing", Touch::Nothing),
    ("first byte", Touch::First),
    ("any byte", Touch::Any),
    ("every line", Touch::EveryLine),
];

/// How much is done.
#[derive(Clone, Copy)]
struct Length {
    pages: u64,
    memory_bytes: u64,
    accesses: usize,
    runs: usize,
}

/// A page to ask for, and a place in it.
#[derive(Clone, Copy)]
struct Access {
    key: u64,
    place: usize,
}

/// A cache that holds pages. The implementations call the caches' own functions, which go before those of a trait.
trait Pages: Sync + Sized {
    /// The guard that keeps a page alive.
    type Held: Deref<Target: AsRef<[u8]>>;
    /// Makes a cache with room for all pages.
    fn new(length: Length) -> Result<Self>;
    fn put(&self, key: u64, page: &[u8]) -> Result<()>;
    fn get(&self, key: u64) -> Option<Self::Held>;
}

impl Pages for Cache<u64> {
    type Held = BlockGuard;

    fn new(length: Length) -> Result<Cache<u64>> {
        Ok(Cache::new(CacheOptions {
            budget_bytes: length.memory_bytes,
            block_bytes: PAGE_BYTES,
            ..CacheOptions::default()
        })?)
    }

    fn put(&self, key: u64, page: &[u8]) -> Result<()> {
        self.get_or_load(key, page.len(), |frame| {
            frame.copy_from_slice(page);
            Ok(())
        })?;
        Ok(())
    }

    #[inline(always)]
    fn get(&self, key: u64) -> Option<BlockGuard> {
        self.get(&key).expect("guards keep next to nothing")
    }
}

#[cfg(feature = "peers")]
mod peers {
    use std::sync::Arc;

    use anyhow::Result;

    use super::{Length, PAGE_BYTES, Pages};

    pub type Quick = quick_cache::sync::Cache<u64, Arc<[u8]>>;
    pub type Moka = moka::sync::Cache<u64, Arc<[u8]>>;
    pub type Foyer = foyer_memory::Cache<u64, Box<[u8]>>;

    /// The two that hand out an `Arc` differ in its type.
    macro_rules! pages_of_arcs {
        ($cache:ty) => {
            impl Pages for $cache {
                type Held = Arc<[u8]>;

                fn new(length: Length) -> Result<$cache> {
                    Ok(<$cache>::new((2 * length.pages) as _))
                }

                fn put(&self, key: u64, page: &[u8]) -> Result<()> {
                    self.insert(key, Arc::from(page));
                    Ok(())
                }

                #[inline(always)]
                fn get(&self, key: u64) -> Option<Arc<[u8]>> {
                    self.get(&key)
                }
            }
        };
    }

    pages_of_arcs!(Quick);
    pages_of_arcs!(Moka);

    impl Pages for Foyer {
        type Held = foyer_memory::CacheEntry<u64, Box<[u8]>>;

        fn new(length: Length) -> Result<Foyer> {
            let bytes = 2 * length.pages as usize * PAGE_BYTES;
            let builder = foyer_memory::CacheBuilder::<u64, Box<[u8]>, _>::new(bytes);
            Ok(builder.with_weighter(|_, page| page.len()).build())
        }

        fn put(&self, key: u64, page: &[u8]) -> Result<()> {
            self.insert(key, Box::from(page));
            Ok(())
        }

        #[inline(always)]
        fn get(&self, key: u64) -> Option<Self::Held> {
            self.get(&key)
        }
    }
}

/// Nanoseconds of a hit.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// For a thread that waits for it.
    ns: f64,
    /// Of processors.
    core_ns: f64,
}

/// A contender: its name, and the function that measures its nanoseconds of a hit by kind.
type Racer = (
    &'static str,
    fn(Length, &[Vec<Access>]) -> Result<Vec<Taken>>,
);

#[cfg(not(feature = "peers"))]
const RACERS: [Racer; 1] = [(OURS, all_kinds::<Cache<u64>>)];
#[cfg(feature = "peers")]
const RACERS: [Racer; 4] = [
    (OURS, all_kinds::<Cache<u64>>),
    (OTHERS[0].0, all_kinds::<peers::Quick>),
    (OTHERS[1].0, all_kinds::<peers::Moka>),
    (OTHERS[2].0, all_kinds::<peers::Foyer>),
];

fn measure(laboratory: &Laboratory) -> Result<Vec<CellRecord>> {
    let length = match laboratory.quick {
        true => Length {
            pages: 256,
            memory_bytes: 4 << 20,
            accesses: 2000,
            runs: 2,
        },
        false => Length {
            pages: 10_240,
            memory_bytes: 64 << 20,
            accesses: 1 << 18,
            runs: 20,
        },
    };
    if cfg!(not(feature = "peers")) {
        eprintln!(
            "{}: there are no other caches in this laboratory; run it with `cargo run -p breakeven-lab --features peers`",
            EXPERIMENT.key
        );
        if !laboratory.quick {
            // Ours alone would take the place of the races on record.
            return Record::new(&laboratory.records, EXPERIMENT.key, COLUMNS).latest();
        }
    }
    let power = &power()?;
    let cells = THREADS.map(|(name, threads)| Cell {
        name: name.to_string(),
        parameters: format!(
            "pages={} memory_bytes={} accesses={} runs={} {}",
            length.pages,
            length.memory_bytes,
            length.accesses,
            length.runs,
            energy(power)
        ),
        measure: Box::new(move || rows(threads, length, power)),
    });
    laboratory.measure(EXPERIMENT.key, COLUMNS, cells.into())
}

fn rows(threads: usize, length: Length, power: &PowerModel) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for run in 0..length.runs {
        let accesses: Vec<Vec<Access>> = (0..threads)
            .map(|thread| accesses(length, (run * threads + thread) as u64))
            .collect();
        for index in order(run, RACERS.len()) {
            let (name, race) = RACERS[index];
            for ((task, _), taken) in TOUCHES.iter().zip(race(length, &accesses)?) {
                let core = Seconds(1e-9 * taken.core_ns);
                let joules = 1e9 * power.core_energy(core).0;
                rows.push(Row {
                    task: task.to_string(),
                    run: run + 1,
                    runs: length.runs,
                    contender: name.to_string(),
                    values: vec![taken.ns, taken.core_ns, joules],
                });
            }
        }
    }
    Ok(rows)
}

fn accesses(length: Length, seed: u64) -> Vec<Access> {
    let mut random = Random::new(SEED + seed);
    let keys = Workload::new(Pattern::Zipf(0.9), length.pages, SEED + seed);
    let access = |key| Access {
        key,
        place: random.below(PAGE_BYTES as u64) as usize,
    };
    keys.take(length.accesses).map(access).collect()
}

/// The byte of a page at a place.
fn byte_at(key: u64, place: usize) -> u8 {
    (key as u8) ^ (place as u8).wrapping_mul(31) ^ (place >> 8) as u8
}

/// Fills a cache and returns the nanoseconds of a hit for each kind.
fn all_kinds<P: Pages>(length: Length, accesses: &[Vec<Access>]) -> Result<Vec<Taken>> {
    let cache = P::new(length)?;
    let mut page = vec![0; PAGE_BYTES];
    for key in 0..length.pages {
        for (place, byte) in page.iter_mut().enumerate() {
            *byte = byte_at(key, place);
        }
        cache.put(key, &page)?;
    }
    let time = |(_, touch): (&str, Touch)| time(&cache, touch, accesses);
    TOUCHES.into_iter().map(time).collect()
}

/// Lets each thread make its accesses, after a round without the clock. Returns the slower one's time of an access, and
/// the mean processor time of a hit.
fn time<P: Pages>(cache: &P, touch: Touch, accesses: &[Vec<Access>]) -> Result<Taken> {
    let start = Barrier::new(accesses.len());
    // A single thread waits for nobody.
    let is_alone = accesses.len() == 1;
    let one = |accesses: &[Access]| -> Result<Taken> {
        let found = sum(cache, touch, accesses);
        start.wait();
        ensure!(
            found == expected(touch, accesses),
            "a page is missing, or is another"
        );
        let (duration, _) = clock::time(|| black_box(sum(cache, touch, accesses)));
        let ns = |seconds: f64| 1e9 * seconds / accesses.len() as f64;
        let core_ns = ns(duration.cpu_seconds);
        Ok(Taken {
            ns: match is_alone {
                true => core_ns,
                false => ns(duration.wall_seconds),
            },
            core_ns,
        })
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = accesses
            .iter()
            .map(|accesses| scope.spawn(|| one(accesses)))
            .collect();
        let mut all = Taken {
            ns: 0.0,
            core_ns: 0.0,
        };
        for thread in threads {
            let taken = thread.join();
            let taken = taken.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            all.ns = all.ns.max(taken.ns);
            all.core_ns += taken.core_ns / accesses.len() as f64;
        }
        Ok(all)
    })
}

/// Returns the sum of the bytes that are read, and of one for each page that is there.
#[inline(never)]
fn sum<P: Pages>(cache: &P, touch: Touch, accesses: &[Access]) -> u64 {
    match touch {
        Touch::Nothing => sum_of(cache, accesses, |_, _| 0),
        Touch::First => sum_of(cache, accesses, |page, _| u64::from(page[0])),
        Touch::Any => sum_of(cache, accesses, |page, place| u64::from(page[place])),
        Touch::EveryLine => sum_of(cache, accesses, |page, _| {
            page.iter()
                .step_by(LINE_BYTES)
                .map(|it| u64::from(*it))
                .sum()
        }),
    }
}

#[inline(always)]
fn sum_of<P: Pages>(cache: &P, accesses: &[Access], read: impl Fn(&[u8], usize) -> u64) -> u64 {
    let mut sum = 0;
    for access in accesses {
        if let Some(held) = cache.get(access.key) {
            sum += 1 + read(black_box(&held).deref().as_ref(), access.place);
        }
    }
    sum
}

fn expected(touch: Touch, accesses: &[Access]) -> u64 {
    let read = |access: &Access| match touch {
        Touch::Nothing => 0,
        Touch::First => u64::from(byte_at(access.key, 0)),
        Touch::Any => u64::from(byte_at(access.key, access.place)),
        Touch::EveryLine => (0..PAGE_BYTES)
            .step_by(LINE_BYTES)
            .map(|place| u64::from(byte_at(access.key, place)))
            .sum(),
    };
    accesses.iter().map(|access| 1 + read(access)).sum()
}

fn findings(cells: &[CellRecord]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for cell in cells {
        for (other, target) in OTHERS {
            for (task, _) in TOUCHES {
                findings.push(finding(cell, task, other, target));
            }
        }
    }
    findings
}

fn finding(cell: &CellRecord, task: &str, other: &str, target: Target) -> Finding {
    let (ours, its) = (cell.column(task, OURS, NS), cell.column(task, other, NS));
    let ratios: Vec<f64> = its
        .iter()
        .zip(&ours)
        .map(|(its, ours)| its / ours)
        .collect();
    let (found, note) = match ratios.is_empty() {
        // Nothing holds of no number, and nothing differs.
        true => (
            Interval::exact(f64::NAN),
            "it is not in this laboratory (feature `peers`)".to_string(),
        ),
        false => (
            Interval::of_pairs(&ratios),
            format!("{:.0} ns against {:.0}", middle(&ours), middle(&its)),
        ),
    };
    let claim = Claim {
        question: format!("{}, {other}, {task}", cell.cell),
        core: true,
        target,
        note: &note,
    };
    claim.judge(found, None)
}

fn table(records: &Path) -> Result<tables::Shown> {
    let cells = Record::new(records, EXPERIMENT.key, COLUMNS).latest()?;
    let mut text = findings_table(records, &cells, findings(&cells));
    let Some(first) = cells.first() else {
        return Ok(text);
    };
    text.push_str(&format!(
        "\nMedians of the runs: nanoseconds of a hit, those of all processors, and joules ({}).\n\n\
         | cell | cache | read | ns | core ns | nJ |\n|---|---|---|---:|---:|---:|\n",
        energy_of(first)
    ));
    for cell in &cells {
        for contender in [OURS].into_iter().chain(OTHERS.map(|other| other.0)) {
            for (task, _) in TOUCHES {
                text.push_str(&line(cell, contender, task));
            }
        }
    }
    Ok(text)
}

fn line(cell: &CellRecord, contender: &str, task: &str) -> String {
    let of = |column, digits| shown(middle(&cell.column(task, contender, column)), digits);
    match of(NS, 1) {
        ns if ns.is_empty() => ns,
        ns => format!(
            "| {} | {contender} | {task} | {ns} | {} | {} |\n",
            cell.cell,
            of(CPU, 1),
            of(JOULES, 0),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Verdict;

    #[test]
    fn every_contender_hits_and_reads_what_was_put_in() {
        let length = Length {
            pages: 64,
            memory_bytes: 4 << 20,
            accesses: 500,
            runs: 1,
        };
        let accesses = [accesses(length, 1), accesses(length, 2)];
        for (name, race) in RACERS {
            let found = race(length, &accesses).unwrap();
            assert!(
                found.iter().all(|it| it.ns > 0.0 && it.core_ns > 0.0),
                "{name}: {found:?}"
            );
            assert_eq!(found.len(), TOUCHES.len());
        }
    }

    #[test]
    fn a_page_that_is_not_there_ends_the_race() {
        let length = Length {
            pages: 4096,
            memory_bytes: 4 << 20,
            accesses: 4096,
            runs: 1,
        };
        let accesses = [accesses(length, 1), accesses(length, 2)];
        assert!(all_kinds::<Cache<u64>>(length, &accesses).is_err());
    }

    #[test]
    fn others_that_are_not_there_are_not_judged() {
        let rows = |contenders: &[(&str, f64)]| -> Vec<Row> {
            let mut rows = Vec::new();
            for run in 1..=10 {
                for (task, _) in TOUCHES {
                    for (contender, ns) in contenders {
                        rows.push(Row {
                            task: task.to_string(),
                            run,
                            runs: 10,
                            contender: contender.to_string(),
                            values: vec![ns * (1.0 + 0.001 * run as f64), f64::NAN, f64::NAN],
                        });
                    }
                }
            }
            rows
        };
        let verdicts = |contenders: &[(&str, f64)]| {
            let cell = CellRecord::made_up("one thread", "runs=10", rows(contenders));
            let found = findings(&[cell]);
            found.iter().map(|it| it.verdict).collect::<Vec<_>>()
        };
        use Verdict::{CannotTell, Differs, Holds};
        assert_eq!(verdicts(&[(OURS, 50.0)]), [CannotTell; 12]);
        let found = verdicts(&[(OURS, 50.0), ("quick_cache", 46.0), ("moka", 48.0)]);
        assert_eq!(found[..4], [Holds; 4]);
        assert_eq!(found[4..8], [Differs; 4]);
        assert_eq!(found[8..], [CannotTell; 4]);
    }
}
