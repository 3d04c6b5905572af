//! The verdicts: the best method at each place and in each metric, and its turning points.
//!
//! Everything is per raw byte. A metric weights the medium's seconds, the core-seconds and the bytes of each task.
//! Uncertain inputs take three cases: the means, and the two corners at which compressing looks worst and best. One
//! medium serves both sides of a comparison and one figure of watts prices both, so these vary together.
//!
//! Pure: sees no bytes, no clock, no medium; the caller hands in costs, rates and weights.

mod cache;
mod link;
mod metric;
mod place;

use std::cell::RefCell;
use std::iter;

use crate::advise::report::{Flip, Rival, VerdictReport};
use crate::bisection::bisect;
use crate::codec::Method;
use crate::decide::{
    BlockLife, Candidate, Chooser, ChooserOptions, Class, Decision, Prices, Profile,
};
use crate::model::{Answer, Outcome, Verdict};
use crate::units::Estimate;

pub use cache::{Cache, Kind, Outlook};
pub use link::Link;
pub use metric::{Metric, Metrics, Weights};
pub use place::{Place, PlaceTimes};

use metric::Quantity;

/// The cost of a method on a class, per raw byte.
#[derive(Clone, Copy, Debug)]
pub struct MethodCosts {
    /// The method.
    pub method: Method,
    /// Stored bytes (allocated bytes where space is given out in units).
    pub stored: Estimate,
    /// The work of compressing.
    pub encode: Work,
    /// The work of decompressing.
    pub decode: Work,
}

/// The work of compressing or decompressing a raw byte.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Seconds of a core of the host.
    pub core_seconds: Estimate,
    /// Seconds of a device beside the processor, which is not used in parallel.
    pub device_seconds: f64,
    /// Joules of that device.
    pub device_joules: f64,
}

impl Work {
    /// Work done by the host's cores alone.
    pub fn of_cores(core_seconds: Estimate) -> Work {
        Work {
            core_seconds,
            device_seconds: 0.0,
            device_joules: 0.0,
        }
    }

    fn cost(&self, weights: &Weights, case: Case) -> f64 {
        case.cost(self.core_seconds) * weights.core_second
            + self.device_seconds * weights.device_second
            + self.device_joules * weights.joule
    }

    /// Elapsed seconds when `threads` cores share the work.
    fn elapsed_seconds(&self, threads: f64, case: Case) -> f64 {
        case.cost(self.core_seconds) / threads + self.device_seconds
    }
}

/// The choice of values for the uncertain inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Means,
    /// The corner at which compressing looks worst: dense data, slow cores, a fast medium.
    Worst,
    /// The opposite corner.
    Best,
}

impl Case {
    const ALL: [Case; 3] = [Case::Means, Case::Worst, Case::Best];

    /// Takes a cost of compressing.
    fn cost(self, estimate: Estimate) -> f64 {
        match self {
            Case::Means => estimate.mean,
            Case::Worst => estimate.high,
            Case::Best => estimate.low,
        }
    }

    /// Takes a cost of the medium: the higher, the better for compressing.
    fn saving(self, estimate: Estimate) -> f64 {
        match self {
            Case::Means => estimate.mean,
            Case::Worst => estimate.low,
            Case::Best => estimate.high,
        }
    }
}

/// The best compressing method at a place, with its outcomes, its cost over raw's in all cases, and its rivals.
struct Weighed {
    /// The best compressing method.
    candidate: Method,
    /// The decision: this method, or storing raw.
    method: Method,
    /// Outcomes at the means, the worst and the best corner.
    outcomes: [Outcome; 3],
    /// Cost over raw's: at the means and the requested value, with the band of all cases over the whole requested
    /// range.
    cost_ratio: Estimate,
    rivals: Vec<Rival>,
}

/// The subject of a verdict.
struct Subject<'a> {
    place: &'a str,
    metric: Metric,
    class: &'a str,
    unit: &'static str,
    stages: &'static str,
    /// Divides break-evens on their way to the report.
    unit_scale: f64,
}

