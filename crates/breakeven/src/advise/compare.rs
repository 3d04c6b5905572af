//! The changes between two reports, for people and for CI.
//!
//! A verdict gives an advice: to compress with a method, to store raw, or that it is undecided. It has changed when the
//! advice differs and the bands of the least costs do not meet. Where they meet, another run on the same data may give
//! either advice. The same holds where the method of one run is a rival in the other, with a band that met that of the
//! best. Where both are undecided, neither gave an advice. A measured number has moved when its two intervals have no
//! value in common. Reports of unlike things (another machine, other terms, other data) are compared all the same. The
//! differences are named, so that the reader knows the possible cause of a change.
//!
//! Pure: two reports in, the comparison out; in time and memory linear in the reports.

use std::collections::HashMap;
use std::fmt::Display;

use serde::Serialize;

use crate::advise::binary_size;
use crate::advise::report::{
    MethodReport, Report, Rival, SampleReport, TermsReport, VerdictReport,
};
use crate::advise::sample::CACHE_BLOCK_BYTES;
use crate::meter::Machine;
use crate::units::Estimate;

/// The name and version of the JSON form.
pub const SCHEMA: &str = "breakeven.compare/1";

/// Everything that changed between two reports.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The name and version of the JSON form.
    pub schema: &'static str,
    /// Whether a verdict in both reports has changed.
    pub changed: bool,
    /// Verdicts that both reports have.
    pub verdicts_compared: u64,
    /// The verdicts that changed, in the order of the second report.
    pub verdicts: Vec<VerdictChange>,
    /// Verdicts whose advice differs within their errors, which is no change.
    pub within_error: Vec<VerdictChange>,
    /// The differences in machine, terms and data.
    pub unlike: Vec<Difference>,
    /// Rates and latencies of the medium whose intervals do not meet.
    pub medium: Vec<Moved>,
    /// Ratios and seconds of methods whose intervals do not meet.
    pub methods: Vec<MethodMoved>,
    /// Entries that only the second report has.
    pub new: Vec<Presence>,
    /// Entries that only the first report has.
    pub gone: Vec<Presence>,
}

/// A verdict with another advice now.
#[derive(Clone, Debug, Serialize)]
pub struct VerdictChange {
    /// As the verdict's.
    pub place: String,
    /// As the verdict's.
    pub metric: String,
    /// As the verdict's.
    pub class: String,
    /// The stance of the first report.
    pub before: Stance,
    /// The stance of the second report.
    pub after: Stance,
}

/// The content of a verdict, with the facts about its candidate.
#[derive(Clone, Debug, Serialize)]
pub struct Stance {
    /// The best method.
    pub method: String,
    /// The best method that compresses.
    pub candidate: String,
    /// As the verdict's.
    pub answer: String,
    /// Cost of the candidate over the cost of storing raw.
    pub cost_ratio: Estimate,
    /// Raw over stored bytes of the candidate in this place's blocks.
    pub ratio: Option<Estimate>,
    /// Core-seconds per GB (10^9 raw bytes).
    pub compress_core_s_per_gb: Option<Estimate>,
    /// The same of decompressing.
    pub decompress_core_s_per_gb: Option<Estimate>,
}

/// A fact that differs between the reports, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `machine`, `terms`, `medium` or `data`.
    pub of: &'static str,
    /// The quantity.
    pub what: &'static str,
    /// In the first report.
    pub before: String,
    /// In the second report.
    pub after: String,
}

/// A measured number that moved.
#[derive(Clone, Debug, Serialize)]
pub struct Moved {
    /// The quantity that moved.
    pub quantity: &'static str,
    /// In the first report.
    pub before: Estimate,
    /// In the second report.
    pub after: Estimate,
}

/// A measured number of a method on a class that moved.
#[derive(Clone, Debug, Serialize)]
pub struct MethodMoved {
    /// The class, or `all`.
    pub class: String,
    /// The method's text form.
    pub method: String,
    /// Raw bytes of a block.
    pub block_bytes: u64,
    /// The quantity that moved, with both values.
    #[serde(flatten)]
    pub moved: Moved,
}

/// An entry that one of the reports lacks: a class, or a method or verdict of a class in both.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Presence {
    /// `class`, `method` or `verdict`.
    pub what: &'static str,
    /// Its name.
    pub name: String,
}

