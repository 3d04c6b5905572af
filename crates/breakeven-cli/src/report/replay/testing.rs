//! A replay for tests: raw-only, the adaptive cache, and the splits of the curves.

use breakeven::meter::Machine;

use super::facts::tests::policy;
use super::facts::{ADAPTIVE, RAW_ONLY, ReplayReport, SCHEMA};

pub fn report() -> ReplayReport {
    let course: Vec<f64> = (0..64)
        .map(|at| 9_000.0 - 60.0 * f64::from(at) + 300.0 * f64::from(at % 3))
        .collect();
    let flat = |us: f64| -> Vec<f64> { (0..64).map(|at| us + 200.0 * f64::from(at % 5)).collect() };
    let mut splits = Vec::new();
    for (method, us) in [("lz4:1", 9_000.0), ("zstd:1", 8_000.0)] {
        for again in ["", ":again"] {
            for (share, factor) in [(25, 0.95), (50, 0.9), (80, 0.85), (95, 0.9)] {
                let codec = method.trim_end_matches(":1");
                let name = format!("split:{share}:{codec}{again}");
                let share = f64::from(share) / 100.0;
                let found = policy(&name, share, Some(method), &flat(factor * us));
                splits.push(found);
            }
        }
    }
    let mut report = ReplayReport {
        schema: SCHEMA.to_string(),
        headline: String::new(),
        machine: Machine::of_this_process(),
        accesses_of: "made up, zipf:0.9".to_string(),
        accesses: 64_000,
        keys: 7_000,
        pages: 8_192,
        page_bytes: 8_192,
        memory_bytes: 16 << 20,
        miss_us: 73.0,
        is_read: false,
        prefer: "time".to_string(),
        prices: None,
        policies: vec![
            policy(RAW_ONLY, 0.0, None, &flat(10_000.0)),
            policy(ADAPTIVE, 0.7, Some("zstd:1"), &course),
        ],
        splits,
    };
    report.compare();
    report
}