/// Words a verdict. It is undecided if the choice flips inside the band of the cost, from an error or within the
/// requested range. A verdict that is undecided over all values may still be clear for the requested ones. A method
/// that pays by less than the least worthwhile gain is not chosen, so that is a no as well.
fn report(subject: &Subject<'_>, weighed: Weighed, flips_at: Vec<Flip>) -> VerdictReport {
    let [mean, worst, best] = weighed.outcomes;
    let verdict = Verdict::over(mean, [worst, best]);
    let Estimate { low, high, .. } = weighed.cost_ratio;
    let pays = [low, high].map(|cost_ratio| cost_ratio < WORTH_WHILE);
    let answer = match (pays, verdict.answer) {
        ([true, true], Answer::Undecided) => Answer::Pays,
        ([false, false], Answer::Undecided | Answer::Pays) => Answer::Never,
        ([true, true] | [false, false], answer) => answer,
        _ => Answer::Undecided,
    };
    let scaled = |value: Option<f64>| value.map(|value| value / subject.unit_scale);
    VerdictReport {
        place: subject.place.to_string(),
        metric: subject.metric.to_string(),
        class: subject.class.to_string(),
        method: weighed.method.to_string(),
        candidate: weighed.candidate.to_string(),
        answer: answer_text(answer).to_string(),
        unit: subject.unit.to_string(),
        break_even: scaled(verdict.break_even),
        low: scaled(verdict.low),
        high: scaled(verdict.high),
        flips_at,
        stages: subject.stages.to_string(),
        cost_ratio: weighed.cost_ratio,
        rivals: weighed.rivals,
        might: None,
    }
}

/// Returns the band of the best method's cost over raw's, and the methods whose bands begin before it ends. Any of them
/// may be the best.
fn rivals(
    methods: &[MethodCosts],
    best: Method,
    band: impl Fn(&MethodCosts) -> Option<Estimate>,
) -> Option<(Estimate, Vec<Rival>)> {
    let compressing = methods.iter().filter(|it| it.method != Method::STORE);
    let mut bands: Vec<(Method, Estimate)> = compressing
        .filter_map(|costs| Some((costs.method, band(costs)?)))
        .collect();
    let at = bands.iter().position(|(method, _)| *method == best)?;
    let cost_ratio = bands.remove(at).1;
    let near = bands.into_iter().filter(|it| it.1.low < cost_ratio.high);
    let rivals = near.map(|(method, cost_ratio)| Rival {
        method: method.to_string(),
        cost_ratio,
    });
    Some((cost_ratio, rivals.collect()))
}

/// A method must cost less than this share of storing raw to be worthwhile.
pub const WORTH_WHILE: f64 = 0.99;

/// The methods of a verdict before the chooser. The sample gives their costs, and only the place adds to them.
struct Choosing<'a> {
    methods: &'a [MethodCosts],
    chooser: RefCell<Chooser>,
}

