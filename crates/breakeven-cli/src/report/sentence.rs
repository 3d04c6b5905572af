//! Verdicts in words, as the page says them at any position of the sliders.
//!
//! `page.js` has the same words; a test compares the two.

use super::model::{Metric, Standing, WORTH_WHILE};
use crate::text::{figures, percent_range};

/// The name of a metric on the page.
pub fn title(metric: Metric) -> &'static str {
    match metric {
        Metric::Time => "Time",
        Metric::Energy => "Energy",
        Metric::EnergyDelay => "Energy \u{d7} time",
        Metric::Money => "Money",
    }
}

/// The mark of a verdict: `pays`, `loses` or `undecided`.
pub fn mark(standing: &Standing<'_>) -> &'static str {
    match (standing.is_decided(), standing.pays()) {
        (false, _) => "undecided",
        (true, true) => "pays",
        (true, false) => "loses",
    }
}

/// The advice: the method, or storing raw.
pub fn choice<'r>(standing: &Standing<'r>) -> &'r str {
    match mark(standing) {
        "undecided" => "undecided",
        "pays" => &standing.candidate.method,
        _ => "store raw",
    }
}

/// Its cost beside storing raw.
pub fn cost(standing: &Standing<'_>) -> String {
    let cost = percent_range(&standing.cost_ratio);
    match mark(standing) {
        "pays" => format!("{cost} of storing raw"),
        _ => format!("{}: {cost} of storing raw", standing.candidate.method),
    }
}

/// The reads per write for which the verdict holds.
pub fn bounds(standing: &Standing<'_>) -> String {
    let pays = standing.pays();
    if (WORTH_WHILE..1.0).contains(&standing.cost_ratio.mean) {
        return "saves less than 1 %".to_string();
    }
    let reads = |value: f64| figures(value);
    match (pays, standing.from, standing.to) {
        (true, None, None) => "pays at any number of reads".to_string(),
        (true, Some(from), None) => format!("pays from {} reads per write", reads(from)),
        (true, None, Some(to)) => format!("pays up to {} reads per write", reads(to)),
        (true, Some(from), Some(to)) => {
            format!("pays from {} to {} reads per write", reads(from), reads(to))
        }
        (false, _, Some(to)) => format!("would pay from {} reads per write", reads(to)),
        (false, Some(from), None) => format!("would pay below {} reads per write", reads(from)),
        (false, None, None) => "pays at no number of reads".to_string(),
    }
}

/// The verdict of one metric in one sentence.
pub fn sentence(metric: Metric, standing: &Standing<'_>) -> String {
    let method = &standing.candidate.method;
    let cost = percent_range(&standing.cost_ratio);
    let of_raw = match metric {
        Metric::Time => "of the time of storing raw",
        Metric::Energy => "of the energy of storing raw",
        Metric::EnergyDelay => "of the energy \u{d7} time of storing raw",
        Metric::Money => "of the money of storing raw",
    };
    let bounds = bounds(standing);
    match mark(standing) {
        "undecided" => format!("Undecided: {method} takes {cost} {of_raw}, so it may pay or not."),
        "pays" => format!("Compress with {method}: {cost} {of_raw}; it {bounds}."),
        _ => format!("Store raw: {method} would take {cost} {of_raw}; it {bounds}."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Model, Position};
    use super::super::testing;
    use super::*;
    use breakeven::units::Estimate;

    #[test]
    fn verdicts_are_worded() {
        let report = testing::report();
        let at = Position::of(&report);
        let model = Model {
            report: &report,
            at,
        };
        let all = report.classes.last().expect("all");
        let found = model.standing(Metric::Energy, all).expect("methods");
        let check = |cost_ratio: Estimate, bounds: (Option<f64>, Option<f64>), expected: &str| {
            let standing = Standing {
                cost_ratio,
                from: bounds.0,
                to: bounds.1,
                ..found
            };
            let method = &found.candidate.method;
            let expected = expected.replace("METHOD", method);
            assert_eq!(sentence(Metric::Time, &standing), expected);
        };
        check(
            Estimate::exact(0.5),
            (None, None),
            "Compress with METHOD: 50 % of the time of storing raw; it pays at any number of reads.",
        );
        check(
            Estimate::exact(0.5),
            (Some(0.5), Some(20.0)),
            "Compress with METHOD: 50 % of the time of storing raw; \
             it pays from 0.500 to 20.0 reads per write.",
        );
        check(
            Estimate::exact(1.2),
            (None, Some(7.0)),
            "Store raw: METHOD would take 120 % of the time of storing raw; \
             it would pay from 7.00 reads per write.",
        );
        check(
            Estimate::exact(0.996),
            (None, Some(7.0)),
            "Store raw: METHOD would take 100 % of the time of storing raw; \
             it saves less than 1 %.",
        );
        check(
            Estimate::plus_minus(0.9, 0.2),
            (None, None),
            "Undecided: METHOD takes 70-110 % of the time of storing raw, so it may pay or not.",
        );
    }
}
