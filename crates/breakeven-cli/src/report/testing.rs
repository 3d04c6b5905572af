//! A report for tests: one run on real files, some of its classes left out.

use breakeven::advise::report::Report;

/// Returns the report.
pub fn report() -> Report {
    serde_json::from_str(include_str!("example.json")).expect("the example is a report")
}