impl<'a> Choosing<'a> {
    fn among(methods: &'a [MethodCosts]) -> Choosing<'a> {
        let compressing = methods.iter().filter(|it| it.method != Method::STORE);
        let candidates = iter::once(Method::STORE).chain(compressing.map(|it| it.method));
        let options = ChooserOptions {
            trial_share: 0.0,
            worth_while: WORTH_WHILE,
            ..ChooserOptions::default()
        };
        Choosing {
            methods,
            chooser: RefCell::new(Chooser::new(
                candidates.map(Candidate::new).collect(),
                Profile::default(),
                options,
            )),
        }
    }

    /// Decides by the costs over raw's at one corner of the prices: returns the compressing method of least cost, and
    /// the decision for or against it.
    fn decide(
        &self,
        cost_ratio: impl Fn(&MethodCosts) -> f64,
    ) -> Option<(&'a MethodCosts, Decision)> {
        let compressing = self.methods.iter().filter(|it| it.method != Method::STORE);
        let costs: Vec<f64> = iter::once(1.0).chain(compressing.map(cost_ratio)).collect();
        let raw_byte = BlockLife::new(Class::UNSEEN, 1);
        let mut chooser = self.chooser.borrow_mut();
        let decision = chooser.decide(&raw_byte, &Prices::default(), |at, _| {
            Estimate::exact(costs[at])
        });
        let best = decision.best_codec?.0;
        let costs = self.methods.iter().find(|costs| costs.method == best)?;
        Some((costs, decision))
    }
}

/// Searches from `start` in steps of `step` for a change of the key of `look`, at most a factor of `reach` away.
/// Returns the place to one part in a thousand, and the result beyond it.
fn turn<Key: PartialEq, Found: Copy>(
    start: f64,
    step: f64,
    reach: f64,
    look: impl Fn(f64) -> Option<(Key, Found)>,
) -> Option<(f64, Found)> {
    let now = look(start)?.0;
    let (mut inside, mut outside) = (start, start * step);
    let mut found = look(outside)?;
    while found.0 == now {
        (inside, outside) = (outside, outside * step);
        if outside > start * reach || outside < start / reach {
            return None;
        }
        found = look(outside)?;
    }
    // A step is at most a doubling in either direction, and the rest of it is less than one part in a thousand.
    let at = |share: f64| inside * (outside / inside).powf(share);
    let mut is_known = true;
    let turned = bisect(0.0..1.0, 10, |share| match look(at(share)) {
        Some(seen) if seen.0 == now => true,
        Some(seen) => {
            found = seen;
            false
        }
        None => {
            is_known = false;
            true
        }
    });
    is_known.then(|| (at(turned.end), found.1))
}

/// The report's word for the answer.
pub fn answer_text(answer: Answer) -> &'static str {
    match answer {
        Answer::Pays => "pays",
        Answer::PaysAbove => "pays_above",
        Answer::PaysBelow => "pays_below",
        Answer::Never => "never",
        Answer::Undecided => "undecided",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Accesses;
    use crate::model::Access;

    /// A method of ratio 2 that compresses 500 MB/s and decompresses 2 GB/s on a core.
    fn fast() -> MethodCosts {
        costs("lz4:1", 0.5, 500e6, 2e9)
    }

    /// A method of ratio 4 that compresses 5 MB/s and decompresses 100 MB/s on a core.
    fn dense() -> MethodCosts {
        costs("xz:6", 0.25, 5e6, 100e6)
    }

    fn costs(method: &str, stored: f64, encode: f64, decode: f64) -> MethodCosts {
        MethodCosts {
            method: method.parse().expect("a method"),
            stored: Estimate::plus_minus(stored, 0.01),
            encode: Work::of_cores(Estimate::within_factor(1.0 / encode, 1.05)),
            decode: Work::of_cores(Estimate::within_factor(1.0 / decode, 1.05)),
        }
    }

    fn metrics() -> Metrics {
        let weights = |medium_second: f64, core_second: f64, byte_written: f64| Weights {
            medium_second,
            core_second,
            byte_written,
            ..Weights::default()
        };
        Metrics {
            time: weights(1.0, 1.0, 0.0),
            energy: weights(60.0, 54.0, 0.0),
            money: weights(1e-6, 1e-5, 1e-11),
        }
    }

    fn file(bytes_per_second: f64, reads: f64) -> Place<'static> {
        let seconds = Estimate::within_factor(1.0 / bytes_per_second, 1.1);
        Place {
            name: "file",
            times: PlaceTimes {
                write_fixed: Estimate::exact(0.0),
                write_byte: seconds,
                read_fixed: Estimate::exact(0.0),
                read_byte: seconds,
            },
            metrics: metrics(),
            reads_per_write: Estimate {
                mean: reads,
                low: reads,
                high: reads,
            },
        }
    }

    #[track_caller]
    fn check_file(rate: f64, reads: f64, metric: Metric, expected: (&str, &str)) {
        let verdict = file(rate, reads)
            .verdict(metric, "all", &[fast(), dense()])
            .expect("methods");
        assert_eq!(
            (verdict.method.as_str(), verdict.answer.as_str()),
            expected,
            "{verdict:?}"
        );
        let pays = verdict.cost_ratio.mean < WORTH_WHILE;
        assert_eq!(pays, verdict.method != "store", "{verdict:?}");
    }

    #[test]
    fn files_are_compressed_where_the_medium_is_slower() {
        check_file(100e6, 3.0, Metric::Time, ("lz4:1", "pays"));
        check_file(3e9, 3.0, Metric::Time, ("store", "never"));
        // Written at a loss, read at a gain: 1/400 MB/s x 0.5 - 1/500 MB/s at the write.
        check_file(400e6, 3.0, Metric::Time, ("lz4:1", "pays_above"));
        check_file(400e6, 0.1, Metric::Time, ("store", "pays_above"));
        check_file(1e6, 3.0, Metric::Time, ("xz:6", "pays"));
        check_file(100e6, 3.0, Metric::Energy, ("lz4:1", "pays"));
        check_file(3e9, 3.0, Metric::Energy, ("store", "never"));
        check_file(100e6, 3.0, Metric::EnergyDelay, ("lz4:1", "pays"));
    }

