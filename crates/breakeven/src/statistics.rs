//! The distributions behind intervals of a mean and of a median, and the mean excess over a limit.

use crate::bisection::bisect;

/// Degrees of freedom from which the expansion has six digits.
const EXPANDED_FROM: usize = 30;

/// Returns the 97.5 % point of Student's t. A variable of `degrees` degrees of freedom lies in -t..t with a probability
/// of 95 %. The point is infinite for no degrees.
///
/// Source: Abramowitz and Stegun 1964. For few degrees it is the distribution itself (equations 26.7.3 and 26.7.4),
/// inverted by halving. For many it is its expansion about the normal point (26.7.5).
///
/// # Cost
/// Some microseconds.
pub fn student_t_975(degrees: usize) -> f64 {
    if degrees == 0 {
        return f64::INFINITY;
    }
    if degrees >= EXPANDED_FROM {
        return expansion(degrees as f64);
    }
    // The point for one degree is below 13.
    bisect(0.0..16.0, usize::MAX, |it| probability(it, degrees) < 0.95).end
}

fn expansion(degrees: f64) -> f64 {
    let z: f64 = 1.959_963_985;
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    z + first / degrees + second / degrees.powi(2) + third / degrees.powi(3)
}

/// The probability that a Student variable lies in -t..t.
fn probability(t: f64, degrees: usize) -> f64 {
    let angle = (t / (degrees as f64).sqrt()).atan();
    let (sine, cosine) = (angle.sin(), angle.cos());
    let odd = degrees % 2 == 1;
    let (mut term, mut sum) = if odd { (cosine, 0.0) } else { (1.0, 0.0) };
    let mut power = if odd { 1 } else { 0 };
    while power + 2 <= degrees {
        sum += term;
        power += 2;
        term *= cosine * cosine * (power as f64 - 1.0) / power as f64;
    }
    if odd {
        std::f64::consts::FRAC_2_PI * (angle + sine * sum)
    } else {
        sine * sum
    }
}

/// Returns the largest rank k (from 0) of `count` sorted values such that the true median lies below it with a
/// probability of at most 2.5 %. That is the probability of at most k heads among `count` fair coins.
pub fn outer_rank(count: usize) -> usize {
    let n = count as f64;
    if count > 100 {
        // The normal approximation, on the safe side by a rank.
        return (n / 2.0 - 0.98 * n.sqrt() - 1.0) as usize;
    }
    let mut heads = 0usize;
    let mut term = 0.5f64.powi(count as i32);
    let mut at_most = term;
    while at_most <= 0.025 {
        term *= (count - heads) as f64 / (heads + 1) as f64;
        heads += 1;
        at_most += term;
    }
    heads.saturating_sub(1)
}

/// Returns by how much a value exceeds a limit, at least 0, on the mean. The value is logistic with this mean and
/// standard deviation.
///
/// It is the integral of the distribution function: s ln(1 + exp((mean - limit) / s)). Here s is the deviation times
/// the square root of 3 over pi.
pub fn mean_excess(mean: f64, limit: f64, deviation: f64) -> f64 {
    let scale = deviation * 3.0_f64.sqrt() / std::f64::consts::PI;
    let distance = (mean - limit) / scale;
    match distance.abs() < 30.0 {
        true => scale * distance.exp().ln_1p(),
        // So far off, or with no deviation, it is one or the other.
        false => (mean - limit).max(0.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_excess_is_that_of_a_logistic_sample() {
        const COUNT: usize = 100_000;
        let scale = 2.0 * 3.0_f64.sqrt() / std::f64::consts::PI;
        // Quantiles in even steps, so that the sample is the distribution.
        let quantile = |index: usize| {
            let below = (index as f64 + 0.5) / COUNT as f64;
            5.0 + scale * (below / (1.0 - below)).ln()
        };
        for limit in [-10.0, 3.0, 5.0, 6.5, 9.0] {
            let excess = |index| (quantile(index) - limit).max(0.0);
            let expected = (0..COUNT).map(excess).sum::<f64>() / COUNT as f64;
            let found = mean_excess(5.0, limit, 2.0);
            assert!(
                (found - expected).abs() < 1e-3,
                "{limit}: {found}, {expected}"
            );
        }
        for (mean, limit, expected) in [(3.0, 1.0, 2.0), (1.0, 3.0, 0.0), (1.0, 1.0, 0.0)] {
            assert_eq!(mean_excess(mean, limit, 0.0), expected);
        }
    }

    #[test]
    fn t_matches_the_printed_tables() {
        for (degrees, expected) in [
            (1, 12.706),
            (2, 4.303),
            (3, 3.182),
            (4, 2.776),
            (5, 2.571),
            (9, 2.262),
            (10, 2.228),
            (15, 2.131),
            (29, 2.045),
            (30, 2.042),
            (120, 1.980),
            (1000, 1.962),
        ] {
            let found = student_t_975(degrees);
            assert!((found - expected).abs() < 5.1e-4, "{degrees}: {found}");
        }
        assert_eq!(student_t_975(0), f64::INFINITY);
    }

    #[test]
    fn the_expansion_continues_the_distribution() {
        for degrees in [EXPANDED_FROM, 31, 100, 999] {
            let found = probability(student_t_975(degrees), degrees);
            assert!((found - 0.95).abs() < 1e-6, "{degrees}: {found}");
        }
    }

    #[test]
    fn ranks_of_the_median_are_those_of_the_binomial() {
        let check = |count: usize, rank: usize| assert_eq!(outer_rank(count), rank, "{count}");
        check(6, 0);
        check(8, 0);
        check(9, 1);
        check(20, 5);
        check(100, 39);
        check(101, 39);
        check(5000, 2429);
    }
}