/// Compares two reports, the earlier one first.
pub fn compare(before: &Report, after: &Report) -> Comparison {
    let (old, new) = (Index::of(before), Index::of(after));
    let (mut verdicts, mut within_error) = (Vec::new(), Vec::new());
    for verdict in &after.verdicts {
        let Some(earlier) = old.verdicts.get(&verdict_key(verdict)) else {
            continue;
        };
        let change = || VerdictChange {
            place: verdict.place.clone(),
            metric: verdict.metric.clone(),
            class: verdict.class.clone(),
            before: old.stance(before, earlier),
            after: new.stance(after, verdict),
        };
        match (differs(earlier, verdict), may_agree(earlier, verdict)) {
            (false, _) => {}
            (true, true) => within_error.push(change()),
            (true, false) => verdicts.push(change()),
        }
    }
    let compared = new
        .verdicts
        .keys()
        .filter(|key| old.verdicts.contains_key(*key));
    Comparison {
        schema: SCHEMA,
        changed: !verdicts.is_empty(),
        verdicts_compared: compared.count() as u64,
        verdicts,
        within_error,
        unlike: unlike(before, after),
        medium: medium(before, after),
        methods: methods(&old, after),
        new: only_in(after, &old),
        gone: only_in(before, &new),
    }
}

type VerdictKey<'r> = (&'r str, &'r str, &'r str);
type MethodKey<'r> = (&'r str, &'r str, u64);

fn verdict_key(verdict: &VerdictReport) -> VerdictKey<'_> {
    (&verdict.place, &verdict.metric, &verdict.class)
}

/// A report's parts by name. If a name occurs twice, which no report of ours has, the last one counts.
struct Index<'r> {
    classes: HashMap<&'r str, ()>,
    verdicts: HashMap<VerdictKey<'r>, &'r VerdictReport>,
    methods: HashMap<MethodKey<'r>, &'r MethodReport>,
}