    #[test]
    fn a_verdict_inside_the_error_is_undecided() {
        // At this rate the write's loss equals the read's gain, to within the medium's band.
        let break_even = 500e6 * 0.5 / (1.0 + 500e6 / 2e9) * 2.0;
        check_file(break_even, 1.0, Metric::Time, ("store", "undecided"));
    }

    /// Asserts that a verdict and the band of the cost printed beside it agree. Returns whether it pays, does not pay,
    /// or is undecided.
    #[track_caller]
    fn check_agrees(verdict: &VerdictReport) -> usize {
        let Estimate { mean, low, high } = verdict.cost_ratio;
        let rounding = 1e-12 * mean;
        assert!(
            low - rounding <= mean && mean <= high + rounding,
            "{verdict:?}"
        );
        let expected = [high < WORTH_WHILE, low >= WORTH_WHILE];
        let found = match (verdict.answer.as_str(), verdict.method.as_str()) {
            ("undecided", _) => [false, false],
            ("pays" | "pays_above" | "pays_below", method) if method != "store" => [true, false],
            ("never" | "pays_above" | "pays_below", "store") => [false, true],
            _ => panic!("{verdict:?}"),
        };
        assert_eq!(found, expected, "{verdict:?}");
        found.iter().position(|of| *of).unwrap_or(2)
    }

    #[test]
    fn a_verdict_says_what_the_band_of_its_cost_says() {
        let mut random = crate::testing::seeded("verdict bands", 1);
        let mut found = [[0; 3]; 3];
        for _ in 0..2_000 {
            let mut between = |low: f64, high: f64| low * (high / low).powf(random.f64());
            let stored = between(0.2, 1.0);
            let (encode, decode) = (between(1e7, 3e9), between(1e8, 5e9));
            let methods = [costs("lz4:1", stored, encode, decode)];
            let (rate, reads) = (between(1e7, 5e9), between(0.2, 20.0));
            let mut place = file(rate, reads);
            let spread = between(1.0, 3.0);
            place.reads_per_write = Estimate::within_factor(reads, spread);
            place.times.write_byte = Estimate::within_factor(1.0 / rate, between(1.0, 1.4));
            place.times.read_byte = place.times.write_byte.map(|seconds| 0.7 * seconds);
            let fixed = between(1e-11, 1e-8);
            let pages = Place {
                name: "pages",
                times: PlaceTimes {
                    write_fixed: Estimate::exact(fixed),
                    read_fixed: Estimate::exact(2.0 * fixed),
                    ..place.times
                },
                ..place
            };
            for metric in Metric::ALL {
                let verdicts = [
                    place.verdict(metric, "all", &methods),
                    pages.verdict(metric, "all", &methods),
                    link(rate).verdict(metric, "all", &methods),
                ];
                for (verdict, found) in verdicts.iter().zip(&mut found) {
                    found[check_agrees(verdict.as_ref().expect("a method"))] += 1;
                }
            }
        }
        println!(
            "pays, not, undecided: files {:?}, pages {:?}, links {:?}",
            found[0], found[1], found[2]
        );
        assert!(
            found.as_flattened().iter().all(|count| *count > 100),
            "{found:?}"
        );
    }

    #[test]
    fn a_verdict_names_what_may_cost_least_as_well() {
        let near = costs("zstd:1", 0.49, 480e6, 1e9);
        let rivals = |verdict: Option<VerdictReport>| {
            let verdict = verdict.expect("a method");
            let named = verdict.rivals.iter().map(|rival| rival.method.clone());
            (verdict.candidate, named.collect::<Vec<_>>())
        };
        let expected = |rivals: &[&str]| {
            let rivals = rivals.iter().map(|rival| (*rival).to_string());
            ("lz4:1".to_string(), rivals.collect::<Vec<_>>())
        };
        let methods = [fast(), dense(), near];
        let found = rivals(file(100e6, 3.0).verdict(Metric::Time, "all", &methods));
        assert_eq!(found, expected(&["zstd:1"]));
        let found = rivals(file(1e9, 3.0).verdict(Metric::Time, "all", &methods));
        assert_eq!(found, expected(&[]));
        // The time of the link is certain, that of the cores is not.
        let found = rivals(link(780e6).verdict(Metric::Time, "all", &methods));
        assert_eq!(found, expected(&["zstd:1"]));
    }

