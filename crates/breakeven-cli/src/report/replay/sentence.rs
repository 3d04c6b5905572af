//! The result of a replay, in one sentence.

use breakeven::units::Estimate;

use super::facts::{ADAPTIVE, PolicyReport, RAW_ONLY, ReplayReport};
use crate::text::{binary_size, figures, memory_size};

/// A smaller saving is not worthwhile.
const WORTH_WHILE: f64 = 0.01;

/// A split is named beside a policy if it takes less than this share of its time.
const CLEARLY: f64 = 0.95;

/// The mark of a policy against raw-only: `pays`, `loses` or `undecided`.
pub fn mark(of: &PolicyReport) -> &'static str {
    match &of.saved_share {
        // A saving of such a policy did not come from compression.
        _ if of.has_compressed_nothing() => "loses",
        Some(saved) if saved.low >= WORTH_WHILE => "pays",
        Some(saved) if saved.high >= WORTH_WHILE => "undecided",
        _ => "loses",
    }
}

/// The unit of the cost of accesses.
pub struct Unit {
    /// This many units are a second, joule or euro for each access.
    scale: f64,
    pub name: &'static str,
    pub per: &'static str,
    /// The whole that the saved share is of, where that is not time.
    saved: &'static str,
    /// As a title, and at the head of a column.
    pub title: &'static str,
    pub column: &'static str,
}

impl Unit {
    /// Returns the preferred unit.
    pub fn of(report: &ReplayReport) -> Unit {
        match report.prefer.as_str() {
            "energy" => Unit {
                scale: 1e6,
                name: "uJ",
                per: "uJ an access",
                saved: " of the energy",
                title: "Energy per access",
                column: "uJ/access",
            },
            "money" => Unit {
                scale: 1e9,
                name: "EUR",
                per: "EUR for 10^9 accesses",
                saved: " of the money",
                title: "Money for 10^9 accesses",
                column: "EUR/10^9",
            },
            _ => Unit {
                scale: 1e6,
                name: "us",
                per: "us an access",
                saved: "",
                title: "Time per access",
                column: "us/access",
            },
        }
    }

    /// Returns the cost of an access under a policy.
    pub fn amount(&self, of: &PolicyReport) -> f64 {
        self.scale * of.cost()
    }

    /// Words it.
    pub fn figure(&self, of: &PolicyReport) -> String {
        figures(self.amount(of))
    }
}

/// A share saved or lost, with its interval, in percent.
pub fn percent_saved(saved: &Estimate) -> String {
    let percent = |share: f64| match share.is_finite() {
        true => format!("{:.1}", 100.0 * share + 0.0),
        false => "?".to_string(),
    };
    let [mean, low, high] = [saved.mean, saved.low, saved.high].map(percent);
    if low == high {
        return format!("{mean} %");
    }
    format!("{mean} % ({low} to {high})")
}

/// The answer: the advice for this memory on these accesses.
pub fn headline(report: &ReplayReport) -> String {
    if report.all().next().is_some() && report.all().all(|of| of.held_bytes == 0) {
        return format!(
            "Too little memory: {} hold no page of {} beside what the cache needs itself, so every access misses.",
            memory_size(report.memory_bytes),
            binary_size(report.page_bytes)
        );
    }
    let Some(raw) = report.find(RAW_ONLY) else {
        return without_raw(report);
    };
    let adaptive = report.find(ADAPTIVE);
    let unit = Unit::of(report);
    let per = unit.per;
    let Some(policy) = adaptive.or_else(|| best_split(report)) else {
        return format!("Raw only: {} {per}.", unit.figure(raw));
    };
    let takes = format!(
        "{} takes {} {per}, raw-only {}",
        named(policy),
        unit.figure(policy),
        unit.figure(raw)
    );
    let Some(saved) = policy.saved_share else {
        return format!("Too little to tell them apart: {takes}.");
    };
    let better = better(report, policy);
    match (mark(policy), better) {
        ("pays", _) => format!(
            "Compress: {takes}, and saves {}{}, with {} in force at the end.{}",
            percent_saved(&saved),
            unit.saved,
            policy.in_force,
            better.map_or(String::new(), |split| format!(
                " With {} all the time it would take {}.",
                split.policy,
                unit.figure(split)
            ))
        ),
        (_, Some(split)) => format!(
            "Compress by a fixed split: {} takes {} {per}, raw-only {}; {}, at {}, did not find it.",
            split.policy,
            unit.figure(split),
            unit.figure(raw),
            named(policy),
            unit.figure(policy)
        ),
        _ if policy.has_compressed_nothing() => {
            format!("Compress nothing, as was done: {takes}.")
        }
        ("loses", None) => format!(
            "Compress nothing: {takes}, a saving of {}, which is not worth its while.",
            percent_saved(&saved)
        ),
        _ => format!(
            "Undecided: {takes}, a saving of {}, which may be nothing.",
            percent_saved(&saved)
        ),
    }
}

