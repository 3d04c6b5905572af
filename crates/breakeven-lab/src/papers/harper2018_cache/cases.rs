//! The cells in which policies are compared: a middle one, and others that differ in one thing each.

use anyhow::Result;
use breakeven::replay::{Pattern, Workload};

use super::corpus::{Set, Trace};
use crate::data::SEED;
use crate::laboratory::Laboratory;
use crate::tables;

/// Memory of a cell whose accesses are made up.
const MEMORY_BYTES: u64 = 16 << 20;
const QUICK_MEMORY_BYTES: u64 = 1 << 20;
/// Accesses for each key that is asked for.
const ACCESSES_PER_KEY: u64 = 24;
/// Accesses of one phase.
const PHASE: u64 = 100_000;
const TRACE_MAX: usize = 400_000;
const QUICK_ACCESSES: usize = 4000;

/// The distribution of the keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Accesses {
    MadeUp(&'static str, Pattern),
    Traced(Trace),
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub set: Set,
    pub accesses: Accesses,
    /// Pages of data for each page that fits into memory as it is.
    pub data_over_memory: u64,
    pub page_bytes: usize,
    pub miss_us: f64,
    /// Whether the claims are judged by it.
    pub is_core: bool,
}

/// The subject of a case's run.
pub struct Plan {
    pub keys: Vec<u64>,
    pub memory_bytes: u64,
}

impl Case {
    pub fn name(&self) -> String {
        let accesses = match &self.accesses {
            Accesses::MadeUp(name, _) => name,
            Accesses::Traced(trace) => trace.name,
        };
        format!(
            "{} {accesses} 1/{} {} {} us",
            self.set.name(),
            self.data_over_memory,
            tables::binary_size(self.page_bytes),
            self.miss_us
        )
    }

    /// Whether the hot keys change from time to time.
    pub fn has_phases(&self) -> bool {
        matches!(&self.accesses, Accesses::MadeUp(_, Pattern::Phases(..)))
    }

    /// Returns the accesses of one run, and the memory for them.
    pub fn plan(&self, laboratory: &Laboratory, run: usize) -> Result<Plan> {
        let page_bytes = self.page_bytes as u64;
        let keys = match &self.accesses {
            Accesses::MadeUp(_, pattern) => {
                let memory_bytes = match laboratory.quick {
                    true => QUICK_MEMORY_BYTES,
                    false => MEMORY_BYTES,
                };
                let blocks = memory_bytes * self.data_over_memory / page_bytes;
                let count = match (laboratory.quick, self.has_phases()) {
                    (true, _) => QUICK_ACCESSES,
                    (false, true) => 3 * PHASE as usize,
                    (false, false) => (ACCESSES_PER_KEY * blocks) as usize,
                };
                let seed = SEED + run as u64;
                let keys = Workload::new(pattern.clone(), blocks, seed)
                    .take(count)
                    .collect();
                return Ok(Plan { keys, memory_bytes });
            }
            Accesses::Traced(trace) => {
                let keys_max = if laboratory.quick {
                    QUICK_ACCESSES
                } else {
                    TRACE_MAX
                };
                trace.keys(laboratory, keys_max)?
            }
        };
        let different: std::collections::HashSet<u64> = keys.iter().copied().collect();
        let memory_bytes = different.len() as u64 * page_bytes / self.data_over_memory;
        Ok(Plan { keys, memory_bytes })
    }
}

/// Returns the case that others are changed from: Zipf 0.9 over pages of databases of 8 KiB, four
/// times as many as fit, and a disk.
fn middle() -> Case {
    Case {
        set: Set::Database,
        accesses: Accesses::MadeUp("zipf 0.9", Pattern::Zipf(0.9)),
        data_over_memory: 4,
        page_bytes: 8 << 10,
        miss_us: 73.0,
        is_core: false,
    }
}

fn made_up(name: &'static str, pattern: Pattern, data_over_memory: u64) -> Case {
    Case {
        accesses: Accesses::MadeUp(name, pattern),
        data_over_memory,
        ..middle()
    }
}

fn traced(name: &str, miss_us: f64) -> Case {
    Case {
        accesses: Accesses::Traced(Trace::named(name)),
        miss_us,
        ..middle()
    }
}

fn of(set: Set, miss_us: f64) -> Case {
    Case {
        set,
        miss_us,
        ..middle()
    }
}

/// Returns the cells of a full run, or the few of a quick one.
pub fn cases(is_quick: bool) -> Vec<Case> {
    let scans = Pattern::Scans {
        exponent: 0.9,
        share: 0.3,
    };
    let phases = Pattern::Phases(vec![Pattern::Zipf(1.1), Pattern::Even], PHASE);
    if is_quick {
        return vec![
            Case {
                is_core: true,
                ..of(Set::Database, 1000.0)
            },
            Case {
                is_core: true,
                ..of(Set::Media, 73.0)
            },
        ];
    }
    let mut core = vec![
        middle(),
        of(Set::Database, 2.0),
        of(Set::Records, 73.0),
        of(Set::Media, 73.0),
        of(Set::Media, 2.0),
        of(Set::Prose, 73.0),
        of(Set::Source, 73.0),
        made_up("even", Pattern::Even, 2),
        made_up("loop", Pattern::Loop, 2),
        made_up("scans", scans, 4),
        made_up("phases", phases, 2),
        traced("cloudPhysics", 250.0),
    ];
    core.iter_mut().for_each(|case| case.is_core = true);
    core.extend([10.0, 25.0, 250.0, 1000.0, 10_000.0].map(|miss_us| of(Set::Database, miss_us)));
    core.extend(
        [4 << 10, 16 << 10, 32 << 10, 64 << 10].map(|page_bytes| Case {
            page_bytes,
            ..middle()
        }),
    );
    core.extend([8, 2].map(|data_over_memory| Case {
        data_over_memory,
        ..middle()
    }));
    core.extend([
        made_up("zipf 0.7", Pattern::Zipf(0.7), 4),
        made_up("zipf 1.1", Pattern::Zipf(1.1), 4),
        made_up("pareto", Pattern::Pareto, 4),
        of(Set::Records, 25.0),
        of(Set::Records, 1000.0),
        of(Set::Source, 1000.0),
        of(Set::Prose, 1000.0),
        of(Set::Media, 1000.0),
    ]);
    let traces = ["web07", "web12", "orm-busy", "cdn", "multi3", "sprite"];
    core.extend(traces.map(|name| traced(name, 73.0)));
    core.push(traced("cloudPhysics", 1000.0));
    core
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_names_of_their_own() {
        for is_quick in [true, false] {
            let cases = cases(is_quick);
            let names: std::collections::BTreeSet<String> = cases.iter().map(Case::name).collect();
            assert_eq!(names.len(), cases.len(), "{names:?}");
            let core = cases.iter().filter(|case| case.is_core).count();
            assert!((1..=12).contains(&core), "{core}");
            assert!(names.iter().all(|name| !name.contains(',')));
        }
        assert_eq!(middle().name(), "database zipf 0.9 1/4 8 KiB 73 us");
    }
}