    #[test]
    fn a_verdict_that_flips_over_the_reads_asked_about_is_undecided() {
        // It pays from 1.0 reads on, with the bands of the inputs from 0.54 to 1.68.
        let at = |low: f64, high: f64| {
            let mut place = file(400e6, 3.0);
            place.reads_per_write = Estimate {
                mean: 3.0,
                low,
                high,
            };
            let verdict = place
                .verdict(Metric::Time, "all", &[fast()])
                .expect("a method");
            check_agrees(&verdict);
            (verdict.method, verdict.answer)
        };
        let expected = |answer: &str| ("lz4:1".to_string(), answer.to_string());
        assert_eq!(at(2.0, 4.0), expected("pays_above"));
        assert_eq!(at(0.1, 4.0), expected("undecided"));
    }

    #[test]
    fn what_saves_next_to_nothing_is_a_no_and_not_undecided() {
        // Noise, kept so long that the space decides; and there is none to save.
        let mut place = file(100e6, 3.0);
        place.metrics.money.byte_written = 1e-6;
        for stored in [1.0, 0.9999, 0.995] {
            let noise = MethodCosts {
                stored: Estimate::plus_minus(stored, 0.0004),
                ..fast()
            };
            let verdict = (place.verdict(Metric::Money, "all", &[noise])).expect("a method");
            assert_eq!(verdict.method, "store", "{verdict:?}");
            assert_ne!(verdict.answer, "undecided", "{verdict:?}");
        }
        let noise = MethodCosts {
            stored: Estimate::plus_minus(WORTH_WHILE, 0.005),
            ..fast()
        };
        let verdict = (place.verdict(Metric::Money, "all", &[noise])).expect("a method");
        assert_eq!(verdict.answer, "undecided", "{verdict:?}");
    }

    #[test]
    fn the_break_even_is_where_the_costs_meet() {
        let place = file(400e6, 3.0);
        let verdict = place
            .verdict(Metric::Time, "all", &[fast()])
            .expect("a method");
        let at = verdict.break_even.expect("a break-even");
        let (raw, compressed) = place.totals(Metric::Time, &fast(), Case::Means, at);
        assert!((raw / compressed - 1.0).abs() < 1e-9, "{raw} {compressed}");
        assert!(verdict.low.expect("low") < at && at < verdict.high.expect("high"));
        let flip = &verdict.flips_at[0];
        assert_eq!(
            (flip.quantity.as_str(), flip.then.as_str()),
            ("medium_speed_factor", "store")
        );
        assert!(flip.value > 1.0);
        let faster = file(400e6 * flip.value * 1.01, 3.0);
        assert_eq!(
            faster.chosen(Metric::Time, &Choosing::among(&[fast()]), 3.0),
            Some(Method::STORE)
        );
    }

    fn link(bytes_per_second: f64) -> Link {
        Link {
            bytes_per_second,
            threads: 2.0,
            processors: 4.0,
            block_share: 0.0,
            metrics: Metrics {
                time: Weights {
                    core_second: 0.0,
                    ..metrics().time
                },
                ..metrics()
            },
        }
    }

    #[test]
    fn a_link_pays_below_the_slower_codec_direction() {
        let verdict = link(100e6)
            .verdict(Metric::Time, "all", &[fast()])
            .expect("a method");
        assert_eq!(
            (verdict.method.as_str(), verdict.answer.as_str()),
            ("lz4:1", "pays_below")
        );
        assert!((verdict.break_even.expect("a speed") / 1000.0 - 1.0).abs() < 1e-9);
        assert_eq!(verdict.stages, "overlapped");
        // Two threads compress 1 GB/s: the link is then no bottleneck, and half of the time is saved.
        assert!((verdict.cost_ratio.mean - 0.5).abs() < 1e-9);
        let verdict = link(5e9)
            .verdict(Metric::Time, "all", &[fast()])
            .expect("a method");
        assert_eq!(verdict.method, "store");
        let at = |processors, block_share| {
            let link = Link {
                processors,
                block_share,
                ..link(100e6)
            };
            let verdict = link.verdict(Metric::Time, "all", &[fast()]);
            verdict.and_then(|it| it.break_even).expect("a speed")
        };
        // With no further processor, reading and copying take their own time: 2.55 ns for 2.
        assert!((at(2.0, 0.0) / 784.3 - 1.0).abs() < 1e-3);
        // When all is compressed, a tenth of the bytes is still to be sent and decompressed, by 0.5 ns a byte.
        assert!((at(4.0, 0.1) / (0.95e3 / 1.05) - 1.0).abs() < 1e-3);
        let verdict = link(100e6)
            .verdict(Metric::Energy, "all", &[fast()])
            .expect("a method");
        let at = verdict.break_even.expect("a speed") * 1e6;
        let (raw, compressed) = link(at).totals(Metric::Energy, &fast(), Case::Means, at);
        assert!((raw / compressed - 1.0).abs() < 1e-4);
    }

