//! Estimates from a sample of clusters, with their 95 % intervals.
//!
//! Clusters are drawn without replacement, so an estimate from all of them is exact and its interval empty. There are
//! two estimators. The *ratio* estimator is for methods measured on every cluster of the sample. The *regression*
//! estimator is for slow methods measured on a subsample. It uses a cheap method known on the whole sample (Cochran,
//! Sampling Techniques, chapters 6 and 12). Pure arithmetic.

use crate::statistics::student_t_975;
use crate::units::Estimate;

/// One cluster: the bytes, and a count on them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Raw bytes of the cluster in the class, 0 for none.
    pub raw: f64,
    /// Stored bytes, or seconds: the quantity that is estimated per raw byte.
    pub value: f64,
}

/// One cluster of the subsample: a slow method's count with the cheap method's on the same bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Raw bytes.
    pub raw: f64,
    /// The cheap method's stored bytes, known for every cluster of the first phase.
    pub auxiliary: f64,
    /// The slow method's stored bytes.
    pub value: f64,
}

/// The expectation before any data: so many clusters that deviate from the mean by a share of it.
#[derive(Clone, Copy)]
struct Prior {
    clusters: usize,
    spread: f64,
}

/// The values lie between files of one kind, which differ by less, and the files of a tree, which differ by more. Two
/// or three clusters that happen to agree do not show which case it is. From some dozens on, the data outweighs it.
const CLUSTERS: Prior = Prior {
    clusters: 1,
    spread: 0.5,
};

/// The remainder of a line. On nearly all data, a slow method stores between a third less and as much as the cheap one.
/// That makes one pair worth something.
const LINES: Prior = Prior {
    clusters: 2,
    spread: 0.1,
};

/// Estimates sum(value) / sum(raw) over a population of `cluster_count` clusters from a simple
/// random sample of it without replacement. `None` if no raw byte was seen.
///
/// Source: Cochran, section 6.3 (ratio estimator) with Student's t and the finite population correction. The clusters
/// of a prior count in the variance and its degrees of freedom (a conjugate prior; Gelman et al., Bayesian Data
/// Analysis, section 3.3). A term of `(1 - f) / n` times the observed range is added to the half-width. With `n`
/// clusters seen, a kind of cluster that is a share `1 / n` of the population may well be missing.
pub fn ratio_estimate(sample: &[Count], cluster_count: u64) -> Option<Estimate> {
    let raw: f64 = sample.iter().map(|count| count.raw).sum();
    if raw <= 0.0 {
        return None;
    }
    let value: f64 = sample.iter().map(|count| count.value).sum();
    let mean = value / raw;
    let half_width = half_width(
        sample
            .iter()
            .map(|count| (count.raw, count.value - mean * count.raw)),
        cluster_count,
        1,
        CLUSTERS,
        mean,
    );
    Some(Estimate {
        mean,
        low: (mean - half_width).max(0.0),
        high: mean + half_width,
    })
}

/// From this many pairs on a line has its own intercept; with fewer it goes through the origin. The bytes of a slow
/// method are nearly proportional to those of a fast one, and every parameter fitted to few pairs costs a degree of
/// freedom.
const LINE_PAIRS_MIN: usize = 6;

/// The bytes of a slow method as a line of those of a cheap one, fitted to a subsample.
///
/// Source: Cochran, section 12.6 (regression in double sampling), with the residual variance over `n - 2` and the term
/// for the level of the auxiliary. Below [`LINE_PAIRS_MIN`] pairs it is the ratio in double sampling, section 12.8.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    mean_value: f64,
    mean_auxiliary: f64,
    slope: f64,
    /// Sum of squared deviations of the auxiliary; `None` for a line through the origin.
    auxiliary_squares: Option<f64>,
}

impl Line {
    /// Fits a line; `None` without a raw byte.
    pub fn fit(pairs: &[Pair]) -> Option<Line> {
        let raw: f64 = pairs.iter().map(|pair| pair.raw).sum();
        if raw <= 0.0 {
            return None;
        }
        let mean_value = pairs.iter().map(|pair| pair.value).sum::<f64>() / raw;
        let mean_auxiliary = pairs.iter().map(|pair| pair.auxiliary).sum::<f64>() / raw;
        let (mut covariance, mut squares) = (0.0, 0.0);
        for pair in pairs {
            let deviation = pair.auxiliary - mean_auxiliary * pair.raw;
            covariance += deviation * (pair.value - mean_value * pair.raw);
            squares += deviation * deviation;
        }
        let own_intercept = pairs.len() >= LINE_PAIRS_MIN && squares > 0.0;
        let slope = if own_intercept {
            covariance / squares
        } else if mean_auxiliary > 0.0 {
            mean_value / mean_auxiliary
        } else {
            0.0
        };
        Some(Line {
            mean_value,
            mean_auxiliary,
            slope,
            auxiliary_squares: own_intercept.then_some(squares),
        })
    }