/// A fixed split that is clearly better than raw-only and than the policy of the answer. Where misses were made, the
/// splits of the curves ran later, when the device may have been in another state.
fn better<'r>(report: &'r ReplayReport, policy: &PolicyReport) -> Option<&'r PolicyReport> {
    report.best_fixed().filter(|best| {
        let is_asked = report.policies.iter().any(|of| of.policy == best.policy);
        let is_beside = is_asked || !report.is_read;
        is_beside && mark(best) == "pays" && best.cost() < CLEARLY * policy.cost()
    })
}

fn without_raw(report: &ReplayReport) -> String {
    let least = report
        .all()
        .min_by(|one, other| one.cost().total_cmp(&other.cost()));
    let unit = Unit::of(report);
    least.map_or("Nothing was replayed.".to_string(), |policy| {
        format!(
            "Without raw-only beside it: {} takes {} {}.",
            named(policy),
            unit.figure(policy),
            unit.per
        )
    })
}

fn best_split(report: &ReplayReport) -> Option<&PolicyReport> {
    let splits = report.all().filter(|of| of.policy != RAW_ONLY);
    splits.min_by(|one, other| one.cost().total_cmp(&other.cost()))
}

fn named(policy: &PolicyReport) -> String {
    match policy.policy.as_str() {
        ADAPTIVE => "the adaptive cache".to_string(),
        name => name.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::tests::policy;
    use super::*;

    fn report(adaptive: &[f64]) -> ReplayReport {
        let mut report = super::super::testing::report();
        report.policies = vec![
            policy(RAW_ONLY, 0.0, None, &[10_000.0; 16]),
            policy(ADAPTIVE, 0.8, Some("zstd:1"), adaptive),
        ];
        report.splits.clear();
        report.compare();
        report
    }

    #[test]
    fn a_split_that_was_not_found_is_told() {
        let check = |adaptive: f64, split: f64, expected: &str| {
            let mut report = report(&[adaptive; 16]);
            report.splits = vec![policy("split:80:zstd", 0.8, Some("zstd:1"), &[split; 16])];
            report.compare();
            assert!(report.headline.ends_with(expected), "{}", report.headline);
        };
        check(
            10_050.0,
            6_000.0,
            "Compress by a fixed split: split:80:zstd takes 6.00 us an access, raw-only 10.0; the adaptive \
             cache, at 10.1, did not find it.",
        );
        check(
            8_000.0,
            6_000.0,
            "in force at the end. With split:80:zstd all the time it would take 6.00.",
        );
        check(8_000.0, 7_900.0, "with adaptive in force at the end.");
        check(10_050.0, 9_990.0, "which is not worth its while.");
    }

    #[test]
    fn nothing_is_credited_to_compressing_that_was_not_done() {
        let mut report = report(&[6_000.0; 16]);
        let adaptive = &mut report.policies[1];
        (adaptive.compressed, adaptive.packed_hits) = (0, 0);
        report.compare();
        assert_eq!(
            report.headline,
            "Compress nothing, as was done: the adaptive cache takes 6.00 us an access, raw-only 10.0."
        );
        // Blocks of one byte repeated are held without compressing.
        report.policies[1].packed_hits = 1;
        report.compare();
        assert!(report.headline.starts_with("Compress: "));
    }

    #[test]
    fn a_memory_without_a_page_is_no_verdict() {
        let mut report = report(&[10_000.0; 16]);
        (report.memory_bytes, report.page_bytes) = (40 << 10, 12_000);
        report.policies[0].held_bytes = 0;
        report.compare();
        assert!(report.headline.starts_with("Compress nothing: "));
        report.policies[1].held_bytes = 0;
        report.compare();
        assert_eq!(
            report.headline,
            "Too little memory: 40.0 KiB hold no page of 12000 bytes beside what the cache needs itself, so \
             every access misses."
        );
    }

    /// A policy may save time and cost energy.
    #[test]
    fn the_answer_goes_by_what_is_preferred() {
        let mut report = report(&[6_000.0; 16]);
        let costs = [(5.0, "raw-only"), (6.0, "adaptive")];
        for (of, (joules, _)) in report.policies.iter_mut().zip(costs) {
            of.cost_per_access = Some(1e-6 * joules);
            of.parts
                .iter_mut()
                .for_each(|part| part.cost = Some(1e-3 * joules));
        }
        report.prefer = "energy".to_string();
        report.compare();
        assert_eq!(
            report.headline,
            "Compress nothing: the adaptive cache takes 6.00 uJ an access, raw-only 5.00, a saving of \
             -20.0 %, which is not worth its while."
        );
        report.policies[1].cost_per_access = Some(2e-6);
        report.policies[1]
            .parts
            .iter_mut()
            .for_each(|part| part.cost = Some(2e-3));
        report.prefer = "money".to_string();
        report.compare();
        assert_eq!(
            report.headline,
            "Compress: the adaptive cache takes 2,000 EUR for 10^9 accesses, raw-only 5,000, and saves 60.0 % \
             of the money, with adaptive in force at the end."
        );
    }

    /// Splits that were replayed for the curves met the device at another time.
    #[test]
    fn a_split_of_the_curves_is_no_verdict_on_a_device() {
        let split = policy("split:80:zstd", 0.8, Some("zstd:1"), &[6_000.0; 16]);
        let mut found = report(&[10_050.0; 16]);
        found.is_read = true;
        found.splits = vec![split.clone()];
        found.compare();
        assert!(found.headline.starts_with("Compress nothing: "));
        found.policies.push(split);
        found.compare();
        assert!(found.headline.starts_with("Compress by a fixed split: "));
    }

    #[test]
    fn verdicts_are_worded() {
        let check = |adaptive: &[f64], expected: &str| {
            assert_eq!(report(adaptive).headline, expected);
        };
        check(
            &[6_000.0; 16],
            "Compress: the adaptive cache takes 6.00 us an access, raw-only 10.0, and saves 40.0 %, \
             with adaptive in force at the end.",
        );
        check(
            &[10_050.0; 16],
            "Compress nothing: the adaptive cache takes 10.1 us an access, raw-only 10.0, a saving of \
             -0.5 %, which is not worth its while.",
        );
        let noisy: Vec<f64> = (0..16)
            .map(|at| 9_000.0 + 1_800.0 * f64::from(at % 2))
            .collect();
        let found = report(&noisy).headline;
        assert!(
            found.starts_with("Undecided: ") && found.contains(" to "),
            "{found}"
        );
        let short = report(&[6_000.0; 3]).headline;
        assert!(short.starts_with("Too little to tell"), "{short}");
        let mut alone = report(&[6_000.0; 16]);
        alone.policies.remove(0);
        alone.compare();
        assert_eq!(
            alone.headline,
            "Without raw-only beside it: the adaptive cache takes 6.00 us an access."
        );
    }
}