    fn outlook(miss: f64, memory_bytes: u64, stored: &[Estimate]) -> Option<Outlook<'static>> {
        let cache = Cache {
            memory_bytes,
            data_bytes: 4 << 30,
            buffer_bytes: 8192,
            accesses: Accesses::MadeUp(Access::Zipf(0.9), (4 << 30) / 8192),
            miss: Estimate::within_factor(miss, 1.05),
            metrics: metrics(),
        };
        let kind = |stored: &Estimate| Kind {
            share: 1.0,
            stored: vec![*stored],
        };
        let kinds: Vec<Kind> = stored.iter().map(kind).collect();
        cache.outlook(&[fast()], &kinds, None).expect("accesses")
    }

    #[test]
    fn a_cache_compresses_where_misses_are_dear() {
        let stored = [Estimate::plus_minus(0.5, 0.01)];
        let verdict = |miss, metric| {
            let outlook = outlook(miss, 1 << 30, &stored).expect("something is missed");
            let verdict = outlook.verdict(metric, "all").expect("a method");
            check_agrees(&verdict);
            verdict
        };
        let slow = verdict(1e-3, Metric::Time);
        assert_eq!(
            (slow.method.as_str(), slow.answer.as_str()),
            ("lz4:1", "pays")
        );
        assert!(slow.cost_ratio.mean < 0.9 && slow.cost_ratio.low < slow.cost_ratio.mean);
        let quick = verdict(2e-6, Metric::Time);
        assert_eq!(
            (quick.method.as_str(), quick.answer.as_str()),
            ("store", "never")
        );
        let flip = quick.flips_at.first().expect("dearer misses turn it");
        assert!(flip.quantity == "miss_us" && flip.value > 2.0, "{flip:?}");
        let beyond = verdict(1.1e-6 * flip.value, Metric::Time);
        assert_eq!(beyond.method, "lz4:1", "{beyond:?}");
        let both = verdict(1e-3, Metric::EnergyDelay).cost_ratio.mean;
        let energy = verdict(1e-3, Metric::Energy).cost_ratio.mean;
        assert!(both < energy, "{both} {energy}");
        assert!(
            outlook(1e-3, 4 << 30, &stored).is_none(),
            "nothing is missed"
        );
    }

    #[test]
    fn a_cache_is_undecided_where_its_band_flips() {
        // Buffers that may shrink by half, or hardly at all.
        let stored = [Estimate {
            mean: 0.6,
            low: 0.3,
            high: 0.95,
        }];
        let outlook = outlook(1e-3, 1 << 30, &stored).expect("something is missed");
        let verdict = outlook.verdict(Metric::Time, "all").expect("a method");
        assert_eq!(verdict.answer, "undecided", "{verdict:?}");
        let told = outlook.report("zipf:0.9");
        assert_eq!(told.best.len(), 4);
        assert_eq!(told.best[0].answer, "undecided");
        assert_eq!(told.splits.len(), 14);
        let best = told
            .splits
            .iter()
            .map(|split| split.us_per_access / told.raw_us_per_access)
            .fold(f64::INFINITY, f64::min);
        assert!((best - verdict.cost_ratio.mean).abs() < 1e-9, "{best}");
    }

    #[test]
    fn the_share_that_shrinks_decides() {
        let shrinks = Estimate::exact(0.3);
        let noise = Estimate::exact(1.0);
        let ratio = |stored: &[Estimate]| {
            let outlook = outlook(1e-3, 1 << 30, stored).expect("something is missed");
            let verdict = outlook.verdict(Metric::Time, "all").expect("a method");
            verdict.cost_ratio.mean
        };
        let (all, half) = (ratio(&[shrinks]), ratio(&[shrinks, noise]));
        assert!(all < half && half < 1.0, "{all} {half}");
        assert!(
            (ratio(&[noise; 12]) - 1.0).abs() < 1e-12,
            "nothing is compressed"
        );
    }
}