    /// Returns the value expected on bytes whose auxiliary is known.
    pub fn predict(&self, raw: f64, auxiliary: f64) -> f64 {
        let expected = self.mean_value * raw + self.slope * (auxiliary - self.mean_auxiliary * raw);
        expected.max(0.0)
    }

    /// Returns the 95 % half-width, per raw byte, of the mean value where the mean auxiliary is `auxiliary`: the error
    /// of the line alone. It is infinite with too few pairs.
    pub fn half_width(&self, pairs: &[Pair], auxiliary: f64, cluster_count: u64) -> f64 {
        let raw: f64 = pairs.iter().map(|pair| pair.raw).sum();
        let residuals = pairs.iter().map(|pair| {
            let deviation = pair.auxiliary - self.mean_auxiliary * pair.raw;
            let predicted = self.mean_value * pair.raw + self.slope * deviation;
            (pair.raw, pair.value - predicted)
        });
        let parameters = 1 + usize::from(self.auxiliary_squares.is_some());
        let at_mean = half_width(residuals, cluster_count, parameters, LINES, self.mean_value);
        if !at_mean.is_finite() || at_mean == 0.0 {
            return at_mean;
        }
        // Away from the subsample's own level the line is less sure.
        let count = pairs.len() as f64;
        let lever = match self.auxiliary_squares {
            Some(squares) => {
                let distance = (auxiliary - self.mean_auxiliary) * raw / count;
                (1.0 + count * distance * distance / squares).sqrt()
            }
            None if self.mean_auxiliary > 0.0 => (auxiliary / self.mean_auxiliary).max(1.0),
            None => 1.0,
        };
        at_mean * lever
    }
}

/// Estimates sum(value) / sum(raw) from a subsample with an auxiliary count whose estimate over the
/// whole first-phase sample is `auxiliary`. `None` without a raw byte.
///
/// The two errors add as independent: that of the [`Line`], and its slope times the first phase's
/// interval.
pub fn regression_estimate(
    pairs: &[Pair],
    auxiliary: Estimate,
    cluster_count: u64,
) -> Option<Estimate> {
    let line = Line::fit(pairs)?;
    let mean = line.predict(1.0, auxiliary.mean);
    let second_phase = line.half_width(pairs, auxiliary.mean, cluster_count);
    let first_phase = line.slope.abs() * (auxiliary.high - auxiliary.low) / 2.0;
    let half_width = second_phase.hypot(first_phase);
    Some(Estimate {
        mean,
        low: (mean - half_width).max(0.0),
        high: mean + half_width,
    })
}

/// The 95 % half-width of a mean per raw byte, from residuals and a prior about a mean per raw byte. The residuals,
/// with their raw bytes, sum to zero and come from so many fitted `parameters`.
fn half_width(
    residuals: impl Iterator<Item = (f64, f64)> + Clone,
    cluster_count: u64,
    parameters: usize,
    prior: Prior,
    mean: f64,
) -> f64 {
    let count = residuals.clone().count();
    let sampled_share = (count as f64 / cluster_count.max(1) as f64).min(1.0);
    let unsampled_share = 1.0 - sampled_share;
    if unsampled_share == 0.0 {
        return 0.0;
    }
    if count < parameters {
        return f64::INFINITY;
    }
    let effective = effective_count(residuals.clone().map(|(raw, _)| raw));
    let raw: f64 = residuals.clone().map(|(raw, _)| raw).sum();
    let seen: f64 = residuals
        .clone()
        .map(|(_, residual)| (effective * residual / raw).powi(2))
        .sum();
    let expected = prior.clusters as f64 * (prior.spread * mean).powi(2);
    let whole = (effective + ROUNDING) as usize;
    let degrees = (whole + prior.clusters).saturating_sub(parameters).max(1);
    let standard_error = (unsampled_share * (seen + expected) / degrees as f64 / effective).sqrt();
    let (low, high) = residuals
        .filter(|(raw, _)| *raw > 0.0)
        .map(|(raw, residual)| residual / raw)
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
            (low.min(x), high.max(x))
        });
    student_t_975(degrees) * standard_error + unsampled_share * (high - low) / effective
}