impl<'r> Index<'r> {
    fn of(report: &'r Report) -> Index<'r> {
        let classes = report.classes.iter();
        let methods = classes.clone().flat_map(|class| {
            let key = |method: &'r MethodReport| method_key(&class.name, method);
            class
                .methods
                .iter()
                .map(move |method| (key(method), method))
        });
        Index {
            classes: classes.map(|class| (class.name.as_str(), ())).collect(),
            verdicts: report
                .verdicts
                .iter()
                .map(|verdict| (verdict_key(verdict), verdict))
                .collect(),
            methods: methods.collect(),
        }
    }

    fn stance(&self, report: &Report, verdict: &VerdictReport) -> Stance {
        let block_bytes = match verdict.place.as_str() {
            "pages" => report.terms.page_bytes,
            "cache" => CACHE_BLOCK_BYTES as u64,
            _ => report.sample.block_bytes,
        };
        let key = (
            verdict.class.as_str(),
            verdict.candidate.as_str(),
            block_bytes,
        );
        let method = self.methods.get(&key);
        Stance {
            method: verdict.method.clone(),
            candidate: verdict.candidate.clone(),
            answer: verdict.answer.clone(),
            cost_ratio: verdict.cost_ratio,
            ratio: method.map(|method| method.ratio),
            compress_core_s_per_gb: method.map(|method| method.compress_work.core_s_per_gb),
            decompress_core_s_per_gb: method.map(|method| method.decompress_work.core_s_per_gb),
        }
    }
}

fn method_key<'r>(class: &'r str, method: &'r MethodReport) -> MethodKey<'r> {
    (class, &method.method, method.block_bytes)
}

/// Returns whether two verdicts give different advice. A moved break-even alone does not count, because the advice for
/// the report's numbers stays.
fn differs(before: &VerdictReport, after: &VerdictReport) -> bool {
    let never = |verdict: &VerdictReport| verdict.answer == "never";
    match (before.answer.as_str(), after.answer.as_str()) {
        ("undecided", "undecided") => false,
        ("undecided", _) | (_, "undecided") => true,
        _ => before.method != after.method || never(before) != never(after),
    }
}

/// Returns whether two different verdicts may come from one truth.
fn may_agree(before: &VerdictReport, after: &VerdictReport) -> bool {
    let rival = |verdict: &VerdictReport, of: &VerdictReport| {
        let is_it = |rival: &Rival| rival.method == verdict.method;
        of.answer != "undecided" && verdict.answer != "undecided" && of.rivals.iter().any(is_it)
    };
    meet(least(before), least(after)) || rival(before, after) || rival(after, before)
}

/// Returns the band of the least cost: that of the candidate, or of a rival.
fn least(verdict: &VerdictReport) -> Estimate {
    let rivals = verdict.rivals.iter().map(|rival| rival.cost_ratio);
    rivals.fold(verdict.cost_ratio, |least, rival| Estimate {
        mean: least.mean.min(rival.mean),
        low: least.low.min(rival.low),
        high: least.high.min(rival.high),
    })
}

/// Returns whether two bands have a value in common. A band with an end that is not a number contains every value.
fn meet(before: Estimate, after: Estimate) -> bool {
    !(before.high < after.low || after.high < before.low)
}

/// Returns whether a number moved out of its interval: if the two meet, both reports may come from one truth.
fn has_moved(before: Estimate, after: Estimate) -> bool {
    let step = (after.mean - before.mean).abs();
    // A value that is not a number, or has no known error, has not moved for certain.
    step > ROUNDING * before.mean.abs() && !meet(before, after)
}

/// The most by which two sums over the same bytes may differ from the order of addition alone, as a share.
const ROUNDING: f64 = 1e-9;

fn moved(quantity: &'static str, before: Estimate, after: Estimate) -> Option<Moved> {
    has_moved(before, after).then_some(Moved {
        quantity,
        before,
        after,
    })
}

fn medium(before: &Report, after: &Report) -> Vec<Moved> {
    let (before, after) = (&before.medium, &after.medium);
    [
        moved("read_mb_s", before.read_mb_s, after.read_mb_s),
        moved("write_mb_s", before.write_mb_s, after.write_mb_s),
        moved(
            "random_read_us",
            before.random_read_us,
            after.random_read_us,
        ),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn methods(old: &Index<'_>, after: &Report) -> Vec<MethodMoved> {
    let mut out = Vec::new();
    for class in &after.classes {
        for method in &class.methods {
            let Some(earlier) = old.methods.get(&method_key(&class.name, method)) else {
                continue;
            };
            let work = |of: &MethodReport| {
                [&of.compress_work, &of.decompress_work].map(|work| work.core_s_per_gb)
            };
            let ([compress, decompress], [compress_now, decompress_now]) =
                (work(earlier), work(method));
            let all = [
                moved("ratio", earlier.ratio, method.ratio),
                moved("compress_core_s_per_gb", compress, compress_now),
                moved("decompress_core_s_per_gb", decompress, decompress_now),
            ];
            out.extend(all.into_iter().flatten().map(|moved| MethodMoved {
                class: class.name.clone(),
                method: method.method.clone(),
                block_bytes: method.block_bytes,
                moved,
            }));
        }
    }
    out
}

/// The entries that `report` has and `other` lacks. A missing class stands for all its entries.
fn only_in(report: &Report, other: &Index<'_>) -> Vec<Presence> {
    let mut out = Vec::new();
    for class in &report.classes {
        let name = class.name.as_str();
        if !other.classes.contains_key(name) {
            out.push(Presence {
                what: "class",
                name: name.to_string(),
            });
            continue;
        }
        let missing = class
            .methods
            .iter()
            .filter(|method| !other.methods.contains_key(&method_key(name, method)));
        out.extend(missing.map(|method| Presence {
            what: "method",
            name: format!(
                "{} on {name}, {} blocks",
                method.method,
                binary_size(method.block_bytes)
            ),
        }));
    }
    let missing = report.verdicts.iter().filter(|verdict| {
        other.classes.contains_key(verdict.class.as_str())
            && !other.verdicts.contains_key(&verdict_key(verdict))
    });
    out.extend(missing.map(|verdict| Presence {
        what: "verdict",
        name: format!("{} {} on {}", verdict.place, verdict.metric, verdict.class),
    }));
    out
}

/// Facts that differ, gathered one by one.
struct Unlike {
    of: &'static str,
    found: Vec<Difference>,
}

impl Unlike {
    fn note<T: PartialEq>(&mut self, what: &'static str, pair: [T; 2], say: impl Fn(&T) -> String) {
        let [before, after] = pair;
        if before != after {
            self.found.push(Difference {
                of: self.of,
                what,
                before: say(&before),
                after: say(&after),
            });
        }
    }

    fn plain<T: PartialEq + Display>(&mut self, what: &'static str, pair: [T; 2]) {
        self.note(what, pair, T::to_string);
    }

    /// For facts that a machine may not report.
    fn option<T: PartialEq + Display>(&mut self, what: &'static str, pair: [Option<T>; 2]) {
        self.note(what, pair, |value| match value {
            Some(value) => value.to_string(),
            None => "unknown".to_string(),
        });
    }
}

fn unlike(before: &Report, after: &Report) -> Vec<Difference> {
    let both = [before, after];
    let mut unlike = Unlike {
        of: "machine",
        found: Vec::new(),
    };
    unlike_machines(&mut unlike, both.map(|report| &report.machine));
    unlike.of = "terms";
    unlike_terms(&mut unlike, both);
    unlike.of = "medium";
    unlike.plain("name", both.map(|report| &report.medium.name));
    unlike.plain("source", both.map(|report| &report.medium.source));
    unlike.of = "data";
    unlike.plain("bytes", both.map(|report| report.sample.population_bytes));
    unlike.plain("files", both.map(|report| report.sample.files));
    unlike.plain("seed", both.map(|report| report.sample.seed));
    let measured =
        |of: &SampleReport| (100.0 * of.bytes as f64 / of.population_bytes.max(1) as f64).round();
    let samples = both.map(|report| &report.sample);
    unlike.plain("% of the bytes measured", samples.map(measured));
    unlike.found
}

fn unlike_machines(unlike: &mut Unlike, both: [&Machine; 2]) {
    const GIB: f64 = (1u64 << 30) as f64;
    unlike.plain("processor", both.map(|of| of.processor.to_string()));
    unlike.plain("cores", both.map(|of| of.cores));
    unlike.plain("threads", both.map(|of| of.threads));
    // Rounded to the GiB: kernels keep a varying part for themselves.
    let memory = both.map(|of| of.memory_bytes.map(|bytes| (bytes as f64 / GIB).round()));
    unlike.option("GiB of memory", memory);
    unlike.option("kernel", both.map(|of| of.kernel.as_deref()));
    unlike.option("governor", both.map(|of| of.governor.as_deref()));
    unlike.note(
        "virtualisation",
        both.map(|of| of.virtualisation.as_deref()),
        |of| of.unwrap_or("bare metal").to_string(),
    );
}

fn unlike_terms(unlike: &mut Unlike, both: [&Report; 2]) {
    let terms = both.map(|report| &report.terms);
    let prices = terms.map(|of| &of.prices);
    let reads = |of: &Estimate| format!("{} to {}", of.low, of.high);
    unlike.note("reads per write", terms.map(|of| of.reads_per_write), reads);
    unlike.plain("days kept", terms.map(|of| of.days_kept));
    unlike.plain("preference", terms.map(|of| &of.prefer));
    unlike.plain("compressing threads", terms.map(|of| of.threads));
    unlike.plain("block bytes", both.map(|of| of.sample.block_bytes));
    unlike.plain("page bytes", terms.map(|of| of.page_bytes));
    // Memory follows the data unless it was given, so its share of the data is compared.
    let share = |of: &TermsReport| {
        let data = of.data_bytes.max(1) as f64;
        (100.0 * of.memory_bytes as f64 / data).round()
    };
    unlike.plain("cache memory in % of the data", terms.map(share));
    unlike.plain("accesses", terms.map(|of| &of.access));
    unlike.plain("link", terms.map(|of| &of.link_name));
    unlike.plain("link MB/s", terms.map(|of| of.link_mb_s));
    unlike.plain("idle watts", terms.map(|of| of.idle_watts));
    unlike.plain("watts of a core", terms.map(|of| of.core_watts));
    unlike.plain("watts of the medium", terms.map(|of| of.medium_watts));
    let methods = both.map(|of| of.classes.iter().flat_map(|class| &class.methods).next());
    let source = methods.map(|method| method.map(|method| method.energy.source.as_str()));
    unlike.option("source of watts", source);
    unlike.plain("date of prices", prices.map(|of| &of.date));
    unlike.plain("EUR/kWh", prices.map(|of| of.eur_per_kwh));
    unlike.plain("cooling share", prices.map(|of| of.cooling_share));
    unlike.plain("EUR per core-hour", prices.map(|of| of.core_eur_per_hour));
    unlike.plain(
        "EUR per TB and year",
        prices.map(|of| of.storage_eur_per_tb_year),
    );
    unlike.plain("watts per TB", prices.map(|of| of.storage_watts_per_tb));
    unlike.plain(
        "days billed at least",
        prices.map(|of| of.billable_days_min),
    );
    unlike.plain("EUR per GB written", prices.map(|of| of.write_eur_per_gb));
    unlike.plain("EUR per GB read", prices.map(|of| of.read_eur_per_gb));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(method: &str, answer: &str) -> VerdictReport {
        VerdictReport {
            place: "file".to_string(),
            metric: "time".to_string(),
            class: "all".to_string(),
            method: method.to_string(),
            candidate: "zstd:1".to_string(),
            answer: answer.to_string(),
            unit: "reads_per_write".to_string(),
            break_even: None,
            low: None,
            high: None,
            flips_at: Vec::new(),
            stages: "serial".to_string(),
            cost_ratio: Estimate::exact(0.5),
            rivals: Vec::new(),
            might: None,
        }
    }

    #[track_caller]
    fn check(before: (&str, &str), after: (&str, &str), expected: bool) {
        let (before, after) = (verdict(before.0, before.1), verdict(after.0, after.1));
        assert_eq!(differs(&before, &after), expected);
        assert_eq!(differs(&after, &before), expected, "the other way round");
    }

    #[test]
    fn a_verdict_changes_with_what_it_says_to_do() {
        check(("zstd:1", "pays"), ("zstd:1", "pays"), false);
        check(("zstd:1", "pays"), ("zstd:1", "pays_above"), false);
        check(("zstd:1", "pays"), ("lz4:1", "pays"), true);
        check(("zstd:1", "pays"), ("store", "never"), true);
        check(("zstd:1", "pays"), ("zstd:1", "never"), true);
        check(("zstd:1", "pays"), ("zstd:1", "undecided"), true);
        check(("store", "never"), ("store", "undecided"), true);
        check(("store", "undecided"), ("zstd:1", "undecided"), false);
    }

    /// One method waits for a link and another for the cores. A run with less knowledge of the cores may let that
    /// method win or lose.
    #[test]
    fn the_method_of_another_run_may_have_been_a_rival() {
        let band = |low: f64, high: f64| Estimate {
            mean: (low + high) / 2.0,
            low,
            high,
        };
        let check = |before: &[(&str, f64, f64)], after: &[(&str, f64, f64)], expected: bool| {
            let made = |of: &[(&str, f64, f64)]| {
                let (method, low, high) = of[0];
                let rivals = of[1..].iter().map(|(method, low, high)| Rival {
                    method: (*method).to_string(),
                    cost_ratio: band(*low, *high),
                });
                VerdictReport {
                    cost_ratio: band(low, high),
                    rivals: rivals.collect(),
                    ..verdict(method, "pays")
                }
            };
            let (before, after) = (made(before), made(after));
            assert!(differs(&before, &after));
            assert_eq!(may_agree(&before, &after), expected);
            assert_eq!(may_agree(&after, &before), expected, "the other way round");
        };
        let link_bound = ("lz4:1", 0.758, 0.765);
        check(&[link_bound], &[("zstd:1", 0.629, 0.733)], false);
        let (slower, other) = (("zstd:1", 0.74, 0.83), ("zstd:3", 0.74, 0.90));
        check(&[link_bound, slower], &[("zstd:1", 0.629, 0.733)], true);
        check(&[link_bound, other], &[("zstd:1", 0.629, 0.733)], false);
        // A rival in only one of the two may make the least costs meet.
        let dense = ("zstd:3", 0.70, 0.90);
        check(&[link_bound, dense], &[("zstd:1", 0.629, 0.733)], true);
    }

    #[test]
    fn bands_meet_where_they_have_a_value_in_common() {
        let check = |before: (f64, f64), after: (f64, f64), expected: bool| {
            let band = |(low, high): (f64, f64)| Estimate {
                mean: (low + high) / 2.0,
                low,
                high,
            };
            assert_eq!(meet(band(before), band(after)), expected);
            assert_eq!(meet(band(after), band(before)), expected);
        };
        check((0.4, 0.5), (0.5, 0.6), true);
        check((0.4, 0.5), (0.51, 0.6), false);
        check((0.4, 0.9), (0.5, 0.6), true);
        check((0.5, 0.5), (0.5, 0.5), true);
        check((0.4, f64::NAN), (0.9, 1.0), true);
    }

    #[test]
    fn a_number_moves_beyond_both_errors() {
        let check = |before: Estimate, after: Estimate, expected: bool| {
            assert_eq!(has_moved(before, after), expected, "{before:?} {after:?}");
            assert_eq!(has_moved(after, before), expected, "{after:?} {before:?}");
        };
        let near = |mean: f64, half_width: f64| Estimate::plus_minus(mean, half_width);
        check(near(2.0, 0.1), near(2.05, 0.1), false);
        check(near(2.0, 0.1), near(2.13, 0.1), false);
        // Each mean lies outside the other's interval, and the intervals meet.
        check(near(2.0, 0.1), near(2.15, 0.1), false);
        check(near(2.0, 0.1), near(2.25, 0.1), true);
        check(Estimate::exact(2.0), Estimate::exact(2.0 + 1e-12), false);
        check(Estimate::exact(2.0), Estimate::exact(2.001), true);
        check(near(2.0, f64::INFINITY), near(5.0, 0.1), false);
        check(near(f64::NAN, 0.1), near(5.0, 0.1), false);
        // Only the errors on the near sides count.
        let skewed = Estimate {
            mean: 2.0,
            low: 0.0,
            high: 2.01,
        };
        check(skewed, near(2.2, 0.1), true);
        check(skewed, near(2.1, 0.1), false);
    }
}