/// A whole number of like clusters stays one in spite of rounding.
const ROUNDING: f64 = 1e-6;

/// Returns the number of equal clusters with the same evidence as these of unequal sizes: if one holds nearly all of
/// the bytes, the number is one.
///
/// Source: Kish, Survey Sampling (1965), section 11.7.
pub fn effective_count(raw: impl Iterator<Item = f64>) -> f64 {
    let (sum, squares) = raw.fold((0.0, 0.0), |(sum, squares), raw| {
        (sum + raw, squares + raw * raw)
    });
    if squares > 0.0 {
        sum * sum / squares
    } else {
        0.0
    }
}

/// The least effective clusters of a verdict. Below them, no interval is proved to hold the truth as often as it
/// states: `intervals_hold_the_truth_of_a_kind_among_many_small_files`.
pub const CLUSTERS_PROVED: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_census_is_exact() {
        let sample = [
            Count {
                raw: 10.0,
                value: 4.0,
            },
            Count {
                raw: 30.0,
                value: 20.0,
            },
        ];
        let estimate = ratio_estimate(&sample, 2).expect("bytes were seen");
        assert_eq!(estimate, Estimate::exact(0.6));
        assert_eq!(ratio_estimate(&[], 2), None);
    }

    /// Draws many samples of `count` clusters from pools of all kinds. Returns how often the intervals of a cheap and
    /// of a slow method hold the truth, and the median half-width of each as a share of its mean. The slow method is
    /// measured on half of the sample.
    fn replay(count: usize) -> [(f64, f64); 2] {
        let mut random = fastrand::Rng::with_seed(11);
        let mut tried = 0;
        let (mut held, mut widths) = ([0, 0], [Vec::new(), Vec::new()]);
        for kind in 0..KINDS {
            for _ in 0..10 {
                let clusters = pool(kind, &mut random);
                let truths = [
                    total(&clusters, |pair| pair.auxiliary),
                    total(&clusters, |pair| pair.value),
                ];
                for _ in 0..20 {
                    let mut order = order(&clusters);
                    random.shuffle(&mut order);
                    let seen: Vec<Pair> = order[..count].iter().map(|at| clusters[*at]).collect();
                    let counts: Vec<Count> = seen
                        .iter()
                        .map(|pair| Count {
                            raw: pair.raw,
                            value: pair.auxiliary,
                        })
                        .collect();
                    let clusters = clusters.len() as u64;
                    let cheap = ratio_estimate(&counts, clusters).expect("bytes");
                    let half = &seen[..count / 2];
                    let slow = regression_estimate(half, cheap, clusters).expect("pairs");
                    tried += 1;
                    for (at, estimate) in [cheap, slow].into_iter().enumerate() {
                        held[at] += usize::from(holds(estimate, truths[at]));
                        widths[at].push((estimate.high - estimate.mean) / estimate.mean);
                    }
                }
            }
        }
        assert!(tried >= 2000, "{tried}");
        widths
            .iter_mut()
            .for_each(|all| all.sort_by(f64::total_cmp));
        [0, 1].map(|at| {
            (
                held[at] as f64 / f64::from(tried),
                widths[at][widths[at].len() / 2],
            )
        })
    }

    #[test]
    fn intervals_hold_the_truth_however_few_clusters_were_seen() {
        for count in [4, 8, 16, 32, 64, 128] {
            let found = replay(count);
            println!(
                "{count} clusters: held, width: cheap {:?}, slow {:?}",
                found[0], found[1]
            );
            for (held, _) in found {
                assert!(held >= 0.93, "{count} clusters: {found:?}");
            }
        }
    }

    /// Clusters of many small files, some of the kind in question. All have one level of ratio, or some have it, or a
    /// rare one has another. Each file has its own level, or neighbours are alike.
    fn small_files(kind: usize, random: &mut fastrand::Rng) -> Vec<Count> {
        let clusters = [20, 60][random.usize(..2)];
        let share = [0.02, 0.1, 0.5][random.usize(..3)];
        let run = [1, 40][random.usize(..2)];
        let normal = |random: &mut fastrand::Rng| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let level = |random: &mut fastrand::Rng| match kind {
            0 => (0.3 * (0.6 * normal(random)).exp()).min(1.0),
            1 => [0.1, 0.3, 1.0][random.usize(..3)],
            2 => [1.0, 0.3][usize::from(random.f64() < 0.1)],
            3 => [0.3, 1.0][usize::from(random.f64() < 0.1)],
            _ => 0.35 * (0.15 * normal(random)).exp(),
        };
        let (mut left, mut of_file) = (0, 0.0);
        let mut all = Vec::new();
        for _ in 0..clusters {
            let (mut count, mut bytes) = (Count::default(), 0.0);
            while bytes < 1e6 {
                let size = (8.5 + 1.6 * normal(random)).exp().min(5e5);
                bytes += size;
                if random.f64() < share {
                    if left == 0 {
                        (left, of_file) = (random.usize(1..=run), level(random));
                    }
                    left -= 1;
                    count.raw += size;
                    count.value += size * of_file;
                }
            }
            all.push(count);
        }
        all
    }

    #[test]
    fn intervals_hold_the_truth_of_a_kind_among_many_small_files() {
        let mut random = fastrand::Rng::with_seed(23);
        let (mut tried, mut held) = (0, 0);
        while tried < 1000 {
            let clusters = small_files(tried % 5, &mut random);
            let sum = |of: fn(&Count) -> f64| clusters.iter().map(of).sum::<f64>();
            let expected = sum(|count| count.value) / sum(|count| count.raw);
            let mut order = clusters.clone();
            random.shuffle(&mut order);
            // The first time that a verdict may be requested, or later.
            let wanted = CLUSTERS_PROVED * (1.0 + 2.0 * random.f64());
            let enough =
                |count: &usize| effective_count(order[..*count].iter().map(|of| of.raw)) >= wanted;
            let Some(count) = (4..order.len()).find(enough) else {
                continue;
            };
            let estimate = ratio_estimate(&order[..count], order.len() as u64).expect("bytes");
            tried += 1;
            held += usize::from(holds(estimate, expected));
        }
        println!("{held} of {tried} intervals hold the truth");
        assert!(held >= 950, "{held} of {tried}");
    }

    #[test]
    fn many_clusters_of_one_kind_are_as_narrow_as_their_spread() {
        let clusters: Vec<Count> = (0..128)
            .map(|index| Count {
                raw: 1.0,
                value: 0.4 + 0.02 * f64::from(index % 2 * 2 - 1),
            })
            .collect();
        let estimate = ratio_estimate(&clusters, 10_000).expect("bytes");
        let half_width = (estimate.high - estimate.mean) / estimate.mean;
        // The spread alone gives 0.9 % of it, and the range that a cluster of 128 may hide 0.1 %.
        assert!((0.009..0.014).contains(&half_width), "{half_width}");
    }

    fn order(clusters: &[Pair]) -> Vec<usize> {
        (0..clusters.len()).collect()
    }

    fn holds(estimate: Estimate, truth: f64) -> bool {
        estimate.low <= truth && truth <= estimate.high
    }

    fn total(clusters: &[Pair], value: impl Fn(&Pair) -> f64) -> f64 {
        let raw: f64 = clusters.iter().map(|pair| pair.raw).sum();
        clusters.iter().map(value).sum::<f64>() / raw
    }

    /// The kinds that [`pool`] makes. The first five have one kind of cluster among another, from few to half; then the
    /// same the other way round. Then come everything at once, files of some clusters each, dense data with a long
    /// tail, and one kind alone.
    const KINDS: usize = 14;
    const RARE_SHARES: [f64; 5] = [0.02, 0.05, 0.1, 0.3, 0.5];

    /// Makes a pool of 300 clusters of a kind.
    fn pool(kind: usize, random: &mut fastrand::Rng) -> Vec<Pair> {
        let mut left = 0;
        let (mut level, mut gain) = (0.0, 0.0);
        let mut clusters = Vec::new();
        for _ in 0..300 {
            if left == 0 {
                let rare = random.f64() < RARE_SHARES[kind % 5];
                level = match kind {
                    0..5 => [0.25, 0.9][usize::from(rare)],
                    5..10 => [0.9, 0.25][usize::from(rare)],
                    10 => 0.1 + 0.9 * random.f64(),
                    11 => [0.05, 0.2, 0.4, 0.6, 1.0][random.usize(..5)],
                    12 => 0.1 * (random.f64() + random.f64() + random.f64()).exp(),
                    _ => 0.4,
                };
                gain = 0.65 + 0.35 * random.f64();
                left = if kind == 11 { random.usize(1..30) } else { 1 };
            }
            left -= 1;
            let raw = if random.f64() < 0.9 {
                1.0
            } else {
                random.f64()
            };
            let auxiliary = raw * (level * (0.9 + 0.2 * random.f64())).min(1.0);
            let value = auxiliary * (gain + 0.05 * random.f64()).min(1.0);
            clusters.push(Pair {
                raw,
                auxiliary,
                value,
            });
        }
        clusters
    }
}
